//! Waiting for room.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::Mailbox;
use super::inlet::AndThen;
use super::state::Door;
use crate::sync::{Ordering, fence};

/// The mailbox is closed; the value comes back.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the mailbox is closed")]
pub struct Closed<T>(pub T);

impl<T> fmt::Debug for Closed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Closed(..)")
    }
}

/// Why a value could not be pushed at once; it comes back.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TryPushError<T> {
    /// There is no room now. Waiting helps.
    #[error("the mailbox is full")]
    Full(T),
    /// There will never be room again.
    #[error("the mailbox is closed")]
    Closed(T),
}

impl<T> TryPushError<T> {
    /// The refused value.
    pub fn into_inner(self) -> T {
        match self {
            Self::Full(value) | Self::Closed(value) => value,
        }
    }

    /// Whether the same push may succeed later.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Full(_))
    }

    /// The same reason, with the value turned into another.
    pub(crate) fn map<U>(self, change: impl FnOnce(T) -> U) -> TryPushError<U> {
        match self {
            Self::Full(value) => TryPushError::Full(change(value)),
            Self::Closed(value) => TryPushError::Closed(change(value)),
        }
    }
}

impl<T> fmt::Debug for TryPushError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "Full(..)",
            Self::Closed(_) => "Closed(..)",
        })
    }
}

/// Why part of a batch could not be pushed at once; that part comes back in order.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub enum TryPushBatchError<T> {
    /// There is no room for these now. Waiting helps.
    #[error("the mailbox is full, {} values did not fit", .0.len())]
    Full(Vec<T>),
    /// There will never be room again.
    #[error("the mailbox is closed")]
    Closed(Vec<T>),
}

impl<T> TryPushBatchError<T> {
    /// The refused values.
    pub fn into_inner(self) -> Vec<T> {
        match self {
            Self::Full(rest) | Self::Closed(rest) => rest,
        }
    }

    /// Whether the same push may succeed later.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Full(_))
    }
}

impl<T> fmt::Debug for TryPushBatchError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(rest) => write!(f, "Full({} values)", rest.len()),
            Self::Closed(rest) => write!(f, "Closed({} values)", rest.len()),
        }
    }
}

/// A place in the line before a full mailbox, given up when it is dropped.
pub(crate) struct PushPlace<T> {
    mailbox: Mailbox<T>,
    ticket: Option<u64>,
}

impl<T> PushPlace<T> {
    pub(crate) const fn new(mailbox: Mailbox<T>) -> Self {
        Self {
            mailbox,
            ticket: None,
        }
    }

    /// Pushes `value` if this is the first in the line and there is room, else waits in the line.
    pub(crate) fn poll(&mut self, value: T, cx: &mut Context<'_>) -> Result<(), TryPushError<T>> {
        poll_push(&self.mailbox, &mut self.ticket, value, cx)
    }
}

impl<T> Drop for PushPlace<T> {
    fn drop(&mut self) {
        leave_line(&self.mailbox, self.ticket);
    }
}

/// Pushes, or joins the line (`Full`); `ticket` is the place in it.
fn poll_push<T>(
    mailbox: &Mailbox<T>,
    ticket: &mut Option<u64>,
    value: T,
    cx: &mut Context<'_>,
) -> Result<(), TryPushError<T>> {
    let weight = mailbox.weigh(&value);
    let mut evicted = None;
    let mut state = mailbox.lock();
    if state.door != Door::Open {
        *ticket = None;
        return Err(TryPushError::Closed(value));
    }
    state.let_in(AndThen::AskAgain);
    let position = ticket.and_then(|ticket| state.position(ticket));
    let ahead = position.unwrap_or(state.waiting.len());
    if !mailbox.has_room(&mut state, ahead, weight, &mut evicted) {
        let stale = match position {
            Some(position) => {
                let waiter = &mut state.waiting[position];
                waiter.weight = weight;
                match &waiter.waker {
                    Some(waker) if waker.will_wake(cx.waker()) => None,
                    _ => waiter.waker.replace(cx.waker().clone()),
                }
            }
            None => {
                *ticket = Some(state.join_line(weight, cx.waker().clone()));
                None
            }
        };
        mailbox.0.asking.store(true, Ordering::Relaxed);
        // Either the consumer sees that a pusher asks for room, or this sees what the consumer has left.
        fence(Ordering::SeqCst);
        let missed_room = mailbox.has_room(&mut state, ahead, weight, &mut evicted);
        drop(state);
        drop(stale);
        if missed_room {
            cx.waker().wake_by_ref();
        }
        return Err(TryPushError::Full(value));
    }
    let left = position.and_then(|position| state.waiting.remove(position));
    let first = state.enqueue(value, weight);
    mailbox.release(state, first);
    drop(left);
    *ticket = None;
    Ok(())
}

/// Gives up a place in the line, so that later ones move up.
fn leave_line<T>(mailbox: &Mailbox<T>, ticket: Option<u64>) {
    let Some(ticket) = ticket else { return };
    let mut state = mailbox.lock();
    let Some(position) = state.position(ticket) else {
        return;
    };
    let left = state.waiting.remove(position);
    mailbox.let_go(state);
    drop(left);
}

/// The future of [`Mailbox::push`].
#[must_use = "nothing is pushed unless it is awaited"]
pub struct Push<'a, T> {
    mailbox: &'a Mailbox<T>,
    ticket: Option<u64>,
    value: Option<T>,
}

impl<'a, T> Push<'a, T> {
    pub(super) const fn new(mailbox: &'a Mailbox<T>, value: T) -> Self {
        Self {
            mailbox,
            ticket: None,
            value: Some(value),
        }
    }
}

// The value is moved in and out as a whole and never pinned.
impl<T> Unpin for Push<'_, T> {}

impl<T> Future for Push<'_, T> {
    type Output = Result<(), Closed<T>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let value = this
            .value
            .take()
            .expect("a future is not polled after it was ready");
        match poll_push(this.mailbox, &mut this.ticket, value, cx) {
            Ok(()) => Poll::Ready(Ok(())),
            Err(TryPushError::Closed(value)) => Poll::Ready(Err(Closed(value))),
            Err(TryPushError::Full(value)) => {
                this.value = Some(value);
                Poll::Pending
            }
        }
    }
}

impl<T> Drop for Push<'_, T> {
    fn drop(&mut self) {
        leave_line(self.mailbox, self.ticket);
    }
}

impl<T> fmt::Debug for Push<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Push")
            .field("waits", &self.ticket.is_some())
            .finish_non_exhaustive()
    }
}

/// The future of [`Mailbox::push_batch`].
#[must_use = "nothing is pushed unless it is awaited"]
pub struct PushBatch<'a, T> {
    push: Push<'a, T>,
    rest: std::vec::IntoIter<T>,
}

impl<'a, T> PushBatch<'a, T> {
    pub(super) fn new(mailbox: &'a Mailbox<T>, values: Vec<T>) -> Self {
        let mut rest = values.into_iter();
        let push = Push {
            mailbox,
            ticket: None,
            value: rest.next(),
        };
        Self { push, rest }
    }
}

impl<T> Unpin for PushBatch<'_, T> {}

impl<T> Future for PushBatch<'_, T> {
    type Output = Result<(), Closed<Vec<T>>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        while this.push.value.is_some() {
            match Pin::new(&mut this.push).poll(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(Closed(value))) => {
                    let rest = std::iter::once(value).chain(this.rest.by_ref()).collect();
                    return Poll::Ready(Err(Closed(rest)));
                }
            }
            let fitting: Vec<T> = std::mem::take(&mut this.rest).collect();
            match this.push.mailbox.try_push_batch(fitting) {
                Ok(()) => {}
                Err(error) => this.rest = error.into_inner().into_iter(),
            }
            this.push.value = this.rest.next();
        }
        Poll::Ready(Ok(()))
    }
}

impl<T> fmt::Debug for PushBatch<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PushBatch")
            .field("left", &self.rest.len())
            .finish_non_exhaustive()
    }
}
