//! Runs that are trimmed while an archive is configured: what they are trimmed of is there before it is gone.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use millrun_core::{Bell, RunId, Timestamp, base64};
use millrun_persistence::contract::Author;
use millrun_persistence::{Archive, Batch, Journal, Reads, RedbConfig, RedbJournal, UpkeepUndone, import};

use crate::crash::disk::{Dice, SimDisk};
use crate::host::HandHost;

struct World {
    folder: tempfile::TempDir,
    config: RedbConfig,
    disk: Arc<SimDisk>,
    host: Arc<HandHost>,
    journal: RedbJournal,
}

impl World {
    /// Much leaves the log with each commit.
    fn new(seed: u64, file_bytes_max: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut config = RedbConfig::default();
        config.store.dead_bytes_max = 16 << 10;
        config.store.zero_ahead_bytes = 0;
        config.store.unsettled_len_max = 3;
        config.journal.retention.len_max = 2;
        let mut archive = Archive::new(folder.path().join("archive"));
        archive.file_bytes_max = file_bytes_max;
        config.store.archive = Some(archive);
        Self::open(folder, config, SimDisk::new(Vec::new(), seed))
    }

    fn open(folder: tempfile::TempDir, config: RedbConfig, disk: Arc<SimDisk>) -> Self {
        let host = HandHost::new();
        let journal = RedbJournal::open_disk(disk.clone(), "archived", config.clone(), host.clone()).unwrap();
        Self {
            folder,
            config,
            disk,
            host,
            journal,
        }
    }

    /// The power is cut, and the store opened again.
    fn crash(self, seed: u64) -> Self {
        let disk = SimDisk::new(self.disk.cut_now(), seed);
        Self::open(self.folder, self.config, disk)
    }

    fn archive(&self) -> PathBuf {
        self.folder.path().join("archive")
    }

    /// Puts a file in the way of the archive, or takes it away.
    fn toggle_archive(&self) {
        let (folder, aside) = (self.archive(), self.folder.path().join("aside"));
        if folder.is_file() {
            fs::remove_file(&folder).unwrap();
            if aside.exists() {
                fs::rename(aside, folder).unwrap();
            }
            self.host.advance(Duration::from_secs(11));
        } else {
            if folder.exists() {
                fs::rename(&folder, aside).unwrap();
            }
            fs::write(folder, b"in the way").unwrap();
        }
    }

    fn append(&self, batch: &Batch) {
        assert_eq!(self.journal.enqueue(batch).unwrap().refused, []);
        self.host.run();
    }

    fn turn(&self, author: &mut Author, body: &[u8], trims: bool, closes: bool) {
        let mut batch = Batch::new();
        if trims {
            author.put_trimming(&mut batch, &[body, b"checkpoint"]);
        } else {
            author.put(&mut batch, &[body], closes);
        }
        self.append(&batch);
    }
}

/// The bodies in the archive, by run and sequence. What stands there twice must be the same, and the parts of a
/// run must come in order.
fn archived(folder: &Path) -> BTreeMap<(RunId, u64), Vec<u8>> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    files.sort();
    let (mut found, mut heads) = (BTreeMap::new(), BTreeMap::new());
    for file in files {
        for line in fs::read_to_string(file).unwrap().lines().skip(1) {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            let run =
                RunId::from_bits(u128::from_str_radix(line["run"].as_str().unwrap(), 16).unwrap()).unwrap();
            let sequence = line["sequence"].as_u64().unwrap();
            let head = heads.entry(run).or_insert(0);
            assert!(sequence <= *head + 1, "{run}: a gap before {sequence}");
            *head = sequence.max(*head);
            let body = base64::decode(line["body"].as_str().unwrap()).unwrap();
            let before = found.insert((run, sequence), body.clone());
            assert!(before.is_none_or(|before| before == body));
        }
    }
    found
}

/// Checks that the archive has the first `len` records of a run.
fn assert_archived(archive: &BTreeMap<(RunId, u64), Vec<u8>>, author: &Author, len: usize) {
    for (sequence, body) in (1..).zip(&author.written[..len]) {
        assert_eq!(
            archive.get(&(author.run, sequence)),
            Some(body),
            "{sequence} of {len}"
        );
    }
}

#[test]
fn what_runs_are_trimmed_of_is_archived_and_the_file_stays_small() {
    let world = World::new(1, 64 << 20);
    let mut authors: Vec<_> = (0..3)
        .map(|number| Author::new(&world.journal, &format!("run-{number}"), number))
        .collect();
    for turn in 0..1_200_usize {
        let author = &mut authors[turn % 3];
        world.turn(author, &vec![7; 400], turn / 3 % 20 == 19, false);
    }
    let stats = world.journal.stats();
    assert_eq!((stats.archived_parts, stats.held_parts), (60, 0));
    assert!(stats.log_bytes < 80 << 10, "{stats:?}");
    for author in &mut authors {
        author.assert_history(&world.journal);
        let archive = archived(&world.archive());
        assert_archived(&archive, author, author.trimmed);
        assert!(!archive.contains_key(&(author.run, author.trimmed as u64 + 1)));
        world.turn(author, b"end", false, true);
    }
    // Retention lets the first one go, which is archived before.
    let archive = archived(&world.archive());
    assert_archived(&archive, &authors[0], authors[0].written.len());
}

#[test]
fn while_the_archive_cannot_be_written_turns_are_taken_and_nothing_goes() {
    let world = World::new(2, 64 << 20);
    fs::write(world.archive(), b"in the way").unwrap();
    let mut author = Author::new(&world.journal, "a", 1);
    for turn in 0..400 {
        world.turn(&mut author, &vec![7; 400], turn % 20 == 19, false);
    }
    let stats = world.journal.stats();
    assert!(stats.is_archive_failing);
    assert_eq!((stats.archived_parts, stats.held_parts), (0, 20));
    assert!(stats.log_bytes > 160 << 10, "{stats:?}");
    author.assert_history(&world.journal);
    // So it is after a crash.
    let world = world.crash(3);
    author.epoch = world.journal.take_over(&[author.id.partition()]).unwrap();
    assert_eq!(world.journal.stats().held_parts, 20);
    fs::remove_file(world.archive()).unwrap();
    world.host.advance(Duration::from_secs(11));
    for _ in 0..40 {
        world.turn(&mut author, &vec![7; 400], false, false);
    }
    let stats = world.journal.stats();
    assert!(!stats.is_archive_failing);
    assert_eq!((stats.archived_parts, stats.held_parts), (20, 0));
    assert!(stats.log_bytes < 80 << 10, "{stats:?}");
    assert_archived(&archived(&world.archive()), &author, author.trimmed);
}

/// Asks for an upkeep as of `now`, and lets all parts work.
fn keep_up(world: &World, now: Timestamp) -> Option<Result<(), UpkeepUndone>> {
    let number = world.journal.upkeep(now, Bell::new());
    world.host.run();
    world.journal.upkept(number)
}

#[test]
fn an_upkeep_has_the_archive_written_before_anything_goes() {
    let mut world = World::new(5, 64 << 20);
    world.config.journal.retention.len_max = 1_000;
    world.config.journal.retention.age_max = Duration::from_secs(7_200);
    let mut world = world.crash(6);
    fs::write(world.archive(), b"in the way").unwrap();
    let mut authors: Vec<_> = (0..12)
        .map(|number| Author::new(&world.journal, &format!("run-{number}"), number))
        .collect();
    let start = authors[0].time;
    for (minutes, author) in (0..).zip(&mut authors) {
        author.time = start + Duration::from_secs(600) * minutes;
        world.turn(author, &[7; 900], false, false);
        world.turn(author, &[8; 900], minutes % 2 == 0, false);
        world.turn(author, b"end", false, true);
    }
    // The last finished 110 minutes behind the first. 65 minutes later than two hours behind it, five are young enough.
    let now = start + Duration::from_secs(7_200 + 3_900);
    assert_eq!(keep_up(&world, now), Some(Err(UpkeepUndone::Archive)));
    assert_eq!(world.journal.stats().finished_runs, 12, "nothing is lost");
    // It is tried at once, however short ago it has failed.
    fs::remove_file(world.archive()).unwrap();
    assert_eq!(keep_up(&world, now), Some(Ok(())));
    for _ in 0..2 {
        let stats = world.journal.stats();
        assert_eq!((stats.finished_runs, stats.held_parts), (5, 0));
        let archive = archived(&world.archive());
        for author in &authors[..7] {
            assert_archived(&archive, author, author.written.len());
        }
        for author in &authors[7..] {
            author.assert_history(&world.journal);
        }
        // So it is after a crash, and nothing is left to be done.
        world = world.crash(7);
        assert_eq!(keep_up(&world, now), Some(Ok(())));
    }
}

#[test]
fn a_crash_at_any_place_loses_no_part_of_the_archive() {
    for seed in 0..20 {
        let mut dice = Dice::new(seed);
        let mut world = World::new(seed, 1 + dice.below(20_000));
        world.config.store.dead_bytes_max = 0;
        let mut world = world.crash(seed);
        let mut authors = Vec::new();
        for turn in 0..300 {
            let begins = dice.one_in(40);
            while authors.len() < 3 || (begins && authors.len() < 3 + turn / 20) {
                let number = authors.len() as u64;
                authors.push(Author::new(&world.journal, &format!("run-{number}"), number));
            }
            let from = authors.len() - 3;
            let index = from + usize::try_from(dice.below(3)).unwrap();
            let author = &mut authors[index];
            let len = if dice.one_in(20) { 60_000 } else { 900 };
            let body = vec![u8::try_from(turn % 256).unwrap(); usize::try_from(dice.below(len)).unwrap()];
            let closes = dice.one_in(15);
            if author.written.last().is_none_or(|last| last != b"end") {
                let trims = !author.written.is_empty() && dice.one_in(6);
                world.turn(author, &body, trims, false);
                if closes {
                    world.turn(author, b"end", false, true);
                }
            }
            if dice.one_in(20) {
                world.toggle_archive();
            }
            if dice.one_in(10) {
                world = world.crash(dice.roll());
                let partitions: Vec<_> = authors
                    .iter()
                    .map(|author: &Author| author.id.partition())
                    .collect();
                let epoch = world.journal.take_over(&partitions).unwrap();
                authors.iter_mut().for_each(|author| author.epoch = epoch);
            }
        }
        if world.archive().is_file() {
            world.toggle_archive();
        }
        let mut last = Author::new(&world.journal, "last", 1_000);
        world.turn(&mut last, b"the archive is rung for", false, false);
        let archive = archived(&world.archive());
        for author in &authors {
            assert_archived(&archive, author, author.trimmed);
            if author.written.last().is_some_and(|last| last == b"end") {
                let history = world.journal.history(author.run);
                match history {
                    Ok(history) => assert_eq!(history.records.len(), author.left().len()),
                    Err(_) => assert_archived(&archive, author, author.written.len()),
                }
            } else if !author.written.is_empty() {
                author.assert_history(&world.journal);
            }
        }
    }
}

#[test]
fn an_import_takes_a_run_from_its_last_kept_beginning_on() {
    let world = World::new(4, 64 << 20);
    let mut authors = Vec::new();
    for number in 0..4 {
        let mut author = Author::new(&world.journal, &format!("run-{number}"), number);
        for turn in 0..30 {
            world.turn(&mut author, b"step", turn % 10 == 9, false);
        }
        world.turn(&mut author, b"end", false, true);
        authors.push(author);
    }
    let archive = world.archive().join("archive-00000001.ndjson");
    let imported = import(
        archive,
        world.folder.path().join("imported"),
        &world.config,
        &*world.host,
    )
    .unwrap();
    assert_eq!((imported.runs, imported.trimmed_runs), (3, 3), "{imported:?}");
    // Three parts of each go before the one that ends it; that of the last run is still to come.
    assert_eq!((imported.parts, imported.cut_off), (3 * 3 + 2, 1), "{imported:?}");
}
