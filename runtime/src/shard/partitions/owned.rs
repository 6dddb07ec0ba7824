//! Which partitions a shard owns, and under which epoch each: the table of epochs.
//!
//! A partition never gets the same epoch twice. Whatever is valid only while a partition is owned without a break (an alarm,
//! a request for a history) names the epoch, and is [ignored](crate::mail::LocalMessage::life) under another one.

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

    /// The epoch of a partition; `None` if it is not owned.
    #[inline]
    pub(crate) fn get(&self, partition: Partition) -> Option<Epoch> {
        self.0[usize::from(partition.index())]
    }

    /// The epoch under which a run's turns are recorded. If the run's partition is not owned, an epoch under which no journal
    /// accepts a turn.
    #[inline]
    pub(in crate::shard) fn of(&self, run: RunId) -> Epoch {
        self.get(run.partition()).unwrap_or(Epoch::ZERO)
    }

    /// Sets the epoch of a partition; `None` if it is not owned any more.
    pub(in crate::shard) fn set(&mut self, partition: Partition, epoch: Option<Epoch>) {
        self.0[usize::from(partition.index())] = epoch;
    }

    /// The owned partitions, in order.
    pub(in crate::shard) fn owned(&self) -> impl Iterator<Item = (Partition, Epoch)> {
        let indices = (0..Partition::COUNT).filter_map(Partition::from_index);
        indices.filter_map(|partition| Some((partition, self.get(partition)?)))
    }
}

/// A moment without an epoch, for code that does not know the run yet; [`Shard::moment_of`] adds the epoch.
pub(in crate::shard) fn of_no_run(now: Timestamp) -> Moment {
    Moment { now, epoch: 0 }
}

impl Shard {
    /// Takes the journal's news about granted and lost partitions.
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
                // A loss under an older epoch concerns a predecessor.
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
                News::Resumed(pool, mut tasks) => {
                    // A restarted shard has offered its tasks anew, under another epoch.
                    tasks.retain(|((run, _), life)| self.epochs.get(run.partition()) == Some(*life));
                    self.dispatch.take_back(pool, tasks);
                }
                News::Refused(claim, error) => self.shared.claims.answer(claim, Err(error)),
            }
        }
        self.lose(&lost);
    }

    /// Whether the shard owns a partition.
    #[inline]
    pub(in crate::shard) fn owns(&self, partition: Partition) -> bool {
        self.epochs.get(partition).is_some()
    }

    /// The epoch under which a run's turns are [recorded](EpochTable::of).
    #[inline]
    pub(in crate::shard) fn epoch_of(&self, run: RunId) -> Epoch {
        self.epochs.of(run)
    }

    /// The moment that a run's engine is given, at this time.
    #[inline]
    pub(in crate::shard) fn moment_of(&self, run: RunId, now: Timestamp) -> Moment {
        Moment {
            now,
            epoch: self.epoch_of(run).get(),
        }
    }
}
