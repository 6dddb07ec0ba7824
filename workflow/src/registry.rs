//! Workflow code, with its types erased.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::event::RunFailure;
use crate::handlers::Handlers;
use crate::{Payload, PayloadError, Query, TypedError, Update, Workflow, WorkflowContext, WorkflowError};

/// The future of a run's code.
pub(crate) type Code = Pin<Box<dyn Future<Output = Result<Payload, RunFailure>> + Send>>;

type StartCode = dyn Fn(WorkflowContext, Payload) -> Code + Send + Sync;

/// The code of one workflow, ready to be run by an [`Instance`](crate::Instance). A cheap clone.
#[derive(Clone)]
pub struct Implementation(Arc<Parts>);

#[derive(Clone)]
struct Parts {
    name: &'static str,
    start: Arc<StartCode>,
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
        let start = move |cx: WorkflowContext, input: Payload| -> Code {
            let code = Arc::clone(&code);
            Box::pin(async move {
                let input = input.decode().map_err(|error| undecodable("input", &error))?;
                match code(cx, input).await {
                    Ok(value) => Payload::encode(&value).map_err(|error| undecodable("result", &error)),
                    Err(error) => Err(RunFailure {
                        message: error.to_string(),
                        is_cancelled: error.is_cancelled(),
                        error: Payload::encode(&error).map_err(|error| undecodable("error", &error))?,
                    }),
                }
            })
        };
        Self(Arc::new(Parts {
            name: workflow.name(),
            start: Arc::new(start),
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

    pub(crate) fn start(&self, cx: WorkflowContext, input: Payload) -> Code {
        (self.0.start)(cx, input)
    }
}

impl fmt::Debug for Implementation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Implementation").field(&self.0.name).finish()
    }
}

/// A value did not encode or decode.
fn undecodable(what: &str, error: &PayloadError) -> RunFailure {
    unreadable(format!("the run's {what} is not of the workflow's type: {error}"))
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
