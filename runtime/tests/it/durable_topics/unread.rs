//! Records that retention holds back because a durable subscription has not read them.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millrun::store::{Journal, JournalConfig, MemoryJournal};
use millrun::topics::{DurableTopicHandle, DurableTopicSummary, SubscriptionReadError, TopicReadError};
use millrun::{DurableTopic, Runtime, RuntimeBuilder, Topic};
use millrun_testkit::{SimConfig, SimHost};

use super::memory;
use crate::support::{Store, committer, cut_off};

/// Keeps one record, and all that are not read.
const HELD: DurableTopic<u64> = Topic::named("held")
    .durable()
    .len_max(1)
    .unread_bytes_max(1 << 20);

async fn over(journal: &Arc<MemoryJournal>, topic: DurableTopic<u64>) -> (Runtime, DurableTopicHandle<u64>) {
    let builder = Runtime::volatile().journal(Arc::clone(journal) as _);
    let runtime = builder.durable_topic(topic).start().await.unwrap();
    let topic = runtime.durable_topic(topic).unwrap();
    (runtime, topic)
}

async fn publish(topic: &DurableTopicHandle<u64>, numbers: std::ops::RangeInclusive<u64>) {
    for number in numbers {
        topic.publish(&number).await.unwrap();
    }
}

fn summary(runtime: &Runtime) -> DurableTopicSummary {
    runtime.durable_topics().remove(0)
}

/// Publishes until the first record that is there is this one or a later one: what is read is dropped as the store writes.
async fn publish_until_first(runtime: &Runtime, topic: &DurableTopicHandle<u64>, first: u64) {
    for number in 0..10_000 {
        if summary(runtime).first >= first {
            return;
        }
        topic.publish(&number).await.unwrap();
    }
    panic!("{first} has not come: {:?}", summary(runtime));
}

/// Opens a subscription, which begins with the first record that is there, and leaves it.
async fn begin(topic: &DurableTopicHandle<u64>, name: &str) {
    drop(topic.subscribe(name).await.unwrap());
}

/// Takes and acknowledges as many records.
async fn take(topic: &DurableTopicHandle<u64>, name: &str, len: usize) -> Vec<u64> {
    let subscription = topic.subscribe(name).await.unwrap();
    let mut taken = Vec::new();
    while taken.len() < len {
        let delivery = subscription.next().await.unwrap();
        taken.push(*delivery.payload());
        delivery.ack().unwrap().await.unwrap();
    }
    taken
}

#[tokio::test]
async fn what_a_subscription_has_not_acknowledged_stays_also_while_nobody_has_it_open() {
    let journal = memory();
    let (runtime, topic) = over(&journal, HELD).await;
    begin(&topic, "billing").await;
    publish(&topic, 1..=10).await;
    assert_eq!(take(&topic, "billing", 3).await, [1, 2, 3]);
    publish(&topic, 11..=12).await;
    assert_eq!(summary(&runtime).first, 4, "what is read goes");
    runtime.shutdown().await.unwrap();

    let (runtime, topic) = over(&Arc::new(journal.reopened()), HELD).await;
    publish(&topic, 13..=20).await;
    assert_eq!(summary(&runtime).first, 4);
    assert_eq!(
        take(&topic, "billing", 17).await,
        (4..=20).collect::<Vec<_>>(),
        "nothing is missed"
    );
    publish_until_first(&runtime, &topic, 20).await;
}

#[tokio::test]
async fn a_subscription_that_begins_now_holds_back_what_comes_and_a_removed_one_lets_go() {
    let (runtime, topic) = over(&memory(), HELD).await;
    // Without a subscription there is nothing to be held back, once that is known.
    publish_until_first(&runtime, &topic, 2).await;
    let first = summary(&runtime).first;
    let subscription = topic.subscribe("billing").await.unwrap();
    publish(&topic, 1..=10).await;
    assert_eq!(summary(&runtime).first, first);
    drop(subscription);
    publish(&topic, 1..=10).await;
    assert_eq!(summary(&runtime).first, first);
    runtime
        .remove_durable_subscription("held", "billing")
        .await
        .unwrap();
    publish_until_first(&runtime, &topic, first + 20).await;
}

#[tokio::test]
async fn the_slowest_of_several_subscriptions_counts() {
    let (runtime, topic) = over(&memory(), HELD).await;
    begin(&topic, "slow").await;
    publish(&topic, 1..=10).await;
    assert_eq!(take(&topic, "fast", 10).await.len(), 10);
    publish(&topic, 11..=11).await;
    assert_eq!(summary(&runtime).first, 1);
    assert_eq!(take(&topic, "slow", 4).await, [1, 2, 3, 4]);
    publish(&topic, 12..=12).await;
    assert_eq!(summary(&runtime).first, 5);
}

#[tokio::test]
async fn at_the_bound_the_earliest_go_and_the_subscription_is_told_how_many() {
    const LITTLE: DurableTopic<u64> = Topic::named("little").durable().len_max(1).unread_bytes_max(400);
    let (runtime, topic) = over(&memory(), LITTLE).await;
    let subscription = topic.subscribe("billing").await.unwrap();
    publish(&topic, 1..=100).await;
    let there = summary(&runtime);
    assert!((300..=500).contains(&there.bytes), "{there:?}");
    assert!(there.first > 50, "{there:?}");
    let status = subscription.status();
    assert_eq!((status.lag, status.dropped), (100, there.first - 1));
    let missed = subscription.next().await;
    let Err(SubscriptionReadError::Missed(TopicReadError::Dropped { count })) = missed else {
        panic!("{missed:?}");
    };
    assert_eq!(count, there.first - 1);
    assert_eq!(*subscription.next().await.unwrap().payload(), there.first);
    assert_eq!(subscription.status().missed, count);
}

#[tokio::test]
async fn a_place_that_cannot_be_read_holds_back_up_to_the_bound() {
    let store = Store::new();
    let open = || store.bare().durable_topic(HELD).start();
    let runtime = open().await.unwrap();
    let topic = runtime.durable_topic(HELD).unwrap();
    begin(&topic, "billing").await;
    publish(&topic, 1..=9).await;
    assert_eq!(take(&topic, "billing", 9).await.len(), 9);
    let kept = {
        let journal = runtime.store().unwrap();
        journal.path().to_owned()
    };
    runtime.shutdown().await.unwrap();
    // What the subscription has kept says version 1, and that nine records are acknowledged.
    let mut image = std::fs::read(&kept).unwrap();
    let body: Vec<u8> = [&[1_u8][..], &9_u64.to_le_bytes(), &[0; 8]].concat();
    let mut found = 0;
    for at in 0..image.len() - body.len() {
        if image[at..].starts_with(&body) {
            image[at] ^= 0xff;
            found += 1;
        }
    }
    assert!(found > 0, "what is kept is in the file");
    std::fs::write(&kept, image).unwrap();

    let runtime = open().await.unwrap();
    let topic = runtime.durable_topic(HELD).unwrap();
    let before = summary(&runtime).first;
    publish(&topic, 10..=60).await;
    assert_eq!(summary(&runtime).first, before);
    runtime.shutdown().await.unwrap();
}

/// How many values are published in each life of a crash test, and at most how many lives there are.
const VALUES: u64 = 6;

/// What is known of all lives of a crash test.
#[derive(Default)]
struct Ledger {
    taken: Mutex<BTreeSet<u64>>,
    /// The subscription is there.
    is_begun: AtomicBool,
}

/// One life: publishes, each value under its own id, and takes what is there; ends when all was taken. Once there is a
/// subscription, publishers do not wait until it is open.
async fn live(runtime: RuntimeBuilder, ledger: Arc<Ledger>) {
    let runtime = runtime.durable_topic(HELD).start().await.unwrap();
    let topic = runtime.durable_topic(HELD).unwrap();
    if !ledger.is_begun.load(Ordering::Relaxed) {
        begin(&topic, "billing").await;
        ledger.is_begun.store(true, Ordering::Relaxed);
    }
    for number in 1..=VALUES {
        topic.publish(&number).id(&number.to_string()).await.unwrap();
    }
    let subscription = topic.subscribe("billing").await.unwrap();
    while subscription.status().lag > 0 {
        let delivery = subscription.next().await;
        let delivery = delivery.unwrap_or_else(|error| panic!("{error:?}"));
        ledger.taken.lock().unwrap().insert(*delivery.payload());
        delivery.ack().unwrap().await.unwrap();
    }
    runtime.shutdown().await.unwrap();
}

/// A crash at every step, of a topic that keeps one record beyond those that are not read: each record is given, and none is
/// told as missed.
#[test]
fn no_unread_record_is_dropped_whatever_step_a_crash_is_at() {
    for seed in 1..=3 {
        let mut steps = seed;
        loop {
            let ledger = Arc::new(Ledger::default());
            let mut journal = Arc::new(MemoryJournal::held(JournalConfig::default()).unwrap());
            let mut lives = 0;
            loop {
                let sim = SimHost::new(SimConfig::seeded(seed * 1_000 + lives));
                let host = sim.host();
                let commits = host.spawn("committer", Box::pin(committer(sim.host(), Arc::clone(&journal))));
                let builder = Runtime::volatile()
                    .host(sim.host())
                    .journal(Arc::clone(&journal) as Arc<dyn Journal>);
                // Each life is a bit longer than the one before.
                let is_done = cut_off(&sim, steps * (lives + 1), live(builder, Arc::clone(&ledger)));
                drop(commits);
                journal = Arc::new(journal.reopened());
                lives += 1;
                if is_done {
                    break;
                }
            }
            assert_eq!(
                *ledger.taken.lock().unwrap(),
                (1..=VALUES).collect(),
                "seed {seed}, {steps} steps"
            );
            if lives == 1 {
                break;
            }
            steps += 4;
        }
        assert!(steps > 30, "a life has {steps} steps");
    }
}

#[test]
fn records_that_are_read_go_in_the_next_life_as_they_do_in_the_first() {
    let journal = Arc::new(MemoryJournal::new(JournalConfig::default()).unwrap());
    let sim = SimHost::new(SimConfig::seeded(7));
    let script = async {
        let builder = || {
            Runtime::volatile()
                .host(sim.host())
                .journal(Arc::clone(&journal) as Arc<dyn Journal>)
                .durable_topic(HELD)
        };
        let runtime = builder().start().await.unwrap();
        let topic = runtime.durable_topic(HELD).unwrap();
        begin(&topic, "billing").await;
        publish(&topic, 1..=5).await;
        assert_eq!(take(&topic, "billing", 4).await, [1, 2, 3, 4]);
        runtime.shutdown().await.unwrap();
    };
    sim.block_on(script).unwrap();
    sim.crash();

    let again = Arc::new(journal.reopened());
    let sim = SimHost::new(SimConfig::seeded(8));
    let script = async {
        let builder = Runtime::volatile()
            .host(sim.host())
            .journal(Arc::clone(&again) as Arc<dyn Journal>)
            .durable_topic(HELD);
        let runtime = builder.start().await.unwrap();
        let host = sim.host();
        // The places of subscriptions are read behind the start.
        host.sleep_until(host.now() + Duration::from_secs(1)).await;
        let topic = runtime.durable_topic(HELD).unwrap();
        publish(&topic, 6..=6).await;
        assert_eq!(summary(&runtime).first, 5, "nobody has opened the subscription");
        runtime.shutdown().await.unwrap();
    };
    sim.block_on(script).unwrap();
}
