//! A shard hosts the instances of its partitions: it applies what arrives, appends each sweep's
//! turns at once, and performs their effects when the journal holds them.
//!
//! ```text
//!  clients ─┐ bounded mailbox      one sweep                      commit order
//!  reports ─┼──────────────► apply to instances ─► batch ─► journal ─► watermark ─► effects
//!  timers ──┘ reserved places     │      ▲                                  │  answers, tasks,
//!                                 │      └── loads: histories, replayed     │  timers
//!                                 └──────── (state) ◄───────────────────────┘
//! ```
//!
//! Invariants:
//! - Whatever depends on an instance's state, answers and refusals included, leaves as an effect
//!   of its sweep, after that sweep's commit.
//! - A run is read from the journal only when all its turns are durable.
//! - Nothing of what may touch the disk ([`Reads`](millrun_persistence::Reads)) is called on a shard's turn.
//! - Nothing here waits: a full journal or too many sweeps under way stop the shard from taking
//!   messages, which is what senders feel.
//!
//! The parts of a shard. Each has private fields that no other file touches, and states an invariant in its module doc:
//!
//! | part | what it knows |
//! |---|---|
//! | [`runs`], [`residency`] | the runs at hand, and their numbers; which have code in memory, and which are being read |
//! | [`sweeps`] | the turns of the present sweep, their effects, and the sweeps that wait for their commits |
//! | [`partitions`] | which partitions are owned, what is dropped with a lost one, and the ways to other shards |
//! | [`outward`] | tasks, publishes and timers on their way out |
//! | [`calls`], [`questions`], [`watching`] | who waits: runs for other runs, callers for updates, callers for a change |
//! | [`searches`] | searches for runs, and how far each has come |
//! | [`recording`] | durations, recorded once somebody has asked for them |
//!
//! The other files have no state: they handle messages ([`requests`]), errands ([`instances`]), turns ([`turns`],
//! [`refused`]), and what happens between runs ([`family`], [`signalling`], [`replacing`], [`resetting`]).

mod asking;
mod calls;
mod commands;
mod entities;
mod family;
mod instances;
mod outward;
mod partitions;
mod questions;
mod recording;
mod refused;
mod replacing;
mod requests;
mod resetting;
mod residency;
mod resting;
mod runs;
mod searches;
mod signalling;
mod sweeps;
mod telling;
mod turns;
mod watching;

use std::sync::Arc;

use millrun_broker::mailbox::Mailbox;
use millrun_broker::{Envelope, Inbox};
use millrun_core::{Bell, Epoch, Next, Part, Partition, RunId, Timestamp};
use millrun_workflow::{Started, Turn};

use crate::activity::ActivityReports;
use crate::mail::{Answered, PartitionMessage, ShardDoors, ShardMessage};
use crate::opening::recovery::RecoveredRun;
use crate::shared::ShardShared;
use crate::timers::TimerCommand;
use asking::Asking;
use calls::Calls;
use commands::Seeding;
use outward::alarms::Alarms;
use outward::appending::Appends;
use outward::dispatch::Dispatch;
use outward::publishing::Backlogs;
pub(crate) use partitions::owned::EpochTable;
use partitions::owned::of_no_run;
use partitions::ways::Ways;
use questions::UpdateWaiters;
use recording::DurationRecording;
use residency::Residency;
use resting::Resting;
pub(crate) use resting::ShardRest;
use runs::census::Census;
use runs::results::Results;
use runs::roster::Roster;
pub(crate) use runs::start_order::StartKey;
use searches::Searches;
use sweeps::Sweeps;
use sweeps::answers::Outbox;
use sweeps::effects::{Effect, Effects};
use sweeps::told::ToldInSweep;
use watching::Watchers;

/// In a sweep that leaves reports behind, a request that begins a run takes as much of the budget as this many other
/// requests.
const BEGINNING_COST: usize = 16;

#[derive(Debug)]
pub(crate) struct Shard {
    shared: Arc<ShardShared>,
    mailbox: Mailbox<ShardMessage>,
    answers: Mailbox<Answered>,
    reports: Inbox<Envelope<ActivityReports>>,
    bell: Bell,
    ways: Ways,
    /// The partitions that the shard owns, with their epochs.
    epochs: EpochTable,
    /// The runs at hand.
    entries: Roster,
    /// Counts of the runs.
    census: Census,
    /// The children that runs here have asked for and wait for, and the signals that they have sent.
    calls: Calls,
    /// Runs that end in this turn and continue as new, each with the next run of its instance.
    continuing: Vec<(RunId, RunId, Box<Started>)>,
    /// Publishes that wait for room in a topic.
    backlogs: Backlogs,
    /// Records to be appended to durable topics.
    appends: Appends,
    /// Which runs have their code in memory, and which are being read.
    residency: Residency,
    /// Results of ended runs that are still at hand.
    results: Results,
    /// Ids for which a reader has to say whether they have finished runs.
    asking: Asking,
    /// The callers that wait for the answer to an update, by run and request.
    updates: UpdateWaiters,
    /// The callers that are told when a run makes progress.
    watchers: Watchers,
    /// The searches for runs.
    searches: Searches,
    /// Tasks on their way to the task queues.
    dispatch: Dispatch,
    /// The effects of the present sweep.
    effects: Effects,
    /// The inputs of the runs in the present sweep.
    told: ToldInSweep,
    /// The turns of the present sweep, and the sweeps whose commits are under way.
    sweeps: Sweeps,
    outbox: Outbox,
    /// Buffers of the last turn, reused for the next.
    turn: Option<Box<Turn>>,
    alarms: Alarms,
    /// Durations of runs, attempts and commits; `None` until a caller asks for them.
    recording: Option<Box<DurationRecording>>,
    resting: Resting,
}

impl Shard {
    pub(crate) fn new(
        shared: Arc<ShardShared>,
        doors: &ShardDoors,
        index: usize,
        epochs: EpochTable,
    ) -> Self {
        let door = &doors.all()[index];
        let batch = shared.journal.batch(shared.config.journal.turn_bytes_max);
        let bell = door.mailbox.bell().clone();
        shared.journal.watch(bell.clone());
        let dispatch = Dispatch::new(&shared.queues);
        let outbox = Outbox::new(shared.host.as_ref());
        let census = Census::new(Arc::clone(&shared));
        let ways = Ways::new(doors.clone(), index, shared.mail.clone());
        Self {
            shared,
            mailbox: door.mailbox.clone(),
            answers: door.answers.clone(),
            reports: door.inbox.clone(),
            bell,
            ways,
            epochs,
            entries: Roster::default(),
            census,
            calls: Calls::default(),
            continuing: Vec::new(),
            backlogs: Backlogs::default(),
            appends: Appends::default(),
            residency: Residency::default(),
            results: Results::default(),
            asking: Asking::default(),
            updates: UpdateWaiters::default(),
            watchers: Watchers::default(),
            searches: Searches::default(),
            dispatch,
            effects: Effects::default(),
            told: ToldInSweep::default(),
            sweeps: Sweeps::new(batch),
            outbox,
            turn: None,
            alarms: Alarms::default(),
            recording: None,
            resting: Resting::default(),
        }
    }

    /// Takes in the runs that recovery found after a predecessor of this shard had failed in this process.
    pub(crate) fn succeed(&mut self, runs: Vec<RecoveredRun>, now: Timestamp) {
        if self.shared.is_read_only {
            return self.begin_with(runs, now);
        }
        self.dispatch.succeed();
        self.drop_left();
        self.take_over_publishes(&runs);
        let owned: Vec<_> = self.epochs.owned().collect();
        self.seed(runs, &owned, true, now);
        self.ask_for_calls();
    }

    /// Takes in the runs that recovery found when the runtime began.
    pub(crate) fn begin_with(&mut self, runs: Vec<RecoveredRun>, now: Timestamp) {
        let owned: Vec<_> = self.epochs.owned().collect();
        self.seed(runs, &owned, false, now);
        if !self.shared.is_read_only && !owned.is_empty() {
            let partitions = Arc::new(owned.iter().map(|(partition, _)| *partition).collect());
            // Runs of other nodes may wait for children in these partitions.
            self.ways.send_to_nodes(|| PartitionMessage::Begun {
                partitions: Arc::clone(&partitions),
            });
        }
    }

    /// Takes in the runs that recovery found in these partitions. `repeats_publishes` says whether pending publishes are
    /// performed again: only if it is known which of them have been performed.
    fn seed(
        &mut self,
        runs: Vec<RecoveredRun>,
        begun: &[(Partition, Epoch)],
        repeats_publishes: bool,
        now: Timestamp,
    ) {
        if let Some(time) = self
            .shared
            .cluster
            .as_ref()
            .and_then(|cluster| cluster.time.as_ref())
        {
            time.reach(runs.iter().map(|run| run.last));
        }
        if !self.shared.is_read_only {
            self.alarms.want(TimerCommand::Begin(begun.to_vec()));
            self.announce_awaited(&runs, begun);
        }
        let mut seeding = Seeding::new(now, repeats_publishes);
        for run in runs {
            self.seed_run(run, &mut seeding);
        }
        self.census.tell();
        self.alarms.send(&self.shared.timers);
        self.dispatch.send(&self.shared, &self.bell);
    }

    /// Queues the turns of the sweep at the journal. Returns whether there was room.
    fn flush(&mut self) -> bool {
        if self.appends.are_due() {
            self.append_decided();
        }
        self.census.tell();
        if !self.sweeps.has_turns() && self.effects.is_empty() {
            return true;
        }
        if self.shared.mail.is_some() {
            self.sweeps.put_mail(&self.effects, |run| self.epochs.of(run));
        }
        let Some(refused) = self.sweeps.enqueue(&*self.shared.journal) else {
            return false;
        };
        if !refused.is_empty() {
            self.take_back(&refused);
        }
        if let Some(mail) = &self.shared.mail {
            self.sweeps.tell_handled(&self.effects, mail);
        }
        if self.appends.has_asked() {
            self.answer_appends();
        }
        if self.shared.feed.is_open() {
            self.gather_changes(&refused);
        }
        self.record_queued(&refused);
        self.told.clear();
        self.sweeps.close(self.results.ended_len(), &mut self.effects);
        true
    }

    /// Performs the effects of all sweeps that are durable, in order.
    fn perform_durable(&mut self) {
        let watermark = self.shared.journal.high_watermark();
        while let Some(mut sweep) = self.sweeps.take_durable(watermark) {
            let Effects {
                answers,
                tasks,
                others,
                traced_ends,
                ..
            } = &mut sweep.effects;
            if !traced_ends.is_empty() {
                self.shared.traced_ends.push(traced_ends.drain(..));
            }
            self.outbox.send(answers);
            tasks
                .drain(..)
                .for_each(|task| self.dispatch.stage(task, &self.shared));
            others.drain(..).for_each(|effect| self.perform(effect));
            if let Some(changes) = sweep.effects.changes.take() {
                self.shared.feed.tell(changes);
            }
            self.sweeps.recycle(sweep.effects);
            self.retire(sweep.ended_len);
        }
        self.record_durable();
        self.alarms.send(&self.shared.timers);
        self.dispatch.send(&self.shared, &self.bell);
        // After the tasks: a task that was decided before its call was cancelled is in the queue by now, or will never be.
        self.dispatch.tell_cancelled(&self.shared);
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Send(partition, mut message) => {
                self.note_call(&mut message);
                self.ways.send(partition, *message);
            }
            Effect::ForgetCall(run, operation) => self.calls.forget(run, operation),
            Effect::ForgetCalls(run) => self.calls.forget_all(run),
            Effect::Publish(run, scheduled, trace) => self.publish(run, &scheduled, trace.as_deref()),
            Effect::CancelPublish(run, operation) => self.cancel_publish(run, operation),
            Effect::Receive(run, scheduled, run_began) => self.receive(run, &scheduled, run_began),
            Effect::CancelReceive(run, scheduled) => self.cancel_receive(run, &scheduled),
            Effect::ForgetPublish(run, operation) => self.forget_publish(run, operation),
            Effect::CancelActivity(call) => self.dispatch.cancel(call),
            Effect::FindSignal(run, signal) => self.shared.reader.find_signal(run, signal),
            Effect::Timer(command) => self.alarms.want(command),
            Effect::Keep(kept) => {
                let run = kept.run;
                // Failure is harmless: the whole history brings a live run back as well, and the run may have ended since.
                if let Err(error) = self.shared.journal.put_snapshot(*kept) {
                    tracing::debug!(%run, %error, "the beginning of a history is not kept");
                }
            }
        }
    }

    /// Handles up to `budget` messages and as many reports. Returns whether there are more.
    fn sweep(&mut self, budget: usize) -> bool {
        let budget = budget.min(self.shared.config.sweep_len_max);
        // A turn larger than that goes into a batch alone, so an empty batch has room for any turn.
        let bytes_max = (self.shared.config.journal.batch_bytes_max / 2).max(1);
        let mut reports = self.reports.take();
        let mut messages = self.mailbox.take();
        // After the messages are taken: so no request is answered here that was made after a new owner of its partition had
        // already answered.
        self.hear_news();
        // The clock is read after the messages are taken: a timer among them was due before it was sent, and must not look
        // early.
        let moment = of_no_run(self.shared.host.now());
        self.shared.watch.begin(self.ways.index(), moment.now);
        if let Some(recording) = &mut self.recording {
            recording.begin_sweep(moment.now);
        }
        let mut left = budget;
        while left > 0
            && self.sweeps.bytes() < bytes_max
            && let Some(envelope) = reports.next()
        {
            // Other subscribers of the topic share the envelope, so the payload may have to be cloned.
            let reports = envelope
                .into_payload()
                .unwrap_or_else(|envelope| envelope.payload().clone());
            left = left.saturating_sub(reports.len());
            for report in reports {
                let run = report.run;
                self.with_run(run, Self::errand_of(report), moment);
            }
        }
        // Running workflows go first. If new runs were let in as fast as steps of others end, runs would pile up, be
        // unloaded, and have to be read again for each step.
        let beginning_cost = if reports.is_empty() { 1 } else { BEGINNING_COST };
        let (mut left, mut is_first) = (budget, true);
        if !self.asking.is_empty() {
            let answers = self.answers.take();
            answers.for_each(|answered| self.on_answered(answered, moment));
        }
        // The first message is handled even if large reports have filled the sweep.
        while left > 0
            && (is_first || self.sweeps.bytes() < bytes_max)
            && !self.is_asking_too_much()
            && let Some(message) = messages.next()
        {
            let cost = if message.begins_run() { beginning_cost } else { 1 };
            self.handle(message, moment);
            left = left.saturating_sub(cost);
            is_first = false;
        }
        self.shared.watch.end(self.ways.index());
        !reports.is_empty() || (!messages.is_empty() && !self.is_asking_too_much())
    }
}

impl Drop for Shard {
    /// A successor counts its runs anew.
    fn drop(&mut self) {
        self.census.withdraw();
    }
}

impl Part for Shard {
    fn turn(&mut self, now: Timestamp, budget: usize) -> Next {
        self.shared.watch.note_pulse(self.ways.index());
        if self.shared.journal.failure().is_some() {
            // The callers get no answer: dropping their requests tells them that the runtime stopped.
            drop(self.mailbox.close_discarding());
            self.reports.close_discarding();
            return Next::Stop;
        }
        self.reports.bell().answer();
        self.hear_news();
        self.begin_recording(now);
        self.perform_durable();
        self.feed_queues(now);
        self.start_loads();
        if !self.flush() || self.sweeps.in_flight_len() >= self.shared.config.sweeps_in_flight_max {
            return Next::Idle;
        }
        self.backlogs.begin_turn();
        if self.backlogs.is_due() {
            self.feed_topics(of_no_run(now));
        }
        let mut is_more = self.sweep(budget) || self.backlogs.is_due();
        let mut is_flushed = self.flush();
        is_more |= self.appends.are_due();
        if is_flushed && self.search_on() {
            is_more = true;
            is_flushed = self.flush();
        }
        if is_flushed {
            // Answers that depend on nothing new are sent at once, without another commit.
            self.perform_durable();
        }
        self.start_loads();
        self.unload_coldest();
        self.census.tell_hot(self.residency.hot_len());
        if is_flushed {
            self.look_at_rest();
        }
        let has_nothing_left = self.mailbox.is_finished()
            && self.reports.is_empty()
            && self.searches.is_empty()
            && !self.appends.are_due();
        if has_nothing_left && is_flushed && self.sweeps.in_flight_len() == 0 {
            return Next::Stop;
        }
        if is_more && is_flushed {
            Next::Again
        } else {
            Next::Idle
        }
    }
}
