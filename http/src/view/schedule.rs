//! Schedules, their due times, and what they have done.

use std::time::Duration;

use millrun::schedules::{
    ActionEnd, RunningAction, ScheduleDescription, ScheduleSummary, ScheduleTimes, SchedulesPage,
};

use super::json::{Json, list, object};

/// A page of schedules; `next` makes the link to the next page from a cursor.
pub(crate) fn schedules(page: &SchedulesPage, next: impl FnOnce(&str) -> String) -> Json {
    let next = page.next.map(|cursor| next(&cursor.to_string()));
    let told = |schedule: &ScheduleSummary| Json::Object(summary(schedule));
    object([("schedules", list(&page.schedules, told)), ("next", next.into())])
}

fn summary(schedule: &ScheduleSummary) -> Vec<(&'static str, Json)> {
    vec![
        ("id", schedule.id.as_str().into()),
        ("run", schedule.run.into()),
        ("status", schedule.status.name().into()),
        ("created_at_us", schedule.created_at.into()),
    ]
}

/// A schedule in full.
pub(crate) fn schedule_told(schedule: &ScheduleSummary, described: &ScheduleDescription) -> Json {
    let counts = &described.counts;
    let mut fields = summary(schedule);
    fields.extend([
        ("updated_at_us", described.updated_at.into()),
        ("workflow", described.workflow.as_str().into()),
        ("times", list(&described.times, times)),
        ("zone", described.zone.as_str().into()),
        ("overlap", described.overlap.name().into()),
        ("buffer_len_max", described.buffer_len_max.into()),
        ("catch_up_s", described.catch_up_window.as_secs().into()),
        ("jitter_s", described.jitter.as_secs().into()),
        ("starting_at_us", described.starting_at.into()),
        ("ending_at_us", described.ending_at.into()),
        ("actions_left", described.actions_left.into()),
        ("paused", described.paused.clone().into()),
        ("resumed", described.resumed.clone().into()),
        ("upcoming_us", list(&described.upcoming, |due| (*due).into())),
        ("acts_at_us", described.acts_at.into()),
        ("zone_data", described.zone_data.clone().into()),
        ("running", described.running.clone().into()),
        ("waiting", list(&described.waiting, |id| id.as_str().into())),
        ("backfills", described.backfills_len.into()),
        ("started", counts.started_len.into()),
        ("skipped", counts.skipped_len.into()),
        ("missed", counts.missed_len.into()),
        ("completed", counts.completed_len.into()),
        ("failed", counts.failed_len.into()),
        ("not_started", counts.not_started_len.into()),
        ("recent", list(&described.recent, recent)),
    ]);
    Json::Object(fields)
}

fn times(times: &ScheduleTimes) -> Json {
    let seconds = |duration: &Duration| Json::from(duration.as_secs());
    match times {
        ScheduleTimes::Cron(line) => object([("cron", line.as_str().into())]),
        ScheduleTimes::Every { interval, phase } => {
            object([("every_s", seconds(interval)), ("phase_s", seconds(phase))])
        }
        ScheduleTimes::Calendar(calendar) => object([("calendar", calendar.to_string().into())]),
        other => object([("other", format!("{other:?}").into())]),
    }
}

fn recent(action: &RunningAction) -> Json {
    let (end, message) = match &action.end {
        None => (None, None),
        Some(ActionEnd::Completed) => (Some("completed"), None),
        Some(ActionEnd::Failed) => (Some("failed"), None),
        Some(ActionEnd::Cancelled) => (Some("cancelled"), None),
        Some(ActionEnd::Terminated) => (Some("terminated"), None),
        Some(ActionEnd::NotStarted { message }) => (Some("not-started"), Some(message.clone())),
        Some(_) => (Some("other"), None),
    };
    object([
        ("id", action.id.as_str().into()),
        ("due_us", action.due.into()),
        ("started_at_us", action.started_at.into()),
        ("end", end.into()),
        ("message", message.into()),
    ])
}
