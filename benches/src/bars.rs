//! The bars we hold ourselves to, and whether a run holds them.
//!
//! `bars.toml` lists them per suite. A bar picks one row of ours and, if it is relative, rows of
//! others; it is judged on the rows of the same run only. A cell without its rows is not judged:
//! nothing is assumed about what was not measured.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{BenchError, Table, approximate};

const BARS: &str = include_str!("../bars.toml");

/// Picks rows: each named field must have exactly this value.
type Pick = Map<String, Value>;

/// All bars of `bars.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bars {
    bar: Vec<Bar>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Bar {
    /// The suite that judges it.
    suite: String,
    /// What is held, in words.
    name: String,
    /// The unit of value and bar; `x` for a ratio.
    unit: String,
    /// The field of the rows that is compared.
    #[serde(default = "default_field")]
    field: String,
    /// Our row.
    ours: Pick,
    /// The rows we are compared with: the best that matches any of them counts. Without them the
    /// bar is absolute.
    #[serde(default)]
    against: Vec<Pick>,
    /// Rows of others that do not count.
    #[serde(default)]
    except: Vec<Pick>,
    /// The machine that reached the figures of an absolute bar. They are information then, shown beside what
    /// this run reached and not judged: rates and times move with the machine.
    #[serde(default)]
    set_on: Option<String>,
    /// The cells, each with its own limit.
    cells: Vec<Cell>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cell {
    /// Further fields that both our row and the others must have.
    #[serde(default)]
    at: Pick,
    #[serde(default)]
    at_least: Option<f64>,
    #[serde(default)]
    at_most: Option<f64>,
    /// An absolute bar is lowered to this share of another row of the run, if that is lower.
    #[serde(default)]
    or_share: Option<Share>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Share {
    of: Pick,
    times: f64,
}

fn default_field() -> String {
    "median_per_s".into()
}

/// Whether one cell of one bar holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Bar and cell.
    pub name: String,
    /// What this run reached.
    pub value: f64,
    /// The unit of both figures.
    pub unit: String,
    /// What was to be reached.
    pub bar: f64,
    /// Whether it was.
    pub holds: bool,
    /// `least` if more is better, `most` if less is.
    pub at: String,
    /// The machine that reached `bar`, if both figures are information and nothing is judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_on: Option<String>,
}

impl Bars {
    /// The bars as they were when this program was built.
    ///
    /// # Errors
    /// When `bars.toml` does not have the expected shape.
    pub fn load() -> Result<Self, BenchError> {
        Self::parse(BARS)
    }

    fn parse(text: &str) -> Result<Self, BenchError> {
        let bars: Self = toml::from_str(text).map_err(|error| BenchError::Bars(error.to_string()))?;
        for bar in &bars.bar {
            if let Some(cell) = bar
                .cells
                .iter()
                .find(|cell| cell.at_least.is_some() == cell.at_most.is_some())
            {
                return Err(BenchError::Bars(format!(
                    "{}: a cell needs either at_least or at_most: {cell:?}",
                    bar.name
                )));
            }
            if bar.set_on.is_some() && !bar.against.is_empty() {
                return Err(BenchError::Bars(format!(
                    "{}: a ratio is set on no machine",
                    bar.name
                )));
            }
        }
        Ok(bars)
    }

    /// Judges the rows of one suite. What is not judged comes first, and what does not hold last.
    ///
    /// # Errors
    /// When a row cannot be expressed as JSON.
    pub fn judge(&self, suite: &str, rows: &[impl Serialize]) -> Result<Vec<Verdict>, BenchError> {
        let rows = rows
            .iter()
            .map(serde_json::to_value)
            .collect::<Result<Vec<_>, _>>()?;
        let mut verdicts: Vec<Verdict> = self
            .bar
            .iter()
            .filter(|bar| bar.suite == suite)
            .flat_map(|bar| bar.cells.iter().filter_map(|cell| bar.judge(cell, &rows)))
            .collect();
        verdicts.sort_by_key(|verdict| (verdict.is_judged(), !verdict.holds));
        Ok(verdicts)
    }
}

impl Bar {
    fn judge(&self, cell: &Cell, rows: &[Value]) -> Option<Verdict> {
        let at_most = cell.at_most.is_some();
        let best = |picks: &[Pick], except: &[Pick]| {
            rows.iter()
                .filter(|row| matches(row, &cell.at) && picks.iter().any(|pick| matches(row, pick)))
                .filter(|row| !except.iter().any(|pick| matches(row, pick)))
                .filter_map(|row| row.get(&self.field)?.as_f64())
                .reduce(if at_most { f64::min } else { f64::max })
        };
        let ours = best(std::slice::from_ref(&self.ours), &[])?;
        let value = if self.against.is_empty() {
            ours
        } else {
            ours / best(&self.against, &self.except)?
        };
        let mut bar = cell.at_least.or(cell.at_most)?;
        if let Some(share) = &cell.or_share
            && let Some(reference) = best(std::slice::from_ref(&share.of), &[])
        {
            bar = bar.min(reference * share.times);
        }
        Some(Verdict {
            name: self.cell_name(cell),
            value,
            unit: self.unit.clone(),
            bar,
            holds: if at_most { value <= bar } else { value >= bar },
            at: if at_most { "most" } else { "least" }.into(),
            set_on: self.set_on.clone(),
        })
    }

    fn cell_name(&self, cell: &Cell) -> String {
        let mut name = self.name.clone();
        for (field, value) in &cell.at {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            name.push_str(&match field.as_str() {
                // Its values say all.
                "what" => format!(", {value}"),
                field => format!(", {field} {value}"),
            });
        }
        name
    }
}

fn matches(row: &Value, pick: &Pick) -> bool {
    pick.iter().all(|(field, wanted)| {
        row.get(field)
            .is_some_and(|found| match (found.as_f64(), wanted.as_f64()) {
                (Some(found), Some(wanted)) => found == wanted,
                _ => found == wanted,
            })
    })
}

impl Verdict {
    /// Whether this is more than information.
    #[must_use]
    pub fn is_judged(&self) -> bool {
        self.set_on.is_none()
    }

    /// Whether the bar holds, in a word, or what its figure is if nobody judges it.
    #[must_use]
    pub fn said(&self) -> String {
        match (&self.set_on, self.holds) {
            (Some(machine), _) => format!("information; reached on {machine}"),
            (None, true) => "yes".into(),
            (None, false) => "NO".into(),
        }
    }

    /// A table of verdicts, in the given order.
    #[must_use]
    pub fn table(verdicts: &[Self]) -> Table {
        let mut table = Table::new("Bars", 1, ["bar", "reached", "wanted", "holds"]);
        for verdict in verdicts {
            let Self {
                name,
                value,
                unit,
                bar,
                ..
            } = verdict;
            table.line([
                name.clone(),
                format!("{} {unit}", approximate(*value)),
                format!(
                    "{} {} {unit}",
                    if verdict.at == "most" { "≤" } else { "≥" },
                    approximate(*bar)
                ),
                verdict.said(),
            ]);
        }
        table
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            value,
            unit,
            bar,
            ..
        } = self;
        let relation = if self.at == "most" { "at most" } else { "at least" };
        write!(
            f,
            "{name}: {} {unit}, {relation} {}",
            approximate(*value),
            approximate(*bar)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const ONE_BAR: &str = r#"
        [[bar]]
        suite = "s"
        name = "ours over others"
        unit = "x"
        ours = { who = "us" }
        against = [{ kind = "peer" }]
        except = [{ who = "reference" }, { who = "us" }]
        cells = [{ at = { size = 1 }, at_least = 2.0 }, { at = { size = 2 }, at_least = 2.0 }]
    "#;

    fn rows() -> Vec<Value> {
        vec![
            json!({ "who": "us", "kind": "peer", "size": 1, "median_per_s": 10.0 }),
            json!({ "who": "a", "kind": "peer", "size": 1, "median_per_s": 4.0 }),
            json!({ "who": "b", "kind": "peer", "size": 1, "median_per_s": 5.0 }),
            json!({ "who": "reference", "kind": "peer", "size": 1, "median_per_s": 9.0 }),
            json!({ "who": "us", "size": 2, "median_per_s": 10.0 }),
            json!({ "who": "a", "kind": "peer", "size": 2, "median_per_s": 6.0 }),
            json!({ "who": "us", "size": 3, "median_per_s": 10.0 }),
        ]
    }

    #[test]
    fn a_ratio_is_taken_against_the_best_other_of_the_same_cell() {
        let verdicts = Bars::parse(ONE_BAR).unwrap().judge("s", &rows()).unwrap();
        let judged: Vec<_> = verdicts
            .iter()
            .map(|v| (v.name.as_str(), v.value, v.holds))
            .collect();
        assert_eq!(
            judged,
            [
                ("ours over others, size 1", 2.0, true),
                ("ours over others, size 2", 10.0 / 6.0, false),
            ]
        );
    }

    #[test]
    fn what_was_not_measured_is_not_judged() {
        let only_ours = &rows()[..1];
        assert_eq!(Bars::parse(ONE_BAR).unwrap().judge("s", only_ours).unwrap(), []);
        assert_eq!(Bars::parse(ONE_BAR).unwrap().judge("other", &rows()).unwrap(), []);
    }

    #[test]
    fn a_share_of_a_reference_lowers_an_absolute_bar_but_never_raises_it() {
        let text = r#"
            [[bar]]
            suite = "s"
            name = "rate"
            unit = "events/s"
            ours = { who = "us" }
            cells = [{ at_least = 100.0, or_share = { of = { who = "loop" }, times = 0.5 } }]
        "#;
        let judge = |reference: f64| {
            let rows = [
                json!({ "who": "us", "median_per_s": 60.0 }),
                json!({ "who": "loop", "median_per_s": reference }),
            ];
            let verdicts = Bars::parse(text).unwrap().judge("s", &rows).unwrap();
            (verdicts[0].bar, verdicts[0].holds)
        };
        assert_eq!(judge(100.0), (50.0, true));
        assert_eq!(judge(1_000.0), (100.0, false));
    }

    #[test]
    fn a_figure_of_another_machine_is_information_and_stands_before_what_is_judged() {
        let absolute = r#"
            [[bar]]
            suite = "s"
            name = "rate"
            unit = "events/s"
            ours = { who = "us" }
            set_on = "another machine"
            cells = [{ at = { size = 1 }, at_least = 100.0 }]
        "#;
        let bars = Bars::parse(&format!("{ONE_BAR}{absolute}")).unwrap();
        let verdicts = bars.judge("s", &rows()).unwrap();
        let first = &verdicts[0];
        assert_eq!((first.value, first.bar, first.is_judged()), (10.0, 100.0, false));
        assert_eq!(first.said(), "information; reached on another machine");
        assert_eq!(verdicts.iter().filter(|verdict| verdict.is_judged()).count(), 2);

        let ratio = ONE_BAR.replace("unit", "set_on = \"it\"\n        unit");
        assert!(matches!(Bars::parse(&ratio), Err(BenchError::Bars(_))));
    }

    #[test]
    fn a_cell_needs_one_limit() {
        let text = ONE_BAR.replace("at_least = 2.0 }]", "at_least = 2.0, at_most = 3.0 }]");
        assert!(matches!(Bars::parse(&text), Err(BenchError::Bars(_))));
    }

    #[test]
    fn the_bars_of_this_project_are_well_formed() {
        assert!(!Bars::load().unwrap().bar.is_empty());
    }
}
