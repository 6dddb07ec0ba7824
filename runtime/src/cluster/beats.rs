//! The part that sends this node's heartbeats: by its flushes the other nodes know that it lives. The part has a thread of
//! its own, since the waits of [`ClusterPart`](super::part::ClusterPart) for the server must not keep the node from writing.
//!
//! ```text
//!   5 in a lease: do the shards make turns? ──► SharedStore::beat ──► durable ──► the gate holds for 0.8 of a lease
//!                        └── no: nothing is said, and others take the partitions
//! ```
//!
//! Invariants: no beat is asked for while an earlier one is not durable; the gate holds from the time when a beat was asked
//! for, not from when it landed. A node whose journal writes while its shards stand still sends no beat: it would keep its
//! partitions for ever.

use std::sync::Arc;
use std::time::Duration;

use millrun_core::{Next, Offset, Part, Timestamp};

use super::shared::ClusterShared;
use crate::mail::ShardDoors;
use crate::shared::ShardShared;

/// How many times a node beats within the shortest lease of all nodes. A node that judges others by that lease must hear of
/// its own flushes as often.
pub(super) const BEATS_OF_LEASE: u32 = 5;

/// How often it checks between two beats whether a beat is durable.
const LOOKS_OF_BEAT: u32 = 8;

/// The shortest and the longest time between two such checks.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(250));

/// Decides when this node beats: a pure machine.
#[derive(Debug)]
pub(crate) struct BeatClock {
    lease: Duration,
    /// When the last flush that has landed was asked for.
    confirmed: Duration,
    next: Duration,
    is_beating: bool,
}

impl BeatClock {
    /// The clock of a node with this lease, whose last flush that has landed was asked for at `confirmed`.
    pub(crate) fn new(lease: Duration, confirmed: Duration) -> Self {
        Self {
            lease,
            confirmed,
            next: confirmed,
            is_beating: false,
        }
    }

    /// How long after its last confirmed flush a node may begin attempts: 0.8 of a lease.
    pub(crate) fn held(lease: Duration) -> Duration {
        lease * 4 / 5
    }

    pub(crate) fn holds_until(&self) -> Duration {
        self.confirmed + Self::held(self.lease)
    }

    #[cfg(test)]
    pub(crate) fn confirmed(&self) -> Duration {
        self.confirmed
    }

    /// Simulates that a flush has landed that was asked for at this time.
    #[cfg(test)]
    pub(crate) fn confirm(&mut self, at: Duration) {
        self.confirmed = at;
    }

    /// Whether this node has to beat now; the caller reports the flush by [`landed`](Self::landed). `shortest` is the
    /// shortest lease of all nodes.
    pub(crate) fn is_due(&mut self, now: Duration, shortest: Duration) -> bool {
        let every = shortest.min(self.lease) / BEATS_OF_LEASE;
        self.next = self.next.min(now + every);
        // A beat that has not landed is not asked for again: this node beats only while its writer commits.
        let is_due = !self.is_beating && now >= self.next;
        if is_due {
            self.is_beating = true;
            self.next = now + every;
        }
        is_due
    }

    /// A flush that was asked for at this time has landed.
    pub(crate) fn landed(&mut self, asked_at: Duration) {
        self.is_beating = false;
        self.confirmed = self.confirmed.max(asked_at);
    }
}

/// Whether the shards of this runtime make turns.
#[derive(Debug, Default)]
struct ShardPulse {
    /// For each shard its number of turns, and when that number last changed.
    turns: Vec<(u64, Duration)>,
    is_hung: bool,
}

impl ShardPulse {
    /// Whether every shard has made a turn within `hang_max`. A shard that is inside a run's code does not count as hung: the
    /// code would hang on any other node too.
    fn is_felt(
        &mut self,
        now: Duration,
        hang_max: Duration,
        shards: impl Iterator<Item = (u64, bool)>,
    ) -> bool {
        let mut hung = None;
        for (index, (turns, is_in_code)) in shards.enumerate() {
            if self.turns.len() <= index {
                self.turns.push((turns, now));
            }
            let seen = &mut self.turns[index];
            if seen.0 != turns || is_in_code {
                *seen = (turns, now);
            }
            if !hang_max.is_zero() && now.saturating_sub(seen.1) > hang_max {
                hung = Some(index);
            }
        }
        if let Some(shard) = hung
            && !self.is_hung
        {
            tracing::error!(
                shard,
                "a shard makes no turns: this node does not say that it lives, and others take its partitions"
            );
        }
        self.is_hung = hung.is_some();
        !self.is_hung
    }
}

pub(crate) struct BeatPart {
    shared: Arc<ShardShared>,
    cluster: Arc<ClusterShared>,
    doors: ShardDoors,
    clock: BeatClock,
    pulse: ShardPulse,
    /// The flush that was asked for, and when.
    beat: Option<(Offset, Duration)>,
}

impl BeatPart {
    /// Continues from the time that the gate has as confirmed by a former life of this part, or by the opening.
    pub(crate) fn new(shared: Arc<ShardShared>, cluster: Arc<ClusterShared>, doors: ShardDoors) -> Self {
        let confirmed = shared.gate.confirmed(shared.config.lease);
        let confirmed = confirmed.unwrap_or_else(|| shared.host.elapsed());
        Self {
            clock: BeatClock::new(shared.config.lease, confirmed),
            shared,
            cluster,
            doors,
            pulse: ShardPulse::default(),
            beat: None,
        }
    }

    /// Checks whether the shards have made turns, and rings each for another one.
    fn feel(&mut self, now: Duration) -> bool {
        let watch = &self.shared.watch;
        let shards = (0..self.doors.all().len()).map(|shard| watch.pulse(shard));
        let is_felt = self.pulse.is_felt(now, self.shared.config.hang_max, shards);
        for door in self.doors.all() {
            door.mailbox.bell().ring();
        }
        is_felt
    }
}

impl Part for BeatPart {
    fn turn(&mut self, now: Timestamp, _budget: usize) -> Next {
        let journal = Arc::clone(&self.shared.journal);
        let (Some(store), None) = (journal.nodes(), journal.failure()) else {
            // The supervision tree looks at the journal when a part has stopped.
            return Next::Stop;
        };
        if let Some((offset, asked_at)) = self.beat
            && journal.high_watermark() >= offset
        {
            self.beat = None;
            self.clock.landed(asked_at);
        }
        self.shared.gate.hold_until(self.clock.holds_until());
        let (elapsed, shortest) = (self.shared.host.elapsed(), self.cluster.shortest_lease());
        // A node that hangs has no beat under way, so it checks again at the next turn.
        let may_beat = self.beat.is_none() && (!self.pulse.is_hung || self.feel(elapsed));
        if may_beat && self.clock.is_due(elapsed, shortest) {
            match self.feel(elapsed) {
                true => self.beat = Some((store.beat(), elapsed)),
                false => self.clock.landed(Duration::ZERO),
            }
        }
        let every = shortest.min(self.shared.config.lease) / BEATS_OF_LEASE;
        Next::At(now + (every / LOOKS_OF_BEAT).clamp(PAUSES.0, PAUSES.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(5);

    #[test]
    fn a_node_beats_while_its_flushes_land_and_holds_for_less_than_a_lease() {
        let begun = Duration::from_secs(1_000);
        let (mut clock, mut now) = (BeatClock::new(LEASE, begun), begun);
        assert!(clock.is_due(now, LEASE));
        now += LEASE;
        assert!(!clock.is_due(now, LEASE), "the first has not landed");
        assert_eq!(clock.holds_until(), begun + LEASE * 4 / 5);
        clock.landed(begun + Duration::from_secs(1));
        assert_eq!(clock.holds_until(), begun + Duration::from_secs(5));
        assert!(clock.is_due(now, LEASE));
        clock.landed(now);
        assert!(!clock.is_due(now + LEASE / 5 - Duration::from_millis(1), LEASE));
        assert!(clock.is_due(now + LEASE / 5, LEASE));
        clock.landed(now);
        // Another node has joined whose lease is shorter.
        assert!(!clock.is_due(now, LEASE / 5));
        assert!(clock.is_due(now + LEASE / 25, LEASE / 5));
    }

    #[test]
    fn a_shard_that_makes_no_turns_is_a_hang_unless_code_of_a_run_is_in_hand() {
        let mut pulse = ShardPulse::default();
        let mut is_felt = |seconds, shards: [(u64, bool); 2]| {
            pulse.is_felt(Duration::from_secs(seconds), LEASE, shards.into_iter())
        };
        assert!(is_felt(1, [(0, false), (0, false)]));
        assert!(is_felt(6, [(0, false), (1, false)]));
        assert!(!is_felt(7, [(0, false), (2, false)]));
        assert!(!is_felt(8, [(0, false), (3, false)]));
        // It goes on.
        assert!(is_felt(9, [(1, false), (3, false)]));
        assert!(is_felt(12, [(1, true), (4, false)]));
        assert!(is_felt(16, [(1, true), (5, false)]));
        assert!(
            !is_felt(22, [(1, false), (6, false)]),
            "the code has ended, and the turn has not"
        );
        let mut never = ShardPulse::default();
        assert!(never.is_felt(Duration::ZERO, Duration::ZERO, [(0, false)].into_iter()));
        assert!(never.is_felt(LEASE * 100, Duration::ZERO, [(0, false)].into_iter()));
    }
}
