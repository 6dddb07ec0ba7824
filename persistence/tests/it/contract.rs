//! The contract suite against the journals of this crate.

use std::fs;
use std::path::PathBuf;

use millrun_persistence::contract::{self, Subject};
use millrun_persistence::{Journal, JournalConfig, MemoryJournal, RedbConfig, RedbJournal, StoreConfig};

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
}

struct Redb {
    store: StoreConfig,
    folder: tempfile::TempDir,
    count: std::cell::Cell<u32>,
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
