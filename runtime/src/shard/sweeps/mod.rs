//! The sweeps of a shard: the one that is being gathered, and the ones whose commits are under way.
//!
//! ```text
//!   turns ──► batch ── queued at the journal ──► in flight, with its effects ── watermark ──► durable
//! ```
//!
//! Invariants: sweeps are numbered from one in the order in which they are queued, and become durable in that order. The
//! effects of a sweep are given out when it is durable, and never before.

pub(super) mod answers;
pub(super) mod effects;
pub(super) mod told;

use std::collections::BTreeMap;

use millrun_core::{Epoch, InstanceId, Offset, Partition, RunId, Timestamp};
use millrun_persistence::{
    Batch, HandledMail, Journal, MailAddress, MailStep, OutgoingMail, RefusedTurn, TopicAppend,
    TopicRecordHeader, TurnError, TurnHeader, TurnView, TurnWriter,
};
use millrun_workflow::{Event, EventError, Turn, wire};

use crate::cluster::mail_desk::MailDesk;
use crate::mail::AskedBy;
use crate::ownership::partition_set::PartitionSet;
use crate::wire::calls::{self, AnswerToNode};
use answers::Response;
use effects::{Behalf, Effects, InFlight, Sweep};

/// The sweep that is being gathered, and the sweeps whose commits are under way.
#[derive(Debug)]
pub(super) struct Sweeps {
    /// The turns of the present sweep.
    batch: Batch,
    /// What became of the records of durable topics in the last sweep.
    topic_appends: Vec<TopicAppend>,
    in_flight: InFlight,
    /// The offset of the last batch that was queued.
    last_offset: Offset,
    /// The number of sweeps that have been queued, and of those that are durable.
    queued_len: u64,
    durable_len: u64,
    /// The mail that the present sweep has handled, with the partition and epoch of each.
    mail: Vec<(u64, (Partition, Epoch))>,
}

impl Sweeps {
    pub(super) fn new(batch: Batch) -> Self {
        Self {
            batch,
            topic_appends: Vec::new(),
            in_flight: InFlight::default(),
            last_offset: Offset::ZERO,
            queued_len: 0,
            durable_len: 0,
            mail: Vec::new(),
        }
    }

    /// Appends a turn to the present sweep, all or nothing. `trims` has the instance's id and the kept beginning that replaces
    /// all earlier events, if the turn trims its run.
    #[inline]
    pub(super) fn write(
        &mut self,
        header: TurnHeader<'_>,
        events: &[Event],
        trims: Option<(&InstanceId, &[u8])>,
    ) -> Result<(), TurnError> {
        let mut writer = self.batch.turn(header);
        if let Some((id, kept)) = trims {
            writer.trim(id, kept);
        }
        for event in events {
            let encoded: Result<(), EventError> =
                writer.record(wire::kind(event), |body| wire::encode(event, body));
            encoded.expect("events made by the engine encode");
        }
        writer.finish(events.last().is_some_and(Event::is_last)).map(drop)
    }

    /// As [`write`](Self::write), for a run that begins with events of another run, which keep the times at which they were
    /// recorded.
    #[cold]
    pub(super) fn write_recorded(
        &mut self,
        header: TurnHeader<'_>,
        events: &[Event],
        recorded: &[Timestamp],
    ) -> Result<(), TurnError> {
        let time = header.time;
        write_at_their_times(self.batch.turn(header), time, events, recorded)
    }

    /// Appends two turns to the present sweep, each of another run, of which the journal takes both or neither; all or nothing.
    #[cold]
    pub(super) fn write_both(&mut self, turns: [(TurnHeader<'_>, &Turn); 2]) -> Result<(), TurnError> {
        let mut group = self.batch.group();
        for (header, turn) in turns {
            let time = header.time;
            write_at_their_times(group.turn(header), time, &turn.events, &turn.recorded)?;
        }
        group.finish().map(drop)
    }

    /// Adds a record of a durable topic to the present sweep. Returns its index among these records.
    pub(super) fn append(&mut self, header: TopicRecordHeader, body: &[&[u8]]) -> Result<usize, TurnError> {
        self.batch.topic_record(header, body)
    }

    /// Notes that the present sweep has handled this mail. Its commit removes the mail, provided that the partition is still
    /// owned under this epoch.
    pub(super) fn handle_mail(&mut self, number: u64, owned: (Partition, Epoch)) {
        self.mail.push((number, owned));
    }

    /// Adds the mail steps of the present sweep: handled mail is removed, and answers to callers of other nodes are posted. The
    /// answers of one sweep to one piece of mail, and its removal, are one step: if the partition has moved meanwhile, its next
    /// owner reads the mail again and answers all of them. (An answer of an earlier sweep may have gone before that.)
    pub(super) fn put_mail(&mut self, effects: &Effects, epoch: impl Fn(RunId) -> Epoch) {
        let handled = |number, owned| HandledMail {
            number,
            owned: Some(owned),
        };
        for (number, owned) in &self.mail {
            self.batch.mail(MailStep {
                with: None,
                handled: Some(handled(*number, *owned)),
                posts: Vec::new(),
            });
        }
        let mut steps: Vec<MailStep> = Vec::new();
        let mut answered: BTreeMap<u64, AnsweredMail> = BTreeMap::new();
        let mut runs = None;
        for (answer, of) in effects.answers() {
            let Some(asked) = answer.asked_by() else { continue };
            let Some(body) = answer.mailed(&epoch) else {
                continue;
            };
            let runs = runs.get_or_insert_with(|| {
                let runs = self.batch.iter().map(|turn| turn.run());
                runs.map(|run| (Behalf::from(run), run))
                    .collect::<BTreeMap<_, _>>()
            });
            let with = runs.get(&of).copied();
            let to_asker = |question, body| OutgoingMail {
                to: MailAddress::Node(asked.node),
                body: calls::encode_answer(question, body).into(),
            };
            let mut step = MailStep {
                with,
                handled: None,
                posts: vec![to_asker(asked.question, body)],
            };
            if let Some(mail) = &asked.mail {
                let of_mail = answered.entry(mail.number).or_default();
                of_mail.len += 1;
                if !of_mail.goes && asked.is_last(of_mail.len) {
                    of_mail.goes = true;
                    step.handled = Some(handled(mail.number, mail.owned));
                    // The other callers of the mail, which get no answer of their own.
                    let dropped = mail.dropped().into_iter();
                    step.posts
                        .extend(dropped.map(|question| to_asker(question, AnswerToNode::Dropped)));
                }
                match of_mail.step {
                    Some(index) if joined(&mut steps[index], &mut step) => continue,
                    _ => of_mail.step = Some(steps.len()),
                }
            }
            steps.push(step);
        }
        for step in steps {
            self.batch.mail(step);
        }
    }

    /// Tells the mail desk which mail was removed with the sweep that was queued just now; `effects` are those that were not
    /// dropped.
    pub(super) fn tell_handled(&mut self, effects: &Effects, desk: &MailDesk) {
        let asked = effects.answers().filter_map(|(answer, _)| {
            // A watcher is answered later, when the run changes.
            answer.asked_by().filter(|_| !answer.is_watched())
        });
        let answered: Vec<u64> = asked.filter_map(AskedBy::note_answered).collect();
        if !self.mail.is_empty() || !answered.is_empty() {
            let handled = self.mail.drain(..).map(|(number, _)| number);
            desk.handled(handled.chain(answered), self.last_offset);
        }
    }

    /// What became of the records of durable topics in the sweep that was queued just now.
    pub(super) fn take_topic_appends(&mut self) -> Vec<TopicAppend> {
        std::mem::take(&mut self.topic_appends)
    }

    /// Makes the last turn count only if the turn before it is taken.
    #[inline]
    pub(super) fn tie_last(&mut self) {
        self.batch.tie_last();
    }

    /// A turn of the sweep that was queued just now.
    pub(super) fn turn_at(&self, number: usize) -> TurnView<'_> {
        self.batch.turn_at(number).expect("it was in the batch")
    }

    /// The number of turns of the present sweep, or of the one that was queued just now.
    pub(super) fn turns_len(&self) -> usize {
        self.batch.turns()
    }

    /// The size in bytes of the present sweep's turns.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.batch.bytes()
    }

    /// The number of the present sweep.
    #[inline]
    pub(super) fn present(&self) -> u64 {
        self.queued_len + 1
    }

    /// The number of durable sweeps.
    #[inline]
    pub(super) fn durable_len(&self) -> u64 {
        self.durable_len
    }

    /// The number of sweeps that wait for their commits.
    #[inline]
    pub(super) fn in_flight_len(&self) -> usize {
        self.in_flight.len()
    }

    /// Whether the present sweep has turns or mail.
    #[inline]
    pub(super) fn has_turns(&self) -> bool {
        !self.batch.is_empty() || !self.mail.is_empty()
    }

    /// Queues the turns of the present sweep, if it has any. Returns the refused turns, or `None` if there was no room. The
    /// turns can be [read](Self::turn_at) until the sweep is [closed](Self::close), and the results of its topic records
    /// [taken](Self::take_topic_appends).
    #[inline]
    pub(super) fn enqueue(&mut self, journal: &dyn Journal) -> Option<Vec<RefusedTurn>> {
        if self.batch.is_empty() {
            self.last_offset = journal.confirm(self.last_offset);
            return Some(Vec::new());
        }
        match journal.enqueue(&self.batch) {
            Ok(enqueued) => {
                self.last_offset = enqueued.offset;
                if !enqueued.topic_appends.is_empty() {
                    self.topic_appends = enqueued.topic_appends;
                }
                Some(enqueued.refused)
            }
            // A failed journal is noticed at the next turn, for which the bell rings.
            Err(_) => {
                // The mail is added again by the next try.
                self.batch.clear_mail();
                None
            }
        }
    }

    /// Puts the present sweep under way with its effects, leaves `effects` empty, and begins the next sweep. `ended_len` is
    /// the number of runs that have ended by its end.
    #[inline]
    pub(super) fn close(&mut self, ended_len: u64, effects: &mut Effects) {
        self.batch.clear();
        self.queued_len += 1;
        self.in_flight
            .push(self.last_offset, self.queued_len, ended_len, effects);
    }

    /// Takes the oldest sweep under way, if it is durable.
    #[inline]
    pub(super) fn take_durable(&mut self, watermark: Offset) -> Option<Sweep> {
        let sweep = self.in_flight.pop_durable(watermark);
        if let Some(sweep) = &sweep {
            self.durable_len = sweep.number;
        }
        sweep
    }

    /// Keeps emptied effects for reuse.
    #[inline]
    pub(super) fn recycle(&mut self, effects: Effects) {
        self.in_flight.recycle(effects);
    }

    /// As [`Effects::lose`], for all sweeps under way.
    pub(super) fn lose(&mut self, lost: &PartitionSet, moved: &mut Vec<Response>) {
        self.in_flight.lose(lost, moved);
    }
}

/// Writes a turn whose first events were recorded at these times, and the others now.
fn write_at_their_times(
    mut writer: TurnWriter<'_>,
    now: Timestamp,
    events: &[Event],
    recorded: &[Timestamp],
) -> Result<(), TurnError> {
    let times = recorded.iter().copied().chain(std::iter::repeat(now));
    for (event, time) in events.iter().zip(times) {
        let encoded: Result<(), EventError> =
            writer.record_at(time, wire::kind(event), |body| wire::encode(event, body));
        encoded.expect("events made by the engine encode");
    }
    writer.finish(events.last().is_some_and(Event::is_last)).map(drop)
}

/// The answers of one sweep to one piece of mail.
#[derive(Default)]
struct AnsweredMail {
    len: usize,
    /// Whether the mail is removed with one of them.
    goes: bool,
    /// The index of the step that has them.
    step: Option<usize>,
}

/// Whether the second step has become a part of the first: not if they depend on the turns of two runs.
fn joined(first: &mut MailStep, second: &mut MailStep) -> bool {
    if first.with.is_some() && second.with.is_some() && first.with != second.with {
        return false;
    }
    first.with = first.with.or(second.with);
    first.handled = first.handled.or(second.handled);
    first.posts.append(&mut second.posts);
    true
}
