use millrun_broker::{Broker, BrokerConfig};

use super::super::samples::{durations, owned, task};
use super::*;
use crate::host::{HostConfig, TokioHost};

/// An attempt counts as under way until its report is in the inbox of its shard. A shutdown closed the inbox between the two:
/// the attempt had ended, nobody heard of it, and it was made again.
#[tokio::test]
async fn an_attempt_is_under_way_until_its_report_has_been_sent() {
    let host = TokioHost::spawn(HostConfig::default()).await.unwrap();
    let broker = Broker::new(BrokerConfig::default(), host.host());
    let doors = ShardDoors::new(&broker, 1, 1).unwrap();
    let queue = TaskQueue::new(&broker, "default".into(), 300, &durations()).unwrap();
    let pool = PoolState::new(
        Arc::new(queue),
        host.host(),
        doors,
        1_024,
        Arc::new(Semaphore::new(1)),
        owned(),
        LeaseGate::open(),
    );
    let value = || Ok(Payload::encode(&1).unwrap());
    let now = Timestamp::EPOCH;
    let begin = |number| {
        let task = task(number, 0);
        assert!(pool.begin(&task, now) && pool.expect_end(task.key(), 1));
        task
    };
    let [ends, late, cancelled, quick] = [1, 2, 3, 4].map(begin);
    assert_eq!(pool.running_len(), 4);

    let (report, was_full) = pool.end(ends.key(), 1, value(), 4);
    assert!(report.is_some() && was_full);
    let page = report.map(|(_, page)| page).unwrap();
    assert_eq!(pool.running_len(), 4, "its report is on its way");
    let mut busy = PartitionSet::default();
    assert!(!pool.note_busy(&mut busy));
    pool.sent_reports(page, 1);
    assert!(pool.note_busy(&mut busy) && busy.iter().eq([ends.run.partition()]));
    assert_eq!(pool.running_len(), 3);

    // Nobody waits for a report of this one.
    pool.cancel(cancelled.key());
    let (report, was_full) = pool.end(cancelled.key(), 1, value(), 2);
    assert!(report.is_none() && was_full);
    assert_eq!(pool.running_len(), 2);

    assert!(pool.end_unsent(quick.key(), 1, &mut None).is_some());
    let (_, is_full_with_unsent) = pool.end(cancelled.key(), 1, value(), 2);
    assert!(is_full_with_unsent, "there is room when the report has been sent");
    pool.sent_reports(page, 1);

    let expired = pool.take_expired(now + late.scheduled.start_to_close);
    assert_eq!(expired.unwrap().0.operation, late.scheduled.operation);
    assert_eq!(pool.running_len(), 1);
    pool.sent_reports(page, 1);
    assert_eq!(pool.running_len(), 0);
    let mut busy = PartitionSet::default();
    assert!(pool.note_busy(&mut busy) && busy.is_empty());

    // The pool begins another while a report is on its way, and finds no room behind that: it waits to be rung for.
    let [ends, _] = [5, 6].map(begin);
    let (report, was_full) = pool.end(ends.key(), 1, value(), 3);
    assert!(report.is_some() && !was_full);
    begin(7);
    assert!(pool.sent_report(page, 3));
    assert_eq!(pool.running_len(), 2);
}
