//! A host that takes its time of day from a server: all nodes of a store use one clock, whatever their own clocks show.
//!
//! ```text
//!   server ──(asked with each beat)──► halfway of the round trip it was that time ──► line ──► now = elapsed + offset + ahead
//!   monotonic clock of this machine ──────────────────(elapsed)───────────────────────┘
//!
//!   a part wants a turn at T ──► the host that is wrapped: so long from now, by its own clock
//! ```
//!
//! An answer tells the server's time with an error of up to half its round trip. If the shown time is within that error, it
//! stays; otherwise it moves to the answer: forward at once, and back as [`Clock`](super::clock) does, an eighth slower. The
//! wall clock of this machine is not used.
//!
//! Invariants: the time never runs backwards on one node; the next turn of a run that comes from another node is not dated
//! before its last turn, if that is ahead by at most [`REACHED_MAX`].

use std::sync::Arc;
use std::time::Duration;

use millrun_core::{
    Bell, CrashCheck, Host, Next, OnExit, Part, PartHandle, Placement, SpawnError, Task, TaskHandle,
    Timestamp,
};

use super::clock::{Line, micros, signed};

/// How far the last turn of a run may be ahead for the time to be moved there. Two nodes with one server are closer; a turn
/// that is further ahead was dated by a wrong clock, which must not be followed.
const REACHED_MAX: Duration = Duration::from_secs(1);

/// The longest single wait by the machine's clock, until the rest of the wait is computed anew.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// A server's answer about the time, with the moments of question and answer by the host's monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ToldTime {
    pub(crate) time: Timestamp,
    pub(crate) asked: Duration,
    pub(crate) answered: Duration,
}

impl ToldTime {
    /// Asks a store twice, and returns the more exact answer: the first may have waited for a connection.
    pub(crate) fn ask<E>(
        host: &dyn Host,
        ask: impl Fn() -> Result<Option<Timestamp>, E>,
    ) -> Result<Option<Self>, E> {
        let [first, second] = [Self::ask_once(host, &ask)?, Self::ask_once(host, &ask)?];
        Ok(first
            .into_iter()
            .chain(second)
            .min_by_key(|told| told.half_trip()))
    }

    pub(crate) fn ask_once<E>(
        host: &dyn Host,
        ask: impl Fn() -> Result<Option<Timestamp>, E>,
    ) -> Result<Option<Self>, E> {
        let asked = host.elapsed();
        let time = ask()?;
        let answered = host.elapsed();
        Ok(time.map(|time| Self {
            time,
            asked,
            answered,
        }))
    }

    fn half_trip(&self) -> Duration {
        self.answered.saturating_sub(self.asked) / 2
    }

    /// The server's time minus the time that had elapsed here, in microseconds.
    fn offset(&self) -> i64 {
        signed(self.time.as_micros()) - signed(micros(self.asked + self.half_trip()))
    }
}

/// The host of a node. A cheap clone.
#[derive(Clone, Debug)]
pub(crate) struct ServerTime(Arc<ServerClock>);

#[derive(Debug)]
struct ServerClock {
    host: Arc<dyn Host>,
    line: Line,
}

impl ServerTime {
    /// A host with the time of the server that gave this answer.
    pub(crate) fn new(host: Arc<dyn Host>, told: &ToldTime) -> Self {
        let begun = u64::try_from(told.offset()).unwrap_or(0);
        let line = Line::new(Timestamp::from_micros(begun), Duration::MAX);
        Self(Arc::new(ServerClock { host, line }))
    }

    /// Takes an answer of the server.
    pub(crate) fn hear(&self, told: &ToldTime) {
        let offset = told.offset();
        if offset.abs_diff(self.0.line.offset()) <= micros(told.half_trip()) {
            return;
        }
        let host = Arc::clone(&self.0.host);
        let elapsed = move || micros(host.elapsed());
        let wall = elapsed.clone();
        let wall = move || Timestamp::from_micros(wall().saturating_add_signed(offset));
        self.0.line.look(elapsed, &wall);
    }

    /// Moves the time forward to the last turns of runs that come from another node, so that none of them is dated before its
    /// last turn.
    pub(crate) fn reach(&self, times: impl Iterator<Item = Timestamp>) {
        let now = self.now();
        let latest = times.filter(|time| *time <= now + REACHED_MAX).max();
        if let Some(latest) = latest.filter(|latest| *latest > now) {
            let ServerClock { host, line } = &*self.0;
            line.reach(|| micros(host.elapsed()), latest.as_micros());
        }
    }

    /// When to check, by the clock of the wrapped host, whether this time has come.
    fn at_host(&self, deadline: Timestamp, wait_max: Duration) -> Timestamp {
        let wait = deadline.saturating_since(self.now()).min(wait_max);
        self.0.host.now() + wait
    }
}

impl Host for ServerTime {
    fn now(&self) -> Timestamp {
        let ServerClock { host, line } = &*self.0;
        let (shown, _) = line.read(|| micros(host.elapsed()));
        Timestamp::from_micros(shown)
    }

    fn elapsed(&self) -> Duration {
        self.0.host.elapsed()
    }

    fn random(&self) -> u64 {
        self.0.host.random()
    }

    fn spawn(&self, name: &'static str, task: Task) -> TaskHandle {
        self.0.host.spawn(name, task)
    }

    fn within(&self, work: &mut dyn FnMut()) {
        self.0.host.within(work);
    }

    fn crash_check(&self) -> Option<CrashCheck> {
        self.0.host.crash_check()
    }

    fn sleep_until(&self, deadline: Timestamp) -> Task {
        let time = self.clone();
        Box::pin(async move {
            while time.now() < deadline {
                let look = time.at_host(deadline, WAIT_MAX);
                time.0.host.sleep_until(look).await;
            }
        })
    }

    fn has_threads(&self) -> bool {
        self.0.host.has_threads()
    }

    fn spawn_part(
        &self,
        name: &str,
        placement: Placement,
        bell: Bell,
        part: Box<dyn Part>,
        on_exit: OnExit,
    ) -> Result<PartHandle, SpawnError> {
        let time = self.clone();
        let part = Box::new(PartOnServerTime { part, time });
        self.0.host.spawn_part(name, placement, bell, part, on_exit)
    }
}

/// A part that is given the server's time, on a host with a time of its own.
struct PartOnServerTime {
    part: Box<dyn Part>,
    time: ServerTime,
}

impl Part for PartOnServerTime {
    fn turn(&mut self, _now: Timestamp, budget: usize) -> Next {
        match self.part.turn(self.time.now(), budget) {
            Next::At(deadline) => Next::At(self.time.at_host(deadline, WAIT_MAX)),
            Next::IdleUntil(deadline) => Next::IdleUntil(self.time.at_host(deadline, Duration::MAX)),
            next @ (Next::Idle | Next::Again | Next::Stop) => next,
        }
    }
}

#[cfg(test)]
mod tests;
