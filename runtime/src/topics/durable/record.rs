//! A record of a durable topic, as readers get it.

use millrun_core::{Cause, Timestamp, TraceContext};

use super::stored::StoredHeader;
use super::token::RecordToken;

/// A record of a durable topic: its payload, and its publisher's texts.
///
/// It is identified by its [`token`](Self::token), which names the store, the topic and its place, and belongs to no other
/// record. The [id](super::publish::PublishRecord::id) that its publisher may have set is no part of it: the journal only
/// keeps a hash of it, to recognise a repetition. What consumers need of it belongs into the payload or the
/// [`correlation`](Self::correlation).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DurableRecord<T> {
    pub(super) token: RecordToken,
    pub(super) time: Timestamp,
    pub(super) header: StoredHeader,
    pub(super) payload: T,
}

impl<T> DurableRecord<T> {
    /// Its place: a reader that is opened [behind](super::reader::ReadFrom::After) it begins with the next record.
    #[must_use]
    pub fn token(&self) -> RecordToken {
        self.token
    }

    /// When it was appended, by the clock of the appending process.
    #[must_use]
    pub fn appended_at(&self) -> Timestamp {
        self.time
    }

    /// Its key. By default, a record that a run published has the id of the run's instance.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.header.key.as_deref()
    }

    /// Its publisher's name for the process or group that it belongs to.
    #[must_use]
    pub fn correlation(&self) -> Option<&str> {
        self.header.correlation.as_deref()
    }

    /// The format of its payload, if its publisher has set it.
    #[must_use]
    pub fn content_type(&self) -> Option<&str> {
        self.header.content_type.as_deref()
    }

    /// The run and operation that published it, or that its publisher named.
    #[must_use]
    pub fn run_cause(&self) -> Option<Cause> {
        self.header.cause
    }

    /// Its place in a distributed trace.
    #[must_use]
    pub fn trace(&self) -> Option<&TraceContext> {
        self.header.trace.as_ref()
    }

    /// The record that it was made from: for one in a topic of [undelivered](super::subscription::UndeliveredRecord) records,
    /// the undelivered record; for one that was sent back from there, the undelivered one too. Not known for records of
    /// earlier releases.
    #[must_use]
    pub fn stems_from(&self) -> Option<RecordToken> {
        self.header.record
    }

    /// What it carries.
    #[must_use]
    pub fn payload(&self) -> &T {
        &self.payload
    }

    /// What it carries.
    #[must_use]
    pub fn into_payload(self) -> T {
        self.payload
    }
}
