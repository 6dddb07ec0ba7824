//! The world for applications: mocks, virtual time, restarts and crashes, with a registry that knows nothing of it.

mod child_handles;
mod crashes;
mod faults;
mod looking;
mod mocks;
mod seeds;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use millrun::{
    Activity, ActivityContext, ActivityError, Retry, RuntimeBuilder, Signal, Workflow, WorkflowContext,
    WorkflowError,
};
use millrun_testkit::{World, WorldConfig};

pub(crate) const CHARGE: Activity<u64, String> = Activity::named("charge");
pub(crate) const REFUND: Activity<String, ()> = Activity::named("refund");
pub(crate) const SHIP: Activity<String, String> = Activity::named("ship");
pub(crate) const CONFIRM: Signal<bool> = Signal::named("confirm");
pub(crate) const ORDER: Workflow<u64, String> = Workflow::named("order");
pub(crate) const RENT: Workflow<u64, u64> = Workflow::named("rent");

const DAY: Duration = Duration::from_secs(86_400);

/// Charges, waits for a day at most for the confirmation, and ships or gives the money back.
async fn order(cx: WorkflowContext, cents: u64) -> Result<String, WorkflowError> {
    let retry = Retry::exponential().first_pause(Duration::from_secs(1));
    let receipt = cx.call(CHARGE, cents).retry(retry).await?;
    if cx.receive(CONFIRM).await? {
        return Ok(cx.call(SHIP, receipt).await?);
    }
    cx.call(REFUND, receipt.clone()).await?;
    Ok(format!("{receipt}, given back"))
}

/// Twelve months, each with a charge.
async fn rent(cx: WorkflowContext, cents: u64) -> Result<u64, WorkflowError> {
    let mut months = 0;
    for _ in 0..12 {
        cx.sleep(30 * DAY).await?;
        cx.call(CHARGE, cents).await?;
        months += 1;
    }
    Ok(months)
}

/// The program's own registration: real activities, which no test may call.
pub(crate) fn registered(builder: RuntimeBuilder) -> RuntimeBuilder {
    builder
        .register(ORDER, order)
        .register(RENT, rent)
        .register(
            CHARGE,
            async |_cx: ActivityContext, _cents: u64| -> Result<String, ActivityError> {
                panic!("this would cost money")
            },
        )
        .register(REFUND, async |_cx: ActivityContext, _receipt: String| Ok(()))
}

/// The message with which something fails.
pub(crate) fn failure(code: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(code)).expect_err("it should fail");
    match panic.downcast::<String>() {
        Ok(message) => *message,
        Err(panic) => (*panic.downcast::<&str>().unwrap()).to_owned(),
    }
}

#[test]
fn a_workflow_function_is_tested_in_five_lines() {
    let world = World::new(|builder| builder.register(RENT, rent));
    world.mock(CHARGE).returns("paid".to_owned());
    assert_eq!(world.result_of(RENT, 65_000).unwrap(), 12);
    assert_eq!(world.calls(CHARGE), [65_000; 12]);
}

#[test]
fn a_year_passes_in_virtual_time_alone() {
    let world = World::new(registered);
    world.mock(CHARGE).returns("paid".to_owned());
    let began = world.now();
    let run = world.live(async |runtime| runtime.start(RENT, "flat-3", 1).await.unwrap());
    world.advance(100 * DAY);
    assert_eq!(world.now().saturating_since(began), 100 * DAY);
    assert_eq!(world.calls(CHARGE).len(), 3);
    world.advance(265 * DAY);
    assert_eq!(world.live(async |_| run.result().await.unwrap()), 12);
}

#[test]
fn the_same_seed_gives_the_same_trace_and_another_seed_another() {
    let play = |seed| {
        let world = World::seeded(seed, registered);
        world
            .mock(CHARGE)
            .fails(ActivityError::retryable("closed"))
            .returns("paid".to_owned());
        world.live(async |runtime| {
            let one = runtime.start(RENT, "flat-1", 1).await.unwrap();
            let other = runtime.start(RENT, "flat-2", 2).await.unwrap();
            (one.result().await.unwrap(), other.result().await.unwrap())
        });
        world.crash();
        world.result_of(RENT, 3).unwrap();
        world.trace()
    };
    assert_eq!(play(3), play(3));
    assert_ne!(play(3), play(4));
}

#[test]
fn a_restart_goes_on_where_the_run_was() {
    for is_killed in [true, false] {
        let world = World::new(registered);
        world.mock(CHARGE).returns("receipt".to_owned());
        world.mock(SHIP).with(|receipt| Ok(format!("{receipt}, sent")));
        world.live(async |runtime| {
            runtime.start(ORDER, "o-1", 42).await.unwrap();
        });
        world.assert_awaits("o-1", CONFIRM);
        if is_killed {
            world.crash();
        } else {
            world.restart();
        }
        assert_eq!(world.runtime().startup_report().live, 1);
        let told = world.live(async |runtime| {
            let run = runtime.attach(ORDER, "o-1").unwrap();
            run.signal(CONFIRM, true).await.unwrap();
            run.result().await.unwrap()
        });
        assert_eq!(told, "receipt, sent");
        // What was paid for before was not paid for again.
        assert_eq!(world.attempts(CHARGE).len(), 1);
    }
}

/// What is queued is durable in a turn of its own, which has not come when the process is killed.
#[test]
fn what_was_not_acknowledged_may_be_lost_and_the_rest_may_not() {
    let mut kept = 0;
    for seed in 1..=40 {
        let world = World::seeded(seed, registered);
        world.mock(CHARGE).returns("receipt".to_owned());
        let runtime = world.runtime();
        world.live(async |runtime| drop(runtime.start(ORDER, "told", 1).await.unwrap()));
        // The client asks, and goes away before it is told.
        let host = runtime.host().clone();
        let asked = runtime.clone();
        let asking = async move { drop(asked.start(ORDER, "asked", 1).await) };
        drop(host.spawn("client", Box::pin(asking)));
        world.live(async |_| {
            for _ in 0..seed {
                tokio::task::yield_now().await;
            }
        });
        drop(runtime);
        world.crash();
        let found = world.live(async |runtime| runtime.list(None, 10).await.unwrap());
        let found: Vec<_> = found.iter().map(|run| run.id.as_str()).collect();
        assert!(found.contains(&"told"), "seed {seed}: {found:?}");
        kept += usize::from(found.contains(&"asked"));
    }
    assert!((1..40).contains(&kept), "{kept} of 40 were kept");
}

#[test]
fn a_world_that_does_not_go_on_says_what_is_waited_for() {
    let world = World::new(registered);
    world.mock(CHARGE).returns("receipt".to_owned());
    let message = failure(|| drop(world.result_of(ORDER, 42)));
    assert!(message.contains("nothing is left to run"), "{message}");
    assert!(
        message.contains("order-1 (order)") && message.contains("signal confirm"),
        "{message}"
    );

    // An activity that nobody has registered or mocked.
    let world = World::new(registered);
    world.mock(CHARGE).returns("receipt".to_owned());
    let message = failure(|| {
        world.live(async |runtime| {
            let run = runtime.start(ORDER, "o-1", 42).await.unwrap();
            run.signal(CONFIRM, true).await.unwrap();
            run.result().await.unwrap()
        });
    });
    assert!(
        message.contains("ship") && message.contains("not registered"),
        "{message}"
    );
}

#[test]
fn a_loop_without_an_end_spends_the_steps_and_fails() {
    let mut config = WorldConfig::seeded(1);
    config.steps_max = 100;
    let world = World::with(config, registered);
    world
        .mock(CHARGE)
        .fails(ActivityError::retryable("closed for ever"));
    let message = failure(|| drop(world.result_of(RENT, 1)));
    assert!(message.contains("the steps are spent"), "{message}");
}

#[test]
fn the_world_is_not_asked_to_go_on_from_within() {
    let world = World::new(registered);
    let message = failure(|| world.live(async |_| drop(world.history("o-1"))));
    assert!(message.contains("within `live`"), "{message}");
    // It goes on behind that.
    let message = failure(|| drop(world.mock(CHARGE)));
    assert!(
        message.contains("charge is mocked when the world has opened"),
        "{message}"
    );
}

/// The registry's settings hold; the world only gives host, store and mocks.
#[test]
fn the_registry_configures_the_runtime() {
    let world = World::new(|builder| {
        registered(builder).configure(|config| {
            config.shards_len = 3;
            config.journal.retention.len_max = 2;
        })
    });
    world.mock(CHARGE).returns("paid".to_owned());
    let parts = world.runtime().parts();
    assert_eq!(
        parts.iter().filter(|part| part.name.starts_with("shard")).count(),
        3
    );
    for cents in 1..5 {
        world.result_of(RENT, cents).unwrap();
    }
    let retained = world.live(async |runtime| runtime.list_finished(None, 10).await.unwrap());
    assert!(
        retained.len() <= 2,
        "the store is configured as well: {}",
        retained.len()
    );
}

/// What was trimmed would be missing where it is looked for.
#[test]
fn a_history_is_whole_also_where_the_run_has_checkpoints() {
    const TALLY: Workflow<u64, u64> = Workflow::named("tally");
    async fn tally(cx: WorkflowContext, rounds: u64) -> Result<u64, WorkflowError> {
        let done: u64 = cx.checkpointed().transpose()?.unwrap_or(0);
        if done == rounds {
            return Ok(done);
        }
        cx.call(CHARGE, done).await?;
        Ok(cx.checkpoint(&(done + 1)).await?)
    }
    let world = World::new(|builder| registered(builder).register(TALLY, tally));
    world.mock(CHARGE).returns("paid".to_owned());
    let run = world.live(async |runtime| runtime.start(TALLY, "t", 4).await.unwrap());
    assert_eq!(world.live(async |_| run.result().await.unwrap()), 4);
    let labels = world.event_labels("t");
    assert_eq!(labels[0], "Started");
    let calls = labels
        .iter()
        .filter(|label| **label == "ActivityScheduled")
        .count();
    assert_eq!(calls, 4, "{labels:?}");
}

#[test]
fn more_attempts_than_are_recorded_fail_the_test() {
    let year = |attempts_len_max| {
        let mut config = WorldConfig::seeded(1);
        config.attempts_len_max = attempts_len_max;
        let world = World::with(config, registered);
        world.mock(CHARGE).returns("paid".to_owned());
        world.result_of(RENT, 1).unwrap()
    };
    assert_eq!(year(12), 12);
    let message = failure(|| assert_eq!(year(11), 12));
    assert!(message.contains("attempts_len_max"), "{message}");
}
