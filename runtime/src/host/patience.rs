//! How long a thread polls for work before it sleeps.
//!
//! Waking a sleeping thread takes 10 to 60 us, more if its core has gone idle: up to a third of a commit. An answer within
//! that time finds a polling thread awake. Between two polls it yields to other threads.
//!
//! A thread polls only while that pays: if most of its last waits were short. Polling costs at most [`LOOK_MAX`] for each
//! wait.

use std::thread;
use std::time::Duration;

use super::clock::Clock;

/// The longest time that a thread polls for work before it sleeps.
const LOOK_MAX: Duration = Duration::from_micros(100);

/// How many of the last sixteen waits must have been short.
const SHORT_MIN: u32 = 12;

/// The latest waits of one thread.
#[derive(Debug, Default)]
pub(super) struct Patience {
    /// A bit for each wait, set if it was short; the last wait in the lowest bit.
    short: u16,
}

impl Patience {
    /// Waits for work: polls for it, if that has paid lately, then sleeps. `take` returns whether there is any; `sleep`
    /// returns when there may be.
    pub(super) fn wait(&mut self, clock: &Clock, take: impl FnMut() -> bool, sleep: impl FnOnce()) {
        let began = clock.elapsed();
        let is_over = || clock.elapsed().saturating_sub(began) >= LOOK_MAX;
        if !(self.looks() && look(take, is_over)) {
            sleep();
        }
        self.note(!is_over());
    }

    fn looks(&self) -> bool {
        self.short.count_ones() >= SHORT_MIN
    }

    fn note(&mut self, is_short: bool) {
        self.short = self.short << 1 | u16::from(is_short);
    }
}

/// Polls until there is work, or the time is over. Returns whether there was work.
fn look(mut take: impl FnMut() -> bool, is_over: impl Fn() -> bool) -> bool {
    loop {
        if take() {
            return true;
        }
        if is_over() {
            return false;
        }
        thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a thread would poll after these waits.
    fn looks_after(waits: impl IntoIterator<Item = bool>) -> bool {
        let mut patience = Patience::default();
        waits.into_iter().for_each(|is_short| patience.note(is_short));
        patience.looks()
    }

    #[test]
    fn it_looks_where_most_waits_are_short() {
        assert!(!looks_after([]));
        assert!(!looks_after([true; 11]));
        assert!(looks_after([true; 12]));
        assert!(looks_after((0..160).map(|number| number % 4 != 0)));
        assert!(!looks_after((0..160).map(|number| number % 3 != 0)));
    }

    #[test]
    fn it_stops_looking_after_a_few_long_waits_and_looks_again_after_short_ones() {
        let with_long = |long| [true; 16].into_iter().chain(vec![false; long]);
        assert!(looks_after(with_long(4)));
        assert!(!looks_after(with_long(5)));
        assert!(looks_after(with_long(16).chain([true; 12])));
    }

    #[test]
    fn work_that_is_there_is_taken_without_sleeping_only_by_one_who_looks() {
        let clock = Clock::start();
        let mut patience = Patience::default();
        let mut slept = false;
        patience.wait(&clock, || panic!("nobody looks yet"), || slept = true);
        assert!(slept);
        patience.short = u16::MAX;
        patience.wait(&clock, || true, || panic!("there was work"));
    }

    #[test]
    fn one_who_finds_nothing_sleeps() {
        let mut patience = Patience { short: u16::MAX };
        let mut slept = false;
        patience.wait(&Clock::start(), || false, || slept = true);
        assert!(slept);
        assert_eq!(patience.short, u16::MAX << 1, "looking in vain is a long wait");
    }
}
