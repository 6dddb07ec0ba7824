//! The bounds of a broker.

use std::time::Duration;

/// The bounds of a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BrokerConfig {
    /// The most topics; one is the broker's own. When they are used up, topics that have no handle, no publisher and no
    /// subscription are forgotten. Default 65,536.
    pub topics_max: usize,
    /// The most subscriptions. Default 65,536.
    pub subscriptions_max: usize,
    /// How long a publish may wait before it is reported. It goes on waiting. Default 5 s.
    pub wait_report_after: Duration,
}

impl Default for BrokerConfig {
    fn default() -> Self {
        Self {
            topics_max: 1 << 16,
            subscriptions_max: 1 << 16,
            wait_report_after: Duration::from_secs(5),
        }
    }
}
