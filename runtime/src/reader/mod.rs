//! Reads what is stored, outside of the shards' threads and the workers: histories of instances that are woken, and what
//! callers ask about finished runs. Several [lanes] read at a time. One more lane, the viewer, is for observers, so that
//! neither a page of a history nor a list delays the waking of a run.

mod at_event;
mod beginnings;
pub(crate) mod door;
mod exporting;
pub(crate) mod finding;
mod lanes;
mod resetting;
mod spans;
mod together;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use millrun_core::{Next, Part, Partition, RunId, Sequence, Timestamp};
use millrun_persistence::HistoryPage as RecordPage;
use millrun_persistence::{
    History, Journal, ReadError, Record, Snapshot, TopicNumber, TopicStreams, Trimmed,
};
use millrun_workflow::Unanswered;
use millrun_workflow::{
    Event, KeptBeginning, Ledger, Name, Outcome, ParkReason, Payload, SignalFailure, Started, UpdateStanding,
    wire,
};

use crate::code::workflows::Beginning;
use crate::looking::describe::{InstanceDescription, InstanceStatus};
use crate::looking::pages::{HistoryPage, RecordedEvent};
use crate::mail::{
    Answered, AskFinished, EndedChild, FinishedReads, Found, LocalMessage, OnDisk, PartitionMessage,
    Question, Router, RunSignal, ShardDoors, Standing, Story, Target, UpdateAnswer, UpdateRefused,
    check_workflow, child_end,
};
use crate::shared::ShardShared;
use crate::{QueryError, RunError};
use door::ReadRequest;
use lanes::{NextRead, STUCK_AFTER, Watched};

/// One of the lanes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LaneId {
    /// One of the lanes for runs and clients.
    Reader(usize),
    /// The lane for observers.
    Viewer,
}

/// The part of one lane. It may wait for the disk.
#[derive(Debug)]
pub(crate) struct Reader {
    shared: Arc<ShardShared>,
    shards: ShardDoors,
    router: Router,
    lane: LaneId,
    watched: Watched,
}

/// A message that a shard waits for. If the reader fails before it has the answer, the fallback in `said` is sent, and the
/// shard asks again.
struct Owed<'a> {
    reader: &'a Reader,
    said: Option<Said>,
}

/// The message that is sent if the reader fails.
enum Said {
    Here(RunId, LocalMessage),
    To(Partition, PartitionMessage),
    Answered(Answered),
}

impl<'a> Owed<'a> {
    fn new(reader: &'a Reader, instead: Said) -> Self {
        Self {
            reader,
            said: Some(instead),
        }
    }

    fn pay(mut self, said: Said) {
        self.said = Some(said);
    }

    /// Another message will be sent instead.
    fn forgive(mut self) {
        self.said = None;
    }
}

impl Drop for Owed<'_> {
    fn drop(&mut self) {
        match self.said.take() {
            Some(Said::Here(run, message)) => self.reader.shards.push(run, message),
            Some(Said::To(partition, message)) => self.reader.router.send(partition, message),
            Some(Said::Answered(answered)) => self.reader.shards.answer(answered),
            None => {}
        }
    }
}

impl Reader {
    pub(crate) fn new(shared: Arc<ShardShared>, shards: ShardDoors, lane: LaneId) -> Self {
        let (lanes, index) = shared.reader.lanes_of(lane);
        lanes.begin(index);
        let router = Router::new(shards.clone(), shared.mail.clone());
        Self {
            shared,
            shards,
            router,
            lane,
            watched: Watched::default(),
        }
    }

    /// What a live run is brought back from: the snapshot beside its history, if that can be read, and the events behind it;
    /// otherwise the whole history.
    fn load(&self, run: RunId) -> Result<Story, RunError> {
        if let Some(story) = self.load_kept(run) {
            return Ok(story);
        }
        story(&self.shared.journal.history(run)?)
    }

    /// The snapshot of a run, with all events behind it; `None` if there is none, or anything is wrong with it: the whole
    /// history tells what.
    fn load_kept(&self, run: RunId) -> Option<Story> {
        let journal = &self.shared.journal;
        let kept = self.kept_beside(run)?;
        let page = journal.history_page(run, kept.sequence(), self.history_bytes_max());
        story_behind(kept, &page.ok()?)
    }

    /// The largest number of bytes of a history that are read at once.
    fn history_bytes_max(&self) -> usize {
        usize::try_from(self.shared.config.journal.history_bytes_max).unwrap_or(usize::MAX)
    }

    /// The finished run that a target names, if its workflow is the target's.
    fn run_of(&self, target: &Target) -> Result<RunId, RunError> {
        match target {
            Target::Run(run) => Ok(*run),
            Target::Latest(latest) => {
                let run = match self.shared.journal.finished(&latest.id) {
                    Ok(finished) => finished.ok_or(RunError::NotFound)?.run,
                    Err(ReadError::Expired { .. }) => return Err(RunError::Expired),
                    Err(error) => return Err(error.into()),
                };
                if let Some(workflow) = &latest.workflow {
                    self.check_workflow(run, workflow)?;
                }
                Ok(run)
            }
        }
    }

    fn check_workflow(&self, run: RunId, expected: &Name) -> Result<(), RunError> {
        check_workflow(expected, self.beginning(run)?.began_as())
    }

    fn history(&self, run: RunId) -> Result<History, RunError> {
        self.shared.journal.history(run).map_err(of_finished)
    }

    /// The outcome of a run. The last event is enough, however long the history is.
    fn outcome(&self, run: RunId) -> Result<Outcome, RunError> {
        let journal = &self.shared.journal;
        // A page behind all records is empty, but names the last one.
        let end = journal.history_page(run, Sequence::new(u64::from(u32::MAX)), 0);
        let head = end.map_err(of_finished)?.head.get();
        if head < 2 {
            // The run has only begun.
            return Err(RunError::NotFound);
        }
        let page = journal.history_page(run, Sequence::new(head - 1), 0);
        let page = page.map_err(of_finished)?;
        let last = page.records.last().ok_or(RunError::NotFound)?;
        let event = decode(last, "")?;
        Outcome::of(&event).ok_or(RunError::NotFound)
    }

    /// The beginning of a run. The first event is enough, however long the history is.
    fn beginning(&self, run: RunId) -> Result<Box<Started>, RunError> {
        let page = self.shared.journal.history_page(run, Sequence::ZERO, 0);
        let (_, started) = finding::beginning_of(&page.map_err(of_finished)?)?;
        Ok(started)
    }

    /// What an ended run can be brought back from, with the ledger of its whole history.
    fn finished(&self, target: &Target) -> Result<(RunId, Ledger, Story), RunError> {
        let run = self.run_of(target)?;
        let story = story(&self.history(run)?)?;
        let kept = story.kept.as_ref().map(|kept| kept.ledger().clone());
        let mut ledger = kept.unwrap_or_else(Ledger::new);
        for (event, time) in &story.events {
            ledger.apply(event, *time);
        }
        if ledger.outcome().is_none() {
            return Err(RunError::NotFound);
        }
        Ok((run, ledger, story))
    }

    /// Tells a shard the latest finished run of an id; also its parent and its outcome, if the shard asks for these.
    fn find_finished(&self, ask: AskFinished) {
        let unread = Answered {
            ask: ask.clone(),
            found: None,
            to_reset: None,
        };
        let owed = Owed::new(self, Said::Answered(unread));
        let finished = self.shared.journal.finished(&ask.id);
        let finished = finished.map(|finished| finished.map(|finished| finished.run));
        let (child, outcome) = match finished {
            Ok(Some(run)) if ask.reads == FinishedReads::End => (
                Some(self.ended_child(run)),
                Some(self.outcome(run).map(|outcome| outcome.kind())),
            ),
            Ok(_) | Err(_) => (None, None),
        };
        let to_reset = match (&finished, ask.reads) {
            (Ok(Some(run)), FinishedReads::ToReset(reads)) => Some(Box::new(self.reading(*run, reads, true))),
            _ => None,
        };
        let found = Some(Found {
            finished,
            child,
            outcome,
        });
        owed.pay(Said::Answered(Answered { ask, found, to_reset }));
    }

    /// The parent and the end of a finished run; `None` if it is no child.
    fn ended_child(&self, run: RunId) -> Result<Option<EndedChild>, RunError> {
        let read = self
            .beginning(run)
            .and_then(|began| Ok((began, self.outcome(run)?)));
        let (began, outcome) = match read {
            Ok(read) => read,
            Err(RunError::NotFound) => return Ok(None),
            Err(error) => return Err(error),
        };
        let child = began.parent().zip(child_end(&outcome));
        Ok(child.map(|(parent, end)| EndedChild {
            parent: (parent.run, parent.operation),
            end,
        }))
    }

    /// Tells the sender of a signal whether an ended run has recorded the signal.
    fn find_signal(&self, finished: RunId, signal: Box<RunSignal>) {
        let unread = PartitionMessage::Signal(signal.clone());
        let owed = Owed::new(self, Said::To(signal.to.partition(), unread));
        let outcome = match self.finished(&Target::Run(finished)) {
            Ok((_, ledger, _)) if ledger.knows_sender(&signal.sender) => Ok(()),
            Ok(_) | Err(RunError::NotFound | RunError::Expired) => Err(SignalFailure::Finished),
            Err(error) => Err(SignalFailure::Quarantined {
                message: error.to_string(),
            }),
        };
        owed.pay(Said::To(signal.sender.run.partition(), signal.answer(outcome)));
    }

    /// Replays a finished run and reports any difference.
    fn check(&self, run: RunId) {
        let counters = &self.shared.counters;
        let Ok((_, ledger, story)) = self.finished(&Target::Run(run)) else {
            return;
        };
        let beginning = ledger
            .started()
            .map(|started| Beginning::of(started, ledger.version()));
        let code = beginning.and_then(|beginning| self.shared.workflows.code_of(beginning));
        let Some(implementation) = code else {
            return;
        };
        counters.replay_checks.fetch_add(1, Ordering::Relaxed);
        let difference = match self.shared.replay(Some(implementation), run, story) {
            Ok(instance) => match instance.park_reason() {
                Some(reason) => Some(reason.to_string()),
                None if instance.changed_values() > 0 => Some(format!(
                    "{} values are encoded differently",
                    instance.changed_values()
                )),
                None => None,
            },
            Err(error) => Some(error.to_string()),
        };
        if let Some(difference) = difference {
            counters.replay_differences.fetch_add(1, Ordering::Relaxed);
            let workflow = implementation.name();
            tracing::error!(%run, workflow, difference, "a finished run does not replay as it ran");
        }
    }

    /// The description of a finished run.
    fn describe(&self, target: &Target) -> Result<InstanceDescription, RunError> {
        let run = self.run_of(target)?;
        let ledger = self.fold(run)?;
        let description = InstanceDescription::of(run, &ledger, 0, |_| false);
        let mut description = description.ok_or(RunError::NotFound)?;
        if description.status != InstanceStatus::Finished {
            return Err(RunError::NotFound);
        }
        description.ended_at = Some(description.last_at);
        Ok(description)
    }

    /// The description of a live run that stays on disk, from its history.
    fn describe_on_disk(&self, on_disk: OnDisk) -> Result<InstanceDescription, RunError> {
        let OnDisk {
            run,
            epoch,
            is_parked,
        } = on_disk;
        let ledger = self.fold(run)?;
        let description = self.shared.describe(run, &ledger, epoch, is_parked);
        description.ok_or(RunError::NotFound)
    }

    /// The ledger of a history, read page by page, so that a long one takes no more memory than a page. It begins at the
    /// snapshot, if there is one.
    fn fold(&self, run: RunId) -> Result<Ledger, RunError> {
        let (mut ledger, mut after) = match self.kept_beside(run) {
            Some(kept) => (kept.ledger().clone(), kept.sequence()),
            None => (Ledger::new(), Sequence::ZERO),
        };
        let bytes_max = self.shared.config.history_page_bytes_max;
        loop {
            let page = self.shared.journal.history_page(run, after, bytes_max);
            let page = page.map_err(of_finished)?;
            if let Some(trimmed) = &page.trimmed {
                // It was trimmed, perhaps between two pages.
                let kept = kept_of(trimmed)?;
                (ledger, after) = (kept.ledger().clone(), kept.sequence());
            }
            let id = page.id.as_ref().map_or("", |id| id.as_str());
            for record in page.records.iter().filter(|record| record.sequence > after) {
                ledger.apply(&decode(record, id)?, record.time);
            }
            match page.records.last() {
                Some(last) if last.sequence < page.head => after = last.sequence.max(after),
                Some(_) | None => return Ok(ledger),
            }
        }
    }

    /// The snapshot beside a run's history; `None` if there is none, or it cannot be read: the whole history tells what is
    /// wrong.
    fn kept_beside(&self, run: RunId) -> Option<Box<KeptBeginning>> {
        kept_in(&self.shared.journal.snapshot(run).ok()??)
    }

    /// A page of a history, durable events only.
    fn page(&self, run: RunId, after: Sequence, len_max: usize) -> Result<HistoryPage, RunError> {
        let bytes_max = self.shared.config.history_page_bytes_max;
        let read = self.shared.journal.history_page(run, after, bytes_max);
        let read = read.map_err(of_finished)?;
        let id = read.id.as_ref().map_or("", |id| id.as_str());
        let events = read.records.iter().take(len_max).map(|record| {
            Ok(RecordedEvent {
                sequence: record.sequence,
                at: record.time,
                event: decode(record, id)?,
            })
        });
        Ok(HistoryPage {
            run,
            events: events.collect::<Result<_, RunError>>()?,
            head: read.head,
            trimmed_before: read.trimmed.map(|trimmed| trimmed.before),
        })
    }

    fn query(&self, target: &Target, question: &Question) -> Result<Payload, QueryError> {
        let (run, ledger, story) = self.finished(target)?;
        let workflow = ledger.started().map(|started| started.workflow.clone());
        let workflow = workflow.unwrap_or_default();
        let version = ledger.version();
        let workflows = &self.shared.workflows;
        // If the code of the run's version is gone, the newest version answers, if it fits the history.
        let own = workflows.code_of((&*workflow, version));
        let Some(implementation) = own.or_else(|| workflows.code_of(&*workflow)) else {
            let reason = ParkReason::NotRegistered {
                workflow: workflow.into_owned(),
                version,
                registered: Vec::new(),
            };
            return Err(QueryError::Unanswered(Unanswered::Parked(reason.to_string())));
        };
        let instance = self.shared.replay(Some(implementation), run, story)?;
        Ok(instance.query(&question.name, &question.value)?)
    }

    fn update(&self, target: &Target, request: &str) -> Result<UpdateAnswer, UpdateRefused> {
        let (_, ledger, _) = self.finished(target).map_err(UpdateRefused::Run)?;
        match ledger.update(request) {
            Some(UpdateStanding::Answered(answer)) => Ok(answer.clone()),
            Some(UpdateStanding::Accepted) | None => Err(UpdateRefused::Run(RunError::Finished)),
        }
    }

    fn signal(&self, target: &Target, request: &str) -> Result<(), RunError> {
        let ledger = self.fold(self.run_of(target)?)?;
        match ledger.knows_signal_request(request) {
            true => Ok(()),
            false => Err(RunError::Finished),
        }
    }
}

/// The error for a finished run that cannot be read.
fn of_finished(error: ReadError) -> RunError {
    match error {
        ReadError::UnknownRun { .. } => RunError::NotFound,
        ReadError::Expired { .. } => RunError::Expired,
        error => error.into(),
    }
}

/// The history of a run, live or finished.
pub(crate) fn history_of(journal: &dyn Journal, run: RunId) -> Result<History, RunError> {
    journal.history(run).map_err(of_finished)
}

/// What a run can be brought back from, and its beginning.
pub(crate) fn story_of(history: &History) -> Result<(Story, Box<Started>), RunError> {
    let story = story(history)?;
    let started = story.started().cloned();
    let started =
        started.ok_or_else(|| RunError::History("it does not tell how the run began".to_owned()))?;
    Ok((story, Box::new(started)))
}

/// What a run can be brought back from: its events; if it was trimmed, the kept beginning and the events behind it.
fn story(history: &History) -> Result<Story, RunError> {
    let kept = history.trimmed.as_ref().map(kept_of).transpose()?;
    let from = kept.as_ref().map_or(Sequence::ZERO, |kept| kept.sequence());
    let id = history.id.as_str();
    let records = history.records.iter().filter(|record| record.sequence > from);
    let events = records.map(|record| decode(record, id).map(|event| (event, record.time)));
    let events = events.collect::<Result<_, _>>()?;
    let head = history.records.last().map_or(from, |last| last.sequence);
    Ok(Story::new(kept, events, head))
}

/// The kept beginning in a snapshot; `None` if it cannot be read: the whole history tells what is wrong.
fn kept_in(snapshot: &Snapshot) -> Option<Box<KeptBeginning>> {
    match KeptBeginning::decode(&snapshot.bytes) {
        Ok(kept) if kept.sequence() == snapshot.sequence => Some(Box::new(kept)),
        Ok(_) => None,
        Err(error) => {
            tracing::warn!(run = %snapshot.run, %error, "what was kept of a history cannot be read; all of it is read");
            None
        }
    }
}

/// A kept beginning with all events behind it, if they are on this page; `None` also if anything is wrong.
fn story_behind(kept: Box<KeptBeginning>, page: &RecordPage) -> Option<Story> {
    let last = page.records.last().map_or(kept.sequence(), |last| last.sequence);
    if last != page.head || page.trimmed.is_some() {
        return None;
    }
    let events = page
        .records
        .iter()
        .map(|record| Ok((decode(record, "")?, record.time)));
    let events = events.collect::<Result<_, RunError>>().ok()?;
    Some(Story::new(Some(kept), events, page.head))
}

/// The kept beginning of a run that was trimmed.
fn kept_of(trimmed: &Trimmed) -> Result<Box<KeptBeginning>, RunError> {
    let kept = KeptBeginning::decode(&trimmed.kept).map_err(|error| {
        let before = trimmed.before;
        RunError::History(format!("what is kept of the events before {before}: {error}"))
    })?;
    // The kept beginning must reach the turn that trimmed the run.
    if kept.sequence() < trimmed.before {
        let before = trimmed.before;
        return Err(RunError::History(format!(
            "what is kept of the events before {before} ends too early"
        )));
    }
    Ok(Box::new(kept))
}

/// Decodes an event; the first one needs the `id`.
fn decode(record: &Record, id: &str) -> Result<Event, RunError> {
    let opens = (record.sequence.get() == 1).then_some(id);
    wire::decode(record.kind, &record.body, opens)
        .map_err(|error| RunError::History(format!("event {}: {error}", record.sequence)))
}

impl Reader {
    fn streams(&self, topic: TopicNumber) -> Result<&dyn TopicStreams, ReadError> {
        let streams = self.shared.journal.topics();
        streams.ok_or(ReadError::UnknownTopic { topic })
    }

    fn answer(&self, request: ReadRequest) {
        match request {
            ReadRequest::Load(load) | ReadRequest::LoadAlone(load) => {
                if let Some(to_reset) = load.to_reset {
                    return self.read_to_reset(load, to_reset);
                }
                let unread = LocalMessage::Loaded { load, history: None };
                let owed = Owed::new(self, Said::Here(load.run, unread));
                let history = self.load(load.run);
                let history = Some(history.map(|story| self.shared.with_trial(load.run, story)));
                owed.pay(Said::Here(load.run, LocalMessage::Loaded { load, history }));
            }
            // The caller may have given up.
            ReadRequest::Outcome(target, reply) => {
                let outcome = self.run_of(&target).and_then(|run| self.outcome(run));
                drop(reply.send(outcome.map(Standing::Ended)));
            }
            ReadRequest::CheckWorkflow(run, workflow, reply) => {
                drop(reply.send(self.check_workflow(run, &workflow)));
            }
            ReadRequest::Check(run) => self.check(run),
            ReadRequest::Finished(ask) => self.find_finished(ask),
            ReadRequest::FindSignal(finished, signal) => self.find_signal(finished, signal),
            ReadRequest::Describe(target, reply) => drop(reply.send(self.describe(&target))),
            ReadRequest::DescribeOnDisk(on_disk, reply) => drop(reply.send(self.describe_on_disk(on_disk))),
            ReadRequest::DescribeAt(run, to, reply) => drop(reply.send(self.describe_at(run, to))),
            ReadRequest::QueryAt(run, to, question, reply) => {
                drop(reply.send(self.query_at(run, to, &question)));
            }
            ReadRequest::Query(target, question, reply) => {
                drop(reply.send(self.query(&target, &question)));
            }
            ReadRequest::Update(target, request, reply) => {
                drop(reply.send(self.update(&target, &request)));
            }
            ReadRequest::Signal(target, request, reply) => {
                drop(reply.send(self.signal(&target, &request)));
            }
            ReadRequest::History(run, after, len_max, reply) => {
                drop(reply.send(self.page(run, after, len_max)));
            }
            ReadRequest::Export(run, reply) => drop(reply.send(self.exported(run))),
            ReadRequest::TraceBeginning(run, reply) => drop(reply.send(self.trace_beginning(run))),
            ReadRequest::Spans(wanted, reply) => {
                let (run, bounds, events_len_max) = *wanted;
                drop(reply.send(self.spans(run, bounds, events_len_max)));
            }
            ReadRequest::Find(filter, before, len_max, reply) => {
                drop(reply.send(self.find(&filter, before, len_max)));
            }
            ReadRequest::TopicPage(topic, after, bytes_max, reply) => {
                let page = self.streams(topic);
                let page = page.and_then(|streams| streams.read(topic, after, bytes_max));
                // A caller that has its answer asks for the next page at once. It should be read on this thread: with most
                // allocators, each thread that reads pages keeps memory of its own for them.
                let (lanes, index) = self.shared.reader.lanes_of(self.lane);
                lanes.has_read(index);
                drop(reply.send(page));
            }
            ReadRequest::TopicAtTime(topic, time, reply) => {
                let streams = self.streams(topic);
                drop(reply.send(streams.and_then(|streams| streams.at_time(topic, time))));
            }
            ReadRequest::ListFinished(after, len_max, reply) => {
                drop(reply.send(self.list_finished(after, len_max)));
            }
        }
    }
}

impl Part for Reader {
    fn turn(&mut self, now: Timestamp, budget: usize) -> Next {
        let shared = Arc::clone(&self.shared);
        let (lanes, index) = shared.reader.lanes_of(self.lane);
        for _ in 0..budget {
            match lanes.next(index, ReadRequest::goes_together) {
                Some(NextRead::One(request)) => self.answer(request),
                Some(NextRead::Several) => self.answer_together(lanes, index),
                None if lanes.requests().is_closed() => return Next::Stop,
                None if lanes.watch(now, &mut self.watched) => return Next::IdleUntil(now + STUCK_AFTER),
                None => return Next::Idle,
            }
        }
        Next::Again
    }
}
