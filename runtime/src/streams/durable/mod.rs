//! Durable output streams: what activities send, kept in the journal until the run is removed.
//!
//! ```text
//!   attempt ─► sender ─► queue of the stream ─► writer, one append at a time ─► shard of the run ─► journal
//!     │ its end            ▲ bounded                 │ durable: senders are told                      │
//!     └────────────────────┘                         └► the attempt is not under way any more         │
//!   reader ◄── items in hand ◄── pages of the records ◄───────────────────────────────────────────────┘
//! ```
//!
//! Each stream is a topic of the journal's under a reserved name, which says the run and the name of the stream. When the run is
//! removed, the number of the topic is given to the next stream: a store gives a bounded count of numbers.
//!
//! Invariants: what a sender was told of is durable. The records of a stream stand in the order in which they were sent, each
//! once. Behind the end of an attempt there is no chunk of it; an attempt that has begun in the records and has no end there is
//! under way in this process, or ends as lost before anything further is appended. A stream that was removed is read by
//! nobody as another one: each record names its run.

mod cursor;
pub(crate) mod index;
pub(crate) mod log;
pub(crate) mod opened;
mod record;
pub(crate) mod removal;
pub(crate) mod sender;

pub(super) use cursor::LogCursor;
pub use sender::{DurableChunkError, DurableStreamError, DurableStreamSender};
