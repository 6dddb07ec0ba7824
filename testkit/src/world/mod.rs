//! A world for the user's own registry: virtual time, mocked activities, and crashes wherever one may come.
//!
//! ```text
//!   registry ──► RuntimeBuilder ──► runtime ──on──► SimHost (one thread, a seed, virtual time)
//!   mocks ─────────┘  (replace)       │ │
//!   recorder ◄──── each attempt ──────┘ └── WorldJournal ──► disk part: one commit a turn
//!                                                             │
//!   WorldLife ◄── commits, attempts, steps: is this the point? ┘ ──► crash, and the next life on what is durable
//! ```
//!
//! A *life* is a process: it begins when a store is opened, and ends by a crash or a restart. What stands outside of the
//! process outlives it: mocks and what they were asked, and the durable part of the store.
//!
//! Invariants:
//!
//! - The registry is the program's own, and knows nothing of the testkit.
//! - The same seed, registry, mocks and scenario give the same steps, crashes included.
//! - Of a life that is over nothing reaches the store, and no attempt of an activity begins.
//!
//! Left out on purpose: the files of a store and power cuts, which the store's own tests have, and nodes that share a store.

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
