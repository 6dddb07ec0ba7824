//! From a path and some code to a running runtime.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use millrun_broker::Broker;
use millrun_core::{Bell, Epoch, Host, Next, Part, PartExit, Partition, Placement, Timestamp};
use millrun_persistence::{Claimant, Durability, Fold, Granted, Journal, MemoryJournal, Owner, RedbJournal};
use millrun_workflow::{Activity, Topic, TypedError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;

use crate::activity::{ActivityContext, ActivityImplementation};
use crate::assembly::{self, Code};
use crate::host::{HostConfig, TokioHost};
use crate::recovery::{self, RecoveredRun, StartupReport};
use crate::registry::{Definition, Registered, Registration};
use crate::topics::{NamedPublisher, Publisher};
use crate::upkeep::OwnStore;
use crate::workflows::Workflows;
use crate::{OpenError, Runtime, RuntimeConfig, StopCause};

/// Collects code and configuration; [`start`](Self::start) makes a [`Runtime`] of them.
#[must_use = "nothing happens before start"]
#[derive(Debug)]
pub struct RuntimeBuilder {
    path: Option<PathBuf>,
    config: RuntimeConfig,
    registrations: Vec<Registration>,
    host: Option<Arc<dyn Host>>,
    journal: Option<Arc<dyn Journal>>,
    queues: BTreeSet<String>,
    topics: Vec<Publisher>,
    named_topics: Vec<NamedPublisher>,
    broker: Option<Broker>,
}

impl RuntimeBuilder {
    pub(crate) fn new(path: Option<PathBuf>) -> Self {
        Self {
            path,
            config: RuntimeConfig::default(),
            registrations: Vec::new(),
            host: None,
            journal: None,
            queues: BTreeSet::new(),
            topics: Vec::new(),
            named_topics: Vec::new(),
            broker: None,
        }
    }

    /// Binds code to a workflow or an activity.
    ///
    /// The code of an activity may be a closure that captures what it needs: each attempt has a clone of
    /// that. Code with a name takes it as its first argument: [`register_with`](Self::register_with).
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
    /// [state](crate::workflow::State) is registered alike: its definition says what with
    /// ([`AnsweringWorkflow`](crate::builders::AnsweringWorkflow)):
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

    /// Binds code to an activity, and state that it needs: a client, a pool of connections. Each attempt gets
    /// a clone as its first argument, so put what is costly to clone into an [`Arc`].
    ///
    /// The runtime itself is state that each activity has already: [`ActivityContext::runtime`].
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

    /// Binds code that blocks its thread, or computes for long, to an activity: each attempt has a
    /// thread of its own, of which there are at most
    /// [`blocking_threads_max`](RuntimeConfig::blocking_threads_max). A thread cannot be stopped from
    /// outside: after a timeout or a cancel its result is not waited for, and code that takes long
    /// should look at [`ActivityContext::is_cancelled`] now and then. It is true as well once the
    /// runtime stops; a thread that ignores it is waited for, by a shutdown as long as
    /// [`shutdown_wait_max`](RuntimeConfig::shutdown_wait_max) lets it and by a drop up to 10 s, and left
    /// behind. On a [host](Self::host) of one's own nobody waits for it.
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

    /// Adds a task queue beside those of the registered activities: one for each tenant, say, which a call
    /// [names](crate::workflow::Call::on_queue) at run time. Any registered activity may be called there. Each
    /// queue has a pool and a concurrency limit of its own
    /// ([`queue_running_max`](RuntimeConfig::queue_running_max)), so that calls of one hold up no other's. Naming one
    /// twice is naming it once. How many there may be is
    /// [`named_queues_len_max`](RuntimeConfig::named_queues_len_max).
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

    /// Lets workflows [publish](crate::WorkflowContext::publish) to this topic. Publishes to one that
    /// is not registered wait, as calls of activities do that are not.
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

    /// Lets workflows [publish](crate::WorkflowContext::publish_to) to topics whose names are known at run time
    /// only, of those that this filter selects: their payloads are `T`s. A topic that is registered by its own name
    /// goes by that; of two filters that select it, the first counts.
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

    /// Uses this broker instead of one of the runtime's own: for subscribing before the runtime
    /// starts, and for activities and actors that publish. It belongs to one runtime at a time.
    ///
    /// One that was made [without a host](Broker::without_host) goes by the runtime's from the start on: what
    /// has a limit of time, [`ask`](millrun_broker::TopicHandle::ask) say, ends in time, waits are reported, and
    /// inboxes can be [served](millrun_broker::Inbox::serve). Behind the runtime's end it keeps its time, but
    /// services that were started on that host have ended with it.
    ///
    /// It may outlive the runtime, which therefore leaves its subscriptions open:
    /// [close](Broker::close) it to end them.
    ///
    /// What waited for room in a full topic when the store was closed is published while the runtime
    /// starts, and whatever else workflows publish may be as early: who subscribes after that, as a
    /// trigger does, does not hear of it.
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

    /// Keeps everything in this journal instead of a file of the runtime's own. It has been opened with bounds of its
    /// own: of [`RuntimeConfig::journal`], which should hold the same, `turn_bytes_max` counts here, and
    /// [`RuntimeConfig::store`] has no effect.
    ///
    /// One that was opened once and given to several runtimes, one after the other, may see the number
    /// of an attempt twice, if the process crashes before the later one's first commit.
    pub fn journal(mut self, journal: Arc<dyn Journal>) -> Self {
        self.journal = Some(journal);
        self
    }

    /// Opens the store, recovers what was alive, and starts everything. When this returns, the
    /// doors are open and work that was cut off goes on.
    ///
    /// # Errors
    /// See [`OpenError`]; each says what to do.
    ///
    /// # Cancel safety
    /// Dropping the future undoes the start; nothing in the store is lost.
    pub async fn start(self) -> Result<Runtime, OpenError> {
        self.config.check()?;
        let mut code = collect(self.registrations)?;
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
        code.queues = self.queues;
        code.topics = self.topics;
        code.named_topics = self.named_topics;
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
            path: self.path,
            journal: self.journal,
            config: self.config.clone(),
            host: Arc::clone(&host),
            news_bell: Bell::new(),
        };
        let opened = open(opener).await?;
        assembly::assemble(host, tokio_host, self.config, code, self.broker, opened)
    }
}

fn collect(registrations: Vec<Registration>) -> Result<Code, OpenError> {
    let mut code = Code {
        workflows: Workflows::default(),
        activities: BTreeMap::new(),
        queues: BTreeSet::new(),
        topics: Vec::new(),
        named_topics: Vec::new(),
    };
    for Registration(registered) in registrations {
        let (kind, name, is_new) = match registered {
            Registered::Workflow(workflow) => {
                let name = workflow.name();
                ("workflow", name, code.workflows.insert(workflow))
            }
            Registered::Activity(activity) => {
                let name = activity.name;
                ("activity", name, code.activities.insert(name, activity).is_none())
            }
        };
        if !is_new {
            return Err(OpenError::RegisteredTwice { kind, name });
        }
    }
    Ok(code)
}

/// An open store and what was alive in it.
pub(crate) struct Opened {
    pub(crate) journal: Arc<dyn Journal>,
    /// The journal, if it was opened by its path.
    pub(crate) store: Option<OwnStore>,
    pub(crate) claimant: Claimant,
    /// Rings when there is news for the claimant.
    pub(crate) news_bell: Bell,
    /// What is owned.
    pub(crate) owned: Vec<(Partition, Epoch)>,
    pub(crate) shards: Vec<Vec<RecoveredRun>>,
    pub(crate) report: StartupReport,
}

/// Opens and recovers on a thread, where it may wait for the disk.
#[derive(Debug)]
struct Opener {
    path: Option<PathBuf>,
    journal: Option<Arc<dyn Journal>>,
    config: RuntimeConfig,
    host: Arc<dyn Host>,
    news_bell: Bell,
}

/// An open store whose partitions have been claimed.
struct Claiming {
    started: Duration,
    journal: Arc<dyn Journal>,
    store: Option<OwnStore>,
    claimant: Claimant,
}

/// The replay actor: it claims in its first turn, and leaves in the one in which it has the answer.
struct OpenerPart {
    opener: Opener,
    claiming: Option<Claiming>,
    reply: Option<oneshot::Sender<Result<Opened, OpenError>>>,
}

impl OpenerPart {
    fn go_on(&mut self) -> Result<Option<Opened>, OpenError> {
        let claiming = match self.claiming.take() {
            Some(claiming) => claiming,
            None => self.opener.open()?,
        };
        self.opener.news_bell.answer();
        match recovery::granted(&claiming.claimant) {
            Some(granted) => Ok(Some(self.opener.opened(claiming, granted?))),
            None => {
                self.claiming = Some(claiming);
                Ok(None)
            }
        }
    }
}

impl Part for OpenerPart {
    fn turn(&mut self, _now: Timestamp, _budget: usize) -> Next {
        let Some(opened) = self.go_on().transpose() else {
            return Next::Idle;
        };
        if let Some(reply) = self.reply.take() {
            // If nobody waits any more, the store is closed by dropping it.
            drop(reply.send(opened));
        }
        Next::Stop
    }
}

async fn open(opener: Opener) -> Result<Opened, OpenError> {
    let (host, bell) = (Arc::clone(&opener.host), opener.news_bell.clone());
    let (reply, answer) = oneshot::channel();
    let part = OpenerPart {
        opener,
        claiming: None,
        reply: Some(reply),
    };
    let (gone, left) = oneshot::channel();
    let on_exit = Box::new(|exit: PartExit| {
        tracing::debug!(?exit, "the replay actor has left");
        // Nobody waits where the store was not opened.
        gone.send(()).ok();
    });
    let _handle = host.spawn_part("replay", Placement::Thread, bell, Box::new(part), on_exit)?;
    let opened = answer.await.unwrap_or_else(|_| {
        let message = "it ended without having opened the store".into();
        Err(OpenError::Stopped(StopCause::Part {
            part: "replay".into(),
            message,
        }))
    })?;
    // Its bell, which is disconnected when it leaves, becomes that of all shards: news would wake nobody.
    left.await.ok();
    Ok(opened)
}

impl Opener {
    /// Opens the store and claims the partitions that are wanted. Those of a journal that was given are taken from their
    /// former owner, who must not add to what is read.
    fn open(&mut self) -> Result<Claiming, OpenError> {
        let started = self.host.elapsed();
        let lanes_len = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let all = || (0..Partition::COUNT).filter_map(Partition::from_index).collect();
        let wanted = self.config.claimed_at_open.clone().unwrap_or_else(all);
        let claimant = Claimant::new(Owner::new(self.host.random()), self.news_bell.clone());
        let histories = recovery::lanes(self.config.shards_len, lanes_len).into_iter();
        let folds = histories.map(|lane| Box::new(lane) as Box<dyn Fold>).collect();
        let claim = claimant.claim(wanted, folds);
        let mut store = None;
        let journal: Arc<dyn Journal> = match (self.journal.take(), self.path.take()) {
            (None, Some(path)) => {
                let config = (self.config.journal.clone(), self.config.store.clone());
                let host = Arc::clone(&self.host);
                let journal = RedbJournal::open_claiming(&path, config, host, claim, &mut recovery::tell)?;
                let journal = Arc::new(journal);
                store = Some(OwnStore::new(Arc::clone(&journal)));
                journal
            }
            (journal, _) => {
                let mut config = self.config.journal.clone();
                config.durability = Durability::Volatile;
                let journal = match journal {
                    Some(journal) => journal,
                    None => Arc::new(MemoryJournal::new(config)?),
                };
                journal.take_from(claim);
                journal
            }
        };
        Ok(Claiming {
            started,
            journal,
            store,
            claimant,
        })
    }

    /// Makes of what was granted what shards begin with.
    fn opened(&self, claiming: Claiming, mut granted: Granted) -> Opened {
        let Claiming {
            started,
            journal,
            store,
            claimant,
        } = claiming;
        let (histories, found) = (granted.take_folds(), granted.report);
        let (shards, mut report) = recovery::by_shard(histories, self.config.shards_len, found);
        report.elapsed = self.host.elapsed().saturating_sub(started);
        let owned = granted.partitions.iter();
        Opened {
            journal,
            store,
            claimant,
            news_bell: self.news_bell.clone(),
            owned: owned.map(|owned| (owned.partition, owned.epoch)).collect(),
            shards,
            report,
        }
    }
}

#[cfg(test)]
mod tests {
    use millrun_persistence::Retention;

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
