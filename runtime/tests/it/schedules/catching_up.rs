//! What becomes of due times that come while no process runs.

use std::sync::Arc;
use std::time::Duration;

use millrun::schedules::{OverlapPolicy, ScheduleDescription};
use millrun::store::{Journal, JournalConfig, MemoryJournal};
use millrun::{Runtime, RuntimeBuilder};
use millrun_testkit::SimHost;

use super::{HOUR, MINUTE, REPORT, at, coded, ids_of, kept, world_at};

fn open(sim: &SimHost, journal: &Arc<MemoryJournal>) -> RuntimeBuilder {
    let builder = Runtime::volatile().host(sim.host());
    coded(builder.journal(Arc::clone(journal) as Arc<dyn Journal>))
}

/// A schedule that lives for two intervals and a half, then for none for so long. What it tells behind that, and its runs.
fn check(interval: Duration, window: Duration, away: Duration) -> (ScheduleDescription, Vec<String>) {
    let mut config = JournalConfig::default();
    config.retention = kept();
    let journal = Arc::new(MemoryJournal::new(config).unwrap());
    let sim = world_at(at("2026-06-05T12:00:00Z"), 1);
    let host = sim.host();
    let life = async {
        let runtime = open(&sim, &journal).start().await.unwrap();
        let schedule = runtime
            .schedule("s", REPORT, 1)
            .every(interval)
            .overlap(OverlapPolicy::Allow)
            .catch_up_window(window);
        schedule.await.unwrap();
        host.sleep_until(host.now() + interval * 5 / 2).await;
    };
    sim.block_on(life).unwrap();
    sim.crash();
    let journal = Arc::new(journal.reopened());
    let sim = world_at(at("2026-06-05T12:00:00Z") + away, 2);
    let host = sim.host();
    let life = async {
        let runtime = open(&sim, &journal).start().await.unwrap();
        host.sleep_until(host.now() + Duration::from_millis(1)).await;
        let described = runtime.attach_schedule("s").describe().await.unwrap();
        (described, ids_of(&runtime, "report").await)
    };
    sim.block_on(life).unwrap()
}

#[test]
fn what_is_due_within_the_window_is_acted_on_and_what_is_older_is_missed() {
    let (described, ids) = check(MINUTE, MINUTE * 10, HOUR + MINUTE * 30);
    let due = |minutes: u64| {
        let minute = 60 * 12 + minutes;
        format!("s/2026-06-05T{:02}:{:02}:00Z", minute / 60, minute % 60)
    };
    let expected: Vec<String> = [1, 2].into_iter().chain(80..=90).map(due).collect();
    assert_eq!(ids, expected);
    assert_eq!(described.counts.missed_len, 77, "12:03 to 13:19");
    assert_eq!(described.upcoming[0], at("2026-06-05T13:31:00Z"));
}

#[test]
fn without_a_window_of_its_own_a_schedule_catches_up_with_all() {
    let (described, ids) = check(MINUTE, Duration::from_secs(86_400 * 365), HOUR);
    assert_eq!((ids.len(), described.counts.missed_len), (60, 0));
}
