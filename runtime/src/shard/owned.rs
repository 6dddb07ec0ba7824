//! Which partitions a shard owns, and under which epoch each: its table of epochs.
//!
//! An epoch is given to a partition once: whatever holds only as long as a partition is owned without a break (an
//! alarm that was set, a history that was asked for) names it, and is [passed over](crate::mail::PartitionMessage::life) under another one.

use millrun_core::{Epoch, Partition, RunId, Timestamp};
use millrun_persistence::ClaimNews;
use millrun_workflow::Moment;

use super::Shard;

/// The epoch of each partition that is owned.
#[derive(Debug)]
pub(crate) struct EpochTable(Box<[Option<Epoch>]>);

impl EpochTable {
    pub(crate) fn new(owned: impl IntoIterator<Item = (Partition, Epoch)>) -> Self {
        let mut epochs = vec![None; usize::from(Partition::COUNT)];
        for (partition, epoch) in owned {
            epochs[usize::from(partition.index())] = Some(epoch);
        }
        Self(epochs.into())
    }

    /// The epoch of a partition that is owned.
    #[inline]
    pub(super) fn get(&self, partition: Partition) -> Option<Epoch> {
        self.0[usize::from(partition.index())]
    }

    /// What is owned, in order.
    pub(super) fn owned(&self) -> impl Iterator<Item = (Partition, Epoch)> {
        let indices = (0..Partition::COUNT).filter_map(Partition::from_index);
        indices.filter_map(|partition| Some((partition, self.get(partition)?)))
    }
}

/// This time, for what is handed on until the run is known: it gets its epoch [there](Shard::moment_of).
pub(super) fn of_no_run(now: Timestamp) -> Moment {
    Moment { now, epoch: 0 }
}

impl Shard {
    /// Takes what the journal has said about the partitions.
    pub(super) fn hear_news(&mut self) {
        for news in self.shared.claims.take_news(self.index) {
            match news {
                ClaimNews::Lost { partition, current } => {
                    // What a predecessor has lost was another epoch.
                    if self.epochs.get(partition).is_some_and(|epoch| epoch < current) {
                        self.lost_to = Some(current);
                    }
                }
                // A predecessor's claim: it has ended before it had the answer.
                news => tracing::debug!(?news, "news of a claim come late"),
            }
        }
    }

    /// The epoch under which a run's turns are recorded. That of a run whose partition is not owned is one under
    /// which no journal takes a turn.
    #[inline]
    pub(super) fn epoch_of(&self, run: RunId) -> Epoch {
        self.epochs.get(run.partition()).unwrap_or(Epoch::ZERO)
    }

    /// This time, for a run's engine.
    #[inline]
    pub(super) fn moment_of(&self, run: RunId, now: Timestamp) -> Moment {
        Moment {
            now,
            epoch: self.epoch_of(run).get(),
        }
    }
}
