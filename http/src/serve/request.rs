//! One request: the time that it may take, and what becomes of it when the server stops.

use std::time::Duration;

use axum::http::{Method, Request};
use axum::response::{IntoResponse as _, Response};
use hyper::body::Incoming;
use hyper::rt::Timer as _;

use super::routes::Routes;
use super::serving::Ending;
use super::timer::ConnectionTimer;
use super::told::told;
use crate::problem::Problem;
use crate::query::wait;
use crate::router::finished;

/// Answers a request within the time that it may take.
///
/// # Cancel safety
/// As that of [`Console::router`](crate::Console::router): a request that is cut off may be recorded or not.
pub(super) async fn answer(
    routes: &Routes,
    request: Request<Incoming>,
    within: Duration,
    timer: &ConnectionTimer,
    ending: &Ending,
) -> Response {
    // A query that cannot be read is for the route to refuse.
    let waits = wait(request.uri().query().unwrap_or_default()).unwrap_or_default();
    let has_effect = request.method() != Method::GET && request.method() != Method::HEAD;
    let answered = routes.answer(request);
    let late = timer.until(timer.now() + within + waits);
    tokio::select! {
        biased;
        answer = answered => told(answer, ending),
        () = late => {
            let detail = format!("it has taken {} s", (within + waits).as_secs());
            finished(Problem::new("timeout", detail).into_response())
        }
        // What only waits is asked again elsewhere; anything else is finished.
        () = ending.stopping(), if !waits.is_zero() && !has_effect => stopping(),
    }
}

/// The server stops.
fn stopping() -> Response {
    finished(Problem::stopping().into_response())
}
