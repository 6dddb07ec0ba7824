//! A part with its driver's duties: to give it turns, and to report its end once.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use millrun_core::{Bell, Next, OnExit, Part, PartExit, panic_message};

use super::clock::Clock;
use super::parts::{PartNumber, Parts};

/// A part in the hands of its driver, an actor or a thread.
///
/// Whatever becomes of the driver, this reports the end: dropping it is one of the ways to end.
pub(super) struct Driven {
    part: Option<Box<dyn Part>>,
    pub(super) bell: Bell,
    on_exit: Option<OnExit>,
    clock: Clock,
    budget: usize,
    /// The part's name, for log messages. A part has no span: its turns are on the path of each message and step.
    name: Box<str>,
    number: PartNumber,
    parts: Arc<Parts>,
}

impl Driven {
    pub(super) fn new(
        part: Box<dyn Part>,
        bell: Bell,
        on_exit: OnExit,
        (clock, budget): (Clock, usize),
        (number, parts): (PartNumber, Arc<Parts>),
        name: &str,
    ) -> Self {
        Self {
            part: Some(part),
            bell,
            on_exit: Some(on_exit),
            clock,
            budget,
            name: name.into(),
            number,
            parts,
        }
    }

    /// The name that the part was started with.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// One turn. A panic ends the part and is returned as its message.
    ///
    /// A part that has ended returns [`Next::Stop`] from then on.
    pub(super) fn turn(&mut self) -> Result<Next, String> {
        let Some(part) = self.part.as_mut() else {
            return Ok(Next::Stop);
        };
        // After a panic only the part's own `Drop` sees it again, so it need not be unwind safe.
        let turn = catch_unwind(AssertUnwindSafe(|| part.turn(self.clock.now(), self.budget)));
        match turn {
            Ok(Next::Stop) => {
                self.finish(PartExit::Stopped);
                Ok(Next::Stop)
            }
            Ok(next) => Ok(next),
            Err(panic) => {
                let message = panic_message(panic);
                self.finish(PartExit::Panicked(message.clone()));
                Err(message)
            }
        }
    }

    /// Drops the part, then reports its end. Only the first call does anything.
    ///
    /// The bell is disconnected first: the callback may start a successor with the same bell.
    pub(super) fn finish(&mut self, exit: PartExit) {
        let Some(on_exit) = self.on_exit.take() else {
            return;
        };
        self.bell.disconnect();
        let part = self.part.take();
        contain(&self.name, "dropping the part", || drop(part));
        self.parts.unlist(self.number);
        contain(&self.name, "the exit callback of the part", || on_exit(exit));
        self.parts.remove(self.number);
    }
}

impl Drop for Driven {
    fn drop(&mut self) {
        self.finish(PartExit::Stopped);
    }
}

/// Catches a panic of foreign code, so that the driver can finish its own work.
fn contain(part: &str, what: &'static str, code: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(code)) {
        tracing::error!(part, panic = panic_message(panic), "{what} panicked");
    }
}
