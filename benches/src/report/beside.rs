//! Rows of different programs beside each other: engines on the same workload, allocators at the same
//! level.
//!
//! A row stands beside another if they agree in workload, level and place. What another project has
//! published was measured elsewhere, and stays with its own suite.

use serde_json::{Map, Value};

use super::SuiteResult;
use super::grid::{Column, Grid};
use crate::{Table, approximate, grouped};

/// A table of rows of several programs.
#[derive(Debug)]
pub struct Beside {
    pub(super) title: &'static str,
    pub(super) grid: Grid,
}

impl Beside {
    /// As a table for a terminal.
    #[must_use]
    pub fn table(&self) -> Table {
        let columns = &self.grid.columns;
        let names = columns.iter().filter(|column| !column.is_number).count();
        let mut table = Table::new(
            self.title,
            names,
            columns.iter().map(|column| column.name.clone()),
        );
        for line in &self.grid.lines {
            table.line(line.clone());
        }
        table
    }

    fn new(title: &'static str, columns: Vec<(String, bool)>, lines: Vec<Vec<String>>) -> Option<Self> {
        let columns = columns.into_iter();
        let columns = columns
            .map(|(name, is_number)| Column { name, is_number })
            .collect();
        let same = Vec::new();
        (!lines.is_empty()).then_some(Self {
            title,
            grid: Grid { same, columns, lines },
        })
    }
}

/// Several engines on the workloads that more than one of them ran, with what a power cut takes from
/// each; `None` if there is no such workload.
#[must_use]
pub fn engines(suites: &[SuiteResult]) -> Option<Beside> {
    // The floor is no engine.
    let rows: Vec<Run> = runs(suites)
        .filter(|run| run.allocator == "system" && run.engine != "floor")
        .collect();
    let mut workloads: Vec<(&str, u64)> = Vec::new();
    let mut engines: Vec<(&str, &str)> = Vec::new();
    for run in &rows {
        let mut others = rows.iter().filter(|other| other.is_on(run.on()));
        if others.any(|other| other.engine != run.engine) {
            add(&mut workloads, run.on());
            add(&mut engines, (run.engine, run.store));
        }
    }
    // What runs at a time before what runs alone.
    workloads.sort_by_key(|(_, level)| *level == 1);
    let words = ["engine", "store"].map(|name| (name.to_owned(), false));
    let names = workloads.iter().map(|(workload, level)| match level {
        1 => format!("{workload}, ms"),
        level => format!("{workload}, {}, /s", grouped(*level as f64)),
    });
    let columns = words.into_iter().chain(names.map(|name| (name, true))).collect();
    let lines = engines.iter().map(|(engine, store)| {
        let cells = workloads.iter().map(|workload| {
            let mut own = rows.iter().filter(|run| run.is_on(*workload));
            let own = own.find(|run| (run.engine, run.store) == (*engine, *store));
            own.map_or_else(|| "-".to_owned(), Run::figure)
        });
        let words = [(*engine).to_owned(), said(store).to_owned()];
        words.into_iter().chain(cells).collect()
    });
    let title =
        "Engines beside each other: runs per second of so many at a time, or the median time of one alone";
    Beside::new(title, columns, lines.collect())
}

/// The levels that were measured with both allocators; `None` if there is none.
#[must_use]
pub fn allocators(suites: &[SuiteResult]) -> Option<Beside> {
    let rows: Vec<Run> = runs(suites).collect();
    let mut lines = Vec::new();
    for system in rows.iter().filter(|run| run.allocator == "system") {
        let mut others = rows.iter().filter(|run| run.allocator == "mimalloc");
        let Some(other) = others.find(|run| run.is_beside(system)) else {
            continue;
        };
        lines.push(vec![
            system.workload.to_owned(),
            said(system.store).to_owned(),
            grouped(system.concurrency as f64),
            approximate(system.median_per_s),
            approximate(other.median_per_s),
            format!("{:.2}x", other.median_per_s / system.median_per_s),
        ]);
    }
    let words = ["workload", "store"].map(|name| (name.to_owned(), false));
    let figures = ["at a time", "system", "mimalloc", "ratio"].map(|name| (name.to_owned(), true));
    let title = "Allocators beside each other: runs per second";
    Beside::new(title, words.into_iter().chain(figures).collect(), lines)
}

fn add<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if !list.contains(&item) {
        list.push(item);
    }
}

/// What is compared of a row.
struct Run<'a> {
    suite: &'a str,
    engine: &'a str,
    workload: &'a str,
    store: &'a str,
    allocator: &'a str,
    concurrency: u64,
    median_per_s: f64,
    p50_us: f64,
}

impl<'a> Run<'a> {
    fn of(suite: &'a str, row: &'a Map<String, Value>) -> Option<Self> {
        let text = |field: &str| row.get(field)?.as_str();
        let number = |field: &str| row.get(field)?.as_f64();
        (text("machine")? == "here").then_some(())?;
        Some(Self {
            suite,
            engine: text("engine")?,
            workload: text("workload")?,
            store: text("store")?,
            allocator: text("allocator")?,
            concurrency: row.get("concurrency")?.as_u64()?,
            median_per_s: number("median_per_s")?,
            p50_us: number("p50_us")?,
        })
    }

    /// The workload, and how many ran at a time.
    fn on(&self) -> (&'a str, u64) {
        (self.workload, self.concurrency)
    }

    fn is_on(&self, workload: (&str, u64)) -> bool {
        self.on() == workload
    }

    /// Whether the other is the same but for its allocator. (The suite's name ends with that.)
    fn is_beside(&self, other: &Self) -> bool {
        let cell = |run: &Self| {
            let suite = run.suite.trim_end_matches("-mimalloc").to_owned();
            (suite, run.engine.to_owned(), run.store.to_owned())
        };
        self.is_on(other.on()) && cell(self) == cell(other)
    }

    /// What one at a time takes, or how many of several are done.
    fn figure(&self) -> String {
        match self.concurrency {
            1 => approximate(self.p50_us / 1e3),
            _ => approximate(self.median_per_s),
        }
    }
}

fn runs(suites: &[SuiteResult]) -> impl Iterator<Item = Run<'_>> {
    suites
        .iter()
        .flat_map(|suite| suite.rows.iter().filter_map(|row| Run::of(&suite.name, row)))
}

/// What a crash takes from a store of this kind.
fn said(store: &str) -> &str {
    match store {
        "durable" => "synced: loses nothing",
        "relaxed" => "synced every 100 ms",
        "unsynced" => "not synced: a power cut loses the last commits",
        "volatile" => "in memory",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn suite(name: &str, rows: &[(&str, &str, &str, u64, f64)], allocator: &str) -> SuiteResult {
        let rows = rows
            .iter()
            .map(|(engine, machine, workload, concurrency, per_s)| {
                let row = json!({
                    "engine": engine,
                    "machine": machine,
                    "workload": workload,
                    "store": "durable",
                    "allocator": allocator,
                    "concurrency": concurrency,
                    "median_per_s": per_s,
                    "p50_us": 1e6 / per_s,
                });
                row.as_object().unwrap().clone()
            });
        SuiteResult {
            name: name.into(),
            machine: None,
            rows: rows.collect(),
            verdicts: Vec::new(),
            failures: Vec::new(),
            charts: Vec::new(),
        }
    }

    #[test]
    fn engines_stand_beside_each_other_on_what_several_ran_here() {
        let suites = [
            suite(
                "peers",
                &[
                    ("other", "here", "one-step", 32, 10.0),
                    ("other", "here", "alone", 1, 4.0),
                ],
                "system",
            ),
            suite(
                "workflows",
                &[
                    ("millrun", "here", "alone", 1, 100.0),
                    ("millrun", "here", "one-step", 32, 2_000.0),
                    ("millrun", "here", "one-step", 1_024, 9_000.0),
                    ("published", "t2.medium", "one-step", 1_024, 1.0),
                ],
                "system",
            ),
        ];
        let Grid { columns, lines, .. } = engines(&suites).unwrap().grid;
        let names: Vec<_> = columns.iter().map(|column| column.name.as_str()).collect();
        assert_eq!(names, ["engine", "store", "one-step, 32, /s", "alone, ms"]);
        assert_eq!(lines[0], ["other", "synced: loses nothing", "10.0", "250"]);
        assert_eq!(lines[1], ["millrun", "synced: loses nothing", "2,000", "10.0"]);
        assert_eq!(lines.len(), 2);
        assert!(engines(&suites[1..]).is_none());
    }

    #[test]
    fn allocators_stand_beside_each_other_at_the_levels_that_both_have() {
        let row = |level, per_s| ("millrun", "here", "two-step", level, per_s);
        let suites = [
            suite("peak", &[row(128, 100.0), row(512, 100.0)], "system"),
            suite("peak-mimalloc", &[row(512, 150.0), row(1_024, 1.0)], "mimalloc"),
            suite("other", &[row(1_024, 1.0)], "system"),
        ];
        let lines = allocators(&suites).unwrap().grid.lines;
        assert_eq!(lines.len(), 1);
        assert_eq!(lines[0][2..], ["512", "100", "150", "1.50x"]);
        assert!(allocators(&suites[..1]).is_none());
    }
}
