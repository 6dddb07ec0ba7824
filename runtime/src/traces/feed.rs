//! The feed of spans: passes the traced runs that have ended on to one reader.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::join_all;
use millrun_core::{RunId, Timestamp};
use millrun_persistence::TimeRange;
use millrun_workflow::{RunSpans, SpanBounds};

use crate::inner::Inner;
use crate::looking::find::{RunCursor, RunSearch};
use crate::{RunError, Runtime, StopCause};

/// How many histories are read together, and so how many runs are returned at once, with all spans in memory.
const TOGETHER_LEN: usize = 16;

/// How many finished runs of a former process are examined at once.
const BACK_PAGE_LEN: usize = 100;

/// The bounds of a [feed of spans](Runtime::spans).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpanFeedConfig {
    /// How many ended traced runs may wait, 4,096 by default. At the bound the one that ended first is dropped and counted
    /// ([`RuntimeStats::traced_runs_lost`](crate::operating::RuntimeStats::traced_runs_lost)).
    pub queue_len_max: usize,
    /// How many events of a history are read, 10,000 by default. Further ones before the run's end are skipped, and an
    /// attribute of its span has their number.
    pub events_len_max: usize,
    /// How much detail the spans of a run contain.
    pub bounds: SpanBounds,
    /// For how long before the opening of the feed ended runs are passed on as well, in any order among the others; zero, the
    /// default, for none. After a crash this repeats runs that the former process may or may not have passed on, with the
    /// same ids; a run that ends while the feed is opened may come twice.
    pub look_back: Duration,
    /// How many finished runs are examined for that, traced or not, the latest ended ones; 10,000 by default.
    pub look_back_len_max: usize,
}

impl Default for SpanFeedConfig {
    fn default() -> Self {
        Self {
            queue_len_max: 4_096,
            events_len_max: 10_000,
            bounds: SpanBounds::default(),
            look_back: Duration::ZERO,
            look_back_len_max: 10_000,
        }
    }
}

/// A feed of spans is open already. There is one at a time, since each run is passed on once: drop the other first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a feed of spans is open already")]
pub struct SpanFeedTaken;

/// The spans of ended traced runs, see [`Runtime::spans`]. It keeps the runtime alive, as a handle does.
#[must_use = "runs are gathered as long as it is open"]
pub struct SpanFeed {
    runtime: Runtime,
    config: SpanFeedConfig,
    back: Option<LookBack>,
    /// Runs that were taken and not returned yet: a cancelled call leaves them to the next.
    taken: VecDeque<RunId>,
    /// Whether shards have reported them; the others were found by looking back.
    are_new: bool,
}

/// Finished runs from before the opening.
struct LookBack {
    filter: RunSearch,
    after: Option<RunCursor>,
    left: usize,
}

impl fmt::Debug for SpanFeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpanFeed")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl Drop for SpanFeed {
    fn drop(&mut self) {
        let ends = &self.inner().shared.traced_ends;
        ends.close();
        if self.are_new {
            ends.note_lost(self.taken.len());
        }
    }
}

impl Runtime {
    /// Opens the feed of spans: each traced run that ends from now on is passed on with its spans, made from its history.
    /// Runs are traced if their place in a distributed trace is marked as recorded: by [their
    /// caller](crate::builders::Start::traced), or [by the runtime](crate::RuntimeConfig::traced_per_million). With the
    /// feature `otel`, `export_spans` gives them to an exporter.
    ///
    /// A slow reader delays no run: the oldest waiting ones are dropped and counted. Parts of a history that were
    /// [trimmed](crate::RuntimeConfig::keep_history) have no spans any more.
    ///
    /// ```
    /// use millrun::operating::SpanFeedConfig;
    /// # use millrun::{Runtime, RuntimeConfig, Workflow, WorkflowContext, WorkflowError};
    /// # const DOUBLE: Workflow<u64, u64> = Workflow::named("double");
    /// # async fn double(_cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    /// #     Ok(number * 2)
    /// # }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let runtime = Runtime::volatile().register(DOUBLE, double).start().await?;
    /// let mut feed = runtime.spans(SpanFeedConfig::default())?;
    /// let caller = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".parse()?;
    /// runtime.start(DOUBLE, "d", 21).traced(caller).await?;
    /// let told = feed.next(10).await?;
    /// assert_eq!(told[0].spans[0].name, "double");
    /// assert_eq!(told[0].trace, caller);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When a feed of spans is open already.
    pub fn spans(&self, config: SpanFeedConfig) -> Result<SpanFeed, SpanFeedTaken> {
        let shared = &self.inner().shared;
        if !shared.traced_ends.open(config.queue_len_max) {
            return Err(SpanFeedTaken);
        }
        let now = shared.host.now();
        let back = (!config.look_back.is_zero()).then(|| {
            let back_us = u64::try_from(config.look_back.as_micros()).unwrap_or(u64::MAX);
            let from = Timestamp::from_micros(now.as_micros().saturating_sub(back_us));
            // Without an end, because the clock may have been set back since.
            let ended = TimeRange {
                from,
                until: Timestamp::from_micros(u64::MAX),
            };
            LookBack {
                filter: RunSearch::new().ended(ended),
                after: None,
                left: config.look_back_len_max,
            }
        });
        Ok(SpanFeed {
            runtime: self.clone(),
            config,
            back,
            taken: VecDeque::new(),
            are_new: false,
        })
    }
}

impl SpanFeed {
    fn inner(&self) -> &Arc<Inner> {
        self.runtime.inner()
    }

    /// Waits for ended traced runs, and returns the spans of at least one and at most `len_max` of them; never more than 16,
    /// since all their spans are in memory. A run whose history cannot be read, because retention has dropped it meanwhile,
    /// say, counts as lost.
    ///
    /// # Errors
    /// Why the runtime has stopped. The waiting runs are lost then, and counted when the feed is dropped.
    ///
    /// # Cancel safety
    /// No run is lost when the future is dropped: the next call returns it.
    pub async fn next(&mut self, len_max: usize) -> Result<Vec<RunSpans>, StopCause> {
        let runs = self.next_unless(len_max, || false).await?;
        let runs = runs.expect("it waits until there are some");
        self.inner().shared.traced_ends.note_told(runs.len());
        Ok(runs)
    }

    /// As [`next`](Self::next), without counting the returned runs; `None` when there are none and the reader does not want
    /// to wait.
    pub(super) async fn next_unless(
        &mut self,
        len_max: usize,
        is_over: impl Fn() -> bool,
    ) -> Result<Option<Vec<RunSpans>>, StopCause> {
        let len_max = len_max.clamp(1, TOGETHER_LEN);
        loop {
            let shared = Arc::clone(&self.inner().shared);
            let mut news = Box::pin(shared.traced_ends.news().notified());
            // Registered before the queue is checked, so that no run is missed.
            news.as_mut().enable();
            if self.taken.is_empty() {
                (self.taken, self.are_new) = (shared.traced_ends.take(len_max), true);
            }
            if self.taken.is_empty() && self.back.is_some() {
                (self.taken, self.are_new) = (self.next_back().await?, false);
            }
            if !self.taken.is_empty() {
                let runs = self.read(len_max).await?;
                if !runs.is_empty() {
                    return Ok(Some(runs));
                }
            } else if self.back.is_none() {
                if is_over() {
                    return Ok(None);
                }
                let mut stopped = Box::pin(self.inner().stop.stopped());
                let cause = poll_fn(|cx| match news.as_mut().poll(cx) {
                    Poll::Ready(()) => Poll::Ready(None),
                    Poll::Pending => stopped.as_mut().poll(cx).map(Some),
                });
                if let Some(cause) = cause.await {
                    return Err(cause);
                }
            }
        }
    }

    /// The next finished runs from before the opening of the feed.
    async fn next_back(&mut self) -> Result<VecDeque<RunId>, StopCause> {
        let Some(back) = &mut self.back else {
            return Ok(VecDeque::new());
        };
        let len = back.left.min(BACK_PAGE_LEN);
        if len == 0 {
            self.back = None;
            return Ok(VecDeque::new());
        }
        let page = match self.runtime.find(&back.filter, back.after, len).await {
            Ok(page) => page,
            Err(RunError::Stopped(cause)) => return Err(cause),
            Err(error) => {
                tracing::warn!(%error, "runs that ended before cannot be found: their spans are not told");
                self.back = None;
                return Ok(VecDeque::new());
            }
        };
        back.left -= len;
        back.after = page.next;
        if back.after.is_none() {
            self.back = None;
        }
        Ok(page.runs.into_iter().map(|run| run.run).collect())
    }

    /// The spans of the first runs that were taken, as far as these are traced and can be read. Runs that shards have
    /// reported count as lost if they cannot.
    async fn read(&mut self, len_max: usize) -> Result<Vec<RunSpans>, StopCause> {
        let (inner, config) = (self.inner(), &self.config);
        let some: Vec<_> = self.taken.iter().take(len_max).copied().collect();
        let reads = some.iter().map(|run| {
            let spans = inner
                .shared
                .reader
                .spans(*run, config.bounds, config.events_len_max);
            inner.view(spans)
        });
        let read = join_all(reads).await;
        // Nothing is awaited after this: what leaves `taken` is returned.
        let mut all = Vec::with_capacity(some.len());
        let mut lost = 0;
        for (run, spans) in some.iter().zip(read) {
            match spans {
                Ok(Some(spans)) => all.push(spans),
                Ok(None) => {}
                Err(RunError::Stopped(cause)) => return Err(cause),
                Err(error) if self.are_new => {
                    tracing::warn!(%run, %error, "the spans of a run cannot be made: its history is not read");
                    lost += 1;
                }
                Err(_) => {}
            }
        }
        inner.shared.traced_ends.note_lost(lost);
        self.taken.drain(..some.len());
        Ok(all)
    }
}
