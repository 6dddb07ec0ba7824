//! Lists of runs, counts, and what is registered.

use millrun::VersionPolicy;
use millrun::operating::{Catalogue, InstanceSummary, PartStatus, QueueStats, RuntimeStats, WorkflowVersion};
use millrun::store::FinishedRun;
use millrun::streams::OutputStreamSummary;

use super::described::status;
use super::json::{Json, list, object};
use crate::query::{encoded, next_page};

/// A page of live instances; `all` may have one more than the page, which shows that there is another page.
pub(crate) fn instances(mut all: Vec<InstanceSummary>, limit: usize) -> Json {
    let has_more = all.len() > limit;
    all.truncate(limit);
    let last = all.last().filter(|_| has_more);
    let next = last.map(|last| next_page(last.id.as_str(), limit));
    object([("instances", list(&all, summary)), ("next", next.into())])
}

fn summary(run: &InstanceSummary) -> Json {
    object([
        ("id", (&run.id).into()),
        ("run", run.run.into()),
        ("workflow", run.workflow.as_str().into()),
        ("status", status(&run.status).into()),
        (
            "instance",
            format!("instances/{}", encoded(run.id.as_str())).into(),
        ),
    ])
}

/// A page of finished runs; as [`instances`].
pub(crate) fn finished(mut all: Vec<FinishedRun>, limit: usize) -> Json {
    let has_more = all.len() > limit;
    all.truncate(limit);
    let last = all.last().filter(|_| has_more);
    let next = last.map(|last| next_page(&last.run.to_string(), limit));
    object([("runs", list(&all, finished_run)), ("next", next.into())])
}

fn finished_run(run: &FinishedRun) -> Json {
    object([
        ("id", (&run.id).into()),
        ("run", run.run.into()),
        ("ended_at_us", run.closed_at.into()),
        ("sequence", run.head.get().into()),
        ("description", format!("runs/{}", run.run).into()),
        ("history", format!("runs/{}/history", run.run).into()),
    ])
}

/// The output streams of a run.
pub(crate) fn output_streams(streams: &[OutputStreamSummary]) -> Json {
    let stream = |stream: &OutputStreamSummary| {
        object([
            ("name", stream.name.as_str().into()),
            ("durable", stream.is_durable.into()),
            ("sent_to", stream.is_sent_to.into()),
        ])
    };
    object([("streams", list(streams, stream))])
}

/// The parts of a runtime.
pub(crate) fn parts(parts: &[PartStatus]) -> Json {
    let part = |part: &PartStatus| {
        object([
            ("name", part.name.as_str().into()),
            ("is_running", part.is_running.into()),
            ("restarts", part.restarts.into()),
        ])
    };
    object([("parts", list(parts, part))])
}

/// Counts of a runtime.
pub(crate) fn stats(stats: &RuntimeStats) -> Json {
    object([
        ("started", stats.started.into()),
        ("finished", stats.finished.into()),
        ("live", stats.live.into()),
        ("hot", stats.hot.into()),
        ("loads", stats.loads.into()),
        ("parked", stats.parked.into()),
        ("events", stats.events.into()),
        ("slow_turns", stats.slow_turns.into()),
        ("long_histories", stats.long_histories.into()),
        ("untrimmed_histories", stats.untrimmed_histories.into()),
        ("replay_checks", stats.replay_checks.into()),
        ("replay_differences", stats.replay_differences.into()),
        ("changed_values", stats.changed_values.into()),
        ("versions_changed", stats.versions_changed.into()),
        ("versions_unfit", stats.versions_unfit.into()),
        ("attempts", stats.attempts.into()),
        ("attempts_running", stats.attempts_running.into()),
        ("queues", list(&stats.queues, queue)),
        ("journal", journal(stats)),
    ])
}

fn queue(queue: &QueueStats) -> Json {
    object([
        ("name", queue.name.as_str().into()),
        ("running", queue.running_len.into()),
        ("running_max", queue.running_max.into()),
        ("waiting", queue.waiting_len.into()),
        ("waiting_max", queue.waiting_max.into()),
    ])
}

fn journal(stats: &RuntimeStats) -> Json {
    let stats = &stats.journal;
    let last_commit_us = u64::try_from(stats.last_commit.as_micros()).unwrap_or(u64::MAX);
    object([
        ("live_runs", stats.live_runs.into()),
        ("finished_runs", stats.finished_runs.into()),
        ("dropped_runs", stats.dropped_runs.into()),
        ("live_bytes", stats.live_bytes.into()),
        ("log_bytes", stats.log_bytes.into()),
        ("file_bytes", stats.file_bytes.into()),
        ("queued_bytes", stats.queued_bytes.into()),
        ("index_bytes", stats.index_bytes.into()),
        ("commits", stats.commits.into()),
        ("turns", stats.turns.into()),
        ("bytes", stats.bytes.into()),
        ("compactions", stats.compactions.into()),
        ("is_compacting", stats.is_compacting.into()),
        ("compacted_bytes", stats.compacted_bytes.into()),
        ("topics", stats.topics.into()),
        ("topic_bytes", stats.topic_bytes.into()),
        ("archived_runs", stats.archived_runs.into()),
        ("archived_parts", stats.archived_parts.into()),
        ("held_parts", stats.held_parts.into()),
        ("is_archive_failing", stats.is_archive_failing.into()),
        ("is_disk_full", stats.is_disk_full.into()),
        ("is_retention_stopped", stats.is_retention_stopped.into()),
        ("last_commit_us", last_commit_us.into()),
    ])
}

/// The versions of workflows.
pub(crate) fn versions(versions: &[WorkflowVersion]) -> Json {
    let version = |version: &WorkflowVersion| {
        object([
            ("workflow", version.workflow.as_str().into()),
            ("version", version.version.into()),
            ("is_registered", version.is_registered.into()),
            ("is_newest", version.is_newest.into()),
            ("policy", version.policy.map(policy).into()),
            ("live", version.live.into()),
            ("parked", version.parked.into()),
            ("is_deletable", version.is_deletable.into()),
        ])
    };
    object([("versions", list(versions, version))])
}

fn policy(policy: VersionPolicy) -> &'static str {
    match policy {
        VersionPolicy::Pinned => "pinned",
        VersionPolicy::MoveIfFits => "move-if-fits",
        VersionPolicy::MustMove => "must-move",
        _ => "other",
    }
}

/// What is registered.
pub(crate) fn catalogue(catalogue: &Catalogue) -> Json {
    let workflows = list(&catalogue.workflows, |workflow| {
        object([
            ("name", workflow.name.into()),
            ("version", workflow.version.into()),
            ("input", workflow.input.into()),
            ("result", workflow.result.into()),
            ("queries", list(&workflow.queries, |name| (*name).into())),
            ("updates", list(&workflow.updates, |name| (*name).into())),
            ("commands", list(&workflow.commands, |name| (*name).into())),
            (
                "signals",
                list(&workflow.signals, |signal| {
                    object([("name", signal.name.into()), ("value", signal.value.into())])
                }),
            ),
        ])
    });
    let activities = list(&catalogue.activities, |activity| {
        object([("name", activity.name.into()), ("queue", activity.queue.into())])
    });
    let names = |names: &[String]| list(names, |name: &String| name.as_str().into());
    object([
        ("workflows", workflows),
        ("activities", activities),
        ("queues", names(&catalogue.queues)),
        ("topics", names(&catalogue.topics)),
        ("topic_filters", names(&catalogue.topic_filters)),
    ])
}
