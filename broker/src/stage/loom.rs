//! The interleavings of a few threads at one stage, explored by loom:
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p millrun-broker --lib stage::loom
//! ```

use std::sync::Arc;

use loom::sync::Notify;
use loom::thread;

use super::Inbox;
use super::scene::{Scene, envelope, numbers, push, push_to, take};
use super::state::BundleBounds;

/// Up to three preemptions per run, as for the mailbox.
fn explore(run: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(run);
}

/// Lets the inbox ring for this thread, and takes until there are `count` numbers.
fn consume(inbox: &Inbox<u32>, count: usize) -> Vec<u32> {
    let notify = Arc::new(Notify::new());
    let ring = Arc::clone(&notify);
    inbox.bell().connect(move || ring.notify());
    let mut seen = Vec::new();
    while seen.len() < count {
        // A lost wake-up would be a deadlock here, which loom reports.
        notify.wait();
        inbox.bell().answer();
        seen.extend(numbers(take(inbox)));
    }
    seen
}

#[test]
fn a_reader_that_sleeps_is_rung_for_whichever_way_the_next_envelope_takes() {
    explore(|| {
        let scene = Scene::new(&[4, 4], 2);
        let (staged, inboxes) = (Arc::clone(&scene.staged), scene.inboxes.clone());
        let pusher = thread::spawn(move || {
            push(&staged, &inboxes, 1);
            push(&staged, &inboxes, 2);
        });
        assert_eq!(consume(&scene.inboxes[0], 2), [1, 2]);
        pusher.join().unwrap();
        assert_eq!(scene.take_all(1), [1, 2]);
    });
}

#[test]
fn a_reader_that_comes_while_others_push_is_rung_for_what_it_missed() {
    explore(|| {
        let scene = Scene::new(&[4, 4], 2);
        // Not all inboxes have read everything: the next push goes to the stage.
        scene.push(1);
        scene.push(2);
        let (staged, inboxes) = (Arc::clone(&scene.staged), scene.inboxes.clone());
        let pusher = thread::spawn(move || push(&staged, &inboxes, 3));
        assert_eq!(consume(&scene.inboxes[0], 3), [1, 2, 3]);
        pusher.join().unwrap();
        assert_eq!(scene.take_all(1), [1, 2, 3]);
    });
}

#[test]
fn the_last_place_of_an_inbox_goes_to_one_of_two_ways() {
    explore(|| {
        let scene = Scene::new(&[2, 4], 1);
        scene.push(1);
        let (staged, inbox) = (Arc::clone(&scene.staged), scene.inboxes[0].clone());
        let sharing = thread::spawn(move || staged.try_push(envelope(2)).is_ok());
        let alone = push_to(&inbox, envelope(3)).is_ok();
        let shared = sharing.join().unwrap();
        assert!(!(alone && shared), "there was one place");
        let expected = match (alone, shared) {
            (true, _) => vec![1, 3],
            (_, true) => vec![1, 2],
            _ => vec![1],
        };
        assert!(inbox.len() <= 2);
        assert_eq!(scene.take_all(0), expected);
        assert_eq!(scene.take_all(1), if shared { vec![1, 2] } else { vec![1] });
    });
}

#[test]
fn a_push_that_comes_between_a_grant_and_its_end_keeps_to_what_is_left() {
    explore(|| {
        let scene = Scene::new(&[4, 4], 2);
        scene.push(1);
        let staged = Arc::clone(&scene.staged);
        staged.try_push(envelope(2)).unwrap();
        push_to(&scene.inboxes[0], envelope(8)).unwrap();
        let other = scene.inboxes[1].clone();
        let sharing = thread::spawn(move || {
            let shared = staged.try_push(envelope(3)).is_ok();
            push_to(&other, envelope(9)).unwrap();
            shared
        });
        let alone = push_to(&scene.inboxes[0], envelope(7)).is_ok();
        let shared = sharing.join().unwrap();
        assert!(!(alone && shared), "there was one place");
        assert!(scene.inboxes[0].len() <= 4, "{}", scene.inboxes[0].len());
    });
}

#[test]
fn an_inbox_that_leaves_takes_along_what_was_pushed_before_and_nothing_else() {
    explore(|| {
        let scene = Scene::new(&[4, 4], 2);
        scene.push(1);
        let staged = Arc::clone(&scene.staged);
        let pusher = thread::spawn(move || staged.try_push(envelope(2)).is_ok());
        scene.stage.begin_generation(BundleBounds::NONE);
        scene.inboxes[0].close_inlet();
        let shared = pusher.join().unwrap();
        let expected = if shared { vec![1, 2] } else { vec![1] };
        assert_eq!(scene.take_all(0), expected);
        assert_eq!(scene.take_all(1), expected);
    });
}

#[test]
fn two_readers_of_one_bundle_get_each_envelope_once() {
    explore(|| {
        let scene = Scene::new(&[4, 4], 2);
        (1..=3).for_each(|number| scene.push(number));
        let other = scene.inboxes[1].clone();
        let reader = thread::spawn(move || {
            let given = take(&other).map(|envelope| *envelope.payload());
            given.collect::<Vec<_>>()
        });
        let given: Vec<u32> = scene.take(0).map(|envelope| *envelope.payload()).collect();
        assert_eq!(given, [1, 2, 3]);
        assert_eq!(reader.join().unwrap(), [1, 2, 3]);
    });
}
