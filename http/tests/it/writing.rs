//! What is asked by HTTP leaves the same history as what is asked by typed calls, and is answered when it is there.

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use millrun::history::Sequence;
use millrun::workflow::RunTimeout;
use millrun::{Query, ResultError, Runtime, Signal, Update, Workflow, WorkflowContext, WorkflowError};
use millrun_http::{Access, BODY_BYTES_MAX, router};
use serde_json::{Value, json};

use crate::support::{Answer, get, send};

const SUM: Workflow<u64, u64> = Workflow::named("sum");
/// Registered beside it, so that a start can name another workflow than its instance's.
const DOUBLE: Workflow<u64, u64> = Workflow::named("double");
const FAILS: Workflow<u64, u64> = Workflow::named("fails");
const ADD: Update<u64, u64, u64> = Update::named("add");
const TOTAL: Query<u64, (), u64> = Query::named("total");
const END: Signal<u64> = Signal::named("end");

async fn sum(cx: WorkflowContext, first: u64) -> Result<u64, WorkflowError> {
    let sum = cx.state(first);
    let last = cx.receive(END).await?;
    Ok(sum.read(|sum| *sum) + last)
}

async fn double(_: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    Ok(2 * number)
}

async fn summing() -> Runtime {
    let definition = SUM.query(TOTAL, |sum, ()| *sum).update(ADD);
    let definition = definition
        .validate(|_, number| match *number {
            0 => Err(WorkflowError::failed("nothing to add")),
            _ => Ok(()),
        })
        .change(|sum, number| {
            *sum += number;
            *sum
        });
    Runtime::volatile()
        .register(definition, sum)
        .register(DOUBLE, double)
        .register(FAILS, async |_: WorkflowContext, _: u64| {
            Err::<u64, _>(WorkflowError::failed("never"))
        })
        .start()
        .await
        .unwrap()
}

async fn post(app: &Router, path: &str, body: Value) -> Answer {
    let request = Request::post(path).header("content-type", "application/json; charset=utf-8");
    send(app, request.body(Body::from(body.to_string())).unwrap()).await
}

/// The events of an instance as text, without its id.
async fn history(runtime: &Runtime, id: &str) -> Vec<String> {
    let run = runtime.attach_untyped(id).unwrap().describe().await.unwrap().run;
    let page = runtime.history(run, Sequence::ZERO, 1_000).await.unwrap();
    let events = page.events.iter();
    let events = events.map(|recorded| format!("{:?}", recorded.event).replace(id, "ID"));
    events.collect()
}

#[tokio::test]
async fn a_workflow_that_is_not_registered_is_refused_and_nothing_begins() {
    let runtime = summing().await;
    let app = router(&runtime, Access::operator());
    let line = json!({"id": "i", "workflow": "sums", "input": 1});
    for path in ["/v1/instances/i/start", "/v1/start"] {
        let mut body = line.clone();
        if path.ends_with("/i/start") {
            body.as_object_mut().unwrap().remove("id");
        }
        let refused = post(&app, path, body).await;
        assert_eq!(
            (refused.status.as_u16(), refused.code().as_str()),
            (422, "not-registered")
        );
        assert!(
            refused.json()["detail"].as_str().unwrap().contains("\"sums\""),
            "{}",
            refused.text
        );
    }
    let lines = Request::post("/v1/starts").header("content-type", "application/x-ndjson");
    let told = send(&app, lines.body(Body::from(format!("{line}\n"))).unwrap()).await;
    assert!(told.text.contains("not-registered"), "{}", told.text);
    assert_eq!(runtime.stats().started, 0);
    assert!(runtime.has_workflow("sum") && !runtime.has_workflow("sums"));
}

#[tokio::test]
async fn a_start_is_told_what_to_do_when_its_id_is_taken() {
    let runtime = summing().await;
    let app = router(&runtime, Access::operator());
    let start = async |on_conflict: &str, workflow: &str| {
        let body = json!({"workflow": workflow, "input": 1, "on_conflict": on_conflict});
        post(&app, "/v1/instances/i/start", body).await
    };
    let first = start("attach", "sum").await.json()["run"].clone();
    let attached = start("restart-failed", "sum").await;
    assert_eq!(attached.json()["run"], first);
    assert_eq!(
        start("terminate-running", "double").await.code(),
        "other-workflow"
    );
    let second = start("terminate-running", "sum").await.json()["run"].clone();
    assert_ne!(second, first);
    runtime
        .attach(SUM, "i")
        .unwrap()
        .terminate("failed")
        .await
        .unwrap();
    let third = start("restart-failed", "sum").await.json()["run"].clone();
    assert_ne!(third, second);
    runtime.attach(SUM, "i").unwrap().signal(END, 1).await.unwrap();
    runtime.attach(SUM, "i").unwrap().result().await.unwrap();
    assert_eq!(start("restart-failed", "sum").await.code(), "already-finished");
    assert_eq!(start("restart-all", "sum").await.code(), "invalid-body");
}

#[tokio::test]
async fn a_start_is_delayed_and_told_so() {
    let runtime = summing().await;
    let app = router(&runtime, Access::operator());
    let now = runtime.host().now().as_micros();
    for (id, delay) in [
        ("by", json!({"delay_ms": 3_600_000})),
        ("until", json!({"start_at_us": now + 3_600_000_000})),
    ] {
        let mut body = json!({"workflow": "sum", "input": 1});
        body.as_object_mut()
            .unwrap()
            .extend(delay.as_object().unwrap().clone());
        let started = post(&app, &format!("/v1/instances/{id}/start"), body).await;
        assert_eq!(started.status, StatusCode::OK, "{}", started.text);
        let told = get(&app, &format!("/v1/instances/{id}")).await.json();
        assert_eq!(
            (&told["status"], &told["parked"]["kind"]),
            (&json!("delayed"), &json!("delayed"))
        );
        assert!(
            told["resumes_at_us"].as_u64().unwrap() >= now + 3_600_000_000,
            "{told}"
        );
        let why = get(&app, &format!("/v1/instances/{id}/why")).await.json();
        assert_eq!(why["waits"][0]["kind"], "start-time", "{why}");
        let result = get(&app, &format!("/v1/instances/{id}/result")).await.json();
        assert_eq!(result["outcome"], "running", "{result}");
    }
    let found = get(&app, "/v1/runs?status=delayed").await.json();
    assert_eq!(found["runs"].as_array().unwrap().len(), 2, "{found}");
    let counts = get(&app, "/v1/counts").await.json();
    assert_eq!(counts["workflows"][0]["delayed"], 2, "{counts}");
    let begun = post(&app, "/v1/instances/by/resume", json!({})).await;
    assert_eq!(begun.status, StatusCode::OK, "{}", begun.text);
    let told = get(&app, "/v1/instances/by").await.json();
    assert_eq!(told["status"], "running");
    let both = json!({"workflow": "sum", "input": 1, "delay_ms": 1, "start_at_us": 1});
    let refused = post(&app, "/v1/instances/both/start", both).await;
    assert_eq!(refused.code(), "invalid-body");
    // A time that has passed.
    let past = json!({"workflow": "sum", "input": 1, "start_at_us": 1});
    post(&app, "/v1/instances/past/start", past).await;
    let told = get(&app, "/v1/instances/past").await.json();
    assert_eq!(told["status"], "running");
}

#[tokio::test]
async fn a_start_says_how_a_run_is_tried_again_and_each_try_is_told() {
    let runtime = summing().await;
    let app = router(&runtime, Access::operator());
    let retry = json!({"attempts_max": 3, "first_pause_ms": 3_600_000, "pause_max_ms": 7_200_000});
    let body = json!({"workflow": "fails", "input": 1, "retry": retry});
    let started = post(&app, "/v1/instances/f/start", body).await.json();
    let told = loop {
        let told = get(&app, "/v1/instances/f").await.json();
        if told["status"] == "delayed" {
            break told;
        }
    };
    assert_eq!(
        (&told["try"]["number"], &told["try"]["attempts_max"]),
        (&json!(2), &json!(3))
    );
    let why = get(&app, "/v1/instances/f/why").await.json();
    assert_eq!(why["waits"][0]["try"]["number"], 2, "{why}");
    let first = started["run"].as_str().unwrap();
    let events = get(&app, &format!("/v1/runs/{first}/history")).await.json();
    let events = events["events"].as_array().unwrap();
    assert_eq!(events[0]["try"]["number"], 1, "{events:?}");
    let last = events.last().unwrap();
    assert_eq!(last["failed"]["message"], "never", "{last}");
    for retry in [
        json!({}),
        json!({"attempts_max": 0}),
        json!({"attempts_max": 1, "often": 2}),
    ] {
        let body = json!({"workflow": "fails", "input": 1, "retry": retry});
        let refused = post(&app, "/v1/instances/g/start", body).await;
        assert_eq!(refused.code(), "invalid-body");
    }
}

#[tokio::test]
async fn a_start_says_how_long_its_run_may_take_and_a_run_that_was_out_of_time_says_so() {
    let runtime = summing().await;
    let app = router(&runtime, Access::operator());
    let body =
        json!({"workflow": "sum", "input": 1, "run_timeout_ms": 3_600_000, "chain_timeout_ms": 7_200_000});
    post(&app, "/v1/instances/s/start", body).await;
    let told = get(&app, "/v1/instances/s").await.json();
    let began = told["started_at_us"].as_u64().unwrap();
    let deadline = json!({"at_us": began + 3_600_000_000, "timeout": "run"});
    assert_eq!((&told["deadline"], &told["timed_out"]), (&deadline, &json!(null)));
    let run = told["run"].as_str().unwrap();
    let events = get(&app, &format!("/v1/runs/{run}/history")).await.json();
    let timeouts = &events["events"][0]["timeouts"];
    assert_eq!(timeouts["run_us"], 3_600_000_000_u64, "{events}");
    assert_eq!(timeouts["chain_ends_us"], began + 7_200_000_000, "{events}");

    let line = json!({"workflow": "sum", "id": "t", "input": 1, "chain_timeout_ms": 1});
    let started = post(&app, "/v1/start", line).await.json();
    let result = runtime.attach(SUM, "t").unwrap().result().await;
    assert!(matches!(result, Err(ResultError::TimedOut(RunTimeout::Chain))));
    let told = get(&app, "/v1/instances/t").await.json();
    assert_eq!(
        (&told["deadline"], &told["timed_out"]),
        (&json!(null), &json!("chain"))
    );
    let result = get(&app, "/v1/instances/t/result").await.json();
    assert_eq!(
        (&result["outcome"], &result["timeout"]),
        (&json!("timed-out"), &json!("chain"))
    );
    let run = started["run"].as_str().unwrap();
    let events = get(&app, &format!("/v1/runs/{run}/history")).await.json();
    let last = events["events"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (&last["kind"], &last["timeout"]),
        (&json!("TimedOut"), &json!("chain"))
    );
    let found = get(&app, "/v1/runs?status=timed-out").await.json();
    assert_eq!(found["runs"].as_array().unwrap().len(), 1, "{found}");
    for timeout in [json!(0), json!(-1), json!("1h")] {
        for name in ["run_timeout_ms", "chain_timeout_ms"] {
            let mut body = json!({"workflow": "sum", "input": 1});
            body[name] = timeout.clone();
            let refused = post(&app, "/v1/instances/g/start", body).await;
            assert_eq!(refused.code(), "invalid-body", "{name} {timeout}");
        }
    }
}

#[tokio::test]
async fn requests_leave_the_history_that_typed_calls_leave() {
    let runtime = summing().await;
    let typed = runtime.start(SUM, "by-call", 1).await.unwrap();
    assert_eq!(typed.update_as(ADD, "r-1", 2).await.unwrap(), 3);
    typed.update_as(ADD, "r-2", 0).await.unwrap_err();
    assert_eq!(typed.query(TOTAL, ()).await.unwrap(), 3);
    typed.pause("lunch").await.unwrap();
    typed.resume().await.unwrap();
    typed.cancel("enough").await.unwrap();
    drop(typed.result().await);

    let app = router(&runtime, Access::operator());
    let at = |what: &str| format!("/v1/instances/by-http/{what}");
    for _ in 0..2 {
        let started = post(&app, &at("start"), json!({"workflow": "sum", "input": 1})).await;
        assert_eq!(started.status, StatusCode::OK, "{}", started.text);
        let run = runtime
            .attach(SUM, "by-http")
            .unwrap()
            .describe()
            .await
            .unwrap()
            .run;
        assert_eq!(
            started.json()["run"],
            run.to_string(),
            "the second start tells the run that is there"
        );
        assert_eq!(started.json()["history"], format!("../../runs/{run}/history"));
    }
    for _ in 0..2 {
        let added = post(
            &app,
            &at("update"),
            json!({"name": "add", "request": "r-1", "input": 2}),
        )
        .await;
        assert_eq!(added.json()["answer"]["value"], 3, "once: {}", added.text);
    }
    let rejected = post(
        &app,
        &at("update"),
        json!({"name": "add", "request": "r-2", "input": 0}),
    )
    .await;
    assert_eq!(
        (rejected.status.as_u16(), rejected.code().as_str()),
        (422, "rejected")
    );
    assert!(
        rejected.json()["error"]["value"]
            .to_string()
            .contains("nothing to add"),
        "{}",
        rejected.text
    );
    let total = post(&app, &at("query"), json!({"name": "total"})).await;
    assert_eq!(total.json()["answer"]["value"], 3, "{}", total.text);
    let told = get(&app, &at("result")).await.json();
    assert_eq!(told["outcome"], "running");
    let paused = post(&app, &at("pause"), json!({"reason": "lunch"})).await;
    assert_eq!(paused.json(), json!({"recorded": true}));
    let told = get(&app, &at("result")).await.json();
    assert_eq!(
        (&told["outcome"], &told["reason"]["kind"]),
        (&"parked".into(), &"paused".into())
    );
    assert_eq!(post(&app, &at("resume"), json!({})).await.status, StatusCode::OK);
    assert_eq!(
        post(&app, &at("cancel"), json!({"reason": "enough"}))
            .await
            .status,
        StatusCode::OK
    );
    drop(runtime.attach(SUM, "by-http").unwrap().result().await);
    let told = get(&app, &at("result")).await.json();
    assert_eq!(told["outcome"], "cancelled", "{told}");
    assert_eq!(
        history(&runtime, "by-http").await,
        history(&runtime, "by-call").await
    );
}

#[tokio::test]
async fn a_signal_under_a_request_is_repeated_behind_the_end_of_its_run() {
    let runtime = summing().await;
    let app = router(&runtime, Access::operator());
    let start = json!({"workflow": "sum", "input": 1});
    post(&app, "/v1/instances/s/start", start).await;
    for _ in 0..2 {
        let named = json!({"name": "end", "value": 7, "request": "r-1"});
        let signalled = post(&app, "/v1/instances/s/signal", named).await;
        assert_eq!(signalled.json(), json!({"recorded": true}));
        runtime.attach(SUM, "s").unwrap().result().await.unwrap();
    }
    let empty = json!({"name": "end", "value": 7, "request": ""});
    let refused = post(&app, "/v1/instances/s/signal", empty).await;
    assert_ne!(refused.status, StatusCode::OK, "{}", refused.text);
}

#[tokio::test]
async fn a_signal_ends_a_run_and_its_result_is_told() {
    let runtime = summing().await;
    let app = router(&runtime, Access::operator());
    post(
        &app,
        "/v1/instances/s/start",
        json!({"workflow": "sum", "input": u64::MAX - 7}),
    )
    .await;
    let signalled = post(&app, "/v1/instances/s/signal", json!({"name": "end", "value": 7})).await;
    assert_eq!(signalled.json(), json!({"recorded": true}));
    runtime.attach(SUM, "s").unwrap().result().await.unwrap();
    let told = get(&app, "/v1/instances/s/result").await;
    assert!(
        told.text.contains(r#""result":{"value":18446744073709551615}"#),
        "exact: {}",
        told.text
    );
    let named = json!({"name": "end", "value": 7, "request": "r-1"});
    let unknown = post(&app, "/v1/instances/s/signal", named).await;
    assert_eq!(unknown.code(), "finished", "nothing was sent under this request");
    let again = post(&app, "/v1/instances/s/signal", json!({"name": "end", "value": 7})).await;
    assert_eq!((again.status.as_u16(), again.code().as_str()), (409, "finished"));
    let refused = json!({"workflow": "sum", "input": 1, "on_conflict": "refuse"});
    let refused = post(&app, "/v1/instances/s/start", refused).await;
    assert_eq!(
        (refused.status.as_u16(), refused.code().as_str()),
        (409, "already-finished")
    );

    post(
        &app,
        "/v1/instances/t/start",
        json!({"workflow": "sum", "input": 1}),
    )
    .await;
    post(&app, "/v1/instances/t/terminate", json!({"reason": "no more"})).await;
    let told = get(&app, "/v1/instances/t/result").await.json();
    assert_eq!(
        (&told["outcome"], &told["message"]),
        (&"terminated".into(), &"no more".into())
    );
}

#[tokio::test]
async fn a_run_is_reset_and_told_why_not() {
    let runtime = summing().await;
    let run = runtime.start(SUM, "s", 1).await.unwrap();
    run.update_as(ADD, "a", 2).await.unwrap();
    let app = router(&runtime, Access::operator());
    let former = run.run_id().unwrap().to_string();
    for (body, status, code, detail) in [
        (
            json!({"to_event": 9}),
            409,
            "not-reset",
            "events 1 to 3, and no event 9",
        ),
        (
            json!({"to_event": 1, "run": former, "reasons": ""}),
            400,
            "invalid-body",
            "reasons",
        ),
        (json!({"to_event": 1, "run": "x"}), 400, "invalid-id", "no run"),
    ] {
        let answer = post(&app, "/v1/instances/s/reset", body).await;
        assert_eq!((answer.status.as_u16(), answer.code().as_str()), (status, code));
        assert!(answer.text.contains(detail), "{}", answer.text);
    }
    let body = json!({"to_event": 1, "keep_signals": true, "run": former, "reason": "wrong"});
    let reset = post(&app, "/v1/instances/s/reset", body.clone()).await.json();
    let next = reset["run"].as_str().unwrap();
    let asked_again = post(&app, "/v1/instances/s/reset", body).await;
    assert_eq!(
        asked_again.code(),
        "not-reset",
        "that run is not the latest any more"
    );
    let told = get(&app, &format!("/v1/runs/{former}/history")).await.json();
    let last = told["events"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (&last["kind"], &last["run"], &last["to"], &last["reason"]),
        (&"Reset".into(), &next.into(), &1.into(), &"wrong".into())
    );
    let told = get(&app, &format!("/v1/runs/{next}/history")).await.json();
    let first = &told["events"][0];
    assert_eq!(
        (&first["continued"], &first["reset_to"]),
        (&former.into(), &1.into())
    );
    post(&app, "/v1/instances/s/signal", json!({"name": "end", "value": 4})).await;
    assert_eq!(run.result().await.unwrap(), 7, "the update was told again");
}

#[tokio::test]
async fn bodies_that_are_wrong_are_refused_and_change_nothing() {
    let runtime = summing().await;
    let run = runtime.start(SUM, "s", 1).await.unwrap();
    let before = run.describe().await.unwrap().sequence;
    let app = router(&runtime, Access::operator());
    let long = format!(r#"{{"name":"end","value":"{}"}}"#, "x".repeat(BODY_BYTES_MAX));
    for (path, media_type, body, status, code) in [
        (
            "s/signal",
            "text/plain",
            r#"{"name":"end","value":1}"#,
            415,
            "media-type",
        ),
        ("s/signal", "", r#"{"name":"end","value":1}"#, 415, "media-type"),
        ("s/signal", "application/json", "", 400, "invalid-body"),
        ("s/signal", "application/json", "{", 400, "invalid-body"),
        ("s/signal", "application/json", "[]", 400, "invalid-body"),
        (
            "s/signal",
            "application/json",
            r#"{"value":1}"#,
            400,
            "invalid-body",
        ),
        (
            "s/signal",
            "application/json",
            r#"{"name":"end","valu":1}"#,
            400,
            "invalid-body",
        ),
        (
            "s/signal",
            "application/json",
            r#"{"name":"end","value":123456789012345678901}"#,
            400,
            "payload",
        ),
        ("s/signal", "application/json", &long, 413, "body-too-large"),
        (
            "s/start",
            "application/json",
            r#"{"workflow":"sum","on_conflict":"perhaps"}"#,
            400,
            "invalid-body",
        ),
        (
            "s/start",
            "application/json",
            r#"{"workflow":"","input":1}"#,
            400,
            "name",
        ),
        (
            "s/start",
            "application/json",
            r#"{"workflow":"double","input":1}"#,
            409,
            "other-workflow",
        ),
        (
            "s/query",
            "application/json",
            r#"{"name":"nothing"}"#,
            422,
            "unanswered",
        ),
        (
            "s/resume",
            "application/json",
            r#"{"reason":"none is taken"}"#,
            400,
            "invalid-body",
        ),
        (
            "nobody/signal",
            "application/json",
            r#"{"name":"end","value":1}"#,
            404,
            "not-found",
        ),
    ] {
        let request = Request::post(format!("/v1/instances/{path}")).header("content-type", media_type);
        let answer = send(&app, request.body(Body::from(body.to_owned())).unwrap()).await;
        let what = &body[..body.len().min(80)];
        assert_eq!(
            (answer.status.as_u16(), answer.code().as_str()),
            (status, code),
            "{path} {what}: {}",
            answer.text
        );
    }
    assert_eq!(run.describe().await.unwrap().sequence, before);
    assert_eq!(get(&app, "/v1/instances/s/signal").await.code(), "method");
}
