//! What an inbox holds, and the batch of it that a reader has in hand.
//!
//! ```text
//!   publisher ──► boxed envelope ──► inbox ──► lent to its reader
//!       ▲                                           │
//!       └───────── box, with plain bytes ◄──────────┘
//! ```
//!
//! An envelope that several share is counted. One that has a single reader, who only borrows it, has
//! nothing to count: it travels in a box, and the box goes round. That saves a message its
//! allocation and four of the six atomic operations on its way, which together are a third of what
//! it costs. A publisher boxes for an only reader, until that shows that it keeps what it gets.
//!
//! Where many inboxes want the same they hold it in [bundles](Bundle), and a reader goes through
//! one without counting anything.
//!
//! A payload of plain bytes (`Vec<u8>`, `String`, `Box<[u8]>`) goes back in its box and is freed by the
//! thread that allocated it, for as long as there is more in the reader's hand. If readers free what
//! publishers on other threads allocate, the two meet at the allocator's lock, and at 256 bytes that
//! costs four times what the broker does. Anything else a payload may be is dropped by the reader.

mod bundle;

use std::ops::Deref;
use std::sync::Arc;

pub(crate) use bundle::Bundle;

use crate::envelope::{AnyEnvelope, sealed};

/// An envelope as one inbox holds it.
pub(crate) enum Delivery<E: ?Sized> {
    /// Nobody else has it.
    Own(Box<E>),
    /// Others may have it too.
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

    /// All the envelopes there are in it.
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
    /// Drops what it carries, if nobody else can have it.
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
