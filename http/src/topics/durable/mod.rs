//! Durable topics that a program exposes: for publishing, reading by pages, and tailing from any place.
//!
//! ```text
//!   publish ─► the topic's handle ─► journal ──► reader of its own ─┬─► page: what is there
//!                                                                   └─► tail: that, and what comes
//! ```
//!
//! A tail has a reader of its own instead of a ring: a client that returns names the last record that it has seen by its
//! token, and the log has what follows. A reader holds at most one page and delays no publisher; without tails it costs
//! nothing.

mod carried;
mod from;
mod managing;
mod page;
mod read;
mod subscriptions;
mod tail;

pub(crate) use carried::{CarriesRecords, RecordSaid, TypedRecords};
pub(crate) use managing::{delete_topic, purge_topic, send_back};
pub(crate) use page::records_page;
pub(crate) use subscriptions::subscriptions_page;
pub(crate) use tail::record_tail;

pub use page::RECORDS_BYTES_MAX;
