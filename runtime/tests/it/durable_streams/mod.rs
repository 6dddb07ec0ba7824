//! Durable output streams: what is acknowledged is read by those who come later, over restarts, in order and once; ends and
//! retries of attempts stand in between; all of it goes with the run.

mod crashes;
mod killed;
mod moving;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millrun::streams::{
    AttemptEnd, DURABLE_STREAM_NAME_BYTES_MAX, DurableChunkError, DurableStreamError, DurableStreamSender,
    OutputStreamError, StreamItem, StreamOpenError, StreamPosition, StreamReadError,
};
use millrun::{ActivityContext, ActivityError, OutputStream, RunError, RunHandle, Runtime, RuntimeBuilder};
use tokio::sync::{Mutex, Notify};

use crate::streams::{CALL, NUMBERS, TEXTS, WORK, all, call, config, started};
use crate::support::Store;

fn coded<Fut>(
    builder: RuntimeBuilder,
    work: impl Fn(ActivityContext, u64) -> Fut + Clone + Send + Sync + 'static,
) -> RuntimeBuilder
where
    Fut: Future<Output = Result<(), ActivityError>> + Send + 'static,
{
    builder.register(CALL, call).register(WORK, work)
}

/// Sends two chunks, and fails the first time.
async fn twice(cx: ActivityContext, call: u64) -> Result<(), ActivityError> {
    let numbers = cx.durable_stream(NUMBERS).await?;
    numbers.send(&(call * 10)).await?;
    // Opened again it is the same.
    let again = cx.durable_stream(NUMBERS).await?;
    again.send_ahead(&(call * 10 + 1)).await?;
    again.flush().await?;
    match cx.attempt() {
        1 => Err(ActivityError::retryable("not yet")),
        _ => Ok(()),
    }
}

const TWICE: [&str; 8] = [
    "began 1.1",
    "10 of 1.1",
    "11 of 1.1",
    "1.1 failed",
    "began 1.2",
    "10 of 1.2",
    "11 of 1.2",
    "1.2 succeeded",
];

#[tokio::test]
async fn a_retry_is_visible_live_and_behind_a_restart_and_each_position_leads_on() {
    let store = Store::new();
    let runtime = coded(store.bare(), twice).start().await.unwrap();
    let run = started(&runtime, 0).await;
    // Before the activity is called: that the stream is durable shows later.
    let live = tokio::spawn(all(run.stream(NUMBERS).await.unwrap()));
    tokio::task::yield_now().await;
    run.signal(crate::streams::GO, ()).await.unwrap();
    let all_live = live.await.unwrap();
    assert_eq!(all_live, TWICE);
    let mut reader = run.stream(NUMBERS).await.unwrap();
    let mut positions: Vec<StreamPosition> = vec![reader.position()];
    while reader.next().await.unwrap().is_some() {
        positions.push(reader.position().to_string().parse().unwrap());
    }
    runtime.shutdown().await.unwrap();

    // In another life, in which the run has ended, and in one after that.
    for _ in 0..2 {
        let runtime = coded(store.bare(), twice).start().await.unwrap();
        let run = runtime.attach(CALL, "run").unwrap();
        assert_eq!(all(run.stream(NUMBERS).await.unwrap()).await, TWICE);
        for (nth, position) in positions.iter().enumerate() {
            let rest = run.stream_behind(NUMBERS, *position).await.unwrap();
            assert_eq!(all(rest).await, TWICE[nth..], "behind item {nth}");
        }
        let unknown = "0123456789abcdef-3".parse().unwrap();
        let missed = all(run.stream_behind(NUMBERS, unknown).await.unwrap()).await;
        assert_eq!(missed[0], "missed Unknown");
        assert_eq!(missed[1..], TWICE);
        runtime.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn an_attempt_that_is_cut_off_with_its_process_ends_as_lost_before_the_next_begins() {
    let store = Store::new();
    let life = Arc::new(AtomicU64::new(1));
    let sent = Arc::new(Notify::new());
    let open = || {
        let (life, sent) = (Arc::clone(&life), Arc::clone(&sent));
        let work = move |cx: ActivityContext, _: u64| {
            let (life, sent) = (life.load(Ordering::SeqCst), Arc::clone(&sent));
            async move {
                let numbers = cx.durable_stream(NUMBERS).await?;
                numbers.send(&life).await?;
                if life < 3 {
                    sent.notify_one();
                    std::future::pending::<()>().await;
                }
                Ok(())
            }
        };
        let builder = store.bare().config(config(|config| {
            config.shutdown_grace = std::time::Duration::ZERO;
        }));
        coded(builder, work).start()
    };
    let runtime = open().await.unwrap();
    let run = started(&runtime, 1).await;
    sent.notified().await;
    let mut reader = run.stream(NUMBERS).await.unwrap();
    for _ in 0..2 {
        reader.next().await.unwrap();
    }
    let position = reader.position();
    // The process ends without a word.
    runtime.shutdown().await.unwrap();
    drop((reader, run, runtime));

    life.store(2, Ordering::SeqCst);
    let runtime = open().await.unwrap();
    sent.notified().await;
    runtime.shutdown().await.unwrap();
    life.store(3, Ordering::SeqCst);
    let runtime = open().await.unwrap();
    let run = runtime.attach(CALL, "run").unwrap();
    run.result().await.unwrap();
    let whole = all(run.stream(NUMBERS).await.unwrap()).await;
    let expected = [
        "began 1.1",
        "1 of 1.1",
        "1.1 lost",
        "began 1.2",
        "2 of 1.2",
        "1.2 lost",
        "began 1.3",
        "3 of 1.3",
        "1.3 succeeded",
    ];
    assert_eq!(whole, expected);
    let mut rest = run.stream_behind(NUMBERS, position).await.unwrap();
    let first = rest.next().await.unwrap();
    assert!(
        matches!(first, Some(StreamItem::Ended(_, AttemptEnd::Lost))),
        "{first:?}"
    );
    assert_eq!(all(rest).await.len(), expected.len() - 3);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_stream_is_of_one_kind_of_one_type_and_of_a_short_name() {
    const LONG: OutputStream<u64> = OutputStream::named(
        "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn\
         nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn",
    );
    const VOLATILE: OutputStream<u64> = OutputStream::named("volatile");
    let work = |cx: ActivityContext, _: u64| async move {
        cx.durable_stream(NUMBERS).await?;
        assert_eq!(cx.stream(NUMBERS).unwrap_err(), OutputStreamError::Durable);
        let other = cx.durable_stream(TEXTS).await.unwrap_err();
        assert!(matches!(other, DurableStreamError::OtherType { .. }), "{other}");
        cx.stream(VOLATILE)?.send(&1)?;
        let other = cx.durable_stream(VOLATILE).await.unwrap_err();
        assert!(matches!(other, DurableStreamError::Volatile), "{other}");
        let long = cx.durable_stream(LONG).await.unwrap_err();
        assert!(matches!(long, DurableStreamError::Name { bytes } if bytes > DURABLE_STREAM_NAME_BYTES_MAX));
        Ok(())
    };
    let runtime = coded(Runtime::volatile(), work).start().await.unwrap();
    let run = started(&runtime, 1).await;
    run.result().await.unwrap();
    let known = run.stream(NUMBERS).await.unwrap();
    let other = run.stream(TEXTS).await.map(|_| ()).unwrap_err();
    assert!(matches!(other, StreamOpenError::OtherType { .. }), "{other}");
    assert_eq!(all(known).await, ["began 1.1", "1.1 succeeded"]);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn at_its_bounds_a_stream_refuses_and_keeps_what_it_has() {
    let work = |cx: ActivityContext, _: u64| async move {
        if cx.attempt() > 1 {
            let full = cx.durable_stream(TEXTS).await.unwrap_err();
            assert!(
                matches!(full, DurableStreamError::Full { bytes_max: 400 }),
                "{full}"
            );
            return Ok(());
        }
        let texts = cx.durable_stream(TEXTS).await?;
        let large = texts.send(&"x".repeat(101)).await.unwrap_err();
        assert!(
            matches!(large, DurableChunkError::TooLarge { bytes_max: 100, .. }),
            "{large}"
        );
        // Larger than what may be in flight, so that each waits for the one before.
        texts.send_ahead(&"x".repeat(90)).await?;
        texts.send_ahead(&"x".repeat(90)).await?;
        let full = texts.send(&"y".repeat(90)).await.unwrap_err();
        assert!(
            matches!(full, DurableChunkError::Full { bytes_max: 400 }),
            "{full}"
        );
        texts.flush().await?;
        Err(ActivityError::retryable("once more"))
    };
    let builder = Runtime::volatile().config(config(|config| {
        config.stream_chunk_bytes_max = 100;
        config.durable_stream_bytes_max = 400;
        config.durable_stream_in_flight_bytes_max = 50;
    }));
    let runtime = coded(builder, work).start().await.unwrap();
    let run = started(&runtime, 1).await;
    run.result().await.unwrap();
    let mut reader = run.stream(TEXTS).await.unwrap();
    let mut items = 0;
    while reader.next().await.unwrap().is_some() {
        items += 1;
    }
    assert_eq!(
        items, 4,
        "a beginning, two chunks, and an end for which there is room always"
    );
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_sender_that_outlives_its_attempt_is_told_so_and_so_is_a_reader() {
    let kept: Arc<Mutex<Option<DurableStreamSender<u64>>>> = Arc::default();
    let begun = Arc::new(Notify::new());
    let (keeps, tells) = (Arc::clone(&kept), Arc::clone(&begun));
    let work = move |cx: ActivityContext, _: u64| {
        let (keeps, tells) = (Arc::clone(&keeps), Arc::clone(&tells));
        async move {
            let numbers = cx.durable_stream(NUMBERS).await?;
            numbers.send(&1).await?;
            *keeps.lock().await = Some(numbers);
            tells.notify_one();
            std::future::pending().await
        }
    };
    let runtime = coded(Runtime::volatile(), work).start().await.unwrap();
    let run = started(&runtime, 1).await;
    let reader = run.stream(NUMBERS).await.unwrap();
    begun.notified().await;
    run.terminate("enough").await.unwrap();
    assert_eq!(all(reader).await, ["began 1.1", "1 of 1.1", "1.1 cancelled"]);
    let kept = kept.lock().await.take().unwrap();
    let late = kept.send(&2).await.unwrap_err();
    assert!(matches!(late, DurableChunkError::Cancelled), "{late}");
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn streams_go_with_their_run_and_make_room_for_others() {
    let work = |cx: ActivityContext, _: u64| async move {
        let numbers = cx.durable_stream(NUMBERS).await?;
        Ok(numbers.send(&7).await?)
    };
    let builder = Runtime::volatile().config(config(|config| {
        config.durable_streams_len_max = 2;
        config.journal.retention.len_max = 1;
        config.journal.topics_len_max = 2;
    }));
    let runtime = coded(builder, work).start().await.unwrap();
    let first = runtime.start(CALL, "first", 1).await.unwrap();
    first.result().await.unwrap();
    let mut reader = first.stream(NUMBERS).await.unwrap();
    let whole = ["began 1.1", "7 of 1.1", "1.1 succeeded"];
    assert_eq!(all(first.stream(NUMBERS).await.unwrap()).await, whole);
    reader.next().await.unwrap();
    let position = reader.position();
    // Many more than there is room for at a time.
    for number in 0..8 {
        let run = runtime.start(CALL, &format!("run-{number}"), 1).await.unwrap();
        run.result().await.unwrap();
        assert_eq!(
            all(run.stream(NUMBERS).await.unwrap()).await,
            whole,
            "run {number}"
        );
    }
    // What it has in hand it is given; behind that nothing of another run.
    let mut seen = Vec::new();
    let end = loop {
        match reader.next().await {
            Ok(Some(item)) => seen.push(item),
            end => break end,
        }
    };
    assert!(
        matches!(end, Err(StreamReadError::Run(RunError::Expired))),
        "{end:?}"
    );
    assert!(seen.len() <= 2, "{seen:?}");
    // Opened anew there is nothing of it, and no other stream is taken for it.
    let mut again = first.stream_behind(NUMBERS, position).await.unwrap();
    let missed = again.next().await.unwrap();
    assert!(matches!(missed, Some(StreamItem::Missed(_))), "{missed:?}");
    let gone = again.next().await;
    assert!(
        matches!(
            gone,
            Err(StreamReadError::Run(RunError::NotFound | RunError::Expired))
        ),
        "{gone:?}"
    );
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn what_cannot_be_kept_is_refused() {
    let refused = Arc::new(Mutex::new(None));
    let keeps = Arc::clone(&refused);
    let work = move |cx: ActivityContext, _: u64| {
        let keeps = Arc::clone(&keeps);
        async move {
            cx.durable_stream(NUMBERS).await?;
            *keeps.lock().await = cx.durable_stream(OutputStream::<u64>::named("more")).await.err();
            Ok(())
        }
    };
    let builder = Runtime::volatile().config(config(|config| config.durable_streams_len_max = 1));
    let runtime = coded(builder, work).start().await.unwrap();
    let run = started(&runtime, 1).await;
    run.result().await.unwrap();
    let refused = refused.lock().await.take();
    assert!(
        matches!(refused, Some(DurableStreamError::TooMany { len_max: 1 })),
        "{refused:?}"
    );
    runtime.shutdown().await.unwrap();
}

const NOTES: OutputStream<String> = OutputStream::named("notes");

/// The name, whether it is durable, and whether it is being sent, of each stream of a run.
async fn listed(run: &RunHandle<()>) -> Vec<(String, bool, bool)> {
    let streams = run.streams().await.unwrap().into_iter();
    streams
        .map(|stream| (stream.name, stream.is_durable, stream.is_sent_to))
        .collect()
}

#[tokio::test]
async fn the_streams_of_a_run_are_listed_with_their_kind_and_the_durable_ones_also_behind_a_restart() {
    let store = Store::new();
    let (has_sent, goes_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (sent, on) = (Arc::clone(&has_sent), Arc::clone(&goes_on));
    let work = move |cx: ActivityContext, _: u64| {
        let (sent, on) = (Arc::clone(&sent), Arc::clone(&on));
        async move {
            cx.durable_stream(NUMBERS).await?.send(&1).await?;
            cx.stream(NOTES)?.send("so far")?;
            sent.notify_one();
            on.notified().await;
            Ok(())
        }
    };
    let runtime = coded(store.bare(), work.clone()).start().await.unwrap();
    let run = started(&runtime, 0).await;
    // A reader makes no stream.
    let reader = run.stream(NUMBERS).await.unwrap();
    assert_eq!(listed(&run).await, []);
    run.signal(crate::streams::GO, ()).await.unwrap();
    has_sent.notified().await;
    let (volatile, durable) = ("notes".to_owned(), "numbers".to_owned());
    let sending = [(volatile.clone(), false, true), (durable.clone(), true, true)];
    assert_eq!(listed(&run).await, sending);
    goes_on.notify_one();
    run.result().await.unwrap();
    all(reader).await;
    let sent = [(volatile, false, false), (durable.clone(), true, false)];
    assert_eq!(listed(&run).await, sent);
    runtime.shutdown().await.unwrap();
    drop((run, runtime));

    let runtime = coded(store.bare(), work).start().await.unwrap();
    let run = runtime.attach(CALL, "run").unwrap();
    assert_eq!(listed(&run).await, [(durable, true, false)]);
    runtime.shutdown().await.unwrap();
}
