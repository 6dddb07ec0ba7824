//! The engine as workflow code sees it.

mod cell;
mod child;
mod child_handle;
mod compose;
mod continuing;
mod join_set;
mod local;
mod operation;
mod promise;
mod publish;
mod pulse;
mod receive_record;
mod record;
mod record_subscription;
mod requests;
mod saga;
mod scope;
mod shared;
mod signalling;
mod slots;
mod time;
mod waiting;

use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use millrun_core::{InstanceId, RunId, Timestamp};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub(crate) use cell::Cell;
pub use cell::{State, Until};
pub use child::{Child, UntypedChild};
pub use child_handle::{ChildControl, ChildHandle, UntypedChildHandle};
pub use compose::Either;
pub use continuing::{ContinueAsNew, MakeCheckpoint};
pub use join_set::JoinSet;
pub use local::Local;
pub use operation::{Call, CancelRequest, RETRY_KINDS_MAX, Receive, START_TO_CLOSE_DEFAULT, Sleep};
pub use promise::Promise;
pub use publish::PublishStep;
pub(crate) use pulse::Pulse;
use receive_record::WantedRecords;
pub use receive_record::{RECEIVED_PLACES_MAX, ReceiveRecord, ReceivedRecord};
pub use record::RecordStep;
pub use record_subscription::RecordSubscription;
pub(crate) use requests::keep as keep_request;
pub use saga::{Saga, SagaError};
pub use scope::CancelScope;
use scope::Scope;
pub(crate) use shared::{After, Decision, Shared, Table};
pub use signalling::SignalInstance;
pub(crate) use slots::Wakers;
pub use waiting::Awaited;

use crate::retry::mix;
use crate::{
    Activity, Cancelled, DurableTopic, ENTITY_COMMAND, Entity, EntityCommand, EntityOrder, EntityState,
    EntityStep, NAME_BYTES_MAX, Payload, PayloadError, PublishTarget, Signal, TypedError, Workflow,
};

/// A workflow's door to everything durable: calls, timers, signals, time and randomness.
///
/// A cheap clone. Its operations are lazy futures: they are decided when first polled, and dropping one afterwards cancels it
/// durably. Await nothing else in a workflow, except what these futures feed (channels between branches of the same workflow
/// are fine). The engine could not wake the code for anything else in a replay, so it parks a run whose code waits for
/// something unknown.
///
/// Several at once: [`join`](Self::join), [`race`](Self::race), a [`join_set`](Self::join_set), or any macro or combinator
/// that polls in the order written, as `futures::join!` and `futures::select_biased!` do, and `tokio::join!`,
/// `tokio::try_join!` and `tokio::select!` if they begin with `biased;`. Without `biased;`, either `select!` polls in a
/// random order, and sooner or later a replay parks the run. Tokio's joins without it begin with another branch at each poll:
/// a replay makes as many polls and so fits, but changed code that is polled once more or less decides differently.
///
/// ```
/// # use std::time::Duration;
/// # use millrun_workflow::{Activity, Signal, WorkflowContext, WorkflowError};
/// # const SEARCH: Activity<String, u64> = Activity::named("search");
/// # const STOP: Signal<()> = Signal::named("stop");
/// async fn search(cx: WorkflowContext, what: String) -> Result<Option<u64>, WorkflowError> {
///     tokio::select! {
///         biased;
///         found = cx.call(SEARCH, what) => Ok(Some(found?)),
///         told = cx.receive(STOP) => Ok(told.map(|()| None)?),
///         over = cx.sleep(Duration::from_secs(60)) => Ok(over.map(|()| None)?),
///     }
/// }
/// ```
///
/// When the run is [asked to cancel](crate::Input::Cancel), each operation that is outstanding
/// or issued later ends with [`Cancelled`](crate::Cancelled), unless it was made by a
/// [shielded](Self::shielded) context.
#[derive(Clone, Debug)]
pub struct WorkflowContext {
    shared: Arc<Shared>,
    scope: Scope,
}

impl WorkflowContext {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            scope: Scope::default(),
        }
    }

    /// Calls an activity. The future gives its result, after as many attempts as its
    /// [retry policy](Call::retry) allows.
    ///
    /// The input is encoded now, once; each attempt of the activity gets exactly these bytes.
    #[track_caller]
    pub fn call<I: Serialize, O, E>(&self, activity: Activity<I, O, E>, input: I) -> Call<O, E> {
        Call::new(
            Arc::clone(&self.shared),
            self.scope.clone(),
            Location::caller(),
            activity,
            &input,
        )
    }

    /// Starts a child workflow under an id of its own, and waits for its end. The child is a run like any other: it can be
    /// signalled, queried and found by its id.
    ///
    /// The child is started exactly once. When its caller stops waiting for it, by ending or by dropping the future, the
    /// child is [asked to cancel](crate::ParentClose::Cancel), unless [`on_close`](Child::on_close) says otherwise; its end
    /// is not waited for then. Continuing as new and making a checkpoint also stop waiting for it.
    ///
    /// ```
    /// use millrun_workflow::{ParentClose, Workflow, WorkflowContext, WorkflowError};
    ///
    /// const SHIP: Workflow<u64, String> = Workflow::named("ship");
    ///
    /// async fn order(cx: WorkflowContext, number: u64) -> Result<String, WorkflowError> {
    ///     let parcel = cx.child(SHIP, format!("order-{number}/parcel"), number);
    ///     Ok(parcel.on_close(ParentClose::Abandon).await?)
    /// }
    /// ```
    #[track_caller]
    pub fn child<I: Serialize, O, E>(
        &self,
        workflow: Workflow<I, O, E>,
        id: impl Into<String>,
        input: I,
    ) -> Child<O, E> {
        Child::new(
            Arc::clone(&self.shared),
            self.scope.clone(),
            Location::caller(),
            workflow,
            id.into(),
            &input,
        )
    }

    /// As [`child`](Self::child), with the workflow's name and the encoded input: for code that learns them at run time. A
    /// name that is empty or longer than [`NAME_BYTES_MAX`](crate::NAME_BYTES_MAX) is
    /// [`ChildError::NotStarted`](crate::ChildError::NotStarted).
    ///
    /// ```
    /// # use millrun_workflow::{Payload, Workflow, WorkflowContext, WorkflowError};
    /// async fn each(cx: WorkflowContext, names: Vec<String>) -> Result<(), WorkflowError> {
    ///     for name in names {
    ///         let id = format!("{}/{name}", cx.instance_id());
    ///         let ended = cx.child_untyped(name, id, Payload::encode(&7)?).await;
    ///         drop(ended.map_err(|error| WorkflowError::failed(error.to_string()))?);
    ///     }
    ///     Ok(())
    /// }
    /// ```
    #[track_caller]
    pub fn child_untyped(
        &self,
        workflow: impl Into<String>,
        id: impl Into<String>,
        input: Payload,
    ) -> UntypedChild {
        UntypedChild::new(
            Arc::clone(&self.shared),
            self.scope.clone(),
            Location::caller(),
            workflow.into().into(),
            id.into(),
            input,
        )
    }

    /// Ends this run and continues in another run of the same instance, which begins with this argument and an empty history,
    /// in the same commit. Signals that were not taken move to the new run, and so do callers that wait for the result.
    /// Outstanding operations are cancelled.
    ///
    /// The future has the type of the run's result, so that it can be returned, since the result of the next run is also that
    /// of this one. But the code does not get any further: the future only completes if the run cannot continue, with an
    /// error that says why. The latest answers to updates move to the new run too, up to [64
    /// KiB](crate::ANSWERS_CARRIED_BYTES_MAX), so that an update that is repeated there gets its answer.
    ///
    /// All that moves to the new run is in one turn, whose size the journal bounds (`turn_bytes_max`). If the signals are too
    /// large for that, the input that led to this is refused, or the run is parked if the input could not be refused; nothing
    /// is lost. Take the signals first, or raise the bound.
    ///
    /// ```
    /// use millrun_workflow::{Signal, Workflow, WorkflowContext, WorkflowError};
    ///
    /// const READING: Signal<u64> = Signal::named("reading");
    /// const METER: Workflow<u64, u64> = Workflow::named("meter");
    ///
    /// /// Sums readings for ever, with a history that stays short.
    /// async fn meter(cx: WorkflowContext, mut sum: u64) -> Result<u64, WorkflowError> {
    ///     for _ in 0..1_000 {
    ///         sum += cx.receive(READING).await?;
    ///     }
    ///     Ok(cx.continue_as_new(METER, sum).await?)
    /// }
    /// ```
    #[track_caller]
    pub fn continue_as_new<I: Serialize, O, E>(
        &self,
        workflow: Workflow<I, O, E>,
        input: I,
    ) -> ContinueAsNew<O> {
        ContinueAsNew::new(
            Arc::clone(&self.shared),
            Location::caller(),
            workflow.name(),
            &input,
        )
    }

    /// Restarts the code from this state, so that the history before is not needed any more:
    /// [`checkpointed`](Self::checkpointed) returns the state then. The run stays the same, with its id, its numbering of
    /// steps, and signals that were not taken. Outstanding operations are cancelled; make the [state](Self::state) for
    /// queries anew.
    ///
    /// A checkpoint bounds how much of the code is replayed, the memory of an instance, and the length that
    /// [`history_len_max`](crate::Limits::history_len_max) counts. Once in
    /// [`kept_beginning_every`](crate::Limits::kept_beginning_every) events it also bounds the run's size in the file, and
    /// what is read to wake it: then the events before it are removed, unless the runtime is told to keep them, and what the
    /// run still needs of them is kept in a summary.
    ///
    /// The future has the type of the run's result, so that it can be returned. It only completes if there can be no
    /// checkpoint, with an error that says why. The state and the signals that were not taken are in one turn, bounded as for
    /// [`continue_as_new`](Self::continue_as_new).
    ///
    /// ```
    /// use millrun_workflow::{Signal, WorkflowContext, WorkflowError};
    ///
    /// const READING: Signal<u64> = Signal::named("reading");
    ///
    /// /// Sums readings until one is zero, with a history that stays short.
    /// async fn meter(cx: WorkflowContext, _: ()) -> Result<u64, WorkflowError> {
    ///     let mut sum: u64 = cx.checkpointed().transpose()?.unwrap_or(0);
    ///     for _ in 0..1_000 {
    ///         match cx.receive(READING).await? {
    ///             0 => return Ok(sum),
    ///             reading => sum += reading,
    ///         }
    ///     }
    ///     Ok(cx.checkpoint(&sum).await?)
    /// }
    /// ```
    #[track_caller]
    pub fn checkpoint<S: Serialize + ?Sized, O>(&self, state: &S) -> MakeCheckpoint<O> {
        MakeCheckpoint::new(Arc::clone(&self.shared), Location::caller(), state)
    }

    /// The state of the [checkpoint](Self::checkpoint) from which the code began; `None` if it began
    /// with the run.
    ///
    /// # Errors
    /// When it does not decode as an `S`.
    #[must_use]
    pub fn checkpointed<S: DeserializeOwned>(&self) -> Option<Result<S, PayloadError>> {
        let state = self.shared.lock().restored().cloned();
        state.map(|state| state.decode())
    }

    /// Publishes to a topic, of the broker or durable.
    ///
    /// **A [durable](crate::DurableTopic) topic**: the value becomes a record of the topic in the same commit as the turn
    /// that tells this run so, which is the commit of the publishing turn, unless its batch is full. The record exists if and
    /// only if the run's history says that it was published: nothing is lost, repeated or
    /// [unknown](crate::PublishOutcome::Unknown). If the future is dropped in the turn in which it was first polled, nothing
    /// is published.
    ///
    /// **A topic of the broker**: the publish is decided in this turn and performed after its commit. The future completes
    /// when every subscription has taken the value, or dropped it by its policy. If the topic is full and makes its
    /// publishers wait, this run waits, on disk if necessary. A runtime publishes to the topics that its builder was given; a
    /// publish to any other topic waits until a runtime with that topic is opened, as a warning and `describe` say.
    ///
    /// The envelope's key is the step's idempotency key, unless the publish sets [another](PublishStep::key). A topic of the
    /// broker is in memory: after a crash of the process the value is not published again, unless it was known to wait for
    /// room. If the crash came between the commit of the decision and that of its outcome, it is unknown whether the topic
    /// had taken the value; the run is told so by [`PublishOutcome::Unknown`](crate::PublishOutcome::Unknown), and continues.
    /// Publish again what must arrive, and let readers skip duplicates.
    ///
    /// ```
    /// use millrun_workflow::{PublishOutcome, Topic, WorkflowContext, WorkflowError};
    ///
    /// const PLACED: Topic<u64> = Topic::named("orders.placed");
    ///
    /// async fn order(cx: WorkflowContext, number: u64) -> Result<(), WorkflowError> {
    ///     while cx.publish(PLACED, number).await? == PublishOutcome::Unknown {}
    ///     Ok(())
    /// }
    /// ```
    #[track_caller]
    pub fn publish<P>(&self, topic: P, value: P::Payload) -> PublishStep
    where
        P: PublishTarget<Payload: Serialize>,
    {
        PublishStep::new(
            Arc::clone(&self.shared),
            self.scope.clone(),
            Location::caller(),
            topic.name().into(),
            &value,
        )
    }

    /// Waits for a record of a durable topic: the next one that this run has not taken, of all records or of those with a
    /// [key](ReceiveRecord::key), a [key prefix](ReceiveRecord::key_prefix) or a [correlation](ReceiveRecord::correlation).
    /// The record and the run's place in the topic are in the run's history, in one turn: the run gets each record once,
    /// whatever crashes, also behind a [checkpoint](Self::checkpoint) or as a [new run](Self::continue_as_new).
    ///
    /// When a run first waits for such records, it gets those that were appended since the run began, by the clocks of their
    /// writers, unless it [says otherwise](ReceiveRecord::since): a record that came before the code got here is not missed.
    /// A run that waits is unloaded like one that sleeps, and is not woken by other records. The run has a place for each
    /// filter separately, so that a record may be received both by its key and by its correlation. Two simultaneous waits
    /// with the same filter get the same record. A record that retention drops before the run has looked at it is not
    /// received.
    ///
    /// The runtime must have been told of the topic, by `RuntimeBuilder::durable_topic`; until one is opened that was, the
    /// run waits, as a warning and `describe` say.
    ///
    /// ```
    /// use millrun_workflow::{DurableTopic, Topic, WorkflowContext, WorkflowError};
    ///
    /// const PAID: DurableTopic<u64> = Topic::named("orders.paid").durable();
    ///
    /// async fn order(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    ///     let paid = cx.receive_from(PAID).key(format!("order-{number}")).await?;
    ///     Ok(paid.into_payload())
    /// }
    /// ```
    #[track_caller]
    pub fn receive_from<T>(&self, topic: DurableTopic<T>) -> ReceiveRecord<T> {
        ReceiveRecord::new(
            Arc::clone(&self.shared),
            self.scope.clone(),
            Location::caller(),
            topic.topic().name().into(),
            WantedRecords::default(),
        )
    }

    /// Takes records of a durable topic one after the other: [`receive_from`](Self::receive_from) for code that takes many.
    /// The records and the run's place are in the run's own turns, as there. Nothing is stored beside the history, and
    /// nothing is received before a record is awaited. If it is made in a scope, its waits belong to that scope.
    ///
    /// The history grows with each record: a run that takes records for ever should make [checkpoints](Self::checkpoint).
    ///
    /// ```
    /// use millrun_workflow::{DurableTopic, Topic, WorkflowContext, WorkflowError};
    ///
    /// const READ: DurableTopic<u64> = Topic::named("meters.read").durable();
    ///
    /// async fn sum(cx: WorkflowContext, meter: String) -> Result<u64, WorkflowError> {
    ///     let readings = cx.subscribe(READ).key(meter).from_beginning();
    ///     let mut sum = 0;
    ///     loop {
    ///         match readings.next().await?.into_payload() {
    ///             0 => return Ok(sum),
    ///             reading => sum += reading,
    ///         }
    ///     }
    /// }
    /// ```
    #[track_caller]
    pub fn subscribe<T>(&self, topic: DurableTopic<T>) -> RecordSubscription<T> {
        RecordSubscription::new(self.receive_from(topic))
    }

    /// As [`publish`](Self::publish), to a topic whose name is only known at run time: one for each user, say. The runtime
    /// must have been told the payload type of such topics, with `RuntimeBuilder::topics`; otherwise the value waits until
    /// such a runtime is opened.
    ///
    /// A topic is made by the first publish to it. The broker bounds the number of topics (`topics_max`, 65,536 by default);
    /// topics without users make room for new ones. Beyond that the publish ends with
    /// [`PublishStepError::Refused`](crate::PublishStepError::Refused), as it does if the name is not valid for a topic or
    /// the topic has another type. A name that is empty or longer than 255 bytes is refused at once.
    ///
    /// ```
    /// use millrun_workflow::{WorkflowContext, WorkflowError};
    ///
    /// async fn notify(cx: WorkflowContext, user: u64) -> Result<(), WorkflowError> {
    ///     cx.publish_to(format!("users.{user}.notices"), "your order has left".to_owned()).await?;
    ///     Ok(())
    /// }
    /// ```
    #[track_caller]
    pub fn publish_to<T: Serialize>(&self, topic: impl Into<String>, value: T) -> PublishStep {
        PublishStep::new(
            Arc::clone(&self.shared),
            self.scope.clone(),
            Location::caller(),
            topic.into().into(),
            &value,
        )
    }

    /// Signals another instance, or this one, by its id. When the future completes, a run of that instance has the signal in
    /// its history, exactly once, however often either run or the process crashes. The receiver gets it like any other
    /// signal, by [`receive`](Self::receive).
    ///
    /// The signal is decided in this turn and sent after its commit. An instance that is asleep is woken; one that is parked
    /// or paused takes the signal up later; of one that has [continued as new](Self::continue_as_new), the latest run gets
    /// it. Like a handle, the call names the workflow that the instance began as. If the instance cannot be signalled, the
    /// future ends with an error, and the signal is recorded nowhere; how the receiver deals with the signal is not waited
    /// for. If several signals to one instance are under way at once, a crash may change their order: await each before the
    /// next where the order matters.
    ///
    /// ```
    /// use millrun_workflow::{Signal, SignalInstanceError, Workflow, WorkflowContext, WorkflowError};
    ///
    /// const STOCK: Workflow<u64, u64> = Workflow::named("stock");
    /// const TAKEN: Signal<u64> = Signal::named("taken");
    ///
    /// async fn order(cx: WorkflowContext, number: u64) -> Result<bool, WorkflowError> {
    ///     match cx.signal_instance(STOCK, "stock-of-bolts", TAKEN, number).await {
    ///         Ok(()) => Ok(true),
    ///         Err(SignalInstanceError::NotFound | SignalInstanceError::Finished) => Ok(false),
    ///         Err(error) => Err(error.into()),
    ///     }
    /// }
    /// ```
    #[track_caller]
    pub fn signal_instance<I, O, E, T: Serialize>(
        &self,
        workflow: Workflow<I, O, E>,
        id: impl Into<String>,
        signal: Signal<T>,
        value: T,
    ) -> SignalInstance {
        SignalInstance::new(
            Arc::clone(&self.shared),
            self.scope.clone(),
            Location::caller(),
            workflow.name().into(),
            id.into(),
            signal.name(),
            &value,
        )
    }

    /// Sends a command to an [entity](crate::Entity), and waits for its answer. If the entity does not live, it begins with
    /// the command.
    ///
    /// The command is sent by a built-in activity, whose attempts use the same request name. So the entity performs the
    /// command once, as long as it has performed no more than 1,000 other named requests since. The call waits while the
    /// entity is parked or its partition moves. [`with`](crate::EntityStep::with) sets the options of the call.
    ///
    /// ```
    /// use millrun_workflow::{Entity, EntityCommand, EntityState, EntityStepError, WorkflowContext, WorkflowError};
    /// # #[derive(serde::Serialize, serde::Deserialize)]
    /// # struct Stock;
    /// # impl EntityState for Stock {
    /// #     type Event = ();
    /// #     fn begin(_key: &str) -> Self { Self }
    /// #     fn apply(&mut self, (): ()) {}
    /// # }
    ///
    /// const STOCK: Entity<Stock> = Entity::named("stock");
    /// const TAKE: EntityCommand<Stock, u64, u64> = EntityCommand::named("take");
    ///
    /// async fn order(cx: WorkflowContext, bolts: u64) -> Result<bool, WorkflowError> {
    ///     match cx.command(STOCK, "bolts", TAKE, bolts).await {
    ///         Ok(_left) => Ok(true),
    ///         Err(EntityStepError::Rejected(_)) => Ok(false),
    ///         Err(error) => Err(error.into()),
    ///     }
    /// }
    /// ```
    #[track_caller]
    pub fn command<S, I, A, E>(
        &self,
        entity: Entity<S>,
        key: &str,
        command: EntityCommand<S, I, A, E>,
        input: I,
    ) -> EntityStep<A, E>
    where
        S: EntityState,
        I: Serialize,
    {
        let call = Payload::encode(&input).map(|input| {
            let order = EntityOrder {
                entity: entity.name().into(),
                id: entity.id_of(key),
                command: command.name().into(),
                input: input.as_bytes().to_vec(),
            };
            self.call(ENTITY_COMMAND, order)
        });
        EntityStep::new(call)
    }

    /// Sends a command to an [entity](crate::Entity), which performs it exactly once: as
    /// [`signal_instance`](Self::signal_instance), with the same errors. If the entity does not live, it begins with the
    /// command, provided that its code is registered. The answer is not waited for, and a rejection is not reported.
    #[track_caller]
    pub fn tell<S, I, A, E>(
        &self,
        entity: Entity<S>,
        key: &str,
        command: EntityCommand<S, I, A, E>,
        input: I,
    ) -> SignalInstance
    where
        S: EntityState,
        I: Serialize,
    {
        SignalInstance::new(
            Arc::clone(&self.shared),
            self.scope.clone(),
            Location::caller(),
            entity.name().into(),
            entity.id_of(key),
            command.name(),
            &input,
        )
    }

    /// Makes a promise, which code outside of the run keeps or breaks by its [token](Promise::token).
    ///
    /// ```
    /// use millrun_workflow::{Activity, WorkflowContext, WorkflowError};
    ///
    /// const ASK_BY_MAIL: Activity<String, ()> = Activity::named("ask-by-mail");
    ///
    /// async fn approval(cx: WorkflowContext, _: ()) -> Result<bool, WorkflowError> {
    ///     let answer = cx.promise::<bool>();
    ///     cx.call(ASK_BY_MAIL, answer.token().to_string()).await?;
    ///     Ok(answer.await?)
    /// }
    /// ```
    #[track_caller]
    pub fn promise<T>(&self) -> Promise<T> {
        Promise::new(Arc::clone(&self.shared), self.scope.clone(), Location::caller())
    }

    /// A timer that survives restarts. It fires at its deadline or a little later, never before.
    #[track_caller]
    pub fn sleep(&self, duration: Duration) -> Sleep {
        Sleep::new(
            Arc::clone(&self.shared),
            self.scope.clone(),
            Location::caller(),
            duration,
        )
    }

    /// A timer with this deadline, which may have passed already: as [`sleep`](Self::sleep). One deadline can limit several
    /// steps: [race](Self::race) each with it.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use millrun_workflow::{Activity, Either, WorkflowContext, WorkflowError};
    /// const FETCH: Activity<u32, u32> = Activity::named("fetch");
    ///
    /// /// Fetches pages for an hour at most.
    /// async fn fetch(cx: WorkflowContext, pages: u32) -> Result<u32, WorkflowError> {
    ///     let deadline = cx.now() + Duration::from_secs(3_600);
    ///     for page in 0..pages {
    ///         match cx.race(cx.call(FETCH, page), cx.sleep_until(deadline)).await {
    ///             Either::Left(fetched) => drop(fetched?),
    ///             Either::Right(_) => return Ok(page),
    ///         }
    ///     }
    ///     Ok(pages)
    /// }
    /// ```
    #[track_caller]
    pub fn sleep_until(&self, deadline: Timestamp) -> Sleep {
        self.sleep(Duration::ZERO).until(deadline)
    }

    /// Waits for a signal to this run, and takes it. Signals of one name are buffered from the run's start and taken in the
    /// order of their arrival. If several branches wait for the same name, the one that is polled first takes it.
    #[track_caller]
    pub fn receive<T>(&self, signal: Signal<T>) -> Receive<T> {
        Receive::new(
            Arc::clone(&self.shared),
            self.scope.clone(),
            Location::caller(),
            signal,
        )
    }

    /// Makes the run's state, which [queries](crate::Query) and [updates](crate::Update) of this run see. Make it before the
    /// first await, so that it exists when the first of them comes.
    ///
    /// # Panics
    /// When the run has made its state already: clone the handle instead.
    #[must_use]
    pub fn state<S: Send + 'static>(&self, initial: S) -> State<S> {
        State::new(Arc::clone(&self.shared), self.scope.clone(), initial)
    }

    /// Waits until the run is asked to cancel, or this context's scope is cancelled, and returns [the
    /// reason](crate::Cancelled::reason) if there is one.
    #[track_caller]
    pub fn cancelled(&self) -> CancelRequest {
        CancelRequest::new(Arc::clone(&self.shared), self.scope.clone(), Location::caller())
    }

    /// Whether the run has been asked to cancel, or the [scope](Self::scope) that this context
    /// belongs to has been cancelled.
    #[must_use]
    pub fn is_cancel_requested(&self) -> bool {
        self.scope.is_cancelled(self.shared.lock().is_cancel_requested)
    }

    /// Returns an error if the run has been asked to cancel, or the [scope](Self::scope) that this context belongs to has
    /// been cancelled: for code between two operations.
    ///
    /// ```
    /// # use millrun_workflow::{Activity, WorkflowContext, WorkflowError};
    /// # const BOOK: Activity<String, u64> = Activity::named("book");
    /// # async fn book(cx: WorkflowContext, wanted: Vec<String>) -> Result<(), WorkflowError> {
    /// for what in wanted {
    ///     cx.check_cancelled()?;
    ///     cx.shielded().call(BOOK, what).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Cancelled`], with the reason if there is one.
    pub fn check_cancelled(&self) -> Result<(), Cancelled> {
        self.shared.lock().cancelled(&self.scope).map_or(Ok(()), Err)
    }

    /// A part of the run that can be cancelled separately.
    #[must_use]
    pub fn scope(&self) -> CancelScope {
        CancelScope::new(Self {
            shared: Arc::clone(&self.shared),
            scope: self.scope.child(),
        })
    }

    pub(crate) fn scope_ref(&self) -> &Scope {
        &self.scope
    }

    pub(crate) fn shared_ref(&self) -> &Shared {
        &self.shared
    }

    /// A context whose operations are not reached by any cancel from outside of it: for cleaning up.
    #[must_use]
    pub fn shielded(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            scope: Scope::SHIELDED,
        }
    }

    /// The time of the event that the code is reacting to, or the latest time that the run has seen if the host's clock was
    /// set back since: time in a run never goes back, also across [checkpoints](Self::checkpoint) and when the run [continues
    /// as new](Self::continue_as_new). A replay sees the same time, and it does not change while the code runs.
    ///
    /// [`sleep`](Self::sleep) counts from the host's time, so that a run whose time is ahead of the host's does not sleep
    /// longer. A deadline that the code computes from this time is ahead by as much.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.shared.lock().time.shown()
    }

    /// 64 random bits that are the same in every replay of this run, and differ between runs.
    /// Not for cryptography.
    #[must_use]
    pub fn random(&self) -> u64 {
        self.shared.pulse().check_inside();
        let mut table = self.shared.lock();
        table.random_len += 1;
        let run = table.run.bits();
        let high = u64::try_from(run >> 64).expect("a shift leaves 64 bits");
        let low = u64::try_from(run & u128::from(u64::MAX)).expect("a mask leaves 64 bits");
        mix(mix(mix(high) ^ low) ^ table.random_len)
    }

    /// A random UUID (version 4) as text, the same in every replay of this run. Like
    /// [`random`](Self::random), it is not for cryptography.
    #[must_use]
    pub fn uuid(&self) -> String {
        let (high, low) = (self.random(), self.random());
        format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xfff,
            0x8000 | (low >> 48 & 0x3fff),
            low & 0xffff_ffff_ffff,
        )
    }

    /// Takes a value from outside, once: the effect runs when the future is first polled, its value is recorded, and a replay
    /// returns the recorded value without running the effect again.
    ///
    /// A replay returns values in the order in which they were recorded. [`named`](RecordStep::named) keeps two values of one
    /// type from being confused when their calls change places.
    ///
    /// Use it for quick effects whose failure is not worth a retry: reading a configuration, an id from another system. The
    /// effect runs on the thread of the run, before anything of its turn is durable: after a crash in between it runs once
    /// more. Use an [activity](Self::call) for anything else.
    ///
    /// ```
    /// # use millrun_workflow::{Activity, WorkflowContext, WorkflowError};
    /// # const STORE: Activity<(String, u64), ()> = Activity::named("store");
    /// async fn backup(cx: WorkflowContext, _: ()) -> Result<(), WorkflowError> {
    ///     #[expect(clippy::disallowed_methods, reason = "it is recorded")]
    ///     let region = cx.record(|| std::env::var("REGION").unwrap_or_default()).await?;
    ///     Ok(cx.call(STORE, (region, cx.random())).await?)
    /// }
    /// ```
    ///
    /// # Errors
    /// When the value does not encode or decode, or is larger than a payload may be. The effect has run in that case, and a
    /// replay returns the same error. A panic of the effect counts as one of the run's code.
    #[track_caller]
    pub fn record<T, F>(&self, effect: F) -> RecordStep<F, T>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce() -> T + Unpin,
    {
        RecordStep::new(Arc::clone(&self.shared), Location::caller(), effect)
    }

    /// A step without a queue: the work is done here and now, on the thread of the run, and its result is recorded; a replay
    /// sees the recorded result. It costs one event and no message. If its error is
    /// [retryable](crate::TypedError::is_retryable), the step is tried again at once, up to three times in all. It may be
    /// [named](Local::named).
    ///
    /// Use it for work of microseconds: it delays every other run of its shard. As with [`record`](Self::record), a crash
    /// before the commit repeats it.
    ///
    /// ```
    /// # use millrun_workflow::{ActivityError, WorkflowContext, WorkflowError};
    /// async fn port(cx: WorkflowContext, text: String) -> Result<u16, WorkflowError> {
    ///     Ok(cx.local(|| text.parse::<u16>().map_err(ActivityError::from)).await?)
    /// }
    /// ```
    ///
    /// # Errors
    /// [`CallError::Failed`](crate::CallError::Failed) with the last attempt's error,
    /// [`CallError::Panicked`](crate::CallError::Panicked), or [`CallError::Payload`](crate::CallError::Payload) if the
    /// result does not encode or is larger than a payload may be.
    #[track_caller]
    pub fn local<T, E, F>(&self, work: F) -> Local<F, T, E>
    where
        T: Serialize + DeserializeOwned,
        E: TypedError,
        F: FnMut() -> Result<T, E> + Unpin,
    {
        Local::new(Arc::clone(&self.shared), Location::caller(), work)
    }

    /// Whether to take the new way of a change: `true` in every run that first gets here after the change was made, `false`
    /// in runs that got here before. Runs of both kinds can be alive at once.
    ///
    /// When no run from before the change is left, remove the call and the old way: the markers that the new way left in
    /// histories are ignored.
    ///
    /// ```
    /// # use millrun_workflow::{Activity, WorkflowContext, WorkflowError};
    /// # const CHARGE: Activity<u64, ()> = Activity::named("charge");
    /// # const CHARGE_WITH_LIMIT: Activity<u64, ()> = Activity::named("charge-with-limit");
    /// # async fn pay(cx: WorkflowContext, cents: u64) -> Result<(), WorkflowError> {
    /// if cx.patched("charge-with-limit") {
    ///     cx.call(CHARGE_WITH_LIMIT, cents).await?;
    /// } else {
    ///     cx.call(CHARGE, cents).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// When the id is empty or longer than [`NAME_BYTES_MAX`](crate::NAME_BYTES_MAX).
    #[must_use]
    #[track_caller]
    pub fn patched(&self, id: &'static str) -> bool {
        assert!(
            !id.is_empty() && id.len() <= NAME_BYTES_MAX,
            "a name has 1 to 255 bytes"
        );
        let location = Location::caller();
        self.shared
            .lock_polled()
            .is_some_and(|mut table| table.patch(id, location))
    }

    /// An empty set of branches whose results come in the order in which they are ready.
    #[must_use]
    pub fn join_set<T>(&self) -> JoinSet<T> {
        JoinSet::new()
    }

    /// An empty stack of compensations.
    pub fn saga(&self) -> Saga {
        Saga::new(self.shielded())
    }

    /// The id of this run's instance, under which it was started. Runs that [continue](Self::continue_as_new) this one have
    /// the same id.
    ///
    /// ```
    /// # use millrun_workflow::{Activity, WorkflowContext, WorkflowError};
    /// # const ANNOUNCE: Activity<String, ()> = Activity::named("announce");
    /// async fn order(cx: WorkflowContext, _: ()) -> Result<(), WorkflowError> {
    ///     Ok(cx.call(ANNOUNCE, cx.instance_id().as_str().into()).await?)
    /// }
    /// ```
    #[must_use]
    pub fn instance_id(&self) -> InstanceId {
        let id = self.shared.lock().id.clone();
        id.expect("code begins after its run")
    }

    /// The identity of this run.
    #[must_use]
    pub fn run_id(&self) -> RunId {
        self.shared.lock().run
    }
}
