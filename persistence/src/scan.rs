//! Walks over the frames of one run, and checks that they are the expected ones.

use bytes::Bytes;
use millrun_core::{InstanceId, RunId, Sequence};

use crate::error::ReadError;
use crate::finished::IdHash;
use crate::journal::Lane;
use crate::record::{History, HistoryPage, Record, RecordView, Trimmed};
use crate::wire::v1::{self, Frame};

/// What the conditions need of a run's last turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LastTurn {
    pub(crate) before: u32,
    pub(crate) last: u32,
    pub(crate) digest: u32,
}

impl LastTurn {
    /// Adds the next record of the run.
    pub(crate) fn push(&mut self, frame: &Frame<'_>) {
        let sequence = u32::try_from(frame.sequence.get()).expect("a frame holds 32 bits of sequence");
        if frame.has(v1::TURN_FIRST) {
            (self.before, self.digest) = (sequence.saturating_sub(1), 0);
        }
        self.last = sequence;
        self.digest = v1::digest(self.digest, frame.checksum);
    }
}

/// The last turn among the frames of one run; `None` if they are not frames.
pub(crate) fn last_turn(mut bytes: &[u8]) -> Option<LastTurn> {
    let mut last = LastTurn::default();
    while !bytes.is_empty() {
        let frame = v1::read(bytes).ok()?;
        last.push(&frame);
        bytes = &bytes[frame.len..];
    }
    Some(last)
}

/// The first and the last of some adjacent frames; `None` if they are not frames.
pub(crate) fn ends(mut bytes: &[u8]) -> Option<(Frame<'_>, Frame<'_>)> {
    let first = v1::read(bytes).ok()?;
    loop {
        let len = v1::peek(bytes).ok()?.1;
        match &bytes[len..] {
            [] => return Some((first, v1::read(bytes).ok()?)),
            rest => bytes = rest,
        }
    }
}

/// The instance id in the first frame of a run; `None` if it is not such a frame.
pub(crate) fn instance_id(bytes: &[u8]) -> Option<InstanceId> {
    InstanceId::new(v1::read(bytes).ok()?.id?).ok()
}

/// The instance id in a run's first frame, which the caller itself has encoded.
pub(crate) fn own_instance_id(bytes: &[u8]) -> InstanceId {
    let id = std::str::from_utf8(v1::id_bytes(bytes)).expect("it was framed as text");
    InstanceId::new(id).expect("it was framed from an id")
}

/// The hash of the instance id in a run's first frame, which the caller itself has encoded.
pub(crate) fn id_hash(bytes: &[u8]) -> IdHash {
    IdHash::of_bytes(v1::id_bytes(bytes))
}

/// Decodes the history of `run` from pieces of the log, each with its position, that hold its
/// turns in order and nothing else.
pub(crate) fn history(run: RunId, pieces: &[(u64, Bytes)]) -> Result<History, ReadError> {
    let (mut id, mut trimmed, mut before) = (None, None, 0);
    let mut records = Vec::new();
    for (position, bytes) in pieces {
        let mut at = 0;
        while at < bytes.len() {
            let here = position + at as u64;
            let frame = v1::read(&bytes[at..]).map_err(|error| damaged(run, here, &error))?;
            check_order(run, &frame, before, here)?;
            before = frame.sequence.get();
            if frame.has(v1::OPENS) {
                records.clear();
                trimmed = of_trimmed(&frame);
                id = frame.id.and_then(|id| InstanceId::new(id).ok());
            }
            let body_end = at + frame.len;
            records.push(Record {
                sequence: frame.sequence,
                kind: frame.kind,
                time: frame.time,
                closes: frame.has(v1::CLOSES),
                body: bytes.slice(body_end - frame.body.len()..body_end),
            });
            at = body_end;
        }
    }
    let id = id.ok_or(ReadError::UnknownRun { run })?;
    Ok(History::new(run, id, records, trimmed))
}

/// What replaces the records before this one, if it trims its run.
fn of_trimmed(frame: &Frame<'_>) -> Option<Trimmed> {
    let kept = Bytes::copy_from_slice(frame.kept?);
    Some(Trimmed::new(frame.sequence, kept))
}

/// Decodes the records of `run` after `after` from pieces of the log, as [`history`] does, until they have `bytes_max` bytes.
/// The first piece may begin at any record up to there. `head` is the run's last record.
pub(crate) fn page(
    run: RunId,
    pieces: &[(u64, Bytes)],
    after: Sequence,
    bytes_max: usize,
    head: Sequence,
) -> Result<HistoryPage, ReadError> {
    let (mut page, mut total, mut before) = (HistoryPage::new(Vec::new(), head), 0, None);
    for (position, bytes) in pieces {
        let mut at = 0;
        while at < bytes.len() {
            let here = position + at as u64;
            let frame = v1::read(&bytes[at..]).map_err(|error| damaged(run, here, &error))?;
            let known = before.unwrap_or_else(|| (frame.sequence.get() - 1).min(after.get()));
            check_order(run, &frame, known, here)?;
            before = Some(frame.sequence.get());
            at += frame.len;
            if frame.sequence <= after {
                continue;
            }
            if let Some(id) = frame.id.filter(|_| frame.has(v1::OPENS)) {
                // A run begins here, or the rest of a trimmed one.
                let id = InstanceId::new(id).map_err(|error| damaged(run, here, &error))?;
                page = HistoryPage::new(Vec::new(), head).with_beginning(id, of_trimmed(&frame));
                total = 0;
            }
            total += frame.len;
            if total > bytes_max && !page.records.is_empty() {
                return Ok(page);
            }
            page.records.push(Record {
                sequence: frame.sequence,
                kind: frame.kind,
                time: frame.time,
                closes: frame.has(v1::CLOSES),
                body: bytes.slice(at - frame.body.len()..at),
            });
        }
    }
    Ok(page)
}

/// The kind of the last record of some frames; `None` if there is none, or one is damaged.
pub(crate) fn last_kind(mut frames: &[u8]) -> Option<u8> {
    let mut kind = None;
    while !frames.is_empty() {
        let frame = v1::read(frames).ok()?;
        kind = Some(frame.kind);
        frames = &frames[frame.len..];
    }
    kind
}

/// Hands each record of a run to `lane`; returns how many there were.
pub(crate) fn visit(run: RunId, bytes: &[u8], lane: &mut Lane<'_>) -> Result<u64, ReadError> {
    let (mut at, mut records, mut before) = (0, 0, 0);
    while at < bytes.len() {
        let frame = v1::read(&bytes[at..]).map_err(|error| damaged(run, at as u64, &error))?;
        check_order(run, &frame, before, at as u64)?;
        lane(view(&frame));
        records += 1;
        before = frame.sequence.get();
        at += frame.len;
    }
    Ok(records)
}

pub(crate) fn view<'a>(frame: &Frame<'a>) -> RecordView<'a> {
    RecordView {
        run: frame.run,
        sequence: frame.sequence,
        kind: frame.kind,
        time: frame.time,
        opens: frame.id,
        kept: frame.kept,
        closes: frame.has(v1::CLOSES),
        body: frame.body,
    }
}

/// The frame must be the next of its run after the record `before`, or trim the run.
pub(crate) fn check_order(
    run: RunId,
    frame: &Frame<'_>,
    before: u64,
    position: u64,
) -> Result<(), ReadError> {
    let expected = Sequence::new(before + 1);
    let is_next = frame.sequence == expected && (before == 0) == frame.has(v1::OPENS);
    if frame.run != run || !(is_next || frame.has(v1::TRIMS)) {
        let cause = format!(
            "expected sequence {expected}, found {} of run {}",
            frame.sequence, frame.run
        );
        return Err(ReadError::Damaged {
            run: Some(run),
            position,
            cause,
        });
    }
    Ok(())
}

pub(crate) fn damaged(run: RunId, position: u64, cause: &impl ToString) -> ReadError {
    ReadError::Damaged {
        run: Some(run),
        position,
        cause: cause.to_string(),
    }
}
