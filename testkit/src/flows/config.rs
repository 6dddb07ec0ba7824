//! How much a recorder keeps.

/// The bounds of a [`FlowRecorder`](crate::FlowRecorder).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FlowConfig {
    /// The most steps that are kept: each delivery, wait, refusal, attempt and end of an envelope is one. When there are
    /// more, whole envelopes are forgotten, the oldest first; if a single envelope has more, its further steps are only
    /// counted. [`FlowRecorder::forgotten`](crate::FlowRecorder::forgotten) and each failing assertion report how many were
    /// forgotten. 100,000 by default.
    pub steps_max: usize,
}

impl FlowConfig {
    /// These bounds, with another number of steps.
    #[must_use]
    pub const fn steps_max(mut self, steps_max: usize) -> Self {
        self.steps_max = steps_max;
        self
    }
}

impl Default for FlowConfig {
    fn default() -> Self {
        Self { steps_max: 100_000 }
    }
}
