//! Answers that one caller gathers: to many requests, with one waker and without a channel for each.
//!
//! ```text
//!   request 0, reply ──► shard ─┐
//!   request 1, reply ──► shard ─┼──► answers, each with the number of its request ──► the caller, all at once
//!   request 2, reply ──► shard ─┘
//! ```
//!
//! Each reply gives one answer, also when it is dropped. So the answers that wait here are bounded by the requests that their
//! caller has made.

use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;

/// The answer to the request of this number; `None` if its reply was dropped without one.
pub(crate) type GatheredAnswer<T, E> = (u32, Option<Result<T, E>>);

/// The answers, as their caller has them. Once this is dropped, the replies count as closed.
pub(crate) struct GatheredAnswers<T, E>(Arc<AnswerQueue<T, E>>);

struct AnswerQueue<T, E> {
    answers: Mutex<VecDeque<GatheredAnswer<T, E>>>,
    caller: AtomicWaker,
    is_abandoned: AtomicBool,
}

impl<T, E> Default for GatheredAnswers<T, E> {
    fn default() -> Self {
        Self(Arc::new(AnswerQueue {
            answers: Mutex::default(),
            caller: AtomicWaker::new(),
            is_abandoned: AtomicBool::new(false),
        }))
    }
}

impl<T, E> GatheredAnswers<T, E> {
    /// The way of the answer to the request of this number.
    pub(crate) fn reply(&self, number: u32) -> GatheredReply<T, E> {
        GatheredReply {
            queue: Arc::clone(&self.0),
            number,
            is_answered: false,
        }
    }

    /// Takes all answers that have come. Those that come later wake the last task that was told to wait here.
    ///
    /// `into` must be empty: its memory is used for later answers.
    pub(crate) fn poll_take(
        &self,
        cx: &mut Context<'_>,
        into: &mut VecDeque<GatheredAnswer<T, E>>,
    ) -> Poll<()> {
        debug_assert!(into.is_empty(), "answers that were taken are not overwritten");
        // Before the look: an answer that comes behind it wakes the task.
        self.0.caller.register(cx.waker());
        let mut answers = self.0.lock();
        if answers.is_empty() {
            return Poll::Pending;
        }
        mem::swap(&mut *answers, into);
        Poll::Ready(())
    }
}

impl<T, E> Drop for GatheredAnswers<T, E> {
    fn drop(&mut self) {
        self.0.is_abandoned.store(true, Ordering::Relaxed);
    }
}

impl<T, E> AnswerQueue<T, E> {
    fn put(&self, number: u32, answer: Option<Result<T, E>>) {
        self.lock().push_back((number, answer));
        self.caller.wake();
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<GatheredAnswer<T, E>>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The way of one answer.
pub(crate) struct GatheredReply<T, E> {
    queue: Arc<AnswerQueue<T, E>>,
    number: u32,
    is_answered: bool,
}

impl<T, E> GatheredReply<T, E> {
    pub(crate) fn send(mut self, answer: Result<T, E>) {
        self.is_answered = true;
        self.queue.put(self.number, Some(answer));
    }

    /// Whether nobody waits for the answer any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.queue.is_abandoned.load(Ordering::Relaxed)
    }
}

impl<T, E> Drop for GatheredReply<T, E> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.queue.put(self.number, None);
        }
    }
}

impl<T, E> fmt::Debug for GatheredReply<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GatheredReply")
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn each_reply_gives_one_answer_and_all_of_them_one_wake() {
        let woken = Arc::new(Woken::default());
        let waker = Arc::clone(&woken).into();
        let mut cx = Context::from_waker(&waker);
        let gathered = GatheredAnswers::<&str, u8>::default();
        let mut answers = VecDeque::new();
        let [first, second, third] = [1, 2, 3].map(|number| gathered.reply(number));
        assert!(gathered.poll_take(&mut cx, &mut answers).is_pending());
        second.send(Ok("begun"));
        drop(first);
        third.send(Err(7));
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert!(gathered.poll_take(&mut cx, &mut answers).is_ready());
        assert_eq!(answers, [(2, Some(Ok("begun"))), (1, None), (3, Some(Err(7)))]);
        answers.clear();
        assert!(gathered.poll_take(&mut cx, &mut answers).is_pending());
    }

    #[test]
    fn replies_to_a_caller_that_is_gone_are_closed() {
        let gathered = GatheredAnswers::<(), ()>::default();
        let reply = gathered.reply(1);
        assert!(!reply.is_closed());
        drop(gathered);
        assert!(reply.is_closed());
        reply.send(Ok(()));
    }
}
