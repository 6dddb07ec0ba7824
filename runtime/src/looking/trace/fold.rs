//! The causes and effects in a history: a link for each operation and each input, in the order of their events.

use std::collections::BTreeMap;

use millrun_core::{Cause, Sequence, Timestamp};
use millrun_workflow::{ENTITY_COMMAND, EntityOrder, Event, OperationId, Origin, Pending, Started};

use super::cursor::LinkKey;
use super::links::{TraceLink, TraceOf, TraceOutcome, TraceRelation};
use super::outcome;
use crate::topics::RecordToken;

/// The links of a part of a history.
#[derive(Debug)]
pub(super) struct LinkFold {
    pub(super) links: BTreeMap<LinkKey, FoldedLink>,
    /// The links of operations that have not ended.
    open: BTreeMap<OperationId, LinkKey>,
    /// The links of all operations.
    operations: BTreeMap<OperationId, LinkKey>,
    /// Behind the links for the beginning of a run that is trimmed.
    pub(super) begun: LinkKey,
    /// The place of the next link.
    next: LinkKey,
}

/// A link of a run.
#[derive(Clone, Debug)]
pub(super) struct FoldedLink {
    pub(super) link: TraceLink,
    pub(super) is_cause: bool,
}

/// The trigger and the record in the request name of a trigger.
pub(super) fn trigger_of(request: &str) -> Option<(&str, RecordToken)> {
    let at = request.len().checked_sub(RecordToken::TEXT_BYTES_MAX)?;
    let (trigger, token) = request.split_at_checked(at)?;
    Some((trigger.strip_suffix('/')?, token.parse().ok()?))
}

impl LinkFold {
    pub(super) fn new() -> Self {
        Self {
            links: BTreeMap::new(),
            open: BTreeMap::new(),
            operations: BTreeMap::new(),
            begun: LinkKey::default(),
            next: LinkKey::default(),
        }
    }

    /// How many of the operations that began at this place or before have not ended.
    pub(super) fn has_open_until(&self, key: LinkKey) -> bool {
        self.open.values().any(|open| *open <= key)
    }

    /// Marks the outcome of operations that have not ended as unknown, for this reason.
    pub(super) fn leave_open(&mut self, why: &str) {
        for key in self.open.values() {
            if let Some(folded) = self.links.get_mut(key) {
                folded.link.outcome = TraceOutcome::Unknown(why.to_owned());
            }
        }
    }

    /// Where the link of this operation is.
    pub(super) fn key_of(&self, operation: u32) -> Option<LinkKey> {
        self.operations.get(&OperationId::new(operation)).copied()
    }

    /// Adds the kept beginning of a trimmed history, which comes before all events.
    pub(super) fn begin_kept<'a>(
        &mut self,
        started: &Started,
        began_at: Timestamp,
        pending: impl Iterator<Item = (OperationId, &'a Pending, Timestamp)>,
    ) {
        self.next = LinkKey::default();
        self.begin(started, began_at);
        self.begun = self.next;
        for (operation, pending, since) in pending {
            match pending {
                Pending::Activity(activity) => {
                    let event = Event::ActivityScheduled(activity.scheduled.clone());
                    self.decided(&event, since);
                    let last = activity.failed_attempt.max(activity.begun_attempt);
                    self.attempts(operation, last);
                }
                Pending::Timer { deadline } => {
                    let deadline = *deadline;
                    self.decided(&Event::TimerStarted { operation, deadline }, since);
                }
                Pending::Child { scheduled, run, .. } => {
                    self.decided(&Event::ChildScheduled(scheduled.clone()), since);
                    if let Some(run) = *run {
                        self.input(&Event::ChildStarted { operation, run }, since);
                    }
                }
                Pending::Publish { scheduled, .. } => {
                    self.decided(&Event::PublishScheduled(scheduled.clone()), since);
                }
                Pending::Receive { scheduled, .. } => {
                    self.decided(&Event::ReceiveScheduled(scheduled.clone()), since);
                }
                Pending::Signal(scheduled) => {
                    self.decided(&Event::SignalScheduled(scheduled.clone()), since);
                }
                Pending::Promise => self.decided(&Event::PromiseMade { operation }, since),
            }
        }
    }

    /// Adds the last records that a trimmed run had taken, by key and topic.
    pub(super) fn taken(&mut self, event: &Event, at: Timestamp) {
        let Event::Checkpointed(checkpoint) = event else {
            return;
        };
        for taken in &checkpoint.taken {
            let of = TraceOf::Record {
                topic: taken.topic.to_string(),
                sequence: taken.sequence,
            };
            let link = TraceLink::of(TraceRelation::Received).to(of).at(at);
            self.add(true, link.named(&*taken.topic));
        }
    }

    /// Takes in the next event.
    pub(super) fn apply(&mut self, sequence: Sequence, event: &Event, at: Timestamp) {
        self.next = LinkKey { sequence, nth: 0 };
        if let Event::Started(started) = event {
            self.begin(started, at);
        }
        self.decided(event, at);
        self.input(event, at);
    }

    fn add(&mut self, is_cause: bool, link: TraceLink) {
        self.links.insert(self.next, FoldedLink { link, is_cause });
        self.next.nth += 1;
    }

    /// Adds the link of an operation that has begun.
    fn operate(&mut self, operation: OperationId, is_cause: bool, mut link: TraceLink) {
        link.operation = Some(operation);
        link.outcome = TraceOutcome::Open;
        self.open.insert(operation, self.next);
        self.operations.insert(operation, self.next);
        self.add(is_cause, link);
    }

    fn begin(&mut self, started: &Started, at: Timestamp) {
        let origin = started.origin.as_deref();
        let before = self.next.nth;
        for (trigger, token) in triggers_of(origin) {
            let link = TraceLink::of(TraceRelation::Triggered).to(token).at(at);
            self.add(true, link.named(trigger));
        }
        if let Some(run) = origin.and_then(|origin| origin.continued) {
            self.add(true, TraceLink::of(TraceRelation::Continues).to(run).at(at));
        }
        if let Some(parent) = started.parent() {
            let cause = Cause {
                run: parent.run,
                operation: parent.operation.get(),
            };
            self.add(true, of_operation(TraceRelation::Child, cause).at(at));
        } else if let Some(cause) = started.cause() {
            self.add(true, of_operation(TraceRelation::CausedBy, cause).at(at));
        }
        if self.next.nth == before {
            self.add(true, TraceLink::of(TraceRelation::Outside).at(at));
        }
    }

    /// A cause with a request name, from a trigger, a run, or an outside caller.
    fn asked(&mut self, relation: TraceRelation, name: &str, request: Option<&str>, at: Timestamp) {
        let link = TraceLink::of(relation).named(name).at(at);
        let link = match request {
            Some(request) => match (trigger_of(request), request.parse::<Cause>()) {
                (Some((_, token)), _) => link.to(token),
                (None, Ok(cause)) => of_operation(relation, cause).named(name).at(at),
                (None, Err(_)) => link,
            },
            None => link,
        };
        self.add(true, link);
    }

    /// Adds a decision of the code.
    fn decided(&mut self, event: &Event, at: Timestamp) {
        match event {
            Event::ActivityScheduled(call) => {
                let order = (call.activity == ENTITY_COMMAND.name())
                    .then(|| call.input.decode::<EntityOrder>().ok())
                    .flatten();
                let mut link = match order {
                    Some(order) => {
                        let mut link = TraceLink::of(TraceRelation::Command).named(order.command);
                        link.instance = order.id.parse().ok();
                        link.to = link.instance.clone().map(TraceOf::Instance);
                        link
                    }
                    None => TraceLink::of(TraceRelation::Activity).named(&*call.activity),
                };
                link.attempts = Some(0);
                self.operate(call.operation, false, link.at(at));
            }
            Event::TimerStarted { operation, .. } => {
                self.operate(*operation, false, TraceLink::of(TraceRelation::Timer).at(at));
            }
            Event::SignalScheduled(signal) => {
                let mut link = TraceLink::of(TraceRelation::Signal).named(&*signal.name);
                link = link.to(signal.id.clone()).at(at);
                link.instance = Some(signal.id.clone());
                self.operate(signal.operation, false, link);
            }
            Event::ChildScheduled(child) => {
                let mut link = TraceLink::of(TraceRelation::Child).named(&*child.workflow).at(at);
                link.instance = Some(child.id.clone());
                self.operate(child.operation, false, link);
            }
            Event::PublishScheduled(publish) => {
                let link = TraceLink::of(TraceRelation::Published).named(&*publish.topic);
                self.operate(publish.operation, false, link.at(at));
            }
            Event::ReceiveScheduled(receive) => {
                let link = TraceLink::of(TraceRelation::Received).named(&*receive.topic);
                self.operate(receive.operation, true, link.at(at));
            }
            Event::PromiseMade { operation } => {
                self.operate(*operation, true, TraceLink::of(TraceRelation::Promise).at(at));
            }
            Event::ContinuedAsNew { run, workflow, .. } => {
                let link = TraceLink::of(TraceRelation::Continues).to(*run).at(at);
                self.add(false, link.named(&**workflow));
            }
            Event::Reset { run, .. } | Event::TimedOut { next: Some(run), .. } => {
                self.add(false, TraceLink::of(TraceRelation::Continues).to(*run).at(at));
            }
            _ => {}
        }
    }

    /// Adds an input of the run.
    fn input(&mut self, event: &Event, at: Timestamp) {
        match event {
            Event::SignalReceived {
                name, cause, request, ..
            } => match (request.as_deref(), cause.as_deref()) {
                (Some(request), _) if trigger_of(request).is_some() => {
                    self.asked(TraceRelation::Signal, name, Some(request), at);
                }
                (_, Some(cause)) => {
                    let link = of_operation(TraceRelation::Signal, *cause);
                    self.add(true, link.named(&**name).at(at));
                }
                (request, None) => self.asked(TraceRelation::Signal, name, request, at),
            },
            Event::RunSignalReceived { sender, name, .. } => {
                let link = of_operation(TraceRelation::Signal, **sender);
                self.add(true, link.named(&**name).at(at));
            }
            Event::UpdateAccepted { name, .. } => {
                self.add(true, TraceLink::of(TraceRelation::Update).named(&**name).at(at));
            }
            Event::CommandPerformed(command) => {
                self.asked(
                    TraceRelation::Command,
                    &command.name,
                    command.request.as_deref(),
                    at,
                );
            }
            Event::CancelRequested { reason, .. } => {
                let link = TraceLink::of(TraceRelation::CancelRequest).named(reason.as_str());
                self.add(true, link.at(at));
            }
            Event::AttemptFailed {
                operation, attempt, ..
            }
            | Event::AttemptStarted { operation, attempt } => {
                self.attempts(*operation, *attempt);
            }
            Event::ActivityCompleted {
                operation,
                attempt,
                result,
            } => {
                self.attempts(*operation, *attempt);
                let is_command = |link: &TraceLink| link.relation == TraceRelation::Command;
                let outcome = match self.open_link(*operation).is_some_and(|link| is_command(link)) {
                    true => outcome::of_command(result),
                    false => TraceOutcome::Done,
                };
                self.end(*operation, outcome);
            }
            Event::ActivityFailed {
                operation,
                attempt,
                failure,
            } => {
                self.attempts(*operation, *attempt);
                self.end(*operation, TraceOutcome::Failed(failure.to_string()));
            }
            Event::TimerFired { operation } => self.end(*operation, TraceOutcome::Done),
            Event::SignalSent { operation, outcome } => self.end(*operation, outcome::of_signal(outcome)),
            Event::ChildStarted { operation, run } => {
                if let Some(link) = self.open_link(*operation) {
                    link.to = Some(TraceOf::Run(*run));
                }
            }
            Event::ChildEnded { operation, end } => self.end(*operation, outcome::of_child(end)),
            Event::Published { operation, outcome } => {
                if let Some(link) = self.open_link(*operation) {
                    // The record is looked for near this time.
                    link.at = Some(at);
                }
                self.end(*operation, outcome::of_publish(outcome));
            }
            Event::RecordReceived { operation, record } => {
                let sequence = record.sequence;
                if let Some(link) = self.open_link(*operation) {
                    let topic = link.name.clone().unwrap_or_default();
                    link.to = Some(TraceOf::Record { topic, sequence });
                    link.at = Some(at);
                }
                self.end(*operation, TraceOutcome::Done);
            }
            Event::PromiseSettled { operation, end } => {
                let failed = end.as_ref().err().cloned();
                self.end(
                    *operation,
                    failed.map_or(TraceOutcome::Done, TraceOutcome::Failed),
                );
            }
            Event::OperationCancelled { operation } => self.end(*operation, TraceOutcome::Cancelled),
            _ => {}
        }
        if event.is_last() {
            // Operations that had not ended were dropped with the run.
            for operation in self.open.keys().copied().collect::<Vec<_>>() {
                self.end(operation, TraceOutcome::Cancelled);
            }
        }
    }

    fn open_link(&mut self, operation: OperationId) -> Option<&mut TraceLink> {
        let key = self.open.get(&operation)?;
        self.links.get_mut(key).map(|folded| &mut folded.link)
    }

    fn attempts(&mut self, operation: OperationId, attempts: u32) {
        if let Some(link) = self.open_link(operation) {
            link.attempts = link.attempts.max(Some(attempts));
        }
    }

    fn end(&mut self, operation: OperationId, outcome: TraceOutcome) {
        if let Some(link) = self.open_link(operation) {
            link.outcome = outcome;
        }
        self.open.remove(&operation);
    }
}

/// A cause that is an operation of another run.
fn of_operation(relation: TraceRelation, cause: Cause) -> TraceLink {
    let mut link = TraceLink::of(relation).to(cause);
    link.operation = Some(OperationId::new(cause.operation));
    link
}

/// The triggers and records that began a run. A run that continues another has that one's requests.
fn triggers_of(origin: Option<&Origin>) -> impl Iterator<Item = (&str, RecordToken)> {
    let origin = origin.filter(|origin| origin.continued.is_none());
    let requests = origin.into_iter().flat_map(|origin| {
        let signals = origin.signal_requests.iter().map(String::as_str);
        origin.triggered_by.as_deref().into_iter().chain(signals)
    });
    requests.filter_map(trigger_of)
}
