//! What activities send while they work, and what readers of the run see of it.

use std::sync::Arc;
use std::time::Duration;

use millrun::operating::Lost;
use millrun::streams::{
    ChunkError, OutputStreamError, StreamItem, StreamOpenError, StreamReader, StreamSender,
};
use millrun::{
    Activity, ActivityContext, ActivityError, OutputStream, Retry, RunError, RunHandle, Runtime,
    RuntimeBuilder, RuntimeConfig, Signal, Workflow, WorkflowContext, WorkflowError,
};
use tokio::sync::{Mutex, Notify};

use crate::support::Store;

pub(crate) const NUMBERS: OutputStream<u64> = OutputStream::named("numbers");
pub(crate) const TEXTS: OutputStream<String> = OutputStream::named("numbers");
pub(crate) const WORK: Activity<u64, ()> = Activity::named("work");
pub(crate) const CALL: Workflow<u64, ()> = Workflow::named("call");
pub(crate) const GO: Signal<()> = Signal::named("go");

/// Calls the activity once for each number up to the input, which it waits for a signal with if that is zero.
pub(crate) async fn call(cx: WorkflowContext, calls: u64) -> Result<(), WorkflowError> {
    if calls == 0 {
        cx.receive(GO).await?;
    }
    let retry = Retry::exponential()
        .first_pause(Duration::from_millis(1))
        .attempts(3);
    for call in 1..=calls.max(1) {
        cx.call(WORK, call).retry(retry).await?;
    }
    Ok(())
}

pub(crate) fn config(change: impl FnOnce(&mut RuntimeConfig)) -> RuntimeConfig {
    let mut config = RuntimeConfig::default();
    change(&mut config);
    config
}

fn volatile<Fut>(work: impl Fn(ActivityContext, u64) -> Fut + Clone + Send + Sync + 'static) -> RuntimeBuilder
where
    Fut: Future<Output = Result<(), ActivityError>> + Send + 'static,
{
    Runtime::volatile().register(CALL, call).register(WORK, work)
}

/// An item in few words: `began 1.2` is the second attempt of the first step, in the order in which they are met.
pub(crate) fn told(item: StreamItem<u64>, steps: &mut Vec<millrun::workflow::OperationId>) -> String {
    let mut name = |attempt: millrun::streams::StreamAttempt| {
        let known = steps.iter().position(|step| *step == attempt.operation);
        let step = known.unwrap_or_else(|| {
            steps.push(attempt.operation);
            steps.len() - 1
        });
        format!("{}.{}", step + 1, attempt.attempt)
    };
    match item {
        StreamItem::Began(attempt) => format!("began {}", name(attempt)),
        StreamItem::Chunk(attempt, number) => format!("{number} of {}", name(attempt)),
        StreamItem::Ended(attempt, end) => format!("{} {end}", name(attempt)),
        StreamItem::Missed(Lost::Counted(count)) => format!("missed {count}"),
        StreamItem::Missed(lost) => format!("missed {lost:?}"),
        other => panic!("{other:?}"),
    }
}

/// Reads all there is until the run has ended.
pub(crate) async fn all(mut reader: StreamReader<u64>) -> Vec<String> {
    let (mut items, mut steps) = (Vec::new(), Vec::new());
    while let Some(item) = reader.next().await.unwrap() {
        items.push(told(item, &mut steps));
    }
    items
}

pub(crate) async fn started(runtime: &Runtime, calls: u64) -> RunHandle<()> {
    runtime.start(CALL, "run", calls).await.unwrap()
}

#[tokio::test]
async fn a_retry_is_visible_and_so_is_each_step() {
    let work = |cx: ActivityContext, call: u64| async move {
        let numbers = cx.stream(NUMBERS)?;
        numbers.send(&(call * 10))?;
        if cx.attempt() < 2 {
            return Err(ActivityError::retryable("not yet"));
        }
        // Opened again it is the same.
        cx.stream(NUMBERS)?.send(&(call * 10 + 1))?;
        Ok(())
    };
    let runtime = volatile(work).start().await.unwrap();
    let run = started(&runtime, 2).await;
    let live = run.stream(NUMBERS).await.unwrap();
    let expected = [
        "began 1.1",
        "10 of 1.1",
        "1.1 failed",
        "began 1.2",
        "10 of 1.2",
        "11 of 1.2",
        "1.2 succeeded",
        "began 2.1",
        "20 of 2.1",
        "2.1 failed",
        "began 2.2",
        "20 of 2.2",
        "21 of 2.2",
        "2.2 succeeded",
    ];
    assert_eq!(all(live).await, expected);
    run.result().await.unwrap();
    // Also by a reader that comes when the run has ended, and by one that knows only its id.
    assert_eq!(all(run.stream(NUMBERS).await.unwrap()).await, expected);
    let latest = runtime.attach(CALL, "run").unwrap();
    assert_eq!(all(latest.stream(NUMBERS).await.unwrap()).await, expected);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_reader_may_come_before_the_activity_is_called() {
    let work = |cx: ActivityContext, _: u64| async move { Ok(cx.stream(NUMBERS)?.send(&7)?) };
    let runtime = volatile(work).start().await.unwrap();
    let run = started(&runtime, 0).await;
    let reader = tokio::spawn(all(run.stream(NUMBERS).await.unwrap()));
    tokio::task::yield_now().await;
    run.pause("it waits").await.unwrap();
    run.signal(GO, ()).await.unwrap();
    run.resume().await.unwrap();
    assert_eq!(reader.await.unwrap(), ["began 1.1", "7 of 1.1", "1.1 succeeded"]);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_slow_reader_is_told_how_much_it_has_missed_and_the_activity_does_not_wait() {
    let work = |cx: ActivityContext, _: u64| async move {
        let numbers = cx.stream(NUMBERS)?;
        for number in 0..10_000 {
            numbers.send(&number)?;
        }
        Ok(())
    };
    let builder = volatile(work).config(config(|config| config.stream_tail_len_max = 3));
    let runtime = builder.start().await.unwrap();
    let run = started(&runtime, 1).await;
    let slow = run.stream(NUMBERS).await.unwrap();
    run.result().await.unwrap();
    // Of 10,002 items the beginning and the end of the attempt are two.
    assert_eq!(
        all(slow).await,
        ["missed 9999", "9998 of 1.1", "9999 of 1.1", "1.1 succeeded"]
    );
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn the_bytes_of_a_tail_are_bounded_as_well() {
    let work = |cx: ActivityContext, _: u64| async move {
        let texts = cx.stream(TEXTS)?;
        for _ in 0..10 {
            texts.send("0123456789")?;
        }
        assert!(matches!(
            texts.send(&*"x".repeat(100)),
            Err(ChunkError::TooLarge {
                bytes: 103,
                bytes_max: 100
            })
        ));
        Ok(())
    };
    let config = config(|config| {
        config.stream_tail_bytes_max = 30;
        config.stream_chunk_bytes_max = 100;
    });
    let runtime = volatile(work).config(config).start().await.unwrap();
    let run = started(&runtime, 1).await;
    run.result().await.unwrap();
    let mut reader = run.stream(TEXTS).await.unwrap();
    assert_eq!(
        reader.next().await.unwrap(),
        Some(StreamItem::Missed(Lost::Counted(9)))
    );
    assert!(matches!(
        reader.next().await.unwrap(),
        Some(StreamItem::Chunk(..))
    ));
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_reader_goes_on_behind_a_position_and_one_of_another_process_is_told_of_a_gap() {
    let store = Store::new();
    let work = |cx: ActivityContext, call: u64| async move {
        let numbers = cx.stream(NUMBERS)?;
        for number in 0..3 {
            numbers.send(&(call * 10 + number))?;
        }
        Ok(())
    };
    let open = || store.bare().register(CALL, call).register(WORK, work);
    let runtime = open().start().await.unwrap();
    let run = started(&runtime, 1).await;
    run.result().await.unwrap();
    let mut first = run.stream(NUMBERS).await.unwrap();
    for _ in 0..2 {
        first.next().await.unwrap();
    }
    let position = first.position().to_string().parse().unwrap();
    let rest = ["11 of 1.1", "12 of 1.1", "1.1 succeeded"];
    assert_eq!(all(first).await, rest);
    let again = run.stream_behind(NUMBERS, position).await.unwrap();
    assert_eq!(all(again).await, rest);
    runtime.shutdown().await.unwrap();

    let runtime = open().start().await.unwrap();
    let run = runtime.attach(CALL, "run").unwrap();
    let again = run.stream_behind(NUMBERS, position).await.unwrap();
    assert_eq!(all(again).await, ["missed Unknown"]);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_stream_ends_with_an_attempt_that_is_cut_off_and_takes_nothing_more() {
    let kept: Arc<Mutex<Option<StreamSender<u64>>>> = Arc::default();
    let begun = Arc::new(Notify::new());
    let (keeps, tells) = (Arc::clone(&kept), Arc::clone(&begun));
    let work = move |cx: ActivityContext, _: u64| {
        let (keeps, tells) = (Arc::clone(&keeps), Arc::clone(&tells));
        async move {
            let numbers = cx.stream(NUMBERS)?;
            numbers.send(&1)?;
            *keeps.lock().await = Some(numbers);
            tells.notify_one();
            std::future::pending().await
        }
    };
    let runtime = volatile(work).start().await.unwrap();
    let run = started(&runtime, 1).await;
    let reader = run.stream(NUMBERS).await.unwrap();
    begun.notified().await;
    run.terminate("enough").await.unwrap();
    assert_eq!(all(reader).await, ["began 1.1", "1 of 1.1", "1.1 cancelled"]);
    let kept = kept.lock().await.take().unwrap();
    assert_eq!(kept.send(&2), Err(ChunkError::Cancelled));
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_name_carries_one_type_in_a_run() {
    let work = |cx: ActivityContext, _: u64| async move {
        cx.stream(NUMBERS)?;
        let other = cx.stream(TEXTS).unwrap_err();
        assert!(
            matches!(other, OutputStreamError::OtherType { name: "numbers", .. }),
            "{other}"
        );
        Ok(())
    };
    let runtime = volatile(work).start().await.unwrap();
    let run = started(&runtime, 1).await;
    run.result().await.unwrap();
    let other = run.stream(TEXTS).await.unwrap_err();
    assert!(matches!(other, StreamOpenError::OtherType { .. }), "{other}");
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn streams_in_use_are_bounded_and_those_out_of_use_make_room() {
    let work = |cx: ActivityContext, _: u64| async move { Ok(cx.stream(NUMBERS)?.send(&7)?) };
    let builder = volatile(work).config(config(|config| config.streams_len_max = 2));
    let runtime = builder.start().await.unwrap();
    let mut runs = Vec::new();
    for id in ["a", "b", "c"] {
        let run = runtime.start(CALL, id, 1).await.unwrap();
        run.result().await.unwrap();
        runs.push(run);
    }
    // That of the first run had to go, and the reader that asks for it makes the second one go.
    assert_eq!(all(runs[0].stream(NUMBERS).await.unwrap()).await, [""; 0]);
    let kept = runs[2].stream(NUMBERS).await.unwrap();
    let other = runs[1].stream(NUMBERS).await.unwrap();
    let refused = runs[0].stream(NUMBERS).await.unwrap_err();
    assert!(
        matches!(refused, StreamOpenError::TooMany { len_max: 2 }),
        "{refused}"
    );
    assert_eq!(all(kept).await, ["began 1.1", "7 of 1.1", "1.1 succeeded"]);
    drop(other);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_run_that_there_is_not_has_no_stream() {
    let runtime = volatile(|_, _| async { Ok(()) }).start().await.unwrap();
    let nobody = runtime.attach(CALL, "nobody").unwrap();
    let refused = nobody.stream(NUMBERS).await.unwrap_err();
    assert!(
        matches!(refused, StreamOpenError::Run(RunError::NotFound)),
        "{refused}"
    );
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_name_that_no_stream_may_have_is_refused() {
    let runtime = volatile(|_, _| async { Ok(()) }).start().await.unwrap();
    started(&runtime, 1).await.result().await.unwrap();
    let run = runtime.attach_untyped("run").unwrap();
    let check = async |name: String, is_refused: bool| {
        let bytes = name.len();
        let found = run.stream(&name, None).await.map(drop);
        let refused = matches!(found, Err(StreamOpenError::Name { bytes: told }) if told == bytes);
        assert_eq!(refused, is_refused, "{bytes} bytes: {found:?}");
    };
    check(String::new(), true).await;
    check("n".repeat(255), false).await;
    check("n".repeat(256), true).await;
    runtime.shutdown().await.unwrap();
}
