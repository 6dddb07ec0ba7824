//! What workflows publish: performed after the commit that decided it. Nothing waits on the shard's thread.
//!
//! ```text
//!   effect ── room ──────────────────────────────────────► topic ──► Published, a message
//!     │
//!     └─ no room ── the first: a task waits for room ────► topic ──► Published, feeds the next
//!                └─ the others: (run, operation) in line, their values in their histories
//! ```
//!
//! One value per topic and shard waits for room in a task. A million more cost a [few bytes](crate::shard::runs::line) each,
//! and their runs are unloaded like any that wait. When there is room for all, they are published in order, a bounded number
//! in each turn of the shard.
//!
//! A value that was handed to a topic is [listed](HandedOver) until its outcome is durable. So a shard that replaces a failed
//! one neither loses nor repeats a publish.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures_util::FutureExt;
use millrun_core::{Cause, RunId, TraceContext, panic_message};
use millrun_workflow::{Moment, Name, OperationId, Pending, PublishOutcome, PublishScheduled};
use rustc_hash::FxHashSet;

use crate::mail::LocalMessage;
use crate::opening::recovery::RecoveredRun;
use crate::ownership::partition_set::PartitionSet;
use crate::shard::Shard;
use crate::shard::runs::entry::{Errand, Residence};
use crate::shard::runs::line::Line;
use crate::topics::handed::HandedOver;

/// How many values that have waited for room a shard publishes in one turn. The limit keeps callers from waiting long for
/// their answers; the rest is published in the next turns.
const FED_TURN_MAX: usize = 256;

/// Publishes that wait for room in topics.
#[derive(Debug, Default)]
pub(in crate::shard) struct Backlogs {
    by_topic: BTreeMap<Name, Backlog>,
    /// Topics whose next value can be published.
    to_feed: VecDeque<Name>,
    /// Whether a loop over `to_feed` is running.
    is_feeding: bool,
    /// How many values were fed in this turn of the shard.
    fed_len: usize,
}

impl Backlogs {
    /// A turn of the shard begins: it may feed [as many](FED_TURN_MAX) values again.
    #[inline]
    pub(in crate::shard) fn begin_turn(&mut self) {
        self.fed_len = 0;
    }

    /// Whether a topic has a value that can be published now.
    #[inline]
    pub(in crate::shard) fn is_due(&self) -> bool {
        !self.to_feed.is_empty()
    }
}

/// Publishes that wait for room in one topic.
#[derive(Debug, Default)]
struct Backlog {
    /// A value is being published, or is about to be: new ones stand in line.
    is_busy: bool,
    /// The value that waits in a task, or whose history is being read.
    front: Option<(RunId, OperationId)>,
    waiting: Line,
}

impl Backlog {
    /// Makes this value the one that is published next.
    fn turn_of(&mut self, front: (RunId, OperationId)) {
        self.is_busy = true;
        self.front = Some(front);
    }
}

impl Shard {
    fn handed(&self) -> &Arc<HandedOver> {
        &self.shared.handed[self.ways.index()]
    }

    /// The outcome of a publish is in its run's history: it needs no entry in the list any more.
    pub(in crate::shard) fn forget_publish(&self, run: RunId, operation: OperationId) {
        self.handed().forget((run, operation));
    }

    /// Publishes a value whose decision is durable. If its topic is not registered here, the value stays in its run's
    /// history.
    pub(in crate::shard) fn publish(
        &mut self,
        run: RunId,
        scheduled: &PublishScheduled,
        trace: Option<&TraceContext>,
    ) {
        let operation = scheduled.operation;
        let Some((topic, begin)) = self.shared.topics.get(&scheduled.topic) else {
            tracing::warn!(%run, topic = %scheduled.topic, "a topic is not registered: the publish waits");
            // The history must say so: otherwise the next process would not know that no topic has had the value.
            return self
                .ways
                .tell(run, LocalMessage::PublishParked { run, operation });
        };
        if let Some(backlog) = self.backlogs.by_topic.get_mut(&topic)
            && backlog.is_busy
        {
            // A run that is not in the roster has ended.
            if let Some(spot) = self.entries.spot(run) {
                backlog.waiting.push(spot, operation);
            }
            return self
                .ways
                .tell(run, LocalMessage::PublishParked { run, operation });
        }
        let cause = Cause {
            run,
            operation: operation.get(),
        };
        let trace = trace.map(|trace| trace.at_operation(cause));
        let published = move |outcome, topic: Option<Name>| LocalMessage::Published {
            run,
            operation,
            outcome,
            topic,
        };
        let begin = match begin {
            Ok(begin) => begin,
            Err(problem) => return self.ways.tell(run, published(Err(problem), None)),
        };
        // The value's own code, which decodes or drops it, may panic.
        let begun = catch_unwind(AssertUnwindSafe(|| begin(scheduled, cause, trace)));
        let mut publishing = match begun.unwrap_or_else(|panic| Err(panic_message(panic))) {
            Ok(publishing) => publishing,
            Err(message) => return self.ways.tell(run, published(Err(message), None)),
        };
        let listed = (run, operation);
        let polled = catch_unwind(AssertUnwindSafe(|| {
            publishing.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        }));
        match polled.unwrap_or_else(|panic| Poll::Ready(Err(panic_message(panic)))) {
            Poll::Ready(outcome) => {
                self.handed().end(listed, outcome.clone());
                self.ways.tell(run, published(outcome, None));
            }
            Poll::Pending => {
                let (doors, handed) = (self.ways.doors(), Arc::clone(self.handed()));
                handed.wait(listed, topic.clone());
                self.backlogs
                    .by_topic
                    .entry(topic.clone())
                    .or_default()
                    .turn_of(listed);
                let wait = async move {
                    let outcome = AssertUnwindSafe(publishing).catch_unwind().await;
                    let outcome = outcome.unwrap_or_else(|panic| Err(panic_message(panic)));
                    handed.end_wait(listed, outcome.clone());
                    doors.push(run, published(outcome, Some(topic)));
                };
                let task = self.shared.host.spawn("publish", Box::pin(wait));
                self.handed().keep_task(listed, task);
                self.ways
                    .tell(run, LocalMessage::PublishParked { run, operation });
            }
        }
    }

    /// Cancels a publish. A value that stands in line is skipped when its turn comes.
    pub(in crate::shard) fn cancel_publish(&mut self, run: RunId, operation: OperationId) {
        if let Some(topic) = self.handed().cancel((run, operation)) {
            let message = LocalMessage::Published {
                run,
                operation,
                outcome: Ok(PublishOutcome::Unknown),
                topic: Some(topic),
            };
            // The run ignores the message; it gives the values behind this one their turn.
            self.ways.tell(run, message);
        }
    }

    /// The first value in line has found room, or is given up: the next one has its turn.
    pub(in crate::shard) fn on_room(
        &mut self,
        topic: &Name,
        run: RunId,
        operation: OperationId,
        moment: Moment,
    ) {
        let front = self
            .backlogs
            .by_topic
            .get(topic)
            .and_then(|backlog| backlog.front);
        if front == Some((run, operation)) {
            self.feed_topic(topic.clone(), moment);
        }
    }

    /// The first value in line has found room: publishes the next one, and further ones as long as each finds room at once,
    /// up to [`FED_TURN_MAX`] in a turn of the shard.
    pub(in crate::shard) fn feed_topic(&mut self, topic: Name, moment: Moment) {
        let Some(backlog) = self.backlogs.by_topic.get_mut(&topic) else {
            return;
        };
        backlog.is_busy = true;
        backlog.front = None;
        self.backlogs.to_feed.push_back(topic);
        // If a loop is running already, it comes to this topic too: thousands of nested calls would overflow the stack.
        if !self.backlogs.is_feeding {
            self.feed_topics(moment);
        }
    }

    /// Publishes the first values of the lines, up to the limit for one turn of the shard. New publishes queue behind the
    /// values that are left.
    pub(in crate::shard) fn feed_topics(&mut self, moment: Moment) {
        self.backlogs.is_feeding = true;
        while self.backlogs.fed_len < FED_TURN_MAX
            && let Some(topic) = self.backlogs.to_feed.pop_front()
        {
            self.backlogs.fed_len += 1;
            self.feed_next(topic, moment);
        }
        self.backlogs.is_feeding = false;
    }

    fn feed_next(&mut self, topic: Name, moment: Moment) {
        let Some(backlog) = self.backlogs.by_topic.get_mut(&topic) else {
            return;
        };
        let Some((spot, operation)) = backlog.waiting.pop() else {
            self.backlogs.by_topic.remove(&topic);
            return;
        };
        match self.entries.run_at(spot) {
            Some(run) => {
                backlog.front = Some((run, operation));
                self.with_run(run, Errand::Republish(operation, topic), moment);
            }
            // Its run has ended: the next one in line has its turn.
            None => self.backlogs.to_feed.push_back(topic),
        }
    }

    /// Publishes a value whose turn has come, of a run in memory.
    pub(in crate::shard) fn republish(
        &mut self,
        run: RunId,
        operation: OperationId,
        topic: Name,
        moment: Moment,
    ) {
        // In rare cases the spot in the line was mistaken for another run's, whose publish has been handed over already.
        let is_handed = self.handed().outcome((run, operation)).is_some();
        let found = match self.entries.get(run).map(|entry| (entry, &entry.residence)) {
            Some(_) if is_handed => None,
            Some((entry, Residence::Hot(instance))) => match instance.ledger().pending_operation(operation) {
                Some(Pending::Publish { scheduled, .. }) => {
                    Some((Arc::clone(scheduled), entry.trace().copied()))
                }
                Some(_) | None => None,
            },
            Some(_) | None => None,
        };
        if let Some(backlog) = self.backlogs.by_topic.get_mut(&topic) {
            backlog.is_busy = false;
            backlog.front = None;
        }
        if let Some((scheduled, trace)) = found {
            self.publish(run, &scheduled, trace.as_ref());
        }
        let is_free = |backlog: &Backlog| !backlog.is_busy;
        if self.backlogs.by_topic.get(&topic).is_some_and(is_free) {
            self.feed_topic(topic, moment);
        }
    }

    /// Takes over the publishes that a failed predecessor handed to topics. Its values that wait for room keep their places
    /// at the front.
    pub(in crate::shard) fn take_over_publishes(&mut self, runs: &[RecoveredRun]) {
        let pending: FxHashSet<_> = runs
            .iter()
            .flat_map(|run| run.pending.iter().map(|(operation, ..)| (run.run, *operation)))
            .collect();
        for (key, topic) in self.handed().take_over(&pending) {
            self.backlogs.by_topic.entry(topic).or_default().turn_of(key);
        }
    }

    /// Forgets the publishes of runs in these partitions. Where one of them was first in a line, the next one has its turn.
    pub(in crate::shard) fn lose_publishes(&mut self, lost: &PartitionSet) {
        self.handed().lose(lost);
        for (topic, backlog) in &mut self.backlogs.by_topic {
            let is_lost = |(run, _): (RunId, OperationId)| lost.contains(run.partition());
            if backlog.front.is_some_and(is_lost) {
                backlog.front = None;
                self.backlogs.to_feed.push_back(topic.clone());
                self.bell.ring();
            }
        }
    }

    /// Decides about a publish that was pending when its history was last read. Topics are in memory: after a crash of the
    /// process, or under another owner, only a publish known to have waited for room is repeated. For any other, the run is
    /// told that the outcome is unknown.
    pub(in crate::shard) fn seed_publish(
        &mut self,
        run: RunId,
        scheduled: &PublishScheduled,
        trace: Option<&TraceContext>,
        is_repeated: bool,
    ) {
        let operation = scheduled.operation;
        if self.shared.durable.number(&scheduled.topic).is_some() {
            // The record and the history are written in one turn, so a pending publish has no record yet.
            let message = LocalMessage::Published {
                run,
                operation,
                outcome: Ok(PublishOutcome::Taken),
                topic: None,
            };
            return self.ways.tell(run, message);
        }
        let outcome = match self.handed().outcome((run, operation)) {
            Some(Some(outcome)) => outcome,
            Some(None) => {
                let message = LocalMessage::PublishParked { run, operation };
                return self.ways.tell(run, message);
            }
            None if is_repeated => return self.publish(run, scheduled, trace),
            None if !self.shared.topics.has(&scheduled.topic) => return,
            None => {
                let outcome = Ok(PublishOutcome::Unknown);
                self.handed().end((run, operation), outcome.clone());
                outcome
            }
        };
        let message = LocalMessage::Published {
            run,
            operation,
            outcome,
            topic: None,
        };
        self.ways.tell(run, message);
    }
}
