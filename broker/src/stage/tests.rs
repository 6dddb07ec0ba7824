use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

use super::scene::{Scene, envelope, push_to};
use super::*;

/// Pushes by the stage alone.
fn share(scene: &Scene, number: u32) -> bool {
    scene.staged.try_push(envelope(number)).is_ok()
}

#[test]
fn the_first_of_a_row_is_pushed_one_by_one_and_the_rest_is_shared() {
    let scene = Scene::new(&[8, 8], 4);
    assert!(!share(&scene, 1), "there is nothing to gain for a single one");
    scene.push(1);
    assert!(share(&scene, 2));
    assert!(share(&scene, 3));
    assert_eq!(scene.take_all(0), [1, 2, 3]);
    assert!(share(&scene, 4), "the other has not read");
    assert_eq!(scene.take_all(0), [4]);
    assert_eq!(scene.take_all(1), [1, 2, 3, 4]);
    assert!(!share(&scene, 5), "all have read");
}

#[test]
fn only_the_push_that_follows_a_look_rings() {
    let scene = Scene::new(&[8, 8], 4);
    let bell = scene.inboxes[0].bell();
    scene.push(1);
    assert!(share(&scene, 2));
    assert!(bell.answer());
    assert_eq!(scene.take_all(0), [1, 2]);
    assert!(share(&scene, 3));
    assert!(bell.answer());
    assert!(share(&scene, 4));
    assert!(!bell.answer());
    assert_eq!(scene.take_all(0), [3, 4]);
    assert!(share(&scene, 5));
    assert!(bell.answer());
}

/// An inbox remembers that it is on the list of those to be rung for. It went on remembering when a push by
/// another way had let in the envelope that took it off the list, and slept for ever.
#[test]
fn a_push_by_another_way_does_not_silence_the_bell() {
    let scene = Scene::new(&[8, 8], 4);
    let bell = scene.inboxes[0].bell();
    scene.push(1);
    assert!(share(&scene, 2));
    assert_eq!(scene.take_all(0), [1, 2]);
    assert!(share(&scene, 3));
    push_to(&scene.inboxes[0], envelope(9)).unwrap();
    assert_eq!(scene.take_all(0), [3, 9]);
    assert!(bell.answer());
    assert!(share(&scene, 4));
    assert!(bell.answer());
    assert_eq!(scene.take_all(0), [4]);
}

#[test]
fn the_fullest_inbox_bounds_what_is_shared() {
    let scene = Scene::new(&[8, 3], 4);
    scene.push(1);
    assert!(share(&scene, 2));
    assert!(share(&scene, 3));
    assert!(!share(&scene, 4));
    assert_eq!(scene.take(1).next().map(|envelope| *envelope.payload()), Some(1));
    assert!(share(&scene, 4));
    assert!(!share(&scene, 5));
    assert_eq!(scene.inboxes[1].len(), 3);
    assert_eq!(scene.take_all(0), [1, 2, 3, 4]);
}

#[test]
fn one_who_waits_for_room_is_not_overtaken() {
    let scene = Scene::new(&[3, 8], 2);
    scene.push(1);
    assert!(share(&scene, 2) && share(&scene, 3));
    let mut waits = pin!(scene.inboxes[0].push(Delivery::Shared(envelope(4))));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(waits.as_mut().poll(&mut cx).is_pending());
    let mut hand = scene.take(0);
    assert!(hand.next_ref().is_some() && hand.next_ref().is_some());
    assert!(!share(&scene, 9), "the room is another's");
    assert!(waits.as_mut().poll(&mut cx).is_ready());
    drop(hand);
    assert!(share(&scene, 5));
    assert_eq!(scene.take_all(0), [3, 4, 5]);
}

#[test]
fn publishers_of_an_older_generation_push_one_by_one() {
    let scene = Scene::new(&[8, 8], 4);
    (1..=3).for_each(|number| scene.push(number));
    scene.stage.begin_generation(BundleBounds::NONE);
    scene.inboxes[1].close_inlet();
    assert!(!share(&scene, 4));
    scene.push(4);
    assert_eq!(scene.take_all(0), [1, 2, 3, 4]);
    assert_eq!(scene.take_all(1), [1, 2, 3, 4]);
}

#[test]
fn counters_do_not_tell_what_is_shared_from_what_is_not() {
    let scene = Scene::new(&[8, 8], 4);
    (1..=6).for_each(|number| scene.push(number));
    let inbox = &scene.inboxes[0];
    let stats = inbox.stats();
    assert_eq!((stats.pushed, stats.queued, stats.in_hand), (6, 6, 0));
    let mut hand = scene.take(0);
    for left in (0..6).rev() {
        assert!(hand.next_ref().is_some());
        let stats = inbox.stats();
        assert_eq!((stats.pushed, stats.queued, stats.in_hand), (6, 0, left));
        assert_eq!(
            (stats.taken, inbox.len(), hand.len()),
            (6 - left as u64, left, left)
        );
    }
    drop(hand);
    assert_eq!(inbox.stats().len_max, 6);
    assert_eq!(scene.inboxes[1].stats().queued, 6);
}

#[test]
fn what_is_left_of_a_bundle_goes_back_to_the_front() {
    let scene = Scene::new(&[8, 8], 4);
    (1..=6).for_each(|number| scene.push(number));
    let mut hand = scene.take(0);
    let begun: Vec<u32> = hand
        .by_ref()
        .take(3)
        .map(|envelope| *envelope.payload())
        .collect();
    assert_eq!(begun, [1, 2, 3]);
    assert!(share(&scene, 7));
    drop(hand);
    assert_eq!(scene.inboxes[0].len(), 4);
    assert_eq!(scene.take_all(0), [4, 5, 6, 7]);
    assert_eq!(scene.take_all(1), [1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn what_is_discarded_is_each_envelope_of_each_bundle() {
    let scene = Scene::new(&[8, 8], 4);
    (1..=7).for_each(|number| scene.push(number));
    let discarded = scene.inboxes[0].close_discarding();
    let each: Vec<u32> = discarded
        .into_iter()
        .flat_map(Delivery::into_each)
        .map(|envelope| *envelope.payload())
        .collect();
    assert_eq!(each, [1, 2, 3, 4, 5, 6, 7]);
    let stats = scene.inboxes[0].stats();
    assert_eq!((stats.pushed, stats.discarded, stats.queued), (7, 7, 0));
}

#[test]
fn the_last_who_gives_an_envelope_away_gives_it_whole() {
    let scene = Scene::new(&[8, 8], 4);
    (1..=5).for_each(|number| scene.push(number));
    assert_eq!(scene.take_all(0), [1, 2, 3, 4, 5]);
    for (number, envelope) in (1..).zip(scene.take(1)) {
        assert_eq!(envelope.into_payload().unwrap(), number);
    }
}

#[test]
fn bundles_are_bounded_by_count_and_by_weight() {
    let mut state = StageState::<u32>::new();
    let weight = envelope(0).mailbox_weight();
    let mut reach = state.enter();
    let mut lens = |bounds, count| {
        state.begin_generation(bounds);
        (0..count).for_each(|number| state.push(envelope(number)));
        let mut lens = Vec::new();
        state.pour(&mut reach, &mut |bundle| lens.push(bundle.len()));
        lens
    };
    let by_count = BundleBounds {
        len: 3,
        ..BundleBounds::NONE
    };
    assert_eq!(lens(by_count, 7), [3, 3, 1]);
    let by_weight = BundleBounds {
        weight: 2 * weight + 1,
        ..BundleBounds::NONE
    };
    assert_eq!(lens(by_weight, 5), [2, 2, 1]);
    let too_heavy = BundleBounds {
        weight: weight - 1,
        ..BundleBounds::NONE
    };
    assert_eq!(lens(too_heavy, 3), [1, 1, 1]);
}
