//! Durable workflows, each a supervised actor, and a topic broker, in one process and one file.
//!
//! Workflow code is a plain `async fn`; its progress survives crashes. Steps with side effects are activities, which run at
//! least once.
//!
//! ```
//! use millrun::{Activity, ActivityContext, ActivityError, Runtime, Workflow, WorkflowContext, WorkflowError};
//!
//! const GREET: Activity<String, String> = Activity::named("greet");
//! const WELCOME: Workflow<String, String> = Workflow::named("welcome");
//!
//! async fn greet(_cx: ActivityContext, name: String) -> Result<String, ActivityError> {
//!     Ok(format!("Hello, {name}!"))
//! }
//!
//! async fn welcome(cx: WorkflowContext, name: String) -> Result<String, WorkflowError> {
//!     Ok(cx.call(GREET, name).await?)
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("app.redb");
//! let runtime = Runtime::open(path).register(GREET, greet).register(WELCOME, welcome).start().await?;
//! let run = runtime.start(WELCOME, "welcome-ada", "Ada".to_string()).await?; // durable from here on
//! assert_eq!(run.result().await?, "Hello, Ada!");
//! runtime.shutdown().await?;
//! # Ok(())
//! # }
//! ```
//!
//! [The guide](https://github.com/millrun/millrun/blob/main/docs/guide/src/SUMMARY.md) is ordered by task, from a first
//! workflow to operations.
//!
//! The names that a program uses most are at the root: the runtime and its configuration, definitions, contexts, handles and
//! their errors. The rest is in modules: [`workflow`], [`builders`], [`operating`], [`history`], [`store`], [`host`],
//! [`broker`].

// docs.rs shows which items need a feature.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod runtime;

mod builtin;
mod bulk;
mod cluster;
mod code;
mod config;
mod ending;
mod error;
mod handles;
mod inner;
mod looking;
mod opening;
mod ownership;
pub mod prelude;
mod upkeep;

mod activity;
mod actors;
pub mod host;
mod mail;
pub mod preflight;
#[cfg(feature = "process")]
pub mod process;
mod reader;
#[cfg(feature = "schedules")]
pub mod schedules;
mod shard;
mod shared;
pub mod streams;
mod timers;
pub mod topics;
mod traces;
mod tree;
mod watch;
mod wire;

#[cfg(feature = "fuzz")]
pub mod fuzz;

/// The examples of the READMEs compile and run: the crate's, and the repository's.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
#[doc = include_str!("../../README.md")]
pub struct Readme;

#[doc(hidden)]
pub use activity::ActivityTap;
pub use activity::{ActivityContext, HeartbeatError};
pub use actors::{SuperviseError, SupervisedActor};
pub use config::RuntimeConfig;
pub use error::{
    ClaimError, OpenError, QueryError, ResultError, RunError, StartError, StartWithSignalError,
    StartWithUpdateError, StopCause, UpdateError,
};
pub use handles::entity::{CommandError, EntityHandle};
pub use handles::entity_untyped::UntypedEntity;
pub use handles::run::RunHandle;
pub use handles::start::OnConflict;
pub use handles::untyped::UntypedHandle;
pub use opening::builder::RuntimeBuilder;
pub use runtime::Runtime;
pub use topics::trigger::Trigger;

pub use millrun_core::{InstanceId, InstanceIdError, RunId, Timestamp};
pub use millrun_workflow::{
    Activity, ActivityError, CallError, Cancelled, ChildError, DurableTopic, Entity, EntityCommand,
    EntityContext, EntityState, InputRefused, Limits, OutputStream, Payload, PayloadError, PromiseError,
    PublishTarget, Query, ReceiveRecordError, Retry, RunFailure, Signal, SignalError, Topic, TypedError,
    Update, VersionPolicy, Workflow, WorkflowContext, WorkflowError, WrongType,
};

/// What the methods of a [`WorkflowContext`] return: operations to await, groups and sagas of them, their outcomes and rarer
/// errors.
pub mod workflow {
    pub use millrun_core::{Cause, CauseError};
    pub use millrun_core::{SpanId, TraceContext, TraceContextError, TraceId};
    pub use millrun_workflow::{
        Awaited, Call, CancelRequest, CancelScope, Child, ChildControl, ChildHandle, ContinueAsNew,
        ContinueError, Either, EntityAnswer, EntityPublish, EntityStep, EntityStepError, ErrorKind, JoinSet,
        Local, MakeCheckpoint, OperationId, ParentClose, Promise, PromiseToken, PromiseTokenError,
        PublishOutcome, PublishStep, PublishStepError, RECEIVED_PLACES_MAX, RETRY_KINDS_MAX, Receive,
        ReceiveRecord, ReceivedRecord, RecordStep, RecordSubscription, RunTimeout, Saga, SagaError,
        SignalInstance, SignalInstanceError, Sleep, StartRefused, State, TimeoutKind, Unanswered, Until,
        UntypedChild, UntypedChildHandle,
    };
}

/// What the methods of a [`Runtime`] and a [`RuntimeBuilder`] return while a call is being prepared, and the traits behind
/// `register`. Programs use these and seldom name them.
pub mod builders {
    pub use crate::bulk::Bulk;
    pub use crate::handles::entity::EntityCall;
    pub use crate::handles::start::{Start, StartAfter, StartWithSignal, StartWithUpdate, Starting};
    pub use crate::looking::entities::EntitySearch;
    pub use crate::opening::registry::{Definition, OfActivity, OfWorkflow, Registration};
    #[cfg(feature = "schedules")]
    pub use crate::schedules::Schedule;
    pub use crate::topics::trigger::On;
    pub use millrun_workflow::{AnsweringWorkflow, EntityCode, Implementation, UpdateBuilder};
}

/// What an operator gets from a running program: descriptions of runs, the state of parts, counters, and the reports of a
/// start and a shutdown.
pub mod operating {
    pub use crate::bulk::{
        BULK_FAILURES_LEN_MAX, BulkAction, BulkCount, BulkDescription, BulkFailure, BulkHandle, BulkProgress,
        BulkSummary, BulksPage,
    };
    pub use crate::cluster::view::{ClusterStatus, NodeStatus};
    pub use crate::ending::shutdown::{LeftBehind, ShutdownReport};
    pub use crate::looking::at_event::{DescribedAt, RunAt};
    pub use crate::looking::catalogue::{Catalogue, CatalogueActivity, CatalogueSignal, CatalogueWorkflow};
    pub use crate::looking::changes::{
        ChangeFeed, ChangeKind, ChangePosition, ChangePositionError, ChangedRun, Changes, FeedChange, Lost,
    };
    pub use crate::looking::counts::{RunCounts, WorkflowCounts};
    pub use crate::looking::describe::{
        InstanceDescription, InstanceStatus, InstanceSummary, PendingDescription,
    };
    pub use crate::looking::durations::{Durations, Histogram, NamedHistogram};
    pub use crate::looking::entities::EntitiesPage;
    pub use crate::looking::find::{RunCursor, RunCursorError, RunSearch, RunStatus, RunSummary, RunsPage};
    pub use crate::looking::parts::{KillError, PartChange, PartEvent, PartStatus};
    pub use crate::looking::trace::{
        TraceBounds, TraceCursor, TraceCursorError, TraceDirection, TraceError, TraceLink, TraceNode,
        TraceOf, TraceOutcome, TracePage, TraceRelation, TraceWalk, WalkedNode,
    };
    pub use crate::looking::versions::WorkflowVersion;
    pub use crate::looking::why::{ActivityWait, AttemptStanding, FullInbox, Wait, WaitsFor, Why};
    pub use crate::opening::recovery::StartupReport;
    pub use crate::ownership::partitions::Partitions;
    pub use crate::runtime::{QueueStats, RuntimeStats, WeakRuntime};
    #[cfg(feature = "otel")]
    pub use crate::traces::{SpanExport, SpanExportConfig};
    pub use crate::traces::{SpanFeed, SpanFeedConfig, SpanFeedTaken};
    pub use millrun_persistence::TimeRange;
    pub use millrun_workflow::{
        LaterSignals, Nondeterminism, ParkReason, ResetPoint, ResetRefused, RunSpan, RunSpans, SpanBounds,
        SpanEnd, SpanNote, SpanOf, SpanValue,
    };
}

/// The parts of a run's history, as [`Runtime::history`] returns it: pages, and the events in them.
pub mod history {
    pub use crate::looking::pages::{HistoryPage, RecordedEvent};
    pub use millrun_core::Sequence;
    pub use millrun_workflow::{
        ActivityFailure, ActivityScheduled, Checkpoint, ChildFailure, ChildScheduled, CommandPerformed,
        Event, ExportedHistory, ExportedHistoryError, Fit, FormerRun, KeyFilter, Name, Origin, Parent,
        PublishScheduled, RawRecord, ReceiveScheduled, RecordFilter, RecordTexts, Redaction, RedactionError,
        RunDeadline, RunTimeouts, RunTry, SignalFailure, SignalScheduled, StartTimeouts, Started,
        TakenThrough,
    };
}

/// Where histories are kept: journals and their settings, backup, export, import, archive and salvage.
pub mod store {
    pub use crate::opening::closed_store::ClosedStore;
    pub use crate::upkeep::{StoreHandle, UpkeepError};
    pub use millrun_core::{Epoch, Offset, Partition, Sequence};
    pub use millrun_persistence::{
        Archive, BackupError, ClaimRefused, Compacted, Durability, Exported, FailureKind, FinishedFound,
        FinishedHead, FinishedRun, FinishedSearch, Glance, ImportError, Imported, Journal, JournalConfig,
        JournalFailure, MemoryJournal, NodeKey, NodeSeen, NodeTerms, NodesSeen, NotWhole,
        READ_ONLY_BYTES_MAX, Reads, RecordKinds, RedbConfig, RedbJournal, Retention, SalvageError,
        SalvageOptions, SalvageProgress, SalvageReport, SharedStore, StoreConfig, StoreError, UpkeepUndone,
        Verified, WithoutOwner, compact, import, salvage,
    };
}

/// The topic broker: see [`Runtime::broker`], and its `actor` module for your own actors, which [`Runtime::supervise`] adds
/// to the supervision tree.
pub use millrun_broker as broker;
