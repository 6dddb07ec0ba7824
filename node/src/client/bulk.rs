//! One thing done to all runs that are meant.
//!
//! ```text
//!   filter ──► dry run: how many ──► --yes, or asked ──► start under a name ──► progress, until it has ended
//! ```
//!
//! The bulk is a durable workflow of the program. It goes on when this command ends, and `bulk show` tells how far it is.

use std::error::Error;
use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, SystemTime};

use clap::{Args, Subcommand};

use super::error::ClientError;
use super::filter::RunFilter;
use super::options::{At, Form};
use super::place::client;
use super::raw::Raw;
use super::time::date_and_time;
use super::wire::{Ask, Client};
use super::{json, object, pages, say, show, show_one, text, write, write_list};
use crate::outcome::Outcome;
use crate::output::note;
use crate::table::Table;

/// How often a bulk that goes on is asked for its progress.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// Which runs, how fast, and whether it is asked.
#[derive(Debug, Args)]
pub(crate) struct Reach {
    #[command(flatten)]
    filter: RunFilter,
    /// Instances by their ids, beside those that the filter finds or in their place; may be given several times.
    #[arg(long, value_name = "ID", help_heading = "Which runs")]
    id: Vec<String>,
    /// All runs, without a filter.
    #[arg(long, help_heading = "Which runs")]
    all: bool,
    /// Only tell how many runs it would reach.
    #[arg(long)]
    dry_run: bool,
    /// Do not ask, and do not count before it begins.
    #[arg(long, short)]
    yes: bool,
    /// The name under which it is started: started again under it, it is the same. One of its own by default.
    #[arg(long)]
    name: Option<String>,
    /// How many instances it looks at in a second, at most.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    per_second: u32,
    /// Do not wait for its end.
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    at: At,
    #[command(flatten)]
    form: Form,
}

/// What ends runs, and why.
#[derive(Debug, Args)]
pub(crate) struct Ending {
    /// Why; it stands in their histories.
    #[arg(long, default_value = "asked for on the command line")]
    reason: String,
    #[command(flatten)]
    reach: Reach,
}

/// What runs are sent.
#[derive(Debug, Args)]
pub(crate) struct Sending {
    /// The name of the signal.
    signal: String,
    /// Its value in JSON; - reads standard input.
    #[arg(default_value = "null")]
    value: String,
    #[command(flatten)]
    reach: Reach,
}

/// A bulk.
#[derive(Debug, Args)]
pub(crate) struct OfBulk {
    /// The name under which it was started.
    name: String,
    #[command(flatten)]
    at: At,
    #[command(flatten)]
    form: Form,
}

#[derive(Debug, Args)]
pub(crate) struct Stop {
    /// The name under which it was started.
    name: String,
    /// Why; it stands in its history.
    #[arg(long, default_value = "asked for on the command line")]
    reason: String,
    #[command(flatten)]
    at: At,
    #[command(flatten)]
    form: Form,
}

#[derive(Debug, Args)]
pub(crate) struct ListBulks {
    /// How many, at most.
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: u64,
    #[command(flatten)]
    at: At,
    #[command(flatten)]
    form: Form,
}

/// What is done to all runs that are meant.
#[derive(Debug, Subcommand)]
pub(crate) enum BulkCommand {
    /// Ask runs to end, with time to clean up.
    Cancel(Ending),
    /// End runs without asking their code.
    Terminate(Ending),
    /// Take paused and parked runs up again.
    Resume(Reach),
    /// Send runs a signal, once each.
    Signal(Sending),
    /// Start instances that have finished again, with their input.
    StartAgain(Reach),
    /// List the bulks, those that run first.
    List(ListBulks),
    /// Print what a bulk does, and how far it has come.
    Show(OfBulk),
    /// Stop a bulk; what it has done stays done.
    Stop(Stop),
}

pub(super) async fn bulk(command: BulkCommand) -> Result<Outcome, Box<dyn Error>> {
    match command {
        BulkCommand::Cancel(ending) => {
            act("cancel", vec![("reason", text(&ending.reason))], ending.reach).await
        }
        BulkCommand::Terminate(ending) => {
            act("terminate", vec![("reason", text(&ending.reason))], ending.reach).await
        }
        BulkCommand::Resume(reach) => act("resume", Vec::new(), reach).await,
        BulkCommand::Signal(sending) => {
            let fields = vec![("signal", text(&sending.signal)), ("value", json(sending.value)?)];
            act("signal", fields, sending.reach).await
        }
        BulkCommand::StartAgain(reach) => act("start-again", Vec::new(), reach).await,
        BulkCommand::List(list) => {
            let client = client(&list.at).await?;
            let bulks = pages(&client, ("bulks", ""), "bulks", &[], None, list.limit).await?;
            write_list(&bulks, list.form, shown_bulks)?;
            Ok(Outcome::Complete)
        }
        BulkCommand::Show(of) => show_one("bulk", &of.name, &of.at, of.form, show::fields).await,
        BulkCommand::Stop(stop) => {
            let body = object(&[("reason", &text(&stop.reason))]);
            let stopped = |_: &Raw| "stopped".to_owned();
            say("stop_bulk", &stop.name, body, &stop.at, stop.form, stopped).await
        }
    }
}

fn shown_bulks(bulks: &[Raw]) -> String {
    let mut table = Table::of(["name", "status", "began at (UTC)", "ended at (UTC)"]);
    for bulk in bulks {
        let time = |name| bulk.number_of(name).map_or_else(String::new, date_and_time);
        let (name, status) = (bulk.text_of("name"), bulk.text_of("status"));
        table.row([name, status, time("started_at_us"), time("ended_at_us")]);
    }
    table.to_string()
}

/// Counts, asks, starts, and waits.
async fn act(
    action: &str,
    mut fields: Vec<(&'static str, String)>,
    reach: Reach,
) -> Result<Outcome, Box<dyn Error>> {
    if reach.filter.is_empty() && reach.id.is_empty() && !reach.all {
        let why = "nothing says which runs are meant\ntry: --workflow, --status, --id-prefix, --id, or --all";
        return Err(ClientError::Usage(why.to_owned()).into());
    }
    let ids: Vec<_> = reach.id.iter().map(|id| text(id)).collect();
    fields.push(("action", text(action)));
    fields.push(("ids", format!("[{}]", ids.join(","))));
    fields.push(("per_second", reach.per_second.to_string()));
    if reach.all || !reach.filter.is_empty() {
        fields.push(("filter", reach.filter.json()));
    }
    let client = client(&reach.at).await?;
    if reach.dry_run || !reach.yes {
        let counted = ask(&client, &fields, ("dry_run", "true")).await?;
        let reached = Raw::parse(&counted)?.number_of("reached").unwrap_or(0);
        if reach.dry_run {
            write(&counted, reach.form, |_| {
                format!("{action} would reach {}", runs(reached))
            })?;
            return Ok(Outcome::Complete);
        }
        if !is_confirmed(action, reached)? {
            return Ok(Outcome::Partial);
        }
    }
    let name = reach.name.unwrap_or_else(|| {
        let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        format!("command-line-{}-{}", std::process::id(), since.as_nanos())
    });
    let started = ask(&client, &fields, ("name", &text(&name))).await?;
    if reach.no_wait {
        write(&started, reach.form, |started| started.text_of("name"))?;
        return Ok(Outcome::Complete);
    }
    note(format_args!(
        "it is the bulk {name}; with Ctrl-C it goes on, see: millrun bulk show {name}"
    ));
    follow(&client, &name, reach.form).await
}

async fn ask(
    client: &Client,
    fields: &[(&'static str, String)],
    more: (&str, &str),
) -> Result<String, ClientError> {
    let fields = fields.iter().map(|(name, value)| (*name, value.as_str()));
    let fields: Vec<_> = fields.chain([more]).collect();
    let ask = Ask {
        operation: "start_bulk",
        body: Some(object(&fields)),
        ..Ask::default()
    };
    client.ask(ask).await
}

fn runs(len: u64) -> String {
    match len {
        1 => "1 run".to_owned(),
        len => format!("{len} runs"),
    }
}

/// Asks the person at the terminal.
fn is_confirmed(action: &str, reached: u64) -> Result<bool, ClientError> {
    let question = format!("{action} reaches {} now", runs(reached));
    let (mut error, input) = (std::io::stderr(), std::io::stdin());
    if !input.is_terminal() {
        let why = format!("{question}, and there is no terminal to ask at\ntry: --yes, or --dry-run");
        return Err(ClientError::Usage(why));
    }
    let failed = |error| ClientError::Usage(format!("the terminal cannot be asked: {error}"));
    write!(error, "{question}. Go on? [y/N] ").map_err(failed)?;
    let mut answer = String::new();
    input.read_line(&mut answer).map_err(failed)?;
    Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}

/// Tells the progress of a bulk, until it has ended.
async fn follow(client: &Client, name: &str, form: Form) -> Result<Outcome, Box<dyn Error>> {
    let is_drawn = std::io::stderr().is_terminal();
    loop {
        let ask = Ask {
            operation: "bulk",
            value: name,
            ..Ask::default()
        };
        let answer = client.ask(ask).await?;
        let bulk = Raw::parse(&answer)?;
        let number = |name| bulk.number_of(name).unwrap_or(0);
        let (done, failed, passed_over) = (number("done"), number("failed"), number("passed_over"));
        let status = bulk.text_of("status");
        if status == "running" {
            if is_drawn {
                let line = format!("{} of {}", done + failed + passed_over, number("selected"));
                // At the beginning of the line, and to its end.
                write!(std::io::stderr(), "\r{line}\x1b[K").ok();
            }
            tokio::time::sleep(ASK_EVERY).await;
            continue;
        }
        if is_drawn {
            write!(std::io::stderr(), "\r\x1b[K").ok();
        }
        write(&answer, form, |_| {
            let told = format!("{status}: {done} done, {passed_over} passed over, {failed} failed");
            let failures = bulk.list_of("failures");
            let failures = failures
                .iter()
                .map(|failure| format!("\n  {}: {}", failure.text_of("id"), failure.text_of("message")));
            told + &failures.collect::<String>()
        })?;
        return Ok(match (&*status, failed) {
            ("completed", 0) => Outcome::Complete,
            ("completed", _) | ("parked" | "paused", _) => Outcome::Partial,
            _ => Outcome::Lost,
        });
    }
}
