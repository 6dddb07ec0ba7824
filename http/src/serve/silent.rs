//! Connections that have sent no request yet: at the bound, the oldest of them makes room.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// The connections that have sent no request yet. A cheap clone. There are as many as there are connections at most.
#[derive(Clone, Default)]
pub(super) struct Silent(Arc<Mutex<List>>);

#[derive(Default)]
struct List {
    last_number: u64,
    /// By age. What closes each of them.
    places: BTreeMap<u64, oneshot::Sender<()>>,
}

/// The place of one connection among them; dropped with it.
pub(super) struct SilentPlace {
    number: u64,
    silent: Silent,
}

impl Silent {
    /// A place for a new connection, and what completes with `Ok` when the connection is to make room. It completes
    /// with an error once the connection has sent a request.
    pub(super) fn enter(&self) -> (SilentPlace, oneshot::Receiver<()>) {
        let (close, is_closed) = oneshot::channel();
        let mut list = self.list();
        list.last_number += 1;
        let number = list.last_number;
        list.places.insert(number, close);
        let silent = self.clone();
        (SilentPlace { number, silent }, is_closed)
    }

    /// Has the oldest make room; false if there is none.
    pub(super) fn close_oldest(&self) -> bool {
        // A connection that ends at this moment makes room as well.
        let oldest = self.list().places.pop_first();
        oldest.map(|(_, close)| close.send(())).is_some()
    }

    fn list(&self) -> MutexGuard<'_, List> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SilentPlace {
    /// The connection has sent a request. False if it is to make room: its request is not to be performed, since the
    /// connection may be gone before the answer.
    pub(super) fn leave(&self) -> bool {
        self.silent.list().places.remove(&self.number).is_some()
    }
}

impl Drop for SilentPlace {
    fn drop(&mut self) {
        self.leave();
    }
}
