//! A result that is waited for, by the clock of the runtime's host.

use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use millrun::{Runtime, RuntimeBuilder, Signal, Workflow, WorkflowContext, WorkflowError};
use millrun_http::{Access, router};
use millrun_testkit::{SimConfig, SimHost, SimStop};

use crate::support::get;

const WAIT: Workflow<u64, u64> = Workflow::named("wait");
const PASS: Workflow<u64, u64> = Workflow::named("pass");
const END: Signal<u64> = Signal::named("end");

async fn wait(cx: WorkflowContext, first: u64) -> Result<u64, WorkflowError> {
    Ok(first + cx.receive(END).await?)
}

/// Goes on as another run until none is left, and then waits.
async fn pass(cx: WorkflowContext, left: u64) -> Result<u64, WorkflowError> {
    match left {
        0 => Ok(cx.receive(END).await?),
        left => Ok(cx.continue_as_new(PASS, left - 1).await?),
    }
}

fn code(builder: RuntimeBuilder) -> RuntimeBuilder {
    builder.register(WAIT, wait).register(PASS, pass)
}

/// A runtime in a world of its own, and the router over it.
fn world() -> (SimHost, Runtime, Router) {
    let world = SimHost::new(SimConfig::seeded(7));
    let builder = code(Runtime::volatile()).host(world.host());
    let runtime = world.block_on(builder.start()).unwrap().unwrap();
    let app = router(&runtime, Access::operator());
    (world, runtime, app)
}

#[test]
fn a_result_is_told_when_it_is_there_or_when_the_time_is_over() {
    let (world, runtime, app) = world();
    world
        .block_on(async {
            let run = runtime.start(WAIT, "w", 1).await.unwrap();
            let before = world.now();
            let told = get(&app, "/v1/instances/w/result?wait_ms=20000").await.json();
            assert_eq!(told["outcome"], "running");
            assert_eq!(told["run"], run.run_id().unwrap().to_string());
            assert_eq!(world.now().saturating_since(before), Duration::from_secs(20));

            let by_run = format!("/v1/runs/{}/result?wait_ms=60000", run.run_id().unwrap());
            let end = async {
                runtime
                    .host()
                    .sleep_until(world.now() + Duration::from_secs(5))
                    .await;
                run.signal(END, 41).await.unwrap();
            };
            let before = world.now();
            let (by_id, by_run, ()) = futures_util::join!(
                get(&app, "/v1/instances/w/result?wait_ms=60000"),
                get(&app, &by_run),
                end
            );
            for told in [by_id.json(), by_run.json()] {
                assert_eq!(told["outcome"], "completed", "{told}");
                assert_eq!(told["result"]["value"], 42);
            }
            assert_eq!(world.now().saturating_since(before), Duration::from_secs(5));
            let told = get(&app, "/v1/instances/w/result?wait_ms=60000").await.json();
            assert_eq!(
                told["outcome"], "completed",
                "it has ended, and is not waited for"
            );
        })
        .unwrap();
}

#[test]
fn a_caller_that_goes_away_leaves_nothing_that_waits() {
    let (world, runtime, app) = world();
    let run = world
        .block_on(async { runtime.start(WAIT, "w", 1).await.unwrap() })
        .unwrap();
    let running = world.running();
    for _ in 0..3 {
        world
            .block_on(async {
                let polls = get(&app, "/v1/instances/w/result?wait_ms=60000");
                let leaves = runtime.host().sleep_until(world.now() + Duration::from_secs(1));
                futures_util::future::select(std::pin::pin!(polls), leaves).await;
            })
            .unwrap();
    }
    assert_eq!(world.running(), running);
    let before = world.now();
    assert_eq!(world.run_until_idle(), SimStop::Idle);
    assert_eq!(world.now(), before, "nothing waits for a time any more");
    world.block_on(run.signal(END, 1)).unwrap().unwrap();
}

#[tokio::test]
async fn a_run_that_is_parked_is_told_at_once_and_one_that_went_on_is_followed() {
    let runtime = code(Runtime::volatile()).start().await.unwrap();
    let app = router(&runtime, Access::operator());
    let first = runtime.start(PASS, "p", 3).await.unwrap();
    let by_run = format!("/v1/runs/{}/result?wait_ms=60000", first.run_id().unwrap());
    let told = get(&app, &format!("/v1/runs/{}/result", first.run_id().unwrap()))
        .await
        .json();
    assert_eq!(told["outcome"], "running", "{told}");
    first.pause("lunch").await.unwrap();
    for path in [by_run.as_str(), "/v1/instances/p/result?wait_ms=60000"] {
        let told = get(&app, path).await.json();
        assert_eq!(
            (&told["outcome"], &told["reason"]["kind"]),
            (&"parked".into(), &"paused".into())
        );
    }
    first.resume().await.unwrap();
    let (told, signalled) = tokio::join!(get(&app, &by_run), first.signal(END, 9));
    signalled.unwrap();
    assert_eq!(told.json()["result"]["value"], 9, "{}", told.text);

    let none = format!("/v1/runs/{}/result", "0".repeat(32));
    assert_eq!(get(&app, &none).await.code(), "not-found");
    assert_eq!(
        get(&app, "/v1/instances/p/result?wait_ms=60001").await.code(),
        "invalid-query"
    );
}

#[tokio::test]
async fn a_caller_that_waits_is_told_that_the_runtime_stops() {
    let runtime = code(Runtime::volatile()).start().await.unwrap();
    let app = router(&runtime, Access::read_only());
    runtime.start(WAIT, "w", 1).await.unwrap();
    let stopping = async {
        tokio::task::yield_now().await;
        runtime.shutdown().await.unwrap();
    };
    let (told, ()) = tokio::join!(get(&app, "/v1/instances/w/result?wait_ms=60000"), stopping);
    assert_eq!(
        (told.status, told.code().as_str()),
        (StatusCode::SERVICE_UNAVAILABLE, "stopped")
    );
}
