//! Snapshots of live runs on their way to the disk.
//!
//! ```text
//!   put ──► waiting (bounded in bytes, the latest per run) ──seal──► segment ──commit──► rows
//!   run closes, delete ──► removal ─────────────────────────┘
//! ```
//!
//! A snapshot is committed together with every turn that was enqueued before it, or later: a stored snapshot never covers
//! more than the log.

use millrun_core::RunId;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::record::Snapshot;
use crate::wire::snapshot;

/// Rows to be written, and runs whose row is removed.
#[derive(Debug, Default)]
pub(crate) struct SnapshotRows {
    pub(crate) put: Vec<(RunId, Vec<u8>)>,
    pub(crate) removed: Vec<RunId>,
}

#[derive(Debug)]
pub(crate) struct Snapshots {
    bytes_max: usize,
    waiting: FxHashMap<RunId, Snapshot>,
    waiting_bytes: usize,
    removed: FxHashSet<RunId>,
    /// The runs that have a row, or will have with the next commit.
    stored: FxHashSet<RunId>,
}

impl Snapshots {
    /// `removed` are runs that have a row and are not live.
    pub(crate) fn new(bytes_max: usize, stored: FxHashSet<RunId>, removed: FxHashSet<RunId>) -> Self {
        Self {
            bytes_max,
            waiting: FxHashMap::default(),
            waiting_bytes: 0,
            removed,
            stored,
        }
    }

    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Takes a snapshot if there is room.
    pub(crate) fn put(&mut self, snapshot: Snapshot) -> bool {
        let former = self
            .waiting
            .get(&snapshot.run)
            .map_or(0, |former| former.bytes.len());
        let bytes = self.waiting_bytes - former + snapshot.bytes.len();
        if bytes > self.bytes_max {
            return false;
        }
        self.waiting_bytes = bytes;
        self.removed.remove(&snapshot.run);
        self.waiting.insert(snapshot.run, snapshot);
        true
    }

    pub(crate) fn remove(&mut self, run: RunId) {
        if let Some(former) = self.waiting.remove(&run) {
            self.waiting_bytes -= former.bytes.len();
        }
        if self.stored.remove(&run) {
            self.removed.insert(run);
        }
    }

    /// Whether there is anything to be written.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty() || !self.removed.is_empty()
    }

    /// Returns what the next commit must write; these runs close in it.
    pub(crate) fn seal(&mut self, finishing: impl Iterator<Item = RunId>) -> SnapshotRows {
        if !self.stored.is_empty() || !self.waiting.is_empty() {
            finishing.for_each(|run| self.remove(run));
        }
        self.waiting_bytes = 0;
        self.stored.extend(self.waiting.keys());
        SnapshotRows {
            put: self
                .waiting
                .drain()
                .map(|(run, snapshot)| (run, snapshot::row(&snapshot)))
                .collect(),
            removed: self.removed.drain().collect(),
        }
    }

    /// Memory held, estimated.
    pub(crate) fn memory_bytes(&self) -> u64 {
        (self.stored.capacity() * (size_of::<RunId>() + 1) + self.waiting_bytes) as u64
    }
}
