//! Hands the records of live runs to the caller's lanes.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millrun_core::{Host, RunId};
use rustc_hash::FxBuildHasher;

use crate::error::ReadError;
use crate::fold::Fold;
use crate::journal::{Lane, Progress};
use crate::record::RecordView;
use crate::redb::database::moment::StoreMoment;
use crate::redb::records::frames;
use crate::redb::records::lanes::{LogSpan, each_row};
use crate::redb::records::row::{FrameSource, Row};
use crate::scan;

/// The least time between two reports of progress.
pub(crate) const PROGRESS_EVERY: Duration = Duration::from_millis(250);

/// Runs.
pub(crate) type Runs = HashSet<RunId, FxBuildHasher>;

/// Where in the log the turns are that trimmed runs.
pub(crate) type Trims = HashMap<RunId, u64, FxBuildHasher>;

/// The runs whose records are wanted, except what they were trimmed of.
pub(crate) struct WantedRuns {
    pub(crate) runs: Runs,
    pub(crate) trims: Trims,
}

impl WantedRuns {
    /// Whether the run's record at this place is wanted. If a run was trimmed within the log, its records outside of the log
    /// are about to be removed.
    fn has(&self, run: RunId, source: FrameSource, position: u64) -> bool {
        let is_there = |trimmed: &u64| matches!(source, FrameSource::Log(_)) && position >= *trimmed;
        self.runs.contains(&run) && self.trims.get(&run).is_none_or(is_there)
    }
}

/// Feeds the folds with all records of `live` in `span`: with one thread for each fold, if there are several.
pub(crate) fn fold(
    moment: &StoreMoment,
    live: &WantedRuns,
    span: LogSpan,
    folds: &mut [Box<dyn Fold>],
) -> Result<(), ReadError> {
    struct Numbered<'a> {
        fold: &'a mut dyn Fold,
        numbers: HashMap<RunId, usize, FxBuildHasher>,
    }
    let folds = folds.iter_mut();
    let mut lanes: Vec<_> = folds
        .map(|fold| Numbered {
            fold: &mut **fold,
            numbers: HashMap::default(),
        })
        .collect();
    let feed = |lane: &mut Numbered<'_>, row: &Row<'_>| {
        each_of(live, row, &mut |record| {
            let next = lane.numbers.len();
            let number = *lane.numbers.entry(record.run).or_insert(next);
            lane.fold.record(number, record);
        });
    };
    Ok(each_row(moment, span, &mut lanes, &feed, &mut |_, _| {})?)
}

/// Visits the records of `live` in a row.
fn each_of(live: &WantedRuns, row: &Row<'_>, visit: &mut dyn FnMut(RecordView<'_>)) {
    // Frames of other runs need not be checked.
    let wanted: Vec<u32> = frames::runs(row)
        .filter_map(|(start, run)| live.runs.contains(&run).then_some(start))
        .collect();
    let row = row.only(&wanted);
    frames::walk_share(&row, &mut |position, found| {
        // The damage was attributed to its runs when the store was opened.
        if let Ok((frame, _)) = found
            && live.has(frame.run, row.source, position)
        {
            visit(scan::view(&frame));
        }
    });
}

/// Calls the lanes with all records of `live` in `span`; returns how many.
pub(crate) fn recover(
    moment: &StoreMoment,
    live: &WantedRuns,
    span: LogSpan,
    lanes: &mut [Lane<'_>],
    host: &dyn Host,
    progress: &mut dyn FnMut(Progress),
) -> Result<u64, ReadError> {
    let records = AtomicU64::new(0);
    let feed = |lane: &mut Lane<'_>, row: &Row<'_>| {
        let mut handed = 0;
        each_of(live, row, &mut |record| {
            lane(record);
            handed += 1;
        });
        records.fetch_add(handed, Ordering::Relaxed);
    };
    let mut reported = host.elapsed();
    each_row(moment, span, lanes, &feed, &mut |source, _| {
        if let FrameSource::Log(position) = source
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
