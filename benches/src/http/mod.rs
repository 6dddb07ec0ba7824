//! The routes of `millrun-http` under load, beside the least that a server does and beside calls in the same process.
//!
//! ```text
//!   bench-http ──HTTP──► a server in a process of its own: axum's hello world, or a runtime with its routes
//!            └─starts──► a process that starts runs itself: embedded
//! ```
//!
//! The load is made on the same machine, by one thread. Stores are durable (one fsync per group commit) and lie
//! beside the results.

mod beside;
mod cases;
mod connection;
mod embedded;
mod paced;
mod row;
mod served;
mod server;

pub use cases::{Effort, measure};
pub use embedded::{Embedded, embedded};
pub use row::{Row, Summary, table};
pub use server::{ServerKind, serve};
