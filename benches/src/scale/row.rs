//! One point of a curve.

use serde::{Deserialize, Serialize};

use crate::{ALLOCATOR, Axis, Chart, LineChart, Table, approximate, grouped};

/// What was measured at one level.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Which curve: `waiting`, `finding`, `finding parked`, `finding failed`, `history`, `checkpoints`, `journal`, `threads`, `payload`, `schedules`, `preflight` or `sustained`.
    pub group: String,
    /// What grows along it, with its unit.
    pub axis: String,
    /// How far along.
    pub level: u64,
    /// `system` or `mimalloc`.
    pub allocator: String,
    /// Runs, instances or steps per second.
    pub median_per_s: f64,
    /// The time of a single operation (a wake, a run), in microseconds, where it was timed: half
    /// stayed within it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_us: Option<f64>,
    /// The same for 99 in 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<f64>,
    /// The same for the last of all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_us: Option<f64>,
    /// How long a shard took meanwhile to answer another caller, for 99 in 100, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meanwhile_p99_us: Option<f64>,
    /// From opening the store again to being ready, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reopen_us: Option<f64>,
    /// Resident memory of the whole process, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resident_bytes_used: Option<f64>,
    /// Size of the store's file, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_bytes_used: Option<f64>,
}

impl Row {
    pub(super) fn new(group: &str, axis: &str, level: u64, median_per_s: f64) -> Self {
        Self {
            group: group.into(),
            axis: axis.into(),
            level,
            allocator: ALLOCATOR.into(),
            median_per_s,
            p50_us: None,
            p99_us: None,
            last_us: None,
            meanwhile_p99_us: None,
            reopen_us: None,
            resident_bytes_used: None,
            file_bytes_used: None,
        }
    }
}

/// One table per curve.
#[must_use]
pub fn tables(rows: &[Row]) -> Vec<Table> {
    let mut groups: Vec<&str> = Vec::new();
    for row in rows {
        if !groups.contains(&row.group.as_str()) {
            groups.push(&row.group);
        }
    }
    groups.iter().map(|group| curve(group, rows)).collect()
}

fn curve(group: &str, rows: &[Row]) -> Table {
    let rows = rows.iter().filter(|row| row.group == group);
    let axis = rows
        .clone()
        .next()
        .map_or_else(String::new, |row| row.axis.clone());
    let columns: [Column; 9] = [
        (&axis, 1.0, |row| Some(row.level as f64)),
        ("per second", 1.0, |row| Some(row.median_per_s)),
        ("p50 us", 1.0, |row| row.p50_us),
        ("p99 us", 1.0, |row| row.p99_us),
        ("last ms", 1e3, |row| row.last_us),
        ("others p99 us", 1.0, |row| row.meanwhile_p99_us),
        ("reopen ms", 1e3, |row| row.reopen_us),
        ("resident MB", 1e6, |row| row.resident_bytes_used),
        ("file MB", 1e6, |row| row.file_bytes_used),
    ];
    // What is not measured along this curve has no column.
    let columns: Vec<&Column> = columns
        .iter()
        .filter(|(_, _, figure)| rows.clone().any(|row| figure(row).is_some()))
        .collect();
    let what = WHAT
        .iter()
        .find(|(of, _)| *of == group)
        .map_or("", |(_, what)| *what);
    let header = columns.iter().map(|(name, ..)| *name);
    let mut table = Table::new(format!("Scaling: {group}, fsync; {what}"), 0, header);
    for row in rows {
        table.line(columns.iter().enumerate().map(|(place, (_, unit, figure))| {
            figure(row).map_or_else(
                || "-".into(),
                |value| {
                    if place == 0 {
                        grouped(value)
                    } else {
                        approximate(value / unit)
                    }
                },
            )
        }));
    }
    table
}

/// A column of a table: its name, in what its figure is told, and the figure.
type Column<'a> = (&'a str, f64, fn(&Row) -> Option<f64>);

/// What was done along each curve.
const WHAT: [(&str, &str); 11] = [
    (
        "waiting",
        "started per second, then a signal to one of them until its result, then all of them reopened",
    ),
    (
        "finding",
        "pages of 100 by six filters, of which two look at all instances; others ask the shards meanwhile",
    ),
    ("finding parked", "pages of the ten that are parked"),
    ("finding failed", "pages of the ten that failed, the first of all"),
    (
        "history",
        "steps per second in sequence, then the store reopened and a signal that the whole history is replayed for",
    ),
    (
        "checkpoints",
        "signals to one run that makes a checkpoint once in a hundred, then the store reopened and a signal that wakes it",
    ),
    (
        "journal",
        "events of 100 bytes, tenth by tenth, then the store reopened",
    ),
    ("threads", "one-step runs, 1,024 at a time"),
    ("payload", "runs that carry it through one activity, 32 at a time"),
    (
        "schedules",
        "made per second, then a tenth of them due in one second: how much later their runs had their first effect",
    ),
    ("sustained", "one-step runs, 256 at a time"),
];

/// How a curve is drawn: the figure, its name, and the axis that it grows along.
type Curve = (&'static str, &'static str, fn(&Row) -> Option<f64>, Axis, Axis);

/// The curves that say most of each group.
const CURVES: [Curve; 9] = [
    (
        "waiting",
        "wake",
        |row| row.p50_us,
        Axis::Log("instances that wait"),
        Axis::Log("us to wake one, p50"),
    ),
    (
        "waiting",
        "memory",
        |row| row.resident_bytes_used.map(|bytes| bytes / 1e6),
        Axis::Log("instances that wait"),
        Axis::Log("MB resident"),
    ),
    (
        "history",
        "rate",
        |row| Some(row.median_per_s),
        Axis::Log("steps of one run"),
        Axis::Linear("steps/s"),
    ),
    (
        "history",
        "wake",
        |row| row.p50_us,
        Axis::Log("steps of one run"),
        Axis::Log("us to replay and finish it"),
    ),
    (
        "journal",
        "rate",
        |row| Some(row.median_per_s),
        Axis::Linear("events in the journal"),
        Axis::Linear("events/s"),
    ),
    (
        "threads",
        "rate",
        |row| Some(row.median_per_s),
        Axis::Linear("worker threads and shards"),
        Axis::Linear("runs/s"),
    ),
    (
        "payload",
        "rate",
        |row| Some(row.median_per_s),
        Axis::Log("bytes of input (none stands at 1)"),
        Axis::Log("runs/s"),
    ),
    (
        "sustained",
        "rate",
        |row| Some(row.median_per_s),
        Axis::Linear("seconds"),
        Axis::Linear("runs/s"),
    ),
    (
        "sustained",
        "memory",
        |row| row.resident_bytes_used.map(|bytes| bytes / 1e6),
        Axis::Linear("seconds"),
        Axis::Linear("MB resident"),
    ),
];

/// The curves, as far as they were measured at two levels or more.
#[must_use]
pub fn charts(rows: &[Row]) -> Vec<(String, Chart)> {
    let mut charts = Vec::new();
    for (group, what, figure, x, y) in CURVES {
        let of_group = rows.iter().filter(|row| row.group == group);
        let least = if matches!(x, Axis::Log(_)) { 1.0 } else { 0.0 };
        let points: Vec<_> = of_group
            .filter_map(|row| Some(((row.level as f64).max(least), figure(row)?)))
            .collect();
        if points.len() > 1 {
            let mut chart = LineChart::new(format!("{group}: {} by {}", y.name(), x.name()), x, y);
            chart.line("millrun, fsync", points);
            charts.push((format!("scale-{group}-{what}"), chart.into()));
        }
    }
    charts
}
