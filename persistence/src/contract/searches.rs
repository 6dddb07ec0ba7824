//! Searches among the finished runs.

use millrun_core::{RunId, Timestamp};

use super::{Author, Subject, suite};
use crate::config::JournalConfig;
use crate::journal::Reads;
use crate::search::FinishedSearch;

suite![
    a_search_finds_finished_runs_the_latest_closed_first,
    a_search_goes_on_before_where_it_ended,
    a_search_by_kind_finds_the_runs_whose_last_record_is_of_it,
    a_search_by_times_finds_the_runs_that_began_and_closed_then,
    a_search_finds_the_same_when_the_store_is_opened_again,
    a_search_before_a_run_that_never_was_finds_nothing,
];

/// Twenty finished runs, and a live one between any two of them. The last record of the `n`th is of the kind
/// `n % 3 + 1`.
fn close_twenty<S: Subject>(subject: &S, journal: &S::Journal) -> Vec<Author> {
    let mut authors = Vec::new();
    for number in 0..20_u64 {
        let mut author = Author::new(journal, &format!("run-{number}"), number);
        author.append(subject, journal, &[b"start"], false);
        let bodies: &[&[u8]] = match number % 3 {
            0 => &[b"end"],
            1 => &[b"more", b"end"],
            _ => &[b"more", b"and more", b"end"],
        };
        author.time = Timestamp::from_micros(author.time.as_micros() + 1_000_000 * number);
        author.append(subject, journal, bodies, true);
        authors.push(author);
        Author::new(journal, &format!("live-{number}"), number).append(subject, journal, &[b"start"], false);
    }
    authors
}

/// All that a search finds, `len_max` at a time.
fn all(journal: &impl Reads, mut search: FinishedSearch, len_max: usize) -> Vec<RunId> {
    let mut runs = Vec::new();
    loop {
        let found = journal.find_finished(&search, len_max).expect("it can be read");
        assert!(found.runs.len() <= len_max && found.unreadable.is_empty());
        for finished in &found.runs {
            assert!(search.kinds.contains(finished.kind));
            runs.push(finished.run);
        }
        search.before = found.next;
        if search.before.is_none() {
            return runs;
        }
    }
}

fn back(authors: &[Author], is_it: impl Fn(&Author) -> bool) -> Vec<RunId> {
    let found = authors.iter().rev().filter(|author| is_it(author));
    found.map(|author| author.run).collect()
}

fn a_search_finds_finished_runs_the_latest_closed_first<S: Subject>(subject: &S) {
    let journal = subject.fresh(JournalConfig::default());
    let authors = close_twenty(subject, &journal);
    let found = journal
        .find_finished(&FinishedSearch::new(), 100)
        .expect("it can be read");
    assert_eq!(found.next, None);
    for (finished, author) in found.runs.iter().zip(authors.iter().rev()) {
        assert_eq!((finished.run, finished.head), (author.run, author.head));
        assert_eq!(finished.closed_at, author.time);
    }
    assert_eq!(found.runs.len(), authors.len());
}

fn a_search_goes_on_before_where_it_ended<S: Subject>(subject: &S) {
    let journal = subject.fresh(JournalConfig::default());
    let authors = close_twenty(subject, &journal);
    for len_max in [1, 3, 20] {
        assert_eq!(
            all(&journal, FinishedSearch::new(), len_max),
            back(&authors, |_| true)
        );
    }
}

fn a_search_by_kind_finds_the_runs_whose_last_record_is_of_it<S: Subject>(subject: &S) {
    let journal = subject.fresh(JournalConfig::default());
    let authors = close_twenty(subject, &journal);
    for kind in 1..=4 {
        let mut search = FinishedSearch::new();
        search.kinds = [kind].into_iter().collect();
        let expected = back(&authors, |author| {
            author.written.len() == usize::from(kind) + 1 && kind < 4
        });
        assert_eq!(all(&journal, search, 2), expected, "kind {kind}");
    }
}

fn a_search_by_times_finds_the_runs_that_began_and_closed_then<S: Subject>(subject: &S) {
    let journal = subject.fresh(JournalConfig::default());
    let authors = close_twenty(subject, &journal);
    let mut search = FinishedSearch::new();
    (search.closed.from, search.closed.until) = (authors[4].time, authors[9].time);
    let expected = back(&authors[4..9], |_| true);
    assert_eq!(all(&journal, search.clone(), 2), expected);
    // All began within the same millisecond.
    search.started.from = authors[0].run.started();
    assert_eq!(all(&journal, search.clone(), 2), expected);
    search.started.until = authors[0].run.started();
    assert_eq!(all(&journal, search, 2), []);
}

fn a_search_finds_the_same_when_the_store_is_opened_again<S: Subject>(subject: &S) {
    let journal = subject.fresh(JournalConfig::default());
    let authors = close_twenty(subject, &journal);
    let journal = subject.reopen(journal, JournalConfig::default());
    let mut search = FinishedSearch::new();
    assert_eq!(all(&journal, search.clone(), 7), back(&authors, |_| true));
    search.kinds = [2].into_iter().collect();
    assert_eq!(
        all(&journal, search, 7),
        back(&authors, |author| author.written.len() == 3)
    );
}

fn a_search_before_a_run_that_never_was_finds_nothing<S: Subject>(subject: &S) {
    let journal = subject.fresh(JournalConfig::default());
    let authors = close_twenty(subject, &journal);
    let mut search = FinishedSearch::new();
    let partition = authors[0].run.partition();
    search.before = Some(RunId::new(partition, Timestamp::EPOCH, 77));
    assert_eq!(all(&journal, search, 7), []);
}
