//! The batch of an inbox that a reader has in hand.

use std::fmt;
use std::sync::Arc;

use crate::delivery::{Bundle, Delivery};
use crate::envelope::{AnyEnvelope, sealed};
use crate::mailbox::InHand;

/// What was taken from an [`Inbox`](crate::Inbox) at once: an iterator that hands out envelopes in order.
///
/// [`next_ref`](Envelopes::next_ref) lends an envelope until the next call. Where that envelope went to
/// no other inbox, its memory then serves the publisher for another one. That takes a
/// [`Publisher`](crate::Publisher) and its `publish`, `publish_timeout` or `try_publish`, a topic that
/// does not retain, and one matching subscription, typed, of no group and with room; with anything
/// else lending is as dear as handing out.
///
/// Where many inboxes share what is published, a payload is kept until the slowest of their readers has finished with the
/// whole bundle, see the crate's README; a reader that waits for more holds no payload.
///
/// If it is dropped, it returns the envelopes that it has not handed out to the front of the inbox and rings, so that neither
/// a panic nor a kill in the middle of a batch loses anything. The last envelope that was handed out or lent belongs to the
/// reader.
///
/// # Ordering
/// The rest returns to the inbox before everything that came since.
#[must_use = "dropping the batch puts everything back"]
pub struct Envelopes<E: AnyEnvelope + ?Sized> {
    hand: InHand<Delivery<E>>,
    lent: Option<Delivery<E>>,
    /// The index in the bundle of the lent envelope.
    at: usize,
}

impl<E: AnyEnvelope + ?Sized> Envelopes<E> {
    pub(crate) const fn new(hand: InHand<Delivery<E>>) -> Self {
        Self {
            hand,
            lent: None,
            at: 0,
        }
    }

    /// The next envelope, lent until the next call; `None` when the batch is finished.
    ///
    /// Its payload is dropped at the next call, if no other reader has it; one of a bundle that inboxes share, with the last
    /// of the bundle. Plain bytes may be freed a little later, by the publisher.
    pub fn next_ref(&mut self) -> Option<&E> {
        if self.advance() {
            return self.lend();
        }
        self.announce();
        None
    }

    /// Returns everything to the inbox, as dropping the batch does, and then takes all that is queued.
    pub fn refill(&mut self) {
        self.lay_aside();
        self.hand.refill();
    }

    /// Tells publishers that wait for room how much has been handed out so far. Call it before awaiting something with a
    /// batch in hand.
    pub fn announce(&mut self) {
        self.hand.announce();
    }

    /// How many envelopes are left.
    #[must_use]
    pub fn len(&self) -> usize {
        self.hand.len()
    }

    /// Whether none is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.hand.is_empty()
    }

    #[inline]
    pub(crate) fn hand(&mut self) -> &mut InHand<Delivery<E>> {
        &mut self.hand
    }

    /// Goes on to the next envelope, if there is one.
    // On the path of each envelope, where a call would be measurable; so is the function that gives one away.
    #[inline(always)]
    pub(crate) fn advance(&mut self) -> bool {
        match &self.lent {
            None => {}
            Some(Delivery::Bundled(bundle)) if self.at + 1 < bundle.len() => {
                self.at += 1;
                self.hand.count_out();
                return true;
            }
            Some(_) => self.end_loan(),
        }
        self.lent = self.hand.next_or_begin();
        self.lent.is_some()
    }

    /// Whether an envelope of a bundle is lent, but not its last one.
    #[inline]
    fn is_amid_bundle(&self) -> bool {
        matches!(&self.lent, Some(Delivery::Bundled(bundle)) if self.at + 1 < bundle.len())
    }

    /// The envelope that was advanced to.
    #[inline]
    pub(super) fn current(&self) -> Option<&E> {
        match &self.lent {
            Some(Delivery::Bundled(bundle)) => Some(bundle.get(self.at)),
            lent => lent.as_deref(),
        }
    }

    /// Lends the envelope that was advanced to.
    #[inline]
    pub(crate) fn lend(&mut self) -> Option<&E> {
        self.hand.reads_by_borrowing(true);
        self.current()
    }

    /// Gives away the envelope that was advanced to.
    #[inline(always)]
    pub(crate) fn give_away(&mut self) -> Option<Arc<E>> {
        if let Some(Delivery::Bundled(bundle)) = &mut self.lent {
            let envelope = bundle.give(self.at);
            if !self.is_amid_bundle() {
                self.end_loan();
                // The caller may take long before the next call.
                self.hand.announce();
            }
            return Some(envelope);
        }
        let delivery = self.lent.take()?;
        self.hand.reads_by_borrowing(false);
        Some(delivery.into_shared())
    }

    /// Ends the loan: drops the envelope's contents and keeps its box for the publisher. The contents of a bundle are dropped
    /// with its last envelope.
    #[inline]
    pub(crate) fn take_back(&mut self) {
        if self.lent.is_some() && !self.is_amid_bundle() {
            self.end_loan();
        }
    }

    // On the path of each envelope of a single reader, where a call would be measurable.
    #[inline(always)]
    fn end_loan(&mut self) {
        match self.lent.take() {
            Some(Delivery::Own(mut envelope)) => {
                let weight = if self.hand.is_empty() {
                    envelope.empty(sealed::Key(()));
                    0
                } else {
                    envelope.let_go(sealed::Key(()))
                };
                self.hand.spend(Delivery::Own(envelope), weight);
            }
            Some(Delivery::Bundled(bundle)) => self.finish(bundle),
            Some(Delivery::Shared(_)) | None => {}
        }
    }

    /// All envelopes of the bundle are finished or taken out.
    #[inline(never)]
    fn finish(&mut self, bundle: Arc<Bundle<E>>) {
        self.at = 0;
        self.hand.let_go(bundle.weight());
    }

    /// Ends the loan, and puts the rest of a bundle back into the hand, one by one.
    pub(crate) fn lay_aside(&mut self) {
        self.take_back();
        if let Some(Delivery::Bundled(bundle)) = self.lent.take() {
            let weight = bundle.weight();
            let rest = Bundle::into_rest(bundle, self.at + 1);
            let rest = rest.map(|envelope| {
                let weight = u32::try_from(envelope.weight()).unwrap_or(u32::MAX);
                (Delivery::Shared(envelope), weight)
            });
            self.at = 0;
            self.hand.put_back(weight, rest);
        }
    }

    /// Returns everything to the inbox.
    pub(crate) fn put_down(&mut self) {
        self.lay_aside();
        self.hand.put_down();
    }
}

impl<E: AnyEnvelope + ?Sized> Drop for Envelopes<E> {
    /// The lent envelope is dropped before the inbox can look idle.
    fn drop(&mut self) {
        self.lay_aside();
    }
}

impl<E: AnyEnvelope + ?Sized> Iterator for Envelopes<E> {
    type Item = Arc<E>;

    fn next(&mut self) -> Option<Arc<E>> {
        if self.advance() {
            return self.give_away();
        }
        self.announce();
        None
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.hand.size_hint()
    }
}

impl<E: AnyEnvelope + ?Sized> fmt::Debug for Envelopes<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Envelopes")
            .field("left", &self.hand.len())
            .finish_non_exhaustive()
    }
}
