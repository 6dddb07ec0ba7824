//! Writes all histories as lines of JSON.
//!
//! ```text
//!   finished runs, a list at a time ─┐
//!   then those that were live before ┴─► pages of a history ──► lines ──► file.new
//! ```
//!
//! Invariants: a run is written completely or not at all, as of one moment, and once; there is no file at the path before all
//! of it is synced; only a page and its lines are in memory, however long a history is.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;

use millrun_core::{RunId, Sequence};

use super::PAGE_BYTES;
use crate::error::{JournalFailure, ReadError, StoreError};
use crate::finished::Place;
use crate::journal::Reads;
use crate::record::HistoryPage;
use crate::redb::RedbJournal;
use crate::redb::file::system;
use crate::redb::opening::open;
use crate::redb::reading::View;
use crate::redb::state::JournalState;
use crate::redb::upkeep::BackupError;
use crate::wire::ndjson;

/// How many finished runs are listed at a time.
const LISTED: usize = 1_000;

/// What an export has written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Exported {
    /// Runs whose whole history was written.
    pub runs: u64,
    /// How many of these were trimmed: what replaces their first records was written.
    pub trimmed_runs: u64,
    /// Records.
    pub records: u64,
    /// Runs that are left out because one of their records is damaged, with the error.
    pub damaged: Vec<ReadError>,
}

impl RedbJournal {
    /// Writes all retained histories, and those of live runs, as lines of JSON, from which [`import`](super::import) makes a
    /// store. Turns may be appended meanwhile: each run is written as of the moment when it is read. For one moment of the
    /// whole store, export a [backup](Self::backup).
    ///
    /// # Errors
    /// See [`BackupError`].
    pub fn export(&self, path: impl AsRef<Path>) -> Result<Exported, BackupError> {
        let path = path.as_ref();
        if path.exists() {
            return Err(BackupError::Exists {
                path: path.to_owned(),
            });
        }
        let draft = open::draft(path);
        let outcome = self.export_to(&draft);
        if outcome.is_err() {
            // Nobody else knows of the draft.
            fs::remove_file(&draft).ok();
        }
        let exported = outcome?;
        fs::rename(&draft, path)
            .and_then(|()| system::sync_folder_of(path))
            .map_err(|error| write(path, error))?;
        Ok(exported)
    }

    fn export_to(&self, path: &Path) -> Result<Exported, BackupError> {
        let file = File::create(path).map_err(|error| write(path, error))?;
        let mut out = Export {
            journal: self,
            path,
            file,
            written: 0,
            lines: Vec::new(),
            exported: Exported::default(),
        };
        ndjson::put_header(&mut out.lines, false);
        let mut live: Vec<_> = self.moment(JournalState::live)?.0.into_iter().collect();
        live.sort_unstable();
        let mut seen = HashSet::new();
        let mut after = None;
        loop {
            let page = self.list_finished(after, LISTED).map_err(JournalFailure::from)?;
            for finished in &page {
                // It may have closed since the live ones were listed.
                seen.insert(finished.run);
                out.run(finished.run)?;
            }
            after = page.last().map(|finished| finished.run);
            if page.len() < LISTED {
                break;
            }
        }
        for run in live {
            if !seen.contains(&run) {
                out.run(run)?;
            }
        }
        out.finish()
    }
}

struct Export<'a> {
    journal: &'a RedbJournal,
    path: &'a Path,
    file: File,
    /// Bytes in the file.
    written: u64,
    /// Lines that are not written to it yet: those of about a page.
    lines: Vec<u8>,
    exported: Exported,
}

impl Export<'_> {
    /// Writes a run, completely or not at all.
    fn run(&mut self, run: RunId) -> Result<(), BackupError> {
        let begin = self.written + self.lines.len() as u64;
        let mut records = 0;
        match self.pages(run, &mut records)? {
            Ok(is_trimmed) => {
                self.exported.runs += 1;
                self.exported.trimmed_runs += u64::from(is_trimmed);
                self.exported.records += records;
            }
            Err(error) => {
                self.cut(begin).map_err(|error| write(self.path, error))?;
                match error {
                    // Retention has dropped it meanwhile, or it has no durable record yet.
                    ReadError::UnknownRun { .. } | ReadError::Expired { .. } => {}
                    damage => self.exported.damaged.push(damage),
                }
            }
        }
        Ok(())
    }

    /// Writes the records of a run, a page at a time, and counts them; returns whether the run was trimmed. The inner error
    /// is one of the run itself.
    fn pages(&mut self, run: RunId, records: &mut u64) -> Result<Result<bool, ReadError>, BackupError> {
        let mut pages = match Pages::of(self.journal, run) {
            Ok(pages) => pages,
            Err(ReadError::Failed(failure)) => return Err(failure.into()),
            Err(error) => return Ok(Err(error)),
        };
        loop {
            let page = match pages.next() {
                Ok(page) => page,
                Err(ReadError::Failed(failure)) => return Err(failure.into()),
                Err(error) => return Ok(Err(error)),
            };
            pages.is_trimmed |= page.trimmed.is_some();
            let mut first = page.id.as_ref().map(|id| (id.as_str(), page.trimmed.as_ref()));
            for record in &page.records {
                ndjson::put(&mut self.lines, run, first.take(), record);
                *records += 1;
            }
            if self.lines.len() > PAGE_BYTES {
                self.flush()?;
            }
            if pages.is_end {
                return Ok(Ok(pages.is_trimmed));
            }
        }
    }

    fn flush(&mut self) -> Result<(), BackupError> {
        let outcome = self.file.write_all(&self.lines);
        self.written += self.lines.len() as u64;
        self.lines.clear();
        outcome.map_err(|error| write(self.path, error))
    }

    /// Removes what was written after `begin`.
    fn cut(&mut self, begin: u64) -> io::Result<()> {
        if let Some(len) = begin.checked_sub(self.written) {
            self.lines
                .truncate(usize::try_from(len).expect("so much is in memory"));
            return Ok(());
        }
        self.lines.clear();
        self.written = begin;
        self.file.set_len(begin)?;
        self.file.seek(SeekFrom::Start(begin)).map(|_| ())
    }

    fn finish(mut self) -> Result<Exported, BackupError> {
        self.flush()?;
        self.file.sync_all().map_err(|error| write(self.path, error))?;
        Ok(self.exported)
    }
}

/// A history in pages, as of one moment: a run that is trimmed meanwhile is not read in two halves.
struct Pages<'a> {
    run: RunId,
    place: Place,
    view: View<'a>,
    after: Sequence,
    is_trimmed: bool,
    is_end: bool,
}

impl<'a> Pages<'a> {
    fn of(journal: &'a RedbJournal, run: RunId) -> Result<Self, ReadError> {
        let (place, view) = journal.place(run)?;
        Ok(Self {
            run,
            place,
            view,
            after: Sequence::ZERO,
            is_trimmed: false,
            is_end: false,
        })
    }

    fn next(&mut self) -> Result<HistoryPage, ReadError> {
        let page = self.view.page(self.run, &self.place, self.after, PAGE_BYTES)?;
        let last = page.records.last().map_or(self.after, |record| record.sequence);
        self.is_end = last >= page.head || last == self.after;
        self.after = last;
        Ok(page)
    }
}

fn write(path: &Path, source: io::Error) -> BackupError {
    BackupError::Write(StoreError::Io {
        path: path.to_owned(),
        source,
    })
}
