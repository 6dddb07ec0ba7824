//! One attempt: runs the activity's code to its end, and catches panics.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures_util::FutureExt;
use millrun_core::{Host, panic_message};
use millrun_workflow::ActivityFailure;

use super::code::AnySeat;
use super::{ActivityContext, ActivityImplementation, AttemptFailure, AttemptOutcome};

/// How an attempt ended, or the panic in which it did.
type Ended = Result<AttemptOutcome, Box<dyn Any + Send>>;

/// Runs the code until it has to wait. If it waits, the rest of it is returned, to be [resumed](resume): no waker is
/// registered for it yet. Otherwise its seat stays in `seat` for the next attempt of the same activity; `seat` may hold one
/// from an earlier attempt.
pub(super) fn begin(
    implementation: &ActivityImplementation,
    seat: &mut Option<AnySeat>,
    cx: ActivityContext,
    payload_bytes_max: usize,
) -> Result<AttemptOutcome, AnySeat> {
    let mut taken = seat.take().unwrap_or_else(|| implementation.seat());
    let begun = catch_unwind(AssertUnwindSafe(|| {
        taken.as_mut().begin(cx, &mut Context::from_waker(Waker::noop()))
    }));
    let ended = match begun {
        Ok(Poll::Pending) => return Err(taken),
        Ok(Poll::Ready(outcome)) => {
            *seat = Some(taken);
            Ok(outcome)
        }
        Err(panic) => {
            discard(taken);
            Err(panic)
        }
    };
    Ok(outcome_of(ended, payload_bytes_max))
}

/// Drops an unfinished attempt, whose destructors may panic.
pub(super) fn discard(seat: AnySeat) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(seat))) {
        tracing::debug!(
            message = panic_message(panic),
            "an attempt panicked as it was given up"
        );
    }
}

/// Runs the rest of an attempt that was [begun](begin).
pub(super) fn resume(
    seat: AnySeat,
    payload_bytes_max: usize,
) -> impl Future<Output = AttemptOutcome> + Send + 'static {
    let mut seat = Some(seat);
    let rest = poll_fn(move |task| poll_in(&mut seat, |seat| seat.as_mut().poll(task)));
    rest.map(move |ended| outcome_of(ended, payload_bytes_max))
}

/// Runs the code and returns the outcome; also measures how long the code ran until its first wait.
///
/// Not an `async fn`, which would hold both its arguments and what it makes of them: this memory is allocated for each
/// attempt, and above a kilobyte that is slow.
pub(super) fn run(
    implementation: &ActivityImplementation,
    cx: ActivityContext,
    payload_bytes_max: usize,
    host: Arc<dyn Host>,
) -> impl Future<Output = AttemptOutcome> + Send + 'static {
    let pace = Arc::clone(&implementation.pace);
    let (mut seat, mut beginning) = (Some(implementation.seat()), Some(cx));
    let mut poll = move |seat: &mut AnySeat, task: &mut Context<'_>| {
        let Some(cx) = beginning.take() else {
            return seat.as_mut().poll(task);
        };
        let begun_at = host.elapsed();
        let polled = seat.as_mut().begin(cx, task);
        let took = polled.is_ready().then(|| host.elapsed().saturating_sub(begun_at));
        pace.note(took);
        polled
    };
    // The code before the first await runs inside as well, so that its panic is caught too.
    let attempt = poll_fn(move |task| poll_in(&mut seat, |seat| poll(seat, task)));
    attempt.map(move |ended| outcome_of(ended, payload_bytes_max))
}

/// Polls the attempt in a seat, and drops the seat at the attempt's end.
fn poll_in(
    seat: &mut Option<AnySeat>,
    poll: impl FnOnce(&mut AnySeat) -> Poll<AttemptOutcome>,
) -> Poll<Ended> {
    let attempt = seat.as_mut().expect("an attempt is polled until it has ended");
    let ended = match catch_unwind(AssertUnwindSafe(|| poll(attempt))) {
        Ok(Poll::Pending) => return Poll::Pending,
        Ok(Poll::Ready(outcome)) => Ok(outcome),
        Err(panic) => Err(panic),
    };
    seat.take().into_iter().for_each(discard);
    Poll::Ready(ended)
}

fn outcome_of(ended: Ended, payload_bytes_max: usize) -> AttemptOutcome {
    match ended {
        Ok(outcome) => bounded(outcome, payload_bytes_max),
        Err(panic) => Err(AttemptFailure::retryable(ActivityFailure::Panicked {
            message: panic_message(panic),
        })),
    }
}

/// Replaces a value that is too large by a failure that says so.
fn bounded(outcome: AttemptOutcome, bytes_max: usize) -> AttemptOutcome {
    let (what, bytes) = match &outcome {
        Ok(value) => ("result", value.len()),
        Err(failed) => match &failed.failure {
            ActivityFailure::Failed { error, message } => ("error", error.len().max(message.len())),
            _ => return outcome,
        },
    };
    if bytes <= bytes_max {
        return outcome;
    }
    let message = format!(
        "the activity's {what} has {bytes} bytes, a payload may have {bytes_max}: return a reference instead"
    );
    Err(AttemptFailure::fatal(ActivityFailure::Unreadable { message }))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use millrun_broker::{Broker, BrokerConfig};
    use millrun_workflow::{Activity, ActivityError};
    use tokio::sync::Semaphore;

    use super::super::samples::{durations, owned, task};
    use super::super::{PoolState, TaskQueue};
    use super::*;
    use crate::cluster::shared::LeaseGate;
    use crate::host::{HostConfig, TokioHost};
    use crate::mail::ShardDoors;

    const ACT: Activity<u32, u32> = Activity::named("step");

    async fn with_context_of(test: impl FnOnce(&dyn Fn(u32) -> ActivityContext)) {
        let host = TokioHost::spawn(HostConfig::default()).await.unwrap();
        let broker = Broker::new(BrokerConfig::default(), host.host());
        let doors = ShardDoors::new(&broker, 1, 1).unwrap();
        let threads = Arc::new(Semaphore::new(1));
        let queue = TaskQueue::new(&broker, "default".into(), 1, &durations()).unwrap();
        let pool = PoolState::new(
            Arc::new(queue),
            host.host(),
            doors,
            1_024,
            threads,
            owned(),
            LeaseGate::open(),
        );
        let pool = Arc::new(pool);
        test(&|input| ActivityContext::new(task(1, input), Arc::clone(&pool)));
    }

    /// Counts how many of it there are.
    struct Counted(Arc<AtomicU32>);

    impl Counted {
        fn new(count: &Arc<AtomicU32>) -> Self {
            count.fetch_add(1, Ordering::Relaxed);
            Self(Arc::clone(count))
        }
    }

    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn only_a_seat_whose_attempt_has_ended_in_it_is_used_again_and_nothing_is_left_in_it() {
        let count = Arc::<AtomicU32>::default();
        let held = Arc::clone(&count);
        let act = move |_: ActivityContext, input: u32| {
            // A future that has ended and was not dropped still holds this.
            let counted = Counted::new(&held);
            poll_fn(move |_| match input {
                0 => panic!("it was to panic"),
                1 => Poll::Pending,
                2 => Poll::Ready(Err(ActivityError::fatal("it was to fail"))),
                _ => Poll::Ready(Ok(counted.0.load(Ordering::Relaxed))),
            })
        };
        let implementation = ActivityImplementation::new(ACT, act);
        with_context_of(|context_of| {
            let mut seat = None;
            let mut waiting = Vec::new();
            for input in [7, 8, 0, 9, 1, 0, 2, 9, 9] {
                let there = count.load(Ordering::Relaxed);
                match begin(&implementation, &mut seat, context_of(input), 1_024) {
                    Ok(Ok(value)) => assert_eq!(value.decode::<u32>().unwrap(), there + 1),
                    Ok(Err(failed)) => assert_eq!(failed.is_panic(), input == 0),
                    Err(rest) => waiting.push(rest),
                }
                assert_eq!(seat.is_some(), input > 1, "after {input}");
                let waiting = u32::try_from(waiting.len()).unwrap();
                assert_eq!(count.load(Ordering::Relaxed), waiting);
            }
            waiting.into_iter().for_each(discard);
            assert_eq!(count.load(Ordering::Relaxed), 0);
        })
        .await;
    }
}
