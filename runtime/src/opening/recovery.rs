//! Rebuilds from the journal what was alive in claimed partitions: for the replay actor at the opening, and for a shard that
//! restarts.
//!
//! ```text
//!   claim ──► log ──► Fold (by number): Histories ──► RecoveredRun, by shard
//! ```
//!
//! What is [`Outstanding`] is gathered from each history without running code: which timers to set, which activities to run
//! again, and what is parked. Instances themselves stay on disk until something wakes them.

use std::time::Duration;

use millrun_core::{InstanceId, RunId, Sequence, Timestamp, TraceContext};
use millrun_persistence::{
    ClaimNews, ClaimRefused, Claimant, Fold, Granted, Progress, ReadError, RecordView, RecoveryReport,
};
use millrun_workflow::{Ledger, Name, OperationId, Outstanding, Parent, ParkReason, Pending, Started};

/// What is known of a live run without its code.
#[derive(Debug)]
pub(crate) struct RecoveredRun {
    pub(crate) run: RunId,
    pub(crate) id: InstanceId,
    pub(crate) workflow: Name,
    /// Its version of the workflow.
    pub(crate) version: u32,
    /// The time of its last turn.
    pub(crate) last: Timestamp,
    /// The workflow that its instance began as, if that is another.
    pub(crate) began_as: Option<Name>,
    /// Its pending operations, with the time since when each is pending.
    pub(crate) pending: Vec<(OperationId, Pending, Timestamp)>,
    pub(crate) parked: Option<(ParkReason, Timestamp)>,
    pub(crate) parent: Option<Box<Parent>>,
    /// Its place in a distributed trace.
    pub(crate) trace: Option<Box<TraceContext>>,
    /// When it is out of time, if that is bounded.
    pub(crate) out_of_time: Option<Timestamp>,
}

/// What was found when a store was opened.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct StartupReport {
    /// Live instances, including those with a record that cannot be decoded.
    pub live: u64,
    /// Of these, how many have no code here: their workflow is not registered.
    pub not_registered: u64,
    /// How many of the live instances belong to a workflow whose name begins with `millrun.`. Such names are reserved, and
    /// code cannot be registered under them, so these instances do not run; a warning names one of the workflows. Terminate
    /// them, or let the release that wrote them finish them.
    pub reserved: u64,
    /// Of the live instances, how many are parked.
    pub parked: u64,
    /// Timers that were set.
    pub timers: u64,
    /// Activities without a report, which run again.
    pub activities: u64,
    /// Finished runs that are retained.
    pub finished: u64,
    /// Events read of live runs.
    pub events: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Whether the file had to be repaired because the last process did not close it.
    pub is_repaired: bool,
    /// Whether the index of finished runs was damaged, and had to be rebuilt.
    pub is_index_rebuilt: bool,
    /// The time from opening the file to being ready.
    pub elapsed: Duration,
    /// Runs that do not run because their history is damaged, with the damage. Their ids stay taken: a caller that asks for
    /// one is told of the damage. A record that has a valid checksum, does not decode, and concerns no outstanding operation,
    /// is only found when its run is read.
    pub damaged: Vec<(Option<RunId>, String)>,
}

/// The runs of one lane, by number.
#[derive(Debug, Default)]
pub(crate) struct Histories {
    runs: Vec<History>,
}

/// What is known of the run that has a number.
#[derive(Debug, Default)]
struct History {
    /// `None` while no run has the number; then the memory is that of an earlier run.
    run: Option<RunId>,
    /// The instance, if the first record cannot be decoded.
    id: Option<InstanceId>,
    outstanding: Outstanding,
    /// The last event that the kept beginning of a trimmed history covers.
    kept: Sequence,
    /// The time of its last turn.
    last: Timestamp,
    damage: Option<String>,
}

impl Fold for Histories {
    fn record(&mut self, number: usize, record: RecordView<'_>) {
        if self.runs.len() <= number {
            self.runs.resize_with(number + 1, History::default);
        }
        let history = &mut self.runs[number];
        (history.run, history.last) = (Some(record.run), record.time);
        let RecordView {
            kind,
            body,
            time,
            opens,
            kept,
            sequence,
            ..
        } = record;
        if let Some(kept) = kept {
            // Damage in earlier records is irrelevant from here on.
            history.damage = None;
            match history.outstanding.begin_kept(kept) {
                Ok(sequence) => history.kept = sequence,
                Err(error) => {
                    history.damage = Some(format!("what is kept of the events before {sequence}: {error}"));
                    history.id = opens.and_then(|id| InstanceId::new(id).ok());
                }
            }
        }
        if history.damage.is_some() || sequence <= history.kept {
            return;
        }
        if let Err(error) = history.outstanding.take(kind, body, time, opens) {
            history.damage = Some(format!("event {}: {error}", record.sequence));
            history.id = opens.and_then(|id| InstanceId::new(id).ok());
        }
    }

    fn forget(&mut self, number: usize) {
        if let Some(history) = self.runs.get_mut(number) {
            history.run = None;
            history.kept = Sequence::ZERO;
            history.outstanding.clear();
            history.damage = None;
        }
    }
}

impl RecoveredRun {
    fn of(run: RunId, history: &History) -> Result<Self, String> {
        if let Some(cause) = &history.damage {
            return Err(cause.clone());
        }
        let ledger = history.outstanding.ledger().map_err(|error| error.to_string())?;
        let started = ledger.started().ok_or("its history has no beginning")?;
        let since = |operation| ledger.pending_since(operation).unwrap_or(Timestamp::EPOCH);
        Ok(Self {
            run,
            id: started.id.clone(),
            workflow: started.workflow.clone(),
            version: ledger.version(),
            last: history.last,
            began_as: started.origin.as_ref().and_then(|origin| origin.began_as.clone()),
            pending: ledger
                .pending()
                .map(|(operation, pending)| (operation, pending.clone(), since(operation)))
                .collect(),
            parked: ledger.parked().map(|(reason, since)| (reason.clone(), since)),
            parent: started.parent().map(Box::new),
            trace: started.trace().copied().map(Box::new),
            out_of_time: ledger.deadline().map(|deadline| deadline.at),
        })
    }

    /// A run with a record that cannot be decoded: it keeps its id and its children, and callers are told why it does not
    /// run.
    fn stuck(run: RunId, history: &History, message: String) -> Option<Self> {
        let ledger = history.outstanding.ledger().ok();
        let started = ledger.as_ref().and_then(Ledger::started);
        let id = started.map(|started| started.id.clone());
        let pending = ledger.iter().flat_map(Ledger::pending);
        let children = pending.filter(|(_, pending)| matches!(pending, Pending::Child { .. }));
        Some(Self {
            run,
            id: id.or_else(|| history.id.clone())?,
            workflow: started.map_or(Name::Borrowed(""), |started| started.workflow.clone()),
            version: ledger.as_ref().map_or(0, Ledger::version),
            last: history.last,
            began_as: started.and_then(|started| started.origin.as_ref()?.began_as.clone()),
            pending: children
                .map(|(operation, pending)| (operation, pending.clone(), Timestamp::EPOCH))
                .collect(),
            parked: Some((ParkReason::Stuck { message }, Timestamp::EPOCH)),
            parent: started.and_then(Started::parent).map(Box::new),
            trace: started.and_then(Started::trace).copied().map(Box::new),
            out_of_time: ledger
                .as_ref()
                .and_then(Ledger::deadline)
                .map(|deadline| deadline.at),
        })
    }
}

/// The histories of a useful number of lanes, such that the lane of a partition determines its shard.
pub(crate) fn lanes(shards_len: usize, lanes_len: usize) -> Vec<Histories> {
    let lanes_len = lanes_len.max(1).next_multiple_of(shards_len);
    (0..lanes_len).map(|_| Histories::default()).collect()
}

/// The answer to the claim with which a runtime begins, if it has come.
pub(crate) fn granted(claimant: &Claimant) -> Option<Result<Granted, ClaimRefused>> {
    let mut answers = claimant.take_news().into_iter().filter_map(|news| match news {
        ClaimNews::Granted(granted) => Some(Ok(granted)),
        ClaimNews::Refused { error, .. } => Some(Err(error)),
        _ => None,
    });
    answers.next()
}

/// Logs the progress.
pub(crate) fn tell(progress: Progress) {
    tracing::info!(
        done_bytes = progress.bytes_done,
        total_bytes = progress.bytes_total,
        records = progress.records,
        "recovering"
    );
}

/// Converts histories into what shards begin with.
pub(crate) fn by_shard(
    histories: Vec<Histories>,
    shards_len: usize,
    report: RecoveryReport,
) -> (Vec<Vec<RecoveredRun>>, StartupReport) {
    let mut shards: Vec<Vec<RecoveredRun>> = (0..shards_len).map(|_| Vec::new()).collect();
    let mut startup = summary(report);
    for (lane, histories) in histories.into_iter().enumerate() {
        for history in histories.runs {
            let Some(run) = history.run else { continue };
            match RecoveredRun::of(run, &history) {
                Ok(recovered) => {
                    startup.count(&recovered);
                    shards[lane % shards_len].push(recovered);
                }
                Err(cause) => {
                    startup.damaged.push((Some(run), cause.clone()));
                    if let Some(stuck) = RecoveredRun::stuck(run, &history, cause) {
                        startup.count(&stuck);
                        shards[lane % shards_len].push(stuck);
                    }
                }
            }
        }
    }
    if startup.is_index_rebuilt {
        tracing::warn!("the index of finished runs was damaged, and is written anew from the log");
    }
    for (run, cause) in &startup.damaged {
        tracing::error!(?run, cause, "a run does not run: its history is damaged");
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
        let waits = |parked: &(ParkReason, _)| matches!(parked.0, ParkReason::Delayed { .. });
        self.parked += u64::from(recovered.parked.as_ref().is_some_and(|parked| !waits(parked)));
        for (_, pending, _) in &recovered.pending {
            match pending {
                Pending::Activity(_) => self.activities += 1,
                Pending::Timer { .. } => self.timers += 1,
                Pending::Child { .. }
                | Pending::Publish { .. }
                | Pending::Receive { .. }
                | Pending::Signal(_)
                | Pending::Promise => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use millrun_workflow::{
        Event, Implementation, Instance, Limits, Moment, Payload, Signal, Started, Turn, Workflow,
        WorkflowContext, WorkflowError, wire,
    };

    use super::*;

    fn run_of_id(id: &InstanceId) -> RunId {
        RunId::new(id.partition(), Timestamp::EPOCH, 1)
    }

    /// What the journal passes on for a run: its first event, and then empty records of these kinds.
    fn hand_over(histories: &mut Histories, number: usize, id: &InstanceId, kinds: &[u8]) {
        let input = Payload::encode(&1).unwrap();
        let started = Event::Started(Started::new(Name::Borrowed("w"), id.clone(), input));
        let mut body = Vec::new();
        wire::encode(&started, &mut body).unwrap();
        let first = (wire::kind(&started), body.as_slice());
        let rest = kinds.iter().map(|kind| (*kind, &[][..]));
        for (sequence, (kind, body)) in (1..).zip([first].into_iter().chain(rest)) {
            let record = RecordView {
                run: run_of_id(id),
                sequence: Sequence::new(sequence),
                kind,
                time: Timestamp::EPOCH,
                opens: (sequence == 1).then_some(id.as_str()),
                kept: None,
                closes: false,
                body,
            };
            histories.record(number, record);
        }
    }

    fn recovered(histories: Histories) -> (Vec<RunId>, Vec<(Option<RunId>, String)>) {
        let (shards, report) = by_shard(vec![histories], 1, RecoveryReport::default());
        assert_eq!(report.live, shards[0].len() as u64);
        (shards[0].iter().map(|run| run.run).collect(), report.damaged)
    }

    #[test]
    fn a_run_whose_records_cannot_be_understood_keeps_its_id_and_is_named() {
        const UNKNOWN: u8 = 250;
        let resumed = wire::kind(&Event::Resumed);
        let ids = ["sound", "strange"].map(|id| InstanceId::new(id).unwrap());
        let mut histories = Histories::default();
        hand_over(&mut histories, 0, &ids[0], &[resumed]);
        // Records after one that does not decode are skipped.
        hand_over(&mut histories, 5, &ids[1], &[resumed, UNKNOWN, resumed, UNKNOWN]);
        let (runs, damaged) = recovered(histories);
        assert_eq!(runs, [run_of_id(&ids[0]), run_of_id(&ids[1])]);
        let [(Some(run), cause)] = &damaged[..] else {
            panic!("{damaged:?}")
        };
        assert_eq!(*run, run_of_id(&ids[1]));
        assert!(cause.starts_with("event 3:"), "{cause}");
    }

    /// What a checkpoint right at the beginning of a run keeps.
    fn kept(id: &InstanceId) -> (Sequence, Vec<u8>) {
        const W: Workflow<u64, u64> = Workflow::named("w");
        const GO: Signal<u64> = Signal::named("go");
        let code = Implementation::new(W, async |cx: WorkflowContext, number: u64| {
            if cx.checkpointed::<u64>().is_some() {
                return Ok(cx.receive(GO).await?);
            }
            Ok::<_, WorkflowError>(cx.checkpoint(&number).await?)
        });
        let started = Started::new(Name::Borrowed("w"), id.clone(), Payload::encode(&1).unwrap());
        let mut limits = Limits::default();
        limits.kept_beginning_every = 1;
        let moment = Moment {
            now: Timestamp::EPOCH,
            epoch: 1,
        };
        let mut turn = Turn::default();
        let _ = Instance::start_in(&mut turn, Some(&code), run_of_id(id), started, limits, moment);
        turn.kept.unwrap()
    }

    /// A log may still hold the removed records of a trimmed run.
    #[test]
    fn what_is_wrong_with_a_record_is_gone_when_the_run_is_trimmed_of_it() {
        let id = InstanceId::new("strange").unwrap();
        let mut histories = Histories::default();
        hand_over(&mut histories, 0, &id, &[250]);
        let (sequence, kept) = kept(&id);
        let trimming = RecordView {
            run: run_of_id(&id),
            sequence,
            kind: wire::kind(&Event::Resumed),
            time: Timestamp::EPOCH,
            opens: Some(id.as_str()),
            kept: Some(&kept),
            closes: false,
            body: &[],
        };
        histories.record(0, trimming);
        assert_eq!(recovered(histories), (vec![run_of_id(&id)], vec![]));
    }

    #[test]
    fn a_run_that_is_forgotten_leaves_its_number_to_the_next() {
        let ids = ["first", "second"].map(|id| InstanceId::new(id).unwrap());
        let mut histories = Histories::default();
        hand_over(&mut histories, 1, &ids[0], &[250]);
        histories.forget(1);
        histories.forget(7);
        hand_over(&mut histories, 1, &ids[1], &[]);
        assert_eq!(recovered(histories), (vec![run_of_id(&ids[1])], vec![]));
    }
}
