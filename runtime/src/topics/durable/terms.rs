//! What is said of how long the records and subscriptions of durable topics stay: by a topic itself, or by a filter.

use std::time::Duration;

use millrun_broker::{Filter, TopicName};
use millrun_persistence::TopicRetention;
use millrun_workflow::DurableTopic;

use crate::OpenError;

/// How long the records and subscriptions of durable topics stay that a filter selects: see
/// [`RuntimeBuilder::topic_terms`](crate::RuntimeBuilder::topic_terms). What is not said is left to the topics themselves, to
/// other filters, and to the defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TopicTerms {
    age_max: Option<Duration>,
    bytes_max: Option<u64>,
    len_max: Option<u64>,
    unread_bytes_max: Option<u64>,
    pub(super) subscription_idle_max: Option<Duration>,
}

impl TopicTerms {
    /// Nothing is said.
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

    /// As [`DurableTopic::age_max`].
    #[must_use]
    pub const fn age_max(mut self, age_max: Duration) -> Self {
        self.age_max = Some(age_max);
        self
    }

    /// As [`DurableTopic::bytes_max`], of each topic.
    #[must_use]
    pub const fn bytes_max(mut self, bytes_max: u64) -> Self {
        self.bytes_max = Some(bytes_max);
        self
    }

    /// As [`DurableTopic::len_max`], of each topic.
    #[must_use]
    pub const fn len_max(mut self, len_max: u64) -> Self {
        self.len_max = Some(len_max);
        self
    }

    /// As [`DurableTopic::unread_bytes_max`], of each topic.
    #[must_use]
    pub const fn unread_bytes_max(mut self, unread_bytes_max: u64) -> Self {
        self.unread_bytes_max = Some(unread_bytes_max);
        self
    }

    /// As [`DurableTopic::subscription_idle_max`].
    #[must_use]
    pub const fn subscription_idle_max(mut self, subscription_idle_max: Duration) -> Self {
        self.subscription_idle_max = Some(subscription_idle_max);
        self
    }

    /// What a topic says of itself.
    pub(super) fn of<T>(topic: &DurableTopic<T>) -> Self {
        Self {
            age_max: topic.kept_age_max(),
            bytes_max: topic.kept_bytes_max(),
            len_max: topic.kept_len_max(),
            unread_bytes_max: topic.kept_unread_bytes_max(),
            subscription_idle_max: topic.kept_subscription_idle_max(),
        }
    }

    /// Both together; or the name of a bound of which the two say something else.
    fn and(self, other: Self) -> Result<Self, &'static str> {
        fn one<T: PartialEq>(
            name: &'static str,
            one: Option<T>,
            other: Option<T>,
        ) -> Result<Option<T>, &'static str> {
            match (one, other) {
                (Some(one), Some(other)) if one != other => Err(name),
                (one, other) => Ok(one.or(other)),
            }
        }
        Ok(Self {
            age_max: one("age_max", self.age_max, other.age_max)?,
            bytes_max: one("bytes_max", self.bytes_max, other.bytes_max)?,
            len_max: one("len_max", self.len_max, other.len_max)?,
            unread_bytes_max: one("unread_bytes_max", self.unread_bytes_max, other.unread_bytes_max)?,
            subscription_idle_max: one(
                "subscription_idle_max",
                self.subscription_idle_max,
                other.subscription_idle_max,
            )?,
        })
    }

    /// The retention, with what counts where nothing is said.
    pub(super) fn or(self, default: TopicRetention) -> TopicRetention {
        TopicRetention {
            age_max: self.age_max.unwrap_or(default.age_max),
            bytes_max: self.bytes_max.unwrap_or(default.bytes_max),
            len_max: self.len_max.unwrap_or(default.len_max),
            unread_bytes_max: self.unread_bytes_max.unwrap_or(default.unread_bytes_max),
        }
    }
}

/// The terms of a builder, each with the filter of the topics that they are of.
#[derive(Debug, Default)]
pub(crate) struct TermsByFilter(Vec<(&'static str, Filter, TopicTerms)>);

impl TermsByFilter {
    /// Checks the filters, and that what is said twice of one filter is the same.
    pub(crate) fn new(said: Vec<(&'static str, TopicTerms)>) -> Result<Self, OpenError> {
        let mut terms: Vec<(&'static str, Filter, TopicTerms)> = Vec::with_capacity(said.len());
        for (text, more) in said {
            let filter = Filter::new(text).map_err(|error| OpenError::Topic {
                name: text,
                problem: error.to_string(),
            })?;
            if let Some((_, _, before)) = terms.iter_mut().find(|(before, ..)| *before == text) {
                *before = before
                    .and(more)
                    .map_err(|bound| contradiction(text, bound, text))?;
            } else {
                terms.push((text, filter, more));
            }
        }
        Ok(Self(terms))
    }

    /// What is said of the topic of this name, which says this of itself.
    pub(super) fn of_topic(&self, name: &'static str, own: TopicTerms) -> Result<TopicTerms, OpenError> {
        let mut all = own;
        // A name that the broker would refuse is selected by no filter.
        let Ok(topic) = TopicName::new(name) else {
            return Ok(all);
        };
        for (text, filter, terms) in &self.0 {
            if filter.matches(&topic) {
                all = all
                    .and(*terms)
                    .map_err(|bound| contradiction(name, bound, text))?;
            }
        }
        Ok(all)
    }
}

fn contradiction(name: &'static str, bound: &str, filter: &str) -> OpenError {
    OpenError::TopicContradiction {
        name,
        problem: format!("with two values of {bound}, one of them by the filter {filter:?}"),
    }
}
