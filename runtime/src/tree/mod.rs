//! The supervision tree: the parts, their restarts, and what stops everything.
//!
//! ```text
//! runtime
//! ├── journal (thread)    failure stops the runtime
//! ├── timers              failure stops the runtime
//! ├── reader n (thread)   restarted
//! ├── viewer (thread)     restarted: the reader's lane for observers
//! ├── watcher (thread)    restarted
//! ├── nodes (thread)      restarted: there is one if the store is shared
//! ├── beats               restarted: there is one if the store is shared
//! ├── mail (thread)       restarted: there is one if the store is shared
//! ├── shard 0 ..          restarted: claims its partitions anew, and gets its runs with them
//! ├── pool <queue> ..     restarted: what runs goes on
//! └── actor <name> ..     restarted: the user's own, see `actors`
//! ```

mod branch;
mod restarted_shard;
mod role;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use millrun_broker::{Broker, TopicHandle};
use millrun_core::{Part, PartExit, Placement};
use millrun_persistence::FailureKind;

use self::branch::{Branch, Branches};
use self::restarted_shard::RestartedShard;
pub(crate) use self::role::Role;
use crate::activity::Pool;
use crate::actors::Seat;
use crate::cluster::beats::BeatPart;
use crate::cluster::mail_part::MailPart;
use crate::cluster::part::ClusterPart;
use crate::ending::shutdown::LeftBehind;
use crate::ending::stop::StopCell;
use crate::looking::parts::{KillError, PartChange, PartEvent, PartStatus};
use crate::mail::ShardDoors;
use crate::reader::Reader;
use crate::shared::ShardShared;
use crate::timers::Timers;
use crate::watch::Watcher;
use crate::{OpenError, StopCause};

/// The tree lists the journal like a part; the journal starts and ends by itself.
const JOURNAL: &str = "journal";

/// The parts and their supervision.
#[derive(Debug)]
pub(crate) struct Tree {
    shared: Arc<ShardShared>,
    doors: ShardDoors,
    stop: Arc<StopCell>,
    events: TopicHandle<PartEvent>,
    /// The broker, if the runtime made it.
    own_broker: Option<Broker>,
    branches: Mutex<Branches>,
}

impl Tree {
    /// A tree without parts.
    pub(crate) fn new(
        shared: Arc<ShardShared>,
        doors: ShardDoors,
        stop: Arc<StopCell>,
        events: TopicHandle<PartEvent>,
        own_broker: Option<Broker>,
    ) -> Self {
        Self {
            shared,
            doors,
            stop,
            events,
            own_broker,
            branches: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Branches> {
        self.branches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a part, which is made unless one is given.
    pub(crate) fn spawn(self: &Arc<Self>, role: Role, part: Option<Box<dyn Part>>) -> Result<(), OpenError> {
        let shared = &self.shared;
        let (placement, bell) = match &role {
            Role::Timers(bell) => (Placement::Actor, bell.clone()),
            Role::Reader(lane) => (Placement::Thread, shared.reader.bell(*lane).clone()),
            Role::Watcher => (Placement::Thread, shared.watch.bell().clone()),
            Role::Nodes(bell, _) | Role::Beats(bell, _) => (Placement::Thread, bell.clone()),
            Role::Mail(desk) => (Placement::Thread, desk.bell().clone()),
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
        // Listed first: the part may end, and even be restarted, before this function returns.
        let branch = Branch::new(role);
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
            Role::Nodes(_, cluster) => Box::new(ClusterPart::new(
                Arc::clone(shared),
                Arc::clone(cluster),
                self.doors.clone(),
            )),
            Role::Beats(_, cluster) => Box::new(BeatPart::new(
                Arc::clone(shared),
                Arc::clone(cluster),
                self.doors.clone(),
            )),
            Role::Mail(desk) => Box::new(MailPart::new(
                Arc::clone(shared),
                Arc::clone(desk),
                self.doors.clone(),
            )),
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
                    // A shard may stop by itself because the journal has failed.
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

    /// Starts the keeper of a user's actor.
    pub(crate) fn supervise(self: &Arc<Self>, seat: Arc<Seat>) -> Result<(), OpenError> {
        let name = seat.part_name();
        let spawned = self.spawn(Role::Actor(seat), None);
        if spawned.is_err() {
            self.lock().by_name.remove(&name);
        }
        spawned
    }

    /// Removes an actor that has stopped by itself from the list.
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
        if let PartChange::Failed { message } = &change {
            let shared = &self.shared;
            shared.feed.part_failed(name, message, &*shared.host);
        }
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

    /// Stops everything if the journal has failed. A journal that a shutdown closes has not failed.
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
        // A test may have crashed the host: then nothing that is queued must become durable.
        if !matches!(cause, StopCause::HostEnded) {
            self.shared.journal.begin_close();
        }
        self.close_broker();
        // From here on all requests get the same answer: all mailboxes are closed, also those of the broker.
        self.stop.tell();
        // Callers that still wait do so for code that blocks its thread, or have just been told.
        self.stop.answer_nobody();
    }

    /// Ends the subscriptions of the runtime's own broker; a given broker is not touched. Called when no shard records
    /// outcomes of publishes any more.
    pub(crate) fn close_broker(&self) {
        if let Some(broker) = &self.own_broker {
            broker.close();
        }
    }

    /// Stops all parts, and restarts none, and all activities.
    pub(crate) fn abandon(&self) {
        // A thread cannot be stopped: its code is told, so that callers need not wait long for it.
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

    /// The number of shards that run, or will soon: a wait for their ends includes their successors.
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

    /// The shards that are still running, and what they are doing.
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
                | Role::Nodes(..)
                | Role::Beats(..)
                | Role::Mail(_)
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
