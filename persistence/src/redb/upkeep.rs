//! Operations on a whole store: verify it, copy it, make it smaller.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use millrun_core::{Host, RunId, Sequence};

use super::RedbJournal;
use super::config::StoreConfig;
use super::database::moment::{LogKey, StoreMoment};
use super::database::store::{CopiedRows, Store};
use super::database::topics::TopicAndIdRows;
use super::file::system;
use super::finished::index::Index;
use super::opening::open;
use super::opening::rebuild::{self, KnownFinished};
use super::topics;
use crate::error::{JournalFailure, ReadError, StoreError};
use crate::topics::TopicNumber;
use crate::wire::topic_row;

/// How many bytes of rows a backup copies in one transaction.
const COPY_BYTES: usize = 8 << 20;

/// The result of checking the whole store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified {
    /// Undamaged records.
    pub records: u64,
    /// Bytes of the log.
    pub bytes: u64,
    /// Undamaged records of topics.
    pub topic_records: u64,
    /// Runs that were trimmed, each with its first remaining record: live ones, retained finished ones, and dropped ones that
    /// are still in the log.
    pub trimmed: Vec<(RunId, Sequence)>,
    /// All errors; empty if the store is undamaged.
    pub damaged: Vec<ReadError>,
}

/// Why a backup was not made. Then there is no file at its path, or the one that was there before.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// There is a file at the path of the backup.
    #[error("{path} exists: a backup replaces nothing")]
    Exists {
        /// Where the backup should go.
        path: PathBuf,
    },
    /// The store cannot be read.
    #[error(transparent)]
    Read(#[from] JournalFailure),
    /// The backup cannot be written.
    #[error("the backup could not be written")]
    Write(#[source] StoreError),
}

/// The length of a file before and after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Compacted {
    /// Its bytes before.
    pub bytes_before: u64,
    /// Its bytes now.
    pub bytes_after: u64,
}

/// Returns the free space of a store's file, which no process may have open, to the file system. The store's contents do not
/// change: no run is dropped, and no opening counted. For an open store there is [`RedbJournal::begin_compact`].
///
/// # Errors
/// As for [`RedbJournal::open`]; no file is created.
pub fn compact(path: impl AsRef<Path>, host: &dyn Host) -> Result<Compacted, StoreError> {
    let path = path.as_ref();
    let config = StoreConfig {
        zero_ahead_bytes: 0,
        disk_full_wait_max: Duration::ZERO,
        ..StoreConfig::default()
    };
    let bytes_before = len_of(path)?;
    let mut store = open::open_path_made(path, &config, host)?;
    store.compact().map_err(|failure| open::failed(&failure, path))?;
    // redb's writes when it closes a file count, too.
    drop(store);
    let bytes_after = len_of(path)?;
    Ok(Compacted {
        bytes_before,
        bytes_after,
    })
}

fn len_of(path: &Path) -> Result<u64, StoreError> {
    let found = fs::metadata(path).map_err(|source| StoreError::Io {
        path: path.to_owned(),
        source,
    })?;
    Ok(found.len())
}

impl RedbJournal {
    /// The format of the store's file. A file of an earlier release keeps its format until something is committed to it.
    ///
    /// # Errors
    /// When the journal was closed.
    pub fn format(&self) -> Result<u32, JournalFailure> {
        Ok(self.reader()?.format())
    }

    /// Reads every record of the store and checks its checksum and its place in its run. Turns may be appended meanwhile; it
    /// checks those that were durable when it began.
    ///
    /// # Errors
    /// When the store cannot be read at all; damage is in the result.
    pub fn verify(&self) -> Result<Verified, ReadError> {
        let store = self.reader()?;
        let moment = store.moment()?;
        let found = rebuild::rebuild(&moment, KnownFinished::Everything, store.lanes())?;
        let mut damaged = found.damaged.list();
        let mut trimmed = found.trimmed;
        trimmed.sort_unstable();
        match Index::read(&moment) {
            Ok(_) => {}
            Err(ReadError::Failed(failure)) => return Err(failure.into()),
            Err(error) => damaged.push(error),
        }
        let topic_records = check_topics(&moment, &mut damaged)?;
        Ok(Verified {
            records: found.records,
            bytes: found.end.saturating_sub(found.low),
            topic_records,
            trimmed,
            damaged,
        })
    }

    /// Writes a copy of the store to `path`, as of the moment of the call; turns may be appended meanwhile. The copy is a
    /// store: to restore it, put it in the place of the lost one.
    ///
    /// The file of this store may grow during the copy, since space that is being read cannot be reused.
    ///
    /// This, or [`export`](Self::export), is the way to back up an open store: a copy of its file by other means (`cp`,
    /// `rsync`) mixes pages from before and after commits, and cannot be used.
    ///
    /// # Errors
    /// See [`BackupError`].
    pub fn backup(&self, path: impl AsRef<Path>) -> Result<(), BackupError> {
        let path = path.as_ref();
        if path.exists() {
            return Err(BackupError::Exists {
                path: path.to_owned(),
            });
        }
        let store = self.reader()?;
        let moment = store.moment()?;
        let write = |source: io::Error| {
            BackupError::Write(StoreError::Io {
                path: path.to_owned(),
                source,
            })
        };
        let draft = open::draft(path);
        let copy = open::create_anew(&draft, path, &self.shared.config.store, &*self.shared.host);
        let copied = copy
            .map_err(BackupError::Write)
            .and_then(|copy| copy_rows(&moment, &copy, path));
        if let Err(error) = copied {
            // Nobody else knows of the draft; if it cannot be removed, the next backup replaces it.
            fs::remove_file(&draft).ok();
            return Err(error);
        }
        fs::rename(&draft, path)
            .and_then(|()| system::sync_folder_of(path))
            .map_err(write)
    }

    /// Asks the writer to return free space at the end of the file to the file system; returns at once. Meanwhile nothing is
    /// committed: enqueued batches wait, and [`enqueue`](crate::Journal::enqueue) returns `Full` once the buffer is full. At
    /// the end bells ring, and [`Stats::compactions`](crate::Stats::compactions) has grown. It begins when nobody reads the
    /// store (a history, a copy, a check of all of it); until then turns are committed as usual.
    ///
    /// It takes about half a second per GB, and only happens when asked for.
    pub fn begin_compact(&self) {
        self.shared.lock().is_compacting = true;
        self.shared.bell.ring();
    }
}

/// Checks all records of topics, and that each topic's records are consecutive; returns how many are undamaged.
fn check_topics(moment: &StoreMoment, damaged: &mut Vec<ReadError>) -> Result<u64, JournalFailure> {
    let topics = moment.topics()?;
    let dropped = |topic: TopicNumber| {
        let index = usize::try_from(topic.get()).unwrap_or(usize::MAX);
        topics.topics.get(index).map_or(0, |found| found.dropped)
    };
    for (number, _) in (0..)
        .zip(&topics.topics)
        .filter(|(_, found)| found.stored.is_none())
    {
        damaged.push(ReadError::Damaged {
            run: None,
            position: number,
            cause: format!("the row with the name of topic {number} is missing or damaged"),
        });
    }
    for (first, cause) in &topics.damaged_ids {
        damaged.push(ReadError::Damaged {
            run: None,
            position: *first,
            cause: format!("ids of records of topics: {cause}"),
        });
    }
    let (mut sound, mut expected) = (0, None::<(TopicNumber, u64)>);
    moment.all_topic_rows(&mut |topic, first, row| {
        let next = match expected {
            Some((of, next)) if of == topic => next,
            _ => dropped(topic) + 1,
        };
        if first > next {
            damaged.push(ReadError::TopicDamaged {
                topic,
                after: Sequence::new(next - 1),
                until: Sequence::new(first - 1),
                cause: "they are not where they should be".to_owned(),
            });
        }
        let len = match topics::check_row(topic, first, row) {
            Ok(len) => {
                sound += u64::from(len);
                u64::from(len)
            }
            Err(error) => {
                let until = match &error {
                    ReadError::TopicDamaged { until, .. } => until.get(),
                    _ => first,
                };
                damaged.push(error);
                // If its header does not tell its length, the next row may begin anywhere.
                match topic_row::read_header(row, topic, first) {
                    Ok(_) => (until + 1).saturating_sub(first),
                    Err(_) => u64::MAX,
                }
            }
        };
        expected = Some((topic, first.saturating_add(len)));
        true
    })?;
    Ok(sound)
}

/// Copies all rows, a few at a time.
fn copy_rows(moment: &StoreMoment, copy: &Store, path: &Path) -> Result<(), BackupError> {
    let opened = moment.opened()?;
    if let Some(aged) = moment.aged()? {
        let kept = copy.put_aged(aged);
        kept.map_err(|failure| BackupError::Write(open::failed(&failure, path)))?;
    }
    let mut outcome = Ok(());
    let (mut rows, mut bytes) = (CopiedRows::default(), 0);
    let mut flush = |rows: &mut CopiedRows, bytes: &mut usize, at_least: usize| {
        if *bytes >= at_least {
            outcome = copy.put(rows, opened);
            (*rows, *bytes) = (CopiedRows::default(), 0);
        }
        outcome.is_ok()
    };
    moment.kept_rows(&mut |key, row| {
        rows.kept.push((key, row.to_vec()));
        bytes += row.len();
        flush(&mut rows, &mut bytes, COPY_BYTES)
    })?;
    moment.kept_heads(&mut |run, row| {
        rows.kept_heads.push((run, row.to_vec()));
        bytes += row.len();
        flush(&mut rows, &mut bytes, COPY_BYTES)
    })?;
    moment.log_and_inventory(opened.low, &mut |key, row| {
        match key {
            LogKey::Inventory(position) => rows.inventory.push((position, row.to_vec())),
            LogKey::Log(position) => rows.log.push((position, row.to_vec())),
        }
        bytes += row.len();
        flush(&mut rows, &mut bytes, COPY_BYTES)
    })?;
    moment.all_topic_rows(&mut |topic, first, row| {
        rows.topic_records.push(((topic.get(), first), row.to_vec()));
        bytes += row.len();
        flush(&mut rows, &mut bytes, COPY_BYTES)
    })?;
    let TopicAndIdRows { topics, ids } = moment.topic_and_id_rows()?;
    (rows.topics, rows.topic_ids) = (topics, ids);
    flush(&mut rows, &mut bytes, 0);
    outcome.map_err(|failure| BackupError::Write(open::failed(&failure, path)))
}
