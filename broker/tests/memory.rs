//! The memory of a broker whose inboxes are full is what its bounds say, to the byte.
//!
//! A binary of its own, with one test, because it counts every allocation of the process.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::alloc::System;

use millrun_broker::mailbox::MailboxConfig;
use millrun_broker::{Broker, BrokerConfig, Envelope, Inbox, Overflow, Publisher, SubscriptionConfig};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static COUNTED: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

type Bytes = Envelope<Vec<u8>>;

const SUBSCRIPTIONS: usize = 1_000;
const CAPACITY: usize = 32;
const BYTES_MAX: usize = 16 << 10;
const PAYLOAD: usize = 1_000;
/// The counters of the `Arc` around an envelope that was made before its publisher knew the only reader, or
/// when the inbox was full. Others are in a box.
const COUNTERS: usize = 2 * size_of::<usize>();
/// What an envelope takes of its inbox's queue: a pointer and its kind, and its share of the bounds.
const SLOT: usize = 3 * size_of::<usize>();

/// Bytes that are allocated now and were not at the beginning of the region.
fn held(region: &Region<'_, System>) -> usize {
    let change = region.change();
    change.bytes_allocated - change.bytes_deallocated
}

/// How many envelopes of the test's payload an inbox holds: every second one is full by bytes
/// before it is full by count.
fn full(number: usize) -> usize {
    let weight = size_of::<Bytes>() + PAYLOAD;
    if is_bounded_by_bytes(number) {
        BYTES_MAX / weight
    } else {
        CAPACITY
    }
}

const fn is_bounded_by_bytes(number: usize) -> bool {
    number % 2 == 1
}

fn config(number: usize, overflow: Overflow) -> SubscriptionConfig {
    let bytes_max = if is_bounded_by_bytes(number) {
        BYTES_MAX
    } else {
        usize::MAX
    };
    SubscriptionConfig {
        inbox: MailboxConfig {
            capacity: CAPACITY,
            bytes_max,
        },
        overflow,
        ..SubscriptionConfig::default()
    }
}

const POLICIES: [Overflow; 4] = [
    Overflow::Block,
    Overflow::Fail,
    Overflow::DropNewest,
    Overflow::DropOldest,
];

const fn policy(number: usize) -> Overflow {
    POLICIES[(number / 2) % POLICIES.len()]
}

/// How many of the envelopes of a flooded inbox have counters: where the oldest are dropped, those that
/// were published when it was full are in it.
fn counted(number: usize) -> usize {
    if policy(number) == Overflow::DropOldest {
        full(number)
    } else {
        1
    }
}

struct Scene {
    /// One for each inbox.
    publishers: Vec<Publisher<Vec<u8>>>,
    inboxes: Vec<Inbox<Bytes>>,
    _broker: Broker,
}

impl Scene {
    fn new() -> Self {
        let broker = Broker::without_host(BrokerConfig::default());
        let inboxes = (0..SUBSCRIPTIONS).map(|number| {
            let filter = format!("full.{number}");
            broker.subscribe(&filter, config(number, policy(number))).unwrap()
        });
        let inboxes = inboxes.collect();
        let publishers = (0..SUBSCRIPTIONS).map(|number| {
            let topic = broker.topic(&format!("full.{number}")).unwrap();
            topic.publisher()
        });
        Self {
            publishers: publishers.collect(),
            inboxes,
            _broker: broker,
        }
    }

    /// Publishes to each inbox as often as if it had room for more than it has.
    fn flood(&mut self) {
        for publisher in &mut self.publishers {
            for _ in 0..2 * CAPACITY {
                // Refused or dropped, as the policy says, once it is full.
                drop(publisher.try_publish(vec![0x6d; PAYLOAD]));
            }
        }
    }

    fn queued(&self) -> usize {
        self.inboxes.iter().map(Inbox::len).sum()
    }
}

#[test]
fn a_full_broker_holds_its_bounds_and_not_a_byte_more() {
    let mut scene = Scene::new();
    let region = Region::new(COUNTED);
    scene.flood();
    let count: usize = (0..SUBSCRIPTIONS).map(full).sum();
    assert_eq!(scene.queued(), count);

    let counters = (0..SUBSCRIPTIONS).map(counted).sum::<usize>() * COUNTERS;
    let envelopes = count * (size_of::<Bytes>() + PAYLOAD) + counters;
    // Queues grow by doubling, from four.
    let slots = |number| full(number).next_power_of_two().max(4) * SLOT;
    let queues: usize = (0..SUBSCRIPTIONS).map(slots).sum();
    assert_eq!(
        held(&region),
        envelopes + queues,
        "bytes held by {count} envelopes"
    );
    let bounds: usize = (0..SUBSCRIPTIONS)
        .map(|number| {
            if is_bounded_by_bytes(number) {
                BYTES_MAX
            } else {
                CAPACITY * (size_of::<Bytes>() + PAYLOAD)
            }
        })
        .sum();
    let weights = count * (size_of::<Bytes>() + PAYLOAD);
    assert!(weights <= bounds && weights + SUBSCRIPTIONS / 2 * (size_of::<Bytes>() + PAYLOAD) > bounds);

    // Flooding what is full changes nothing, also while a consumer has everything in hand.
    scene.flood();
    assert_eq!(held(&region), envelopes + queues);
    let mut hands: Vec<_> = scene.inboxes.iter().map(Inbox::take).collect();
    let with_hands = held(&region) - hands.capacity() * size_of_val(&hands[0]);
    assert_eq!(with_hands, envelopes + queues);
    scene.flood();
    let with_hands = held(&region) - hands.capacity() * size_of_val(&hands[0]);
    assert_eq!(with_hands, envelopes + queues);

    // What is taken is freed. Each inbox keeps two buffers from now on, of which one is in use.
    hands.iter_mut().for_each(|hand| assert!(hand.next().is_some()));
    drop(hands);
    for inbox in &scene.inboxes {
        assert!(inbox.take().count() > 0);
    }
    assert_eq!(scene.queued(), 0);
    assert_eq!(held(&region), queues);
    for _ in 0..3 {
        scene.flood();
        for inbox in &scene.inboxes {
            assert!(inbox.take().count() > 0);
        }
    }
    assert_eq!(scene.queued(), 0);
    assert!(held(&region) <= 2 * queues, "{} > 2 * {queues}", held(&region));

    // A reader that borrows leaves envelopes behind, no more than fit the inbox. Until it has seen that
    // nothing comes, what they carried waits for the publisher: in the inbox, where it counts, and in the
    // reader's hand, an eighth of the bytes; and one is lent.
    let mut receivers: Vec<_> = scene.inboxes.drain(..).map(Inbox::into_receiver).collect();
    let base = Region::new(COUNTED);
    for _ in 0..3 {
        for publisher in &mut scene.publishers {
            for _ in 0..2 * CAPACITY {
                drop(publisher.try_publish(vec![0x6d; PAYLOAD]));
            }
        }
        for receiver in &mut receivers {
            while receiver.inbox().stats().queued + receiver.inbox().stats().in_hand > 0 {
                assert!(read(receiver));
            }
        }
    }
    let empty = size_of::<Bytes>() + COUNTERS;
    // In the hand and in the mailbox at most one inbox full each, and one at the publisher.
    let bound = SUBSCRIPTIONS * (2 * CAPACITY + 1) * (empty + SLOT);
    let waiting: usize = (0..SUBSCRIPTIONS)
        .map(|number| {
            let counted = if is_bounded_by_bytes(number) {
                BYTES_MAX + BYTES_MAX / 8
            } else {
                2 * CAPACITY * PAYLOAD
            };
            counted + PAYLOAD
        })
        .sum();
    assert!(
        held(&base) <= bound + waiting,
        "{} > {bound} + {waiting}",
        held(&base)
    );
    for receiver in &mut receivers {
        assert!(!read(receiver), "nothing comes");
    }
    assert!(held(&base) <= bound, "{} > {bound}", held(&base));
}

/// Reads one envelope without keeping it.
fn read(receiver: &mut millrun_broker::Receiver<Bytes>) -> bool {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..2 {
        // The first poll may let others run.
        if let Poll::Ready(read) = pin!(receiver.recv_ref()).poll(&mut cx) {
            return read.is_some_and(|envelope| envelope.payload().len() == PAYLOAD);
        }
    }
    false
}
