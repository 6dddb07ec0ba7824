//! The seam to the world: clock, dice, tasks, threads.
//!
//! Everything long-lived in millrun (shards, pools, timers, the writer) is a [`Part`]: a plain
//! struct with one synchronous [`turn`](Part::turn). A [`Host`] decides on what it runs. The
//! production host puts a part on a supervised actor or an OS thread; a test host runs all parts
//! on one thread in a seeded order, so that a whole runtime can be replayed step by step.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use crate::{Bell, Timestamp};

/// A future that a host runs to its end.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send + 'static>>;

/// Called once, when a part has ended, from whichever thread ran it.
pub type OnExit = Box<dyn FnOnce(PartExit) + Send + 'static>;

/// Whether a simulated process has crashed; see [`Host::crash_check`].
pub type CrashCheck = Box<dyn Fn() -> bool + Send + Sync>;

/// Where time, randomness, tasks and threads come from.
pub trait Host: Send + Sync + fmt::Debug + 'static {
    /// The time of day. Never runs backwards within one process.
    fn now(&self) -> Timestamp;

    /// Time since some fixed moment, exact enough to measure a commit (nanoseconds).
    fn elapsed(&self) -> Duration;

    /// 64 random bits; not for cryptography.
    fn random(&self) -> u64;

    /// Runs a future. It is not awaited by anyone: it reports through what it captured. When the host ends,
    /// and when it has ended, the future is dropped, and what it captured with it.
    fn spawn(&self, name: &'static str, task: Task) -> TaskHandle;

    /// Does some work of a task's on the thread of the caller, a part: what it starts or asks of its
    /// surroundings goes where a [spawned](Self::spawn) task's would. By default, just does it.
    fn within(&self, work: &mut dyn FnMut()) {
        work();
    }

    /// Says, when it is called, whether a crash has ended what runs on this host: from then on nothing of it
    /// may reach a file, as nothing of a process that was killed does. `None` where the operating system
    /// sees to that, which is everywhere but in a simulation.
    fn crash_check(&self) -> Option<CrashCheck> {
        None
    }

    /// Completes at `deadline` or a little later, never before.
    fn sleep_until(&self, deadline: Timestamp) -> Task;

    /// Whether a part that is placed on a [thread](Placement::Thread) has one to itself, so that a turn of
    /// its may last as long as a full disk does. By default it has not: then such a turn fails at once.
    fn has_threads(&self) -> bool {
        false
    }

    /// Starts a part. It gets its first turn at once, and another each time `bell` has rung.
    ///
    /// # Errors
    /// When the operating system refuses a thread, or the host is shutting down.
    fn spawn_part(
        &self,
        name: &str,
        placement: Placement,
        bell: Bell,
        part: Box<dyn Part>,
        on_exit: OnExit,
    ) -> Result<PartHandle, SpawnError>;
}

/// A long-lived piece of the runtime, driven by a [`Host`].
pub trait Part: Send + 'static {
    /// Does what is waiting, about `budget` messages of it, and says when to be called next.
    ///
    /// A turn neither blocks on other parts nor sleeps; only parts placed on a
    /// [thread](Placement::Thread) may wait for the disk.
    fn turn(&mut self, now: Timestamp, budget: usize) -> Next;
}

/// When a part wants its next turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// When its bell rings.
    Idle,
    /// As soon as others have had their turn.
    Again,
    /// When its bell rings, or at this time at the latest.
    At(Timestamp),
    /// As [`Idle`](Self::Idle), and also at this time, to see to something that nobody waits for. A
    /// simulated world does not move its clock to get there.
    IdleUntil(Timestamp),
    /// Never: the part has finished.
    Stop,
}

/// On what a part runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// A supervised actor: many parts share the host's worker threads.
    Actor,
    /// An OS thread of its own: the part may wait for the disk.
    Thread,
}

/// How a part ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartExit {
    /// Its turn returned [`Next::Stop`], or its handle was told to stop.
    Stopped,
    /// Its turn panicked, with this message.
    Panicked(String),
}

/// Why a part could not be started.
#[derive(Debug)]
pub struct SpawnError {
    /// The name of the part.
    pub part: String,
    /// What the operating system or the actor system said.
    pub cause: String,
}

impl fmt::Display for SpawnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "could not start {}: {}", self.part, self.cause)
    }
}

impl std::error::Error for SpawnError {}

/// What a host can stop: a task or a part.
pub trait Stop: Send + Sync + 'static {
    /// Stops it at its next await or before its next turn. May be called more than once.
    fn stop(&self);
}

/// Ends a task early. Dropping the handle leaves the task running.
pub struct TaskHandle(Box<dyn Stop>);

impl TaskHandle {
    /// Wraps what the host uses to end the task.
    #[must_use]
    pub fn new(stop: impl Stop) -> Self {
        Self(Box::new(stop))
    }

    /// Drops the task's future at its next await.
    pub fn abort(&self) {
        self.0.stop();
    }
}

impl fmt::Debug for TaskHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TaskHandle")
    }
}

/// Stops a part. Dropping the handle leaves the part running.
pub struct PartHandle(Box<dyn Stop>);

impl PartHandle {
    /// Wraps what the host uses to stop the part.
    #[must_use]
    pub fn new(stop: impl Stop) -> Self {
        Self(Box::new(stop))
    }

    /// Gives the part no further turn. Its exit callback is called when it has ended.
    pub fn stop(&self) {
        self.0.stop();
    }
}

impl fmt::Debug for PartHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PartHandle")
    }
}
