//! The header `traceparent` of a request reaches the run that it starts, and what it publishes.

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use millrun::broker::{Envelope, Inbox, SubscriptionConfig};
use millrun::{Runtime, Topic};
use millrun_http::{Access, Console};
use serde_json::{Value, json};

use crate::support::{Answer, get, runtime, send};

const PRICES: Topic<u64> = Topic::named("shop.prices");
const HEADER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

async fn post(app: &Router, path: &str, traceparent: &str, form: &str, body: String) -> Answer {
    let request = Request::post(path)
        .header("content-type", form)
        .header("traceparent", traceparent);
    let answer = send(app, request.body(Body::from(body)).unwrap()).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
    answer
}

/// What the description of an instance and the first event of its run say.
async fn trace_of(app: &Router, id: &str) -> Value {
    let described = get(app, &format!("/v1/instances/{id}")).await.json();
    let run = described["run"].as_str().unwrap();
    let history = get(app, &format!("/v1/runs/{run}/history?limit=1")).await.json();
    assert_eq!(history["events"][0]["trace"], described["trace"]);
    described["trace"].clone()
}

fn app(runtime: &Runtime) -> Router {
    let console = Console::new(runtime, Access::operator());
    console.expose(PRICES).unwrap().router()
}

#[tokio::test]
async fn each_start_takes_the_trace_of_its_request_and_passes_over_what_is_none() {
    let runtime = runtime().await;
    let app = app(&runtime);
    let expected = json!({
        "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
        "span_id": "00f067aa0ba902b7",
        "is_sampled": true,
    });
    let (one, lines) = ("application/json", "application/x-ndjson");
    let start = |id: &str| json!({"id": id, "workflow": "order", "input": 1}).to_string();
    let body = json!({"workflow": "order", "input": 1}).to_string();
    post(&app, "/v1/instances/path/start", HEADER, one, body.clone()).await;
    post(&app, "/v1/start", HEADER, one, start("body")).await;
    let two = format!("{}\n{}\n", start("line-1"), start("line-2"));
    post(&app, "/v1/starts", HEADER, lines, two).await;
    for id in ["path", "body", "line-1", "line-2"] {
        assert_eq!(trace_of(&app, id).await, expected, "{id}");
    }
    for (id, header) in [("upper", HEADER.to_uppercase()), ("none", String::new())] {
        let path = format!("/v1/instances/{id}/start");
        post(&app, &path, &header, one, body.clone()).await;
        assert_eq!(trace_of(&app, id).await, Value::Null, "{id}");
    }
}

#[tokio::test]
async fn a_publish_hands_the_trace_of_its_request_on() {
    let runtime = runtime().await;
    let app = app(&runtime);
    let config = SubscriptionConfig::default();
    let inbox: Inbox<Envelope<u64>> = runtime.broker().subscribe(PRICES.name(), config).unwrap();
    let body = json!({"value": 7}).to_string();
    let path = "/v1/topics/shop.prices/publish";
    post(&app, path, HEADER, "application/json", body).await;
    let envelope = inbox.take().next().unwrap();
    assert_eq!(
        envelope.trace().map(|trace| trace.to_string()).as_deref(),
        Some(HEADER)
    );
}
