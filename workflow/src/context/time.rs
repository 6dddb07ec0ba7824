//! The time that a run's code sees.
//!
//! The host's clock may be set back, while the run lives or between two openings of its store. The code sees the later of the
//! run's time and the host's, so that `cx.now()` never goes back. A new timer counts from the host's time: a run whose time
//! is ahead must not sleep until the host has caught up.
//!
//! ```text
//!   host      10:00  10:05  09:00  09:01         recorded with each event
//!   run       10:00  10:05  10:05  10:05         what `cx.now()` gives; a replay computes it again
//!   sleep 1m                09:01  09:02         deadlines
//! ```

use millrun_core::Timestamp;

/// A run's time, moved by the events that the code is shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunTime {
    shown: Timestamp,
    host: Timestamp,
    /// Whether the run was begun by a release that showed the recorded times unchanged, so that its time may go back.
    goes_back: bool,
}

impl RunTime {
    /// The time of a run that begins at `now` of the host's clock.
    pub(crate) const fn new(now: Timestamp) -> Self {
        Self {
            shown: now,
            host: now,
            goes_back: false,
        }
    }

    /// Takes over the first event's earliest time for the code. `None` is found in histories whose code saw times that went
    /// back; a replay shows the same.
    pub(crate) fn begin(&mut self, not_before: Option<Timestamp>) {
        match not_before {
            Some(not_before) => self.shown = self.shown.max(not_before),
            None => self.goes_back = true,
        }
    }

    /// The code is about to see an event that was recorded at `recorded`, with the host's clock at `host`. The two differ
    /// only for inputs that were recorded while the code did not run.
    #[inline]
    pub(crate) fn advance(&mut self, recorded: Timestamp, host: Timestamp) {
        if self.goes_back {
            (self.shown, self.host) = (recorded, recorded);
        } else {
            (self.shown, self.host) = (self.shown.max(recorded), host);
        }
    }

    /// The time that the code sees.
    pub(crate) const fn shown(&self) -> Timestamp {
        self.shown
    }

    /// The host's time, from which timers and waits count.
    pub(crate) const fn host(&self) -> Timestamp {
        self.host
    }

    /// The time that the code sees, if it differs from the host's: a checkpoint records both.
    pub(crate) fn apart(&self) -> Option<Timestamp> {
        (self.shown != self.host).then_some(self.shown)
    }

    /// The time that the code sees, if it is later than the host's: a run that the code begins must not begin earlier.
    pub(crate) fn ahead(&self) -> Option<Timestamp> {
        self.apart().filter(|shown| *shown > self.host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    #[test]
    fn what_is_shown_never_goes_back_and_the_hosts_time_does() {
        let mut time = RunTime::new(at(10));
        time.begin(Some(at(0)));
        for (host, shown, ahead) in [(15, 15, None), (3, 15, Some(at(15))), (16, 16, None)] {
            time.advance(at(host), at(host));
            assert_eq!(
                (time.host(), time.shown(), time.ahead()),
                (at(host), at(shown), ahead)
            );
        }
    }

    #[test]
    fn a_run_from_before_is_shown_what_was_recorded() {
        let mut time = RunTime::new(at(10));
        time.begin(None);
        for recorded in [15, 3, 16] {
            time.advance(at(recorded), at(99));
            assert_eq!(
                (time.host(), time.shown(), time.ahead()),
                (at(recorded), at(recorded), None)
            );
        }
    }

    #[test]
    fn a_run_begins_no_earlier_than_it_may_and_takes_up_late_what_was_recorded_early() {
        let mut time = RunTime::new(at(10));
        time.begin(Some(at(50)));
        assert_eq!((time.shown(), time.host()), (at(50), at(10)));
        time.advance(at(60), at(90));
        assert_eq!((time.shown(), time.host()), (at(60), at(90)));
        assert_eq!((time.apart(), time.ahead()), (Some(at(60)), None));
    }
}
