//! The claims of an open store that are not answered yet.

use std::collections::VecDeque;

use millrun_core::{Bell, Epoch, Offset, Partition};

use crate::claim::{Claim, ClaimRefused};
use crate::error::JournalFailure;
use crate::journal::Ringing;

/// The claims that are not answered yet.
#[derive(Debug, Default)]
pub(crate) struct ClaimQueue {
    pub(in crate::redb) waiting: VecDeque<PendingClaim>,
    /// The bell of the part that reads for claims, once there is one.
    pub(in crate::redb) reader: Option<Bell>,
}

/// A claim that has its epochs.
#[derive(Debug)]
pub(in crate::redb) struct PendingClaim {
    pub(in crate::redb) claim: Claim,
    pub(in crate::redb) given: Vec<(Partition, Epoch)>,
    /// Once this offset is in the store, so is all that was queued before the claim.
    pub(in crate::redb) from: Offset,
}

impl ClaimQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(in crate::redb) fn next(&mut self, written: Offset) -> Option<PendingClaim> {
        self.waiting.pop_front_if(|first| first.from <= written)
    }

    /// Refuses all waiting claims: there will be no answer.
    pub(crate) fn refuse(&mut self, failure: &JournalFailure) -> Ringing {
        let mut ringing = Ringing::default();
        for pending in self.waiting.drain(..) {
            ringing.add(pending.claim.refuse(ClaimRefused::Failed(failure.clone())));
        }
        ringing
    }
}
