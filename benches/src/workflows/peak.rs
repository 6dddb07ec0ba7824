//! The cases of `bench-peak`: a workflow of two activities at growing levels of concurrency.

use super::{Case, SEQUENCE, TWO_STEPS};
use crate::runs::{Row, Store};
use crate::{Axis, Chart, LineChart, Table, approximate};

/// Of the run whose steps are timed.
const STEPS: u64 = 100;

/// From one to 65,536 at a time; `--quick` takes three of them.
#[must_use]
pub fn levels(quick: bool) -> Vec<u32> {
    if quick {
        return vec![128, 1_024, 8_192];
    }
    vec![128, 512, 1_024, 2_048, 4_096, 8_192, 16_384, 32_768, 65_536]
}

/// The sweep, in memory and durable; before it a single run at a time, and a hundred steps in
/// sequence, for the latency of a run and of a step.
#[must_use]
pub fn suite(levels: &[u32]) -> Vec<Case> {
    let stores = [Store::Volatile, Store::Durable];
    let two_steps = |store, concurrency| {
        Case::numbered("two-step", TWO_STEPS, 2, |number| number + 2, store, concurrency)
    };
    let mut cases = Vec::new();
    for store in stores {
        cases.push(two_steps(store, 1));
        cases.push(Case::repeated(
            "100 steps",
            SEQUENCE,
            STEPS,
            (STEPS, STEPS),
            store,
        ));
    }
    for store in stores {
        cases.extend(levels.iter().map(|level| two_steps(store, *level as usize)));
    }
    cases
}

/// How long one takes while nothing else runs: a run, and a step of it.
#[must_use]
pub fn alone(rows: &[Row]) -> Table {
    let mut table = Table::new(
        "One at a time: a run of two activities, and a step (a hundredth of a run of a hundred)",
        2,
        ["what", "store", "p50 us", "p99 us"],
    );
    for row in rows.iter().filter(|row| row.concurrency == 1) {
        let (what, parts) = match row.steps {
            STEPS => ("step", row.steps as f64),
            _ => ("run", 1.0),
        };
        table.line([
            what.to_owned(),
            row.store.name().to_owned(),
            approximate(row.p50_us / parts),
            approximate(row.p99_us / parts),
        ]);
    }
    table
}

/// Throughput and latency by level.
#[must_use]
pub fn charts(suite: &str, rows: &[Row]) -> Vec<(String, Chart)> {
    let level = Axis::Log("runs at a time");
    let mut rates = LineChart::new(
        "Two activities: runs per second by runs at a time",
        level,
        Axis::Linear("runs/s"),
    );
    let mut times = LineChart::new(
        "Two activities: time of a run by runs at a time",
        level,
        Axis::Log("us"),
    );
    for store in [Store::Volatile, Store::Durable] {
        let of = |what: fn(&Row) -> f64| {
            rows.iter()
                .filter(move |row| row.workload == "two-step" && row.store == store)
                .map(move |row| (row.concurrency as f64, what(row)))
        };
        rates.line(store.name(), of(|row| row.median_per_s));
        times.line(&format!("{}, p50", store.name()), of(|row| row.p50_us));
        times.line(&format!("{}, p99", store.name()), of(|row| row.p99_us));
    }
    vec![
        (suite.to_owned(), rates.into()),
        (format!("{suite}-latency"), times.into()),
    ]
}
