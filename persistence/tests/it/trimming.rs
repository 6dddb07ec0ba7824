//! Runs that are trimmed at their front, in a store: what is left stays small, and nothing goes before the turn
//! that takes its place is durable.

use std::fs;
use std::sync::Arc;

use millrun_core::{Epoch, InstanceId, Sequence};
use millrun_persistence::contract::Author;
use millrun_persistence::{
    Archive, Batch, ImportError, Journal, JournalConfig, MemoryJournal, ReadError, Reads, RedbConfig,
    RedbJournal, SalvageOptions, Trimmed, TurnError, TurnHeader, import, salvage,
};

use crate::crash::disk::SimDisk;
use crate::host::HandHost;

/// Much leaves the log with each commit.
fn config() -> RedbConfig {
    let mut config = RedbConfig::default();
    config.store.dead_bytes_max = 64 << 10;
    config.store.zero_ahead_bytes = 0;
    config
}

fn open(disk: &Arc<SimDisk>, config: RedbConfig) -> (RedbJournal, Arc<HandHost>) {
    let host = HandHost::new();
    let journal = RedbJournal::open_disk(disk.clone(), "trimmed", config, host.clone());
    (journal.unwrap(), host)
}

fn append(journal: &RedbJournal, host: &HandHost, batch: &Batch) {
    assert_eq!(journal.enqueue(batch).unwrap().refused, []);
    host.run();
}

/// A run that takes `turns` turns, of which one in `every` trims it.
fn go_on(journal: &RedbJournal, host: &HandHost, author: &mut Author, turns: usize, every: usize) {
    for turn in 0..turns {
        let (mut batch, body) = (Batch::new(), vec![7; 400]);
        if turn % every == every - 1 {
            author.put_trimming(&mut batch, &[&body, b"checkpoint"]);
        } else {
            author.put(&mut batch, &[&body], false);
        }
        append(journal, host, &batch);
    }
}

#[test]
fn a_trim_takes_place_when_its_turn_is_durable_and_not_before() {
    let disk = SimDisk::new(Vec::new(), 1);
    let (journal, host) = open(&disk, config());
    let mut author = Author::new(&journal, "a", 1);
    append(&journal, &host, &author.batch(&[b"start", b"more"], false));
    let before = author.clone();
    let mut batch = Batch::new();
    author.put_trimming(&mut batch, &[b"checkpoint"]);
    author.put(&mut batch, &[b"behind"], false);
    assert_eq!(journal.enqueue(&batch).unwrap().refused, []);
    before.assert_history(&journal);
    let (crashed, _) = open(&SimDisk::new(disk.current(), 1), config());
    before.assert_history(&crashed);
    host.run();
    author.assert_history(&journal);
    let (crashed, _) = open(&SimDisk::new(disk.current(), 1), config());
    author.assert_history(&crashed);
}

#[test]
fn a_trim_in_memory_takes_place_when_its_turn_is_durable_and_not_before() {
    let journal = MemoryJournal::held(JournalConfig::default()).unwrap();
    let mut author = Author::new(&journal, "a", 1);
    let first = author.batch(&[b"start", b"more"], false);
    assert_eq!(journal.enqueue(&first).unwrap().refused, []);
    journal.commit();
    let before = author.clone();
    let mut batch = Batch::new();
    author.put_trimming(&mut batch, &[b"checkpoint"]);
    author.put(&mut batch, &[b"end"], true);
    assert_eq!(journal.enqueue(&batch).unwrap().refused, []);
    before.assert_history(&journal);
    before.assert_history(&journal.reopened());
    journal.commit();
    assert!(author.assert_history(&journal).is_closed());
    author.assert_history(&journal.reopened());
}

/// The story: a run that made checkpoints for ever stayed quick to wake, and its records stayed in the file, were
/// read at each opening, and were never given back.
#[test]
fn a_run_that_is_trimmed_for_ever_has_a_store_that_does_not_grow() {
    let mut image = Vec::new();
    let (mut author, mut sizes) = (None, Vec::new());
    for life in 0..6 {
        let disk = SimDisk::new(std::mem::take(&mut image), 1);
        let (journal, host) = open(&disk, config());
        let author = author.get_or_insert_with(|| Author::new(&journal, "for ever", 1));
        author.epoch = journal.take_over(&[author.id.partition()]).unwrap();
        host.run();
        let report = journal.recover(&mut [&mut |_| {}], &mut |_| {}).unwrap();
        assert_eq!(report.damaged, []);
        go_on(&journal, &host, author, 1_000, 50);
        let stats = journal.stats();
        sizes.push((stats.log_bytes, stats.file_bytes, report.records, report.bytes));
        author.assert_history(&journal);
        assert_eq!(journal.verify().unwrap().damaged, []);
        assert!(stats.live_bytes < 2_000, "{stats:?}");
        // Every other life ends with a kill.
        if life % 2 == 0 {
            journal.begin_close();
            host.run();
        }
        image = disk.current();
    }
    println!("log, file, records and bytes of each opening: {sizes:?}");
    let most = sizes.iter().map(|(log, ..)| *log).max().unwrap();
    assert!(most < 200 << 10, "{sizes:?}");
    let (_, second, ..) = sizes[1];
    for (_, file, records, bytes) in &sizes[2..] {
        assert!(file <= &(2 * second), "{sizes:?}");
        assert!(*records <= 2 && *bytes < 200 << 10, "{sizes:?}");
    }
}

#[test]
fn verify_and_pages_say_before_which_record_a_run_is_trimmed() {
    let disk = SimDisk::new(Vec::new(), 1);
    let (journal, host) = open(&disk, config());
    let mut trimmed = Author::new(&journal, "trimmed", 1);
    let mut whole = Author::new(&journal, "whole", 2);
    go_on(&journal, &host, &mut trimmed, 300, 30);
    go_on(&journal, &host, &mut whole, 30, usize::MAX);
    let before = Sequence::new(trimmed.trimmed as u64 + 1);
    let verified = journal.verify().unwrap();
    assert_eq!(
        (verified.damaged, verified.trimmed),
        (vec![], vec![(trimmed.run, before)])
    );
    let page = journal.history_page(trimmed.run, Sequence::ZERO, 0).unwrap();
    assert_eq!(page.trimmed, Some(Trimmed::new(before, trimmed.kept().into())));
    let page = journal.history_page(whole.run, Sequence::ZERO, 0).unwrap();
    assert_eq!(page.trimmed, None);
}

/// Some trimmed runs, live and finished, and some that are not, in a store from which much has left the log.
fn some(journal: &RedbJournal, host: &HandHost) -> Vec<Author> {
    let mut authors = Vec::new();
    for number in 0..12 {
        let mut author = Author::new(journal, &format!("run-{number}"), number);
        let every = if number % 3 == 0 { usize::MAX } else { 20 };
        go_on(journal, host, &mut author, 45, every);
        if number % 2 == 0 {
            append(journal, host, &author.batch(&[b"end"], true));
        }
        authors.push(author);
    }
    authors
}

#[test]
fn trimmed_runs_are_exported_imported_and_backed_up() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let disk = SimDisk::new(Vec::new(), 1);
    let (journal, host) = open(&disk, config());
    let authors = some(&journal, &host);
    let exported = journal.export(path("lines")).unwrap();
    assert_eq!((exported.runs, exported.trimmed_runs), (12, 8));
    let imported = import(path("lines"), path("imported"), &config(), &*host).unwrap();
    assert_eq!((imported.runs, imported.trimmed_runs), (12, 8));
    assert_eq!(imported.records, exported.records);
    journal.backup(path("backup")).unwrap();
    for name in ["imported", "backup"] {
        let host = HandHost::new();
        let journal = RedbJournal::open(path(name), config(), host.clone()).unwrap();
        for author in &authors {
            author.assert_history(&journal);
        }
        assert_eq!(journal.verify().unwrap().damaged, []);
        let mut author = authors[1].clone();
        author.epoch = journal.take_over(&[author.id.partition()]).unwrap();
        go_on(&journal, &host, &mut author, 25, 10);
        author.assert_history(&journal);
        journal.begin_close();
        host.run();
    }
}

#[test]
fn lines_of_trimmed_runs_that_make_no_sense_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let disk = SimDisk::new(Vec::new(), 1);
    let (journal, host) = open(&disk, config());
    let mut author = Author::new(&journal, "a", 1);
    go_on(&journal, &host, &mut author, 20, 20);
    journal.export(path("lines")).unwrap();
    let lines = fs::read_to_string(path("lines")).unwrap();
    let wrong = [
        (lines.replace("\"id\":\"a\",", ""), "beside the id"),
        (lines.replace("\"kept\":", "\"other\":"), "unknown field"),
        (
            lines.replace("\"sequence\":20,", "\"sequence\":1,"),
            "begins with record 1",
        ),
    ];
    for (number, (lines, cause)) in wrong.iter().enumerate() {
        fs::write(path("wrong"), lines).unwrap();
        let store = path(&format!("store-{number}"));
        let error = import(path("wrong"), store, &config(), &*host).unwrap_err();
        assert!(matches!(&error, ImportError::Line { line: 2, .. }), "{error}");
        assert!(error.to_string().contains(cause), "{error}");
    }
}

#[test]
fn a_trimmed_run_that_finishes_is_archived_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let disk = SimDisk::new(Vec::new(), 1);
    let mut config = config();
    config.store.archive = Some(Archive::new(folder.path().join("archive")));
    config.journal.retention.len_max = 1;
    let (journal, host) = open(&disk, config.clone());
    let mut authors = Vec::new();
    for number in 0..3 {
        let mut author = Author::new(&journal, &format!("run-{number}"), number);
        go_on(&journal, &host, &mut author, 25, 10);
        append(&journal, &host, &author.batch(&[b"end"], true));
        authors.push(author);
    }
    host.run();
    assert!(journal.stats().archived_runs >= 2);
    let archive = folder.path().join("archive/archive-00000001.ndjson");
    let imported = import(archive, folder.path().join("imported"), &config, &*host).unwrap();
    assert!(
        imported.trimmed_runs >= 2 && imported.parts >= 4 && imported.cut_off <= 1,
        "{imported:?}"
    );
    config.journal.retention.len_max = 10;
    let (host, path) = (HandHost::new(), folder.path().join("imported"));
    let journal = RedbJournal::open(path, config, host).unwrap();
    authors[0].assert_history(&journal);
    authors[1].assert_history(&journal);
}

/// Closes the store, and gives what is left of it.
fn closed(disk: &SimDisk, journal: &RedbJournal, host: &HandHost) -> Vec<u8> {
    journal.begin_close();
    host.run();
    disk.current()
}

#[test]
fn a_salvage_brings_back_trimmed_runs_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let disk = SimDisk::new(Vec::new(), 1);
    let (journal, host) = open(&disk, config());
    let authors = some(&journal, &host);
    fs::write(path("from"), closed(&disk, &journal, &host)).unwrap();
    let options = SalvageOptions::default();
    let report = salvage(path("from"), path("to"), &options, &*host, &mut |_| {}).unwrap();
    assert!(report.is_complete(), "{report:?}");
    let journal = RedbJournal::open(path("to"), config(), HandHost::new()).unwrap();
    for author in &authors {
        author.assert_history(&journal);
    }
    assert_eq!(journal.verify().unwrap().damaged, []);
}

/// Everywhere in the file, the bytes of the records with this body are garbled.
fn garble(image: &mut [u8], body: &[u8]) {
    let found: Vec<_> = (0..image.len() - body.len())
        .filter(|at| image[*at..].starts_with(body))
        .collect();
    assert!(!found.is_empty());
    for at in found {
        image[at] ^= 1;
    }
}

/// The turn that trims is the first that is there. Without it what was trimmed, of which something may still
/// stand in the log, must not pass for the run, nor what follows for the rest of one that was dropped.
#[test]
fn a_run_whose_trimming_turn_is_damaged_is_quarantined_and_not_salvaged() {
    for (turns, has_followers) in [(0, true), (0, false), (600, true), (600, false)] {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let disk = SimDisk::new(Vec::new(), 1);
        let (journal, host) = open(&disk, config());
        let mut author = Author::new(&journal, "a", 1);
        append(&journal, &host, &author.batch(&[b"start"], false));
        // With many turns, what the run was trimmed of has left the log in part.
        go_on(&journal, &host, &mut author, turns, 100);
        go_on(&journal, &host, &mut author, 20, usize::MAX);
        let mut batch = Batch::new();
        author.put_trimming(&mut batch, &[b"the turn that trims it"]);
        append(&journal, &host, &batch);
        if has_followers {
            append(&journal, &host, &author.batch(&[b"behind"], false));
        }
        let mut other = Author::new(&journal, "other", 2);
        append(&journal, &host, &other.batch(&[b"sound"], false));
        let mut image = closed(&disk, &journal, &host);
        garble(&mut image, b"the turn that trims it");
        let (journal, _) = open(&SimDisk::new(image.clone(), 1), config());
        let report = journal.recover(&mut [&mut |_| {}], &mut |_| {}).unwrap();
        let damaged = |error: &ReadError| matches!(error, ReadError::Damaged { run: Some(run), .. } if *run == author.run);
        assert!(report.damaged.iter().any(damaged), "{:?}", report.damaged);
        assert!(damaged(&journal.history(author.run).unwrap_err()));
        assert!(
            damaged(&journal.finished(&author.id).unwrap_err()),
            "its id is taken"
        );
        other.assert_history(&journal);
        fs::write(path("from"), image).unwrap();
        let options = SalvageOptions::default();
        let report = salvage(path("from"), path("to"), &options, &*host, &mut |_| {}).unwrap();
        let lost: Vec<_> = report.not_whole.iter().map(|lost| lost.run).collect();
        assert_eq!((lost, report.live_runs), (vec![author.run], 1), "{report:?}");
    }
}

#[test]
fn a_turn_that_trims_neither_opens_nor_closes_its_run() {
    let id = InstanceId::new("a").unwrap();
    let mut author = Author::new(&MemoryJournal::new(JournalConfig::default()).unwrap(), "a", 1);
    let mut attempt = |head: u64, early: bool, opens: bool, id: &InstanceId, closes: bool| {
        author.head = Sequence::new(head);
        let mut batch = Batch::new();
        let mut turn = batch.turn(TurnHeader {
            run: author.run,
            head: author.head,
            epoch: Epoch::new(1),
            time: author.time,
            opens: opens.then_some(&author.id),
        });
        let body = |bytes: &mut Vec<u8>| {
            bytes.push(1);
            Ok::<_, std::convert::Infallible>(())
        };
        if early {
            turn.record(1, body).unwrap();
        }
        turn.trim(id, b"kept");
        turn.record(2, body).unwrap();
        let outcome = turn.finish(closes);
        assert_eq!(batch.bytes() == 0, outcome.is_err());
        outcome.map(drop)
    };
    let other = (0..)
        .map(|number| InstanceId::new(&format!("other-{number}")).unwrap())
        .find(|other| other.partition() != id.partition())
        .unwrap();
    assert_eq!(attempt(5, false, false, &id, false), Ok(()));
    assert_eq!(attempt(5, true, false, &id, false), Err(TurnError::TrimMismatch));
    assert_eq!(attempt(5, false, false, &id, true), Err(TurnError::TrimMismatch));
    assert_eq!(attempt(0, false, false, &id, false), Err(TurnError::TrimMismatch));
    assert_eq!(attempt(0, false, true, &id, false), Err(TurnError::TrimMismatch));
    assert_eq!(
        attempt(5, false, false, &other, false),
        Err(TurnError::WrongPartition)
    );
}

#[test]
fn what_is_kept_counts_to_the_size_of_a_turn() {
    let mut batch = Batch::with_turn_bytes_max(1_000);
    let journal = MemoryJournal::new(JournalConfig::default()).unwrap();
    let author = Author::new(&journal, "a", 1);
    let mut turn = batch.turn(TurnHeader {
        run: author.run,
        head: Sequence::new(5),
        epoch: Epoch::new(1),
        time: author.time,
        opens: None,
    });
    turn.trim(&author.id, &[7; 2_000]);
    let body = |_: &mut Vec<u8>| Ok::<_, std::convert::Infallible>(());
    turn.record(1, body).unwrap();
    assert!(matches!(
        turn.finish(false),
        Err(TurnError::TooLarge { max: 1_000, .. })
    ));
    assert!(batch.is_empty() && batch.bytes() == 0);
}

/// The turns of a run that were moved out of the log are dead once the run is trimmed within the log. If they were
/// still there when the rest of the run had been dropped, an opening would take them for all of a live run: the
/// run would come back from the dead, and do again what it did long ago.
#[test]
fn a_trimmed_run_that_was_dropped_does_not_come_back_as_it_was_before_the_trim() {
    let mut config = config();
    config.store.dead_bytes_max = 0;
    config.journal.retention.len_max = 1;
    config.store.unsettled_len_max = 1;
    let disk = SimDisk::new(Vec::new(), 1);
    let (journal, host) = open(&disk, config.clone());
    let mut author = Author::new(&journal, "long", 1);
    append(&journal, &host, &author.batch(&[b"start"], false));
    let finish_some = |journal: &RedbJournal, host: &HandHost, from: u64| {
        for number in from..from + 60 {
            let mut other = Author::new(journal, &format!("other-{number}"), number);
            append(journal, host, &other.batch(&[&[7; 2_000], b"end"], true));
        }
    };
    finish_some(&journal, &host, 100);
    assert!(
        journal.stats().log_bytes < 60_000,
        "what is dead has left the log"
    );
    let mut batch = Batch::new();
    author.put_trimming(&mut batch, &[b"checkpoint"]);
    append(&journal, &host, &batch);
    // A kill right behind the trim: nothing of it has been given back.
    let disk = SimDisk::new(disk.current(), 1);
    let (journal, host) = open(&disk, config.clone());
    author.assert_history(&journal);
    author.epoch = journal.take_over(&[author.id.partition()]).unwrap();
    append(&journal, &host, &author.batch(&[b"end"], true));
    finish_some(&journal, &host, 200);
    for image in [disk.current(), closed(&disk, &journal, &host)] {
        let (journal, _) = open(&SimDisk::new(image, 1), config.clone());
        assert_eq!(journal.stats().live_runs, 0);
        let gone = journal.history(author.run).unwrap_err();
        assert!(matches!(
            gone,
            ReadError::UnknownRun { .. } | ReadError::Expired { .. }
        ));
        assert_eq!(journal.verify().unwrap().damaged, []);
    }
}
