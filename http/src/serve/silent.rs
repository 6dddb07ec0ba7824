//! Connections that have not sent a request yet: at the bound, the oldest of them is closed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// The connections that have not sent a request yet. A cheap clone. The bound of connections bounds it.
#[derive(Clone, Default)]
pub(super) struct Silent(Arc<Mutex<List>>);

#[derive(Default)]
struct List {
    last_number: u64,
    /// By age: the channels that close them.
    places: BTreeMap<u64, oneshot::Sender<()>>,
}

/// The place of one connection in the list; dropped with it.
pub(super) struct SilentPlace {
    number: u64,
    silent: Silent,
}

impl Silent {
    /// Adds a new connection. The receiver completes with `Ok` when the connection has to be closed, and with an error once
    /// the connection has sent a request.
    pub(super) fn enter(&self) -> (SilentPlace, oneshot::Receiver<()>) {
        let (close, is_closed) = oneshot::channel();
        let mut list = self.list();
        list.last_number += 1;
        let number = list.last_number;
        list.places.insert(number, close);
        let silent = self.clone();
        (SilentPlace { number, silent }, is_closed)
    }

    /// Closes the oldest one; false if there is none.
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
    /// Notes that the connection has sent a request. Returns false if the connection has to be closed: its request must not
    /// be performed then, since the connection may be closed before the answer.
    pub(super) fn leave(&self) -> bool {
        self.silent.list().places.remove(&self.number).is_some()
    }
}

impl Drop for SilentPlace {
    fn drop(&mut self) {
        self.leave();
    }
}
