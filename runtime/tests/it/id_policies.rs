//! What a start does whose id is taken: by a run that is live, or that has ended in one way or another.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use millrun::operating::{RunSearch, RunStatus};
use millrun::{
    OnConflict, ResultError, RunError, RunHandle, RunId, Runtime, RuntimeBuilder, Signal, StartError,
    StartWithUpdateError, Update, UpdateError, Workflow, WorkflowContext, WorkflowError,
};
use millrun_testkit::{SimConfig, SimHost};

use crate::crashes::cut_off;
use crate::support::{QUADRUPLE, Store, described};

/// Ends as its input says, or waits for the signal.
const END: Workflow<String, String> = Workflow::named("end");
const GO: Signal<String> = Signal::named("go");
const CART: Workflow<usize, Vec<String>> = Workflow::named("cart");
const ADD: Update<Vec<String>, String, usize, WorkflowError> = Update::named("add");

/// An item at which the code panics.
const PANICS: &str = "boom";

async fn end(cx: WorkflowContext, how: String) -> Result<String, WorkflowError> {
    match how.as_str() {
        "fail" => Err(WorkflowError::failed("asked to")),
        "wait" => Ok(cx.receive(GO).await?),
        value => Ok(value.to_owned()),
    }
}

async fn cart(cx: WorkflowContext, full: usize) -> Result<Vec<String>, WorkflowError> {
    let items = cx.state(Vec::new());
    items.until(move |items| items.len() >= full).await?;
    Ok(items.read(Vec::clone))
}

/// Lets in what is not empty.
fn with_code(builder: RuntimeBuilder) -> RuntimeBuilder {
    let answering = CART
        .update(ADD)
        .validate(|_, item| match item.is_empty() {
            true => Err(WorkflowError::failed("it is empty")),
            false => Ok(()),
        })
        .change(|items: &mut Vec<String>, item| {
            assert_ne!(item, PANICS);
            items.push(item);
            items.len()
        });
    builder.register(END, end).register(answering, cart)
}

async fn volatile() -> Runtime {
    with_code(Runtime::volatile()).start().await.unwrap()
}

async fn start(
    runtime: &Runtime,
    id: &str,
    how: &str,
    on_conflict: OnConflict,
) -> Result<RunHandle<String>, StartError> {
    runtime
        .start(END, id, how.to_owned())
        .on_conflict(on_conflict)
        .await
}

fn run_of(handle: &RunHandle<String>) -> RunId {
    handle.run_id().expect("it was started")
}

/// A run of each kind: its id says how it ended.
async fn ended(runtime: &Runtime) {
    for id in ["value", "fail"] {
        let run = start(runtime, id, id, OnConflict::Refuse).await.unwrap();
        drop(run.result().await);
    }
    let cancelled = start(runtime, "cancelled", "wait", OnConflict::Refuse)
        .await
        .unwrap();
    cancelled.cancel("enough").await.unwrap();
    drop(cancelled.result().await);
    let terminated = start(runtime, "terminated", "wait", OnConflict::Refuse)
        .await
        .unwrap();
    terminated.terminate("enough").await.unwrap();
    start(runtime, "live", "wait", OnConflict::Refuse).await.unwrap();
}

async fn check_restarts_of_failed(runtime: &Runtime) {
    for id in ["fail", "cancelled", "terminated"] {
        let before = runtime.stats().started;
        let again = start(runtime, id, "value", OnConflict::RestartFailed)
            .await
            .unwrap();
        assert_eq!(again.result().await.unwrap(), "value", "{id}");
        assert_eq!(runtime.stats().started, before + 1, "{id}");
        let refused = start(runtime, id, "value", OnConflict::RestartFailed)
            .await
            .unwrap_err();
        assert!(
            matches!(refused, StartError::AlreadyFinished { run } if run == run_of(&again)),
            "{id}: {refused}"
        );
    }
    let refused = start(runtime, "value", "x", OnConflict::RestartFailed)
        .await
        .unwrap_err();
    assert!(matches!(refused, StartError::AlreadyFinished { .. }), "{refused}");
    let before = runtime.stats().started;
    let live = start(runtime, "live", "x", OnConflict::RestartFailed)
        .await
        .unwrap();
    assert_eq!(runtime.stats().started, before);
    live.signal(GO, "gone".into()).await.unwrap();
    assert_eq!(live.result().await.unwrap(), "gone");
    let free = start(runtime, "free", "free", OnConflict::RestartFailed)
        .await
        .unwrap();
    assert_eq!(free.result().await.unwrap(), "free");
}

#[tokio::test]
async fn only_a_run_that_ended_without_a_value_is_started_again_if_that_is_asked_for() {
    // The results are at hand, on disk only, or of an earlier process.
    for (at_hand, is_opened_again) in [(4_096, false), (0, false), (4_096, true)] {
        let store = Store::new();
        let builder = || with_code(store.open()).configure(|config| config.result_cache_len_max = at_hand);
        let mut runtime = builder().start().await.unwrap();
        ended(&runtime).await;
        if is_opened_again {
            runtime.shutdown().await.unwrap();
            runtime = builder().start().await.unwrap();
        }
        check_restarts_of_failed(&runtime).await;
        runtime.shutdown().await.unwrap();
    }
    let runtime = volatile().await;
    ended(&runtime).await;
    check_restarts_of_failed(&runtime).await;
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn many_starts_at_once_start_one_run_in_the_place_of_one_that_failed() {
    let store = Store::new();
    let runtime = with_code(store.open()).start().await.unwrap();
    start(&runtime, "f", "fail", OnConflict::Refuse)
        .await
        .unwrap()
        .result()
        .await
        .unwrap_err();
    runtime.shutdown().await.unwrap();
    let runtime = with_code(store.open()).start().await.unwrap();
    let starts = (0..16).map(|_| {
        let runtime = runtime.clone();
        tokio::spawn(async move { start(&runtime, "f", "wait", OnConflict::RestartFailed).await })
    });
    let mut runs = Vec::new();
    for started in starts.collect::<Vec<_>>() {
        runs.push(run_of(&started.await.unwrap().unwrap()));
    }
    runs.dedup();
    assert_eq!(runs.len(), 1);
    assert_eq!(runtime.stats().started, 1);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_live_run_is_terminated_and_another_begins_in_its_place() {
    // In memory, or on disk.
    for hot_len_max in [100, 1] {
        let store = Store::new();
        let runtime = with_code(store.open())
            .configure(|config| config.hot_len_max = hot_len_max)
            .start()
            .await
            .unwrap();
        let first = start(&runtime, "r", "wait", OnConflict::TerminateRunning)
            .await
            .unwrap();
        for other in 0..4 {
            start(&runtime, &format!("other-{other}"), "wait", OnConflict::Refuse)
                .await
                .unwrap();
        }
        let second = start(&runtime, "r", "wait", OnConflict::TerminateRunning)
            .await
            .unwrap();
        assert_ne!(run_of(&first), run_of(&second));
        match first.result().await {
            Err(ResultError::Terminated { reason }) => {
                assert_eq!(reason, format!("run {} takes its place", run_of(&second)));
            }
            other => panic!("{other:?}"),
        }
        second.signal(GO, "second".into()).await.unwrap();
        assert_eq!(second.result().await.unwrap(), "second");
        // One that has finished is followed, however it has.
        let third = start(&runtime, "r", "third", OnConflict::TerminateRunning)
            .await
            .unwrap();
        assert_eq!(third.result().await.unwrap(), "third");
        runtime.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn what_cannot_take_the_place_of_a_live_run_leaves_it() {
    let runtime = with_code(Runtime::volatile())
        .register(QUADRUPLE, crate::support::quadruple)
        .configure(|config| config.limits.payload_bytes_max = 4_000)
        .start()
        .await
        .unwrap();
    let live = start(&runtime, "r", "wait", OnConflict::Refuse).await.unwrap();
    let other = runtime
        .start(QUADRUPLE, "r", 1)
        .on_conflict(OnConflict::TerminateRunning)
        .await;
    assert!(
        matches!(other, Err(StartError::OtherWorkflow { .. })),
        "{other:?}"
    );
    let large = start(&runtime, "r", &"x".repeat(5_000), OnConflict::TerminateRunning).await;
    assert!(matches!(large, Err(StartError::TooLarge { .. })), "{large:?}");
    live.signal(GO, "still".into()).await.unwrap();
    assert_eq!(live.result().await.unwrap(), "still");
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_first_turn_that_does_not_fit_leaves_the_live_run() {
    const MANY: Workflow<usize, ()> = Workflow::named("many");
    async fn many(cx: WorkflowContext, len: usize) -> Result<(), WorkflowError> {
        let calls = (0..len).map(|_| cx.call(crate::support::DOUBLE, 1));
        cx.join_all(calls).await;
        Ok(cx.receive(Signal::<()>::named("end")).await?)
    }
    let runtime = Runtime::volatile()
        .register(crate::support::DOUBLE, crate::support::double)
        .register(MANY, many)
        .configure(|config| {
            config.limits.payload_bytes_max = 16 << 10;
            config.journal.turn_bytes_max = 64 << 10;
        })
        .start()
        .await
        .unwrap();
    let live = runtime.start(MANY, "m", 1).await.unwrap();
    let refused = runtime
        .start(MANY, "m", 5_000)
        .on_conflict(OnConflict::TerminateRunning)
        .await;
    assert!(matches!(refused, Err(StartError::Turn(_))), "{refused:?}");
    live.signal(Signal::<()>::named("end"), ()).await.unwrap();
    live.result().await.unwrap();
    assert_eq!(runtime.stats().started, 1);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn the_run_that_takes_a_place_has_the_signal_or_the_update_of_its_start() {
    let runtime = volatile().await;
    let first = start(&runtime, "s", "wait", OnConflict::Refuse).await.unwrap();
    let second = runtime
        .start(END, "s", "wait".into())
        .on_conflict(OnConflict::TerminateRunning)
        .with_signal(GO, "signalled".into())
        .await
        .unwrap();
    assert!(matches!(
        first.result().await,
        Err(ResultError::Terminated { .. })
    ));
    assert_eq!(second.result().await.unwrap(), "signalled");

    let ask = |item: &str| {
        let start = runtime
            .start(CART, "c", 2)
            .on_conflict(OnConflict::TerminateRunning);
        start.with_update(ADD, item.to_owned()).into_future()
    };
    let (first, len) = ask("bread").await.unwrap();
    assert_eq!(len, 1);
    // Refused, it ends nothing.
    let refused = ask("").await.unwrap_err();
    assert!(matches!(refused, StartWithUpdateError::Update(_)), "{refused}");
    described(&first, |run| run.ended_at.is_none()).await;
    let (second, len) = ask("milk").await.unwrap();
    assert_eq!(len, 1);
    assert!(matches!(
        first.result().await,
        Err(ResultError::Terminated { .. })
    ));
    assert_eq!(second.update(ADD, "salt".into()).await.unwrap(), 2);
    assert_eq!(second.result().await.unwrap(), ["milk", "salt"]);
    runtime.shutdown().await.unwrap();
}

/// What has ended without an answer is what the start has begun: it begins no other in its place.
#[tokio::test]
async fn a_start_whose_run_ends_before_it_answers_the_update_starts_no_other() {
    for on_conflict in [
        OnConflict::RestartFinished,
        OnConflict::RestartFailed,
        OnConflict::TerminateRunning,
    ] {
        let runtime = volatile().await;
        let on = runtime.clone();
        let asked = tokio::spawn(async move {
            let start = on.start(CART, "c", 2).on_conflict(on_conflict);
            start.with_update(ADD, PANICS.to_owned()).await
        });
        let run = loop {
            match runtime.attach(CART, "c").unwrap().describe().await {
                Ok(described) if described.parked.is_some() => break runtime.attach(CART, "c").unwrap(),
                _ => tokio::task::yield_now().await,
            }
        };
        run.terminate("it does not go on").await.unwrap();
        let refused = asked.await.unwrap().unwrap_err();
        assert!(
            matches!(
                refused,
                StartWithUpdateError::Update(UpdateError::Run(RunError::Finished))
            ),
            "{on_conflict:?}: {refused:?}"
        );
        assert_eq!(runtime.stats().started, 1, "{on_conflict:?}");
        runtime.shutdown().await.unwrap();
    }
}

/// What a run that begins goes on as has to fit too.
#[tokio::test]
async fn a_run_that_could_not_go_on_as_another_leaves_the_live_run() {
    const AGAIN: Workflow<String, ()> = Workflow::named("again");
    async fn again(cx: WorkflowContext, input: String) -> Result<(), WorkflowError> {
        match &*input {
            "wait" => Ok(cx.receive(Signal::<()>::named("end")).await?),
            _ => Ok(cx.continue_as_new(AGAIN, "x".repeat(3_950)).await?),
        }
    }
    let runtime = Runtime::volatile()
        .register(AGAIN, again)
        .configure(|config| {
            config.limits.payload_bytes_max = 4_000;
            config.journal.turn_bytes_max = 8_000;
        })
        .start()
        .await
        .unwrap();
    let live = runtime.start(AGAIN, "a", "wait".into()).await.unwrap();
    let refused = runtime
        .start(AGAIN, "a", "go".into())
        .on_conflict(OnConflict::TerminateRunning)
        .await;
    assert!(matches!(refused, Err(StartError::Turn(_))), "{refused:?}");
    live.signal(Signal::<()>::named("end"), ()).await.unwrap();
    live.result().await.unwrap();
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn starts_that_race_for_one_place_leave_one_live_run() {
    let store = Store::new();
    let runtime = with_code(store.open())
        .configure(|config| config.hot_len_max = 1)
        .start()
        .await
        .unwrap();
    start(&runtime, "r", "wait", OnConflict::Refuse).await.unwrap();
    start(&runtime, "other", "wait", OnConflict::Refuse)
        .await
        .unwrap();
    let starts = (0..16).map(|number| {
        let runtime = runtime.clone();
        tokio::spawn(async move {
            match number % 4 {
                0 => runtime
                    .attach(END, "r")
                    .unwrap()
                    .signal(GO, "x".into())
                    .await
                    .is_ok(),
                _ => start(&runtime, "r", "wait", OnConflict::TerminateRunning)
                    .await
                    .is_ok(),
            }
        })
    });
    let mut started = 0;
    for (number, start) in starts.collect::<Vec<_>>().into_iter().enumerate() {
        let is_done = start.await.unwrap();
        assert!(is_done || number % 4 == 0);
        started += u64::from(number % 4 != 0);
    }
    assert_eq!(started, 12);
    assert_eq!(runtime.stats().started, 2 + started);
    let of_id = RunSearch::new().id_prefix("r");
    let live = [RunStatus::Running].into_iter().fold(of_id, RunSearch::status);
    assert!(runtime.find(&live, None, 10).await.unwrap().runs.len() <= 1);
    runtime.shutdown().await.unwrap();
}

/// A crash between the end of the one run and the beginning of the other would leave an instance that nobody runs.
#[test]
fn no_crash_ends_a_run_without_beginning_the_one_in_its_place() {
    let (mut before, mut after) = (0, 0);
    for steps in 1.. {
        let store = Store::new();
        let world = SimHost::new(SimConfig::seeded(11));
        let builder = with_code(store.bare().host(world.host()));
        let acknowledged = Arc::new(Mutex::new(None));
        let (is_begun, said) = (Arc::new(AtomicBool::new(false)), Arc::clone(&acknowledged));
        let begun = Arc::clone(&is_begun);
        let story = async move {
            let runtime = builder.start().await.unwrap();
            start(&runtime, "r", "wait", OnConflict::Refuse).await.unwrap();
            begun.store(true, Ordering::SeqCst);
            let second = start(&runtime, "r", "wait", OnConflict::TerminateRunning)
                .await
                .unwrap();
            *said.lock().unwrap() = second.run_id();
        };
        let is_told = cut_off(&world, story, steps);
        if !is_begun.load(Ordering::SeqCst) {
            assert!(!is_told);
            continue;
        }
        let world = SimHost::new(SimConfig::seeded(12));
        let builder = with_code(store.bare().host(world.host()));
        let script = async move {
            let runtime = builder.start().await.unwrap();
            let live = runtime.attach(END, "r").unwrap();
            let run = live.describe().await.unwrap().run;
            let all = runtime.find(&RunSearch::new(), None, 10).await.unwrap().runs;
            live.signal(GO, "alive".into()).await.unwrap();
            assert_eq!(live.result().await.unwrap(), "alive");
            runtime.shutdown().await.unwrap();
            (run, all.into_iter().map(|run| run.status).collect::<Vec<_>>())
        };
        let (run, statuses) = world.block_on(script).unwrap();
        match statuses.as_slice() {
            [RunStatus::Running] => before += 1,
            [RunStatus::Running, RunStatus::Terminated] => after += 1,
            other => panic!("after {steps} steps: {other:?}"),
        }
        if let Some(second) = *acknowledged.lock().unwrap() {
            assert_eq!((run, statuses.len()), (second, 2), "after {steps} steps");
        }
        if is_told {
            break;
        }
    }
    assert!(before > 0 && after > 0, "{before} before, {after} after");
}
