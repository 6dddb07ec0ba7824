//! What the operator of a runtime sees and does: kills, budgets, slow code, replays of a sample.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use millrun::broker::{Envelope, Inbox, SubscriptionConfig};
use millrun::operating::{KillError, ParkReason, PartChange, PartEvent};
use millrun::{
    ResultError, Runtime, Signal, StartError, StopCause, Workflow, WorkflowContext, WorkflowError,
};

use millrun_testkit::{SimConfig, SimHost};

use crate::logged::listen_for;
use crate::support::{DOUBLE, QUADRUPLE, Store, described, double, quadruple};

const GO: Signal<u64> = Signal::named("go");
const COUNT: Workflow<u64, u64> = Workflow::named("count");

async fn count(cx: WorkflowContext, first: u64) -> Result<u64, WorkflowError> {
    Ok(first + cx.receive(GO).await?)
}

fn changes(inbox: &Inbox<Envelope<PartEvent>>, part: &str) -> Vec<PartChange> {
    let events = inbox.take().map(|envelope| envelope.payload().clone());
    let of_part = events.filter(|event| event.part == part);
    of_part.map(|event| event.change).collect()
}

/// Waits until a part has been restarted this often.
async fn restarted(runtime: &Runtime, name: &str, restarts: u32) {
    let is_back = |runtime: &Runtime| {
        let mut parts = runtime.parts().into_iter();
        parts.any(|part| part.name == name && part.is_running && part.restarts == restarts)
    };
    while !is_back(runtime) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_branch_that_is_killed_is_restarted_and_loses_nothing() {
    let store = Store::new();
    let builder = store.open().register(COUNT, count);
    let runtime = builder.start().await.unwrap();
    let events: Inbox<Envelope<PartEvent>> = runtime
        .broker()
        .subscribe("millrun.parts", SubscriptionConfig::default())
        .unwrap();
    let mut runs = Vec::new();
    for number in 0..50 {
        let id = format!("c-{number}");
        runs.push(runtime.start(COUNT, &id, number).await.unwrap());
    }
    for (restarts, part) in [
        (1, "shard 0"),
        (2, "shard 0"),
        (1, "pool default"),
        (1, "reader 0"),
    ] {
        runtime.kill(part).unwrap();
        restarted(&runtime, part, restarts).await;
        // It is told a moment after it can be seen.
        let mut told = Vec::new();
        while told.len() < 2 {
            told.extend(changes(&events, part));
            tokio::task::yield_now().await;
        }
        let expected = [
            PartChange::Failed {
                message: "it was killed".into(),
            },
            PartChange::Restarted { restarts },
        ];
        assert_eq!(told, expected, "{part}");
        let run = loop {
            let id = format!("q-{part}-{restarts}").replace(' ', "-");
            match runtime.start(QUADRUPLE, &id, 5).await {
                Ok(run) => break run,
                // It was restarted while it worked on this.
                Err(StartError::Stopped(StopCause::Part { .. })) => {}
                Err(error) => panic!("{error}"),
            }
        };
        assert_eq!(run.result().await.unwrap(), 20);
    }
    for (number, run) in (0..).zip(&runs) {
        run.signal(GO, 100).await.unwrap();
        assert_eq!(run.result().await.unwrap(), number + 100);
    }
    assert!(runtime.stop_cause().is_none());
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn what_cannot_be_killed_says_why() {
    let store = Store::new();
    let runtime = store.open().start().await.unwrap();
    for part in ["journal", "timers"] {
        assert!(runtime.parts().iter().any(|it| it.name == part && it.is_running));
        let refused = runtime.kill(part);
        assert!(matches!(refused, Err(KillError::NotRestartable { .. })), "{part}");
    }
    assert!(matches!(runtime.kill("nobody"), Err(KillError::Unknown { .. })));
    runtime.shutdown().await.unwrap();
    assert!(matches!(
        runtime.kill("shard 0"),
        Err(KillError::NotRunning { .. })
    ));
}

#[tokio::test]
async fn instances_beyond_the_byte_budget_are_unloaded_and_wake_again() {
    let store = Store::new();
    let builder = store.bare().register(COUNT, count);
    let runtime = builder
        .configure(|config| config.hot_bytes_max = 20_000)
        .start()
        .await
        .unwrap();
    let mut runs = Vec::new();
    for number in 0..100 {
        let id = format!("c-{number}");
        runs.push(runtime.start(COUNT, &id, number).await.unwrap());
    }
    let hot = runtime.stats().hot;
    assert!((1..100).contains(&hot), "{hot} instances in 20,000 bytes");
    for (number, run) in (0..).zip(&runs) {
        run.signal(GO, 100).await.unwrap();
        assert_eq!(run.result().await.unwrap(), number + 100);
    }
    assert!(runtime.stats().loads > 0);
    runtime.shutdown().await.unwrap();
}

/// The number was that of the shard that had its turn last.
#[tokio::test]
async fn instances_in_memory_are_counted_over_all_shards() {
    let builder = Runtime::volatile().register(COUNT, count);
    let builder = builder.configure(|config| config.shards_len = 4);
    let runtime = builder.start().await.unwrap();
    let mut runs = Vec::new();
    for number in 0..32 {
        let id = format!("c-{number}");
        runs.push(runtime.start(COUNT, &id, number).await.unwrap());
    }
    assert_eq!(runtime.stats().hot, 32);
    for run in &runs[..16] {
        run.signal(GO, 100).await.unwrap();
        run.result().await.unwrap();
    }
    assert_eq!(runtime.stats().hot, 16);
    for shard in 0..4 {
        runtime.kill(&format!("shard {shard}")).unwrap();
    }
    while runtime.parts().iter().filter(|part| part.restarts == 1).count() < 4 {
        tokio::task::yield_now().await;
    }
    assert_eq!(runtime.stats().hot, 0);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn instances_that_grow_beyond_the_byte_budget_are_unloaded() {
    const UNREAD: Signal<Vec<u8>> = Signal::named("unread");
    let store = Store::new();
    let builder = store.bare().register(COUNT, count);
    let runtime = builder
        .configure(|config| config.hot_bytes_max = 100_000)
        .start()
        .await
        .unwrap();
    let mut runs = Vec::new();
    for number in 0..10 {
        let id = format!("c-{number}");
        runs.push(runtime.start(COUNT, &id, number).await.unwrap());
    }
    assert_eq!(runtime.stats().hot, 10);
    for run in &runs {
        for _ in 0..10 {
            run.signal(UNREAD, vec![1; 4_000]).await.unwrap();
        }
    }
    let hot = runtime.stats().hot;
    assert!(hot <= 5, "{hot} instances of 40,000 bytes in 100,000");
    for (number, run) in (0..).zip(&runs) {
        run.signal(GO, 100).await.unwrap();
        assert_eq!(run.result().await.unwrap(), number + 100);
    }
    runtime.shutdown().await.unwrap();
}

/// Each message to it read its whole history again, and the next took longer.
#[tokio::test]
async fn an_instance_that_is_larger_than_the_budget_by_itself_stays_until_another_comes() {
    const UNREAD: Signal<Vec<u8>> = Signal::named("unread");
    let store = Store::new();
    let builder = store.bare().register(COUNT, count);
    let runtime = builder
        .configure(|config| config.hot_bytes_max = 10_000)
        .start()
        .await
        .unwrap();
    let large = runtime.start(COUNT, "large", 1).await.unwrap();
    for _ in 0..20 {
        large.signal(UNREAD, vec![1; 4_000]).await.unwrap();
    }
    assert_eq!((runtime.stats().loads, runtime.stats().hot), (0, 1));
    let small = runtime.start(COUNT, "small", 2).await.unwrap();
    for run in [&large, &small] {
        run.signal(GO, 100).await.unwrap();
    }
    assert_eq!(large.result().await.unwrap(), 101);
    assert_eq!(small.result().await.unwrap(), 102);
    runtime.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn code_that_blocks_its_shard_is_reported_while_it_does() {
    let store = Store::new();
    let is_released = Arc::new(AtomicBool::new(false));
    let switch = Arc::clone(&is_released);
    let blocks = move |cx: WorkflowContext, first: u64| {
        let switch = Arc::clone(&switch);
        async move {
            let go = cx.receive(GO).await?;
            while !switch.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            Ok::<_, WorkflowError>(first + go)
        }
    };
    let builder = store.bare().register(COUNT, blocks);
    let runtime = builder
        .configure(|config| config.turn_warn = Duration::from_millis(20))
        .start()
        .await
        .unwrap();
    let run = runtime.start(COUNT, "c", 1).await.unwrap();
    let reports = listen_for(run.run_id().unwrap().to_string());
    let signalled = tokio::spawn({
        let run = run.clone();
        async move { run.signal(GO, 2).await }
    });
    while runtime.stats().slow_turns == 0 {
        tokio::task::yield_now().await;
    }
    // It is told a moment after it can be seen, and names the run.
    let is_report = |text: &String| text.starts_with("millrun::watch");
    while !reports.lock().unwrap().iter().any(is_report) {
        tokio::task::yield_now().await;
    }
    assert!(!signalled.is_finished(), "the code still blocks");
    is_released.store(true, Ordering::SeqCst);
    signalled.await.unwrap().unwrap();
    assert_eq!(run.result().await.unwrap(), 3);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_history_that_gets_long_is_counted_once_behind_each_checkpoint() {
    const SUM: Workflow<u64, u64> = Workflow::named("sum");
    /// Ten signals, a checkpoint, ten more.
    async fn sum(cx: WorkflowContext, _: u64) -> Result<u64, WorkflowError> {
        let before = cx.checkpointed::<u64>().transpose()?;
        let mut sum = before.unwrap_or_default();
        for _ in 0..10 {
            sum += cx.receive(GO).await?;
        }
        match before {
            None => Ok(cx.checkpoint(&sum).await?),
            Some(_) => Ok(sum),
        }
    }
    for (history_len_warn, expected) in [(5, 2), (50, 0)] {
        let builder = Runtime::volatile().register(SUM, sum);
        let runtime = builder
            .configure(|config| config.limits.history_len_warn = history_len_warn)
            .start()
            .await
            .unwrap();
        let run = runtime.start(SUM, "s", 0).await.unwrap();
        for _ in 0..20 {
            run.signal(GO, 1).await.unwrap();
        }
        assert_eq!(run.result().await.unwrap(), 20);
        assert_eq!(runtime.stats().long_histories, expected);
        runtime.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn a_sample_of_finished_runs_is_replayed_and_differences_are_counted() {
    let store = Store::new();
    let is_other = Arc::new(AtomicBool::new(false));
    let switch = Arc::clone(&is_other);
    // What it does depends on the world, which a replay finds changed.
    let fickle = move |cx: WorkflowContext, first: u64| {
        let switch = Arc::clone(&switch);
        async move {
            if switch.fetch_xor(first == 1, Ordering::SeqCst) {
                cx.sleep(Duration::ZERO).await?;
            }
            Ok::<_, WorkflowError>(first + cx.receive(GO).await?)
        }
    };
    let builder = store.bare().register(COUNT, fickle);
    let runtime = builder
        .configure(|config| config.replay_check_every = 2)
        .start()
        .await
        .unwrap();
    let finish = async |id: &str, first: u64| {
        let run = runtime.start(COUNT, id, first).await.unwrap();
        described(&run, |run| !run.awaited.is_empty()).await;
        run.signal(GO, 1).await.unwrap();
        run.result().await.unwrap();
    };
    let checked = async |checks: u64| {
        while runtime.stats().replay_checks < checks {
            tokio::task::yield_now().await;
        }
    };
    finish("a", 0).await;
    finish("b", 0).await;
    checked(1).await;
    finish("c", 0).await;
    assert_eq!(runtime.stats().replay_differences, 0);
    finish("d", 1).await;
    checked(2).await;
    while runtime.stats().replay_differences == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(runtime.stats().replay_checks, 2, "every second");
    runtime.shutdown().await.unwrap();
}

/// Ten calls in a row, each with a number that `next` gives.
async fn ten(cx: WorkflowContext, next: impl Fn() -> u64) -> Result<u64, WorkflowError> {
    let mut sum = 0;
    for _ in 0..10 {
        sum += cx.call(DOUBLE, next()).await?;
    }
    Ok(sum)
}

#[test]
fn without_room_in_memory_each_turn_begins_with_a_replay_that_finds_what_is_not_the_same() {
    for is_fickle in [false, true] {
        let store = Store::new();
        let world = SimHost::new(SimConfig::seeded(1));
        let calls = Arc::new(AtomicU64::new(0));
        let code = move |cx: WorkflowContext, _: u64| {
            let calls = Arc::clone(&calls);
            ten(cx, move || match is_fickle {
                true => calls.fetch_add(1, Ordering::SeqCst),
                false => 7,
            })
        };
        let builder = store.bare().host(world.host()).register(DOUBLE, double);
        let builder = builder.register(COUNT, code).configure(|config| {
            config.hot_len_max = 0;
            config.limits.strict = true;
        });
        let script = async {
            let runtime = builder.start().await.unwrap();
            let run = runtime.start(COUNT, "c", 0).await.unwrap();
            let end = run.result().await;
            let loads = runtime.stats().loads;
            runtime.shutdown().await.unwrap();
            (end, loads)
        };
        let (end, loads) = world.block_on(script).unwrap();
        if is_fickle {
            let Err(ResultError::Parked(reason)) = end else {
                panic!("{end:?}")
            };
            assert!(matches!(*reason, ParkReason::Nondeterminism(_)), "{reason}");
        } else {
            assert_eq!((end.unwrap(), loads), (140, 10));
        }
    }
}

#[tokio::test]
async fn a_restart_brings_no_instance_into_memory() {
    let store = Store::new();
    let runtime = store.bare().register(COUNT, count).start().await.unwrap();
    for number in 0..200 {
        drop(
            runtime
                .start(COUNT, &format!("c-{number}"), number)
                .await
                .unwrap(),
        );
    }
    drop(runtime);
    let runtime = store.bare().register(COUNT, count).start().await.unwrap();
    // A question to each shard, so that what it had to do at its start is done.
    assert_eq!(runtime.list(None, 1_000).await.unwrap().len(), 200);
    let stats = runtime.stats();
    assert_eq!((stats.live, stats.hot, stats.loads), (200, 0, 0));
    let run = runtime.attach(COUNT, "c-7").unwrap();
    run.signal(GO, 100).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 107);
    assert_eq!(runtime.stats().loads, 1, "one was woken");
    runtime.shutdown().await.unwrap();
}

#[test]
fn no_step_waits_for_a_poll() {
    let directory = tempfile::tempdir().unwrap();
    let world = SimHost::new(SimConfig::seeded(5));
    let host = world.host();
    let builder = Runtime::open(directory.path().join("store.redb")).host(world.host());
    let builder = builder.register(DOUBLE, double).register(QUADRUPLE, quadruple);
    let script = async move {
        let runtime = builder.start().await.unwrap();
        let before = host.now();
        for number in 0..20 {
            let run = runtime
                .start(QUADRUPLE, &format!("q-{number}"), number)
                .await
                .unwrap();
            assert_eq!(run.result().await.unwrap(), number * 4);
        }
        // Time moves only when nothing can run: a poll lets it.
        assert_eq!(host.now(), before);
        runtime.shutdown().await.unwrap();
    };
    world.block_on(script).unwrap();
}
