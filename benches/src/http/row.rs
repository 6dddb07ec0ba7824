//! What was measured in one way.

use serde::{Deserialize, Serialize};

use crate::runs::Sample;
use crate::{ALLOCATOR, Spread, Table, approximate, grouped};

/// What one contestant did.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// What was asked: a group of `bench-http` or of `bench-topics`, by which `--only` picks.
    pub group: String,
    /// Who was asked, and beside what.
    pub mode: String,
    /// `system` or `mimalloc`.
    pub allocator: String,
    /// Connections, or clients of the embedded runtime, or streams; of a topic its publishers, or the records read.
    pub concurrency: u64,
    /// Requests or runs per second; the median of the rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub median_per_s: Option<f64>,
    /// The slowest and the fastest round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range_per_s: Option<(f64, f64)>,
    /// Half of the requests were answered within it, in microseconds; the median of the rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_us: Option<f64>,
    /// The same for 95 in 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p95_us: Option<f64>,
    /// The same for 99 in 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<f64>,
    /// Resident memory in bytes: of the server for each stream, or of a process, or by which either grew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resident_bytes_used: Option<f64>,
}

impl Row {
    /// Without figures.
    #[must_use]
    pub fn empty(group: &str, mode: &str, concurrency: u64) -> Self {
        Self {
            group: group.into(),
            mode: mode.into(),
            allocator: ALLOCATOR.into(),
            concurrency,
            median_per_s: None,
            range_per_s: None,
            p50_us: None,
            p95_us: None,
            p99_us: None,
            resident_bytes_used: None,
        }
    }

    /// Of a round or more.
    #[must_use]
    pub fn new(group: &str, mode: &str, concurrency: u64, rounds: &[Summary]) -> Self {
        let spread = |figure: fn(&Summary) -> f64| {
            let figures: Vec<f64> = rounds.iter().map(figure).collect();
            Spread::of(&figures)
        };
        let per_s = spread(|round| round.per_s);
        Self {
            median_per_s: per_s.map(|spread| spread.median),
            range_per_s: per_s.map(|spread| (spread.min, spread.max)),
            p50_us: spread(|round| round.p50_us).map(|spread| spread.median),
            p95_us: spread(|round| round.p95_us).map(|spread| spread.median),
            p99_us: spread(|round| round.p99_us).map(|spread| spread.median),
            ..Self::empty(group, mode, concurrency)
        }
    }
}

/// What one round was, as a process tells it that measured it.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Summary {
    /// Operations per second.
    pub per_s: f64,
    /// Half of them took this long at most.
    pub p50_us: f64,
    /// The same for 95 in 100.
    pub p95_us: f64,
    /// The same for 99 in 100.
    pub p99_us: f64,
}

impl From<&Sample> for Summary {
    fn from(sample: &Sample) -> Self {
        let micros = |quantile| sample.nanos.value_at_quantile(quantile) as f64 / 1e3;
        Self {
            per_s: sample.per_s(),
            p50_us: micros(0.5),
            p95_us: micros(0.95),
            p99_us: micros(0.99),
        }
    }
}

/// All rows.
#[must_use]
pub fn table(title: &str, rows: &[Row]) -> Table {
    let mut table = Table::new(
        format!("{title}; medians over the rounds"),
        2,
        [
            "what",
            "who",
            "at a time",
            "per second (slowest to fastest)",
            "p50 us",
            "p95 us",
            "p99 us",
            "resident KB",
        ],
    );
    let figure = |value: Option<f64>| value.map_or_else(|| "-".into(), approximate);
    for row in rows {
        let rate = match (row.median_per_s, row.range_per_s) {
            (Some(median), Some((min, max))) => {
                format!("{} ({} to {})", grouped(median), grouped(min), grouped(max))
            }
            _ => "-".into(),
        };
        table.line([
            row.group.clone(),
            row.mode.clone(),
            grouped(row.concurrency as f64),
            rate,
            figure(row.p50_us),
            figure(row.p95_us),
            figure(row.p99_us),
            figure(row.resident_bytes_used.map(|bytes| bytes / 1e3)),
        ]);
    }
    table
}
