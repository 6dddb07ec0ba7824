//! A run as it was behind one of its events: the history up to there is replayed, and nothing comes of it.
//!
//! ```text
//!   page by page up to the event, and what was decided with it ──► replay without effects ──► description, answer
//! ```

use millrun_core::{Epoch, RunId, Sequence, Timestamp};
use millrun_persistence::ReadError;
use millrun_workflow::{
    Event, Fit, Implementation, Instance, KeptBeginning, ParkReason, Payload, ResetRefused,
};

use super::{Reader, decode, kept_of, of_finished};
use crate::code::workflows::Beginning;
use crate::looking::at_event::DescribedAt;
use crate::mail::{Question, Story};
use crate::{QueryError, RunError};

impl Reader {
    /// What there was to say about a run behind an event.
    pub(super) fn describe_at(&self, run: RunId, to: Sequence) -> Result<Box<DescribedAt>, RunError> {
        let (fit, instance) = self.replayed_to(run, to)?;
        let ledger = instance.ledger();
        let is_parked = match ledger.parked() {
            Some((ParkReason::Delayed { .. }, _)) | None => false,
            Some(_) => true,
        };
        let described = self.shared.describe(run, ledger, Epoch::new(0), is_parked);
        let mut description = described.ok_or(RunError::NotFound)?;
        if fit.is_fit() {
            description.is_in_memory = true;
            description.awaited = instance.awaited();
            description.lines = instance.lines();
        }
        Ok(Box::new(DescribedAt { description, fit }))
    }

    /// What the state answers that a run had behind an event.
    pub(super) fn query_at(
        &self,
        run: RunId,
        to: Sequence,
        question: &Question,
    ) -> Result<Payload, QueryError> {
        let (_, instance) = self.replayed_to(run, to)?;
        Ok(instance.query(&question.name, &question.value)?)
    }

    fn replayed_to(&self, run: RunId, to: Sequence) -> Result<(Fit, Instance), RunError> {
        let story = self.story_to(run, to)?;
        let code = self.code_of_story(&story);
        let kept = story.kept.map(|kept| *kept);
        let tried = Fit::with_instance(code, run, kept, story.events, self.shared.config.limits);
        tried.map_err(|error| RunError::History(error.to_string()))
    }

    /// The code of the version that a run had, or else the newest, which perhaps fits too.
    fn code_of_story(&self, story: &Story) -> Option<&Implementation> {
        let started = story.started()?;
        let workflows = &self.shared.workflows;
        let own = workflows.code_of(Beginning::of(started, story.version));
        own.or_else(|| workflows.code_of(&*started.workflow))
    }

    /// The history of a run up to an event, with the decisions that stand in one turn with it.
    fn story_to(&self, run: RunId, to: Sequence) -> Result<Story, RunError> {
        let max = self.shared.config.journal.history_bytes_max;
        let page_bytes_max = self.shared.config.history_page_bytes_max;
        let mut kept: Option<Box<KeptBeginning>> = None;
        let mut events: Vec<(Event, Timestamp)> = Vec::new();
        let (mut bytes, mut after) = (0_u64, Sequence::ZERO);
        loop {
            let page = self.shared.journal.history_page(run, after, page_bytes_max);
            let page = page.map_err(of_finished)?;
            let head = page.head;
            if to == Sequence::ZERO || to > head {
                return Err(ResetRefused::NoEvent { to, head }.into());
            }
            if let Some(trimmed) = &page.trimmed {
                // It was trimmed, perhaps between two pages.
                let beginning = kept_of(trimmed)?;
                let first = beginning.sequence();
                if to < first {
                    return Err(ResetRefused::Trimmed { to, first }.into());
                }
                bytes = trimmed.kept.len() as u64;
                events.clear();
                after = first;
                kept = Some(beginning);
            }
            let id = page.id.as_ref().map_or("", |id| id.as_str());
            let behind = after;
            for record in page.records.iter().filter(|record| record.sequence > behind) {
                let event = decode(record, id)?;
                if record.sequence > to {
                    let goes_with = match events.last() {
                        Some((last, _)) => event.goes_with(last),
                        // What is kept ends with a decision.
                        None => event.is_decision(),
                    };
                    if !goes_with {
                        return Ok(Story::new(kept, events, after));
                    }
                }
                after = record.sequence;
                bytes += record.body.len() as u64;
                if bytes > max {
                    return Err(RunError::Read(ReadError::TooLong { run, bytes, max }));
                }
                events.push((event, record.time));
            }
            if page.records.is_empty() || after >= head {
                return Ok(Story::new(kept, events, after));
            }
        }
    }
}
