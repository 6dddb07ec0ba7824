//! Bounds for the file of a [`RedbJournal`](crate::RedbJournal), beyond those of every journal.

use std::path::PathBuf;
use std::time::Duration;

use crate::config::{JournalConfig, Retention};
use crate::error::StoreError;
use crate::redb::file::overlay::READ_ONLY_BYTES_MAX;

/// All bounds of a [`RedbJournal`](crate::RedbJournal): those that every journal has, and those for its file.
///
/// If the defaults for the file will do, a [`JournalConfig`] converts into one:
///
/// ```
/// # use millrun_persistence::{JournalConfig, RedbConfig, StoreConfig};
/// let mut config = RedbConfig::from(JournalConfig::default());
/// config.store.cache_bytes_max = 256 << 20;
/// assert_eq!(config.journal, JournalConfig::default());
/// # assert_eq!(RedbConfig::from(StoreConfig::default()), RedbConfig::default());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RedbConfig {
    /// The bounds that every journal has.
    pub journal: JournalConfig,
    /// The bounds for the file.
    pub store: StoreConfig,
}

impl From<JournalConfig> for RedbConfig {
    fn from(journal: JournalConfig) -> Self {
        Self {
            journal,
            ..Self::default()
        }
    }
}

impl From<StoreConfig> for RedbConfig {
    fn from(store: StoreConfig) -> Self {
        Self {
            store,
            ..Self::default()
        }
    }
}

impl From<(JournalConfig, StoreConfig)> for RedbConfig {
    fn from((journal, store): (JournalConfig, StoreConfig)) -> Self {
        Self { journal, store }
    }
}

impl RedbConfig {
    /// The same for a store that must not change: nothing is dropped, archived or moved.
    pub(crate) fn for_reading(mut self) -> Self {
        self.journal.retention = Retention {
            age_max: Duration::MAX,
            len_max: usize::MAX,
            bytes_max: u64::MAX,
            ..self.journal.retention
        };
        self.store.archive = None;
        self.store.zero_ahead_bytes = 0;
        self.store.file_check_every = Duration::ZERO;
        self.store.disk_full_wait_max = Duration::ZERO;
        // Larger than any log, and far from an overflow.
        self.store.dead_bytes_max = u64::MAX / 4;
        self
    }

    /// Checks both parts; the journal calls this when it is opened.
    ///
    /// # Errors
    /// [`StoreError::Config`] names the first field whose value makes no sense.
    pub fn check(&self) -> Result<(), StoreError> {
        self.journal.check()?;
        self.store.check()
    }
}

/// Bounds for the file of a [`RedbJournal`](crate::RedbJournal), and the place of its archive. Checked once, when it is
/// opened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreConfig {
    /// Memory for cached pages of the file, in bytes. Default 32 MiB.
    pub cache_bytes_max: usize,
    /// How far ahead of the writes the file is kept filled with zeros, in bytes, so that a sync has
    /// no blocks to allocate; 0 turns that off. Default 16 MiB.
    pub zero_ahead_bytes: u64,
    /// How often an idle journal checks that its file is still there and has not been shortened; it always checks before an
    /// acknowledgement. Zero never checks, for file systems on which an open file changes its inode number. Default 1 s.
    pub file_check_every: Duration,
    /// How long a commit waits for room on a full disk, or within a quota, before the journal fails with
    /// [`FailureKind::Io`](crate::FailureKind::Io). Meanwhile nothing is acknowledged and
    /// [`Stats::is_disk_full`](crate::Stats::is_disk_full) is set. With zero there is no wait; nor is there on a host whose
    /// parts share one thread, or while a store is opened. Default 600 s.
    pub disk_full_wait_max: Duration,
    /// How many bytes of the log may be dead, beyond half of the live bytes, before the writer drops them and moves the live
    /// turns among them. Default 16 MiB.
    pub dead_bytes_max: u64,
    /// How many finished runs wait in memory, at about 200 bytes each, before the writer settles them into a sorted run on
    /// disk. More may wait while sorted runs are merged, which takes as long as about one run closing for each 20 merged: up
    /// to 50,000 with the default retention. When 24 times as many wait, each commit settles twice as many as it closes.
    /// Default 2,048.
    pub unsettled_len_max: usize,
    /// How many bytes of settled rows one commit writes, unless the commit before it was larger: then half of its size for
    /// the index, and as much again for the log's beginning. More when too many finished runs wait, see `unsettled_len_max`.
    /// On top of that, for each run whose turns are moved out of the log, the row that they are added to is written again: at
    /// most 32 KiB. Default 128 KiB.
    pub settle_bytes_max: usize,
    /// How many changed bytes of a file that is [only read](crate::RedbJournal::open_read_only) stay in memory: they come
    /// from the repair of a store and from a rebuilt index of finished runs. Further ones go to a temporary file without a
    /// name, in the system's folder for such files (`TMPDIR`); it has at most as many bytes as the store, takes 32 bytes of
    /// memory for each 4 KiB, and is freed with the journal or its process. Default 256 MiB.
    pub changed_bytes_max: u64,
    /// Where the histories of finished runs are written before retention drops them. Default `None`: they are not written.
    pub archive: Option<Archive>,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            cache_bytes_max: 32 << 20,
            zero_ahead_bytes: 16 << 20,
            file_check_every: Duration::from_secs(1),
            disk_full_wait_max: Duration::from_secs(600),
            dead_bytes_max: 16 << 20,
            unsettled_len_max: 2_048,
            settle_bytes_max: 128 << 10,
            changed_bytes_max: READ_ONLY_BYTES_MAX,
            archive: None,
        }
    }
}

impl StoreConfig {
    /// Checks the bounds; the journal calls this when it is opened.
    ///
    /// # Errors
    /// [`StoreError::Config`] names the first field that makes no sense.
    pub fn check(&self) -> Result<(), StoreError> {
        let positive = [
            ("unsettled_len_max", self.unsettled_len_max),
            ("settle_bytes_max", self.settle_bytes_max),
        ];
        match positive.into_iter().find(|(_, value)| *value == 0) {
            Some((field, _)) => Err(StoreError::Config {
                field,
                problem: "must not be zero".to_owned(),
            }),
            None => Ok(()),
        }
    }
}

/// Where histories go before they are dropped, as lines of JSON (see the crate's README).
///
/// No run is dropped before its history is on stable storage there, nor are the records that a run is trimmed of: these are
/// archived first, so the lines of a run, part after part, are its whole history. If the archive cannot be written, turns are
/// still taken, nothing is dropped, and the file grows; [`Stats::is_archive_failing`](crate::Stats) is set, and the journal
/// tries again every ten seconds. After a crash, runs and parts of runs may be in the archive twice: a run and a sequence
/// number always identify the same record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Archive {
    /// The folder, which is created if there is none. Each opening of the store begins a new file.
    pub folder: PathBuf,
    /// Size in bytes at which a new file is begun; the last run in a file may exceed it.
    pub file_bytes_max: u64,
}

impl Archive {
    /// An archive in this folder, in files of 64 MiB.
    #[must_use]
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            file_bytes_max: 64 << 20,
        }
    }
}
