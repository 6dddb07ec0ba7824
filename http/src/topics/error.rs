//! Why a topic is not exposed.

use millrun::broker::TopicError;

/// Why a topic in memory cannot be exposed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExposeError {
    /// The broker does not have it.
    #[error(transparent)]
    Topic(#[from] TopicError),
    /// The runtime's builder was told of a durable topic of this name. What is published to one in memory would never become a
    /// record: [`Console::expose_durable`](crate::Console::expose_durable) exposes the durable one.
    #[error("the topic {name:?} is durable in this runtime: expose it with expose_durable")]
    Durable {
        /// The name.
        name: &'static str,
    },
}
