//! Envelopes that are lent to their reader: their memory goes round, what they carry does not.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use millrun_broker::mailbox::MailboxConfig;
use millrun_broker::{
    Broker, BrokerConfig, Envelope, GroupChoice, GroupConfig, Headers, Overflow, Receiver,
    SubscriptionConfig, Undeliverable,
};
use millrun_core::Timestamp;

use crate::host::poll_once;

/// Counts how often it was dropped.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Runs a future that waits for nobody, but may let others run once.
fn soon<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    for _ in 0..2 {
        if let Poll::Ready(output) = poll_once(future.as_mut()) {
            return output;
        }
    }
    panic!("the future waits for somebody");
}

fn broker() -> Broker {
    Broker::without_host(BrokerConfig::default())
}

fn receiver<T: Send + Sync + 'static>(broker: &Broker, capacity: usize) -> Receiver<Envelope<T>> {
    let config = SubscriptionConfig {
        inbox: MailboxConfig {
            capacity,
            ..MailboxConfig::default()
        },
        ..SubscriptionConfig::default()
    };
    broker.subscribe::<T>("news", config).unwrap().into_receiver()
}

#[test]
fn the_memory_of_a_lent_envelope_carries_a_later_payload() {
    let broker = broker();
    let mut publisher = broker.topic::<String>("news").unwrap().publisher();
    let mut receiver = receiver::<String>(&broker, 4);
    let mut places = Vec::new();
    for number in 0..40 {
        soon(publisher.publish(format!("number {number}"))).unwrap();
        let envelope = soon(receiver.recv_ref()).unwrap();
        assert_eq!(envelope.payload(), &format!("number {number}"));
        assert_eq!(envelope.causation(), None);
        places.push(std::ptr::from_ref(envelope));
    }
    places.sort_unstable();
    places.dedup();
    // Two before the publisher has seen how its reader reads, then boxes.
    assert!(places.len() <= 2 + 4, "{} different places", places.len());
}

/// A publisher fills its reader's inbox before that is ever looked at. If those envelopes were shared, it
/// would allocate as many again for the next round.
#[test]
fn envelopes_that_are_published_before_the_first_look_serve_later_ones() {
    let broker = broker();
    let mut publisher = broker.topic::<usize>("news").unwrap().publisher();
    let mut receiver = receiver::<usize>(&broker, 8);
    let mut seen: Option<Vec<*const Envelope<usize>>> = None;
    for _ in 0..3 {
        for number in 0..8 {
            soon(publisher.publish(number)).unwrap();
        }
        let places = [(); 8].map(|()| std::ptr::from_ref(soon(receiver.recv_ref()).unwrap()));
        assert!(receiver.try_recv().is_none());
        if let Some(seen) = seen.replace(places.to_vec()) {
            // The first of a round is made before its publisher has been given a box.
            let new = places.iter().filter(|place| !seen.contains(place)).count();
            assert!(new <= 1, "{new} of 8 are new");
        }
    }
}

#[test]
fn an_envelope_that_others_keep_stays_as_it_is() {
    let broker = broker();
    let mut publisher = broker.topic::<String>("news").unwrap().publisher();
    let mut borrower = receiver::<String>(&broker, 4);
    // Boxes go round by now.
    for number in 0..8 {
        soon(publisher.publish(format!("alone {number}"))).unwrap();
        assert!(soon(borrower.recv_ref()).is_some());
    }
    let mut keeper = receiver::<String>(&broker, 4);
    let mut kept = Vec::new();
    for number in 0..20 {
        soon(publisher.publish(format!("number {number}"))).unwrap();
        kept.push(soon(keeper.recv()).unwrap());
        let lent = soon(borrower.recv_ref()).unwrap();
        assert_eq!(lent.id(), kept[number].id());
    }
    for (number, envelope) in kept.iter().enumerate() {
        assert_eq!(envelope.payload(), &format!("number {number}"));
    }
}

#[test]
fn a_reader_may_borrow_and_keep_in_turn() {
    let broker = broker();
    let mut publisher = broker.topic::<usize>("news").unwrap().publisher();
    let mut receiver = receiver::<usize>(&broker, 8);
    let mut kept = Vec::new();
    for round in 0..10 {
        for number in 0..6 {
            soon(publisher.publish(round * 6 + number)).unwrap();
        }
        for number in 0..3 {
            let lent = soon(receiver.recv_ref()).unwrap();
            assert_eq!(*lent.payload(), round * 6 + number);
        }
        kept.push(soon(receiver.recv()).unwrap());
        kept.push(receiver.try_recv().unwrap());
        let mut batch = receiver.inbox().take();
        assert!(batch.next_ref().is_none(), "the receiver's batch is out");
        drop(batch);
        let batch = soon(receiver.recv_batch()).unwrap();
        assert_eq!(batch.next_ref().map(|lent| *lent.payload()), Some(round * 6 + 5));
    }
    let numbers: Vec<usize> = kept.iter().map(|envelope| *envelope.payload()).collect();
    let expected: Vec<usize> = (0..10).flat_map(|round| [round * 6 + 3, round * 6 + 4]).collect();
    assert_eq!(numbers, expected);
}

#[test]
fn a_full_inbox_gives_a_boxed_envelope_back_and_takes_it_later() {
    let broker = broker();
    let mut publisher = broker.topic::<u32>("news").unwrap().publisher();
    let mut receiver = receiver::<u32>(&broker, 2);
    for number in 0..4 {
        soon(publisher.publish(number)).unwrap();
        assert_eq!(
            soon(receiver.recv_ref()).map(|lent| *lent.payload()),
            Some(number)
        );
    }
    soon(publisher.publish(4)).unwrap();
    soon(publisher.publish(5)).unwrap();
    let refused = publisher.try_publish(6).unwrap_err().into_refused();
    let refused = refused.into_payload().unwrap();
    assert_eq!(refused, 6);
    {
        let mut waiting = std::pin::pin!(publisher.publish(7));
        assert!(poll_once(waiting.as_mut()).is_pending());
        assert_eq!(soon(receiver.recv_ref()).map(|lent| *lent.payload()), Some(4));
        assert_eq!(soon(receiver.recv_ref()).map(|lent| *lent.payload()), Some(5));
        assert!(receiver.try_recv().is_none());
        assert!(poll_once(waiting.as_mut()).is_ready());
    }
    assert_eq!(soon(receiver.recv_ref()).map(|lent| *lent.payload()), Some(7));
    let stats = receiver.inbox().stats();
    assert_eq!((stats.pushed, stats.refused, stats.waits), (7, 2, 1));
}

#[test]
fn what_a_lent_envelope_carries_is_dropped_at_the_next_call() {
    let broker = broker();
    let dropped = Arc::new(AtomicUsize::new(0));
    let mut publisher = broker.topic::<Counted>("news").unwrap().publisher();
    let mut receiver = receiver::<Counted>(&broker, 8);
    for _ in 0..5 {
        soon(publisher.publish(Counted(Arc::clone(&dropped)))).unwrap();
    }
    for before in 0..5 {
        assert!(soon(receiver.recv_ref()).is_some());
        assert_eq!(dropped.load(Ordering::Relaxed), before);
    }
    assert!(receiver.try_recv().is_none());
    receiver.inbox().close();
    assert!(soon(receiver.recv_ref()).is_none());
    assert_eq!(dropped.load(Ordering::Relaxed), 5);
}

#[test]
fn headers_do_not_outlive_their_envelope() {
    let broker = broker();
    let mut publisher = broker.topic::<u32>("news").unwrap().publisher();
    let mut receiver = receiver::<u32>(&broker, 2);
    // The publisher sees how its reader reads, and boxes from then on.
    for _ in 0..3 {
        soon(publisher.publish(0)).unwrap();
        assert!(soon(receiver.recv_ref()).is_some());
    }
    let headers = Headers::new().key("order-42");
    soon(publisher.publish_with(headers, 1)).unwrap();
    let first = std::ptr::from_ref(soon(receiver.recv_ref()).unwrap());
    for number in 2..10 {
        soon(publisher.publish(number)).unwrap();
        let envelope = soon(receiver.recv_ref()).unwrap();
        assert_eq!(envelope.key(), None);
        if std::ptr::from_ref(envelope) == first {
            return;
        }
    }
    panic!("the first envelope's memory was not used again");
}

#[test]
fn each_way_to_go_on_reading_ends_a_loan() {
    let broker = broker();
    let dropped = Arc::new(AtomicUsize::new(0));
    let mut publisher = broker.topic::<Counted>("news").unwrap().publisher();
    let mut receiver = receiver::<Counted>(&broker, 8);
    let mut count = 0;
    let mut borrow_one_of = |receiver: &mut Receiver<_>, published: usize| {
        for _ in 0..published {
            soon(publisher.publish(Counted(Arc::clone(&dropped)))).unwrap();
        }
        assert!(soon(receiver.recv_ref()).is_some());
    };
    let mut has_ended = |what: &str| {
        count += 1;
        assert_eq!(dropped.load(Ordering::Relaxed), count, "{what}");
    };

    borrow_one_of(&mut receiver, 2);
    let second = receiver.try_recv().unwrap();
    has_ended("with more in hand");
    drop(second);
    has_ended("the owner lets go");

    borrow_one_of(&mut receiver, 1);
    assert!(poll_once(std::pin::pin!(receiver.recv_batch())).is_pending());
    has_ended("while it waits for a batch");

    borrow_one_of(&mut receiver, 1);
    assert!(poll_once(std::pin::pin!(receiver.recv())).is_pending());
    has_ended("while it waits for one");

    borrow_one_of(&mut receiver, 1);
    let inbox = receiver.inbox().clone();
    drop(receiver);
    has_ended("with the receiver");
    assert!(inbox.is_empty());
}

/// Boxes go round when something happens to the inbox or the topic.
#[test]
fn boxed_envelopes_are_dropped_discarded_and_shared_like_others() {
    let warm = |overflow, capacity| {
        let broker = broker();
        let config = SubscriptionConfig {
            inbox: MailboxConfig {
                capacity,
                ..MailboxConfig::default()
            },
            overflow,
            ..SubscriptionConfig::default()
        };
        let inbox = broker.subscribe::<u32>("news", config).unwrap();
        let mut publisher = broker.topic::<u32>("news").unwrap().publisher();
        let mut receiver = inbox.into_receiver();
        for _ in 0..3 {
            soon(publisher.publish(0)).unwrap();
            assert!(soon(receiver.recv_ref()).is_some());
        }
        assert!(receiver.try_recv().is_none());
        (broker, publisher, receiver)
    };

    let (broker, mut publisher, mut receiver) = warm(Overflow::DropOldest, 2);
    for number in 1..=4 {
        soon(publisher.publish(number)).unwrap();
    }
    assert_eq!(broker.given_up(Undeliverable::DroppedOldest), 2);
    assert_eq!(soon(receiver.recv_ref()).map(|lent| *lent.payload()), Some(3));
    assert_eq!(soon(receiver.recv_ref()).map(|lent| *lent.payload()), Some(4));

    let (broker, mut publisher, receiver) = warm(Overflow::Block, 4);
    soon(publisher.publish(1)).unwrap();
    soon(publisher.publish(2)).unwrap();
    assert_eq!(receiver.inbox().close_discarding(), 2);
    assert_eq!(broker.given_up(Undeliverable::Discarded), 2);
    assert_eq!(soon(publisher.publish(3)).unwrap().delivered, 0);

    let (broker, mut publisher, mut receiver) = warm(Overflow::Block, 4);
    broker.advance(Timestamp::from_micros(10));
    let late = Headers::new().expires(Timestamp::from_micros(10));
    soon(publisher.publish_with(late, 1)).unwrap();
    soon(publisher.publish(2)).unwrap();
    assert_eq!(soon(receiver.recv_ref()).map(|lent| *lent.payload()), Some(2));
    assert_eq!(broker.given_up(Undeliverable::Expired), 1);

    let (broker, mut publisher, mut receiver) = warm(Overflow::Block, 4);
    let group = SubscriptionConfig {
        group: Some(GroupConfig {
            name: "team".into(),
            choice: GroupChoice::RoundRobin,
        }),
        ..SubscriptionConfig::default()
    };
    let member = broker.subscribe::<u32>(">", group).unwrap();
    assert_eq!(soon(publisher.publish(7)).unwrap().delivered, 2);
    assert_eq!(member.take().next().map(|envelope| *envelope.payload()), Some(7));
    assert_eq!(soon(receiver.recv_ref()).map(|lent| *lent.payload()), Some(7));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_on_another_thread_borrows_each_envelope_once_in_order() {
    const COUNT: u64 = 50_000;
    let broker = broker();
    let mut publisher = broker.topic::<Vec<u64>>("news").unwrap().publisher();
    let mut receiver = receiver::<Vec<u64>>(&broker, 16);
    let mut reader = tokio::task::JoinSet::new();
    reader.spawn(async move {
        for number in 0..COUNT {
            let lent = receiver.recv_ref().await.unwrap();
            assert_eq!(lent.payload(), &[number, !number]);
        }
        receiver.inbox().stats()
    });
    for number in 0..COUNT {
        publisher.publish(vec![number, !number]).await.unwrap();
    }
    let stats = reader.join_next().await.unwrap().unwrap();
    assert_eq!((stats.pushed, stats.taken, stats.queued), (COUNT, COUNT, 0));
}
