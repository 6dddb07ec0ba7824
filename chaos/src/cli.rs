//! The command line.

use clap::{Parser, Subcommand};

use crate::planted::PlantedOptions;
use crate::supervisor::RunOptions;
use crate::verify::VerifyOptions;
use crate::worker::WorkerOptions;

/// The whole runtime under load and faults, judged by a ledger in another process.
#[derive(Debug, Parser)]
#[command(name = "millrun-chaos", about)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run rounds of load and faults, and judge each. Exit code 1 if a promise was broken, 130 if it was
    /// interrupted.
    Run(RunOptions),
    /// Plant each repaired mistake again in a copy of the tree, and expect its test and the suite to find it.
    Planted(PlantedOptions),
    /// Open a store, and print what its histories say.
    Verify(VerifyOptions),
    /// The process that a run starts and kills.
    #[command(hide = true)]
    Worker(WorkerOptions),
}
