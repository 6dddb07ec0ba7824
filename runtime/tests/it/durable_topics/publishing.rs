//! Publishes from outside.

use millrun::topics::{DurablePublishError, RECORD_TEXT_BYTES_MAX, ReadFrom};
use millrun::workflow::{Cause, TraceContext};
use millrun::{DurableTopic, RunId, Runtime, Timestamp, Topic};
use millrun_core::Partition;

use super::{NUMBERS, memory, numbers, take};
use crate::support::Store;

const TEXTS: DurableTopic<String> = Topic::named("texts").durable();

#[tokio::test]
async fn a_record_is_read_with_all_that_its_publisher_said_of_it() {
    let runtime = Runtime::volatile().durable_topic(TEXTS).start().await.unwrap();
    let topic = runtime.durable_topic(TEXTS).unwrap();
    let run = RunId::new(Partition::of(b"x"), Timestamp::from_micros(1_000), 7);
    let (cause, trace) = (Cause { run, operation: 3 }, TraceContext::beginning_with(run));
    let value = "placed".to_owned();
    let published = topic
        .publish(&value)
        .key("order-1")
        .correlation("basket-9")
        .content_type("text/plain")
        .caused_by(cause)
        .traced(trace)
        .await
        .unwrap();
    let bare = topic.publish(&value).await.unwrap();
    assert_eq!((published.sequence().get(), bare.sequence().get()), (1, 2));
    let mut reader = topic.read(ReadFrom::Beginning).await.unwrap();
    let records = take(&mut reader, 2).await;
    let first = &records[0];
    assert_eq!(first.token(), published.token());
    assert_eq!((first.payload(), first.key()), (&value, Some("order-1")));
    assert_eq!(
        (first.correlation(), first.content_type()),
        (Some("basket-9"), Some("text/plain"))
    );
    assert_eq!((first.run_cause(), first.trace()), (Some(cause), Some(&trace)));
    assert_eq!((records[1].key(), records[1].run_cause()), (None, None));
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_publish_with_an_id_is_made_once_also_by_callers_that_publish_at_the_same_time() {
    let (runtime, topic) = numbers().await;
    let publishes = (0..20).map(|number| {
        let topic = topic.clone();
        async move { topic.publish(&number).id("one").await.unwrap() }
    });
    let published = futures_util::future::join_all(publishes).await;
    assert_eq!(
        published
            .iter()
            .filter(|published| !published.is_repeat())
            .count(),
        1
    );
    assert!(published.iter().all(|published| published.sequence().get() == 1));
    // Another id, and the same under another key, whose partition is another one.
    assert!(!topic.publish(&1).id("two").await.unwrap().is_repeat());
    assert!(topic.publish(&1).id("two").key("k").await.unwrap().is_repeat());
    assert_eq!(runtime.durable_topics()[0].last, 2);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn the_records_of_a_key_have_the_order_in_which_they_were_published() {
    const KEYS: u64 = 16;
    let builder = Runtime::volatile().configure(|config| config.shards_len = 4);
    let runtime = builder.durable_topic(NUMBERS).start().await.unwrap();
    let topic = runtime.durable_topic(NUMBERS).unwrap();
    let publishers = (0..KEYS).map(|key| {
        let topic = topic.clone();
        async move {
            for number in 0..50 {
                topic.publish(&number).key(&key.to_string()).await.unwrap();
            }
        }
    });
    futures_util::future::join_all(publishers).await;
    let mut reader = topic.read(ReadFrom::Beginning).await.unwrap();
    let mut next = [0; 16];
    for (record, place) in take(&mut reader, 16 * 50).await.into_iter().zip(1..) {
        assert_eq!(record.token().sequence().get(), place);
        let key: usize = record.key().unwrap().parse().unwrap();
        assert_eq!(*record.payload(), next[key], "key {key}");
        next[key] += 1;
    }
    assert_eq!(next, [50; 16]);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn what_is_too_large_is_refused_and_nothing_is_appended() {
    let builder = Runtime::volatile().configure(|config| config.limits.payload_bytes_max = 1_000);
    let runtime = builder.durable_topic(TEXTS).start().await.unwrap();
    let topic = runtime.durable_topic(TEXTS).unwrap();
    let (small, large) = (String::new(), "x".repeat(1_000));
    let error = topic.publish(&large).await.unwrap_err();
    assert!(
        matches!(
            error,
            DurablePublishError::TooLarge {
                bytes: 1_004,
                bytes_max: 1_000
            }
        ),
        "{error:?}"
    );
    let long = "k".repeat(RECORD_TEXT_BYTES_MAX + 1);
    for (publish, expected) in [
        (topic.publish(&small).key(&long), "key"),
        (topic.publish(&small).correlation(&long), "correlation"),
        (topic.publish(&small).content_type(&long), "content type"),
        (topic.publish(&small).id(&long), "id"),
    ] {
        let error = publish.await.unwrap_err();
        assert!(
            matches!(error, DurablePublishError::TextTooLong { field, bytes: 1_025 } if field == expected),
            "{error:?}"
        );
    }
    let longest = &long[1..];
    topic
        .publish(&small)
        .key(longest)
        .correlation(longest)
        .content_type(longest)
        .await
        .unwrap();
    assert_eq!(runtime.durable_topics()[0].last, 1);
    runtime.shutdown().await.unwrap();
    let error = topic.publish(&small).await.unwrap_err();
    assert!(matches!(error, DurablePublishError::Stopped(_)), "{error:?}");
}

#[tokio::test]
async fn what_was_acknowledged_is_there_when_the_journal_is_opened_again() {
    let journal = memory();
    let builder = || Runtime::volatile().durable_topic(NUMBERS);
    let runtime = builder().journal(journal.clone()).start().await.unwrap();
    let first = runtime
        .durable_topic(NUMBERS)
        .unwrap()
        .publish(&1)
        .id("one")
        .await
        .unwrap();
    let again = builder()
        .journal(std::sync::Arc::new(journal.reopened()))
        .start()
        .await
        .unwrap();
    let topic = again.durable_topic(NUMBERS).unwrap();
    let repeated = topic.publish(&1).id("one").await.unwrap();
    assert!(repeated.is_repeat() && repeated.token() == first.token());
    topic.publish(&2).await.unwrap();
    let mut reader = topic.read(ReadFrom::After(first.token())).await.unwrap();
    assert_eq!(*reader.next().await.unwrap().payload(), 2);
    again.shutdown().await.unwrap();
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_store_in_a_file_keeps_records() {
    let store = Store::new();
    let open = || store.bare().durable_topic(NUMBERS).start();
    let runtime = open().await.unwrap();
    let first = runtime
        .durable_topic(NUMBERS)
        .unwrap()
        .publish(&1)
        .id("one")
        .await
        .unwrap();
    runtime.shutdown().await.unwrap();
    let runtime = open().await.unwrap();
    let topic = runtime.durable_topic(NUMBERS).unwrap();
    assert_eq!(topic.publish(&1).id("one").await.unwrap().token(), first.token());
    let mut reader = topic.read(ReadFrom::Beginning).await.unwrap();
    assert_eq!(*reader.next().await.unwrap().payload(), 1);
    runtime.shutdown().await.unwrap();
}
