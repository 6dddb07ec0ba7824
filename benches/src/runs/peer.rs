//! What every program that measures another engine does around it.

use std::path::Path;

use clap::Parser;

use super::{Level, Row, Sample, Saturation, Store, charts, table};
use crate::{BenchError, CommonArguments, Failure, Program, Progress, Table, ThreadArguments};

/// Arguments of a peer's program.
#[derive(Debug, Parser)]
pub struct PeerArguments {
    #[command(flatten)]
    common: CommonArguments,
    #[command(flatten)]
    threads: ThreadArguments,
}

/// One workload: what a run is given, and what must come out.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// Its name, as in `bench-workflows`.
    pub name: &'static str,
    /// What runs.
    pub shape: Shape,
    /// What a run is given.
    pub input: u64,
    /// What it must give.
    pub expected: u64,
    /// Runs at a time.
    pub concurrency: usize,
    /// How many runs each client makes in a sample. A time would be too short for the slowest
    /// workload, or too long for the rest.
    pub runs_per_client: u64,
}

/// The steps of a workload; every step adds one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// So many, one after the other.
    Chain(u64),
    /// One; then three at once, each given its result; then one that is given their sum.
    FiveTasks,
    /// So many at once, given 0, 1, 2, …; the results are added up.
    Parallel(u64),
}

impl Shape {
    /// How many steps it has.
    #[must_use]
    pub const fn steps(self) -> u64 {
        match self {
            Self::Chain(steps) | Self::Parallel(steps) => steps,
            Self::FiveTasks => 5,
        }
    }
}

/// A way to run a peer: its name in the rows, what its store survives, and its settings.
#[derive(Clone, Debug)]
pub struct Setting<S> {
    /// Who, and how tuned.
    pub name: &'static str,
    /// What an acknowledged run survives.
    pub store: Store,
    /// The peer's own settings.
    pub options: S,
}

const fn workload(
    name: &'static str,
    shape: Shape,
    (input, expected): (u64, u64),
    at_once: usize,
) -> Workload {
    Workload {
        name,
        shape,
        input,
        expected,
        concurrency: at_once,
        runs_per_client: if at_once > 1_000 {
            1
        } else if at_once > 1 {
            4
        } else {
            1
        },
    }
}

/// Those of `bench-workflows`. At 1,024 at a time each client makes a single run: the slowest peers
/// take minutes as it is.
const WORKLOADS: [Workload; 8] = [
    workload("one-step", Shape::Chain(1), (1, 2), 32),
    workload("three-step", Shape::Chain(3), (1, 4), 32),
    workload("five-task", Shape::FiveTasks, (1, 10), 32),
    workload("one-step", Shape::Chain(1), (1, 2), 1_024),
    workload("three-step", Shape::Chain(3), (1, 4), 1_024),
    workload("five-task", Shape::FiveTasks, (1, 10), 1_024),
    workload("40 in sequence", Shape::Chain(40), (0, 40), 1),
    workload("1,000 in parallel", Shape::Parallel(1_000), (0, 500_500), 1),
];

impl Workload {
    /// A closed loop of its clients.
    #[must_use]
    pub fn load(&self) -> Saturation {
        Saturation {
            concurrency: self.concurrency,
            warm_up: std::time::Duration::ZERO,
            measured: std::time::Duration::from_secs(3_600),
            runs_max: self.runs_per_client * self.concurrency as u64,
        }
    }

    /// Refuses another result than the expected one.
    ///
    /// # Errors
    /// [`BenchError::Wrong`].
    pub fn check(&self, peer: &str, result: Option<u64>) -> Result<(), BenchError> {
        if result == Some(self.expected) {
            return Ok(());
        }
        Err(BenchError::Wrong {
            contestant: peer.to_owned(),
            what: format!("{} gave {result:?}, expected {}", self.name, self.expected),
        })
    }
}

/// Measures each setting of a peer on all workloads: `sample` runs one workload on a store of its
/// own in the folder, with `threads` worker threads. The title names the peer and its store. Prints tables and writes results as every suite
/// does, and says which engines were not run, and why; so it does of a workload at which the peer
/// fails, which has no row.
///
/// # Errors
/// When a run gives a wrong result, or the results cannot be written.
pub fn measure_peer<S>(
    suite: &'static str,
    (title, version): (&str, &str),
    settings: &[Setting<S>],
    mut sample: impl FnMut(&S, &Workload, &Path, usize) -> Result<Sample, BenchError>,
) -> Result<(), BenchError> {
    let PeerArguments { common, threads } = PeerArguments::parse();
    let mut program = Program::begin(suite, &common)?;
    let threads = threads.threads();
    let rounds = common.rounds.unwrap_or(if common.quick { 1 } else { 3 });
    let level_max = if common.quick { 32 } else { usize::MAX };
    let wanted: Vec<_> = WORKLOADS
        .iter()
        .filter(|workload| workload.concurrency <= level_max)
        .filter(|workload| {
            common
                .only
                .as_deref()
                .is_none_or(|only| workload.name.contains(only))
        })
        .collect();
    let progress = Progress::ticking((settings.len() * wanted.len() * usize::from(rounds)) as u64);
    let mut rows = Vec::new();
    let mut failures = Vec::new();
    for setting in settings {
        for workload in &wanted {
            let name = format!(
                "{}, {}, {} at a time",
                setting.name, workload.name, workload.concurrency
            );
            let mut samples = Vec::new();
            for _ in 0..rounds {
                progress.running(name.clone());
                let folder = program.output().folder();
                match sample(&setting.options, workload, folder, threads) {
                    Ok(sample) => samples.push(sample),
                    Err(error @ BenchError::Wrong { .. }) => return Err(error),
                    Err(error) => {
                        failures.push(Failure::new(&name, &error));
                        samples.clear();
                        break;
                    }
                }
                progress.step();
            }
            let level = Level {
                engine: setting.name.into(),
                version: version.into(),
                workload: workload.name.into(),
                steps: workload.shape.steps(),
                store: setting.store,
                concurrency: workload.concurrency,
                threads,
            };
            rows.extend(Row::new(&level, &samples));
        }
    }
    progress.finish();
    program.leave_out(failures);
    let title = format!("{title}, version {version}");
    let tables = [table(&title, &rows), not_run()];
    match program.finish(&rows, &tables, &charts(suite, &title, &rows)) {
        // What a peer cannot do is a result too, and was said.
        Err(BenchError::Incomplete { .. }) => Ok(()),
        outcome => outcome,
    }
}

/// Engines that are measured by a program of their own, with the name of its results.
pub const PEERS: [(&str, &str); 4] = [
    ("duroxide", "peers-duroxide"),
    ("Cloacina", "peers-cloacina"),
    ("durare", "peers-durare"),
    ("DBOS", "peers-dbos"),
];

/// Engines that the comparison leaves out, with the reason.
pub const NOT_RUN: [(&str, &str); 5] = [
    (
        "Restate",
        "a server of its own, not a library: every step would pay for HTTP",
    ),
    ("Obelisk", "a server of its own that runs WASM components"),
    (
        "Temporal",
        "a cluster of servers with a database; its Rust SDK is a client",
    ),
    ("Windmill", "a server with workers and PostgreSQL"),
    (
        "Flow-Like",
        "an application; its engine is not published as a crate",
    ),
];

/// The same as a table.
#[must_use]
pub fn not_run() -> Table {
    let mut table = Table::new("Not run", 2, ["engine", "why"]);
    for (engine, why) in NOT_RUN {
        table.line([engine, why]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a shape gives, by its definition.
    fn result(shape: Shape, input: u64) -> u64 {
        match shape {
            Shape::Chain(steps) => input + steps,
            Shape::FiveTasks => 3 * (input + 2) + 1,
            Shape::Parallel(calls) => (0..calls).map(|number| number + 1).sum(),
        }
    }

    #[test]
    fn what_is_expected_is_what_the_shape_gives() {
        for workload in WORKLOADS {
            assert_eq!(
                result(workload.shape, workload.input),
                workload.expected,
                "{}",
                workload.name
            );
            assert!(workload.check("peer", Some(workload.expected)).is_ok());
            assert!(workload.check("peer", Some(0)).is_err() && workload.check("peer", None).is_err());
        }
    }
}
