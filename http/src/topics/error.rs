//! Why a topic cannot be exposed.

use millrun::broker::TopicError;

/// Why a topic in memory cannot be exposed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExposeError {
    /// The broker refuses the topic.
    #[error(transparent)]
    Topic(#[from] TopicError),
    /// A durable topic of this name is registered with the runtime's builder. A value published to a topic in memory would
    /// never become a record: use [`Console::expose_durable`](crate::Console::expose_durable) for the durable one.
    #[error("the topic {name:?} is durable in this runtime: expose it with expose_durable")]
    Durable {
        /// The name.
        name: &'static str,
    },
}
