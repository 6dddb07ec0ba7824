//! Topics of a random workload: their records follow from their places, so that counts are all that is to be remembered.

use millrun_core::{Epoch, Partition, Sequence, Timestamp};
use millrun_persistence::{
    Batch, Enqueued, Journal, RedbJournal, TopicAppend, TopicNumber, TopicRecordHeader, TopicRetention,
    TopicStreams,
};

use super::disk::Dice;

/// How many topics there are. Of the third few records are retained, and of the last fewer, but those that its reader has not
/// read.
const TOPICS: usize = 4;
const RETAINED: u64 = 40;
/// How many of the durable records the reader of the last topic leaves unread.
const UNREAD: u64 = 30;

/// How many records each topic has had.
pub(crate) type Published = [u64; TOPICS];

fn retention(topic: usize) -> TopicRetention {
    match topic {
        2 => TopicRetention {
            len_max: RETAINED,
            ..TopicRetention::default()
        },
        3 => TopicRetention {
            len_max: 2,
            unread_bytes_max: u64::MAX,
            ..TopicRetention::default()
        },
        _ => TopicRetention::unbounded(),
    }
}

/// What a record consists of.
fn body(topic: usize, sequence: u64) -> Vec<u8> {
    let large = if sequence.is_multiple_of(17) { 40_000 } else { 90 };
    let len = usize::try_from(sequence.wrapping_mul(2_654_435_761) % large).unwrap();
    let mut body = format!("{topic}/{sequence}/").into_bytes();
    body.resize(body.len() + len, sequence.to_le_bytes()[0]);
    body
}

fn streams(journal: &RedbJournal) -> &dyn TopicStreams {
    journal.topics().expect("this journal keeps topics")
}

/// Puts some records into a batch, with its turns and by themselves; says how many of each topic. `None` if the journal
/// has failed.
pub(crate) fn put(
    batch: &mut Batch,
    journal: &RedbJournal,
    (before, epoch, time): (Published, Epoch, Timestamp),
    dice: &mut Dice,
) -> Option<Published> {
    let mut published = before;
    for (topic, count) in published.iter_mut().enumerate() {
        let number = streams(journal)
            .declare(&format!("topic-{topic}"), retention(topic))
            .ok()?;
        assert_eq!(number, numbered(topic));
        for _ in 0..dice.below(4) {
            *count += 1;
            let with = usize::try_from(dice.below(batch.turns() as u64 + 1)).unwrap();
            let partition = Partition::of(&[dice.roll().to_le_bytes()[0]]);
            let header = TopicRecordHeader {
                topic: number,
                partition,
                epoch,
                time,
                // Those of one topic are remembered by what they are.
                id: (topic == 1).then_some(u128::from(*count)),
                with: (with < batch.turns()).then_some(with),
            };
            batch.topic_record(header, &[&body(topic, *count)]).unwrap();
        }
    }
    let held = numbered(TOPICS - 1);
    let reader = streams(journal)
        .declare("reader", TopicRetention::unbounded())
        .ok()?;
    let last = streams(journal).summary(held)?.last.get();
    // What a reader has come to is durable.
    streams(journal).note_reader(held, reader, Sequence::new(last.saturating_sub(UNREAD)));
    streams(journal).all_readers_noted(held);
    Some(published)
}

fn numbered(topic: usize) -> TopicNumber {
    TopicNumber::new(u32::try_from(topic).unwrap())
}

/// All records of a batch must have been taken.
pub(crate) fn assert_taken(enqueued: &Enqueued) {
    let is_taken = |append: &TopicAppend| matches!(append, TopicAppend::Appended(_));
    assert!(enqueued.topic_appends.iter().all(is_taken), "{enqueued:?}");
}

/// How many records each topic has had, by what a journal holds that was opened after a crash; an error if that is not what
/// was written.
pub(crate) fn check(journal: &RedbJournal) -> Result<Published, String> {
    let mut found = Published::default();
    for (topic, count) in found.iter_mut().enumerate() {
        let Some(summary) = streams(journal).summary(numbered(topic)) else {
            continue;
        };
        *count = summary.last.get();
        let (mut after, mut next) = (Sequence::ZERO, summary.first.get());
        let retained = summary.last.get() + 1 - next;
        let may_drop = [false, false, retained >= RETAINED, retained >= UNREAD];
        if next > 1 && !may_drop[topic] {
            return Err(format!(
                "topic {topic}: {} records were dropped, {retained} are left",
                next - 1
            ));
        }
        loop {
            let page = streams(journal).read(numbered(topic), after, 5_000);
            let page = page.map_err(|error| format!("topic {topic}: {error}"))?;
            for record in page.records() {
                if record.sequence.get() != next || record.body != body(topic, next) {
                    return Err(format!("topic {topic}: record {} is not {next}", record.sequence));
                }
                if record.id != (topic == 1).then_some(u128::from(next)) {
                    return Err(format!("topic {topic}: record {next} has id {:?}", record.id));
                }
                next += 1;
            }
            after = page.last();
            if page.chunks.is_empty() {
                break;
            }
        }
        if next != *count + 1 {
            return Err(format!("topic {topic}: it ends before {next}, and has {count}"));
        }
    }
    Ok(found)
}

/// The latest record with an id, once more, is known.
pub(crate) fn assert_known(journal: &RedbJournal, (published, epoch): (Published, Epoch)) {
    if published[1] == 0 {
        return;
    }
    let mut batch = Batch::new();
    let header = TopicRecordHeader {
        topic: numbered(1),
        partition: Partition::of(b"again"),
        epoch,
        time: Timestamp::EPOCH,
        id: Some(u128::from(published[1])),
        with: None,
    };
    batch.topic_record(header, &[b"again"]).unwrap();
    let known = [TopicAppend::AlreadyAppended(Sequence::new(published[1]))];
    let enqueued = journal.enqueue(&batch).unwrap();
    assert_eq!(
        enqueued.topic_appends, known,
        "record {} came again",
        published[1]
    );
}
