//! Crashes: the file is cut at every byte, a bit of it is flipped, and the process is killed.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use bytes::Bytes;
use millrun_core::{Offset, RunId, Sequence};
use millrun_file_journal::FileJournal;

use crate::SPAWNING;
use millrun_persistence::contract::{Author, Subject};
use millrun_persistence::{Batch, Journal, JournalConfig, ReadError, Reads, Snapshot, StoreError};

/// A journal in one file, which is opened by nobody else.
struct One<'a>(&'a Path);

impl Subject for One<'_> {
    type Journal = FileJournal;

    fn fresh(&self, config: JournalConfig) -> FileJournal {
        crate::opened(self.0, config).unwrap()
    }

    fn reopen(&self, journal: FileJournal, config: JournalConfig) -> FileJournal {
        journal.close().unwrap();
        self.fresh(config)
    }
}

fn open(path: &Path) -> Result<FileJournal, StoreError> {
    crate::opened(path, JournalConfig::default())
}

/// Writes some turns of two runs, one of which ends. Gives their authors, and for each acknowledgement the length
/// of the file, the run, and how many records of it were acknowledged.
fn written(path: &Path) -> (Vec<Author>, Vec<(usize, RunId, usize)>) {
    let subject = One(path);
    let journal = open(path).unwrap();
    let mut authors = vec![
        Author::new(&journal, "first", 1),
        Author::new(&journal, "second", 2),
    ];
    let mut acknowledged = Vec::new();
    for turn in 0..3_u8 {
        for author in &mut authors {
            let closes = turn == 2 && author.id.as_str() == "first";
            author.append(&subject, &journal, &[&[turn; 3], b"\n"], closes);
            let len = fs::metadata(path).unwrap().len();
            acknowledged.push((usize::try_from(len).unwrap(), author.run, author.written.len()));
        }
    }
    journal.close().unwrap();
    (authors, acknowledged)
}

#[test]
fn wherever_the_file_is_cut_what_was_acknowledged_is_found_and_turns_are_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("whole.journal");
    let (authors, acknowledged) = written(&path);
    let bytes = fs::read(&path).unwrap();
    let path = folder.path().join("cut.journal");
    for cut in 0..=bytes.len() {
        fs::write(&path, &bytes[..cut]).unwrap();
        let journal = open(&path).unwrap_or_else(|error| panic!("cut at {cut}: {error}"));
        for author in &authors {
            let before = acknowledged
                .iter()
                .filter(|(len, run, _)| *len <= cut && *run == author.run);
            let expected = before.map(|(_, _, records)| *records).max().unwrap_or(0);
            let found = match journal.history(author.run) {
                Ok(history) => history.records,
                Err(ReadError::UnknownRun { .. }) => Vec::new(),
                Err(error) => panic!("cut at {cut}: {error}"),
            };
            assert!(found.len() >= expected && found.len() % 2 == 0, "cut at {cut}");
            assert!(
                found
                    .iter()
                    .zip(&author.written)
                    .all(|(record, body)| record.body == *body),
                "cut at {cut}"
            );
        }
    }
}

#[test]
fn wherever_the_file_is_cut_all_of_a_group_is_there_or_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("whole.journal");
    let journal = open(&path).unwrap();
    let mut authors = [
        Author::new(&journal, "order", 1),
        Author::new(&journal, "parcel", 2),
    ];
    let mut acknowledged = Vec::new();
    for _ in 0..3 {
        let mut batch = Batch::new();
        let mut group = batch.group();
        for author in &mut authors {
            author.put_grouped(&mut group, &[b"one", b"two"], false);
        }
        group.finish().unwrap();
        let enqueued = journal.enqueue(&batch).unwrap();
        assert_eq!(enqueued.refused, []);
        One(&path).settle(&journal, enqueued.offset);
        acknowledged.push(usize::try_from(fs::metadata(&path).unwrap().len()).unwrap());
    }
    journal.close().unwrap();
    let bytes = fs::read(&path).unwrap();
    let path = folder.path().join("cut.journal");
    for cut in 0..=bytes.len() {
        fs::write(&path, &bytes[..cut]).unwrap();
        let journal = open(&path).unwrap_or_else(|error| panic!("cut at {cut}: {error}"));
        let found = authors
            .each_ref()
            .map(|author| match journal.history(author.run) {
                Ok(history) => history.records.len(),
                Err(ReadError::UnknownRun { .. }) => 0,
                Err(error) => panic!("cut at {cut}: {error}"),
            });
        let least = 2 * acknowledged.iter().filter(|len| **len <= cut).count();
        assert!(
            found[0] == found[1] && found[0] >= least,
            "cut at {cut}: {found:?}, at least {least}"
        );
    }
}

#[test]
fn what_a_cut_has_left_is_written_on_and_found_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let (mut authors, acknowledged) = written(&path);
    let bytes = fs::read(&path).unwrap();
    // The last turn, of the second run, is cut in two.
    let (before_last, _, _) = acknowledged[acknowledged.len() - 2];
    fs::write(&path, &bytes[..before_last + 30]).unwrap();
    let second = &mut authors[1];
    second.head = Sequence::new(second.head.get() - 2);
    second.written.truncate(second.written.len() - 2);
    for turn in 0..3_u8 {
        let journal = open(&path).unwrap();
        let second = &mut authors[1];
        second.epoch = journal.take_over(&[second.id.partition()]).unwrap();
        second.append(&One(&path), &journal, &[&[turn], b"and on"], false);
        for author in &authors {
            author.assert_history(&journal);
        }
    }
}

#[test]
fn a_flipped_bit_before_the_last_line_is_refused_and_the_file_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let (_, acknowledged) = written(&path);
    let bytes = fs::read(&path).unwrap();
    let (last_line, _, _) = acknowledged[acknowledged.len() - 2];
    for at in 0..last_line {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        fs::write(&path, &damaged).unwrap();
        match open(&path) {
            Err(StoreError::Corrupted { cause, .. }) => assert!(cause.starts_with("line "), "{cause}"),
            other => panic!("bit {} of byte {at}: {other:?}", at % 8),
        }
        assert_eq!(fs::read(&path).unwrap(), damaged);
    }
}

#[test]
fn a_journal_that_is_open_is_not_opened_twice() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let journal = open(&path).unwrap();
    assert!(matches!(open(&path), Err(StoreError::AlreadyOpen { .. })));
    drop(journal);
    open(&path).unwrap();
}

#[test]
fn an_opening_writes_only_what_is_still_needed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let mut config = JournalConfig::default();
    config.retention.len_max = 2;
    let journal = crate::opened(&path, config.clone()).unwrap();
    let mut live = Author::new(&journal, "live", 999);
    live.append(&One(&path), &journal, &[b"stays"], false);
    let snapshot = Snapshot {
        run: live.run,
        sequence: live.head,
        bytes: Bytes::from_static(b"folded"),
    };
    journal.put_snapshot(snapshot.clone()).unwrap();
    let mut offset = Offset::ZERO;
    for number in 0..50 {
        let mut author = Author::new(&journal, &format!("run-{number}"), number);
        offset = author.append(&One(&path), &journal, &[&[7; 1_000]], true);
    }
    assert!(journal.high_watermark() >= offset);
    drop(journal);
    let before = fs::metadata(&path).unwrap().len();
    let journal = crate::opened(&path, config).unwrap();
    assert!(fs::metadata(&path).unwrap().len() < before / 10);
    assert_eq!(journal.stats().finished_runs, 2);
    live.assert_history(&journal);
    assert_eq!(journal.snapshot(live.run), Ok(Some(snapshot)));
}

const STORE: &str = "MILLRUN_TEST_FILE_JOURNAL";

/// The child's work: it appends until it is killed, and says what was acknowledged.
#[test]
fn child_of_the_kill_test() {
    let Ok(path) = std::env::var(STORE) else {
        // Run as an ordinary test, there is nothing to do.
        return;
    };
    let path = Path::new(&path);
    let journal = open(path).unwrap();
    let mut author = Author::new(&journal, "killed", 1);
    author.head = journal
        .history(author.run)
        .map_or(Sequence::ZERO, |history| history.head());
    loop {
        let body = author.head.get().to_le_bytes();
        author.append(&One(path), &journal, &[&body], false);
        let mut out = std::io::stdout().lock();
        out.write_all(format!("acknowledged {}\n", author.head).as_bytes())
            .unwrap();
        out.flush().unwrap();
    }
}

#[test]
fn nothing_acknowledged_is_missing_after_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let mut acknowledged = 0;
    for kill in 1..=5 {
        let spawning = SPAWNING.write().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash::child_of_the_kill_test", "--nocapture"])
            .env(STORE, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        drop(spawning);
        let lines = BufReader::new(child.stdout.take().unwrap())
            .lines()
            .map(Result::unwrap);
        let mut said = lines.filter_map(|line| line.strip_prefix("acknowledged ")?.parse::<usize>().ok());
        let target = acknowledged + 20 * kill;
        let reached = said.by_ref().find(|head| *head >= target).unwrap();
        child.kill().unwrap();
        acknowledged = said.last().unwrap_or(reached);
        child.wait().unwrap();
        let journal = open(&path).unwrap();
        let author = Author::new(&journal, "killed", 1);
        let history = journal.history(author.run).unwrap();
        assert!(
            history.records.len() >= acknowledged,
            "kill {kill}: {acknowledged}"
        );
        for (number, record) in (0_u64..).zip(&history.records) {
            assert_eq!(record.body[..], number.to_le_bytes());
        }
    }
}
