//! The time of day: the wall clock, made monotonic.
//!
//! ```text
//!   wall clock ──(looked at once a second)──► line ──► now = elapsed + offset + ahead
//!   monotonic clock ────────────(elapsed)──────────────┘                       │
//!                                        shrinks by an eighth of what elapses ─┘
//! ```
//!
//! Between two looks the time advances with the monotonic clock. If a look finds the wall clock ahead, after a correction or
//! a suspend, the time jumps there at once. If it finds the wall clock behind, the time runs an eighth slower until the wall
//! clock has caught up, so that the time never runs backwards and never stops.
//!
//! No task polls the wall clock: a look happens within a call of [`Clock::now`], about a second after the last look. A wait
//! for a time checks again after [`WAIT_MAX`].
//!
//! Invariant: of two calls of [`Clock::now`], one after the other on any threads, the second never returns an earlier time. A
//! caller reads the monotonic clock while the line does not change; a look reads it while no caller does.

use std::fmt;
use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering, fence};
use std::time::{Duration, Instant, SystemTime};

use millrun_core::Timestamp;

/// The shortest time between two looks at the wall clock.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A look is discarded if the thread was interrupted in it for longer.
const LOOK_MAX: Duration = Duration::from_millis(1);

/// While the time is ahead of the wall clock, it runs slower by one part in this many.
const SLOWED_BY: u64 = 8;

/// The longest single wait. Threads and tasks wait by the monotonic clock, which stops while the machine is suspended and
/// follows no correction: this is how late a deadline may then be noticed.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// The clock of one host. A cheap clone.
#[derive(Clone)]
pub(super) struct Clock(Arc<Inner>);

struct Inner {
    base: Instant,
    line: Line,
    wall: Box<Wall>,
    wait_max: Duration,
}

/// Reads the wall clock.
pub(super) type Wall = dyn Fn() -> Timestamp + Send + Sync;

/// How the time follows from the monotonic clock: three numbers under a sequence lock. All in microseconds.
#[derive(Debug)]
pub(super) struct Line {
    /// The shortest time between two looks at the wall clock.
    look_every: u64,
    /// Odd while the line is being changed.
    version: AtomicU64,
    is_looking: AtomicBool,
    /// The elapsed time at the last look.
    since: AtomicU64,
    /// The wall clock minus the elapsed time, at the last look.
    offset: AtomicI64,
    /// How far the time was ahead of the wall clock at the last look.
    ahead: AtomicU64,
}

impl Line {
    /// A line that shows `wall` when nothing has elapsed.
    pub(super) fn new(wall: Timestamp, look_every: Duration) -> Self {
        Self {
            look_every: micros(look_every),
            version: AtomicU64::new(0),
            is_looking: AtomicBool::new(false),
            since: AtomicU64::new(0),
            offset: AtomicI64::new(signed(wall.as_micros())),
            ahead: AtomicU64::new(0),
        }
    }

    /// The time after so much has elapsed, and whether a look is due. Exact only while the line does not change.
    fn at(&self, elapsed: u64) -> (u64, bool) {
        let since = elapsed.saturating_sub(self.since.load(Ordering::Relaxed));
        let ahead = self
            .ahead
            .load(Ordering::Relaxed)
            .saturating_sub(since / SLOWED_BY);
        let offset = self.offset.load(Ordering::Relaxed);
        let shown = elapsed.saturating_add_signed(offset).saturating_add(ahead);
        (shown, since >= self.look_every)
    }

    /// As [`at`](Self::at), with a value of `elapsed` that was read while the line did not change.
    pub(super) fn read(&self, elapsed: impl Fn() -> u64) -> (u64, bool) {
        loop {
            let version = self.version.load(Ordering::Acquire);
            if version.is_multiple_of(2) {
                let read = self.at(elapsed());
                fence(Ordering::Acquire);
                if self.version.load(Ordering::Relaxed) == version {
                    return read;
                }
            }
            // A look takes two readings of clocks, unless its thread is interrupted.
            std::thread::yield_now();
        }
    }

    /// Looks at the wall clock and follows it.
    pub(super) fn look(&self, elapsed: impl Fn() -> u64, wall: &Wall) {
        self.change(|| {
            let (began, read, ended) = (elapsed(), wall().as_micros(), elapsed());
            // If the thread was interrupted, the look is discarded, and the next call looks again.
            if ended.saturating_sub(began) <= micros(LOOK_MAX) {
                let (shown, _) = self.at(ended);
                self.offset.store(signed(read) - signed(ended), Ordering::Relaxed);
                self.ahead.store(shown.saturating_sub(read), Ordering::Relaxed);
                self.since.store(ended, Ordering::Relaxed);
            }
        });
    }

    /// Moves the time forward to at least `shown_min`, as if the wall clock had been there and were set back.
    pub(super) fn reach(&self, elapsed: impl Fn() -> u64, shown_min: u64) {
        let reach = || {
            let elapsed = elapsed();
            let (shown, _) = self.at(elapsed);
            if shown < shown_min {
                let wall = elapsed.saturating_add_signed(self.offset.load(Ordering::Relaxed));
                self.ahead
                    .store(shown_min.saturating_sub(wall), Ordering::Relaxed);
                self.since.store(elapsed, Ordering::Relaxed);
            }
        };
        // Another thread is changing the line: it is done in a moment, and may not have come as far.
        while !self.change(reach) {
            spin_loop();
        }
    }

    /// The wall clock minus the elapsed time, at the last look.
    pub(super) fn offset(&self) -> i64 {
        self.offset.load(Ordering::Relaxed)
    }

    /// Changes the line, unless another thread does. Returns whether it has.
    fn change(&self, change: impl FnOnce()) -> bool {
        if self.is_looking.swap(true, Ordering::Acquire) {
            return false;
        }
        self.version.fetch_add(1, Ordering::Acquire);
        fence(Ordering::Release);
        change();
        self.version.fetch_add(1, Ordering::Release);
        self.is_looking.store(false, Ordering::Release);
        true
    }

    /// The time, after a look if one is due.
    fn now(&self, elapsed: impl Fn() -> u64, wall: &Wall) -> u64 {
        match self.read(&elapsed) {
            (shown, false) => shown,
            (_, true) => {
                self.look(&elapsed, wall);
                self.read(&elapsed).0
            }
        }
    }
}

impl Clock {
    /// A clock that follows the machine's.
    pub(super) fn start() -> Self {
        Self::following(Box::new(wall_clock), LOOK_EVERY, WAIT_MAX)
    }

    /// A clock that follows `wall` and looks at it every `look_every`; a single wait lasts at most `wait_max`.
    #[expect(
        clippy::disallowed_methods,
        reason = "this is where the host gets the time from"
    )]
    pub(super) fn following(wall: Box<Wall>, look_every: Duration, wait_max: Duration) -> Self {
        Self(Arc::new(Inner {
            base: Instant::now(),
            line: Line::new(wall(), look_every),
            wall,
            wait_max,
        }))
    }

    /// Since the host started.
    pub(super) fn elapsed(&self) -> Duration {
        self.0.base.elapsed()
    }

    /// Rounded down to a microsecond, so that a deadline is due only when it has been reached.
    pub(super) fn now(&self) -> Timestamp {
        let Inner { base, line, wall, .. } = &*self.0;
        Timestamp::from_micros(line.now(|| micros(base.elapsed()), wall))
    }

    /// The moment at which [`Clock::now`] becomes `deadline` if the wall clock is not corrected meanwhile,
    /// or `wait_max` from now if that is sooner.
    pub(super) fn instant(&self, deadline: Timestamp) -> Instant {
        let wait = deadline.saturating_since(self.now()).min(self.0.wait_max);
        self.0.base + self.elapsed() + wait
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Clock").field(&self.0.line).finish()
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "this is where the host gets the time from"
)]
fn wall_clock() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    Timestamp::EPOCH + since_epoch.unwrap_or_default()
}

pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

pub(super) fn signed(micros: u64) -> i64 {
    i64::try_from(micros).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    const SECOND: u64 = 1_000_000;
    const HOUR: u64 = 3_600 * SECOND;

    /// A line whose two clocks a test controls.
    struct Moved {
        line: Line,
        elapsed: u64,
        wall: Arc<AtomicU64>,
    }

    impl Moved {
        fn new() -> Self {
            let wall = 1_000 * HOUR;
            Self {
                line: Line::new(Timestamp::from_micros(wall), LOOK_EVERY),
                elapsed: 0,
                wall: Arc::new(AtomicU64::new(wall)),
            }
        }

        fn wall(&self) -> u64 {
            self.wall.load(Ordering::SeqCst)
        }

        /// Lets time pass, and returns what the clock shows then.
        fn pass(&mut self, by: u64) -> u64 {
            self.elapsed += by;
            self.wall.fetch_add(by, Ordering::SeqCst);
            self.now()
        }

        fn now(&self) -> u64 {
            let wall = Arc::clone(&self.wall);
            let read = move || Timestamp::from_micros(wall.load(Ordering::SeqCst));
            self.line.now(|| self.elapsed, &read)
        }

        /// Corrects the wall clock.
        fn set_wall(&self, wall: u64) {
            self.wall.store(wall, Ordering::SeqCst);
        }
    }

    /// Regression: the wall clock was read once, at the start. A service that had started before the machine's clock was
    /// right kept the wrong time until it was restarted, weeks later.
    #[test]
    fn a_correction_forward_is_followed_within_a_second() {
        let mut clock = Moved::new();
        assert_eq!(clock.pass(10 * SECOND), clock.wall());
        clock.set_wall(clock.wall() + 8 * HOUR);
        assert_eq!(clock.pass(SECOND), clock.wall());
        // A machine that was suspended: the monotonic clock has stood still.
        clock.set_wall(clock.wall() + 20 * HOUR);
        clock.pass(SECOND);
        assert_eq!(clock.pass(1), clock.wall());
    }

    #[test]
    fn after_a_correction_backward_the_time_goes_on_more_slowly_until_the_wall_clock_has_caught_up() {
        let mut clock = Moved::new();
        let mut last = clock.pass(10 * SECOND);
        clock.set_wall(clock.wall() - 60 * SECOND);
        let mut steps = 0;
        while clock.now() > clock.wall() {
            let now = clock.pass(SECOND / 10);
            assert!(now > last, "it stands still or runs backwards");
            assert!(now - last >= SECOND / 10 - SECOND / 80 - 1);
            last = now;
            steps += 1;
        }
        assert!(
            (4_700..=4_900).contains(&steps),
            "60 s at an eighth, not in {steps}"
        );
        assert_eq!(clock.pass(SECOND), clock.wall());
    }

    #[test]
    fn the_time_never_runs_backwards_however_the_wall_clock_is_set() {
        let mut clock = Moved::new();
        let (mut last, mut dice) = (clock.now(), 7_u64);
        for _ in 0..100_000 {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let draw = dice >> 33;
            if draw.is_multiple_of(50) {
                clock.set_wall(if draw.is_multiple_of(150) {
                    0
                } else {
                    draw * SECOND
                });
            }
            let now = clock.pass(draw % (3 * SECOND));
            assert!(now >= last, "from {last} to {now}");
            last = now;
        }
    }

    #[test]
    fn the_wall_clock_is_looked_at_once_a_second_and_not_believed_in_an_interrupted_look() {
        let line = Line::new(Timestamp::from_micros(HOUR), LOOK_EVERY);
        let looks = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&looks);
        let wall = move || {
            counted.fetch_add(1, Ordering::SeqCst);
            Timestamp::from_micros(2 * HOUR)
        };
        assert_eq!(line.now(|| SECOND - 1, &wall), HOUR + SECOND - 1);
        assert_eq!(looks.load(Ordering::SeqCst), 0);
        // Each reading of this clock is ten seconds after the one before.
        let readings = AtomicU64::new(SECOND);
        let interrupted = || readings.fetch_add(10 * SECOND, Ordering::SeqCst);
        assert!(line.now(interrupted, &wall) < 2 * HOUR);
        assert_eq!(looks.load(Ordering::SeqCst), 1);
        for more in 0..100 {
            assert_eq!(line.now(|| 100 * SECOND + more, &wall), 2 * HOUR + more);
        }
        assert_eq!(looks.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn no_thread_sees_an_earlier_time_than_another_has_seen_before() {
        let hours = AtomicU64::new(1_000);
        // Each look finds the wall clock an hour later, or two hours earlier.
        let wall = move || {
            let hour = hours.fetch_add(1, Ordering::SeqCst);
            Timestamp::from_micros((hour - hour % 3 * 2) * HOUR)
        };
        let clock = Clock::following(Box::new(wall), LOOK_EVERY, WAIT_MAX);
        let seen = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (clock, seen) = (clock.clone(), &seen);
                scope.spawn(move || {
                    for number in 0..20_000 {
                        let before = seen.load(Ordering::SeqCst);
                        let now = clock.now().as_micros();
                        assert!(now >= before, "{now} after {before}");
                        seen.fetch_max(now, Ordering::SeqCst);
                        if thread == 0 && number % 10 == 0 {
                            let Inner { base, line, wall, .. } = &*clock.0;
                            line.look(|| micros(base.elapsed()), wall);
                        }
                    }
                });
            }
        });
    }

    #[test]
    fn whoever_waits_looks_again_before_long() {
        let clock = Clock::start();
        let now = clock.now();
        assert!(clock.instant(Timestamp::MAX) > clock.instant(now));
        assert!(clock.instant(Timestamp::EPOCH) <= clock.0.base + clock.elapsed());
        assert!(clock.instant(Timestamp::MAX) <= clock.0.base + clock.elapsed() + WAIT_MAX);
    }
}
