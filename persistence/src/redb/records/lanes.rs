//! Reads the store once and decodes it in parallel.
//!
//! ```text
//!   reader ──► rows (copied once, bounded queue per lane) ──► lane 0: the runs of its partitions
//!          └── where the frames of each lane begin        └─► lane 1: ...
//! ```
//!
//! Every lane gets every row, and where its own frames begin in it. The reader finds that by the frames' lengths, while the
//! row is in its cache: a lane that walked from length to length would wait for memory at each frame of the other lanes.
//! Nothing is sorted or copied twice. The records of one run are all seen by one lane, in order.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;

use crossbeam_channel::bounded;
use millrun_core::RunId;

use super::frames;
use super::row::{FrameSource, Row};
use crate::error::JournalFailure;
use crate::redb::database::moment::{LogKey, StoreMoment};

/// Rows that may wait for a lane.
const ROWS_QUEUED_MAX: usize = 32;

/// Where the wanted records are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogSpan {
    /// Whether some of them were moved out of the log.
    pub(crate) has_kept: bool,
    /// Whether the rows that repeat each turn's place are wanted too: the heads of kept runs come after their turns, an
    /// inventory before the first row of its stretch.
    pub(crate) has_second: bool,
    /// Where the first of them is in the log.
    pub(crate) from: u64,
    /// Where the log ends.
    pub(crate) end: u64,
}

/// A row on its way to a lane, with where the lane's frames begin.
type Sent = (FrameSource, Arc<Vec<u8>>, Option<Vec<u32>>);

/// Larger buffers are not reused.
const KEPT_BYTES_MAX: usize = 256 << 10;

/// Reused buffers: the kernel would map and unmap a new one for each row. The buffers of unusually large rows are not reused.
#[derive(Default)]
struct Buffers(VecDeque<Arc<Vec<u8>>>);

impl Buffers {
    /// A copy of `bytes`, in the oldest buffer if all lanes have finished with it.
    fn copy(&mut self, bytes: &[u8]) -> Arc<Vec<u8>> {
        let mut oldest = self.0.pop_front().unwrap_or_default();
        match Arc::get_mut(&mut oldest) {
            Some(buffer) => {
                if buffer.capacity() > KEPT_BYTES_MAX {
                    *buffer = Vec::new();
                }
                buffer.clear();
                buffer.extend_from_slice(bytes);
            }
            None => {
                self.0.push_front(oldest);
                oldest = Arc::new(bytes.to_vec());
            }
        }
        self.0.push_back(Arc::clone(&oldest));
        oldest
    }
}

/// Calls `feed` with each row in `span`, once per lane: the kept turns first, then the log. `seen` is called with each row on
/// the calling thread. With one lane, everything happens there.
pub(crate) fn each_row<L: Send>(
    moment: &StoreMoment,
    span: LogSpan,
    lanes: &mut [L],
    feed: &(dyn Fn(&mut L, &Row<'_>) + Sync),
    seen: &mut dyn FnMut(FrameSource, &[u8]),
) -> Result<(), JournalFailure> {
    if let [lane] = lanes {
        return read(moment, span, &mut |source, bytes| {
            seen(source, bytes);
            let frames = split(source, bytes, 1);
            feed(
                lane,
                &Row {
                    source,
                    bytes,
                    frames: frames.as_ref().map(|of_lanes| of_lanes[0].as_slice()),
                    lane: 0,
                    lanes: 1,
                },
            );
            true
        });
    }
    let count = lanes.len();
    thread::scope(|scope| {
        let mut queues = Vec::with_capacity(count);
        for (index, lane) in lanes.iter_mut().enumerate() {
            let (queue, rows) = bounded::<Sent>(ROWS_QUEUED_MAX);
            queues.push(queue);
            scope.spawn(move || {
                for (source, bytes, frames) in rows {
                    feed(
                        lane,
                        &Row {
                            source,
                            bytes: &bytes,
                            frames: frames.as_deref(),
                            lane: index,
                            lanes: count,
                        },
                    );
                }
            });
        }
        let mut buffers = Buffers::default();
        read(moment, span, &mut |source, bytes| {
            seen(source, bytes);
            let mut frames = split(source, bytes, count).map(Vec::into_iter);
            let bytes = buffers.copy(bytes);
            // A lane that panicked has closed its queue; the scope re-raises its panic.
            queues.iter().all(|queue| {
                let own = frames.as_mut().and_then(Iterator::next);
                queue.send((source, Arc::clone(&bytes), own)).is_ok()
            })
        })
    })
}

/// Where the frames of each lane begin in a row that has frames.
fn split(source: FrameSource, row: &[u8], lanes: usize) -> Option<Vec<Vec<u32>>> {
    source
        .has_frames()
        .then(|| frames::split(row, source.run(), lanes))
        .flatten()
}

fn read(
    moment: &StoreMoment,
    span: LogSpan,
    visit: &mut dyn FnMut(FrameSource, &[u8]) -> bool,
) -> Result<(), JournalFailure> {
    if span.has_kept {
        moment.kept_rows(&mut |key, row| visit(FrameSource::Kept(key.run()), row))?;
    }
    if span.has_second {
        moment.kept_heads(&mut |run, row| {
            RunId::from_bits(run).is_none_or(|run| visit(FrameSource::KeptHead(run), row))
        })?;
        return moment.log_and_inventory(span.from, &mut |key, row| match key {
            LogKey::Inventory(position) => visit(FrameSource::Inventory(position), row),
            LogKey::Log(position) => visit(FrameSource::Log(position), row),
        });
    }
    moment.rows(span.from, &mut |position, row| {
        position < span.end && visit(FrameSource::Log(position), row)
    })
}
