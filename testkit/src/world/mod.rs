//! A world for the user's own registry: virtual time, mocked activities, and crashes at every possible point.
//!
//! ```text
//!   registry ──► RuntimeBuilder ──► runtime ──on──► SimHost (one thread, a seed, virtual time)
//!   mocks ─────────┘  (replace)       │ │
//!   recorder ◄──── each attempt ──────┘ └── WorldJournal ──► disk part: one commit a turn
//!                                                             │
//!   WorldLife ◄── commits, attempts, steps: is this the point? ┘ ──► crash, and the next life on what is durable
//! ```
//!
//! A *life* stands for a process: it begins when a store is opened, and ends by a crash or a restart. Mocks with their
//! recorded calls, and the durable part of the store, outlive it, as services outside of a process do.
//!
//! Invariants:
//!
//! - The registry is the program's own, and knows nothing of the testkit.
//! - The same seed, registry, mocks and scenario give the same steps, crashes included.
//! - After a life has ended, nothing of it reaches the store, and no attempt of an activity begins.
//!
//! Left out on purpose: the files of a store and power cuts, which the store's own tests cover, and nodes that share a store.

mod config;
mod course;
mod fault;
mod journal;
mod looking;
mod mock;
mod recorder;
mod repeat;
mod trials;
#[expect(
    clippy::module_inception,
    reason = "the file of the type that the module is named for"
)]
mod world;

pub use config::WorldConfig;
pub use fault::Fault;
pub use mock::Mock;
pub use recorder::AttemptSeen;
pub use trials::FaultsTried;
pub use world::World;
