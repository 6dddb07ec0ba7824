//! Durable output streams: chunks that activities send, kept in the journal until the run is removed.
//!
//! ```text
//!   attempt ─► sender ─► queue of the stream ─► writer, one append at a time ─► shard of the run ─► journal
//!     │ its end            ▲ bounded                 │ durable: senders are told                      │
//!     └────────────────────┘                         └► the attempt is not under way any more         │
//!   reader ◄── items in hand ◄── pages of the records ◄───────────────────────────────────────────────┘
//! ```
//!
//! Each stream is a topic of the journal under a reserved name, which contains the run and the stream's name. When the run is
//! removed, the topic's number is reused for another stream, since a store has a bounded number of them.
//!
//! Invariants: what a sender was told of is durable. The records of a stream are in the order in which they were sent, each
//! once. No chunk of an attempt follows the attempt's end. An attempt that has begun in the records and has no end there is
//! under way in this process, or ends as lost before anything further is appended. A removed stream is never mistaken for
//! another one: each record names its run.

mod cursor;
pub(crate) mod index;
pub(crate) mod log;
pub(crate) mod opened;
mod record;
pub(crate) mod removal;
pub(crate) mod sender;

pub(super) use cursor::LogCursor;
pub use sender::{DurableChunkError, DurableStreamError, DurableStreamSender};
