//! Several reads in one call: copies frames under the lock, and decodes them without it.

use bytes::Bytes;
use millrun_core::{RunId, Sequence};

use super::state::MemoryState;
use crate::error::ReadError;
use crate::scan;
use crate::together::{ToRead, WasRead};
use crate::wire::v1;

/// What is copied for one read.
pub(super) enum Copied {
    History {
        run: RunId,
        frames: Vec<u8>,
    },
    Page {
        run: RunId,
        frames: Vec<u8>,
        after: Sequence,
        bytes_max: usize,
        head: Sequence,
    },
    /// The result itself: nothing is left to decode.
    Whole(WasRead),
}

impl Copied {
    /// How many bytes it counts against the call's budget.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::History { frames, .. } | Self::Page { frames, .. } => frames.len(),
            Self::Whole(was_read) => was_read.bytes(),
        }
    }

    pub(super) fn decode(self) -> Result<WasRead, ReadError> {
        let sealed = |mut frames: Vec<u8>| {
            v1::seal_all(&mut frames);
            [(0, Bytes::from(frames))]
        };
        match self {
            Self::History { run, frames } => scan::history(run, &sealed(frames)).map(WasRead::History),
            Self::Page {
                run,
                frames,
                after,
                bytes_max,
                head,
            } => scan::page(run, &sealed(frames), after, bytes_max, head).map(WasRead::Page),
            Self::Whole(was_read) => Ok(was_read),
        }
    }
}

/// Copies what a read needs, at most `left` bytes; `None` if it has more. A history of more than `max` bytes is refused.
pub(super) fn copy(
    state: &MemoryState,
    wanted: &ToRead,
    left: usize,
    max: u64,
) -> Option<Result<Copied, ReadError>> {
    let copied = state.readable().map_err(ReadError::Failed).and_then(|()| {
        Ok(match wanted {
            ToRead::History(run) => {
                let (run, frames) = (*run, state.known_frames(*run)?);
                let bytes = frames.len() as u64;
                if bytes > max {
                    return Err(ReadError::TooLong { run, bytes, max });
                }
                (frames.len() <= left).then(|| Copied::History {
                    run,
                    frames: frames.to_vec(),
                })
            }
            ToRead::Page {
                run,
                after,
                bytes_max,
            } => {
                let (run, after, bytes_max) = (*run, *after, *bytes_max);
                let (frames, head) = page(state.known_frames(run)?, after, bytes_max);
                (frames.len() <= left).then(|| Copied::Page {
                    run,
                    frames: frames.to_vec(),
                    after,
                    bytes_max,
                    head,
                })
            }
            ToRead::Snapshot(run) => {
                let snapshot = WasRead::Snapshot(state.snapshots.get(run).cloned());
                (snapshot.bytes() <= left).then_some(Copied::Whole(snapshot))
            }
            ToRead::Finished(id) => Some(Copied::Whole(WasRead::Finished(state.finished_of(id)?))),
        })
    });
    copied.transpose()
}

/// From all frames of a run without gaps, those of one page, and the sequence of the last record.
pub(super) fn page(frames: &[u8], after: Sequence, bytes_max: usize) -> (&[u8], Sequence) {
    let mut sequence = frames.get(..1).map_or(0, |_| v1::sequence(frames) - 1);
    let mut at = 0;
    let (mut start, mut end) = (frames.len(), frames.len());
    while at < frames.len() {
        sequence += 1;
        let next = at + v1::len(&frames[at..]);
        if sequence > after.get() && start == frames.len() {
            start = at;
        } else if sequence > after.get() && end == frames.len() && next - start > bytes_max {
            end = at;
        }
        at = next;
    }
    (&frames[start..end], Sequence::new(sequence))
}
