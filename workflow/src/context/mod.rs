//! What workflow code sees of the engine.

mod cell;
mod child;
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
/// A cheap clone. Its operations are lazy futures: they are decided when first polled, and
/// dropping one afterwards cancels it durably. Await nothing else in a workflow except what
/// these futures feed (channels between branches of the same workflow are fine): the engine
/// could not wake it in a replay, and parks a run whose code waits for something unknown.
///
/// Several at once: [`join`](Self::join), [`race`](Self::race), a [`join_set`](Self::join_set), or any
/// macro or combinator that polls in the order written, as `futures::join!` and `futures::select_biased!`
/// do, and `tokio::join!`, `tokio::try_join!` and `tokio::select!` when they begin with `biased;`. Without
/// that, either `select!` polls in a random order, and sooner or later a replay parks the run. Tokio's
/// joins then begin with another branch at each poll: a replay polls as often and fits, but code that is
/// polled once more or less decides something else.
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
    /// The input is encoded now, once; the activity gets exactly these bytes, however often it
    /// runs.
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

    /// Starts a child workflow under an id of its own, and waits for its end. It runs beside this
    /// run as any other: it is signalled, queried and found by its id.
    ///
    /// The child is started exactly once. When its caller lets go of it, by ending or by dropping
    /// the future, it is [asked to cancel](crate::ParentClose::Cancel), unless
    /// [`on_close`](Child::on_close) says otherwise; how it ends is not waited for then. Going on in
    /// another run and making a checkpoint let go of it, too.
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

    /// As [`child`](Self::child), with the workflow's name and its input as encoded: for code that learns them while it runs. A
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

    /// Ends this run and goes on in another of the same instance, which begins with this argument
    /// and an empty history, in the same commit. Signals that were not taken go with it, and so do
    /// callers that wait for the result. Operations that are outstanding are cancelled.
    ///
    /// What it gives reads as the result, since that of the next run is the result of this one, and both are
    /// of one type; but the code does not come so far. The future is ready only if the run cannot go on, with
    /// an error that says why. The latest answers to updates go with it too, up to [64 KiB](crate::ANSWERS_CARRIED_BYTES_MAX): an update that is asked for again
    /// of the next run has its answer.
    ///
    /// All that goes with it is one turn, which the journal bounds (`turn_bytes_max`). If the signals are
    /// too large for that, what led to this is refused, or the run is parked if it could not be, and
    /// nothing is lost: take them first, or raise the bound.
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

    /// Lets the code begin again from this state, so that the history before is not needed any more:
    /// [`checkpointed`](Self::checkpointed) gives the state then. The run stays the same, and so do
    /// its id, its numbering of steps, and signals that were not taken. Operations that are
    /// outstanding are cancelled; make the [state](Self::state) for queries anew.
    ///
    /// It bounds what the code is run again for, what an instance keeps in memory, and the length that
    /// [`history_len_max`](crate::Limits::history_len_max) counts. Once in
    /// [`kept_beginning_every`](crate::Limits::kept_beginning_every) events it also bounds what the run takes in the
    /// file, and what is read to wake it: the events before are gone then, unless the runtime is told to keep
    /// them, and what the run still needs of them is kept.
    ///
    /// What it gives reads as the result, which the code will give from there on. The future is ready only if
    /// there can be no checkpoint, with an error that says why. The state and the signals that were not taken
    /// are one turn, whose bound is as for [`continue_as_new`](Self::continue_as_new).
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
    /// **A [durable](crate::DurableTopic) topic**: the value becomes a record of it in the commit of the turn that tells this
    /// run so, which is that of the turn that asks for it, unless its batch is full. The record is there exactly if the
    /// run's history says that it was published: nothing is lost, repeated or [unknown](crate::PublishOutcome::Unknown).
    /// Dropped in the turn in which it was polled first, nothing is published.
    ///
    /// **A topic of the broker**: it is decided in this turn and performed after its commit;
    /// the future is ready when every subscription has taken the value or dropped it by its policy. A
    /// full topic that makes its publishers wait lets this run wait, on disk if need be. A runtime
    /// publishes to the topics that its builder was given; a publish to any other waits until one is
    /// opened that has the topic, as a warning and `describe` say.
    ///
    /// The envelope's key is the step's idempotency key, unless the publish says [another](PublishStep::key).
    /// A topic is in memory: after a crash of the process the value is not published again, unless it was known
    /// to wait for room. Where the crash came between the commit of the decision and that of its outcome, nobody
    /// knows whether the topic had taken the value; the run is told so by
    /// [`PublishOutcome::Unknown`](crate::PublishOutcome::Unknown), and goes on. Publish again what must arrive,
    /// and have readers pass over what they have had.
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

    /// Waits for a record of a durable topic: the next one that this run has not taken, of all or of those that have a
    /// [key](ReceiveRecord::key), a [beginning of one](ReceiveRecord::key_prefix) or a
    /// [correlation](ReceiveRecord::correlation). What it has taken stands in its history, and so how far it has come, in one
    /// turn: it gets each record once, whatever crashes, also behind a [checkpoint](Self::checkpoint) or as a
    /// [new run](Self::continue_as_new).
    ///
    /// The first time that a run waits for such records it gets those that were appended since the run began, by the clocks
    /// of their writers, unless it [says otherwise](ReceiveRecord::since): one that came before the code got here is not
    /// missed. A run that waits is unloaded as any that sleeps, and is not woken by other records. How far it has come is
    /// kept for each filter by itself, so that a record may be received by its key and by its correlation. Two waits at a
    /// time for the same get the same record. A record that retention drops before it could be looked at is not received.
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

    /// Takes records of a durable topic one after the other: [`receive_from`](Self::receive_from) for code that takes
    /// many. What was taken and how far the run has come are in its own turns, as there. Nothing is kept beside the
    /// history, and nothing is received before a record is awaited. Made in a scope, its waits are of that scope.
    ///
    /// The history grows with each record: a run that takes records for ever does so behind
    /// [checkpoints](Self::checkpoint).
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

    /// As [`publish`](Self::publish), to a topic whose name is known at run time only: one for each user, say. The
    /// runtime must have been told of which type the payloads of such topics are, with `RuntimeBuilder::topics`;
    /// until one is opened that was, the value waits.
    ///
    /// A topic is made when it is first published to. The broker bounds how many there are (`topics_max`, 65,536 by
    /// default), of which those that nobody uses make room; beyond that the publish ends with
    /// [`PublishStepError::Refused`](crate::PublishStepError::Refused), as it does where the name is no topic's or
    /// the topic is of another type. A name that is empty or longer than 255 bytes is refused at once.
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

    /// Signals another instance, or this one, by its id: a run of that instance has the signal in its history when the
    /// future is ready, once, however often either of the two or the process crashes. It finds it as any other, by
    /// [`receive`](Self::receive).
    ///
    /// It is decided in this turn and sent after its commit. An instance that is asleep is woken; one that is parked
    /// or paused takes the signal up later; of one that has [continued as new](Self::continue_as_new), the latest run
    /// gets it. As a handle, it names the workflow that the instance began as. What keeps an instance from being
    /// signalled is an error, after which the signal is recorded nowhere; how the run that gets it deals with it is
    /// not waited for. Where several signals to one instance are under way at a time, a crash may change their order:
    /// await each before the next where that matters.
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
            workflow.name(),
            id.into(),
            signal.name(),
            &value,
        )
    }

    /// Has an [entity](crate::Entity) perform a command, and waits for its answer. The entity begins with it if there is
    /// none.
    ///
    /// It is a call of an activity of millrun's own, whose attempts name the same request, so that the entity performs
    /// the command once, as long as it has performed no more than 1,000 others under a request since. It waits as long
    /// as the entity is parked or its partition moves. [`with`](crate::EntityStep::with) says more of the call.
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

    /// Has an [entity](crate::Entity) perform a command, exactly once: as [`signal_instance`](Self::signal_instance), whose
    /// errors it has. An entity that there is not yet begins with it, if its code is registered. The answer is not waited
    /// for, and a rejection is told to nobody.
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
            entity.name(),
            entity.id_of(key),
            command.name(),
            &input,
        )
    }

    /// Makes a promise that code outside of the run keeps or breaks, with its [token](Promise::token).
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

    /// A timer with this deadline, which may have passed: as [`sleep`](Self::sleep). One deadline can
    /// stand over several steps, each in a [race](Self::race) with it.
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

    /// Waits for a signal that is sent to this run, and takes it. Signals of one name are
    /// buffered from the run's start and taken in the order of their arrival. If several branches
    /// wait for the same name, the one that is polled first takes it.
    #[track_caller]
    pub fn receive<T>(&self, signal: Signal<T>) -> Receive<T> {
        Receive::new(
            Arc::clone(&self.shared),
            self.scope.clone(),
            Location::caller(),
            signal,
        )
    }

    /// Makes the run's state: what [queries](crate::Query) and [updates](crate::Update) of this
    /// run see. Make it before the first await, so that there is one when the first is asked.
    ///
    /// # Panics
    /// When the run has made one already: clone the handle instead.
    #[must_use]
    pub fn state<S: Send + 'static>(&self, initial: S) -> State<S> {
        State::new(Arc::clone(&self.shared), self.scope.clone(), initial)
    }

    /// Waits until the run is asked to cancel, or this context's scope is cancelled, and gives
    /// [the reason](crate::Cancelled::reason) as far as there is one.
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

    /// An error if the run has been asked to cancel, or the [scope](Self::scope) that this context belongs
    /// to has been cancelled: for code that is between two operations.
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
    /// [`Cancelled`], with the reason as far as there is one.
    pub fn check_cancelled(&self) -> Result<(), Cancelled> {
        self.shared.lock().cancelled(&self.scope).map_or(Ok(()), Err)
    }

    /// A part of the run that can be cancelled by itself.
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

    /// A context whose operations no cancel from around it touches: for cleaning up.
    #[must_use]
    pub fn shielded(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            scope: Scope::SHIELDED,
        }
    }

    /// The time of the event that the code is reacting to, or the latest time that the run has seen if the
    /// host's clock was set back since: time in a run never goes back, also across
    /// [checkpoints](Self::checkpoint) and when it [continues as new](Self::continue_as_new). A replay sees
    /// the same, and it does not move while the code runs.
    ///
    /// [`sleep`](Self::sleep) counts from the host's time, so that a run whose time is ahead of it does not
    /// sleep for longer; a deadline that the code computes from here is as far ahead as this time is.
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

    /// Takes a value from the world, once: the effect runs when the future is first polled, its
    /// value is recorded, and a replay sees the recorded value without running the effect again.
    ///
    /// A replay gives values back in the order in which they were recorded; [`named`](RecordStep::named) keeps
    /// two of one type from being taken for each other when their calls change places.
    ///
    /// For what is quick and cannot fail in a way worth a retry: reading a configuration, an id
    /// from another system. It runs on the thread of the run, before anything of its turn is
    /// durable: after a crash in between it runs once more. Use an [activity](Self::call) for
    /// anything else.
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
    /// When the value does not encode or decode, or is larger than a payload may be. The effect has run
    /// then, and a replay gives the same error. A panic of the effect is one of the run's code.
    #[track_caller]
    pub fn record<T, F>(&self, effect: F) -> RecordStep<F, T>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce() -> T + Unpin,
    {
        RecordStep::new(Arc::clone(&self.shared), Location::caller(), effect)
    }

    /// A step without a queue: the work is done here and now, on the thread of the run, and its end is
    /// recorded; a replay sees the recorded end. It costs one event and no message. An error that says
    /// it is [retryable](crate::TypedError::is_retryable) is tried again at once, three times in all. It may
    /// be [named](Local::named).
    ///
    /// For what takes microseconds: it holds up every other run of its shard. As with
    /// [`record`](Self::record), a crash before the commit lets it happen once more.
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
    /// [`CallError::Panicked`](crate::CallError::Panicked), or
    /// [`CallError::Payload`](crate::CallError::Payload) if its end does not encode or is larger than a
    /// payload may be.
    #[track_caller]
    pub fn local<T, E, F>(&self, work: F) -> Local<F, T, E>
    where
        T: Serialize + DeserializeOwned,
        E: TypedError,
        F: FnMut() -> Result<T, E> + Unpin,
    {
        Local::new(Arc::clone(&self.shared), Location::caller(), work)
    }

    /// Whether to take the new way of a change: `true` in every run that gets here for the first
    /// time, `false` in those that got here before the change was made. Runs of both kinds can be
    /// alive at once.
    ///
    /// When no run from before the change is left, remove the call and the old way: the markers
    /// that the new way left in histories are passed over.
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

    /// The id of the instance that this is a run of, under which it was started. Runs that
    /// [continue](Self::continue_as_new) it have the same.
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
