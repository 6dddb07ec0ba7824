//! Hands the records of live runs to the caller's lanes.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millrun_core::{Host, RunId};
use rustc_hash::FxBuildHasher;

use super::frames;
use super::lanes::{Row, Source, Span, each_row};
use super::moment::Moment;
use crate::error::ReadError;
use crate::journal::{Lane, Progress};
use crate::scan;

/// The least time between two reports of progress.
pub(crate) const PROGRESS_EVERY: Duration = Duration::from_millis(250);

/// The runs whose records are wanted.
pub(crate) type Runs = HashSet<RunId, FxBuildHasher>;

/// Calls the lanes with all records of `live`, which stand in `span`; returns how many.
pub(crate) fn recover(
    moment: &Moment,
    live: &Runs,
    span: Span,
    lanes: &mut [Lane<'_>],
    host: &dyn Host,
    progress: &mut dyn FnMut(Progress),
) -> Result<u64, ReadError> {
    let records = AtomicU64::new(0);
    let feed = |lane: &mut Lane<'_>, row: &Row<'_>| {
        let mut handed = 0;
        // Frames of other runs need not be checked.
        let wanted: Vec<u32> = frames::runs(row)
            .filter_map(|(start, run)| live.contains(&run).then_some(start))
            .collect();
        let row = row.only(&wanted);
        frames::walk_share(&row, &mut |_, found| {
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
    each_row(moment, span, lanes, &feed, &mut |source, _| {
        if let Source::Log(position) = source
            && host.elapsed().saturating_sub(reported) >= PROGRESS_EVERY
        {
            reported = host.elapsed();
            progress(Progress {
                bytes_done: position.saturating_sub(span.from),
                bytes_total: span.end - span.from,
                records: records.load(Ordering::Relaxed),
            });
        }
    })?;
    let records = records.into_inner();
    progress(Progress {
        bytes_done: span.end - span.from,
        bytes_total: span.end - span.from,
        records,
    });
    Ok(records)
}
