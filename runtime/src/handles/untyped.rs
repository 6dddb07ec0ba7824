//! A handle to an instance of any workflow, for operators, who know instances by their ids.

use std::fmt;

use millrun_core::{InstanceId, RunId};
use millrun_workflow::{Name, Payload, ResetPoint, RunFailure};

use crate::handles::run::ended;
use crate::handles::updated::Decoder;
use crate::looking::describe::InstanceDescription;
use crate::looking::why::Why;
use crate::mail::{Question, Tell, UpdateRequest};
use crate::{QueryError, ResultError, RunError, RunHandle, UpdateError};

/// The latest run of an id, of any workflow; made by [`Runtime::attach_untyped`](crate::Runtime::attach_untyped). A cheap
/// clone; it keeps the runtime alive.
///
/// Values are [payloads](Payload), since the handle does not know the workflow's types. Code that knows the workflow is safer
/// with a [`RunHandle`], which refuses to touch an instance of another one.
///
/// ```
/// use millrun::{RunError, Runtime, Workflow, WorkflowContext, WorkflowError};
///
/// const ORDER: Workflow<u64, u64> = Workflow::named("order");
/// const REPORT: Workflow<(), ()> = Workflow::named("report");
///
/// async fn order(cx: WorkflowContext, cents: u64) -> Result<u64, WorkflowError> {
///     cx.sleep(std::time::Duration::from_secs(86_400)).await?;
///     Ok(cents)
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = Runtime::volatile().register(ORDER, order).start().await?;
/// runtime.start(ORDER, "nightly", 1_999).await?;
/// let mistaken = runtime.attach(REPORT, "nightly")?.cancel("no report today").await;
/// assert!(matches!(mistaken, Err(RunError::OtherWorkflow { .. })));
///
/// let whatever_it_is = runtime.attach_untyped("nightly")?;
/// assert_eq!(whatever_it_is.describe().await?.workflow, "order");
/// whatever_it_is.terminate("the shop has closed").await?;
/// # Ok(())
/// # }
/// ```
///
/// # Cancel safety
/// As that of a [`RunHandle`].
#[derive(Clone)]
pub struct UntypedHandle(RunHandle<Payload, RunFailure>);

impl fmt::Debug for UntypedHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UntypedHandle")
            .field("id", self.id())
            .finish_non_exhaustive()
    }
}

impl UntypedHandle {
    pub(crate) fn new(handle: RunHandle<Payload, RunFailure>) -> Self {
        Self(handle)
    }

    pub(crate) fn handle(&self) -> &RunHandle<Payload, RunFailure> {
        &self.0
    }

    /// The id of the instance.
    #[must_use]
    pub fn id(&self) -> &InstanceId {
        self.0.id()
    }

    /// As [`RunHandle::run_id`].
    #[must_use]
    pub fn run_id(&self) -> Option<RunId> {
        self.0.run_id()
    }

    /// As [`RunHandle::signal`], with the signal's name and its encoded value. If the workflow
    /// [declares](crate::builders::AnsweringWorkflow::signal) the signal, a value of another type is refused, and nothing is
    /// recorded; for an undeclared signal, it is an error in the code that receives it.
    ///
    /// # Errors
    /// [`RunError::WrongType`] names the expected type. Otherwise when there is no such run (any more), it takes no more
    /// signals, the name is longer than 255 bytes or empty, or the runtime has stopped.
    pub async fn signal(&self, name: &str, value: Payload) -> Result<(), RunError> {
        self.send_signal(name, value, None).await
    }

    /// As [`RunHandle::signal_as`], with the signal's name and its encoded value.
    ///
    /// # Errors
    /// As [`signal`](Self::signal), and when the request is empty or longer than 255 bytes.
    pub async fn signal_as(&self, name: &str, request: &str, value: Payload) -> Result<(), RunError> {
        self.send_signal(name, value, Some(request.into())).await
    }

    async fn send_signal(
        &self,
        name: &str,
        value: Payload,
        request: Option<Box<str>>,
    ) -> Result<(), RunError> {
        let signal = Tell::Signal {
            name: Name::Owned(name.to_owned()),
            value,
            cause: None,
            request,
            is_by_name: true,
        };
        self.0.tell(signal).await
    }

    /// As [`RunHandle::cancel`].
    ///
    /// # Errors
    /// When there is no such run (any more), or the runtime has stopped.
    pub async fn cancel(&self, reason: &str) -> Result<(), RunError> {
        self.0.cancel(reason).await
    }

    /// As [`RunHandle::terminate`].
    ///
    /// # Errors
    /// When there is no such run (any more), or the runtime has stopped.
    pub async fn terminate(&self, reason: &str) -> Result<(), RunError> {
        self.0.terminate(reason).await
    }

    /// As [`RunHandle::pause`].
    ///
    /// # Errors
    /// When there is no such run (any more), or the runtime has stopped.
    pub async fn pause(&self, reason: &str) -> Result<(), RunError> {
        self.0.pause(reason).await
    }

    /// As [`RunHandle::resume`].
    ///
    /// # Errors
    /// When the code still does not fit the history, or the run was not reached.
    pub async fn resume(&self) -> Result<(), RunError> {
        self.0.resume().await
    }

    /// As [`RunHandle::reset`].
    ///
    /// # Errors
    /// As [`RunHandle::reset`].
    pub async fn reset(&self, point: ResetPoint) -> Result<Self, RunError> {
        self.0.reset(point).await.map(Self)
    }

    /// As [`RunHandle::describe`].
    ///
    /// # Errors
    /// When there is no such run, or the runtime has stopped.
    pub async fn describe(&self) -> Result<InstanceDescription, RunError> {
        self.0.describe().await
    }

    /// As [`RunHandle::describe_awake`].
    ///
    /// # Errors
    /// When there is no such run, its history cannot be read, or the runtime has stopped.
    pub async fn describe_awake(&self) -> Result<InstanceDescription, RunError> {
        self.0.describe_awake().await
    }

    /// As [`RunHandle::why`].
    ///
    /// # Errors
    /// As [`RunHandle::why`].
    pub async fn why(&self) -> Result<Why, RunError> {
        self.0.why().await
    }

    /// As [`RunHandle::why_awake`].
    ///
    /// # Errors
    /// As [`RunHandle::why_awake`].
    pub async fn why_awake(&self) -> Result<Why, RunError> {
        self.0.why_awake().await
    }

    /// As [`RunHandle::query`], with the query's name; the question and the answer are encoded.
    ///
    /// # Errors
    /// See [`QueryError`].
    pub async fn query(&self, name: &str, question: Payload) -> Result<Payload, QueryError> {
        let question = Question {
            name: Name::Owned(name.to_owned()),
            value: question,
        };
        self.0.ask(question).await
    }

    /// As [`RunHandle::until`], with the query's name; the question and the answer are encoded.
    ///
    /// # Errors
    /// As [`RunHandle::until`].
    pub async fn until(
        &self,
        name: &str,
        question: Payload,
        mut is_enough: impl FnMut(&Payload) -> bool,
    ) -> Result<Payload, QueryError> {
        let question = Question {
            name: Name::Owned(name.to_owned()),
            value: question,
        };
        self.0
            .until_answered(question, |answer| Ok(is_enough(&answer).then_some(answer)))
            .await
    }

    /// As [`RunHandle::until_described`].
    ///
    /// # Errors
    /// As [`RunHandle::until_described`].
    pub async fn until_described(
        &self,
        is_enough: impl FnMut(&InstanceDescription) -> bool,
    ) -> Result<InstanceDescription, RunError> {
        self.0.until_described(is_enough).await
    }

    /// As [`RunHandle::update_as`], with the update's name; the input, the answer and a rejection are encoded.
    ///
    /// # Errors
    /// See [`UpdateError`].
    pub async fn update_as(
        &self,
        name: &str,
        request: &str,
        input: Payload,
    ) -> Result<Payload, UpdateError<Payload>> {
        let request = UpdateRequest {
            request: request.into(),
            name: Name::Owned(name.to_owned()),
            input,
        };
        Decoder::untyped().decode(self.0.ask_update(request).await)
    }

    /// As [`RunHandle::result`], with the encoded value, or the encoded error if the run failed or was cancelled.
    ///
    /// # Errors
    /// See [`ResultError`].
    pub async fn result(&self) -> Result<Payload, ResultError<RunFailure>> {
        ended(self.0.standing().await.map_err(ResultError::Run)?)
    }
}
