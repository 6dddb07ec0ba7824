//! What workflow code sees of the engine.

mod compose;
mod operation;
mod pulse;
mod shared;

use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use millrun_core::{RunId, Timestamp};
use serde::Serialize;

pub use compose::Either;
pub use operation::{Call, CancelRequest, Receive, START_TO_CLOSE_DEFAULT, Sleep};
pub(crate) use pulse::Pulse;
pub(crate) use shared::{Decision, Resolution, Shared};

use crate::retry::mix;
use crate::{Activity, Signal};

/// A workflow's door to everything durable: calls, timers, signals, time and randomness.
///
/// A cheap clone. Its operations are lazy futures: they are decided when first polled, and
/// dropping one afterwards cancels it durably. Await nothing else in a workflow except what
/// these futures feed (channels between branches of the same workflow are fine): the engine
/// could not wake it in a replay, and parks a run whose code waits for something unknown.
///
/// When the run is [asked to cancel](crate::Input::Cancel), each operation that is outstanding
/// or issued later ends with [`Cancelled`](crate::Cancelled), unless it was made by a
/// [shielded](Self::shielded) context.
#[derive(Clone, Debug)]
pub struct WorkflowContext {
    shared: Arc<Shared>,
    is_shielded: bool,
}

impl WorkflowContext {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            is_shielded: false,
        }
    }

    /// Calls an activity. The future gives its result, after as many attempts as its
    /// [retry policy](Call::retry) allows.
    ///
    /// The input is encoded now, once; the activity gets exactly these bytes, however often it
    /// runs.
    #[track_caller]
    pub fn call<I: Serialize, O, E>(&self, activity: Activity<I, O, E>, input: I) -> Call<O, E> {
        Call::new(
            Arc::clone(&self.shared),
            self.is_shielded,
            Location::caller(),
            activity,
            &input,
        )
    }

    /// A timer that survives restarts. It fires at its deadline or a little later, never before.
    #[track_caller]
    pub fn sleep(&self, duration: Duration) -> Sleep {
        Sleep::new(
            Arc::clone(&self.shared),
            self.is_shielded,
            Location::caller(),
            duration,
        )
    }

    /// Waits for a signal. Signals of one name are buffered from the run's start and taken in
    /// the order of their arrival. If several branches wait for the same name, the one that is
    /// polled first takes it.
    pub fn signal<T>(&self, signal: Signal<T>) -> Receive<T> {
        Receive::new(Arc::clone(&self.shared), self.is_shielded, signal)
    }

    /// Waits until the run is asked to cancel.
    pub fn cancelled(&self) -> CancelRequest {
        CancelRequest::new(Arc::clone(&self.shared))
    }

    /// Whether the run has been asked to cancel.
    #[must_use]
    pub fn is_cancel_requested(&self) -> bool {
        self.shared.lock().is_cancel_requested
    }

    /// A context whose operations a request to cancel does not touch: for cleaning up.
    #[must_use]
    pub fn shielded(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            is_shielded: true,
        }
    }

    /// The time of the event that the code is reacting to. It is recorded: a replay sees the
    /// same, and it does not move while the code runs.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.shared.lock().now
    }

    /// 64 random bits that are the same in every replay of this run, and differ between runs.
    /// Not for cryptography.
    #[must_use]
    pub fn random(&self) -> u64 {
        self.shared.pulse().check_inside();
        let mut table = self.shared.lock();
        table.random_len += 1;
        let run = table.run.bits();
        let high = u64::try_from(run >> 64).expect("a shift leaves 64 bits");
        let low = u64::try_from(run & u128::from(u64::MAX)).expect("a mask leaves 64 bits");
        mix(mix(mix(high) ^ low) ^ table.random_len)
    }

    /// The identity of this run.
    #[must_use]
    pub fn run_id(&self) -> RunId {
        self.shared.lock().run
    }
}
