//! Why a run makes no progress.

use millrun::operating::{ActivityWait, AttemptStanding, FullInbox, Wait, WaitsFor, Why};

use super::described::{park_reason, record_filter, run_try, status};
use super::json::{Json, list, object};

/// Why a run and its children make no progress; `text` is for people.
pub(crate) fn why(why: &Why) -> Json {
    let mut told = run(why);
    if let Json::Object(fields) = &mut told {
        fields.push(("text", why.to_string().into()));
    }
    told
}

fn run(why: &Why) -> Json {
    object([
        ("asked_at_us", why.asked_at.into()),
        ("id", (&why.id).into()),
        ("run", why.run.into()),
        ("workflow", why.workflow.as_str().into()),
        ("status", status(&why.status).into()),
        ("last_at_us", why.last_at.into()),
        ("waits", list(&why.waits, |one| wait(why, one))),
        ("more_len", why.more_len.into()),
    ])
}

fn wait(why: &Why, wait: &Wait) -> Json {
    let Json::Object(mut fields) = waits_for(&wait.what) else {
        unreachable!("what is waited for is an object");
    };
    fields.extend([
        ("operation", wait.operation.into()),
        ("since_us", wait.since.into()),
        ("at", wait.at.map(ToString::to_string).into()),
        ("sentence", why.sentence(wait).into()),
    ]);
    Json::Object(fields)
}

fn waits_for(what: &WaitsFor) -> Json {
    match what {
        WaitsFor::Parked {
            reason, resumes_at, ..
        } => object([
            ("kind", "parked".into()),
            ("reason", reason.as_ref().map(park_reason).into()),
            ("resumes_at_us", (*resumes_at).into()),
        ]),
        WaitsFor::StartTime {
            at, run_try: tried, ..
        } => object([
            ("kind", "start-time".into()),
            ("at_us", (*at).into()),
            ("try", tried.as_ref().map(run_try).into()),
        ]),
        WaitsFor::Registration => object([("kind", "registration".into())]),
        WaitsFor::Asleep => object([("kind", "asleep".into())]),
        WaitsFor::Foreign { reason, .. } => object([
            ("kind", "foreign".into()),
            ("reason", reason.as_ref().map(park_reason).into()),
        ]),
        WaitsFor::Activity(wait) => activity(wait),
        WaitsFor::Child {
            workflow, id, why, ..
        } => object([
            ("kind", "child".into()),
            ("workflow", workflow.as_str().into()),
            ("id", id.into()),
            ("why", why.as_deref().map(run).into()),
        ]),
        WaitsFor::Publish {
            topic,
            is_registered,
            full,
            ..
        } => object([
            ("kind", "publish".into()),
            ("topic", topic.as_str().into()),
            ("is_registered", (*is_registered).into()),
            ("full", list(full, full_inbox)),
        ]),
        WaitsFor::Record {
            topic,
            filter,
            is_registered,
            ..
        } => object([
            ("kind", "record".into()),
            ("topic", topic.as_str().into()),
            ("filter", record_filter(filter)),
            ("is_registered", (*is_registered).into()),
        ]),
        WaitsFor::Delivery {
            workflow, id, name, ..
        } => object([
            ("kind", "delivery".into()),
            ("workflow", workflow.as_str().into()),
            ("id", id.into()),
            ("name", name.as_str().into()),
        ]),
        WaitsFor::Promise => object([("kind", "promise".into())]),
        WaitsFor::Timer { deadline, .. } => {
            object([("kind", "timer".into()), ("deadline_us", (*deadline).into())])
        }
        WaitsFor::Signal { name, .. } => object([("kind", "signal".into()), ("name", name.as_str().into())]),
        WaitsFor::Condition => object([("kind", "condition".into())]),
        WaitsFor::CancelRequest => object([("kind", "cancel-request".into())]),
        _ => object([("kind", "other".into())]),
    }
}

fn activity(wait: &ActivityWait) -> Json {
    object([
        ("kind", "activity".into()),
        ("activity", wait.activity.as_str().into()),
        ("queue", wait.queue.as_str().into()),
        ("attempt", wait.attempt.into()),
        ("failures", wait.failures.into()),
        ("attempts_max", wait.attempts_max.into()),
        ("standing", standing(&wait.standing)),
        (
            "last_error",
            wait.last_error.as_ref().map(ToString::to_string).into(),
        ),
        ("heartbeat", wait.heartbeat.as_ref().into()),
        ("close_at_us", wait.close_at.into()),
    ])
}

fn standing(standing: &AttemptStanding) -> Json {
    match standing {
        AttemptStanding::NotRegistered => object([("kind", "not-registered".into())]),
        AttemptStanding::NotOpen => object([("kind", "not-open".into())]),
        AttemptStanding::BackingOff { until, .. } => {
            object([("kind", "backing-off".into()), ("until_us", (*until).into())])
        }
        AttemptStanding::Queued {
            queued_len,
            queue_len_max,
            running_len,
            running_max,
            start_by,
            ..
        } => object([
            ("kind", "queued".into()),
            ("queued_len", (*queued_len).into()),
            ("queue_len_max", (*queue_len_max).into()),
            ("running_len", (*running_len).into()),
            ("running_max", (*running_max).into()),
            ("start_by_us", (*start_by).into()),
        ]),
        AttemptStanding::Running {
            since,
            close_at,
            heartbeat_by,
            ..
        } => object([
            ("kind", "running".into()),
            ("since_us", (*since).into()),
            ("close_at_us", (*close_at).into()),
            ("heartbeat_by_us", (*heartbeat_by).into()),
        ]),
        _ => object([("kind", "other".into())]),
    }
}

fn full_inbox(inbox: &FullInbox) -> Json {
    object([
        ("subscription", inbox.subscription.as_str().into()),
        ("queued", inbox.queued.into()),
        ("capacity", inbox.capacity.into()),
    ])
}
