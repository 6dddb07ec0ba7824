//! Several reads in one call, which may cost a journal less than as many calls.
//!
//! ```text
//!   [history a, snapshot b, finished c] ──► read_together ──► each(0, ..), each(1, ..), each(2, ..)
//!                                                 └─ one that exceeds the bound in bytes is passed over
//! ```
//!
//! This module has the requests, the results, and the default for a journal that cannot share work.

use millrun_core::{InstanceId, RunId, Sequence};

use crate::error::ReadError;
use crate::journal::Reads;
use crate::record::{FinishedRun, History, HistoryPage, Snapshot};

/// One of the reads of a [`Reads::read_together`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToRead {
    /// What [`Reads::history`] gives.
    History(RunId),
    /// What [`Reads::history_page`] gives.
    Page {
        /// Whose history it is.
        run: RunId,
        /// The record after which the page begins.
        after: Sequence,
        /// The size of the page in bytes.
        bytes_max: usize,
    },
    /// What [`Reads::snapshot`] gives.
    Snapshot(RunId),
    /// What [`Reads::finished`] gives.
    Finished(InstanceId),
}

/// The result of a [`ToRead`], variant by variant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WasRead {
    /// A whole history.
    History(History),
    /// A page of a history.
    Page(HistoryPage),
    /// The snapshot of a run, if it has one.
    Snapshot(Option<Snapshot>),
    /// The latest finished run of an instance, if one is retained.
    Finished(Option<FinishedRun>),
}

impl ToRead {
    /// Performs this read by itself, of at most `left` bytes; `None` if it has more: for a journal that can share only some
    /// of the reads of a [`read_together`](Reads::read_together).
    pub fn read_alone<R: Reads + ?Sized>(
        &self,
        journal: &R,
        left: usize,
    ) -> Option<Result<WasRead, ReadError>> {
        read(journal, self, left)
    }
}

impl WasRead {
    /// How many bytes of records or of a snapshot it holds: they count towards the bound of a call.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match self {
            Self::History(history) => history.records.iter().map(|record| record.body.len()).sum(),
            Self::Page(page) => page.records.iter().map(|record| record.body.len()).sum(),
            Self::Snapshot(snapshot) => snapshot.as_ref().map_or(0, |snapshot| snapshot.bytes.len()),
            Self::Finished(_) => 0,
        }
    }
}

/// Gets the result of each read: its index among those that were asked for, and the result itself.
pub type EachRead<'a> = &'a mut dyn FnMut(usize, Result<WasRead, ReadError>);

/// [`Reads::read_together`] for a journal that cannot share work.
pub(crate) fn one_by_one<R: Reads + ?Sized>(
    journal: &R,
    wanted: &[ToRead],
    bytes_max: usize,
    each: EachRead<'_>,
) {
    let mut left = bytes_max;
    for (index, wanted) in wanted.iter().enumerate() {
        if let Some(was_read) = read(journal, wanted, left) {
            left = left.saturating_sub(was_read.as_ref().map_or(0, WasRead::bytes));
            each(index, was_read);
        }
    }
}

/// One read of at most this many bytes; `None` if it has more.
fn read<R: Reads + ?Sized>(journal: &R, wanted: &ToRead, left: usize) -> Option<Result<WasRead, ReadError>> {
    Some(match wanted {
        ToRead::Finished(id) => journal.finished(id).map(WasRead::Finished),
        ToRead::History(_) | ToRead::Page { .. } | ToRead::Snapshot(_) if left == 0 => return None,
        ToRead::Snapshot(run) => journal.snapshot(*run).map(WasRead::Snapshot),
        ToRead::Page {
            run,
            after,
            bytes_max,
        } => {
            let page = journal.history_page(*run, *after, left.min(*bytes_max));
            if let Ok(page) = &page
                && left < *bytes_max
                && !page.is_end()
            {
                return None;
            }
            page.map(WasRead::Page)
        }
        // A page is bounded, a history is not.
        ToRead::History(run) => match journal.history_page(*run, Sequence::ZERO, left) {
            Ok(page) if !page.is_end() => return None,
            Ok(HistoryPage {
                records, trimmed, id, ..
            }) => match id {
                Some(id) => Ok(WasRead::History(History::new(*run, id, records, trimmed))),
                None => Err(ReadError::UnknownRun { run: *run }),
            },
            Err(error) => Err(error),
        },
    })
}
