//! Opens a store: finds its file, rebuilds what is known of its runs, and hands their records to the claimants.
//!
//! Invariant: no claim is granted before the whole store was checked.

pub(crate) mod open;

pub(in crate::redb) mod claim_queue;
pub(in crate::redb) mod claims;
pub(in crate::redb) mod rebuild;
pub(in crate::redb) mod recover;
pub(in crate::redb) mod start;
