//! Opening a durable output stream: finds its topic, and reads its state.

use std::sync::Arc;

use millrun_core::Sequence;

use super::index::DURABLE_STREAM_NAME_BYTES_MAX;
use super::log::{FoundLog, StreamLog};
use super::record;
use super::sender::DurableStreamError;
use crate::StopCause;
use crate::inner::Inner;
use crate::streams::table::Stream;
use crate::streams::tail::TailItem;
use crate::topics::durable::declared::KnownTopic;
use crate::topics::durable::reader::{TopicReadError, TopicReader};

/// Why the state of a stream is unknown.
#[derive(Debug)]
pub(crate) enum NotFoundOut {
    Read(String),
    /// Something was sent to it in memory meanwhile.
    Volatile,
    Stopped(StopCause),
}

impl Inner {
    /// The durable log of this stream, if it has one; attempts of a former life end as lost.
    pub(crate) async fn kept_log(
        self: &Arc<Self>,
        stream: &Stream,
    ) -> Result<Option<Arc<StreamLog>>, NotFoundOut> {
        let Some(known) = self.shared.outputs.get(&stream.key) else {
            return Ok(stream.log());
        };
        if let Some(log) = self.usable_log(stream) {
            return Ok(Some(log));
        }
        self.open_log(stream, known).await.map(Some)
    }

    /// The durable log of this stream, which is made if there is none. Nothing may have been sent to the stream in memory.
    pub(super) async fn log_to_send(
        self: &Arc<Self>,
        stream: &Stream,
    ) -> Result<Arc<StreamLog>, DurableStreamError> {
        let bytes = stream.key.1.len();
        if bytes == 0 || bytes > DURABLE_STREAM_NAME_BYTES_MAX {
            return Err(DurableStreamError::Name { bytes });
        }
        if let Some(log) = self.usable_log(stream) {
            return Ok(log);
        }
        if stream.is_volatile() {
            return Err(DurableStreamError::Volatile);
        }
        let (shared, journal) = (&self.shared, &*self.shared.journal);
        let len_max = shared.config.durable_streams_len_max;
        let known = match shared.outputs.add(&stream.key, len_max, journal) {
            // Streams of removed runs make room.
            Err(DurableStreamError::TooMany { .. }) => {
                self.remove_outputs_together().await;
                shared.outputs.add(&stream.key, len_max, journal)?
            }
            known => known?,
        };
        self.start_removing_outputs();
        self.open_log(stream, known).await.map_err(|error| match error {
            NotFoundOut::Read(problem) => DurableStreamError::Unreadable { problem },
            NotFoundOut::Volatile => DurableStreamError::Volatile,
            NotFoundOut::Stopped(cause) => DurableStreamError::Stopped(cause),
        })
    }

    /// The log of a stream, if it is open and its state is complete.
    fn usable_log(&self, stream: &Stream) -> Option<Arc<StreamLog>> {
        let log = stream.log()?;
        let summary = self.streams().summary(log.known.number)?;
        log.is_up_to_date(summary.last).then_some(log)
    }

    async fn open_log(
        self: &Arc<Self>,
        stream: &Stream,
        known: KnownTopic,
    ) -> Result<Arc<StreamLog>, NotFoundOut> {
        // One caller looks at a time, so that attempts of a former life end once.
        let opening = stream.opening.lock().await;
        if let Some(log) = self.usable_log(stream) {
            return Ok(log);
        }
        // Readers wait for this news.
        self.shared.durable.news_of(&self.shared.journal);
        let found = self.find_out(stream, known).await?;
        let is_kept = |now: KnownTopic| now.number == known.number;
        if !self.shared.outputs.get(&stream.key).is_some_and(is_kept) {
            return Err(NotFoundOut::Read(
                "it was removed with its run meanwhile".to_owned(),
            ));
        }
        let log = StreamLog::new(known, &stream.key, found, self.shared.is_read_only);
        let log = Arc::new(log);
        if !stream.set_log(Arc::clone(&log)) {
            return Err(NotFoundOut::Volatile);
        }
        drop(opening);
        log.start_writer(self);
        Ok(log)
    }

    /// Reads all records of a stream: its state, and which attempts have begun and not ended.
    async fn find_out(self: &Arc<Self>, stream: &Stream, known: KnownTopic) -> Result<FoundLog, NotFoundOut> {
        let mut found = FoundLog::default();
        let Some(summary) = self.streams().summary(known.number) else {
            return Ok(found);
        };
        let before = Sequence::new(summary.first.get().saturating_sub(1));
        found.last = before;
        let mut reader = TopicReader::<()>::behind(Arc::clone(self), known, before);
        loop {
            let next = reader.next_raw_now().await;
            found.last = reader.read_through();
            match next {
                Ok(None) => return Ok(found),
                Ok(Some(raw)) => match record::decode(&raw.body) {
                    Ok((run, item)) if run == stream.key.0 => {
                        found.bytes = found.bytes.saturating_add(record::bytes_of(&item));
                        match item {
                            TailItem::Began(attempt) => found.under_way.push(attempt),
                            TailItem::Ended(attempt, _) => {
                                found.under_way.retain(|under_way| *under_way != attempt);
                            }
                            TailItem::Chunk(..) => {}
                        }
                    }
                    Ok(_) | Err(_) => {}
                },
                // Readers are told of it.
                Err(TopicReadError::Damaged { .. } | TopicReadError::Dropped { .. }) => {}
                Err(TopicReadError::Stopped(cause)) => return Err(NotFoundOut::Stopped(cause)),
                Err(error) => return Err(NotFoundOut::Read(error.to_string())),
            }
        }
    }
}
