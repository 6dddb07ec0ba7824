//! Steps that are done inside the run's own turn.

use std::panic::{AssertUnwindSafe, catch_unwind};

use millrun_core::panic_message;
use serde::{Deserialize, Serialize};

use crate::{CallError, TypedError};

/// How often work is tried whose error says that it may help.
const ATTEMPTS_MAX: u32 = 3;

/// How a local step ended, as it is recorded.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum LocalEnd<T, E> {
    Value(T),
    Failed(E),
    Panicked(String),
}

impl<T, E> LocalEnd<T, E> {
    pub(super) fn into_result(self) -> Result<T, CallError<E>> {
        match self {
            Self::Value(value) => Ok(value),
            Self::Failed(error) => Err(CallError::Failed(error)),
            Self::Panicked(message) => Err(CallError::Panicked(message)),
        }
    }
}

/// Does the work, again if that may help.
pub(super) fn attempts<T, E: TypedError>(mut work: impl FnMut() -> Result<T, E>) -> LocalEnd<T, E> {
    let mut attempt = 1;
    loop {
        match catch_unwind(AssertUnwindSafe(&mut work)) {
            Ok(Ok(value)) => return LocalEnd::Value(value),
            Ok(Err(error)) if attempt >= ATTEMPTS_MAX || !error.is_retryable() => {
                return LocalEnd::Failed(error);
            }
            Ok(Err(_)) => attempt += 1,
            Err(panic) => return LocalEnd::Panicked(panic_message(panic)),
        }
    }
}
