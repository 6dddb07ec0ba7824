//! Records that are dropped by their age, by the clock of the host.

use std::sync::Arc;
use std::time::Duration;

use millrun::store::{Journal, JournalConfig, MemoryJournal};
use millrun::topics::{DurableTopicHandle, ReadFrom, SubscriptionReadError, TopicReadError};
use millrun::{DurableTopic, Runtime, RuntimeBuilder, Topic};
use millrun_testkit::{SimConfig, SimHost};

use super::take;
use crate::support::Store;

const HOUR: Duration = Duration::from_secs(3_600);
const AGED: DurableTopic<u64> = Topic::named("aged")
    .durable()
    .age_max(Duration::from_secs(3 * 3_600));
/// Keeps for a week.
const BESIDE: DurableTopic<u64> = Topic::named("beside").durable();

async fn open(sim: &SimHost, builder: RuntimeBuilder) -> (Runtime, DurableTopicHandle<u64>) {
    let builder = builder.host(sim.host()).durable_topic(AGED).durable_topic(BESIDE);
    let runtime = builder.start().await.unwrap();
    let topic = runtime.durable_topic(AGED).unwrap();
    (runtime, topic)
}

/// The first and the last record of a topic.
fn bounds(runtime: &Runtime, name: &str) -> (u64, u64) {
    let topics = runtime.durable_topics();
    let topic = topics.iter().find(|topic| topic.name == name).unwrap();
    (topic.first, topic.last)
}

async fn publish(topic: &DurableTopicHandle<u64>, numbers: std::ops::RangeInclusive<u64>) {
    for number in numbers {
        topic.publish(&number).await.unwrap();
    }
}

async fn first_life(sim: &SimHost, builder: RuntimeBuilder, has_upkeep: bool) {
    let pass = |time| {
        let host = sim.host();
        async move { host.sleep_until(host.now() + time).await }
    };
    let (runtime, topic) = open(sim, builder).await;
    let beside = runtime.durable_topic(BESIDE).unwrap();
    publish(&beside, 1..=1).await;
    publish(&topic, 1..=3).await;
    let mut reader = topic.read(ReadFrom::Beginning).await.unwrap();
    let first = take(&mut reader, 1).await[0].token();
    let billing = topic.subscribe("billing").await.unwrap();
    let delivery = billing.next().await.unwrap();
    delivery.ack().unwrap().await.unwrap();
    drop(billing);

    pass(HOUR * 2).await;
    publish(&topic, 4..=5).await;
    assert_eq!(bounds(&runtime, "aged"), (1, 5), "none is old enough");
    pass(HOUR + HOUR / 2).await;
    // What is due is dropped with the next commit.
    publish(&topic, 6..=6).await;
    publish(&beside, 2..=2).await;
    assert_eq!(bounds(&runtime, "aged"), (4, 6));
    assert_eq!(bounds(&runtime, "beside"), (1, 2), "the other topic keeps longer");
    let mut reader = topic.read(ReadFrom::After(first)).await.unwrap();
    let dropped = reader.next().await.unwrap_err();
    assert!(
        matches!(dropped, TopicReadError::Dropped { count: 2 }),
        "{dropped}"
    );
    let after: Vec<_> = take(&mut reader, 3).await;
    assert_eq!(
        after.iter().map(|record| *record.payload()).collect::<Vec<_>>(),
        [4, 5, 6]
    );
    let billing = topic.subscribe("billing").await.unwrap();
    let told = billing.next().await.map(|delivery| *delivery.payload());
    let missed = SubscriptionReadError::Missed(TopicReadError::Dropped { count: 2 });
    assert_eq!(format!("{told:?}"), format!("{:?}", Err::<u64, _>(missed)));
    assert_eq!(*billing.next().await.unwrap().payload(), 4);

    if has_upkeep {
        pass(HOUR * 4).await;
        runtime.store().unwrap().upkeep().await.unwrap();
        assert_eq!(bounds(&runtime, "aged"), (7, 6), "all are too old");
        assert_eq!(bounds(&runtime, "beside"), (1, 2));
    }
    runtime.shutdown().await.unwrap();
}

/// Numbers go on behind what was dropped, also where nothing is left.
async fn second_life(sim: &SimHost, builder: RuntimeBuilder, first: u64) {
    let (runtime, topic) = open(sim, builder).await;
    assert_eq!(bounds(&runtime, "aged"), (first, 6));
    assert_eq!(topic.publish(&7).await.unwrap().sequence().get(), 7);
    assert_eq!(bounds(&runtime, "aged"), (first, 7));
    runtime.shutdown().await.unwrap();
}

#[test]
fn records_in_memory_go_with_their_age_and_who_reads_behind_them_is_told_how_many() {
    let sim = SimHost::new(SimConfig::seeded(1));
    let over =
        |journal: &Arc<MemoryJournal>| Runtime::volatile().journal(Arc::clone(journal) as Arc<dyn Journal>);
    let journal = Arc::new(MemoryJournal::new(JournalConfig::default()).unwrap());
    sim.block_on(first_life(&sim, over(&journal), false)).unwrap();
    let journal = Arc::new(journal.reopened());
    sim.block_on(second_life(&sim, over(&journal), 4)).unwrap();
}

#[test]
fn records_in_a_file_go_with_their_age_and_an_upkeep_drops_what_is_due_without_a_publish() {
    let (sim, store) = (SimHost::new(SimConfig::seeded(2)), Store::new());
    sim.block_on(first_life(&sim, store.bare(), true)).unwrap();
    sim.block_on(second_life(&sim, store.bare(), 7)).unwrap();
}
