//! What a shard asks of the timers, sent in one message.
//!
//! Invariant: the timers get the commands in the order in which they were asked, and only durable ones: a command is added
//! when the effects of a sweep are performed, or when a recovered run is taken in.

use crate::timers::{TimerCommand, TimersDoor};

/// Commands that have not been sent yet.
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
