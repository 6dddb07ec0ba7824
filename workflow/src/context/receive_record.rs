//! Records of durable topics that a run waits for.

use std::future::Future;
use std::marker::PhantomData;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use millrun_core::{Cause, Sequence, Timestamp};
use serde::de::DeserializeOwned;

use super::operation::{Operation, Stopped, Unadmitted, admit_payload};
use crate::context::Shared;
use crate::context::scope::Scope;
use crate::context::shared::Table;
use crate::context::slots::Resolution;
use crate::definition::NAME_BYTES_MAX;
use crate::event::{Event, Name, RawRecord, ReceiveScheduled};
use crate::{OperationId, ReceiveRecordError};

/// In how many places of durable topics a run may be at a time: of each topic, one for each key by which it
/// [receives](crate::WorkflowContext::receive_from), and one for records of any key.
pub const RECEIVED_PLACES_MAX: usize = 1_000;

/// A wait for a record of a durable topic; made by
/// [`WorkflowContext::receive_from`](crate::WorkflowContext::receive_from).
///
/// # Cancel safety
/// Dropped before it was ready, it has taken no record: the next one gets it.
#[derive(Debug)]
#[must_use = "nothing is received until it is awaited"]
pub struct ReceiveRecord<T> {
    operation: Operation,
    topic: Name,
    key: Option<Box<str>>,
    payload: PhantomData<fn() -> T>,
}

impl<T> ReceiveRecord<T> {
    pub(crate) fn new(
        shared: Arc<Shared>,
        scope: Scope,
        location: &'static Location<'static>,
        topic: Name,
    ) -> Self {
        Self {
            operation: Operation::new(shared, scope, location),
            topic,
            key: None,
            payload: PhantomData,
        }
    }

    /// Only a record with this key, of 1 to 255 bytes. No effect once polled.
    pub fn key(mut self, key: impl Into<Box<str>>) -> Self {
        self.key = Some(key.into());
        self
    }
}

/// What is waited for, unless something speaks against that.
fn admit(table: &Table, topic: &Name, key: Option<&str>) -> Result<ReceiveScheduled, ReceiveRecordError> {
    let is_no_key = |bytes: &usize| *bytes == 0 || *bytes > NAME_BYTES_MAX;
    if let Some(bytes) = key.map(str::len).filter(is_no_key) {
        return Err(ReceiveRecordError::Key { bytes });
    }
    admit_payload(table, 0)?;
    let behind = table.taken_through(topic, key);
    if behind.is_none() && table.taken_len() >= RECEIVED_PLACES_MAX {
        return Err(ReceiveRecordError::TooManyPlaces);
    }
    Ok(ReceiveScheduled {
        operation: OperationId::new(0),
        topic: topic.clone(),
        key: key.map(Into::into),
        behind,
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
    /// Whether this is a record that is waited for.
    #[must_use]
    pub fn is_met_by(&self, record: &RawRecord) -> bool {
        let has_key = self.key.is_none() || self.key == record.key;
        has_key && self.behind.is_none_or(|behind| behind < record.sequence)
    }
}

impl<T: DeserializeOwned> Future for ReceiveRecord<T> {
    type Output = Result<ReceivedRecord<T>, ReceiveRecordError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self {
            operation,
            topic,
            key,
            payload: _,
        } = self.get_mut();
        let resolution = operation.poll_checked(cx, |table| {
            let mut scheduled = admit(table, topic, key.as_deref())?;
            Ok(move |operation, _, _| {
                scheduled.operation = operation;
                Event::ReceiveScheduled(Arc::new(scheduled))
            })
        });
        resolution.map(|resolution| match resolution {
            Ok(Resolution::Record(record)) => {
                let mut table = operation.shared.lock();
                table.take_record(topic, key.as_deref(), record.sequence);
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

    /// What its publisher called the whole that it belongs to.
    #[must_use]
    pub fn correlation(&self) -> Option<&str> {
        self.record.correlation.as_deref()
    }

    /// The run, and the operation of it, that has published it, if a run has.
    #[must_use]
    pub fn run_cause(&self) -> Option<Cause> {
        self.record.cause
    }
}
