//! One queue of requests, and several lanes that read: a slow disk or a huge history holds up its lane alone.
//!
//! ```text
//!   push ──► queue ──(bell)──► first idle lane ──► takes one request, or its share ──► is busy, reads
//!              ▲                                         └ more are waiting: the next idle lane
//!              └──── what a busy lane has taken and does not come to ◄── an idle lane that watches
//! ```
//!
//! Small requests are taken several at a time and read together: as many of the first ones as are a lane's share of all that
//! wait. If one of them takes long, an idle lane puts those behind it back into the queue: it checks twice, [`STUCK_AFTER`]
//! apart, whether any was read in between.
//!
//! Invariant: while a request waits, every idle lane's bell has been rung. A lane is marked as busy before it lets go of the
//! queue, and as idle before it looks there again.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use millrun_broker::mailbox::{Mailbox, MailboxConfig};
use millrun_core::{Bell, Timestamp};

/// How many requests a lane takes at most to read them together.
pub(super) const TOGETHER_LEN_MAX: usize = 32;
/// A lane that has taken several requests and has read none for this long is stuck at the first.
pub(super) const STUCK_AFTER: Duration = Duration::from_millis(5);

/// The queue and the bells of the lanes. A cheap clone.
#[derive(Debug)]
pub(super) struct Lanes<T> {
    requests: Mailbox<T>,
    lanes: Arc<[ReaderLane<T>]>,
}

#[derive(Debug)]
struct ReaderLane<T> {
    bell: Bell,
    is_busy: AtomicBool,
    several: Mutex<Several<T>>,
}

/// The requests that a lane has taken to read them together.
#[derive(Debug)]
struct Several<T> {
    /// Those that have not been read yet, in order, each with its number.
    left: VecDeque<(usize, T)>,
    /// Incremented for each request that is read, and each time some are taken.
    steps: u64,
}

/// What a lane is to do next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NextRead<T> {
    /// Read this.
    One(T),
    /// Read the requests that the lane has taken, which are [kept with the lane](Lanes::left).
    Several,
}

/// What an idle lane has seen of the others: the steps of each, and since when they have not changed.
#[derive(Debug, Default)]
pub(super) struct Watched(Vec<(u64, Timestamp)>);

impl<T> Default for ReaderLane<T> {
    fn default() -> Self {
        Self {
            bell: Bell::default(),
            is_busy: AtomicBool::default(),
            several: Mutex::new(Several {
                left: VecDeque::new(),
                steps: 0,
            }),
        }
    }
}

impl<T> ReaderLane<T> {
    fn several(&self) -> MutexGuard<'_, Several<T>> {
        self.several.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Clone for Lanes<T> {
    fn clone(&self) -> Self {
        Self {
            requests: self.requests.clone(),
            lanes: Arc::clone(&self.lanes),
        }
    }
}

impl<T: Send + 'static> Lanes<T> {
    pub(super) fn new(len: usize) -> Self {
        let lanes: Arc<[ReaderLane<T>]> = (0..len).map(|_| ReaderLane::default()).collect();
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

    /// A lane begins, for the first time or again, and looks at the queue at once. Requests that its predecessor had taken
    /// and not read go back to the queue.
    pub(super) fn begin(&self, lane: usize) {
        let lane = &self.lanes[lane];
        lane.is_busy.store(false, Ordering::SeqCst);
        let left = std::mem::take(&mut lane.several().left);
        self.put_back(left);
        lane.bell.ring();
    }

    /// Takes the next request, or several that `go_together`. The lane counts as busy until it asks again.
    pub(super) fn next(&self, lane: usize, go_together: impl Fn(&T) -> bool) -> Option<NextRead<T>> {
        let lane = &self.lanes[lane];
        lane.is_busy.store(false, Ordering::SeqCst);
        let mut hand = self.requests.take();
        let share = hand.len().div_ceil(self.lanes.len()).min(TOGETHER_LEN_MAX);
        let first = hand.next()?;
        lane.is_busy.store(true, Ordering::SeqCst);
        let (mut further, mut other) = (VecDeque::new(), None);
        while go_together(&first) && 1 + further.len() < share && other.is_none() {
            match hand.next() {
                Some(request) if go_together(&request) => further.push_back(request),
                next => other = Some(next),
            }
        }
        // The others go back to the queue.
        drop(hand);
        if let Some(Some(other)) = other {
            // Refused only when the runtime has stopped.
            drop(self.requests.give_back(other));
        }
        // If several were taken, or more wait, another lane is woken: in the first case it watches this one.
        let is_to_wake = !further.is_empty() || !self.requests.is_empty();
        let next = if further.is_empty() {
            NextRead::One(first)
        } else {
            further.push_front(first);
            let mut several = lane.several();
            several.left = (0..).zip(further).collect();
            several.steps += 1;
            NextRead::Several
        };
        if is_to_wake {
            wake_one(&self.lanes);
        }
        Some(next)
    }

    /// The lane has read its one request, and is about to [look](Self::next) for another. A request that comes now rings this
    /// lane's bell, and not another's.
    pub(super) fn has_read(&self, lane: usize) {
        self.lanes[lane].is_busy.store(false, Ordering::SeqCst);
    }

    /// Shows the requests that a lane has taken and not read yet, in order.
    pub(super) fn left(&self, lane: usize, mut look: impl FnMut(usize, &T)) {
        let several = self.lanes[lane].several();
        several
            .left
            .iter()
            .for_each(|(number, request)| look(*number, request));
    }

    /// Takes the request with this number to answer it; `None` if another lane has taken it.
    pub(super) fn claim(&self, lane: usize, number: usize) -> Option<T> {
        let mut several = self.lanes[lane].several();
        several.steps += 1;
        let at = several.left.iter().position(|(other, _)| *other == number)?;
        several.left.remove(at).map(|(_, request)| request)
    }

    /// Takes the requests that a lane could not read together.
    pub(super) fn rest(&self, lane: usize) -> Vec<T> {
        let left = std::mem::take(&mut self.lanes[lane].several().left);
        left.into_iter().map(|(_, request)| request).collect()
    }

    /// Lets an idle lane check the others: if one is stuck, the requests that it has taken go back to the queue, except the
    /// one that it is reading. Returns whether to check again [`STUCK_AFTER`] from now.
    pub(super) fn watch(&self, now: Timestamp, watched: &mut Watched) -> bool {
        watched.0.resize(self.lanes.len(), (0, now));
        let mut is_to_look_again = false;
        for (lane, (steps, since)) in self.lanes.iter().zip(&mut watched.0) {
            let mut several = lane.several();
            if several.steps != *steps {
                (*steps, *since) = (several.steps, now);
            }
            if several.left.len() < 2 {
                continue;
            }
            if now.saturating_since(*since) < STUCK_AFTER {
                is_to_look_again = true;
                continue;
            }
            let behind = several.left.split_off(1);
            drop(several);
            self.put_back(behind);
        }
        is_to_look_again
    }

    /// Puts requests back to the front of the queue, in order.
    fn put_back(&self, left: VecDeque<(usize, T)>) {
        for (_, request) in left.into_iter().rev() {
            // Refused only when the runtime has stopped.
            drop(self.requests.give_back(request));
        }
    }

    /// Ends all lanes, and drops the requests that wait.
    pub(super) fn close(&self) {
        drop(self.requests.close_discarding());
        self.lanes.iter().for_each(|lane| lane.bell.ring());
    }
}

/// Rings the first idle lane. If all are busy, the first that is done looks at the queue.
fn wake_one<T>(lanes: &[ReaderLane<T>]) {
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

    /// The next request, if each is read alone.
    fn next(lanes: &Lanes<u32>, lane: usize) -> Option<u32> {
        match lanes.next(lane, |_| false)? {
            NextRead::One(request) => Some(request),
            NextRead::Several => panic!("none go together"),
        }
    }

    /// What a lane takes, if small numbers are read together.
    fn take(lanes: &Lanes<u32>, lane: usize) -> Vec<u32> {
        match lanes.next(lane, |request| *request < 100) {
            Some(NextRead::One(request)) => vec![request],
            Some(NextRead::Several) => left(lanes, lane),
            None => Vec::new(),
        }
    }

    /// What a lane has taken and not read.
    fn left(lanes: &Lanes<u32>, lane: usize) -> Vec<u32> {
        let mut left = Vec::new();
        lanes.left(lane, |_, request| left.push(*request));
        left
    }

    #[test]
    fn a_request_rings_the_first_lane_that_is_idle() {
        let lanes = Lanes::new(3);
        push(&lanes, 1);
        assert_eq!([0, 1, 2].map(|lane| is_rung(&lanes, lane)), [true, false, false]);
        assert_eq!(next(&lanes, 0), Some(1));
        push(&lanes, 2);
        assert_eq!([0, 1, 2].map(|lane| is_rung(&lanes, lane)), [false, true, false]);
    }

    #[test]
    fn a_lane_that_has_read_gets_what_is_asked_for_by_who_was_answered() {
        let lanes = Lanes::new(2);
        push(&lanes, 1);
        assert_eq!([0, 1].map(|lane| is_rung(&lanes, lane)), [true, false]);
        assert_eq!(next(&lanes, 0), Some(1));
        lanes.has_read(0);
        push(&lanes, 2);
        assert_eq!([0, 1].map(|lane| is_rung(&lanes, lane)), [true, false]);
        assert_eq!((next(&lanes, 0), next(&lanes, 0)), (Some(2), None));
    }

    #[test]
    fn a_lane_that_leaves_requests_behind_rings_the_next() {
        let lanes = Lanes::new(3);
        (1..=3).for_each(|request| push(&lanes, request));
        assert_eq!(next(&lanes, 0), Some(1));
        assert!(is_rung(&lanes, 1));
        assert_eq!(next(&lanes, 1), Some(2));
        assert!(is_rung(&lanes, 2));
        assert_eq!(next(&lanes, 2), Some(3));
    }

    #[test]
    fn a_lane_takes_what_came_while_all_were_busy() {
        let lanes = Lanes::new(2);
        (1..=2).for_each(|request| push(&lanes, request));
        assert_eq!([next(&lanes, 0), next(&lanes, 1)], [Some(1), Some(2)]);
        push(&lanes, 3);
        push(&lanes, 4);
        assert_eq!(
            [next(&lanes, 1), next(&lanes, 1), next(&lanes, 1)],
            [Some(3), Some(4), None]
        );
    }

    #[test]
    fn a_lane_that_begins_again_looks_for_what_its_predecessor_left() {
        let lanes = Lanes::new(1);
        push(&lanes, 1);
        assert_eq!(next(&lanes, 0), Some(1));
        push(&lanes, 2);
        while is_rung(&lanes, 0) {}
        lanes.begin(0);
        assert!(is_rung(&lanes, 0));
        assert_eq!(next(&lanes, 0), Some(2));
    }

    #[test]
    fn the_end_is_told_to_all_lanes() {
        let lanes = Lanes::new(2);
        lanes.close();
        assert_eq!([0, 1].map(|lane| is_rung(&lanes, lane)), [true, true]);
        assert_eq!(next(&lanes, 0), None);
        assert!(lanes.requests().is_closed());
    }

    #[test]
    fn a_lane_takes_its_share_of_what_waits_and_no_more_than_so_many() {
        let lanes = Lanes::new(3);
        (1..=8).for_each(|request| push(&lanes, request));
        assert_eq!(take(&lanes, 0), [1, 2, 3]);
        assert_eq!(take(&lanes, 1), [4, 5]);
        assert_eq!(take(&lanes, 2), [6]);
        assert_eq!((0..3).filter_map(|number| lanes.claim(0, number)).sum::<u32>(), 6);
        assert_eq!(take(&lanes, 0), [7]);
        assert_eq!(take(&lanes, 2), [8]);
        let lanes = Lanes::new(1);
        (1..=50).for_each(|request| push(&lanes, request));
        assert_eq!(take(&lanes, 0).len(), TOGETHER_LEN_MAX);
    }

    #[test]
    fn what_does_not_go_together_is_taken_alone_and_in_its_place() {
        let lanes = Lanes::new(1);
        [1, 2, 100, 101, 3]
            .into_iter()
            .for_each(|request| push(&lanes, request));
        assert_eq!(take(&lanes, 0), [1, 2]);
        assert_eq!(lanes.rest(0), [1, 2]);
        for expected in [100, 101, 3] {
            assert_eq!(take(&lanes, 0), [expected]);
        }
    }

    #[test]
    fn what_stands_behind_a_request_that_takes_long_is_read_by_an_idle_lane() {
        let lanes = Lanes::new(2);
        let (start, mut watched) = (Timestamp::EPOCH, Watched::default());
        (1..=8).for_each(|request| push(&lanes, request));
        assert_eq!(take(&lanes, 0), [1, 2, 3, 4]);
        assert_eq!((take(&lanes, 1), lanes.rest(1)), (vec![5, 6], vec![5, 6]));
        assert_eq!((take(&lanes, 1), take(&lanes, 1)), (vec![7], vec![8]));
        assert!(take(&lanes, 1).is_empty());
        assert!(lanes.watch(start, &mut watched), "it looks again");
        assert_eq!(lanes.claim(0, 0), Some(1));
        assert!(lanes.watch(start + STUCK_AFTER, &mut watched), "one was read");
        assert!(
            lanes.watch(start + STUCK_AFTER * 3 / 2, &mut watched),
            "that was too soon"
        );
        assert!(!lanes.watch(start + 2 * STUCK_AFTER, &mut watched));
        assert_eq!(left(&lanes, 0), [2], "the one that takes long");
        assert_eq!((take(&lanes, 1), take(&lanes, 1)), (vec![3], vec![4]));
        assert_eq!(lanes.claim(0, 2), None, "another lane answers it");
        assert_eq!(lanes.claim(0, 1), Some(2));
    }

    #[test]
    fn a_lane_that_fails_leaves_what_it_had_taken_to_all() {
        let lanes = Lanes::new(1);
        (1..=3).for_each(|request| push(&lanes, request));
        assert_eq!(take(&lanes, 0), [1, 2, 3]);
        assert_eq!(lanes.claim(0, 0), Some(1));
        lanes.begin(0);
        assert_eq!(take(&lanes, 0), [2, 3]);
    }
}
