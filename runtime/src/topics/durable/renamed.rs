//! Renamed durable topics: the builder's renames, and their application to the store.
//!
//! ```text
//!   former name ──► is it in the store? ──► one commit: the topic, and what its subscriptions have kept
//!        └────────► stays known: histories, and records that were undelivered, say it
//! ```
//!
//! Invariants: all topics are renamed in one commit, or none is. This comes before any declaration, so that a topic that is
//! to be renamed is not made anew under its present name. The number of a topic stays, and with it everything that refers to
//! the number: records, ids, tokens, and the places of subscriptions and runs.

use std::collections::BTreeMap;

use millrun_persistence::{TopicChangeRefused, TopicNumber, TopicRename, TopicStreams, TopicSummary};

use super::declared::DeclaredTopic;
use super::subscription::kept_before;
use crate::OpenError;
use crate::code::workflows::is_reserved;

/// The longest name of a topic, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// Former names of durable topics, each with the present one.
#[derive(Debug, Default)]
pub(crate) struct FormerNames(BTreeMap<&'static str, &'static str>);

impl FormerNames {
    /// Checks the builder's renames against its other topics: those of the broker, and durable ones.
    pub(super) fn checked(
        pairs: &[(&'static str, &'static str)],
        declared: &BTreeMap<&'static str, DeclaredTopic>,
        volatile: &[&'static str],
    ) -> Result<Self, OpenError> {
        let mut names = BTreeMap::new();
        for (former, present) in pairs.iter().copied() {
            if is_reserved(former) {
                let kind = "topic";
                return Err(OpenError::ReservedName { kind, name: former });
            }
            if former.is_empty() || former.len() > NAME_BYTES_MAX {
                let problem = format!("the former name of {present:?} has 1 to {NAME_BYTES_MAX} bytes");
                return Err(OpenError::Topic {
                    name: former,
                    problem,
                });
            }
            let other = names.insert(former, present);
            let is_of = match other {
                Some(other) if other != present => Some(format!("as that of {other:?}")),
                _ if declared.contains_key(former) => Some("as that of a durable topic".to_owned()),
                _ if volatile.contains(&former) => Some("as that of a topic of the broker".to_owned()),
                _ => None,
            };
            if let Some(is_of) = is_of {
                let problem = format!("as the former name of {present:?}, and {is_of}");
                return Err(OpenError::TopicContradiction {
                    name: former,
                    problem,
                });
            }
        }
        Ok(Self(names))
    }

    /// The former names.
    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.0.keys().copied()
    }

    /// The present name of the topic that had this one.
    #[inline]
    pub(super) fn present(&self, former: &str) -> Option<&'static str> {
        match self.0.is_empty() {
            true => None,
            false => self.0.get(former).copied(),
        }
    }

    /// Renames the topics that have a former name in the store, together with the topics of their subscriptions.
    pub(super) fn rename_in(&self, streams: &dyn TopicStreams) -> Result<(), OpenError> {
        let (mut renames, mut pairs) = (Vec::new(), Vec::new());
        let mut stored: Option<Vec<TopicSummary>> = None;
        for (former, name) in self.0.iter().map(|(former, name)| (*former, *name)) {
            let Some(topic) = streams.number(former) else {
                // An earlier opening has renamed it, or it never existed.
                continue;
            };
            let is_twice = pairs.iter().any(|(_, taken)| *taken == name);
            if streams.number(name).is_some() || is_twice {
                return Err(OpenError::TopicNamesTaken { former, name });
            }
            let stored = stored.get_or_insert_with(|| streams.list());
            renames.push(rename(topic, former.to_owned(), name.to_owned()));
            pairs.push((former, name));
            let (before, now) = (kept_before(former), kept_before(name));
            for kept in stored.iter() {
                if let Some(subscription) = kept.name.strip_prefix(&before) {
                    renames.push(rename(
                        kept.number,
                        kept.name.clone(),
                        format!("{now}{subscription}"),
                    ));
                    pairs.push((former, name));
                }
            }
        }
        if renames.is_empty() {
            return Ok(());
        }
        let renamed = streams.rename(&renames, &[]);
        if let Err(refused) = renamed {
            let at = renames.iter().position(|rename| is_about(&refused, rename));
            let (former, name) = pairs[at.unwrap_or(0)];
            return Err(OpenError::TopicNotRenamed {
                former,
                name,
                refused,
            });
        }
        pairs.dedup();
        for (former, name) in pairs {
            tracing::info!(former, name, "a durable topic has another name now");
        }
        Ok(())
    }
}

fn rename(topic: TopicNumber, from: String, to: String) -> TopicRename {
    TopicRename { topic, from, to }
}

/// Whether a rename is the reason for the refusal of all.
fn is_about(refused: &TopicChangeRefused, rename: &TopicRename) -> bool {
    match refused {
        TopicChangeRefused::Unknown { topic } => *topic == rename.topic,
        TopicChangeRefused::Name { name } | TopicChangeRefused::Numbers { name, .. } => *name == rename.to,
        _ => false,
    }
}
