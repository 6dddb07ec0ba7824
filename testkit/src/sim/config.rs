//! The settings of a simulated world.

use std::time::Duration;

use millrun_core::Timestamp;

/// The seed and the limits of a [`SimHost`](crate::SimHost).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SimConfig {
    /// Decides every choice. The same seed gives the same steps.
    pub seed: u64,
    /// The time at which the world begins. 2024-01-01T00:00:00Z by default.
    pub starts_at: Timestamp,
    /// The most time that one turn or poll takes; each draws its own. Zero by default: time stands still while anything can
    /// run, and every deadline is met to the microsecond.
    pub step_time_max: Duration,
    /// The largest budget of a turn; each draws its own, from 1. 64 by default.
    pub turn_budget_max: usize,
    /// How many steps one call of a `run_…` method or of [`SimHost::block_on`](crate::SimHost::block_on) makes before it
    /// gives up, so that a world that is never idle ends. 1,000,000 by default.
    pub steps_max: u64,
    /// How many of the latest steps the trace keeps. 10,000 by default. Its digest covers all.
    pub trace_len_max: usize,
}

impl SimConfig {
    /// The defaults, with this seed.
    #[must_use]
    pub const fn seeded(seed: u64) -> Self {
        Self {
            seed,
            starts_at: Timestamp::from_micros(1_704_067_200_000_000),
            step_time_max: Duration::ZERO,
            turn_budget_max: 64,
            steps_max: 1_000_000,
            trace_len_max: 10_000,
        }
    }
}
