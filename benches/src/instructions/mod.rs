//! How many instructions do the hot paths take? A guard that the machine's noise cannot reach.
//!
//! ```text
//!   bench-instructions ──► valgrind --tool=callgrind bench-instructions --measure PATH --operations N
//!        │                        twice, with fewer and with more operations: what differs is theirs
//!        └── compares with instructions.toml
//! ```
//!
//! `--breakdown PATH` says where the instructions of one path go, `--times` where the microseconds of a
//! durable run do.
//!
//! Counts depend on the compiler, its options and the C library, and hardly on the load: a change beyond
//! the tolerance, each time it is counted, is a change of the code. They say nothing about caches, locks or the
//! disk; the other suites do.

mod breakdown;
mod callgrind;
mod hot_path;
mod memory_disk;
mod owner;
mod samples;

pub use breakdown::breakdown;
pub use callgrind::{Row, is_installed, judge, measure, table};
pub use hot_path::HotPath;
pub(crate) use owner::Owners;
pub use samples::times;
