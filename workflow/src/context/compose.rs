//! Several operations at once. All of it is polled in the order written, so that a replay takes
//! the same turns.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use crate::WorkflowContext;

/// The one of two that came first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Either<A, B> {
    /// The first.
    Left(A),
    /// The second.
    Right(B),
}

impl WorkflowContext {
    /// Waits for both.
    ///
    /// # Cancel safety
    /// Dropping the future drops both, which cancels durably what they have begun. The same holds for
    /// [`join_all`](Self::join_all), [`race`](Self::race) and [`race_all`](Self::race_all); children follow
    /// their [`on_close`](crate::Child::on_close).
    pub async fn join<A: Future, B: Future>(&self, left: A, right: B) -> (A::Output, B::Output) {
        futures_util::future::join(left, right).await
    }

    /// Waits for all, and gives their values in the order of the futures. Thousands are fine:
    /// only those that were woken are polled.
    pub async fn join_all<F: Future>(&self, futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
        futures_util::future::join_all(futures).await
    }

    /// Waits for the first, and drops the other, which cancels it durably. If both are ready in
    /// the same turn, the left one wins. To keep the loser, race a `&mut` of it.
    pub async fn race<A: Future, B: Future>(&self, left: A, right: B) -> Either<A::Output, B::Output> {
        let (mut left, mut right) = (pin!(left), pin!(right));
        poll_fn(|cx| {
            if let Poll::Ready(value) = left.as_mut().poll(cx) {
                return Poll::Ready(Either::Left(value));
            }
            right.as_mut().poll(cx).map(Either::Right)
        })
        .await
    }

    /// Waits for the first of many, and gives its place among them with its value; the others are
    /// dropped, which cancels them durably. Of several that are ready when they are first polled, the
    /// foremost wins; of several that one event makes ready later, the one that it woke first, as in a
    /// [`join_set`](Self::join_set), in a replay as before. `None` of none.
    ///
    /// More calls than [`Limits::pending_len_max`](crate::Limits::pending_len_max) are not raced: the
    /// first of those that are too many fails at once, and so wins.
    ///
    /// For branches of different types, nest [`race`](Self::race); to take more than the first, see
    /// [`join_set`](Self::join_set).
    ///
    /// ```
    /// # use millrun_workflow::{Activity, WorkflowContext, WorkflowError};
    /// # const ASK: Activity<String, u64> = Activity::named("ask");
    /// async fn fastest(cx: WorkflowContext, mirrors: Vec<String>) -> Result<u64, WorkflowError> {
    ///     match cx.race_all(mirrors.into_iter().map(|mirror| cx.call(ASK, mirror))).await {
    ///         Some((_, answer)) => Ok(answer?),
    ///         None => Err(WorkflowError::failed("there is no mirror")),
    ///     }
    /// }
    /// ```
    pub async fn race_all<F: Future>(
        &self,
        futures: impl IntoIterator<Item = F>,
    ) -> Option<(usize, F::Output)> {
        let placed = futures.into_iter().enumerate();
        // Only those that were woken are polled, in the order of the history.
        let mut racing: FuturesUnordered<_> = placed
            .map(async |(place, future)| (place, future.await))
            .collect();
        racing.next().await
    }
}
