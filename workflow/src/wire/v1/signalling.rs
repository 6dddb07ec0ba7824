//! The bodies of signals between runs.

use std::borrow::Cow;

use bytes::Bytes;
use millrun_core::{Cause, InstanceId, RunId};
use serde::{Deserialize, Serialize};
use serde_bytes::Bytes as Raw;

use super::family::CauseWire;
use super::parts::{payload, raw};
use crate::OperationId;
use crate::event::{EventError, SignalFailure, SignalScheduled};

#[derive(Serialize, Deserialize)]
pub(super) struct SignalScheduledBody<'a> {
    #[serde(rename = "o")]
    operation: u32,
    #[serde(rename = "w", borrow)]
    workflow: Cow<'a, str>,
    #[serde(rename = "i", borrow)]
    id: Cow<'a, str>,
    #[serde(rename = "n", borrow)]
    name: Cow<'a, str>,
    #[serde(rename = "v", borrow)]
    value: &'a Raw,
    #[serde(rename = "c", default, skip_serializing_if = "Option::is_none")]
    child: Option<u32>,
}

impl<'a> SignalScheduledBody<'a> {
    pub(super) fn of(scheduled: &'a SignalScheduled) -> Self {
        Self {
            operation: scheduled.operation.get(),
            workflow: Cow::Borrowed(&scheduled.workflow),
            id: Cow::Borrowed(scheduled.id.as_str()),
            name: Cow::Borrowed(&scheduled.name),
            value: raw(&scheduled.value),
            child: scheduled.child.map(OperationId::get),
        }
    }

    pub(super) fn into_event(self, body: &Bytes) -> Result<SignalScheduled, EventError> {
        let id = InstanceId::new(&self.id).map_err(|error| EventError::Malformed(error.to_string()))?;
        Ok(SignalScheduled {
            operation: OperationId::new(self.operation),
            workflow: Cow::Owned(self.workflow.into_owned()),
            id,
            name: Cow::Owned(self.name.into_owned()),
            value: payload(body, self.value),
            child: self.child.map(OperationId::new),
        })
    }
}

/// Without a failure, the signal is recorded.
#[derive(Serialize, Deserialize)]
pub(super) struct SignalSentBody<'a> {
    #[serde(rename = "o")]
    operation: u32,
    #[serde(rename = "e", borrow, default, skip_serializing_if = "Option::is_none")]
    failure: Option<SignalFailureWire<'a>>,
}

#[derive(Serialize, Deserialize)]
enum SignalFailureWire<'a> {
    #[serde(rename = "n")]
    NotFound,
    #[serde(rename = "f")]
    Finished,
    #[serde(rename = "w")]
    OtherWorkflow(#[serde(borrow)] Cow<'a, str>),
    #[serde(rename = "q")]
    Quarantined(#[serde(borrow)] Cow<'a, str>),
    #[serde(rename = "r")]
    Refused(#[serde(borrow)] Cow<'a, str>),
}

impl<'a> SignalSentBody<'a> {
    pub(super) fn of(operation: OperationId, outcome: &'a Result<(), SignalFailure>) -> Self {
        let failure = outcome.as_ref().err().map(|failure| match failure {
            SignalFailure::NotFound => SignalFailureWire::NotFound,
            SignalFailure::Finished => SignalFailureWire::Finished,
            SignalFailure::OtherWorkflow { workflow } => {
                SignalFailureWire::OtherWorkflow(Cow::Borrowed(workflow))
            }
            SignalFailure::Quarantined { message } => SignalFailureWire::Quarantined(Cow::Borrowed(message)),
            SignalFailure::Refused { message } => SignalFailureWire::Refused(Cow::Borrowed(message)),
        });
        Self {
            operation: operation.get(),
            failure,
        }
    }

    pub(super) fn into_event(self) -> (OperationId, Result<(), SignalFailure>) {
        let outcome = self.failure.map_or(Ok(()), |failure| {
            Err(match failure {
                SignalFailureWire::NotFound => SignalFailure::NotFound,
                SignalFailureWire::Finished => SignalFailure::Finished,
                SignalFailureWire::OtherWorkflow(workflow) => SignalFailure::OtherWorkflow {
                    workflow: workflow.into_owned(),
                },
                SignalFailureWire::Quarantined(message) => SignalFailure::Quarantined {
                    message: message.into_owned(),
                },
                SignalFailureWire::Refused(message) => SignalFailure::Refused {
                    message: message.into_owned(),
                },
            })
        });
        (OperationId::new(self.operation), outcome)
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct RunSignalBody<'a> {
    #[serde(rename = "s")]
    pub(super) sender: CauseWire,
    #[serde(rename = "n", borrow)]
    pub(super) name: Cow<'a, str>,
    #[serde(rename = "v", borrow)]
    pub(super) value: &'a Raw,
}

/// How many bytes each of a list of senders has: those of the run, then those of the operation, big-endian.
const SENDER_BYTES: usize = 20;

/// Senders of signals, side by side.
pub(super) fn senders_to_bytes(senders: &[Cause]) -> Vec<u8> {
    let sender = |sender: &Cause| {
        [
            &sender.run.bits().to_be_bytes()[..],
            &sender.operation.to_be_bytes(),
        ]
        .concat()
    };
    senders.iter().flat_map(sender).collect()
}

/// Reads [`senders_to_bytes`] back.
pub(super) fn senders_of_bytes(bytes: &[u8]) -> Result<Vec<Cause>, EventError> {
    let malformed = || EventError::Malformed("a list of senders that holds something else".into());
    let (senders, rest) = bytes.as_chunks::<SENDER_BYTES>();
    if !rest.is_empty() {
        return Err(malformed());
    }
    let sender = |sender: &[u8; SENDER_BYTES]| {
        let (run, operation) = sender.split_first_chunk().ok_or_else(malformed)?;
        let operation = operation.try_into().map_err(|_| malformed())?;
        Ok(Cause {
            run: RunId::from_bits(u128::from_be_bytes(*run)).ok_or_else(malformed)?,
            operation: u32::from_be_bytes(operation),
        })
    };
    senders.iter().map(sender).collect()
}
