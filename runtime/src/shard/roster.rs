//! The runs a shard knows, found by run and by id.
//!
//! ```text
//!   by_run ─► 17 ─┐      slots: [ entry │ free │ entry │ entry … ]
//!   by_id  ─► 17 ─┴───────────────────────────────▲
//! ```
//!
//! A million runs that wait are a million entries here, so these stand side by side in one list, and
//! what finds them holds four bytes for each. The order of ids is made when somebody asks for a list,
//! from what has come in since the last one: starts and ends are many, lists are few.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::ops::Bound;

use hashbrown::HashTable;
use millrun_core::{InstanceId, RunId};
use rustc_hash::FxBuildHasher;

use super::entry::Entry;

/// More entries of the past than of the present, by so many, are let go of.
const SLACK: usize = 1_024;

#[derive(Debug, Default)]
pub(super) struct Roster {
    slots: Vec<Option<Entry>>,
    free: Vec<u32>,
    by_run: HashTable<u32>,
    /// The latest run of each instance.
    by_id: HashTable<u32>,
    /// Ids are chosen by strangers: their hash has a secret.
    hasher: RandomState,
    /// In order. Some may be the latest no more.
    sorted: BTreeMap<InstanceId, RunId>,
    /// Slots that were filled since the last list.
    unsorted: Vec<u32>,
}

/// The runs' ids are random in their lower half.
fn hash_of(run: RunId) -> u64 {
    FxBuildHasher.hash_one(run)
}

fn at(slots: &[Option<Entry>], slot: u32) -> &Entry {
    slots[slot as usize]
        .as_ref()
        .expect("the tables name filled slots only")
}

impl Roster {
    pub(super) fn get(&self, run: RunId) -> Option<&Entry> {
        self.slot_of(run).map(|slot| at(&self.slots, slot))
    }

    pub(super) fn get_mut(&mut self, run: RunId) -> Option<&mut Entry> {
        let slot = self.slot_of(run)?;
        self.slots[slot as usize].as_mut()
    }

    fn slot_of(&self, run: RunId) -> Option<u32> {
        let slots = &self.slots;
        let found = self.by_run.find(hash_of(run), |slot| at(slots, *slot).run == run);
        found.copied()
    }

    /// The latest run of an instance.
    pub(super) fn latest(&self, id: &InstanceId) -> Option<&Entry> {
        let slots = &self.slots;
        let hash = self.hasher.hash_one(id);
        let found = self.by_id.find(hash, |slot| at(slots, *slot).id == *id);
        found.map(|slot| at(slots, *slot))
    }

    /// Enters a run, the latest of its instance from now on; gives the one that was so far.
    pub(super) fn insert(&mut self, entry: Entry) -> Option<RunId> {
        let (run, id) = (entry.run, entry.id.clone());
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = Some(entry);
                slot
            }
            None => {
                let slot = u32::try_from(self.slots.len()).expect("fewer than 2^32 runs in memory");
                self.slots.push(Some(entry));
                slot
            }
        };
        let slots = &self.slots;
        self.by_run
            .insert_unique(hash_of(run), slot, |slot| hash_of(at(slots, *slot).run));
        let replaced = self.point(&id, slot);
        self.note(slot);
        replaced.map(|former| at(&self.slots, former).run)
    }

    /// Makes a slot that of the latest run of its instance; gives the one that was so far.
    fn point(&mut self, id: &InstanceId, slot: u32) -> Option<u32> {
        let Self {
            slots, by_id, hasher, ..
        } = self;
        let is_it = |slot: &u32| at(slots, *slot).id == *id;
        let hash_of = |slot: &u32| hasher.hash_one(&at(slots, *slot).id);
        match by_id.entry(hasher.hash_one(id), is_it, hash_of) {
            hashbrown::hash_table::Entry::Occupied(mut found) => {
                Some(std::mem::replace(found.get_mut(), slot))
            }
            hashbrown::hash_table::Entry::Vacant(place) => {
                place.insert(slot);
                None
            }
        }
    }

    /// Remembers a slot for the next list.
    fn note(&mut self, slot: u32) {
        if self.unsorted.len() > 2 * self.slots.len() + SLACK {
            self.unsorted.sort_unstable();
            self.unsorted.dedup();
        }
        self.unsorted.push(slot);
    }

    /// Takes a run out. If it is the latest of its instance, that has none from now on.
    pub(super) fn remove(&mut self, run: RunId) -> Option<Entry> {
        let slots = &self.slots;
        let found = self
            .by_run
            .find_entry(hash_of(run), |slot| at(slots, *slot).run == run);
        let (slot, _) = found.ok()?.remove();
        let hash = self.hasher.hash_one(&at(slots, slot).id);
        if let Ok(found) = self.by_id.find_entry(hash, |other| *other == slot) {
            found.remove();
        }
        self.free.push(slot);
        self.slots[slot as usize].take()
    }

    /// Takes a run out, and makes `former` the latest of its instance again.
    pub(super) fn undo(&mut self, run: RunId, former: Option<RunId>) -> Option<Entry> {
        let entry = self.remove(run)?;
        if let Some(slot) = former.and_then(|former| self.slot_of(former)) {
            self.point(&entry.id, slot);
        }
        Some(entry)
    }

    /// All runs, in no particular order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.slots.iter().flatten()
    }

    /// The latest run of each instance in the order of their ids, beginning behind `after`.
    pub(super) fn list(&mut self, after: Option<InstanceId>) -> impl Iterator<Item = &Entry> {
        for slot in std::mem::take(&mut self.unsorted) {
            if let Some(entry) = &self.slots[slot as usize]
                && self
                    .latest(&entry.id)
                    .is_some_and(|latest| latest.run == entry.run)
            {
                let (id, run) = (entry.id.clone(), entry.run);
                self.sorted.insert(id, run);
            }
        }
        if self.sorted.len() > 2 * self.by_id.len() + SLACK {
            let mut sorted = std::mem::take(&mut self.sorted);
            sorted.retain(|id, run| self.latest(id).is_some_and(|latest| latest.run == *run));
            self.sorted = sorted;
        }
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let listed = self.sorted.range((from, Bound::Unbounded));
        listed.filter_map(|(id, run)| self.latest(id).filter(|latest| latest.run == *run))
    }
}

#[cfg(test)]
mod tests {
    use millrun_core::Timestamp;
    use millrun_workflow::Name;

    use super::super::entry::Place;
    use super::*;

    fn entry(id: &InstanceId, number: u64) -> Entry {
        let run = RunId::new(id.partition(), Timestamp::EPOCH, number);
        Entry::new(run, id.clone(), Name::Borrowed("w").into(), Place::Cold)
    }

    #[test]
    fn it_finds_by_run_and_by_id_lists_in_order_and_holds_on_to_nothing() {
        let mut state = 7_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        let mut roster = Roster::default();
        // By id, the runs entered and not taken out, the latest last.
        let mut model: BTreeMap<InstanceId, Vec<RunId>> = BTreeMap::new();
        let latest_of = |model: &BTreeMap<InstanceId, Vec<RunId>>, id: &InstanceId| {
            model.get(id).and_then(|runs| runs.last().copied())
        };
        // Once the latest has been taken out, an instance has none, whatever was before it.
        for step in 0..50_000 {
            let id: InstanceId = format!("i-{}", random(300)).parse().unwrap();
            match random(7) {
                0..3 => {
                    let entry = entry(&id, step);
                    let run = entry.run;
                    let before = latest_of(&model, &id);
                    assert_eq!(roster.insert(entry), before);
                    if random(4) == 0 {
                        assert_eq!(roster.undo(run, before).unwrap().run, run);
                    } else {
                        // At most two at a time: one that has ended, and its successor.
                        if let Some(before) = before {
                            assert_eq!(roster.remove(before).unwrap().run, before);
                        }
                        model.insert(id, vec![run]);
                    }
                }
                3..5 => {
                    let removed = model.remove(&id).and_then(|runs| runs.last().copied());
                    if let Some(run) = removed {
                        assert_eq!(roster.remove(run).unwrap().run, run);
                        assert!(roster.get(run).is_none() && roster.get_mut(run).is_none());
                    }
                }
                5 if random(50) == 0 => {
                    let after = (random(2) == 0).then_some(id);
                    let from = after.clone().map_or(Bound::Unbounded, Bound::Excluded);
                    let expected = model.range((from, Bound::Unbounded));
                    let listed = roster.list(after).map(|entry| (&entry.id, entry.run));
                    assert!(listed.eq(expected.map(|(id, runs)| (id, *runs.last().unwrap()))));
                }
                _ => {
                    let latest = roster.latest(&id).map(|entry| entry.run);
                    assert_eq!(latest, latest_of(&model, &id));
                    assert!(latest.is_none_or(|run| roster.get(run).is_some()));
                }
            }
            assert_eq!(roster.iter().count(), model.len());
            assert!(roster.slots.len() <= 302 && roster.sorted.len() <= 2 * 300 + SLACK);
            assert!(roster.unsorted.len() <= 2 * 302 + SLACK + 1);
        }
    }
}
