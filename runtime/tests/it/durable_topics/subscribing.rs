//! Durable subscriptions: what is not acknowledged comes again, and what is never does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use millrun::store::{Journal, JournalConfig, MemoryJournal};
use millrun::topics::{
    DurableSubscription, DurableTopicHandle, PurgeBefore, ReadFrom, ReadFromError, SubscriptionOpenError,
    SubscriptionReadError, TopicLookError, TopicManageError, TopicReadError, UndeliveredRecord,
};
use millrun::{DurableTopic, Payload, Runtime, Timestamp, Topic, Workflow, WorkflowContext, WorkflowError};
use millrun_testkit::{SimConfig, SimHost};

use super::{NUMBERS, append_raw, memory, numbers, records_of};
use crate::tapped::Tapped;

const UNDELIVERED: DurableTopic<UndeliveredRecord> = Topic::named("undelivered").durable();

async fn over(journal: &Arc<MemoryJournal>) -> (Runtime, DurableTopicHandle<u64>) {
    let builder = Runtime::volatile().journal(Arc::clone(journal) as _);
    let builder = builder.durable_topic(NUMBERS).durable_topic(UNDELIVERED);
    let runtime = builder.start().await.unwrap();
    let topic = runtime.durable_topic(NUMBERS).unwrap();
    (runtime, topic)
}

async fn publish(topic: &DurableTopicHandle<u64>, numbers: std::ops::Range<u64>) {
    for number in numbers {
        topic.publish(&number).await.unwrap();
    }
}

/// The next records, as many as this, each acknowledged.
async fn take(subscription: &DurableSubscription<u64>, len: usize) -> Vec<u64> {
    let mut taken = Vec::new();
    while taken.len() < len {
        let delivery = subscription.next().await.unwrap();
        taken.push(*delivery.payload());
        delivery.ack().unwrap().await.unwrap();
    }
    taken
}

#[tokio::test]
async fn a_subscription_that_cannot_begin_leaves_nothing_behind() {
    const OTHER: DurableTopic<u64> = Topic::named("other").durable();
    let journal = memory();
    let builder = Runtime::volatile().journal(Arc::clone(&journal) as Arc<dyn Journal>);
    let builder = builder.durable_topic(NUMBERS).durable_topic(OTHER);
    let runtime = builder.start().await.unwrap();
    let other = runtime.durable_topic(OTHER).unwrap();
    let token = other.publish(&1).await.unwrap().token();
    let numbers = runtime.durable_topic(NUMBERS).unwrap();
    let kept = || journal.topics().unwrap().list().len();
    let before = kept();
    for name in ["billing", "shipping"] {
        let refused = numbers.subscribe(name).from(ReadFrom::After(token)).await;
        assert!(
            matches!(
                refused,
                Err(SubscriptionOpenError::From(ReadFromError::OtherTopic))
            ),
            "{refused:?}"
        );
    }
    assert_eq!(kept(), before);
    // One that is kept goes on where it is, whatever the opening says.
    drop(numbers.subscribe("billing").await.unwrap());
    numbers
        .subscribe("billing")
        .from(ReadFrom::After(token))
        .await
        .unwrap();
    assert_eq!(kept(), before + 1);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_subscription_begins_where_it_says_and_goes_on_where_it_was() {
    let journal = memory();
    let (runtime, topic) = over(&journal).await;
    publish(&topic, 0..10).await;
    let mut reader = topic.read(ReadFrom::Beginning).await.unwrap();
    let third = super::take(&mut reader, 3).await.pop().unwrap().token();
    for (name, from, first) in [
        ("all", ReadFrom::Beginning, Some(0)),
        ("behind", ReadFrom::After(third), Some(3)),
        ("new", ReadFrom::Now, None),
    ] {
        let subscription = topic.subscribe(name).from(from).await.unwrap();
        let lag = first.map_or(0, |first| 10 - first);
        assert_eq!(subscription.status().lag, lag, "{name}");
        if let Some(first) = first {
            assert_eq!(take(&subscription, 2).await, [first, first + 1]);
            // Given and not acknowledged.
            drop(subscription.next().await.unwrap());
        }
    }
    runtime.shutdown().await.unwrap();
    let (runtime, topic) = over(&Arc::new(journal.reopened())).await;
    publish(&topic, 10..12).await;
    for (name, expected) in [("all", 2..12), ("behind", 5..12), ("new", 10..12)] {
        // Wherever it says now that it begins.
        let subscription = topic.subscribe(name).from(ReadFrom::Now).await.unwrap();
        let (len, expected) = (expected.clone().count(), expected.collect::<Vec<_>>());
        assert_eq!(take(&subscription, len).await, expected, "{name}");
        assert!(
            subscription.next().now_or_never().is_none(),
            "nothing is given twice"
        );
        assert_eq!(subscription.status().lag, 0);
    }
    runtime.shutdown().await.unwrap();
}

/// A journal knows times only of what was written together, and may have written all of it together.
#[test]
fn a_subscription_from_a_time_begins_with_the_first_record_of_that_time_or_a_later_one() {
    let sim = SimHost::new(SimConfig::seeded(1));
    let host = sim.host();
    let journal = Tapped::new(memory(), |journal, batch| journal.enqueue(batch));
    journal.keep_topics();
    journal.write_together();
    let work = async move {
        let builder = Runtime::volatile().host(Arc::clone(&host) as _);
        let builder = builder
            .journal(journal as Arc<dyn Journal>)
            .durable_topic(NUMBERS);
        let runtime = builder.start().await.unwrap();
        let topic = runtime.durable_topic(NUMBERS).unwrap();
        let pause = Duration::from_secs(1);
        publish(&topic, 0..3).await;
        host.sleep_until(host.now() + pause).await;
        let time = host.now();
        publish(&topic, 3..5).await;
        host.sleep_until(host.now() + pause).await;
        for (time, first) in [(Timestamp::EPOCH, 0), (time, 3), (host.now(), 5)] {
            let name = format!("from-{first}");
            let subscription = topic.subscribe(&name).from(ReadFrom::Time(time)).await.unwrap();
            assert_eq!(subscription.status().lag, 5 - first);
            if first < 5 {
                assert_eq!(take(&subscription, 1).await, [first]);
            }
        }
        runtime.shutdown().await.unwrap();
    };
    sim.block_on(work).unwrap();
}

#[tokio::test]
async fn a_subscription_as_a_stream_gives_what_it_gives_and_ends_with_the_runtime() {
    let (runtime, topic) = numbers().await;
    publish(&topic, 0..3).await;
    let subscription = topic.subscribe("billing").await.unwrap();
    let mut deliveries = Box::pin(subscription.clone().into_stream());
    for number in 0..3 {
        let delivery = deliveries.next().await.unwrap().unwrap();
        assert_eq!(*delivery.payload(), number);
        delivery.ack().unwrap().await.unwrap();
    }
    assert!(deliveries.next().now_or_never().is_none());
    assert_eq!(subscription.status().lag, 0);
    runtime.shutdown().await.unwrap();
    let last = deliveries.next().await.unwrap();
    assert!(matches!(last, Err(SubscriptionReadError::Lost(_))), "{last:?}");
    assert!(deliveries.next().await.is_none());
}

#[tokio::test]
async fn a_record_that_is_sent_back_comes_again_with_its_error_and_is_buried_in_the_end() {
    let journal = memory();
    let (runtime, topic) = over(&journal).await;
    topic.publish(&7).key("k").correlation("order").await.unwrap();
    topic.publish(&8).key("k").await.unwrap();
    let subscribe = |topic: &DurableTopicHandle<u64>| {
        let topic = topic.clone();
        async move {
            topic
                .subscribe("strict")
                .undelivered_to(UNDELIVERED, 3)
                .await
                .unwrap()
        }
    };
    let subscription = subscribe(&topic).await;
    for attempt in 1..=2_u32 {
        let delivery = subscription.next().await.unwrap();
        assert_eq!((*delivery.payload(), delivery.deliveries()), (7, attempt));
        assert_eq!(delivery.last_error().is_some(), attempt > 1);
        assert!(subscription.next().now_or_never().is_none(), "its key waits");
        let error = format!("attempt {attempt}");
        delivery.send_back(Duration::ZERO, &error).unwrap().await.unwrap();
    }
    // How often it was given is known to the next process.
    runtime.shutdown().await.unwrap();
    let (runtime, topic) = over(&Arc::new(journal.reopened())).await;
    let subscription = subscribe(&topic).await;
    let delivery = subscription.next().await.unwrap();
    assert_eq!(
        (delivery.deliveries(), delivery.last_error()),
        (3, Some("attempt 2"))
    );
    delivery
        .send_back(Duration::from_secs(3_600), "the last")
        .unwrap()
        .await
        .unwrap();
    assert_eq!(take(&subscription, 1).await, [8], "its key goes on");

    let undelivered = runtime.durable_topic(UNDELIVERED).unwrap();
    let mut reader = undelivered.read(ReadFrom::Beginning).await.unwrap();
    let buried = reader.next().await.unwrap();
    let record = buried.payload();
    assert_eq!(
        (buried.key(), record.correlation.as_deref()),
        (Some("k"), Some("order"))
    );
    assert_eq!((record.deliveries, record.error.as_str()), (3, "the last"));
    assert_eq!(
        (record.topic.as_str(), record.subscription.as_str()),
        ("numbers", "strict")
    );
    for is_repeat in [false, true] {
        let sent_back = undelivered.send_back(record).await.unwrap();
        assert_eq!(
            (sent_back.sequence().get(), sent_back.is_repeat()),
            (3, is_repeat)
        );
    }
    assert_eq!(take(&subscription, 1).await, [7], "it joins at the end");
    runtime.shutdown().await.unwrap();
}

/// The topic of the numbers, as another program has it.
const TEXTS: DurableTopic<String> = Topic::named("numbers").durable();
/// A record with a header that a later release writes.
const LATER: &[u8] = b"\x02\x81 a header of a later release, and a payload";

/// A journal with a text under the key `k`, and a record of a later release.
async fn with_undecodable() -> Arc<MemoryJournal> {
    let journal = memory();
    let builder = Runtime::volatile().journal(Arc::clone(&journal) as _);
    let runtime = builder.durable_topic(TEXTS).start().await.unwrap();
    let texts = runtime.durable_topic(TEXTS).unwrap();
    texts.publish(&"text".to_owned()).key("k").await.unwrap();
    runtime.shutdown().await.unwrap();
    let journal = Arc::new(journal.reopened());
    append_raw(&journal, "numbers", LATER);
    journal
}

/// Both records that cannot be decoded are buried with their bytes, and sent back they are what they were.
async fn are_buried_and_sent_back(runtime: Runtime, journal: Arc<MemoryJournal>) {
    let undelivered = runtime.durable_topic(UNDELIVERED).unwrap();
    let mut reader = undelivered.read(ReadFrom::Beginning).await.unwrap();
    let text = reader.next().await.unwrap().into_payload();
    assert_eq!((text.key.as_deref(), text.is_whole), (Some("k"), false));
    assert_eq!(
        text.payload,
        Payload::encode(&"text".to_owned()).unwrap().as_bytes()
    );
    let later = reader.next().await.unwrap().into_payload();
    assert_eq!((later.key.as_deref(), later.is_whole), (None, true));
    assert_eq!(later.payload, LATER);
    assert!(later.error.contains("version 2"), "{}", later.error);
    for (record, sequence) in [(&text, 4), (&later, 5)] {
        let sent_back = undelivered.send_back(record).await.unwrap();
        assert_eq!(sent_back.sequence().get(), sequence);
    }
    runtime.shutdown().await.unwrap();

    let journal = Arc::new(journal.reopened());
    assert_eq!(records_of(&journal, "numbers")[4].body, LATER);
    let builder = Runtime::volatile().journal(journal as _);
    let runtime = builder.durable_topic(TEXTS).start().await.unwrap();
    let texts = runtime.durable_topic(TEXTS).unwrap();
    let mut reader = texts.read(ReadFrom::Last(2)).await.unwrap();
    let again = reader.next().await.unwrap();
    assert_eq!((again.key(), again.payload().as_str()), (Some("k"), "text"));
    assert_eq!(again.stems_from(), Some(text.token));
    runtime.shutdown().await.unwrap();
}

/// A record of a later release was sent back behind a header of this one, so that no release could read it any more.
#[tokio::test]
async fn what_a_subscription_cannot_decode_is_buried_and_sent_back_byte_for_byte() {
    let journal = with_undecodable().await;
    let (runtime, topic) = over(&journal).await;
    topic.publish(&7).key("k").await.unwrap();
    let subscription = topic.subscribe("strict").undelivered_to(UNDELIVERED, 3);
    let subscription = subscription.await.unwrap();
    assert_eq!(take(&subscription, 1).await, [7], "its key goes on");
    are_buried_and_sent_back(runtime, journal).await;
}

#[tokio::test]
async fn what_a_trigger_cannot_decode_is_buried_and_sent_back_byte_for_byte() {
    const SAME: Workflow<u64, u64> = Workflow::named("same");
    async fn same(_cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
        Ok(number)
    }
    let journal = with_undecodable().await;
    let builder = Runtime::volatile().journal(Arc::clone(&journal) as _);
    let builder = builder.durable_topic(NUMBERS).durable_topic(UNDELIVERED);
    let runtime = builder.register(SAME, same).start().await.unwrap();
    let topic = runtime.durable_topic(NUMBERS).unwrap();
    let published = topic.publish(&7).key("k").await.unwrap();
    let trigger = topic.trigger("t").undelivered_to(UNDELIVERED, 3);
    let trigger = trigger
        .start_each(SAME, |record| *record.payload())
        .await
        .unwrap();
    while trigger.status().lag > 0 {
        tokio::task::yield_now().await;
    }
    let id = format!("t/{}", published.token());
    let run = runtime.attach(SAME, &id).unwrap();
    assert_eq!(run.result().await.unwrap(), 7, "its key goes on");
    drop(trigger);
    are_buried_and_sent_back(runtime, journal).await;
}

/// A subscription that holds the keys of what it gives up, and gives up at the first failure.
async fn holding(topic: &DurableTopicHandle<u64>) -> DurableSubscription<u64> {
    let holding = topic.subscribe("holding").undelivered_to(UNDELIVERED, 1);
    holding.hold_key_when_undelivered().await.unwrap()
}

/// Gives up the next record, which is this number.
async fn give_up(subscription: &DurableSubscription<u64>, number: u64) {
    let delivery = subscription.next().await.unwrap();
    assert_eq!(*delivery.payload(), number);
    let answered = delivery.send_back(Duration::ZERO, "no way").unwrap();
    answered.await.unwrap();
    while subscription.status().held_keys == 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_held_key_waits_behind_a_buried_record_over_a_restart_until_that_is_sent_back() {
    let journal = memory();
    let (runtime, topic) = over(&journal).await;
    for (key, number) in [("held", 0), ("held", 1), ("free", 2)] {
        topic.publish(&number).key(key).await.unwrap();
    }
    let subscription = holding(&topic).await;
    give_up(&subscription, 0).await;
    assert_eq!(take(&subscription, 1).await, [2], "other keys go on");
    assert!(subscription.next().now_or_never().is_none(), "its key waits");
    drop(subscription);
    runtime.shutdown().await.unwrap();

    let journal = Arc::new(journal.reopened());
    let (runtime, topic) = over(&journal).await;
    let told = runtime.durable_subscriptions("numbers", None, 1).await.unwrap();
    assert_eq!(
        told[0].status.as_ref().unwrap().held_keys,
        1,
        "also while it is closed"
    );
    let subscription = holding(&topic).await;
    topic.publish(&3).key("held").await.unwrap();
    assert!(subscription.next().now_or_never().is_none(), "its key waits on");
    assert_eq!(subscription.status().held_keys, 1);
    let undelivered = runtime.durable_topic(UNDELIVERED).unwrap();
    let mut reader = undelivered.read(ReadFrom::Beginning).await.unwrap();
    let buried = reader.next().await.unwrap().into_payload();
    undelivered.send_back(&buried).await.unwrap();
    assert_eq!(take(&subscription, 3).await, [1, 3, 0], "it joins at the end");
    assert_eq!(
        (subscription.status().held_keys, subscription.status().lag),
        (0, 0)
    );

    // Sent back while nobody has it open.
    topic.publish(&4).key("held").await.unwrap();
    topic.publish(&5).key("held").await.unwrap();
    give_up(&subscription, 4).await;
    drop(subscription);
    let buried = reader.next().await.unwrap().into_payload();
    runtime.shutdown().await.unwrap();
    let (runtime, topic) = over(&Arc::new(journal.reopened())).await;
    let undelivered = runtime.durable_topic(UNDELIVERED).unwrap();
    undelivered.send_back(&buried).await.unwrap();
    let subscription = holding(&topic).await;
    assert_eq!(take(&subscription, 2).await, [5, 4]);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_held_key_is_released_by_an_operator_whether_the_subscription_is_open_or_not() {
    let journal = memory();
    let (runtime, topic) = over(&journal).await;
    for number in 0..4 {
        topic.publish(&number).key("k").await.unwrap();
    }
    let subscription = holding(&topic).await;
    give_up(&subscription, 0).await;
    for (name, key, expected) in [
        ("holding", "other", false),
        ("holding", "k", true),
        ("holding", "k", false),
    ] {
        let released = runtime.release_held_key("numbers", name, key).await.unwrap();
        assert_eq!(released, expected, "{key}");
    }
    give_up(&subscription, 1).await;
    drop(subscription);
    runtime.shutdown().await.unwrap();

    let (runtime, topic) = over(&Arc::new(journal.reopened())).await;
    assert!(runtime.release_held_key("numbers", "holding", "k").await.unwrap());
    assert!(!runtime.release_held_key("numbers", "holding", "k").await.unwrap());
    for (of, name) in [("numbers", "nobody"), ("nothing", "holding")] {
        let refused = runtime.release_held_key(of, name, "k").await;
        assert!(
            matches!(
                refused,
                Err(TopicManageError::NoSubscription { .. } | TopicManageError::Unknown { .. })
            ),
            "{refused:?}"
        );
    }
    let subscription = holding(&topic).await;
    assert_eq!(take(&subscription, 1).await, [2]);
    // Opened without it, keys go on.
    give_up(&subscription, 3).await;
    topic.publish(&4).key("k").await.unwrap();
    drop(subscription);
    let subscription = loop {
        let opened = topic.subscribe("holding").undelivered_to(UNDELIVERED, 1).await;
        match opened {
            // The keeper of the other may still be about to end.
            Err(SubscriptionOpenError::Contradiction) => tokio::task::yield_now().await,
            opened => break opened.unwrap(),
        }
    };
    assert_eq!(subscription.status().held_keys, 0);
    assert_eq!(take(&subscription, 1).await, [4]);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_trigger_holds_the_key_of_a_record_that_it_could_not_handle() {
    const SAME: Workflow<u64, u64> = Workflow::named("same");
    async fn same(_cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
        Ok(number)
    }
    let builder = Runtime::volatile()
        .durable_topic(NUMBERS)
        .durable_topic(UNDELIVERED);
    let runtime = builder.register(SAME, same).start().await.unwrap();
    let topic = runtime.durable_topic(NUMBERS).unwrap();
    let trigger = topic
        .trigger("t")
        .undelivered_to(UNDELIVERED, 3)
        .hold_key_when_undelivered();
    let trigger = trigger.start(SAME, |record| match *record.payload() {
        0 => (String::new(), 0),
        number => (format!("same-{number}"), number),
    });
    let trigger = trigger.await.unwrap();
    for (key, number) in [("held", 0), ("held", 1), ("free", 2)] {
        topic.publish(&number).key(key).await.unwrap();
    }
    while trigger.status().lag > 1 {
        tokio::task::yield_now().await;
    }
    assert_eq!((trigger.status().held_keys, trigger.handled()), (1, 1));
    assert!(runtime.release_held_key("numbers", "t", "held").await.unwrap());
    while trigger.status().lag > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(runtime.attach(SAME, "same-1").unwrap().result().await.unwrap(), 1);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn an_answer_after_the_lease_says_so_and_changes_nothing() {
    let (_runtime, topic) = numbers().await;
    publish(&topic, 0..1).await;
    let subscription = topic
        .subscribe("slow")
        .lease(Duration::from_millis(1))
        .await
        .unwrap();
    let first = subscription.next().await.unwrap();
    let second = subscription.next().await.unwrap();
    assert_eq!((*second.payload(), second.deliveries()), (0, 2));
    assert!(second.last_error().is_some_and(|error| error.contains("lease")));
    assert!(first.ack().is_err());
    // The second lease may be over as well by now: whoever is in time ends it.
    let mut delivery = second;
    while let Err(_lost) = delivery.ack() {
        delivery = subscription.next().await.unwrap();
    }
}

#[tokio::test]
async fn consumers_of_one_subscription_share_its_records_and_others_have_their_own() {
    let (_runtime, topic) = numbers().await;
    publish(&topic, 0..100).await;
    let one = topic.subscribe("shared").in_flight_max(7).await.unwrap();
    let (two, other) = (
        topic.subscribe("shared").in_flight_max(7).await.unwrap(),
        topic.subscribe("other").await.unwrap(),
    );
    let differs = topic.subscribe("shared").await;
    assert!(matches!(differs, Err(SubscriptionOpenError::Contradiction)));
    let consume = |subscription: DurableSubscription<u64>| async move {
        let mut taken = Vec::new();
        while let Some(delivery) = subscription.next().now_or_never() {
            let delivery = delivery.unwrap();
            assert!(subscription.status().in_hand <= 7);
            taken.push(*delivery.payload());
            delivery.ack().unwrap().await.unwrap();
            tokio::task::yield_now().await;
        }
        taken
    };
    let (mut all, others) = tokio::join!(consume(one), consume(two.clone()));
    all.extend(others);
    all.sort_unstable();
    assert_eq!(all, (0..100).collect::<Vec<_>>());
    assert_eq!(two.status().acknowledged_through.get(), 100);
    assert_eq!((other.status().lag, take(&other, 3).await), (100, vec![0, 1, 2]));
    // Ten are given, and acknowledged with the last.
    let mut deliveries = Vec::new();
    for _ in 0..10 {
        deliveries.push(other.next().await.unwrap());
    }
    deliveries.pop().unwrap().ack_through().unwrap().await.unwrap();
    assert_eq!(
        (other.status().acknowledged_through.get(), other.status().leased),
        (13, 0)
    );
}

#[tokio::test]
async fn bounds_and_names_that_make_no_sense_are_refused() {
    let (runtime, topic) = numbers().await;
    let long = "n".repeat(101);
    for name in ["", long.as_str()] {
        let refused = topic.subscribe(name).await;
        assert!(
            matches!(refused, Err(SubscriptionOpenError::Name { .. })),
            "{refused:?}"
        );
    }
    for (refused, expected) in [
        (topic.subscribe("s").in_flight_max(0).await, "in_flight_max"),
        (topic.subscribe("s").in_flight_max(16_385).await, "in_flight_max"),
        (topic.subscribe("s").lease(Duration::ZERO).await, "lease"),
    ] {
        assert!(matches!(refused, Err(SubscriptionOpenError::Bound { field, .. }) if field == expected));
    }
    let holding = || topic.subscribe("s").hold_key_when_undelivered();
    for refused in [
        holding().await,
        holding().undelivered_to(UNDELIVERED, 3).unordered().await,
    ] {
        assert!(
            matches!(&refused, Err(SubscriptionOpenError::Bound { field, .. }) if *field == "hold_key_when_undelivered"),
            "{refused:?}"
        );
    }
    let refused = topic.subscribe("s").undelivered_to(UNDELIVERED, 3).await;
    assert!(
        matches!(refused, Err(SubscriptionOpenError::Undelivered(_))),
        "{refused:?}"
    );
    let subscription = topic.subscribe("s").await.unwrap();
    runtime.shutdown().await.unwrap();
    let lost = subscription.next().await;
    assert!(matches!(lost, Err(SubscriptionReadError::Lost(_))), "{lost:?}");
}

#[tokio::test]
async fn what_retention_has_dropped_and_what_cannot_be_decoded_is_told_once_and_counted() {
    const FEW: DurableTopic<u64> = Topic::named("few").durable().len_max(3);
    const TEXTS: DurableTopic<String> = Topic::named("few").durable().len_max(3);
    let journal = Arc::new(MemoryJournal::new(JournalConfig::default()).unwrap());
    let open = || async {
        let builder = Runtime::volatile()
            .journal(Arc::clone(&journal) as _)
            .durable_topic(FEW);
        builder.start().await.unwrap()
    };
    let runtime = open().await;
    let topic = runtime.durable_topic(FEW).unwrap();
    let subscription = topic.subscribe("late").await.unwrap();
    publish(&topic, 0..10).await;
    let missed = subscription.next().await;
    let Err(SubscriptionReadError::Missed(TopicReadError::Dropped { count })) = missed else {
        panic!("{missed:?}");
    };
    assert_eq!(count, 7);
    assert_eq!(take(&subscription, 3).await, [7, 8, 9]);
    assert_eq!((subscription.status().missed, subscription.status().lag), (7, 0));
    drop((subscription, topic));
    runtime.shutdown().await.unwrap();

    let reopened = Arc::new(journal.reopened());
    let builder = Runtime::volatile().journal(reopened as _).durable_topic(TEXTS);
    let runtime = builder.start().await.unwrap();
    let topic = runtime.durable_topic(TEXTS).unwrap();
    let subscription = topic.subscribe("others").await.unwrap();
    topic.publish(&"text".to_owned()).await.unwrap();
    let mut told = BTreeMap::new();
    let text = loop {
        match subscription.next().await {
            Ok(delivery) => break delivery.payload().clone(),
            Err(SubscriptionReadError::Missed(error)) => *told.entry(error.to_string()).or_insert(0) += 1,
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(text, "text");
    assert!(
        told.len() >= 2 && told.values().all(|count| *count == 1),
        "{told:?}"
    );
}

#[tokio::test]
async fn how_subscriptions_stand_is_told_whether_they_are_open_or_not() {
    let journal = memory();
    let (runtime, topic) = over(&journal).await;
    publish(&topic, 0..10).await;
    let billing = topic.subscribe("billing").undelivered_to(UNDELIVERED, 2);
    let billing = billing.await.unwrap();
    take(&billing, 3).await;
    let leased = billing.next().await.unwrap();
    // The next is sent back twice, and goes to the undelivered ones; the one behind it once.
    for _ in 0..2 {
        let poison = billing.next().await.unwrap();
        assert_eq!(*poison.payload(), 4);
        poison.send_back(Duration::ZERO, "poison").unwrap().await.unwrap();
    }
    let slow = billing.next().await.unwrap();
    slow.send_back(Duration::from_secs(600), "slow")
        .unwrap()
        .await
        .unwrap();
    let audit = topic.subscribe("audit").from(ReadFrom::Now).await.unwrap();
    drop(audit);

    let told = runtime.durable_subscriptions("numbers", None, 10).await.unwrap();
    let names: Vec<_> = told.iter().map(|one| (one.name.as_str(), one.is_open)).collect();
    assert_eq!(names, [("audit", false), ("billing", true)]);
    assert_eq!(told[1].undelivered_to.as_deref(), Some("undelivered"));
    let status = told[1].status.as_ref().unwrap();
    // Of ten, three are acknowledged, and one is undelivered.
    assert_eq!((status.acknowledged_through.get(), status.lag), (3, 6));
    assert_eq!((status.leased, status.undelivered, status.returned), (1, 1, 1));
    assert_eq!(status.oldest.map(|(sequence, _)| sequence.get()), Some(4));
    let open = runtime.open_subscriptions();
    assert_eq!((open.len(), open[0].name.as_str()), (1, "billing"));
    assert_eq!(told[0].status.as_ref().unwrap().lag, 0);
    for (after, len_max, expected) in [
        (None, 1, vec!["audit"]),
        (Some("audit"), 10, vec!["billing"]),
        (Some("billing"), 10, vec![]),
    ] {
        let page = runtime.durable_subscriptions("numbers", after, len_max).await;
        let names: Vec<_> = page.unwrap().into_iter().map(|one| one.name).collect();
        assert_eq!(names, expected);
    }
    drop(leased);
    runtime.shutdown().await.unwrap();

    // Nobody has it open in the next life: what it has kept is told.
    let (runtime, topic) = over(&Arc::new(journal.reopened())).await;
    publish(&topic, 10..12).await;
    let told = runtime.durable_subscriptions("numbers", None, 10).await;
    let [audit, billing] = &told.unwrap()[..] else {
        panic!("there are two");
    };
    let status = billing.status.as_ref().unwrap();
    assert!(!billing.is_open && runtime.open_subscriptions().is_empty());
    assert_eq!((status.acknowledged_through.get(), status.lag), (3, 8));
    assert_eq!((status.leased, status.in_hand, status.returned), (0, 0, 1));
    assert_eq!(status.oldest.map(|(sequence, _)| sequence.get()), Some(4));
    assert_eq!(audit.status.as_ref().unwrap().lag, 2);
    let times = runtime.durable_topic_times("numbers").await.unwrap();
    assert!(times.first.is_some() && times.first <= times.last, "{times:?}");
    let none = runtime.durable_topic_times("millrun.subscription").await;
    assert!(matches!(none, Err(TopicLookError::NotDeclared { .. })));
    assert_eq!(
        runtime.durable_topic_times("undelivered").await.unwrap().first,
        times_of_first(&runtime).await
    );
    runtime.shutdown().await.unwrap();
    let stopped = runtime.durable_subscriptions("numbers", None, 10).await;
    assert!(matches!(stopped, Err(TopicLookError::Stopped(_))), "{stopped:?}");
}

/// When the first undelivered record was appended.
async fn times_of_first(runtime: &Runtime) -> Option<Timestamp> {
    let undelivered = runtime.durable_topic(UNDELIVERED).unwrap();
    let mut reader = undelivered.read(ReadFrom::Beginning).await.unwrap();
    Some(reader.next().await.unwrap().appended_at())
}

#[tokio::test]
async fn what_retention_has_dropped_of_a_lag_is_told_and_the_oldest_is_one_that_is_there() {
    const FEW: DurableTopic<u64> = Topic::named("few").durable().len_max(2);
    let runtime = Runtime::volatile().durable_topic(FEW).start().await.unwrap();
    let topic = runtime.durable_topic(FEW).unwrap();
    drop(topic.subscribe("late").await.unwrap());
    publish(&topic, 0..9).await;
    let first = runtime.durable_topics()[0].first;
    assert!(first > 1, "retention drops something: {first}");
    let told = runtime.durable_subscriptions("few", None, 10).await.unwrap();
    let status = told[0].status.as_ref().unwrap();
    assert_eq!((status.lag, status.dropped), (9, first - 1));
    assert_eq!(status.oldest.map(|(sequence, _)| sequence.get()), Some(first));
    for (len, expected) in [(0, 9), (1, 9), (2, 8), (u64::MAX, first)] {
        let mut reader = topic.read(ReadFrom::Last(len)).await.unwrap();
        let next = reader.next().now_or_never();
        let sequence = next.map(|record| record.unwrap().token().sequence().get());
        assert_eq!(sequence, (len > 0).then_some(expected), "the last {len}");
    }
}

/// A consumer was told that records had been purged, and nothing told the keeper of the subscription that this was to be kept:
/// a second opening, which waits until all is kept, waited until the first consumer asked for something else.
#[test]
fn a_subscription_is_opened_again_behind_records_that_were_missed() {
    let sim = SimHost::new(SimConfig::seeded(1));
    let script = async {
        let builder = Runtime::volatile().host(sim.host()).durable_topic(NUMBERS);
        let runtime = builder.start().await.unwrap();
        let topic = runtime.durable_topic(NUMBERS).unwrap();
        let first = topic.subscribe("billing").await.unwrap();
        publish(&topic, 0..2).await;
        let purge = runtime.purge_durable_topic("numbers", PurgeBefore::Now);
        purge.await.unwrap();
        assert!(matches!(
            first.next().await,
            Err(SubscriptionReadError::Missed(_))
        ));
        let second = topic.subscribe("billing").await.unwrap();
        assert_eq!((second.status().lag, second.status().missed), (0, 2));
    };
    sim.block_on(script).unwrap();
}

/// A subscription that had acknowledged a record behind one that it had not counted both as missed when both were dropped.
#[tokio::test]
async fn what_is_acknowledged_is_not_missed_when_it_is_dropped() {
    let journal = memory();
    let (runtime, topic) = over(&journal).await;
    publish(&topic, 0..4).await;
    let subscription = topic.subscribe("billing").await.unwrap();
    let _first = subscription.next().await.unwrap();
    let second = subscription.next().await.unwrap();
    second.ack().unwrap().await.unwrap();
    runtime.shutdown().await.unwrap();

    let (runtime, topic) = over(&Arc::new(journal.reopened())).await;
    let purge = runtime.purge_durable_topic("numbers", PurgeBefore::Number(4));
    purge.await.unwrap();
    let subscription = topic.subscribe("billing").await.unwrap();
    assert_eq!(subscription.status().dropped, 2);
    let missed = subscription.next().await;
    assert!(
        matches!(
            missed,
            Err(SubscriptionReadError::Missed(TopicReadError::Dropped {
                count: 2
            }))
        ),
        "{missed:?}"
    );
    assert_eq!(subscription.status().missed, 2);
    assert_eq!(take(&subscription, 1).await, [3]);
}

#[tokio::test]
async fn an_acknowledgement_is_kept_that_nobody_waits_for() {
    let journal = memory();
    let (_runtime, topic) = over(&journal).await;
    publish(&topic, 0..3).await;
    for number in 0..3 {
        let consumer = topic.subscribe("billing").await.unwrap();
        let delivery = consumer.next().await.unwrap();
        drop(consumer);
        assert_eq!(*delivery.payload(), number);
        drop(delivery.ack().unwrap());
    }
    let consumer = topic.subscribe("billing").await.unwrap();
    assert_eq!(consumer.status().lag, 0);
}
