//! The code of a runtime: one `register` for workflows and activities.

use std::future::Future;

use millrun_workflow::{Activity, AnsweringWorkflow, Implementation, TypedError, Workflow, WorkflowContext};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::activity::{ActivityContext, ActivityImplementation};

/// Code bound to a definition.
#[derive(Clone, Debug)]
pub struct Registration(pub(crate) Registered);

#[derive(Clone, Debug)]
pub(crate) enum Registered {
    Workflow(Implementation),
    Activity(ActivityImplementation),
}

/// A definition that code of type `F` can implement: an [`Activity`], a [`Workflow`], or an [`AnsweringWorkflow`].
///
/// `Marker` only separates the implementations; it is inferred.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no workflow and no activity that this code could be bound to",
    note = "a workflow is an `async fn(WorkflowContext, I) -> Result<O, E>`, an activity an `async fn(ActivityContext, I) -> Result<O, E>`, with the types of the definition",
    note = "its future must be `Send`, and what the closure of an activity captures must be `Clone + Send + Sync`: put it into an `Arc`"
)]
pub trait Definition<F, Marker> {
    /// Binds the code.
    fn bind(self, code: F) -> Registration;
}

/// Marks the implementation for workflows.
#[derive(Debug)]
pub struct OfWorkflow<Fut>(std::marker::PhantomData<Fut>);

/// Marks the implementation for activities.
#[derive(Debug)]
pub struct OfActivity<Fut>(std::marker::PhantomData<Fut>);

impl<I, O, E, F, Fut> Definition<F, OfWorkflow<Fut>> for Workflow<I, O, E>
where
    I: DeserializeOwned + Send + 'static,
    O: Serialize + Send + 'static,
    E: TypedError,
    F: Fn(WorkflowContext, I) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<O, E>> + Send + 'static,
{
    fn bind(self, code: F) -> Registration {
        Registration(Registered::Workflow(Implementation::new(self, code)))
    }
}

impl<I, O, E, F, Fut> Definition<F, OfWorkflow<Fut>> for AnsweringWorkflow<I, O, E>
where
    I: DeserializeOwned + Send + 'static,
    O: Serialize + Send + 'static,
    E: TypedError,
    F: Fn(WorkflowContext, I) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<O, E>> + Send + 'static,
{
    fn bind(self, code: F) -> Registration {
        Registration(Registered::Workflow(self.bind(code)))
    }
}

impl<I, O, E, F, Fut> Definition<F, OfActivity<Fut>> for Activity<I, O, E>
where
    I: DeserializeOwned + Send + 'static,
    O: Serialize + Send + 'static,
    E: TypedError,
    F: FnOnce(ActivityContext, I) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<O, E>> + Send + 'static,
{
    fn bind(self, code: F) -> Registration {
        Registration(Registered::Activity(ActivityImplementation::new(self, code)))
    }
}
