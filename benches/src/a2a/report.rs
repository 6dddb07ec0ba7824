//! Rows as tables and plots for people.

use super::{Flavor, Identity, Kind, Row};
use crate::{BarChart, Chart, Table, grouped};

/// Who took part and what each figure means, then the figures, group by group.
#[must_use]
pub fn tables(rows: &[Row]) -> Vec<Table> {
    let mut tables = vec![semantics(rows)];
    for runtime in Flavor::ALL {
        let of = |group: &'static str| -> Vec<&Row> {
            rows.iter()
                .filter(|row| row.group == group && row.runtime == runtime)
                .collect()
        };
        let on = runtime.name();
        let pair = of("pair");
        tables.push(pivot(
            &format!("Throughput, {on}: million messages/s, median (slowest to fastest)"),
            &pair,
            |row| Some(millions(row)),
        ));
        tables.push(pivot(
            &format!("Throughput, {on}, relative to maiko"),
            &pair,
            |row| relative_to_maiko(row, &pair),
        ));
        for (group, title) in [
            ("fan-out", "Fan-out"),
            ("topics", "One producer, many topics"),
            ("producers", "Several producers, one topic"),
            ("stuck", "A pair, and a pair beside a subscriber that never takes"),
            ("crowd", "A publish taken at once: to one topic, and among 10,000"),
        ] {
            tables.push(pivot(
                &format!("{title}, {on}: million deliveries/s, median (slowest to fastest)"),
                &of(group),
                |row| Some(millions(row)),
            ));
        }
        tables.push(trips(on, &of("latency")));
    }
    tables.retain(|table| !table.is_empty());
    tables
}

/// One bar chart per group and runtime; of the pairs, those with the most messages.
#[must_use]
pub fn charts(rows: &[Row]) -> Vec<(String, Chart)> {
    let mut charts = Vec::new();
    for group in ["pair", "fan-out", "topics", "producers", "latency"] {
        for runtime in Flavor::ALL {
            let rows: Vec<&Row> = rows
                .iter()
                .filter(|row| row.group == group && row.runtime == runtime)
                .collect();
            let Some(messages) = rows.iter().map(|row| row.messages).max() else {
                continue;
            };
            let (unit, what): (_, fn(&Row) -> f64) = match group {
                "latency" => ("microseconds per round trip, p50 (less is better)", |row| {
                    row.p50_ns.unwrap_or(0.0) / 1e3
                }),
                _ => ("million deliveries/s", |row| row.median_per_s / 1e6),
            };
            let mut chart = BarChart::new(
                format!("{group}, {}, N = {}", runtime.name(), grouped(messages as f64)),
                unit,
            );
            for row in rows.iter().filter(|row| row.messages == messages) {
                chart.bar(&row.identity.name(), &row.shape(), what(row));
            }
            let name = format!("a2a-{group}-{}", runtime.name().replace(' ', "-"));
            charts.push((name, chart.into()));
        }
    }
    charts
}

fn semantics(rows: &[Row]) -> Table {
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
        if seen.contains(&(framework, mode, queue)) {
            continue;
        }
        seen.push((framework, mode, queue));
        table.line([
            framework,
            row.version.as_str(),
            mode,
            match kind {
                Kind::Brokered => "brokered by topic",
                Kind::Direct => "direct to an address",
                Kind::Reference => "a channel, no actors",
            },
            queue,
            in_flight,
        ]);
    }
    table
}

fn millions(row: &Row) -> String {
    let [median, min, max] = [row.median_per_s, row.min_per_s, row.max_per_s].map(|rate| rate / 1e6);
    let mark = if row.measured_messages < row.messages {
        "*"
    } else {
        ""
    };
    format!("{median:.2}{mark} ({min:.2} to {max:.2})")
}

fn relative_to_maiko(row: &Row, rows: &[&Row]) -> Option<String> {
    let maiko = rows.iter().find(|other| {
        other.identity.framework == "maiko"
            && (other.messages, other.payload_bytes) == (row.messages, row.payload_bytes)
    })?;
    Some(format!("{:.2}x", row.median_per_s / maiko.median_per_s))
}

fn trips(on: &str, rows: &[&Row]) -> Table {
    let title = format!("Round trip, {on}: nanoseconds, one at a time");
    let mut table = Table::new(
        title,
        2,
        ["framework", "routing", "p50", "p99", "p99.9", "trips/s"],
    );
    for row in rows {
        let nanos = |nanos: Option<f64>| nanos.map_or_else(|| "-".into(), grouped);
        table.line([
            row.identity.name(),
            if row.identity.kind == Kind::Brokered {
                "two topics"
            } else {
                "direct"
            }
            .into(),
            nanos(row.p50_ns),
            nanos(row.p99_ns),
            nanos(row.p999_ns),
            grouped(row.median_per_s),
        ]);
    }
    table
}

/// One line per contestant and number of messages, one column per shape.
fn pivot(title: &str, rows: &[&Row], cell: impl Fn(&Row) -> Option<String>) -> Table {
    let mut columns: Vec<String> = Vec::new();
    let mut lines: Vec<(usize, u64, &Row)> = Vec::new();
    for row in rows {
        let shape = row.shape();
        if !columns.contains(&shape) {
            columns.push(shape);
        }
        let same = |other: &&&Row| other.identity.name() == row.identity.name();
        let contestant = rows.iter().position(|other| same(&other)).unwrap_or(0);
        if !lines
            .iter()
            .any(|(known, messages, _)| (*known, *messages) == (contestant, row.messages))
        {
            lines.push((contestant, row.messages, row));
        }
    }
    lines.sort_by_key(|(contestant, messages, _)| (*contestant, *messages));
    let header = ["framework".to_owned(), "N".to_owned()]
        .into_iter()
        .chain(columns.iter().cloned());
    let mut table = Table::new(title, 1, header);
    for (_, messages, line) in lines {
        let figures = columns.iter().map(|column| {
            rows.iter()
                .find(|row| {
                    row.identity.name() == line.identity.name()
                        && row.messages == messages
                        && row.shape() == *column
                })
                .and_then(|row| cell(row))
                .unwrap_or_else(|| "-".into())
        });
        table.line(
            [line.identity.name(), grouped(messages as f64)]
                .into_iter()
                .chain(figures),
        );
    }
    table
}
