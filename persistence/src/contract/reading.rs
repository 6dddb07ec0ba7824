//! Reading: only what is durable, all of it, in order.

use std::collections::BTreeMap;

use millrun_core::{InstanceId, RunId};

use super::actor::accepted;
use super::{Author, Subject, suite};
use crate::batch::Batch;
use crate::config::JournalConfig;
use crate::error::ReadError;
use crate::journal::{Journal, Lane, Reads, RecoveryReport};
use crate::record::{Record, RecordView};

suite![
    a_run_that_never_started_is_unknown,
    an_acknowledged_turn_is_read_at_once,
    bodies_of_every_size_come_back,
    a_finished_run_keeps_its_history,
    a_finished_run_is_found_by_its_id,
    the_latest_finished_run_of_an_id_is_found,
    a_live_run_is_not_found_as_finished,
    finished_runs_are_listed_in_the_order_of_closing,
    a_list_goes_on_behind_where_it_ended,
    recovery_hands_out_the_records_of_live_runs,
    recovery_sends_a_run_to_the_lane_of_its_partition,
    recovery_of_an_empty_journal_finds_nothing,
    stats_count_what_is_there,
];

fn open<S: Subject>(subject: &S) -> S::Journal {
    subject.fresh(JournalConfig::default())
}

/// What a recovery over `lanes` lanes hands out: the records of each run, and its lane.
pub(super) fn recovered(
    journal: &impl Journal,
    lanes: usize,
) -> (RecoveryReport, BTreeMap<RunId, (usize, Vec<Record>)>) {
    let mut heaps: Vec<BTreeMap<RunId, Vec<Record>>> = vec![BTreeMap::new(); lanes];
    let mut visitors: Vec<_> = heaps
        .iter_mut()
        .map(|heap| move |view: RecordView<'_>| heap.entry(view.run).or_default().push(view.to_record()))
        .collect();
    let mut visitors: Vec<Lane<'_>> = visitors.iter_mut().map(|visitor| visitor as Lane<'_>).collect();
    let report = journal
        .recover(&mut visitors, &mut |_| {})
        .expect("the log can be read");
    let mut runs = BTreeMap::new();
    for (lane, heap) in heaps.into_iter().enumerate() {
        for (run, records) in heap {
            let before = runs.insert(run, (lane, records));
            assert!(before.is_none(), "a run goes to one lane");
        }
    }
    (report, runs)
}

fn a_run_that_never_started_is_unknown<S: Subject>(subject: &S) {
    let journal = open(subject);
    let author = Author::new(&journal, "a", 1);
    assert_eq!(
        journal.history(author.run),
        Err(ReadError::UnknownRun { run: author.run })
    );
}

fn an_acknowledged_turn_is_read_at_once<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    for turn in 0..30_u8 {
        author.append(subject, &journal, &[&[turn]], false);
        author.assert_history(&journal);
    }
}

fn bodies_of_every_size_come_back<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    for size in [
        0, 1, 100, 3_900, 4_000, 4_047, 4_048, 4_096, 65_536, 131_072, 1_000_000,
    ] {
        let body: Vec<u8> = (0..size)
            .map(|at: u32| at.to_le_bytes()[0] ^ at.to_le_bytes()[1])
            .collect();
        author.append(subject, &journal, &[&body, b"after"], false);
    }
    author.assert_history(&journal);
}

fn a_finished_run_keeps_its_history<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    author.append(subject, &journal, &[b"start"], false);
    author.append(subject, &journal, &[b"end"], true);
    let history = author.assert_history(&journal);
    assert!(history.is_closed());
    assert_eq!(history.head(), author.head);
}

fn a_finished_run_is_found_by_its_id<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    author.append(subject, &journal, &[b"start", b"end"], true);
    let found = journal
        .finished(&author.id)
        .expect("it can be read")
        .expect("it is retained");
    assert_eq!((found.run, &found.id), (author.run, &author.id));
    assert_eq!((found.closed_at, found.head), (author.time, author.head));
    let other = InstanceId::new("b").expect("a sound id");
    assert_eq!(journal.finished(&other), Ok(None));
}

fn the_latest_finished_run_of_an_id_is_found<S: Subject>(subject: &S) {
    let journal = open(subject);
    for unique in 1..=3 {
        let mut author = Author::new(&journal, "again", unique);
        author.append(subject, &journal, &[b"start"], true);
        let found = journal
            .finished(&author.id)
            .expect("it can be read")
            .expect("it is retained");
        assert_eq!(found.run, author.run);
    }
}

fn a_live_run_is_not_found_as_finished<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut author = Author::new(&journal, "a", 1);
    author.append(subject, &journal, &[b"start"], false);
    assert_eq!(journal.finished(&author.id), Ok(None));
    assert_eq!(journal.list_finished(None, 10), Ok(Vec::new()));
}

fn close_some<S: Subject>(subject: &S, journal: &S::Journal) -> Vec<RunId> {
    let mut runs = Vec::new();
    for number in 0..7 {
        let mut author = Author::new(journal, &format!("run-{number}"), number);
        author.append(subject, journal, &[b"start"], true);
        runs.push(author.run);
    }
    runs
}

fn finished_runs_are_listed_in_the_order_of_closing<S: Subject>(subject: &S) {
    let journal = open(subject);
    let runs = close_some(subject, &journal);
    let listed = journal.list_finished(None, 100).expect("it can be read");
    assert_eq!(
        listed.iter().map(|finished| finished.run).collect::<Vec<_>>(),
        runs
    );
    assert_eq!(listed[3].id.as_str(), "run-3");
}

fn a_list_goes_on_behind_where_it_ended<S: Subject>(subject: &S) {
    let journal = open(subject);
    let runs = close_some(subject, &journal);
    let mut paged = Vec::new();
    let mut after = None;
    loop {
        let page = journal.list_finished(after, 3).expect("it can be read");
        assert!(page.len() <= 3);
        let Some(last) = page.last() else { break };
        after = Some(last.run);
        paged.extend(page.iter().map(|finished| finished.run));
    }
    assert_eq!(paged, runs);
}

fn live_and_finished<S: Subject>(subject: &S, journal: &S::Journal) -> Vec<Author> {
    let mut live = Vec::new();
    for number in 0..60_u64 {
        let mut author = Author::new(journal, &format!("run-{number}"), number);
        let mut batch = Batch::new();
        author.put(&mut batch, &[b"start"], false);
        for turn in 0..number % 5 {
            author.put(&mut batch, &[&turn.to_le_bytes(), b"more"], false);
        }
        if number % 3 == 0 {
            author.put(&mut batch, &[b"end"], true);
        }
        subject.settle(journal, accepted(journal, &batch));
        if number % 3 != 0 {
            live.push(author);
        }
    }
    live
}

fn recovery_hands_out_the_records_of_live_runs<S: Subject>(subject: &S) {
    let journal = open(subject);
    let live = live_and_finished(subject, &journal);
    let (report, runs) = recovered(&journal, 1);
    assert_eq!((report.live_runs, report.finished_runs), (40, 20));
    assert_eq!(report.damaged, []);
    assert_eq!(runs.len(), live.len());
    for author in &live {
        let (_, records) = &runs[&author.run];
        assert_eq!(*records, author.assert_history(&journal).records);
    }
    let records: usize = live.iter().map(|author| author.written.len()).sum();
    assert_eq!(report.records, records as u64);
}

fn recovery_sends_a_run_to_the_lane_of_its_partition<S: Subject>(subject: &S) {
    let journal = open(subject);
    let live = live_and_finished(subject, &journal);
    let (_, runs) = recovered(&journal, 3);
    assert_eq!(runs.len(), live.len());
    for author in &live {
        let (lane, records) = &runs[&author.run];
        assert_eq!(*lane, usize::from(author.run.partition().index()) % 3);
        assert_eq!(*records, author.assert_history(&journal).records);
    }
}

fn recovery_of_an_empty_journal_finds_nothing<S: Subject>(subject: &S) {
    let journal = open(subject);
    let (report, runs) = recovered(&journal, 2);
    assert_eq!(
        (report.live_runs, report.finished_runs, report.records),
        (0, 0, 0)
    );
    assert!(runs.is_empty());
}

fn stats_count_what_is_there<S: Subject>(subject: &S) {
    let journal = open(subject);
    live_and_finished(subject, &journal);
    let stats = journal.stats();
    assert_eq!(
        (stats.live_runs, stats.finished_runs, stats.dropped_runs),
        (40, 20, 0)
    );
    assert!(stats.live_bytes > 0 && stats.log_bytes >= stats.live_bytes);
    assert_eq!(stats.queued_bytes, 0);
    assert!(stats.commits > 0 && stats.turns >= 60);
}
