//! Event streams that end with the server, and tell their clients.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};

use super::serving::{Ending, Stopping};
use crate::problem::Problem;
use crate::stream::Frames;

/// Wraps an answer: a stream of server-sent events tells its client when the server stops.
pub(super) fn told(answer: Response, ending: &Ending) -> Response {
    let form = answer
        .headers()
        .get(header::CONTENT_TYPE)
        .map(HeaderValue::as_bytes);
    if !form.is_some_and(|form| form.starts_with(b"text/event-stream")) {
        return answer;
    }
    answer.map(|events| {
        let stopping = Some(ending.stopping());
        Body::new(Told { events, stopping })
    })
}

/// A stream of events. Each piece has one or more whole events.
struct Told {
    events: Body,
    /// `None` once it has completed.
    stopping: Option<Stopping>,
}

impl HttpBody for Told {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Some(stopping) = &mut self.stopping else {
            return Poll::Ready(None);
        };
        if Pin::new(stopping).poll(cx).is_ready() {
            self.stopping = None;
            self.events = Body::empty();
            let mut last = Frames::default();
            last.problem(Problem::stopping());
            return Poll::Ready(Some(Ok(Frame::data(last.into_text().into()))));
        }
        Pin::new(&mut self.events).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.stopping.is_none() || self.events.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}
