//! The file of an open store is deleted, moved, replaced or cut at each access of a fixed workload.
//!
//! An operator had copied a backup over the path of a store that was open, and another had deleted the file:
//! 500 of 500 further runs were acknowledged, into a file that nobody could open any more, and the journal
//! closed without an error. Nothing had looked at the path after the opening.
//!
//! After the access nothing more may be acknowledged, whether or not anything else is written, and the cause
//! is typed.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use millrun_persistence::{
    Disk, FailureKind, FileDisk, FileLoss, Journal, JournalFailure, RedbConfig, RedbJournal, StoreError,
};

use super::disk::Dice;
use super::workload::Record;
use crate::host::HandHost;

/// What is done to the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Delete,
    Rename,
    MoveFolder,
    Replace,
    Empty,
    Shorten,
}

const DEEDS: [Deed; 6] = [
    Deed::Delete,
    Deed::Rename,
    Deed::MoveFolder,
    Deed::Replace,
    Deed::Empty,
    Deed::Shorten,
];

impl Deed {
    fn expected(self) -> FailureKind {
        match self {
            Self::Delete | Self::Rename | Self::MoveFolder => FailureKind::FileGone,
            Self::Replace => FailureKind::FileReplaced,
            Self::Empty | Self::Shorten => FailureKind::FileTruncated,
        }
    }

    fn perform(self, path: &Path) {
        let cut = |len: u64| {
            let file = OpenOptions::new().write(true).open(path).unwrap();
            file.set_len(len).unwrap();
        };
        match self {
            Self::Delete => fs::remove_file(path).unwrap(),
            Self::Rename => fs::rename(path, path.with_extension("old")).unwrap(),
            Self::MoveFolder => {
                let folder = path.parent().unwrap();
                fs::rename(folder, folder.with_extension("old")).unwrap();
            }
            Self::Replace => {
                let other = path.with_extension("copy");
                fs::copy(path, &other).unwrap();
                fs::rename(other, path).unwrap();
            }
            Self::Empty => cut(0),
            Self::Shorten => cut(fs::metadata(path).unwrap().len() - 1),
        }
    }
}

/// A real file, to which something is done right before the access `at`. It is never synced: nothing crashes.
#[derive(Debug)]
struct Meddled {
    file: FileDisk,
    path: PathBuf,
    deed: Deed,
    at: u64,
    accesses: AtomicU64,
}

impl Meddled {
    fn new(folder: &Path, deed: Deed, at: u64) -> Arc<Self> {
        let folder = folder.join("store");
        fs::create_dir(&folder).unwrap();
        let path = folder.join("a.redb");
        fs::write(&path, empty_store()).unwrap();
        Arc::new(Self {
            file: FileDisk::open(&path).unwrap(),
            path,
            deed,
            at,
            accesses: AtomicU64::new(0),
        })
    }

    fn access(&self) {
        if self.accesses.fetch_add(1, Ordering::SeqCst) == self.at {
            self.deed.perform(&self.path);
        }
    }

    fn is_taken(&self) -> bool {
        self.accesses.load(Ordering::SeqCst) > self.at
    }
}

impl Disk for Meddled {
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.access();
        self.file.read(offset, out)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.access();
        self.file.write(offset, data)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.access();
        self.file.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.access();
        Ok(())
    }

    fn try_lock(&self) -> io::Result<bool> {
        self.file.try_lock()
    }

    fn can_be_lost(&self) -> bool {
        self.file.can_be_lost()
    }

    fn loss(&self) -> io::Result<Option<FileLoss>> {
        self.file.loss()
    }
}

/// A store that was opened once, and closed.
fn empty_store() -> &'static [u8] {
    static STORE: OnceLock<Vec<u8>> = OnceLock::new();
    STORE.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let (path, host) = (folder.path().join("a.redb"), HandHost::new());
        let journal = RedbJournal::open(&path, RedbConfig::default(), host.clone()).unwrap();
        assert_eq!(close(&journal, &host), None);
        fs::read(&path).unwrap()
    })
}

fn open(disk: &Arc<Meddled>, host: &Arc<HandHost>) -> Result<RedbJournal, StoreError> {
    let mut config = RedbConfig::default();
    config.store.zero_ahead_bytes = 64 << 10;
    config.store.dead_bytes_max = 0;
    config.store.unsettled_len_max = 1;
    RedbJournal::open_disk(disk.clone(), "meddled", config, host.clone())
}

/// Closes a journal, and says whether that went well.
fn close(journal: &RedbJournal, host: &HandHost) -> Option<JournalFailure> {
    journal.begin_close();
    host.run();
    assert!(journal.is_closed());
    let failure = journal.failure();
    failure.filter(|failure| failure.kind() != FailureKind::Closed)
}

/// Works until the file was taken, and a little longer. Returns how many accesses there were.
fn check(deed: Deed, at: u64) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let disk = Meddled::new(folder.path(), deed, at);
    let host = HandHost::new();
    // One that is taken while it is opened may be refused.
    let Ok(journal) = open(&disk, &host) else {
        assert!(disk.is_taken());
        return disk.accesses.load(Ordering::SeqCst);
    };
    let mut record = Record::new();
    record.resume(&journal, 0);
    let (mut dice, mut before) = (Dice::new(7), None);
    for _ in 0..12 {
        record.enqueue(&journal, &mut dice);
        loop {
            if !disk.is_taken() {
                before = Some(record.acknowledged(&journal));
            }
            if !host.step() {
                break;
            }
        }
    }
    if disk.is_taken() {
        let failure = journal
            .failure()
            .unwrap_or_else(|| panic!("{deed:?} at {at}: nothing noticed"));
        // Something that cannot be read is noticed before the file is looked at, while the store is opened.
        assert_eq!(failure.kind(), deed.expected(), "{deed:?} at {at}: {failure}");
        let after = record.acknowledged(&journal);
        assert!(
            before.is_none_or(|before| after == before),
            "{deed:?} at {at}: {before:?} and then {after} were acknowledged"
        );
        assert_eq!(close(&journal, &host), Some(failure), "{deed:?} at {at}");
    } else {
        // Closing makes accesses of its own.
        let failure = close(&journal, &host);
        assert!(
            failure.is_none() || disk.is_taken(),
            "{deed:?} at {at}: {failure:?}"
        );
    }
    host.end_parts();
    disk.accesses.load(Ordering::SeqCst)
}

#[test]
fn whatever_is_done_to_the_file_at_any_access_nothing_is_acknowledged_after_it() {
    let accesses = check(Deed::Delete, u64::MAX);
    assert!(accesses > 50, "the workload makes {accesses} accesses");
    for deed in DEEDS {
        for at in 0..accesses {
            check(deed, at);
        }
    }
}

/// Opens the store in a folder of its own, and has one record of it acknowledged.
fn begin(path: &Path, host: &Arc<HandHost>) -> (RedbJournal, Record) {
    fs::create_dir(path.parent().unwrap()).unwrap();
    let journal = RedbJournal::open(path, RedbConfig::default(), host.clone()).unwrap();
    let mut record = Record::new();
    record.resume(&journal, 0);
    assert!(record.enqueue(&journal, &mut Dice::new(3)));
    host.run();
    assert_eq!(record.acknowledged(&journal), 1);
    (journal, record)
}

#[test]
fn an_idle_journal_notices_within_a_second() {
    for deed in DEEDS {
        let folder = tempfile::tempdir().unwrap();
        let (path, host) = (folder.path().join("store").join("a.redb"), HandHost::new());
        let (journal, _) = begin(&path, &host);
        for _ in 0..5 {
            host.advance(Duration::from_secs(1));
            host.run();
            assert_eq!(journal.failure(), None);
        }
        deed.perform(&path);
        host.advance(Duration::from_secs(1));
        host.run();
        let failure = journal.failure().unwrap();
        assert_eq!(failure.kind(), deed.expected(), "{failure}");
        assert!(failure.to_string().contains("a.redb was "), "{failure}");
        assert_eq!(close(&journal, &host), Some(failure));
    }
}

#[test]
fn a_journal_that_is_closed_right_afterwards_says_what_was_done_to_its_file() {
    for deed in DEEDS {
        let folder = tempfile::tempdir().unwrap();
        let (path, host) = (folder.path().join("store").join("a.redb"), HandHost::new());
        let (journal, _) = begin(&path, &host);
        deed.perform(&path);
        let failure = close(&journal, &host).unwrap();
        assert_eq!(failure.kind(), deed.expected(), "{failure}");
    }
}

#[test]
fn one_that_was_moved_is_as_it_was_where_it_is_now() {
    let folder = tempfile::tempdir().unwrap();
    let (path, host) = (folder.path().join("store").join("a.redb"), HandHost::new());
    let (journal, record) = begin(&path, &host);
    Deed::Rename.perform(&path);
    assert!(close(&journal, &host).is_some());
    drop(journal);
    let reopened = RedbJournal::open(path.with_extension("old"), RedbConfig::default(), host).unwrap();
    record.check(&reopened, 1).unwrap();
}

#[test]
fn another_name_of_the_file_does_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    let (path, host) = (folder.path().join("store").join("a.redb"), HandHost::new());
    let (journal, mut record) = begin(&path, &host);
    fs::hard_link(&path, path.with_extension("link")).unwrap();
    host.advance(Duration::from_secs(1));
    assert!(record.enqueue(&journal, &mut Dice::new(4)));
    host.run();
    assert_eq!(record.acknowledged(&journal), 2);
    assert_eq!(close(&journal, &host), None);
}

#[test]
fn one_that_is_not_to_be_looked_at_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.redb");
    let host = HandHost::new();
    let mut config = RedbConfig::default();
    config.store.file_check_every = Duration::ZERO;
    let journal = RedbJournal::open(&path, config, host.clone()).unwrap();
    host.run();
    Deed::Rename.perform(&path);
    host.advance(Duration::from_secs(60));
    host.run();
    assert_eq!(close(&journal, &host), None);
}
