//! The supervision tree: which parts there are, who restarts them, and what stops everything.
//!
//! ```text
//! runtime
//! ├── journal (thread)    failure stops the runtime
//! ├── timers              failure stops the runtime
//! ├── reader n (thread)   restarted
//! ├── watcher (thread)    restarted
//! ├── shard 0 ..          restarted: claims its partitions anew, and gets its runs with them
//! ├── pool <queue> ..     restarted: what runs goes on
//! └── actor <name> ..     restarted: the user's own, see `actors`
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use millrun_broker::{Broker, BrokerConfig, TopicHandle};
use millrun_core::{Bell, Epoch, Host, Next, Part, PartExit, PartHandle, Partition, Placement, Timestamp};
use millrun_persistence::{ClaimNumber, ClaimRefused, FailureKind, Granted};
use tokio::sync::Semaphore;

use crate::activity::{ActivityImplementation, Pool, PoolState, TaskQueue, TaskQueues};
use crate::actors::{Actors, Seat};
use crate::builder::Opened;
use crate::changed_values::ChangedValues;
use crate::claims::{Claims, News, OwnedTable};
use crate::host::TokioHost;
use crate::mail::ShardDoors;
use crate::reader::Reader;
use crate::reader::door::ReaderDoor;
use crate::recovery::{self, Histories};
use crate::runtime::{Inner, KillError, PartChange, PartEvent, PartStatus};
use crate::shard::{EpochTable, Shard};
use crate::shared::{Counters, ShardShared};
use crate::shutdown::LeftBehind;
use crate::stop::StopCell;
use crate::timers::{Timers, TimersDoor};
use crate::topics::{NamedPublisher, Publisher, Topics};
use crate::watch::{Watch, Watcher};
use crate::workflows::Workflows;
use crate::{OpenError, Runtime, RuntimeConfig, StopCause};

/// The code of a runtime, by name.
pub(crate) struct Code {
    pub(crate) workflows: Workflows,
    pub(crate) activities: BTreeMap<&'static str, ActivityImplementation>,
    /// Task queues beside those of the activities.
    pub(crate) queues: BTreeSet<String>,
    pub(crate) topics: Vec<Publisher>,
    pub(crate) named_topics: Vec<NamedPublisher>,
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
    let shards_len = config.shards_len;
    let is_broker_given = broker.is_some();
    let broker = broker.unwrap_or_else(|| Broker::new(BrokerConfig::default(), Arc::clone(&host)));
    // One that was made without a host may have that of a runtime that has ended.
    if !broker.has_own_host() {
        broker.run_on(Arc::clone(&host));
    }
    let topics = Topics::connect(code.topics, code.named_topics, &broker)
        .map_err(|(name, problem)| OpenError::Topic { name, problem })?;
    let doors = ShardDoors::new(&broker, shards_len, config.shard_queue_len_max).map_err(|error| {
        OpenError::Topic {
            name: "millrun.reports",
            problem: error.to_string(),
        }
    })?;
    let queues = Arc::new(TaskQueues::new(
        &broker,
        code.activities,
        code.queues,
        config.task_queue_len_max,
    )?);
    let threads = Arc::new(Semaphore::new(
        config.blocking_threads_max.min(Semaphore::MAX_PERMITS),
    ));
    let owned = OwnedTable::new(opened.owned.iter().copied());
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
    let shared = Arc::new(ShardShared {
        host: Arc::clone(&host),
        journal: Arc::clone(&opened.journal),
        config,
        workflows: code.workflows,
        topics,
        queues,
        pools: pools.iter().map(|(_, state)| Arc::clone(state)).collect(),
        timers: TimersDoor::new(timers_bell.clone()),
        reader: ReaderDoor::new(readers_len),
        watch,
        counters: Counters::default(),
        changed_values: ChangedValues::default(),
        handed: (0..shards_len).map(|_| Arc::default()).collect(),
        claims: Claims::new(opened.claimant, owned, opened.news_bell, bells),
    });
    let stop = Arc::new(StopCell::default());
    let tree = Arc::new(Tree {
        shared: Arc::clone(&shared),
        doors: doors.clone(),
        stop: Arc::clone(&stop),
        events,
        own_broker: (!is_broker_given).then(|| broker.clone()),
        branches: Mutex::new(Branches::default()),
    });
    tree.spawn(Role::Timers(timers_bell), None)?;
    for lane in 0..readers_len {
        tree.spawn(Role::Reader(lane), None)?;
    }
    if is_watched {
        tree.spawn(Role::Watcher, None)?;
    }
    let mut report = opened.report;
    for (index, runs) in opened.shards.into_iter().enumerate() {
        let unregistered = runs
            .iter()
            .filter(|run| !shared.workflows.have(&*run.workflow))
            .count();
        report.not_registered += unregistered as u64;
        let owned = opened.owned.iter().copied();
        let owned = owned.filter(|(partition, _)| doors.index_of(*partition) == index);
        let mut shard = Shard::new(Arc::clone(&shared), &doors, index, EpochTable::new(owned));
        shard.begin_with(runs, host.now());
        tree.spawn(Role::Shard(index), Some(Box::new(shard)))?;
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
        tokio_host,
    });
    // Last, so that each attempt finds its runtime.
    for (queue, state) in pools {
        state.connect(Arc::downgrade(runtime.inner()));
        tree.spawn(Role::Pool(queue, state), None)?;
    }
    Ok(runtime)
}

/// What is dropped with the host's tasks, and says so.
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
        // Without effect if the runtime was stopped first.
        if let Some(tree) = self.0.upgrade() {
            tree.fail(StopCause::HostEnded);
        }
    }
}

/// The tree shows the journal as a part like others; it starts and ends by itself.
const JOURNAL: &str = "journal";

/// What a part is, and what is needed to make it again.
#[derive(Clone, Debug)]
enum Role {
    Timers(Bell),
    /// A lane of the reader.
    Reader(usize),
    Watcher,
    Shard(usize),
    Pool(Arc<TaskQueue>, Arc<PoolState>),
    /// The keeper of an actor of the user's.
    Actor(Arc<Seat>),
}

impl Role {
    fn name(&self) -> String {
        match self {
            Self::Timers(_) => "timers".into(),
            Self::Reader(lane) => format!("reader {lane}"),
            Self::Watcher => "watcher".into(),
            Self::Shard(index) => format!("shard {index}"),
            Self::Pool(queue, _) => format!("pool {}", queue.name),
            Self::Actor(seat) => seat.part_name(),
        }
    }
}

/// The parts and their supervision.
#[derive(Debug)]
pub(crate) struct Tree {
    shared: Arc<ShardShared>,
    doors: ShardDoors,
    stop: Arc<StopCell>,
    events: TopicHandle<PartEvent>,
    /// The broker, unless the runtime was given one.
    own_broker: Option<Broker>,
    branches: Mutex<Branches>,
}

#[derive(Debug, Default)]
struct Branches {
    by_name: BTreeMap<String, Branch>,
    is_abandoned: bool,
}

#[derive(Debug)]
struct Branch {
    role: Role,
    handle: Option<PartHandle>,
    /// The part has ended, perhaps before its handle was at hand.
    has_ended: bool,
    /// It has ended, and its successor is being made.
    is_restarting: bool,
    restarts: u32,
    /// It was stopped to be restarted.
    is_killed: bool,
    recent: VecDeque<Timestamp>,
}

impl Tree {
    fn lock(&self) -> MutexGuard<'_, Branches> {
        self.branches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a part, made anew unless one is given.
    fn spawn(self: &Arc<Self>, role: Role, part: Option<Box<dyn Part>>) -> Result<(), OpenError> {
        let shared = &self.shared;
        let (placement, bell) = match &role {
            Role::Timers(bell) => (Placement::Actor, bell.clone()),
            Role::Reader(lane) => (Placement::Thread, shared.reader.bell(*lane).clone()),
            Role::Watcher => (Placement::Thread, shared.watch.bell().clone()),
            Role::Shard(index) => (Placement::Actor, self.doors.all()[*index].mailbox.bell().clone()),
            Role::Pool(queue, _) => (Placement::Actor, queue.bell().clone()),
            Role::Actor(seat) => (Placement::Actor, seat.bell().clone()),
        };
        let part = part.unwrap_or_else(|| self.make(&role));
        let name = role.name();
        let tree: Weak<Self> = Arc::downgrade(self);
        let exited = name.clone();
        let on_exit = Box::new(move |exit: PartExit| {
            if let Some(tree) = tree.upgrade() {
                tree.on_exit(&exited, exit);
            }
        });
        // Listed first: the part may end before this function does, and be restarted too.
        let branch = Branch {
            role,
            handle: None,
            has_ended: false,
            is_restarting: false,
            restarts: 0,
            is_killed: false,
            recent: VecDeque::new(),
        };
        let restarts = {
            let mut branches = self.lock();
            let branch = branches.by_name.entry(name.clone()).or_insert(branch);
            branch.has_ended = false;
            branch.restarts
        };
        let handle = shared.host.spawn_part(&name, placement, bell, part, on_exit)?;
        let mut branches = self.lock();
        if branches.is_abandoned {
            handle.stop();
        }
        if let Some(branch) = branches.by_name.get_mut(&name)
            && branch.restarts == restarts
            && !branch.has_ended
        {
            branch.handle = Some(handle);
            branch.is_restarting = false;
        }
        Ok(())
    }

    fn make(self: &Arc<Self>, role: &Role) -> Box<dyn Part> {
        let shared = &self.shared;
        match role {
            Role::Timers(_) => Box::new(Timers::new(shared.timers.clone(), self.doors.clone())),
            Role::Reader(lane) => Box::new(Reader::new(Arc::clone(shared), self.doors.clone(), *lane)),
            Role::Watcher => {
                let tree = Arc::downgrade(self);
                let look = move || {
                    if let Some(tree) = tree.upgrade() {
                        tree.look_at_journal();
                    }
                };
                Box::new(Watcher::new(Arc::clone(&shared.watch), look))
            }
            Role::Shard(index) => Box::new(RestartedShard::new(
                Arc::clone(shared),
                self.doors.clone(),
                *index,
            )),
            Role::Pool(queue, state) => Box::new(Pool::new(
                Arc::clone(queue),
                Arc::clone(&shared.queues),
                Arc::clone(state),
                self.doors.clone(),
                Arc::clone(&shared.host),
                shared.config.running_max_of(&queue.name),
                shared.config.limits.payload_bytes_max,
            )),
            Role::Actor(seat) => seat.keeper(),
        }
    }

    /// A part has ended: restart it, or stop everything.
    fn on_exit(self: &Arc<Self>, name: &str, exit: PartExit) {
        let message = match exit {
            PartExit::Stopped => {
                let mut branches = self.lock();
                let branch = branches.by_name.get_mut(name);
                let is_killed = branch.is_some_and(|branch| {
                    branch.is_restarting = branch.ended();
                    branch.is_restarting
                });
                drop(branches);
                if !is_killed {
                    self.let_go(name);
                    // A shard that stops by itself may do so because there is no journal any more.
                    self.look_at_journal();
                    return self.announce(name, PartChange::Stopped);
                }
                "it was killed".into()
            }
            PartExit::Panicked(message) => message,
        };
        tracing::error!(part = name, message, "a part of the runtime failed");
        let failed = PartChange::Failed {
            message: message.clone(),
        };
        self.announce(name, failed);
        let role = {
            let mut branches = self.lock();
            let is_abandoned = branches.is_abandoned;
            let Some(branch) = branches.by_name.get_mut(name) else {
                return;
            };
            branch.ended();
            if is_abandoned {
                return;
            }
            branch.is_restarting = branch.may_restart(self.shared.host.now(), &self.shared.config);
            branch
                .is_restarting
                .then(|| (branch.role.clone(), branch.restarts))
        };
        let restarted = role.map(|(role, restarts)| {
            let spawned = self.spawn(role, None);
            if spawned.is_ok() {
                self.announce(name, PartChange::Restarted { restarts });
            }
            spawned
        });
        if !matches!(restarted, Some(Ok(()))) {
            self.fail(StopCause::Part {
                part: name.into(),
                message: message.into(),
            });
        }
    }

    /// Starts the keeper of an actor.
    pub(crate) fn supervise(self: &Arc<Self>, seat: Arc<Seat>) -> Result<(), OpenError> {
        let name = seat.part_name();
        let spawned = self.spawn(Role::Actor(seat), None);
        if spawned.is_err() {
            self.lock().by_name.remove(&name);
        }
        spawned
    }

    /// Lists an actor that has stopped by itself no more.
    fn let_go(&self, name: &str) {
        let mut branches = self.lock();
        let Some(Branch {
            role: Role::Actor(seat),
            ..
        }) = branches.by_name.get(name)
        else {
            return;
        };
        let seat = Arc::clone(seat);
        branches.by_name.remove(name);
        drop(branches);
        seat.leave();
    }

    /// Publishes the change; a subscriber without room misses it.
    fn announce(&self, name: &str, change: PartChange) {
        let part = name.into();
        drop(self.events.try_publish(PartEvent { part, change }));
    }

    /// Stops a part that is then restarted.
    pub(crate) fn kill(&self, name: &str) -> Result<(), KillError> {
        let part = name.to_string();
        if name == JOURNAL {
            return Err(KillError::NotRestartable { part });
        }
        let mut branches = self.lock();
        let Some(branch) = branches.by_name.get_mut(name) else {
            return Err(KillError::Unknown { part });
        };
        if matches!(branch.role, Role::Timers(_)) {
            return Err(KillError::NotRestartable { part });
        }
        let Some(handle) = &branch.handle else {
            return Err(KillError::NotRunning { part });
        };
        branch.is_killed = true;
        handle.stop();
        Ok(())
    }

    /// Stops everything if the journal has failed. One that a shutdown closes has not.
    pub(crate) fn look_at_journal(&self) {
        if let Some(failure) = self.shared.journal.failure() {
            let is_closed = failure.kind() == FailureKind::Closed && self.stop.is_closing();
            if !is_closed {
                self.fail(StopCause::Journal(failure));
            }
        }
    }

    /// Stops everything, and tells everybody why. Only the first cause counts.
    pub(crate) fn fail(&self, cause: StopCause) {
        if !self.stop.set(cause.clone()) {
            return;
        }
        tracing::error!(%cause, "the runtime has stopped");
        if let StopCause::Journal(failure) = &cause {
            let message = failure.to_string();
            self.announce(JOURNAL, PartChange::Failed { message });
        }
        self.doors.close_discarding();
        self.shared.reader.close();
        self.abandon();
        // The host may have ended by a crash that a test makes: what is queued must not become durable then.
        if !matches!(cause, StopCause::HostEnded) {
            self.shared.journal.begin_close();
        }
        self.close_broker();
        // Callers that still wait do so for code that blocks its thread, or have just been told.
        self.stop.answer_nobody();
    }

    /// Ends the subscriptions of the broker that the runtime made; of one that it was given, none. Called when
    /// no shard records any more what became of its publishes.
    pub(crate) fn close_broker(&self) {
        if let Some(broker) = &self.own_broker {
            broker.close();
        }
    }

    /// Stops all parts, and restarts none, and all activities.
    pub(crate) fn abandon(&self) {
        // A thread cannot be stopped: its code is told, so that those who wait for it need not wait long.
        for pool in &self.shared.pools {
            pool.cut_off();
        }
        let mut branches = self.lock();
        branches.is_abandoned = true;
        for branch in branches.by_name.values_mut() {
            branch.is_restarting = false;
            if let Some(handle) = &branch.handle {
                handle.stop();
            }
        }
        drop(branches);
        self.stop.abandon();
    }

    /// How many shards run, or soon will: a wait for their ends includes their successors.
    pub(crate) fn shards_running(&self) -> usize {
        let branches = self.lock();
        let shards = branches
            .by_name
            .values()
            .filter(|branch| matches!(branch.role, Role::Shard(_)));
        shards
            .filter(|branch| branch.handle.is_some() || branch.is_restarting)
            .count()
    }

    /// The shards that run all the same, and what they are at.
    pub(crate) fn shards_left_behind(&self) -> Vec<LeftBehind> {
        let branches = self.lock();
        let left = branches
            .by_name
            .iter()
            .filter_map(|(name, branch)| match branch.role {
                Role::Shard(index) if branch.handle.is_some() || branch.is_restarting => Some(LeftBehind {
                    part: name.clone(),
                    run: self.shared.watch.run_in_hand(index),
                }),
                Role::Shard(_)
                | Role::Timers(_)
                | Role::Reader(_)
                | Role::Watcher
                | Role::Pool(..)
                | Role::Actor(_) => None,
            });
        left.collect()
    }

    pub(crate) fn status(&self) -> Vec<PartStatus> {
        let journal = &self.shared.journal;
        let journal = PartStatus {
            name: JOURNAL.into(),
            is_running: journal.failure().is_none() && !journal.is_closed(),
            restarts: 0,
        };
        let branches = self.lock();
        let status = branches.by_name.iter().map(|(name, branch)| PartStatus {
            name: name.clone(),
            is_running: branch.handle.is_some(),
            restarts: branch.restarts,
        });
        std::iter::once(journal).chain(status).collect()
    }
}

impl Branch {
    /// Whether that is because it was killed.
    fn ended(&mut self) -> bool {
        self.handle = None;
        self.has_ended = true;
        self.is_restarting = false;
        // Of one that was killed when it had failed already, the successor is not.
        std::mem::take(&mut self.is_killed)
    }

    /// Counts a failure; whether it is restarted.
    fn may_restart(&mut self, now: Timestamp, config: &RuntimeConfig) -> bool {
        match self.role {
            Role::Timers(_) => return false,
            Role::Reader(_) | Role::Watcher | Role::Shard(_) | Role::Pool(..) | Role::Actor(_) => {}
        }
        self.recent.push_back(now);
        while self
            .recent
            .front()
            .is_some_and(|at| now.saturating_since(*at) > config.restart_window)
        {
            self.recent.pop_front();
        }
        if self.recent.len() > config.restarts_max as usize {
            return false;
        }
        self.restarts += 1;
        true
    }
}

/// A shard that takes the place of one that failed: it claims the partitions that are still owned, and begins when it
/// is told what was found in them.
#[derive(Debug)]
struct RestartedShard {
    shared: Arc<ShardShared>,
    doors: ShardDoors,
    index: usize,
    stage: Stage,
    /// What was told meanwhile that is not the answer to its claim.
    news: Vec<News>,
}

#[derive(Debug)]
enum Stage {
    New,
    /// The claim, and the partitions in it with their epochs until then.
    Claiming(ClaimNumber, Vec<(Partition, Epoch)>),
    Running(Box<Shard>),
}

impl RestartedShard {
    fn new(shared: Arc<ShardShared>, doors: ShardDoors, index: usize) -> Self {
        Self {
            shared,
            doors,
            index,
            stage: Stage::New,
            news: Vec::new(),
        }
    }

    /// What the journal answered to this claim, if it has.
    fn answer(&mut self, claimed: ClaimNumber) -> Option<Result<Granted, ClaimRefused>> {
        self.news.extend(self.shared.claims.take_news(self.index));
        let is_answer = |news: &News| news.answered() == Some(claimed);
        let place = self.news.iter().position(is_answer)?;
        match self.news.remove(place) {
            News::Granted(granted) => Some(Ok(granted)),
            News::Refused(_, error) => Some(Err(error)),
            News::Lost(..) | News::Released(..) => None,
        }
    }

    fn succeed(&mut self, granted: Option<Granted>, now: Timestamp) -> Shard {
        let owned = granted.iter().flat_map(|granted| &granted.partitions);
        let epochs = EpochTable::new(owned.map(|owned| (owned.partition, owned.epoch)));
        let runs = granted.and_then(|mut granted| {
            let (folds, report) = (granted.take_folds(), granted.report);
            recovery::by_shard(folds, 1, report).0.pop()
        });
        let mut shard = Shard::new(Arc::clone(&self.shared), &self.doors, self.index, epochs);
        shard.succeed(runs.unwrap_or_default(), now);
        self.shared.claims.answer_left(self.index, &self.news);
        // What concerns former epochs is passed over.
        shard.hear(std::mem::take(&mut self.news));
        shard
    }

    /// Without a journal nobody gets an answer: dropping the questions tells them that the runtime stopped.
    fn give_up(&self) -> Next {
        self.doors.all()[self.index].close_discarding();
        Next::Stop
    }

    /// Claims, until it is told what there is.
    fn begin(&mut self, now: Timestamp) -> Next {
        loop {
            let claimed = match self.stage {
                Stage::Running(_) => return Next::Again,
                Stage::Claiming(claimed, _) => claimed,
                Stage::New => {
                    let (journal, fold) = (self.shared.journal.as_ref(), Box::<Histories>::default());
                    let claimed = self.shared.claims.claim_again(journal, fold, self.index);
                    let Some((claimed, former)) = claimed else {
                        self.stage = Stage::Running(Box::new(self.succeed(None, now)));
                        return Next::Again;
                    };
                    self.stage = Stage::Claiming(claimed, former);
                    claimed
                }
            };
            // All that the predecessor queued is durable with the answer, and so are the epochs: numbers of
            // attempts are given that no other process gives.
            match self.answer(claimed) {
                None | Some(Err(_)) if self.shared.journal.failure().is_some() => return self.give_up(),
                None => return Next::Idle,
                Some(Ok(granted)) => {
                    self.stage = Stage::Running(Box::new(self.succeed(Some(granted), now)));
                    return Next::Again;
                }
                // They were lost meanwhile: it goes on with what is left.
                Some(Err(ClaimRefused::Owned { partitions })) => {
                    if let Stage::Claiming(_, former) = std::mem::replace(&mut self.stage, Stage::New) {
                        let lost = former
                            .iter()
                            .filter(|(partition, _)| partitions.contains(partition));
                        lost.for_each(|(partition, epoch)| self.shared.claims.note_loss(*partition, *epoch));
                    }
                }
                // Another one tries, as after any other failure, or the runtime stops.
                Some(Err(ClaimRefused::Unreadable(error))) => panic!("its runs cannot be read: {error}"),
                Some(Err(error)) => panic!("its partitions cannot be claimed: {error}"),
            }
        }
    }
}

impl Part for RestartedShard {
    fn turn(&mut self, now: Timestamp, budget: usize) -> Next {
        match &mut self.stage {
            Stage::Running(shard) => shard.turn(now, budget),
            Stage::New | Stage::Claiming(..) => match self.begin(now) {
                Next::Again => self.turn(now, budget),
                next => next,
            },
        }
    }
}
