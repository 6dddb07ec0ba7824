//! A record of what ran when.

use std::collections::VecDeque;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use millrun_core::{Next, PartExit, Timestamp};

/// The steps of a world, in order. Two traces are equal if all their steps were, also those that are not kept any more.
///
/// Prints one step a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    starts_at: Timestamp,
    count: u64,
    digest: u64,
    latest: VecDeque<Step>,
    len_max: usize,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Step {
    /// When.
    pub at: Timestamp,
    /// The name of the part or task.
    pub name: Arc<str>,
    /// Distinguishes parts and tasks of the same name: a number, in the order of their starts.
    pub number: u64,
    /// What happened to it.
    pub action: Action,
}

/// What happens to a part or a task.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// A part had a turn with this budget, and asked for this.
    Turn(usize, Next),
    /// A part ended.
    Exit(PartExit),
    /// A task was polled and waits.
    Pending,
    /// A task was polled and has finished.
    Finished,
    /// A task was polled and panicked.
    Panicked,
    /// A task was aborted.
    Aborted,
    /// The world crashed.
    Crash,
}

impl Hash for Action {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.to_string().hash(state);
    }
}

impl Trace {
    pub(super) const fn new(starts_at: Timestamp, len_max: usize) -> Self {
        Self {
            starts_at,
            count: 0,
            digest: 0,
            latest: VecDeque::new(),
            len_max,
        }
    }

    pub(super) fn push(&mut self, step: Step) {
        let mut hasher = DefaultHasher::new();
        (self.digest, &step).hash(&mut hasher);
        self.digest = hasher.finish();
        self.count += 1;
        self.latest.push_back(step);
        if self.latest.len() > self.len_max {
            self.latest.pop_front();
        }
    }

    /// How many steps there were.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// One number for all steps. Comparable among programs built by the same compiler.
    #[must_use]
    pub const fn digest(&self) -> u64 {
        self.digest
    }

    /// The latest steps, oldest first; how many is a limit of the world.
    pub fn latest(&self) -> impl ExactSizeIterator<Item = &Step> {
        self.latest.iter()
    }

    /// The last `count` lines of what this prints.
    pub(super) fn tail(&self, count: usize) -> String {
        let skipped = self.latest.len().saturating_sub(count);
        self.latest
            .iter()
            .skip(skipped)
            .map(|step| self.line(step))
            .collect()
    }

    fn line(&self, step: &Step) -> String {
        let since = step.at.saturating_since(self.starts_at);
        let (seconds, micros) = (since.as_secs(), since.subsec_micros());
        format!(
            "{seconds:>8}.{micros:06} {}#{} {}\n",
            step.name, step.number, step.action
        )
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.tail(usize::MAX))
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Turn(budget, Next::At(at)) => write!(f, "turn({budget}) → at {at}"),
            Self::Turn(budget, Next::IdleUntil(at)) => write!(f, "turn({budget}) → idle until {at}"),
            Self::Turn(budget, next) => write!(f, "turn({budget}) → {next:?}"),
            Self::Exit(PartExit::Stopped) => f.write_str("stopped"),
            Self::Exit(PartExit::Panicked(message)) => write!(f, "panicked: {message}"),
            Self::Pending => f.write_str("poll → pending"),
            Self::Finished => f.write_str("poll → finished"),
            Self::Panicked => f.write_str("poll → panicked"),
            Self::Aborted => f.write_str("aborted"),
            Self::Crash => f.write_str("crash"),
        }
    }
}
