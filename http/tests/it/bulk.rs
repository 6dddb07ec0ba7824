//! One thing done to all runs that a filter finds.

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use futures_util::future::join_all;
use millrun::operating::{RunSearch, RunStatus};
use millrun::{Query, Runtime, Signal, Workflow, WorkflowContext, WorkflowError};
use millrun_http::{Access, router};
use serde_json::{Value, json};

use crate::support::{Answer, get, send};

const TALLY: Workflow<(), u64> = Workflow::named("tally");
const MORE: Signal<u64> = Signal::named("more");
const SUM: Query<u64, (), u64> = Query::named("sum");

/// Adds up what it is sent, until it is cancelled.
async fn tally(cx: WorkflowContext, (): ()) -> Result<u64, WorkflowError> {
    let sum = cx.state(0);
    loop {
        let more = cx.receive(MORE).await?;
        sum.change(|sum| *sum += more);
    }
}

async fn runtime() -> Runtime {
    let tallies = TALLY.signal(MORE).query(SUM, |sum, ()| *sum);
    let runtime = Runtime::volatile()
        .register(tallies, tally)
        .start()
        .await
        .unwrap();
    for number in 0..7 {
        drop(runtime.start(TALLY, &format!("i-{number}"), ()).await.unwrap());
    }
    runtime
}

async fn sum(runtime: &Runtime, number: u64) -> u64 {
    let tally = runtime.attach(TALLY, &format!("i-{number}")).unwrap();
    tally.query(SUM, ()).await.unwrap()
}

async fn post(app: &Router, path: &str, key: Option<&str>, body: &Value) -> Answer {
    let mut request = Request::post(path).header("content-type", "application/json");
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    send(app, request.body(Body::from(body.to_string())).unwrap()).await
}

/// What is told of a bulk that has ended.
async fn ended(app: &Router, runtime: &Runtime, name: &str) -> Value {
    drop(runtime.attach_bulk(name).unwrap().result().await);
    get(app, &format!("/v1/bulk/{name}")).await.json()
}

#[tokio::test]
async fn a_bulk_is_counted_started_and_told_with_its_progress() {
    let runtime = runtime().await;
    let app = router(&runtime, Access::operator());
    let mut body = json!({
        "action": "signal", "signal": "more", "value": 5, "per_second": 1_000,
        "filter": {"workflow": "tally", "status": ["running"], "id_prefix": "i-", "started_from_us": 1},
        "dry_run": true,
    });
    let counted = post(&app, "/v1/bulk", None, &body).await.json();
    assert_eq!(
        (&counted["selected"], &counted["reached"]),
        (&7.into(), &7.into())
    );
    assert!(
        get(&app, "/v1/bulk").await.json()["bulks"]
            .as_array()
            .unwrap()
            .is_empty()
    );
    body["dry_run"] = false.into();
    assert_eq!(
        post(&app, "/v1/bulk", None, &body).await.code(),
        "invalid-body",
        "no name"
    );
    body["name"] = "a bulk/1".into();
    let started = post(&app, "/v1/bulk", None, &body).await.json();
    assert_eq!(started["bulk"], "bulk/a%20bulk%2F1");
    runtime.attach_bulk("a bulk/1").unwrap().result().await.unwrap();
    let told = get(&app, &format!("/v1/{}", started["bulk"].as_str().unwrap()))
        .await
        .json();
    assert_eq!(
        (&told["status"], &told["action"]),
        (&"completed".into(), &"signal".into())
    );
    assert_eq!((&told["about"], &told["ids"]), (&"more".into(), &0.into()));
    assert_eq!((&told["selected"], &told["done"]), (&7.into(), &7.into()));
    assert_eq!(told["filter"]["status"], json!(["running"]));
    assert_eq!(told["filter"]["started_from_us"], 1);
    assert_eq!(told["filter"]["ended_until_us"], Value::Null);
    let listed = get(&app, "/v1/bulk?limit=10").await.json();
    assert_eq!(listed["bulks"][0]["name"], "a bulk/1");
    for number in 0..7 {
        assert_eq!(sum(&runtime, number).await, 5);
    }

    // The same again is the same, another under its name is refused.
    assert_eq!(post(&app, "/v1/bulk", None, &body).await.json(), started);
    body["value"] = 6.into();
    assert_eq!(
        post(&app, "/v1/bulk", None, &body).await.code(),
        "key-reused",
        "another value"
    );
    body["value"] = 5.into();
    body["filter"]["id_prefix"] = "i-1".into();
    assert_eq!(post(&app, "/v1/bulk", None, &body).await.code(), "key-reused");

    let unknown =
        json!({"action": "signal", "signal": "more", "value": "x", "name": "wrong", "ids": ["i-0", "i-99"]});
    assert_eq!(
        post(&app, "/v1/bulk", None, &unknown).await.status,
        StatusCode::OK
    );
    let told = ended(&app, &runtime, "wrong").await;
    assert_eq!((&told["failed"], &told["passed_over"]), (&1.into(), &1.into()));
    assert_eq!(told["failures"][0]["id"], "i-0");
}

#[tokio::test]
async fn one_key_a_hundred_times_at_once_is_one_bulk() {
    let runtime = runtime().await;
    let app = router(&runtime, Access::operator());
    let body = json!({"action": "signal", "signal": "more", "value": 1, "filter": {}, "per_second": 1_000});
    let answers = join_all((0..100).map(|_| post(&app, "/v1/bulk", Some("closing"), &body))).await;
    for answer in &answers {
        assert_eq!(answer.json()["name"], "closing", "{}", answer.text);
    }
    assert_eq!(ended(&app, &runtime, "closing").await["done"], 7);
    assert_eq!(runtime.bulks(None, 100).await.unwrap().bulks.len(), 1);
    // A console that knows nothing of the key, as that of a program that was started again.
    let other = router(&runtime, Access::operator());
    assert_eq!(
        post(&other, "/v1/bulk", Some("closing"), &body).await.json(),
        answers[0].json()
    );
    let changed = json!({"action": "resume", "filter": {}});
    for app in [&app, &other] {
        assert_eq!(
            post(app, "/v1/bulk", Some("closing"), &changed).await.code(),
            "key-reused"
        );
    }
    for number in 0..7 {
        assert_eq!(sum(&runtime, number).await, 1, "once");
    }
}

#[tokio::test]
async fn a_bulk_is_stopped_and_what_it_has_done_stays_done() {
    let runtime = runtime().await;
    let app = router(&runtime, Access::operator());
    let body = json!({"action": "cancel", "reason": "enough", "filter": {}, "per_second": 1, "name": "slow"});
    assert_eq!(post(&app, "/v1/bulk", None, &body).await.status, StatusCode::OK);
    let stop = json!({"reason": "changed my mind"});
    assert_eq!(
        post(&app, "/v1/bulk/slow/stop", None, &stop).await.status,
        StatusCode::OK
    );
    let told = ended(&app, &runtime, "slow").await;
    assert_eq!(told["status"], "cancelled");
    let running = RunSearch::new().status(RunStatus::Running);
    let left = runtime.find(&running, None, 100).await.unwrap().runs.len() as u64;
    assert!(
        left >= 6 && left + told["done"].as_u64().unwrap() >= 7,
        "{left}: {told}"
    );
    assert_eq!(
        post(&app, "/v1/bulk/slow/stop", None, &stop).await.code(),
        "finished"
    );
    assert_eq!(
        post(&app, "/v1/bulk/none/stop", None, &stop).await.code(),
        "not-found"
    );
    assert_eq!(get(&app, "/v1/bulk/none").await.code(), "not-found");
}

#[tokio::test]
async fn a_bulk_that_says_too_little_or_too_much_is_refused_and_does_nothing() {
    let runtime = runtime().await;
    let app = router(&runtime, Access::operator());
    for body in [
        json!({"filter": {}, "name": "n"}),
        json!({"action": "cancel", "reason": "r", "name": "n"}),
        json!({"action": "cancel", "filter": {}, "name": "n"}),
        json!({"action": "resume", "reason": "r", "filter": {}, "name": "n"}),
        json!({"action": "signal", "filter": {}, "name": "n"}),
        json!({"action": "resume", "value": 1, "filter": {}, "name": "n"}),
        json!({"action": "resume", "filter": {"status": ["busy"]}, "name": "n"}),
        json!({"action": "resume", "filter": {"statuses": []}, "name": "n"}),
        json!({"action": "resume", "filter": {}, "per_second": 0, "name": "n"}),
        json!({"action": "explode", "filter": {}, "name": "n"}),
    ] {
        assert_eq!(
            post(&app, "/v1/bulk", None, &body).await.code(),
            "invalid-body",
            "{body}"
        );
    }
    let long = json!({"action": "resume", "filter": {}, "name": "n".repeat(250)});
    assert_eq!(post(&app, "/v1/bulk", None, &long).await.code(), "invalid-id");
    let reading = router(&runtime, Access::read_only());
    let fine = json!({"action": "resume", "filter": {}, "dry_run": true});
    assert_eq!(post(&reading, "/v1/bulk", None, &fine).await.code(), "forbidden");
    assert_eq!(get(&reading, "/v1/bulk?after=x").await.code(), "invalid-query");
    assert!(runtime.bulks(None, 10).await.unwrap().bulks.is_empty());
}

#[tokio::test]
async fn why_is_told_of_one_run_as_of_its_instance() {
    let runtime = runtime().await;
    let app = router(&runtime, Access::read_only());
    let run = runtime
        .attach(TALLY, "i-3")
        .unwrap()
        .describe()
        .await
        .unwrap()
        .run;
    let told = get(&app, &format!("/v1/runs/{run}/why")).await.json();
    assert_eq!(
        (&told["id"], &told["waits"][0]["kind"]),
        (&"i-3".into(), &"signal".into())
    );
    assert_eq!(get(&app, "/v1/runs/0123/why").await.code(), "invalid-id");
}
