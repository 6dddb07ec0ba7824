//! Handles to schedules.

use std::fmt;
use std::future::IntoFuture;

use futures_util::future::BoxFuture;
use millrun_core::Timestamp;

use super::deciding::{BACKFILL, BackfillAsked, PAUSE, RESUME, SCHEDULE, TRIGGER, VIEW};
use super::state::ScheduleState;
use super::{OverlapPolicy, ScheduleDescription, ScheduleError, ScheduleSummary, check_id, check_note};
use crate::builders::EntityCall;
use crate::builtin::id_of;
use crate::{EntityHandle, RunError, Runtime};

/// A schedule. A cheap clone; it keeps the runtime alive.
///
/// # Cancel safety
/// If a future of a changing method is dropped, the change may be made or not; reading methods change nothing.
#[derive(Clone)]
pub struct ScheduleHandle {
    id: String,
    run: EntityHandle<ScheduleState>,
    runtime: Runtime,
}

impl fmt::Debug for ScheduleHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScheduleHandle")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl ScheduleHandle {
    pub(super) fn new(runtime: &Runtime, id: &str) -> Self {
        Self {
            id: id.to_owned(),
            run: runtime.entity(SCHEDULE, id),
            runtime: runtime.clone(),
        }
    }

    pub(super) const fn run(&self) -> &EntityHandle<ScheduleState> {
        &self.run
    }

    /// The id of the schedule.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Pauses it until it is [resumed](Self::resume). Due times that have come by then and were not used are used at the
    /// resume. The note, of at most [1,024](super::SCHEDULE_NOTE_BYTES_MAX) bytes, is shown. Runs that it has started
    /// continue, and due times that wait for them follow. A second pause replaces the note.
    ///
    /// # Errors
    /// See [`ScheduleError`].
    pub async fn pause(&self, note: &str) -> Result<(), ScheduleError> {
        check_id(&self.id)?;
        check_note(note)?;
        Ok(self.run.call(PAUSE, note.to_owned()).await?)
    }

    /// Resumes it from now on. Due times that had come before the pause and were not used are used now, within the catch-up
    /// window; those of the pause are not made up for, unless they are [backfilled](Self::backfill). A schedule that is not
    /// paused is not changed.
    ///
    /// # Errors
    /// See [`ScheduleError`].
    pub async fn resume(&self, note: &str) -> Result<(), ScheduleError> {
        check_id(&self.id)?;
        check_note(note)?;
        Ok(self.run.call(RESUME, note.to_owned()).await?)
    }

    /// Starts a run now, in addition to the due times, also if the schedule is paused. The result has the id of the run,
    /// `ID/TIME/trigger-NUMBER`, and whether it starts now, waits, or is skipped, by the overlap policy: that of the
    /// schedule, or [another](TriggerCall::overlap).
    pub const fn trigger(&self) -> TriggerCall<'_> {
        TriggerCall {
            schedule: self,
            overlap: None,
            request: None,
        }
    }

    /// Uses the due times from the first of these times through the second as if they came now, one after the other, also if
    /// the schedule is paused: at most 1,000, and no future ones. The runs have the ids `ID/DUE-TIME/backfill-TIME`, with the
    /// time of the request. With a policy that buffers, the backfill continues as there is room; with [`OverlapPolicy::Skip`]
    /// all that come while a run is going on are skipped. The policy is that of the schedule, or
    /// [another](BackfillCall::overlap).
    pub const fn backfill(&self, from: Timestamp, through: Timestamp) -> BackfillCall<'_> {
        BackfillCall {
            schedule: self,
            from,
            through,
            overlap: None,
            request: None,
        }
    }

    /// Its settings, its due times, and its results, all of them durable.
    ///
    /// # Errors
    /// [`ScheduleError::NotFound`] if there is none. See [`ScheduleError`].
    pub async fn describe(&self) -> Result<ScheduleDescription, ScheduleError> {
        check_id(&self.id)?;
        let view = self.run.read(VIEW, ()).await?;
        ScheduleDescription::of(&self.id, view).ok_or(ScheduleError::NotFound)
    }

    /// Deletes it. Returns whether it existed. Runs that it has started continue; due times that wait for them are dropped.
    ///
    /// # Errors
    /// See [`ScheduleError`].
    pub async fn delete(&self) -> Result<bool, ScheduleError> {
        check_id(&self.id)?;
        Ok(self.run.delete().await?)
    }

    /// Its entry in the [list](Runtime::schedules). Its run is not woken.
    ///
    /// # Errors
    /// [`ScheduleError::NotFound`] if there is none. See [`ScheduleError`].
    pub async fn summary(&self) -> Result<ScheduleSummary, ScheduleError> {
        check_id(&self.id)?;
        let id = id_of(SCHEDULE.name(), &self.id);
        let described = self.runtime.attach_untyped(&id)?.describe().await;
        match described {
            Ok(described) => ScheduleSummary::of(&self.id, &described).ok_or(ScheduleError::NotFound),
            Err(RunError::NotFound | RunError::Expired) => Err(ScheduleError::NotFound),
            Err(error) => Err(error.into()),
        }
    }
}

/// A trigger in preparation, which starts a run when it is awaited. Made by [`ScheduleHandle::trigger`].
#[derive(Debug)]
#[must_use = "nothing is started until this is awaited"]
pub struct TriggerCall<'a> {
    schedule: &'a ScheduleHandle,
    overlap: Option<OverlapPolicy>,
    request: Option<String>,
}

impl TriggerCall<'_> {
    /// What happens if a run of the schedule is going on, in place of the schedule's own policy.
    pub const fn overlap(mut self, policy: OverlapPolicy) -> Self {
        self.overlap = Some(policy);
        self
    }

    /// Names the request, with 1 to 255 bytes of the caller's choice: a repetition under the same name returns the same run,
    /// and starts none. The last 1,000 requests of a schedule are remembered.
    pub fn request(mut self, id: impl Into<String>) -> Self {
        self.request = Some(id.into());
        self
    }
}

impl<'a> IntoFuture for TriggerCall<'a> {
    type Output = Result<String, ScheduleError>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            check_id(&self.schedule.id)?;
            let call = self.schedule.run.call(TRIGGER, self.overlap);
            Ok(named(call, self.request).await?)
        })
    }
}

/// A backfill in preparation, which is made when it is awaited. Made by [`ScheduleHandle::backfill`].
#[derive(Debug)]
#[must_use = "nothing is started until this is awaited"]
pub struct BackfillCall<'a> {
    schedule: &'a ScheduleHandle,
    from: Timestamp,
    through: Timestamp,
    overlap: Option<OverlapPolicy>,
    request: Option<String>,
}

impl BackfillCall<'_> {
    /// As [`TriggerCall::overlap`].
    pub const fn overlap(mut self, policy: OverlapPolicy) -> Self {
        self.overlap = Some(policy);
        self
    }

    /// As [`TriggerCall::request`].
    pub fn request(mut self, id: impl Into<String>) -> Self {
        self.request = Some(id.into());
        self
    }
}

impl<'a> IntoFuture for BackfillCall<'a> {
    type Output = Result<(), ScheduleError>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            check_id(&self.schedule.id)?;
            let asked = BackfillAsked {
                from_us: self.from.as_micros(),
                through_us: self.through.as_micros(),
                overlap: self.overlap,
            };
            let call = self.schedule.run.call(BACKFILL, asked);
            Ok(named(call, self.request).await?)
        })
    }
}

/// The call under a request, if there is one.
fn named<A, E>(call: EntityCall<'_, A, E>, request: Option<String>) -> EntityCall<'_, A, E>
where
    A: serde::de::DeserializeOwned,
    E: millrun_workflow::TypedError,
{
    match request {
        Some(request) => call.request(request),
        None => call,
    }
}
