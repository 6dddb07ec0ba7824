//! Why a schedule was not made or changed.

use std::fmt;

use millrun_core::InstanceIdError;
use millrun_workflow::{PayloadError, TypedError};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::cron::CronError;
use crate::{CommandError, QueryError, RunError, StartError};

/// Why a schedule was not made, changed or asked. Nothing has changed, except perhaps with [`Run`](Self::Run) and
/// [`RunError::Stopped`] or [`RunError::Moved`]: then it is unknown, and the call may be repeated.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// The id of the schedule is empty or too long: the ids of its runs begin with it.
    #[error("the id of a schedule has 1 to {bytes_max} bytes, and this one {bytes}")]
    Id {
        /// Its length.
        bytes: usize,
        /// The bound, [`SCHEDULE_ID_BYTES_MAX`](crate::schedules::SCHEDULE_ID_BYTES_MAX).
        bytes_max: usize,
    },
    /// Its workflow cannot be started: the name or the input is not valid.
    #[error("the schedule could start no run")]
    Start(#[source] StartError),
    /// A cron line is not valid.
    #[error("the cron line {line:?} cannot be read")]
    Cron {
        /// The line.
        line: String,
        /// The reason.
        source: CronError,
    },
    /// There is no zone of this name.
    #[error(
        "there is no time zone {zone:?} in the zone data ({zone_data}): give a name of the IANA database, as Europe/Berlin"
    )]
    UnknownZone {
        /// The name.
        zone: String,
        /// The version of the zone data.
        zone_data: &'static str,
    },
    /// It has no cron line, interval or calendar.
    #[error("the schedule is never due: give it a cron line, an interval or a calendar")]
    NoTimes,
    /// It has too many cron lines, intervals and calendars.
    #[error(
        "the schedule has {len} cron lines, intervals and calendars, and may have {len_max}: make several schedules"
    )]
    TooManyTimes {
        /// How many.
        len: usize,
        /// The bound, [`SCHEDULE_TIMES_LEN_MAX`](crate::schedules::SCHEDULE_TIMES_LEN_MAX).
        len_max: usize,
    },
    /// Its bounds by time exclude each other.
    #[error("the schedule ends before it begins: give an end that is later than its beginning")]
    EmptyBounds,
    /// One of its calendars never matches, or it has no due time within its bounds from now on.
    #[error("the schedule is never due from now on: give other times, or wider bounds")]
    NeverDue,
    /// A setting has an invalid value.
    #[error("the {setting} of the schedule cannot be: {problem}")]
    Setting {
        /// Which.
        setting: &'static str,
        /// What is wrong, and what is allowed.
        problem: String,
    },
    /// There is a schedule with this id and another description: [`update`](crate::builders::Schedule::update) it, or choose
    /// another id.
    #[error("there is a schedule of this id that was described otherwise: update it, or choose another id")]
    Differs,
    /// There is no schedule with this id (any more).
    #[error("there is no schedule of this id")]
    NotFound,
    /// A backfill ends before it begins.
    #[error("the backfill ends before it begins")]
    EmptyBackfill,
    /// A backfill covers too many due times.
    #[error("the backfill covers more than {len_max} due times: ask for several, one after the other")]
    BackfillTooLong {
        /// The bound, [`BACKFILL_LEN_MAX`](crate::schedules::BACKFILL_LEN_MAX).
        len_max: u32,
    },
    /// As many backfills are under way as may be.
    #[error("{len_max} backfills of the schedule are under way: wait until one is done")]
    TooManyBackfills {
        /// The bound, [`BACKFILLS_LEN_MAX`](crate::schedules::BACKFILLS_LEN_MAX).
        len_max: usize,
    },
    /// The value of a request or an answer does not decode: another version of millrun may have the store.
    #[error("a value of the schedule could not be read")]
    Payload(#[from] PayloadError),
    /// The schedule was not reached.
    #[error(transparent)]
    Run(#[from] RunError),
}

impl ScheduleError {
    /// Whether the same call may succeed later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Run(error) => error.is_retryable(),
            Self::Start(error) => error.is_retryable(),
            Self::TooManyBackfills { .. } => true,
            _ => false,
        }
    }
}

/// Why a schedule has rejected a command, for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ScheduleRejection {
    NotFound,
    Differs,
    NeverDue,
    EmptyBackfill,
    BackfillTooLong,
    TooManyBackfills,
}

impl fmt::Display for ScheduleRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        ScheduleError::from(*self).fmt(f)
    }
}

impl TypedError for ScheduleRejection {}

impl From<ScheduleRejection> for ScheduleError {
    fn from(rejection: ScheduleRejection) -> Self {
        match rejection {
            ScheduleRejection::NotFound => Self::NotFound,
            ScheduleRejection::Differs => Self::Differs,
            ScheduleRejection::NeverDue => Self::NeverDue,
            ScheduleRejection::EmptyBackfill => Self::EmptyBackfill,
            ScheduleRejection::BackfillTooLong => Self::BackfillTooLong {
                len_max: super::BACKFILL_LEN_MAX,
            },
            ScheduleRejection::TooManyBackfills => Self::TooManyBackfills {
                len_max: super::BACKFILLS_LEN_MAX,
            },
        }
    }
}

impl From<CommandError<ScheduleRejection>> for ScheduleError {
    fn from(error: CommandError<ScheduleRejection>) -> Self {
        match error {
            CommandError::Rejected(rejection) => rejection.into(),
            CommandError::Payload(error) => Self::Payload(error),
            CommandError::Id(error) => Self::Run(RunError::Id(error)),
            CommandError::Start(error) => Self::Start(error),
            CommandError::Run(error) => Self::Run(error),
        }
    }
}

impl From<QueryError> for ScheduleError {
    fn from(error: QueryError) -> Self {
        match error {
            QueryError::Run(error) => Self::Run(error),
            QueryError::Payload(error) => Self::Payload(error),
            QueryError::Unanswered(unanswered) => Self::Run(RunError::History(unanswered.to_string())),
        }
    }
}

impl From<InstanceIdError> for ScheduleError {
    fn from(error: InstanceIdError) -> Self {
        Self::Run(RunError::Id(error))
    }
}
