//! A walk along causes or effects, the nearest first.
//!
//! ```text
//!   traced ─► its links ─► what they lead to, unless it was walked ─► a line of what is still to be walked
//! ```
//!
//! Invariant: nothing is visited twice. The queue and the visited set are bounded by the length of the walk.

use std::collections::{BTreeSet, VecDeque};

use super::bounds::TraceBounds;
use super::cursor::TraceCursor;
use super::error::TraceError;
use super::links::{TraceLink, TraceOf, TracePage};
use crate::{Runtime, StopCause};

/// How many pages of one node are read; the rest is in its [next](TracePage::next) page.
const PAGES_MAX: usize = 8;

/// The direction of a walk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TraceDirection {
    /// To the causes.
    Causes,
    /// To the effects.
    #[default]
    Effects,
}

/// A walk in progress; made by [`Runtime::trace_walk`].
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

/// A node of a walk.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WalkedNode {
    /// What it is.
    pub of: TraceOf,
    /// The number of links from the beginning of the walk.
    pub depth: usize,
    /// The number in the walk, from zero, of the node that led here; `None` for the first.
    pub from: Option<usize>,
    /// Its links, up to eight pages; or why it cannot be traced.
    pub page: Result<TracePage, TraceError>,
}

impl Runtime {
    /// Walks from a run, an operation or a record to all of its causes, or to all of its effects: the nearest first, each
    /// once. A node has all of its links, also those that are not followed.
    ///
    /// `depth_max` is how many links away a node may be, `nodes_max` the largest number of nodes (1 to 10,000); if that is
    /// not enough, the walk [is cut](TraceWalk::is_cut), and a caller can continue with a walk from one of its last nodes.
    /// The bounds apply to each page of each node; eight pages of a node are read, and [`trace`](Self::trace) returns further
    /// ones.
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
    /// When the runtime has stopped. A node that cannot be traced is returned with the reason.
    ///
    /// # Cancel safety
    /// If it is dropped while it waits, the walk skips the node that it was about to return.
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
            // An instance resolves to a run, which the walk may have visited.
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

    /// Whether there was more than the walk may visit, in depth or in number.
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

    /// The first pages of a node, joined.
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
