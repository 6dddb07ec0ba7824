//! Bringing a run's code back: it is shown its history, and must make the same decisions again.

use std::collections::VecDeque;
use std::iter::Peekable;
use std::panic::Location;
use std::sync::Arc;

use millrun_core::{RunId, Timestamp};

use super::parking::shown_at;
use super::{Instance, Limits, Moment};
use crate::context::Decision;
use crate::event::{
    Event, FormerRun, Nondeterminism, ParkReason, PublishScheduled, RecordTexts, is_same_name,
};
use crate::registry::Implementation;
use crate::{KeptBeginning, TopicRenames};

/// Why a history cannot be replayed at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// There are no events.
    #[error("the history is empty")]
    Empty,
    /// The first event is not the run's start.
    #[error("the history begins with {0} instead of Started")]
    NoStart(&'static str),
    /// There is a second start.
    #[error("event {sequence} starts the run again")]
    StartedTwice {
        /// The event that should not be there.
        sequence: u64,
    },
    /// Something follows the run's last event.
    #[error("the history goes on after the run's end, with event {sequence}")]
    PastTheEnd {
        /// The event that should not be there.
        sequence: u64,
    },
}

/// A run that was brought back, with the difference between its code and its history, if any.
type BroughtBack = (Instance, Option<Unfit>);

/// How code does not fit a history.
#[derive(Debug)]
pub(crate) enum Unfit {
    /// It makes another decision.
    Differs(Nondeterminism),
    /// It panics, or awaits something unknown, while the history continues.
    Fails(Nondeterminism),
}

impl Instance {
    /// Rebuilds a run from its history: events in order, each with the time of its turn.
    ///
    /// If the code does not fit the history, the run is parked with a [`Nondeterminism`] that
    /// names the first difference; nothing is lost, and inputs are recorded as before.
    ///
    /// # Errors
    /// When the events are no history, for any code.
    pub fn replay(
        implementation: Option<&Implementation>,
        run: RunId,
        history: impl IntoIterator<Item = (Event, Timestamp)>,
        limits: Limits,
    ) -> Result<Self, ReplayError> {
        Self::try_whole(implementation, run, history, limits).map(|(instance, _)| instance)
    }

    /// As [`replay`](Self::replay), with the first difference, if the code does not fit.
    pub(crate) fn try_whole(
        implementation: Option<&Implementation>,
        run: RunId,
        history: impl IntoIterator<Item = (Event, Timestamp)>,
        limits: Limits,
    ) -> Result<BroughtBack, ReplayError> {
        let (mut history, behind) = split(history);
        if let Some((Event::Checkpointed(checkpoint), time)) = history.pop() {
            let mut instance = Self::fold(run, history, limits)?;
            let event = Event::Checkpointed(checkpoint);
            instance.ledger.apply(&event, time);
            let difference = instance.replay_from(event, time, behind, implementation)?;
            return Ok((instance, difference));
        }
        let mut history = behind.into_iter();
        let Some((first, started_at)) = history.next() else {
            return Err(ReplayError::Empty);
        };
        let Event::Started(started) = &first else {
            return Err(ReplayError::NoStart(first.label()));
        };
        let mut instance = Self::empty(run, limits.with_bounds(started.bounds), started_at);
        instance.ledger.apply(&first, started_at);
        let difference = instance.replay_from(first, started_at, history.collect(), implementation)?;
        Ok((instance, difference))
    }

    /// As [`replay`](Self::replay), from a kept beginning and the events behind it: returns the instance that the whole
    /// history would give.
    ///
    /// # Errors
    /// When the events do not continue the kept beginning, for any code.
    pub fn replay_kept(
        implementation: Option<&Implementation>,
        run: RunId,
        kept: KeptBeginning,
        behind: impl IntoIterator<Item = (Event, Timestamp)>,
        limits: Limits,
    ) -> Result<Self, ReplayError> {
        Self::try_kept(implementation, run, kept, behind, limits).map(|(instance, _)| instance)
    }

    /// As [`replay_kept`](Self::replay_kept), with the first difference, if the code does not fit.
    pub(crate) fn try_kept(
        implementation: Option<&Implementation>,
        run: RunId,
        kept: KeptBeginning,
        behind: impl IntoIterator<Item = (Event, Timestamp)>,
        limits: Limits,
    ) -> Result<BroughtBack, ReplayError> {
        let KeptBeginning {
            ledger,
            checkpoint,
            at,
        } = kept;
        let bounds = ledger.started().map(|started| started.bounds);
        let Some(bounds) = bounds else {
            return Err(ReplayError::NoStart("Checkpointed"));
        };
        let mut instance = Self::empty(run, limits.with_bounds(bounds), ledger.started_at());
        instance.ledger = ledger;
        let (mut folded, behind) = split(behind);
        let (first, time) = match folded.pop() {
            Some((event, time)) => {
                instance.fold_on(&folded)?;
                instance.ledger.apply(&event, time);
                (event, time)
            }
            None => (Event::Checkpointed(checkpoint), at),
        };
        let difference = instance.replay_from(first, time, behind, implementation)?;
        Ok((instance, difference))
    }

    /// The fold of a history, whose code has not begun.
    fn fold(run: RunId, history: Vec<(Event, Timestamp)>, limits: Limits) -> Result<Self, ReplayError> {
        let Some((Event::Started(started), started_at)) = history.first() else {
            let label = history.first().map_or("Checkpointed", |(event, _)| event.label());
            return Err(ReplayError::NoStart(label));
        };
        let mut instance = Self::empty(run, limits.with_bounds(started.bounds), *started_at);
        instance.fold_on(&history)?;
        Ok(instance)
    }

    /// Folds events without running code.
    fn fold_on(&mut self, history: &[(Event, Timestamp)]) -> Result<(), ReplayError> {
        for (event, time) in history {
            let sequence = self.ledger.sequence().get() + 1;
            if self.ledger.outcome().is_some() {
                return Err(ReplayError::PastTheEnd { sequence });
            }
            if sequence > 1 && matches!(event, Event::Started(_)) {
                return Err(ReplayError::StartedTwice { sequence });
            }
            self.ledger.apply(event, *time);
        }
        Ok(())
    }

    /// Runs the code from `first`, which is in the ledger, through all events that follow. Returns the first difference, if
    /// the code does not fit.
    fn replay_from(
        &mut self,
        first: Event,
        time: Timestamp,
        behind: Vec<(Event, Timestamp)>,
        implementation: Option<&Implementation>,
    ) -> Result<Option<Unfit>, ReplayError> {
        let instance = self;
        let mut history = behind.into_iter().peekable();
        instance.attach(implementation);
        if let Event::Checkpointed(checkpoint) = &first {
            instance.restore(checkpoint);
        } else {
            instance.begin();
        }
        let mut check = Check {
            is_strict: instance.limits.strict,
            renamed: instance.renamed_topics().cloned(),
            formers: instance
                .ledger
                .started()
                .map_or_else(Vec::new, |started| started.formers().to_vec()),
            ..Check::default()
        };
        let mut decisions = VecDeque::new();
        take_decisions(&mut history, &mut decisions);
        let is_parked = decisions.is_empty()
            && matches!(first, Event::Started(_))
            && matches!(history.peek(), Some((Event::Parked { .. }, _)));
        instance.show(&decisions);
        let recorded = match &first {
            Event::Checkpointed(checkpoint) => checkpoint.now.unwrap_or(time),
            _ => time,
        };
        instance.replay_input(first, [recorded, time], is_parked, true, &mut check);
        instance.confirm(&mut decisions, &mut check)?;
        while let Some((event, time)) = history.next() {
            let sequence = instance.ledger.sequence().get() + 1;
            if instance.ledger.outcome().is_some() {
                return Err(ReplayError::PastTheEnd { sequence });
            }
            if matches!(event, Event::Started(_)) {
                return Err(ReplayError::StartedTwice { sequence });
            }
            take_decisions(&mut history, &mut decisions);
            instance.show(&decisions);
            instance.replay_event(event, time, &mut check);
            instance.confirm(&mut decisions, &mut check)?;
        }
        {
            let mut table = instance.shared.lock();
            table.run = instance.run;
            table.set_replayed(None);
            // The list is empty, and a waiting instance needs no memory for it.
            drop(table.take_decisions());
        }
        let sequence = instance.ledger.sequence().get() + 1;
        check.expect_settled(sequence, "the end of the history");
        let is_different = check.difference.is_some();
        if let Some(difference) = check.difference.clone() {
            instance.code = None;
            let reason = ParkReason::Nondeterminism(Box::new(difference));
            let is_recorded = instance
                .ledger
                .parked()
                .is_some_and(|(parked, _)| *parked == reason);
            instance.unrecorded = (!is_recorded).then(|| Box::new(reason));
        } else if let Some((ParkReason::NotRegistered { .. }, _)) = instance.ledger.parked() {
            // An event says so already.
            instance.unrecorded = None;
        }
        if instance.ledger.outcome().is_some() {
            instance.code = None;
            // A run that is parked for a difference still answers queries, which are told any reason that is not recorded.
            instance.unrecorded = instance.unrecorded.take().filter(|_| is_different);
        }
        instance.changed_values = check.changed_values;
        instance
            .ledger
            .forget_senders(usize::from(instance.limits.senders_len_max));
        Ok(check.difference.map(|difference| match check.is_failure {
            true => Unfit::Fails(difference),
            false => Unfit::Differs(difference),
        }))
    }

    /// Makes the recorded values of the next turn available to the code.
    fn show(&self, decisions: &VecDeque<(Event, Timestamp)>) {
        let events = decisions.iter().map(|(event, _)| event);
        let recorded =
            events.filter(|event| matches!(event, Event::ValueRecorded { .. } | Event::Patched { .. }));
        self.shared.lock().set_replayed(Some(recorded.cloned().collect()));
    }

    /// Replays an event that is no decision.
    fn replay_event(&mut self, event: Event, time: Timestamp, check: &mut Check) {
        let sequence = self.ledger.sequence().get() + 1;
        check.expect_settled(sequence, event.label());
        self.note_refused(&event);
        self.ledger.apply(&event, time);
        if let Event::CommandPerformed(performed) = &event {
            self.expect_timers(performed);
        }
        match event {
            Event::Resumed => {
                let deferred = std::mem::take(&mut self.deferred);
                let last = deferred.len().saturating_sub(1);
                for (index, (event, recorded)) in deferred.into_iter().enumerate() {
                    let recorded = shown_at(&event, recorded, time);
                    self.replay_input(event, [recorded, time], false, index == last, check);
                }
            }
            Event::Parked { .. }
            | Event::VersionChanged { .. }
            | Event::AttemptFailed { .. }
            | Event::AttemptStarted { .. }
            | Event::AttemptHeartbeat { .. }
            | Event::PublishParked { .. }
            | Event::ChildStarted { .. } => {}
            Event::Terminated { .. } | Event::TimedOut { .. } | Event::Reset { .. } => self.code = None,
            input => self.replay_input(input, [time; 2], self.ledger.parked().is_some(), true, check),
        }
    }

    /// Replays an input; the time when it was recorded and the time when the code saw it may differ.
    fn replay_input(
        &mut self,
        event: Event,
        [recorded, now]: [Timestamp; 2],
        is_deferred: bool,
        is_whole: bool,
        check: &mut Check,
    ) {
        if is_deferred {
            self.deferred.push((event, recorded));
            return;
        }
        if self.code.is_none() || check.difference.is_some() {
            return;
        }
        if !check.formers.is_empty() {
            let sequence = self.ledger.sequence();
            let former = check.formers.iter().find(|former| sequence < former.to);
            self.shared.lock().run = former.map_or(self.run, |former| former.run);
        }
        match self.run_code(&event, recorded, Moment { now, epoch: 0 }, is_whole, Vec::new()) {
            Ok(mut decisions) => {
                check.produced.extend(decisions.drain(..));
                self.shared.lock().lend(decisions);
            }
            Err(reason) => {
                let sequence = self.ledger.sequence().get() + 1;
                check.is_failure = check.difference.is_none();
                check.differ(
                    sequence,
                    "no failure of the code".into(),
                    format!("a failure: {reason}"),
                );
            }
        }
    }

    /// Compares the history's decision with the code's, and takes it in.
    fn confirm(
        &mut self,
        decisions: &mut VecDeque<(Event, Timestamp)>,
        check: &mut Check,
    ) -> Result<(), ReplayError> {
        let is_entity = self.is_entity();
        let is_compared = self.code.is_some() || !check.produced.is_empty();
        for (event, time) in decisions.drain(..) {
            let sequence = self.ledger.sequence().get() + 1;
            if self.ledger.outcome().is_some() {
                return Err(ReplayError::PastTheEnd { sequence });
            }
            let is_taken = is_entity && self.note_decision(&event);
            if is_compared && !is_taken {
                check.compare(sequence, &event);
            }
            self.ledger.apply(&event, time);
        }
        Ok(())
    }
}

/// The events up to the checkpoint, which are folded, and those behind it, through which the code is run.
type Split = (Vec<(Event, Timestamp)>, Vec<(Event, Timestamp)>);

/// Splits a history behind the last checkpoint from which the code can begin.
fn split(history: impl IntoIterator<Item = (Event, Timestamp)>) -> Split {
    let mut history: Vec<_> = history.into_iter().collect();
    let is_restorable = |(event, _): &(Event, Timestamp)| matches!(event, Event::Checkpointed(checkpoint) if checkpoint.is_whole);
    let folded_len = history.iter().rposition(is_restorable).map_or(0, |at| at + 1);
    let behind = history.split_off(folded_len);
    (history, behind)
}

/// Moves the decisions that come next in the history into `decisions`.
fn take_decisions(
    history: &mut Peekable<impl Iterator<Item = (Event, Timestamp)>>,
    decisions: &mut VecDeque<(Event, Timestamp)>,
) {
    while let Some(decision) = history.next_if(|(event, _)| event.is_decision()) {
        decisions.push_back(decision);
    }
}

/// Decisions of the code that the history has not confirmed yet.
#[derive(Debug, Default)]
struct Check {
    produced: VecDeque<Decision>,
    difference: Option<Nondeterminism>,
    /// Whether the difference is a failure of the code.
    is_failure: bool,
    changed_values: u64,
    is_strict: bool,
    /// The former names of topics that the history may use, if there are any.
    renamed: Option<Arc<TopicRenames>>,
    /// The runs whose identity the code saw before the resets that led to this run.
    formers: Vec<FormerRun>,
}

impl Check {
    fn differ(&mut self, sequence: u64, recorded: String, replayed: String) {
        self.difference.get_or_insert(Nondeterminism {
            sequence,
            recorded,
            replayed,
        });
    }

    /// The history has a decision here: the code must have made the same one.
    fn compare(&mut self, sequence: u64, recorded: &Event) {
        if matches!(recorded, Event::Patched { .. }) && !self.is_next(recorded) {
            // The `patched` call was removed, as is allowed once no run is from before the change.
            return;
        }
        let Some(mut decision) = self.produced.pop_front() else {
            return self.differ(sequence, describe(recorded, None), "nothing".into());
        };
        let mut present = None;
        if let Some(renamed) = &self.renamed {
            present = renamed.of_decision(recorded);
            // Code of an earlier version may still use the former name.
            decision.event = renamed.of_decision(&decision.event).unwrap_or(decision.event);
        }
        let recorded = present.as_ref().unwrap_or(recorded);
        match same_decision(recorded, &decision.event) {
            Sameness::Same => {}
            Sameness::OtherValue if self.is_strict => {
                let replayed = format!(
                    "{} with another value",
                    describe(&decision.event, decision.location)
                );
                self.differ(sequence, describe(recorded, None), replayed);
            }
            Sameness::OtherValue => self.changed_values += 1,
            Sameness::Different => {
                let replayed = describe(&decision.event, decision.location);
                self.differ(sequence, describe(recorded, None), replayed);
            }
        }
    }

    fn is_next(&self, recorded: &Event) -> bool {
        self.produced
            .front()
            .is_some_and(|decision| decision.event == *recorded)
    }

    /// The history has no decision here, or ends: the code must not have made any further decision.
    fn expect_settled(&mut self, sequence: u64, recorded: &str) {
        if let Some(decision) = self.produced.pop_front() {
            self.produced.clear();
            self.differ(
                sequence,
                recorded.into(),
                describe(&decision.event, decision.location),
            );
        }
    }
}

enum Sameness {
    Same,
    OtherValue,
    Different,
}

impl Sameness {
    fn of_values(same: bool) -> Self {
        if same { Self::Same } else { Self::OtherValue }
    }
}

/// Kind, name and number must be equal; a value may have gained a field since.
fn same_decision(recorded: &Event, replayed: &Event) -> Sameness {
    match (recorded, replayed) {
        (Event::ActivityScheduled(a), Event::ActivityScheduled(b))
            if a.operation == b.operation && a.activity == b.activity =>
        {
            Sameness::of_values(a.input == b.input)
        }
        (
            Event::TimerStarted {
                operation: a,
                deadline: x,
            },
            Event::TimerStarted {
                operation: b,
                deadline: y,
            },
        ) if a == b => Sameness::of_values(x == y),
        (Event::PublishScheduled(a), Event::PublishScheduled(b))
            if a.operation == b.operation && a.topic == b.topic && is_said_of_one(a, b) =>
        {
            Sameness::of_values(a.value == b.value && a.texts == b.texts)
        }
        (Event::ReceiveScheduled(a), Event::ReceiveScheduled(b)) if a == b => Sameness::Same,
        (Event::SignalScheduled(a), Event::SignalScheduled(b))
            if a.operation == b.operation
                && a.workflow == b.workflow
                && a.id == b.id
                && a.name == b.name
                && a.child == b.child =>
        {
            Sameness::of_values(a.value == b.value)
        }
        (Event::PromiseMade { operation: a }, Event::PromiseMade { operation: b }) if a == b => {
            Sameness::Same
        }
        (Event::Checkpointed(a), Event::Checkpointed(b))
            if a.operations_len == b.operations_len && a.is_whole == b.is_whole =>
        {
            Sameness::of_values(a == b)
        }
        (
            Event::ChildCancelRequested { operation: a, .. },
            Event::ChildCancelRequested { operation: b, .. },
        ) if a == b => Sameness::Same,
        (Event::ChildScheduled(a), Event::ChildScheduled(b))
            if a.operation == b.operation && a.workflow == b.workflow && a.id == b.id =>
        {
            Sameness::of_values(a.input == b.input)
        }
        (
            Event::ContinuedAsNew {
                workflow: a,
                input: x,
                failed: c,
                ..
            },
            Event::ContinuedAsNew {
                workflow: b,
                input: y,
                failed: d,
                ..
            },
        ) if a == b && c.is_some() == d.is_some() => Sameness::of_values(x == y && c == d),
        (Event::OperationCancelled { operation: a }, Event::OperationCancelled { operation: b })
            if a == b =>
        {
            Sameness::Same
        }
        (Event::ValueRecorded { name: a, .. }, Event::ValueRecorded { name: b, .. })
            if is_same_name(a.as_deref(), b.as_deref()) =>
        {
            Sameness::Same
        }
        (Event::Patched { id: a }, Event::Patched { id: b }) if a == b => Sameness::Same,
        (
            Event::UpdateAnswered {
                request: a,
                answer: x,
            },
            Event::UpdateAnswered {
                request: b,
                answer: y,
            },
        ) if a == b => Sameness::of_values(x == y),
        (Event::Completed { result: a }, Event::Completed { result: b }) => Sameness::of_values(a == b),
        (Event::Failed { error: a }, Event::Failed { error: b })
        | (Event::Cancelled { error: a }, Event::Cancelled { error: b }) => Sameness::of_values(a == b),
        _ => Sameness::Different,
    }
}

/// Whether two publishes have equal keys and correlations: readers wait for records by these. A content type may change
/// together with the value's format.
fn is_said_of_one(a: &PublishScheduled, b: &PublishScheduled) -> bool {
    let [a, b] = [a, b].map(|publish| RecordTexts::or_default(publish.texts.as_deref()));
    a.key == b.key && a.correlation == b.correlation
}

/// How much of a failure's message is shown, if the code failed and the history did not.
const FAILURE_CHARS_MAX: usize = 256;

/// A decision in words.
fn describe(event: &Event, location: Option<&'static Location<'static>>) -> String {
    let what = match event {
        Event::ActivityScheduled(scheduled) => {
            format!(
                "call of {} (operation {})",
                scheduled.activity, scheduled.operation
            )
        }
        Event::PublishScheduled(scheduled) => {
            let texts = RecordTexts::or_default(scheduled.texts.as_deref());
            format!(
                "publish to {}{texts} (operation {})",
                scheduled.topic, scheduled.operation
            )
        }
        Event::ReceiveScheduled(scheduled) => {
            format!(
                "receive from {}{} (operation {})",
                scheduled.topic, scheduled.filter, scheduled.operation
            )
        }
        Event::SignalScheduled(scheduled) => format!(
            "signal {} to {} {:?} (operation {})",
            scheduled.name,
            scheduled.workflow,
            scheduled.id.as_str(),
            scheduled.operation
        ),
        Event::PromiseMade { operation } => format!("promise (operation {operation})"),
        Event::Checkpointed(checkpoint) => {
            format!("checkpoint after {} operations", checkpoint.operations_len)
        }
        Event::ChildScheduled(scheduled) => format!(
            "child {} {:?} (operation {})",
            scheduled.workflow,
            scheduled.id.as_str(),
            scheduled.operation
        ),
        Event::ContinuedAsNew {
            failed: Some(error), ..
        } => {
            let message: String = error.message.chars().take(FAILURE_CHARS_MAX).collect();
            format!("a failure that is tried again: {message}")
        }
        Event::ContinuedAsNew { workflow, .. } => format!("continue as new {workflow}"),
        Event::TimerStarted { operation, .. } => format!("timer (operation {operation})"),
        Event::ChildCancelRequested { operation, .. } => {
            format!("request to cancel the child of operation {operation}")
        }
        Event::OperationCancelled { operation } => format!("cancel of operation {operation}"),
        Event::ValueRecorded { name: None, .. } => "record of a value".into(),
        Event::ValueRecorded { name: Some(name), .. } => format!("record of {name:?}"),
        Event::Patched { id } => format!("change {id:?}"),
        Event::UpdateAnswered { request, .. } => format!("answer to update {request:?}"),
        Event::Failed { error } => {
            let message: String = error.message.chars().take(FAILURE_CHARS_MAX).collect();
            format!("a failure: {message}")
        }
        other => other.label().to_string(),
    };
    location.map_or(what.clone(), |location| format!("{what} at {location}"))
}
