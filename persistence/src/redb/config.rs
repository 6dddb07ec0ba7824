//! Bounds of the file of a [`RedbJournal`](crate::RedbJournal): what no other journal has.

use std::path::PathBuf;
use std::time::Duration;

use crate::config::{JournalConfig, Retention};
use crate::error::StoreError;
use crate::redb::file::overlay::READ_ONLY_BYTES_MAX;

/// All bounds of a [`RedbJournal`](crate::RedbJournal): those that every journal has, and those of its file.
///
/// One that needs only the former is made of a [`JournalConfig`]:
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
    /// What every journal has.
    pub journal: JournalConfig,
    /// What belongs to the file.
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
    /// The same for a store of which nothing is to change: nothing is dropped, archived or moved.
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
        // Beyond any log, and far from an overflow.
        self.store.dead_bytes_max = u64::MAX / 4;
        self
    }

    /// Checks both parts; the journal calls this when it is opened.
    ///
    /// # Errors
    /// [`StoreError::Config`] names the first field that makes no sense.
    pub fn check(&self) -> Result<(), StoreError> {
        self.journal.check()?;
        self.store.check()
    }
}

/// Bounds of the file of a [`RedbJournal`](crate::RedbJournal), and where its archive is. Checked once, when it is
/// opened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreConfig {
    /// Memory for cached pages of the file, in bytes. Default 32 MiB.
    pub cache_bytes_max: usize,
    /// How far ahead of the writes the file is kept filled with zeros, in bytes, so that a sync has
    /// no blocks to allocate; 0 turns that off. Default 16 MiB.
    pub zero_ahead_bytes: u64,
    /// How often an idle journal looks whether its file is still there, and as long as it made it; before each
    /// acknowledgement it looks in any case. Zero looks never, for file systems on which a file that is open
    /// changes its inode number. Default 1 s.
    pub file_check_every: Duration,
    /// How long a commit waits for room on a full disk, or within a quota, before the journal fails with
    /// [`FailureKind::Io`](crate::FailureKind::Io). Meanwhile nothing is acknowledged and
    /// [`Stats::is_disk_full`](crate::Stats::is_disk_full) says so. Zero does not wait, nor does a host whose
    /// parts share one thread, nor the opening of a store. Default 600 s.
    pub disk_full_wait_max: Duration,
    /// How many bytes of the log may be dead, beyond half as many as are needed, before the writer
    /// drops them and moves what still lives among them. Default 16 MiB.
    pub dead_bytes_max: u64,
    /// How many finished runs wait in memory, at about 200 bytes each, before the writer settles
    /// them into a sorted run on disk. More may wait while sorted runs are merged, which takes as long as
    /// about one run closing for each 20 merged: up to 50,000 with the default retention. Where 24 times
    /// as many wait, commits take along twice what closes with them. Default 2,048.
    pub unsettled_len_max: usize,
    /// How many bytes of settled rows one commit takes along, unless the commit before it was larger: then
    /// half of that for the index, and as much as that for the log's beginning. More when too many finished
    /// runs wait, see `unsettled_len_max`. Of each run of which turns leave the log, the row they are added
    /// to is written again on top of that: 32 KiB at most.
    /// Default 128 KiB.
    pub settle_bytes_max: usize,
    /// How many changed bytes of a file that is [only read](crate::RedbJournal::open_read_only) stay in memory: what the
    /// repair of a store and a new index of finished runs write. What is beyond that goes to a temporary file without a
    /// name, in the folder that the system has for such files (`TMPDIR`); it has as many bytes as the store's at most, 32
    /// bytes of memory for each 4 KiB, and is gone with the journal or its process. Default 256 MiB.
    pub changed_bytes_max: u64,
    /// Where the histories of finished runs are written before retention drops them. Default `None`:
    /// nowhere.
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
/// No run is dropped before its history is on stable storage there, and nothing of a run that it was trimmed of:
/// that comes first, so that the lines of a run, one part behind the other, are its whole history.
/// If the archive cannot be written, turns are taken as ever, nothing is dropped, and the file grows; [`Stats::is_archive_failing`](crate::Stats) says so, and it is tried again every
/// ten seconds. After a crash, runs and parts of runs may be in the archive twice: a run and a sequence number
/// name the same record wherever they stand.
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
