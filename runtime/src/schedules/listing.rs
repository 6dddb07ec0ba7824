//! The list of schedules.

use millrun_core::{RunId, Timestamp};

use super::deciding::SCHEDULE;
use crate::builtin::name_of;
use crate::looking::describe::{InstanceDescription, InstanceStatus};
use crate::looking::find::{RunCursor, RunSearch, RunStatus};
use crate::{RunError, Runtime};

/// A schedule in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScheduleSummary {
    /// Its id.
    pub id: String,
    /// Its run.
    pub run: RunId,
    /// The status of its run: a parked schedule is not due. Whether the schedule is paused is in its
    /// [description](super::ScheduleDescription).
    pub status: RunStatus,
    /// When it was made, in whole milliseconds.
    pub created_at: Timestamp,
}

/// A page of schedules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SchedulesPage {
    /// The latest made first.
    pub schedules: Vec<ScheduleSummary>,
    /// Where the next page begins; `None` if this is the last.
    pub next: Option<RunCursor>,
}

impl ScheduleSummary {
    pub(super) fn of(id: &str, described: &InstanceDescription) -> Option<Self> {
        let status = match described.status {
            InstanceStatus::Running => RunStatus::Running,
            InstanceStatus::Delayed => RunStatus::Delayed,
            InstanceStatus::Parked => RunStatus::Parked,
            InstanceStatus::NotRegistered => RunStatus::NotRegistered,
            InstanceStatus::Finished => return None,
        };
        Some(Self {
            id: id.to_owned(),
            run: described.run,
            status,
            created_at: described.run.started(),
        })
    }
}

impl Runtime {
    /// A page of the schedules behind the cursor `after` (from the beginning, if there is none), of up to `len_max`, at least
    /// one and at most 1,000. No run is woken.
    ///
    /// # Errors
    /// When the store cannot be read, or the runtime has stopped.
    ///
    /// # Cancel safety
    /// It only reads.
    pub async fn schedules(
        &self,
        after: Option<RunCursor>,
        len_max: usize,
    ) -> Result<SchedulesPage, RunError> {
        let mut search = RunSearch::of_own(SCHEDULE.name());
        for status in [
            RunStatus::Running,
            RunStatus::Parked,
            RunStatus::Paused,
            RunStatus::NotRegistered,
        ] {
            search = search.status(status);
        }
        let page = self.find(&search, after, len_max).await?;
        let schedules = page.runs.into_iter().filter_map(|found| {
            // An older store may have a user's instances under the name of the workflow.
            let id = name_of(SCHEDULE.name(), found.id.as_str())?.to_owned();
            Some(ScheduleSummary {
                id,
                run: found.run,
                status: found.status,
                created_at: found.started_at,
            })
        });
        Ok(SchedulesPage {
            schedules: schedules.collect(),
            next: page.next,
        })
    }
}
