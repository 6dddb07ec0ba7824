//! The process that no fault touches: it holds callers, ledger and judgement, and starts and kills workers.
//!
//! ```text
//!   load (callers) ─┐                   ┌─► worker (runtime, store): killed, started again
//!                   ├─► desk ─► life ───┤
//!   faults ─────────┘      │            └─► verifier (histories) ──┐
//!                          ▼                                       ▼
//!                       ledger ────────────────────────────────► checks
//! ```

pub(crate) mod desk;
mod keeper;
mod life;
mod round;
mod summary;

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;

use crate::check::{self, Findings, Rule, Violation};
use crate::dice::Dice;
use crate::faults::Forecast;
use crate::ledger::Book;
use crate::verify::{Seen, SeenStore};
use summary::Summary;

/// What a run of the suite does.
#[derive(Clone, Debug, Args)]
pub(crate) struct RunOptions {
    /// How long it runs, about, in seconds; what has begun is brought to its end and judged behind that.
    #[arg(long, default_value_t = 60)]
    pub(crate) seconds: u64,
    /// How long one round breaks things; each begins with a new store.
    #[arg(long, default_value_t = 15)]
    pub(crate) round_seconds: u64,
    /// The seed of everything that is chosen; from the clock if it is not given.
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Only this weather.
    #[arg(long, value_enum)]
    pub(crate) only: Option<Forecast>,
    /// How many starts the crowd makes.
    #[arg(long, default_value_t = 100_000)]
    pub(crate) crowd: u32,
    /// Where folders of rounds are made; the system's place for temporary files if it is not given.
    #[arg(long)]
    pub(crate) within: Option<PathBuf>,
}

/// Runs rounds until the time is over or something is found. Gives whether everything was as it must be.
///
/// # Errors
/// When a folder cannot be made.
pub(crate) async fn run(options: &RunOptions) -> Result<bool, Box<dyn Error>> {
    let seed = options.seed.unwrap_or_else(seed_of_the_clock);
    let dice = Dice::new(seed);
    let began = Instant::now();
    let mut summary = Summary::default();
    println!(
        "seed {seed}, about {} s in rounds of {} s",
        options.seconds, options.round_seconds
    );
    let forecasts: Vec<Forecast> = match options.only {
        Some(only) => vec![only],
        None => Forecast::ALL.to_vec(),
    };
    for number in 0_u64.. {
        let len = u64::try_from(forecasts.len()).expect("a few kinds");
        let is_whole_turn = number >= len;
        if is_whole_turn && began.elapsed() >= Duration::from_secs(options.seconds) {
            break;
        }
        let forecast = forecasts[usize::try_from(number % len).expect("below a length")];
        let mut dice = dice.split(number);
        let weather = forecast.weather(options.crowd, &mut dice);
        let folder = folder(options.within.as_deref())?;
        let round = Instant::now();
        let report = round::run(folder.path(), &weather, options.round_seconds, &dice).await;
        summary.add(number, &weather, &report, round.elapsed());
        if !report.violations.is_empty() {
            let kept = folder.keep();
            summary::tell_violations(seed, number, &report, &kept);
            summary.print(began.elapsed());
            return Ok(false);
        }
    }
    summary.print(began.elapsed());
    Ok(summary.is_whole(options.only.is_none()))
}

fn folder(within: Option<&Path>) -> std::io::Result<tempfile::TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("millrun-chaos-");
    match within {
        Some(within) => builder.tempdir_in(within),
        None => builder.tempdir(),
    }
}

fn seed_of_the_clock() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| u64::from(since.subsec_nanos()) << 20 ^ since.as_secs())
}

/// Compares what a verifier saw with the ledger.
fn compare(book: &Book, seen: Result<SeenStore, String>) -> Findings {
    let mut findings = Findings::default();
    let seen = match seen {
        Ok(seen) => seen,
        Err(error) => {
            findings.violations.push(Violation {
                rule: Rule::AcknowledgedIsDurable,
                instance: None,
                story: error,
            });
            return findings;
        }
    };
    let mut runs: BTreeMap<String, Vec<Seen>> = BTreeMap::new();
    check::check_letters(book, &seen.records, &mut findings);
    for run in seen.runs {
        runs.entry(run.id.clone()).or_default().push(run);
    }
    for account in book.accounts.values() {
        let own = runs.remove(&account.id).unwrap_or_default();
        check::check_history(account, &own, &mut findings);
    }
    for id in runs.into_keys() {
        findings.violations.push(Violation {
            rule: Rule::RunsBegunOnce,
            instance: Some(id),
            story: "the file has it, and nobody asked for it".into(),
        });
    }
    findings
}
