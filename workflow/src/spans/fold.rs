//! The fold of a history into the spans of its run.

use millrun_core::{RunId, Sequence, SpanId, Timestamp, TraceContext};

use super::outcome::{of_child, of_publish, of_signal, word};
use super::unfinished::{UnfinishedSpans, begun};
use super::{RunSpan, RunSpans, SpanBounds, SpanEnd, SpanOf, SpanValue};
use crate::event::{Event, Started};
use crate::ledger::Pending;
use crate::{KeptBeginning, OperationId, Outcome};

/// Takes the events of a run one by one, and makes its [spans](RunSpans). The same events always make the same spans.
#[derive(Clone, Debug)]
pub struct SpanFold {
    trace: Option<TraceContext>,
    spans: UnfinishedSpans,
    /// When the last event was recorded.
    last_at: Timestamp,
}

impl SpanFold {
    /// Nothing yet of this run.
    #[must_use]
    pub fn new(run: RunId, bounds: SpanBounds) -> Self {
        Self {
            trace: None,
            spans: UnfinishedSpans::new(run, bounds),
            last_at: Timestamp::EPOCH,
        }
    }

    /// Begins with the kept beginning of a trimmed history: the run, and the operations that were pending then. Operations
    /// that had ended before have no spans, which the run's span mentions.
    pub fn begin_kept(&mut self, kept: &KeptBeginning) {
        let ledger = kept.ledger();
        let Some(started) = ledger.started() else {
            return;
        };
        *self = Self::new(self.spans.run_id(), self.spans.bounds());
        self.begin(started, ledger.started_at());
        self.last_at = ledger.last_at();
        let before = SpanValue::Number(kept.sequence().get());
        self.spans.attribute_run("millrun.trimmed_before", before);
        for (operation, pending) in ledger.pending() {
            let since = ledger.pending_since(operation).unwrap_or(Timestamp::EPOCH);
            match pending {
                Pending::Activity(activity) => {
                    let scheduled = &activity.scheduled;
                    self.activity(operation, &scheduled.activity, &scheduled.queue, since);
                }
                Pending::Child { scheduled, run, .. } => {
                    self.child(operation, &scheduled.workflow, scheduled.id.as_str(), since);
                    if let Some(child) = run {
                        self.child_began(operation, *child);
                    }
                }
                Pending::Publish { scheduled, .. } => self.publish(operation, &scheduled.topic, since),
                Pending::Receive { scheduled, .. } => self.receive(operation, &scheduled.topic, since),
                Pending::Signal(scheduled) => {
                    self.signal(operation, &scheduled.name, scheduled.id.as_str(), since);
                }
                Pending::Promise => {
                    self.spans
                        .operation(SpanOf::Promise, operation, "promise".into(), since);
                }
                Pending::Timer { .. } => {
                    self.spans
                        .operation(SpanOf::Timer, operation, "timer".into(), since);
                }
            }
        }
    }

    /// Takes in the next event, with its number and the time of its turn.
    pub fn apply(&mut self, sequence: Sequence, event: &Event, time: Timestamp) {
        if let Event::Started(started) = event {
            self.begin(started, time);
        }
        if self.spans.is_empty() {
            return;
        }
        self.last_at = time;
        match event {
            Event::Started(_)
            | Event::ValueRecorded { .. }
            | Event::Patched { .. }
            | Event::AttemptHeartbeat { .. } => {}
            Event::ActivityScheduled(call) => {
                self.activity(call.operation, &call.activity, &call.queue, time)
            }
            Event::AttemptStarted { operation, attempt } => {
                let attempt = ("millrun.attempt", SpanValue::Number(u64::from(*attempt)));
                self.spans
                    .note_operation(*operation, time, "attempt started", vec![attempt]);
            }
            Event::AttemptFailed {
                operation,
                attempt,
                failure,
                retry_at,
                epoch: _,
            } => {
                let attributes = vec![
                    ("millrun.attempt", SpanValue::Number(u64::from(*attempt))),
                    ("millrun.error", self.spans.text(&failure.to_string())),
                    ("millrun.retry_at_us", SpanValue::Number(retry_at.as_micros())),
                ];
                self.spans
                    .note_operation(*operation, time, "attempt failed", attributes);
            }
            Event::ActivityCompleted {
                operation, attempt, ..
            } => {
                self.attempt(*operation, *attempt);
                self.spans.close(*operation, time, SpanEnd::Done);
            }
            Event::ActivityFailed {
                operation,
                attempt,
                failure,
            } => {
                self.attempt(*operation, *attempt);
                let end = self.spans.failed(&failure.to_string());
                self.spans.close(*operation, time, end);
            }
            Event::TimerStarted { operation, .. } => {
                self.spans
                    .operation(SpanOf::Timer, *operation, "timer".into(), time);
            }
            Event::TimerFired { operation } => self.spans.close(*operation, time, SpanEnd::Done),
            Event::ChildScheduled(call) => {
                self.child(call.operation, &call.workflow, call.id.as_str(), time);
            }
            Event::ChildStarted { operation, run } => self.child_began(*operation, *run),
            Event::ChildCancelRequested { operation, reason } => {
                let reason = vec![("millrun.reason", SpanValue::Text(reason.clone()))];
                self.spans
                    .note_operation(*operation, time, "asked to cancel", reason);
            }
            Event::ChildEnded { operation, end } => {
                let end = match end {
                    Ok(_) => SpanEnd::Done,
                    Err(failure) => self.spans.failed(&of_child(failure)),
                };
                self.spans.close(*operation, time, end);
            }
            Event::PublishScheduled(publish) => self.publish(publish.operation, &publish.topic, time),
            Event::PublishParked { operation } => {
                self.spans
                    .note_operation(*operation, time, "no room in the topic", Vec::new());
            }
            Event::Published { operation, outcome } => {
                let end = of_publish(outcome).map_or(SpanEnd::Done, |message| self.spans.failed(message));
                self.spans.close(*operation, time, end);
            }
            Event::ReceiveScheduled(receive) => self.receive(receive.operation, &receive.topic, time),
            Event::RecordReceived { operation, .. } => self.spans.close(*operation, time, SpanEnd::Done),
            Event::SignalScheduled(signal) => {
                self.signal(signal.operation, &signal.name, signal.id.as_str(), time);
            }
            Event::SignalSent { operation, outcome } => {
                let end = match outcome {
                    Ok(()) => SpanEnd::Done,
                    Err(failure) => self.spans.failed(&of_signal(failure)),
                };
                self.spans.close(*operation, time, end);
            }
            Event::PromiseMade { operation } => {
                self.spans
                    .operation(SpanOf::Promise, *operation, "promise".into(), time);
            }
            Event::PromiseSettled { operation, end } => {
                let end = match end {
                    Ok(_) => SpanEnd::Done,
                    Err(message) => self.spans.failed(message),
                };
                self.spans.close(*operation, time, end);
            }
            Event::OperationCancelled { operation } => self.spans.close(*operation, time, SpanEnd::Dropped),
            Event::UpdateAccepted { request, name, .. } => {
                self.spans.update(sequence, request, name, time);
            }
            Event::UpdateAnswered { request, answer } => {
                let end = match answer {
                    Ok(_) => SpanEnd::Done,
                    Err(message) => self.spans.failed(message),
                };
                self.spans.close_update(request, time, end);
            }
            Event::SignalReceived { name, .. } | Event::RunSignalReceived { name, .. } => {
                let name = self.spans.text(name);
                self.spans
                    .note_run(time, "signal", vec![("millrun.signal", name)]);
            }
            Event::CommandPerformed(performed) => {
                let name = self.spans.text(&performed.name);
                self.spans
                    .note_run(time, "command", vec![("millrun.command", name)]);
            }
            Event::Checkpointed(_) => self.spans.note_run(time, "checkpoint", Vec::new()),
            Event::CancelRequested { reason, .. } => {
                let reason = self.spans.text(reason);
                self.spans
                    .note_run(time, "cancel requested", vec![("millrun.reason", reason)]);
            }
            Event::Parked { reason } => {
                let reason = self.spans.text(&reason.to_string());
                self.spans
                    .note_run(time, "parked", vec![("millrun.reason", reason)]);
            }
            Event::Resumed => self.spans.note_run(time, "resumed", Vec::new()),
            Event::VersionChanged { version } => {
                let version = ("millrun.version", SpanValue::Number(u64::from(*version)));
                self.spans.note_run(time, "version changed", vec![version]);
            }
            Event::Completed { .. }
            | Event::Failed { .. }
            | Event::Cancelled { .. }
            | Event::ContinuedAsNew { .. }
            | Event::Terminated { .. }
            | Event::TimedOut { .. }
            | Event::Reset { .. } => self.finish_run(event, time),
        }
    }

    /// Notes in the run's span that `len` events were skipped, because there are too many.
    pub fn leave_out_events(&mut self, len: u64) {
        if len > 0 {
            self.spans
                .attribute_run("millrun.events_left_out", SpanValue::Number(len));
        }
    }

    /// The spans; `None` if no event has the run's beginning. Spans that have not ended last until the last event.
    #[must_use]
    pub fn finish(self) -> Option<RunSpans> {
        Some(self.spans.finish(self.trace?, self.last_at))
    }

    fn begin(&mut self, started: &Started, time: Timestamp) {
        if !self.spans.is_empty() {
            return;
        }
        let run = self.spans.run_id();
        let id = SpanId::of_run(run);
        let trace = started.trace().copied();
        let trace = trace.unwrap_or_else(|| TraceContext::beginning_with(run));
        self.trace = Some(trace);
        let origin = started.origin.as_deref();
        let mut attributes = vec![
            ("millrun.run", SpanValue::Text(run.to_string())),
            (
                "millrun.instance",
                SpanValue::Text(started.id.as_str().to_owned()),
            ),
        ];
        if let Some(cause) = started.cause() {
            attributes.push(("millrun.cause", SpanValue::Text(cause.to_string())));
        }
        let continued = origin.and_then(|origin| origin.continued);
        self.spans.begin_run(RunSpan {
            parent: Some(trace.span_id()).filter(|parent| *parent != id),
            attributes,
            links: continued.map(SpanId::of_run).into_iter().collect(),
            ..begun(SpanOf::Run, id, started.workflow.to_string(), time)
        });
    }

    fn finish_run(&mut self, event: &Event, time: Timestamp) {
        let message = match event {
            Event::Failed { error } | Event::Cancelled { error } => Some(error.message.clone()),
            Event::Terminated { reason } => Some(format!("terminated: {reason}")),
            Event::ContinuedAsNew { run, failed, .. } => {
                let next = SpanValue::Text(run.to_string());
                self.spans.attribute_run("millrun.continued_as", next);
                failed.as_ref().map(|error| error.message.clone())
            }
            Event::TimedOut { timeout, next } => {
                if let Some(run) = next {
                    let next = SpanValue::Text(run.to_string());
                    self.spans.attribute_run("millrun.continued_as", next);
                }
                Some(format!("exceeded its {timeout} timeout"))
            }
            Event::Reset { run, to, reason } => {
                let next = SpanValue::Text(run.to_string());
                self.spans.attribute_run("millrun.continued_as", next);
                Some(format!("reset to event {to}: {reason}"))
            }
            _ => None,
        };
        if let Some(outcome) = Outcome::of(event) {
            let outcome = SpanValue::Text(word(outcome.kind()).to_owned());
            self.spans.attribute_run("millrun.outcome", outcome);
        }
        let end = message.map_or(SpanEnd::Done, |message| self.spans.failed(&message));
        self.spans.end_run(time, end);
    }

    fn activity(&mut self, operation: OperationId, name: &str, queue: &str, time: Timestamp) {
        let name = name.to_owned();
        if let Some(span) = self.spans.operation(SpanOf::Activity, operation, name, time) {
            let queue = SpanValue::Text(queue.to_owned());
            span.attributes.push(("millrun.queue", queue));
        }
    }

    /// The attempt with which an activity ended.
    fn attempt(&mut self, operation: OperationId, attempt: u32) {
        if let Some(span) = self.spans.pending(operation) {
            let attempt = SpanValue::Number(u64::from(attempt));
            span.attributes.push(("millrun.attempt", attempt));
        }
    }

    fn child(&mut self, operation: OperationId, workflow: &str, id: &str, time: Timestamp) {
        let name = workflow.to_owned();
        if let Some(span) = self.spans.operation(SpanOf::Child, operation, name, time) {
            let id = SpanValue::Text(id.to_owned());
            span.attributes.push(("millrun.instance", id));
        }
    }

    fn child_began(&mut self, operation: OperationId, child: RunId) {
        if let Some(span) = self.spans.pending(operation) {
            let run = SpanValue::Text(child.to_string());
            span.attributes.push(("millrun.child_run", run));
            span.links.push(SpanId::of_run(child));
        }
    }

    fn publish(&mut self, operation: OperationId, topic: &str, time: Timestamp) {
        let name = format!("publish {topic}");
        if let Some(span) = self.spans.operation(SpanOf::Publish, operation, name, time) {
            let topic = SpanValue::Text(topic.to_owned());
            span.attributes.push(("millrun.topic", topic));
        }
    }

    fn receive(&mut self, operation: OperationId, topic: &str, time: Timestamp) {
        let name = format!("receive {topic}");
        if let Some(span) = self.spans.operation(SpanOf::Receive, operation, name, time) {
            let topic = SpanValue::Text(topic.to_owned());
            span.attributes.push(("millrun.topic", topic));
        }
    }

    fn signal(&mut self, operation: OperationId, name: &str, to: &str, time: Timestamp) {
        let name = format!("signal {name}");
        if let Some(span) = self.spans.operation(SpanOf::Signal, operation, name, time) {
            let to = SpanValue::Text(to.to_owned());
            span.attributes.push(("millrun.instance", to));
        }
    }
}
