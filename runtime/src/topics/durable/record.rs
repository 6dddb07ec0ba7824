//! A record of a durable topic, as it is read.

use millrun_core::{Cause, Timestamp, TraceContext};

use super::stored::StoredHeader;
use super::token::RecordToken;

/// A record of a durable topic: its payload, and what its publisher said of it.
///
/// Its identity is its [`token`](Self::token), which names the store, the topic and its place, and no other record ever has. The
/// [id](super::publish::PublishRecord::id) that its publisher may have given is no part of it: the journal keeps a hash of that, to
/// know the record when it comes again. What consumers must see of it belongs into the payload, or is the
/// [`correlation`](Self::correlation).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DurableRecord<T> {
    pub(super) token: RecordToken,
    pub(super) time: Timestamp,
    pub(super) header: StoredHeader,
    pub(super) payload: T,
}

impl<T> DurableRecord<T> {
    /// Its place: a reader that is opened [behind](super::reader::ReadFrom::After) it goes on with the next.
    #[must_use]
    pub fn token(&self) -> RecordToken {
        self.token
    }

    /// When it was appended, by the clock of the process that did.
    #[must_use]
    pub fn appended_at(&self) -> Timestamp {
        self.time
    }

    /// Its key. That of a record that a run published is the id of its instance.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.header.key.as_deref()
    }

    /// What its publisher calls the whole that it belongs to.
    #[must_use]
    pub fn correlation(&self) -> Option<&str> {
        self.header.correlation.as_deref()
    }

    /// The format of its payload, where its publisher has said it.
    #[must_use]
    pub fn content_type(&self) -> Option<&str> {
        self.header.content_type.as_deref()
    }

    /// The run and the operation that published it, or that its publisher named.
    #[must_use]
    pub fn run_cause(&self) -> Option<Cause> {
        self.header.cause
    }

    /// Its place in a distributed trace.
    #[must_use]
    pub fn trace(&self) -> Option<&TraceContext> {
        self.header.trace.as_ref()
    }

    /// The record that it stems from: of one in a topic for [undelivered](super::subscription::UndeliveredRecord) records, the
    /// one that is buried; of one that was sent back from there, the one that it repeats. Earlier releases did not say it.
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
