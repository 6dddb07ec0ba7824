//! Receiving by `await`.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::envelope::AnyEnvelope;
use crate::inbox::Inbox;
use crate::mailbox::{InHand, Refilled};

/// After how many batches in a row a receiver lets other tasks run once.
const BATCHES_IN_A_ROW_MAX: u32 = 8;

/// An inbox that is awaited. Any executor will do.
///
/// # Ordering
/// As [`Inbox`].
pub struct Receiver<E: AnyEnvelope + ?Sized> {
    hand: InHand<Arc<E>>,
    lent: Option<Arc<E>>,
    inbox: Inbox<E>,
    batches_in_a_row: u32,
}

impl<E: AnyEnvelope + ?Sized> Receiver<E> {
    pub(crate) fn new(inbox: Inbox<E>) -> Self {
        Self {
            hand: inbox.empty_hand(),
            lent: None,
            inbox,
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

    /// The next envelope, lent until the next call; `None` when the inbox is closed and empty.
    ///
    /// Cheaper than [`Receiver::recv`]: if it was not cloned, its memory goes back to the publisher
    /// for another envelope. Its payload is dropped at the next call or with the receiver.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing: an envelope leaves the inbox only when it is returned.
    pub async fn recv_ref(&mut self) -> Option<&Arc<E>> {
        if let Some(read) = self.lent.take() {
            self.hand.give_back_empty(read);
        }
        self.lent = poll_fn(|cx| self.poll_recv(cx)).await;
        self.lent.as_ref()
    }

    /// The next envelope, if one is there.
    pub fn try_recv(&mut self) -> Option<Arc<E>> {
        if let Some(envelope) = self.next_in_hand() {
            return Some(envelope);
        }
        self.hand.refill();
        self.next_in_hand()
    }

    /// All envelopes that are there, as soon as there is one; `None` when the inbox is closed and
    /// empty. Those that are not taken from the batch are the next to be received. Cheaper per envelope than [`Receiver::recv`]; what has expired is among them.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn recv_batch(&mut self) -> Option<&mut InHand<Arc<E>>> {
        let refilled = poll_fn(|cx| {
            // What `recv` or an earlier batch left is finished first.
            if self.hand.is_empty() {
                self.poll_refill(cx)
            } else {
                Poll::Ready(Refilled::Some)
            }
        });
        match refilled.await {
            Refilled::Some => Some(&mut self.hand),
            Refilled::Finished => None,
        }
    }

    /// As [`Receiver::recv`].
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<Arc<E>>> {
        loop {
            if let Some(envelope) = self.next_in_hand() {
                return Poll::Ready(Some(envelope));
            }
            match self.poll_refill(cx) {
                Poll::Ready(Refilled::Some) => {}
                Poll::Ready(Refilled::Finished) => return Poll::Ready(None),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn poll_refill(&mut self, cx: &mut Context<'_>) -> Poll<Refilled> {
        if self.batches_in_a_row == BATCHES_IN_A_ROW_MAX {
            self.batches_in_a_row = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let refilled = self.hand.poll_refill(cx.waker());
        self.batches_in_a_row = if refilled.is_ready() {
            self.batches_in_a_row + 1
        } else {
            0
        };
        refilled
    }

    #[inline]
    fn next_in_hand(&mut self) -> Option<Arc<E>> {
        for envelope in self.hand.by_ref() {
            if let Some(envelope) = self.inbox.unless_expired(envelope) {
                // The caller may do anything before it comes back; whoever waits is told now.
                self.hand.announce_to_waiting();
                return Some(envelope);
            }
        }
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
