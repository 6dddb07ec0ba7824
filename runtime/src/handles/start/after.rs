//! A start that follows one particular run.
//!
//! ```text
//!   StartAfter ──► its shard ─┬─ the latest run, and finished ──► a run begins      one turn
//!                             └─ another, or it is live ────────► refused: which run that is
//! ```

use std::fmt;
use std::future::IntoFuture;

use futures_util::future::BoxFuture;
use millrun_core::RunId;
use tokio::sync::oneshot;

use super::{Start, ask, handle_of};
use crate::StartError;
use crate::mail::{Request, StartFollowing};

/// A start that follows one particular run, performed when it is awaited. Made by [`Start::only_after`].
#[must_use = "nothing is started until this is awaited"]
pub struct StartAfter<'a, H> {
    start: Start<'a, H>,
    run: RunId,
}

impl<H> fmt::Debug for StartAfter<'_, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StartAfter")
            .field("start", &self.start)
            .field("run", &self.run)
            .finish()
    }
}

impl<'a, H> StartAfter<'a, H> {
    pub(super) const fn new(start: Start<'a, H>, run: RunId) -> Self {
        Self { start, run }
    }

    async fn perform(self) -> Result<H, StartError> {
        let Start {
            inner,
            asked,
            on_conflict,
            handle,
        } = self.start;
        let asked = asked?;
        let id = asked.id.clone();
        let (reply, answer) = oneshot::channel();
        let (start, end) = asked.request(on_conflict, reply.into());
        let run = self.run;
        let request = Request::StartFollowing(Box::new(StartFollowing { start, run }));
        let started = ask(inner, &id, request, answer).await?;
        Ok(handle_of(inner, id, started.run, end, handle))
    }
}

impl<'a, H: 'a> IntoFuture for StartAfter<'a, H> {
    type Output = Result<H, StartError>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.perform())
    }
}
