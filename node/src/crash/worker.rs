//! The process that is killed: it runs workflows of three steps and writes down, in the ledger,
//! what it was told and what it did.
//!
//! It reports to its parent by lines on standard output: `open` when the store is ready, then
//! `at <acknowledged> <ended>` as runs end. One of several processes says `done` at the end, and leaves when its
//! standard input ends: until then it performs what the runs of the others need.

use std::error::Error;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use millrun::{
    Activity, ActivityContext, ActivityError, ResultError, Runtime, RuntimeConfig, Workflow, WorkflowContext,
    WorkflowError,
};
use serde::{Deserialize, Serialize};

use super::ledger::{self, Fact, Ledger, STEPS, Token};
use crate::cli::CrashWorker;
use crate::outcome::Outcome;

const TOKENS: Workflow<u64, [Token; STEPS]> = Workflow::named("crash.tokens");
const DRAW: Activity<Draw, Token> = Activity::named("crash.draw");

/// The longest pause between two steps. Pauses keep thousands of runs alive at once.
const PAUSE_MS_MAX: u64 = 400;
/// How soon the others take over the runs of a process that was killed.
const LEASE: Duration = Duration::from_secs(2);
/// How long a call waits that met a partition on its way from one process to another.
const PAUSE: Duration = Duration::from_millis(20);
/// After how many runs that ended the parent is told.
const REPORT_EVERY: u64 = 50;

/// One step: it is shown the results of the steps before it.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Draw {
    run: u64,
    earlier: Vec<Token>,
}

/// Three draws with pauses in between; the result is what the history holds of them.
async fn tokens(cx: WorkflowContext, run: u64) -> Result<[Token; STEPS], WorkflowError> {
    let mut tokens = Vec::with_capacity(STEPS);
    while tokens.len() < STEPS {
        if !tokens.is_empty() {
            cx.sleep(Duration::from_millis(cx.random() % PAUSE_MS_MAX))
                .await?;
        }
        tokens.push(
            cx.call(
                DRAW,
                Draw {
                    run,
                    earlier: tokens.clone(),
                },
            )
            .await?,
        );
    }
    Ok(tokens.try_into().expect("the loop ends at this length"))
}

/// What the activity works with.
#[derive(Debug)]
struct Bench {
    ledger: Ledger,
    process: u64,
    drawn: AtomicU64,
}

impl Bench {
    /// Draws a token that no other execution has, in this process or another.
    async fn draw(self: Arc<Self>, cx: ActivityContext, input: Draw) -> Result<Token, ActivityError> {
        let Draw { run, earlier } = input;
        let token = self.process << 32 | self.drawn.fetch_add(1, Ordering::Relaxed);
        let step = earlier.len() + 1;
        let shown = (1..).zip(&earlier).map(|(step, token)| Fact::Saw {
            run,
            step,
            token: *token,
        });
        let ran = Fact::Ran {
            run,
            step,
            attempt: cx.attempt(),
            key: cx.idempotency_key(),
            token,
        };
        self.ledger.append(&shown.chain([ran]).collect::<Vec<_>>())?;
        Ok(token)
    }
}

/// Runs what the ledger says is left to do, then ends.
///
/// # Errors
/// When the store or the ledger fail, or a run ends with anything but its result.
pub(crate) async fn run(options: CrashWorker) -> Result<Outcome, Box<dyn Error>> {
    let left = Left::of(&options)?;
    let ledger = Ledger::open(&options.ledger, options.process)?;
    let bench = Arc::new(Bench {
        ledger,
        process: options.process,
        drawn: AtomicU64::new(0),
    });
    let drawing = Arc::clone(&bench);
    let mut config = RuntimeConfig::default();
    config.shutdown_grace = Duration::from_secs(5);
    config.lease = LEASE;
    let runtime = Runtime::open(&options.store)
        .config(config)
        .register(TOKENS, tokens)
        .register(DRAW, move |cx, input| Arc::clone(&drawing).draw(cx, input))
        .start()
        .await?;
    let found = runtime.startup_report();
    if options.of.is_some() && options.process == 1 && found.live + found.finished > 0 {
        return Err("the schema has runs: choose another schema in the URL, or none".into());
    }
    tell("open")?;

    let reports = Reports {
        acked: AtomicU64::new(left.acked),
        ended: AtomicU64::new(left.ended),
    };
    stream::iter(left.runs)
        .map(|(run, is_acked)| follow(&runtime, &bench.ledger, &reports, run, is_acked))
        .buffer_unordered(options.running as usize)
        .try_for_each(|()| async { Ok(()) })
        .await?;
    tell(&reports.line())?;
    if options.of.is_some() {
        tell("done")?;
        // The thread ends with the process, if that is interrupted.
        tokio::task::spawn_blocking(|| io::stdin().read_to_end(&mut Vec::new())).await??;
    }
    runtime.shutdown().await?;
    Ok(Outcome::Complete)
}

/// One run, from its start to its result. A start that was acknowledged before is not made again.
async fn follow(
    runtime: &Runtime,
    ledger: &Ledger,
    reports: &Reports,
    run: u64,
    is_acked: bool,
) -> Result<(), Box<dyn Error>> {
    let id = format!("run-{run}");
    let handle = if is_acked {
        runtime.attach(TOKENS, &id)?
    } else {
        let handle = loop {
            match runtime.start(TOKENS, &id, run).await {
                Err(error) if error.is_retryable() && runtime.stop_cause().is_none() => pause().await,
                started => break started?,
            }
        };
        ledger.append(&[Fact::Acked { run }])?;
        reports.acked.fetch_add(1, Ordering::Relaxed);
        handle
    };
    let tokens = loop {
        match handle.result().await {
            Err(error) if is_passing(&error) && runtime.stop_cause().is_none() => pause().await,
            result => break result?,
        }
    };
    ledger.append(&[Fact::Ended { run, tokens }])?;
    if reports
        .ended
        .fetch_add(1, Ordering::Relaxed)
        .is_multiple_of(REPORT_EVERY)
    {
        tell(&reports.line())?;
    }
    Ok(())
}

async fn pause() {
    tokio::time::sleep(PAUSE).await;
}

/// Whether a result may be asked for again.
fn is_passing(error: &ResultError<WorkflowError>) -> bool {
    matches!(error, ResultError::Run(error) if error.is_retryable())
}

/// What earlier processes left to do.
#[derive(Debug)]
struct Left {
    /// How many runs were acknowledged and ended so far, as far as this process counts them.
    acked: u64,
    ended: u64,
    /// The runs to follow, and whether each was acknowledged before.
    runs: Vec<(u64, bool)>,
}

impl Left {
    fn of(options: &CrashWorker) -> io::Result<Self> {
        let len = options.workflows as usize;
        let (mut acked, mut ended) = (vec![false; len], vec![false; len]);
        let mark = |marks: &mut Vec<bool>, run: u64| {
            if let Some(mark) = usize::try_from(run).ok().and_then(|run| marks.get_mut(run)) {
                *mark = true;
            }
        };
        if options.ledger.exists() {
            ledger::read(&options.ledger, |line| match line {
                Ok(Fact::Acked { run }) => mark(&mut acked, run),
                Ok(Fact::Ended { run, .. }) => mark(&mut ended, run),
                Ok(Fact::Born { .. } | Fact::Ran { .. } | Fact::Saw { .. }) | Err(_) => {}
            })?;
        }
        let runs = (0..).zip(acked.iter().zip(&ended));
        // One of several processes follows its own runs, and counts no others.
        let is_own = |run: u64| match (options.of, options.rest) {
            (Some(of), Some(rest)) => run % of == rest,
            _ => true,
        };
        let runs = runs.filter(|(run, _)| is_own(*run));
        // Runs that are alive come first: they are the ones that must not be lost.
        let (mut alive, mut new): (Vec<_>, Vec<_>) = runs
            .filter(|(_, (acked, ended))| if options.only_show { **acked } else { !**ended })
            .map(|(run, (acked, _))| (run, *acked))
            .partition(|(_, acked)| *acked);
        alive.append(&mut new);
        let count = |marks: &[bool]| {
            let marked = (0..).zip(marks).filter(|(run, mark)| **mark && is_own(*run));
            marked.count() as u64
        };
        let shown = if options.only_show { 0 } else { count(&ended) };
        Ok(Self {
            acked: count(&acked),
            ended: shown,
            runs: alive,
        })
    }
}

#[derive(Debug)]
struct Reports {
    acked: AtomicU64,
    ended: AtomicU64,
}

impl Reports {
    fn line(&self) -> String {
        format!(
            "at {} {}",
            self.acked.load(Ordering::Relaxed),
            self.ended.load(Ordering::Relaxed)
        )
    }
}

/// Tells the parent. When it is gone this fails, and the process ends.
fn tell(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}
