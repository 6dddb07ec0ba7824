//! The inner part of a runtime, which all its handles share: requests to shards and readers, and why there is no answer.

use std::pin::Pin;
use std::sync::Arc;

use millrun_broker::Broker;
use millrun_core::{RunId, TaskHandle};
use millrun_persistence::{Journal, ReadError};
use millrun_workflow::Outcome;
use tokio::sync::{Semaphore, SemaphorePermit, oneshot};

use crate::actors::Actors;
use crate::ending::stop::StopCell;
use crate::host::TokioHost;
use crate::mail::{Request, ShardDoor, ShardDoors, Standing, Target};
use crate::opening::own_store::OwnStore;
use crate::opening::recovery::StartupReport;
use crate::shared::ShardShared;
use crate::tree::Tree;
use crate::{RunError, StopCause};

/// A wait for room at a shard. Returns whether the request was taken, which is false if the runtime has stopped.
pub(crate) type ForRoom<'a> = Pin<Box<dyn Future<Output = bool> + Send + 'a>>;

/// The state that all handles share. Padded by two cache lines from the reference count, to which every start and every
/// dropped handle writes: otherwise each reader on another core would have to fetch the line again.
#[repr(align(128))]
pub(crate) struct Inner {
    pub(crate) shared: Arc<ShardShared>,
    pub(crate) broker: Broker,
    pub(crate) doors: ShardDoors,
    pub(crate) journal: Arc<dyn Journal>,
    /// The store file, if the runtime opened one.
    pub(crate) store: Option<OwnStore>,
    pub(crate) tree: Arc<Tree>,
    pub(crate) report: StartupReport,
    /// The user's supervised actors.
    pub(crate) actors: Actors,
    pub(crate) stop: Arc<StopCell>,
    /// Its end shows that the host has ended.
    pub(crate) presence: TaskHandle,
    /// Limits the number of simultaneous searches among live runs.
    pub(crate) searching: Semaphore,
    pub(crate) tokio_host: std::sync::Mutex<Option<TokioHost>>,
}

impl Inner {
    /// Why the runtime has stopped. Stops the runtime if the journal has failed and nobody has noticed yet.
    pub(crate) fn settled_cause(&self) -> Option<StopCause> {
        if self.stop.get().is_none() {
            self.tree.look_at_journal();
        }
        self.stop.get().cloned()
    }

    /// Why the runtime does not answer.
    pub(crate) fn stop_cause(&self) -> StopCause {
        match self.settled_cause() {
            Some(cause) => cause,
            None if self.stop.is_closing() => StopCause::Shutdown,
            None => StopCause::Part {
                part: "shard".into(),
                message: "it was restarted while it worked on this; ask again".into(),
            },
        }
    }

    /// Sends a request to a shard, waiting for room if necessary, and waits for the answer.
    pub(crate) async fn ask<T, E: From<StopCause>>(
        &self,
        target: &Target,
        request: Request,
        answer: oneshot::Receiver<Result<T, E>>,
    ) -> Result<T, E> {
        self.ask_at(self.doors.of_target(target), request, answer).await
    }

    /// As [`ask`](Self::ask), at this door.
    pub(crate) async fn ask_at<T, E: From<StopCause>>(
        &self,
        door: &ShardDoor,
        request: Request,
        answer: oneshot::Receiver<Result<T, E>>,
    ) -> Result<T, E> {
        self.push_at(door, request).await?;
        match self.stop.unless_over(answer).await {
            Some(Ok(answer)) => answer,
            Some(Err(_)) | None => Err(self.stop_cause().into()),
        }
    }

    /// As [`ask_at`](Self::ask_at), for a future that is allocated for each request: the wait for room is boxed, which keeps
    /// the future small.
    pub(crate) async fn ask_in_little_memory<T, E: From<StopCause>>(
        &self,
        door: &ShardDoor,
        request: Request,
        answer: oneshot::Receiver<Result<T, E>>,
    ) -> Result<T, E> {
        if let Some(room) = self.push_or_wait(door, request)?
            && !room.await
        {
            return Err(self.stop_cause().into());
        }
        match self.stop.unless_over(answer).await {
            Some(Ok(answer)) => answer,
            Some(Err(_)) | None => Err(self.stop_cause().into()),
        }
    }

    /// As [`ask_at`](Self::ask_at), also while the runtime is shutting down.
    pub(crate) async fn ask_while_closing<T, E: From<StopCause>>(
        &self,
        door: &ShardDoor,
        request: Request,
        answer: oneshot::Receiver<Result<T, E>>,
    ) -> Result<T, E> {
        if self.shared.is_read_only {
            return Err(StopCause::ReadOnly.into());
        }
        if let Err(request) = door.try_push(request)
            && !Box::pin(door.push(request)).await
        {
            return Err(self.stop_cause().into());
        }
        match self.stop.unless_over(answer).await {
            Some(Ok(answer)) => answer,
            Some(Err(_)) | None => Err(self.stop_cause().into()),
        }
    }

    /// Sends a request to the shard behind this door, or returns the wait for room there.
    pub(crate) fn push_or_wait<'a>(
        &self,
        door: &'a ShardDoor,
        request: Request,
    ) -> Result<Option<ForRoom<'a>>, StopCause> {
        if let Some(cause) = self.refusal(&request) {
            return Err(cause);
        }
        let refused = door.try_push(request).err();
        Ok(refused.map(|request| Box::pin(door.push(request)) as ForRoom<'a>))
    }

    /// Why requests of this kind are refused, if they are.
    #[inline]
    pub(crate) fn refusal(&self, request: &Request) -> Option<StopCause> {
        match self.refusal_of_changes() {
            Some(StopCause::ReadOnly) if request.only_reads() => None,
            refusal => refusal,
        }
    }

    /// Why requests that change something are refused, if they are.
    #[inline]
    pub(crate) fn refusal_of_changes(&self) -> Option<StopCause> {
        if self.stop.is_closing() {
            return Some(StopCause::Shutdown);
        }
        self.shared.is_read_only.then_some(StopCause::ReadOnly)
    }

    /// Sends a request to the shard behind this door, waiting for room if necessary.
    pub(crate) async fn push_at(&self, door: &ShardDoor, request: Request) -> Result<(), StopCause> {
        if let Some(cause) = self.refusal(&request) {
            return Err(cause);
        }
        // The message is large, and would be moved once more for each future that holds it.
        let is_pushed = match door.try_push(request) {
            Ok(()) => true,
            Err(request) => door.push(request).await,
        };
        if is_pushed { Ok(()) } else { Err(self.stop_cause()) }
    }

    /// Waits until a search among live runs may begin; it ends when the permit is dropped.
    pub(crate) async fn search(&self) -> Result<SemaphorePermit<'_>, RunError> {
        let permit = self.stop.unless_over(Box::pin(self.searching.acquire())).await;
        match permit {
            Some(Ok(permit)) => Ok(permit),
            Some(Err(_)) | None => Err(self.stop_cause().into()),
        }
    }

    /// Waits for an answer.
    pub(crate) async fn answered<T, E: From<StopCause>>(
        &self,
        answer: oneshot::Receiver<Result<T, E>>,
    ) -> Result<T, E> {
        match self.stop.unless_over(answer).await {
            Some(Ok(answer)) => answer,
            Some(Err(_)) | None => Err(self.stop_cause().into()),
        }
    }

    /// Waits for an answer of a reader.
    pub(crate) async fn read<T, E: From<StopCause>>(
        &self,
        answer: impl Future<Output = Option<Result<T, E>>>,
    ) -> Result<T, E> {
        let answer = self.stop.unless_over(Box::pin(answer)).await.flatten();
        answer.unwrap_or_else(|| Err(self.stop_cause().into()))
    }

    /// As [`read`](Self::read), for something that only needs the store: if the runtime has stopped, its cause takes
    /// precedence over the failed read.
    pub(crate) async fn view<T>(
        &self,
        answer: impl Future<Output = Option<Result<T, RunError>>>,
    ) -> Result<T, RunError> {
        match self.read(answer).await {
            Err(RunError::Read(ReadError::Failed(_))) if let Some(cause) = self.settled_cause() => {
                Err(cause.into())
            }
            answer => answer,
        }
    }

    /// The run that continues a finished one, if there is one.
    pub(crate) async fn next_run(&self, target: &Target) -> Result<Option<RunId>, RunError> {
        match self.finished_standing(target.clone()).await? {
            Standing::Ended(Outcome::Continued(next)) => Ok(Some(next)),
            Standing::Ended(_) | Standing::Parked(_) => Ok(None),
        }
    }

    pub(crate) async fn finished_standing(&self, target: Target) -> Result<Standing, RunError> {
        self.read(self.shared.reader.outcome(target)).await
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.stop.set(StopCause::Shutdown);
        self.stop.tell();
        self.tree.abandon();
        self.presence.abort();
        let host = self.tokio_host.get_mut().map(Option::take).unwrap_or_default();
        if host.is_some() {
            self.journal.begin_close();
        }
        drop(host);
        self.tree.close_broker();
    }
}
