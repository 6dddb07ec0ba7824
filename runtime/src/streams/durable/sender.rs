//! The sender of an attempt for a durable output stream.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use millrun_persistence::{JournalFailure, TopicRefused};
use millrun_workflow::{OutputStream, Payload, PayloadError};
use serde::Serialize;

use super::index::DURABLE_STREAM_NAME_BYTES_MAX;
use super::log::{LogBounds, LogBroken, NotQueued, StreamLog};
use crate::streams::attempt::AttemptMark;
use crate::streams::table::{NoStream, StreamUse};
use crate::streams::tail::TailItem;
use crate::topics::durable::publish::record_bytes_max;
use crate::{ActivityContext, StopCause};

/// Sends to a durable output stream of a run, for one attempt of an activity; made by [`ActivityContext::durable_stream`]. A
/// cheap clone. It ends with the attempt.
pub struct DurableStreamSender<T> {
    log: Arc<StreamLog>,
    mark: AttemptMark,
    chunk_bytes_max: usize,
    bounds: LogBounds,
    payload: PhantomData<fn(T)>,
}

impl<T> Clone for DurableStreamSender<T> {
    fn clone(&self) -> Self {
        Self {
            log: Arc::clone(&self.log),
            mark: self.mark.clone(),
            payload: PhantomData,
            ..*self
        }
    }
}

impl<T> fmt::Debug for DurableStreamSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DurableStreamSender")
            .field(&self.mark.attempt)
            .finish()
    }
}

/// Why a durable stream was not opened for an attempt.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DurableStreamError {
    /// This attempt is not waited for any more: it was cancelled, or is out of time, or another process has its run. Stop.
    #[error("nobody waits for this attempt any more")]
    Cancelled,
    /// The name is not valid for a durable stream: it has 1 to 200 bytes.
    #[error(
        "the name of a durable output stream has 1 to {DURABLE_STREAM_NAME_BYTES_MAX} bytes, not {bytes}"
    )]
    Name {
        /// The length of the name.
        bytes: usize,
    },
    /// The store has as many durable streams as it may, or the runtime as many streams in use. Streams of runs that retention
    /// removes make room.
    #[error("there are {len_max} output streams, and may be no more")]
    TooMany {
        /// The limit: [`durable_streams_len_max`](crate::RuntimeConfig::durable_streams_len_max),
        /// [`topics_len_max`](crate::store::JournalConfig::topics_len_max) or
        /// [`streams_len_max`](crate::RuntimeConfig::streams_len_max).
        len_max: usize,
    },
    /// The stream has as many bytes as it may, so that no further attempt can send.
    #[error("the output stream has {bytes_max} bytes, and may have no more")]
    Full {
        /// The limit, [`durable_stream_bytes_max`](crate::RuntimeConfig::durable_stream_bytes_max).
        bytes_max: usize,
    },
    /// Chunks were sent to the stream of this name [in memory](ActivityContext::stream): a stream is either durable or in
    /// memory.
    #[error("the output stream of this name is one in memory")]
    Volatile,
    /// The stream of this name was opened with another type.
    #[error("the output stream {name:?} of this run carries {known}")]
    OtherType {
        /// The name.
        name: &'static str,
        /// The type with which it was first opened.
        known: &'static str,
    },
    /// The journal of this runtime keeps no topics, and so no streams.
    #[error("the journal of this runtime keeps no output streams")]
    NotKept,
    /// The journal refuses the stream.
    #[error("the journal does not take the output stream")]
    Refused(#[source] TopicRefused),
    /// The present content of the stream cannot be read now.
    #[error("the output stream cannot be read now: {problem}")]
    Unreadable {
        /// What is wrong.
        problem: String,
    },
    /// The journal has failed.
    #[error("the journal has failed")]
    Failed(#[source] JournalFailure),
    /// The runtime has stopped.
    #[error("{}", .0.told())]
    Stopped(#[from] StopCause),
}

/// Why a chunk is not durable.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DurableChunkError {
    /// The attempt has ended, or is not waited for any more, or another process has its run. Stop. Chunks that were sent and
    /// not acknowledged may or may not be durable.
    #[error("nobody waits for this attempt any more")]
    Cancelled,
    /// The chunk could not be encoded. Nothing was sent.
    #[error("the chunk could not be encoded")]
    Payload(#[from] PayloadError),
    /// The chunk is larger than the limit. Nothing was sent.
    #[error("the chunk has {bytes} bytes, one may have {bytes_max}: send smaller ones, or a reference")]
    TooLarge {
        /// Its encoded size.
        bytes: usize,
        /// The limit, [`stream_chunk_bytes_max`](crate::RuntimeConfig::stream_chunk_bytes_max), or what fits a turn of the
        /// journal.
        bytes_max: usize,
    },
    /// The stream has no room for the chunk. Nothing was sent, and its content stays.
    #[error("the output stream may have {bytes_max} bytes, and has no room for the chunk")]
    Full {
        /// The limit, [`durable_stream_bytes_max`](crate::RuntimeConfig::durable_stream_bytes_max).
        bytes_max: usize,
    },
    /// The runtime has stopped. Chunks that were sent and not acknowledged may or may not be durable.
    #[error("{}", .0.told())]
    Stopped(#[from] StopCause),
}

impl ActivityContext {
    /// Opens a durable output stream of the run: as [`stream`](Self::stream), but chunks are kept in the journal. A chunk
    /// whose [`send`](DurableStreamSender::send) has completed can be read later, also if the process was killed meanwhile,
    /// from the beginning or behind a [position](crate::streams::StreamReader::position), until retention removes the run
    /// with its streams. Readers follow it with the same [methods](crate::RunHandle::stream).
    ///
    /// The end of an attempt is in the stream as well. An attempt that ended with its process ends as
    /// [lost](crate::streams::AttemptEnd::Lost), before the next begins. Chunks of all attempts stay.
    ///
    /// A stream has at most [`durable_stream_bytes_max`](crate::RuntimeConfig::durable_stream_bytes_max) bytes, including
    /// failed attempts; nothing is dropped for new chunks.
    ///
    /// ```
    /// use millrun::streams::StreamItem;
    /// use millrun::{
    ///     Activity, ActivityContext, ActivityError, OutputStream, Runtime, Workflow, WorkflowContext, WorkflowError,
    /// };
    ///
    /// const TOKENS: OutputStream<String> = OutputStream::named("tokens");
    /// const WRITE: Activity<String, ()> = Activity::named("write");
    /// const ANSWER: Workflow<String, ()> = Workflow::named("answer");
    ///
    /// async fn write(cx: ActivityContext, prompt: String) -> Result<(), ActivityError> {
    ///     let tokens = cx.durable_stream(TOKENS).await?;
    ///     for token in prompt.split_inclusive(' ') {
    ///         tokens.send_ahead(token).await?; // Waits for room alone.
    ///     }
    ///     tokens.flush().await?; // All of it is durable.
    ///     Ok(())
    /// }
    ///
    /// async fn answer(cx: WorkflowContext, prompt: String) -> Result<(), WorkflowError> {
    ///     Ok(cx.call(WRITE, prompt).await?)
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runtime = Runtime::volatile().register(WRITE, write).register(ANSWER, answer).start().await?;
    /// let run = runtime.start(ANSWER, "a", "so it goes".to_owned()).await?;
    /// let mut tokens = run.stream(TOKENS).await?;
    /// let mut text = String::new();
    /// while let Some(item) = tokens.next().await? {
    ///     if let StreamItem::Chunk(_, token) = item {
    ///         text.push_str(&token);
    ///     }
    /// }
    /// assert_eq!(text, "so it goes");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`DurableStreamError`].
    ///
    /// # Cancel safety
    /// If it is dropped while it waits, the stream may or may not have been made. It can be opened again.
    pub async fn durable_stream<T: 'static>(
        &self,
        stream: OutputStream<T>,
    ) -> Result<DurableStreamSender<T>, DurableStreamError> {
        let runtime = self.runtime().map_err(DurableStreamError::Stopped)?;
        let inner = runtime.inner();
        let (shared, name) = (&inner.shared, stream.name());
        let config = &shared.config;
        let refused = |why| match why {
            NoStream::TooMany { len_max } => DurableStreamError::TooMany { len_max },
            NoStream::OtherType { known } => DurableStreamError::OtherType { name, known },
        };
        let used = (shared.streams).use_stream(self.run_id(), name, config, shared.host.random());
        let used: StreamUse = used.map_err(refused)?;
        used.typed::<T>().map_err(refused)?;
        let kept = Arc::clone(used.stream());
        let log = inner.log_to_send(&kept).await?;
        let mark = self.list_stream(&mut Some(used), Some(&log));
        let mark = mark.ok_or(DurableStreamError::Cancelled)?;
        let bounds = LogBounds {
            bytes_max: config.durable_stream_bytes_max,
            in_flight_bytes_max: config.durable_stream_in_flight_bytes_max,
        };
        log.begin(&mark, bounds).map_err(|refused| match refused {
            NotQueued::Full => DurableStreamError::Full {
                bytes_max: bounds.bytes_max,
            },
            NotQueued::Broken(LogBroken::Stopped(cause)) => DurableStreamError::Stopped(cause),
            NotQueued::Over | NotQueued::Later(_) | NotQueued::Broken(_) => DurableStreamError::Cancelled,
        })?;
        log.start_writer(inner);
        Ok(DurableStreamSender {
            log,
            mark,
            chunk_bytes_max: (config.stream_chunk_bytes_max).min(
                record_bytes_max(config.journal.turn_bytes_max).saturating_sub(super::record::ITEM_BYTES),
            ),
            bounds,
            payload: PhantomData,
        })
    }
}

impl<T> DurableStreamSender<T> {
    /// Sends a chunk, and waits until it is durable: a sync of the disk, shared by everything that is sent at the time.
    ///
    /// # Errors
    /// See [`DurableChunkError`].
    ///
    /// # Cancel safety
    /// If it is dropped while it waits, the whole chunk may or may not have been sent.
    pub fn send<'s, C>(
        &'s self,
        chunk: &C,
    ) -> impl Future<Output = Result<(), DurableChunkError>> + Send + use<'s, T, C>
    where
        T: std::borrow::Borrow<C>,
        C: Serialize + ?Sized,
    {
        let payload = Payload::encode(chunk);
        async move {
            let number = self.queue(payload?).await?;
            self.until_durable(number).await
        }
    }

    /// Sends a chunk, and only waits until there is room for it among the bytes in flight
    /// ([`durable_stream_in_flight_bytes_max`](crate::RuntimeConfig::durable_stream_in_flight_bytes_max)). It is known to be
    /// durable when a [flush](Self::flush) or a later [`send`](Self::send) has completed. Without either it is still sent,
    /// but its durability is not reported.
    ///
    /// # Errors
    /// See [`DurableChunkError`].
    ///
    /// # Cancel safety
    /// If it is dropped while it waits, nothing was sent.
    pub fn send_ahead<'s, C>(
        &'s self,
        chunk: &C,
    ) -> impl Future<Output = Result<(), DurableChunkError>> + Send + use<'s, T, C>
    where
        T: std::borrow::Borrow<C>,
        C: Serialize + ?Sized,
    {
        let payload = Payload::encode(chunk);
        async move { self.queue(payload?).await.map(|_| ()) }
    }

    /// Waits until everything that was sent to the stream before is durable.
    ///
    /// # Errors
    /// See [`DurableChunkError`]: only the errors about the attempt or the runtime.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn flush(&self) -> Result<(), DurableChunkError> {
        self.until_durable(self.log.queued()).await
    }

    /// Queues a chunk when there is room for it, and returns its number.
    async fn queue(&self, payload: Payload) -> Result<u64, DurableChunkError> {
        let (bytes, bytes_max) = (payload.len(), self.chunk_bytes_max);
        if bytes > bytes_max {
            return Err(DurableChunkError::TooLarge { bytes, bytes_max });
        }
        let mut item = TailItem::Chunk(self.mark.attempt, payload);
        loop {
            let mut changed = std::pin::pin!(self.log.changed.notified());
            // Registered before it looks, so that no change is missed.
            changed.as_mut().enable();
            item = match self.log.push(&self.mark, item, self.bounds) {
                Ok(number) => return Ok(number),
                Err(NotQueued::Later(item)) => item,
                Err(NotQueued::Full) => {
                    let bytes_max = self.bounds.bytes_max;
                    return Err(DurableChunkError::Full { bytes_max });
                }
                Err(NotQueued::Over) => return Err(DurableChunkError::Cancelled),
                Err(NotQueued::Broken(broken)) => return Err(broken.into()),
            };
            changed.await;
        }
    }

    async fn until_durable(&self, number: u64) -> Result<(), DurableChunkError> {
        Ok(self.log.until_durable(number).await?)
    }
}

impl From<LogBroken> for DurableChunkError {
    fn from(broken: LogBroken) -> Self {
        match broken {
            LogBroken::Moved | LogBroken::Removed => Self::Cancelled,
            LogBroken::Stopped(cause) => Self::Stopped(cause),
        }
    }
}
