//! A set of branches: many, or a number that is not known beforehand.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

type JoinSetBranch<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Branches of one run; made by [`WorkflowContext::join_set`](crate::WorkflowContext::join_set).
///
/// Their results come in the order of the events that made them ready, which is the same in
/// every replay. They run while the set is awaited. Dropping the set drops the rest of them,
/// which cancels their operations durably; [`finish`](Self::finish) waits for the rest instead.
///
/// ```
/// # use millrun_workflow::{Activity, WorkflowContext, WorkflowError};
/// const FETCH: Activity<u64, u64> = Activity::named("fetch");
///
/// /// The first three answers of ten; the other calls are cancelled.
/// async fn quorum(cx: WorkflowContext, _: ()) -> Result<u64, WorkflowError> {
///     let mut replicas = cx.join_set();
///     for replica in 0..10 {
///         replicas.spawn(cx.call(FETCH, replica));
///     }
///     let mut sum = 0;
///     for _ in 0..3 {
///         sum += replicas.next().await.expect("ten are more than three")?;
///     }
///     Ok(sum)
/// }
/// ```
pub struct JoinSet<T> {
    branches: FuturesUnordered<JoinSetBranch<T>>,
}

impl<T> fmt::Debug for JoinSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinSet").field("len", &self.len()).finish()
    }
}

impl<T> JoinSet<T> {
    pub(crate) fn new() -> Self {
        Self {
            branches: FuturesUnordered::new(),
        }
    }

    /// Adds a branch. A branch only runs while the set is awaited, perhaps within a [race](crate::WorkflowContext::race). The
    /// set itself has no bound; the operations of its branches have, [`pending_len_max`](crate::Limits::pending_len_max).
    pub fn spawn(&mut self, branch: impl Future<Output = T> + Send + 'static) {
        self.branches.push(Box::pin(branch));
    }

    /// The next result; `None` when no branch is left.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing: a branch's result stays in the set until it is returned here.
    pub async fn next(&mut self) -> Option<T> {
        self.branches.next().await
    }

    /// Waits for all branches that are left, and returns their results in the order in which they came.
    ///
    /// # Cancel safety
    /// Dropping the future drops the branches that are left, as dropping the set does, and loses the results that had come.
    pub async fn finish(mut self) -> Vec<T> {
        let mut results = Vec::with_capacity(self.len());
        while let Some(result) = self.next().await {
            results.push(result);
        }
        results
    }

    /// The number of branches that have not returned their result.
    #[must_use]
    pub fn len(&self) -> usize {
        self.branches.len()
    }

    /// Whether no branch is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.branches.is_empty()
    }
}
