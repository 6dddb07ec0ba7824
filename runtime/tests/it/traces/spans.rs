//! Traced runs that have ended are told with spans that are made of their histories, with the same ids each time.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use futures_util::poll;

use millrun::operating::{RunSpan, RunSpans, SpanEnd, SpanFeed, SpanFeedConfig, SpanFeedTaken, SpanOf};
use millrun::workflow::{Cause, SpanId, TraceContext};
use millrun::{
    Activity, ActivityContext, ActivityError, Retry, RunId, RuntimeBuilder, RuntimeConfig, Signal, StopCause,
    Topic, Workflow, WorkflowContext, WorkflowError,
};
use millrun_testkit::{SimConfig, SimHost};

use crate::crashes::cut_off;
use crate::support::Store;

const PLACED: Topic<u64> = Topic::named("orders.placed");
const PAID: Signal<u64> = Signal::named("paid");
const ORDER: Workflow<u64, u64> = Workflow::named("order");
const LABEL: Workflow<u64, u64> = Workflow::named("label");
const COUNT: Workflow<u64, u64> = Workflow::named("count");
const CHARGE: Activity<u64, u64> = Activity::named("charge");

async fn order(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    let charged = cx
        .call(CHARGE, number)
        .retry(Retry::exponential().first_pause(Duration::from_millis(1)));
    let charged = charged.await?;
    let paid = cx.receive(PAID).await?;
    cx.sleep(Duration::from_millis(1)).await?;
    cx.publish(PLACED, number).await?;
    Ok(charged + paid + cx.child(LABEL, format!("label-{number}"), number).await?)
}

/// A child that ends before its parent has heard of it is not known to have begun.
async fn label(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    cx.sleep(Duration::from_millis(1)).await?;
    Ok(number)
}

async fn count(cx: WorkflowContext, left: u64) -> Result<u64, WorkflowError> {
    match left {
        0 => Ok(0),
        left => Ok(cx.continue_as_new(COUNT, left - 1).await?),
    }
}

async fn charge(cx: ActivityContext, number: u64) -> Result<u64, ActivityError> {
    if cx.attempt() < 3 {
        return Err(ActivityError::retryable("busy"));
    }
    Ok(number)
}

fn builder(store: &Store) -> RuntimeBuilder {
    let mut config = RuntimeConfig::default();
    config.traced_per_million = 0;
    let builder = store
        .bare()
        .config(config)
        .register(ORDER, order)
        .register(LABEL, label);
    builder.register(CHARGE, charge).topic(PLACED)
}

fn caller() -> TraceContext {
    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        .parse()
        .unwrap()
}

/// The next `len` runs, by the names of their workflows.
async fn told(feed: &mut SpanFeed, len: usize) -> Vec<RunSpans> {
    let mut runs = Vec::new();
    while runs.len() < len {
        runs.extend(feed.next(len).await.unwrap());
    }
    runs.sort_by(|one, other| one.spans[0].name.cmp(&other.spans[0].name));
    runs
}

fn look_back() -> SpanFeedConfig {
    let mut config = SpanFeedConfig::default();
    config.look_back = Duration::from_secs(3_600);
    config
}

#[tokio::test]
async fn a_traced_run_is_told_with_all_that_it_did_and_alike_in_the_next_process() {
    let store = Store::new();
    let runtime = builder(&store).start().await.unwrap();
    let mut feed = runtime.spans(SpanFeedConfig::default()).unwrap();
    assert!(matches!(
        runtime.spans(SpanFeedConfig::default()),
        Err(SpanFeedTaken)
    ));
    let run = runtime.start(ORDER, "traced", 7).traced(caller()).await.unwrap();
    let untraced = runtime.start(ORDER, "untraced", 8).await.unwrap();
    let unrecorded: TraceContext = caller().to_string().replace("-01", "-00").parse().unwrap();
    let unrecorded = runtime
        .start(ORDER, "unrecorded", 9)
        .traced(unrecorded)
        .await
        .unwrap();
    for run in [&run, &untraced, &unrecorded] {
        run.signal(PAID, 1).await.unwrap();
        run.result().await.unwrap();
    }
    let before = told(&mut feed, 2).await;
    let [child, parent] = &before[..] else {
        panic!("{before:?}");
    };

    let run = run.run_id().unwrap();
    let operation = |operation| SpanId::of_operation(Cause { run, operation });
    assert_eq!((parent.run, parent.trace, parent.left_out), (run, caller(), 0));
    let expected = [
        (SpanOf::Run, "order", SpanId::of_run(run), caller().span_id()),
        (SpanOf::Activity, "charge", operation(1), SpanId::of_run(run)),
        (SpanOf::Timer, "timer", operation(2), SpanId::of_run(run)),
        (
            SpanOf::Publish,
            "publish orders.placed",
            operation(3),
            SpanId::of_run(run),
        ),
        (SpanOf::Child, "label", operation(4), SpanId::of_run(run)),
    ];
    let seen: Vec<_> = parent
        .spans
        .iter()
        .map(|span| (span.of, &*span.name, span.id, span.parent.unwrap()))
        .collect();
    assert_eq!(seen, expected);
    assert!(parent.spans.iter().all(|span| span.end == SpanEnd::Done));
    let names = |span: usize| {
        parent.spans[span]
            .notes
            .iter()
            .map(|note| note.name)
            .collect::<Vec<_>>()
    };
    assert_eq!((names(0), names(1)), (vec!["signal"], vec!["attempt failed"; 2]));
    // The child hangs below the call, and the call leads to it.
    assert_eq!(child.spans[0].parent, Some(operation(4)));
    assert_eq!(parent.spans[4].links, [child.spans[0].id]);
    assert_eq!(child.trace.trace_id(), caller().trace_id());
    let stats = runtime.stats();
    assert_eq!((stats.traced_runs_told, stats.traced_runs_lost), (2, 0));
    drop(feed);

    // As if no collector had taken them: the next process tells them again, and none under another id.
    runtime.shutdown().await.unwrap();
    drop(runtime);
    let runtime = builder(&store).start().await.unwrap();
    let mut feed = runtime.spans(look_back()).unwrap();
    assert_eq!(told(&mut feed, 2).await, before);
    let again = runtime.start(LABEL, "again", 1).traced(caller()).await.unwrap();
    let next = feed.next(9).await.unwrap();
    assert_eq!(
        next.iter().map(|run| Some(run.run)).collect::<Vec<_>>(),
        [again.run_id()]
    );
    drop(feed);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_reader_that_is_behind_loses_the_oldest_and_holds_up_no_run() {
    let store = Store::new();
    let runtime = builder(&store).start().await.unwrap();
    let mut config = SpanFeedConfig::default();
    config.queue_len_max = 3;
    let mut feed = runtime.spans(config).unwrap();
    let mut ids = Vec::new();
    for number in 0..10 {
        let run = runtime
            .start(LABEL, &number.to_string(), number)
            .traced(caller())
            .await
            .unwrap();
        run.result().await.unwrap();
        ids.extend(run.run_id());
    }
    let told: BTreeSet<_> = feed.next(10).await.unwrap().iter().map(|run| run.run).collect();
    assert_eq!(told, ids[7..].iter().copied().collect());
    let stats = runtime.stats();
    assert_eq!((stats.traced_runs_told, stats.traced_runs_lost), (3, 7));
    drop(feed);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_long_history_is_told_up_to_the_bound_and_with_its_end() {
    let store = Store::new();
    let runtime = builder(&store).start().await.unwrap();
    let mut config = SpanFeedConfig::default();
    config.events_len_max = 3;
    let mut feed = runtime.spans(config).unwrap();
    let run = runtime.start(ORDER, "traced", 7).traced(caller()).await.unwrap();
    run.signal(PAID, 1).await.unwrap();
    run.result().await.unwrap();
    let runs = told(&mut feed, 2).await;
    let [first, ..] = &runs[1].spans[..] else {
        panic!("{runs:?}");
    };
    assert_eq!((runs[1].spans.len(), &first.end), (2, &SpanEnd::Done));
    let names: Vec<_> = first.attributes.iter().map(|(name, _)| *name).collect();
    assert!(names.contains(&"millrun.events_left_out"), "{names:?}");
    drop(feed);
    runtime.shutdown().await.unwrap();
}

/// A cancelled call of `next` had taken runs out of the queue: they were lost, and not counted.
#[tokio::test]
async fn a_call_that_is_cancelled_leaves_its_runs_to_the_next_and_a_feed_that_is_dropped_counts_them() {
    for is_dropped in [false, true] {
        let store = Store::new();
        let runtime = builder(&store).start().await.unwrap();
        let mut feed = runtime.spans(SpanFeedConfig::default()).unwrap();
        let run = runtime
            .start(LABEL, "cancelled", 1)
            .traced(caller())
            .await
            .unwrap();
        run.result().await.unwrap();
        let mut next = Box::pin(feed.next(1));
        // The reader is another thread, and may have answered already.
        let told = match poll!(next.as_mut()) {
            Poll::Ready(told) => told.unwrap().len(),
            Poll::Pending => 0,
        };
        drop(next);
        let expected = match (told, is_dropped) {
            (0, true) => (0, 1),
            (0, false) => {
                assert_eq!(feed.next(1).await.unwrap()[0].run, run.run_id().unwrap());
                (1, 0)
            }
            _ => (1, 0),
        };
        drop(feed);
        let stats = runtime.stats();
        assert_eq!((stats.traced_runs_told, stats.traced_runs_lost), expected);
        runtime.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn a_run_that_is_terminated_while_its_code_is_not_in_memory_is_told() {
    for has_code in [true, false] {
        let store = Store::new();
        let runtime = builder(&store).start().await.unwrap();
        let run = runtime.start(ORDER, "order", 7).traced(caller()).await.unwrap();
        let run = run.run_id().unwrap();
        runtime.shutdown().await.unwrap();
        drop(runtime);
        let builder = match has_code {
            true => builder(&store),
            false => store.bare(),
        };
        let runtime = builder.start().await.unwrap();
        let mut feed = runtime.spans(SpanFeedConfig::default()).unwrap();
        let handle = runtime.attach_untyped("order").unwrap();
        handle.terminate("not wanted").await.unwrap();
        let told = feed.next(1).await.unwrap();
        assert_eq!((told[0].run, told[0].trace), (run, caller()));
        let end = SpanEnd::Failed("terminated: not wanted".into());
        assert_eq!(told[0].spans[0].end, end);
        drop(feed);
        runtime.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn a_run_that_goes_on_in_another_is_told_as_two_that_are_linked() {
    let store = Store::new();
    let runtime = builder(&store).register(COUNT, count).start().await.unwrap();
    let mut feed = runtime.spans(SpanFeedConfig::default()).unwrap();
    let run = runtime.start(COUNT, "count", 1).traced(caller()).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 0);
    let [first, second] = &told(&mut feed, 2).await[..] else {
        panic!("two runs are told");
    };
    assert_eq!(
        (&first.spans[0].end, &second.spans[0].end),
        (&SpanEnd::Done, &SpanEnd::Done)
    );
    assert_eq!(second.spans[0].links, [SpanId::of_run(first.run)]);
    assert_eq!((first.trace, second.trace), (caller(), caller()));
    drop(feed);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_feed_ends_with_its_runtime() {
    let store = Store::new();
    let runtime = builder(&store).start().await.unwrap();
    let mut feed = runtime.spans(SpanFeedConfig::default()).unwrap();
    let (next, stopped) = tokio::join!(feed.next(1), runtime.shutdown());
    stopped.unwrap();
    assert!(matches!(next, Err(StopCause::Shutdown)), "{next:?}");
}

/// The run, and its operations by their numbers.
fn ids_of(spans: &[RunSpan], run: RunId) -> Vec<SpanId> {
    let operation = |operation| SpanId::of_operation(Cause { run, operation });
    let ids: Vec<_> = spans.iter().map(|span| span.id).collect();
    let expected: Vec<_> = std::iter::once(SpanId::of_run(run))
        .chain((1..u32::try_from(ids.len()).unwrap()).map(operation))
        .collect();
    assert_eq!(ids, expected);
    ids
}

/// Before the crash attempts were handed the ids, and a reader may have been told of the spans: both know them under the
/// ids that the next process tells.
#[test]
fn wherever_a_crash_comes_each_operation_has_one_span_under_one_id() {
    for steps in 1.. {
        let store = Store::new();
        let handed = Arc::new(Mutex::new(BTreeSet::new()));
        let told_before = Arc::new(Mutex::new(Vec::new()));
        let crashing = |world: &SimHost| {
            let handed = Arc::clone(&handed);
            let charge = move |cx: ActivityContext, number: u64| {
                handed.lock().unwrap().insert(cx.trace().unwrap().span_id());
                charge(cx, number)
            };
            let builder = store.bare().host(world.host()).register(ORDER, order);
            builder
                .register(LABEL, label)
                .register(CHARGE, charge)
                .topic(PLACED)
        };
        let world = SimHost::new(SimConfig::seeded(1));
        let (first, before) = (crashing(&world), Arc::clone(&told_before));
        let is_told = cut_off(
            &world,
            async move {
                let runtime = first.start().await.unwrap();
                let mut feed = runtime.spans(SpanFeedConfig::default()).unwrap();
                let run = runtime.start(ORDER, "order", 7).traced(caller()).await.unwrap();
                run.signal(PAID, 1).await.unwrap();
                run.result().await.unwrap();
                while before.lock().unwrap().len() < 2 {
                    let runs = feed.next(2).await.unwrap();
                    before.lock().unwrap().extend(runs);
                }
            },
            steps,
        );
        let world = SimHost::new(SimConfig::seeded(2));
        let second = crashing(&world);
        let script = async move {
            let runtime = second.start().await.unwrap();
            let run = runtime.start(ORDER, "order", 7).traced(caller()).await.unwrap();
            // It may have ended, or have had the signal.
            drop(run.signal(PAID, 1).await);
            run.result().await.unwrap();
            let mut feed = runtime.spans(look_back()).unwrap();
            let runs = told(&mut feed, 2).await;
            drop(feed);
            runtime.shutdown().await.unwrap();
            runs
        };
        let runs = world.block_on(script).unwrap();
        let [child, parent] = &runs[..] else {
            panic!("{runs:?}");
        };
        let ids = ids_of(&parent.spans, parent.run);
        assert_eq!(ids.len(), 5, "cut off after {steps} steps");
        assert_eq!(child.spans[0].parent, Some(ids[4]));
        assert_eq!(*handed.lock().unwrap(), BTreeSet::from([ids[1]]));
        for run in told_before.lock().unwrap().iter() {
            assert!(runs.contains(run), "cut off after {steps} steps: {run:?}");
        }
        if is_told {
            assert!(steps > 30, "{steps} steps");
            return;
        }
    }
}
