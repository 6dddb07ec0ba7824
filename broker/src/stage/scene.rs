//! A stage without a broker around it, for tests.

use std::sync::Arc;

use millrun_core::{Bell, Timestamp};

use super::state::BundleBounds;
use super::{Inbox, Stage, Staged};
use crate::delivery::Delivery;
use crate::envelope::Envelope;
use crate::envelope::{Headers, Mark};
use crate::id::{EnvelopeId, TopicId};
use crate::inbox::Envelopes;
use crate::mailbox::{Mailbox, MailboxConfig};

/// Inboxes of numbers, all on one stage.
pub(super) struct Scene {
    pub(super) stage: Arc<Stage<u32>>,
    pub(super) staged: Arc<Staged<u32>>,
    pub(super) inboxes: Vec<Inbox<u32>>,
}

pub(super) fn envelope(number: u32) -> Arc<Envelope<u32>> {
    let mark = Mark {
        id: EnvelopeId::from_counter(u64::from(number)),
        topic: TopicId(1),
        time: Timestamp::EPOCH,
    };
    Arc::new(Envelope::new(mark, Headers::new(), |_| 0, number))
}

impl Scene {
    pub(super) fn new(capacities: &[usize], bundle: usize) -> Self {
        let stage = Arc::new(Stage::new());
        let generation = stage.begin_generation(BundleBounds {
            len: bundle,
            ..BundleBounds::NONE
        });
        let inboxes: Vec<_> = capacities.iter().map(|capacity| inbox(*capacity)).collect();
        for (place, inbox) in inboxes.iter().enumerate() {
            assert_eq!(stage.enter(inbox), place);
        }
        let by_place = inboxes.iter().cloned().map(Some).collect();
        let staged = Staged::new(Arc::clone(&stage), generation, by_place, Box::new([]));
        Self {
            stage,
            staged: Arc::new(staged),
            inboxes,
        }
    }

    /// Pushes to all at once, or, as a topic does, to each of them.
    pub(super) fn push(&self, number: u32) {
        push(&self.staged, &self.inboxes, number);
    }

    pub(super) fn take(&self, place: usize) -> Envelopes<Envelope<u32>> {
        take(&self.inboxes[place])
    }

    pub(super) fn take_all(&self, place: usize) -> Vec<u32> {
        numbers(self.take(place))
    }
}

fn inbox(capacity: usize) -> Inbox<u32> {
    let config = MailboxConfig {
        capacity,
        ..MailboxConfig::default()
    };
    let weigh = |delivery: &Delivery<Envelope<u32>>| delivery.weight();
    Mailbox::weighed(config, weigh, Bell::new()).unwrap()
}

pub(super) fn push(staged: &Staged<u32>, inboxes: &[Inbox<u32>], number: u32) {
    if let Err(envelope) = staged.try_push(envelope(number)) {
        for inbox in inboxes {
            push_to(inbox, Arc::clone(&envelope)).unwrap();
        }
    }
}

/// Pushes by another way than the stage; an error if there is no room.
pub(super) fn push_to(inbox: &Inbox<u32>, envelope: Arc<Envelope<u32>>) -> Result<(), ()> {
    inbox.try_push(Delivery::Shared(envelope)).map_err(drop)
}

pub(super) fn take(inbox: &Inbox<u32>) -> Envelopes<Envelope<u32>> {
    Envelopes::new(inbox.take())
}

pub(super) fn numbers(mut batch: Envelopes<Envelope<u32>>) -> Vec<u32> {
    std::iter::from_fn(|| batch.next_ref().map(|envelope| *envelope.payload())).collect()
}
