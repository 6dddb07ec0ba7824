//! The thread that writes: it takes the queue, makes rows of it, and sends them again until the server has stored or refused
//! them.
//!
//! One flush is under way at a time. Entries that come meanwhile wait for the next one, so that a flush holds what came
//! during the one before.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use millrun_core::{Epoch, Partition, Sequence, Timestamp};
use millrun_persistence::{
    Durability, FailureKind, JournalFailure, TopicNumber, TopicRegister, UpkeepNumber,
};

use crate::believed::BelievedTime;
use crate::mail::MailWake;
use crate::outcome::{FlushFate, Halt, Heard, Step};
use crate::queued::QueuedEntry;
use crate::reading::ServerQuestion;
use crate::retained::{FinishedFront, WINDOW_LEN, WindowEmpty};
use crate::rows::{FinishedRow, FlushRows, RowsBuilder, TopicRows};
use crate::server::{Server, ServerTrouble, WriterSession};
use crate::shared::{FencedClaim, Landed, PostgresShared, Taken, Took, WrittenCounts};

/// The first and the longest pause between two tries to reach a server.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// The writer of a journal.
pub(crate) struct FlushWriter {
    pub(crate) shared: Arc<PostgresShared>,
    pub(crate) server: Box<dyn Server>,
    pub(crate) session: Option<Box<dyn WriterSession>>,
    pub(crate) fate: FlushFate,
    pub(crate) retained: FinishedFront,
    pub(crate) counts: WrittenCounts,
    /// The channel for claims that can be answered.
    pub(crate) claims: Sender<FencedClaim>,
    /// The channel to the readers; closed by a close.
    pub(crate) questions: Arc<Mutex<Option<Sender<ServerQuestion>>>>,
    pub(crate) server_wait_max: Duration,
    /// The longest time that a node writes nothing, until its caller beats.
    pub(crate) beat_every: Option<Duration>,
    pub(crate) durability: Durability,
    /// Whether something was written whose acknowledgement did not mean that it is synced, as with [`Durability::Volatile`].
    pub(crate) is_unsynced: bool,
    /// Whether the present flush has to be synced, whatever the durability.
    pub(crate) is_last: bool,
    /// The upkeep that is under way.
    pub(crate) upkeep: Option<UpkeepStep>,
    pub(crate) believed: BelievedTime,
    /// Up to where the last flushes have deleted rows of finished runs and of ids. Otherwise each deletion would walk an
    /// index from its beginning, over rows that are deleted and not cleared away yet.
    pub(crate) removed_before: RemovedBefore,
    /// The number of finished runs that other nodes retain and their bytes, by the last flush.
    pub(crate) others: (u64, u64),
    /// With nodes: notified of flushes that have posted mail.
    pub(crate) mail: Option<Arc<MailWake>>,
}

/// What moves the marker.
#[derive(Clone, Copy, Debug)]
enum MarkerMove<'a> {
    Rows(&'a FlushRows),
    /// A request for partitions.
    Claim(&'a [Partition]),
}

/// An upkeep under way. It shares its flushes with entries that are queued meanwhile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UpkeepStep {
    number: UpkeepNumber,
    now: Timestamp,
    /// Whether the rows of topics that were queued before it are in the store, so that it can treat them.
    has_begun: bool,
}

/// How long the writer does nothing until it checks whether its session still exists: with the session, the lock of the store
/// would be lost.
pub(crate) const IDLE_MAX: Duration = Duration::from_secs(5);

/// The numbers of the first rows that may exist.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RemovedBefore {
    finished: u64,
    ids: u64,
}

impl RemovedBefore {
    fn landed(&mut self, rows: &FlushRows) {
        // A node marks the runs that it drops, and deletes their names in a later flush.
        let marked = rows.of_node.dropped.iter().min().copied().unwrap_or(u64::MAX);
        self.finished = self.finished.max(rows.forgotten.min(marked));
        // Ids that this flush adds may be forgotten already: the next flush deletes them.
        let sealed = &rows.topics.sealed;
        let added = sealed.ids.first().map_or(u64::MAX, |id| id.number);
        self.ids = self.ids.max(sealed.ids_from.min(added));
    }
}

/// How many rows of topics one flush drops at most.
const TOPIC_ROWS_DROPPED_MAX: usize = 256;

/// How long a closing journal waits for a server.
const CLOSE_WAIT_MAX: Duration = Duration::from_secs(5);

/// For how long the server has not been reached, and the next pause.
pub(crate) struct Outage {
    began: Option<Instant>,
    pause: Duration,
    wait_max: Duration,
}

impl Outage {
    pub(crate) fn new(wait_max: Duration) -> Self {
        Self {
            began: None,
            pause: PAUSES.0,
            wait_max,
        }
    }

    /// Takes a failure. Returns whether to try again, after a pause.
    pub(crate) fn pause(&mut self, why: &str, is_closing: bool) -> bool {
        let began = *self.began.get_or_insert_with(|| {
            tracing::warn!(problem = why, "the database does not answer, and is waited for");
            Instant::now()
        });
        let close_wait_max = if is_closing { CLOSE_WAIT_MAX } else { Duration::MAX };
        if began.elapsed() >= self.wait_max.min(close_wait_max) {
            return false;
        }
        thread::sleep(self.pause.min(self.wait_max));
        self.pause = (self.pause * 2).min(PAUSES.1);
        true
    }

    /// The server has answered: the outage is over.
    pub(crate) fn over(&mut self) {
        if let Some(began) = self.began.take() {
            tracing::info!(
                seconds = began.elapsed().as_secs_f64(),
                "the database answers again"
            );
        }
        self.pause = PAUSES.0;
    }
}

impl FlushWriter {
    /// Writes until the journal is closed or fails. Returns why.
    pub(crate) fn run(&mut self) -> JournalFailure {
        loop {
            let beats = self.shared.lock().beats();
            let idle_max = self.beat_every.filter(|_| beats).unwrap_or(IDLE_MAX);
            let done = match self.shared.take(idle_max) {
                Took::Flush(taken) => self.write(*taken).and_then(|()| self.claim_waiting()),
                Took::Claim => self.claim_waiting(),
                Took::Idle if self.shared.lock().beats() => self.flush_nothing(),
                Took::Idle => self.look_around(),
                Took::End => return self.close(),
            };
            if let Err(failure) = done {
                return failure;
            }
        }
    }

    fn write(&mut self, taken: Taken) -> Result<(), JournalFailure> {
        let Taken {
            topics,
            entries,
            epochs,
            offset,
            upkeep,
            released,
            adopted,
            mail,
        } = taken;
        let mut builder = RowsBuilder::default();
        builder.partitions = epochs
            .into_iter()
            .map(|(partition, epoch)| (partition, (epoch, false)))
            .collect();
        for (partition, counts) in adopted {
            self.retained.adopt(partition, counts);
            // Names before it may have to be forgotten that this node has skipped.
            self.removed_before.finished = 0;
        }
        for partition in &released {
            builder
                .partitions
                .entry(*partition)
                .or_insert((Epoch::ZERO, false))
                .1 = true;
        }
        for entry in entries {
            if let QueuedEntry::Turn(turn) = &entry {
                self.counts.turns += 1;
                self.counts.bytes += turn.frames.len() as u64;
            }
            builder.take(entry);
        }
        let upkeep = self.upkeep.take().or(upkeep.map(|(number, now)| UpkeepStep {
            number,
            now,
            has_begun: false,
        }));
        let finished = builder.finish_runs(&mut self.retained, &mut self.believed);
        // After the runs that close in this flush: from now on the next owner counts and drops them.
        for partition in released {
            self.retained.release(partition);
        }
        for row in &topics.rows {
            self.believed.see(row.last);
        }
        let now = self.believed.now(upkeep.map(|upkeep| upkeep.now));
        let mut dropped = Vec::new();
        let bounds = self.retained.bounds();
        let is_all = loop {
            match builder.drop_runs(&mut self.retained, (now, &bounds), &mut dropped) {
                Ok(is_all) => break is_all,
                Err(empty) => self.fill(empty, &finished)?,
            }
        };
        self.counts.dropped_runs += dropped.len() as u64;
        builder.counts = self.retained.take_changed();
        let mut rows = builder.rows(finished, &dropped, &self.retained);
        let is_first = upkeep.is_some_and(|upkeep| !upkeep.has_begun);
        let gone = self.drop_topic_rows(now, is_first)?;
        // Retention treats rows of topics once they are in the store. Rows that were queued after the beginning of an upkeep
        // are not waited for: with steady traffic the upkeep would never end.
        let is_still = is_all && gone.len() < TOPIC_ROWS_DROPPED_MAX && (!is_first || topics.rows.is_empty());
        rows.topics = TopicRows {
            names: self.shared.lock().topics.seal_changed(),
            sealed: topics.clone(),
            gone,
            ids_from_before: self.removed_before.ids,
        };
        rows.forgotten_before = self.removed_before.finished;
        if rows.forgotten > rows.forgotten_before {
            rows.of_node.forgets = self.retained.partitions();
        }
        rows.of_node.mail = mail;
        self.flush(&rows)?;
        if let (Some(wake), false) = (&self.mail, rows.of_node.mail.posted.is_empty()) {
            wake.posted();
        }
        self.removed_before.landed(&rows);
        self.shared.lock().topics.landed(topics);
        self.upkeep = upkeep.filter(|_| !is_still).map(|upkeep| UpkeepStep {
            has_begun: true,
            ..upkeep
        });
        let landed = Landed {
            offset,
            counts: self.counts,
            upkept: upkeep.filter(|_| is_still).map(|upkeep| upkeep.number),
        };
        for claim in self.shared.landed(landed) {
            // If the receiver is gone, the claim is dropped, which refuses it.
            drop(self.claims.send(claim));
        }
        Ok(())
    }

    /// Asks the store for the partitions of the claims that wait for it.
    fn claim_waiting(&mut self) -> Result<(), JournalFailure> {
        while let Some(partitions) = self.shared.waiting_claim() {
            self.flush_sent(MarkerMove::Claim(&partitions))?;
            let held = self.look(|session| session.held(&partitions))?;
            self.shared.settle_claim(&held);
        }
        Ok(())
    }

    /// Checks whether the session still exists, and opens another one. If no server answers, the next check tries again.
    fn look_around(&mut self) -> Result<(), JournalFailure> {
        let seen = match &mut self.session {
            Some(session) => session.marker().map(drop),
            None => Err(ServerTrouble::Lost("there is no connection".to_owned())),
        };
        match seen {
            Ok(()) | Err(ServerTrouble::Refused(_)) => return Ok(()),
            Err(ServerTrouble::Lost(why)) => {
                if self.session.is_some() {
                    tracing::warn!(
                        problem = why,
                        "the session that has the lock of the store was lost"
                    );
                }
                self.lost();
            }
            Err(error) => return Err(failed(&error)),
        }
        while let Some(step) = self.fate.mending() {
            if let Step::Stop(halt) = step {
                return Err(self.halted(halt));
            }
            match self.perform(step, MarkerMove::Rows(&FlushRows::default())) {
                Ok(heard) => self.fate.hear(heard),
                Err(ServerTrouble::Lost(_)) => {
                    self.lost();
                    return Ok(());
                }
                Err(ServerTrouble::Refused(_)) => return Ok(()),
                Err(error) => return Err(failed(&error)),
            }
        }
        Ok(())
    }

    /// Syncs what was acknowledged without a sync, so that it survives a close.
    fn close(&mut self) -> JournalFailure {
        let failure = self.sync();
        if failure.kind() == FailureKind::Closed && self.retained.is_shared() {
            self.leave();
        }
        failure
    }

    /// Gives back what this node has, over a new connection if necessary. If that fails, the other nodes find out by its
    /// silence.
    fn leave(&mut self) {
        match self.look(|session| session.leave()) {
            Ok(()) => {}
            // The first answer was lost with its connection: the node had left already.
            Err(failure) if failure.kind() == FailureKind::Fenced => {
                tracing::debug!("a node that ends had no row any more");
            }
            Err(failure) => {
                tracing::warn!(%failure, "a node ends without having given back its partitions");
            }
        }
    }

    fn sync(&mut self) -> JournalFailure {
        if self.durability == Durability::Durable || !self.is_unsynced {
            return JournalFailure::closed();
        }
        self.is_last = true;
        match self.flush_nothing() {
            Ok(()) => JournalFailure::closed(),
            Err(failure) => failure,
        }
    }

    /// Takes out rows of topics that the next flush deletes.
    fn drop_topic_rows(
        &mut self,
        now: Timestamp,
        of_all: bool,
    ) -> Result<Vec<(TopicNumber, Sequence)>, JournalFailure> {
        let mut gone = Vec::new();
        loop {
            let left = TOPIC_ROWS_DROPPED_MAX - gone.len();
            let drops = self.shared.lock().topics.drop_due(now, of_all, left);
            gone.extend(drops.rows);
            let Some((topic, behind)) = drops.unknown else {
                return Ok(gone);
            };
            let len_max = TopicRegister::fill_len();
            let rows = self.look(|session| session.topic_front(topic, behind, len_max))?;
            let is_all = rows.len() < len_max;
            self.shared.lock().topics.fill(topic, rows, is_all);
        }
    }

    /// Reads the earliest finished runs, which are not in memory.
    fn fill(&mut self, empty: WindowEmpty, unwritten: &[FinishedRow]) -> Result<(), JournalFailure> {
        let partitions = self.retained.is_shared().then(|| self.retained.partitions());
        let partitions = partitions.as_deref();
        let runs = self.look(|session| session.earliest(empty.from, WINDOW_LEN, partitions))?;
        let is_all = runs.len() < WINDOW_LEN;
        let unwritten = unwritten.iter().map(FinishedRow::front);
        self.retained.fill(runs, is_all, unwritten);
        Ok(())
    }

    /// Reads what the writer has to know, between two flushes.
    fn look<T>(
        &mut self,
        mut look: impl FnMut(&mut dyn WriterSession) -> Result<T, ServerTrouble>,
    ) -> Result<T, JournalFailure> {
        let mut outage = Outage::new(self.server_wait_max);
        loop {
            let seen = match &mut self.session {
                Some(session) => look(&mut **session),
                None => Err(ServerTrouble::Lost("there is no connection".to_owned())),
            };
            match seen {
                Ok(seen) => {
                    outage.over();
                    return Ok(seen);
                }
                Err(ServerTrouble::Lost(why)) => {
                    self.lost();
                    self.pause(&mut outage, &why)?;
                    // The session must first be proved to be this opening's.
                    self.flush_nothing()?;
                }
                Err(ServerTrouble::Refused(why)) => self.pause(&mut outage, &why)?,
                Err(error) => return Err(failed(&error)),
            }
        }
    }

    fn flush_nothing(&mut self) -> Result<(), JournalFailure> {
        // It drops nothing: runs that were taken out of memory are dropped by the flush that is being made.
        let mut nothing = FlushRows::default();
        nothing.of_node.retained = (self.retained.len(), self.retained.bytes());
        self.flush(&nothing)
    }

    fn lost(&mut self) {
        self.session = None;
        self.fate.hear(Heard::Lost);
    }

    fn pause(&self, outage: &mut Outage, why: &str) -> Result<(), JournalFailure> {
        if outage.pause(why, self.shared.is_closing()) {
            return Ok(());
        }
        let message = format!("the database could not be reached: {why}");
        Err(JournalFailure::new(
            FailureKind::Io(std::io::ErrorKind::NotConnected),
            message,
        ))
    }

    /// Makes rows durable, over as many connections as necessary.
    fn flush(&mut self, rows: &FlushRows) -> Result<(), JournalFailure> {
        self.flush_sent(MarkerMove::Rows(rows))
    }

    fn flush_sent(&mut self, sent: MarkerMove<'_>) -> Result<(), JournalFailure> {
        let began = Instant::now();
        let mut outage = Outage::new(self.server_wait_max);
        self.fate.begin();
        loop {
            let heard = match self.fate.step() {
                Step::Rest => break,
                Step::Stop(halt) => return Err(self.halted(halt)),
                step => self.perform(step, sent),
            };
            match heard {
                Ok(heard) => self.fate.hear(heard),
                Err(ServerTrouble::Lost(why)) => {
                    self.lost();
                    self.pause(&mut outage, &why)?;
                }
                Err(ServerTrouble::Refused(why)) => {
                    self.fate.hear(Heard::Refused);
                    self.pause(&mut outage, &why)?;
                }
                Err(ServerTrouble::Duplicate(why)) => {
                    tracing::error!(problem = why, "a row of a flush is in the database already");
                    self.fate.hear(Heard::Duplicate);
                }
                Err(error @ ServerTrouble::Failed(_)) => return Err(failed(&error)),
            }
        }
        outage.over();
        self.is_unsynced = true;
        if matches!(sent, MarkerMove::Rows(_)) {
            self.retained.landed(self.others);
        }
        self.counts.commits += 1;
        self.counts.finished_runs = self.retained.len();
        self.counts.finished_bytes = self.retained.bytes();
        self.counts.last_commit = began.elapsed();
        Ok(())
    }

    fn halted(&self, halt: Halt) -> JournalFailure {
        let kind = match halt {
            Halt::Fenced if self.retained.is_shared() => {
                let message =
                    "other nodes have declared this one dead, or its name was taken: start it again";
                return JournalFailure::new(FailureKind::Fenced, message);
            }
            Halt::Fenced => FailureKind::Fenced,
            Halt::RolledBack { .. } => FailureKind::RolledBack,
            Halt::Duplicate => FailureKind::Corrupted,
        };
        JournalFailure::new(kind, halt.to_string())
    }

    /// Performs one step of a flush, and returns the answer.
    fn perform(&mut self, step: Step, sent: MarkerMove<'_>) -> Result<Heard, ServerTrouble> {
        let there_is_none = || ServerTrouble::Lost("there is no connection".to_owned());
        let session = match (step, &mut self.session) {
            (Step::Connect, session) => {
                *session = Some(self.server.writer()?);
                return Ok(Heard::Connected);
            }
            (_, session) => session.as_mut().ok_or_else(there_is_none)?,
        };
        match step {
            Step::Raise => session.raise_term().map(Heard::Raised),
            Step::Look => match session.marker()? {
                // The marker of a node is deleted with its row: a node without either was declared dead, which is no
                // rollback.
                None if self.retained.is_shared() => {
                    let term = session.raise_term()?;
                    Ok(term.map_or(Heard::Raised(None), |_| Heard::Marker(None)))
                }
                at => Ok(Heard::Marker(at)),
            },
            Step::Send(moved) => {
                if self.is_last {
                    session.sync()?;
                }
                self.fate.sent();
                let flushed = match sent {
                    MarkerMove::Rows(rows) => session.flush(moved, rows)?,
                    MarkerMove::Claim(partitions) => session.hold(moved, partitions)?,
                };
                self.believed.told_by_server(flushed.now);
                if matches!(sent, MarkerMove::Rows(_)) {
                    self.others = flushed.others;
                }
                let (has_term, has_moved) = (flushed.has_term, flushed.has_moved);
                Ok(Heard::Flushed { has_term, has_moved })
            }
            Step::Connect | Step::Rest | Step::Stop(_) => {
                Err(ServerTrouble::Failed("there is nothing to be done".to_owned()))
            }
        }
    }
}

fn failed(error: &ServerTrouble) -> JournalFailure {
    JournalFailure::new(FailureKind::Io(std::io::ErrorKind::Other), error.to_string())
}

#[cfg(test)]
mod tests;
