//! Steps that can be undone.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use crate::{WorkflowContext, WorkflowError};

type Compensation = Box<
    dyn FnOnce(WorkflowContext) -> Pin<Box<dyn Future<Output = Result<(), WorkflowError>> + Send>> + Send,
>;

/// A stack of compensations; made by [`WorkflowContext::saga`](crate::WorkflowContext::saga).
///
/// It survives crashes like all of the code's state: a replay pushes the same compensations again. It ends with the code that
/// made it: a run that is terminated, [continues as new](crate::WorkflowContext::continue_as_new) or makes a
/// [checkpoint](crate::WorkflowContext::checkpoint) undoes nothing, and the code that continues must make a new stack from
/// the state that it is given.
///
/// A step may have taken effect although its call failed, by a timeout or a request to cancel. Where that matters,
/// [push](Self::push) before the step, with a compensation that does no harm if there is nothing to undo. If only the request
/// to cancel matters, it is enough to make the call [shielded](WorkflowContext::shielded). Undo after every error, also after
/// a request to cancel.
///
/// ```
/// # use millrun_workflow::{Activity, WorkflowContext, WorkflowError};
/// # const FLIGHT: Activity<(), u64> = Activity::named("book-flight");
/// # const HOTEL: Activity<(), u64> = Activity::named("book-hotel");
/// # const CANCEL_FLIGHT: Activity<u64, ()> = Activity::named("cancel-flight");
/// async fn trip(cx: WorkflowContext, _: ()) -> Result<u64, WorkflowError> {
///     let mut saga = cx.saga();
///     let shielded = cx.shielded();
///     let flight = shielded.call(FLIGHT, ()).await?;
///     saga.push(async move |cx| Ok(cx.call(CANCEL_FLIGHT, flight).await?));
///     match shielded.call(HOTEL, ()).await {
///         Ok(hotel) => Ok(hotel),
///         Err(error) => {
///             saga.compensate().await?;
///             Err(error.into())
///         }
///     }
/// }
/// ```
#[must_use = "compensations are only performed by compensate()"]
pub struct Saga {
    context: WorkflowContext,
    compensations: Vec<Compensation>,
}

impl fmt::Debug for Saga {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Saga").field("len", &self.len()).finish()
    }
}

/// Some compensations failed; the others were performed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SagaError {
    failures: Vec<WorkflowError>,
}

impl SagaError {
    /// The failures, in the order in which the compensations were tried.
    #[must_use]
    pub fn failures(&self) -> &[WorkflowError] {
        &self.failures
    }
}

impl fmt::Display for SagaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} compensations failed", self.failures.len())?;
        for (index, failure) in self.failures.iter().enumerate() {
            write!(f, "{} {failure}", if index == 0 { ":" } else { ";" })?;
        }
        Ok(())
    }
}

impl std::error::Error for SagaError {}

impl Saga {
    pub(crate) fn new(context: WorkflowContext) -> Self {
        Self {
            context,
            compensations: Vec::new(),
        }
    }

    /// Adds how to undo the step that was just done. The compensation's context is
    /// [shielded](crate::WorkflowContext::shielded): a request to cancel does not stop it.
    pub fn push<F, Fut>(&mut self, compensation: F)
    where
        F: FnOnce(WorkflowContext) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), WorkflowError>> + Send + 'static,
    {
        self.compensations
            .push(Box::new(move |context| Box::pin(compensation(context))));
    }

    /// Undoes everything, the last step first, one at a time. If one compensation fails, the others are still performed.
    ///
    /// # Errors
    /// With all failures.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the present compensation and all that are left. A request to cancel does not.
    pub async fn compensate(self) -> Result<(), SagaError> {
        let mut failures = Vec::new();
        for compensation in self.compensations.into_iter().rev() {
            if let Err(failure) = compensation(self.context.clone()).await {
                failures.push(failure);
            }
        }
        if failures.is_empty() {
            Ok(())
        } else {
            Err(SagaError { failures })
        }
    }

    /// Drops all compensations: everything is done.
    pub fn complete(self) {
        drop(self);
    }

    /// The number of steps that can be undone.
    #[must_use]
    pub fn len(&self) -> usize {
        self.compensations.len()
    }

    /// Whether there is nothing to undo.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.compensations.is_empty()
    }
}
