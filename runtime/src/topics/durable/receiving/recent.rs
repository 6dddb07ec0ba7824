//! Which keys the latest records of a topic had: most waits that come behind the live reader have missed nothing, as this can
//! tell without a look at the records.

use millrun_core::{Sequence, Timestamp};
use rustc_hash::FxHashMap;

use super::wait_index::{KeyHash, RecordWait, WaitFrom};

/// How many keys are remembered before a new half begins, of which there are two.
const HALF_LEN: usize = 32_768;

/// The latest record of each key, as far back as is known.
#[derive(Debug)]
pub(super) struct RecentRecords {
    /// All records behind this one are known by their keys; it and those before it have at most this time.
    floor: (Sequence, Timestamp),
    /// Where the present half begins.
    turned: (Sequence, Timestamp),
    present: FxHashMap<KeyHash, (Sequence, Timestamp)>,
    former: FxHashMap<KeyHash, (Sequence, Timestamp)>,
    /// The last record, and the latest time.
    last: (Sequence, Timestamp),
}

impl RecentRecords {
    /// Nothing is known of the records up to this one, but that they were appended before this time.
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

    /// The next record.
    pub(super) fn note(&mut self, key: KeyHash, sequence: Sequence, time: Timestamp) {
        self.last = (sequence, self.last.1.max(time));
        if key == KeyHash::ANY {
            // Waits for any key look at the last record.
            return;
        }
        self.present.insert(key, (sequence, time));
        if self.present.len() >= HALF_LEN {
            self.former = std::mem::take(&mut self.present);
            self.floor = std::mem::replace(&mut self.turned, self.last);
        }
    }

    /// Records up to this one are not there any more, or cannot be read.
    pub(super) fn skip_to(&mut self, sequence: Sequence) {
        self.last.0 = self.last.0.max(sequence);
    }

    /// Whether none of the records up to the last can meet this wait.
    pub(super) fn has_none_for(&self, key: KeyHash, wait: &RecordWait) -> bool {
        let latest = || {
            let found = self.present.get(&key).or_else(|| self.former.get(&key));
            found.copied()
        };
        match wait.from() {
            WaitFrom::Behind(behind) if behind >= self.last.0 => true,
            WaitFrom::Behind(behind) => {
                key != KeyHash::ANY
                    && behind >= self.floor.0
                    && latest().is_none_or(|(sequence, _)| sequence <= behind)
            }
            WaitFrom::Since(since) if since > self.last.1 => true,
            // An earlier record of the key may have had a later time: then the look is for nothing.
            WaitFrom::Since(since) => key != KeyHash::ANY && since > self.floor.1 && latest().is_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use millrun_core::{Partition, RunId};
    use millrun_workflow::OperationId;
    use proptest::prelude::*;

    use super::*;

    fn wait(from: WaitFrom) -> RecordWait {
        let run = RunId::new(Partition::of(b"a"), Timestamp::EPOCH, 1);
        RecordWait::new(run, OperationId::new(1), from)
    }

    proptest! {
        /// Whatever times and keys the records have.
        #[test]
        fn what_it_says_is_not_there_is_not_there(
            records in proptest::collection::vec((0..5_usize, 0..30_u64), 1..40),
            from in 0..40_u64,
            key in 0..5_usize,
            is_since: bool,
            turn in 2..6_usize,
        ) {
            let keys = [None, Some("a"), Some("b"), Some("c"), Some("d")].map(KeyHash::of);
            let (first, begun) = (Sequence::new(3), Timestamp::from_micros(8));
            let mut recent = RecentRecords::behind(first, begun);
            let mut times: Vec<(Sequence, KeyHash, Timestamp)> = Vec::new();
            for (index, (of, time)) in records.into_iter().enumerate() {
                let (sequence, time) = (Sequence::new(4 + index as u64), Timestamp::from_micros(time));
                recent.note(keys[of], sequence, time);
                times.push((sequence, keys[of], time));
                if index % turn == 0 {
                    recent.former = std::mem::take(&mut recent.present);
                    recent.floor = std::mem::replace(&mut recent.turned, recent.last);
                }
            }
            let key = keys[key];
            let from = match is_since {
                true => WaitFrom::Since(Timestamp::from_micros(from)),
                false => WaitFrom::Behind(Sequence::new(from)),
            };
            let meets = |(sequence, of, time): &(Sequence, KeyHash, Timestamp)| {
                let is_far_enough = match from {
                    WaitFrom::Behind(behind) => *sequence > behind,
                    WaitFrom::Since(since) => *time >= since,
                };
                (key == KeyHash::ANY || *of == key) && is_far_enough
            };
            // Those before the first were appended up to `begun`.
            let may_be_before = match from {
                WaitFrom::Behind(behind) => behind < first,
                WaitFrom::Since(since) => since <= begun,
            };
            if recent.has_none_for(key, &wait(from)) {
                prop_assert!(!times.iter().any(meets) && !may_be_before);
            }
        }
    }
}
