//! What the callers, the writer and the readers of a journal share, under one lock.
//!
//! Nobody waits for a server with the lock in hand. Bells are rung without it, but for the answers to claims: these are
//! put on their lists under it, so that a loss of what is granted is told behind the grant.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use millrun_core::{Bell, Epoch, Offset, Partition, RunId, Timestamp};
use millrun_persistence::{
    Batch, Claim, ClaimRefused, FailureKind, JournalFailure, ReadError, RefusedTurn, Ringing, SealedTopics,
    TopicAppend, TopicRegister, UpkeepNumber, Upkeeps,
};

use crate::heads::LiveHeads;
use crate::queued::QueuedEntry;

pub(crate) struct PostgresShared {
    state: Mutex<SharedState>,
    /// Told of each entry for the writer, and of its end.
    changed: Condvar,
}

pub(crate) struct SharedState {
    pub(crate) heads: LiveHeads,
    pub(crate) topics: TopicRegister,
    queue: Vec<QueuedEntry>,
    /// The latest epochs that are not stored.
    epochs: BTreeMap<Partition, Epoch>,
    /// A flush is wanted without an entry: for what the topics have, or for a look whether this opening has the store.
    is_touched: bool,
    pub(crate) queued_len: usize,
    pub(crate) queued_bytes: usize,
    pub(crate) queued_snapshot_bytes: usize,
    /// A caller was refused for lack of room, and waits for a bell.
    pub(crate) was_full: bool,
    pub(crate) enqueued: Offset,
    /// The offset of the last flush that the writer has taken: its statement may be under way already.
    taken: Offset,
    pub(crate) durable: Offset,
    /// Claims whose partitions are fenced, each with the offset that must be durable first.
    claims: VecDeque<FencedClaim>,
    pub(crate) is_closing: bool,
    pub(crate) is_closed: bool,
    pub(crate) failure: Option<JournalFailure>,
    pub(crate) watchers: Vec<Bell>,
    pub(crate) upkeeps: Upkeeps,
    pub(crate) counts: WrittenCounts,
}

/// A claim that has its epochs.
pub(crate) struct FencedClaim {
    pub(crate) claim: Claim,
    pub(crate) given: Vec<(Partition, Epoch)>,
    from: Offset,
}

/// What is counted of what is durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WrittenCounts {
    pub(crate) finished_runs: u64,
    pub(crate) finished_bytes: u64,
    pub(crate) dropped_runs: u64,
    pub(crate) commits: u64,
    pub(crate) turns: u64,
    pub(crate) bytes: u64,
    pub(crate) last_commit: Duration,
}

/// What the writer takes for a flush.
pub(crate) struct Taken {
    pub(crate) topics: SealedTopics,
    pub(crate) entries: Vec<QueuedEntry>,
    pub(crate) epochs: BTreeMap<Partition, Epoch>,
    pub(crate) offset: Offset,
    pub(crate) upkeep: Option<(UpkeepNumber, Timestamp)>,
}

/// What the writer finds in the queue.
pub(crate) enum Took {
    Flush(Taken),
    /// Nothing has come for as long as it waits.
    Idle,
    /// The journal is to close, and nothing is left.
    End,
}

/// What the writer says of a flush that is durable.
pub(crate) struct Landed {
    pub(crate) offset: Offset,
    pub(crate) counts: WrittenCounts,
    /// An upkeep that is done with it.
    pub(crate) upkept: Option<UpkeepNumber>,
}

impl PostgresShared {
    pub(crate) fn new(heads: LiveHeads, topics: TopicRegister, counts: WrittenCounts) -> Arc<Self> {
        let state = SharedState {
            heads,
            topics,
            queue: Vec::new(),
            epochs: BTreeMap::new(),
            is_touched: false,
            queued_len: 0,
            queued_bytes: 0,
            queued_snapshot_bytes: 0,
            was_full: false,
            enqueued: Offset::ZERO,
            taken: Offset::ZERO,
            durable: Offset::ZERO,
            claims: VecDeque::new(),
            is_closing: false,
            is_closed: false,
            failure: None,
            watchers: Vec::new(),
            upkeeps: Upkeeps::default(),
            counts,
        };
        Arc::new(Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
        })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, SharedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state of a journal that takes something.
    pub(crate) fn open_state(&self) -> Result<MutexGuard<'_, SharedState>, JournalFailure> {
        let state = self.lock();
        match &state.failure {
            Some(failure) => Err(failure.clone()),
            None if state.is_closing => Err(JournalFailure::closed()),
            None => Ok(state),
        }
    }

    /// After a close nothing is read; after any other failure reading goes on.
    pub(crate) fn readable(&self) -> Result<(), ReadError> {
        match &self.lock().failure {
            Some(failure) if failure.kind() == FailureKind::Closed => Err(failure.clone().into()),
            _ => Ok(()),
        }
    }

    /// Wakes the writer.
    pub(crate) fn wake(&self) {
        self.changed.notify_all();
    }

    /// What is to be flushed next; waits so long for something.
    pub(crate) fn take(&self, wait_max: Duration) -> Took {
        let mut state = self.lock();
        loop {
            let upkeep = state.upkeeps.next();
            if state.has_work() || upkeep.is_some() {
                let entries = std::mem::take(&mut state.queue);
                let epochs = std::mem::take(&mut state.epochs);
                state.is_touched = false;
                (state.queued_len, state.queued_bytes, state.queued_snapshot_bytes) = (0, 0, 0);
                let (offset, topics) = (state.enqueued, state.topics.seal());
                state.taken = offset;
                let bells = match std::mem::take(&mut state.was_full) {
                    true => state.watchers.clone(),
                    false => Vec::new(),
                };
                drop(state);
                drop(Ringing::of(bells));
                return Took::Flush(Taken {
                    topics,
                    entries,
                    epochs,
                    offset,
                    upkeep,
                });
            }
            if state.is_closing {
                return Took::End;
            }
            let (woken, waited) = self
                .changed
                .wait_timeout(state, wait_max)
                .unwrap_or_else(PoisonError::into_inner);
            state = woken;
            if waited.timed_out() && !state.has_work() && !state.is_closing {
                return Took::Idle;
            }
        }
    }

    /// Whether the journal is to end: then a server is not waited for.
    pub(crate) fn is_closing(&self) -> bool {
        self.lock().is_closing
    }

    /// Moves the watermark and tells everybody; gives the claims that can be answered now.
    pub(crate) fn landed(&self, landed: Landed) -> Vec<FencedClaim> {
        let mut state = self.lock();
        state.durable = landed.offset;
        state.counts = landed.counts;
        let upkept = landed.upkept.map(|number| state.upkeeps.finish(number, Ok(())));
        let is_ready = |claim: &&FencedClaim| claim.from <= landed.offset;
        let ready = state.claims.iter().take_while(is_ready).count();
        let ready: Vec<_> = state.claims.drain(..ready).collect();
        let bells = state.watchers.clone();
        drop(state);
        drop((upkept, Ringing::of(bells)));
        self.changed.notify_all();
        ready
    }

    /// The journal has ended, for this reason unless it had one before: tells all who wait.
    pub(crate) fn end(&self, failure: JournalFailure) {
        let mut state = self.lock();
        let failure = state.failure.get_or_insert(failure).clone();
        let mut told = state.upkeeps.fail(&failure);
        for waiting in std::mem::take(&mut state.claims) {
            told.add(waiting.claim.refuse(ClaimRefused::Failed(failure.clone())));
        }
        state.queue.clear();
        state.is_closed = true;
        told.add(Ringing::of(state.watchers.clone()));
        drop(state);
        drop(told);
        self.changed.notify_all();
    }

    /// Waits until the writer has ended.
    pub(crate) fn wait_closed(&self) -> Option<JournalFailure> {
        let mut state = self.lock();
        while !state.is_closed {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.failure.clone()
    }

    /// A record of this run is damaged.
    pub(crate) fn quarantine(&self, run: RunId) {
        self.lock().heads.quarantine(run);
    }
}

impl SharedState {
    /// Queues an entry, which counts as a turn does.
    pub(crate) fn push(&mut self, entry: QueuedEntry) {
        self.queue.push(entry);
        self.queued_len += 1;
    }

    fn has_work(&self) -> bool {
        !self.queue.is_empty() || !self.epochs.is_empty() || self.is_touched
    }

    /// Partitions have new epochs, which are to be durable before anybody relies on them. The partitions are in order.
    pub(crate) fn give(&mut self, given: &[(Partition, Epoch)]) {
        let partitions: Vec<_> = given.iter().map(|(partition, _)| *partition).collect();
        self.heads.trust(&partitions);
        self.epochs.extend(given.iter().copied());
        self.enqueued = self.enqueued.next();
    }

    /// Takes the records of topics of a batch of which these turns were refused.
    pub(crate) fn append_to_topics(&mut self, batch: &Batch, refused: &[RefusedTurn]) -> Vec<TopicAppend> {
        let (len, bytes) = self.topics.queued();
        let appends = self.topics.append(batch, refused, &self.heads.owners);
        let (len_now, bytes_now) = self.topics.queued();
        if len_now > len {
            self.queued_len += len_now - len;
            self.queued_bytes += bytes_now - bytes;
            self.is_touched = true;
        }
        appends
    }

    /// Something has changed that the next flush writes; gives the offset of that.
    pub(crate) fn touch(&mut self) -> Offset {
        self.is_touched = true;
        self.enqueued = self.enqueued.next();
        self.enqueued
    }

    /// The offset of a flush that the writer has not taken yet: what it finds of the term is found after this call.
    pub(crate) fn next_flush(&mut self) -> Offset {
        if self.enqueued > self.taken {
            return self.enqueued;
        }
        self.touch()
    }

    /// A claim waits until all that is queued is durable.
    pub(crate) fn wait(&mut self, claim: Claim, given: Vec<(Partition, Epoch)>) {
        let from = self.enqueued;
        self.claims.push_back(FencedClaim { claim, given, from });
    }
}
