//! Topics whose records the journal keeps: declarations, publishes from outside, and readers.
//!
//! ```text
//!   caller ─► publish ─► mailbox of the shard that owns the key's partition ─┐ record
//!   run ────► its turn in that shard ────────────────────────────────────────┴─► batch ─► journal
//!                                                                                           │ commit
//!   reader ◄── page ◄── what is in memory, or else the reader lanes ◄── news, one bell for all
//! ```
//!
//! For publishes in a shard see `shard/outward/appending.rs`.

mod commanding;
pub(crate) mod declared;
pub(crate) mod handle;
pub(crate) mod looking;
pub(crate) mod managing;
pub(crate) mod news;
pub(crate) mod publish;
pub(crate) mod reader;
pub(crate) mod receiving;
pub(crate) mod record;
mod renamed;
pub(crate) mod standing;
pub(crate) mod stored;
pub(crate) mod subscription;
pub(crate) mod terms;
pub(crate) mod token;
pub(crate) mod trigger;
mod triggered;
