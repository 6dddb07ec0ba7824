//! Turns as the bytes that the journals of this crate store, for journals in other crates that keep the same bytes in another
//! place.
//!
//! ```text
//!   TurnView::frames ──► a place of another journal's ──► history, page, FrameWalk ──► records, or damage
//! ```
//!
//! The frames of a turn carry all that is read back, each with a checksum over its run, its sequence and its body, so a
//! stored turn proves which run it belongs to and at which place.
//!
//! ```
//! # use std::convert::Infallible;
//! # use millrun_core::{Epoch, InstanceId, RunId, Sequence, Timestamp};
//! # use millrun_persistence::{Batch, TurnHeader, frames};
//! # let id = InstanceId::new("order-42")?;
//! # let time = Timestamp::from_micros(1_700_000_000_000_000);
//! # let run = RunId::new(id.partition(), time, 1);
//! # let mut batch = Batch::new();
//! # let header = TurnHeader { run, head: Sequence::ZERO, epoch: Epoch::new(1), time, opens: Some(&id) };
//! # let mut turn = batch.turn(header);
//! # turn.record(1, |body| { body.extend_from_slice(b"started"); Ok::<_, Infallible>(()) })?;
//! # turn.finish(false)?;
//! let sealed = batch.sealed();
//! let stored: Vec<_> = sealed.iter().map(|turn| turn.frames().to_vec().into()).collect();
//! let history = frames::history(run, &stored)?;
//! assert_eq!((history.id, history.records.len()), (id, 1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use bytes::Bytes;
use millrun_core::{InstanceId, RunId, Sequence};

use crate::error::ReadError;
use crate::record::{History, HistoryPage, RecordView};
use crate::scan;
use crate::wire::v1;

/// The history of a run, given all its stored turns in order: as [`Reads::history`](crate::Reads::history).
///
/// # Errors
/// [`ReadError::Damaged`] if a frame is damaged, of another run, or not the next; its `position` counts the bytes before
/// it. [`ReadError::UnknownRun`] without turns.
pub fn history(run: RunId, turns: &[Bytes]) -> Result<History, ReadError> {
    scan::history(run, &placed(turns))
}

/// The page after the record `after` of a run: `turns` are consecutive stored turns, from the one with the record that
/// follows `after`, as far as a page of `bytes_max` bytes goes. The run's last record is `head`. See
/// [`Reads::history_page`](crate::Reads::history_page).
///
/// # Errors
/// As [`history`], but for a run without turns, of which the page is empty.
pub fn page(
    run: RunId,
    turns: &[Bytes],
    after: Sequence,
    bytes_max: usize,
    head: Sequence,
) -> Result<HistoryPage, ReadError> {
    scan::page(run, &placed(turns), after, bytes_max, head)
}

fn placed(turns: &[Bytes]) -> Vec<(u64, Bytes)> {
    let mut at = 0;
    let placed = turns.iter().map(|turn| {
        let placed = (at, turn.clone());
        at += turn.len() as u64;
        placed
    });
    placed.collect()
}

/// A walk over the stored turns of a run, from its first turn or the one that trims it.
#[derive(Clone, Debug)]
pub struct FrameWalk {
    run: RunId,
    /// The last record that was passed; zero before the first.
    before: u64,
    bytes: u64,
}

impl FrameWalk {
    /// A walk over the turns of this run.
    #[must_use]
    pub fn new(run: RunId) -> Self {
        let (before, bytes) = (0, 0);
        Self { run, before, bytes }
    }

    /// Checks the next turn, and hands its records to `each` in order. Returns how many there were.
    ///
    /// # Errors
    /// [`ReadError::Damaged`], as [`history`]; the records before the damage have been handed out by then.
    pub fn turn(&mut self, turn: &[u8], each: &mut dyn FnMut(RecordView<'_>)) -> Result<u64, ReadError> {
        let (mut at, mut records) = (0, 0);
        while at < turn.len() {
            let position = self.bytes + at as u64;
            let frame = v1::read(&turn[at..]).map_err(|error| scan::damaged(self.run, position, &error))?;
            scan::check_order(self.run, &frame, self.before, position)?;
            each(scan::view(&frame));
            self.before = frame.sequence.get();
            at += frame.len;
            records += 1;
        }
        self.bytes += turn.len() as u64;
        Ok(records)
    }

    /// The last record that was passed; zero if there was none.
    #[must_use]
    pub fn last(&self) -> Sequence {
        Sequence::new(self.before)
    }

    /// Bytes of the turns that were passed.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// The id of the instance whose run the stored turn opens or trims; `None` of other turns, and of damaged ones.
#[must_use]
pub fn instance_id(turn: &[u8]) -> Option<InstanceId> {
    scan::instance_id(turn)
}

/// Whether the stored turn is undamaged and belongs to this run.
#[must_use]
pub fn is_sound(run: RunId, mut turn: &[u8]) -> bool {
    let is_empty = turn.is_empty();
    while !turn.is_empty() {
        match v1::read(turn) {
            Ok(frame) if frame.run == run => turn = &turn[frame.len..],
            Ok(_) | Err(_) => return false,
        }
    }
    !is_empty
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use crate::batch::{Batch, TurnHeader};
    use millrun_core::{Epoch, Timestamp};

    fn stored() -> (RunId, Vec<Bytes>) {
        let id = InstanceId::new("a").unwrap();
        let time = Timestamp::from_micros(7_000);
        let run = RunId::new(id.partition(), time, 1);
        let mut batch = Batch::new();
        for head in 0..3 {
            let mut turn = batch.turn(TurnHeader {
                run,
                head: Sequence::new(head),
                epoch: Epoch::new(1),
                time,
                opens: (head == 0).then_some(&id),
            });
            let body = |body: &mut Vec<u8>| {
                body.push(1);
                Ok::<_, Infallible>(())
            };
            turn.record(4, body).unwrap();
            turn.finish(false).unwrap();
        }
        let turns = batch.iter().map(|turn| turn.frames().to_vec().into());
        (run, turns.collect())
    }

    #[test]
    fn a_walk_hands_out_what_a_history_holds_and_names_what_is_missing_or_of_another_run() {
        let (run, turns) = stored();
        let mut walk = FrameWalk::new(run);
        let mut sequences = Vec::new();
        for turn in &turns {
            let passed = walk.turn(turn, &mut |record| sequences.push(record.sequence.get()));
            assert_eq!(passed, Ok(1));
        }
        assert_eq!((sequences, walk.last()), (vec![1, 2, 3], Sequence::new(3)));
        assert_eq!(history(run, &turns).unwrap().head(), walk.last());
        assert_eq!(instance_id(&turns[0]).unwrap().as_str(), "a");
        assert_eq!(instance_id(&turns[1]), None);
        let gap = FrameWalk::new(run).turn(&turns[1], &mut |_| {});
        assert!(matches!(gap, Err(ReadError::Damaged { .. })), "{gap:?}");
        let other = RunId::from_bits(run.bits() ^ 1).unwrap();
        assert!(FrameWalk::new(other).turn(&turns[0], &mut |_| {}).is_err());
        assert!(is_sound(run, &turns[1]) && !is_sound(other, &turns[1]) && !is_sound(run, &[]));
        for at in 0..turns[0].len() {
            let mut bad = turns[0].to_vec();
            bad[at] ^= 1;
            // The first eight bytes are the log position of the run's turn before: it is set when the turn is written.
            assert_eq!(is_sound(run, &bad), at < 8, "byte {at}");
        }
    }
}
