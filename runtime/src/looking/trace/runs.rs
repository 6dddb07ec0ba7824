//! The page of a run, or of one of its operations: the history is read from where the page begins, and folded.

use millrun_core::{RunId, Sequence};
use millrun_workflow::Event;

use super::bounds::TraceBounds;
use super::cursor::{CursorPlace, LinkKey, TraceCursor};
use super::error::TraceError;
use super::fold::{FoldedLink, LinkFold};
use super::found::TraceBeginning;
use super::links::{TraceLink, TraceNode, TraceOutcome, TracePage, TraceRelation};
use super::trimmed::TrimmedPart;
use crate::inner::Inner;
use crate::looking::find::RunStatus;
use crate::{RunError, Runtime};

/// How many events are read at a time.
const STRETCH_LEN: usize = 512;
/// How many events of one run are searched for a record.
const LOOKED_THROUGH_MAX: usize = 100_000;

/// What was read of a history.
struct ReadLinks {
    fold: LinkFold,
    /// The last event that was read.
    reached: Sequence,
    is_at_head: bool,
    trimmed_before: Option<Sequence>,
    looked_at: u64,
    /// The last command of an entity, and the event before it, which may be the signal or timer that caused it.
    last_command: Option<Sequence>,
}

impl Runtime {
    /// A page of a run's links; or of those before one operation, and of the operation's own. The effects of the run's
    /// trimmed part come last.
    pub(super) async fn trace_run(
        &self,
        run: RunId,
        operation: Option<u32>,
        after: Option<TraceCursor>,
        bounds: &TraceBounds,
    ) -> Result<TracePage, TraceError> {
        let inner = self.inner();
        let began = inner.trace_beginning(run).await?;
        let trimmed = TrimmedPart::of(&began, operation);
        let mut page = match after.map(|after| after.0) {
            place @ (None | Some(CursorPlace::Event(_))) => {
                let after = match place {
                    Some(CursorPlace::Event(key)) => Some(key),
                    _ => None,
                };
                let read = inner.read_links(&began, operation, after, bounds).await?;
                let mut page = page_of(&began, operation, after, bounds, read);
                for link in page.causes.iter_mut().chain(&mut page.effects) {
                    inner.resolve(run, link, bounds, &mut page.looked_at).await?;
                }
                if page.next.is_some() {
                    return Ok(page);
                }
                page.next = Some(TraceCursor(CursorPlace::Records(None)));
                page
            }
            Some(place) => {
                if trimmed.is_none() {
                    return Err(TraceError::OtherCursor);
                }
                let mut page = TracePage::bare(&began, operation);
                page.next = Some(TraceCursor(place));
                page
            }
        };
        match (trimmed, page.next) {
            (None, _) => page.next = None,
            (Some(trimmed), Some(TraceCursor(place))) if page.links_len() < bounds.links_len_max => {
                self.look_for_trimmed(&mut page, &trimmed, place, bounds).await?;
            }
            _ => {}
        }
        Ok(page)
    }
}

impl Inner {
    /// How a run began and ended.
    pub(super) async fn trace_beginning(&self, run: RunId) -> Result<Box<TraceBeginning>, RunError> {
        self.view(self.shared.reader.trace_beginning(run)).await
    }

    /// The causes in a run's first [`LOOKED_THROUGH_MAX`] events, and an unknown one if there are more; with the number of
    /// events that were read.
    pub(super) async fn causes_of(
        &self,
        run: RunId,
    ) -> Result<(TraceBeginning, Vec<TraceLink>, u64), TraceError> {
        let began = self.trace_beginning(run).await?;
        let all = TraceBounds {
            links_len_max: usize::MAX,
            events_len_max: LOOKED_THROUGH_MAX,
            ..TraceBounds::default()
        };
        let read = self.read_links(&began, None, None, &all).await?;
        let unread = (!read.is_at_head).then(|| {
            let mut link = TraceLink::of(TraceRelation::Outside);
            link.outcome = TraceOutcome::Unknown(format!("not looked for behind event {}", read.reached));
            link
        });
        let links = read.fold.links.into_values();
        let causes = links.filter(|folded| folded.is_cause).map(|folded| folded.link);
        Ok((*began, causes.chain(unread).collect(), read.looked_at))
    }

    /// Reads a history from where the page begins, until the page is full and everything that began in it has ended.
    async fn read_links(
        &self,
        began: &TraceBeginning,
        operation: Option<u32>,
        after: Option<LinkKey>,
        bounds: &TraceBounds,
    ) -> Result<ReadLinks, TraceError> {
        let mut read = ReadLinks {
            fold: LinkFold::new(),
            reached: Sequence::ZERO,
            is_at_head: false,
            trimmed_before: began.kept.as_ref().map(|(_, before)| *before),
            looked_at: 0,
            last_command: None,
        };
        let from = after.map_or(Sequence::ZERO, |after| after.sequence);
        let mut kept_at = None;
        if let (Some((kept, _)), Sequence::ZERO) = (&began.kept, from) {
            let ledger = kept.ledger();
            let pending = ledger.pending();
            let pending = pending.map(|(operation, pending)| {
                let since = ledger.pending_since(operation);
                (operation, pending, since.unwrap_or_else(|| ledger.started_at()))
            });
            read.fold.begin_kept(&began.started, ledger.started_at(), pending);
            kept_at = Some(kept.sequence());
            read.reached = Sequence::new(kept.sequence().get().saturating_sub(1));
        } else {
            // The event of the cursor may have more links, and is read again.
            let is_whole = after.is_some_and(|after| after == LinkKey::behind(from));
            let again = if is_whole { 0 } else { 1 };
            read.reached = Sequence::new(from.get().saturating_sub(again));
        }
        // The event of the cursor does not count; and for an operation, the command is read together with what it began.
        let mut left = match operation {
            Some(_) => bounds.events_len_max.max(STRETCH_LEN),
            None => bounds.events_len_max.saturating_add(1),
        };
        loop {
            let len_max = left.min(STRETCH_LEN);
            let page = match self
                .view(self.shared.reader.history(began.run, read.reached, len_max))
                .await
            {
                Ok(page) => page,
                Err(RunError::Stopped(cause)) => return Err(cause.into()),
                Err(error) => {
                    read.unreadable(&error.to_string());
                    return Ok(read);
                }
            };
            read.trimmed_before = page.trimmed_before.or(read.trimmed_before);
            left = left.saturating_sub(page.events.len());
            read.looked_at += page.events.len() as u64;
            for recorded in &page.events {
                if recorded.sequence <= read.reached {
                    continue;
                }
                read.reached = recorded.sequence;
                if Some(recorded.sequence) == kept_at {
                    read.fold.taken(&recorded.event, recorded.at);
                    continue;
                }
                read.fold.apply(recorded.sequence, &recorded.event, recorded.at);
                if let (Event::CommandPerformed(_), true) =
                    (&recorded.event, operation_is_ahead(&read, operation))
                {
                    read.last_command = Some(recorded.sequence);
                }
            }
            read.is_at_head = read.reached >= page.head || page.events.is_empty();
            if read.is_at_head || read.is_enough(operation, after, bounds.links_len_max) {
                return Ok(read);
            }
            if left == 0 {
                let why = format!("not looked for behind event {}", read.reached);
                read.fold.leave_open(&why);
                return Ok(read);
            }
        }
    }
}

/// Whether the traced operation has not begun in the events read so far.
fn operation_is_ahead(read: &ReadLinks, operation: Option<u32>) -> bool {
    operation.is_some_and(|operation| read.fold.key_of(operation).is_none())
}

impl ReadLinks {
    /// Notes that the rest of the history cannot be read.
    fn unreadable(&mut self, why: &str) {
        self.fold.leave_open(why);
        let mut link = TraceLink::of(TraceRelation::Outside);
        link.outcome = TraceOutcome::Unknown(format!("the history cannot be read on: {why}"));
        let key = LinkKey::behind(self.reached);
        let is_cause = true;
        self.fold.links.insert(key, FoldedLink { link, is_cause });
        self.is_at_head = true;
    }

    /// Whether the page is full, and everything in it has ended.
    fn is_enough(&self, operation: Option<u32>, after: Option<LinkKey>, len_max: usize) -> bool {
        if let Some(operation) = operation
            && let Some(key) = self.fold.key_of(operation)
        {
            return !self.fold.has_open_until(key);
        }
        let mut behind = self.fold.links.keys().filter(|key| Some(**key) > after);
        // One more link shows that there is a next page.
        let last = behind.nth(len_max - 1).copied();
        let has_more = behind.next().is_some();
        last.is_some_and(|last| has_more && !self.fold.has_open_until(last))
    }
}

/// The requested page, from what was read.
fn page_of(
    began: &TraceBeginning,
    operation: Option<u32>,
    after: Option<LinkKey>,
    bounds: &TraceBounds,
    read: ReadLinks,
) -> TracePage {
    let own_key = operation.and_then(|operation| read.fold.key_of(operation));
    let begun = read.fold.begun;
    let mut links: Vec<_> = read.fold.links.into_iter().collect();
    if let Some(operation) = operation {
        // The causes before it; for an entity, the command that began it, with its cause.
        let from = read.last_command.map_or(0, |command| command.get() - 1);
        let is_own = |key: &LinkKey| Some(*key) == own_key;
        let is_trimmed = own_key.is_none() && read.is_at_head && read.trimmed_before.is_some();
        links.retain(|(key, folded)| {
            if is_trimmed {
                // It was before everything that is left. The run's beginning is known, and led to it.
                return folded.is_cause && *key < begun;
            }
            is_own(key)
                || folded.is_cause && own_key.is_none_or(|own| *key < own) && key.sequence.get() >= from
        });
        if own_key.is_none() && !read.is_at_head && read.last_command.is_some() {
            // A later command may be the one.
            links.clear();
        }
        if own_key.is_none() && read.is_at_head && after.is_none() {
            let mut link = TraceLink::of(TraceRelation::Outside);
            link.outcome = TraceOutcome::Unknown(match read.trimmed_before {
                Some(before) => format!("operation {operation} is not there: trimmed before {before}"),
                None => format!("the history has no operation {operation}"),
            });
            let is_cause = false;
            links.push((LinkKey::behind(read.reached), FoldedLink { link, is_cause }));
        }
    }
    links.retain(|(key, _)| Some(*key) > after);
    let is_cut = links.len() > bounds.links_len_max;
    links.truncate(bounds.links_len_max);
    let is_last = !is_cut && (read.is_at_head || own_key.is_some());
    let next = match links.last() {
        _ if is_last => None,
        Some((last, _)) if is_cut => Some(*last),
        // For an entity, the command that begins the operation may be the last that was read.
        _ => Some(
            match read.last_command.map(|command| command.get().saturating_sub(2)) {
                Some(before) if after.is_none_or(|after| after.sequence.get() < before) => {
                    LinkKey::behind(Sequence::new(before))
                }
                Some(_) | None => LinkKey::behind(read.reached),
            },
        ),
    };
    let (mut causes, mut effects) = (Vec::new(), Vec::new());
    for (_, folded) in links {
        match folded.is_cause {
            true => causes.push(folded.link),
            false => effects.push(folded.link),
        }
    }
    TracePage {
        causes,
        effects,
        trimmed_before: read.trimmed_before,
        looked_at: read.looked_at,
        next: next.map(|key| TraceCursor(CursorPlace::Event(key))),
        ..TracePage::bare(began, operation)
    }
}

impl TraceNode {
    pub(super) fn of_run(began: &TraceBeginning) -> Self {
        Self::Run {
            id: began.id.clone(),
            workflow: began.started.workflow.to_string(),
            started_at: began.run.started(),
            ended: began.ended.map(|(kind, at)| (RunStatus::from(kind), at)),
            trace: began.started.trace().copied(),
        }
    }
}
