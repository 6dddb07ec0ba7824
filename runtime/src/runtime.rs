//! The runtime: the handle that its users hold.

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use millrun_broker::Broker;
use millrun_core::{Host, InstanceId, InstanceIdError, RunId, Sequence};
use millrun_persistence::FinishedRun;
use millrun_workflow::{Payload, PromiseToken, Workflow};
use serde::Serialize;
use tokio::sync::oneshot;

use crate::cluster::view::ClusterStatus;
use crate::inner::Inner;
use crate::looking::counts::RunCounts;
use crate::looking::describe::{InstanceDescription, InstanceSummary};
use crate::looking::durations::Durations;
use crate::looking::pages::HistoryPage;
use crate::looking::parts::{KillError, PartStatus};
use crate::looking::why::Why;
use crate::mail::{Latest, Request, Target, Tell, Wake};
use crate::opening::recovery::StartupReport;
use crate::upkeep::StoreHandle;
use crate::{RunError, RunHandle, StopCause, UntypedHandle};

/// Durable workflows, on the caller's tokio runtime and one file. A cheap clone.
///
/// # What ends it
/// - [`shutdown`](Self::shutdown) ends it gracefully.
/// - Dropping the last clone, handles included, is a crash: it loses nothing that was acknowledged, and releases the file.
/// - The end of the tokio runtime that it was started on: nothing can run any more. A caller that still holds a handle, on
///   another tokio runtime or on a plain thread, is told so; the file is released with the last handle. A current-thread
///   runtime that is not driven has not ended: everything waits until it is driven again.
/// - A failure of the journal, or of a part that cannot or must not be restarted.
///
/// Every call made after the end, and every call that waits for an answer then, gets `Stopped` with the [`StopCause`];
/// [`stopped`](Self::stopped) waits for it. Every end but the first two is logged once, at `ERROR`. The broker that the
/// runtime made is [closed](Broker::close) with it; one that it was [given](crate::RuntimeBuilder::broker) stays open.
#[derive(Clone)]
pub struct Runtime {
    inner: Arc<Inner>,
}

/// A [`Runtime`] handle that does not keep the runtime alive, for code that checks on it from time to time. A cheap clone.
#[derive(Clone)]
pub struct WeakRuntime {
    inner: Weak<Inner>,
}

/// Counts since the runtime was started, and present sizes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RuntimeStats {
    /// Runs started.
    pub started: u64,
    /// Runs ended.
    pub finished: u64,
    /// Instances that are alive.
    pub live: u64,
    /// Instances with their code in memory.
    pub hot: u64,
    /// Histories read to wake an instance.
    pub loads: u64,
    /// Instances that are parked.
    pub parked: u64,
    /// Events decided.
    pub events: u64,
    /// Turns of shards that lasted longer than [`turn_warn`](crate::RuntimeConfig::turn_warn).
    pub slow_turns: u64,
    /// Histories that got longer than [`history_len_warn`](crate::Limits::history_len_warn), counted once after each
    /// checkpoint.
    pub long_histories: u64,
    /// Runs whose histories checkpoints do not trim, because what must be kept of them is too large for a turn. A warning
    /// names each once in the life of a shard.
    pub untrimmed_histories: u64,
    /// Traced runs that have ended and whose spans a [feed](crate::Runtime::spans) has delivered.
    pub traced_runs_told: u64,
    /// Traced runs whose spans were not delivered, or not taken by an exporter: the feed was behind by more than
    /// [`queue_len_max`](crate::operating::SpanFeedConfig::queue_len_max), a history could not be read, or the collector did
    /// not take them. Runs that end while no feed is open are not counted.
    pub traced_runs_lost: u64,
    /// Finished runs that were replayed, as
    /// [`replay_check_every`](crate::RuntimeConfig::replay_check_every) says.
    pub replay_checks: u64,
    /// How many of these did not replay as they ran.
    pub replay_differences: u64,
    /// Values that replays encoded differently from how they were recorded, as code does that was changed or that is not
    /// deterministic. Every replay counts its own: of a run that is woken, of a finished one that is queried or
    /// [checked](crate::RuntimeConfig::replay_check_every). A warning names the workflow, at most once a minute.
    pub changed_values: u64,
    /// Runs that have moved to the newest [version](crate::Workflow::version) of their workflow.
    pub versions_changed: u64,
    /// Runs that were tried on the newest version of their workflow and do not fit it. A run that is read again after a later
    /// checkpoint is tried and counted again.
    pub versions_unfit: u64,
    /// Attempts of activities started.
    pub attempts: u64,
    /// Attempts of activities under way.
    pub attempts_running: u64,
    /// Durable subscriptions that have expired because
    /// [nobody used them](millrun_workflow::DurableTopic::subscription_idle_max). A warning names each.
    pub subscriptions_expired: u64,
    /// How often [waiting runs](millrun_workflow::DurableTopic) skipped a record of a durable topic because the part before
    /// its payload cannot be read, as in a record of a later release: it is not known whom the record is for. The record
    /// stays in its topic. Each read of it counts, and a warning names it.
    pub records_unreadable: u64,
    /// Each task queue, in the order of their names.
    pub queues: Vec<QueueStats>,
    /// The journal's counts and sizes.
    pub journal: millrun_persistence::Stats,
}

/// What runs and waits in a task queue.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueStats {
    /// Its name.
    pub name: String,
    /// Attempts under way.
    pub running_len: usize,
    /// The most attempts under way: [`activities_running_max`](crate::RuntimeConfig::activities_running_max), or
    /// [`queue_running_max`](crate::RuntimeConfig::queue_running_max) of this queue.
    pub running_max: usize,
    /// Activities that wait in its memory. Further ones may wait in the histories of their runs.
    pub waiting_len: usize,
    /// How many may wait there: [`task_queue_len_max`](crate::RuntimeConfig::task_queue_len_max).
    pub waiting_max: usize,
}

impl Runtime {
    pub(crate) fn new(inner: Inner) -> Self {
        Self {
            inner: Arc::new(inner),
        }
    }

    pub(crate) fn of(inner: Arc<Inner>) -> Self {
        Self { inner }
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// A handle to the latest run of an id, without checking that there is one. Each turn that does something for the handle
    /// checks that the run is of this workflow; if it is not, the call is refused as [`RunError::OtherWorkflow`].
    ///
    /// # Errors
    /// When `id` is no instance id.
    pub fn attach<I, O, E>(
        &self,
        workflow: Workflow<I, O, E>,
        id: &str,
    ) -> Result<RunHandle<O, E>, InstanceIdError> {
        self.latest(id, Some(workflow.name()))
    }

    /// As [`attach`](Self::attach), for an instance of any workflow: for operators, who know instances by their ids.
    ///
    /// # Errors
    /// When `id` is no instance id.
    pub fn attach_untyped(&self, id: &str) -> Result<UntypedHandle, InstanceIdError> {
        self.latest(id, None).map(UntypedHandle::new)
    }

    /// What a run does, or that it has ended, when only the run id is known: from a [cause](crate::workflow::Cause), say,
    /// whose own cause is included. Otherwise as [`RunHandle::describe`].
    ///
    /// ```
    /// use millrun::{RunError, Runtime};
    /// use millrun::operating::InstanceDescription;
    /// use millrun::workflow::Cause;
    ///
    /// /// All that led to a run, the latest first.
    /// async fn causes(runtime: &Runtime, of: &InstanceDescription) -> Result<Vec<Cause>, RunError> {
    ///     let mut causes = Vec::new();
    ///     let mut cause = of.cause;
    ///     while let Some(found) = cause {
    ///         causes.push(found);
    ///         cause = runtime.describe_run(found.run).await?.cause;
    ///     }
    ///     Ok(causes)
    /// }
    /// ```
    ///
    /// # Errors
    /// When there is no such run (also if it has ended and is not retained any more), or the runtime has stopped.
    pub async fn describe_run(&self, run: RunId) -> Result<InstanceDescription, RunError> {
        self.inner.describe(Target::Run(run), Wake::Never).await
    }

    /// Why a run does not go on, when only the run id is known. Otherwise as [`RunHandle::why`].
    ///
    /// # Errors
    /// As of [`describe_run`](Self::describe_run).
    ///
    /// # Cancel safety
    /// It only reads.
    pub async fn why_run(&self, run: RunId) -> Result<Why, RunError> {
        self.inner.why(Target::Run(run), Wake::Never).await
    }

    /// A handle to the run in a [description](InstanceDescription), and to the run in which it continues, whatever its
    /// workflow; the store is not asked. So the run of a description, or one of which only the run id is known, can be waited
    /// for or signalled, also when another run has taken its id since.
    ///
    /// ```
    /// # use millrun::{Runtime, Workflow, WorkflowContext, WorkflowError};
    /// # const DOUBLE: Workflow<u64, u64> = Workflow::named("double");
    /// # async fn double(_cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    /// #     Ok(number * 2)
    /// # }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let runtime = Runtime::volatile().register(DOUBLE, double).start().await?;
    /// # let run = runtime.start(DOUBLE, "d", 21).await?.run_id().expect("a start gives a run");
    /// let described = runtime.describe_run(run).await?;
    /// let result = runtime.attach_described(&described).result().await?;
    /// assert_eq!(result.decode::<u64>()?, 42);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn attach_described(&self, described: &InstanceDescription) -> UntypedHandle {
        let (id, target) = (described.id.clone(), Target::Run(described.run));
        UntypedHandle::new(RunHandle::new(Arc::clone(&self.inner), id, target))
    }

    fn latest<O, E>(
        &self,
        id: &str,
        workflow: Option<&'static str>,
    ) -> Result<RunHandle<O, E>, InstanceIdError> {
        let id = InstanceId::new(id)?;
        let target = Target::Latest(Arc::new(Latest {
            id: id.clone(),
            workflow: workflow.map(Into::into),
        }));
        Ok(RunHandle::new(Arc::clone(&self.inner), id, target))
    }

    /// Keeps a [promise](crate::WorkflowContext::promise): gives it its value. Durable when this returns.
    ///
    /// # Errors
    /// [`InputRefused::Stale`](crate::InputRefused::Stale) when it is already kept or broken or was given up,
    /// [`RunError::Finished`] when its run has ended; see [`RunError`].
    pub async fn keep_promise<T: Serialize>(&self, token: PromiseToken, value: T) -> Result<(), RunError> {
        self.end_promise(token, Ok(Payload::encode(&value)?)).await
    }

    /// Breaks a [promise](crate::WorkflowContext::promise): gives it an error. Durable when this returns.
    ///
    /// # Errors
    /// As [`keep_promise`](Self::keep_promise).
    pub async fn break_promise(
        &self,
        token: PromiseToken,
        message: impl Into<String>,
    ) -> Result<(), RunError> {
        self.end_promise(token, Err(message.into())).await
    }

    async fn end_promise(&self, token: PromiseToken, end: Result<Payload, String>) -> Result<(), RunError> {
        let target = Target::Run(token.run());
        let (reply, answer) = oneshot::channel();
        let what = Tell::EndPromise {
            operation: token.operation(),
            end,
        };
        let message = Request::Tell {
            target: target.clone(),
            what,
            reply: reply.into(),
        };
        match self.inner.ask(&target, message, answer).await {
            Err(RunError::NotFound) => {
                self.inner.finished_standing(target).await?;
                Err(RunError::Finished)
            }
            answer => answer,
        }
    }

    /// Up to `len_max` live instances in the order of their ids, starting after `after`. Instances whose workflow is not
    /// registered are included, those of millrun's own workflows are not.
    ///
    /// # Errors
    /// When the runtime has stopped.
    pub async fn list(
        &self,
        after: Option<&InstanceId>,
        len_max: usize,
    ) -> Result<Vec<InstanceSummary>, RunError> {
        let _permit = self.inner.search().await?;
        let mut all = Vec::new();
        for door in self.inner.doors.all() {
            let (reply, answer) = oneshot::channel();
            let question = Request::List {
                after: after.cloned(),
                len_max,
                reply: reply.into(),
            };
            all.extend(self.inner.ask_at(door, question, answer).await?);
        }
        all.sort_by(|a, b| a.id.cmp(&b.id));
        all.truncate(len_max);
        Ok(all)
    }

    /// Up to `len_max` retained finished runs, the earliest ended first, starting after the run `after`. Runs of millrun's
    /// own workflows are not included, nor are those with a damaged record: [`find`](Self::find) counts these.
    ///
    /// # Errors
    /// When the store cannot be read, or the runtime has stopped.
    ///
    /// # Cancel safety
    /// It only reads.
    pub async fn list_finished(
        &self,
        after: Option<RunId>,
        len_max: usize,
    ) -> Result<Vec<FinishedRun>, RunError> {
        let viewer = &self.inner.shared.reader;
        let (mut listed, mut after) = (Vec::new(), after);
        loop {
            let left = len_max - listed.len();
            let page = self.inner.view(viewer.list_finished(after, left)).await?;
            after = page.reached.or(after);
            listed.extend(page.runs);
            if page.is_last || listed.len() == len_max {
                return Ok(listed);
            }
        }
    }

    /// A page of the history of a run, live or finished and retained: the events after `after` ([`Sequence::ZERO`] for the
    /// beginning), at most `len_max` of them, and at most
    /// [`history_page_bytes_max`](crate::RuntimeConfig::history_page_bytes_max) bytes unless a single event is larger. It
    /// holds what is durable: the run is not woken, and only other observers can be delayed.
    ///
    /// ```
    /// use millrun::history::Sequence;
    /// # use millrun::{Runtime, Workflow, WorkflowContext, WorkflowError};
    /// # const DOUBLE: Workflow<u64, u64> = Workflow::named("double");
    /// # async fn double(_cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    /// #     Ok(number * 2)
    /// # }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let runtime = Runtime::volatile().register(DOUBLE, double).start().await?;
    /// let run = runtime.start(DOUBLE, "d", 21).await?;
    /// run.result().await?;
    /// let run = run.describe().await?.run;
    /// let (mut labels, mut after) = (Vec::new(), Some(Sequence::ZERO));
    /// while let Some(behind) = after {
    ///     let page = runtime.history(run, behind, 100).await?;
    ///     labels.extend(page.events.iter().map(|recorded| recorded.event.label()));
    ///     after = page.next();
    /// }
    /// assert_eq!(labels, ["Started", "Completed"]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`RunError::NotFound`] when there is no such run, [`RunError::Expired`] when it is not retained any more,
    /// [`RunError::Read`] and [`RunError::History`] when one of its records is damaged; when the runtime has stopped.
    ///
    /// # Cancel safety
    /// It only reads.
    pub async fn history(
        &self,
        run: RunId,
        after: Sequence,
        len_max: usize,
    ) -> Result<HistoryPage, RunError> {
        let viewer = &self.inner.shared.reader;
        self.inner.view(viewer.history(run, after, len_max)).await
    }

    /// The topic broker, which the runtime's own parts use too: tasks travel on `millrun.tasks.<queue>`, several in an
    /// envelope (another listener without room misses them), reports on `millrun.reports.<shard>`. Names that begin with
    /// `millrun.` belong to the runtime; all others are free to use. Topics are in memory.
    #[must_use]
    pub fn broker(&self) -> &Broker {
        &self.inner.broker
    }

    /// The host that the runtime runs on: its clock, its random numbers, its tasks. Code beside the runtime that uses it for
    /// waiting is driven by a [seeded host](crate::RuntimeBuilder::host) just as the runtime is.
    #[must_use]
    pub fn host(&self) -> &Arc<dyn Host> {
        &self.inner.shared.host
    }

    /// What was found in the store when it was opened.
    #[must_use]
    pub fn startup_report(&self) -> &StartupReport {
        &self.inner.report
    }

    /// The operations on the file of a runtime that was [opened by path](Self::open), while it runs: back up, export, verify,
    /// compact. `None` if the runtime keeps everything in memory or was given a [journal](crate::RuntimeBuilder::journal),
    /// which its owner can ask directly.
    #[must_use]
    pub fn store(&self) -> Option<StoreHandle> {
        StoreHandle::of(&self.inner)
    }

    /// How many runs of each workflow there are, and what they do or how they ended since the runtime was started. It is
    /// always counted, so a call only reads it: it counts what shards have decided, which becomes durable a little later.
    #[must_use]
    pub fn counts(&self) -> RunCounts {
        self.inner.shared.counts()
    }

    /// How long runs, attempts, waits in task queues and commits have taken. The first call starts the recording, for as long
    /// as the runtime lives. Nothing is recorded before, and no extra clock is read: the times are those of turns and events,
    /// so a duration is as exact as a turn is short.
    ///
    /// ```
    /// # use millrun::{Runtime, Workflow, WorkflowContext, WorkflowError};
    /// # const DOUBLE: Workflow<u64, u64> = Workflow::named("double");
    /// # async fn double(_cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    /// #     Ok(number * 2)
    /// # }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let runtime = Runtime::volatile().register(DOUBLE, double).start().await?;
    /// assert!(runtime.durations().runs.is_empty());
    /// runtime.start(DOUBLE, "d", 21).await?.result().await?;
    /// let durations = runtime.durations();
    /// assert_eq!(durations.runs[0].name, "double");
    /// assert_eq!(durations.runs[0].histogram.len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn durations(&self) -> Durations {
        self.inner.shared.durations.told()
    }

    /// A handle that does not keep the runtime alive.
    #[must_use]
    pub fn downgrade(&self) -> WeakRuntime {
        WeakRuntime {
            inner: Arc::downgrade(&self.inner),
        }
    }

    /// Counts and sizes.
    #[must_use]
    pub fn stats(&self) -> RuntimeStats {
        let counters = &self.inner.shared.counters;
        let pools = &self.inner.shared.pools;
        let mut queues: Vec<_> = self.inner.shared.queue_stats().collect();
        queues.sort_by(|one, other| one.name.cmp(&other.name));
        let (traced_runs_told, traced_runs_lost) = self.inner.shared.traced_ends.told_and_lost();
        RuntimeStats {
            traced_runs_told,
            traced_runs_lost,
            started: counters.started.load(Ordering::Relaxed),
            finished: counters.finished.load(Ordering::Relaxed),
            live: counters.live.load(Ordering::Relaxed),
            hot: counters.hot.load(Ordering::Relaxed),
            loads: counters.loads.load(Ordering::Relaxed),
            parked: counters.parked.load(Ordering::Relaxed),
            events: counters.events.load(Ordering::Relaxed),
            slow_turns: self.inner.shared.watch.slow_len(),
            long_histories: counters.long_histories.load(Ordering::Relaxed),
            untrimmed_histories: counters.untrimmed_histories.load(Ordering::Relaxed),
            replay_checks: counters.replay_checks.load(Ordering::Relaxed),
            replay_differences: counters.replay_differences.load(Ordering::Relaxed),
            changed_values: self.inner.shared.changed_values.len(),
            versions_changed: self.inner.shared.trials.moved_len(),
            versions_unfit: self.inner.shared.trials.unfit_len(),
            attempts: pools.iter().map(|pool| pool.started_len() as u64).sum(),
            attempts_running: pools.iter().map(|pool| pool.running_len() as u64).sum(),
            subscriptions_expired: self.inner.shared.durable.subscriptions.expired_len(),
            records_unreadable: counters.unreadable_records.load(Ordering::Relaxed),
            queues,
            journal: self.inner.journal.stats(),
        }
    }

    /// The parts of the runtime and how often each was restarted: the journal, then in the order of their names the
    /// supervised [actors](Self::supervise), the pool of each task queue, the lanes of the reader, the shards, the timers,
    /// the viewer (which reads for observers), the parts that watch the nodes of a shared store and send its beats, and the
    /// watcher, which exists unless [`turn_warn`](crate::RuntimeConfig::turn_warn) is zero. Without the journal or the timers
    /// the runtime stops; the others are restarted.
    #[must_use]
    pub fn parts(&self) -> Vec<PartStatus> {
        self.inner.tree.status()
    }

    /// The nodes that have the store open, and the owner of each partition, as of the last look at the store, at most about a
    /// quarter of a second ago if it answers; `None` for a store that this process has to itself.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runtime = millrun::Runtime::volatile().start().await?;
    /// assert!(runtime.cluster().is_none());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn cluster(&self) -> Option<ClusterStatus> {
        self.inner.shared.cluster_status()
    }

    /// Waits for the next successful look at the nodes, and returns it as [`cluster`](Self::cluster); `None` for a store that
    /// this process has to itself, and when the runtime stops.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn cluster_looked(&self) -> Option<ClusterStatus> {
        let cluster = self.inner.shared.cluster.as_ref()?;
        tokio::select! {
            () = cluster.looked() => self.inner.shared.cluster_status(),
            _ = self.inner.stop.stopped() => None,
        }
    }

    /// Kills a part of the runtime by its [name](PartStatus::name), as if it had failed: it is restarted from what is
    /// durable, and counts as a failure towards [`restarts_max`](crate::RuntimeConfig::restarts_max). For testing the effects
    /// of a failure.
    ///
    /// What happens to parts is published on the topic `millrun.parts` as [`PartEvent`](crate::operating::PartEvent)s.
    ///
    /// # Errors
    /// See [`KillError`].
    pub fn kill(&self, part: &str) -> Result<(), KillError> {
        self.inner.tree.kill(part)
    }

    /// Why the runtime has stopped; `None` while it runs, and until a [shutdown](Self::shutdown) is complete.
    #[must_use]
    pub fn stop_cause(&self) -> Option<StopCause> {
        self.inner.settled_cause()
    }

    /// Waits until the runtime has stopped, and returns why: a [shutdown](Self::shutdown), the drop of its last handle, or a
    /// failure, see [`StopCause`]. Ready at once if it has stopped already. Any number of tasks may wait, on any executor;
    /// the future does not keep the runtime alive.
    ///
    /// ```
    /// # use millrun::{Runtime, StopCause};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runtime = Runtime::volatile().start().await?;
    /// let stopped = runtime.stopped();
    /// runtime.shutdown().await?;
    /// assert!(matches!(stopped.await, StopCause::Shutdown));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub fn stopped(&self) -> impl Future<Output = StopCause> + Send + 'static {
        self.inner.stop.stopped()
    }
}

impl WeakRuntime {
    /// The runtime, unless its last handle has been dropped.
    #[must_use]
    pub fn upgrade(&self) -> Option<Runtime> {
        self.inner.upgrade().map(Runtime::of)
    }
}

impl fmt::Debug for WeakRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WeakRuntime")
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime")
            .field("stop_cause", &self.stop_cause())
            .finish_non_exhaustive()
    }
}
