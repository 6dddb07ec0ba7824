//! Schedules that sleep, of which a tenth are due in one second: how late their runs have their first effect.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use millrun::builders::Schedule;
use millrun::{ActivityError, Runtime, RuntimeBuilder, Timestamp};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::definitions::{ONE_STEP, STEP, one_step};
use super::waiting::CLIENTS;
use super::{Row, failed, resident_bytes, unless_stopped};
use crate::runs::Sample;
use crate::{BenchError, StoreFolder, store_in, workers};

/// Of ten schedules, one is due.
const DUE_EVERY: u64 = 10;

/// How long all of them may take to be made, before the due ones are due: for each 10,000.
const MADE_WITHIN: Duration = Duration::from_secs(5);

/// How late each first effect was, in microseconds.
#[derive(Default)]
struct Lateness {
    micros: Mutex<Vec<u64>>,
    early_len: AtomicU64,
    has_more: Notify,
}

impl Lateness {
    fn note(&self, due_us: u64, now: Timestamp) {
        let now_us = now.as_micros();
        if now_us < due_us {
            self.early_len.fetch_add(1, Ordering::Relaxed);
        }
        self.lock().push(now_us.saturating_sub(due_us));
        self.has_more.notify_one();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<u64>> {
        self.micros.lock().expect("nobody panics with it")
    }
}

/// Measures `schedules` of them. Memory is that of this process, so each level should have a process of its own.
///
/// # Errors
/// When anything fails, or a run begins early.
pub fn schedules(folder: &Path, schedules: u64, threads: usize) -> Result<Row, BenchError> {
    let store = store_in(folder)?;
    let lateness = Arc::new(Lateness::default());
    let due_len = schedules / DUE_EVERY;
    let (per_s, resident) = workers(threads)?.block_on(async {
        let runtime = open(&store, &lateness).start().await.map_err(failed)?;
        let now_us = runtime.host().now().as_micros();
        let ahead = u64::try_from(MADE_WITHIN.as_micros()).unwrap_or(u64::MAX) * schedules.div_ceil(10_000);
        // A whole second.
        let due = Timestamp::from_micros((now_us + ahead) / 1_000_000 * 1_000_000);
        let started = Instant::now();
        make(&runtime, "due", due_len, due, once).await?;
        make(&runtime, "idle", schedules - due_len, due, in_years).await?;
        let per_s = schedules as f64 / started.elapsed().as_secs_f64();
        if runtime.host().now() >= due {
            return Err(BenchError::failed(
                "millrun",
                "they were due before all were made",
            ));
        }
        let resident = resident_bytes();
        let all = async {
            while (lateness.lock().len() as u64) < due_len {
                lateness.has_more.notified().await;
            }
        };
        unless_stopped(&runtime, all).await?;
        runtime.shutdown().await.map_err(failed)?;
        Ok::<_, BenchError>((per_s, resident))
    })?;
    let early_len = lateness.early_len.load(Ordering::Relaxed);
    if early_len > 0 {
        return Err(BenchError::Wrong {
            contestant: "millrun".into(),
            what: format!("{early_len} runs have begun early"),
        });
    }
    let micros = lateness.lock().clone();
    let last = micros.iter().max().copied().unwrap_or_default();
    let times: Vec<_> = micros.into_iter().map(Duration::from_micros).collect();
    let sample = Sample::of(&times);
    let quantile = |quantile: f64| sample.nanos.value_at_quantile(quantile) as f64 / 1e3;
    let file = std::fs::metadata(store.path().join("store.redb")).map(|file| file.len() as f64);
    Ok(Row {
        p50_us: Some(quantile(0.5)),
        p99_us: Some(quantile(0.99)),
        last_us: Some(last as f64),
        resident_bytes_used: resident.map(|bytes| bytes as f64),
        file_bytes_used: file.ok(),
        ..Row::new("schedules", "schedules", schedules, per_s)
    })
}

fn open(store: &StoreFolder, lateness: &Arc<Lateness>) -> RuntimeBuilder {
    let lateness = Arc::clone(lateness);
    let step = move |cx: millrun::ActivityContext, due_us: u64| async move {
        let runtime = cx
            .runtime()
            .map_err(|cause| ActivityError::retryable(cause.to_string()))?;
        lateness.note(due_us, runtime.host().now());
        Ok::<_, ActivityError>(due_us)
    };
    Runtime::open(store.path().join("store.redb"))
        .register(STEP, step)
        .register(ONE_STEP, one_step)
}

/// Makes as many schedules, of which each is due as this says.
async fn make(
    runtime: &Runtime,
    prefix: &'static str,
    len: u64,
    due: Timestamp,
    timed: for<'a> fn(Schedule<'a>, Timestamp) -> Schedule<'a>,
) -> Result<(), BenchError> {
    let mut clients = JoinSet::new();
    for client in 0..(CLIENTS as u64).min(len) {
        let runtime = runtime.clone();
        clients.spawn(async move {
            for number in (client..len).step_by(CLIENTS) {
                let schedule = runtime.schedule(&format!("{prefix}-{number}"), ONE_STEP, due.as_micros());
                timed(schedule, due).await.map_err(failed)?;
            }
            Ok::<_, BenchError>(())
        });
    }
    while let Some(client) = clients.join_next().await {
        client.map_err(failed)??;
    }
    Ok(())
}

/// Due once, then.
fn once(schedule: Schedule<'_>, due: Timestamp) -> Schedule<'_> {
    schedule
        .every(Duration::from_secs(1))
        .starting_at(due)
        .actions_len_max(1)
}

/// Not due as long as this lasts.
fn in_years(schedule: Schedule<'_>, _due: Timestamp) -> Schedule<'_> {
    schedule.cron("0 0 29 2 *").zone("Europe/Berlin")
}
