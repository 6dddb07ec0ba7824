//! The API and the page of millrun in an axum app of your own, under a path of your choice.
//!
//! `cargo run -p millrun-examples --bin console 127.0.0.1:8080` serves until Ctrl-C: look at
//! http://127.0.0.1:8080/millrun. Without an address it asks itself, and ends.

use std::error::Error;
use std::net::SocketAddr;

use axum::Router;
use axum::routing::get;
use millrun::{Runtime, Signal, Workflow, WorkflowContext, WorkflowError};
use millrun_http::{Access, Console, Redaction};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const PAID: Signal<u64> = Signal::named("paid");
const ORDER: Workflow<u64, String> = Workflow::named("order");

async fn order(cx: WorkflowContext, cents: u64) -> Result<String, WorkflowError> {
    let paid = cx.receive(PAID).await?;
    Ok(format!("{paid} of {cents} cents paid"))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let runtime = Runtime::volatile().register(ORDER, order).start().await?;
    runtime.start(ORDER, "order-1", 1_200).await?;

    // Every caller of the loopback address may do everything; `Access::token` tells callers apart.
    let console = Console::new(&runtime, Access::operator()).redact(Redaction::of(["card.number"])?);
    let app = Router::new()
        .route("/", get(|| async { "a shop" }))
        .nest("/millrun", console.router());

    let address = std::env::args().nth(1);
    let listener = TcpListener::bind(address.as_deref().unwrap_or("127.0.0.1:0")).await?;
    let at = listener.local_addr()?;
    let until_done = async move {
        match address {
            Some(_) => tokio::signal::ctrl_c().await.map_err(Into::into),
            None => ask_all(at).await,
        }
    };
    tokio::select! {
        served = async { axum::serve(listener, app).await } => served?,
        done = until_done => done?,
    }
    // The first step of an orderly end would be `console.not_ready()`, so that requests are sent elsewhere.
    runtime.shutdown().await?;
    Ok(())
}

async fn ask_all(at: SocketAddr) -> Result<(), Box<dyn Error>> {
    for path in ["/", "/millrun/v1/ready", "/millrun/v1/instances/order-1/why"] {
        println!("{path}: {}", ask(at, path).await?);
    }
    Ok(())
}

/// Asks over HTTP, and gives the body of the answer.
async fn ask(at: SocketAddr, path: &str) -> Result<String, Box<dyn Error>> {
    let mut stream = TcpStream::connect(at).await?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: {at}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer
        .split_once("\r\n\r\n")
        .map_or("", |(_, body)| body)
        .to_owned())
}
