//! Version 1: each body is a MessagePack map with short keys, so that a field can be added. What is told as an event of a
//! history has the same body as there, which stays readable for ever.
//!
//! The kinds are part of the format: numbers are never reused.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use millrun_core::{Epoch, InstanceId, Partition, RunId};
use millrun_workflow::{Event, OperationId, Origin, StartTimeouts, Started, wire};
use serde::{Deserialize, Serialize};
use serde_bytes::Bytes as Raw;

use super::MessageError;
use crate::mail::{Ask, PartitionMessage, RunSignal, StartChild};
use crate::ownership::partition_set::PartitionSet;

pub(super) const VERSION: u8 = 1;

const START_CHILD: u8 = 1;
const CHILD_STARTED: u8 = 2;
const CHILD_ENDED: u8 = 3;
const CLOSE_CHILD: u8 = 4;
const SIGNAL: u8 = 5;
const SIGNAL_SENT: u8 = 6;
const BEGUN: u8 = 7;
const ORPHANS: u8 = 8;
const CANCEL_CHILD: u8 = 9;

/// Runs are written as 16 bytes, operations as 4, partitions as 2, epochs as 8, the highest byte first.
const CALL_BYTES: usize = 20;
const OWNED_BYTES: usize = 10;

/// A child, as the event that begins its history.
#[derive(Serialize, Deserialize)]
struct StartChildBody<'a> {
    #[serde(rename = "i", borrow)]
    id: Cow<'a, str>,
    #[serde(rename = "e", borrow)]
    started: &'a Raw,
    #[serde(rename = "k", default, skip_serializing_if = "Option::is_none")]
    known: Option<u128>,
    #[serde(rename = "t", default, skip_serializing_if = "Option::is_none")]
    timeouts: Option<StartTimeouts>,
    #[serde(rename = "c", borrow, default, skip_serializing_if = "Option::is_none")]
    cancel: Option<Cow<'a, str>>,
}

/// A message to a run, as the event that it becomes in the run's history.
#[derive(Serialize, Deserialize)]
struct ToldBody<'a> {
    #[serde(rename = "r")]
    run: u128,
    #[serde(rename = "e", borrow)]
    event: &'a Raw,
    #[serde(rename = "q", default, skip_serializing_if = "Option::is_none")]
    ask: Option<AskBody>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
struct AskBody {
    #[serde(rename = "l")]
    life: u64,
    #[serde(rename = "n")]
    number: u32,
}

#[derive(Serialize, Deserialize)]
struct CancelChildBody<'a> {
    #[serde(rename = "i", borrow)]
    id: Cow<'a, str>,
    #[serde(rename = "r")]
    parent: u128,
    #[serde(rename = "o")]
    operation: u32,
    #[serde(rename = "c", borrow)]
    reason: Cow<'a, str>,
}

#[derive(Serialize, Deserialize)]
struct CloseChildBody<'a> {
    #[serde(rename = "i", borrow)]
    id: Cow<'a, str>,
    #[serde(rename = "r")]
    parent: u128,
    #[serde(rename = "o")]
    operation: u32,
}

/// A signal, as the event that it becomes in the history of the instance.
#[derive(Serialize, Deserialize)]
struct SignalBody<'a> {
    #[serde(rename = "i", borrow)]
    to: Cow<'a, str>,
    #[serde(rename = "w", borrow)]
    workflow: Cow<'a, str>,
    #[serde(rename = "e", borrow)]
    event: &'a Raw,
    #[serde(rename = "p", default, skip_serializing_if = "std::ops::Not::not")]
    is_repeated: bool,
    #[serde(rename = "q")]
    ask: AskBody,
    #[serde(rename = "c", default, skip_serializing_if = "Option::is_none")]
    child: Option<u32>,
}

#[derive(Serialize, Deserialize)]
struct BegunBody<'a> {
    #[serde(rename = "p", borrow)]
    partitions: &'a Raw,
}

#[derive(Serialize, Deserialize)]
struct OrphansBody<'a> {
    #[serde(rename = "p", borrow)]
    parents: &'a Raw,
    #[serde(rename = "c", borrow)]
    children: &'a Raw,
    #[serde(rename = "a", borrow)]
    awaited: &'a Raw,
}

impl From<Ask> for AskBody {
    fn from(ask: Ask) -> Self {
        let Ask { life, number } = ask;
        Self {
            life: life.get(),
            number,
        }
    }
}

impl From<AskBody> for Ask {
    fn from(ask: AskBody) -> Self {
        let AskBody { life, number } = ask;
        Self {
            life: Epoch::new(life),
            number,
        }
    }
}

pub(super) fn encode(message: &PartitionMessage) -> Result<Vec<u8>, MessageError> {
    match message {
        PartitionMessage::StartChild(child) => {
            let StartChild {
                parent,
                id,
                workflow,
                input,
                not_before,
                trace,
                timeouts,
                known,
                cancel,
            } = &**child;
            let origin = Origin {
                parent: Some(*parent),
                trace: *trace,
                ..Origin::default()
            };
            let mut started = Started::new(workflow.clone(), id.clone(), input.clone());
            started.origin = Some(Arc::new(origin));
            started.not_before = *not_before;
            let started = event_bytes(&Event::Started(started))?;
            let body = StartChildBody {
                id: Cow::Borrowed(id.as_str()),
                started: Raw::new(&started),
                known: known.map(RunId::bits),
                timeouts: timeouts.as_deref().copied(),
                cancel: cancel.as_deref().map(Cow::Borrowed),
            };
            write(START_CHILD, &body)
        }
        PartitionMessage::ChildStarted {
            run,
            operation,
            child,
        } => {
            let (operation, child) = (*operation, *child);
            let event = Event::ChildStarted {
                operation,
                run: child,
            };
            told(CHILD_STARTED, *run, &event, None)
        }
        PartitionMessage::ChildEnded { run, operation, end } => {
            let (operation, end) = (*operation, end.clone());
            told(CHILD_ENDED, *run, &Event::ChildEnded { operation, end }, None)
        }
        PartitionMessage::CloseChild {
            id,
            parent,
            operation,
        } => {
            let body = CloseChildBody {
                id: Cow::Borrowed(id.as_str()),
                parent: parent.bits(),
                operation: operation.get(),
            };
            write(CLOSE_CHILD, &body)
        }
        PartitionMessage::CancelChild {
            id,
            parent,
            operation,
            reason,
        } => {
            let body = CancelChildBody {
                id: Cow::Borrowed(id.as_str()),
                parent: parent.bits(),
                operation: operation.get(),
                reason: Cow::Borrowed(reason),
            };
            write(CANCEL_CHILD, &body)
        }
        PartitionMessage::Signal(signal) => {
            let RunSignal {
                sender,
                to,
                workflow,
                name,
                value,
                child,
                is_repeated,
                ask,
            } = &**signal;
            let event = event_bytes(&Event::RunSignalReceived {
                sender: Box::new(*sender),
                name: name.clone(),
                value: value.clone(),
            })?;
            let body = SignalBody {
                to: Cow::Borrowed(to.as_str()),
                workflow: Cow::Borrowed(workflow),
                event: Raw::new(&event),
                is_repeated: *is_repeated,
                ask: (*ask).into(),
                child: child.map(OperationId::get),
            };
            write(SIGNAL, &body)
        }
        PartitionMessage::SignalSent {
            run,
            operation,
            outcome,
            ask,
        } => {
            let (operation, outcome) = (*operation, outcome.clone());
            let event = Event::SignalSent { operation, outcome };
            told(SIGNAL_SENT, *run, &event, Some((*ask).into()))
        }
        PartitionMessage::Begun { partitions } => {
            let partitions = set_bytes(partitions);
            let body = BegunBody {
                partitions: Raw::new(&partitions),
            };
            write(BEGUN, &body)
        }
        PartitionMessage::Orphans {
            parents,
            children,
            awaited,
        } => {
            let (parents, awaited): (Vec<u8>, Vec<u8>) = (
                parents.iter().flat_map(|owned| owned_bytes(*owned)).collect(),
                awaited.iter().flat_map(|call| call_bytes(*call)).collect(),
            );
            let children = set_bytes(children);
            let body = OrphansBody {
                parents: Raw::new(&parents),
                children: Raw::new(&children),
                awaited: Raw::new(&awaited),
            };
            write(ORPHANS, &body)
        }
    }
}

pub(super) fn decode(kind: u8, body: &Bytes) -> Result<PartitionMessage, MessageError> {
    match kind {
        START_CHILD => {
            let StartChildBody {
                id,
                started,
                known,
                timeouts,
                cancel,
            } = read(body)?;
            let opens = InstanceId::new(&id)?;
            let event = wire::decode(START_EVENT, &part(body, started), Some(opens.as_str()))?;
            let Event::Started(Started {
                workflow,
                id,
                input,
                origin: Some(origin),
                not_before,
                ..
            }) = event
            else {
                return Err(malformed("a child without a parent"));
            };
            let parent = origin
                .parent
                .ok_or_else(|| malformed("a child without a parent"))?;
            Ok(PartitionMessage::StartChild(Box::new(StartChild {
                parent,
                id,
                workflow,
                input,
                not_before,
                trace: origin.trace,
                timeouts: timeouts.map(Box::new),
                known: known.map(run_id).transpose()?,
                cancel: cancel.map(|reason| reason.as_ref().into()),
            })))
        }
        CHILD_STARTED | CHILD_ENDED | SIGNAL_SENT => read_told(kind, body),
        CLOSE_CHILD => {
            let CloseChildBody {
                id,
                parent,
                operation,
            } = read(body)?;
            Ok(PartitionMessage::CloseChild {
                id: InstanceId::new(&id)?,
                parent: run_id(parent)?,
                operation: OperationId::new(operation),
            })
        }
        CANCEL_CHILD => {
            let CancelChildBody {
                id,
                parent,
                operation,
                reason,
            } = read(body)?;
            Ok(PartitionMessage::CancelChild {
                id: InstanceId::new(&id)?,
                parent: run_id(parent)?,
                operation: OperationId::new(operation),
                reason: reason.as_ref().into(),
            })
        }
        SIGNAL => {
            let SignalBody {
                to,
                workflow,
                event,
                is_repeated,
                ask,
                child,
            } = read(body)?;
            let Event::RunSignalReceived { sender, name, value } =
                wire::decode(SIGNAL_EVENT, &part(body, event), None)?
            else {
                return Err(malformed("a signal that is none"));
            };
            Ok(PartitionMessage::Signal(Box::new(RunSignal {
                sender: *sender,
                to: InstanceId::new(&to)?,
                workflow: workflow.into_owned().into(),
                name,
                value,
                child: child.map(OperationId::new),
                is_repeated,
                ask: ask.into(),
            })))
        }
        BEGUN => {
            let BegunBody { partitions } = read(body)?;
            Ok(PartitionMessage::Begun {
                partitions: Arc::new(set(partitions)?),
            })
        }
        ORPHANS => {
            let OrphansBody {
                parents,
                children,
                awaited,
            } = read(body)?;
            Ok(PartitionMessage::Orphans {
                parents: Arc::new(ascending(parents.chunks(OWNED_BYTES).map(owned))?),
                children: Arc::new(set(children)?),
                awaited: Arc::new(
                    ascending(awaited.chunks(CALL_BYTES).map(call))?
                        .into_iter()
                        .collect::<BTreeSet<_>>(),
                ),
            })
        }
        kind => Err(MessageError::Kind { kind }),
    }
}

fn read_told(kind: u8, body: &Bytes) -> Result<PartitionMessage, MessageError> {
    let ToldBody { run, event, ask } = read(body)?;
    let run = run_id(run)?;
    let event_kind = match kind {
        CHILD_STARTED => CHILD_STARTED_EVENT,
        CHILD_ENDED => CHILD_ENDED_EVENT,
        _ => SIGNAL_SENT_EVENT,
    };
    match (wire::decode(event_kind, &part(body, event), None)?, ask) {
        (
            Event::ChildStarted {
                operation,
                run: child,
            },
            _,
        ) => Ok(PartitionMessage::ChildStarted {
            run,
            operation,
            child,
        }),
        (Event::ChildEnded { operation, end }, _) => Ok(PartitionMessage::ChildEnded { run, operation, end }),
        (Event::SignalSent { operation, outcome }, Some(ask)) => Ok(PartitionMessage::SignalSent {
            run,
            operation,
            outcome,
            ask: ask.into(),
        }),
        _ => Err(malformed("an answer without a question")),
    }
}

/// The kinds of these events in a history.
const START_EVENT: u8 = 1;
const CHILD_STARTED_EVENT: u8 = 23;
const CHILD_ENDED_EVENT: u8 = 24;
const SIGNAL_SENT_EVENT: u8 = 34;
const SIGNAL_EVENT: u8 = 35;

fn told(kind: u8, run: RunId, event: &Event, ask: Option<AskBody>) -> Result<Vec<u8>, MessageError> {
    let event = event_bytes(event)?;
    let body = ToldBody {
        run: run.bits(),
        event: Raw::new(&event),
        ask,
    };
    write(kind, &body)
}

fn event_bytes(event: &Event) -> Result<Vec<u8>, MessageError> {
    let mut bytes = Vec::new();
    wire::encode(event, &mut bytes)?;
    Ok(bytes)
}

/// The bytes of a part of a body, sharing its memory.
fn part(body: &Bytes, part: &Raw) -> Bytes {
    body.slice_ref(part.as_ref())
}

pub(super) fn write<T: Serialize>(kind: u8, body: &T) -> Result<Vec<u8>, MessageError> {
    let mut bytes = vec![VERSION, kind];
    rmp_serde::encode::write_named(&mut bytes, body).map_err(malformed)?;
    Ok(bytes)
}

pub(super) fn read<'a, T: Deserialize<'a>>(body: &'a Bytes) -> Result<T, MessageError> {
    let mut deserializer = rmp_serde::Deserializer::from_read_ref(body.as_ref());
    let value = T::deserialize(&mut deserializer).map_err(malformed)?;
    // Reading a further value fails with "no marker" only at the end of the bytes. A bool is read because it is nothing but a
    // marker; reading a list would also read its entries.
    match bool::deserialize(&mut deserializer) {
        Err(rmp_serde::decode::Error::InvalidMarkerRead(_)) => Ok(value),
        Ok(_) | Err(_) => Err(malformed("bytes are left over")),
    }
}

pub(super) fn malformed(message: impl std::fmt::Display) -> MessageError {
    let message = message.to_string();
    MessageError::Malformed { message }
}

pub(super) fn run_id(bits: u128) -> Result<RunId, MessageError> {
    RunId::from_bits(bits).ok_or_else(|| malformed("a run in a partition that does not exist"))
}

/// One bit for each partition; the first partition is the lowest bit of the first byte.
fn set_bytes(set: &PartitionSet) -> Vec<u8> {
    let mut bytes = vec![0; SET_BYTES];
    for partition in set.iter() {
        let index = usize::from(partition.index());
        bytes[index / 8] |= 1 << (index % 8);
    }
    bytes
}

const SET_BYTES: usize = Partition::COUNT as usize / 8;

fn set(bytes: &Raw) -> Result<PartitionSet, MessageError> {
    if bytes.len() != SET_BYTES {
        return Err(malformed("a set of partitions of another size"));
    }
    let all = PartitionSet::all();
    let is_in = |partition: &Partition| {
        let index = usize::from(partition.index());
        bytes[index / 8] & 1 << (index % 8) != 0
    };
    Ok(all.iter().filter(is_in).collect())
}

fn owned_bytes((partition, epoch): (Partition, Epoch)) -> [u8; OWNED_BYTES] {
    let mut bytes = [0; OWNED_BYTES];
    bytes[..2].copy_from_slice(&partition.index().to_be_bytes());
    bytes[2..].copy_from_slice(&epoch.get().to_be_bytes());
    bytes
}

fn owned(bytes: &[u8]) -> Result<(Partition, Epoch), MessageError> {
    let bytes: [u8; OWNED_BYTES] = bytes.try_into().map_err(malformed)?;
    let [p0, p1, epoch @ ..] = bytes;
    let partition = Partition::from_index(u16::from_be_bytes([p0, p1]));
    let partition = partition.ok_or_else(|| malformed("a partition that does not exist"))?;
    Ok((partition, Epoch::new(u64::from_be_bytes(epoch))))
}

fn call_bytes((run, operation): (RunId, OperationId)) -> [u8; CALL_BYTES] {
    let mut bytes = [0; CALL_BYTES];
    bytes[..16].copy_from_slice(&run.bits().to_be_bytes());
    bytes[16..].copy_from_slice(&operation.get().to_be_bytes());
    bytes
}

fn call(bytes: &[u8]) -> Result<(RunId, OperationId), MessageError> {
    let (run, operation) = bytes
        .split_first_chunk()
        .ok_or_else(|| malformed("a call cut short"))?;
    let operation = operation.try_into().map_err(malformed)?;
    let operation = OperationId::new(u32::from_be_bytes(operation));
    Ok((run_id(u128::from_be_bytes(*run))?, operation))
}

/// A list in which each entry is greater than the one before it.
fn ascending<T: Ord>(entries: impl Iterator<Item = Result<T, MessageError>>) -> Result<Vec<T>, MessageError> {
    let entries = entries.collect::<Result<Vec<T>, _>>()?;
    if entries.is_sorted_by(|before, after| before < after) {
        Ok(entries)
    } else {
        Err(malformed("a list that is out of order"))
    }
}
