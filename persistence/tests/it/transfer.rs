//! Archives, exports and imports: histories as lines of JSON.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use millrun_core::RunId;
use millrun_persistence::contract::Author;
use millrun_persistence::{
    Archive, BackupError, ImportError, Journal, ReadError, Reads, RedbConfig, RedbJournal, import,
};

use crate::host::HandHost;

const RETAINED: usize = 5;

struct World {
    folder: tempfile::TempDir,
    host: Arc<HandHost>,
    config: RedbConfig,
    journal: RedbJournal,
    authors: Vec<Author>,
}

impl World {
    fn new(change: impl FnOnce(&Path, &mut RedbConfig)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let host = HandHost::new();
        let mut config = RedbConfig::default();
        config.store.unsettled_len_max = 3;
        change(folder.path(), &mut config);
        let journal = RedbJournal::open(folder.path().join("a.redb"), config.clone(), host.clone()).unwrap();
        Self {
            folder,
            host,
            config,
            journal,
            authors: Vec::new(),
        }
    }

    /// A world that archives what it drops.
    fn archiving(file_bytes_max: u64) -> Self {
        Self::new(|folder, config| {
            config.journal.retention.len_max = RETAINED;
            config.store.dead_bytes_max = 0;
            let mut archive = Archive::new(folder.join("archive"));
            archive.file_bytes_max = file_bytes_max;
            config.store.archive = Some(archive);
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs of two turns each, the second of which closes them unless their number ends in 7.
    fn work(&mut self, count: u64) {
        for _ in 0..count {
            let number = self.authors.len() as u64;
            let mut author = Author::new(&self.journal, &format!("order \"{number}\""), number);
            let first = author.batch(&[&number.to_le_bytes(), b"\xff\x00\n"], false);
            author.time = author.time + Duration::from_micros(1);
            let second = author.batch(&[&vec![7; 300]], number % 10 != 7);
            for batch in [first, second] {
                assert_eq!(self.journal.enqueue(&batch).unwrap().refused, []);
                self.host.run();
            }
            self.authors.push(author);
        }
    }

    fn closed(&self) -> impl Iterator<Item = &Author> {
        (0..)
            .zip(&self.authors)
            .filter(|(number, _)| number % 10 != 7)
            .map(|(_, author)| author)
    }

    /// The runs whose whole history is in the archive, and in how many files.
    fn archived(&self) -> (Vec<RunId>, usize) {
        let mut files: Vec<_> = fs::read_dir(self.path("archive"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        files.sort();
        let mut bodies: BTreeMap<String, usize> = BTreeMap::new();
        for file in &files {
            let text = fs::read_to_string(file).unwrap();
            assert!(
                text.starts_with("{\"format\":\"millrun histories\",\"version\":1,\"all_closed\":true}\n")
            );
            for line in text.lines().skip(1) {
                let run = line.strip_prefix("{\"run\":\"").unwrap()[..32].to_owned();
                *bodies.entry(run).or_default() += 1;
            }
        }
        let whole = self.authors.iter().filter(|author| {
            let lines = bodies.get(&format!("{:032x}", author.run.bits()));
            lines.is_some_and(|lines| *lines >= author.written.len())
        });
        (whole.map(|author| author.run).collect(), files.len())
    }

    fn dropped(&self) -> Vec<RunId> {
        let closed = self
            .closed()
            .filter(|author| self.journal.history(author.run).is_err());
        closed.map(|author| author.run).collect()
    }
}

/// A history of several pages is written page by page, so the first ones are in the file already when
/// the damage is found. Where the last turn was damaged, what came before it used to pass for the
/// whole history.
#[test]
fn a_long_run_that_is_damaged_leaves_no_trace_in_an_export() {
    for damaged in [b'c', b'd'] {
        let mut world = World::new(|_, config| config.store.cache_bytes_max = 0);
        world.work(3);
        let mut long = Author::new(&world.journal, "long", 1_000);
        for mark in [b'a', b'b', b'c', b'd'] {
            let batch = long.batch(&[b"first", &vec![mark; 3 << 20]], mark == b'd');
            assert_eq!(world.journal.enqueue(&batch).unwrap().refused, []);
            world.host.run();
        }
        world.work(3);
        // Behind the journal's back, as a disk would.
        let store = world.path("a.redb");
        let image = fs::read(&store).unwrap();
        let at = image
            .windows(64)
            .position(|bytes| bytes == [damaged; 64])
            .unwrap();
        let file = fs::File::options().write(true).open(&store).unwrap();
        file.write_all_at(b"?", at as u64 + 1_000).unwrap();

        let is_named =
            |error: &ReadError| matches!(error, ReadError::Damaged { run, .. } if *run == Some(long.run));
        assert!(is_named(&world.journal.history(long.run).unwrap_err()));
        let path = world.path("all.ndjson");
        let exported = world.journal.export(&path).unwrap();
        assert!(exported.damaged.len() == 1 && exported.damaged.iter().all(is_named));
        let records: usize = world.authors.iter().map(|author| author.written.len()).sum();
        assert_eq!((exported.runs, exported.records), (6, records as u64));
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 1 + records);
        assert!(!text.contains(&format!("{:032x}", long.run.bits())));
    }
}

#[test]
fn what_is_dropped_is_in_the_archive() {
    let mut world = World::archiving(64 << 20);
    world.work(60);
    let (archived, files) = world.archived();
    let dropped = world.dropped();
    assert!(dropped.len() > 30, "{} were dropped", dropped.len());
    assert!(dropped.iter().all(|run| archived.contains(run)));
    assert_eq!(files, 1);
    let stats = world.journal.stats();
    assert_eq!(stats.archived_runs, archived.len() as u64);
    assert!(!stats.is_archive_failing);
}

#[test]
fn archives_are_kept_in_files_of_a_bounded_size() {
    let mut world = World::archiving(2_000);
    world.work(60);
    let (archived, files) = world.archived();
    assert!(world.dropped().iter().all(|run| archived.contains(run)));
    assert!(files > 5, "{files} files");
    for entry in fs::read_dir(world.path("archive")).unwrap() {
        let bytes = entry.unwrap().metadata().unwrap().len();
        assert!(bytes < 2_000 + 1_500, "{bytes} bytes in a file");
    }
}

#[test]
fn nothing_is_dropped_while_the_archive_cannot_be_written() {
    let mut world = World::archiving(64 << 20);
    // A file stands where the folder should be.
    fs::write(world.path("archive"), b"in the way").unwrap();
    world.work(40);
    assert_eq!(world.dropped(), []);
    let stats = world.journal.stats();
    assert!(stats.is_archive_failing);
    assert_eq!((stats.dropped_runs, stats.archived_runs), (0, 0));
    // Once it can be written, it is tried again, and what has waited is dropped.
    fs::remove_file(world.path("archive")).unwrap();
    world.host.advance(Duration::from_secs(11));
    world.work(20);
    let stats = world.journal.stats();
    assert!(!stats.is_archive_failing);
    assert!(world.dropped().len() > 30, "{stats:?}");
    let (archived, _) = world.archived();
    assert!(world.dropped().iter().all(|run| archived.contains(run)));
}

#[test]
fn after_a_crash_the_archive_goes_on_in_a_new_file() {
    let mut world = World::archiving(64 << 20);
    for round in 1..=3 {
        world.work(30);
        let copy = world.path(&format!("crashed-{round}.redb"));
        let latest = if round == 1 {
            "a.redb".to_owned()
        } else {
            format!("crashed-{}.redb", round - 1)
        };
        fs::copy(world.path(&latest), &copy).unwrap();
        let host = HandHost::new();
        world.journal = RedbJournal::open(&copy, world.config.clone(), host.clone()).unwrap();
        world.host = host;
    }
    world.work(10);
    let (archived, files) = world.archived();
    assert!(world.dropped().len() > 60);
    assert!(world.dropped().iter().all(|run| archived.contains(run)));
    assert!(files >= 3, "{files} files");
}

#[test]
fn an_export_imports_into_a_store_with_the_same_histories() {
    let mut world = World::new(|_, _| {});
    world.work(50);
    let (lines, copy) = (world.path("all.ndjson"), world.path("copy.redb"));
    let exported = world.journal.export(&lines).unwrap();
    assert_eq!(
        (exported.runs, exported.records, exported.damaged.len()),
        (50, 150, 0)
    );
    assert!(matches!(
        world.journal.export(&lines),
        Err(BackupError::Exists { .. })
    ));
    let imported = import(&lines, &copy, &world.config, &*world.host).unwrap();
    assert_eq!((imported.runs, imported.records, imported.repeated), (50, 150, 0));

    let restored = RedbJournal::open(&copy, world.config.clone(), world.host.clone()).unwrap();
    for author in &world.authors {
        assert_eq!(restored.history(author.run), world.journal.history(author.run));
    }
    assert_eq!(
        restored.list_finished(None, 100),
        world.journal.list_finished(None, 100)
    );
    let report = restored.recover(&mut [&mut |_| {}], &mut |_| {}).unwrap();
    assert_eq!((report.live_runs, report.finished_runs), (5, 45));
    assert_eq!((report.is_repaired, report.damaged), (false, Vec::new()));
    assert_eq!(restored.verify().unwrap().damaged, []);
    // And it is written to as any other.
    let mut live = world.authors[7].clone();
    live.epoch = restored.take_over(&[live.id.partition()]).unwrap();
    let batch = live.batch(&[b"more"], true);
    assert_eq!(restored.enqueue(&batch).unwrap().refused, []);
    world.host.run();
    live.assert_history(&restored);
    // What was exported is imported byte for byte.
    let again = world.path("again.ndjson");
    world.journal.export(&again).unwrap();
    assert_eq!(fs::read(&lines).unwrap(), fs::read(&again).unwrap());
}

#[test]
fn an_archive_is_imported_and_what_is_in_it_twice_only_once() {
    let mut world = World::archiving(64 << 20);
    world.work(30);
    let mut text = fs::read(world.path("archive").join("archive-00000001.ndjson")).unwrap();
    let runs = world.archived().0;
    // A crash after the sync and before the drop: the same runs again, and one that was cut off,
    // without the line that closes it and with half of another.
    let body = text.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let mut again = text[body..].to_vec();
    again.truncate(again.len() - 40);
    let closing = again.iter().rposition(|byte| *byte == b'\n').unwrap();
    again.truncate(closing + 20);
    text.extend_from_slice(&again);
    fs::write(world.path("twice.ndjson"), &text).unwrap();
    let copy = world.path("copy.redb");
    let imported = import(world.path("twice.ndjson"), &copy, &world.config, &*world.host).unwrap();
    let count = runs.len() as u64;
    assert_eq!(
        (imported.runs, imported.repeated, imported.cut_off),
        (count, count - 1, 1)
    );
    let restored = RedbJournal::open(&copy, RedbConfig::default(), HandHost::new()).unwrap();
    for author in world.authors.iter().filter(|author| runs.contains(&author.run)) {
        author.assert_history(&restored);
    }
    assert_eq!(
        restored.stats().live_runs,
        0,
        "nothing that had finished is alive again"
    );
}

#[test]
fn a_file_that_makes_no_sense_leaves_no_store_and_names_the_line() {
    let world = World::new(|_, _| {});
    let header = "{\"format\":\"millrun histories\",\"version\":1}\n";
    let line = |sequence: u32, id: &str| {
        let run = world
            .authors
            .first()
            .map_or("032a018bcfe5680100000000000005bf", |_| "");
        format!("{{\"run\":\"{run}\",\"sequence\":{sequence},\"time_us\":1,\"kind\":1{id},\"body\":\"\"}}\n")
    };
    let check = |text: String, expected: u64| {
        let (lines, store) = (world.path("bad.ndjson"), world.path("bad.redb"));
        fs::write(&lines, &text).unwrap();
        let outcome = import(&lines, &store, &world.config, &*world.host);
        assert!(
            matches!(&outcome, Err(ImportError::Line { line, .. }) if *line == expected),
            "{text}: {outcome:?}"
        );
        assert!(!store.exists() && !world.path("bad.redb.new").exists());
    };
    check(String::new(), 1);
    check("nonsense\n".to_owned(), 1);
    check(format!("{header}nonsense\n"), 2);
    check(format!("{header}{}", line(1, "")), 2);
    check(format!("{header}{}", line(2, "")), 2);
    // The id belongs to another partition than the run.
    check(format!("{header}{}{}", line(1, ",\"id\":\"x\""), line(2, "")), 3);
    check(format!("{header}{}{}", line(1, ",\"id\":\"x\""), line(3, "")), 3);

    let taken = world.path("taken.redb");
    fs::write(&taken, b"mine").unwrap();
    let outcome = import(world.path("bad.ndjson"), &taken, &world.config, &*world.host);
    assert!(matches!(outcome, Err(ImportError::Exists { .. })));
    assert_eq!(fs::read(&taken).unwrap(), b"mine");
}
