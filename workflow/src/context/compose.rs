//! Several operations at once. All branches are polled in the order written, so that a replay makes the same turns.

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

    /// Waits for all, and returns their values in the order of the futures. Thousands are fine: only those that were woken
    /// are polled.
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

    /// Waits for the first of many, and returns its index with its value; the others are dropped, which cancels them durably.
    /// If several are ready when they are first polled, the first in order wins; if one event later makes several ready, the
    /// one that it woke first wins, as in a [`join_set`](Self::join_set). A replay decides in the same way. `None` for no
    /// futures.
    ///
    /// With more calls than [`Limits::pending_len_max`](crate::Limits::pending_len_max), the first call above the limit fails
    /// at once, and so wins.
    ///
    /// For branches of different types, nest [`race`](Self::race); to take more results than the first, see
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
