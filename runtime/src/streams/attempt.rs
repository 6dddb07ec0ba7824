//! The streams of an attempt under way; they end with it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millrun_workflow::OperationId;

use super::durable::log::StreamLog;
use super::table::StreamUse;

/// The attempt that a chunk belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct StreamAttempt {
    /// The step: the number of the call within its run.
    pub operation: OperationId,
    /// The number of the attempt, as in [`ActivityContext::attempt`](crate::ActivityContext::attempt).
    pub attempt: u32,
}

/// How an attempt ended, as told to readers of its streams. They are told when the attempt has ended, perhaps before that is
/// durable in the history: only the [result](crate::RunHandle::result) of the run tells what came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AttemptEnd {
    /// It returned a value.
    Succeeded,
    /// It failed, panicked, or was out of time. Another one may follow.
    Failed,
    /// It is not waited for any more: its call was cancelled, or its run has ended.
    Cancelled,
    /// Its outcome is unknown: its process has ended, another process has its run now, or another attempt has taken its
    /// place.
    Lost,
}

impl fmt::Display for AttemptEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Lost => "lost",
        })
    }
}

/// The streams that an attempt has opened. When it is dropped, they end as [lost](AttemptEnd::Lost).
#[derive(Debug)]
pub(crate) struct AttemptStreams {
    attempt: StreamAttempt,
    open: Vec<OpenStream>,
    is_over: Arc<AtomicBool>,
}

#[derive(Debug)]
struct OpenStream {
    used: StreamUse,
    /// Whether readers have been told that the attempt has begun.
    has_begun: Arc<AtomicBool>,
    /// Its log, if it is durable.
    log: Option<Arc<StreamLog>>,
}

/// How an attempt identifies itself to a stream.
#[derive(Clone, Debug)]
pub(crate) struct AttemptMark {
    pub(super) attempt: StreamAttempt,
    /// Set before the attempt's end is announced: no chunk follows that.
    pub(super) is_over: Arc<AtomicBool>,
    pub(super) has_begun: Arc<AtomicBool>,
}

impl AttemptStreams {
    pub(crate) fn new(operation: OperationId, attempt: u32) -> Self {
        Self {
            attempt: StreamAttempt { operation, attempt },
            open: Vec::new(),
            is_over: Arc::default(),
        }
    }

    /// Lists a stream and counts it as in use, unless it is listed already. `None` if it is listed with another log: that log
    /// is broken, and the attempt's part of the stream has ended.
    pub(crate) fn list(
        &mut self,
        used: &mut Option<StreamUse>,
        log: Option<&Arc<StreamLog>>,
    ) -> Option<AttemptMark> {
        let stream = used.as_ref()?.stream();
        let listed = self
            .open
            .iter()
            .find(|open| Arc::ptr_eq(open.used.stream(), stream));
        let has_begun = match listed {
            Some(OpenStream {
                log: Some(listed), ..
            }) if log.is_some_and(|log| !Arc::ptr_eq(log, listed)) => {
                return None;
            }
            Some(open) => Arc::clone(&open.has_begun),
            None => {
                let has_begun = Arc::<AtomicBool>::default();
                self.open.push(OpenStream {
                    used: used.take()?,
                    has_begun: Arc::clone(&has_begun),
                    log: log.cloned(),
                });
                has_begun
            }
        };
        Some(AttemptMark {
            attempt: self.attempt,
            is_over: Arc::clone(&self.is_over),
            has_begun,
        })
    }

    /// Ends the streams: the attempt has ended in this way.
    pub(crate) fn end(mut self, end: AttemptEnd) {
        self.tell(end);
    }

    fn tell(&mut self, end: AttemptEnd) {
        self.is_over.store(true, Ordering::Release);
        for open in self.open.drain(..) {
            match open.log {
                None => open.used.stream().end(&open.has_begun, self.attempt, end),
                Some(log) => log.end(open.used, &open.has_begun, self.attempt, end),
            }
        }
    }
}

impl Drop for AttemptStreams {
    fn drop(&mut self) {
        self.tell(AttemptEnd::Lost);
    }
}
