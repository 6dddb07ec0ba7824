//! Counting without atomic additions.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A counter in cells: each publisher counts in its own, which only it writes.
#[derive(Default)]
pub(crate) struct Tally {
    rest: AtomicU64,
    cells: Mutex<Vec<Arc<AtomicU64>>>,
}

/// One publisher's share of a [`Tally`].
pub(crate) struct Cell(Arc<AtomicU64>);

impl Cell {
    #[inline]
    pub(crate) fn add(&mut self, count: u64) {
        self.0
            .store(self.0.load(Ordering::Relaxed) + count, Ordering::Relaxed);
    }
}

impl Tally {
    /// Counts for someone who has no cell.
    pub(crate) fn add_one(&self) {
        self.rest.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn open_cell(&self) -> Cell {
        let cell = Arc::new(AtomicU64::new(0));
        self.cells
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Arc::clone(&cell));
        Cell(cell)
    }

    pub(crate) fn close_cell(&self, cell: &Cell) {
        let mut cells = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
        cells.retain(|held| !Arc::ptr_eq(held, &cell.0));
        self.rest
            .fetch_add(cell.0.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    pub(crate) fn total(&self) -> u64 {
        let cells = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
        let open: u64 = cells.iter().map(|cell| cell.load(Ordering::Relaxed)).sum();
        self.rest.load(Ordering::Relaxed) + open
    }
}
