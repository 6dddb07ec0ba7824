//! One request: its time limit, and its end when the server stops.
//!
//! ```text
//!   request ──► request_within, and wait_ms ──┬─► timeout
//!                                             └─ at upkeep ──► upkeep_within ──► timeout
//! ```

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
use crate::upkeep_time::UpkeepMark;

/// Answers a request within its time limit.
///
/// # Cancel safety
/// As [`Console::router`](crate::Console::router): the change that a cancelled request asked for may be recorded or not.
pub(super) async fn answer(
    routes: &Routes,
    mut request: Request<Incoming>,
    (within, upkeep_within): (Duration, Duration),
    timer: &ConnectionTimer,
    ending: &Ending,
) -> Response {
    // The route refuses a query that cannot be read.
    let waits = wait(request.uri().query().unwrap_or_default()).unwrap_or_default();
    let has_effect = request.method() != Method::GET && request.method() != Method::HEAD;
    // Only these requests carry a mark.
    let may_be_upkeep = has_effect && request.uri().path().contains("/store/");
    let mark = may_be_upkeep.then(UpkeepMark::default);
    if let Some(mark) = &mark {
        request.extensions_mut().insert(mark.clone());
    }
    let answered = routes.answer(request);
    let late = late(timer, within + waits, upkeep_within, mark.as_ref());
    tokio::select! {
        biased;
        answer = answered => told(answer, ending),
        taken = late => {
            let detail = format!("it has taken {} s", taken.as_secs());
            finished(Problem::new("timeout", detail).into_response())
        }
        // When the server stops, a request that only waits is ended, to be repeated elsewhere; any other is finished.
        () = ending.stopping(), if !waits.is_zero() && !has_effect => stopping(),
    }
}

/// Completes when a request has used up its time, and returns that time. Whether it is upkeep is checked when the time of
/// other requests is over.
async fn late(
    timer: &ConnectionTimer,
    within: Duration,
    upkeep_within: Duration,
    mark: Option<&UpkeepMark>,
) -> Duration {
    let began = timer.now();
    timer.until(began + within).await;
    if !mark.is_some_and(UpkeepMark::is_set) {
        return within;
    }
    let longer = upkeep_within.max(within);
    timer.until(began + longer).await;
    longer
}

/// The answer when the server stops.
fn stopping() -> Response {
    finished(Problem::stopping().into_response())
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::header;
    use millrun::Runtime;
    use tower::Service as _;

    use super::*;
    use crate::{Access, Console, OPERATIONS};

    #[tokio::test]
    async fn upkeep_of_the_store_is_marked_and_nothing_else_nor_for_a_reader() {
        let runtime = Runtime::volatile().start().await.unwrap();
        let upkeep = ["verify_store", "backup_store", "export_store"];
        for (access, is_operator) in [(Access::operator(), true), (Access::read_only(), false)] {
            let mut router = Console::new(&runtime, access).router();
            for operation in OPERATIONS {
                let mark = UpkeepMark::default();
                let request = Request::builder()
                    .method(&operation.method)
                    .uri(format!("/{}", operation.path.replace(['{', '}'], "")))
                    .header(header::HOST, "localhost")
                    .header(header::CONTENT_TYPE, "application/json")
                    .extension(mark.clone());
                let request = request.body(Body::from(r#"{"name": "a"}"#)).unwrap();
                drop(router.call(request).await);
                let is_upkeep = is_operator && upkeep.contains(&operation.name);
                assert_eq!(mark.is_set(), is_upkeep, "{}", operation.name);
            }
        }
        runtime.shutdown().await.unwrap();
    }

    /// Regression: verifying and copying a large store ended in `timeout` after thirty seconds, like any request.
    #[tokio::test(start_paused = true)]
    async fn upkeep_has_a_bound_of_its_own() {
        let seconds = Duration::from_secs;
        for (is_upkeep, upkeep_within, expected) in [
            (false, seconds(3_600), seconds(30)),
            (true, seconds(3_600), seconds(3_600)),
            (true, seconds(7), seconds(30)),
        ] {
            let (mark, mut extensions) = (UpkeepMark::default(), axum::http::Extensions::new());
            extensions.insert(mark.clone());
            if is_upkeep {
                UpkeepMark::set_in(&extensions);
            }
            let begin = tokio::time::Instant::now();
            let timer = ConnectionTimer::default();
            let told = late(&timer, seconds(30), upkeep_within, Some(&mark)).await;
            assert_eq!((told, begin.elapsed()), (expected, expected));
        }
    }
}
