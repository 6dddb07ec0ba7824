//! Time limits for upkeep, which takes as long as the store is large: tells the server that a request is upkeep.
//!
//! ```text
//!   server ── request with a mark ──► operation: it is upkeep ──► marked ──► the server's other bound counts
//! ```
//!
//! The operation marks the request once the caller's role is known and the body has been read, so that no other request gets
//! the longer limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::http::Extensions;

/// Whether the request with this extension is upkeep.
#[derive(Clone, Debug, Default)]
pub(crate) struct UpkeepMark(Arc<AtomicBool>);

impl UpkeepMark {
    /// Marks a request, if it has a mark; a router in another server has none.
    pub(crate) fn set_in(extensions: &Extensions) {
        if let Some(mark) = extensions.get::<Self>() {
            mark.0.store(true, Ordering::Relaxed);
        }
    }

    #[cfg(feature = "serve")]
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
