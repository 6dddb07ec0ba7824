//! The future of a plain start. Hand-written, without a box: every run needs a start.
//!
//! ```text
//!   New ──► its shard's mailbox ──► Waiting ──► the handle
//!            │ full                    │ a finished run, whose workflow must be read
//!            └──────────► Slow ◄───────┘
//! ```

use std::fmt;
use std::future::IntoFuture;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::future::BoxFuture;
use millrun_core::{InstanceId, RunId};
use millrun_workflow::Name;
use tokio::sync::oneshot;

use super::{Asked, MakeHandle, OnConflict, Start, ask, handle_of};
use crate::StartError;
use crate::ending::stop::UnlessOver;
use crate::handles::run::End;
use crate::inner::{ForRoom, Inner};
use crate::mail::{GatheredAnswers, Reply, Request, StartedRun};

/// An awaited [`Start`].
#[must_use = "nothing is started until this is polled"]
pub struct Starting<'a, H> {
    inner: &'a Arc<Inner>,
    step: Step<'a>,
    on_conflict: OnConflict,
    handle: MakeHandle<H>,
}

/// The progress of a start.
enum Step<'a> {
    New(Result<Asked, StartError>),
    Waiting(Waiting, UnlessOver<'a, StartAnswer>),
    Slow(Waiting, BoxFuture<'a, Result<RunId, StartError>>),
    Over,
}

type StartAnswer = oneshot::Receiver<Result<StartedRun, StartError>>;

/// What a start keeps until it is answered.
struct Waiting {
    id: InstanceId,
    workflow: Name,
    end: Option<End>,
}

impl<H> fmt::Debug for Starting<'_, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Starting").finish_non_exhaustive()
    }
}

impl<'a, H> IntoFuture for Start<'a, H> {
    type Output = Result<H, StartError>;
    type IntoFuture = Starting<'a, H>;

    #[inline]
    fn into_future(self) -> Starting<'a, H> {
        Starting {
            inner: self.inner,
            step: Step::New(self.asked),
            on_conflict: self.on_conflict,
            handle: self.handle,
        }
    }
}

impl<'a, H> Start<'a, H> {
    /// Asks the shard, whose answer is gathered under this number. A run that is not
    /// [checked](StartedRun::is_checked) is still to be, if the start attaches to it. Where the mailbox is full, gives the wait for
    /// room: nothing is asked until that is over.
    ///
    /// # Errors
    /// When nothing is asked: then there is no answer either.
    pub(crate) fn asks(
        self,
        answers: &GatheredAnswers<StartedRun, StartError>,
        number: u32,
    ) -> Result<Option<ForRoom<'a>>, StartError> {
        let asked = self.asked?;
        let door = self.inner.doors.of(asked.id.partition());
        if let Some(cause) = self.inner.refusal_of_changes() {
            return Err(cause.into());
        }
        let reply = Reply::Gathered(answers.reply(number));
        let (request, _end) = asked.request(self.on_conflict, reply);
        // A runtime that has stopped just now drops the request, and with it the reply: that is an answer.
        let room = self.inner.push_or_wait(door, Request::Start(request));
        Ok(room.unwrap_or_default())
    }
}

impl<'a, H> Starting<'a, H> {
    /// Asks the shard.
    #[inline]
    fn begin(&self, asked: Asked) -> Step<'a> {
        let (inner, on_conflict) = (self.inner, self.on_conflict);
        let (reply, answer) = oneshot::channel();
        let (id, workflow) = (asked.id.clone(), asked.workflow.clone());
        let (request, end) = asked.request(on_conflict, reply.into());
        let waiting = Waiting { id, workflow, end };
        let request = Request::Start(request);
        let refused = if inner.refusal(&request).is_some() {
            request
        } else {
            let door = inner.doors.of(waiting.id.partition());
            match door.try_push(request) {
                Ok(()) => return Step::Waiting(waiting, inner.stop.unless_over(answer)),
                Err(request) => request,
            }
        };
        let (id, workflow) = (waiting.id.clone(), waiting.workflow.clone());
        let slow = async move {
            let started = ask(inner, &id, refused, answer).await?;
            inner.checked(started, workflow, on_conflict).await
        };
        Step::Slow(waiting, Box::pin(slow))
    }
}

impl<H> Future for Starting<'_, H> {
    type Output = Result<H, StartError>;

    /// # Panics
    /// When it is polled again after its end.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let inner = this.inner;
        let run = loop {
            match &mut this.step {
                Step::New(_) => {
                    let Step::New(asked) = mem::replace(&mut this.step, Step::Over) else {
                        unreachable!("it was new just now");
                    };
                    this.step = this.begin(asked?);
                }
                Step::Waiting(_, answer) => {
                    let answer = ready!(Pin::new(answer).poll(cx));
                    let started = match answer {
                        Some(Ok(Ok(started))) => started,
                        Some(Ok(Err(error))) => break Err(error),
                        Some(Err(_)) | None => break Err(inner.stop_cause().into()),
                    };
                    if started.is_checked || this.on_conflict != OnConflict::Attach {
                        break Ok(started.run);
                    }
                    let Step::Waiting(waiting, _) = mem::replace(&mut this.step, Step::Over) else {
                        unreachable!("it was waiting just now");
                    };
                    let checked = inner.checked(started, waiting.workflow.clone(), this.on_conflict);
                    this.step = Step::Slow(waiting, Box::pin(checked));
                }
                Step::Slow(_, rest) => break ready!(rest.as_mut().poll(cx)),
                Step::Over => panic!("a start is polled behind its end"),
            }
        };
        let (Step::Waiting(waiting, _) | Step::Slow(waiting, _)) = &mut this.step else {
            unreachable!("only these end");
        };
        let (id, end) = (waiting.id.clone(), waiting.end.take());
        this.step = Step::Over;
        Poll::Ready(run.map(|run| handle_of(inner, id, run, end, this.handle)))
    }
}
