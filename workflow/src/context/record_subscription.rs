//! Records of a durable topic that a run takes one after the other.

use std::panic::Location;

use millrun_core::Timestamp;

use super::receive_record::ReceiveRecord;

/// Records of a durable topic that a run takes one after the other; made by
/// [`WorkflowContext::subscribe`](crate::WorkflowContext::subscribe).
///
/// The run's place in the topic is in its history, not here: another subscription with the same topic and filter continues
/// behind what this one took, and so does [`receive_from`](crate::WorkflowContext::receive_from).
#[derive(Debug)]
#[must_use = "nothing is received until a record is awaited"]
pub struct RecordSubscription<T> {
    /// The template of each wait; never awaited itself.
    wait: ReceiveRecord<T>,
}

impl<T> RecordSubscription<T> {
    pub(crate) fn new(wait: ReceiveRecord<T>) -> Self {
        Self { wait }
    }

    /// Only records with this key, of 1 to 255 bytes.
    pub fn key(self, key: impl Into<Box<str>>) -> Self {
        Self::new(self.wait.key(key))
    }

    /// Only records whose key begins with this, of 1 to 255 bytes; in place of a whole [`key`](Self::key).
    pub fn key_prefix(self, prefix: impl Into<Box<str>>) -> Self {
        Self::new(self.wait.key_prefix(prefix))
    }

    /// Only records with this correlation, of 1 to 255 bytes.
    pub fn correlation(self, correlation: impl Into<Box<str>>) -> Self {
        Self::new(self.wait.correlation(correlation))
    }

    /// If the run has taken none of these records yet, begins with the first that was appended at this time or later, by the
    /// clocks of their writers; the default is the time at which the run began.
    pub fn since(self, time: Timestamp) -> Self {
        Self::new(self.wait.since(time))
    }

    /// If the run has taken none of these records yet, begins with the first that the topic still has.
    pub fn from_beginning(self) -> Self {
        Self::new(self.wait.from_beginning())
    }

    /// The next record. The wait is an operation like any other: it can be joined, raced and cancelled. Two at a time get the
    /// same record.
    #[track_caller]
    pub fn next(&self) -> ReceiveRecord<T> {
        self.wait.again(Location::caller())
    }
}
