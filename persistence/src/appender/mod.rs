//! Futures that wait until a batch is durable.
//!
//! ```text
//!   append ──► enqueue ──► offset ──► waiting ──(watermark ≥ offset)──► Ok
//!                                        ▲ wakes the tasks whose batch is durable
//!   journal ──► bell ──► two parts "millrun-appends"
//!                                        │ enqueues what lies there, wakes likewise
//!   gather ──► batch of many (see `gather`) ──(64 turns)──► enqueue ──► Ok
//! ```
//!
//! Waking thousands of tasks takes longer than a commit, so the appender's own parts do it and not the journal's writer; they
//! run where the tasks run, where a wake-up is cheapest. A part wakes a limited number of tasks at a time: these run, and
//! append again, before the next ones are woken. There are two parts, each for half of the lists: while one wakes, other
//! threads run the tasks that the other has woken.
//!
//! Invariants: a list is sorted by offset, so the appenders to wake are always at its front. When a part ends, its waiters
//! are told so, and so are all that come later. Gathered turns are enqueued by the second next turn of their part at the
//! latest: in between, tasks that are ready to run may add to them. A gathering's lock is taken before the journal's. Left
//! out on purpose: fairness among appenders that found the journal full.

mod gather;

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use millrun_core::{Bell, Host, Next, Offset, Part, PartExit, Placement, SpawnError, Timestamp};

use crate::batch::Batch;
use crate::error::{EnqueueError, FailureKind, JournalFailure};
use crate::journal::{Enqueued, Journal, RefusedTurn};
use gather::{BatchTicket, Gathering};

/// Appends batches to a journal and waits until they are durable. A cheap clone.
///
/// The number of waiting callers is bounded by the program that spawns them; each costs about 32 bytes here.
#[derive(Clone, Debug)]
pub struct Appender(Arc<AppenderInner>);

struct AppenderInner {
    journal: Arc<dyn Journal>,
    /// Several lists, each for some threads, so that appenders on several threads seldom meet.
    waiting: [Mutex<WaitingAppend>; LISTS],
    gatherings: [Gathering; LISTS],
    /// One for each part.
    bells: [Bell; PARTS],
    /// Why no caller is woken any more, if so.
    over: OnceLock<JournalFailure>,
}

const LISTS: usize = 16;
/// The number of parts that wake callers, each those of some lists: while one part works, another thread runs the tasks that
/// the other part has woken.
const PARTS: usize = 2;

/// The most tasks that a part wakes in one turn, however large its budget: as many as the local queue of a tokio worker
/// holds.
const WOKEN_LEN_MAX: usize = 256;

/// The part that wakes the callers of a list.
fn part_of(list: usize) -> usize {
    list % PARTS
}

/// The list of this thread.
fn list_of_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static LIST: usize = NEXT.fetch_add(1, Ordering::Relaxed) % LISTS;
    }
    // Any list will do while a thread ends.
    LIST.try_with(|list| *list).unwrap_or(0)
}

#[derive(Default)]
struct WaitingAppend {
    /// The callers whose batch is queued, by offset: the next to wake is in front.
    queued: VecDeque<(Offset, Waker)>,
    /// The callers that found the journal full.
    full: Vec<Waker>,
}

impl WaitingAppend {
    /// Adds one. Offsets come nearly in order: a few threads race for the lock.
    fn push(&mut self, offset: Offset, waker: Waker) {
        let at = match self.queued.back() {
            Some((last, _)) if *last > offset => self.queued.partition_point(|(other, _)| *other <= offset),
            _ => self.queued.len(),
        };
        self.queued.insert(at, (offset, waker));
    }

    /// Takes out up to `most` wakers with offsets up to the watermark; returns whether these were all.
    fn take(&mut self, watermark: Offset, most: usize, woken: &mut Vec<Waker>) -> bool {
        let done = self.queued.partition_point(|(offset, _)| *offset <= watermark);
        let taken = self.queued.drain(..done.min(most));
        woken.extend(taken.map(|(_, waker)| waker));
        done <= most
    }
}

impl Appender {
    /// Starts the two parts that wake waiting callers; they end when the last clone is dropped.
    ///
    /// # Errors
    /// When the host refuses the part.
    pub fn new(journal: Arc<dyn Journal>, host: &dyn Host) -> Result<Self, SpawnError> {
        let bells: [Bell; PARTS] = Default::default();
        for bell in &bells {
            journal.watch(bell.clone());
        }
        let inner = Arc::new(AppenderInner {
            journal,
            waiting: Default::default(),
            gatherings: Default::default(),
            bells: bells.clone(),
            over: OnceLock::new(),
        });
        for (part, bell) in bells.into_iter().enumerate() {
            let waking = Waking {
                inner: Arc::downgrade(&inner),
                durable: Vec::new(),
                lists: (0..LISTS).filter(|list| part_of(*list) == part).collect(),
                has_let_others_run: false,
            };
            let waited_for = Arc::downgrade(&inner);
            let ended = move |_: PartExit| {
                if let Some(inner) = waited_for.upgrade() {
                    inner.end();
                }
            };
            host.spawn_part(
                "millrun-appends",
                Placement::Actor,
                bell,
                Box::new(waking),
                Box::new(ended),
            )?;
        }
        Ok(Self(inner))
    }

    /// Enqueues the batch, waits for room if the journal is full, and completes when the batch is durable. The result names
    /// the refused turns; the others are durable.
    ///
    /// # Ordering
    /// The journal orders the batches of concurrent calls as it takes them.
    ///
    /// # Errors
    /// When the journal has failed. Whether the batch became durable is known only after the store has been opened again.
    ///
    /// # Cancel safety
    /// If the future is dropped while it waits for room, nothing was done; if it is dropped later, the batch is queued and
    /// becomes durable anyway. Appending the batch again is safe as long as its runs are live: each turn that was taken is
    /// then refused as already appended. For runs that may have finished, call [`Reads::resolve`](crate::Reads::resolve)
    /// first: a turn that opens a run is not compared with finished runs, and would begin the run a second time.
    pub async fn append(&self, batch: &Batch) -> Result<Enqueued, EnqueueError> {
        let enqueued = poll_fn(|cx| self.0.poll_enqueue(cx, batch)).await?;
        self.durable(enqueued.offset).await?;
        Ok(enqueued)
    }

    /// Takes a copy of the batch, to be enqueued together with other callers' batches; the [`Gathered`] completes when it is
    /// durable. This is for thousands of tasks that append one turn each: the journal gets 64 turns at a time, from memory
    /// that stays in the processor's cache. While few callers wait, each batch is enqueued at once, as
    /// [`append`](Self::append) does.
    ///
    /// The batch may be reused when this returns, so many tasks of a thread can share one.
    ///
    /// # Ordering
    /// Batches that are gathered one after the other on one thread are enqueued in that order. Work that depends on a batch
    /// (the next turn of its run) must wait for its [`Gathered`], or be in the batch.
    ///
    /// # Errors
    /// [`EnqueueError::Full`]: nothing was taken; [`append`](Self::append) waits for room. [`EnqueueError::NotGathered`]: the
    /// batch has records of topics. [`EnqueueError::Failed`]: the journal takes nothing any more.
    ///
    /// # Cancel safety
    /// When a [`Gathered`] is dropped, its batch has been enqueued together with those that were gathered with it. While the
    /// journal is full, a batch that is not enqueued yet is taken back instead, and nothing was done. Either way the batch
    /// cannot come after anything appended later, so the rules of [`append`](Self::append) hold.
    pub fn gather(&self, batch: &Batch) -> Result<Gathered<'_>, EnqueueError> {
        if batch.topic_records() > 0 {
            return Err(EnqueueError::NotGathered);
        }
        let (inner, list) = (&*self.0, list_of_thread());
        match inner.gatherings[list].put(&*inner.journal, batch) {
            Ok((ticket, rings)) => {
                if rings {
                    inner.bells[part_of(list)].ring_after_lock();
                }
                Ok(Gathered { inner, list, ticket })
            }
            Err(error) => {
                // Other callers may have been waiting too, and must be told.
                if !error.is_retryable() {
                    inner.bells[part_of(list)].ring();
                }
                Err(error)
            }
        }
    }

    /// Waits until everything up to `offset` is durable: the other half of [`append`](Self::append),
    /// for callers of [`enqueue`](Journal::enqueue) themselves. A batch is free again once it is
    /// queued, so many tasks of a thread can share one, which then stays in the processor's cache.
    ///
    /// # Errors
    /// When the journal has failed before that.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    pub async fn durable(&self, offset: Offset) -> Result<(), EnqueueError> {
        poll_fn(|cx| self.0.poll_durable(cx, offset)).await
    }
}

impl AppenderInner {
    fn poll_enqueue(&self, cx: &mut Context<'_>, batch: &Batch) -> Poll<Result<Enqueued, EnqueueError>> {
        match self.journal.enqueue(batch) {
            Err(EnqueueError::Full) => {}
            outcome => return Poll::Ready(outcome),
        }
        // Registered before the second attempt: room made in between rings after it.
        self.list().full.push(cx.waker().clone());
        match self.journal.enqueue(batch) {
            Err(EnqueueError::Full) => match self.over.get() {
                Some(failure) => Poll::Ready(Err(EnqueueError::Failed(failure.clone()))),
                None => Poll::Pending,
            },
            outcome => Poll::Ready(outcome),
        }
    }

    fn poll_durable(&self, cx: &mut Context<'_>, offset: Offset) -> Poll<Result<(), EnqueueError>> {
        if self.journal.high_watermark() >= offset {
            return Poll::Ready(Ok(()));
        }
        self.list().push(offset, cx.waker().clone());
        if self.journal.high_watermark() >= offset {
            return Poll::Ready(Ok(()));
        }
        match self.failure() {
            // A flush at the end may have made it durable just before.
            Some(_) if self.journal.high_watermark() >= offset => Poll::Ready(Ok(())),
            Some(failure) => Poll::Ready(Err(EnqueueError::Failed(failure))),
            None => Poll::Pending,
        }
    }

    /// Why nothing is to be waited for any more.
    fn failure(&self) -> Option<JournalFailure> {
        self.journal.failure().or_else(|| self.over.get().cloned())
    }

    /// The part has ended, and nobody will be woken any more: tells all who wait, and all who come.
    fn end(&self) {
        let message = "whoever tells that batches are durable was stopped before the last appender";
        let failure = JournalFailure::new(FailureKind::WriterLost, message);
        let failure = self.journal.failure().unwrap_or(failure);
        self.over.set(failure.clone()).ok();
        let mut all = Vec::new();
        for (gathering, waiting) in self.gatherings.iter().zip(&self.waiting) {
            gathering.turn(&*self.journal, Some(&failure), false, usize::MAX, &mut all);
            let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
            all.append(&mut waiting.full);
            waiting.take(Offset::new(u64::MAX), usize::MAX, &mut all);
        }
        wake(&mut all);
    }

    /// The list of this thread.
    fn list(&self) -> MutexGuard<'_, WaitingAppend> {
        self.waiting[list_of_thread()]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// A batch that was [gathered](Appender::gather), until it is durable: then gives the turns that were
/// refused, by their number in the batch; the others have been made durable.
///
/// Fails when the journal has failed: whether the batch became durable is then known only after the
/// store has been opened again.
#[derive(Debug)]
#[must_use = "a refused turn is named here and nowhere else"]
pub struct Gathered<'a> {
    inner: &'a AppenderInner,
    list: usize,
    ticket: BatchTicket,
}

impl Future for Gathered<'_> {
    type Output = Result<Vec<RefusedTurn>, EnqueueError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.inner.gatherings[self.list].poll(&*self.inner.journal, &self.ticket, cx)
    }
}

impl Drop for Gathered<'_> {
    fn drop(&mut self) {
        let inner = self.inner;
        if inner.gatherings[self.list].forget(&*inner.journal, &self.ticket) {
            inner.bells[part_of(self.list)].ring();
        }
    }
}

impl Drop for AppenderInner {
    fn drop(&mut self) {
        // Only of a `Gathered` that was leaked can anything be left. While the journal is full it goes.
        for gathering in &self.gatherings {
            gathering.flush(&*self.journal);
        }
        for bell in &self.bells {
            bell.ring();
        }
    }
}

impl fmt::Debug for AppenderInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AppenderInner")
            .field("journal", &self.journal)
            .finish_non_exhaustive()
    }
}

/// Wakes the appenders whose batch is durable, and those that wait for room; enqueues what was gathered.
struct Waking {
    inner: Weak<AppenderInner>,
    /// Those of one turn, to be woken when no lock is held.
    durable: Vec<Waker>,
    /// Those that it looks after, the one first that comes first in the next turn.
    lists: Vec<usize>,
    /// Something was gathered, and the tasks that were ready have run since.
    has_let_others_run: bool,
}

/// Wakes all of them. A waker is anybody's code: that one panics is not the others' loss.
fn wake(wakers: &mut Vec<Waker>) {
    for waker in wakers.drain(..) {
        if catch_unwind(AssertUnwindSafe(|| waker.wake())).is_err() {
            tracing::error!("a waker panicked when its batch was durable");
        }
    }
}

impl Part for Waking {
    fn turn(&mut self, _now: Timestamp, budget: usize) -> Next {
        let Some(inner) = self.inner.upgrade() else {
            return Next::Stop;
        };
        let failure = inner.journal.failure();
        let watermark = match failure {
            // Nobody waits for anything any more.
            Some(_) => Offset::new(u64::MAX),
            None => inner.journal.high_watermark(),
        };
        let sends = std::mem::take(&mut self.has_let_others_run);
        let budget = budget.min(WOKEN_LEN_MAX);
        for (list, gathering) in inner.gatherings.iter().enumerate() {
            if !self.lists.contains(&list) {
                gathering.retry(&*inner.journal);
            }
        }
        // Those who wait for room, however many, leave so much to the others of each list.
        let share = (budget / self.lists.len()).max(1);
        let mut is_all = true;
        for number in &self.lists {
            let number = *number;
            let left = inner.gatherings[number].turn(
                &*inner.journal,
                failure.as_ref(),
                sends,
                budget.max(self.durable.len() + share),
                &mut self.durable,
            );
            self.has_let_others_run |= left.gathered;
            is_all &= !left.sleepers;
            let mut waiting = inner.waiting[number]
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            self.durable.append(&mut waiting.full);
            let most = budget.saturating_sub(self.durable.len()).max(share);
            is_all &= waiting.take(watermark, most, &mut self.durable);
        }
        self.lists.rotate_left(1);
        wake(&mut self.durable);
        if is_all && !self.has_let_others_run {
            Next::Idle
        } else {
            Next::Again
        }
    }
}
