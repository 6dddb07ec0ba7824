//! The results of a salvage.

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
    /// Memory in bytes for what is known of the source: 48 bytes for each place where records of one run are adjacent (mostly
    /// a turn), 32 for each row of the log and each run, 24 for each finished run that is settled. When reached, the source
    /// is read several times, each time for a share of the runs; if 1,024 passes are not enough, the result is
    /// [`SalvageError::TooLarge`]. Default 512 MiB.
    pub index_bytes_max: usize,
    /// The largest record in bytes that is recognised; as much of the source is in memory at a time. At least the greatest
    /// `turn_bytes_max` that the source was ever opened with. Default 64 MiB.
    pub frame_bytes_max: usize,
    /// The cache and the zeroing ahead of the new store; no other bound is used.
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

/// The progress of a salvage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SalvageProgress {
    /// Whether histories are being written; before, the source is being read.
    pub is_writing: bool,
    /// Bytes done of the present pass or of what is written.
    pub bytes_done: u64,
    /// Bytes of it in all.
    pub bytes_total: u64,
    /// Runs that are in the new store so far.
    pub runs: u64,
}

/// A run that is not in the new store, because one of its records is missing or damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NotWhole {
    /// The run.
    pub run: RunId,
    /// The id of its instance, if its first record is undamaged.
    pub id: Option<InstanceId>,
    /// How many undamaged records come before the error.
    pub records: u64,
    /// What is wrong.
    pub cause: String,
}

/// A damaged record whose run is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WithoutOwner {
    /// Where it begins in the source, in bytes.
    pub at: u64,
    /// The run that its header names, of which nothing else was found: the run may have had only this record, or the name
    /// itself is damaged.
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
    /// Runs that are not in the new store although some current part of them is left, at most 10,000.
    pub not_whole: Vec<NotWhole>,
    /// The number of further such runs.
    pub not_whole_more: u64,
    /// Live runs in the new store that may have had more turns, because a part of the log is missing that cannot be
    /// attributed to its runs; at most 10,000.
    pub maybe_shorter: Vec<RunId>,
    /// The number of further such runs.
    pub maybe_shorter_more: u64,
    /// Runs in the new store that retention may have dropped, or that may never have been acknowledged.
    pub unsure_runs: u64,
    /// Runs that retention had dropped, and that were left out.
    pub dropped_runs: u64,
    /// Damaged records without an owner, up to 10,000.
    pub without_owner: Vec<WithoutOwner>,
    /// The number of further such records.
    pub without_owner_more: u64,
    /// Undamaged records that are in no history: of damaged or dropped runs, and copies.
    pub records_left: u64,
    /// Missing parts of the log: where each begins, and where the log continues if it does.
    pub gaps: Vec<(u64, Option<u64>)>,
    /// Pages of redb's trees that held turns and of which nothing is left. Runs that had all their records there are missing,
    /// and their names are not known.
    pub lost_pages: u64,
    /// Whether the source had been closed properly; otherwise a crash came before the damage, or caused it.
    pub is_clean: bool,
    /// Size of the source in bytes.
    pub bytes: u64,
    /// Bytes of the source that the device refused to read.
    pub refused_bytes: u64,
    /// How often the source was read.
    pub passes: u64,
    /// What is not known, in sentences for a reader.
    pub unknown: Vec<String>,
}

/// How many of each kind the report lists.
pub(crate) const NAMED_MAX: usize = 10_000;

impl SalvageReport {
    /// Whether everything that the source held is in the new store, as far as that can be known.
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
    /// Several lines for a reader, with at most twenty runs of each kind.
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

/// Why nothing was salvaged. Then there is no new store, and the source is unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SalvageError {
    /// There is a file at the path of the new store.
    #[error("{path} exists: a salvage makes a new store")]
    Exists {
        /// Where the new store should be.
        path: PathBuf,
    },
    /// Another process has the source open: close it there, or end the process.
    #[error("{path} is open in another process: close it first")]
    InUse {
        /// The source.
        path: PathBuf,
    },
    /// The source cannot be opened or is not a file.
    #[error("{path} could not be read")]
    Read {
        /// The source.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// Nothing of a store was found in the source.
    #[error("{path} is no store: nothing of one is in it")]
    NotAStore {
        /// The source.
        path: PathBuf,
    },
    /// The source was written by a later release: salvage it with that.
    #[error("{path} has format {found}, this release reads up to {supported}: use a later release")]
    NewerFormat {
        /// The source.
        path: PathBuf,
        /// The format found.
        found: u32,
        /// The newest format this release reads.
        supported: u32,
    },
    /// The data on the source do not fit into [`SalvageOptions::index_bytes_max`], in however many passes. Raise that bound.
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
