//! Keeps a worker running: starts one after the other on the same store, ends them, and has the file looked
//! at in between.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use super::desk::Desk;
use super::life::{Ended, Life, Recipe, Told};
use crate::check::{Checked, Rule};
use crate::dice::Dice;
use crate::faults::{self, Weather};
use crate::verify;
use crate::wire::{Answer, Ask};

/// How far clocks are off between processes, at most, in milliseconds either way.
const CLOCK_MS_MAX: i64 = 3_600_000;
/// How far the clock of one process of a round is ahead: 40 days, far beyond what results are retained for.
const FAR_AHEAD_MS: i64 = 40 * 86_400_000;
/// That process. Each such opening may let results age by hours, so there is one.
const FAR_AHEAD_LIFE: u64 = 3;
/// By how much the clock is set ahead in the end, so that whatever an earlier clock has set is due.
pub(crate) const CALM_AHEAD_MS: i64 = FAR_AHEAD_MS + 4 * CLOCK_MS_MAX;
/// How many failures of a part in a minute the runtime puts up with where parts are killed all the time.
const RESTARTS_MAX: u32 = 1_000_000;
/// What a part says that was killed.
const KILLED: &str = "it was killed";
/// What the system says of a full disk.
const NO_ROOM: &str = "no storage space";

/// How far a round is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Things break.
    Faults,
    /// Nothing breaks any more; what has begun is brought to its end.
    Calm,
    /// The process that runs is the last one.
    Closing,
}

/// What keeps the workers of a round.
#[derive(Debug)]
pub(crate) struct Keeper {
    pub(crate) desk: Arc<Desk>,
    pub(crate) store: PathBuf,
    pub(crate) weather: Weather,
    pub(crate) dice: Dice,
    /// The file has been taken from the process that runs.
    pub(crate) is_taken: bool,
    pub(crate) tally: Tally,
}

/// What happened to processes and parts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) lives: u64,
    pub(crate) process_kills: u64,
    pub(crate) orderly_restarts: u64,
    pub(crate) disk_stops: u64,
    pub(crate) repairs: u64,
    /// How often the file was looked at between two processes, and what was compared.
    pub(crate) looks: u64,
    pub(crate) looked_at: Checked,
    pub(crate) parts: BTreeMap<String, u64>,
}

/// What follows the end of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Another,
    Nothing,
}

impl Keeper {
    /// Starts processes and ends them as the weather has it, until the last has ended. What goes wrong is
    /// entered in the ledger.
    pub(crate) async fn keep(
        mut self,
        lives: watch::Sender<Option<Arc<Life>>>,
        mut phases: watch::Receiver<Phase>,
    ) -> Tally {
        loop {
            let Some((life, mut ended)) = self.start(*phases.borrow()) else {
                break;
            };
            lives.send_replace(Some(Arc::clone(&life)));
            let mut end_at = self.end_at();
            let mut is_asked = false;
            let end = loop {
                let is_due = end_at.filter(|_| *phases.borrow() == Phase::Faults);
                let due = async {
                    match is_due {
                        Some(at) => tokio::time::sleep_until(at).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    () = due => {
                        end_at = None;
                        is_asked = self.end(&life).await;
                    }
                    end = &mut ended => break end,
                    changed = phases.changed() => {
                        if changed.is_err() {
                            // The round is given up, and the process ends with its handle.
                            return self.tally;
                        }
                    }
                }
            };
            lives.send_replace(None);
            if let Ok(end) = &end {
                self.take(&end.told);
            }
            let phase = *phases.borrow();
            let next = end.map_or(Next::Nothing, |end| self.judge(&end, is_asked, phase));
            self.give_back();
            if next == Next::Nothing {
                break;
            }
            if self.dice.one_in(4) {
                self.look().await;
            }
        }
        self.tally
    }

    fn start(&mut self, phase: Phase) -> Option<(Arc<Life>, oneshot::Receiver<Ended>)> {
        self.tally.lives += 1;
        let clock_ms = self.weather.is_clock_moved.then(|| {
            let off = self.dice.below(2 * CLOCK_MS_MAX.unsigned_abs());
            match phase {
                Phase::Faults if self.tally.lives == FAR_AHEAD_LIFE => FAR_AHEAD_MS,
                Phase::Faults => i64::try_from(off).expect("two hours fit") - CLOCK_MS_MAX,
                Phase::Calm | Phase::Closing => CALM_AHEAD_MS,
            }
        });
        let recipe = Recipe {
            shards_len: self.weather.shards_len,
            hot_len_max: self.weather.hot_len_max,
            restarts_max: if self.weather.part_kill_every_ms.is_some() {
                RESTARTS_MAX
            } else {
                0
            },
            seed: self.dice.roll(),
            clock_ms,
            has_own_disk: self.weather.is_disk_troubled,
        };
        let ledger = Arc::clone(&self.desk.ledger);
        match Life::start(self.tally.lives, &self.store, &recipe, ledger) {
            Ok(started) => Some(started),
            Err(error) => {
                self.desk.blame(
                    Rule::OnlyInjectedFailures,
                    None,
                    format!("no worker was started: {error}"),
                );
                None
            }
        }
    }

    fn end_at(&mut self) -> Option<Instant> {
        let (least, most) = self.weather.process_end_every_ms?;
        // Some die while they open the store.
        let after = if self.dice.one_in(8) {
            self.dice.below(30)
        } else {
            self.dice.between(least, most)
        };
        Some(Instant::now() + Duration::from_millis(after))
    }

    /// Kills the process, asks it to shut down, or takes its file. Whether it was asked.
    async fn end(&mut self, life: &Life) -> bool {
        // A process that has not opened its file yet would open what is put in its place, and rightly so.
        if self.weather.is_file_taken && life.is_open() && !self.dice.one_in(4) {
            self.take_file(life.number);
            return false;
        }
        if !self.dice.one_in(6) {
            self.tally.process_kills += 1;
            life.kill();
            return false;
        }
        self.tally.orderly_restarts += 1;
        match faults::ask(&self.desk, &Ask::Shutdown).await {
            Answer::Done => {}
            Answer::Wrong { .. } | Answer::Lost if self.weather.is_disk_troubled => {}
            answer => {
                let story = format!("a shutdown gave {answer:?}");
                self.desk.blame(Rule::OnlyInjectedFailures, None, story);
            }
        }
        true
    }

    /// Moves the file away, and perhaps puts another in its place.
    fn take_file(&mut self, life: u64) {
        let away = self.away();
        let is_taken = match fs::rename(&self.store, &away) {
            Ok(()) if self.dice.one_in(2) => fs::copy(&away, &self.store).map(drop),
            moved => moved,
        };
        match is_taken {
            // What is asked from now on comes behind it.
            Ok(()) => {
                self.desk.ledger.book().taken(life);
                self.is_taken = true;
            }
            Err(error) => {
                let story = format!("the file could not be moved: {error}");
                self.desk.blame(Rule::OnlyInjectedFailures, None, story);
            }
        }
    }

    /// Puts a file that was taken back in its place.
    fn give_back(&mut self) {
        if std::mem::take(&mut self.is_taken)
            && let Err(error) = fs::rename(self.away(), &self.store)
        {
            let story = format!("the file could not be put back: {error}");
            self.desk.blame(Rule::OnlyInjectedFailures, None, story);
        }
    }

    fn away(&self) -> PathBuf {
        self.store.with_file_name("away.redb")
    }

    /// Counts what a process told, and judges the failures of its parts.
    fn take(&mut self, told: &Told) {
        self.tally.repairs += told.repairs;
        for ((part, message), times) in &told.failures {
            *self.tally.parts.entry(part.clone()).or_default() += times;
            let is_injected = match message.as_str() {
                KILLED => self.weather.part_kill_every_ms.is_some(),
                _ => (self.weather.is_disk_troubled || self.is_taken) && part == "journal",
            };
            if !is_injected {
                let story = format!("{part} failed by itself, {times} times: {message}");
                self.desk.blame(Rule::OnlyInjectedFailures, None, story);
            }
        }
    }

    fn judge(&mut self, end: &Ended, is_asked: bool, phase: Phase) -> Next {
        if let Some(line) = &end.garbled {
            self.desk.blame(
                Rule::OnlyInjectedFailures,
                None,
                format!("the worker wrote {line}"),
            );
        }
        let is_well = end.status.as_ref().is_ok_and(std::process::ExitStatus::success);
        match &end.stopped {
            _ if end.was_killed && phase == Phase::Closing => Next::Nothing,
            _ if end.was_killed => Next::Another,
            // A write without room waits for it, and the disk has room again soon.
            Some(cause) if is_well && !is_asked && cause.contains(NO_ROOM) => {
                let story = format!("a disk that was full for a moment stopped the runtime: {cause}");
                self.desk.blame(Rule::OnlyInjectedFailures, None, story);
                Next::Nothing
            }
            Some(cause)
                if is_well
                    && (self.weather.is_disk_troubled || self.is_taken)
                    && cause.contains("journal") =>
            {
                self.tally.disk_stops += 1;
                Next::Another
            }
            Some(cause) => {
                let story = format!("the runtime stopped by itself: {cause}{}", self.last_words());
                self.desk.blame(Rule::OnlyInjectedFailures, None, story);
                Next::Nothing
            }
            None if is_well && phase == Phase::Closing => Next::Nothing,
            None if is_asked && (is_well || self.weather.is_disk_troubled) => Next::Another,
            None => {
                let story = format!(
                    "the worker ended by itself: {:?}{}",
                    end.status,
                    self.last_words()
                );
                self.desk.blame(Rule::OnlyInjectedFailures, None, story);
                Next::Nothing
            }
        }
    }

    /// The last that workers wrote to their standard error.
    fn last_words(&self) -> String {
        const LINES_MAX: usize = 12;
        let said = fs::read_to_string(self.store.with_file_name("worker.stderr")).unwrap_or_default();
        let lines: Vec<&str> = said.lines().collect();
        let last = lines.len().saturating_sub(LINES_MAX);
        lines[last..]
            .iter()
            .map(|line| format!("\n    | {line}"))
            .collect()
    }

    /// Has a copy of the file looked at as the last process left it, and compares it with the ledger. There
    /// is no process now, so that nothing is acknowledged meanwhile.
    async fn look(&mut self) {
        if !self.store.exists() {
            return;
        }
        let (store, copy) = (self.store.clone(), self.store.with_file_name("copy.redb"));
        let seen = tokio::task::spawn_blocking(move || {
            fs::copy(&store, &copy).map_err(|error| error.to_string())?;
            verify::all(&copy)
        });
        let Ok(seen) = seen.await else { return };
        self.tally.looks += 1;
        let findings = super::compare(&self.desk.ledger.book(), seen);
        self.tally.looked_at.add(&findings.checked);
        for violation in findings.violations {
            self.desk.ledger.blame(violation);
        }
    }
}
