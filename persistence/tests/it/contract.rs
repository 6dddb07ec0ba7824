//! The contract suite against the journals of this crate.

use std::cell::RefCell;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millrun_persistence::contract::{self, Subject};
use millrun_persistence::{
    Disk, FailureKind, FileDisk, Journal, JournalConfig, MemoryJournal, RedbConfig, RedbJournal, StoreConfig,
};

use crate::host::ThreadHost;

struct Memory;

impl Subject for Memory {
    type Journal = MemoryJournal;

    fn fresh(&self, config: JournalConfig) -> MemoryJournal {
        MemoryJournal::new(config).unwrap()
    }

    fn reopen(&self, journal: MemoryJournal, _config: JournalConfig) -> MemoryJournal {
        journal.close().unwrap();
        journal.reopened()
    }

    fn breakable(&self, config: JournalConfig) -> Option<MemoryJournal> {
        Some(self.fresh(config))
    }

    fn break_down(&self, journal: &MemoryJournal) {
        journal.fail(FailureKind::Io(io::ErrorKind::Other), "broken as told");
    }
}

/// A file that can be told to take nothing any more.
#[derive(Debug)]
struct Breakable {
    file: FileDisk,
    is_broken: Arc<AtomicBool>,
}

impl Breakable {
    fn check(&self) -> io::Result<()> {
        match self.is_broken.load(Ordering::SeqCst) {
            true => Err(io::Error::other("broken as told")),
            false => Ok(()),
        }
    }
}

impl Disk for Breakable {
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check()?;
        self.file.write(offset, data)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.check()?;
        self.file.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.check()?;
        self.file.sync()
    }

    fn try_lock(&self) -> io::Result<bool> {
        self.file.try_lock()
    }
}

struct Redb {
    store: StoreConfig,
    folder: tempfile::TempDir,
    count: std::cell::Cell<u32>,
    /// Of the disk of the last breakable store.
    is_broken: RefCell<Arc<AtomicBool>>,
}

impl Redb {
    fn path(&self) -> PathBuf {
        self.folder.path().join(format!("{}.redb", self.count.get()))
    }

    fn open(&self, config: JournalConfig) -> RedbJournal {
        let config = RedbConfig::from((config, self.store.clone()));
        RedbJournal::open(self.path(), config, ThreadHost::new()).unwrap()
    }
}

impl Subject for Redb {
    type Journal = RedbJournal;

    fn fresh(&self, config: JournalConfig) -> RedbJournal {
        self.count.set(self.count.get() + 1);
        self.open(config)
    }

    fn reopen(&self, journal: RedbJournal, config: JournalConfig) -> RedbJournal {
        journal.close().unwrap();
        self.open(config)
    }

    fn breakable(&self, config: JournalConfig) -> Option<RedbJournal> {
        self.count.set(self.count.get() + 1);
        let is_broken = Arc::<AtomicBool>::default();
        self.is_broken.replace(Arc::clone(&is_broken));
        let file = FileDisk::create(&self.path()).unwrap();
        let config = RedbConfig::from((config, self.store.clone()));
        let disk = Arc::new(Breakable { file, is_broken });
        Some(RedbJournal::open_disk(disk, "breakable", config, ThreadHost::new()).unwrap())
    }

    fn break_down(&self, _journal: &RedbJournal) {
        self.is_broken.borrow().store(true, Ordering::SeqCst);
    }

    /// The store on redb checks no page of its own when it reads, so that the record is found to be damaged.
    fn damaged(&self, journal: RedbJournal, config: JournalConfig, body: &[u8]) -> Option<RedbJournal> {
        journal.close().unwrap();
        let mut image = fs::read(self.path()).unwrap();
        let ends = body.len()..=image.len();
        let at: Vec<_> = ends
            .map(|end| end - body.len())
            .filter(|at| image[*at..].starts_with(body))
            .collect();
        assert!(!at.is_empty(), "the record is in the file");
        for at in at {
            image[at] ^= 1;
        }
        fs::write(self.path(), image).unwrap();
        Some(self.open(config))
    }
}

fn check<S: Subject>(subject: &S) {
    let mut ran = 0;
    for case in contract::cases::<S>() {
        println!("{}", case.name);
        (case.run)(subject);
        ran += 1;
    }
    assert!(ran >= 40, "the suite has {ran} cases");
}

#[test]
fn the_memory_journal_keeps_the_contract() {
    check(&Memory);
}

fn check_redb(store: StoreConfig) {
    check(&Redb {
        store,
        folder: tempfile::tempdir().unwrap(),
        count: std::cell::Cell::new(0),
        is_broken: RefCell::default(),
    });
}

#[test]
fn the_redb_journal_keeps_the_contract() {
    check_redb(StoreConfig::default());
}

/// Finished runs do not wait in memory, and what is dead leaves the log at once.
#[test]
fn the_redb_journal_keeps_the_contract_when_it_settles_with_each_commit() {
    let mut store = StoreConfig::default();
    (store.unsettled_len_max, store.settle_bytes_max) = (4, 1);
    store.dead_bytes_max = 0;
    check_redb(store);
}
