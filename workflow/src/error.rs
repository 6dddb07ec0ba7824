//! What can go wrong in a step and in a run, as users meet it.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use millrun_core::InstanceIdError;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::event::{Name, RunTimeout};
use crate::{ErrorKind, PayloadError};

/// An error type of the user's own that an activity or a workflow may end with.
///
/// It is stored, so it must survive a round trip through serde. [`ActivityError`] and [`WorkflowError`] are ready-made ones.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the error of an activity or a workflow",
    label = "it is stored and shown: it needs `Serialize`, `Deserialize` and `Display`",
    note = "derive `serde::Serialize` and `serde::Deserialize`, implement `Display` (with `thiserror`, say), and write `impl TypedError for {Self} {{}}`",
    note = "`ActivityError` and `WorkflowError` are ready-made, and made of any other error by `?`"
)]
pub trait TypedError: Serialize + DeserializeOwned + fmt::Display + fmt::Debug + Send + 'static {
    /// Whether another attempt may succeed. Used for activities, and for workflows whose start has a [retry
    /// policy](crate::Started::retried).
    fn is_retryable(&self) -> bool {
        true
    }

    /// The pause before the next attempt, if this error knows a better one than the call's policy: the remote side has said
    /// when to come again, say. It is neither varied nor bounded by [`pause_max`](crate::Retry::pause_max); the policy's
    /// number of attempts and its [`elapsed_max`](crate::Retry::elapsed_max) still hold, and so does
    /// [`schedule_to_close`](crate::Call::schedule_to_close). The time of the next attempt is recorded with the failure, so a
    /// crash does not change it. Used for activities only.
    fn retry_after(&self) -> Option<Duration> {
        None
    }

    /// The name of its [kind](ErrorKind), for [retry policies by kind](crate::Call::retry_on). Used for activities only.
    fn kind(&self) -> Option<&str> {
        None
    }

    /// Whether this error is the answer to a request to cancel. Used for workflows only.
    fn is_cancelled(&self) -> bool {
        false
    }
}

/// The ready-made error of an activity: a message, and whether to try again.
///
/// Any [`std::error::Error`] converts into a retryable one, so `?` works in an activity.
///
/// ```
/// use millrun_workflow::{ActivityError, TypedError};
///
/// fn read() -> Result<String, ActivityError> {
///     Ok(std::fs::read_to_string("/does/not/exist")?)
/// }
/// assert!(read().unwrap_err().is_retryable());
/// assert!(!ActivityError::fatal("the card was declined").is_retryable());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActivityError {
    message: String,
    retryable: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kind: Option<Name>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry_after_us: Option<u64>,
}

impl ActivityError {
    /// Trying again may help.
    #[must_use]
    pub fn retryable(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            retryable: true,
            kind: None,
            retry_after_us: None,
        }
    }

    /// Trying again cannot help: the call fails at once.
    #[must_use]
    pub fn fatal(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            retryable: false,
            kind: None,
            retry_after_us: None,
        }
    }

    /// The same error, of this kind.
    #[must_use]
    pub fn of_kind(mut self, kind: ErrorKind<Self>) -> Self {
        self.kind = Some(kind.name().into());
        self
    }

    /// The same error, with the [pause](TypedError::retry_after) before the next attempt, to the microsecond.
    ///
    /// ```
    /// use std::time::Duration;
    /// use millrun_workflow::{ActivityError, TypedError};
    ///
    /// let busy = ActivityError::retryable("429, come again later").after(Duration::from_secs(30));
    /// assert_eq!(busy.retry_after(), Some(Duration::from_secs(30)));
    /// ```
    #[must_use]
    pub fn after(mut self, pause: Duration) -> Self {
        self.retry_after_us = Some(u64::try_from(pause.as_micros()).unwrap_or(u64::MAX));
        self
    }

    /// What happened.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for ActivityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl TypedError for ActivityError {
    fn is_retryable(&self) -> bool {
        self.retryable
    }

    fn retry_after(&self) -> Option<Duration> {
        self.retry_after_us.map(Duration::from_micros)
    }

    fn kind(&self) -> Option<&str> {
        self.kind.as_deref()
    }
}

impl<E: Error> From<E> for ActivityError {
    fn from(error: E) -> Self {
        Self::retryable(with_sources(&error))
    }
}

/// The ready-made error of a workflow.
///
/// Any [`std::error::Error`] converts into it, so `?` works in a workflow. An error that stems from [`Cancelled`] is still
/// recognised as a cancellation: a run that was asked to cancel and ends with it counts as cancelled, not as failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkflowError {
    message: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    cancelled: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    fatal: bool,
}

impl WorkflowError {
    /// A failure with this message.
    #[must_use]
    pub fn failed(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            cancelled: false,
            fatal: false,
        }
    }

    /// A failure with this message that another try of the run cannot avoid: a run whose start has a [retry
    /// policy](crate::Started::retried) fails at once.
    #[must_use]
    pub fn fatal(message: impl Into<String>) -> Self {
        Self {
            fatal: true,
            ..Self::failed(message)
        }
    }

    /// What happened.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for WorkflowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl TypedError for WorkflowError {
    fn is_retryable(&self) -> bool {
        !self.fatal
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled
    }
}

impl<E: Error + 'static> From<E> for WorkflowError {
    fn from(error: E) -> Self {
        let mut cancelled = false;
        let mut link: Option<&(dyn Error + 'static)> = Some(&error);
        while let Some(this) = link {
            cancelled |= this.is::<Cancelled>();
            link = this.source();
        }
        Self {
            message: with_sources(&error),
            cancelled,
            fatal: false,
        }
    }
}

/// The run was asked to cancel, or a [scope](crate::CancelScope) of it was cancelled, so the operation was
/// not waited for.
///
/// ```
/// use millrun_workflow::{CallError, Activity, WorkflowContext, WorkflowError};
///
/// const PACK: Activity<String, ()> = Activity::named("pack");
/// const APOLOGISE: Activity<String, ()> = Activity::named("apologise");
///
/// async fn order(cx: WorkflowContext, item: String) -> Result<(), WorkflowError> {
///     match cx.call(PACK, item).await {
///         Err(CallError::Cancelled(cancelled)) => {
///             let why = cancelled.reason().unwrap_or("no reason given");
///             cx.shielded().call(APOLOGISE, why.into()).await?;
///             Err(cancelled.into())
///         }
///         packed => Ok(packed?),
///     }
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cancelled {
    pub(crate) reason: Option<Arc<str>>,
}

impl Cancelled {
    /// Why the run was asked to cancel, in the words of the caller; cut at [`text_bytes_max`](crate::Limits::text_bytes_max).
    /// `None` if no reason was given, if a scope was cancelled and not the run, or if the run was begun or asked by a release
    /// that did not show the reason to the code.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }
}

impl fmt::Display for Cancelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the run was asked to cancel")?;
        self.reason().map_or(Ok(()), |reason| write!(f, ": {reason}"))
    }
}

impl Error for Cancelled {}

/// Which of an activity's deadlines passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum TimeoutKind {
    /// One attempt took longer than its start-to-close timeout.
    StartToClose,
    /// An attempt waited in its queue for longer than its schedule-to-start timeout.
    ScheduleToStart,
    /// All attempts together, with their pauses, took longer than the schedule-to-close timeout.
    ScheduleToClose,
    /// An attempt was silent for longer than its heartbeat timeout.
    Heartbeat,
}

impl fmt::Display for TimeoutKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::StartToClose => "start-to-close",
            Self::ScheduleToStart => "schedule-to-start",
            Self::ScheduleToClose => "schedule-to-close",
            Self::Heartbeat => "heartbeat",
        })
    }
}

/// Why a [call](crate::WorkflowContext::call) of an activity gave no value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallError<E> {
    /// The activity ended with its own error, and no attempts were left (or none would help).
    Failed(E),
    /// The last attempt ran out of time.
    TimedOut(TimeoutKind),
    /// The last attempt panicked, with this message.
    Panicked(String),
    /// The run was asked to cancel.
    Cancelled(Cancelled),
    /// The input, the result or the error did not encode or decode.
    Payload(PayloadError),
    /// The input is larger than a payload may be.
    TooLarge {
        /// Its encoded size.
        bytes: usize,
        /// The limit, `payload_bytes_max`.
        bytes_max: usize,
    },
    /// The run has as many activities outstanding as one may have.
    TooManyPending {
        /// The limit, `pending_len_max`.
        len_max: usize,
    },
    /// The call has retry policies for more kinds of errors than it may have.
    TooManyKinds {
        /// The limit, [`RETRY_KINDS_MAX`](crate::RETRY_KINDS_MAX).
        len_max: usize,
    },
    /// The name of the call's task queue is empty or too long.
    QueueName {
        /// How many bytes it has.
        bytes: usize,
    },
}

impl<E: fmt::Display> fmt::Display for CallError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(error) => write!(f, "the activity failed: {error}"),
            Self::TimedOut(kind) => write!(f, "the activity exceeded its {kind} timeout"),
            Self::Panicked(message) => write!(f, "the activity panicked: {message}"),
            Self::Cancelled(_) => f.write_str("the activity was not waited for"),
            Self::Payload(_) => f.write_str("a value of the activity could not be encoded or decoded"),
            Self::TooLarge { bytes, bytes_max } => {
                write!(
                    f,
                    "the input has {bytes} bytes, a payload may have {bytes_max}: pass a reference instead"
                )
            }
            Self::TooManyPending { len_max } => {
                write!(
                    f,
                    "the run has {len_max} operations outstanding, its limit: await some first"
                )
            }
            Self::TooManyKinds { len_max } => {
                write!(
                    f,
                    "a call may have retry policies for {len_max} kinds of errors: put some together"
                )
            }
            Self::QueueName { bytes } => {
                write!(
                    f,
                    "the name of a task queue has 1 to 255 bytes, this one has {bytes}"
                )
            }
        }
    }
}

impl<E: fmt::Display + fmt::Debug> Error for CallError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Cancelled(cancelled) => Some(cancelled),
            Self::Payload(error) => Some(error),
            Self::Failed(_)
            | Self::TimedOut(_)
            | Self::Panicked(_)
            | Self::TooLarge { .. }
            | Self::TooManyPending { .. }
            | Self::TooManyKinds { .. }
            | Self::QueueName { .. } => None,
        }
    }
}

/// Why a [child](crate::WorkflowContext::child) gave no value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChildError<E> {
    /// It ended with its own error.
    Failed(E),
    /// It was cancelled by another caller than this run, and ended with this error.
    WasCancelled(E),
    /// It was terminated.
    Terminated {
        /// Why.
        reason: String,
    },
    /// It was out of time, by this [timeout](crate::Child::run_timeout).
    TimedOut(RunTimeout),
    /// It could not be started: its id belongs to another live instance, there are too many
    /// instances, or its result is retained no longer.
    NotStarted {
        /// Why.
        message: String,
    },
    /// This run was asked to cancel.
    Cancelled(Cancelled),
    /// The id is no instance id.
    Id(InstanceIdError),
    /// The input, the result or the error did not encode or decode.
    Payload(PayloadError),
    /// The input is larger than a payload may be.
    TooLarge {
        /// Its encoded size.
        bytes: usize,
        /// The limit, `payload_bytes_max`.
        bytes_max: usize,
    },
    /// The run has as many operations outstanding as one may have.
    TooManyPending {
        /// The limit, `pending_len_max`.
        len_max: usize,
    },
}

impl<E: fmt::Display> fmt::Display for ChildError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(error) => write!(f, "the child failed: {error}"),
            Self::WasCancelled(error) => write!(f, "the child was cancelled: {error}"),
            Self::Terminated { reason } => write!(f, "the child was terminated: {reason}"),
            Self::TimedOut(timeout) => write!(f, "the child exceeded its {timeout} timeout"),
            Self::NotStarted { message } => write!(f, "the child was not started: {message}"),
            Self::Cancelled(_) => f.write_str("the child was not waited for"),
            Self::Id(_) => f.write_str("the child's id is no instance id"),
            Self::Payload(_) => f.write_str("a value of the child could not be encoded or decoded"),
            Self::TooLarge { bytes, bytes_max } => {
                write!(
                    f,
                    "the input has {bytes} bytes, a payload may have {bytes_max}: pass a reference instead"
                )
            }
            Self::TooManyPending { len_max } => {
                write!(
                    f,
                    "the run has {len_max} operations outstanding, its limit: await some first"
                )
            }
        }
    }
}

impl<E: fmt::Display + fmt::Debug> Error for ChildError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Cancelled(cancelled) => Some(cancelled),
            Self::Id(error) => Some(error),
            Self::Payload(error) => Some(error),
            Self::Failed(_)
            | Self::WasCancelled(_)
            | Self::Terminated { .. }
            | Self::TimedOut(_)
            | Self::NotStarted { .. }
            | Self::TooLarge { .. }
            | Self::TooManyPending { .. } => None,
        }
    }
}

/// Why a [publish](crate::WorkflowContext::publish) did not come about.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PublishStepError {
    /// The topic refused it: it has another type, or a subscription that refuses was full, or the topic is in memory and the
    /// value has a correlation or a content type, which only records of durable topics have. For a topic named at run time
    /// also: the name is not valid for a topic, or the broker has as many topics as it may.
    #[error("the value was not published: {0}")]
    Refused(String),
    /// The name of the topic is empty or too long.
    #[error("the name of a topic has 1 to 255 bytes, this one has {bytes}")]
    Name {
        /// How many bytes it has.
        bytes: usize,
    },
    /// A text of the record is longer than [`RECORD_TEXT_BYTES_MAX`](crate::RECORD_TEXT_BYTES_MAX).
    #[error("the {field} has {bytes} bytes, it may have {}", crate::RECORD_TEXT_BYTES_MAX)]
    TextTooLong {
        /// Which: `key`, `correlation` or `content type`.
        field: &'static str,
        /// Its size in bytes.
        bytes: usize,
    },
    /// The run was asked to cancel.
    #[error("the publish was not waited for")]
    Cancelled(#[source] Cancelled),
    /// The value could not be encoded.
    #[error("the value could not be encoded")]
    Payload(#[source] PayloadError),
    /// The value is larger than a payload may be.
    #[error("the value has {bytes} bytes, a payload may have {bytes_max}: pass a reference instead")]
    TooLarge {
        /// Its encoded size.
        bytes: usize,
        /// The limit, `payload_bytes_max`.
        bytes_max: usize,
    },
    /// The run has as many operations outstanding as one may have.
    #[error("the run has {len_max} operations outstanding, its limit: await some first")]
    TooManyPending {
        /// The limit, `pending_len_max`.
        len_max: usize,
    },
}

/// Why a record of a durable topic was not [received](crate::WorkflowContext::receive_from).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveRecordError {
    /// The key, its beginning or the correlation is empty or too long.
    #[error("a {what} by which records are received has 1 to 255 bytes, this one has {bytes}")]
    Filter {
        /// `key` or `correlation`.
        what: &'static str,
        /// How many bytes it has.
        bytes: usize,
    },
    /// The run has as many places in durable topics, by topic and filter, as it may.
    #[error(
        "the run has received from {} topics or by as many filters, its limit: let other runs receive the others",
        crate::RECEIVED_PLACES_MAX
    )]
    TooManyPlaces,
    /// The run was asked to cancel.
    #[error("the record was not waited for")]
    Cancelled(#[source] Cancelled),
    /// The record does not decode as the topic's type. It counts as taken: the next wait is for the one behind it.
    #[error("the record could not be decoded")]
    Payload(#[source] PayloadError),
    /// The run has as many operations outstanding as one may have.
    #[error("the run has {len_max} operations outstanding, its limit: await some first")]
    TooManyPending {
        /// The limit, `pending_len_max`.
        len_max: usize,
    },
}

/// Why another instance was not [signalled](crate::WorkflowContext::signal_instance). Except for
/// [`Cancelled`](Self::Cancelled), the signal is recorded nowhere.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SignalInstanceError {
    /// There is no such instance, or it finished so long ago that it is forgotten.
    #[error("there is no instance of this id (or none that is retained)")]
    NotFound,
    /// The instance has ended.
    #[error("the instance has ended")]
    Finished,
    /// The id belongs to an instance of this other workflow.
    #[error("the id belongs to an instance of workflow {workflow:?}")]
    OtherWorkflow {
        /// Its name.
        workflow: String,
    },
    /// A record of the instance is damaged, or its history cannot be read: its id stays taken, and it does not run.
    #[error("the instance does not run: {message}")]
    Quarantined {
        /// What is wrong.
        message: String,
    },
    /// The instance refuses the signal: it has as many unread ones as it may, say, or the value is larger than its payloads
    /// may be. It may accept it later.
    #[error("the instance did not take the signal: {message}")]
    Refused {
        /// Why.
        message: String,
    },
    /// This run was asked to cancel. Whether the signal was recorded is not known.
    #[error("the signal was not waited for")]
    Cancelled(#[source] Cancelled),
    /// The id is no instance id.
    #[error("the id of the instance is none")]
    Id(#[source] InstanceIdError),
    /// The value could not be encoded.
    #[error("the value could not be encoded")]
    Payload(#[source] PayloadError),
    /// The value is larger than a payload of this run may be.
    #[error("the value has {bytes} bytes, a payload may have {bytes_max}: pass a reference instead")]
    TooLarge {
        /// Its encoded size.
        bytes: usize,
        /// The limit, `payload_bytes_max`.
        bytes_max: usize,
    },
    /// The run has as many operations outstanding as one may have.
    #[error("the run has {len_max} operations outstanding, its limit: await some first")]
    TooManyPending {
        /// The limit, `pending_len_max`.
        len_max: usize,
    },
}

/// Why a [promise](crate::WorkflowContext::promise) gave no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PromiseError {
    /// The promise was broken with this error.
    #[error("the promise was not kept: {0}")]
    Failed(String),
    /// The run was asked to cancel.
    #[error("the promise was not waited for")]
    Cancelled(#[source] Cancelled),
    /// It was kept with a value of another type.
    #[error("the promise's value could not be decoded")]
    Payload(#[source] PayloadError),
}

/// Why a run could not [continue as new](crate::WorkflowContext::continue_as_new).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ContinueError {
    /// The run was asked to cancel: it must end.
    #[error("the run does not continue")]
    Cancelled(#[source] Cancelled),
    /// The argument could not be encoded.
    #[error("the argument of the next run could not be encoded")]
    Payload(#[source] PayloadError),
    /// The argument is larger than a payload may be.
    #[error("the argument has {bytes} bytes, a payload may have {bytes_max}: pass a reference instead")]
    TooLarge {
        /// Its encoded size.
        bytes: usize,
        /// The limit, `payload_bytes_max`.
        bytes_max: usize,
    },
}

/// Why a wait for a signal gave no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SignalError {
    /// The run was asked to cancel.
    #[error("the signal was not waited for")]
    Cancelled(#[source] Cancelled),
    /// A signal of this name carried something else. It has been taken from the buffer.
    #[error("the signal's value could not be decoded")]
    Payload(#[source] PayloadError),
}

/// The error's message followed by those of its sources.
fn with_sources(error: &dyn Error) -> String {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(this) = source {
        message.push_str(": ");
        message.push_str(&this.to_string());
        source = this.source();
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cancelled_call_makes_a_cancelled_workflow() {
        let why = |reason: Option<&str>| Cancelled {
            reason: reason.map(Arc::from),
        };
        let call: CallError<ActivityError> = CallError::Cancelled(why(Some("too late")));
        let error = WorkflowError::from(call);
        assert!(error.is_cancelled());
        assert!(
            error
                .message()
                .ends_with(": the run was asked to cancel: too late")
        );
        assert_eq!(why(None).to_string(), "the run was asked to cancel");
        let failed: CallError<ActivityError> = CallError::Failed(ActivityError::fatal("no"));
        let error = WorkflowError::from(failed);
        assert!(!error.is_cancelled());
        assert_eq!(error.message(), "the activity failed: no");
    }
}
