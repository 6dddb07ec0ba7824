//! Joins many small batches into one, and remembers which caller waits for which part of it.
//!
//! ```text
//!   gather ──► open generation: one batch ──(64 turns, or nobody adds more)──► enqueue: one offset
//!                  wakers, in order                                                │
//!                                                                                  ▼
//!   Gathered ◄── durable number ◄── generation goes, all its wakers at once ◄── queued generations
//! ```
//!
//! The journal's lock and the memory under it move from one processor to another with each enqueue; for sixteen thousand
//! callers that each enqueue one turn, that is half of the work. Here each thread fills its own batch, under a lock that
//! other threads seldom take.
//!
//! Invariants: generations of a list have consecutive numbers and become durable in that order. A waker is in its generation
//! from the first poll until the generation is durable, so no wake-up is lost. A turn is enqueued before its caller is
//! dropped, or never: whatever the caller appends later comes after it. While few callers wait, each batch is enqueued at
//! once. No waker is dropped or woken under the lock, and no watcher's bell is rung, since wakers and bells may run any code.
//! (A full journal may ring its own writer's bell.)

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use millrun_core::Offset;

use crate::batch::Batch;
use crate::error::{EnqueueError, JournalFailure};
use crate::journal::{Journal, RefusedTurn, Ringing};

/// The most turns in a gathered batch; a larger batch is enqueued by itself.
pub(crate) const GATHERED_LEN_MAX: usize = 64;
/// The most bytes in a gathered batch.
pub(crate) const GATHERED_BYTES_MAX: usize = 64 << 10;
/// While at most this many callers of a list wait, each batch is enqueued at once.
const FEW: usize = 32;
/// The most callers of one list that may wait at a time.
const WAITING_LEN_MAX: usize = 1 << 20;
/// How many empty lists of wakers are kept for reuse.
const SPARE_MAX: usize = 256;

/// The batches of one thread.
#[derive(Default)]
pub(crate) struct Gathering {
    inside: Mutex<GatherInside>,
    news: GatherNews,
}

/// What a woken caller reads, on a cache line apart from the fields that change with every batch.
#[derive(Default)]
#[repr(align(128))]
struct GatherNews {
    /// Generations with at most this number are durable.
    durable: AtomicU64,
    /// How many durable generations have refused turns that some caller has not asked about yet.
    refusals: AtomicUsize,
}

struct GatherInside {
    /// The turns of the open generation.
    batch: Batch,
    /// The number of each turn, by which its caller's ticket finds it; the turns of callers that were dropped may be missing.
    numbers: Vec<usize>,
    open: Generation,
    /// The open generation found the journal full, so it is the first to be enqueued when there is room.
    has_met_full: bool,
    /// Generations that are enqueued and, as far as this list knows, not durable.
    queued: VecDeque<Generation>,
    /// How many callers wait in all generations.
    waiting: usize,
    /// The refused turns of durable generations.
    refused: BTreeMap<u64, Generation>,
    /// Why the open generation is not enqueued and no further turn is taken. Queued generations may still become durable, as
    /// after a close.
    failure: Option<JournalFailure>,
    /// No caller is woken any more.
    is_over: bool,
    spare: Vec<Vec<Option<Waker>>>,
}

impl Default for GatherInside {
    fn default() -> Self {
        Self {
            batch: Batch::new(),
            numbers: Vec::new(),
            has_met_full: false,
            open: Generation {
                number: 1,
                ..Generation::default()
            },
            queued: VecDeque::new(),
            waiting: 0,
            refused: BTreeMap::new(),
            failure: None,
            is_over: false,
            spare: Vec::new(),
        }
    }
}

/// The turns that were enqueued as one batch.
#[derive(Default)]
struct Generation {
    number: u64,
    offset: Offset,
    /// How many turns it has had.
    turns: usize,
    /// The waker of each gathered batch, once its caller has polled.
    wakers: Vec<Option<Waker>>,
    /// How many callers still want the result.
    wanted: usize,
    refused: Vec<RefusedTurn>,
}

/// One caller's batch among those of a generation.
#[derive(Debug)]
pub(crate) struct BatchTicket {
    generation: u64,
    waker: usize,
    /// The numbers of its turns in the generation.
    turns: Range<usize>,
}

/// The work that remains for a list.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GatherLeft {
    /// A caller whose turns are durable has not been woken yet.
    pub(crate) sleepers: bool,
    /// Turns are gathered and not enqueued yet.
    pub(crate) gathered: bool,
}

impl GatherInside {
    /// Enqueues the open generation, or keeps it while the journal is full. Drop `ringing` when the lock is free.
    fn send(&mut self, journal: &dyn Journal, ringing: &mut Ringing) -> Result<(), EnqueueError> {
        let mut enqueued = match journal.enqueue_and_ring_later(&self.batch) {
            Ok((enqueued, rings)) => {
                ringing.add(rings);
                enqueued
            }
            Err(error) => {
                match &error {
                    EnqueueError::Full | EnqueueError::NotGathered => self.has_met_full = true,
                    EnqueueError::Failed(failure) => self.failure = Some(failure.clone()),
                }
                return Err(error);
            }
        };
        for refused in &mut enqueued.refused {
            refused.turn = self.numbers.get(refused.turn).copied().unwrap_or(refused.turn);
        }
        let next = Generation {
            number: self.open.number + 1,
            wakers: self.spare.pop().unwrap_or_default(),
            ..Generation::default()
        };
        let sent = std::mem::replace(&mut self.open, next);
        self.clear();
        self.queued.push_back(Generation {
            offset: enqueued.offset,
            refused: enqueued.refused,
            ..sent
        });
        Ok(())
    }

    /// Forgets the turns of the open generation.
    fn clear(&mut self) {
        self.has_met_full = false;
        self.batch.clear();
        self.batch.shrink(GATHERED_LEN_MAX, GATHERED_BYTES_MAX);
        self.numbers.clear();
        self.numbers.shrink_to(2 * GATHERED_LEN_MAX);
    }

    /// Takes the turns of a ticket out of the open generation.
    fn take_back(&mut self, ticket: &BatchTicket) {
        let first = self
            .numbers
            .partition_point(|number| *number < ticket.turns.start);
        let end = self.numbers.partition_point(|number| *number < ticket.turns.end);
        self.batch.cut(first..end);
        self.numbers.drain(first..end);
    }

    fn generation(&mut self, number: u64) -> Option<&mut Generation> {
        if number == self.open.number {
            return Some(&mut self.open);
        }
        let first = self.queued.front()?.number;
        let index = usize::try_from(number.checked_sub(first)?).ok()?;
        self.queued.get_mut(index)
    }
}

impl Generation {
    /// The refused turns of a ticket, by their number among the ticket's turns.
    fn refused(&self, ticket: &BatchTicket) -> Vec<RefusedTurn> {
        let of_place = |refused: &&RefusedTurn| ticket.turns.contains(&refused.turn);
        let refused = self.refused.iter().filter(of_place);
        refused
            .map(|refused| RefusedTurn {
                turn: refused.turn - ticket.turns.start,
                error: refused.error.clone(),
            })
            .collect()
    }
}

impl Gathering {
    fn lock(&self) -> MutexGuard<'_, GatherInside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a batch. Returns its ticket, and whether the caller must have it enqueued.
    ///
    /// # Errors
    /// [`EnqueueError::Full`] if there is room neither here nor in the journal.
    pub(crate) fn put(
        &self,
        journal: &dyn Journal,
        batch: &Batch,
    ) -> Result<(BatchTicket, bool), EnqueueError> {
        let mut ringing = Ringing::default();
        let mut inside = self.lock();
        if let Some(failure) = &inside.failure {
            return Err(EnqueueError::Failed(failure.clone()));
        }
        if inside.waiting >= WAITING_LEN_MAX {
            return Err(EnqueueError::Full);
        }
        let has_room = inside.batch.turns() + batch.turns() <= GATHERED_LEN_MAX
            && inside.batch.bytes() + batch.bytes() <= GATHERED_BYTES_MAX;
        if !has_room && !inside.open.wakers.is_empty() {
            inside.send(journal, &mut ringing)?;
        }
        let first = inside.open.turns;
        let turns = first..first + batch.turns();
        inside.batch.join(batch);
        inside.numbers.extend(turns.clone());
        inside.open.turns = turns.end;
        inside.waiting += 1;
        let ticket = BatchTicket {
            generation: inside.open.number,
            waker: inside.open.wakers.len(),
            turns,
        };
        inside.open.wakers.push(None);
        inside.open.wanted += 1;
        let is_enough =
            inside.batch.turns() >= GATHERED_LEN_MAX || inside.batch.bytes() >= GATHERED_BYTES_MAX;
        if is_enough || inside.waiting <= FEW {
            return match inside.send(journal, &mut ringing) {
                // The batch is taken; it is enqueued when there is room: then the bell rings anyway.
                Ok(()) | Err(EnqueueError::Full) => Ok((ticket, false)),
                // The callers that already waited must be told too.
                Err(_) => Ok((ticket, true)),
            };
        }
        let is_first = ticket.waker == 0;
        Ok((ticket, is_first))
    }

    /// Whether the turns of a ticket are durable, and which were refused.
    pub(crate) fn poll(
        &self,
        journal: &dyn Journal,
        ticket: &BatchTicket,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Vec<RefusedTurn>, EnqueueError>> {
        let is_durable = || self.news.durable.load(Ordering::Acquire) >= ticket.generation;
        if is_durable() {
            return Poll::Ready(Ok(self.refused(ticket)));
        }
        let mut inside = self.lock();
        let is_open = ticket.generation == inside.open.number;
        let failure = inside.failure.clone();
        if let Some(failure) = failure.clone().filter(|_| is_open) {
            return Poll::Ready(Err(EnqueueError::Failed(failure)));
        }
        let over = failure.filter(|_| inside.is_over);
        let Some(generation) = inside.generation(ticket.generation) else {
            drop(inside);
            debug_assert!(is_durable(), "a generation goes only when it is durable");
            return Poll::Ready(Ok(self.refused(ticket)));
        };
        if !is_open {
            // The failure is read first: a last flush may make the turns durable just before it.
            let failure = journal.failure().or(over);
            if journal.high_watermark() >= generation.offset {
                return Poll::Ready(Ok(generation.refused(ticket)));
            }
            if let Some(failure) = failure {
                return Poll::Ready(Err(EnqueueError::Failed(failure)));
            }
        }
        let earlier = generation.wait(ticket, cx);
        drop(inside);
        drop(earlier);
        Poll::Pending
    }

    /// The refused turns of a durable generation's ticket.
    fn refused(&self, ticket: &BatchTicket) -> Vec<RefusedTurn> {
        if self.news.refusals.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let inside = self.lock();
        let generation = inside.refused.get(&ticket.generation);
        generation.map_or_else(Vec::new, |generation| generation.refused(ticket))
    }

    /// The caller of this ticket is gone: its turns are enqueued if they are not yet, or taken back while the journal is
    /// full. Returns whether other callers must be told that the journal has failed.
    pub(crate) fn forget(&self, journal: &dyn Journal, ticket: &BatchTicket) -> bool {
        let is_durable = self.news.durable.load(Ordering::Acquire) >= ticket.generation;
        if is_durable && self.news.refusals.load(Ordering::Acquire) == 0 {
            return false;
        }
        let mut ringing = Ringing::default();
        let mut inside = self.lock();
        let mut has_failed = false;
        if ticket.generation == inside.open.number && inside.failure.is_none() {
            match inside.send(journal, &mut ringing) {
                Ok(()) => {}
                // If they were enqueued later, they could come after what the caller appends in place of this ticket.
                Err(EnqueueError::Full | EnqueueError::NotGathered) => inside.take_back(ticket),
                Err(EnqueueError::Failed(_)) => has_failed = true,
            }
        }
        let mut waker = None;
        if let Some(generation) = inside.generation(ticket.generation) {
            generation.wanted -= 1;
            waker = generation.wakers.get_mut(ticket.waker).and_then(Option::take);
        } else if let Some(generation) = inside.refused.get_mut(&ticket.generation) {
            generation.wanted -= 1;
            if generation.wanted == 0 {
                inside.refused.remove(&ticket.generation);
                self.news.refusals.fetch_sub(1, Ordering::Release);
            }
        }
        if inside.open.wanted == 0 && !inside.open.wakers.is_empty() {
            // All its turns have been taken back.
            inside.waiting -= inside.open.wakers.len();
            inside.open.wakers.clear();
            inside.open.turns = 0;
            inside.clear();
        }
        drop(inside);
        drop(waker);
        has_failed
    }

    /// Enqueues the gathered turns, unless the journal is full.
    pub(crate) fn flush(&self, journal: &dyn Journal) {
        let mut ringing = Ringing::default();
        let mut inside = self.lock();
        if !inside.open.wakers.is_empty() && inside.failure.is_none() {
            inside.send(journal, &mut ringing).ok();
        }
    }

    /// Enqueues the gathered turns if they found the journal full: they get room before the callers that are told of it.
    pub(crate) fn retry(&self, journal: &dyn Journal) {
        let mut ringing = Ringing::default();
        let mut inside = self.lock();
        if inside.has_met_full && inside.failure.is_none() {
            inside.send(journal, &mut ringing).ok();
        }
    }

    /// Takes out up to `most` wakers of callers whose turns are durable. Enqueues the gathered turns if `sends` is set or if
    /// they had found the journal full. After a failure all wakers are taken out, and a caller that polls later is told at
    /// once.
    pub(crate) fn turn(
        &self,
        journal: &dyn Journal,
        failure: Option<&JournalFailure>,
        sends: bool,
        most: usize,
        woken: &mut Vec<Waker>,
    ) -> GatherLeft {
        let mut ringing = Ringing::default();
        let mut inside = self.lock();
        if inside.failure.is_none() {
            inside.failure = failure.cloned();
        }
        inside.is_over |= failure.is_some();
        let mut left = GatherLeft::default();
        if !inside.open.wakers.is_empty() && inside.failure.is_none() {
            if sends || inside.has_met_full {
                // While the journal is full, the generation stays: the bell rings when there is room.
                inside.send(journal, &mut ringing).ok();
            } else {
                left.gathered = true;
            }
        }
        let watermark = journal.high_watermark();
        let is_durable = |generation: &mut Generation| generation.offset <= watermark;
        while woken.len() < most
            && let Some(mut generation) = inside.queued.pop_front_if(is_durable)
        {
            inside.waiting -= generation.wakers.len();
            woken.extend(generation.wakers.iter_mut().filter_map(Option::take));
            let mut wakers = std::mem::take(&mut generation.wakers);
            if inside.spare.len() < SPARE_MAX {
                wakers.clear();
                inside.spare.push(wakers);
            }
            let number = generation.number;
            if !generation.refused.is_empty() && generation.wanted > 0 {
                inside.refused.insert(number, generation);
                self.news.refusals.fetch_add(1, Ordering::Release);
            }
            self.news.durable.store(number, Ordering::Release);
        }
        left.sleepers = inside
            .queued
            .front()
            .is_some_and(|generation| generation.offset <= watermark);
        if inside.failure.is_some() {
            let GatherInside { queued, open, .. } = &mut *inside;
            // When no further turn is taken, queued generations may still become durable, until the journal has failed.
            let queued = queued.iter_mut().filter(|_| failure.is_some());
            let all = queued.chain([open]);
            woken.extend(all.flat_map(|generation| generation.wakers.iter_mut().filter_map(Option::take)));
        }
        left
    }
}

impl Generation {
    /// Keeps the waker for a ticket. Returns an earlier one.
    fn wait(&mut self, ticket: &BatchTicket, cx: &Context<'_>) -> Option<Waker> {
        let waker = &mut self.wakers[ticket.waker];
        match waker {
            Some(waker) if waker.will_wake(cx.waker()) => None,
            waker => waker.replace(cx.waker().clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use millrun_core::{Epoch, InstanceId, RunId, Sequence, Timestamp};

    use super::*;
    use crate::batch::TurnHeader;
    use crate::{JournalConfig, MemoryJournal};

    #[test]
    fn the_memory_of_a_large_batch_is_given_back() {
        let journal = MemoryJournal::held(JournalConfig::default()).unwrap();
        let id = InstanceId::new("a").unwrap();
        let time = Timestamp::from_micros(1);
        let header = TurnHeader {
            run: RunId::new(id.partition(), time, 1),
            head: Sequence::ZERO,
            epoch: Epoch::new(1),
            time,
            opens: Some(&id),
        };
        let mut batch = Batch::new();
        for _ in 0..1_000 {
            let mut turn = batch.turn(header);
            let body = |bytes: &mut Vec<u8>| {
                bytes.resize(bytes.len() + 1_000, 7);
                Ok::<_, Infallible>(())
            };
            turn.record(1, body).unwrap();
            turn.finish(false).unwrap();
        }
        let gathering = Gathering::default();
        gathering.put(&journal, &batch).unwrap();
        let inside = gathering.lock();
        assert_eq!(inside.queued.len(), 1);
        let (turns, bytes) = inside.batch.capacity();
        assert!(turns <= 2 * GATHERED_LEN_MAX && bytes <= 2 * GATHERED_BYTES_MAX);
        assert!(inside.numbers.capacity() <= 2 * GATHERED_LEN_MAX);
    }
}
