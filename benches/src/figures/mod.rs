//! Figures of their own: memory, recovery, signals, timers. What a loop of short runs does not show.
//!
//! ```text
//!   bench-workflows ──► bench-workflows --figure NAME ──► figures, as JSON
//!                         a process for each: its memory is measured, or it is killed
//! ```
//!
//! Every store is durable (one fsync per group commit) and lies beside the results.

mod definitions;
mod parked;
mod recovery;
mod replay;
mod signals;
mod timers;
mod waiting;

use std::path::Path;
use std::process::Command;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::{ALLOCATOR, BenchError, Table, approximate, grouped};

/// One figure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Figure {
    /// `figures`.
    pub group: String,
    /// `millrun`.
    pub engine: String,
    /// What was done.
    pub workload: String,
    /// How many there were of what it is about.
    pub level: u64,
    /// What was measured.
    pub what: String,
    /// What came out,
    pub value: f64,
    /// in this unit.
    pub unit: String,
    /// `system` or `mimalloc`.
    pub allocator: String,
}

impl Figure {
    fn new(workload: &str, level: u64, what: &str, value: f64, unit: &str) -> Self {
        Self {
            group: "figures".into(),
            engine: "millrun".into(),
            workload: workload.into(),
            level,
            what: what.into(),
            value,
            unit: unit.into(),
            allocator: ALLOCATOR.into(),
        }
    }
}

/// What is measured in a process of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Subject {
    /// Memory of instances that wait, and how long one takes to wake.
    Waiting,
    /// Memory of instances whose publish waits for room in a full topic.
    Parked,
    /// From the start of a process to its first accepted start, after the last one was killed.
    Recovery,
    /// The process that is killed.
    RecoveryFill,
    /// The process that comes after it.
    RecoveryOpen,
    /// Replay of one long history.
    Replay,
    /// Signals of many clients to one instance.
    Signals,
    /// Timers that are due in the same second.
    Timers,
}

impl Subject {
    /// Those that are measured, in this order.
    pub const ALL: [Self; 6] = [
        Self::Waiting,
        Self::Parked,
        Self::Recovery,
        Self::Replay,
        Self::Signals,
        Self::Timers,
    ];

    /// As it is called in the table.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Waiting => waiting::NAME,
            Self::Parked => parked::NAME,
            Self::Recovery | Self::RecoveryFill | Self::RecoveryOpen => recovery::NAME,
            Self::Replay => replay::NAME,
            Self::Signals => signals::NAME,
            Self::Timers => timers::NAME,
        }
    }

    /// How many instances, events, signals or timers. A bar is judged at the full number only.
    #[must_use]
    pub const fn level(self, is_quick: bool) -> u64 {
        match (self, is_quick) {
            (Self::Waiting | Self::Parked, false) => 1_000_000,
            (Self::Recovery | Self::RecoveryFill | Self::RecoveryOpen, false) => 10_000_000,
            (Self::Recovery | Self::RecoveryFill | Self::RecoveryOpen, true) => 500_000,
            (Self::Signals, true) => 20_000,
            (Self::Waiting | Self::Parked, true) | (Self::Replay | Self::Signals | Self::Timers, _) => {
                100_000
            }
        }
    }

    /// Measures it here. The figures go to standard output as JSON.
    ///
    /// # Errors
    /// When anything fails, or something is lost or early.
    pub fn measure(self, level: u64, folder: &Path, threads: usize) -> Result<(), BenchError> {
        let figures = match self {
            Self::Waiting => waiting::measure(folder, level, threads)?,
            Self::Parked => parked::measure(folder, level, threads)?,
            Self::Recovery => recovery::measure(folder, level, threads)?,
            Self::RecoveryFill => return recovery::fill(folder, level, threads),
            Self::RecoveryOpen => return recovery::open(folder, threads),
            Self::Replay => replay::measure(folder, level, threads)?,
            Self::Signals => signals::measure(folder, level, threads)?,
            Self::Timers => timers::measure(folder, level, threads)?,
        };
        println!("{}", serde_json::to_string(&figures)?);
        Ok(())
    }

    /// Measures it in a process of its own, which is this program again.
    ///
    /// # Errors
    /// What [`measure`](Self::measure) says.
    pub fn measure_apart(self, level: u64, folder: &Path, threads: usize) -> Result<Vec<Figure>, BenchError> {
        let output = self.command(level, folder, threads)?.output();
        let output = output.map_err(|error| BenchError::failed(self.name(), error))?;
        if output.status.success() {
            return Ok(serde_json::from_slice(&output.stdout)?);
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(BenchError::failed(self.name(), said.trim()))
    }

    fn command(self, level: u64, folder: &Path, threads: usize) -> Result<Command, BenchError> {
        let program = std::env::current_exe().map_err(|error| BenchError::failed(self.name(), error))?;
        let mut command = Command::new(program);
        let value = self.to_possible_value();
        command
            .args(["--figure", value.as_ref().map_or("", |value| value.get_name())])
            .args(["--level", &level.to_string()])
            .args(["--threads", &threads.to_string()])
            .arg("--out")
            .arg(folder);
        Ok(command)
    }
}

/// One line per figure.
#[must_use]
pub fn table(figures: &[Figure]) -> Table {
    let mut table = Table::new(
        "Figures of their own, fsync",
        1,
        ["workload", "how many", "what", "value", "unit"],
    );
    for figure in figures {
        table.line([
            figure.workload.clone(),
            grouped(figure.level as f64),
            figure.what.clone(),
            approximate(figure.value),
            figure.unit.clone(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bars;

    /// A bar whose row has another name than it looks for judges nothing, and nobody would see it.
    #[test]
    fn each_bar_of_a_figure_finds_it_at_the_full_number_and_the_large_ones_at_no_other() {
        let timers = |who, what| timers::of(who, what);
        let judged = [
            (Subject::Waiting, waiting::RESIDENT.to_owned()),
            (Subject::Waiting, waiting::WAKE.to_owned()),
            (Subject::Recovery, recovery::FIRST_START.to_owned()),
            (Subject::Recovery, recovery::RATE.to_owned()),
            (Subject::Signals, signals::TAKEN.to_owned()),
            (Subject::Timers, timers(timers::HOT, timers::LAST)),
            (Subject::Timers, timers(timers::COLD, timers::LAST)),
            (Subject::Timers, timers(timers::HOT, timers::EARLY)),
            (Subject::Timers, timers(timers::COLD, timers::EARLY)),
        ];
        let verdicts = |is_quick| {
            let figures = judged
                .each_ref()
                .map(|(subject, what)| Figure::new(subject.name(), subject.level(is_quick), what, 0.0, ""));
            Bars::load().unwrap().judge("workflows", &figures).unwrap()
        };
        assert_eq!(verdicts(false).len(), judged.len());
        // With fewer instances or events only signals and timers are judged.
        assert_eq!(verdicts(true).len(), 5);
    }
}
