//! What the stage's lock protects.
//!
//! Plain data: every method runs under the lock, and none calls foreign code or drops an envelope.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::delivery::Bundle;
use crate::envelope::Envelope;
use crate::mailbox::Reach;

/// The shared envelopes that some inbox has not fetched.
pub(super) struct StageState<T> {
    generation: u64,
    /// How often the knowledge about room was withdrawn.
    withdrawn: u64,
    /// How many envelopes there have been, and their weight.
    values: u64,
    weight: u64,
    /// Up to how many values, and to which weight, all inboxes certainly have room.
    values_max: u64,
    weight_max: u64,
    /// The newest envelopes, which no inbox has seen.
    open: Vec<Arc<Envelope<T>>>,
    open_weight: u32,
    bundles: VecDeque<WaitingBundle<T>>,
    /// How many bundles came before those.
    gone: u64,
    /// By place: whether there is an inbox, and whether it must be rung.
    places: Vec<StagePlace>,
    /// How many there are.
    inboxes: usize,
    /// The places that must be rung at the next envelope.
    listed: Vec<usize>,
    /// The inbox to ask next on behalf of all.
    spokesman: usize,
    bounds: BundleBounds,
}

#[derive(Clone, Copy, Default)]
struct StagePlace {
    taken: bool,
    listed: bool,
}

/// A bundle that some inboxes have not fetched.
struct WaitingBundle<T> {
    bundle: Arc<Bundle<Envelope<T>>>,
    inboxes: usize,
}

/// When a bundle is closed at the latest: it has this many envelopes, or one more would be too heavy.
#[derive(Clone, Copy)]
pub(super) struct BundleBounds {
    pub(super) len: usize,
    pub(super) weight: u32,
}

impl BundleBounds {
    pub(super) const NONE: Self = Self {
        len: usize::MAX,
        weight: u32::MAX,
    };
}

impl<T> StageState<T> {
    pub(super) const fn new() -> Self {
        Self {
            generation: 0,
            withdrawn: 0,
            values: 0,
            weight: 0,
            values_max: 0,
            weight_max: 0,
            open: Vec::new(),
            open_weight: 0,
            bundles: VecDeque::new(),
            gone: 0,
            places: Vec::new(),
            inboxes: 0,
            listed: Vec::new(),
            spokesman: 0,
            bounds: BundleBounds::NONE,
        }
    }

    /// A publisher with another generation than this has an older route.
    #[inline]
    pub(super) const fn generation(&self) -> u64 {
        self.generation
    }

    /// The inboxes are about to change.
    pub(super) fn begin_generation(&mut self, bounds: BundleBounds) -> u64 {
        self.seal();
        self.bounds = bounds;
        self.generation += 1;
        self.withdraw();
        self.generation
    }

    /// Changes with each [`StageState::withdraw`].
    pub(super) const fn withdrawn(&self) -> u64 {
        self.withdrawn
    }

    /// From now on nothing is pushed before the inboxes have been asked for room again.
    pub(super) const fn withdraw(&mut self) {
        self.withdrawn += 1;
        self.values_max = self.values;
        self.weight_max = self.weight;
    }

    /// All inboxes have room up to here.
    pub(super) const fn grant(&mut self, (values, weight): (u64, u64)) {
        self.values_max = values;
        self.weight_max = weight;
    }

    /// Up to what an inbox must have room, for this much to be pushed.
    pub(super) const fn room_for(&self, count: usize, weight: u64) -> (u64, u64) {
        (self.values + count as u64, self.weight.saturating_add(weight))
    }

    #[inline]
    pub(super) const fn has_room(&self, count: usize, weight: u64) -> bool {
        let (values, weight) = self.room_for(count, weight);
        values <= self.values_max && weight <= self.weight_max
    }

    #[inline]
    pub(super) const fn inboxes(&self) -> usize {
        self.inboxes
    }

    /// Adds an envelope that there is room for.
    #[inline]
    pub(super) fn push(&mut self, envelope: Arc<Envelope<T>>) {
        let weight = envelope.mailbox_weight();
        if weight > self.bounds.weight - self.open_weight.min(self.bounds.weight) {
            self.seal();
        }
        self.values += 1;
        self.weight += u64::from(weight);
        // An envelope that is too heavy for any bundle gets its own bundle, closed by the next push or by an inbox.
        self.open_weight = self.open_weight.saturating_add(weight);
        self.open.push(envelope);
        if self.open.len() >= self.bounds.len {
            self.seal();
        }
    }

    /// The places to ring; they are not listed any more.
    #[inline]
    pub(super) fn take_listed(&mut self) -> Vec<usize> {
        if self.listed.is_empty() {
            return Vec::new();
        }
        for place in &self.listed {
            self.places[*place].listed = false;
        }
        std::mem::take(&mut self.listed)
    }

    /// Lists the inbox to be rung at the next envelope.
    pub(super) fn list(&mut self, reach: &mut Reach) {
        let entry = &mut self.places[reach.place];
        if !entry.listed {
            entry.listed = true;
            self.listed.push(reach.place);
        }
        reach.is_listed = true;
    }

    /// Whether all inboxes have fetched everything.
    #[inline]
    pub(super) fn is_read(&self) -> bool {
        self.listed.len() == self.inboxes
    }

    /// The place of an inbox that is asked on behalf of all; each in turn. There must be one.
    pub(super) fn next_spokesman(&mut self) -> usize {
        let from = self.spokesman % self.places.len();
        let mut places = (from..self.places.len()).chain(0..from);
        let place = places.find(|place| self.places[*place].taken).unwrap_or(from);
        self.spokesman = place + 1;
        place
    }

    /// Closes the open bundle: an inbox that can see a bundle never waits for more envelopes in it.
    pub(super) fn seal(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let weight = std::mem::take(&mut self.open_weight);
        let bundle = Arc::new(Bundle::new(self.open.drain(..), weight));
        self.bundles.push_back(WaitingBundle {
            bundle,
            inboxes: self.inboxes,
        });
    }

    /// A new inbox at a free place. It gets what is pushed from now on.
    pub(super) fn enter(&mut self) -> Reach {
        self.seal();
        let free = self.places.iter().position(|place| !place.taken);
        let place = free.unwrap_or_else(|| {
            self.places.push(StagePlace::default());
            self.places.len() - 1
        });
        self.places[place].taken = true;
        self.inboxes += 1;
        let mut reach = Reach {
            place,
            parcels: self.gone + self.bundles.len() as u64,
            values: self.values,
            weight: self.weight,
            is_listed: false,
        };
        self.list(&mut reach);
        reach
    }

    /// Removes the inbox, which has had everything.
    pub(super) fn leave(&mut self, place: usize) {
        self.places[place] = StagePlace::default();
        self.listed.retain(|listed| *listed != place);
        self.inboxes -= 1;
    }

    /// How many envelopes there have been.
    #[inline]
    pub(super) const fn values(&self) -> u64 {
        self.values
    }

    /// Hands an inbox the bundles it has not had.
    pub(super) fn pour(&mut self, reach: &mut Reach, into: &mut dyn FnMut(Arc<Bundle<Envelope<T>>>)) {
        if reach.values == self.values {
            return;
        }
        self.seal();
        let had = usize::try_from(reach.parcels - self.gone).expect("a bundle stays until all have had it");
        for waiting in self.bundles.range_mut(had..) {
            waiting.inboxes -= 1;
            into(Arc::clone(&waiting.bundle));
        }
        reach.parcels = self.gone + self.bundles.len() as u64;
        reach.values = self.values;
        reach.weight = self.weight;
        // New envelopes have taken it off the list.
        reach.is_listed = self.places[reach.place].listed;
        // All inboxes have had everything before, so bundles that all have had are at the front.
        while self.bundles.front().is_some_and(|first| first.inboxes == 0) {
            self.bundles.pop_front();
            self.gone += 1;
        }
    }
}
