//! The runs at hand: each found by its run and by its id, asleep, awake or ended, and counted.
//!
//! ```text
//!   roster ─┬─► sleepers (asleep)
//!           └─► entries (entry) ── ended ──► results
//!   line, start_order: spots in the roster, for who remembers many
//!   census: how many there are, and which are parked; tally: how many of each workflow
//! ```
//!
//! Invariant: the roster is a picture of the histories, and can be made again from them. Nothing in this folder records a
//! turn, sends a message or knows the shard.

pub(super) mod asleep;
pub(super) mod census;
pub(super) mod entry;
pub(super) mod id_hash;
pub(super) mod line;
pub(super) mod results;
pub(super) mod roster;
pub(super) mod start_order;
pub(super) mod tally;
