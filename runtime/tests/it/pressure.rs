//! Small bounds everywhere: callers wait, backlog stays on disk, cold instances are unloaded.

use futures_util::future::join_all;
use millrun::{
    Activity, ActivityContext, ActivityError, ResultError, RunError, Runtime, Signal, StartError, Workflow,
    WorkflowContext, WorkflowError,
};
use millrun_testkit::{SimConfig, SimHost};

use crate::support::{DOUBLE, QUADRUPLE, Store, double};

const GO: Signal<u64> = Signal::named("go");
const GATED: Workflow<u64, u64> = Workflow::named("gated");
const WIDE: Workflow<u64, u64> = Workflow::named("wide");
const YIELDING: Activity<u64, u64> = Activity::named("yielding");

async fn gated(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    let doubled = cx.call(DOUBLE, number).await?;
    Ok(doubled + cx.receive(GO).await?)
}

async fn wide(cx: WorkflowContext, width: u64) -> Result<u64, WorkflowError> {
    let all = cx
        .join_all((0..width).map(|number| cx.call(YIELDING, number)))
        .await;
    Ok(all.into_iter().flatten().sum())
}

const ONCE: Workflow<u64, u64> = Workflow::named("once");

async fn once(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    Ok(cx.call(YIELDING, number).await?)
}

async fn yielding(_cx: ActivityContext, number: u64) -> Result<u64, ActivityError> {
    tokio::task::yield_now().await;
    Ok(number)
}

#[tokio::test]
async fn activities_beyond_the_window_wait_in_their_histories() {
    let store = Store::new();
    let builder = store.bare().register(YIELDING, yielding).register(WIDE, wide);
    let runtime = builder
        .configure(|config| {
            config.task_queue_len_max = 4;
            config.activities_running_max = 2;
            config.shard_queue_len_max = 2;
        })
        .start()
        .await
        .unwrap();
    let mut runs = Vec::new();
    for number in 0..5 {
        runs.push(runtime.start(WIDE, &format!("w-{number}"), 200).await.unwrap());
    }
    for run in runs {
        assert_eq!(run.result().await.unwrap(), 199 * 100);
    }
    assert_eq!(runtime.stats().attempts, 1_000);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn backlog_survives_a_restart() {
    const NEVER: Activity<u64, u64> = Activity::named("yielding");
    async fn never(_cx: ActivityContext, _: u64) -> Result<u64, ActivityError> {
        std::future::pending().await
    }
    let store = Store::new();
    let small = |builder: millrun::RuntimeBuilder| {
        builder.register(WIDE, wide).configure(|config| {
            config.task_queue_len_max = 4;
            config.activities_running_max = 2;
        })
    };
    let runtime = small(store.bare().register(NEVER, never)).start().await.unwrap();
    drop(runtime.start(WIDE, "w", 100).await.unwrap());
    drop(runtime);
    let runtime = small(store.bare().register(YIELDING, yielding))
        .start()
        .await
        .unwrap();
    assert_eq!(runtime.startup_report().activities, 100);
    assert_eq!(
        runtime.attach(WIDE, "w").unwrap().result().await.unwrap(),
        99 * 50
    );
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn instances_beyond_the_hot_bound_are_unloaded_and_come_back() {
    let store = Store::new();
    let builder = store.bare().register(DOUBLE, double).register(GATED, gated);
    let runtime = builder
        .configure(|config| config.hot_len_max = 3)
        .start()
        .await
        .unwrap();
    let mut runs = Vec::new();
    for number in 0..50 {
        runs.push(
            runtime
                .start(GATED, &format!("g-{number}"), number)
                .await
                .unwrap(),
        );
    }
    for run in &runs {
        run.signal(GO, 1).await.unwrap();
    }
    for (number, run) in (0..).zip(&runs) {
        assert_eq!(run.result().await.unwrap(), number * 2 + 1);
    }
    let stats = runtime.stats();
    assert!(stats.loads > 0, "{stats:?}");
    assert!(stats.hot <= 3 + 1, "{stats:?}");
    runtime.shutdown().await.unwrap();
}

const TEN_TIMES: Workflow<u64, u64> = Workflow::named("ten-times");

async fn ten_times(cx: WorkflowContext, mut number: u64) -> Result<u64, WorkflowError> {
    for _ in 0..10 {
        number = cx.call(DOUBLE, number).await?;
    }
    Ok(number)
}

/// Otherwise they would pile up in memory, be unloaded, and be read again for each step.
#[tokio::test]
async fn while_steps_end_faster_than_they_are_recorded_few_runs_begin() {
    const RUNS: u64 = 2_000;
    let builder = Runtime::volatile()
        .register(DOUBLE, double)
        .register(TEN_TIMES, ten_times);
    let runtime = builder
        .configure(|config| {
            config.sweep_len_max = 64;
            config.hot_len_max = 500;
        })
        .start()
        .await
        .unwrap();
    let results = join_all((0..RUNS).map(|number| {
        let runtime = runtime.clone();
        async move {
            let run = runtime.start(TEN_TIMES, &format!("t-{number}"), number).await;
            run.unwrap().result().await.unwrap()
        }
    }))
    .await;
    assert!((0..).zip(results).all(|(number, result)| result == number << 10));
    // None while the machine has nothing else to do; were all let in, it would be two for each run.
    let stats = runtime.stats();
    assert!(stats.loads < RUNS, "{stats:?}");
    runtime.shutdown().await.unwrap();
}

/// Each once to have its task made, and once more to hear how that went; a few are unloaded in between.
#[test]
fn runs_whose_tasks_wait_for_room_are_brought_back_when_there_is_some() {
    let world = SimHost::new(SimConfig::seeded(12));
    let builder = Runtime::volatile()
        .host(world.host())
        .register(YIELDING, yielding)
        .register(ONCE, once)
        .configure(|config| {
            config.hot_len_max = 1;
            config.task_queue_len_max = 4;
            config.activities_running_max = 2;
        });
    let script = async {
        let runtime = builder.start().await.unwrap();
        let results = join_all((0..400).map(|number| {
            let runtime = runtime.clone();
            async move {
                let run = runtime.start(ONCE, &format!("o-{number}"), number).await;
                run.unwrap().result().await.unwrap()
            }
        }))
        .await;
        assert!((0..).zip(results).all(|(number, result)| result == number));
        let stats = runtime.stats();
        assert!((400..=900).contains(&stats.loads), "{stats:?}");
        runtime.shutdown().await.unwrap();
    };
    world.block_on(script).unwrap();
}

#[tokio::test]
async fn results_beyond_the_cache_are_read_from_the_store() {
    let store = Store::new();
    let builder = store
        .open()
        .configure(|config| config.result_cache_bytes_max = 20);
    let runtime = builder.start().await.unwrap();
    let mut runs = Vec::new();
    for number in 0..30 {
        runs.push(
            runtime
                .start(QUADRUPLE, &format!("q-{number}"), number)
                .await
                .unwrap(),
        );
    }
    for _ in 0..2 {
        for (number, run) in (0..).zip(&runs) {
            assert_eq!(run.result().await.unwrap(), number * 4);
            let by_id = runtime.attach(QUADRUPLE, &format!("q-{number}")).unwrap();
            assert_eq!(by_id.result().await.unwrap(), number * 4);
        }
    }
    runtime.shutdown().await.unwrap();
}

/// A history that is too long to be read at once ends with the result all the same.
#[tokio::test]
async fn a_result_is_told_however_long_the_history_is() {
    let store = Store::new();
    let builder = store.open().configure(|config| {
        config.result_cache_len_max = 1;
        config.journal.history_bytes_max = 1;
    });
    let runtime = builder.start().await.unwrap();
    let mut runs = Vec::new();
    for number in 0..5 {
        let run = runtime.start(QUADRUPLE, &format!("q-{number}"), number).await;
        let run = run.unwrap();
        assert_eq!(run.result().await.unwrap(), number * 4);
        runs.push(run);
    }
    for (number, run) in (0..).zip(&runs) {
        assert_eq!(run.result().await.unwrap(), number * 4);
        let by_id = runtime.attach(QUADRUPLE, &format!("q-{number}")).unwrap();
        assert_eq!(by_id.result().await.unwrap(), number * 4);
    }
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_result_that_retention_has_dropped_is_said_to_have_expired_and_its_id_is_free() {
    let store = Store::new();
    let builder = store.open().configure(|config| {
        config.result_cache_len_max = 1;
        config.journal.retention.len_max = 2;
    });
    let runtime = builder.start().await.unwrap();
    for number in 0..10 {
        let run = runtime.start(QUADRUPLE, &format!("q-{number}"), number).await;
        assert_eq!(run.unwrap().result().await.unwrap(), number * 4);
    }
    let early = runtime.attach(QUADRUPLE, "q-3").unwrap();
    let expired = |end| matches!(end, Err(ResultError::Run(RunError::Expired)));
    assert!(expired(early.result().await));
    let late = runtime.attach(QUADRUPLE, "q-9").unwrap();
    assert_eq!(late.result().await.unwrap(), 36);
    let never = runtime.attach(QUADRUPLE, "q-77").unwrap();
    let end = never.result().await;
    assert!(
        matches!(end, Err(ResultError::Run(RunError::NotFound))),
        "{end:?}"
    );
    let again = runtime.start(QUADRUPLE, "q-3", 100).await.unwrap();
    assert_eq!(again.result().await.unwrap(), 400);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn more_live_instances_than_allowed_are_refused() {
    let store = Store::new();
    let builder = store.bare().register(DOUBLE, double).register(GATED, gated);
    let runtime = builder
        .configure(|config| config.live_len_max = 2)
        .start()
        .await
        .unwrap();
    let first = runtime.start(GATED, "a", 1).await.unwrap();
    drop(runtime.start(GATED, "b", 1).await.unwrap());
    let refused = runtime.start(GATED, "c", 1).await.unwrap_err();
    assert!(matches!(refused, StartError::TooManyLive { len_max: 2 }));
    assert!(refused.is_retryable());
    first.signal(GO, 1).await.unwrap();
    first.result().await.unwrap();
    drop(runtime.start(GATED, "c", 1).await.unwrap());
    runtime.shutdown().await.unwrap();
}
