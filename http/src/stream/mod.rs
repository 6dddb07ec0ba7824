//! Answers that go on: server-sent events.
//!
//! ```text
//!   source ── next ──► frames ──► body ──► client, which takes what it has room for
//!     └── waits for the runtime to tell it; in between a comment every 15 s, by the host's clock
//! ```
//!
//! Nothing runs for a stream while its client takes nothing: the body is asked for the next frames when the server
//! has sent the last ones, and only then is the source asked. So a stream holds at most what one call of its source
//! gives. Without a runtime that tells it something, a stream does nothing but its comments.

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

/// After how long without an event a stream sends a comment: proxies and clients give up on silent connections.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// About how many bytes a source gives at once: as much as a server has unsent of a stream.
pub(crate) const FRAMES_BYTES: usize = 64 * 1024;

/// What is asked for frames.
pub(crate) trait Source: Sized + Send + 'static {
    /// Waits for the next frames, and gives itself back unless these are the last.
    fn next(self) -> impl Future<Output = (Frames, Option<Self>)> + Send;
}

type Next<S> = Pin<Box<dyn Future<Output = (Frames, Option<S>)> + Send>>;

enum State<S> {
    Waits(Next<S>),
    Over,
}

/// The answer that sends what a source gives, for as long as it has a place among the streams.
pub(crate) fn respond<S: Source>(host: Arc<dyn Host>, place: Place, source: S) -> Response {
    let body = unfold(State::Waits(Box::pin(source.next())), move |mut state| {
        // Captured, it leaves with the stream.
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
        // nginx would gather the events of several seconds otherwise.
        (
            HeaderName::from_static("x-accel-buffering"),
            HeaderValue::from_static("no"),
        ),
    ];
    (headers, Body::from_stream(body)).into_response()
}
