//! Watches the shards from outside, and reports code that blocks its thread while it does.
//!
//! ```text
//!   shard ── a turn begins, this run, it ended ──► slot ◄── looks twice per limit ── watcher
//!     └─────────── rings, if the watcher sleeps ──────────────────────────────────────┘
//! ```
//!
//! The watcher has a thread of its own, since a blocked shard may hold the only other thread. It sleeps while the shards do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use millrun_core::{Bell, Next, Part, RunId, Timestamp};

/// What a shard is doing. Written by the shard, read by the watcher.
#[derive(Debug, Default)]
struct Slot {
    /// When its turn began, in microseconds; 0 between turns.
    busy_since: AtomicU64,
    /// The run whose code is running. The two halves may belong to different runs for a moment.
    run: [AtomicU64; 2],
    turns: AtomicU64,
    /// The number of the part's turns, including empty ones.
    pulse: AtomicU64,
}

impl Slot {
    fn run(&self) -> Option<RunId> {
        let [high, low] = [0, 1].map(|half: usize| u128::from(self.run[half].load(Ordering::Relaxed)));
        RunId::from_bits(high << 64 | low)
    }
}

/// The state that shards and watcher share.
#[derive(Debug)]
pub(crate) struct Watch {
    slots: Vec<Slot>,
    is_awake: AtomicBool,
    bell: Bell,
    limit: Duration,
    /// How many turns lasted longer than the limit.
    slow: AtomicU64,
}

impl Watch {
    pub(crate) fn new(shards_len: usize, limit: Duration) -> Self {
        Self {
            slots: (0..shards_len).map(|_| Slot::default()).collect(),
            is_awake: AtomicBool::new(false),
            bell: Bell::new(),
            limit,
            slow: AtomicU64::new(0),
        }
    }

    pub(crate) fn bell(&self) -> &Bell {
        &self.bell
    }

    pub(crate) fn slow_len(&self) -> u64 {
        self.slow.load(Ordering::Relaxed)
    }

    /// Counts a turn of a shard's part.
    pub(crate) fn note_pulse(&self, shard: usize) {
        self.slots[shard].pulse.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of turns of a shard's part, and whether a run's code is running.
    pub(crate) fn pulse(&self, shard: usize) -> (u64, bool) {
        let pulse = self.slots[shard].pulse.load(Ordering::Relaxed);
        (pulse, self.run_in_hand(shard).is_some())
    }

    /// A shard's turn begins.
    pub(crate) fn begin(&self, shard: usize, now: Timestamp) {
        let slot = &self.slots[shard];
        slot.busy_since.store(now.as_micros().max(1), Ordering::Relaxed);
        slot.turns.fetch_add(1, Ordering::Relaxed);
        // No run has these bits: code of an earlier turn is not running any more.
        slot.run
            .iter()
            .for_each(|half| half.store(u64::MAX, Ordering::Relaxed));
        if !self.is_awake.load(Ordering::Relaxed) && !self.is_awake.swap(true, Ordering::AcqRel) {
            self.bell.ring();
        }
    }

    /// A run's code is about to be polled.
    pub(crate) fn run(&self, shard: usize, run: RunId) {
        let bits = run.bits();
        let [high, low] = &self.slots[shard].run;
        let half = |bits: u128| u64::try_from(bits & u128::from(u64::MAX)).expect("masked to 64 bits");
        high.store(half(bits >> 64), Ordering::Relaxed);
        low.store(half(bits), Ordering::Relaxed);
    }

    /// The run whose code ran last, if the shard's turn has not ended.
    pub(crate) fn run_in_hand(&self, shard: usize) -> Option<RunId> {
        let slot = &self.slots[shard];
        let is_busy = slot.busy_since.load(Ordering::Relaxed) != 0;
        is_busy.then(|| slot.run()).flatten()
    }

    /// The turn has ended.
    pub(crate) fn end(&self, shard: usize) {
        self.slots[shard].busy_since.store(0, Ordering::Relaxed);
    }
}

/// The part that watches the shards.
pub(crate) struct Watcher {
    watch: Arc<Watch>,
    /// Also called at each look, to find what a blocked shard does not notice.
    look: Box<dyn Fn() + Send>,
    /// For each shard, its number of turns at the last look, and the turn that was last reported.
    seen: Vec<(u64, u64)>,
}

impl Watcher {
    pub(crate) fn new(watch: Arc<Watch>, look: impl Fn() + Send + 'static) -> Self {
        let look = Box::new(look);
        let seen = vec![(0, 0); watch.slots.len()];
        Self { watch, look, seen }
    }
}

impl Part for Watcher {
    fn turn(&mut self, now: Timestamp, _budget: usize) -> Next {
        (self.look)();
        let watch = &self.watch;
        let mut is_quiet = true;
        for (shard, (slot, (turns_seen, reported))) in watch.slots.iter().zip(&mut self.seen).enumerate() {
            let turns = slot.turns.load(Ordering::Relaxed);
            let since = slot.busy_since.load(Ordering::Relaxed);
            is_quiet &= turns == *turns_seen && since == 0;
            *turns_seen = turns;
            let lasted = now.saturating_since(Timestamp::from_micros(since));
            if since == 0 || lasted < watch.limit || *reported == turns {
                continue;
            }
            *reported = turns;
            watch.slow.fetch_add(1, Ordering::Relaxed);
            let run = slot.run();
            tracing::warn!(
                shard,
                run = run.map(tracing::field::display),
                lasted_ms = lasted.as_millis(),
                "code blocks its shard"
            );
        }
        if is_quiet {
            // A turn that begins from here on rings the bell.
            watch.is_awake.store(false, Ordering::Release);
            let has_begun = watch.slots.iter().zip(&self.seen);
            let mut has_begun =
                has_begun.map(|(slot, (seen, _))| slot.turns.load(Ordering::Acquire) != *seen);
            if !has_begun.any(|has_begun| has_begun) {
                return Next::Idle;
            }
            watch.is_awake.store(true, Ordering::Release);
        }
        Next::At(now + watch.limit / 2)
    }
}
