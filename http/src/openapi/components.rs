//! Named schemas, of the values that `view/` makes.

use super::parameters::{record_token, run};
use super::schema::{
    Shape, anything, flag, list, named, number, object, object_with, open_object, or_null, pattern, text,
    time, word,
};
use crate::PROBLEMS;
use millrun::operating::RunStatus;
use millrun::schedules::OverlapPolicy;

/// All of them.
pub(super) fn components() -> Vec<(&'static str, Shape)> {
    vec![
        ("Problem", problem()),
        ("Payload", open_object([])),
        ("Cause", object([("run", run()), ("operation", number())])),
        (
            "Trace",
            object([
                ("trace_id", pattern("^[0-9a-f]{32}$")),
                ("span_id", pattern("^[0-9a-f]{16}$")),
                ("is_sampled", flag()),
            ]),
        ),
        ("Reason", object([("kind", text()), ("message", text())])),
        ("Pending", open_object([("kind", text())])),
        ("Awaited", open_object([("kind", text())])),
        ("Wait", wait()),
        ("Why", why()),
        ("Description", description()),
        ("Event", event()),
        ("InstanceSummary", summary()),
        ("FinishedRun", finished_run()),
        ("RunSummary", found_run()),
        ("WorkflowCounts", workflow_counts()),
        ("BulkSummary", object(bulk_summary())),
        ("Bulk", bulk()),
        ("ScheduleSummary", object(schedule_summary())),
        ("Schedule", schedule()),
        ("DurableTopic", durable_topic()),
        ("DurableSubscription", durable_subscription()),
        ("Record", record()),
        ("TraceEnd", trace_end()),
        ("TraceLink", trace_link()),
        ("TracePage", trace_page()),
        ("CatalogueWorkflow", workflow()),
        ("WorkflowVersion", version()),
        ("Stats", stats()),
        ("PastSample", past_sample()),
        ("Latency", latency()),
    ]
}

fn problem() -> Shape {
    let codes = PROBLEMS.iter().map(|problem| problem.code);
    let types = codes.map(|code| format!("urn:millrun:problem:{code}"));
    object([
        ("type", word(types)),
        ("title", text()),
        ("status", number()),
        ("detail", text()),
        ("advice", text()),
        ("retry", flag()),
        ("error", or_null(named("Payload"))),
    ])
}

fn status() -> Shape {
    word([
        "running",
        "parked",
        "delayed",
        "not-registered",
        "finished",
        "other",
    ])
}

fn description() -> Shape {
    let fields = [
        ("id", text()),
        ("run", run()),
        ("workflow", text()),
        ("version", number()),
        ("status", status()),
        ("is_in_memory", flag()),
        ("started_at_us", time()),
        ("ended_at_us", or_null(time())),
        ("last_at_us", time()),
        ("parent", or_null(run())),
        ("cause", or_null(named("Cause"))),
        ("trace", or_null(named("Trace"))),
        ("sequence", number()),
        ("is_cancel_requested", flag()),
        ("parked", or_null(named("Reason"))),
        ("will_park", or_null(named("Reason"))),
        ("parked_since_us", or_null(time())),
        ("resumes_at_us", or_null(time())),
        (
            "try",
            or_null(object([
                ("number", number()),
                ("attempts_max", number()),
                ("since_us", or_null(time())),
            ])),
        ),
        (
            "deadline",
            or_null(object([("at_us", time()), ("timeout", run_timeout())])),
        ),
        ("timed_out", or_null(run_timeout())),
        ("pending", list(named("Pending"))),
        ("awaited", list(named("Awaited"))),
        ("lines", list(object([("operation", number()), ("at", text())]))),
        ("history", text()),
    ];
    let fit = object([
        ("kind", word(["fits", "differs", "fails", "no-code", "other"])),
        ("event", or_null(number())),
        ("message", or_null(text())),
    ]);
    object_with(fields, [("fit", fit)])
}

/// Which timeout of a run it is.
fn run_timeout() -> Shape {
    word(["run", "chain"])
}

fn why() -> Shape {
    open_object([
        ("asked_at_us", time()),
        ("id", text()),
        ("run", run()),
        ("workflow", text()),
        ("status", status()),
        ("last_at_us", time()),
        ("waits", list(named("Wait"))),
        ("more_len", number()),
    ])
}

fn wait() -> Shape {
    open_object([
        ("kind", text()),
        ("operation", or_null(number())),
        ("since_us", or_null(time())),
        ("at", or_null(text())),
        ("sentence", text()),
    ])
}

fn event() -> Shape {
    open_object([("sequence", number()), ("at_us", time()), ("kind", text())])
}

fn summary() -> Shape {
    object([
        ("id", text()),
        ("run", run()),
        ("workflow", text()),
        ("status", status()),
        ("instance", text()),
    ])
}

fn found_run() -> Shape {
    object([
        ("id", text()),
        ("run", run()),
        ("workflow", text()),
        ("version", or_null(number())),
        ("status", word(RunStatus::ALL.map(RunStatus::name))),
        ("started_at_us", time()),
        ("ended_at_us", or_null(time())),
        ("description", text()),
        ("history", text()),
    ])
}

fn bulk_summary() -> [(&'static str, Shape); 5] {
    [
        ("name", text()),
        ("run", run()),
        ("status", word(RunStatus::ALL.map(RunStatus::name))),
        ("started_at_us", time()),
        ("ended_at_us", or_null(time())),
    ]
}

fn bulk() -> Shape {
    let [name, run, status, started, ended] = bulk_summary();
    let filter = object([
        ("workflow", or_null(text())),
        ("status", list(word(RunStatus::ALL.map(RunStatus::name)))),
        ("id_prefix", text()),
        ("started_from_us", or_null(time())),
        ("started_until_us", or_null(time())),
        ("ended_from_us", or_null(time())),
        ("ended_until_us", or_null(time())),
    ]);
    object([
        name,
        run,
        status,
        started,
        ended,
        ("action", text()),
        ("about", or_null(text())),
        ("ids", number()),
        ("filter", or_null(filter)),
        ("per_second", number()),
        ("selected", number()),
        ("done", number()),
        ("passed_over", number()),
        ("failed", number()),
        ("failures", list(object([("id", text()), ("message", text())]))),
    ])
}

fn schedule_summary() -> [(&'static str, Shape); 4] {
    [
        ("id", text()),
        ("run", run()),
        ("status", word(RunStatus::ALL.map(RunStatus::name))),
        ("created_at_us", time()),
    ]
}

fn schedule() -> Shape {
    let [id, run, status, created] = schedule_summary();
    let recent = object([
        ("id", text()),
        ("due_us", time()),
        ("started_at_us", time()),
        ("end", or_null(text())),
        ("message", or_null(text())),
    ]);
    object([
        id,
        run,
        status,
        created,
        ("updated_at_us", time()),
        ("workflow", text()),
        ("times", list(open_object([]))),
        ("zone", text()),
        ("overlap", word(OverlapPolicy::ALL.map(OverlapPolicy::name))),
        ("buffer_len_max", number()),
        ("catch_up_s", number()),
        ("jitter_s", number()),
        ("starting_at_us", or_null(time())),
        ("ending_at_us", or_null(time())),
        ("actions_left", or_null(number())),
        ("paused", or_null(text())),
        ("resumed", or_null(text())),
        ("upcoming_us", list(time())),
        ("acts_at_us", or_null(time())),
        ("zone_data", or_null(text())),
        ("running", or_null(text())),
        ("waiting", list(text())),
        ("backfills", number()),
        ("started", number()),
        ("skipped", number()),
        ("missed", number()),
        ("completed", number()),
        ("failed", number()),
        ("not_started", number()),
        ("recent", list(recent)),
    ])
}

fn durable_topic() -> Shape {
    let retention = object([
        ("age_max_us", number()),
        ("bytes_max", number()),
        ("len_max", number()),
        ("unread_bytes_max", number()),
    ]);
    object([
        ("name", text()),
        ("is_exposed", flag()),
        ("payload", or_null(text())),
        ("retention", retention),
        ("first", number()),
        ("last", number()),
        ("first_at_us", or_null(time())),
        ("last_at_us", or_null(time())),
        ("records", number()),
        ("bytes", number()),
    ])
}

fn durable_subscription() -> Shape {
    let figure = || or_null(number());
    object([
        ("name", text()),
        ("is_open", flag()),
        ("lag", figure()),
        ("dropped", figure()),
        ("acknowledged_through", figure()),
        ("oldest", figure()),
        ("oldest_at_us", or_null(time())),
        ("in_hand", figure()),
        ("leased", figure()),
        ("returned", figure()),
        ("held_keys", figure()),
        ("missed", figure()),
        ("undelivered", figure()),
        ("undelivered_to", or_null(text())),
        ("problem", or_null(text())),
    ])
}

fn record() -> Shape {
    object([
        ("token", record_token()),
        ("sequence", number()),
        ("at_us", or_null(time())),
        ("key", or_null(text())),
        ("correlation", or_null(text())),
        ("content_type", or_null(text())),
        ("cause", or_null(named("Cause"))),
        ("trace", or_null(named("Trace"))),
        ("payload", named("Payload")),
    ])
}

fn workflow_counts() -> Shape {
    object([
        ("workflow", text()),
        ("running", number()),
        ("parked", number()),
        ("paused", number()),
        ("delayed", number()),
        ("not_registered", number()),
        ("completed", number()),
        ("failed", number()),
        ("cancelled", number()),
        ("terminated", number()),
        ("timed_out", number()),
        ("continued", number()),
    ])
}

fn finished_run() -> Shape {
    object([
        ("id", text()),
        ("run", run()),
        ("ended_at_us", time()),
        ("sequence", number()),
        ("description", text()),
        ("history", text()),
    ])
}

fn trace_end() -> Shape {
    open_object([
        ("kind", word(["run", "operation", "instance", "record", "other"])),
        ("trace", or_null(text())),
    ])
}

fn trace_link() -> Shape {
    object([
        ("relation", text()),
        ("to", or_null(named("TraceEnd"))),
        ("name", or_null(text())),
        ("instance", or_null(text())),
        ("operation", or_null(number())),
        ("at_us", or_null(time())),
        ("attempts", or_null(number())),
        ("outcome", text()),
        ("detail", or_null(text())),
    ])
}

fn trace_page() -> Shape {
    object([
        ("of", named("TraceEnd")),
        ("about", open_object([("kind", word(["run", "record", "other"]))])),
        ("causes", list(named("TraceLink"))),
        ("effects", list(named("TraceLink"))),
        ("trimmed_before", or_null(number())),
        ("looked_at", number()),
        ("next", or_null(text())),
    ])
}

fn version() -> Shape {
    object([
        ("workflow", text()),
        ("version", number()),
        ("is_registered", flag()),
        ("is_newest", flag()),
        ("policy", or_null(text())),
        ("live", number()),
        ("parked", number()),
        ("is_deletable", flag()),
    ])
}

fn workflow() -> Shape {
    object([
        ("name", text()),
        ("version", number()),
        ("input", anything()),
        ("result", anything()),
        ("queries", list(text())),
        ("updates", list(text())),
        ("commands", list(text())),
        ("signals", list(object([("name", text()), ("value", text())]))),
    ])
}

fn stats() -> Shape {
    object([
        ("started", number()),
        ("finished", number()),
        ("live", number()),
        ("hot", number()),
        ("loads", number()),
        ("parked", number()),
        ("events", number()),
        ("slow_turns", number()),
        ("long_histories", number()),
        ("untrimmed_histories", number()),
        ("replay_checks", number()),
        ("replay_differences", number()),
        ("changed_values", number()),
        ("versions_changed", number()),
        ("versions_unfit", number()),
        ("attempts", number()),
        ("attempts_running", number()),
        ("queues", list(queue())),
        ("journal", open_object([])),
    ])
}

fn past_sample() -> Shape {
    object([
        ("at_us", time()),
        ("started", number()),
        ("finished", number()),
        ("events", number()),
        ("attempts", number()),
        ("live", number()),
        ("parked", number()),
        ("waiting", number()),
        ("commits", number()),
        ("turns", number()),
        ("bytes", number()),
        ("queued_bytes", number()),
        ("last_commit_us", number()),
        ("run_times", named("Latency")),
        ("attempt_times", named("Latency")),
        ("wait_times", named("Latency")),
        ("commit_times", named("Latency")),
    ])
}

fn latency() -> Shape {
    object([
        ("len", number()),
        ("p50_us", or_null(number())),
        ("p99_us", or_null(number())),
    ])
}

fn queue() -> Shape {
    object([
        ("name", text()),
        ("running", number()),
        ("running_max", number()),
        ("waiting", number()),
        ("waiting_max", number()),
    ])
}
