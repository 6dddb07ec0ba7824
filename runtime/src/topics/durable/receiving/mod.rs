//! Runs that wait for records of durable topics.
//!
//! ```text
//!   a run's wait, durable ─► RecordWaits ─ listed by filter ◄─ the live reader: each new record, after its commit
//!                                └─ late: its record may be there already ◄─ a pass over what is there
//!        met ─► Tell, to the run's shard ─► a turn of the run, which holds the record
//! ```
//!
//! Invariants: a wait in a durable history is listed here while its run's partition is owned, and every record behind its
//! place is compared with it: by the live reader, or by a pass that ends where the live reader is. A record that does not
//! meet a wait costs the run nothing. The list is lost with the process, and rebuilt from the histories.

mod compared;
mod delivering;
mod reading;
mod recent;
mod selector;
mod wait_index;
mod waits;

pub(crate) use waits::{NewWait, RecordWaits};
