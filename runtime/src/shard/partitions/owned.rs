//! Which partitions a shard owns, and under which epoch each: its table of epochs.
//!
//! An epoch is given to a partition once: whatever holds only as long as a partition is owned without a break (an
//! alarm that was set, a history that was asked for) names it, and is [passed over](crate::mail::LocalMessage::life) under another one.

use millrun_core::{Epoch, Partition, RunId, Timestamp};
use millrun_workflow::Moment;

use crate::ownership::claims::News;
use crate::ownership::partition_set::PartitionSet;
use crate::shard::Shard;

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
    pub(crate) fn get(&self, partition: Partition) -> Option<Epoch> {
        self.0[usize::from(partition.index())]
    }

    /// The epoch under which a run's turns are recorded. That of a run whose partition is not owned is one under
    /// which no journal takes a turn.
    #[inline]
    pub(in crate::shard) fn of(&self, run: RunId) -> Epoch {
        self.get(run.partition()).unwrap_or(Epoch::ZERO)
    }

    /// A partition is owned from now on; or is not, without an epoch.
    pub(in crate::shard) fn set(&mut self, partition: Partition, epoch: Option<Epoch>) {
        self.0[usize::from(partition.index())] = epoch;
    }

    /// What is owned, in order.
    pub(in crate::shard) fn owned(&self) -> impl Iterator<Item = (Partition, Epoch)> {
        let indices = (0..Partition::COUNT).filter_map(Partition::from_index);
        indices.filter_map(|partition| Some((partition, self.get(partition)?)))
    }
}

/// This time, for what is handed on until the run is known: it gets its epoch [there](Shard::moment_of).
pub(in crate::shard) fn of_no_run(now: Timestamp) -> Moment {
    Moment { now, epoch: 0 }
}

impl Shard {
    /// Takes what the journal has said about the partitions.
    pub(in crate::shard) fn hear_news(&mut self) {
        let news = self.shared.claims.take_news(self.ways.index());
        if !news.is_empty() {
            self.hear(news);
        }
    }

    #[cold]
    pub(crate) fn hear(&mut self, news: Vec<News>) {
        let mut lost = PartitionSet::default();
        for news in news {
            match news {
                // What a predecessor has lost was another epoch.
                News::Lost(partition, current)
                    if self.epochs.get(partition).is_some_and(|epoch| epoch < current) =>
                {
                    lost.insert(partition);
                }
                News::Released(partition, epoch) if self.epochs.get(partition) == Some(epoch) => {
                    lost.insert(partition);
                }
                News::Lost(..) | News::Released(..) => {}
                News::Granted(granted) => {
                    self.lose(&std::mem::take(&mut lost));
                    self.take_granted(granted);
                }
                News::Refused(claim, error) => self.shared.claims.answer(claim, Err(error)),
            }
        }
        self.lose(&lost);
    }

    /// Whether the runs of a partition are here.
    #[inline]
    pub(in crate::shard) fn owns(&self, partition: Partition) -> bool {
        self.epochs.get(partition).is_some()
    }

    /// The epoch under which a run's turns are [recorded](EpochTable::of).
    #[inline]
    pub(in crate::shard) fn epoch_of(&self, run: RunId) -> Epoch {
        self.epochs.of(run)
    }

    /// This time, for a run's engine.
    #[inline]
    pub(in crate::shard) fn moment_of(&self, run: RunId, now: Timestamp) -> Moment {
        Moment {
            now,
            epoch: self.epoch_of(run).get(),
        }
    }
}
