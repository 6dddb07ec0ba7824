//! What the folds of a claim are told, while a store is opened and later, is what its live runs have recorded,
//! and nothing else.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use millrun_core::{Bell, Partition, RunId};
use millrun_persistence::contract::Author;
use millrun_persistence::{
    Batch, ClaimNews, Claimant, Fold, Granted, Journal, Owner, Progress, Reads, RecordView, RecoveryReport,
    RedbConfig, RedbJournal,
};

use crate::host::HandHost;

/// What was recorded, by run.
type Bodies = BTreeMap<RunId, Vec<Vec<u8>>>;

/// The records of each run that has a number.
#[derive(Default)]
struct Recorder {
    runs: Vec<Option<(RunId, Vec<Vec<u8>>)>>,
    recorded: usize,
    forgotten: usize,
}

impl Fold for Recorder {
    fn record(&mut self, number: usize, record: RecordView<'_>) {
        self.recorded += 1;
        if self.runs.len() <= number {
            self.runs.resize(number + 1, None);
        }
        let (run, bodies) = self.runs[number].get_or_insert_with(|| (record.run, Vec::new()));
        assert_eq!(*run, record.run, "the number stands for one run at a time");
        bodies.push(record.body.to_vec());
        assert_eq!(record.sequence.get(), bodies.len() as u64);
        assert_eq!(record.opens.is_some(), bodies.len() == 1);
    }

    fn forget(&mut self, number: usize) {
        self.forgotten += 1;
        if let Some(run) = self.runs.get_mut(number) {
            *run = None;
        }
    }
}

fn config() -> RedbConfig {
    let mut config = RedbConfig::default();
    config.journal.retention.len_max = 20;
    config.store.dead_bytes_max = 50_000;
    config.store.unsettled_len_max = 50;
    config
}

/// A closed store with five live runs, turns of which were moved out of the log; one that finished
/// after some of its turns were moved; and 300 that came and went. Gives those that are live.
fn filled(path: &Path) -> Vec<Author> {
    let host = HandHost::new();
    let journal = RedbJournal::open(path, config(), host.clone()).unwrap();
    let mut long: Vec<_> = (0..6)
        .map(|number| Author::new(&journal, &format!("long-{number}"), number))
        .collect();
    let mut shorts: Vec<_> = (100..400)
        .map(|number| Author::new(&journal, &format!("short-{number}"), number))
        .collect();
    let epoch = journal.take_over(&all()).unwrap();
    let authors = long.iter_mut().chain(&mut shorts);
    authors.for_each(|author| author.epoch = epoch);
    for (round, short) in shorts.iter_mut().enumerate() {
        let mut batch = Batch::new();
        short.put(&mut batch, &[&[1; 500]], false);
        if round % 40 == 0 {
            for (number, author) in (b'A'..).zip(&mut long) {
                author.put(&mut batch, &[&[number; 64], b"still here"], false);
            }
        }
        short.put(&mut batch, &[&[2; 300]], true);
        assert_eq!(journal.enqueue(&batch).unwrap().refused, []);
        host.run();
    }
    let mut batch = Batch::new();
    long.pop().unwrap().put(&mut batch, &[b"at last"], true);
    assert_eq!(journal.enqueue(&batch).unwrap().refused, []);
    host.run();
    journal.begin_close();
    host.run();
    journal.close().unwrap();
    long
}

/// The answer to a claim, which must be there.
fn granted(claimant: &Claimant) -> Granted {
    match claimant.take_news().pop() {
        Some(ClaimNews::Granted(granted)) => granted,
        other => panic!("{other:?}"),
    }
}

fn all() -> Vec<Partition> {
    (0..Partition::COUNT).filter_map(Partition::from_index).collect()
}

fn folded(path: &Path, lanes: usize) -> (Bodies, RecoveryReport, usize) {
    folded_of(path, lanes, &all())
}

fn folded_of(path: &Path, lanes: usize, claimed: &[Partition]) -> (Bodies, RecoveryReport, usize) {
    let claimant = Claimant::new(Owner::new(1), Bell::new());
    let folds = (0..lanes).map(|_| Box::new(Recorder::default()) as Box<dyn Fold>);
    let claim = claimant.claim(claimed.to_vec(), folds.collect());
    let mut last = Progress::default();
    let host = HandHost::new();
    let opened = RedbJournal::open_claiming(path, config(), host.clone(), claim, &mut |progress| {
        assert!(progress.bytes_done >= last.bytes_done && progress.bytes_done <= progress.bytes_total);
        last = progress;
    });
    let journal = opened.unwrap();
    assert_eq!(last.bytes_done, last.bytes_total);
    let mut granted = granted(&claimant);
    let report = granted.report.clone();
    let mut recorders = granted.take_folds::<Recorder>();
    // The same from a journal that is open.
    let successor = Claimant::new(Owner::new(1), Bell::new());
    let folds = (0..lanes).map(|_| Box::new(Recorder::default()) as Box<dyn Fold>);
    journal.claim(successor.claim(claimed.to_vec(), folds.collect()));
    host.run();
    let mut again = self::granted(&successor);
    assert_eq!(again.report.live_runs, report.live_runs);
    assert_eq!(again.report.records, report.records);
    for (one, other) in granted.partitions.iter().zip(&again.partitions) {
        assert_eq!((one.partition, &one.report), (other.partition, &other.report));
        assert!(one.epoch < other.epoch);
    }
    let again = again.take_folds::<Recorder>();
    journal.begin_close();
    host.run();
    journal.close().unwrap();
    for (recorder, again) in recorders.iter().zip(&again) {
        let sorted = |recorder: &Recorder| recorder.runs.iter().flatten().cloned().collect::<Bodies>();
        assert_eq!(sorted(recorder), sorted(again));
    }
    let mut bodies = Bodies::new();
    for (lane, recorder) in recorders.iter_mut().enumerate() {
        for (run, written) in recorder.runs.drain(..).flatten() {
            assert_eq!(usize::from(run.partition().index()) % lanes, lane);
            bodies.insert(run, written);
        }
    }
    let forgotten = recorders.iter().map(|recorder| recorder.forgotten).sum();
    if report.damaged.is_empty() {
        // Beside what was recorded, the last record of each run that has ended.
        let recorded: usize = recorders.iter().map(|recorder| recorder.recorded).sum();
        let records = (recorded + forgotten) as u64;
        assert!(last.records >= records, "{} of {records}", last.records);
    }
    (bodies, report, forgotten)
}

/// The same in two passes.
fn recovered(path: &Path) -> (Bodies, RecoveryReport) {
    let host = HandHost::new();
    let journal = RedbJournal::open(path, config(), host.clone()).unwrap();
    let mut bodies = Bodies::new();
    let mut lane = |record: RecordView<'_>| {
        bodies.entry(record.run).or_default().push(record.body.to_vec());
    };
    let report = journal.recover(&mut [&mut lane], &mut |_| {}).unwrap();
    journal.begin_close();
    host.run();
    journal.close().unwrap();
    (bodies, report)
}

fn written(authors: &[Author]) -> Bodies {
    authors
        .iter()
        .map(|author| (author.run, author.written.clone()))
        .collect()
}

#[test]
fn folds_end_up_with_the_records_of_live_runs_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.redb");
    let live = filled(&path);
    for lanes in 1..=3 {
        let (bodies, report, forgotten) = folded(&path, lanes);
        assert_eq!(bodies, written(&live), "{lanes} lanes");
        assert!(forgotten > 0, "runs have ended in what was read");
        let (others, other) = recovered(&path);
        assert_eq!(bodies, others);
        assert_eq!((report.damaged, other.damaged), (vec![], vec![]));
        assert_eq!(report.records, other.records);
        assert_eq!(report.live_runs, other.live_runs);
        assert_eq!(report.finished_runs, other.finished_runs);
    }
}

#[test]
fn a_claim_to_some_partitions_gets_no_records_of_others_while_a_store_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.redb");
    let mut live = filled(&path);
    let claimed: Vec<_> = live[1..3].iter().map(|author| author.id.partition()).collect();
    let (bodies, report, _) = folded_of(&path, 2, &claimed);
    live.retain(|author| claimed.contains(&author.id.partition()));
    assert_eq!(bodies, written(&live));
    assert_eq!(report.live_runs, live.len() as u64);
}

#[test]
fn a_damaged_run_is_forgotten_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.redb");
    let mut live = filled(&path);
    let mut bytes = fs::read(&path).unwrap();
    // Whatever copies of its records there are in the file.
    let damaged = live.remove(2);
    let marks: Vec<_> = (0..bytes.len() - 64)
        .filter(|at| bytes[*at..*at + 64] == [b'C'; 64])
        .collect();
    assert!(!marks.is_empty());
    marks.into_iter().for_each(|at| bytes[at + 9] ^= 1);
    fs::write(&path, bytes).unwrap();
    let (bodies, report, _) = folded(&path, 2);
    assert_eq!(bodies, written(&live));
    let (others, other) = recovered(&path);
    assert_eq!((bodies, &report.damaged), (others, &other.damaged));
    let names = |error: &millrun_persistence::ReadError| error.to_string().contains(&damaged.run.to_string());
    assert!(report.damaged.iter().any(names), "{:?}", report.damaged);
}

#[test]
fn a_new_store_gives_nothing_to_fold() {
    let folder = tempfile::tempdir().unwrap();
    let (bodies, report, forgotten) = folded(&folder.path().join("a.redb"), 2);
    assert_eq!((bodies, forgotten), (Bodies::new(), 0));
    assert_eq!((report.live_runs, report.records, report.bytes), (0, 0, 0));
}

#[test]
fn a_store_that_is_open_is_refused_before_anything_is_folded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.redb");
    let first = RedbJournal::open(&path, config(), HandHost::new()).unwrap();
    let claimant = Claimant::new(Owner::new(1), Bell::new());
    let claim = claimant.claim(all(), vec![Box::new(Recorder::default())]);
    let host: Arc<HandHost> = HandHost::new();
    let second = RedbJournal::open_claiming(&path, config(), host, claim, &mut |_| {});
    assert!(matches!(
        second,
        Err(millrun_persistence::StoreError::AlreadyOpen { .. })
    ));
    let news = claimant.take_news();
    assert!(matches!(&news[..], [ClaimNews::Refused { .. }]), "{news:?}");
    drop(first);
}
