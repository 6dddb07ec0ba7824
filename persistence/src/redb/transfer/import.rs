//! Makes a new store from lines of JSON.
//!
//! ```text
//!   first pass:   lines ──► which runs are cut off, go on behind what they were trimmed of, or stand there again
//!   second pass:  lines ──► a turn of records of one time ──► batch ──► JournalState ──► commit into store.new
//! ```
//!
//! Invariants: what is taken passes the same checks as every turn; an invalid line ends the import, with its number; there is
//! no store at the path before all of it is durable.

use std::collections::HashSet;
use std::convert::Infallible;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use millrun_core::{Epoch, Host, InstanceId, RunId, Sequence};

use super::PAGE_BYTES;
use crate::batch::{Batch, TurnHeader};
use crate::error::{EnqueueError, JournalFailure, StoreError, TurnError, TurnRefused};
use crate::record::Record;
use crate::redb::commit::queued::Piece;
use crate::redb::config::RedbConfig;
use crate::redb::database::store::Store;
use crate::redb::file::system;
use crate::redb::finished::finished_runs::{FinishedRuns, Settled};
use crate::redb::opening::open;
use crate::redb::opening::rebuild::{KnownFinished, rebuild};
use crate::redb::state::JournalState;
use crate::redb::topics::{FoundTopics, TopicsCommitted};
use crate::wire::inventory::in_order;
use crate::wire::ndjson::{self, LineRecord};

/// What an import has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Imported {
    /// Runs.
    pub runs: u64,
    /// How many of these begin with what replaces their trimmed records.
    pub trimmed_runs: u64,
    /// Records.
    pub records: u64,
    /// Runs that were in the file more than once, and were imported once.
    pub repeated: u64,
    /// Runs of an archive that are not complete in the file, and were left out: the next file of the archive has the rest, or
    /// the store. Either a crash cut the run off, or the file has only a part that the run was trimmed of.
    pub cut_off: u64,
    /// Trimmed parts of archived runs that another part of the run follows in the file: they are left out, since a run begins
    /// with what is kept of them.
    pub parts: u64,
}

/// Why nothing was imported. Then there is no store at the path.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// There is a file at the path of the store.
    #[error("{path} exists: an import makes a new store")]
    Exists {
        /// Where the store should be.
        path: PathBuf,
    },
    /// A line is not valid.
    #[error("line {line}: {cause}")]
    Line {
        /// Its number; the first is 1.
        line: u64,
        /// What is wrong.
        cause: String,
    },
    /// The file could not be read.
    #[error("the file of histories could not be read")]
    Read(#[source] io::Error),
    /// The store could not be written.
    #[error("the store could not be written")]
    Write(#[source] StoreError),
}

/// Makes a new store at `store` of the histories in the file `histories`, which an [export](crate::RedbJournal::export) or an
/// [archive](crate::Archive) has written. Open it afterwards like any other; runs beyond its retention are dropped then.
///
/// # Errors
/// See [`ImportError`].
pub fn import(
    histories: impl AsRef<Path>,
    store: impl AsRef<Path>,
    config: &RedbConfig,
    host: &dyn Host,
) -> Result<Imported, ImportError> {
    let path = store.as_ref();
    if path.exists() {
        return Err(ImportError::Exists {
            path: path.to_owned(),
        });
    }
    config.check().map_err(ImportError::Write)?;
    let draft = open::draft(path);
    let outcome = import_to(histories.as_ref(), &draft, config, host);
    if outcome.is_err() {
        // Nobody else knows of the draft.
        fs::remove_file(&draft).ok();
    }
    let imported = outcome?;
    fs::rename(&draft, path)
        .and_then(|()| system::sync_folder_of(path))
        .map_err(|source| {
            ImportError::Write(StoreError::Io {
                path: path.to_owned(),
                source,
            })
        })?;
    Ok(imported)
}

/// Calls `each` with every record of a file, with the number of its line; the first line with `begin`.
fn read_lines(
    path: &Path,
    mut begin: impl FnMut(bool),
    mut each: impl FnMut(u64, LineRecord) -> Result<(), ImportError>,
) -> Result<(), ImportError> {
    let mut lines = BufReader::new(File::open(path).map_err(ImportError::Read)?);
    let (mut line, mut number) = (Vec::new(), 0);
    loop {
        line.clear();
        lines.read_until(b'\n', &mut line).map_err(ImportError::Read)?;
        number += 1;
        let wrong = |cause| ImportError::Line { line: number, cause };
        // A crash leaves an archive with an unfinished line.
        let Some(text) = line.strip_suffix(b"\n") else {
            let cause = "not a file of histories: it is empty".to_owned();
            return if number == 1 { Err(wrong(cause)) } else { Ok(()) };
        };
        if number == 1 {
            begin(ndjson::read_header(text).map_err(wrong)?);
        } else {
            each(number, ndjson::read(text).map_err(wrong)?)?;
        }
    }
}

/// The runs of a file that are left out, by the lines at which they begin.
#[derive(Default)]
struct LeftOut {
    lines: HashSet<u64>,
    repeated: u64,
    cut_off: u64,
    parts: u64,
}

/// Records of one run that follow one another in a file.
struct ImportStretch {
    /// The line of the first.
    line: u64,
    run: RunId,
    first: Sequence,
    last: Sequence,
    closes: bool,
}

fn left_out(path: &Path) -> Result<LeftOut, ImportError> {
    let (mut all_closed, mut stretches) = (false, Vec::<ImportStretch>::new());
    read_lines(
        path,
        |says| all_closed = says,
        |line, LineRecord { run, id, record, .. }| {
            let (first, last, closes) = (record.sequence, record.sequence, record.closes);
            match stretches.last_mut() {
                Some(stretch) if id.is_none() => {
                    (stretch.last, stretch.closes) = (last, stretch.closes || closes);
                }
                _ => stretches.push(ImportStretch {
                    line,
                    run,
                    first,
                    last,
                    closes,
                }),
            }
            Ok(())
        },
    )?;
    let goes_on: HashSet<_> = stretches
        .iter()
        .map(|stretch| (stretch.run, stretch.first))
        .collect();
    let (mut left_out, mut seen) = (LeftOut::default(), HashSet::new());
    for stretch in &stretches {
        let count = if all_closed && !stretch.closes {
            if goes_on.contains(&(stretch.run, stretch.last.next())) {
                &mut left_out.parts
            } else {
                &mut left_out.cut_off
            }
        } else if seen.insert(stretch.run) {
            continue;
        } else {
            &mut left_out.repeated
        };
        *count += 1;
        left_out.lines.insert(stretch.line);
    }
    Ok(left_out)
}

fn import_to(
    histories: &Path,
    path: &Path,
    config: &RedbConfig,
    host: &dyn Host,
) -> Result<Imported, ImportError> {
    let left_out = left_out(histories)?;
    let store = open::create_anew(path, path, &config.store, host).map_err(ImportError::Write)?;
    let mut import = Import::new(&store, path, config)?;
    let mut last = 0;
    read_lines(
        histories,
        |_| {},
        |number, line| {
            last = number;
            let is_left_out = left_out.lines.contains(&number);
            let outcome = import.take(line, is_left_out);
            outcome.map_err(|problem| import.error(problem, number))
        },
    )?;
    import
        .end_turn()
        .and_then(|()| import.commit())
        .and_then(|()| import.list_the_rest())
        .map_err(|problem| import.error(problem, last))?;
    Ok(Imported {
        repeated: left_out.repeated,
        cut_off: left_out.cut_off,
        parts: left_out.parts,
        ..import.imported
    })
}

/// Turns records into turns, and turns into commits.
struct Import<'a> {
    store: &'a Store,
    path: &'a Path,
    state: JournalState,
    batch: Batch,
    /// The turn that is being collected.
    turn: Vec<Record>,
    turn_bytes: usize,
    /// The run whose records are being read, and whether it is left out.
    run: Option<(RunId, InstanceId, bool)>,
    /// What replaces the records before the next turn.
    kept: Option<Vec<u8>>,
    head: Sequence,
    turn_bytes_max: usize,
    imported: Imported,
}

enum ImportProblem {
    Cause(String),
    Store(JournalFailure),
}

impl From<JournalFailure> for ImportProblem {
    fn from(failure: JournalFailure) -> Self {
        Self::Store(failure)
    }
}

impl From<TurnError> for ImportProblem {
    fn from(error: TurnError) -> Self {
        Self::Cause(error.to_string())
    }
}

const EPOCH: Epoch = Epoch::new(1);

impl<'a> Import<'a> {
    fn new(store: &'a Store, path: &'a Path, config: &RedbConfig) -> Result<Self, ImportError> {
        let empty = store
            .count_open()
            .and_then(|_| rebuild(&store.moment()?, KnownFinished::Nothing, 1));
        let rebuilt = empty.map_err(|failure| ImportError::Write(open::failed(&failure, path)))?;
        let closed = FinishedRuns::new(config.journal.retention, Settled::default(), 0);
        Ok(Self {
            store,
            path,
            state: JournalState::new(
                &config.journal,
                EPOCH,
                rebuilt,
                closed,
                Vec::new(),
                Vec::new(),
                FoundTopics::default(),
            ),
            batch: Batch::with_turn_bytes_max(config.journal.turn_bytes_max),
            turn: Vec::new(),
            turn_bytes: 0,
            run: None,
            kept: None,
            head: Sequence::ZERO,
            turn_bytes_max: config.journal.turn_bytes_max,
            imported: Imported::default(),
        })
    }

    fn take(&mut self, line: LineRecord, is_left_out: bool) -> Result<(), ImportProblem> {
        let LineRecord {
            run,
            id,
            kept,
            record,
        } = line;
        if record.sequence.get() == 1 && id.is_none() {
            return Err(ImportProblem::Cause("a first record needs the id".to_owned()));
        }
        if let Some(id) = id {
            self.end_turn()?;
            if kept.is_some() != (record.sequence.get() > 1) {
                let cause =
                    "a run begins with record 1, or with what is kept of the records before".to_owned();
                return Err(ImportProblem::Cause(cause));
            }
            let id = InstanceId::new(&id).map_err(|error| ImportProblem::Cause(error.to_string()))?;
            self.imported.runs += u64::from(!is_left_out);
            self.imported.trimmed_runs += u64::from(!is_left_out && kept.is_some());
            self.run = Some((run, id, is_left_out));
            self.kept = kept;
            self.head = Sequence::new(record.sequence.get().saturating_sub(1));
        }
        let Some((current, _, is_left_out)) = &self.run else {
            return Err(ImportProblem::Cause("the run has no first record".to_owned()));
        };
        let next = self.head.get() + self.turn.len() as u64 + 1;
        if *current != run || (!is_left_out && record.sequence.get() != next) {
            let cause = format!("record {next} of run {current} should stand here");
            return Err(ImportProblem::Cause(cause));
        }
        if *is_left_out {
            return Ok(());
        }
        let kept_bytes = self.kept.as_ref().filter(|_| self.turn.is_empty());
        let bytes = record.body.len() + kept_bytes.map_or(0, Vec::len) + 512;
        let is_next_turn = self.turn.last().is_some_and(|last| {
            last.time != record.time
                || last.closes
                || self.turn_bytes + bytes > self.turn_bytes_max.min(PAGE_BYTES)
        });
        if is_next_turn {
            self.end_turn()?;
        }
        self.turn_bytes += bytes;
        self.turn.push(record);
        self.imported.records += 1;
        Ok(())
    }

    /// Puts the collected records into the batch as one turn.
    fn end_turn(&mut self) -> Result<(), ImportProblem> {
        let (Some((run, id, _)), Some(last)) = (&self.run, self.turn.last()) else {
            return Ok(());
        };
        let kept = self.kept.take();
        let mut turn = self.batch.turn(TurnHeader {
            run: *run,
            head: self.head,
            epoch: EPOCH,
            time: last.time,
            opens: (self.head == Sequence::ZERO || kept.is_some()).then_some(id),
        });
        if let Some(kept) = &kept {
            turn.begin_trimmed(kept);
        }
        let (closes, head) = (last.closes, last.sequence);
        for record in &self.turn {
            let encode = |bytes: &mut Vec<u8>| {
                bytes.extend_from_slice(&record.body);
                Ok::<_, Infallible>(())
            };
            match turn.record(record.kind, encode) {
                Ok(()) => {}
                Err(never) => match never {},
            }
        }
        turn.finish(closes)?;
        self.head = head;
        self.turn.clear();
        self.turn_bytes = 0;
        if self.batch.bytes() > PAGE_BYTES {
            self.commit()?;
        }
        Ok(())
    }

    fn commit(&mut self) -> Result<(), ImportProblem> {
        let enqueued = self.state.enqueue(&self.batch);
        let (enqueued, _) = enqueued.map_err(|error| match error {
            EnqueueError::Failed(failure) => ImportProblem::Store(failure),
            EnqueueError::Full | EnqueueError::NotGathered => {
                ImportProblem::Cause("the buffer is full".to_owned())
            }
        })?;
        if let Some(refused) = enqueued.refused.first() {
            return Err(ImportProblem::Cause(refusal(&refused.error)));
        }
        self.batch.clear();
        let piece = self.write()?;
        self.state
            .committed(piece, &TopicsCommitted::default(), std::time::Duration::ZERO);
        Ok(())
    }

    /// Lists the last turns in the log's inventory, as a journal does when it is closed.
    fn list_the_rest(&mut self) -> Result<(), ImportProblem> {
        self.state.is_closing = true;
        if self.state.has_unlisted() {
            self.write()?;
        }
        Ok(())
    }

    fn write(&mut self) -> Result<Arc<Piece>, ImportProblem> {
        let piece = self.state.seal(Duration::MAX);
        let mut listed = Vec::new();
        if let Some(unlisted) = &piece.unlisted {
            listed.clone_from(&unlisted.closed);
            self.state.list(&unlisted.live, piece.end(), &mut listed);
        }
        self.store.commit_listing(&piece, &in_order(listed), None)?;
        Ok(piece)
    }

    fn error(&self, problem: ImportProblem, line: u64) -> ImportError {
        match problem {
            ImportProblem::Cause(cause) => ImportError::Line { line, cause },
            ImportProblem::Store(failure) => ImportError::Write(open::failed(&failure, self.path)),
        }
    }
}

fn refusal(refused: &TurnRefused) -> String {
    match refused {
        TurnRefused::NotLive => "records follow the last one of their run".to_owned(),
        other => other.to_string(),
    }
}
