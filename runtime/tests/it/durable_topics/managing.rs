//! Records that an operator drops, topics that are deleted, and subscriptions that are removed.

use std::sync::Arc;

use millrun::store::{JournalConfig, MemoryJournal};
use millrun::topics::{
    DurablePublishError, DurableTopicHandle, PurgeBefore, ReadFrom, ReadFromError, SubscriptionLost,
    SubscriptionReadError, TopicManageError, TopicReadError,
};
use millrun::{DurableTopic, Runtime, Topic, Workflow, WorkflowContext, WorkflowError};

use super::{NUMBERS, all, memory, take, take_all};
use crate::support::{Store, described};

const OTHERS: DurableTopic<u64> = Topic::named("others").durable();
const TAKE: Workflow<String, u64> = Workflow::named("take");
const TELL: Workflow<u64, String> = Workflow::named("tell");

async fn take_one(cx: WorkflowContext, key: String) -> Result<u64, WorkflowError> {
    Ok(cx.receive_from(NUMBERS).key(key).await?.into_payload())
}

/// Gives why it could not publish.
async fn tell(cx: WorkflowContext, number: u64) -> Result<String, WorkflowError> {
    let told = cx.publish(NUMBERS, number).await;
    Ok(told.map_or_else(|error| error.to_string(), |_| String::new()))
}

async fn over(journal: &Arc<MemoryJournal>) -> (Runtime, DurableTopicHandle<u64>) {
    let builder = Runtime::volatile().journal(Arc::clone(journal) as _);
    let builder = builder.durable_topic(NUMBERS).durable_topic(OTHERS);
    let runtime = builder.register(TAKE, take_one).register(TELL, tell).start();
    let runtime = runtime.await.unwrap();
    let topic = runtime.durable_topic(NUMBERS).unwrap();
    (runtime, topic)
}

async fn publish(topic: &DurableTopicHandle<u64>, numbers: std::ops::RangeInclusive<u64>) {
    for number in numbers {
        topic.publish(&number).key(&number.to_string()).await.unwrap();
    }
}

#[tokio::test]
async fn what_is_purged_is_told_to_readers_and_subscriptions_with_its_count_and_stays_away() {
    let journal = memory();
    let (runtime, topic) = over(&journal).await;
    let subscription = topic.subscribe("all").from(ReadFrom::Beginning).await.unwrap();
    let mut reader = topic.read(ReadFrom::Beginning).await.unwrap();
    publish(&topic, 1..=10).await;
    let mut ahead = topic.read(ReadFrom::Beginning).await.unwrap();
    let second = take(&mut ahead, 2).await.pop().unwrap().token();
    let purged = runtime
        .purge_durable_topic("numbers", PurgeBefore::Number(6))
        .await;
    let purged = purged.unwrap();
    assert_eq!((purged.count, purged.first), (5, 6));
    let missed = reader.next().await;
    assert!(
        matches!(missed, Err(TopicReadError::Dropped { count: 5 })),
        "{missed:?}"
    );
    assert_eq!(reader.next().await.unwrap().into_payload(), 6);
    // What a reader has in hand it gives.
    assert_eq!(ahead.next().await.unwrap().into_payload(), 3);
    let missed = subscription.next().await;
    assert!(
        matches!(
            missed,
            Err(SubscriptionReadError::Missed(TopicReadError::Dropped {
                count: 5
            }))
        ),
        "{missed:?}"
    );
    assert_eq!(*subscription.next().await.unwrap().payload(), 6);
    assert_eq!(subscription.status().missed, 5);
    // What is dropped already is not dropped again.
    for before in [
        PurgeBefore::Number(6),
        PurgeBefore::Record(second),
        PurgeBefore::Number(0),
    ] {
        let purged = runtime.purge_durable_topic("numbers", before).await.unwrap();
        assert_eq!((purged.count, purged.first), (0, 6), "{before:?}");
    }
    runtime.shutdown().await.unwrap();

    let (runtime, topic) = over(&Arc::new(journal.reopened())).await;
    assert_eq!(
        take_all(&topic, &runtime, ReadFrom::Beginning).await,
        [6, 7, 8, 9, 10]
    );
    let purged = runtime.purge_durable_topic("numbers", PurgeBefore::Now).await;
    let purged = purged.unwrap();
    assert_eq!((purged.count, purged.first), (5, 11));
    publish(&topic, 11..=11).await;
    let mut reader = topic.read(ReadFrom::Beginning).await.unwrap();
    let next = take(&mut reader, 1).await.pop().unwrap();
    assert_eq!((next.token().sequence().get(), *next.payload()), (11, 11));
}

#[tokio::test]
async fn who_uses_a_deleted_topic_is_told_and_its_tokens_are_refused_when_it_is_declared_again() {
    let journal = memory();
    let (runtime, topic) = over(&journal).await;
    let subscription = topic.subscribe("all").from(ReadFrom::Beginning).await.unwrap();
    publish(&topic, 1..=4).await;
    let mut ahead = topic.read(ReadFrom::Beginning).await.unwrap();
    let token = take(&mut ahead, 4).await.pop().unwrap().token();
    let reader = topic.read(ReadFrom::Beginning).await.unwrap();
    subscription.next().await.unwrap().ack().unwrap().await.unwrap();
    let waits = runtime.start(TAKE, "waits", "late".to_owned()).await.unwrap();
    described(&waits, |run| !run.pending.is_empty()).await;

    let deleted = runtime.delete_durable_topic("numbers").await.unwrap();
    assert_eq!((deleted.count, deleted.subscriptions), (4, 1));
    let names: Vec<_> = runtime
        .durable_topics()
        .iter()
        .map(|topic| topic.name.clone())
        .collect();
    assert!(!names.contains(&"numbers".to_owned()), "{names:?}");
    let refused = topic.publish(&9).await;
    assert!(
        matches!(refused, Err(DurablePublishError::UnknownTopic)),
        "{refused:?}"
    );
    for mut reader in [reader, ahead] {
        let gone = reader.next().await;
        assert!(matches!(gone, Err(TopicReadError::Deleted)), "{gone:?}");
    }
    let gone = topic.read(ReadFrom::Beginning).await;
    assert!(matches!(gone, Err(ReadFromError::Deleted)), "{gone:?}");
    let gone = subscription.next().await;
    assert!(
        matches!(gone, Err(SubscriptionReadError::Lost(SubscriptionLost::Deleted))),
        "{gone:?}"
    );
    assert!(topic.subscribe("all").await.is_err());
    let told = runtime
        .start(TELL, "tell", 5)
        .await
        .unwrap()
        .result()
        .await
        .unwrap();
    assert!(told.contains("deleted"), "{told}");
    let again = runtime.delete_durable_topic("numbers").await;
    assert!(
        matches!(again, Err(TopicManageError::Unknown { .. })),
        "{again:?}"
    );
    runtime.shutdown().await.unwrap();

    let (runtime, topic) = over(&Arc::new(journal.reopened())).await;
    let refused = topic.read(ReadFrom::After(token)).await;
    assert!(matches!(refused, Err(ReadFromError::OtherTopic)), "{refused:?}");
    let refused = runtime
        .purge_durable_topic("numbers", PurgeBefore::Record(token))
        .await;
    assert!(
        matches!(refused, Err(TopicManageError::OtherTopic)),
        "{refused:?}"
    );
    // Its subscription is new, and no number names two records.
    let subscription = topic.subscribe("all").from(ReadFrom::Beginning).await.unwrap();
    let published = topic.publish(&7).key("late").await.unwrap();
    assert_eq!(published.sequence().get(), 5);
    assert_eq!(*subscription.next().await.unwrap().payload(), 7);
    // A run that waited for a record of the deleted topic gets one of its successor.
    let waits = runtime.attach(TAKE, "waits").unwrap();
    assert_eq!(waits.result().await.unwrap(), 7);
}

#[tokio::test]
async fn a_subscription_that_is_removed_is_new_when_it_is_opened_again() {
    let (runtime, topic) = over(&memory()).await;
    publish(&topic, 1..=3).await;
    let subscription = topic.subscribe("all").from(ReadFrom::Beginning).await.unwrap();
    for _ in 0..2 {
        subscription.next().await.unwrap().ack().unwrap().await.unwrap();
    }
    runtime
        .remove_durable_subscription("numbers", "all")
        .await
        .unwrap();
    let gone = subscription.next().await;
    assert!(
        matches!(gone, Err(SubscriptionReadError::Lost(SubscriptionLost::Deleted))),
        "{gone:?}"
    );
    let again = runtime.remove_durable_subscription("numbers", "all").await;
    assert!(
        matches!(again, Err(TopicManageError::NoSubscription { .. })),
        "{again:?}"
    );
    let subscription = topic.subscribe("all").from(ReadFrom::Beginning).await.unwrap();
    assert_eq!(*subscription.next().await.unwrap().payload(), 1);
}

#[tokio::test]
async fn a_deleted_topic_makes_room_for_another_and_a_topic_that_nobody_declares_can_be_deleted() {
    let mut config = JournalConfig::default();
    config.topics_len_max = 2;
    let journal = Arc::new(MemoryJournal::new(config).unwrap());
    let (runtime, _) = over(&journal).await;
    runtime.shutdown().await.unwrap();
    let journal = Arc::new(journal.reopened());
    let builder = || Runtime::volatile().journal(Arc::clone(&journal) as _);
    // It is not told of any topic.
    let runtime = builder().start().await.unwrap();
    runtime.delete_durable_topic("others").await.unwrap();
    runtime.shutdown().await.unwrap();
    const THIRD: DurableTopic<u64> = Topic::named("third").durable();
    let journal = Arc::new(journal.reopened());
    let builder = Runtime::volatile().journal(Arc::clone(&journal) as _);
    let runtime = builder
        .durable_topic(NUMBERS)
        .durable_topic(THIRD)
        .start()
        .await
        .unwrap();
    assert_eq!(runtime.durable_topics().len(), 2);
}

#[tokio::test]
async fn names_that_are_not_there_and_tokens_of_others_change_nothing() {
    let (runtime, topic) = over(&memory()).await;
    let others = runtime.durable_topic(OTHERS).unwrap();
    publish(&topic, 1..=2).await;
    publish(&others, 1..=2).await;
    let mut reader = others.read(ReadFrom::Beginning).await.unwrap();
    let of_others = take(&mut reader, 1).await.pop().unwrap().token();
    let store = Store::new();
    let elsewhere = store.bare().durable_topic(NUMBERS).start().await.unwrap();
    let foreign = elsewhere.durable_topic(NUMBERS).unwrap().publish(&1).await;
    let foreign = foreign.unwrap().token();
    let refused = runtime
        .purge_durable_topic("numbers", PurgeBefore::Record(of_others))
        .await;
    assert!(
        matches!(refused, Err(TopicManageError::OtherTopic)),
        "{refused:?}"
    );
    let refused = runtime
        .purge_durable_topic("numbers", PurgeBefore::Record(foreign))
        .await;
    assert!(
        matches!(refused, Err(TopicManageError::OtherStore)),
        "{refused:?}"
    );
    elsewhere.shutdown().await.unwrap();
    let _kept = topic.subscribe("all").from(ReadFrom::Beginning).await.unwrap();
    for name in ["", "nobody", "millrun.subscription numbers/all", "\0numbers"] {
        let refused = runtime.delete_durable_topic(name).await;
        assert!(
            matches!(refused, Err(TopicManageError::Unknown { .. })),
            "{name:?}"
        );
        let refused = runtime.purge_durable_topic(name, PurgeBefore::Now).await;
        assert!(
            matches!(refused, Err(TopicManageError::Unknown { .. })),
            "{name:?}"
        );
    }
    assert_eq!(all(&topic, &runtime, ReadFrom::Beginning).await.len(), 2);
}

/// The file is opened again behind each.
#[tokio::test]
async fn a_store_on_disk_forgets_what_was_purged_and_deleted() {
    let store = Store::new();
    let open = || {
        let builder = store.bare().durable_topic(NUMBERS).durable_topic(OTHERS);
        async { builder.start().await.unwrap() }
    };
    let runtime = open().await;
    let topic = runtime.durable_topic(NUMBERS).unwrap();
    publish(&topic, 1..=5).await;
    runtime
        .purge_durable_topic("numbers", PurgeBefore::Number(3))
        .await
        .unwrap();
    runtime.shutdown().await.unwrap();
    let runtime = open().await;
    let topic = runtime.durable_topic(NUMBERS).unwrap();
    assert_eq!(take_all(&topic, &runtime, ReadFrom::Beginning).await, [3, 4, 5]);
    runtime.delete_durable_topic("numbers").await.unwrap();
    assert!(topic.publish(&1).await.is_err());
    runtime.shutdown().await.unwrap();
    let runtime = open().await;
    let topic = runtime.durable_topic(NUMBERS).unwrap();
    publish(&topic, 6..=6).await;
    assert_eq!(take_all(&topic, &runtime, ReadFrom::Beginning).await, [6]);
    runtime.shutdown().await.unwrap();
}
