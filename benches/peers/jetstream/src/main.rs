//! How many messages a second does JetStream make durable, as `bench-topics` asks it: publishers that each wait until their
//! message is on disk?
//!
//! Starts `nats-server`, which must be in the PATH, with one stream in files of the folder, each message synced
//! (`sync_interval: always`), and prints what came of it as one line of JSON. Publishers share a connection, as its client
//! means it: the replies tell their messages apart.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::jetstream;
use async_nats::jetstream::stream::{Config, StorageType};
use clap::Parser;
use millrun_benches::runs::{Sample, Saturation, saturate};
use millrun_benches::{BenchError, end_with_parent, exit, store_in, workers};
use tokio::process::{Child, Command};

/// How long the server may take to listen.
const START_MAX: Duration = Duration::from_secs(20);
/// How often it is looked whether it does.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const SUBJECT: &str = "bench.records";

/// Publishes for so long to a stream in files of this folder.
#[derive(Debug, Parser)]
struct Arguments {
    /// Where the stream's files go, in a folder that is removed again.
    #[arg(long)]
    out: PathBuf,
    #[arg(long)]
    milliseconds: u64,
    #[arg(long)]
    publishers: usize,
    /// Size of each message.
    #[arg(long)]
    body_bytes: usize,
    #[arg(long)]
    threads: usize,
}

fn main() -> ExitCode {
    end_with_parent();
    exit(measure(&Arguments::parse()))
}

fn measure(arguments: &Arguments) -> Result<(), BenchError> {
    let folder = store_in(&arguments.out)?;
    let sample = workers(arguments.threads)?.block_on(async {
        let (mut server, url) = serve(folder.path()).await?;
        let sample = publish(&url, arguments).await;
        server.kill().await.map_err(failed)?;
        sample
    })?;
    let micros = |quantile| sample.nanos.value_at_quantile(quantile) as f64 / 1e3;
    let summary = serde_json::json!({
        "per_s": sample.per_s(),
        "p50_us": micros(0.5),
        "p95_us": micros(0.95),
        "p99_us": micros(0.99),
    });
    println!("{summary}");
    Ok(())
}

/// Starts a server on a port of its choice; it ends with the child.
async fn serve(folder: &Path) -> Result<(Child, String), BenchError> {
    let config = folder.join("server.conf");
    let text = format!(
        "listen: \"127.0.0.1:-1\"\nports_file_dir: {folder:?}\njetstream {{\n  store_dir: {:?}\n  sync_interval: always\n}}\n",
        folder.join("stream")
    );
    std::fs::write(&config, text).map_err(failed)?;
    let mut server = Command::new("nats-server")
        .arg("--config")
        .arg(&config)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| failed(format!("nats-server was not started: {error}")))?;
    let began = Instant::now();
    while began.elapsed() < START_MAX {
        if let Some(ended) = server.try_wait().map_err(failed)? {
            return Err(failed(format!("nats-server has ended: {ended}")));
        }
        if let Some(url) = listening_at(folder) {
            return Ok((server, url));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Err(failed("nats-server does not listen"))
}

/// What the server says of itself, once it listens.
fn listening_at(folder: &Path) -> Option<String> {
    let files = std::fs::read_dir(folder).ok()?.flatten();
    let mut ports = files.filter(|file| file.path().extension().is_some_and(|ending| ending == "ports"));
    let text = std::fs::read(ports.next()?.path()).ok()?;
    let ports: serde_json::Value = serde_json::from_slice(&text).ok()?;
    Some(ports["nats"][0].as_str()?.to_owned())
}

async fn publish(url: &str, arguments: &Arguments) -> Result<Sample, BenchError> {
    let client = async_nats::connect(url).await.map_err(failed)?;
    // More than there are publishers, so that none waits for another.
    let context = jetstream::ContextBuilder::new()
        .max_ack_inflight(2 * arguments.publishers)
        .build(client);
    let stream = Config {
        name: "bench".into(),
        subjects: vec![SUBJECT.into()],
        storage: StorageType::File,
        num_replicas: 1,
        ..Config::default()
    };
    context.create_stream(stream).await.map_err(failed)?;
    let load = Saturation {
        concurrency: arguments.publishers,
        warm_up: Duration::ZERO,
        measured: Duration::from_millis(arguments.milliseconds),
        runs_max: u64::MAX,
    };
    let source = Arc::new((context, vec![b'm'; arguments.body_bytes]));
    saturate(load, move |_| {
        let source = Arc::clone(&source);
        async move {
            let (context, body) = &*source;
            let sent = context.publish(SUBJECT, body.clone().into()).await.map_err(failed)?;
            sent.await.map(drop).map_err(failed)
        }
    })
    .await
}

fn failed(error: impl Display) -> BenchError {
    BenchError::failed("JetStream", error)
}
