//! What a shard wants of the timers, sent to them together.
//!
//! Invariant: the timers get what was wanted in its order, and nothing that is not durable: it is wanted when the
//! effects of a sweep are performed, or when a recovered run is taken in.

use crate::timers::{TimerCommand, TimersDoor};

/// What was not sent yet.
#[derive(Debug, Default)]
pub(in crate::shard) struct Alarms(Vec<TimerCommand>);

impl Alarms {
    #[inline]
    pub(in crate::shard) fn want(&mut self, command: TimerCommand) {
        self.0.push(command);
    }

    #[inline]
    pub(in crate::shard) fn send(&mut self, timers: &TimersDoor) {
        if !self.0.is_empty() {
            timers.send(std::mem::take(&mut self.0));
        }
    }
}
