//! Why a run's code does not run, and where it differs from the history.

use millrun_core::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Why a run's code does not run at the moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ParkReason {
    /// No workflow of this name is registered, or none in the version that the run needs.
    NotRegistered {
        /// The name.
        workflow: String,
        /// The version that the run needs.
        #[serde(default, skip_serializing_if = "super::is_zero")]
        version: u32,
        /// The versions of the workflow that are registered where this was found out, in order.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        registered: Vec<u32>,
    },
    /// The code panicked; it is brought back after a pause, until the limit is reached.
    Panicked {
        /// The panic's message.
        message: String,
        /// How many times in a row.
        count: u32,
    },
    /// The code does not fit the history.
    Nondeterminism(Box<Nondeterminism>),
    /// The code awaits something that neither an operation nor a signal will wake, or was touched from outside, or polls
    /// without end.
    Stuck {
        /// What was seen.
        message: String,
    },
    /// An operator paused it.
    Paused {
        /// Why.
        reason: String,
    },
    /// The history is twice as long as [`Limits::history_len_max`](crate::Limits::history_len_max). The run continues when
    /// that limit is raised.
    HistoryFull {
        /// The limit in events.
        len_max: u64,
    },
    /// Its start was [delayed](crate::Started::delayed_until): the code begins at that time, or when the run is resumed
    /// earlier.
    Delayed {
        /// That time.
        #[serde(rename = "until_us")]
        until: Timestamp,
    },
}

impl fmt::Display for ParkReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRegistered {
                workflow,
                version: 0,
                registered,
            } if registered.is_empty() => write!(f, "no workflow named {workflow:?} is registered"),
            Self::NotRegistered {
                workflow,
                version,
                registered,
            } => {
                write!(
                    f,
                    "version {version} of the workflow {workflow:?} is not registered"
                )?;
                match registered.split_last() {
                    None => Ok(()),
                    Some((last, [])) => write!(f, ": version {last} is"),
                    Some((last, others)) => {
                        let others: Vec<_> = others.iter().map(u32::to_string).collect();
                        write!(f, ": versions {} and {last} are", others.join(", "))
                    }
                }
            }
            Self::Panicked { message, count } => {
                write!(f, "the workflow panicked ({count} in a row): {message}")
            }
            Self::Nondeterminism(difference) => difference.fmt(f),
            Self::Stuck { message } => f.write_str(message),
            Self::Paused { reason } => write!(f, "it was paused: {reason}"),
            Self::Delayed { until } => write!(f, "its start is delayed until {until} (seconds since 1970)"),
            Self::HistoryFull { len_max } => write!(
                f,
                "the history has {len_max} events: raise the limit, and let the code end runs earlier"
            ),
        }
    }
}

/// Where the code differs from the history.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error(
    "the code does not fit the history: at event {sequence} the history has {recorded}, the code made {replayed}"
)]
pub struct Nondeterminism {
    /// The sequence of the first event that differs.
    pub sequence: u64,
    /// What the history holds there.
    pub recorded: String,
    /// What the code did instead.
    pub replayed: String,
}

impl Nondeterminism {
    /// The difference in two columns, for a terminal.
    ///
    /// ```
    /// use millrun_workflow::Nondeterminism;
    ///
    /// let difference = Nondeterminism {
    ///     sequence: 2,
    ///     recorded: "call of charge".into(),
    ///     replayed: "timer".into(),
    /// };
    /// assert_eq!(
    ///     difference.columns(),
    ///     "  event | recorded       | replayed\n      2 | call of charge | timer\n",
    /// );
    /// ```
    #[must_use]
    pub fn columns(&self) -> String {
        let width = self.recorded.chars().count().max("recorded".len());
        format!(
            "  event | {:width$} | replayed\n{:>7} | {:width$} | {}\n",
            "recorded", self.sequence, self.recorded, self.replayed
        )
    }
}
