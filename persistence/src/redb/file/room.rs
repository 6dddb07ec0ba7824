//! Waits for room where a disk is full, instead of failing.
//!
//! ```text
//!   Store ──► Roomy ──► ZeroAhead ──► FileDisk
//!               │ write, set_len: no room? wait, with growing pauses, and try the same call again
//!               └─ sync: as it is
//! ```
//!
//! A write that was refused for lack of room has promised nothing, so the same call can be repeated, and redb never sees the
//! refusal. Callers that wait for the commit wait meanwhile, and so do later callers once the buffer is full: acknowledged
//! data are not affected. A *sync* that fails is different, even for lack of room: the system may have dropped earlier
//! writes, and would report success the next time. It stops the journal, as any other failure does.
//!
//! Invariants: no call waits before a journal has its writer, nor while it is being closed, nor on a host whose parts share
//! one thread; a wait lasts until there is room or `disk_full_wait_max` has passed since the first refusal of the commit.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use millrun_core::Host;

use super::disk::Disk;
use super::loss::FileLoss;

/// The first and shortest pause before a refused call is repeated.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Whether and how long calls wait for room. It holds no part of the file, so that it can be asked when the file is gone.
#[derive(Debug, Default)]
pub(crate) struct Room {
    waiting: OnceLock<WaitingForRoom>,
    is_full: AtomicBool,
    state: Mutex<RoomState>,
    closing: Condvar,
}

/// The clock, and the longest wait.
#[derive(Debug)]
struct WaitingForRoom {
    host: Arc<dyn Host>,
    wait_max: Duration,
}

#[derive(Debug, Default)]
struct RoomState {
    is_closing: bool,
    /// When a call was first refused since the last sync, on the host's clock.
    full_since: Option<Duration>,
}

impl Room {
    /// From now on calls wait, for at most this long.
    pub(crate) fn wait_on(&self, host: Arc<dyn Host>, wait_max: Duration) {
        if host.has_threads() && !wait_max.is_zero() {
            // A store has one journal.
            self.waiting.set(WaitingForRoom { host, wait_max }).ok();
        }
    }

    /// Ends a wait, and allows no other.
    pub(crate) fn close(&self) {
        self.lock().is_closing = true;
        self.closing.notify_all();
    }

    /// Whether a call waits for room, or has waited since the last sync.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, RoomState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Repeats a call until there is room for it.
    fn until_there_is(&self, mut call: impl FnMut() -> io::Result<()>) -> io::Result<()> {
        let mut pause = PAUSE_MIN;
        loop {
            match (call(), self.waiting.get()) {
                (Err(refusal), Some(waiting)) if is_full(&refusal) => self.wait(waiting, pause, &refusal)?,
                (outcome, _) => return outcome,
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Waits for a while; returns the refusal when there is no time left.
    fn wait(&self, waiting: &WaitingForRoom, pause: Duration, refusal: &io::Error) -> io::Result<()> {
        let mut state = self.lock();
        let now = waiting.host.elapsed();
        if state.full_since.is_none() {
            self.is_full.store(true, Ordering::Relaxed);
            tracing::error!(
                error = %refusal,
                wait_max_s = waiting.wait_max.as_secs(),
                "the disk of the store is full: commits wait for room, and nothing is acknowledged until there is"
            );
        }
        let waited = now.saturating_sub(*state.full_since.get_or_insert(now));
        let left = waiting.wait_max.saturating_sub(waited);
        let problem = if state.is_closing {
            "the disk is full, and the journal was closed before there was room".to_owned()
        } else if left.is_zero() {
            format!(
                "the disk was full for {} s (disk_full_wait_max): free some space, then open the store again",
                waiting.wait_max.as_secs()
            )
        } else {
            let woken = self.closing.wait_timeout(state, pause.min(left));
            drop(woken.unwrap_or_else(PoisonError::into_inner));
            return Ok(());
        };
        Err(io::Error::new(refusal.kind(), format!("{problem}: {refusal}")))
    }

    /// Everything that was written is on the disk.
    fn synced(&self) {
        if self.is_full.swap(false, Ordering::Relaxed)
            && let Some(since) = self.lock().full_since.take()
        {
            let now = self.waiting.get().map(|waiting| waiting.host.elapsed());
            let waited = now.unwrap_or(since).saturating_sub(since);
            tracing::info!(
                waited_s = waited.as_secs(),
                "the disk of the store has room again"
            );
        }
    }
}

/// Whether there was no room: on the disk, or in this user's quota.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

/// A [`Disk`] that waits for room.
#[derive(Debug)]
pub(crate) struct Roomy {
    disk: Arc<dyn Disk>,
    room: Arc<Room>,
}

impl Roomy {
    pub(crate) fn new(disk: Arc<dyn Disk>, room: Arc<Room>) -> Self {
        Self { disk, room }
    }
}

impl Disk for Roomy {
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.disk.read(offset, out)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.room.until_there_is(|| self.disk.write(offset, data))
    }

    fn len(&self) -> io::Result<u64> {
        self.disk.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.room.until_there_is(|| self.disk.set_len(len))
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.sync()?;
        self.room.synced();
        Ok(())
    }

    fn try_lock(&self) -> io::Result<bool> {
        self.disk.try_lock()
    }

    fn can_be_lost(&self) -> bool {
        self.disk.can_be_lost()
    }

    fn loss(&self) -> io::Result<Option<FileLoss>> {
        self.disk.loss()
    }
}
