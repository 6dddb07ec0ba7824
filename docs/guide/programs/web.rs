//! Orders over HTTP, with axum: the runtime is the router's state, errors are status codes, and the two end in
//! order.

#![allow(
    clippy::disallowed_macros,
    reason = "a server may select in any order, other than a workflow"
)]

use std::error::Error;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use millrun::prelude::*;
use millrun::{ResultError, RunError, StartError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

const ORDER: Workflow<u64, String> = Workflow::named("order");
const CONFIRMED: Signal<String> = Signal::named("confirmed");

async fn order(cx: WorkflowContext, cents: u64) -> Result<String, WorkflowError> {
    if cents == 0 {
        return Err(WorkflowError::failed("an order of nothing"));
    }
    let by = cx.receive(CONFIRMED).await?;
    Ok(format!("{cents} cents, confirmed by {by}"))
}

// ANCHOR: router
fn router(runtime: Runtime) -> Router {
    Router::new()
        .route("/orders/{id}", post(place).get(state))
        .route("/orders/{id}/confirmation", post(confirm))
        .route("/orders/{id}/result", get(result))
        .with_state(runtime) // a cheap clone
}
// ANCHOR_END: router

// ANCHOR: place
/// The client chooses the id, so that it may repeat the request: the same order is placed once.
async fn place(
    State(runtime): State<Runtime>,
    Path(id): Path<String>,
    Json(cents): Json<u64>,
) -> Result<StatusCode, Refusal> {
    runtime.start(ORDER, &id, cents).await?;
    Ok(StatusCode::ACCEPTED) // it is on disk
}

async fn confirm(
    State(runtime): State<Runtime>,
    Path(id): Path<String>,
    Json(by): Json<String>,
) -> Result<StatusCode, Refusal> {
    runtime
        .attach(ORDER, &id)
        .map_err(StartError::from)?
        .signal(CONFIRMED, by)
        .await?;
    Ok(StatusCode::NO_CONTENT)
}
// ANCHOR_END: place

// ANCHOR: result
async fn state(State(runtime): State<Runtime>, Path(id): Path<String>) -> Result<Json<String>, Refusal> {
    let run = runtime.attach(ORDER, &id).map_err(StartError::from)?;
    Ok(Json(format!("{:?}", run.describe().await?.status)))
}

/// Waits for the end. A client that hangs up ends the wait and nothing else.
async fn result(State(runtime): State<Runtime>, Path(id): Path<String>) -> Result<Response, Refusal> {
    let run = runtime.attach(ORDER, &id).map_err(StartError::from)?;
    Ok(match run.result().await {
        Ok(result) => Json(result).into_response(),
        Err(ResultError::Failed(error)) => {
            (StatusCode::UNPROCESSABLE_ENTITY, error.to_string()).into_response()
        }
        Err(ResultError::Run(error)) => Refusal::from(error).into_response(),
        Err(error) => (StatusCode::CONFLICT, error.to_string()).into_response(),
    })
}
// ANCHOR_END: result

// ANCHOR: refusal
/// An error of the runtime as an answer of HTTP.
struct Refusal(StatusCode, String);

impl From<StartError> for Refusal {
    fn from(error: StartError) -> Self {
        let status = match &error {
            StartError::Id(_) | StartError::Payload(_) | StartError::TooLarge { .. } => {
                StatusCode::BAD_REQUEST
            }
            StartError::AlreadyRunning { .. }
            | StartError::AlreadyFinished { .. }
            | StartError::OtherWorkflow { .. } => StatusCode::CONFLICT,
            error if error.is_retryable() => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self(status, error.to_string())
    }
}

impl From<RunError> for Refusal {
    fn from(error: RunError) -> Self {
        let status = match &error {
            RunError::NotFound => StatusCode::NOT_FOUND,
            RunError::Finished | RunError::OtherWorkflow { .. } => StatusCode::CONFLICT,
            RunError::Expired => StatusCode::GONE,
            error if error.is_retryable() => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self(status, error.to_string())
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.0, self.1).into_response()
    }
}
// ANCHOR_END: refusal

// ANCHOR: serve
/// Serves until `asked_to_stop`, then ends in order: first the doors, then the runtime.
async fn serve(
    listener: TcpListener,
    runtime: Runtime,
    asked_to_stop: oneshot::Receiver<()>,
) -> Result<(), Box<dyn Error>> {
    let stopped = runtime.stopped();
    let stop = async {
        tokio::select! {
            _ = asked_to_stop => {}
            // A runtime that has failed answers nobody: let go of the clients.
            cause = stopped => println!("the runtime has ended: {cause}"),
        }
    };
    // No new connection; those that are there are answered.
    axum::serve(listener, router(runtime.clone()))
        .with_graceful_shutdown(stop)
        .await?;
    // Nobody asks any more: what was acknowledged is in the file, and the rest goes on at the next start.
    let report = runtime.shutdown().await?;
    println!("{} activities were cut short", report.activities_cut);
    Ok(())
}
// ANCHOR_END: serve

/// A client of few words: one request to a connection.
async fn ask(server: std::net::SocketAddr, request: &str, body: &str) -> Result<String, Box<dyn Error>> {
    let mut stream = TcpStream::connect(server).await?;
    let len = body.len();
    let head = "HTTP/1.1\r\nhost: shop\r\nconnection: close\r\ncontent-type: application/json";
    stream
        .write_all(format!("{request} {head}\r\ncontent-length: {len}\r\n\r\n{body}").as_bytes())
        .await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).unwrap_or_default();
    Ok(format!("{request}: {status} {body}").trim_end().to_owned())
}

/// What the clients of this story do; then the server is asked to stop.
async fn clients(server: std::net::SocketAddr, stop: oneshot::Sender<()>) -> Result<(), Box<dyn Error>> {
    for (request, body) in [
        ("POST /orders/order-1", "1999"),
        ("POST /orders/order-1", "1999"),
        ("GET /orders/order-1", ""),
        ("POST /orders/order-1/confirmation", "\"Ada\""),
        ("GET /orders/order-1/result", ""),
        ("POST /orders/order-1/confirmation", "\"Ada\""),
        ("GET /orders/order-2/result", ""),
        ("POST /orders/order-3", "0"),
        ("GET /orders/order-3/result", ""),
    ] {
        println!("{}", ask(server, request, body).await?);
    }
    stop.send(())
        .map_err(|()| "the server has ended before it was asked to".into())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let runtime = Runtime::volatile().register(ORDER, order).start().await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let server = listener.local_addr()?;
    let (stop, asked_to_stop) = oneshot::channel();
    let (served, answered) = tokio::join!(serve(listener, runtime, asked_to_stop), clients(server, stop));
    answered?;
    served
}
