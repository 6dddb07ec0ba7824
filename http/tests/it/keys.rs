//! A request that is sent again with its key has no second effect.

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use futures_util::future::join_all;
use millrun::{Runtime, Update, Workflow, WorkflowContext, WorkflowError};
use millrun_http::{Access, router};
use millrun_testkit::{SimConfig, SimHost};
use serde_json::{Value, json};

use crate::support::{Answer, send};

const DOUBLE: Workflow<u64, u64> = Workflow::named("double");
const SUM: Workflow<u64, u64> = Workflow::named("sum");
const ADD: Update<u64, u64, u64> = Update::named("add");

async fn double(_cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    Ok(number * 2)
}

async fn sum(cx: WorkflowContext, first: u64) -> Result<u64, WorkflowError> {
    let sum = cx.state(first);
    sum.until(|sum| *sum > 1_000).await?;
    Ok(sum.read(|sum| *sum))
}

async fn runtime() -> Runtime {
    let adding = SUM.update(ADD).change(|sum, number| {
        *sum += number;
        *sum
    });
    let builder = Runtime::volatile().register(DOUBLE, double);
    builder.register(adding, sum).start().await.unwrap()
}

async fn post(app: &Router, path: &str, key: Option<&str>, body: Value) -> Answer {
    let mut request = Request::post(path).header("content-type", "application/json");
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    send(app, request.body(Body::from(body.to_string())).unwrap()).await
}

#[tokio::test]
async fn a_key_sent_a_hundred_times_at_once_starts_one_run_and_all_are_told_it() {
    let runtime = runtime().await;
    let app = router(&runtime, Access::operator());
    let mut starts = 0;
    for (path, body) in [
        ("/v1/start", json!({"workflow": "double", "input": 4})),
        (
            "/v1/start",
            json!({"id": "by-body", "workflow": "double", "input": 4, "on_conflict": "restart-finished"}),
        ),
        (
            "/v1/instances/by-path/start",
            json!({"workflow": "double", "input": 4, "on_conflict": "refuse"}),
        ),
        (
            "/v1/instances/by-path-too/start",
            json!({"workflow": "double", "input": 4, "on_conflict": "restart-finished"}),
        ),
    ] {
        starts += 1;
        let key = format!("key-{starts}");
        let all = join_all((0..100).map(|_| post(&app, path, Some(&key), body.clone()))).await;
        let late = post(&app, path, Some(&format!("\"{key}\"")), body.clone()).await;
        assert_eq!(late.status, StatusCode::OK, "{}", late.text);
        assert!(all.iter().all(|answer| answer.text == late.text), "{path}");
        assert_eq!(runtime.stats().started, starts, "{path}");
        let id = late.json()["id"].as_str().unwrap().to_owned();
        assert_eq!(
            id == key,
            body["id"].is_null() && path == "/v1/start",
            "the id wins"
        );
        assert_eq!(runtime.attach(DOUBLE, &id).unwrap().result().await.unwrap(), 8);
    }
    // Without its key, the same request is a new one.
    let body = json!({"id": "by-body", "workflow": "double", "input": 4, "on_conflict": "restart-finished"});
    assert_eq!(post(&app, "/v1/start", None, body).await.status, StatusCode::OK);
    assert_eq!(runtime.stats().started, starts + 1);
}

#[tokio::test]
async fn a_key_belongs_to_one_request_and_one_that_was_refused_is_free() {
    let runtime = runtime().await;
    let app = router(&runtime, Access::operator());
    let body = |input| json!({"workflow": "double", "input": input});
    for (path, key, body, code) in [
        ("/v1/start", None, body(1), "invalid-body"),
        (
            "/v1/start",
            Some("one"),
            json!({"workflow": "double", "input": 1, "on_conflict": "terminate-running"}),
            "invalid-body",
        ),
        ("/v1/start", Some("a b"), body(1), "invalid-key"),
        ("/v1/start", Some(""), body(1), "invalid-key"),
        (
            "/v1/instances/i/start",
            Some("k"),
            json!({"workflow": "", "input": 1}),
            "name",
        ),
        (
            "/v1/instances/i/start",
            Some("k"),
            json!({"workflow": "double", "input": 1, "also": 1}),
            "invalid-body",
        ),
    ] {
        assert_eq!(post(&app, path, key, body).await.code(), code, "{path} {key:?}");
    }
    assert_eq!(
        post(&app, "/v1/instances/i/start", Some("k"), body(1))
            .await
            .status,
        StatusCode::OK
    );
    for (path, input) in [("/v1/instances/i/start", 2), ("/v1/instances/j/start", 1)] {
        let reused = post(&app, path, Some("k"), body(input)).await;
        assert_eq!(
            (reused.status.as_u16(), reused.code().as_str()),
            (422, "key-reused")
        );
    }
    assert_eq!(runtime.stats().started, 1);
}

#[tokio::test]
async fn the_key_of_an_update_is_its_request_unless_that_is_named() {
    let runtime = runtime().await;
    let app = router(&runtime, Access::operator());
    let run = runtime.start(SUM, "s", 1).await.unwrap();
    let path = "/v1/instances/s/update";
    let all =
        join_all((0..100).map(|_| post(&app, path, Some("k"), json!({"name": "add", "input": 2})))).await;
    assert!(all.iter().all(|answer| answer.json()["answer"]["value"] == 3));
    assert_eq!(run.update_as(ADD, "k", 2).await.unwrap(), 3, "it is the request");
    let named = json!({"name": "add", "request": "r", "input": 4});
    for key in [Some("k"), Some("other"), None] {
        assert_eq!(
            post(&app, path, key, named.clone()).await.json()["answer"]["value"],
            7
        );
    }
    assert_eq!(
        post(&app, path, None, json!({"name": "add", "input": 2}))
            .await
            .code(),
        "invalid-body"
    );
}

/// A client that gives up and asks again is the one whom keys are for: what it asked for first goes on.
#[test]
fn a_start_whose_client_has_gone_is_finished_and_told_when_it_comes_again() {
    for seed in 1..=20 {
        let world = SimHost::new(SimConfig::seeded(seed));
        let builder = Runtime::volatile().host(world.host()).register(DOUBLE, double);
        let runtime = world.block_on(builder.start()).unwrap().unwrap();
        let app = router(&runtime, Access::operator());
        let body = || json!({"workflow": "double", "input": 4, "on_conflict": "restart-finished"});
        let asks = post(&app, "/v1/instances/i/start", Some("k"), body());
        let gives_up = std::future::ready(());
        world
            .block_on(async {
                futures_util::future::select(std::pin::pin!(asks), gives_up).await;
            })
            .unwrap();
        let run = || runtime.attach(DOUBLE, "i").unwrap();
        world
            .block_on(async {
                // It has begun though nobody waits for it.
                while run().result().await.is_err() {
                    let soon = runtime.host().now() + std::time::Duration::from_millis(1);
                    runtime.host().sleep_until(soon).await;
                }
                let told = post(&app, "/v1/instances/i/start", Some("k"), body()).await;
                assert_eq!(told.status, StatusCode::OK, "seed {seed}: {}", told.text);
                assert_eq!(
                    told.json()["run"],
                    run().describe().await.unwrap().run.to_string()
                );
                assert_eq!(runtime.stats().started, 1, "seed {seed}");
            })
            .unwrap();
    }
}
