//! Two sets of results: what moved by more than the noise.
//!
//! Rows are the same if they agree in everything that is not a result. A rate has moved if the
//! ranges of its samples (slowest to fastest) do not overlap *and* the medians differ by more
//! than the tolerance: on a shared machine either alone happens by chance.

use serde_json::{Map, Value};

use super::SuiteResult;
use super::grid::is_measured;

/// A row whose rate has moved.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Suite and row.
    pub name: String,
    /// The median before, per second.
    pub before: f64,
    /// The median after.
    pub after: f64,
}

impl Change {
    /// After over before: below one is slower.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        self.after / self.before
    }
}

/// What moved by more than `tolerance` (0.05 is 5%) and more than the spread of the samples, the
/// largest loss first; and how many rows were found in both sets.
#[must_use]
pub fn compare(before: &[SuiteResult], after: &[SuiteResult], tolerance: f64) -> (Vec<Change>, usize) {
    let mut changes = Vec::new();
    let mut compared = 0;
    for suite in after {
        let Some(old_suite) = before.iter().find(|old| old.name == suite.name) else {
            continue;
        };
        for row in &suite.rows {
            let Some(old) = old_suite.rows.iter().find(|old| same_cell(old, row)) else {
                continue;
            };
            let (Some(old), Some(new)) = (Rate::of(old), Rate::of(row)) else {
                continue;
            };
            compared += 1;
            let is_apart = old.max < new.min || new.max < old.min;
            if is_apart && (new.median / old.median - 1.0).abs() > tolerance {
                changes.push(Change {
                    name: format!("{}: {}", suite.name, name(row)),
                    before: old.median,
                    after: new.median,
                });
            }
        }
    }
    changes.sort_by(|left, right| left.ratio().total_cmp(&right.ratio()));
    (changes, compared)
}

struct Rate {
    median: f64,
    min: f64,
    max: f64,
}

impl Rate {
    fn of(row: &Map<String, Value>) -> Option<Self> {
        let field = |name: &str| row.get(name)?.as_f64();
        Some(Self {
            median: field("median_per_s")?,
            min: field("min_per_s")?,
            max: field("max_per_s")?,
        })
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

    fn suite(rows: &[(&str, [f64; 3])]) -> Vec<SuiteResult> {
        let rows = rows.iter().map(|(framework, [min, median, max])| {
            let row = json!({
                "framework": framework,
                "min_per_s": min,
                "median_per_s": median,
                "max_per_s": max,
                "version": median.to_string(),
            });
            row.as_object().unwrap().clone()
        });
        vec![SuiteResult {
            name: "s".into(),
            machine: None,
            rows: rows.collect(),
            verdicts: Vec::new(),
            charts: Vec::new(),
        }]
    }

    #[test]
    fn only_what_left_the_spread_and_the_tolerance_has_moved() {
        let before = suite(&[
            ("slower", [95.0, 100.0, 105.0]),
            ("faster", [95.0, 100.0, 105.0]),
            ("noisy", [50.0, 100.0, 150.0]),
            ("steady", [99.9, 100.0, 100.1]),
            ("gone", [1.0, 1.0, 1.0]),
        ]);
        let after = suite(&[
            ("slower", [45.0, 50.0, 55.0]),
            ("faster", [190.0, 200.0, 210.0]),
            ("noisy", [60.0, 70.0, 90.0]),
            ("steady", [101.9, 102.0, 102.1]),
            ("new", [1.0, 1.0, 1.0]),
        ]);
        let (changes, compared) = compare(&before, &after, 0.05);
        let moved: Vec<_> = changes
            .iter()
            .map(|change| (change.name.as_str(), change.ratio()))
            .collect();
        assert_eq!(moved, [("s: slower", 0.5), ("s: faster", 2.0)]);
        assert_eq!(compared, 4);
    }
}
