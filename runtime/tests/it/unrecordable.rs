//! A turn that does not fit the journal: its run is parked, and what it was told is not lost.

use std::time::Duration;

use millrun::operating::{InstanceStatus, ParkReason};
use millrun::{
    Activity, ActivityContext, ActivityError, DurableTopic, ResultError, RunError, RuntimeBuilder, Signal,
    Topic, Workflow, WorkflowContext, WorkflowError,
};

use crate::support::{DOUBLE, Store, described, double};

const BLOB: Activity<String, ()> = Activity::named("blob");
const FAILS: Activity<u64, u64> = Activity::named("fails");
const CHILD: Workflow<u64, u64> = Workflow::named("child");
const TOLD: Topic<u64> = Topic::named("told");
const KEPT: DurableTopic<u64> = Topic::named("kept").durable();
const GO: Signal<bool> = Signal::named("go");
/// Waits for what its input says, then does more in one turn than can be recorded.
const GREEDY: Workflow<String, u64> = Workflow::named("greedy");

const TURN_BYTES_MAX: usize = 64 << 10;
const PAYLOAD_BYTES_MAX: usize = 16 << 10;

async fn blob(_cx: ActivityContext, _blob: String) -> Result<(), ActivityError> {
    Ok(())
}

async fn fails(_cx: ActivityContext, _number: u64) -> Result<u64, ActivityError> {
    Err(ActivityError::fatal("never"))
}

async fn child(_cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    Ok(number + 1)
}

/// More than fits one turn.
async fn too_much(cx: &WorkflowContext) -> Result<(), WorkflowError> {
    let blobs = (0..10).map(|_| cx.call(BLOB, "x".repeat(PAYLOAD_BYTES_MAX - 100)));
    for stored in cx.join_all(blobs).await {
        stored?;
    }
    Ok(())
}

/// Waits for one thing; a number that only that can give.
async fn wait_for(cx: &WorkflowContext, what: &str) -> Result<u64, WorkflowError> {
    Ok(match what {
        "a call" => cx.call(DOUBLE, 5).await?,
        "a call that fails" => u64::from(cx.call(FAILS, 5).await.is_err()) + 10,
        "a timer" => {
            cx.sleep(Duration::from_millis(1)).await?;
            12
        }
        "a child" => cx.child(CHILD, "the-child", 12).await?,
        "a publish" => {
            cx.publish(TOLD, 1).await?;
            14
        }
        "a durable publish" => {
            cx.publish(KEPT, 1).await?;
            20
        }
        _ => u64::from(cx.receive(GO).await?) + 15,
    })
}

async fn greedy(cx: WorkflowContext, what: String) -> Result<u64, WorkflowError> {
    let number = wait_for(&cx, &what).await?;
    too_much(&cx).await?;
    Ok(number)
}

async fn modest(cx: WorkflowContext, what: String) -> Result<u64, WorkflowError> {
    wait_for(&cx, &what).await
}

/// Too much only if the signal says so.
async fn obedient(cx: WorkflowContext, _what: String) -> Result<u64, WorkflowError> {
    if cx.receive(GO).await? {
        too_much(&cx).await?;
    }
    Ok(7)
}

fn builder(store: &Store) -> RuntimeBuilder {
    store
        .bare()
        .register(DOUBLE, double)
        .register(BLOB, blob)
        .register(FAILS, fails)
        .register(CHILD, child)
        .topic(TOLD)
        .durable_topic(KEPT)
        .configure(|config| {
            config.journal.turn_bytes_max = TURN_BYTES_MAX;
            config.limits.payload_bytes_max = PAYLOAD_BYTES_MAX;
        })
}

#[tokio::test]
async fn what_comes_once_is_recorded_without_the_code_which_goes_on_when_it_is_mended() {
    for (what, expected) in [
        ("a call", 10),
        ("a call that fails", 11),
        ("a timer", 12),
        ("a child", 13),
        ("a publish", 14),
        ("a durable publish", 20),
    ] {
        let store = Store::new();
        let runtime = builder(&store).register(GREEDY, greedy).start().await.unwrap();
        let run = runtime.start(GREEDY, "g", what.to_owned()).await.unwrap();
        let Err(ResultError::Parked(reason)) = run.result().await else {
            panic!("{what}: the run is not parked")
        };
        let ParkReason::Stuck { message } = &*reason else {
            panic!("{what}: {reason}")
        };
        assert!(message.contains("cannot be recorded"), "{what}: {message}");
        // Nothing of the turn is there but what the run was told.
        let parked = described(&run, |run| run.status == InstanceStatus::Parked).await;
        assert_eq!(parked.pending, [], "{what}");
        runtime.shutdown().await.unwrap();
        drop((run, runtime));

        let runtime = builder(&store).register(GREEDY, modest).start().await.unwrap();
        let run = runtime.attach(GREEDY, "g").unwrap();
        assert_eq!(run.result().await.unwrap(), expected, "{what}");
        let records = runtime.durable_topics()[0].last;
        assert_eq!(records, u64::from(what == "a durable publish"), "{what}");
        runtime.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn a_signal_whose_turn_cannot_be_recorded_is_refused_and_the_run_stays_as_it_was() {
    let store = Store::new();
    let runtime = builder(&store).register(GREEDY, obedient).start().await.unwrap();
    let run = runtime.start(GREEDY, "g", String::new()).await.unwrap();
    for _ in 0..3 {
        let refused = run.signal(GO, true).await;
        assert!(matches!(refused, Err(RunError::Turn(_))), "{refused:?}");
    }
    let waiting = described(&run, |run| run.awaits("go")).await;
    assert_eq!(waiting.status, InstanceStatus::Running);
    run.signal(GO, false).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 7);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_start_whose_turn_cannot_be_recorded_is_refused_and_leaves_nothing() {
    async fn at_once(cx: WorkflowContext, _what: String) -> Result<u64, WorkflowError> {
        too_much(&cx).await?;
        Ok(0)
    }
    let store = Store::new();
    let runtime = builder(&store).register(GREEDY, at_once).start().await.unwrap();
    let refused = runtime.start(GREEDY, "g", String::new()).await;
    assert!(
        matches!(refused, Err(millrun::StartError::Turn(_))),
        "{:?}",
        refused.err()
    );
    assert_eq!((runtime.stats().live, runtime.stats().hot), (0, 0));
    assert!(runtime.list(None, 10).await.unwrap().is_empty());
    runtime.shutdown().await.unwrap();
}

/// Signals that were not taken go along in one turn. If they do not fit, nothing of them is lost, and a
/// larger bound lets them.
#[tokio::test]
async fn a_run_with_more_signals_than_fit_a_turn_goes_on_in_another_when_they_do() {
    const LARGE: Signal<String> = Signal::named("large");
    const HOARD: Workflow<(u64, bool), u64> = Workflow::named("hoard");
    async fn hoard(cx: WorkflowContext, (run, is_checkpoint): (u64, bool)) -> Result<u64, WorkflowError> {
        if run == 0 && cx.checkpointed::<u64>().is_none() {
            cx.receive(GO).await?;
            return Ok(if is_checkpoint {
                cx.checkpoint(&1_u64).await?
            } else {
                cx.continue_as_new(HOARD, (1, false)).await?
            });
        }
        for _ in 0..6 {
            assert_eq!(cx.receive(LARGE).await?.len(), PAYLOAD_BYTES_MAX - 100);
        }
        Ok(6)
    }
    for is_checkpoint in [false, true] {
        let store = Store::new();
        let runtime = builder(&store).register(HOARD, hoard).start().await.unwrap();
        let run = runtime.start(HOARD, "h", (0, is_checkpoint)).await.unwrap();
        for _ in 0..6 {
            let large = "x".repeat(PAYLOAD_BYTES_MAX - 100);
            run.signal(LARGE, large).await.unwrap();
        }
        let refused = run.signal(GO, true).await.unwrap_err();
        assert!(refused.to_string().contains("65536"), "{refused}");
        runtime.shutdown().await.unwrap();
        drop((run, runtime));

        let builder = builder(&store).configure(|config| config.journal.turn_bytes_max *= 4);
        let runtime = builder.register(HOARD, hoard).start().await.unwrap();
        let run = runtime.attach(HOARD, "h").unwrap();
        run.signal(GO, true).await.unwrap();
        assert_eq!(run.result().await.unwrap(), 6);
        runtime.shutdown().await.unwrap();
    }
}
