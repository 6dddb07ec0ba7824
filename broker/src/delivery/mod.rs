//! The contents of an inbox, and the batch of them that a reader has in hand.
//!
//! ```text
//!   publisher ──► boxed envelope ──► inbox ──► lent to its reader
//!       ▲                                           │
//!       └───────── box, with plain bytes ◄──────────┘
//! ```
//!
//! An envelope with several readers is reference-counted. An envelope with a single reader, who only borrows it, needs no
//! count: it travels in a box, and the box is reused. That saves a message its allocation and four of the six atomic
//! operations on its way, which together are a third of its cost. A publisher uses a box for a single reader, until that
//! reader shows that it keeps what it gets.
//!
//! Inboxes that want the same envelopes hold them in [bundles](Bundle), and a reader walks through one without changing any
//! count.
//!
//! A payload of plain bytes (`Vec<u8>`, `String`, `Box<[u8]>`) returns in its box and is freed by the thread that allocated
//! it, as long as the reader has more in hand. If readers free what publishers on other threads allocate, the two contend for
//! the allocator's lock, and at 256 bytes that costs four times as much as the broker itself. A payload of any other type is
//! dropped by the reader.

mod bundle;

use std::ops::Deref;
use std::sync::Arc;

pub(crate) use bundle::Bundle;

use crate::envelope::{AnyEnvelope, sealed};

/// An envelope as one inbox holds it.
pub(crate) enum Delivery<E: ?Sized> {
    /// No other inbox has it.
    Own(Box<E>),
    /// Other inboxes may have it too.
    Shared(Arc<E>),
    /// Several, which other inboxes have too.
    Bundled(Arc<Bundle<E>>),
}

impl<E: ?Sized> Delivery<E> {
    /// The envelope, for a reader that wants to keep or share it.
    // Inlined into the readers' modules: a call would be ten instructions of each envelope.
    #[inline(always)]
    pub(crate) fn into_shared(self) -> Arc<E> {
        match self {
            Self::Own(envelope) => Arc::from(envelope),
            Self::Shared(envelope) => envelope,
            Self::Bundled(mut bundle) => bundle.give(0),
        }
    }

    /// All the envelopes in it.
    pub(crate) fn into_each(self) -> impl Iterator<Item = Arc<E>> {
        let (single, bundle) = match self {
            Self::Bundled(bundle) => (None, Some(bundle)),
            single => (Some(single.into_shared()), None),
        };
        let bundled = bundle.into_iter().flat_map(|bundle| Bundle::into_rest(bundle, 0));
        single.into_iter().chain(bundled)
    }
}

impl<E: AnyEnvelope + ?Sized> Delivery<E> {
    /// Drops the payload, if no other reader can have it.
    #[inline]
    pub(crate) fn empty(&mut self) {
        if let Self::Own(envelope) = self {
            envelope.empty(sealed::Key(()));
        }
    }
}

impl<E: ?Sized> Deref for Delivery<E> {
    type Target = E;

    #[inline]
    fn deref(&self) -> &E {
        match self {
            Self::Own(envelope) => envelope,
            Self::Shared(envelope) => envelope,
            Self::Bundled(bundle) => bundle.get(0),
        }
    }
}
