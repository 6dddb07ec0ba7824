//! Rebuilding from the journal what was alive: the replay actor's work at open, and that of a
//! shard that starts over.
//!
//! Each history is folded into a [`Ledger`], without running any code: that tells the timers to
//! set, the activities to run again, and what is parked. Instances themselves stay on disk until
//! something wakes them.

use std::time::Duration;

use bytes::Bytes;
use millrun_core::{InstanceId, Partition, RunId, Timestamp};
use millrun_persistence::{Journal, Lane, Progress, ReadError, RecordView, RecoveryReport};
use millrun_workflow::{Ledger, Name, OperationId, Parent, ParkReason, Pending, wire};
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

/// The fold of one lane.
#[derive(Debug, Default)]
struct Fold {
    ledgers: FxHashMap<RunId, Ledger>,
    damaged: FxHashMap<RunId, String>,
}

impl Fold {
    fn take(&mut self, record: RecordView<'_>) {
        if self.damaged.contains_key(&record.run) {
            return;
        }
        match wire::decode(record.kind, &Bytes::copy_from_slice(record.body), record.opens) {
            Ok(event) => self
                .ledgers
                .entry(record.run)
                .or_default()
                .apply(&event, record.time),
            Err(error) => {
                self.ledgers.remove(&record.run);
                self.damaged
                    .insert(record.run, format!("event {}: {error}", record.sequence));
            }
        }
    }
}

/// Reads the live runs; gives them by shard. `only` restricts it to the partitions of one shard.
pub(crate) fn recover(
    journal: &dyn Journal,
    shards_len: usize,
    lanes_len: usize,
    only: Option<usize>,
) -> Result<(Vec<Vec<RecoveredRun>>, StartupReport), ReadError> {
    // The lane of a partition must determine its shard.
    let lanes_len = lanes_len.max(1).next_multiple_of(shards_len);
    let mut folds: Vec<Fold> = (0..lanes_len).map(|_| Fold::default()).collect();
    let report = {
        let mut visitors: Vec<_> = folds
            .iter_mut()
            .enumerate()
            .map(|(lane, fold)| {
                let is_wanted = only.is_none_or(|shard| lane % shards_len == shard);
                move |record: RecordView<'_>| {
                    if is_wanted {
                        fold.take(record);
                    }
                }
            })
            .collect();
        let mut lanes: Vec<Lane<'_>> = visitors.iter_mut().map(|visitor| visitor as Lane<'_>).collect();
        let mut progress = |progress: Progress| {
            tracing::info!(
                done_bytes = progress.bytes_done,
                total_bytes = progress.bytes_total,
                records = progress.records,
                "recovering"
            );
        };
        journal.recover(&mut lanes, &mut progress)?
    };
    let mut shards: Vec<Vec<RecoveredRun>> = (0..shards_len).map(|_| Vec::new()).collect();
    let mut startup = summary(report);
    for (lane, fold) in folds.into_iter().enumerate() {
        startup
            .damaged
            .extend(fold.damaged.into_iter().map(|(run, cause)| (Some(run), cause)));
        for (run, ledger) in fold.ledgers {
            let Some(started) = ledger.started() else {
                startup
                    .damaged
                    .push((Some(run), "its history has no beginning".into()));
                continue;
            };
            let recovered = RecoveredRun {
                run,
                id: started.id.clone(),
                workflow: started.workflow.clone(),
                pending: ledger
                    .pending()
                    .map(|(operation, pending)| (operation, pending.clone()))
                    .collect(),
                parked: ledger.parked().map(|(reason, since)| (reason.clone(), since)),
                parent: started.parent().map(Box::new),
            };
            startup.count(&recovered);
            shards[lane % shards_len].push(recovered);
        }
    }
    if startup.is_index_rebuilt {
        tracing::warn!("the index of finished runs was damaged, and is written anew from the log");
    }
    for (run, cause) in &startup.damaged {
        tracing::error!(?run, cause, "a run is left out: its history is damaged");
    }
    Ok((shards, startup))
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
