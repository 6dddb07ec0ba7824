//! Bounds that nothing else is about: what is too much is refused, or waits, and nothing is lost.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use millrun::store::RedbJournal;
use millrun::{
    Activity, ActivityContext, ActivityError, ChildError, HeartbeatError, OnConflict, Retry, RunError,
    Runtime, RuntimeConfig, Signal, Workflow, WorkflowContext, WorkflowError,
};
use millrun_persistence::{Journal, JournalConfig, ReadError};
use millrun_testkit::{SimConfig, SimHost};

use crate::support::{QUADRUPLE, Store};
use crate::tapped::Tapped;

const GO: Signal<u64> = Signal::named("go");
const COUNT: Workflow<u64, u64> = Workflow::named("count");
const HOLD: Activity<u64, u64> = Activity::named("hold");
const CALL_HOLD: Workflow<u64, u64> = Workflow::named("call-hold");

/// Adds `len` signals.
async fn count(cx: WorkflowContext, len: u64) -> Result<u64, WorkflowError> {
    let mut sum = 0;
    for _ in 0..len {
        sum += cx.receive(GO).await?;
    }
    Ok(sum)
}

async fn call_hold(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    Ok(cx.call(HOLD, number).retry(Retry::never()).await?)
}

#[tokio::test]
async fn a_heartbeat_that_is_too_large_is_refused_and_the_attempt_goes_on() {
    let hold = async |cx: ActivityContext, bytes: u64| {
        let large = "x".repeat(usize::try_from(bytes).unwrap());
        let refused = cx.heartbeat(&large).unwrap_err();
        assert!(
            matches!(refused, HeartbeatError::TooLarge { bytes, bytes_max: 1_000 } if bytes > 2_000),
            "{refused}"
        );
        cx.heartbeat("small")?;
        Ok::<_, ActivityError>(7)
    };
    let builder = Runtime::volatile()
        .register(HOLD, hold)
        .register(CALL_HOLD, call_hold);
    let runtime = builder
        .configure(|config| config.limits.payload_bytes_max = 1_000)
        .start()
        .await
        .unwrap();
    let run = runtime.start(CALL_HOLD, "h", 2_000).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 7);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_child_beyond_the_live_instances_allowed_is_not_started_and_its_parent_told() {
    const PARENT: Workflow<(), String> = Workflow::named("parent");
    async fn parent(cx: WorkflowContext, (): ()) -> Result<String, WorkflowError> {
        match cx.child(COUNT, "child", 1).await {
            Err(ChildError::NotStarted { message }) => Ok(message),
            other => Err(WorkflowError::failed(format!("{other:?}"))),
        }
    }
    let builder = Runtime::volatile()
        .register(COUNT, count)
        .register(PARENT, parent);
    let runtime = builder
        .configure(|config| config.live_len_max = 1)
        .start()
        .await
        .unwrap();
    let run = runtime.start(PARENT, "p", ()).await.unwrap();
    assert_eq!(
        run.result().await.unwrap(),
        "there are 1 live instances, the limit"
    );
    let child = runtime.attach(COUNT, "child").unwrap();
    assert!(matches!(child.describe().await, Err(RunError::NotFound)));
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_shutdown_waits_for_activities_and_cuts_off_those_beyond_its_grace() {
    for (grace, is_released) in [(Duration::from_secs(3_600), true), (Duration::ZERO, false)] {
        let store = Store::new();
        let (begun, gate) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(tokio::sync::Notify::new()),
        );
        let (flag, at_gate) = (Arc::clone(&begun), Arc::clone(&gate));
        let hold = move |cx: ActivityContext, number: u64| {
            let (flag, gate) = (Arc::clone(&flag), Arc::clone(&at_gate));
            async move {
                flag.store(true, Ordering::SeqCst);
                gate.notified().await;
                Ok::<_, ActivityError>(number + u64::from(cx.attempt()))
            }
        };
        let builder = store.bare().register(HOLD, hold).register(CALL_HOLD, call_hold);
        let runtime = builder
            .configure(|config| {
                config.shutdown_grace = grace;
                config.shutdown_wait_max = grace + Duration::from_secs(60);
            })
            .start()
            .await
            .unwrap();
        drop(runtime.start(CALL_HOLD, "h", 10).await.unwrap());
        while !begun.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
        if is_released {
            gate.notify_one();
        }
        let report = runtime.shutdown().await.unwrap();
        assert_eq!(report.activities_cut, u64::from(!is_released));
        drop(runtime);

        let at_once =
            async |cx: ActivityContext, number: u64| Ok::<_, ActivityError>(number + u64::from(cx.attempt()));
        let builder = store.bare().register(HOLD, at_once);
        let runtime = builder.register(CALL_HOLD, call_hold).start().await.unwrap();
        let run = runtime
            .start(CALL_HOLD, "h", 0)
            .on_conflict(OnConflict::Attach)
            .await
            .unwrap();
        // What was cut off has run again.
        assert_eq!(run.result().await.unwrap(), 11 + u64::from(!is_released));
        runtime.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn a_live_run_whose_history_is_too_long_to_be_read_is_brought_back_when_the_bound_is_raised() {
    let store = Store::new();
    let builder = |bytes_max: u64| {
        store.bare().register(COUNT, count).configure(move |config| {
            config.hot_len_max = 1;
            config.journal.history_bytes_max = bytes_max;
        })
    };
    let runtime = builder(2_000).start().await.unwrap();
    let run = runtime.start(COUNT, "c", 101).await.unwrap();
    for _ in 0..100 {
        run.signal(GO, 1).await.unwrap();
    }
    drop((run, runtime));

    let runtime = builder(2_000).start().await.unwrap();
    let run = runtime.attach(COUNT, "c").unwrap();
    let refused = run.signal(GO, 1).await.unwrap_err();
    assert!(
        matches!(&refused, RunError::Read(ReadError::TooLong { max: 2_000, .. })),
        "{refused}"
    );
    runtime.shutdown().await.unwrap();
    drop((run, runtime));

    let runtime = builder(1 << 20).start().await.unwrap();
    let run = runtime.attach(COUNT, "c").unwrap();
    run.signal(GO, 1).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 101);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn callers_wait_for_room_at_a_shard_and_wake_ups_for_their_turn_to_be_read() {
    let store = Store::new();
    let builder = store.bare().register(COUNT, count);
    let runtime = builder
        .configure(|config| {
            config.shard_queue_len_max = 1;
            config.loads_in_flight_max = 1;
            config.hot_len_max = 1;
        })
        .start()
        .await
        .unwrap();
    let ids: Vec<_> = (0..100).map(|number| format!("c-{number}")).collect();
    let runs = join_all(ids.iter().map(|id| runtime.start(COUNT, id, 2).into_future())).await;
    let runs: Vec<_> = runs.into_iter().map(Result::unwrap).collect();
    for _ in 0..2 {
        let told = join_all(runs.iter().map(|run| run.signal(GO, 10))).await;
        assert!(told.into_iter().all(|told| told.is_ok()));
    }
    for result in join_all(runs.iter().map(|run| run.result())).await {
        assert_eq!(result.unwrap(), 20);
    }
    assert!(runtime.stats().loads > 0, "some were woken from disk");
    runtime.shutdown().await.unwrap();
}

/// How many turns went to the journal at once, and how many such sweeps were under way, at most.
fn sweeps(configure: impl FnOnce(&mut RuntimeConfig)) -> (usize, usize) {
    let store = Store::new();
    let world = SimHost::new(SimConfig::seeded(4));
    let journal = RedbJournal::open(store.path(), JournalConfig::default(), world.host()).unwrap();
    let most = Arc::new(Mutex::new((0, 0)));
    let (seen, in_flight) = (Arc::clone(&most), Mutex::new(VecDeque::new()));
    let journal = Tapped::new(Arc::new(journal), move |journal, batch| {
        let enqueued = journal.enqueue(batch)?;
        let (mut seen, mut in_flight) = (seen.lock().unwrap(), in_flight.lock().unwrap());
        let watermark = journal.high_watermark();
        in_flight.retain(|offset| *offset > watermark);
        in_flight.push_back(enqueued.offset);
        *seen = (seen.0.max(batch.turns()), seen.1.max(in_flight.len()));
        Ok(enqueued)
    });
    let builder = Runtime::volatile()
        .host(world.host())
        .journal(journal as Arc<dyn Journal>)
        .register(COUNT, count)
        .configure(configure);
    let script = async {
        let runtime = builder.start().await.unwrap();
        let ids: Vec<_> = (0..300).map(|number| format!("c-{number}")).collect();
        for run in join_all(ids.iter().map(|id| runtime.start(COUNT, id, 1).into_future())).await {
            let run = run.unwrap();
            run.signal(GO, 5).await.unwrap();
            assert_eq!(run.result().await.unwrap(), 5);
        }
        runtime.shutdown().await.unwrap();
    };
    world.block_on(script).unwrap();
    *most.lock().unwrap()
}

#[test]
fn a_sweep_has_so_many_requests_and_so_many_are_under_way() {
    let (turns, in_flight) = sweeps(|_| {});
    assert!(turns > 3 && in_flight > 1, "{turns} turns, {in_flight} sweeps");
    let (turns, in_flight) = sweeps(|config| {
        config.sweep_len_max = 3;
        config.sweeps_in_flight_max = 1;
    });
    assert!(turns <= 6 && in_flight == 1, "{turns} turns, {in_flight} sweeps");
}

/// Each of these used to panic, or to keep results from their runs for ever.
#[test]
fn bounds_as_low_and_as_high_as_they_can_be_set_keep_nothing_from_its_end() {
    let bounds: [fn(&mut RuntimeConfig); 4] = [
        |config| config.journal.batch_bytes_max = 1,
        |config| config.store.unsettled_len_max = usize::MAX,
        |config| config.store.zero_ahead_bytes = u64::MAX,
        |config| config.blocking_threads_max = usize::MAX,
    ];
    for bound in bounds {
        let store = Store::new();
        let mut config = SimConfig::seeded(1);
        config.steps_max = 100_000;
        let world = SimHost::new(config);
        let builder = store.open().host(world.host()).configure(bound);
        let script = async {
            let runtime = builder.start().await.unwrap();
            for number in 0..20 {
                let id = format!("q-{number}");
                let run = runtime.start(QUADRUPLE, &id, number).await.unwrap();
                assert_eq!(run.result().await.unwrap(), number * 4);
            }
            runtime.shutdown().await.unwrap();
        };
        world.block_on(script).unwrap();
    }
}

#[tokio::test]
async fn a_signal_that_finds_no_room_may_be_sent_again_and_one_to_a_run_that_has_ended_may_not() {
    const WAIT: Workflow<u64, u64> = Workflow::named("wait");
    const END: Signal<u64> = Signal::named("end");
    let wait = async |cx: WorkflowContext, _: u64| Ok::<_, WorkflowError>(cx.receive(END).await?);
    let builder = Runtime::volatile().register(WAIT, wait);
    let builder = builder.configure(|config| config.limits.signals_len_max = 2);
    let runtime = builder.start().await.unwrap();
    let run = runtime.start(WAIT, "w", 0).await.unwrap();
    for number in 0..2 {
        run.signal(GO, number).await.unwrap();
    }
    let refused = run.signal(GO, 2).await.unwrap_err();
    assert!(refused.is_retryable(), "{refused}");
    run.terminate("enough").await.unwrap();
    let refused = run.signal(GO, 2).await.unwrap_err();
    assert!(!refused.is_retryable(), "{refused}");
    runtime.shutdown().await.unwrap();
}
