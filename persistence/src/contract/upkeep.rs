//! Upkeep that is driven from outside: exact when it is finished, also for what is opened again.

use std::time::Duration;

use millrun_core::Timestamp;

use super::rung::Rung;
use super::{Author, Subject, suite};
use crate::batch::Batch;
use crate::config::JournalConfig;
use crate::error::ReadError;
use crate::journal::Journal;
use crate::upkeep::UpkeepUndone;

suite![
    after_an_upkeep_exactly_what_retention_allows_is_there,
    an_upkeep_drops_what_has_come_of_age_since_the_last_run_finished,
    an_upkeep_at_a_time_far_ahead_comes_to_its_end,
    what_was_queued_before_an_upkeep_is_durable_when_it_is_finished,
    upkeeps_that_are_asked_for_at_once_are_all_told,
    an_upkeep_of_a_closed_journal_says_why_it_is_not_done,
];

const HOUR: Duration = Duration::from_secs(3_600);

/// Asks for an upkeep and waits until it is finished.
pub(super) fn keep_up(journal: &impl Journal, now: Timestamp) -> Result<(), UpkeepUndone> {
    let (bell, rung) = Rung::new();
    let number = journal.upkeep(now, bell);
    rung.wait();
    journal.upkept(number).expect("its bell has rung")
}

/// Runs that finish ten minutes after each other; the time of the first.
fn finish<S: Subject>(subject: &S, journal: &S::Journal, count: u64) -> (Vec<Author>, Timestamp) {
    let mut authors = Vec::new();
    let start = Timestamp::from_micros(1_700_000_000_000_000);
    for number in 0..count {
        let mut author = Author::new(journal, &format!("run-{number}"), number);
        author.time = start + HOUR / 6 * u32::try_from(number).unwrap_or(u32::MAX);
        author.append(subject, journal, &[&[7; 500], b"end"], true);
        authors.push(author);
    }
    (authors, start)
}

/// Checks that of these runs the last `len` are retained, and the others gone.
fn assert_retained(journal: &impl Journal, authors: &[Author], len: usize) {
    let listed = journal
        .list_finished(None, authors.len() + 1)
        .expect("it can be read");
    let listed: Vec<_> = listed.iter().map(|finished| finished.run).collect();
    let runs: Vec<_> = authors.iter().map(|author| author.run).collect();
    let (dropped, retained) = authors.split_at(authors.len() - len);
    assert_eq!(listed, runs[dropped.len()..]);
    for author in retained {
        author.assert_history(journal);
    }
    for author in dropped {
        let gone = journal.history(author.run);
        assert!(
            matches!(
                gone,
                Err(ReadError::Expired { .. } | ReadError::UnknownRun { .. })
            ),
            "{gone:?}"
        );
    }
    assert_eq!(journal.stats().finished_runs, len as u64);
}

fn after_an_upkeep_exactly_what_retention_allows_is_there<S: Subject>(subject: &S) {
    let mut config = JournalConfig::default();
    config.retention.len_max = 9;
    let journal = subject.fresh(config.clone());
    let (authors, start) = finish(subject, &journal, 40);
    assert_eq!(keep_up(&journal, start), Ok(()));
    assert_retained(&journal, &authors, 9);
    // There is nothing left to be done.
    assert_eq!(keep_up(&journal, start), Ok(()));
    let journal = subject.reopen(journal, config);
    assert_eq!(keep_up(&journal, start), Ok(()));
    assert_retained(&journal, &authors, 9);
}

fn an_upkeep_drops_what_has_come_of_age_since_the_last_run_finished<S: Subject>(subject: &S) {
    let mut config = JournalConfig::default();
    config.retention.age_max = 3 * HOUR;
    let journal = subject.fresh(config.clone());
    // They finish within two hours and a half.
    let (authors, start) = finish(subject, &journal, 16);
    assert_retained(&journal, &authors, 16);
    let now = start + HOUR * 4 + HOUR / 12;
    assert_eq!(keep_up(&journal, now), Ok(()));
    // The first seven finished within the first hour.
    assert_retained(&journal, &authors, 9);
    // An earlier time does not bring any back, and neither does an opening.
    assert_eq!(keep_up(&journal, start), Ok(()));
    assert_retained(&journal, &authors, 9);
    let journal = subject.reopen(journal, config);
    assert_retained(&journal, &authors, 9);
}

fn an_upkeep_at_a_time_far_ahead_comes_to_its_end<S: Subject>(subject: &S) {
    let journal = subject.fresh(JournalConfig::default());
    let (_, start) = finish(subject, &journal, 4);
    for days in [30, 60] {
        assert_eq!(keep_up(&journal, start + HOUR * 24 * days), Ok(()));
    }
}

fn what_was_queued_before_an_upkeep_is_durable_when_it_is_finished<S: Subject>(subject: &S) {
    let mut config = JournalConfig::default();
    config.retention.len_max = 2;
    let journal = subject.fresh(config);
    let mut authors = Vec::new();
    let mut last = millrun_core::Offset::ZERO;
    for number in 0..6 {
        let mut author = Author::new(&journal, &format!("run-{number}"), number);
        let mut batch = Batch::new();
        author.put(&mut batch, &[b"start", b"end"], true);
        last = super::actor::accepted(&journal, &batch);
        authors.push(author);
    }
    assert_eq!(keep_up(&journal, authors[0].time), Ok(()));
    assert!(journal.high_watermark() >= last);
    assert_retained(&journal, &authors, 2);
}

fn upkeeps_that_are_asked_for_at_once_are_all_told<S: Subject>(subject: &S) {
    let mut config = JournalConfig::default();
    config.retention.len_max = 3;
    let journal = subject.fresh(config);
    let (authors, start) = finish(subject, &journal, 8);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(keep_up(&journal, start), Ok(())));
        }
    });
    assert_retained(&journal, &authors, 3);
}

fn an_upkeep_of_a_closed_journal_says_why_it_is_not_done<S: Subject>(subject: &S) {
    let journal = subject.fresh(JournalConfig::default());
    journal.close().expect("nothing is wrong with it");
    let undone = keep_up(&journal, Timestamp::EPOCH);
    assert!(matches!(undone, Err(UpkeepUndone::Failed(_))), "{undone:?}");
}
