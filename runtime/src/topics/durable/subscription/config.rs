//! How a subscription delivers.

use std::time::Duration;

/// The bounds of a durable subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SubscriptionBounds {
    /// The largest number of records in hand: delivered, waiting to be delivered again, or behind another record of their
    /// key.
    pub(crate) in_flight_max: usize,
    /// How long a delivery lasts.
    pub(crate) lease: Duration,
    /// After how many deliveries a record is buried; `None` for never.
    pub(crate) deliveries_max: Option<u32>,
    /// Whether a key waits while one of its records is in hand.
    pub(crate) is_ordered: bool,
    /// Whether a key waits behind one of its records that is buried, until that is sent back or the key is released.
    pub(crate) holds_keys: bool,
}

/// How many keys a subscription holds at most behind buried records.
pub(crate) const HELD_KEYS_MAX: usize = 1_024;

/// The largest number of records that a subscription may have in hand.
pub(crate) const IN_FLIGHT_MAX: usize = 16_384;

impl Default for SubscriptionBounds {
    fn default() -> Self {
        Self {
            in_flight_max: 1_024,
            lease: Duration::from_secs(30),
            deliveries_max: None,
            is_ordered: true,
            holds_keys: false,
        }
    }
}
