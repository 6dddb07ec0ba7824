//! Schedules: runs that start by the calendar.

use std::error::Error;

use clap::{Args, Subcommand};

use super::moment::Moment;
use super::options::{At, Form};
use super::place::client;
use super::raw::Raw;
use super::time::date_and_time;
use super::{json, object, pages, say, show_one, text, write_list};
use crate::outcome::Outcome;
use crate::table::Table;

/// What a schedule starts, and when.
#[derive(Debug, Args)]
pub(crate) struct Describing {
    /// The id of the schedule: the runs that it starts have ids that begin with it.
    id: String,
    /// The workflow of which it starts runs.
    workflow: String,
    /// The input of each run in JSON; - reads standard input.
    #[arg(default_value = "null")]
    input: String,
    /// A cron line: five fields, or six with seconds in front; may be given several times.
    #[arg(long, value_name = "LINE", help_heading = "When it is due")]
    cron: Vec<String>,
    /// An interval in seconds, with a phase behind a plus, if it has one: 3600+600; may be given several times.
    #[arg(long, value_name = "SECONDS", value_parser = interval, help_heading = "When it is due")]
    every: Vec<(u64, u64)>,
    /// The time zone of the cron lines; UTC by default.
    #[arg(long, value_name = "ZONE", help_heading = "When it is due")]
    zone: Option<String>,
    /// Not due before this moment.
    #[arg(long, value_name = "TIME", help_heading = "When it is due")]
    starting_at: Option<Moment>,
    /// Not due from this moment on.
    #[arg(long, value_name = "TIME", help_heading = "When it is due")]
    ending_at: Option<Moment>,
    /// On how many due times it acts.
    #[arg(long, value_name = "N", help_heading = "When it is due")]
    actions: Option<u64>,
    /// Below how many seconds it acts later than it is due.
    #[arg(long, value_name = "SECONDS", help_heading = "When it is due")]
    jitter: Option<u64>,
    /// What is done while a run goes on: skip, buffer-one, buffer-all, cancel-other, terminate-other or allow.
    #[arg(long, value_name = "POLICY")]
    overlap: Option<String>,
    /// How many due times may wait with buffer-all.
    #[arg(long, value_name = "N")]
    buffer: Option<u32>,
    /// How many seconds late a due time is still acted on.
    #[arg(long, value_name = "SECONDS")]
    catch_up: Option<u64>,
    /// Pause it from the beginning, with this note.
    #[arg(long, value_name = "NOTE")]
    paused: Option<String>,
    #[command(flatten)]
    at: At,
    #[command(flatten)]
    form: Form,
}

/// A schedule.
#[derive(Debug, Args)]
pub(crate) struct OfSchedule {
    /// The id of the schedule.
    id: String,
    #[command(flatten)]
    at: At,
    #[command(flatten)]
    form: Form,
}

#[derive(Debug, Args)]
pub(crate) struct Noted {
    /// The id of the schedule.
    id: String,
    /// Why; it is shown.
    #[arg(long, default_value = "asked for on the command line")]
    note: String,
    #[command(flatten)]
    at: At,
    #[command(flatten)]
    form: Form,
}

#[derive(Debug, Args)]
pub(crate) struct TriggerNow {
    /// The id of the schedule.
    id: String,
    /// What is done while a run goes on, in place of the policy of the schedule.
    #[arg(long, value_name = "POLICY")]
    overlap: Option<String>,
    #[command(flatten)]
    at: At,
    #[command(flatten)]
    form: Form,
}

#[derive(Debug, Args)]
pub(crate) struct FillBack {
    /// The id of the schedule.
    id: String,
    /// From this moment on: 2d for two days ago, or a date and a time of UTC.
    from: Moment,
    /// Through this moment.
    through: Moment,
    /// What is done while a run goes on, in place of the policy of the schedule.
    #[arg(long, value_name = "POLICY")]
    overlap: Option<String>,
    #[command(flatten)]
    at: At,
    #[command(flatten)]
    form: Form,
}

#[derive(Debug, Args)]
pub(crate) struct ListSchedules {
    /// How many, at most.
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: u64,
    #[command(flatten)]
    at: At,
    #[command(flatten)]
    form: Form,
}

/// What is done with schedules.
#[derive(Debug, Subcommand)]
pub(crate) enum ScheduleCommand {
    /// Make a schedule; one of this id that is described alike is found.
    Make(Describing),
    /// Change a schedule to what is described, all of it.
    Update(Describing),
    /// List the schedules, the latest made first.
    List(ListSchedules),
    /// Print when a schedule is due, what runs and waits, and what it has done.
    Show(OfSchedule),
    /// Stop a schedule from being due.
    Pause(Noted),
    /// Let a schedule be due again, from now on.
    Resume(Noted),
    /// Start a run of a schedule now.
    Trigger(TriggerNow),
    /// Act on the due times of a stretch of the past.
    Backfill(FillBack),
    /// Delete a schedule; the runs that it has started go on.
    Delete(OfSchedule),
}

pub(super) async fn schedule(command: ScheduleCommand) -> Result<Outcome, Box<dyn Error>> {
    match command {
        ScheduleCommand::Make(describing) => describe("make_schedule", "made", describing).await,
        ScheduleCommand::Update(describing) => describe("update_schedule", "updated", describing).await,
        ScheduleCommand::List(list) => {
            let client = client(&list.at).await?;
            let found = pages(&client, ("schedules", ""), "schedules", &[], None, list.limit).await?;
            write_list(&found, list.form, shown_list)?;
            Ok(Outcome::Complete)
        }
        ScheduleCommand::Show(of) => show_one("schedule", &of.id, &of.at, of.form, shown).await,
        ScheduleCommand::Pause(noted) => note("pause_schedule", "paused", noted).await,
        ScheduleCommand::Resume(noted) => note("resume_schedule", "resumed", noted).await,
        ScheduleCommand::Trigger(trigger) => {
            let body = fields(overlap_of(trigger.overlap.as_deref()));
            let told = |told: &Raw| told.text_of("id");
            say(
                "trigger_schedule",
                &trigger.id,
                body,
                &trigger.at,
                trigger.form,
                told,
            )
            .await
        }
        ScheduleCommand::Backfill(back) => {
            let mut all = vec![
                ("from_us", back.from.0.to_string()),
                ("through_us", back.through.0.to_string()),
            ];
            all.extend(overlap_of(back.overlap.as_deref()));
            let told = |_: &Raw| "recorded".to_owned();
            say(
                "backfill_schedule",
                &back.id,
                fields(all),
                &back.at,
                back.form,
                told,
            )
            .await
        }
        ScheduleCommand::Delete(of) => {
            let told = |told: &Raw| match told.text_of("deleted").as_str() {
                "true" => "deleted".to_owned(),
                _ => "there was none".to_owned(),
            };
            say("delete_schedule", &of.id, "{}".to_owned(), &of.at, of.form, told).await
        }
    }
}

async fn describe(operation: &str, done: &str, describing: Describing) -> Result<Outcome, Box<dyn Error>> {
    let list = |items: Vec<String>| format!("[{}]", items.join(","));
    let lines = describing.cron.iter().map(|line| text(line));
    let every = describing.every.iter();
    let every = every.map(|(every, phase)| format!("{{\"every_s\":{every},\"phase_s\":{phase}}}"));
    let mut all = vec![
        ("workflow", text(&describing.workflow)),
        ("input", json(describing.input)?),
        ("cron", list(lines.collect())),
        ("every", list(every.collect())),
    ];
    let texts = [("zone", &describing.zone), ("paused", &describing.paused)];
    let given = |(name, value): (_, &Option<String>)| value.as_deref().map(|value| (name, text(value)));
    all.extend(texts.into_iter().filter_map(given));
    all.extend(overlap_of(describing.overlap.as_deref()));
    let numbers = [
        ("starting_at_us", describing.starting_at.map(|moment| moment.0)),
        ("ending_at_us", describing.ending_at.map(|moment| moment.0)),
        ("actions_len_max", describing.actions),
        ("jitter_s", describing.jitter),
        ("buffer_len_max", describing.buffer.map(u64::from)),
        ("catch_up_s", describing.catch_up),
    ];
    let given = |(name, value): (_, Option<u64>)| value.map(|value| (name, value.to_string()));
    all.extend(numbers.into_iter().filter_map(given));
    let told = |_: &Raw| done.to_owned();
    say(
        operation,
        &describing.id,
        fields(all),
        &describing.at,
        describing.form,
        told,
    )
    .await
}

async fn note(operation: &str, done: &str, noted: Noted) -> Result<Outcome, Box<dyn Error>> {
    let body = object(&[("note", &text(&noted.note))]);
    let told = |_: &Raw| done.to_owned();
    say(operation, &noted.id, body, &noted.at, noted.form, told).await
}

fn fields(all: impl IntoIterator<Item = (&'static str, String)>) -> String {
    let all: Vec<_> = all.into_iter().collect();
    let all: Vec<_> = all.iter().map(|(name, value)| (*name, value.as_str())).collect();
    object(&all)
}

fn overlap_of(policy: Option<&str>) -> Option<(&'static str, String)> {
    policy.map(|policy| ("overlap", text(policy)))
}

/// Seconds, and those behind a plus.
fn interval(text: &str) -> Result<(u64, u64), String> {
    let (every, phase) = text.split_once('+').unwrap_or((text, "0"));
    let number = |text: &str| text.parse::<u64>().ok();
    let both = number(every).zip(number(phase));
    both.ok_or_else(|| format!("{text:?} is no interval: write 3600, or 3600+600 with a phase"))
}

fn shown_list(schedules: &[Raw]) -> String {
    let mut table = Table::of(["id", "status", "made at (UTC)"]);
    for schedule in schedules {
        let made = schedule.number_of("created_at_us");
        let made = made.map_or_else(String::new, date_and_time);
        table.row([schedule.text_of("id"), schedule.text_of("status"), made]);
    }
    table.to_string()
}

/// A schedule as a person reads it: what it is, when it is due, what it does.
fn shown(schedule: &Raw) -> String {
    let mut lines = vec![format!(
        "{} starts {}, {}",
        schedule.text_of("id"),
        schedule.text_of("workflow"),
        schedule.text_of("overlap")
    )];
    for times in schedule.list_of("times") {
        let told = match times.number_of("every_s") {
            Some(every) => format!(
                "every {every} s, phase {} s",
                times.number_of("phase_s").unwrap_or(0)
            ),
            None => format!("{}{}", times.text_of("cron"), times.text_of("calendar")),
        };
        lines.push(format!("  due: {told} ({})", schedule.text_of("zone")));
    }
    if let Some(note) = schedule.get("paused") {
        lines.push(format!("  paused: {}", note.text()));
    }
    if let Some(left) = schedule.number_of("actions_left") {
        lines.push(format!("  actions left: {left}"));
    }
    let numbers = |name| {
        schedule
            .list_of(name)
            .into_iter()
            .filter_map(|time| time.text().parse().ok())
    };
    let upcoming: Vec<String> = numbers("upcoming_us").take(3).map(date_and_time).collect();
    if !upcoming.is_empty() {
        let zone_data = schedule.text_of("zone_data");
        lines.push(format!(
            "  next (UTC): {} (zone data {zone_data})",
            upcoming.join(", ")
        ));
    }
    if let Some(running) = schedule.get("running") {
        lines.push(format!("  running: {}", running.text()));
    }
    for waiting in schedule.list_of("waiting") {
        lines.push(format!("  waiting: {}", waiting.text()));
    }
    let counted = [
        "started",
        "completed",
        "failed",
        "not_started",
        "skipped",
        "missed",
    ];
    let counted = counted.map(|name| format!("{} {}", schedule.text_of(name), name.replace('_', " ")));
    lines.push(format!("  {}", counted.join(", ")));
    for recent in schedule.list_of("recent") {
        let end = recent
            .get("end")
            .map_or_else(|| "no end is known".to_owned(), |end| end.text());
        let message = recent
            .get("message")
            .map_or_else(String::new, |why| format!(": {}", why.text()));
        lines.push(format!("  {} {end}{message}", recent.text_of("id")));
    }
    lines.join("\n")
}
