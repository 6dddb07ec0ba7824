//! Durable subscriptions of all topics that a filter selects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use futures_util::{FutureExt, StreamExt};
use millrun::store::{Journal, JournalConfig, MemoryJournal};
use millrun::topics::{
    DurableTopicHandle, FILTERED_TOPICS_MAX, FilteredSubscription, FilteredTopicsError, ReadFrom,
    SubscriptionLost, SubscriptionOpenError, SubscriptionReadError, TopicReadError, UndeliveredRecord,
};
use millrun::{DurableTopic, Runtime, RuntimeBuilder, Topic};
use millrun_testkit::{SimConfig, SimHost};

use super::memory;
use crate::support::{committer, cut_off};

const PLACED: DurableTopic<u64> = Topic::named("orders.placed").durable();
const PAID: DurableTopic<u64> = Topic::named("orders.eu.paid").durable();
const SENT: DurableTopic<u64> = Topic::named("orders.sent").durable();
const PRICES: DurableTopic<u64> = Topic::named("prices.changed").durable();
const FAILED: DurableTopic<UndeliveredRecord> = Topic::named("orders.failed.billing").durable();

fn declared(builder: RuntimeBuilder) -> RuntimeBuilder {
    builder
        .durable_topic(PLACED)
        .durable_topic(PAID)
        .durable_topic(PRICES)
}

async fn over(journal: &Arc<MemoryJournal>) -> Runtime {
    let builder = Runtime::volatile().journal(Arc::clone(journal) as Arc<dyn Journal>);
    declared(builder).start().await.unwrap()
}

fn topic(runtime: &Runtime, topic: DurableTopic<u64>) -> DurableTopicHandle<u64> {
    runtime.durable_topic(topic).unwrap()
}

/// The next records, each acknowledged, with their topics.
async fn take(subscription: &FilteredSubscription<u64>, len: usize) -> Vec<(String, u64)> {
    let mut taken = Vec::new();
    while taken.len() < len {
        let delivery = subscription.next().await.unwrap();
        taken.push((delivery.topic().to_owned(), *delivery.payload()));
        delivery.ack().unwrap().await.unwrap();
    }
    taken
}

#[tokio::test]
async fn records_of_all_topics_of_a_filter_come_in_turn_and_each_topic_goes_on_where_it_was() {
    let journal = memory();
    let runtime = over(&journal).await;
    let orders = runtime.durable_topics_of::<u64>("orders.>").unwrap();
    assert_eq!(
        orders.names().collect::<Vec<_>>(),
        ["orders.eu.paid", "orders.placed"]
    );
    let audit = orders.subscribe("audit").await.unwrap();
    for number in 1..=3 {
        topic(&runtime, PLACED).publish(&number).await.unwrap();
        topic(&runtime, PRICES).publish(&number).await.unwrap();
    }
    topic(&runtime, PAID).publish(&9).await.unwrap();
    let mut taken = take(&audit, 3).await;
    assert!(
        taken.iter().any(|(topic, _)| topic == "orders.eu.paid"),
        "no topic waits behind another that has more: {taken:?}"
    );
    drop(audit);
    runtime.shutdown().await.unwrap();

    let runtime = over(&Arc::new(journal.reopened())).await;
    let audit = runtime.durable_topics_of::<u64>("orders.>").unwrap();
    let audit = audit.subscribe("audit").from(ReadFrom::Now).await.unwrap();
    taken.extend(take(&audit, 1).await);
    assert!(audit.next().now_or_never().is_none(), "nothing is given twice");
    taken.sort();
    let placed = (1..=3).map(|number| ("orders.placed".to_owned(), number));
    let expected: Vec<_> = [("orders.eu.paid".to_owned(), 9)]
        .into_iter()
        .chain(placed)
        .collect();
    assert_eq!(taken, expected);
    let lags: Vec<_> = audit
        .statuses()
        .into_iter()
        .map(|(topic, status)| (topic, status.lag))
        .collect();
    assert_eq!(lags, [("orders.eu.paid", 0), ("orders.placed", 0)]);
    // Each is a subscription of its topic.
    let told = runtime
        .durable_subscriptions("orders.placed", None, 10)
        .await
        .unwrap();
    assert_eq!((told[0].name.as_str(), told[0].is_open), ("audit", true));
    let told = runtime
        .durable_subscriptions("prices.changed", None, 10)
        .await
        .unwrap();
    assert!(told.is_empty());
}

#[tokio::test]
async fn no_topic_waits_until_one_before_it_has_nothing_left() {
    let runtime = over(&memory()).await;
    let orders = runtime.durable_topics_of::<u64>("orders.>").unwrap();
    let audit = orders.subscribe("audit").in_flight_max(16).await.unwrap();
    let busy = topic(&runtime, PAID);
    for number in 1..=64 {
        busy.publish(&number).await.unwrap();
    }
    assert_eq!(take(&audit, 4).await.len(), 4);
    topic(&runtime, PLACED).publish(&7).await.unwrap();
    // The topic before it in the order of names never has nothing, and has records in hand.
    let mut taken = Vec::new();
    for number in 65..=80 {
        busy.publish(&number).await.unwrap();
        taken.extend(take(&audit, 1).await);
    }
    let place = taken.iter().position(|(topic, _)| topic == "orders.placed");
    assert!(place.is_some_and(|place| place <= 2), "{taken:?}");
}

#[tokio::test]
async fn a_topic_that_was_deleted_is_selected_no_more() {
    let builder = declared(Runtime::volatile()).durable_topic(SENT);
    let runtime = builder.start().await.unwrap();
    runtime.delete_durable_topic("orders.sent").await.unwrap();
    let orders = runtime.durable_topics_of::<u64>("orders.*").unwrap();
    assert_eq!(orders.names().collect::<Vec<_>>(), ["orders.placed"]);
    orders.subscribe("audit").await.unwrap();
    runtime.delete_durable_topic("orders.placed").await.unwrap();
    let none = runtime.durable_topics_of::<u64>("orders.*").map(drop);
    assert!(
        matches!(none, Err(FilteredTopicsError::NoTopic { .. })),
        "{none:?}"
    );
}

#[tokio::test]
async fn a_consumer_that_waits_is_woken_by_a_record_of_any_topic() {
    let runtime = over(&memory()).await;
    let orders = runtime.durable_topics_of::<u64>("orders.>").unwrap();
    let audit = orders.subscribe("audit").await.unwrap();
    for (number, declared) in [(1, PAID), (2, PLACED), (3, PAID)] {
        let waits = tokio::spawn({
            let audit = audit.clone();
            async move { take(&audit, 1).await }
        });
        tokio::task::yield_now().await;
        topic(&runtime, declared).publish(&number).await.unwrap();
        let name = declared.topic().name().to_owned();
        assert_eq!(waits.await.unwrap(), [(name, number)]);
    }
}

#[tokio::test]
async fn filters_that_select_nothing_another_type_or_too_much_are_refused() {
    let builder = declared(Runtime::volatile()).durable_topic(FAILED);
    let runtime = builder.start().await.unwrap();
    let refused = |filter: &str| runtime.durable_topics_of::<u64>(filter).map(drop).unwrap_err();
    assert!(matches!(refused("orders..paid"), FilteredTopicsError::Filter(_)));
    let filter = "parcels.>".to_owned();
    assert_eq!(refused("parcels.>"), FilteredTopicsError::NoTopic { filter });
    match refused("orders.>") {
        FilteredTopicsError::OtherType { name, carries } => {
            assert_eq!(name, "orders.failed.billing");
            assert!(carries.contains("UndeliveredRecord"), "{carries}");
        }
        other => panic!("{other:?}"),
    }
    runtime.durable_topics_of::<u64>("orders.*").unwrap();

    let mut builder = Runtime::volatile();
    for number in 0..=FILTERED_TOPICS_MAX {
        let name: &'static str = Box::leak(format!("many.{number}").into_boxed_str());
        builder = builder.durable_topic(Topic::<u64>::named(name).durable());
    }
    let many = builder.start().await.unwrap();
    let len = FILTERED_TOPICS_MAX + 1;
    let refused = many.durable_topics_of::<u64>("many.*").map(drop);
    assert_eq!(refused, Err(FilteredTopicsError::TooMany { len }));
    let all_but_one = many.durable_topics_of::<u64>("many.1").unwrap();
    assert_eq!(all_but_one.names().count(), 1);
}

#[tokio::test]
async fn what_is_said_holds_for_each_topic_and_what_fails_names_its_topic() {
    let builder = declared(Runtime::volatile()).durable_topic(FAILED);
    let runtime = builder.start().await.unwrap();
    let orders = runtime.durable_topics_of::<u64>("orders.*").unwrap();
    let refused = orders.subscribe("audit").in_flight_max(0).await.unwrap_err();
    assert_eq!(refused.topic, "orders.placed");
    assert!(matches!(
        refused.error,
        SubscriptionOpenError::Bound {
            field: "in_flight_max",
            ..
        }
    ));

    // Nothing was opened, though the name is right for the shorter of the two topics alone.
    let name = "n".repeat(100);
    let long: &'static str = Box::leak(format!("orders.{}", "l".repeat(140)).into_boxed_str());
    let builder = declared(Runtime::volatile()).durable_topic(Topic::<u64>::named(long).durable());
    let other = builder.start().await.unwrap();
    let selected = other.durable_topics_of::<u64>("*.*").unwrap();
    assert_eq!(selected.names().next(), Some(long));
    let refused = selected.subscribe(&name).await.unwrap_err();
    assert!(
        matches!(refused.error, SubscriptionOpenError::Name { .. }),
        "{refused:?}"
    );
    let told = other
        .durable_subscriptions("orders.placed", None, 10)
        .await
        .unwrap();
    assert!(told.is_empty(), "{told:?}");

    // Bounds count for each topic, and so does the topic for what is not delivered.
    let both = runtime.durable_topics_of::<u64>("*.*").unwrap();
    let both = both
        .subscribe("billing")
        .in_flight_max(1)
        .unordered()
        .undelivered_to(FAILED, 1);
    let both = both.await.unwrap();
    for declared in [PLACED, PRICES] {
        for number in 1..=2 {
            topic(&runtime, declared).publish(&number).await.unwrap();
        }
    }
    let first = both.next().await.unwrap();
    let second = both.next().await.unwrap();
    assert_ne!(first.topic(), second.topic());
    assert!(both.next().now_or_never().is_none(), "each topic has one in hand");
    let failed = first.topic().to_owned();
    first
        .send_back(std::time::Duration::ZERO, "no")
        .unwrap()
        .await
        .unwrap();
    second.ack().unwrap().await.unwrap();
    assert_eq!(take(&both, 2).await.len(), 2);
    let undelivered = runtime.durable_topic(FAILED).unwrap();
    let mut undelivered = undelivered.read(ReadFrom::Beginning).await.unwrap();
    assert_eq!(undelivered.next().await.unwrap().payload().topic, failed);
}

#[tokio::test]
async fn a_topic_that_is_lost_is_told_once_and_the_others_go_on() {
    const FEW: DurableTopic<u64> = SENT.len_max(2);
    let builder = declared(Runtime::volatile()).durable_topic(FEW);
    let runtime = builder.start().await.unwrap();
    let orders = runtime.durable_topics_of::<u64>("orders.*").unwrap();
    let audit = orders.subscribe("audit").await.unwrap();
    for number in 1..=5 {
        topic(&runtime, FEW).publish(&number).await.unwrap();
    }
    let missed = audit.next().await.unwrap_err();
    assert_eq!(missed.topic, "orders.sent");
    assert!(matches!(
        missed.error,
        SubscriptionReadError::Missed(TopicReadError::Dropped { count: 3 })
    ));
    assert_eq!(take(&audit, 2).await.len(), 2);
    runtime.delete_durable_topic("orders.sent").await.unwrap();
    let is_deleted = |error: &SubscriptionReadError| {
        matches!(error, SubscriptionReadError::Lost(SubscriptionLost::Deleted))
    };
    let lost = audit.next().await.unwrap_err();
    assert!(lost.topic == "orders.sent" && is_deleted(&lost.error), "{lost:?}");
    topic(&runtime, PLACED).publish(&7).await.unwrap();
    assert_eq!(take(&audit, 1).await, [("orders.placed".to_owned(), 7)]);
    runtime.delete_durable_topic("orders.placed").await.unwrap();
    let told: Vec<_> = audit.clone().into_stream().collect().await;
    assert_eq!(told.len(), 1, "the stream ends behind the last that is lost");
    let again = audit.next().await.unwrap_err();
    assert!(is_deleted(&again.error), "{again:?}");
}

/// How many values each topic has in a crash test.
const VALUES: u64 = 4;

/// What was given of each topic, and what of that was acknowledged durably.
#[derive(Default)]
struct Ledger {
    given: BTreeMap<String, BTreeSet<u64>>,
    acknowledged: BTreeMap<String, BTreeSet<u64>>,
}

async fn live(builder: RuntimeBuilder, ledger: Arc<Mutex<Ledger>>) {
    let runtime = declared(builder).start().await.unwrap();
    let orders = runtime.durable_topics_of::<u64>("orders.>").unwrap();
    let audit = orders.subscribe("audit").await.unwrap();
    for number in 1..=VALUES {
        for declared in [PLACED, PAID] {
            let publish = topic(&runtime, declared);
            publish.publish(&number).id(&number.to_string()).await.unwrap();
        }
    }
    while audit.statuses().iter().any(|(_, status)| status.lag > 0) {
        let delivery = audit.next().await.unwrap();
        let (topic, number) = (delivery.topic().to_owned(), *delivery.payload());
        {
            let mut ledger = ledger.lock().unwrap();
            let acknowledged = ledger.acknowledged.entry(topic.clone()).or_default();
            assert!(
                !acknowledged.contains(&number),
                "{topic} {number} was acknowledged before"
            );
            ledger.given.entry(topic.clone()).or_default().insert(number);
        }
        delivery.ack().unwrap().await.unwrap();
        let mut ledger = ledger.lock().unwrap();
        ledger.acknowledged.entry(topic).or_default().insert(number);
    }
    runtime.shutdown().await.unwrap();
}

#[test]
fn a_crash_at_any_step_gives_again_what_was_not_acknowledged_of_each_topic_and_nothing_else() {
    for seed in 1..=2 {
        let mut steps = seed;
        loop {
            let ledger = Arc::new(Mutex::new(Ledger::default()));
            let mut journal = Arc::new(MemoryJournal::held(JournalConfig::default()).unwrap());
            let mut lives = 0;
            loop {
                let sim = SimHost::new(SimConfig::seeded(seed * 1_000 + lives));
                let commits = Box::pin(committer(sim.host(), Arc::clone(&journal)));
                let commits = sim.host().spawn("committer", commits);
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
            let ledger = ledger.lock().unwrap();
            let all =
                ["orders.eu.paid", "orders.placed"].map(|topic| (topic.to_owned(), (1..=VALUES).collect()));
            assert_eq!(ledger.given, all.into(), "seed {seed}, {steps} steps");
            if lives == 1 {
                break;
            }
            steps += 5;
        }
        assert!(steps > 30, "a life has {steps} steps");
    }
}
