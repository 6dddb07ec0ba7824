//! Envelopes that several inboxes share.

use std::sync::Arc;

/// Some consecutive envelopes, with one count for each inbox that holds them. Never changed while more than one does.
pub(crate) struct Bundle<E: ?Sized> {
    /// An entry is `None` once the last inbox has given it away.
    envelopes: Box<[Option<Arc<E>>]>,
    weight: u32,
}

impl<E: ?Sized> Bundle<E> {
    pub(crate) fn new(envelopes: impl Iterator<Item = Arc<E>>, weight: u32) -> Self {
        Self {
            envelopes: envelopes.map(Some).collect(),
            weight,
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.envelopes.len()
    }

    /// The memory that all of them hold, in bytes.
    pub(crate) const fn weight(&self) -> u32 {
        self.weight
    }

    #[inline]
    pub(crate) fn get(&self, at: usize) -> &E {
        self.envelopes[at]
            .as_ref()
            .expect("each inbox gives each envelope away once")
    }

    /// The envelope, for a reader that wants to keep or share it. The last holder of the bundle gives its own reference away.
    pub(crate) fn give(self: &mut Arc<Self>, at: usize) -> Arc<E> {
        // This check saves all but the last holder the atomic operations of `get_mut`.
        if Arc::strong_count(self) == 1
            && let Some(bundle) = Arc::get_mut(self)
            && let Some(envelope) = bundle.envelopes[at].take()
        {
            return envelope;
        }
        let envelope = self.envelopes[at].as_ref();
        Arc::clone(envelope.expect("each inbox gives each envelope away once"))
    }

    /// Those from this one on, in order.
    pub(crate) fn into_rest(mut self: Arc<Self>, from: usize) -> impl DoubleEndedIterator<Item = Arc<E>> {
        (from..self.len()).map(move |at| self.give(at))
    }
}
