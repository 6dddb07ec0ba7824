//! How a program claims partitions, takes them from other owners, and gives them back.
//!
//! ```text
//!   Partitions::claim ──► a claim for each shard ──► journal ──► news ──► shard takes the runs in ──► answer
//!   Partitions::release ──► news for the shards, then the journal
//! ```
//!
//! Left out: which runtime should own which partition. The program decides that.

use std::collections::BTreeMap;
use std::fmt;

use millrun_core::Partition;
use tokio::sync::oneshot;

use crate::inner::Inner;
use crate::opening::recovery::Histories;
use crate::ownership::claims::{How, Wanted};
use crate::{ClaimError, Runtime};

/// The partitions that a runtime owns of its journal; made by [`Runtime::partitions`].
///
/// Each instance belongs to one of 1,024 partitions, by its id. A partition has one owner at a time, which alone runs the
/// instances there. Several runtimes over one journal share the partitions: what one of them releases, another one may claim;
/// what it does not release can be taken from it.
///
/// A runtime that loses a partition drops what it has of it in memory, and stops the attempts of activities there. Callers
/// that wait for an answer, or ask later, are told [`RunError::Moved`](crate::RunError::Moved): the outcome is not known
/// here, and the partition has another owner. The new owner continues from what is durable, as after a restart: an activity
/// that was under way is attempted again; for a publish that had been handed to a topic, the workflow is told that the
/// outcome is [unknown](crate::workflow::PublishOutcome).
///
/// Nodes of a store that several processes share claim and give back partitions by themselves, unless
/// [`claimed_at_open`](crate::RuntimeConfig::claimed_at_open) names partitions.
///
/// Nodes of a [shared store](crate::store::SharedStore) have mail: a call on a run reaches the run from every node, and runs
/// of different nodes call and signal each other. Runtimes over one journal without mail do not: there, a run that calls a
/// child or signals an instance in a partition that is not owned here waits, and so does a run whose answer comes from such a
/// partition. The call is repeated, and answered, as soon as one runtime owns both partitions.
#[must_use = "it does nothing by itself"]
#[derive(Clone, Copy)]
pub struct Partitions<'a> {
    inner: &'a Inner,
}

impl fmt::Debug for Partitions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Partitions").finish_non_exhaustive()
    }
}

impl Runtime {
    /// The partitions that this runtime owns, and the means to change that.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use millrun::Runtime;
    /// use millrun::store::{Journal, JournalConfig, MemoryJournal, Partition};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let journal: Arc<dyn Journal> = Arc::new(MemoryJournal::new(JournalConfig::default())?);
    /// let first = Runtime::volatile().journal(Arc::clone(&journal)).start().await?;
    /// let owns_none = |config: &mut millrun::RuntimeConfig| config.claimed_at_open = Some(Vec::new());
    /// let second = Runtime::volatile().journal(journal).configure(owns_none).start().await?;
    /// assert_eq!(first.partitions().owned().len(), 1_024);
    /// let some: Vec<Partition> = first.partitions().owned().into_iter().take(100).collect();
    /// second.partitions().take(&some).await?;
    /// assert_eq!(second.partitions().owned(), some);
    /// # Ok(())
    /// # }
    /// ```
    pub fn partitions(&self) -> Partitions<'_> {
        Partitions { inner: self.inner() }
    }
}

impl Partitions<'_> {
    /// The partitions that are owned now, in order. Another owner may have taken some of them without this runtime having
    /// heard of it yet.
    #[must_use]
    pub fn owned(&self) -> Vec<Partition> {
        self.inner.shared.claims.owned().owned().collect()
    }

    /// Claims partitions that have no other owner, and takes in the runs there. Returns the claimed partitions that are owned
    /// afterwards, without those that were owned before, which stay as they are.
    ///
    /// # Errors
    /// [`ClaimError::Refused`] if another owner has one of them, or a partition cannot be read; then none of the partitions
    /// of that shard is claimed.
    ///
    /// # Cancel safety
    /// Dropping the future does not take the claim back: once the journal has answered it, the partitions are
    /// [owned](Self::owned), and can be [released](Self::release).
    pub async fn claim(&self, partitions: &[Partition]) -> Result<Vec<Partition>, ClaimError> {
        self.ask(partitions, How::IfFree).await
    }

    /// As [`claim`](Self::claim), but also takes partitions from other owners, which are told of the loss. Nothing that they
    /// decide from then on becomes durable; what they had recorded before stays.
    ///
    /// # Errors
    /// As those of [`claim`](Self::claim), but for other owners.
    ///
    /// # Cancel safety
    /// As that of [`claim`](Self::claim).
    pub async fn take(&self, partitions: &[Partition]) -> Result<Vec<Partition>, ClaimError> {
        self.ask(partitions, How::FromOthers).await
    }

    /// Gives back those of the partitions that are owned. Afterwards any owner may claim them; their runs stand still until
    /// one does. Callers that wait for these runs are told [`RunError::Moved`](crate::RunError::Moved).
    pub fn release(&self, partitions: &[Partition]) {
        self.inner
            .shared
            .claims
            .release(self.inner.journal.as_ref(), partitions);
    }

    async fn ask(&self, partitions: &[Partition], how: How) -> Result<Vec<Partition>, ClaimError> {
        let Inner {
            shared,
            doors,
            journal,
            stop,
            ..
        } = self.inner;
        let mut by_shard: BTreeMap<usize, Vec<Partition>> = BTreeMap::new();
        for partition in partitions {
            if !shared.claims.owned().has(*partition) {
                by_shard
                    .entry(doors.index_of(*partition))
                    .or_default()
                    .push(*partition);
            }
        }
        let mut answers = Vec::new();
        for (shard, partitions) in by_shard {
            let (reply, answer) = oneshot::channel();
            let wanted = Wanted {
                shard,
                partitions,
                how,
                reply,
            };
            let fold = Box::<Histories>::default();
            shared.claims.claim(journal.as_ref(), fold, wanted);
            answers.push(answer);
        }
        let mut claimed = Vec::new();
        for answer in answers {
            match stop.unless_over(answer).await {
                Some(Ok(answer)) => claimed.extend(answer?),
                Some(Err(_)) | None => return Err(self.inner.stop_cause().into()),
            }
        }
        claimed.sort_unstable();
        Ok(claimed)
    }
}
