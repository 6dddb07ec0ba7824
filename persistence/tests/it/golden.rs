//! Stores of every released format are read for ever.
//!
//! `tests/golden/v1/store.pages` is a whole store, kept as its pages that are not zero: each is its
//! index (u32, little-endian) and 4,096 bytes. The file is never written again; a new format gets
//! a new folder. Format 2 has the same frames and pieces, and lists each turn once more; in format 3 runs may be
//! trimmed; format 4 has records of topics.

use std::path::{Path, PathBuf};

use millrun_core::{InstanceId, Sequence};
use millrun_persistence::contract::Author;
use millrun_persistence::{
    Batch, FinishedSearch, Journal, Reads, RedbConfig, RedbJournal, Snapshot, TopicAppend, TopicRecordHeader,
    TopicRetention,
};

use crate::crash::disk::SimDisk;
use crate::host::HandHost;

const PAGE: usize = 4_096;

/// All formats that there have been.
const FORMATS: [u32; 4] = [1, 2, 3, 4];

fn path(format: u32) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/v{format}/store.pages"))
}

/// A store with snapshots and a settled index of finished runs, in the same form.
fn settled_path(format: u32) -> PathBuf {
    path(format).with_file_name("settled.pages")
}

fn pack(image: &[u8]) -> Vec<u8> {
    let mut packed = u32::try_from(image.len() / PAGE).unwrap().to_le_bytes().to_vec();
    for (index, page) in (0_u32..).zip(image.chunks(PAGE)) {
        if page.iter().any(|byte| *byte != 0) {
            packed.extend_from_slice(&index.to_le_bytes());
            packed.extend_from_slice(page);
        }
    }
    packed
}

fn unpack(packed: &[u8]) -> Vec<u8> {
    let word = |bytes: &[u8]| usize::try_from(u32::from_le_bytes(bytes[..4].try_into().unwrap())).unwrap();
    let mut image = vec![0; word(packed) * PAGE];
    for entry in packed[4..].chunks(4 + PAGE) {
        image[word(entry) * PAGE..][..PAGE].copy_from_slice(&entry[4..]);
    }
    image
}

/// The store with a settled index, as it is on disk.
pub(crate) fn settled_image(format: u32) -> Vec<u8> {
    unpack(&std::fs::read(settled_path(format)).unwrap())
}

/// The store as it is on disk.
pub(crate) fn image(format: u32) -> Vec<u8> {
    unpack(&std::fs::read(path(format)).unwrap())
}

/// What the first page of a store says.
fn format_of(image: &[u8]) -> u32 {
    u32::from_le_bytes(image[16..20].try_into().unwrap())
}

/// What was written into the golden store: a live run of three turns, a finished one, and one with
/// large records. From format 3 on the last one is trimmed three times, and from format 4 on each turn of the first one
/// goes with a record of a topic, and another with an id stands by itself.
fn work(journal: &RedbJournal, host: &HandHost, format: u32) -> Vec<Author> {
    let mut authors: Vec<_> = (1..)
        .zip(["live", "finished", "large"])
        .map(|(number, id)| Author::new(journal, id, number))
        .collect();
    let large: Vec<u8> = (0..9_000_u32).map(|at| at.to_le_bytes()[0]).collect();
    for turn in 0..3_u8 {
        let mut batch = Batch::new();
        authors[0].put(&mut batch, &[&[turn], b"and more"], false);
        if turn < 2 {
            authors[1].put(&mut batch, &[&[turn; 200]], turn == 1);
        }
        authors[2].put(&mut batch, &[&large], false);
        if format >= 3 {
            authors[2].put_trimming(&mut batch, &[b"trimmed"]);
        }
        if format >= 4 {
            publish(journal, &authors[0], &mut batch, turn);
        }
        assert!(journal.enqueue(&batch).unwrap().refused.is_empty());
        host.run();
    }
    authors
}

/// What is published with a turn.
fn publish(journal: &RedbJournal, author: &Author, batch: &mut Batch, turn: u8) {
    let topics = journal.topics().unwrap();
    let topic = topics.declare("golden", TopicRetention::default()).unwrap();
    let with = TopicRecordHeader {
        topic,
        partition: author.id.partition(),
        epoch: author.epoch,
        time: author.time,
        id: None,
        with: Some(0),
    };
    batch.topic_record(with, &[&[turn; 3]]).unwrap();
    let (id, with) = (
        Some(u128::from(turn) << 90),
        TopicRecordHeader { with: None, ..with },
    );
    batch
        .topic_record(TopicRecordHeader { id, ..with }, &[b"with an id"])
        .unwrap();
}

/// What was published is there, and known by its ids.
fn assert_published(journal: &RedbJournal, author: &Author) {
    let topics = journal.topics().unwrap();
    let golden = &topics.list()[0];
    assert_eq!(
        (golden.name.as_str(), golden.retention),
        ("golden", TopicRetention::default())
    );
    let page = topics.read(golden.number, Sequence::ZERO, usize::MAX).unwrap();
    let bodies: Vec<_> = page.records().map(|record| record.body.to_vec()).collect();
    let expected = (0..3_u8).flat_map(|turn| [vec![turn; 3], b"with an id".to_vec()]);
    assert!(bodies.into_iter().eq(expected));
    let mut batch = Batch::new();
    let header = TopicRecordHeader {
        topic: golden.number,
        partition: author.id.partition(),
        epoch: author.epoch,
        time: author.time,
        id: Some(2 << 90),
        with: None,
    };
    batch.topic_record(header, &[b"again"]).unwrap();
    let known = [TopicAppend::AlreadyAppended(Sequence::new(6))];
    assert_eq!(journal.enqueue(&batch).unwrap().topic_appends, known);
}

fn fresh(format: u32) -> (std::sync::Arc<SimDisk>, Vec<Author>) {
    let (host, disk) = (HandHost::new(), SimDisk::new(Vec::new(), 1));
    let journal =
        RedbJournal::open_disk(disk.clone(), "golden", RedbConfig::default(), host.clone()).unwrap();
    let authors = work(&journal, &host, format);
    journal.begin_close();
    host.run();
    (disk, authors)
}

#[test]
fn the_stores_of_all_formats_are_read_and_written_to() {
    for format in FORMATS {
        read_and_write(format);
    }
}

fn read_and_write(format: u32) {
    let (_, mut authors) = fresh(format);
    let host = HandHost::new();
    let disk = SimDisk::new(image(format), 1);
    let journal =
        RedbJournal::open_disk(disk.clone(), "golden", RedbConfig::default(), host.clone()).unwrap();
    for author in &authors {
        author.assert_history(&journal);
    }
    let finished = journal
        .finished(&InstanceId::new("finished").unwrap())
        .unwrap()
        .unwrap();
    assert_eq!((finished.run, finished.head), (authors[1].run, Sequence::new(2)));
    let report = journal.recover(&mut [&mut |_| {}], &mut |_| {}).unwrap();
    assert_eq!(
        (report.live_runs, report.finished_runs, report.records),
        (2, 1, if format < 3 { 9 } else { 7 })
    );
    assert_eq!(report.damaged, []);

    // And it is written to as any other; from then on it is one of the present format.
    assert_eq!(format_of(&disk.current()), format);
    authors[0].epoch = journal.take_over(&[authors[0].id.partition()]).unwrap();
    let batch = authors[0].batch(&[b"today"], false);
    assert!(journal.enqueue(&batch).unwrap().refused.is_empty());
    host.run();
    authors[0].assert_history(&journal);
    assert_eq!(format_of(&disk.current()), FORMATS[FORMATS.len() - 1]);
    if format >= 4 {
        assert_published(&journal, &authors[0]);
    }
    journal.begin_close();
    host.run();

    // What both releases have written is read.
    let disk = SimDisk::new(disk.current(), 1);
    let journal = RedbJournal::open_disk(disk, "golden", RedbConfig::default(), host.clone()).unwrap();
    for author in &authors {
        author.assert_history(&journal);
    }
    assert_eq!(journal.verify().unwrap().damaged, []);
}

/// An earlier release can go back to a store that this one has only looked at.
#[test]
fn a_store_of_an_earlier_format_that_is_only_read_keeps_it() {
    let (host, disk) = (HandHost::new(), SimDisk::new(image(1), 1));
    let journal =
        RedbJournal::open_disk(disk.clone(), "golden", RedbConfig::default(), host.clone()).unwrap();
    assert_eq!(journal.verify().unwrap().damaged, []);
    journal.begin_close();
    host.run();
    assert!(journal.is_closed());
    assert_eq!(format_of(&disk.current()), 1);
}

/// A store of forty finished runs, some of them of one instance, and a live one with a snapshot.
fn settled() -> (std::sync::Arc<SimDisk>, Vec<Author>, Snapshot) {
    let (host, disk) = (HandHost::new(), SimDisk::new(Vec::new(), 1));
    let journal = RedbJournal::open_disk(disk.clone(), "golden", settling(), host.clone()).unwrap();
    let mut authors = Vec::new();
    for number in 0..41_u64 {
        let mut author = Author::new(&journal, &format!("id-{}", number.min(30)), number);
        let batch = author.batch(&[&number.to_le_bytes(), b"and more"], number > 0);
        assert!(journal.enqueue(&batch).unwrap().refused.is_empty());
        host.run();
        authors.push(author);
    }
    let snapshot = Snapshot {
        run: authors[0].run,
        sequence: Sequence::new(2),
        bytes: bytes::Bytes::from_static(b"folded"),
    };
    journal.put_snapshot(snapshot.clone()).unwrap();
    journal.begin_close();
    host.run();
    (disk, authors, snapshot)
}

fn settling() -> RedbConfig {
    let mut config = RedbConfig::default();
    config.store.unsettled_len_max = 2;
    config
}

#[test]
fn the_settled_index_and_the_snapshots_of_all_formats_are_read() {
    for format in FORMATS {
        read_settled(settled_image(format));
    }
}

fn read_settled(image: Vec<u8>) {
    let (_, authors, snapshot) = settled();
    let (host, disk) = (HandHost::new(), SimDisk::new(image, 1));
    let journal = RedbJournal::open_disk(disk, "golden", settling(), host).unwrap();
    for author in &authors {
        author.assert_history(&journal);
    }
    let listed = journal.list_finished(None, 100).unwrap();
    let expected: Vec<_> = authors[1..].iter().map(|author| author.run).collect();
    assert_eq!(
        listed.iter().map(|finished| finished.run).collect::<Vec<_>>(),
        expected
    );
    // Stores of earlier releases do not say of which kind the last record of a run is: it is read.
    let mut search = FinishedSearch::new();
    let found = journal.find_finished(&search, 100).unwrap();
    let found: Vec<_> = found
        .runs
        .iter()
        .map(|finished| (finished.run, finished.kind))
        .collect();
    let last_kind = |author: &Author| journal.history(author.run).unwrap().records.last().unwrap().kind;
    let kinds = authors[1..]
        .iter()
        .rev()
        .map(|author| (author.run, last_kind(author)));
    assert!(found.into_iter().eq(kinds));
    search.kinds = [9].into_iter().collect();
    assert_eq!(journal.find_finished(&search, 100).unwrap().runs, []);
    let latest = journal.finished(&authors[35].id).unwrap();
    assert_eq!(latest.map(|finished| finished.run), Some(authors[40].run));
    assert_eq!(journal.snapshot(snapshot.run), Ok(Some(snapshot)));
    let report = journal.recover(&mut [&mut |_| {}], &mut |_| {}).unwrap();
    assert_eq!((report.live_runs, report.finished_runs), (1, 40));
    assert!(!report.is_index_rebuilt, "it is read, not made again");
    assert_eq!(journal.verify().unwrap().damaged, []);
}

#[test]
#[ignore = "writes the golden files of a new format, once"]
fn write_golden_files() {
    let format = FORMATS[FORMATS.len() - 1];
    for (path, disk) in [
        (path(format), fresh(format).0),
        (settled_path(format), settled().0),
    ] {
        assert!(!path.exists(), "golden files are never written again");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let image = disk.current();
        assert_eq!(unpack(&pack(&image)), image);
        std::fs::write(path, pack(&image)).unwrap();
    }
}
