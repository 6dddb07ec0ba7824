//! What an instance waits for, as it is described: on which attempt, timer, signal or promise, and since
//! when.

use std::time::Duration;

use millrun::operating::{InstanceStatus, ParkReason, PendingDescription};
use millrun::workflow::Awaited;
use millrun::{
    Activity, ActivityContext, ActivityError, Retry, RunError, Signal, Timestamp, Workflow, WorkflowContext,
    WorkflowError,
};
use millrun_testkit::{SimConfig, SimHost};

use crate::support::Store;

const GO: Signal<u64> = Signal::named("go");

/// For what each is, by a signal's name, and since when.
fn kinds(awaited: &[Awaited]) -> Vec<(&str, Timestamp)> {
    let kinds = awaited.iter().map(|awaited| match awaited {
        Awaited::Signal { name, since, .. } => (name.as_str(), *since),
        Awaited::Condition { since, .. } => ("condition", *since),
        Awaited::CancelRequest { since, .. } => ("cancel request", *since),
        other => panic!("{other:?}"),
    });
    kinds.collect()
}

#[test]
fn the_attempt_that_is_waited_for_is_told_and_when_it_is_due_also_after_a_restart() {
    const STEP: Activity<(), u64> = Activity::named("step");
    const CALL: Workflow<(), u64> = Workflow::named("call");
    async fn call(cx: WorkflowContext, (): ()) -> Result<u64, WorkflowError> {
        let retry = Retry::exponential().first_pause(Duration::from_secs(10));
        let call = cx.call(STEP, ()).start_to_close(Duration::from_secs(86_400));
        let call = call.schedule_to_close(Duration::from_secs(200_000));
        Ok(call.retry(retry).await?)
    }
    /// The first two attempts fail, the next one does not end.
    async fn step(cx: ActivityContext, (): ()) -> Result<u64, ActivityError> {
        if cx.attempt() < 3 {
            return Err(ActivityError::retryable("busy"));
        }
        cx.heartbeat(&"halfway").unwrap();
        std::future::pending().await
    }
    let store = Store::new();
    let mut told = Vec::new();
    for life in 0..2 {
        let mut config = SimConfig::seeded(life);
        let begins = config.starts_at;
        config.starts_at = begins + Duration::from_secs(life * 10_000);
        let world = SimHost::new(config);
        let host = world.host();
        let builder = store.bare().host(world.host());
        let builder = builder.register(CALL, call).register(STEP, step);
        let script = async {
            let runtime = builder.start().await.unwrap();
            let run = runtime.start(CALL, "c", ()).await.unwrap();
            for seconds in [1, 12, 100] {
                host.sleep_until(begins + Duration::from_secs(life * 10_000 + seconds))
                    .await;
                let pending = run.describe().await.unwrap().pending;
                let [
                    PendingDescription::Activity {
                        since,
                        attempt,
                        failures,
                        retry_at,
                        close_at,
                        is_registered: true,
                        ref heartbeat,
                        ..
                    },
                ] = pending[..]
                else {
                    panic!("{pending:?}");
                };
                assert!(since < begins + Duration::from_secs(1), "since the call");
                assert_eq!(close_at, Some(since + Duration::from_secs(200_000)));
                let heartbeat: Option<String> = heartbeat.as_ref().map(|said| said.decode().unwrap());
                assert_eq!(
                    heartbeat.is_some(),
                    failures == 2 && (life == 1 || seconds == 100)
                );
                assert!(heartbeat.is_none_or(|said| said == "halfway"));
                let is_pausing = retry_at.map(|at| at > host.now());
                told.push((attempt, failures, is_pausing));
            }
            runtime
        };
        let runtime = world.block_on(script).unwrap();
        world.crash();
        drop(runtime);
    }
    // The second is due after ten seconds, the third after twenty more; what a crash cut off is tried
    // again under a higher number.
    let (first, second) = told.split_at(3);
    assert_eq!(
        first,
        [(2, 1, Some(true)), (3, 2, Some(true)), (3, 2, Some(false))]
    );
    assert_eq!(second, [(4, 2, Some(false)); 3]);
}

#[tokio::test]
async fn what_an_instance_waits_for_is_told_with_the_time_since_when() {
    const WAITS: Workflow<(), ()> = Workflow::named("waits");
    async fn waits(cx: WorkflowContext, (): ()) -> Result<(), WorkflowError> {
        let promise = cx.promise::<()>();
        let (timer, kept, called, told) = cx
            .join(
                cx.join(cx.sleep(Duration::from_secs(3_600)), promise),
                cx.join(cx.call(Activity::<(), ()>::named("nowhere"), ()), cx.receive(GO)),
            )
            .await
            .into_parts();
        timer?;
        kept?;
        called?;
        told?;
        Ok(())
    }
    trait IntoParts<A, B, C, D> {
        fn into_parts(self) -> (A, B, C, D);
    }
    impl<A, B, C, D> IntoParts<A, B, C, D> for ((A, B), (C, D)) {
        fn into_parts(self) -> (A, B, C, D) {
            let ((a, b), (c, d)) = self;
            (a, b, c, d)
        }
    }
    let store = Store::new();
    let runtime = store.bare().register(WAITS, waits).start().await.unwrap();
    let run = runtime.start(WAITS, "w", ()).await.unwrap();
    let told = run.describe().await.unwrap();
    let sinces: Vec<_> = told
        .pending
        .iter()
        .map(|pending| match pending {
            PendingDescription::Activity { since, .. }
            | PendingDescription::Promise { since, .. }
            | PendingDescription::Timer { since, .. } => *since,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(sinces, [told.started_at; 3]);
    assert_eq!(told.last_at, told.started_at);
    assert_eq!(kinds(&told.awaited), [("go", told.started_at)]);
    runtime.shutdown().await.unwrap();
}

#[test]
fn what_no_history_has_is_told_with_the_time_since_when_it_is_waited_for_also_after_a_restart() {
    const LATER: Workflow<(), ()> = Workflow::named("later");
    async fn later(cx: WorkflowContext, (): ()) -> Result<(), WorkflowError> {
        let state = cx.state(0_u32);
        cx.sleep(Duration::from_secs(60)).await?;
        let signals = cx.join(cx.receive(GO), cx.receive(GO));
        let never = cx.join(state.until(|state| *state == 1), cx.cancelled());
        drop(cx.join(signals, never).await);
        Ok(())
    }
    let store = Store::new();
    let mut told = Vec::new();
    for life in 0..2 {
        let mut config = SimConfig::seeded(life);
        config.starts_at = config.starts_at + Duration::from_secs(life * 7_200);
        let world = SimHost::new(config);
        let builder = store.bare().host(world.host()).register(LATER, later);
        let host = world.host();
        let script = async move {
            let runtime = builder.start().await.unwrap();
            let run = runtime.start(LATER, "l", ()).await.unwrap();
            let now = host.now();
            host.sleep_until(now + Duration::from_secs(3_600)).await;
            let told = run.describe_awake().await.unwrap();
            runtime.shutdown().await.unwrap();
            told
        };
        told.push(world.block_on(script).unwrap());
    }
    let since = told[0].last_at;
    assert!(since >= told[0].started_at + Duration::from_secs(60));
    let expected = [("go", since), ("condition", since), ("cancel request", since)];
    assert_eq!(kinds(&told[0].awaited), expected);
    assert_eq!(told[0].awaited, told[1].awaited, "on the same lines");
}

#[test]
fn why_the_code_does_not_run_is_told_with_the_time_since_when_and_when_it_comes_back_by_itself() {
    const PAUSED: Workflow<(), u64> = Workflow::named("paused");
    const PANICS: Workflow<(), u64> = Workflow::named("panics");
    async fn paused(cx: WorkflowContext, (): ()) -> Result<u64, WorkflowError> {
        Ok(cx.receive(GO).await?)
    }
    async fn panics(cx: WorkflowContext, (): ()) -> Result<u64, WorkflowError> {
        cx.receive(GO).await?;
        panic!("again")
    }
    let store = Store::new();
    let seconds = Duration::from_secs;
    let begins = SimConfig::seeded(0).starts_at;
    let mut told = Vec::new();
    for life in 0..2 {
        let mut config = SimConfig::seeded(life);
        config.starts_at = begins + seconds(life * 1_000);
        let world = SimHost::new(config);
        let host = world.host();
        let builder = store.bare().host(world.host());
        let builder = builder.register(PAUSED, paused).register(PANICS, panics);
        let script = async {
            let runtime = builder.start().await.unwrap();
            let asleep = runtime.start(PAUSED, "asleep", ()).await.unwrap();
            let broken = runtime.start(PANICS, "broken", ()).await.unwrap();
            let before = asleep.describe().await.unwrap();
            if life == 0 {
                assert_eq!((before.parked_since, before.resumes_at), (None, None));
                host.sleep_until(begins + seconds(100)).await;
                asleep.pause("for the night").await.unwrap();
                broken.signal(GO, 1).await.unwrap();
                // What happens to it meanwhile does not move the time.
                host.sleep_until(begins + seconds(102)).await;
                asleep.signal(GO, 1).await.unwrap();
            }
            for run in [asleep, broken] {
                let run = run.describe().await.unwrap();
                let since = |at: millrun::Timestamp| at.saturating_since(begins).as_secs();
                let is_panicked = matches!(run.parked, Some(ParkReason::Panicked { .. }));
                told.push((
                    is_panicked,
                    run.parked_since.map(since),
                    run.resumes_at.map(since),
                ));
            }
            runtime
        };
        let runtime = world.block_on(script).unwrap();
        world.crash();
        drop(runtime);
    }
    // The second panic was at 101, and the third time is two seconds later; after the restart the time has
    // come long ago, and the third panic waits for four.
    let (first, second) = told.split_at(2);
    assert_eq!(first, [(false, Some(100), None), (true, Some(101), Some(103))]);
    assert_eq!(
        second,
        [(false, Some(100), None), (true, Some(1_000), Some(1_004))]
    );
}

/// The story: each look at a run brought it into memory, where another one had to leave for it, so that a page with
/// a hundred runs was a hundred replays.
#[tokio::test]
async fn a_run_on_disk_is_described_from_its_history_and_stays_there() {
    const NOWHERE: Activity<(), ()> = Activity::named("nowhere");
    const WAITS: Workflow<(), ()> = Workflow::named("waits");
    async fn waits(cx: WorkflowContext, (): ()) -> Result<(), WorkflowError> {
        let hour = cx.sleep(Duration::from_secs(3_600));
        let waited = cx.join(hour, cx.join(cx.call(NOWHERE, ()), cx.receive(GO)));
        drop(waited.await);
        Ok(())
    }
    const PAUSED: &str = "paused";
    let store = Store::new();
    let open = || store.bare().register(WAITS, waits).start();
    let runtime = open().await.unwrap();
    for id in ["waits", PAUSED] {
        runtime.start(WAITS, id, ()).await.unwrap();
    }
    let paused = runtime.attach(WAITS, PAUSED).unwrap();
    paused.pause("a holiday").await.unwrap();
    assert!(paused.describe().await.unwrap().is_in_memory);
    runtime.shutdown().await.unwrap();

    let runtime = open().await.unwrap();
    for (id, status) in [
        ("waits", InstanceStatus::Running),
        (PAUSED, InstanceStatus::Parked),
    ] {
        let run = runtime.attach(WAITS, id).unwrap();
        let loads = runtime.stats().loads;
        let on_disk = run.describe().await.unwrap();
        assert_eq!(runtime.describe_run(on_disk.run).await.unwrap(), on_disk);
        assert_eq!(runtime.stats().loads, loads, "nothing was brought back for it");
        assert_eq!((on_disk.is_in_memory, &on_disk.status), (false, &status));
        assert_eq!(on_disk.pending.len(), 2, "{:?}", on_disk.pending);
        assert!(on_disk.awaited.is_empty());
        assert_eq!(on_disk.parked.is_some(), id == PAUSED);

        let awake = run.describe_awake().await.unwrap();
        assert_eq!(runtime.stats().loads, loads + 1);
        assert!(awake.is_in_memory && awake.awaits("go"));
        assert_eq!(run.describe().await.unwrap(), awake, "it is in memory now");
        let mut same = awake;
        same.is_in_memory = false;
        same.awaited.clear();
        assert_eq!(same.lines.len(), 2, "a line for each operation: {same:?}");
        same.lines.clear();
        assert_eq!(same, on_disk);
    }
    let nobody = runtime.attach(WAITS, "nobody").unwrap();
    assert!(matches!(nobody.describe().await, Err(RunError::NotFound)));
    runtime.shutdown().await.unwrap();
}
