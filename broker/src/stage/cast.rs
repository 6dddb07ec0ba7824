//! Which inboxes of a topic are on its stage.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::state::BundleBounds;
use super::{BUNDLES_MIN, INBOXES_MIN, Inbox, Stage, Staged};
use crate::id::SubscriptionId;

/// A topic's stage, if it has one, and the inboxes on it, with their places. Protected by the lock of the topic's lanes.
pub(crate) struct Staging<T> {
    stage: Option<Arc<Stage<T>>>,
    inboxes: BTreeMap<SubscriptionId, (usize, Inbox<T>)>,
}

impl<T: Send + Sync + 'static> Staging<T> {
    pub(crate) const fn new() -> Self {
        Self {
            stage: None,
            inboxes: BTreeMap::new(),
        }
    }

    /// Updates the stage to the present inboxes that may be on it. The result belongs into the route that is stored next;
    /// publishers with an older route do not reach the stage any more.
    pub(crate) fn follow<'i>(
        &mut self,
        shareable: impl Iterator<Item = (SubscriptionId, &'i Inbox<T>)>,
    ) -> Option<Cast<'_, T>> {
        let mut wanted: BTreeMap<SubscriptionId, &Inbox<T>> = shareable.collect();
        if wanted.len() < INBOXES_MIN {
            wanted.clear();
            self.stage.as_ref()?;
        }
        let stage = Arc::clone(self.stage.get_or_insert_with(|| Arc::new(Stage::new())));
        let generation = stage.begin_generation(bounds(wanted.values().copied()));
        self.inboxes.retain(|id, (_, inbox)| {
            let stays = wanted.contains_key(id);
            if !stays {
                inbox.close_inlet();
            }
            stays
        });
        if wanted.is_empty() {
            self.stage = None;
            return None;
        }
        for (id, inbox) in wanted {
            self.inboxes
                .entry(id)
                .or_insert_with(|| (stage.enter(inbox), inbox.clone()));
        }
        Some(Cast {
            stage,
            generation,
            inboxes: &self.inboxes,
        })
    }
}

/// The inboxes on the stage in one generation.
pub(crate) struct Cast<'a, T> {
    stage: Arc<Stage<T>>,
    generation: u64,
    inboxes: &'a BTreeMap<SubscriptionId, (usize, Inbox<T>)>,
}

impl<T> Cast<'_, T> {
    pub(crate) fn has(&self, id: SubscriptionId) -> bool {
        self.inboxes.contains_key(&id)
    }

    /// For the route, in which `others` are the targets that are not on the stage.
    pub(crate) fn beside(self, others: Box<[usize]>) -> Staged<T> {
        let places = self.inboxes.values().map(|(place, _)| *place + 1).max();
        let mut by_place = vec![None; places.unwrap_or(0)];
        for (place, inbox) in self.inboxes.values() {
            by_place[*place] = Some(inbox.clone());
        }
        Staged::new(self.stage, self.generation, by_place.into_boxed_slice(), others)
    }
}

fn bounds<'a, T: 'a>(inboxes: impl Iterator<Item = &'a Inbox<T>>) -> BundleBounds {
    inboxes
        .map(Inbox::bounds)
        .fold(BundleBounds::NONE, |least, inbox| {
            let weight = u32::try_from(inbox.bytes_max / BUNDLES_MIN).unwrap_or(u32::MAX);
            BundleBounds {
                len: least.len.min(inbox.capacity / BUNDLES_MIN),
                weight: least.weight.min(weight),
            }
        })
}
