//! Starts that are delayed: the run is there, and its code begins at its time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millrun::operating::{InstanceStatus, ParkReason, RunSearch, RunStatus, WaitsFor};
use millrun::{
    InputRefused, OnConflict, ResultError, RunError, RunHandle, Runtime, RuntimeBuilder, Signal, StartError,
    StartWithUpdateError, Timestamp, Update, UpdateError, Workflow, WorkflowContext, WorkflowError,
};
use millrun_testkit::{SimConfig, SimHost};

use crate::crashes::cut_off;
use crate::support::{DOUBLE, Store, double};

const GO: Signal<u64> = Signal::named("go");
/// Gives when it began, and the sum of its input, doubled, and a signal.
const LATE: Workflow<u64, (u64, u64)> = Workflow::named("late");
const CART: Workflow<usize, usize> = Workflow::named("cart");
const ADD: Update<Vec<String>, String, usize> = Update::named("add");
const HOUR: Duration = Duration::from_secs(3_600);

async fn late(cx: WorkflowContext, number: u64) -> Result<(u64, u64), WorkflowError> {
    let began = cx.now().as_micros();
    let doubled = cx.call(DOUBLE, number).await?;
    Ok((began, doubled + cx.receive(GO).await?))
}

async fn cart(cx: WorkflowContext, full: usize) -> Result<usize, WorkflowError> {
    let items = cx.state(Vec::<String>::new());
    items.until(move |items| items.len() >= full).await?;
    Ok(full)
}

fn with_code(builder: RuntimeBuilder) -> RuntimeBuilder {
    let answering = CART.update(ADD).change(|items: &mut Vec<String>, item| {
        items.push(item);
        items.len()
    });
    builder
        .register(DOUBLE, double)
        .register(LATE, late)
        .register(answering, cart)
}

/// Runs a script against a runtime in a seeded world that begins then.
fn in_world<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    store: &Store,
    starts_at: Timestamp,
    script: impl FnOnce(Runtime) -> F + Send + 'static,
) -> T {
    in_world_with(store, starts_at, with_code, script)
}

fn in_world_with<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    store: &Store,
    starts_at: Timestamp,
    with: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder,
    script: impl FnOnce(Runtime) -> F + Send + 'static,
) -> T {
    let mut config = SimConfig::seeded(5);
    config.starts_at = starts_at;
    let world = SimHost::new(config);
    let builder = with(store.bare().host(world.host()));
    let told = Arc::new(Mutex::new(None));
    let tell = Arc::clone(&told);
    let script = async move {
        let runtime = builder.start().await.unwrap();
        let answer = script(runtime.clone()).await;
        *tell.lock().unwrap() = Some(answer);
        runtime.shutdown().await.unwrap();
    };
    world.block_on(script).unwrap();
    told.lock().unwrap().take().unwrap()
}

fn begin() -> Timestamp {
    SimConfig::seeded(0).starts_at
}

fn micros(time: Timestamp) -> u64 {
    time.as_micros()
}

#[test]
fn the_code_begins_at_its_time_and_finds_the_signals_that_came_before() {
    in_world(&Store::new(), begin(), async |runtime: Runtime| {
        let run = runtime.start(LATE, "l", 4).delayed_by(HOUR).await.unwrap();
        assert_eq!(run.describe().await.unwrap().status, InstanceStatus::Delayed);
        run.signal(GO, 1).await.unwrap();
        let (began, sum) = run.result().await.unwrap();
        assert_eq!((began, sum), (micros(begin() + HOUR), 9));
        assert_eq!(runtime.host().now(), begin() + HOUR);

        let at = begin() + 3 * HOUR;
        let run = runtime.start(LATE, "m", 4).delayed_until(at).await.unwrap();
        run.signal(GO, 2).await.unwrap();
        assert_eq!(run.result().await.unwrap(), (micros(at), 10));

        // A time that has passed delays nothing.
        for (id, start) in [
            ("past", runtime.start(LATE, "past", 1).delayed_until(begin())),
            ("now", runtime.start(LATE, "now", 1).delayed_by(Duration::ZERO)),
        ] {
            let run = start.await.unwrap();
            assert_eq!(
                run.describe().await.unwrap().status,
                InstanceStatus::Running,
                "{id}"
            );
            run.signal(GO, 3).await.unwrap();
            assert_eq!(run.result().await.unwrap(), (micros(at), 5), "{id}");
        }
    });
}

#[test]
fn the_time_counts_also_while_no_process_runs() {
    let store = Store::new();
    in_world(&store, begin(), async |runtime: Runtime| {
        for (id, hours) in [("a", 1), ("b", 5), ("c", 50)] {
            let start = runtime
                .start(LATE, id, hours)
                .delayed_by(HOUR * u32::try_from(hours).unwrap());
            start.with_signal(GO, 1).await.unwrap();
        }
    });
    // The time of the first has passed, that of the others has not.
    let later = begin() + 3 * HOUR;
    let began = in_world(&store, later, async |runtime: Runtime| {
        assert_eq!(runtime.startup_report().parked, 0);
        let mut began = Vec::new();
        for (id, hours) in [("a", 1), ("b", 5), ("c", 50)] {
            let (at, sum) = runtime.attach(LATE, id).unwrap().result().await.unwrap();
            assert_eq!(sum, 2 * hours + 1);
            began.push(at);
        }
        began
    });
    assert_eq!(
        began,
        [later, begin() + 5 * HOUR, begin() + 50 * HOUR].map(micros)
    );
}

#[test]
fn runs_that_wait_on_disk_begin_as_well() {
    let few = |builder| {
        with_code(builder).configure(|config| {
            config.hot_len_max = 2;
            config.result_cache_len_max = 0;
        })
    };
    in_world_with(&Store::new(), begin(), few, async |runtime: Runtime| {
        let mut runs = Vec::new();
        for number in 0..50 {
            let start = runtime
                .start(LATE, &format!("l-{number}"), number)
                .delayed_by(HOUR);
            runs.push(start.await.unwrap());
        }
        let delayed = RunSearch::new().status(RunStatus::Delayed);
        assert_eq!(runtime.find(&delayed, None, 100).await.unwrap().runs.len(), 50);
        for (number, run) in (0..50).zip(&runs) {
            run.signal(GO, 1).await.unwrap();
            let (began, sum) = run.result().await.unwrap();
            assert_eq!((began, sum), (micros(begin() + HOUR), 2 * number + 1));
        }
    });
}

#[test]
fn a_run_is_cancelled_or_terminated_before_its_time() {
    in_world(&Store::new(), begin(), async |runtime: Runtime| {
        let start = async |id: &str| runtime.start(LATE, id, 4).delayed_by(HOUR).await.unwrap();
        let reason_of = async |run: &RunHandle<(u64, u64)>| match run.result().await {
            Err(ResultError::Terminated { reason }) => reason,
            other => panic!("{other:?}"),
        };
        let cancelled = start("c").await;
        cancelled.cancel("not needed").await.unwrap();
        assert_eq!(
            reason_of(&cancelled).await,
            "cancelled before it began: not needed"
        );
        let terminated = start("t").await;
        terminated.terminate("enough").await.unwrap();
        assert_eq!(reason_of(&terminated).await, "enough");
        // Nothing comes of their timers.
        assert_eq!(runtime.host().now(), begin());
        runtime.host().sleep_until(begin() + 2 * HOUR).await;
        assert_eq!(runtime.stats().finished, 2);
    });
}

#[test]
fn an_operator_has_it_begin_earlier_or_not_at_all() {
    in_world(&Store::new(), begin(), async |runtime: Runtime| {
        let start = async |id: &str| {
            let start = runtime.start(LATE, id, 4).delayed_by(HOUR);
            start.with_signal(GO, 1).await.unwrap()
        };
        let earlier = start("e").await;
        earlier.resume().await.unwrap();
        assert_eq!(earlier.result().await.unwrap(), (micros(begin()), 9));

        let paused = start("p").await;
        paused.pause("a holiday").await.unwrap();
        let described = paused.describe().await.unwrap();
        assert_eq!(described.status, InstanceStatus::Parked);
        assert!(matches!(described.parked, Some(ParkReason::Paused { .. })));
        paused.resume().await.unwrap();
        assert_eq!(paused.describe().await.unwrap().status, InstanceStatus::Delayed);
        paused.pause("a longer holiday").await.unwrap();
        let until = begin() + 2 * HOUR;
        runtime.host().sleep_until(until).await;
        assert_eq!(paused.describe().await.unwrap().status, InstanceStatus::Parked);
        paused.resume().await.unwrap();
        assert_eq!(paused.result().await.unwrap(), (micros(until), 9));
    });
}

/// Its time is no longer waited for: nothing is read from the disk for it.
#[test]
fn a_run_that_began_earlier_is_left_alone_at_its_time() {
    let few = |builder| with_code(builder).configure(|config| config.hot_len_max = 2);
    in_world_with(&Store::new(), begin(), few, async |runtime: Runtime| {
        for number in 0..30 {
            let start = runtime
                .start(LATE, &format!("l-{number}"), number)
                .delayed_by(HOUR);
            start.await.unwrap().resume().await.unwrap();
        }
        runtime.host().sleep_until(begin() + HOUR / 2).await;
        let stats = runtime.stats();
        assert!(stats.hot < 10 && stats.live == 30, "{stats:?}");
        runtime.host().sleep_until(begin() + 2 * HOUR).await;
        assert_eq!(runtime.stats().loads, stats.loads);
    });
}

#[test]
fn what_asks_the_code_is_refused_before_its_time() {
    in_world(&Store::new(), begin(), async |runtime: Runtime| {
        let run = runtime.start(CART, "c", 1).delayed_by(HOUR).await.unwrap();
        let refused = run.update(ADD, "bread".into()).await.unwrap_err();
        assert!(
            matches!(
                refused,
                UpdateError::Run(RunError::Refused(InputRefused::StillParked(_)))
            ),
            "{refused}"
        );
        // A start that is delayed takes no update, and nothing is started.
        let start = runtime.start(CART, "d", 1).delayed_by(HOUR);
        let refused = start.with_update(ADD, "bread".into()).await.unwrap_err();
        assert!(matches!(refused, StartWithUpdateError::Update(_)), "{refused}");
        assert!(matches!(
            runtime.attach(CART, "d").unwrap().describe().await,
            Err(RunError::NotFound)
        ));
        runtime.host().sleep_until(begin() + HOUR).await;
        let state = run.describe_awake().await.unwrap();
        assert_eq!(state.status, InstanceStatus::Running);
        assert_eq!(run.update(ADD, "bread".into()).await.unwrap(), 1);
        assert_eq!(run.result().await.unwrap(), 1);
    });
}

#[test]
fn its_id_is_taken_and_a_start_that_attaches_changes_nothing_of_its_time() {
    in_world(&Store::new(), begin(), async |runtime: Runtime| {
        let first = runtime.start(LATE, "l", 4).delayed_by(HOUR).await.unwrap();
        let again = runtime.start(LATE, "l", 5).await.unwrap();
        assert_eq!(again.run_id(), first.run_id());
        let refused = runtime.start(LATE, "l", 5).on_conflict(OnConflict::Refuse).await;
        assert!(
            matches!(refused, Err(StartError::AlreadyRunning { .. })),
            "{refused:?}"
        );
        assert_eq!(again.describe().await.unwrap().status, InstanceStatus::Delayed);
        // It is replaced as any live run is, also by one that is delayed.
        let start = runtime.start(LATE, "l", 6).delayed_by(2 * HOUR);
        let second = start.on_conflict(OnConflict::TerminateRunning).await.unwrap();
        assert!(matches!(
            first.result().await,
            Err(ResultError::Terminated { .. })
        ));
        second.signal(GO, 1).await.unwrap();
        assert_eq!(second.result().await.unwrap(), (micros(begin() + 2 * HOUR), 13));
        let run = second.run_id().unwrap();
        let third = runtime
            .start(LATE, "l", 7)
            .delayed_by(HOUR)
            .only_after(run)
            .await
            .unwrap();
        third.signal(GO, 1).await.unwrap();
        assert_eq!(third.result().await.unwrap(), (micros(begin() + 3 * HOUR), 15));
    });
}

#[test]
fn it_is_listed_counted_and_described_as_delayed() {
    in_world(&Store::new(), begin(), async |runtime: Runtime| {
        let run = runtime.start(LATE, "l", 4).delayed_by(HOUR).await.unwrap();
        runtime.start(LATE, "other", 4).await.unwrap();
        let described = run.describe().await.unwrap();
        assert_eq!(described.resumes_at, Some(begin() + HOUR));
        assert_eq!(
            described.parked,
            Some(ParkReason::Delayed {
                until: begin() + HOUR
            })
        );
        let why = run.why().await.unwrap();
        assert!(matches!(why.waits[0].what, WaitsFor::StartTime { at, .. } if at == begin() + HOUR));
        assert!(why.to_string().contains("begins in 60 min"), "{why}");
        let found = async |status| {
            let page = runtime
                .find(&RunSearch::new().status(status), None, 10)
                .await
                .unwrap();
            page.runs
                .into_iter()
                .map(|run| run.id.to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(found(RunStatus::Delayed).await, ["l"]);
        assert_eq!(found(RunStatus::Running).await, ["other"]);
        assert!(found(RunStatus::Parked).await.is_empty());
        let listed = runtime.list(None, 10).await.unwrap();
        let statuses: Vec<_> = listed.into_iter().map(|run| run.status).collect();
        assert_eq!(statuses, [InstanceStatus::Delayed, InstanceStatus::Running]);
        let counts = runtime.counts();
        let late = counts
            .workflows
            .iter()
            .find(|of| of.workflow == LATE.name())
            .unwrap();
        assert_eq!(
            (late.delayed, late.running, late.parked, late.live()),
            (1, 1, 0, 2)
        );
        assert_eq!(runtime.stats().parked, 0);
        run.resume().await.unwrap();
        run.describe_awake().await.unwrap();
        let counts = runtime.counts();
        let late = counts
            .workflows
            .iter()
            .find(|of| of.workflow == LATE.name())
            .unwrap();
        assert_eq!((late.delayed, late.running), (0, 2));
        run.terminate("done").await.unwrap();
    });
}

#[test]
fn a_run_whose_code_comes_with_a_later_process_begins_no_earlier() {
    let store = Store::new();
    in_world_with(
        &store,
        begin(),
        |bare| bare,
        async |runtime: Runtime| {
            let run = runtime.start(LATE, "l", 4).delayed_by(4 * HOUR).await.unwrap();
            assert_eq!(
                run.describe().await.unwrap().status,
                InstanceStatus::NotRegistered
            );
            run.signal(GO, 1).await.unwrap();
        },
    );
    in_world(&store, begin() + HOUR, async |runtime: Runtime| {
        let run = runtime.attach(LATE, "l").unwrap();
        assert_eq!(run.result().await.unwrap(), (micros(begin() + 4 * HOUR), 9));
    });
}

/// The clock stood ahead when the run was started, and is right when the store is opened again.
#[test]
fn a_clock_that_is_set_back_does_not_have_it_begin_early() {
    let store = Store::new();
    let until = begin() + 2 * HOUR;
    in_world(&store, begin() + HOUR, async move |runtime: Runtime| {
        let run = runtime.start(LATE, "l", 4).delayed_until(until).await.unwrap();
        run.signal(GO, 1).await.unwrap();
    });
    in_world(&store, begin(), async move |runtime: Runtime| {
        let run = runtime.attach(LATE, "l").unwrap();
        run.result().await.unwrap();
        assert_eq!(runtime.host().now(), until);
    });
}

#[test]
fn no_crash_loses_a_delayed_start_or_has_it_begin_early_or_twice() {
    let mut acknowledged_len = 0;
    for steps in 1.. {
        let store = Store::new();
        let world = SimHost::new(SimConfig::seeded(21));
        let builder = with_code(store.bare().host(world.host()));
        let is_acknowledged = Arc::new(AtomicBool::new(false));
        let said = Arc::clone(&is_acknowledged);
        let story = async move {
            let runtime = builder.start().await.unwrap();
            let run = runtime.start(LATE, "l", 4).delayed_by(HOUR).await.unwrap();
            said.store(true, Ordering::SeqCst);
            run.signal(GO, 1).await.unwrap();
            run.result().await.unwrap();
        };
        let is_told = cut_off(&world, story, steps);
        let is_acknowledged = is_acknowledged.load(Ordering::SeqCst);
        acknowledged_len += u32::from(is_acknowledged);
        let crashed_at = world.now();
        drop(world);
        let (began, sum) = in_world(&store, crashed_at, async move |runtime: Runtime| {
            let run = match is_acknowledged {
                true => runtime.attach(LATE, "l").unwrap(),
                false => runtime.start(LATE, "l", 4).delayed_by(HOUR).await.unwrap(),
            };
            // The second is one too many if the first was recorded.
            drop(run.signal(GO, 1).await);
            run.result().await.unwrap()
        });
        assert_eq!(sum, 9, "after {steps} steps");
        assert!(began >= micros(begin() + HOUR), "after {steps} steps");
        if is_told {
            break;
        }
    }
    assert!(acknowledged_len > 10, "{acknowledged_len}");
}
