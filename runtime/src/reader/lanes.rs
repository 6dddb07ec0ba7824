//! One queue of requests, and several lanes that read: a slow disk or a huge history holds up its lane alone.
//!
//! ```text
//!   push ──► queue ──(bell)──► first idle lane ──► takes one request ──► is busy, reads
//!                                                        └ more are waiting: the next idle lane
//! ```
//!
//! Invariant: as long as a request waits, no lane is idle that has not been rung. A lane is marked as busy before
//! it lets go of the queue, and as idle before it looks there again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millrun_broker::mailbox::{Mailbox, MailboxConfig};
use millrun_core::Bell;

/// The queue and the bells of the lanes. A cheap clone.
#[derive(Debug)]
pub(super) struct Lanes<T> {
    requests: Mailbox<T>,
    lanes: Arc<[Lane]>,
}

#[derive(Debug, Default)]
struct Lane {
    bell: Bell,
    is_busy: AtomicBool,
}

impl<T> Clone for Lanes<T> {
    fn clone(&self) -> Self {
        Self {
            requests: self.requests.clone(),
            lanes: Arc::clone(&self.lanes),
        }
    }
}

impl<T> Lanes<T> {
    pub(super) fn new(len: usize) -> Self {
        let lanes: Arc<[Lane]> = (0..len).map(|_| Lane::default()).collect();
        let bell = Bell::new();
        let (rung, woken) = (bell.clone(), Arc::clone(&lanes));
        bell.connect(move || {
            rung.answer();
            wake_one(&woken);
        });
        let requests =
            Mailbox::new(MailboxConfig::default(), bell).expect("the default configuration is valid");
        Self { requests, lanes }
    }

    pub(super) fn requests(&self) -> &Mailbox<T> {
        &self.requests
    }

    /// The bell of a lane's part.
    pub(super) fn bell(&self, lane: usize) -> &Bell {
        &self.lanes[lane].bell
    }

    /// A lane begins, for the first time or again: it looks at the queue at once.
    pub(super) fn begin(&self, lane: usize) {
        let lane = &self.lanes[lane];
        lane.is_busy.store(false, Ordering::SeqCst);
        lane.bell.ring();
    }

    /// Takes the next request. The lane counts as busy until it asks again.
    pub(super) fn next(&self, lane: usize) -> Option<T> {
        let is_busy = &self.lanes[lane].is_busy;
        is_busy.store(false, Ordering::SeqCst);
        let mut hand = self.requests.take();
        let request = hand.next()?;
        is_busy.store(true, Ordering::SeqCst);
        // Puts the others back.
        drop(hand);
        if !self.requests.is_empty() {
            wake_one(&self.lanes);
        }
        Some(request)
    }

    /// Ends all lanes; what waits is dropped.
    pub(super) fn close(&self) {
        drop(self.requests.close_discarding());
        self.lanes.iter().for_each(|lane| lane.bell.ring());
    }
}

/// Rings the first idle lane. If all are busy, the first that has read looks at the queue.
fn wake_one(lanes: &[Lane]) {
    if let Some(lane) = lanes.iter().find(|lane| !lane.is_busy.load(Ordering::SeqCst)) {
        lane.bell.ring();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the lane's bell has rung since it was asked last.
    fn is_rung(lanes: &Lanes<u32>, lane: usize) -> bool {
        lanes.bell(lane).answer()
    }

    fn push(lanes: &Lanes<u32>, request: u32) {
        lanes.requests().push_reserved(request).unwrap();
    }

    #[test]
    fn a_request_rings_the_first_lane_that_is_idle() {
        let lanes = Lanes::new(3);
        push(&lanes, 1);
        assert_eq!([0, 1, 2].map(|lane| is_rung(&lanes, lane)), [true, false, false]);
        assert_eq!(lanes.next(0), Some(1));
        push(&lanes, 2);
        assert_eq!([0, 1, 2].map(|lane| is_rung(&lanes, lane)), [false, true, false]);
    }

    #[test]
    fn a_lane_that_leaves_requests_behind_rings_the_next() {
        let lanes = Lanes::new(3);
        (1..=3).for_each(|request| push(&lanes, request));
        assert_eq!(lanes.next(0), Some(1));
        assert!(is_rung(&lanes, 1));
        assert_eq!(lanes.next(1), Some(2));
        assert!(is_rung(&lanes, 2));
        assert_eq!(lanes.next(2), Some(3));
    }

    #[test]
    fn a_lane_takes_what_came_while_all_were_busy() {
        let lanes = Lanes::new(2);
        (1..=2).for_each(|request| push(&lanes, request));
        assert_eq!([lanes.next(0), lanes.next(1)], [Some(1), Some(2)]);
        push(&lanes, 3);
        push(&lanes, 4);
        assert_eq!(
            [lanes.next(1), lanes.next(1), lanes.next(1)],
            [Some(3), Some(4), None]
        );
    }

    #[test]
    fn a_lane_that_begins_again_looks_for_what_its_predecessor_left() {
        let lanes = Lanes::new(1);
        push(&lanes, 1);
        assert_eq!(lanes.next(0), Some(1));
        push(&lanes, 2);
        while is_rung(&lanes, 0) {}
        lanes.begin(0);
        assert!(is_rung(&lanes, 0));
        assert_eq!(lanes.next(0), Some(2));
    }

    #[test]
    fn the_end_is_told_to_all_lanes() {
        let lanes = Lanes::new(2);
        lanes.close();
        assert_eq!([0, 1].map(|lane| is_rung(&lanes, lane)), [true, true]);
        assert_eq!(lanes.next(0), None);
        assert!(lanes.requests().is_closed());
    }
}
