//! A walk through causes or effects, the nearest first.
//!
//! ```text
//!   traced ─► its links ─► what they lead to, unless it was walked ─► a line of what is still to be walked
//! ```
//!
//! Invariant: nothing is walked twice. The line and what was walked are as long as the walk may be at most.

use std::collections::{BTreeSet, VecDeque};

use super::bounds::TraceBounds;
use super::cursor::TraceCursor;
use super::error::TraceError;
use super::links::{TraceLink, TraceOf, TracePage};
use crate::{Runtime, StopCause};

/// How many pages of one node are read at most; what is behind has its [next](TracePage::next) page.
const PAGES_MAX: usize = 8;

/// In which direction is walked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TraceDirection {
    /// To what led to it.
    Causes,
    /// To what came of it.
    #[default]
    Effects,
}

/// A walk that goes on; made by [`Runtime::trace_walk`].
#[derive(Debug)]
pub struct TraceWalk {
    runtime: Runtime,
    direction: TraceDirection,
    bounds: TraceBounds,
    depth_max: usize,
    nodes_max: usize,
    line: VecDeque<(TraceOf, usize, Option<usize>)>,
    walked: BTreeSet<TraceOf>,
    given: usize,
    is_cut: bool,
}

/// Something that a walk has come to.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WalkedNode {
    /// What it is.
    pub of: TraceOf,
    /// How many links it is away from where the walk began.
    pub depth: usize,
    /// The number, within the walk and from zero, of the node from which the walk came here; `None` of the first.
    pub from: Option<usize>,
    /// Its links, of up to eight pages; or why it cannot be traced.
    pub page: Result<TracePage, TraceError>,
}

impl Runtime {
    /// Walks from a run, an operation or a record to all that led to it, or to all that came of it: the nearest first, each
    /// once. A node is given with all of its links, also those that are not walked.
    ///
    /// `depth_max` is how many links away a node may be, `nodes_max` how many are given at most (1 to 10,000); where that is
    /// not enough the walk says that it [was cut](TraceWalk::is_cut), and a caller goes on with a walk from one of its last
    /// nodes. The bounds count for each page of each node; of one node eight pages are read, and further ones are for
    /// [`trace`](Self::trace).
    ///
    /// ```
    /// use millrun::operating::{TraceBounds, TraceDirection};
    /// # use millrun::{Runtime, Workflow, WorkflowContext, WorkflowError};
    /// # const DOUBLE: Workflow<u64, u64> = Workflow::named("double");
    /// # async fn double(_cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    /// #     Ok(number * 2)
    /// # }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let runtime = Runtime::volatile().register(DOUBLE, double).start().await?;
    /// let run = runtime.start(DOUBLE, "d", 21).await?.run_id().expect("a start gives a run");
    /// let bounds = TraceBounds::default();
    /// let mut walk = runtime.trace_walk(run, TraceDirection::Effects, 16, 1_000, &bounds);
    /// while let Some(node) = walk.next().await? {
    ///     println!("{}{:?}", "  ".repeat(node.depth), node.of);
    /// }
    /// assert!(!walk.is_cut());
    /// # Ok(())
    /// # }
    /// ```
    pub fn trace_walk(
        &self,
        of: impl Into<TraceOf>,
        direction: TraceDirection,
        depth_max: usize,
        nodes_max: usize,
        bounds: &TraceBounds,
    ) -> TraceWalk {
        TraceWalk {
            runtime: self.clone(),
            direction,
            bounds: bounds.clamped(),
            depth_max,
            nodes_max: nodes_max.clamp(1, 10_000),
            line: VecDeque::from([(of.into(), 0, None)]),
            walked: BTreeSet::new(),
            given: 0,
            is_cut: false,
        }
    }
}

impl TraceWalk {
    /// The next node; `None` at the end.
    ///
    /// # Errors
    /// When the runtime has stopped. A node that cannot be traced is given with the reason.
    ///
    /// # Cancel safety
    /// Dropped while it waits, the walk passes over the node that it was about to give.
    pub async fn next(&mut self) -> Result<Option<WalkedNode>, StopCause> {
        while let Some((of, depth, from)) = self.line.pop_front() {
            if self.walked.contains(&of) {
                continue;
            }
            if self.given == self.nodes_max {
                self.is_cut = true;
                self.line.clear();
                return Ok(None);
            }
            let page = match self.all_pages(&of).await {
                Err(TraceError::Stopped(cause)) => return Err(cause),
                page => page,
            };
            // An instance is found to be a run, which the walk may have been at.
            let of = page.as_ref().map_or(of, |page| page.of.clone());
            if !self.walked.insert(of.clone()) {
                continue;
            }
            if let Ok(page) = &page {
                self.line_up(page, depth);
            }
            self.given += 1;
            return Ok(Some(WalkedNode {
                of,
                depth,
                from,
                page,
            }));
        }
        Ok(None)
    }

    /// Whether there was more than the walk may give, in depth or in number.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    fn line_up(&mut self, page: &TracePage, depth: usize) {
        let links = match self.direction {
            TraceDirection::Causes => &page.causes,
            TraceDirection::Effects => &page.effects,
        };
        let ends = links.iter().filter_map(|link: &TraceLink| link.to.as_ref());
        for to in ends.filter(|to| !self.walked.contains(to)) {
            if depth == self.depth_max || self.line.len() >= self.nodes_max {
                self.is_cut = true;
                return;
            }
            self.line.push_back((to.clone(), depth + 1, Some(self.given)));
        }
    }

    /// The first pages of a node as one.
    async fn all_pages(&self, of: &TraceOf) -> Result<TracePage, TraceError> {
        let mut whole = self.page(of, None).await?;
        for _ in 1..PAGES_MAX {
            let Some(next) = whole.next else {
                break;
            };
            let page = self.page(&whole.of, Some(next)).await?;
            whole.causes.extend(page.causes);
            whole.effects.extend(page.effects);
            whole.looked_at += page.looked_at;
            whole.next = page.next;
        }
        Ok(whole)
    }

    async fn page(&self, of: &TraceOf, after: Option<TraceCursor>) -> Result<TracePage, TraceError> {
        self.runtime.trace_page(of.clone(), after, &self.bounds).await
    }
}
