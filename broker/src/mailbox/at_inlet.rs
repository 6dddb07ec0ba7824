//! The inlet of a mailbox: opening, closing, the room that it reports, and ringing the consumer.

use std::sync::Arc;

use super::Mailbox;
use super::inlet::{Inflow, Inlet, Reach};
use super::state::Limits;

impl<T> Mailbox<T> {
    /// Connects the mailbox to `inflow`, so that it also gets the values that wait there from the point that `enter` returns;
    /// returns the mailbox's place in the inflow.
    pub(crate) fn open_inlet(&self, inflow: Arc<dyn Inflow<T>>, enter: impl FnOnce() -> Reach) -> usize {
        let mut state = self.lock();
        state.close_inlet();
        let reach = enter();
        state.inlet = Some(Box::new(Inlet::new(inflow, reach)));
        reach.place
    }

    /// Disconnects what [`Mailbox::open_inlet`] has connected; values that have come so far are let in.
    pub(crate) fn close_inlet(&self) {
        self.lock().close_inlet();
    }

    /// Up to which value, and up to which weight, there is room for values from the inlet. `None` if there is no inlet, or
    /// pushers wait for the room.
    pub(crate) fn room_at_inlet(&self) -> Option<(u64, u64)> {
        let mut state = self.lock();
        let reach = *state.inlet.as_ref()?.reach();
        if !state.waiting.is_empty() {
            return None;
        }
        self.look_at_hand(&mut state);
        let Limits { capacity, bytes_max } = self.0.limits;
        let places = capacity.saturating_sub(state.places + state.hand_places);
        let bytes = bytes_max.saturating_sub(state.weight + state.hand_weight + state.spent.weight());
        Some((
            reach.values + places as u64,
            reach.weight.saturating_add(bytes as u64),
        ))
    }

    /// Rings the consumer, because a value waits at the inlet.
    pub(crate) fn call_to_inlet(&self) {
        let consumer = self.lock().consumer.take();
        self.call(consumer);
    }
}
