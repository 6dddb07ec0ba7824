//! Descriptions of runs.

use std::panic::Location;

use millrun::history::{Fit, KeyFilter, RecordFilter, RunDeadline, RunTry};
use millrun::operating::{DescribedAt, InstanceDescription, InstanceStatus, ParkReason, PendingDescription};
use millrun::workflow::{Awaited, OperationId, RunTimeout};

use super::json::{Json, list, object};

/// The description of a run.
pub(crate) fn description(run: &InstanceDescription) -> Json {
    object([
        ("id", (&run.id).into()),
        ("run", run.run.into()),
        ("workflow", run.workflow.as_str().into()),
        ("version", run.version.into()),
        ("status", status(&run.status).into()),
        ("is_in_memory", run.is_in_memory.into()),
        ("started_at_us", run.started_at.into()),
        ("ended_at_us", run.ended_at.into()),
        ("last_at_us", run.last_at.into()),
        ("parent", run.parent.into()),
        ("cause", run.cause.into()),
        ("trace", run.trace.into()),
        ("sequence", run.sequence.get().into()),
        ("is_cancel_requested", run.is_cancel_requested.into()),
        ("parked", run.parked.as_ref().map(park_reason).into()),
        ("will_park", run.will_park.as_ref().map(park_reason).into()),
        ("parked_since_us", run.parked_since.into()),
        ("resumes_at_us", run.resumes_at.into()),
        ("try", run.run_try.as_ref().map(run_try).into()),
        ("deadline", run.deadline.as_ref().map(deadline).into()),
        ("timed_out", run.timed_out.map(RunTimeout::as_str).into()),
        ("pending", list(&run.pending, pending)),
        ("awaited", list(&run.awaited, awaited)),
        ("lines", list(&run.lines, line)),
        // This link resolves to the same URL from `v1/instances/..` and `v1/runs/..`.
        ("history", format!("../runs/{}/history", run.run).into()),
    ])
}

/// The description of a run as it was at an event.
pub(crate) fn described_at(described: &DescribedAt) -> Json {
    let mut told = description(&described.description);
    if let Json::Object(fields) = &mut told {
        fields.push(("fit", fit(&described.fit)));
    }
    told
}

/// Whether code fits a history.
fn fit(fit: &Fit) -> Json {
    let (kind, difference) = match fit {
        Fit::Fits { .. } => ("fits", None),
        Fit::Differs(difference) => ("differs", Some(difference)),
        Fit::Fails(difference) => ("fails", Some(difference)),
        Fit::NoCode { .. } => ("no-code", None),
        _ => ("other", None),
    };
    object([
        ("kind", kind.into()),
        ("event", difference.map(|difference| difference.sequence).into()),
        ("message", difference.map(ToString::to_string).into()),
    ])
}

/// The status of a run in a word.
pub(super) fn status(status: &InstanceStatus) -> &'static str {
    match status {
        InstanceStatus::Running => "running",
        InstanceStatus::Parked => "parked",
        InstanceStatus::Delayed => "delayed",
        InstanceStatus::NotRegistered => "not-registered",
        InstanceStatus::Finished => "finished",
        _ => "other",
    }
}

/// Why a run's code does not run.
pub(crate) fn park_reason(reason: &ParkReason) -> Json {
    let kind = match reason {
        ParkReason::NotRegistered { .. } => "not-registered",
        ParkReason::Panicked { .. } => "panicked",
        ParkReason::Nondeterminism(_) => "nondeterminism",
        ParkReason::Stuck { .. } => "stuck",
        ParkReason::Paused { .. } => "paused",
        ParkReason::HistoryFull { .. } => "history-full",
        ParkReason::Delayed { .. } => "delayed",
        _ => "other",
    };
    object([("kind", kind.into()), ("message", reason.to_string().into())])
}

fn pending(pending: &PendingDescription) -> Json {
    match pending {
        PendingDescription::Activity {
            operation,
            since,
            activity,
            queue,
            attempt,
            failures,
            attempts_max,
            retry_at,
            close_at,
            heartbeat,
            is_registered,
            ..
        } => object([
            ("kind", "activity".into()),
            ("operation", (*operation).into()),
            ("since_us", (*since).into()),
            ("activity", activity.as_str().into()),
            ("queue", queue.as_str().into()),
            ("attempt", (*attempt).into()),
            ("failures", (*failures).into()),
            ("attempts_max", (*attempts_max).into()),
            ("retry_at_us", (*retry_at).into()),
            ("close_at_us", (*close_at).into()),
            ("heartbeat", heartbeat.as_ref().into()),
            ("is_registered", (*is_registered).into()),
        ]),
        PendingDescription::Child {
            operation,
            since,
            workflow,
            id,
            run,
            ..
        } => object([
            ("kind", "child".into()),
            ("operation", (*operation).into()),
            ("since_us", (*since).into()),
            ("workflow", workflow.as_str().into()),
            ("id", id.into()),
            ("run", (*run).into()),
        ]),
        PendingDescription::Publish {
            operation,
            since,
            topic,
            is_parked,
            is_registered,
            ..
        } => object([
            ("kind", "publish".into()),
            ("operation", (*operation).into()),
            ("since_us", (*since).into()),
            ("topic", topic.as_str().into()),
            ("is_parked", (*is_parked).into()),
            ("is_registered", (*is_registered).into()),
        ]),
        PendingDescription::Receive {
            operation,
            since,
            topic,
            filter,
            behind,
            is_registered,
            ..
        } => object([
            ("kind", "receive".into()),
            ("operation", (*operation).into()),
            ("since_us", (*since).into()),
            ("topic", topic.as_str().into()),
            ("filter", record_filter(filter)),
            ("behind", behind.map(|behind| behind.get()).into()),
            ("is_registered", (*is_registered).into()),
        ]),
        PendingDescription::Signal {
            operation,
            since,
            workflow,
            id,
            name,
            ..
        } => object([
            ("kind", "signal".into()),
            ("operation", (*operation).into()),
            ("since_us", (*since).into()),
            ("workflow", workflow.as_str().into()),
            ("id", id.into()),
            ("name", name.as_str().into()),
        ]),
        PendingDescription::Promise { operation, since, .. } => object([
            ("kind", "promise".into()),
            ("operation", (*operation).into()),
            ("since_us", (*since).into()),
        ]),
        PendingDescription::Timer {
            operation,
            since,
            deadline,
            ..
        } => object([
            ("kind", "timer".into()),
            ("operation", (*operation).into()),
            ("since_us", (*since).into()),
            ("deadline_us", (*deadline).into()),
        ]),
        _ => object([("kind", "other".into())]),
    }
}

/// The filter of a wait for a record.
pub(super) fn record_filter(filter: &RecordFilter) -> Json {
    let key = match &filter.key {
        None => [("key", Json::Null), ("key_prefix", Json::Null)],
        Some(KeyFilter::Is(key)) => [("key", (&**key).into()), ("key_prefix", Json::Null)],
        Some(KeyFilter::StartsWith(prefix)) => [("key", Json::Null), ("key_prefix", (&**prefix).into())],
    };
    let [key, prefix] = key;
    object([key, prefix, ("correlation", filter.correlation.as_deref().into())])
}

/// Where in the code an operation was issued.
fn line((operation, at): &(OperationId, &'static Location<'static>)) -> Json {
    object([("operation", (*operation).into()), ("at", at.to_string().into())])
}

fn awaited(awaited: &Awaited) -> Json {
    let (kind, name, since, at) = match awaited {
        Awaited::Signal { name, since, at } => ("signal", Some(name.as_str()), *since, *at),
        Awaited::Condition { since, at } => ("condition", None, *since, *at),
        Awaited::CancelRequest { since, at } => ("cancel-request", None, *since, *at),
        _ => return object([("kind", "other".into())]),
    };
    object([
        ("kind", kind.into()),
        ("name", name.into()),
        ("since_us", since.into()),
        ("at", at.to_string().into()),
    ])
}

/// When a run is out of time.
fn deadline(deadline: &RunDeadline) -> Json {
    object([
        ("at_us", deadline.at.into()),
        ("timeout", deadline.timeout.as_str().into()),
    ])
}

/// The number and policy of a run's try.
pub(super) fn run_try(tried: &RunTry) -> Json {
    object([
        ("number", tried.number.into()),
        ("attempts_max", tried.retry.attempts_max().into()),
        ("since_us", tried.since.into()),
    ])
}
