//! The contract suite against the journals of this crate.

use std::cell::RefCell;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use millrun_persistence::contract::{self, Subject};
use millrun_persistence::{
    Disk, Durability, FailureKind, FileDisk, Journal, JournalConfig, MemoryJournal, RedbConfig, RedbJournal,
    StoreConfig,
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
    durability: Durability,
    folder: tempfile::TempDir,
    count: std::cell::Cell<u32>,
    /// Of the disk of the last breakable store.
    is_broken: RefCell<Arc<AtomicBool>>,
}

impl Redb {
    fn path(&self) -> PathBuf {
        self.folder.path().join(format!("{}.redb", self.count.get()))
    }

    fn open(&self, mut config: JournalConfig) -> RedbJournal {
        config.durability = self.durability;
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
    check_but(&[], subject);
}

/// Checks all but these cases.
fn check_but<S: Subject>(left_out: &[&str], subject: &S) {
    let mut ran = 0;
    let (left, cases): (Vec<_>, Vec<_>) = contract::cases::<S>()
        .into_iter()
        .partition(|case| left_out.contains(&case.name));
    assert_eq!(left.len(), left_out.len(), "each of them is a case");
    for case in cases {
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
    check(&redb(Durability::Durable, store));
}

fn redb(durability: Durability, store: StoreConfig) -> Redb {
    Redb {
        store,
        durability,
        folder: tempfile::tempdir().unwrap(),
        count: std::cell::Cell::new(0),
        is_broken: RefCell::default(),
    }
}

#[test]
fn the_redb_journal_keeps_the_contract() {
    check_redb(StoreConfig::default());
}

/// What a journal tells only once it has written: its lists and searches, what retention drops, snapshots, counts, and
/// what a recovery finds.
const TOLD_WHEN_WRITTEN: &[&str] = &[
    "retention_drops_the_earliest_and_says_how_many",
    "what_the_slowest_reader_has_not_read_is_held_back",
    "at_the_bound_in_bytes_the_earliest_are_dropped_all_the_same",
    "what_is_held_back_beyond_its_age_goes_when_it_is_read",
    "a_reader_that_is_deleted_holds_nothing_back",
    "after_reopening_nothing_goes_before_all_readers_are_noted",
    "a_reader_does_not_go_back_and_unknown_ones_are_none",
    "held_back_records_agree_with_a_list",
    "a_batch_is_taken_whichever_journal_made_it",
    "a_batch_larger_than_the_buffer_is_taken_alone",
    "finished_runs_are_listed_in_the_order_of_closing",
    "a_list_goes_on_behind_where_it_ended",
    "recovery_hands_out_the_records_of_live_runs",
    "recovery_sends_a_run_to_the_lane_of_its_partition",
    "stats_count_what_is_there",
    "a_search_finds_finished_runs_the_latest_closed_first",
    "a_search_goes_on_before_where_it_ended",
    "a_search_by_kind_finds_the_runs_whose_last_record_is_of_it",
    "a_search_by_times_finds_the_runs_that_began_and_closed_then",
    "a_glance_says_what_reading_says",
    "retention_by_count_drops_the_earliest_closed",
    "retention_by_bytes_drops_the_earliest_closed",
    "retention_by_age_drops_the_earliest_closed",
    "a_dropped_id_is_free_again",
    "only_the_runs_that_were_dropped_last_are_remembered",
    "recovery_after_reopening_finds_what_was_there",
    "many_finished_runs_are_found_before_and_after_reopening",
    "a_snapshot_is_read_back_with_what_has_happened_since",
    "a_later_snapshot_replaces_the_earlier_one",
    "a_trimmed_run_that_finishes_is_found",
    "a_trim_takes_the_snapshot_along",
    "a_trim_gives_its_bytes_back",
    "recovery_hands_out_what_is_left_with_what_is_kept",
    "an_upkeep_drops_what_has_come_of_age_since_the_last_run_finished",
];

/// A run's history, and a finished run by its id, are read as soon as they are acknowledged.
#[test]
fn the_redb_journal_keeps_the_contract_when_it_writes_late() {
    let window = Duration::from_secs(3_600);
    for durability in [Durability::Eventual { window }, Durability::Volatile] {
        check_but(TOLD_WHEN_WRITTEN, &redb(durability, StoreConfig::default()));
    }
}

/// Finished runs do not wait in memory, and what is dead leaves the log at once.
#[test]
fn the_redb_journal_keeps_the_contract_when_it_settles_with_each_commit() {
    let mut store = StoreConfig::default();
    (store.unsettled_len_max, store.settle_bytes_max) = (4, 1);
    store.dead_bytes_max = 0;
    check_redb(store);
}
