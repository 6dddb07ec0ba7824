//! Runs that are out of time.
//!
//! ```text
//!   first event ──► TimeOutAt ── the world ──► TimeOut ──► TimedOut, unless the run has ended before
//! ```
//!
//! A run that is out of time ends as one that is terminated: without its code, and with all that it has begun undone. It ends so
//! whether its code runs or not.

use super::{Command, InputRefused, Instance, Moment, Turn};
use crate::event::{Event, RunTimeout};

impl Instance {
    /// Has the world say when the run is out of time, if that is bounded.
    #[inline]
    pub(super) fn ask_for_timeout(&self, turn: &mut Turn) {
        if let Some(deadline) = self.ledger.deadline() {
            turn.commands.push(Command::TimeOutAt { at: deadline.at });
        }
    }

    /// Ends the run if it is out of time.
    ///
    /// # Errors
    /// When its time is not bounded.
    pub(super) fn time_out(&mut self, moment: Moment, turn: &mut Turn) -> Result<(), InputRefused> {
        let deadline = self.ledger.deadline().ok_or(InputRefused::Stale)?;
        if deadline.at > moment.now {
            // The clock was set back since it was seen that the time is over.
            self.ask_for_timeout(turn);
            return Ok(());
        }
        let timeout = deadline.timeout;
        // What keeps the code from running would keep that of the next try, too.
        let can_help = timeout == RunTimeout::Run && self.park_reason().is_none() && self.code.is_some();
        let is_tried_again = can_help && self.next_try(moment.now).is_some();
        let next = is_tried_again.then(|| self.next_run(moment.now));
        self.end(Event::TimedOut { timeout, next }, moment.now, turn);
        Ok(())
    }
}
