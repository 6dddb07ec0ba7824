//! What each durability mode loses in a crash: exactly what it says.
//!
//! A crash is a copy of the file, taken while the journal is open: what was not written by then
//! is gone.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use millrun_persistence::contract::Author;
use millrun_persistence::{Durability, Journal, JournalConfig, Reads, RedbJournal};
use tempfile::TempDir;

use crate::host::HandHost;

const WINDOW: Duration = Duration::from_millis(100);

struct World {
    folder: TempDir,
    host: Arc<HandHost>,
    journal: RedbJournal,
    author: Author,
}

impl World {
    fn new(durability: Durability) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let host = HandHost::new();
        let mut config = JournalConfig::default();
        config.durability = durability;
        config.batch_bytes_max = 1_000;
        let journal = RedbJournal::open(path(&folder), config, host.clone()).unwrap();
        let author = Author::new(&journal, "a", 1);
        host.run();
        Self {
            folder,
            host,
            journal,
            author,
        }
    }

    /// Appends a small turn; says whether it is acknowledged at once.
    fn append(&mut self) -> bool {
        let enqueued = self.journal.enqueue(&self.author.batch(&[b"x"], false)).unwrap();
        assert_eq!(enqueued.refused, []);
        self.host.run();
        self.journal.high_watermark() >= enqueued.offset
    }

    /// How many records are left after a crash at this moment.
    fn left(&self) -> usize {
        let copy = self.folder.path().join("copy.redb");
        fs::copy(path(&self.folder), &copy).unwrap();
        let host = HandHost::new();
        let journal = RedbJournal::open(&copy, JournalConfig::default(), host.clone()).unwrap();
        let left = journal
            .history(self.author.run)
            .map_or(0, |history| history.records.len());
        drop(journal);
        host.run();
        left
    }
}

fn path(folder: &TempDir) -> PathBuf {
    Path::new(folder.path()).join("a.redb")
}

#[test]
fn durable_loses_nothing_that_was_acknowledged() {
    let mut world = World::new(Durability::Durable);
    for appended in 1..=5 {
        assert!(world.append());
        assert_eq!(world.left(), appended);
    }
}

#[test]
fn eventual_loses_what_was_acknowledged_within_the_window() {
    let mut world = World::new(Durability::Eventual { window: WINDOW });
    world.host.advance(WINDOW);
    for _ in 0..3 {
        assert!(world.append(), "it is acknowledged at once");
    }
    // The first of them found an old sync and was written; the others wait for the window.
    assert_eq!(world.left(), 1);
    world.host.advance(WINDOW - Duration::from_millis(1));
    world.host.run();
    assert_eq!(world.left(), 1);
    world.host.advance(Duration::from_millis(1));
    world.host.run();
    assert_eq!(world.left(), 3);
}

#[test]
fn eventual_writes_sooner_when_the_buffer_is_half_full() {
    let mut world = World::new(Durability::Eventual { window: WINDOW });
    let mut appended = 0;
    while world.left() == 0 {
        assert!(world.append());
        appended += 1;
        assert!(appended < 20, "a buffer of 1,000 bytes is half full by then");
    }
    assert!(appended > 5);
    assert_eq!(world.left(), appended);
}

#[test]
fn volatile_may_lose_everything_and_keeps_what_a_close_has_flushed() {
    let mut world = World::new(Durability::Volatile);
    for _ in 0..3 {
        assert!(world.append(), "it is acknowledged at once");
    }
    world.host.advance(Duration::from_secs(3_600));
    world.host.run();
    assert_eq!(world.left(), 0);
    world.journal.begin_close();
    world.host.run();
    world.journal.close().unwrap();
    assert_eq!(world.left(), 3);
}
