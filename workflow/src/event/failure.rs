//! How attempts, children and runs end without a value.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::RunTimeout;
use crate::{Payload, TimeoutKind, kind};

/// How an attempt failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ActivityFailure {
    /// It ended with an error of its own.
    Failed {
        /// The encoded error.
        error: Payload,
        /// The error's text, for people.
        message: String,
    },
    /// It ran out of time.
    TimedOut(TimeoutKind),
    /// It panicked.
    Panicked {
        /// With this message.
        message: String,
    },
    /// Its result or its error could not be encoded, or its input not decoded.
    Unreadable {
        /// The reason.
        message: String,
    },
}

impl ActivityFailure {
    /// The name of its [kind](crate::ErrorKind); `own` is the kind of the activity's own error.
    pub(crate) fn kind<'a>(&self, own: Option<&'a str>) -> Option<&'a str> {
        match self {
            Self::Failed { .. } => own,
            Self::TimedOut(TimeoutKind::StartToClose | TimeoutKind::Heartbeat) => Some(kind::TIMED_OUT),
            Self::Panicked { .. } => Some(kind::PANICKED),
            Self::TimedOut(TimeoutKind::ScheduleToStart | TimeoutKind::ScheduleToClose)
            | Self::Unreadable { .. } => None,
        }
    }
}

impl fmt::Display for ActivityFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed { message, .. } => f.write_str(message),
            Self::TimedOut(kind) => write!(f, "exceeded its {kind} timeout"),
            Self::Panicked { message } => write!(f, "panicked: {message}"),
            Self::Unreadable { message } => f.write_str(message),
        }
    }
}

/// Why a child gave no value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ChildFailure {
    /// It ended with an error of its own.
    Failed(RunFailure),
    /// It was asked to cancel, and ended with this error.
    Cancelled(RunFailure),
    /// It was ended from outside.
    Terminated {
        /// Why.
        reason: String,
    },
    /// It was [out of time](crate::Child::run_timeout).
    TimedOut(RunTimeout),
    /// It was not started, or its result is not retained any more.
    NotStarted {
        /// Why.
        message: String,
    },
}

/// Why a signal was not recorded in another instance's history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum SignalFailure {
    /// There is no such instance, or it finished so long ago that it is forgotten.
    NotFound,
    /// It has ended.
    Finished,
    /// The id belongs to an instance of this other workflow.
    OtherWorkflow {
        /// Its name.
        workflow: String,
    },
    /// A record of it is damaged, or its history cannot be read: its id stays taken, and it does not run.
    Quarantined {
        /// What is wrong.
        message: String,
    },
    /// It refuses the signal: it has as many unread signals as it may, say, or the value is larger than its payloads may be.
    Refused {
        /// Why.
        message: String,
    },
}

/// The error a run ended with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunFailure {
    /// The encoded error; without meaning if the code never ran.
    pub error: Payload,
    /// The error's text, for people.
    pub message: String,
    /// Whether it is the answer to a request to cancel.
    pub is_cancelled: bool,
}

impl fmt::Display for RunFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
