//! Ids for which only the disk knows whether they have a finished run. The shard asks a reader, and messages about the id
//! wait for the answer.
//!
//! ```text
//!   start, child, signal of an id ── Glance::Ask ──► line of the id ── AskFinished ──► reader lane
//!            all that comes for the id meanwhile ──► ▲ in order            │
//!                                                    │                     ▼
//!            each handled as if it had come just now ◄───────────────── Answered
//! ```
//!
//! Invariant: while an id has a line, no message about it is handled. So no run of the id begins or ends between the read and
//! the answer, and what was read still holds when the answer comes. An answer to a question of an earlier epoch of the
//! partition is discarded. Before a line is begun, the roster is looked at as usual.
//!
//! At most `loads_in_flight_max` ids are asked about at once; lines of other ids wait for room. Once all lines together hold
//! `shard_queue_len_max` messages, the shard takes nothing from its mailbox, so that callers feel backpressure. Answers come
//! through a separate mailbox: they must not wait behind the messages that they release.

use std::collections::{BTreeMap, VecDeque};

use millrun_core::{Epoch, InstanceId, Partition, RunId};
use millrun_persistence::{Glance, ReadError};
use millrun_workflow::{Moment, Parent};

use super::Shard;
use super::runs::roster::Known;
use crate::RunError;
use crate::mail::{
    Answered, AskFinished, FinishedReads, Found, Mailed, PartitionMessage, Request, ResetReading, ResetReads,
    ShardMessage,
};
use crate::ownership::partition_set::PartitionSet;

/// The ids that are asked about, and what waits for the answers.
#[derive(Debug, Default)]
pub(super) struct Asking {
    lines: BTreeMap<InstanceId, Line>,
    /// The ids still to be asked about, in order. The line of an id may be gone by now.
    to_ask: VecDeque<InstanceId>,
    /// The number of ids that have been asked about and not answered.
    asked_len: usize,
    /// The number of messages in all lines.
    waiting_len: usize,
    /// The answer for the id whose line is being handled; `None` otherwise.
    present: Option<(InstanceId, Found)>,
    /// The events with which that run is reset, and the point for which they were read.
    to_reset: Option<(ResetReads, Result<ResetReading, RunError>)>,
}

#[derive(Debug, Default)]
struct Line {
    waiting: VecDeque<ShardMessage>,
    /// What the reader is to read of the finished run.
    reads: FinishedReads,
    is_asked: bool,
}

impl Asking {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Puts a message into the line of its id. Returns the message if its id has no line.
    #[cold]
    pub(super) fn wait(&mut self, message: ShardMessage) -> Option<ShardMessage> {
        let line = message.instance_id().and_then(|id| self.lines.get_mut(id));
        let Some(line) = line else { return Some(message) };
        line.waiting.push_back(message);
        self.waiting_len += 1;
        None
    }

    /// Begins a line for an id, with its first message.
    #[cold]
    fn begin(&mut self, id: InstanceId, message: ShardMessage, reads: FinishedReads) {
        let line = self.lines.entry(id.clone()).or_default();
        line.reads = line.reads.max(reads);
        line.waiting.push_back(message);
        self.waiting_len += 1;
        self.to_ask.push_back(id);
    }

    /// The next id to ask about, and what is to be read of its finished run.
    fn next(&mut self, in_flight_max: usize) -> Option<(InstanceId, FinishedReads)> {
        while self.asked_len < in_flight_max {
            let id = self.to_ask.pop_front()?;
            let Some(line) = self.lines.get_mut(&id).filter(|line| !line.is_asked) else {
                continue;
            };
            line.is_asked = true;
            self.asked_len += 1;
            return Some((id, line.reads));
        }
        None
    }

    /// The reader did not find out whether there is a finished run: the id is asked about again.
    fn ask_again(&mut self, id: InstanceId) {
        if let Some(line) = self.lines.get_mut(&id).filter(|line| line.is_asked) {
            line.is_asked = false;
            self.asked_len -= 1;
            self.to_ask.push_back(id);
        }
    }

    /// Removes a line whose answer has come, and returns its messages.
    fn end(&mut self, id: &InstanceId) -> VecDeque<ShardMessage> {
        let Some(line) = self.lines.remove(id) else {
            return VecDeque::new();
        };
        self.asked_len -= usize::from(line.is_asked);
        self.waiting_len -= line.waiting.len();
        line.waiting
    }

    /// Drops the lines of lost partitions and returns their clients' requests, none of which was handled. Messages of runs
    /// are not returned: runs send them again.
    pub(super) fn lose(&mut self, lost: &PartitionSet) -> Vec<(Partition, Request)> {
        let of_lost = self.lines.keys().filter(|id| lost.contains(id.partition()));
        let ids: Vec<_> = of_lost.cloned().collect();
        let mut requests = Vec::new();
        for id in ids {
            requests.extend(self.end(&id).into_iter().filter_map(|message| match message {
                ShardMessage::Request(request) => Some((id.partition(), request)),
                ShardMessage::Partition(_) | ShardMessage::Local(_) | ShardMessage::Mailed(_) => None,
            }));
        }
        self.to_ask.retain(|id| !lost.contains(id.partition()));
        requests
    }

    /// Drops waiting requests to begin a child for which no parent waits any more. Returns the mail behind those that came
    /// from another node: its number, and its partition and epoch.
    pub(super) fn drop_orphans(
        &mut self,
        is_orphan: impl Fn(&InstanceId, &Parent) -> bool,
    ) -> Vec<(u64, (Partition, Epoch))> {
        let mut dropped = Vec::new();
        for (id, line) in &mut self.lines {
            let len = line.waiting.len();
            line.waiting.retain(|message| {
                let (child, mail) = match message {
                    ShardMessage::Partition(PartitionMessage::StartChild(child)) => (child, None),
                    ShardMessage::Mailed(mailed) => match &**mailed {
                        Mailed::Message {
                            number,
                            owned,
                            message: PartitionMessage::StartChild(child),
                        } => (child, Some((*number, *owned))),
                        _ => return true,
                    },
                    _ => return true,
                };
                let is_kept = !is_orphan(id, &child.parent);
                if !is_kept {
                    dropped.extend(mail);
                }
                is_kept
            });
            self.waiting_len -= len - line.waiting.len();
        }
        dropped
    }
}

impl Shard {
    /// The latest finished run of an id that the roster does not have. `None` if the reader has to be [asked](Self::ask)
    /// first.
    pub(super) fn finished(&self, id: &InstanceId) -> Option<Found> {
        if let Some((of, found)) = &self.asking.present
            && of == id
        {
            return Some(found.clone());
        }
        match self.shared.journal.glance(id) {
            Glance::Found(finished) => Some(Found::run(finished.run)),
            Glance::Expired(run) => Some(Found::unread(Err(ReadError::Expired { run }))),
            Glance::Absent => Some(Found::none()),
            Glance::Ask => None,
        }
    }

    /// Lets a message wait until the reader has looked for the finished run of its id and has read as much of it as `reads`
    /// says.
    #[cold]
    pub(super) fn ask(&mut self, id: InstanceId, message: impl Into<ShardMessage>, reads: FinishedReads) {
        self.asking.begin(id, message.into(), reads);
    }

    /// The finished run of an id, and the events with which it is reset, which are given once; `None` if the reader has to be
    /// [asked](Self::ask) first.
    pub(super) fn take_to_reset(
        &mut self,
        id: &InstanceId,
        reads: ResetReads,
    ) -> Option<Result<(RunId, ResetReading), RunError>> {
        let (_, found) = self.asking.present.as_ref().filter(|(of, _)| of == id)?;
        let run = match &found.finished {
            Ok(Some(run)) => *run,
            Ok(None) => return Some(Err(RunError::NotFound)),
            Err(ReadError::Expired { .. }) => return Some(Err(RunError::Expired)),
            Err(error) => return Some(Err(error.clone().into())),
        };
        let (_, reading) = self.asking.to_reset.take_if(|(of, _)| *of == reads)?;
        Some(reading.map(|reading| (run, reading)))
    }

    /// Whether the end of the latest run of an id is still on its way to the disk.
    fn is_ending(&self, id: &InstanceId) -> bool {
        let latest = self.entries.latest(id).filter(Known::has_ended);
        let entry = latest.and_then(|latest| self.entries.get(latest.run));
        entry.is_some_and(|entry| entry.last_sweep > self.sweeps.durable_len())
    }

    /// Whether so many messages wait for the reader that the shard takes no more.
    #[inline]
    pub(super) fn is_asking_too_much(&self) -> bool {
        self.asking.waiting_len >= self.shared.config.shard_queue_len_max
    }

    /// Asks the reader about the next ids, as far as there is room.
    pub(super) fn start_asks(&mut self) {
        let in_flight_max = self.shared.config.loads_in_flight_max;
        if self.asking.asked_len == 0 {
            // No question is open, so these answers belong to a former life or to lines that are gone. The mailbox must be
            // emptied: only an answer that finds it empty rings the bell.
            self.answers.take().for_each(drop);
        }
        while let Some((id, reads)) = self.asking.next(in_flight_max) {
            if self.is_ending(&id) {
                // The end of the run is not durable yet. The bell rings with the next commit, which leads here again.
                return self.asking.ask_again(id);
            }
            let Some(life) = self.epochs.get(id.partition()) else {
                // The partition is lost; the callers that wait were told so by the loss.
                drop(self.asking.end(&id));
                continue;
            };
            let ask = AskFinished { id, life, reads };
            self.shared.reader.find_finished(ask);
        }
    }

    /// Handles the messages that waited for an answer, in order. The one answer serves all of them, since no other run of the
    /// id has begun meanwhile.
    pub(super) fn on_answered(&mut self, answered: Answered, moment: Moment) {
        let AskFinished { id, life, reads } = answered.ask;
        if self.epochs.get(id.partition()) != Some(life) {
            return;
        }
        let Some(found) = answered.found else {
            // The reader failed: its successor is asked, or the runtime stops with the reader.
            return self.asking.ask_again(id);
        };
        let waiting = self.asking.end(&id);
        self.asking.present = Some((id, found));
        if let FinishedReads::ToReset(reads) = reads {
            self.asking.to_reset = answered.to_reset.map(|reading| (reads, *reading));
        }
        for message in waiting {
            self.handle(message, moment);
        }
        self.asking.present = None;
        self.asking.to_reset = None;
    }
}
