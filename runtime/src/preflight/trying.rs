//! The threads of a preflight: what they are given, and what they give back.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millrun_core::{Bell, Host, Next, Part, PartExit, PartHandle, Placement, RunId, Timestamp};
use millrun_persistence::Journal;
use millrun_workflow::{Fit, Implementation, Limits, ParkReason, VersionPolicy};
use tokio::sync::Notify;

use super::config::PreflightConfig;
use super::error::PreflightError;
use super::report::{Findings, PreflightReport, RunTried, Tried};
use crate::Runtime;
use crate::code::workflows::{Beginning, Workflows};
use crate::looking::find::RunSummary;
use crate::mail::Story;
use crate::reader::story_of;

/// How many runs wait for a thread at most.
const QUEUED_LEN_MAX: usize = 4_096;
/// How many runs a thread takes in a turn.
const TAKEN_LEN: usize = 64;

/// All that is tried, and what became of it.
pub(super) struct Tries {
    shared: Arc<TriesShared>,
    host: Arc<dyn Host>,
    config: PreflightConfig,
    threads: Vec<(PartHandle, Bell)>,
    endless: usize,
}

/// What the threads share with who waits for them.
struct TriesShared {
    journal: Arc<dyn Journal>,
    workflows: Workflows,
    limits: Limits,
    state: Mutex<TriesState>,
    /// A run was tried.
    news: Notify,
}

struct TriesState {
    queue: VecDeque<RunSummary>,
    findings: Findings,
    /// No more come.
    is_last: bool,
    /// What each thread tries, and since when.
    trying: Vec<Option<(RunSummary, Timestamp)>>,
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

    fn tried(&self, run: &RunSummary) -> RunTried {
        let (story, started) = match story_of(&*self.journal, run.run) {
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
            // It stays with code that is there.
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
            trying: Vec::new(),
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

    /// Hands runs to the threads, as soon as they have room.
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
        self.until(|state| state.queue.is_empty() && state.trying.iter().all(Option::is_none))
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
            state.trying.push(None);
            state.trying.len() - 1
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

    /// Waits until that is so, and gives up meanwhile what takes too long.
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

    /// Tells those of which the replay takes too long, and has others go on in their place.
    fn give_up_endless(&mut self) -> Result<(), PreflightError> {
        let now = self.host.now();
        let mut given_up = 0;
        {
            let mut state = self.shared.lock();
            let TriesState { findings, trying, .. } = &mut *state;
            for tried in trying {
                let is_late = tried
                    .as_ref()
                    .is_some_and(|(_, since)| now.saturating_since(*since) >= self.config.run_time_max);
                if let Some((run, _)) = tried.take_if(|_| is_late) {
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

/// A thread that tries runs.
struct TryingThread {
    shared: Arc<TriesShared>,
    host: Arc<dyn Host>,
    number: usize,
}

impl Part for TryingThread {
    fn turn(&mut self, _now: Timestamp, _budget: usize) -> Next {
        for _ in 0..TAKEN_LEN {
            let run = {
                let mut state = self.shared.lock();
                let Some(run) = state.queue.pop_front() else {
                    return if state.is_last { Next::Stop } else { Next::Idle };
                };
                state.trying[self.number] = Some((run.clone(), self.host.now()));
                run
            };
            let tried = self.shared.tried(&run);
            let mut state = self.shared.lock();
            // It was given up, and another thread is in the place of this one.
            if state.trying[self.number]
                .take()
                .is_none_or(|(trying, _)| trying.run != run.run)
            {
                return Next::Stop;
            }
            state.findings.add(&run, tried);
            let is_low = state.queue.len() < QUEUED_LEN_MAX / 2;
            drop(state);
            if is_low {
                self.shared.news.notify_one();
            }
        }
        Next::Again
    }
}
