//! What a contestant did in a cell, and the tables of all of them.

use serde::Serialize;

use super::{Flavor, Identity, Load};
use crate::{ALLOCATOR, Spread, Table, locked_version};

/// One contestant in one cell.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Which shape: `pair`, `fan-out`, `topics` or `producers`.
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
    /// Deliveries per second: of the middle sample,
    pub median_per_s: f64,
    /// of the slowest,
    pub min_per_s: f64,
    /// and of the fastest.
    pub max_per_s: f64,
}

impl Row {
    /// Puts together what is known of a cell.
    #[must_use]
    pub fn new(
        group: &'static str,
        identity: Identity,
        runtime: Flavor,
        load: Load,
        measured_messages: u64,
        samples: &[f64],
    ) -> Option<Self> {
        let spread = Spread::of(samples)?;
        Some(Self {
            group,
            version: locked_version(identity.framework),
            identity,
            runtime,
            messages: load.messages,
            measured_messages,
            payload_bytes: load.payload_bytes,
            producers: load.producers,
            topics: load.topics,
            subscribers: load.subscribers,
            rounds: samples.len(),
            allocator: ALLOCATOR,
            median_per_s: spread.median,
            min_per_s: spread.min,
            max_per_s: spread.max,
        })
    }
}

/// Who took part and what each figure means, then per runtime the absolute and the relative
/// figures of the group `pair`.
#[must_use]
pub fn tables(rows: &[Row]) -> Vec<Table> {
    let rows: Vec<&Row> = rows.iter().filter(|row| row.group == "pair").collect();
    let mut tables = vec![semantics(&rows)];
    for runtime in Flavor::ALL {
        let rows: Vec<&Row> = rows
            .iter()
            .copied()
            .filter(|row| row.runtime == runtime)
            .collect();
        tables.push(by_payload(
            &format!(
                "Throughput, {}: million messages/s, median (slowest to fastest)",
                runtime.name()
            ),
            &rows,
            |row| {
                let [median, min, max] =
                    [row.median_per_s, row.min_per_s, row.max_per_s].map(|rate| rate / 1e6);
                let mark = if row.measured_messages < row.messages {
                    "*"
                } else {
                    ""
                };
                Some(format!("{median:.2}{mark} ({min:.2} to {max:.2})"))
            },
        ));
        tables.push(by_payload(
            &format!("Throughput, {}, relative to maiko", runtime.name()),
            &rows,
            |row| {
                let maiko = rows.iter().find(|other| {
                    other.identity.framework == "maiko"
                        && (other.messages, other.payload_bytes) == (row.messages, row.payload_bytes)
                })?;
                Some(format!("{:.2}x", row.median_per_s / maiko.median_per_s))
            },
        ));
    }
    tables.retain(|table| !table.is_empty());
    tables
}

fn semantics(rows: &[&Row]) -> Table {
    let mut table = Table::new(
        "Who takes part",
        6,
        [
            "framework",
            "version",
            "sends by",
            "routing",
            "queue, when full",
            "in flight",
        ],
    );
    let mut seen = Vec::new();
    for row in rows {
        let Identity {
            framework,
            mode,
            kind,
            queue,
            in_flight,
        } = row.identity;
        if seen.contains(&(framework, mode)) {
            continue;
        }
        seen.push((framework, mode));
        table.line([
            framework,
            row.version.as_str(),
            mode,
            match kind {
                super::Kind::Brokered => "brokered by topic",
                super::Kind::Direct => "direct to an address",
                super::Kind::Reference => "a channel, no actors",
            },
            queue,
            in_flight,
        ]);
    }
    table
}

/// One line per contestant and number of messages, one column per payload size.
fn by_payload(title: &str, rows: &[&Row], cell: impl Fn(&Row) -> Option<String>) -> Table {
    let mut payloads: Vec<usize> = rows.iter().map(|row| row.payload_bytes).collect();
    payloads.sort_unstable();
    payloads.dedup();
    let mut lines: Vec<(&Row, u64)> = Vec::new();
    for row in rows {
        let known = lines
            .iter()
            .any(|(line, messages)| line.identity.name() == row.identity.name() && *messages == row.messages);
        if !known {
            lines.push((row, row.messages));
        }
    }
    lines.sort_by_key(|(row, messages)| {
        let first = rows
            .iter()
            .position(|other| other.identity.name() == row.identity.name());
        (first, *messages)
    });
    let header = ["framework", "N"]
        .map(str::to_owned)
        .into_iter()
        .chain(payloads.iter().map(|bytes| size(*bytes)));
    let mut table = Table::new(title, 1, header);
    for (line, messages) in lines {
        let figures = payloads.iter().map(|payload| {
            rows.iter()
                .find(|row| {
                    row.identity.name() == line.identity.name()
                        && (row.messages, row.payload_bytes) == (messages, *payload)
                })
                .and_then(|row| cell(row))
                .unwrap_or_else(|| "-".into())
        });
        let names = [line.identity.name(), crate::grouped(messages as f64)];
        table.line(names.into_iter().chain(figures));
    }
    table
}

fn size(bytes: usize) -> String {
    match bytes {
        bytes if bytes >= 1_024 && bytes.is_multiple_of(1_024) => format!("{} KiB", bytes / 1_024),
        bytes => format!("{bytes} B"),
    }
}
