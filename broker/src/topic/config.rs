//! How a topic treats its envelopes.

use std::fmt;

/// How a topic treats its envelopes.
pub struct TopicConfig<T> {
    /// How many bytes a payload holds outside of itself. The default knows `Vec<u8>`, `Bytes`, `String` and similar types,
    /// and returns zero for all other types.
    pub weigh: fn(&T) -> usize,
    /// Whether the topic keeps its last envelope and gives it to each new subscription, so that a late subscriber sees the
    /// current state. Publishers of such a topic take turns. Default: no.
    pub retain: bool,
}

impl<T: 'static> Default for TopicConfig<T> {
    fn default() -> Self {
        Self {
            weigh: crate::envelope::bytes_held,
            retain: false,
        }
    }
}

impl<T> fmt::Debug for TopicConfig<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TopicConfig")
            .field("retain", &self.retain)
            .finish_non_exhaustive()
    }
}
