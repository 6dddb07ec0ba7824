//! A handle to one instance.

use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

use millrun_core::{Cause, InstanceId, RunId};
use millrun_workflow::{
    Outcome, ParkReason, Payload, Query, ResetPoint, RunFailure, Signal, TypedError, Update, WorkflowError,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;

use crate::handles::follow::Followed;
use crate::handles::updated::Decoder;
use crate::inner::Inner;
use crate::looking::describe::{InstanceDescription, InstanceStatus};
use crate::looking::why::Why;
use crate::mail::{
    Changed, Described, Latest, Question, Request, ResetOrder, Standing, Target, Tell, UpdateAnswer,
    UpdateRefused, UpdateRequest, Wake,
};
use crate::workflow::Unanswered;
use crate::{QueryError, ResultError, RunError, UpdateError};

/// An instance of a workflow, running or finished. A cheap clone; it keeps the runtime alive.
///
/// A handle from [`Runtime::start`](crate::Runtime::start) refers to that run, and to the runs that
/// [continue](crate::WorkflowContext::continue_as_new) it; one from [`Runtime::attach`](crate::Runtime::attach) refers to the
/// latest run of its id.
///
/// A handle belongs to the workflow with which it was made. Requests through it to an instance of another workflow are
/// refused as [`RunError::OtherWorkflow`], without any effect: the turn that would perform the request compares the names. An
/// instance that continues as another workflow still belongs to the one that it began as; its final value must have the
/// handle's type, or [`result`](Self::result) is [`ResultError::Payload`]. To reach an instance of any workflow, see
/// [`UntypedHandle`](crate::UntypedHandle).
///
/// # Cancel safety
/// Dropping a method's future gives up the answer. The request may still be performed.
pub struct RunHandle<O, E = WorkflowError> {
    inner: Arc<Inner>,
    target: Target,
    id: InstanceId,
    /// Where the end is reported without a further question, until a caller has waited for it.
    end: Mutex<Option<End>>,
    types: PhantomData<fn() -> (O, E)>,
}

/// Receives the end of a run.
pub(crate) type End = oneshot::Receiver<Result<Standing, RunError>>;

impl<O, E> Clone for RunHandle<O, E> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            target: self.target.clone(),
            id: self.id.clone(),
            end: Mutex::default(),
            types: PhantomData,
        }
    }
}

impl<O, E> fmt::Debug for RunHandle<O, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunHandle")
            .field("id", &self.id)
            .field("run", &self.run_id())
            .finish_non_exhaustive()
    }
}

impl<O, E> RunHandle<O, E> {
    pub(crate) fn new(inner: Arc<Inner>, id: InstanceId, target: Target) -> Self {
        Self {
            inner,
            target,
            id,
            end: Mutex::default(),
            types: PhantomData,
        }
    }

    /// The same run, as one with these types.
    pub(crate) fn retyped(of: RunHandle<Payload, RunFailure>) -> Self {
        Self {
            inner: of.inner,
            target: of.target,
            id: of.id,
            end: of.end,
            types: PhantomData,
        }
    }

    /// Attaches the receiver that is told the run's end.
    pub(crate) fn with_end(mut self, end: End) -> Self {
        self.end = Mutex::new(Some(end));
        self
    }

    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// The id of the instance.
    #[must_use]
    pub fn id(&self) -> &InstanceId {
        &self.id
    }

    /// The run that the handle refers to; `None` if it refers to the latest of its id.
    #[must_use]
    pub fn run_id(&self) -> Option<RunId> {
        match self.target {
            Target::Run(run) => Some(run),
            Target::Latest(_) => None,
        }
    }

    /// Sends a signal. It is durable when this returns; signals from one caller that awaits each
    /// arrive in that order.
    ///
    /// # Errors
    /// When there is no such run (any more), it is of another workflow, it takes no more signals, or the
    /// runtime has stopped.
    pub async fn signal<T: Serialize>(&self, signal: Signal<T>, value: T) -> Result<(), RunError> {
        self.send_signal(signal, value, None, None).await
    }

    /// As [`signal`](Self::signal), with the operation of a run that causes it, which the receiver's history keeps. An
    /// activity that sends a signal passes [its own](crate::ActivityContext::cause). A [trigger](crate::Runtime::on) sets it
    /// by itself for what a run has published.
    ///
    /// # Errors
    /// As [`signal`](Self::signal).
    pub async fn signal_caused_by<T: Serialize>(
        &self,
        cause: Cause,
        signal: Signal<T>,
        value: T,
    ) -> Result<(), RunError> {
        let cause = Some(Box::new(cause));
        self.send_signal(signal, value, cause, None).await
    }

    /// As [`signal`](Self::signal), with a request name of the caller's choice of 1 to 255 bytes: if it is repeated under the
    /// same name, nothing changes and the answer is the same, also when the run has ended since, and also with another value
    /// or signal, which is not recorded. So a caller that has not seen the answer may send it again. The run remembers the
    /// last 1,000 names, also when it continues as new. Names of signals and of updates are separate.
    ///
    /// ```
    /// # use millrun::{Runtime, Signal, Workflow, WorkflowContext, WorkflowError};
    /// const ITEM: Signal<u64> = Signal::named("item");
    /// const SUM: Workflow<(), u64> = Workflow::named("sum");
    ///
    /// async fn sum(cx: WorkflowContext, (): ()) -> Result<u64, WorkflowError> {
    ///     Ok(cx.receive(ITEM).await? + cx.receive(ITEM).await?)
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let runtime = Runtime::volatile().register(SUM, sum).start().await?;
    /// let run = runtime.start(SUM, "s", ()).await?;
    /// run.signal_as(ITEM, "delivery-7", 20).await?;
    /// run.signal_as(ITEM, "delivery-7", 20).await?; // Known, and not added again.
    /// run.signal_as(ITEM, "delivery-8", 22).await?;
    /// assert_eq!(run.result().await?, 42);
    /// run.signal_as(ITEM, "delivery-8", 22).await?; // Known of a run that has ended, too.
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`signal`](Self::signal), and when the name is empty or longer than 255 bytes.
    pub async fn signal_as<T: Serialize>(
        &self,
        signal: Signal<T>,
        request: &str,
        value: T,
    ) -> Result<(), RunError> {
        self.send_signal(signal, value, None, Some(request.into())).await
    }

    pub(crate) async fn send_signal<T: Serialize>(
        &self,
        signal: Signal<T>,
        value: T,
        cause: Option<Box<Cause>>,
        request: Option<Box<str>>,
    ) -> Result<(), RunError> {
        let encoded = Payload::encode(&value)?;
        // The value's own code may panic, which must not happen once the signal is durable.
        drop(value);
        self.tell(Tell::Signal {
            name: signal.name().into(),
            value: encoded,
            cause,
            request,
            is_by_name: false,
        })
        .await
    }

    /// Asks the run to cancel: its outstanding operations end with [`Cancelled`](crate::Cancelled), and its code decides what
    /// to do about that. A second request has no further effect. The request is durable when this returns.
    ///
    /// # Errors
    /// When there is no such run (any more), it is of another workflow, or the runtime has stopped.
    pub async fn cancel(&self, reason: &str) -> Result<(), RunError> {
        self.tell(Tell::Cancel {
            reason: reason.into(),
        })
        .await
    }

    /// Ends the run without asking its code, and stops its activities. Durable when this returns.
    ///
    /// # Errors
    /// When there is no such run (any more), it is of another workflow, or the runtime has stopped.
    pub async fn terminate(&self, reason: &str) -> Result<(), RunError> {
        self.tell(Tell::Terminate {
            reason: reason.into(),
        })
        .await
    }

    /// Resets the run to an event of its history: the run ends, and the instance continues in another run, which begins with
    /// the events up to that one and continues from there, with the present code. Both are durable, in one commit, when this
    /// returns; it returns a handle to the other run. A run that has ended, or whose code does not run, can be reset too,
    /// while it is retained and the latest of its instance.
    ///
    /// If the last kept event is one that the code is shown, such as the end of an activity, it is shown as if it came now,
    /// and the code decides again what follows. If it is a decision, all decisions up to it stay, and the operations that
    /// they have begun begin again.
    ///
    /// - Activities that have not ended at that event run under the other run, with new [idempotency
    ///   keys](crate::ActivityContext::idempotency_key). Attempts of the former run are cancelled, and their reports are
    ///   ignored.
    /// - Signals and updates behind the event are dropped, or sent to the other run [again](ResetPoint::keep_signals).
    ///   Requests to cancel and kept promises behind it are dropped. What the run remembered up to the event (answers to
    ///   updates, names of signals) is remembered; later ones only if they are kept.
    /// - A handle to a run that was live when it was reset refers to the other run from then on, and callers that wait for
    ///   its result wait for the other run. A run that had ended keeps its result, under its own run id.
    /// - The parent of a live child waits for the other run. A child that has ended cannot be reset, since its parent was
    ///   told.
    /// - A run is not reset while it waits for a child, nor to an event at which it waited for a child or a promise. Children
    ///   that have ended are not changed, and those behind the event are called again.
    /// - What was published stays published, and is published again if the code gets there.
    ///
    /// ```
    /// use millrun::operating::ResetPoint;
    /// use millrun::{Activity, ActivityContext, ActivityError, Runtime, Workflow, WorkflowContext, WorkflowError};
    ///
    /// const ORDER: Workflow<u64, u64> = Workflow::named("order");
    /// const CHARGE: Activity<u64, u64> = Activity::named("charge");
    ///
    /// async fn order(cx: WorkflowContext, cents: u64) -> Result<u64, WorkflowError> {
    ///     Ok(cx.call(CHARGE, cents).await?)
    /// }
    ///
    /// async fn charge(_cx: ActivityContext, cents: u64) -> Result<u64, ActivityError> {
    ///     Ok(cents)
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runtime = Runtime::volatile().register(ORDER, order).register(CHARGE, charge).start().await?;
    /// let run = runtime.start(ORDER, "order-7", 1_999).await?;
    /// run.result().await?;
    /// // 1 Started, 2 the call of the activity: it is called again.
    /// let again = run.reset(ResetPoint::to_event(2).because("charged the wrong account")).await?;
    /// assert_eq!(again.result().await?, 1_999);
    /// assert_ne!(again.run_id(), run.run_id());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`RunError::NotReset`] says why the run cannot continue from that event; nothing has changed. Otherwise when there is
    /// no such run, it is of another workflow, or the runtime has stopped.
    ///
    /// # Cancel safety
    /// If the future is dropped, the run may be reset or not: [describe](Self::describe) the instance, and name the run to be
    /// reset ([`of_run`](ResetPoint::of_run)) when asking again.
    pub async fn reset(&self, mut point: ResetPoint) -> Result<Self, RunError> {
        let (run, workflow) = match &self.target {
            Target::Run(run) => (point.run.or(Some(*run)), None),
            Target::Latest(latest) => (point.run, latest.workflow.clone()),
        };
        let host = &self.inner.shared.host;
        let id = self.id.clone();
        point.run = run;
        let order = ResetOrder {
            next: RunId::new(id.partition(), host.now(), host.random()),
            id: id.clone(),
            point,
        };
        let target = Target::Latest(Arc::new(Latest {
            id: id.clone(),
            workflow,
        }));
        for is_last in [false, true] {
            let (reply, answer) = oneshot::channel();
            let request = Request::Tell {
                target: target.clone(),
                what: Tell::Reset(Box::new(order.clone())),
                reply: reply.into(),
            };
            match self.inner.ask(&target, request, answer).await {
                // It ended while it was read, and is read again.
                Err(RunError::Finished | RunError::NotFound) if !is_last => {}
                answer => {
                    answer?;
                    break;
                }
            }
        }
        Ok(Self::new(Arc::clone(&self.inner), id, Target::Run(order.next)))
    }

    /// Resumes a parked run's code: the run is replayed, and takes up what arrived meanwhile. Resuming a run that is not
    /// parked changes nothing.
    ///
    /// # Errors
    /// When the code still does not fit the history, or the run was not reached or is of another workflow.
    pub async fn resume(&self) -> Result<(), RunError> {
        self.tell(Tell::Resume).await
    }

    /// Pauses the run's code until it is [resumed](Self::resume): inputs that arrive meanwhile are recorded, activities under
    /// way continue. It stays paused across restarts. A run whose code does not run anyway is not changed. Durable when this
    /// returns.
    ///
    /// # Errors
    /// When there is no such run (any more), it is of another workflow, or the runtime has stopped.
    pub async fn pause(&self, reason: &str) -> Result<(), RunError> {
        self.tell(Tell::Pause {
            reason: reason.into(),
        })
        .await
    }

    pub(crate) async fn tell(&self, what: Tell) -> Result<(), RunError> {
        let request = |target, reply| Request::Tell {
            target,
            what: what.clone(),
            reply,
        };
        match self.inner.follow(self.target.clone(), request).await? {
            Followed::Answered(()) => Ok(()),
            Followed::Gone(last) => match what {
                Tell::Signal {
                    request: Some(request),
                    ..
                } => {
                    let answer = self.inner.shared.reader.signal(last, request);
                    self.inner.read(answer).await
                }
                Tell::Signal { request: None, .. }
                | Tell::Cancel { .. }
                | Tell::Terminate { .. }
                | Tell::Pause { .. }
                | Tell::EndPromise { .. }
                | Tell::RecordReceived { .. }
                | Tell::Reset(_)
                | Tell::Resume => Err(RunError::Finished),
            },
        }
    }

    /// Queries the run's [state](crate::workflow::State), also that of a run that waits on disk or has ended, while it is
    /// retained. It changes nothing, and the answer is durable.
    ///
    /// # Errors
    /// See [`QueryError`].
    pub async fn query<S, Q: Serialize, A: DeserializeOwned>(
        &self,
        query: Query<S, Q, A>,
        question: Q,
    ) -> Result<A, QueryError> {
        let question = Question {
            name: query.name().into(),
            value: Payload::encode(&question).map_err(QueryError::Payload)?,
        };
        self.ask(question).await?.decode().map_err(QueryError::Payload)
    }

    pub(crate) async fn ask(&self, question: Question) -> Result<Payload, QueryError> {
        let request = |target, reply| Request::Query {
            target,
            question: question.clone(),
            reply,
        };
        match self.inner.follow(self.target.clone(), request).await? {
            Followed::Answered(answer) => Ok(answer),
            Followed::Gone(last) => {
                self.inner
                    .read(self.inner.shared.reader.query(last, question))
                    .await
            }
        }
    }

    /// Waits until `is_enough` accepts the answer to a query, and returns that answer. The run is asked at once, and again
    /// whenever it makes progress; in between nothing happens. It also waits for a run that has made no
    /// [state](crate::workflow::State) yet, and follows one that continues as new.
    ///
    /// Several turns in quick succession may be seen as one: what `is_enough` looks for should stay true once it is.
    ///
    /// ```
    /// use millrun::{Query, Runtime, Signal, Workflow, WorkflowContext, WorkflowError};
    ///
    /// const COUNT: Workflow<u64, ()> = Workflow::named("count");
    /// const ADD: Signal<u64> = Signal::named("add");
    /// const SUM: Query<u64, (), u64> = Query::named("sum");
    ///
    /// async fn count(cx: WorkflowContext, begin: u64) -> Result<(), WorkflowError> {
    ///     let sum = cx.state(begin);
    ///     loop {
    ///         let more = cx.receive(ADD).await?;
    ///         sum.change(|sum| *sum += more);
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let answering = COUNT.query(SUM, |sum, ()| *sum);
    /// let runtime = Runtime::volatile().register(answering, count).start().await?;
    /// let run = runtime.start(COUNT, "c", 1).await?;
    /// let (enough, _) = tokio::join!(run.until(SUM, (), |sum| *sum > 5), run.signal(ADD, 7));
    /// assert_eq!(enough?, 8);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`QueryError`]; it contains [`RunError::Finished`] when the run has ended and its last answer is not accepted,
    /// [`RunError::TooManyWatchers`] when as many callers wait at the run as may.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn until<S, Q: Serialize, A: DeserializeOwned>(
        &self,
        query: Query<S, Q, A>,
        question: Q,
        mut is_enough: impl FnMut(&A) -> bool,
    ) -> Result<A, QueryError> {
        let question = Question {
            name: query.name().into(),
            value: Payload::encode(&question).map_err(QueryError::Payload)?,
        };
        self.until_answered(question, |answer| {
            let answer = answer.decode().map_err(QueryError::Payload)?;
            Ok(is_enough(&answer).then_some(answer))
        })
        .await
    }

    /// As [`until`](Self::until), with a function that decodes each answer.
    pub(crate) async fn until_answered<A>(
        &self,
        question: Question,
        mut look: impl FnMut(Payload) -> Result<Option<A>, QueryError>,
    ) -> Result<A, QueryError> {
        loop {
            let changed = self.changed().await?;
            match self.ask(question.clone()).await {
                Ok(answer) => {
                    if let Some(enough) = look(answer)? {
                        return Ok(enough);
                    }
                }
                Err(QueryError::Unanswered(Unanswered::NoState)) if changed.is_some() => {}
                Err(error) => return Err(error),
            }
            self.inner.go_on(changed.ok_or(RunError::Finished)?).await?;
        }
    }

    /// Waits until `is_enough` accepts the [description](Self::describe) of the run, and returns it: the run waits for a
    /// signal, say. It is described at once, and again whenever it makes progress; in between nothing happens.
    ///
    /// ```
    /// # use millrun::{Runtime, Signal, Workflow, WorkflowContext, WorkflowError};
    /// # const ASK: Workflow<(), u64> = Workflow::named("ask");
    /// # const REPLY: Signal<u64> = Signal::named("reply");
    /// # async fn ask(cx: WorkflowContext, (): ()) -> Result<u64, WorkflowError> {
    /// #     Ok(cx.receive(REPLY).await?)
    /// # }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let runtime = Runtime::volatile().register(ASK, ask).start().await?;
    /// let run = runtime.start(ASK, "a", ()).await?;
    /// run.until_described(|described| described.awaits(REPLY.name())).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When there is no such run, it is of another workflow, it has ended and is not accepted ([`RunError::Finished`]), as
    /// many callers wait at it as may ([`RunError::TooManyWatchers`]), or the runtime has stopped.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn until_described(
        &self,
        mut is_enough: impl FnMut(&InstanceDescription) -> bool,
    ) -> Result<InstanceDescription, RunError> {
        loop {
            let changed = self.changed().await?;
            let described = self.describe_awake().await?;
            if is_enough(&described) {
                return Ok(described);
            }
            self.inner.go_on(changed.ok_or(RunError::Finished)?).await?;
        }
    }

    /// Completes when the run makes progress after this returned; `None` if it has ended.
    async fn changed(&self) -> Result<Option<Changed>, RunError> {
        let request = |target, reply| Request::Watch { target, reply };
        match self.inner.follow(self.target.clone(), request).await? {
            Followed::Answered(changed) => Ok(Some(changed)),
            Followed::Gone(_) => Ok(None),
        }
    }

    /// Asks for a change of the run's [state](crate::workflow::State). When this returns `Ok` the change is durable, and was
    /// made exactly once by this call.
    ///
    /// To be able to repeat it after an error, name the request: [`update_as`](Self::update_as).
    ///
    /// # Errors
    /// See [`UpdateError`].
    pub async fn update<S, I: Serialize, A: DeserializeOwned, R: TypedError>(
        &self,
        update: Update<S, I, A, R>,
        input: I,
    ) -> Result<A, UpdateError<R>> {
        let request = self.inner.request_name();
        self.update_as(update, &request, input).await
    }

    /// As [`update`](Self::update), with a request name of the caller's choice of 1 to 255 bytes: if it is repeated under the
    /// same name, the run returns its earlier answer, also when it has ended. It remembers the last 1,000; when it continues
    /// as new, of these the latest with together 64 KiB.
    ///
    /// # Errors
    /// See [`UpdateError`].
    pub async fn update_as<S, I: Serialize, A: DeserializeOwned, R: TypedError>(
        &self,
        update: Update<S, I, A, R>,
        request: &str,
        input: I,
    ) -> Result<A, UpdateError<R>> {
        let input = Payload::encode(&input).map_err(UpdateError::Payload)?;
        let request = UpdateRequest {
            request: request.into(),
            name: update.name().into(),
            input,
        };
        Decoder::typed().decode(self.ask_update(request).await)
    }

    pub(crate) async fn ask_update(&self, update: UpdateRequest) -> Result<UpdateAnswer, UpdateRefused> {
        let request = |target, reply| Request::Update {
            target,
            request: update.clone(),
            reply,
        };
        match self.inner.follow(self.target.clone(), request).await? {
            Followed::Answered(answer) => Ok(answer),
            Followed::Gone(last) => {
                let answer = self.inner.shared.reader.update(last, update.request);
                self.inner.read(answer).await
            }
        }
    }

    /// The description of the run: what it does and waits for, or that it has ended.
    ///
    /// A run that is only on disk stays there: a reader finds in its history what it waits for, without delaying the waking
    /// of runs. What only its code knows, such as the signals that it receives, is shown by
    /// [`describe_awake`](Self::describe_awake).
    ///
    /// # Errors
    /// When there is no such run, it is of another workflow, its history cannot be read, or the runtime has stopped.
    pub async fn describe(&self) -> Result<InstanceDescription, RunError> {
        self.inner.describe(self.target.clone(), Wake::Never).await
    }

    /// As [`describe`](Self::describe), but brings the run into memory, unless it has ended: its code then tells everything
    /// that it waits for, or why it does not run. That costs a replay, and perhaps another run's place in memory.
    ///
    /// # Errors
    /// As of [`describe`](Self::describe), and when as many callers wait for the run to be read as may
    /// ([`signals_len_max`](crate::Limits::signals_len_max)).
    pub async fn describe_awake(&self) -> Result<InstanceDescription, RunError> {
        self.inner.describe(self.target.clone(), Wake::First).await
    }

    /// Why the run makes no progress: what it waits for, and what its children wait for, down to the real obstacles. No run
    /// is brought into memory for it, except one that is parked without the reason in its history. Attempts, queues and
    /// topics are shown in their present state. Printed, it is a tree of lines, for people.
    ///
    /// ```
    /// # use millrun::{Runtime, Signal, Workflow, WorkflowContext, WorkflowError};
    /// const CONFIRMED: Signal<()> = Signal::named("confirmed");
    /// const ORDER: Workflow<(), ()> = Workflow::named("order");
    ///
    /// async fn order(cx: WorkflowContext, (): ()) -> Result<(), WorkflowError> {
    ///     Ok(cx.receive(CONFIRMED).await?)
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let runtime = Runtime::volatile().register(ORDER, order).start().await?;
    /// let run = runtime.start(ORDER, "order-1", ()).await?;
    /// run.until_described(|run| run.awaits("confirmed")).await?;
    /// let why = run.why().await?;
    /// println!("{why}"); // order-1 (order) waits for the signal confirmed (for 3 h, at src/main.rs:6:8)
    /// # assert!(why.to_string().starts_with("order-1 (order) waits for the signal confirmed (for "), "{why}");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As of [`describe`](Self::describe).
    ///
    /// # Cancel safety
    /// It only reads.
    pub async fn why(&self) -> Result<Why, RunError> {
        self.inner.why(self.target.clone(), Wake::Never).await
    }

    /// As [`why`](Self::why), but brings the runs into memory: their code tells for which signals and conditions they wait,
    /// and where.
    ///
    /// # Errors
    /// As of [`describe_awake`](Self::describe_awake).
    pub async fn why_awake(&self) -> Result<Why, RunError> {
        self.inner.why(self.target.clone(), Wake::First).await
    }

    /// The run's end, if it was reported already. Other reports are not used, since they may be out of date: that it is
    /// parked may come after the answer to a resume.
    async fn told_end(&self) -> Option<Standing> {
        let end = self.end.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        match self.inner.stop.unless_over(end).await?.ok()?.ok()? {
            Standing::Ended(Outcome::Continued(_)) | Standing::Parked(_) => None,
            ended => Some(ended),
        }
    }

    /// Why the run is parked, in a read-only store, whose shards bring no code back and so do not tell.
    async fn known_as_parked(&self) -> Result<Option<ParkReason>, RunError> {
        if !self.inner.shared.is_read_only {
            return Ok(None);
        }
        Ok(self.describe().await?.parked)
    }

    pub(crate) async fn standing(&self) -> Result<Standing, RunError> {
        if let Some(standing) = self.told_end().await {
            return Ok(standing);
        }
        if let Some(reason) = self.known_as_parked().await? {
            return Ok(Standing::Parked(reason));
        }
        let mut target = self.target.clone();
        loop {
            let (reply, answer) = oneshot::channel();
            let question = Request::Await {
                target: target.clone(),
                reply: reply.into(),
            };
            let standing = match self.inner.ask(&target, question, answer).await {
                Err(RunError::NotFound) => self.inner.finished_standing(target).await?,
                answer => answer?,
            };
            match standing {
                Standing::Ended(Outcome::Continued(next)) => target = Target::Run(next),
                standing => return Ok(standing),
            }
        }
    }
}

impl Inner {
    /// The description of a run, or of the run that continues it.
    pub(crate) async fn describe(&self, target: Target, wake: Wake) -> Result<InstanceDescription, RunError> {
        let request = |target, reply| Request::Describe { target, wake, reply };
        let mut before = None;
        loop {
            let on_disk = match self.follow(target.clone(), request).await? {
                Followed::Answered(Described::InMemory(description)) => return Ok(*description),
                Followed::Answered(Described::OnDisk(on_disk)) => on_disk,
                Followed::Gone(last) => return self.read(self.shared.reader.describe(last)).await,
            };
            let description = self.read(self.shared.reader.describe_on_disk(on_disk)).await;
            let has_ended = match &description {
                Ok(description) => description.status == InstanceStatus::Finished,
                Err(error) => matches!(error, RunError::NotFound | RunError::Expired),
            };
            // A run that has ended since its shard was asked may have continued as new, so it is asked again.
            if !has_ended || before.replace(on_disk.run) == Some(on_disk.run) {
                return description;
            }
        }
    }
}

impl<O: DeserializeOwned, E: TypedError> RunHandle<O, E> {
    /// Waits for the run's end and gives its result, also after a restart and as long as the run
    /// is retained.
    ///
    /// # Errors
    /// [`ResultError::Failed`] and similar variants say how the run ended without a value; [`ResultError::Parked`] that it
    /// has not ended, but needs an operator.
    pub async fn result(&self) -> Result<O, ResultError<E>> {
        match ended(self.standing().await.map_err(ResultError::Run)?) {
            Ok(value) => value.decode().map_err(ResultError::Payload),
            Err(error) => Err(error.try_map(|failure| failure.error.decode())),
        }
    }
}

/// Converts a standing for a caller that asks for the result.
pub(crate) fn ended(standing: Standing) -> Result<Payload, ResultError<RunFailure>> {
    match standing {
        Standing::Ended(Outcome::Completed(value)) => Ok(value),
        Standing::Ended(Outcome::Failed(error)) => Err(ResultError::Failed(error)),
        Standing::Ended(Outcome::Cancelled(error)) => Err(ResultError::Cancelled(error)),
        Standing::Ended(Outcome::Terminated(reason)) => Err(ResultError::Terminated { reason }),
        Standing::Ended(Outcome::TimedOut(timeout)) => Err(ResultError::TimedOut(timeout)),
        Standing::Ended(Outcome::Continued(run)) => {
            let message = format!("it goes on in run {run}");
            Err(ResultError::Run(RunError::History(message)))
        }
        Standing::Parked(reason) => Err(ResultError::Parked(Box::new(reason))),
    }
}
