//! A second host: seeded, one thread, virtual time.
//!
//! ```text
//!                    ┌─────────────────────────── the world ───────────────────────────┐
//!   ring, wake ────► │ ready: {shard-0, writer, task 7}  ──draw──► one turn or one poll │
//!                    │   ▲                                             │               │
//!                    │   └── due ── timers ◄── At(t), sleep_until ─────┘               │
//!                    │ nothing ready: the clock jumps to the next timer                │
//!                    └─────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Everything that a runtime does goes through its [`Host`](millrun_core::Host), so here it
//! happens one step at a time, in an order drawn from the seed: which of the ready parts and
//! tasks runs next, and how large a budget a turn gets. The same seed gives the same steps.
//!
//! Invariants:
//!
//! - Parts and tasks run only on the thread that calls [`SimHost`], inside its methods.
//! - No lock is held while foreign code runs: turns, polls, wakers, callbacks and drops.
//! - After a [crash](SimHost::crash) nothing of the former life gets another turn or poll, and its hosts start nothing.
//!
//! Left out on purpose: the disk. A simulated disk belongs to the implementation of a store; it can share the seed. Wakes
//! from other threads work, but the seed does not choose their moment, so a test with its own threads cannot be repeated
//! exactly.

mod config;
mod dice;
mod seam;
mod sim_host;
mod sleep;
mod trace;
mod world;

pub use config::SimConfig;
#[cfg(feature = "world")]
pub(crate) use dice::Dice;
pub use sim_host::{SimHost, SimStop, Stuck};
pub use trace::{Action, Step, Trace};
