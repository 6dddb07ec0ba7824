//! What the runtime owns: one claimant for all of its shards, whose news go to the shards that they concern.
//!
//! ```text
//!   shard ── claim(partitions, folds) ──► journal
//!     ▲                                     │ news, and the claimant's bell, which rings all shards
//!     └── its share of the news ◄── the first shard that looks hands all of it out
//! ```
//!
//! Invariants: a claim is made on behalf of one shard, which alone gets the answer; each shard's news stay in the
//! order in which the journal told them. A list holds one entry for each claim and for each partition, at most.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use millrun_core::{Bell, Partition};
use millrun_persistence::{ClaimNews, ClaimNumber, Claimant, Fold, Journal};

/// The claimant of a runtime, and the news that its shards have not taken.
#[derive(Debug)]
pub(crate) struct Claims {
    claimant: Claimant,
    /// The claimant's bell, and those of the shards.
    bell: Bell,
    bells: Vec<Bell>,
    desk: Mutex<Desk>,
    /// Whether there is news for a shard, so that a look costs no lock.
    has_news: Vec<AtomicBool>,
}

#[derive(Debug)]
struct Desk {
    /// The shard on whose behalf a claim was made that has no answer yet.
    asked: BTreeMap<ClaimNumber, usize>,
    news: Vec<Vec<ClaimNews>>,
}

impl Claims {
    /// Those of a claimant, whose `bell` rings the shards' bells from now on.
    pub(crate) fn new(claimant: Claimant, bell: Bell, bells: Vec<Bell>) -> Self {
        let shards_len = bells.len();
        let all = bells.clone();
        bell.connect(move || all.iter().for_each(Bell::ring));
        let desk = Desk {
            asked: BTreeMap::new(),
            news: (0..shards_len).map(|_| Vec::new()).collect(),
        };
        Self {
            claimant,
            bell,
            bells,
            desk: Mutex::new(desk),
            has_news: (0..shards_len).map(|_| AtomicBool::new(false)).collect(),
        }
    }

    /// Claims partitions for a shard. Never waits: the shard's bell rings when the answer is among its news.
    pub(crate) fn claim(
        &self,
        journal: &dyn Journal,
        shard: usize,
        partitions: Vec<Partition>,
        fold: Box<dyn Fold>,
    ) -> ClaimNumber {
        let claim = self.claimant.claim(partitions, vec![fold]);
        let number = claim.number();
        // Before the claim is made: the journal may answer within the call.
        let mut desk = self.desk.lock().unwrap_or_else(PoisonError::into_inner);
        desk.asked.insert(number, shard);
        drop(desk);
        journal.claim(claim);
        number
    }

    /// What a shard has been told and has not taken yet, in order. Two loads if that is nothing.
    #[inline]
    pub(crate) fn take_news(&self, shard: usize) -> Vec<ClaimNews> {
        if !self.claimant.has_news() && !self.has_news[shard].load(Ordering::Acquire) {
            return Vec::new();
        }
        self.hand_out(shard)
    }

    #[cold]
    fn hand_out(&self, shard: usize) -> Vec<ClaimNews> {
        let shards_len = self.has_news.len();
        let mut desk = self.desk.lock().unwrap_or_else(PoisonError::into_inner);
        let Desk { asked, news } = &mut *desk;
        self.bell.answer();
        for told in self.claimant.take_news() {
            let of = match &told {
                ClaimNews::Granted(granted) => asked.remove(&granted.claim),
                ClaimNews::Refused { claim, .. } => asked.remove(claim),
                ClaimNews::Lost { partition, .. } => Some(shard_of(*partition, shards_len)),
                _ => None,
            };
            if let Some(of) = of {
                news[of].push(told);
                self.has_news[of].store(true, Ordering::Release);
                if of != shard {
                    // It may have looked when the news was neither here nor there.
                    self.bells[of].ring();
                }
            }
        }
        self.has_news[shard].store(false, Ordering::Release);
        std::mem::take(&mut news[shard])
    }
}

/// The number of the shard that hosts a partition, of so many. Nothing stored depends on this.
pub(crate) fn shard_of(partition: Partition, shards_len: usize) -> usize {
    usize::from(partition.index()) % shards_len
}
