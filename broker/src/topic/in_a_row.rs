//! Decides when a publisher that never waits lets other tasks run.
//!
//! A publish that finds room is ready at once, so a task that only publishes would never leave its thread. There are two
//! bounds: for each publisher, and for each thread, since a task may publish to thousands of topics in turn.

use std::cell::Cell;

/// How many publishes of one publisher may follow each other without a wait.
const OF_PUBLISHER_MAX: u32 = 512;

/// How many publishes a publisher adds to its thread's count at once: a power of two, and a divisor of the bound above.
const STRIDE: u32 = 8;

/// How many publishes of all publishers may follow each other on one thread. They fill inboxes that no reader empties
/// meanwhile: with more, readers would find nothing in the processor's caches; with fewer, each of a thousand readers would
/// be woken for a single envelope.
const ON_THREAD_MAX: u32 = 8_192;

/// How many more may follow where many publishers take turns: the cost of waking a reader is then shared by this many
/// envelopes. Each of the publishers after the first 512 adds as many, up to twice the bound above in all.
const OF_EACH_OF_MANY: u32 = 16;

thread_local! {
    /// The publishes in a row of this thread. It has no destructor and no lazy initialisation, so that a read is one load.
    static ROW: PublishRow = const { PublishRow::new() };
}

/// The publishes of all publishers that follow each other on a thread.
struct PublishRow {
    /// How many are left.
    left: Cell<u32>,
    /// How many publishers have taken part.
    publishers: Cell<u32>,
    /// Distinguishes one row from the next.
    number: Cell<u32>,
}

impl PublishRow {
    /// The first.
    const fn new() -> Self {
        Self {
            left: Cell::new(ON_THREAD_MAX),
            publishers: Cell::new(0),
            number: Cell::new(1),
        }
    }

    /// A publisher takes part for the first time.
    fn join(&self) {
        let publishers = self.publishers.get() + 1;
        self.publishers.set(publishers);
        let each = publishers * OF_EACH_OF_MANY;
        if each > ON_THREAD_MAX && each <= 2 * ON_THREAD_MAX {
            self.left.set(self.left.get() + OF_EACH_OF_MANY);
        }
    }

    /// Other tasks have run.
    fn begin(&self) {
        self.left.set(ON_THREAD_MAX);
        self.publishers.set(0);
        self.number.set(self.number.get().wrapping_add(1));
    }
}

/// Counts the publishes of one publisher.
#[derive(Debug)]
pub(super) struct InARow {
    left: u32,
    /// The row of a thread in which it took part last.
    row: u32,
}

impl InARow {
    pub(super) const fn new() -> Self {
        Self {
            left: OF_PUBLISHER_MAX,
            row: 0,
        }
    }

    /// Counts a publish. Returns whether other tasks should run first.
    // Counted down, which takes three instructions.
    #[inline]
    pub(super) fn should_yield(&mut self) -> bool {
        self.left -= 1;
        self.left.is_multiple_of(STRIDE) && self.is_spent()
    }

    #[inline(never)]
    fn is_spent(&mut self) -> bool {
        let left_on_thread = ROW.with(|row| {
            // A row of another thread may have the same number: then the publisher is not counted here.
            if self.row != row.number.get() {
                self.row = row.number.get();
                row.join();
            }
            row.left.set(row.left.get().saturating_sub(STRIDE));
            row.left.get()
        });
        let is_spent = self.left == 0 || left_on_thread == 0;
        if is_spent {
            self.begin();
        }
        is_spent
    }

    /// Starts counting anew, because other tasks run now.
    pub(super) fn begin(&mut self) {
        self.left = OF_PUBLISHER_MAX;
        ROW.with(PublishRow::begin);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many publishes come before the first that lets others run, of this many publishers in turn.
    fn before_a_yield(publishers: usize) -> usize {
        let mut all: Vec<_> = (0..publishers).map(|_| InARow::new()).collect();
        all[0].begin();
        let turns = (0..publishers).cycle().take(1_000_000);
        turns.take_while(|turn| !all[*turn].should_yield()).count()
    }

    /// With only the publishes of each publisher counted, a task that published to a thousand topics in turn kept its thread
    /// for half a million of them.
    #[test]
    fn a_thread_is_left_to_others_however_many_publishers_take_turns() {
        assert_eq!(before_a_yield(1), 511);
        assert_eq!(before_a_yield(64), 8_191);
        assert_eq!(before_a_yield(512), 8_191);
        assert_eq!(before_a_yield(1_024), 16_383);
        // Each adds to the count at its eighth publish.
        assert_eq!(before_a_yield(10_000), 72_047);
    }

    #[test]
    fn a_publisher_that_waited_begins_anew() {
        let mut publisher = InARow::new();
        for _ in 0..10 {
            assert!((0..500).all(|_| !publisher.should_yield()));
            publisher.begin();
        }
    }
}
