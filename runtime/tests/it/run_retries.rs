//! Runs that are tried again when they fail.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millrun::history::{Event, Sequence};
use millrun::operating::{InstanceDescription, InstanceStatus, WaitsFor};
use millrun::{
    Activity, ActivityContext, ActivityError, ResultError, Retry, RunHandle, RunId, Runtime, RuntimeBuilder,
    Signal, StartError, Workflow, WorkflowContext, WorkflowError,
};
use millrun_testkit::{SimConfig, SimHost};

use crate::crashes::cut_off;
use crate::support::Store;

/// Fails in the first tries of an instance, as many as its input says.
const TRY: Activity<u64, u64> = Activity::named("try");
const FLAKY: Workflow<u64, u64> = Workflow::named("flaky");
/// Waits for a signal, and then fails as the one above.
const TOLD: Workflow<u64, (u64, u64)> = Workflow::named("told");
const PARENT: Workflow<u64, u64> = Workflow::named("parent");
const GO: Signal<u64> = Signal::named("go");

/// The runs in which the activity was asked, in their order: each is a try.
type Tries = Arc<Mutex<Vec<RunId>>>;

async fn try_once(tries: Tries, cx: ActivityContext, fails: u64) -> Result<u64, ActivityError> {
    let run = cx.cause().run;
    let mut tries = tries.lock().unwrap();
    // Asked again because of a crash, it says the same again.
    let number = tries
        .iter()
        .position(|known| *known == run)
        .unwrap_or(tries.len());
    if number == tries.len() {
        tries.push(run);
    }
    let number = number as u64 + 1;
    match number > fails {
        true => Ok(number),
        false => Err(ActivityError::fatal(format!("try {number} has failed"))),
    }
}

async fn flaky(cx: WorkflowContext, fails: u64) -> Result<u64, WorkflowError> {
    if fails == u64::MAX {
        return Err(WorkflowError::fatal("it cannot be done"));
    }
    Ok(cx.call(TRY, fails).await?)
}

async fn told(cx: WorkflowContext, fails: u64) -> Result<(u64, u64), WorkflowError> {
    let told = cx.receive(GO).await?;
    Ok((told, cx.call(TRY, fails).await?))
}

async fn parent(cx: WorkflowContext, fails: u64) -> Result<u64, WorkflowError> {
    Ok(cx
        .child(FLAKY, format!("child-of-{}", cx.run_id()), fails)
        .await?)
}

fn with_code(builder: RuntimeBuilder, tries: &Tries) -> RuntimeBuilder {
    builder
        .register_with(Arc::clone(tries), TRY, try_once)
        .register(FLAKY, flaky)
        .register(TOLD, told)
        .register(PARENT, parent)
}

fn five_tries() -> Retry {
    Retry::exponential()
        .attempts(5)
        .first_pause(Duration::from_secs(60))
}

/// Runs a script against a runtime in a seeded world.
fn in_world<F: Future<Output = ()> + Send + 'static>(
    store: &Store,
    script: impl FnOnce(Runtime, Tries) -> F + Send + 'static,
) {
    let world = SimHost::new(SimConfig::seeded(5));
    let tries = Tries::default();
    let builder = with_code(store.bare().host(world.host()), &tries);
    let script = async move {
        let runtime = builder.start().await.unwrap();
        script(runtime.clone(), tries).await;
        runtime.shutdown().await.unwrap();
    };
    world.block_on(script).unwrap();
}

/// Until a run waits for its next try.
async fn until_delayed<O, E>(run: &RunHandle<O, E>) -> InstanceDescription {
    loop {
        let described = run.describe().await.unwrap();
        if described.status == InstanceStatus::Delayed {
            return described;
        }
    }
}

/// The events of a run.
async fn history(runtime: &Runtime, run: RunId) -> Vec<Event> {
    let page = runtime.history(run, Sequence::ZERO, 100).await.unwrap();
    page.events.into_iter().map(|recorded| recorded.event).collect()
}

#[test]
fn callers_wait_for_the_last_try_and_are_told_which_it_is() {
    in_world(&Store::new(), async |runtime: Runtime, tries: Tries| {
        let run = runtime.start(FLAKY, "f", 3).retried(five_tries()).await.unwrap();
        let first = run.run_id().unwrap();
        let began = runtime.host().now();
        let described = until_delayed(&run).await;
        let run_try = described.run_try.unwrap();
        assert_eq!((run_try.number, run_try.retry.attempts_max()), (2, 5));
        assert!(described.resumes_at.unwrap() > began + Duration::from_secs(40));
        let why = run.why().await.unwrap();
        let waits = &why.waits[0].what;
        assert!(
            matches!(waits, WaitsFor::StartTime { run_try: Some(run_try), .. } if run_try.number == 2),
            "{waits:?}"
        );
        assert!(why.to_string().contains("as try 2 of 5"), "{why}");
        let other = runtime.attach(FLAKY, "f").unwrap();
        assert_eq!(other.result().await.unwrap(), 4);
        assert_eq!(run.result().await.unwrap(), 4);
        assert_eq!(tries.lock().unwrap().len(), 4);
        // Three pauses of a minute, the longest by default, each varied by a fifth.
        let elapsed = runtime.host().now().saturating_since(began);
        assert!(elapsed >= Duration::from_secs(3 * 48) && elapsed <= Duration::from_secs(3 * 72 + 5));
        let mut at = first;
        for number in 1..4 {
            let events = history(&runtime, at).await;
            match events.last() {
                Some(Event::ContinuedAsNew {
                    run,
                    failed: Some(error),
                    ..
                }) => {
                    assert!(
                        error.message.contains(&format!("try {number} has failed")),
                        "{error:?}"
                    );
                    at = *run;
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(matches!(
            history(&runtime, at).await.last(),
            Some(Event::Completed { .. })
        ));
    });
}

#[test]
fn a_run_fails_with_its_last_try_or_with_an_error_that_says_that_trying_cannot_help() {
    in_world(&Store::new(), async |runtime: Runtime, tries: Tries| {
        let run = runtime.start(FLAKY, "f", 9).retried(five_tries()).await.unwrap();
        match run.result().await {
            Err(ResultError::Failed(error)) => assert!(error.message().contains("try 5"), "{error}"),
            other => panic!("{other:?}"),
        }
        assert_eq!(tries.lock().unwrap().len(), 5);
        let now = runtime.host().now();
        let start = runtime.start(FLAKY, "g", u64::MAX).retried(five_tries());
        let run = start.await.unwrap();
        assert!(matches!(run.result().await, Err(ResultError::Failed(_))));
        assert!(
            runtime.host().now() < now + Duration::from_secs(40),
            "no pause was made"
        );
    });
}

#[test]
fn a_request_to_cancel_ends_a_run_between_two_tries_and_a_resume_begins_the_next() {
    in_world(&Store::new(), async |runtime: Runtime, tries: Tries| {
        let start = |id| runtime.start(FLAKY, id, 1).retried(five_tries());
        for id in ["cancelled", "resumed"] {
            tries.lock().unwrap().clear();
            let run = start(id).await.unwrap();
            while run.describe().await.unwrap().status != InstanceStatus::Delayed {}
            let now = runtime.host().now();
            if id == "resumed" {
                run.resume().await.unwrap();
                assert_eq!(run.result().await.unwrap(), 2);
            } else {
                run.cancel("enough").await.unwrap();
                assert!(matches!(run.result().await, Err(ResultError::Terminated { .. })));
            }
            assert!(runtime.host().now() < now + Duration::from_secs(40));
        }
    });
}

#[test]
fn the_signal_that_started_a_run_is_there_for_each_try() {
    in_world(&Store::new(), async |runtime: Runtime, _: Tries| {
        let start = runtime.start(TOLD, "t", 2).retried(five_tries());
        let run = start.with_signal(GO, 7).await.unwrap();
        assert_eq!(run.result().await.unwrap(), (7, 3));
    });
}

#[test]
fn a_start_that_attaches_changes_nothing_of_how_the_run_is_tried() {
    in_world(&Store::new(), async |runtime: Runtime, tries: Tries| {
        let run = runtime.start(TOLD, "t", 2).await.unwrap();
        let again = runtime.start(TOLD, "t", 2).retried(five_tries()).await.unwrap();
        again.signal(GO, 1).await.unwrap();
        assert!(matches!(run.result().await, Err(ResultError::Failed(_))));
        assert_eq!(tries.lock().unwrap().len(), 1);
        let refused = runtime.start(FLAKY, "", 2).retried(five_tries()).await;
        assert!(matches!(refused, Err(StartError::Id(_))));
    });
}

/// Of a child that a run calls nothing is said of tries, but the run that calls it may be tried again.
#[test]
fn a_run_whose_child_fails_is_tried_again_with_another_child() {
    in_world(&Store::new(), async |runtime: Runtime, tries: Tries| {
        let run = runtime.start(PARENT, "p", 2).retried(five_tries()).await.unwrap();
        assert_eq!(run.result().await.unwrap(), 3);
        assert_eq!(tries.lock().unwrap().len(), 3);
    });
}

#[test]
fn no_crash_loses_a_try_or_makes_one_twice() {
    let (mut cut_off_len, mut lengths) = (0, BTreeSet::new());
    for steps in (1..).step_by(3) {
        let store = Store::new();
        let tries = Tries::default();
        let world = SimHost::new(SimConfig::seeded(21));
        let builder = with_code(store.bare().host(world.host()), &tries);
        let is_acknowledged = Arc::new(AtomicBool::new(false));
        let said = Arc::clone(&is_acknowledged);
        let story = async move {
            let runtime = builder.start().await.unwrap();
            let start = runtime.start(FLAKY, "f", 3).retried(five_tries());
            let run = start.await.unwrap();
            said.store(true, Ordering::SeqCst);
            assert_eq!(run.result().await.unwrap(), 4);
        };
        let is_told = cut_off(&world, story, steps);
        let is_acknowledged = is_acknowledged.load(Ordering::SeqCst);
        lengths.insert(tries.lock().unwrap().len());
        let mut config = SimConfig::seeded(22);
        config.starts_at = world.now();
        drop(world);
        let world = SimHost::new(config);
        let builder = with_code(store.bare().host(world.host()), &tries);
        let script = async move {
            let runtime = builder.start().await.unwrap();
            let run = match is_acknowledged {
                true => runtime.attach(FLAKY, "f").unwrap(),
                false => runtime.start(FLAKY, "f", 3).retried(five_tries()).await.unwrap(),
            };
            assert_eq!(run.result().await.unwrap(), 4, "after {steps} steps");
            runtime.shutdown().await.unwrap();
        };
        world.block_on(script).unwrap();
        assert_eq!(tries.lock().unwrap().len(), 4, "after {steps} steps");
        cut_off_len += u32::from(!is_told);
        if is_told {
            break;
        }
    }
    assert!(cut_off_len > 10, "{cut_off_len}");
    assert_eq!(lengths, (0..=4).collect(), "it was cut off in each try");
}
