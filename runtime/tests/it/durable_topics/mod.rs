//! Topics whose records the journal keeps.

mod attached;
mod consumed;
mod crashes;
mod declaring;
mod expiring;
mod filtered;
mod followed;
mod joined;
mod managing;
mod moving;
mod naive;
mod publishing;
mod reading;
mod receiving;
mod runs;
mod subscribing;
mod triggering;
mod unread;

use std::sync::Arc;

use millrun::store::{JournalConfig, MemoryJournal};
use millrun::topics::{DurableRecord, DurableTopicHandle, ReadFrom, TopicReadError, TopicReader};
use millrun::{DurableTopic, Runtime, Topic};
use serde::de::DeserializeOwned;

/// The topic of most tests.
const NUMBERS: DurableTopic<u64> = Topic::named("numbers").durable();

fn memory() -> Arc<MemoryJournal> {
    Arc::new(MemoryJournal::new(JournalConfig::default()).unwrap())
}

async fn numbers() -> (Runtime, DurableTopicHandle<u64>) {
    let runtime = Runtime::volatile().durable_topic(NUMBERS).start().await.unwrap();
    let topic = runtime.durable_topic(NUMBERS).unwrap();
    (runtime, topic)
}

/// The next records, as many as this.
async fn take<T: DeserializeOwned>(reader: &mut TopicReader<T>, len: usize) -> Vec<DurableRecord<T>> {
    let mut records = Vec::new();
    while records.len() < len {
        records.push(reader.next().await.unwrap());
    }
    records
}

/// The payloads of all records that are there now.
pub(crate) async fn take_all<T: DeserializeOwned>(
    topic: &DurableTopicHandle<T>,
    runtime: &Runtime,
    from: ReadFrom,
) -> Vec<T> {
    let read = all(topic, runtime, from).await.into_iter();
    read.map(|record| record.unwrap().into_payload()).collect()
}

/// What is there now: each record, or why it cannot be given.
async fn all<T: DeserializeOwned>(
    topic: &DurableTopicHandle<T>,
    runtime: &Runtime,
    from: ReadFrom,
) -> Vec<Result<DurableRecord<T>, TopicReadError>> {
    let last = runtime.durable_topics()[0].last;
    let mut reader = topic.read(from).await.unwrap();
    let mut read = Vec::new();
    while reader.position().map_or(0, |token| token.sequence().get()) < last {
        read.push(reader.next().await);
    }
    read
}
