//! The durable output streams of a store by run and name, and the topic numbers that are free for the next streams.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millrun_core::RunId;
use millrun_persistence::{Journal, TopicChangeRefused, TopicNumber, TopicRefused, TopicRetention};
use rustc_hash::FxBuildHasher;

use super::sender::DurableStreamError;
use crate::topics::durable::declared::KnownTopic;

/// The prefix of the names of topics in which streams are kept; the run and the stream's name follow.
const KEPT_BEFORE: &str = "millrun.output ";
/// The prefix of the names of topics whose number is free for the next stream; the number follows.
const FREE_BEFORE: &str = "millrun.output-free ";
/// The longest name of a durable output stream in bytes: together with the run it makes the name of a topic.
pub const DURABLE_STREAM_NAME_BYTES_MAX: usize = 200;

/// Names a stream.
pub(crate) type KeptStreamKey = (RunId, Arc<str>);

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct DurableOutputs {
    /// Whether there may be streams; without any, the lock is not taken.
    has_any: AtomicBool,
    lists: Mutex<Lists>,
    /// Locked while a task looks for room; counts the looks that have begun.
    pub(super) looking: tokio::sync::Mutex<()>,
    pub(super) looks_begun: AtomicU64,
}

#[derive(Debug, Default)]
struct Lists {
    kept: HashMap<KeptStreamKey, KnownTopic, FxBuildHasher>,
    free: Vec<TopicNumber>,
    /// Whether the task that removes streams was started, with the first stream.
    is_removing: bool,
}

/// The name of the topic in which a stream is kept.
pub(super) fn kept_name(run: RunId, name: &str) -> String {
    format!("{KEPT_BEFORE}{run} {name}")
}

fn free_name(number: TopicNumber) -> String {
    format!("{FREE_BEFORE}{}", number.get())
}

/// The stream that is kept in the topic of this name.
fn stream_of(name: &str) -> Option<KeptStreamKey> {
    let (run, name) = name.strip_prefix(KEPT_BEFORE)?.split_once(' ')?;
    let is_run = run.len() == 32;
    let bits = u128::from_str_radix(run, 16).ok().filter(|_| is_run)?;
    Some((RunId::from_bits(bits)?, name.into()))
}

impl DurableOutputs {
    /// The streams of a store.
    pub(crate) fn of(journal: &dyn Journal) -> Self {
        let mut lists = Lists::default();
        if let Some(streams) = journal.topics() {
            let store = streams.store_number();
            for topic in streams.list() {
                let number = topic.number;
                if let Some(key) = stream_of(&topic.name) {
                    lists.kept.insert(key, KnownTopic { number, store });
                } else if topic.name == free_name(number) {
                    lists.free.push(number);
                }
            }
        }
        Self {
            has_any: AtomicBool::new(!lists.kept.is_empty()),
            lists: Mutex::new(lists),
            looking: tokio::sync::Mutex::default(),
            looks_begun: AtomicU64::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Lists> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        !self.has_any.load(Ordering::Acquire)
    }

    /// Returns true once, when the task that removes streams has to be started.
    pub(super) fn starts_removing(&self) -> bool {
        !std::mem::replace(&mut self.lock().is_removing, true)
    }

    /// The topic in which this stream is kept, if any.
    pub(crate) fn get(&self, key: &KeptStreamKey) -> Option<KnownTopic> {
        if self.is_empty() {
            return None;
        }
        self.lock().kept.get(key).copied()
    }

    /// The names of this run's streams, in no particular order.
    pub(crate) fn of_run(&self, run: RunId) -> Vec<Arc<str>> {
        if self.is_empty() {
            return Vec::new();
        }
        let lists = self.lock();
        let names = lists.kept.keys().filter(|(of, _)| *of == run);
        names.map(|(_, name)| Arc::clone(name)).collect()
    }

    /// All streams, in no particular order.
    pub(super) fn all(&self) -> Vec<(KeptStreamKey, KnownTopic)> {
        let lists = self.lock();
        let all = lists.kept.iter().map(|(key, known)| (key.clone(), *known));
        all.collect()
    }

    /// Makes a stream in the journal. There may be at most `len_max`.
    pub(super) fn add(
        &self,
        key: &KeptStreamKey,
        len_max: usize,
        journal: &dyn Journal,
    ) -> Result<KnownTopic, DurableStreamError> {
        let streams = journal.topics().ok_or(DurableStreamError::NotKept)?;
        let store = streams.store_number();
        let name = kept_name(key.0, &key.1);
        let retention = TopicRetention::unbounded();
        let mut lists = self.lock();
        if let Some(known) = lists.kept.get(key) {
            return Ok(*known);
        }
        if lists.kept.len() >= len_max {
            return Err(DurableStreamError::TooMany { len_max });
        }
        let mut given = None;
        while given.is_none()
            && let Some(number) = lists.free.pop()
        {
            match streams.replace(number, &free_name(number), &name, retention) {
                Ok(_) => given = Some(number),
                // Another runtime on this journal has taken it meanwhile.
                Err(TopicChangeRefused::Unknown { .. }) => {}
                Err(TopicChangeRefused::Failed(failure)) => {
                    lists.free.push(number);
                    return Err(DurableStreamError::Failed(failure));
                }
                // The name exists already: another runtime on this journal has had the run.
                Err(_) => {
                    lists.free.push(number);
                    break;
                }
            }
        }
        let number = match given {
            Some(number) => number,
            None => streams
                .declare(&name, retention)
                .map_err(|refused| match refused {
                    TopicRefused::TooMany { max } => DurableStreamError::TooMany { len_max: max },
                    refused => DurableStreamError::Refused(refused),
                })?,
        };
        let known = KnownTopic { number, store };
        lists.kept.insert(key.clone(), known);
        self.has_any.store(true, Ordering::Release);
        Ok(known)
    }

    /// Removes a stream: its records are dropped, and its number is free for the next stream. Returns whether it existed and
    /// could be removed now.
    pub(super) fn remove(&self, key: &KeptStreamKey, journal: &dyn Journal) -> bool {
        let Some(streams) = journal.topics() else {
            return false;
        };
        let mut lists = self.lock();
        let Some(known) = lists.kept.get(key).copied() else {
            return false;
        };
        let (from, to) = (kept_name(key.0, &key.1), free_name(known.number));
        let retention = TopicRetention::unbounded();
        let is_free = match streams.replace(known.number, &from, &to, retention) {
            Ok(_) => true,
            // It was removed already.
            Err(TopicChangeRefused::Unknown { .. }) => false,
            // A journal that cannot replace topics has to delete them.
            Err(TopicChangeRefused::Unsupported) if streams.delete(&[known.number]).is_ok() => false,
            Err(_) => return false,
        };
        lists.kept.remove(key);
        if is_free {
            lists.free.push(known.number);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use millrun_core::{Partition, Timestamp};
    use millrun_persistence::{JournalConfig, MemoryJournal};

    use super::*;

    fn key(run: u64, name: &str) -> KeptStreamKey {
        let partition = Partition::from_index(5).unwrap();
        (RunId::new(partition, Timestamp::EPOCH, run), name.into())
    }

    #[test]
    fn the_name_of_a_topic_says_the_stream() {
        for name in [
            "tokens",
            "a b",
            "",
            "ü",
            &"n".repeat(DURABLE_STREAM_NAME_BYTES_MAX),
        ] {
            let key = key(7, name);
            let kept = kept_name(key.0, name);
            assert!(kept.len() <= 255, "{}", kept.len());
            assert_eq!(stream_of(&kept), Some(key));
        }
        for other in [
            "millrun.output x y",
            "millrun.output-free 3",
            "orders",
            "millrun.output ",
        ] {
            assert_eq!(stream_of(other), None, "{other}");
        }
    }

    #[test]
    fn numbers_of_removed_streams_are_given_again_also_behind_an_opening() {
        let journal = MemoryJournal::new(JournalConfig::default()).unwrap();
        let outputs = DurableOutputs::of(&journal);
        assert!(outputs.is_empty());
        let first = outputs.add(&key(1, "a"), 2, &journal).unwrap();
        let second = outputs.add(&key(1, "b"), 2, &journal).unwrap();
        assert_ne!(first.number, second.number);
        assert_eq!(
            outputs.add(&key(1, "a"), 2, &journal).unwrap().number,
            first.number
        );
        let refused = outputs.add(&key(2, "a"), 2, &journal);
        assert!(matches!(refused, Err(DurableStreamError::TooMany { len_max: 2 })));
        assert!(outputs.remove(&key(1, "a"), &journal));
        assert!(
            !outputs.remove(&key(1, "a"), &journal),
            "it is not there any more"
        );
        assert!(outputs.get(&key(1, "a")).is_none());

        let outputs = DurableOutputs::of(&journal);
        assert_eq!(outputs.all().len(), 1);
        for run in 2..50 {
            let known = outputs.add(&key(run, "a"), 2, &journal).unwrap();
            assert_eq!(known.number, first.number);
            assert!(outputs.remove(&key(run, "a"), &journal));
        }
        assert_eq!(journal.topics().unwrap().list().len(), 2);
    }
}
