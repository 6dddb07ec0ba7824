//! The same starts by a program that holds the runtime itself, in a process of its own.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use millrun::Runtime;

use super::connection::asking;
use super::paced::{Pace, paced};
use super::row::Summary;
use super::server::open;
use crate::runs::{Saturation, saturate};
use crate::scale::failed;
use crate::workflows::ONE_STEP;
use crate::{BenchError, store_in, workers};

/// What such a program does.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Embedded {
    /// Starts runs in this process, by this number of clients.
    #[arg(long, value_name = "CLIENTS")]
    pub embedded: Option<usize>,
    /// Starts a second; without it, each client starts its next run when the last start is answered.
    #[arg(long, value_name = "RATE", requires = "embedded")]
    pub embedded_per_s: Option<f64>,
    /// How long the starts go on, in milliseconds.
    #[arg(long, value_name = "TIME", default_value_t = 2_000)]
    pub embedded_ms: u64,
}

/// Starts one-step runs, and gives what the starts took as JSON.
///
/// # Errors
/// When the runtime refuses anything.
pub fn embedded(
    asked: Embedded,
    clients: usize,
    folder: &Path,
    threads: usize,
) -> Result<String, BenchError> {
    let store = store_in(folder)?;
    workers(threads)?.block_on(async {
        let runtime = open(store.path()).await?;
        let lasts = Duration::from_millis(asked.embedded_ms);
        let starting = {
            let runtime = runtime.clone();
            move |number| start_one(runtime.clone(), number)
        };
        let sample = match asked.embedded_per_s {
            Some(per_s) => {
                let pace = Pace {
                    per_s,
                    lasts,
                    clients,
                };
                paced(pace, starting).await?
            }
            None => {
                let load = Saturation {
                    concurrency: clients,
                    warm_up: lasts / 4,
                    measured: lasts,
                    runs_max: u64::MAX,
                };
                saturate(load, starting).await?
            }
        };
        runtime.shutdown().await.map_err(failed)?;
        Ok(serde_json::to_string(&Summary::from(&sample))?)
    })
}

/// Starts the run of a number; it is durable then, and its step is yet to come.
async fn start_one(runtime: Runtime, number: u64) -> Result<(), BenchError> {
    let start = runtime.start(ONE_STEP, &format!("e-{number}"), number);
    start.await.map(drop).map_err(failed)
}

/// One round of such a process.
pub(super) fn embedded_apart(
    clients: usize,
    per_s: Option<f64>,
    lasts: Duration,
    folder: &Path,
    threads: usize,
) -> Result<Summary, BenchError> {
    let mut command = Command::new(std::env::current_exe().map_err(asking)?);
    command
        .args(["--embedded", &clients.to_string()])
        .args(["--embedded-ms", &lasts.as_millis().to_string()])
        .args(["--threads", &threads.to_string(), "--out"])
        .arg(folder);
    if let Some(per_s) = per_s {
        command.args(["--embedded-per-s", &per_s.to_string()]);
    }
    let output = command.output().map_err(asking)?;
    if output.status.success() {
        return Ok(serde_json::from_slice(&output.stdout)?);
    }
    Err(BenchError::failed(
        "the embedded runtime",
        String::from_utf8_lossy(&output.stderr).trim(),
    ))
}
