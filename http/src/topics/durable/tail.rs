//! A client that tails a durable topic: first the existing records from the place that it names, then new ones.
//!
//! A message's id is the record's token, so that a client can resume at any time, also after a restart of the program. A gap
//! has the token of the last missing record, so that it is reported once.

use axum::http::HeaderMap;
use axum::response::Response;
use millrun::RunError;
use millrun::topics::ReadFrom;

use super::carried::{CarriesRecords, ReadsRecords};
use super::from::RecordsQuery;
use super::read::{ToldRead, told};
use crate::Redaction;
use crate::problem::Problem;
use crate::router::Served;
use crate::stream::{FRAMES_BYTES, Frames, Source, respond};

/// The stream of a durable topic: from the query's place on, or else from now on.
pub(crate) async fn record_tail(
    served: &Served,
    topic: &dyn CarriesRecords,
    query: &str,
    headers: &HeaderMap,
) -> Result<Response, Problem> {
    let RecordsQuery { from, limit } = RecordsQuery::of_tail(query, headers)?;
    let place = served.streams.take()?;
    if let Some(cause) = served.runtime.stop_cause() {
        return Err(RunError::Stopped(cause).into());
    }
    let source = RecordTail {
        reader: topic.read(from.unwrap_or(ReadFrom::Now)).await?,
        left: limit,
        redaction: served.redaction.clone(),
    };
    Ok(respond(served.runtime.host().clone(), place, source))
}

struct RecordTail {
    reader: Box<dyn ReadsRecords>,
    /// The number of messages that the client still wants.
    left: u64,
    redaction: Redaction,
}

impl Source for RecordTail {
    async fn next(mut self) -> (Frames, Option<Self>) {
        let mut frames = Frames::default();
        let mut behind = self.reader.position();
        let mut read = self.reader.next().await;
        loop {
            match told(behind, read) {
                ToldRead::Record { token, json, .. } => {
                    frames.message(&token, &json.to_text(&self.redaction));
                    self.left -= 1;
                }
                ToldRead::Gap(gap) => {
                    if let Some(last) = self.reader.position() {
                        frames.id(&last);
                    }
                    frames.event("gap", &gap.to_json());
                }
                ToldRead::Over(problem) => {
                    frames.problem(problem);
                    return (frames, None);
                }
            }
            if self.left == 0 {
                return (frames, None);
            }
            if frames.len() >= FRAMES_BYTES {
                return (frames, Some(self));
            }
            behind = self.reader.position();
            match self.reader.next_now().await {
                Some(next) => read = next,
                None => return (frames, Some(self)),
            }
        }
    }
}
