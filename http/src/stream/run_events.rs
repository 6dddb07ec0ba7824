//! The events of a run, as they become durable.
//!
//! An event's number is its id, so that a client resumes behind the last event that it has seen, also at another router over
//! the same store.

use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use millrun::history::{HistoryPage, Sequence};
use millrun::{RunError, RunId, Runtime};

use super::{FRAMES_BYTES, Frames, Source, respond};
use crate::Redaction;
use crate::problem::Problem;
use crate::query::StreamQuery;
use crate::router::Served;
use crate::view::{object, recorded};

/// How many events are read at once. Those that do not fit the frames are dropped and read again, so that a client that reads
/// nothing holds no more than these.
const PAGE: usize = 256;

/// The stream of a run: its events, and the event `end` when no more can follow.
pub(crate) async fn run_events(served: &Served, run: RunId, query: StreamQuery) -> Result<Response, Problem> {
    let (runtime, place) = (&served.runtime, served.streams.take()?);
    let after = Sequence::new(query.after_number()?);
    // An error is reported as for any request, before the answer begins.
    let page = runtime.history(run, after, 1).await?;
    if query.is_resumed && page.events.is_empty() && has_ended_at(runtime, run, after).await? {
        // This status tells a browser not to reconnect.
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let source = RunEvents {
        runtime: runtime.clone(),
        run,
        after,
        left: query.limit,
        has_more: true,
        redaction: served.redaction.clone(),
    };
    Ok(respond(runtime.host().clone(), place, source))
}

/// Whether this is the number of the run's last event.
async fn has_ended_at(runtime: &Runtime, run: RunId, at: Sequence) -> Result<bool, Problem> {
    let before = Sequence::new(at.get().saturating_sub(1));
    let page = runtime.history(run, before, 1).await?;
    Ok(page
        .events
        .first()
        .is_some_and(|last| last.sequence == at && last.event.is_last()))
}

/// The state of a run's stream.
struct RunEvents {
    runtime: Runtime,
    run: RunId,
    /// The last event that was sent.
    after: Sequence,
    /// The number of events that the client still wants.
    left: u64,
    /// Whether there may be further events: these are read before new ones are waited for.
    has_more: bool,
    redaction: Redaction,
}

impl Source for RunEvents {
    async fn next(mut self) -> (Frames, Option<Self>) {
        let mut frames = Frames::default();
        let page = match self.page().await {
            Ok(page) => page,
            Err(error) => {
                frames.problem(error.into());
                return (frames, None);
            }
        };
        if let Some(first) = page.trimmed_before {
            let lost = first.get().saturating_sub(self.after.get() + 1);
            frames.gap(lost.into());
        }
        // An empty page means that the run has ended.
        let mut has_ended = page.events.is_empty();
        self.has_more = page.next().is_some();
        for event in &page.events {
            if frames.len() >= FRAMES_BYTES {
                self.has_more = true;
                return (frames, Some(self));
            }
            frames.message(&event.sequence, &recorded(event).to_text(&self.redaction));
            self.after = event.sequence;
            has_ended = event.event.is_last();
            self.left -= 1;
            if self.left == 0 && !has_ended {
                return (frames, None);
            }
        }
        if has_ended {
            frames.event("end", &object([]));
        }
        (frames, (!has_ended).then_some(self))
    }
}

impl RunEvents {
    /// The events behind the last one; waits if there are none yet.
    async fn page(&self) -> Result<HistoryPage, RunError> {
        if self.has_more {
            let page = self.runtime.history(self.run, self.after, PAGE).await?;
            if !page.events.is_empty() {
                return Ok(page);
            }
        }
        self.runtime.until_history(self.run, self.after, PAGE).await
    }
}
