//! A start with a signal.

use std::fmt;
use std::future::IntoFuture;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use millrun_workflow::{InputRefused, NAME_BYTES_MAX, Name, Payload, RunFailure};
use tokio::sync::oneshot;

use super::{OnConflict, Start, ask, handle_of};
use crate::mail::{FirstRequest, Request, StartWith, Target, Tell};
use crate::{RunError, RunHandle, StartWithSignalError};

/// A start with a signal, performed when it is awaited. Made by [`Start::with_signal`] and
/// its kin.
#[must_use = "nothing is started until this is awaited"]
pub struct StartWithSignal<'a, H> {
    start: Start<'a, H>,
    name: Name,
    value: Result<Payload, RunError>,
    /// The name of the request, if the signal has one.
    request: Option<Box<str>>,
    /// Whether it is sent by name only, with a value of any type.
    is_by_name: bool,
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
    pub(super) const fn new(
        start: Start<'a, H>,
        name: Name,
        value: Result<Payload, RunError>,
        request: Option<Box<str>>,
    ) -> Self {
        Self {
            start,
            name,
            value,
            request,
            is_by_name: false,
        }
    }

    pub(super) const fn by_name(mut self) -> Self {
        self.is_by_name = true;
        self
    }

    /// As [`Start::on_conflict`].
    pub const fn on_conflict(mut self, on_conflict: OnConflict) -> Self {
        self.start.on_conflict = on_conflict;
        self
    }

    async fn perform(self) -> Result<H, StartWithSignalError> {
        let Self {
            start,
            name,
            value,
            request,
            is_by_name,
        } = self;
        let Start {
            inner,
            asked,
            on_conflict,
            handle,
        } = start;
        let (asked, value) = (asked?, value?);
        for text in [Some(&*name), request.as_deref()].into_iter().flatten() {
            if text.is_empty() || text.len() > NAME_BYTES_MAX {
                let bytes = text.len();
                return Err(RunError::Refused(InputRefused::Name { bytes }).into());
            }
        }
        let bytes_max = inner.shared.config.limits.payload_bytes_max;
        if value.len() > bytes_max {
            let bytes = value.len();
            return Err(RunError::Refused(InputRefused::TooLarge { bytes, bytes_max }).into());
        }
        if is_by_name && let Some(code) = inner.shared.workflows.code_of(&*asked.workflow) {
            let checked = code.check_signal(&name, &value);
            checked.map_err(RunError::WrongType)?;
        }
        loop {
            let (reply, answer) = oneshot::channel();
            let (told, taken) = oneshot::channel();
            let (id, workflow) = (asked.id.clone(), asked.workflow.clone());
            let (start, end) = asked.clone().request(on_conflict, reply.into());
            let with = FirstRequest::Signal {
                name: name.clone(),
                value: value.clone(),
                request: request.clone(),
                is_by_name,
                reply: told.into(),
            };
            let message = Request::StartWith(Box::new(StartWith { start, with }));
            let started = ask(inner, &id, message, answer).await?;
            // Code that seldom waits is boxed, which keeps this future small.
            let run = match started.is_checked {
                true => started.run,
                false => Box::pin(inner.checked(started, workflow, on_conflict)).await?,
            };
            match inner.answered(taken).await {
                Ok(()) => return Ok(handle_of(inner, id, run, end, handle)),
                Err(RunError::Finished | RunError::NotFound) => {
                    if !on_conflict.restarts() {
                        if request.is_none() {
                            return Err(RunError::Finished.into());
                        }
                        // It may have continued as new, or had the signal before it ended.
                        let found = RunHandle::<Payload, RunFailure>::new(
                            Arc::clone(inner),
                            id.clone(),
                            Target::Run(run),
                        );
                        let cause = asked.details.and_then(|stems| stems.cause).map(Box::new);
                        let signal = Tell::Signal {
                            name,
                            value,
                            cause,
                            request,
                            is_by_name,
                        };
                        Box::pin(found.tell(signal)).await?;
                        return Ok(handle_of(inner, id, run, end, handle));
                    }
                    // It ended before the signal reached it: another run can be started.
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
