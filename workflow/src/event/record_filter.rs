//! Which records of a durable topic a run waits for.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::RawRecord;

/// A filter for records of a durable topic: they must meet all conditions that are set; by default any record does.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RecordFilter {
    /// Which key they have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyFilter>,
    /// The correlation that they have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation: Option<Box<str>>,
}

/// Which key records have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum KeyFilter {
    /// This one.
    Is(Box<str>),
    /// One that begins with this.
    StartsWith(Box<str>),
}

impl KeyFilter {
    /// The key, or its beginning.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Is(text) | Self::StartsWith(text) => text,
        }
    }

    /// Whether this is such a key.
    #[must_use]
    pub fn is_met_by(&self, key: &str) -> bool {
        match self {
            Self::Is(text) => **text == *key,
            Self::StartsWith(text) => key.starts_with(&**text),
        }
    }
}

/// The filter as it follows a topic's name in a sentence; empty for any record.
impl fmt::Display for RecordFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.key {
            None => {}
            Some(KeyFilter::Is(key)) => write!(f, " with the key {key}")?,
            Some(KeyFilter::StartsWith(prefix)) => write!(f, " with a key that begins with {prefix}")?,
        }
        match (&self.correlation, &self.key) {
            (None, _) => Ok(()),
            (Some(correlation), None) => write!(f, " with the correlation {correlation}"),
            (Some(correlation), Some(_)) => write!(f, " and the correlation {correlation}"),
        }
    }
}

impl RecordFilter {
    /// Whether a record meets all conditions.
    #[must_use]
    pub fn is_met_by(&self, record: &RawRecord) -> bool {
        let has_key = |filter: &KeyFilter| {
            let key = record.key.as_deref();
            key.is_some_and(|key| filter.is_met_by(key))
        };
        self.key.as_ref().is_none_or(has_key)
            && (self.correlation.is_none() || self.correlation == record.correlation)
    }
}
