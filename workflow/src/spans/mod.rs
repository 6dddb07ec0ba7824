//! The spans of a run in a distributed trace, made from its history.
//!
//! ```text
//!   event, event, event … ─► SpanFold ─► the run        ids: of the run, and of each operation
//!   (or a kept beginning)                 ├─ an activity, with its failed attempts
//!                                         ├─ a timer, a child, a publish, a signal, a promise
//!                                         └─ an update
//! ```
//!
//! Invariants: the same history gives the same spans, byte for byte. Nothing here is called while code runs, so a replay
//! makes no spans. No payload is read: spans contain names, numbers, times and the texts of errors.
//!
//! Left out on purpose: attempts as spans of their own. An attempt that a crash cut off is in no history, and its calls would
//! be children of a span that is never exported. So the calls of attempts are children of the operation's span.

mod fold;
mod outcome;
mod unfinished;

use millrun_core::{RunId, SpanId, Timestamp, TraceContext};

pub use fold::SpanFold;

/// How much detail the spans of a run contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanBounds {
    /// The largest number of spans of a run. Those of further operations and updates are left out, and counted.
    pub spans_len_max: usize,
    /// The largest number of notes of a span. Further ones are left out, and counted.
    pub notes_len_max: usize,
    /// The largest size of a text in bytes, such as the message of an error.
    pub text_bytes_max: usize,
}

impl Default for SpanBounds {
    /// 1,000 spans of 128 notes, and 1 KiB of a text.
    fn default() -> Self {
        Self {
            spans_len_max: 1_000,
            notes_len_max: 128,
            text_bytes_max: 1_024,
        }
    }
}

/// The spans of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSpans {
    /// The run.
    pub run: RunId,
    /// Its place in the trace: from its history, or a new trace that begins with it.
    pub trace: TraceContext,
    /// The span of the run, and then those of its operations and updates in the order in which they began.
    pub spans: Vec<RunSpan>,
    /// How many operations and updates have no span, because there are [too many](SpanBounds::spans_len_max).
    pub left_out: u64,
}

/// A named period of time of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSpan {
    /// Its id, which follows from the run and the operation.
    pub id: SpanId,
    /// The parent span: of the run's caller, or of the run. `None` if the trace begins with the run.
    pub parent: Option<SpanId>,
    /// What it is the span of.
    pub of: SpanOf,
    /// Its name: that of a workflow or an activity, say.
    pub name: String,
    /// When it began.
    pub began_at: Timestamp,
    /// When it ended.
    pub ended_at: Timestamp,
    /// How it ended.
    pub end: SpanEnd,
    /// Its attributes, by names that begin with `millrun.`.
    pub attributes: Vec<(&'static str, SpanValue)>,
    /// What happened during it, in order.
    pub notes: Vec<SpanNote>,
    /// How many notes were left out, because there are [too many](SpanBounds::notes_len_max).
    pub notes_left_out: u32,
    /// Related spans of the same trace: of the run that a run continues, and of a child's run.
    pub links: Vec<SpanId>,
}

/// What a span is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SpanOf {
    /// A run.
    Run,
    /// All attempts of an activity.
    Activity,
    /// A timer.
    Timer,
    /// A child, from the call to its end.
    Child,
    /// A publish.
    Publish,
    /// A wait for a record of a durable topic.
    Receive,
    /// A signal to another instance.
    Signal,
    /// A promise that is kept from outside.
    Promise,
    /// An update, from when it was let in until it was answered.
    Update,
}

impl SpanOf {
    /// A word for it, which never changes.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Activity => "activity",
            Self::Timer => "timer",
            Self::Child => "child",
            Self::Publish => "publish",
            Self::Receive => "receive",
            Self::Signal => "signal",
            Self::Promise => "promise",
            Self::Update => "update",
        }
    }
}

/// How a span ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpanEnd {
    /// It has not ended in the history: the run continues.
    Open,
    /// With the wanted result.
    Done,
    /// Without: the run dropped it, or ended first.
    Dropped,
    /// With an error, of which this is the text.
    Failed(String),
}

/// What an attribute of a span says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpanValue {
    /// A text.
    Text(String),
    /// A number.
    Number(u64),
}

/// Something that happened during a span.
#[derive(Clone, Debug, PartialEq)]
pub struct SpanNote {
    /// When.
    pub at: Timestamp,
    /// What.
    pub name: &'static str,
    /// Its attributes, by names that begin with `millrun.`.
    pub attributes: Vec<(&'static str, SpanValue)>,
}
