//! What is removed from the log with a commit, and how rows of turns are cut and laid out.

use millrun_core::RunId;

use crate::redb::finished::settler::IndexStep;
use crate::wire::{piece, v1};

/// A step of settling: what one transaction removes from the log, and what it keeps of that.
#[derive(Debug, Default)]
pub(crate) struct Slice {
    /// Where the log begins afterwards.
    pub(crate) low: u64,
    /// The keys of the rows that are removed.
    pub(crate) rows: Vec<u64>,
    /// The frames in them that are still needed, by run and in order.
    pub(crate) moved: Vec<(RunId, Vec<u8>)>,
    /// Runs whose kept turns are not needed any more.
    pub(crate) gone: Vec<RunId>,
    /// What is written of the index of finished runs.
    pub(crate) index: IndexStep,
}

/// Lays a piece out as the bytes of its row: header and frames. A row that redb is asked to reserve is
/// zeroed and copied before it can be written, which costs more than this copy.
pub(crate) fn lay_out(row: &mut Vec<u8>, frames: &[&[u8]], count: usize) {
    let len = frames.iter().map(|frames| frames.len()).sum();
    row.clear();
    row.reserve_exact(piece::HEADER_BYTES + len);
    row.extend_from_slice(&piece::header(narrow(len), narrow(count)));
    for frames in frames {
        row.extend_from_slice(frames);
    }
}

/// Length and number of the frames that make up the next piece.
pub(crate) fn cut(frames: &[u8]) -> (usize, usize) {
    let target = piece::target(frames.len());
    let (mut len, mut count) = (0, 0);
    while len < frames.len() {
        let next = v1::len(&frames[len..]);
        if count > 0 && len + next > target {
            break;
        }
        len += next;
        count += 1;
    }
    (len, count)
}

fn narrow(number: usize) -> u32 {
    u32::try_from(number).expect("a piece is one frame below 4 GiB, or far smaller")
}
