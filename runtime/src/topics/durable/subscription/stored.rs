//! What a subscription keeps: a record of a topic of its own, of which the last one counts.
//!
//! ```text
//!   version │ through │ count │ first, last, ... │ count │ sequence, deliveries, error, ...
//!   1       │ 8       │ 4     │ 8 + 8 each       │ 4     │ 8 + 4 + (2 + text) each
//! ```
//!
//! Numbers are little-endian. Any bytes come to a state or an error.

use std::collections::BTreeMap;

use super::acknowledged::Acknowledged;
use super::deliveries::{RecordsInHand, Returned};

const VERSION: u8 = 1;

/// Why bytes are not what a subscription has kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StoredSubscriptionError {
    #[error("it has version {0}, which this release does not know")]
    Version(u8),
    #[error("it ends too early, or too late")]
    Length,
    #[error("it contradicts itself")]
    Contradiction,
}

/// The bytes to be kept.
pub(crate) fn encode(in_hand: &RecordsInHand) -> Vec<u8> {
    let acknowledged = in_hand.acknowledged();
    let mut bytes = vec![VERSION];
    bytes.extend(acknowledged.through().to_le_bytes());
    let ranges = acknowledged.ranges();
    bytes.extend(narrow(ranges.len()).to_le_bytes());
    for (first, last) in ranges {
        bytes.extend(first.to_le_bytes());
        bytes.extend(last.to_le_bytes());
    }
    let at = bytes.len();
    bytes.extend([0; 4]);
    let mut len = 0_u32;
    for (sequence, returned) in in_hand.returned() {
        bytes.extend(sequence.to_le_bytes());
        bytes.extend(returned.deliveries.to_le_bytes());
        let error = returned.error.as_deref().unwrap_or_default().as_bytes();
        bytes.extend(u16::try_from(error.len()).unwrap_or(0).to_le_bytes());
        bytes.extend(error);
        len += 1;
    }
    bytes[at..at + 4].copy_from_slice(&len.to_le_bytes());
    bytes
}

/// What was kept.
pub(crate) fn decode(
    bytes: &[u8],
) -> Result<(Acknowledged, BTreeMap<u64, Returned>), StoredSubscriptionError> {
    let mut left = bytes;
    let [version] = take(&mut left)?;
    if version != VERSION {
        return Err(StoredSubscriptionError::Version(version));
    }
    let mut acknowledged = Acknowledged::up_to(u64::from_le_bytes(take(&mut left)?));
    // There is a record behind each that is acknowledged, or will be.
    let mut before = acknowledged.through();
    if before == u64::MAX {
        return Err(StoredSubscriptionError::Contradiction);
    }
    for _ in 0..u32::from_le_bytes(take(&mut left)?) {
        let first = u64::from_le_bytes(take(&mut left)?);
        let last = u64::from_le_bytes(take(&mut left)?);
        if first <= before + 1 || last < first || last == u64::MAX {
            return Err(StoredSubscriptionError::Contradiction);
        }
        acknowledged.add_range(first, last);
        before = last;
    }
    let mut returned = BTreeMap::new();
    for _ in 0..u32::from_le_bytes(take(&mut left)?) {
        let sequence = u64::from_le_bytes(take(&mut left)?);
        let deliveries = u32::from_le_bytes(take(&mut left)?);
        let len = usize::from(u16::from_le_bytes(take(&mut left)?));
        let (error, rest) = left
            .split_at_checked(len)
            .ok_or(StoredSubscriptionError::Length)?;
        left = rest;
        let error = std::str::from_utf8(error).map_err(|_| StoredSubscriptionError::Contradiction)?;
        let error = (!error.is_empty()).then(|| error.into());
        let before = returned.insert(sequence, Returned { deliveries, error });
        if before.is_some() || sequence == u64::MAX {
            return Err(StoredSubscriptionError::Contradiction);
        }
    }
    if !left.is_empty() {
        return Err(StoredSubscriptionError::Length);
    }
    Ok((acknowledged, returned))
}

/// Goes on from any bytes that are what a subscription has kept: they are kept alike again, and each record behind them can
/// be taken in, given, sent back and acknowledged.
#[cfg(feature = "fuzz")]
pub(crate) fn go_on_from(bytes: &[u8]) {
    use std::time::Duration;

    use millrun_core::{Partition, Sequence, Timestamp};
    use millrun_persistence::TopicRecord;

    let Ok(kept) = decode(bytes) else { return };
    let mut in_hand = RecordsInHand::new(super::config::SubscriptionBounds::default(), kept.0, kept.1);
    let again = decode(&encode(&in_hand)).expect("what is kept can be read");
    assert_eq!(&again.0, in_hand.acknowledged());
    assert!(
        again
            .1
            .iter()
            .map(|(at, returned)| (*at, returned))
            .eq(in_hand.returned())
    );
    let returned: Vec<u64> = in_hand.returned().map(|(sequence, _)| sequence).collect();
    let next = in_hand.acknowledged().through() + 1;
    for sequence in returned.into_iter().chain([next]) {
        let is_done = in_hand.acknowledged().has(sequence);
        let missing = in_hand.acknowledged().missing_before(sequence);
        assert!(missing < sequence.max(1));
        let record = TopicRecord {
            sequence: Sequence::new(sequence),
            partition: Partition::of(b"any"),
            time: Timestamp::EPOCH,
            id: None,
            body: bytes::Bytes::new(),
        };
        in_hand.take_in(record, None);
        let Some(given) = in_hand.give(Timestamp::EPOCH) else {
            assert!(is_done, "what is not acknowledged is given");
            continue;
        };
        assert!(!is_done && given.record.sequence.get() == sequence);
        let back = (Duration::ZERO, "not now", Timestamp::EPOCH);
        in_hand
            .send_back(sequence, given.lease, back)
            .expect("it was given just now");
        let given = in_hand.give(Timestamp::EPOCH).expect("it was sent back");
        in_hand
            .acknowledge(sequence, given.lease, Timestamp::EPOCH)
            .expect("it was given just now");
        assert!(in_hand.acknowledged().has(sequence));
        decode(&encode(&in_hand)).expect("what is kept can be read");
    }
}

fn take<const N: usize>(left: &mut &[u8]) -> Result<[u8; N], StoredSubscriptionError> {
    let (taken, rest) = left.split_first_chunk().ok_or(StoredSubscriptionError::Length)?;
    *left = rest;
    Ok(*taken)
}

fn narrow(len: usize) -> u32 {
    u32::try_from(len).expect("a subscription has fewer records in hand")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use millrun_core::{Partition, Sequence, Timestamp};
    use millrun_persistence::TopicRecord;
    use proptest::prelude::*;

    use super::*;
    use crate::topics::durable::subscription::config::SubscriptionBounds;

    fn some() -> RecordsInHand {
        let bounds = SubscriptionBounds::default();
        let mut in_hand = RecordsInHand::new(bounds, Acknowledged::up_to(7), BTreeMap::new());
        in_hand.pass_over(10, 12);
        for sequence in [8, 9] {
            let record = TopicRecord {
                sequence: Sequence::new(sequence),
                partition: Partition::of(b"any"),
                time: Timestamp::EPOCH,
                id: None,
                body: Bytes::new(),
            };
            in_hand.take_in(record, None);
        }
        let leased = in_hand.give(Timestamp::EPOCH).unwrap();
        let back = (Duration::ZERO, "no way", Timestamp::EPOCH);
        in_hand.send_back(8, leased.lease, back).unwrap();
        in_hand
    }

    #[test]
    fn what_is_kept_is_read_again() {
        let in_hand = some();
        let (acknowledged, returned) = decode(&encode(&in_hand)).unwrap();
        assert_eq!(&acknowledged, in_hand.acknowledged());
        let error = Some("no way".into());
        assert_eq!(returned, [(8, Returned { deliveries: 1, error })].into());
    }

    #[test]
    fn what_is_cut_short_or_longer_is_refused() {
        let mut bytes = encode(&some());
        for end in 0..bytes.len() {
            assert!(decode(&bytes[..end]).is_err(), "cut at {end}");
        }
        bytes.push(0);
        assert_eq!(decode(&bytes), Err(StoredSubscriptionError::Length));
        assert_eq!(decode(&[9]), Err(StoredSubscriptionError::Version(9)));
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        let kept = |through: u64, ranges: &[(u64, u64)], returned: &[u64]| {
            let mut bytes = vec![VERSION];
            bytes.extend(through.to_le_bytes());
            bytes.extend(narrow(ranges.len()).to_le_bytes());
            for (first, last) in ranges {
                bytes.extend([first.to_le_bytes(), last.to_le_bytes()].concat());
            }
            bytes.extend(narrow(returned.len()).to_le_bytes());
            for sequence in returned {
                bytes.extend(sequence.to_le_bytes());
                bytes.extend([1, 0, 0, 0, 0, 0]);
            }
            bytes
        };
        for (bytes, is_right) in [
            (kept(7, &[(9, 9), (11, 20)], &[8, 10]), true),
            (kept(u64::MAX, &[], &[]), false),
            (kept(7, &[(9, u64::MAX)], &[]), false),
            (kept(7, &[(8, 9)], &[]), false),
            (kept(7, &[(10, 9)], &[]), false),
            (kept(7, &[(11, 20), (9, 9)], &[]), false),
            (kept(7, &[(9, 10), (11, 20)], &[]), false),
            (kept(7, &[], &[8, 8]), false),
            (kept(7, &[], &[u64::MAX]), false),
        ] {
            let contradicts = decode(&bytes) == Err(StoredSubscriptionError::Contradiction);
            assert_eq!(contradicts, !is_right, "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_state_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            drop(decode(&bytes));
        }
    }
}
