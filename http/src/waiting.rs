//! Waiting by the clock of the runtime's host, so that a seeded host controls it.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use millrun::host::Host;

/// The result of `answer`, if it comes within `wait`; otherwise `None`.
///
/// # Cancel safety
/// As `answer`, which is dropped when the time is over.
pub(crate) async fn within<T>(host: &dyn Host, wait: Duration, answer: impl Future<Output = T>) -> Option<T> {
    let deadline = host.sleep_until(host.now() + wait);
    match select(pin!(answer), deadline).await {
        Either::Left((answer, _)) => Some(answer),
        Either::Right(((), _)) => None,
    }
}
