//! Snapshots, pages of a history, and appends with an unknown outcome.

use bytes::Bytes;
use millrun_core::Sequence;

use super::actor::accepted;
use super::{Author, Subject, suite};
use crate::batch::Batch;
use crate::config::JournalConfig;
use crate::error::{ReadError, SnapshotRefused};
use crate::journal::{Journal, Reads};
use crate::record::Snapshot;
use crate::resolve::Resolved;

suite![
    a_snapshot_is_read_back_with_what_has_happened_since,
    a_later_snapshot_replaces_the_earlier_one,
    a_run_without_a_snapshot_has_none,
    a_snapshot_ahead_of_its_run_is_refused,
    a_snapshot_of_a_run_that_is_not_live_is_refused,
    a_snapshot_above_the_limit_is_refused,
    a_deleted_snapshot_is_gone_and_the_history_stays,
    a_snapshot_goes_when_its_run_closes,
    a_snapshot_is_there_after_reopening,
    pages_of_any_size_make_up_the_history,
    a_page_has_at_least_one_record,
    a_page_behind_the_end_is_empty,
    a_history_above_the_limit_is_read_in_pages,
    a_page_of_an_unknown_run_is_an_error,
    an_append_of_unknown_outcome_is_resolved,
    a_turn_that_closed_its_run_is_resolved,
    other_bytes_than_were_appended_are_a_conflict,
    a_turn_of_a_run_that_nobody_knows_cannot_be_resolved,
    gaps_are_never_read_over,
];

fn open<S: Subject>(subject: &S) -> S::Journal {
    subject.fresh(JournalConfig::default())
}

fn snapshot(author: &Author, bytes: &'static [u8]) -> Snapshot {
    Snapshot {
        run: author.run,
        sequence: author.head,
        bytes: Bytes::from_static(bytes),
    }
}

/// Whatever was put before an append is durable with it.
fn put<S: Subject>(subject: &S, journal: &S::Journal, author: &mut Author, snapshot: Snapshot) {
    journal.put_snapshot(snapshot).expect("it is taken");
    author.append(subject, journal, &[b"and then"], false);
}

fn a_snapshot_is_read_back_with_what_has_happened_since<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    for turn in 0..5_u8 {
        author.append(subject, &journal, &[&[turn], b"more"], false);
    }
    let folded = snapshot(&author, b"ten");
    put(subject, &journal, &mut author, folded.clone());
    assert_eq!(journal.snapshot(author.run), Ok(Some(folded)));
    let page = journal
        .history_page(author.run, Sequence::new(10), usize::MAX)
        .expect("it can be read");
    assert_eq!((page.records.len(), page.head), (1, Sequence::new(11)));
    assert_eq!(page.records[0].body, "and then");
    author.assert_history(&journal);
}

fn a_later_snapshot_replaces_the_earlier_one<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    author.append(subject, &journal, &[b"start"], false);
    for bytes in [&b"one"[..], b"two", b"three"] {
        let folded = snapshot(&author, bytes);
        put(subject, &journal, &mut author, folded.clone());
        assert_eq!(journal.snapshot(author.run), Ok(Some(folded)));
    }
}

fn a_run_without_a_snapshot_has_none<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    assert_eq!(journal.snapshot(author.run), Ok(None));
    author.append(subject, &journal, &[b"start"], false);
    assert_eq!(journal.snapshot(author.run), Ok(None));
}

fn a_snapshot_ahead_of_its_run_is_refused<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    author.append(subject, &journal, &[b"start"], false);
    let early = Snapshot {
        sequence: Sequence::new(2),
        ..snapshot(&author, b"early")
    };
    let head = author.head;
    assert_eq!(journal.put_snapshot(early), Err(SnapshotRefused::Ahead { head }));
}

fn a_snapshot_of_a_run_that_is_not_live_is_refused<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    let refused = Err(SnapshotRefused::NotLive);
    assert_eq!(journal.put_snapshot(snapshot(&author, b"none")), refused);
    author.append(subject, &journal, &[b"start"], true);
    assert_eq!(journal.put_snapshot(snapshot(&author, b"late")), refused);
}

fn a_snapshot_above_the_limit_is_refused<S: Subject>(subject: &S) {
    let journal = subject.fresh(JournalConfig {
        snapshot_bytes_max: 3,
        ..JournalConfig::default()
    });
    let mut author = Author::new(&journal, "a", 1);
    author.append(subject, &journal, &[b"start"], false);
    let refused = journal.put_snapshot(snapshot(&author, b"four"));
    assert_eq!(refused, Err(SnapshotRefused::TooLarge { bytes: 4, max: 3 }));
    assert_eq!(journal.put_snapshot(snapshot(&author, b"sum")), Ok(()));
}

fn a_deleted_snapshot_is_gone_and_the_history_stays<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    author.append(subject, &journal, &[b"start"], false);
    let folded = snapshot(&author, b"folded");
    put(subject, &journal, &mut author, folded);
    journal.delete_snapshot(author.run).expect("the journal is sound");
    author.append(subject, &journal, &[b"more"], false);
    assert_eq!(journal.snapshot(author.run), Ok(None));
    author.assert_history(&journal);
}

fn a_snapshot_goes_when_its_run_closes<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    author.append(subject, &journal, &[b"start"], false);
    let folded = snapshot(&author, b"folded");
    put(subject, &journal, &mut author, folded);
    author.append(subject, &journal, &[b"end"], true);
    assert_eq!(journal.snapshot(author.run), Ok(None));
    let journal = subject.reopen(journal, JournalConfig::default());
    assert_eq!(journal.snapshot(author.run), Ok(None));
    author.assert_history(&journal);
}

fn a_snapshot_is_there_after_reopening<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    author.append(subject, &journal, &[b"start"], false);
    let folded = snapshot(&author, b"folded");
    journal.put_snapshot(folded.clone()).expect("it is taken");
    let journal = subject.reopen(journal, JournalConfig::default());
    assert_eq!(journal.snapshot(author.run), Ok(Some(folded)));
}

fn pages_of_any_size_make_up_the_history<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    for turn in 0..8_u8 {
        let bodies: Vec<Vec<u8>> = (0..=turn).map(|body| vec![body; 700]).collect();
        let bodies: Vec<&[u8]> = bodies.iter().map(Vec::as_slice).collect();
        author.append(subject, &journal, &bodies, turn == 7);
    }
    for bytes_max in [1, 749, 2_000, 10_000, 1 << 20] {
        let (mut after, mut records) = (Sequence::ZERO, Vec::new());
        loop {
            let page = journal
                .history_page(author.run, after, bytes_max)
                .expect("it can be read");
            assert_eq!(page.head, author.head);
            let id = (after == Sequence::ZERO).then(|| author.id.clone());
            assert_eq!(page.id, id, "the first one names the instance");
            let bytes: usize = page.records.iter().map(|record| record.body.len()).sum();
            assert!(bytes <= bytes_max || page.records.len() == 1, "{bytes} bytes");
            let is_end = page.is_end();
            records.extend(page.records);
            if is_end {
                break;
            }
            after = records.last().expect("a page has a record").sequence;
        }
        assert_eq!(records, author.assert_history(&journal).records);
    }
}

fn a_page_has_at_least_one_record<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    author.append(subject, &journal, &[&[1; 5_000], b"2"], false);
    let page = journal
        .history_page(author.run, Sequence::ZERO, 0)
        .expect("it can be read");
    assert_eq!((page.records.len(), page.is_end()), (1, false));
}

fn a_page_behind_the_end_is_empty<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    author.append(subject, &journal, &[b"1", b"2"], false);
    for after in [2, 3, 1_000] {
        let page = journal
            .history_page(author.run, Sequence::new(after), 1_000)
            .expect("it can be read");
        assert_eq!(
            (page.records.len(), page.head, page.is_end()),
            (0, author.head, true)
        );
    }
}

fn a_history_above_the_limit_is_read_in_pages<S: Subject>(subject: &S) {
    let journal = subject.fresh(JournalConfig {
        history_bytes_max: 1_000,
        ..JournalConfig::default()
    });
    let mut author = Author::new(&journal, "a", 1);
    author.append(subject, &journal, &[&[1; 600]], false);
    author.assert_history(&journal);
    author.append(subject, &journal, &[&[2; 600]], true);
    assert!(matches!(
        journal.history(author.run),
        Err(ReadError::TooLong { run, max: 1_000, .. }) if run == author.run
    ));
    let page = journal.history_page(author.run, Sequence::new(1), 1_000);
    assert_eq!(page.expect("it can be read").records[0].body, vec![2; 600]);
}

fn a_page_of_an_unknown_run_is_an_error<S: Subject>(subject: &S) {
    let journal = open(subject);
    let run = Author::new(&journal, "a", 1).run;
    let page = journal.history_page(run, Sequence::ZERO, 1_000);
    assert_eq!(page, Err(ReadError::UnknownRun { run }));
}

fn an_append_of_unknown_outcome_is_resolved<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    author.append(subject, &journal, &[b"start"], false);
    let (mut batch, mut never) = (Batch::new(), Batch::new());
    author.put(&mut batch, &[b"did this", b"arrive?"], false);
    let mut other = Author::new(&journal, "b", 2);
    other.put(&mut never, &[b"never sent"], false);
    author.put(&mut never, &[b"nor this"], false);
    accepted(&journal, &batch);
    let journal = subject.reopen(journal, JournalConfig::default());
    assert_eq!(journal.resolve(&batch), Ok(vec![Resolved::Appended]));
    assert_eq!(
        journal.resolve(&never),
        Ok(vec![Resolved::Absent, Resolved::Absent])
    );
}

fn a_turn_that_closed_its_run_is_resolved<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    author.append(subject, &journal, &[b"start"], false);
    let batch = author.batch(&[b"the end"], true);
    assert_eq!(journal.resolve(&batch), Ok(vec![Resolved::Absent]));
    accepted(&journal, &batch);
    let journal = subject.reopen(journal, JournalConfig::default());
    assert_eq!(journal.resolve(&batch), Ok(vec![Resolved::Appended]));
}

fn other_bytes_than_were_appended_are_a_conflict<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    author.append(subject, &journal, &[b"start"], false);
    let mut rival = author.clone();
    author.append(subject, &journal, &[b"mine"], false);
    let head = author.head;
    let mut ahead = author.clone();
    ahead.head = Sequence::new(7);
    let mut batch = rival.batch(&[b"theirs"], false);
    ahead.put(&mut batch, &[b"too early"], false);
    let conflict = Resolved::Conflict { head };
    assert_eq!(journal.resolve(&batch), Ok(vec![conflict, conflict]));
    // A turn that begins as what was appended, and goes on.
    let mut longer = Author {
        head: Sequence::new(1),
        ..author
    };
    let batch = longer.batch(&[b"mine", b"and more"], false);
    assert_eq!(journal.resolve(&batch), Ok(vec![conflict]));
}

fn a_turn_of_a_run_that_nobody_knows_cannot_be_resolved<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    author.batch(&[b"start"], false);
    let batch = author.batch(&[b"more"], false);
    assert_eq!(journal.resolve(&batch), Ok(vec![Resolved::Unknown]));
}

/// Turns that leave a gap are refused, and what was refused leaves none.
fn gaps_are_never_read_over<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    author.append(subject, &journal, &[b"1"], false);
    let mut ahead = Author {
        head: Sequence::new(3),
        ..author.clone()
    };
    let enqueued = journal
        .enqueue(&ahead.batch(&[b"4"], false))
        .expect("the batch is taken");
    assert_eq!(enqueued.refused.len(), 1);
    assert_eq!(journal.read_again(author.run, author.epoch), Ok(author.head));
    author.append(subject, &journal, &[b"2", b"3"], false);
    let journal = subject.reopen(journal, JournalConfig::default());
    author.assert_history(&journal);
    let page = journal
        .history_page(author.run, Sequence::new(1), usize::MAX)
        .expect("it can be read");
    let sequences: Vec<_> = page.records.iter().map(|record| record.sequence.get()).collect();
    assert_eq!(sequences, [2, 3]);
}
