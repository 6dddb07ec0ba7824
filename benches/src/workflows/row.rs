//! One workload at one level, and the table of all of them.

use serde::Serialize;

use super::{Sample, quantiles};
use crate::{ALLOCATOR, Spread, Table, approximate, grouped};

/// Where a run's history goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Store {
    /// A redb file, synced before each acknowledgement.
    Durable,
    /// Memory only; gone with the process.
    Volatile,
}

impl Store {
    /// As the tables name it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Durable => "fsync",
            Self::Volatile => "in memory",
        }
    }
}

/// One workload at one level of concurrency.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// `millrun`, or `redb` for the bare commit.
    pub engine: &'static str,
    /// What ran.
    pub workload: &'static str,
    /// Activities in one run.
    pub steps: u64,
    /// Where its history went.
    pub store: Store,
    /// Runs at a time.
    pub concurrency: usize,
    /// Worker threads of the async runtime.
    pub threads: usize,
    /// Samples, each on a store of its own.
    pub rounds: usize,
    /// Runs completed in all of them.
    pub completed: u64,
    /// `system` or `mimalloc`.
    pub allocator: &'static str,
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
}

/// What a row is about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Workload {
    pub(super) engine: &'static str,
    pub(super) name: &'static str,
    pub(super) steps: u64,
    pub(super) store: Store,
    pub(super) concurrency: usize,
}

impl Row {
    pub(super) fn new(workload: Workload, threads: usize, samples: &[Sample]) -> Option<Self> {
        let rates: Vec<f64> = samples.iter().map(Sample::per_s).collect();
        let rate = Spread::of(&rates)?;
        let quantile =
            |quantile| Spread::of(&quantiles(samples, quantile)).map_or(0.0, |spread| spread.median);
        Some(Self {
            engine: workload.engine,
            workload: workload.name,
            steps: workload.steps,
            store: workload.store,
            concurrency: workload.concurrency,
            threads,
            rounds: samples.len(),
            completed: samples.iter().map(|sample| sample.completed).sum(),
            allocator: ALLOCATOR,
            median_per_s: rate.median,
            min_per_s: rate.min,
            max_per_s: rate.max,
            p50_us: quantile(0.5),
            p99_us: quantile(0.99),
            p999_us: quantile(0.999),
        })
    }
}

/// One line per row.
#[must_use]
pub fn tables(rows: &[Row]) -> Vec<Table> {
    let mut table = Table::new(
        "Workflows, start to result; medians over the rounds",
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
    vec![table]
}
