//! Why a topic or a subscription cannot be opened.

#[expect(unused_imports, reason = "named by the documentation")]
use super::{Broker, BrokerConfig};
use crate::mailbox::MailboxConfigError;
use crate::name::{NameError, TopicName};

/// Why a topic cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TopicError {
    /// The name breaks a rule.
    #[error("{name:?} is not a topic name")]
    Name {
        /// The given string.
        name: String,
        /// Which rule.
        #[source]
        source: NameError,
    },
    /// The topic carries payloads of another type.
    #[error("topic {topic} carries {declared}, not {wanted}")]
    PayloadType {
        /// The topic.
        topic: TopicName,
        /// The type it was first used with.
        declared: &'static str,
        /// The type asked for.
        wanted: &'static str,
    },
    /// The topic is [durable](Broker::leave_durable): its records are in a journal, and nothing that is published to it
    /// reaches the broker.
    #[error(
        "topic {topic} is durable, so the broker hears nothing of it: use `runtime.durable_topic(..)?`, \
         with `.subscribe(..)` or `.trigger(..)` in place of a subscription"
    )]
    Durable {
        /// The topic.
        topic: TopicName,
    },
    /// There are [`BrokerConfig::topics_max`] topics.
    #[error("the broker has {topics_max} topics, which is its limit")]
    TooMany {
        /// The limit.
        topics_max: usize,
    },
}

/// A topic cannot be [durable](Broker::leave_durable), because the broker's topic of that name is in use: there is a handle
/// to it, or a subscription names it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the broker's topic {topic:?} is in use: a handle is held, or a subscription names it")]
pub struct TopicInUse {
    /// The topic.
    pub topic: String,
}

/// Why a subscription cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubscribeError {
    /// The filter breaks a rule.
    #[error("{filter:?} is not a filter")]
    Filter {
        /// The given string.
        filter: String,
        /// Which rule.
        #[source]
        source: NameError,
    },
    /// The filter names one topic, which cannot be opened.
    #[error(transparent)]
    Topic(#[from] TopicError),
    /// A bound of the inbox is zero.
    #[error(transparent)]
    Inbox(#[from] MailboxConfigError),
    /// The members of the queue group choose in another way.
    #[error("queue group {group:?} chooses its members in another way")]
    GroupChoice {
        /// The group's name.
        group: String,
    },
    /// The broker has been [closed](Broker::close).
    #[error("the broker is closed")]
    Closed,
    /// There are [`BrokerConfig::subscriptions_max`] subscriptions.
    #[error("the broker has {subscriptions_max} subscriptions, which is its limit")]
    TooMany {
        /// The limit.
        subscriptions_max: usize,
    },
}
