//! The threads that read. Each has a connection, and answers one question at a time.
//!
//! ```text
//!   a caller ──► question (a closure) ──► queue ──► a free reader ──► its session ──► the answer
//!   claims   ──► queue of the claims' reader ──► folds ──► granted
//! ```
//!
//! A question changes nothing, so it is asked again when a connection is lost.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender, bounded};
use millrun_core::{Epoch, Partition, RunId};
use millrun_persistence::frames::FrameWalk;
use millrun_persistence::{
    ClaimRefused, FailureKind, Fold, JournalFailure, Owned, PartitionReport, ReadError, RecordView,
    RecoveryReport,
};

use crate::server::{ReaderSession, Server, ServerTrouble, StoredPartitions};
use crate::shared::{FencedClaim, PostgresShared};
use crate::writing::Outage;

/// A question, with the channel for its answer.
pub(crate) type ServerQuestion = Box<dyn FnOnce(&mut ReaderSeat) + Send>;

/// A reader. Its connection is opened when it is needed.
pub(crate) struct ReaderSeat {
    pub(crate) shared: Arc<PostgresShared>,
    pub(crate) server: Box<dyn Server>,
    pub(crate) session: Option<Box<dyn ReaderSession>>,
    pub(crate) server_wait_max: std::time::Duration,
}

impl ReaderSeat {
    /// Answers questions until their channel is closed.
    pub(crate) fn run(mut self, questions: &Receiver<ServerQuestion>) {
        while let Ok(question) = questions.recv() {
            question(&mut self);
        }
    }

    /// Answers claims until the writer has ended.
    pub(crate) fn answer_claims(mut self, claims: &Receiver<FencedClaim>) {
        while let Ok(claim) = claims.recv() {
            self.answer(claim);
        }
    }

    /// Asks the server, again if the connection was lost.
    pub(crate) fn ask<T>(
        &mut self,
        mut question: impl FnMut(&mut dyn ReaderSession) -> Result<T, ServerTrouble>,
    ) -> Result<T, ReadError> {
        let mut outage = Outage::new(self.server_wait_max);
        loop {
            self.shared.readable()?;
            // Once the journal has failed, its reads may lag behind the present owner, and any server of the store will do.
            let must_be_ours = self.shared.lock().failure.is_none();
            if must_be_ours && self.session.as_ref().is_some_and(|session| session.is_outdated()) {
                self.session = None;
            }
            let answer = match &mut self.session {
                Some(session) => question(&mut **session),
                None => match self.server.reader(must_be_ours) {
                    Ok(session) => {
                        self.session = Some(session);
                        continue;
                    }
                    Err(error) => Err(error),
                },
            };
            let why = match answer {
                Ok(answer) => {
                    outage.over();
                    return Ok(answer);
                }
                Err(ServerTrouble::Lost(why)) => {
                    self.session = None;
                    why
                }
                Err(ServerTrouble::Refused(why)) => why,
                Err(error) => return Err(unread(error.to_string())),
            };
            if !outage.pause(&why, self.shared.is_closing()) {
                return Err(unread(format!("the database could not be reached: {why}")));
            }
        }
    }

    /// Passes on the live runs of partitions, each with all its turns, in the order of runs. A run without turns was lost.
    pub(crate) fn live_runs(
        &mut self,
        partitions: &[u16],
        each: &mut dyn FnMut(RunId, Vec<Bytes>),
    ) -> Result<(), ReadError> {
        let (mut done, mut open) = (None, None::<(RunId, Vec<Bytes>)>);
        self.ask(|session| {
            // A run that was partly read when the connection was lost is read again.
            open = None;
            session.live_turns(partitions, done, &mut |run, turn| match &mut open {
                Some((of, turns)) if *of == run => turns.push(turn),
                _ => {
                    if let Some((of, turns)) = open.replace((run, vec![turn])) {
                        each(of, turns);
                        done = Some(of);
                    }
                }
            })
        })?;
        if let Some((of, turns)) = open {
            each(of, turns);
        }
        Ok(())
    }

    fn answer(&mut self, waiting: FencedClaim) {
        let FencedClaim { mut claim, given, .. } = waiting;
        let shared = Arc::clone(&self.shared);
        let owned = still_owned(&shared.lock().heads.owners, &given);
        let unread = shared.lock().unread(&owned);
        let known = match unread.is_empty() {
            true => Ok(StoredPartitions::default()),
            false => self.ask(|session| session.partitions(&unread)),
        };
        let mut recovery = ClaimRecovery::new(&owned);
        let partitions: Vec<_> = owned.iter().map(|(partition, _)| partition.index()).collect();
        let folds = claim.folds();
        let read = match (&known, folds.is_empty()) {
            (Err(error), _) => Err(error.clone()),
            (Ok(_), true) => Ok(()),
            (Ok(_), false) => {
                self.live_runs(&partitions, &mut |run, turns| recovery.fold(run, &turns, folds))
            }
        };
        for run in recovery.quarantined.drain(..) {
            shared.quarantine(run);
        }
        let mut state = shared.lock();
        if let (Ok(()), Ok(known)) = (&read, known)
            && !unread.is_empty()
        {
            state.restore(&owned, known);
        }
        let told = match (state.failure.clone(), read) {
            (Some(failure), _) => claim.refuse(ClaimRefused::Failed(failure)),
            (None, Err(error)) => {
                let still = still_owned(&state.heads.owners, &given);
                state.heads.owners.give_back(&still);
                // Other nodes may claim partitions that were not read here.
                let unread = state.unread(&still);
                state.give_back_to_store(&unread);
                claim.refuse(ClaimRefused::Unreadable(error))
            }
            (None, Ok(())) => {
                // Other owners may have taken some of them meanwhile.
                let owned = still_owned(&state.heads.owners, &owned);
                let (owned, mut report) = recovery.report(&owned, claim.folds());
                report.finished_runs = state.counts.finished_runs;
                claim.grant(owned, report)
            }
        };
        drop(state);
        shared.wake();
        drop(told);
    }
}

fn still_owned(
    owners: &millrun_persistence::OwnerTable,
    given: &[(Partition, Epoch)],
) -> Vec<(Partition, Epoch)> {
    let owned = given
        .iter()
        .filter(|(partition, epoch)| owners.check(*partition, *epoch).is_ok());
    owned.copied().collect()
}

/// What a claim gives to its folds.
struct ClaimRecovery {
    parts: BTreeMap<Partition, PartitionReport>,
    report: RecoveryReport,
    /// For each fold, the runs that it was shown; a run's number is its index.
    numbers: Vec<Vec<RunId>>,
    quarantined: Vec<RunId>,
}

impl ClaimRecovery {
    fn new(owned: &[(Partition, Epoch)]) -> Self {
        let parts = owned
            .iter()
            .map(|(partition, _)| (*partition, PartitionReport::default()));
        Self {
            parts: parts.collect(),
            report: RecoveryReport::default(),
            numbers: Vec::new(),
            quarantined: Vec::new(),
        }
    }

    fn fold(&mut self, run: RunId, turns: &[Bytes], folds: &mut [Box<dyn Fold>]) {
        self.numbers.resize_with(folds.len(), Vec::new);
        let lane = usize::from(run.partition().index()) % folds.len();
        let (Some(part), fold) = (self.parts.get_mut(&run.partition()), &mut folds[lane]) else {
            return;
        };
        let number = self.numbers[lane].len();
        self.numbers[lane].push(run);
        match walk(run, turns, &mut |record| fold.record(number, record)) {
            Ok((records, bytes)) => {
                part.live_runs += 1;
                part.records += records;
                self.report.live_runs += 1;
                self.report.records += records;
                self.report.bytes += bytes;
            }
            Err(error) => {
                fold.forget(number);
                part.damaged.push(error.clone());
                self.report.damaged.push(error);
                self.quarantined.push(run);
            }
        }
    }

    /// The reports of the partitions that are still owned. The folds forget the runs of others.
    fn report(
        mut self,
        owned: &[(Partition, Epoch)],
        folds: &mut [Box<dyn Fold>],
    ) -> (Vec<Owned>, RecoveryReport) {
        let owned = owned.iter().filter_map(|(partition, epoch)| {
            let report = self.parts.remove(partition)?;
            Some(Owned::new(*partition, *epoch, report))
        });
        let owned: Vec<_> = owned.collect();
        // Partitions that are left were lost while they were read.
        if !self.parts.is_empty() {
            for (runs, fold) in self.numbers.iter().zip(folds) {
                let lost = runs.iter().enumerate();
                let lost = lost.filter(|(_, run)| self.parts.contains_key(&run.partition()));
                lost.for_each(|(number, _)| fold.forget(number));
            }
        }
        for lost in self.parts.values() {
            self.report.live_runs -= lost.live_runs;
            self.report.records -= lost.records;
        }
        (owned, self.report)
    }
}

/// Passes on all records of a run. Returns their number and bytes.
pub(crate) fn walk(
    run: RunId,
    turns: &[Bytes],
    each: &mut dyn FnMut(RecordView<'_>),
) -> Result<(u64, u64), ReadError> {
    let (mut walk, mut records) = (FrameWalk::new(run), 0);
    for turn in turns {
        records += walk.turn(turn, each)?;
    }
    if records == 0 {
        let cause = "its turns are missing".to_owned();
        return Err(ReadError::Damaged {
            run: Some(run),
            position: 0,
            cause,
        });
    }
    Ok((records, walk.bytes()))
}

/// The error for a read that the server did not answer.
pub(crate) fn unread(message: String) -> ReadError {
    JournalFailure::new(FailureKind::Io(std::io::ErrorKind::NotConnected), message).into()
}

/// Asks a reader, and waits for the answer.
pub(crate) fn ask<T: Send + 'static>(
    questions: Option<Sender<ServerQuestion>>,
    question: impl FnOnce(&mut ReaderSeat) -> Result<T, ReadError> + Send + 'static,
) -> Result<T, ReadError> {
    let closed = || ReadError::Failed(JournalFailure::closed());
    let questions = questions.ok_or_else(closed)?;
    let (sender, answer) = bounded(1);
    let question: ServerQuestion = Box::new(move |seat| {
        // The caller may have given up.
        drop(sender.send(question(seat)));
    });
    questions.send(question).map_err(|_| closed())?;
    answer.recv().map_err(|_| closed())?
}
