//! Topics whose records the journal keeps.

mod aged;
mod attached;
mod consumed;
mod crashes;
mod declaring;
mod expiring;
mod filtered;
mod followed;
mod joined;
mod keyed;
mod managing;
mod moving;
mod naive;
mod publishing;
mod reading;
mod receiving;
mod renaming;
mod runs;
mod schemas;
mod subscribing;
mod triggering;
mod unread;

use std::sync::Arc;

use millrun::store::{Journal, JournalConfig, MemoryJournal, Partition, Sequence};
use millrun::topics::{DurableRecord, DurableTopicHandle, ReadFrom, TopicReadError, TopicReader};
use millrun::{DurableTopic, Runtime, Timestamp, Topic};
use millrun_persistence::{Batch, TopicNumber, TopicRecord, TopicRecordHeader};
use serde::de::DeserializeOwned;

/// The topic of most tests.
const NUMBERS: DurableTopic<u64> = Topic::named("numbers").durable();

fn memory() -> Arc<MemoryJournal> {
    Arc::new(MemoryJournal::new(JournalConfig::default()).unwrap())
}

fn number_of(journal: &MemoryJournal, topic: &str) -> TopicNumber {
    let topics = journal.topics().unwrap();
    topics.number(topic).unwrap()
}

/// Appends a record with a body that no program of this release writes; while no runtime has the journal. Its time is that of
/// the record before it, or else behind the beginning of any run.
fn append_raw(journal: &MemoryJournal, topic: &str, body: &[u8]) {
    let partition = Partition::of(b"raw");
    let time = records_of(journal, topic).pop().map(|record| record.time);
    let header = TopicRecordHeader {
        topic: number_of(journal, topic),
        partition,
        epoch: journal.take_over(&[partition]).unwrap(),
        time: time.unwrap_or(Timestamp::from_micros(4_000_000_000_000_000)),
        id: None,
        with: None,
    };
    let mut batch = Batch::new();
    batch.topic_record(header, &[body]).unwrap();
    let enqueued = journal.enqueue(&batch).unwrap();
    assert_eq!(enqueued.topic_appends.len(), 1);
}

/// All records of a topic, as the journal has them.
fn records_of(journal: &MemoryJournal, topic: &str) -> Vec<TopicRecord> {
    let (topics, number) = (journal.topics().unwrap(), number_of(journal, topic));
    let mut records: Vec<TopicRecord> = Vec::new();
    loop {
        let behind = records.last().map_or(Sequence::ZERO, |record| record.sequence);
        if behind == topics.summary(number).unwrap().last {
            return records;
        }
        let page = topics.read(number, behind, 1 << 20).unwrap();
        records.extend(page.records());
    }
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
