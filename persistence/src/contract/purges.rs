//! Purges and deletions of topics: what is gone at once, what goes on, and what a store knows of it when it is opened again.
//!
//! A journal that keeps no topics, or does not purge them, passes all of it.

use millrun_core::{Offset, Sequence};

use super::topics::{START, TopicAuthor, appended, bodies, opened, read_all, topics};
use super::upkeep::keep_up;
use super::{Subject, suite};
use crate::config::JournalConfig;
use crate::error::{ReadError, TopicChangeRefused, TopicRefused};
use crate::journal::Journal;
use crate::topics::{TopicAppend, TopicNumber, TopicRetention};

suite![
    a_purge_drops_records_at_once_and_numbers_go_on,
    a_purge_within_what_was_written_together_keeps_what_is_behind_it,
    what_is_not_there_is_not_purged,
    a_deleted_topic_is_not_known_and_its_name_is_free,
    deleted_topics_count_no_more,
    purges_and_deletions_agree_with_a_list,
    a_topic_takes_the_number_of_another_and_none_of_its_records,
];

/// A journal with a topic that keeps all, and an author; `None` if it does not purge.
fn purging<S: Subject>(subject: &S, config: JournalConfig) -> Option<(S::Journal, TopicAuthor)> {
    let (journal, author) = opened(subject, config)?;
    let purged = topics(&journal).purge(author.topic, Sequence::ZERO);
    (purged != Err(TopicChangeRefused::Unsupported)).then_some((journal, author))
}

/// Purges a topic up to this record; returns when that is durable, with how many were dropped.
fn purge<S: Subject>(subject: &S, journal: &S::Journal, topic: TopicNumber, through: u64) -> u64 {
    let purged = topics(journal)
        .purge(topic, Sequence::new(through))
        .expect("the topic is known");
    subject.settle(journal, purged.offset);
    purged.count
}

fn delete<S: Subject>(subject: &S, journal: &S::Journal, numbers: &[TopicNumber]) {
    let offset = topics(journal).delete(numbers).expect("they are known");
    subject.settle(journal, offset);
}

/// What a reader from the beginning is given, and how many records it is told were dropped.
fn whole(journal: &impl Journal, topic: TopicNumber) -> (u64, Vec<u64>) {
    let page = topics(journal)
        .read(topic, Sequence::ZERO, usize::MAX)
        .expect("it is known");
    let given = page.records().map(|record| record.sequence.get()).collect();
    let in_chunks: usize = page.chunks.iter().map(|chunk| chunk.records().count()).sum();
    assert_eq!(in_chunks, page.records().count(), "no chunk has what is purged");
    (page.dropped, given)
}

fn a_purge_drops_records_at_once_and_numbers_go_on<S: Subject>(subject: &S) {
    let Some((mut journal, mut author)) = purging(subject, JournalConfig::default()) else {
        return;
    };
    author.append(subject, &journal, &bodies(5));
    author.append(subject, &journal, &bodies(5));
    assert_eq!(purge(subject, &journal, author.topic, u64::MAX), 10);
    let check = |journal: &S::Journal| {
        assert_eq!(whole(journal, author.topic), (10, Vec::new()));
        let summary = topics(journal).summary(author.topic).expect("it is known");
        let there = (summary.first.get(), summary.last.get(), summary.bytes);
        assert_eq!(there, (11, 10, 0));
        let at = topics(journal).at_time(author.topic, START).expect("it is known");
        assert_eq!(at, Sequence::new(10));
    };
    check(&journal);
    journal = subject.reopen(journal, JournalConfig::default());
    check(&journal);
    assert_eq!(keep_up(&journal, START), Ok(()));
    assert_eq!(journal.stats().topic_bytes, 0, "their space is given back");
    check(&journal);
    journal = subject.reopen(journal, JournalConfig::default());
    check(&journal);
    author = TopicAuthor::new(&journal, author.topic);
    assert_eq!(author.append(subject, &journal, &bodies(2)), appended(11..=12));
    assert_eq!(whole(&journal, author.topic), (10, vec![11, 12]));
    assert_eq!(
        purge(subject, &journal, author.topic, 5),
        0,
        "they are gone already"
    );
    assert_eq!(whole(&journal, author.topic), (10, vec![11, 12]));
}

fn a_purge_within_what_was_written_together_keeps_what_is_behind_it<S: Subject>(subject: &S) {
    for latest_bytes_max in [16 << 20, 0] {
        let config = JournalConfig {
            topic_latest_bytes_max: latest_bytes_max,
            ..JournalConfig::default()
        };
        let Some((mut journal, author)) = purging(subject, config.clone()) else {
            return;
        };
        for _ in 0..2 {
            author.append(subject, &journal, &bodies(6));
        }
        // Within the first row, within the second, and all but the last.
        for (through, count) in [(2, 2), (9, 7), (11, 2)] {
            assert_eq!(purge(subject, &journal, author.topic, through), count);
            let left: Vec<_> = (through + 1..=12).collect();
            assert_eq!(whole(&journal, author.topic), (through, left.clone()));
            journal = subject.reopen(journal, config.clone());
            assert_eq!(keep_up(&journal, START), Ok(()));
            assert_eq!(whole(&journal, author.topic), (through, left.clone()));
            for after in 0..=12 {
                let read = read_all(&journal, author.topic, after, 1);
                let read: Vec<_> = read.into_iter().map(|(sequence, _)| sequence).collect();
                let expected: Vec<_> = left.iter().copied().filter(|left| *left > after).collect();
                assert_eq!(read, expected, "after {after}");
            }
        }
    }
}

fn what_is_not_there_is_not_purged<S: Subject>(subject: &S) {
    let Some((journal, author)) = purging(subject, JournalConfig::default()) else {
        return;
    };
    let unknown = TopicNumber::new(9);
    let refused = TopicChangeRefused::Unknown { topic: unknown };
    let purged = topics(&journal).purge(unknown, Sequence::new(1));
    assert_eq!(purged.map(|_| ()), Err(refused.clone()));
    let deleted = topics(&journal).delete(&[author.topic, unknown]);
    assert_eq!(deleted, Err(refused));
    assert_eq!(author.append(subject, &journal, &bodies(1)), appended(1..=1));
    journal.close().expect("nothing is wrong with it");
    let purged = topics(&journal).purge(author.topic, Sequence::new(1));
    assert!(matches!(purged, Err(TopicChangeRefused::Failed(_))), "{purged:?}");
    let deleted = topics(&journal).delete(&[author.topic]);
    assert!(
        matches!(deleted, Err(TopicChangeRefused::Failed(_))),
        "{deleted:?}"
    );
}

fn a_deleted_topic_is_not_known_and_its_name_is_free<S: Subject>(subject: &S) {
    let Some((mut journal, author)) = purging(subject, JournalConfig::default()) else {
        return;
    };
    let old = author.topic;
    let all = TopicRetention::unbounded();
    let other = topics(&journal).declare("other", all).expect("there is room");
    author.append(subject, &journal, &bodies(4));
    TopicAuthor::new(&journal, other).append(subject, &journal, &bodies(3));
    delete(subject, &journal, &[old, old]);
    let check = |journal: &S::Journal| {
        let unknown = ReadError::UnknownTopic { topic: old };
        assert_eq!(topics(journal).summary(old), None);
        let read = topics(journal).read(old, Sequence::ZERO, 100);
        assert_eq!(read, Err(unknown.clone()));
        let latest = topics(journal).latest(old, Sequence::ZERO, 100);
        assert_eq!(latest, Err(unknown.clone()));
        assert_eq!(topics(journal).at_time(old, START), Err(unknown));
        let again = topics(journal).delete(&[old]);
        assert_eq!(again, Err(TopicChangeRefused::Unknown { topic: old }));
        let late = TopicAuthor::new(journal, old).append(subject, journal, &bodies(1));
        assert_eq!(late, [TopicAppend::UnknownTopic]);
        assert!(topics(journal).list().iter().all(|topic| topic.number != old));
        assert_eq!(read_all(journal, other, 0, 100).len(), 3);
    };
    check(&journal);
    journal = subject.reopen(journal, JournalConfig::default());
    check(&journal);
    let new = topics(&journal)
        .declare("orders.placed", all)
        .expect("the name is free");
    assert_ne!(new, old);
    assert_ne!(new, other);
    check(&journal);
    let author = TopicAuthor::new(&journal, new);
    // No number names two records.
    assert_eq!(author.append(subject, &journal, &bodies(2)), appended(5..=6));
    journal = subject.reopen(journal, JournalConfig::default());
    check(&journal);
    assert_eq!(whole(&journal, new), (4, vec![5, 6]));
    assert_eq!(keep_up(&journal, START), Ok(()));
    let kept: u64 = topics(&journal).list().iter().map(|topic| topic.bytes).sum();
    assert_eq!(
        (journal.stats().topics, journal.stats().topic_bytes),
        (2, kept),
        "the space of the deleted one is given back"
    );
}

fn deleted_topics_count_no_more<S: Subject>(subject: &S) {
    let config = JournalConfig {
        topics_len_max: 2,
        ..JournalConfig::default()
    };
    let Some((mut journal, author)) = purging(subject, config.clone()) else {
        return;
    };
    for round in 0..5 {
        let all = TopicRetention::unbounded();
        let name = format!("of round {round}");
        let topic = topics(&journal).declare(&name, all).expect("there is room");
        let full = topics(&journal).declare("one more", all);
        assert_eq!(full, Err(TopicRefused::TooMany { max: 2 }));
        TopicAuthor::new(&journal, topic).append(subject, &journal, &bodies(1));
        delete(subject, &journal, &[topic]);
        journal = subject.reopen(journal, config.clone());
    }
    assert_eq!(topics(&journal).list().len(), 1);
    assert_eq!(whole(&journal, author.topic), (0, Vec::new()));
}

/// A generator with a seed: the suite has no dice of its own.
pub(super) struct StepDice(pub(super) u64);

impl StepDice {
    pub(super) fn below(&mut self, max: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % max
    }
}

/// A topic of the model: its number, the last record that was dropped, and the bodies of those that are there.
struct TopicModel {
    number: TopicNumber,
    dropped: u64,
    there: Vec<Vec<u8>>,
}

fn a_topic_takes_the_number_of_another_and_none_of_its_records<S: Subject>(subject: &S) {
    let Some((mut journal, mut author)) = purging(subject, JournalConfig::default()) else {
        return;
    };
    let (number, all) = (author.topic, TopicRetention::unbounded());
    let name = |journal: &S::Journal| topics(journal).summary(number).map(|summary| summary.name);
    let old = name(&journal).expect("it is known");
    let other = topics(&journal).declare("other", all).expect("there is room");
    author.append(subject, &journal, &bodies(4));
    let replace = |journal: &S::Journal, from: &str, to: &str| topics(journal).replace(number, from, to, all);
    let offset = match replace(&journal, &old, "new") {
        Err(TopicChangeRefused::Unsupported) => return,
        replaced => replaced.expect("it is known"),
    };
    subject.settle(&journal, offset);
    for _ in 0..2 {
        assert_eq!(name(&journal).as_deref(), Some("new"));
        assert_eq!(whole(&journal, number), (4, Vec::new()));
        let unknown = TopicChangeRefused::Unknown { topic: number };
        assert_eq!(
            replace(&journal, &old, "newer"),
            Err(unknown),
            "the name is that of nothing"
        );
        for taken in ["other", ""] {
            let refused = replace(&journal, "new", taken);
            assert!(
                matches!(refused, Err(TopicChangeRefused::Name { .. })),
                "{refused:?}"
            );
        }
        journal = subject.reopen(journal, JournalConfig::default());
    }
    // Behind each opening the number has the records of the new one alone.
    let mut dropped = 4;
    let mut from = "new".to_owned();
    for round in 0..3 {
        author = TopicAuthor::new(&journal, number);
        let next = dropped + 1..=dropped + 3;
        assert_eq!(
            author.append(subject, &journal, &bodies(3)),
            appended(next.clone())
        );
        assert_eq!(whole(&journal, number), (dropped, next.collect()));
        let to = format!("new.{round}");
        let offset = replace(&journal, &from, &to).expect("it is known");
        subject.settle(&journal, offset);
        dropped += 3;
        assert_eq!(whole(&journal, number), (dropped, Vec::new()));
        if round == 1 {
            assert_eq!(keep_up(&journal, START), Ok(()));
        }
        journal = subject.reopen(journal, JournalConfig::default());
        from = to;
    }
    assert_eq!(topics(&journal).declare(&from, all), Ok(number));
    assert_ne!(
        topics(&journal).declare(&old, all),
        Ok(number),
        "its name is free"
    );
    assert_eq!(topics(&journal).declare("other", all), Ok(other));
}

fn purges_and_deletions_agree_with_a_list<S: Subject>(subject: &S) {
    const NAMES: [&str; 3] = ["one", "two", "three"];
    for seed in 0..8 {
        let mut dice = StepDice(seed);
        let config = JournalConfig {
            topic_latest_bytes_max: [0, 700, 1 << 20][usize::try_from(seed).unwrap_or(0) % 3],
            ..JournalConfig::default()
        };
        let Some((mut journal, _)) = purging(subject, config.clone()) else {
            return;
        };
        let mut models: [Option<TopicModel>; 3] = [None, None, None];
        let mut deleted = [0; 3];
        for step in 0..60 {
            let at = usize::try_from(dice.below(3)).unwrap_or(0);
            let model = models[at].get_or_insert_with(|| {
                let number = topics(&journal).declare(NAMES[at], TopicRetention::unbounded());
                TopicModel {
                    number: number.expect("there is room"),
                    dropped: deleted[at],
                    there: Vec::new(),
                }
            });
            let last = model.dropped + model.there.len() as u64;
            match dice.below(10) {
                0..4 => {
                    let more = bodies(1 + usize::try_from(dice.below(8)).unwrap_or(0));
                    let author = TopicAuthor::new(&journal, model.number);
                    let expected = appended(last + 1..=last + more.len() as u64);
                    assert_eq!(author.append(subject, &journal, &more), expected);
                    model.there.extend(more);
                }
                4..7 => {
                    let through = dice.below(last + 3);
                    let gone = through.min(last).saturating_sub(model.dropped);
                    assert_eq!(purge(subject, &journal, model.number, through), gone);
                    model.dropped += gone;
                    model.there.drain(..usize::try_from(gone).unwrap_or(0));
                }
                7 => {
                    delete(subject, &journal, &[model.number]);
                    deleted[at] = last;
                    models[at] = None;
                }
                8 => journal = subject.reopen(journal, config.clone()),
                _ => assert_eq!(keep_up(&journal, START), Ok(())),
            }
            let context = format!("seed {seed}, step {step}");
            for (name, model) in NAMES.iter().zip(&models) {
                let mut listed = topics(&journal).list().into_iter();
                let listed = listed.find(|topic| topic.name == *name);
                let Some(model) = model else {
                    assert_eq!(listed, None, "{context}");
                    continue;
                };
                let listed = listed.expect("it was declared");
                assert_eq!(listed.number, model.number, "{context}");
                let end = model.dropped + model.there.len() as u64;
                let bounds = (listed.first.get(), listed.last.get());
                assert_eq!(bounds, (model.dropped + 1, end), "{context}");
                let read = read_all(&journal, model.number, 0, 100);
                let expected = (model.dropped + 1..).zip(model.there.iter().cloned());
                assert_eq!(read, expected.collect::<Vec<_>>(), "{context}");
            }
        }
        subject.settle(&journal, Offset::ZERO);
    }
}
