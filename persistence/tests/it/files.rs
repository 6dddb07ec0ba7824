//! Opening files: what is refused, with which error, and that it is left as it was.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::{fs, io};

use millrun_persistence::contract::Author;
use millrun_persistence::{
    Disk, FailureKind, FileDisk, Journal, JournalConfig, RedbJournal, StoreConfig, StoreError,
};

use crate::host::{HandHost, ThreadHost};

fn open(path: &Path) -> Result<RedbJournal, StoreError> {
    RedbJournal::open(path, JournalConfig::default(), ThreadHost::new())
}

/// A store with one live run of one record, closed.
fn store(path: &Path) -> Author {
    let journal = open(path).unwrap();
    let mut author = Author::new(&journal, "a", 1);
    let batch = author.batch(&[b"start"], false);
    assert!(journal.enqueue(&batch).unwrap().refused.is_empty());
    journal.close().unwrap();
    author
}

/// Opens `bytes` as a store; returns the error. The bytes must not have changed.
fn refused(bytes: &[u8]) -> StoreError {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.redb");
    fs::write(&path, bytes).unwrap();
    let error = open(&path).expect_err("this is not a sound store");
    assert!(
        fs::read(&path).unwrap() == bytes,
        "a refused file is left as it was"
    );
    error
}

#[test]
fn a_second_journal_gets_already_open_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.redb");
    let first = open(&path).unwrap();
    assert!(matches!(open(&path), Err(StoreError::AlreadyOpen { .. })));
    first.close().unwrap();
    open(&path).unwrap();
}

#[test]
fn a_foreign_file_is_refused_untouched() {
    assert!(matches!(refused(b"hello"), StoreError::Foreign { .. }));
    assert!(matches!(refused(&[b'x'; 10_000]), StoreError::Foreign { .. }));
}

#[test]
fn a_redb_file_of_somebody_else_is_foreign() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("other.redb");
    drop(redb::Database::create(&path).unwrap());
    assert!(matches!(
        refused(&fs::read(&path).unwrap()),
        StoreError::Foreign { .. }
    ));
}

#[test]
fn a_newer_format_is_refused_untouched() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.redb");
    store(&path);
    let mut bytes = fs::read(&path).unwrap();
    bytes[16..20].copy_from_slice(&5_u32.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..32]);
    bytes[32..36].copy_from_slice(&crc.to_le_bytes());
    assert!(matches!(
        refused(&bytes),
        StoreError::NewerFormat {
            found: 5,
            supported: 4,
            ..
        }
    ));
}

#[test]
fn a_lost_first_page_is_corruption_and_not_an_empty_store() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.redb");
    store(&path);
    let mut bytes = fs::read(&path).unwrap();
    bytes[..4_096].fill(0);
    assert!(matches!(refused(&bytes), StoreError::Corrupted { .. }));
    assert!(matches!(refused(&[0; 4_096]), StoreError::Corrupted { .. }));
}

#[test]
fn a_file_that_ends_after_its_first_page_is_corrupted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.redb");
    store(&path);
    let bytes = fs::read(&path).unwrap();
    assert!(matches!(refused(&bytes[..4_096]), StoreError::Corrupted { .. }));
}

#[test]
fn an_empty_file_becomes_a_store() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.redb");
    fs::write(&path, b"").unwrap();
    store(&path);
    open(&path).unwrap();
}

#[test]
fn a_draft_that_a_crash_left_behind_is_made_anew() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.redb");
    fs::write(folder.path().join("a.redb.new"), [7; 5_000]).unwrap();
    store(&path);
    assert!(!folder.path().join("a.redb.new").exists());
}

#[test]
fn a_missing_folder_is_an_io_error() {
    assert!(matches!(
        open(Path::new("/nonexistent/folder/a.redb")),
        Err(StoreError::Io { .. })
    ));
}

#[test]
fn a_bound_of_zero_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = JournalConfig::default();
    config.batch_len_max = 0;
    let error = RedbJournal::open(folder.path().join("a.redb"), config, ThreadHost::new()).unwrap_err();
    assert!(matches!(
        error,
        StoreError::Config {
            field: "batch_len_max",
            ..
        }
    ));
    let mut config = StoreConfig::default();
    config.settle_bytes_max = 0;
    let error = RedbJournal::open(folder.path().join("a.redb"), config, ThreadHost::new()).unwrap_err();
    assert!(matches!(
        error,
        StoreError::Config {
            field: "settle_bytes_max",
            ..
        }
    ));
}

#[test]
fn a_host_that_is_driven_by_hand_closes_without_blocking() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.redb");
    let host = HandHost::new();
    let journal = RedbJournal::open(&path, JournalConfig::default(), host.clone()).unwrap();
    let mut author = Author::new(&journal, "a", 1);
    let offset = journal.enqueue(&author.batch(&[b"start"], false)).unwrap().offset;
    assert!(
        journal.high_watermark() < offset,
        "nothing is durable before the writer has its turn"
    );
    host.run();
    assert!(journal.high_watermark() >= offset);
    let queued = author.batch(&[b"queued"], false);
    assert!(journal.enqueue(&queued).unwrap().refused.is_empty());
    journal.begin_close();
    assert!(!journal.is_closed());
    host.run();
    assert!(journal.is_closed());
    journal.close().unwrap();
    drop(journal);

    let journal = RedbJournal::open(&path, JournalConfig::default(), host).unwrap();
    author.assert_history(&journal);
}

#[test]
fn dropping_a_journal_flushes_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.redb");
    let host = HandHost::new();
    let journal = RedbJournal::open(&path, JournalConfig::default(), host.clone()).unwrap();
    let mut author = Author::new(&journal, "a", 1);
    assert!(
        journal
            .enqueue(&author.batch(&[b"start"], false))
            .unwrap()
            .refused
            .is_empty()
    );
    drop(journal);
    host.run();
    let journal = RedbJournal::open(&path, JournalConfig::default(), host).unwrap();
    author.assert_history(&journal);
}

#[test]
fn a_host_that_ends_the_writer_fails_the_journal() {
    let folder = tempfile::tempdir().unwrap();
    let host = HandHost::new();
    let journal = RedbJournal::open(
        folder.path().join("a.redb"),
        JournalConfig::default(),
        host.clone(),
    )
    .unwrap();
    host.end_parts();
    let failure = journal.take_over(&[]).unwrap_err();
    assert_eq!(failure.kind(), FailureKind::WriterLost);
    assert!(journal.close().is_err());
    assert!(journal.is_closed());
}

/// A disk that asks its journal whether it is closed when it is let go of.
#[derive(Debug)]
struct Asking {
    disk: FileDisk,
    journal: Arc<OnceLock<RedbJournal>>,
    is_closed: Arc<OnceLock<bool>>,
}

impl Drop for Asking {
    fn drop(&mut self) {
        if let Some(journal) = self.journal.get() {
            self.is_closed.set(journal.is_closed()).unwrap();
        }
    }
}

impl Disk for Asking {
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.disk.read(offset, out)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.disk.write(offset, data)
    }

    fn len(&self) -> io::Result<u64> {
        self.disk.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.disk.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.sync()
    }

    fn try_lock(&self) -> io::Result<bool> {
        self.disk.try_lock()
    }
}

/// A caller that is told that the journal is closed may open the file at once.
#[test]
fn a_journal_is_closed_when_its_file_is_free_and_not_before() {
    let folder = tempfile::tempdir().unwrap();
    let host = HandHost::new();
    let (journal, is_closed) = (Arc::new(OnceLock::new()), Arc::new(OnceLock::new()));
    let disk = Arc::new(Asking {
        disk: FileDisk::create(&folder.path().join("a.redb")).unwrap(),
        journal: Arc::clone(&journal),
        is_closed: Arc::clone(&is_closed),
    });
    let opened = RedbJournal::open_disk(disk, "asking", JournalConfig::default(), host.clone()).unwrap();
    assert!(journal.set(opened).is_ok());
    host.end_parts();
    let journal = journal.get().unwrap();
    assert!(!journal.is_closed());
    journal.begin_close();
    assert_eq!(is_closed.get(), Some(&false), "it was let go of here");
    assert!(journal.is_closed());
}
