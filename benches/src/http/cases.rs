//! What is measured, and how long.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::AsyncReadExt as _;

use super::beside::Beside;
use super::connection::{Connection, Connections, asking, get, post, post_as, post_with};
use super::embedded::embedded_apart;
use super::paced::{Pace, paced};
use super::row::{Row, Summary};
use super::served::Served;
use super::server::{RETAINED_LEN, ServerKind, TICKS};
use crate::runs::{Sample, Saturation, saturate};
use crate::workflows::ONE_STEP;
use crate::{BenchError, Measured, Progress, Spread, interleaved};

/// Connections of a closed loop.
const CONNECTIONS: usize = 256;
/// Connections that send batches, and the lines of a batch.
const BATCH_CONNECTIONS: usize = 4;
const BATCH_LEN: usize = 500;
/// Streams beside starts, and how often each gets an event.
const STREAMS: usize = 1_000;
const EVENT_EVERY: Duration = Duration::from_millis(100);
/// The share of the events due that must have come: streams that fell behind would cost nothing.
const EVENTS_SHARE_MIN: f64 = 0.9;
/// Clients that misbehave.
const SLOW: usize = 2_000;
const STALLED: usize = 50;
/// How long they do before others are timed.
const MISBEHAVED: Duration = Duration::from_secs(1);
/// Starts whose way to the feed is timed, and the pause between them.
const TOLD: usize = 200;
const TOLD_EVERY: Duration = Duration::from_millis(10);
/// Among this number of starts one is traced, where some are.
const TRACED_EVERY: u64 = 100;
/// What memory does before the sustained load is compared: this share of its time.
const SETTLING_SHARE: u32 = 5;

/// As many runs at least, before: retention is reached, and the store's file has more pages than are kept in memory.
const SETTLED_LEN: u64 = 3 * RETAINED_LEN as u64;

/// How much of it.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Worker threads of each server.
    pub threads: usize,
    /// Measured samples of each.
    pub rounds: usize,
    /// How long one takes.
    pub lasts: Duration,
    /// Streams that are open and bring nothing.
    pub idle_streams: usize,
    /// How long the sustained load lasts; none if zero.
    pub sustained: Duration,
}

/// Ids that no start of this process had before.
static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// Measures what has `only` in its name. What fails has no row; the others have.
///
/// # Errors
/// When no async runtime can be started.
pub fn measure(effort: Effort, folder: &Path, only: Option<&str>) -> Result<Measured<Row>, BenchError> {
    let client = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(BenchError::Runtime)?;
    let wanted = |group: &str| only.is_none_or(|only| group.contains(only));
    let bench = Bench {
        effort,
        folder,
        client,
    };
    let progress = Progress::ticking(0);
    let mut measured = Measured::default();
    let mut peak = None;
    if wanted("start") || wanted("paced") {
        progress.running("starts, and what else goes on beside them");
        let rows = bench.starts();
        peak = rows.as_ref().ok().and_then(|rows| rows.get(1)?.median_per_s);
        measured.keep("start", rows);
    }
    if wanted("batches") {
        progress.running("starts in batches");
        measured.keep("batches", bench.batches());
    }
    if let Some(peak) = peak.filter(|_| wanted("paced")) {
        progress.running("starts at a fixed pace");
        measured.keep("paced", bench.paced(peak / 2.0));
    }
    if wanted("told") {
        progress.running("from a start to the feed");
        measured.keep("told", bench.told().map(Some));
    }
    if wanted("idle streams") {
        progress.running("streams that bring nothing");
        measured.keep("idle streams", bench.idle_streams().map(Some));
    }
    if wanted("sustained") && !effort.sustained.is_zero() {
        progress.running("sustained load");
        measured.keep("sustained", bench.sustained().map(Some));
    }
    progress.finish();
    Ok(measured)
}

struct Bench<'a> {
    effort: Effort,
    folder: &'a Path,
    client: tokio::runtime::Runtime,
}

/// What goes on beside starts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Other {
    Nothing,
    Scraping,
    Feed,
    Streams,
    /// Spans are exported, and none of the starts is traced.
    NoTraces,
    /// Spans are exported, and one start of a hundred is traced.
    Traces,
}

impl Bench<'_> {
    fn serve(&self, kind: ServerKind) -> Result<Served, BenchError> {
        Served::start(kind, self.folder, self.effort.threads)
    }

    fn starts(&self) -> Result<Vec<Row>, BenchError> {
        let hello = self.serve(ServerKind::Hello)?;
        let millrun = self.serve(ServerKind::Millrun)?;
        let traced = self.serve(ServerKind::Traced)?;
        let contestants = [
            ("axum's hello world", None),
            ("millrun", Some(Other::Nothing)),
            ("millrun, scraped each second", Some(Other::Scraping)),
            ("millrun, its feed read", Some(Other::Feed)),
            ("millrun, 1,000 streams", Some(Other::Streams)),
            // In one process, so that their stores have the same load behind them.
            ("millrun, none traced", Some(Other::NoTraces)),
            ("millrun, 1 % traced", Some(Other::Traces)),
        ];
        let samples = interleaved(contestants.len(), self.effort.rounds, |place| {
            self.client.block_on(async {
                match contestants[place].1 {
                    None => self.greetings(hello.address).await,
                    Some(other @ (Other::NoTraces | Other::Traces)) => {
                        self.starts_beside(traced.address, other).await
                    }
                    Some(other) => self.starts_beside(millrun.address, other).await,
                }
            })
        })?;
        // It looks whether traced runs were exported.
        traced.end()?;
        let rows = contestants.iter().zip(samples);
        Ok(rows
            .map(|((mode, _), samples)| Row::new("start", mode, CONNECTIONS as u64, &samples))
            .collect())
    }

    fn saturation(&self, concurrency: usize) -> Saturation {
        Saturation {
            concurrency,
            warm_up: self.effort.lasts / 4,
            measured: self.effort.lasts,
            runs_max: u64::MAX,
        }
    }

    async fn greetings(&self, at: SocketAddr) -> Result<Summary, BenchError> {
        let connections = Connections::open(at, CONNECTIONS).await?;
        let sample = saturate(self.saturation(CONNECTIONS), move |_| {
            let connections = connections.clone();
            async move { connections.ask(&get("/")).await }
        });
        Ok(Summary::from(&sample.await?))
    }

    async fn starts_beside(&self, at: SocketAddr, other: Other) -> Result<Summary, BenchError> {
        let mut beside = Beside::default();
        match other {
            Other::Nothing | Other::NoTraces | Other::Traces => {}
            Other::Scraping => beside.scrape(at),
            Other::Feed => beside.read_feed(at).await?,
            Other::Streams => {
                beside.tail(at, STREAMS).await?;
                beside.publish(at, EVENT_EVERY);
            }
        }
        let connections = Connections::open(at, CONNECTIONS).await?;
        let began = Instant::now();
        let traced_every = (other == Other::Traces).then_some(TRACED_EVERY);
        let starts = starting_traced(connections, traced_every);
        let sample = saturate(self.saturation(CONNECTIONS), starts).await?;
        if other == Other::Streams {
            let due = began.elapsed().as_secs_f64() / EVENT_EVERY.as_secs_f64() * STREAMS as f64;
            let came = beside.events() as f64;
            if came < due * EVENTS_SHARE_MIN {
                return Err(BenchError::Wrong {
                    contestant: "millrun".into(),
                    what: format!("{came} of {due:.0} events came to {STREAMS} streams"),
                });
            }
        }
        beside.end().await?;
        Ok(Summary::from(&sample))
    }

    fn batches(&self) -> Result<Vec<Row>, BenchError> {
        let millrun = self.serve(ServerKind::Millrun)?;
        // As many starts are under way at once.
        let clients = BATCH_CONNECTIONS * BATCH_LEN;
        let samples = interleaved(2, self.effort.rounds, |place| match place {
            0 => embedded_apart(clients, None, self.effort.lasts, self.folder, self.effort.threads),
            _ => self.client.block_on(self.start_batches(millrun.address)),
        })?;
        let modes = ["embedded", "millrun"];
        let rows = modes.into_iter().zip(samples);
        Ok(rows
            .map(|(mode, samples)| Row::new("batches", mode, clients as u64, &samples))
            .collect())
    }

    async fn start_batches(&self, at: SocketAddr) -> Result<Summary, BenchError> {
        let connections = Connections::open(at, BATCH_CONNECTIONS).await?;
        let sample = saturate(self.saturation(BATCH_CONNECTIONS), move |_| {
            let connections = connections.clone();
            async move { connections.ask(&batch()).await }
        });
        let summary = Summary::from(&sample.await?);
        Ok(Summary {
            per_s: summary.per_s * BATCH_LEN as f64,
            ..summary
        })
    }

    fn paced(&self, per_s: f64) -> Result<Vec<Row>, BenchError> {
        let millrun = self.serve(ServerKind::Millrun)?;
        let lasts = self.effort.lasts;
        let pace = Pace {
            per_s,
            lasts,
            clients: CONNECTIONS,
        };
        let samples = interleaved(3, self.effort.rounds, |place| match place {
            0 => embedded_apart(CONNECTIONS, Some(per_s), lasts, self.folder, self.effort.threads),
            place => self.client.block_on(async {
                let mut beside = Beside::default();
                if place == 2 {
                    beside.send_slowly(millrun.address, SLOW).await?;
                    beside.stall(millrun.address, STALLED).await?;
                    tokio::time::sleep(MISBEHAVED).await;
                }
                let connections = Connections::open(millrun.address, CONNECTIONS).await?;
                let sample = paced(pace, starting(connections)).await?;
                beside.end().await?;
                Ok(Summary::from(&sample))
            }),
        })?;
        let modes = ["embedded", "millrun", "millrun, 2,000 slow, 50 stalled"];
        let rows = modes.into_iter().zip(samples);
        Ok(rows
            .map(|(mode, samples)| Row::new("paced", mode, CONNECTIONS as u64, &samples))
            .collect())
    }

    /// From the answer to a start to its event in the feed.
    fn told(&self) -> Result<Row, BenchError> {
        let millrun = self.serve(ServerKind::Millrun)?;
        let times = self.client.block_on(async {
            let mut feed = Connection::open(millrun.address)
                .await?
                .stream(&get("/v1/changes"))
                .await?;
            let mut starts = Connection::open(millrun.address).await?;
            let mut times = Vec::new();
            let mut told = String::new();
            let mut bytes = vec![0; 16_384];
            for _ in 0..TOLD {
                let id = next_id();
                starts.ask(&start(&id)).await?;
                let began = Instant::now();
                let wanted = format!("\"{id}\"");
                while !told.contains(&wanted) {
                    let len = feed.read(&mut bytes).await.map_err(asking)?;
                    if len == 0 {
                        return Err(asking("the feed has ended"));
                    }
                    told.push_str(&String::from_utf8_lossy(&bytes[..len]));
                }
                times.push(began.elapsed());
                told.clear();
                tokio::time::sleep(TOLD_EVERY).await;
            }
            Ok::<_, BenchError>(times)
        })?;
        let summary = Summary::from(&Sample::of(&times));
        Ok(Row {
            median_per_s: None,
            range_per_s: None,
            ..Row::new("told", "millrun", 1, &[summary])
        })
    }

    fn idle_streams(&self) -> Result<Row, BenchError> {
        let millrun = self.serve(ServerKind::Millrun)?;
        let streams = self.effort.idle_streams;
        let each = self.client.block_on(async {
            // What the first few need is not counted.
            let mut beside = Beside::default();
            beside.tail(millrun.address, 100).await?;
            settled(&millrun).await?;
            let before = millrun.resident_bytes()?;
            beside.tail(millrun.address, streams).await?;
            settled(&millrun).await?;
            let after = millrun.resident_bytes()?;
            beside.end().await?;
            Ok::<_, BenchError>((after - before) / streams as f64)
        })?;
        Ok(Row {
            resident_bytes_used: Some(each),
            ..Row::empty("idle streams", "millrun", streams as u64)
        })
    }

    /// By how much memory grows under load, once it has settled.
    fn sustained(&self) -> Result<Row, BenchError> {
        let millrun = self.serve(ServerKind::Millrun)?;
        self.client.block_on(async {
            let load = |lasts| Saturation {
                warm_up: Duration::ZERO,
                measured: lasts,
                ..self.saturation(CONNECTIONS)
            };
            let connections = Connections::open(millrun.address, CONNECTIONS).await?;
            let settling = self.effort.sustained / SETTLING_SHARE;
            let settled = saturate(load(settling), starting(connections.clone())).await?;
            if settled.completed < SETTLED_LEN {
                return Err(BenchError::Wrong {
                    contestant: "millrun".into(),
                    what: format!(
                        "after {} runs its memory still grows to its bounds",
                        settled.completed
                    ),
                });
            }
            let mut resident = vec![millrun.resident_bytes()?];
            let mut samples = Vec::new();
            for _ in 1..SETTLING_SHARE {
                samples.push(Summary::from(
                    &saturate(load(settling), starting(connections.clone())).await?,
                ));
                resident.push(millrun.resident_bytes()?);
            }
            let range = Spread::of(&resident).map(|spread| spread.max - spread.min);
            Ok(Row {
                resident_bytes_used: range,
                ..Row::new(
                    "sustained",
                    "millrun, retention reached",
                    CONNECTIONS as u64,
                    &samples,
                )
            })
        })
    }
}

/// Waits until the server has nothing to do for what was asked.
async fn settled(server: &Served) -> Result<(), BenchError> {
    let mut connection = Connection::open(server.address).await?;
    connection.ask(&get("/v1/live")).await?;
    let path = format!("/v1/topics/{}/publish", TICKS.name());
    connection.ask(&post(&path, r#"{"value": 1}"#)).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    Ok(())
}

fn starting(
    connections: Connections,
) -> impl Fn(u64) -> std::pin::Pin<Box<dyn Future<Output = Result<(), BenchError>> + Send>> + Clone + Send + 'static
{
    starting_traced(connections, None)
}

/// Starts of which one among `traced_every` is traced.
fn starting_traced(
    connections: Connections,
    traced_every: Option<u64>,
) -> impl Fn(u64) -> std::pin::Pin<Box<dyn Future<Output = Result<(), BenchError>> + Send>> + Clone + Send + 'static
{
    move |_| {
        let connections = connections.clone();
        Box::pin(async move {
            let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
            let id = id_of(number);
            let request = match traced_every {
                Some(every) if number.is_multiple_of(every) => start_traced(&id, number),
                Some(_) | None => start(&id),
            };
            connections.ask(&request).await
        })
    }
}

fn next_id() -> String {
    id_of(NUMBERS.fetch_add(1, Ordering::Relaxed))
}

fn id_of(number: u64) -> String {
    format!("h-{number}")
}

fn body_of_start() -> String {
    format!(r#"{{"workflow": "{}", "input": 1}}"#, ONE_STEP.name())
}

fn path_of_start(id: &str) -> String {
    format!("/v1/instances/{id}/start")
}

fn start(id: &str) -> Vec<u8> {
    post(&path_of_start(id), &body_of_start())
}

/// A start that a caller with a trace that is recorded asks for.
fn start_traced(id: &str, number: u64) -> Vec<u8> {
    let trace = u128::from(number) + 1;
    let traceparent = format!("traceparent: 00-{trace:032x}-00f067aa0ba902b7-01\r\n");
    post_with(
        &traceparent,
        "application/json",
        &path_of_start(id),
        &body_of_start(),
    )
}

fn batch() -> Vec<u8> {
    let mut lines = String::new();
    for _ in 0..BATCH_LEN {
        let id = next_id();
        lines.push_str(&format!(
            "{{\"id\": \"{id}\", \"workflow\": \"{}\", \"input\": 1}}\n",
            ONE_STEP.name()
        ));
    }
    post_as("application/x-ndjson", "/v1/starts", &lines)
}
