//! A disk without room, and with room again.
//!
//! A full disk stopped the runtime silently, and only a restart brought it back, though a write that was refused
//! for want of room has promised nothing: each request failed until an operator noticed.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use millrun_persistence::contract::Author;
use millrun_persistence::{
    Disk, FailureKind, Journal, JournalFailure, Reads, RedbConfig, RedbJournal, StoreError,
};

use super::disk::{Dice, SimDisk};
use super::workload::Record;
use crate::host::{HandHost, ThreadHost};

/// Some of its writes and changes of length are refused, half done: those with the numbers from `from` on, below
/// `to`.
#[derive(Debug)]
struct Full {
    disk: Arc<SimDisk>,
    changes: AtomicU64,
    from: u64,
    to: u64,
    /// Whether syncs are refused in place of them.
    refuses_syncs: AtomicBool,
    kind: io::ErrorKind,
}

impl Full {
    fn new(from: u64, len: u64, kind: io::ErrorKind) -> Arc<Self> {
        Arc::new(Self {
            disk: SimDisk::new(Vec::new(), 5),
            changes: AtomicU64::new(0),
            from,
            to: from.saturating_add(len),
            refuses_syncs: AtomicBool::new(false),
            kind,
        })
    }

    fn is_refused(&self) -> bool {
        let number = self.changes.fetch_add(1, Ordering::SeqCst);
        (self.from..self.to).contains(&number)
    }
}

impl Disk for Full {
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.disk.read(offset, out)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if self.is_refused() {
            self.disk.write(offset, &data[..data.len() / 2])?;
            return Err(self.kind.into());
        }
        self.disk.write(offset, data)
    }

    fn len(&self) -> io::Result<u64> {
        self.disk.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        if self.is_refused() {
            return Err(self.kind.into());
        }
        self.disk.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        if self.refuses_syncs.load(Ordering::SeqCst) {
            return Err(self.kind.into());
        }
        self.disk.sync()
    }

    fn try_lock(&self) -> io::Result<bool> {
        self.disk.try_lock()
    }
}

fn config(wait_max: Duration) -> RedbConfig {
    let mut config = RedbConfig::default();
    config.store.zero_ahead_bytes = 0;
    config.store.dead_bytes_max = 0;
    config.store.unsettled_len_max = 1;
    config.store.disk_full_wait_max = wait_max;
    config
}

fn open(disk: &Arc<Full>, wait_max: Duration) -> Result<RedbJournal, StoreError> {
    RedbJournal::open_disk(disk.clone(), "full", config(wait_max), ThreadHost::new())
}

/// Enqueues some batches, and closes the journal.
fn work(journal: &RedbJournal) -> (Record, usize, Result<(), JournalFailure>) {
    let (mut record, mut dice, mut taken) = (Record::new(), Dice::new(7), 0);
    record.resume(journal, 0);
    for _ in 0..12 {
        let before = journal.high_watermark();
        if record.enqueue(journal, &mut dice) {
            taken += 1;
            while journal.high_watermark() == before && journal.failure().is_none() {
                std::thread::yield_now();
            }
        }
    }
    let closed = journal.close();
    (record, taken, closed)
}

/// How many writes an opening takes, and with some work after it.
fn changes() -> (u64, u64) {
    let disk = Full::new(u64::MAX, 0, io::ErrorKind::StorageFull);
    let journal = open(&disk, Duration::ZERO).unwrap();
    let opened = disk.changes.load(Ordering::SeqCst);
    let (_, taken, closed) = work(&journal);
    assert_eq!((taken, closed), (12, Ok(())));
    drop(journal);
    (opened, disk.changes.load(Ordering::SeqCst))
}

#[test]
fn whichever_writes_are_refused_for_want_of_room_all_is_acknowledged_once_there_is_some() {
    let (opened, all) = changes();
    assert!(all > opened + 50);
    for from in (opened..all).step_by(3) {
        let kind = match from % 2 {
            0 => io::ErrorKind::StorageFull,
            _ => io::ErrorKind::QuotaExceeded,
        };
        let disk = Full::new(from, 2, kind);
        let journal = open(&disk, Duration::from_secs(600)).unwrap();
        let (record, taken, closed) = work(&journal);
        let is_closing = disk.changes.load(Ordering::SeqCst) <= from + 2;
        assert_eq!((taken, record.acknowledged(&journal)), (12, 12), "from {from}");
        assert!(closed.is_ok() || is_closing, "from {from}: {closed:?}");
        drop(journal);
        for image in [disk.disk.current(), disk.disk.cut_now()] {
            let host = HandHost::new();
            let reopened = SimDisk::new(image, 4);
            let journal =
                RedbJournal::open_disk(reopened, "again", config(Duration::ZERO), host.clone()).unwrap();
            record.check(&journal, 12).unwrap();
            host.end_parts();
        }
    }
}

/// One batch is queued on a disk without room; gives its journal once it waits.
fn stuck(disk: &Arc<Full>, wait_max: Duration) -> RedbJournal {
    let journal = open(disk, wait_max).unwrap();
    let mut author = Author::new(&journal, "a", 1);
    let batch = author.batch(&[b"start"], false);
    assert_eq!(journal.enqueue(&batch).unwrap().refused, []);
    journal
}

#[test]
fn a_disk_that_stays_full_stops_the_journal_when_the_wait_is_over_and_the_cause_says_what_to_do() {
    let (opened, _) = changes();
    let disk = Full::new(opened, u64::MAX, io::ErrorKind::StorageFull);
    let journal = stuck(&disk, Duration::from_millis(30));
    while journal.failure().is_none() {
        std::thread::yield_now();
    }
    let failure = journal.close().unwrap_err();
    assert_eq!(failure.kind(), FailureKind::Io(io::ErrorKind::StorageFull));
    assert!(failure.to_string().contains("disk_full_wait_max"), "{failure}");
    assert!(failure.to_string().contains("free some space"), "{failure}");
}

#[test]
fn a_close_ends_the_wait_and_says_why_what_was_queued_is_not_durable() {
    let (opened, _) = changes();
    let disk = Full::new(opened, u64::MAX, io::ErrorKind::StorageFull);
    let journal = stuck(&disk, Duration::from_secs(1_000_000));
    while !journal.stats().is_disk_full {
        assert_eq!(journal.failure(), None);
        std::thread::yield_now();
    }
    assert_eq!(journal.high_watermark().get(), 0);
    let failure = journal.close().unwrap_err();
    assert_eq!(failure.kind(), FailureKind::Io(io::ErrorKind::StorageFull));
    assert!(
        failure.to_string().contains("closed before there was room"),
        "{failure}"
    );
}

/// The system may have dropped what it could not write, and would report success the next time.
#[test]
fn a_sync_that_is_refused_for_want_of_room_stops_the_journal_at_once() {
    let disk = Full::new(u64::MAX, 0, io::ErrorKind::StorageFull);
    let journal = open(&disk, Duration::from_secs(1_000_000)).unwrap();
    disk.refuses_syncs.store(true, Ordering::SeqCst);
    let mut author = Author::new(&journal, "a", 1);
    assert_eq!(
        journal
            .enqueue(&author.batch(&[b"start"], false))
            .unwrap()
            .refused,
        []
    );
    while journal.failure().is_none() {
        std::thread::yield_now();
    }
    let failure = journal.close().unwrap_err();
    assert_eq!(failure.kind(), FailureKind::Io(io::ErrorKind::StorageFull));
}

#[test]
fn a_store_is_not_opened_on_a_full_disk_and_nobody_waits_for_it() {
    let (opened, _) = changes();
    for from in 0..opened {
        let disk = Full::new(from, u64::MAX, io::ErrorKind::StorageFull);
        match open(&disk, Duration::from_secs(1_000_000)) {
            Err(StoreError::Io { source, .. }) => {
                assert_eq!(source.kind(), io::ErrorKind::StorageFull);
            }
            other => panic!("{other:?}"),
        }
    }
}

/// A file system of 8 MiB in memory; `None` where this user may not mount one.
struct Small(tempfile::TempDir);

impl Small {
    fn mount() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=8m", "none"])
            .arg(folder.path())
            .output();
        match mounted {
            Ok(output) if output.status.success() => Some(Self(folder)),
            Ok(output) => {
                println!("skipped: {}", String::from_utf8_lossy(&output.stderr));
                None
            }
            Err(error) => {
                println!("skipped: no program to mount with: {error}");
                None
            }
        }
    }

    /// Takes all the room there is.
    fn fill(&self) {
        let mut bytes = 1 << 20;
        for number in 0.. {
            let path = self.0.path().join(format!("filler-{number}"));
            if fs::write(path, vec![1; bytes]).is_err() {
                bytes /= 2;
            }
            if bytes < 512 {
                return;
            }
        }
    }

    fn make_room(&self) {
        for entry in fs::read_dir(self.0.path()).unwrap() {
            let path = entry.unwrap().path();
            if path.file_name().unwrap().to_string_lossy().starts_with("filler") {
                fs::remove_file(path).unwrap();
            }
        }
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        Command::new("umount").arg(self.0.path()).output().unwrap();
    }
}

#[test]
fn a_real_file_system_that_was_full_goes_on_where_it_stood() {
    let Some(small) = Small::mount() else { return };
    let path = small.path().join("a.redb");
    let open = || RedbJournal::open(&path, RedbConfig::default(), ThreadHost::new());
    let journal = open().unwrap();
    let mut author = Author::new(&journal, "a", 1);
    let large = vec![7; 300_000];
    assert_eq!(
        journal
            .enqueue(&author.batch(&[b"start"], false))
            .unwrap()
            .refused,
        []
    );
    while journal.high_watermark().get() < 1 {
        std::thread::yield_now();
    }
    small.fill();
    // More than the file has room for without growing.
    let mut last = journal.high_watermark();
    for _ in 0..6 {
        let enqueued = journal.enqueue(&author.batch(&[&large], false)).unwrap();
        assert_eq!(enqueued.refused, []);
        last = enqueued.offset;
    }
    while !journal.stats().is_disk_full {
        assert_eq!(journal.failure(), None);
        std::thread::yield_now();
    }
    assert!(journal.high_watermark() < last);
    assert_eq!(journal.history(author.run).unwrap().records[0].body, b"start"[..]);
    small.make_room();
    while journal.high_watermark() < last {
        assert_eq!(journal.failure(), None);
        std::thread::yield_now();
    }
    assert!(!journal.stats().is_disk_full);
    journal.close().unwrap();
    drop(journal);
    author.assert_history(&open().unwrap());
}
