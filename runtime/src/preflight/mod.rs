//! Preflight: tries new code on the runs of a store, before it is deployed.
//!
//! ```text
//!   closed store, only read ──► its live runs ──► queue ──► threads: history, replay ──► report, by workflow and by difference
//! ```
//!
//! Invariants: not a byte is written, nothing is called, and no timer fires. A run whose replay does not end costs its
//! thread, and is reported; other runs are still tried.

mod config;
mod error;
mod report;
mod trying;

use std::future::{Future, IntoFuture};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use millrun_core::Host;
use millrun_persistence::StoreConfig;
use millrun_workflow::Limits;

pub use self::config::PreflightConfig;
pub use self::error::PreflightError;
pub use self::report::{
    PreflightFinding, PreflightPatch, PreflightProblem, PreflightReport, PreflightWorkflow,
};
use self::trying::Tries;
use crate::code::workflows::Workflows;
use crate::looking::find::{RunCursor, RunSearch};
use crate::store::ClosedStore;

/// How many runs are listed at a time.
const PAGE_LEN: usize = 1_000;

/// A preflight in preparation; made by [`RuntimeBuilder::preflight`](crate::RuntimeBuilder::preflight). Awaiting it tries the
/// code on the runs.
#[must_use = "a preflight does nothing unless it is awaited"]
pub struct Preflight {
    /// Where the store is, if it is in a file.
    pub(crate) place: Option<PathBuf>,
    pub(crate) store: StoreConfig,
    pub(crate) host: Option<Arc<dyn Host>>,
    pub(crate) workflows: Result<Workflows, crate::OpenError>,
    pub(crate) limits: Limits,
    pub(crate) config: PreflightConfig,
}

impl std::fmt::Debug for Preflight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Preflight")
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

impl Preflight {
    /// Changes how much is tried, and how.
    pub fn configure(mut self, change: impl FnOnce(&mut PreflightConfig)) -> Self {
        change(&mut self.config);
        self
    }

    async fn perform(self) -> Result<PreflightReport, PreflightError> {
        let config = self.config.checked()?;
        let workflows = self.workflows?;
        let place = self.place.ok_or(PreflightError::NoFile)?;
        let closed = ClosedStore::open_on(place, self.store, self.host).await?;
        let mut limits = self.limits;
        limits.strict |= config.is_strict;
        let mut tries = Tries::new(closed.runtime(), workflows, limits, config);
        tries.all(&closed, &RunSearch::new().live(), u64::MAX).await?;
        let finished = tries.finished_len_max();
        if finished > 0 {
            tries.all(&closed, &RunSearch::new().finished(), finished).await?;
        }
        tries.finish().await
    }
}

impl IntoFuture for Preflight {
    type Output = Result<PreflightReport, PreflightError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.perform())
    }
}

impl Tries {
    /// Tries the code on the runs that a search finds, at most `len_max`.
    async fn all(
        &mut self,
        closed: &ClosedStore,
        filter: &RunSearch,
        len_max: u64,
    ) -> Result<(), PreflightError> {
        let (mut after, mut left): (Option<RunCursor>, u64) = (None, len_max);
        loop {
            let len = usize::try_from(left).map_or(PAGE_LEN, |left| left.min(PAGE_LEN));
            let page = closed.find(filter, after, len).await?;
            self.note_unreadable(page.unreadable);
            left -= page.runs.len() as u64;
            self.enqueue(page.runs).await?;
            match page.next {
                Some(next) if left > 0 => after = Some(next),
                _ => return Ok(()),
            }
        }
    }
}
