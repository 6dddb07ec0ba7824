//! Trimming: a turn takes the place of all records of its run before it, all or nothing.

use std::collections::BTreeMap;

use bytes::Bytes;
use millrun_core::{RunId, Sequence};

use super::actor::{accepted, refused};
use super::claims::OwnedPart;
use super::{Author, Subject, suite};
use crate::batch::Batch;
use crate::config::JournalConfig;
use crate::error::TurnRefused;
use crate::fold::Fold;
use crate::journal::{Journal, Lane, Reads};
use crate::record::{HistoryPage, RecordView, Snapshot, Trimmed};
use crate::resolve::Resolved;

suite![
    a_trimmed_run_begins_with_the_turn_that_trims_it,
    a_page_from_before_a_trim_begins_with_what_is_kept,
    pages_of_any_size_make_up_what_is_left,
    a_run_is_trimmed_again_and_again,
    a_trimmed_run_is_there_after_reopening,
    a_refused_trim_changes_nothing,
    a_trim_that_rests_on_a_refused_turn_changes_nothing,
    a_turn_that_trims_is_recognised_when_it_is_appended_again,
    what_a_run_was_trimmed_of_cannot_be_resolved,
    a_trimmed_run_that_finishes_is_found,
    a_trim_takes_the_snapshot_along,
    a_trim_gives_its_bytes_back,
    recovery_hands_out_what_is_left_with_what_is_kept,
    a_claim_folds_what_is_left_with_what_is_kept,
    other_runs_keep_what_they_have,
];

fn open<S: Subject>(subject: &S) -> S::Journal {
    subject.fresh(JournalConfig::default())
}

/// A run of ten records that is trimmed of them, with three more behind.
fn trimmed<S: Subject>(subject: &S, journal: &S::Journal, id: &str, unique: u64) -> Author {
    let mut author = Author::new(journal, id, unique);
    for turn in 0..5_u8 {
        author.append(subject, journal, &[&[turn; 300], b"more"], false);
    }
    author.append_trimming(subject, journal, &[b"checkpoint", b"and more"]);
    author.append(subject, journal, &[b"then"], false);
    author
}

fn page(journal: &impl Journal, author: &Author, after: u64, bytes_max: usize) -> HistoryPage {
    let page = journal.history_page(author.run, Sequence::new(after), bytes_max);
    page.expect("the run has durable records")
}

/// What the pages of a run whose records are `left` say of the trim.
fn of(author: &Author) -> Option<Trimmed> {
    let before = Sequence::new(author.trimmed as u64 + 1);
    Some(Trimmed::new(before, author.kept().into()))
}

fn a_trimmed_run_begins_with_the_turn_that_trims_it<S: Subject>(subject: &S) {
    let journal = open(subject);
    let author = trimmed(subject, &journal, "a", 1);
    let history = author.assert_history(&journal);
    assert_eq!(
        (history.records[0].sequence, history.head()),
        (Sequence::new(11), Sequence::new(13))
    );
}

fn a_page_from_before_a_trim_begins_with_what_is_kept<S: Subject>(subject: &S) {
    let journal = open(subject);
    let author = trimmed(subject, &journal, "a", 1);
    for after in 0..=15 {
        for bytes_max in [0, 1_000_000] {
            let page = page(&journal, &author, after, bytes_max);
            let first = page.records.first().map(|record| record.sequence.get());
            let expected = (after < 13).then(|| (after + 1).max(11));
            assert_eq!((first, page.head), (expected, author.head), "after {after}");
            assert_eq!(page.trimmed.is_some(), after < 11, "after {after}");
            assert!(page.trimmed.is_none() || page.trimmed == of(&author));
            assert_eq!(page.id.is_some(), after < 11, "the first page names the instance");
        }
    }
}

fn pages_of_any_size_make_up_what_is_left<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut author = trimmed(subject, &journal, "a", 1);
    for number in 0..40_usize {
        author.append(subject, &journal, &[&vec![7; number * 30], b"end"], false);
    }
    for bytes_max in [0, 1, 200, 1_000, 5_000, usize::MAX] {
        let (mut after, mut bodies) = (0, Vec::new());
        loop {
            let page = page(&journal, &author, after, bytes_max);
            assert_eq!(page.trimmed.is_some(), after == 0);
            let Some(last) = page.records.last() else { break };
            after = last.sequence.get();
            bodies.extend(page.records.iter().map(|record| record.body.to_vec()));
            if page.is_end() {
                break;
            }
        }
        assert_eq!(bodies, author.left(), "{bytes_max} bytes a page");
    }
}

fn a_run_is_trimmed_again_and_again<S: Subject>(subject: &S) {
    let mut journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    author.append(subject, &journal, &[b"start"], false);
    for round in 0..30_u8 {
        for turn in 0..round % 4 {
            author.append(subject, &journal, &[&[turn], b"more"], false);
        }
        author.append_trimming(subject, &journal, &[&[round]]);
        author.assert_history(&journal);
        if round % 10 == 9 {
            journal = subject.reopen(journal, JournalConfig::default());
            author.epoch = journal.take_over(&[author.id.partition()]).expect("it is open");
            author.assert_history(&journal);
        }
    }
    // Several in one batch: the last one counts.
    let mut batch = Batch::new();
    for turn in 0..3_u8 {
        author.put_trimming(&mut batch, &[&[turn]]);
        author.put(&mut batch, &[b"behind"], false);
    }
    subject.settle(&journal, accepted(&journal, &batch));
    author.assert_history(&journal);
}

fn a_trimmed_run_is_there_after_reopening<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut author = trimmed(subject, &journal, "a", 1);
    let journal = subject.reopen(journal, JournalConfig::default());
    author.assert_history(&journal);
    author.epoch = journal.take_over(&[author.id.partition()]).expect("it is open");
    author.append(subject, &journal, &[b"later"], false);
    author.assert_history(&journal);
}

fn a_refused_trim_changes_nothing<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    author.append(subject, &journal, &[b"start", b"more"], false);
    let mut wrong = Author {
        head: Sequence::new(1),
        ..author.clone()
    };
    let mut batch = Batch::new();
    wrong.put_trimming(&mut batch, &[b"other"]);
    let head = author.head;
    assert_eq!(refused(&journal, &batch), TurnRefused::Conflict { head });
    author.assert_history(&journal);
    // Nor does one of a run that there is not begin it.
    let mut unknown = Author::new(&journal, "b", 2);
    unknown.head = Sequence::new(5);
    let mut batch = Batch::new();
    unknown.put_trimming(&mut batch, &[b"other"]);
    assert_eq!(refused(&journal, &batch), TurnRefused::NotLive);
    assert_eq!(journal.read_again(author.run, author.epoch), Ok(head));
    author.append(subject, &journal, &[b"right"], false);
    author.assert_history(&journal);
}

fn a_trim_that_rests_on_a_refused_turn_changes_nothing<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    author.append(subject, &journal, &[b"start", b"more"], false);
    let mut batch = Batch::new();
    let mut unknown = Author::new(&journal, "b", 2);
    unknown.head = Sequence::new(5);
    unknown.put(&mut batch, &[b"refused"], false);
    let mut tied = author.clone();
    tied.put_trimming(&mut batch, &[b"rests on it"]);
    batch.tie_last();
    let enqueued = journal.enqueue(&batch).expect("the batch is taken");
    assert_eq!(enqueued.refused.len(), 2);
    author.assert_history(&journal);
    author.append(subject, &journal, &[b"right"], false);
    author.assert_history(&journal);
}

fn a_turn_that_trims_is_recognised_when_it_is_appended_again<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    author.append(subject, &journal, &[b"start", b"more"], false);
    let mut batch = Batch::new();
    author.put_trimming(&mut batch, &[b"checkpoint"]);
    subject.settle(&journal, accepted(&journal, &batch));
    assert_eq!(refused(&journal, &batch), TurnRefused::AlreadyAppended);
    author.assert_history(&journal);
    author.append(subject, &journal, &[b"then"], false);
    author.assert_history(&journal);
}

fn what_a_run_was_trimmed_of_cannot_be_resolved<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    let mut batches = vec![author.batch(&[b"start"], false), author.batch(&[b"gone"], false)];
    let mut trimming = Batch::new();
    author.put_trimming(&mut trimming, &[b"checkpoint"]);
    batches.push(trimming);
    batches.push(author.batch(&[b"then"], false));
    for batch in &batches {
        subject.settle(&journal, accepted(&journal, batch));
    }
    batches.push(author.batch(&[b"not yet"], false));
    let resolved: Vec<_> = batches
        .iter()
        .flat_map(|batch| journal.resolve(batch).expect("it can be read"))
        .collect();
    let expected = [
        Resolved::Unknown,
        Resolved::Unknown,
        Resolved::Appended,
        Resolved::Appended,
        Resolved::Absent,
    ];
    assert_eq!(resolved, expected);
}

fn a_trimmed_run_that_finishes_is_found<S: Subject>(subject: &S) {
    let mut journal = open(subject);
    let mut author = trimmed(subject, &journal, "a", 1);
    author.append(subject, &journal, &[b"end"], true);
    for _ in 0..2 {
        let found = journal.finished(&author.id).expect("it can be read");
        let found = found.expect("it is retained");
        assert_eq!(
            (found.run, &found.id, found.head),
            (author.run, &author.id, author.head)
        );
        assert_eq!(journal.list_finished(None, 10).expect("it can be read"), [found]);
        assert!(author.assert_history(&journal).is_closed());
        journal = subject.reopen(journal, JournalConfig::default());
    }
}

fn a_trim_takes_the_snapshot_along<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    author.append(subject, &journal, &[b"start"], false);
    let snapshot = Snapshot {
        run: author.run,
        sequence: author.head,
        bytes: Bytes::from_static(b"folded"),
    };
    journal.put_snapshot(snapshot.clone()).expect("it is taken");
    author.append(subject, &journal, &[b"more"], false);
    assert_eq!(journal.snapshot(author.run), Ok(Some(snapshot)));
    author.append_trimming(subject, &journal, &[b"checkpoint"]);
    assert_eq!(journal.snapshot(author.run), Ok(None));
}

fn a_trim_gives_its_bytes_back<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    author.append(subject, &journal, &[&[7; 50_000]], false);
    let before = journal.stats().live_bytes;
    author.append_trimming(subject, &journal, &[b"checkpoint"]);
    let after = journal.stats().live_bytes;
    assert!(
        before >= 50_000 && (1..1_000).contains(&after),
        "{before} bytes, {after} behind the trim"
    );
    author.append(subject, &journal, &[b"end"], true);
    assert!(journal.stats().live_bytes < 2_000);
}

/// Bodies of the records of each run, with what is kept of those before.
type Handed = BTreeMap<RunId, (Option<Vec<u8>>, Vec<Vec<u8>>)>;

fn take(handed: &mut Handed, record: &RecordView<'_>) {
    let (kept, bodies) = handed.entry(record.run).or_default();
    assert_eq!(
        record.opens.is_some(),
        bodies.is_empty(),
        "the first record has the id"
    );
    if bodies.is_empty() {
        *kept = record.kept.map(<[u8]>::to_vec);
    }
    bodies.push(record.body.to_vec());
}

fn expected(authors: &[Author]) -> Handed {
    let handed = authors.iter().map(|author| {
        let kept = (author.trimmed > 0).then(|| author.kept());
        (author.run, (kept, author.left().to_vec()))
    });
    handed.collect()
}

fn some_trimmed<S: Subject>(subject: &S, journal: &S::Journal) -> Vec<Author> {
    let mut authors = Vec::new();
    for number in 0..20 {
        let id = format!("run-{number}");
        if number % 2 == 0 {
            authors.push(trimmed(subject, journal, &id, number));
        } else {
            let mut author = Author::new(journal, &id, number);
            author.append(subject, journal, &[b"start", b"more"], false);
            authors.push(author);
        }
    }
    authors
}

fn recovery_hands_out_what_is_left_with_what_is_kept<S: Subject>(subject: &S) {
    let mut journal = open(subject);
    let authors = some_trimmed(subject, &journal);
    for _ in 0..2 {
        let mut handed = Handed::new();
        let mut lane = |record: RecordView<'_>| take(&mut handed, &record);
        let report = journal
            .recover(&mut [&mut lane as Lane<'_>], &mut |_| {})
            .expect("the log can be read");
        assert_eq!(handed, expected(&authors));
        let left: usize = authors.iter().map(|author| author.left().len()).sum();
        assert_eq!((report.live_runs, report.records), (20, left as u64));
        journal = subject.reopen(journal, JournalConfig::default());
    }
}

/// Collects what a claim hands out.
#[derive(Default)]
struct Collector {
    handed: Handed,
    numbers: BTreeMap<usize, RunId>,
}

impl Fold for Collector {
    fn record(&mut self, number: usize, record: RecordView<'_>) {
        self.numbers.insert(number, record.run);
        take(&mut self.handed, &record);
    }

    fn forget(&mut self, number: usize) {
        if let Some(run) = self.numbers.remove(&number) {
            self.handed.remove(&run);
        }
    }
}

fn a_claim_folds_what_is_left_with_what_is_kept<S: Subject>(subject: &S) {
    let mut journal = open(subject);
    let authors = some_trimmed(subject, &journal);
    let mut partitions: Vec<_> = authors.iter().map(|author| author.run.partition()).collect();
    partitions.sort_unstable();
    for owner in 0..2 {
        let collector = OwnedPart::new(owner).fold(&journal, &partitions, Collector::default());
        assert_eq!(collector.handed, expected(&authors));
        journal = subject.reopen(journal, JournalConfig::default());
    }
}

fn other_runs_keep_what_they_have<S: Subject>(subject: &S) {
    let mut journal = open(subject);
    let authors = some_trimmed(subject, &journal);
    for _ in 0..2 {
        for author in &authors {
            author.assert_history(&journal);
        }
        journal = subject.reopen(journal, JournalConfig::default());
    }
}
