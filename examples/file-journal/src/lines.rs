//! The file: one line for each commit, with its length and its checksum in front.
//!
//! ```text
//!   open:    journal ──read──► entries ──fold──► what is needed ──► journal.new ──rename──► journal
//!   append:  entries ──► "212 3098817264 [..JSON..]\n" ──► write, sync
//! ```
//!
//! Invariant: a line is written when all lines before it are synced. So a crash can damage the last line
//! alone, which nobody was told of; damage anywhere else is refused.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use millrun_core::{InstanceId, RunId, Sequence, Timestamp};
use millrun_persistence::{Record, Snapshot, StoreError, Trimmed, TurnView};
use serde::{Deserialize, Serialize};

/// What a line consists of.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Entry {
    /// How many openings and takeovers there have been since the entry before of this kind.
    Epochs(u32),
    Turn(Turn),
    /// Run, sequence and bytes of a snapshot.
    Snapshot(u128, u64, Bytes),
    /// The run whose snapshot is deleted.
    NoSnapshot(u128),
    /// What had come of age at this time, in microseconds, was dropped.
    Upkeep(u64),
}

/// A turn as it is stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Turn {
    run: u128,
    /// The id of the run's instance, in the first turn that is there.
    pub(crate) opens: Option<String>,
    /// What stands in the place of all records before the turn, if it trims its run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kept: Option<Bytes>,
    head: u64,
    time: u64,
    pub(crate) closes: bool,
    /// Kind and body of each record.
    records: Vec<(u8, Bytes)>,
}

impl Turn {
    pub(crate) fn of(turn: &TurnView<'_>) -> Self {
        let records = turn.records();
        let first = turn.records().next();
        Self {
            run: turn.run().bits(),
            opens: first.and_then(|record| record.opens).map(str::to_owned),
            kept: turn.trims().map(Bytes::copy_from_slice),
            head: turn.head().get(),
            time: turn.time().as_micros(),
            closes: turn.closes(),
            records: records
                .map(|record| (record.kind, Bytes::copy_from_slice(record.body)))
                .collect(),
        }
    }

    pub(crate) fn run(&self) -> RunId {
        run_of(self.run)
    }

    pub(crate) fn id(&self) -> Option<InstanceId> {
        InstanceId::new(self.opens.as_ref()?).ok()
    }

    pub(crate) fn head(&self) -> Sequence {
        Sequence::new(self.head)
    }

    pub(crate) fn last(&self) -> Sequence {
        Sequence::new(self.head + self.records.len() as u64)
    }

    pub(crate) fn time(&self) -> Timestamp {
        Timestamp::from_micros(self.time)
    }

    /// What stands in the place of all records before it.
    pub(crate) fn trimmed(&self) -> Option<Trimmed> {
        let kept = self.kept.clone()?;
        Some(Trimmed::new(self.head().next(), kept))
    }

    /// Its size for the bounds on histories and retention: bodies, and a little for each record.
    pub(crate) fn bytes(&self) -> u64 {
        let kept = self.kept.as_ref().map_or(0, |kept| kept.len() as u64);
        kept + self
            .records
            .iter()
            .map(|(_, body)| body.len() as u64 + 48)
            .sum::<u64>()
    }

    pub(crate) fn records(&self) -> impl Iterator<Item = Record> {
        let sequences = self.head + 1..;
        sequences
            .zip(&self.records)
            .map(|(sequence, (kind, body))| Record {
                sequence: Sequence::new(sequence),
                kind: *kind,
                time: self.time(),
                closes: self.closes && sequence == self.last().get(),
                body: body.clone(),
            })
    }
}

pub(crate) fn run_of(bits: u128) -> RunId {
    RunId::from_bits(bits).expect("it was written from a run, and the line's checksum holds")
}

pub(crate) fn snapshot_of(run: u128, sequence: u64, bytes: Bytes) -> Snapshot {
    let (run, sequence) = (run_of(run), Sequence::new(sequence));
    Snapshot { run, sequence, bytes }
}

/// The file of an open journal. The lock beside it is kept for as long as this is.
#[derive(Debug)]
pub(crate) struct Lines {
    file: File,
    _lock: Lock,
}

/// A locked file. Unlocked as it is dropped, and not only closed: a process that is being started by this one has the open
/// file too until it executes its program, and would keep the lock for that long.
#[derive(Debug)]
struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // A file that cannot be unlocked is unlocked as it is closed.
        drop(self.0.unlock());
    }
}

impl Lines {
    /// Locks the file, hands all that stands in it to `read`, and begins it anew with what that gives back.
    pub(crate) fn open(path: &Path, read: impl FnOnce(Vec<Entry>) -> Vec<Entry>) -> Result<Self, StoreError> {
        let io = |source| StoreError::Io {
            path: path.to_owned(),
            source,
        };
        let lock = File::create(beside(path, "lock")).map_err(io)?;
        if lock.try_lock().is_err() {
            return Err(StoreError::AlreadyOpen {
                path: path.to_owned(),
            });
        }
        let lock = Lock(lock);
        let found = match fs::read(path) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(io(error)),
        };
        let entries = entries(&found).map_err(|cause| StoreError::Corrupted {
            path: path.to_owned(),
            cause,
        })?;
        let draft = beside(path, "new");
        let mut lines = Self {
            file: File::create(&draft).map_err(io)?,
            _lock: lock,
        };
        lines.append(&read(entries)).map_err(io)?;
        fs::rename(&draft, path).map_err(io)?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = File::open(folder.unwrap_or(Path::new("."))).map_err(io)?;
        folder.sync_all().map_err(io)?;
        Ok(lines)
    }

    /// Writes one line, and returns when it is on stable storage.
    pub(crate) fn append(&mut self, entries: &[Entry]) -> io::Result<()> {
        let json = serde_json::to_string(entries)?;
        let line = format!("{} {} {json}\n", json.len(), crc32c::crc32c(json.as_bytes()));
        self.file.write_all(line.as_bytes())?;
        self.file.sync_data()
    }
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(suffix);
    path.with_file_name(name)
}

/// What the lines hold, but for a last one that was cut off; or what is wrong with another.
fn entries(bytes: &[u8]) -> Result<Vec<Entry>, String> {
    let mut entries = Vec::new();
    let lines: Vec<_> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    for (number, line) in lines.iter().enumerate() {
        match decode(line) {
            Some(line) => entries.extend(line),
            None if number + 1 == lines.len() && !is_longer_than_written(line) => {}
            None => return Err(format!("line {} does not fit its checksum", number + 1)),
        }
    }
    Ok(entries)
}

/// Length, checksum and text of a line.
fn parts(line: &[u8]) -> Option<(usize, u32, &[u8])> {
    let mut parts = line.splitn(3, |byte| *byte == b' ');
    let mut number = || std::str::from_utf8(parts.next()?).ok()?.parse::<u32>().ok();
    let (len, checksum) = (number()?, number()?);
    Some((usize::try_from(len).ok()?, checksum, parts.next()?))
}

fn decode(line: &[u8]) -> Option<Vec<Entry>> {
    let (len, checksum, json) = parts(line.strip_suffix(b"\n")?)?;
    let is_whole = json.len() == len && crc32c::crc32c(json) == checksum;
    is_whole.then(|| serde_json::from_slice(json).ok())?
}

/// A line that was cut off is short. One that is too long has lost its end to damage, and holds another line.
fn is_longer_than_written(line: &[u8]) -> bool {
    parts(line).is_some_and(|(len, _, json)| json.len() > len + 1)
}
