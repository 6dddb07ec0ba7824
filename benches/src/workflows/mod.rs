//! Workflows per second and per commit: what a durable step costs from start to result.
//!
//! ```text
//!   clients ──start──► run ──► activities ──► result ──► client checks it and starts the next
//!   (1 to 65,536)      every start and every result is on disk before anyone hears of it
//! ```
//!
//! Each row names its durability. `durable` means one fsync per group commit, before any answer;
//! `in memory` keeps nothing. In the same run, on the same disk, two things are timed beside them: a bare redb
//! commit of one row, the price that no durable step can avoid, and the floor, the least program that does the
//! durable work of one-step runs.

mod case;
mod commits;
mod definitions;
mod floor;
mod runner;
mod suite;

pub mod fibo;
pub mod patterns;
pub mod peak;

pub(crate) use case::run_once;
pub use case::{Case, Effort};
pub use commits::bare_commits;
pub use definitions::{
    FIVE_TASKS, ONE_STEP, PARALLEL, SEQUENCE, STEP, THREE_STEPS, TWO_STEPS, registered, sum_of_parallel,
};
pub use runner::Runner;
pub use suite::suite;
