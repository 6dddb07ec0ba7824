//! Workflow code, with its types erased.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::event::RunFailure;
use crate::handlers::Handlers;
use crate::program::{Program, Typed};
use crate::{Payload, Query, TypedError, Update, Workflow, WorkflowContext, WorkflowError};

type MakeProgram = dyn Fn() -> Box<dyn Program> + Send + Sync;

/// The code of one workflow, ready to be run by an [`Instance`](crate::Instance). A cheap clone.
#[derive(Clone)]
pub struct Implementation(Arc<Parts>);

#[derive(Clone)]
struct Parts {
    name: &'static str,
    program: Arc<MakeProgram>,
    handlers: Handlers,
}

impl Implementation {
    /// Binds code to a definition.
    pub fn new<I, O, E, F, Fut>(workflow: Workflow<I, O, E>, code: F) -> Self
    where
        I: DeserializeOwned + Send + 'static,
        O: Serialize + Send + 'static,
        E: TypedError,
        F: Fn(WorkflowContext, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
    {
        let code = Arc::new(code);
        let program =
            move || -> Box<dyn Program> { Box::new(Typed::<I, O, E, F, Fut>::new(Arc::clone(&code))) };
        Self(Arc::new(Parts {
            name: workflow.name(),
            program: Arc::new(program),
            handlers: Handlers::default(),
        }))
    }

    /// Answers a query from the run's [state](crate::State). The handler sees the state and
    /// nothing else; it must be quick, since the run waits meanwhile. A second handler for the
    /// same name replaces the first.
    #[must_use]
    pub fn query<S, Q, A, F>(mut self, query: Query<S, Q, A>, answer: F) -> Self
    where
        S: 'static,
        Q: DeserializeOwned,
        A: Serialize,
        F: Fn(&S, Q) -> A + Send + Sync + 'static,
    {
        Arc::make_mut(&mut self.0).handlers.add_query(query, answer);
        self
    }

    /// Performs an update of the run's [state](crate::State). `validate` may reject it, and then
    /// nothing is recorded; otherwise `change` is called, live and in each replay, so it must
    /// depend on its arguments alone. A second handler for the same name replaces the first.
    #[must_use]
    pub fn update<S, I, O, E, V, F>(mut self, update: Update<S, I, O, E>, validate: V, change: F) -> Self
    where
        S: 'static,
        I: DeserializeOwned,
        O: Serialize,
        E: TypedError,
        V: Fn(&S, &I) -> Result<(), E> + Send + Sync + 'static,
        F: Fn(&mut S, I) -> O + Send + Sync + 'static,
    {
        let handlers = &mut Arc::make_mut(&mut self.0).handlers;
        handlers.add_update(update, validate, change);
        self
    }

    pub(crate) fn handlers(&self) -> &Handlers {
        &self.0.handlers
    }

    /// The workflow's name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.0.name
    }

    /// Memory for a run of the code.
    pub(crate) fn program(&self) -> Box<dyn Program> {
        (self.0.program)()
    }

    /// Whether both are clones of one.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Implementation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Implementation").field(&self.0.name).finish()
    }
}

/// A failure that the code had no part in.
pub(crate) fn unreadable(message: String) -> RunFailure {
    let error = WorkflowError::failed(message.clone());
    let error = Payload::encode(&error).expect("a WorkflowError holds a string and a flag");
    RunFailure {
        error,
        message,
        is_cancelled: false,
    }
}
