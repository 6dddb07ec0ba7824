//! What the code wants done, complete enough to do it from the history alone, and the checkpoint from which the code begins
//! again.

use std::time::Duration;

use millrun_core::{Cause, InstanceId, Sequence, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Name, OperationId, ParentClose, RecordFilter, RecordTexts, StartTimeouts};
use crate::{Payload, Retry, micros};

/// A call of an activity, complete enough to run it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ActivityScheduled {
    /// The call.
    pub operation: OperationId,
    /// The activity's name.
    pub activity: Name,
    /// The task queue it waits in.
    pub queue: Name,
    /// The argument.
    pub input: Payload,
    /// When to try again.
    pub retry: Retry,
    /// When to try again after an error of a certain [kind](crate::ErrorKind), by its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_on: Option<Box<[(Name, Retry)]>>,
    /// How long one attempt may take.
    #[serde(rename = "start_to_close_us", with = "micros")]
    pub start_to_close: Duration,
    /// How long an attempt may wait in its queue, if that is limited.
    #[serde(
        rename = "schedule_to_start_us",
        with = "micros::optional",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub schedule_to_start: Option<Duration>,
    /// How long all attempts and their pauses may take together, if that is limited.
    #[serde(
        rename = "schedule_to_close_us",
        with = "micros::optional",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub schedule_to_close: Option<Duration>,
    /// How long an attempt may be silent, if that is limited.
    #[serde(
        rename = "heartbeat_us",
        with = "micros::optional",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub heartbeat: Option<Duration>,
    /// The owner's epoch at the decision, from which later attempt numbers follow.
    pub epoch: u64,
}

impl ActivityScheduled {
    /// The retry policy after an error of this kind; `None` if there is no further attempt.
    pub(crate) fn retry_of(&self, kind: Option<&str>, is_retryable: bool) -> Option<&Retry> {
        let by_kind = self.retry_on.iter().flatten();
        let by_kind = kind.and_then(|kind| by_kind.into_iter().find(|(name, _)| name == kind));
        // The call's policy for a kind overrides what the error says.
        by_kind
            .map(|(_, retry)| retry)
            .or_else(|| is_retryable.then_some(&self.retry))
    }
}

/// A call of a child workflow, complete enough to start it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChildScheduled {
    /// The call.
    pub operation: OperationId,
    /// The workflow's name.
    pub workflow: Name,
    /// The id of the instance.
    pub id: InstanceId,
    /// The argument.
    pub input: Payload,
    /// What happens to it when its parent does not wait for it any more.
    pub on_close: ParentClose,
    /// The earliest time that the child sees, if its parent's time is ahead of the host's.
    #[serde(rename = "not_before_us", default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// How long it may take, if that is bounded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeouts: Option<Box<StartTimeouts>>,
}

/// A value to be published, complete enough to do so.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PublishScheduled {
    /// The publish.
    pub operation: OperationId,
    /// The topic.
    pub topic: Name,
    /// The value.
    pub value: Payload,
    /// The texts of the record; `None` if none is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub texts: Option<Box<RecordTexts>>,
}

/// A signal to be sent to another instance, complete enough to do so.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SignalScheduled {
    /// The operation.
    pub operation: OperationId,
    /// The workflow that the instance must have begun as.
    pub workflow: Name,
    /// The id of the instance.
    pub id: InstanceId,
    /// The name of the signal.
    pub name: Name,
    /// What it carries.
    pub value: Payload,
    /// The call of the child that it is for, if the code signals a child by its [handle](crate::ChildHandle): an instance that
    /// is not this child does not get it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<OperationId>,
}

/// A wait for a record of a durable topic, complete enough to look for the record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiveScheduled {
    /// The wait.
    pub operation: OperationId,
    /// The topic.
    pub topic: Name,
    /// Only a record that meets this filter.
    #[serde(default)]
    pub filter: RecordFilter,
    /// Only records behind this one, the last that the run has taken with this filter. `None` if it has taken none: then the
    /// record must have been appended since `since`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind: Option<Sequence>,
    /// Appended at this time or later; `None` for the time at which the run began.
    #[serde(rename = "since_us", default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

/// A record of a durable topic as a run gets it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RawRecord {
    /// Its number within its topic.
    pub sequence: Sequence,
    /// When it was appended, by the clock of its writer.
    #[serde(rename = "time_us")]
    pub time: Timestamp,
    /// Its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Box<str>>,
    /// The publisher's name for the process or group that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation: Option<Box<str>>,
    /// The run, and the operation of it, that has published it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// What it carries.
    pub value: Payload,
}

/// A run's place in a durable topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakenThrough {
    /// The topic.
    pub topic: Name,
    /// Among the records that meet this filter.
    #[serde(default)]
    pub filter: RecordFilter,
    /// The last one that the run has taken.
    pub sequence: Sequence,
}

/// The outcome of a publish, as far as its run knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PublishOutcome {
    /// Every subscription has taken it, or dropped it by its policy.
    Taken,
    /// The process crashed after the value may have been handed to its topic, and before the outcome was in the run's
    /// history: every subscription may have had it, or none. What was in the topic was lost with the process.
    Unknown,
}

/// Everything that is needed to bring the code back from here on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The state that the code begins with.
    pub state: Payload,
    /// The signals that had not been taken, in the order of their arrival by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signals: Vec<(Name, Payload)>,
    /// How many operations the code had issued.
    pub operations_len: u32,
    /// How many random numbers the code had drawn.
    pub random_len: u64,
    /// Whether no input was waiting to be taken up behind it: only then can a replay begin here.
    pub is_whole: bool,
    /// The time that the code sees, if it differs from the time of this record.
    #[serde(rename = "now_us", default, skip_serializing_if = "Option::is_none")]
    pub now: Option<Timestamp>,
    /// The run's places in durable topics.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taken: Vec<TakenThrough>,
    /// How many `signals` of each name the run began with; these come first. Only for a run with a [retry
    /// policy](crate::Started::retried).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub begun_with: Vec<(Name, u32)>,
}
