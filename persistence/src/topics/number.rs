//! The number by which a journal knows a topic.

use std::fmt;

/// How many numbers a store gives out, those of deleted topics included: keys have no checksum of their own, so a higher
/// number is taken for damage.
pub(crate) const TOPIC_NUMBERS_MAX: u32 = 1 << 20;

/// The number that a journal has given a topic whose records it keeps. It is stored, and never used for another topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopicNumber(u32);

impl TopicNumber {
    /// The topic with this number.
    #[must_use]
    pub fn new(number: u32) -> Self {
        Self(number)
    }

    /// The number.
    #[must_use]
    pub fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for TopicNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "topic {}", self.0)
    }
}
