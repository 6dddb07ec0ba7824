//! What happens when an inbox is full.

use std::pin::pin;
use std::task::Poll;

use millrun_broker::mailbox::MailboxConfig;
use millrun_broker::{
    Broker, BrokerConfig, DEAD_LETTERS, DeadLetter, Envelope, Inbox, Overflow, PublishError,
    SubscriptionConfig, Undeliverable,
};

use crate::host::{poll_once, ready};

fn broker() -> Broker {
    Broker::without_host(BrokerConfig::default())
}

fn inbox(broker: &Broker, overflow: Overflow, capacity: usize) -> Inbox<Envelope<u32>> {
    let config = SubscriptionConfig {
        inbox: MailboxConfig {
            capacity,
            ..MailboxConfig::default()
        },
        overflow,
        ..SubscriptionConfig::default()
    };
    broker.subscribe("a", config).unwrap()
}

fn payloads(inbox: &Inbox<Envelope<u32>>) -> Vec<u32> {
    inbox.take().map(|envelope| *envelope.payload()).collect()
}

#[test]
fn block_makes_the_publisher_wait_while_others_have_theirs() {
    let broker = broker();
    let (slow, fast) = (
        inbox(&broker, Overflow::Block, 1),
        inbox(&broker, Overflow::Block, 8),
    );
    let mut publisher = broker.topic::<u32>("a").unwrap().publisher();
    ready(publisher.publish(0)).unwrap();
    {
        let mut publish = pin!(publisher.publish(1));
        assert!(poll_once(publish.as_mut()).is_pending());
        assert_eq!(payloads(&fast), [0, 1]);
        assert_eq!(payloads(&slow), [0]);
        let Poll::Ready(outcome) = poll_once(publish) else {
            panic!("there is room now")
        };
        assert_eq!(outcome.unwrap().delivered, 2);
    }
    assert_eq!(payloads(&slow), [1]);
    assert!(fast.is_empty(), "a waiting publish delivers once");
}

#[test]
fn a_dropped_publish_is_in_the_inboxes_that_had_room_only() {
    let broker = broker();
    let (slow, fast) = (
        inbox(&broker, Overflow::Block, 1),
        inbox(&broker, Overflow::Block, 8),
    );
    let mut publisher = broker.topic::<u32>("a").unwrap().publisher();
    ready(publisher.publish(0)).unwrap();
    {
        let mut publish = Box::pin(publisher.publish(1));
        assert!(poll_once(publish.as_mut()).is_pending());
    }
    assert_eq!(slow.stats().waiting, 0);
    assert_eq!(payloads(&slow), [0]);
    assert_eq!(payloads(&fast), [0, 1]);
    assert_eq!(broker.topology().waiting, 0);
}

#[test]
fn fail_names_who_refused_and_a_retry_goes_only_there() {
    let broker = broker();
    let (strict, easy) = (
        inbox(&broker, Overflow::Fail, 1),
        inbox(&broker, Overflow::Block, 8),
    );
    let mut publisher = broker.topic::<u32>("a").unwrap().publisher();
    ready(publisher.publish(0)).unwrap();
    let error = ready(publisher.publish(1)).unwrap_err();
    assert!(error.is_retryable());
    let refused = error.into_refused();
    assert_eq!((refused.by(), refused.delivered()), (&[strict.id()][..], 1));
    let refusing = broker.subscription(refused.by()[0]).unwrap();
    assert_eq!(
        (refusing.filter.as_str(), refusing.overflow),
        ("a", Overflow::Fail)
    );
    assert_eq!(payloads(&strict), [0]);
    assert_eq!(ready(publisher.retry(refused)).unwrap().delivered, 2);
    assert_eq!(payloads(&strict), [1]);
    assert_eq!(payloads(&easy), [0, 1]);
}

#[test]
fn try_publish_never_waits_and_gives_the_payload_back() {
    let broker = broker();
    let blocking = inbox(&broker, Overflow::Block, 1);
    let mut publisher = broker.topic::<u32>("a").unwrap().publisher();
    publisher.try_publish(0).unwrap();
    let Err(PublishError::Full(refused)) = publisher.try_publish(1) else {
        panic!("the inbox is full")
    };
    assert_eq!(refused.by(), [blocking.id()]);
    assert_eq!(refused.into_payload().unwrap(), 1);
}

#[test]
fn drop_policies_drop_the_newest_or_the_oldest_and_count() {
    let broker = broker();
    let newest = inbox(&broker, Overflow::DropNewest, 2);
    let oldest = inbox(&broker, Overflow::DropOldest, 2);
    let mut publisher = broker.topic::<u32>("a").unwrap().publisher();
    let delivered: Vec<usize> = (0..4)
        .map(|number| ready(publisher.publish(number)).unwrap().delivered)
        .collect();
    assert_eq!(delivered, [2, 2, 1, 1]);
    assert_eq!(payloads(&newest), [0, 1]);
    assert_eq!(payloads(&oldest), [2, 3]);
    assert_eq!(newest.subscription_stats().dropped, 2);
    assert_eq!(oldest.subscription_stats().dropped, 2);
    assert_eq!(broker.given_up(Undeliverable::DroppedNewest), 2);
    assert_eq!(broker.given_up(Undeliverable::DroppedOldest), 2);
}

#[test]
fn a_batch_waits_for_the_slow_inbox_and_keeps_its_order() {
    let broker = broker();
    let (slow, fast) = (
        inbox(&broker, Overflow::Block, 2),
        inbox(&broker, Overflow::Block, 8),
    );
    let mut publisher = broker.topic::<u32>("a").unwrap().publisher();
    let mut batch = pin!(publisher.publish_batch((0..5).collect()));
    let mut seen = Vec::new();
    while poll_once(batch.as_mut()).is_pending() {
        assert!(slow.len() <= 2);
        seen.extend(payloads(&slow));
    }
    seen.extend(payloads(&slow));
    assert_eq!(seen, [0, 1, 2, 3, 4]);
    assert_eq!(payloads(&fast), [0, 1, 2, 3, 4]);
}

#[test]
fn a_batch_reports_what_was_refused() {
    let broker = broker();
    let strict = inbox(&broker, Overflow::Fail, 2);
    let mut publisher = broker.topic::<u32>("a").unwrap().publisher();
    let error = ready(publisher.publish_batch((0..4).collect())).unwrap_err();
    let refused: Vec<u32> = error
        .refused
        .iter()
        .map(|refused| *refused.envelope().payload())
        .collect();
    assert_eq!(refused, [2, 3]);
    assert_eq!(payloads(&strict), [0, 1]);
}

#[test]
fn a_full_broker_holds_what_its_bounds_say() {
    const CAPACITY: usize = 32;
    const BYTES_MAX: usize = 64 << 10;
    let broker = broker();
    let inboxes: Vec<Inbox<Envelope<Vec<u8>>>> = (0..1_000)
        .map(|number| {
            // Half of them are full by count, half by bytes.
            let bytes_max = if number % 2 == 0 { 16 << 20 } else { BYTES_MAX };
            let config = SubscriptionConfig {
                inbox: MailboxConfig {
                    capacity: CAPACITY,
                    bytes_max,
                },
                overflow: Overflow::Fail,
                ..SubscriptionConfig::default()
            };
            broker.subscribe("a", config).unwrap()
        })
        .collect();
    let mut publisher = broker.topic::<Vec<u8>>("a").unwrap().publisher();
    while ready(publisher.publish(vec![0_u8; 8 << 10])).is_ok_and(|published| published.delivered > 0) {}
    for _ in 0..CAPACITY {
        ready(publisher.publish(vec![0_u8; 8 << 10])).unwrap_err();
    }
    for (number, inbox) in inboxes.iter().enumerate() {
        let hand = inbox.take();
        let (count, bytes) = (hand.len(), hand.map(|envelope| envelope.weight()).sum::<usize>());
        if number % 2 == 0 {
            assert_eq!(count, CAPACITY);
        } else {
            assert!(
                bytes <= BYTES_MAX && bytes + (9 << 10) > BYTES_MAX,
                "{bytes} bytes"
            );
        }
    }
}

/// It was told of once, with its reason.
#[test]
fn a_retry_gives_up_no_envelope_that_another_inbox_dropped_or_has() {
    for (overflow, delivered) in [(Overflow::DropNewest, 0), (Overflow::DropOldest, 1)] {
        for waits in [false, true] {
            let broker = broker();
            let letters = broker
                .subscribe::<DeadLetter>(DEAD_LETTERS, SubscriptionConfig::default())
                .unwrap();
            let blocking = inbox(&broker, Overflow::Block, 1);
            let dropping = inbox(&broker, overflow, 1);
            let mut publisher = broker.topic::<u32>("a").unwrap().publisher();
            publisher.try_publish(0).unwrap();
            let refused = publisher.try_publish(1).unwrap_err().into_refused();
            assert_eq!(
                (refused.by(), refused.delivered()),
                (&[blocking.id()][..], delivered)
            );
            let outcome = {
                let mut retry = pin!(publisher.retry(refused));
                if waits {
                    assert!(poll_once(retry.as_mut()).is_pending());
                }
                blocking.close();
                ready(retry)
            };
            assert_eq!(outcome.unwrap().delivered, delivered);
            assert_eq!(dropping.len(), 1);
            assert_eq!(broker.given_up(Undeliverable::Unrouted), 0, "waits: {waits}");
            assert_eq!(letters.take().count(), 1, "of the one that was dropped");
        }
    }
}

#[test]
fn a_retry_gives_up_an_envelope_that_nobody_came_to() {
    for waits in [false, true] {
        let broker = broker();
        let blocking = inbox(&broker, Overflow::Block, 1);
        let mut publisher = broker.topic::<u32>("a").unwrap().publisher();
        publisher.try_publish(0).unwrap();
        let refused = publisher.try_publish(1).unwrap_err().into_refused();
        let outcome = {
            let mut retry = pin!(publisher.retry(refused));
            if waits {
                assert!(poll_once(retry.as_mut()).is_pending());
            }
            blocking.close();
            ready(retry)
        };
        assert_eq!(outcome.unwrap().delivered, 0);
        assert_eq!(broker.given_up(Undeliverable::Unrouted), 1, "waits: {waits}");
    }
}

/// Who took it or dropped it is known for the batch as a whole.
#[test]
fn a_retry_of_part_of_a_batch_gives_up_what_nobody_has_only() {
    for others in [None, Some(Overflow::DropNewest), Some(Overflow::DropOldest)] {
        let broker = broker();
        let strict = inbox(&broker, Overflow::Fail, 1);
        let _other = others.map(|overflow| inbox(&broker, overflow, 1));
        let mut publisher = broker.topic::<u32>("a").unwrap().publisher();
        let mut refused = ready(publisher.publish_batch(vec![0, 1])).unwrap_err().refused;
        let refused = refused.pop().unwrap();
        assert_eq!(
            (refused.by(), *refused.envelope().payload()),
            (&[strict.id()][..], 1)
        );
        strict.close();
        ready(publisher.retry(refused)).unwrap();
        let unrouted = u64::from(others.is_none());
        assert_eq!(broker.given_up(Undeliverable::Unrouted), unrouted, "{others:?}");
    }
}
