//! The durable topics that are registered with a runtime, as its journal knows them.

use std::any::{TypeId, type_name};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use millrun_broker::Broker;
use millrun_persistence::{Journal, TopicNumber, TopicRetention};
use millrun_workflow::{DurableTopic, TopicTerms};

use super::news::TopicNews;
use super::receiving::RecordWaits;
use super::renamed::FormerNames;
use super::subscription::OpenSubscriptions;
use super::terms::{TermsByFilter, retention_by};
use crate::OpenError;
use crate::code::workflows::is_reserved;

/// What a builder was told of a durable topic.
#[derive(Clone, Debug)]
pub(crate) struct DeclaredTopic {
    pub(crate) name: &'static str,
    /// The topic's own terms: how long its records and subscriptions stay.
    said: TopicTerms,
    /// The terms together with those set by filters.
    terms: TopicTerms,
    payload: TypeId,
    payload_name: &'static str,
}

/// The shortest time after which an unused subscription may expire.
const IDLE_MAX_LEAST: Duration = Duration::from_secs(1);

impl DeclaredTopic {
    pub(crate) fn new<T: 'static>(topic: DurableTopic<T>) -> Self {
        let said = topic.terms();
        Self {
            name: topic.topic().name(),
            said,
            terms: said,
            payload: TypeId::of::<T>(),
            payload_name: type_name::<T>(),
        }
    }

    /// How another declaration of the same name contradicts this one, if it does.
    fn contradiction(&self, other: &Self) -> Option<String> {
        if self.payload != other.payload {
            let (one, two) = (self.payload_name, other.payload_name);
            return Some(format!("once with records of type {one}, once of type {two}"));
        }
        (self.said != other.said)
            .then(|| "with two terms: bounds of its records or subscriptions differ".to_owned())
    }
}

/// Why there is no handle to a durable topic.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DurableTopicError {
    /// The topic is not registered with the runtime's builder: see
    /// [`RuntimeBuilder::durable_topic`](crate::RuntimeBuilder::durable_topic).
    #[error("the builder of this runtime was told of no durable topic {name:?}")]
    NotDeclared {
        /// The name.
        name: String,
    },
    /// The topic was registered in another way: with another type of records, or another retention.
    #[error("the durable topic {name:?} is declared in two ways: {problem}")]
    Contradiction {
        /// The name.
        name: String,
        /// The difference.
        problem: String,
    },
}

/// A durable topic in its journal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KnownTopic {
    pub(crate) number: TopicNumber,
    pub(crate) store: u64,
}

/// The durable topics of a runtime.
#[derive(Debug, Default)]
pub(crate) struct DurableTopics {
    by_name: BTreeMap<&'static str, (KnownTopic, DeclaredTopic)>,
    /// Former names that histories may use.
    former: FormerNames,
    /// Empty if no topic is declared, until another topic of the store is used.
    news: OnceLock<Arc<TopicNews>>,
    /// The topics that were deleted here; the flag says whether there are any.
    has_deleted: AtomicBool,
    deleted: Mutex<Vec<TopicNumber>>,
    pub(crate) subscriptions: OpenSubscriptions,
    /// The waits of runs for records.
    pub(crate) waits: RecordWaits,
}

impl DurableTopics {
    /// Renames and declares them in the journal, and reserves their names at the broker. `volatile` are the names of the
    /// topics registered with the broker; `default` applies where neither a topic nor a filter sets a bound.
    pub(crate) fn declare(
        (declared, renamed): (Vec<DeclaredTopic>, &[(&'static str, &'static str)]),
        by_filter: &TermsByFilter,
        (broker, volatile): (&Broker, &[&'static str]),
        journal: &Arc<dyn Journal>,
        default: TopicRetention,
    ) -> Result<Self, OpenError> {
        let mut by_name: BTreeMap<&'static str, DeclaredTopic> = BTreeMap::new();
        for mut topic in declared {
            let name = topic.name;
            if is_reserved(name) {
                return Err(OpenError::ReservedName { kind: "topic", name });
            }
            let mut problem = volatile
                .contains(&name)
                .then(|| "as a topic of the broker and as a durable one".to_owned());
            if let Some(other) = by_name.get(name) {
                problem = problem.or_else(|| other.contradiction(&topic));
            }
            if let Some(problem) = problem {
                return Err(OpenError::TopicContradiction { name, problem });
            }
            topic.terms = by_filter.of_topic(name, topic.said)?;
            if (topic.terms.subscription_idle_max).is_some_and(|idle_max| idle_max < IDLE_MAX_LEAST) {
                return Err(OpenError::Config {
                    field: "subscription_idle_max",
                    problem: format!("of the topic {name:?} must be at least a second"),
                });
            }
            by_name.insert(name, topic);
        }
        for filter in by_filter.of_none(&by_name.keys().copied().collect::<Vec<_>>()) {
            tracing::warn!(
                filter,
                "what is said by this filter counts for no durable topic: it selects none"
            );
        }
        let former = FormerNames::checked(renamed, &by_name, volatile)?;
        let left = broker.leave_durable(by_name.keys().copied().chain(former.names()));
        if let Err(in_use) = left
            && let Some(name) =
                (by_name.keys().copied().chain(former.names())).find(|name| *name == &*in_use.topic)
        {
            let problem = format!("as a durable one, and {in_use}");
            return Err(OpenError::TopicContradiction { name, problem });
        }
        let Some((first, _)) = by_name.first_key_value() else {
            return Ok(Self::default());
        };
        let streams = journal.topics().ok_or(OpenError::TopicsNotKept { name: first })?;
        former.rename_in(streams)?;
        let store = streams.store_number();
        let mut known = BTreeMap::new();
        for (name, topic) in by_name {
            let number = streams
                .declare(name, retention_by(topic.terms, default))
                .map_err(|refused| OpenError::TopicRefused { name, refused })?;
            known.insert(name, (KnownTopic { number, store }, topic));
        }
        Ok(Self {
            by_name: known,
            former,
            news: OnceLock::from(TopicNews::of(journal)),
            has_deleted: AtomicBool::new(false),
            deleted: Mutex::default(),
            subscriptions: OpenSubscriptions::default(),
            waits: RecordWaits::default(),
        })
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// The number of the durable topic of this name, if the runtime has it.
    #[inline]
    pub(crate) fn number(&self, name: &str) -> Option<TopicNumber> {
        if self.by_name.is_empty() {
            return None;
        }
        self.named(name).map(|known| known.number)
    }

    /// The durable topic with this present or former name.
    pub(crate) fn named(&self, name: &str) -> Option<KnownTopic> {
        let found = self.by_name.get(name);
        let found = found.or_else(|| self.by_name.get(self.former.present(name)?));
        found.map(|(known, _)| *known)
    }

    /// The present name of the durable topic with this name: the same, unless it was renamed.
    pub(crate) fn present_name<'a>(&self, name: &'a str) -> &'a str {
        self.former.present(name).unwrap_or(name)
    }

    /// After what time an unused subscription of the topic expires, if it does.
    pub(super) fn subscription_idle_max(&self, name: &str) -> Option<Duration> {
        let (_, declared) = self.by_name.get(name)?;
        declared.terms.subscription_idle_max
    }

    /// The topics whose unused subscriptions expire, each with the time.
    pub(crate) fn with_idle_max(&self) -> impl Iterator<Item = (&'static str, KnownTopic, Duration)> + '_ {
        self.by_name.iter().filter_map(|(name, (known, declared))| {
            let idle_max = declared.terms.subscription_idle_max?;
            Some((*name, *known, idle_max))
        })
    }

    /// All topics in the order of their names, each with the name of its record type, if that is not `T`.
    pub(super) fn carrying<T: 'static>(
        &self,
    ) -> impl Iterator<Item = (&'static str, KnownTopic, Option<&'static str>)> + '_ {
        self.by_name.iter().map(|(name, (known, declared))| {
            let is_other = declared.payload != TypeId::of::<T>();
            (*name, *known, is_other.then_some(declared.payload_name))
        })
    }

    /// The topic with exactly this declaration.
    pub(crate) fn known<T: 'static>(&self, topic: DurableTopic<T>) -> Result<KnownTopic, DurableTopicError> {
        let topic = DeclaredTopic::new(topic);
        let name = || topic.name.to_owned();
        let Some((known, declared)) = self.by_name.get(topic.name) else {
            return Err(DurableTopicError::NotDeclared { name: name() });
        };
        match declared.contradiction(&topic) {
            Some(problem) => Err(DurableTopicError::Contradiction {
                name: name(),
                problem,
            }),
            None => Ok(*known),
        }
    }

    /// Where readers wait for news; `None` if no topic is durable.
    pub(crate) fn news(&self) -> Option<&Arc<TopicNews>> {
        self.news.get()
    }

    /// Where callers wait for news, also if no topic is declared.
    pub(crate) fn news_of(&self, journal: &Arc<dyn Journal>) -> &Arc<TopicNews> {
        self.news.get_or_init(|| TopicNews::of(journal))
    }

    /// Notes that this topic was deleted.
    pub(super) fn delete(&self, number: TopicNumber) {
        let mut deleted = self.deleted.lock().unwrap_or_else(PoisonError::into_inner);
        if self.by_name.values().any(|(known, _)| known.number == number) && !deleted.contains(&number) {
            deleted.push(number);
        }
        self.has_deleted.store(true, Ordering::Release);
    }

    /// Whether this topic was deleted by this runtime.
    #[inline]
    pub(crate) fn is_deleted(&self, number: TopicNumber) -> bool {
        self.has_deleted.load(Ordering::Acquire) && self.is_among_deleted(number)
    }

    #[cold]
    fn is_among_deleted(&self, number: TopicNumber) -> bool {
        let deleted = self.deleted.lock().unwrap_or_else(PoisonError::into_inner);
        deleted.contains(&number)
    }

    /// Their names and numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'static str, TopicNumber)> + '_ {
        self.by_name
            .iter()
            .map(|(name, (known, _))| (*name, known.number))
    }
}
