//! The time of envelopes, for the cost of one atomic load.
//!
//! Asking the operating system for each envelope would cost a third as much as its whole way through the broker. So the
//! broker keeps the time in an atomic cell. With a [`Host`], a task updates the cell every millisecond while envelopes are
//! published, and ends after a few milliseconds without any; the first envelope after that asks the host. Without a host, the
//! broker's owner sets the time, until the broker is given a host.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use millrun_core::{Host, Task, Timestamp};

/// How exact the time of an envelope is, with a host.
const TICK: Duration = Duration::from_millis(1);
/// After how many ticks without an envelope the task ends.
const IDLE_TICKS_MAX: u32 = 16;

/// Means "ask the host": no task updates the time. A clock without a host never has this value.
const STALE: u64 = 0;

type AtTick = dyn Fn(&Arc<Clock>) + Send + Sync;

pub(crate) struct Clock {
    /// `None` while the owner sets the time.
    host: RwLock<Option<Arc<dyn Host>>>,
    /// The time in microseconds and one more, or [`STALE`].
    time: AtomicU64,
    used: AtomicBool,
    /// Called with each tick, and once after the last one.
    at_tick: OnceLock<Box<AtTick>>,
    /// The alarms that wait for a time of a clock without a host. By time, then by arrival.
    sleepers: Mutex<ClockSleepers>,
}

#[derive(Default)]
struct ClockSleepers {
    wakers: BTreeMap<(Timestamp, u64), Waker>,
    next: u64,
}

impl Clock {
    pub(crate) fn new(host: Option<Arc<dyn Host>>) -> Arc<Self> {
        let time = if host.is_some() {
            STALE
        } else {
            told(Timestamp::EPOCH)
        };
        Arc::new(Self {
            host: RwLock::new(host),
            time: AtomicU64::new(time),
            used: AtomicBool::new(false),
            at_tick: OnceLock::new(),
            sleepers: Mutex::default(),
        })
    }

    pub(crate) fn host(&self) -> Option<Arc<dyn Host>> {
        self.host.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes the time from this host from now on. Waiting alarms move to it.
    pub(crate) fn run_on(self: &Arc<Self>, host: Arc<dyn Host>) {
        let former = {
            let mut place = self.host.write().unwrap_or_else(PoisonError::into_inner);
            self.time.store(STALE, Ordering::Release);
            place.replace(host)
        };
        drop(former);
        let fed = std::mem::take(&mut self.sleepers().wakers);
        fed.into_values().for_each(Waker::wake);
        self.look();
    }

    fn is_on(&self, host: &Arc<dyn Host>) -> bool {
        let place = self.host.read().unwrap_or_else(PoisonError::into_inner);
        place.as_ref().is_some_and(|present| Arc::ptr_eq(present, host))
    }

    /// Calls `look` with each tick, and once more after the last. Only the first call of this function counts.
    pub(crate) fn at_tick(&self, look: impl Fn(&Arc<Self>) + Send + Sync + 'static) {
        self.at_tick.get_or_init(|| Box::new(look));
    }

    /// Whether there will be another tick, or the call that follows the last one, after this.
    pub(crate) fn is_ticking(&self) -> bool {
        self.time.load(Ordering::Acquire) != STALE && self.host().is_some()
    }

    /// Starts the clock's task early, so that the first publish does not pay for it: a task that is started during a publish
    /// would run next, before the consumer.
    pub(crate) fn prepare(self: &Arc<Self>) {
        if self.time.load(Ordering::Relaxed) == STALE {
            self.start_ticking();
        }
    }

    /// The time of the last tick.
    #[inline]
    pub(crate) fn now(self: &Arc<Self>) -> Timestamp {
        // One less than the stored value; a stale value gives no time.
        let Some(time) = self.time.load(Ordering::Relaxed).checked_sub(STALE + 1) else {
            return self.start_ticking();
        };
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
        Timestamp::from_micros(time)
    }

    /// The most exact time available.
    pub(crate) fn exact_now(&self) -> Timestamp {
        match self.host() {
            Some(host) => host.now(),
            None => Timestamp::from_micros(self.time.load(Ordering::Relaxed).saturating_sub(1)),
        }
    }

    /// Time since some fixed moment, to measure durations; zero without a host.
    pub(crate) fn elapsed(&self) -> Duration {
        self.host().map_or(Duration::ZERO, |host| host.elapsed())
    }

    /// Sets the time of a clock without a host and wakes the alarms whose time has come. Time never moves backwards. Ignored
    /// by a clock with a host.
    pub(crate) fn advance(&self, now: Timestamp) {
        {
            // The lock is held meanwhile: a host that comes now finds the new time in the cell, and marks it as stale.
            let host = self.host.read().unwrap_or_else(PoisonError::into_inner);
            if host.is_some() {
                return;
            }
            self.time.fetch_max(told(now), Ordering::Relaxed);
        }
        let due = {
            let mut sleepers = self.sleepers();
            let later = sleepers.wakers.split_off(&(now + Duration::from_micros(1), 0));
            std::mem::replace(&mut sleepers.wakers, later)
        };
        due.into_values().for_each(Waker::wake);
    }

    /// Completes `after` from now.
    pub(crate) fn alarm(self: &Arc<Self>, after: Duration) -> Alarm {
        self.alarm_at(self.exact_now() + after)
    }

    /// Completes at `deadline`.
    pub(crate) fn alarm_at(self: &Arc<Self>, deadline: Timestamp) -> Alarm {
        match self.host() {
            Some(host) => Alarm::Host(host.sleep_until(deadline)),
            None => Alarm::Fed {
                clock: Arc::clone(self),
                deadline,
                key: None,
            },
        }
    }

    fn sleepers(&self) -> std::sync::MutexGuard<'_, ClockSleepers> {
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look(self: &Arc<Self>) {
        if let Some(look) = self.at_tick.get() {
            look(self);
        }
    }

    #[cold]
    fn start_ticking(self: &Arc<Self>) -> Timestamp {
        let Some(host) = self.host() else {
            return Timestamp::EPOCH;
        };
        let now = host.now();
        let started = self
            .time
            .compare_exchange(STALE, told(now), Ordering::Relaxed, Ordering::Relaxed)
            .is_ok();
        if started {
            let ticking = Ticking {
                clock: Arc::downgrade(self),
                host: Arc::clone(&host),
            };
            // The handle is not kept: the task ends by itself, at the latest one tick after the broker.
            drop(host.spawn("broker clock", Box::pin(ticking.run())));
        }
        now
    }
}

/// A time as the cell holds it.
fn told(time: Timestamp) -> u64 {
    time.as_micros().saturating_add(1)
}

/// The task that updates the time. However it ends, the clock then asks the host again.
struct Ticking {
    clock: Weak<Clock>,
    host: Arc<dyn Host>,
}

impl Ticking {
    async fn run(self) {
        let mut idle_ticks = 0;
        while idle_ticks < IDLE_TICKS_MAX {
            self.host.sleep_until(self.host.now() + TICK).await;
            let Some(clock) = self.clock.upgrade().filter(|clock| clock.is_on(&self.host)) else {
                return;
            };
            idle_ticks = if clock.used.swap(false, Ordering::Relaxed) {
                0
            } else {
                idle_ticks + 1
            };
            clock.time.store(told(self.host.now()), Ordering::Relaxed);
            clock.look();
        }
        let clock = self.clock.upgrade();
        // In this order: an alarm that has not seen the end of the ticks is seen by the last call.
        drop(self);
        if let Some(clock) = clock {
            clock.look();
        }
    }
}

impl Drop for Ticking {
    fn drop(&mut self) {
        if let Some(clock) = self.clock.upgrade()
            && clock.is_on(&self.host)
        {
            clock.time.store(STALE, Ordering::Release);
        }
    }
}

/// Completes at a time, never before it.
pub(crate) enum Alarm {
    Host(Task),
    Fed {
        clock: Arc<Clock>,
        deadline: Timestamp,
        key: Option<(Timestamp, u64)>,
    },
}

impl Future for Alarm {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match &mut *self {
            Self::Host(task) => task.as_mut().poll(cx),
            Self::Fed { clock, deadline, key } => {
                let mut sleepers = clock.sleepers();
                // Checked under the lock: an alarm that waits here is woken by a host that comes later.
                if let Some(host) = clock.host() {
                    drop(sleepers);
                    let sleep = host.sleep_until(*deadline);
                    *self = Self::Host(sleep);
                    return self.poll(cx);
                }
                if clock.exact_now() >= *deadline {
                    return Poll::Ready(());
                }
                let key = *key.get_or_insert_with(|| {
                    sleepers.next += 1;
                    (*deadline, sleepers.next)
                });
                let stale = sleepers.wakers.insert(key, cx.waker().clone());
                drop(sleepers);
                drop(stale);
                Poll::Pending
            }
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if let Self::Fed {
            clock,
            key: Some(key),
            ..
        } = self
        {
            let stale = clock.sleepers().wakers.remove(key);
            drop(stale);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;

    #[test]
    fn a_fed_clock_wakes_at_the_deadline_and_not_before() {
        let clock = Clock::new(None);
        clock.advance(Timestamp::from_micros(1_000));
        let mut alarm = pin!(clock.alarm(Duration::from_micros(500)));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(alarm.as_mut().poll(&mut cx).is_pending());
        clock.advance(Timestamp::from_micros(1_499));
        assert!(alarm.as_mut().poll(&mut cx).is_pending());
        assert_eq!(clock.sleepers().wakers.len(), 1);
        clock.advance(Timestamp::from_micros(1_500));
        assert!(clock.sleepers().wakers.is_empty());
        assert!(alarm.as_mut().poll(&mut cx).is_ready());
        clock.advance(Timestamp::from_micros(7));
        assert_eq!(clock.exact_now(), Timestamp::from_micros(1_500));
    }

    #[test]
    fn a_dropped_alarm_leaves_nothing_behind() {
        let clock = Clock::new(None);
        let mut alarm = Box::pin(clock.alarm(Duration::from_secs(1)));
        assert!(
            alarm
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()))
                .is_pending()
        );
        drop(alarm);
        assert!(clock.sleepers().wakers.is_empty());
    }
}
