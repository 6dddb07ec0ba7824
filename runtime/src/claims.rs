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
        // The bell, not the list: news is on the list before it rings. If it were taken without an answer to the ring,
        // that would stand unanswered, and no later one would wake anybody.
        if !self.bell.has_rung() && !self.has_news[shard].load(Ordering::Acquire) {
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

/// The number of the shard that hosts a partition, of `shards_len`. Nothing stored depends on this.
pub(crate) fn shard_of(partition: Partition, shards_len: usize) -> usize {
    usize::from(partition.index()) % shards_len
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use millrun_core::Epoch;
    use millrun_persistence::Owner;

    use super::*;

    /// A shard was woken by something else between the moment at which its news was put on the list and the ring of
    /// the bell. It took the news, nobody answered the ring, and the shard that was restarted next was not woken when
    /// its claim was answered: all its callers waited for ever.
    #[test]
    fn a_ring_that_comes_behind_its_news_leaves_the_bell_able_to_ring() {
        let (bell, shard_bell) = (Bell::new(), Bell::new());
        let claimant = Claimant::new(Owner::new(1), bell.clone());
        let claims = Claims::new(claimant.clone(), bell, vec![shard_bell.clone()]);
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
                // A turn for another reason.
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
