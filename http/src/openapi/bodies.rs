//! Descriptions of the bodies of requests, which `body.rs` reads.

use millrun::operating::RunStatus;
use millrun::schedules::OverlapPolicy;

use super::parameters::{record_token, run};
use super::schema::{
    Shape, anything, flag, list, number, number_between, pattern, sent, text, text_of, word,
};
use crate::operations::Action;

/// The schema of an operation's body; for a body of lines, of one line.
pub(super) fn of(action: Action) -> Shape {
    match action {
        Action::Session => sent([], [("end", flag())]),
        Action::Query => sent([("name", name())], [("question", anything())]),
        Action::EntityRead => sent([("name", name())], [("question", anything())]),
        Action::EntityCommand => sent([("name", name())], [("request", name()), ("input", anything())]),
        Action::ReleaseKey => sent([("subscription", text()), ("key", text())], []),
        Action::SendBack => sent(
            [],
            [
                ("token", record_token()),
                ("after", record_token()),
                ("limit", number_between(1, 1_000)),
            ],
        ),
        Action::Publish => sent(
            [],
            [
                ("value", anything()),
                ("key", text()),
                ("id", text()),
                ("correlation", text()),
                ("content_type", text()),
            ],
        ),
        Action::Start => sent(
            [("workflow", name())],
            [
                ("input", anything()),
                conflict(),
                delay(),
                start_at(),
                retry(),
                timeout("run_timeout_ms"),
                timeout("chain_timeout_ms"),
            ],
        ),
        Action::StartByKey => sent(
            [("workflow", name())],
            [
                ("id", name()),
                ("input", anything()),
                conflict(),
                delay(),
                start_at(),
                retry(),
                timeout("run_timeout_ms"),
                timeout("chain_timeout_ms"),
            ],
        ),
        Action::Starts => sent(
            [("id", name()), ("workflow", name())],
            [
                ("input", anything()),
                conflict(),
                delay(),
                start_at(),
                retry(),
                timeout("run_timeout_ms"),
                timeout("chain_timeout_ms"),
            ],
        ),
        Action::Signal => sent([("name", name())], [("value", anything()), ("request", name())]),
        Action::Update => sent([("name", name())], [("request", name()), ("input", anything())]),
        Action::BulkStart => bulk(),
        Action::ScheduleMake | Action::ScheduleUpdate => schedule(),
        Action::SchedulePause | Action::ScheduleResume => sent([("note", text_of(0, 1_024))], []),
        Action::ScheduleTrigger => sent([], [overlap()]),
        Action::ScheduleBackfill => sent([("from_us", number()), ("through_us", number())], [overlap()]),
        Action::PurgeTopic => sent([], [("before", number()), ("token", record_token())]),
        Action::RemoveSubscription => sent([("name", text())], []),
        Action::StoreBackup | Action::StoreExport => sent([("name", pattern("^[A-Za-z0-9_-]{1,64}$"))], []),
        Action::Reset => sent(
            [("to_event", number())],
            [("keep_signals", flag()), ("run", run()), ("reason", text())],
        ),
        Action::Cancel | Action::Terminate | Action::Pause | Action::BulkStop => {
            sent([("reason", text())], [])
        }
        _ => sent([], []),
    }
}

fn delay() -> (&'static str, Shape) {
    ("delay_ms", number())
}

fn start_at() -> (&'static str, Shape) {
    ("start_at_us", number())
}

/// How long a run may take, or its chain.
fn timeout(name: &'static str) -> (&'static str, Shape) {
    (name, number_between(1, u64::MAX))
}

fn retry() -> (&'static str, Shape) {
    let attempts_max = number_between(1, u32::MAX.into());
    let pauses = [("first_pause_ms", number()), ("pause_max_ms", number())];
    ("retry", sent([("attempts_max", attempts_max)], pauses))
}

fn bulk() -> Shape {
    let actions = ["cancel", "terminate", "resume", "signal", "start-again"];
    let filter = sent(
        [],
        [
            ("workflow", text()),
            ("status", list(word(RunStatus::ALL.map(RunStatus::name)))),
            ("id_prefix", text()),
            ("started_from_us", number()),
            ("started_until_us", number()),
            ("ended_from_us", number()),
            ("ended_until_us", number()),
        ],
    );
    sent(
        [("action", word(actions))],
        [
            ("reason", text()),
            ("signal", name()),
            ("value", anything()),
            ("filter", filter),
            ("ids", list(name())),
            ("per_second", number_between(1, u32::MAX.into())),
            ("name", name()),
            ("dry_run", flag()),
        ],
    )
}

fn schedule() -> Shape {
    let interval = sent([("every_s", number())], [("phase_s", number())]);
    sent(
        [("workflow", name())],
        [
            ("input", anything()),
            ("cron", list(text_of(1, 256))),
            ("every", list(interval)),
            ("zone", text()),
            overlap(),
            ("buffer_len_max", number_between(1, 1_000)),
            ("catch_up_s", number()),
            ("jitter_s", number()),
            ("starting_at_us", number()),
            ("ending_at_us", number()),
            ("actions_len_max", number()),
            ("paused", text_of(0, 1_024)),
        ],
    )
}

fn overlap() -> (&'static str, Shape) {
    ("overlap", word(OverlapPolicy::ALL.map(OverlapPolicy::name)))
}

fn name() -> Shape {
    text_of(1, 255)
}

fn conflict() -> (&'static str, Shape) {
    let policies = [
        "attach",
        "refuse",
        "restart-finished",
        "restart-failed",
        "terminate-running",
    ];
    ("on_conflict", word(policies))
}
