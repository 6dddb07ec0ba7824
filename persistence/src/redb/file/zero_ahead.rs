//! Keeps the file zero-filled ahead of the writes, so that a sync has no blocks to allocate.
//!
//! ```text
//!   0                     front            zeroed                        len
//!   ├─────────────────────┼────────────────┼─────────────────────────────┤
//!   │ written             │ zeros, on disk │ a hole: no blocks yet        │
//!   └─────────────────────┴────────────────┴─────────────────────────────┘
//!                           kept `zero_ahead_bytes` long by a part of its own
//! ```
//!
//! redb grows its file by doubling it, which leaves a hole; the first write into a block of a hole makes the next sync commit
//! the file system's own journal. Writing zeros there beforehand costs bandwidth, and saves about a third of the time of a
//! small commit on ext4.
//!
//! A sync has to write out what was zeroed before it. So between two syncs at most twice as much is zeroed as was written
//! between the two syncs before, or one slice: after the file has doubled there is not one slow commit, but a few that are a
//! little slower.
//!
//! Invariants: nothing at or after `len` is touched, so redb finds the length that it has set; only bytes after everything
//! ever written are zeroed, and a write that would overlap a slice being zeroed waits for it. A failure to zero is not an
//! error: the hole stays, and if the disk was full, zeroing is tried again after the next sync.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use millrun_core::{Bell, Next, Part, Timestamp};

use super::disk::Disk;
use super::loss::FileLoss;
use super::room;

/// How much is zeroed at a time; small, because a sync meanwhile writes it out too.
const SLICE_BYTES: u64 = 1 << 20;
/// How much may be zeroed between two syncs, for each byte that was written between the two before.
const PACE: u64 = 2;

/// A [`Disk`] that is zeroed ahead of its writes by a [`Zeroer`].
#[derive(Debug)]
pub(crate) struct ZeroAhead {
    disk: Arc<dyn Disk>,
    shared: Arc<SharedZeros>,
}

#[derive(Debug)]
struct SharedZeros {
    state: Mutex<ZeroingState>,
    /// Signalled when the zeroer has finished with a slice.
    settled: Condvar,
    bell: Bell,
}

#[derive(Debug)]
struct ZeroingState {
    /// How far ahead of the writes the file is kept zeroed.
    ahead: u64,
    /// The disk that the zeroer writes to; `None` when the file has to be released, or zeroing has failed.
    disk: Option<Arc<dyn Disk>>,
    len: u64,
    /// The end of everything that was ever written; `None` until the end of an existing file's data has been found.
    front: Option<u64>,
    /// The greatest end of a write since the file was opened.
    written: u64,
    /// Where zeroing continues.
    zeroed: u64,
    /// The slice that the zeroer is working on.
    slice: Option<(u64, u64)>,
    /// How much may be zeroed before the next sync.
    allowance: u64,
    /// What was written since the last sync.
    unsynced: u64,
}

impl ZeroAhead {
    /// Wraps a disk; the part must be started with the bell.
    pub(crate) fn new(disk: Arc<dyn Disk>, ahead: u64) -> io::Result<(Self, Zeroer, Bell)> {
        let len = disk.len()?;
        let state = ZeroingState {
            ahead,
            disk: Some(Arc::clone(&disk)),
            len,
            front: None,
            written: 0,
            zeroed: 0,
            slice: None,
            allowance: SLICE_BYTES,
            unsynced: 0,
        };
        let bell = Bell::new();
        let shared = Arc::new(SharedZeros {
            state: Mutex::new(state),
            settled: Condvar::new(),
            bell: bell.clone(),
        });
        let zeroer = Zeroer {
            shared: Arc::clone(&shared),
            search: len,
        };
        Ok((Self { disk, shared }, zeroer, bell))
    }
}

impl SharedZeros {
    fn lock(&self) -> MutexGuard<'_, ZeroingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the zeroer works on no slice that overlaps the range.
    fn settle(&self, start: u64, end: u64) -> MutexGuard<'_, ZeroingState> {
        let mut state = self.lock();
        while state.slice.is_some_and(|(from, to)| from < end && start < to) {
            state = self.settled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state
    }
}

impl ZeroingState {
    /// The next slice to zero, if any is due.
    fn due(&self) -> Option<(u64, u64)> {
        let front = self.front?;
        let from = self.zeroed.max(front);
        let to = (from + SLICE_BYTES.min(self.allowance)).min(self.len);
        (from < to && from < front.saturating_add(self.ahead)).then_some((from, to))
    }

    /// Whether it is time to zero more: half-way already, so that the zeroer runs seldom and never late.
    fn is_behind(&self) -> bool {
        let Some(front) = self.front else { return false };
        self.zeroed < self.len && self.zeroed < front.saturating_add(self.ahead / 2)
    }
}

impl Disk for ZeroAhead {
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.disk.read(offset, out)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let end = offset + data.len() as u64;
        let is_due = {
            let mut state = self.shared.settle(offset, end);
            state.written = state.written.max(end);
            state.unsynced += data.len() as u64;
            match state.front {
                Some(front) if end > front => {
                    state.front = Some(end);
                    state.allowance > 0 && state.is_behind()
                }
                _ => false,
            }
        };
        if is_due {
            self.shared.bell.ring();
        }
        self.disk.write(offset, data)
    }

    fn len(&self) -> io::Result<u64> {
        self.disk.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        {
            let mut state = self.shared.settle(0, u64::MAX);
            self.disk.set_len(len)?;
            state.len = len;
            state.zeroed = state.zeroed.min(len);
            state.front = state.front.map(|front| front.min(len));
            state.written = state.written.min(len);
        }
        self.shared.bell.ring();
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.sync()?;
        let mut state = self.shared.lock();
        let written = std::mem::take(&mut state.unsynced);
        state.allowance = SLICE_BYTES.max(PACE * written);
        let is_due = state.is_behind();
        drop(state);
        if is_due {
            self.shared.bell.ring();
        }
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

impl Drop for ZeroAhead {
    /// Takes the disk from the zeroer, so that the file is released when this returns.
    fn drop(&mut self) {
        self.shared.settle(0, u64::MAX).disk = None;
        self.shared.bell.ring();
    }
}

/// Zeroes slice after slice, until the disk is taken from it.
pub(crate) struct Zeroer {
    shared: Arc<SharedZeros>,
    /// While the end of the file's data is being looked for: everything from here on is zero.
    search: u64,
}

/// A slice that the zeroer works on.
struct ZeroSlice {
    disk: Arc<dyn Disk>,
    from: u64,
    to: u64,
    /// Whether to check if it is zero, instead of zeroing it.
    is_search: bool,
}

impl Zeroer {
    /// Takes the next slice to work on.
    fn take(&self) -> Option<ZeroSlice> {
        let mut state = self.shared.lock();
        let disk = state.disk.clone()?;
        let is_search = state.front.is_none();
        let (from, to) = if is_search {
            (self.search.saturating_sub(SLICE_BYTES), self.search)
        } else {
            state.due()?
        };
        state.slice = Some((from, to));
        Some(ZeroSlice {
            disk,
            from,
            to,
            is_search,
        })
    }

    /// Returns the slice, after `change`; returns whether there is more to do.
    fn put(&self, change: impl FnOnce(&mut ZeroingState)) -> bool {
        let mut state = self.shared.lock();
        state.slice = None;
        change(&mut state);
        let has_more = state.disk.is_some() && (state.front.is_none() || state.due().is_some());
        drop(state);
        self.shared.settled.notify_all();
        has_more
    }
}

impl Part for Zeroer {
    fn turn(&mut self, _now: Timestamp, _budget: usize) -> Next {
        let Some(ZeroSlice {
            disk,
            from,
            to,
            is_search,
        }) = self.take()
        else {
            let is_over = self.shared.lock().disk.is_none();
            return if is_over { Next::Stop } else { Next::Idle };
        };
        let mut bytes = vec![0; usize::try_from(to - from).expect("a slice is small")];
        let has_more = if is_search {
            let is_zero = disk.read(from, &mut bytes).is_ok() && bytes.iter().all(|byte| *byte == 0);
            drop(disk);
            if is_zero && from > 0 {
                self.search = from;
                self.put(|_| {})
            } else {
                let search = self.search;
                self.put(|state| state.front = Some(search.max(state.written).min(state.len)))
            }
        } else {
            let outcome = disk.write(from, &bytes);
            drop(disk);
            self.put(|state| match outcome {
                Ok(()) => {
                    state.zeroed = to;
                    state.allowance = state.allowance.saturating_sub(to - from);
                }
                // Zeroing may be tried again after the next sync.
                Err(error) if room::is_full(&error) => state.allowance = 0,
                Err(_) => state.disk = None,
            })
        };
        if has_more { Next::Again } else { Next::Idle }
    }
}
