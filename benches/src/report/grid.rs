//! Rows as a grid of text: what all rows have in common is said once.

use serde_json::{Map, Value};

use crate::{approximate, grouped};

/// Fields that name what was measured come first, in this order.
const FIRST: [&str; 8] = [
    "group",
    "engine",
    "framework",
    "workload",
    "mode",
    "runtime",
    "store",
    "kind",
];

/// Results of one thing, in the order in which they are read.
const RESULTS: [&str; 6] = ["median", "min", "max", "p50", "p99", "p999"];

/// Published figures of a peer do not say how they were measured.
const UNKNOWN_IF_ZERO: [&str; 3] = ["completed", "rounds", "threads"];

type Fields<'a> = &'a Map<String, Value>;

/// Rows as text.
#[derive(Debug, PartialEq)]
pub(super) struct Grid {
    /// Fields with one value in all rows.
    pub(super) same: Vec<(String, String)>,
    pub(super) columns: Vec<Column>,
    pub(super) lines: Vec<Vec<String>>,
}

#[derive(Debug, PartialEq)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) is_number: bool,
}

impl Grid {
    /// One grid per value of the field `group`, or one of all rows where there is none.
    pub(super) fn of(rows: &[Map<String, Value>]) -> Vec<Self> {
        let mut groups: Vec<Vec<Fields>> = Vec::new();
        for row in rows {
            let same_group = |members: &&mut Vec<Fields>| members[0].get("group") == row.get("group");
            match groups.iter_mut().find(same_group) {
                Some(members) => members.push(row),
                None => groups.push(vec![row]),
            }
        }
        groups.iter().map(|members| Self::of_group(members)).collect()
    }

    fn of_group(rows: &[Fields]) -> Self {
        let mut fields: Vec<&str> = Vec::new();
        for row in rows {
            // Distributions are for plots.
            for (field, _) in row.iter().filter(|(_, value)| !value.is_array()) {
                if !fields.contains(&field.as_str()) {
                    fields.push(field);
                }
            }
        }
        fields.sort_by_key(|field| {
            let is_number = rows
                .iter()
                .filter_map(|row| row.get(*field))
                .any(Value::is_number);
            let first = FIRST
                .iter()
                .position(|known| known == field)
                .unwrap_or(FIRST.len());
            let stem = field.split('_').next();
            let result = RESULTS.iter().position(|known| Some(*known) == stem);
            (first, is_number, is_measured(field), result)
        });
        let mut grid = Self {
            same: Vec::new(),
            columns: Vec::new(),
            lines: vec![Vec::new(); rows.len()],
        };
        for field in fields {
            let values: Vec<Option<&Value>> = rows.iter().map(|row| row.get(field)).collect();
            let is_same = values.windows(2).all(|pair| pair[0] == pair[1]);
            if is_same && !is_measured(field) {
                grid.same.push((
                    words(field),
                    values.first().copied().flatten().map_or_else(String::new, text),
                ));
                continue;
            }
            grid.columns.push(Column {
                name: words(field),
                is_number: values.iter().flatten().any(|value| value.is_number()),
            });
            for (line, value) in grid.lines.iter_mut().zip(values) {
                let is_unknown =
                    |value: &&Value| UNKNOWN_IF_ZERO.contains(&field) && value.as_f64() == Some(0.0);
                let known = value.filter(|value| !is_unknown(value));
                line.push(known.map_or_else(|| "-".into(), text));
            }
        }
        grid
    }
}

/// Whether a field is a result rather than part of what was measured.
pub(super) fn is_measured(field: &str) -> bool {
    ["_per_s", "_ns", "_us", "_ms", "_used", "_per_event"]
        .iter()
        .any(|unit| field.ends_with(unit))
        || [
            "completed",
            "file_over_live",
            "measured_messages",
            "p99_over_p50",
            "rounds",
            "seconds",
            "value",
            "version",
        ]
        .contains(&field)
}

fn words(field: &str) -> String {
    field.replace("_per_s", "/s").replace('_', " ")
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_f64() => approximate(number.as_f64().unwrap_or(f64::NAN)),
        Value::Number(number) => number.as_f64().map_or_else(String::new, grouped),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn row(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn what_is_the_same_everywhere_is_said_once() {
        let rows = [
            row(json!({ "framework": "a", "messages": 1_000, "median_per_s": 1_234_567.0 })),
            row(json!({ "framework": "b", "messages": 1_000, "median_per_s": 0.5 })),
        ];
        let grids = Grid::of(&rows);
        assert_eq!(grids.len(), 1);
        assert_eq!(grids[0].same, [("messages".to_owned(), "1,000".to_owned())]);
        assert_eq!(grids[0].lines, [vec!["a", "1,234,567"], vec!["b", "0.500"]]);
    }

    #[test]
    fn results_stand_in_the_order_in_which_they_are_read() {
        let result =
            json!({ "p999_us": 3.0, "max_per_s": 9, "p99_us": 2.0, "median_per_s": 7, "p50_us": 1.0 });
        let names: Vec<_> = Grid::of(&[row(result)])[0]
            .columns
            .iter()
            .map(|column| column.name.clone())
            .collect();
        assert_eq!(names, ["median/s", "max/s", "p50 us", "p99 us", "p999 us"]);
    }

    #[test]
    fn each_group_is_a_grid_of_its_own() {
        let rows = [
            row(json!({ "group": "pair", "messages": 1 })),
            row(json!({ "group": "latency", "p50_ns": 5.0 })),
            row(json!({ "group": "pair", "messages": 2 })),
        ];
        let lines: Vec<_> = Grid::of(&rows).into_iter().map(|grid| grid.lines.len()).collect();
        assert_eq!(lines, [2, 1]);
    }
}
