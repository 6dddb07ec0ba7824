//! Notifies the readers of durable topics of new records: one bell at the journal for all of them.
//!
//! Invariants: a runtime without durable topics registers nothing at the journal. While no reader waits, a commit only checks
//! one counter. A reader is listed before it looks, so that it misses no record.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use millrun_core::Bell;
use millrun_persistence::Journal;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// Where readers wait for records.
#[derive(Debug)]
pub(crate) struct TopicNews {
    waiting_len: AtomicUsize,
    news: Notify,
}

impl TopicNews {
    /// The news of this journal.
    pub(crate) fn of(journal: &Arc<dyn Journal>) -> Arc<Self> {
        let news = Arc::new(Self {
            waiting_len: AtomicUsize::new(0),
            news: Notify::new(),
        });
        let bell = Bell::new();
        // The journal keeps the bell as long as it exists itself.
        let (rung, told): (_, Weak<Self>) = (bell.clone(), Arc::downgrade(&news));
        bell.connect(move || {
            rung.answer();
            if let Some(news) = told.upgrade() {
                news.tell();
            }
        });
        journal.watch(bell);
        news
    }

    fn tell(&self) {
        if self.waiting_len.load(Ordering::SeqCst) > 0 {
            self.news.notify_waiters();
        }
    }

    /// Lists a reader, which then has to look at the journal before it waits.
    pub(crate) fn wait(&self) -> WaitingReader<'_> {
        self.waiting_len.fetch_add(1, Ordering::SeqCst);
        let mut told = Box::pin(self.news.notified());
        told.as_mut().enable();
        WaitingReader { news: self, told }
    }
}

/// A waiting reader. Dropping it removes it from the list.
#[derive(Debug)]
pub(crate) struct WaitingReader<'a> {
    news: &'a TopicNews,
    told: std::pin::Pin<Box<Notified<'a>>>,
}

impl WaitingReader<'_> {
    /// Waits for the first news after it was listed.
    pub(crate) async fn told(&mut self) {
        self.told.as_mut().await;
    }
}

impl Drop for WaitingReader<'_> {
    fn drop(&mut self) {
        self.news.waiting_len.fetch_sub(1, Ordering::SeqCst);
    }
}
