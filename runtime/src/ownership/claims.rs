//! What the runtime owns: one claimant for all shards, whose news is passed on to the shards that it concerns.
//!
//! ```text
//!   shard, or Partitions ── claim(partitions, folds) ──► journal
//!     ▲                                     │ news, and the claimant's bell, which rings all shards
//!     └── its share of the news ◄── the first shard that looks hands all of it out, and notes what is owned
//! ```
//!
//! Invariants: a claim is made on behalf of one shard, which alone gets the answer; each shard's news stays in the order in
//! which the journal told it. A list holds at most one entry for each claim, for each grant, loss and release of a
//! partition, and for each pool when a drain is given up. A partition that is noted as owned was granted, and since then neither released nor known to be lost: a shard
//! that is restarted claims these, and nothing else. Claims and releases are made one after the other: after a release, no
//! grant from a claim before it counts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millrun_core::{Bell, Epoch, Partition};
use millrun_persistence::{ClaimNews, ClaimNumber, ClaimRefused, Claimant, Fold, Granted, Journal};
use tokio::sync::oneshot;

use crate::activity::PutAside;
use crate::ownership::partition_set::PartitionSet;

/// The epoch under which each partition is owned here. A cheap clone.
#[derive(Clone, Debug)]
pub(crate) struct OwnedTable(Arc<[AtomicU64]>);

/// Stands for the epoch of a partition that is not owned. No partition is granted under it.
const NOT_OWNED: u64 = Epoch::ZERO.get();

impl OwnedTable {
    /// A table with these owned partitions.
    pub(crate) fn new(owned: impl IntoIterator<Item = (Partition, Epoch)>) -> Self {
        let table = Self((0..Partition::COUNT).map(|_| AtomicU64::new(NOT_OWNED)).collect());
        for (partition, epoch) in owned {
            table.set(partition, epoch);
        }
        table
    }

    fn slot(&self, partition: Partition) -> &AtomicU64 {
        &self.0[usize::from(partition.index())]
    }

    fn set(&self, partition: Partition, epoch: Epoch) {
        self.slot(partition).store(epoch.get(), Ordering::Release);
    }

    /// Whether a partition is owned under this epoch. One load.
    #[inline]
    pub(crate) fn is_owned_under(&self, partition: Partition, epoch: Epoch) -> bool {
        self.slot(partition).load(Ordering::Acquire) == epoch.get()
    }

    /// Those of these partitions that are still owned under these epochs.
    pub(crate) fn still(&self, owned: &[(Partition, Epoch)]) -> PartitionSet {
        let still = owned
            .iter()
            .filter(|(partition, epoch)| self.is_owned_under(*partition, *epoch));
        still.map(|(partition, _)| *partition).collect()
    }

    /// Whether a partition is owned.
    pub(crate) fn has(&self, partition: Partition) -> bool {
        self.epoch(partition).is_some()
    }

    /// The epoch under which a partition is owned; `None` if it is not.
    pub(crate) fn epoch(&self, partition: Partition) -> Option<Epoch> {
        let epoch = self.slot(partition).load(Ordering::Acquire);
        (epoch != NOT_OWNED).then_some(Epoch::new(epoch))
    }

    /// Removes a partition, if it is owned under this epoch. Returns whether it was.
    fn remove(&self, partition: Partition, epoch: Epoch) -> bool {
        let slot = self.slot(partition);
        slot.compare_exchange(epoch.get(), NOT_OWNED, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// The owned partitions, in order.
    pub(crate) fn owned(&self) -> impl Iterator<Item = Partition> {
        let all = (0..Partition::COUNT).filter_map(Partition::from_index);
        all.filter(|partition| self.has(*partition))
    }
}

/// News about partitions, for a shard.
#[derive(Debug)]
pub(crate) enum News {
    Granted(Granted),
    Refused(ClaimNumber, ClaimRefused),
    /// A partition has another owner, under this epoch.
    Lost(Partition, Epoch),
    /// A partition that was owned under this epoch is given back.
    Released(Partition, Epoch),
    /// The pool of this number has begun none of these tasks, and may do so now.
    Resumed(usize, Vec<PutAside>),
}

impl News {
    /// The number of the claim that this answers.
    pub(crate) fn answered(&self) -> Option<ClaimNumber> {
        match self {
            Self::Granted(granted) => Some(granted.claim),
            Self::Refused(claim, _) => Some(*claim),
            Self::Lost(..) | Self::Released(..) | Self::Resumed(..) => None,
        }
    }
}

/// A program's claim for one shard.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) shard: usize,
    pub(crate) partitions: Vec<Partition>,
    pub(crate) how: How,
    /// Answered once the shard has taken the runs in.
    pub(crate) reply: oneshot::Sender<Result<Vec<Partition>, ClaimRefused>>,
}

/// Which partitions a claim may get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// Only those without another owner.
    IfFree,
    /// Also those of other owners.
    FromOthers,
}

/// A claim that a program waits for.
#[derive(Debug)]
struct Waiting {
    shard: usize,
    partitions: Vec<Partition>,
    reply: oneshot::Sender<Result<Vec<Partition>, ClaimRefused>>,
}

/// The claimant of a runtime, with the news that its shards have not taken yet.
#[derive(Debug)]
pub(crate) struct Claims {
    claimant: Claimant,
    owned: OwnedTable,
    /// The bell of the claimant, and those of the shards.
    bell: Bell,
    bells: Vec<Bell>,
    desk: Mutex<Desk>,
    /// For each shard whether it has news, so that a check needs no lock.
    has_news: Vec<AtomicBool>,
}

#[derive(Debug)]
struct Desk {
    /// Claims without an answer, with the shards on whose behalf they were made.
    asked: BTreeMap<ClaimNumber, usize>,
    waiting: BTreeMap<ClaimNumber, Waiting>,
    news: Vec<Vec<News>>,
}

impl Claims {
    /// Makes the claims of a claimant, whose `bell` rings the shards' bells from now on.
    pub(crate) fn new(claimant: Claimant, owned: OwnedTable, bell: Bell, bells: Vec<Bell>) -> Self {
        let shards_len = bells.len();
        let all = bells.clone();
        bell.connect(move || all.iter().for_each(Bell::ring));
        let desk = Desk {
            asked: BTreeMap::new(),
            waiting: BTreeMap::new(),
            news: (0..shards_len).map(|_| Vec::new()).collect(),
        };
        Self {
            claimant,
            owned,
            bell,
            bells,
            desk: Mutex::new(desk),
            has_news: (0..shards_len).map(|_| AtomicBool::new(false)).collect(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The table of owned partitions.
    pub(crate) fn owned(&self) -> &OwnedTable {
        &self.owned
    }

    /// Notes that a partition is not owned under this epoch any more, whatever the journal says of it later.
    pub(crate) fn note_loss(&self, partition: Partition, epoch: Epoch) {
        self.owned.remove(partition, epoch);
    }

    /// Claims partitions for a shard. Never waits: the shard's bell rings when the answer is among its news.
    pub(crate) fn claim(&self, journal: &dyn Journal, fold: Box<dyn Fold>, wanted: Wanted) {
        let Wanted {
            shard,
            partitions,
            how,
            reply,
        } = wanted;
        let claim = self.claimant.claim(partitions.clone(), vec![fold]);
        let mut desk = self.lock();
        desk.asked.insert(claim.number(), shard);
        let waiting = Waiting {
            shard,
            partitions,
            reply,
        };
        desk.waiting.insert(claim.number(), waiting);
        match how {
            How::IfFree => journal.claim(claim),
            How::FromOthers => journal.take_from(claim),
        }
    }

    /// Claims, for a restarted shard, what it owned; `None` if that is nothing. Returns the number of the claim, and the
    /// partitions with the epochs that they had until now.
    pub(crate) fn claim_again(
        &self,
        journal: &dyn Journal,
        fold: Box<dyn Fold>,
        shard: usize,
    ) -> Option<(ClaimNumber, Vec<(Partition, Epoch)>)> {
        let mut desk = self.lock();
        // A partition whose loss is among the news is not owned any more.
        self.distribute(&mut desk, Some(shard));
        let of_shard = |partition: &Partition| shard_of(*partition, self.bells.len()) == shard;
        let owned = self.owned.owned().filter(of_shard);
        let owned: Vec<_> = owned
            .filter_map(|partition| Some((partition, self.owned.epoch(partition)?)))
            .collect();
        if owned.is_empty() {
            return None;
        }
        let partitions = owned.iter().map(|(partition, _)| *partition).collect();
        let claim = self.claimant.claim(partitions, vec![fold]);
        let number = claim.number();
        desk.asked.insert(number, shard);
        journal.claim(claim);
        Some((number, owned))
    }

    /// Tells the caller of a claim the result.
    pub(crate) fn answer(&self, claim: ClaimNumber, answer: Result<Vec<Partition>, ClaimRefused>) {
        let waiting = self.lock().waiting.remove(&claim);
        if let Some(waiting) = waiting {
            // The caller may have given up.
            drop(waiting.reply.send(answer));
        }
    }

    /// Tells the callers of claims for a failed shard which of their partitions are owned, if the shard failed after it had
    /// taken the answer. Callers whose answers are among `news`, or still to come, keep waiting.
    pub(crate) fn answer_left(&self, shard: usize, news: &[News]) {
        let mut desk = self.lock();
        let Desk {
            asked,
            waiting,
            news: untaken,
        } = &mut *desk;
        let known = news.iter().chain(&untaken[shard]).filter_map(News::answered);
        let known: BTreeSet<_> = known.collect();
        let is_left = |number: &ClaimNumber, waiting: &mut Waiting| {
            waiting.shard == shard && !asked.contains_key(number) && !known.contains(number)
        };
        let left: Vec<_> = waiting.extract_if(.., is_left).collect();
        drop(desk);
        for (_, mut left) in left {
            left.partitions.retain(|partition| self.owned.has(*partition));
            drop(left.reply.send(Ok(left.partitions)));
        }
    }

    /// Gives back those of the partitions that are owned. The shards drop their runs when they look at their news, and any
    /// owner may claim the partitions.
    pub(crate) fn release(&self, journal: &dyn Journal, partitions: &[Partition]) {
        let mut desk = self.lock();
        // The shards are told first: when another owner has the partitions, no shard believes that it owns them.
        self.note_release(&mut desk, partitions);
        journal.release(&self.claimant, partitions);
        // Partitions that were granted meanwhile are released too. A later grant has none of them, as it belongs to an
        // earlier claim.
        self.note_release(&mut desk, partitions);
        drop(desk);
        self.bells.iter().for_each(Bell::ring);
    }

    fn note_release(&self, desk: &mut Desk, partitions: &[Partition]) {
        self.distribute(desk, None);
        for partition in partitions {
            let epoch = self.owned.epoch(*partition);
            if let Some(epoch) = epoch.filter(|epoch| self.owned.remove(*partition, *epoch)) {
                self.put(
                    desk,
                    shard_of(*partition, self.bells.len()),
                    News::Released(*partition, epoch),
                );
            }
        }
    }

    /// Has a shard offer tasks again that a pool has put aside.
    pub(crate) fn tell_resumed(&self, shard: usize, pool: usize, tasks: Vec<PutAside>) {
        let mut desk = self.lock();
        self.put(&mut desk, shard, News::Resumed(pool, tasks));
        drop(desk);
        self.bells[shard].ring();
    }

    /// The news that a shard has not taken yet, in order. Three loads if there is none.
    #[inline]
    pub(crate) fn take_news(&self, shard: usize) -> Vec<News> {
        // The bell is checked, not only the list: news is on the list before the bell rings. If the news were taken and the
        // ring not answered, no later ring would wake a shard. And the list is checked, not only the bell: once a loss is on
        // it, another owner may have answered a caller.
        if !self.bell.has_rung() && !self.claimant.has_news() && !self.has_news[shard].load(Ordering::Acquire)
        {
            return Vec::new();
        }
        self.hand_out(shard)
    }

    #[cold]
    fn hand_out(&self, shard: usize) -> Vec<News> {
        let mut desk = self.lock();
        self.distribute(&mut desk, Some(shard));
        self.has_news[shard].store(false, Ordering::Release);
        std::mem::take(&mut desk.news[shard])
    }

    /// Puts the journal's news on the lists of the shards that it concerns, and wakes these shards, except `looking`, which
    /// looks at its list next.
    fn distribute(&self, desk: &mut Desk, looking: Option<usize>) {
        let shards_len = self.has_news.len();
        self.bell.answer();
        for told in self.claimant.take_news() {
            let (of, told) = match told {
                ClaimNews::Granted(granted) => {
                    for owned in &granted.partitions {
                        self.owned.set(owned.partition, owned.epoch);
                    }
                    (desk.asked.remove(&granted.claim), News::Granted(granted))
                }
                ClaimNews::Refused { claim, error } => {
                    (desk.asked.remove(&claim), News::Refused(claim, error))
                }
                ClaimNews::Lost { partition, current } => {
                    if let Some(epoch) = self.owned.epoch(partition)
                        && epoch < current
                    {
                        self.owned.remove(partition, epoch);
                    }
                    (
                        Some(shard_of(partition, shards_len)),
                        News::Lost(partition, current),
                    )
                }
                _ => continue,
            };
            if let Some(of) = of {
                self.put(desk, of, told);
                if looking != Some(of) {
                    // The shard may have looked at a moment when the news was on neither list.
                    self.bells[of].ring();
                }
            }
        }
    }

    fn put(&self, desk: &mut Desk, shard: usize, news: News) {
        desk.news[shard].push(news);
        self.has_news[shard].store(true, Ordering::Release);
    }
}

/// Which of `shards_len` shards hosts a partition. Nothing stored depends on this.
pub(crate) fn shard_of(partition: Partition, shards_len: usize) -> usize {
    usize::from(partition.index()) % shards_len
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use millrun_persistence::Owner;

    use super::*;

    /// Regression: children were closed because of what a shard had said before their parents' partition moved away, or began
    /// anew.
    #[test]
    fn what_holds_under_an_epoch_holds_no_longer_under_another() {
        let [first, second] = [0, 1_023].map(|index| Partition::from_index(index).unwrap());
        let [before, after] = [4, 5].map(Epoch::new);
        let owned = OwnedTable::new([(first, before), (second, before)]);
        let said = [(first, before), (second, before)];
        let [all, some]: [PartitionSet; 2] = [
            [first, second].into_iter().collect(),
            [second].into_iter().collect(),
        ];
        assert_eq!(owned.still(&said), all);
        owned.set(first, after);
        assert_eq!(owned.still(&said), some);
        assert!(!owned.remove(second, after), "it was owned under another one");
        assert!(owned.remove(second, before));
        assert!(owned.still(&said).is_empty());
        assert!(owned.has(first) && !owned.has(second));
    }

    /// Regression: a shard was woken for another reason between the moment when its news was put on the list and the ring of
    /// the bell. It took the news, and the ring was never answered, so the next restarted shard was not woken when its claim
    /// was answered: all its callers waited for ever.
    #[test]
    fn a_ring_that_comes_behind_its_news_leaves_the_bell_able_to_ring() {
        let (bell, shard_bell) = (Bell::new(), Bell::new());
        let claimant = Claimant::new(Owner::new(1), bell.clone());
        let owned = OwnedTable::new([]);
        let claims = Claims::new(claimant.clone(), owned, bell, vec![shard_bell.clone()]);
        let woken = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&woken);
        shard_bell.connect(move || {
            count.fetch_add(1, Ordering::SeqCst);
        });
        let partition = Partition::from_index(3).unwrap();
        let lost = |epoch| ClaimNews::Lost {
            partition,
            current: Epoch::new(epoch),
        };
        let mut heard = 0;
        for epoch in 1..5 {
            let ringing = claimant.tell(lost(epoch));
            if epoch % 2 == 1 {
                // A turn of the shard for another reason.
                heard += claims.take_news(0).len();
            }
            let before = woken.load(Ordering::SeqCst);
            drop(ringing);
            assert_eq!(
                woken.load(Ordering::SeqCst),
                before + 1,
                "news {epoch} woke nobody"
            );
            shard_bell.answer();
            heard += claims.take_news(0).len();
            assert_eq!(heard as u64, epoch);
        }
    }
}
