//! What a schedule starts and when, and what it is told.

use std::time::Duration;

use millrun::schedules::{
    ActionEnd, OverlapPolicy, ScheduleCalendar, ScheduleError, ScheduleTimes, Weekday, zone_data_version,
};
use millrun::{Payload, RunError};

use super::{HOUR, MINUTE, REPORT, SECOND, WORK, at, ids_of, live};

#[test]
fn a_due_time_starts_one_run_whose_id_tells_it_and_none_begins_early() {
    live("2026-03-28T20:00:00Z", async |runtime, world| {
        let schedule = runtime
            .schedule("nightly", REPORT, 7)
            .cron("30 2 * * *")
            .zone("europe/berlin");
        let schedule = schedule.await.unwrap();
        let described = schedule.describe().await.unwrap();
        assert_eq!(
            (described.zone.as_str(), described.workflow.as_str()),
            ("Europe/Berlin", "report")
        );
        assert_eq!(described.times, [ScheduleTimes::Cron("30 2 * * *".into())]);
        // The first is skipped by the clocks, and due as they are changed.
        assert_eq!(
            described.upcoming[..2],
            [at("2026-03-29T01:00:00Z"), at("2026-03-30T00:30:00Z")]
        );
        assert_eq!(described.zone_data.as_deref(), Some(zone_data_version()));
        world.pass(HOUR * 5 - SECOND).await;
        assert!(ids_of(&runtime, "report").await.is_empty());
        world.pass(HOUR * 24).await;
        let ids = ids_of(&runtime, "report").await;
        assert_eq!(
            ids,
            ["nightly/2026-03-29T01:00:00Z", "nightly/2026-03-30T00:30:00Z"]
        );
        for id in &ids {
            let run = runtime.attach(REPORT, id).unwrap();
            assert_eq!(run.result().await.unwrap(), 7);
            let described = run.describe().await.unwrap();
            assert!(id.ends_with(&chrono_text(described.run.started().as_micros())));
        }
        let described = schedule.describe().await.unwrap();
        assert_eq!(
            (described.counts.started_len, described.counts.completed_len),
            (2, 2)
        );
        assert_eq!(described.recent[0].id, ids[1]);
        assert_eq!(described.recent[0].end, Some(ActionEnd::Completed));
        assert_eq!(described.running, None);
    });
}

fn chrono_text(micros: u64) -> String {
    let time = chrono::DateTime::from_timestamp_micros(i64::try_from(micros).unwrap()).unwrap();
    time.format("%FT%TZ").to_string()
}

#[test]
fn lines_intervals_and_calendars_are_due_together() {
    live("2026-06-05T11:59:00Z", async |runtime, world| {
        let calendar = ScheduleCalendar::new().hours([13]).weekdays([Weekday::Friday]);
        let schedule = runtime
            .schedule("all", REPORT, 1)
            .cron("15 12 * * *")
            .cron("30 0 12 * * *")
            .every_with_phase(HOUR, MINUTE * 10)
            .calendar(calendar);
        let schedule = schedule.await.unwrap();
        world.pass(HOUR * 2).await;
        let dues = ["12:00:30", "12:10:00", "12:15:00", "13:00:00", "13:10:00"];
        let ids = dues.map(|due| format!("all/2026-06-05T{due}Z"));
        assert_eq!(ids_of(&runtime, "report").await, ids);
        assert_eq!(schedule.describe().await.unwrap().times.len(), 4);
    });
}

#[test]
fn a_schedule_is_made_once_and_changed_by_an_update() {
    live("2026-06-05T12:00:00Z", async |runtime, world| {
        let hourly = || runtime.schedule("s", REPORT, 1).cron("0 * * * *");
        assert!(matches!(hourly().update().await, Err(ScheduleError::NotFound)));
        let schedule = hourly().await.unwrap();
        hourly().await.unwrap();
        let other = runtime.schedule("s", REPORT, 2).cron("0 * * * *");
        assert!(matches!(other.await, Err(ScheduleError::Differs)));
        world.pass(HOUR + MINUTE).await;
        runtime
            .schedule("s", REPORT, 2)
            .cron("30 * * * *")
            .update()
            .await
            .unwrap();
        world.pass(HOUR).await;
        let ids = ids_of(&runtime, "report").await;
        assert_eq!(ids, ["s/2026-06-05T13:00:00Z", "s/2026-06-05T13:30:00Z"]);
        let second = runtime.attach(REPORT, &ids[1]).unwrap();
        assert_eq!(second.result().await.unwrap(), 2);
        let described = schedule.describe().await.unwrap();
        assert!(described.updated_at > described.created_at);
        let listed = runtime.schedules(None, 10).await.unwrap();
        assert_eq!(listed.schedules.len(), 1);
        assert_eq!(listed.schedules[0], schedule.summary().await.unwrap());
        assert!(schedule.delete().await.unwrap());
        assert!(!schedule.delete().await.unwrap());
        assert!(matches!(schedule.describe().await, Err(ScheduleError::NotFound)));
        assert!(matches!(schedule.trigger().await, Err(ScheduleError::NotFound)));
        assert!(runtime.schedules(None, 10).await.unwrap().schedules.is_empty());
        world.pass(HOUR * 3).await;
        assert_eq!(ids_of(&runtime, "report").await.len(), 2);
        hourly().await.unwrap();
        world.pass(HOUR).await;
        assert_eq!(ids_of(&runtime, "report").await.len(), 3);
    });
}

#[test]
fn a_deleted_schedule_does_not_come_back_when_its_run_ends() {
    live("2026-06-05T12:00:00Z", async |runtime, world| {
        let schedule = runtime.schedule("s", WORK, ()).every(MINUTE).await.unwrap();
        world.pass(MINUTE).await;
        schedule.delete().await.unwrap();
        let run = runtime.attach(WORK, "s/2026-06-05T12:01:00Z").unwrap();
        run.signal(super::END, 3).await.unwrap();
        assert_eq!(run.result().await.unwrap(), 3);
        world.pass(MINUTE).await;
        assert!(matches!(schedule.summary().await, Err(ScheduleError::NotFound)));
        assert!(runtime.schedules(None, 10).await.unwrap().schedules.is_empty());
    });
}

#[test]
fn a_paused_schedule_is_not_due_and_says_why() {
    live("2026-06-05T12:00:30Z", async |runtime, world| {
        let schedule = runtime
            .schedule("s", REPORT, 1)
            .every(MINUTE)
            .paused("not yet")
            .await
            .unwrap();
        world.pass(MINUTE * 3).await;
        assert!(ids_of(&runtime, "report").await.is_empty());
        let described = schedule.describe().await.unwrap();
        assert_eq!(described.paused.as_deref(), Some("not yet"));
        assert!(described.upcoming.is_empty());
        schedule.resume("go").await.unwrap();
        schedule.resume("go again").await.unwrap();
        world.pass(MINUTE).await;
        assert_eq!(ids_of(&runtime, "report").await, ["s/2026-06-05T12:04:00Z"]);
        schedule.pause("first").await.unwrap();
        schedule.pause("the disk is changed").await.unwrap();
        world.pass(MINUTE * 5).await;
        assert_eq!(ids_of(&runtime, "report").await.len(), 1);
        let described = schedule.describe().await.unwrap();
        assert_eq!(described.paused.as_deref(), Some("the disk is changed"));
        assert_eq!(described.resumed.as_deref(), Some("go"));
        assert_eq!(described.counts.missed_len, 0);
    });
}

#[test]
fn triggered_and_backfilled_runs_have_ids_of_their_own() {
    live("2026-06-05T12:00:00.5Z", async |runtime, world| {
        let schedule = runtime
            .schedule("s", REPORT, 1)
            .cron("0 * * * *")
            .paused("")
            .await
            .unwrap();
        let first = schedule.trigger().await.unwrap();
        assert_eq!(first, "s/2026-06-05T12:00:00.5Z/trigger-1");
        world.pass(SECOND).await;
        let second = schedule.trigger().overlap(OverlapPolicy::Allow).await.unwrap();
        assert_eq!(second, "s/2026-06-05T12:00:01.5Z/trigger-2");
        let (from, through) = (at("2026-06-05T08:00:00Z"), at("2026-06-05T10:00:00Z"));
        schedule
            .backfill(from, through)
            .overlap(OverlapPolicy::BufferOne)
            .await
            .unwrap();
        world.pass(SECOND).await;
        schedule.backfill(from, from).await.unwrap();
        world.pass(SECOND).await;
        let mut expected = vec![first, second];
        for (second, hour) in [(1, 8), (1, 9), (1, 10), (2, 8)] {
            expected.push(format!(
                "s/2026-06-05T{hour:02}:00:00Z/backfill-2026-06-05T12:00:0{second}.5Z"
            ));
        }
        expected.sort();
        assert_eq!(ids_of(&runtime, "report").await, expected);
        let described = schedule.describe().await.unwrap();
        assert_eq!((described.backfills_len, described.counts.started_len), (0, 6));
        let backfill = async |from, through| schedule.backfill(at(from), at(through)).await;
        let empty = backfill("2026-06-05T10:00:00Z", "2026-06-05T09:00:00Z").await;
        assert!(matches!(empty, Err(ScheduleError::EmptyBackfill)));
        let long = backfill("2025-06-05T10:00:00Z", "2026-06-05T09:00:00Z").await;
        assert!(matches!(
            long,
            Err(ScheduleError::BackfillTooLong { len_max: 1_000 })
        ));
    });
}

#[test]
fn a_backfill_of_many_due_times_goes_on_as_room_comes() {
    live("2026-06-05T12:00:00Z", async |runtime, world| {
        let schedule = runtime
            .schedule("s", REPORT, 1)
            .cron("0 * * * *")
            .buffer_len_max(3)
            .await
            .unwrap();
        let (from, through) = (at("2026-05-01T00:00:00Z"), at("2026-06-01T00:00:00Z"));
        schedule
            .backfill(from, through)
            .overlap(OverlapPolicy::BufferAll)
            .await
            .unwrap();
        schedule
            .backfill(from, through)
            .overlap(OverlapPolicy::Allow)
            .await
            .unwrap();
        world.pass(MINUTE).await;
        assert_eq!(ids_of(&runtime, "report").await.len(), 2 * (31 * 24 + 1));
        let described = schedule.describe().await.unwrap();
        assert_eq!((described.backfills_len, described.counts.skipped_len), (0, 0));
    });
}

#[test]
fn a_schedule_acts_as_often_as_it_may_and_within_its_bounds() {
    live("2026-06-05T12:00:00Z", async |runtime, world| {
        let limited = runtime
            .schedule("limited", REPORT, 1)
            .every(MINUTE)
            .actions_len_max(2);
        let limited = limited.await.unwrap();
        let bounded = runtime
            .schedule("bounded", REPORT, 1)
            .every(MINUTE)
            .starting_at(at("2026-06-05T12:05:00Z"))
            .ending_at(at("2026-06-05T12:07:00Z"));
        let bounded = bounded.await.unwrap();
        world.pass(HOUR).await;
        let ids = ids_of(&runtime, "report").await;
        let expected = [
            "bounded/2026-06-05T12:05",
            "bounded/2026-06-05T12:06",
            "limited/2026-06-05T12:01",
            "limited/2026-06-05T12:02",
        ];
        assert_eq!(ids, expected.map(|id| format!("{id}:00Z")));
        let described = limited.describe().await.unwrap();
        assert_eq!((described.actions_left, described.upcoming.len()), (Some(0), 0));
        limited.trigger().await.unwrap();
        assert!(bounded.describe().await.unwrap().upcoming.is_empty());
        // An update lets it act again.
        let again = runtime
            .schedule("limited", REPORT, 1)
            .every(MINUTE)
            .actions_len_max(3);
        again.update().await.unwrap();
        world.pass(HOUR).await;
        assert_eq!(limited.describe().await.unwrap().counts.started_len, 6);
    });
}

#[test]
fn jitter_acts_later_than_the_due_time_and_the_same_each_time() {
    let times = || {
        let mut times = Vec::new();
        live("2026-06-05T12:00:30Z", async |runtime, world| {
            for number in 0..20 {
                let id = format!("s-{number}");
                let schedule = runtime.schedule(&id, REPORT, 1).every(MINUTE).jitter(HOUR);
                let schedule = schedule.await.unwrap();
                let described = schedule.describe().await.unwrap();
                let (due, acts_at) = (described.upcoming[0], described.acts_at.unwrap());
                assert!(acts_at >= due && acts_at < due + MINUTE, "before the next");
                times.push(acts_at.saturating_since(due));
            }
            world.pass(MINUTE * 2).await;
            let ids = ids_of(&runtime, "report").await;
            assert!(ids.contains(&"s-3/2026-06-05T12:01:00Z".to_owned()), "{ids:?}");
        });
        times
    };
    let first = times();
    assert_eq!(first, times());
    assert!(first.iter().any(|time| *time > SECOND * 30) && first.iter().any(|time| *time < SECOND * 30));
}

#[test]
fn a_workflow_that_is_known_by_name_only_is_scheduled_with_an_encoded_input() {
    live("2026-06-05T12:00:00Z", async |runtime, world| {
        let input = Payload::encode(&5_u64).unwrap();
        let schedule = runtime.schedule_untyped("s", "report", input).every(MINUTE);
        assert_eq!(schedule.await.unwrap().id(), "s");
        // Its code comes later, perhaps.
        let input = Payload::encode("text").unwrap();
        let unknown = runtime
            .schedule_untyped("u", "unknown", input)
            .every(MINUTE)
            .await
            .unwrap();
        world.pass(MINUTE * 2).await;
        let run = runtime.attach(REPORT, "s/2026-06-05T12:01:00Z").unwrap();
        assert_eq!(run.result().await.unwrap(), 5);
        let described = unknown.describe().await.unwrap();
        assert_eq!(described.running.as_deref(), Some("u/2026-06-05T12:01:00Z"));
        assert_eq!(described.counts.skipped_len, 1);
    });
}

#[test]
fn a_run_that_does_not_begin_is_told_and_holds_up_nothing() {
    live("2026-06-05T12:00:00Z", async |runtime, world| {
        let schedule = runtime.schedule("s", REPORT, 1).every(MINUTE).await.unwrap();
        // Its id is taken.
        let taken = runtime.start(WORK, "s/2026-06-05T12:01:00Z", ()).await.unwrap();
        world.pass(MINUTE * 2 + SECOND).await;
        let described = schedule.describe().await.unwrap();
        assert_eq!(
            (described.counts.not_started_len, described.counts.completed_len),
            (1, 1)
        );
        assert!(matches!(
            described.recent[1].end,
            Some(ActionEnd::NotStarted { .. })
        ));
        taken.cancel("it was in the way").await.unwrap();
        let outcome = runtime
            .attach(REPORT, "s/2026-06-05T12:01:00Z")
            .unwrap()
            .result()
            .await;
        assert!(matches!(
            outcome,
            Err(millrun::ResultError::Run(RunError::OtherWorkflow { .. }))
        ));
    });
}

#[test]
fn a_schedule_costs_no_turn_while_it_is_not_due() {
    live("2026-06-05T12:00:00Z", async |runtime, world| {
        let schedule = runtime.schedule("s", REPORT, 1).cron("0 0 1 1 *").await.unwrap();
        world.pass(Duration::from_secs(3_600 * 24 * 200)).await;
        let described = schedule.describe().await.unwrap();
        assert_eq!(described.upcoming[0], at("2027-01-01T00:00:00Z"));
        assert_eq!(runtime.stats().started, 1, "the schedule itself");
    });
}

#[test]
fn a_trigger_and_a_backfill_that_are_asked_for_again_start_nothing_more() {
    live("2026-06-05T12:00:00Z", async |runtime, world| {
        let schedule = runtime
            .schedule("s", REPORT, 1)
            .cron("0 * * * *")
            .overlap(OverlapPolicy::Allow);
        let schedule = schedule.await.unwrap();
        let first = schedule.trigger().request("r-1").await.unwrap();
        world.pass(SECOND).await;
        assert_eq!(schedule.trigger().request("r-1").await.unwrap(), first);
        let (from, through) = (at("2026-06-05T08:00:00Z"), at("2026-06-05T09:00:00Z"));
        for _ in 0..2 {
            schedule.backfill(from, through).request("r-2").await.unwrap();
            world.pass(SECOND).await;
        }
        assert_eq!(ids_of(&runtime, "report").await.len(), 3);
        assert_ne!(schedule.trigger().request("r-3").await.unwrap(), first);
    });
}
