//! A host whose time of day is off, and is moved while it runs.
//!
//! ```text
//!   part ── Next::At(time of day) ──► minus the offset ──► the host below
//!   part ◄── turn(now) ────────────── plus the offset ◄───
//! ```
//!
//! A task that waits for a time of day looks again at least every [`LOOK_EVERY`], so that a clock that was
//! moved is noticed.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use millrun::Timestamp;
use millrun::host::{
    Bell, Host, Next, OnExit, Part, PartHandle, Placement, SpawnError, Task, TaskHandle, TokioHost,
};
use millrun_core::CrashCheck;

const LOOK_EVERY: Duration = Duration::from_millis(20);

/// By how many milliseconds the time of day is off.
#[derive(Debug)]
pub(super) struct ChaosClock {
    offset_ms: AtomicI64,
}

impl ChaosClock {
    pub(super) fn new(offset_ms: i64) -> Self {
        Self {
            offset_ms: AtomicI64::new(offset_ms),
        }
    }

    /// Sets the clock forward or back.
    pub(super) fn shift(&self, by_ms: i64) {
        self.offset_ms.fetch_add(by_ms, Ordering::Relaxed);
    }

    /// The time of day that this clock shows when the machine's shows `time`.
    fn shown(&self, time: Timestamp) -> Timestamp {
        let offset_us = self.offset_ms.load(Ordering::Relaxed).saturating_mul(1_000);
        Timestamp::from_micros(time.as_micros().saturating_add_signed(offset_us))
    }

    /// The machine's time when this clock shows `time`, as far as is known now.
    fn machine(&self, time: Timestamp) -> Timestamp {
        let offset_us = self.offset_ms.load(Ordering::Relaxed).saturating_mul(-1_000);
        Timestamp::from_micros(time.as_micros().saturating_add_signed(offset_us))
    }
}

/// Tokio's host with another time of day.
#[derive(Debug)]
pub(super) struct ClockedHost {
    below: Arc<dyn Host>,
    clock: Arc<ChaosClock>,
    /// Ends with the process.
    _owner: TokioHost,
}

impl ClockedHost {
    pub(super) fn new(owner: TokioHost, clock: Arc<ChaosClock>) -> Self {
        Self {
            below: owner.host(),
            clock,
            _owner: owner,
        }
    }
}

impl Host for ClockedHost {
    fn now(&self) -> Timestamp {
        self.clock.shown(self.below.now())
    }

    fn elapsed(&self) -> Duration {
        self.below.elapsed()
    }

    fn random(&self) -> u64 {
        self.below.random()
    }

    fn spawn(&self, name: &'static str, task: Task) -> TaskHandle {
        self.below.spawn(name, task)
    }

    fn within(&self, work: &mut dyn FnMut()) {
        self.below.within(work);
    }

    fn crash_check(&self) -> Option<CrashCheck> {
        self.below.crash_check()
    }

    fn has_threads(&self) -> bool {
        self.below.has_threads()
    }

    fn sleep_until(&self, deadline: Timestamp) -> Task {
        let (below, clock) = (Arc::clone(&self.below), Arc::clone(&self.clock));
        Box::pin(async move {
            while clock.shown(below.now()) < deadline {
                let next_look = below.now() + LOOK_EVERY;
                below.sleep_until(clock.machine(deadline).min(next_look)).await;
            }
        })
    }

    fn spawn_part(
        &self,
        name: &str,
        placement: Placement,
        bell: Bell,
        part: Box<dyn Part>,
        on_exit: OnExit,
    ) -> Result<PartHandle, SpawnError> {
        let clock = Arc::clone(&self.clock);
        let part = Box::new(ClockedPart { part, clock });
        self.below.spawn_part(name, placement, bell, part, on_exit)
    }
}

/// A part that is shown the other time of day.
struct ClockedPart {
    part: Box<dyn Part>,
    clock: Arc<ChaosClock>,
}

impl Part for ClockedPart {
    fn turn(&mut self, now: Timestamp, budget: usize) -> Next {
        match self.part.turn(self.clock.shown(now), budget) {
            Next::At(deadline) => Next::At(self.clock.machine(deadline).min(now + LOOK_EVERY)),
            next => next,
        }
    }
}
