//! An item of a durable output stream as bytes.
//!
//! ```text
//!   header of a record, with the run and the step as its cause │ kind │ attempt │ chunk
//!                                                              │ u8   │ u32     │ the rest, of a chunk
//! ```
//!
//! Numbers are little-endian. Any bytes give an item or an error.

use bytes::Bytes;
use millrun_core::{Cause, RunId};
use millrun_workflow::{OperationId, Payload};

use crate::streams::attempt::{AttemptEnd, StreamAttempt};
use crate::streams::tail::TailItem;
use crate::topics::durable::stored::StoredHeader;

const BEGAN: u8 = 1;
const CHUNK: u8 = 2;
/// The kinds of ends are numbered consecutively from here.
const SUCCEEDED: u8 = 3;
const FAILED: u8 = 4;
const CANCELLED: u8 = 5;
const LOST: u8 = 6;

/// The size that an item counts in addition to its chunk: about what a store keeps with it.
pub(super) const ITEM_BYTES: usize = 64;

/// Why a record is not an item of an output stream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StoredItemError {
    #[error("it is no record: {0}")]
    Record(String),
    #[error("it does not say which run sent it")]
    NoRun,
    #[error("it ends before its attempt")]
    Short,
    #[error("an item of kind {0} is not known to this program")]
    Kind(u8),
    #[error("{0} bytes follow it")]
    Trailing(usize),
}

/// How many bytes an item counts for.
pub(super) fn bytes_of(item: &TailItem) -> usize {
    ITEM_BYTES
        + match item {
            TailItem::Chunk(_, payload) => payload.len(),
            TailItem::Began(_) | TailItem::Ended(..) => 0,
        }
}

/// The body of the record of an item.
pub(super) fn encode(run: RunId, item: &TailItem) -> Vec<u8> {
    let (kind, attempt, chunk) = match item {
        TailItem::Began(attempt) => (BEGAN, attempt, &[][..]),
        TailItem::Chunk(attempt, payload) => (CHUNK, attempt, payload.as_bytes()),
        TailItem::Ended(attempt, end) => (kind_of(*end), attempt, &[][..]),
    };
    let header = StoredHeader::<&str> {
        cause: Some(Cause {
            run,
            operation: attempt.operation.get(),
        }),
        ..StoredHeader::default()
    };
    let [a, b, c, d] = attempt.attempt.to_le_bytes();
    let mut bytes = header.encode_before(&[kind, a, b, c, d]);
    bytes.extend_from_slice(chunk);
    bytes
}

fn kind_of(end: AttemptEnd) -> u8 {
    match end {
        AttemptEnd::Succeeded => SUCCEEDED,
        AttemptEnd::Failed => FAILED,
        AttemptEnd::Cancelled => CANCELLED,
        AttemptEnd::Lost => LOST,
    }
}

/// The item of a record, and its run.
pub(super) fn decode(body: &Bytes) -> Result<(RunId, TailItem), StoredItemError> {
    let (header, rest) =
        StoredHeader::decode(body).map_err(|error| StoredItemError::Record(error.to_string()))?;
    let cause = header.cause.ok_or(StoredItemError::NoRun)?;
    let (kind, after) = rest.split_first().ok_or(StoredItemError::Short)?;
    let (number, chunk) = after.split_first_chunk::<4>().ok_or(StoredItemError::Short)?;
    let attempt = StreamAttempt {
        operation: OperationId::new(cause.operation),
        attempt: u32::from_le_bytes(*number),
    };
    let end = match *kind {
        CHUNK => {
            let chunk = rest.slice(rest.len() - chunk.len()..);
            return Ok((cause.run, TailItem::Chunk(attempt, Payload::from_bytes(chunk))));
        }
        _ if !chunk.is_empty() => return Err(StoredItemError::Trailing(chunk.len())),
        BEGAN => return Ok((cause.run, TailItem::Began(attempt))),
        SUCCEEDED => AttemptEnd::Succeeded,
        FAILED => AttemptEnd::Failed,
        CANCELLED => AttemptEnd::Cancelled,
        LOST => AttemptEnd::Lost,
        kind => return Err(StoredItemError::Kind(kind)),
    };
    Ok((cause.run, TailItem::Ended(attempt, end)))
}

#[cfg(test)]
mod tests {
    use millrun_core::{Partition, Timestamp};
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn run() -> impl Strategy<Value = RunId> {
        (0..Partition::COUNT, any::<u64>()).prop_map(|(partition, unique)| {
            RunId::new(
                Partition::from_index(partition).unwrap(),
                Timestamp::EPOCH,
                unique,
            )
        })
    }

    fn item() -> impl Strategy<Value = TailItem> {
        let attempt = (any::<u32>(), any::<u32>()).prop_map(|(operation, attempt)| StreamAttempt {
            operation: OperationId::new(operation),
            attempt,
        });
        let end = prop_oneof![
            Just(AttemptEnd::Succeeded),
            Just(AttemptEnd::Failed),
            Just(AttemptEnd::Cancelled),
            Just(AttemptEnd::Lost),
        ];
        (attempt, end, vec(any::<u8>(), 0..200), 0..3).prop_map(|(attempt, end, chunk, kind)| match kind {
            0 => TailItem::Began(attempt),
            1 => TailItem::Chunk(attempt, Payload::from_bytes(chunk.into())),
            _ => TailItem::Ended(attempt, end),
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(run in run(), item in item()) {
            let body = encode(run, &item);
            prop_assert!(body.len() <= bytes_of(&item));
            prop_assert_eq!(decode(&body.into()), Ok((run, item)));
        }

        #[test]
        fn any_bytes_come_to_an_item_that_is_written_alike_or_to_an_error(
            (run, item) in (run(), item()),
            changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            cut in prop::option::of(any::<prop::sample::Index>()),
        ) {
            let mut bytes = encode(run, &item);
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            if let Some(cut) = cut {
                bytes.truncate(cut.index(bytes.len()));
            }
            // If a changed bit announces other parts of a header, these are read, but not written again.
            let has_only_a_cause = bytes.get(1) == Some(&8);
            if let Ok((run, item)) = decode(&bytes.clone().into())
                && has_only_a_cause
            {
                prop_assert_eq!(encode(run, &item), bytes);
            }
        }
    }

    #[test]
    fn each_kind_of_damage_has_its_error() {
        let run = RunId::new(Partition::from_index(3).unwrap(), Timestamp::EPOCH, 7);
        let attempt = StreamAttempt {
            operation: OperationId::new(1),
            attempt: 2,
        };
        let began = encode(run, &TailItem::Began(attempt));
        let kind_at = began.len() - 5;
        let with_kind = |kind: u8| {
            let mut bytes = began.clone();
            bytes[kind_at] = kind;
            bytes
        };
        for (bytes, expected) in [
            (vec![1, 0, 1, 0, 0, 0, 0], StoredItemError::NoRun),
            (began[..began.len() - 1].to_vec(), StoredItemError::Short),
            (with_kind(0), StoredItemError::Kind(0)),
            (with_kind(7), StoredItemError::Kind(7)),
            ([&began[..], &[0]].concat(), StoredItemError::Trailing(1)),
        ] {
            assert_eq!(decode(&bytes.clone().into()), Err(expected), "{bytes:?}");
        }
        assert!(matches!(decode(&Bytes::new()), Err(StoredItemError::Record(_))));
    }
}
