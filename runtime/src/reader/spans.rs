//! The spans of an ended run, read page by page: a long history takes no more memory than a page.

use millrun_core::{RunId, Sequence};
use millrun_workflow::{RunSpans, SpanBounds, SpanFold};

use super::finding::beginning_of;
use super::{Reader, decode, kept_of, of_finished};
use crate::RunError;

impl Reader {
    /// The spans of a run, made of at most `events_len_max` of its events and the last one; `None` if the run is not traced.
    pub(super) fn spans(
        &self,
        run: RunId,
        bounds: SpanBounds,
        events_len_max: usize,
    ) -> Result<Option<RunSpans>, RunError> {
        let bytes_max = self.shared.config.history_page_bytes_max;
        let (mut fold, mut after) = (SpanFold::new(run, bounds), Sequence::ZERO);
        let (mut left, mut is_known) = (events_len_max.max(2), false);
        loop {
            let page = self.shared.journal.history_page(run, after, bytes_max);
            let page = page.map_err(of_finished)?;
            if !is_known {
                let (_, started) = beginning_of(&page)?;
                if !started.trace().is_some_and(|trace| trace.is_sampled()) {
                    return Ok(None);
                }
                is_known = true;
            }
            if let Some(trimmed) = &page.trimmed {
                let kept = kept_of(trimmed)?;
                fold.begin_kept(&kept);
                after = kept.sequence();
            }
            let id = page.id.as_ref().map_or("", |id| id.as_str());
            let behind = after;
            for record in page.records.iter().filter(|record| record.sequence > behind) {
                let is_last = record.sequence == page.head;
                if left == 0 && !is_last {
                    break;
                }
                fold.apply(record.sequence, &decode(record, id)?, record.time);
                after = record.sequence;
                left = left.saturating_sub(1);
            }
            if after >= page.head || page.records.is_empty() {
                return Ok(fold.finish());
            }
            if left == 0 {
                // The end of the run is always included, whatever was skipped.
                let last = Sequence::new(page.head.get() - 1);
                fold.leave_out_events(last.get().saturating_sub(after.get()));
                after = last.max(after);
            }
        }
    }
}
