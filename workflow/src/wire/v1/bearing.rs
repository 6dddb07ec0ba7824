//! What a record means for the operations of its run, from its kind and first bytes.
//!
//! Recovery looks for outstanding operations in millions of records, most of which concern ended operations and need not be
//! decoded. Each body that concerns an operation begins with the operation's number; a body that does not was not written by
//! this release, and is decoded whole.

use bytes::Bytes;

use super::{
    ACTIVITY_COMPLETED, ACTIVITY_FAILED, ACTIVITY_SCHEDULED, ATTEMPT_FAILED, ATTEMPT_HEARTBEAT,
    ATTEMPT_STARTED, CANCEL_REQUESTED, CANCELLED, CHECKPOINTED, CHILD_CANCEL_REQUESTED, CHILD_ENDED,
    CHILD_SCHEDULED, CHILD_STARTED, COMMAND_PERFORMED, COMPLETED, CONTINUED_AS_NEW, FAILED,
    OPERATION_CANCELLED, PARKED, PATCHED, PROMISE_MADE, PROMISE_SETTLED, PUBLISH_PARKED, PUBLISH_SCHEDULED,
    PUBLISHED, RECEIVE_SCHEDULED, RECORD_RECEIVED, RESUMED, RUN_SIGNAL_RECEIVED, SIGNAL_RECEIVED,
    SIGNAL_SCHEDULED, SIGNAL_SENT, STARTED, TERMINATED, TIMED_OUT, TIMER_FIRED, TIMER_STARTED,
    UPDATE_ACCEPTED, UPDATE_ANSWERED, VALUE_RECORDED, VERSION_CHANGED, decode,
};
use crate::OperationId;
use crate::event::{Event, EventError};

/// What a record means for the outstanding operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bearing {
    /// The run begins.
    Starts,
    /// An operation begins.
    Begins(OperationId),
    /// Says more about a pending operation.
    Tells {
        operation: OperationId,
        /// Whether records of this kind are counted; otherwise only the last one matters.
        is_counted: bool,
    },
    /// An operation ends.
    Ends(OperationId),
    /// The code stops running,
    Parks,
    /// and runs again.
    Resumes,
    /// The code has another version from then on.
    Moves,
    /// The run ends.
    Closes,
    /// No meaning for operations.
    None,
}

/// What a record of this kind, with this body, means for the outstanding operations.
///
/// # Errors
/// When the kind is unknown, or the body does not name an operation although the kind requires one.
pub(crate) fn bearing(kind: u8, body: &[u8]) -> Result<Bearing, EventError> {
    let operation = || operation(kind, body);
    Ok(match kind {
        STARTED => Bearing::Starts,
        ACTIVITY_SCHEDULED | TIMER_STARTED | CHILD_SCHEDULED | PUBLISH_SCHEDULED | SIGNAL_SCHEDULED
        | RECEIVE_SCHEDULED | PROMISE_MADE => Bearing::Begins(operation()?),
        ATTEMPT_FAILED
        | ATTEMPT_STARTED
        | ATTEMPT_HEARTBEAT
        | CHILD_STARTED
        | CHILD_CANCEL_REQUESTED
        | PUBLISH_PARKED => Bearing::Tells {
            operation: operation()?,
            is_counted: kind == ATTEMPT_FAILED,
        },
        ACTIVITY_COMPLETED | ACTIVITY_FAILED | TIMER_FIRED | OPERATION_CANCELLED | CHILD_ENDED
        | PUBLISHED | RECORD_RECEIVED | SIGNAL_SENT | PROMISE_SETTLED => Bearing::Ends(operation()?),
        COMPLETED | FAILED | CANCELLED | TERMINATED | TIMED_OUT | CONTINUED_AS_NEW => Bearing::Closes,
        PARKED => Bearing::Parks,
        RESUMED => Bearing::Resumes,
        VERSION_CHANGED => Bearing::Moves,
        SIGNAL_RECEIVED | RUN_SIGNAL_RECEIVED | CANCEL_REQUESTED | VALUE_RECORDED | PATCHED
        | UPDATE_ACCEPTED | UPDATE_ANSWERED | CHECKPOINTED | COMMAND_PERFORMED => Bearing::None,
        unknown => return Err(EventError::UnknownKind(unknown)),
    })
}

/// The number with which the body begins.
fn operation(kind: u8, body: &[u8]) -> Result<OperationId, EventError> {
    // A map of up to fifteen fields, the first of which is `o`.
    if let [0x81..=0x8f, 0xa1, b'o', number @ ..] = body
        && let Some(number) = leading_number(number)
    {
        return Ok(OperationId::new(number));
    }
    let event = decode(kind, &Bytes::copy_from_slice(body), None)?;
    operation_of(&event).ok_or_else(|| EventError::Malformed("an operation without its number".into()))
}

/// A MessagePack number that fits 32 bits.
fn leading_number(bytes: &[u8]) -> Option<u32> {
    match *bytes {
        [small @ 0..=0x7f, ..] => Some(u32::from(small)),
        [0xcc, a, ..] => Some(u32::from(a)),
        [0xcd, a, b, ..] => Some(u32::from(u16::from_be_bytes([a, b]))),
        [0xce, a, b, c, d, ..] => Some(u32::from_be_bytes([a, b, c, d])),
        _ => None,
    }
}

/// The operation that an event concerns.
fn operation_of(event: &Event) -> Option<OperationId> {
    match event {
        Event::ActivityScheduled(scheduled) => Some(scheduled.operation),
        Event::ChildScheduled(scheduled) => Some(scheduled.operation),
        Event::PublishScheduled(scheduled) => Some(scheduled.operation),
        Event::ReceiveScheduled(scheduled) => Some(scheduled.operation),
        Event::SignalScheduled(scheduled) => Some(scheduled.operation),
        Event::ActivityCompleted { operation, .. }
        | Event::ActivityFailed { operation, .. }
        | Event::AttemptFailed { operation, .. }
        | Event::AttemptStarted { operation, .. }
        | Event::AttemptHeartbeat { operation, .. }
        | Event::TimerStarted { operation, .. }
        | Event::TimerFired { operation }
        | Event::PublishParked { operation }
        | Event::Published { operation, .. }
        | Event::RecordReceived { operation, .. }
        | Event::SignalSent { operation, .. }
        | Event::PromiseMade { operation }
        | Event::PromiseSettled { operation, .. }
        | Event::ChildStarted { operation, .. }
        | Event::ChildCancelRequested { operation, .. }
        | Event::ChildEnded { operation, .. }
        | Event::OperationCancelled { operation } => Some(*operation),
        Event::Started(_)
        | Event::Checkpointed(_)
        | Event::SignalReceived { .. }
        | Event::RunSignalReceived { .. }
        | Event::ValueRecorded { .. }
        | Event::Patched { .. }
        | Event::UpdateAccepted { .. }
        | Event::UpdateAnswered { .. }
        | Event::CommandPerformed(_)
        | Event::CancelRequested { .. }
        | Event::Completed { .. }
        | Event::Failed { .. }
        | Event::Cancelled { .. }
        | Event::Terminated { .. }
        | Event::TimedOut { .. }
        | Event::Reset { .. }
        | Event::ContinuedAsNew { .. }
        | Event::Parked { .. }
        | Event::Resumed
        | Event::VersionChanged { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(first: &[u8], number: &[u8]) -> Vec<u8> {
        [&[0x81], first, number].concat()
    }

    #[test]
    fn numbers_of_each_size_are_read_from_the_first_bytes() {
        for (bytes, number) in [
            (&[5][..], 5),
            (&[0xcc, 200], 200),
            (&[0xcd, 1, 2], 258),
            (&[0xce, 1, 0, 0, 2], 0x0100_0002),
        ] {
            let found = bearing(TIMER_FIRED, &body(b"\xa1o", bytes));
            assert_eq!(found, Ok(Bearing::Ends(OperationId::new(number))));
        }
    }

    #[test]
    fn a_body_in_another_order_is_decoded_whole() {
        // A timer with its deadline before its operation.
        let fields = [&[0x82][..], b"\xa1d", &[9], b"\xa1o", &[7]].concat();
        let event = decode(TIMER_STARTED, &Bytes::from(fields.clone()), None);
        let Ok(Event::TimerStarted { operation, .. }) = event else {
            panic!("{event:?}");
        };
        assert_eq!(bearing(TIMER_STARTED, &fields), Ok(Bearing::Begins(operation)));
    }

    #[test]
    fn what_says_nothing_of_an_operation_is_an_error() {
        for bad in [
            &[][..],
            &[0x80],
            &[0x81, 0xa1, b'o'],
            &[0xc0],
            &[0x81, 0xa1, b'o', 0xa0],
        ] {
            assert!(bearing(TIMER_FIRED, bad).is_err(), "{bad:?}");
        }
        assert_eq!(bearing(0, &[]), Err(EventError::UnknownKind(0)));
        assert_eq!(bearing(200, &[]), Err(EventError::UnknownKind(200)));
    }
}
