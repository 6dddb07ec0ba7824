//! What runs of partitions tell each other, as bytes: one module per version of the format.
//!
//! ```text
//!   ┌─────────┬──────┬──────────────────────┐
//!   │ version │ kind │ body: MessagePack map │   at most MESSAGE_BYTES_MAX
//!   └─────────┴──────┴──────────────────────┘
//! ```
//!
//! Invariants: any bytes decode to a message or a typed error, and bytes that are left over are an error. What is
//! decoded encodes to bytes that decode to the same. Nothing in a message names a shard, a process or an address.
//!
//! Left out: who sends these bytes. A [router](crate::mail::Router) has the [desk](crate::cluster::mail_desk::MailDesk) post what is
//! for another node; to partitions of its own process it moves messages as they are.

pub(crate) mod calls;
mod v1;

#[cfg(test)]
mod tests;

use bytes::Bytes;
use millrun_core::InstanceIdError;
use millrun_workflow::EventError;

use self::calls::{MailedAnswer, MailedRequest};
use crate::mail::PartitionMessage;

/// How long a message may be, in bytes: a payload of the longest, or the calls of three million children.
pub(crate) const MESSAGE_BYTES_MAX: usize = 64 * 1_024 * 1_024;

/// Why bytes are no message, or a message has no bytes.
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

/// Reads a message back. Payloads share the memory of the bytes.
///
/// # Errors
/// When the bytes are none, or of a later version.
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

/// What one node mails to another.
#[derive(Debug)]
pub(crate) enum NodeMessage {
    /// Of a run, or about the runs of some partitions.
    Runs(PartitionMessage),
    Request(Box<MailedRequest>),
    Answer(MailedAnswer),
}

/// Who waits because of mail that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MailWaiter {
    /// A caller of this node, with the number of its question there.
    Asker { node: u64, question: u64 },
    /// A caller of this process, with the number of its question.
    Asked { question: u64 },
}

/// Who waits because of mail that cannot be read, as far as that much of it can be.
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

/// Reads what another node has mailed.
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
