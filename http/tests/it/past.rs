//! What a console keeps of the last minutes.

use std::time::Duration;

use axum::Router;
use millrun::{Runtime, Timestamp};
use millrun_http::{Access, Console, PAST_EVERY, PAST_LEN_MAX, router};
use millrun_testkit::{SimConfig, SimHost};
use serde_json::Value;

use crate::support::{CHARGE, ORDER, PAID, charge, get, order};

async fn samples(app: &Router, query: &str) -> Vec<Value> {
    let answer = get(app, &format!("/v1/past{query}")).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let told = answer.json();
    assert_eq!(told["every_us"], 5_000_000);
    told["samples"].as_array().unwrap().clone()
}

/// Runs a script in a world of its own, over a runtime in it.
fn within(script: impl AsyncFnOnce(&SimHost, Runtime)) {
    let world = SimHost::new(SimConfig::seeded(3));
    let builder = Runtime::volatile()
        .host(world.host())
        .register(CHARGE, charge)
        .register(ORDER, order);
    let runtime = world.block_on(builder.start()).unwrap().unwrap();
    world.block_on(script(&world, runtime)).unwrap();
}

async fn pass(world: &SimHost, time: Duration) {
    world.host().sleep_until(world.now() + time).await;
}

#[test]
fn the_past_has_what_was_and_how_long_it_took() {
    within(async |world, runtime| {
        let app = Console::new(&runtime, Access::read_only()).keep_past().router();
        let began_at = world.now();
        pass(world, Duration::from_millis(100)).await;
        let slow = runtime.start(ORDER, "slow", 5).await.unwrap();
        runtime.start(ORDER, "left", 5).await.unwrap();
        pass(world, Duration::from_secs(3)).await;
        slow.signal(PAID, 1).await.unwrap();
        slow.result().await.unwrap();
        pass(world, 2 * PAST_EVERY).await;
        let all = samples(&app, "").await;
        assert_eq!(all.len(), 3, "{all:?}");
        let first = all[0]["at_us"].as_u64().unwrap();
        assert!(first <= began_at.as_micros() + 1_000);
        for (number, sample) in all.iter().enumerate() {
            let at = Timestamp::from_micros(first) + PAST_EVERY * u32::try_from(number).unwrap();
            assert_eq!(sample["at_us"], at.as_micros());
        }
        assert_eq!((&all[0]["started"], &all[0]["live"]), (&0.into(), &0.into()));
        let second = &all[1];
        assert_eq!((&second["started"], &second["finished"]), (&2.into(), &1.into()));
        assert_eq!(second["live"], 1);
        // One run of three seconds, between 2.5 and 5.
        assert_eq!(second["run_times"]["len"], 1);
        assert_eq!(second["run_times"]["p50_us"], 3_750_000);
        assert_eq!(second["attempt_times"]["len"], 2);
        assert_eq!(second["wait_times"]["len"], 2);
        assert!(second["commit_times"]["len"].as_u64() > Some(1));
        // Nothing has ended since.
        assert_eq!(all[2]["run_times"]["len"], 0);
        assert_eq!(all[2]["run_times"]["p99_us"], Value::Null);
        assert_eq!(all[2]["finished"], 1);
        let query = format!("?after={}", second["at_us"]);
        assert_eq!(samples(&app, &query).await, all[2..]);
        assert_eq!(get(&app, "/v1/past?after=x").await.code(), "invalid-query");
        runtime.shutdown().await.unwrap();
    });
}

#[test]
fn the_past_is_15_minutes_long() {
    within(async |world, runtime| {
        let app = Console::new(&runtime, Access::read_only()).keep_past().router();
        pass(world, Duration::from_secs(1_000)).await;
        let all = samples(&app, "").await;
        assert_eq!(all.len(), PAST_LEN_MAX);
        let first = Timestamp::from_micros(all[0]["at_us"].as_u64().unwrap());
        let span = world.now().saturating_since(first);
        let kept = PAST_EVERY * u32::try_from(PAST_LEN_MAX).unwrap();
        assert!(kept - PAST_EVERY <= span && span <= kept, "{span:?}");
        runtime.shutdown().await.unwrap();
    });
}

#[test]
fn a_console_keeps_nothing_and_has_nothing_recorded_unless_it_is_asked_to() {
    within(async |world, runtime| {
        let app = router(&runtime, Access::read_only());
        let order = runtime.start(ORDER, "one", 5).await.unwrap();
        order.signal(PAID, 1).await.unwrap();
        order.result().await.unwrap();
        pass(world, 4 * PAST_EVERY).await;
        assert!(samples(&app, "").await.is_empty());
        assert!(runtime.durations().runs.is_empty());
        runtime.shutdown().await.unwrap();
    });
}

#[test]
fn keeping_the_past_keeps_no_runtime_alive_and_ends_with_the_console() {
    within(async |world, runtime| {
        let console = Console::new(&runtime, Access::read_only()).keep_past();
        let app = console.router();
        drop(console);
        pass(world, PAST_EVERY).await;
        assert_eq!(samples(&app, "").await.len(), 2);
        let weak = runtime.downgrade();
        drop(app);
        drop(runtime);
        assert!(weak.upgrade().is_none());
    });
}
