//! What was measured, as rows, tables and plots.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::{ALLOCATOR, BarChart, Spread, Table, approximate, grouped};

/// One contestant in one cell.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// `append`, `fill`, `recovery` or `sustained`.
    pub group: &'static str,
    /// Who.
    pub contestant: &'static str,
    /// What an acknowledged event survives: `fsync`, `no fsync` or `memory`.
    pub durability: &'static str,
    /// How many append at a time; for the loops, how many events each commit has.
    pub appenders: usize,
    /// Size of each event's body.
    pub body_bytes: usize,
    /// How many samples were taken.
    pub rounds: usize,
    /// `system` or `mimalloc`.
    pub allocator: &'static str,
    /// Events per second: of the middle sample,
    pub median_per_s: f64,
    /// of the slowest,
    pub min_per_s: f64,
    /// and of the fastest.
    pub max_per_s: f64,
    /// Commits per second, of the middle sample.
    pub commits_per_s: f64,
    /// Events per commit, of the middle sample.
    pub events_per_commit: f64,
    /// Bytes of the file per event; zero without a file.
    pub bytes_per_event: f64,
    /// Time from an append to its acknowledgement, or of a commit: half stayed within,
    pub p50_us: f64,
    /// 99 in 100 stayed within,
    pub p99_us: f64,
    /// 999 in 1,000 stayed within.
    pub p999_us: f64,
    /// Seconds that the whole took, of the middle sample.
    pub seconds: f64,
    /// Memory of the index at the end; zero where there is none.
    pub index_bytes: u64,
}

/// One sample of a contestant.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) events: u64,
    pub(super) commits: u64,
    pub(super) took: Duration,
    pub(super) file_bytes: u64,
    pub(super) index_bytes: u64,
    /// Nanoseconds.
    pub(super) latency: Histogram<u64>,
}

/// Who did it, and where.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    pub(super) group: &'static str,
    pub(super) contestant: &'static str,
    pub(super) durability: &'static str,
    pub(super) appenders: usize,
    pub(super) body_bytes: usize,
}

impl Row {
    /// Puts the samples of a cell together; `None` without samples.
    pub(super) fn new(cell: Cell, samples: &[Sample]) -> Option<Self> {
        let of = |value: fn(&Sample) -> f64| Spread::of(&samples.iter().map(value).collect::<Vec<_>>());
        let rate = of(|sample| sample.events as f64 / sample.took.as_secs_f64())?;
        let quantile = |quantile: f64| {
            let values: Vec<_> = samples
                .iter()
                .map(|sample| sample.latency.value_at_quantile(quantile) as f64 / 1e3)
                .collect();
            Spread::of(&values).map_or(0.0, |spread| spread.median)
        };
        Some(Self {
            group: cell.group,
            contestant: cell.contestant,
            durability: cell.durability,
            appenders: cell.appenders,
            body_bytes: cell.body_bytes,
            rounds: samples.len(),
            allocator: ALLOCATOR,
            median_per_s: rate.median,
            min_per_s: rate.min,
            max_per_s: rate.max,
            commits_per_s: of(|sample| sample.commits as f64 / sample.took.as_secs_f64())?.median,
            events_per_commit: of(|sample| sample.events as f64 / sample.commits.max(1) as f64)?.median,
            bytes_per_event: of(|sample| sample.file_bytes as f64 / sample.events.max(1) as f64)?.median,
            p50_us: quantile(0.5),
            p99_us: quantile(0.99),
            p999_us: quantile(0.999),
            seconds: of(|sample| sample.took.as_secs_f64())?.median,
            index_bytes: samples.iter().map(|sample| sample.index_bytes).max().unwrap_or(0),
        })
    }
}

/// A table per group.
#[must_use]
pub fn tables(rows: &[Row]) -> Vec<Table> {
    let titles = [
        ("append", "One event per append, each waited for"),
        (
            "fill",
            "From an empty file: batches of 2,000 turns, 100,000 live runs",
        ),
        (
            "recovery",
            "Opening after a kill: events read per second, repair included",
        ),
        (
            "sustained",
            "Runs of one step at a fixed pace, settling on: latency is that of a commit",
        ),
    ];
    let mut tables = Vec::new();
    for (group, title) in titles {
        let header = [
            "who",
            "a crash loses",
            "appenders",
            "body",
            "events/s (min to max)",
            "events/commit",
            "p50 us",
            "p99 us",
            "p99.9 us",
            "file B/event",
            "s",
        ];
        let mut table = Table::new(title, 2, header);
        for row in rows.iter().filter(|row| row.group == group) {
            table.line([
                row.contestant.to_owned(),
                match row.durability {
                    "fsync" => "nothing".to_owned(),
                    _ => "everything".to_owned(),
                },
                grouped(row.appenders as f64),
                format!("{} B", row.body_bytes),
                format!(
                    "{} ({} to {})",
                    grouped(row.median_per_s),
                    grouped(row.min_per_s),
                    grouped(row.max_per_s)
                ),
                approximate(row.events_per_commit),
                approximate(row.p50_us),
                approximate(row.p99_us),
                approximate(row.p999_us),
                approximate(row.bytes_per_event),
                approximate(row.seconds),
            ]);
        }
        if !table.is_empty() {
            tables.push(table);
        }
    }
    tables
}

/// Rates of the appends, one chart per body size.
#[must_use]
pub fn charts(rows: &[Row]) -> Vec<(String, BarChart)> {
    let mut charts = Vec::new();
    for body_bytes in [100, 1_024] {
        let mut chart = BarChart::new(format!("Journal, {body_bytes} B events"), "thousand events/s");
        let mut is_empty = true;
        for row in rows
            .iter()
            .filter(|row| row.group == "append" && row.body_bytes == body_bytes)
        {
            let who = format!("{}, {}", row.contestant, row.durability);
            chart.bar(
                &who,
                &format!("{} at a time", grouped(row.appenders as f64)),
                row.median_per_s / 1e3,
            );
            is_empty = false;
        }
        if !is_empty {
            charts.push((format!("journal-append-{body_bytes}"), chart));
        }
    }
    charts
}
