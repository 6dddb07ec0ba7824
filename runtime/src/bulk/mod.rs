//! Bulks: one action on many instances, requested once and performed by a durable workflow at a bounded rate.
//!
//! ```text
//!   start ──► millrun.bulk:  look at some ids,    ──► act on the runs found ──► pause ──► the next … ──► progress
//!                            or select some runs          │ recorded: what became of each
//!                            │ recorded: which runs, and the place that the search has reached
//! ```
//!
//! Invariants: each run is acted on once, whatever crashes. The runs for ids, and the selected runs, are recorded before the
//! action, so that another run that takes an id meanwhile is left alone; and an action that is repeated has no second effect
//! ([acts]). A search goes by the times at which runs began or ended, which no action changes, so that runs that no longer
//! match after an action leave no gap; runs that begin after the bulk are not selected.

mod action;
mod acts;
mod course;
mod listing;
mod order;
mod selecting;

use std::fmt;

use millrun_core::{InstanceId, InstanceIdError};
use millrun_workflow::{Payload, Workflow, WorkflowError};
use serde::{Deserialize, Serialize};

use crate::builtin::{id_of, name_of};
use crate::looking::find::RunSearch;
use crate::opening::registry::{Definition, Registration};
use crate::{QueryError, ResultError, RunError, RunHandle, Runtime, StartError};

pub use action::BulkAction;
pub use listing::{BulkSummary, BulksPage};
use order::{CHUNK_LEN_MAX, Order};
use selecting::TargetRun;

pub(crate) const BULK: Workflow<Order, BulkProgress> = Workflow::named("millrun.bulk");

/// How many failures a bulk shows with their ids; further ones are only counted.
pub const BULK_FAILURES_LEN_MAX: usize = 100;

/// How many bytes of a payload the ids and the action of a bulk must leave free.
const SPARE_BYTES: usize = 64 * CHUNK_LEN_MAX + 4_096;

/// The code of bulks.
pub(crate) fn registrations() -> [Registration; 5] {
    let answering = BULK
        .query(course::PROGRESS, |course: &course::Course, ()| {
            course.progress.clone()
        })
        .query(course::DESCRIBED, |course, ()| course.described.clone());
    [
        Definition::bind(answering, course::bulk),
        Definition::bind(selecting::LOOK, selecting::look),
        Definition::bind(selecting::SELECT, selecting::select),
        Definition::bind(selecting::COUNT, selecting::count),
        Definition::bind(acts::ACT, acts::act),
    ]
}

/// The number of instances that a bulk would reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BulkCount {
    /// The number of selected ids and of runs that the filter finds and to which the action applies.
    pub selected_len: u64,
    /// For how many of them there is a run to which the action applies now.
    pub reached_len: u64,
}

/// The progress of a bulk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BulkProgress {
    /// The number of selected ids and of runs that the filter has found: counted once when the bulk begins, and corrected if
    /// more match since. While a bulk is counting, only the ids.
    pub selected_len: u64,
    /// For how many the action was performed.
    pub done_len: u64,
    /// For how many there was no run to which the action applies.
    pub passed_over_len: u64,
    /// For how many it failed.
    pub failed_len: u64,
    /// The first [`BULK_FAILURES_LEN_MAX`] of these.
    pub failures: Vec<BulkFailure>,
}

impl BulkProgress {
    /// The number of instances that have been looked at.
    #[must_use]
    pub fn looked_at_len(&self) -> u64 {
        self.done_len + self.passed_over_len + self.failed_len
    }
}

/// An instance for which the action failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BulkFailure {
    /// Its id.
    pub id: String,
    /// Why not.
    pub message: String,
}

/// The arguments of a bulk.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BulkDescription {
    /// The [name](BulkAction::name) of its action.
    pub action: String,
    /// The reason of the action, up to 512 bytes, or the name of the signal.
    pub about: Option<String>,
    /// The number of ids.
    pub ids_len: u64,
    /// The filter.
    pub filter: Option<RunSearch>,
    /// How many instances per second it looks at, at most.
    pub per_second: u32,
    /// A hash of all its arguments, ids and values included: distinguishes it from another bulk that is started under its
    /// name.
    pub sum: u64,
}

/// A bulk in preparation; made by [`Runtime::bulk`].
#[must_use = "nothing is done before start"]
pub struct Bulk<'a> {
    runtime: &'a Runtime,
    action: BulkAction,
    ids: Vec<String>,
    search: Option<RunSearch>,
    per_second: u32,
}

impl fmt::Debug for Bulk<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bulk")
            .field("action", &self.action)
            .field("ids_len", &self.ids.len())
            .field("search", &self.search)
            .field("per_second", &self.per_second)
            .finish_non_exhaustive()
    }
}

impl Bulk<'_> {
    /// Selects these instances, in this order; an id that comes twice is looked at twice.
    pub fn ids<T: Into<String>>(mut self, ids: impl IntoIterator<Item = T>) -> Self {
        self.ids.extend(ids.into_iter().map(Into::into));
        self
    }

    /// Selects the runs that this filter finds, after the [ids](Self::ids): those to which the action applies, and that began
    /// before the bulk or in the same millisecond. Live runs come first, the latest begun first, then finished ones, the
    /// latest ended first; a run that does not match any more when its turn comes is left alone. Their number is not bounded.
    /// If it is called twice, the last filter counts.
    pub fn matching(mut self, filter: RunSearch) -> Self {
        self.search = Some(filter);
        self
    }

    /// How many instances per second it looks at, at most: 100 by default, and at least one.
    pub fn per_second(mut self, instances: u32) -> Self {
        self.per_second = instances.max(1);
        self
    }

    /// The [description](BulkHandle::describe) that it will have.
    #[must_use]
    pub fn describe(&self) -> BulkDescription {
        let ids = self.ids.clone();
        let order = Order::new(&self.action, ids, self.search.as_ref(), self.per_second);
        order.description().into()
    }

    /// How many instances it would reach if it were started now. Nothing is changed, and no run is woken. It takes the time
    /// to find all runs that match the filter.
    ///
    /// # Errors
    /// When an instance cannot be read, or the runtime has stopped.
    pub async fn count(&self) -> Result<BulkCount, RunError> {
        let mut count = BulkCount {
            selected_len: self.ids.len() as u64,
            reached_len: 0,
        };
        let kind = self.action.kind();
        for id in &self.ids {
            let found = selecting::find(self.runtime, id, kind).await?;
            count.reached_len += u64::from(matches!(found, TargetRun::Found { .. }));
        }
        if let Some(search) = self.search.as_ref().and_then(|search| kind.narrowed(search)) {
            let reached = selecting::reached(self.runtime, &search, kind).await?;
            count.selected_len += reached;
            count.reached_len += reached;
        }
        Ok(count)
    }

    /// Starts it under a name of the caller's choice. From then on it runs by itself, also after a crash. If there is a bulk
    /// of this name, running or finished and retained, this returns a handle to that one.
    ///
    /// # Errors
    /// [`StartError::Id`] when the name, or one of the ids, cannot be part of an instance id; [`StartError::TooLarge`] when
    /// the ids and the action do not fit a payload ([`payload_bytes_max`](crate::Limits::payload_bytes_max)): start several
    /// bulks then. See [`StartError`].
    ///
    /// # Cancel safety
    /// As [`Runtime::start`].
    pub async fn start(self, name: &str) -> Result<BulkHandle, StartError> {
        for id in &self.ids {
            InstanceId::new(id)?;
        }
        let input = Payload::encode(&Order::new(
            &self.action,
            self.ids,
            self.search.as_ref(),
            self.per_second,
        ))?;
        let bytes_max = self.runtime.inner().shared.config.limits.payload_bytes_max;
        let bytes = input.len() + SPARE_BYTES;
        if bytes > bytes_max {
            return Err(StartError::TooLarge { bytes, bytes_max });
        }
        let run = self
            .runtime
            .start_own(BULK, &id_of(BULK.name(), name), input)
            .await?;
        Ok(BulkHandle(run))
    }
}

/// A started bulk. A cheap clone; it keeps the runtime alive.
///
/// # Cancel safety
/// As that of a [`RunHandle`].
#[derive(Clone, Debug)]
pub struct BulkHandle(RunHandle<BulkProgress>);

impl BulkHandle {
    /// The name under which it was started.
    #[must_use]
    pub fn name(&self) -> &str {
        let id = self.0.id().as_str();
        name_of(BULK.name(), id).unwrap_or(id)
    }

    /// Its progress, which is durable. For a bulk that has ended, its final progress, while its run is retained.
    ///
    /// # Errors
    /// See [`QueryError`].
    pub async fn progress(&self) -> Result<BulkProgress, QueryError> {
        self.0.query(course::PROGRESS, ()).await
    }

    /// Its arguments, available as [`progress`](Self::progress) is.
    ///
    /// # Errors
    /// See [`QueryError`].
    pub async fn describe(&self) -> Result<BulkDescription, QueryError> {
        Ok(self.0.query(course::DESCRIBED, ()).await?.into())
    }

    /// Waits until all instances are done.
    ///
    /// # Errors
    /// [`ResultError::Cancelled`] when it was stopped; see [`ResultError`].
    pub async fn result(&self) -> Result<BulkProgress, ResultError<WorkflowError>> {
        self.0.result().await
    }

    /// Stops it after the instances in progress; performed actions stay.
    ///
    /// # Errors
    /// When there is no such bulk, it has ended, or the runtime has stopped.
    pub async fn stop(&self, reason: &str) -> Result<(), RunError> {
        self.0.cancel(reason).await
    }
}

impl Runtime {
    /// Prepares one action on many instances: set which (by [id](Bulk::ids), or by a [filter](Bulk::matching)) and how fast,
    /// and then [count](Bulk::count) how many it would reach, or [start](Bulk::start) it. A bulk is a built-in workflow
    /// (`millrun.bulk`) that survives crashes: no instance is acted on twice. Lists and the catalogue do not show it.
    ///
    /// ```
    /// use millrun::operating::BulkAction;
    /// # use millrun::{Runtime, Signal, Workflow, WorkflowContext, WorkflowError};
    /// # const PAID: Signal<u64> = Signal::named("paid");
    /// # const ORDER: Workflow<(), u64> = Workflow::named("order");
    /// # async fn order(cx: WorkflowContext, (): ()) -> Result<u64, WorkflowError> {
    /// #     Ok(cx.receive(PAID).await?)
    /// # }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let runtime = Runtime::volatile().register(ORDER, order).start().await?;
    /// for id in ["order-1", "order-2", "order-3"] {
    ///     runtime.start(ORDER, id, ()).await?;
    /// }
    /// let cancel = BulkAction::Cancel { reason: "the shop has closed".into() };
    /// let bulk = runtime.bulk(cancel).ids(["order-1", "order-3", "order-9"]);
    /// assert_eq!(bulk.count().await?.reached_len, 2);
    /// let bulk = bulk.start("closing").await?;
    /// assert_eq!(bulk.result().await?.done_len, 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn bulk(&self, action: BulkAction) -> Bulk<'_> {
        Bulk {
            runtime: self,
            action,
            ids: Vec::new(),
            search: None,
            per_second: 100,
        }
    }

    /// A handle to the bulk of this name, without checking whether it exists.
    ///
    /// # Errors
    /// When the name is empty or too long.
    pub fn attach_bulk(&self, name: &str) -> Result<BulkHandle, InstanceIdError> {
        self.attach(BULK, &id_of(BULK.name(), name)).map(BulkHandle)
    }
}
