//! Records that retention holds back for those who have not read them: up to a bound in bytes, and for all records while it is
//! not known who reads.
//!
//! A journal that keeps no topics passes all of it.

use std::time::Duration;

use millrun_core::{Offset, Sequence};

use super::purges::StepDice;
use super::topics::{HOUR, START, TopicAuthor, opened, topics};
use super::upkeep::keep_up;
use super::{Subject, suite};
use crate::config::JournalConfig;
use crate::journal::Journal;
use crate::topics::{TopicNumber, TopicRetention};

suite![
    what_the_slowest_reader_has_not_read_is_held_back,
    at_the_bound_in_bytes_the_earliest_are_dropped_all_the_same,
    what_is_held_back_beyond_its_age_goes_when_it_is_read,
    a_reader_that_is_deleted_holds_nothing_back,
    after_reopening_nothing_goes_before_all_readers_are_noted,
    a_reader_does_not_go_back_and_unknown_ones_are_none,
    held_back_records_agree_with_a_list,
];

/// Bytes of a record of [`append`].
const BYTES: u64 = 1_020;
const NONE: Sequence = Sequence::ZERO;

/// A journal with a topic of this retention, and an author; times of records are believed.
fn retaining<S: Subject>(subject: &S, retention: TopicRetention) -> Option<(S::Journal, TopicAuthor)> {
    let (journal, author) = opened(subject, config())?;
    topics(&journal)
        .declare("orders.placed", retention)
        .expect("it is known");
    Some((journal, author))
}

fn config() -> JournalConfig {
    let mut config = JournalConfig::default();
    config.retention.age_step_max = Duration::MAX;
    config
}

/// Keeps one record, and holds unread ones back up to this bound.
fn one_and_unread(unread_bytes_max: u64) -> TopicRetention {
    TopicRetention {
        len_max: 1,
        unread_bytes_max,
        ..TopicRetention::unbounded()
    }
}

/// Appends as many records, each in a commit of its own, so that what is dropped is exact.
fn append<S: Subject>(subject: &S, journal: &S::Journal, author: &TopicAuthor, count: u64) {
    for _ in 0..count {
        author.append(subject, journal, &[vec![7; 1_000]]);
    }
}

/// The topic in which a reader keeps its place; what it keeps there is its own affair.
fn reader(journal: &impl Journal, name: &str) -> TopicNumber {
    topics(journal)
        .declare(name, TopicRetention::unbounded())
        .expect("there is room")
}

fn note(journal: &impl Journal, topic: TopicNumber, reader: TopicNumber, through: u64) {
    topics(journal).note_reader(topic, reader, Sequence::new(through));
}

/// The first and the last record that are there after an upkeep.
fn kept(journal: &impl Journal, author: &TopicAuthor) -> (u64, u64) {
    assert_eq!(keep_up(journal, author.time), Ok(()));
    let page = topics(journal)
        .read(author.topic, NONE, usize::MAX)
        .expect("it is known");
    let there: Vec<_> = page.records().map(|record| record.sequence.get()).collect();
    let summary = topics(journal).summary(author.topic).expect("it is known");
    let (first, last) = (summary.first.get(), summary.last.get());
    assert_eq!(there, (first..=last).collect::<Vec<_>>());
    assert_eq!(page.dropped, first - 1, "what is gone is counted");
    (first, last)
}

fn what_the_slowest_reader_has_not_read_is_held_back<S: Subject>(subject: &S) {
    let Some((journal, author)) = retaining(subject, one_and_unread(u64::MAX)) else {
        return;
    };
    let (fast, slow) = (reader(&journal, "fast"), reader(&journal, "slow"));
    note(&journal, author.topic, fast, 0);
    note(&journal, author.topic, slow, 0);
    topics(&journal).all_readers_noted(author.topic);
    append(subject, &journal, &author, 10);
    assert_eq!(kept(&journal, &author), (1, 10));
    note(&journal, author.topic, fast, 9);
    assert_eq!(kept(&journal, &author), (1, 10));
    note(&journal, author.topic, slow, 4);
    assert_eq!(kept(&journal, &author), (5, 10));
    note(&journal, author.topic, slow, 10);
    // What is read stays as retention says, and no record longer.
    assert_eq!(kept(&journal, &author), (10, 10));
    // A topic that is read by nobody holds nothing back.
    let unread = reader(&journal, "unread");
    let retention = one_and_unread(u64::MAX);
    topics(&journal)
        .declare("unread", retention)
        .expect("it is known");
    topics(&journal).all_readers_noted(unread);
    let author = TopicAuthor::new(&journal, unread);
    append(subject, &journal, &author, 10);
    assert_eq!(kept(&journal, &author), (10, 10));
}

fn at_the_bound_in_bytes_the_earliest_are_dropped_all_the_same<S: Subject>(subject: &S) {
    let Some((journal, author)) = retaining(subject, one_and_unread(4 * BYTES)) else {
        return;
    };
    note(&journal, author.topic, reader(&journal, "slow"), 2);
    topics(&journal).all_readers_noted(author.topic);
    append(subject, &journal, &author, 3);
    assert_eq!(kept(&journal, &author), (3, 3));
    append(subject, &journal, &author, 3);
    assert_eq!(kept(&journal, &author), (3, 6));
    append(subject, &journal, &author, 6);
    assert_eq!(kept(&journal, &author), (9, 12));
    // A bound that is taken away holds nothing any more.
    topics(&journal)
        .declare("orders.placed", one_and_unread(0))
        .expect("it is known");
    assert_eq!(kept(&journal, &author), (12, 12));
}

fn what_is_held_back_beyond_its_age_goes_when_it_is_read<S: Subject>(subject: &S) {
    let retention = TopicRetention {
        age_max: HOUR,
        unread_bytes_max: u64::MAX,
        ..TopicRetention::unbounded()
    };
    let Some((journal, mut author)) = retaining(subject, retention) else {
        return;
    };
    let slow = reader(&journal, "slow");
    note(&journal, author.topic, slow, 0);
    topics(&journal).all_readers_noted(author.topic);
    append(subject, &journal, &author, 5);
    author.time = START + HOUR * 9;
    assert_eq!(kept(&journal, &author), (1, 5));
    note(&journal, author.topic, slow, 3);
    assert_eq!(kept(&journal, &author), (4, 5));
    note(&journal, author.topic, slow, 5);
    assert_eq!(kept(&journal, &author), (6, 5));
}

fn a_reader_that_is_deleted_holds_nothing_back<S: Subject>(subject: &S) {
    let Some((journal, author)) = retaining(subject, one_and_unread(u64::MAX)) else {
        return;
    };
    let (gone, stays) = (reader(&journal, "gone"), reader(&journal, "stays"));
    note(&journal, author.topic, gone, 1);
    note(&journal, author.topic, stays, 6);
    topics(&journal).all_readers_noted(author.topic);
    append(subject, &journal, &author, 8);
    assert_eq!(kept(&journal, &author), (2, 8));
    if topics(&journal).delete(&[gone]).is_err() {
        // It deletes no topics.
        return;
    }
    assert_eq!(kept(&journal, &author), (7, 8));
    // Noted once more, it is none all the same.
    note(&journal, author.topic, gone, 1);
    note(&journal, author.topic, stays, 8);
    assert_eq!(kept(&journal, &author), (8, 8));
}

fn after_reopening_nothing_goes_before_all_readers_are_noted<S: Subject>(subject: &S) {
    let Some((journal, author)) = retaining(subject, one_and_unread(7 * BYTES)) else {
        return;
    };
    note(&journal, author.topic, reader(&journal, "slow"), 2);
    topics(&journal).all_readers_noted(author.topic);
    append(subject, &journal, &author, 4);
    assert_eq!(kept(&journal, &author), (3, 4));
    let journal = subject.reopen(journal, config());
    assert_eq!(kept(&journal, &author), (3, 4));
    // Not even when one reader is known that has read all.
    let fast = reader(&journal, "fast");
    note(&journal, author.topic, fast, 4);
    assert_eq!(kept(&journal, &author), (3, 4));
    note(&journal, author.topic, reader(&journal, "slow"), 3);
    assert_eq!(kept(&journal, &author), (3, 4));
    topics(&journal).all_readers_noted(author.topic);
    assert_eq!(kept(&journal, &author), (4, 4));
    // And the bound is kept whether readers are known or not.
    let journal = subject.reopen(journal, config());
    let author = TopicAuthor::new(&journal, author.topic);
    append(subject, &journal, &author, 10);
    assert_eq!(kept(&journal, &author), (8, 14));
}

fn a_reader_does_not_go_back_and_unknown_ones_are_none<S: Subject>(subject: &S) {
    let Some((journal, author)) = retaining(subject, one_and_unread(u64::MAX)) else {
        return;
    };
    let slow = reader(&journal, "slow");
    note(&journal, author.topic, slow, 5);
    note(&journal, author.topic, slow, 2);
    note(&journal, author.topic, TopicNumber::new(900), 1);
    note(&journal, TopicNumber::new(901), slow, 1);
    topics(&journal).all_readers_noted(author.topic);
    topics(&journal).all_readers_noted(TopicNumber::new(901));
    append(subject, &journal, &author, 9);
    assert_eq!(kept(&journal, &author), (6, 9));
}

/// Retention as a list has it: the first record that stays of `last`, of which each has a row of its own.
fn first_kept(retention: &TopicRetention, (first, last): (u64, u64), readers: Option<&[u64]>) -> u64 {
    let read_through = match readers {
        Some(readers) => readers.iter().copied().min().unwrap_or(u64::MAX),
        None => 0,
    };
    let stays = |at: u64| {
        let behind = last - at;
        let is_unread = at > read_through;
        behind < retention.len_max || (is_unread && behind * BYTES < retention.unread_bytes_max)
    };
    (first..=last).find(|at| stays(*at)).unwrap_or(last + 1)
}

fn held_back_records_agree_with_a_list<S: Subject>(subject: &S) {
    const NAMES: [&str; 3] = ["one", "two", "three"];
    for seed in 0..12 {
        let mut dice = StepDice(seed);
        let retention = TopicRetention {
            len_max: 1 + dice.below(4),
            unread_bytes_max: dice.below(14) * BYTES,
            ..TopicRetention::unbounded()
        };
        let Some((mut journal, mut author)) = retaining(subject, retention) else {
            return;
        };
        // Where readers stand, as far as they are noted, and whether all are.
        let (mut places, mut all_noted) = ([None; 3], false);
        let (mut first, mut last) = (1, 0);
        for step in 0..60 {
            let at = usize::try_from(dice.below(3)).unwrap_or(0);
            match dice.below(10) {
                0..4 => {
                    let count = 1 + dice.below(3);
                    append(subject, &journal, &author, count);
                    last += count;
                }
                4..7 => {
                    let through = dice.below(last + 2);
                    note(&journal, author.topic, reader(&journal, NAMES[at]), through);
                    places[at] = places[at].max(Some(through));
                }
                7 => {
                    let number = reader(&journal, NAMES[at]);
                    if let Ok(offset) = topics(&journal).delete(&[number]) {
                        subject.settle(&journal, offset);
                        places[at] = None;
                    }
                }
                8 => {
                    topics(&journal).all_readers_noted(author.topic);
                    all_noted = true;
                }
                _ => {
                    journal = subject.reopen(journal, config());
                    author = TopicAuthor::new(&journal, author.topic);
                    (places, all_noted) = ([None; 3], false);
                }
            }
            let noted: Vec<_> = places.iter().copied().flatten().collect();
            first = first_kept(&retention, (first, last), all_noted.then_some(&noted[..]));
            let context = format!("seed {seed}, step {step}, {retention:?}");
            assert_eq!(kept(&journal, &author), (first, last), "{context}");
        }
        subject.settle(&journal, Offset::ZERO);
    }
}
