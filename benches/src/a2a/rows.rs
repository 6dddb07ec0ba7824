//! What a contestant did in a cell.

use hdrhistogram::Histogram;
use serde::Serialize;

use super::{Flavor, Identity, Load};
use crate::{ALLOCATOR, Spread, locked_version};

/// One contestant in one cell.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Which shape: `pair`, `fan-out`, `topics`, `producers` or `latency`.
    pub group: &'static str,
    /// Who, and what the figure means.
    #[serde(flatten)]
    pub identity: Identity,
    /// The version of the library.
    pub version: String,
    /// `current_thread` or `multi_thread`.
    pub runtime: Flavor,
    /// The number of messages this cell stands for.
    pub messages: u64,
    /// How many each sample really sent: fewer where a contestant is very slow.
    pub measured_messages: u64,
    /// The size of each payload.
    pub payload_bytes: usize,
    /// How many actors sent.
    pub producers: usize,
    /// To how many topics.
    pub topics: usize,
    /// How many actors listened to each topic.
    pub subscribers: usize,
    /// How many samples were taken.
    pub rounds: usize,
    /// `system` or `mimalloc`.
    pub allocator: &'static str,
    /// Deliveries (or round trips) per second: of the middle sample,
    pub median_per_s: f64,
    /// of the slowest,
    pub min_per_s: f64,
    /// and of the fastest.
    pub max_per_s: f64,
    /// Where single trips were timed: of each sample the time that half of them stayed within;
    /// of those the middle one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_ns: Option<f64>,
    /// The same for 99 in 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_ns: Option<f64>,
    /// The same for 999 in 1,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p999_ns: Option<f64>,
}

/// Where a row was measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    pub(super) group: &'static str,
    pub(super) runtime: Flavor,
    /// What the cell stands for.
    pub(super) load: Load,
    /// What each sample sent.
    pub(super) measured: Load,
}

impl Row {
    /// Puts together what is known of a cell. `trips` holds a histogram per sample, or nothing.
    pub(super) fn new(
        cell: Cell,
        identity: Identity,
        rates: &[f64],
        trips: &[Histogram<u64>],
    ) -> Option<Self> {
        let Cell {
            group,
            runtime,
            load,
            measured,
        } = cell;
        let rate = Spread::of(rates)?;
        let quantile = |quantile: f64| {
            let values: Vec<f64> = trips
                .iter()
                .map(|trips| trips.value_at_quantile(quantile) as f64)
                .collect();
            Spread::of(&values).map(|spread| spread.median)
        };
        Some(Self {
            group,
            version: locked_version(identity.framework),
            identity,
            runtime,
            messages: load.messages,
            measured_messages: measured.messages,
            payload_bytes: load.payload_bytes,
            producers: load.producers,
            topics: load.topics,
            subscribers: load.subscribers,
            rounds: rates.len(),
            allocator: ALLOCATOR,
            median_per_s: rate.median,
            min_per_s: rate.min,
            max_per_s: rate.max,
            p50_ns: quantile(0.5),
            p99_ns: quantile(0.99),
            p999_ns: quantile(0.999),
        })
    }

    /// The cell's load in a few words, as far as it differs within the row's group.
    #[must_use]
    pub fn shape(&self) -> String {
        let payload = size(self.payload_bytes);
        match self.group {
            "fan-out" => format!("1 to {}, {payload}", self.subscribers),
            "topics" => format!("{} topics, {payload}", self.topics),
            "producers" => format!("{} to 1, {payload}", self.producers),
            _ => payload,
        }
    }
}

fn size(bytes: usize) -> String {
    match bytes {
        bytes if bytes >= 1_024 && bytes.is_multiple_of(1_024) => format!("{} KiB", bytes / 1_024),
        bytes => format!("{bytes} B"),
    }
}
