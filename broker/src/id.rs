//! The ids that a broker gives: to envelopes, topics and subscriptions.
//!
//! Invariant: an envelope's id is never zero, so that an `Option` of it takes no more room than an id.

use std::fmt;
use std::num::NonZeroU64;

/// Identifies one envelope: unique within its broker, and with a random start so that ids of two runs of a program seldom
/// collide.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EnvelopeId(NonZeroU64);

impl EnvelopeId {
    /// The id with this number; zero is none.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Option<Self> {
        match NonZeroU64::new(bits) {
            Some(bits) => Some(Self(bits)),
            None => None,
        }
    }

    pub(crate) fn from_counter(number: u64) -> Self {
        // After 2^64 envelopes the counter passes zero once; that envelope shares its id.
        Self(NonZeroU64::new(number).unwrap_or(NonZeroU64::MIN))
    }

    /// The number.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Display for EnvelopeId {
    /// 16 lower-case hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for EnvelopeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EnvelopeId({self})")
    }
}

/// Identifies a topic within its broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicId(pub(crate) u32);

impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "topic-{}", self.0)
    }
}

/// Identifies a subscription within its broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubscriptionId(pub(crate) u64);

impl fmt::Display for SubscriptionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "subscription-{}", self.0)
    }
}
