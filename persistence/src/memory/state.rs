//! What a journal in memory holds, under its lock.
//!
//! ```text
//!   turn ──► frames of a live run ──(more turns)──► finishing ──commit──► retained, behind the others
//!               ▲                                                │
//!               └────────────── buffer used again ◄──────────────┘
//! ```

use std::collections::BTreeMap;

use millrun_core::{Bell, Epoch, InstanceId, Offset, RunId};

use super::claims::WaitingClaim;
use super::retained::{Close, KnownRun, RetainedRuns};
use super::topics::MemoryTopics;
use crate::batch::{Batch, TurnSpan};
use crate::conditions::{Conditions, Head, rests_on_refused};
use crate::config::JournalConfig;
use crate::error::{FailureKind, JournalFailure, ReadError, TurnRefused};
use crate::finished::IdHash;
use crate::journal::{RefusedTurn, Ringing};
use crate::record::{FinishedRun, Snapshot};
use crate::scan;
use crate::topics::TopicAppend;
use crate::upkeep::Upkeeps;
use crate::wire::v1;

/// How many buffers of finished runs are kept for new runs, and the most bytes of each.
const SPARE_LEN_MAX: usize = 1_024;
const SPARE_BYTES_MAX: usize = 4 << 10;

/// A new run gets a buffer of at most this many times its size: it may keep it for long.
const SPARE_FACTOR_MAX: usize = 4;

#[derive(Debug)]
pub(super) struct MemoryState {
    is_held: bool,
    pub(super) conditions: Conditions<RunFrames>,
    pub(super) finished: RetainedRuns,
    /// The snapshots of live runs.
    pub(super) snapshots: BTreeMap<RunId, Snapshot>,
    pub(super) topics: MemoryTopics,
    pub(super) dropped: u64,
    /// Runs with turns in queued batches (only when commits are held).
    touched: Vec<RunId>,
    /// Runs that queued batches will close.
    finishing: Vec<(Close, RunFrames)>,
    spare: Vec<Vec<u8>>,
    pub(super) enqueued: Offset,
    pub(super) durable: Offset,
    pub(super) queued_bytes: usize,
    /// The number of queued turns and records of topics.
    pub(super) queued_len: usize,
    pub(super) was_full: bool,
    pub(super) failure: Option<JournalFailure>,
    pub(super) watchers: Vec<Bell>,
    pub(super) upkeeps: Upkeeps,
    /// Claims that are not answered yet.
    pub(super) claims: Vec<WaitingClaim>,
    pub(super) live_bytes: u64,
    pub(super) commits: u64,
    pub(super) turns: u64,
    pub(super) bytes: u64,
}

/// The frames of one run.
#[derive(Debug, Default)]
pub(super) struct RunFrames {
    bytes: Vec<u8>,
    /// How many of the bytes are durable.
    durable: usize,
    /// How many of the bytes the run is trimmed of once the rest is durable.
    trimmed: usize,
}

impl MemoryState {
    pub(super) fn new(config: &JournalConfig, is_held: bool, epoch: Epoch) -> Self {
        Self {
            is_held,
            conditions: Conditions::new(epoch, config.turn_bytes_max),
            finished: RetainedRuns::new(config.retention),
            snapshots: BTreeMap::new(),
            topics: MemoryTopics::new(config.topics_len_max, config.topic_ids_len_max),
            dropped: 0,
            touched: Vec::new(),
            finishing: Vec::new(),
            spare: Vec::new(),
            enqueued: Offset::ZERO,
            durable: Offset::ZERO,
            queued_bytes: 0,
            queued_len: 0,
            was_full: false,
            failure: None,
            watchers: Vec::new(),
            upkeeps: Upkeeps::default(),
            claims: Vec::new(),
            live_bytes: 0,
            commits: 0,
            turns: 0,
            bytes: 0,
        }
    }

    /// Copies what is durable in `old`.
    pub(super) fn take_over_durable(&mut self, old: &Self) {
        for (close, frames) in old.finished.list(0) {
            self.finished.add(close, frames.to_vec());
        }
        let finishing = old.finishing.iter().map(|(close, frames)| (close.run, frames));
        let live = old
            .conditions
            .heads()
            .iter()
            .map(|(run, head)| (run, &head.place));
        for (run, frames) in live.chain(finishing).filter(|(_, frames)| frames.durable > 0) {
            let mut durable = frames.durable().to_vec();
            v1::seal_all(&mut durable);
            let last = scan::last_turn(&durable).expect("this journal framed them itself");
            let snapshot = old.snapshots.get(&run);
            if let Some(snapshot) = snapshot.filter(|kept| kept.sequence.get() <= u64::from(last.last)) {
                self.snapshots.insert(run, snapshot.clone());
            }
            self.live_bytes += durable.len() as u64;
            let frames = RunFrames {
                durable: durable.len(),
                bytes: durable,
                trimmed: 0,
            };
            self.conditions.restore(run, last, frames);
        }
        self.topics.take_over_durable(&old.topics);
    }

    #[inline]
    pub(super) fn is_queued(&self) -> bool {
        self.queued_len > 0
    }

    /// Takes the records of topics of a batch, of which these turns were refused.
    #[cold]
    pub(super) fn append_to_topics(&mut self, batch: &Batch, refused: &[RefusedTurn]) -> Vec<TopicAppend> {
        let Some(records) = batch.topics() else {
            return Vec::new();
        };
        let (len, bytes) = (self.topics.table.queued_len, self.topics.table.queued_bytes);
        let appends = self
            .topics
            .table
            .append(records, refused, &self.conditions.owners);
        self.queued_len += self.topics.table.queued_len - len;
        self.queued_bytes += self.topics.table.queued_bytes - bytes;
        appends
    }

    pub(super) fn admit(&mut self, batch: &Batch) -> Vec<RefusedTurn> {
        let mut refused = Vec::new();
        let (spans, mut index) = (batch.spans(), 0);
        while let Some(turn) = spans.get(index) {
            if turn.group > 1 {
                index = self.admit_group(batch, index, &mut refused);
                continue;
            }
            if rests_on_refused(turn, index, &refused) {
                let error = TurnRefused::ReadAgain;
                refused.push(RefusedTurn { turn: index, error });
            } else if let Err(error) = self.admit_turn(turn, batch.frames(turn)) {
                refused.push(RefusedTurn { turn: index, error });
            }
            index += 1;
        }
        refused
    }

    /// Takes the group that begins with this turn, or refuses it as a whole; returns the index of the next turn.
    #[cold]
    fn admit_group(&mut self, batch: &Batch, first: usize, refused: &mut Vec<RefusedTurn>) -> usize {
        let group = batch.group_at(first);
        let turns = &batch.spans()[group.clone()];
        let errors = if rests_on_refused(&turns[0], first, refused) {
            Some(vec![TurnRefused::ReadAgain; turns.len()])
        } else {
            let is_last = |turn: &TurnSpan, head: &Head<RunFrames>| head.place.ends_with(batch.frames(turn));
            self.conditions.refuse_group(turns, |_| false, is_last)
        };
        if let Some(errors) = errors {
            let errors = group.clone().zip(errors);
            refused.extend(errors.map(|(turn, error)| RefusedTurn { turn, error }));
            return group.end;
        }
        for (index, turn) in group.clone().zip(turns) {
            if let Err(error) = self.admit_turn(turn, batch.frames(turn)) {
                refused.push(RefusedTurn { turn: index, error });
            }
        }
        group.end
    }

    fn admit_turn(&mut self, turn: &TurnSpan, frames: &[u8]) -> Result<(), TurnRefused> {
        let (is_held, spare) = (self.is_held, &mut self.spare);
        let put = |stored: &mut RunFrames| {
            // A buffer that is too large is freed, so that smaller ones can be used again.
            if turn.opens
                && let Some(buffer) = spare.pop()
                && buffer.capacity() <= SPARE_FACTOR_MAX * frames.len()
            {
                stored.bytes = buffer;
            }
            if turn.trims {
                stored.trimmed = stored.bytes.len();
            }
            stored.bytes.extend_from_slice(frames);
            if !is_held {
                stored.durable = stored.bytes.len();
            }
        };
        let is_last = |head: &Head<RunFrames>| head.place.ends_with(frames);
        let ended = self.conditions.admit(turn, put, is_last)?;
        self.queued_len += 1;
        self.queued_bytes += frames.len();
        self.live_bytes += frames.len() as u64;
        if (turn.closes || turn.trims) && !self.snapshots.is_empty() {
            self.snapshots.remove(&turn.run);
        }
        match ended {
            Some(stored) => {
                let close = Close {
                    run: turn.run,
                    id: scan::id_hash(&stored.bytes),
                    closed_at: turn.time,
                    head: turn.last,
                    kind: turn.last_kind,
                };
                self.finishing.push((close, stored));
            }
            None if self.is_held || turn.trims => self.touched.push(turn.run),
            None => {}
        }
        Ok(())
    }

    pub(super) fn commit(&mut self) {
        for run in self.touched.drain(..) {
            if let Some(head) = self.conditions.head_mut(run) {
                self.live_bytes -= head.place.trim();
                head.place.durable = head.place.bytes.len();
            }
        }
        for (close, mut frames) in self.finishing.drain(..) {
            self.live_bytes -= frames.trim();
            self.live_bytes -= frames.bytes.len() as u64;
            let given_back = self.finished.add(close, frames.bytes);
            self.dropped += self.finished.trim(close.closed_at);
            if let Some(mut buffer) = given_back
                && self.spare.len() < SPARE_LEN_MAX
                && buffer.capacity() <= SPARE_BYTES_MAX
            {
                buffer.clear();
                self.spare.push(buffer);
            }
        }
        let mut turns = self.queued_len;
        if self.topics.table.queued_len > 0 {
            turns -= self.topics.table.queued_len;
            self.topics.commit();
        }
        self.commits += 1;
        self.turns += turns as u64;
        self.bytes += self.queued_bytes as u64;
        (self.queued_len, self.queued_bytes) = (0, 0);
        self.was_full = false;
        self.durable = self.enqueued;
    }

    /// Drops what is due, if an upkeep waits for that; not before all that is queued is durable.
    pub(super) fn see_to_upkeep(&mut self) -> Ringing {
        if let Some(failure) = &self.failure {
            return self.upkeeps.fail(failure);
        }
        match self.upkeeps.next() {
            Some((number, now)) if !self.is_queued() => {
                self.dropped += self.finished.trim(now);
                self.topics.trim_all(now);
                self.upkeeps.finish(number, Ok(()))
            }
            Some(_) | None => Ringing::default(),
        }
    }

    /// Whether a run that has not finished has durable frames: then it is not looked for among the finished ones.
    pub(super) fn has_durable_frames(&self, run: RunId) -> bool {
        self.unfinished(run).is_some_and(|frames| frames.durable > 0)
    }

    /// A run that is live, or that will have finished once its last turn is durable.
    fn unfinished(&self, run: RunId) -> Option<&RunFrames> {
        let finishing = || self.finishing.iter().find(|(close, _)| close.run == run);
        let live = self.conditions.head(run).map(|head| &head.place);
        live.or_else(|| finishing().map(|(_, frames)| frames))
    }

    /// The durable frames of a run, or why there are none. A finished run is found only if it is indexed.
    pub(super) fn known_frames(&self, run: RunId) -> Result<&[u8], ReadError> {
        let frames = self.unfinished(run).map(RunFrames::durable);
        match (frames.filter(|frames| !frames.is_empty()), frames) {
            (Some(durable), _) => Ok(durable),
            (None, queued) => match self.finished.run(run) {
                Some(KnownRun::Retained(_, frames)) if queued.is_none() => Ok(frames),
                Some(KnownRun::Expired(run)) => Err(ReadError::Expired { run }),
                Some(KnownRun::Retained(..)) | None => Err(ReadError::UnknownRun { run }),
            },
        }
    }

    /// The latest retained finished run of an instance.
    pub(super) fn finished_of(&self, id: &InstanceId) -> Result<Option<FinishedRun>, ReadError> {
        match self.finished.latest(IdHash::of(id.as_str())) {
            Some(KnownRun::Retained(close, frames)) => {
                Ok(Some(close.found(frames)).filter(|finished| finished.id == *id))
            }
            Some(KnownRun::Expired(run)) => Err(ReadError::Expired { run }),
            None => Ok(None),
        }
    }

    /// The durable frames of a live run.
    pub(super) fn live_frames(&self, run: RunId) -> Option<&[u8]> {
        let head = self.conditions.head(run)?;
        Some(head.place.durable()).filter(|frames| !frames.is_empty())
    }

    /// After a close, reads are refused; after any other failure they go on.
    pub(super) fn readable(&self) -> Result<(), JournalFailure> {
        match &self.failure {
            Some(failure) if failure.kind() == FailureKind::Closed => Err(failure.clone()),
            _ => Ok(()),
        }
    }
}

impl RunFrames {
    /// Frees the frames that the run was trimmed of; returns how many bytes that were.
    fn trim(&mut self) -> u64 {
        let trimmed = std::mem::take(&mut self.trimmed);
        self.bytes.drain(..trimmed);
        trimmed as u64
    }

    /// Whether this is the run's last turn.
    fn ends_with(&self, turn: &[u8]) -> bool {
        let start = self.bytes.len().checked_sub(turn.len());
        start.is_some_and(|start| v1::are_same(&self.bytes[start..], turn))
    }

    fn durable(&self) -> &[u8] {
        &self.bytes[..self.durable]
    }
}

#[cfg(test)]
mod tests;
