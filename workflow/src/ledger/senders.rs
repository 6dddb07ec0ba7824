//! Which signals of other runs a run has recorded: the operations that have sent them.
//!
//! ```text
//!   sender: SignalScheduled ──► sent, and after a crash again ──► RunSignalReceived, once
//!                                                └── known ─────► nothing is recorded; it is told so again
//! ```
//!
//! A sender asks again only until the answer is durable in its own history, so the latest are enough. Those of runs
//! that this one continues, and of before a checkpoint, are among them.

use std::collections::{BTreeSet, VecDeque};

use millrun_core::Cause;

use super::Ledger;

/// The memory of a run. Most runs have none.
#[derive(Clone, Debug, Default)]
pub(super) struct Senders {
    known: BTreeSet<Cause>,
    /// The same, the oldest first.
    order: VecDeque<Cause>,
}

impl Ledger {
    pub(super) fn remember_sender(&mut self, sender: Cause) {
        let senders = &mut self.remembered.get_or_insert_default().senders;
        if senders.known.insert(sender) {
            senders.order.push_back(sender);
        }
    }

    /// Whether a signal that this operation of another run, or of this one, has sent is known to be recorded.
    #[must_use]
    pub fn knows_sender(&self, sender: &Cause) -> bool {
        let remembered = self.remembered.as_ref();
        remembered.is_some_and(|remembered| remembered.senders.known.contains(sender))
    }

    /// Forgets the oldest senders, as long as there are more than `len_max`.
    pub(crate) fn forget_senders(&mut self, len_max: usize) {
        let Some(remembered) = &mut self.remembered else {
            return;
        };
        let senders = &mut remembered.senders;
        while senders.order.len() > len_max
            && let Some(oldest) = senders.order.pop_front()
        {
            senders.known.remove(&oldest);
        }
        let is_empty = senders.order.is_empty() && remembered.updates.standings.is_empty();
        if is_empty && remembered.signal_requests.is_empty() {
            self.remembered = None;
        }
    }

    /// The latest senders, up to `len_max`, the oldest first.
    pub(crate) fn senders(&self, len_max: usize) -> Vec<Cause> {
        let Some(remembered) = &self.remembered else {
            return Vec::new();
        };
        let order = &remembered.senders.order;
        order
            .iter()
            .skip(order.len().saturating_sub(len_max))
            .copied()
            .collect()
    }

    /// About how many bytes of memory the senders take.
    pub(crate) fn senders_memory_bytes(&self) -> usize {
        // Each is kept twice, once in a tree.
        const SENDER_BYTES: usize = 3 * size_of::<Cause>();
        let remembered = self.remembered.as_ref();
        remembered.map_or(0, |remembered| remembered.senders.order.len() * SENDER_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use millrun_core::{Partition, RunId, Timestamp};

    use super::*;

    fn sender(operation: u32) -> Cause {
        let run = RunId::new(Partition::of(b"sender"), Timestamp::EPOCH, 1);
        Cause { run, operation }
    }

    #[test]
    fn the_latest_senders_are_known_and_older_ones_are_forgotten() {
        let mut ledger = Ledger::new();
        for operation in [1, 2, 3, 2, 4] {
            ledger.remember_sender(sender(operation));
        }
        assert_eq!(ledger.senders(9), [1, 2, 3, 4].map(sender));
        ledger.forget_senders(2);
        let known = [1, 2, 3, 4].map(|operation| ledger.knows_sender(&sender(operation)));
        assert_eq!(known, [false, false, true, true]);
        assert_eq!(ledger.senders(1), [sender(4)]);
        ledger.forget_senders(0);
        assert!(!ledger.knows_sender(&sender(4)));
    }
}
