//! Several reads in one call: each is what it is by itself, and one that is large holds up no other.

use bytes::Bytes;
use millrun_core::{InstanceId, RunId, Sequence};

use super::actor::accepted;
use super::{Author, Subject, suite};
use crate::batch::Batch;
use crate::config::JournalConfig;
use crate::error::ReadError;
use crate::journal::Journal;
use crate::record::Snapshot;
use crate::together::{ToRead, WasRead};

suite![
    reads_in_one_call_say_what_they_say_by_themselves,
    what_is_too_large_for_a_call_is_passed_over_and_the_others_are_read,
    a_call_reads_as_many_bytes_as_it_may_and_the_next_call_goes_on,
    in_a_call_at_a_closed_journal_each_read_is_told_why,
    damage_concerns_only_the_read_that_comes_upon_it,
];

/// More than all that a case writes.
const BYTES_MAX: usize = 64 << 20;

/// What each read comes to; `None` for those that were passed over.
fn together(
    journal: &impl Journal,
    wanted: &[ToRead],
    bytes_max: usize,
) -> Vec<Option<Result<WasRead, ReadError>>> {
    let (mut told, mut last) = (vec![None; wanted.len()], None);
    journal.read_together(wanted, bytes_max, &mut |index, was_read| {
        assert!(last.is_none_or(|last| last < index), "{index} after {last:?}");
        (told[index], last) = (Some(was_read), Some(index));
    });
    told
}

/// The same by itself.
fn alone(journal: &impl Journal, wanted: &ToRead) -> Result<WasRead, ReadError> {
    match wanted {
        ToRead::History(run) => journal.history(*run).map(WasRead::History),
        ToRead::Page {
            run,
            after,
            bytes_max,
        } => {
            let page = journal.history_page(*run, *after, *bytes_max);
            page.map(WasRead::Page)
        }
        ToRead::Snapshot(run) => journal.snapshot(*run).map(WasRead::Snapshot),
        ToRead::Finished(id) => journal.finished(id).map(WasRead::Finished),
    }
}

/// All that can be read of a run.
fn of(author: &Author) -> Vec<ToRead> {
    let run = author.run;
    let page = |after, bytes_max| {
        let after = Sequence::new(after);
        ToRead::Page {
            run,
            after,
            bytes_max,
        }
    };
    vec![
        ToRead::Snapshot(run),
        ToRead::History(run),
        page(0, 10),
        page(2, BYTES_MAX),
        ToRead::Finished(author.id.clone()),
        page(100, 10),
    ]
}

fn reads_in_one_call_say_what_they_say_by_themselves<S: Subject>(subject: &S) {
    let mut config = JournalConfig::default();
    config.retention.len_max = 5;
    let journal = subject.fresh(config);
    let mut wanted = Vec::new();
    // Some of each kind: live, trimmed, finished, dropped, and some that never were.
    for number in 0..40_u64 {
        let mut author = Author::new(&journal, &format!("run-{number}"), number);
        let mut batch = Batch::new();
        author.put(&mut batch, &[b"start"], false);
        for turn in 0..number % 5 {
            author.put(&mut batch, &[&turn.to_le_bytes(), b"more"], false);
        }
        if number % 4 == 1 {
            author.put_trimming(&mut batch, &[b"checkpoint"]);
        }
        if number % 3 == 0 {
            author.put(&mut batch, &[b"end"], true);
        }
        subject.settle(&journal, accepted(&journal, &batch));
        if number % 3 != 0 && number % 2 == 0 {
            let snapshot = Snapshot {
                run: author.run,
                sequence: author.head,
                bytes: Bytes::from_static(b"folded"),
            };
            journal.put_snapshot(snapshot).expect("the run is live");
        }
        wanted.extend(of(&author));
    }
    wanted.extend(of(&Author::new(&journal, "never", 1)));
    // A snapshot is durable with one of the next commits.
    let mut author = Author::new(&journal, "last", 2);
    author.append(subject, &journal, &[b"start"], false);
    for rotated in 0..3 {
        wanted.rotate_left(rotated);
        let told = together(&journal, &wanted, BYTES_MAX);
        for (wanted, told) in wanted.iter().zip(told) {
            assert_eq!(told, Some(alone(&journal, wanted)), "{wanted:?}");
        }
    }
    assert_eq!(together(&journal, &[], BYTES_MAX), []);
}

/// Begins a run of this many records of 10,000 bytes.
fn author_of<S: Subject>(subject: &S, journal: &S::Journal, number: u64, records: usize) -> Author {
    let mut author = Author::new(journal, &format!("run-{number}"), number);
    for _ in 0..records {
        author.append(subject, journal, &[&[7; 10_000]], false);
    }
    author
}

fn what_is_too_large_for_a_call_is_passed_over_and_the_others_are_read<S: Subject>(subject: &S) {
    let journal = subject.fresh(JournalConfig::default());
    let large = author_of(subject, &journal, 0, 40);
    let small: Vec<_> = (1..=6)
        .map(|number| author_of(subject, &journal, number, 1))
        .collect();
    let mut wanted: Vec<_> = small.iter().map(|author| ToRead::History(author.run)).collect();
    let whole = ToRead::Page {
        run: large.run,
        after: Sequence::ZERO,
        bytes_max: BYTES_MAX,
    };
    wanted.insert(0, ToRead::History(large.run));
    wanted.insert(3, whole);
    let told = together(&journal, &wanted, 100_000);
    for (index, (wanted, told)) in wanted.iter().zip(told).enumerate() {
        match index {
            0 | 3 => assert_eq!(told, None, "it has 400,000 bytes"),
            _ => assert_eq!(told, Some(alone(&journal, wanted)), "{wanted:?}"),
        }
    }
    large.assert_history(&journal);
    // A page of a size that fits is read.
    let page = ToRead::Page {
        run: large.run,
        after: Sequence::ZERO,
        bytes_max: 50_000,
    };
    let told = together(&journal, std::slice::from_ref(&page), 100_000);
    assert_eq!(told, [Some(alone(&journal, &page))]);
}

fn a_call_reads_as_many_bytes_as_it_may_and_the_next_call_goes_on<S: Subject>(subject: &S) {
    let journal = subject.fresh(JournalConfig::default());
    let authors = (0..20).map(|number| author_of(subject, &journal, number, 2));
    let mut wanted: Vec<_> = authors.map(|author| ToRead::History(author.run)).collect();
    let mut calls = 0;
    while !wanted.is_empty() {
        let told = together(&journal, &wanted, 90_000);
        let read = told.iter().flatten();
        let bytes: usize = read.map(|read| read.as_ref().map_or(0, WasRead::bytes)).sum();
        assert!((20_000..=90_000).contains(&bytes), "{bytes} in call {calls}");
        let mut told = told.iter();
        wanted.retain(|_| told.next().is_some_and(Option::is_none));
        calls += 1;
    }
    assert_eq!(calls, 5, "four of 20,000 bytes at a time");
}

fn in_a_call_at_a_closed_journal_each_read_is_told_why<S: Subject>(subject: &S) {
    let journal = subject.fresh(JournalConfig::default());
    let author = author_of(subject, &journal, 1, 1);
    journal.close().expect("nothing is wrong with it");
    let wanted = of(&author);
    for (wanted, told) in wanted.iter().zip(together(&journal, &wanted, BYTES_MAX)) {
        assert!(
            matches!(told, Some(Err(ReadError::Failed(_)))),
            "{wanted:?}: {told:?}"
        );
    }
}

fn damage_concerns_only_the_read_that_comes_upon_it<S: Subject>(subject: &S) {
    let journal = subject.fresh(JournalConfig::default());
    let mut damaged = Author::new(&journal, "damaged", 1);
    damaged.append(
        subject,
        &journal,
        &[b"start", b"the record that is damaged"],
        false,
    );
    let others: Vec<_> = (2..6)
        .map(|number| author_of(subject, &journal, number, 1))
        .collect();
    let config = JournalConfig::default();
    let Some(journal) = subject.damaged(journal, config, b"the record that is damaged") else {
        return;
    };
    let mut runs: Vec<RunId> = others.iter().map(|author| author.run).collect();
    runs.insert(2, damaged.run);
    let wanted: Vec<_> = runs.iter().map(|run| ToRead::History(*run)).collect();
    for (run, told) in runs.iter().zip(together(&journal, &wanted, BYTES_MAX)) {
        let is_damaged = matches!(told, Some(Err(ReadError::Damaged { .. })));
        assert_eq!(is_damaged, *run == damaged.run, "{told:?}");
    }
    let new = InstanceId::new("new").expect("a sound id");
    let told = together(&journal, &[ToRead::Finished(new)], BYTES_MAX);
    assert!(told[0].is_some());
}
