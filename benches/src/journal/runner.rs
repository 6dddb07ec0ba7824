//! Runs the contestants of each cell in interleaved rounds.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use millrun::host::{HostConfig, TokioHost};
use millrun_core::Host;
use millrun_persistence::{Durability, Journal, JournalConfig, MemoryJournal};

use super::appenders::Appends;
use super::row::{Cell, Row, Sample};
use super::{appenders, floor, recovery, sustained};
use crate::{
    BenchError, CommonArguments, Measured, Output, Progress, StoreFolder, interleaved, store_in, workers,
};

/// How much is measured.
#[derive(Clone, Debug)]
pub struct Effort {
    /// Samples per contestant.
    pub rounds: usize,
    /// Length of a sample.
    pub sample: Duration,
    /// Sizes of events.
    pub body_bytes: Vec<usize>,
    /// Events that are written, killed and recovered.
    pub recover: Vec<u64>,
    /// How long the fixed pace is held; zero leaves it out.
    pub sustained: Duration,
    /// Worker threads of the tokio runtime.
    pub threads: usize,
}

impl Effort {
    /// What the arguments ask for.
    #[must_use]
    pub fn of(arguments: &CommonArguments, threads: usize) -> Self {
        let mut effort = if arguments.quick {
            Self {
                rounds: 3,
                sample: Duration::from_millis(500),
                body_bytes: vec![100],
                recover: vec![1_000_000],
                sustained: Duration::from_secs(5),
                threads,
            }
        } else {
            Self {
                rounds: 5,
                sample: Duration::from_secs(2),
                body_bytes: vec![100, 1_024],
                recover: vec![1_000_000, 10_000_000],
                sustained: Duration::from_secs(60),
                threads,
            }
        };
        if let Some(rounds) = arguments.rounds {
            effort.rounds = rounds.into();
        }
        effort
    }
}

const RUNS_PER_S: u64 = 150_000;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Contestant {
    Durable,
    Volatile,
    Memory,
    /// redb alone, with as many events in each commit as the journal had.
    RedbLoop,
    RedbOneRow,
    Fdatasync,
}

impl Contestant {
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Durable => ("millrun", "fsync"),
            Self::Volatile => ("millrun", "no fsync"),
            Self::Memory => ("millrun memory", "memory"),
            Self::RedbLoop => ("redb loop", "fsync"),
            Self::RedbOneRow => ("redb, one row", "fsync"),
            Self::Fdatasync => ("fdatasync", "fsync"),
        }
    }
}

/// Measures.
#[derive(Debug)]
pub struct Runner<'a> {
    effort: Effort,
    output: &'a Output,
}

impl<'a> Runner<'a> {
    /// Stores go where results go.
    #[must_use]
    pub fn new(effort: Effort, output: &'a Output) -> Self {
        Self { effort, output }
    }

    /// Runs all groups, or those with `only` in their name; `append: 32 appenders, 100 B` is the name of
    /// a part. A part that fails has no row; the others do.
    #[must_use]
    pub fn run(&self, only: Option<&str>) -> Measured<Row> {
        let is_wanted = |group: &str| only.is_none_or(|only| group.contains(only));
        let mut measured = Measured::default();
        let sizes = self.effort.body_bytes.iter();
        let parts = sizes.flat_map(|bytes| [1, 32, 1_024, 16_384].map(|appenders| (appenders, *bytes)));
        let name = |(appenders, bytes): (usize, usize)| format!("append: {appenders} appenders, {bytes} B");
        let parts: Vec<_> = parts.filter(|part| is_wanted(&name(*part))).collect();
        if !parts.is_empty() {
            let progress = Progress::ticking(parts.len() as u64);
            for (appenders, body_bytes) in parts {
                let name = name((appenders, body_bytes));
                progress.running(&name);
                measured.keep(name, self.appends(appenders, body_bytes));
                progress.step();
            }
            progress.finish();
        }
        if is_wanted("recovery") || is_wanted("fill") {
            let progress = Progress::ticking(0);
            for events in &self.effort.recover {
                let name = format!("recovery: {events} events");
                measured.keep(name, self.recovery(*events, &progress));
            }
            progress.finish();
        }
        if is_wanted("sustained") && !self.effort.sustained.is_zero() {
            measured.keep("sustained", self.sustained());
        }
        measured
    }

    fn sustained(&self) -> Result<Vec<Row>, BenchError> {
        let progress = Progress::ticking(0);
        let (folder, time) = (self.folder()?, self.effort.sustained);
        flush_disks();
        let outcome = self.on_host(|host| {
            let mut each = |what: &str| progress.running(what);
            sustained::sustain(folder.path(), RUNS_PER_S, time, host, &mut each)
        })?;
        progress.finish();
        let cell = |group, level| Cell {
            group,
            contestant: "millrun",
            durability: "fsync",
            appenders: 1,
            body_bytes: 260,
            level,
        };
        let whole = cell("sustained", time.as_secs());
        let syncs = Cell {
            contestant: "its syncs alone",
            ..whole
        };
        let mut rows = Vec::new();
        rows.extend(Row::new(whole, &[outcome.whole]));
        rows.extend(Row::new(syncs, &[outcome.syncs]));
        for (tenth, sample) in outcome.tenths {
            rows.extend(Row::new(cell("sustained, by tenth", tenth.into()), &[sample]));
        }
        Ok(rows)
    }

    fn appends(&self, appenders: usize, body_bytes: usize) -> Result<Vec<Row>, BenchError> {
        let mut contestants = vec![
            Contestant::Durable,
            Contestant::RedbLoop,
            Contestant::Volatile,
            Contestant::Memory,
        ];
        if appenders == 1 {
            contestants.extend([Contestant::RedbOneRow, Contestant::Fdatasync]);
        }
        // The loop writes commits as large as the journal's last ones.
        let mut per_commit = appenders.min(1_000);
        let samples = interleaved(contestants.len(), self.effort.rounds, |index| {
            let sample = self.sample(contestants[index], appenders, body_bytes, per_commit)?;
            if contestants[index] == Contestant::Durable {
                per_commit = usize::try_from(sample.events / sample.commits.max(1))
                    .unwrap_or(1)
                    .max(1);
            }
            Ok(sample)
        })?;
        let rows = contestants
            .iter()
            .zip(&samples)
            .filter_map(|(contestant, samples)| {
                let (contestant, durability) = contestant.names();
                Row::new(
                    Cell {
                        group: "append",
                        contestant,
                        durability,
                        appenders,
                        body_bytes,
                        level: appenders as u64,
                    },
                    samples,
                )
            });
        Ok(rows.collect())
    }

    fn sample(
        &self,
        contestant: Contestant,
        appenders: usize,
        body_bytes: usize,
        per_commit: usize,
    ) -> Result<Sample, BenchError> {
        let folder = self.folder()?;
        let path = folder.path().join("store.redb");
        let time = self.effort.sample;
        let mut config = JournalConfig::default();
        let load = Appends {
            threads: self.effort.threads,
            appenders,
            body_bytes,
            time,
        };
        match contestant {
            Contestant::RedbLoop => floor::commits(&path, body_bytes, per_commit, time),
            Contestant::RedbOneRow => floor::commits(&path, body_bytes, 1, time),
            Contestant::Fdatasync => floor::appends_and_syncs(&path, body_bytes, time),
            Contestant::Memory => {
                let journal =
                    MemoryJournal::new(config).map_err(|error| BenchError::failed("millrun", error))?;
                let open = |_: &Arc<dyn Host>| Ok(Arc::new(journal) as Arc<dyn Journal>);
                appenders::append_to(open, load)
            }
            Contestant::Durable | Contestant::Volatile => {
                if contestant == Contestant::Volatile {
                    config.durability = Durability::Volatile;
                }
                appenders::append_to_file(&path, config, load)
            }
        }
    }

    fn recovery(&self, events: u64, progress: &Progress) -> Result<Vec<Row>, BenchError> {
        let folder = self.folder()?;
        flush_disks();
        let outcome = self.on_host(|host| {
            let mut each = |what: &str| progress.running(format!("{events} events: {what}"));
            recovery::fill_and_recover(folder.path(), events, host, &mut each)
        })?;
        let cell = |group, level| Cell {
            group,
            contestant: "millrun",
            durability: "fsync",
            appenders: 1,
            body_bytes: 100,
            level,
        };
        let mut rows = Vec::new();
        // How the rate goes is shown for the largest file only.
        if self.effort.recover.iter().max() == Some(&events) {
            for (tenth, sample) in (1..).zip(outcome.tenths) {
                rows.extend(Row::new(cell("fill", events / 10 * tenth), &[sample]));
            }
        }
        rows.extend(Row::new(cell("recovery", events), &[outcome.recovery]));
        Ok(rows)
    }

    /// Runs something that blocks, on a host.
    fn on_host<T>(&self, run: impl FnOnce(&Arc<dyn Host>) -> Result<T, BenchError>) -> Result<T, BenchError> {
        let runtime = workers(self.effort.threads)?;
        let owner = runtime.block_on(TokioHost::spawn(HostConfig::default()));
        let owner = owner.map_err(|error| BenchError::failed("millrun", error))?;
        let outcome = run(&owner.host());
        let _guard = runtime.enter();
        drop(owner);
        outcome
    }

    fn folder(&self) -> Result<StoreFolder, BenchError> {
        store_in(self.output.folder())
    }
}

/// Has the disks take what other programs have left unwritten: else the kernel writes it every five
/// seconds, and a sync of ours waits for all of it. Without a program to do so, nothing happens.
fn flush_disks() {
    if let Err(error) = Command::new("sync").status() {
        eprintln!("what others have not written yet may disturb the measurement: {error}");
    }
}
