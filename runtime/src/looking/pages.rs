//! A run's history page by page, durable events only.

use millrun_core::{RunId, Sequence, Timestamp};
use millrun_workflow::Event;
use tokio::sync::oneshot;

use crate::mail::{Changed, Request, Target};
use crate::{RunError, Runtime};

/// A part of a run's history, at most as long as [`Runtime::history`](crate::Runtime::history) was asked for.
///
/// The next page begins behind the last event of this one; see [`next`](Self::next). An event never changes, so pages that
/// are read one after another fit together, also while the run continues.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct HistoryPage {
    /// The run.
    pub run: RunId,
    /// The events, in order and without gaps.
    pub events: Vec<RecordedEvent>,
    /// The number of the run's last durable event.
    pub head: Sequence,
    /// Set if events between the requested one and the first of this page were removed, because a checkpoint made them
    /// unnecessary: the number before which there are none any more. An [archive](crate::store::Archive) has them, if there
    /// was one.
    pub trimmed_before: Option<Sequence>,
}

impl HistoryPage {
    /// The event behind which the next page begins; `None` if there is none so far: a run that has not ended gets more.
    #[must_use]
    pub fn next(&self) -> Option<Sequence> {
        let last = self.events.last()?.sequence;
        (last < self.head).then_some(last)
    }
}

/// One event of a history: when it was recorded, and what it says.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RecordedEvent {
    /// Its number: the first event of a run has 1.
    pub sequence: Sequence,
    /// When it was decided.
    pub at: Timestamp,
    /// What happened.
    pub event: Event,
}

impl Runtime {
    /// As [`history`](Self::history), but waits for an event behind `after` if there is none yet: so a growing history can be
    /// read to its end without polling. A page without events means that the run has ended and that `after` is its last event
    /// or later; a `len_max` of 0 counts as 1. The run is not woken, and a run that continues it is not read.
    ///
    /// ```
    /// use millrun::history::Sequence;
    /// use millrun::{RunError, RunId, Runtime};
    ///
    /// /// The labels of all events that a run ever has.
    /// async fn labels(runtime: &Runtime, run: RunId) -> Result<Vec<&'static str>, RunError> {
    ///     let (mut labels, mut after) = (Vec::new(), Sequence::ZERO);
    ///     loop {
    ///         let page = runtime.until_history(run, after, 100).await?;
    ///         let Some(last) = page.events.last() else {
    ///             return Ok(labels);
    ///         };
    ///         after = last.sequence;
    ///         labels.extend(page.events.iter().map(|recorded| recorded.event.label()));
    ///     }
    /// }
    /// # use millrun::{Workflow, WorkflowContext, WorkflowError};
    /// # const DOUBLE: Workflow<u64, u64> = Workflow::named("double");
    /// # async fn double(_cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    /// #     Ok(number * 2)
    /// # }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let runtime = Runtime::volatile().register(DOUBLE, double).start().await?;
    /// # let run = runtime.start(DOUBLE, "d", 21).await?;
    /// # assert_eq!(labels(&runtime, run.run_id().expect("a start gives a run")).await?, ["Started", "Completed"]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As of [`history`](Self::history), and [`RunError::TooManyWatchers`] when as many callers wait at the run as may
    /// ([`watchers_len_max`](crate::RuntimeConfig::watchers_len_max)).
    ///
    /// # Cancel safety
    /// It only reads. A caller that gives up makes room for another.
    pub async fn until_history(
        &self,
        run: RunId,
        after: Sequence,
        len_max: usize,
    ) -> Result<HistoryPage, RunError> {
        loop {
            let changed = self.changed(run).await?;
            let page = self.history(run, after, len_max.max(1)).await?;
            match changed {
                Some(changed) if page.events.is_empty() => self.inner().go_on(changed).await?,
                Some(_) | None => return Ok(page),
            }
        }
    }

    /// Completes when this run makes progress after this returned; `None` if it is not live, and everything that it recorded
    /// is durable.
    async fn changed(&self, run: RunId) -> Result<Option<Changed>, RunError> {
        let target = Target::Run(run);
        let (reply, answer) = oneshot::channel();
        let request = Request::Watch {
            target: target.clone(),
            reply: reply.into(),
        };
        match self.inner().ask(&target, request, answer).await {
            Ok(changed) => Ok(Some(changed)),
            Err(RunError::NotFound | RunError::Finished) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
