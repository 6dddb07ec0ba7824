//! A start that brings a signal.

use std::fmt;
use std::future::IntoFuture;

use futures_util::future::BoxFuture;
use millrun_workflow::{InputRefused, Name, Payload};
use tokio::sync::oneshot;

use super::{OnConflict, Start, ask, handle_of};
use crate::mail::{FirstRequest, Request, StartWith};
use crate::{RunError, StartWithSignalError};

/// A start with a signal, performed when it is awaited. Made by [`Start::with_signal`] and
/// [`Start::with_signal_untyped`].
#[must_use = "nothing is started until this is awaited"]
pub struct StartWithSignal<'a, H> {
    start: Start<'a, H>,
    name: Name,
    value: Result<Payload, RunError>,
}

impl<H> fmt::Debug for StartWithSignal<'_, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StartWithSignal")
            .field("start", &self.start)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl<'a, H> StartWithSignal<'a, H> {
    pub(super) const fn new(start: Start<'a, H>, name: Name, value: Result<Payload, RunError>) -> Self {
        Self { start, name, value }
    }

    /// As [`Start::on_conflict`].
    pub const fn on_conflict(mut self, on_conflict: OnConflict) -> Self {
        self.start.on_conflict = on_conflict;
        self
    }

    async fn perform(self) -> Result<H, StartWithSignalError> {
        let Self { start, name, value } = self;
        let Start {
            inner,
            asked,
            on_conflict,
            handle,
        } = start;
        let (asked, value) = (asked?, value?);
        let bytes_max = inner.shared.config.limits.payload_bytes_max;
        if value.len() > bytes_max {
            let bytes = value.len();
            return Err(RunError::Refused(InputRefused::TooLarge { bytes, bytes_max }).into());
        }
        loop {
            let (reply, answer) = oneshot::channel();
            let (told, taken) = oneshot::channel();
            let (id, workflow) = (asked.id.clone(), asked.workflow.clone());
            let (request, end) = asked.clone().request(on_conflict, reply);
            let with = FirstRequest::Signal {
                name: name.clone(),
                value: value.clone(),
                reply: told,
            };
            let request = Request::StartWith(Box::new(StartWith { start: request, with }));
            let started = ask(inner, &id, request, answer).await?;
            let run = inner.checked(started, workflow, on_conflict).await?;
            match inner.answered(taken).await {
                Ok(()) => return Ok(handle_of(inner, id, run, Some(end), handle)),
                Err(RunError::Finished | RunError::NotFound) => {
                    if on_conflict != OnConflict::RestartFinished {
                        return Err(RunError::Finished.into());
                    }
                    // It ended before the signal came to it: there is room for another.
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl<'a, H: 'a> IntoFuture for StartWithSignal<'a, H> {
    type Output = Result<H, StartWithSignalError>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.perform())
    }
}
