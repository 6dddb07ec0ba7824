//! Salvage: makes a new store of the undamaged runs in a damaged one.
//!
//! ```text
//!   file ──► hints (what redb's trees say, where they can be read)
//!     │        │ which copy is current, which runs were dropped
//!     └────► scan (every byte) ──► stretches ──► runs ──► store.new ──► rename
//!                                      └── damaged records ──► report
//! ```
//!
//! redb's repair rejects a whole file if one of its pages is damaged. This code does not depend on redb: each record has its
//! own checksum, and redb's trees, as far as their checksums confirm them, only decide between copies.
//!
//! Invariants: the source is opened read-only and locked; every record of the new store was in the source with a valid
//! checksum, in a history without a gap from its first record to the end of a turn; no file is at the new store's path before
//! all of it is durable.
//!
//! Left out: damaged records are not repaired; snapshots, names of dropped runs and the index of finished runs are rebuilt or
//! lost; records of topics are not copied.

mod hints;
mod pages;
mod report;
mod runs;
mod scan;
mod sorted;
mod source;
mod write;

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::Path;

use millrun_core::{Host, InstanceId, RunId, Timestamp};

use self::hints::{Hints, ListedHint, SettledHint};
pub use self::report::{
    NotWhole, SalvageError, SalvageOptions, SalvageProgress, SalvageReport, WithoutOwner,
};
use self::runs::{History, SalvagedFrames, Whole};
use self::scan::{Full, Rank, ScanBounds, ScanShare};
use self::sorted::{Sorted, SortedGroup, note};
use self::source::{Bytes, FileBytes, Window};
use self::write::{SalvageTarget, Unwritten};
use crate::error::JournalFailure;
use crate::redb::file::system;
use crate::redb::opening::open;
use crate::wire::superblock::{self, SuperblockError};
use crate::wire::v1;

/// The runs of the source can be divided into this many shares: one for each partition.
const SHARES_MAX: u16 = 1_024;

/// Makes a new store at `to` of every undamaged run in the damaged store `from`, which no process may have open. The source
/// is not written to. `progress` is called about once for each MiB.
///
/// A live run counts as undamaged if no record is known to have followed its last one. Finished runs that retention had
/// dropped are left out as far as they can be recognised; the report says where they cannot. A turn that was never
/// acknowledged may be found, as after any crash. The ids of damaged runs are free in the new store: starting such an
/// instance again repeats its effects. Records of topics are not salvaged: restore them from a backup.
///
/// The time is about linear in the size of the source. Memory is bounded by [`SalvageOptions`].
///
/// # Errors
/// See [`SalvageError`]. There is no store at `to` then; a process that is killed meanwhile leaves a file next to it whose
/// name ends in `.new`.
pub fn salvage(
    from: impl AsRef<Path>,
    to: impl AsRef<Path>,
    options: &SalvageOptions,
    host: &dyn Host,
    progress: &mut dyn FnMut(SalvageProgress),
) -> Result<SalvageReport, SalvageError> {
    let (from, to) = (from.as_ref(), to.as_ref());
    // A dangling symbolic link counts as a file, too.
    if fs::symlink_metadata(to).is_ok() {
        return Err(SalvageError::Exists { path: to.to_owned() });
    }
    options.store.check().map_err(SalvageError::Write)?;
    let bytes = open_source(from)?;
    let work = Salvage {
        bytes: &bytes,
        from,
        options,
        host,
        is_ours: is_ours(&bytes, from)?,
        hints: hints::read(&bytes),
    };
    let draft = open::draft(to);
    let outcome = work.write((&draft, to), progress);
    if outcome.is_err() {
        // Nobody else knows of the draft.
        fs::remove_file(&draft).ok();
    }
    let report = outcome?;
    fs::rename(&draft, to)
        .and_then(|()| system::sync_folder_of(to))
        .map_err(|source| {
            SalvageError::Write(crate::error::StoreError::Io {
                path: to.to_owned(),
                source,
            })
        })?;
    Ok(report)
}

fn open_source(path: &Path) -> Result<FileBytes, SalvageError> {
    let read = |source| SalvageError::Read {
        path: path.to_owned(),
        source,
    };
    let file = File::open(path).map_err(read)?;
    let metadata = file.metadata().map_err(read)?;
    if !metadata.is_file() {
        let cause = "it is no file";
        return Err(read(io::Error::new(io::ErrorKind::InvalidInput, cause)));
    }
    match file.try_lock() {
        Ok(()) => Ok(FileBytes {
            file,
            len: metadata.len(),
        }),
        Err(TryLockError::WouldBlock) => Err(SalvageError::InUse {
            path: path.to_owned(),
        }),
        Err(TryLockError::Error(error)) => Err(read(error)),
    }
}

/// Whether the first page is that of a store; it may be damaged.
fn is_ours<B: Bytes + ?Sized>(bytes: &B, path: &Path) -> Result<bool, SalvageError> {
    let mut window = Window::of(bytes, superblock::BYTES);
    let Some(page) = window.get(0, superblock::BYTES).first_chunk() else {
        return Ok(false);
    };
    match superblock::decode(page) {
        Ok(_) => Ok(true),
        Err(SuperblockError::Newer { format }) => Err(SalvageError::NewerFormat {
            path: path.to_owned(),
            found: format,
            supported: superblock::FORMAT,
        }),
        Err(
            SuperblockError::Unfinished
            | SuperblockError::Foreign
            | SuperblockError::Checksum
            | SuperblockError::Partitions { .. },
        ) => Ok(false),
    }
}

/// Scans any bytes as a salvage does, for fuzzers; returns how many runs are whole.
#[cfg(feature = "fuzz")]
pub(crate) fn scan_any(bytes: &[u8]) -> usize {
    let hints = hints::read(bytes);
    let bounds = ScanBounds {
        index_bytes_max: usize::MAX,
        frame_bytes_max: 1 << 20,
    };
    let share = ScanShare { index: 0, of: 1 };
    let mut behind = 0;
    let scanned = scan::scan(bytes, &hints, (share, bounds), &mut |at| {
        assert!(at >= behind && at <= bytes.len() as u64, "a scan goes forward");
        behind = at;
    });
    let found = scanned.expect("there is room for everything");
    let mut report = SalvageReport::default();
    let found = Sorted::of(bytes, &hints, (share, found), &mut report);
    found
        .groups()
        .filter(|group| matches!(found.history(bytes, &hints, group), History::Whole(_)))
        .count()
}

struct Salvage<'a> {
    bytes: &'a FileBytes,
    from: &'a Path,
    options: &'a SalvageOptions,
    host: &'a dyn Host,
    is_ours: bool,
    hints: Hints,
}

/// Why a division of the runs into shares did not work.
enum Failed {
    /// The data on a share do not fit into memory.
    Full,
    Other(SalvageError),
}

impl From<Full> for Failed {
    fn from(Full: Full) -> Self {
        Self::Full
    }
}

impl From<SalvageError> for Failed {
    fn from(error: SalvageError) -> Self {
        Self::Other(error)
    }
}

impl Salvage<'_> {
    /// Writes the new store, with as few passes over the source as memory allows.
    fn write(
        &self,
        (draft, to): (&Path, &Path),
        progress: &mut dyn FnMut(SalvageProgress),
    ) -> Result<SalvageReport, SalvageError> {
        let mut shares = 1;
        while shares <= SHARES_MAX {
            match self.write_in(shares, (draft, to), progress) {
                Ok(report) => return Ok(report),
                Err(Failed::Full) => shares *= 2,
                Err(Failed::Other(error)) => return Err(error),
            }
        }
        Err(SalvageError::TooLarge {
            path: self.from.to_owned(),
            bytes: self.options.index_bytes_max,
        })
    }

    fn write_in(
        &self,
        shares: u16,
        (draft, to): (&Path, &Path),
        progress: &mut dyn FnMut(SalvageProgress),
    ) -> Result<SalvageReport, Failed> {
        let mut report = SalvageReport {
            is_clean: self.hints.is_clean,
            bytes: self.bytes.len(),
            passes: shares.into(),
            unknown: self.unknown(),
            ..SalvageReport::default()
        };
        let bounds = ScanBounds {
            index_bytes_max: self
                .options
                .index_bytes_max
                .saturating_sub(self.hints.memory_bytes()),
            frame_bytes_max: self.options.frame_bytes_max,
        };
        let failed = |failure: JournalFailure| SalvageError::Write(open::failed(&failure, draft));
        let mut target: Option<SalvageTarget> = None;
        for index in 0..shares {
            let (runs, bytes_total) = (report.live_runs + report.finished_runs, self.bytes.len());
            let share = ScanShare { index, of: shares };
            let mut seen = |bytes_done| {
                progress(SalvageProgress {
                    is_writing: false,
                    bytes_done,
                    bytes_total,
                    runs,
                });
            };
            let found = scan::scan(self.bytes, &self.hints, (share, bounds), &mut seen)?;
            if !self.is_ours && found.frames == 0 && index + 1 == shares && runs == 0 {
                return Err(Failed::Other(SalvageError::NotAStore {
                    path: self.from.to_owned(),
                }));
            }
            // Each pass finds the same places again.
            report.without_owner.clear();
            report.without_owner_more = found.damaged_more;
            report.refused_bytes = found.refused;
            report.gaps.clear();
            let sorted = Sorted::of(self.bytes, &self.hints, (share, found), &mut report);
            if target.is_none() {
                let store = open::create_anew(draft, to, &self.options.store, self.host);
                target = Some(SalvageTarget::new(store.map_err(SalvageError::Write)?).map_err(failed)?);
            }
            if let Some(target) = &mut target {
                self.put(&sorted, target, &mut report, draft, progress)?;
            }
        }
        if let Some(target) = target {
            target.finish(self.hints.opens).map_err(failed)?;
        }
        Ok(report)
    }

    /// What cannot be known, whatever is found.
    fn unknown(&self) -> Vec<String> {
        let mut unknown = Vec::new();
        if !self.is_ours {
            unknown.push("The first page, which says what the file is, is damaged.".to_owned());
        }
        match self.hints.slots {
            0 => unknown.push(
                "Neither of redb's commit slots can be read: what is current was told by sums alone, and \
                 runs that retention had dropped may have come back."
                    .to_owned(),
            ),
            1 if !self.hints.is_clean => unknown.push(
                "One of redb's two commit slots is damaged: whether the last commit is there cannot be told."
                    .to_owned(),
            ),
            _ if !self.hints.is_whole() => unknown.push(
                "A part of redb's trees is damaged: of copies there the sound one was taken.".to_owned(),
            ),
            _ => {}
        }
        match &self.hints.settled {
            SettledHint::Unknown
            | SettledHint::Known { is_whole: false, .. }
            | SettledHint::Known {
                is_current: false, ..
            } if self.hints.slots > 0 => unknown.push(
                "The index of finished runs is damaged: some that retention had dropped may have come back."
                    .to_owned(),
            ),
            _ => {}
        }
        unknown
    }

    /// Writes the runs of a share: finished ones in the order in which they closed, then live ones.
    fn put(
        &self,
        sorted: &Sorted,
        target: &mut SalvageTarget,
        report: &mut SalvageReport,
        draft: &Path,
        progress: &mut dyn FnMut(SalvageProgress),
    ) -> Result<(), SalvageError> {
        let mut order = Vec::new();
        let mut bytes_total = 0;
        for group in sorted.groups() {
            let run = group.run(sorted);
            match sorted.history(self.bytes, &self.hints, &group) {
                History::Gone | History::Rest => report.dropped_runs += 1,
                History::Broken { records, cause } => match self.place(sorted, run, None, &group) {
                    Verdict::Dropped => report.dropped_runs += 1,
                    Verdict::Retained { .. } | Verdict::Cut => {
                        self.not_whole(sorted, &group, (records.into(), cause), report);
                    }
                },
                History::Whole(whole) => match self.place(sorted, run, Some(&whole), &group) {
                    Verdict::Dropped => report.dropped_runs += 1,
                    Verdict::Retained { key, is_unsure } => {
                        report.unsure_runs += u64::from(is_unsure);
                        bytes_total += whole.bytes;
                        order.push((key, group));
                    }
                    Verdict::Cut => {
                        let records = whole.parts.last().map_or(0, |part| part.to.into());
                        let cause = "it has finished, and its last records are missing".to_owned();
                        self.not_whole(sorted, &group, (records, cause), report);
                    }
                },
            }
        }
        for (run, _, closes) in self.hints.second.runs() {
            let is_dropped = match self.hints.settled.listed(run) {
                Some(listed) => listed == ListedHint::Dropped,
                // It finished and was dropped, and the rest of it may be gone.
                None => closes && !matches!(self.hints.settled, SettledHint::Nothing),
            };
            if sorted.share.has(run) && !is_dropped && sorted.of_run(run).is_empty() {
                let cause = "none of its records is left".to_owned();
                let lost = NotWhole {
                    run,
                    id: None,
                    records: 0,
                    cause,
                };
                note(&mut report.not_whole, &mut report.not_whole_more, lost);
            }
        }
        order.sort_unstable_by_key(|(key, group)| (*key, group.begin));
        let (mut bytes_done, mut told) = (0, 0);
        for (_, group) in order {
            // The result is the same as before: its input has not changed.
            let History::Whole(whole) = sorted.history(self.bytes, &self.hints, &group) else {
                return Err(self.changed());
            };
            match target.put(self.bytes, group.run(sorted), &whole) {
                Ok(records) => {
                    report.records += records;
                    report.records_left = report.records_left.saturating_sub(records);
                    if whole.is_closed {
                        report.finished_runs += 1;
                    } else {
                        report.live_runs += 1;
                        sorted.look_for_gaps(&whole, report);
                    }
                }
                Err(Unwritten::Contradiction(cause)) => self.not_whole(sorted, &group, (0, cause), report),
                Err(Unwritten::Changed) => return Err(self.changed()),
                Err(Unwritten::Store(failure)) => {
                    return Err(SalvageError::Write(open::failed(&failure, draft)));
                }
            }
            bytes_done += whole.bytes;
            if bytes_done >= told {
                told = bytes_done + (1 << 20);
                progress(SalvageProgress {
                    is_writing: true,
                    bytes_done,
                    bytes_total,
                    runs: report.live_runs + report.finished_runs,
                });
            }
        }
        Ok(())
    }

    /// The place of a run in the new store, if it is copied.
    fn place(&self, sorted: &Sorted, run: RunId, whole: Option<&Whole>, group: &SortedGroup) -> Verdict {
        let stretches = sorted.stretches(group);
        let is_unsure = stretches.iter().all(|stretch| stretch.rank < Rank::Current);
        // A stale copy of its last record also shows that it has finished.
        let closing = stretches.iter().filter(|stretch| stretch.closes);
        let last = closing.max_by_key(|last| last.rank);
        match (self.hints.settled.listed(run), whole) {
            (Some(ListedHint::Dropped), _) => return Verdict::Dropped,
            (Some(ListedHint::Retained { .. }), Some(whole)) if !whole.is_closed => return Verdict::Cut,
            (Some(ListedHint::Retained { number }), _) => {
                let key = (0, number);
                return Verdict::Retained {
                    key,
                    is_unsure: false,
                };
            }
            (None, _) => {}
        }
        let Some(last) = last else {
            let key = (3, 0);
            return Verdict::Retained { key, is_unsure };
        };
        let piece = sorted.found.pieces.get(last.piece as usize);
        let is_kept = piece.is_some_and(|piece| piece.is_kept);
        let end = last.at + u64::from(last.bytes) - 1;
        let position = sorted.found.position(last.piece, end);
        let waiting = |is_unsure| Verdict::Retained {
            key: position.map_or_else(|| (1, self.closed_at(whole)), |position| (2, position)),
            is_unsure,
        };
        match &self.hints.settled {
            SettledHint::Nothing => waiting(is_unsure),
            SettledHint::Unknown => waiting(true),
            SettledHint::Known {
                position: settled,
                is_whole,
                ..
            } => {
                if position.is_some_and(|position| position >= *settled) {
                    waiting(is_unsure)
                } else if *is_whole && (is_kept || position.is_some()) {
                    Verdict::Dropped
                } else {
                    waiting(true)
                }
            }
        }
    }

    /// When a run closed, in microseconds.
    fn closed_at(&self, whole: Option<&Whole>) -> u64 {
        let Some(last) = whole.and_then(|whole| whole.parts.last()) else {
            return 0;
        };
        let mut frames = SalvagedFrames::of(self.bytes, &last.stretch);
        let found = frames.find(last.to);
        let time = found.and_then(|(at, len)| Some(v1::read(frames.window.get(at, len)).ok()?.time));
        time.map_or(0, Timestamp::as_micros)
    }

    fn not_whole(
        &self,
        sorted: &Sorted,
        group: &SortedGroup,
        (records, cause): (u64, String),
        report: &mut SalvageReport,
    ) {
        let first = sorted.stretches(group).iter().find(|stretch| stretch.opens);
        let id = first.and_then(|first| {
            let mut frames = SalvagedFrames::of(self.bytes, first);
            let (at, _, len) = frames.next()?;
            InstanceId::new(v1::read(frames.window.get(at, len)).ok()?.id?).ok()
        });
        let lost = NotWhole {
            run: group.run(sorted),
            id,
            records,
            cause,
        };
        note(&mut report.not_whole, &mut report.not_whole_more, lost);
    }

    fn changed(&self) -> SalvageError {
        SalvageError::Read {
            path: self.from.to_owned(),
            source: io::Error::other("it changed while it was read"),
        }
    }
}

enum Verdict {
    Dropped,
    /// It has finished, and its end is missing.
    Cut,
    Retained {
        /// Settled runs by number, others by the time of closing if their place is not known and by place if it is, live ones
        /// last.
        key: (u8, u64),
        is_unsure: bool,
    },
}
