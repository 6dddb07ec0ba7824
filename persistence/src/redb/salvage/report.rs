//! What a salvage says.

use std::fmt;
use std::io;
use std::path::PathBuf;

use millrun_core::{InstanceId, RunId};

use crate::error::StoreError;
use crate::redb::config::StoreConfig;

/// Bounds of a [`salvage`](crate::salvage).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SalvageOptions {
    /// Memory in bytes for what is known of the source: 48 bytes for each place where records of one run
    /// stand side by side (a turn, mostly), 32 for each row of the log and each run, 24 for each finished
    /// run that is settled. When reached, the source is read several times, each time for a share of the
    /// runs; at 1,024 times [`SalvageError::TooLarge`] is given. Default 512 MiB.
    pub index_bytes_max: usize,
    /// The largest record in bytes that is looked for; as much of the source is in memory at a time. No
    /// less than the greatest `turn_bytes_max` that the source was ever opened with. Default 64 MiB.
    pub frame_bytes_max: usize,
    /// The cache and the zeros ahead of the new store; no other bound is used.
    pub store: StoreConfig,
}

impl Default for SalvageOptions {
    fn default() -> Self {
        Self {
            index_bytes_max: 512 << 20,
            frame_bytes_max: 64 << 20,
            store: StoreConfig::default(),
        }
    }
}

/// How far a salvage is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SalvageProgress {
    /// Whether histories are being written; before, the source is being read.
    pub is_writing: bool,
    /// Bytes done of the present reading or of what is written.
    pub bytes_done: u64,
    /// Bytes of it in all.
    pub bytes_total: u64,
    /// Runs that are in the new store so far.
    pub runs: u64,
}

/// A run that is not in the new store, because a record of it is missing or damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NotWhole {
    /// The run.
    pub run: RunId,
    /// The id of its instance, if its first record is sound.
    pub id: Option<InstanceId>,
    /// How many sound records come before what is wrong.
    pub records: u64,
    /// What is wrong.
    pub cause: String,
}

/// A damaged record of which it cannot be told whose it was.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WithoutOwner {
    /// Where it begins in the source, in bytes.
    pub at: u64,
    /// The run that its header names, of which nothing else was found: the run may have had this record
    /// only, or the name is what is damaged.
    pub named: Option<RunId>,
    /// What is wrong.
    pub cause: String,
}

/// What a salvage found and wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SalvageReport {
    /// Live runs in the new store.
    pub live_runs: u64,
    /// Finished runs in the new store.
    pub finished_runs: u64,
    /// Records in the new store.
    pub records: u64,
    /// Runs that are not in the new store though something current is left of them, up to 10,000.
    pub not_whole: Vec<NotWhole>,
    /// Such runs beyond those.
    pub not_whole_more: u64,
    /// Live runs in the new store that may have had more turns, because a part of the log is missing that
    /// cannot be put down to its runs; up to 10,000.
    pub maybe_shorter: Vec<RunId>,
    /// Such runs beyond those.
    pub maybe_shorter_more: u64,
    /// Runs in the new store of which it could not be told whether retention had dropped them, or whether
    /// they were ever acknowledged.
    pub unsure_runs: u64,
    /// Runs that retention had dropped, and which were left out.
    pub dropped_runs: u64,
    /// Damaged records without an owner, up to 10,000.
    pub without_owner: Vec<WithoutOwner>,
    /// Such records beyond those.
    pub without_owner_more: u64,
    /// Sound records that are in no history: of runs that are not whole or were dropped, and copies.
    pub records_left: u64,
    /// Parts of the log that are missing: where each begins, and where the log goes on if it does.
    pub gaps: Vec<(u64, Option<u64>)>,
    /// Pages of redb's trees that held turns and of which nothing is left. Runs all of whose records stood
    /// there are missing without a name.
    pub lost_pages: u64,
    /// Whether the source had been closed; else a crash came before the damage, or was it.
    pub is_clean: bool,
    /// Size of the source in bytes.
    pub bytes: u64,
    /// Bytes of the source that the device refused to read.
    pub refused_bytes: u64,
    /// How often the source was read.
    pub passes: u64,
    /// What could not be told, in sentences for a person.
    pub unknown: Vec<String>,
}

/// How many of each kind a report names.
pub(crate) const NAMED_MAX: usize = 10_000;

impl SalvageReport {
    /// Whether everything that the source held is in the new store, as far as that can be told.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.not_whole.is_empty()
            && self.maybe_shorter.is_empty()
            && self.without_owner.is_empty()
            && self.gaps.is_empty()
            && self.lost_pages == 0
            && self.unknown.is_empty()
    }
}

impl fmt::Display for SalvageReport {
    /// Several lines for a person; runs are named up to twenty of each kind.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 20;
        let closed = if self.is_clean {
            "had been closed"
        } else {
            "had not been closed"
        };
        writeln!(f, "The source {closed}; {} bytes were read.", self.bytes)?;
        let (live, finished) = (self.live_runs, self.finished_runs);
        writeln!(
            f,
            "In the new store: {live} live and {finished} finished runs, {} records.",
            self.records
        )?;
        if self.is_complete() {
            writeln!(f, "Nothing is known to be missing.")?;
        }
        let more = |f: &mut fmt::Formatter<'_>, len: usize, more: u64| {
            let hidden = len.saturating_sub(SHOWN) as u64 + more;
            if hidden > 0 {
                writeln!(f, "  and {hidden} more")
            } else {
                Ok(())
            }
        };
        if !self.not_whole.is_empty() {
            writeln!(f, "Not whole, and left out:")?;
            for lost in self.not_whole.iter().take(SHOWN) {
                let id = lost.id.as_ref().map_or("(id unknown)", InstanceId::as_str);
                writeln!(
                    f,
                    "  {id} run {}: {}, {} records come before",
                    lost.run, lost.cause, lost.records
                )?;
            }
            more(f, self.not_whole.len(), self.not_whole_more)?;
        }
        if !self.maybe_shorter.is_empty() {
            writeln!(f, "In the new store, but their last turns may be missing:")?;
            for run in self.maybe_shorter.iter().take(SHOWN) {
                writeln!(f, "  run {run}")?;
            }
            more(f, self.maybe_shorter.len(), self.maybe_shorter_more)?;
        }
        if !self.without_owner.is_empty() {
            writeln!(f, "Damaged records without an owner:")?;
            for lost in self.without_owner.iter().take(SHOWN) {
                let named = lost
                    .named
                    .map_or(String::new(), |run| format!(", named run {run}"));
                writeln!(f, "  at byte {}: {}{named}", lost.at, lost.cause)?;
            }
            more(f, self.without_owner.len(), self.without_owner_more)?;
        }
        if self.dropped_runs > 0 {
            writeln!(
                f,
                "Left out, because retention had dropped them: {} runs.",
                self.dropped_runs
            )?;
        }
        if self.lost_pages > 0 {
            let pages = self.lost_pages;
            writeln!(
                f,
                "Of {pages} pages with turns nothing is left: runs may be missing without a name."
            )?;
        }
        for sentence in &self.unknown {
            writeln!(f, "{sentence}")?;
        }
        Ok(())
    }
}

/// Why nothing was salvaged. There is no new store at its place then, and the source is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SalvageError {
    /// There is a file where the new store should be.
    #[error("{path} exists: a salvage makes a new store")]
    Exists {
        /// Where the new store should be.
        path: PathBuf,
    },
    /// A process has the source open: close it there, or end the process.
    #[error("{path} is open in another process: close it first")]
    InUse {
        /// The source.
        path: PathBuf,
    },
    /// The source cannot be opened or is no file.
    #[error("{path} could not be read")]
    Read {
        /// The source.
        path: PathBuf,
        /// What the operating system says.
        #[source]
        source: io::Error,
    },
    /// Nothing of a store was found in the source.
    #[error("{path} is no store: nothing of one is in it")]
    NotAStore {
        /// The source.
        path: PathBuf,
    },
    /// The source was written by a later release, which has a salvage for it.
    #[error("{path} has format {found}, this release reads up to {supported}: use a later release")]
    NewerFormat {
        /// The source.
        path: PathBuf,
        /// The format found.
        found: u32,
        /// The newest format this release reads.
        supported: u32,
    },
    /// What is known of the source does not fit into [`SalvageOptions::index_bytes_max`], however often it
    /// is read. Raise that bound.
    #[error("{bytes} bytes of memory are not enough for what is known of {path}: raise index_bytes_max")]
    TooLarge {
        /// The source.
        path: PathBuf,
        /// The bound.
        bytes: usize,
    },
    /// The new store could not be written.
    #[error("the new store could not be written")]
    Write(#[source] StoreError),
}
