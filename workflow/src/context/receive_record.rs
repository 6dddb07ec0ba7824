//! Records of durable topics that a run waits for.

use std::future::Future;
use std::marker::PhantomData;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use millrun_core::{Cause, Sequence, Timestamp};
use serde::de::DeserializeOwned;

use super::operation::{Operation, Stage, Stopped, Unadmitted, admit_payload};
use crate::context::Shared;
use crate::context::scope::Scope;
use crate::context::shared::Table;
use crate::context::slots::Resolution;
use crate::definition::NAME_BYTES_MAX;
use crate::event::{Event, KeyFilter, Name, RawRecord, ReceiveScheduled, RecordFilter};
use crate::{OperationId, ReceiveRecordError};

/// How many places in durable topics a run may have: one for each topic and filter (a key, a key prefix, a correlation, or
/// none) by which it [receives](crate::WorkflowContext::receive_from).
pub const RECEIVED_PLACES_MAX: usize = 1_000;

/// A wait for a record of a durable topic; made by
/// [`WorkflowContext::receive_from`](crate::WorkflowContext::receive_from).
///
/// # Cancel safety
/// If it is dropped before it was ready, no record is taken: the next wait gets it.
#[derive(Debug)]
#[must_use = "nothing is received until it is awaited"]
pub struct ReceiveRecord<T> {
    operation: Operation,
    topic: Name,
    wanted: WantedRecords,
    payload: PhantomData<fn() -> T>,
}

impl<T> ReceiveRecord<T> {
    pub(crate) fn new(
        shared: Arc<Shared>,
        scope: Scope,
        location: &'static Location<'static>,
        topic: Name,
        wanted: WantedRecords,
    ) -> Self {
        Self {
            operation: Operation::new(shared, scope, location),
            topic,
            wanted,
            payload: PhantomData,
        }
    }

    /// A wait for the same records, issued from this place in the code.
    pub(super) fn again(&self, location: &'static Location<'static>) -> Self {
        let (shared, scope) = (&self.operation.shared, &self.operation.scope);
        Self::new(
            Arc::clone(shared),
            scope.clone(),
            location,
            self.topic.clone(),
            self.wanted.clone(),
        )
    }

    /// Changes the filter, unless the wait has been issued.
    fn want(mut self, change: impl FnOnce(&mut WantedRecords)) -> Self {
        if matches!(self.operation.stage, Stage::New) {
            change(&mut self.wanted);
        }
        self
    }

    /// Only a record with this key, of 1 to 255 bytes. No effect once polled.
    pub fn key(self, key: impl Into<Box<str>>) -> Self {
        self.want(|wanted| wanted.filter.key = Some(KeyFilter::Is(key.into())))
    }

    /// Only a record whose key begins with this, of 1 to 255 bytes; in place of a whole [`key`](Self::key). No effect once
    /// polled.
    pub fn key_prefix(self, prefix: impl Into<Box<str>>) -> Self {
        self.want(|wanted| wanted.filter.key = Some(KeyFilter::StartsWith(prefix.into())))
    }

    /// Only a record with this correlation, of 1 to 255 bytes: its publisher's name for the process or group that it belongs
    /// to. No effect once polled.
    pub fn correlation(self, correlation: impl Into<Box<str>>) -> Self {
        self.want(|wanted| wanted.filter.correlation = Some(correlation.into()))
    }

    /// For the first wait of the run for these records: only a record that was appended at this time or later, by the clock
    /// of its writer; the default is the time at which the run began. If a wait is given up without a record, the next one
    /// begins at its own time; once the run has taken a record, it continues behind that. No effect once polled.
    pub fn since(self, time: Timestamp) -> Self {
        self.want(|wanted| wanted.since = Some(time))
    }

    /// For the first wait of the run for these records: begins with the first record that the topic still has. No effect once
    /// polled.
    pub fn from_beginning(self) -> Self {
        self.since(Timestamp::EPOCH)
    }
}

/// Which records are waited for.
#[derive(Clone, Debug, Default)]
pub(crate) struct WantedRecords {
    pub(super) filter: RecordFilter,
    pub(super) since: Option<Timestamp>,
}

/// The wait, unless a bound forbids it.
fn admit(
    table: &Table,
    topic: &Name,
    wanted: &WantedRecords,
) -> Result<ReceiveScheduled, ReceiveRecordError> {
    let WantedRecords { filter, since } = wanted;
    let key = filter.key.as_ref().map(KeyFilter::text);
    for (what, text) in [("key", key), ("correlation", filter.correlation.as_deref())] {
        let bytes = text.map_or(1, str::len);
        if bytes == 0 || bytes > NAME_BYTES_MAX {
            return Err(ReceiveRecordError::Filter { what, bytes });
        }
    }
    admit_payload(table, 0)?;
    let behind = table.taken_through(topic, filter);
    if behind.is_none() && table.taken_len() >= RECEIVED_PLACES_MAX {
        return Err(ReceiveRecordError::TooManyPlaces);
    }
    Ok(ReceiveScheduled {
        operation: OperationId::new(0),
        topic: topic.clone(),
        filter: filter.clone(),
        behind,
        since: since.filter(|_| behind.is_none()),
    })
}

impl From<Unadmitted> for ReceiveRecordError {
    fn from(unadmitted: Unadmitted) -> Self {
        match unadmitted {
            Unadmitted::TooManyPending { len_max } => Self::TooManyPending { len_max },
            Unadmitted::TooLarge { .. } => unreachable!("a wait has no payload"),
        }
    }
}

impl ReceiveScheduled {
    /// Whether the filter accepts this record.
    #[must_use]
    pub fn is_met_by(&self, record: &RawRecord) -> bool {
        let is_late_enough = self.since.is_none_or(|since| since <= record.time);
        let is_behind = self.behind.is_none_or(|behind| behind < record.sequence);
        is_late_enough && is_behind && self.filter.is_met_by(record)
    }
}

impl<T: DeserializeOwned> Future for ReceiveRecord<T> {
    type Output = Result<ReceivedRecord<T>, ReceiveRecordError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self {
            operation,
            topic,
            wanted,
            payload: _,
        } = self.get_mut();
        let resolution = operation.poll_checked(cx, |table| {
            let mut scheduled = admit(table, topic, wanted)?;
            Ok(move |operation, _, _| {
                scheduled.operation = operation;
                Event::ReceiveScheduled(Arc::new(scheduled))
            })
        });
        resolution.map(|resolution| match resolution {
            Ok(Resolution::Record(record)) => {
                let mut table = operation.shared.lock();
                table.take_record(topic, &wanted.filter, record.sequence);
                drop(table);
                let payload = record.value.decode().map_err(ReceiveRecordError::Payload)?;
                Ok(ReceivedRecord {
                    record: *record,
                    payload,
                })
            }
            Ok(_) => panic!("a wait for a record was resolved as if it were something else"),
            Err(Stopped::Cancelled(cancelled)) => Err(ReceiveRecordError::Cancelled(cancelled)),
            Err(Stopped::Refused(error)) => Err(error),
        })
    }
}

/// A record of a durable topic that a run has received.
#[derive(Clone, Debug, PartialEq)]
pub struct ReceivedRecord<T> {
    record: RawRecord,
    payload: T,
}

impl<T> ReceivedRecord<T> {
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

    /// Its number within its topic.
    #[must_use]
    pub fn sequence(&self) -> Sequence {
        self.record.sequence
    }

    /// When it was appended, by the clock of its writer.
    #[must_use]
    pub fn appended_at(&self) -> Timestamp {
        self.record.time
    }

    /// Its key.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.record.key.as_deref()
    }

    /// Its publisher's name for the process or group that it belongs to.
    #[must_use]
    pub fn correlation(&self) -> Option<&str> {
        self.record.correlation.as_deref()
    }

    /// The run and operation that published it, if a run did.
    #[must_use]
    pub fn run_cause(&self) -> Option<Cause> {
        self.record.cause
    }
}
