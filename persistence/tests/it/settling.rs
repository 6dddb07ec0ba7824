//! The index of finished runs is settled on disk, costs a few bytes of memory a run, and can be
//! lost at any moment.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use millrun_core::{InstanceId, Partition, RunId, Sequence, Timestamp};
use millrun_persistence::contract::Author;
use millrun_persistence::{Batch, FinishedSearch, Journal, ReadError, Reads, RedbConfig, RedbJournal};

use crate::crash::disk::{Dice, SimDisk};
use crate::host::HandHost;

/// Many runs that start and finish, and what is known of them.
struct World {
    config: RedbConfig,
    host: Arc<HandHost>,
    disk: Arc<SimDisk>,
    journal: RedbJournal,
    /// In the order of closing: run, id, and size of its first record.
    closed: Vec<(RunId, InstanceId, usize)>,
    begun: u64,
    dice: Dice,
}

fn config() -> RedbConfig {
    let mut config = RedbConfig::default();
    config.store.unsettled_len_max = 100;
    config.store.settle_bytes_max = 20_000;
    config
}

/// Whether the last record of a run is of the kind 2, and not of the kind 1.
fn is_seldom(run: RunId) -> bool {
    (run.bits() & u128::from(u64::MAX)).is_multiple_of(101)
}

impl World {
    fn new(config: RedbConfig) -> Self {
        Self::open(config, Vec::new(), Vec::new())
    }

    fn open(config: RedbConfig, image: Vec<u8>, closed: Vec<(RunId, InstanceId, usize)>) -> Self {
        let (host, disk) = (HandHost::new(), SimDisk::new(image, 1));
        let journal = RedbJournal::open_disk(disk.clone(), "simulated", config.clone(), host.clone());
        Self {
            config,
            host,
            disk,
            journal: journal.unwrap(),
            begun: closed.len() as u64,
            closed,
            dice: Dice::new(5),
        }
    }

    /// Starts a run of one record, which does not finish.
    fn open_run(&mut self, name: &str) -> RunId {
        let all: Vec<_> = (0..Partition::COUNT).filter_map(Partition::from_index).collect();
        let epoch = self.journal.take_over(&all).unwrap();
        let id = InstanceId::new(name).unwrap();
        self.begun += 1;
        let time = Timestamp::from_micros(1_700_000_000_000_000 + self.begun);
        let mut author = Author {
            run: RunId::new(id.partition(), time, self.begun),
            id,
            head: Sequence::ZERO,
            epoch,
            time,
            written: Vec::new(),
            trimmed: 0,
        };
        let mut batch = Batch::new();
        author.put(&mut batch, &[b"begun"], false);
        assert_eq!(self.journal.enqueue(&batch).unwrap().refused, []);
        self.host.run();
        author.run
    }

    /// The same world, as it is found after a crash at this moment.
    fn crashed(&self) -> Self {
        Self::open(self.config.clone(), self.disk.current(), self.closed.clone())
    }

    /// Starts and finishes `count` runs, `per_commit` at a time; a quarter of them reuse an id.
    fn work(&mut self, count: u64, per_commit: u64) {
        let all: Vec<_> = (0..Partition::COUNT).filter_map(Partition::from_index).collect();
        let epoch = self.journal.take_over(&all).unwrap();
        let mut batch = Batch::new();
        for number in 0..count {
            self.begun += 1;
            let name = if self.dice.one_in(4) {
                self.begun / 7
            } else {
                self.begun
            };
            let id = InstanceId::new(&format!("id-{name}")).unwrap();
            let time = Timestamp::from_micros(1_700_000_000_000_000 + self.begun);
            let mut author = Author {
                run: RunId::new(id.partition(), time, self.begun),
                id,
                head: Sequence::ZERO,
                epoch,
                time,
                written: Vec::new(),
                trimmed: 0,
            };
            let len = usize::try_from(self.dice.below(60)).unwrap();
            if is_seldom(author.run) {
                author.put(&mut batch, &[&vec![7; len], b"end"], true);
            } else {
                author.put(&mut batch, &[&vec![7; len]], false);
                author.put(&mut batch, &[b"end"], true);
            }
            self.closed.push((author.run, author.id, len));
            if number % per_commit == per_commit - 1 || number == count - 1 {
                assert_eq!(self.journal.enqueue(&batch).unwrap().refused, []);
                self.host.run();
                batch.clear();
            }
        }
    }

    /// The retained runs whose last record is of one of these kinds, the latest closed first.
    fn search(&self, kinds: &[u8], len_max: usize) -> Vec<RunId> {
        let (mut search, mut runs) = (FinishedSearch::new(), Vec::new());
        search.kinds = kinds.iter().copied().collect();
        loop {
            let found = self.journal.find_finished(&search, len_max).unwrap();
            assert_eq!(found.unreadable, [0; 0]);
            runs.extend(found.runs.iter().map(|finished| finished.run));
            search.before = found.next;
            if search.before.is_none() {
                return runs;
            }
        }
    }

    /// Everything that is retained is found in every way, and nothing else.
    fn check(&self) {
        let stats = self.journal.stats();
        let dropped = self.closed.len() - usize::try_from(stats.finished_runs).unwrap();
        let (dropped, retained) = self.closed.split_at(dropped);
        let listed = self.journal.list_finished(None, usize::MAX).unwrap();
        let expected: Vec<_> = retained.iter().map(|(run, ..)| *run).collect();
        assert_eq!(
            listed.iter().map(|finished| finished.run).collect::<Vec<_>>(),
            expected
        );
        assert!(
            self.search(&[1, 2], 1_000)
                .into_iter()
                .eq(expected.into_iter().rev())
        );
        let seldom = retained
            .iter()
            .map(|(run, ..)| *run)
            .filter(|run| is_seldom(*run));
        assert!(self.search(&[2], 3).into_iter().eq(seldom.rev()));
        let mut latest = BTreeMap::new();
        for (run, id, len) in retained {
            let history = self.journal.history(*run).unwrap();
            assert_eq!((history.records.len(), history.records[0].body.len()), (2, *len));
            latest.insert(id.clone(), *run);
        }
        for (id, run) in latest {
            assert_eq!(
                self.journal.finished(&id).unwrap().map(|found| found.run),
                Some(run)
            );
        }
        for (run, ..) in dropped {
            assert!(matches!(
                self.journal.history(*run),
                Err(ReadError::UnknownRun { .. } | ReadError::Expired { .. })
            ));
        }
        let verified = self.journal.verify().unwrap();
        assert_eq!(verified.damaged, []);
    }
}

#[test]
fn a_finished_run_costs_a_few_bytes_of_memory() {
    let mut world = World::new(config());
    // By then as many wait to be settled as ever will.
    world.work(16_000, 100);
    let before = world.journal.stats();
    world.work(20_000, 100);
    let after = world.journal.stats();
    assert_eq!(after.finished_runs, 36_000);
    let each = (after.index_bytes - before.index_bytes) as f64 / 20_000.0;
    println!("{each:.2} bytes per finished run, {} in all", after.index_bytes);
    assert!(each < 6.0, "{each} bytes per finished run");
    world.check();
}

/// Each commit may take along less than as many runs as closed in it would need.
#[test]
fn what_waits_to_be_settled_is_bounded_however_many_runs_close_with_a_commit() {
    let mut world = World::new(config());
    let mut waiting_max = 0;
    for _ in 0..30 {
        world.work(2_000, 2_000);
        let stats = world.journal.stats();
        // What is settled takes less than six bytes each, what waits two hundred.
        let waiting = stats.index_bytes.saturating_sub(6 * stats.finished_runs) / 200;
        waiting_max = waiting_max.max(waiting);
    }
    println!("{waiting_max} runs waited");
    assert!(
        waiting_max < 8_000,
        "{waiting_max} of {} runs",
        world.closed.len()
    );
    assert_eq!(world.journal.verify().unwrap().damaged, []);
}

#[test]
fn what_is_settled_is_found_after_each_of_many_crashes() {
    let mut world = World::new(config());
    // As many runs as make sorted runs of three levels, in commits that end at odd moments.
    for round in 0..24 {
        world.work(400 + round, 17);
        let found = world.crashed();
        assert_eq!(found.journal.stats().finished_runs, world.closed.len() as u64);
        if round % 12 == 11 {
            found.check();
            world = found;
        }
    }
    world.check();
}

#[test]
fn retention_drops_what_is_settled_and_its_rows() {
    let mut config = config();
    config.journal.retention.len_max = 2_000;
    config.journal.retention.expired_len_max = 500;
    config.store.dead_bytes_max = 100_000;
    let mut world = World::new(config);
    for _ in 0..3 {
        world.work(2_500, 40);
        assert_eq!(world.journal.stats().finished_runs, 2_000);
        world.check();
        world = world.crashed();
        assert_eq!(world.journal.stats().finished_runs, 2_000);
    }
    world.check();
    // The last that were dropped are remembered by name.
    let first = world.closed.len() - 2_000;
    for (run, ..) in &world.closed[first - 500..first] {
        assert_eq!(world.journal.history(*run), Err(ReadError::Expired { run: *run }));
    }
    let stats = world.journal.stats();
    assert!(stats.log_bytes < 3 * stats.live_bytes + 400_000, "{stats:?}");
}

#[test]
fn a_smaller_retention_after_reopening_drops_what_was_settled() {
    let mut world = World::new(config());
    world.work(3_000, 40);
    world.config.journal.retention.len_max = 100;
    world.config.store.dead_bytes_max = 0;
    let mut world = world.crashed();
    world.work(500, 10);
    assert_eq!(world.journal.stats().finished_runs, 100);
    world.check();
}

#[test]
fn recovery_reads_the_log_from_the_first_record_of_a_live_run_on() {
    let mut world = World::new(config());
    world.work(2_000, 40);
    let end = world.journal.stats().log_bytes;
    let recovered = |world: &World| {
        let crashed = world.crashed();
        let mut records = Vec::new();
        let mut lane = |record: millrun_persistence::RecordView<'_>| records.push(record.run);
        let report = crashed.journal.recover(&mut [&mut lane], &mut |_| {}).unwrap();
        (records, report.bytes)
    };
    assert_eq!(recovered(&world), (vec![], 0));

    let first = world.open_run("first");
    let log_bytes = world.journal.stats().log_bytes;
    assert_eq!(recovered(&world), (vec![first], log_bytes - end));
    world.work(500, 40);
    let second = world.open_run("second");
    let log_bytes = world.journal.stats().log_bytes;
    assert_eq!(recovered(&world), (vec![first, second], log_bytes - end));
    world.check();
}

/// A bit that flips in the index costs time when the store is opened, and nothing else.
#[test]
fn a_damaged_index_is_written_anew_from_the_log() {
    let mut world = World::new(config());
    world.work(1_500, 30);
    // In a file that was not closed, damage can look like a commit that was under way.
    world.journal.begin_close();
    world.host.run();
    let (closed, image) = (world.closed.clone(), world.disk.current());
    let mut dice = Dice::new(3);
    let mut rebuilt = 0;
    for _ in 0..60 {
        let mut damaged = image.clone();
        let at = usize::try_from(dice.below(image.len() as u64)).unwrap();
        damaged[at] ^= 1 << dice.below(8);
        let (host, disk) = (HandHost::new(), SimDisk::new(damaged, 1));
        let Ok(journal) = RedbJournal::open_disk(disk, "simulated", config(), host.clone()) else {
            continue;
        };
        let report = journal.recover(&mut [&mut |_| {}], &mut |_| {}).unwrap();
        rebuilt += u32::from(report.is_index_rebuilt);
        for (run, _, len) in &closed {
            match journal.history(*run) {
                Ok(history) => assert_eq!(history.records[0].body.len(), *len),
                Err(ReadError::Damaged { .. }) => {}
                Err(error) => panic!("bit at {at}: {error}, and nothing says why: {report:?}"),
            }
        }
    }
    assert!(rebuilt > 0, "no bit fell into the index");
}

/// What may be dropped is read from settled rows; while one cannot be read, nothing goes.
#[test]
fn settled_rows_that_cannot_be_read_stop_retention_and_the_journal_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.redb");
    let mut config = RedbConfig::default();
    config.store.unsettled_len_max = 20;
    // More than are read ahead of retention.
    config.journal.retention.len_max = 400;
    config.store.cache_bytes_max = 0;
    let open = || {
        let host = HandHost::new();
        let journal = RedbJournal::open(&path, config.clone(), host.clone()).unwrap();
        (host, journal)
    };
    let work = |host: &HandHost, journal: &RedbJournal, numbers: std::ops::Range<u64>| {
        for number in numbers {
            let mut author = Author::new(journal, &format!("id-{number}"), number);
            let batch = author.batch(&[b"begun", b"done"], true);
            assert_eq!(journal.enqueue(&batch).unwrap().refused, []);
            host.run();
        }
    };
    let (host, journal) = open();
    work(&host, &journal, 0..600);
    assert!(!journal.stats().is_retention_stopped);
    assert_eq!(journal.stats().finished_runs, 400);

    // A bit in each row of finished runs, behind the journal's back: version 2, kind 1.
    let image = fs::read(&path).unwrap();
    let file = fs::File::options().write(true).open(&path).unwrap();
    let mut damaged = 0;
    for (at, row) in image.windows(24).enumerate() {
        let is_row = row[..4] == [2, 0, 1, 0] && row[4] > 0 && row[5..8] == [0; 3] && row[10..20] == [0; 10];
        if is_row {
            file.write_all_at(&[image[at + 30] ^ 1], at as u64 + 30).unwrap();
            damaged += 1;
        }
    }
    assert!(damaged > 0);
    work(&host, &journal, 600..1_200);
    assert!(journal.stats().is_retention_stopped);
    assert!(
        journal.stats().finished_runs > 700,
        "nothing is dropped: {:?}",
        journal.stats()
    );

    journal.begin_close();
    host.run();
    drop(journal);
    let (host, journal) = open();
    let report = journal.recover(&mut [&mut |_| {}], &mut |_| {}).unwrap();
    assert!(report.is_index_rebuilt);
    work(&host, &journal, 1_200..1_240);
    let stats = journal.stats();
    assert_eq!((stats.is_retention_stopped, stats.finished_runs), (false, 400));
}
