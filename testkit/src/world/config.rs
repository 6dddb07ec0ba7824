//! The settings of a world.

use std::time::Duration;

use millrun::Timestamp;

use crate::sim::SimConfig;

/// The seed and the bounds of a [`World`](crate::World).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorldConfig {
    /// Decides every choice of the world. The same seed gives the same steps.
    pub seed: u64,
    /// The time at which the world begins. 2024-01-01T00:00:00Z by default.
    pub starts_at: Timestamp,
    /// How long one turn or poll takes at most; each draws its own. Zero by default: time stands still while anything can
    /// run.
    pub step_time_max: Duration,
    /// The most time that a commit takes; each draws its own. Zero by default: it takes one turn of the disk, before or after
    /// whatever else is ready.
    pub commit_time_max: Duration,
    /// How many steps (turns and polls) one call makes before it gives up and the test fails, so that an endless loop does
    /// not hang. 1,000,000 by default.
    pub steps_max: u64,
    /// How many attempts of activities are recorded. A further attempt is not made, and the test fails. 1,000,000 by default.
    pub attempts_len_max: usize,
    /// How many faults [`crash_everywhere`](crate::World::crash_everywhere) and its like try at most. A scenario that has more
    /// points is refused. 100,000 by default.
    pub fault_points_max: usize,
}

impl WorldConfig {
    /// The defaults, with this seed.
    #[must_use]
    pub const fn seeded(seed: u64) -> Self {
        let sim = SimConfig::seeded(seed);
        Self {
            seed,
            starts_at: sim.starts_at,
            step_time_max: sim.step_time_max,
            commit_time_max: Duration::ZERO,
            steps_max: sim.steps_max,
            attempts_len_max: 1_000_000,
            fault_points_max: 100_000,
        }
    }

    pub(super) fn sim(&self) -> SimConfig {
        let mut sim = SimConfig::seeded(self.seed);
        sim.starts_at = self.starts_at;
        sim.step_time_max = self.step_time_max;
        sim.steps_max = self.steps_max;
        sim
    }
}

/// The defaults, with the seed 1.
impl Default for WorldConfig {
    fn default() -> Self {
        Self::seeded(1)
    }
}
