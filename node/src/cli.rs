//! The command line: what can be asked of the program.

use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory as _, Parser, Subcommand};
use clap_complete::{Shell, generate};

use crate::client::ClientCommand;
use crate::outcome::Outcome;
use crate::output::{self, OutputError};
use crate::serve::{ConfigOptions, ServeOptions};

/// What the options of --crash cannot be combined with. They must say so themselves: what clap finds in
/// conflict with `--crash` it does not miss where they require `--crash`.
const NOT_WITH_CRASH: [&str; 4] = ["dir", "manifest", "files_at_once", "stop_within"];

/// The store file of a demo that names none.
pub(crate) const DEMO_STORE: &str = "millrun-demo.redb";

/// What `--help` says about exit codes; [`Outcome`] gives them.
const EXIT_CODES: &str = "\
Exit codes:
  0    everything was done
  1    it failed, its output could not be written, --crash found that something was lost, or the run
       whose result was asked for has not completed
  2    the command line is wrong
  3    it was done, except for files that could not be read, lines that are no orders, or runs that
       are not whole; or the result that was asked for is not there yet
  4    no program answers at the URL, the socket or beside the store, and the file alone is not enough
  130  it was interrupted; the same command goes on where it stopped";

/// Durable workflows in one process and one file.
#[derive(Debug, Parser)]
#[command(name = "millrun", version, about, after_help = EXIT_CODES, disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Checksum every file below a directory with durable workflows, or show that kill -9 loses nothing.
    ///
    /// Lists the regular files below DIR, runs one SHA-256 activity for each, and writes a manifest
    /// that `sha256sum -c` accepts. Symbolic links are not followed. Killed at any moment, the same
    /// command goes on where it stopped. Ctrl-C stops gracefully; a second one stops at once.
    #[command(after_help = EXIT_CODES)]
    Demo(Demo),
    /// Run one durable checkout for each order: signals, timers and compensation.
    ///
    /// Reads orders as lines of JSON, such as examples/data/orders.ndjson. A line that is no order
    /// is reported with its number, and the others are done. An order whose id is known already is
    /// not done again: its recorded outcome is shown.
    #[command(after_help = EXIT_CODES)]
    Checkout(Checkout),
    /// Make a new store of what is whole in a damaged one.
    ///
    /// Reads every byte of FROM, which nothing may have open and which is not written to, and writes
    /// every run that is whole to the new store TO. What is not whole is named on standard output.
    #[command(after_help = EXIT_CODES)]
    Salvage(Salvage),
    /// Make a new store of the histories that an export or an archive has written.
    #[command(after_help = EXIT_CODES)]
    Import(Import),
    /// Run a store with the demo workflows, asked over HTTP and at a socket beside it.
    ///
    /// Prints where it is asked, and runs until SIGTERM or Ctrl-C: then it says that it is not ready,
    /// answers what is under way, tells its streams, and shuts the runtime down. Killed at any moment,
    /// the same command goes on where it stopped. Each setting may also stand in the environment, as
    /// MILLRUN_LISTEN for --listen, or in a file.
    #[command(after_help = EXIT_CODES)]
    Serve(ServeOptions),
    /// Print each setting of `serve`, with its value and where that comes from.
    #[command(after_help = EXIT_CODES)]
    Config(ConfigOptions),
    #[command(flatten)]
    Client(ClientCommand),
    /// Print what a shell needs to complete commands and flags.
    Completions(Completions),
    /// Tell what a command does, as its --help.
    Help(Help),
    /// The process that `demo --crash` starts and kills.
    #[command(hide = true)]
    CrashWorker(CrashWorker),
}

#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// The directory whose files are checksummed.
    #[arg(default_value = ".")]
    pub(crate) dir: PathBuf,
    /// The store file. If it lies below DIR it is left out. With --crash: the URL of a PostgreSQL database,
    /// `postgres://user@host/database`, on which several processes run as nodes.
    #[arg(long, value_name = "PATH|URL", default_value = DEMO_STORE)]
    pub(crate) store: PathBuf,
    /// The manifest to write. If it lies below DIR it is left out.
    #[arg(long, value_name = "PATH", default_value = "millrun-demo.sha256")]
    pub(crate) manifest: PathBuf,
    /// How many files are read at once.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=512))]
    pub(crate) files_at_once: u16,
    /// How long Ctrl-C waits for files in progress.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u16).range(0..=3600))]
    pub(crate) stop_within: u16,
    /// Instead, kill a child process in the middle of thousands of running workflows, several
    /// times, and show that nothing acknowledged was lost.
    #[arg(long, conflicts_with_all = NOT_WITH_CRASH)]
    pub(crate) crash: bool,
    #[command(flatten)]
    pub(crate) crash_options: CrashOptions,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Options of --crash")]
pub(crate) struct CrashOptions {
    /// How many workflows are run in all.
    #[arg(long, value_name = "N", requires = "crash", conflicts_with_all = NOT_WITH_CRASH, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=500_000))]
    pub(crate) workflows: u32,
    /// How many workflows run at once.
    #[arg(long, value_name = "N", requires = "crash", conflicts_with_all = NOT_WITH_CRASH, default_value_t = 4_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) running: u32,
    /// How many times the child is killed.
    #[arg(long, value_name = "N", requires = "crash", conflicts_with_all = NOT_WITH_CRASH, default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub(crate) kills: u32,
    /// Chooses the moments of the kills; another one each time by default. The machine's own
    /// timing is not repeated by it.
    #[arg(long, value_name = "NUMBER", requires = "crash", conflicts_with_all = NOT_WITH_CRASH)]
    pub(crate) seed: Option<u64>,
    /// How many processes run at a time on the database that --store names. One of them is killed at a time, and another
    /// one takes its place.
    #[arg(long, value_name = "N", requires = "crash", conflicts_with_all = NOT_WITH_CRASH, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub(crate) nodes: u16,
    /// Where store and ledger are kept, which must not exist yet. Without it they are put into
    /// the directory for temporary files, and removed if nothing was lost.
    #[arg(long, value_name = "PATH", requires = "crash", conflicts_with_all = NOT_WITH_CRASH)]
    pub(crate) keep_in: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Salvage {
    /// The damaged store.
    pub(crate) from: PathBuf,
    /// The new store, which must not exist yet.
    pub(crate) to: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Import {
    /// The file of histories: lines of JSON.
    pub(crate) from: PathBuf,
    /// The new store, which must not exist yet.
    pub(crate) to: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Checkout {
    /// A file with one order a line; - reads standard input.
    #[arg(value_name = "FILE", default_value = "-")]
    pub(crate) orders: PathBuf,
    /// The store file.
    #[arg(long, value_name = "PATH", default_value = "millrun-checkout.redb")]
    pub(crate) store: PathBuf,
    /// Where the shop writes down what it has really done, outside the store.
    #[arg(long, value_name = "PATH", default_value = "millrun-checkout.book")]
    pub(crate) book: PathBuf,
    /// How many orders are under way at once; further lines are read as these end.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub(crate) orders_at_once: u16,
    /// How long a large order waits for approval.
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 2_000)]
    pub(crate) approval_within: u32,
    /// How long Ctrl-C waits for activities in progress.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u16).range(0..=3600))]
    pub(crate) stop_within: u16,
}

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell.
    pub(crate) shell: Shell,
}

/// Prints the completions of a shell.
///
/// # Errors
/// When standard output cannot be written.
pub(crate) fn print_completions(options: &Completions) -> Result<Outcome, OutputError> {
    let mut script = Vec::new();
    generate(options.shell, &mut Cli::command(), "millrun", &mut script);
    output::tell(String::from_utf8_lossy(&script).trim_end())?;
    Ok(Outcome::Complete)
}

#[derive(Debug, Args)]
pub(crate) struct Help {
    /// The command; the program itself without one.
    pub(crate) command: Option<String>,
}

/// Prints what `--help` of a command prints.
///
/// # Errors
/// When there is no such command, or standard output cannot be written.
pub(crate) fn print_help(help: &Help) -> Result<Outcome, OutputError> {
    // As if it had been asked for in the usual way.
    let asked = [Some("millrun"), help.command.as_deref(), Some("--help")];
    match Cli::try_parse_from(asked.into_iter().flatten()) {
        Err(help) if help.kind() == ErrorKind::DisplayHelp => {
            output::tell(help.render()).map(|()| Outcome::Complete)
        }
        Err(wrong) => wrong.exit(),
        Ok(_) => Ok(Outcome::Complete),
    }
}

#[derive(Debug, Args)]
pub(crate) struct CrashWorker {
    #[arg(long)]
    pub(crate) store: PathBuf,
    #[arg(long)]
    pub(crate) ledger: PathBuf,
    #[arg(long)]
    pub(crate) workflows: u32,
    #[arg(long)]
    pub(crate) running: u32,
    /// Counts the processes that open the ledger, from 1.
    #[arg(long)]
    pub(crate) process: u64,
    /// Start nothing: only show the result of each acknowledged run.
    #[arg(long)]
    pub(crate) only_show: bool,
    /// The number of processes that run at a time. This one follows the runs whose number, divided by it, leaves --rest.
    #[arg(long, requires = "rest", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) of: Option<u64>,
    #[arg(long, requires = "of")]
    pub(crate) rest: Option<u64>,
}

impl Demo {
    /// The URL of the database of a demo with `--crash`, or `None` for a file of its own.
    ///
    /// # Errors
    /// What is wrong, if the store is a file.
    pub(crate) fn crash_url(&self) -> Result<Option<String>, clap::Error> {
        let store = self.store.to_string_lossy();
        let is_url = ["postgres://", "postgresql://"]
            .iter()
            .any(|scheme| store.starts_with(scheme));
        match (is_url, &*store == DEMO_STORE) {
            (true, _) => Ok(Some(store.into_owned())),
            (false, true) => Ok(None),
            (false, false) => Err(Cli::command().error(
                ErrorKind::ArgumentConflict,
                "--crash makes a store file of its own (see --keep-in), and --store names a database: postgres://user@host/database",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_store_of_a_crash_is_a_database_or_not_given() {
        let url = |line: &str| match Cli::try_parse_from(line.split(' ')).unwrap().command {
            Command::Demo(demo) => demo.crash_url(),
            other => panic!("{other:?}"),
        };
        assert_eq!(url("millrun demo --crash").unwrap(), None);
        let given = url("millrun demo --crash --nodes 2 --store postgres://a/b");
        assert_eq!(given.unwrap().as_deref(), Some("postgres://a/b"));
        let refused = url("millrun demo --crash --store a.redb").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ArgumentConflict);
    }

    #[test]
    fn crash_options_need_crash_and_exclude_a_directory() {
        let parse = |line: &str| Cli::try_parse_from(line.split(' '));
        assert!(parse("millrun demo --crash --kills 2").is_ok());
        assert!(parse("millrun demo").is_ok());
        for line in [
            "millrun demo --kills 2",
            "millrun demo --crash .",
            // These began a demo and said nothing of the option.
            "millrun demo --workflows 5 .",
            "millrun demo --seed 5 --store a",
            "millrun demo --keep-in a --stop-within 3",
            "millrun",
            "millrun demo --nodes 2",
            "millrun demo --nodes 2 --store postgres://a/b",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
