//! Reads everything once and decodes it in parallel.
//!
//! ```text
//!   reader ──► rows (copied once, bounded queue per lane) ──► lane 0: the runs of its partitions
//!                                                         └─► lane 1: ...
//! ```
//!
//! Every lane gets every row and passes over the frames of others by their lengths, so that nothing
//! is sorted or copied twice. The records of one run are all seen by one lane, in order.

use std::sync::Arc;
use std::thread;

use crossbeam_channel::bounded;
use millrun_core::RunId;

use super::store::Moment;
use crate::error::JournalFailure;

/// Rows that may wait for a lane.
const ROWS_QUEUED_MAX: usize = 32;

/// Where a row comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// Turns of one run that were moved out of the log.
    Kept,
    /// The log, at this position.
    Log(u64),
}

/// A row as a lane gets it.
pub(crate) struct Row<'a> {
    pub(crate) source: Source,
    pub(crate) bytes: &'a [u8],
    lane: usize,
    lanes: usize,
}

impl Row<'_> {
    /// Whether the lane that got this row is to look at this run. What cannot be put down to a
    /// run is looked at by the first lane.
    pub(crate) fn is_mine(&self, run: Option<RunId>) -> bool {
        run.map_or(0, |run| usize::from(run.partition().index()) % self.lanes) == self.lane
    }
}

/// Calls `feed` with each row, once per lane: the kept turns first, then the log. `seen` is called
/// with each row on the calling thread. With one lane, everything happens there.
pub(crate) fn each_row<L: Send>(
    moment: &Moment,
    low: u64,
    lanes: &mut [L],
    feed: &(dyn Fn(&mut L, &Row<'_>) + Sync),
    seen: &mut dyn FnMut(Source, &[u8]),
) -> Result<(), JournalFailure> {
    if let [lane] = lanes {
        return read(moment, low, &mut |source, bytes| {
            seen(source, bytes);
            feed(
                lane,
                &Row {
                    source,
                    bytes,
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
            let (queue, rows) = bounded::<(Source, Arc<[u8]>)>(ROWS_QUEUED_MAX);
            queues.push(queue);
            scope.spawn(move || {
                for (source, bytes) in rows {
                    feed(
                        lane,
                        &Row {
                            source,
                            bytes: &bytes,
                            lane: index,
                            lanes: count,
                        },
                    );
                }
            });
        }
        read(moment, low, &mut |source, bytes| {
            seen(source, bytes);
            let bytes: Arc<[u8]> = bytes.into();
            // A lane that panicked has closed its queue; the scope passes its panic on.
            queues
                .iter()
                .all(|queue| queue.send((source, Arc::clone(&bytes))).is_ok())
        })
    })
}

fn read(
    moment: &Moment,
    low: u64,
    visit: &mut dyn FnMut(Source, &[u8]) -> bool,
) -> Result<(), JournalFailure> {
    moment.kept_rows(&mut |_, row| visit(Source::Kept, row))?;
    moment.rows(low, &mut |position, row| visit(Source::Log(position), row))
}
