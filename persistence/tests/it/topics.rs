//! What the store in a file does with topics beyond the contract: copies, checks, damage, and one that is behind.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use millrun_core::{Epoch, Partition, Sequence, Timestamp};
use millrun_persistence::{
    Batch, Journal, LatestRecords, ReadError, RedbConfig, RedbJournal, TopicAppend, TopicNumber,
    TopicRecordHeader, TopicRefused, TopicRetention, TopicStreams,
};

use crate::host::HandHost;

const START: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

fn open(path: &Path, host: &Arc<HandHost>) -> RedbJournal {
    RedbJournal::open(path, RedbConfig::default(), host.clone()).unwrap()
}

fn streams(journal: &RedbJournal) -> &dyn TopicStreams {
    journal.topics().unwrap()
}

/// Appends records in one commit, with these ids if they have some.
fn append_at(
    (journal, host): (&RedbJournal, &HandHost),
    topic: TopicNumber,
    time: Timestamp,
    bodies: &[(Vec<u8>, Option<u128>)],
) -> Vec<TopicAppend> {
    let partition = Partition::of(b"topics");
    let epoch: Epoch = journal.take_over(&[partition]).unwrap();
    let mut batch = Batch::new();
    for (body, id) in bodies {
        let header = TopicRecordHeader {
            topic,
            partition,
            epoch,
            time,
            id: *id,
            with: None,
        };
        batch.topic_record(header, &[body]).unwrap();
    }
    let enqueued = journal.enqueue(&batch).unwrap();
    host.run();
    enqueued.topic_appends
}

fn append(
    of: (&RedbJournal, &HandHost),
    topic: TopicNumber,
    bodies: &[(Vec<u8>, Option<u128>)],
) -> Vec<TopicAppend> {
    append_at(of, topic, START, bodies)
}

fn read(journal: &RedbJournal, topic: TopicNumber) -> Vec<Vec<u8>> {
    let page = streams(journal).read(topic, Sequence::ZERO, usize::MAX).unwrap();
    page.records().map(|record| record.body.to_vec()).collect()
}

fn numbered(count: u8) -> Vec<(Vec<u8>, Option<u128>)> {
    (0..count)
        .map(|at| (format!("the body of record {at:03}").into_bytes(), None))
        .collect()
}

#[test]
fn a_backup_has_the_topics_with_their_records_and_ids() {
    let (folder, host) = (tempfile::tempdir().unwrap(), HandHost::new());
    let (path, copy) = (folder.path().join("a.redb"), folder.path().join("b.redb"));
    let journal = open(&path, &host);
    let topic = streams(&journal)
        .declare("one", TopicRetention::default())
        .unwrap();
    append((&journal, &host), topic, &numbered(40));
    append((&journal, &host), topic, &[(vec![7; 200_000], Some(5))]);
    let verified = journal.verify().unwrap();
    assert_eq!((verified.topic_records, verified.damaged), (41, Vec::new()));
    journal.backup(&copy).unwrap();
    let restored = open(&copy, &host);
    assert_eq!(streams(&restored).list(), streams(&journal).list());
    assert_eq!(read(&restored, topic), read(&journal, topic));
    assert_eq!(read(&restored, topic).len(), 41);
    assert_eq!(restored.verify().unwrap().topic_records, 41);
    let again = append((&restored, &host), topic, &[(b"again".to_vec(), Some(5))]);
    assert_eq!(again, [TopicAppend::AlreadyAppended(Sequence::new(41))]);
    assert_ne!(
        streams(&restored).store_number(),
        streams(&journal).store_number()
    );
    let number = streams(&journal).store_number();
    journal.begin_close();
    host.run();
    drop(journal);
    assert_eq!(
        streams(&open(&path, &host)).store_number(),
        number,
        "a store keeps its number"
    );
}

#[test]
fn a_damaged_record_is_told_and_those_behind_its_row_are_read() {
    let (folder, host) = (tempfile::tempdir().unwrap(), HandHost::new());
    let path = folder.path().join("a.redb");
    let journal = open(&path, &host);
    let topic = streams(&journal)
        .declare("one", TopicRetention::default())
        .unwrap();
    let bodies = numbered(30);
    for row in bodies.chunks(10) {
        append((&journal, &host), topic, row);
    }
    journal.begin_close();
    host.run();
    drop(journal);
    let mut image = fs::read(&path).unwrap();
    let body = &bodies[14].0;
    let found: Vec<_> = (0..image.len() - body.len())
        .filter(|at| image[*at..].starts_with(body))
        .collect();
    assert!(!found.is_empty());
    for at in found {
        image[at] ^= 0x20;
    }
    fs::write(&path, image).unwrap();
    let journal = open(&path, &host);
    let first = streams(&journal).read(topic, Sequence::ZERO, usize::MAX).unwrap();
    assert_eq!((first.records().count(), first.last()), (10, Sequence::new(10)));
    let damaged = streams(&journal).read(topic, first.last(), usize::MAX);
    let Err(ReadError::TopicDamaged { after, until, .. }) = &damaged else {
        panic!("{damaged:?}");
    };
    assert_eq!((*after, *until), (Sequence::new(10), Sequence::new(20)));
    let last = streams(&journal).read(topic, *until, usize::MAX).unwrap();
    assert_eq!((last.records().count(), last.last()), (10, Sequence::new(30)));
    let verified = journal.verify().unwrap();
    assert_eq!(
        (verified.topic_records, verified.damaged),
        (20, vec![damaged.unwrap_err()])
    );
    // What follows has the numbers that it would have had.
    assert_eq!(
        append((&journal, &host), topic, &numbered(1)),
        [TopicAppend::Appended(Sequence::new(31))]
    );
}

#[test]
fn what_does_not_fit_into_memory_is_read_from_the_disk() {
    let (folder, host) = (tempfile::tempdir().unwrap(), HandHost::new());
    let mut config = RedbConfig::default();
    config.journal.topic_latest_bytes_max = 10_000;
    let journal = RedbJournal::open(folder.path().join("a.redb"), config, host.clone()).unwrap();
    let declare = |name| {
        streams(&journal)
            .declare(name, TopicRetention::default())
            .unwrap()
    };
    let (busy, quiet) = (declare("busy"), declare("quiet"));
    append((&journal, &host), quiet, &numbered(1));
    for _ in 0..50 {
        append((&journal, &host), busy, &[(vec![7; 1_000], None)]);
    }
    let latest = |topic, after| {
        streams(&journal)
            .latest(topic, Sequence::new(after), usize::MAX)
            .unwrap()
    };
    assert_eq!(latest(busy, 0), LatestRecords::Ask);
    assert_eq!(
        latest(quiet, 0),
        LatestRecords::Ask,
        "what is earliest goes, of whichever topic it is"
    );
    let LatestRecords::Page(page) = latest(busy, 46) else {
        panic!()
    };
    assert_eq!(page.records().count(), 4);
    let LatestRecords::Page(page) = latest(quiet, 1) else {
        panic!()
    };
    assert_eq!(
        page.records().count(),
        0,
        "there is nothing behind it, which is known"
    );
    assert_eq!((read(&journal, busy).len(), read(&journal, quiet).len()), (50, 1));
}

/// The store believes a clock that jumps ahead by six hours only; the records have the times of their writers.
#[test]
fn a_record_is_found_by_the_time_of_its_writer_also_where_the_store_does_not_believe_it() {
    let (folder, host) = (tempfile::tempdir().unwrap(), HandHost::new());
    let journal = open(&folder.path().join("a.redb"), &host);
    let topic = streams(&journal)
        .declare("one", TopicRetention::default())
        .unwrap();
    let hours = |hours: u64| START + Duration::from_secs(3_600 * hours);
    for at in [0, 10, 20] {
        append_at((&journal, &host), topic, hours(at), &numbered(2));
    }
    for (at, behind) in [(0, 0), (9, 2), (10, 2), (19, 4), (21, 6)] {
        let found = streams(&journal).at_time(topic, hours(at)).unwrap();
        assert_eq!(found, Sequence::new(behind), "{at} h");
    }
}

#[test]
fn a_topic_whose_last_row_cannot_be_read_tells_that_once_and_goes_on() {
    let (folder, host) = (tempfile::tempdir().unwrap(), HandHost::new());
    let path = folder.path().join("a.redb");
    let journal = open(&path, &host);
    let topic = streams(&journal)
        .declare("one", TopicRetention::default())
        .unwrap();
    append((&journal, &host), topic, &numbered(3));
    append(
        (&journal, &host),
        topic,
        &[(b"the only body of the last row".to_vec(), None)],
    );
    journal.begin_close();
    host.run();
    drop(journal);
    let mut image = fs::read(&path).unwrap();
    let body = b"the only body of the last row";
    let found: Vec<_> = (0..image.len() - body.len())
        .filter(|at| image[*at..].starts_with(body))
        .collect();
    assert!(!found.is_empty());
    for at in found {
        // In the row's header, which has 28 bytes, behind which the record's has 20.
        image[at - 40] ^= 1;
    }
    fs::write(&path, image).unwrap();
    let journal = open(&path, &host);
    let first = streams(&journal).read(topic, Sequence::ZERO, usize::MAX).unwrap();
    assert_eq!(first.last(), Sequence::new(3));
    let damaged = streams(&journal).read(topic, first.last(), usize::MAX);
    let Err(ReadError::TopicDamaged { until, .. }) = damaged else {
        panic!("{damaged:?}");
    };
    let last = streams(&journal).summary(topic).unwrap().last;
    assert_eq!(until, last, "there is nothing further");
    let appended = append((&journal, &host), topic, &numbered(1));
    assert_eq!(appended, [TopicAppend::Appended(last.next())]);
    let page = streams(&journal).read(topic, until, usize::MAX).unwrap();
    assert_eq!((page.records().count(), page.last()), (1, last.next()));
}

#[test]
fn a_topic_whose_name_is_lost_leaves_the_others_as_they_are_and_is_never_taken_for_a_new_one() {
    let (folder, host) = (tempfile::tempdir().unwrap(), HandHost::new());
    let path = folder.path().join("a.redb");
    let unbounded = TopicRetention::unbounded();
    let journal = open(&path, &host);
    let numbers = ["the first of all", "hit by damage", "at the very end"].map(|name| {
        let topic = streams(&journal).declare(name, unbounded).unwrap();
        append((&journal, &host), topic, &numbered(3));
        topic
    });
    journal.begin_close();
    host.run();
    drop(journal);
    let sound = fs::read(&path).unwrap();
    for (hit, others) in [
        ("hit by damage", ["the first of all", "at the very end"]),
        ("at the very end", ["the first of all", "hit by damage"]),
    ] {
        let mut image = sound.clone();
        let found: Vec<_> = (0..image.len() - hit.len())
            .filter(|at| image[*at..].starts_with(hit.as_bytes()))
            .collect();
        assert!(!found.is_empty());
        for at in found {
            image[at] ^= 0x20;
        }
        fs::write(&path, image).unwrap();
        let journal = open(&path, &host);
        for name in others {
            let topic = streams(&journal).declare(name, unbounded).unwrap();
            assert_eq!(read(&journal, topic).len(), 3, "{name}");
            let appended = append((&journal, &host), topic, &numbered(1));
            assert_eq!(appended, [TopicAppend::Appended(Sequence::new(4))]);
        }
        for name in [hit, "another"] {
            let refused = streams(&journal).declare(name, unbounded);
            let Err(TopicRefused::NameLost { topic, .. }) = &refused else {
                panic!("{refused:?}");
            };
            assert!(numbers.contains(topic));
        }
        let verified = journal.verify().unwrap();
        assert_eq!(verified.topic_records, 11);
        let [ReadError::Damaged { cause, .. }] = &verified.damaged[..] else {
            panic!("{:?}", verified.damaged);
        };
        assert!(cause.contains("missing or damaged"), "{cause}");
        journal.begin_close();
        host.run();
        drop(journal);
        // Nor does a later opening take it for another.
        let journal = open(&path, &host);
        assert!(streams(&journal).declare(hit, unbounded).is_err());
        journal.begin_close();
        host.run();
    }
}

/// A store whose process ends without a word keeps of a purge and a deletion what was said to be durable.
#[test]
fn a_crash_leaves_a_purge_or_a_deletion_whole_or_undone() {
    let all = TopicRetention::unbounded();
    for is_durable in [false, true] {
        let (folder, host) = (tempfile::tempdir().unwrap(), HandHost::new());
        let path = folder.path().join("a.redb");
        let journal = open(&path, &host);
        let purged = streams(&journal).declare("purged", all).unwrap();
        let deleted = streams(&journal).declare("deleted", all).unwrap();
        for topic in [purged, deleted] {
            append((&journal, &host), topic, &numbered(10));
        }
        let purge = streams(&journal).purge(purged, Sequence::new(4)).unwrap();
        let offset = streams(&journal).delete(&[deleted]).unwrap();
        assert!(purge.offset <= offset && journal.high_watermark() < purge.offset);
        if is_durable {
            host.run();
            assert!(journal.high_watermark() >= offset);
        }
        let image = fs::read(&path).unwrap();
        let again = folder.path().join("b.redb");
        fs::write(&again, image).unwrap();
        let found = open(&again, &host);
        let list = streams(&found).list();
        let names: Vec<_> = list
            .iter()
            .map(|topic| (topic.name.as_str(), topic.first.get(), topic.last.get()))
            .collect();
        let expected = if is_durable {
            vec![("purged", 5, 10)]
        } else {
            vec![("purged", 1, 10), ("deleted", 1, 10)]
        };
        assert_eq!(names, expected);
        assert_eq!(read(&found, purged).len(), if is_durable { 6 } else { 10 });
        assert_eq!(found.verify().unwrap().damaged, Vec::new());
    }
}

/// More rows than one commit drops.
#[test]
fn rows_of_a_purge_that_a_crash_cuts_off_go_with_later_commits() {
    let (folder, host) = (tempfile::tempdir().unwrap(), HandHost::new());
    let path = folder.path().join("a.redb");
    let journal = open(&path, &host);
    let unbounded = TopicRetention::unbounded();
    let topic = streams(&journal).declare("one", unbounded).unwrap();
    for _ in 0..600 {
        append((&journal, &host), topic, &numbered(1));
    }
    streams(&journal).purge(topic, Sequence::new(599)).unwrap();
    host.run();
    let left = journal.stats().topic_bytes;
    assert!(left > 0, "one commit does not drop 599 rows");
    let image = fs::read(&path).unwrap();
    let again = folder.path().join("b.redb");
    fs::write(&again, image).unwrap();
    let found = open(&again, &host);
    assert_eq!(found.stats().topic_bytes, left);
    assert_eq!(read(&found, topic).len(), 1);
    let appended = append((&found, &host), topic, &numbered(1));
    assert_eq!(appended, [TopicAppend::Appended(Sequence::new(601))]);
    found.upkeep(START, millrun_core::Bell::new());
    host.run();
    let summary = streams(&found).summary(topic).unwrap();
    assert_eq!(
        (summary.first, summary.last),
        (Sequence::new(600), Sequence::new(601))
    );
    assert_eq!(found.stats().topic_bytes, summary.bytes);
    assert_eq!(read(&found, topic).len(), 2);
    assert_eq!(found.verify().unwrap().damaged, Vec::new());
}
