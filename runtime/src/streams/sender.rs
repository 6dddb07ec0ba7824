//! The sender of an attempt.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use millrun_workflow::{OutputStream, Payload, PayloadError};
use serde::Serialize;

use super::attempt::AttemptMark;
use super::table::{NoStream, NotBegun, Stream, StreamUse};
use crate::ActivityContext;

/// Sends to an output stream of a run, for one attempt of an activity; made by [`ActivityContext::stream`]. A cheap clone.
/// It ends with the attempt.
pub struct StreamSender<T> {
    stream: Arc<Stream>,
    mark: AttemptMark,
    chunk_bytes_max: usize,
    payload: PhantomData<fn(T)>,
}

impl<T> Clone for StreamSender<T> {
    fn clone(&self) -> Self {
        Self {
            stream: Arc::clone(&self.stream),
            mark: self.mark.clone(),
            chunk_bytes_max: self.chunk_bytes_max,
            payload: PhantomData,
        }
    }
}

impl<T> fmt::Debug for StreamSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StreamSender").field(&self.mark.attempt).finish()
    }
}

/// Why a stream was not opened for an attempt.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OutputStreamError {
    /// This attempt is not waited for any more: it was cancelled, or is out of time, or the runtime has stopped. Stop.
    #[error("nobody waits for this attempt any more")]
    Cancelled,
    /// The runtime has as many streams as it may, and all are in use.
    #[error("the runtime has {len_max} output streams in use, and may have no more")]
    TooMany {
        /// The limit, [`streams_len_max`](crate::RuntimeConfig::streams_len_max).
        len_max: usize,
    },
    /// The stream of this name is [durable](ActivityContext::durable_stream): a stream is either durable or in memory.
    #[error("the output stream of this name is a durable one")]
    Durable,
    /// The stream of this name was opened with another type.
    #[error("the output stream {name:?} of this run carries {known}")]
    OtherType {
        /// The name.
        name: &'static str,
        /// The type with which it was first opened.
        known: &'static str,
    },
}

/// Why a chunk was not sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChunkError {
    /// The attempt has ended, or is not waited for any more. Stop.
    #[error("nobody waits for this attempt any more")]
    Cancelled,
    /// The chunk could not be encoded.
    #[error("the chunk could not be encoded")]
    Payload(#[from] PayloadError),
    /// The chunk is larger than the limit. Nothing was sent.
    #[error("the chunk has {bytes} bytes, one may have {bytes_max}: send smaller ones, or a reference")]
    TooLarge {
        /// Its encoded size.
        bytes: usize,
        /// The limit, [`stream_chunk_bytes_max`](crate::RuntimeConfig::stream_chunk_bytes_max).
        bytes_max: usize,
    },
}

impl ActivityContext {
    /// Opens an output stream of the run, to which this attempt sends while it works. Readers [follow
    /// it](crate::RunHandle::stream) live, and are told when the attempt begins, and when and how it ends, so that they can
    /// recognise a retry. If the same attempt opens it again, it gets the same stream.
    ///
    /// The stream belongs to the run, under its name. Other steps of the run may send to it as well: each chunk is labelled
    /// with its step and attempt.
    ///
    /// Its latest [`stream_tail_len_max`](crate::RuntimeConfig::stream_tail_len_max) items are kept in memory, and end with
    /// the process. Data that must not be lost belongs into the activity's result, or into a [durable](Self::durable_stream)
    /// stream.
    ///
    /// ```
    /// use millrun::streams::{AttemptEnd, StreamItem};
    /// use millrun::{
    ///     Activity, ActivityContext, ActivityError, OutputStream, Runtime, Workflow, WorkflowContext, WorkflowError,
    /// };
    ///
    /// const TOKENS: OutputStream<String> = OutputStream::named("tokens");
    /// const WRITE: Activity<String, String> = Activity::named("write");
    /// const ANSWER: Workflow<String, String> = Workflow::named("answer");
    ///
    /// async fn write(cx: ActivityContext, prompt: String) -> Result<String, ActivityError> {
    ///     let tokens = cx.stream(TOKENS)?;
    ///     for token in prompt.split_inclusive(' ') {
    ///         tokens.send(token)?; // As it comes from the model.
    ///     }
    ///     Ok(prompt)
    /// }
    ///
    /// async fn answer(cx: WorkflowContext, prompt: String) -> Result<String, WorkflowError> {
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
    ///     match item {
    ///         StreamItem::Began(attempt) => text.clear(), // A retry begins anew.
    ///         StreamItem::Chunk(_, token) => text.push_str(&token),
    ///         StreamItem::Ended(_, end) => assert_eq!(end, AttemptEnd::Succeeded),
    ///         StreamItem::Missed(lost) => println!("missed: {lost:?}"),
    ///         _ => {}
    ///     }
    /// }
    /// assert_eq!(text, run.result().await?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`OutputStreamError`].
    pub fn stream<T: 'static>(&self, stream: OutputStream<T>) -> Result<StreamSender<T>, OutputStreamError> {
        let runtime = self.runtime().map_err(|_| OutputStreamError::Cancelled)?;
        let shared = &runtime.inner().shared;
        let (name, config) = (stream.name(), &shared.config);
        let refused = |why| match why {
            NoStream::TooMany { len_max } => OutputStreamError::TooMany { len_max },
            NoStream::OtherType { known } => OutputStreamError::OtherType { name, known },
        };
        let used = (shared.streams).use_stream(self.run_id(), name, config, shared.host.random());
        let used: StreamUse = used.map_err(refused)?;
        used.typed::<T>().map_err(refused)?;
        let (stream, mut used) = (Arc::clone(used.stream()), Some(used));
        if shared.outputs.get(&stream.key).is_some() {
            return Err(OutputStreamError::Durable);
        }
        let mark = self.list_stream(&mut used, None);
        let mark = mark.ok_or(OutputStreamError::Cancelled)?;
        stream.begin(&mark).map_err(|not_begun| match not_begun {
            NotBegun::Over => OutputStreamError::Cancelled,
            NotBegun::Durable => OutputStreamError::Durable,
        })?;
        Ok(StreamSender {
            stream,
            mark,
            chunk_bytes_max: config.stream_chunk_bytes_max,
            payload: PhantomData,
        })
    }
}

impl<T> StreamSender<T> {
    /// Sends a chunk. Never waits: a slow reader costs the attempt nothing. Readers can get the chunk from now on, until
    /// later ones have taken its place.
    ///
    /// A borrowed form of `T` may be sent too, a `&str` for a `String` say.
    ///
    /// # Errors
    /// [`ChunkError::Cancelled`] when the attempt should stop; a `?` does that. With any other error nothing was sent, and
    /// the next chunk can be sent.
    pub fn send<C>(&self, chunk: &C) -> Result<(), ChunkError>
    where
        T: std::borrow::Borrow<C>,
        C: Serialize + ?Sized,
    {
        let payload = Payload::encode(chunk)?;
        let (bytes, bytes_max) = (payload.len(), self.chunk_bytes_max);
        if bytes > bytes_max {
            return Err(ChunkError::TooLarge { bytes, bytes_max });
        }
        if self.stream.send(&self.mark, payload) {
            Ok(())
        } else {
            Err(ChunkError::Cancelled)
        }
    }
}
