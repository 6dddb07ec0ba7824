//! The records that a subscription has in hand: which are delivered until when, and which wait.
//!
//! ```text
//!   taken in ──► ready ──► leased ──► acknowledged
//!      │           ▲          │ time is up, or sent back
//!      └─► held ───┘          ├──► paused ──► ready
//!      behind its key         └──► spent, after so many deliveries ──► buried, which acknowledges it
//! ```
//!
//! Pure: the time is an argument. Only one record of a key at a time is not held. If the subscription holds keys, it keeps
//! holding the key of a buried record until the key is released; while it holds as many keys as it may, no further record
//! with a key is buried.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use millrun_core::Timestamp;
use millrun_persistence::TopicRecord;

use super::acknowledged::Acknowledged;
use super::config::{HELD_KEYS_MAX, SubscriptionBounds};

/// The longest error of a delivery that is kept, in bytes.
const ERROR_BYTES_MAX: usize = 512;

/// The records in hand, and their states.
#[derive(Debug)]
pub(crate) struct RecordsInHand {
    bounds: SubscriptionBounds,
    acknowledged: Acknowledged,
    in_hand: BTreeMap<u64, RecordInHand>,
    /// Records that can be delivered now.
    ready: BTreeSet<u64>,
    /// The ends of leases and pauses.
    due: BTreeSet<(Timestamp, u64)>,
    /// Records that wait behind another one with their key, in order.
    held: HashMap<Arc<str>, VecDeque<u64>>,
    /// Keys that wait behind a buried record, with the number of that record.
    held_keys: BTreeMap<Box<str>, u64>,
    /// Records that are to be buried.
    spent: VecDeque<u64>,
    /// For deliveries before this process: their number, and why the record came back.
    earlier: BTreeMap<u64, Returned>,
    next_lease: u64,
    /// Incremented with each change that has to be kept.
    version: u64,
}

/// A record that has come back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Returned {
    pub(crate) deliveries: u32,
    pub(crate) error: Option<Box<str>>,
}

#[derive(Debug)]
struct RecordInHand {
    record: TopicRecord,
    key: Option<Arc<str>>,
    returned: Returned,
    /// How often it was postponed since it was taken in hand.
    postponed: u32,
    state: InHandState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InHandState {
    Held,
    Ready,
    Leased { lease: u64, until: Timestamp },
    Paused { until: Timestamp },
    Spent,
}

/// A record that is delivered to a consumer.
#[derive(Debug)]
pub(crate) struct LeasedRecord {
    pub(crate) record: TopicRecord,
    pub(crate) lease: u64,
    /// How often it was delivered, including this time.
    pub(crate) deliveries: u32,
    pub(crate) last_error: Option<Box<str>>,
    /// How often it was postponed.
    pub(crate) postponed: u32,
}

/// The lease of a delivery has ended: another consumer may have the record, or it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotLeased;

impl RecordsInHand {
    pub(crate) fn new(
        bounds: SubscriptionBounds,
        acknowledged: Acknowledged,
        earlier: BTreeMap<u64, Returned>,
    ) -> Self {
        Self {
            bounds,
            acknowledged,
            in_hand: BTreeMap::new(),
            ready: BTreeSet::new(),
            due: BTreeSet::new(),
            held: HashMap::new(),
            held_keys: BTreeMap::new(),
            spent: VecDeque::new(),
            earlier,
            next_lease: 1,
            version: 0,
        }
    }

    /// Restores held keys, unless the subscription holds no keys any more.
    pub(crate) fn with_held_keys(mut self, held_keys: BTreeMap<Box<str>, u64>) -> Self {
        if self.bounds.holds_keys {
            let entries = held_keys.keys().map(|key| (Arc::from(&**key), VecDeque::new()));
            self.held = entries.collect();
            self.held_keys = held_keys;
        }
        self
    }

    /// The keys that wait behind a buried record, each with the record's number.
    pub(crate) fn held_keys(&self) -> &BTreeMap<Box<str>, u64> {
        &self.held_keys
    }

    /// Releases a key that waits behind a buried record. Returns whether it was held.
    pub(crate) fn release_key(&mut self, key: &str) -> bool {
        let Some((key, _)) = self.held_keys.remove_entry(key) else {
            return false;
        };
        self.version += 1;
        self.next_of(key.into());
        true
    }

    /// Releases the key that waits behind this buried record.
    pub(crate) fn release_behind(&mut self, buried: u64) -> bool {
        let mut held = self.held_keys.iter();
        let key = held.find_map(|(key, sequence)| (*sequence == buried).then(|| key.clone()));
        key.is_some_and(|key| self.release_key(&key))
    }

    pub(crate) fn acknowledged(&self) -> &Acknowledged {
        &self.acknowledged
    }

    /// Incremented with each change that has to be kept.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// The records that have come back, to be kept.
    pub(crate) fn returned(&self) -> impl Iterator<Item = (u64, &Returned)> + '_ {
        let in_hand = self
            .in_hand
            .iter()
            .map(|(sequence, in_hand)| (*sequence, &in_hand.returned));
        let earlier = self
            .earlier
            .iter()
            .map(|(sequence, returned)| (*sequence, returned));
        in_hand
            .filter(|(_, returned)| returned.deliveries > 0)
            .chain(earlier)
    }

    /// How many records it has in hand.
    pub(crate) fn len(&self) -> usize {
        self.in_hand.len()
    }

    /// How many of them are delivered to consumers.
    pub(crate) fn leased_len(&self) -> usize {
        let is_leased = |in_hand: &&RecordInHand| matches!(in_hand.state, InHandState::Leased { .. });
        self.in_hand.values().filter(is_leased).count()
    }

    /// Whether this record is given to a consumer.
    pub(crate) fn is_leased(&self, sequence: u64) -> bool {
        let state = self.in_hand.get(&sequence).map(|in_hand| in_hand.state);
        matches!(state, Some(InHandState::Leased { .. }))
    }

    /// The first record in hand that is not acknowledged, with the time at which it was appended.
    pub(crate) fn oldest(&self) -> Option<(u64, Timestamp)> {
        let (sequence, in_hand) = self.in_hand.first_key_value()?;
        Some((*sequence, in_hand.record.time))
    }

    /// Whether there is room for another record.
    pub(crate) fn has_room(&self) -> bool {
        self.in_hand.len() < self.bounds.in_flight_max
    }

    /// Takes a record in hand, unless it is acknowledged. Records come in the order of their sequences.
    pub(crate) fn take_in(&mut self, record: TopicRecord, key: Option<&str>) {
        let sequence = record.sequence.get();
        if self.acknowledged.has(sequence) {
            return;
        }
        let key: Option<Arc<str>> = key.filter(|_| self.bounds.is_ordered).map(Into::into);
        let mut is_held = false;
        if let Some(key) = &key {
            match self.held.entry(Arc::clone(key)) {
                Entry::Occupied(mut held) => {
                    held.get_mut().push_back(sequence);
                    is_held = true;
                }
                Entry::Vacant(first) => {
                    first.insert(VecDeque::new());
                }
            }
        }
        let returned = self.earlier.remove(&sequence).unwrap_or_default();
        let in_hand = RecordInHand {
            record,
            key,
            returned,
            postponed: 0,
            state: InHandState::Held,
        };
        self.in_hand.insert(sequence, in_hand);
        if !is_held {
            self.release(sequence);
        }
    }

    /// Lets a waiting record be delivered, or buried if it was delivered too often before this process.
    fn release(&mut self, sequence: u64) {
        let Some(in_hand) = self.in_hand.get_mut(&sequence) else {
            return;
        };
        if self.bounds.is_spent(&in_hand.returned) {
            in_hand.state = InHandState::Spent;
            self.spent.push_back(sequence);
        } else {
            in_hand.state = InHandState::Ready;
            self.ready.insert(sequence);
        }
    }

    /// Skips records of this range, which do not exist any more.
    pub(crate) fn pass_over(&mut self, first: u64, last: u64) {
        self.acknowledged.add_range(first, last);
        self.earlier
            .retain(|sequence, _| *sequence < first || *sequence > last);
        self.version += 1;
    }

    /// Ends the leases and pauses that are over at `now`.
    fn wake(&mut self, now: Timestamp) {
        while let Some((until, sequence)) = self.due.first().copied()
            && until <= now
        {
            self.due.remove(&(until, sequence));
            let is_leased = |in_hand: &RecordInHand| matches!(in_hand.state, InHandState::Leased { .. });
            if self.in_hand.get(&sequence).is_some_and(is_leased) {
                self.come_back(sequence, None, Some("its lease has ended without an answer"));
            } else if let Some(in_hand) = self.in_hand.get_mut(&sequence) {
                in_hand.state = InHandState::Ready;
                self.ready.insert(sequence);
            }
        }
    }

    /// Whether there is a record to deliver.
    pub(crate) fn is_ready(&mut self, now: Timestamp) -> bool {
        self.wake(now);
        !self.ready.is_empty()
    }

    /// Delivers the next record, until its lease ends.
    pub(crate) fn give(&mut self, now: Timestamp) -> Option<LeasedRecord> {
        self.wake(now);
        let sequence = self.ready.pop_first()?;
        let in_hand = self.in_hand.get_mut(&sequence)?;
        let (lease, until) = (self.next_lease, now + self.bounds.lease);
        self.next_lease += 1;
        in_hand.state = InHandState::Leased { lease, until };
        self.due.insert((until, sequence));
        Some(LeasedRecord {
            record: in_hand.record.clone(),
            lease,
            deliveries: in_hand.returned.deliveries.saturating_add(1),
            last_error: in_hand.returned.error.clone(),
            postponed: in_hand.postponed,
        })
    }

    /// When a lease or a pause ends next.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.due.first().map(|(until, _)| *until)
    }

    fn leased(&mut self, sequence: u64, lease: u64) -> Result<&mut RecordInHand, NotLeased> {
        let in_hand = self.in_hand.get_mut(&sequence).ok_or(NotLeased)?;
        match in_hand.state {
            InHandState::Leased { lease: present, .. } if present == lease => Ok(in_hand),
            _ => Err(NotLeased),
        }
    }

    /// The consumer acknowledges a record.
    pub(crate) fn acknowledge(&mut self, sequence: u64, lease: u64, now: Timestamp) -> Result<(), NotLeased> {
        self.wake(now);
        self.leased(sequence, lease)?;
        self.finish(sequence);
        Ok(())
    }

    /// The consumer acknowledges a record, and all earlier ones that are delivered.
    pub(crate) fn acknowledge_through(
        &mut self,
        sequence: u64,
        lease: u64,
        now: Timestamp,
    ) -> Result<(), NotLeased> {
        self.acknowledge(sequence, lease, now)?;
        let before = self.in_hand.range(..sequence);
        let leased = before.filter(|(_, in_hand)| matches!(in_hand.state, InHandState::Leased { .. }));
        let leased: Vec<_> = leased.map(|(sequence, _)| *sequence).collect();
        for sequence in leased {
            self.finish(sequence);
        }
        Ok(())
    }

    /// The consumer sends a record back, to be delivered again after `pause`.
    pub(crate) fn send_back(
        &mut self,
        sequence: u64,
        lease: u64,
        (pause, error, now): (Duration, &str, Timestamp),
    ) -> Result<(), NotLeased> {
        self.wake(now);
        self.leased(sequence, lease)?;
        let until = (!pause.is_zero()).then(|| now + pause);
        self.come_back(sequence, until, Some(error));
        Ok(())
    }

    /// The consumer sends a record back for a reason that is not the record's fault: this does not count as a delivery, and
    /// nothing has to be kept.
    pub(crate) fn postpone(
        &mut self,
        sequence: u64,
        lease: u64,
        (pause, now): (Duration, Timestamp),
    ) -> Result<(), NotLeased> {
        self.wake(now);
        let in_hand = self.leased(sequence, lease)?;
        let until = now + pause;
        let before = std::mem::replace(&mut in_hand.state, InHandState::Paused { until });
        in_hand.postponed = in_hand.postponed.saturating_add(1);
        if let InHandState::Leased { until, .. } = before {
            self.due.remove(&(until, sequence));
        }
        self.due.insert((until, sequence));
        Ok(())
    }

    /// A delivered record comes back, and can be delivered again from `until` on.
    fn come_back(&mut self, sequence: u64, until: Option<Timestamp>, error: Option<&str>) {
        let Some(in_hand) = self.in_hand.get_mut(&sequence) else {
            return;
        };
        if let InHandState::Leased { until, .. } = in_hand.state {
            self.due.remove(&(until, sequence));
        }
        in_hand.returned.deliveries = in_hand.returned.deliveries.saturating_add(1);
        in_hand.returned.error = error.map(|error| cut(error).into());
        self.version += 1;
        let is_spent = self.bounds.is_spent(&in_hand.returned);
        in_hand.state = match until {
            _ if is_spent => {
                self.spent.push_back(sequence);
                InHandState::Spent
            }
            Some(until) => {
                self.due.insert((until, sequence));
                InHandState::Paused { until }
            }
            None => {
                self.ready.insert(sequence);
                InHandState::Ready
            }
        };
    }

    /// Marks a record that no consumer can take: it is buried at once.
    pub(crate) fn spend(&mut self, sequence: u64, lease: u64, error: &str) {
        if let Ok(in_hand) = self.leased(sequence, lease) {
            let deliveries = in_hand.returned.deliveries.saturating_add(1);
            in_hand.returned = Returned {
                deliveries,
                error: Some(cut(error).into()),
            };
            if let InHandState::Leased { until, .. } = in_hand.state {
                in_hand.state = InHandState::Spent;
                self.due.remove(&(until, sequence));
            }
            self.spent.push_back(sequence);
            self.version += 1;
        }
    }

    /// The next record to be buried, with its last error. While as many keys are held as may be, only one without a key.
    pub(crate) fn next_spent(&self) -> Option<(&TopicRecord, &Returned)> {
        let is_full = self.bounds.holds_keys && self.held_keys.len() >= HELD_KEYS_MAX;
        let mut spent = self.spent.iter().filter_map(|at| self.in_hand.get(at));
        let in_hand = spent.find(|in_hand| !is_full || in_hand.key.is_none())?;
        Some((&in_hand.record, &in_hand.returned))
    }

    /// A record is buried. Its key is held from now on, unless the record was sent back already.
    pub(crate) fn buried(&mut self, sequence: u64, is_sent_back: bool) {
        self.spent.retain(|spent| *spent != sequence);
        let Some(key) = self.take_out(sequence) else {
            return;
        };
        if self.bounds.holds_keys && !is_sent_back {
            self.held_keys.insert(Box::from(&*key), sequence);
        } else {
            self.next_of(key);
        }
    }

    /// A record is finished: the next one of its key may be delivered.
    fn finish(&mut self, sequence: u64) {
        if let Some(key) = self.take_out(sequence) {
            self.next_of(key);
        }
    }

    /// Removes a record that is finished. Returns its key, if it has one.
    fn take_out(&mut self, sequence: u64) -> Option<Arc<str>> {
        let in_hand = self.in_hand.remove(&sequence)?;
        match in_hand.state {
            InHandState::Leased { until, .. } | InHandState::Paused { until } => {
                self.due.remove(&(until, sequence));
            }
            InHandState::Ready | InHandState::Held | InHandState::Spent => {}
        }
        self.acknowledged.add(sequence);
        self.version += 1;
        in_hand.key
    }

    /// Lets the next record of a key be delivered.
    fn next_of(&mut self, key: Arc<str>) {
        if let Entry::Occupied(mut held) = self.held.entry(key) {
            match held.get_mut().pop_front() {
                Some(next) => self.release(next),
                None => drop(held.remove()),
            }
        }
    }
}

impl SubscriptionBounds {
    /// Whether a record that came back has used up its deliveries.
    fn is_spent(&self, returned: &Returned) -> bool {
        self.deliveries_max.is_some_and(|max| returned.deliveries >= max)
    }
}

/// The part of an error that is kept.
fn cut(error: &str) -> &str {
    let mut end = error.len().min(ERROR_BYTES_MAX);
    while !error.is_char_boundary(end) {
        end -= 1;
    }
    &error[..end]
}

#[cfg(test)]
mod tests;
