//! The output streams of a run, which its activities send.
//!
//! A message's id is its position in the output stream, so that a client can resume while the program keeps that position.

use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use millrun::operating::{InstanceStatus, Lost};
use millrun::streams::{
    StreamAttempt, StreamItem, StreamOpenError, StreamPosition, StreamReadError, StreamReader,
};
use millrun::{Payload, RunError, RunId};

use super::{FRAMES_BYTES, Frames, Source, respond};
use crate::Redaction;
use crate::problem::Problem;
use crate::query::{StreamQuery, wrong};
use crate::router::Served;
use crate::view::{Json, object};

/// The output stream of a run with this name, and the event `end` when the run has ended.
pub(crate) async fn run_output(
    served: &Served,
    run: RunId,
    name: &str,
    query: StreamQuery,
) -> Result<Response, Problem> {
    let (runtime, place) = (&served.runtime, served.streams.take()?);
    let behind = query.after.as_deref().map(str::parse::<StreamPosition>);
    let behind = behind
        .transpose()
        .map_err(|error| wrong("after", &error.to_string()))?;
    let described = runtime.describe_run(run).await?;
    let handle = runtime.attach_described(&described);
    let mut reader = handle.stream(name, behind).await.map_err(not_opened)?;
    // Checked before the look, so that nothing is sent after it.
    let is_sent_to = reader.is_sent_to();
    let first = reader.next_encoded_now().await.transpose();
    let has_ended = described.status == InstanceStatus::Finished && !is_sent_to;
    if query.is_resumed && first.is_none() && has_ended {
        // This status tells a browser not to reconnect.
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let source = RunOutput {
        reader,
        first,
        left: query.limit,
        redaction: served.redaction.clone(),
    };
    Ok(respond(runtime.host().clone(), place, source))
}

fn not_opened(error: StreamOpenError) -> Problem {
    match error {
        StreamOpenError::Run(error) => error.into(),
        StreamOpenError::TooMany { .. } => Problem::new("too-many-streams", error.to_string()),
        error => Problem::new("unknown", error.to_string()),
    }
}

struct RunOutput {
    reader: StreamReader<Payload>,
    /// An item that existed when the client came.
    first: Option<Result<StreamItem<Payload>, StreamReadError>>,
    /// The number of chunks that the client still wants.
    left: u64,
    redaction: Redaction,
}

impl Source for RunOutput {
    async fn next(mut self) -> (Frames, Option<Self>) {
        let mut frames = Frames::default();
        let mut item = match self.first.take() {
            Some(first) => first.map(Some),
            None => self.reader.next_encoded().await,
        };
        loop {
            match item {
                Ok(Some(item)) => self.write(item, &mut frames),
                Ok(None) => {
                    frames.event("end", &object([]));
                    return (frames, None);
                }
                Err(StreamReadError::Run(error)) => {
                    frames.problem(error.into());
                    return (frames, None);
                }
                Err(StreamReadError::Stopped(cause)) => {
                    frames.problem(RunError::Stopped(cause).into());
                    return (frames, None);
                }
                // The next call continues behind it.
                Err(StreamReadError::Damaged { count, .. }) => {
                    frames.id(&self.reader.position());
                    frames.gap(count.into());
                }
                Err(error) => {
                    frames.problem(Problem::new("unknown", error.to_string()));
                    return (frames, None);
                }
            }
            if self.left == 0 {
                return (frames, None);
            }
            if frames.len() >= FRAMES_BYTES {
                return (frames, Some(self));
            }
            match self.reader.next_encoded_now().await {
                Ok(Some(next)) => item = Ok(Some(next)),
                Ok(None) => return (frames, Some(self)),
                Err(error) => item = Err(error),
            }
        }
    }
}

impl RunOutput {
    fn write(&mut self, item: StreamItem<Payload>, frames: &mut Frames) {
        let position = self.reader.position();
        match item {
            StreamItem::Chunk(attempt, chunk) => {
                let [operation, number] = told(attempt);
                let position = position.to_string();
                let json = object([
                    operation,
                    number,
                    ("position", position.as_str().into()),
                    ("chunk", (&chunk).into()),
                ]);
                frames.message(&position, &json.to_text(&self.redaction));
                self.left -= 1;
            }
            StreamItem::Began(attempt) => {
                frames.id(&position);
                frames.event("began", &object(told(attempt)));
            }
            StreamItem::Ended(attempt, end) => {
                let [operation, number] = told(attempt);
                frames.id(&position);
                frames.event(
                    "ended",
                    &object([operation, number, ("ended", end.to_string().into())]),
                );
            }
            StreamItem::Missed(Lost::Counted(lost)) => {
                frames.id(&position);
                frames.gap(lost.into());
            }
            StreamItem::Missed(_) => {
                frames.id(&position);
                frames.gap(Json::Null);
            }
            _ => {}
        }
    }
}

fn told(attempt: StreamAttempt) -> [(&'static str, Json); 2] {
    [
        ("operation", attempt.operation.into()),
        ("attempt", u64::from(attempt.attempt).into()),
    ]
}
