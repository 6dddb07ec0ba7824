//! Bad input: each is refused with an error that says what to do, and nothing changes.

use std::error::Error;
use std::time::Duration;

use millrun::schedules::{CronError, SCHEDULE_ID_BYTES_MAX, ScheduleCalendar, ScheduleError};
use millrun::{Payload, StartError};

use super::{HOUR, MINUTE, REPORT, at, live};

/// The error with its sources, as a log shows it.
fn told(error: &ScheduleError) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(&format!(": {error}"));
        source = error.source();
    }
    text
}

#[test]
fn what_is_no_schedule_is_refused_with_what_to_do_and_nothing_changes() {
    live("2026-06-05T12:00:00Z", async |runtime, _| {
        let kept = runtime.schedule("kept", REPORT, 1).every(HOUR).await.unwrap();
        let before = kept.describe().await.unwrap();
        for id in ["new", "kept"] {
            let base = || runtime.schedule(id, REPORT, 1);
            let hourly = || base().every(HOUR);
            let calendar = ScheduleCalendar::new().hours([24]);
            for (schedule, part) in [
                (base(), "give it a cron line"),
                (base().cron("61 * * * *"), "give 0 to 59"),
                (base().cron("0 0 * *"), "and this one has 4"),
                (base().cron("0 0 31 2 *"), "never due from now on"),
                (hourly().cron("0 0 31 2 *"), "never due from now on"),
                (hourly().catch_up_len_max(0), "give 1 to 1000"),
                (hourly().zone("Europe/Berlim"), "as Europe/Berlin"),
                (base().every(Duration::from_millis(1_500)), "give whole ones"),
                (base().every(Duration::ZERO), "give 1 to"),
                (base().calendar(calendar), "24 is no hour: give 0 to 23"),
                (
                    base().calendar(ScheduleCalendar::new().months([])),
                    "no month is selected",
                ),
                (
                    hourly()
                        .starting_at(at("2027-01-01T00:00:00Z"))
                        .ending_at(at("2027-01-01T00:00:00Z")),
                    "a later end",
                ),
                (
                    hourly().ending_at(at("2026-06-05T11:00:00Z")),
                    "never due from now on",
                ),
                (hourly().actions_len_max(0), "give 1 or more"),
                (hourly().buffer_len_max(0), "give 1 to 1000"),
                (hourly().catch_up_window(Duration::ZERO), "give one second"),
                (hourly().jitter(Duration::MAX), "at most 366 days"),
                (
                    (0..65).fold(base(), |schedule, _| schedule.cron("0 0 * * *")),
                    "make several",
                ),
            ] {
                let what = format!("{schedule:?}");
                let error = match id {
                    "new" => schedule.await.unwrap_err(),
                    _ => schedule.update().await.unwrap_err(),
                };
                assert!(!error.is_retryable());
                let part = part.replace("a later end", "give an end that is later");
                assert!(told(&error).contains(&part), "{what}: {}", told(&error));
            }
        }
        assert_eq!(kept.describe().await.unwrap(), before);
        assert_eq!(runtime.schedules(None, 10).await.unwrap().schedules.len(), 1);
        assert_eq!(runtime.stats().started, 1);
    });
}

#[test]
fn an_id_a_workflow_or_an_input_that_is_none_is_refused() {
    live("2026-06-05T12:00:00Z", async |runtime, _| {
        for id in [String::new(), "x".repeat(SCHEDULE_ID_BYTES_MAX + 1)] {
            let refused = runtime.schedule(&id, REPORT, 1).every(MINUTE).await;
            assert!(matches!(refused, Err(ScheduleError::Id { .. })));
            let refused = runtime.attach_schedule(&id).trigger().await;
            assert!(matches!(refused, Err(ScheduleError::Id { .. })));
        }
        let longest = "x".repeat(SCHEDULE_ID_BYTES_MAX);
        let schedule = runtime.schedule(&longest, REPORT, 1).every(MINUTE).await.unwrap();
        let run = schedule.trigger().await.unwrap();
        assert_eq!(runtime.attach(REPORT, &run).unwrap().id().as_str(), run);

        let input = Payload::encode("text").unwrap();
        let wrong = runtime
            .schedule_untyped("s", "report", input.clone())
            .every(MINUTE)
            .await;
        assert!(matches!(
            wrong,
            Err(ScheduleError::Start(StartError::WrongType(_)))
        ));
        let reserved = runtime
            .schedule_untyped("s", "millrun.bulk", input.clone())
            .every(MINUTE)
            .await;
        assert!(matches!(
            reserved,
            Err(ScheduleError::Start(StartError::ReservedName { .. }))
        ));
        let nameless = runtime.schedule_untyped("s", "", input).every(MINUTE).await;
        assert!(matches!(
            nameless,
            Err(ScheduleError::Start(StartError::Name { bytes: 0 }))
        ));
        let large = Payload::encode(&vec![7_u8; 16 << 20]).unwrap();
        let large = runtime.schedule_untyped("s", "other", large).every(MINUTE).await;
        assert!(matches!(
            large,
            Err(ScheduleError::Start(StartError::TooLarge { .. }))
        ));
        let note = schedule.pause(&"x".repeat(2_000)).await;
        assert!(matches!(
            note,
            Err(ScheduleError::Setting { setting: "note", .. })
        ));
        let line = runtime.schedule("s", REPORT, 1).cron("@reboot").await;
        assert!(matches!(
            line,
            Err(ScheduleError::Cron {
                source: CronError::Shorthand { .. },
                ..
            })
        ));
    });
}

#[test]
fn backfills_of_one_schedule_are_bounded() {
    live("2026-06-05T12:00:00Z", async |runtime, _| {
        let schedule = runtime
            .schedule("s", super::WORK, ())
            .every(HOUR)
            .buffer_len_max(1);
        let schedule = schedule.await.unwrap();
        let backfill = async || {
            let (from, through) = (at("2026-06-05T00:00:00Z"), at("2026-06-05T10:00:00Z"));
            schedule
                .backfill(from, through)
                .overlap(millrun::schedules::OverlapPolicy::BufferAll)
                .await
        };
        for _ in 0..10 {
            backfill().await.unwrap();
        }
        let refused = backfill().await.unwrap_err();
        assert!(matches!(refused, ScheduleError::TooManyBackfills { len_max: 10 }));
        assert!(refused.is_retryable());
    });
}
