//! The topic, and its records of 100 bytes.

use std::path::Path;

use millrun::topics::DurableTopicHandle;
use millrun::{DurableTopic, Runtime, Topic};

use crate::BenchError;
use crate::scale::failed;

/// Keeps all records: what retention drops nobody can read.
pub(super) const RECORDS: DurableTopic<String> = Topic::named("bench.records")
    .durable()
    .bytes_max(u64::MAX)
    .len_max(u64::MAX);

/// What a record's payload has on disk.
pub(super) const BODY_BYTES: usize = 100;
/// What a payload and MessagePack say before a text of this size.
const TEXT_HEAD_BYTES: usize = 3;
/// A record begins with its number, in as many digits.
const DIGITS: usize = 20;
/// Keys of records, but where each has a key of its own.
pub(super) const KEYS: u64 = 1_024;

/// A runtime with the topic, and its store in this folder.
pub(super) async fn open(folder: &Path) -> Result<(Runtime, DurableTopicHandle<String>), BenchError> {
    let builder = Runtime::open(folder.join("store.redb")).durable_topic(RECORDS);
    let runtime = builder.start().await.map_err(failed)?;
    let topic = runtime.durable_topic(RECORDS).map_err(failed)?;
    Ok((runtime, topic))
}

/// The payload of the record of a number.
pub(super) fn record_of(number: u64) -> String {
    let rest = BODY_BYTES - TEXT_HEAD_BYTES - DIGITS;
    format!("{number:0DIGITS$}{:m<rest$}", "")
}

/// The number of a record that [`record_of`] made.
pub(super) fn number_of(record: &str) -> Option<u64> {
    if record.len() != BODY_BYTES - TEXT_HEAD_BYTES {
        return None;
    }
    record.get(..DIGITS)?.parse().ok()
}

/// The keys that records have in turn, made once: a publisher has its key at hand.
pub(super) fn keys() -> Vec<String> {
    (0..KEYS).map(|number| format!("key-{number}")).collect()
}

pub(super) fn wrong(what: String) -> BenchError {
    BenchError::Wrong {
        contestant: "millrun".into(),
        what,
    }
}

#[cfg(test)]
mod tests {
    use millrun::Payload;

    use super::*;

    #[test]
    fn a_record_has_a_hundred_bytes_and_its_number() {
        for number in [0, 7, u64::MAX] {
            let record = record_of(number);
            assert_eq!(Payload::encode(&record).unwrap().len(), BODY_BYTES);
            assert_eq!(number_of(&record), Some(number));
        }
        assert_eq!(number_of("7"), None);
    }
}
