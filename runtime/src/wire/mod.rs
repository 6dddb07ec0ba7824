//! Messages between runs of partitions, as bytes: one module per version of the format.
//!
//! ```text
//!   ┌─────────┬──────┬──────────────────────┐
//!   │ version │ kind │ body: MessagePack map │   at most MESSAGE_BYTES_MAX
//!   └─────────┴──────┴──────────────────────┘
//! ```
//!
//! Invariants: any bytes decode to a message or a typed error, and leftover bytes are an error. A decoded message encodes to
//! bytes that decode to the same message. Nothing in a message names a shard, a process or an address.
//!
//! Left out: sending. A [router](crate::mail::Router) has the [desk](crate::cluster::mail_desk::MailDesk) post messages for
//! another node; messages to partitions of its own process are moved without encoding.

pub(crate) mod calls;
mod v1;

#[cfg(test)]
mod tests;

use bytes::Bytes;
use millrun_core::InstanceIdError;
use millrun_workflow::EventError;

use self::calls::{MailedAnswer, MailedRequest};
use crate::mail::PartitionMessage;

/// The largest size of a message in bytes: enough for the largest payload, or a list of three million calls.
pub(crate) const MESSAGE_BYTES_MAX: usize = 64 * 1_024 * 1_024;

/// Why bytes are no message, or a message cannot be encoded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MessageError {
    #[error("a message of {bytes} bytes is longer than {MESSAGE_BYTES_MAX}")]
    TooLong { bytes: usize },
    #[error("it ends within its first two bytes")]
    Cut,
    #[error("it has version {version}, this release knows {}", v1::VERSION)]
    Version { version: u8 },
    #[error("version {} has no message of kind {kind}", v1::VERSION)]
    Kind { kind: u8 },
    #[error("its body cannot be read: {message}")]
    Malformed { message: String },
    #[error("it does not name an instance")]
    InstanceId(#[from] InstanceIdError),
    #[error("what it tells cannot be read")]
    Event(#[from] EventError),
}

/// The bytes of a message.
///
/// # Errors
/// [`MessageError::TooLong`].
pub(crate) fn encode(message: &PartitionMessage) -> Result<Vec<u8>, MessageError> {
    let bytes = v1::encode(message)?;
    check_len(bytes.len())?;
    Ok(bytes)
}

/// Decodes a message. Payloads share the memory of the bytes.
///
/// # Errors
/// When the bytes are no message, or are of a later version.
pub(crate) fn decode(bytes: &Bytes) -> Result<PartitionMessage, MessageError> {
    check_len(bytes.len())?;
    let &[version, kind, ..] = bytes.as_ref() else {
        return Err(MessageError::Cut);
    };
    match version {
        v1::VERSION => v1::decode(kind, &bytes.slice(2..)),
        version => Err(MessageError::Version { version }),
    }
}

/// Mail of one node for another.
#[derive(Debug)]
pub(crate) enum NodeMessage {
    /// A message of a run, or about the runs of some partitions.
    Runs(PartitionMessage),
    Request(Box<MailedRequest>),
    Answer(MailedAnswer),
}

/// Who waits for mail that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MailWaiter {
    /// A caller of another node, with the number of its question.
    Asker { node: u64, question: u64 },
    /// A caller of this process, with the number of its question.
    Asked { question: u64 },
}

/// Who waits for mail that cannot be read, as far as that part of it can be decoded.
pub(crate) fn waiter_of(bytes: &Bytes) -> Option<MailWaiter> {
    match bytes.as_ref() {
        [v1::VERSION, calls::REQUEST, ..] => {
            let calls::Asker { node, question } = v1::read(&bytes.slice(2..)).ok()?;
            Some(MailWaiter::Asker { node, question })
        }
        [v1::VERSION, calls::ANSWER, ..] => {
            let calls::AnsweredQuestion { question } = v1::read(&bytes.slice(2..)).ok()?;
            Some(MailWaiter::Asked { question })
        }
        _ => None,
    }
}

/// Decodes mail of another node.
///
/// # Errors
/// As [`decode`].
pub(crate) fn decode_mail(bytes: &Bytes) -> Result<NodeMessage, MessageError> {
    check_len(bytes.len())?;
    match bytes.as_ref() {
        [v1::VERSION, calls::REQUEST, ..] => {
            v1::read(&bytes.slice(2..)).map(|request| NodeMessage::Request(Box::new(request)))
        }
        [v1::VERSION, calls::ANSWER, ..] => v1::read(&bytes.slice(2..)).map(NodeMessage::Answer),
        _ => decode(bytes).map(NodeMessage::Runs),
    }
}

fn check_len(bytes: usize) -> Result<(), MessageError> {
    if bytes > MESSAGE_BYTES_MAX {
        return Err(MessageError::TooLong { bytes });
    }
    Ok(())
}
