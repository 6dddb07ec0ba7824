//! The contents of a store: its file, its oldest and newest runs, and how many runs each workflow has.
//!
//! ```text
//!   process ── what it counts ───────────────────────────────┐
//!   file ───── its live runs, and those that ended, counted ─┴─► table of workflows
//!   both ───── a page at each end of live and finished runs ───► table of ends
//! ```
//!
//! A file keeps no counts of ended runs, so the runs are read, the latest ended first, up to a bound. A process has counted
//! those that ended since it started.

use std::collections::BTreeMap;
use std::error::Error;

use serde_json::{Map, Value, json};

use super::error::ClientError;
use super::options::{Form, OfProgram};
use super::place::client;
use super::raw::Raw;
use super::wire::{Ask, Client, Place};
use super::{pages, show};
use crate::outcome::Outcome;
use crate::output::{note, tell};

/// How many finished runs of a file are counted.
const COUNTED_MAX: u64 = 20_000;
/// The most live runs that are searched for the one that began first.
const LIVE_MAX: u64 = 10_000;

const LIVE: &str = "running,parked,paused,delayed,not-registered";
const FINISHED: [&str; 6] = [
    "completed",
    "failed",
    "cancelled",
    "terminated",
    "timed-out",
    "continued",
];

/// Tells what a store holds.
pub(super) async fn inspect(of: OfProgram) -> Result<Outcome, Box<dyn Error>> {
    let client = client(&of.at).await?;
    let store = asked(&client, "store").await?;
    let (counts, is_all) = counted(&client).await?;
    let ends = Ends::of(&client).await?;
    if of.form.json || of.form.jsonl {
        let mut told: Map<String, Value> = serde_json::from_str(store.json())?;
        let counts: Map<String, Value> = serde_json::from_str(counts.json())?;
        told.extend(counts);
        told.extend(ends.json()?);
        tell(Value::from(told))?;
        return Ok(Outcome::Complete);
    }
    let state = match &client.place {
        Place::Closed(_) => "closed: no process has it",
        Place::Address { .. } | Place::Socket(_) => "open: a process answers",
    };
    tell(format_args!("state                {state}"))?;
    tell(show::fields(&store))?;
    tell(format_args!("\n{}", show::ends(&ends.rows())))?;
    tell(format_args!("\n{}", show::counts(&counts)))?;
    tell_of_bound(is_all);
    Ok(Outcome::Complete)
}

/// Tells how many runs there are of each workflow.
pub(super) async fn counts(of: OfProgram) -> Result<Outcome, Box<dyn Error>> {
    let client = client(&of.at).await?;
    let (counts, is_all) = counted(&client).await?;
    match of.form {
        Form { json: true, .. } | Form { jsonl: true, .. } => tell(counts.json())?,
        _ => {
            tell(show::counts(&counts))?;
            tell_of_bound(is_all);
        }
    }
    Ok(Outcome::Complete)
}

fn tell_of_bound(is_all: bool) {
    if !is_all {
        note(format_args!(
            "of the runs that ended, the latest {COUNTED_MAX} are counted"
        ));
    }
}

async fn asked(client: &Client, operation: &str) -> Result<Raw, ClientError> {
    let ask = Ask {
        operation,
        ..Ask::default()
    };
    Raw::parse(&client.ask(ask).await?)
}

/// The counts that a process keeps, or those of a file with its ended runs; and whether they cover all runs.
async fn counted(client: &Client) -> Result<(Raw, bool), ClientError> {
    let counts = asked(client, "counts").await?;
    if !client.is_closed() {
        return Ok((counts, true));
    }
    let status = [("status", FINISHED.join(","))];
    let (ended, has_more) = pages(client, ("find", ""), "runs", &status, None, COUNTED_MAX).await?;
    Ok((with_ended(&counts, &ended, !has_more)?, !has_more))
}

/// Adds up counts of live runs, and of these ended ones.
fn with_ended(counts: &Raw, ended: &[Raw], is_all: bool) -> Result<Raw, ClientError> {
    let wrong = |error: serde_json::Error| ClientError::Answer(error.to_string());
    let mut counts: Map<String, Value> = serde_json::from_str(counts.json()).map_err(wrong)?;
    let mut rows = BTreeMap::new();
    if let Some(Value::Array(live)) = counts.remove("workflows") {
        for row in live {
            let workflow = row["workflow"].as_str().unwrap_or_default().to_owned();
            rows.insert(workflow, row);
        }
    }
    for run in ended {
        let workflow = run.text_of("workflow");
        let none = || {
            let zeros = ["running", "parked", "paused", "delayed", "not_registered"];
            let zeros = zeros
                .iter()
                .chain(&FINISHED)
                .map(|name| ((*name).to_owned(), json!(0)));
            let mut row: Map<_, _> = zeros.collect();
            row.insert("workflow".to_owned(), json!(workflow));
            Value::from(row)
        };
        let row = rows.entry(workflow.clone()).or_insert_with(none);
        let len = &mut row[run.text_of("status")];
        *len = json!(len.as_u64().unwrap_or_default() + 1);
    }
    counts.insert("workflows".to_owned(), rows.into_values().collect());
    counts.insert("is_all_counted".to_owned(), json!(is_all));
    Raw::parse(&Value::from(counts).to_string())
}

/// The first and the last run: of live ones, by their beginning, and of ended ones, by their end.
struct Ends {
    newest_live: Option<Raw>,
    /// Unknown if there are too many live runs.
    oldest_live: Option<Raw>,
    latest_ended: Option<Raw>,
    earliest_ended: Option<Raw>,
}

impl Ends {
    async fn of(client: &Client) -> Result<Self, ClientError> {
        let status = |status: &str| [("status", status.to_owned())];
        let (mut live, has_more) = pages(client, ("find", ""), "runs", &status(LIVE), None, LIVE_MAX).await?;
        let oldest_live = if has_more { None } else { live.pop() };
        let newest_live = live.into_iter().next();
        let ended = status(&FINISHED.join(","));
        let (latest, _) = pages(client, ("find", ""), "runs", &ended, None, 1).await?;
        let (earliest, _) = pages(client, ("finished", ""), "runs", &[], None, 1).await?;
        let earliest_ended = match earliest.into_iter().next() {
            // The list has no workflows; the description has.
            Some(earliest) => {
                let run = earliest.text_of("run");
                let ask = Ask {
                    operation: "describe_run",
                    value: &run,
                    ..Ask::default()
                };
                Some(Raw::parse(&client.ask(ask).await?)?)
            }
            None => None,
        };
        Ok(Self {
            newest_live: newest_live.or_else(|| oldest_live.clone()),
            oldest_live,
            latest_ended: latest.into_iter().next(),
            earliest_ended,
        })
    }

    fn all(&self) -> [(&'static str, Option<&Raw>); 4] {
        [
            ("oldest_live", self.oldest_live.as_ref()),
            ("newest_live", self.newest_live.as_ref()),
            ("earliest_ended", self.earliest_ended.as_ref()),
            ("latest_ended", self.latest_ended.as_ref()),
        ]
    }

    fn rows(&self) -> Vec<(&'static str, &Raw)> {
        let all = self.all().into_iter();
        all.filter_map(|(name, run)| Some((name, run?))).collect()
    }

    fn json(&self) -> Result<Map<String, Value>, serde_json::Error> {
        let all = self.all().into_iter().map(|(name, run)| {
            let told = run.map(|run| {
                let fields = ["id", "run", "workflow", "started_at_us", "ended_at_us"];
                let fields = fields.map(|name| {
                    let value = run.get(name).map(|value| serde_json::from_str(value.json()));
                    Ok((name.to_owned(), value.transpose()?.unwrap_or(Value::Null)))
                });
                fields
                    .into_iter()
                    .collect::<Result<Map<_, _>, serde_json::Error>>()
            });
            Ok((
                name.to_owned(),
                told.transpose()?.map_or(Value::Null, Value::from),
            ))
        });
        all.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_ended_are_counted_beside_those_that_live() {
        let counts = Raw::parse(
            r#"{"workflows": [{"workflow": "order", "running": 2, "failed": 0}], "bulks_running": 0}"#,
        )
        .unwrap();
        let ended: Vec<_> = [("order", "failed"), ("trip", "completed"), ("order", "failed")]
            .map(|(workflow, status)| {
                Raw::parse(&json!({"workflow": workflow, "status": status}).to_string()).unwrap()
            })
            .into();
        let counted = with_ended(&counts, &ended, false).unwrap();
        let counted: Value = serde_json::from_str(counted.json()).unwrap();
        assert_eq!(counted["workflows"][0]["failed"], 2);
        assert_eq!(counted["workflows"][0]["running"], 2);
        assert_eq!(counted["workflows"][1]["workflow"], "trip");
        assert_eq!(counted["workflows"][1]["completed"], 1);
        assert_eq!(counted["workflows"][1]["paused"], 0);
        assert_eq!(counted["is_all_counted"], false);
    }
}
