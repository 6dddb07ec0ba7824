//! Values that replays encoded differently from the recorded ones: counted, and reported once per workflow and minute.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use millrun_core::Timestamp;

/// The shortest time between two reports about a workflow.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// Counts of values that replays encoded differently from the recorded ones.
#[derive(Debug, Default)]
pub(crate) struct ChangedValues {
    len: AtomicU64,
    /// When each workflow was last reported; at most one entry for each registered workflow.
    told_at: Mutex<BTreeMap<&'static str, Timestamp>>,
}

impl ChangedValues {
    /// Their number since the runtime started.
    pub(crate) fn len(&self) -> u64 {
        self.len.load(Ordering::Relaxed)
    }

    /// Counts some for a workflow. Returns whether to report them now.
    pub(crate) fn add(&self, workflow: &'static str, len: u64, now: Timestamp) -> bool {
        self.len.fetch_add(len, Ordering::Relaxed);
        let mut told_at = self.told_at.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = told_at
            .get(workflow)
            .is_none_or(|told_at| now.saturating_since(*told_at) >= WARN_EVERY);
        if is_due {
            told_at.insert(workflow, now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_workflow_is_reported_once_a_minute_and_every_value_is_counted() {
        let changed = ChangedValues::default();
        let told = [
            ("a", 0),
            ("a", 59),
            ("b", 59),
            ("a", 60),
            ("a", 61),
            ("b", 118),
            ("b", 119),
        ]
        .map(|(workflow, second): (&'static str, u64)| {
            changed.add(workflow, 2, Timestamp::from_micros(second * 1_000_000))
        });
        assert_eq!(told, [true, false, true, true, false, false, true]);
        assert_eq!(changed.len(), 14);
    }
}
