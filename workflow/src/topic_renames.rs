//! Durable topics that have other names in earlier histories.
//!
//! Histories are not rewritten. So wherever topics are compared by name, at a replay and where a run continues in a topic,
//! the present names are compared.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::event::{Event, Name, TakenThrough};

/// The former names of durable topics, as histories have them, each with the topic's present name. Workflow code is told of
/// them by [`Implementation::with_renamed_topics`](crate::Implementation::with_renamed_topics).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicRenames(BTreeMap<&'static str, &'static str>);

impl TopicRenames {
    /// Whether no topic has a former name.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The present name of the topic with this name: the same one, unless it is a former name.
    #[must_use]
    pub fn present<'a>(&self, name: &'a str) -> &'a str {
        self.0.get(name).copied().unwrap_or(name)
    }

    /// The event with the present names, if it is a decision with a former one.
    pub(crate) fn of_decision(&self, event: &Event) -> Option<Event> {
        if let Event::PublishScheduled(scheduled) = event {
            let topic = self.replacing(&scheduled.topic)?;
            let mut scheduled = (**scheduled).clone();
            scheduled.topic = topic;
            return Some(Event::PublishScheduled(scheduled.into()));
        }
        if let Event::ReceiveScheduled(scheduled) = event {
            let topic = self.replacing(&scheduled.topic)?;
            let mut scheduled = (**scheduled).clone();
            scheduled.topic = topic;
            return Some(Event::ReceiveScheduled(scheduled.into()));
        }
        if let Event::Checkpointed(checkpoint) = event {
            let taken = self.of_taken(&checkpoint.taken)?;
            let mut checkpoint = checkpoint.clone();
            checkpoint.taken = taken;
            return Some(Event::Checkpointed(checkpoint));
        }
        None
    }

    /// The places under the present names, in order, if one has a former name.
    pub(crate) fn of_taken(&self, taken: &[TakenThrough]) -> Option<Vec<TakenThrough>> {
        if !taken.iter().any(|taken| self.0.contains_key(&*taken.topic)) {
            return None;
        }
        let mut merged = BTreeMap::new();
        for taken in taken {
            let place = (self.replaced(&taken.topic), taken.filter.clone());
            let sequence = merged.entry(place).or_insert(taken.sequence);
            *sequence = taken.sequence.max(*sequence);
        }
        let renamed = merged
            .into_iter()
            .map(|((topic, filter), sequence)| TakenThrough {
                topic,
                filter,
                sequence,
            });
        Some(renamed.collect())
    }

    /// The present name for this one.
    pub(crate) fn replaced(&self, name: &Name) -> Name {
        self.replacing(name).unwrap_or_else(|| name.clone())
    }

    fn replacing(&self, name: &Name) -> Option<Name> {
        self.0.get(&**name).map(|present| Cow::Borrowed(*present))
    }
}

/// Pairs of a former name and the present one. If a former name occurs twice, the first pair counts.
impl FromIterator<(&'static str, &'static str)> for TopicRenames {
    fn from_iter<I: IntoIterator<Item = (&'static str, &'static str)>>(pairs: I) -> Self {
        let mut names = BTreeMap::new();
        for (former, present) in pairs {
            names.entry(former).or_insert(present);
        }
        Self(names)
    }
}
