//! A store with everything in it that a store can have, as a killed process leaves it; and a judge.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use millrun_core::{Epoch, InstanceId, Partition, RunId, Sequence, Timestamp};
use millrun_persistence::contract::Author;
use millrun_persistence::{
    Journal, Reads, RedbConfig, RedbJournal, SalvageError, SalvageOptions, SalvageReport, Snapshot, salvage,
};

use super::flipper::Chance;
use crate::crash::disk::SimDisk;
use crate::host::HandHost;

/// The bodies of a run's records, and whether it has finished.
type Runs = BTreeMap<RunId, (InstanceId, Vec<Vec<u8>>, bool)>;

/// A store's file, and what is in it.
pub(crate) struct World {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) image: Vec<u8>,
    config: RedbConfig,
    /// What a sound store with this file holds.
    pub(crate) runs: Runs,
    /// Finished runs in the order in which they closed.
    pub(crate) closed: Vec<RunId>,
    /// Everything that was ever written, of runs that were dropped as well.
    ever: Runs,
}

fn config() -> RedbConfig {
    let mut config = RedbConfig::default();
    config.store.zero_ahead_bytes = 0;
    config.store.unsettled_len_max = 8;
    config.store.dead_bytes_max = 0;
    config.journal.retention.len_max = 150;
    config
}

impl World {
    /// Three lives of a store, each ended by a kill or a power cut: long runs that live on, of which turns
    /// were moved out of the log; finished runs, settled and not; many that were dropped; snapshots.
    pub(crate) fn crashed() -> Self {
        Self::new(true)
    }

    /// The same, and closed.
    pub(crate) fn closed() -> Self {
        Self::new(false)
    }

    fn new(is_crashed: bool) -> Self {
        let config = config();
        let mut chance = Chance::new(77);
        let (mut image, mut authors): (Vec<u8>, Vec<Author>) = (Vec::new(), Vec::new());
        for life in 0..3_u64 {
            let (host, disk) = (HandHost::new(), SimDisk::new(image, life));
            let journal =
                RedbJournal::open_disk(disk.clone(), "simulated", config.clone(), host.clone()).unwrap();
            let epoch = take_back(&journal, &mut authors);
            for _ in 0..150 {
                step(&journal, epoch, &mut authors, &mut chance);
                host.run();
            }
            if life < 2 {
                // The last commit is cut off in the middle.
                let before = authors.clone();
                disk.cut_after(3 + 2 * life);
                step(&journal, epoch, &mut authors, &mut chance);
                host.run();
                image = disk.image().expect("a commit has more accesses than that");
                authors = before;
            } else {
                if !is_crashed {
                    journal.begin_close();
                    host.run();
                }
                image = disk.current();
            }
            drop(journal);
            host.end_parts();
        }
        let ever = authors.iter().map(|author| {
            let is_closed = is_closed(author);
            (author.run, (author.id.clone(), author.written.clone(), is_closed))
        });
        let mut world = Self {
            folder: tempfile::tempdir().unwrap(),
            image,
            config,
            runs: Runs::new(),
            closed: Vec::new(),
            ever: ever.collect(),
        };
        let path = world.path("sound");
        fs::write(&path, &world.image).unwrap();
        (world.runs, world.closed) = world.read(&path);
        let live = world.runs.values().filter(|(_, _, is_closed)| !is_closed).count();
        assert!(
            live >= 40 && (150..200).contains(&world.closed.len()),
            "{live} live, {} finished",
            world.closed.len()
        );
        for (run, (_, bodies, _)) in &world.runs {
            assert_eq!(
                *bodies, world.ever[run].1,
                "a sound store has what was acknowledged"
            );
        }
        world
    }

    /// A store that was written by an earlier release, of which it is known what a sound one holds.
    pub(crate) fn of(image: Vec<u8>) -> Self {
        let mut world = Self {
            folder: tempfile::tempdir().unwrap(),
            image,
            config: config(),
            runs: Runs::new(),
            closed: Vec::new(),
            ever: Runs::new(),
        };
        let path = world.path("sound");
        fs::write(&path, &world.image).unwrap();
        (world.runs, world.closed) = world.read(&path);
        world.ever = world.runs.clone();
        world
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Everything in a store: runs, and the order in which finished ones closed.
    pub(crate) fn read(&self, path: &Path) -> (Runs, Vec<RunId>) {
        let host = HandHost::new();
        let mut config = self.config.clone();
        // Nothing more is dropped by this opening.
        config.journal.retention.len_max = 1_000_000;
        let journal = RedbJournal::open(path, config, host.clone()).unwrap();
        let mut runs = BTreeSet::new();
        let mut lane = |record: millrun_persistence::RecordView<'_>| {
            runs.insert(record.run);
        };
        let report = journal.recover(&mut [&mut lane], &mut |_| {}).unwrap();
        assert_eq!(report.damaged, []);
        let closed: Vec<_> = journal.list_finished(None, 100_000).unwrap();
        let closed: Vec<_> = closed.iter().map(|finished| finished.run).collect();
        runs.extend(&closed);
        let read = runs.into_iter().map(|run| {
            let history = journal.history(run).unwrap();
            let is_closed = history.is_closed();
            assert_eq!(is_closed, closed.contains(&run));
            let bodies = history
                .records
                .iter()
                .map(|record| record.body.to_vec())
                .collect();
            (run, (history.id, bodies, is_closed))
        });
        let runs = read.collect();
        drop(journal);
        host.run();
        host.end_parts();
        (runs, closed)
    }

    /// Salvages a file to `target`, which is made anew, and sees that the source is as it was.
    pub(crate) fn salvage(&self, source: &Path, target: &Path) -> Result<SalvageReport, SalvageError> {
        fs::remove_file(target).ok();
        let before = (
            fs::read(source).unwrap(),
            fs::metadata(source).unwrap().modified().unwrap(),
        );
        let host = HandHost::new();
        let mut options = SalvageOptions::default();
        options.store = self.config.store.clone();
        let report = salvage(source, target, &options, &*host, &mut |_| {});
        let after = (
            fs::read(source).unwrap(),
            fs::metadata(source).unwrap().modified().unwrap(),
        );
        assert!(before == after, "the source is as it was");
        host.end_parts();
        report
    }

    /// Salvages this damaged file and judges what comes of it; returns how many runs came back.
    pub(crate) fn judge(&self, damaged: &[u8], what: &str) -> Judged {
        let (source, target) = (self.path("damaged"), self.path("salvaged"));
        fs::write(&source, damaged).unwrap();
        let report = self
            .salvage(&source, &target)
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        let (found, _) = self.read(&target);
        let mut judged = Judged {
            report,
            ..Judged::default()
        };
        let report = &judged.report;
        assert_eq!(
            found.len() as u64,
            report.live_runs + report.finished_runs,
            "{what}"
        );
        for (run, (id, bodies, is_closed)) in &found {
            let (known_id, written, was_closed) =
                self.ever.get(run).unwrap_or_else(|| panic!("{what}: invented"));
            let is_prefix = written
                .get(..bodies.len())
                .is_some_and(|written| written == bodies);
            assert!(
                is_prefix && id == known_id,
                "{what}: {id} has what was never written"
            );
            let is_whole = bodies == written && is_closed == was_closed;
            match self.runs.contains_key(run) {
                true => {
                    let is_said = report.maybe_shorter.contains(run);
                    assert!(
                        is_whole || is_said,
                        "{what}: {id} is shorter, and nothing says so"
                    );
                    judged.back += usize::from(is_whole);
                }
                // Of a run that was dropped, some records are left, and it is said that there were more.
                false if report.maybe_shorter.contains(run) => {}
                false => {
                    judged.forgotten += 1;
                    judged
                        .came_back
                        .push((id.clone(), bodies.len(), written.len(), *is_closed));
                }
            }
        }
        let is_said = judged.forgotten == 0 || !report.unknown.is_empty();
        assert!(
            is_said,
            "{what}: dropped runs came back, and nothing says so: {:?} {report:?}",
            judged.came_back
        );
        for (run, (id, _, _)) in self.runs.iter().filter(|(run, _)| !found.contains_key(run)) {
            let is_named = report.not_whole.iter().any(|lost| lost.run == *run);
            let is_counted =
                !report.without_owner.is_empty() || !report.gaps.is_empty() || report.lost_pages > 0;
            assert!(
                is_named || is_counted,
                "{what}: {id} is missing, and nothing says so"
            );
        }
        judged
    }
}

/// What a salvage came to.
#[derive(Debug, Default)]
pub(crate) struct Judged {
    /// Runs that came back whole.
    pub(crate) back: usize,
    /// Runs that came back though they had been dropped.
    pub(crate) forgotten: usize,
    /// Their ids, how many records each has and had, and whether it is finished.
    pub(crate) came_back: Vec<(InstanceId, usize, usize, bool)>,
    pub(crate) report: SalvageReport,
}

fn is_closed(author: &Author) -> bool {
    author.written.last().is_some_and(|body| body == b"closed")
}

/// Takes the partitions over, and forgets what was not acknowledged.
fn take_back(journal: &RedbJournal, authors: &mut [Author]) -> Epoch {
    let all: Vec<_> = (0..Partition::COUNT).filter_map(Partition::from_index).collect();
    let epoch = journal.take_over(&all).unwrap();
    for author in authors.iter_mut().filter(|author| !is_closed(author)) {
        author.epoch = epoch;
        if let Ok(history) = journal.history(author.run) {
            let bodies = history.records.iter().map(|record| record.body.to_vec());
            author.written = bodies.collect();
            author.head = history.head();
        }
    }
    epoch
}

/// Some runs begin, and some go on: one in sixteen lives for ever.
fn step(journal: &RedbJournal, epoch: Epoch, authors: &mut Vec<Author>, chance: &mut Chance) {
    for _ in 0..3 {
        let number = authors.len() as u64;
        let id = InstanceId::new(&format!("instance-{number}")).unwrap();
        let time = Timestamp::from_micros(1_700_000_000_000_000 + number);
        authors.push(Author {
            run: RunId::new(id.partition(), time, number),
            id,
            head: Sequence::ZERO,
            epoch,
            time,
            written: Vec::new(),
            trimmed: 0,
        });
    }
    let from = authors.len().saturating_sub(60);
    for (index, author) in authors.iter_mut().enumerate() {
        let is_long = index % 16 == 0;
        if is_closed(author) || !(index >= from || is_long) || chance.below(if is_long { 30 } else { 2 }) > 0
        {
            continue;
        }
        author.time = author.time + std::time::Duration::from_micros(1 + chance.below(9) as u64);
        let len = if chance.below(12) == 0 { 9_000 } else { 200 };
        let body = vec![u8::try_from(chance.below(256)).unwrap(); chance.below(len)];
        let ends = !is_long && chance.below(2) == 0;
        let last: &[u8] = if ends { b"closed" } else { b"turn" };
        let batch = author.batch(&[&body, last], ends);
        assert_eq!(journal.enqueue(&batch).unwrap().refused, []);
        if is_long && chance.below(5) == 0 {
            let snapshot = Snapshot {
                run: author.run,
                sequence: author.head,
                bytes: vec![7; 100].into(),
            };
            journal.put_snapshot(snapshot).unwrap();
        }
    }
    let is_unbegun = |author: &Author| author.written.is_empty();
    for author in authors.iter_mut().filter(|author| is_unbegun(author)) {
        let batch = author.batch(&[b"begun"], false);
        assert_eq!(journal.enqueue(&batch).unwrap().refused, []);
    }
}
