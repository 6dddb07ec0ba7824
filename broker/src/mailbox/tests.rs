use super::*;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::AtomicUsize as Count;
use std::task::{Context, Poll, Wake, Waker};

#[derive(Default)]
struct Counter(Count);

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn waker() -> (Waker, Arc<Counter>) {
    let counter = Arc::new(Counter::default());
    (Waker::from(Arc::clone(&counter)), counter)
}

fn mailbox(capacity: usize) -> Mailbox<u32> {
    Mailbox::new(
        MailboxConfig {
            capacity,
            ..MailboxConfig::default()
        },
        Bell::new(),
    )
    .unwrap()
}

fn fill(mailbox: &Mailbox<u32>, values: std::ops::Range<u32>) {
    for value in values {
        mailbox.try_push(value).unwrap();
    }
}

#[test]
fn only_the_push_into_an_empty_queue_rings() {
    let mailbox = mailbox(4);
    fill(&mailbox, 0..1);
    assert!(mailbox.bell().answer());
    fill(&mailbox, 1..2);
    assert!(!mailbox.bell().answer());
    assert_eq!(mailbox.take().collect::<Vec<_>>(), [0, 1]);
    fill(&mailbox, 2..3);
    assert!(mailbox.bell().answer());
}

#[test]
fn the_bound_counts_what_is_in_hand() {
    let mailbox = mailbox(4);
    fill(&mailbox, 0..4);
    assert_eq!(mailbox.try_push(9), Err(TryPushError::Full(9)));
    let mut hand = mailbox.take();
    assert_eq!(mailbox.try_push(9), Err(TryPushError::Full(9)));
    assert_eq!(hand.next(), Some(0));
    assert_eq!(mailbox.try_push(4), Ok(()));
    assert_eq!(mailbox.try_push(9), Err(TryPushError::Full(9)));
    assert_eq!(mailbox.len(), 4);
    drop(hand);
    assert_eq!(mailbox.take().collect::<Vec<_>>(), [1, 2, 3, 4]);
}

#[test]
fn a_panic_with_a_batch_in_hand_loses_only_what_was_handed_out() {
    let mailbox = mailbox(8);
    fill(&mailbox, 0..4);
    assert!(mailbox.bell().answer());
    let handler = mailbox.clone();
    let panicked = std::panic::catch_unwind(move || {
        let mut hand = handler.take();
        hand.next();
        panic!("the handler fails");
    });
    assert!(panicked.is_err());
    assert!(mailbox.bell().answer(), "a restarted consumer is rung for");
    fill(&mailbox, 4..5);
    assert_eq!(mailbox.take().collect::<Vec<_>>(), [1, 2, 3, 4]);
}

#[test]
fn a_second_hand_is_empty_and_rung_for_later() {
    let mailbox = mailbox(8);
    fill(&mailbox, 0..2);
    let first = mailbox.take();
    fill(&mailbox, 2..3);
    assert!(mailbox.bell().answer());
    assert_eq!(mailbox.take().len(), 0);
    assert_eq!(first.collect::<Vec<_>>(), [0, 1]);
    assert!(mailbox.bell().answer());
    assert_eq!(mailbox.take().collect::<Vec<_>>(), [2]);
}

#[test]
fn those_who_wait_get_in_by_order_of_arrival() {
    let mailbox = mailbox(1);
    fill(&mailbox, 0..1);
    let (waker, woken) = waker();
    let mut cx = Context::from_waker(&waker);
    let mut first = pin!(mailbox.push(1));
    let mut second = pin!(mailbox.push(2));
    assert!(first.as_mut().poll(&mut cx).is_pending());
    assert!(second.as_mut().poll(&mut cx).is_pending());
    assert_eq!(mailbox.take().collect::<Vec<_>>(), [0]);
    assert_eq!(woken.0.load(Ordering::SeqCst), 1);
    assert_eq!(
        mailbox.try_push(9),
        Err(TryPushError::Full(9)),
        "the room belongs to the first"
    );
    assert!(second.as_mut().poll(&mut cx).is_pending());
    assert_eq!(first.as_mut().poll(&mut cx), Poll::Ready(Ok(())));
    assert_eq!(mailbox.take().collect::<Vec<_>>(), [1]);
    assert_eq!(second.as_mut().poll(&mut cx), Poll::Ready(Ok(())));
}

#[test]
fn a_dropped_push_passes_its_place_on() {
    let mailbox = mailbox(1);
    fill(&mailbox, 0..1);
    let (waker, woken) = waker();
    let mut cx = Context::from_waker(&waker);
    let mut first = Box::pin(mailbox.push(1));
    let mut second = pin!(mailbox.push(2));
    assert!(first.as_mut().poll(&mut cx).is_pending());
    assert!(second.as_mut().poll(&mut cx).is_pending());
    assert_eq!(mailbox.take().count(), 1);
    assert_eq!(woken.0.load(Ordering::SeqCst), 1);
    drop(first);
    assert_eq!(woken.0.load(Ordering::SeqCst), 2);
    assert_eq!(second.as_mut().poll(&mut cx), Poll::Ready(Ok(())));
    assert_eq!(mailbox.stats().waiting, 0);
}

#[test]
fn closing_gives_values_back_and_keeps_what_is_queued() {
    let mailbox = mailbox(1);
    fill(&mailbox, 0..1);
    let (waker, woken) = waker();
    let mut cx = Context::from_waker(&waker);
    let mut push = pin!(mailbox.push(1));
    assert!(push.as_mut().poll(&mut cx).is_pending());
    mailbox.close();
    assert_eq!(woken.0.load(Ordering::SeqCst), 1);
    assert_eq!(push.as_mut().poll(&mut cx), Poll::Ready(Err(Closed(1))));
    assert_eq!(mailbox.push_reserved(2), Err(Closed(2)));
    assert!(!mailbox.is_finished());
    assert_eq!(mailbox.take().collect::<Vec<_>>(), [0]);
    assert!(mailbox.is_finished());
}

#[test]
fn discarding_takes_the_queue_and_the_rest_of_the_hand() {
    let mailbox = mailbox(8);
    fill(&mailbox, 0..3);
    let mut hand = mailbox.take();
    fill(&mailbox, 3..5);
    assert_eq!(hand.next(), Some(0));
    assert_eq!(mailbox.close_discarding(), [3, 4]);
    drop(hand);
    assert!(mailbox.is_finished());
    let stats = mailbox.stats();
    assert_eq!((stats.pushed, stats.taken, stats.discarded), (5, 1, 4));
}

#[test]
fn reserved_values_take_no_room_and_keep_their_turn() {
    let mailbox = mailbox(2);
    fill(&mailbox, 0..2);
    mailbox.push_reserved(2).unwrap();
    assert_eq!(mailbox.len(), 3);
    let mut hand = mailbox.take();
    assert_eq!(hand.next(), Some(0));
    mailbox.try_push(3).unwrap();
    drop(hand);
    assert_eq!(mailbox.take().collect::<Vec<_>>(), [1, 2, 3]);
}

#[test]
fn the_oldest_make_room_for_the_newest() {
    let mailbox = mailbox(2);
    fill(&mailbox, 0..2);
    let mut displaced = Vec::new();
    mailbox.push_displacing(2, &mut displaced).unwrap();
    assert_eq!(displaced, [0]);
    let hand = mailbox.take();
    mailbox.push_displacing(3, &mut displaced).unwrap();
    assert_eq!(displaced, [0, 3], "values in hand are not displaced");
    assert_eq!(hand.collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn bytes_bound_the_mailbox_but_a_heavy_value_passes_alone() {
    let config = MailboxConfig {
        capacity: 8,
        bytes_max: 100,
    };
    let mailbox = Mailbox::weighed(config, |value: &u32| *value as usize, Bell::new()).unwrap();
    mailbox.try_push(60).unwrap();
    assert_eq!(mailbox.try_push(50), Err(TryPushError::Full(50)));
    mailbox.try_push(40).unwrap();
    assert_eq!(mailbox.take().count(), 2);
    mailbox.try_push(500).unwrap();
    assert_eq!(mailbox.try_push(1), Err(TryPushError::Full(1)));
}

#[test]
fn a_batch_fills_the_room_there_is_and_waits_for_more() {
    let mailbox = mailbox(2);
    assert_eq!(
        mailbox.try_push_batch(vec![0, 1, 2]),
        Err(TryPushBatchError::Full(vec![2]))
    );
    let (waker, _) = waker();
    let mut cx = Context::from_waker(&waker);
    let mut batch = pin!(mailbox.push_batch(vec![2, 3, 4]));
    assert!(batch.as_mut().poll(&mut cx).is_pending());
    assert_eq!(mailbox.take().collect::<Vec<_>>(), [0, 1]);
    assert!(batch.as_mut().poll(&mut cx).is_pending());
    assert_eq!(mailbox.take().collect::<Vec<_>>(), [2, 3]);
    assert_eq!(batch.as_mut().poll(&mut cx), Poll::Ready(Ok(())));
    assert_eq!(mailbox.take().collect::<Vec<_>>(), [4]);
}

#[test]
fn spent_values_go_to_pushers_one_at_a_time_and_not_beyond_the_capacity() {
    let mailbox = mailbox(100);
    let stock = |mailbox: &Mailbox<u32>| {
        let mut hand = mailbox.take();
        // As many as it may keep, and one more, which is dropped.
        (0..=100).for_each(|value| hand.spend(value, 0));
    };
    fill(&mailbox, 0..1);
    stock(&mailbox);
    let mut all = Vec::new();
    for _ in 0..100 {
        let mut spent = None;
        mailbox.try_push_weighed(0, 0, Some(&mut spent)).unwrap();
        all.extend(spent);
        assert!(mailbox.take().next().is_some());
    }
    all.sort_unstable();
    assert_eq!(all, (0..100).collect::<Vec<_>>());
    let mut spent = Some(7);
    fill(&mailbox, 0..1);
    stock(&mailbox);
    mailbox.try_push_weighed(0, 0, Some(&mut spent)).unwrap();
    assert_eq!(spent, Some(7), "who has one gets no more");

    // What nobody has fetched makes room for no more.
    stock(&mailbox);
    assert_eq!(mailbox.lock().spent.len(), 100);
    drop(mailbox.close_discarding());
    assert_eq!(mailbox.lock().spent.len(), 0);
}

/// A mailbox of bytes, of which spent values are emptied by taking the bytes from them.
fn bytes(capacity: usize, bytes_max: usize) -> Mailbox<Vec<u8>> {
    let config = MailboxConfig { capacity, bytes_max };
    Mailbox::lending(
        config,
        Vec::len,
        |value| {
            assert!(!value.is_empty(), "emptied once");
            value.clear();
        },
        Bell::new(),
    )
    .unwrap()
}

/// Hands out one value and spends it with all its bytes.
fn spend_next(hand: &mut InHand<Vec<u8>>) {
    let value = hand.next().unwrap();
    let weight = u32::try_from(value.len()).unwrap();
    hand.spend(value, weight);
}

/// What the spent values in the mailbox hold on to.
fn spent(mailbox: &Mailbox<Vec<u8>>) -> Vec<usize> {
    let state = mailbox.lock();
    let bytes: Vec<usize> = state.spent.iter().map(|(value, _)| value.len()).collect();
    let weights = state.spent.iter().map(|(_, weight)| weight as usize);
    assert!(weights.eq(bytes.iter().copied()));
    assert_eq!(state.spent.weight(), bytes.iter().sum::<usize>());
    bytes
}

#[test]
fn a_consumer_that_empties_what_was_spent_stops_when_somebody_pushes_again() {
    use std::cell::RefCell;

    thread_local! {
        static PUSHED_MEANWHILE: RefCell<Option<Mailbox<Vec<u8>>>> = const { RefCell::new(None) };
    }
    let config = MailboxConfig {
        capacity: 100,
        bytes_max: 8_000,
    };
    let empty: fn(&mut Vec<u8>) = |value| {
        value.clear();
        if let Some(mailbox) = PUSHED_MEANWHILE.take() {
            mailbox.try_push(vec![2]).unwrap();
        }
    };
    let mailbox = Mailbox::lending(config, Vec::len, empty, Bell::new()).unwrap();
    for _ in 0..100 {
        mailbox.try_push(vec![1]).unwrap();
    }
    PUSHED_MEANWHILE.set(Some(mailbox.clone()));
    let mut hand = mailbox.take();
    (0..100).for_each(|_| spend_next(&mut hand));
    drop(hand);
    assert!(PUSHED_MEANWHILE.take().is_none(), "somebody pushed");
    let kept = spent(&mailbox).iter().filter(|bytes| **bytes != 0).count();
    assert!(kept > 50, "{kept} are left for the one who pushes");

    assert_eq!(mailbox.take().next(), Some(vec![2]));
    assert_eq!(spent(&mailbox), vec![0; 100], "nobody pushes any more");
}

#[test]
fn spent_bytes_travel_with_the_stream_and_are_freed_when_it_ends() {
    let mailbox = bytes(8, 8_000);
    let push = |spent: &mut Option<Vec<u8>>| mailbox.try_push_weighed(vec![1; 10], 10, Some(spent));
    push(&mut None).unwrap();
    push(&mut None).unwrap();
    let mut hand = mailbox.take();
    push(&mut None).unwrap();
    spend_next(&mut hand);
    spend_next(&mut hand);
    hand.refill();
    assert_eq!(spent(&mailbox), [10, 10], "there is more to come");
    let mut taken = None;
    push(&mut taken).unwrap();
    assert_eq!(taken.map(|value| value.len()), Some(10), "a push takes one along");
    assert_eq!(spent(&mailbox), [10]);
    spend_next(&mut hand);
    hand.refill();
    assert_eq!(spent(&mailbox), [10, 10]);
    spend_next(&mut hand);
    hand.refill();
    assert_eq!(spent(&mailbox), [0, 0, 0], "nobody is about to push");
    drop(hand);
    assert_eq!(spent(&mailbox), [0, 0, 0]);
}

#[test]
fn spent_bytes_wait_for_a_pusher_in_the_line_and_are_freed_when_it_leaves() {
    let mailbox = bytes(2, 8_000);
    mailbox.try_push(vec![1; 10]).unwrap();
    mailbox.try_push(vec![1; 10]).unwrap();
    let mut cx = Context::from_waker(Waker::noop());
    let mut waiting = Box::pin(mailbox.push(vec![1; 10]));
    assert!(waiting.as_mut().poll(&mut cx).is_pending());
    let mut hand = mailbox.take();
    spend_next(&mut hand);
    spend_next(&mut hand);
    drop(hand);
    assert_eq!(spent(&mailbox), [10, 10], "it is about to push");
    drop(waiting);
    assert_eq!(spent(&mailbox), [0, 0]);
}

#[test]
fn spent_bytes_count_until_a_push_needs_the_room() {
    let mailbox = bytes(8, 800);
    mailbox.try_push(vec![1; 40]).unwrap();
    mailbox.try_push(vec![1; 40]).unwrap();
    let mut hand = mailbox.take();
    mailbox.try_push(vec![1; 100]).unwrap();
    spend_next(&mut hand);
    spend_next(&mut hand);
    hand.refill();
    assert_eq!(spent(&mailbox), [40, 40]);
    mailbox.try_push(vec![1; 620]).unwrap();
    assert_eq!(spent(&mailbox), [40, 40], "800 bytes in all are not too many");
    assert_eq!(
        mailbox.try_push(vec![1; 100]),
        Err(TryPushError::Full(vec![1; 100]))
    );
    assert_eq!(
        spent(&mailbox),
        [0_usize; 0],
        "they are gone before anybody is refused"
    );
    mailbox.try_push(vec![1; 80]).unwrap();
    drop(hand);
    assert_eq!(mailbox.take().count(), 3);
}

#[test]
fn the_hand_keeps_a_share_of_the_bytes_in_spent_values() {
    let mailbox = bytes(8, 8 * 25);
    (0..4).for_each(|_| mailbox.try_push(vec![1; 10]).unwrap());
    let mut hand = mailbox.take();
    mailbox.try_push(vec![1; 10]).unwrap();
    (0..4).for_each(|_| spend_next(&mut hand));
    hand.refill();
    assert_eq!(spent(&mailbox), [10, 10, 0, 0]);
}

#[test]
fn values_of_a_batch_are_weighed_before_the_lock_is_taken() {
    let config = MailboxConfig::default();
    let mailbox = Mailbox::weighed(
        config,
        |value: &u32| {
            assert_ne!(*value, 13);
            1
        },
        Bell::new(),
    )
    .unwrap();
    let other = mailbox.clone();
    let panicked = std::panic::catch_unwind(move || other.try_push_batch(vec![12, 13]));
    assert!(panicked.is_err());
    assert!(mailbox.is_empty(), "nothing is in that was not rung for");
    assert!(mailbox.try_push(14).is_ok());
}
