//! Two sets of results: what moved by more than the noise.
//!
//! Rows are the same if they agree in everything that is not a result. What was sampled several times
//! has moved if the ranges of its samples (slowest to fastest) do not overlap *and* the medians differ
//! by more than the tolerance: on a shared machine either alone happens by chance. What was measured
//! once has no range, so it has a wider tolerance; counts of instructions need none.

use serde_json::{Map, Value};

use super::SuiteResult;
use super::grid::is_measured;
use crate::Failure;

/// How much may differ without having moved, as shares: 0.05 is 5%.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Of what has a range, and of counts.
    pub sampled: f64,
    /// Of what was measured once.
    pub once: f64,
}

/// A result that has moved.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Suite, row and result.
    pub name: String,
    /// What it is counted in.
    pub unit: String,
    /// What it was: the median, if it has several samples.
    pub before: f64,
    /// What it is.
    pub after: f64,
    /// Whether more of it is better.
    pub is_more_better: bool,
}

impl Change {
    /// How many times as good it is: below one is worse.
    #[must_use]
    pub fn gain(&self) -> f64 {
        if self.is_more_better {
            self.after / self.before
        } else {
            self.before / self.after
        }
    }
}

/// What came of two sets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Comparison {
    /// What moved, the largest loss first.
    pub changes: Vec<Change>,
    /// How many results were found in both,
    pub compared: usize,
    /// and how many rows in one of them only.
    pub alone: usize,
    /// What failed in the later set and did not in the earlier one, of suites that are in both.
    pub failures: Vec<Failure>,
}

/// Compares the results of all suites that are in both sets, and counts the rows that are not.
#[must_use]
pub fn compare(before: &[SuiteResult], after: &[SuiteResult], tolerance: Tolerance) -> Comparison {
    let mut comparison = Comparison::default();
    for suite in after {
        let Some(old_suite) = before.iter().find(|old| old.name == suite.name) else {
            comparison.alone += suite.rows.len();
            continue;
        };
        for failure in &suite.failures {
            if old_suite.failures.iter().all(|old| old.what != failure.what) {
                comparison.failures.push(Failure {
                    what: format!("{}: {}", suite.name, failure.what),
                    why: failure.why.clone(),
                });
            }
        }
        let mut met = 0;
        for row in &suite.rows {
            let Some(old) = old_suite.rows.iter().find(|old| same_cell(old, row)) else {
                comparison.alone += 1;
                continue;
            };
            met += 1;
            for kind in kinds(row) {
                let (Some(old), Some(new)) = (Figure::of(old, &kind), Figure::of(row, &kind)) else {
                    continue;
                };
                if old.median == 0.0 && new.median == 0.0 {
                    continue;
                }
                comparison.compared += 1;
                if new.has_moved(&old, &kind, tolerance) {
                    comparison.changes.push(Change {
                        name: format!("{}: {}{}", suite.name, name(row), kind.suffix),
                        unit: kind.unit,
                        before: old.median,
                        after: new.median,
                        is_more_better: kind.is_more_better,
                    });
                }
            }
        }
        comparison.alone += old_suite.rows.len().saturating_sub(met);
    }
    let is_gone = |old: &&SuiteResult| after.iter().all(|suite| suite.name != old.name);
    let gone = before.iter().filter(is_gone).map(|old| old.rows.len());
    comparison.alone += gone.sum::<usize>();
    let changes = &mut comparison.changes;
    changes.sort_by(|left, right| left.gain().total_cmp(&right.gain()));
    comparison
}

/// One of a row's results.
struct Kind {
    field: &'static str,
    /// What is added to the row's name.
    suffix: &'static str,
    unit: String,
    is_more_better: bool,
    /// Whether it is a count that no noise reaches.
    is_exact: bool,
}

/// The results of a row that say whether it became better. Latencies go with rates, and are not
/// looked at apart from them.
fn kinds(row: &Map<String, Value>) -> Vec<Kind> {
    let less = |field, suffix, unit: &str, is_exact| Kind {
        field,
        suffix,
        unit: unit.into(),
        is_more_better: false,
        is_exact,
    };
    let mut kinds = vec![
        Kind {
            is_more_better: true,
            ..less("median_per_s", "", "/s", false)
        },
        less("instructions_used", "", "instructions", true),
        less("reopen_us", ", reopening", "us", false),
        less("resident_bytes_used", ", memory", "bytes", false),
        less("file_bytes_used", ", file", "bytes", false),
    ];
    let unit = row.get("unit").and_then(Value::as_str).unwrap_or_default();
    // Other units count what was there, which is neither good nor bad.
    if unit.ends_with("/s") || ["bytes", "s", "ms", "us"].contains(&unit) {
        kinds.push(Kind {
            is_more_better: unit.ends_with("/s"),
            ..less("value", "", unit, false)
        });
    }
    kinds
}

struct Figure {
    median: f64,
    /// The slowest and the fastest of several samples.
    range: Option<(f64, f64)>,
}

impl Figure {
    /// `None` if the row does not have it, or it is zero, which is how rows say so; but a rate that has
    /// fallen to zero is a rate.
    fn of(row: &Map<String, Value>, kind: &Kind) -> Option<Self> {
        let field = |name: &str| row.get(name)?.as_f64();
        let range = match (kind.field, field("min_per_s"), field("max_per_s")) {
            ("median_per_s", Some(min), Some(max)) if min < max => Some((min, max)),
            _ => None,
        };
        let is_there = |median: &f64| *median > 0.0 || kind.field == "median_per_s";
        let median = field(kind.field).filter(is_there)?;
        Some(Self { median, range })
    }

    fn has_moved(&self, before: &Self, kind: &Kind, tolerance: Tolerance) -> bool {
        let (is_apart, tolerance) = match (before.range, self.range) {
            (Some((low, high)), Some((min, max))) => (high < min || max < low, tolerance.sampled),
            _ if kind.is_exact => (true, tolerance.sampled),
            _ => (true, tolerance.once),
        };
        is_apart && (self.median / before.median - 1.0).abs() > tolerance
    }
}

fn same_cell(left: &Map<String, Value>, right: &Map<String, Value>) -> bool {
    let identity = |row: &Map<String, Value>| -> Vec<(String, String)> {
        let fields = row.iter().filter(|(field, _)| !is_measured(field));
        let mut fields: Vec<_> = fields
            .map(|(field, value)| (field.clone(), value.to_string()))
            .collect();
        fields.sort();
        fields
    };
    identity(left) == identity(right)
}

fn name(row: &Map<String, Value>) -> String {
    let words = row
        .iter()
        .filter(|(field, _)| !is_measured(field))
        .map(|(field, value)| match value {
            Value::String(text) => text.clone(),
            other => format!("{field} {other}"),
        });
    words.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn suite(rows: &[Value]) -> Vec<SuiteResult> {
        vec![SuiteResult {
            name: "s".into(),
            machine: None,
            rows: rows.iter().map(|row| row.as_object().unwrap().clone()).collect(),
            verdicts: Vec::new(),
            failures: Vec::new(),
            charts: Vec::new(),
        }]
    }

    fn rate(name: &str, [min, median, max]: [f64; 3]) -> Value {
        json!({
            "framework": name,
            "min_per_s": min,
            "median_per_s": median,
            "max_per_s": max,
            "version": median.to_string(),
        })
    }

    fn figure(what: &str, value: f64, unit: &str) -> Value {
        json!({ "what": what, "value": value, "unit": unit })
    }

    fn failure(what: &str) -> Failure {
        Failure {
            what: what.into(),
            why: "the disk is full".into(),
        }
    }

    const TOLERANCE: Tolerance = Tolerance {
        sampled: 0.05,
        once: 0.3,
    };

    fn moved(comparison: &Comparison) -> Vec<(&str, f64)> {
        let changes = comparison.changes.iter();
        changes
            .map(|change| (change.name.as_str(), change.gain()))
            .collect()
    }

    #[test]
    fn only_what_left_the_spread_and_the_tolerance_has_moved() {
        let before = suite(&[
            rate("slower", [95.0, 100.0, 105.0]),
            rate("faster", [95.0, 100.0, 105.0]),
            rate("noisy", [50.0, 100.0, 150.0]),
            rate("steady", [99.9, 100.0, 100.1]),
            rate("gone", [1.0, 1.0, 1.0]),
        ]);
        let after = suite(&[
            rate("slower", [45.0, 50.0, 55.0]),
            rate("faster", [190.0, 200.0, 210.0]),
            rate("noisy", [60.0, 70.0, 90.0]),
            rate("steady", [101.9, 102.0, 102.1]),
            rate("new", [1.0, 1.0, 1.0]),
        ]);
        let comparison = compare(&before, &after, TOLERANCE);
        assert_eq!(moved(&comparison), [("s: slower", 0.5), ("s: faster", 2.0)]);
        assert_eq!((comparison.compared, comparison.alone), (4, 2));
    }

    #[test]
    fn a_rate_that_fell_to_nothing_is_the_worst_loss_and_suites_that_are_gone_are_counted() {
        let rates = |medians: [f64; 2]| {
            let row = |(name, median): (&str, f64)| rate(name, [median; 3]);
            let rows: Vec<_> = ["stopped", "never was"]
                .into_iter()
                .zip(medians)
                .map(row)
                .collect();
            suite(&rows)
        };
        let other = |name: &str| SuiteResult {
            name: name.into(),
            ..suite(&[rate("one", [1.0; 3]), rate("two", [1.0; 3])]).remove(0)
        };
        let (mut before, mut after) = (rates([100.0, 0.0]), rates([0.0, 0.0]));
        before.push(other("gone"));
        after.push(other("new"));
        let comparison = compare(&before, &after, TOLERANCE);
        assert_eq!(moved(&comparison), [("s: stopped", 0.0)]);
        assert_eq!((comparison.compared, comparison.alone), (1, 4));
    }

    #[test]
    fn what_failed_later_only_is_named() {
        let failing = |whats: &[&str]| {
            let mut suites = suite(&[]);
            suites[0].failures = whats.iter().map(|what| failure(what)).collect();
            suites
        };
        let comparison = compare(&failing(&["always"]), &failing(&["always", "now"]), TOLERANCE);
        let named: Vec<_> = comparison.failures.iter().map(|failure| &failure.what).collect();
        assert_eq!(named, ["s: now"]);
        let comparison = compare(&failing(&["once"]), &failing(&[]), TOLERANCE);
        assert!(comparison.failures.is_empty());
    }

    #[test]
    fn what_was_measured_once_has_moved_beyond_a_wider_tolerance() {
        let before = suite(&[
            rate("once", [100.0, 100.0, 100.0]),
            rate("once, far", [100.0, 100.0, 100.0]),
            figure("memory", 100.0, "bytes"),
            figure("replayed", 100.0, "events/s"),
            figure("in memory", 100.0, "instances"),
            json!({ "path": "append", "instructions_used": 1_000.0 }),
            json!({ "group": "waiting", "median_per_s": 10.0, "resident_bytes_used": 100.0, "reopen_us": 0.0 }),
        ]);
        let after = suite(&[
            rate("once", [80.0, 80.0, 80.0]),
            rate("once, far", [60.0, 60.0, 60.0]),
            figure("memory", 200.0, "bytes"),
            figure("replayed", 400.0, "events/s"),
            figure("in memory", 900.0, "instances"),
            json!({ "path": "append", "instructions_used": 1_100.0 }),
            json!({ "group": "waiting", "median_per_s": 9.0, "resident_bytes_used": 50.0, "reopen_us": 5.0 }),
        ]);
        let comparison = compare(&before, &after, TOLERANCE);
        let expected = [
            ("s: bytes, memory", 0.5),
            ("s: once, far", 0.6),
            ("s: append", 1_000.0 / 1_100.0),
            ("s: waiting, memory", 2.0),
            ("s: events/s, replayed", 4.0),
        ];
        assert_eq!(moved(&comparison), expected);
    }
}
