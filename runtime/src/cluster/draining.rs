//! Drains partitions in the pools of this runtime, and finds out when they have come to rest.
//!
//! ```text
//!   a round, while partitions are drained:
//!     which have no attempt under way ──► reports of those that have ended are sent ──► shards have recorded them ──► at rest
//! ```
//!
//! Nothing here waits: each turn goes on from where the last one has come to.

use std::time::Duration;

use millrun_core::Partition;

use crate::mail::ShardDoors;
use crate::ownership::partition_set::PartitionSet;
use crate::shard::ShardRest;
use crate::shared::ShardShared;

/// The time between the end of a round and the next one: attempts under way have to end first.
const ROUND_EVERY: Duration = Duration::from_millis(50);

/// The drained partitions of a runtime.
#[derive(Debug)]
pub(super) struct Draining {
    drained: PartitionSet,
    round: DrainRound,
}

#[derive(Debug)]
enum DrainRound {
    /// The next one begins then.
    Pause(Duration),
    /// No attempt of these is under way; some of their reports may not be sent.
    Sending(PartitionSet),
    /// Their reports are sent, and the shards are asked to record them.
    Resting(PartitionSet, Vec<u64>),
}

impl Draining {
    /// A former life of the part may have left drained partitions: attempts begin there again.
    pub(super) fn new(shared: &ShardShared, doors: &ShardDoors) -> Self {
        let mut draining = Self {
            drained: PartitionSet::default(),
            round: DrainRound::Pause(Duration::ZERO),
        };
        draining.resume(shared, doors, &PartitionSet::all());
        draining
    }

    /// How many partitions are drained.
    pub(super) fn len(&self) -> usize {
        self.drained.iter().count()
    }

    /// When the next turn is due; `None` while nothing is drained.
    pub(super) fn next(&self, now: Duration) -> Option<Duration> {
        match self.round {
            _ if self.drained.is_empty() => None,
            DrainRound::Pause(until) => Some(until),
            DrainRound::Sending(_) | DrainRound::Resting(..) => Some(now),
        }
    }

    /// Drains `len` of these partitions, those without attempts under way first. Returns which.
    pub(super) fn begin(&mut self, shared: &ShardShared, len: usize, of: &[Partition]) -> Vec<Partition> {
        let mut busy = PartitionSet::default();
        for pool in &shared.pools {
            pool.note_busy(&mut busy);
        }
        let (idle, busy): (Vec<Partition>, Vec<_>) =
            of.iter().rev().partition(|partition| !busy.contains(**partition));
        let chosen: Vec<_> = idle.into_iter().chain(busy).take(len).collect();
        for partition in &chosen {
            self.drained.insert(*partition);
        }
        // Before the first round sees which have attempts under way.
        shared.pools.iter().for_each(|pool| pool.drain(&self.drained));
        chosen
    }

    /// Lets attempts begin again in all partitions but those that are still to be drained: others were lost, or were claimed anew,
    /// without this part.
    pub(super) fn keep(
        &mut self,
        shared: &ShardShared,
        doors: &ShardDoors,
        is_draining: impl Fn(Partition) -> bool,
    ) {
        let gone: PartitionSet = self.drained.iter().filter(|it| !is_draining(*it)).collect();
        if !gone.is_empty() {
            self.resume(shared, doors, &gone);
        }
    }

    /// The node leaves: no attempt begins anywhere, and all partitions are given back.
    pub(super) fn clear(&mut self) {
        self.drained = PartitionSet::default();
        self.round = DrainRound::Pause(Duration::ZERO);
    }

    /// These partitions are given back: their shards drop what the pools have of them.
    pub(super) fn end(&mut self, partitions: &[Partition]) {
        self.forget(&partitions.iter().copied().collect());
    }

    /// Lets attempts begin again in these partitions.
    pub(super) fn resume(&mut self, shared: &ShardShared, doors: &ShardDoors, partitions: &PartitionSet) {
        self.forget(partitions);
        for (number, pool) in shared.pools.iter().enumerate() {
            let mut tasks = vec![Vec::new(); doors.all().len()];
            for put_aside in pool.resume(partitions) {
                let (run, _) = put_aside.0;
                tasks[doors.index_of(run.partition())].push(put_aside);
            }
            for (shard, tasks) in tasks
                .into_iter()
                .enumerate()
                .filter(|(_, tasks)| !tasks.is_empty())
            {
                shared.claims.tell_resumed(shard, number, tasks);
            }
        }
    }

    fn forget(&mut self, partitions: &PartitionSet) {
        let others = |set: &PartitionSet| set.iter().filter(|it| !partitions.contains(*it)).collect();
        self.drained = others(&self.drained);
        match &mut self.round {
            DrainRound::Pause(_) => {}
            DrainRound::Sending(idle) | DrainRound::Resting(idle, _) => *idle = others(idle),
        }
    }

    /// Goes on with the round. Returns the partitions that have come to rest.
    pub(super) fn turn(&mut self, shared: &ShardShared, doors: &ShardDoors, now: Duration) -> Vec<Partition> {
        if self.drained.is_empty() {
            return Vec::new();
        }
        if let DrainRound::Pause(until) = self.round
            && now >= until
        {
            self.round = self.begin_round(shared, now);
        }
        if let DrainRound::Sending(idle) = &self.round
            && shared.pools.iter().all(|pool| pool.are_former_sent())
        {
            let asked = shared.rests.iter().map(ShardRest::ask).collect();
            doors.all().iter().for_each(|door| door.mailbox.bell().ring());
            self.round = DrainRound::Resting(idle.clone(), asked);
        }
        if let DrainRound::Resting(idle, asked) = &self.round
            && shared
                .rests
                .iter()
                .zip(asked)
                .all(|(rest, number)| rest.has_come(*number))
        {
            let at_rest = idle.iter().collect();
            self.round = DrainRound::Pause(now + ROUND_EVERY);
            return at_rest;
        }
        Vec::new()
    }

    fn begin_round(&self, shared: &ShardShared, now: Duration) -> DrainRound {
        let mut busy = PartitionSet::default();
        let owned = shared.claims.owned();
        let drained = self.drained.iter().filter(|partition| owned.has(*partition));
        let drained: PartitionSet = drained.collect();
        for pool in &shared.pools {
            // Again: one that was lost and claimed meanwhile is not drained any more.
            pool.drain(&drained);
            pool.note_busy(&mut busy);
        }
        let idle = self.drained.iter().filter(|partition| !busy.contains(*partition));
        let idle: PartitionSet = idle.collect();
        // What has ended by now is separated from what ends later.
        let are_separated = || shared.pools.iter().all(|pool| pool.turn_page());
        if idle.is_empty() || !are_separated() {
            return DrainRound::Pause(now + ROUND_EVERY);
        }
        DrainRound::Sending(idle)
    }
}
