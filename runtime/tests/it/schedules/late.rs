//! Due times that have come and were not acted on yet: behind a jitter, a pause, an update, a time without a process, and
//! a clock that was set.

use std::sync::Arc;
use std::time::Duration;

use millrun::schedules::{OverlapPolicy, ScheduleHandle};
use millrun::store::{Journal, JournalConfig, MemoryJournal};
use millrun::{Runtime, Timestamp};

use super::{END, HOUR, MINUTE, REPORT, SECOND, WORK, World, at, coded, ids_of, kept, live, world_at};

const DAY: Duration = Duration::from_secs(86_400);

/// A schedule that is due at 13:00 and acts later than 13:20, for its jitter.
async fn jittered(runtime: &Runtime, world: &World) -> ScheduleHandle {
    let mut number = 0;
    loop {
        let id = format!("s-{number}");
        let schedule = runtime.schedule(&id, REPORT, 1).every(HOUR).jitter(HOUR);
        let schedule = schedule.await.unwrap();
        let described = schedule.describe().await.unwrap();
        if described.acts_at.unwrap().saturating_since(described.upcoming[0]) > MINUTE * 20 {
            world.pass(MINUTE * 70).await;
            assert!(
                ids_of(runtime, "report").await.is_empty(),
                "it has come, and is not acted on"
            );
            return schedule;
        }
        schedule.delete().await.unwrap();
        number += 1;
    }
}

/// It was lost; or, with a description by which more is due, due times of the past were acted on that had never been.
#[test]
fn an_update_acts_on_the_due_time_that_has_come_and_on_none_of_the_past_that_never_was() {
    live("2026-06-05T12:00:00Z", async |runtime, world| {
        let schedule = jittered(&runtime, &world).await;
        let due = format!("{}/2026-06-05T13:00:00Z", schedule.id());
        let yearly = runtime.schedule(schedule.id(), REPORT, 1).cron("0 0 1 1 *");
        yearly.update().await.unwrap();
        world.pass(SECOND / 2).await;
        assert_eq!(ids_of(&runtime, "report").await, [due]);
        let often = runtime
            .schedule(schedule.id(), REPORT, 1)
            .every(SECOND)
            .overlap(OverlapPolicy::Allow);
        often.update().await.unwrap();
        world.pass(SECOND * 10).await;
        assert_eq!(ids_of(&runtime, "report").await.len(), 11);
    });
}

#[test]
fn a_due_time_that_has_come_before_a_pause_is_acted_on_behind_it() {
    live("2026-06-05T12:00:00Z", async |runtime, world| {
        let schedule = jittered(&runtime, &world).await;
        schedule.pause("").await.unwrap();
        schedule.pause("still").await.unwrap();
        world.pass(DAY).await;
        assert!(ids_of(&runtime, "report").await.is_empty());
        assert_eq!(schedule.describe().await.unwrap().backlog_len, 1);
        schedule.resume("").await.unwrap();
        world.pass(SECOND).await;
        let due = format!("{}/2026-06-05T13:00:00Z", schedule.id());
        assert_eq!(ids_of(&runtime, "report").await, [due]);
        let described = schedule.describe().await.unwrap();
        assert_eq!((described.backlog_len, described.counts.missed_len), (0, 0));
    });
}

/// Lives of one store, each in a world of its own, whose clock says what it is told.
struct Lives(Arc<MemoryJournal>);

impl Lives {
    fn new() -> Self {
        let mut config = JournalConfig::default();
        config.retention = kept();
        Self(Arc::new(MemoryJournal::new(config).unwrap()))
    }

    fn live<F: Future<Output = ()>>(&mut self, now: Timestamp, script: impl FnOnce(Runtime, World) -> F) {
        let sim = world_at(now, 11);
        let host = sim.host();
        let builder = coded(Runtime::volatile().host(sim.host()));
        let builder = builder.journal(Arc::clone(&self.0) as Arc<dyn Journal>);
        let life = async {
            let runtime = builder.start().await.unwrap();
            script(runtime.clone(), World(host)).await;
            runtime.shutdown().await.unwrap();
        };
        sim.block_on(life).unwrap();
        self.0 = Arc::new(self.0.reopened());
    }
}

#[test]
fn of_more_due_times_than_are_caught_up_with_the_latest_are_acted_on_and_the_others_counted() {
    let from = at("2026-06-05T12:00:00Z");
    let mut lives = Lives::new();
    lives.live(from, async |runtime, _| {
        let schedule = |id| runtime.schedule(id, REPORT, 1).overlap(OverlapPolicy::Allow);
        let weekly = schedule("seconds").every(SECOND).catch_up_len_max(20);
        weekly.await.unwrap();
        let window = schedule("window").every(MINUTE).catch_up_window(HOUR);
        window.await.unwrap();
        let minutes = schedule("minutes").every(MINUTE).catch_up_len_max(30);
        minutes.await.unwrap();
    });
    let back = from + DAY * 7 + SECOND / 2;
    lives.live(back, async |runtime, world| {
        world.pass(SECOND / 4).await;
        let ids = ids_of(&runtime, "report").await;
        let of = |id: &str| ids.iter().filter(|run| run.starts_with(id)).collect::<Vec<_>>();
        let seconds = of("seconds/");
        assert_eq!(seconds.len(), 20);
        assert_eq!(seconds[19], "seconds/2026-06-12T12:00:00Z");
        assert_eq!(seconds[0], "seconds/2026-06-12T11:59:41Z");
        let minutes = of("minutes/");
        assert_eq!(
            (minutes.len(), minutes[0].as_str()),
            (30, "minutes/2026-06-12T11:31:00Z")
        );
        let window = of("window/");
        assert_eq!(
            (window.len(), window[0].as_str()),
            (60, "window/2026-06-12T11:01:00Z")
        );
        let missed = async |id| {
            runtime
                .attach_schedule(id)
                .describe()
                .await
                .unwrap()
                .counts
                .missed_len
        };
        let week = 7 * 24 * 60;
        assert_eq!(missed("minutes").await, week - 30);
        assert_eq!(missed("window").await, week - 60);
        assert!((1_000..week * 60 - 20).contains(&missed("seconds").await));
    });
}

/// What a backlog has left behind a turn is acted on by the next, also behind an update.
#[test]
fn an_update_in_the_midst_of_a_backlog_loses_none_of_it() {
    let from = at("2026-06-05T12:00:00Z");
    let mut lives = Lives::new();
    lives.live(from, async |runtime, _| {
        let minutely = runtime.schedule("s", REPORT, 1).every(MINUTE);
        minutely.overlap(OverlapPolicy::Allow).await.unwrap();
    });
    lives.live(from + HOUR * 5, async |runtime, world| {
        let yearly = runtime.schedule("s", REPORT, 1).cron("0 0 1 1 *");
        yearly.overlap(OverlapPolicy::Allow).update().await.unwrap();
        world.pass(SECOND).await;
        let ids = ids_of(&runtime, "report").await;
        assert_eq!((ids.len(), ids[0].as_str()), (300, "s/2026-06-05T12:01:00Z"));
        assert_eq!(
            runtime
                .attach_schedule("s")
                .describe()
                .await
                .unwrap()
                .counts
                .missed_len,
            0
        );
    });
}

/// For some seconds the clock of the machine said 2030. The schedule slept until then, and no update woke it.
#[test]
fn a_clock_that_was_years_ahead_for_a_while_keeps_no_updated_schedule_asleep() {
    let from = at("2026-06-05T12:00:30Z");
    let mut lives = Lives::new();
    lives.live(from, async |runtime, _| {
        let schedule = runtime.schedule("s", REPORT, 1).every(MINUTE);
        schedule.await.unwrap();
    });
    lives.live(at("2030-01-01T00:00:30Z"), async |_, world| {
        world.pass(SECOND * 5).await
    });
    lives.live(from + HOUR, async |runtime, world| {
        let before = ids_of(&runtime, "report").await.len();
        let schedule = runtime.schedule("s", REPORT, 2).every(MINUTE);
        let schedule = schedule.update().await.unwrap();
        world.pass(MINUTE * 3).await;
        let ids = ids_of(&runtime, "report").await;
        assert_eq!(ids.len(), before + 3);
        assert!(ids.contains(&"s/2026-06-05T13:01:00Z".to_owned()), "{ids:?}");
        // What goes on in several turns does so at once.
        let (from, through) = (at("2026-06-05T00:00:00Z"), at("2026-06-05T01:00:00Z"));
        schedule
            .backfill(from, through)
            .overlap(OverlapPolicy::Allow)
            .await
            .unwrap();
        world.pass(SECOND).await;
        assert_eq!(ids_of(&runtime, "report").await.len(), before + 3 + 61);
    });
}

/// Set back by less than a day, it acts on no due time twice.
#[test]
fn a_clock_that_is_set_back_a_little_has_no_due_time_acted_on_twice() {
    let from = at("2026-06-05T12:00:30Z");
    let mut lives = Lives::new();
    lives.live(from, async |runtime, world| {
        runtime.schedule("s", REPORT, 1).every(MINUTE).await.unwrap();
        world.pass(MINUTE * 10).await;
    });
    lives.live(from + MINUTE * 5, async |runtime, world| {
        runtime
            .schedule("s", REPORT, 2)
            .every(MINUTE)
            .update()
            .await
            .unwrap();
        world.pass(MINUTE * 8).await;
        let ids = ids_of(&runtime, "report").await;
        let mut once = ids.clone();
        once.dedup();
        assert_eq!((ids.len(), once.len()), (13, 13));
    });
}

/// A backfill filled the buffer again in the turn that had freed it: due times that came were passed over.
#[test]
fn a_backfill_that_waits_lets_due_times_go_first() {
    live("2026-06-05T12:00:30Z", async |runtime, world| {
        let schedule = runtime
            .schedule("s", WORK, ())
            .every(HOUR)
            .buffer_len_max(2)
            .overlap(OverlapPolicy::BufferAll);
        let schedule = schedule.await.unwrap();
        let (from, through) = (at("2026-06-04T00:00:00Z"), at("2026-06-04T10:00:00Z"));
        schedule.backfill(from, through).await.unwrap();
        world.pass(HOUR * 2).await;
        let described = schedule.describe().await.unwrap();
        assert_eq!(described.counts.skipped_len, 0);
        assert_eq!(
            described.waiting,
            ["s/2026-06-05T13:00:00Z", "s/2026-06-05T14:00:00Z"]
        );
        for due in ["13", "14"] {
            let running = schedule.describe().await.unwrap().running.unwrap();
            let run = runtime.attach(WORK, &running).unwrap();
            run.signal(END, 1).await.unwrap();
            world.pass(SECOND).await;
            let running = schedule.describe().await.unwrap().running.unwrap();
            assert_eq!(running, format!("s/2026-06-05T{due}:00:00Z"));
        }
    });
}

#[test]
fn a_backfill_acts_on_no_more_than_it_may_also_when_an_update_makes_more_of_it() {
    live("2026-06-05T12:00:30Z", async |runtime, world| {
        let schedule = runtime
            .schedule("s", WORK, ())
            .every(HOUR)
            .overlap(OverlapPolicy::BufferOne);
        let schedule = schedule.await.unwrap();
        let (from, through) = (at("2026-06-04T00:00:00Z"), at("2026-06-04T10:00:00Z"));
        schedule.backfill(from, through).await.unwrap();
        world.pass(SECOND).await;
        let running = schedule.describe().await.unwrap().running.unwrap();
        let often = runtime
            .schedule("s", REPORT, 1)
            .every(SECOND)
            .ending_at(at("2026-06-05T12:00:40Z"));
        often.update().await.unwrap();
        runtime
            .attach(WORK, &running)
            .unwrap()
            .signal(END, 1)
            .await
            .unwrap();
        world.pass(HOUR).await;
        assert_eq!(schedule.describe().await.unwrap().backfills_len, 0);
        let runs = ids_of(&runtime, "report").await;
        let back = runs.iter().filter(|id| id.contains("backfill"));
        assert!(back.count() <= 1_000);
    });
}
