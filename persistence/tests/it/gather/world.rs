//! A journal in memory and the tasks that gather for it, moved by hand: nothing happens unless a test lets
//! it.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use millrun_core::Partition;
use millrun_persistence::appender::{Appender, Gathered};
use millrun_persistence::contract::Author;
use millrun_persistence::{Batch, EnqueueError, Journal, JournalConfig, MemoryJournal, TurnRefused};

use crate::host::HandHost;

/// So few are enqueued at once.
pub(super) const FEW: usize = 32;
/// So many turns go together.
pub(super) const TOGETHER: usize = 64;

#[derive(Default)]
pub(super) struct Flag(pub(super) AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

pub(super) struct World {
    pub(super) host: Arc<HandHost>,
    pub(super) journal: Arc<MemoryJournal>,
    pub(super) appender: Appender,
}

impl World {
    pub(super) fn new(config: JournalConfig) -> Self {
        let host = HandHost::new();
        let journal = Arc::new(MemoryJournal::held(config).unwrap());
        let appender = Appender::new(journal.clone(), &*host).unwrap();
        host.run();
        Self {
            host,
            journal,
            appender,
        }
    }

    pub(super) fn authors(&self, count: usize) -> Vec<Author> {
        let mut authors: Vec<_> = (0..count as u64)
            .map(|number| Author::new(&*self.journal, &format!("id-{number}"), number))
            .collect();
        let all: Vec<_> = (0..Partition::COUNT).filter_map(Partition::from_index).collect();
        let epoch = self.journal.take_over(&all).unwrap();
        authors.iter_mut().for_each(|author| author.epoch = epoch);
        authors
    }

    pub(super) fn gather(&self, batch: &Batch) -> Waiting<'_> {
        Waiting {
            gathered: Box::pin(self.appender.gather(batch).unwrap()),
            flag: Arc::default(),
        }
    }

    /// One batch of each author.
    pub(super) fn gather_all(&self, authors: &mut [Author]) -> Vec<Waiting<'_>> {
        let batches = authors.iter_mut().map(|author| author.batch(&[b"x"], false));
        batches.map(|batch| self.gather(&batch)).collect()
    }

    pub(super) fn queued_bytes(&self) -> u64 {
        self.journal.stats().queued_bytes
    }
}

pub(super) type Outcome = Result<Vec<(usize, TurnRefused)>, EnqueueError>;

pub(super) struct Waiting<'a> {
    pub(super) gathered: Pin<Box<Gathered<'a>>>,
    pub(super) flag: Arc<Flag>,
}

impl Waiting<'_> {
    pub(super) fn poll(&mut self) -> Poll<Outcome> {
        self.flag.0.store(false, Ordering::SeqCst);
        let waker = Waker::from(Arc::clone(&self.flag));
        let outcome = self.gathered.as_mut().poll(&mut Context::from_waker(&waker));
        outcome.map_ok(|refused| refused.into_iter().map(|one| (one.turn, one.error)).collect())
    }

    pub(super) fn is_woken(&self) -> bool {
        self.flag.0.load(Ordering::SeqCst)
    }
}

pub(super) fn accepted() -> Poll<Outcome> {
    Poll::Ready(Ok(Vec::new()))
}
