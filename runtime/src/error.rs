//! Errors of the runtime's public operations, one enum per family.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use millrun_core::{InstanceIdError, Partition, RunId};
use millrun_persistence::{FailureKind, JournalFailure, ReadError};
use millrun_workflow::{
    InputRefused, ParkReason, PayloadError, ResetRefused, RunTimeout, Unanswered, WrongType,
};

use crate::host::HostError;

/// Why a runtime no longer answers. A cheap clone; every handle returns the same.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StopCause {
    /// It was shut down, or its last handle was dropped.
    #[error("the runtime has been shut down")]
    Shutdown,
    /// The journal failed. Acknowledged data is safe: open the store again.
    #[error("the journal failed: {0}; what was acknowledged is safe, open the store again")]
    Journal(#[source] JournalFailure),
    /// The tokio runtime on which its parts ran has ended, or the [host](crate::host::Host) that it was given. Acknowledged
    /// data is safe: drop this runtime, and start another on a host that lasts.
    #[error(
        "the tokio runtime or other host that it ran on has ended; what was acknowledged is safe, start it again on one that lasts"
    )]
    HostEnded,
    /// Nothing has stopped: the store was opened [read-only](crate::store::ClosedStore), and the request needs the code of
    /// workflows, or would change something. Ask the program that has the store.
    #[error("the store was opened only to be read; start the program that it belongs to, and ask that")]
    ReadOnly,
    /// A part of the runtime failed, and could not or must not be restarted.
    #[error("{part} failed and is not restarted: {message}")]
    Part {
        /// Which part.
        part: Arc<str>,
        /// Its message.
        message: Arc<str>,
    },
}

impl StopCause {
    /// The text for the caller of a runtime.
    pub(crate) fn told(&self) -> String {
        match self {
            Self::ReadOnly => self.to_string(),
            cause => format!("the runtime has stopped: {cause}"),
        }
    }
}

/// Why a runtime could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The store could not be opened.
    #[error("the store could not be opened")]
    Store(#[from] millrun_persistence::StoreError),
    /// The store in a PostgreSQL database could not be opened.
    #[cfg(feature = "postgres")]
    #[error(transparent)]
    Postgres(#[from] millrun_postgres::PostgresOpenError),
    /// The request needs a feature that this program was built without.
    #[error("it needs the feature {feature:?} of the crate millrun: turn it on in Cargo.toml")]
    NotBuilt {
        /// The feature.
        feature: &'static str,
    },
    /// The store was opened, but its content could not be recovered.
    #[error("the store could not be recovered")]
    Recovery(#[from] millrun_persistence::ReadError),
    /// The partitions of the store could not be claimed: another runtime over the same journal has some of
    /// them, say.
    #[error("the partitions of the store could not be claimed")]
    Claim(#[from] millrun_persistence::ClaimRefused),
    /// A part of the runtime could not be started.
    #[error(transparent)]
    Spawn(#[from] millrun_core::SpawnError),
    /// There is no tokio runtime to run on.
    #[error("the runtime needs tokio")]
    Host(#[from] HostError),
    /// A field of the configuration is out of range.
    #[error("{field} {problem}")]
    Config {
        /// The field.
        field: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// Two implementations were registered under one name.
    #[error("{kind} {name:?} is registered twice")]
    RegisteredTwice {
        /// `workflow` or `activity`.
        kind: &'static str,
        /// The name.
        name: &'static str,
    },
    /// Two implementations were registered for one version of a workflow. Give one of them another number: the newer code a
    /// greater one, which no run has yet.
    #[error(
        "version {version} of the workflow {name:?} is registered twice: give the newer code a number of its own, with `version`"
    )]
    VersionRegisteredTwice {
        /// The name of the workflow.
        name: &'static str,
        /// The version.
        version: u32,
    },
    /// Runs of the store have a newer version of a workflow than is registered: versions went back. Register their version
    /// besides the present code, or give the present code a greater number, or let [versions go
    /// back](crate::RuntimeConfig::versions_may_go_back), so that these runs wait for their code.
    #[error(
        "{runs} live runs of the workflow {workflow:?} have version {version}, and the newest that is registered is {newest}: register \
         version {version} too, give the newest code a number above it, or set `versions_may_go_back` and have these runs wait"
    )]
    VersionsGoBack {
        /// The workflow.
        workflow: String,
        /// The newest version that is registered.
        newest: u32,
        /// The newest version that a live run has.
        version: u32,
        /// How many live runs have a version that is newer than `newest`.
        runs: u64,
    },
    /// The name begins with `millrun.`, which is reserved for built-in code. Choose another.
    #[error("{kind} {name:?} cannot be registered: names that begin with \"millrun.\" are reserved")]
    ReservedName {
        /// `workflow`, `activity` or `topic`.
        kind: &'static str,
        /// The name.
        name: &'static str,
    },
    /// A topic cannot be published to: its name is not valid for a topic, or the broker knows it with another type.
    #[error("the topic {name:?} cannot be used: {problem}")]
    Topic {
        /// The name.
        name: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// A durable topic is declared in two different ways: also as a [topic of the broker](crate::RuntimeBuilder::topic), or a
    /// topic with its name is in use at the broker that was [given](crate::RuntimeBuilder::broker), or with another type of
    /// records, or with another retention, by itself or by [filters](crate::RuntimeBuilder::topic_terms). The name may be
    /// that of a filter that contradicts itself.
    #[error("the topic {name:?} is declared in two ways: {problem}")]
    TopicContradiction {
        /// The name.
        name: &'static str,
        /// The difference.
        problem: String,
    },
    /// A durable topic is registered with the builder, but the journal keeps no topics.
    #[error("the journal keeps no topics, so {name:?} cannot be durable")]
    TopicsNotKept {
        /// The name of the topic.
        name: &'static str,
    },
    /// The journal refuses a durable topic.
    #[error("the topic {name:?} cannot be durable")]
    TopicRefused {
        /// The name.
        name: &'static str,
        /// Why not.
        #[source]
        refused: millrun_persistence::TopicRefused,
    },
    /// A durable topic should be [renamed](crate::RuntimeBuilder::rename_durable_topic), but the store has both a topic with
    /// the former name and one with the present name, or two with former names. Nothing is changed. Open the store without
    /// the rename, and [delete](crate::Runtime::delete_durable_topic) the topic that is not needed; or keep both, with two
    /// names.
    #[error(
        "the durable topic {former:?} cannot be renamed {name:?}: the store has a topic for that name already; open it without the \
         renaming, and delete the topic that is not needed"
    )]
    TopicNamesTaken {
        /// The former name.
        former: &'static str,
        /// The present name.
        name: &'static str,
    },
    /// The journal cannot [rename](crate::RuntimeBuilder::rename_durable_topic) a durable topic. Nothing is changed.
    #[error("the durable topic {former:?} cannot be renamed {name:?}")]
    TopicNotRenamed {
        /// The former name.
        former: &'static str,
        /// The present name.
        name: &'static str,
        /// Why not.
        #[source]
        refused: millrun_persistence::TopicChangeRefused,
    },
    /// A task queue's name cannot be part of a topic's name.
    #[error("the task queue {name:?} cannot be named like this: {problem}")]
    QueueName {
        /// The name.
        name: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The runtime stopped while it was starting.
    #[error("the runtime stopped while it was starting: {0}")]
    Stopped(#[from] StopCause),
}

/// Why an instance was not started.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The id is not valid.
    #[error(transparent)]
    Id(#[from] InstanceIdError),
    /// The input could not be encoded.
    #[error("the input could not be encoded")]
    Payload(#[from] PayloadError),
    /// The input is larger than a payload may be.
    #[error("the input has {bytes} bytes, a payload may have {bytes_max}: pass a reference instead")]
    TooLarge {
        /// Its encoded size.
        bytes: usize,
        /// The limit, `payload_bytes_max`.
        bytes_max: usize,
    },
    /// The workflow's name, given as text, is empty or too long.
    #[error("a workflow's name has 1 to 255 bytes, and this one {bytes}")]
    Name {
        /// Its length.
        bytes: usize,
    },
    /// The start has a timeout of zero, which is over before the run begins.
    #[error(
        "a {timeout} timeout of zero is over before the run begins: leave it out, or give the run some time"
    )]
    NoTime {
        /// Which one.
        timeout: RunTimeout,
    },
    /// The encoded input does not have the workflow's type: nothing was started.
    #[error(transparent)]
    WrongType(#[from] WrongType),
    /// Workflows whose names begin with `millrun.` are built in, and started by methods of their own.
    #[error("{workflow:?} cannot be started: names that begin with \"millrun.\" are reserved")]
    ReservedName {
        /// The name.
        workflow: String,
    },
    /// The first turn of the run is too large: it issues too much at once.
    #[error("the run's first turn does not fit the journal: {0}")]
    Turn(String),
    /// The live run should be [terminated](crate::OnConflict::TerminateRunning), and could not be: it continues, and nothing
    /// was started.
    #[error("the run that is there could not be terminated, and none has taken its place")]
    NotReplaced(#[source] Box<RunError>),
    /// An instance with this id is running, and the policy was [`OnConflict::Refuse`](crate::OnConflict), or the start was
    /// [`only_after`](crate::builders::Start::only_after) a finished run.
    #[error("the instance is running already, as run {run}")]
    AlreadyRunning {
        /// The live run.
        run: RunId,
    },
    /// An instance with this id has finished, and the policy was [`OnConflict::Refuse`](crate::OnConflict), or it has
    /// finished with a value and the policy was [`OnConflict::RestartFailed`](crate::OnConflict), or the start was
    /// [`only_after`](crate::builders::Start::only_after) another run.
    #[error("the instance has finished already, as run {run}")]
    AlreadyFinished {
        /// The finished run.
        run: RunId,
    },
    /// The start was [`only_after`](crate::builders::Start::only_after) this run, and none of the instance's runs is retained
    /// any more: others may have followed, so nothing was started.
    #[error("no run of the instance is retained: whether others have followed run {run} is not known")]
    NotRetained {
        /// The run that was named.
        run: RunId,
    },
    /// The id belongs to an instance of another workflow: choose another id, or, to reach that instance, attach to it. An
    /// instance that [continued](crate::WorkflowContext::continue_as_new) as another workflow belongs to the one that it
    /// began as.
    #[error("the id belongs to an instance of workflow {workflow:?}, not {expected:?}")]
    OtherWorkflow {
        /// The workflow that was to be started.
        expected: Cow<'static, str>,
        /// That of the instance.
        workflow: String,
    },
    /// There are as many live instances as there may be.
    #[error("there are {len_max} live instances, the limit: wait until some have finished")]
    TooManyLive {
        /// The limit, `live_len_max`.
        len_max: usize,
    },
    /// The id is taken, or may be, by a run with a damaged record, and nothing was started: another run would repeat what
    /// that one has done. Bring the run back by salvaging the store or restoring a backup, or choose another id.
    #[error(
        "the id is not free, the history of its run is damaged ({0}): salvage the store, restore a backup, or choose another id"
    )]
    Damaged(ReadError),
    /// The store could not be read.
    #[error("the store could not be read")]
    Read(#[source] ReadError),
    /// The id is taken by a finished run whose workflow cannot be read: a later version wrote it, say.
    #[error("the id is taken by run {run}, whose history could not be understood: {cause}")]
    History {
        /// That run.
        run: RunId,
        /// What is wrong.
        cause: String,
    },
    /// The id's partition has another owner, or none: this runtime does not [own](crate::Runtime::partitions) it, and its
    /// owner was not asked, because there is no mail between the runtimes, or too much of it. If the partition was lost
    /// meanwhile, it is unknown whether the instance was started: start it again, under the same id.
    #[error("partition {} is not owned here: ask {}; whether the instance was started is not known", .partition.index(), OwnerName(.owner))]
    Moved {
        /// The partition of the id.
        partition: Partition,
        /// The node that owns it, if the store is shared and the owner is known.
        owner: Option<Arc<str>>,
    },
    /// The node that owns the id's partition did not start it.
    #[error("the node that owns the partition has not started it: {message}")]
    Elsewhere {
        /// That node's reason.
        message: String,
    },
    /// The runtime has stopped. It is unknown whether the instance was started: start it again under the same id.
    #[error("{}", .0.told())]
    Stopped(#[from] StopCause),
}

/// The owner of a partition, for messages.
struct OwnerName<'a>(&'a Option<Arc<str>>);

impl fmt::Display for OwnerName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(owner) => write!(f, "node {owner}"),
            None => f.write_str("its owner"),
        }
    }
}

/// Why partitions were not [claimed](crate::operating::Partitions::claim).
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimError {
    /// The journal has refused: other owners have some of them, or a partition could not be read. If the partitions belong to
    /// several shards, those of other shards may have been claimed: see what is [owned](crate::operating::Partitions::owned).
    #[error(transparent)]
    Refused(#[from] millrun_persistence::ClaimRefused),
    /// The runtime has stopped.
    #[error("{}", .0.told())]
    Stopped(#[from] StopCause),
}

/// What a failed read means to a caller.
enum Unread {
    Damaged(ReadError),
    Stopped(StopCause),
    Other(ReadError),
}

impl From<ReadError> for Unread {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Damaged { .. } => Self::Damaged(error),
            // A journal is only closed by the end of its runtime.
            ReadError::Failed(failure) if failure.kind() == FailureKind::Closed => {
                Self::Stopped(StopCause::Journal(failure))
            }
            error => Self::Other(error),
        }
    }
}

impl From<ReadError> for StartError {
    fn from(error: ReadError) -> Self {
        match error.into() {
            Unread::Damaged(error) => Self::Damaged(error),
            Unread::Stopped(cause) => Self::Stopped(cause),
            Unread::Other(error) => Self::Read(error),
        }
    }
}

impl From<ReadError> for RunError {
    fn from(error: ReadError) -> Self {
        match error.into() {
            Unread::Damaged(error) => Self::Damaged(error),
            Unread::Stopped(cause) => Self::Stopped(cause),
            Unread::Other(error) => Self::Read(error),
        }
    }
}

impl StartError {
    /// All [codes](Self::code).
    pub const CODES: [&'static str; 20] = [
        "id",
        "payload",
        "too-large",
        "name",
        "no-time",
        "wrong-type",
        "reserved-name",
        "turn",
        "not-replaced",
        "already-running",
        "already-finished",
        "not-retained",
        "other-workflow",
        "too-many-live",
        "damaged",
        "read",
        "history",
        "moved",
        "elsewhere",
        "stopped",
    ];

    /// The variant's name in kebab case; as [`RunError::code`].
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Id(_) => "id",
            Self::Payload(_) => "payload",
            Self::TooLarge { .. } => "too-large",
            Self::Name { .. } => "name",
            Self::NoTime { .. } => "no-time",
            Self::WrongType(_) => "wrong-type",
            Self::ReservedName { .. } => "reserved-name",
            Self::Turn(_) => "turn",
            Self::NotReplaced(_) => "not-replaced",
            Self::AlreadyRunning { .. } => "already-running",
            Self::AlreadyFinished { .. } => "already-finished",
            Self::NotRetained { .. } => "not-retained",
            Self::OtherWorkflow { .. } => "other-workflow",
            Self::TooManyLive { .. } => "too-many-live",
            Self::Damaged(_) => "damaged",
            Self::Read(_) => "read",
            Self::History { .. } => "history",
            Self::Moved { .. } => "moved",
            Self::Elsewhere { .. } => "elsewhere",
            Self::Stopped(_) => "stopped",
        }
    }

    /// Whether the same call may succeed later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::TooManyLive { .. } | Self::Moved { .. } => true,
            Self::Stopped(cause) => !matches!(cause, StopCause::ReadOnly),
            Self::NotReplaced(error) => error.is_retryable(),
            _ => false,
        }
    }

    /// The start error if this finished run could not be read; `None` if the run is not retained any more.
    pub(crate) fn of_unread(run: RunId, error: RunError) -> Option<Self> {
        match error {
            RunError::NotFound | RunError::Expired => None,
            RunError::Stopped(cause) => Some(cause.into()),
            RunError::Read(error) | RunError::Damaged(error) => Some(error.into()),
            RunError::History(cause) => Some(Self::History { run, cause }),
            error => Some(Self::History {
                run,
                cause: error.to_string(),
            }),
        }
    }

    /// The start error if the live run could not be terminated.
    pub(crate) fn not_replaced(error: RunError) -> Self {
        match error {
            RunError::Moved { partition, owner } => Self::Moved { partition, owner },
            RunError::Stopped(cause) => cause.into(),
            RunError::Read(error) | RunError::Damaged(error) => error.into(),
            error => Self::NotReplaced(Box::new(error)),
        }
    }
}

/// Why an instance was neither started nor signalled by a [start with a signal](crate::builders::Start::with_signal).
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartWithSignalError {
    /// It was not started, and there is none that may be signalled.
    #[error(transparent)]
    Start(#[from] StartError),
    /// It exists, and refused the signal; [`RunError::Finished`] if it has ended.
    #[error(transparent)]
    Signal(#[from] RunError),
}

impl From<StopCause> for StartWithSignalError {
    fn from(cause: StopCause) -> Self {
        Self::Start(cause.into())
    }
}

impl StartWithSignalError {
    /// Whether the same call may succeed later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Start(error) => error.is_retryable(),
            Self::Signal(error) => error.is_retryable(),
        }
    }
}

/// Why a [start with an update](crate::builders::Start::with_update) gave no answer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum StartWithUpdateError<E> {
    /// The instance was not started, and there is none that may be updated.
    Start(StartError),
    /// The update has no answer. If the id was free and the error is [`UpdateError::Rejected`] or [`UpdateError::Run`],
    /// nothing was started; otherwise the error concerns the existing run.
    Update(UpdateError<E>),
}

impl<E> From<StartError> for StartWithUpdateError<E> {
    fn from(error: StartError) -> Self {
        Self::Start(error)
    }
}

impl<E> From<UpdateError<E>> for StartWithUpdateError<E> {
    fn from(error: UpdateError<E>) -> Self {
        Self::Update(error)
    }
}

impl<E> StartWithUpdateError<E> {
    /// Whether the same call may succeed later. Without a [name](crate::builders::Start::with_update_as) it may then update
    /// twice.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Start(error) => error.is_retryable(),
            Self::Update(error) => matches!(error, UpdateError::Run(error) if error.is_retryable()),
        }
    }
}

impl<E: fmt::Display> fmt::Display for StartWithUpdateError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(error) => error.fmt(f),
            Self::Update(error) => error.fmt(f),
        }
    }
}

impl<E: fmt::Display + fmt::Debug> std::error::Error for StartWithUpdateError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Start(error) => error.source(),
            Self::Update(error) => error.source(),
        }
    }
}

/// Why a message did not reach a run: a signal, a request to cancel, terminate or resume, or a
/// question.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The id with this entity's key is too long.
    #[error(transparent)]
    Id(#[from] InstanceIdError),
    /// There is no such instance, or it finished so long ago that it is forgotten.
    #[error("there is no instance of this id (or none that is retained)")]
    NotFound,
    /// The id belongs to an instance of another workflow than the handle's, and nothing was done to it: attach with that
    /// workflow, or [without one](crate::Runtime::attach_untyped). An instance that
    /// [continued](crate::WorkflowContext::continue_as_new) as another workflow belongs to the one that it began as.
    #[error("the id belongs to an instance of workflow {workflow:?}, and the handle is one of {expected:?}")]
    OtherWorkflow {
        /// The handle's workflow.
        expected: Cow<'static, str>,
        /// That of the instance.
        workflow: String,
    },
    /// The run has ended, and its result is not retained any more. Its id is free.
    #[error("the run has ended, and its result is not retained any more")]
    Expired,
    /// The run has ended.
    #[error("the run has ended")]
    Finished,
    /// The run refuses it at the moment.
    #[error(transparent)]
    Refused(InputRefused),
    /// An encoded value does not have the type that the run's workflow takes: nothing was recorded.
    #[error(transparent)]
    WrongType(WrongType),
    /// The run belongs to a built-in workflow, and takes no signals.
    #[error("runs of {workflow:?}, which is millrun's own, take no signals")]
    ReservedName {
        /// The name of the workflow.
        workflow: String,
    },
    /// The run was not [reset](crate::RunHandle::reset), or is not shown [as it was](crate::RunHandle::at) at an event, for this
    /// reason: nothing has changed.
    #[error(transparent)]
    NotReset(Box<ResetRefused>),
    /// As many callers wait at the run with [`until`](crate::RunHandle::until) or
    /// [`until_described`](crate::RunHandle::until_described) as [`watchers_len_max`](crate::RuntimeConfig::watchers_len_max)
    /// allows: let some of them share a wait, or try again later.
    #[error("{len_max} callers wait for the run to go on, as many as watchers_len_max allows")]
    TooManyWatchers {
        /// How many there may be.
        len_max: usize,
    },
    /// The value could not be encoded.
    #[error("the value could not be encoded")]
    Payload(#[from] PayloadError),
    /// The turn that the message leads to does not fit the journal; the message was not recorded.
    #[error("what the message leads to does not fit the journal: {0}")]
    Turn(String),
    /// A record of the run is damaged, or may be, and nothing was done: the rest would look like a shorter history. Other
    /// runs are not affected, and the id stays taken. Bring the run back by salvaging the store or restoring a backup.
    #[error("the history of the run is damaged ({0}): salvage the store, or restore a backup")]
    Damaged(ReadError),
    /// The run's history could not be read.
    #[error("the run's history could not be read")]
    Read(#[source] ReadError),
    /// The run's history could be read, but not decoded.
    #[error("the run's history could not be understood: {0}")]
    History(String),
    /// The run's partition has another owner, or none: this runtime does not [own](crate::Runtime::partitions) it, and its
    /// owner was not asked, because there is no mail between the runtimes, or too much of it. If the partition was lost
    /// meanwhile, it is unknown whether the message was recorded: ask its owner.
    #[error("partition {} is not owned here: ask {}; whether the message was taken is not known", .partition.index(), OwnerName(.owner))]
    Moved {
        /// The partition of the run.
        partition: Partition,
        /// The node that owns it, if the store is shared and the owner is known.
        owner: Option<Arc<str>>,
    },
    /// The node that has the run did not do it.
    #[error("the node that has the run has not done it: {message}")]
    Elsewhere {
        /// That node's reason.
        message: String,
    },
    /// The runtime has stopped. It is unknown whether the message was recorded.
    #[error("{}", .0.told())]
    Stopped(#[from] StopCause),
}

impl RunError {
    /// Whether the same call may succeed later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::Stopped(_)
                | Self::Moved { .. }
                | Self::TooManyWatchers { .. }
                | Self::Refused(InputRefused::TooManySignals { .. })
        ) && !matches!(self, Self::Stopped(StopCause::ReadOnly))
    }

    /// All [codes](Self::code).
    pub const CODES: [&'static str; 18] = [
        "id",
        "not-found",
        "other-workflow",
        "expired",
        "finished",
        "not-reset",
        "refused",
        "wrong-type",
        "reserved-name",
        "too-many-watchers",
        "payload",
        "turn",
        "damaged",
        "read",
        "history",
        "moved",
        "elsewhere",
        "stopped",
    ];

    /// The variant's name in kebab case, for the outside. It stays the same in later releases, which may add others.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Id(_) => "id",
            Self::NotFound => "not-found",
            Self::OtherWorkflow { .. } => "other-workflow",
            Self::Expired => "expired",
            Self::Finished => "finished",
            Self::Refused(_) => "refused",
            Self::WrongType(_) => "wrong-type",
            Self::ReservedName { .. } => "reserved-name",
            Self::NotReset(_) => "not-reset",
            Self::TooManyWatchers { .. } => "too-many-watchers",
            Self::Payload(_) => "payload",
            Self::Turn(_) => "turn",
            Self::Damaged(_) => "damaged",
            Self::Read(_) => "read",
            Self::History(_) => "history",
            Self::Moved { .. } => "moved",
            Self::Elsewhere { .. } => "elsewhere",
            Self::Stopped(_) => "stopped",
        }
    }
}

impl From<ResetRefused> for RunError {
    fn from(refused: ResetRefused) -> Self {
        Self::NotReset(Box::new(refused))
    }
}

impl From<InputRefused> for RunError {
    fn from(refused: InputRefused) -> Self {
        match refused {
            InputRefused::Closed => Self::Finished,
            InputRefused::WrongType(wrong) => Self::WrongType(wrong),
            other => Self::Refused(other),
        }
    }
}

/// Why a [query](crate::RunHandle::query) has no answer.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueryError {
    /// The run was reached, but gave no answer.
    #[error(transparent)]
    Unanswered(#[from] Unanswered),
    /// The question could not be encoded, or the answer is not of the expected type.
    #[error("the question or its answer is not of the query's type")]
    Payload(#[source] PayloadError),
    /// The run was not reached.
    #[error(transparent)]
    Run(#[from] RunError),
}

impl From<StopCause> for QueryError {
    fn from(cause: StopCause) -> Self {
        Self::Run(cause.into())
    }
}

/// Why an [update](crate::RunHandle::update) has no answer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum UpdateError<E> {
    /// The update's validator rejected it; nothing was recorded.
    Rejected(E),
    /// It was accepted and recorded, but has no answer. It was still performed if the problem is its answer, which does not
    /// encode or is larger than a payload may be.
    Failed {
        /// Why.
        message: String,
    },
    /// It is recorded, but the run's code does not run: once it does, the update is performed. Repeat it under the same
    /// request to get the answer.
    Parked(Box<ParkReason>),
    /// The argument could not be encoded, or the answer or the rejection is not of the expected
    /// type.
    Payload(PayloadError),
    /// The run was not reached, or refused it.
    Run(RunError),
}

impl<E: fmt::Display> fmt::Display for UpdateError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rejected(error) => write!(f, "the update was rejected: {error}"),
            Self::Failed { message } => write!(f, "the update has no answer: {message}"),
            Self::Parked(reason) => write!(f, "the update is recorded, but its run is parked: {reason}"),
            Self::Payload(_) => f.write_str("a value of the update is not of the expected type"),
            Self::Run(error) => write!(f, "the run did not take the update: {error}"),
        }
    }
}

impl<E: fmt::Display + fmt::Debug> std::error::Error for UpdateError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Payload(error) => Some(error),
            Self::Run(error) => Some(error),
            Self::Rejected(_) | Self::Failed { .. } | Self::Parked(_) => None,
        }
    }
}

/// Why a run has no result.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ResultError<E> {
    /// The workflow ended with its own error.
    Failed(E),
    /// It was cancelled, and ended with this error.
    Cancelled(E),
    /// It was terminated.
    Terminated {
        /// Why.
        reason: String,
    },
    /// It was [out of time](crate::builders::Start::run_timeout), by this timeout.
    TimedOut(RunTimeout),
    /// It has not ended, but its code does not run: fix the cause, [resume](crate::RunHandle::resume) it, and ask again.
    Parked(Box<ParkReason>),
    /// The recorded value is not of the expected type.
    Payload(PayloadError),
    /// The run was not reached.
    Run(RunError),
}

impl<E> ResultError<E> {
    /// With the workflow's own error decoded.
    pub(crate) fn try_map<T>(self, decode: impl FnOnce(E) -> Result<T, PayloadError>) -> ResultError<T> {
        let decoded = match self {
            Self::Failed(error) => decode(error).map(ResultError::Failed),
            Self::Cancelled(error) => decode(error).map(ResultError::Cancelled),
            Self::Terminated { reason } => Ok(ResultError::Terminated { reason }),
            Self::TimedOut(timeout) => Ok(ResultError::TimedOut(timeout)),
            Self::Parked(reason) => Ok(ResultError::Parked(reason)),
            Self::Payload(error) => Err(error),
            Self::Run(error) => Ok(ResultError::Run(error)),
        };
        decoded.unwrap_or_else(ResultError::Payload)
    }
}

impl<E: fmt::Display> fmt::Display for ResultError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(error) => write!(f, "the workflow failed: {error}"),
            Self::Cancelled(error) => write!(f, "the workflow was cancelled: {error}"),
            Self::Terminated { reason } => write!(f, "the workflow was terminated: {reason}"),
            Self::TimedOut(timeout) => write!(f, "the workflow exceeded its {timeout} timeout"),
            Self::Parked(reason) => write!(f, "the workflow is parked: {reason}"),
            Self::Payload(_) => f.write_str("the recorded value is not of the expected type"),
            Self::Run(error) => write!(f, "the run was not reached: {error}"),
        }
    }
}

impl<E: fmt::Display + fmt::Debug> std::error::Error for ResultError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Payload(error) => Some(error),
            Self::Run(error) => Some(error),
            Self::Failed(_)
            | Self::Cancelled(_)
            | Self::Terminated { .. }
            | Self::TimedOut(_)
            | Self::Parked(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use millrun_core::{InstanceId, Timestamp};
    use millrun_workflow::{Implementation, Payload, RunTimeout, Workflow, WorkflowContext};

    const COUNT: Workflow<u64, ()> = Workflow::named("count");

    use super::*;

    fn wrong_type() -> WrongType {
        let code = Implementation::new(COUNT, async |_cx: WorkflowContext, _: u64| Ok(()));
        code.check_input(&Payload::encode("one").unwrap()).unwrap_err()
    }

    #[test]
    fn each_variant_of_a_run_error_has_a_code_of_its_own_in_the_list() {
        let read = || ReadError::Failed(JournalFailure::new(FailureKind::Corrupted, "damaged"));
        let all = [
            RunError::Id(InstanceId::new("").unwrap_err()),
            RunError::NotFound,
            RunError::OtherWorkflow {
                expected: "a".into(),
                workflow: "b".into(),
            },
            RunError::Expired,
            RunError::Finished,
            RunError::NotReset(Box::new(ResetRefused::TooManyLive { len_max: 1 })),
            RunError::Refused(InputRefused::Stale),
            RunError::WrongType(wrong_type()),
            RunError::ReservedName {
                workflow: "millrun.x".into(),
            },
            RunError::TooManyWatchers { len_max: 1 },
            RunError::Payload(PayloadError::Empty),
            RunError::Turn(String::new()),
            RunError::Damaged(read()),
            RunError::Read(read()),
            RunError::History(String::new()),
            RunError::Moved {
                partition: Partition::of(b"x"),
                owner: None,
            },
            RunError::Elsewhere {
                message: String::new(),
            },
            RunError::Stopped(StopCause::Shutdown),
        ];
        assert_eq!(all.each_ref().map(RunError::code), RunError::CODES);
    }

    #[test]
    fn each_variant_of_a_start_error_has_a_code_of_its_own_in_the_list() {
        let read = || ReadError::Failed(JournalFailure::new(FailureKind::Corrupted, "damaged"));
        let run = RunId::new(Partition::of(b"x"), Timestamp::EPOCH, 1);
        let all = [
            StartError::Id(InstanceId::new("").unwrap_err()),
            StartError::Payload(PayloadError::Empty),
            StartError::TooLarge {
                bytes: 2,
                bytes_max: 1,
            },
            StartError::Name { bytes: 0 },
            StartError::NoTime {
                timeout: RunTimeout::Run,
            },
            StartError::WrongType(wrong_type()),
            StartError::ReservedName {
                workflow: "millrun.x".into(),
            },
            StartError::Turn(String::new()),
            StartError::NotReplaced(Box::new(RunError::Finished)),
            StartError::AlreadyRunning { run },
            StartError::AlreadyFinished { run },
            StartError::NotRetained { run },
            StartError::OtherWorkflow {
                expected: "a".into(),
                workflow: "b".into(),
            },
            StartError::TooManyLive { len_max: 1 },
            StartError::Damaged(read()),
            StartError::Read(read()),
            StartError::History {
                run,
                cause: String::new(),
            },
            StartError::Moved {
                partition: run.partition(),
                owner: None,
            },
            StartError::Elsewhere {
                message: String::new(),
            },
            StartError::Stopped(StopCause::Shutdown),
        ];
        assert_eq!(all.each_ref().map(StartError::code), StartError::CODES);
    }

    /// Regression: a query that was loading its run when the disk failed was told that the history could not be read, as if
    /// it were the run's fault. An earlier test only asked a runtime that had ended, not one that was ending.
    #[test]
    fn a_read_that_the_end_of_the_runtime_cuts_short_names_the_end() {
        let closed = || ReadError::Failed(JournalFailure::new(FailureKind::Closed, "the journal is closed"));
        assert!(matches!(
            RunError::from(closed()),
            RunError::Stopped(StopCause::Journal(_))
        ));
        assert!(matches!(
            StartError::from(closed()),
            StartError::Stopped(StopCause::Journal(_))
        ));
        let unreadable =
            || ReadError::Failed(JournalFailure::new(FailureKind::Corrupted, "a page is damaged"));
        assert!(matches!(RunError::from(unreadable()), RunError::Read(_)));
        assert!(matches!(StartError::from(unreadable()), StartError::Read(_)));
    }
}
