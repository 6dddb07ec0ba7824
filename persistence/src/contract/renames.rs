//! Renamed topics: what goes along, what stays under the former name, and what a store knows of it when it is opened again.
//!
//! A journal that keeps no topics, or does not rename them, passes all of it.

use millrun_core::Sequence;

use super::topics::{TopicAuthor, appended, bodies, opened, read_all, topics};
use super::{Subject, suite};
use crate::config::JournalConfig;
use crate::error::TopicChangeRefused;
use crate::journal::Journal;
use crate::topics::{TopicNumber, TopicRename, TopicRetention};

suite![
    a_renamed_topic_keeps_all_but_its_name,
    topics_are_renamed_together_or_not_at_all,
    a_name_goes_to_no_topic_with_fewer_records_than_a_deleted_one_of_that_name,
    a_name_is_taken_from_a_topic_that_is_deleted_with_it,
    records_that_are_queued_go_along,
];

/// The name of the topic that [`opened`] declares.
const OLD: &str = "orders.placed";
const NEW: &str = "orders.new";

fn renamed(topic: TopicNumber, from: &str, to: &str) -> TopicRename {
    TopicRename {
        topic,
        from: from.to_owned(),
        to: to.to_owned(),
    }
}

fn rename<S: Subject>(subject: &S, journal: &S::Journal, renames: &[TopicRename]) {
    let offset = topics(journal)
        .rename(renames, &[])
        .expect("nothing speaks against it");
    subject.settle(journal, offset);
}

/// A journal with a topic that keeps all, and an author; `None` if it does not rename.
fn renaming<S: Subject>(subject: &S) -> Option<(S::Journal, TopicAuthor)> {
    let (journal, author) = opened(subject, JournalConfig::default())?;
    (topics(&journal).rename(&[], &[]) != Err(TopicChangeRefused::Unsupported)).then_some((journal, author))
}

fn a_renamed_topic_keeps_all_but_its_name<S: Subject>(subject: &S) {
    let Some((mut journal, author)) = renaming(subject) else {
        return;
    };
    let (number, all) = (author.topic, TopicRetention::unbounded());
    assert_eq!(
        author.append_with_id(subject, &journal, &bodies(1)[0], 7),
        appended(1..=1)
    );
    assert_eq!(author.append(subject, &journal, &bodies(4)), appended(2..=5));
    let purged = topics(&journal).purge(number, Sequence::new(2));
    subject.settle(&journal, purged.expect("it is known").offset);
    let before = topics(&journal).summary(number).expect("it is known");
    rename(subject, &journal, &[renamed(number, OLD, NEW)]);
    for _ in 0..2 {
        let after = topics(&journal).summary(number).expect("it is known");
        assert_eq!((after.name.as_str(), after.number), (NEW, number));
        assert_eq!(
            (after.retention, after.first, after.last, after.bytes),
            (before.retention, before.first, before.last, before.bytes)
        );
        assert_eq!(topics(&journal).number(OLD), None);
        assert_eq!(topics(&journal).number(NEW), Some(number));
        assert_eq!(topics(&journal).list().len(), 1, "nothing else is there");
        let read: Vec<_> = read_all(&journal, number, 0, 100)
            .into_iter()
            .map(|(at, _)| at)
            .collect();
        assert_eq!(read, [3, 4, 5]);
        journal = subject.reopen(journal, JournalConfig::default());
    }
    let author = TopicAuthor::new(&journal, number);
    let again = author.append_with_id(subject, &journal, &bodies(1)[0], 7);
    assert_eq!(
        again,
        [crate::topics::TopicAppend::AlreadyAppended(Sequence::new(1))],
        "ids go along"
    );
    assert_eq!(author.append(subject, &journal, &bodies(1)), appended(6..=6));
    assert_eq!(topics(&journal).declare(NEW, all), Ok(number));
    // Another topic under the former name goes on behind the last record that stood under it.
    let other = topics(&journal).declare(OLD, all).expect("the name is free");
    assert_ne!(other, number);
    let author = TopicAuthor::new(&journal, other);
    assert_eq!(author.append(subject, &journal, &bodies(2)), appended(6..=7));
    journal = subject.reopen(journal, JournalConfig::default());
    assert_eq!(topics(&journal).number(OLD), Some(other));
    assert_eq!(topics(&journal).number(NEW), Some(number));
    assert_eq!(read_all(&journal, other, 5, 100).len(), 2);
}

fn topics_are_renamed_together_or_not_at_all<S: Subject>(subject: &S) {
    let Some((mut journal, author)) = renaming(subject) else {
        return;
    };
    let (number, all) = (author.topic, TopicRetention::unbounded());
    let other = topics(&journal).declare("other", all).expect("there is room");
    author.append(subject, &journal, &bodies(2));
    let unknown = TopicNumber::new(99);
    let name = |name: &str| TopicChangeRefused::Name {
        name: name.to_owned(),
    };
    for (renames, refused) in [
        (
            vec![renamed(number, OLD, NEW), renamed(unknown, "x", "y")],
            TopicChangeRefused::Unknown { topic: unknown },
        ),
        (
            vec![renamed(number, OLD, NEW), renamed(other, OLD, "y")],
            TopicChangeRefused::Unknown { topic: other },
        ),
        (vec![renamed(number, OLD, "other")], name("other")),
        (vec![renamed(number, OLD, "")], name("")),
        (vec![renamed(number, OLD, OLD)], name(OLD)),
        (
            vec![renamed(number, OLD, NEW), renamed(other, "other", NEW)],
            name(NEW),
        ),
        (
            vec![renamed(number, OLD, NEW), renamed(number, OLD, "newer")],
            name("newer"),
        ),
    ] {
        assert_eq!(
            topics(&journal).rename(&renames, &[]),
            Err(refused),
            "{renames:?}"
        );
        assert_eq!(topics(&journal).number(OLD), Some(number));
        assert_eq!(topics(&journal).number("other"), Some(other));
        assert_eq!(topics(&journal).number(NEW), None);
    }
    rename(
        subject,
        &journal,
        &[renamed(number, OLD, NEW), renamed(other, "other", "another")],
    );
    journal = subject.reopen(journal, JournalConfig::default());
    assert_eq!(topics(&journal).number(NEW), Some(number));
    assert_eq!(topics(&journal).number("another"), Some(other));
    assert_eq!(topics(&journal).list().len(), 2);
    journal.close().expect("nothing is wrong with it");
    let refused = topics(&journal).rename(&[renamed(number, NEW, OLD)], &[]);
    assert!(
        matches!(refused, Err(TopicChangeRefused::Failed(_))),
        "{refused:?}"
    );
}

/// Places that were kept under the name would skip records.
fn a_name_goes_to_no_topic_with_fewer_records_than_a_deleted_one_of_that_name<S: Subject>(subject: &S) {
    let Some((mut journal, author)) = renaming(subject) else {
        return;
    };
    let (number, all) = (author.topic, TopicRetention::unbounded());
    let deleted = topics(&journal).declare(NEW, all).expect("there is room");
    author.append(subject, &journal, &bodies(2));
    TopicAuthor::new(&journal, deleted).append(subject, &journal, &bodies(3));
    let offset = topics(&journal).delete(&[deleted]).expect("it is known");
    subject.settle(&journal, offset);
    for _ in 0..2 {
        let refused = topics(&journal).rename(&[renamed(number, OLD, NEW)], &[]);
        let numbers = TopicChangeRefused::Numbers {
            name: NEW.to_owned(),
            deleted: 3,
            last: 2,
        };
        assert_eq!(refused, Err(numbers));
        journal = subject.reopen(journal, JournalConfig::default());
    }
    let author = TopicAuthor::new(&journal, number);
    author.append(subject, &journal, &bodies(1));
    // There and back: each former name was that of this topic.
    for _ in 0..2 {
        rename(subject, &journal, &[renamed(number, OLD, NEW)]);
        author.append(subject, &journal, &bodies(1));
        rename(subject, &journal, &[renamed(number, NEW, OLD)]);
    }
    journal = subject.reopen(journal, JournalConfig::default());
    assert_eq!(topics(&journal).number(OLD), Some(number));
    assert_eq!(read_all(&journal, number, 0, 100).len(), 5);
}

fn a_name_is_taken_from_a_topic_that_is_deleted_with_it<S: Subject>(subject: &S) {
    let Some((mut journal, author)) = renaming(subject) else {
        return;
    };
    let (number, all) = (author.topic, TopicRetention::unbounded());
    author.append(subject, &journal, &bodies(2));
    let holder = topics(&journal).declare(NEW, all).expect("there is room");
    let author = TopicAuthor::new(&journal, holder);
    author.append(subject, &journal, &bodies(3));
    let renames = [renamed(number, OLD, NEW)];
    let numbers = TopicChangeRefused::Numbers {
        name: NEW.to_owned(),
        deleted: 3,
        last: 2,
    };
    assert_eq!(topics(&journal).rename(&renames, &[holder]), Err(numbers));
    assert!(topics(&journal).rename(&renames, &[number]).is_err());
    let unknown = TopicNumber::new(99);
    TopicAuthor::new(&journal, number).append(subject, &journal, &bodies(1));
    let refused = topics(&journal).rename(&renames, &[holder, unknown]);
    assert_eq!(refused, Err(TopicChangeRefused::Unknown { topic: unknown }));
    assert_eq!(topics(&journal).number(NEW), Some(holder), "nothing is changed");
    let offset = topics(&journal).rename(&renames, &[holder]);
    subject.settle(&journal, offset.expect("nothing speaks against it"));
    for _ in 0..2 {
        assert_eq!(topics(&journal).number(NEW), Some(number));
        assert_eq!(topics(&journal).summary(holder), None);
        assert_eq!(read_all(&journal, number, 0, 100).len(), 3);
        journal = subject.reopen(journal, JournalConfig::default());
    }
}

fn records_that_are_queued_go_along<S: Subject>(subject: &S) {
    let Some((mut journal, author)) = renaming(subject) else {
        return;
    };
    let number = author.topic;
    let queued = author.queue(&journal, &bodies(3));
    let renamed = topics(&journal).rename(&[renamed(number, OLD, NEW)], &[]);
    let behind = author.queue(&journal, &bodies(2));
    let renamed = renamed.expect("nothing speaks against it");
    assert!(queued <= renamed && renamed <= behind);
    subject.settle(&journal, behind);
    journal = subject.reopen(journal, JournalConfig::default());
    assert_eq!(topics(&journal).number(NEW), Some(number));
    assert_eq!(read_all(&journal, number, 0, 1_000).len(), 5);
    let other = topics(&journal).declare(OLD, TopicRetention::unbounded());
    let author = TopicAuthor::new(&journal, other.expect("the name is free"));
    assert_eq!(author.append(subject, &journal, &bodies(1)), appended(4..=4));
}
