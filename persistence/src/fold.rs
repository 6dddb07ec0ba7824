//! Folding the histories of live runs, during the one pass that reads the log of a store that is opened, and for a
//! [claim](crate::Claim).
//!
//! ```text
//!   log ──► frames of a lane ──► heads: run ─► number ──► Fold::record(number, record)
//!                                       │ ended, or damaged
//!                                       └───────────────► Fold::forget(number)
//! ```
//!
//! Which runs are live is known only at the end of that pass, so a fold may also see runs that have ended, and is then told
//! to forget them. Each record comes with a small number that belongs to its run, so a fold can keep its results in a list
//! and needs no lookups.

use std::any::Any;

use crate::record::RecordView;

/// Receives the records of a share of the live runs of partitions that are [claimed](crate::Journal::claim).
///
/// # Panics
/// A fold must not panic: the claim is then refused, or the store is not opened, and the file may be reported as corrupted.
pub trait Fold: Any + Send {
    /// The next record of the run with this number, in the order of its history, beginning with the first. A number is always
    /// below the greatest number of runs that were live at a time.
    fn record(&mut self, number: usize, record: RecordView<'_>);

    /// The run with this number has ended, or its history is damaged: forget it. Another run may get the number. The run may
    /// have had no record: one that begins and ends in a single record is not shown.
    fn forget(&mut self, number: usize);
}

/// A fold that ignores everything.
#[derive(Debug)]
pub(crate) struct NoFold;

impl Fold for NoFold {
    fn record(&mut self, _: usize, _: RecordView<'_>) {}

    fn forget(&mut self, _: usize) {}
}
