//! Many inboxes that share what they hold hold no more than one of them may.
//!
//! A binary of its own, with one test, because it counts every allocation of the process.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::alloc::System;

use millrun_broker::mailbox::MailboxConfig;
use millrun_broker::{Broker, BrokerConfig, Envelope, Inbox, Publisher, SubscriptionConfig};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static COUNTED: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

type Bytes = Envelope<Vec<u8>>;

const INBOXES: usize = 64;
const CAPACITY: usize = 64;
const PAYLOAD: usize = 1_000;
/// An envelope with its payload and the counters of the `Arc` around it.
const ENVELOPE: usize = size_of::<Bytes>() + PAYLOAD + 2 * size_of::<usize>();
/// A bundle is a quarter of an inbox.
const BUNDLE: usize = CAPACITY / 4;
/// What the inboxes need to point to what they share: two buffers each, for up to eight bundles, which
/// take three words.
const POINTERS: usize = INBOXES * 2 * 8 * 3 * size_of::<usize>();
/// What bundles need to point to their envelopes, and the stage to its bundles and its inboxes.
const BUNDLES: usize = 2 * CAPACITY * size_of::<usize>() + 16 * 64 + 2 * INBOXES * size_of::<usize>();

/// Bytes that are allocated now and were not at the beginning of the region; none if less is allocated.
fn held(region: &Region<'_, System>) -> usize {
    let change = region.change();
    change.bytes_allocated.saturating_sub(change.bytes_deallocated)
}

/// Publishes until an inbox is full; how many found room.
fn flood(publisher: &mut Publisher<Vec<u8>>) -> usize {
    (0..)
        .take_while(|_| publisher.try_publish(vec![0x6d; PAYLOAD]).is_ok())
        .count()
}

fn read_all(inbox: &Inbox<Bytes>) -> usize {
    let mut batch = inbox.take();
    std::iter::from_fn(|| batch.next_ref().map(drop)).count()
}

#[test]
fn what_many_inboxes_share_is_held_once_and_within_the_bounds_of_each() {
    let broker = Broker::without_host(BrokerConfig::default());
    let config = |bytes_max| SubscriptionConfig {
        inbox: MailboxConfig {
            capacity: CAPACITY,
            bytes_max,
        },
        ..SubscriptionConfig::default()
    };
    let inboxes: Vec<Inbox<Bytes>> = (0..INBOXES)
        .map(|_| broker.subscribe("full", config(usize::MAX)).unwrap())
        .collect();
    let mut publisher = broker.topic::<Vec<u8>>("full").unwrap().publisher();
    // What they allocate for good.
    assert_eq!(flood(&mut publisher), CAPACITY);
    inboxes
        .iter()
        .for_each(|inbox| assert!(read_all(inbox) > CAPACITY - 1));
    inboxes.iter().for_each(|inbox| assert_eq!(inbox.len(), 0));

    let region = Region::new(COUNTED);
    for _ in 0..3 {
        assert_eq!(flood(&mut publisher), CAPACITY);
        assert_eq!(inboxes.iter().map(Inbox::len).sum::<usize>(), INBOXES * CAPACITY);
        let bound = CAPACITY * ENVELOPE + POINTERS + BUNDLES;
        assert!(held(&region) <= bound, "{} > {bound}", held(&region));

        // One reader holds up what the others are done with, and the others hold nothing.
        let (slow, quick) = inboxes.split_last().unwrap();
        quick
            .iter()
            .for_each(|inbox| assert_eq!(read_all(inbox), CAPACITY));
        assert!(publisher.try_publish(vec![0x6d; PAYLOAD]).is_err());
        quick.iter().for_each(|inbox| assert_eq!(read_all(inbox), 1));
        assert!(held(&region) <= bound, "{} > {bound}", held(&region));

        // What it has read of a bundle stays until it is done with that, and no longer.
        let mut batch = slow.take();
        for read in 1..=CAPACITY {
            assert!(batch.next_ref().is_some());
            let bound = (CAPACITY - read + BUNDLE) * ENVELOPE + POINTERS + BUNDLES;
            assert!(held(&region) <= bound, "{} > {bound} after {read}", held(&region));
        }
        drop(batch);
        assert!(held(&region) <= POINTERS + BUNDLES, "{}", held(&region));
    }

    // The same by bytes.
    let heavy: Vec<Inbox<Bytes>> = (0..INBOXES)
        .map(|_| broker.subscribe("heavy", config(16 * ENVELOPE)).unwrap())
        .collect();
    let mut publisher = broker.topic::<Vec<u8>>("heavy").unwrap().publisher();
    let region = Region::new(COUNTED);
    for _ in 0..3 {
        assert_eq!(flood(&mut publisher), 16);
        let bound = 16 * ENVELOPE + POINTERS + BUNDLES;
        assert!(held(&region) <= bound, "{} > {bound}", held(&region));
        heavy.iter().for_each(|inbox| assert_eq!(read_all(inbox), 16));
        assert!(held(&region) <= POINTERS + BUNDLES, "{}", held(&region));
    }
}
