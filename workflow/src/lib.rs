//! The workflow engine of millrun as pure machines: histories, replay, contexts, commands.
//!
//! No clock, no randomness, no IO, no executor: time comes in with each input, and the same
//! inputs give the same turns, byte for byte. Workflow code is a plain `async fn`:
//!
//! ```
//! use millrun_core::{InstanceId, Partition, RunId, Timestamp};
//! use millrun_workflow::{
//!     Activity, Command, Implementation, Input, Instance, Limits, Moment, Outcome, Payload, Started, Turn,
//!     Workflow, WorkflowContext, WorkflowError,
//! };
//!
//! const DOUBLE: Activity<u32, u32> = Activity::named("double");
//! const QUADRUPLE: Workflow<u32, u32> = Workflow::named("quadruple");
//!
//! async fn quadruple(cx: WorkflowContext, number: u32) -> Result<u32, WorkflowError> {
//!     let twice = cx.call(DOUBLE, number).await?;
//!     Ok(cx.call(DOUBLE, twice).await?)
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let code = Implementation::new(QUADRUPLE, quadruple);
//! let started = Started::new(QUADRUPLE.name(), InstanceId::new("q")?, Payload::encode(&5)?);
//! let moment = Moment { now: Timestamp::EPOCH, epoch: 1 };
//! let run = RunId::new(Partition::of(b"q"), moment.now, 1);
//!
//! // Each turn names the commands to perform once its events are durable.
//! let mut turn = Turn::default();
//! let mut instance = Instance::start(Some(&code), run, started, Limits::default(), moment, &mut turn);
//! while let Some(Command::RunActivity { scheduled, attempt, .. }) = turn.commands.pop() {
//!     let number: u32 = scheduled.input.decode()?;
//!     let result = Payload::encode(&(number * 2))?;
//!     let report = Input::ActivityCompleted { operation: scheduled.operation, attempt, result };
//!     instance.apply(report, moment, &mut turn)?;
//! }
//! assert_eq!(instance.ledger().outcome(), Some(&Outcome::Completed(Payload::encode(&20)?)));
//! # Ok(())
//! # }
//! ```

// docs.rs marks what needs a feature.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod context;
mod definition;
mod durable_topic;
mod entity;
mod error;
mod event;
mod expected;
mod exported;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod handlers;
mod kind;
mod ledger;
mod machine;
mod micros;
mod names;
mod operations;
mod outstanding;
mod payload;
mod program;
mod registry;
mod reset;
mod retry;
mod spans;
mod token;
mod topic_renames;
/// Events as bytes.
pub mod wire;

pub use context::{
    Awaited, Call, CancelRequest, CancelScope, Child, ChildControl, ChildHandle, ContinueAsNew, Either,
    JoinSet, Local, MakeCheckpoint, Promise, PublishStep, RECEIVED_PLACES_MAX, RETRY_KINDS_MAX, Receive,
    ReceiveRecord, ReceivedRecord, RecordStep, RecordSubscription, START_TO_CLOSE_DEFAULT, Saga, SagaError,
    SignalInstance, Sleep, State, Until, UntypedChild, UntypedChildHandle, WorkflowContext,
};
pub use definition::{
    Activity, DEFAULT_QUEUE, Entity, EntityCommand, NAME_BYTES_MAX, OutputStream, Query, Signal, Topic,
    Update, VersionPolicy, Workflow,
};
pub use durable_topic::{DurableTopic, PublishTarget, TopicTerms};
pub use entity::{
    ENTITY_COMMAND, ENTITY_SNAPSHOT_EVERY, EntityAnswer, EntityCode, EntityContext, EntityOrder,
    EntityPublish, EntityState, EntityStep, EntityStepError, StartRefused,
};
pub use error::{
    ActivityError, CallError, Cancelled, ChildError, ContinueError, PromiseError, PublishStepError,
    ReceiveRecordError, SignalError, SignalInstanceError, TimeoutKind, TypedError, WorkflowError,
};
pub use event::{
    ActivityFailure, ActivityScheduled, Checkpoint, ChildFailure, ChildScheduled, CommandPerformed, Event,
    EventError, FormerRun, KeyFilter, Name, Nondeterminism, OperationId, Origin, Parent, ParentClose,
    ParkReason, PublishOutcome, PublishScheduled, RECORD_TEXT_BYTES_MAX, RawRecord, ReceiveScheduled,
    RecordFilter, RecordTexts, RunDeadline, RunFailure, RunTimeout, RunTimeouts, RunTry, SignalFailure,
    SignalScheduled, StartTimeouts, Started, TakenThrough,
};
pub use expected::WrongType;
pub use exported::{ExportedHistory, ExportedHistoryError, Fit};
pub use handlers::Unanswered;
pub use kind::ErrorKind;
pub use ledger::{
    ANSWERS_CARRIED_BYTES_MAX, ANSWERS_LEN_MAX, KeptBeginning, Ledger, Outcome, OutcomeKind, Pending,
    PendingActivity, SENDERS_CARRIED_LEN_MAX, SIGNAL_REQUESTS_LEN_MAX, UpdateStanding,
};
pub use machine::{Command, Input, InputRefused, Instance, Limits, Moment, ReplayError, Turn};
pub use outstanding::Outstanding;
pub use payload::{Payload, PayloadError, Redaction, RedactionError};
pub use registry::{AnsweringWorkflow, Implementation, UpdateBuilder};
pub use reset::{LaterSignals, ResetPoint, ResetRefused};
pub use retry::Retry;
pub use spans::{RunSpan, RunSpans, SpanBounds, SpanEnd, SpanFold, SpanNote, SpanOf, SpanValue};
pub use token::{PromiseToken, PromiseTokenError};
pub use topic_renames::TopicRenames;
