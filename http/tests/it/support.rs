//! A runtime with a workflow that waits, and a client.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, StatusCode};
use millrun::{
    Activity, ActivityContext, ActivityError, RunId, Runtime, Signal, Workflow, WorkflowContext,
    WorkflowError,
};
use millrun_http::Operation;
use serde_json::Value;
use tower::ServiceExt as _;

pub(crate) const CHARGE: Activity<u64, u64> = Activity::named("charge");
pub(crate) const ORDER: Workflow<u64, u64> = Workflow::named("order");
pub(crate) const PAID: Signal<u64> = Signal::named("paid");

pub(crate) async fn charge(_cx: ActivityContext, cents: u64) -> Result<u64, ActivityError> {
    Ok(cents)
}

/// Charges, and waits for the payment.
pub(crate) async fn order(cx: WorkflowContext, cents: u64) -> Result<u64, WorkflowError> {
    let charged = cx.call(CHARGE, cents).await?;
    let paid = cx.receive(PAID).await?;
    Ok(charged - paid)
}

pub(crate) async fn runtime() -> Runtime {
    let builder = Runtime::volatile()
        .register(CHARGE, charge)
        .register(ORDER, order);
    builder.start().await.unwrap()
}

pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The code of the problem that this is.
    pub(crate) fn code(&self) -> String {
        assert_eq!(
            self.header("content-type"),
            "application/problem+json",
            "{}",
            self.text
        );
        let problem = self.json();
        assert_eq!(problem["status"], self.status.as_u16());
        assert!(!problem["advice"].as_str().unwrap().is_empty());
        let code = problem["type"]
            .as_str()
            .unwrap()
            .strip_prefix("urn:millrun:problem:");
        code.unwrap().to_owned()
    }
}

pub(crate) async fn send(app: &Router, request: Request<Body>) -> Answer {
    let response = app.clone().oneshot(request).await.unwrap();
    let (head, body) = response.into_parts();
    let bytes = to_bytes(body, usize::MAX).await.unwrap();
    Answer {
        status: head.status,
        headers: head.headers,
        text: String::from_utf8(bytes.to_vec()).unwrap(),
    }
}

pub(crate) async fn get(app: &Router, path: &str) -> Answer {
    send(app, Request::get(path).body(Body::empty()).unwrap()).await
}

/// A path of this operation, with the instance and the run put in; a stream ends behind its first event, and one that would wait
/// for it is asked for wrongly.
pub(crate) fn path_of(operation: &Operation, id: &str, run: RunId) -> String {
    let path = operation
        .path
        .replace("{id}", id)
        .replace("{name}", id)
        .replace("{schedule}", id)
        .replace("{entity}", id)
        .replace("{key}", id)
        .replace("{run}", &run.to_string())
        .replace("{stream}", id);
    match operation.name {
        "changes" | "output" => format!("/{path}?limit=0"),
        "events" => format!("/{path}?limit=1"),
        _ => format!("/{path}"),
    }
}
