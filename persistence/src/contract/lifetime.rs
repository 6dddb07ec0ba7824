//! Closing and opening again.

use millrun_core::Offset;

use super::actor::accepted;
use super::reading::recovered;
use super::{Author, Subject, suite};
use crate::batch::Batch;
use crate::config::JournalConfig;
use crate::error::{EnqueueError, FailureKind, ReadError, TurnRefused};
use crate::journal::{Journal, Reads};

suite![
    what_was_queued_is_confirmed_once_it_is_durable,
    closing_flushes_what_is_queued,
    a_closed_journal_refuses_everything,
    closing_twice_is_fine,
    live_runs_go_on_after_reopening,
    finished_runs_are_found_after_reopening,
    an_append_of_unknown_outcome_is_resolved_after_reopening,
    epochs_grow_with_each_opening,
    a_takeover_comes_after_those_of_earlier_openings,
    an_epoch_from_before_is_fenced_after_reopening,
    recovery_after_reopening_finds_what_was_there,
    a_store_grows_over_many_openings,
    a_new_run_of_an_id_follows_the_finished_one,
    many_finished_runs_are_found_before_and_after_reopening,
];

fn open<S: Subject>(subject: &S) -> S::Journal {
    subject.fresh(JournalConfig::default())
}

fn what_was_queued_is_confirmed_once_it_is_durable<S: Subject>(subject: &S) {
    let journal = subject.fresh(JournalConfig::default());
    let nothing = journal.confirm(Offset::ZERO);
    subject.settle(&journal, nothing);
    assert!(journal.high_watermark() >= nothing, "{:?}", journal.failure());
    let mut author = Author::new(&journal, "a", 1);
    for turn in 0..3_u8 {
        let batch = author.batch(&[&[turn]], false);
        let queued = journal.enqueue(&batch).expect("the batch is taken").offset;
        let confirmed = journal.confirm(queued);
        assert!(confirmed >= queued, "an answer waits for what it rests on");
        subject.settle(&journal, confirmed);
        assert!(journal.high_watermark() >= confirmed, "{:?}", journal.failure());
        author.assert_history(&journal);
    }
}

fn reopen<S: Subject>(subject: &S, journal: S::Journal) -> S::Journal {
    subject.reopen(journal, JournalConfig::default())
}

fn closing_flushes_what_is_queued<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    for turn in 0..10_u8 {
        accepted(&journal, &author.batch(&[&[turn]], false));
    }
    let journal = reopen(subject, journal);
    author.assert_history(&journal);
}

fn a_closed_journal_refuses_everything<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    author.append(subject, &journal, &[b"1"], false);
    journal.close().expect("a sound journal closes");
    assert!(journal.is_closed());
    let failure = journal.failure().expect("a closed journal says so");
    assert_eq!(failure.kind(), FailureKind::Closed);
    let error = journal
        .enqueue(&author.batch(&[b"2"], false))
        .expect_err("nothing is taken");
    assert!(!error.is_retryable());
    assert_eq!(error, EnqueueError::Failed(failure.clone()));
    assert_eq!(journal.take_over(&[author.id.partition()]), Err(failure.clone()));
    assert_eq!(
        journal.history(author.run),
        Err(ReadError::Failed(failure.clone()))
    );
    assert_eq!(journal.finished(&author.id), Err(ReadError::Failed(failure)));
}

fn closing_twice_is_fine<S: Subject>(subject: &S) {
    let journal = open(subject);
    journal.begin_close();
    journal.close().expect("a sound journal closes");
    journal.close().expect("a closed journal is closed");
}

fn live_runs_go_on_after_reopening<S: Subject>(subject: &S) {
    let mut journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    author.append(subject, &journal, &[b"start"], false);
    for turn in 0..5_u8 {
        journal = reopen(subject, journal);
        author.epoch = Author::new(&journal, "a", 1).epoch;
        author.append(subject, &journal, &[&[turn], &[turn]], false);
        author.assert_history(&journal);
    }
}

fn finished_runs_are_found_after_reopening<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    author.append(subject, &journal, &[b"start"], false);
    author.append(subject, &journal, &[b"end"], true);
    let before = journal.finished(&author.id);
    let journal = reopen(subject, journal);
    assert!(matches!(before, Ok(Some(_))));
    assert_eq!(journal.finished(&author.id), before);
    author.assert_history(&journal);
}

fn an_append_of_unknown_outcome_is_resolved_after_reopening<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    author.append(subject, &journal, &[b"start"], false);
    accepted(&journal, &author.batch(&[b"did this", b"arrive?"], false));
    let journal = reopen(subject, journal);
    // The same turn, built anew under the new epoch.
    let mut retry = Author {
        head: millrun_core::Sequence::new(1),
        ..author.clone()
    };
    retry.epoch = Author::new(&journal, "a", 1).epoch;
    let enqueued = journal
        .enqueue(&retry.batch(&[b"did this", b"arrive?"], false))
        .expect("it is taken");
    assert_eq!(enqueued.refused[0].error, TurnRefused::AlreadyAppended);
    author.assert_history(&journal);
}

fn epochs_grow_with_each_opening<S: Subject>(subject: &S) {
    let mut journal = open(subject);
    let mut last = Author::new(&journal, "a", 1).epoch;
    for _ in 0..3 {
        // Takeovers that no turn was written under count, too.
        for _ in 0..5 {
            last = last.max(Author::new(&journal, "b", 1).epoch);
        }
        journal = reopen(subject, journal);
        let epoch = Author::new(&journal, "a", 1).epoch;
        assert!(epoch > last);
        last = epoch;
    }
}

fn a_takeover_comes_after_those_of_earlier_openings<S: Subject>(subject: &S) {
    let mut journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    author.append(subject, &journal, &[b"start"], false);
    let (first, mut latest) = (author.epoch, 0);
    for opening in 0..4 {
        // None at all in the first opening, and none that a turn is written under.
        for _ in 0..opening {
            let epoch = Author::new(&journal, "a", 1).epoch;
            subject.settle(&journal, accepted(&journal, &Batch::new()));
            assert!(epoch.since(first) > latest);
            latest = epoch.since(first);
        }
        journal = reopen(subject, journal);
        let epoch = Author::new(&journal, "a", 1).epoch;
        assert!(epoch.since(first) > latest);
        latest = epoch.since(first);
    }
    author.assert_history(&journal);
}

fn an_epoch_from_before_is_fenced_after_reopening<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    author.append(subject, &journal, &[b"start"], false);
    let journal = reopen(subject, journal);
    let enqueued = journal
        .enqueue(&author.batch(&[b"late"], false))
        .expect("the batch is taken");
    assert!(matches!(enqueued.refused[0].error, TurnRefused::Fenced { .. }));
}

fn recovery_after_reopening_finds_what_was_there<S: Subject>(subject: &S) {
    let journal = open(subject);
    for number in 0..30 {
        let mut author = Author::new(&journal, &format!("run-{number}"), number);
        author.append(subject, &journal, &[b"start", b"more"], false);
        author.append(subject, &journal, &[b"and more"], number % 2 == 0);
    }
    let (before, runs_before) = recovered(&journal, 2);
    let journal = reopen(subject, journal);
    let (after, runs_after) = recovered(&journal, 2);
    assert_eq!(runs_after, runs_before);
    assert_eq!(
        (after.live_runs, after.finished_runs, after.records, after.damaged),
        (
            before.live_runs,
            before.finished_runs,
            before.records,
            before.damaged
        )
    );
    assert_eq!(after.live_runs, 15);
}

fn a_store_grows_over_many_openings<S: Subject>(subject: &S) {
    let mut journal = open(subject);
    let mut authors = Vec::new();
    for number in 0..10 {
        let mut author = Author::new(&journal, &format!("run-{number}"), number);
        author.append(subject, &journal, &[&[1; 3_000]], false);
        authors.push(author);
        journal = reopen(subject, journal);
    }
    for author in &authors {
        author.assert_history(&journal);
    }
}

/// Finished runs, more than are retained: by run, by id, in order.
fn many_finished_runs_are_found_before_and_after_reopening<S: Subject>(subject: &S) {
    let mut config = JournalConfig::default();
    config.retention.len_max = 150;
    let mut journal = subject.fresh(config.clone());
    let mut authors = Vec::new();
    for round in 0..4 {
        for _ in 0..60 {
            let number = authors.len() as u64;
            // Each id has three runs.
            let mut author = Author::new(&journal, &format!("id-{}", number / 3), number);
            author.append(subject, &journal, &[b"start"], false);
            author.append(subject, &journal, &[b"end"], true);
            authors.push(author);
        }
        if round % 2 == 1 {
            journal = subject.reopen(journal, config.clone());
        }
        let retained = &authors[authors.len().saturating_sub(150)..];
        for (index, author) in retained.iter().enumerate() {
            author.assert_history(&journal);
            let mut later = retained[index + 1..].iter().filter(|other| other.id == author.id);
            let latest = later.next_back().unwrap_or(author);
            let found = journal.finished(&author.id).expect("it can be read");
            assert_eq!(found.map(|found| found.run), Some(latest.run));
        }
        let mut listed = Vec::new();
        loop {
            let after = listed.last().copied();
            let page = journal.list_finished(after, 37).expect("it can be read");
            listed.extend(page.iter().map(|finished| finished.run));
            if page.len() < 37 {
                break;
            }
        }
        let expected: Vec<_> = retained.iter().map(|author| author.run).collect();
        assert_eq!(listed, expected);
        assert_eq!(journal.stats().finished_runs, retained.len() as u64);
    }
}

fn a_new_run_of_an_id_follows_the_finished_one<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut first = Author::new(&journal, "again", 1);
    first.append(subject, &journal, &[b"start"], true);
    let mut second = Author::new(&journal, "again", 2);
    second.append(subject, &journal, &[b"start anew"], false);
    let journal = reopen(subject, journal);
    first.assert_history(&journal);
    second.assert_history(&journal);
    let found = journal
        .finished(&first.id)
        .expect("it can be read")
        .expect("it is retained");
    assert_eq!(found.run, first.run);
}
