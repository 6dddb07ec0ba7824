//! Durable workflows, each a supervised actor, and a topic broker, in one process and one file.
//!
//! Workflow code is a plain `async fn`; what it has done survives crashes, and goes on where it
//! was. Steps with side effects are activities, which run at least once.
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

// docs.rs marks what needs a feature.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod activity;
mod assembly;
mod builder;
mod config;
mod describe;
mod error;
mod handle;
mod host;
pub mod prelude;
#[cfg(feature = "process")]
pub mod process;
mod reader;
mod recovery;
mod registry;
mod replays;
mod runtime;
mod shard;
mod shutdown;
mod start;
mod stop;
mod timers;
mod trigger;
mod untyped;
mod updated;
mod upkeep;
mod watch;

/// The examples of the READMEs compile and run: the crate's, and the repository's.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
#[doc = include_str!("../../README.md")]
pub struct Readme;

/// The topic broker: see [`Runtime::broker`], and its `actor` module for actors of your own. Topics deliver
/// to those; they are supervised by whoever spawns them.
pub use millrun_broker as broker;

pub use activity::{ActivityContext, HeartbeatError};
pub use builder::RuntimeBuilder;
pub use config::RuntimeConfig;
pub use describe::{InstanceDescription, InstanceStatus, InstanceSummary, PendingDescription};
pub use error::{
    OpenError, QueryError, ResultError, RunError, StartError, StartWithSignalError, StartWithUpdateError,
    StopCause, UpdateError,
};
pub use handle::RunHandle;
pub use host::{HostConfig, HostError, PartInfo, StillRunning, TokioHost};
pub use recovery::StartupReport;
pub use registry::{Definition, OfActivity, OfWorkflow, Registration};
pub use runtime::{KillError, PartChange, PartEvent, PartStatus, Runtime, RuntimeStats};
pub use shutdown::{LeftBehind, ShutdownReport};
pub use start::{OnConflict, Start, StartWithSignal, StartWithUpdate, Starting};
pub use trigger::{On, Trigger};
pub use untyped::UntypedHandle;
pub use upkeep::{StoreHandle, UpkeepError};

pub use millrun_core::{
    Bell, Cause, CauseError, CrashCheck, Epoch, Host, InstanceId, InstanceIdError, Next, Offset, OnExit,
    Part, PartExit, PartHandle, Partition, Placement, RunId, Sequence, SpawnError, Stop, Task, TaskHandle,
    Timestamp,
};
pub use millrun_persistence::OpenError as StoreError;
pub use millrun_persistence::{Archive, BackupError, Exported, ImportError, Imported, Verified, import};
pub use millrun_persistence::{
    Durability, FailureKind, FinishedRun, Journal, JournalConfig, JournalFailure, MemoryJournal, RedbJournal,
    Retention,
};
pub use millrun_persistence::{
    NotWhole, SalvageError, SalvageOptions, SalvageProgress, SalvageReport, WithoutOwner, salvage,
};
pub use millrun_workflow::QueryError as Unanswered;
pub use millrun_workflow::{
    Activity, ActivityError, Awaited, Call, CallError, CancelRequest, CancelScope, Cancelled, Child,
    ChildError, ContinueAsNew, ContinueError, Either, ErrorKind, Implementation, InputRefused, JoinSet,
    Limits, Local, MakeCheckpoint, Nondeterminism, OperationId, ParentClose, ParkReason, Payload,
    PayloadError, Promise, PromiseError, PromiseToken, PromiseTokenError, PublishOutcome, PublishStep,
    PublishStepError, Query, RETRY_KINDS_MAX, Receive, Record, Retry, RunFailure, Saga, SagaError, Signal,
    SignalError, Sleep, State, TimeoutKind, Topic, TypedError, Until, Update, UpdateBuilder, Workflow,
    WorkflowContext, WorkflowError,
};
