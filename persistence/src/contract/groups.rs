//! Groups: turns of several runs are all appended, or none of them is.

use std::collections::BTreeMap;

use millrun_core::{Epoch, RunId, Sequence};

use super::actor::accepted;
use super::{Author, Subject, suite};
use crate::batch::Batch;
use crate::config::JournalConfig;
use crate::error::{ReadError, TurnRefused};
use crate::journal::{Enqueued, Journal, Reads};
use crate::resolve::Resolved;

suite![
    a_group_of_several_partitions_is_appended_as_a_whole,
    one_refused_turn_refuses_its_group_and_nothing_else,
    behind_a_refused_group_its_runs_take_nothing_until_they_were_read_again,
    a_fenced_turn_refuses_its_group,
    a_group_that_was_appended_is_recognised_when_it_is_appended_again,
    a_group_has_as_many_bytes_as_one_turn_may_have,
    a_group_that_is_tied_to_a_refused_turn_is_refused_with_it,
    of_a_group_the_turns_vouch_for_each_other,
    a_damaged_record_keeps_groups_with_its_run_from_being_taken_and_nothing_else,
    groups_are_taken_as_a_naive_model_takes_them,
];

fn open<S: Subject>(subject: &S) -> S::Journal {
    subject.fresh(JournalConfig::default())
}

/// Several runs with two records each, every one in a partition of its own.
fn authors<S: Subject>(subject: &S, journal: &S::Journal) -> Vec<Author> {
    let names = ["order", "parcel", "invoice"];
    let mut authors: Vec<_> = (1..)
        .zip(names)
        .map(|(unique, name)| Author::new(journal, name, unique))
        .collect();
    for author in &mut authors {
        author.append(subject, journal, &[b"one", b"two"], false);
    }
    authors
}

/// A batch in which each author has a turn, all in one group.
fn grouped(authors: &mut [Author]) -> Batch {
    let mut batch = Batch::new();
    put_group(&mut batch, authors);
    batch
}

fn put_group(batch: &mut Batch, authors: &mut [Author]) {
    let from = batch.turns();
    let mut group = batch.group();
    for author in &mut *authors {
        author.put_grouped(&mut group, &[b"of a group"], false);
    }
    let indexes = group.finish().expect("the group is sound");
    assert_eq!(indexes, from..from + authors.len());
}

fn enqueue(journal: &impl Journal, batch: &Batch) -> Enqueued {
    journal.enqueue(batch).expect("the batch is taken")
}

fn errors(enqueued: &Enqueued) -> Vec<(usize, TurnRefused)> {
    let refused = enqueued.refused.iter();
    refused
        .map(|refused| (refused.turn, refused.error.clone()))
        .collect()
}

fn a_group_of_several_partitions_is_appended_as_a_whole<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut authors = authors(subject, &journal);
    let (mut alone, mut begun) = (
        Author::new(&journal, "alone", 4),
        Author::new(&journal, "begun", 5),
    );
    let mut batch = Batch::new();
    alone.put(&mut batch, &[b"by itself"], false);
    let mut group = batch.group();
    authors[0].put_grouped(&mut group, &[b"on"], false);
    begun.put_grouped(&mut group, &[b"begins"], false);
    authors[1].put_grouped(&mut group, &[b"ends", b"at last"], true);
    group.finish().expect("the group is sound");
    authors[2].put(&mut batch, &[b"by itself"], false);
    subject.settle(&journal, accepted(&journal, &batch));
    authors.extend([alone, begun]);
    for author in &authors {
        author.assert_history(&journal);
    }
    let journal = subject.reopen(journal, JournalConfig::default());
    for author in &authors {
        author.assert_history(&journal);
    }
    let finished = journal.finished(&authors[1].id).expect("the journal can be read");
    assert_eq!(finished.map(|finished| finished.run), Some(authors[1].run));
}

fn one_refused_turn_refuses_its_group_and_nothing_else<S: Subject>(subject: &S) {
    for wrong in 0..3 {
        let journal = open(subject);
        let mut authors = authors(subject, &journal);
        let mut others = [
            Author::new(&journal, "before", 4),
            Author::new(&journal, "behind", 5),
        ];
        let mut stale = authors.clone();
        stale[wrong].head = Sequence::new(7);
        let mut batch = Batch::new();
        others[0].put(&mut batch, &[b"before"], false);
        put_group(&mut batch, &mut stale);
        others[1].put(&mut batch, &[b"behind"], false);
        let enqueued = enqueue(&journal, &batch);
        let expected: Vec<_> = (0..3)
            .map(|turn| {
                let head = Sequence::new(2);
                let is_wrong = turn == wrong;
                (
                    turn + 1,
                    if is_wrong {
                        TurnRefused::Conflict { head }
                    } else {
                        TurnRefused::ReadAgain
                    },
                )
            })
            .collect();
        assert_eq!(errors(&enqueued), expected, "turn {wrong} is stale");
        subject.settle(&journal, enqueued.offset);
        for author in authors.iter().chain(&others) {
            author.assert_history(&journal);
        }
        // Once they are read again, the group is taken.
        for author in &authors {
            assert_eq!(journal.read_again(author.run, author.epoch), Ok(author.head));
        }
        subject.settle(&journal, accepted(&journal, &grouped(&mut authors)));
        let journal = subject.reopen(journal, JournalConfig::default());
        for author in authors.iter().chain(&others) {
            author.assert_history(&journal);
        }
    }
}

fn behind_a_refused_group_its_runs_take_nothing_until_they_were_read_again<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut authors = authors(subject, &journal);
    let mut stale = authors.clone();
    stale[2].head = Sequence::new(7);
    drop(enqueue(&journal, &grouped(&mut stale)));
    let late = authors[0].clone().batch(&[b"its head fits by chance"], false);
    assert_eq!(errors(&enqueue(&journal, &late)), [(0, TurnRefused::ReadAgain)]);
    assert_eq!(
        journal.read_again(authors[0].run, authors[0].epoch),
        Ok(authors[0].head)
    );
    authors[0].append(subject, &journal, &[b"read again"], false);
    authors[0].assert_history(&journal);
}

fn a_fenced_turn_refuses_its_group<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut authors = authors(subject, &journal);
    let lost = authors[1].id.partition();
    let current = journal
        .take_over(&[lost])
        .expect("an open journal gives an epoch");
    let enqueued = enqueue(&journal, &grouped(&mut authors.clone()));
    let expected = [
        (0, TurnRefused::ReadAgain),
        (1, TurnRefused::Fenced { current }),
        (2, TurnRefused::ReadAgain),
    ];
    assert_eq!(errors(&enqueued), expected);
    subject.settle(&journal, enqueued.offset);
    for author in &authors {
        author.assert_history(&journal);
    }
    // The present owner has not heard of it.
    authors[1].epoch = current;
    authors[1].append(subject, &journal, &[b"of the present owner"], false);
    authors[1].assert_history(&journal);
}

fn a_group_that_was_appended_is_recognised_when_it_is_appended_again<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut authors = authors(subject, &journal);
    let batch = grouped(&mut authors);
    let first = enqueue(&journal, &batch);
    assert_eq!(errors(&first), []);
    let again = enqueue(&journal, &batch);
    let expected: Vec<_> = (0..3).map(|turn| (turn, TurnRefused::AlreadyAppended)).collect();
    assert_eq!(errors(&again), expected);
    subject.settle(&journal, again.offset);
    for author in &authors {
        author.assert_history(&journal);
    }
    authors[0].append(subject, &journal, &[b"goes on"], false);
    let later = errors(&enqueue(&journal, &batch));
    assert_eq!(
        later[0].1,
        TurnRefused::Conflict {
            head: authors[0].head
        }
    );
    assert_eq!(later[1..], expected[1..]);
}

fn a_group_has_as_many_bytes_as_one_turn_may_have<S: Subject>(subject: &S) {
    let journal = subject.fresh(JournalConfig {
        turn_bytes_max: 1_000,
        ..JournalConfig::default()
    });
    let mut authors: Vec<_> = (1..=3)
        .map(|unique| Author::new(&journal, &format!("a-{unique}"), unique))
        .collect();
    let of_body = |authors: &mut [Author], len: usize| {
        let mut batch = Batch::new();
        let mut group = batch.group();
        for author in authors {
            author.put_grouped(&mut group, &[&vec![7; len]], false);
        }
        group.finish().expect("the batch allows it");
        batch
    };
    let large = of_body(&mut authors.clone(), 300);
    let (bytes, max) = (large.bytes(), 1_000);
    assert!(large.iter().all(|turn| turn.bytes() < max) && bytes > max);
    let enqueued = enqueue(&journal, &large);
    let expected: Vec<_> = (0..3)
        .map(|turn| (turn, TurnRefused::TooLarge { bytes, max }))
        .collect();
    assert_eq!(errors(&enqueued), expected);
    let rest = 1_000 - of_body(&mut authors.clone(), 0).bytes();
    let small = of_body(&mut authors, rest / 3);
    assert!(small.bytes() <= max && small.bytes() > max - 3);
    subject.settle(&journal, accepted(&journal, &small));
    for author in &authors {
        author.assert_history(&journal);
    }
}

fn a_group_that_is_tied_to_a_refused_turn_is_refused_with_it<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut authors = authors(subject, &journal);
    let mut stale = authors[0].clone();
    stale.head = Sequence::new(7);
    let mut batch = Batch::new();
    stale.put(&mut batch, &[b"stale"], false);
    put_group(&mut batch, &mut authors[1..].to_vec());
    batch.tie_last();
    let head = authors[0].head;
    let expected = [
        (0, TurnRefused::Conflict { head }),
        (1, TurnRefused::ReadAgain),
        (2, TurnRefused::ReadAgain),
    ];
    assert_eq!(errors(&enqueue(&journal, &batch)), expected);
    for author in &authors {
        assert_eq!(journal.read_again(author.run, author.epoch), Ok(author.head));
    }
    let mut batch = Batch::new();
    authors[0].put(&mut batch, &[b"fits"], false);
    put_group(&mut batch, &mut authors[1..]);
    batch.tie_last();
    subject.settle(&journal, accepted(&journal, &batch));
    for author in &authors {
        author.assert_history(&journal);
    }
}

/// One of the runs was trimmed behind its turn, so that nobody can tell by itself whether the turn was appended.
fn of_a_group_the_turns_vouch_for_each_other<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut authors = authors(subject, &journal);
    let batch = grouped(&mut authors);
    let absent = journal.resolve(&batch).expect("the journal can be read");
    assert_eq!(absent, [Resolved::Absent; 3]);
    subject.settle(&journal, accepted(&journal, &batch));
    authors[0].append_trimming(subject, &journal, &[b"trimmed"]);
    let resolved = journal.resolve(&batch).expect("the journal can be read");
    assert_eq!(resolved, [Resolved::Appended; 3]);
    // A turn by itself has nobody to vouch for it, and neither has a group of which nothing is left.
    let mut alone = Batch::new();
    let mut former = Author {
        head: Sequence::new(2),
        ..authors[0].clone()
    };
    former.put(&mut alone, &[b"of a group"], false);
    let resolved = journal.resolve(&alone).expect("the journal can be read");
    assert_eq!(resolved, [Resolved::Unknown]);
    for author in &mut authors[1..] {
        author.append_trimming(subject, &journal, &[b"trimmed"]);
    }
    let resolved = journal.resolve(&batch).expect("the journal can be read");
    assert_eq!(resolved, [Resolved::Unknown; 3]);
    // What was not appended is not vouched for.
    let mut other = authors.clone();
    other[1].head = Sequence::new(1);
    let resolved = journal
        .resolve(&grouped(&mut other))
        .expect("the journal can be read");
    assert!(!resolved.contains(&Resolved::Appended), "{resolved:?}");
}

/// Nothing in a store says which turns were appended as a group, and what the other runs of one recorded is true
/// whatever became of the damaged record: so their records stay, and they go on, without its run.
fn a_damaged_record_keeps_groups_with_its_run_from_being_taken_and_nothing_else<S: Subject>(subject: &S) {
    const DAMAGED: &[u8] = b"the one record of the group that is damaged later";
    let journal = open(subject);
    let mut authors = authors(subject, &journal);
    let mut batch = Batch::new();
    let mut group = batch.group();
    authors[0].put_grouped(&mut group, &[b"before it"], false);
    authors[1].put_grouped(&mut group, &[DAMAGED], false);
    authors[2].put_grouped(&mut group, &[b"behind it"], false);
    group.finish().expect("the group is sound");
    subject.settle(&journal, accepted(&journal, &batch));
    let Some(journal) = subject.damaged(journal, JournalConfig::default(), DAMAGED) else {
        return;
    };
    let damage = journal.history(authors[1].run);
    assert!(
        matches!(damage, Err(ReadError::Damaged { run, .. }) if run == Some(authors[1].run)),
        "{damage:?}"
    );
    for author in [&authors[0], &authors[2]] {
        author.assert_history(&journal);
    }
    let quarantined = authors.iter().map(|author| journal.is_quarantined(author.run));
    assert_eq!(quarantined.collect::<Vec<_>>(), [false, true, false]);
    for author in &mut authors {
        let epoch = journal.take_over(&[author.id.partition()]);
        author.epoch = epoch.expect("an open journal gives an epoch");
    }
    // The whole group is refused, also what it would begin and what is closed by it.
    let mut begun = Author::new(&journal, "begun", 4);
    let mut alone = Author::new(&journal, "alone", 5);
    let mut wanted = (authors.clone(), begun.clone());
    let mut batch = Batch::new();
    alone.put(&mut batch, &[b"by itself"], false);
    let mut group = batch.group();
    wanted.0[0].put_grouped(&mut group, &[b"goes on"], false);
    wanted.0[1].put_grouped(&mut group, &[b"is quarantined"], false);
    wanted.0[2].put_grouped(&mut group, &[b"ends"], true);
    wanted.1.put_grouped(&mut group, &[b"begins"], false);
    group.finish().expect("the group is sound");
    let enqueued = enqueue(&journal, &batch);
    let expected = [
        (1, TurnRefused::ReadAgain),
        (2, TurnRefused::Quarantined),
        (3, TurnRefused::ReadAgain),
        (4, TurnRefused::ReadAgain),
    ];
    assert_eq!(errors(&enqueued), expected);
    subject.settle(&journal, enqueued.offset);
    let unknown = journal.history(begun.run);
    assert!(
        matches!(unknown, Err(ReadError::UnknownRun { .. })),
        "{unknown:?}"
    );
    for author in [&authors[0], &authors[2], &alone] {
        author.assert_history(&journal);
    }
    // Without the quarantined run the group is taken.
    let mut batch = Batch::new();
    let mut group = batch.group();
    for (index, closes) in [(0, false), (2, true)] {
        let author = &mut authors[index];
        assert_eq!(journal.read_again(author.run, author.epoch), Ok(author.head));
        author.put_grouped(&mut group, &[b"without it"], closes);
    }
    begun.put_grouped(&mut group, &[b"begins"], false);
    group.finish().expect("the group is sound");
    subject.settle(&journal, accepted(&journal, &batch));
    let journal = subject.reopen(journal, JournalConfig::default());
    for author in [&authors[0], &authors[2], &begun, &alone] {
        author.assert_history(&journal);
    }
    assert!(journal.history(authors[1].run).is_err());
}

/// What a journal without any cleverness knows of a run.
#[derive(Clone, Debug)]
struct Naive {
    author: Author,
    is_closed: bool,
    is_suspect: bool,
}

/// The model takes a group if each of its turns fits, and looks at nothing else.
fn groups_are_taken_as_a_naive_model_takes_them<S: Subject>(subject: &S) {
    let journal = open(subject);
    let mut state = 20_250_101_u64;
    let mut below = |bound: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from((state >> 33) % bound).expect("a small number")
    };
    let mut runs: BTreeMap<RunId, Naive> = BTreeMap::new();
    let (mut taken, mut refused) = (0, 0);
    for step in 0..150_u64 {
        if runs.len() < 12 || step % 10 == 0 {
            let author = Author::new(&journal, &format!("run-{step}"), step);
            // Its partition may be that of others, who go on under the new epoch.
            for naive in runs.values_mut() {
                if naive.author.id.partition() == author.id.partition() {
                    (naive.author.epoch, naive.is_suspect) = (author.epoch, false);
                }
            }
            let naive = Naive {
                author,
                is_closed: false,
                is_suspect: false,
            };
            runs.insert(naive.author.run, naive);
        }
        let (mut batch, mut expected) = (Batch::new(), Vec::new());
        for _ in 0..=below(3) {
            let keys: Vec<_> = runs.keys().copied().collect();
            let mut chosen: Vec<_> = (0..=below(3)).map(|_| keys[below(keys.len() as u64)]).collect();
            chosen.sort_unstable();
            chosen.dedup();
            let from = batch.turns();
            let mut group = batch.group();
            let mut judged = Vec::new();
            for run in &chosen {
                let naive = &runs[run];
                let mut author = naive.author.clone();
                let is_begun = author.head > Sequence::ZERO;
                let problem = match below(12) {
                    0 if is_begun => {
                        author.head = Sequence::new(author.head.get() + 1);
                        true
                    }
                    1 => {
                        author.epoch = Epoch::ZERO;
                        true
                    }
                    _ => naive.is_closed || naive.is_suspect,
                };
                let closes = below(9) == 0;
                author.put_grouped(&mut group, &[&step.to_le_bytes()], closes);
                judged.push((*run, author, closes, problem));
            }
            group.finish().expect("the group is sound");
            let is_taken = judged.iter().all(|(.., problem)| !problem);
            (taken, refused) = (taken + usize::from(is_taken), refused + usize::from(!is_taken));
            for (turn, (run, author, closes, _)) in (from..).zip(judged) {
                let is_fenced = author.epoch == Epoch::ZERO;
                let naive = runs.get_mut(&run).expect("it was chosen among them");
                if is_taken {
                    (naive.author, naive.is_closed) = (author, closes);
                } else {
                    expected.push(turn);
                    naive.is_suspect |= !is_fenced && naive.author.head > Sequence::ZERO && !naive.is_closed;
                }
            }
        }
        let enqueued = enqueue(&journal, &batch);
        let turns: Vec<_> = enqueued.refused.iter().map(|refused| refused.turn).collect();
        assert_eq!(turns, expected, "step {step}: {:?}", enqueued.refused);
        if below(3) == 0 {
            for naive in runs.values_mut().filter(|naive| naive.is_suspect) {
                let head = journal.read_again(naive.author.run, naive.author.epoch);
                assert_eq!(head, Ok(naive.author.head), "step {step}");
                naive.is_suspect = false;
            }
        }
        if step % 30 == 29 {
            subject.settle(&journal, enqueued.offset);
        }
    }
    assert!(taken > 50 && refused > 50, "{taken} taken, {refused} refused");
    let journal = subject.reopen(journal, JournalConfig::default());
    for naive in runs.values().filter(|naive| naive.author.head > Sequence::ZERO) {
        naive.author.assert_history(&journal);
    }
}
