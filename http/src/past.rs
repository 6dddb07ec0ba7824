//! The last minutes of a runtime, for a page that is opened later: a ring of samples, which a console keeps on request.
//!
//! ```text
//!   keep_past ──► task of the host, each 5 s: stats, durations ──► ring of 15 minutes ──► GET v1/past
//! ```
//!
//! Invariants: the ring has at most [`PAST_LEN_MAX`] samples of one size, about 50 KB. The task keeps neither the runtime nor
//! the ring alive: it ends when either is dropped.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use millrun::host::{Host, TaskHandle};
use millrun::operating::{Durations, Histogram, NamedHistogram, RuntimeStats, WeakRuntime};
use millrun::{Runtime, Timestamp};

/// How often a console that keeps the past takes a sample.
pub const PAST_EVERY: Duration = Duration::from_secs(5);

/// How many samples it keeps, the last ones: those of 15 minutes.
pub const PAST_LEN_MAX: usize = 180;

/// The samples, and the task that takes them. A cheap clone; the task ends with the last.
#[derive(Clone, Debug)]
pub(crate) struct Past(Arc<KeptPast>);

#[derive(Debug)]
struct KeptPast {
    samples: Arc<Mutex<VecDeque<PastSample>>>,
    task: TaskHandle,
}

impl Drop for KeptPast {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A runtime at one moment. Counters count from the start of the runtime.
#[derive(Clone, Debug)]
pub(crate) struct PastSample {
    pub(crate) at: Timestamp,
    pub(crate) started: u64,
    pub(crate) finished: u64,
    pub(crate) events: u64,
    pub(crate) attempts: u64,
    pub(crate) live: u64,
    pub(crate) parked: u64,
    /// Activities that wait in memory, in all queues.
    pub(crate) waiting: u64,
    pub(crate) commits: u64,
    pub(crate) turns: u64,
    pub(crate) bytes: u64,
    pub(crate) queued_bytes: u64,
    pub(crate) last_commit: Duration,
    /// Durations of what has ended since the sample before, over all names.
    pub(crate) runs: Latency,
    pub(crate) attempt_times: Latency,
    pub(crate) waits: Latency,
    pub(crate) commit_times: Latency,
}

/// The median and the 99th percentile.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Latency {
    pub(crate) len: u64,
    pub(crate) p50: Option<Duration>,
    pub(crate) p99: Option<Duration>,
}

impl From<Histogram> for Latency {
    fn from(histogram: Histogram) -> Self {
        Self {
            len: histogram.len(),
            p50: histogram.quantile(0.5),
            p99: histogram.quantile(0.99),
        }
    }
}

/// Durations over all names.
#[derive(Debug, Default)]
struct AllDurations {
    runs: Histogram,
    attempts: Histogram,
    waits: Histogram,
    commits: Histogram,
}

impl From<Durations> for AllDurations {
    fn from(durations: Durations) -> Self {
        let all = |rows: Vec<NamedHistogram>| {
            let mut all = Histogram::default();
            rows.iter().for_each(|row| all.add(&row.histogram));
            all
        };
        Self {
            runs: all(durations.runs),
            attempts: all(durations.attempts),
            waits: all(durations.waits),
            commits: durations.commits,
        }
    }
}

impl PastSample {
    fn new(at: Timestamp, stats: &RuntimeStats, now: &AllDurations, before: &AllDurations) -> Self {
        let waiting = stats.queues.iter().map(|queue| queue.waiting_len as u64);
        Self {
            at,
            started: stats.started,
            finished: stats.finished,
            events: stats.events,
            attempts: stats.attempts,
            live: stats.live,
            parked: stats.parked,
            waiting: waiting.sum(),
            commits: stats.journal.commits,
            turns: stats.journal.turns,
            bytes: stats.journal.bytes,
            queued_bytes: stats.journal.queued_bytes,
            last_commit: stats.journal.last_commit,
            runs: now.runs.since(&before.runs).into(),
            attempt_times: now.attempts.since(&before.attempts).into(),
            waits: now.waits.since(&before.waits).into(),
            commit_times: now.commits.since(&before.commits).into(),
        }
    }
}

impl Past {
    /// Begins to keep the past of a runtime.
    pub(crate) fn keep(runtime: &Runtime) -> Self {
        let samples = Arc::<Mutex<VecDeque<PastSample>>>::default();
        let (weak, host) = (runtime.downgrade(), Arc::clone(runtime.host()));
        let task = sample(weak, Arc::clone(&host), Arc::clone(&samples));
        let task = host.spawn("past", Box::pin(task));
        Self(Arc::new(KeptPast { samples, task }))
    }

    /// The samples after this time, the earliest first.
    pub(crate) fn after(&self, after: Timestamp) -> Vec<PastSample> {
        let samples = lock(&self.0.samples);
        samples
            .iter()
            .filter(|sample| sample.at > after)
            .cloned()
            .collect()
    }
}

fn lock(samples: &Mutex<VecDeque<PastSample>>) -> MutexGuard<'_, VecDeque<PastSample>> {
    samples.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes a sample at once and at each interval, until the runtime has stopped.
async fn sample(weak: WeakRuntime, host: Arc<dyn Host>, samples: Arc<Mutex<VecDeque<PastSample>>>) {
    let mut before = AllDurations::default();
    loop {
        let Some(runtime) = weak.upgrade().filter(|runtime| runtime.stop_cause().is_none()) else {
            return;
        };
        let (at, now) = (host.now(), AllDurations::from(runtime.durations()));
        let taken = PastSample::new(at, &runtime.stats(), &now, &before);
        drop(runtime);
        before = now;
        {
            let mut samples = lock(&samples);
            if samples.len() == PAST_LEN_MAX {
                samples.pop_front();
            }
            samples.push_back(taken);
        }
        host.sleep_until(at + PAST_EVERY).await;
    }
}
