//! Records of topics: with turns or by themselves, numbered without gaps, read from anywhere, dropped by retention.
//!
//! A journal that keeps no topics passes all of it.

use std::time::Duration;

use millrun_core::{Epoch, Offset, Partition, Sequence, Timestamp};

use super::actor::accepted;
use super::rung::Rung;
use super::upkeep::keep_up;
use super::{Author, Subject, suite};
use crate::batch::{Batch, TopicRecordHeader};
use crate::config::JournalConfig;
use crate::error::{EnqueueError, ReadError, TopicRefused, TurnError, TurnRefused};
use crate::journal::{Enqueued, Journal};
use crate::topics::{
    LatestRecords, TopicAppend, TopicNumber, TopicRecord, TopicRetention, TopicStreams, TopicSummary,
};

suite![
    a_topic_has_one_number_for_its_name,
    topics_that_cannot_be_kept_are_refused,
    records_are_numbered_and_read_as_they_were_appended,
    pages_of_any_size_and_from_anywhere_make_up_the_whole,
    records_and_numbers_are_there_after_reopening,
    a_record_shares_the_fate_of_its_turn,
    a_record_under_an_earlier_epoch_is_not_appended,
    a_record_with_a_remembered_id_is_appended_once,
    only_so_many_ids_are_remembered,
    retention_drops_the_earliest_and_says_how_many,
    records_that_wait_count_to_the_bounds_of_the_buffer,
    a_closed_journal_says_so,
];

pub(super) const START: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);
pub(super) const HOUR: Duration = Duration::from_secs(3_600);

/// Someone who appends to a topic.
pub(super) struct TopicAuthor {
    pub(super) topic: TopicNumber,
    partition: Partition,
    epoch: Epoch,
    pub(super) time: Timestamp,
}

impl TopicAuthor {
    pub(super) fn new(journal: &impl Journal, topic: TopicNumber) -> Self {
        let partition = Partition::of(b"topics");
        let epoch = journal
            .take_over(&[partition])
            .expect("an open journal gives an epoch");
        Self {
            topic,
            partition,
            epoch,
            time: START,
        }
    }

    fn header(&self) -> TopicRecordHeader {
        TopicRecordHeader {
            topic: self.topic,
            partition: self.partition,
            epoch: self.epoch,
            time: self.time,
            id: None,
            with: None,
        }
    }

    fn put(&self, batch: &mut Batch, body: &[u8], id: Option<u128>) {
        let header = TopicRecordHeader { id, ..self.header() };
        // In two pieces, which are one body.
        let (begin, end) = body.split_at(body.len() / 2);
        batch.topic_record(header, &[begin, end]).expect("it is small");
    }

    /// Appends records in one batch; returns when they are durable.
    pub(super) fn append<S: Subject>(
        &self,
        subject: &S,
        journal: &S::Journal,
        bodies: &[Vec<u8>],
    ) -> Vec<TopicAppend> {
        let mut batch = Batch::new();
        bodies.iter().for_each(|body| self.put(&mut batch, body, None));
        enqueue(subject, journal, &batch).topic_appends
    }

    /// Appends one record with an id.
    pub(super) fn append_with_id<S: Subject>(
        &self,
        subject: &S,
        journal: &S::Journal,
        body: &[u8],
        id: u128,
    ) -> Vec<TopicAppend> {
        let mut batch = Batch::new();
        self.put(&mut batch, body, Some(id));
        enqueue(subject, journal, &batch).topic_appends
    }

    /// Queues records, and does not wait until they are durable: that they are when this offset is.
    pub(super) fn queue(&self, journal: &impl Journal, bodies: &[Vec<u8>]) -> Offset {
        let mut batch = Batch::new();
        bodies.iter().for_each(|body| self.put(&mut batch, body, None));
        journal.enqueue(&batch).expect("the batch is taken").offset
    }
}

pub(super) fn topics(journal: &impl Journal) -> &dyn TopicStreams {
    journal.topics().expect("it was asked before")
}

fn enqueue<S: Subject>(subject: &S, journal: &S::Journal, batch: &Batch) -> Enqueued {
    let enqueued = journal.enqueue(batch).expect("the batch is taken");
    subject.settle(journal, enqueued.offset);
    enqueued
}

/// A journal with a topic that keeps all, and someone who appends to it; `None` if it keeps no topics.
pub(super) fn opened<S: Subject>(subject: &S, config: JournalConfig) -> Option<(S::Journal, TopicAuthor)> {
    let journal = subject.fresh(config);
    let declared = journal
        .topics()?
        .declare("orders.placed", TopicRetention::unbounded());
    let author = TopicAuthor::new(&journal, declared.expect("there is room for it"));
    Some((journal, author))
}

pub(super) fn bodies(count: usize) -> Vec<Vec<u8>> {
    (0..count)
        .map(|at| format!("body {at} {}", "x".repeat(at % 50)).into_bytes())
        .collect()
}

pub(super) fn appended(sequences: std::ops::RangeInclusive<u64>) -> Vec<TopicAppend> {
    sequences
        .map(|at| TopicAppend::Appended(Sequence::new(at)))
        .collect()
}

fn told(records: impl Iterator<Item = TopicRecord>) -> Vec<(u64, Vec<u8>)> {
    records
        .map(|record| (record.sequence.get(), record.body.to_vec()))
        .collect()
}

/// All records behind `after`, in pages of so many bytes.
pub(super) fn read_all(
    journal: &impl Journal,
    topic: TopicNumber,
    after: u64,
    bytes_max: usize,
) -> Vec<(u64, Vec<u8>)> {
    let (mut after, mut all) = (Sequence::new(after), Vec::new());
    loop {
        let page = topics(journal)
            .read(topic, after, bytes_max)
            .expect("nothing is damaged");
        all.extend(told(page.records()));
        if page.chunks.is_empty() {
            return all;
        }
        assert!(page.last() > after, "each page goes on");
        after = page.last();
    }
}

fn numbered(bodies: &[Vec<u8>]) -> Vec<(u64, Vec<u8>)> {
    (1..).zip(bodies.iter().cloned()).collect()
}

fn a_topic_has_one_number_for_its_name<S: Subject>(subject: &S) {
    let Some((journal, author)) = opened(subject, JournalConfig::default()) else {
        return;
    };
    let short = TopicRetention {
        len_max: 5,
        ..TopicRetention::default()
    };
    let again = topics(&journal).declare("orders.placed", short);
    assert_eq!(again, Ok(author.topic));
    let other = topics(&journal)
        .declare("orders", short)
        .expect("there is room for it");
    assert_ne!(other, author.topic);
    author.append(subject, &journal, &bodies(1));
    let journal = subject.reopen(journal, JournalConfig::default());
    let list = topics(&journal).list();
    let listed: Vec<_> = list
        .iter()
        .map(|topic| (topic.name.as_str(), topic.retention))
        .collect();
    assert_eq!(listed, [("orders.placed", short), ("orders", short)]);
    assert_eq!(topics(&journal).declare("orders", short), Ok(other));
    assert_eq!(topics(&journal).summary(other).as_ref(), list.last());
    assert_eq!(topics(&journal).summary(TopicNumber::new(9)), None);
}

fn topics_that_cannot_be_kept_are_refused<S: Subject>(subject: &S) {
    let config = JournalConfig {
        topics_len_max: 2,
        ..JournalConfig::default()
    };
    let Some((journal, author)) = opened(subject, config) else {
        return;
    };
    let all = TopicRetention::default();
    let none = TopicRetention { len_max: 0, ..all };
    let long = "t".repeat(256);
    for (name, retention, expected) in [
        ("", all, TopicRefused::Name { bytes: 0 }),
        (long.as_str(), all, TopicRefused::Name { bytes: 256 }),
        ("second", none, TopicRefused::Retention),
    ] {
        assert_eq!(topics(&journal).declare(name, retention), Err(expected));
    }
    assert!(topics(&journal).declare("second", all).is_ok());
    let third = topics(&journal).declare("third", all);
    assert_eq!(third, Err(TopicRefused::TooMany { max: 2 }));
    let mut batch = Batch::with_turn_bytes_max(100);
    let header = author.header();
    assert!(matches!(
        batch.topic_record(header, &[&[0; 90]]),
        Err(TurnError::TooLarge { max: 100, .. })
    ));
    let with = TopicRecordHeader {
        with: Some(0),
        ..header
    };
    assert_eq!(batch.topic_record(with, &[b"x"]), Err(TurnError::NoSuchTurn));
    let unknown = TopicRecordHeader {
        topic: TopicNumber::new(9),
        ..header
    };
    batch.topic_record(unknown, &[b"x"]).expect("it is small");
    assert_eq!(
        enqueue(subject, &journal, &batch).topic_appends,
        [TopicAppend::UnknownTopic]
    );
    let unread = topics(&journal).read(TopicNumber::new(9), Sequence::ZERO, 1);
    assert_eq!(
        unread,
        Err(ReadError::UnknownTopic {
            topic: TopicNumber::new(9)
        })
    );
}

fn records_are_numbered_and_read_as_they_were_appended<S: Subject>(subject: &S) {
    let Some((journal, mut author)) = opened(subject, JournalConfig::default()) else {
        return;
    };
    let LatestRecords::Page(page) = topics(&journal)
        .latest(author.topic, Sequence::ZERO, 1)
        .expect("it is known")
    else {
        panic!("there is nothing to be asked for");
    };
    assert_eq!((page.records().count(), page.last()), (0, Sequence::ZERO));
    let all = bodies(300);
    assert_eq!(author.append(subject, &journal, &all[..100]), appended(1..=100));
    author.time = START + HOUR;
    assert_eq!(author.append(subject, &journal, &all[100..]), appended(101..=300));
    let page = topics(&journal)
        .read(author.topic, Sequence::ZERO, usize::MAX)
        .expect("it is known");
    let records: Vec<_> = page.records().collect();
    assert_eq!(told(records.iter().cloned()), numbered(&all));
    for record in &records {
        let time = if record.sequence.get() <= 100 {
            START
        } else {
            START + HOUR
        };
        assert_eq!(
            (record.partition, record.time, record.id),
            (author.partition, time, None)
        );
    }
    let summary = topics(&journal).summary(author.topic).expect("it was declared");
    assert_eq!(
        (summary.first, summary.last),
        (Sequence::new(1), Sequence::new(300))
    );
    assert_eq!(
        summary.bytes,
        all.iter().map(|body| body.len() as u64 + 20).sum::<u64>()
    );
    for (time, behind) in [
        (START, 0),
        (START + HOUR / 2, 100),
        (START + HOUR, 100),
        (START + HOUR * 2, 300),
    ] {
        let at = topics(&journal).at_time(author.topic, time).expect("it is known");
        // It is exact to what was written together.
        let behind = Sequence::new(behind);
        let page = topics(&journal).read(author.topic, at, 1).expect("it is known");
        let together = page.chunks.first().map_or(at, |chunk| chunk.last());
        assert!(
            at <= behind && (at == behind || together > behind),
            "{time:?}: {at}"
        );
    }
}

fn pages_of_any_size_and_from_anywhere_make_up_the_whole<S: Subject>(subject: &S) {
    let config = JournalConfig {
        // So that most of it is on the disk only, where there is one.
        topic_latest_bytes_max: 2_000,
        ..JournalConfig::default()
    };
    let Some((journal, author)) = opened(subject, config) else {
        return;
    };
    let mut all = bodies(120);
    // Larger than a row, and of several rows in one commit.
    all.extend([vec![7; 300_000], vec![8; 90_000], vec![9; 90_000], vec![1; 10]]);
    let mut from = 0;
    for size in [1, 2, 3, 50, 1, 40, 23, 4] {
        author.append(subject, &journal, &all[from..from + size]);
        from += size;
    }
    assert_eq!(from, all.len());
    let numbered = numbered(&all);
    for bytes_max in [0, 1, 500, 10_000, usize::MAX] {
        assert_eq!(
            read_all(&journal, author.topic, 0, bytes_max),
            numbered,
            "{bytes_max} bytes a page"
        );
    }
    for after in 0..=all.len() + 1 {
        let expected = numbered.get(after..).unwrap_or_default();
        assert_eq!(
            read_all(&journal, author.topic, after as u64, 3_000),
            expected,
            "after {after}"
        );
        match topics(&journal).latest(author.topic, Sequence::new(after as u64), 3_000) {
            Ok(LatestRecords::Page(page)) => {
                let told = told(page.records());
                assert_eq!(told, expected[..told.len()], "after {after}");
            }
            Ok(LatestRecords::Ask) => assert!(after < all.len()),
            Err(error) => panic!("{error}"),
        }
    }
}

fn records_and_numbers_are_there_after_reopening<S: Subject>(subject: &S) {
    let Some((mut journal, author)) = opened(subject, JournalConfig::default()) else {
        return;
    };
    let other = topics(&journal)
        .declare("other", TopicRetention::unbounded())
        .expect("there is room for it");
    let all = bodies(40);
    for round in 0..4_usize {
        let author = TopicAuthor::new(&journal, author.topic);
        let (from, to) = (round * 10, round * 10 + 10);
        assert_eq!(
            author.append(subject, &journal, &all[from..to]),
            appended(from as u64 + 1..=to as u64)
        );
        let author = TopicAuthor::new(&journal, other);
        author.append(subject, &journal, &all[from..=from]);
        journal = subject.reopen(journal, JournalConfig::default());
        assert_eq!(read_all(&journal, author.topic, 0, 100).len(), round + 1);
    }
    assert_eq!(read_all(&journal, author.topic, 0, 700), numbered(&all));
    let kept = topics(&journal).list();
    let bytes: u64 = kept.iter().map(|topic| topic.bytes).sum();
    assert_eq!((journal.stats().topics, journal.stats().topic_bytes), (2, bytes));
}

fn a_record_shares_the_fate_of_its_turn<S: Subject>(subject: &S) {
    let Some((journal, topic)) = opened(subject, JournalConfig::default()) else {
        return;
    };
    let mut sound = Author::new(&journal, "sound", 1);
    let mut wrong = Author::new(&journal, "wrong", 2);
    wrong.head = Sequence::new(5);
    let of = |author: &Author, turn| TopicRecordHeader {
        partition: author.run.partition(),
        epoch: author.epoch,
        with: Some(turn),
        ..topic.header()
    };
    let mut batch = Batch::new();
    for body in [&b"first"[..], b"second"] {
        let turn = sound.put(&mut batch, &[body], false);
        batch
            .topic_record(of(&sound, turn), &[body])
            .expect("it is small");
        // A turn that expects another head is refused.
        wrong.head = Sequence::new(5);
        let mut turn = batch.turn(crate::batch::TurnHeader {
            run: wrong.run,
            head: wrong.head,
            epoch: wrong.epoch,
            time: wrong.time,
            opens: None,
        });
        let encode = |buffer: &mut Vec<u8>| {
            buffer.extend_from_slice(body);
            Ok::<_, std::convert::Infallible>(())
        };
        turn.record(1, encode).expect("the encoder cannot fail");
        let turn = turn.finish(false).expect("the turn is sound");
        batch
            .topic_record(of(&wrong, turn), &[body])
            .expect("it is small");
    }
    let enqueued = enqueue(subject, &journal, &batch);
    let refused: Vec<_> = enqueued.refused.iter().map(|refused| refused.turn).collect();
    assert_eq!(refused, [1, 3]);
    let (first, second) = (Sequence::new(1), Sequence::new(2));
    assert_eq!(
        enqueued.topic_appends,
        [
            TopicAppend::Appended(first),
            TopicAppend::WithTurn,
            TopicAppend::Appended(second),
            TopicAppend::WithTurn,
        ]
    );
    let expected = numbered(&[b"first".to_vec(), b"second".to_vec()]);
    assert_eq!(read_all(&journal, topic.topic, 0, 1_000), expected);
    sound.assert_history(&journal);
    // The last turn once more, which is known: its record is not appended a second time.
    let mut again = Batch::new();
    sound.head = Sequence::new(1);
    let turn = sound.put(&mut again, &[b"second"], false);
    again
        .topic_record(of(&sound, turn), &[b"second"])
        .expect("it is small");
    let enqueued = enqueue(subject, &journal, &again);
    assert_eq!(enqueued.refused[0].error, TurnRefused::AlreadyAppended);
    assert_eq!(enqueued.topic_appends, [TopicAppend::WithTurn]);
    assert_eq!(read_all(&journal, topic.topic, 0, 1_000), expected);
}

fn a_record_under_an_earlier_epoch_is_not_appended<S: Subject>(subject: &S) {
    let Some((journal, author)) = opened(subject, JournalConfig::default()) else {
        return;
    };
    let next = TopicAuthor::new(&journal, author.topic);
    let fenced = TopicAppend::Fenced { current: next.epoch };
    assert_eq!(author.append(subject, &journal, &bodies(1)), [fenced]);
    assert_eq!(next.append(subject, &journal, &bodies(1)), appended(1..=1));
}

fn a_record_with_a_remembered_id_is_appended_once<S: Subject>(subject: &S) {
    let Some((mut journal, author)) = opened(subject, JournalConfig::default()) else {
        return;
    };
    let other = topics(&journal)
        .declare("other", TopicRetention::unbounded())
        .expect("there is room for it");
    for round in 0..3 {
        let author = TopicAuthor::new(&journal, author.topic);
        let mut batch = Batch::new();
        for id in [1, 2, 1, 1 << 100] {
            author.put(&mut batch, b"body", Some(id));
        }
        TopicAuthor {
            topic: other,
            ..author
        }
        .put(&mut batch, b"another", Some(1));
        let [one, two, three] = [1, 2, 3].map(Sequence::new);
        let expected = match round {
            0 => [
                TopicAppend::Appended(one),
                TopicAppend::Appended(two),
                TopicAppend::AlreadyAppended(one),
                TopicAppend::Appended(three),
                TopicAppend::Appended(one),
            ],
            _ => [one, two, one, three, one].map(TopicAppend::AlreadyAppended),
        };
        assert_eq!(enqueue(subject, &journal, &batch).topic_appends, expected);
        journal = subject.reopen(journal, JournalConfig::default());
        // A journal that does not tell has none.
        let tells = topics(&journal).appended_with(author.topic, 1).is_some();
        for (id, at) in [(1, Some(one)), (2, Some(two)), (1 << 100, Some(three)), (3, None)] {
            let told = topics(&journal).appended_with(author.topic, id);
            assert_eq!(told, at.filter(|_| tells), "{id}");
        }
    }
    let page = topics(&journal)
        .read(author.topic, Sequence::ZERO, 1_000)
        .expect("it is known");
    let ids: Vec<_> = page.records().map(|record| record.id).collect();
    assert_eq!(ids, [Some(1), Some(2), Some(1 << 100)]);
}

fn only_so_many_ids_are_remembered<S: Subject>(subject: &S) {
    let config = JournalConfig {
        topic_ids_len_max: 10,
        ..JournalConfig::default()
    };
    let Some((mut journal, author)) = opened(subject, config.clone()) else {
        return;
    };
    let append = |journal: &S::Journal, id: u128| {
        let author = TopicAuthor::new(journal, author.topic);
        let mut batch = Batch::new();
        author.put(&mut batch, b"body", Some(id));
        enqueue(subject, journal, &batch).topic_appends.remove(0)
    };
    for id in 1..=25_u64 {
        assert_eq!(
            append(&journal, u128::from(id)),
            TopicAppend::Appended(Sequence::new(id))
        );
    }
    for id in 16..=25_u64 {
        let known = TopicAppend::AlreadyAppended(Sequence::new(id));
        assert_eq!(append(&journal, u128::from(id)), known);
        journal = subject.reopen(journal, config.clone());
    }
    assert_eq!(
        append(&journal, 15),
        TopicAppend::Appended(Sequence::new(26)),
        "it was forgotten"
    );
}

fn retention_drops_the_earliest_and_says_how_many<S: Subject>(subject: &S) {
    let all = TopicRetention::unbounded();
    let mut config = JournalConfig::default();
    config.retention.age_step_max = Duration::MAX;
    // A record has a row of its own here, so that what is dropped is exact.
    for (retention, expected) in [
        (TopicRetention { len_max: 4, ..all }, 4),
        (
            TopicRetention {
                bytes_max: 5 * (1_000 + 20),
                ..all
            },
            5,
        ),
        (
            TopicRetention {
                age_max: HOUR * 2 + HOUR / 2,
                ..all
            },
            3,
        ),
    ] {
        let Some((journal, mut author)) = opened(subject, config.clone()) else {
            return;
        };
        topics(&journal)
            .declare("orders.placed", retention)
            .expect("it is known");
        for at in 0..12_u32 {
            author.time = START + HOUR * at;
            author.append(subject, &journal, &[vec![7; 1_000]]);
        }
        assert_eq!(keep_up(&journal, author.time), Ok(()));
        let check = |journal: &S::Journal, kept: u64| {
            let page = topics(journal)
                .read(author.topic, Sequence::ZERO, usize::MAX)
                .expect("it is known");
            let sequences: Vec<_> = page.records().map(|record| record.sequence.get()).collect();
            assert_eq!(sequences, (13 - kept..=12).collect::<Vec<_>>(), "{retention:?}");
            assert_eq!(page.dropped, 12 - kept);
            let TopicSummary {
                first, last, bytes, ..
            } = topics(journal).summary(author.topic).expect("it is known");
            assert_eq!((first.get(), last.get(), bytes), (13 - kept, 12, kept * 1_020));
            let inside = topics(journal).read(author.topic, Sequence::new(12 - kept + 1), usize::MAX);
            assert_eq!(inside.expect("it is known").dropped, 0);
        };
        check(&journal, expected);
        let journal = subject.reopen(journal, config.clone());
        check(&journal, expected);
        // All may go with age, and the numbers go on.
        let old = TopicRetention { age_max: HOUR, ..all };
        topics(&journal)
            .declare("orders.placed", old)
            .expect("it is known");
        assert_eq!(keep_up(&journal, author.time + HOUR * 5), Ok(()));
        check(&journal, 0);
        let journal = subject.reopen(journal, config.clone());
        check(&journal, 0);
        let mut author = TopicAuthor::new(&journal, author.topic);
        author.time = START + HOUR * 20;
        assert_eq!(author.append(subject, &journal, &bodies(2)), appended(13..=14));
        assert_eq!(read_all(&journal, author.topic, 0, 1).len(), 2);
    }
}

fn records_that_wait_count_to_the_bounds_of_the_buffer<S: Subject>(subject: &S) {
    let config = JournalConfig {
        batch_len_max: 4,
        ..JournalConfig::default()
    };
    let Some((journal, author)) = opened(subject, config) else {
        return;
    };
    let mut batch = Batch::new();
    for body in bodies(3) {
        author.put(&mut batch, &body, None);
    }
    let (bell, rung) = Rung::new();
    journal.watch(bell);
    let (mut taken, mut last) = (0, Offset::ZERO);
    while taken < 300 {
        match journal.enqueue(&batch) {
            Ok(enqueued) => {
                last = enqueued.offset;
                taken += 3;
            }
            Err(EnqueueError::Full) => rung.wait(),
            Err(error) => panic!("{error}"),
        }
    }
    subject.settle(&journal, last);
    let mut other = Author::new(&journal, "run", 1);
    accepted(&journal, &other.batch(&[b"one"], false));
    assert_eq!(read_all(&journal, author.topic, 0, 10_000).len(), 300);
}

fn a_closed_journal_says_so<S: Subject>(subject: &S) {
    let Some((journal, author)) = opened(subject, JournalConfig::default()) else {
        return;
    };
    author.append(subject, &journal, &bodies(2));
    journal.close().expect("nothing is wrong with it");
    let declared = topics(&journal).declare("other", TopicRetention::default());
    assert!(matches!(declared, Err(TopicRefused::Failed(_))), "{declared:?}");
    let latest = topics(&journal).latest(author.topic, Sequence::ZERO, 1);
    assert!(matches!(latest, Err(ReadError::Failed(_))), "{latest:?}");
    let read = topics(&journal).read(author.topic, Sequence::ZERO, 1);
    assert!(matches!(read, Err(ReadError::Failed(_))), "{read:?}");
    let at = topics(&journal).at_time(author.topic, START);
    assert!(matches!(at, Err(ReadError::Failed(_))), "{at:?}");
}
