//! Typed names of topics whose records a journal keeps.

use std::fmt;
use std::time::Duration;

use crate::Topic;

/// A topic whose records the journal keeps, until retention drops them; made by [`Topic::durable`].
///
/// What is not said of retention is as by default: 7 days and 10,000,000 records, and 1 GiB, or 16 MiB in a runtime
/// whose journal is in memory. The bound that is reached first drops the earliest records.
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
/// assert_eq!(PLACED.kept_bytes_max(), Some(8 << 30));
/// assert_eq!(PLACED.kept_len_max(), None);
/// ```
pub struct DurableTopic<T> {
    topic: Topic<T>,
    age_max: Option<Duration>,
    bytes_max: Option<u64>,
    len_max: Option<u64>,
    unread_bytes_max: Option<u64>,
    subscription_idle_max: Option<Duration>,
}

impl<T> Topic<T> {
    /// The same topic, whose records the journal keeps. A runtime is told of it with its builder's `durable_topic`.
    #[must_use]
    pub const fn durable(self) -> DurableTopic<T> {
        DurableTopic {
            topic: self,
            age_max: None,
            bytes_max: None,
            len_max: None,
            unread_bytes_max: None,
            subscription_idle_max: None,
        }
    }
}

impl<T> DurableTopic<T> {
    /// Keeps records until they are as old as this.
    #[must_use]
    pub const fn age_max(mut self, age_max: Duration) -> Self {
        self.age_max = Some(age_max);
        self
    }

    /// Keeps the latest records of as many bytes, 20 to 36 counted for each beside what it carries. A runtime that is
    /// told zero does not start.
    #[must_use]
    pub const fn bytes_max(mut self, bytes_max: u64) -> Self {
        self.bytes_max = Some(bytes_max);
        self
    }

    /// Keeps as many of the latest records. A runtime that is told zero does not start.
    #[must_use]
    pub const fn len_max(mut self, len_max: u64) -> Self {
        self.len_max = Some(len_max);
        self
    }

    /// Keeps what a durable subscription has not acknowledged beyond the bounds above, as long as the records behind it have fewer
    /// bytes than this, counted as by [`bytes_max`](Self::bytes_max). The slowest subscription of the topic counts, whether a
    /// consumer has it open or not; at the bound the earliest records are dropped all the same, and it is told how many. By
    /// default nothing is held back.
    #[must_use]
    pub const fn unread_bytes_max(mut self, unread_bytes_max: u64) -> Self {
        self.unread_bytes_max = Some(unread_bytes_max);
        self
    }

    /// Lets a durable subscription of the topic expire that nobody has used for this long: neither acknowledged a record nor had
    /// it open. Its place is forgotten then, as if it were removed. At least a second; by default a subscription never
    /// expires.
    ///
    /// A subscription that is open, by a consumer, a delivery or a trigger, does not expire, and says so in the store each eighth
    /// of this time. It expires between 9 and 10 eighths of this time behind what the store knows, and no sooner than an
    /// eighth of it behind the start of a runtime, so that a program that was away finds its places when it opens them at once.
    #[must_use]
    pub const fn subscription_idle_max(mut self, subscription_idle_max: Duration) -> Self {
        self.subscription_idle_max = Some(subscription_idle_max);
        self
    }

    /// The topic, without what is said of its records.
    #[must_use]
    pub const fn topic(&self) -> Topic<T> {
        self.topic
    }

    /// The age up to which records stay, if it was said.
    #[must_use]
    pub const fn kept_age_max(&self) -> Option<Duration> {
        self.age_max
    }

    /// How many bytes of records stay, if it was said.
    #[must_use]
    pub const fn kept_bytes_max(&self) -> Option<u64> {
        self.bytes_max
    }

    /// How many records stay, if it was said.
    #[must_use]
    pub const fn kept_len_max(&self) -> Option<u64> {
        self.len_max
    }

    /// Up to how many bytes records are held back that a subscription has not acknowledged, if it was said.
    #[must_use]
    pub const fn kept_unread_bytes_max(&self) -> Option<u64> {
        self.unread_bytes_max
    }

    /// After which time an unused subscription expires, if it was said.
    #[must_use]
    pub const fn kept_subscription_idle_max(&self) -> Option<Duration> {
        self.subscription_idle_max
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
            .field("age_max", &self.age_max)
            .field("bytes_max", &self.bytes_max)
            .field("len_max", &self.len_max)
            .field("unread_bytes_max", &self.unread_bytes_max)
            .field("subscription_idle_max", &self.subscription_idle_max)
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
    /// Implemented by topics alone, so that what a publish needs of one may grow.
    pub trait Sealed {}

    impl<T> Sealed for super::Topic<T> {}
    impl<T> Sealed for super::DurableTopic<T> {}
}
