//! The builder of a runtime: it collects code and configuration, and starts what they make.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use millrun_broker::Broker;
use millrun_core::{Bell, Host};
use millrun_persistence::{Journal, Retention};
use millrun_workflow::{
    Activity, DurableTopic, EntityCode, EntityState, Implementation, Topic, TopicRenames, TopicTerms,
    TypedError,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::activity::{ActivityContext, ActivityImplementation, ActivityTap};
use crate::builtin;
use crate::code::workflows::{Workflows, is_reserved};
use crate::host::{HostConfig, TokioHost};
use crate::opening::assembly::{self, Code};
use crate::opening::place::StoreLocation;
use crate::opening::registry::{Definition, Registered, Registration};
use crate::opening::store::{self, Opener};
use crate::preflight::{Preflight, PreflightConfig};
use crate::topics::durable::declared::DeclaredTopic;
use crate::topics::durable::terms::TermsByFilter;
use crate::topics::publisher::{NamedPublisher, Publisher};
use crate::{OpenError, Runtime, RuntimeConfig};

/// Collects code and configuration; [`start`](Self::start) makes a [`Runtime`] of them.
#[must_use = "nothing happens before start"]
#[derive(Debug)]
pub struct RuntimeBuilder {
    place: StoreLocation,
    config: RuntimeConfig,
    registrations: Vec<Registration>,
    host: Option<Arc<dyn Host>>,
    journal: Option<Arc<dyn Journal>>,
    queues: BTreeSet<String>,
    topics: Vec<Publisher>,
    named_topics: Vec<NamedPublisher>,
    durable_topics: Vec<DeclaredTopic>,
    renamed_topics: Vec<(&'static str, &'static str)>,
    topic_terms: Vec<(&'static str, TopicTerms)>,
    broker: Option<Broker>,
    tap: Option<Arc<dyn ActivityTap>>,
    is_read_only: bool,
}

impl Runtime {
    /// Configures a runtime on the store at `path`, which is created if it does not exist.
    ///
    /// The file belongs to the runtime while it is open. If it is deleted, moved, replaced or truncated from outside, nothing
    /// more is acknowledged, and the runtime stops, even if it is idle: [`StopCause::Journal`](crate::StopCause) with
    /// [`FailureKind::FileGone`](crate::store::FailureKind) or a similar kind. A `cp` of an open file is no backup; use what
    /// [`store`](Self::store) makes, or a copy made after a [shutdown](Self::shutdown).
    ///
    /// With the feature `postgres`, a URL in place of a path opens a store in a schema of a PostgreSQL database, which is
    /// made if it does not exist: `Runtime::open("postgres://app@db/orders?schema=millrun")`. Then the configuration's
    /// `journal` applies, and `store` has no effect. For other bounds, open the journal with `PostgresJournal::open` of
    /// `millrun-postgres` and [pass it](RuntimeBuilder::journal). Without the feature a URL is refused as
    /// [`OpenError::NotBuilt`].
    pub fn open(path: impl Into<PathBuf>) -> RuntimeBuilder {
        RuntimeBuilder::new(path.into().into())
    }

    /// Configures a runtime that keeps everything in memory, until it ends.
    ///
    /// Finished runs are retained up to smaller bounds than on disk, those of
    /// [`Retention::in_memory`](crate::store::Retention::in_memory): `config.journal.retention` sets others, and so does
    /// [`RuntimeBuilder::config`], which replaces all bounds. If a caller asks for a result later than retention allows,
    /// perhaps because its task was delayed, it is told that the result has expired or is not known, and a start that is
    /// repeated after that begins another run. The handle of the start itself keeps the result of a run that stayed in memory
    /// and did not continue as new.
    pub fn volatile() -> RuntimeBuilder {
        let builder = RuntimeBuilder::new(StoreLocation::Memory);
        builder.configure(|config| config.journal.retention = Retention::in_memory())
    }
}

impl RuntimeBuilder {
    fn new(place: StoreLocation) -> Self {
        Self {
            place,
            config: RuntimeConfig::default(),
            registrations: Vec::new(),
            host: None,
            journal: None,
            queues: BTreeSet::new(),
            topics: Vec::new(),
            named_topics: Vec::new(),
            durable_topics: Vec::new(),
            renamed_topics: Vec::new(),
            topic_terms: Vec::new(),
            broker: None,
            tap: None,
            is_read_only: false,
        }
    }

    /// A runtime without code over a store that is only read.
    pub(crate) fn reading(path: PathBuf) -> Self {
        Self {
            is_read_only: true,
            ..Self::new(path.into())
        }
    }

    /// Binds code to a workflow or an activity.
    ///
    /// Names that begin with `millrun.` are reserved: [`start`](Self::start) refuses them with [`OpenError::ReservedName`].
    ///
    /// The code of an activity may be a closure that captures what it needs: each attempt gets a clone of that. A named
    /// function can take it as its first argument: [`register_with`](Self::register_with).
    ///
    /// ```
    /// use millrun::{Activity, ActivityContext, ActivityError, Runtime};
    ///
    /// const GREET: Activity<String, String> = Activity::named("greet");
    ///
    /// async fn greet(_cx: ActivityContext, name: String) -> Result<String, ActivityError> {
    ///     Ok(format!("Hello, {name}!"))
    /// }
    /// let builder = Runtime::volatile().register(GREET, greet);
    ///
    /// // The same, with a greeting that is known at run time only.
    /// let greeting = std::sync::Arc::new(String::from("Welcome"));
    /// let builder = Runtime::volatile()
    ///     .register(GREET, async move |_cx, name: String| Ok(format!("{greeting}, {name}!")));
    /// ```
    ///
    /// A workflow that also answers [queries](crate::Query) and takes [updates](crate::Update) of its
    /// [state](crate::workflow::State) is registered in the same way; its definition
    /// ([`AnsweringWorkflow`](crate::builders::AnsweringWorkflow)) has the handlers:
    ///
    /// ```
    /// use millrun::{Query, Runtime, Update, Workflow, WorkflowContext, WorkflowError};
    ///
    /// const CART: Workflow<usize, Vec<String>> = Workflow::named("cart");
    /// const LEN: Query<Vec<String>, (), usize> = Query::named("len");
    /// const ADD: Update<Vec<String>, String, usize> = Update::named("add");
    ///
    /// async fn cart(cx: WorkflowContext, full: usize) -> Result<Vec<String>, WorkflowError> {
    ///     let items = cx.state(Vec::new());
    ///     items.until(move |items| items.len() >= full).await?;
    ///     Ok(items.read(Vec::clone))
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let answering = CART
    ///     .query(LEN, |items, ()| items.len())
    ///     .update(ADD)
    ///     .validate(|_, item| if item.is_empty() { Err(WorkflowError::failed("no name")) } else { Ok(()) })
    ///     .change(|items, item| {
    ///         items.push(item);
    ///         items.len()
    ///     });
    /// let runtime = Runtime::volatile().register(answering, cart).start().await?;
    /// let run = runtime.start(CART, "ada", 2).await?;
    /// run.update(ADD, "bread".to_string()).await?;
    /// assert_eq!(run.query(LEN, ()).await?, 1);
    /// run.update(ADD, "milk".to_string()).await?;
    /// assert_eq!(run.result().await?, ["bread", "milk"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn register<D, F, Marker>(mut self, definition: D, code: F) -> Self
    where
        D: Definition<F, Marker>,
    {
        self.registrations.push(definition.bind(code));
        self
    }

    /// Binds code to an activity, with state that it needs: a client, a pool of connections. Each attempt gets a clone as its
    /// first argument, so put state that is costly to clone into an [`Arc`].
    ///
    /// Activities have the runtime itself without this: [`ActivityContext::runtime`].
    ///
    /// ```
    /// use std::sync::Arc;
    /// use millrun::{Activity, ActivityContext, ActivityError, Runtime};
    ///
    /// const CHARGE: Activity<u64, String> = Activity::named("charge");
    ///
    /// #[derive(Debug)]
    /// struct Bank {
    ///     name: String,
    /// }
    ///
    /// async fn charge(bank: Arc<Bank>, cx: ActivityContext, cents: u64) -> Result<String, ActivityError> {
    ///     Ok(format!("{}: {cents}, under {}", bank.name, cx.idempotency_key()))
    /// }
    ///
    /// let bank = Arc::new(Bank { name: "First National".into() });
    /// let builder = Runtime::volatile().register_with(bank, CHARGE, charge);
    /// ```
    pub fn register_with<S, I, O, E, F, Fut>(self, state: S, activity: Activity<I, O, E>, code: F) -> Self
    where
        S: Clone + Send + Sync + 'static,
        I: DeserializeOwned + Send + 'static,
        O: Serialize + Send + 'static,
        E: TypedError,
        F: FnOnce(S, ActivityContext, I) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
    {
        self.register(activity, move |cx: ActivityContext, input: I| {
            code(state, cx, input)
        })
    }

    /// Binds code that blocks its thread, or computes for long, to an activity: each attempt has a thread of its own, at most
    /// [`blocking_threads_max`](RuntimeConfig::blocking_threads_max) at a time. A thread cannot be stopped from outside:
    /// after a timeout or a cancel its result is not waited for, and long-running code should check
    /// [`ActivityContext::is_cancelled`] now and then. That is also true once the runtime stops. A thread that ignores it is
    /// waited for: in a shutdown as long as [`shutdown_wait_max`](RuntimeConfig::shutdown_wait_max) allows, in a drop up to
    /// 10 s; then it is left behind. On a [host](Self::host) of your own it is not waited for.
    ///
    /// ```
    /// use millrun::{Activity, ActivityContext, ActivityError, Runtime};
    ///
    /// const LEN: Activity<String, u64> = Activity::named("len");
    ///
    /// fn len(_cx: ActivityContext, path: String) -> Result<u64, ActivityError> {
    ///     Ok(std::fs::metadata(path)?.len())
    /// }
    /// let builder = Runtime::volatile().register_blocking(LEN, len);
    /// ```
    pub fn register_blocking<I, O, E, F>(mut self, activity: Activity<I, O, E>, code: F) -> Self
    where
        I: DeserializeOwned + Send + 'static,
        O: Serialize + Send + 'static,
        E: TypedError,
        F: Fn(ActivityContext, I) -> Result<O, E> + Send + Sync + 'static,
    {
        let activity = ActivityImplementation::blocking(activity, code);
        self.registrations
            .push(Registration(Registered::Activity(activity)));
        self
    }

    /// Binds code to an activity in place of any code that it has: for a test that uses a program's whole registry, but
    /// another bank.
    ///
    /// The [world](https://docs.rs/millrun-testkit) of `millrun-testkit` mocks activities in this way.
    ///
    /// ```
    /// use millrun::{Activity, ActivityContext, ActivityError, Runtime, RuntimeBuilder};
    ///
    /// const CHARGE: Activity<u64, String> = Activity::named("charge");
    ///
    /// # async fn charge(_cx: ActivityContext, _cents: u64) -> Result<String, ActivityError> { unimplemented!() }
    /// fn registered(builder: RuntimeBuilder) -> RuntimeBuilder {
    ///     builder.register(CHARGE, charge)
    /// }
    ///
    /// let builder = registered(Runtime::volatile());
    /// let builder = builder.replace_activity(CHARGE, async |_cx, cents: u64| Ok(format!("{cents} cents of play money")));
    /// ```
    pub fn replace_activity<I, O, E, F, Fut>(mut self, activity: Activity<I, O, E>, code: F) -> Self
    where
        I: DeserializeOwned + Send + 'static,
        O: Serialize + Send + 'static,
        E: TypedError,
        F: FnOnce(ActivityContext, I) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
    {
        self.registrations
            .retain(|Registration(registered)| match registered {
                Registered::Activity(former) => former.name != activity.name(),
                Registered::Workflow(_) => true,
            });
        self.register(activity, code)
    }

    /// Lets a tap see each attempt of the registered activities.
    #[doc(hidden)]
    pub fn tap_activities(mut self, tap: Arc<dyn ActivityTap>) -> Self {
        self.tap = Some(tap);
        self
    }

    /// Registers an entity, with its commands and queries: see [`Runtime::entity`]. Entities and workflows share one set of
    /// names.
    ///
    /// ```
    /// # use millrun::{Entity, EntityCommand, EntityContext, EntityState, Runtime, WorkflowError};
    /// # #[derive(serde::Serialize, serde::Deserialize)]
    /// # struct Counter(u64);
    /// # impl EntityState for Counter {
    /// #     type Event = u64;
    /// #     fn begin(_key: &str) -> Self { Self(0) }
    /// #     fn apply(&mut self, added: u64) { self.0 += added; }
    /// # }
    /// # fn add(sum: &Counter, more: u64, cx: &mut EntityContext<'_, Counter>) -> Result<u64, WorkflowError> {
    /// #     cx.emit(more);
    /// #     Ok(sum.0 + more)
    /// # }
    /// const COUNTER: Entity<Counter> = Entity::named("counter");
    /// const ADD: EntityCommand<Counter, u64, u64> = EntityCommand::named("add");
    ///
    /// let builder = Runtime::volatile().entity(COUNTER.command(ADD, add));
    /// ```
    pub fn entity<S: EntityState>(mut self, entity: EntityCode<S>) -> Self {
        let implementation = entity.implementation();
        self.registrations
            .push(Registration(Registered::Workflow(implementation)));
        self
    }

    /// The code of all workflows and entities registered so far, with which a test can replay histories.
    ///
    /// ```
    /// # use millrun::{Runtime, RuntimeBuilder, Workflow, WorkflowContext, WorkflowError};
    /// # const DOUBLE: Workflow<u64, u64> = Workflow::named("double");
    /// # async fn double(_cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    /// #     Ok(number * 2)
    /// # }
    /// fn registered(builder: RuntimeBuilder) -> RuntimeBuilder {
    ///     builder.register(DOUBLE, double)
    /// }
    ///
    /// let code = registered(Runtime::volatile()).implementations();
    /// assert_eq!(code[0].name(), "double");
    /// ```
    #[must_use]
    pub fn implementations(&self) -> Vec<Implementation> {
        let renamed = renames(&self.renamed_topics);
        let workflows = self.registrations.iter();
        let workflows = workflows.filter_map(|Registration(registered)| match registered {
            Registered::Workflow(implementation) => Some(knowing(implementation, &renamed)),
            Registered::Activity(_) => None,
        });
        workflows.collect()
    }

    /// Adds a task queue besides those of the registered activities: one for each tenant, say, which a call
    /// [names](crate::workflow::Call::on_queue) at run time. Any registered activity may be called there. Each queue has a
    /// pool and a concurrency limit of its own ([`queue_running_max`](RuntimeConfig::queue_running_max)), so that calls in
    /// one queue delay none in another. Adding a queue twice has no further effect.
    /// [`named_queues_len_max`](RuntimeConfig::named_queues_len_max) bounds their number.
    ///
    /// ```
    /// use millrun::Runtime;
    ///
    /// let tenants = ["acme", "globex"]; // as a file of the program's says, perhaps
    /// let builder = tenants.iter().fold(Runtime::volatile(), |builder, tenant| builder.queue(*tenant));
    /// ```
    pub fn queue(mut self, name: impl Into<String>) -> Self {
        self.queues.insert(name.into());
        self
    }

    /// Lets workflows [publish](crate::WorkflowContext::publish) to this topic. Publishes to a topic that is not registered
    /// wait, like calls of activities that are not registered.
    ///
    /// ```
    /// use millrun::{Runtime, Topic};
    ///
    /// const PLACED: Topic<u64> = Topic::named("orders.placed");
    /// let builder = Runtime::volatile().topic(PLACED);
    /// ```
    pub fn topic<T: DeserializeOwned + Send + Sync + 'static>(mut self, topic: Topic<T>) -> Self {
        self.topics.push(Publisher::new(topic));
        self
    }

    /// Lets the journal keep the records of a topic: the topic is declared when the runtime opens, and stays declared in the
    /// store. Workflows publish to it with [`WorkflowContext::publish`](crate::WorkflowContext::publish);
    /// [`Runtime::durable_topic`](crate::Runtime::durable_topic) publishes from outside and reads. A topic that the store
    /// knows gets the retention that is set here.
    ///
    /// The runtime does not start if a name is declared in two different ways ([`OpenError::TopicContradiction`]), or if the
    /// journal keeps no topics or refuses this one.
    ///
    /// ```
    /// use millrun::{DurableTopic, Runtime, Topic};
    ///
    /// const PLACED: DurableTopic<u64> = Topic::named("orders.placed").durable().len_max(1_000_000);
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runtime = Runtime::volatile().durable_topic(PLACED).start().await?;
    /// assert_eq!(runtime.durable_topics()[0].retention.len_max, 1_000_000);
    /// # Ok(())
    /// # }
    /// ```
    pub fn durable_topic<T: 'static>(mut self, topic: DurableTopic<T>) -> Self {
        self.durable_topics.push(DeclaredTopic::new(topic));
        self
    }

    /// Declares a [durable topic](Self::durable_topic) that had another name: if the store has a topic with the `former`
    /// name, it is renamed when the runtime opens, before anything else is declared. Its records, ids and tokens stay, and so
    /// do its subscriptions and triggers with their places. Runs whose histories have the former name continue with the
    /// renamed topic.
    ///
    /// Once the topic has its present name, this does nothing, and also if the store has never known the former one. Keep it
    /// as long as a run may live that began before: histories are not rewritten, and this is needed to replay them, also by
    /// [`preflight`](Self::preflight) and with [`implementations`](Self::implementations). If a topic is renamed again,
    /// declare each former name with the present one.
    ///
    /// The runtime does not start, and nothing is changed, if the store has topics of both names
    /// ([`OpenError::TopicNamesTaken`]), the journal cannot rename ([`OpenError::TopicNotRenamed`]), or the same former name
    /// is declared for another topic as well ([`OpenError::TopicContradiction`]).
    ///
    /// ```
    /// use millrun::{DurableTopic, Runtime, Topic};
    ///
    /// // Was `Topic::named("placed")`.
    /// const PLACED: DurableTopic<u64> = Topic::named("orders.placed").durable();
    ///
    /// let builder = Runtime::volatile().rename_durable_topic("placed", PLACED);
    /// ```
    pub fn rename_durable_topic<T: 'static>(mut self, former: &'static str, topic: DurableTopic<T>) -> Self {
        self.renamed_topics.push((former, topic.topic().name()));
        self.durable_topic(topic)
    }

    /// Sets how long the records and subscriptions of durable topics stay, for all topics that this filter selects among
    /// those [registered](Self::durable_topic) with the builder, before or after. In it `*` stands for one token of a name,
    /// and a `>` at its end for one or more.
    ///
    /// The terms of a topic are combined: its own, and those of each filter that selects it. The runtime does not start if a
    /// bound is set differently twice ([`OpenError::TopicContradiction`]), or a filter is not valid ([`OpenError::Topic`]).
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use millrun::topics::TopicTerms;
    /// use millrun::{DurableTopic, Runtime, Topic};
    ///
    /// const PLACED: DurableTopic<u64> = Topic::named("orders.placed").durable().len_max(1_000_000);
    /// const YEAR: Duration = Duration::from_secs(365 * 24 * 3_600);
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let orders = TopicTerms::new().age_max(YEAR).unread_bytes_max(4 << 30);
    /// let builder = Runtime::volatile().durable_topic(PLACED).topic_terms("orders.>", orders);
    /// let runtime = builder.start().await?;
    /// let retention = runtime.durable_topics()[0].retention;
    /// assert_eq!((retention.age_max, retention.len_max), (YEAR, 1_000_000));
    /// # Ok(())
    /// # }
    /// ```
    pub fn topic_terms(mut self, filter: &'static str, terms: TopicTerms) -> Self {
        self.topic_terms.push((filter, terms));
        self
    }

    /// Lets workflows [publish](crate::WorkflowContext::publish_to) to topics whose names are only known at run time, if this
    /// filter selects them: their payloads are `T`s. If a topic is registered by its own name, that counts; of two filters
    /// that select it, the first counts.
    ///
    /// ```
    /// use millrun::Runtime;
    ///
    /// // One topic for each user.
    /// let builder = Runtime::volatile().topics::<String>("users.*.notices");
    /// ```
    pub fn topics<T: DeserializeOwned + Send + Sync + 'static>(mut self, filter: &'static str) -> Self {
        self.named_topics.push(NamedPublisher::new::<T>(filter));
        self
    }

    /// Uses this broker instead of the runtime's own: to subscribe before the runtime starts, and for activities and actors
    /// that publish. It belongs to one runtime at a time.
    ///
    /// A broker that was made [without a host](Broker::without_host) uses the runtime's from the start on: time limits, of
    /// [`ask`](millrun_broker::TopicHandle::ask) say, are kept, waits are reported, and inboxes can be
    /// [served](millrun_broker::Inbox::serve). After the runtime's end it still has the time, but services that were started
    /// on that host have ended with it.
    ///
    /// It may outlive the runtime, which therefore leaves its subscriptions open: [close](Broker::close) it to end them.
    ///
    /// Values that waited for room in a full topic when the store was closed are published while the runtime starts, and so
    /// may be other publishes of workflows: a later subscriber, such as a trigger, does not get them.
    pub fn broker(mut self, broker: Broker) -> Self {
        self.broker = Some(broker);
        self
    }

    /// Sets all bounds and modes, also those that [`Runtime::volatile`] begins with.
    pub fn config(mut self, config: RuntimeConfig) -> Self {
        self.config = config;
        self
    }

    /// Changes some bounds or modes.
    ///
    /// ```
    /// let builder = millrun::Runtime::volatile().configure(|config| config.shards_len = 2);
    /// ```
    pub fn configure(mut self, change: impl FnOnce(&mut RuntimeConfig)) -> Self {
        change(&mut self.config);
        self
    }

    /// Whether the runtime hosts instances, true by default: [`RuntimeConfig::hosts_instances`].
    ///
    /// On a store that several nodes share, a node that hosts no instances is a client: it claims no partitions, runs no
    /// workflow and no activity, and declares no other node dead. All calls on runs and entities work as on any other node,
    /// through the store. Nodes that only run activities, for runs that other nodes host, are not supported yet.
    ///
    /// ```no_run
    /// # use millrun::{Runtime, Workflow};
    /// # const ORDER: Workflow<u32, u32> = Workflow::named("order");
    /// # async fn client() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = Runtime::open("postgres://app@db.example.com/orders?node=").hosts_instances(false).start().await?;
    /// let run = client.start(ORDER, "order-7", 7).await?;
    /// assert_eq!(run.result().await?, 14);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`start`](Self::start) returns [`OpenError::Config`] for `false` if this process has the store to itself, so that no
    /// other process could host the instances, and if partitions are named in [`RuntimeConfig::claimed_at_open`].
    pub fn hosts_instances(mut self, hosts_instances: bool) -> Self {
        self.config.hosts_instances = hosts_instances;
        self
    }

    /// Takes time, randomness, tasks and threads from this host instead of tokio: for tests, say. On the
    /// one below, time passes when nothing else can happen.
    ///
    /// ```
    /// use std::time::Duration;
    /// use millrun::{Runtime, Workflow, WorkflowContext, WorkflowError};
    /// use millrun_testkit::{SimConfig, SimHost};
    ///
    /// const REMIND: Workflow<u64, u64> = Workflow::named("remind");
    ///
    /// async fn remind(cx: WorkflowContext, days: u64) -> Result<u64, WorkflowError> {
    ///     cx.sleep(Duration::from_secs(days * 86_400)).await?;
    ///     Ok(days)
    /// }
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let world = SimHost::new(SimConfig::seeded(7));
    /// let host = world.host();
    /// let builder = Runtime::volatile().host(world.host()).register(REMIND, remind);
    /// let before = host.now();
    /// world.block_on(async {
    ///     let runtime = builder.start().await?;
    ///     let run = runtime.start(REMIND, "renewal", 365).await?;
    ///     assert_eq!(run.result().await?, 365);
    ///     Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
    /// })?.map_err(|error| error.to_string())?;
    /// assert!(host.now() >= before + Duration::from_secs(365 * 86_400));
    /// # Ok(())
    /// # }
    /// ```
    pub fn host(mut self, host: Arc<dyn Host>) -> Self {
        self.host = Some(host);
        self
    }

    /// Keeps everything in this journal instead of a file of the runtime's own. The journal was opened with bounds of its
    /// own: of [`RuntimeConfig::journal`], which should have the same, only `turn_bytes_max` applies, and
    /// [`RuntimeConfig::store`] has no effect.
    ///
    /// If a journal is opened once and given to several runtimes, one after the other, the same attempt number may be used
    /// twice, if the process crashes before the later runtime's first commit.
    pub fn journal(mut self, journal: Arc<dyn Journal>) -> Self {
        self.journal = Some(journal);
        self
    }

    /// Tries the registered code on the runs of the store at the path, which no process has open: a closed store, or a
    /// [backup](crate::store::StoreHandle::backup). The history of each live run is replayed, on several threads; nothing is
    /// called, and not a byte is written. The report says which runs would be parked, and where code and history differ: each
    /// difference once, however many runs have it.
    ///
    /// A program that runs it on a command-line argument can be tried before it is deployed:
    ///
    /// ```
    /// # use millrun::{Runtime, RuntimeBuilder, Workflow, WorkflowContext, WorkflowError};
    /// # use std::process::ExitCode;
    /// # const ORDER: Workflow<u64, u64> = Workflow::named("order");
    /// # async fn order(_cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    /// #     Ok(number * 2)
    /// # }
    /// fn app(store: &std::path::Path) -> RuntimeBuilder {
    ///     Runtime::open(store).register(ORDER, order)
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let store = &folder.path().join("app.redb");
    /// # app(store).start().await?.shutdown().await?;
    /// # let is_asked_for = true;
    /// if is_asked_for {
    ///     let report = app(store).preflight().await?;
    ///     println!("{report}");
    ///     return Ok(if report.is_fit() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    /// }
    /// # Ok(ExitCode::SUCCESS)
    /// # }
    /// ```
    ///
    /// [`Preflight::configure`] sets the number of threads, includes finished runs, and more. Of the builder it uses the
    /// path, the registered code, `limits` and `store` of the configuration, and the host.
    ///
    /// # Errors
    /// Awaiting it gives a [`PreflightError`](crate::preflight::PreflightError) if the store cannot be read. Code that does
    /// not fit is no error.
    ///
    /// # Cancel safety
    /// Dropping the future ends the preflight. The file is released when each thread has finished its present run.
    pub fn preflight(self) -> Preflight {
        let place = match self.place {
            StoreLocation::File(path) if self.journal.is_none() => Some(path),
            _ => None,
        };
        Preflight {
            place,
            store: self.config.store.clone(),
            host: self.host,
            limits: self.config.limits,
            workflows: collect(self.registrations, &self.renamed_topics).map(|code| code.workflows),
            config: PreflightConfig::default(),
        }
    }

    /// Opens the store, recovers what was alive, and starts everything. When this returns, requests are accepted, and
    /// interrupted work continues.
    ///
    /// # Errors
    /// See [`OpenError`], whose messages say what to do.
    ///
    /// # Cancel safety
    /// Dropping the future undoes the start; nothing in the store is lost.
    pub async fn start(self) -> Result<Runtime, OpenError> {
        self.config.check()?;
        let mut code = collect(self.registrations, &self.renamed_topics)?;
        code.is_read_only = self.is_read_only;
        if self.is_read_only {
            // Built-in workflows do not run either.
            code.workflows = Workflows::default();
        }
        if self.queues.len() > self.config.named_queues_len_max {
            let problem = format!(
                "must be at least {}, as many queues as are named",
                self.queues.len()
            );
            return Err(OpenError::Config {
                field: "named_queues_len_max",
                problem,
            });
        }
        if let Some(tap) = &self.tap {
            code.tap_activities(tap);
        }
        code.queues = self.queues;
        code.topics = self.topics;
        code.named_topics = self.named_topics;
        code.durable_topics = self.durable_topics;
        code.renamed_topics = self.renamed_topics;
        code.topic_terms = TermsByFilter::new(self.topic_terms)?;
        let (tokio_host, host) = match self.host {
            Some(host) => (None, host),
            None => {
                let config = HostConfig {
                    own_thread: self.config.own_thread && self.config.shards_len == 1,
                    ..HostConfig::default()
                };
                let owner = TokioHost::spawn(config).await?;
                let host = owner.host();
                (Some(owner), host)
            }
        };
        let opener = Opener {
            place: self.place,
            journal: self.journal,
            config: self.config.clone(),
            host: Arc::clone(&host),
            news_bell: Bell::new(),
            is_read_only: self.is_read_only,
        };
        let opened = store::open(opener).await?;
        assembly::assemble(host, tokio_host, self.config, code, self.broker, opened)
    }
}

/// The renames of topics, for workflow code.
fn renames(pairs: &[(&'static str, &'static str)]) -> Arc<TopicRenames> {
    Arc::new(pairs.iter().copied().collect())
}

/// The same code, with the renames of topics.
fn knowing(implementation: &Implementation, renamed: &Arc<TopicRenames>) -> Implementation {
    match renamed.is_empty() {
        true => implementation.clone(),
        false => implementation.with_renamed_topics(renamed),
    }
}

fn collect(
    registrations: Vec<Registration>,
    renamed: &[(&'static str, &'static str)],
) -> Result<Code, OpenError> {
    let renamed = renames(renamed);
    let mut code = Code {
        workflows: Workflows::default(),
        activities: BTreeMap::new(),
        queues: BTreeSet::new(),
        topics: Vec::new(),
        named_topics: Vec::new(),
        durable_topics: Vec::new(),
        renamed_topics: Vec::new(),
        topic_terms: TermsByFilter::default(),
        is_read_only: false,
    };
    for Registration(registered) in registrations {
        let (kind, name) = match &registered {
            Registered::Workflow(workflow) => ("workflow", workflow.name()),
            Registered::Activity(activity) => ("activity", activity.name),
        };
        if is_reserved(name) {
            return Err(OpenError::ReservedName { kind, name });
        }
        let registered = match registered {
            Registered::Workflow(workflow) => Registered::Workflow(knowing(&workflow, &renamed)),
            activity @ Registered::Activity(_) => activity,
        };
        code.insert(registered)?;
    }
    for Registration(registered) in builtin::registrations() {
        code.insert(registered)?;
    }
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_in_memory_retains_less_than_one_on_disk_unless_told_otherwise() {
        let retention = |builder: RuntimeBuilder| builder.config.journal.retention;
        assert_eq!(retention(Runtime::volatile()), Retention::in_memory());
        assert_eq!(retention(Runtime::open("app.redb")), Retention::default());
        let told = Runtime::volatile().config(RuntimeConfig::default());
        assert_eq!(retention(told), Retention::default());
    }
}
