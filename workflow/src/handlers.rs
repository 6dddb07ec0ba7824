//! Handlers of queries and updates, and declared signals, with their types erased.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use millrun_core::panic_message;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::context::Cell;
use crate::expected::{Expected, WrongType, decoded};
use crate::{Payload, PayloadError, Query, Signal, TypedError, Update};

pub(crate) type AnyState = dyn Any + Send;
type AnswerFn = dyn Fn(&mut AnyState, &Payload) -> Result<Payload, HandlerError> + Send + Sync;
type ValidateFn = dyn Fn(&mut AnyState, &Payload) -> Result<(), HandlerError> + Send + Sync;

/// Why a query gave no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unanswered {
    /// The workflow has no query of this name.
    #[error("the workflow has no query named {name:?}")]
    Unknown {
        /// The name.
        name: String,
    },
    /// The run has made no state, or one of another type.
    #[error("the run has no state of the query's type")]
    NoState,
    /// The question is not of the query's type.
    #[error(transparent)]
    WrongType(WrongType),
    /// The answer did not encode.
    #[error("the answer to the query could not be encoded")]
    Payload(#[from] PayloadError),
    /// The handler panicked, with this message.
    #[error("the query panicked: {0}")]
    Panicked(String),
    /// The code does not run, so there is no state.
    #[error("the run is parked: {0}")]
    Parked(String),
}

/// Why a handler did nothing.
#[derive(Debug)]
pub(crate) enum HandlerError {
    Unknown,
    NoState,
    WrongType(WrongType),
    Payload(PayloadError),
    Panicked(String),
    Rejected {
        error: Payload,
        message: String,
    },
    /// The request cannot be performed, or what is stored cannot be read.
    Undoable(String),
}

impl HandlerError {
    /// Why a query of this name has no answer.
    pub(crate) fn unanswered(self, name: &str) -> Unanswered {
        match self {
            Self::Unknown => Unanswered::Unknown { name: name.into() },
            Self::NoState | Self::Rejected { .. } | Self::Undoable(_) => Unanswered::NoState,
            Self::WrongType(error) => Unanswered::WrongType(error),
            Self::Payload(error) => Unanswered::Payload(error),
            Self::Panicked(message) => Unanswered::Panicked(message),
        }
    }
}

impl From<PayloadError> for HandlerError {
    fn from(error: PayloadError) -> Self {
        Self::Payload(error)
    }
}

impl From<WrongType> for HandlerError {
    fn from(error: WrongType) -> Self {
        Self::WrongType(error)
    }
}

/// The queries and updates that a workflow answers, and the signals that it declares.
#[derive(Clone, Default)]
pub(crate) struct Handlers {
    queries: BTreeMap<&'static str, Arc<AnswerFn>>,
    updates: BTreeMap<&'static str, UpdateHandler>,
    signals: BTreeMap<&'static str, Expected>,
}

#[derive(Clone)]
struct UpdateHandler {
    validate: Arc<ValidateFn>,
    change: Arc<AnswerFn>,
}

impl fmt::Debug for Handlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handlers")
            .field("queries", &self.queries.keys())
            .field("updates", &self.updates.keys())
            .field("signals", &self.signals)
            .finish()
    }
}

pub(crate) fn typed<S: 'static>(state: &mut AnyState) -> Result<&mut S, HandlerError> {
    state.downcast_mut().ok_or(HandlerError::NoState)
}

impl Handlers {
    pub(crate) fn add_query<S, Q, A, F>(&mut self, query: Query<S, Q, A>, answer: F)
    where
        S: 'static,
        Q: DeserializeOwned,
        A: Serialize,
        F: Fn(&S, Q) -> A + Send + Sync + 'static,
    {
        self.add_query_of(query, |state: &S| state, answer);
    }

    /// As [`add_query`](Self::add_query), for a query of a part of the state, which `within` returns.
    pub(crate) fn add_query_of<T, S, Q, A, F>(
        &mut self,
        query: Query<S, Q, A>,
        within: fn(&T) -> &S,
        answer: F,
    ) where
        T: 'static,
        S: 'static,
        Q: DeserializeOwned,
        A: Serialize,
        F: Fn(&S, Q) -> A + Send + Sync + 'static,
    {
        let name = query.name();
        let answer = move |state: &mut AnyState, question: &Payload| {
            let state: &T = typed(state)?;
            let question = decoded(question, || format!("the query {name:?}"))?;
            Ok(Payload::encode(&answer(within(state), question))?)
        };
        self.queries.insert(name, Arc::new(answer));
    }

    pub(crate) fn add_update<S, I, O, E, V, F>(&mut self, update: Update<S, I, O, E>, validate: V, change: F)
    where
        S: 'static,
        I: DeserializeOwned,
        O: Serialize,
        E: TypedError,
        V: Fn(&S, &I) -> Result<(), E> + Send + Sync + 'static,
        F: Fn(&mut S, I) -> O + Send + Sync + 'static,
    {
        let name = update.name();
        let validate = move |state: &mut AnyState, input: &Payload| {
            let state: &S = typed(state)?;
            let input = decoded(input, || format!("the update {name:?}"))?;
            validate(state, &input).map_err(|error| match Payload::encode(&error) {
                Ok(encoded) => HandlerError::Rejected {
                    error: encoded,
                    message: error.to_string(),
                },
                Err(error) => HandlerError::Payload(error),
            })
        };
        let change = move |state: &mut AnyState, input: &Payload| {
            Ok(Payload::encode(&change(typed(state)?, input.decode()?))?)
        };
        let handler = UpdateHandler {
            validate: Arc::new(validate),
            change: Arc::new(change),
        };
        self.updates.insert(name, handler);
    }

    pub(crate) fn add_signal<T: DeserializeOwned>(&mut self, signal: Signal<T>) {
        self.signals.insert(signal.name(), Expected::of::<T>());
    }

    /// The declared signals, in order, with the types of their values.
    pub(crate) fn signals(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.signals
            .iter()
            .map(|(name, expected)| (*name, expected.name()))
    }

    /// Checks that the value of a declared signal has the declared type; other signals may have any value.
    pub(crate) fn check_signal(&self, name: &str, value: &Payload) -> Result<(), WrongType> {
        match self.signals.get(name) {
            Some(expected) => expected.check(value, || format!("the signal {name:?}")),
            None => Ok(()),
        }
    }

    /// The names of the queries, in order.
    pub(crate) fn queries(&self) -> impl Iterator<Item = &'static str> {
        self.queries.keys().copied()
    }

    /// The names of the updates, in order.
    pub(crate) fn updates(&self) -> impl Iterator<Item = &'static str> {
        self.updates.keys().copied()
    }

    pub(crate) fn query(
        &self,
        cell: Option<&Cell>,
        name: &str,
        question: &Payload,
    ) -> Result<Payload, HandlerError> {
        let answer = self.queries.get(name).ok_or(HandlerError::Unknown)?;
        guarded(cell, |state| answer(state, question))
    }

    pub(crate) fn validate(
        &self,
        cell: Option<&Cell>,
        name: &str,
        input: &Payload,
    ) -> Result<(), HandlerError> {
        let update = self.updates.get(name).ok_or(HandlerError::Unknown)?;
        guarded(cell, |state| (update.validate)(state, input))
    }

    pub(crate) fn change(
        &self,
        cell: Option<&Cell>,
        name: &str,
        input: &Payload,
    ) -> Result<Payload, HandlerError> {
        let update = self.updates.get(name).ok_or(HandlerError::Unknown)?;
        guarded(cell, |state| (update.change)(state, input))
    }
}

/// Runs a user's handler on the state, and catches its panic.
pub(crate) fn guarded<R>(
    cell: Option<&Cell>,
    handler: impl FnOnce(&mut AnyState) -> Result<R, HandlerError>,
) -> Result<R, HandlerError> {
    let cell = cell.ok_or(HandlerError::NoState)?;
    catch_unwind(AssertUnwindSafe(|| cell.with(handler)))
        .unwrap_or_else(|panic| Err(HandlerError::Panicked(panic_message(panic))))
}
