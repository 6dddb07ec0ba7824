//! The assembly of a runtime: its parts are made on top of an open store, and started in the order of their dependencies.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, Weak};

use millrun_broker::{Broker, BrokerConfig};
use millrun_core::{Bell, Host};
use millrun_persistence::TopicRetention;
use millrun_workflow::Implementation;
use tokio::sync::Semaphore;

use crate::activity::{ActivityImplementation, ActivityTap, PoolState, TaskQueues};
use crate::actors::Actors;
use crate::builtin::is_clash;
use crate::cluster::mail_desk::MailDesk;
use crate::cluster::shared::{ClusterShared, LeaseGate};
use crate::code::changed_values::ChangedValues;
use crate::code::version_trials::VersionTrials;
use crate::code::workflows::{Workflows, is_reserved};
use crate::ending::stop::StopCell;
use crate::host::TokioHost;
use crate::host::server_time::ServerTime;
use crate::inner::Inner;
use crate::looking::counts::Tallies;
use crate::looking::durations::DurationTallies;
use crate::looking::find::SEARCHES_MAX;
use crate::mail::ShardDoors;
use crate::opening::recovery::RecoveredRun;
use crate::opening::registry::Registered;
use crate::opening::store::Opened;
use crate::ownership::claims::{Claims, OwnedTable};
use crate::reader::LaneId;
use crate::reader::door::ReaderDoor;
use crate::shard::{EpochTable, Shard, ShardRest};
use crate::shared::{Counters, ShardShared};
use crate::streams::durable::index::DurableOutputs;
use crate::timers::TimersDoor;
use crate::topics::durable::declared::{DeclaredTopic, DurableTopics};
use crate::topics::durable::subscription::{expire_unused, note_places};
use crate::topics::durable::terms::TermsByFilter;
use crate::topics::publisher::{NamedPublisher, Publisher, Topics};
use crate::traces::TracedEnds;
use crate::tree::{Role, Tree};
use crate::watch::Watch;
use crate::{OpenError, Runtime, RuntimeConfig, StopCause};

/// The code of a runtime, by name.
pub(crate) struct Code {
    pub(crate) workflows: Workflows,
    pub(crate) activities: BTreeMap<&'static str, ActivityImplementation>,
    /// Task queues besides those of the activities.
    pub(crate) queues: BTreeSet<String>,
    pub(crate) topics: Vec<Publisher>,
    pub(crate) named_topics: Vec<NamedPublisher>,
    pub(crate) durable_topics: Vec<DeclaredTopic>,
    /// Former names of durable topics, each with the present one.
    pub(crate) renamed_topics: Vec<(&'static str, &'static str)>,
    pub(crate) topic_terms: TermsByFilter,
    /// Whether the store is only read: then there is no code.
    pub(crate) is_read_only: bool,
}

impl Code {
    /// Adds the code of a workflow or an activity.
    ///
    /// # Errors
    /// When there is code of the same kind with its name and version.
    pub(crate) fn insert(&mut self, registered: Registered) -> Result<(), OpenError> {
        match registered {
            Registered::Workflow(workflow) => self.workflows.insert(workflow),
            Registered::Activity(activity) => {
                let (kind, name) = ("activity", activity.name);
                match self.activities.insert(name, activity) {
                    None => Ok(()),
                    Some(_) => Err(OpenError::RegisteredTwice { kind, name }),
                }
            }
        }
    }

    /// Lets the tap see each attempt of the user's activities.
    pub(crate) fn tap_activities(&mut self, tap: &Arc<dyn ActivityTap>) {
        let own = self.activities.values_mut();
        for activity in own.filter(|activity| !is_reserved(activity.name)) {
            *activity = activity.clone().tapped(Arc::clone(tap));
        }
    }
}

/// Builds all parts on top of an open store, and starts them.
pub(crate) fn assemble(
    host: Arc<dyn Host>,
    tokio_host: Option<TokioHost>,
    config: RuntimeConfig,
    code: Code,
    broker: Option<Broker>,
    opened: Opened,
) -> Result<Runtime, OpenError> {
    // All nodes use the same clock.
    let server_time = opened
        .server_time
        .map(|told| ServerTime::new(Arc::clone(&host), &told));
    let host = match &server_time {
        Some(time) => Arc::new(time.clone()) as Arc<dyn Host>,
        None => host,
    };
    if !config.versions_may_go_back {
        check_versions(&code.workflows, opened.shards.iter().flatten())?;
    }
    let shards_len = config.shards_len;
    let is_broker_given = broker.is_some();
    let broker = broker.unwrap_or_else(|| Broker::new(BrokerConfig::default(), Arc::clone(&host)));
    // A broker that was made without a host may have that of a former runtime.
    if !broker.has_own_host() {
        broker.run_on(Arc::clone(&host));
    }
    let default = if opened.is_in_memory {
        TopicRetention::in_memory()
    } else {
        TopicRetention::default()
    };
    let volatile: Vec<_> = code.topics.iter().map(|topic| topic.name).collect();
    let durable = DurableTopics::declare(
        (code.durable_topics, &code.renamed_topics),
        &code.topic_terms,
        (&broker, &volatile),
        &opened.journal,
        default,
    )?;
    let topics = Topics::connect(code.topics, code.named_topics, &broker)
        .map_err(|(name, problem)| OpenError::Topic { name, problem })?;
    let doors = ShardDoors::new(&broker, shards_len, config.shard_queue_len_max).map_err(|error| {
        OpenError::Topic {
            name: "millrun.reports",
            problem: error.to_string(),
        }
    })?;
    let durations = Arc::new(DurationTallies::new(config.duration_names_max));
    let queues = Arc::new(TaskQueues::new(
        &broker,
        code.activities,
        code.queues,
        config.task_queue_len_max,
        &durations,
    )?);
    let threads = Arc::new(Semaphore::new(
        config.blocking_threads_max.min(Semaphore::MAX_PERMITS),
    ));
    let owned = OwnedTable::new(opened.owned.iter().copied());
    let gate = LeaseGate::open();
    let cluster = opened.journal.nodes().map(|store| {
        // Counted from before the journal was opened, when this node had written nothing.
        gate.hold_until(opened.began_at + config.lease * 4 / 5);
        let cluster = ClusterShared::new(store.node().clone(), server_time);
        store.watch(cluster.told().clone());
        Arc::new(cluster)
    });
    let mail = MailDesk::of(&opened.journal, &owned, &host);
    let pools: Vec<_> = queues
        .all()
        .iter()
        .map(|queue| {
            (
                Arc::clone(queue),
                Arc::new(PoolState::new(
                    Arc::clone(queue),
                    Arc::clone(&host),
                    doors.clone(),
                    config.limits.payload_bytes_max,
                    Arc::clone(&threads),
                    owned.clone(),
                    gate.clone(),
                )),
            )
        })
        .collect();
    let watch = Arc::new(Watch::new(shards_len, config.turn_warn));
    let is_watched = !config.turn_warn.is_zero();
    let events = broker.topic("millrun.parts").map_err(|error| OpenError::Topic {
        name: "millrun.parts",
        problem: error.to_string(),
    })?;
    let bells = doors
        .all()
        .iter()
        .map(|door| door.mailbox.bell().clone())
        .collect();
    let (timers_bell, readers_len) = (Bell::new(), config.readers_len);
    let outputs = DurableOutputs::of(&*opened.journal);
    let tallies = Tallies::with_rows_of(&code.workflows);
    let shared = Arc::new(ShardShared {
        host: Arc::clone(&host),
        journal: Arc::clone(&opened.journal),
        config,
        workflows: code.workflows,
        is_read_only: code.is_read_only,
        topics,
        durable,
        streams: Arc::default(),
        outputs,
        queues,
        pools: pools.iter().map(|(_, state)| Arc::clone(state)).collect(),
        timers: TimersDoor::new(timers_bell.clone()),
        reader: ReaderDoor::new(readers_len),
        watch,
        rests: (0..shards_len).map(|_| ShardRest::default()).collect(),
        counters: Counters::default(),
        tallies,
        durations,
        feed: Arc::default(),
        traced_ends: TracedEnds::default(),
        changed_values: ChangedValues::default(),
        trials: VersionTrials::default(),
        handed: (0..shards_len).map(|_| Arc::default()).collect(),
        claims: Claims::new(opened.claimant, owned, opened.news_bell, bells),
        gate,
        cluster,
        mail,
    });
    let stop = Arc::new(StopCell::default());
    let own_broker = (!is_broker_given).then(|| broker.clone());
    let tree = Tree::new(
        Arc::clone(&shared),
        doors.clone(),
        Arc::clone(&stop),
        events,
        own_broker,
    );
    let tree = Arc::new(tree);
    tree.spawn(Role::Timers(timers_bell), None)?;
    for lane in 0..readers_len {
        tree.spawn(Role::Reader(LaneId::Reader(lane)), None)?;
    }
    tree.spawn(Role::Reader(LaneId::Viewer), None)?;
    if is_watched {
        tree.spawn(Role::Watcher, None)?;
    }
    let mut report = opened.report;
    let mut reserved = None;
    for (index, runs) in opened.shards.into_iter().enumerate() {
        let unregistered = runs
            .iter()
            .filter(|run| !shared.is_registered((&*run.workflow, run.version)))
            .count();
        report.not_registered += unregistered as u64;
        for run in runs.iter().filter(|run| is_clash(&run.workflow, run.id.as_str())) {
            report.reserved += 1;
            reserved.get_or_insert_with(|| run.workflow.clone());
        }
        let owned = opened.owned.iter().copied();
        let owned = owned.filter(|(partition, _)| doors.index_of(*partition) == index);
        let mut shard = Shard::new(Arc::clone(&shared), &doors, index, EpochTable::new(owned));
        shard.begin_with(runs, host.now());
        tree.spawn(Role::Shard(index), Some(Box::new(shard)))?;
    }
    if let Some(workflow) = reserved {
        tracing::warn!(
            %workflow,
            instances = report.reserved,
            "instances of workflows with reserved names, which begin with \"millrun.\", do not run: terminate them"
        );
    }
    tracing::info!(
        live = report.live,
        timers = report.timers,
        activities = report.activities,
        elapsed_ms = report.elapsed.as_millis(),
        "the runtime has started"
    );
    let presence = Presence(Arc::downgrade(&tree));
    let presence = host.spawn("presence", Box::pin(presence.last()));
    let journal = opened.journal;
    let tokio_host = Mutex::new(tokio_host);
    let runtime = Runtime::new(Inner {
        shared,
        broker,
        doors,
        journal,
        store: opened.store,
        tree: Arc::clone(&tree),
        report,
        actors: Actors::default(),
        stop,
        presence,
        searching: Semaphore::new(SEARCHES_MAX),
        tokio_host,
    });
    if !runtime.inner().shared.is_read_only && holds_records_back(&runtime) {
        let places = note_places(Arc::downgrade(runtime.inner()));
        drop(host.spawn("millrun-subscriptions", Box::pin(places)));
    }
    let has_idle_max = runtime.inner().shared.durable.with_idle_max().next().is_some();
    if !runtime.inner().shared.is_read_only && has_idle_max {
        let expire = expire_unused(Arc::downgrade(runtime.inner()));
        drop(host.spawn("millrun-subscription-expiry", Box::pin(expire)));
    }
    if !runtime.inner().shared.is_read_only && !runtime.inner().shared.outputs.is_empty() {
        runtime.inner().start_removing_outputs();
    }
    if let Some(cluster) = &runtime.inner().shared.cluster {
        tree.spawn(Role::Beats(Bell::new(), Arc::clone(cluster)), None)?;
        tree.spawn(Role::Nodes(cluster.bell().clone(), Arc::clone(cluster)), None)?;
    }
    if let Some(mail) = runtime
        .inner()
        .shared
        .mail
        .as_ref()
        .filter(|_| !runtime.inner().shared.is_read_only)
    {
        tree.spawn(Role::Mail(Arc::clone(mail)), None)?;
    }
    // Last, so that each attempt finds its runtime.
    for (queue, state) in pools {
        state.connect(Arc::downgrade(runtime.inner()));
        tree.spawn(Role::Pool(queue, state), None)?;
    }
    Ok(runtime)
}

/// Checks that no live run has a newer version of its workflow than is registered.
fn check_versions<'a>(
    workflows: &Workflows,
    runs: impl Iterator<Item = &'a RecoveredRun>,
) -> Result<(), OpenError> {
    let mut gone_back: BTreeMap<&str, (u32, u32, u64)> = BTreeMap::new();
    for run in runs {
        let Some(newest) = workflows.code_of(&*run.workflow).map(Implementation::version) else {
            continue;
        };
        if run.version > newest {
            let (_, latest, runs) = gone_back.entry(&run.workflow).or_insert((newest, 0, 0));
            *latest = run.version.max(*latest);
            *runs += 1;
        }
    }
    match gone_back.first_key_value() {
        None => Ok(()),
        Some((workflow, (newest, version, runs))) => Err(OpenError::VersionsGoBack {
            workflow: (*workflow).to_owned(),
            newest: *newest,
            version: *version,
            runs: *runs,
        }),
    }
}

/// Whether a topic of the store keeps unread records beyond the bounds of its retention.
fn holds_records_back(runtime: &Runtime) -> bool {
    let streams = runtime.inner().shared.journal.topics();
    streams.is_some_and(|streams| {
        let mut topics = streams.list().into_iter();
        topics.any(|topic| topic.retention.unread_bytes_max > 0)
    })
}

/// A task that ends when the host drops its tasks, and then reports the host's end.
struct Presence(Weak<Tree>);

impl Presence {
    /// Ends with the host.
    async fn last(self) {
        let _here = self;
        std::future::pending::<()>().await;
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        // No effect if the runtime was stopped first.
        if let Some(tree) = self.0.upgrade() {
            tree.fail(StopCause::HostEnded);
        }
    }
}
