//! Questions and answers over topics.
//!
//! ```text
//!   ask ── Request{question, slot} ──► topic ──► inbox ──► request.answer(..)
//!    ▲                                                          │
//!    └───────────────────────── slot ◄──────────────────────────┘
//! ```
//!
//! The answer comes back through a slot that asker and request share, not through a topic: it needs no route and cannot meet
//! a full inbox. When the last holder drops an unanswered request, the asker is told at once.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use millrun_core::Timestamp;

use super::outcome::PublishError;
use super::publish::Publish;
use crate::clock::Clock;

/// A payload that asks for an answer of type `R`.
pub struct Request<Q, R> {
    question: Q,
    slot: Arc<AskSlot<R>>,
}

struct AskSlot<R>(Mutex<AskSlotState<R>>);

struct AskSlotState<R> {
    progress: AskProgress<R>,
    waker: Option<Waker>,
}

/// ```text
///   Open ──answer──► Answered ──read──► Over
///    └──last request dropped──► Over
/// ```
enum AskProgress<R> {
    Open,
    Answered(R),
    Over,
}

/// The asker's side.
pub(crate) struct AwaitedAnswer<R>(Arc<AskSlot<R>>);

/// Why a question got no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// There is no subscription, or the inboxes dropped the question by their policy.
    #[error("nobody got the question")]
    NobodyAsked,
    /// An inbox with the policy [`Overflow::Fail`](crate::Overflow::Fail) is full.
    #[error("the question met a full inbox")]
    Full,
    /// The broker has been [closed](crate::Broker::close): no consumer can get the question.
    #[error("the broker is closed")]
    Closed,
    /// All consumers that got the question dropped it without an answer before the time limit.
    #[error("the question was dropped without an answer")]
    Unanswered,
    /// No answer in time, whether a consumer still has the question or has dropped it.
    #[error("no answer in time")]
    TimedOut,
}

impl AskError {
    /// Whether asking again may help without a change elsewhere.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::Full | Self::TimedOut => true,
            Self::NobodyAsked | Self::Unanswered | Self::Closed => false,
        }
    }
}

impl<Q, R> Request<Q, R> {
    pub(crate) fn new(question: Q) -> (Self, AwaitedAnswer<R>) {
        let slot = Arc::new(AskSlot(Mutex::new(AskSlotState {
            progress: AskProgress::Open,
            waker: None,
        })));
        (
            Self {
                question,
                slot: Arc::clone(&slot),
            },
            AwaitedAnswer(slot),
        )
    }

    /// The question itself.
    #[must_use]
    pub const fn question(&self) -> &Q {
        &self.question
    }

    /// Answers. The first answer counts.
    ///
    /// # Errors
    /// The answer comes back if there was one before, or the asker has stopped waiting.
    pub fn answer(&self, answer: R) -> Result<(), R> {
        let mut state = self.slot.state();
        if !matches!(state.progress, AskProgress::Open) {
            return Err(answer);
        }
        state.progress = AskProgress::Answered(answer);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }
}

impl<Q, R> Drop for Request<Q, R> {
    fn drop(&mut self) {
        let mut state = self.slot.state();
        if matches!(state.progress, AskProgress::Open) {
            state.progress = AskProgress::Over;
        }
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<Q: fmt::Debug, R> fmt::Debug for Request<Q, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("question", &self.question)
            .finish_non_exhaustive()
    }
}

impl<R> AskSlot<R> {
    fn state(&self) -> MutexGuard<'_, AskSlotState<R>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R> AwaitedAnswer<R> {
    fn poll(&self, waker: &Waker) -> Poll<Result<R, AskError>> {
        let mut state = self.0.state();
        match std::mem::replace(&mut state.progress, AskProgress::Over) {
            AskProgress::Answered(answer) => Poll::Ready(Ok(answer)),
            AskProgress::Over => Poll::Ready(Err(AskError::Unanswered)),
            AskProgress::Open => {
                state.progress = AskProgress::Open;
                let stale = state.waker.replace(waker.clone());
                drop(state);
                drop(stale);
                Poll::Pending
            }
        }
    }
}

impl<R> Drop for AwaitedAnswer<R> {
    fn drop(&mut self) {
        let late = std::mem::replace(&mut self.0.state().progress, AskProgress::Over);
        drop(late);
    }
}

/// Publishes the question, which expires at the given time, and waits for the answer until then.
pub(crate) async fn ask<Q, R>(
    publish: Publish<'_, Request<Q, R>>,
    answer: AwaitedAnswer<R>,
    clock: &Arc<Clock>,
    expires: Timestamp,
) -> Result<R, AskError>
where
    Q: Send + Sync + 'static,
    R: Send + 'static,
{
    let mut alarm = clock.alarm_at(expires);
    let mut publish = Some(publish);
    poll_fn(|cx| {
        if let Some(publishing) = &mut publish {
            match Pin::new(publishing).poll(cx) {
                Poll::Ready(Ok(published)) if published.delivered == 0 => {
                    return Poll::Ready(Err(AskError::NobodyAsked));
                }
                Poll::Ready(Err(PublishError::Closed(_))) => return Poll::Ready(Err(AskError::Closed)),
                Poll::Ready(Err(_)) => return Poll::Ready(Err(AskError::Full)),
                Poll::Ready(Ok(_)) => publish = None,
                Poll::Pending => {}
            }
        }
        // An inbox that took the question may answer while others still have no room for it.
        match answer.poll(cx.waker()) {
            // A receiver drops expired envelopes, maybe before the alarm, which may ring late.
            Poll::Ready(Err(AskError::Unanswered)) if clock.exact_now() >= expires => {
                return Poll::Ready(Err(AskError::TimedOut));
            }
            Poll::Ready(outcome) => return Poll::Ready(outcome),
            Poll::Pending => {}
        }
        Pin::new(&mut alarm).poll(cx).map(|()| Err(AskError::TimedOut))
    })
    .await
}
