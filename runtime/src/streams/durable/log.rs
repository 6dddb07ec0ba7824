//! A durable output stream in use: the items on their way to the journal, and the attempts under way.
//!
//! ```text
//!   push ─► queue [ began │ 17 │ 18 │ ended ] ─► writer takes what there is ─► one append ─► durable
//!             bounded by bytes                        ▲ the next when that is answered ────────┘
//! ```
//!
//! Invariants: one append is under way at a time, and only behind the record that the former answer named as the last: so an
//! append that is repeated after its answer was lost is not made twice. Nothing counts as durable unless it was confirmed, or
//! read back. The writer exists while an attempt is under way. The lock is not held during calls to other parts.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use millrun_core::{Host, Partition, RunId, Sequence};
use tokio::sync::Notify;

use super::index::{KeptStreamKey, kept_name};
use super::record;
use crate::StopCause;
use crate::inner::Inner;
use crate::streams::attempt::{AttemptEnd, AttemptMark, StreamAttempt};
use crate::streams::table::StreamUse;
use crate::streams::tail::TailItem;
use crate::topics::durable::declared::KnownTopic;
use crate::topics::durable::publish::{DurablePublishError, RecordToAppend, append_records};
use crate::topics::durable::reader::TopicReader;

/// How many items one append has at most, and about how many bytes.
const APPENDED_LEN_MAX: usize = 256;
const APPENDED_BYTES_MAX: usize = 256 << 10;
/// The writer's pause before it asks again after a part was restarted.
const PAUSE: Duration = Duration::from_millis(10);

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct StreamLog {
    pub(super) known: KnownTopic,
    pub(super) run: RunId,
    /// The name of its topic, while that exists.
    name: String,
    state: Mutex<LogState>,
    /// Notified when something has become durable, or the state has changed in another way.
    pub(in crate::streams) changed: Notify,
    /// Notified when there is something to append.
    to_write: Notify,
}

#[derive(Debug)]
struct LogState {
    queue: VecDeque<QueuedItem>,
    /// The number of items queued since it was opened, and of those that are durable.
    queued: u64,
    durable: u64,
    /// The bytes that are queued or being appended.
    in_flight_bytes: usize,
    /// Bytes of all items, those in flight included.
    bytes: usize,
    /// The attempts that have begun and whose end is not durable.
    under_way: Vec<StreamAttempt>,
    /// The last record.
    last: Sequence,
    has_writer: bool,
    broken: Option<LogBroken>,
}

/// An item on its way. The item that ends an attempt keeps the stream in use until it is durable.
#[derive(Debug)]
struct QueuedItem {
    item: TailItem,
    #[expect(dead_code, reason = "it is kept to be dropped later")]
    used: Option<StreamUse>,
}

/// The state of a stream, found when it was opened.
#[derive(Debug, Default)]
pub(super) struct FoundLog {
    pub(super) last: Sequence,
    pub(super) bytes: usize,
    /// Attempts that have begun and not ended.
    pub(super) under_way: Vec<StreamAttempt>,
}

/// Why nothing more can be appended.
#[derive(Clone, Debug)]
pub(super) enum LogBroken {
    /// Another process has the run's partition.
    Moved,
    /// The stream was removed with its run.
    Removed,
    Stopped(StopCause),
}

/// Bounds of a stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogBounds {
    pub(super) bytes_max: usize,
    pub(super) in_flight_bytes_max: usize,
}

/// Why an item was not queued.
#[derive(Clone, Debug)]
pub(super) enum NotQueued {
    /// The attempt has ended.
    Over,
    Full,
    /// There is no room in flight: try again when the state has changed.
    Later(TailItem),
    Broken(LogBroken),
}

impl LogState {
    /// Queues an item, and returns its number.
    fn push(&mut self, item: TailItem, used: Option<StreamUse>) -> u64 {
        let bytes = record::bytes_of(&item);
        self.in_flight_bytes += bytes;
        self.bytes = self.bytes.saturating_add(bytes);
        self.queued += 1;
        self.queue.push_back(QueuedItem { item, used });
        self.queued
    }

    fn check(&self) -> Result<(), NotQueued> {
        match &self.broken {
            Some(broken) => Err(NotQueued::Broken(broken.clone())),
            None => Ok(()),
        }
    }
}

impl StreamLog {
    /// The stream in this state. Attempts that began in another life end as lost, unless `is_read_only`.
    pub(super) fn new(known: KnownTopic, key: &KeptStreamKey, found: FoundLog, is_read_only: bool) -> Self {
        let mut state = LogState {
            queue: VecDeque::new(),
            queued: 0,
            durable: 0,
            in_flight_bytes: 0,
            bytes: found.bytes,
            under_way: if is_read_only { Vec::new() } else { found.under_way },
            last: found.last,
            has_writer: false,
            broken: None,
        };
        for attempt in state.under_way.clone() {
            state.push(TailItem::Ended(attempt, AttemptEnd::Lost), None);
        }
        Self {
            known,
            run: key.0,
            name: kept_name(key.0, &key.1),
            state: Mutex::new(state),
            changed: Notify::new(),
            to_write: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, LogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an attempt has begun whose end is not durable.
    pub(crate) fn is_sent_to(&self) -> bool {
        !self.lock().under_way.is_empty()
    }

    /// Closes the log for good, since its run was removed, unless an attempt is under way. Returns whether it is closed.
    pub(crate) fn close_unless_sent_to(&self) -> bool {
        let mut state = self.lock();
        let is_unused = state.under_way.is_empty();
        if is_unused && state.broken.is_none() {
            state.broken = Some(LogBroken::Removed);
        }
        is_unused
    }

    /// Whether nothing more can be appended.
    pub(in crate::streams) fn is_broken(&self) -> bool {
        self.lock().broken.is_some()
    }

    /// Whether its state is complete, if `last` is the last durable record: another owner of the partition may have appended
    /// while nothing was on its way from here.
    pub(super) fn is_up_to_date(&self, last: Sequence) -> bool {
        let state = self.lock();
        state.broken.is_none() && (!state.under_way.is_empty() || state.last == last)
    }

    /// Queues the beginning of an attempt, once.
    pub(super) fn begin(&self, mark: &AttemptMark, bounds: LogBounds) -> Result<(), NotQueued> {
        let mut state = self.lock();
        state.check()?;
        if mark.is_over.load(Ordering::Acquire) {
            return Err(NotQueued::Over);
        }
        if mark.has_begun.load(Ordering::Relaxed) {
            return Ok(());
        }
        if state.bytes >= bounds.bytes_max {
            return Err(NotQueued::Full);
        }
        mark.has_begun.store(true, Ordering::Relaxed);
        state.under_way.push(mark.attempt);
        state.push(TailItem::Began(mark.attempt), None);
        drop(state);
        self.to_write.notify_one();
        Ok(())
    }

    /// Queues a chunk of an attempt, and returns its number.
    pub(super) fn push(
        &self,
        mark: &AttemptMark,
        item: TailItem,
        bounds: LogBounds,
    ) -> Result<u64, NotQueued> {
        let bytes = record::bytes_of(&item);
        let mut state = self.lock();
        if mark.is_over.load(Ordering::Acquire) {
            return Err(NotQueued::Over);
        }
        state.check()?;
        if state.bytes.saturating_add(bytes) > bounds.bytes_max {
            return Err(NotQueued::Full);
        }
        // A chunk larger than the limit in flight goes alone.
        if state.in_flight_bytes > 0 && state.in_flight_bytes + bytes > bounds.in_flight_bytes_max {
            return Err(NotQueued::Later(item));
        }
        let number = state.push(item, None);
        drop(state);
        self.to_write.notify_one();
        Ok(number)
    }

    /// Queues the end of an attempt, if the attempt has begun here, and keeps the stream in use until that is durable. The
    /// attempt has been marked as over before.
    pub(crate) fn end(
        &self,
        used: StreamUse,
        has_begun: &AtomicBool,
        attempt: StreamAttempt,
        end: AttemptEnd,
    ) {
        let mut state = self.lock();
        // If the log is broken, the next opener of the stream finds the outcome in the journal.
        if !has_begun.load(Ordering::Relaxed) || state.broken.is_some() {
            drop(state);
            return;
        }
        state.push(TailItem::Ended(attempt, end), Some(used));
        drop(state);
        self.to_write.notify_one();
        // Attempts that wait for room are told that theirs is over.
        self.changed.notify_waiters();
    }

    /// The number of items queued so far.
    pub(super) fn queued(&self) -> u64 {
        self.lock().queued
    }

    /// Waits until the item with this number is durable.
    pub(super) async fn until_durable(&self, number: u64) -> Result<(), LogBroken> {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // Registered before it looks, so that no change is missed.
            changed.as_mut().enable();
            {
                let state = self.lock();
                if state.durable >= number {
                    return Ok(());
                }
                if let Some(broken) = &state.broken {
                    return Err(broken.clone());
                }
            }
            changed.await;
        }
    }

    /// Starts the writer, unless it is running or has nothing to do.
    pub(super) fn start_writer(self: &Arc<Self>, inner: &Arc<Inner>) {
        {
            let mut state = self.lock();
            let has_work = !state.under_way.is_empty() && state.broken.is_none();
            if !has_work || std::mem::replace(&mut state.has_writer, true) {
                return;
            }
        }
        let host: Arc<dyn Host> = Arc::clone(&inner.shared.host);
        let writer = write(Arc::clone(self), Arc::downgrade(inner));
        drop(host.spawn("millrun-output-stream", Box::pin(writer)));
    }

    /// Takes the items of the next append, and the record behind which they go; `None` if there is nothing.
    fn take(&self) -> Option<(Vec<QueuedItem>, Sequence)> {
        let mut state = self.lock();
        let (mut taken, mut bytes) = (Vec::new(), 0);
        while taken.len() < APPENDED_LEN_MAX
            && let Some(next) = state.queue.front()
        {
            bytes += record::bytes_of(&next.item);
            if !taken.is_empty() && bytes > APPENDED_BYTES_MAX {
                break;
            }
            taken.extend(state.queue.pop_front());
        }
        (!taken.is_empty()).then_some((taken, state.last))
    }

    /// Ends the writer if no attempt is under way. Returns whether it ends.
    fn ends_writer(&self) -> bool {
        let mut state = self.lock();
        let ends = state.broken.is_some() || (state.queue.is_empty() && state.under_way.is_empty());
        if ends {
            state.has_writer = false;
        }
        ends
    }

    fn note_durable(&self, appended: Vec<QueuedItem>, last: Sequence) {
        let mut state = self.lock();
        state.durable += appended.len() as u64;
        state.last = last;
        for QueuedItem { item, .. } in &appended {
            state.in_flight_bytes -= record::bytes_of(item);
            if let TailItem::Ended(attempt, _) = item {
                state.under_way.retain(|under_way| under_way != attempt);
            }
        }
        drop(state);
        self.changed.notify_waiters();
        drop(appended);
    }

    fn break_off(&self, broken: LogBroken, taken: Vec<QueuedItem>) {
        let mut state = self.lock();
        state.broken = Some(broken);
        state.under_way.clear();
        let left = std::mem::take(&mut state.queue);
        drop(state);
        self.changed.notify_waiters();
        drop((left, taken));
    }
}

/// The writer of a stream, which runs while an attempt is under way.
async fn write(log: Arc<StreamLog>, inner: Weak<Inner>) {
    loop {
        let Some((taken, last)) = log.take() else {
            if log.ends_writer() {
                return;
            }
            log.to_write.notified().await;
            continue;
        };
        let Some(inner) = inner.upgrade() else {
            return log.break_off(LogBroken::Stopped(StopCause::Shutdown), taken);
        };
        match append(&log, &inner, &taken, last).await {
            Ok(last) => log.note_durable(taken, last),
            Err(broken) => {
                let run = log.run;
                if !matches!(broken, LogBroken::Stopped(_)) {
                    tracing::warn!(%run, ?broken, "nothing more is appended to a durable output stream");
                }
                return log.break_off(broken, taken);
            }
        }
    }
}

/// Appends these items behind the record `last`. Returns the new last record.
async fn append(
    log: &StreamLog,
    inner: &Arc<Inner>,
    items: &[QueuedItem],
    last: Sequence,
) -> Result<Sequence, LogBroken> {
    let partition: Partition = log.run.partition();
    let mut was_answer_lost = false;
    loop {
        let mut encoded = items.iter().map(|item| record::encode(log.run, &item.item));
        let Some(body) = encoded.next() else {
            return Ok(last);
        };
        let record = RecordToAppend {
            topic: log.known.number,
            partition,
            id: None,
            payload_len: body.len(),
            body,
            unless_changed: Some((log.known.number, last)),
        };
        match append_records(inner, record, encoded.collect()).await {
            Ok((sequence, _)) => return Ok(sequence),
            Err(DurablePublishError::UnknownTopic) => return Err(LogBroken::Removed),
            Err(DurablePublishError::Moved { .. }) => {
                let summary = inner.streams().summary(log.known.number);
                if summary.is_none_or(|summary| summary.name != log.name) {
                    return Err(LogBroken::Removed);
                }
                // An earlier request may have appended them, and its answer was lost with a part.
                let are_there = was_answer_lost && are_behind(log, inner, items, last).await;
                let through = Sequence::new(last.get() + items.len() as u64);
                return if are_there {
                    Ok(through)
                } else {
                    Err(LogBroken::Moved)
                };
            }
            Err(DurablePublishError::Stopped(StopCause::Part { .. })) if inner.settled_cause().is_none() => {
                // A part was restarted with the request in hand.
                was_answer_lost = true;
                let host = &inner.shared.host;
                host.sleep_until(host.now() + PAUSE).await;
            }
            Err(DurablePublishError::Stopped(cause)) => return Err(LogBroken::Stopped(cause)),
            Err(error) => {
                // Cannot happen, since sizes are checked before.
                tracing::error!(%error, "an item of a durable output stream was refused");
                return Err(LogBroken::Stopped(inner.stop_cause()));
            }
        }
    }
}

/// Whether the records behind `last` are these items, and not another owner's.
async fn are_behind(log: &StreamLog, inner: &Arc<Inner>, items: &[QueuedItem], last: Sequence) -> bool {
    let mut reader = TopicReader::<()>::behind(Arc::clone(inner), log.known, last);
    let mut next = last.next();
    for QueuedItem { item, .. } in items {
        match reader.next_raw_now().await {
            Ok(Some(raw)) if raw.sequence == next && raw.body == record::encode(log.run, item) => {
                next = next.next();
            }
            _ => return false,
        }
    }
    true
}
