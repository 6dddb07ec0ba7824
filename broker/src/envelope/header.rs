//! The header of an envelope: what the publisher and the broker write into it.
//!
//! ```text
//!   Headers (a publisher's) ── key, trace, expiry: boxed, as few have them ──┐
//!        └─ lineage: whose consequence it is                                  ├─► Envelope
//!   Mark (the broker's) ── id, topic, time ───────────────────────────────────┘
//! ```
//!
//! Invariant: headers without any value allocate nothing.
//!
//! Left out: the payload and what it weighs (`envelope`), and how an envelope's cause is found (`scope`).

use std::sync::Arc;

use millrun_core::{Cause, Timestamp, TraceContext};

use crate::id::{EnvelopeId, TopicId};

/// What a publisher may add to an envelope besides its payload. By default nothing.
#[derive(Clone, Debug, Default)]
pub struct Headers {
    pub(crate) lineage: Option<Lineage>,
    pub(crate) extras: Option<Box<Extras>>,
}

/// Where an envelope comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lineage {
    pub(crate) correlation: EnvelopeId,
    pub(crate) causation: EnvelopeId,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Extras {
    pub(crate) key: Option<Arc<str>>,
    pub(crate) trace: Option<TraceContext>,
    pub(crate) expires: Option<Timestamp>,
    pub(crate) run: Option<Cause>,
}

impl Headers {
    /// Empty headers.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What the envelope is about, for consumers that sort by it.
    #[must_use]
    pub fn key(mut self, key: impl Into<Arc<str>>) -> Self {
        self.extras_mut().key = Some(key.into());
        self
    }

    /// The publisher's place in a distributed trace.
    #[must_use]
    pub fn trace(mut self, trace: TraceContext) -> Self {
        self.extras_mut().trace = Some(trace);
        self
    }

    /// From this time on the envelope is not handed out any more.
    #[must_use]
    pub fn expires(mut self, at: Timestamp) -> Self {
        self.extras_mut().expires = Some(at);
        self
    }

    /// The envelope is a consequence of a durable run's decision: of this operation of the run.
    #[must_use]
    pub fn caused_by_run(mut self, cause: Cause) -> Self {
        self.extras_mut().run = Some(cause);
        self
    }

    fn extras_mut(&mut self) -> &mut Extras {
        self.extras.get_or_insert_default()
    }
}

/// The part of the header that the broker writes.
#[derive(Clone, Copy)]
pub(crate) struct Mark {
    pub(crate) id: EnvelopeId,
    pub(crate) topic: TopicId,
    pub(crate) time: Timestamp,
}
