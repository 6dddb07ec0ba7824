//! The end of a runtime: why, and who is told.
//!
//! ```text
//!   shutdown ── closing ─────────────────────────► cause: Shutdown ─┐
//!   a failure of a part or of the journal, no host ─► cause ────────┼─► stopped(), stop_cause(), errors
//!                                                                   └─► callers that still wait
//! ```
//!
//! A caller waits for a sender that a shard or the reader holds, and is told when that is
//! dropped. Code that blocks its thread drops nothing; so each caller that has to wait is also
//! [listed](Waiting), and told at the end.
//!
//! Invariant: the first cause is the one that counts; all that are told of the end find it set.

use std::cell::Cell;
use std::fmt;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

use millrun_core::panic_message;
use tokio::sync::watch;

use crate::StopCause;

/// Why and whether a runtime stops.
#[derive(Debug, Default)]
pub(crate) struct StopCell {
    cause: OnceLock<StopCause>,
    /// As `cause`, for the calls that wait for it.
    told: watch::Sender<Option<StopCause>>,
    is_closing: AtomicBool,
    /// All parts have been stopped, and none is restarted.
    is_abandoned: watch::Sender<bool>,
    waiting: Waiting,
}

impl StopCell {
    /// Whether this is the first cause, which is the one that counts. Errors name it from now on; who waits for the end
    /// is told by [`tell`](Self::tell).
    pub(crate) fn set(&self, cause: StopCause) -> bool {
        self.cause.set(cause).is_ok()
    }

    /// Tells those who wait for the end that it has come, if there is a cause.
    pub(crate) fn tell(&self) {
        if let Some(cause) = self.cause.get() {
            self.told.send_replace(Some(cause.clone()));
        }
    }

    pub(crate) fn get(&self) -> Option<&StopCause> {
        self.cause.get()
    }

    /// Ready when the runtime has stopped. It holds on to nothing.
    pub(crate) fn stopped(&self) -> impl Future<Output = StopCause> + Send + 'static {
        let mut told = self.told.subscribe();
        async move {
            let cause = told.wait_for(Option::is_some).await.map(|cause| cause.clone());
            // Gone without a word, it was dropped.
            cause.ok().flatten().unwrap_or(StopCause::Shutdown)
        }
    }

    /// A shutdown begins.
    pub(crate) fn begin_closing(&self) {
        self.is_closing.store(true, Ordering::Release);
    }

    /// Whether a shutdown has begun.
    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Acquire)
    }

    pub(crate) fn abandon(&self) {
        self.is_abandoned.send_replace(true);
    }

    /// Ready when all parts have been stopped. It holds on to nothing.
    pub(crate) fn abandoned(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut is_abandoned = self.is_abandoned.subscribe();
        // An error says that the runtime is gone.
        async move { drop(is_abandoned.wait_for(|is_abandoned| *is_abandoned).await) }
    }

    /// What `answer` gives; `None` if nobody answers any more.
    ///
    /// # Cancel safety
    /// As that of `answer`.
    #[inline]
    pub(crate) const fn unless_over<F: Future + Unpin>(&self, answer: F) -> UnlessOver<'_, F> {
        UnlessOver {
            answer,
            listing: Listing {
                waiting: &self.waiting,
                taken: None,
            },
        }
    }

    /// Tells all who still wait for an answer, and all who come, that there will be none.
    pub(crate) fn answer_nobody(&self) {
        self.waiting.end();
    }
}

/// See [`StopCell::unless_over`]. Written out, since each request goes through here: an `async` block around
/// the answer costs as much again as its place in the list.
pub(crate) struct UnlessOver<'a, F> {
    answer: F,
    listing: Listing<'a>,
}

impl<F: Future + Unpin> Future for UnlessOver<'_, F> {
    type Output = Option<F::Output>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match Pin::new(&mut self.answer).poll(cx) {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending if self.listing.wait(cx.waker()) => Poll::Pending,
            Poll::Pending => Poll::Ready(None),
        }
    }
}

/// Several lists, each for some threads, so that callers on several threads seldom meet.
const LISTS: usize = 16;

/// Callers that wait for an answer. Their number is bounded by the program that spawns them; each costs
/// 16 bytes here.
struct Waiting([Padded; LISTS]);

/// Lists of two threads share no cache line.
#[repr(align(128))]
#[derive(Default)]
struct Padded(Mutex<List>);

#[derive(Default)]
struct List {
    slots: Vec<Slot>,
    /// The place of the first free slot, counted from one; zero if there is none.
    free: usize,
    is_over: bool,
}

enum Slot {
    /// Free, with the place of the next free one, counted from one.
    Free(usize),
    Taken(Waker),
    /// Its caller was told of the end, and has not left.
    Told,
}

/// The listing of one caller, once it waits.
struct Listing<'a> {
    waiting: &'a Waiting,
    /// In which list, and where.
    taken: Option<(usize, usize)>,
}

fn list_of_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        /// Has no destructor and no beginning, so that a look is one load.
        static LIST: Cell<usize> = const { Cell::new(LISTS) };
    }
    LIST.with(|mine| {
        if mine.get() == LISTS {
            mine.set(NEXT.fetch_add(1, Ordering::Relaxed) % LISTS);
        }
        mine.get()
    })
}

impl Default for Waiting {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Padded::default()))
    }
}

impl Waiting {
    fn lock(&self, list: usize) -> MutexGuard<'_, List> {
        self.0[list].0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leave(&self, number: usize, listing: usize) {
        let mut list = self.lock(number);
        let next = Slot::Free(mem::replace(&mut list.free, listing + 1));
        let left = mem::replace(&mut list.slots[listing], next);
        drop(list);
        drop(left);
    }

    fn end(&self) {
        for list in 0..LISTS {
            let wakers = {
                let mut list = self.lock(list);
                list.is_over = true;
                list.slots.iter_mut().filter_map(Slot::tell).collect::<Vec<_>>()
            };
            for waker in wakers {
                // A waker is anybody's code: that one panics is not the others' loss.
                if let Err(panic) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
                    tracing::error!(panic = panic_message(panic), "waking a caller panicked");
                }
            }
        }
    }
}

impl Listing<'_> {
    /// Whether there is anything to wait for. Then the waker is woken at the end.
    fn wait(&mut self, waker: &Waker) -> bool {
        let number = self.taken.map_or_else(list_of_thread, |(number, _)| number);
        let taken = Slot::Taken(waker.clone());
        let mut list = self.waiting.lock(number);
        if list.is_over {
            return false;
        }
        let Some((_, listing)) = self.taken else {
            self.taken = Some((number, list.take_place(taken)));
            return true;
        };
        let stale = mem::replace(&mut list.slots[listing], taken);
        drop(list);
        drop(stale);
        true
    }
}

impl List {
    fn take_place(&mut self, taken: Slot) -> usize {
        let Some(listing) = self.free.checked_sub(1) else {
            self.slots.push(taken);
            return self.slots.len() - 1;
        };
        if let Slot::Free(next) = mem::replace(&mut self.slots[listing], taken) {
            self.free = next;
        }
        listing
    }
}

impl Slot {
    /// The waker of a caller who waits, who is told that there is no answer.
    fn tell(&mut self) -> Option<Waker> {
        match mem::replace(self, Self::Told) {
            Self::Taken(waker) => Some(waker),
            other => {
                *self = other;
                None
            }
        }
    }
}

impl Drop for Listing<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some((number, listing)) = self.taken {
            self.waiting.leave(number, listing);
        }
    }
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Waiting")
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use futures_util::FutureExt as _;
    use futures_util::poll;

    use super::*;

    /// Who waited for the end was told as soon as there was a cause, and then could still publish for a moment: the
    /// broker was closed last.
    #[tokio::test]
    async fn who_waits_for_the_end_is_told_of_the_first_cause_when_all_is_shut() {
        let cell = StopCell::default();
        let mut stopped = Box::pin(cell.stopped());
        assert!(cell.set(StopCause::HostEnded));
        assert!(!cell.set(StopCause::Shutdown));
        assert!(poll!(&mut stopped).is_pending());
        assert!(matches!(cell.get(), Some(StopCause::HostEnded)), "errors name it");
        cell.tell();
        assert!(matches!(poll!(&mut stopped), Poll::Ready(StopCause::HostEnded)));
        assert!(matches!(
            cell.stopped().now_or_never(),
            Some(StopCause::HostEnded)
        ));
    }
}
