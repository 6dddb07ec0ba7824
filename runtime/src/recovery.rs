//! Rebuilding from the journal what was alive: the replay actor's work at open, and that of a
//! shard that starts over.
//!
//! ```text
//!   open:      log ──► Fold (by number) ─┐
//!   restart:   log ──► Lane (by run) ────┴─► Histories ──► RecoveredRun, by shard
//! ```
//!
//! What is [`Outstanding`] is gathered from each history, without running any code: that tells the
//! timers to set, the activities to run again, and what is parked. Instances themselves stay on disk
//! until something wakes them.

use std::time::Duration;

use millrun_core::{InstanceId, Partition, RunId, Timestamp};
use millrun_persistence::{Fold, Journal, Lane, Progress, ReadError, RecordView, RecoveryReport};
use millrun_workflow::{Name, OperationId, Outstanding, Parent, ParkReason, Pending};
use rustc_hash::FxHashMap;

/// What is known of a live run without its code.
#[derive(Debug)]
pub(crate) struct RecoveredRun {
    pub(crate) run: RunId,
    pub(crate) id: InstanceId,
    pub(crate) workflow: Name,
    pub(crate) pending: Vec<(OperationId, Pending)>,
    pub(crate) parked: Option<(ParkReason, Timestamp)>,
    pub(crate) parent: Option<Box<Parent>>,
}

/// What was found in a store when it was opened.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct StartupReport {
    /// Instances that are alive.
    pub live: u64,
    /// Of these, how many have no code here: their workflow is not registered.
    pub not_registered: u64,
    /// Of these, how many are parked.
    pub parked: u64,
    /// Timers that were running.
    pub timers: u64,
    /// Activities that had not reported, and run again.
    pub activities: u64,
    /// Finished runs that are retained.
    pub finished: u64,
    /// Events read.
    pub events: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Whether the file had to be repaired because the last process did not close it.
    pub is_repaired: bool,
    /// Whether the index of finished runs was damaged, and is written anew.
    pub is_index_rebuilt: bool,
    /// Time from opening the file to being ready.
    pub elapsed: Duration,
    /// Runs that are left out because their history is damaged, with what is wrong.
    pub damaged: Vec<(Option<RunId>, String)>,
}

/// What is made of the runs of one lane, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Histories {
    runs: Vec<Option<(RunId, History)>>,
}

/// What is known of one run.
#[derive(Debug)]
enum History {
    Sound(Outstanding),
    Damaged(String),
}

impl Fold for Histories {
    fn record(&mut self, number: usize, record: RecordView<'_>) {
        if self.runs.len() <= number {
            self.runs.resize_with(number + 1, || None);
        }
        let new = || (record.run, History::Sound(Outstanding::new()));
        let (_, history) = self.runs[number].get_or_insert_with(new);
        let History::Sound(outstanding) = history else {
            return;
        };
        if let Err(error) = outstanding.take(record.kind, record.body, record.time, record.opens) {
            *history = History::Damaged(format!("event {}: {error}", record.sequence));
        }
    }

    fn forget(&mut self, number: usize) {
        if let Some(run) = self.runs.get_mut(number) {
            *run = None;
        }
    }
}

impl RecoveredRun {
    fn of(run: RunId, history: &History) -> Result<Self, String> {
        let outstanding = match history {
            History::Sound(outstanding) => outstanding,
            History::Damaged(cause) => return Err(cause.clone()),
        };
        let ledger = outstanding.ledger().map_err(|error| error.to_string())?;
        let started = ledger.started().ok_or("its history has no beginning")?;
        Ok(Self {
            run,
            id: started.id.clone(),
            workflow: started.workflow.clone(),
            pending: ledger
                .pending()
                .map(|(operation, pending)| (operation, pending.clone()))
                .collect(),
            parked: ledger.parked().map(|(reason, since)| (reason.clone(), since)),
            parent: started.parent().map(Box::new),
        })
    }
}

/// The histories of as many lanes as are useful, so that the lane of a partition determines its shard.
pub(crate) fn lanes(shards_len: usize, lanes_len: usize) -> Vec<Histories> {
    let lanes_len = lanes_len.max(1).next_multiple_of(shards_len);
    (0..lanes_len).map(|_| Histories::default()).collect()
}

/// Says how far it is.
pub(crate) fn tell(progress: Progress) {
    tracing::info!(
        done_bytes = progress.bytes_done,
        total_bytes = progress.bytes_total,
        records = progress.records,
        "recovering"
    );
}

/// Reads the live runs of a journal that is open; gives them by shard. `only` restricts it to the
/// partitions of one shard.
pub(crate) fn recover(
    journal: &dyn Journal,
    shards_len: usize,
    lanes_len: usize,
    only: Option<usize>,
) -> Result<(Vec<Vec<RecoveredRun>>, StartupReport), ReadError> {
    let mut histories = lanes(shards_len, lanes_len);
    let report = {
        let mut visitors: Vec<_> = histories
            .iter_mut()
            .enumerate()
            .map(|(lane, histories)| {
                let is_wanted = only.is_none_or(|shard| lane % shards_len == shard);
                let mut numbers = FxHashMap::default();
                move |record: RecordView<'_>| {
                    if is_wanted {
                        let next = numbers.len();
                        histories.record(*numbers.entry(record.run).or_insert(next), record);
                    }
                }
            })
            .collect();
        let mut lanes: Vec<Lane<'_>> = visitors.iter_mut().map(|visitor| visitor as Lane<'_>).collect();
        journal.recover(&mut lanes, &mut tell)?
    };
    Ok(by_shard(histories, shards_len, report))
}

/// Makes of histories what shards begin with.
pub(crate) fn by_shard(
    histories: Vec<Histories>,
    shards_len: usize,
    report: RecoveryReport,
) -> (Vec<Vec<RecoveredRun>>, StartupReport) {
    let mut shards: Vec<Vec<RecoveredRun>> = (0..shards_len).map(|_| Vec::new()).collect();
    let mut startup = summary(report);
    for (lane, histories) in histories.into_iter().enumerate() {
        for (run, history) in histories.runs.into_iter().flatten() {
            match RecoveredRun::of(run, &history) {
                Ok(recovered) => {
                    startup.count(&recovered);
                    shards[lane % shards_len].push(recovered);
                }
                Err(cause) => startup.damaged.push((Some(run), cause)),
            }
        }
    }
    if startup.is_index_rebuilt {
        tracing::warn!("the index of finished runs was damaged, and is written anew from the log");
    }
    for (run, cause) in &startup.damaged {
        tracing::error!(?run, cause, "a run is left out: its history is damaged");
    }
    (shards, startup)
}

fn summary(report: RecoveryReport) -> StartupReport {
    StartupReport {
        finished: report.finished_runs,
        events: report.records,
        bytes: report.bytes,
        is_repaired: report.is_repaired,
        is_index_rebuilt: report.is_index_rebuilt,
        elapsed: report.elapsed,
        damaged: report
            .damaged
            .iter()
            .map(|error| (run_of(error), error.to_string()))
            .collect(),
        ..StartupReport::default()
    }
}

fn run_of(error: &ReadError) -> Option<RunId> {
    match error {
        ReadError::UnknownRun { run } | ReadError::Expired { run } => Some(*run),
        ReadError::Damaged { run, .. } => *run,
        _ => None,
    }
}

impl StartupReport {
    fn count(&mut self, recovered: &RecoveredRun) {
        self.live += 1;
        self.parked += u64::from(recovered.parked.is_some());
        for (_, pending) in &recovered.pending {
            match pending {
                Pending::Activity(_) => self.activities += 1,
                Pending::Timer { .. } => self.timers += 1,
                Pending::Child { .. } | Pending::Publish { .. } | Pending::Promise => {}
            }
        }
    }
}

/// The partitions that a shard hosts.
pub(crate) fn partitions_of(shard: usize, shards_len: usize) -> Vec<Partition> {
    let all = (0..Partition::COUNT).filter(|index| usize::from(*index) % shards_len == shard);
    all.filter_map(Partition::from_index).collect()
}
