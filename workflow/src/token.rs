//! Tokens: names of promises, for the code outside that keeps or breaks them.

use std::fmt;
use std::str::FromStr;

use millrun_core::RunId;
use serde::{Deserialize, Serialize};

use crate::OperationId;

/// Names a [promise](crate::Promise). As text it is the run and the operation, and can be put into a mail, a link or a form.
///
/// ```
/// use millrun_workflow::PromiseToken;
///
/// let text = "00070000000000000000000000000001-3";
/// let token: PromiseToken = text.parse().unwrap();
/// assert_eq!(token.to_string(), text);
/// assert!("neither".parse::<PromiseToken>().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PromiseToken {
    run: RunId,
    operation: OperationId,
}

impl PromiseToken {
    pub(crate) fn new(run: RunId, operation: OperationId) -> Self {
        Self { run, operation }
    }

    /// The run that made the promise.
    #[must_use]
    pub fn run(&self) -> RunId {
        self.run
    }

    /// The number of the promise within its run.
    #[must_use]
    pub fn operation(&self) -> OperationId {
        self.operation
    }
}

impl fmt::Display for PromiseToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.run, self.operation)
    }
}

/// A text that names no promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is no token of a promise")]
pub struct PromiseTokenError;

impl FromStr for PromiseToken {
    type Err = PromiseTokenError;

    fn from_str(text: &str) -> Result<Self, PromiseTokenError> {
        let (run, operation) = text.split_once('-').ok_or(PromiseTokenError)?;
        let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if run.len() != 32 || !is_digits(run) || !is_digits(operation) {
            return Err(PromiseTokenError);
        }
        let bits = u128::from_str_radix(run, 16).map_err(|_| PromiseTokenError)?;
        let run = RunId::from_bits(bits).ok_or(PromiseTokenError)?;
        let operation = operation.parse().map_err(|_| PromiseTokenError)?;
        Ok(Self::new(run, OperationId::new(operation)))
    }
}

impl TryFrom<String> for PromiseToken {
    type Error = PromiseTokenError;

    fn try_from(text: String) -> Result<Self, PromiseTokenError> {
        text.parse()
    }
}

impl From<PromiseToken> for String {
    fn from(token: PromiseToken) -> Self {
        token.to_string()
    }
}
