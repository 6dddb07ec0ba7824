//! Searches among the finished runs, for observers.
//!
//! ```text
//!   journal: the latest closed, by times and by how they ended ──► first records ──► workflow, id ──► page
//! ```
//!
//! A run's outcome and the time of its end are known without its records; its id and its workflow stand in the first record.
//! So a search by these reads many records, and stops after some of them: the next page continues.

use std::collections::BTreeSet;

use millrun_core::{InstanceId, RunId, Sequence};
use millrun_persistence::{
    FinishedHead, FinishedRun, FinishedSearch, HistoryPage, ReadError, RecordKinds, ToRead, WasRead,
};
use millrun_workflow::{Event, OutcomeKind, Started, wire};

use super::{Reader, decode, kept_of, of_finished};
use crate::RunError;
use crate::builtin::is_own_id;
use crate::code::workflows::is_reserved;
use crate::looking::find::{RunSearch, RunStatus, RunSummary};

/// About how many first records are read for one page at most.
const READ_LEN_MAX: usize = 2_048;

/// How many first records are read together, and how many bytes of them; a larger record is read alone.
const TOGETHER_LEN: usize = 256;
const TOGETHER_BYTES_MAX: usize = 1 << 20;

/// How often the journal is asked for one page at most. Each time it examines a bounded number of runs.
const SEARCHES_LEN_MAX: usize = 16;

/// What a search has found, and where it continues.
#[derive(Debug, Default)]
pub(crate) struct FoundFinished {
    pub(crate) runs: Vec<RunSummary>,
    pub(crate) next: Option<RunId>,
    pub(crate) unreadable: u64,
}

/// Some of the finished runs, and how far they were looked through.
#[derive(Debug)]
pub(crate) struct ListedFinished {
    pub(crate) runs: Vec<FinishedRun>,
    /// The last run that was examined, if any.
    pub(crate) reached: Option<RunId>,
    pub(crate) is_last: bool,
}

impl Reader {
    /// Finished runs that match a search and ended before the given one, the latest ended first.
    pub(super) fn find(
        &self,
        filter: &RunSearch,
        before: Option<RunId>,
        len_max: usize,
    ) -> Result<FoundFinished, RunError> {
        let mut search = FinishedSearch::new();
        search.before = before;
        search.kinds = kinds_of(filter);
        (search.started, search.closed) = (filter.started_millis(), filter.ended);
        let picks = filter.workflow.is_some() || !filter.id_prefix.is_empty();
        let (mut found, mut read) = (FoundFinished::default(), 0);
        for _ in 0..SEARCHES_LEN_MAX {
            let wanted = len_max - found.runs.len();
            let wanted = if picks {
                TOGETHER_LEN
            } else {
                wanted.min(TOGETHER_LEN)
            };
            let page = self.shared.journal.find_finished(&search, wanted)?;
            let runs: Vec<_> = page.runs.iter().map(|head| head.run).collect();
            let began = self.beginnings(&runs);
            for (at, (head, began)) in page.runs.iter().zip(began).enumerate() {
                match began.and_then(|(id, started)| found_run(head, id, &started)) {
                    Ok(run) if is_found(filter, &run) => found.runs.push(run),
                    Ok(_) | Err(RunError::NotFound | RunError::Expired) => {}
                    Err(RunError::Read(error @ ReadError::Failed(_))) => return Err(error.into()),
                    Err(_) => found.unreadable += 1,
                }
                if found.runs.len() == len_max {
                    // Damage behind the last run belongs to the page that begins there.
                    found.unreadable += page.unreadable_among(at + 1);
                    found.next = match at + 1 == page.runs.len() {
                        true => page.next,
                        false => Some(head.run),
                    };
                    return Ok(found);
                }
            }
            found.unreadable += page.unreadable_among(page.runs.len());
            read += page.runs.len();
            found.next = page.next;
            if page.next.is_none() || read >= READ_LEN_MAX {
                break;
            }
            search.before = page.next;
        }
        Ok(found)
    }

    /// Finished runs behind the given one, the earliest ended first. Runs of built-in workflows are left out. Only the first
    /// record tells them apart: an id may be a user's.
    pub(super) fn list_finished(
        &self,
        after: Option<RunId>,
        len_max: usize,
    ) -> Result<ListedFinished, RunError> {
        let mut runs = self.shared.journal.list_finished(after, len_max)?;
        let listed = ListedFinished {
            reached: runs.last().map(|last| last.run),
            is_last: runs.len() < len_max,
            runs: Vec::new(),
        };
        let own = runs.iter().filter(|finished| is_own_id(finished.id.as_str()));
        let maybe_own: Vec<_> = own.map(|finished| finished.run).collect();
        let mut own = BTreeSet::new();
        for (run, began) in maybe_own.iter().zip(self.beginnings(&maybe_own)) {
            match began {
                Ok((_, started)) if !is_reserved(&started.workflow) => {}
                Ok(_) | Err(RunError::NotFound | RunError::Expired) => drop(own.insert(*run)),
                Err(RunError::Read(error @ ReadError::Failed(_))) => return Err(error.into()),
                // Listed all the same, as are runs whose records nobody has read.
                Err(_) => {}
            }
        }
        runs.retain(|finished| !own.contains(&finished.run));
        Ok(ListedFinished { runs, ..listed })
    }

    /// The beginnings of these runs, each with the id of its instance.
    fn beginnings(&self, runs: &[RunId]) -> Vec<Result<(InstanceId, Box<Started>), RunError>> {
        let page_of = |run: &RunId| ToRead::Page {
            run: *run,
            after: Sequence::ZERO,
            bytes_max: 0,
        };
        let wanted: Vec<_> = runs.iter().map(page_of).collect();
        let mut began: Vec<_> = runs.iter().map(|_| None).collect();
        let journal = &self.shared.journal;
        journal.read_together(&wanted, TOGETHER_BYTES_MAX, &mut |at, was_read| {
            began[at] = match was_read {
                Ok(WasRead::Page(page)) => Some(beginning_of(&page)),
                Ok(_) => None,
                Err(error) => Some(Err(of_finished(error))),
            };
        });
        let alone = |run: &RunId| {
            let page = journal.history_page(*run, Sequence::ZERO, 0);
            beginning_of(&page.map_err(of_finished)?)
        };
        let all = began.into_iter().zip(runs);
        all.map(|(began, run)| began.unwrap_or_else(|| alone(run)))
            .collect()
    }
}

/// The kinds of last events that match a search.
fn kinds_of(filter: &RunSearch) -> RecordKinds {
    let outcomes = OutcomeKind::ALL.into_iter();
    let wanted = outcomes.filter(|outcome| filter.has(RunStatus::from(*outcome)));
    wanted.map(wire::kind_of_outcome).collect()
}

/// The beginning of a run and the id of its instance, from a page that starts with the first record that is left.
pub(super) fn beginning_of(page: &HistoryPage) -> Result<(InstanceId, Box<Started>), RunError> {
    let id = page.id.clone().ok_or(RunError::NotFound)?;
    if let Some(trimmed) = &page.trimmed {
        let kept = kept_of(trimmed)?;
        let started = kept.ledger().started().ok_or(RunError::NotFound)?;
        return Ok((id, Box::new(started.clone())));
    }
    let first = page.records.first().ok_or(RunError::NotFound)?;
    match decode(first, id.as_str())? {
        Event::Started(started) => Ok((id, Box::new(started))),
        other => Err(RunError::History(format!("it begins with {}", other.label()))),
    }
}

fn found_run(head: &FinishedHead, id: InstanceId, started: &Started) -> Result<RunSummary, RunError> {
    let outcome = wire::outcome_of_kind(head.kind);
    let outcome = outcome.ok_or_else(|| RunError::History(format!("it ends with an event {}", head.kind)))?;
    Ok(RunSummary {
        id,
        run: head.run,
        workflow: started.workflow.to_string(),
        version: None,
        status: outcome.into(),
        started_at: head.run.started(),
        ended_at: Some(head.closed_at),
    })
}

/// Whether a run matches a search, as far as its first record tells.
fn is_found(filter: &RunSearch, run: &RunSummary) -> bool {
    let is_of_workflow = filter
        .workflow
        .as_ref()
        .is_none_or(|workflow| run.workflow == *workflow);
    is_of_workflow
        && is_reserved(&run.workflow) == filter.is_of_own
        && run.id.as_str().starts_with(filter.id_prefix.as_str())
}
