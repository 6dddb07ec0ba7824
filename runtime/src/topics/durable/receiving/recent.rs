//! The keys and correlations of a topic's latest records. They show for most new waits, without reading any record, that the
//! wait has missed nothing.

use millrun_core::{Sequence, Timestamp};
use rustc_hash::FxHashMap;

use super::selector::{FilteredRecord, Selector, SelectorHash};
use super::wait_index::{RecordWait, WaitFrom};

/// How many keys and correlations one of the two halves remembers; when it is full, the older half is dropped.
const HALF_LEN: usize = 32_768;

/// The latest record of each key and each correlation, as far back as is known.
#[derive(Debug)]
pub(super) struct RecentRecords {
    /// The keys and correlations of all records behind this one are known; this record and those before it were appended at
    /// this time at the latest.
    floor: (Sequence, Timestamp),
    /// Where the present half begins.
    turned: (Sequence, Timestamp),
    present: FxHashMap<SelectorHash, (Sequence, Timestamp)>,
    former: FxHashMap<SelectorHash, (Sequence, Timestamp)>,
    /// The last record, and the latest time.
    last: (Sequence, Timestamp),
}

impl RecentRecords {
    /// Knows nothing of the records up to this one, except that they were appended before this time.
    pub(super) fn behind(last: Sequence, now: Timestamp) -> Self {
        Self {
            floor: (last, now),
            turned: (last, now),
            present: FxHashMap::default(),
            former: FxHashMap::default(),
            last: (last, now),
        }
    }

    /// The last record.
    pub(super) fn last(&self) -> Sequence {
        self.last.0
    }

    /// Notes the next record.
    pub(super) fn note(&mut self, filtered: &FilteredRecord<'_>, sequence: Sequence, time: Timestamp) {
        self.last = (sequence, self.last.1.max(time));
        for hash in filtered.broad() {
            self.present.insert(hash, (sequence, time));
        }
        if self.present.len() >= HALF_LEN {
            self.former = std::mem::take(&mut self.present);
            self.floor = std::mem::replace(&mut self.turned, self.last);
        }
    }

    /// Notes that records up to this one are dropped, or cannot be read.
    pub(super) fn skip_to(&mut self, sequence: Sequence) {
        self.last.0 = self.last.0.max(sequence);
    }

    /// Whether none of the records so far can meet this wait.
    pub(super) fn has_none_for(&self, selector: &Selector, wait: &RecordWait) -> bool {
        let broad = selector.broad();
        let latest = || {
            let found = broad.and_then(|hash| self.present.get(&hash).or_else(|| self.former.get(&hash)));
            found.copied()
        };
        match wait.from() {
            WaitFrom::Behind(behind) if behind >= self.last.0 => true,
            WaitFrom::Behind(behind) => {
                broad.is_some()
                    && behind >= self.floor.0
                    && latest().is_none_or(|(sequence, _)| sequence <= behind)
            }
            WaitFrom::Since(since) if since > self.last.1 => true,
            // An earlier record may have had a later time: then the look is unnecessary.
            WaitFrom::Since(since) => broad.is_some() && since > self.floor.1 && latest().is_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use millrun_core::{Partition, RunId};
    use millrun_workflow::{KeyFilter, OperationId, Payload, RawRecord, RecordFilter};
    use proptest::prelude::*;

    use super::*;
    use crate::topics::durable::stored::StoredHeader;

    fn wait(from: WaitFrom) -> RecordWait {
        let run = RunId::new(Partition::of(b"a"), Timestamp::EPOCH, 1);
        RecordWait::new(run, OperationId::new(1), from)
    }

    const KEYS: [Option<&str>; 4] = [None, Some("a"), Some("ab"), Some("b")];
    const CORRELATIONS: [Option<&str>; 3] = [None, Some("a"), Some("c")];

    fn filter(key: usize, is_whole: bool, correlation: usize) -> RecordFilter {
        let kind = if is_whole {
            KeyFilter::Is
        } else {
            KeyFilter::StartsWith
        };
        RecordFilter {
            key: KEYS[key].map(|key| kind(key.into())),
            correlation: CORRELATIONS[correlation].map(Into::into),
        }
    }

    proptest! {
        /// For any times, keys and correlations of the records.
        #[test]
        fn what_it_says_is_not_there_is_not_there(
            records in proptest::collection::vec((0..4_usize, 0..3_usize, 0..30_u64), 1..40),
            from in 0..40_u64,
            (key, is_whole, correlation) in (0..4_usize, any::<bool>(), 0..3_usize),
            is_since: bool,
            turn in 2..6_usize,
        ) {
            let (first, begun) = (Sequence::new(3), Timestamp::from_micros(8));
            let mut recent = RecentRecords::behind(first, begun);
            let mut noted = Vec::new();
            for (index, (key, correlation, time)) in records.into_iter().enumerate() {
                let (sequence, time) = (Sequence::new(4 + index as u64), Timestamp::from_micros(time));
                let (key, correlation) = (KEYS[key], CORRELATIONS[correlation]);
                let header = StoredHeader { key, correlation, ..StoredHeader::default() };
                recent.note(&FilteredRecord::of(&header), sequence, time);
                noted.push(RawRecord {
                    sequence,
                    time,
                    key: key.map(Into::into),
                    correlation: correlation.map(Into::into),
                    cause: None,
                    value: Payload::encode(&()).unwrap(),
                });
                if index % turn == 0 {
                    recent.former = std::mem::take(&mut recent.present);
                    recent.floor = std::mem::replace(&mut recent.turned, recent.last);
                }
            }
            let filter = filter(key, is_whole, correlation);
            let from = match is_since {
                true => WaitFrom::Since(Timestamp::from_micros(from)),
                false => WaitFrom::Behind(Sequence::new(from)),
            };
            let meets = |record: &RawRecord| {
                let is_far_enough = match from {
                    WaitFrom::Behind(behind) => record.sequence > behind,
                    WaitFrom::Since(since) => record.time >= since,
                };
                is_far_enough && filter.is_met_by(record)
            };
            // The records before the first were appended at `begun` at the latest.
            let may_be_before = match from {
                WaitFrom::Behind(behind) => behind < first,
                WaitFrom::Since(since) => since <= begun,
            };
            if recent.has_none_for(&Selector::of(&filter), &wait(from)) {
                prop_assert!(!noted.iter().any(meets) && !may_be_before);
            }
        }
    }
}
