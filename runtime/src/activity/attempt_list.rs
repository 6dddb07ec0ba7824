//! The attempts under way, found by their step.
//!
//! The attempt that a pool is polling itself has a separate place: most of those end at once, and never enter the table.

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

/// The longest pause between two recorded heartbeats, which is also the pause without a timeout.
const HEARTBEAT_PAUSE_MAX: Duration = Duration::from_secs(5);

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct AttemptList {
    /// The attempt that has begun, and has no task of its own.
    begun: Option<(Key, Attempt)>,
    beside: HashMap<Key, Attempt, FxBuildHasher>,
}

#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) number: u32,
    pub(super) began_at: Timestamp,
    /// When its time is over.
    pub(super) close_at: Timestamp,
    /// When to look at it next: at the end of its time or of its allowed silence. `None` for an attempt that its pool is
    /// polling: it ends, or waits, before the pool could look.
    pub(super) deadline: Option<Timestamp>,
    pub(super) handle: Option<TaskHandle>,
    /// Only for attempts with heartbeats, a heartbeat timeout, or streams.
    pulse: Option<Box<AttemptPulse>>,
}

/// The heartbeats and the streams of an attempt.
#[derive(Debug, Default)]
struct AttemptPulse {
    /// How long it may be silent.
    silence_max: Option<Duration>,
    heard_at: Timestamp,
    /// The details of its last heartbeat.
    details: Option<Payload>,
    /// When the run was last told.
    told_at: Option<Timestamp>,
    streams: Option<AttemptStreams>,
}

impl AttemptList {
    pub(super) fn len(&self) -> usize {
        self.beside.len() + usize::from(self.begun.is_some())
    }

    /// Lists an attempt that begins; its step has none in the list.
    pub(super) fn begin(&mut self, key: Key, attempt: Attempt) {
        if let Some((key, attempt)) = self.begun.replace((key, attempt)) {
            self.beside.insert(key, attempt);
        }
    }

    /// Removes the attempt that began last, if it is still this one.
    pub(super) fn end_begun(&mut self, key: Key, number: u32) -> Option<Attempt> {
        let is_it = |(begun, attempt): &mut (Key, Attempt)| *begun == key && attempt.number == number;
        self.begun.take_if(is_it).map(|(_, attempt)| attempt)
    }

    /// Moves the attempt that began last into the table: it gets a task of its own.
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

    /// Removes the attempt of a step, if there is one with this number, or any if no number is given.
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
    /// Takes a heartbeat. Returns it if the run has to be told now.
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
    /// An attempt that begins now, and may be silent for `silence_max`.
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

    /// When to look at it next; this becomes its deadline.
    pub(super) fn expect(&mut self) -> Timestamp {
        let silent_at = self.silent_at();
        let deadline = silent_at.map_or(self.close_at, |at| at.min(self.close_at));
        self.deadline = Some(deadline);
        deadline
    }

    /// Takes a heartbeat. Returns its details if the run has to be told now.
    pub(super) fn hear(&mut self, details: Payload, now: Timestamp) -> Option<Payload> {
        self.pulse.get_or_insert_default().beat(details, now)
    }

    /// When it will have been silent for too long.
    pub(super) fn silent_at(&self) -> Option<Timestamp> {
        let pulse = self.pulse.as_ref()?;
        Some(pulse.heard_at + pulse.silence_max?)
    }

    /// The details of its last heartbeat.
    pub(super) fn said(&self) -> Option<&Payload> {
        self.pulse.as_ref()?.details.as_ref()
    }

    /// The report of its end, for its run.
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

    /// Ends its streams. Returns the details of its last heartbeat: the run may not have been told of them.
    pub(super) fn last_words(self, end: AttemptEnd) -> Option<Box<Payload>> {
        let pulse = self.pulse?;
        if let Some(streams) = pulse.streams {
            streams.end(end);
        }
        pulse.details.map(Box::new)
    }

    /// Lists a stream that ends with the attempt.
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

    /// Stops its task: no run waits for it any more.
    pub(super) fn cancel(self) {
        if let Some(handle) = &self.handle {
            handle.abort();
        }
        drop(self.last_words(AttemptEnd::Cancelled));
    }

    /// Stops its task: its outcome is unknown.
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
