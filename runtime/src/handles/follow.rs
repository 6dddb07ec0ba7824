//! Requests to a run that may have continued as new.
//!
//! ```text
//!   request ──► run ── not live ──► did it go on in another? ─┬─ yes ──► the same request to that one
//!                                                             └─ no ──► Gone: the last of the chain
//! ```

use tokio::sync::oneshot;

use crate::inner::Inner;
use crate::mail::{Changed, Reply, Request, Target, UpdateRefused};
use crate::{QueryError, RunError, StopCause};

/// The result of a request to a chain of runs.
pub(crate) enum Followed<T> {
    Answered(T),
    /// No run of the chain is live; this is the last one.
    Gone(Target),
}

/// An error of a request to a run.
pub(crate) trait RunRequestError: From<StopCause> + From<RunError> {
    /// Whether it says that the run is not live.
    fn is_gone(&self) -> bool;
}

impl RunRequestError for RunError {
    fn is_gone(&self) -> bool {
        matches!(self, Self::NotFound | Self::Finished)
    }
}

impl RunRequestError for QueryError {
    fn is_gone(&self) -> bool {
        matches!(self, Self::Run(error) if error.is_gone())
    }
}

impl RunRequestError for UpdateRefused {
    fn is_gone(&self) -> bool {
        matches!(self, Self::Run(error) if error.is_gone())
    }
}

impl Inner {
    /// Sends a request to a run; if that has continued as new, to the run that continues it, up to the last of the chain.
    ///
    /// # Errors
    /// Errors of the request that do not say that the run is not live, and errors of reading a run's end.
    pub(crate) async fn follow<T, E: RunRequestError>(
        &self,
        mut target: Target,
        request: impl Fn(Target, Reply<T, E>) -> Request,
    ) -> Result<Followed<T>, E> {
        loop {
            let (reply, answer) = oneshot::channel();
            match self
                .ask(&target, request(target.clone(), reply.into()), answer)
                .await
            {
                Err(error) if error.is_gone() => match self.next_run(&target).await? {
                    Some(next) => target = Target::Run(next),
                    None => return Ok(Followed::Gone(target)),
                },
                answer => return answer.map(Followed::Answered),
            }
        }
    }

    /// Waits until a watched run makes progress. A shard that fails does not notify: its callers look again.
    pub(crate) async fn go_on(&self, changed: Changed) -> Result<(), RunError> {
        match self.stop.unless_over(changed).await {
            Some(_) => Ok(()),
            None => Err(self.stop_cause().into()),
        }
    }
}
