//! Durations of runs, attempts, waits in task queues and commits: histograms with fixed buckets, filled from the first call
//! of [`Runtime::durations`](crate::Runtime::durations) on.
//!
//! ```text
//!   shard: runs, attempts, commits ─┐ times that are at hand
//!   pool:  waits in its queue ──────┴──► row of the name ──► Runtime::durations
//! ```
//!
//! Invariants: no clock is read for a duration. A histogram only grows. Rows are never removed, and there are at most
//! [`duration_names_max`](crate::RuntimeConfig::duration_names_max) rows of a kind, and one for all other names.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How many buckets have an upper bound.
const BOUNDS_LEN: usize = 23;

/// Durations since the first call of [`Runtime::durations`](crate::Runtime::durations).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Durations {
    /// By workflow: from the beginning of a run to its end. Continuing as new is an end.
    pub runs: Vec<NamedHistogram>,
    /// By activity: from when an attempt was due (its call, or the end of the pause after a failed attempt) until its report
    /// is recorded, including its wait for a pool.
    pub attempts: Vec<NamedHistogram>,
    /// By task queue: from when an attempt enters the queue's memory until a pool takes it, to the millisecond, like the
    /// times of envelopes. The time before, in histories, is not included.
    pub waits: Vec<NamedHistogram>,
    /// From when a shard has queued a sweep at the journal until the shard knows that it is durable.
    pub commits: Histogram,
}

/// The durations under one name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NamedHistogram {
    /// The name; empty for all names together beyond [`duration_names_max`](crate::RuntimeConfig::duration_names_max).
    pub name: String,
    /// How long they have taken.
    pub histogram: Histogram,
}

/// A histogram of durations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Histogram {
    /// For each [bound](Self::BOUNDS), how many durations were no longer than it, and longer than the one before; in the last
    /// place, how many were longer than all bounds.
    pub counts: [u64; BOUNDS_LEN + 1],
    /// The sum of all durations.
    pub sum: Duration,
}

impl Histogram {
    /// The upper bounds of the buckets: 0.1 ms to a week.
    pub const BOUNDS: [Duration; BOUNDS_LEN] = [
        Duration::from_micros(100),
        Duration::from_micros(250),
        Duration::from_micros(500),
        Duration::from_millis(1),
        Duration::from_micros(2_500),
        Duration::from_millis(5),
        Duration::from_millis(10),
        Duration::from_millis(25),
        Duration::from_millis(50),
        Duration::from_millis(100),
        Duration::from_millis(250),
        Duration::from_millis(500),
        Duration::from_secs(1),
        Duration::from_millis(2_500),
        Duration::from_secs(5),
        Duration::from_secs(10),
        Duration::from_secs(30),
        Duration::from_secs(60),
        Duration::from_secs(300),
        Duration::from_secs(1_800),
        Duration::from_secs(7_200),
        Duration::from_secs(86_400),
        Duration::from_secs(604_800),
    ];

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.counts
            .iter()
            .fold(0, |len, count| len.saturating_add(*count))
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds the durations of another histogram. Fields that would overflow stay at their maximum.
    pub fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count = count.saturating_add(more);
        }
        self.sum = self.sum.saturating_add(other.sum);
    }

    /// The durations that were recorded after `earlier`, a histogram of the same name read before this one.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut since = Self::default();
        for ((count, now), before) in since.counts.iter_mut().zip(self.counts).zip(earlier.counts) {
            *count = now.saturating_sub(before);
        }
        since.sum = self.sum.saturating_sub(earlier.sum);
        since
    }

    /// The duration that a share between 0 and 1 of them has not exceeded, estimated: the durations of a bucket count as
    /// evenly spread, and those beyond all bounds as the last bound. A share outside of 0 to 1 counts as the nearer of the
    /// two. `None` if there are no durations.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let len = self.len();
        if len == 0 {
            return None;
        }
        let wanted = share.clamp(0.0, 1.0) * as_float(len);
        let (mut before, mut lower) = (0.0, Duration::ZERO);
        for (count, upper) in self.counts.into_iter().zip(Self::BOUNDS) {
            let count = as_float(count);
            if count > 0.0 && before + count >= wanted {
                let part = ((wanted - before) / count).clamp(0.0, 1.0);
                return Some(lower + (upper - lower).mul_f64(part));
            }
            before += count;
            lower = upper;
        }
        Some(lower)
    }

    /// The bucket of a duration in [`counts`](Self::counts).
    fn place_of(took: Duration) -> usize {
        Self::BOUNDS.partition_point(|bound| *bound < took)
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a share of 2^53 things need not be exact"
)]
fn as_float(count: u64) -> f64 {
    count as f64
}

/// A histogram that is being filled.
#[derive(Debug, Default)]
pub(crate) struct DurationTally {
    counts: [AtomicU64; BOUNDS_LEN + 1],
    sum_us: AtomicU64,
}

impl DurationTally {
    /// Counts one duration.
    pub(crate) fn record(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.counts[Histogram::place_of(took)].fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(micros, Ordering::Relaxed);
    }

    fn histogram(&self) -> Histogram {
        let mut histogram = Histogram::default();
        for (count, tally) in histogram.counts.iter_mut().zip(&self.counts) {
            *count = tally.load(Ordering::Relaxed);
        }
        histogram.sum = Duration::from_micros(self.sum_us.load(Ordering::Relaxed));
        histogram
    }
}

/// The histograms of one kind, by name.
#[derive(Debug)]
pub(crate) struct NamedTallies {
    names_max: usize,
    rows: Mutex<BTreeMap<String, Arc<DurationTally>>>,
    others: Arc<DurationTally>,
}

impl NamedTallies {
    fn new(names_max: usize) -> Self {
        Self {
            names_max,
            rows: Mutex::default(),
            others: Arc::default(),
        }
    }

    /// The histogram of a name; `None` if its durations are counted with the [others](Self::others).
    pub(crate) fn row(&self, name: &str) -> Option<Arc<DurationTally>> {
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(row) = rows.get(name) {
            return Some(Arc::clone(row));
        }
        if rows.len() >= self.names_max {
            return None;
        }
        let row = Arc::default();
        rows.insert(name.to_owned(), Arc::clone(&row));
        Some(row)
    }

    /// The histogram of all names that have none of their own.
    pub(crate) fn others(&self) -> &Arc<DurationTally> {
        &self.others
    }

    fn told(&self) -> Vec<NamedHistogram> {
        let rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let named = rows.iter().map(|(name, tally)| (name.clone(), tally.histogram()));
        let others = Some((String::new(), self.others.histogram()));
        let others = others.filter(|(_, histogram)| !histogram.is_empty());
        named
            .chain(others)
            .map(|(name, histogram)| NamedHistogram { name, histogram })
            .collect()
    }
}

/// The histograms of a runtime, which its parts fill once they are switched on.
#[derive(Debug)]
pub(crate) struct DurationTallies {
    is_on: AtomicBool,
    pub(crate) runs: NamedTallies,
    pub(crate) attempts: NamedTallies,
    pub(crate) waits: NamedTallies,
    pub(crate) commits: DurationTally,
}

impl DurationTallies {
    pub(crate) fn new(names_max: usize) -> Self {
        Self {
            is_on: AtomicBool::new(false),
            runs: NamedTallies::new(names_max),
            attempts: NamedTallies::new(names_max),
            waits: NamedTallies::new(names_max),
            commits: DurationTally::default(),
        }
    }

    /// Whether parts record durations; each checks once in a turn.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Switches recording on, from the parts' next turns on, and returns what was recorded.
    pub(crate) fn told(&self) -> Durations {
        self.is_on.store(true, Ordering::Relaxed);
        Durations {
            runs: self.runs.told(),
            attempts: self.attempts.told(),
            waits: self.waits.told(),
            commits: self.commits.histogram(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(durations: &[Duration]) -> Histogram {
        let tally = DurationTally::default();
        durations.iter().for_each(|took| tally.record(*took));
        tally.histogram()
    }

    #[test]
    fn a_duration_counts_in_the_first_bucket_whose_bound_it_does_not_exceed() {
        for (place, bound) in Histogram::BOUNDS.into_iter().enumerate() {
            let beyond = bound + Duration::from_nanos(1);
            for (took, place) in [(bound, place), (beyond, place + 1)] {
                let histogram = filled(&[took]);
                assert_eq!(histogram.counts[place], 1, "{took:?}");
                assert_eq!(histogram.len(), 1);
            }
        }
        assert!(Histogram::BOUNDS.is_sorted());
        assert_eq!(filled(&[Duration::ZERO, Duration::MAX]).counts[0], 1);
    }

    #[test]
    fn a_quantile_lies_within_its_bucket() {
        let millis = Duration::from_millis;
        let check = |durations: &[Duration], share: f64, expected: Option<Duration>| {
            assert_eq!(filled(durations).quantile(share), expected, "{durations:?}");
        };
        check(&[], 0.5, None);
        // Of four durations between 2.5 and 5 ms, two are below the middle.
        check(&[millis(3); 4], 0.5, Some(Duration::from_micros(3_750)));
        check(&[millis(3); 4], 1.0, Some(millis(5)));
        check(
            &[millis(3), millis(3), millis(3), millis(80)],
            0.75,
            Some(millis(5)),
        );
        check(
            &[millis(3), millis(3), millis(3), millis(80)],
            1.0,
            Some(millis(100)),
        );
        check(&[Duration::MAX], 0.5, Some(Duration::from_secs(604_800)));
    }

    #[test]
    fn what_has_come_since_an_earlier_look_is_told_apart() {
        let (first, second) = (Duration::from_millis(1), Duration::from_secs(2));
        let earlier = filled(&[first]);
        let mut all = filled(&[second]);
        all.add(&earlier);
        assert_eq!(all, filled(&[first, second]));
        assert_eq!(all.since(&earlier), filled(&[second]));
    }

    #[test]
    fn names_beyond_the_bound_are_counted_together() {
        let tallies = NamedTallies::new(2);
        for name in ["b", "a", "c", "a", "d"] {
            let row = tallies.row(name);
            row.as_ref().unwrap_or(tallies.others()).record(Duration::ZERO);
        }
        let told: Vec<_> = tallies
            .told()
            .into_iter()
            .map(|row| (row.name, row.histogram.len()))
            .collect();
        let expected = [("a", 2), ("b", 1), ("", 2)].map(|(name, len)| (name.to_owned(), len));
        assert_eq!(told, expected);
    }
}
