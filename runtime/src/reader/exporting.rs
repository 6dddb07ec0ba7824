//! A history as a file of its own.

use millrun_core::RunId;
use millrun_persistence::Trimmed;
use millrun_workflow::ExportedHistory;

use super::{Reader, decode, kept_of, of_finished};
use crate::RunError;

impl Reader {
    /// The whole durable history of a run.
    pub(super) fn exported(&self, run: RunId) -> Result<Box<ExportedHistory>, RunError> {
        let history = self.shared.journal.history(run).map_err(of_finished)?;
        let kept = match &history.trimmed {
            Some(trimmed) => Some((kept_of(trimmed)?, trimmed)),
            None => None,
        };
        let from = kept.as_ref().map_or(0, |(kept, _)| kept.sequence().get());
        let kept = kept.map(|(_, Trimmed { kept, .. })| kept);
        let id = history.id.as_str();
        let records = history
            .records
            .iter()
            .filter(|record| record.sequence.get() > from);
        let events = records.map(|record| Ok((record.sequence, decode(record, id)?, record.time)));
        let events: Vec<_> = events.collect::<Result<_, RunError>>()?;
        let exported = ExportedHistory::new(run, kept, events);
        exported
            .map(Box::new)
            .map_err(|error| RunError::History(error.to_string()))
    }
}
