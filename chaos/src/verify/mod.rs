//! The third look: a process of its own opens the store and tells what its histories say.
//!
//! ```text
//!   store file ──► journal ──► every run, live and finished ──► a line for each: what it holds
//!                                        └──► replayed with the programs' code
//! ```
//!
//! Histories need no runtime; records of durable topics, and entities, are read by one that has no programs. It knows the events, and nothing of what was asked or answered.

mod digest;
mod letters;

use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use millrun::RunId;
use millrun::host::{HostConfig, TokioHost};
use millrun::store::{Journal, JournalConfig, Reads, RedbJournal};
use millrun_persistence::RecordView;
use millrun_workflow::Implementation;
use serde::{Deserialize, Serialize};

use crate::programs::{self, ProgramResult, World};

/// How the supervisor starts a verifier.
#[derive(Clone, Debug, Args)]
pub(crate) struct VerifyOptions {
    /// The store file. Opening it repairs it, if it was not closed.
    pub(crate) store: PathBuf,
    /// Print the history of this instance for people instead.
    #[arg(long)]
    pub(crate) tell: Option<String>,
}

/// What a history says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seen {
    pub(crate) id: String,
    pub(crate) run: String,
    /// The run that it continues.
    pub(crate) continues: Option<String>,
    /// Notes as they arrived, without those that a former run had not taken.
    pub(crate) notes: Vec<u64>,
    /// Updates that were let in.
    pub(crate) accepted: Vec<String>,
    pub(crate) answers: Vec<(String, u64)>,
    pub(crate) end: Option<End>,
    /// Why it was parked, each time, but for pauses.
    pub(crate) parked: Vec<String>,
    /// Operations that ended more than once.
    pub(crate) doubled: Vec<String>,
    /// How it does not replay.
    pub(crate) difference: Option<String>,
    /// How far a timer's deadline is beyond the host's time and the timer's length, at most, in microseconds.
    pub(crate) too_far_us: u64,
    pub(crate) events: u64,
}

/// A record of one of the durable topics.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SeenLetter {
    pub(crate) is_reply: bool,
    pub(crate) sequence: u64,
    pub(crate) key: Option<String>,
    pub(crate) value: u64,
    /// The number of the reply that this is a copy of, which was sent back.
    pub(crate) stems_from: Option<u64>,
}

/// What durable topics have, and what became of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SeenRecords {
    pub(crate) letters: Vec<SeenLetter>,
    /// The numbers of the replies that their consumer could not take, in their order.
    pub(crate) dead: Vec<u64>,
    /// The numbers of the replies that were entered in each till, by its id.
    pub(crate) entered: Vec<(String, Vec<u64>)>,
}

/// All that a store has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SeenStore {
    pub(crate) runs: Vec<Seen>,
    pub(crate) records: SeenRecords,
}

/// One line of what a verifier prints.
#[derive(Debug, Serialize, Deserialize)]
enum SeenLine {
    Run(Box<Seen>),
    Letter(SeenLetter),
    Dead(u64),
    Entered(String, Vec<u64>),
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum End {
    Completed(ProgramResult),
    Failed(String),
    Cancelled,
    Terminated(String),
    Continued(String),
}

/// Reads the store, and prints what it finds.
///
/// # Errors
/// When the store cannot be opened, or a history not be read.
pub(crate) async fn run(options: VerifyOptions) -> Result<(), Box<dyn Error>> {
    let host = TokioHost::spawn(HostConfig::default()).await?;
    let mut config = JournalConfig::default();
    config.retention.age_max = std::time::Duration::MAX;
    let journal = RedbJournal::open(&options.store, config, host.host())?;
    let implementations: Vec<_> = programs::programs(&World::none())
        .map(|(answering, code)| answering.bind(code))
        .chain([programs::till().implementation()])
        .collect();
    let mut out = std::io::stdout().lock();
    for run in runs(&journal)? {
        match &options.tell {
            None => {
                let seen = look(&journal, run, &implementations)?;
                print(&mut out, &SeenLine::Run(Box::new(seen)))?;
            }
            Some(id) => {
                let history = journal.history(run)?;
                if history.id.as_str() == id {
                    digest::tell(&history, &mut out)?;
                }
            }
        }
    }
    journal.close()?;
    drop(journal);
    if options.tell.is_none() {
        let records = letters::all(&options.store).await?;
        let letters = records.letters.into_iter().map(SeenLine::Letter);
        let dead = records.dead.into_iter().map(SeenLine::Dead);
        let entered = records.entered.into_iter();
        let entered = entered.map(|(id, numbers)| SeenLine::Entered(id, numbers));
        for line in letters.chain(dead).chain(entered) {
            print(&mut out, &line)?;
        }
    }
    out.flush()?;
    Ok(())
}

fn print(out: &mut impl Write, line: &SeenLine) -> Result<(), Box<dyn Error>> {
    serde_json::to_writer(&mut *out, line)?;
    writeln!(out)?;
    Ok(())
}

/// Every run that the store has.
fn runs(journal: &dyn Journal) -> Result<Vec<RunId>, Box<dyn Error>> {
    const PAGE: usize = 10_000;
    let mut runs = Vec::new();
    let mut live = |record: RecordView<'_>| {
        if runs.last() != Some(&record.run) {
            runs.push(record.run);
        }
    };
    journal.recover(&mut [&mut live], &mut |_| {})?;
    runs.sort_unstable();
    runs.dedup();
    let mut after = None;
    loop {
        let page = journal.list_finished(after, PAGE)?;
        runs.extend(page.iter().map(|finished| finished.run));
        match page.last() {
            Some(last) => after = Some(last.run),
            None => return Ok(runs),
        }
    }
}

fn look(
    journal: &dyn Journal,
    run: RunId,
    implementations: &[Implementation],
) -> Result<Seen, Box<dyn Error>> {
    let history = journal.history(run)?;
    digest::of(&history, implementations)
}

/// Lets a verifier look at the store, and reads what it prints.
///
/// # Errors
/// When it fails; the message holds what it said.
pub(crate) fn all(store: &Path) -> Result<SeenStore, String> {
    let printed = command(store, &[])?;
    let mut seen = SeenStore::default();
    for line in printed.lines().map(serde_json::from_str) {
        match line.map_err(|error| error.to_string())? {
            SeenLine::Run(run) => seen.runs.push(*run),
            SeenLine::Letter(letter) => seen.records.letters.push(letter),
            SeenLine::Dead(number) => seen.records.dead.push(number),
            SeenLine::Entered(id, numbers) => seen.records.entered.push((id, numbers)),
        }
    }
    Ok(seen)
}

/// The history of an instance, for people.
pub(crate) fn told(store: &Path, id: &str) -> String {
    command(store, &["--tell", id]).unwrap_or_else(|error| error)
}

fn command(store: &Path, more: &[&str]) -> Result<String, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = std::process::Command::new(program)
        .arg("verify")
        .arg(store)
        .args(more)
        .output()
        .map_err(|error| error.to_string())?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        let said = String::from_utf8_lossy(&output.stderr);
        Err(format!("the verifier failed: {}: {said}", output.status))
    }
}
