//! What was measured, as rows, tables and plots.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::{ALLOCATOR, Axis, BarChart, Chart, LineChart, Spread, Table, approximate, grouped};

/// One contestant in one cell.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// `append`, `fill`, `recovery`, `sustained` or `sustained, by tenth`.
    pub group: &'static str,
    /// Who.
    pub contestant: &'static str,
    /// What an acknowledged event survives: `fsync`, `no fsync` or `memory`.
    pub durability: &'static str,
    /// How many append at a time; for the loops, how many events each commit has.
    pub appenders: usize,
    /// Size of each event's body.
    pub body_bytes: usize,
    /// How far along: events in the file for `fill` and `recovery`, seconds for `sustained`, the
    /// tenth of them for its parts; for `append` as `appenders`.
    pub level: u64,
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
    pub file_bytes_per_event: f64,
    /// Bytes that the process had the disk write, per event; zero where that is not known.
    pub written_bytes_per_event: f64,
    /// Time from an append to its acknowledgement, or of a commit: half stayed within,
    pub p50_us: f64,
    /// 99 in 100 stayed within,
    pub p99_us: f64,
    /// 999 in 1,000 stayed within.
    pub p999_us: f64,
    /// The one over the other; zero if nothing was timed.
    pub p99_over_p50: f64,
    /// The whole distribution: quantile and microseconds, from the middle to the end.
    pub quantiles_us: Vec<(f64, f64)>,
    /// Seconds that the whole took, of the middle sample.
    pub seconds: f64,
    /// Memory of the index at the end; zero where there is none.
    pub index_bytes_used: u64,
    /// Resident memory of the process at the end; zero where it is not known.
    pub resident_bytes_used: u64,
    /// The file over what of it is needed, at the end; zero where nothing is.
    pub file_over_live: f64,
}

/// One sample of a contestant.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) events: u64,
    pub(crate) commits: u64,
    pub(crate) took: Duration,
    pub(crate) file_bytes: u64,
    /// Of the file's bytes, those of runs that are live or retained.
    pub(crate) live_bytes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) index_bytes: u64,
    pub(crate) resident_bytes: u64,
    /// Nanoseconds.
    pub(crate) latency: Histogram<u64>,
}

/// Who did it, and where.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    pub(super) group: &'static str,
    pub(super) contestant: &'static str,
    pub(super) durability: &'static str,
    pub(super) appenders: usize,
    pub(super) body_bytes: usize,
    pub(super) level: u64,
}

impl Row {
    /// Puts the samples of a cell together; `None` without samples.
    pub(super) fn new(cell: Cell, samples: &[Sample]) -> Option<Self> {
        let of = |value: fn(&Sample) -> f64| Spread::of(&samples.iter().map(value).collect::<Vec<_>>());
        let rate = of(|sample| sample.events as f64 / sample.took.as_secs_f64())?;
        let timed = samples
            .iter()
            .map(|sample| sample.latency.len())
            .min()
            .unwrap_or(0);
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
            level: cell.level,
            rounds: samples.len(),
            allocator: ALLOCATOR,
            median_per_s: rate.median,
            min_per_s: rate.min,
            max_per_s: rate.max,
            commits_per_s: of(|sample| sample.commits as f64 / sample.took.as_secs_f64())?.median,
            events_per_commit: of(|sample| sample.events as f64 / sample.commits.max(1) as f64)?.median,
            file_bytes_per_event: of(|sample| sample.file_bytes as f64 / sample.events.max(1) as f64)?.median,
            written_bytes_per_event: of(|sample| sample.written_bytes as f64 / sample.events.max(1) as f64)?
                .median,
            p99_over_p50: if quantile(0.5) > 0.0 {
                quantile(0.99) / quantile(0.5)
            } else {
                0.0
            },
            quantiles_us: Spread::quantiles(timed)
                .map(|share| (share, quantile(share)))
                .filter(|(_, micros)| *micros > 0.0)
                .collect(),
            p50_us: quantile(0.5),
            p99_us: quantile(0.99),
            p999_us: quantile(0.999),
            seconds: of(|sample| sample.took.as_secs_f64())?.median,
            index_bytes_used: samples.iter().map(|sample| sample.index_bytes).max().unwrap_or(0),
            resident_bytes_used: samples
                .iter()
                .map(|sample| sample.resident_bytes)
                .max()
                .unwrap_or(0),
            file_over_live: of(|sample| match sample.live_bytes {
                0 => 0.0,
                live => sample.file_bytes as f64 / live as f64,
            })?
            .median,
        })
    }
}

/// A table per group.
#[must_use]
pub fn tables(rows: &[Row]) -> Vec<Table> {
    let titles = [
        ("append", "One event per append, each waited for", "at a time"),
        (
            "fill",
            "From an empty file: batches of 2,000 turns, 100,000 live runs",
            "events",
        ),
        (
            "recovery",
            "Opening after a kill: events read per second, repair included",
            "events",
        ),
        (
            "sustained",
            "Runs of one step at a fixed pace, retention on: latency is that of a commit",
            "seconds",
        ),
        ("sustained, by tenth", "The same, tenth by tenth", "tenth"),
    ];
    let mut tables = Vec::new();
    for (group, title, level) in titles {
        let header = [
            "who",
            "a crash loses",
            level,
            "body",
            "events/s (min to max)",
            "commits/s",
            "events/commit",
            "p50 us",
            "p99 us",
            "p99.9 us",
            "written B/event",
            "file B/event",
            "index MB",
            "resident MB",
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
                grouped(row.level as f64),
                format!("{} B", row.body_bytes),
                rate(row),
                known(row.commits_per_s),
                known(row.events_per_commit),
                known(row.p50_us),
                known(row.p99_us),
                known(row.p999_us),
                known(row.written_bytes_per_event),
                known(row.file_bytes_per_event),
                known(row.index_bytes_used as f64 / 1e6),
                known(row.resident_bytes_used as f64 / 1e6),
                approximate(row.seconds),
            ]);
        }
        if !table.is_empty() {
            tables.push(table);
        }
    }
    tables
}

fn rate(row: &Row) -> String {
    if row.rounds == 1 {
        return grouped(row.median_per_s);
    }
    format!(
        "{} ({} to {})",
        grouped(row.median_per_s),
        grouped(row.min_per_s),
        grouped(row.max_per_s)
    )
}

/// A figure, or a dash where there is none.
fn known(value: f64) -> String {
    if value == 0.0 {
        return "-".to_owned();
    }
    approximate(value)
}

/// Rates and latencies of the appends, one chart each per body size, and the rate as the file fills.
#[must_use]
pub fn charts(rows: &[Row]) -> Vec<(String, Chart)> {
    let mut charts = Vec::new();
    for body_bytes in [100, 1_024] {
        let appends = || {
            rows.iter()
                .filter(move |row| row.group == "append" && row.body_bytes == body_bytes)
        };
        if appends().next().is_none() {
            continue;
        }
        let mut bars = BarChart::new(format!("Journal, {body_bytes} B events"), "events/s");
        let mut latency = LineChart::new(
            format!("Journal, {body_bytes} B events: time from an append to its durability"),
            Axis::Quantile,
            Axis::Log("us"),
        );
        for row in appends() {
            let who = format!("{}, {}", row.contestant, row.durability);
            let level = format!("{} at a time", grouped(row.level as f64));
            bars.bar(&who, &level, row.median_per_s);
            if row.contestant == "millrun" && row.durability == "fsync" {
                latency.line(&level, row.quantiles_us.clone());
            }
        }
        charts.push((format!("journal-append-{body_bytes}"), bars.logarithmic().into()));
        charts.push((format!("journal-latency-{body_bytes}"), latency.into()));
    }
    let filled = rows.iter().filter(|row| row.group == "fill");
    let points: Vec<_> = filled
        .map(|row| (row.level as f64 / 1e6, row.median_per_s / 1e6))
        .collect();
    if !points.is_empty() {
        let mut chart = LineChart::new(
            "Journal: rate as the file fills",
            Axis::Linear("million events in the file"),
            Axis::Linear("million events/s"),
        );
        chart.line("millrun, 100 B events", points);
        charts.push(("journal-fill".to_owned(), chart.into()));
    }
    charts
}
