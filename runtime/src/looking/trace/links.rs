//! The parts of a trace: what is traced, and the links between.

use millrun_core::{Cause, InstanceId, RunId, Sequence, Timestamp, TraceContext};
use millrun_workflow::OperationId;

use super::cursor::TraceCursor;
use crate::looking::find::RunStatus;
use crate::topics::RecordToken;

/// What can be [traced](crate::Runtime::trace).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum TraceOf {
    /// A run.
    Run(RunId),
    /// An operation of a run.
    Operation(Cause),
    /// The latest run of an instance: of a workflow, or of an [entity](crate::Entity).
    Instance(InstanceId),
    /// A record of a durable topic.
    Record {
        /// The name of the topic.
        topic: String,
        /// The number of the record.
        sequence: Sequence,
    },
    /// The record of this token.
    Token(RecordToken),
    /// The record that was published with an id, as long as the journal remembers it.
    RecordId {
        /// The name of the topic.
        topic: String,
        /// The id.
        id: String,
    },
}

impl From<RunId> for TraceOf {
    fn from(run: RunId) -> Self {
        Self::Run(run)
    }
}

impl From<Cause> for TraceOf {
    fn from(cause: Cause) -> Self {
        Self::Operation(cause)
    }
}

impl From<InstanceId> for TraceOf {
    fn from(id: InstanceId) -> Self {
        Self::Instance(id)
    }
}

impl From<RecordToken> for TraceOf {
    fn from(token: RecordToken) -> Self {
        Self::Token(token)
    }
}

/// A page of the causes and effects of something.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TracePage {
    /// What is traced: a [run](TraceOf::Run), an [operation](TraceOf::Operation) or a [record](TraceOf::Record).
    pub of: TraceOf,
    /// Its description.
    pub about: TraceNode,
    /// Its causes, in the order in which they happened.
    pub causes: Vec<TraceLink>,
    /// Its effects; those of a run in the order in which they were decided.
    pub effects: Vec<TraceLink>,
    /// For a run whose history is trimmed: the number of the event before which there is none any more.
    pub trimmed_before: Option<Sequence>,
    /// How many events, records and runs were examined for this page.
    pub looked_at: u64,
    /// Where the next page begins; `None` if this is the last for now: a run that continues gets more.
    pub next: Option<TraceCursor>,
}

/// What something is that is traced.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum TraceNode {
    /// A run, or one of its operations.
    Run {
        /// The id of its instance.
        id: InstanceId,
        /// The name of its workflow.
        workflow: String,
        /// When it began.
        started_at: Timestamp,
        /// How it ended, and when; `None` if it has not.
        ended: Option<(RunStatus, Timestamp)>,
        /// Its place in a distributed trace.
        trace: Option<TraceContext>,
    },
    /// A record.
    Record {
        /// Its token.
        token: RecordToken,
        /// When it was appended.
        appended_at: Timestamp,
        /// Its key.
        key: Option<String>,
        /// Its publisher's name for the process or group that it belongs to.
        correlation: Option<String>,
        /// Its place in a distributed trace.
        trace: Option<TraceContext>,
    },
}

/// One cause, or one effect.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TraceLink {
    /// The relation between the two ends.
    pub relation: TraceRelation,
    /// The other end, to be traced next; `None` if it cannot be traced, or is not known.
    pub to: Option<TraceOf>,
    /// A name, if the relation has one: of the activity, workflow, signal, command, topic, trigger or subscription.
    pub name: Option<String>,
    /// The id of the instance at the other end, if it is known.
    pub instance: Option<InstanceId>,
    /// The operation of the traced run, or the operation at the other end.
    pub operation: Option<OperationId>,
    /// When it happened, or was decided, if that is known.
    pub at: Option<Timestamp>,
    /// Attempts of the activity, or deliveries to the subscription, as far as they are counted.
    pub attempts: Option<u32>,
    /// The outcome.
    pub outcome: TraceOutcome,
}

/// The relation between the two ends of a [link](TraceLink).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum TraceRelation {
    /// It came from outside; its cause is unknown.
    Outside,
    /// An operation of the other run caused this one, or published this record.
    CausedBy,
    /// A trigger started the run by the record.
    Triggered,
    /// The run is a child of the other.
    Child,
    /// The run continues the other.
    Continues,
    /// A signal came to the run.
    Signal,
    /// A command came to the entity.
    Command,
    /// An update came to the run.
    Update,
    /// The run was asked to cancel.
    CancelRequest,
    /// The run took the record.
    Received,
    /// A promise of the run was kept or broken from outside.
    Promise,
    /// The run called an activity.
    Activity,
    /// The run set a timer.
    Timer,
    /// The run published the record, or a value to a topic in memory.
    Published,
    /// A durable subscription that the record has passed, or will reach.
    Subscription,
    /// A subscription gave the record up, and put it into a topic for undelivered records.
    Buried,
    /// The record was sent back from there, as another record at the end of its topic.
    SentBack,
}

impl TraceRelation {
    /// Its name for the outside, in lower case and with hyphens.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Outside => "outside",
            Self::CausedBy => "caused-by",
            Self::Triggered => "triggered",
            Self::Child => "child",
            Self::Continues => "continues",
            Self::Signal => "signal",
            Self::Command => "command",
            Self::Update => "update",
            Self::CancelRequest => "cancel-request",
            Self::Received => "received",
            Self::Promise => "promise",
            Self::Activity => "activity",
            Self::Timer => "timer",
            Self::Published => "published",
            Self::Subscription => "subscription",
            Self::Buried => "buried",
            Self::SentBack => "sent-back",
        }
    }
}

/// The outcome of a [link](TraceLink).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TraceOutcome {
    /// Done: an activity returned a value, a record was acknowledged.
    Done,
    /// Not ended, or the subscription has not reached it.
    Open,
    /// The record is delivered to a consumer.
    Leased,
    /// The record came back from a consumer, with this error, and is delivered again.
    Returned(String),
    /// It failed or was rejected, with this error.
    Failed(String),
    /// The code has dropped it.
    Cancelled,
    /// Unknown, for this reason.
    Unknown(String),
}

impl TraceOutcome {
    /// Its name for the outside, with its text if it has one.
    #[must_use]
    pub fn named(&self) -> (&'static str, Option<&str>) {
        match self {
            Self::Done => ("done", None),
            Self::Open => ("open", None),
            Self::Leased => ("leased", None),
            Self::Returned(why) => ("returned", Some(why)),
            Self::Failed(why) => ("failed", Some(why)),
            Self::Cancelled => ("cancelled", None),
            Self::Unknown(why) => ("unknown", Some(why)),
        }
    }
}

impl TraceLink {
    /// A link that is done, without details.
    pub(super) fn of(relation: TraceRelation) -> Self {
        Self {
            relation,
            to: None,
            name: None,
            instance: None,
            operation: None,
            at: None,
            attempts: None,
            outcome: TraceOutcome::Done,
        }
    }

    pub(super) fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    pub(super) fn to(mut self, to: impl Into<TraceOf>) -> Self {
        self.to = Some(to.into());
        self
    }

    pub(super) fn at(mut self, at: Timestamp) -> Self {
        self.at = Some(at);
        self
    }
}
