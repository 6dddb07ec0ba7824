//! The millrun program: durable workflows on one store file, from the command line.
//!
//! ```text
//!   cli ──► demo       a manifest of a tree, killed and gone on with at any moment
//!      ├──► crash      demo --crash: kills a child process, judges what it kept
//!      ├──► checkout   orders with signals, timers and compensation
//!      ├──► serve      a store asked over HTTP; config tells its settings
//!      ├──► client     list, describe, why, signal and others: a program that runs, asked
//!      ├──► import     a new store of exported histories
//!      └──► salvage    a new store of what is whole in a damaged one
//! ```
//!
//! Each command gives an [`Outcome`], which is the exit code; an error is exit code 1.

#[cfg(not(unix))]
compile_error!("the program needs Unix signals and file names that are bytes; the library needs neither");

mod checkout;
mod cli;
mod client;
mod crash;
mod demo;
mod digest;
mod import;
mod interrupt;
mod outcome;
mod output;
mod path_bytes;
mod salvage;
mod serve;
mod table;

use std::error::Error;
use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command};
use client::ClientError;
use outcome::Outcome;
use output::OutputError;

#[tokio::main]
async fn main() -> ExitCode {
    match run(Cli::parse().command).await {
        Ok(outcome) => outcome.into(),
        Err(error) => {
            // The reader of the pipe has closed it and wants no more.
            let output = error.downcast_ref::<OutputError>();
            if !output.is_some_and(OutputError::is_reader_gone) {
                output::note(format_args!("millrun: {}", with_sources(error.as_ref())));
            }
            error
                .downcast_ref::<ClientError>()
                .map_or(ExitCode::FAILURE, |error| ExitCode::from(error.exit_code()))
        }
    }
}

async fn run(command: Command) -> Result<Outcome, Box<dyn Error>> {
    match command {
        Command::Demo(options) if options.crash => {
            let url = options.crash_url().unwrap_or_else(|wrong| wrong.exit());
            crash::run(options.crash_options, url).await
        }
        Command::Demo(options) => demo::run(options).await,
        Command::Checkout(options) => checkout::run(options).await,
        Command::Salvage(options) => salvage::run(options).await,
        Command::Client(command) => client::run(command).await,
        Command::Completions(options) => cli::print_completions(&options).map_err(Into::into),
        Command::Serve(options) => serve::run(options).await,
        Command::Config(options) => serve::config(options),
        Command::Import(options) => import::run(options).await,
        Command::CrashWorker(options) => crash::worker::run(options).await,
        Command::Help(help) => cli::print_help(&help).map_err(Into::into),
    }
}

/// An error's message followed by those of its sources that it does not say itself.
fn with_sources(error: &dyn Error) -> String {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(this) = source {
        let more = this.to_string();
        if !message.contains(&more) {
            message.push_str(": ");
            message.push_str(&more);
        }
        source = this.source();
    }
    message
}
