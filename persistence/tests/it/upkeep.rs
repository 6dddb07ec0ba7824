//! Verifying, copying and shrinking a store.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use millrun_core::Bell;
use millrun_persistence::contract::Author;
use millrun_persistence::{
    BackupError, Batch, Disk, FileDisk, Journal, Reads, RedbConfig, RedbJournal, Stats, StoreError, ToRead,
    compact,
};

use crate::host::HandHost;

struct World {
    folder: tempfile::TempDir,
    host: Arc<HandHost>,
    journal: RedbJournal,
    authors: Vec<Author>,
}

impl World {
    /// A journal that retains five finished runs.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let host = HandHost::new();
        let journal = open(&folder.path().join("a.redb"), &host);
        Self {
            folder,
            host,
            journal,
            authors: Vec::new(),
        }
    }

    fn work(&mut self, count: u64) {
        for _ in 0..count {
            let number = self.authors.len() as u64;
            let mut author = Author::new(&self.journal, &format!("run-{number}"), number);
            let batch = author.batch(&[&[7; 10_000], b"end"], !number.is_multiple_of(4));
            assert_eq!(self.journal.enqueue(&batch).unwrap().refused, []);
            self.host.run();
            self.authors.push(author);
        }
    }

    fn live(&self) -> impl Iterator<Item = &Author> {
        self.authors.iter().step_by(4)
    }
}

fn open(path: &Path, host: &Arc<HandHost>) -> RedbJournal {
    let mut config = RedbConfig::default();
    config.journal.retention.len_max = 5;
    config.store.dead_bytes_max = 0;
    RedbJournal::open(path, config, host.clone()).unwrap()
}

#[test]
fn a_sound_store_verifies() {
    let mut world = World::new();
    world.work(20);
    let verified = world.journal.verify().unwrap();
    assert_eq!(verified.damaged, []);
    assert!(verified.records >= 2 * 10, "{verified:?}");
}

#[test]
fn a_backup_is_the_store_of_that_moment() {
    let mut world = World::new();
    world.work(40);
    let path = world.folder.path().join("backup.redb");
    world.journal.backup(&path).unwrap();
    let (epoch, stats) = (world.journal.take_over(&[]).unwrap(), world.journal.stats());
    world.work(4);

    let host = HandHost::new();
    let restored = open(&path, &host);
    for author in world.authors[..40].iter().step_by(4) {
        author.assert_history(&restored);
    }
    for author in &world.authors[40..] {
        assert!(restored.history(author.run).is_err(), "it came after the backup");
    }
    let copied = restored.stats();
    assert_eq!(
        (copied.live_runs, copied.finished_runs),
        (stats.live_runs, stats.finished_runs)
    );
    assert!(
        restored.take_over(&[]).unwrap() > epoch,
        "epochs go on in a restored store"
    );
    assert_eq!(restored.verify().unwrap().damaged, []);
}

#[test]
fn a_backup_replaces_nothing() {
    let world = World::new();
    let path = world.folder.path().join("taken");
    std::fs::write(&path, b"mine").unwrap();
    assert!(matches!(
        world.journal.backup(&path),
        Err(BackupError::Exists { .. })
    ));
    assert_eq!(std::fs::read(&path).unwrap(), b"mine");
    assert!(matches!(
        world.journal.backup("/nonexistent/b.redb"),
        Err(BackupError::Write(_))
    ));
}

#[test]
fn compacting_shrinks_the_file_and_keeps_everything() {
    let mut world = World::new();
    world.work(400);
    let before = world.journal.stats();
    world.journal.begin_compact();
    world.host.run();
    let after = world.journal.stats();
    assert_eq!(after.compactions, 1);
    assert_eq!((before.compacted_bytes, after.is_compacting), (0, false));
    assert!(after.compacted_bytes > 0, "it says how much it has moved");
    assert!(
        after.file_bytes < before.file_bytes,
        "{} then {}",
        before.file_bytes,
        after.file_bytes
    );
    assert_eq!(after.live_bytes, before.live_bytes);
    world.work(4);
    for author in world.live() {
        author.assert_history(&world.journal);
    }
    assert_eq!(world.journal.verify().unwrap().damaged, []);
}

#[test]
fn after_an_upkeep_what_is_due_is_settled_merged_and_given_back_and_none_is_left_for_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let host = HandHost::new();
    let mut config = RedbConfig::default();
    config.journal.retention.len_max = 600;
    config.store.unsettled_len_max = 16;
    config.store.dead_bytes_max = 64 << 10;
    let journal = RedbJournal::open(folder.path().join("a.redb"), config, host.clone()).unwrap();
    // All in one commit, which takes along no more than its share.
    let mut batch = Batch::new();
    let mut authors: Vec<_> = (0..2_000)
        .map(|number| Author::new(&journal, &format!("run-{number}"), number))
        .collect();
    let partitions: Vec<_> = authors.iter().map(|author| author.id.partition()).collect();
    let epoch = journal.take_over(&partitions).unwrap();
    for author in &mut authors {
        author.epoch = epoch;
        author.put(&mut batch, &[&[7; 700], b"end"], true);
    }
    assert_eq!(journal.enqueue(&batch).unwrap().refused, []);
    for _ in 0..20 {
        host.step();
    }
    let keep_up = || {
        let (bell, before) = (Bell::new(), journal.stats().commits);
        let number = journal.upkeep(authors[0].time, bell.clone());
        host.run();
        assert_eq!((journal.upkept(number), bell.answer()), (Some(Ok(())), true));
        journal.stats().commits - before
    };
    keep_up();
    assert_eq!(keep_up(), 0, "nothing was left to be done");
    let stats = journal.stats();
    assert_eq!(stats.finished_runs, 600);
    let needed = stats.live_bytes + stats.live_bytes / 2;
    assert!(stats.log_bytes <= needed + (128 << 10), "{stats:?}");
    for (number, author) in authors.iter().enumerate() {
        assert_eq!(journal.history(author.run).is_ok(), number >= 1_400, "{number}");
    }
    assert_eq!(journal.verify().unwrap().damaged, []);
}

/// The story: a read that was under way when a compaction began was answered, and the journal failed for good, since the
/// file cannot be compacted while something in it is being read.
#[test]
fn a_compaction_waits_for_reads_that_are_under_way() {
    let mut world = World::new();
    world.work(40);
    let runs: Vec<_> = world.live().map(|author| ToRead::History(author.run)).collect();
    let mut read = 0;
    world
        .journal
        .read_together(&runs, usize::MAX, &mut |index, was_read| {
            assert!(was_read.is_ok());
            if index == 0 {
                world.journal.begin_compact();
                for _ in 0..4 {
                    world.host.step();
                }
            }
            read += 1;
        });
    assert_eq!((read, world.journal.failure()), (runs.len(), None));
    world.work(4);
    assert_eq!(world.journal.stats().compactions, 0, "turns do not wait for it");
    world.host.advance(Duration::from_millis(10));
    world.host.run();
    assert_eq!(world.journal.stats().compactions, 1);
    world.work(4);
}

/// A disk that asks the journal, at each sync, how far it is.
#[derive(Debug)]
struct Asking {
    disk: FileDisk,
    journal: OnceLock<Weak<RedbJournal>>,
    seen: Mutex<Vec<Stats>>,
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
        if let Some(journal) = self.journal.get().and_then(Weak::upgrade) {
            self.seen.lock().unwrap().push(journal.stats());
        }
        self.disk.sync()
    }

    fn try_lock(&self) -> io::Result<bool> {
        self.disk.try_lock()
    }
}

#[test]
fn how_far_a_compaction_is_can_be_asked_while_it_is_under_way() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Arc::new(Asking {
        disk: FileDisk::create(&folder.path().join("a.redb")).unwrap(),
        journal: OnceLock::new(),
        seen: Mutex::default(),
    });
    let host = HandHost::new();
    let mut config = RedbConfig::default();
    config.journal.retention.len_max = 5;
    config.store.dead_bytes_max = 0;
    let journal = RedbJournal::open_disk(disk.clone(), "asking", config, host.clone()).unwrap();
    let journal = Arc::new(journal);
    for number in 0..400 {
        let mut author = Author::new(&*journal, &format!("run-{number}"), number);
        let batch = author.batch(&[&[7; 10_000], b"end"], number % 4 != 0);
        assert_eq!(journal.enqueue(&batch).unwrap().refused, []);
        host.run();
    }
    disk.journal.set(Arc::downgrade(&journal)).unwrap();
    journal.begin_compact();
    host.run();
    let seen = std::mem::take(&mut *disk.seen.lock().unwrap());
    let last = journal.stats();
    assert!(seen.len() > 1 && seen.iter().all(|stats| stats.is_compacting));
    assert!(seen.is_sorted_by_key(|stats| stats.compacted_bytes));
    let (first, end) = (seen[0].compacted_bytes, seen[seen.len() - 1].compacted_bytes);
    assert!(
        first < end && end <= last.compacted_bytes,
        "{first}, {end}, {last:?}"
    );
    assert!(!last.is_compacting);
}

/// A tool that compacts a file does not know what its program retains: it drops nothing.
#[test]
fn a_closed_file_is_made_smaller_and_holds_what_it_held() {
    let mut world = World::new();
    let path = world.folder.path().join("a.redb");
    let taken = compact(&path, &*world.host).unwrap_err();
    assert!(matches!(taken, StoreError::AlreadyOpen { .. }), "{taken}");
    world.work(200);
    let before = world.journal.list_finished(None, 1_000).unwrap();
    assert_eq!(before.len(), 5);
    world.journal.begin_close();
    world.host.run();

    let compacted = compact(&path, &*world.host).unwrap();
    assert!(compacted.bytes_after < compacted.bytes_before, "{compacted:?}");
    assert_eq!(std::fs::metadata(&path).unwrap().len(), compacted.bytes_after);
    let journal = open(&path, &world.host);
    assert_eq!(journal.list_finished(None, 1_000).unwrap(), before);
    assert_eq!(journal.stats().live_runs, world.live().count() as u64);
    for author in world.live() {
        assert!(journal.history(author.run).is_ok());
    }
    assert_eq!(journal.verify().unwrap().damaged, []);

    let missing = world.folder.path().join("none.redb");
    let error = compact(&missing, &*world.host).unwrap_err();
    assert!(matches!(error, StoreError::Io { .. }), "{error}");
    assert!(!missing.exists());
}
