//! How much one page of a trace reads and tells at most.

/// How much one page of a [trace](crate::Runtime::trace) reads and tells at most. What is out of its range counts as the
/// nearest that is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceBounds {
    /// Links of one page, causes and effects together: 1 to 1,000. Default 100. The subscriptions of one record are told
    /// together.
    pub links_len_max: usize,
    /// Events that are read for one page: 1 to 100,000. Default 10,000. A page of a run ends there, and what has not ended
    /// in them is told as [not looked for](super::TraceOutcome::Unknown). The page of a record ends behind the run whose
    /// history reaches it.
    pub events_len_max: usize,
    /// Runs whose histories are looked through for one record, or for what the trimmed part of a run has led to, for one page: 1 to
    /// 1,000. Default 256.
    pub runs_len_max: usize,
    /// Records that are looked through for the place of one that a run has published, and for one page for those that its
    /// trimmed part has: 1 to 100,000. Default 4,096. There each topic counts as one more.
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
