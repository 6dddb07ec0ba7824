//! Answers without an end: server-sent events.
//!
//! ```text
//!   source ── next ──► frames ──► body ──► client, which takes what it has room for
//!     └── waits for the runtime to tell it; in between a comment every 15 s, by the host's clock
//! ```
//!
//! No task runs for a stream while its client reads nothing: the server asks the body for the next frames when it has sent
//! the last ones, and only then is the source asked. So a stream holds at most the result of one call to its source. Without
//! news from the runtime, a stream only sends comments.

mod changes;
mod frames;
mod places;
mod run_events;
mod run_output;

use std::convert::Infallible;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use futures_util::future::{Either, select};
use futures_util::stream::unfold;
use millrun::host::Host;

pub(crate) use changes::changes;
pub(crate) use frames::Frames;
pub(crate) use places::{Place, Places};
pub(crate) use run_events::run_events;
pub(crate) use run_output::run_output;

pub use places::STREAMS_LEN_MAX;

/// How long a stream is silent until it sends a comment: proxies and clients drop silent connections.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// About how many bytes a source returns at once: as much as a server may have unsent for a stream.
pub(crate) const FRAMES_BYTES: usize = 64 * 1024;

/// A source of frames.
pub(crate) trait Source: Sized + Send + 'static {
    /// Waits for the next frames. Returns the source too, unless these are the last frames.
    fn next(self) -> impl Future<Output = (Frames, Option<Self>)> + Send;
}

type Next<S> = Pin<Box<dyn Future<Output = (Frames, Option<S>)> + Send>>;

enum State<S> {
    Waits(Next<S>),
    Over,
}

/// The answer that sends the frames of a source. It keeps a place among the streams as long.
pub(crate) fn respond<S: Source>(host: Arc<dyn Host>, place: Place, source: S) -> Response {
    let body = unfold(State::Waits(Box::pin(source.next())), move |mut state| {
        // Captured, so that it is freed when the stream ends.
        let _place = &place;
        let host = Arc::clone(&host);
        async move {
            let State::Waits(next) = mem::replace(&mut state, State::Over) else {
                return None;
            };
            let heartbeat = host.sleep_until(host.now() + HEARTBEAT);
            let (frames, state) = match select(next, heartbeat).await {
                Either::Left(((frames, source), _)) => {
                    let next = source.map(|source| State::Waits(Box::pin(source.next())));
                    (frames, next.unwrap_or(State::Over))
                }
                Either::Right(((), next)) => (Frames::heartbeat(), State::Waits(next)),
            };
            Some((Ok::<_, Infallible>(frames.into_text()), state))
        }
    });
    let headers = [
        (
            header::CONTENT_TYPE,
            HeaderValue::from_static("text/event-stream"),
        ),
        // Otherwise nginx would buffer several seconds of events.
        (
            HeaderName::from_static("x-accel-buffering"),
            HeaderValue::from_static("no"),
        ),
    ];
    (headers, Body::from_stream(body)).into_response()
}
