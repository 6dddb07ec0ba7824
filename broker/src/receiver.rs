//! Receiving by `await`.

use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::envelope::AnyEnvelope;
use crate::inbox::Inbox;
use crate::mailbox::InHand;

/// After how many batches in a row a receiver lets other tasks run once.
const BATCHES_IN_A_ROW_MAX: u32 = 8;

/// An inbox that is awaited. Any executor will do.
///
/// # Ordering
/// As [`Inbox`].
pub struct Receiver<E: AnyEnvelope + ?Sized> {
    hand: Option<InHand<Arc<E>>>,
    inbox: Inbox<E>,
    waker: Arc<Sleeper>,
    batches_in_a_row: u32,
}

/// The waker of a receiver that waits.
#[derive(Default)]
struct Sleeper(Mutex<Option<Waker>>);

impl Sleeper {
    fn wake(&self) {
        let waker = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn sleep(&self, waker: &Waker) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let stale = match &*held {
            Some(held) if held.will_wake(waker) => None,
            _ => held.replace(waker.clone()),
        };
        drop(held);
        drop(stale);
    }
}

impl<E: AnyEnvelope + ?Sized> Receiver<E> {
    pub(crate) fn new(inbox: Inbox<E>) -> Self {
        let waker = Arc::new(Sleeper::default());
        let sleeper = Arc::clone(&waker);
        inbox.bell().connect(move || sleeper.wake());
        Self {
            hand: None,
            inbox,
            waker,
            batches_in_a_row: 0,
        }
    }

    /// The inbox it receives from.
    #[must_use]
    pub const fn inbox(&self) -> &Inbox<E> {
        &self.inbox
    }

    /// The next envelope; `None` when the inbox is closed and empty.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing: an envelope leaves the inbox only when it is returned.
    pub async fn recv(&mut self) -> Option<Arc<E>> {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// The next envelope, if one is there.
    pub fn try_recv(&mut self) -> Option<Arc<E>> {
        if let Some(envelope) = self.next_in_hand() {
            return Some(envelope);
        }
        self.hand = Some(self.inbox.take());
        self.next_in_hand()
    }

    /// All envelopes that are there, as soon as there is one; `None` when the inbox is closed and
    /// empty. Those that are not taken from the batch go back to the front of the inbox when it is
    /// dropped. Cheaper per envelope than [`Receiver::recv`]; what has expired is among them.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn recv_batch(&mut self) -> Option<InHand<Arc<E>>> {
        poll_fn(|cx| self.poll_recv_batch(cx)).await
    }

    /// As [`Receiver::recv`].
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<Arc<E>>> {
        loop {
            if let Some(envelope) = self.next_in_hand() {
                return Poll::Ready(Some(envelope));
            }
            match self.poll_recv_batch(cx) {
                Poll::Ready(Some(hand)) => self.hand = Some(hand),
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// As [`Receiver::recv_batch`].
    pub fn poll_recv_batch(&mut self, cx: &mut Context<'_>) -> Poll<Option<InHand<Arc<E>>>> {
        // A hand that `recv` began is finished first.
        if let Some(hand) = self.hand.take().filter(|hand| !hand.is_empty()) {
            return Poll::Ready(Some(hand));
        }
        if self.batches_in_a_row == BATCHES_IN_A_ROW_MAX {
            self.batches_in_a_row = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if let Some(hand) = self.take_batch() {
            return Poll::Ready(Some(hand));
        }
        // The waker goes in first, then the bell is answered, then the inbox is looked at: a push
        // after the look rings again and finds the waker.
        self.waker.sleep(cx.waker());
        self.inbox.bell().answer();
        match self.take_batch() {
            Some(hand) => Poll::Ready(Some(hand)),
            None if self.inbox.is_finished() => Poll::Ready(None),
            None => {
                self.batches_in_a_row = 0;
                Poll::Pending
            }
        }
    }

    fn take_batch(&mut self) -> Option<InHand<Arc<E>>> {
        let hand = self.inbox.take();
        if hand.is_empty() {
            return None;
        }
        self.batches_in_a_row += 1;
        Some(hand)
    }

    #[inline]
    fn next_in_hand(&mut self) -> Option<Arc<E>> {
        let hand = self.hand.as_mut()?;
        for envelope in hand.by_ref() {
            if let Some(envelope) = self.inbox.unless_expired(envelope) {
                // The caller may do anything before it comes back; whoever waits is told now.
                hand.announce_to_waiting();
                return Some(envelope);
            }
        }
        self.hand = None;
        None
    }
}

impl<E: AnyEnvelope + ?Sized> fmt::Debug for Receiver<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver")
            .field("inbox", &self.inbox)
            .finish_non_exhaustive()
    }
}
