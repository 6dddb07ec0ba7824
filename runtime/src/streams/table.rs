//! The streams of a runtime, by run and name.
//!
//! A stream that an attempt or a reader uses stays. Others are kept until their places are needed: the one that has been out
//! of use the longest is dropped first.

use std::any::{TypeId, type_name};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use millrun_core::RunId;
use millrun_workflow::Payload;
use rustc_hash::FxBuildHasher;
use tokio::sync::Notify;

use super::attempt::{AttemptEnd, AttemptMark, StreamAttempt};
use super::durable::log::StreamLog;
use super::tail::{StreamTail, TailItem};
use crate::RuntimeConfig;

/// Names a stream.
pub(super) type StreamKey = (RunId, Arc<str>);

/// Why an attempt cannot begin to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotBegun {
    /// It has ended.
    Over,
    /// The stream is a durable one.
    Durable,
}

/// Why there is no stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoStream {
    TooMany { len_max: usize },
    OtherType { known: &'static str },
}

/// The table.
#[derive(Debug, Default)]
pub(crate) struct OutputStreams {
    table: Mutex<StreamTable>,
}

#[derive(Debug, Default)]
struct StreamTable {
    streams: HashMap<StreamKey, KeptStream, FxBuildHasher>,
    /// Streams out of use, in the order in which they came out of use.
    unused: BTreeMap<u64, StreamKey>,
    turns: u64,
}

#[derive(Debug)]
struct KeptStream {
    stream: Arc<Stream>,
    users: usize,
    /// Its key in `unused`, while it has no users.
    unused_since: u64,
}

/// A stream of a run.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(super) key: StreamKey,
    /// Random; chosen when it was made. Positions name it.
    pub(super) life: u64,
    payload: OnceLock<(TypeId, &'static str)>,
    tail: Mutex<AwaitedTail>,
    pub(super) news: Notify,
    /// Locked while the state of a durable stream is being read.
    pub(super) opening: tokio::sync::Mutex<()>,
}

/// The tail, and its waiting readers.
#[derive(Debug)]
pub(super) struct AwaitedTail {
    pub(super) items: StreamTail,
    pub(super) is_awaited: bool,
    /// The number of attempts that have begun and not ended.
    attempts_len: usize,
    /// Its log, once it is known to be durable: then the tail is empty.
    log: Option<Arc<StreamLog>>,
}

impl AwaitedTail {
    pub(super) fn is_sent_to(&self) -> bool {
        self.attempts_len > 0
    }

    /// The stream's log, if it is known to be durable.
    pub(super) fn log(&self) -> Option<&Arc<StreamLog>> {
        self.log.as_ref()
    }
}

/// A stream in use.
#[derive(Debug)]
pub(crate) struct StreamUse {
    streams: Arc<OutputStreams>,
    stream: Arc<Stream>,
}

impl OutputStreams {
    fn lock(&self) -> MutexGuard<'_, StreamTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a stream as in use, and makes it if there is none.
    pub(crate) fn use_stream(
        self: &Arc<Self>,
        run: RunId,
        name: &str,
        config: &RuntimeConfig,
        life: u64,
    ) -> Result<StreamUse, NoStream> {
        let key = (run, Arc::from(name));
        let mut table = self.lock();
        let stream = match table.take_up(&key) {
            Some(stream) => stream,
            None => {
                let dropped = table.make_room(config.streams_len_max)?;
                let stream = Arc::new(Stream {
                    key: key.clone(),
                    life,
                    payload: OnceLock::new(),
                    tail: Mutex::new(AwaitedTail {
                        items: StreamTail::new(config.stream_tail_len_max, config.stream_tail_bytes_max),
                        is_awaited: false,
                        attempts_len: 0,
                        log: None,
                    }),
                    news: Notify::new(),
                    opening: tokio::sync::Mutex::default(),
                });
                let kept = KeptStream {
                    stream: Arc::clone(&stream),
                    users: 1,
                    unused_since: 0,
                };
                table.streams.insert(key, kept);
                drop(table);
                drop(dropped);
                stream
            }
        };
        Ok(StreamUse {
            streams: Arc::clone(self),
            stream,
        })
    }
}

impl OutputStreams {
    /// The streams of this run in memory, also those to which nothing was sent.
    pub(super) fn of_run(&self, run: RunId) -> Vec<Arc<Stream>> {
        let table = self.lock();
        let all = table.streams.iter().filter(|((of, _), _)| *of == run);
        all.map(|(_, kept)| Arc::clone(&kept.stream)).collect()
    }

    /// Closes this durable stream for good, unless an attempt sends to it or an attempt's end is not durable yet. Returns
    /// whether it is closed.
    pub(super) fn close_unless_sent_to(&self, key: &StreamKey) -> bool {
        let stream = (self.lock().streams.get(key)).map(|kept| Arc::clone(&kept.stream));
        let Some(stream) = stream else { return true };
        // If it is being opened, the opener finds out its state.
        let Ok(_opening) = stream.opening.try_lock() else {
            return false;
        };
        let is_closed = stream.log().is_none_or(|log| log.close_unless_sent_to());
        if is_closed {
            let given_up = self.lock().remove_unused(key);
            drop(given_up);
        }
        is_closed
    }
}

impl StreamTable {
    fn take_up(&mut self, key: &StreamKey) -> Option<Arc<Stream>> {
        let kept = self.streams.get_mut(key)?;
        if kept.users == 0 {
            self.unused.remove(&kept.unused_since);
        }
        kept.users += 1;
        Some(Arc::clone(&kept.stream))
    }

    /// Makes room for one more. Returns the stream that was removed, to be dropped outside of the lock.
    fn make_room(&mut self, len_max: usize) -> Result<Option<KeptStream>, NoStream> {
        if self.streams.len() < len_max {
            return Ok(None);
        }
        // The ends of attempts of a former life may be on their way to the journal.
        let may_go = |key: &&StreamKey| {
            let log = self.streams.get(*key).and_then(|kept| kept.stream.log());
            log.is_none_or(|log| !log.is_sent_to())
        };
        let longest = self.unused.values().find(may_go).cloned();
        let longest = longest.ok_or(NoStream::TooMany { len_max })?;
        Ok(self.remove_unused(&longest))
    }

    /// Removes a stream, if it is out of use.
    fn remove_unused(&mut self, key: &StreamKey) -> Option<KeptStream> {
        let kept = self.streams.get(key).filter(|kept| kept.users == 0)?;
        self.unused.remove(&kept.unused_since);
        self.streams.remove(key)
    }

    /// Returns the stream if nothing was ever sent to it, so that nothing of it has to be kept.
    fn give_up(&mut self, stream: &Stream, is_empty: bool) -> Option<KeptStream> {
        let kept = self.streams.get_mut(&stream.key)?;
        kept.users -= 1;
        if kept.users > 0 {
            return None;
        }
        if is_empty {
            return self.streams.remove(&stream.key);
        }
        self.turns += 1;
        kept.unused_since = self.turns;
        self.unused.insert(self.turns, stream.key.clone());
        None
    }
}

impl Stream {
    pub(super) fn lock(&self) -> MutexGuard<'_, AwaitedTail> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells readers that an attempt has begun, once.
    pub(super) fn begin(&self, mark: &AttemptMark) -> Result<(), NotBegun> {
        self.add(|tail| {
            if tail.log.is_some() {
                return Err(NotBegun::Durable);
            }
            if mark.is_over.load(Ordering::Acquire) {
                return Err(NotBegun::Over);
            }
            let has_begun = mark.has_begun.swap(true, Ordering::Relaxed);
            tail.attempts_len += usize::from(!has_begun);
            Ok((!has_begun).then_some(TailItem::Began(mark.attempt)))
        })
    }

    /// Its log, if it is known to be durable.
    pub(super) fn log(&self) -> Option<Arc<StreamLog>> {
        self.lock().log.clone()
    }

    /// Whether something was sent to it in memory.
    pub(super) fn is_volatile(&self) -> bool {
        let tail = self.lock();
        tail.attempts_len > 0 || tail.items.end() > 1
    }

    /// Sets its log: the stream is durable, and readers are notified. `false` if chunks were sent to it in memory meanwhile.
    pub(super) fn set_log(&self, log: Arc<StreamLog>) -> bool {
        let mut tail = self.lock();
        if tail.attempts_len > 0 || tail.items.end() > 1 {
            return false;
        }
        tail.log = Some(log);
        drop(tail);
        self.news.notify_waiters();
        true
    }

    /// Adds a chunk of an attempt, if the attempt has not ended.
    #[inline]
    pub(super) fn send(&self, mark: &AttemptMark, payload: Payload) -> bool {
        self.add(|_| {
            if mark.is_over.load(Ordering::Acquire) {
                return Err(NotBegun::Over);
            }
            Ok(Some(TailItem::Chunk(mark.attempt, payload)))
        })
        .is_ok()
    }

    /// Tells readers how an attempt has ended, if they know of it.
    pub(super) fn end(&self, has_begun: &AtomicBool, attempt: StreamAttempt, end: AttemptEnd) {
        let ended: Result<(), ()> = self.add(|tail| {
            let is_told = has_begun.load(Ordering::Relaxed);
            tail.attempts_len -= usize::from(is_told);
            Ok(is_told.then_some(TailItem::Ended(attempt, end)))
        });
        debug_assert!(ended.is_ok(), "an end is always told");
    }

    /// Adds the item that `item` returns. It is called under the lock: what it checks only changes under this lock, or
    /// before.
    #[inline]
    fn add<E>(&self, item: impl FnOnce(&mut AwaitedTail) -> Result<Option<TailItem>, E>) -> Result<(), E> {
        let mut tail = self.lock();
        let Some(item) = item(&mut tail)? else {
            return Ok(());
        };
        tail.items.push(item);
        let is_awaited = std::mem::take(&mut tail.is_awaited);
        drop(tail);
        if is_awaited {
            self.news.notify_waiters();
        }
        Ok(())
    }
}

impl StreamUse {
    pub(super) fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// Sets the type of its chunks, if it is not set yet.
    pub(super) fn typed<T: 'static>(&self) -> Result<(), NoStream> {
        let (id, known) = self
            .stream
            .payload
            .get_or_init(|| (TypeId::of::<T>(), type_name::<T>()));
        if *id == TypeId::of::<T>() {
            return Ok(());
        }
        Err(NoStream::OtherType { known })
    }
}

impl Drop for StreamUse {
    fn drop(&mut self) {
        let is_empty = {
            let tail = self.stream.lock();
            // A log knows its state, and may have the ends of a former life on their way.
            tail.items.end() == 1 && tail.log.as_ref().is_none_or(|log| log.is_broken())
        };
        let given_up = self.streams.lock().give_up(&self.stream, is_empty);
        drop(given_up);
    }
}
