//! Typed names of topics whose records a journal keeps.

use std::fmt;
use std::time::Duration;

use crate::Topic;

/// A topic whose records the journal keeps, until retention drops them; made by [`Topic::durable`].
///
/// Retention that is not set is as by default: 7 days and 10,000,000 records, and 1 GiB, or 16 MiB in a runtime whose journal
/// is in memory. The bound that is reached first drops the earliest records.
///
/// ```
/// use std::time::Duration;
///
/// use millrun_workflow::{DurableTopic, Topic};
///
/// const PLACED: DurableTopic<u64> = Topic::named("orders.placed")
///     .durable()
///     .age_max(Duration::from_secs(30 * 24 * 3_600))
///     .bytes_max(8 << 30);
/// assert_eq!(PLACED.topic().name(), "orders.placed");
/// assert_eq!(PLACED.terms().bytes_max, Some(8 << 30));
/// assert_eq!(PLACED.terms().len_max, None);
/// ```
pub struct DurableTopic<T> {
    topic: Topic<T>,
    terms: TopicTerms,
}

/// How long the records and subscriptions of durable topics stay: set by a topic for itself, or by a runtime's builder for
/// all topics of a filter. `None`: not set here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopicTerms {
    /// See [`DurableTopic::age_max`].
    pub age_max: Option<Duration>,
    /// See [`DurableTopic::bytes_max`]; of each topic.
    pub bytes_max: Option<u64>,
    /// See [`DurableTopic::len_max`]; of each topic.
    pub len_max: Option<u64>,
    /// See [`DurableTopic::unread_bytes_max`]; of each topic.
    pub unread_bytes_max: Option<u64>,
    /// See [`DurableTopic::subscription_idle_max`].
    pub subscription_idle_max: Option<Duration>,
}

impl TopicTerms {
    /// Terms without any setting.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            age_max: None,
            bytes_max: None,
            len_max: None,
            unread_bytes_max: None,
            subscription_idle_max: None,
        }
    }

    /// See [`DurableTopic::age_max`].
    #[must_use]
    pub const fn age_max(mut self, age_max: Duration) -> Self {
        self.age_max = Some(age_max);
        self
    }

    /// See [`DurableTopic::bytes_max`]; of each topic.
    #[must_use]
    pub const fn bytes_max(mut self, bytes_max: u64) -> Self {
        self.bytes_max = Some(bytes_max);
        self
    }

    /// See [`DurableTopic::len_max`]; of each topic.
    #[must_use]
    pub const fn len_max(mut self, len_max: u64) -> Self {
        self.len_max = Some(len_max);
        self
    }

    /// See [`DurableTopic::unread_bytes_max`]; of each topic.
    #[must_use]
    pub const fn unread_bytes_max(mut self, unread_bytes_max: u64) -> Self {
        self.unread_bytes_max = Some(unread_bytes_max);
        self
    }

    /// See [`DurableTopic::subscription_idle_max`].
    #[must_use]
    pub const fn subscription_idle_max(mut self, subscription_idle_max: Duration) -> Self {
        self.subscription_idle_max = Some(subscription_idle_max);
        self
    }
}

impl<T> Topic<T> {
    /// The same topic as a durable one, whose records the journal keeps. Register it with the runtime by its builder's
    /// `durable_topic`.
    #[must_use]
    pub const fn durable(self) -> DurableTopic<T> {
        DurableTopic {
            topic: self,
            terms: TopicTerms::new(),
        }
    }
}

impl<T> DurableTopic<T> {
    /// Keeps records until they are as old as this.
    #[must_use]
    pub const fn age_max(mut self, age_max: Duration) -> Self {
        self.terms = self.terms.age_max(age_max);
        self
    }

    /// Keeps up to this many bytes of the latest records; each counts 20 to 36 bytes beside its payload. With zero a runtime
    /// does not start.
    #[must_use]
    pub const fn bytes_max(mut self, bytes_max: u64) -> Self {
        self.terms = self.terms.bytes_max(bytes_max);
        self
    }

    /// Keeps up to this many of the latest records. With zero a runtime does not start.
    #[must_use]
    pub const fn len_max(mut self, len_max: u64) -> Self {
        self.terms = self.terms.len_max(len_max);
        self
    }

    /// Keeps records that a durable subscription has not acknowledged, beyond the bounds above, while the records behind the
    /// subscription's place have fewer bytes than this, counted as by [`bytes_max`](Self::bytes_max). The slowest
    /// subscription of the topic counts, whether a consumer has it open or not. At the bound the earliest records are dropped
    /// after all, and the subscription is told how many. By default nothing is held back.
    #[must_use]
    pub const fn unread_bytes_max(mut self, unread_bytes_max: u64) -> Self {
        self.terms = self.terms.unread_bytes_max(unread_bytes_max);
        self
    }

    /// Lets a durable subscription of the topic expire that has not been used for this long: no record acknowledged, and not
    /// open. Its place is then forgotten, as if it were removed. At least a second; by default a subscription never expires.
    ///
    /// A subscription that is open, by a consumer, a delivery or a trigger, does not expire: it renews its use in the store
    /// at each eighth of this time. It expires between 9 and 10 eighths of this time after the last use in the store, and no
    /// sooner than an eighth of it after the start of a runtime, so that a program that was away finds its place if it opens
    /// the subscription at once.
    #[must_use]
    pub const fn subscription_idle_max(mut self, subscription_idle_max: Duration) -> Self {
        self.terms = self.terms.subscription_idle_max(subscription_idle_max);
        self
    }

    /// The topic, without its terms.
    #[must_use]
    pub const fn topic(&self) -> Topic<T> {
        self.topic
    }

    /// The topic's terms: how long its records and subscriptions stay.
    #[must_use]
    pub const fn terms(&self) -> TopicTerms {
        self.terms
    }
}

impl<T> Clone for DurableTopic<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for DurableTopic<T> {}

impl<T> fmt::Debug for DurableTopic<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DurableTopic")
            .field("name", &self.topic.name())
            .field("terms", &self.terms)
            .finish()
    }
}

/// What a workflow publishes to: a [`Topic`], or a [`DurableTopic`].
pub trait PublishTarget: sealed::Sealed {
    /// What the topic carries.
    type Payload;

    /// The topic's name.
    fn name(&self) -> &'static str;
}

impl<T> PublishTarget for Topic<T> {
    type Payload = T;

    fn name(&self) -> &'static str {
        Topic::name(self)
    }
}

impl<T> PublishTarget for DurableTopic<T> {
    type Payload = T;

    fn name(&self) -> &'static str {
        self.topic.name()
    }
}

mod sealed {
    /// Implemented only by topics, so that more can be required of them later.
    pub trait Sealed {}

    impl<T> Sealed for super::Topic<T> {}
    impl<T> Sealed for super::DurableTopic<T> {}
}
