//! Hands the records of live runs to the caller's lanes.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millrun_core::{Host, RunId};
use rustc_hash::FxBuildHasher;

use super::lanes::{Row, Source, each_row};
use super::log;
use super::store::Moment;
use crate::error::ReadError;
use crate::journal::{Lane, Progress};
use crate::scan;

/// The least time between two reports of progress.
const PROGRESS_EVERY: Duration = Duration::from_millis(250);

/// The runs whose records are wanted.
pub(crate) type Runs = HashSet<RunId, FxBuildHasher>;

/// Calls the lanes with all records of `live`; returns how many. The log goes from `low` to `end`.
pub(crate) fn recover(
    moment: &Moment,
    live: &Runs,
    (low, end): (u64, u64),
    lanes: &mut [Lane<'_>],
    host: &dyn Host,
    progress: &mut dyn FnMut(Progress),
) -> Result<u64, ReadError> {
    let records = AtomicU64::new(0);
    let feed = |lane: &mut Lane<'_>, row: &Row<'_>| {
        let mut handed = 0;
        log::walk_share(row, &mut |_, found| {
            // Damage was put down to its runs when the store was opened.
            if let Ok((frame, _)) = found
                && live.contains(&frame.run)
            {
                lane(scan::view(&frame));
                handed += 1;
            }
        });
        records.fetch_add(handed, Ordering::Relaxed);
    };
    let mut reported = host.elapsed();
    each_row(moment, low, lanes, &feed, &mut |source, _| {
        if let Source::Log(position) = source
            && host.elapsed().saturating_sub(reported) >= PROGRESS_EVERY
        {
            reported = host.elapsed();
            progress(Progress {
                bytes_done: position.saturating_sub(low),
                bytes_total: end - low,
                records: records.load(Ordering::Relaxed),
            });
        }
    })?;
    let records = records.into_inner();
    progress(Progress {
        bytes_done: end - low,
        bytes_total: end - low,
        records,
    });
    Ok(records)
}
