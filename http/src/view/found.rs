//! Found runs, counts, and changes.

use millrun::operating::{
    ChangeKind, ChangedRun, FeedChange, RunCounts, RunSummary, RunsPage, WorkflowCounts,
};

use super::json::{Json, list, object};

/// A page of runs; `next` makes the link to the next page from a cursor.
pub(crate) fn found(page: &RunsPage, next: impl FnOnce(&str) -> String) -> Json {
    let next = page.next.map(|cursor| next(&cursor.to_string()));
    object([
        ("runs", list(&page.runs, found_run)),
        ("unreadable", page.unreadable.into()),
        ("next", next.into()),
    ])
}

fn found_run(run: &RunSummary) -> Json {
    object([
        ("id", (&run.id).into()),
        ("run", run.run.into()),
        ("workflow", run.workflow.as_str().into()),
        ("version", run.version.into()),
        ("status", run.status.name().into()),
        ("started_at_us", run.started_at.into()),
        ("ended_at_us", run.ended_at.into()),
        ("description", format!("runs/{}", run.run).into()),
        ("history", format!("runs/{}/history", run.run).into()),
    ])
}

/// How many runs there are.
pub(crate) fn counts(counts: &RunCounts) -> Json {
    object([
        ("workflows", list(&counts.workflows, workflow)),
        ("others", workflow(&counts.others)),
        ("bulks_running", counts.bulks_running.into()),
    ])
}

fn workflow(counts: &WorkflowCounts) -> Json {
    object([
        ("workflow", counts.workflow.as_str().into()),
        ("running", counts.running.into()),
        ("parked", counts.parked.into()),
        ("paused", counts.paused.into()),
        ("delayed", counts.delayed.into()),
        ("not_registered", counts.not_registered.into()),
        ("completed", counts.completed.into()),
        ("failed", counts.failed.into()),
        ("cancelled", counts.cancelled.into()),
        ("terminated", counts.terminated.into()),
        ("timed_out", counts.timed_out.into()),
        ("continued", counts.continued.into()),
    ])
}

/// A change of a run or a part.
pub(crate) fn change(change: &FeedChange) -> Json {
    let (kind, run, rest): (_, _, Vec<(&'static str, Json)>) = match &change.kind {
        ChangeKind::Started(run) => ("started", Some(run), Vec::new()),
        ChangeKind::Ended { run, status } => ("ended", Some(run), vec![("status", status.name().into())]),
        ChangeKind::Parked { run, status, reason } => (
            "parked",
            Some(run),
            vec![
                ("status", status.name().into()),
                ("reason", reason.as_str().into()),
            ],
        ),
        ChangeKind::Resumed(run) => ("resumed", Some(run), Vec::new()),
        ChangeKind::PartFailed { part, message } => (
            "part-failed",
            None,
            vec![
                ("part", part.as_str().into()),
                ("message", message.as_str().into()),
            ],
        ),
        _ => ("other", None, Vec::new()),
    };
    let mut fields = vec![("at_us", change.at.into()), ("kind", kind.into())];
    if let Some(ChangedRun {
        id, run, workflow, ..
    }) = run
    {
        fields.push(("id", id.into()));
        fields.push(("run", (*run).into()));
        fields.push(("workflow", workflow.as_str().into()));
    }
    fields.extend(rest);
    Json::Object(fields)
}
