//! Actors of the user in the runtime's supervision tree.
//!
//! ```text
//!   tree ── keeper (a part) ──begin──► the life of one actor (a task of the host)
//!              ▲                          │ make, spawn, wait for its end
//!              └────────── bell ◄─────────┘ how it ended
//! ```
//!
//! The keeper is a part like any other, so the tree starts it, counts its failures, restarts it and lists it. If an actor
//! fails, its keeper panics.
//!
//! Invariants:
//! - Each seat has at most one live actor: a keeper waits for the end of the former actor.
//! - The user's code runs in the tasks of the host, never in the keeper's turn nor under a lock.
//! - When a keeper is dropped, its actor is killed.

use std::collections::BTreeMap;
use std::fmt;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use millrun_core::{Bell, Host, Next, Part, Task, Timestamp, panic_message};
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, ActorRuntime, Message, SupervisionEvent};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::{Runtime, StopCause};

/// The longest name of an actor, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// Why an actor was not added to the supervision tree.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SuperviseError {
    /// The name is empty or longer than 255 bytes.
    #[error("the name of an actor has 1 to 255 bytes")]
    Name,
    /// There is an actor with this name.
    #[error("there is an actor named {name:?}")]
    Taken {
        /// The name.
        name: String,
    },
    /// There are as many as [`actors_len_max`](crate::RuntimeConfig::actors_len_max) allows.
    #[error("there are {len_max} actors, as many as actors_len_max allows")]
    TooMany {
        /// How many there may be.
        len_max: usize,
    },
    /// The runtime's host does not run on tokio, which actors of the ractor crate need.
    #[error("the runtime's host does not run on tokio")]
    NoTokio,
    /// The host could not start it.
    #[error("it could not be started: {problem}")]
    Spawn {
        /// The host's message.
        problem: String,
    },
    /// The runtime has stopped, or is being shut down.
    #[error("the runtime has stopped: {0}")]
    Stopped(#[from] StopCause),
}

/// An actor that the runtime supervises; made by [`Runtime::supervise`]. A cheap clone; dropping it does not end the actor.
pub struct SupervisedActor<M> {
    name: Arc<str>,
    present: Arc<Mutex<Option<ActorRef<M>>>>,
}

impl<M> SupervisedActor<M> {
    /// The name it was given. Its part is `actor <name>` in [`Runtime::parts`].
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The present actor; `None` before its start, while it is being restarted, and after its end. A message to an actor that
    /// fails is lost with it: to send messages that must be kept, use a topic, whose subscription outlives the actor.
    #[must_use]
    pub fn actor(&self) -> Option<ActorRef<M>> {
        self.present
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl<M> Clone for SupervisedActor<M> {
    fn clone(&self) -> Self {
        Self {
            name: Arc::clone(&self.name),
            present: Arc::clone(&self.present),
        }
    }
}

impl<M> fmt::Debug for SupervisedActor<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SupervisedActor")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Runtime {
    /// Adds an actor of the `ractor` crate to the runtime's supervision tree. `make` returns the actor and its arguments; it
    /// is called for the start and for each restart, in a task on the runtime's tokio.
    ///
    /// An actor whose `pre_start` or handler panics or returns an error is made anew, and counts as a failure towards
    /// [`restarts_max`](crate::RuntimeConfig::restarts_max) like the runtime's own parts: one too many within
    /// [`restart_window`](crate::RuntimeConfig::restart_window) stops the runtime, with a [`StopCause::Part`] that names it.
    /// An actor that stops without an error leaves the tree, and its name is free. Its part is named `actor <name>` in
    /// [`parts`](Self::parts), and can be [killed](Self::kill).
    ///
    /// Subscriptions are kept: an [`Inbox`](millrun_broker::Inbox) that `make` clones for each actor, and that the actor
    /// [attaches](millrun_broker::actor::attach), still takes what is published while the actor is restarted, up to its
    /// capacity and by its [`Overflow`](millrun_broker::Overflow) policy. The envelope that the actor was handling when it
    /// failed counts as taken, and is not delivered again; later ones go to the new actor, in order. What waited in the
    /// actor's own mailbox is lost with the actor.
    ///
    /// A [shutdown](Self::shutdown) drains the actors when the shards have ended, the latest first: each handles what is in
    /// its mailbox (the bell of an inbox makes one turn) and stops. One that takes too long is killed, and named in the
    /// report. At any other end of the runtime actors are killed: a handler ends at its next await.
    ///
    /// What `make` holds lives as long as the actor's place in the tree: if it holds a [`Runtime`], this is not dropped until
    /// a shutdown.
    ///
    /// ```
    /// use millrun::broker::SubscriptionConfig;
    /// use millrun::broker::actor::{Attached, attach};
    /// use millrun::broker::{Envelope, Inbox};
    /// use millrun::Runtime;
    /// use ractor::{Actor, ActorProcessingErr, ActorRef};
    ///
    /// struct Printer;
    ///
    /// impl Actor for Printer {
    ///     type Msg = ();
    ///     type State = Attached<Envelope<String>>;
    ///     type Arguments = Inbox<Envelope<String>>;
    ///
    ///     async fn pre_start(
    ///         &self,
    ///         myself: ActorRef<()>,
    ///         inbox: Self::Arguments,
    ///     ) -> Result<Self::State, ActorProcessingErr> {
    ///         Ok(attach(inbox, &myself, || ()))
    ///     }
    ///
    ///     async fn handle(
    ///         &self,
    ///         _: ActorRef<()>,
    ///         (): (),
    ///         orders: &mut Self::State,
    ///     ) -> Result<(), ActorProcessingErr> {
    ///         let mut turn = orders.turn();
    ///         while let Some(order) = turn.next_ref() {
    ///             println!("{}", order.payload());
    ///         }
    ///         Ok(())
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runtime = Runtime::volatile().start().await?;
    /// let inbox = runtime.broker().subscribe::<String>("orders.>", SubscriptionConfig::default())?;
    /// let kept = inbox.clone();
    /// runtime.supervise("printer", move || (Printer, kept.clone()))?;
    /// runtime.broker().topic::<String>("orders.eu")?.publish("order-42".into()).await?;
    /// assert!(runtime.parts().iter().any(|part| part.name == "actor printer"));
    /// runtime.shutdown().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`SuperviseError`].
    pub fn supervise<A, F>(&self, name: &str, make: F) -> Result<SupervisedActor<A::Msg>, SuperviseError>
    where
        A: Actor,
        F: Fn() -> (A, A::Arguments) + Send + Sync + 'static,
    {
        let inner = self.inner();
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(SuperviseError::Name);
        }
        if inner.stop.is_closing() || inner.settled_cause().is_some() {
            return Err(inner.stop_cause().into());
        }
        let host = &inner.shared.host;
        let mut has_tokio = false;
        host.within(&mut || has_tokio = Handle::try_current().is_ok());
        if !has_tokio {
            return Err(SuperviseError::NoTokio);
        }
        let actor = SupervisedActor {
            name: name.into(),
            present: Arc::default(),
        };
        let (make, present) = (Arc::new(make), Arc::clone(&actor.present));
        let live =
            move |seat: Arc<Seat>| -> Task { Box::pin(live(seat, Arc::clone(&make), Arc::clone(&present))) };
        let len_max = inner.shared.config.actors_len_max;
        let seat = inner
            .actors
            .seat(name, Arc::clone(host), len_max, Box::new(live))?;
        if let Err(error) = inner.tree.supervise(Arc::clone(&seat)) {
            seat.leave();
            let problem = error.to_string();
            return Err(SuperviseError::Spawn { problem });
        }
        Ok(actor)
    }
}

/// The actors of a runtime, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Actors(Arc<Mutex<Seats>>);

#[derive(Debug, Default)]
struct Seats {
    by_name: BTreeMap<String, Arc<Seat>>,
    last_number: u64,
}

impl Actors {
    fn seat(
        &self,
        name: &str,
        host: Arc<dyn Host>,
        len_max: usize,
        live: Box<Live>,
    ) -> Result<Arc<Seat>, SuperviseError> {
        let mut seats = lock(&self.0);
        if seats.by_name.contains_key(name) {
            return Err(SuperviseError::Taken { name: name.into() });
        }
        if seats.by_name.len() >= len_max {
            return Err(SuperviseError::TooMany { len_max });
        }
        seats.last_number += 1;
        let seat = Arc::new(Seat {
            name: name.into(),
            number: seats.last_number,
            bell: Bell::new(),
            host,
            live,
            actors: Arc::downgrade(&self.0),
            standing: Mutex::default(),
        });
        seats.by_name.insert(name.into(), Arc::clone(&seat));
        Ok(seat)
    }

    /// Lets no further actor start, and returns all seats, the latest first.
    pub(crate) fn close(&self) -> Vec<Arc<Seat>> {
        let mut seats: Vec<_> = lock(&self.0).by_name.values().cloned().collect();
        seats.sort_by_key(|seat| std::cmp::Reverse(seat.number));
        for seat in &seats {
            lock(&seat.standing).is_closed = true;
        }
        seats
    }
}

/// Makes an actor and waits for its end.
type Live = dyn Fn(Arc<Seat>) -> Task + Send + Sync;

/// The place of one actor in the tree, which stays across restarts.
pub(crate) struct Seat {
    name: String,
    number: u64,
    bell: Bell,
    host: Arc<dyn Host>,
    live: Box<Live>,
    actors: Weak<Mutex<Seats>>,
    standing: Mutex<Standing>,
}

#[derive(Default)]
struct Standing {
    /// The runtime is being shut down: no actor is started.
    is_closed: bool,
    life: Life,
}

/// The state of the actor in a seat.
///
/// ```text
///   Vacant ──begin──► Lives ──its end──► Ended ──seen by its keeper──► Vacant
///     ▲                 │ its keeper is dropped
///     └──── its end ── Killed
/// ```
#[derive(Default)]
enum Life {
    #[default]
    Vacant,
    /// From the moment when its task begins. `None` until the actor is spawned.
    Lives(Option<ActorCell>),
    /// Its keeper was dropped.
    Killed,
    /// It has ended; an error says why it failed.
    Ended(Result<(), String>),
}

/// The answer to a keeper that wants to begin.
enum Begun {
    Now,
    /// The former actor has not ended; its end rings the bell.
    Later,
    /// The runtime is being shut down.
    Never,
}

impl Seat {
    /// The name of its part.
    pub(crate) fn part_name(&self) -> String {
        format!("actor {}", self.name)
    }

    pub(crate) const fn bell(&self) -> &Bell {
        &self.bell
    }

    /// The keeper, as a part.
    pub(crate) fn keeper(self: &Arc<Self>) -> Box<dyn Part> {
        Box::new(Keeper {
            seat: Arc::clone(self),
            has_begun: false,
        })
    }

    /// Removes it from the tree: its name is free.
    pub(crate) fn leave(&self) {
        if let Some(actors) = self.actors.upgrade() {
            lock(&actors).by_name.remove(&self.name);
        }
    }

    /// Asks the actor to handle what is in its mailbox, and to stop.
    pub(crate) fn drain(&self) {
        let actor = match &lock(&self.standing).life {
            Life::Lives(actor) => actor.clone(),
            Life::Vacant | Life::Killed | Life::Ended(_) => None,
        };
        // An actor that is gone has nothing left to handle.
        if let Some(actor) = actor {
            drop(actor.drain());
        }
    }

    /// Whether the seat has no actor.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(lock(&self.standing).life, Life::Vacant | Life::Ended(_))
    }

    fn begin(self: &Arc<Self>) -> Begun {
        let mut standing = lock(&self.standing);
        if standing.is_closed {
            return Begun::Never;
        }
        match standing.life {
            Life::Lives(_) | Life::Killed => return Begun::Later,
            Life::Vacant | Life::Ended(_) => standing.life = Life::Lives(None),
        }
        drop(standing);
        let _task = self.host.spawn("actor", (self.live)(Arc::clone(self)));
        Begun::Now
    }

    /// Notes the spawned actor.
    fn seated(&self, actor: &ActorCell) {
        let mut standing = lock(&self.standing);
        match &mut standing.life {
            Life::Lives(known) => *known = Some(actor.clone()),
            Life::Vacant | Life::Killed | Life::Ended(_) => {
                drop(standing);
                actor.kill();
            }
        }
    }

    fn ended(&self, end: Result<(), String>) {
        let mut standing = lock(&self.standing);
        standing.life = match standing.life {
            Life::Lives(_) => Life::Ended(end),
            Life::Vacant | Life::Killed | Life::Ended(_) => Life::Vacant,
        };
        drop(standing);
        self.bell.ring();
    }

    /// How the actor ended, if it has.
    fn take_end(&self) -> Option<Result<(), String>> {
        let mut standing = lock(&self.standing);
        match mem::take(&mut standing.life) {
            Life::Ended(end) => Some(end),
            life @ (Life::Vacant | Life::Lives(_) | Life::Killed) => {
                standing.life = life;
                None
            }
        }
    }

    /// The keeper was dropped.
    fn kill(&self) {
        let mut standing = lock(&self.standing);
        let Life::Lives(actor) = &mut standing.life else {
            return;
        };
        let actor = actor.take();
        standing.life = Life::Killed;
        drop(standing);
        if let Some(actor) = actor {
            actor.kill();
        }
    }
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seat")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps an actor: begins it, and ends as it ends.
struct Keeper {
    seat: Arc<Seat>,
    has_begun: bool,
}

impl Part for Keeper {
    fn turn(&mut self, _now: Timestamp, _budget: usize) -> Next {
        if !self.has_begun {
            match self.seat.begin() {
                Begun::Now => self.has_begun = true,
                Begun::Later => {}
                Begun::Never => return Next::Stop,
            }
            return Next::Idle;
        }
        match self.seat.take_end() {
            None => Next::Idle,
            Some(Ok(())) => Next::Stop,
            // The tree counts this, and restarts the actor or stops the runtime.
            Some(Err(message)) => panic!("{message}"),
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if self.has_begun {
            self.seat.kill();
        }
    }
}

/// The life of one actor, from its making to its end.
async fn live<A, F>(seat: Arc<Seat>, make: Arc<F>, present: Arc<Mutex<Option<ActorRef<A::Msg>>>>)
where
    A: Actor,
    F: Fn() -> (A, A::Arguments) + Send + Sync + 'static,
{
    let mut stay = Stay {
        seat,
        present,
        watcher: None,
        // The result if the host drops this task.
        end: Ok(()),
    };
    stay.end = stay.live(&*make).await;
}

/// Reports the end of an actor, also if its task is dropped.
struct Stay<M: Message> {
    seat: Arc<Seat>,
    present: Arc<Mutex<Option<ActorRef<M>>>>,
    watcher: Option<ActorRef<()>>,
    end: Result<(), String>,
}

impl<M: Message> Stay<M> {
    async fn live<A>(&mut self, make: &(impl Fn() -> (A, A::Arguments) + Send + Sync)) -> Result<(), String>
    where
        A: Actor<Msg = M>,
    {
        let (actor, arguments) = catch_unwind(AssertUnwindSafe(make)).map_err(panic_message)?;
        let (tell, told) = oneshot::channel();
        let watcher = Watcher::spawn(None, Watcher, tell).await;
        let (watcher, _) = watcher.map_err(|error| error.to_string())?;
        self.watcher = Some(watcher.clone());
        let spawned = ActorRuntime::spawn_linked_instant(None, actor, arguments, watcher.get_cell());
        let (actor, starting) = spawned.map_err(|error| error.to_string())?;
        *lock(&self.present) = Some(actor.clone());
        self.seat.seated(&actor.get_cell());
        let running = match starting.await {
            Ok(Ok(running)) => running,
            Ok(Err(error)) => return Err(error.to_string()),
            Err(cut) => return Err(cut.to_string()),
        };
        // When its task has ended, its state is dropped, and what it was handling is back in its inboxes.
        drop(running.await);
        told.await.unwrap_or(Ok(()))
    }
}

impl<M: Message> Drop for Stay<M> {
    fn drop(&mut self) {
        let actor = lock(&self.present).take();
        // No effect on an actor that has ended.
        if let Some(actor) = actor {
            actor.kill();
        }
        if let Some(watcher) = self.watcher.take() {
            watcher.kill();
        }
        self.seat.ended(mem::replace(&mut self.end, Ok(())));
    }
}

/// Is told by ractor how its only child ended.
struct Watcher;

impl Actor for Watcher {
    type Msg = ();
    type State = Option<oneshot::Sender<Result<(), String>>>;
    type Arguments = oneshot::Sender<Result<(), String>>;

    async fn pre_start(
        &self,
        _: ActorRef<()>,
        tell: Self::Arguments,
    ) -> Result<Self::State, ActorProcessingErr> {
        Ok(Some(tell))
    }

    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<()>,
        event: SupervisionEvent,
        tell: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        let end = match event {
            SupervisionEvent::ActorFailed(_, error) => Err(error.to_string()),
            SupervisionEvent::ActorTerminated(..) => Ok(()),
            _ => return Ok(()),
        };
        if let Some(tell) = tell.take() {
            // The waiting task may have been dropped with its host.
            drop(tell.send(end));
        }
        Ok(())
    }
}
