//! How a command ended, and the exit code that says so.

use std::process::ExitCode;

/// How a command ended, if it did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Outcome {
    /// Everything was done.
    Complete,
    /// Everything was done that could be: some input could not be read, and was named; or a result is not there yet.
    Partial,
    /// `demo --crash` found that something was lost, or the run whose result was asked for has not completed.
    Lost,
    /// Ctrl-C came first. The same command goes on.
    Interrupted,
}

impl Outcome {
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Complete => 0,
            Self::Lost => 1,
            Self::Partial => 3,
            Self::Interrupted => 130,
        }
    }
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        Self::from(outcome.code())
    }
}
