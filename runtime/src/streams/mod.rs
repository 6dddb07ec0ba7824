//! Output streams: chunks that the activities of a run send while they work, and that readers of the run follow.
//!
//! ```text
//!   attempt ─► sender ─► tail of the stream [ 17 │ 18 │ … │ 90 ] ──► each reader, from where it stands
//!     │ its end                 oldest dropped ◄─┘
//!     └──────────────────► told in the same tail
//! ```
//!
//! A run has one stream per name. Several steps of a run, and several attempts of a step, can send to it; the chunks are in
//! the order in which they were sent, each with its step and attempt.
//!
//! Invariants: a sender waits for no reader, and a stream's size is bounded. No chunk of an attempt follows the attempt's
//! end. A reader skips nothing silently. Positions name the life of their tail, so a position of another process, or of a
//! tail that was dropped, is never mistaken for one of this tail. No lock is held while another is taken.
//!
//! A stream is only in memory, unless its sender asks for a durable one, whose records are in the journal. Neither is in a
//! history: data on which a run's decisions depend belongs into the result of the activity.

pub(crate) mod attempt;
mod cursor;
pub(crate) mod durable;
pub(crate) mod position;
pub(crate) mod reader;
pub(crate) mod sender;
mod summary;
pub(crate) mod table;
mod tail;

pub use attempt::{AttemptEnd, StreamAttempt};
pub use durable::index::DURABLE_STREAM_NAME_BYTES_MAX;
pub use durable::{DurableChunkError, DurableStreamError, DurableStreamSender};
pub use position::{StreamPosition, StreamPositionError};
pub use reader::{StreamItem, StreamOpenError, StreamReadError, StreamReader};
pub use sender::{ChunkError, OutputStreamError, StreamSender};
pub use summary::OutputStreamSummary;
