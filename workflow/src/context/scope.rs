//! Cancelling parts of a run: which operations a cancel reaches.
//!
//! ```text
//!   run ──► root scope ──► scope ──► scope        a cancel goes down the arrows
//!           shield     ──► scope                  and stops at a shield
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::WorkflowContext;

/// The scope of an operation. A cheap clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scope {
    is_shielded: bool,
    node: Option<Arc<Node>>,
}

#[derive(Debug)]
struct Node {
    parent: Option<Arc<Node>>,
    is_cancelled: AtomicBool,
}

impl Drop for Node {
    /// Drops the chain of parents in a loop, because a recursive drop could overflow the stack.
    fn drop(&mut self) {
        let mut parent = self.parent.take();
        while let Some(mut node) = parent.and_then(Arc::into_inner) {
            parent = node.parent.take();
        }
    }
}

impl Scope {
    /// Not reached by any cancel from above.
    pub(crate) const SHIELDED: Self = Self {
        is_shielded: true,
        node: None,
    };

    pub(crate) fn child(&self) -> Self {
        Self {
            is_shielded: self.is_shielded,
            node: Some(Arc::new(Node {
                parent: self.node.clone(),
                is_cancelled: AtomicBool::new(false),
            })),
        }
    }

    /// Whether a cancel has reached this scope; `is_requested` says whether the run was asked to cancel.
    pub(crate) fn is_cancelled(&self, is_requested: bool) -> bool {
        // Set and read only by the code of one run, which is on one thread at a time.
        is_requested && !self.is_shielded
            || self.nodes().any(|node| node.is_cancelled.load(Ordering::Relaxed))
    }

    /// Whether the run's own cancel cannot reach it.
    pub(crate) const fn is_shielded(&self) -> bool {
        self.is_shielded
    }

    fn nodes(&self) -> impl Iterator<Item = &Arc<Node>> {
        std::iter::successors(self.node.as_ref(), |node| node.parent.as_ref())
    }

    fn cancel(&self) {
        if let Some(node) = &self.node {
            node.is_cancelled.store(true, Ordering::Relaxed);
        }
    }
}

/// A part of a run that can be cancelled separately; made by [`WorkflowContext::scope`](crate::WorkflowContext::scope). A
/// cheap clone.
///
/// ```
/// use millrun_workflow::{Activity, Signal, WorkflowContext, WorkflowError};
///
/// const SEARCH: Activity<String, u64> = Activity::named("search");
/// const STOP: Signal<()> = Signal::named("stop");
///
/// /// Searches at three places until told to stop, and counts those that were done by then.
/// async fn search(cx: WorkflowContext, what: String) -> Result<usize, WorkflowError> {
///     let scope = cx.scope();
///     let places = (0..3).map(|place| scope.context().call(SEARCH, format!("{place}/{what}")));
///     let stop = async {
///         let told = cx.receive(STOP).await;
///         scope.cancel();
///         told
///     };
///     let (results, told) = cx.join(cx.join_all(places), stop).await;
///     told?;
///     Ok(results.into_iter().flatten().count())
/// }
/// ```
#[derive(Clone, Debug)]
pub struct CancelScope {
    context: WorkflowContext,
}

impl CancelScope {
    pub(crate) fn new(context: WorkflowContext) -> Self {
        Self { context }
    }

    /// The context of this scope: its operations belong to the scope, and so do those of contexts and scopes made from it,
    /// except shielded ones.
    #[must_use]
    pub fn context(&self) -> &WorkflowContext {
        &self.context
    }

    /// Cancels what belongs to this scope: each operation that is outstanding or issued later ends with
    /// [`Cancelled`](crate::Cancelled). The rest of the run continues. A second call changes nothing. It is for the run's own
    /// code, its updates included: called from a query, another task or thread, it cancels nothing and parks the run, as any
    /// foreign touch does.
    pub fn cancel(&self) {
        // A cancel from outside would not be repeated by a replay.
        if !self.context.shared_ref().pulse().check_inside() {
            return;
        }
        self.context.scope_ref().cancel();
        let wakers = self.context.shared_ref().lock().wake_cancelled();
        wakers.into_iter().for_each(std::task::Waker::wake);
    }

    /// Whether a cancel has reached this scope: its own, or one from an outer scope.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.context.is_cancel_requested()
    }
}
