//! The writer against a server in memory.

use std::collections::BTreeMap;
use std::sync::MutexGuard;

use crossbeam_channel::unbounded;
use millrun_core::{Bell, Offset, Partition, RunId};
use millrun_persistence::contract::Author;
use millrun_persistence::{Journal, JournalConfig, TopicRowOutline};

use super::*;
use crate::journal::PostgresJournal;
use crate::journal::tests::without_threads;
use crate::outcome::Move;
use crate::retained::FrontRun;
use crate::rows::DROPPED_LEN_MAX;
use crate::server::{Flushed, HeldPartition, MailSession, NodesSession, ReaderSession};

/// As much of a server as a writer sees.
#[derive(Debug, Default)]
struct FakeStore {
    term: i64,
    marker: i64,
    finished: BTreeMap<u64, FrontRun>,
    turns: usize,
    /// How many flushes were done, and how many of them were synced, or followed by one that was.
    flushes: usize,
    synced: usize,
    /// Sessions that were opened, the present one included.
    sessions: usize,
    /// Sessions up to this one are cut.
    cut: usize,
    /// No session is given.
    is_away: bool,
    /// The store has another holder.
    is_taken: bool,
    now: Timestamp,
}

#[derive(Clone, Default)]
struct FakeServer(Arc<Mutex<FakeStore>>);

struct FakeSession {
    store: FakeServer,
    number: usize,
    syncs: bool,
}

impl FakeServer {
    fn lock(&self) -> MutexGuard<'_, FakeStore> {
        self.0.lock().unwrap()
    }

    /// Sessions, flushes, and how many of the flushes are synced.
    fn counts(&self) -> (usize, usize, usize) {
        let store = self.lock();
        (store.sessions, store.flushes, store.synced)
    }

    fn session(&self) -> FakeSession {
        let mut store = self.lock();
        store.sessions += 1;
        FakeSession {
            store: self.clone(),
            number: store.sessions,
            syncs: false,
        }
    }
}

fn lost() -> ServerTrouble {
    ServerTrouble::Lost("cut".to_owned())
}

impl FakeSession {
    fn store(&self) -> Result<MutexGuard<'_, FakeStore>, ServerTrouble> {
        let store = self.store.lock();
        if self.number <= store.cut {
            return Err(lost());
        }
        Ok(store)
    }
}

impl Server for FakeServer {
    fn writer(&self) -> Result<Box<dyn WriterSession>, ServerTrouble> {
        if self.lock().is_away {
            return Err(lost());
        }
        Ok(Box::new(self.session()))
    }

    fn reader(&self, _: bool) -> Result<Box<dyn ReaderSession>, ServerTrouble> {
        Err(lost())
    }

    fn nodes(&self) -> Result<Box<dyn NodesSession>, ServerTrouble> {
        Err(lost())
    }

    fn mail(&self) -> Result<Box<dyn MailSession>, ServerTrouble> {
        Err(lost())
    }
}

impl WriterSession for FakeSession {
    fn flush(&mut self, moved: Move, rows: &FlushRows) -> Result<Flushed, ServerTrouble> {
        let syncs = self.syncs;
        let mut store = self.store()?;
        let has_term = moved.term == store.term;
        let has_moved = has_term && moved.from == store.marker;
        if has_moved {
            store.marker = moved.to;
            store.turns += rows.turns.len();
            for row in &rows.finished {
                assert!(store.finished.insert(row.front().number, row.front()).is_none());
            }
            store.finished.retain(|number, _| *number >= rows.first);
            store.flushes += 1;
            store.synced = if syncs { store.flushes } else { store.synced };
        }
        Ok(Flushed {
            has_term,
            has_moved,
            now: store.now,
            others: (0, 0),
        })
    }

    fn hold(&mut self, _: Move, _: &[Partition]) -> Result<Flushed, ServerTrouble> {
        Err(lost())
    }

    fn held(&mut self, _: &[Partition]) -> Result<Vec<HeldPartition>, ServerTrouble> {
        Err(lost())
    }

    fn leave(&mut self) -> Result<(), ServerTrouble> {
        Ok(())
    }

    fn sync(&mut self) -> Result<(), ServerTrouble> {
        drop(self.store()?);
        self.syncs = true;
        Ok(())
    }

    fn raise_term(&mut self) -> Result<Option<i64>, ServerTrouble> {
        let mut store = self.store()?;
        store.term += 1;
        Ok((!store.is_taken).then_some(store.term))
    }

    fn marker(&mut self) -> Result<Option<i64>, ServerTrouble> {
        Ok(Some(self.store()?.marker))
    }

    fn topic_front(
        &mut self,
        _: TopicNumber,
        _: Sequence,
        _: usize,
    ) -> Result<Vec<TopicRowOutline>, ServerTrouble> {
        Ok(Vec::new())
    }

    fn earliest(
        &mut self,
        from: u64,
        len_max: usize,
        _: Option<&[Partition]>,
    ) -> Result<Vec<FrontRun>, ServerTrouble> {
        let store = self.store()?;
        Ok(store
            .finished
            .range(from..)
            .take(len_max)
            .map(|(_, run)| *run)
            .collect())
    }
}

/// A journal with a writer that does what it is told to, over a store with so many finished runs.
fn world(config: JournalConfig, finished: u64) -> (PostgresJournal, FlushWriter, FakeServer) {
    let server = FakeServer::default();
    for number in 0..finished {
        let run = FrontRun {
            number,
            run: RunId::new(Partition::from_index(0).unwrap(), Timestamp::EPOCH, number),
            closed_at: Timestamp::EPOCH,
            bytes: 1,
        };
        server.lock().finished.insert(number, run);
    }
    let (retention, durability) = (config.retention, config.durability);
    let journal = without_threads(config);
    let writer = FlushWriter {
        shared: Arc::clone(&journal.shared),
        server: Box::new(server.clone()),
        session: Some(Box::new(server.session())),
        fate: FlushFate::new(0, 0),
        retained: FinishedFront::new(retention, 0, finished, finished, finished),
        counts: WrittenCounts::default(),
        beat_every: None,
        durability,
        is_unsynced: false,
        is_last: false,
        upkeep: None,
        removed_before: RemovedBefore::default(),
        others: (0, 0),
        mail: None,
        claims: unbounded().0,
        questions: Arc::default(),
        server_wait_max: Duration::ZERO,
        believed: BelievedTime::new(Timestamp::EPOCH, Timestamp::EPOCH, retention.age_step_max),
    };
    (journal, writer, server)
}

/// One flush.
fn step(writer: &mut FlushWriter) {
    let Took::Flush(taken) = writer.shared.take(Duration::ZERO) else {
        panic!("something is queued")
    };
    writer.write(*taken).unwrap();
}

fn enqueued(journal: &PostgresJournal, author: &mut Author) -> Offset {
    let enqueued = journal.enqueue(&author.batch(&[b"turn"], false)).unwrap();
    assert_eq!(enqueued.refused, []);
    enqueued.offset
}

#[test]
fn turns_are_acknowledged_between_the_steps_of_an_upkeep() {
    let mut config = JournalConfig::default();
    config.retention.len_max = 10;
    let finished = 3 * DROPPED_LEN_MAX as u64;
    let (journal, mut writer, server) = world(config, finished);
    let mut author = Author::new(&journal, "a", 1);
    let bell = Bell::new();
    let number = journal.upkeep(Timestamp::EPOCH, bell.clone());
    for round in 1..=3 {
        assert_eq!(journal.upkept(number), None);
        let offset = enqueued(&journal, &mut author);
        step(&mut writer);
        assert_eq!(journal.high_watermark(), offset);
        let left = finished - round * DROPPED_LEN_MAX as u64;
        assert_eq!(server.lock().finished.len() as u64, left.max(10));
    }
    assert_eq!((journal.upkept(number), bell.answer()), (Some(Ok(())), true));
    assert!(matches!(writer.shared.take(Duration::ZERO), Took::Idle));
}

#[test]
fn a_session_that_is_lost_while_nothing_is_written_is_replaced() {
    let (journal, mut writer, server) = world(JournalConfig::default(), 0);
    writer.look_around().unwrap();
    assert_eq!(server.lock().sessions, 1);
    server.lock().cut = 1;
    server.lock().is_away = true;
    // While no server answers the journal stays open.
    writer.look_around().unwrap();
    server.lock().is_away = false;
    writer.look_around().unwrap();
    assert_eq!(server.counts(), (2, 0, 0));
    let offset = enqueued(&journal, &mut Author::new(&journal, "a", 1));
    step(&mut writer);
    assert_eq!((journal.high_watermark(), server.counts()), (offset, (2, 1, 0)));
}

#[test]
fn a_store_that_another_process_has_taken_is_noticed_while_nothing_is_written() {
    let (_journal, mut writer, server) = world(JournalConfig::default(), 0);
    server.lock().cut = 1;
    server.lock().is_taken = true;
    let failure = writer.look_around().unwrap_err();
    assert_eq!(failure.kind(), FailureKind::Fenced);
}

#[test]
fn a_close_syncs_what_was_acknowledged_before_it_was_synced() {
    for durability in [
        Durability::Volatile,
        Durability::Eventual {
            window: Duration::from_secs(1),
        },
    ] {
        let mut config = JournalConfig::default();
        config.durability = durability;
        let (journal, mut writer, server) = world(config, 0);
        enqueued(&journal, &mut Author::new(&journal, "a", 1));
        step(&mut writer);
        assert_eq!(server.counts(), (1, 1, 0));
        // The session is another one by then.
        server.lock().cut = 1;
        writer.server_wait_max = Duration::MAX;
        journal.begin_close();
        assert_eq!(writer.run().kind(), FailureKind::Closed);
        assert_eq!(server.counts(), (2, 2, 2));
    }
    let (journal, mut writer, server) = world(JournalConfig::default(), 0);
    enqueued(&journal, &mut Author::new(&journal, "a", 1));
    step(&mut writer);
    journal.begin_close();
    assert_eq!(writer.run().kind(), FailureKind::Closed);
    assert_eq!(server.lock().flushes, 1, "each flush was synced by itself");
}

#[test]
fn a_run_that_closes_under_a_wrong_clock_counts_as_closed_at_the_time_that_is_believed() {
    let (journal, mut writer, server) = world(JournalConfig::default(), 0);
    let hours = |hours| Timestamp::EPOCH + Duration::from_secs(3_600) * hours;
    writer.believed = BelievedTime::new(hours(1_000), hours(999), Duration::from_secs(6 * 3_600));
    server.lock().now = hours(1_000);
    for (number, clock) in [1_000, 280, 9_000].into_iter().enumerate() {
        let mut author = Author::new(&journal, &format!("run-{number}"), number as u64);
        author.time = hours(clock);
        let enqueued = journal.enqueue(&author.batch(&[b"all"], true)).unwrap();
        assert_eq!(enqueued.refused, []);
        step(&mut writer);
    }
    let closed: Vec<_> = server.lock().finished.values().map(|run| run.closed_at).collect();
    assert!(
        closed.is_sorted() && closed[1].saturating_since(hours(1_000)) < Duration::from_secs(1),
        "{closed:?}"
    );
    assert!((hours(1_006)..hours(1_007)).contains(&closed[2]), "{closed:?}");
}
