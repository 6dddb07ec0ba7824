//! The feed of changes of runs and parts, each told after it is durable.
//!
//! ```text
//!   sweep ── commit ──► its changes, at once ──► ring [ 17 │ 18 │ … │ 90 ] ──► each feed, from where it stands
//!                                       oldest dropped ◄─┘
//! ```
//!
//! Invariants: while no feed is open, nothing is gathered and nothing is kept: a sweep makes one check. A reader that is
//! behind loses the oldest changes, is told how many, and delays nobody. Within the life of a ring, positions have no gaps; a
//! ring begins its life when the first feed is opened.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use millrun_core::{Host, InstanceId, RunId, Timestamp};
use tokio::sync::Notify;

use crate::inner::Inner;
use crate::looking::find::RunStatus;
use crate::{Runtime, StopCause};

/// How many changes are kept for readers that are behind or return.
pub(crate) const CHANGES_LEN_MAX: usize = 8_192;

/// The longest reason or message in a change, in bytes.
const TEXT_BYTES_MAX: usize = 1_024;

/// A durable change of a run or a part.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FeedChange {
    /// Its place in the feed.
    pub position: ChangePosition,
    /// The time of the turn that made it.
    pub at: Timestamp,
    /// What it is.
    pub kind: ChangeKind,
}

/// The kind of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChangeKind {
    /// A run began.
    Started(ChangedRun),
    /// A run ended.
    Ended {
        /// Which.
        run: ChangedRun,
        /// How.
        status: RunStatus,
    },
    /// The code of a run does not run any more; its inputs are recorded.
    Parked {
        /// Which.
        run: ChangedRun,
        /// Parked, paused, or delayed.
        status: RunStatus,
        /// Why; at most 1 KiB of it.
        reason: String,
    },
    /// The code of a run that was parked runs again.
    Resumed(ChangedRun),
    /// A part of the runtime failed. It is restarted, or the runtime stops.
    PartFailed {
        /// Its [name](crate::operating::PartStatus::name).
        part: String,
        /// The message; at most 1 KiB of it.
        message: String,
    },
}

/// The run of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChangedRun {
    /// The id of its instance.
    pub id: InstanceId,
    /// The run.
    pub run: RunId,
    /// The name of its workflow.
    pub workflow: String,
}

impl ChangedRun {
    pub(crate) fn new(id: InstanceId, run: RunId, workflow: String) -> Self {
        Self { id, run, workflow }
    }
}

/// A place in the feed. It can be written as text and read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangePosition {
    /// Random; chosen when the ring began.
    life: u64,
    number: u64,
}

impl fmt::Display for ChangePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{}", self.life, self.number)
    }
}

/// The text is not a [position](ChangePosition): use one from a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangePositionError;

impl fmt::Display for ChangePositionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this is no position that a feed of changes has given")
    }
}

impl std::error::Error for ChangePositionError {}

impl FromStr for ChangePosition {
    type Err = ChangePositionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (life, number) = text.split_once('-').ok_or(ChangePositionError)?;
        let is_hex = life.len() == 16 && life.bytes().all(|digit| digit.is_ascii_hexdigit());
        let is_number = !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit());
        let life = u64::from_str_radix(life, 16).ok().filter(|_| is_hex);
        let number = number.parse().ok().filter(|_| is_number);
        let (life, number) = life.zip(number).ok_or(ChangePositionError)?;
        Ok(Self { life, number })
    }
}

/// The result of one read from a feed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Changes {
    /// In the order in which they became durable, for each shard.
    pub changes: Vec<FeedChange>,
    /// The changes that were lost before the first of these.
    pub lost: Lost,
}

/// The number of changes that a reader has missed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lost {
    /// None.
    #[default]
    Nothing,
    /// This many: the reader was too far behind.
    Counted(u64),
    /// Unknown: since the position behind which it continues, no feed was open for a while, or the runtime was restarted.
    Unknown,
}

/// The feed of changes of a runtime, see [`Runtime::changes`]. It keeps the runtime alive, as a handle does.
#[must_use = "changes are gathered as long as it is open"]
pub struct ChangeFeed {
    inner: Arc<Inner>,
    reader: FeedReader,
}

impl fmt::Debug for ChangeFeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChangeFeed")
            .field("position", &self.position())
            .finish_non_exhaustive()
    }
}

impl Runtime {
    /// Opens a feed of changes: runs that start, end, are parked and resumed, and parts that fail, each once it is durable.
    /// It begins with changes from now on; with `behind`, behind that position of an earlier feed: changes that are still
    /// kept come first, and [`Changes::lost`] has the number of the others.
    ///
    /// 8,192 changes are kept, for all feeds together, while one is open. A reader that is further behind loses the oldest
    /// and is told how many; it delays nobody. While no feed is open, nothing is gathered.
    ///
    /// # Ordering
    /// The changes of one run are in order. A change may come here a little later or earlier than in the answer to a caller.
    ///
    /// ```
    /// use millrun::operating::ChangeKind;
    /// # use millrun::{Runtime, Workflow, WorkflowContext, WorkflowError};
    /// # const DOUBLE: Workflow<u64, u64> = Workflow::named("double");
    /// # async fn double(_cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    /// #     Ok(number * 2)
    /// # }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let runtime = Runtime::volatile().register(DOUBLE, double).start().await?;
    /// let mut feed = runtime.changes(None);
    /// runtime.start(DOUBLE, "d", 21).await?;
    /// let first = feed.next(1).await?;
    /// assert!(matches!(&first.changes[0].kind, ChangeKind::Started(run) if run.id.as_str() == "d"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn changes(&self, behind: Option<ChangePosition>) -> ChangeFeed {
        let inner = Arc::clone(self.inner());
        let shared = &inner.shared;
        let reader = shared.feed.open(behind, shared.host.random());
        ChangeFeed { inner, reader }
    }
}

impl ChangeFeed {
    /// Waits for changes, and returns up to `len_max` of them (at least one).
    ///
    /// # Errors
    /// Why the runtime has stopped, after all earlier changes were returned.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn next(&mut self, len_max: usize) -> Result<Changes, StopCause> {
        loop {
            let feed = Arc::clone(&self.reader.feed);
            let mut told = Box::pin(feed.news.notified());
            // Registered before it looks, so that no change is missed.
            told.as_mut().enable();
            if let Some(changes) = self.try_next(len_max) {
                return Ok(changes);
            }
            let mut stopped = Box::pin(self.inner.stop.stopped());
            let cause = poll_fn(|cx| match told.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(None),
                Poll::Pending => stopped.as_mut().poll(cx).map(Some),
            });
            if let Some(cause) = cause.await {
                return self.try_next(len_max).ok_or(cause);
            }
        }
    }

    /// Changes or a loss that are there already, without waiting; `None` if there are none.
    pub fn try_next(&mut self, len_max: usize) -> Option<Changes> {
        self.reader.take(len_max.max(1))
    }

    /// The position behind which the feed continues; while a loss of unknown size has to be reported, the position from which
    /// it was opened.
    #[must_use]
    pub fn position(&self) -> ChangePosition {
        self.reader.position()
    }
}

/// Changes that the shards and the tree add, and readers take.
#[derive(Debug, Default)]
pub(crate) struct Feed {
    readers_len: AtomicUsize,
    ring: Mutex<ChangeRing>,
    news: Notify,
}

#[derive(Debug, Default)]
struct ChangeRing {
    life: u64,
    /// The number of the first change that is kept.
    first: u64,
    changes: VecDeque<(Timestamp, ChangeKind)>,
}

/// The place of a reader.
#[derive(Debug)]
struct FeedReader {
    feed: Arc<Feed>,
    life: u64,
    /// The number of the next change that it takes.
    next: u64,
    /// The position behind which it was opened, while a loss of unknown size has to be reported.
    unknown_since: Option<ChangePosition>,
}

impl Feed {
    /// Whether there is a reader.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.readers_len.load(Ordering::Relaxed) > 0
    }

    fn lock(&self) -> MutexGuard<'_, ChangeRing> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds durable changes, all at once.
    pub(crate) fn tell(&self, changes: impl IntoIterator<Item = (Timestamp, ChangeKind)>) {
        let mut ring = self.lock();
        if !self.is_open() {
            return;
        }
        for change in changes {
            if ring.changes.len() == CHANGES_LEN_MAX {
                ring.changes.pop_front();
                ring.first += 1;
            }
            ring.changes.push_back(change);
        }
        drop(ring);
        self.news.notify_waiters();
    }

    /// A part has failed.
    pub(crate) fn part_failed(&self, part: &str, message: &str, host: &dyn Host) {
        if self.is_open() {
            let (part, message) = (part.to_owned(), cut(message.to_owned()));
            self.tell([(host.now(), ChangeKind::PartFailed { part, message })]);
        }
    }

    /// Adds a reader; the first one begins a new life of the ring.
    fn open(self: &Arc<Self>, behind: Option<ChangePosition>, life: u64) -> FeedReader {
        let mut ring = self.lock();
        if self.readers_len.fetch_add(1, Ordering::Relaxed) == 0 {
            (ring.life, ring.first) = (life, 1);
        }
        let end = ring.end();
        let is_known = |position: &ChangePosition| position.life == ring.life && position.number < end;
        let (next, unknown_since) = match behind {
            None => (end, None),
            Some(position) if is_known(&position) => (position.number + 1, None),
            Some(position) => (ring.first, Some(position)),
        };
        FeedReader {
            feed: Arc::clone(self),
            life: ring.life,
            next,
            unknown_since,
        }
    }
}

impl ChangeRing {
    /// The number of the next change.
    fn end(&self) -> u64 {
        self.first + self.changes.len() as u64
    }
}

impl FeedReader {
    fn take(&mut self, len_max: usize) -> Option<Changes> {
        let ring = self.feed.lock();
        let missed = ring.first.saturating_sub(self.next);
        let lost = match (self.unknown_since.take(), missed) {
            (Some(_), _) => Lost::Unknown,
            (None, 0) => Lost::Nothing,
            (None, missed) => Lost::Counted(missed),
        };
        let from = self.next.max(ring.first);
        let skipped = usize::try_from(from - ring.first).unwrap_or(usize::MAX);
        let kept = ring.changes.iter().skip(skipped).take(len_max);
        let life = self.life;
        let changes: Vec<_> = (from..)
            .zip(kept)
            .map(|(number, (at, kind))| FeedChange {
                position: ChangePosition { life, number },
                at: *at,
                kind: kind.clone(),
            })
            .collect();
        drop(ring);
        self.next = from + changes.len() as u64;
        (!changes.is_empty() || lost != Lost::Nothing).then_some(Changes { changes, lost })
    }

    /// A position in this ring's life would mean that nothing is missing before it.
    fn position(&self) -> ChangePosition {
        let here = ChangePosition {
            life: self.life,
            number: self.next - 1,
        };
        self.unknown_since.unwrap_or(here)
    }
}

impl Drop for FeedReader {
    fn drop(&mut self) {
        let mut ring = self.feed.lock();
        if self.feed.readers_len.fetch_sub(1, Ordering::Relaxed) == 1 {
            ring.changes = VecDeque::new();
        }
    }
}

/// The beginning of a text, up to the limit for changes.
pub(crate) fn cut(text: String) -> String {
    cut_to(text, TEXT_BYTES_MAX)
}

/// The beginning of a text, if it is longer than `bytes_max`, in a smaller allocation, since the ring keeps thousands of
/// texts.
pub(crate) fn cut_to(text: String, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text;
    }
    text[..text.floor_char_boundary(bytes_max)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(number: usize) -> (Timestamp, ChangeKind) {
        let (part, message) = (number.to_string(), String::new());
        (Timestamp::EPOCH, ChangeKind::PartFailed { part, message })
    }

    fn parts(changes: &Changes) -> Vec<usize> {
        let names = changes.changes.iter().map(|change| match &change.kind {
            ChangeKind::PartFailed { part, .. } => part.parse().unwrap(),
            other => panic!("{other:?}"),
        });
        names.collect()
    }

    #[test]
    fn a_reader_that_is_behind_loses_the_oldest_and_is_told_how_many() {
        let feed = Arc::new(Feed::default());
        let (mut quick, mut slow) = (feed.open(None, 1), feed.open(None, 2));
        feed.tell((0..10).map(part));
        assert_eq!(parts(&quick.take(4).unwrap()), [0, 1, 2, 3]);
        assert_eq!(parts(&quick.take(100).unwrap()), [4, 5, 6, 7, 8, 9]);
        assert_eq!(quick.take(100), None);
        feed.tell((10..CHANGES_LEN_MAX + 5).map(part));
        let late = slow.take(2).unwrap();
        assert_eq!((late.lost, parts(&late)), (Lost::Counted(5), vec![5, 6]));
        assert_eq!(slow.take(1).unwrap().lost, Lost::Nothing);
        assert_eq!(parts(&quick.take(1).unwrap()), [10]);
    }

    #[test]
    fn a_reader_that_comes_again_goes_on_behind_its_position_while_another_reads() {
        let feed = Arc::new(Feed::default());
        let (stays, mut goes) = (feed.open(None, 1), feed.open(None, 2));
        feed.tell((0..3).map(part));
        let position = goes.take(2).unwrap().changes[1].position;
        assert_eq!(goes.position(), position);
        assert_eq!(position.to_string().parse(), Ok(position));
        drop(goes);
        feed.tell((3..5).map(part));
        let mut again = feed.open(Some(position), 3);
        let changes = again.take(10).unwrap();
        assert_eq!((changes.lost, parts(&changes)), (Lost::Nothing, vec![2, 3, 4]));
        drop((stays, again));
        // Nothing was kept meanwhile.
        feed.tell((5..7).map(part));
        assert!(!feed.is_open() && feed.lock().changes.is_empty());
        let mut again = feed.open(Some(position), 3);
        assert_eq!(again.take(10).unwrap().lost, Lost::Unknown);
        feed.tell([part(7)]);
        let changes = again.take(10).unwrap();
        assert_eq!((changes.lost, parts(&changes)), (Lost::Nothing, vec![7]));
    }

    /// Regression: a feed said that it was at the beginning of a new ring before it had reported the gap in front of it. A
    /// feed that was opened behind that position then reported no loss.
    #[test]
    fn a_reader_that_was_not_told_of_its_gap_tells_it_to_the_one_that_goes_on_from_its_position() {
        let feed = Arc::new(Feed::default());
        let mut first = feed.open(None, 1);
        feed.tell([part(0)]);
        let position = first.take(1).unwrap().changes[0].position;
        drop(first);
        let _stays = feed.open(None, 2);
        feed.tell([part(1)]);
        // It ends before anything was taken.
        let untold = feed.open(Some(position), 3);
        assert_eq!(untold.position(), position);
        let position = untold.position();
        drop(untold);
        let mut again = feed.open(Some(position), 4);
        let changes = again.take(1).unwrap();
        assert_eq!((changes.lost, parts(&changes)), (Lost::Unknown, vec![1]));
        // It is only reported once.
        assert_eq!(again.position(), changes.changes[0].position);
        let mut last = feed.open(Some(again.position()), 5);
        feed.tell([part(2)]);
        let changes = last.take(9).unwrap();
        assert_eq!((changes.lost, parts(&changes)), (Lost::Nothing, vec![2]));
    }

    /// Regression: a text that was cut kept the memory of the whole text: 8,192 runs parked with a reason of a megabyte each
    /// held eight gigabytes in the ring.
    #[test]
    fn a_long_text_is_cut_between_characters_and_its_memory_too() {
        let text = cut("ü".repeat(1 << 20));
        assert_eq!(text, "ü".repeat(TEXT_BYTES_MAX / 2));
        assert!(text.capacity() <= TEXT_BYTES_MAX, "{}", text.capacity());
        let text = cut(format!("x{}", "ü".repeat(TEXT_BYTES_MAX)));
        assert_eq!(text.len(), TEXT_BYTES_MAX - 1);
        assert_eq!(cut("short".into()), "short");
    }

    #[test]
    fn a_text_that_is_no_position_is_refused() {
        for text in [
            "",
            "-",
            "0-1",
            "000000000000000g-1",
            "0000000000000000-",
            "0000000000000000-+1",
        ] {
            assert_eq!(text.parse::<ChangePosition>(), Err(ChangePositionError), "{text}");
        }
    }
}
