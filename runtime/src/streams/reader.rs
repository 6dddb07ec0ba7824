//! Readers of output streams, each with a place of its own.
//!
//! ```text
//!   items in hand ──► next item
//!       │ none: listed for news, then the tail behind the last ──► up to 256 items, or news of a loss
//!       └── none either: waits for news, the run's end, or the runtime's
//! ```

use std::fmt;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use futures_util::stream::{self, Stream as FutureStream};
use millrun_core::RunId;
use millrun_workflow::{NAME_BYTES_MAX, OutputStream, Payload};
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;

use super::attempt::{AttemptEnd, StreamAttempt};
use super::cursor::StreamCursor;
use super::durable::LogCursor;
use super::durable::opened::NotFoundOut;
use super::position::StreamPosition;
use super::table::{NoStream, StreamUse};
use crate::inner::Inner;
use crate::mail::{Request, Standing, Target};
use crate::operating::Lost;
use crate::{RunError, RunHandle, StopCause, UntypedHandle};

/// One item of an output stream, or the notice that items are missing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamItem<T> {
    /// An attempt has begun to send. If it is not the first of its step, the chunks of earlier attempts belong to tries
    /// without a result.
    Began(StreamAttempt),
    /// An attempt has sent this.
    Chunk(StreamAttempt, T),
    /// An attempt that had begun to send has ended.
    Ended(StreamAttempt, AttemptEnd),
    /// Items were dropped before they were read, counted over all kinds.
    Missed(Lost),
}

/// Why a reader of an output stream was not opened.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamOpenError {
    /// The name is not valid for a stream: it has 1 to 255 bytes.
    #[error("the name of an output stream has 1 to {NAME_BYTES_MAX} bytes, not {bytes}")]
    Name {
        /// The length of the name.
        bytes: usize,
    },
    /// The runtime has as many streams as it may, and all are in use.
    #[error("the runtime has {len_max} output streams in use, and may have no more")]
    TooMany {
        /// The limit, [`streams_len_max`](crate::RuntimeConfig::streams_len_max).
        len_max: usize,
    },
    /// The stream of this name was opened with another type.
    #[error("the output stream {name:?} of this run carries {known}")]
    OtherType {
        /// The name.
        name: String,
        /// The type with which it was first opened.
        known: &'static str,
    },
    /// The stream is a [durable](crate::ActivityContext::durable_stream) one, and cannot be read now.
    #[error("the output stream cannot be read now: {problem}")]
    Unreadable {
        /// What is wrong.
        problem: String,
    },
    /// The run was not found, or the runtime has stopped.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// Why a reader has no item to return.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamReadError {
    /// A chunk does not decode as the stream's type. The next call continues behind it.
    #[error("the chunk cannot be decoded: {problem}")]
    Undecodable {
        /// What is wrong with it.
        problem: String,
    },
    /// Records of a [durable](crate::ActivityContext::durable_stream) stream are damaged, or cannot be read because they are
    /// stored together with a damaged one. The next call continues behind them.
    #[error("{count} items cannot be read: {cause}")]
    Damaged {
        /// How many.
        count: u64,
        /// What is wrong with them.
        cause: String,
    },
    /// A durable stream cannot be read now. No item is skipped: the next call tries again.
    #[error("the output stream cannot be read now: {problem}")]
    Unreadable {
        /// What is wrong.
        problem: String,
    },
    /// It cannot be found out whether the run has ended: the next call tries again. For a durable stream also
    /// [`RunError::Expired`]: the run was removed, and the stream with it.
    #[error(transparent)]
    Run(RunError),
    /// The runtime has stopped.
    #[error("{}", .0.told())]
    Stopped(#[from] StopCause),
}

/// Follows an output stream of a run; made by [`RunHandle::stream`]. It keeps the runtime alive, as a handle does.
///
/// Each reader has a place of its own and delays nobody: a reader that lags is told how many items it has
/// [missed](StreamItem::Missed). It holds up to 256 items, of about 64 KiB.
pub struct StreamReader<T> {
    inner: Arc<Inner>,
    run: RunId,
    used: StreamUse,
    cursor: StreamCursor,
    /// Its place in a durable stream, once it is known to be one.
    log: Option<Box<LogCursor>>,
    /// The future for the run's end, once it is needed.
    end: Option<RunEnd>,
    has_ended: bool,
    payload: PhantomData<fn() -> T>,
}

impl<T> fmt::Debug for StreamReader<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamReader")
            .field("run", &self.run)
            .field("position", &self.position())
            .finish_non_exhaustive()
    }
}

/// Completes when a run has ended.
type RunEnd = Pin<Box<dyn Future<Output = Result<(), RunError>> + Send>>;

/// What woke a reader.
enum Woken {
    News(Result<(), StreamReadError>),
    RunEnded(Result<(), RunError>),
    Stopped(StopCause),
}

impl<O, E> RunHandle<O, E> {
    /// Follows what activities of the run send to [a stream](crate::ActivityContext::stream), from the earliest item that is
    /// kept. It may be opened before an activity sends, and after the run has ended.
    ///
    /// The run is that of the handle, or else the latest one of its id. The reader does not continue in a run that continues
    /// this one, which has streams of its own.
    ///
    /// # Errors
    /// See [`StreamOpenError`].
    pub async fn stream<T: 'static>(
        &self,
        stream: OutputStream<T>,
    ) -> Result<StreamReader<T>, StreamOpenError> {
        let reader = self.open_stream(stream.name(), None).await?;
        reader.typed(stream.name())
    }

    /// As [`stream`](Self::stream), behind a [position](StreamReader::position) of an earlier reader, in this process or
    /// another. Items that are not kept any more are [reported](StreamItem::Missed).
    ///
    /// # Errors
    /// See [`StreamOpenError`].
    pub async fn stream_behind<T: 'static>(
        &self,
        stream: OutputStream<T>,
        position: StreamPosition,
    ) -> Result<StreamReader<T>, StreamOpenError> {
        let reader = self.open_stream(stream.name(), Some(position)).await?;
        reader.typed(stream.name())
    }

    async fn open_stream<T>(
        &self,
        name: &str,
        behind: Option<StreamPosition>,
    ) -> Result<StreamReader<T>, StreamOpenError> {
        let bytes = name.len();
        if bytes == 0 || bytes > NAME_BYTES_MAX {
            return Err(StreamOpenError::Name { bytes });
        }
        let run = match self.run_id() {
            Some(run) => run,
            None => self.describe().await?.run,
        };
        StreamReader::open(Arc::clone(self.inner()), run, name, behind).await
    }
}

impl UntypedHandle {
    /// As [`RunHandle::stream`] and [`RunHandle::stream_behind`], with the stream's name; chunks are read
    /// [encoded](StreamReader::next_encoded).
    ///
    /// # Errors
    /// See [`StreamOpenError`].
    pub async fn stream(
        &self,
        name: &str,
        behind: Option<StreamPosition>,
    ) -> Result<StreamReader<Payload>, StreamOpenError> {
        self.handle().open_stream(name, behind).await
    }
}

impl<T> StreamReader<T> {
    async fn open(
        inner: Arc<Inner>,
        run: RunId,
        name: &str,
        behind: Option<StreamPosition>,
    ) -> Result<Self, StreamOpenError> {
        let shared = &inner.shared;
        let used = (shared.streams).use_stream(run, name, &shared.config, shared.host.random());
        let used = used.map_err(|why| refused(why, name))?;
        let cursor = StreamCursor::new(used.stream().life, &used.stream().lock().items, behind);
        let log = inner.kept_log(used.stream()).await.map_err(|error| match error {
            NotFoundOut::Stopped(cause) => StreamOpenError::Run(cause.into()),
            NotFoundOut::Read(problem) => StreamOpenError::Unreadable { problem },
            NotFoundOut::Volatile => refused(
                NoStream::OtherType {
                    known: "a stream in memory",
                },
                name,
            ),
        })?;
        let log = log.map(|log| Box::new(LogCursor::new(&inner, used.stream(), &log, behind)));
        Ok(Self {
            inner,
            run,
            used,
            cursor,
            log,
            end: None,
            has_ended: false,
            payload: PhantomData,
        })
    }

    fn typed(self, name: &str) -> Result<Self, StreamOpenError>
    where
        T: 'static,
    {
        let known = self.used.typed::<T>();
        known.map_err(|why| refused(why, name))?;
        Ok(self)
    }

    /// The run whose stream it is.
    #[must_use]
    pub fn run_id(&self) -> RunId {
        self.run
    }

    /// The position behind which the next item is: that of the last returned item. Keep it to continue with
    /// [`stream_behind`](RunHandle::stream_behind).
    #[must_use]
    pub fn position(&self) -> StreamPosition {
        match &self.log {
            Some(log) => log.position(),
            None => self.cursor.position(),
        }
    }

    /// Waits for the next item, with an encoded chunk. `None` when the run has ended, and no item can follow.
    ///
    /// # Errors
    /// See [`StreamReadError`].
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn next_encoded(&mut self) -> Result<Option<StreamItem<Payload>>, StreamReadError> {
        loop {
            if let Some(next) = self.in_hand() {
                return next.map(Some);
            }
            let stream = Arc::clone(self.used.stream());
            let mut told = std::pin::pin!(stream.news.notified());
            // Registered before it looks, so that no item is missed.
            told.as_mut().enable();
            self.follow_log();
            let log = stream.log();
            let mut changed = std::pin::pin!(async {
                match &log {
                    Some(log) => log.changed.notified().await,
                    None => std::future::pending().await,
                }
            });
            // The first poll registers it.
            let is_changed = futures_util::poll!(changed.as_mut()).is_ready();
            let is_sent_to = match self.next_there().await? {
                (Some(item), _) => return Ok(Some(item)),
                (None, is_sent_to) => is_sent_to,
            };
            if is_changed {
                continue;
            }
            if self.has_ended && !is_sent_to {
                return Ok(None);
            }
            let (inner, run, has_ended) = (Arc::clone(&self.inner), self.run, self.has_ended);
            let end = self
                .end
                .get_or_insert_with(|| Box::pin(run_ended(Arc::clone(&inner), run)));
            let mut stopped = std::pin::pin!(inner.stop.stopped());
            let mut page = std::pin::pin!(async {
                match &mut self.log {
                    Some(log) => log.until_news().await,
                    None => std::future::pending().await,
                }
            });
            let woken = poll_fn(|cx| {
                let is_told = told.as_mut().poll(cx).is_ready() || changed.as_mut().poll(cx).is_ready();
                if is_told {
                    return Poll::Ready(Woken::News(Ok(())));
                }
                if let Poll::Ready(news) = page.as_mut().poll(cx) {
                    return Poll::Ready(Woken::News(news));
                }
                if !has_ended && let Poll::Ready(ended) = end.as_mut().poll(cx) {
                    return Poll::Ready(Woken::RunEnded(ended));
                }
                stopped.as_mut().poll(cx).map(Woken::Stopped)
            });
            match woken.await {
                Woken::News(news) => news?,
                Woken::RunEnded(Ok(())) => self.has_ended = true,
                Woken::RunEnded(Err(error)) => {
                    self.end = None;
                    return Err(match error {
                        RunError::Stopped(cause) => StreamReadError::Stopped(cause),
                        error => StreamReadError::Run(error),
                    });
                }
                Woken::Stopped(cause) => return Err(cause.into()),
            }
        }
    }

    /// The next item in hand, if any.
    fn in_hand(&mut self) -> Option<Result<StreamItem<Payload>, StreamReadError>> {
        match &mut self.log {
            Some(log) => log.in_hand(&self.inner),
            None => self.cursor.take_in_hand().map(Ok),
        }
    }

    /// Continues in the journal, if the stream has turned out to be durable.
    fn follow_log(&mut self) {
        if self.log.is_none()
            && let Some(log) = self.used.stream().log()
        {
            let (stream, position) = (self.used.stream(), self.cursor.position());
            let cursor = LogCursor::new(&self.inner, stream, &log, Some(position));
            self.log = Some(Box::new(cursor));
        }
    }

    /// The next item, if it exists already, and whether an attempt was sending before the look.
    async fn next_there(&mut self) -> Result<(Option<StreamItem<Payload>>, bool), StreamReadError> {
        let is_sent_to = self.is_sent_to();
        if let Some(log) = &mut self.log {
            return Ok((log.next_now(&self.inner).await?, is_sent_to));
        }
        let (lost, is_sent_to) = self.look();
        let item = lost.map(StreamItem::Missed);
        Ok((item.or_else(|| self.cursor.take_in_hand()), is_sent_to))
    }

    /// The next item, if it exists already, as [`try_next_encoded`](Self::try_next_encoded) returns it; for a durable stream
    /// this may read the store.
    ///
    /// # Errors
    /// See [`StreamReadError`].
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn next_encoded_now(&mut self) -> Result<Option<StreamItem<Payload>>, StreamReadError> {
        self.follow_log();
        match &mut self.log {
            Some(log) => log.next_now(&self.inner).await,
            None => Ok(self.try_next_encoded()),
        }
    }

    /// The next item, if it exists already, with an encoded chunk; `None` where [`next_encoded`](Self::next_encoded) would
    /// wait for one, or has none any more. It does not wait: for a durable stream it returns what is in hand.
    pub fn try_next_encoded(&mut self) -> Option<StreamItem<Payload>> {
        if let Some(log) = &mut self.log {
            // The next waiting call reports what cannot be read.
            return log.try_in_hand(&self.inner);
        }
        if !self.cursor.has_in_hand()
            && let Some(lost) = self.cursor.look(&self.used.stream().lock().items)
        {
            return Some(StreamItem::Missed(lost));
        }
        self.cursor.take_in_hand()
    }

    /// Whether an attempt has begun to send and has not ended. An attempt may continue for a while after the run has ended.
    #[must_use]
    pub fn is_sent_to(&self) -> bool {
        let tail = self.used.stream().lock();
        match tail.log() {
            Some(log) => log.is_sent_to(),
            None => tail.is_sent_to(),
        }
    }

    /// Takes items in hand, or returns how many are missing before the next one; also returns whether an attempt is sending
    /// at that moment. If none is, and the run has ended, so has the stream.
    fn look(&mut self) -> (Option<Lost>, bool) {
        let mut tail = self.used.stream().lock();
        let lost = self.cursor.look(&tail.items);
        tail.is_awaited |= lost.is_none() && !self.cursor.has_in_hand();
        (lost, tail.is_sent_to())
    }
}

impl<T: DeserializeOwned> StreamReader<T> {
    /// Waits for the next item. `None` when the run has ended, and no item can follow.
    ///
    /// # Errors
    /// See [`StreamReadError`].
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn next(&mut self) -> Result<Option<StreamItem<T>>, StreamReadError> {
        let Some(item) = self.next_encoded().await? else {
            return Ok(None);
        };
        Ok(Some(match item {
            StreamItem::Chunk(attempt, payload) => {
                let decoded = payload.decode().map_err(|error| StreamReadError::Undecodable {
                    problem: error.to_string(),
                })?;
                StreamItem::Chunk(attempt, decoded)
            }
            StreamItem::Began(attempt) => StreamItem::Began(attempt),
            StreamItem::Ended(attempt, end) => StreamItem::Ended(attempt, end),
            StreamItem::Missed(lost) => StreamItem::Missed(lost),
        }))
    }

    /// The items as a stream. It ends when the run has ended, or after the error that the runtime [has
    /// stopped](StreamReadError::Stopped) or that the run does not exist any more.
    pub fn into_stream(self) -> impl FutureStream<Item = Result<StreamItem<T>, StreamReadError>> + Send
    where
        T: Send,
    {
        stream::unfold(Some(self), |reader| async {
            let mut reader = reader?;
            let next = reader.next().await.transpose()?;
            let is_last = match &next {
                Err(StreamReadError::Stopped(_)) => true,
                Err(StreamReadError::Run(error)) => matches!(error, RunError::Expired | RunError::NotFound),
                _ => false,
            };
            Some((next, (!is_last).then_some(reader)))
        })
    }
}

fn refused(why: NoStream, name: &str) -> StreamOpenError {
    match why {
        NoStream::TooMany { len_max } => StreamOpenError::TooMany { len_max },
        NoStream::OtherType { known } => StreamOpenError::OtherType {
            name: name.to_owned(),
            known,
        },
    }
}

/// Waits until a run has ended, also while it is parked.
async fn run_ended(inner: Arc<Inner>, run: RunId) -> Result<(), RunError> {
    let target = Target::Run(run);
    loop {
        let standing = match standing(&inner, &target).await {
            Ok(Standing::Parked(_)) => {
                // Registered before it asks again, so that no change is missed.
                let (reply, answer) = oneshot::channel();
                let watch = Request::Watch {
                    target: target.clone(),
                    reply: reply.into(),
                };
                match inner.ask(&target, watch, answer).await {
                    Ok(changed) => match standing(&inner, &target).await {
                        Ok(Standing::Parked(_)) => {
                            inner.go_on(changed).await?;
                            continue;
                        }
                        standing => standing,
                    },
                    // It ended meanwhile.
                    Err(RunError::NotFound | RunError::Finished) => continue,
                    Err(error) => Err(error),
                }
            }
            standing => standing,
        };
        if let Standing::Ended(_) = standing? {
            return Ok(());
        }
    }
}

async fn standing(inner: &Inner, target: &Target) -> Result<Standing, RunError> {
    let (reply, answer) = oneshot::channel();
    let question = Request::Await {
        target: target.clone(),
        reply: reply.into(),
    };
    match inner.ask(target, question, answer).await {
        Err(RunError::NotFound) => inner.finished_standing(target.clone()).await,
        answer => answer,
    }
}
