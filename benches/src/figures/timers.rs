//! Timers of many instances that are due within the same second: how late is each, and is one early?
//!
//! A client has a run's result in hand at the time that counts: the timer has fired, the run has gone
//! on to its end, and that is durable.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use millrun::Runtime;
use tokio::task::JoinSet;

use super::Figure;
use super::definitions::{ALARM, registered};
use crate::runs::Sample;
use crate::scale::failed;
use crate::{BenchError, store_in, workers};

pub(super) const NAME: &str = "timers due in one second";
/// Whose timers, and what bars judge of them, by these names.
pub(super) const HOT: &str = "in memory";
pub(super) const COLD: &str = "on disk";
pub(super) const LAST: &str = "late, the last one";
pub(super) const EARLY: &str = "early";

const SECOND_US: u64 = 1_000_000;
/// How long before their second all must have been started; if they are not, twice as long.
const LEAD: Duration = Duration::from_secs(5);
const LEAD_MAX: Duration = Duration::from_secs(80);
/// How many stay in memory where they are to be unloaded.
const HOT_LEN: usize = 64;

/// What came of the timers.
struct Fired {
    /// How late each was.
    late: Sample,
    last_us: u64,
    early: u64,
}

/// `level` timers of instances in memory, and as many of instances on disk.
pub(super) fn measure(folder: &Path, level: u64, threads: usize) -> Result<Vec<Figure>, BenchError> {
    let mut figures = Vec::new();
    for (who, is_hot) in [(HOT, true), (COLD, false)] {
        let fired = fire(folder, level, threads, is_hot)?;
        let late_ms = |quantile: f64| fired.late.nanos.value_at_quantile(quantile) as f64 / 1e6;
        let mut figure = |what: &str, value, unit| {
            figures.push(Figure::new(NAME, level, &of(who, what), value, unit));
        };
        figure("late, p50", late_ms(0.5), "ms");
        figure("late, p99", late_ms(0.99), "ms");
        figure(LAST, fired.last_us as f64 / 1e3, "ms");
        figure(EARLY, fired.early as f64, "timers");
    }
    Ok(figures)
}

pub(super) fn of(who: &str, what: &str) -> String {
    format!("instances {who}: {what}")
}

fn fire(folder: &Path, level: u64, threads: usize, is_hot: bool) -> Result<Fired, BenchError> {
    let mut lead = LEAD;
    while lead <= LEAD_MAX {
        let store = store_in(folder)?;
        let fired = workers(threads)?.block_on(async {
            let builder = Runtime::open(store.path().join("store.redb")).configure(|config| {
                if is_hot {
                    config.hot_bytes_max = usize::MAX;
                } else {
                    config.hot_len_max = HOT_LEN;
                }
            });
            let runtime = registered(builder).start().await.map_err(failed)?;
            let fired = fire_after(&runtime, level, lead, is_hot).await?;
            runtime.shutdown().await.map_err(failed)?;
            Ok::<_, BenchError>(fired)
        })?;
        match fired {
            Some(fired) => return Ok(fired),
            None => lead *= 2,
        }
    }
    Err(failed(format!(
        "{level} instances could not be started in {LEAD_MAX:?}"
    )))
}

/// `None` if not all were started before the first one was due.
async fn fire_after(
    runtime: &Runtime,
    level: u64,
    lead: Duration,
    is_hot: bool,
) -> Result<Option<Fired>, BenchError> {
    let first_us = now_us()? + u64::try_from(lead.as_micros()).map_err(failed)?;
    let waiting = Arc::new(AtomicU64::new(0));
    let mut clients = JoinSet::new();
    for number in 0..level {
        let (runtime, waiting) = (runtime.clone(), Arc::clone(&waiting));
        let deadline_us = first_us + number * SECOND_US / level;
        clients.spawn(async move {
            let id = format!("alarm-{number}");
            let run = runtime.start(ALARM, &id, deadline_us).await.map_err(failed)?;
            waiting.fetch_add(1, Ordering::Relaxed);
            let woke_us = run.result().await.map_err(failed)?;
            Ok::<_, BenchError>((deadline_us, woke_us, now_us()?))
        });
    }
    let before_us = first_us.saturating_sub(now_us()?).saturating_sub(100_000);
    tokio::time::sleep(Duration::from_micros(before_us)).await;
    let stats = runtime.stats();
    let is_ready = waiting.load(Ordering::Relaxed) == level;
    let (mut times, mut early, mut last_us) = (Vec::new(), 0, 0);
    while let Some(client) = clients.join_next().await {
        let (deadline_us, woke_us, received_us) = client.map_err(failed)??;
        let late_us = received_us.saturating_sub(deadline_us);
        early += u64::from(woke_us < deadline_us || received_us < deadline_us);
        last_us = late_us.max(last_us);
        times.push(Duration::from_micros(late_us));
    }
    if !is_ready {
        return Ok(None);
    }
    if is_hot && stats.hot < level || !is_hot && stats.hot > 2 * HOT_LEN as u64 {
        let what = format!("{} of {level} instances were in memory", stats.hot);
        return Err(BenchError::Wrong {
            contestant: "millrun".into(),
            what,
        });
    }
    Ok(Some(Fired {
        late: Sample::of(&times),
        last_us,
        early,
    }))
}

fn now_us() -> Result<u64, BenchError> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_err(failed)?;
    u64::try_from(now.as_micros()).map_err(failed)
}
