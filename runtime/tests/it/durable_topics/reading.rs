//! Readers: where they begin, what they wait for, and what they are told instead of a record.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use millrun::topics::{ReadFrom, ReadFromError, RecordToken, TopicReadError};
use millrun::{DurableTopic, Runtime, StopCause, Timestamp, Topic};
use millrun_persistence::Journal;

use super::{NUMBERS, all, numbers, take};
use crate::support::Store;
use crate::tapped::Tapped;

#[tokio::test]
async fn a_reader_that_waits_is_woken_by_the_next_record() {
    let (runtime, topic) = numbers().await;
    let mut reader = topic.read(ReadFrom::Now).await.unwrap();
    let waiting = tokio::spawn(async move { reader.next().await.unwrap().into_payload() });
    tokio::task::yield_now().await;
    topic.publish(&7).await.unwrap();
    assert_eq!(waiting.await.unwrap(), 7);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn each_position_begins_with_its_record() {
    let (runtime, topic) = numbers().await;
    let mut tokens = Vec::new();
    for number in 1..=4 {
        tokens.push(topic.publish(&number).await.unwrap().token());
    }
    let records = all(&topic, &runtime, ReadFrom::Beginning).await;
    let time_of_third = records[2].as_ref().unwrap().appended_at();
    let long_ago = Timestamp::from_micros(1);
    for (from, expected) in [
        (ReadFrom::Beginning, vec![1, 2, 3, 4]),
        (ReadFrom::Now, vec![]),
        (ReadFrom::After(tokens[1]), vec![3, 4]),
        (ReadFrom::After(tokens[3]), vec![]),
        (ReadFrom::Time(long_ago), vec![1, 2, 3, 4]),
        (ReadFrom::Time(time_of_third + Duration::from_secs(3_600)), vec![]),
    ] {
        let read = all(&topic, &runtime, from).await.into_iter();
        let read: Vec<u64> = read.map(|read| read.unwrap().into_payload()).collect();
        assert_eq!(read, expected, "{from:?}");
    }
    let mut reader = topic.read(ReadFrom::Time(time_of_third)).await.unwrap();
    let first = reader.next().await.unwrap();
    assert!(first.appended_at() >= time_of_third && *first.payload() <= 3);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn what_is_there_is_given_as_it_is_encoded_and_nothing_is_waited_for() {
    let (runtime, topic) = numbers().await;
    let mut reader = topic.read(ReadFrom::Beginning).await.unwrap();
    assert_eq!(reader.next_encoded_now().await.unwrap(), None, "there is none");
    for number in 1..=3 {
        topic.publish(&number).key("k").await.unwrap();
    }
    for number in 1..=2 {
        let record = reader.next_encoded_now().await.unwrap().unwrap();
        assert_eq!(
            (record.key(), record.payload().decode().ok()),
            (Some("k"), Some(number))
        );
        assert_eq!(Some(record.token()), reader.position());
    }
    assert_eq!(reader.next_encoded().await.unwrap().payload().decode(), Ok(3_u64));
    assert_eq!(reader.next_encoded_now().await.unwrap(), None, "no more of them");
    runtime.shutdown().await.unwrap();
}

/// Readers that begin anywhere, while a publisher never pauses, and pages of a few records.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_see_all_without_gap_or_repeat_while_a_publisher_never_pauses() {
    const LEN: u64 = 2_000;
    let builder = Runtime::volatile().configure(|config| config.topic_page_bytes_max = 100);
    let runtime = builder.durable_topic(NUMBERS).start().await.unwrap();
    let topic = runtime.durable_topic(NUMBERS).unwrap();
    let publisher = {
        let topic = topic.clone();
        tokio::spawn(async move {
            for number in 1..=LEN {
                topic.publish(&number).await.unwrap();
            }
        })
    };
    let mut readers = Vec::new();
    let mut from = ReadFrom::Beginning;
    for _ in 0..20 {
        let mut reader = topic.read(from).await.unwrap();
        let first = reader.next().await.unwrap();
        from = ReadFrom::After(first.token());
        readers.push(tokio::spawn(async move {
            let mut before = first.into_payload();
            while before < LEN {
                let record = reader.next().await.unwrap();
                assert_eq!(*record.payload(), before + 1);
                assert_eq!(record.token().sequence().get(), before + 1);
                before = record.into_payload();
            }
        }));
    }
    for reader in readers {
        reader.await.unwrap();
    }
    publisher.await.unwrap();
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn dropping_the_future_of_a_record_loses_nothing() {
    let (runtime, topic) = numbers().await;
    let mut reader = topic.read(ReadFrom::Beginning).await.unwrap();
    for number in 0..100 {
        // Polled once: it waits, or has the record.
        let polled = futures_util::poll!(std::pin::pin!(reader.next()));
        assert!(polled.is_pending());
        topic.publish(&number).await.unwrap();
        assert_eq!(*reader.next().await.unwrap().payload(), number);
    }
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn what_retention_dropped_unread_is_told_with_its_count() {
    const FEW: DurableTopic<Vec<u8>> = Topic::named("few").durable().len_max(2);
    let runtime = Runtime::volatile().durable_topic(FEW).start().await.unwrap();
    let topic = runtime.durable_topic(FEW).unwrap();
    let mut lagging = topic.read(ReadFrom::Beginning).await.unwrap();
    let first = topic.publish(&vec![0]).await.unwrap().token();
    for number in 1..10 {
        topic.publish(&vec![number]).await.unwrap();
    }
    let kept = runtime.durable_topics()[0].first;
    assert!(kept > 2, "retention drops something: {kept}");
    let error = lagging.next().await.unwrap_err();
    assert!(
        matches!(error, TopicReadError::Dropped { count } if count == kept - 1),
        "{error:?}"
    );
    assert_eq!(lagging.next().await.unwrap().token().sequence().get(), kept);
    let mut behind = topic.read(ReadFrom::After(first)).await.unwrap();
    let error = behind.next().await.unwrap_err();
    assert!(
        matches!(error, TopicReadError::Dropped { count } if count == kept - 2),
        "{error:?}"
    );
    // Who begins with what is there has missed nothing.
    let mut fresh = topic.read(ReadFrom::Beginning).await.unwrap();
    assert_eq!(fresh.next().await.unwrap().token().sequence().get(), kept);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_record_of_another_type_is_told_and_reading_goes_on_behind_it() {
    const TEXTS: DurableTopic<String> = Topic::named("numbers").durable();
    let journal = super::memory();
    let open = || Runtime::volatile().journal(journal.clone());
    let runtime = open().durable_topic(TEXTS).start().await.unwrap();
    runtime
        .durable_topic(TEXTS)
        .unwrap()
        .publish(&"text".into())
        .await
        .unwrap();
    let runtime = open().durable_topic(NUMBERS).start().await.unwrap();
    let topic = runtime.durable_topic(NUMBERS).unwrap();
    topic.publish(&2).await.unwrap();
    let mut reader = topic.read(ReadFrom::Beginning).await.unwrap();
    let error = reader.next().await.unwrap_err();
    assert!(
        matches!(&error, TopicReadError::Undecodable { token, .. } if token.sequence().get() == 1),
        "{error:?}"
    );
    assert_eq!(*reader.next().await.unwrap().payload(), 2);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_token_of_another_topic_or_store_or_of_what_is_not_there_is_refused() {
    const OTHER: DurableTopic<u64> = Topic::named("other").durable();
    let runtime = Runtime::volatile()
        .durable_topic(NUMBERS)
        .durable_topic(OTHER)
        .start()
        .await
        .unwrap();
    let topic = runtime.durable_topic(NUMBERS).unwrap();
    let token = topic.publish(&1).await.unwrap().token();
    let other = runtime
        .durable_topic(OTHER)
        .unwrap()
        .publish(&1)
        .await
        .unwrap()
        .token();
    topic.read(ReadFrom::After(token)).await.unwrap();
    let refused = topic.read(ReadFrom::After(other)).await.unwrap_err();
    assert!(matches!(refused, ReadFromError::OtherTopic), "{refused:?}");
    // The same with another store's number, and with a later record: the bytes are version, store, topic, sequence.
    let with = |at: usize, byte: u8| -> RecordToken {
        let mut bytes = millrun_core::base64::decode(&token.to_string()).unwrap();
        bytes[at] = byte;
        millrun_core::base64::encode(&bytes).parse().unwrap()
    };
    let refused = topic.read(ReadFrom::After(with(3, 9))).await.unwrap_err();
    assert!(matches!(refused, ReadFromError::OtherStore), "{refused:?}");
    let refused = topic.read(ReadFrom::After(with(20, 9))).await.unwrap_err();
    assert!(
        matches!(refused, ReadFromError::NotYet { sequence, last } if sequence.get() == 9 && last.get() == 1),
        "{refused:?}"
    );
    for text in [
        "",
        "token",
        "AAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        &token.to_string()[1..],
    ] {
        assert!(text.parse::<RecordToken>().is_err(), "{text:?}");
    }
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn readers_that_wait_are_told_that_the_runtime_has_stopped() {
    let (runtime, topic) = numbers().await;
    topic.publish(&1).await.unwrap();
    let mut reader = topic.read(ReadFrom::Now).await.unwrap();
    let stream = topic.read(ReadFrom::Beginning).await.unwrap().into_stream();
    let is_reading = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&is_reading);
    let streamed = tokio::spawn(async move {
        let mut stream = std::pin::pin!(stream);
        let mut ends = Vec::new();
        while let Some(next) = stream.next().await {
            told.store(true, Ordering::Relaxed);
            ends.push(next.is_ok());
        }
        ends
    });
    let waiting = tokio::spawn(async move { reader.next().await });
    while !is_reading.load(Ordering::Relaxed) {
        tokio::task::yield_now().await;
    }
    runtime.shutdown().await.unwrap();
    let error = waiting.await.unwrap().unwrap_err();
    assert!(
        matches!(error, TopicReadError::Stopped(StopCause::Shutdown)),
        "{error:?}"
    );
    assert_eq!(streamed.await.unwrap(), [true, false]);
    // What is durable can still be said to be read as far as it is in hand, and no further.
    assert!(take_error(&topic).await);
}

async fn take_error(topic: &millrun::topics::DurableTopicHandle<u64>) -> bool {
    match topic.read(ReadFrom::Now).await {
        Err(_) => true,
        Ok(mut reader) => matches!(reader.next().await, Err(TopicReadError::Stopped(_))),
    }
}

#[tokio::test]
async fn pages_of_one_record_are_read_in_order() {
    let builder = Runtime::volatile().configure(|config| config.topic_page_bytes_max = 1);
    let runtime = builder.durable_topic(NUMBERS).start().await.unwrap();
    let topic = runtime.durable_topic(NUMBERS).unwrap();
    for number in 0..20 {
        topic.publish(&number).await.unwrap();
    }
    let mut reader = topic.read(ReadFrom::Beginning).await.unwrap();
    let read = take(&mut reader, 20).await.into_iter();
    assert!(read.map(millrun::topics::DurableRecord::into_payload).eq(0..20));
    runtime.shutdown().await.unwrap();
}

/// More than stays in memory, after a restart too: what readers find there is read by the lanes.
#[tokio::test]
async fn a_reader_that_is_far_behind_reads_from_the_disk_and_goes_on_with_what_is_in_memory() {
    const TEXTS: DurableTopic<String> = Topic::named("texts").durable();
    let store = Store::new();
    let open = || {
        let builder = store.bare().durable_topic(TEXTS);
        builder.configure(|config| {
            config.journal.topic_latest_bytes_max = 20_000;
            config.topic_page_bytes_max = 4_000;
        })
    };
    let text = |number: usize| format!("{number} {}", "x".repeat(1_000));
    let (mut len, mut halfway) = (0, None);
    for _ in 0..2 {
        let runtime = open().start().await.unwrap();
        let topic = runtime.durable_topic(TEXTS).unwrap();
        let mut lagging = topic.read(ReadFrom::Beginning).await.unwrap();
        for _ in 0..100 {
            let published = topic.publish(&text(len)).await.unwrap();
            len += 1;
            halfway = halfway.or((len == 50).then_some(published.token()));
        }
        let read = take(&mut lagging, len).await.into_iter();
        assert!(
            read.map(millrun::topics::DurableRecord::into_payload)
                .eq((0..len).map(text))
        );
        let mut behind = topic.read(ReadFrom::After(halfway.unwrap())).await.unwrap();
        let read = take(&mut behind, len - 50).await.into_iter();
        assert!(
            read.map(millrun::topics::DurableRecord::into_payload)
                .eq((50..len).map(text))
        );
        runtime.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn damaged_records_are_told_with_their_count_and_reading_goes_on_behind_them() {
    let journal = Tapped::new(super::memory(), |journal: &dyn Journal, batch| {
        journal.enqueue(batch)
    });
    journal.keep_topics();
    let builder = Runtime::volatile()
        .durable_topic(NUMBERS)
        .journal(journal.clone());
    let runtime = builder.start().await.unwrap();
    let topic = runtime.durable_topic(NUMBERS).unwrap();
    for number in 1..=5 {
        topic.publish(&number).await.unwrap();
    }
    journal.damage_topics(3);
    let mut reader = topic.read(ReadFrom::Beginning).await.unwrap();
    let error = reader.next().await.unwrap_err();
    assert!(
        matches!(&error, TopicReadError::Damaged { count: 3, cause } if cause == "a bad disk"),
        "{error:?}"
    );
    let read = take(&mut reader, 2).await.into_iter();
    assert!(read.map(millrun::topics::DurableRecord::into_payload).eq([4, 5]));
    runtime.shutdown().await.unwrap();
}
