//! A run as it was at an event of its history.

use std::sync::Arc;

use millrun_core::{RunId, Sequence};
use millrun_workflow::{Fit, Name, Payload, Query};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::describe::InstanceDescription;
use crate::inner::Inner;
use crate::mail::{Question, Target, Wake};
use crate::{QueryError, RunError, RunHandle, Runtime, UntypedHandle};

/// A run as it was behind one of its events; made by [`RunHandle::at`]. It is only read. A cheap clone; it keeps the runtime alive.
///
/// Each question replays the history up to the event with the code that is registered, beside the shards and the runs that are
/// woken: nothing is recorded, called or sent, and no run is brought into memory. The code is that of the version that the run had
/// then, or else the newest.
///
/// The decisions that follow an event at once were recorded with it, in one turn, and so was the parking of a run whose code has
/// not begun. They are taken together: a run is shown behind the last of them, also at an event among them.
///
/// # Cancel safety
/// All methods only read.
#[derive(Clone)]
pub struct RunAt {
    inner: Arc<Inner>,
    target: Target,
    to: Sequence,
}

/// What there is to say about a run as it was behind an event.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DescribedAt {
    /// The description that was true then. Its [`sequence`](InstanceDescription::sequence) is that of the last event of the turn.
    /// Of calls it tells the attempts as far as events do; whether code, queues and topics are registered, it tells as of today.
    pub description: InstanceDescription,
    /// Whether the code fits up to there. If not, [`awaited`](InstanceDescription::awaited) and [`lines`](InstanceDescription::lines)
    /// are empty: what the history tells is all that is known.
    pub fit: Fit,
}

impl std::fmt::Debug for RunAt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunAt")
            .field("target", &self.target)
            .field("to", &self.to)
            .finish_non_exhaustive()
    }
}

impl RunAt {
    fn new(inner: &Arc<Inner>, target: Target, to: u64) -> Self {
        Self {
            inner: Arc::clone(inner),
            target,
            to: Sequence::new(to),
        }
    }

    /// What the run did and waited for then.
    ///
    /// # Errors
    /// [`RunError::NotReset`] with [`NoEvent`](crate::operating::ResetRefused::NoEvent) or
    /// [`Trimmed`](crate::operating::ResetRefused::Trimmed) when the history has no such event (any more), [`RunError::Read`] when it is
    /// longer up to there than [`history_bytes_max`](crate::store::JournalConfig::history_bytes_max). Otherwise when there is no such
    /// run, it is of another workflow, or the runtime has stopped.
    pub async fn describe(&self) -> Result<DescribedAt, RunError> {
        let run = self.run().await?;
        let described = self.inner.shared.reader.describe_at(run, self.to);
        self.inner.view(described).await.map(|described| *described)
    }

    /// What the run's [state](crate::workflow::State) would have answered then.
    ///
    /// # Errors
    /// See [`QueryError`]; [`Unanswered::Parked`](crate::workflow::Unanswered::Parked) within it when the code did not run at that event,
    /// or does not fit the history up to there. Otherwise as of [`describe`](Self::describe).
    pub async fn query<S, Q: Serialize, A: DeserializeOwned>(
        &self,
        query: Query<S, Q, A>,
        question: Q,
    ) -> Result<A, QueryError> {
        let value = Payload::encode(&question).map_err(QueryError::Payload)?;
        let answer = self.ask(query.name().into(), value).await?;
        answer.decode().map_err(QueryError::Payload)
    }

    /// As [`query`](Self::query), with the query's name, the question and the answer as encoded.
    ///
    /// # Errors
    /// As of [`query`](Self::query).
    pub async fn query_untyped(&self, name: &str, question: Payload) -> Result<Payload, QueryError> {
        self.ask(Name::Owned(name.to_owned()), question).await
    }

    async fn ask(&self, name: Name, value: Payload) -> Result<Payload, QueryError> {
        let run = self.run().await?;
        let question = Question { name, value };
        let answer = self.inner.shared.reader.query_at(run, self.to, question);
        self.inner.read(answer).await
    }

    /// The run that is meant. The numbers are those of its own events, so one in which it goes on is another.
    async fn run(&self) -> Result<RunId, RunError> {
        match &self.target {
            Target::Run(run) => Ok(*run),
            Target::Latest(_) => {
                let described = self.inner.describe(self.target.clone(), Wake::Never).await?;
                Ok(described.run)
            }
        }
    }
}

impl<O, E> RunHandle<O, E> {
    /// The run as it was behind the event of this number, as its [history](Runtime::history) numbers them from 1: what it waited for,
    /// and what it answered to queries. The run may be live, parked or ended. It is the one that the handle was made with, or else the
    /// latest of its id.
    ///
    /// ```
    /// # use millrun::{Query, Runtime, Signal, Workflow, WorkflowContext, WorkflowError};
    /// const COUNT: Workflow<u64, u64> = Workflow::named("count");
    /// const ADD: Signal<u64> = Signal::named("add");
    /// const SUM: Query<u64, (), u64> = Query::named("sum");
    ///
    /// async fn count(cx: WorkflowContext, begin: u64) -> Result<u64, WorkflowError> {
    ///     let sum = cx.state(begin);
    ///     for _ in 0..2 {
    ///         let more = cx.receive(ADD).await?;
    ///         sum.change(|sum| *sum += more);
    ///     }
    ///     Ok(sum.read(|sum| *sum))
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let answering = COUNT.query(SUM, |sum, ()| *sum);
    /// # let runtime = Runtime::volatile().register(answering, count).start().await?;
    /// let run = runtime.start(COUNT, "c", 1).await?;
    /// run.signal(ADD, 2).await?;
    /// run.signal(ADD, 3).await?;
    /// run.result().await?;
    /// // 1 Started, 2 and 3 the signals, 4 Completed.
    /// assert_eq!(run.at(2).query(SUM, ()).await?, 3);
    /// assert!(run.at(2).describe().await?.description.awaits("add"));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn at(&self, event: u64) -> RunAt {
        RunAt::new(self.inner(), self.target().clone(), event)
    }
}

impl UntypedHandle {
    /// As [`RunHandle::at`].
    #[must_use]
    pub fn at(&self, event: u64) -> RunAt {
        self.handle().at(event)
    }
}

impl Runtime {
    /// As [`RunHandle::at`], of this run, live or finished and retained.
    #[must_use]
    pub fn run_at(&self, run: RunId, event: u64) -> RunAt {
        RunAt::new(self.inner(), Target::Run(run), event)
    }
}
