//! What the journal's handle and its writer share.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, TryLockError, Weak};

use millrun_core::{Bell, Host, Offset, PartExit};

use super::config::RedbConfig;
use super::database::store::Store;
use super::file::disk::Disk;
use super::file::room::Room;
use super::state::JournalState;
use crate::error::{FailureKind, JournalFailure};

const NOT_COMPACTING: u64 = u64::MAX;

pub(crate) struct JournalShared {
    pub(crate) config: RedbConfig,
    pub(crate) host: Arc<dyn Host>,
    /// Wakes the writer.
    pub(crate) bell: Bell,
    state: Mutex<JournalState>,
    watermark: AtomicU64,
    /// Whether `JournalState::failure` is set, so that a check needs no lock.
    has_failed: AtomicBool,
    /// `None` once the journal has released the file.
    store: RwLock<Option<Arc<Store>>>,
    /// The disk, for its size: it can be asked while the store is being compacted.
    disk: Weak<dyn Disk>,
    room: Arc<Room>,
    /// How many bytes redb has written,
    written: Arc<AtomicU64>,
    /// and how many when the compaction under way began.
    compaction_began: AtomicU64,
    /// Bytes written by the last compaction that has ended.
    compacted: AtomicU64,
    /// Whether the writer has ended.
    ended: Mutex<bool>,
    ending: Condvar,
}

impl JournalShared {
    pub(crate) fn new(
        config: RedbConfig,
        host: Arc<dyn Host>,
        state: JournalState,
        store: Arc<Store>,
    ) -> Self {
        let (disk, written) = store.meter();
        let room = Arc::clone(store.room());
        room.wait_on(Arc::clone(&host), config.store.disk_full_wait_max);
        Self {
            disk,
            room,
            written,
            compaction_began: AtomicU64::new(NOT_COMPACTING),
            compacted: AtomicU64::new(0),
            config,
            host,
            bell: Bell::new(),
            state: Mutex::new(state),
            watermark: AtomicU64::new(0),
            has_failed: AtomicBool::new(false),
            store: RwLock::new(Some(store)),
            ended: Mutex::new(false),
            ending: Condvar::new(),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, JournalState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn watermark(&self) -> Offset {
        Offset::new(self.watermark.load(Ordering::Acquire))
    }

    /// Moves the watermark up to `offset`.
    pub(crate) fn publish(&self, offset: Offset) {
        self.watermark.fetch_max(offset.get(), Ordering::Release);
    }

    /// The store, for reading.
    pub(crate) fn store(&self) -> Result<Arc<Store>, JournalFailure> {
        let store = self.store.read().unwrap_or_else(PoisonError::into_inner);
        store.clone().ok_or_else(JournalFailure::closed)
    }

    /// Compacts the store if nobody reads it; readers wait meanwhile. Returns the store for its writer, and whether it was
    /// compacted.
    pub(crate) fn compact(&self) -> (Option<Arc<Store>>, Result<bool, JournalFailure>) {
        let mut place = self.store.write().unwrap_or_else(PoisonError::into_inner);
        let Some(store) = place.take() else {
            return (None, Err(JournalFailure::closed()));
        };
        let (store, outcome) = match Arc::try_unwrap(store) {
            // Such reads began before the place was taken: no further one begins.
            Ok(store) if store.is_being_read() => (Arc::new(store), None),
            Ok(mut store) => {
                let began = self.written.load(Ordering::Relaxed);
                self.compaction_began.store(began, Ordering::Relaxed);
                let outcome = store.compact();
                self.compacted.store(self.compacted_bytes(), Ordering::Relaxed);
                self.compaction_began.store(NOT_COMPACTING, Ordering::Relaxed);
                (Arc::new(store), Some(outcome))
            }
            Err(store) => (store, None),
        };
        *place = Some(Arc::clone(&store));
        drop(place);
        let Some(outcome) = outcome else {
            return (Some(store), Ok(false));
        };
        let mut state = self.lock();
        state.is_compacting = false;
        state.compactions += 1;
        let watchers = state.watchers.clone();
        drop(state);
        for bell in watchers {
            bell.ring();
        }
        (Some(store), outcome.map(|()| true))
    }

    /// Bytes written by the compaction under way, or by the last one.
    pub(crate) fn compacted_bytes(&self) -> u64 {
        match self.compaction_began.load(Ordering::Relaxed) {
            NOT_COMPACTING => self.compacted.load(Ordering::Relaxed),
            began => self.written.load(Ordering::Relaxed).saturating_sub(began),
        }
    }

    /// Size of the file in bytes; 0 once it was released.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.disk.upgrade().and_then(|disk| disk.len().ok()).unwrap_or(0)
    }

    /// Whether a commit waits for room on the disk.
    pub(crate) fn is_disk_full(&self) -> bool {
        self.room.is_full()
    }

    pub(crate) fn failure(&self) -> Option<JournalFailure> {
        if self.has_failed.load(Ordering::Acquire) {
            self.lock().failure.clone()
        } else {
            None
        }
    }

    /// Stops the journal for good and tells everyone. The first failure is kept.
    pub(crate) fn fail(&self, failure: JournalFailure) {
        let mut state = self.lock();
        state.failure.get_or_insert(failure);
        self.has_failed.store(true, Ordering::Release);
        let failure = state.failure.clone().expect("it was set just now");
        let refused = (state.claims.refuse(&failure), state.upkeeps.fail(&failure));
        let watchers = state.watchers.clone();
        drop(state);
        drop(refused);
        for bell in watchers {
            bell.ring();
        }
    }

    /// Begins to close; what is queued is still flushed.
    pub(crate) fn begin_close(&self) {
        self.lock().is_closing = true;
        self.room.close();
        self.bell.ring();
        if self.has_writer_ended() {
            self.let_go();
        }
    }

    /// The writer has ended, for any reason.
    pub(crate) fn writer_ended(&self, exit: &PartExit) {
        let message = match exit {
            PartExit::Stopped => "the writer was stopped before the journal was closed".to_owned(),
            PartExit::Panicked(message) => format!("the writer panicked: {message}"),
        };
        let is_closing = || self.lock().is_closing;
        let mut has_let_go = false;
        loop {
            if is_closing() && !has_let_go {
                self.let_go();
                has_let_go = true;
            }
            let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
            // A thread that begins to close after this sees that the writer has ended, and releases the file; one that did so
            // just before has not.
            if has_let_go || !is_closing() {
                *ended = true;
                break;
            }
        }
        self.ending.notify_all();
        // Has no effect if the writer has given its reason already.
        self.fail(JournalFailure::new(FailureKind::WriterLost, message));
    }

    /// Releases the file. Reads under way keep it until they end.
    fn let_go(&self) {
        let mut place = self.store.write().unwrap_or_else(PoisonError::into_inner);
        // Dropped under the lock: until then the file is not free.
        *place = None;
    }

    fn has_writer_ended(&self) -> bool {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.has_writer_ended()
            && match self.store.try_read() {
                Ok(place) => place.is_none(),
                Err(TryLockError::Poisoned(place)) => place.into_inner().is_none(),
                // It is being released.
                Err(TryLockError::WouldBlock) => false,
            }
    }

    /// Waits until the writer has ended.
    pub(crate) fn join(&self) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        while !*ended {
            ended = self.ending.wait(ended).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl fmt::Debug for JournalShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JournalShared")
            .field("watermark", &self.watermark())
            .finish_non_exhaustive()
    }
}
