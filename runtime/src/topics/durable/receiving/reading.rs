//! Pages of a topic, for the tasks that look for records that runs wait for.

use std::sync::{Arc, Weak};
use std::time::Duration;

use millrun_core::Sequence;
use millrun_persistence::{LatestRecords, ReadError, TopicChunk, TopicNumber, TopicPage};

use crate::shared::ShardShared;
use crate::topics::durable::news::TopicNews;

/// The pause after a failed read.
const PAUSE: Duration = Duration::from_secs(1);

/// Reads a topic page by page. It does not keep the runtime alive.
#[derive(Debug)]
pub(super) struct TopicPages {
    shared: Weak<ShardShared>,
    news: Arc<TopicNews>,
    topic: TopicNumber,
    /// The last record that was read or skipped.
    after: Sequence,
}

/// What is behind the place of a reader.
enum Found {
    Page(TopicPage),
    Nothing,
    /// Records up to this one cannot be read.
    Damaged(Sequence),
    /// The topic was deleted: nothing follows.
    Deleted,
    Failed(String),
}

impl TopicPages {
    pub(super) fn behind(
        shared: Weak<ShardShared>,
        news: Arc<TopicNews>,
        topic: TopicNumber,
        after: Sequence,
    ) -> Self {
        Self {
            shared,
            news,
            topic,
            after,
        }
    }

    /// The last record that was read or skipped.
    pub(super) fn after(&self) -> Sequence {
        self.after
    }

    /// Waits for the next records. `None` when the runtime is gone, or the topic is deleted.
    ///
    /// # Cancel safety
    /// Dropping the future skips nothing.
    pub(super) async fn next(&mut self) -> Option<Vec<TopicChunk>> {
        loop {
            let news = Arc::clone(&self.news);
            // Listed before it looks, so that no record is missed.
            let mut waiting = news.wait();
            let there = self.there().await?;
            if !there.is_empty() {
                return Some(there);
            }
            waiting.told().await;
        }
    }

    /// The next records that exist already. `None` when the runtime is gone, or the topic is deleted.
    pub(super) async fn there(&mut self) -> Option<Vec<TopicChunk>> {
        loop {
            let shared = self.shared.upgrade()?;
            match self.found(&shared).await {
                Found::Page(page) => {
                    self.after = Sequence::new(self.after.get() + page.dropped);
                    let last = page.chunks.last().map(TopicChunk::last);
                    self.after = last.map_or(self.after, |last| self.after.max(last));
                    if !page.chunks.is_empty() {
                        return Some(page.chunks);
                    }
                }
                Found::Nothing => return Some(Vec::new()),
                Found::Deleted => return None,
                Found::Damaged(until) => {
                    tracing::warn!(topic = %self.topic, %until, "no run can receive records that cannot be read");
                    self.after = self.after.max(until);
                }
                Found::Failed(problem) => {
                    let host = Arc::clone(&shared.host);
                    // The runtime may be about to stop, and must not be kept alive.
                    drop(shared);
                    tracing::debug!(topic = %self.topic, problem, "a topic cannot be read now");
                    host.sleep_until(host.now() + PAUSE).await;
                }
            }
        }
    }

    async fn found(&self, shared: &ShardShared) -> Found {
        let bytes_max = shared.config.topic_page_bytes_max;
        let Some(streams) = shared.journal.topics() else {
            return Found::Failed("the journal has no topics".to_owned());
        };
        let page = match streams.latest(self.topic, self.after, bytes_max) {
            Ok(LatestRecords::Page(page)) => Ok(page),
            Ok(LatestRecords::Ask) => {
                let asked = shared.reader.ask_topic_page(self.topic, self.after, bytes_max);
                let page = match asked.await {
                    Some(asked) => asked.await.ok(),
                    None => None,
                };
                match page {
                    Some(page) => page,
                    None => return Found::Failed("the part that reads was restarted".to_owned()),
                }
            }
            Err(error) => Err(error),
        };
        match page {
            Ok(page) if page.chunks.is_empty() && page.dropped == 0 => Found::Nothing,
            Ok(page) => Found::Page(page),
            Err(ReadError::TopicDamaged { until, .. }) => Found::Damaged(until),
            Err(ReadError::UnknownTopic { .. }) => Found::Deleted,
            Err(error) => Found::Failed(error.to_string()),
        }
    }
}
