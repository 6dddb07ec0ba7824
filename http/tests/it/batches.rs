//! Many starts in one request: a line of answer for each.

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use millrun::{Runtime, Workflow, WorkflowContext, WorkflowError};
use millrun_http::{Access, BODY_BYTES_MAX, LINES_BYTES_MAX, LINES_LEN_MAX, router};
use serde_json::{Value, json};

use crate::support::{Answer, send};

const DOUBLE: Workflow<u64, u64> = Workflow::named("double");

async fn double(_cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    Ok(number * 2)
}

async fn post(app: &Router, media_type: &str, body: String) -> Answer {
    let request = Request::post("/v1/starts").header("content-type", media_type);
    send(app, request.body(Body::from(body)).unwrap()).await
}

fn line(id: &str, input: u64) -> String {
    json!({"id": id, "workflow": "double", "input": input}).to_string()
}

fn answers(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
    assert_eq!(answer.header("content-type"), "application/x-ndjson");
    assert!(answer.text.ends_with('\n'));
    answer
        .text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[tokio::test]
async fn each_line_is_answered_in_its_place_and_a_wrong_one_is_nothing_to_the_others() {
    let runtime = Runtime::volatile()
        .register(DOUBLE, double)
        .start()
        .await
        .unwrap();
    let app = router(&runtime, Access::operator());
    runtime.start(DOUBLE, "there", 1).await.unwrap();
    let long = "x".repeat(BODY_BYTES_MAX);
    let lines = [
        line("a", 1),
        String::new(),
        "{".to_owned(),
        line("", 1),
        r#"{"id":"b","workflow":"double","input":18446744073709551616}"#.to_owned(),
        json!({"id": "c", "workflow": "double", "input": long}).to_string(),
        r#"{"id":"there","workflow":"double","input":1,"on_conflict":"refuse"}"#.to_owned(),
        json!({"workflow": "double", "input": 1}).to_string(),
        format!("{}\r", line("d", 4)),
        line("a", 9),
        line("there", 9),
    ];
    let told = answers(&post(&app, "application/x-ndjson; charset=utf-8", lines.join("\n")).await);
    let codes: Vec<_> = told
        .iter()
        .map(|told| match told["type"].as_str() {
            Some(code) => code.strip_prefix("urn:millrun:problem:").unwrap(),
            None => told["id"].as_str().unwrap(),
        })
        .collect();
    assert_eq!(
        codes,
        [
            "a",
            "invalid-body",
            "invalid-body",
            "invalid-id",
            "payload",
            "body-too-large",
            "already-finished",
            "invalid-body",
            "d",
            "a",
            "there"
        ]
    );
    assert_eq!(told[0]["run"], told[9]["run"], "it was started once");
    assert_eq!(
        told[0]["history"],
        format!("runs/{}/history", told[0]["run"].as_str().unwrap())
    );
    assert_eq!(runtime.attach(DOUBLE, "d").unwrap().result().await.unwrap(), 8);
    assert_eq!(runtime.stats().started, 3);
}

#[tokio::test]
async fn what_is_too_much_is_refused_as_a_whole_and_starts_nothing() {
    let runtime = Runtime::volatile()
        .register(DOUBLE, double)
        .start()
        .await
        .unwrap();
    let app = router(&runtime, Access::operator());
    let many: Vec<_> = (0..=LINES_LEN_MAX)
        .map(|number| line(&number.to_string(), 1))
        .collect();
    let large = " ".repeat(LINES_BYTES_MAX);
    for (media_type, body, status, code) in [
        ("application/x-ndjson", many.join("\n"), 413, "too-many-lines"),
        (
            "application/x-ndjson",
            format!("{}\n{large}", line("a", 1)),
            413,
            "body-too-large",
        ),
        ("application/json", line("a", 1), 415, "media-type"),
    ] {
        let answer = post(&app, media_type, body).await;
        assert_eq!((answer.status.as_u16(), answer.code().as_str()), (status, code));
    }
    assert_eq!(runtime.stats().started, 0);
    let told = answers(&post(&app, "application/jsonl", format!("{}\n", many[1..].join("\n"))).await);
    assert_eq!(told.len(), LINES_LEN_MAX);
    assert_eq!(runtime.stats().started, LINES_LEN_MAX as u64);
}

#[tokio::test]
async fn the_starts_of_a_batch_share_commits_and_are_durable_when_they_are_answered() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.redb");
    let open = || Runtime::open(&path).register(DOUBLE, double);
    let runtime = open().start().await.unwrap();
    let app = router(&runtime, Access::operator());
    let lines: Vec<_> = (0..500)
        .map(|number| line(&format!("d-{number}"), number))
        .collect();
    let before = runtime.stats().journal.commits;
    let told = answers(&post(&app, "application/x-ndjson", lines.join("\n")).await);
    let commits = runtime.stats().journal.commits - before;
    assert!(told.iter().all(|told| told["run"].is_string()));
    assert!(commits < 100, "500 starts took {commits} commits");
    drop((app, runtime));
    let runtime = open().start().await.unwrap();
    let last = runtime.attach(DOUBLE, "d-499").unwrap();
    assert_eq!(last.result().await.unwrap(), 998);
    assert_eq!(
        runtime.stats().journal.live_runs + runtime.stats().journal.finished_runs,
        500
    );
}
