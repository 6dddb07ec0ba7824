//! Time for envelopes, at the price of one load.
//!
//! Asking the operating system for each envelope would cost as much as a third of its way through
//! the broker. So the broker keeps the time in a cell. With a [`Host`], a task renews the cell
//! every millisecond for as long as envelopes are published, and ends after a few milliseconds
//! without any; the first one after that asks the host. Without a host, whoever owns the broker
//! feeds it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use millrun_core::{Host, Timestamp};

/// How exact the time of an envelope is, with a host.
const TICK: Duration = Duration::from_millis(1);
/// After how many ticks without an envelope the task ends.
const IDLE_TICKS_MAX: u32 = 16;

/// Says "ask the host": no tick task runs.
const STALE: u64 = 0;

pub(crate) struct Clock {
    host: Option<Arc<dyn Host>>,
    micros: AtomicU64,
    used: AtomicBool,
}

impl Clock {
    pub(crate) fn new(host: Option<Arc<dyn Host>>) -> Arc<Self> {
        Arc::new(Self {
            host,
            micros: AtomicU64::new(STALE),
            used: AtomicBool::new(false),
        })
    }

    /// The time of the last tick.
    pub(crate) fn now(self: &Arc<Self>) -> Timestamp {
        let micros = self.micros.load(Ordering::Relaxed);
        if micros == STALE {
            return self.start_ticking();
        }
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
        Timestamp::from_micros(micros)
    }

    /// Sets the time; it never moves backwards.
    pub(crate) fn advance(&self, now: Timestamp) {
        self.micros.fetch_max(now.as_micros(), Ordering::Relaxed);
    }

    #[cold]
    fn start_ticking(self: &Arc<Self>) -> Timestamp {
        let Some(host) = &self.host else {
            return Timestamp::EPOCH;
        };
        let now = host.now();
        let micros = now.as_micros().max(1);
        let started = self
            .micros
            .compare_exchange(STALE, micros, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok();
        if started {
            let ticking = Ticking {
                clock: Arc::downgrade(self),
                host: Arc::clone(host),
            };
            // Not kept: it ends by itself, one tick after the broker at the latest.
            drop(host.spawn("broker clock", Box::pin(ticking.run())));
        }
        now
    }
}

/// The task that renews the time. However it ends, the clock asks the host again.
struct Ticking {
    clock: Weak<Clock>,
    host: Arc<dyn Host>,
}

impl Ticking {
    async fn run(self) {
        let mut idle_ticks = 0;
        while idle_ticks < IDLE_TICKS_MAX {
            self.host.sleep_until(self.host.now() + TICK).await;
            let Some(clock) = self.clock.upgrade() else { return };
            idle_ticks = if clock.used.swap(false, Ordering::Relaxed) {
                0
            } else {
                idle_ticks + 1
            };
            clock
                .micros
                .store(self.host.now().as_micros().max(1), Ordering::Relaxed);
        }
    }
}

impl Drop for Ticking {
    fn drop(&mut self) {
        if let Some(clock) = self.clock.upgrade() {
            clock.micros.store(STALE, Ordering::Relaxed);
        }
    }
}
