//! Envelopes that are lent to their reader: their memory goes round, what they carry does not.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use millrun_broker::mailbox::MailboxConfig;
use millrun_broker::{Broker, BrokerConfig, Envelope, Receiver, SubscriptionConfig};

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
        places.push(Arc::as_ptr(envelope));
    }
    places.sort_unstable();
    places.dedup();
    assert!(places.len() <= 4, "{} different places", places.len());
}

#[test]
fn a_lent_envelope_that_was_cloned_stays_as_it_is() {
    let broker = broker();
    let mut publisher = broker.topic::<String>("news").unwrap().publisher();
    let mut receiver = receiver::<String>(&broker, 4);
    let mut kept = Vec::new();
    for number in 0..20 {
        soon(publisher.publish(format!("number {number}"))).unwrap();
        kept.push(Arc::clone(soon(receiver.recv_ref()).unwrap()));
    }
    for (number, envelope) in kept.iter().enumerate() {
        assert_eq!(envelope.payload(), &format!("number {number}"));
    }
    let mut ids: Vec<_> = kept.iter().map(|envelope| envelope.id()).collect();
    ids.dedup();
    assert_eq!(ids.len(), 20);
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
    let headers = millrun_broker::Headers::new().key("order-42");
    soon(publisher.publish_with(headers, 1)).unwrap();
    let first = Arc::as_ptr(soon(receiver.recv_ref()).unwrap());
    for number in 2..10 {
        soon(publisher.publish(number)).unwrap();
        let envelope = soon(receiver.recv_ref()).unwrap();
        assert_eq!(envelope.key(), None);
        if Arc::as_ptr(envelope) == first {
            return;
        }
    }
    panic!("the first envelope's memory was not used again");
}
