//! The end of a runtime: its cause, and the callers that are told.
//!
//! ```text
//!   shutdown ── closing ─────────────────────────► cause: Shutdown ─┐
//!   a failure of a part or of the journal, no host ─► cause ────────┼─► stopped(), stop_cause(), errors
//!                                                                   └─► callers that still wait
//! ```
//!
//! A caller waits for an answer whose sender a shard or a reader holds, and is told when that is dropped. Code that blocks
//! its thread drops nothing, so each waiting caller is also [listed](Waiting), and told at the end.
//!
//! Invariant: the first cause counts; everybody who is told of the end finds it set.

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
    /// The same as `cause`, for calls that wait for it.
    told: watch::Sender<Option<StopCause>>,
    is_closing: AtomicBool,
    /// Whether all parts have been stopped, and none is restarted.
    is_abandoned: watch::Sender<bool>,
    waiting: Waiting,
}

impl StopCell {
    /// Sets the cause. Returns whether it is the first, which counts. Errors name it from now on; callers that wait for the
    /// end are told by [`tell`](Self::tell).
    pub(crate) fn set(&self, cause: StopCause) -> bool {
        self.cause.set(cause).is_ok()
    }

    /// Tells callers that wait for the end, if there is a cause.
    pub(crate) fn tell(&self) {
        if let Some(cause) = self.cause.get() {
            self.told.send_replace(Some(cause.clone()));
        }
    }

    pub(crate) fn get(&self) -> Option<&StopCause> {
        self.cause.get()
    }

    /// Completes when the runtime has stopped. It keeps nothing alive.
    pub(crate) fn stopped(&self) -> impl Future<Output = StopCause> + Send + 'static {
        let mut told = self.told.subscribe();
        async move {
            let cause = told.wait_for(Option::is_some).await.map(|cause| cause.clone());
            // If the sender is gone without a cause, the runtime was dropped.
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

    /// Completes when all parts have been stopped. It keeps nothing alive.
    pub(crate) fn abandoned(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut is_abandoned = self.is_abandoned.subscribe();
        // An error means that the runtime is gone.
        async move { drop(is_abandoned.wait_for(|is_abandoned| *is_abandoned).await) }
    }

    /// The result of `answer`; `None` if no answer can come any more.
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

    /// Tells all callers, present and future, that no answer will come.
    pub(crate) fn answer_nobody(&self) {
        self.waiting.end();
    }
}

/// See [`StopCell::unless_over`]. Hand-written, since each request uses it: an `async` block around the answer would cost as
/// much again as its place in the list.
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

/// The number of lists, each for some threads, so that callers on several threads seldom contend.
const LISTS: usize = 16;

/// Callers that wait for an answer. The program that spawns them bounds their number; each costs 16 bytes here.
struct Waiting([Padded; LISTS]);

/// Padded, so that lists of two threads share no cache line.
#[repr(align(128))]
#[derive(Default)]
struct Padded(Mutex<List>);

#[derive(Default)]
struct List {
    slots: Vec<Slot>,
    /// The index of the first free slot plus one; zero if there is none.
    free: usize,
    is_over: bool,
}

enum Slot {
    /// Free, with the index of the next free slot plus one.
    Free(usize),
    Taken(Waker),
    /// Its caller was told of the end, and has not left yet.
    Told,
}

/// The entry of one caller, made when it waits.
struct Listing<'a> {
    waiting: &'a Waiting,
    /// The list, and the index in it.
    taken: Option<(usize, usize)>,
}

fn list_of_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        /// Without a destructor or lazy initialisation, so that a look is one load.
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
                // A waker is foreign code: its panic must not harm other callers.
                if let Err(panic) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
                    tracing::error!(panic = panic_message(panic), "waking a caller panicked");
                }
            }
        }
    }
}

impl Listing<'_> {
    /// Whether there is still something to wait for. If so, the waker is woken at the end.
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
    /// The waker of a waiting caller, which is told that no answer comes.
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

    /// Regression: callers that waited for the end were told as soon as there was a cause, and could still publish for a
    /// moment, because the broker was closed last.
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
