//! How much a preflight tries, and how.

use std::time::Duration;

use super::error::PreflightError;

/// How much a [preflight](crate::RuntimeBuilder::preflight) tries, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PreflightConfig {
    /// Threads that replay. Default as many as the machine has cores; 1 to 256.
    pub threads: usize,
    /// How many finished runs that are retained are tried as well, those that ended last first. Default 0.
    pub finished_len_max: u64,
    /// Whether another value that the code hands to an activity, or ends with, is a difference. Default `false`: it is counted.
    pub is_strict: bool,
    /// How long the replay of one run may take; what takes longer counts as one that does not end. Default 10 s.
    pub run_time_max: Duration,
    /// How many replays that do not end are left behind, each with a thread that goes on until the process ends; with one more the
    /// preflight gives up. Default 8; up to 256.
    pub endless_len_max: usize,
    /// How many findings are told: differences that are not the same. The runs of further ones are counted. Default 1,000.
    pub findings_len_max: usize,
}

impl Default for PreflightConfig {
    fn default() -> Self {
        Self {
            threads: std::thread::available_parallelism()
                .map_or(1, std::num::NonZero::get)
                .min(256),
            finished_len_max: 0,
            is_strict: false,
            run_time_max: Duration::from_secs(10),
            endless_len_max: 8,
            findings_len_max: 1_000,
        }
    }
}

impl PreflightConfig {
    pub(super) fn checked(self) -> Result<Self, PreflightError> {
        let wrong = |field, problem| Err(PreflightError::Config { field, problem });
        if !(1..=256).contains(&self.threads) {
            return wrong("threads", "must be 1 to 256");
        }
        if self.endless_len_max > 256 {
            return wrong("endless_len_max", "must be at most 256");
        }
        if self.run_time_max.is_zero() {
            return wrong("run_time_max", "must be more than nothing");
        }
        Ok(self)
    }
}
