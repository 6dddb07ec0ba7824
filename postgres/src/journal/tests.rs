//! The callers' half of the journal; the test stands in the place of the writer.

use millrun_persistence::contract::Author;
use millrun_persistence::{TopicRecordHeader, TopicRegister, TopicRetention, TopicStreams};

use super::*;
use crate::shared::{Landed, Taken, Took};

/// A journal without a writer and without readers.
pub(crate) fn without_threads(config: JournalConfig) -> PostgresJournal {
    let heads = LiveHeads::new(Epoch::of(1, 0), config.turn_bytes_max);
    let topics = TopicRegister::new(&config);
    PostgresJournal {
        shown: String::new(),
        config,
        store_number: 1,
        shared: PostgresShared::new(heads, topics, WrittenCounts::default()),
        questions: Arc::default(),
        threads: Vec::new(),
        nodes: None,
    }
}

fn taken(journal: &PostgresJournal) -> Taken {
    match journal.shared.take(std::time::Duration::ZERO) {
        Took::Flush(taken) => *taken,
        Took::Claim | Took::Idle | Took::End => panic!("something is queued"),
    }
}

/// Takes what is queued, as the writer does, and makes it durable.
fn flush(journal: &PostgresJournal) {
    let taken = taken(journal);
    let ready = journal.shared.landed(Landed {
        offset: taken.offset,
        counts: WrittenCounts::default(),
        upkept: None,
    });
    assert_eq!(ready.len(), 0);
}

fn appended(journal: &PostgresJournal) -> Author {
    let mut author = Author::new(journal, "a", 1);
    let enqueued = journal.enqueue(&author.batch(&[b"one"], false)).unwrap();
    assert_eq!(enqueued.refused, []);
    flush(journal);
    assert_eq!(journal.high_watermark(), enqueued.offset);
    author
}

#[test]
fn an_answer_waits_for_a_flush_that_was_not_taken_before_it() {
    let journal = without_threads(JournalConfig::default());
    let author = appended(&journal);
    let is_ahead = |offset: Offset| offset > journal.high_watermark();
    assert!(is_ahead(journal.confirm(Offset::ZERO)));
    flush(&journal);
    let snapshot = Snapshot {
        run: author.run,
        sequence: author.head,
        bytes: bytes::Bytes::from_static(b"folded"),
    };
    journal.put_snapshot(snapshot).unwrap();
    assert!(is_ahead(journal.confirm(Offset::ZERO)), "a snapshot is queued");
    flush(&journal);
    journal.delete_snapshot(author.run).unwrap();
    assert!(is_ahead(journal.confirm(Offset::ZERO)), "a deletion is queued");
    // A flush that is under way was sent before the question.
    let taken = taken(&journal).offset;
    assert!(journal.confirm(Offset::ZERO) > taken);
    // Questions share the flush that is queued.
    assert_eq!(journal.confirm(Offset::ZERO), journal.confirm(Offset::ZERO));
}

#[test]
fn a_refusal_waits_for_a_flush_as_an_answer_does() {
    let journal = without_threads(JournalConfig::default());
    let author = appended(&journal);
    let mut late = Author {
        head: Sequence::ZERO,
        ..author.clone()
    };
    let enqueued = journal.enqueue(&late.batch(&[b"late"], false)).unwrap();
    assert_eq!(enqueued.refused.len(), 1);
    assert!(enqueued.offset > journal.high_watermark());
    flush(&journal);
    let topic = journal.declare("t", TopicRetention::unbounded()).unwrap();
    let record = || {
        let mut batch = Batch::new();
        let header = TopicRecordHeader {
            topic,
            partition: author.run.partition(),
            epoch: author.epoch,
            time: author.time,
            id: Some(7),
            with: None,
        };
        batch.topic_record(header, &[b"body"]).unwrap();
        batch
    };
    assert_eq!(journal.enqueue(&record()).unwrap().refused, []);
    flush(&journal);
    let again = journal.enqueue(&record()).unwrap();
    assert!(again.offset > journal.high_watermark(), "{again:?}");
    flush(&journal);
    // Nobody was answered by a batch of nothing.
    let nothing = journal.enqueue(&Batch::new()).unwrap().offset;
    assert!(nothing <= journal.high_watermark());
}

#[test]
fn nothing_is_confirmed_by_a_journal_that_has_failed() {
    let journal = without_threads(JournalConfig::default());
    appended(&journal);
    let failure = JournalFailure::new(FailureKind::Fenced, "another process has the store");
    journal.shared.end(failure);
    assert!(journal.confirm(Offset::ZERO) > journal.high_watermark());
}

#[test]
fn what_waits_for_a_flush_has_a_bound_whatever_it_is() {
    let mut config = JournalConfig::default();
    config.batch_len_max = 10;
    let journal = without_threads(config);
    let mut author = appended(&journal);
    let snapshot = Snapshot {
        run: author.run,
        sequence: author.head,
        bytes: bytes::Bytes::new(),
    };
    for _ in 0..5 {
        journal.put_snapshot(snapshot.clone()).unwrap();
        journal.delete_snapshot(author.run).unwrap();
    }
    assert_eq!(journal.put_snapshot(snapshot), Err(SnapshotRefused::Full));
    let batch = author.clone().batch(&[b"two"], false);
    assert!(matches!(journal.enqueue(&batch), Err(EnqueueError::Full)));
    // Of epochs the latest is kept, and a look is one, however often it is asked for.
    for _ in 0..100 {
        author.epoch = journal.take_over(&[author.run.partition()]).unwrap();
        journal.confirm(Offset::ZERO);
    }
    let taken = taken(&journal);
    assert_eq!((taken.entries.len(), taken.epochs.len()), (10, 1));
    assert_eq!(taken.epochs[&author.run.partition()], author.epoch);
}

#[test]
fn a_topic_that_is_declared_again_is_not_written_again() {
    let journal = without_threads(JournalConfig::default());
    let declare = |retention| journal.declare("t", retention).unwrap();
    let is_queued = || match journal.shared.take(std::time::Duration::ZERO) {
        Took::Flush(_) => !journal.shared.lock().topics.seal_changed().is_empty(),
        Took::Claim | Took::Idle | Took::End => false,
    };
    declare(TopicRetention::unbounded());
    assert!(is_queued());
    declare(TopicRetention::unbounded());
    assert!(!is_queued());
    let mut retention = TopicRetention::unbounded();
    retention.len_max = 5;
    declare(retention);
    assert!(is_queued());
}
