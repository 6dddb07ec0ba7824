//! Where the turns go: a file that a thread of its own commits to, or memory.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use millrun_core::Host;
use millrun_persistence::floor::{FIRST_PAGE_BYTES, LOG_TABLE, Linger, Lingering, rows, zeroed_ahead};
use millrun_persistence::{Disk, FileDisk, Journal, RedbJournal, StoreConfig};
use redb::{Database, StorageBackend, TableDefinition};

use super::KEPT_RUNS;
use super::shard::{Begun, Ended, Inbox};
use crate::BenchError;

const LOG: TableDefinition<'_, u64, &[u8]> = TableDefinition::new(LOG_TABLE);
/// Segments that are kept to be used again.
const SPARE_MAX: usize = 2;

/// A stretch of the log, and the runs that wait for it.
#[derive(Default)]
pub(super) struct Segment {
    /// Where it begins in the log.
    start: u64,
    pub(super) bytes: Vec<u8>,
    pub(super) begun: Vec<Begun>,
    pub(super) ended: Vec<Ended>,
    /// How many sweeps of the shard are in it.
    sweeps: usize,
}

impl Segment {
    pub(super) fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    fn turns(&self) -> usize {
        self.begun.len() + self.ended.len()
    }

    /// Begins anew at `start`, with the same memory.
    fn begin(&mut self, start: u64) {
        self.start = start;
        self.bytes.clear();
        self.sweeps = 0;
    }
}

/// The log as the shard sees it.
pub(super) enum Log {
    Disk(Arc<OpenLog>),
    Memory(Kept),
}

impl Log {
    /// Has `write` put the turns of a sweep into the open segment; what was `durable` is used again. In memory
    /// the segment is durable at once, and is given back.
    pub(super) fn sweep(
        &mut self,
        durable: &mut Vec<Segment>,
        write: impl FnOnce(&mut Segment, &mut [Segment]),
    ) -> Option<Segment> {
        match self {
            Self::Disk(open) => {
                let mut state = open.lock();
                write(&mut state.segment, durable);
                state.spare.append(durable);
                state.spare.truncate(SPARE_MAX);
                let is_new = state.segment.turns() > 0;
                state.segment.sweeps += usize::from(is_new);
                let is_wanted = state.segment.turns() >= state.ring_at;
                drop(state);
                if is_wanted {
                    open.came.notify_one();
                }
                None
            }
            Self::Memory(kept) => {
                let mut segment = kept.next();
                write(&mut segment, durable);
                kept.spare.append(durable);
                let is_empty = segment.turns() == 0;
                kept.keep(&mut segment);
                (!is_empty).then_some(segment)
            }
        }
    }

    /// Ends the writer after what is queued.
    pub(super) fn close(&self) {
        if let Self::Disk(open) = self {
            open.lock().is_closing = true;
            open.came.notify_one();
        }
    }
}

/// The frames of the latest runs, in memory.
#[derive(Default)]
pub(super) struct Kept {
    end: u64,
    runs: usize,
    frames: VecDeque<(Vec<u8>, usize)>,
    spare: Vec<Segment>,
    /// Memory of frames that are kept no longer.
    free: Vec<Vec<u8>>,
}

impl Kept {
    fn next(&mut self) -> Segment {
        let mut segment = self.spare.pop().unwrap_or_default();
        segment.bytes = self.free.pop().unwrap_or_default();
        segment.begin(self.end);
        segment
    }

    fn keep(&mut self, segment: &mut Segment) {
        self.end = segment.end();
        self.spare.truncate(SPARE_MAX);
        let ended = segment.ended.len();
        self.runs += ended;
        self.frames.push_back((std::mem::take(&mut segment.bytes), ended));
        while self.runs > KEPT_RUNS
            && let Some((bytes, ended)) = self.frames.pop_front()
        {
            self.runs -= ended;
            self.free.push(bytes);
        }
    }
}

/// The segment that the shard fills and the writer seals.
#[derive(Default)]
pub(super) struct OpenLog {
    state: Mutex<Open>,
    came: Condvar,
}

#[derive(Default)]
struct Open {
    segment: Segment,
    spare: Vec<Segment>,
    /// How many waiting turns wake the writer.
    ring_at: usize,
    is_closing: bool,
}

impl OpenLog {
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread that commits.
pub(super) struct Writer {
    open: Arc<OpenLog>,
    inbox: Arc<Inbox>,
    database: Database,
    lingering: Lingering,
    began: Instant,
}

impl Writer {
    /// Makes an empty store as the journal does, and opens the file for the floor.
    pub(super) fn open(
        path: &Path,
        host: &Arc<dyn Host>,
        open: &Arc<OpenLog>,
        inbox: &Arc<Inbox>,
    ) -> Result<Self, BenchError> {
        fn failed(error: impl std::fmt::Display) -> BenchError {
            BenchError::failed("floor", error)
        }
        let config = StoreConfig::default();
        let empty = RedbJournal::open(path, config.clone(), Arc::clone(host)).map_err(failed)?;
        empty.close().map_err(failed)?;
        drop(empty);
        let disk = Arc::new(FileDisk::open(path).map_err(failed)?);
        let disk = zeroed_ahead(disk, config.zero_ahead_bytes, &**host).map_err(failed)?;
        let mut database = Database::builder();
        database.set_cache_size(config.cache_bytes_max);
        let database = database.create_with_backend(Backend(disk)).map_err(failed)?;
        Ok(Self {
            open: Arc::clone(open),
            inbox: Arc::clone(inbox),
            database,
            lingering: Lingering::default(),
            began: Instant::now(),
        })
    }

    /// Commits until the floor ends.
    pub(super) fn run(mut self) -> Result<(), BenchError> {
        while let Some(segment) = self.next() {
            let begins = self.began.elapsed();
            if let Err(error) = self.commit(&segment) {
                self.inbox.fail();
                return Err(BenchError::failed("floor", error));
            }
            let ended = self.began.elapsed();
            let committed = (segment.sweeps, segment.turns());
            let queued = self.open.lock().segment.turns();
            self.lingering.committed(committed, queued, ended - begins, ended);
            self.inbox.push_durable(segment);
        }
        Ok(())
    }

    /// Seals the open segment when it is time; `None` at the end.
    fn next(&self) -> Option<Segment> {
        let mut open = self.open.lock();
        loop {
            let queued = open.segment.turns();
            if open.is_closing && queued == 0 {
                return None;
            }
            open = match self.lingering.decide(queued, self.began.elapsed()) {
                Linger::Commit => {
                    let mut next = open.spare.pop().unwrap_or_default();
                    next.begin(open.segment.end());
                    open.ring_at = usize::MAX;
                    return Some(std::mem::replace(&mut open.segment, next));
                }
                Linger::Wait(time, turns) => {
                    open.ring_at = turns;
                    let waited = self.open.came.wait_timeout(open, time);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                Linger::Idle => {
                    open.ring_at = 1;
                    self.open.came.wait(open).unwrap_or_else(PoisonError::into_inner)
                }
            };
        }
    }

    fn commit(&self, segment: &Segment) -> Result<(), redb::Error> {
        let transaction = self.database.begin_write()?;
        let mut log = transaction.open_table(LOG)?;
        rows(&segment.bytes, |at, row| {
            log.insert(segment.start + at, row)?;
            Ok::<_, redb::Error>(())
        })?;
        drop(log);
        transaction.commit()?;
        Ok(())
    }
}

/// A disk as redb wants it, behind the journal's first page.
#[derive(Debug)]
struct Backend(Arc<dyn Disk>);

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.len()?.saturating_sub(FIRST_PAGE_BYTES))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset + FIRST_PAGE_BYTES, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len + FIRST_PAGE_BYTES)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset + FIRST_PAGE_BYTES, data)
    }
}
