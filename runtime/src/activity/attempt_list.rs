//! The attempts under way, found by the step they are of.
//!
//! The one that a pool is polling itself has a place of its own: most of those end where they began,
//! and never come into the table.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use millrun_core::{RunId, TaskHandle, Timestamp};
use millrun_workflow::{OperationId, Payload};
use rustc_hash::FxBuildHasher;

use super::{ActivityReport, AttemptOutcome};
use crate::streams::attempt::{AttemptEnd, AttemptMark, AttemptStreams};
use crate::streams::durable::log::StreamLog;
use crate::streams::table::StreamUse;

/// Names an attempt under way: a step has one at a time.
pub(super) type Key = (RunId, OperationId);

/// How long the pause between two recorded heartbeats is at most, and without a timeout.
const HEARTBEAT_PAUSE_MAX: Duration = Duration::from_secs(5);

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct AttemptList {
    /// The one that has begun and not gone on beside its pool.
    begun: Option<(Key, Attempt)>,
    beside: HashMap<Key, Attempt, FxBuildHasher>,
}

#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) number: u32,
    pub(super) began_at: Timestamp,
    /// When its time is up.
    pub(super) close_at: Timestamp,
    /// When to look at it next: that time, or the end of its silence. An attempt that its pool
    /// is running has none: it has ended, or has to wait, before the pool could look.
    pub(super) deadline: Option<Timestamp>,
    pub(super) handle: Option<TaskHandle>,
    /// Only attempts that have said something, or must, have this.
    pulse: Option<Box<AttemptPulse>>,
}

/// What an attempt says while it works: its heartbeats, and its streams.
#[derive(Debug, Default)]
struct AttemptPulse {
    /// How long it may be silent.
    silence_max: Option<Duration>,
    heard_at: Timestamp,
    /// What it said last.
    details: Option<Payload>,
    /// When the run was told last.
    told_at: Option<Timestamp>,
    streams: Option<AttemptStreams>,
}

impl AttemptList {
    pub(super) fn len(&self) -> usize {
        self.beside.len() + usize::from(self.begun.is_some())
    }

    /// Lists an attempt that begins, of a step that has none.
    pub(super) fn begin(&mut self, key: Key, attempt: Attempt) {
        if let Some((key, attempt)) = self.begun.replace((key, attempt)) {
            self.beside.insert(key, attempt);
        }
    }

    /// Takes the attempt that began last off the list, if it is still this one.
    pub(super) fn end_begun(&mut self, key: Key, number: u32) -> Option<Attempt> {
        let is_it = |(begun, attempt): &mut (Key, Attempt)| *begun == key && attempt.number == number;
        self.begun.take_if(is_it).map(|(_, attempt)| attempt)
    }

    /// The one that began last goes on beside its pool.
    pub(super) fn go_on(&mut self) {
        if let Some((key, attempt)) = self.begun.take() {
            self.beside.insert(key, attempt);
        }
    }

    pub(super) fn get(&self, key: Key) -> Option<&Attempt> {
        match &self.begun {
            Some((begun, attempt)) if *begun == key => Some(attempt),
            _ => self.beside.get(&key),
        }
    }

    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut Attempt> {
        match &mut self.begun {
            Some((begun, attempt)) if *begun == key => Some(attempt),
            _ => self.beside.get_mut(&key),
        }
    }

    /// Takes the attempt of a step off the list, if there is one, and it has this number if one is given.
    pub(super) fn remove(&mut self, key: Key, number: Option<u32>) -> Option<Attempt> {
        let is_it = |attempt: &Attempt| number.is_none_or(|number| number == attempt.number);
        let begun = self
            .begun
            .take_if(|(begun, attempt)| *begun == key && is_it(attempt));
        if let Some((_, attempt)) = begun {
            return Some(attempt);
        }
        self.beside.get(&key).filter(|attempt| is_it(attempt))?;
        self.beside.remove(&key)
    }

    /// The steps with an attempt under way, in no particular order.
    pub(super) fn keys(&self) -> impl Iterator<Item = Key> {
        let begun = self.begun.iter().map(|(key, _)| *key);
        self.beside.keys().copied().chain(begun)
    }

    /// Stops the tasks of all attempts.
    pub(super) fn abort(self) {
        let attempts = self
            .beside
            .into_values()
            .chain(self.begun.map(|(_, attempt)| attempt));
        attempts.for_each(Attempt::abort);
    }
}

impl AttemptPulse {
    /// Hears a heartbeat; gives it back if the run shall be told now.
    fn beat(&mut self, details: Payload, now: Timestamp) -> Option<Payload> {
        self.heard_at = now;
        let pause = self.silence_max.map_or(HEARTBEAT_PAUSE_MAX, |silence_max| {
            (silence_max / 4).min(HEARTBEAT_PAUSE_MAX)
        });
        self.details = Some(details.clone());
        if self.told_at.is_some_and(|at| now.saturating_since(at) < pause) {
            return None;
        }
        self.told_at = Some(now);
        Some(details)
    }
}

impl Attempt {
    /// One that begins now, and may be silent for so long.
    pub(super) fn new(
        number: u32,
        close_at: Timestamp,
        silence_max: Option<Duration>,
        now: Timestamp,
    ) -> Self {
        let pulse = silence_max.map(|_| {
            Box::new(AttemptPulse {
                silence_max,
                heard_at: now,
                ..AttemptPulse::default()
            })
        });
        Self {
            number,
            began_at: now,
            close_at,
            deadline: None,
            handle: None,
            pulse,
        }
    }

    /// When to look at it next: that is its deadline from now on.
    pub(super) fn expect(&mut self) -> Timestamp {
        let silent_at = self.silent_at();
        let deadline = silent_at.map_or(self.close_at, |at| at.min(self.close_at));
        self.deadline = Some(deadline);
        deadline
    }

    /// Hears what it says; gives it back if its run shall be told now.
    pub(super) fn hear(&mut self, details: Payload, now: Timestamp) -> Option<Payload> {
        self.pulse.get_or_insert_default().beat(details, now)
    }

    /// When it has been silent for too long.
    pub(super) fn silent_at(&self) -> Option<Timestamp> {
        let pulse = self.pulse.as_ref()?;
        Some(pulse.heard_at + pulse.silence_max?)
    }

    /// What it said last.
    pub(super) fn said(&self) -> Option<&Payload> {
        self.pulse.as_ref()?.details.as_ref()
    }

    /// How it ended, to be told to its run.
    pub(super) fn report(self, (run, operation): Key, mut outcome: AttemptOutcome) -> ActivityReport {
        let attempt = self.number;
        match &mut outcome {
            Ok(_) => drop(self.last_words(AttemptEnd::Succeeded)),
            Err(failure) => failure.details = self.last_words(AttemptEnd::Failed),
        }
        ActivityReport {
            run,
            operation,
            attempt,
            outcome,
        }
    }

    /// It has ended like this, which ends its streams. What it said last: the run may have been told, or be told later than
    /// of its end.
    pub(super) fn last_words(self, end: AttemptEnd) -> Option<Box<Payload>> {
        let pulse = self.pulse?;
        if let Some(streams) = pulse.streams {
            streams.end(end);
        }
        pulse.details.map(Box::new)
    }

    /// Lists a stream that is to end with it.
    pub(super) fn list_stream(
        &mut self,
        operation: OperationId,
        used: &mut Option<StreamUse>,
        log: Option<&Arc<StreamLog>>,
    ) -> Option<AttemptMark> {
        let number = self.number;
        let streams = &mut self.pulse.get_or_insert_default().streams;
        let streams = streams.get_or_insert_with(|| AttemptStreams::new(operation, number));
        streams.list(used, log)
    }

    /// Stops its task: nobody waits for it any more.
    pub(super) fn cancel(self) {
        if let Some(handle) = &self.handle {
            handle.abort();
        }
        drop(self.last_words(AttemptEnd::Cancelled));
    }

    /// Stops its task: what came of it is not known.
    pub(super) fn abort(self) {
        if let Some(handle) = &self.handle {
            handle.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use millrun_core::InstanceId;

    use super::*;

    fn key(number: u64) -> Key {
        let id = InstanceId::new("order-1").unwrap();
        let run = RunId::new(id.partition(), Timestamp::EPOCH, number);
        (run, OperationId::new(1))
    }

    fn attempt(number: u32) -> Attempt {
        Attempt::new(number, Timestamp::EPOCH, None, Timestamp::EPOCH)
    }

    #[test]
    fn an_attempt_is_found_where_it_began_and_beside_its_pool() {
        let mut list = AttemptList::default();
        list.begin(key(1), attempt(7));
        assert_eq!(list.get(key(1)).map(|attempt| attempt.number), Some(7));
        assert!(list.get(key(2)).is_none());
        list.go_on();
        assert_eq!(list.get_mut(key(1)).map(|attempt| attempt.number), Some(7));
        assert_eq!(list.len(), 1);
        assert!(list.remove(key(1), Some(6)).is_none(), "another attempt");
        assert_eq!(list.remove(key(1), None).map(|attempt| attempt.number), Some(7));
        assert_eq!(list.len(), 0);
    }

    #[test]
    fn one_that_began_is_kept_when_another_begins() {
        let mut list = AttemptList::default();
        list.begin(key(1), attempt(1));
        list.begin(key(2), attempt(2));
        assert_eq!(list.len(), 2);
        assert!(list.remove(key(2), Some(1)).is_none(), "another attempt");
        assert_eq!(list.remove(key(1), None).map(|attempt| attempt.number), Some(1));
        assert_eq!(
            list.remove(key(2), Some(2)).map(|attempt| attempt.number),
            Some(2)
        );
    }
}
