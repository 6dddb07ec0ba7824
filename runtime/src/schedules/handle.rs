//! A handle to a schedule, by its id.

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
/// Dropping a future of its methods may or may not leave done what it asks for; what only reads changes nothing.
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

    /// Stops it from being due until it is [resumed](Self::resume); due times that have come by then and were not acted on
    /// are acted on when it is resumed. With a note of at most
    /// [1,024](super::SCHEDULE_NOTE_BYTES_MAX) bytes that is shown. Runs that it has started go on, and due times that wait
    /// for them follow. Paused again, the note is the new one.
    ///
    /// # Errors
    /// See [`ScheduleError`].
    pub async fn pause(&self, note: &str) -> Result<(), ScheduleError> {
        check_id(&self.id)?;
        check_note(note)?;
        Ok(self.run.call(PAUSE, note.to_owned()).await?)
    }

    /// Lets it be due again, from now on. Due times that had come before the pause and were not acted on are acted on now,
    /// within the catch-up window; what would have been due in between is not made up for, unless it is
    /// [backfilled](Self::backfill). One that is not paused is left as it is.
    ///
    /// # Errors
    /// See [`ScheduleError`].
    pub async fn resume(&self, note: &str) -> Result<(), ScheduleError> {
        check_id(&self.id)?;
        check_note(note)?;
        Ok(self.run.call(RESUME, note.to_owned()).await?)
    }

    /// Starts a run now, beside the due times, also if it is paused. Awaited, it gives the id of the run,
    /// `ID/TIME/trigger-NUMBER`, whether it starts now, waits, or is passed over, as the overlap policy says: that of the
    /// schedule, or [another](TriggerCall::overlap).
    pub const fn trigger(&self) -> TriggerCall<'_> {
        TriggerCall {
            schedule: self,
            overlap: None,
            request: None,
        }
    }

    /// Acts on the due times from the first of these times through the second as if they came now, one after the other, also if
    /// it is paused: 1,000 at most, and none that is still to come. The runs have the ids `ID/DUE-TIME/backfill-TIME`, with
    /// the time at which it was asked for. With a policy that buffers, the backfill goes on as room comes; with
    /// [`OverlapPolicy::Skip`] all that come while a run goes on are passed over. The policy is that of the schedule, or
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

    /// What it is, when it is due, and what it has done. What it says is durable.
    ///
    /// # Errors
    /// [`ScheduleError::NotFound`] if there is none. See [`ScheduleError`].
    pub async fn describe(&self) -> Result<ScheduleDescription, ScheduleError> {
        check_id(&self.id)?;
        let view = self.run.read(VIEW, ()).await?;
        ScheduleDescription::of(&self.id, view).ok_or(ScheduleError::NotFound)
    }

    /// Deletes it. Gives whether there was one. Runs that it has started go on; due times that wait for them are dropped.
    ///
    /// # Errors
    /// See [`ScheduleError`].
    pub async fn delete(&self) -> Result<bool, ScheduleError> {
        check_id(&self.id)?;
        Ok(self.run.delete().await?)
    }

    /// The schedule as it stands in the [list](Runtime::schedules). It is not woken.
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

/// A run that a schedule is to start now, once this is awaited. Made by [`ScheduleHandle::trigger`].
#[derive(Debug)]
#[must_use = "nothing is started until this is awaited"]
pub struct TriggerCall<'a> {
    schedule: &'a ScheduleHandle,
    overlap: Option<OverlapPolicy>,
    request: Option<String>,
}

impl TriggerCall<'_> {
    /// What is done if a run of the schedule goes on, in place of the policy of the schedule.
    pub const fn overlap(mut self, policy: OverlapPolicy) -> Self {
        self.overlap = Some(policy);
        self
    }

    /// Names the request, by 1 to 255 bytes of the caller's choice: asked again under the same name, it gives the same run, and
    /// starts none. The last 1,000 requests of a schedule are remembered.
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

/// Due times of the past that a schedule is to act on, once this is awaited. Made by [`ScheduleHandle::backfill`].
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
