//! Output streams: what the activities of a run send while they work, and readers of the run follow.
//!
//! ```text
//!   attempt ─► sender ─► tail of the stream [ 17 │ 18 │ … │ 90 ] ──► each reader, from where it stands
//!     │ its end                 oldest dropped ◄─┘
//!     └──────────────────► told in the same tail
//! ```
//!
//! A run has one stream per name. What several steps of a run send to it, and several attempts of a step, stands in it in the
//! order in which it was sent, each chunk with its step and attempt.
//!
//! Invariants: a sender waits for no reader, and what a stream keeps is bounded. Behind the end of an attempt there is no
//! chunk of it. A reader passes over nothing without a word. Positions name the life of their tail, so one of another
//! process, or of a tail that was given up, is never taken for one of this. No lock is held while another is taken.
//!
//! A stream is kept in memory alone, unless its sender asks for a durable one, whose records are in the journal. Nothing of
//! either is in a history: what a run decides by belongs into the result of the activity.

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
