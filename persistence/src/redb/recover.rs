//! Hands the records of live runs to lanes, in parallel.
//!
//! ```text
//!   reader ──► rows (copied, bounded queue per lane) ──► lane 0: its partitions' records
//!                                                    └─► lane 1: ...
//! ```
//!
//! Every lane sees every row and passes over records that are not its own by their headers, so
//! that nothing is sorted or copied twice.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crossbeam_channel::bounded;
use millrun_core::{Host, RunId};
use rustc_hash::FxBuildHasher;

use super::log;
use super::store::Snapshot;
use crate::error::{JournalFailure, ReadError};
use crate::journal::{Lane, Progress};
use crate::scan;

/// Rows that may wait for a lane.
const ROWS_QUEUED_MAX: usize = 32;
/// The least time between two reports of progress.
const PROGRESS_EVERY: Duration = Duration::from_millis(250);

/// The runs whose records are wanted.
pub(crate) type Runs = HashSet<RunId, FxBuildHasher>;

type Row = (u64, Arc<[u8]>);

/// Calls the lanes with all records of `live` between `from` and `end`; returns how many.
pub(crate) fn recover(
    store: &Snapshot,
    live: &Runs,
    (from, end): (u64, u64),
    lanes: &mut [Lane<'_>],
    host: &dyn Host,
    progress: &mut dyn FnMut(Progress),
) -> Result<u64, ReadError> {
    let records = AtomicU64::new(0);
    let mut reported = host.elapsed();
    let mut report = |done: u64, records: &AtomicU64| {
        if host.elapsed().saturating_sub(reported) >= PROGRESS_EVERY {
            reported = host.elapsed();
            let records = records.load(Ordering::Relaxed);
            progress(Progress {
                bytes_done: done - from,
                bytes_total: end - from,
                records,
            });
        }
    };
    if let [lane] = lanes {
        each_row(store, from, &mut |key, row| {
            feed(key, row, live, (0, 1), lane, &records);
            report(key.max(from), &records);
            true
        })?;
    } else {
        let count = lanes.len();
        thread::scope(|scope| -> Result<(), JournalFailure> {
            let mut queues = Vec::with_capacity(count);
            for (index, lane) in lanes.iter_mut().enumerate() {
                let (sender, rows) = bounded::<Row>(ROWS_QUEUED_MAX);
                queues.push(sender);
                let records = &records;
                scope.spawn(move || {
                    for (key, row) in rows {
                        feed(key, &row, live, (index, count), lane, records);
                    }
                });
            }
            each_row(store, from, &mut |key, row| {
                let row: Arc<[u8]> = row.into();
                report(key.max(from), &records);
                // A lane that panicked has closed its queue; the scope passes its panic on.
                queues
                    .iter()
                    .all(|queue| queue.send((key, Arc::clone(&row))).is_ok())
            })
        })?;
    }
    let records = records.into_inner();
    progress(Progress {
        bytes_done: end - from,
        bytes_total: end - from,
        records,
    });
    Ok(records)
}

/// Calls `visit` with the turns that were moved out of the log, run by run, and then with the log.
fn each_row(
    store: &Snapshot,
    from: u64,
    visit: &mut dyn FnMut(u64, &[u8]) -> bool,
) -> Result<(), JournalFailure> {
    store.kept_rows(&mut |_, row| visit(from, row))?;
    store.rows(from, visit)
}

/// Hands the records of a row that belong to lane `index` of `count` to it.
fn feed(
    key: u64,
    row: &[u8],
    live: &Runs,
    (index, count): (usize, usize),
    lane: &mut Lane<'_>,
    records: &AtomicU64,
) {
    let mut handed = 0;
    log::walk(key, row, &mut |_, found| {
        // Damage was put down to its runs when the log was first read.
        if let Ok((frame, _)) = found {
            let is_mine = usize::from(frame.run.partition().index()) % count == index;
            if is_mine && live.contains(&frame.run) {
                lane(scan::view(&frame));
                handed += 1;
            }
        }
    });
    records.fetch_add(handed, Ordering::Relaxed);
}
