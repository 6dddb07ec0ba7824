//! Bounds: what happens at each of them.

use std::convert::Infallible;

use millrun_core::{InstanceId, Sequence};

use super::actor::{accepted, refused};
use super::{Author, Subject, suite};
use crate::batch::{Batch, TurnHeader};
use crate::config::{JournalConfig, Retention};
use crate::error::{EnqueueError, ReadError, TurnError, TurnRefused};
use crate::journal::{Journal, Reads};

suite![
    a_turn_of_exactly_the_limit_is_taken,
    a_turn_above_the_limit_is_refused_and_touches_no_other,
    a_batch_larger_than_the_buffer_is_taken_alone,
    a_full_buffer_takes_nothing_and_has_room_again,
    a_batch_with_more_turns_than_fit_is_taken_alone,
    retention_by_count_drops_the_earliest_closed,
    retention_by_bytes_drops_the_earliest_closed,
    retention_by_age_drops_the_earliest_closed,
    retention_leaves_live_runs_alone,
    a_dropped_id_is_free_again,
    only_the_runs_that_were_dropped_last_are_remembered,
    a_run_that_never_was_is_not_called_expired,
    a_batch_checks_its_turns,
];

fn with(change: impl FnOnce(&mut JournalConfig)) -> JournalConfig {
    let mut config = JournalConfig::default();
    change(&mut config);
    config
}

fn a_turn_of_exactly_the_limit_is_taken<S: Subject>(subject: &S) {
    let probe = subject.fresh(JournalConfig::default());
    let body = [7; 500];
    let bytes = Author::new(&probe, "a", 1).batch(&[&body], false).bytes();
    let journal = subject.fresh(with(|config| config.turn_bytes_max = bytes));
    let mut author = Author::new(&journal, "a", 1);
    author.append(subject, &journal, &[&body], false);
    author.assert_history(&journal);
}

fn a_turn_above_the_limit_is_refused_and_touches_no_other<S: Subject>(subject: &S) {
    let journal = subject.fresh(with(|config| config.turn_bytes_max = 1_000));
    let mut small = Author::new(&journal, "small", 1);
    let mut large = Author::new(&journal, "large", 2);
    let mut batch = Batch::new();
    small.put(&mut batch, &[b"small"], false);
    let index = large.put(&mut batch, &[&[0; 2_000]], false);
    let enqueued = journal.enqueue(&batch).expect("the batch is taken");
    assert_eq!(enqueued.refused.len(), 1);
    assert_eq!(enqueued.refused[0].turn, index);
    assert!(matches!(
        enqueued.refused[0].error,
        TurnRefused::TooLarge { max: 1_000, .. }
    ));
    subject.settle(&journal, enqueued.offset);
    small.assert_history(&journal);
    assert_eq!(
        journal.history(large.run),
        Err(ReadError::UnknownRun { run: large.run })
    );
}

fn a_batch_larger_than_the_buffer_is_taken_alone<S: Subject>(subject: &S) {
    let journal = subject.fresh(with(|config| config.batch_bytes_max = 1_000));
    let mut author = Author::new(&journal, "a", 1);
    author.append(subject, &journal, &[&[1; 5_000], &[2; 5_000]], false);
    author.append(subject, &journal, &[b"and the next"], false);
    author.assert_history(&journal);
}

fn a_batch_with_more_turns_than_fit_is_taken_alone<S: Subject>(subject: &S) {
    let journal = subject.fresh(with(|config| config.batch_len_max = 3));
    let mut author = Author::new(&journal, "a", 1);
    let mut batch = Batch::new();
    for turn in 0..10_u8 {
        author.put(&mut batch, &[&[turn]], false);
    }
    subject.settle(&journal, accepted(&journal, &batch));
    author.assert_history(&journal);
}

fn a_full_buffer_takes_nothing_and_has_room_again<S: Subject>(subject: &S) {
    let journal = subject.fresh(with(|config| {
        config.batch_bytes_max = 4_000;
        config.batch_len_max = 4;
    }));
    let mut author = Author::new(&journal, "a", 1);
    let mut offset = journal.high_watermark();
    for turn in 0..200_u8 {
        let batch = author.batch(&[&[turn; 700]], false);
        loop {
            match journal.enqueue(&batch) {
                Ok(enqueued) => {
                    assert_eq!(
                        enqueued.refused,
                        [],
                        "a batch that met a full buffer left no trace"
                    );
                    offset = enqueued.offset;
                    break;
                }
                Err(error @ EnqueueError::Full) => {
                    assert!(error.is_retryable());
                    subject.settle(&journal, offset);
                }
                Err(error) => panic!("unexpected: {error}"),
            }
        }
    }
    subject.settle(&journal, offset);
    author.assert_history(&journal);
}

/// Closes ten runs of about 1,000 bytes, a second apart; returns them.
fn ten_closed<S: Subject>(subject: &S, journal: &S::Journal) -> Vec<Author> {
    (0..10)
        .map(|number| {
            let mut author = Author::new(journal, &format!("run-{number}"), number * 1_000_000);
            author.append(subject, journal, &[&[1; 900]], true);
            author
        })
        .collect()
}

fn assert_retained<S: Subject>(journal: &S::Journal, authors: &[Author], retained: usize) {
    let (dropped, kept) = authors.split_at(authors.len() - retained);
    for author in dropped {
        let expired = ReadError::Expired { run: author.run };
        assert_eq!(
            journal.finished(&author.id),
            Err(expired.clone()),
            "{}",
            author.id
        );
        assert_eq!(journal.history(author.run), Err(expired), "{}", author.id);
    }
    for author in kept {
        let found = journal.finished(&author.id).expect("it can be read");
        assert_eq!(found.map(|found| found.run), Some(author.run));
        author.assert_history(journal);
    }
    assert_eq!(journal.stats().finished_runs, retained as u64);
    assert_eq!(journal.stats().dropped_runs, dropped.len() as u64);
}

fn retention(change: impl FnOnce(&mut Retention)) -> JournalConfig {
    with(|config| change(&mut config.retention))
}

fn retention_by_count_drops_the_earliest_closed<S: Subject>(subject: &S) {
    let journal = subject.fresh(retention(|retention| retention.len_max = 4));
    let authors = ten_closed(subject, &journal);
    assert_retained::<S>(&journal, &authors, 4);
}

fn retention_by_bytes_drops_the_earliest_closed<S: Subject>(subject: &S) {
    let journal = subject.fresh(retention(|retention| retention.bytes_max = 3_000));
    let authors = ten_closed(subject, &journal);
    assert_retained::<S>(&journal, &authors, 3);
}

fn retention_by_age_drops_the_earliest_closed<S: Subject>(subject: &S) {
    let age = std::time::Duration::from_secs(5);
    let journal = subject.fresh(retention(|retention| retention.age_max = age));
    let authors = ten_closed(subject, &journal);
    assert_retained::<S>(&journal, &authors, 6);
}

fn retention_leaves_live_runs_alone<S: Subject>(subject: &S) {
    let journal = subject.fresh(retention(|retention| retention.len_max = 1));
    let mut live = Author::new(&journal, "live", 77);
    live.append(subject, &journal, &[b"before all the others"], false);
    ten_closed(subject, &journal);
    live.append(subject, &journal, &[b"and after"], false);
    live.assert_history(&journal);
}

fn a_dropped_id_is_free_again<S: Subject>(subject: &S) {
    let journal = subject.fresh(retention(|retention| retention.len_max = 0));
    for unique in 1..=3 {
        let mut author = Author::new(&journal, "again", unique);
        author.append(subject, &journal, &[b"start"], true);
        let expired = ReadError::Expired { run: author.run };
        assert_eq!(journal.finished(&author.id), Err(expired));
    }
    assert_eq!(journal.stats().dropped_runs, 3);
}

fn only_the_runs_that_were_dropped_last_are_remembered<S: Subject>(subject: &S) {
    let journal = subject.fresh(retention(|retention| {
        retention.len_max = 1;
        retention.expired_len_max = 3;
    }));
    let authors = ten_closed(subject, &journal);
    for (number, author) in authors.iter().enumerate() {
        match journal.history(author.run) {
            Ok(_) => assert_eq!(number, 9, "one is retained"),
            Err(ReadError::Expired { run }) => assert_eq!(run, author.run),
            // More may be remembered than was asked for, but not less.
            Err(ReadError::UnknownRun { .. }) => assert!(number < 6, "{number} should be remembered"),
            Err(error) => panic!("{number}: {error}"),
        }
    }
}

fn a_run_that_never_was_is_not_called_expired<S: Subject>(subject: &S) {
    let journal = subject.fresh(retention(|retention| retention.len_max = 1));
    ten_closed(subject, &journal);
    let stranger = Author::new(&journal, "stranger", 5);
    let unknown = ReadError::UnknownRun { run: stranger.run };
    assert_eq!(journal.history(stranger.run), Err(unknown));
    assert_eq!(journal.finished(&stranger.id), Ok(None));
}

fn a_batch_checks_its_turns<S: Subject>(subject: &S) {
    let journal = subject.fresh(JournalConfig::default());
    let mut author = Author::new(&journal, "a", 1);
    let header = TurnHeader {
        run: author.run,
        head: Sequence::ZERO,
        epoch: author.epoch,
        time: author.time,
        opens: Some(&author.id),
    };
    let nothing = |_: &mut Vec<u8>| Ok::<_, Infallible>(());
    let attempt = |batch: &mut Batch, header: TurnHeader<'_>| {
        let mut turn = batch.turn(header);
        turn.record(1, nothing).expect("the encoder cannot fail");
        turn.finish(false)
    };
    let mut batch = Batch::with_turn_bytes_max(100);
    assert_eq!(batch.turn(header).finish(false), Err(TurnError::Empty));
    assert_eq!(
        attempt(
            &mut batch,
            TurnHeader {
                opens: None,
                ..header
            }
        ),
        Err(TurnError::OpensMismatch)
    );
    let later = TurnHeader {
        head: Sequence::new(1),
        ..header
    };
    assert_eq!(attempt(&mut batch, later), Err(TurnError::OpensMismatch));
    let elsewhere = (0..)
        .map(|number| InstanceId::new(&format!("b{number}")).expect("a sound id"))
        .find(|id| id.partition() != author.id.partition())
        .expect("there are many partitions");
    let wrong = TurnHeader {
        opens: Some(&elsewhere),
        ..header
    };
    assert_eq!(attempt(&mut batch, wrong), Err(TurnError::WrongPartition));
    let last = TurnHeader {
        head: Sequence::new(u64::from(u32::MAX)),
        opens: None,
        ..header
    };
    assert_eq!(attempt(&mut batch, last), Err(TurnError::TooManyRecords));

    let mut large = batch.turn(header);
    let hundred = |body: &mut Vec<u8>| {
        body.extend_from_slice(&[0; 100]);
        Ok::<_, Infallible>(())
    };
    large.record(1, hundred).expect("the encoder cannot fail");
    assert!(matches!(
        large.finish(false),
        Err(TurnError::TooLarge { max: 100, .. })
    ));

    let mut dropped = batch.turn(header);
    dropped.record(1, nothing).expect("the encoder cannot fail");
    drop(dropped);
    assert!(
        batch.is_empty() && batch.bytes() == 0,
        "a turn that is not finished leaves no trace"
    );

    // An encoder that fails takes back its record alone, wherever it stands in the turn.
    let failing = |body: &mut Vec<u8>| {
        body.push(1);
        Err("no")
    };
    let first = |body: &mut Vec<u8>| {
        body.extend_from_slice(b"first");
        Ok::<_, Infallible>(())
    };
    let second = |body: &mut Vec<u8>| {
        body.extend_from_slice(b"second");
        Ok::<_, Infallible>(())
    };
    let mut batch = Batch::new();
    let mut turn = batch.turn(header);
    assert_eq!(turn.record(1, failing), Err("no"));
    turn.record(2, first).expect("the encoder cannot fail");
    assert_eq!(turn.record(3, failing), Err("no"));
    turn.record(4, second).expect("the encoder cannot fail");
    assert_eq!(turn.record(5, failing), Err("no"));
    turn.finish(false).expect("the turn is sound");
    author.head = Sequence::new(2);
    author.written = vec![b"first".to_vec(), b"second".to_vec()];
    subject.settle(&journal, accepted(&journal, &batch));
    let history = author.assert_history(&journal);
    let kinds: Vec<_> = history.records.iter().map(|record| record.kind).collect();
    assert_eq!(kinds, [2, 4]);
    assert_eq!(refused(&journal, &batch), TurnRefused::AlreadyAppended);

    // Also in a turn that closes, where the last frame says so.
    batch.clear();
    let mut turn = batch.turn(TurnHeader {
        head: author.head,
        opens: None,
        ..header
    });
    turn.record(1, nothing).expect("the encoder cannot fail");
    assert_eq!(turn.record(2, failing), Err("no"));
    turn.finish(true).expect("the turn is sound");
    author.head = Sequence::new(3);
    author.written.push(Vec::new());
    subject.settle(&journal, accepted(&journal, &batch));
    author.assert_history(&journal);
    let finished = journal.finished(&author.id).expect("it is readable");
    assert_eq!(finished.map(|finished| finished.head), Some(author.head));
}
