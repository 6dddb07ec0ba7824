//! The interleavings of a few threads at one mailbox, explored by loom:
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p millrun-broker --lib mailbox::loom
//! ```
//!
//! The bell is explored with it, and by itself in `millrun-core`.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use loom::future::block_on;
use loom::sync::Notify;
use loom::thread;
use millrun_core::Bell;

use super::{Closed, Mailbox, MailboxConfig, TryPushError};

/// Up to three preemptions per run: more than any known fault of such code has needed, and few enough that the test ends
/// within a minute.
fn explore(run: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(run);
}

fn mailbox(capacity: usize) -> Mailbox<u32> {
    let config = MailboxConfig {
        capacity,
        ..MailboxConfig::default()
    };
    Mailbox::new(config, Bell::new()).unwrap()
}

/// Lets the mailbox ring for this thread, and takes until there are `count` values.
fn consume(mailbox: &Mailbox<u32>, count: usize) -> Vec<u32> {
    let notify = Arc::new(Notify::new());
    let ring = Arc::clone(&notify);
    mailbox.bell().connect(move || ring.notify());
    let mut seen = Vec::new();
    while seen.len() < count {
        // A lost wake-up would be a deadlock here, which loom reports.
        notify.wait();
        mailbox.bell().answer();
        seen.extend(mailbox.take());
    }
    seen
}

#[test]
fn no_wake_up_is_lost() {
    explore(|| {
        let mailbox = mailbox(4);
        let other = mailbox.clone();
        let pusher = thread::spawn(move || {
            other.try_push(1).unwrap();
            other.try_push(2).unwrap();
        });
        assert_eq!(consume(&mailbox, 2), [1, 2]);
        pusher.join().unwrap();
    });
}

#[test]
fn two_pushers_ring_once_or_twice_and_lose_nothing() {
    explore(|| {
        let mailbox = mailbox(4);
        let pushers: Vec<_> = [1, 2]
            .into_iter()
            .map(|value| {
                let mailbox = mailbox.clone();
                thread::spawn(move || mailbox.try_push(value).unwrap())
            })
            .collect();
        let mut seen = consume(&mailbox, 2);
        seen.sort_unstable();
        assert_eq!(seen, [1, 2]);
        pushers.into_iter().for_each(|pusher| pusher.join().unwrap());
    });
}

#[test]
fn a_waiting_push_gets_the_room_that_a_take_makes() {
    explore(|| {
        let mailbox = mailbox(1);
        mailbox.try_push(1).unwrap();
        let other = mailbox.clone();
        let pusher = thread::spawn(move || block_on(other.push(2)).unwrap());
        assert_eq!(consume(&mailbox, 2), [1, 2]);
        pusher.join().unwrap();
    });
}

#[test]
fn a_dropped_push_passes_its_wake_up_on() {
    explore(|| {
        let mailbox = mailbox(1);
        mailbox.try_push(1).unwrap();
        let mut first = Box::pin(mailbox.push(9));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(first.as_mut().poll(&mut cx).is_pending());
        let other = mailbox.clone();
        let second = thread::spawn(move || block_on(other.push(2)).unwrap());
        // The first waiting pusher gets the room, and does not come back for it.
        assert_eq!(mailbox.take().next(), Some(1));
        drop(first);
        second.join().unwrap();
        assert_eq!(mailbox.take().collect::<Vec<_>>(), [2]);
    });
}

#[test]
fn a_push_against_close_is_either_in_or_given_back() {
    explore(|| {
        let mailbox = mailbox(1);
        mailbox.try_push(1).unwrap();
        let other = mailbox.clone();
        let pusher = thread::spawn(move || block_on(other.push(2)));
        let mut taken = mailbox.take().count();
        mailbox.close();
        taken += mailbox.take().count();
        match pusher.join().unwrap() {
            Ok(()) => assert_eq!(taken, 2),
            Err(Closed(value)) => assert_eq!((value, taken), (2, 1)),
        }
        assert!(mailbox.is_finished());
    });
}

#[test]
fn a_hand_put_down_early_keeps_the_order_against_new_pushes() {
    explore(|| {
        let mailbox = mailbox(4);
        mailbox.try_push(1).unwrap();
        mailbox.try_push(2).unwrap();
        let other = mailbox.clone();
        let failing = thread::spawn(move || {
            // Like a panic in the middle of a batch.
            let mut hand = other.take();
            hand.next()
        });
        let other = mailbox.clone();
        let pusher = thread::spawn(move || other.try_push(3).unwrap());
        let first = failing.join().unwrap();
        pusher.join().unwrap();
        assert_eq!(first, Some(1));
        assert!(mailbox.bell().answer(), "the successor is rung for");
        assert_eq!(mailbox.take().collect::<Vec<_>>(), [2, 3]);
    });
}

/// Spends what it takes, with one byte each, until there are `count` values.
fn spend_all(mailbox: &Mailbox<u32>, count: usize) {
    let mut hand = mailbox.take();
    let mut seen = 0;
    while seen < count {
        while let Some(value) = hand.next() {
            hand.spend(value, 1);
            seen += 1;
        }
        hand.refill();
        thread::yield_now();
    }
}

#[test]
fn spent_values_are_with_a_pusher_or_emptied_once_the_stream_has_ended() {
    explore(|| {
        let config = MailboxConfig {
            capacity: 4,
            bytes_max: 64,
        };
        // A value that weighs something is not zero.
        let empty = |value: &mut u32| assert_ne!(std::mem::take(value), 0, "emptied once");
        let mailbox = Mailbox::lending(config, |_| 1, empty, Bell::new()).unwrap();
        mailbox.try_push(1).unwrap();
        let other = mailbox.clone();
        let pusher = thread::spawn(move || {
            let mut spent = None;
            other.try_push_weighed(2, 1, Some(&mut spent)).unwrap();
            spent
        });
        spend_all(&mailbox, 2);
        let travelled = pusher.join().unwrap();
        let state = mailbox.lock();
        assert_eq!(state.spent.len() + usize::from(travelled.is_some()), 2);
        assert_eq!(
            state.spent.weight(),
            0,
            "the consumer has seen that nothing comes"
        );
        assert!(state.spent.iter().all(|(value, _)| *value == 0));
    });
}

#[test]
fn the_bound_holds_while_a_hand_is_emptied() {
    explore(|| {
        let mailbox = mailbox(1);
        mailbox.try_push(1).unwrap();
        let other = mailbox.clone();
        let consumer = thread::spawn(move || {
            let mut hand = other.take();
            hand.next();
            assert!(other.len() <= 1);
        });
        let outcome = mailbox.try_push(2);
        assert!(matches!(outcome, Ok(()) | Err(TryPushError::Full(2))));
        assert!(mailbox.len() <= 1 + usize::from(outcome.is_ok()));
        consumer.join().unwrap();
        let mut push = mailbox.push(3);
        let pushed = Pin::new(&mut push).poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(pushed.is_ready(), outcome.is_err(), "there is one place");
        assert!(matches!(pushed, Poll::Ready(Ok(())) | Poll::Pending));
    });
}
