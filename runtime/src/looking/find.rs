//! Finding runs: one filter for live and finished ones.
//!
//! ```text
//!   Runtime::find ─┬─► shards: live runs, the latest begun first, some in each turn ──► merged
//!                  └─► viewer, once there are no more of those: finished runs, the latest ended first
//! ```
//!
//! Invariants: no run is woken; a page delays a shard's turn at most for one step of a search; what is in a page is durable.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use millrun_core::{InstanceId, RunId, Timestamp};
use millrun_persistence::TimeRange;
use millrun_workflow::OutcomeKind;
use tokio::sync::oneshot;

use crate::inner::Inner;
use crate::mail::{FindLive, FoundLive, Request};
use crate::shard::StartKey;
use crate::{RunError, Runtime};

/// The longest page.
pub(crate) const PAGE_LEN_MAX: usize = 1_000;

/// How many searches among live runs are under way at a time; further callers wait.
pub(crate) const SEARCHES_MAX: usize = 16;

/// A filter for runs, see [`Runtime::find`]: all conditions that are set must hold. The default is all runs.
///
/// ```
/// use millrun::operating::{RunSearch, RunStatus};
///
/// let failed = RunSearch::new().workflow("order").status(RunStatus::Failed);
/// assert_eq!(failed.statuses, [RunStatus::Failed]);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunSearch {
    /// The name of the workflow that the run is of.
    pub workflow: Option<String>,
    /// Its status is one of these. If the list is empty, any status matches.
    pub statuses: Vec<RunStatus>,
    /// The prefix of its instance's id.
    pub id_prefix: String,
    /// When the run began, to the millisecond.
    pub started: TimeRange,
    /// When the run ended. If a bound is set, no live run is found.
    pub ended: TimeRange,
    /// Only runs of built-in workflows; otherwise only runs of the user's.
    pub(crate) is_of_own: bool,
}

impl RunSearch {
    /// All runs.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs of a built-in workflow.
    pub(crate) fn of_own(workflow: &str) -> Self {
        Self {
            is_of_own: true,
            ..Self::new().workflow(workflow)
        }
    }

    /// Only runs of this workflow.
    #[must_use]
    pub fn workflow(self, workflow: impl Into<String>) -> Self {
        let workflow = Some(workflow.into());
        Self { workflow, ..self }
    }

    /// Only live runs.
    pub(crate) fn live(self) -> Self {
        RunStatus::LIVE.into_iter().fold(self, Self::status)
    }

    /// Only runs that have ended.
    pub(crate) fn finished(self) -> Self {
        let statuses = RunStatus::ALL.into_iter();
        let finished = statuses.filter(|status| !RunStatus::LIVE.contains(status));
        finished.fold(self, Self::status)
    }

    /// Only runs with this status, or with the statuses of earlier calls.
    #[must_use]
    pub fn status(mut self, status: RunStatus) -> Self {
        // Each examined run is compared with all of them, so a request must not make them many by repetition.
        if !self.statuses.contains(&status) {
            self.statuses.push(status);
        }
        self
    }

    /// Only runs of instances whose ids begin so.
    #[must_use]
    pub fn id_prefix(self, id_prefix: impl Into<String>) -> Self {
        let id_prefix = id_prefix.into();
        Self { id_prefix, ..self }
    }

    /// Only runs that began then.
    #[must_use]
    pub fn started(self, started: TimeRange) -> Self {
        Self { started, ..self }
    }

    /// Only runs that ended then.
    #[must_use]
    pub fn ended(self, ended: TimeRange) -> Self {
        Self { ended, ..self }
    }

    /// Whether runs with this status match.
    pub(crate) fn has(&self, status: RunStatus) -> bool {
        self.statuses.is_empty() || self.statuses.contains(&status)
    }

    /// Whether all live runs match, by their status.
    pub(crate) fn has_all_live(&self) -> bool {
        RunStatus::LIVE.iter().all(|status| self.has(*status))
    }

    /// Whether the only live runs that match are parked.
    pub(crate) fn is_of_parked(&self) -> bool {
        let others = [RunStatus::Running, RunStatus::Delayed, RunStatus::NotRegistered];
        !others.iter().any(|status| self.has(*status))
    }

    fn may_be_live(&self) -> bool {
        self.ended == TimeRange::default() && RunStatus::LIVE.iter().any(|status| self.has(*status))
    }

    fn may_be_finished(&self) -> bool {
        OutcomeKind::ALL
            .iter()
            .any(|outcome| self.has(RunStatus::from(*outcome)))
    }

    /// As [`started`](Self::started), in whole milliseconds.
    pub(crate) fn started_millis(&self) -> TimeRange {
        let from = self.started.from.as_millis().saturating_mul(1_000);
        TimeRange {
            from: Timestamp::from_micros(from),
            until: self.started.until,
        }
    }
}

/// What a run does, or how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum RunStatus {
    /// It runs, or waits for something.
    Running,
    /// Its code does not run; its inputs are recorded.
    Parked,
    /// It is parked because an operator asked for it.
    Paused,
    /// Its start is [delayed](crate::builders::Start::delayed_by), and its time has not come.
    Delayed,
    /// No workflow of its name is registered; its inputs are recorded.
    NotRegistered,
    /// It ended with a value.
    Completed,
    /// It ended with an error.
    Failed,
    /// It ended with its answer to a request to cancel.
    Cancelled,
    /// It was terminated.
    Terminated,
    /// It was [out of time](crate::builders::Start::run_timeout).
    TimedOut,
    /// It continued as new.
    Continued,
}

impl RunStatus {
    /// All statuses, those of live runs first.
    pub const ALL: [Self; 11] = [
        Self::Running,
        Self::Parked,
        Self::Paused,
        Self::Delayed,
        Self::NotRegistered,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
        Self::Terminated,
        Self::TimedOut,
        Self::Continued,
    ];

    /// Those of live runs.
    const LIVE: [Self; 5] = [
        Self::Running,
        Self::Parked,
        Self::Paused,
        Self::Delayed,
        Self::NotRegistered,
    ];

    /// Its name for the outside, in lower case and with hyphens.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Parked => "parked",
            Self::Paused => "paused",
            Self::Delayed => "delayed",
            Self::NotRegistered => "not-registered",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Terminated => "terminated",
            Self::TimedOut => "timed-out",
            Self::Continued => "continued",
        }
    }

    /// The status of this [name](Self::name).
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }
}

impl From<OutcomeKind> for RunStatus {
    fn from(outcome: OutcomeKind) -> Self {
        match outcome {
            OutcomeKind::Completed => Self::Completed,
            OutcomeKind::Failed => Self::Failed,
            OutcomeKind::Cancelled => Self::Cancelled,
            OutcomeKind::Terminated => Self::Terminated,
            OutcomeKind::TimedOut => Self::TimedOut,
            OutcomeKind::Continued => Self::Continued,
        }
    }
}

/// A run that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunSummary {
    /// The id of its instance.
    pub id: InstanceId,
    /// The run.
    pub run: RunId,
    /// The name of its workflow.
    pub workflow: String,
    /// Its version of the workflow, if it is live.
    pub version: Option<u32>,
    /// Its status.
    pub status: RunStatus,
    /// When it began, in whole milliseconds.
    pub started_at: Timestamp,
    /// When it ended, if it has.
    pub ended_at: Option<Timestamp>,
}

/// A page of runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunsPage {
    /// Live runs, the latest begun first, then finished ones, the latest ended first.
    pub runs: Vec<RunSummary>,
    /// Where the next page begins; `None` if this is the last. A page may have fewer runs than asked for, even none, and
    /// still have a next one: for one page, a bounded number of records of finished runs is read.
    pub next: Option<RunCursor>,
    /// How many runs were skipped because their records are damaged or cannot be read, whatever their workflow and id:
    /// finished ones, and with the first of these also those that the store knows to be damaged, live or finished. A caller
    /// that reads page by page gets each counted once.
    pub unreadable: u64,
}

/// A place between two runs, where the next page begins. It can be written as text and read back. Its content is opaque, and
/// valid for one store and one filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunCursor(Place);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Behind this one among the live runs.
    Live(RunId),
    /// Behind this one among the finished runs, or before all of them.
    Finished(Option<RunId>),
}

impl RunCursor {
    /// Behind this run, which a search has found.
    pub(crate) fn behind(found: &RunSummary) -> Self {
        Self(match found.ended_at {
            Some(_) => Place::Finished(Some(found.run)),
            None => Place::Live(found.run),
        })
    }

    /// Before all finished runs.
    pub(crate) fn before_finished() -> Self {
        Self(Place::Finished(None))
    }

    pub(crate) fn is_among_live(&self) -> bool {
        matches!(self.0, Place::Live(_))
    }
}

impl fmt::Display for RunCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Place::Live(run) => write!(f, "l{run}"),
            Place::Finished(Some(run)) => write!(f, "f{run}"),
            Place::Finished(None) => f.write_str("f"),
        }
    }
}

impl FromStr for RunCursor {
    type Err = RunCursorError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let run = |digits: &str| {
            let is_id = digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            let bits = u128::from_str_radix(digits, 16).ok().filter(|_| is_id);
            bits.and_then(RunId::from_bits).ok_or(RunCursorError)
        };
        match text.split_at_checked(1) {
            Some(("l", digits)) => Ok(Self(Place::Live(run(digits)?))),
            Some(("f", "")) => Ok(Self(Place::Finished(None))),
            Some(("f", digits)) => Ok(Self(Place::Finished(Some(run(digits)?)))),
            _ => Err(RunCursorError),
        }
    }
}

/// The text is not a [cursor](RunCursor): use one from a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunCursorError;

impl fmt::Display for RunCursorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this is no cursor that a page of runs has given")
    }
}

impl std::error::Error for RunCursorError {}

impl Runtime {
    /// A page of the runs that match a filter, behind the cursor `after` (from the beginning, if there is none), of up to
    /// `len_max` runs, at least one and at most 1,000. Live runs come first, the latest begun first, then retained finished
    /// ones, the latest ended first. No run is woken.
    ///
    /// Runs of built-in workflows are not found, nor are live runs of partitions that this runtime does not own. A run that
    /// ends between two pages may be found twice, as a live one and as a finished one, even in one page. A cursor behind a
    /// finished run that is not retained any more leads to an empty last page: the runs that ended before it are not retained
    /// either.
    ///
    /// ```
    /// use millrun::operating::{RunSearch, RunStatus};
    /// # use millrun::{Runtime, Workflow, WorkflowContext, WorkflowError};
    /// # const DOUBLE: Workflow<u64, u64> = Workflow::named("double");
    /// # async fn double(_cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    /// #     Ok(number * 2)
    /// # }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let runtime = Runtime::volatile().register(DOUBLE, double).start().await?;
    /// runtime.start(DOUBLE, "order-1", 21).await?.result().await?;
    /// let filter = RunSearch::new().id_prefix("order-").status(RunStatus::Completed);
    /// let (mut ids, mut after) = (Vec::new(), None);
    /// loop {
    ///     let page = runtime.find(&filter, after, 100).await?;
    ///     ids.extend(page.runs.into_iter().map(|found| found.id));
    ///     after = page.next;
    ///     if after.is_none() {
    ///         break;
    ///     }
    /// }
    /// assert_eq!(ids[0].as_str(), "order-1");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the store cannot be read, or the runtime has stopped.
    ///
    /// # Cancel safety
    /// It only reads.
    pub async fn find(
        &self,
        filter: &RunSearch,
        after: Option<RunCursor>,
        len_max: usize,
    ) -> Result<RunsPage, RunError> {
        let len_max = len_max.clamp(1, PAGE_LEN_MAX);
        let mut page = RunsPage::default();
        let place = after.map(|after| after.0);
        let finished_after = match place {
            Some(Place::Finished(after)) => after,
            Some(Place::Live(_)) | None => {
                let before = match place {
                    Some(Place::Live(run)) => Some(run),
                    _ => None,
                };
                if filter.may_be_live() {
                    let (runs, next) = self.inner().find_live(filter, before, len_max).await?;
                    (page.runs, page.next) = (runs, next.map(|run| RunCursor(Place::Live(run))));
                    if page.next.is_some() {
                        return Ok(page);
                    }
                }
                None
            }
        };
        if !filter.may_be_finished() {
            return Ok(page);
        }
        if page.runs.len() == len_max {
            page.next = Some(RunCursor(Place::Finished(None)));
            return Ok(page);
        }
        let left = len_max - page.runs.len();
        let viewer = &self.inner().shared.reader;
        let found = self
            .inner()
            .view(viewer.find(filter.clone(), finished_after, left))
            .await?;
        page.runs.extend(found.runs);
        page.unreadable = found.unreadable;
        page.next = found.next.map(|run| RunCursor(Place::Finished(Some(run))));
        Ok(page)
    }
}

impl Inner {
    /// The latest live runs that match, and where the next page begins.
    async fn find_live(
        &self,
        filter: &RunSearch,
        before: Option<RunId>,
        len_max: usize,
    ) -> Result<(Vec<RunSummary>, Option<RunId>), RunError> {
        let _permit = self.search().await?;
        let filter = Arc::new(filter.clone());
        let mut answers = Vec::new();
        for door in self.doors.all() {
            let (reply, answer) = oneshot::channel();
            let find = FindLive {
                filter: Arc::clone(&filter),
                before: before.map(StartKey::of),
                len_max,
                reply: reply.into(),
            };
            self.push_at(door, Request::Find(Box::new(find))).await?;
            answers.push(answer);
        }
        let mut found = Vec::new();
        // If a shard has stopped early, the runs that it has not examined would belong in between.
        let mut reached = None;
        for answer in answers {
            let FoundLive {
                runs,
                reached: stopped,
            } = self.answered(answer).await?;
            reached = reached.max(stopped);
            found.extend(runs);
        }
        found.retain(|found| reached.is_none_or(|reached| StartKey::of(found.run) >= reached));
        found.sort_unstable_by_key(|found| std::cmp::Reverse(StartKey::of(found.run)));
        let next = match found.get(len_max..) {
            Some([_, ..]) => found.get(len_max - 1).map(|last| last.run),
            Some([]) | None => reached.map(StartKey::run),
        };
        found.truncate(len_max);
        Ok((found, next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_that_is_said_again_adds_nothing() {
        let said = [RunStatus::Failed, RunStatus::Parked, RunStatus::Failed];
        let filter = said.into_iter().fold(RunSearch::new(), RunSearch::status);
        assert_eq!(filter.statuses, [RunStatus::Failed, RunStatus::Parked]);
    }

    #[test]
    fn a_cursor_is_read_back_from_its_text_and_nothing_else_is() {
        let id: InstanceId = "a".parse().unwrap();
        let run = RunId::new(id.partition(), Timestamp::from_micros(5_000_000), 7);
        for place in [
            Place::Live(run),
            Place::Finished(None),
            Place::Finished(Some(run)),
        ] {
            let cursor = RunCursor(place);
            assert_eq!(cursor.to_string().parse(), Ok(cursor));
        }
        let broken = [
            "",
            "l",
            "x",
            "lé",
            "f0",
            "f+0000000000000000000000000000000",
            "lffffffffffffffffffffffffffffffff",
        ];
        for text in broken {
            assert_eq!(text.parse::<RunCursor>(), Err(RunCursorError), "{text}");
        }
    }

    #[test]
    fn a_status_is_read_back_from_its_name() {
        for status in RunStatus::ALL {
            assert_eq!(RunStatus::of_name(status.name()), Some(status));
        }
        assert_eq!(RunStatus::of_name("Running"), None);
    }
}
