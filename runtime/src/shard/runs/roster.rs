//! The runs that a shard knows, found by run and by id.
//!
//! ```text
//!   by_run ─► 17 ─┐      slots: [ run, asleep │ free │ run, awake: 4 │ run, asleep … ]
//!   by_id  ─► 17 ─┴─────────────────▲                         │
//!                        awake: [ entry │ free │ … │ entry ] ◄┘
//! ```
//!
//! A million waiting runs are a million slots here, so the slots stand side by side in one list, and each index holds four
//! bytes for a run. [Sleeping](super::asleep) runs have nothing else; a change to one wakes it. The
//! [order](super::start_order) in which runs began is kept for searches: eight bytes for each run.

use std::cell::Cell;
use std::hash::BuildHasher;
use std::ops::Range;

use hashbrown::HashTable;
use millrun_core::{InstanceId, RunId, Timestamp};
use millrun_workflow::Parent;
use rustc_hash::FxBuildHasher;

use super::asleep::{Names, Sleeper};
use super::entry::{Entry, Parking, Residence, WorkflowName};
use super::id_hash::IdHasher;
use super::line::Spot;
use super::results::ResultNumber;
use super::start_order::{StartKey, StartOrder, StartWalk, Walked};

#[derive(Debug, Default)]
pub(in crate::shard) struct Roster {
    slots: Vec<Slot>,
    free: Vec<u32>,
    awake: Vec<Option<Entry>>,
    awake_free: Vec<u32>,
    names: Names,
    by_run: HashTable<u32>,
    /// The latest run of each instance.
    by_id: HashTable<u32>,
    hasher: IdHasher,
    /// All runs, in the order in which they began.
    order: StartOrder,
    /// The run that was found last, if awake: the next lookup is often for the same run.
    last: Cell<Option<Found>>,
}

/// The place of a run that is awake.
#[derive(Clone, Copy, Debug)]
struct Found {
    run: RunId,
    slot: u32,
    place: u32,
}

#[derive(Debug)]
struct Slot {
    /// The run in this slot; in a free slot, its last run.
    run: RunId,
    state: SlotState,
}

#[derive(Debug)]
enum SlotState {
    Free,
    Asleep(Sleeper),
    /// Its place in the list of entries.
    Awake(u32),
}

/// What can be told of a run without waking it.
#[derive(Clone, Copy, Debug)]
pub(in crate::shard) struct Known<'a> {
    pub(in crate::shard) run: RunId,
    pub(in crate::shard) id: &'a str,
    pub(in crate::shard) workflow: &'a WorkflowName,
    pub(in crate::shard) parking: Parking,
    entry: Option<&'a Entry>,
}

impl<'a> Known<'a> {
    pub(in crate::shard) fn is_parked(&self) -> bool {
        self.parking.is_parked()
    }

    /// The run that called it, if it is a child.
    pub(in crate::shard) fn parent(&self) -> Option<&'a Parent> {
        self.entry?.parent()
    }

    /// Its result, if it has ended.
    pub(in crate::shard) fn result(&self) -> Option<ResultNumber> {
        match self.entry?.residence {
            Residence::Ended(number) => Some(number),
            Residence::Cold | Residence::Loading(_) | Residence::Hot(_) => None,
        }
    }

    pub(in crate::shard) fn has_ended(&self) -> bool {
        self.result().is_some()
    }

    /// Whether it is only on disk, and is not being read.
    pub(in crate::shard) fn is_on_disk(&self) -> bool {
        self.entry
            .is_none_or(|entry| matches!(entry.residence, Residence::Cold))
    }
}

/// The id of the run in a slot; empty for a free slot.
fn id_at<'a>(slots: &'a [Slot], awake: &'a [Option<Entry>], slot: u32) -> &'a str {
    match &slots[slot as usize].state {
        SlotState::Free => "",
        SlotState::Asleep(sleeper) => sleeper.id(),
        SlotState::Awake(place) => awake[*place as usize]
            .as_ref()
            .map_or("", |entry| entry.id.as_str()),
    }
}

/// The run of a spot, if it is still in its slot.
fn run_in(slots: &[Slot], spot: Spot) -> Option<RunId> {
    let Slot { run, state } = slots.get(spot.slot as usize)?;
    (spot.is_of(*run) && !matches!(state, SlotState::Free)).then_some(*run)
}

/// The lower half of a run's id is random, so a simple hash will do.
fn hash_of(run: RunId) -> u64 {
    FxBuildHasher.hash_one(run)
}

impl Roster {
    /// The entry of a run that is awake.
    #[inline]
    pub(in crate::shard) fn get(&self, run: RunId) -> Option<&Entry> {
        let place = match self.last.get() {
            Some(last) if last.run == run => last.place,
            _ => self.find(run)?.place,
        };
        self.awake[place as usize].as_ref()
    }

    /// The entry of a run, which is woken if it sleeps.
    #[inline]
    pub(in crate::shard) fn get_mut(&mut self, run: RunId) -> Option<&mut Entry> {
        let place = match self.last.get() {
            Some(last) if last.run == run => last.place,
            _ => self.rouse(run)?.place,
        };
        self.awake[place as usize].as_mut()
    }

    /// Whether a run is known, awake or not.
    pub(in crate::shard) fn contains(&self, run: RunId) -> bool {
        self.slot_of(run).is_some()
    }

    /// A small value that finds the run later, as long as it is in the roster.
    pub(in crate::shard) fn spot(&self, run: RunId) -> Option<Spot> {
        let slot = match self.last.get() {
            Some(last) if last.run == run => last.slot,
            _ => self.slot_of(run)?,
        };
        Some(Spot::new(slot, run))
    }

    /// The run of a spot, if it is still in its slot.
    pub(in crate::shard) fn run_at(&self, spot: Spot) -> Option<RunId> {
        run_in(&self.slots, spot)
    }

    /// Puts a run to sleep that is only on disk and for which no caller waits.
    pub(in crate::shard) fn put_to_sleep(&mut self, run: RunId) {
        let Some(slot) = self.slot_of(run) else { return };
        let SlotState::Awake(place) = self.slots[slot as usize].state else {
            return;
        };
        let Some(entry) = self.awake[place as usize].take() else {
            return;
        };
        self.last.set(None);
        match self.names.put_to_sleep(entry) {
            Ok(sleeper) => {
                self.slots[slot as usize].state = SlotState::Asleep(sleeper);
                self.awake_free.push(place);
            }
            Err(entry) => self.awake[place as usize] = Some(entry),
        }
    }

    /// The place of a run that is awake.
    fn find(&self, run: RunId) -> Option<Found> {
        let slot = self.slot_of(run)?;
        let SlotState::Awake(place) = self.slots[slot as usize].state else {
            return None;
        };
        let found = Found { run, slot, place };
        self.last.set(Some(found));
        Some(found)
    }

    /// The place of a run, which is woken if it sleeps.
    fn rouse(&mut self, run: RunId) -> Option<Found> {
        let slot = self.slot_of(run)?;
        let place = match &mut self.slots[slot as usize].state {
            SlotState::Free => return None,
            SlotState::Awake(place) => *place,
            state @ SlotState::Asleep(_) => {
                let SlotState::Asleep(sleeper) = std::mem::replace(state, SlotState::Free) else {
                    return None;
                };
                self.wake(slot, run, &sleeper)
            }
        };
        let found = Found { run, slot, place };
        self.last.set(Some(found));
        Some(found)
    }

    fn wake(&mut self, slot: u32, run: RunId, sleeper: &Sleeper) -> u32 {
        let entry = self.awaken(run, sleeper);
        let place = self.place(entry);
        self.slots[slot as usize].state = SlotState::Awake(place);
        place
    }

    fn awaken(&self, run: RunId, sleeper: &Sleeper) -> Entry {
        let id = InstanceId::new(sleeper.id()).expect("it was the id of an instance");
        let mut entry = Entry::new(run, id, self.names.of(sleeper).clone(), Residence::Cold);
        entry.parking = sleeper.parking;
        entry
    }

    /// Puts an entry into the list of those awake, and returns its place.
    fn place(&mut self, entry: Entry) -> u32 {
        match self.awake_free.pop() {
            Some(place) => {
                self.awake[place as usize] = Some(entry);
                place
            }
            None => {
                let place = u32::try_from(self.awake.len()).expect("fewer than 2^32 runs in memory");
                self.awake.push(Some(entry));
                place
            }
        }
    }

    fn slot_of(&self, run: RunId) -> Option<u32> {
        let is_it = |slot: &u32| self.slots[*slot as usize].run == run;
        self.by_run.find(hash_of(run), is_it).copied()
    }

    /// What is known of a run, awake or not.
    pub(in crate::shard) fn known(&self, run: RunId) -> Option<Known<'_>> {
        self.slot_of(run).and_then(|slot| self.known_at(slot))
    }

    fn known_at(&self, slot: u32) -> Option<Known<'_>> {
        let Slot { run, state } = &self.slots[slot as usize];
        match state {
            SlotState::Free => None,
            SlotState::Asleep(sleeper) => Some(Known {
                run: *run,
                id: sleeper.id(),
                workflow: self.names.of(sleeper),
                parking: sleeper.parking,
                entry: None,
            }),
            SlotState::Awake(place) => {
                let entry = self.awake[*place as usize].as_ref()?;
                Some(Known {
                    run: *run,
                    id: entry.id.as_str(),
                    workflow: &entry.workflow,
                    parking: entry.parking,
                    entry: Some(entry),
                })
            }
        }
    }

    fn slot_of_latest(&self, id: &str) -> Option<u32> {
        let is_it = |slot: &u32| id_at(&self.slots, &self.awake, *slot) == id;
        self.by_id.find(self.hasher.hash(id), is_it).copied()
    }

    /// The latest run of an instance.
    pub(in crate::shard) fn latest(&self, id: &InstanceId) -> Option<Known<'_>> {
        self.slot_of_latest(id.as_str())
            .and_then(|slot| self.known_at(slot))
    }

    /// Enters a run as the latest of its instance. Returns the run that was the latest before.
    pub(in crate::shard) fn insert(&mut self, entry: Entry) -> Option<RunId> {
        let run = entry.run;
        let state = if entry.can_sleep() {
            match self.names.put_to_sleep(entry) {
                Ok(sleeper) => SlotState::Asleep(sleeper),
                Err(entry) => SlotState::Awake(self.place(entry)),
            }
        } else {
            SlotState::Awake(self.place(entry))
        };
        let place = match state {
            SlotState::Awake(place) => Some(place),
            SlotState::Free | SlotState::Asleep(_) => None,
        };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = Slot { run, state };
                slot
            }
            None => {
                let slot = u32::try_from(self.slots.len()).expect("fewer than 2^32 runs in memory");
                self.slots.push(Slot { run, state });
                slot
            }
        };
        let slots = &self.slots;
        self.by_run
            .insert_unique(hash_of(run), slot, |slot| hash_of(slots[*slot as usize].run));
        if let Some(place) = place {
            self.last.set(Some(Found { run, slot, place }));
        }
        let by_run_len = self.by_run.len();
        let slots = &self.slots;
        self.order
            .push(Spot::new(slot, run), run, by_run_len, |spot| run_in(slots, spot));
        let replaced = self.point(slot);
        replaced.map(|former| self.slots[former as usize].run)
    }

    /// Makes the run in a slot the latest of its instance. Returns the slot of the former latest run.
    fn point(&mut self, slot: u32) -> Option<u32> {
        let Self {
            slots,
            awake,
            by_id,
            hasher,
            ..
        } = self;
        let id_of = |slot: u32| id_at(slots, awake, slot);
        let id = id_of(slot);
        let is_it = |other: &u32| id_of(*other) == id;
        match by_id.entry(hasher.hash(id), is_it, |other| hasher.hash(id_of(*other))) {
            hashbrown::hash_table::Entry::Occupied(mut found) => {
                Some(std::mem::replace(found.get_mut(), slot))
            }
            hashbrown::hash_table::Entry::Vacant(place) => {
                place.insert(slot);
                None
            }
        }
    }

    /// Removes a run. If it is the latest of its instance, the instance has no latest run afterwards.
    pub(in crate::shard) fn remove(&mut self, run: RunId) -> Option<Entry> {
        let slots = &self.slots;
        let is_it = |slot: &u32| slots[*slot as usize].run == run;
        let (slot, _) = self.by_run.find_entry(hash_of(run), is_it).ok()?.remove();
        self.last.set(None);
        let entry = match std::mem::replace(&mut self.slots[slot as usize].state, SlotState::Free) {
            SlotState::Free => return None,
            SlotState::Asleep(sleeper) => self.awaken(run, &sleeper),
            SlotState::Awake(place) => {
                self.awake_free.push(place);
                self.awake[place as usize].take()?
            }
        };
        let hash = self.hasher.hash(entry.id.as_str());
        if let Ok(found) = self.by_id.find_entry(hash, |other| *other == slot) {
            found.remove();
        }
        self.free.push(slot);
        Some(entry)
    }

    /// Removes a run, and makes `former` the latest of its instance again.
    pub(in crate::shard) fn undo(&mut self, run: RunId, former: Option<RunId>) -> Option<Entry> {
        let entry = self.remove(run)?;
        if let Some(slot) = former.and_then(|former| self.slot_of(former)) {
            self.point(slot);
        }
        Some(entry)
    }

    /// All runs, in no particular order.
    pub(in crate::shard) fn iter(&self) -> impl Iterator<Item = Known<'_>> {
        self.by_run.iter().filter_map(|slot| self.known_at(*slot))
    }

    /// The number of slots, free ones included.
    pub(in crate::shard) fn slots_len(&self) -> usize {
        self.slots.len()
    }

    /// The runs in these slots, in no particular order.
    pub(in crate::shard) fn in_slots(&self, slots: Range<usize>) -> impl Iterator<Item = Known<'_>> {
        slots.filter_map(|slot| self.known_at(u32::try_from(slot).ok()?))
    }

    /// Begins a walk over the runs that began no later than `before` and before `until`. It may visit some later ones too,
    /// see [`StartOrder`].
    pub(in crate::shard) fn begin_walk(&mut self, before: Option<StartKey>, until: Timestamp) -> StartWalk {
        let before = before.map_or(u64::MAX, StartKey::millis);
        self.order.begin(Some(before.min(until.as_millis())))
    }

    /// An upper bound for the beginnings of the runs that a walk has not visited yet.
    pub(in crate::shard) fn latest_left(&self, walk: &StartWalk) -> Option<Timestamp> {
        let millis = self.order.latest_left(walk)?;
        Some(Timestamp::from_micros(millis.saturating_mul(1_000)))
    }

    /// Ends a walk.
    pub(in crate::shard) fn end_walk(&mut self, walk: StartWalk) {
        self.order.end(walk);
    }

    /// Visits the next runs of a walk, see [`StartOrder::walk`].
    pub(in crate::shard) fn walk(
        &self,
        walk: &mut StartWalk,
        len_max: usize,
        mut visit: impl FnMut(Known<'_>),
    ) -> (Walked, usize) {
        self.order.walk(walk, len_max, |spot| {
            if self.run_at(spot).is_some()
                && let Some(known) = self.known_at(spot.slot)
            {
                visit(known);
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    fn entry(id: &InstanceId, number: u64) -> Entry {
        let run = RunId::new(id.partition(), Timestamp::EPOCH, number);
        let name = if number.is_multiple_of(2) { "even" } else { "odd" };
        let mut entry = Entry::new(run, id.clone(), WorkflowName::Known(name), Residence::Cold);
        if number.is_multiple_of(3) {
            entry.parking = Parking::Parked;
        }
        if number.is_multiple_of(5) {
            entry.residence = Residence::Loading(Box::default());
        }
        entry
    }

    #[test]
    fn it_finds_by_run_and_by_id_lists_in_order_and_holds_on_to_nothing() {
        let mut state = 7_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        let mut roster = Roster::default();
        assert!(size_of::<Slot>() <= 48);
        // By id: the runs entered and not removed, the latest last.
        let mut model: BTreeMap<InstanceId, Vec<RunId>> = BTreeMap::new();
        let latest_of = |model: &BTreeMap<InstanceId, Vec<RunId>>, id: &InstanceId| {
            model.get(id).and_then(|runs| runs.last().copied())
        };
        // Former spots of removed runs.
        let mut left: Vec<Spot> = Vec::new();
        // Once the latest run of an instance is removed, the instance has no latest run, whatever came before.
        for step in 0..50_000 {
            let id: InstanceId = format!("i-{}", random(300)).parse().unwrap();
            match random(9) {
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
                        let spot = roster.spot(run).unwrap();
                        assert_eq!(roster.run_at(spot), Some(run));
                        assert_eq!(roster.remove(run).unwrap().run, run);
                        left.push(spot);
                        assert!(!roster.contains(run));
                        assert!(roster.get(run).is_none() && roster.get_mut(run).is_none());
                    }
                }
                5 if random(50) == 0 => {
                    let all: BTreeSet<_> = model.values().flatten().copied().collect();
                    let listed = roster.in_slots(0..roster.slots_len());
                    assert_eq!(listed.map(|known| known.run).collect::<BTreeSet<_>>(), all);
                    let (mut walk, mut walked) = (roster.begin_walk(None, Timestamp::MAX), BTreeSet::new());
                    while roster.walk(&mut walk, 50, |known| _ = walked.insert(known.run)).0 != Walked::All {}
                    roster.end_walk(walk);
                    assert_eq!(walked, all);
                }
                7 => {
                    // It is woken with what is known of it, and sleeps again if it can.
                    let Some(run) = latest_of(&model, &id) else {
                        continue;
                    };
                    let number = u64::try_from(run.bits() & u128::from(u64::MAX)).unwrap();
                    let is_awake = roster.get(run).is_some();
                    assert!(!number.is_multiple_of(5) || is_awake);
                    let before = roster
                        .latest(&id)
                        .map(|known| (known.is_parked(), known.id.to_owned()));
                    assert_eq!(before, Some((number.is_multiple_of(3), id.to_string())));
                    let woken = roster.get_mut(run).unwrap();
                    assert_eq!((woken.run, &woken.id), (run, &id));
                    assert_eq!(woken.is_parked(), number.is_multiple_of(3));
                    let name = if number.is_multiple_of(2) { "even" } else { "odd" };
                    assert_eq!(woken.workflow.as_str(), name);
                    if random(2) == 0 {
                        roster.put_to_sleep(run);
                        assert_eq!(roster.get(run).is_some(), number.is_multiple_of(5));
                    }
                }
                _ => {
                    let latest = roster.latest(&id).map(|entry| entry.run);
                    assert_eq!(latest, latest_of(&model, &id));
                    assert!(latest.is_none_or(|run| roster.contains(run)));
                }
            }
            assert_eq!(roster.iter().count(), model.len());
            if left.len() == 100 {
                assert!(left.drain(..).all(|spot| roster.run_at(spot).is_none()));
            }
            assert!(roster.awake.len() <= 302 && roster.slots.len() <= 302);
        }
    }
}
