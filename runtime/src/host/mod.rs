//! Where a runtime's parts run, and where its time and randomness come from: the [`Host`] trait, and the host
//! of the caller's tokio, ractor actors and OS threads.
//!
//! ```text
//!   TokioHost (the owner: shutdown, or Drop)
//!     └── Supervisor (ractor)             one per host
//!           ├── PartActor "shard-0"       its only message is "your bell has rung"
//!           ├── PartActor "timers"
//!           └── …
//!     ├── thread "writer"                 its bell is a channel with room for one
//!     └── tasks                           activities, performers, sleeps
//! ```
//!
//! The actors share the caller's workers, or have a thread of their own
//! ([`own_thread`](HostConfig::own_thread)); tasks are always the caller's.
//!
//! A part is woken in one way only: its [`Bell`]. The first turn, a turn that
//! wants another ([`Next::Again`]), a deadline and a sender that filled its mailbox
//! all ring it, so that many reasons make one turn. A thread whose waits are mostly short looks for a
//! ring for a moment before it sleeps (`patience`).
//!
//! Invariants:
//!
//! - The exit callback of a part is called exactly once, after the part has been dropped, however
//!   it ended: stop, panic, kill, or the end of the tokio runtime.
//! - No lock of this module is held while a part, a task or a callback runs.
//! - A wait on another tokio runtime, or on a plain thread, goes on when this one has ended: nothing
//!   that is handed out asks for tokio where it may be gone (`sleep`).
//! - Stopping is never starved: an actor looks at its stop signal before each turn, and
//!   a turn that wants another one goes through the mailbox.
//!
//! Left out on purpose: restarting. Only the owner of a part knows how to build a new one from
//! its journal; it does so when the exit callback tells it.

mod actor;
mod alarm;
mod clock;
mod dice;
mod driven;
mod own_thread;
mod parts;
mod patience;
pub(crate) mod server_time;
mod sleep;
mod tasks;
#[cfg(test)]
mod tests;
mod thread;
mod tokio_host;

pub use parts::PartInfo;
pub use tokio_host::{HostConfig, HostError, StillRunning, TokioHost};

pub use millrun_core::{
    Bell, CrashCheck, Host, Next, OnExit, Part, PartExit, PartHandle, Placement, SpawnError, Stop, Task,
    TaskHandle,
};
