//! Operations on schedules.

use std::time::Duration;

use millrun::builders::Schedule;
use millrun::schedules::OverlapPolicy;
use millrun::{Runtime, Timestamp};

use crate::body::{BackfillBody, EmptyBody, NoteBody, ScheduleBody, TriggerBody, parse, payload};
use crate::operations::Action;
use crate::problem::Problem;
use crate::view::{Json, object, schedule_told};

/// Performs an operation on the schedule with this id. With a key, an operation that starts runs does so once.
pub(crate) async fn on_schedule(
    runtime: &Runtime,
    action: Action,
    id: &str,
    key: Option<&str>,
    body: &[u8],
) -> Result<Json, Problem> {
    let schedule = runtime.attach_schedule(id);
    Ok(match action {
        Action::ScheduleMake => {
            described(runtime, id, parse(body)?)?.await?;
            done("made")
        }
        Action::ScheduleUpdate => {
            described(runtime, id, parse(body)?)?.update().await?;
            done("updated")
        }
        Action::SchedulePause => {
            let NoteBody { note } = parse(body)?;
            schedule.pause(&note).await?;
            done("recorded")
        }
        Action::ScheduleResume => {
            let NoteBody { note } = parse(body)?;
            schedule.resume(&note).await?;
            done("recorded")
        }
        Action::ScheduleTrigger => {
            let TriggerBody { overlap } = parse(body)?;
            let mut trigger = schedule.trigger();
            if let Some(overlap) = policy(overlap)? {
                trigger = trigger.overlap(overlap);
            }
            if let Some(key) = key {
                trigger = trigger.request(key);
            }
            object([("id", trigger.await?.into())])
        }
        Action::ScheduleBackfill => {
            let BackfillBody {
                from_us,
                through_us,
                overlap,
            } = parse(body)?;
            let (from, through) = (
                Timestamp::from_micros(from_us),
                Timestamp::from_micros(through_us),
            );
            let mut backfill = schedule.backfill(from, through);
            if let Some(overlap) = policy(overlap)? {
                backfill = backfill.overlap(overlap);
            }
            if let Some(key) = key {
                backfill = backfill.request(key);
            }
            backfill.await?;
            done("recorded")
        }
        Action::ScheduleDelete => {
            let EmptyBody {} = parse(body)?;
            object([("deleted", schedule.delete().await?.into())])
        }
        _ => schedule_told(&schedule.summary().await?, &schedule.describe().await?),
    })
}

fn done(what: &'static str) -> Json {
    object([(what, true.into())])
}

/// The schedule that a body describes.
fn described<'a>(runtime: &'a Runtime, id: &str, body: ScheduleBody<'_>) -> Result<Schedule<'a>, Problem> {
    let mut schedule = runtime.schedule_untyped(id, &body.workflow, payload(body.input)?);
    for line in body.cron {
        schedule = schedule.cron(line);
    }
    let seconds = Duration::from_secs;
    for interval in body.every {
        schedule = schedule.every_with_phase(seconds(interval.every_s), seconds(interval.phase_s));
    }
    if let Some(zone) = body.zone {
        schedule = schedule.zone(zone);
    }
    if let Some(overlap) = policy(body.overlap)? {
        schedule = schedule.overlap(overlap);
    }
    if let Some(len_max) = body.buffer_len_max {
        schedule = schedule.buffer_len_max(len_max);
    }
    if let Some(window) = body.catch_up_s {
        schedule = schedule.catch_up_window(seconds(window));
    }
    if let Some(jitter) = body.jitter_s {
        schedule = schedule.jitter(seconds(jitter));
    }
    if let Some(time) = body.starting_at_us {
        schedule = schedule.starting_at(Timestamp::from_micros(time));
    }
    if let Some(time) = body.ending_at_us {
        schedule = schedule.ending_at(Timestamp::from_micros(time));
    }
    if let Some(len) = body.actions_len_max {
        schedule = schedule.actions_len_max(len);
    }
    Ok(match body.paused {
        Some(note) => schedule.paused(note),
        None => schedule,
    })
}

fn policy(name: Option<String>) -> Result<Option<OverlapPolicy>, Problem> {
    let Some(name) = name else {
        return Ok(None);
    };
    OverlapPolicy::of_name(&name).map(Some).ok_or_else(|| {
        let all = OverlapPolicy::ALL.map(OverlapPolicy::name).join(", ");
        Problem::new("invalid-body", format!("the overlap {name:?} is none of {all}"))
    })
}
