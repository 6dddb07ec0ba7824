//! The kept state of a subscription: a record of a topic of its own, whose last record counts.
//!
//! ```text
//!   version │ through │ count │ first, last, ... │ count │ sequence, deliveries, error, ... │ count │ sequence, key, ...
//!   1, 2    │ 8       │ 4     │ 8 + 8 each       │ 4     │ 8 + 4 + (2 + text) each          │ 4     │ 8 + (2 + text) each
//! ```
//!
//! The held keys come last, and only in version 2. Version 1 is written while no key is held, so that earlier releases can
//! read it. Numbers are little-endian. Any bytes give a state or an error.

use std::collections::BTreeMap;

use millrun_workflow::RECORD_TEXT_BYTES_MAX;

use super::acknowledged::Acknowledged;
use super::config::HELD_KEYS_MAX;
use super::deliveries::{RecordsInHand, Returned};

const VERSION: u8 = 1;
const VERSION_WITH_HELD_KEYS: u8 = 2;

/// The kept state of a subscription.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeptPlace {
    pub(crate) acknowledged: Acknowledged,
    pub(crate) returned: BTreeMap<u64, Returned>,
    /// Keys that wait behind a buried record, with the number of that record.
    pub(crate) held_keys: BTreeMap<Box<str>, u64>,
}

/// Why bytes are not the state of a subscription.
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
    let held_keys = in_hand.held_keys();
    let mut bytes = match held_keys.is_empty() {
        true => vec![VERSION],
        false => vec![VERSION_WITH_HELD_KEYS],
    };
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
    if !held_keys.is_empty() {
        bytes.extend(narrow(held_keys.len()).to_le_bytes());
    }
    for (key, sequence) in held_keys {
        bytes.extend(sequence.to_le_bytes());
        let len = u16::try_from(key.len()).expect("keys of records are checked before");
        bytes.extend(len.to_le_bytes());
        bytes.extend(key.as_bytes());
    }
    bytes
}

/// What was kept.
pub(crate) fn decode(bytes: &[u8]) -> Result<KeptPlace, StoredSubscriptionError> {
    let mut left = bytes;
    let [version] = take(&mut left)?;
    if version != VERSION && version != VERSION_WITH_HELD_KEYS {
        return Err(StoredSubscriptionError::Version(version));
    }
    let mut acknowledged = Acknowledged::up_to(u64::from_le_bytes(take(&mut left)?));
    // Each acknowledged range has a gap before it.
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
        let error = text(&mut left)?;
        let error = (!error.is_empty()).then(|| error.into());
        let before = returned.insert(sequence, Returned { deliveries, error });
        if before.is_some() || sequence == u64::MAX {
            return Err(StoredSubscriptionError::Contradiction);
        }
    }
    let mut held_keys = BTreeMap::new();
    if version == VERSION_WITH_HELD_KEYS {
        let len = u32::from_le_bytes(take(&mut left)?);
        // Without held keys, version 1 is written.
        if len == 0 || len as usize > HELD_KEYS_MAX {
            return Err(StoredSubscriptionError::Contradiction);
        }
        for _ in 0..len {
            let sequence = u64::from_le_bytes(take(&mut left)?);
            let key = text(&mut left)?;
            let is_right = key.len() <= RECORD_TEXT_BYTES_MAX && acknowledged.has(sequence);
            if !is_right || held_keys.insert(key.into(), sequence).is_some() {
                return Err(StoredSubscriptionError::Contradiction);
            }
        }
    }
    if !left.is_empty() {
        return Err(StoredSubscriptionError::Length);
    }
    Ok(KeptPlace {
        acknowledged,
        returned,
        held_keys,
    })
}

/// For fuzzing: continues from any bytes that are a valid state: they encode to the same state again, and each record behind
/// them can be taken in, delivered, sent back and acknowledged.
#[cfg(feature = "fuzz")]
pub(crate) fn go_on_from(bytes: &[u8]) {
    use std::time::Duration;

    use millrun_core::{Partition, Sequence, Timestamp};
    use millrun_persistence::TopicRecord;

    let Ok(kept) = decode(bytes) else { return };
    let bounds = super::config::SubscriptionBounds {
        holds_keys: true,
        ..super::config::SubscriptionBounds::default()
    };
    let in_hand = RecordsInHand::new(bounds, kept.acknowledged, kept.returned);
    let mut in_hand = in_hand.with_held_keys(kept.held_keys);
    let again = decode(&encode(&in_hand)).expect("what is kept can be read");
    assert_eq!(&again.acknowledged, in_hand.acknowledged());
    assert_eq!(&again.held_keys, in_hand.held_keys());
    assert!(
        again
            .returned
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

fn text<'a>(left: &mut &'a [u8]) -> Result<&'a str, StoredSubscriptionError> {
    let len = usize::from(u16::from_le_bytes(take(left)?));
    let (text, rest) = left
        .split_at_checked(len)
        .ok_or(StoredSubscriptionError::Length)?;
    *left = rest;
    std::str::from_utf8(text).map_err(|_| StoredSubscriptionError::Contradiction)
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
        let kept = decode(&encode(&in_hand)).unwrap();
        assert_eq!(&kept.acknowledged, in_hand.acknowledged());
        let error = Some("no way".into());
        assert_eq!(kept.returned, [(8, Returned { deliveries: 1, error })].into());
    }

    #[test]
    fn held_keys_are_kept_and_without_any_the_first_version_is_written() {
        let bounds = SubscriptionBounds {
            holds_keys: true,
            ..SubscriptionBounds::default()
        };
        let held: BTreeMap<Box<str>, u64> = [("a".into(), 3), ("b".into(), 7)].into();
        let in_hand = RecordsInHand::new(bounds, Acknowledged::up_to(7), BTreeMap::new());
        let mut in_hand = in_hand.with_held_keys(held.clone());
        let mut bytes = encode(&in_hand);
        assert_eq!((bytes[0], decode(&bytes).unwrap().held_keys), (2, held));
        for end in 0..bytes.len() {
            assert!(decode(&bytes[..end]).is_err(), "cut at {end}");
        }
        // A key behind a record that is not acknowledged.
        let at = bytes.len() - (8 + 2 + 1);
        bytes[at] = 8;
        assert_eq!(decode(&bytes), Err(StoredSubscriptionError::Contradiction));
        assert!(in_hand.release_key("a") && in_hand.release_behind(7));
        assert!(!in_hand.release_key("a") && !in_hand.release_behind(7));
        assert_eq!(encode(&in_hand)[0], 1);
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
