//! The stream of changes of runs and parts, as they become durable.

use axum::response::Response;
use millrun::operating::{ChangeFeed, ChangePosition, Lost};
use millrun::{RunError, Runtime};

use super::{Frames, Place, Source, respond};
use crate::Redaction;
use crate::problem::Problem;
use crate::query::{StreamQuery, wrong};
use crate::view::{Json, change};

/// How many changes are passed on at once.
const CHANGES_AT_ONCE: usize = 128;

/// The stream of changes: from now on, or behind the last position that the client has seen.
pub(crate) fn changes(runtime: &Runtime, place: Place, query: &StreamQuery) -> Result<Response, Problem> {
    if let Some(cause) = runtime.stop_cause() {
        return Err(RunError::Stopped(cause).into());
    }
    let behind = query.after.as_deref().map(str::parse::<ChangePosition>);
    let behind = behind
        .transpose()
        .map_err(|error| wrong("after", &error.to_string()))?;
    let source = RunChanges {
        feed: runtime.changes(behind),
        left: query.limit,
    };
    Ok(respond(runtime.host().clone(), place, source))
}

struct RunChanges {
    feed: ChangeFeed,
    /// The number of events that the client still wants.
    left: u64,
}

impl Source for RunChanges {
    async fn next(mut self) -> (Frames, Option<Self>) {
        let mut frames = Frames::default();
        let len_max = usize::try_from(self.left).unwrap_or(usize::MAX);
        match self.feed.next(len_max.min(CHANGES_AT_ONCE)).await {
            Ok(news) => {
                match news.lost {
                    Lost::Nothing => {}
                    Lost::Counted(lost) => frames.gap(lost.into()),
                    _ => frames.gap(Json::Null),
                }
                for one in &news.changes {
                    // It contains no payload.
                    frames.message(&one.position, &change(one).to_text(&Redaction::everything()));
                    self.left -= 1;
                }
                let has_more = self.left > 0;
                (frames, has_more.then_some(self))
            }
            Err(cause) => {
                frames.problem(RunError::Stopped(cause).into());
                (frames, None)
            }
        }
    }
}
