//! Reuses the memory of ended runs for new ones: an instance needs half a dozen allocations, and most live for milliseconds.

use std::sync::Arc;

use millrun_core::RunId;

use super::{Instance, Limits, Moment, Turn};
use crate::context::Decision;
use crate::event::{Event, ParkReason, Started};
use crate::registry::Implementation;

/// How many ended instances are kept for reuse at most, one or two kilobytes each.
const INSTANCES_MAX: usize = 1_024;

/// Buffers that a turn lends to the code that it polls or begins next.
#[derive(Debug, Default)]
pub(super) struct Spare {
    /// For decisions, so that a waiting instance needs no memory of its own for them.
    pub(super) decisions: Vec<Decision>,
    #[expect(clippy::vec_box, reason = "the boxes are what is kept")]
    instances: Vec<Box<Instance>>,
}

#[cfg(test)]
impl Spare {
    pub(super) const fn instances_len(&self) -> usize {
        self.instances.len()
    }
}

impl PartialEq for Spare {
    /// Spare memory does not count in a comparison of turns.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Turn {
    /// Drops an instance and keeps its memory for one that [begins](Instance::start_in) with this turn later. The run's state
    /// is dropped now; only its workflow is remembered.
    pub fn recycle(&mut self, mut instance: Box<Instance>) {
        if self.spare.instances.len() < INSTANCES_MAX && instance.clear() {
            self.spare.instances.push(instance);
        }
    }
}

impl Instance {
    /// As [`start`](Self::start), in the memory of a [recycled](Turn::recycle) instance, if there is one.
    pub fn start_in(
        turn: &mut Turn,
        implementation: Option<&Implementation>,
        run: RunId,
        started: Started,
        limits: Limits,
        moment: Moment,
    ) -> Box<Self> {
        let Some(mut instance) = turn.spare.instances.pop() else {
            return Box::new(Self::start(implementation, run, started, limits, moment, turn));
        };
        instance.run = run;
        instance.limits = limits;
        let shared = Arc::get_mut(&mut instance.shared).expect("nobody else had it when it was cleared");
        shared.renew(run, limits.bounds(), moment.now);
        instance.begin_with(implementation, started, moment, turn);
        instance
    }

    /// Clears everything but keeps the memory. `false` if a part of it is still held elsewhere.
    fn clear(&mut self) -> bool {
        const OPERATIONS_MAX: usize = 16;
        const CODE_BYTES_MAX: usize = 1_024;
        self.code = None;
        // The code's memory is kept with its workflow, so that the next run can tell whether to use it.
        self.spent.take_if(|spent| spent.memory_bytes() > CODE_BYTES_MAX);
        self.unrecorded = None;
        self.deferred = Vec::new();
        self.changed_values = 0;
        self.ledger.clear();
        let is_small = self.ledger.capacity() <= OPERATIONS_MAX;
        is_small && Arc::get_mut(&mut self.shared).is_some_and(|shared| shared.clear(OPERATIONS_MAX))
    }

    pub(super) fn begin_with(
        &mut self,
        implementation: Option<&Implementation>,
        mut started: Started,
        moment: Moment,
        turn: &mut Turn,
    ) {
        started.bounds = self.limits.bounds();
        if let Some(implementation) = implementation {
            started.version = implementation.version();
        }
        let start_at = started.start_at();
        let event = Event::Started(started);
        self.ledger.apply(&event, moment.now);
        self.ledger
            .forget_senders(usize::from(self.limits.senders_len_max));
        turn.events.push(event);
        self.attach(implementation);
        match start_at.filter(|at| *at > moment.now) {
            // A run without code is parked for that; it is delayed once it has code.
            Some(until) if self.implementation.is_some() => self.park(ParkReason::Delayed { until }),
            _ => self.begin(),
        }
        self.take_up(moment, turn);
        self.ask_for_timeout(turn);
    }
}
