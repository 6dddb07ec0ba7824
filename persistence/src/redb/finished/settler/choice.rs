//! Chooses which sorted runs are merged next.
//!
//! ```text
//!   oldest ─► 2  2  1  1  1  1  1  1  1  1  0  0 ◄─ newest, by level
//!                   └─ eight of a level ─┘           the newest level that has enough is merged first
//! ```
//!
//! Invariants: they are neighbours of one level; the result is small enough that the dropped runs in it do not stay on disk
//! for too long.

use std::sync::Arc;

use crate::redb::finished::finished_runs::{FinishedRuns, Segments};
use crate::redb::finished::segment::Segment;
use crate::wire::settled::SPAN_MAX;

/// How many sorted runs of one level are merged into one of the next; half as many if no more fit.
const FAN: usize = 8;
/// The most that are merged at once, when merging has fallen behind.
const INPUTS_MAX: usize = 64;

/// The sorted runs to be merged next, if there are any.
pub(super) fn mergeable(closed: &FinishedRuns, len_min: usize) -> Option<Vec<Arc<Segment>>> {
    let segments: &Segments = &closed.settled.segments;
    // Larger ones would keep the dropped runs in them on disk for too long.
    let pairs_max = (closed.len_max() / 2).max(len_min.saturating_mul(2 * FAN)) as u64;
    let mut end = segments.len();
    while end > 0 {
        let level = segments[end - 1].entry.level;
        let same = segments[..end]
            .iter()
            .rev()
            .take_while(|segment| segment.entry.level == level);
        let start = end - same.count();
        let inputs = &segments[start..end.min(start + INPUTS_MAX)];
        // After a few that have reached the largest size there may be enough small ones.
        let windows = (0..inputs.len()).map(|from| &inputs[from..]);
        let mut windows = windows.take_while(|window| window.len() >= FAN);
        if let Some(fitting) = windows.find_map(|window| {
            let fitting = fitting(window, pairs_max);
            (fitting >= FAN / 2).then(|| window[..fitting].to_vec())
        }) {
            return Some(fitting);
        }
        end = start;
    }
    None
}

/// How many of these, from the first on, fit into one. When merging has fallen behind, each of them is larger than usual.
fn fitting(inputs: &[Arc<Segment>], pairs_max: u64) -> usize {
    let base = inputs.first().map_or(0, |first| first.entry.base);
    let mut pairs = 0;
    let fitting = inputs.iter().take_while(|segment| {
        pairs += segment.entry.pairs;
        pairs <= pairs_max && segment.entry.end - base <= SPAN_MAX
    });
    fitting.count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Retention;
    use crate::redb::finished::finished_runs::Settled;

    /// How many sorted runs of one level, with `sizes` pairs each, are merged if 100,000 runs are
    /// retained.
    fn merged(sizes: &[u64]) -> Option<usize> {
        merged_from(sizes).map(|(_, count)| count)
    }

    /// The same, with the index of the first.
    fn merged_from(sizes: &[u64]) -> Option<(u64, usize)> {
        let segments = (0..).zip(sizes).map(|(number, pairs)| {
            let base = number * 1_000_000;
            let mut segment = Segment::new(number, base, base + pairs / 2, 0, 0);
            segment.entry.pairs = *pairs;
            Arc::new(segment)
        });
        let retention = Retention {
            len_max: 100_000,
            ..Retention::default()
        };
        let settled = Settled {
            segments: Arc::new(segments.collect()),
            ..Settled::default()
        };
        let closed = FinishedRuns::new(retention, settled, 0);
        mergeable(&closed, 2_048).map(|inputs| (inputs[0].entry.id, inputs.len()))
    }

    #[test]
    fn as_many_are_merged_as_fit() {
        assert_eq!(merged(&[4_096; 7]), None);
        assert_eq!(merged(&[4_096; 8]), Some(8));
        assert_eq!(merged(&[4_096; 20]), Some(12));
        // Each grew larger while the last merge was running.
        assert_eq!(merged(&[8_000; 8]), Some(6));
        assert_eq!(merged(&[8_000; 80]), Some(6));
        // These have reached the largest size.
        assert_eq!(merged(&[20_000; 8]), None);
        assert_eq!(merged(&[60_000; 8]), None);
    }

    /// A rebuilt index begins with one large sorted run.
    #[test]
    fn what_is_too_large_to_be_merged_keeps_no_small_ones_from_it() {
        let large_first = |small: usize| {
            let sizes: Vec<_> = [60_000].into_iter().chain(vec![4_096; small]).collect();
            merged(&sizes)
        };
        assert_eq!(large_first(7), None);
        assert_eq!(large_first(8), Some(8));
        assert_eq!(
            merged_from(&[
                60_000, 60_000, 4_096, 4_096, 4_096, 4_096, 4_096, 4_096, 4_096, 4_096
            ]),
            Some((2, 8))
        );
        assert_eq!(
            merged_from(&[
                40_000, 40_000, 8_000, 8_000, 8_000, 8_000, 8_000, 8_000, 8_000, 8_000
            ]),
            Some((2, 6))
        );
    }
}
