//! How a subscription delivers.

use std::time::Duration;

/// The bounds of a durable subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SubscriptionBounds {
    /// How many records it has in hand at most: given to consumers, waiting to be given again, or behind their key.
    pub(crate) in_flight_max: usize,
    /// For how long a record is given to a consumer.
    pub(crate) lease: Duration,
    /// After how many deliveries a record is buried; never without it.
    pub(crate) deliveries_max: Option<u32>,
    /// Whether a key waits while a record of it is in hand.
    pub(crate) is_ordered: bool,
    /// Whether a key waits behind a record of it that is buried, until that is sent back or the key is released.
    pub(crate) holds_keys: bool,
}

/// The most keys that a subscription holds behind buried records.
pub(crate) const HELD_KEYS_MAX: usize = 1_024;

/// The most records that a subscription may have in hand.
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
