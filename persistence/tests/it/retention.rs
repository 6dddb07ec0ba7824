//! What retention drops leaves the file, and what still lives among it stays whole.

use std::path::Path;
use std::sync::Arc;

use millrun_core::{Partition, RunId, Sequence, Timestamp};
use millrun_persistence::contract::Author;
use millrun_persistence::{Batch, Journal, ReadError, Reads, RedbConfig, RedbJournal};

use crate::host::HandHost;

const RETAINED: usize = 20;

fn open(path: &Path, host: &Arc<HandHost>) -> RedbJournal {
    let mut config = RedbConfig::default();
    config.journal.retention.len_max = RETAINED;
    config.store.dead_bytes_max = 100_000;
    RedbJournal::open(path, config, host.clone()).unwrap()
}

struct World {
    folder: tempfile::TempDir,
    host: Arc<HandHost>,
    journal: RedbJournal,
    /// Runs that stay live all the time, and take a turn now and then.
    long: Vec<Author>,
    /// Finished runs in the order of closing.
    finished: Vec<Author>,
    begun: u64,
    /// What a long run records with each turn.
    said: Vec<u8>,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let host = HandHost::new();
        let journal = open(&folder.path().join("a.redb"), &host);
        let long = (0..5)
            .map(|number| Author::new(&journal, &format!("long-{number}"), number))
            .collect();
        let mut world = Self {
            folder,
            host,
            journal,
            long,
            finished: Vec::new(),
            begun: 100,
            said: b"still here".to_vec(),
        };
        world.take_over();
        world
    }

    fn take_over(&mut self) {
        let all: Vec<_> = (0..Partition::COUNT).filter_map(Partition::from_index).collect();
        let epoch = self.journal.take_over(&all).unwrap();
        for author in &mut self.long {
            author.epoch = epoch;
        }
    }

    /// Begins and finishes `count` runs of about 1,000 bytes, each in two commits, while the long
    /// ones take a turn at every `every`-th of them.
    fn work(&mut self, count: u64, every: u64) {
        for _ in 0..count {
            self.begun += 1;
            let mut author = Author::new(&self.journal, &format!("short-{}", self.begun), self.begun);
            author.time = Timestamp::from_micros(1_700_000_000_000_000 + self.begun);
            let (mut first, mut second) = (Batch::new(), Batch::new());
            // The takeover of its partition may have fenced a long run: take all of them over again.
            self.take_over();
            author.epoch = self.long[0].epoch;
            author.put(&mut first, &[&[1; 500]], false);
            if self.begun.is_multiple_of(every) {
                for long in &mut self.long {
                    long.put(&mut first, &[&self.begun.to_le_bytes(), &self.said], false);
                }
            }
            author.put(&mut second, &[&[2; 300]], true);
            for batch in [&first, &second] {
                assert_eq!(self.journal.enqueue(batch).unwrap().refused, []);
                self.host.run();
            }
            self.finished.push(author);
        }
    }

    fn reopen(&mut self) {
        self.journal.begin_close();
        self.host.run();
        self.journal.close().unwrap();
        self.journal = open(&self.folder.path().join("a.redb"), &self.host);
        self.take_over();
    }

    fn check(&self) {
        for author in &self.long {
            author.assert_history(&self.journal);
        }
        let (dropped, retained) = self
            .finished
            .split_at(self.finished.len().saturating_sub(RETAINED));
        for author in retained {
            author.assert_history(&self.journal);
            let found = self.journal.finished(&author.id).unwrap();
            assert_eq!(found.map(|found| found.run), Some(author.run));
        }
        for author in dropped {
            assert!(self.journal.history(author.run).is_err());
            assert!(matches!(
                self.journal.finished(&author.id),
                Ok(None) | Err(ReadError::Expired { .. })
            ));
        }
        let listed = self.journal.list_finished(None, usize::MAX).unwrap();
        let expected: Vec<_> = retained.iter().map(|author| author.run).collect();
        assert_eq!(
            listed.iter().map(|finished| finished.run).collect::<Vec<_>>(),
            expected
        );
        let report = self
            .journal
            .recover(&mut [&mut |_| {}, &mut |_| {}], &mut |_| {})
            .unwrap();
        assert_eq!(report.damaged, []);
        assert_eq!(report.live_runs, self.long.len() as u64);
        let records: usize = self.long.iter().map(|author| author.written.len()).sum();
        assert_eq!(report.records, records as u64);
    }
}

#[test]
fn the_log_stays_small_and_long_runs_stay_whole() {
    let mut world = World::new();
    for _ in 0..5 {
        world.work(100, 10);
        world.check();
    }
    let stats = world.journal.stats();
    assert!(stats.bytes > 400_000, "{} bytes were written", stats.bytes);
    let bound = 3 * stats.live_bytes + 150_000;
    assert!(
        stats.log_bytes < bound,
        "{} bytes are in the log, {bound} allowed",
        stats.log_bytes
    );
    assert_eq!(stats.dropped_runs, 480);
}

#[test]
fn what_was_moved_is_found_after_reopening() {
    let mut world = World::new();
    for _ in 0..4 {
        world.work(150, 50);
        world.reopen();
        world.check();
    }
}

#[test]
fn a_run_that_rested_for_long_takes_turns_again_and_finishes() {
    let mut world = World::new();
    world.work(10, 5);
    world.work(300, u64::MAX);
    world.reopen();
    let mut batch = Batch::new();
    let mut author = world.long.remove(0);
    author.put(&mut batch, &[b"awake"], false);
    author.put(&mut batch, &[b"done"], true);
    assert_eq!(world.journal.enqueue(&batch).unwrap().refused, []);
    world.host.run();
    world.finished.push(author);
    world.check();
    world.work(200, 50);
    world.check();
    world.reopen();
    world.check();
}

#[test]
fn a_crash_between_settling_and_the_next_opening_changes_nothing() {
    let mut world = World::new();
    world.work(300, 25);
    let copy = world.folder.path().join("copy.redb");
    std::fs::copy(world.folder.path().join("a.redb"), &copy).unwrap();
    let before = world.journal.stats();
    let host = HandHost::new();
    world.journal = open(&copy, &host);
    world.check();
    let after = world.journal.stats();
    assert_eq!(
        (after.live_runs, after.finished_runs),
        (before.live_runs, before.finished_runs)
    );
    assert_eq!(
        (after.live_bytes, after.log_bytes),
        (before.live_bytes, before.log_bytes)
    );
}

/// The pages of a run, each of `bytes_max` bytes.
fn pages(journal: &RedbJournal, run: RunId, bytes_max: usize) -> Vec<Vec<Vec<u8>>> {
    let (mut pages, mut after) = (Vec::new(), Sequence::ZERO);
    loop {
        let page = journal.history_page(run, after, bytes_max).unwrap();
        let Some(last) = page.records.last() else {
            assert_eq!(page.head, after);
            return pages;
        };
        after = last.sequence;
        pages.push(page.records.iter().map(|record| record.body.to_vec()).collect());
    }
}

/// Its turns leave the log a few at a time, for as long as it lives.
#[test]
fn a_run_that_lives_long_is_read_at_once_and_in_pages_wherever_its_turns_stand() {
    let mut world = World::new();
    world.said = vec![3; 4_000];
    world.work(600, 8);
    let check = |world: &World| {
        world.check();
        for author in &world.long {
            for bytes_max in [1, 5_000, 100_000, usize::MAX] {
                let pages = pages(&world.journal, author.run, bytes_max);
                assert_eq!(pages.concat(), author.written, "{bytes_max} bytes a page");
                let bytes: usize = author.written.iter().map(Vec::len).sum();
                assert!(pages.len() <= bytes / (bytes_max / 2).max(1) + 2);
            }
        }
    };
    check(&world);
    world.reopen();
    check(&world);
    // The copy has the same turns in the same places.
    let copy = world.folder.path().join("copy.redb");
    world.journal.backup(&copy).unwrap();
    let host = HandHost::new();
    let copied = open(&copy, &host);
    assert_eq!(copied.verify().unwrap().damaged, []);
    for author in &world.long {
        author.assert_history(&copied);
    }
    drop(copied);
    host.run();

    let kept = world.journal.stats().log_bytes;
    let mut last = Batch::new();
    for mut author in std::mem::take(&mut world.long) {
        author.put(&mut last, &[b"done"], true);
        world.finished.push(author);
    }
    assert_eq!(world.journal.enqueue(&last).unwrap().refused, []);
    world.host.run();
    check(&world);
    world.long.push(Author::new(&world.journal, "last", 1_000_000));
    world.work(200, 100);
    check(&world);
    assert!(world.journal.stats().log_bytes < kept / 4, "they have gone");
    world.reopen();
    check(&world);
}
