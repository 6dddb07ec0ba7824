//! A start with an update.
//!
//! ```text
//!   StartWith ──► its shard ─┬─ started and updated in one turn ──► both answers
//!                            ├─ it runs: attached, updated later ─► an answer now, an answer later
//!                            └─ refused, nothing is started ──────► the update's answer alone
//! ```

use std::fmt;
use std::future::IntoFuture;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use millrun_core::{InstanceId, RunId};
use millrun_workflow::{Name, Payload, PayloadError, RunFailure};
use tokio::sync::oneshot;

use super::{Asked, OnConflict, Start, handle_of};
use crate::handles::run::End;
use crate::handles::updated::Decoder;
use crate::inner::Inner;
use crate::mail::{FirstRequest, Request, StartWith, Target, UpdateAnswer, UpdateRefused, UpdateRequest};
use crate::{RunError, RunHandle, StartError, StartWithUpdateError, UpdateError};

/// A start with an update, performed when it is awaited. Made by [`Start::with_update`] and its variants. It returns the
/// handle and the update's answer.
#[must_use = "nothing is started until this is awaited"]
pub struct StartWithUpdate<'a, H, A, R> {
    start: Start<'a, H>,
    name: Name,
    request: String,
    input: Result<Payload, PayloadError>,
    decoder: Decoder<A, R>,
}

impl<H, A, R> fmt::Debug for StartWithUpdate<'_, H, A, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StartWithUpdate")
            .field("start", &self.start)
            .field("name", &self.name)
            .field("request", &self.request)
            .finish_non_exhaustive()
    }
}

impl<'a, H, A, R> StartWithUpdate<'a, H, A, R> {
    pub(super) fn new(
        start: Start<'a, H>,
        name: Name,
        request: &str,
        input: Result<Payload, PayloadError>,
        decoder: Decoder<A, R>,
    ) -> Self {
        Self {
            start,
            name,
            request: request.to_owned(),
            input,
            decoder,
        }
    }

    /// As [`Start::on_conflict`].
    pub const fn on_conflict(mut self, on_conflict: OnConflict) -> Self {
        self.start.on_conflict = on_conflict;
        self
    }

    async fn perform(self) -> Result<(H, A), StartWithUpdateError<R>> {
        let decoder = self.decoder;
        let Start {
            inner,
            asked,
            on_conflict,
            handle,
        } = self.start;
        let asked = asked?;
        let id = asked.id.clone();
        let request = UpdateRequest {
            request: self.request,
            name: self.name,
            input: self.input.map_err(UpdateError::Payload)?,
        };
        loop {
            let (run, is_begun, end, answer) = inner
                .start_and_update(asked.clone(), request.clone(), on_conflict)
                .await
                .map_err(|refused| match refused {
                    NotStarted::Start(error) => StartWithUpdateError::Start(error),
                    NotStarted::Update(refused) => decoder.refused(refused).into(),
                })?;
            let answer = match answer {
                Err(UpdateRefused::Run(RunError::NotFound | RunError::Finished)) => {
                    if on_conflict.restarts() && !is_begun {
                        // It ended before the update reached it: another run can be started.
                        continue;
                    }
                    // It may have continued as new, or answered before it ended.
                    let handle = RunHandle::<Payload, RunFailure>::new(
                        Arc::clone(inner),
                        id.clone(),
                        Target::Run(run),
                    );
                    handle.ask_update(request).await
                }
                answer => answer,
            };
            let answer = decoder.decode(answer)?;
            return Ok((handle_of(inner, id, run, end, handle), answer));
        }
    }
}

impl<'a, H, A, R> IntoFuture for StartWithUpdate<'a, H, A, R>
where
    H: 'a,
    A: 'a,
    R: 'a,
{
    type Output = Result<(H, A), StartWithUpdateError<R>>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.perform())
    }
}

/// The outcome of an update.
type Updated = Result<UpdateAnswer, UpdateRefused>;

/// Why nothing was started.
enum NotStarted {
    Start(StartError),
    Update(UpdateRefused),
}

impl From<StartError> for NotStarted {
    fn from(error: StartError) -> Self {
        Self::Start(error)
    }
}

impl Inner {
    /// Returns the run, whether it was begun, the receiver of its end, and the outcome of the update.
    async fn start_and_update(
        &self,
        asked: Asked,
        update: UpdateRequest,
        on_conflict: OnConflict,
    ) -> Result<(RunId, bool, Option<End>, Updated), NotStarted> {
        let (reply, answer) = oneshot::channel();
        let (told, updated) = oneshot::channel();
        let (id, workflow) = (asked.id.clone(), asked.workflow.clone());
        let (start, end) = asked.request(on_conflict, reply.into());
        let with = FirstRequest::Update {
            update,
            reply: told.into(),
        };
        self.send(&id, Request::StartWith(Box::new(StartWith { start, with })))
            .await?;
        match self.stop.unless_over(answer).await {
            Some(Ok(started)) => {
                let started = started?;
                let run = self.checked(started, workflow, on_conflict).await?;
                Ok((run, started.is_begun, end, self.answered(updated).await))
            }
            // Nothing was started, and only the update is answered; or the shard has failed.
            Some(Err(_)) => match self.answered(updated).await {
                Err(UpdateRefused::Run(RunError::Stopped(cause))) => Err(StartError::from(cause).into()),
                Err(refused) => Err(NotStarted::Update(refused)),
                Ok(_) => Err(StartError::from(self.stop_cause()).into()),
            },
            None => Err(StartError::from(self.stop_cause()).into()),
        }
    }

    /// Sends a request to the shard of an id, waiting for room if necessary.
    async fn send(&self, id: &InstanceId, request: Request) -> Result<(), StartError> {
        if let Some(cause) = self.refusal(&request) {
            return Err(cause.into());
        }
        let door = self.doors.of(id.partition());
        if door.push(request).await {
            Ok(())
        } else {
            Err(self.stop_cause().into())
        }
    }
}
