//! The owner of all parts and tasks, and the [`Host`] that it hands out.

use std::fmt;
use std::panic::catch_unwind;
use std::pin::pin;
use std::sync::Arc;
use std::thread::ThreadId;
use std::time::Duration;

use futures_util::future::{Either, select};
use millrun_core::{
    Bell, Host, OnExit, Part, PartHandle, Placement, SpawnError, Stop, Task, TaskHandle, Timestamp,
};
use ractor::{Actor, ActorRef, ActorRuntime};
use tokio::runtime::{Handle, RuntimeFlavor};

use super::actor::{PartActor, PartState, Supervisor};
use super::clock::Clock;
use super::dice::Dice;
use super::driven::Driven;
use super::own_thread::OwnThread;
use super::parts::{PartInfo, Parts};
use super::sleep::{Sleepers, sleep_until};
use super::tasks::Tasks;
use super::thread::PartThread;

/// The limits of a [`TokioHost`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostConfig {
    /// About how many messages a part handles in one turn, before other parts get theirs. At least 1; 1,024 by default.
    pub turn_budget: usize,
    /// How long dropping a [`TokioHost`] waits at most for its threads to end their last turns, which may wait for the disk.
    /// 10 s by default. Afterwards the threads are left behind, with a warning.
    pub drop_wait_max: Duration,
    /// Whether parts that are actors run on a thread of their own, if the runtime has several workers. There they keep their
    /// memory in one core's caches, and parts that often wake each other need no other thread for it. They then end with the
    /// host, not with the runtime. False by default: they share the workers. Tasks always do.
    pub own_thread: bool,
}

impl Default for HostConfig {
    fn default() -> Self {
        Self {
            turn_budget: 1_024,
            drop_wait_max: Duration::from_secs(10),
            own_thread: false,
        }
    }
}

/// Why a [`TokioHost`] could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// It was not started from within a tokio runtime.
    #[error("there is no tokio runtime here; call this from async code that tokio runs")]
    NoRuntime,
    /// The tokio runtime was built without its timer.
    #[error("the tokio runtime has no timer; build it with `enable_time` or `enable_all`")]
    NoTimer,
    /// A limit is zero that must not be.
    #[error("turn_budget must be at least 1")]
    NoTurnBudget,
    /// The supervisor did not start.
    #[error("the supervisor did not start: {0}")]
    Supervisor(String),
    /// The operating system gave no thread for the parts.
    #[error("the operating system gave no thread for the parts")]
    Thread(#[source] std::io::Error),
}

/// What had not ended when a shutdown ran out of time. It has been told to stop.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} parts and {tasks} tasks were still running", parts.len())]
#[non_exhaustive]
pub struct StillRunning {
    /// The parts, oldest first.
    pub parts: Vec<PartInfo>,
    /// The number of tasks.
    pub tasks: usize,
}

/// Runs parts and tasks on the caller's tokio runtime, current-thread or multi-thread.
///
/// This is the owner. Parts keep the [`Host`] that [`TokioHost::host`] hands out; that does not keep the parts alive, and
/// refuses new ones once the owner is dropped.
///
/// Dropping the owner is like a crash: parts and tasks get no further turn. The drop waits for the threads (see
/// [`HostConfig::drop_wait_max`]), so that files are closed when it returns. Actors and tasks on a current-thread runtime end
/// when that runtime runs next.
///
/// When the tokio runtime ends, so do all tasks and the parts that share its workers; their exit callbacks are called. The
/// host itself can still be used, shut down and dropped on any other executor; whatever it is asked to start then ends at
/// once.
///
/// The clock is the wall clock, looked at once a second and moved on by the machine's monotonic clock in
/// between. It follows a correction forward at once; after one backward it runs an eighth slower until the
/// wall clock has caught up, so that it never runs backwards. It does not follow tokio's paused time.
#[must_use = "dropping the host ends everything that runs on it"]
pub struct TokioHost {
    seam: Arc<Seam>,
    supervisor: ActorRef<()>,
    own_thread: Option<OwnThread>,
    drop_wait_max: Duration,
}

/// The state that is shared with the parts.
struct Seam {
    /// The caller's runtime.
    tokio: Handle,
    /// Where actors run: on a thread of the host's own, if `actors_thread` has an id.
    actors: Handle,
    actors_thread: Option<ThreadId>,
    clock: Clock,
    dice: Dice,
    turn_budget: usize,
    supervisor: ActorRef<()>,
    parts: Arc<Parts>,
    tasks: Arc<Tasks>,
    sleepers: Sleepers,
}

impl Drop for Seam {
    fn drop(&mut self) {
        self.sleepers.end();
    }
}

struct ActorStop(ActorRef<()>);

impl Stop for ActorStop {
    fn stop(&self) {
        self.0.stop(None);
    }
}

impl TokioHost {
    /// Starts a host on the tokio runtime that runs the caller. Returns when its supervisor runs.
    ///
    /// # Errors
    /// When there is no tokio runtime, when it has no timer, or when `config` asks for the
    /// impossible.
    pub async fn spawn(config: HostConfig) -> Result<Self, HostError> {
        Self::spawn_with(config, Clock::start()).await
    }

    /// As [`spawn`](Self::spawn), with the caller's clock.
    pub(super) async fn spawn_with(config: HostConfig, clock: Clock) -> Result<Self, HostError> {
        if config.turn_budget == 0 {
            return Err(HostError::NoTurnBudget);
        }
        let tokio = Handle::try_current().map_err(|_| HostError::NoRuntime)?;
        if !has_timer() {
            return Err(HostError::NoTimer);
        }
        let has_workers = tokio.runtime_flavor() != RuntimeFlavor::CurrentThread;
        let own_thread = (config.own_thread && has_workers)
            .then(OwnThread::spawn)
            .transpose()
            .map_err(HostError::Thread)?;
        let (supervisor, _) = Supervisor::spawn(None, Supervisor, ())
            .await
            .map_err(|error| HostError::Supervisor(error.to_string()))?;
        let actors = own_thread.as_ref().map_or(&tokio, |own| &own.tokio).clone();
        let seam = Seam {
            tokio,
            actors,
            actors_thread: own_thread.as_ref().map(|own| own.id),
            clock,
            dice: Dice::from_os(),
            turn_budget: config.turn_budget,
            supervisor: supervisor.clone(),
            parts: Arc::default(),
            tasks: Arc::default(),
            sleepers: Sleepers::default(),
        };
        Ok(Self {
            seam: Arc::new(seam),
            supervisor,
            own_thread,
            drop_wait_max: config.drop_wait_max,
        })
    }

    /// The host, to be given to whatever starts parts and tasks.
    #[must_use]
    pub fn host(&self) -> Arc<dyn Host> {
        Arc::clone(&self.seam) as Arc<dyn Host>
    }

    /// The parts that run now, oldest first.
    #[must_use]
    pub fn parts(&self) -> Vec<PartInfo> {
        self.seam.parts.list()
    }

    /// How many tasks run now.
    #[must_use]
    pub fn task_count(&self) -> usize {
        self.seam.tasks.count()
    }

    /// Stops every part, in no particular order, then every task, and waits for their ends. A part finishes its present turn;
    /// messages that still wait for it are dropped with it.
    ///
    /// # Errors
    /// When they have not all ended within `wait_max`. They have been told to stop.
    ///
    /// # Cancel safety
    /// Cancelling it drops the host.
    pub async fn shutdown(mut self, wait_max: Duration) -> Result<(), StillRunning> {
        let seam = Arc::clone(&self.seam);
        let Seam { parts, tasks, .. } = seam.as_ref();
        let supervisor = self.supervisor.clone();
        let all_ended = async {
            parts.close();
            parts.wait_until_empty().await;
            tasks.close();
            tasks.wait_until_empty().await;
            supervisor.stop(None);
            // Waits on the runtime of the supervisor: if that runtime has ended, so has the wait.
            let wait = async move { supervisor.wait(None).await.ok() };
            seam.tokio.spawn(wait).await.ok();
        };
        let time_is_over = seam.sleep_until(seam.clock.now() + wait_max);
        if let Either::Left(_) = select(pin!(all_ended), time_is_over).await {
            return Ok(());
        }
        // The wait is over: the drop at the end of this function must not wait again.
        self.drop_wait_max = Duration::ZERO;
        Err(StillRunning {
            parts: parts.list(),
            tasks: tasks.count(),
        })
    }
}

impl Drop for TokioHost {
    fn drop(&mut self) {
        self.seam.parts.close();
        self.seam.tasks.close();
        self.supervisor.kill();
        drop(self.own_thread.take());
        if !self.seam.parts.wait_for_threads(self.drop_wait_max) {
            tracing::warn!(parts = ?self.parts(), "threads were left behind when the host was dropped");
        }
    }
}

impl fmt::Debug for TokioHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.seam.fmt(f)
    }
}

impl fmt::Debug for Seam {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokioHost")
            .field("parts", &self.parts.list())
            .field("tasks", &self.tasks.count())
            .finish_non_exhaustive()
    }
}

impl Host for Seam {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn elapsed(&self) -> Duration {
        self.clock.elapsed()
    }

    fn random(&self) -> u64 {
        self.dice.roll()
    }

    fn spawn(&self, name: &'static str, task: Task) -> TaskHandle {
        self.tasks.spawn(&self.tokio, name, task)
    }

    fn within(&self, work: &mut dyn FnMut()) {
        let _context = self.tokio.enter();
        work();
    }

    fn has_threads(&self) -> bool {
        true
    }

    fn sleep_until(&self, deadline: Timestamp) -> Task {
        let (clock, tokio) = (self.clock.clone(), self.tokio.clone());
        Box::pin(sleep_until(deadline, clock, tokio, self.sleepers.clone()))
    }

    fn spawn_part(
        &self,
        name: &str,
        placement: Placement,
        bell: Bell,
        part: Box<dyn Part>,
        on_exit: OnExit,
    ) -> Result<PartHandle, SpawnError> {
        let refused = |cause: String| SpawnError {
            part: name.to_owned(),
            cause,
        };
        let info = PartInfo {
            name: name.to_owned(),
            placement,
            started_at: self.clock.now(),
        };
        let closed = || refused("the host has been shut down".to_owned());
        let parts = &self.parts;
        let time = (self.clock.clone(), self.turn_budget);
        match placement {
            Placement::Actor => {
                let number = parts.add(info, self.actors_thread).ok_or_else(closed)?;
                let place = (number, Arc::clone(parts));
                let driven = Driven::new(part, bell.clone(), on_exit, time, place, name);
                let actor = self.spawn_actor(driven);
                parts.set_stop(number, ActorStop(actor.clone()));
                Ok(PartHandle::new(ActorStop(actor)))
            }
            Placement::Thread => {
                if name.contains('\0') {
                    return Err(refused("the name of a thread cannot contain a NUL".to_owned()));
                }
                let thread = PartThread::spawn(name, self.clock.clone())
                    .map_err(|error| refused(error.to_string()))?;
                let number = parts.add(info, Some(thread.id)).ok_or_else(closed)?;
                let place = (number, Arc::clone(parts));
                let driven = Driven::new(part, bell, on_exit, time, place, name);
                let stop = thread.stop.clone();
                parts.set_stop(number, stop.clone());
                thread.start(driven);
                Ok(PartHandle::new(stop))
            }
        }
    }
}

/// Whether the current tokio runtime has a timer. There is no other way to find out.
#[expect(clippy::disallowed_methods, reason = "the sleep is not slept")]
fn has_timer() -> bool {
    catch_unwind(|| drop(tokio::time::sleep(Duration::ZERO))).is_ok()
}

impl Seam {
    fn spawn_actor(&self, driven: Driven) -> ActorRef<()> {
        let bell = driven.bell.clone();
        let state = PartState {
            driven,
            clock: self.clock.clone(),
            tokio: self.actors.clone(),
            alarm: None,
        };
        // Ractor spawns on the runtime of the calling thread, and that may be a plain OS thread.
        let _context = self.actors.enter();
        let supervisor = self.supervisor.get_cell();
        let (actor, _) = ActorRuntime::spawn_linked_instant(None, PartActor, state, supervisor)
            .expect("ractor refuses only names that are taken, and this actor has none");
        let wake = actor.clone();
        bell.connect(move || {
            // An actor that has ended needs no waking.
            wake.send_message(()).ok();
        });
        bell.ring();
        actor
    }
}
