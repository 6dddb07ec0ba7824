//! Writes the histories of finished runs to files before retention drops them, with the next commit
//! in which a run closes.
//!
//! ```text
//!   retention ──"would drop"──► archiver: reads histories ──► lines of JSON ──► fsync
//!       ▲                                                                         │
//!       └──────────────── "runs below this number are archived" ◄────────────────┘
//! ```
//!
//! A part of its own does it, so that no commit waits for it; runs beyond the bounds of retention stay
//! until it has come to them. After a failure the file is left as it is, and a new one is begun.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Weak;
use std::time::Duration;

use millrun_core::{Next, Part, Sequence, Timestamp};

use super::closed;
use super::config::Archive;
use super::log;
use super::moment::Moment;
use super::open::sync_folder;
use super::shared::Shared;
use crate::error::ReadError;
use crate::finished::{Finished, Place};
use crate::scan;
use crate::wire::ndjson;

/// How many runs are archived between two syncs.
const RUNS_PER_SYNC: u64 = 4_096;
/// How much of a history is in memory at a time.
const PAGE_BYTES: usize = 4 << 20;
/// How long is waited after a failure.
const RETRY: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Archiver {
    archive: Archive,
    shared: Weak<Shared>,
    file: Option<ArchiveFile>,
    /// After a failure: when it is tried again.
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
    /// The store cannot be read as a whole.
    Store,
}

impl From<io::Error> for Trouble {
    fn from(_: io::Error) -> Self {
        Self::Io
    }
}

impl Archiver {
    pub(crate) fn new(archive: Archive, shared: Weak<Shared>) -> Self {
        Self {
            archive,
            shared,
            file: None,
            retry_at: Timestamp::EPOCH,
        }
    }

    /// Archives the next runs; returns the number behind the last.
    fn archive(&mut self, shared: &Shared) -> Result<u64, Trouble> {
        let store = shared.store().map_err(|_| Trouble::Store)?;
        let (from, settled_end, end, waiting, moment) = {
            let state = shared.lock();
            let closed = &state.closed;
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
            let read = closed::each(&moment, (from, to), &mut |_, finished| {
                runs.push(finished);
                true
            });
            read.map_err(|_| Trouble::Store)?;
        } else {
            runs = waiting;
        }
        for finished in &runs {
            match self.write(&moment, finished, end)? {
                Ok(()) => {}
                // It cannot be saved any more than it is: it stays, quarantined, until it is mended.
                Err(damage @ ReadError::Damaged { .. }) => {
                    let mut state = shared.lock();
                    state.damaged.quarantine(finished.run, damage, Some(finished.id));
                }
                Err(_) => return Err(Trouble::Store),
            }
        }
        if let Some(file) = &self.file {
            file.file.sync_data()?;
        }
        Ok(from + runs.len() as u64)
    }

    /// Writes the lines of one run; the inner error says that it cannot be read.
    fn write(
        &mut self,
        moment: &Moment,
        finished: &Finished<Place>,
        end: u64,
    ) -> Result<Result<(), ReadError>, Trouble> {
        let (run, mut after) = (finished.run, Sequence::ZERO);
        let id = match log::instance_id(moment, run, &finished.place) {
            Ok(id) => id,
            Err(error) => return Ok(Err(error)),
        };
        let mut lines = Vec::new();
        while after < finished.head {
            let page = log::page(moment, run, &finished.place, end, (after.get(), PAGE_BYTES))
                .and_then(|(pieces, _)| scan::page(run, &pieces, after, PAGE_BYTES));
            let (records, trimmed) = match page {
                Ok(page) => page,
                Err(error) => return Ok(Err(error)),
            };
            let Some(last) = records.last() else {
                let cause = "the history ends too early";
                return Ok(Err(scan::damaged(run, finished.place.last, &cause)));
            };
            // The first record that is there has the id.
            let mut first = (after == Sequence::ZERO).then_some((id.as_str(), trimmed.as_ref()));
            after = last.sequence;
            for record in &records {
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

/// Begins the file behind the last one in the folder.
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
    sync_folder(&path)?;
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
        {
            let state = shared.lock();
            if state.failure.is_some() {
                return Next::Stop;
            }
            if !state.closed.is_archive_wanted {
                return Next::Idle;
            }
        }
        if now < self.retry_at {
            return Next::At(self.retry_at);
        }
        let outcome = self.archive(&shared);
        let mut state = shared.lock();
        state.is_archive_failing = outcome.is_err();
        match outcome {
            Ok(archived) => {
                state.archived_runs += archived - state.closed.archived();
                state.closed.archive(archived);
                Next::Idle
            }
            Err(Trouble::Io | Trouble::Store) => {
                self.file = None;
                self.retry_at = now + RETRY;
                Next::At(self.retry_at)
            }
        }
    }
}
