//! What a run is reset with, and what can be refused before it is read.
//!
//! ```text
//!   one record and the head ──► no such event, trimmed, an ended child: refused
//!            └──► page by page: the events that are kept, while they fit a turn ──► what is told again
//! ```
//!
//! Nothing that is longer than a turn is held at a time, however long the history is. A run that is not in memory is brought back here
//! too, so that its shard only takes it over.

use millrun_core::{RunId, Sequence, Timestamp};
use millrun_persistence::HistoryPage;
use millrun_workflow::{Event, LaterSignals, ResetRefused};

use super::finding::beginning_of;
use super::{Owed, Reader, Said, decode, of_finished};
use crate::RunError;
use crate::code::version_trials::TriedRun;
use crate::code::workflows::{Beginning, is_reserved};
use crate::mail::{Load, LoadToReset, LocalMessage, ReadToReset, ResetReading, ResetReads, Story};

/// What a record has beside the event, at least.
const RECORD_BYTES: usize = 16;

impl Reader {
    /// Reads what a live run is reset with; and the run itself, if it is not in memory and can be reset.
    pub(super) fn read_to_reset(&self, load: Load, to_reset: LoadToReset) {
        let run = load.run;
        let unread = LocalMessage::ReadToReset { load, read: None };
        let owed = Owed::new(self, Said::Here(run, unread));
        let reading = self.reading(run, to_reset.reads, false);
        let is_refused = reading.as_ref().map_or(true, |reading| reading.events.is_err());
        let is_needed = !is_refused && !to_reset.is_in_memory;
        let story = is_needed.then(|| self.load(run).and_then(|story| self.brought_back(run, story)));
        let read = Some(Box::new(ReadToReset { reading, story }));
        owed.pay(Said::Here(run, LocalMessage::ReadToReset { load, read }));
    }

    /// A run that was read, with its code if that is at hand.
    fn brought_back(&self, run: RunId, story: Story) -> Result<Story, RunError> {
        let story = self.shared.with_trial(run, story);
        let beginning = story
            .started()
            .map(|started| Beginning::of(started, story.version));
        let code = beginning.and_then(|beginning| self.shared.workflows.code_of(beginning));
        let last = story.events.last().cloned();
        let has_ended = last.as_ref().is_some_and(|(event, _)| event.is_last());
        if let Some(code) = code.filter(|_| story.tried.is_none() && !has_ended) {
            let (head, version) = (story.head, story.version);
            let instance = Box::new(self.shared.replay(Some(code), run, story)?);
            let is_fit = false;
            return Ok(Story {
                kept: None,
                events: last.into_iter().collect(),
                head,
                version,
                tried: Some(TriedRun { instance, is_fit }),
            });
        }
        Ok(story)
    }

    /// What a run is reset with.
    pub(super) fn reading(
        &self,
        run: RunId,
        reads: ResetReads,
        has_ended: bool,
    ) -> Result<ResetReading, RunError> {
        let page = self.shared.journal.history_page(run, Sequence::ZERO, 0);
        let page = page.map_err(of_finished)?;
        let (_, began) = beginning_of(&page)?;
        let parent = began.parent().filter(|_| has_ended);
        let code = self
            .shared
            .workflows
            .code_of(Beginning::of(&began, began.version));
        let is_entity = code.is_some_and(millrun_workflow::Implementation::is_entity);
        let events = if let Some(parent) = parent {
            Err(ResetRefused::EndedChild { parent: parent.run }.into())
        } else if is_entity || is_reserved(&began.workflow) {
            let workflow = began.workflow.to_string();
            Err(ResetRefused::NoWorkflow { workflow }.into())
        } else {
            check_point(reads.to, &page, has_ended).and_then(|()| self.kept_events(run, reads))
        };
        Ok(ResetReading { began, events })
    }

    /// The events up to the last one that is kept, those that were decided with it, and those that are told again.
    fn kept_events(&self, run: RunId, reads: ResetReads) -> Result<Vec<(Event, Timestamp)>, RunError> {
        let ResetReads { to, later } = reads;
        let bytes_max = self.shared.config.journal.turn_bytes_max;
        let page_bytes_max = self.shared.config.history_page_bytes_max;
        let (mut events, mut bytes, mut after) = (Vec::new(), 0, Sequence::ZERO);
        let mut is_among_decisions = true;
        loop {
            let page = self.shared.journal.history_page(run, after, page_bytes_max);
            let page = page.map_err(of_finished)?;
            // It was trimmed perhaps between two pages.
            check_trimmed(to, &page)?;
            let id = page.id.as_ref().map_or("", |id| id.as_str());
            for record in &page.records {
                after = record.sequence;
                let event = decode(record, id)?;
                let is_before = record.sequence <= to;
                is_among_decisions &= is_before || event.is_decision();
                if !is_before && !is_among_decisions {
                    if later == LaterSignals::Drop {
                        return Ok(events);
                    }
                    if !later.keeps(&event) {
                        continue;
                    }
                }
                // Those that are dropped were decided in one turn, and fit one.
                if is_before || !is_among_decisions {
                    bytes += record.body.len() + RECORD_BYTES;
                }
                if bytes > bytes_max {
                    return Err(ResetRefused::TooLarge { bytes, bytes_max }.into());
                }
                events.push((event, record.time));
            }
            if page.records.is_empty() || after >= page.head {
                return Ok(events);
            }
        }
    }
}

/// Whether a history has the event to which a run is to be reset, as far as its first page tells.
fn check_point(to: Sequence, page: &HistoryPage, has_ended: bool) -> Result<(), RunError> {
    check_trimmed(to, page)?;
    let head = page.head;
    if to == Sequence::ZERO || to > head {
        return Err(ResetRefused::NoEvent { to, head }.into());
    }
    if has_ended && to == head {
        return Err(ResetRefused::End { to }.into());
    }
    Ok(())
}

fn check_trimmed(to: Sequence, page: &HistoryPage) -> Result<(), RunError> {
    match &page.trimmed {
        Some(trimmed) => {
            let first = trimmed.before;
            Err(ResetRefused::Trimmed { to, first }.into())
        }
        None => Ok(()),
    }
}
