//! A process is killed in the middle of its work; how long until the next one accepts a start?
//!
//! ```text
//!   fill:  instances of 100 events each, and clients that go on ──► "full" ──► kill -9
//!   open:  process begins ── file repaired, log read, histories folded ── first start accepted
//!          └──────────────────────────── this is timed, from outside ─────────────────────┘
//! ```
//!
//! The file is in the system's cache, as it is after a crash of the process.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use millrun::{Runtime, RuntimeBuilder};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use super::definitions::{LONG, ONE_STEP, registered};
use super::{Figure, Subject};
use crate::scale::{failed, unless_stopped};
use crate::{BenchError, store_in, workers};

pub(super) const NAME: &str = "recovery after a kill";
/// What bars judge, by these names.
pub(super) const FIRST_START: &str = "from process start to the first accepted start";
pub(super) const RATE: &str = "events recovered per second";

/// Events of each instance, at least: two for each step, and its beginning.
const EVENTS_PER_INSTANCE: u64 = 100;
const STEPS: u64 = EVENTS_PER_INSTANCE / 2;
/// Clients that start the instances.
const CLIENTS: u64 = 1_024;
/// Clients that are still at work when the process is killed.
const AT_WORK: u64 = 32;

/// What the process that comes after the kill says of itself.
#[derive(Debug, Serialize, Deserialize)]
struct Opened {
    live: u64,
    events: u64,
    seconds: f64,
    is_repaired: bool,
    damaged: usize,
}

/// Fills a store with `level` events, kills who filled it, and opens it again.
pub(super) fn measure(folder: &Path, level: u64, threads: usize) -> Result<Vec<Figure>, BenchError> {
    let store = store_in(folder)?;
    let instances = instances(level);
    let (fill, _) = begun(Subject::RecoveryFill, level, store.path(), threads)?;
    // Killed when it goes out of scope, here.
    drop(fill);
    let file = std::fs::metadata(store.path().join("store.redb")).map_err(failed)?;
    let started = Instant::now();
    let (open, said) = begun(Subject::RecoveryOpen, level, store.path(), threads)?;
    let took = started.elapsed();
    drop(open);
    let opened: Opened = serde_json::from_str(&said)?;
    if opened.live < instances || opened.events < level || opened.damaged > 0 || !opened.is_repaired {
        return Err(BenchError::Wrong {
            contestant: "millrun".into(),
            what: format!("{instances} instances with {level} events were filled in, found {opened:?}"),
        });
    }
    let figure = |what, value, unit| Figure::new(NAME, level, what, value, unit);
    Ok(vec![
        figure("live instances", opened.live as f64, "instances"),
        figure("size of the file", file.len() as f64, "bytes"),
        figure("events recovered", opened.events as f64, "events"),
        figure(FIRST_START, took.as_secs_f64(), "s"),
        figure("of that, to open and recover", opened.seconds, "s"),
        figure(RATE, opened.events as f64 / opened.seconds, "events/s"),
    ])
}

fn instances(level: u64) -> u64 {
    level / EVENTS_PER_INSTANCE
}

/// A process that is killed when this is dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It cannot have ended by itself before its standard input ends.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Begins a process and waits for the line that it says.
fn begun(
    subject: Subject,
    level: u64,
    folder: &Path,
    threads: usize,
) -> Result<(Killed, String), BenchError> {
    let mut command = subject.command(level, folder, threads)?;
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = Killed(command.spawn().map_err(failed)?);
    let mut said = String::new();
    if let Some(output) = child.0.stdout.take() {
        BufReader::new(output).read_line(&mut said).map_err(failed)?;
    }
    if said.is_empty() {
        return Err(failed("the process ended before it was killed"));
    }
    Ok((child, said))
}

/// Says a line, and waits to be killed, or for the end of the process that would have done it.
fn say_and_wait(line: &str) -> Result<(), BenchError> {
    println!("{line}");
    std::io::stdout().flush().map_err(failed)?;
    let mut nothing = Vec::new();
    std::io::stdin()
        .read_to_end(&mut nothing)
        .map(drop)
        .map_err(failed)
}

fn opened(folder: &Path) -> RuntimeBuilder {
    registered(Runtime::open(folder.join("store.redb")))
}

/// Fills a store in `folder`, and works on it until it is killed.
pub(super) fn fill(folder: &Path, level: u64, threads: usize) -> Result<(), BenchError> {
    let instances = instances(level);
    workers(threads)?.block_on(async {
        // None is unloaded while it is filled: that would only take longer.
        let builder = opened(folder).configure(|config| {
            config.hot_len_max = usize::MAX;
            config.hot_bytes_max = usize::MAX;
        });
        let runtime = builder.start().await.map_err(failed)?;
        let mut clients = JoinSet::new();
        for client in 0..CLIENTS.min(instances) {
            let runtime = runtime.clone();
            clients.spawn(async move {
                for number in (client..instances).step_by(CLIENTS.try_into().map_err(failed)?) {
                    let id = format!("long-{number}");
                    runtime.start(LONG, &id, STEPS).await.map_err(failed)?;
                }
                Ok::<_, BenchError>(())
            });
        }
        while let Some(client) = clients.join_next().await {
            client.map_err(failed)??;
        }
        let filled = async {
            while runtime.stats().events < instances * (1 + 2 * STEPS) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        unless_stopped(&runtime, filled).await?;
        for client in 0..AT_WORK {
            let runtime = runtime.clone();
            clients.spawn(async move {
                for number in 0_u64.. {
                    let id = format!("short-{client}-{number}");
                    let run = runtime.start(ONE_STEP, &id, number).await.map_err(failed)?;
                    run.result().await.map_err(failed)?;
                }
                Ok::<_, BenchError>(())
            });
        }
        tokio::task::spawn_blocking(|| say_and_wait("full"))
            .await
            .map_err(failed)?
    })
}

/// Opens the store in `folder`, has a start accepted, and says so.
pub(super) fn open(folder: &Path, threads: usize) -> Result<(), BenchError> {
    workers(threads)?.block_on(async {
        let runtime = opened(folder).start().await.map_err(failed)?;
        runtime.start(ONE_STEP, "first", 1).await.map_err(failed)?;
        let report = runtime.startup_report();
        let opened = Opened {
            live: report.live,
            events: report.events,
            seconds: report.elapsed.as_secs_f64(),
            is_repaired: report.is_repaired,
            damaged: report.damaged.len(),
        };
        let line = serde_json::to_string(&opened)?;
        tokio::task::spawn_blocking(move || say_and_wait(&line))
            .await
            .map_err(failed)?
    })
}
