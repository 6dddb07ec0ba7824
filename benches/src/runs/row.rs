//! One workload at one level, and the table of all of them.

use serde::{Deserialize, Serialize};

use super::Sample;
use crate::{ALLOCATOR, Axis, BarChart, Chart, LineChart, Spread, Table, approximate, grouped};

/// Where a run's history goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Store {
    /// A redb file, synced before each acknowledgement.
    Durable,
    /// A redb file, synced at least every 100 ms: a crash loses at most that.
    Relaxed,
    /// A file that survives a killed process, but is not synced before each acknowledgement.
    Unsynced,
    /// Memory only; gone with the process.
    Volatile,
}

impl Store {
    /// As the tables name it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Durable => "fsync",
            Self::Relaxed => "relaxed",
            Self::Unsynced => "no sync",
            Self::Volatile => "in memory",
        }
    }
}

/// A workload at a level of concurrency: what a row is about.
#[derive(Clone, Debug)]
pub struct Level {
    /// Who runs it.
    pub engine: String,
    /// Its version.
    pub version: String,
    /// What runs.
    pub workload: String,
    /// Activities in one run.
    pub steps: u64,
    /// Where its history goes.
    pub store: Store,
    /// Runs at a time.
    pub concurrency: usize,
    /// Worker threads of the async runtime.
    pub threads: usize,
}

/// One workload at one level of concurrency.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// `millrun`, `redb` for the bare commit, `floor` for the least program, or whose published figure this is.
    pub engine: String,
    /// Its version; absent where it was not published.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// What ran.
    pub workload: String,
    /// Activities in one run.
    pub steps: u64,
    /// Where its history went.
    pub store: Store,
    /// `here`, or the machine that a published figure was measured on.
    pub machine: String,
    /// Runs at a time.
    pub concurrency: usize,
    /// Worker threads of the async runtime; 0 if unknown.
    pub threads: usize,
    /// Samples, each on a store of its own; 0 if unknown.
    pub rounds: usize,
    /// Runs completed in all of them.
    pub completed: u64,
    /// `system` or `mimalloc`.
    pub allocator: String,
    /// Runs per second: of the middle sample,
    pub median_per_s: f64,
    /// of the slowest,
    pub min_per_s: f64,
    /// and of the fastest.
    pub max_per_s: f64,
    /// The time from start to result that half of the runs stayed within, in microseconds: of
    /// the middle sample.
    pub p50_us: f64,
    /// The same for 99 in 100.
    pub p99_us: f64,
    /// The same for 999 in 1,000.
    pub p999_us: f64,
    /// The whole distribution: quantiles with their microseconds, from the middle to the end.
    #[serde(default)]
    pub quantiles_us: Vec<(f64, f64)>,
}

impl Row {
    /// Puts together the samples of a level; `None` if there are none.
    #[must_use]
    pub fn new(level: &Level, samples: &[Sample]) -> Option<Self> {
        let rates: Vec<f64> = samples.iter().map(Sample::per_s).collect();
        let rate = Spread::of(&rates)?;
        let timed = samples.iter().map(|sample| sample.nanos.len()).min().unwrap_or(0);
        let quantile = |quantile: f64| {
            let times: Vec<f64> = samples
                .iter()
                .map(|sample| sample.nanos.value_at_quantile(quantile) as f64 / 1e3)
                .collect();
            Spread::of(&times).map_or(0.0, |spread| spread.median)
        };
        Some(Self {
            engine: level.engine.clone(),
            version: level.version.clone(),
            workload: level.workload.clone(),
            steps: level.steps,
            store: level.store,
            machine: "here".into(),
            concurrency: level.concurrency,
            threads: level.threads,
            rounds: samples.len(),
            completed: samples.iter().map(|sample| sample.completed).sum(),
            allocator: ALLOCATOR.into(),
            median_per_s: rate.median,
            min_per_s: rate.min,
            max_per_s: rate.max,
            p50_us: quantile(0.5),
            p99_us: quantile(0.99),
            p999_us: quantile(0.999),
            quantiles_us: Spread::quantiles(timed)
                .map(|share| (share, quantile(share)))
                .collect(),
        })
    }

    /// A figure that another project published: seconds per run, synced on each commit.
    #[must_use]
    pub fn published(engine: &str, workload: String, steps: u64, machine: &str, seconds: f64) -> Self {
        let (per_s, us) = (1.0 / seconds, seconds * 1e6);
        Self {
            engine: engine.into(),
            version: String::new(),
            workload,
            steps,
            store: Store::Durable,
            machine: machine.into(),
            concurrency: 1,
            threads: 0,
            rounds: 0,
            completed: 0,
            allocator: "unknown".into(),
            median_per_s: per_s,
            min_per_s: per_s,
            max_per_s: per_s,
            p50_us: us,
            p99_us: us,
            p999_us: us,
            quantiles_us: Vec::new(),
        }
    }
}

/// One line per row.
#[must_use]
pub fn table(title: &str, rows: &[Row]) -> Table {
    let threads = rows.first().map_or(0, |row| row.threads);
    let mut table = Table::new(
        format!("{title}; {threads} worker threads, medians over the rounds"),
        2,
        [
            "workload",
            "store",
            "at a time",
            "per second (slowest to fastest)",
            "p50 us",
            "p99 us",
            "p99.9 us",
        ],
    );
    for row in rows {
        table.line([
            format!("{} {}", row.engine, row.workload),
            row.store.name().into(),
            grouped(row.concurrency as f64),
            format!(
                "{} ({} to {})",
                approximate(row.median_per_s),
                approximate(row.min_per_s),
                approximate(row.max_per_s)
            ),
            approximate(row.p50_us),
            approximate(row.p99_us),
            approximate(row.p999_us),
        ]);
    }
    table
}

/// Rates by workload and level, and how long single runs took: one chart each.
#[must_use]
pub fn charts(suite: &str, title: &str, rows: &[Row]) -> Vec<(String, Chart)> {
    let mut rates = BarChart::new(format!("{title}: runs per second"), "runs/s").logarithmic();
    let mut times = LineChart::new(
        format!("{title}: time of a run, at the most runs at a time"),
        Axis::Quantile,
        Axis::Log("us"),
    );
    let most = |row: &Row| {
        let same = |other: &&Row| other.workload == row.workload && other.store == row.store;
        rows.iter().filter(same).map(|other| other.concurrency).max()
    };
    for row in rows.iter().filter(|row| row.steps > 0) {
        let name = format!("{}, {}", row.workload, row.store.name());
        let level = match row.concurrency {
            1 => "one at a time".to_owned(),
            level => format!("{} at a time", grouped(level as f64)),
        };
        let shape = if row.engine == "millrun" {
            level
        } else {
            format!("{}, {level}", row.engine)
        };
        rates.bar(&name, &shape, row.median_per_s);
        if most(row) == Some(row.concurrency) {
            let name = match row.engine.as_str() {
                "floor" => format!("floor of {name}"),
                _ => name,
            };
            times.line(&name, row.quantiles_us.iter().copied());
        }
    }
    let mut charts = vec![(suite.to_owned(), rates.into())];
    if !times.is_empty() {
        charts.push((format!("{suite}-latency"), times.into()));
    }
    charts
}
