//! The runs of a shard in the order in which they began, walked from the latest to the earliest.
//!
//! ```text
//!   earliest [ spots of 0 ms .. │ spots of 1,200 ms .. │ spots of 1,730 ms .. ] latest ◄── a run begins: one is added
//!                 ▲ cleaned, a few spots with each that is added                ◄── a walk goes this way
//! ```
//!
//! A million runs take eight megabytes here. A run that ends is not removed: its spot [becomes stale](Spot), and is removed
//! when the cleaning comes across it.
//!
//! Invariants: a chunk has the spots of all runs that began within its milliseconds, in no order; chunks are in order,
//! without gaps between them. While a search walks, spots are added but none is moved.

use millrun_core::RunId;

use super::line::Spot;

/// A chunk with this many spots gets no later ones.
const CHUNK_LEN: usize = 512;

/// Cleaning begins when the stale spots outnumber those of runs by more than this.
const SLACK: usize = 1_024;

/// How many spots are cleaned for each spot that is added, while too many are stale.
const CLEANED_LEN: usize = 4;

/// Orders runs by their beginning: the millisecond, then a random number, then the partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StartKey(u128);

/// The bits of a run's id that hold its partition.
const PARTITION_BITS: u32 = 16;

impl StartKey {
    pub(crate) fn of(run: RunId) -> Self {
        Self(run.bits().rotate_left(PARTITION_BITS))
    }

    pub(crate) fn run(self) -> RunId {
        RunId::from_bits(self.0.rotate_right(PARTITION_BITS)).expect("it was made of a run's id")
    }

    pub(in crate::shard) fn millis(self) -> u64 {
        millis_of(self.run())
    }
}

fn millis_of(run: RunId) -> u64 {
    run.started().as_millis()
}

#[derive(Debug, Default)]
pub(in crate::shard) struct StartOrder {
    chunks: Vec<Chunk>,
    /// The number of all spots.
    len: usize,
    /// The chunk and the spot that are cleaned next.
    cleaned: (usize, usize),
    /// The number of walks under way.
    walks: usize,
}

#[derive(Debug)]
struct Chunk {
    /// It has the runs that began in this millisecond or later, up to the next chunk's `from`.
    from: u64,
    /// No run of it began later.
    to: u64,
    spots: Vec<Spot>,
    /// It is divided when it has this many spots.
    divided_at: usize,
}

impl Chunk {
    fn new(from: u64) -> Self {
        Self {
            from,
            to: from,
            spots: Vec::new(),
            divided_at: 2 * CHUNK_LEN,
        }
    }
}

/// How far a walk has come.
#[derive(Debug)]
pub(in crate::shard) struct StartWalk {
    /// The number of chunks that are left, the present one included.
    chunks_left: usize,
    /// The number of visited spots of the present chunk.
    visited: usize,
}

/// How far a step of a walk has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::shard) enum Walked {
    /// There is more in the present chunk.
    Some,
    /// A chunk is finished: all runs that are left began before those that were visited.
    Chunk,
    /// The walk is over.
    All,
}

impl StartOrder {
    /// Adds a run's spot. `run_at` returns the run of a spot, if it is still in its slot.
    #[inline]
    pub(in crate::shard) fn push(
        &mut self,
        spot: Spot,
        run: RunId,
        live_len: usize,
        run_at: impl Fn(Spot) -> Option<RunId>,
    ) {
        let millis = millis_of(run);
        self.len += 1;
        match self.chunks.last_mut() {
            Some(last) if millis >= last.from && (millis <= last.to || last.spots.len() < CHUNK_LEN) => {
                last.to = last.to.max(millis);
                last.spots.push(spot);
                if last.spots.len() >= last.divided_at {
                    self.divide(self.chunks.len() - 1, run_at);
                    return;
                }
            }
            _ => self.push_elsewhere(spot, millis, &run_at),
        }
        if self.len > 2 * live_len + SLACK {
            self.clean(run_at);
        }
    }

    /// Adds a run that does not belong to the last chunk.
    fn push_elsewhere(&mut self, spot: Spot, millis: u64, run_at: &impl Fn(Spot) -> Option<RunId>) {
        let behind = self.chunks.partition_point(|chunk| chunk.from <= millis);
        let Some(at) = behind.checked_sub(1) else {
            // The first chunk of all begins at zero, for runs that began earlier.
            let mut first = Chunk::new(0);
            first.to = millis;
            first.spots.push(spot);
            self.chunks.push(first);
            return;
        };
        if behind == self.chunks.len() && millis > self.chunks[at].to {
            let mut last = Chunk::new(millis);
            last.spots.push(spot);
            self.chunks.push(last);
            return;
        }
        let chunk = &mut self.chunks[at];
        chunk.to = chunk.to.max(millis);
        chunk.spots.push(spot);
        if chunk.spots.len() >= chunk.divided_at {
            self.divide(at, run_at);
        }
    }

    /// Divides a chunk in two, if its runs began in several milliseconds.
    #[cold]
    fn divide(&mut self, at: usize, run_at: impl Fn(Spot) -> Option<RunId>) {
        let chunk = &mut self.chunks[at];
        chunk.divided_at = 2 * chunk.spots.len();
        if self.walks > 0 {
            return;
        }
        let began = chunk
            .spots
            .iter()
            .filter_map(|spot| run_at(*spot).map(|run| (millis_of(run), *spot)));
        let mut began: Vec<_> = began.collect();
        self.len -= chunk.spots.len() - began.len();
        began.sort_unstable_by_key(|(millis, _)| *millis);
        let middle = began.get(began.len() / 2).map_or(0, |(millis, _)| *millis);
        let mut middle_at = began.partition_point(|(millis, _)| *millis < middle);
        if middle_at == 0 {
            middle_at = began.partition_point(|(millis, _)| *millis <= middle);
        }
        let later = began.split_off(middle_at);
        chunk.spots = began.iter().map(|(_, spot)| *spot).collect();
        if let (Some((from, _)), Some((to, _))) = (later.first(), later.last()) {
            chunk.to = began.last().map_or(chunk.from, |(millis, _)| *millis);
            chunk.divided_at = 2 * CHUNK_LEN.max(chunk.spots.len());
            let mut second = Chunk::new(*from);
            second.to = *to;
            second.spots = later.iter().map(|(_, spot)| *spot).collect();
            second.divided_at = 2 * CHUNK_LEN.max(second.spots.len());
            self.chunks.insert(at + 1, second);
        }
        self.cleaned = (0, 0);
    }

    /// Looks at a few spots, and removes the stale ones.
    fn clean(&mut self, run_at: impl Fn(Spot) -> Option<RunId>) {
        if self.walks > 0 {
            return;
        }
        for _ in 0..CLEANED_LEN {
            let (at, spot_at) = self.cleaned;
            let Some(chunk) = self.chunks.get_mut(at) else {
                self.cleaned = (0, 0);
                return;
            };
            match chunk.spots.get(spot_at) {
                Some(spot) if run_at(*spot).is_none() => {
                    chunk.spots.swap_remove(spot_at);
                    self.len -= 1;
                }
                Some(_) => self.cleaned.1 += 1,
                None => self.cleaned = (self.join(at), 0),
            }
        }
    }

    /// Finishes the cleaning of a chunk: joins it to the one before it if both are small, otherwise gives back unused memory.
    /// Returns the chunk that is cleaned next.
    ///
    /// The chunk is not joined to the one behind it, which has not been cleaned yet and is mostly full. Where short runs pass
    /// through, the cleaning stays a little behind the latest chunk and never starts over; it would leave each chunk behind
    /// empty, with its memory.
    fn join(&mut self, at: usize) -> usize {
        if let Some(before) = at.checked_sub(1)
            && let Some([before, chunk]) = self.chunks.get_mut(before..=at)
            && (chunk.spots.is_empty() || before.spots.len() + chunk.spots.len() <= CHUNK_LEN / 2)
        {
            before.to = before.to.max(chunk.to);
            before.spots.append(&mut chunk.spots);
            self.chunks.remove(at);
            return at;
        }
        let spots = &mut self.chunks[at].spots;
        if spots.capacity() > 2 * spots.len() {
            spots.shrink_to_fit();
        }
        at + 1
    }

    /// Begins a walk over the runs that began in this millisecond or before, or over all for `None`. It may visit some later
    /// ones too. The walk has to be [ended](Self::end).
    pub(in crate::shard) fn begin(&mut self, millis: Option<u64>) -> StartWalk {
        self.walks += 1;
        let chunks_left = match millis {
            Some(millis) => self.chunks.partition_point(|chunk| chunk.from <= millis),
            None => self.chunks.len(),
        };
        StartWalk {
            chunks_left,
            visited: 0,
        }
    }

    /// Ends a walk.
    pub(in crate::shard) fn end(&mut self, walk: StartWalk) {
        let StartWalk { .. } = walk;
        self.walks -= 1;
    }

    /// An upper bound for the millisecond in which the runs began that a walk has not visited.
    pub(in crate::shard) fn latest_left(&self, walk: &StartWalk) -> Option<u64> {
        let at = walk.chunks_left.checked_sub(1)?;
        self.chunks.get(at).map(|chunk| chunk.to)
    }

    /// Visits up to `len_max` spots of one chunk, and returns how far it has come.
    pub(in crate::shard) fn walk(
        &self,
        walk: &mut StartWalk,
        len_max: usize,
        mut visit: impl FnMut(Spot),
    ) -> (Walked, usize) {
        let Some(chunk) = walk.chunks_left.checked_sub(1).and_then(|at| self.chunks.get(at)) else {
            return (Walked::All, 0);
        };
        let left = chunk.spots.get(walk.visited..).unwrap_or_default();
        let visited = left.len().min(len_max);
        left[..visited].iter().for_each(|spot| visit(*spot));
        if visited < left.len() {
            walk.visited += visited;
            return (Walked::Some, visited);
        }
        (walk.chunks_left, walk.visited) = (walk.chunks_left - 1, 0);
        let walked = if walk.chunks_left == 0 {
            Walked::All
        } else {
            Walked::Chunk
        };
        (walked, visited)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use millrun_core::{Partition, Timestamp};

    use super::*;

    /// Runs in slots, as a roster has them.
    #[derive(Default)]
    struct World {
        order: StartOrder,
        slots: Vec<Option<RunId>>,
        free: Vec<u32>,
        live: BTreeMap<StartKey, u32>,
    }

    impl World {
        fn begin(&mut self, run: RunId) {
            let slot = self.free.pop().unwrap_or_else(|| {
                self.slots.push(None);
                u32::try_from(self.slots.len() - 1).unwrap()
            });
            self.slots[slot as usize] = Some(run);
            self.live.insert(StartKey::of(run), slot);
            let slots = &self.slots;
            let run_at = |spot: Spot| slots[spot.slot as usize].filter(|run| spot.is_of(*run));
            self.order
                .push(Spot::new(slot, run), run, self.live.len(), run_at);
        }

        fn end(&mut self, key: StartKey) {
            let slot = self.live.remove(&key).unwrap();
            self.slots[slot as usize] = None;
            self.free.push(slot);
        }

        /// All live runs, chunk by chunk, as a walk of `len_max` spots at a time gives them.
        fn walk(&self, walk: &mut StartWalk, len_max: usize) -> Vec<BTreeSet<StartKey>> {
            let (mut chunks, mut chunk) = (Vec::new(), BTreeSet::new());
            loop {
                let (walked, _) = self.order.walk(walk, len_max, |spot| {
                    let run = self.slots[spot.slot as usize].filter(|run| spot.is_of(*run));
                    chunk.extend(run.map(StartKey::of));
                });
                if walked != Walked::Some {
                    chunks.push(std::mem::take(&mut chunk));
                }
                if walked == Walked::All {
                    return chunks;
                }
            }
        }
    }

    #[test]
    fn a_walk_gives_live_runs_from_the_latest_on_and_holds_on_to_nothing() {
        let mut state = 11_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        let mut world = World::default();
        let mut clock = 1_000_000;
        for step in 0..60_000_u64 {
            clock += u64::from(random(3) == 0);
            // Rarely, a run that began long ago, as one that was recovered.
            let millis = if random(10) == 0 { random(clock) } else { clock };
            let partition = Partition::from_index(u16::try_from(random(1_024)).unwrap()).unwrap();
            let time = Timestamp::from_micros(millis * 1_000);
            world.begin(RunId::new(partition, time, step << 20 | random(1 << 20)));
            if world.live.len() > 3_000 || random(2) == 0 {
                let at = usize::try_from(random(world.live.len() as u64)).unwrap();
                let key = *world.live.keys().nth(at).unwrap();
                world.end(key);
            }
            if step % 5_000 == 4_999 {
                let mut walk = world.order.begin(None);
                let walked = world.walk(&mut walk, 100);
                world.order.end(walk);
                let mut last: Option<StartKey> = None;
                for chunk in &walked {
                    let latest = chunk.last().copied();
                    assert!(last.is_none_or(|last| latest.is_none_or(|latest| latest < last)));
                    last = chunk.first().copied().or(last);
                }
                let all: BTreeSet<_> = walked.into_iter().flatten().collect();
                assert!(all.iter().eq(world.live.keys()));
                let middle = *world.live.keys().nth(world.live.len() / 2).unwrap();
                let mut walk = world.order.begin(Some(middle.millis()));
                let all: BTreeSet<_> = world.walk(&mut walk, 7).into_iter().flatten().collect();
                world.order.end(walk);
                assert!(world.live.range(..=middle).all(|(key, _)| all.contains(key)));
            }
            let spots: usize = world.order.chunks.iter().map(|chunk| chunk.spots.len()).sum();
            assert_eq!(world.order.len, spots);
            assert!(spots <= 3 * 3_000 + SLACK, "{spots} spots after {step} steps");
        }
        assert!(world.order.chunks.len() < 200);
    }

    /// Regression: chunks emptied of short runs were left behind the cleaning, as large as before: about twelve bytes for
    /// each run that ever was.
    #[test]
    fn short_runs_leave_nothing_behind_however_many_they_are() {
        const RUNS: u64 = 200_000;
        // Of 200,000 runs, one in `one_stays` stays.
        for one_stays in [u64::MAX, 100] {
            let mut world = World::default();
            for number in 0..RUNS {
                let time = Timestamp::from_micros(number / 40 * 1_000);
                let run = RunId::new(Partition::of(b"p"), time, number);
                world.begin(run);
                if number % one_stays != 0 {
                    world.end(StartKey::of(run));
                }
            }
            let live = world.live.len();
            let chunks = &world.order.chunks;
            let kept: usize = chunks.iter().map(|chunk| chunk.spots.capacity()).sum();
            assert!(
                chunks.len() <= 16 + live / (CHUNK_LEN / 8),
                "{} chunks",
                chunks.len()
            );
            assert!(
                kept <= 4 * SLACK + 4 * live,
                "room for {kept} spots of {live} runs"
            );
        }
    }

    #[test]
    fn what_begins_during_a_walk_hides_nothing_from_it() {
        let run = |millis: u64, number: u64| {
            let time = Timestamp::from_micros(millis * 1_000);
            RunId::new(Partition::of(b"p"), time, number)
        };
        let mut world = World::default();
        (0..3_000).for_each(|number| world.begin(run(number / 10, number)));
        let before: BTreeSet<_> = world.live.keys().copied().collect();
        let mut walk = world.order.begin(None);
        let mut seen = BTreeSet::new();
        loop {
            let (walked, _) = world.order.walk(&mut walk, 64, |spot| {
                let run = world.slots[spot.slot as usize].filter(|run| spot.is_of(*run));
                seen.extend(run.map(StartKey::of));
            });
            let number = 10_000 + seen.len() as u64;
            (0..50).for_each(|more| world.begin(run(number % 300, number * 100 + more)));
            if walked == Walked::All {
                break;
            }
        }
        world.order.end(walk);
        assert!(before.is_subset(&seen));
    }
}
