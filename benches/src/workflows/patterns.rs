//! The cases of `bench-patterns`.

use super::{Case, FIVE_TASKS, ONE_STEP, THREE_STEPS};
use crate::runs::{Row, Store};
use crate::{Axis, Chart, LineChart, Table, approximate, grouped};

/// The levels of the scaling table.
const LEVELS: [usize; 6] = [1, 2, 4, 8, 16, 32];

/// Simple, parallel and pipeline, each with `iterations` iterations; then parallel at each level.
#[must_use]
pub fn suite(iterations: u64, concurrency: u32) -> Vec<Case> {
    let parallel = |concurrency| {
        Case::numbered(
            "parallel",
            FIVE_TASKS,
            5,
            |number| 3 * number + 7,
            Store::Durable,
            concurrency,
        )
    };
    let concurrency = concurrency as usize;
    let mut cases = vec![
        Case::numbered(
            "simple",
            ONE_STEP,
            1,
            |number| number + 1,
            Store::Durable,
            concurrency,
        ),
        parallel(concurrency),
        Case::numbered(
            "pipeline",
            THREE_STEPS,
            3,
            |number| number + 3,
            Store::Durable,
            concurrency,
        ),
    ];
    cases.extend(
        LEVELS
            .into_iter()
            .filter(|level| *level != concurrency)
            .map(parallel),
    );
    cases.into_iter().map(|case| case.times(iterations)).collect()
}

/// What was completed, and how it scales.
#[must_use]
pub fn tables(rows: &[Row], iterations: u64, concurrency: u32) -> Vec<Table> {
    let mut patterns = Table::new(
        format!("Patterns, {iterations} runs per sample, {concurrency} at a time, fsync"),
        1,
        ["pattern", "succeeded", "of", "per second", "p50 us", "p99 us"],
    );
    for row in rows.iter().filter(|row| row.concurrency == concurrency as usize) {
        patterns.line([
            row.workload.clone(),
            grouped(row.completed as f64),
            grouped((iterations * row.rounds as u64) as f64),
            approximate(row.median_per_s),
            approximate(row.p50_us),
            approximate(row.p99_us),
        ]);
    }
    let mut scaling: Vec<&Row> = rows.iter().filter(|row| row.workload == "parallel").collect();
    scaling.sort_by_key(|row| row.concurrency);
    let mut table = Table::new(
        "Scaling of the parallel pattern; efficiency is the rate per run at a time, against one at a time",
        0,
        ["at a time", "per second", "efficiency", "p50 us"],
    );
    let alone = scaling
        .first()
        .map(|row| row.median_per_s / row.concurrency as f64);
    for row in scaling {
        let each = row.median_per_s / row.concurrency as f64;
        table.line([
            grouped(row.concurrency as f64),
            approximate(row.median_per_s),
            alone.map_or_else(|| "-".into(), |alone| format!("{:.0}%", 100.0 * each / alone)),
            approximate(row.p50_us),
        ]);
    }
    vec![patterns, table]
}

/// How the parallel pattern scales.
#[must_use]
pub fn charts(rows: &[Row]) -> Vec<(String, Chart)> {
    let mut scaling: Vec<&Row> = rows.iter().filter(|row| row.workload == "parallel").collect();
    scaling.sort_by_key(|row| row.concurrency);
    let mut chart = LineChart::new(
        "The parallel pattern: runs per second by runs at a time",
        Axis::Log("runs at a time"),
        Axis::Log("runs/s"),
    );
    let points = |what: &dyn Fn(&Row) -> f64| -> Vec<(f64, f64)> {
        scaling
            .iter()
            .map(|row| (row.concurrency as f64, what(row)))
            .collect()
    };
    chart.line("measured, fsync", points(&|row| row.median_per_s));
    if let Some(first) = scaling.first() {
        let alone = first.median_per_s / first.concurrency as f64;
        chart.line(
            "if each were as fast as one",
            points(&|row| alone * row.concurrency as f64),
        );
    }
    vec![("patterns-scaling".to_owned(), chart.into())]
}
