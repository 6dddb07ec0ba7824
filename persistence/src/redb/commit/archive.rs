//! Writes histories to files before the store drops them: those of finished runs before retention drops them, and the records
//! that live runs are trimmed of.
//!
//! ```text
//!   retention ──"would drop"──► archiver: reads histories ──► lines of JSON ──► fsync
//!       ▲                                                                         │
//!       └──────────────── "runs below this number are archived" ◄────────────────┘
//!   a commit that trims ──"held"──► archiver: reads what stands before ──► the same file
//! ```
//!
//! Invariant: the parts of a run are archived in order, without a gap; the last part ends with the record that closes the
//! run. So the held parts are archived before finished runs.
//!
//! A separate part does it, so that no commit waits for it; runs beyond the bounds of retention stay until they are archived.
//! After a failure the archive file is not written to any more, and the archive continues in a new file.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{MutexGuard, Weak};
use std::time::Duration;

use millrun_core::{Next, Part, RunId, Sequence, Timestamp};

use super::queued::TrimTurn;
use crate::error::ReadError;
use crate::finished::Place;
use crate::redb::config::Archive;
use crate::redb::database::moment::StoreMoment;
use crate::redb::file::system::sync_folder_of;
use crate::redb::finished::finished_runs;
use crate::redb::records::log;
use crate::redb::shared::JournalShared;
use crate::redb::state::JournalState;
use crate::scan;
use crate::wire::ndjson;

/// How many runs, or parts of runs, are archived between two syncs.
const RUNS_PER_SYNC: u64 = 4_096;
/// How many parts that runs were trimmed of are archived between two syncs.
const PARTS_PER_SYNC: usize = 4_096;
/// How much of a history is in memory at a time.
const PAGE_BYTES: usize = 4 << 20;
/// How long the part waits after a failure.
const RETRY: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Archiver {
    archive: Archive,
    shared: Weak<JournalShared>,
    file: Option<ArchiveFile>,
    /// After a failure: when to try again.
    retry_at: Timestamp,
}

#[derive(Debug)]
struct ArchiveFile {
    file: File,
    bytes: u64,
}

/// Why nothing more was archived.
#[derive(Debug)]
enum Trouble {
    Io,
    /// The store as a whole cannot be read.
    Store,
}

impl From<io::Error> for Trouble {
    fn from(_: io::Error) -> Self {
        Self::Io
    }
}

impl Archiver {
    pub(crate) fn new(archive: Archive, shared: Weak<JournalShared>) -> Self {
        Self {
            archive,
            shared,
            file: None,
            retry_at: Timestamp::EPOCH,
        }
    }

    /// Archives the next parts that runs were trimmed of; returns how many are archived, and how many are damaged.
    fn archive_held(&mut self, shared: &JournalShared) -> Result<(Vec<TrimTurn>, Vec<TrimTurn>), Trouble> {
        let store = shared.store().map_err(|_| Trouble::Store)?;
        let (held, end, moment) = {
            let state = shared.lock();
            let held = state.held().first(PARTS_PER_SYNC);
            let moment = store.moment().map_err(|_| Trouble::Store)?;
            (held, state.durable_end(), moment)
        };
        let (mut archived, mut damaged) = (Vec::with_capacity(held.len()), Vec::new());
        for trim in held {
            match self.write(&moment, (trim.run, &trim.before, None), end)? {
                Ok(()) => archived.push(trim),
                Err(ReadError::Damaged { .. }) => damaged.push(trim),
                Err(_) => return Err(Trouble::Store),
            }
        }
        self.sync()?;
        Ok((archived, damaged))
    }

    /// Archives the next finished runs, if retention wants to drop any; returns one more than the number of the last.
    fn archive(&mut self, shared: &JournalShared) -> Result<Option<u64>, Trouble> {
        let store = shared.store().map_err(|_| Trouble::Store)?;
        let (from, settled_end, end, waiting, moment) = {
            let state = shared.lock();
            let closed = &state.finished;
            // The parts that a finished run was trimmed of are archived first.
            if !closed.is_archive_wanted || !state.held().is_empty() {
                return Ok(None);
            }
            let from = closed.archived();
            let waiting: Vec<_> = closed
                .waiting
                .list(from)
                .take(usize::try_from(RUNS_PER_SYNC).unwrap_or(usize::MAX))
                .copied()
                .collect();
            let moment = store.moment().map_err(|_| Trouble::Store)?;
            (from, closed.settled.end, state.durable_end(), waiting, moment)
        };
        let mut runs = Vec::new();
        if from < settled_end {
            let to = settled_end.min(from + RUNS_PER_SYNC);
            let read = finished_runs::each(&moment, (from, to), &mut |_, finished| {
                runs.push(finished);
                true
            });
            read.map_err(|_| Trouble::Store)?;
        } else {
            runs = waiting;
        }
        for finished in &runs {
            let history = (finished.run, &finished.place, Some(finished.head));
            match self.write(&moment, history, end)? {
                Ok(()) => {}
                // No more of it can be archived: it stays quarantined until it is repaired.
                Err(damage @ ReadError::Damaged { .. }) => {
                    let mut state = shared.lock();
                    state.damaged.quarantine(finished.run, damage, Some(finished.id));
                }
                Err(_) => return Err(Trouble::Store),
            }
        }
        self.sync()?;
        Ok(Some(from + runs.len() as u64))
    }

    /// Tells the writer, if an upkeep waits for the archive.
    fn answer(&self, shared: &JournalShared, mut state: MutexGuard<'_, JournalState>) {
        let is_asked = std::mem::take(&mut state.is_archive_asked);
        drop(state);
        if is_asked {
            shared.bell.ring();
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.file.as_ref().map_or(Ok(()), |file| file.file.sync_data())
    }

    /// Writes the lines of the run's records that are in this place, up to its `head` if that is known; the inner error says
    /// that they cannot be read.
    fn write(
        &mut self,
        moment: &StoreMoment,
        (run, place, head): (RunId, &Place, Option<Sequence>),
        end: u64,
    ) -> Result<Result<(), ReadError>, Trouble> {
        let (mut after, mut head) = (Sequence::ZERO, head);
        let mut lines = Vec::new();
        while head.is_none_or(|head| after < head) {
            let page = log::page(moment, run, place, end, (after.get(), PAGE_BYTES))
                .and_then(|(pieces, last)| scan::page(run, &pieces, after, PAGE_BYTES, Sequence::new(last)));
            let page = match page {
                Ok(page) => page,
                Err(error) => return Ok(Err(error)),
            };
            head.get_or_insert(page.head);
            let Some(last) = page.records.last() else {
                let cause = "the history ends too early";
                return Ok(Err(scan::damaged(run, place.last, &cause)));
            };
            let mut first = page.id.as_ref().map(|id| (id.as_str(), page.trimmed.as_ref()));
            after = last.sequence;
            for record in &page.records {
                ndjson::put(&mut lines, run, first.take(), record);
            }
            self.append(&lines)?;
            lines.clear();
        }
        if self
            .file
            .as_ref()
            .is_some_and(|file| file.bytes >= self.archive.file_bytes_max)
            && let Some(full) = self.file.take()
        {
            full.file.sync_data()?;
        }
        Ok(Ok(()))
    }

    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(begin(&self.archive)?),
        };
        file.file.write_all(lines)?;
        file.bytes += lines.len() as u64;
        Ok(())
    }
}

/// Begins the next file in the folder.
fn begin(archive: &Archive) -> io::Result<ArchiveFile> {
    fs::create_dir_all(&archive.folder)?;
    let mut last = 0;
    for entry in fs::read_dir(&archive.folder)? {
        let name = entry?.file_name();
        let number = name
            .to_str()
            .and_then(|name| name.strip_prefix("archive-")?.strip_suffix(".ndjson"));
        last = last.max(number.and_then(|number| number.parse().ok()).unwrap_or(0));
    }
    let path: PathBuf = archive.folder.join(format!("archive-{:08}.ndjson", last + 1_u64));
    let mut file = File::create_new(&path)?;
    let mut header = Vec::new();
    ndjson::put_header(&mut header, true);
    file.write_all(&header)?;
    sync_folder_of(&path)?;
    Ok(ArchiveFile {
        file,
        bytes: header.len() as u64,
    })
}

impl Part for Archiver {
    fn turn(&mut self, now: Timestamp, _budget: usize) -> Next {
        let Some(shared) = self.shared.upgrade() else {
            return Next::Stop;
        };
        let is_asked;
        {
            let state = shared.lock();
            if state.failure.is_some() {
                return Next::Stop;
            }
            if !state.is_archive_due() {
                return Next::Idle;
            }
            is_asked = state.is_archive_asked;
        }
        if now < self.retry_at && !is_asked {
            return Next::At(self.retry_at);
        }
        let held = self.archive_held(&shared);
        let outcome = held.and_then(|(archived, damaged)| {
            shared.lock().archived_trims(&archived, &damaged);
            self.archive(&shared)
        });
        let mut state = shared.lock();
        state.is_archive_failing = outcome.is_err();
        match outcome {
            Ok(archived) => {
                if let Some(archived) = archived {
                    state.archived_runs += archived - state.finished.archived();
                    state.finished.archive(archived);
                }
                if !state.held().is_empty() {
                    return Next::Again;
                }
                self.answer(&shared, state);
                Next::Idle
            }
            Err(Trouble::Io | Trouble::Store) => {
                self.file = None;
                self.answer(&shared, state);
                self.retry_at = now + RETRY;
                Next::At(self.retry_at)
            }
        }
    }
}
