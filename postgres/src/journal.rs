//! The journal: the writing and the reading half of the port.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use crossbeam_channel::{Sender, bounded, unbounded};
use millrun_core::{Bell, Epoch, InstanceId, Offset, Partition, RunId, Sequence, Timestamp};
use millrun_persistence::{
    Batch, Claim, ClaimNews, ClaimRefused, Claimant, EachRead, EnqueueError, Enqueued, FailureKind,
    FinishedFound, FinishedRun, FinishedSearch, History, HistoryPage, Journal, JournalConfig, JournalFailure,
    Lane, Owner, Progress, ReadError, Reads, RecoveryReport, RefusedTurn, SharedStore, Snapshot,
    SnapshotRefused, Stats, ToRead, TopicStreams, TurnRefused, UpkeepNumber, UpkeepUndone, WasRead, frames,
};

use crate::address::{self, Address};
use crate::believed::BelievedTime;
use crate::config::PostgresConfig;
use crate::error::PostgresOpenError;
use crate::heads::LiveHeads;
use crate::mail::MailDoor;
use crate::nodes::{NodesDoor, NodesSeat};
use crate::outcome::FlushFate;
use crate::pg::{self, OpenStore, StoreFacts};
use crate::queued::{QueuedEntry, QueuedTurn};
use crate::reading::{self, ReaderSeat, ServerQuestion, walk};
use crate::retained::FinishedFront;
use crate::server::{Server, StoredFinished, StoredTurns, WriterSession};
use crate::shared::{ClaimHow, NodeState, PostgresShared, WrittenCounts};
use crate::writing::{FlushWriter, RemovedBefore};

/// How much of a history is read at a time, in bytes.
const READ_BYTES: u64 = 4 << 20;

/// How many histories a recovery reads ahead of its caller.
const RECOVERED_LEN_MAX: usize = 64;

/// A [`Journal`] in a schema of a PostgreSQL database. Dropping it closes it.
pub struct PostgresJournal {
    shown: String,
    config: JournalConfig,
    pub(crate) store_number: u64,
    pub(crate) shared: Arc<PostgresShared>,
    questions: Arc<Mutex<Option<Sender<ServerQuestion>>>>,
    threads: Vec<JoinHandle<()>>,
    /// Only for a process that shares the store.
    pub(crate) nodes: Option<NodesDoor>,
}

impl fmt::Debug for PostgresJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresJournal")
            .field("address", &self.shown)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

impl PostgresJournal {
    /// Opens the store in the schema that the URL names, `postgres://user:password@host:port/database?schema=name`, or
    /// makes a new one there. The parameters of the URL are listed in the README.
    ///
    /// The call waits for the server on the calling thread: in a task use `spawn_blocking`.
    ///
    /// ```no_run
    /// use millrun_postgres::{PostgresConfig, PostgresJournal};
    ///
    /// let journal = PostgresJournal::open("postgres://app@localhost/orders?schema=millrun", PostgresConfig::default())?;
    /// # Ok::<(), millrun_postgres::PostgresOpenError>(())
    /// ```
    ///
    /// # Errors
    /// See [`PostgresOpenError`], whose messages say what to do.
    pub fn open(url: &str, config: PostgresConfig) -> Result<Self, PostgresOpenError> {
        config.check().map_err(PostgresOpenError::Config)?;
        let address = Address::parse(url)?;
        let node = address.node.clone();
        Self::open_at(address, config, node)
    }

    /// Opens the store as one of several processes: as a node. Its name is the URL's parameter `node`, or else the host's
    /// name with a random number. The node owns no partition until it claims some, and keeps no topics.
    ///
    /// The call waits for the server, as [`open`](Self::open) does. With the parameter `node` in the URL, `open` does the
    /// same as this.
    ///
    /// ```no_run
    /// use millrun_postgres::{PostgresConfig, PostgresJournal};
    ///
    /// let journal = PostgresJournal::join("postgres://app@localhost/orders?node=first", PostgresConfig::default())?;
    /// # Ok::<(), millrun_postgres::PostgresOpenError>(())
    /// ```
    ///
    /// # Errors
    /// See [`PostgresOpenError`], whose messages say what to do.
    pub fn join(url: &str, config: PostgresConfig) -> Result<Self, PostgresOpenError> {
        config.check().map_err(PostgresOpenError::Config)?;
        let address = Address::parse(url)?;
        let node = address.node.clone().unwrap_or_default();
        Self::open_at(address, config, Some(node))
    }

    /// Opens the store as a node of this name (made up if empty), or as the only process.
    fn open_at(
        address: Address,
        config: PostgresConfig,
        node: Option<String>,
    ) -> Result<Self, PostgresOpenError> {
        let node = match node {
            Some(name) if name.is_empty() => Some(made_name()?),
            node => node,
        };
        let config = match &node {
            Some(_) => config.of_node(),
            None => config,
        };
        let numbers = OpeningNumbers::random()?;
        let (sender, opened) = bounded(1);
        let (of_writer, begin) = bounded::<FlushWriter>(1);
        let (opened_address, opened_config) = (address.clone(), config.clone());
        // A connection is driven by its own thread, and a thread of the caller's runtime must not drive one.
        let writer = spawn("postgres writer", move || {
            drop(sender.send(pg::open(&opened_address, &opened_config, node, numbers)));
            if let Ok(writer) = begin.recv() {
                let mut end = WriterEnd(Some(writer));
                end.run();
            }
        })?;
        let lost = || PostgresOpenError::Server {
            address: address.shown().to_owned(),
            problem: "the opening has panicked: a bug, please report it".to_owned(),
        };
        let OpenStore {
            server,
            writer: session,
            facts,
        } = opened.recv().map_err(|_| lost())??;
        let mut journal = Self::start(&config, Box::new(server), session, facts, |writer| {
            drop(of_writer.send(writer));
        })?;
        journal.threads.push(writer);
        address.shown().clone_into(&mut journal.shown);
        Ok(journal)
    }

    /// Starts the threads of an opened store; `begin` starts the writer.
    fn start(
        config: &PostgresConfig,
        server: Box<dyn CloneServer>,
        session: Box<dyn WriterSession>,
        facts: StoreFacts,
        begin: impl FnOnce(FlushWriter),
    ) -> Result<Self, PostgresOpenError> {
        let mut heads = LiveHeads::new(facts.epoch, config.journal.turn_bytes_max);
        for (run, head) in facts.live {
            heads.restore(run, head);
        }
        facts.damaged.into_iter().for_each(|run| heads.quarantine(run));
        let (first, next, len, bytes) = facts.finished;
        let counts = WrittenCounts {
            finished_runs: len,
            finished_bytes: bytes,
            ..WrittenCounts::default()
        };
        let shared = PostgresShared::new(heads, facts.topics, counts);
        let is_shared = facts.node.is_some();
        if is_shared {
            shared.lock().node = Some(NodeState::default());
        }
        let (questions, asked) = unbounded::<ServerQuestion>();
        let (claims, claimed) = unbounded();
        let seat = |server: &dyn CloneServer| ReaderSeat {
            shared: Arc::clone(&shared),
            server: server.another(),
            session: None,
            server_wait_max: config.server_wait_max,
        };
        let mut threads = Vec::with_capacity(config.readers + 2);
        for number in 0..config.readers {
            let (seat, asked) = (seat(&*server), asked.clone());
            threads.push(spawn(&format!("postgres reader {number}"), move || {
                seat.run(&asked)
            })?);
        }
        let claims_seat = seat(&*server);
        threads.push(spawn("postgres claims", move || {
            claims_seat.answer_claims(&claimed)
        })?);
        let questions = Arc::new(Mutex::new(Some(questions)));
        let (mut nodes, mut mail) = (None, None);
        if let Some(node) = facts.node {
            let (mail_door, mail_seat) = MailDoor::new(Arc::clone(&shared), server.another());
            threads.push(spawn("postgres mail", move || mail_seat.run())?);
            mail = Some(mail_door.wake());
            let (door, asked) = NodesDoor::new(node, Arc::clone(&shared), mail_door);
            let seat = NodesSeat::new(Arc::clone(&shared), server.another());
            threads.push(spawn("postgres nodes", move || seat.run(&asked))?);
            nodes = Some(door);
        }
        let retained = match is_shared {
            true => FinishedFront::shared(config.journal.retention, first),
            false => FinishedFront::new(config.journal.retention, first, next, len, bytes),
        };
        begin(FlushWriter {
            shared: Arc::clone(&shared),
            server: server.another(),
            session: Some(session),
            fate: FlushFate::new(facts.term, facts.marker),
            retained,
            counts,
            beat_every: is_shared.then_some(config.beat_every),
            durability: config.journal.durability,
            is_unsynced: false,
            is_last: false,
            upkeep: None,
            removed_before: RemovedBefore::default(),
            others: (0, 0),
            mail,
            claims,
            questions: Arc::clone(&questions),
            server_wait_max: config.server_wait_max,
            believed: BelievedTime::new(
                facts.now,
                facts.last_closed,
                config.journal.retention.age_step_max,
            ),
        });
        Ok(Self {
            shown: String::new(),
            config: config.journal.clone(),
            store_number: facts.store_number,
            shared,
            questions,
            threads,
            nodes,
        })
    }

    pub(crate) fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut ReaderSeat) -> Result<T, ReadError> + Send + 'static,
    ) -> Result<T, ReadError> {
        self.shared.readable()?;
        let questions = self
            .questions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        reading::ask(questions, question)
    }

    /// Grants epochs to a claim, which are stored before the claim is answered. First the store is asked for partitions that
    /// this node does not have.
    fn begin_claim(&self, claim: Claim, how: ClaimHow) {
        let mut state = match self.shared.open_state() {
            Ok(state) => state,
            Err(failure) => return drop(claim.refuse(failure.into())),
        };
        let told = state
            .ask_store(claim, how)
            .map(|claim| state.begin_claim(claim, how));
        drop(state);
        self.shared.wake();
        drop(told);
    }

    /// Claims those of these partitions that the store has not given to this node, on behalf of no claimant. Waits for the
    /// store.
    fn hold(&self, partitions: &[Partition]) -> Result<(), JournalFailure> {
        let missing = self.shared.open_state()?.missing(partitions);
        if missing.is_empty() {
            return Ok(());
        }
        let bell = Bell::new();
        let (sender, has_rung) = bounded(1);
        bell.connect(move || {
            // One waiting message is enough.
            sender.try_send(()).ok();
        });
        let owner = random().map_err(|error| {
            JournalFailure::new(FailureKind::Io(std::io::ErrorKind::Other), error.to_string())
        })?;
        let claimant = Claimant::new(Owner::new(owner.cast_unsigned()), bell.clone());
        self.begin_claim(claimant.claim(missing, Vec::new()), ClaimHow::FromOthers);
        loop {
            bell.answer();
            for news in claimant.take_news() {
                match news {
                    ClaimNews::Granted(_) => return Ok(()),
                    ClaimNews::Refused {
                        error: ClaimRefused::Failed(failure),
                        ..
                    } => return Err(failure),
                    ClaimNews::Refused { error, .. } => {
                        return Err(JournalFailure::new(FailureKind::Fenced, error.to_string()));
                    }
                    _ => {}
                }
            }
            if has_rung.recv().is_err() {
                return Err(JournalFailure::closed());
            }
        }
    }

    /// The number of retained finished runs in the whole store.
    fn finished_runs(&self) -> Result<u64, ReadError> {
        if self.nodes.is_none() {
            return Ok(self.shared.lock().counts.finished_runs);
        }
        let all: Vec<_> = (0..Partition::COUNT).filter_map(Partition::from_index).collect();
        let retained = self.ask(move |seat| seat.ask(|session| session.retained(&all)))?;
        Ok(retained.iter().map(|(_, (len, _))| len).sum())
    }

    /// Marks a run as damaged if its read says so: it accepts nothing any more.
    fn noting_damage<T>(&self, run: RunId, read: Result<T, ReadError>) -> Result<T, ReadError> {
        if matches!(read, Err(ReadError::Damaged { .. })) {
            self.shared.quarantine(run);
        }
        read
    }
}

/// A server of which every thread can have its own handle.
trait CloneServer: Server {
    fn another(&self) -> Box<dyn Server>;
}

impl<S: Server + Clone + 'static> CloneServer for S {
    fn another(&self) -> Box<dyn Server> {
        Box::new(self.clone())
    }
}

/// Reports the end of the writer, also if the writer panics; its connection is closed by then.
struct WriterEnd(Option<FlushWriter>);

impl WriterEnd {
    fn run(&mut self) {
        let Some(writer) = &mut self.0 else { return };
        let failure = writer.run();
        if failure.kind() != FailureKind::Closed {
            tracing::error!(%failure, "the journal has stopped");
        }
        writer.shared.lock().failure.get_or_insert(failure);
    }
}

impl Drop for WriterEnd {
    fn drop(&mut self) {
        let Some(writer) = self.0.take() else { return };
        let (shared, questions) = (Arc::clone(&writer.shared), Arc::clone(&writer.questions));
        drop(writer);
        let lost = JournalFailure::new(FailureKind::WriterLost, "the writer has panicked");
        let failure = shared.lock().failure.get_or_insert(lost).clone();
        if failure.kind() == FailureKind::Closed {
            // After a close nothing is read, and the readers close their connections.
            questions.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
        shared.end(failure);
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name.to_owned()).spawn(run)
}

fn random() -> Result<i64, PostgresOpenError> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| PostgresOpenError::Spawn(error.into()))?;
    Ok(i64::from_le_bytes(bytes))
}

/// Numbers that are unique to an opening.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpeningNumbers {
    /// The number by which the store knows this opening; never zero, which stands for no opening.
    pub(crate) holder: i64,
    /// The number for a new store.
    pub(crate) store: i64,
}

impl OpeningNumbers {
    fn random() -> Result<Self, PostgresOpenError> {
        Ok(Self {
            holder: random()? | 1,
            store: random()?,
        })
    }
}

/// Makes up a name for a node: the host's name and random digits.
fn made_name() -> Result<String, PostgresOpenError> {
    let host = std::env::var("HOSTNAME")
        .ok()
        .or_else(|| std::fs::read_to_string("/etc/hostname").ok())
        .unwrap_or_default();
    let host = host.trim().to_ascii_lowercase();
    let host: String = host
        .chars()
        .filter(|c| address::is_of_node_name(*c))
        .take(40)
        .collect();
    let host = if host.is_empty() { "node" } else { &*host };
    Ok(format!("{host}-{:08x}", random()? & 0xffff_ffff))
}

impl Drop for PostgresJournal {
    fn drop(&mut self) {
        self.begin_close();
        // Readers end when their channel is closed.
        self.questions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(nodes) = &self.nodes {
            nodes.close();
        }
        for thread in self.threads.drain(..) {
            // A thread that has panicked has reported that.
            drop(thread.join());
        }
    }
}

impl Journal for PostgresJournal {
    fn enqueue(&self, batch: &Batch) -> Result<Enqueued, EnqueueError> {
        let batch = batch.sealed();
        let mut state = self.shared.open_state()?;
        let has_room = state.queued_bytes + batch.bytes() <= self.config.batch_bytes_max
            && state.queued_len + batch.turns() + batch.topic_records() + batch.mail_steps().len()
                <= self.config.batch_len_max;
        if state.queued_len > 0 && !has_room {
            state.was_full = true;
            return Err(EnqueueError::Full);
        }
        let mut refused: Vec<RefusedTurn> = Vec::new();
        let queued = state.queued_len;
        for group in batch.groups() {
            let rests_on_refused = group.is_tied()
                && group.turns().next().is_some_and(|(first, _)| {
                    let last = refused.last().filter(|last| last.turn + 1 == first);
                    last.is_some_and(|last| last.error != TurnRefused::AlreadyAppended)
                });
            let judged = match rests_on_refused {
                true => Err(vec![TurnRefused::ReadAgain; group.turns().len()]),
                false => state.heads.judge(&group),
            };
            match judged {
                Ok(()) => {
                    for (_, turn) in group.turns() {
                        let run_bytes = state.heads.admit(&turn);
                        state.push(QueuedEntry::Turn(QueuedTurn::new(&turn, run_bytes)));
                    }
                    state.queued_bytes += group.bytes();
                }
                Err(errors) => {
                    let turns = group.turns().zip(errors);
                    refused.extend(turns.map(|((turn, _), error)| RefusedTurn { turn, error }));
                }
            }
        }
        let topic_appends = match batch.topic_records() {
            0 => Vec::new(),
            _ => state.append_to_topics(&batch, &refused),
        };
        if !batch.mail_steps().is_empty() {
            state.take_mail(&batch, &refused);
        }
        let is_taken = state.queued_len > queued;
        let is_asked = batch.turns() + batch.topic_records() + batch.mail_steps().len() > 0;
        let offset = if is_taken {
            state.enqueued = state.enqueued.next();
            state.enqueued
        } else if is_asked {
            // A refusal is an answer from memory, so a flush must confirm that this opening still has the store.
            state.next_flush()
        } else {
            state.enqueued
        };
        drop(state);
        if is_asked {
            self.shared.wake();
        }
        Ok(Enqueued {
            offset,
            refused,
            topic_appends,
        })
    }

    fn read_again(&self, run: RunId, epoch: Epoch) -> Result<Sequence, TurnRefused> {
        self.shared.lock().heads.read_again(run, epoch)
    }

    fn high_watermark(&self) -> Offset {
        self.shared.lock().durable
    }

    /// The next flush shows whether this process still has the store. A flush that is queued already will do: it is sent
    /// after the question.
    fn confirm(&self, queued: Offset) -> Offset {
        self.shared.confirm(queued)
    }

    fn failure(&self) -> Option<JournalFailure> {
        self.shared.lock().failure.clone()
    }

    fn watch(&self, bell: Bell) {
        self.shared.lock().watchers.push(bell);
    }

    fn claim(&self, claim: Claim) {
        self.begin_claim(claim, ClaimHow::IfFree);
    }

    /// Partitions of other nodes are not taken: see [`SharedStore`].
    fn take_from(&self, claim: Claim) {
        self.begin_claim(claim, ClaimHow::FromOthers);
    }

    fn release(&self, claimant: &Claimant, partitions: &[Partition]) {
        self.shared.lock().release(claimant, partitions);
        self.shared.wake();
    }

    /// Claims partitions that this node does not have, and waits for them.
    fn take_over(&self, partitions: &[Partition]) -> Result<Epoch, JournalFailure> {
        self.hold(partitions)?;
        let mut state = self.shared.open_state()?;
        let mut partitions = partitions.to_vec();
        partitions.sort_unstable();
        let (epoch, told) = state.heads.owners.take_over(&partitions);
        let given: Vec<_> = partitions
            .into_iter()
            .map(|partition| (partition, epoch))
            .collect();
        state.give(&given);
        drop(state);
        self.shared.wake();
        drop(told);
        Ok(epoch)
    }

    fn is_quarantined(&self, run: RunId) -> bool {
        self.shared.lock().heads.is_quarantined(run)
    }

    fn put_snapshot(&self, snapshot: Snapshot) -> Result<(), SnapshotRefused> {
        let mut state = self.shared.open_state()?;
        let head = state.heads.head(snapshot.run).ok_or(SnapshotRefused::NotLive)?;
        let head = Sequence::new(head.last);
        let (bytes, max) = (snapshot.bytes.len(), self.config.snapshot_bytes_max);
        if snapshot.sequence > head {
            return Err(SnapshotRefused::Ahead { head });
        } else if bytes > max {
            return Err(SnapshotRefused::TooLarge { bytes, max });
        } else if state.queued_snapshot_bytes + bytes > max || state.queued_len >= self.config.batch_len_max {
            state.was_full = true;
            return Err(SnapshotRefused::Full);
        }
        state.queued_snapshot_bytes += bytes;
        state.push(QueuedEntry::Snapshot(snapshot));
        drop(state);
        self.shared.wake();
        Ok(())
    }

    /// Does nothing for a run in a partition that another node may own.
    fn delete_snapshot(&self, run: RunId) -> Result<(), JournalFailure> {
        let mut state = self.shared.open_state()?;
        if !state.has(run.partition()) {
            return Ok(());
        }
        state.push(QueuedEntry::NoSnapshot(run));
        drop(state);
        self.shared.wake();
        Ok(())
    }

    fn upkeep(&self, now: Timestamp, done: Bell) -> UpkeepNumber {
        let mut state = self.shared.lock();
        let number = state.upkeeps.ask(now, done);
        let failure = match (&state.failure, state.is_closing) {
            (Some(failure), _) => Some(failure.clone()),
            (None, true) => Some(JournalFailure::closed()),
            (None, false) => None,
        };
        let told = failure.map(|failure| state.upkeeps.fail(&failure));
        drop(state);
        drop(told);
        self.shared.wake();
        number
    }

    fn upkept(&self, number: UpkeepNumber) -> Option<Result<(), UpkeepUndone>> {
        self.shared.lock().upkeeps.outcome(number)
    }

    /// Nodes keep no topics: the state of these is in the memory of one process.
    fn topics(&self) -> Option<&dyn TopicStreams> {
        match self.nodes {
            None => Some(self),
            Some(_) => None,
        }
    }

    fn nodes(&self) -> Option<&dyn SharedStore> {
        let nodes = self.nodes.as_ref()?;
        Some(nodes)
    }

    fn stats(&self) -> Stats {
        let state = self.shared.lock();
        let counts = state.counts;
        let mut stats = Stats::default();
        stats.live_runs = state.heads.len() as u64;
        stats.finished_runs = counts.finished_runs;
        stats.dropped_runs = counts.dropped_runs;
        stats.live_bytes = state.heads.bytes() + counts.finished_bytes;
        stats.log_bytes = stats.live_bytes;
        stats.queued_bytes = state.queued_bytes as u64;
        stats.index_bytes = state.heads.memory_bytes();
        stats.commits = counts.commits;
        stats.turns = counts.turns;
        stats.bytes = counts.bytes;
        (stats.topics, stats.topic_bytes) = state.topics.counts();
        stats.last_commit = counts.last_commit;
        stats
    }

    fn begin_close(&self) {
        self.shared.lock().is_closing = true;
        self.shared.wake();
    }

    fn is_closed(&self) -> bool {
        self.shared.lock().is_closed
    }

    fn close(&self) -> Result<(), JournalFailure> {
        self.begin_close();
        match self.shared.wait_closed() {
            Some(failure) if failure.kind() != FailureKind::Closed => Err(failure),
            _ => Ok(()),
        }
    }
}

impl Reads for PostgresJournal {
    fn history(&self, run: RunId) -> Result<History, ReadError> {
        let max = self.config.history_bytes_max;
        let read = self.ask(move |seat| seat.history(run, max));
        self.noting_damage(run, read)
    }

    fn history_page(&self, run: RunId, after: Sequence, bytes_max: usize) -> Result<HistoryPage, ReadError> {
        let read = self.ask(move |seat| seat.page(run, after, bytes_max));
        self.noting_damage(run, read)
    }

    fn snapshot(&self, run: RunId) -> Result<Option<Snapshot>, ReadError> {
        self.ask(move |seat| seat.ask(|session| session.snapshot(run)))
    }

    /// Questions about finished runs are put into one statement; otherwise each start of a workflow would need one.
    fn read_together(&self, wanted: &[ToRead], bytes_max: usize, each: EachRead<'_>) {
        let ids = wanted.iter().filter_map(|wanted| match wanted {
            ToRead::Finished(id) => Some(id.clone()),
            _ => None,
        });
        let ids: Vec<_> = ids.collect();
        let mut finished = match ids.len() {
            0 => Ok(Vec::new()),
            _ => self.ask(move |seat| seat.finished(&ids)),
        }
        .map(Vec::into_iter);
        let mut left = bytes_max;
        for (index, wanted) in wanted.iter().enumerate() {
            let was_read = match (wanted, &mut finished) {
                (ToRead::Finished(_), Ok(finished)) => {
                    let found = finished.next().unwrap_or(Ok(None));
                    Some(found.map(WasRead::Finished))
                }
                (ToRead::Finished(_), Err(error)) => Some(Err(error.clone())),
                (wanted, _) => wanted.read_alone(self, left),
            };
            if let Some(was_read) = was_read {
                left = left.saturating_sub(was_read.as_ref().map_or(0, WasRead::bytes));
                each(index, was_read);
            }
        }
    }

    fn finished(&self, id: &InstanceId) -> Result<Option<FinishedRun>, ReadError> {
        let ids = [id.clone()];
        let found = self.ask(move |seat| seat.finished(&ids))?;
        found.into_iter().next().unwrap_or(Ok(None))
    }

    fn list_finished(&self, after: Option<RunId>, limit: usize) -> Result<Vec<FinishedRun>, ReadError> {
        self.ask(move |seat| seat.ask(|session| session.list_finished(after, limit)))
    }

    fn find_finished(&self, search: &FinishedSearch, len_max: usize) -> Result<FinishedFound, ReadError> {
        let search = search.clone();
        let page = self.ask(move |seat| seat.ask(|session| session.find_finished(&search, len_max)))?;
        let mut found = FinishedFound::default();
        (found.runs, found.next) = (page.runs, page.next);
        Ok(found)
    }

    /// The lanes are called on this thread. A node reads the partitions that it owns.
    fn recover(
        &self,
        lanes: &mut [Lane<'_>],
        progress: &mut dyn FnMut(Progress),
    ) -> Result<RecoveryReport, ReadError> {
        let (sender, runs) = bounded(RECOVERED_LEN_MAX);
        self.shared.readable()?;
        // Runs of other nodes may change while they are read.
        let all = (0..Partition::COUNT).filter_map(Partition::from_index);
        let state = self.shared.lock();
        let own = all.filter(|partition| state.has(*partition));
        let partitions: Vec<_> = own.map(Partition::index).collect();
        drop(state);
        let questions = self
            .questions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let closed = || ReadError::Failed(JournalFailure::closed());
        let question: ServerQuestion = Box::new(move |seat| {
            let read = seat.live_runs(&partitions, &mut |run, turns| {
                // The caller may have given up.
                drop(sender.send(Ok((run, turns))));
            });
            if let Err(error) = read {
                drop(sender.send(Err(error)));
            }
        });
        let questions = questions.ok_or_else(closed)?;
        questions.send(question).map_err(|_| closed())?;
        let mut report = RecoveryReport::default();
        report.finished_runs = self.finished_runs()?;
        for read in runs {
            let (run, turns) = read?;
            let lane = usize::from(run.partition().index()) % lanes.len();
            match walk(run, &turns, &mut |record| lanes[lane](record)) {
                Ok((records, bytes)) => {
                    report.live_runs += 1;
                    report.records += records;
                    report.bytes += bytes;
                }
                Err(error) => {
                    self.shared.quarantine(run);
                    report.damaged.push(error);
                }
            }
        }
        progress(Progress {
            bytes_done: report.bytes,
            bytes_total: report.bytes,
            records: report.records,
        });
        Ok(report)
    }
}

impl ReaderSeat {
    fn history(&mut self, run: RunId, max: u64) -> Result<History, ReadError> {
        let (mut turns, mut after, mut bytes) = (Vec::new(), 0, 0);
        loop {
            let (last, more) = self.turns(run, after, READ_BYTES)?;
            for turn in more {
                after = turn.last;
                bytes += turn.frames.len() as u64;
                turns.push(turn.frames);
            }
            if bytes > max {
                let bytes = self.ask(|session| session.run_bytes(run))?;
                return Err(ReadError::TooLong { run, bytes, max });
            }
            if after >= last {
                return frames::history(run, &turns);
            }
        }
    }

    fn page(&mut self, run: RunId, after: Sequence, bytes_max: usize) -> Result<HistoryPage, ReadError> {
        let (mut turns, mut behind, mut bytes) = (Vec::new(), after.get(), 0);
        loop {
            let wanted = (bytes_max as u64).saturating_sub(bytes).min(READ_BYTES);
            let (last, more) = self.turns(run, behind, wanted)?;
            for turn in more {
                behind = turn.last;
                bytes += turn.frames.len() as u64;
                turns.push(turn.frames);
            }
            if behind >= last || bytes > bytes_max as u64 {
                return frames::page(run, &turns, after, bytes_max, Sequence::new(last));
            }
        }
    }

    /// The last record of a run, and some of its turns behind `after`.
    fn turns(
        &mut self,
        run: RunId,
        after: u64,
        bytes_max: u64,
    ) -> Result<(u64, Vec<crate::server::StoredTurn>), ReadError> {
        match self.ask(|session| session.turns(run, after, bytes_max))? {
            StoredTurns::Known { last, turns } => match turns.is_empty() && after < last {
                true => Err(ReadError::Damaged {
                    run: Some(run),
                    position: 0,
                    cause: format!("the turn with the record behind {after} is missing"),
                }),
                false => Ok((last, turns)),
            },
            StoredTurns::Expired => Err(ReadError::Expired { run }),
            StoredTurns::Unknown => Err(ReadError::UnknownRun { run }),
        }
    }

    fn finished(
        &mut self,
        ids: &[InstanceId],
    ) -> Result<Vec<Result<Option<FinishedRun>, ReadError>>, ReadError> {
        let ids: Vec<_> = ids.iter().map(|id| id.as_str().to_owned()).collect();
        let found = self.ask(|session| session.finished(&ids))?;
        let found = found.into_iter().map(|found| match found {
            StoredFinished::Retained(finished) => Ok(Some(finished)),
            StoredFinished::Expired(run) => Err(ReadError::Expired { run }),
            StoredFinished::Unknown => Ok(None),
        });
        Ok(found.collect())
    }
}

#[cfg(test)]
pub(crate) mod tests;
