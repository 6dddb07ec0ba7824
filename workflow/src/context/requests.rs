//! Memory of ended calls, reused by the next calls on the same thread.
//!
//! ```text
//!   Call::new ──► build ──► event, command, ledger … the call ends ──► keep
//!                   ▲                                                    │
//!                   └──────────────── spare, of this thread ◄────────────┘
//! ```
//!
//! Invariant: reused memory never affects a call, since every field is written.

use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::Arc;

use crate::event::ActivityScheduled;

/// How many are kept for each thread, a third of a kilobyte each.
const SPARE_MAX: usize = 128;

thread_local! {
    static SPARE: RefCell<Vec<Arc<ActivityScheduled>>> = const { RefCell::new(Vec::new()) };
}

/// Puts a request into its final allocation.
#[inline]
pub(super) fn build(request: ActivityScheduled) -> Arc<ActivityScheduled> {
    let mut spare = SPARE.with_borrow_mut(Vec::pop);
    match spare.as_mut().and_then(Arc::get_mut) {
        Some(place) => *place = request,
        None => return Arc::new(request),
    }
    spare.expect("its memory has just been written")
}

/// Keeps the memory of an ended call, if nothing else holds it and it has no further allocations.
pub(crate) fn keep(request: Arc<ActivityScheduled>) {
    let is_named_in_code = [&request.activity, &request.queue].map(|name| matches!(name, Cow::Borrowed(_)));
    let has_memory =
        !request.input.is_in_place() || request.retry_on.is_some() || is_named_in_code != [true; 2];
    if Arc::strong_count(&request) == 1 && !has_memory {
        SPARE.with_borrow_mut(|spare| {
            if spare.len() < SPARE_MAX {
                spare.push(request);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{OperationId, Payload, Retry};

    fn request(number: u32, input: &str, timeout: Option<Duration>) -> ActivityScheduled {
        ActivityScheduled {
            operation: OperationId::new(number),
            activity: "step".into(),
            queue: "queue".into(),
            input: Payload::encode(input).unwrap(),
            retry: Retry::never(),
            retry_on: None,
            start_to_close: Duration::from_secs(1),
            schedule_to_start: timeout,
            schedule_to_close: timeout,
            heartbeat: timeout,
            epoch: 1,
        }
    }

    #[test]
    fn a_request_in_the_memory_of_another_is_as_it_was_asked_for() {
        SPARE.with_borrow_mut(Vec::clear);
        let former = build(request(1, "former", Some(Duration::from_secs(9))));
        let place = Arc::as_ptr(&former);
        keep(former);
        let latter = build(request(2, "latter", None));
        assert_eq!(Arc::as_ptr(&latter), place, "in its memory");
        assert_eq!(*latter, request(2, "latter", None));
    }

    #[test]
    fn memory_that_somebody_holds_or_that_holds_more_is_not_kept() {
        SPARE.with_borrow_mut(Vec::clear);
        let held = build(request(1, "held", None));
        keep(Arc::clone(&held));
        keep(build(request(2, &"large".repeat(100), None)));
        assert_eq!(SPARE.with_borrow(Vec::len), 0);
        assert_eq!(*held, request(1, "held", None));
    }

    #[test]
    fn so_many_are_kept_and_no_more() {
        SPARE.with_borrow_mut(Vec::clear);
        let all: Vec<_> = (0..200)
            .map(|number| build(request(number, "one of many", None)))
            .collect();
        all.into_iter().for_each(keep);
        assert_eq!(SPARE.with_borrow(Vec::len), SPARE_MAX);
    }
}
