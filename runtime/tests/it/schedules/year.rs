//! A simulated year through both changes of the clocks, with crashes, against an oracle on another calendar library.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Datelike, NaiveDateTime, TimeDelta, TimeZone as _, Timelike, Utc, Weekday};
use chrono_tz::Tz;
use millrun::store::{Journal, JournalConfig, MemoryJournal};
use millrun::{Runtime, Timestamp};
use millrun_testkit::SimHost;

use super::{REPORT, at, coded, ids_of, kept, world_at};

const FROM: &str = "2026-01-01T00:00:30Z";
const UNTIL: &str = "2027-01-01T00:00:30Z";

/// A schedule, what of a local time it selects, and whether it has all hours.
type Case = (
    &'static str,
    &'static str,
    &'static str,
    fn(NaiveDateTime) -> bool,
    bool,
);

const CASES: [Case; 4] = [
    (
        "nightly",
        "30 2 * * *",
        "Europe/Berlin",
        |time| time.hour() == 2 && time.minute() == 30,
        false,
    ),
    (
        "hourly",
        "0 * * * *",
        "America/New_York",
        |time| time.minute() == 0,
        true,
    ),
    (
        "sundays",
        "*/20 1-3 * * SUN",
        "America/New_York",
        |time| (1..=3).contains(&time.hour()) && time.minute() % 20 == 0 && time.weekday() == Weekday::Sun,
        false,
    ),
    (
        "ends",
        "15 2 L * *",
        "Australia/Lord_Howe",
        |time| time.hour() == 2 && time.minute() == 15 && (time + TimeDelta::days(1)).day() == 1,
        false,
    ),
];

/// The ids of the runs of a schedule in the year, by a look at each minute.
fn expected(case: &Case) -> impl Iterator<Item = String> {
    let (id, _, zone, selects, has_all_hours) = *case;
    let zone: Tz = zone.parse().unwrap();
    let step = TimeDelta::minutes(1);
    let (from, until): (DateTime<Utc>, DateTime<Utc>) = (FROM.parse().unwrap(), UNTIL.parse().unwrap());
    let local = move |minute: DateTime<Utc>| minute.with_timezone(&zone).naive_local();
    let is_due = move |minute: &DateTime<Utc>| {
        let now = local(*minute);
        if has_all_hours {
            return selects(now);
        }
        let is_first = zone.from_local_datetime(&now).earliest().unwrap() == *minute;
        let mut skipped = local(*minute - step) + step;
        let mut was_skipped = false;
        while skipped < now {
            was_skipped |= selects(skipped);
            skipped += step;
        }
        was_skipped || selects(now) && is_first
    };
    let first = from.with_second(0).unwrap() + step;
    std::iter::successors(Some(first), move |minute| Some(*minute + step))
        .take_while(move |minute| *minute < until)
        .filter(is_due)
        .map(move |due| format!("{id}/{}", due.format("%FT%TZ")))
}

async fn begin(sim: &SimHost, journal: &Arc<MemoryJournal>) -> Runtime {
    let builder = Runtime::volatile().host(sim.host());
    let runtime = coded(builder.journal(Arc::clone(journal) as Arc<dyn Journal>));
    let runtime = runtime.start().await.unwrap();
    for (id, line, zone, ..) in CASES {
        let schedule = runtime.schedule(id, REPORT, 1).cron(line).zone(zone);
        schedule.await.unwrap();
    }
    runtime
}

/// Some days, then some steps, then a crash.
fn live_and_crash(journal: &Arc<MemoryJournal>, from: Timestamp, life: u64) -> Timestamp {
    let sim = world_at(from, life);
    let runtime = sim.block_on(begin(&sim, journal)).unwrap();
    let span = Duration::from_secs(3_600 * 24 * 9 + life * 7_919 % 86_400);
    let left = at(UNTIL).saturating_since(from);
    let _stop = sim.advance(span.min(left));
    for _ in 0..life * 13 % 60 {
        sim.step();
    }
    sim.crash();
    drop(runtime);
    sim.now()
}

#[test]
fn a_year_starts_one_run_for_each_due_time_through_both_changes_of_the_clocks() {
    let mut config = JournalConfig::default();
    config.retention = kept();
    let mut journal = Arc::new(MemoryJournal::new(config).unwrap());
    let (mut now, mut lives) = (at(FROM), 0);
    while now < at(UNTIL) {
        lives += 1;
        now = live_and_crash(&journal, now, lives);
        // Nothing runs for some minutes: what is due meanwhile is caught up with.
        now = now + Duration::from_secs(lives * 331 % 2_000);
        journal = Arc::new(journal.reopened());
    }
    let sim = world_at(now, 1);
    let runtime = sim.block_on(begin(&sim, &journal)).unwrap();
    let _stop = sim.run_ready();
    let found = sim.block_on(ids_of(&runtime, "report")).unwrap();
    let until = &UNTIL[..UNTIL.len() - 1];
    let found: Vec<_> = found
        .into_iter()
        .filter(|id| id.split_once('/').is_some_and(|(_, due)| due < until))
        .collect();
    let expected: BTreeSet<String> = CASES.iter().flat_map(expected).collect();
    let one_each: BTreeSet<_> = found.iter().cloned().collect();
    assert_eq!(found.len(), one_each.len(), "a due time has started several runs");
    let missing: Vec<_> = expected.difference(&one_each).collect();
    let further: Vec<_> = one_each.difference(&expected).collect();
    assert!(
        missing.is_empty() && further.is_empty(),
        "{missing:?} {further:?}"
    );
    assert!(found.len() > 8_760 + 365 && lives > 35, "{} {lives}", found.len());
}
