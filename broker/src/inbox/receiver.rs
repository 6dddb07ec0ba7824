//! Receiving with `await`.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::envelope::AnyEnvelope;
use crate::inbox::Envelopes;
use crate::inbox::Inbox;
use crate::mailbox::Refilled;

/// After how many batches in a row a receiver lets other tasks run once.
const BATCHES_IN_A_ROW_MAX: u32 = 8;

/// An inbox that can be awaited, on any executor.
///
/// # Ordering
/// As [`Inbox`].
pub struct Receiver<E: AnyEnvelope + ?Sized> {
    batch: Envelopes<E>,
    inbox: Inbox<E>,
    batches_in_a_row: u32,
}

impl<E: AnyEnvelope + ?Sized> Inbox<E> {
    /// A receiver, which can be awaited. It needs no bell.
    #[must_use]
    pub fn into_receiver(self) -> Receiver<E> {
        Receiver::new(self)
    }
}

impl<E: AnyEnvelope + ?Sized> Receiver<E> {
    fn new(inbox: Inbox<E>) -> Self {
        Self {
            batch: inbox.empty_batch(),
            inbox,
            batches_in_a_row: 0,
        }
    }

    /// The inbox it receives from.
    #[must_use]
    pub const fn inbox(&self) -> &Inbox<E> {
        &self.inbox
    }

    /// The next envelope, in the inbox's order; `None` when the inbox is closed and empty.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing: an envelope leaves the inbox only when it is returned.
    pub async fn recv(&mut self) -> Option<Arc<E>> {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// The next envelope, lent until the next call; `None` when the inbox is closed and empty.
    ///
    /// Cheaper than [`Receiver::recv`] if the envelope went to no other inbox, see [`Envelopes`]. Its payload is dropped at
    /// the next call or with the receiver, if no other reader has it or shares it. Plain bytes may be freed a little later,
    /// by the publisher.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing: an envelope leaves the inbox only when it is returned.
    pub async fn recv_ref(&mut self) -> Option<&E> {
        if poll_fn(|cx| self.poll_next(cx)).await {
            self.batch.lend()
        } else {
            None
        }
    }

    /// The next envelope, in the inbox's order, if one is there.
    pub fn try_recv(&mut self) -> Option<Arc<E>> {
        if !self.next_in_hand() {
            self.batch.refill();
            if !self.next_in_hand() {
                return None;
            }
        }
        self.batch.give_away()
    }

    /// All envelopes that are there, as soon as there is one; `None` when the inbox is closed and empty. They come in the
    /// inbox's order; envelopes that are not taken from the batch are the next to be received. Cheaper per envelope than
    /// [`Receiver::recv`]; expired envelopes are included.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn recv_batch(&mut self) -> Option<&mut Envelopes<E>> {
        self.batch.take_back();
        let refilled = poll_fn(|cx| {
            // Envelopes that `recv` or an earlier batch has left come first.
            if self.batch.is_empty() {
                self.poll_refill(cx)
            } else {
                Poll::Ready(Refilled::Some)
            }
        });
        match refilled.await {
            Refilled::Some => Some(&mut self.batch),
            Refilled::Finished => None,
        }
    }

    /// As [`Receiver::recv`].
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<Arc<E>>> {
        self.poll_next(cx)
            .map(|found| if found { self.batch.give_away() } else { None })
    }

    /// Advances to the next envelope; false if there will be none any more.
    #[inline]
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        loop {
            if self.next_in_hand() {
                return Poll::Ready(true);
            }
            match self.poll_refill(cx) {
                Poll::Ready(Refilled::Some) => {}
                Poll::Ready(Refilled::Finished) => return Poll::Ready(false),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    #[inline]
    fn poll_refill(&mut self, cx: &mut Context<'_>) -> Poll<Refilled> {
        if self.batches_in_a_row == BATCHES_IN_A_ROW_MAX {
            self.batches_in_a_row = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let refilled = self.batch.hand().poll_refill(cx.waker());
        self.batches_in_a_row = if refilled.is_ready() {
            self.batches_in_a_row + 1
        } else {
            0
        };
        refilled
    }

    #[inline]
    fn next_in_hand(&mut self) -> bool {
        let found = self.batch.advance_in(&self.inbox);
        if found {
            // The caller may do anything before the next call, so waiting publishers are told now.
            self.batch.hand().announce_to_waiting();
        }
        found
    }
}

impl<E: AnyEnvelope + ?Sized> fmt::Debug for Receiver<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver")
            .field("inbox", &self.inbox)
            .finish_non_exhaustive()
    }
}
