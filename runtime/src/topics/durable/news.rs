//! Tells the readers of durable topics that there are new records: one bell of the journal for all of them.
//!
//! Invariants: nothing is listed at the journal by a runtime without durable topics. A commit asks one counter as long as no
//! reader waits. A reader is listed before it looks, so that no record comes in between unseen.

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
    /// News of this journal.
    pub(crate) fn of(journal: &Arc<dyn Journal>) -> Arc<Self> {
        let news = Arc::new(Self {
            waiting_len: AtomicUsize::new(0),
            news: Notify::new(),
        });
        let bell = Bell::new();
        // The journal keeps the bell as long as itself.
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

    /// Lists a reader, which has to look at the journal before it waits.
    pub(crate) fn wait(&self) -> WaitingReader<'_> {
        self.waiting_len.fetch_add(1, Ordering::SeqCst);
        let mut told = Box::pin(self.news.notified());
        told.as_mut().enable();
        WaitingReader { news: self, told }
    }
}

/// A reader that waits. Dropped, it is not listed any more.
#[derive(Debug)]
pub(crate) struct WaitingReader<'a> {
    news: &'a TopicNews,
    told: std::pin::Pin<Box<Notified<'a>>>,
}

impl WaitingReader<'_> {
    /// Waits for the next news since it was listed.
    pub(crate) async fn told(&mut self) {
        self.told.as_mut().await;
    }
}

impl Drop for WaitingReader<'_> {
    fn drop(&mut self) {
        self.news.waiting_len.fetch_sub(1, Ordering::SeqCst);
    }
}
