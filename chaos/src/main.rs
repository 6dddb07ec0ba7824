//! The chaos suite: the whole runtime on a real file, with everything around it breaking, judged by a ledger
//! that another process holds. See README.md beside this crate.
//!
//! ```text
//!   run ──► supervisor ──► worker     holds the runtime, is killed
//!                     └──► verify     reads the file
//! ```

mod check;
mod cli;
mod dice;
mod faults;
mod ledger;
mod load;
mod planted;
mod programs;
mod supervisor;
mod verify;
mod wire;
mod worker;

use std::error::Error;
use std::process::ExitCode;

use clap::Parser;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

use cli::{Cli, Command};

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("millrun-chaos: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<ExitCode, Box<dyn Error>> {
    // The supervisor's callers need no more than one thread; the rest of the machine is the worker's.
    let mut builder = match command {
        Command::Run(_) | Command::Planted(_) => Builder::new_current_thread(),
        Command::Verify(_) | Command::Worker(_) => Builder::new_multi_thread(),
    };
    let runtime = builder.enable_all().build()?;
    let code = runtime.block_on(async {
        match command {
            Command::Run(options) => tokio::select! {
                outcome = supervisor::run(&options) => Ok(code(outcome?)),
                interrupted = interrupted() => interrupted.map(|()| ExitCode::from(130)).map_err(Into::into),
            },
            Command::Planted(options) => Ok(code(planted::run(&options)?)),
            Command::Verify(options) => verify::run(options).await.map(|()| ExitCode::SUCCESS),
            Command::Worker(options) => worker::run(options).await.map(|()| ExitCode::SUCCESS),
        }
    });
    // The worker's reader of its standard input may wait for ever.
    runtime.shutdown_background();
    code
}

fn code(is_well: bool) -> ExitCode {
    if is_well {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Waits for Ctrl-C or a request to terminate. What runs is dropped then: processes are killed, and folders
/// removed.
async fn interrupted() -> std::io::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}
