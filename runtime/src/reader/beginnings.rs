//! The beginnings and ends of runs, for the walk over what led to what.

use millrun_core::{RunId, Sequence};
use millrun_workflow::Outcome;

use super::{Reader, decode, finding, kept_of, of_finished};
use crate::RunError;
use crate::looking::trace::TraceBeginning;

impl Reader {
    /// The first record of a run, and its last one if the run has ended.
    pub(super) fn trace_beginning(&self, run: RunId) -> Result<Box<TraceBeginning>, RunError> {
        let page = self.shared.journal.history_page(run, Sequence::ZERO, 0);
        let page = page.map_err(of_finished)?;
        let (id, started) = finding::beginning_of(&page)?;
        let kept = match &page.trimmed {
            Some(trimmed) => Some((kept_of(trimmed)?, trimmed.before)),
            None => None,
        };
        let before = Sequence::new(page.head.get().saturating_sub(1));
        let last = self.shared.journal.history_page(run, before, 0);
        // If the last record cannot be read, the pages of the history tell.
        let last = last.ok().and_then(|page| page.records.last().cloned());
        let ended = last.and_then(|last| {
            let event = decode(&last, id.as_str()).ok()?;
            Outcome::of(&event).map(|outcome| (outcome.kind(), last.time))
        });
        Ok(Box::new(TraceBeginning {
            run,
            id,
            started,
            kept,
            ended,
        }))
    }
}
