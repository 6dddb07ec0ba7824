//! Folding the histories of live runs, while a store is opened in the one pass that reads its log, and for a
//! [claim](crate::Claim).
//!
//! ```text
//!   log ──► frames of a lane ──► heads: run ─► number ──► Fold::record(number, record)
//!                                       │ ended, or damaged
//!                                       └───────────────► Fold::forget(number)
//! ```
//!
//! Which runs are live is known at the end of that pass only, so a fold may see those that have ended too, and
//! is told to forget them. It gets a number with each record: a small one that the run keeps, so that a list
//! can hold what is made of it, and nothing is looked up twice.

use std::any::Any;

use crate::record::RecordView;

/// Receives the records of a share of the live runs of partitions that are [claimed](crate::Journal::claim).
///
/// # Panics
/// A fold must not panic: the claim is refused, or the store is not opened, and the file may be said to be
/// corrupted.
pub trait Fold: Any + Send {
    /// The next record of the run with this number, in the order of its history; its first record
    /// comes first. Numbers are below the greatest number of runs that were live at a time.
    fn record(&mut self, number: usize, record: RecordView<'_>);

    /// The run with this number has ended, or its history is damaged: nothing is left of it. Another
    /// run may get the number. It may have had no record: one that begins and ends in a single record is
    /// not shown.
    fn forget(&mut self, number: usize);
}

/// Takes no notice.
#[derive(Debug)]
pub(crate) struct NoFold;

impl Fold for NoFold {
    fn record(&mut self, _: usize, _: RecordView<'_>) {}

    fn forget(&mut self, _: usize) {}
}
