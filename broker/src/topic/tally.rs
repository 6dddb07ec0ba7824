//! What a topic and its publishers share for each envelope: a counter, and a flag for changes of the topic.
//!
//! ```text
//!   publisher ──► its cell: one more        ◄── topic: how many in all
//!             ◄── its cell: other inboxes   ◄── topic: a subscription came or went
//! ```
//!
//! Each publisher has its own cell, in which only it counts, so counting needs no atomic addition. The same cell has the flag
//! that tells it to check the topic again; until then it touches nothing else of the topic.

use std::sync::{Arc, PoisonError};

use crate::sync::{AtomicBool, AtomicU64, Ordering};

/// A counter in cells, one for each publisher, each with a flag for changes.
pub(crate) struct Tally {
    rest: AtomicU64,
    cells: std::sync::Mutex<Vec<Arc<CellState>>>,
}

/// One publisher's share of a [`Tally`].
pub(crate) struct Cell(Arc<CellState>);

struct CellState {
    count: AtomicU64,
    has_news: AtomicBool,
}

impl Cell {
    #[inline]
    pub(crate) fn add(&mut self, count: u64) {
        let counted = self.0.count.load(Ordering::Relaxed) + count;
        self.0.count.store(counted, Ordering::Relaxed);
    }

    /// Whether [`Cell::take_news`] should be called.
    ///
    /// # Ordering
    /// A flag that was set before something this thread knows of is seen.
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        self.0.has_news.load(Ordering::Relaxed)
    }

    /// Whether the topic has changed since the last call; true for the first call.
    ///
    /// # Ordering
    /// All changes before the flag was set are seen after this; later changes set the flag again.
    pub(crate) fn take_news(&mut self) -> bool {
        self.0.has_news.swap(false, Ordering::AcqRel)
    }
}

impl Tally {
    pub(crate) fn new() -> Self {
        Self {
            rest: AtomicU64::new(0),
            cells: std::sync::Mutex::default(),
        }
    }

    /// Counts for a publisher without a cell.
    pub(crate) fn add_one(&self) {
        self.rest.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn open_cell(&self) -> Cell {
        let cell = Arc::new(CellState {
            count: AtomicU64::new(0),
            has_news: AtomicBool::new(true),
        });
        self.cells().push(Arc::clone(&cell));
        Cell(cell)
    }

    pub(crate) fn close_cell(&self, cell: &Cell) {
        let mut cells = self.cells();
        cells.retain(|held| !Arc::ptr_eq(held, &cell.0));
        self.rest
            .fetch_add(cell.0.count.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Sets the flag in every cell.
    pub(crate) fn tell(&self) {
        for cell in &*self.cells() {
            // A swap, so that a publisher that takes one of several news has seen all changes before it.
            cell.has_news.swap(true, Ordering::AcqRel);
        }
    }

    pub(crate) fn total(&self) -> u64 {
        let cells = self.cells();
        let open: u64 = cells.iter().map(|cell| cell.count.load(Ordering::Relaxed)).sum();
        self.rest.load(Ordering::Relaxed) + open
    }

    fn cells(&self) -> std::sync::MutexGuard<'_, Vec<Arc<CellState>>> {
        self.cells.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_total_has_the_counts_of_those_who_left() {
        let tally = Tally::new();
        let (mut first, mut second) = (tally.open_cell(), tally.open_cell());
        first.add(3);
        second.add(4);
        tally.add_one();
        tally.close_cell(&first);
        assert_eq!(tally.total(), 8);
    }

    #[test]
    fn news_are_told_once_to_each_and_to_newcomers() {
        let tally = Tally::new();
        let mut early = tally.open_cell();
        assert!(early.has_news() && early.take_news());
        assert!(!early.has_news() && !early.take_news());
        tally.tell();
        let mut late = tally.open_cell();
        assert!(early.take_news() && late.take_news());
        assert!(!early.take_news() && !late.take_news());
    }
}

#[cfg(all(test, loom))]
mod loom {
    use ::loom::sync::atomic::AtomicUsize;
    use ::loom::{model, thread};

    use super::*;

    #[test]
    fn who_takes_news_sees_what_was_changed_before_they_were_told() {
        model(|| {
            let (tally, route) = (Arc::new(Tally::new()), Arc::new(AtomicUsize::new(0)));
            let mut cell = tally.open_cell();
            cell.take_news();
            let changing = thread::spawn({
                let (tally, route) = (Arc::clone(&tally), Arc::clone(&route));
                move || {
                    for change in 1..=2 {
                        route.store(change, Ordering::Relaxed);
                        tally.tell();
                    }
                }
            });
            let mut seen = 0;
            for _ in 0..2 {
                if cell.has_news() && cell.take_news() {
                    seen = route.load(Ordering::Relaxed);
                    assert_ne!(seen, 0);
                }
            }
            changing.join().unwrap();
            if cell.has_news() && cell.take_news() {
                seen = route.load(Ordering::Relaxed);
            }
            assert_eq!(seen, 2);
        });
    }
}
