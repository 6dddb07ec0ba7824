//! Schedules over HTTP.

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use millrun::{Runtime, Workflow, WorkflowContext, WorkflowError};
use millrun_http::{Access, router};
use serde_json::{Value, json};

use crate::support::{Answer, get, send};

const REPORT: Workflow<u64, u64> = Workflow::named("report");

async fn report(_cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    Ok(number)
}

async fn post(app: &Router, path: &str, body: Value) -> Answer {
    let request = Request::post(path).header("content-type", "application/json");
    send(app, request.body(Body::from(body.to_string())).unwrap()).await
}

async fn served() -> (Runtime, Router) {
    let runtime = Runtime::volatile()
        .register(REPORT, report)
        .start()
        .await
        .unwrap();
    let app = router(&runtime, Access::operator());
    (runtime, app)
}

#[tokio::test]
async fn a_schedule_is_made_told_changed_and_deleted() {
    let (runtime, app) = served().await;
    let body = json!({
        "workflow": "report", "input": 7, "cron": ["30 2 * * *"], "zone": "europe/berlin",
        "every": [{"every_s": 86_400, "phase_s": 60}], "overlap": "buffer-all", "buffer_len_max": 5,
        "catch_up_s": 60, "jitter_s": 10, "actions_len_max": 3, "paused": "not yet",
        "starting_at_us": 1, "ending_at_us": 32_503_680_000_000_000_u64,
    });
    for _ in 0..2 {
        let made = post(&app, "/v1/schedules/a%20schedule", body.clone())
            .await
            .json();
        assert_eq!(made, json!({"made": true}));
    }
    let told = get(&app, "/v1/schedules/a%20schedule").await.json();
    for (field, value) in [
        ("id", json!("a schedule")),
        ("status", json!("running")),
        ("workflow", json!("report")),
        (
            "times",
            json!([{"cron": "30 2 * * *"}, {"every_s": 86_400, "phase_s": 60}]),
        ),
        ("zone", json!("Europe/Berlin")),
        ("overlap", json!("buffer-all")),
        ("buffer_len_max", json!(5)),
        ("catch_up_s", json!(60)),
        ("jitter_s", json!(10)),
        ("starting_at_us", json!(1)),
        ("ending_at_us", json!(32_503_680_000_000_000_u64)),
        ("actions_left", json!(3)),
        ("paused", json!("not yet")),
        ("upcoming_us", json!([])),
        ("started", json!(0)),
    ] {
        assert_eq!(told[field], value, "{field}");
    }
    let mut changed = body.clone();
    changed["cron"] = json!(["0 3 * * *"]);
    let differs = post(&app, "/v1/schedules/a%20schedule", changed.clone()).await;
    assert_eq!(
        (differs.status, differs.code()),
        (StatusCode::CONFLICT, "schedule-differs".into())
    );
    post(&app, "/v1/schedules/a%20schedule/update", changed)
        .await
        .json();
    post(&app, "/v1/schedules/a%20schedule/resume", json!({"note": "go"}))
        .await
        .json();
    let told = get(&app, "/v1/schedules/a%20schedule").await.json();
    assert_eq!((&told["paused"], &told["resumed"]), (&Value::Null, &json!("go")));
    assert_eq!(told["upcoming_us"].as_array().unwrap().len(), 10);
    assert_eq!(told["zone_data"], millrun::schedules::zone_data_version());
    post(&app, "/v1/schedules/a%20schedule/pause", json!({"note": "again"}))
        .await
        .json();

    let run = post(
        &app,
        "/v1/schedules/a%20schedule/trigger",
        json!({"overlap": "allow"}),
    )
    .await
    .json();
    let run = run["id"].as_str().unwrap().to_owned();
    assert!(
        run.starts_with("a schedule/") && run.ends_with("/trigger-1"),
        "{run}"
    );
    while runtime.attach(REPORT, &run).unwrap().describe().await.is_err() {
        tokio::task::yield_now().await;
    }
    assert_eq!(runtime.attach(REPORT, &run).unwrap().result().await.unwrap(), 7);
    let stretch = json!({"from_us": 86_400_000_000_u64, "through_us": 2 * 86_400_000_000_u64});
    let done = post(&app, "/v1/schedules/a%20schedule/backfill", stretch)
        .await
        .json();
    assert_eq!(done, json!({"recorded": true}));
    let listed = get(&app, "/v1/schedules").await.json();
    assert_eq!(listed["schedules"][0]["id"], "a schedule");
    assert_eq!(listed["next"], Value::Null);
    for deleted in [true, false] {
        let answer = post(&app, "/v1/schedules/a%20schedule/delete", json!({}))
            .await
            .json();
        assert_eq!(answer, json!({"deleted": deleted}));
    }
}

#[tokio::test]
async fn what_is_no_schedule_is_a_problem_that_says_what_to_do() {
    let (_runtime, app) = served().await;
    for path in ["", "/trigger", "/pause", "/update"] {
        let path = format!("/v1/schedules/nobody{path}");
        let answer = match path.as_str() {
            "/v1/schedules/nobody" => get(&app, &path).await,
            "/v1/schedules/nobody/trigger" => post(&app, &path, json!({})).await,
            "/v1/schedules/nobody/pause" => post(&app, &path, json!({"note": ""})).await,
            _ => {
                post(
                    &app,
                    &path,
                    json!({"workflow": "report", "input": 1, "cron": ["@daily"]}),
                )
                .await
            }
        };
        assert_eq!(
            (answer.status, answer.code()),
            (StatusCode::NOT_FOUND, "no-schedule".into()),
            "{path}"
        );
    }
    let make = async |body: Value| post(&app, "/v1/schedules/s", body).await;
    for (body, code, part) in [
        (
            json!({"workflow": "report", "input": 1, "cron": ["61 * * * *"]}),
            "schedule",
            "give 0 to 59",
        ),
        (
            json!({"workflow": "report", "input": 1}),
            "schedule",
            "give it a cron line",
        ),
        (
            json!({"workflow": "report", "input": 1, "cron": ["@daily"], "zone": "Berlin"}),
            "schedule",
            "Europe/Berlin",
        ),
        (
            json!({"workflow": "report", "input": "x", "cron": ["@daily"]}),
            "wrong-type",
            "u64",
        ),
        (
            json!({"workflow": "report", "input": 1, "cron": ["@daily"], "overlap": "never"}),
            "invalid-body",
            "terminate-other",
        ),
        (
            json!({"workflow": "report", "input": 1, "kron": ["@daily"]}),
            "invalid-body",
            "kron",
        ),
        (
            json!({"workflow": "millrun.bulk", "input": 1, "cron": ["@daily"]}),
            "reserved-name",
            "reserved",
        ),
    ] {
        let answer = make(body.clone()).await;
        assert_eq!(answer.code(), code, "{body}");
        let detail = answer.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(part), "{body}: {detail}");
    }
    let long = post(
        &app,
        &format!("/v1/schedules/{}", "x".repeat(161)),
        json!({"workflow": "report", "input": 1, "cron": ["@daily"]}),
    )
    .await;
    assert_eq!(long.code(), "invalid-id");
    assert_eq!(get(&app, "/v1/schedules").await.json()["schedules"], json!([]));
}

#[tokio::test]
async fn a_trigger_with_a_key_starts_one_run_however_often_it_is_sent() {
    let (runtime, app) = served().await;
    let daily = json!({"workflow": "report", "input": 1, "cron": ["@daily"], "overlap": "allow"});
    post(&app, "/v1/schedules/s", daily).await.json();
    let trigger = async |key: &str| {
        let request = Request::post("/v1/schedules/s/trigger")
            .header("content-type", "application/json")
            .header("idempotency-key", key);
        send(&app, request.body(Body::from("{}")).unwrap()).await.json()["id"].clone()
    };
    let first = trigger("k-1").await;
    assert_eq!(trigger("k-1").await, first);
    assert_ne!(trigger("k-2").await, first);
    let described = runtime.attach_schedule("s").describe().await.unwrap();
    assert_eq!(described.counts.started_len, 2);
}
