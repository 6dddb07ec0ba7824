//! A closed loop: a fixed number of clients, each starting its next operation when the last one is done.

use std::future::Future;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tokio::task::JoinSet;

use crate::BenchError;

/// Longer operations count as this long: ten minutes.
const NANOS_MAX: u64 = 600_000_000_000;

/// How hard and how long.
#[derive(Clone, Copy, Debug)]
pub struct Saturation {
    /// Clients at a time.
    pub concurrency: usize,
    /// How long they run before anything counts.
    pub warm_up: Duration,
    /// How long what they complete counts.
    pub measured: Duration,
    /// No more operations than this are begun; then the time ends with the last of them.
    pub runs_max: u64,
}

/// What one loop did.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Operations completed while it counted.
    pub completed: u64,
    /// How long it counted.
    pub measured: Duration,
    /// The time of each completed operation, in nanoseconds.
    pub nanos: Histogram<u64>,
}

impl Sample {
    /// Of operations that were timed one by one, elsewhere.
    #[must_use]
    pub fn of(times: &[Duration]) -> Self {
        let mut nanos = histogram();
        for time in times {
            nanos.saturating_record(in_nanos(*time));
        }
        Self {
            completed: times.len() as u64,
            measured: times.iter().sum(),
            nanos,
        }
    }

    /// Operations per second.
    #[must_use]
    pub fn per_s(&self) -> f64 {
        self.completed as f64 / self.measured.as_secs_f64()
    }
}

/// Runs the loop on the current tokio runtime. Each operation gets a number that no other has. If
/// the time is too short for as many operations as there are clients, it is prolonged until there
/// are as many: otherwise what counts would depend on where in its round a client was.
///
/// # Errors
/// The first error of an operation ends it all; so does a loop that completed nothing.
pub async fn saturate<F, O>(load: Saturation, operation: F) -> Result<Sample, BenchError>
where
    F: Fn(u64) -> O + Clone + Send + 'static,
    O: Future<Output = Result<(), BenchError>> + Send,
{
    let numbers = Arc::new(AtomicU64::new(0));
    let counted = Arc::new(AtomicU64::new(0));
    let in_time = Arc::new(InTime::default());
    let counts_from = Instant::now() + load.warm_up;
    let ends = counts_from + load.measured;
    let enough = load.concurrency as u64;
    // Several, unless they may run out: then each goes to a client that is free.
    let at_a_time = if load.runs_max == u64::MAX { 16 } else { 1 };
    let mut clients = JoinSet::new();
    for _ in 0..load.concurrency {
        let operation = operation.clone();
        let (numbers, counted) = (Arc::clone(&numbers), Arc::clone(&counted));
        let in_time = Arc::clone(&in_time);
        clients.spawn(async move {
            let mut ends_of = OperationEnds::default();
            let mut own = 0..0;
            let mut started = Instant::now();
            while started < ends || counted.load(Ordering::Relaxed) < enough {
                let number = own.next().unwrap_or_else(|| {
                    let first = numbers.fetch_add(at_a_time, Ordering::Relaxed);
                    own = first + 1..first + at_a_time;
                    first
                });
                if number >= load.runs_max {
                    break;
                }
                operation(number).await?;
                let ended = Instant::now();
                if ended >= counts_from {
                    // What all write to is slow to read for all: once there are enough, it stays as it is.
                    if counted.load(Ordering::Relaxed) < enough {
                        counted.fetch_add(1, Ordering::Relaxed);
                    }
                    let took = ended.duration_since(started);
                    if ended < ends {
                        in_time.record(took);
                        ends_of.last_in_time = Some(ended);
                    } else {
                        ends_of.late.push((ended, took));
                    }
                }
                started = ended;
            }
            Ok::<_, BenchError>(ends_of)
        });
    }
    let (mut last, mut late) = (None, Vec::new());
    while let Some(client) = clients.join_next().await {
        let client = client.map_err(|error| BenchError::failed("a client", error))??;
        last = last.max(client.last_in_time);
        late.extend(client.late);
    }
    late.sort_unstable();
    let mut nanos = in_time.all();
    // To the end of the time, or of the operation that made it enough.
    let missing = enough.saturating_sub(nanos.len());
    for (ended, took) in late
        .into_iter()
        .take(usize::try_from(missing).unwrap_or(usize::MAX))
    {
        nanos.saturating_record(in_nanos(took));
        last = Some(ended);
    }
    let Some(last) = last else {
        return Err(BenchError::failed("the clients", "nothing was completed"));
    };
    let ran_out = numbers.load(Ordering::Relaxed) >= load.runs_max;
    let end = if last >= ends || ran_out { last } else { ends };
    Ok(Sample {
        completed: nanos.len(),
        measured: end.duration_since(counts_from),
        nanos,
    })
}

/// When a client's operations ended.
#[derive(Default)]
struct OperationEnds {
    last_in_time: Option<Instant>,
    /// Those behind the end of the time: when, and how long they took.
    late: Vec<(Instant, Duration)>,
}

/// How long operations took that ended in time. Threads write to histograms of their own, so that what is measured pays little
/// for it: a list for each client would be memory that no cache holds.
struct InTime(Vec<Mutex<Histogram<u64>>>);

impl Default for InTime {
    fn default() -> Self {
        Self((0..16).map(|_| Mutex::new(histogram())).collect())
    }
}

impl InTime {
    fn record(&self, took: Duration) {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static THREAD: usize = THREADS.fetch_add(1, Ordering::Relaxed);
        }
        let place = THREAD.with(|thread| *thread) % self.0.len();
        let mut own = self.0[place].lock().unwrap_or_else(PoisonError::into_inner);
        own.saturating_record(in_nanos(took));
    }

    fn all(&self) -> Histogram<u64> {
        let mut all = histogram();
        for one in &self.0 {
            let one = one.lock().unwrap_or_else(PoisonError::into_inner);
            all.add(&*one).expect("all have the same bounds");
        }
        all
    }
}

fn in_nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, NANOS_MAX, 3)
        .expect("the bounds are in order and three digits are within a histogram's precision")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Mutex;

    use super::*;

    #[tokio::test]
    async fn each_operation_has_its_own_number_and_counts_once() {
        let load = Saturation {
            concurrency: 8,
            warm_up: Duration::ZERO,
            measured: Duration::from_millis(20),
            runs_max: u64::MAX,
        };
        let seen = Arc::new(Mutex::new(BTreeSet::new()));
        let all = Arc::clone(&seen);
        let sample = saturate(load, move |number| {
            let all = Arc::clone(&all);
            async move {
                assert!(all.lock().unwrap().insert(number), "{number} came twice");
                tokio::task::yield_now().await;
                Ok(())
            }
        })
        .await
        .unwrap();
        assert!(sample.completed > 0);
        assert_eq!(sample.nanos.len(), sample.completed);
        let runs = seen.lock().unwrap().len() as u64;
        assert!(
            (sample.completed..sample.completed + 9).contains(&runs),
            "{runs} {}",
            sample.completed
        );
    }

    #[tokio::test]
    async fn a_time_that_is_too_short_is_prolonged_until_each_client_could_have_had_its_turn() {
        let load = Saturation {
            concurrency: 4,
            warm_up: Duration::ZERO,
            measured: Duration::ZERO,
            runs_max: u64::MAX,
        };
        let sample = saturate(load, |_| async {
            tokio::task::yield_now().await;
            Ok(())
        })
        .await
        .unwrap();
        assert_eq!((sample.completed, sample.nanos.len()), (4, 4));
        assert!(sample.per_s().is_finite());
    }

    #[tokio::test]
    async fn what_runs_out_counts_to_its_last_operation() {
        let load = Saturation {
            concurrency: 2,
            warm_up: Duration::ZERO,
            measured: Duration::from_secs(3_600),
            runs_max: 10,
        };
        let sample = saturate(load, |_| async { Ok(()) }).await.unwrap();
        assert_eq!(sample.completed, 10);
        assert!(sample.measured < load.measured);
    }

    #[tokio::test]
    async fn an_error_ends_it() {
        let load = Saturation {
            concurrency: 2,
            warm_up: Duration::ZERO,
            measured: Duration::from_secs(60),
            runs_max: u64::MAX,
        };
        let outcome = saturate(load, |_| async { Err(BenchError::failed("it", "no")) }).await;
        assert!(matches!(outcome, Err(BenchError::Failed { .. })));
    }
}
