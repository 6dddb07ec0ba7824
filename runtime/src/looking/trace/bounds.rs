//! The limits for one page of a trace.

/// The limits for one page of a [trace](crate::Runtime::trace). A value out of its range counts as the nearest allowed one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceBounds {
    /// Links of one page, causes and effects together: 1 to 1,000. Default 100. The subscriptions of one record are never
    /// divided.
    pub links_len_max: usize,
    /// Events that are read for one page: 1 to 100,000. Default 10,000. A page of a run ends there, and operations that have
    /// not ended in these events are shown as [unknown](super::TraceOutcome::Unknown). The page of a record ends after the
    /// run whose history reaches it.
    pub events_len_max: usize,
    /// Runs whose histories are searched for one page, for a record or for the effects of a run's trimmed part: 1 to 1,000.
    /// Default 256.
    pub runs_len_max: usize,
    /// Records that are searched for the place of a run's publish, and, for one page, for those of its trimmed part: 1 to
    /// 100,000. Default 4,096. In the latter search each topic counts as one more.
    pub records_len_max: usize,
}

impl Default for TraceBounds {
    fn default() -> Self {
        Self {
            links_len_max: 100,
            events_len_max: 10_000,
            runs_len_max: 256,
            records_len_max: 4_096,
        }
    }
}

impl TraceBounds {
    pub(super) fn clamped(&self) -> Self {
        Self {
            links_len_max: self.links_len_max.clamp(1, 1_000),
            events_len_max: self.events_len_max.clamp(1, 100_000),
            runs_len_max: self.runs_len_max.clamp(1, 1_000),
            records_len_max: self.records_len_max.clamp(1, 100_000),
        }
    }
}
