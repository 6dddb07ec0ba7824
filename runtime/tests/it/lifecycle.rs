//! Opening, stopping, dropping, opening again: nothing acknowledged is lost.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millrun::operating::InstanceStatus;
use millrun::workflow::ParentClose;
use millrun::{
    Activity, ActivityContext, ActivityError, OnConflict, OpenError, Payload, ResultError, RunError, Runtime,
    Signal, StartError, StopCause, Workflow, WorkflowContext, WorkflowError,
};

use millrun_testkit::{SimConfig, SimHost};

use crate::support::{DOUBLE, QUADRUPLE, Store, described, double, quadruple};

const GO: Signal<u64> = Signal::named("go");
const GATED: Workflow<u64, u64> = Workflow::named("gated");
const HELD: Activity<u64, u32> = Activity::named("held");
const CALL_HELD: Workflow<u64, u32> = Workflow::named("call-held");

/// One step, then a signal, then another step.
async fn gated(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    let doubled = cx.call(DOUBLE, number).await?;
    let added = cx.receive(GO).await?;
    Ok(cx.call(DOUBLE, doubled + added).await?)
}

async fn call_held(cx: WorkflowContext, number: u64) -> Result<u32, WorkflowError> {
    Ok(cx.call(HELD, number).await?)
}

async fn open(store: &Store) -> Runtime {
    store.open().register(GATED, gated).start().await.unwrap()
}

#[tokio::test]
async fn a_result_is_told_as_often_as_somebody_asks() {
    let store = Store::new();
    let runtime = open(&store).await;
    let run = runtime.start(GATED, "g", 1).await.unwrap();
    tokio::select! {
        biased;
        result = run.result() => panic!("it waits for a signal, and gave {result:?}"),
        () = std::future::ready(()) => {}
    }
    let other = run.clone();
    run.signal(GO, 1).await.unwrap();
    for handle in [&run, &other, &run] {
        assert_eq!(handle.result().await.unwrap(), 6);
    }
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_result_that_is_waited_for_outlasts_a_pause() {
    let store = Store::new();
    let runtime = open(&store).await;
    let run = runtime.start(GATED, "g", 1).await.unwrap();
    let mut waiting = std::pin::pin!(run.result());
    tokio::select! {
        biased;
        result = &mut waiting => panic!("it waits for a signal, and gave {result:?}"),
        () = std::future::ready(()) => {}
    }
    // Nobody waits for the second when it is paused.
    let other = runtime.start(GATED, "h", 1).await.unwrap();
    for run in [&run, &other] {
        run.pause("for now").await.unwrap();
        run.resume().await.unwrap();
        run.signal(GO, 1).await.unwrap();
    }
    assert_eq!(waiting.await.unwrap(), 6);
    assert_eq!(other.result().await.unwrap(), 6);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn runs_whose_handles_are_kept_are_unloaded_all_the_same() {
    let store = Store::new();
    let builder = store.open().register(GATED, gated);
    let runtime = builder
        .configure(|config| config.hot_len_max = 2)
        .start()
        .await
        .unwrap();
    let mut runs = Vec::new();
    for number in 0..20 {
        runs.push(
            runtime
                .start(GATED, &format!("g-{number}"), number)
                .await
                .unwrap(),
        );
    }
    let mut waiting = std::pin::pin!(runs[0].result());
    tokio::select! {
        biased;
        result = &mut waiting => panic!("it waits for a signal, and gave {result:?}"),
        () = std::future::ready(()) => {}
    }
    for run in &runs {
        run.signal(GO, 1).await.unwrap();
    }
    assert_eq!(waiting.await.unwrap(), 2);
    for (number, run) in (0..).zip(&runs) {
        assert_eq!(run.result().await.unwrap(), 2 * (2 * number + 1));
    }
    assert!(runtime.stats().loads > 0, "some were on disk only");
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_result_is_there_after_a_restart() {
    let store = Store::new();
    let runtime = open(&store).await;
    let run = runtime.start(QUADRUPLE, "q", 5).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 20);
    runtime.shutdown().await.unwrap();
    drop((run, runtime));

    let runtime = open(&store).await;
    assert_eq!(
        runtime.attach(QUADRUPLE, "q").unwrap().result().await.unwrap(),
        20
    );
    let again = runtime.start(QUADRUPLE, "q", 7).await.unwrap();
    assert_eq!(
        again.result().await.unwrap(),
        20,
        "a start of a finished id attaches"
    );
    let refused = runtime
        .start(QUADRUPLE, "q", 7)
        .on_conflict(OnConflict::Refuse)
        .await;
    assert!(matches!(refused, Err(StartError::AlreadyFinished { .. })));
    assert_eq!(runtime.list_finished(None, 10).await.unwrap().len(), 1);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn runs_in_flight_go_on_after_a_graceful_stop() {
    let store = Store::new();
    let runtime = open(&store).await;
    let run = runtime.start(GATED, "g", 5).await.unwrap();
    described(&run, |run| !run.awaited.is_empty()).await;
    runtime.shutdown().await.unwrap();
    drop((run, runtime));

    let runtime = open(&store).await;
    assert_eq!(runtime.startup_report().live, 1);
    let run = runtime.attach(GATED, "g").unwrap();
    run.signal(GO, 1).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 22);
    runtime.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropping_the_runtime_is_a_crash_that_loses_nothing() {
    let store = Store::new();
    for round in 0..5_u64 {
        let runtime = open(&store).await;
        assert_eq!(runtime.startup_report().live, round * 100);
        for number in 0..100 {
            let id = format!("g-{round}-{number}");
            drop(runtime.start(GATED, &id, number).await.unwrap());
        }
        drop(runtime);
    }
    let runtime = open(&store).await;
    for round in 0..5_u64 {
        for number in 0..100 {
            let run = runtime.attach(GATED, &format!("g-{round}-{number}")).unwrap();
            run.signal(GO, 1).await.unwrap();
            assert_eq!(run.result().await.unwrap(), (number * 2 + 1) * 2);
        }
    }
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn an_activity_cut_off_runs_again_with_its_key_and_a_higher_attempt() {
    let store = Store::new();
    let begun = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&begun);
    let never = move |cx: ActivityContext, _: u64| {
        counter.store(cx.attempt(), Ordering::SeqCst);
        std::future::pending::<Result<u32, ActivityError>>()
    };
    let runtime = store
        .bare()
        .register(HELD, never)
        .register(CALL_HELD, call_held)
        .start()
        .await
        .unwrap();
    drop(runtime.start(CALL_HELD, "h", 1).await.unwrap());
    while begun.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(begun.load(Ordering::SeqCst), 1);
    drop(runtime);

    async fn at_once(cx: ActivityContext, _: u64) -> Result<u32, ActivityError> {
        Ok(cx.attempt())
    }
    let runtime = store
        .bare()
        .register(HELD, at_once)
        .register(CALL_HELD, call_held)
        .start()
        .await
        .unwrap();
    assert_eq!(runtime.startup_report().activities, 1);
    let attempt = runtime.attach(CALL_HELD, "h").unwrap().result().await.unwrap();
    assert_eq!(attempt, 2);
    runtime.shutdown().await.unwrap();
}

/// What a shard gave out after it had taken the place of one that failed was given out again by the
/// next process: it counted how often the store had been opened, and not how often it had been taken
/// over while it was open.
#[tokio::test]
async fn no_number_of_an_attempt_is_given_twice_whatever_fails() {
    let store = Store::new();
    let (begun, mut expected) = (Arc::new(Mutex::new(Vec::new())), 0);
    for opening in 0..4 {
        let log = Arc::clone(&begun);
        let never = move |cx: ActivityContext, _: u64| {
            log.lock().unwrap().push(cx.attempt());
            std::future::pending::<Result<u32, ActivityError>>()
        };
        let builder = store.bare().register(HELD, never);
        let runtime = builder.register(CALL_HELD, call_held).start().await.unwrap();
        drop(runtime.start(CALL_HELD, "h", 1).await.unwrap());
        // The shard fails twice in one opening, and not at all in the next.
        for failure in 0..=(opening + 1) % 2 * 2 {
            if failure > 0 {
                runtime.kill("shard 0").unwrap();
            }
            expected += 1;
            while begun.lock().unwrap().len() < expected {
                tokio::task::yield_now().await;
            }
        }
        drop(runtime);
    }
    let begun = begun.lock().unwrap();
    assert!(begun.is_sorted_by(|before, after| before < after), "{begun:?}");
}

#[test]
fn timers_fire_after_a_restart_even_if_their_time_came_in_between() {
    const NAP: Workflow<u64, u64> = Workflow::named("nap");
    async fn nap(cx: WorkflowContext, seconds: u64) -> Result<u64, WorkflowError> {
        let before = cx.now();
        cx.sleep(Duration::from_secs(seconds)).await?;
        Ok(cx.now().saturating_since(before).as_secs())
    }
    // Opened again before its time, and long after it.
    for (gone, expected) in [(10, 60), (3_600, 3_600)] {
        let store = Store::new();
        let first = SimHost::new(SimConfig::seeded(1));
        let builder = store.bare().host(first.host()).register(NAP, nap);
        let begin = async {
            let runtime = builder.start().await.unwrap();
            drop(runtime.start(NAP, "n", 60).await.unwrap());
        };
        first.block_on(begin).unwrap();
        first.crash();
        let mut config = SimConfig::seeded(2);
        config.starts_at = config.starts_at + Duration::from_secs(gone);
        let second = SimHost::new(config);
        let builder = store.bare().host(second.host()).register(NAP, nap);
        let finish = async {
            let runtime = builder.start().await.unwrap();
            assert_eq!(runtime.startup_report().timers, 1);
            let slept = runtime.attach(NAP, "n").unwrap().result().await.unwrap();
            assert_eq!(slept, expected);
            runtime.shutdown().await.unwrap();
        };
        second.block_on(finish).unwrap();
    }
}

#[tokio::test]
async fn a_second_runtime_on_the_same_file_is_refused() {
    let store = Store::new();
    let runtime = open(&store).await;
    let second = store.open().start().await.unwrap_err();
    assert!(
        matches!(
            second,
            OpenError::Store(millrun::store::StoreError::AlreadyOpen { .. })
        ),
        "{second}"
    );
    runtime.shutdown().await.unwrap();
    let third = open(&store).await;
    third.shutdown().await.unwrap();
}

#[tokio::test]
async fn foreign_and_truncated_files_are_refused_and_left_alone() {
    let store = Store::new();
    for content in [&b"this is a diary, not a database"[..], &[0xff; 70_000]] {
        std::fs::write(store.path(), content).unwrap();
        let error = store.open().start().await.unwrap_err();
        assert!(matches!(error, OpenError::Store(_)), "{error}");
        assert_eq!(std::fs::read(store.path()).unwrap(), content);
    }
    std::fs::remove_file(store.path()).unwrap();
    let runtime = open(&store).await;
    runtime
        .start(QUADRUPLE, "q", 1)
        .await
        .unwrap()
        .result()
        .await
        .unwrap();
    runtime.shutdown().await.unwrap();
    drop(runtime);
    let whole = std::fs::read(store.path()).unwrap();
    std::fs::write(store.path(), &whole[..whole.len() / 3]).unwrap();
    let error = store.open().start().await.unwrap_err();
    assert!(matches!(error, OpenError::Store(_)), "{error}");
}

#[tokio::test]
async fn after_a_shutdown_every_handle_says_so() {
    let store = Store::new();
    let runtime = open(&store).await;
    let run = runtime.start(GATED, "g", 1).await.unwrap();
    let waiting = tokio::spawn({
        let run = run.clone();
        async move { run.result().await }
    });
    tokio::task::yield_now().await;
    runtime.shutdown().await.unwrap();
    assert!(matches!(
        waiting.await.unwrap(),
        Err(ResultError::Run(RunError::Stopped(StopCause::Shutdown)))
    ));
    assert!(matches!(
        run.signal(GO, 1).await,
        Err(RunError::Stopped(StopCause::Shutdown))
    ));
    assert!(matches!(
        runtime.start(GATED, "h", 1).await,
        Err(StartError::Stopped(StopCause::Shutdown))
    ));
    assert!(
        runtime.shutdown().await.is_ok(),
        "a second shutdown has nothing to do"
    );
}

#[tokio::test]
async fn code_that_is_not_registered_is_waited_for() {
    let store = Store::new();
    let runtime = store.bare().start().await.unwrap();
    let run = runtime.start(GATED, "g", 5).await.unwrap();
    run.signal(GO, 1).await.unwrap();
    let listed = runtime.list(None, 10).await.unwrap();
    assert_eq!(listed[0].status, InstanceStatus::NotRegistered);
    runtime.shutdown().await.unwrap();
    drop((run, runtime));

    // The workflow's code is there, the activity's is not.
    let runtime = store.bare().register(GATED, gated).start().await.unwrap();
    assert_eq!(runtime.startup_report().parked, 1);
    let run = runtime.attach(GATED, "g").unwrap();
    let waiting = described(&run, |run| !run.pending.is_empty()).await;
    assert!(matches!(
        waiting.pending[0],
        millrun::operating::PendingDescription::Activity {
            is_registered: false,
            ..
        }
    ));
    runtime.shutdown().await.unwrap();
    drop((run, runtime));

    let runtime = open(&store).await;
    assert_eq!(runtime.attach(GATED, "g").unwrap().result().await.unwrap(), 22);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_call_on_a_queue_without_activities_waits_and_says_so() {
    const ASTRAY: Workflow<u64, u64> = Workflow::named("astray");
    async fn astray(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
        Ok(cx.call(DOUBLE, number).on_queue("elsewhere").await?)
    }
    let store = Store::new();
    let runtime = store.open().register(ASTRAY, astray).start().await.unwrap();
    let run = runtime.start(ASTRAY, "a", 5).await.unwrap();
    let waiting = described(&run, |run| !run.pending.is_empty()).await;
    assert!(matches!(
        &waiting.pending[0],
        millrun::operating::PendingDescription::Activity { queue, is_registered: false, .. } if queue == "elsewhere"
    ));
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_name_registered_twice_is_an_error() {
    let store = Store::new();
    let error = store
        .open()
        .register(QUADRUPLE, quadruple)
        .start()
        .await
        .unwrap_err();
    assert!(matches!(
        error,
        OpenError::RegisteredTwice {
            kind: "workflow",
            name: "quadruple"
        }
    ));
    let error = store.open().register(DOUBLE, double).start().await.unwrap_err();
    assert!(matches!(
        error,
        OpenError::RegisteredTwice {
            kind: "activity",
            name: "double"
        }
    ));
    let error = store
        .open()
        .configure(|config| config.shards_len = 0)
        .start()
        .await
        .unwrap_err();
    assert!(matches!(
        error,
        OpenError::Config {
            field: "shards_len",
            ..
        }
    ));
}

#[tokio::test]
async fn a_reserved_name_is_refused_and_one_in_a_store_is_reported() {
    const WORKFLOW: Workflow<u64, u64> = Workflow::named("millrun.quadruple");
    const ACTIVITY: Activity<u64, u64> = Activity::named("millrun.double");
    const BULK: Workflow<u64, u64> = Workflow::named("millrun.bulk");
    const PARENT: Workflow<(), ()> = Workflow::named("parent");
    const ALIKE: Workflow<u64, u64> = Workflow::named("millrunner");
    let store = Store::new();
    let builder = store.open().register(WORKFLOW, quadruple);
    let error = builder.start().await.unwrap_err();
    assert!(matches!(
        error,
        OpenError::ReservedName {
            kind: "workflow",
            name: "millrun.quadruple"
        }
    ));
    let error = store.open().register(ACTIVITY, double).start().await.unwrap_err();
    assert!(matches!(
        error,
        OpenError::ReservedName {
            kind: "activity",
            name: "millrun.double"
        }
    ));

    // A child makes what a store of an earlier release may hold.
    let runtime = store
        .open()
        .register(ALIKE, quadruple)
        .register(PARENT, async |cx: WorkflowContext, (): ()| {
            let clash = cx.child(BULK, "clash", 1).on_close(ParentClose::Abandon);
            let other = cx.child(WORKFLOW, "other", 1).on_close(ParentClose::Abandon);
            let ended = cx.join(clash, other).await;
            drop(ended);
            Ok::<(), WorkflowError>(())
        })
        .start()
        .await
        .unwrap();
    assert_eq!(runtime.startup_report().reserved, 0);
    let refused = runtime.start(WORKFLOW, "clash", 1).await;
    assert!(
        matches!(&refused, Err(StartError::ReservedName { workflow }) if workflow == "millrun.quadruple"),
        "{refused:?}"
    );
    let refused = runtime.start_untyped("millrun.bulk", "clash", Payload::encode(&1).unwrap());
    let refused = refused.await;
    assert!(
        matches!(&refused, Err(StartError::ReservedName { .. })),
        "{refused:?}"
    );
    let parent = runtime.start(PARENT, "parent", ()).await.unwrap();
    for clash in ["clash", "other"] {
        let clash = runtime.attach_untyped(clash).unwrap();
        while clash.describe().await.is_err() {
            tokio::task::yield_now().await;
        }
    }
    parent.terminate("its children are there").await.unwrap();
    runtime
        .start(QUADRUPLE, "last", 1)
        .await
        .unwrap()
        .result()
        .await
        .unwrap();
    runtime.shutdown().await.unwrap();

    let runtime = store.open().start().await.unwrap();
    let report = runtime.startup_report();
    assert_eq!((report.live, report.reserved), (2, 2));
    for clash in ["clash", "other"] {
        let clash = runtime.attach_untyped(clash).unwrap();
        let described = clash.describe_awake().await.unwrap();
        let finds_no_code = matches!(
            described.status,
            InstanceStatus::Parked | InstanceStatus::NotRegistered
        );
        assert!(finds_no_code, "{described:?}");
        clash.terminate("its name is reserved").await.unwrap();
    }
    runtime.shutdown().await.unwrap();

    let runtime = store.open().start().await.unwrap();
    assert_eq!(runtime.startup_report().reserved, 0);
    runtime.shutdown().await.unwrap();
}
