//! Many inboxes that want the same: what each of them promises holds although they share envelopes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use millrun_broker::mailbox::MailboxConfig;
use millrun_broker::{
    AskError, Broker, BrokerConfig, DEAD_LETTERS, DeadLetter, Envelope, FlowEvent, Headers, Inbox, Overflow,
    PublishError, Request, SubscriptionConfig, Tap, Undeliverable,
};
use millrun_core::Timestamp;
use tokio::task::JoinSet;

use crate::host::poll_once;

const READERS: usize = 6;

fn broker() -> Broker {
    Broker::without_host(BrokerConfig::default())
}

fn config(capacity: usize) -> SubscriptionConfig {
    SubscriptionConfig {
        inbox: MailboxConfig {
            capacity,
            ..MailboxConfig::default()
        },
        ..SubscriptionConfig::default()
    }
}

fn inboxes<T: Send + Sync + 'static>(broker: &Broker, capacity: usize) -> Vec<Inbox<Envelope<T>>> {
    (0..READERS)
        .map(|_| broker.subscribe("a", config(capacity)).unwrap())
        .collect()
}

fn numbers(inbox: &Inbox<Envelope<u32>>) -> Vec<u32> {
    inbox.take().map(|envelope| *envelope.payload()).collect()
}

/// Alive as long as a reference to it is held.
struct Live(Arc<AtomicUsize>);

impl Live {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn a_payload_lives_until_the_slowest_reader_is_done_with_its_bundle_and_no_longer() {
    let broker = broker();
    // Bundles of four.
    let mut readers: Vec<_> = inboxes::<Live>(&broker, 16)
        .into_iter()
        .map(Inbox::into_receiver)
        .collect();
    let mut publisher = broker.topic::<Live>("a").unwrap().publisher();
    let alive = Arc::new(AtomicUsize::new(0));
    for _ in 0..9 {
        publisher.try_publish(Live::new(&alive)).unwrap();
    }
    let slow = readers.pop().unwrap();
    for reader in &mut readers {
        (0..9).for_each(|_| assert!(reader.try_recv().is_some()));
        assert!(reader.try_recv().is_none());
    }
    assert_eq!(alive.load(Ordering::Relaxed), 9, "one has not begun");
    let mut batch = slow.inbox().take();
    // The first went to each inbox by itself, then come two bundles.
    let mut left = Vec::new();
    while batch.next_ref().is_some() {
        left.push(alive.load(Ordering::Relaxed));
    }
    assert_eq!(left, [9, 8, 8, 8, 8, 4, 4, 4, 4]);
    assert_eq!(
        alive.load(Ordering::Relaxed),
        0,
        "who waits for more holds nothing"
    );
}

#[test]
fn a_consumer_that_panics_amid_a_bundle_loses_nothing() {
    let broker = broker();
    let inboxes = inboxes::<u32>(&broker, 32);
    let mut publisher = broker.topic::<u32>("a").unwrap().publisher();
    for number in 0..20 {
        publisher.try_publish(number).unwrap();
    }
    let failing = inboxes[0].clone();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let mut batch = failing.take();
        for _ in 0..12 {
            assert!(batch.next_ref().unwrap().payload() < &11, "the handler fails");
        }
    }));
    assert!(panicked.is_err());
    publisher.try_publish(20).unwrap();
    assert_eq!(numbers(&inboxes[0]), (12..=20).collect::<Vec<_>>());
    assert_eq!(numbers(&inboxes[1]), (0..=20).collect::<Vec<_>>());
}

#[test]
fn the_bytes_of_a_bundle_count_until_it_is_done_with() {
    let broker = broker();
    let weight = size_of::<Envelope<Vec<u8>>>() + 1_000;
    let bounded = SubscriptionConfig {
        inbox: MailboxConfig {
            capacity: 64,
            bytes_max: 12 * weight,
        },
        ..SubscriptionConfig::default()
    };
    let mut readers: Vec<_> = inboxes::<Vec<u8>>(&broker, 64);
    readers.push(broker.subscribe("a", bounded).unwrap());
    let mut publisher = broker.topic::<Vec<u8>>("a").unwrap().publisher();
    let mut publish = || publisher.try_publish(vec![0; 1_000]);
    for _ in 0..12 {
        publish().unwrap();
    }
    let refused = publish().unwrap_err().into_refused();
    assert_eq!(refused.by(), [readers[READERS].id()]);
    let mut batch = readers[READERS].take();
    // The first went to each inbox by itself, then come bundles of three.
    assert!(batch.next_ref().is_some());
    publish().unwrap();
    assert!(batch.next_ref().is_some() && batch.next_ref().is_some());
    assert!(publish().is_err());
    assert!(batch.next_ref().is_some() && batch.next_ref().is_some());
    (0..3).for_each(|_| assert!(publish().is_ok()));
    assert!(publish().is_err());
}

#[tokio::test]
async fn an_asker_learns_at_once_that_none_of_many_will_answer() {
    let broker = broker();
    let inboxes = inboxes::<Request<u32, u32>>(&broker, 16);
    let topic = broker.topic::<Request<u32, u32>>("a").unwrap();
    let mut asked = JoinSet::new();
    for question in 0..5 {
        let topic = topic.clone();
        asked.spawn(async move { topic.ask(question, Duration::from_secs(3_600)).await });
    }
    while inboxes[0].len() < 5 {
        tokio::task::yield_now().await;
    }
    let mut batches: Vec<_> = inboxes.iter().map(Inbox::take).collect();
    batches.iter_mut().for_each(|batch| drop(batch.next().unwrap()));
    assert_eq!(
        asked.join_next().await.unwrap().unwrap(),
        Err(AskError::Unanswered)
    );
    assert!(batches.iter().all(|batch| batch.len() == 4));
}

#[test]
fn what_has_expired_in_a_bundle_is_given_up_by_each_reader() {
    let broker = broker();
    let mut readers: Vec<_> = inboxes::<u32>(&broker, 32)
        .into_iter()
        .map(Inbox::into_receiver)
        .collect();
    let letters = broker.subscribe::<DeadLetter>(DEAD_LETTERS, config(64)).unwrap();
    let mut publisher = broker.topic::<u32>("a").unwrap().publisher();
    for number in 0..12 {
        let headers = if number % 3 == 2 {
            Headers::new().expires(Timestamp::from_micros(10))
        } else {
            Headers::new()
        };
        assert!(poll_once(Box::pin(publisher.publish_with(headers, number)).as_mut()).is_ready());
    }
    broker.advance(Timestamp::from_micros(10));
    for reader in &mut readers {
        let got: Vec<u32> =
            std::iter::from_fn(|| reader.try_recv().map(|envelope| *envelope.payload())).collect();
        assert_eq!(got, [0, 1, 3, 4, 6, 7, 9, 10]);
        assert_eq!(reader.inbox().subscription_stats().expired, 4);
    }
    assert_eq!(broker.given_up(Undeliverable::Expired), 4 * READERS as u64);
    assert_eq!(letters.len(), 4 * READERS);
}

#[test]
fn a_stuck_reader_holds_up_publishers_by_its_name_and_nobody_else() {
    let broker = broker();
    let inboxes = inboxes::<u32>(&broker, 8);
    let (stuck, others) = inboxes.split_last().unwrap();
    let fails = broker.subscribe::<u32>(
        "a",
        SubscriptionConfig {
            overflow: Overflow::Fail,
            ..config(64)
        },
    );
    let fails = fails.unwrap();
    let mut publisher = broker.topic::<u32>("a").unwrap().publisher();
    for number in 0..8 {
        publisher.try_publish(number).unwrap();
        others
            .iter()
            .for_each(|inbox| assert_eq!(numbers(inbox), [number]));
    }
    let mut publish = Box::pin(publisher.publish(8));
    assert!(poll_once(publish.as_mut()).is_pending());
    others.iter().for_each(|inbox| assert_eq!(numbers(inbox), [8]));
    assert_eq!((broker.waiting(), stuck.stats().waiting), (1, 1));
    assert_eq!(numbers(stuck), (0..8).collect::<Vec<_>>());
    assert!(poll_once(publish.as_mut()).is_ready());
    drop(publish);
    assert_eq!(numbers(stuck), [8]);
    assert_eq!(numbers(&fails), (0..=8).collect::<Vec<_>>());
    assert_eq!(broker.waiting(), 0);
}

#[test]
fn a_full_inbox_beside_the_shared_ones_refuses_alone() {
    let broker = broker();
    let inboxes = inboxes::<u32>(&broker, 16);
    let fails = SubscriptionConfig {
        overflow: Overflow::Fail,
        ..config(2)
    };
    let fails = broker.subscribe::<u32>("*", fails).unwrap();
    let mut publisher = broker.topic::<u32>("a").unwrap().publisher();
    for number in 0..5 {
        match publisher.try_publish(number) {
            Ok(published) => assert_eq!((number < 2, published.delivered), (true, READERS + 1)),
            Err(PublishError::Full(refused)) => {
                assert_eq!((refused.by(), refused.delivered()), (&[fails.id()][..], READERS));
            }
            Err(error) => panic!("{error}"),
        }
    }
    inboxes
        .iter()
        .for_each(|inbox| assert_eq!(numbers(inbox), [0, 1, 2, 3, 4]));
    assert_eq!(numbers(&fails), [0, 1]);
    assert_eq!(broker.given_up(Undeliverable::Unrouted), 0);
}

#[derive(Default)]
struct Deliveries(AtomicUsize);

impl Tap for Deliveries {
    fn on_flow(&self, event: &FlowEvent<'_>) {
        if let FlowEvent::Delivered { .. } = event {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[test]
fn a_tap_that_comes_late_sees_all_that_follows_and_nothing_is_lost() {
    let broker = broker();
    let inboxes = inboxes::<u32>(&broker, 16);
    let mut publisher = broker.topic::<u32>("a").unwrap().publisher();
    (0..5).for_each(|number| assert!(publisher.try_publish(number).is_ok()));
    let tap = Arc::<Deliveries>::default();
    broker.tap(Arc::<Deliveries>::clone(&tap)).unwrap();
    (5..9).for_each(|number| assert!(publisher.try_publish(number).is_ok()));
    assert_eq!(tap.0.load(Ordering::Relaxed), 4 * READERS);
    inboxes
        .iter()
        .for_each(|inbox| assert_eq!(numbers(inbox), (0..9).collect::<Vec<_>>()));
}

#[test]
fn when_too_few_are_left_they_go_on_alone_and_together_again_when_others_come() {
    let broker = broker();
    let mut inboxes = inboxes::<u32>(&broker, 64);
    let mut publisher = broker.topic::<u32>("a").unwrap().publisher();
    let mut next = 0;
    let mut publish = |count: u32| {
        for _ in 0..count {
            publisher.try_publish(next).unwrap();
            next += 1;
        }
    };
    publish(5);
    while inboxes.len() > 2 {
        let gone = inboxes.remove(0);
        gone.close();
        assert!(!gone.is_finished());
        let got = numbers(&gone);
        assert!(got.iter().copied().eq(0..u32::try_from(got.len()).unwrap()));
        publish(3);
    }
    let late: Vec<Inbox<Envelope<u32>>> = (0..READERS)
        .map(|_| broker.subscribe("a", config(64)).unwrap())
        .collect();
    publish(4);
    inboxes
        .iter()
        .for_each(|inbox| assert_eq!(numbers(inbox), (0..21).collect::<Vec<_>>()));
    late.iter()
        .for_each(|inbox| assert_eq!(numbers(inbox), (17..21).collect::<Vec<_>>()));
}

type Numbered = (usize, u32);

/// Two producers with publishers and one without; readers that stay, read in all ways, and others that come
/// and go; on two threads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_reader_gets_each_publishers_envelopes_in_order_while_others_come_and_go() {
    const PRODUCERS: usize = 3;
    const EACH: u32 = 4_000;
    let broker = broker();
    let mut readers = JoinSet::new();
    for way in 0..READERS {
        let inbox = broker.subscribe::<Numbered>("a", config(8 + 5 * way)).unwrap();
        readers.spawn(async move {
            let mut receiver = inbox.into_receiver();
            let mut next = [0; PRODUCERS];
            let mut check = |(producer, number): Numbered| {
                assert_eq!(number, next[producer], "producer {producer}");
                next[producer] += 1;
                next.iter().any(|next| *next < EACH)
            };
            loop {
                let more = match way % 3 {
                    0 => check(*receiver.recv().await.unwrap().payload()),
                    1 => check(*receiver.recv_ref().await.unwrap().payload()),
                    _ => {
                        let batch = receiver.recv_batch().await.unwrap();
                        // What is left is the next to be received.
                        let mut more = true;
                        for _ in 0..7 {
                            match batch.next_ref() {
                                Some(envelope) => more = check(*envelope.payload()),
                                None => break,
                            }
                        }
                        more
                    }
                };
                if !more {
                    return;
                }
            }
        });
    }
    let mut producers = JoinSet::new();
    for producer in 0..PRODUCERS {
        let topic = broker.topic::<Numbered>("a").unwrap();
        producers.spawn(async move {
            let mut publisher = topic.publisher();
            for number in 0..EACH {
                let payload = (producer, number);
                match (producer, number % 64) {
                    (0, 63) | (2, _) => assert!(topic.publish(payload).await.is_ok()),
                    (1, 0) => assert!(publisher.publish_batch(vec![payload]).await.is_ok()),
                    _ => assert!(publisher.publish(payload).await.is_ok()),
                }
            }
        });
    }
    let churned = broker.clone();
    producers.spawn(async move {
        for round in 0..200_usize {
            let passing = churned.subscribe::<Numbered>("a", config(8 + round % 9)).unwrap();
            let mut passing = passing.into_receiver();
            let mut last = [None; PRODUCERS];
            for _ in 0..round % 11 {
                let Some(envelope) = passing.try_recv() else { break };
                let (producer, number) = *envelope.payload();
                let follows = last[producer].is_none_or(|last| number == last + 1);
                assert!(follows, "a gap or out of order");
                last[producer] = Some(number);
            }
            tokio::task::yield_now().await;
        }
    });
    while let Some(ended) = producers.join_next().await {
        ended.unwrap();
    }
    while let Some(ended) = readers.join_next().await {
        ended.unwrap();
    }
    assert_eq!(broker.given_up(Undeliverable::Unrouted), 0);
    assert_eq!(broker.waiting(), 0);
}
