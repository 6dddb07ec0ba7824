//! Claims: how a part of an owner gets partitions, and how it learns that it has lost one.
//!
//! ```text
//!   Claimant ── claim(partitions, folds) ──► Claim ──► Journal ──► folds are fed the live runs
//!      ▲                                                  │
//!      └── bell, and a list to take: ClaimNews ◄──────────┘ Granted │ Refused │ Lost
//! ```
//!
//! No call waits: a claim is handed to the journal, and the bell rings when the answer can be taken. Each claim gets exactly
//! one answer, also if the journal drops it. The loss of a partition arrives in the same list of news.
//!
//! Left out: who wins when two owners want one partition. A [claim](crate::Journal::claim) never takes a partition from
//! another owner; [taking](crate::Journal::take_from) always does.

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use millrun_core::{Bell, Epoch, Partition};

use crate::error::{JournalFailure, ReadError};
use crate::fold::Fold;
use crate::journal::{RecoveryReport, Ringing};

/// An owner of partitions: a runtime, usually. All its parts claim under the same number.
///
/// No other owner may use the number with the same journal: 64 random bits will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(u64);

impl Owner {
    /// The owner with this number.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Its number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A part of an owner that claims partitions, and the list of news for it. A cheap clone.
///
/// A claimant owns partitions for as long as a clone of it exists outside of the journal: once the last one is dropped, any
/// owner may claim them. The list of news holds at most one entry for each claim and one for each partition that was granted.
#[derive(Clone)]
pub struct Claimant(Arc<ClaimDesk>);

struct ClaimDesk {
    owner: Owner,
    bell: Bell,
    /// Whether the list is not empty, so that a check needs no lock.
    has_news: AtomicBool,
    news: Mutex<Vec<ClaimNews>>,
    claims: AtomicU64,
}

/// The number of a claim among those of its claimant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimNumber(u64);

/// What a journal tells a claimant.
#[derive(Debug)]
#[non_exhaustive]
pub enum ClaimNews {
    /// A claim was granted: the partitions in it are owned.
    Granted(Granted),
    /// A claim was refused: nothing has changed.
    Refused {
        /// Which claim.
        claim: ClaimNumber,
        /// Why.
        error: ClaimRefused,
    },
    /// Another owner, or another part of this one, has a partition now. No turn is taken any more under the epoch with which
    /// it was granted.
    Lost {
        /// The partition.
        partition: Partition,
        /// Its epoch now, which is higher than the one that was granted.
        current: Epoch,
    },
}

/// A claim that was granted.
#[non_exhaustive]
pub struct Granted {
    /// Which claim.
    pub claim: ClaimNumber,
    /// The partitions that are owned from now on, in order. Partitions that were lost or released again before the answer are
    /// left out.
    pub partitions: Vec<Owned>,
    /// The folds of the claim, with what they have built from the live runs.
    pub folds: Vec<Box<dyn Fold>>,
    /// The report on all partitions together, and on the whole store.
    pub report: RecoveryReport,
}

impl fmt::Debug for Granted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Granted")
            .field("claim", &self.claim)
            .field("partitions", &self.partitions.len())
            .field("report", &self.report)
            .finish_non_exhaustive()
    }
}

impl Granted {
    /// The folds of the claim that have this type; others are left out.
    pub fn take_folds<F: Fold>(&mut self) -> Vec<F> {
        let folds = std::mem::take(&mut self.folds).into_iter();
        let folds = folds.filter_map(|fold| (fold as Box<dyn Any>).downcast::<F>().ok());
        folds.map(|fold| *fold).collect()
    }
}

/// A partition that was granted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Owned {
    /// The partition.
    pub partition: Partition,
    /// The epoch under which it is owned: higher than every earlier epoch of the partition.
    pub epoch: Epoch,
    /// What the claim found in it.
    pub report: PartitionReport,
}

impl Owned {
    /// A partition that a journal grants.
    #[must_use]
    pub fn new(partition: Partition, epoch: Epoch, report: PartitionReport) -> Self {
        Self {
            partition,
            epoch,
            report,
        }
    }
}

/// What a claim found in one partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionReport {
    /// Live runs that the folds have seen.
    pub live_runs: u64,
    /// The records of these runs. Records that a run was [trimmed](crate::TurnWriter::trim) of may be counted too.
    pub records: u64,
    /// Runs that the folds have not seen because one of their records is damaged, with the error.
    pub damaged: Vec<ReadError>,
}

/// Why a claim was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimRefused {
    /// Other owners have some of the partitions: claim only the others, wait until these are released, or
    /// [take](crate::Journal::take_from) them.
    #[error("{} of the partitions belong to other owners, {} among them", .partitions.len(), First(.partitions))]
    Owned {
        /// The partitions that other owners have.
        partitions: Vec<Partition>,
    },
    /// The live runs of the partitions could not be read. The partitions are free again: claim them once more.
    #[error("the live runs of the partitions could not be read")]
    Unreadable(#[source] ReadError),
    /// The journal has failed or was closed: open it again.
    #[error(transparent)]
    Failed(#[from] JournalFailure),
}

struct First<'a>(&'a [Partition]);

impl fmt::Display for First<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.first() {
            Some(partition) => write!(f, "number {}", partition.index()),
            None => f.write_str("none"),
        }
    }
}

impl Claimant {
    /// A claimant that owns nothing yet. The bell rings when there is news.
    #[must_use]
    pub fn new(owner: Owner, bell: Bell) -> Self {
        Self(Arc::new(ClaimDesk {
            owner,
            bell,
            has_news: AtomicBool::new(false),
            news: Mutex::default(),
            claims: AtomicU64::new(0),
        }))
    }

    /// The owner that it is a part of.
    #[must_use]
    pub fn owner(&self) -> Owner {
        self.0.owner
    }

    /// A claim to these partitions, to be handed to a [journal](crate::Journal::claim). When it is granted, all records of
    /// live runs have been handed to `folds`: those of a run to `folds[run.partition().index() % folds.len()]`. Without folds
    /// no record is read.
    #[must_use]
    pub fn claim(&self, mut partitions: Vec<Partition>, folds: Vec<Box<dyn Fold>>) -> Claim {
        partitions.sort_unstable();
        partitions.dedup();
        Claim {
            number: ClaimNumber(self.0.claims.fetch_add(1, Ordering::Relaxed)),
            claimant: self.clone(),
            partitions,
            folds,
            is_answered: false,
        }
    }

    /// Whether there is news. Costs one atomic load.
    #[inline]
    #[must_use]
    pub fn has_news(&self) -> bool {
        self.0.has_news.load(Ordering::Acquire)
    }

    /// All news that was not taken yet, in order.
    #[must_use]
    pub fn take_news(&self) -> Vec<ClaimNews> {
        let mut news = self.0.news.lock().unwrap_or_else(PoisonError::into_inner);
        self.0.has_news.store(false, Ordering::Release);
        std::mem::take(&mut news)
    }

    /// For a journal: adds news to the list. The bell rings when the returned value is dropped.
    pub fn tell(&self, news: ClaimNews) -> Ringing {
        let mut list = self.0.news.lock().unwrap_or_else(PoisonError::into_inner);
        list.push(news);
        self.0.has_news.store(true, Ordering::Release);
        Ringing::of(vec![self.0.bell.clone()])
    }

    /// Whether the two are clones of one.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn downgrade(&self) -> Absentee {
        Absentee(Arc::downgrade(&self.0))
    }
}

impl fmt::Debug for Claimant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Claimant").field(&self.0.owner).finish()
    }
}

/// A claimant as a journal remembers it: a weak reference, so that the claimant can still be dropped.
#[derive(Clone, Default)]
pub(crate) struct Absentee(Weak<ClaimDesk>);

impl Absentee {
    /// The claimant, if a clone of it still exists.
    pub(crate) fn claimant(&self) -> Option<Claimant> {
        self.0.upgrade().map(Claimant)
    }
}

impl fmt::Debug for Absentee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.claimant().fmt(f)
    }
}

/// A claim on its way through a journal, which must [grant](Self::grant) or [refuse](Self::refuse) it. If it is dropped
/// instead, it is refused as by a closed journal.
pub struct Claim {
    number: ClaimNumber,
    claimant: Claimant,
    partitions: Vec<Partition>,
    folds: Vec<Box<dyn Fold>>,
    is_answered: bool,
}

impl Claim {
    /// Its number.
    #[must_use]
    pub fn number(&self) -> ClaimNumber {
        self.number
    }

    /// Who claims.
    #[must_use]
    pub fn claimant(&self) -> &Claimant {
        &self.claimant
    }

    /// The claimed partitions: in order, each once.
    #[must_use]
    pub fn partitions(&self) -> &[Partition] {
        &self.partitions
    }

    /// The folds that get the records of live runs.
    pub fn folds(&mut self) -> &mut [Box<dyn Fold>] {
        &mut self.folds
    }

    pub(crate) fn take_folds(&mut self) -> Vec<Box<dyn Fold>> {
        std::mem::take(&mut self.folds)
    }

    pub(crate) fn put_folds(&mut self, folds: Vec<Box<dyn Fold>>) {
        self.folds = folds;
    }

    /// Grants the claim. The claimant's bell rings when the returned value is dropped.
    pub fn grant(mut self, partitions: Vec<Owned>, report: RecoveryReport) -> Ringing {
        self.is_answered = true;
        let granted = Granted {
            claim: self.number,
            partitions,
            folds: std::mem::take(&mut self.folds),
            report,
        };
        self.claimant.tell(ClaimNews::Granted(granted))
    }

    /// Refuses the claim. The claimant's bell rings when the returned value is dropped.
    pub fn refuse(mut self, error: ClaimRefused) -> Ringing {
        self.is_answered = true;
        let claim = self.number;
        self.claimant.tell(ClaimNews::Refused { claim, error })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.is_answered {
            let (claim, error) = (self.number, JournalFailure::closed().into());
            drop(self.claimant.tell(ClaimNews::Refused { claim, error }));
        }
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim")
            .field("number", &self.number)
            .field("claimant", &self.claimant)
            .field("partitions", &self.partitions.len())
            .field("folds", &self.folds.len())
            .finish_non_exhaustive()
    }
}
