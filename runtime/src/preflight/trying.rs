//! The threads of a preflight.
//!
//! ```text
//!   queue ──► batch of a thread ──► its histories, read together ──► one replay after another ──► findings
//!     ▲              │ what is left of it, when a replay does not end
//!     └──────────────┘
//! ```

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millrun_core::{Bell, Host, Next, Part, PartExit, PartHandle, Placement, RunId, Timestamp};
use millrun_persistence::{History, Journal, ToRead, WasRead};
use millrun_workflow::{Fit, Implementation, Limits, ParkReason, VersionPolicy};
use tokio::sync::Notify;

use super::config::PreflightConfig;
use super::error::PreflightError;
use super::report::{Findings, PreflightReport, RunTried, Tried};
use crate::Runtime;
use crate::code::workflows::{Beginning, Workflows};
use crate::looking::find::RunSummary;
use crate::mail::Story;
use crate::reader::{history_of, story_of};

/// How many runs may wait for a thread.
const QUEUED_LEN_MAX: usize = 4_096;
/// How many runs a thread takes at a time, to read their histories together.
const BATCH_LEN: usize = 256;
/// How many bytes of histories are read together; a larger history is read alone.
const TOGETHER_BYTES_MAX: usize = 4 << 20;

/// All tries, and their results.
pub(super) struct Tries {
    shared: Arc<TriesShared>,
    host: Arc<dyn Host>,
    config: PreflightConfig,
    threads: Vec<(PartHandle, Bell)>,
    endless: usize,
}

/// Shared between the threads and the waiting task.
struct TriesShared {
    journal: Arc<dyn Journal>,
    workflows: Workflows,
    limits: Limits,
    state: Mutex<TriesState>,
    /// Notified when a run was tried.
    news: Notify,
}

struct TriesState {
    queue: VecDeque<RunSummary>,
    findings: Findings,
    /// Whether no further runs come.
    is_last: bool,
    /// The runs that each thread has.
    batches: Vec<GivenRuns>,
}

/// Runs that were given to a thread.
#[derive(Default)]
struct GivenRuns {
    /// The run that is being tried, and since when.
    trying: Option<(RunSummary, Timestamp)>,
    /// Those that follow.
    rest: VecDeque<RunSummary>,
}

impl GivenRuns {
    fn is_empty(&self) -> bool {
        self.trying.is_none() && self.rest.is_empty()
    }
}

impl fmt::Debug for Tries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tries").finish_non_exhaustive()
    }
}

impl TriesShared {
    fn lock(&self) -> MutexGuard<'_, TriesState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The histories of some runs, as far as they are read together.
    fn histories(&self, runs: &[RunId]) -> HashMap<RunId, History> {
        let wanted: Vec<_> = runs.iter().copied().map(ToRead::History).collect();
        let mut histories = HashMap::with_capacity(runs.len());
        self.journal
            .read_together(&wanted, TOGETHER_BYTES_MAX, &mut |at, was_read| {
                // Other histories are read alone, which reports any error.
                if let Ok(WasRead::History(history)) = was_read {
                    histories.insert(runs[at], history);
                }
            });
        histories
    }

    fn tried(&self, run: &RunSummary, history: Option<History>) -> RunTried {
        let history = match history {
            Some(history) => Ok(history),
            None => history_of(&*self.journal, run.run),
        };
        let (story, started) = match history.and_then(|history| story_of(&history)) {
            Ok(read) => read,
            Err(error) => return Tried::Unreadable(error.to_string()).into(),
        };
        let beginning = Beginning::of(&started, story.version);
        let own = self.workflows.code_of(beginning);
        let newest = self.workflows.code_to_move(beginning);
        let events = story.events.len() as u64;
        let Some(newest) = newest else {
            return self.fit(own, run.run, story).with_events(events);
        };
        let must_move = newest.version_policy() == VersionPolicy::MustMove;
        let stays = own.filter(|_| !must_move);
        let copy = stays.map(|code| (code, story.to_try()));
        let tried = match (self.fit(Some(newest), run.run, story), copy) {
            (
                RunTried {
                    tried: Tried::Fit(Fit::Fits { changed_values }),
                    patches,
                    ..
                },
                _,
            ) => RunTried {
                tried: Tried::Moves { changed_values },
                patches,
                events,
            },
            // It keeps its version, whose code exists.
            (_, Some((code, story))) => self.fit(Some(code), run.run, story),
            (tried, None) => tried,
        };
        tried.with_events(events)
    }

    fn fit(&self, code: Option<&Implementation>, run: RunId, story: Story) -> RunTried {
        let kept = story.kept.map(|kept| *kept);
        let fit = Fit::with_patches(code, run, kept, story.events, self.limits);
        let mut taken = Vec::new();
        let fit = fit.map(|(fit, patches)| {
            taken = patches;
            fit
        });
        let tried = match fit {
            Ok(Fit::NoCode { workflow, version }) => {
                let registered = self.workflows.versions_of(&workflow);
                Tried::NoCode(ParkReason::NotRegistered {
                    workflow,
                    version,
                    registered,
                })
            }
            Ok(fit) => Tried::Fit(fit),
            Err(error) => Tried::Unreadable(error.to_string()),
        };
        RunTried {
            tried,
            patches: taken,
            events: 0,
        }
    }
}

impl Tries {
    pub(super) fn new(
        runtime: &Runtime,
        workflows: Workflows,
        limits: Limits,
        config: PreflightConfig,
    ) -> Self {
        let inner = runtime.inner();
        let state = TriesState {
            queue: VecDeque::new(),
            findings: Findings::new(config.findings_len_max),
            is_last: false,
            batches: Vec::new(),
        };
        Self {
            shared: Arc::new(TriesShared {
                journal: Arc::clone(&inner.shared.journal),
                workflows,
                limits,
                state: Mutex::new(state),
                news: Notify::new(),
            }),
            host: Arc::clone(&inner.shared.host),
            config,
            threads: Vec::new(),
            endless: 0,
        }
    }

    pub(super) fn finished_len_max(&self) -> u64 {
        self.config.finished_len_max
    }

    pub(super) fn note_unreadable(&self, len: u64) {
        self.shared.lock().findings.note_unreadable(len);
    }

    /// Gives runs to the threads, as they have room.
    pub(super) async fn enqueue(&mut self, runs: Vec<RunSummary>) -> Result<(), PreflightError> {
        while self.threads.len() < self.config.threads {
            self.begin_thread()?;
        }
        self.until(|state| state.queue.len() < QUEUED_LEN_MAX).await?;
        self.shared.lock().queue.extend(runs);
        self.ring();
        Ok(())
    }

    /// Waits until all runs were tried.
    pub(super) async fn finish(mut self) -> Result<PreflightReport, PreflightError> {
        self.until(|state| state.queue.is_empty() && state.batches.iter().all(GivenRuns::is_empty))
            .await?;
        let findings = {
            let mut state = self.shared.lock();
            state.is_last = true;
            std::mem::take(&mut state.findings)
        };
        self.ring();
        Ok(findings.finish())
    }

    fn ring(&self) {
        for (_, bell) in &self.threads {
            bell.ring();
        }
    }

    fn begin_thread(&mut self) -> Result<(), PreflightError> {
        let number = {
            let mut state = self.shared.lock();
            state.batches.push(GivenRuns::default());
            state.batches.len() - 1
        };
        let part = TryingThread {
            shared: Arc::clone(&self.shared),
            host: Arc::clone(&self.host),
            number,
        };
        let on_exit = Box::new(|exit: PartExit| tracing::debug!(?exit, "a thread of a preflight has ended"));
        let name = format!("preflight {number}");
        let bell = Bell::new();
        let thread =
            (self.host).spawn_part(&name, Placement::Thread, bell.clone(), Box::new(part), on_exit)?;
        self.threads.push((thread, bell));
        Ok(())
    }

    /// Waits until `is_so` holds, giving up replays that take too long.
    async fn until(&mut self, is_so: impl Fn(&TriesState) -> bool) -> Result<(), PreflightError> {
        loop {
            let news = Arc::clone(&self.shared);
            let mut news = Box::pin(news.news.notified());
            news.as_mut().enable();
            if is_so(&self.shared.lock()) {
                return Ok(());
            }
            let late = self.host.sleep_until(self.host.now() + self.config.run_time_max);
            tokio::select! {
                () = news => {}
                () = late => self.give_up_endless()?,
            }
        }
    }

    /// Reports runs whose replay takes too long, and replaces their threads.
    fn give_up_endless(&mut self) -> Result<(), PreflightError> {
        let now = self.host.now();
        let mut given_up = 0;
        {
            let mut state = self.shared.lock();
            let TriesState {
                findings,
                batches,
                queue,
                ..
            } = &mut *state;
            for batch in batches {
                let is_late = |since: Timestamp| now.saturating_since(since) >= self.config.run_time_max;
                if let Some((run, _)) = batch.trying.take_if(|(_, since)| is_late(*since)) {
                    queue.extend(batch.rest.drain(..));
                    given_up += 1;
                    if self.endless + given_up > self.config.endless_len_max {
                        return Err(PreflightError::Endless {
                            len: self.endless + given_up,
                            workflow: run.workflow,
                        });
                    }
                    findings.add(&run, Tried::Endless.into());
                }
            }
        }
        self.endless += given_up;
        for _ in 0..given_up {
            self.begin_thread()?;
        }
        Ok(())
    }
}

/// A thread of a preflight.
struct TryingThread {
    shared: Arc<TriesShared>,
    host: Arc<dyn Host>,
    number: usize,
}

impl TryingThread {
    /// Takes runs from the queue.
    fn take(&self) -> Vec<RunId> {
        let mut state = self.shared.lock();
        let len = state.queue.len().min(BATCH_LEN);
        let rest: VecDeque<_> = state.queue.drain(..len).collect();
        let runs = rest.iter().map(|run| run.run).collect();
        state.batches[self.number].rest = rest;
        runs
    }

    /// The next run of the taken ones, which is tried from now on.
    fn next(&self) -> Option<RunSummary> {
        let mut state = self.shared.lock();
        let batch = &mut state.batches[self.number];
        let run = batch.rest.pop_front()?;
        batch.trying = Some((run.clone(), self.host.now()));
        Some(run)
    }

    /// Reports the result of a run; `false` if the run was given up meanwhile, and another thread has replaced this one.
    fn tell(&self, run: &RunSummary, tried: RunTried) -> bool {
        let mut state = self.shared.lock();
        if state.batches[self.number].trying.take().is_none() {
            return false;
        }
        state.findings.add(run, tried);
        true
    }
}

impl Part for TryingThread {
    fn turn(&mut self, _now: Timestamp, _budget: usize) -> Next {
        let runs = self.take();
        if runs.is_empty() {
            return match self.shared.lock().is_last {
                true => Next::Stop,
                false => Next::Idle,
            };
        }
        let mut histories = self.shared.histories(&runs);
        while let Some(run) = self.next() {
            let tried = self.shared.tried(&run, histories.remove(&run.run));
            if !self.tell(&run, tried) {
                return Next::Stop;
            }
        }
        self.shared.news.notify_one();
        Next::Again
    }
}
