//! How much a preflight tries, and how.

use std::time::Duration;

use super::error::PreflightError;

/// The extent of a [preflight](crate::RuntimeBuilder::preflight), and its limits.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PreflightConfig {
    /// The number of threads that replay. By default the number of the machine's cores; 1 to 256.
    pub threads: usize,
    /// How many retained finished runs are tried as well, the latest ended first. Default 0.
    pub finished_len_max: u64,
    /// Whether a different value that the code passes to an activity, or ends with, is a difference. Default `false`: it is
    /// counted.
    pub is_strict: bool,
    /// How long the replay of one run may take; a longer one counts as endless. Default 10 s.
    pub run_time_max: Duration,
    /// How many endless replays are left behind, each on a thread that runs until the process ends; with one more the
    /// preflight gives up. Default 8; up to 256.
    pub endless_len_max: usize,
    /// How many distinct findings are reported. The runs of further ones are counted. Default 1,000.
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
