//! Checkpoints: the code begins again from a state of its own, live as in a replay.
//!
//! ```text
//!   Started ─ … ─ Checkpointed ─ … ─ Checkpointed ─ …      the history
//!                                    └────────────────     what a replay runs the code with
//! ```
//!
//! The code that made a checkpoint is dropped, with everything that it waited for: live as in a replay, the code begins with
//! the state alone. So nothing before the checkpoint is needed to bring the code back.

use std::panic::Location;
use std::sync::Arc;

use millrun_core::Timestamp;

use super::code::RunningCode;
use super::{Instance, Moment};
use crate::context::Decision;
use crate::event::{Checkpoint, Event, ParkReason};
use crate::{Payload, TopicRenames};

/// How many checkpoints the code may make in one turn.
const RESTARTS_MAX: u16 = 100;

impl Instance {
    /// Records a checkpoint and polls the code that begins there.
    pub(super) fn begin_again(
        &mut self,
        state: Payload,
        location: &'static Location<'static>,
        recorded: Timestamp,
        moment: Moment,
        is_whole: bool,
    ) -> Result<Vec<Decision>, ParkReason> {
        self.code = None;
        let checkpoint = self.shared.lock().checkpoint(state, location, is_whole);
        let restarts_len = {
            let mut table = self.shared.lock();
            table.restarts_len += 1;
            table.restarts_len
        };
        if restarts_len > RESTARTS_MAX {
            let message = format!("the code made more than {RESTARTS_MAX} checkpoints without waiting");
            return Err(self.give_up(ParkReason::Stuck { message }));
        }
        let event = Event::Checkpointed(Box::new(checkpoint));
        self.bring_code();
        let run = self.run_code(&event, recorded, moment, is_whole, Vec::new());
        self.shared.lock().restarts_len = 0;
        run
    }

    /// Restores the code from a checkpoint of the history. The ledger has the checkpoint's events already.
    pub(super) fn restore(&mut self, checkpoint: &Checkpoint) {
        let started = self.ledger.started().expect("called after the first event");
        let mut table = self.shared.lock();
        table.time.begin(started.not_before);
        table.id = Some(started.id.clone());
        if let Some(renamed) = self.renamed_topics() {
            table.rename_topics(renamed);
        }
        table.restore(checkpoint);
        drop(table);
        self.bring_code();
    }

    /// Prepares the code for its first poll.
    pub(super) fn begin(&mut self) {
        let started = self.ledger.started().expect("called after the first event");
        let mut table = self.shared.lock();
        table.time.begin(started.not_before);
        table.id = Some(started.id.clone());
        if let Some(renamed) = self.renamed_topics() {
            table.rename_topics(renamed);
        }
        if let Some(origin) = &started.origin
            && !self.is_entity()
        {
            table.carry_signals(&origin.signals);
            table.carry_taken(&origin.taken);
            if let Some(run_try) = &origin.run_try {
                table.begin_with_signals(run_try.first_signals(&origin.signals));
            }
        }
        drop(table);
        self.bring_code();
    }

    /// The former names of topics that the history may use, if there are any.
    pub(super) fn renamed_topics(&self) -> Option<&Arc<TopicRenames>> {
        self.implementation.as_ref()?.renamed_topics()
    }

    fn bring_code(&mut self) {
        let started = self.ledger.started().expect("called after the first event");
        if let Some(implementation) = &self.implementation {
            let spent = self.spent.take();
            let mut code = spent.unwrap_or_else(|| RunningCode::new(implementation));
            code.begin(&self.shared, started.input.clone());
            self.code = Some(code);
        }
    }
}
