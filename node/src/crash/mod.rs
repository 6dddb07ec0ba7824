//! `demo --crash`: a child process is killed in the middle of its work, several times, and the
//! ledger shows afterwards whether anything was lost.
//!
//! ```text
//!   parent ──start──► worker ──► store          (fsync before anything is acknowledged)
//!     │  ◄── at … ───   │   └──► ledger         (what was acknowledged, executed, shown)
//!     ├── kill -9 ──►   ✗
//!     ├──start──► worker ──► goes on …          (as often as kills are asked for)
//!     ├──start──► worker ──► shows every result (a last, fresh process)
//!     └── judge the ledger: lost? changed? repeated?
//! ```
//!
//! The kills come in the middle: the work is cut into as many parts as there are processes, and
//! each kill falls at a random moment around the end of a part.
//!
//! On a database [several workers](nodes) run at a time, and the others take over from the one that is killed.

mod dice;
mod ledger;
mod nodes;
mod verdict;
pub(crate) mod worker;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use indicatif::HumanCount;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use crate::cli::CrashOptions;
use crate::interrupt;
use crate::outcome::Outcome;
use crate::output::{OutputError, shown, tell};
use dice::Dice;
use verdict::{Judge, Verdict};

/// How long a worker may go without a word. Its runs pause for milliseconds, so by then some of
/// them have been forgotten.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// The longest wait between the moment a kill is due and the kill itself.
const KILL_DELAY_MAX: Duration = Duration::from_millis(50);

/// Runs the whole show.
///
/// # Errors
/// When a child cannot be started, or ends by itself with an error.
pub(crate) async fn run(options: CrashOptions, url: Option<String>) -> Result<Outcome, Box<dyn Error>> {
    tokio::select! {
        outcome = show(&options, url.as_deref()) => outcome,
        // The child ends with its parent: its handle kills it when it is dropped.
        interrupted = interrupt::requested() => interrupted.map(|()| Outcome::Interrupted).map_err(Into::into),
    }
}

async fn show(options: &CrashOptions, url: Option<&str>) -> Result<Outcome, Box<dyn Error>> {
    let folder = Folder::make(options.keep_in.as_deref())?;
    let seed = options
        .seed
        .unwrap_or_else(|| u64::from(std::process::id()) << 32 | u64::from(Dice::from_time()));
    let dice = Dice::new(seed);
    let what = if url.is_some() {
        "ledger"
    } else {
        "store and ledger"
    };
    tell(format_args!("{what} in {}; seed {seed}", shown(folder.path())))?;
    tell(format_args!(
        "{} workflows of three steps, {} at once; {} kills",
        HumanCount(options.workflows.into()),
        HumanCount(options.running.into()),
        options.kills
    ))?;
    let verdict = match url {
        Some(url) => nodes::show(options, &folder, url, dice).await?,
        None => show_alone(options, &folder, dice).await?,
    };
    if verdict.is_clean() {
        print(&verdict)?;
        return Ok(Outcome::Complete);
    }
    // Before it is told, which may fail: this is what the user must look at.
    folder.keep();
    print(&verdict)?;
    Ok(Outcome::Lost)
}

/// One process after the other, on a file of its own.
async fn show_alone(
    options: &CrashOptions,
    folder: &Folder,
    mut dice: Dice,
) -> Result<Verdict, Box<dyn Error>> {
    let store = folder.store();
    let mut process = 0;
    for kill in 1..=options.kills {
        process += 1;
        let mut worker = Worker::start(options, folder, &Job::new(&store, process)).await?;
        let due = due_at(options, kill, &mut dice);
        match worker.run_until(due).await? {
            Some(at) => {
                tokio::time::sleep(KILL_DELAY_MAX.mul_f64(dice.fraction())).await;
                worker.kill().await?;
                tell(format_args!(
                    "kill {kill}: {:.2} s after its start, with about {} acknowledged and {} of them running",
                    worker.started.elapsed().as_secs_f64(),
                    HumanCount(at.acked),
                    HumanCount(at.acked.saturating_sub(at.ended)),
                ))?;
            }
            None => tell(format_args!("kill {kill}: came too late, all was done"))?,
        }
    }
    let mut worker = Worker::start(options, folder, &Job::new(&store, process + 1)).await?;
    worker.run_until(u64::MAX).await?;
    worker.tell_took("done")?;
    show_all(options, folder, &store, process + 2).await?;
    Ok(folder.judge(Judge::default())?)
}

/// A fresh process shows the result of each acknowledged run.
async fn show_all(
    options: &CrashOptions,
    folder: &Folder,
    store: &Path,
    process: u64,
) -> Result<(), Box<dyn Error>> {
    let job = Job {
        only_show: true,
        ..Job::new(store, process)
    };
    let mut worker = Worker::start(options, folder, &job).await?;
    worker.run_until(u64::MAX).await?;
    Ok(worker.tell_took("shown again by a fresh process")?)
}

/// How many runs have ended when the kill of this number is due: anywhere in its part of the work.
fn due_at(options: &CrashOptions, kill: u32, dice: &mut Dice) -> u64 {
    let part = f64::from(options.workflows) / f64::from(options.kills + 1);
    let due = part * (f64::from(kill) - 0.5 + dice.fraction());
    // Saturates; a count of runs is far within the range where this is exact.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 0 and the number of workflows"
    )]
    let due = due as u64;
    due
}

fn print(verdict: &Verdict) -> Result<(), OutputError> {
    for fault in &verdict.faults_named {
        tell(format_args!("FAULT: {fault}"))?;
    }
    let rows = [
        ("starts acknowledged", verdict.acknowledged),
        ("  of those completed", verdict.completed),
        ("begun but not acknowledged", verdict.unacknowledged),
        ("step executions", verdict.executions),
        ("  steps that ran more than once", verdict.steps_rerun),
        ("ledger lines cut short", verdict.torn_lines),
        ("faults", verdict.faults),
    ];
    for (what, count) in rows {
        tell(format_args!("{what:34} {:>10}", HumanCount(count).to_string()))?;
    }
    tell(if verdict.is_clean() {
        "nothing acknowledged was lost, no recorded result changed, no recorded step ran again"
    } else {
        "the runtime broke its promise; store and ledger are kept"
    })
}

/// How far a worker says it is.
#[derive(Clone, Copy, Debug, Default)]
struct At {
    acked: u64,
    ended: u64,
}

impl At {
    /// What a worker's line says.
    fn told(line: &str) -> Result<Self, String> {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["at", acked, ended] => match (acked.parse(), ended.parse()) {
                (Ok(acked), Ok(ended)) => Ok(Self { acked, ended }),
                _ => Err(format!("the worker said {line:?}")),
            },
            _ => Err(format!("the worker said {line:?}")),
        }
    }
}

/// What a child process is told to do.
#[derive(Debug)]
struct Job<'a> {
    store: &'a Path,
    process: u64,
    only_show: bool,
    /// The number of processes that run at a time, and the remainder that selects the runs of this one: those whose number,
    /// divided by the first, leaves the second.
    part: Option<(u64, u64)>,
}

impl<'a> Job<'a> {
    /// All of what is left.
    fn new(store: &'a Path, process: u64) -> Self {
        Self {
            store,
            process,
            only_show: false,
            part: None,
        }
    }
}

/// A child process.
#[derive(Debug)]
struct Worker {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    started: Instant,
}

impl Worker {
    /// Starts a child and waits until its store is open.
    async fn start(options: &CrashOptions, folder: &Folder, job: &Job<'_>) -> Result<Self, Box<dyn Error>> {
        let started = Instant::now();
        let mut command = Command::new(std::env::current_exe()?);
        command
            .arg("crash-worker")
            .arg("--store")
            .arg(job.store)
            .arg("--ledger")
            .arg(folder.ledger());
        command.args([
            "--workflows",
            &options.workflows.to_string(),
            "--running",
            &options.running.to_string(),
        ]);
        command.args(["--process", &job.process.to_string()]);
        if job.only_show {
            command.arg("--only-show");
        }
        if let Some((of, rest)) = job.part {
            command.args(["--of", &of.to_string(), "--rest", &rest.to_string()]);
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let out = child.stdout.take().expect("its standard output was asked for");
        let mut worker = Self {
            child,
            lines: BufReader::new(out).lines(),
            started,
        };
        if worker.next_line().await?.as_deref() != Some("open") {
            worker.join().await?;
            return Err("the worker ended before its store was open".into());
        }
        tell(format_args!(
            "process {}: store open after {:.2} s",
            job.process,
            started.elapsed().as_secs_f64()
        ))?;
        Ok(worker)
    }

    /// Waits until `ended` runs have ended, and says how far the worker is then. `None` when it
    /// has ended itself, all done.
    async fn run_until(&mut self, ended: u64) -> Result<Option<At>, Box<dyn Error>> {
        while let Some(line) = self.next_line().await? {
            let at = At::told(&line)?;
            if at.ended >= ended {
                return Ok(Some(at));
            }
        }
        self.join().await?;
        Ok(None)
    }

    async fn next_line(&mut self) -> Result<Option<String>, Box<dyn Error>> {
        let line = timeout(SILENCE_MAX, self.lines.next_line()).await;
        Ok(line.map_err(|_| format!("the worker has not said a word for {} s", SILENCE_MAX.as_secs()))??)
    }

    fn tell_took(&self, what: &str) -> Result<(), OutputError> {
        tell(format_args!(
            "all {what} in {:.2} s",
            self.started.elapsed().as_secs_f64()
        ))
    }

    /// SIGKILL: the child gets no chance to do anything more.
    async fn kill(&mut self) -> std::io::Result<()> {
        self.child.kill().await
    }

    async fn join(&mut self) -> Result<(), Box<dyn Error>> {
        let status = self.child.wait().await?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("the worker failed: {status}").into())
        }
    }
}

/// The directory of store and ledger. A temporary one is removed when this is dropped, however the
/// show ends, unless it is to be kept.
#[derive(Debug)]
enum Folder {
    Given(PathBuf),
    Temporary(TempDir),
}

impl Folder {
    fn make(keep_in: Option<&Path>) -> std::io::Result<Self> {
        match keep_in {
            Some(path) => fs::create_dir(path).map(|()| Self::Given(path.to_path_buf())),
            None => tempfile::Builder::new()
                .prefix("millrun-crash-")
                .tempdir()
                .map(Self::Temporary),
        }
    }

    fn path(&self) -> &Path {
        match self {
            Self::Given(path) => path,
            Self::Temporary(folder) => folder.path(),
        }
    }

    fn store(&self) -> PathBuf {
        self.path().join("store.redb")
    }

    fn ledger(&self) -> PathBuf {
        self.path().join("ledger")
    }

    fn judge(&self, mut judge: Judge) -> std::io::Result<Verdict> {
        ledger::read(&self.ledger(), |line| judge.hear(line))?;
        Ok(judge.conclude())
    }

    /// Leaves the directory for the user to look at.
    fn keep(self) {
        if let Self::Temporary(folder) = self {
            let _kept: PathBuf = folder.keep();
        }
    }
}
