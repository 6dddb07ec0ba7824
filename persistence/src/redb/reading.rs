//! Reads of the journal in a file: single ones, and several that share some work.
//!
//! ```text
//!   what is wanted ──► what the state knows of it ──► a view: a moment of the store that fits ──► log, closed
//!                          └ under the lock, once         └ tables and rows are opened once for all that is read in it
//! ```
//!
//! Invariants: a read sees what is acknowledged, and nothing else; the lock is never held during access to the store; an id
//! that memory knows to be new needs no access.

use millrun_core::{InstanceId, RunId, Sequence};

use super::RedbJournal;
use super::commit::unwritten::UnwrittenRows;
use super::database::moment::StoreMoment;
use super::finished::finished_runs;
use super::finished::finished_runs::Lookup;
use super::opening::recover;
use super::records::log;
use super::state::JournalState;
use crate::error::{JournalFailure, ReadError};
use crate::finished::{Finished, IdHash, Place};
use crate::journal::{Lane, Progress, Reads, RecoveryReport};
use crate::record::{FinishedRun, History, HistoryPage, Snapshot};
use crate::search::{FinishedFound, FinishedSearch};
use crate::together::{EachRead, ToRead, WasRead};
use crate::{scan, wire};

/// A moment of the store, with what the state held at that moment.
pub(super) struct View<'a> {
    journal: &'a RedbJournal,
    moment: StoreMoment,
    lookup: Lookup,
    /// Where the readable part of the log ended.
    end: u64,
}

/// What the state knows of a run.
struct InMemory {
    /// Its place, if it is live or waits to be settled.
    place: Result<Option<Place>, ReadError>,
    /// Its turns that are acknowledged and not written.
    unwritten: UnwrittenRows,
    is_expired: bool,
    is_live: bool,
}

impl InMemory {
    fn of(state: &JournalState, run: RunId) -> Self {
        let place = match state.damaged.runs.get(&run) {
            Some(quarantined) => Err(quarantined.error.clone()),
            None => Ok(state.readable_place(run)),
        };
        let unwritten = match &place {
            Ok(Some(place)) => state.unwritten_rows(place),
            Ok(None) | Err(_) => Vec::new(),
        };
        Self {
            place,
            unwritten,
            is_expired: state.finished.is_expired(run),
            is_live: state.is_live(run),
        }
    }
}

/// What the state knows of the finished runs of an instance.
struct OfInstance {
    waiting: Option<Finished<Place>>,
    /// Its turns that are acknowledged and not written.
    unwritten: UnwrittenRows,
    /// A run that was dropped recently.
    expired: Option<RunId>,
    /// The latest run with a damaged record.
    damaged: Option<(RunId, ReadError)>,
}

impl OfInstance {
    fn of(state: &JournalState, id: &InstanceId) -> Self {
        let hash = IdHash::of(id.as_str());
        let damaged = state.damaged.of_instance(hash);
        let waiting = state.unwritten_of(hash);
        let waiting = waiting.or_else(|| state.finished.waiting.latest(hash)).copied();
        Self {
            unwritten: waiting.map_or_else(Vec::new, |finished| state.unwritten_rows(&finished.place)),
            waiting,
            expired: state.finished.expired(hash),
            damaged: damaged.map(|(run, error)| (run, error.clone())),
        }
    }
}

/// What the state knows of a read's target.
enum InState {
    Run(InMemory),
    Instance(OfInstance),
}

/// What the state knows of a target, with turns that are not in the store yet.
pub(super) trait HasUnwritten {
    /// Takes the turns that are acknowledged and not written.
    fn take_unwritten(&mut self) -> UnwrittenRows;
}

impl HasUnwritten for InMemory {
    fn take_unwritten(&mut self) -> UnwrittenRows {
        std::mem::take(&mut self.unwritten)
    }
}

impl HasUnwritten for OfInstance {
    fn take_unwritten(&mut self) -> UnwrittenRows {
        std::mem::take(&mut self.unwritten)
    }
}

impl HasUnwritten for Vec<InState> {
    fn take_unwritten(&mut self) -> UnwrittenRows {
        let each = self.iter_mut().map(|known| match known {
            InState::Run(known) => known.take_unwritten(),
            InState::Instance(known) => known.take_unwritten(),
        });
        each.flatten().collect()
    }
}

impl InState {
    fn of(state: &JournalState, wanted: &ToRead) -> Self {
        match wanted {
            ToRead::History(run) | ToRead::Page { run, .. } | ToRead::Snapshot(run) => {
                Self::Run(InMemory::of(state, *run))
            }
            ToRead::Finished(id) => Self::Instance(OfInstance::of(state, id)),
        }
    }
}

impl View<'_> {
    /// Where a run stands.
    fn place(&self, run: RunId, known: InMemory) -> Result<Place, ReadError> {
        if let Some(place) = known.place? {
            return Ok(place);
        }
        match self.lookup.run(&self.moment, run)? {
            Some(found) if !found.is_expired => Ok(found.finished.place),
            Some(_) => Err(ReadError::Expired { run }),
            None if known.is_expired => Err(ReadError::Expired { run }),
            None => Err(ReadError::UnknownRun { run }),
        }
    }

    fn history(&self, run: RunId, place: Place) -> Result<History, ReadError> {
        let place = self.not_too_long(run, place)?;
        scan::history(run, &log::turns(&self.moment, run, &place, self.end)?)
    }

    /// The place, if a history of its size may be read at once.
    fn not_too_long(&self, run: RunId, place: Place) -> Result<Place, ReadError> {
        let (bytes, max) = (place.bytes, self.journal.shared.config.journal.history_bytes_max);
        match bytes > max {
            true => Err(ReadError::TooLong { run, bytes, max }),
            false => Ok(place),
        }
    }

    /// The page of a run's history behind the record `after`.
    pub(super) fn page(
        &self,
        run: RunId,
        place: &Place,
        after: Sequence,
        bytes_max: usize,
    ) -> Result<HistoryPage, ReadError> {
        let (pieces, head) = log::page(&self.moment, run, place, self.end, (after.get(), bytes_max))?;
        scan::page(run, &pieces, after, bytes_max, Sequence::new(head))
    }

    fn snapshot(&self, run: RunId, known: &InMemory) -> Result<Option<Snapshot>, ReadError> {
        let row = if known.is_live {
            self.moment.snapshot(run)?
        } else {
            None
        };
        Ok(row.and_then(|row| wire::snapshot::read(run, &row)))
    }

    fn finished(&self, id: &InstanceId, known: OfInstance) -> Result<Option<FinishedRun>, ReadError> {
        let found = match known.waiting {
            Some(finished) => Some((finished, false)),
            None => self
                .lookup
                .id(&self.moment, IdHash::of(id.as_str()))?
                .map(|found| (found.finished, found.is_expired)),
        };
        // A run that began after the damaged one took the id when that was free.
        let latest = found.filter(|(_, is_expired)| !is_expired);
        if let Some((run, error)) = known.damaged
            && latest.is_none_or(|(finished, _)| finished.run <= run)
        {
            return Err(error);
        }
        match (found, known.expired) {
            (Some((finished, false)), _) => {
                let state = self.journal.shared.lock();
                if let Some(quarantined) = state.damaged.runs.get(&finished.run) {
                    return Err(quarantined.error.clone());
                }
                drop(state);
                let described = describe(&self.moment, &finished)?;
                Ok((described.id == *id).then_some(described))
            }
            // A run that was dropped before it was settled was dropped last, if it is still known by its id.
            (_, Some(run)) | (Some((Finished { run, .. }, true)), None) => Err(ReadError::Expired { run }),
            (None, None) => self.journal.no_run_of(id),
        }
    }

    /// One of several reads, of at most `left` bytes; `None` if it has more.
    fn read(&self, wanted: &ToRead, known: InState, left: usize) -> Option<Result<WasRead, ReadError>> {
        Some(match (wanted, known) {
            (ToRead::Finished(id), InState::Instance(known)) => {
                self.finished(id, known).map(WasRead::Finished)
            }
            (ToRead::Page { .. } | ToRead::Snapshot(_), _) if left == 0 => return None,
            (
                ToRead::Page {
                    run,
                    after,
                    bytes_max,
                },
                InState::Run(known),
            ) => {
                let page = self
                    .place(*run, known)
                    .and_then(|place| self.page(*run, &place, *after, left.min(*bytes_max)));
                match page {
                    Ok(page) if left < *bytes_max && !page.is_end() => return None,
                    page => page.map(WasRead::Page),
                }
            }
            (ToRead::Snapshot(run), InState::Run(known)) => {
                self.snapshot(*run, &known).map(WasRead::Snapshot)
            }
            // Histories are read together.
            (ToRead::Finished(_) | ToRead::History(_), InState::Run(_)) | (_, InState::Instance(_)) => {
                return None;
            }
        })
    }

    /// Returns several histories, of at most `left` bytes together; those with more are skipped.
    fn tell_histories(&self, wanted: Vec<(usize, RunId, InMemory)>, left: &mut usize, each: EachRead<'_>) {
        let mut left_at_most = *left as u64;
        let (mut indices, mut places) = (Vec::new(), Vec::new());
        for (index, run, known) in wanted {
            let place = self.place(run, known);
            if let Ok(place) = &place {
                if place.bytes > left_at_most {
                    continue;
                }
                left_at_most -= place.bytes;
            }
            indices.push(index);
            places.push((run, place.and_then(|place| self.not_too_long(run, place))));
        }
        let turns = log::turns_together(&self.moment, &places, self.end);
        for (index, ((run, _), turns)) in indices.into_iter().zip(places.iter().zip(turns)) {
            let history = turns.and_then(|turns| scan::history(*run, &turns));
            let history = history.map(WasRead::History);
            *left = left.saturating_sub(history.as_ref().map_or(0, WasRead::bytes));
            each(index, history);
        }
    }
}

impl RedbJournal {
    /// A value from the state, and a view of the store that fits it.
    fn view<T: HasUnwritten>(
        &self,
        read: impl FnOnce(&JournalState) -> T,
    ) -> Result<(T, View<'_>), JournalFailure> {
        let ((mut known, lookup, end), mut moment) =
            self.moment(|state| (read(state), state.finished.lookup(), state.readable_end()))?;
        moment.add_unwritten(known.take_unwritten());
        let view = View {
            journal: self,
            moment,
            lookup,
            end,
        };
        Ok((known, view))
    }

    /// The place of a run, and the view in which it is valid.
    pub(super) fn place(&self, run: RunId) -> Result<(Place, View<'_>), ReadError> {
        let (known, view) = self.view(|state| InMemory::of(state, run))?;
        Ok((view.place(run, known)?, view))
    }

    /// The answer about the finished runs of this instance, if it needs no access to the store. Nearly all ids that are asked
    /// for are new: they cost none.
    fn finished_at_hand(&self, id: &InstanceId) -> Option<Result<Option<FinishedRun>, ReadError>> {
        if let Err(failure) = self.reader() {
            return Some(Err(failure.into()));
        }
        let (known, lookup) = {
            let state = self.shared.lock();
            (OfInstance::of(&state, id), state.finished.lookup())
        };
        let is_new = known.waiting.is_none()
            && known.expired.is_none()
            && known.damaged.is_none()
            && !lookup.may_contain(IdHash::of(id.as_str()));
        is_new.then(|| self.no_run_of(id))
    }

    /// The instance is not known, so it has no finished run, unless it may be one that is lost.
    fn no_run_of(&self, id: &InstanceId) -> Result<Option<FinishedRun>, ReadError> {
        match self.shared.lock().damaged.may_be_lost(id) {
            Some(error) => Err(error.clone()),
            None => Ok(None),
        }
    }
}

impl Reads for RedbJournal {
    fn history(&self, run: RunId) -> Result<History, ReadError> {
        let (place, view) = self.place(run)?;
        view.history(run, place)
    }

    fn history_page(&self, run: RunId, after: Sequence, bytes_max: usize) -> Result<HistoryPage, ReadError> {
        let (place, view) = self.place(run)?;
        view.page(run, &place, after, bytes_max)
    }

    fn read_together(&self, wanted: &[ToRead], bytes_max: usize, each: EachRead<'_>) {
        let mut begin = 0;
        while let Some(ToRead::Finished(id)) = wanted.get(begin)
            && let Some(read) = self.finished_at_hand(id)
        {
            each(begin, read.map(WasRead::Finished));
            begin += 1;
        }
        let wanted = &wanted[begin..];
        if wanted.is_empty() {
            return;
        }
        let view = self.view(|state| {
            wanted
                .iter()
                .map(|wanted| InState::of(state, wanted))
                .collect::<Vec<_>>()
        });
        let (known, mut view) = match view {
            Ok(view) => view,
            Err(failure) => {
                let failed = (begin..).zip(wanted);
                return failed.for_each(|(index, _)| each(index, Err(failure.clone().into())));
            }
        };
        view.moment.share_rows();
        let mut left = bytes_max;
        let mut reads = (begin..).zip(wanted.iter().zip(known)).peekable();
        while let Some((index, (wanted, known))) = reads.next() {
            match (wanted, known) {
                (ToRead::History(run), InState::Run(known)) => {
                    let mut histories = vec![(index, *run, known)];
                    while let Some(next) =
                        reads.next_if(|(_, (wanted, _))| matches!(wanted, ToRead::History(_)))
                    {
                        if let (index, (ToRead::History(run), InState::Run(known))) = next {
                            histories.push((index, *run, known));
                        }
                    }
                    view.tell_histories(histories, &mut left, each);
                }
                (wanted, known) => {
                    if let Some(read) = view.read(wanted, known, left) {
                        left = left.saturating_sub(read.as_ref().map_or(0, WasRead::bytes));
                        each(index, read);
                    }
                }
            }
        }
    }

    fn snapshot(&self, run: RunId) -> Result<Option<Snapshot>, ReadError> {
        let (known, view) = self.view(|state| InMemory::of(state, run))?;
        view.snapshot(run, &known)
    }

    fn finished(&self, id: &InstanceId) -> Result<Option<FinishedRun>, ReadError> {
        if let Some(read) = self.finished_at_hand(id) {
            return read;
        }
        let (known, view) = self.view(|state| OfInstance::of(state, id))?;
        view.finished(id, known)
    }

    fn list_finished(&self, after: Option<RunId>, limit: usize) -> Result<Vec<FinishedRun>, ReadError> {
        let ((lookup, waiting, settled_end, first, damaged), moment) = self.moment(|state| {
            let closed = &state.finished;
            let from = after.and_then(|run| closed.waiting.number(run));
            let waiting: Vec<_> = closed
                .waiting
                .list(from.map_or(0, |number| number + 1))
                .take(limit)
                .copied()
                .collect();
            let lookup = from.is_none().then(|| closed.lookup());
            let damaged: Vec<_> = state.damaged.runs.keys().copied().collect();
            (lookup, waiting, closed.settled.end, closed.first(), damaged)
        })?;
        let mut listed = Vec::new();
        if let Some(lookup) = lookup {
            let found = after.map(|run| lookup.run(&moment, run)).transpose()?.flatten();
            let from = found.map_or(first, |found| found.number + 1).max(first);
            finished_runs::each(&moment, (from, settled_end), &mut |_, finished| {
                if listed.len() < limit && !damaged.contains(&finished.run) {
                    listed.push(finished);
                }
                listed.len() < limit
            })?;
        }
        let missing = limit - listed.len();
        listed.extend(waiting.into_iter().take(missing));
        listed
            .iter()
            .map(|finished| describe(&moment, finished))
            .collect()
    }

    fn find_finished(&self, search: &FinishedSearch, len_max: usize) -> Result<FinishedFound, ReadError> {
        self.search_finished(search, len_max)
    }

    fn recover(
        &self,
        lanes: &mut [Lane<'_>],
        progress: &mut dyn FnMut(Progress),
    ) -> Result<RecoveryReport, ReadError> {
        let ((live, finished_runs, span, damaged), moment) = self.moment_from(|state, low| {
            let damaged = state.damaged.list();
            let finished_runs = state.finished.len();
            let live = state.wanted(state.live());
            (live, finished_runs, state.live_span(low), damaged)
        })?;
        let host = &*self.shared.host;
        let records = recover::recover(&moment, &live, span, lanes, host, progress)?;
        Ok(RecoveryReport {
            live_runs: live.runs.len() as u64,
            finished_runs,
            records,
            bytes: span.end - span.from,
            elapsed: host.elapsed().saturating_sub(self.opened.at),
            is_repaired: self.opened.is_repaired,
            is_index_rebuilt: self.opened.is_index_rebuilt,
            damaged,
        })
    }
}

fn describe(store: &StoreMoment, finished: &Finished<Place>) -> Result<FinishedRun, ReadError> {
    Ok(FinishedRun {
        run: finished.run,
        id: log::instance_id(store, finished.run, &finished.place)?,
        closed_at: finished.closed_at,
        head: finished.head,
    })
}
