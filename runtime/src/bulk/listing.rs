//! The list of bulks.

use millrun_core::{RunId, Timestamp};

use super::{BULK, BulkHandle};
use crate::builtin::name_of;
use crate::looking::describe::InstanceStatus;
use crate::looking::find::{RunCursor, RunSearch, RunStatus};
use crate::{ResultError, RunError, Runtime};

/// A bulk in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BulkSummary {
    /// The name under which it was started.
    pub name: String,
    /// Its run.
    pub run: RunId,
    /// Its status; a bulk that was stopped is cancelled.
    pub status: RunStatus,
    /// When it began, in whole milliseconds.
    pub started_at: Timestamp,
    /// When it ended, if it has.
    pub ended_at: Option<Timestamp>,
}

/// A page of bulks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BulksPage {
    /// Running bulks, the latest begun first, then ended bulks that are retained, the latest ended first.
    pub bulks: Vec<BulkSummary>,
    /// Where the next page begins; `None` if this is the last. A page may have fewer bulks than asked for, even none, and
    /// still have a next one, since bulks are found among all finished runs.
    pub next: Option<RunCursor>,
}

impl Runtime {
    /// A page of the bulks behind the cursor `after` (from the beginning, if there is none), of up to `len_max`, at least one
    /// and at most 1,000. No run is woken.
    ///
    /// # Errors
    /// When the store cannot be read, or the runtime has stopped.
    ///
    /// # Cancel safety
    /// It only reads.
    pub async fn bulks(&self, after: Option<RunCursor>, len_max: usize) -> Result<BulksPage, RunError> {
        let page = self.find(&RunSearch::of_own(BULK.name()), after, len_max).await?;
        let bulks = page.runs.into_iter().filter_map(|found| {
            // An older store may have a user's instances under the name of the workflow.
            let name = name_of(BULK.name(), found.id.as_str())?.to_owned();
            Some(BulkSummary {
                name,
                run: found.run,
                status: found.status,
                started_at: found.started_at,
                ended_at: found.ended_at,
            })
        });
        Ok(BulksPage {
            bulks: bulks.collect(),
            next: page.next,
        })
    }
}

impl BulkHandle {
    /// The bulk's entry in the [list](Runtime::bulks). Its run is not woken.
    ///
    /// # Errors
    /// When there is no such bulk (any more), or the runtime has stopped.
    pub async fn summary(&self) -> Result<BulkSummary, RunError> {
        let described = self.0.describe().await?;
        let status = match described.status {
            InstanceStatus::Running => RunStatus::Running,
            InstanceStatus::Delayed => RunStatus::Delayed,
            InstanceStatus::Parked => RunStatus::Parked,
            InstanceStatus::NotRegistered => RunStatus::NotRegistered,
            InstanceStatus::Finished => match self.0.result().await {
                Ok(_) => RunStatus::Completed,
                Err(ResultError::Cancelled(_)) => RunStatus::Cancelled,
                Err(ResultError::Terminated { .. }) => RunStatus::Terminated,
                Err(ResultError::TimedOut(_)) => RunStatus::TimedOut,
                Err(ResultError::Run(error)) => return Err(error),
                Err(_) => RunStatus::Failed,
            },
        };
        Ok(BulkSummary {
            name: self.name().to_owned(),
            run: described.run,
            status,
            started_at: described.run.started(),
            ended_at: described.ended_at,
        })
    }
}
