//! Pages of histories and their events.
//!
//! Left out on purpose: what only the engine needs of an event (epochs, retry policies, the counts of a checkpoint).

use millrun::history::{
    ActivityFailure, ChildFailure, Event, HistoryPage, PublishScheduled, RecordTexts, RecordedEvent,
    RunTimeouts, SignalFailure, Started,
};
use millrun::workflow::{OperationId, PublishOutcome};
use millrun::{Payload, RunFailure};

use super::described::{park_reason, record_filter, run_try};
use super::json::{Json, list, object};

/// A page, with the link to the next one, also of at most `limit` events.
pub(crate) fn history(page: &HistoryPage, limit: usize) -> Json {
    let next = page.next().map(|after| format!("?after={after}&limit={limit}"));
    object([
        ("run", page.run.into()),
        ("head", page.head.get().into()),
        (
            "trimmed_before",
            page.trimmed_before.map(|before| before.get()).into(),
        ),
        ("events", list(&page.events, recorded)),
        ("next", next.into()),
    ])
}

/// An event of a history.
pub(crate) fn recorded(recorded: &RecordedEvent) -> Json {
    let mut all = vec![
        ("sequence", recorded.sequence.get().into()),
        ("at_us", recorded.at.into()),
        ("kind", recorded.event.label().into()),
    ];
    all.extend(fields(&recorded.event));
    Json::Object(all)
}

/// A text of a published record.
fn said_of(publish: &PublishScheduled, text: impl FnOnce(&RecordTexts) -> Option<&str>) -> Json {
    publish.texts.as_deref().and_then(text).into()
}

type Fields = Vec<(&'static str, Json)>;

fn fields(event: &Event) -> Fields {
    match event {
        Event::Started(beginning) => started(beginning),
        Event::ActivityScheduled(call) => vec![
            of(call.operation),
            ("activity", call.activity.as_ref().into()),
            ("queue", call.queue.as_ref().into()),
            ("input", (&call.input).into()),
        ],
        Event::ActivityCompleted {
            operation,
            attempt,
            result,
        } => vec![
            of(*operation),
            ("attempt", (*attempt).into()),
            ("result", result.into()),
        ],
        Event::ActivityFailed {
            operation,
            attempt,
            failure,
        } => vec![
            of(*operation),
            ("attempt", (*attempt).into()),
            ("failure", activity_failure(failure)),
        ],
        Event::AttemptFailed {
            operation,
            attempt,
            failure,
            retry_at,
            ..
        } => vec![
            of(*operation),
            ("attempt", (*attempt).into()),
            ("failure", activity_failure(failure)),
            ("retry_at_us", (*retry_at).into()),
        ],
        Event::AttemptStarted { operation, attempt } => vec![of(*operation), ("attempt", (*attempt).into())],
        Event::AttemptHeartbeat {
            operation,
            attempt,
            details,
        } => vec![
            of(*operation),
            ("attempt", (*attempt).into()),
            ("details", details.into()),
        ],
        Event::TimerStarted { operation, deadline } => {
            vec![of(*operation), ("deadline_us", (*deadline).into())]
        }
        Event::TimerFired { operation }
        | Event::PublishParked { operation }
        | Event::PromiseMade { operation }
        | Event::OperationCancelled { operation } => vec![of(*operation)],
        Event::SignalReceived {
            name,
            value,
            cause,
            request,
        } => vec![
            ("name", name.as_ref().into()),
            ("value", value.into()),
            ("cause", cause.as_deref().copied().into()),
            ("request", request.as_deref().into()),
        ],
        Event::RunSignalReceived { sender, name, value } => vec![
            ("name", name.as_ref().into()),
            ("value", value.into()),
            ("sender", (**sender).into()),
        ],
        Event::SignalScheduled(signal) => vec![
            of(signal.operation),
            ("workflow", signal.workflow.as_ref().into()),
            ("id", (&signal.id).into()),
            ("name", signal.name.as_ref().into()),
            ("value", (&signal.value).into()),
            ("child", signal.child.map(OperationId::get).into()),
        ],
        Event::SignalSent { operation, outcome } => vec![
            of(*operation),
            ("failure", outcome.as_ref().err().map(signal_failure).into()),
        ],
        Event::ChildScheduled(call) => vec![
            of(call.operation),
            ("workflow", call.workflow.as_ref().into()),
            ("id", (&call.id).into()),
            ("input", (&call.input).into()),
        ],
        Event::ChildStarted { operation, run } => vec![of(*operation), ("run", (*run).into())],
        Event::ChildCancelRequested { operation, reason } => {
            vec![of(*operation), ("reason", reason.as_str().into())]
        }
        Event::ChildEnded { operation, end } => vec![
            of(*operation),
            ("result", end.as_ref().ok().into()),
            ("failure", end.as_ref().err().map(child_failure).into()),
        ],
        Event::PublishScheduled(publish) => vec![
            of(publish.operation),
            ("topic", publish.topic.as_ref().into()),
            ("value", (&publish.value).into()),
            ("key", said_of(publish, |texts| texts.key.as_deref())),
            (
                "correlation",
                said_of(publish, |texts| texts.correlation.as_deref()),
            ),
            (
                "content_type",
                said_of(publish, |texts| texts.content_type.as_deref()),
            ),
        ],
        Event::ReceiveScheduled(receive) => vec![
            of(receive.operation),
            ("topic", receive.topic.as_ref().into()),
            ("filter", record_filter(&receive.filter)),
            ("behind", receive.behind.map(|behind| behind.get()).into()),
            ("since_us", receive.since.into()),
        ],
        Event::RecordReceived { operation, record } => vec![
            of(*operation),
            ("sequence", record.sequence.get().into()),
            ("key", record.key.as_deref().into()),
            ("correlation", record.correlation.as_deref().into()),
            ("value", (&record.value).into()),
        ],
        Event::Published { operation, outcome } => {
            let (outcome, error) = match outcome {
                Ok(PublishOutcome::Taken) => ("taken", None),
                Ok(PublishOutcome::Unknown) => ("unknown", None),
                Err(error) => ("failed", Some(error.as_str())),
            };
            vec![
                of(*operation),
                ("outcome", outcome.into()),
                ("error", error.into()),
            ]
        }
        Event::PromiseSettled { operation, end } => outcome(vec![of(*operation)], "value", end),
        Event::Checkpointed(checkpoint) => vec![
            ("state", (&checkpoint.state).into()),
            ("signals", signals(&checkpoint.signals)),
        ],
        Event::ValueRecorded { name, value } => {
            outcome(vec![("name", name.as_deref().into())], "value", value)
        }
        Event::Patched { id } => vec![("change", id.as_ref().into())],
        Event::UpdateAccepted { request, name, input } => vec![
            ("request", request.as_str().into()),
            ("name", name.as_ref().into()),
            ("input", input.into()),
        ],
        Event::UpdateAnswered { request, answer } => {
            outcome(vec![("request", request.as_str().into())], "answer", answer)
        }
        Event::CommandPerformed(performed) => vec![
            ("request", performed.request.as_deref().into()),
            ("name", performed.name.as_ref().into()),
            ("version", performed.version.into()),
            ("events", list(&performed.events, Json::from)),
            ("answer", (&performed.answer).into()),
            ("timers", list(&performed.timers, |name| name.as_ref().into())),
        ],
        Event::CancelRequested { reason, .. } | Event::Terminated { reason } => {
            vec![("reason", reason.as_str().into())]
        }
        Event::Completed { result } => vec![("result", result.into())],
        Event::Failed { error } | Event::Cancelled { error } => vec![("error", run_failure(error))],
        Event::ContinuedAsNew {
            run,
            workflow,
            input,
            failed,
        } => vec![
            ("run", (*run).into()),
            ("workflow", workflow.as_ref().into()),
            ("input", input.into()),
            ("failed", failed.as_deref().map(run_failure).into()),
        ],
        Event::TimedOut { timeout, next } => {
            vec![("timeout", timeout.as_str().into()), ("run", (*next).into())]
        }
        Event::Reset { run, to, reason } => vec![
            ("run", (*run).into()),
            ("to", to.get().into()),
            ("reason", reason.as_str().into()),
        ],
        Event::Parked { reason } => vec![("reason", park_reason(reason))],
        Event::Resumed => Vec::new(),
        Event::VersionChanged { version } => vec![("version", (*version).into())],
        // A kind that a later version of millrun adds is shown with its label at least.
        _ => Vec::new(),
    }
}

fn of(operation: OperationId) -> (&'static str, Json) {
    ("operation", operation.into())
}

fn started(started: &Started) -> Fields {
    let origin = started.origin.as_deref();
    vec![
        ("workflow", started.workflow.as_ref().into()),
        ("version", started.version.into()),
        ("id", (&started.id).into()),
        ("input", (&started.input).into()),
        ("parent", started.parent().map(|parent| parent.run).into()),
        ("cause", started.cause().into()),
        (
            "triggered_by",
            origin.and_then(|origin| origin.triggered_by.as_deref()).into(),
        ),
        ("trace", started.trace().copied().into()),
        ("continued", origin.and_then(|origin| origin.continued).into()),
        ("reset_to", started.reset_to().map(|to| to.get()).into()),
        ("start_at_us", started.start_at().into()),
        ("try", started.run_try().map(run_try).into()),
        ("timeouts", started.timeouts().map(run_timeouts).into()),
        ("began_as", started.began_as().as_ref().into()),
        (
            "signals",
            signals(origin.map_or(&[], |origin| origin.signals.as_slice())),
        ),
    ]
}

/// When a run is out of time.
fn run_timeouts(timeouts: &RunTimeouts) -> Json {
    let run = timeouts.run.and_then(|run| u64::try_from(run.as_micros()).ok());
    object([
        ("run_us", run.into()),
        ("since_us", timeouts.since.into()),
        ("chain_ends_us", timeouts.chain_ends.into()),
    ])
}

fn signals<N: AsRef<str>>(signals: &[(N, Payload)]) -> Json {
    list(signals, |(name, value)| {
        object([("name", name.as_ref().into()), ("value", value.into())])
    })
}

/// Adds a payload under its name, or the text of an error.
fn outcome(mut fields: Fields, name: &'static str, outcome: &Result<Payload, String>) -> Fields {
    fields.push((name, outcome.as_ref().ok().into()));
    fields.push(("error", outcome.as_ref().err().map(String::as_str).into()));
    fields
}

fn run_failure(failure: &RunFailure) -> Json {
    object([
        ("message", failure.message.as_str().into()),
        ("error", (&failure.error).into()),
        ("is_cancelled", failure.is_cancelled.into()),
    ])
}

fn activity_failure(failure: &ActivityFailure) -> Json {
    let (kind, error) = match failure {
        ActivityFailure::Failed { error, .. } => ("failed", Some(error)),
        ActivityFailure::TimedOut(_) => ("timed-out", None),
        ActivityFailure::Panicked { .. } => ("panicked", None),
        ActivityFailure::Unreadable { .. } => ("unreadable", None),
        _ => ("other", None),
    };
    object([
        ("kind", kind.into()),
        ("message", failure.to_string().into()),
        ("error", error.into()),
    ])
}

fn child_failure(failure: &ChildFailure) -> Json {
    match failure {
        ChildFailure::Failed(error) => object([("kind", "failed".into()), ("error", run_failure(error))]),
        ChildFailure::Cancelled(error) => {
            object([("kind", "cancelled".into()), ("error", run_failure(error))])
        }
        ChildFailure::Terminated { reason } => {
            object([("kind", "terminated".into()), ("message", reason.as_str().into())])
        }
        ChildFailure::TimedOut(timeout) => {
            object([("kind", "timed-out".into()), ("timeout", timeout.as_str().into())])
        }
        ChildFailure::NotStarted { message } => object([
            ("kind", "not-started".into()),
            ("message", message.as_str().into()),
        ]),
        _ => object([("kind", "other".into())]),
    }
}

fn signal_failure(failure: &SignalFailure) -> Json {
    let (kind, message) = match failure {
        SignalFailure::NotFound => ("not-found", None),
        SignalFailure::Finished => ("finished", None),
        SignalFailure::OtherWorkflow { workflow } => ("other-workflow", Some(workflow.as_str())),
        SignalFailure::Quarantined { message } => ("quarantined", Some(message.as_str())),
        SignalFailure::Refused { message } => ("refused", Some(message.as_str())),
        _ => ("other", None),
    };
    object([("kind", kind.into()), ("message", message.into())])
}
