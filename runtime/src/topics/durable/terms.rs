//! The terms of durable topics, which say how long records and subscriptions stay: set by a topic itself, or by a filter.

use millrun_broker::{Filter, TopicName};
use millrun_persistence::TopicRetention;
use millrun_workflow::TopicTerms;

use crate::OpenError;

/// Both together; or the name of a bound that they set differently.
fn together(one: TopicTerms, other: TopicTerms) -> Result<TopicTerms, &'static str> {
    fn bound<T: PartialEq>(
        name: &'static str,
        one: Option<T>,
        other: Option<T>,
    ) -> Result<Option<T>, &'static str> {
        match (one, other) {
            (Some(one), Some(other)) if one != other => Err(name),
            (one, other) => Ok(one.or(other)),
        }
    }
    let mut all = TopicTerms::new();
    all.age_max = bound("age_max", one.age_max, other.age_max)?;
    all.bytes_max = bound("bytes_max", one.bytes_max, other.bytes_max)?;
    all.len_max = bound("len_max", one.len_max, other.len_max)?;
    all.unread_bytes_max = bound("unread_bytes_max", one.unread_bytes_max, other.unread_bytes_max)?;
    let (one, other) = (one.subscription_idle_max, other.subscription_idle_max);
    all.subscription_idle_max = bound("subscription_idle_max", one, other)?;
    Ok(all)
}

/// The retention by these terms, with defaults where they set nothing.
pub(super) fn retention_by(terms: TopicTerms, default: TopicRetention) -> TopicRetention {
    TopicRetention {
        age_max: terms.age_max.unwrap_or(default.age_max),
        bytes_max: terms.bytes_max.unwrap_or(default.bytes_max),
        len_max: terms.len_max.unwrap_or(default.len_max),
        unread_bytes_max: terms.unread_bytes_max.unwrap_or(default.unread_bytes_max),
    }
}

/// A builder's terms, each with its filter.
#[derive(Debug, Default)]
pub(crate) struct TermsByFilter(Vec<(&'static str, Filter, TopicTerms)>);

impl TermsByFilter {
    /// Checks the filters, and that terms for the same filter are equal.
    pub(crate) fn new(said: Vec<(&'static str, TopicTerms)>) -> Result<Self, OpenError> {
        let mut terms: Vec<(&'static str, Filter, TopicTerms)> = Vec::with_capacity(said.len());
        for (text, more) in said {
            let filter = Filter::new(text).map_err(|error| OpenError::Topic {
                name: text,
                problem: error.to_string(),
            })?;
            if let Some((_, _, before)) = terms.iter_mut().find(|(before, ..)| *before == text) {
                *before = together(*before, more).map_err(|bound| OpenError::TopicContradiction {
                    name: text,
                    problem: format!("as a filter, with two values of {bound}"),
                })?;
            } else {
                terms.push((text, filter, more));
            }
        }
        Ok(Self(terms))
    }

    /// The filters that select none of these topics.
    pub(super) fn of_none<'a>(&'a self, names: &[&str]) -> impl Iterator<Item = &'static str> + 'a {
        let names: Vec<_> = names
            .iter()
            .filter_map(|name| TopicName::new(name).ok())
            .collect();
        let of_none = move |filter: &Filter| !names.iter().any(|name| filter.matches(name));
        self.0
            .iter()
            .filter(move |(_, filter, _)| of_none(filter))
            .map(|(text, ..)| *text)
    }

    /// All terms for the topic of this name, which has these terms itself.
    pub(super) fn of_topic(&self, name: &'static str, own: TopicTerms) -> Result<TopicTerms, OpenError> {
        let mut all = own;
        // No filter selects a name that the broker would refuse.
        let Ok(topic) = TopicName::new(name) else {
            return Ok(all);
        };
        for (text, filter, terms) in &self.0 {
            if filter.matches(&topic) {
                all = together(all, *terms).map_err(|bound| contradiction(name, bound, text))?;
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
