//! The end of a broker, and a broker that is given a host.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use millrun_broker::mailbox::MailboxConfig;
use millrun_broker::{
    AskError, Broker, BrokerConfig, BrokerEvent, Envelope, Inbox, Overflow, PublishError, Request,
    ServeError, ServiceConfig, SubscribeError, SubscriptionConfig, TopicConfig, Undeliverable,
};
use millrun_core::{Host, Timestamp};

use crate::host::{TestHost, poll_once, ready};

const LIMIT: Duration = Duration::from_secs(1);

fn of_capacity(capacity: usize, overflow: Overflow) -> SubscriptionConfig {
    SubscriptionConfig {
        inbox: MailboxConfig {
            capacity,
            ..MailboxConfig::default()
        },
        overflow,
        ..SubscriptionConfig::default()
    }
}

/// A server that hands a topic to its clients as a stream of events could not be closed: `shutdown` left
/// the subscriptions open, so each stream waited for an event that nobody was going to publish.
#[test]
fn consumers_of_a_closed_broker_find_the_end_behind_what_they_have() {
    // Of these inboxes, up to three get each envelope by themselves; more share it.
    for inboxes in [0, 1, 2, 3, 4, 8] {
        let broker = Broker::without_host(BrokerConfig::default());
        let mut receivers: Vec<_> = (0..inboxes)
            .map(|_| {
                let config = SubscriptionConfig::default();
                broker.subscribe::<u32>("a", config).unwrap().into_receiver()
            })
            .collect();
        let topic = broker.topic::<u32>("a").unwrap();
        let mut publisher = topic.publisher();
        ready(publisher.publish(1)).unwrap();
        ready(topic.publish(2)).unwrap();
        broker.close();
        broker.close();
        assert!(broker.is_closed());

        assert!(matches!(
            ready(publisher.publish(3)),
            Err(PublishError::Closed(_))
        ));
        assert!(matches!(ready(topic.publish(3)), Err(PublishError::Closed(_))));
        assert!(matches!(topic.try_publish(3), Err(PublishError::Closed(_))));
        assert!(matches!(publisher.try_publish(3), Err(PublishError::Closed(_))));
        let timed = ready(topic.publish_timeout(3, LIMIT));
        let refused = timed.unwrap_err();
        assert!(!refused.is_retryable());
        assert_eq!(refused.into_refused().into_payload().unwrap(), 3);
        let batch = ready(publisher.publish_batch(vec![3, 4])).unwrap_err();
        assert_eq!(batch.refused.len(), 2);
        assert!(batch.refused.iter().all(|refused| refused.is_closed()));
        let again = broker.subscribe::<u32>("a", SubscriptionConfig::default());
        assert!(matches!(again, Err(SubscribeError::Closed)));
        let again = broker.subscribe_any("a.>", SubscriptionConfig::default());
        assert!(matches!(again, Err(SubscribeError::Closed)));

        for receiver in &mut receivers {
            assert_eq!(*ready(receiver.recv()).unwrap().payload(), 1);
            assert_eq!(*ready(receiver.recv()).unwrap().payload(), 2);
            assert!(ready(receiver.recv()).is_none());
            assert!(receiver.inbox().is_finished());
        }
        assert!(broker.topology().subscriptions.is_empty());
        // What is refused comes back, and is not counted as lost.
        assert_eq!(
            broker.given_up(Undeliverable::Unrouted),
            if inboxes == 0 { 2 } else { 0 }
        );
    }
}

#[test]
fn a_publisher_that_waits_when_the_broker_is_closed_is_told() {
    let broker = Broker::without_host(BrokerConfig::default());
    let full: Inbox<Envelope<u32>> = broker.subscribe("a", of_capacity(1, Overflow::Block)).unwrap();
    let topic = broker.topic::<u32>("a").unwrap();
    let (mut one, mut another) = (topic.publisher(), topic.publisher());
    ready(topic.publish(0)).unwrap();
    let mut waiting = pin!(topic.publish(1));
    let mut timed = pin!(topic.publish_timeout(2, LIMIT));
    let mut batch = pin!(one.publish_batch(vec![3, 4]));
    let mut single = pin!(another.publish(5));
    assert!(poll_once(waiting.as_mut()).is_pending());
    assert!(poll_once(timed.as_mut()).is_pending());
    assert!(poll_once(batch.as_mut()).is_pending());
    assert!(poll_once(single.as_mut()).is_pending());
    let idle: Inbox<Envelope<u32>> = broker.subscribe("b", SubscriptionConfig::default()).unwrap();
    let mut idle = idle.into_receiver();
    let mut next = pin!(idle.recv());
    assert!(poll_once(next.as_mut()).is_pending());

    broker.close();
    assert!(matches!(
        poll_once(waiting),
        Poll::Ready(Err(PublishError::Closed(_)))
    ));
    assert!(matches!(
        poll_once(timed),
        Poll::Ready(Err(PublishError::Closed(_)))
    ));
    assert!(matches!(
        poll_once(single),
        Poll::Ready(Err(PublishError::Closed(_)))
    ));
    let Poll::Ready(Err(batch)) = poll_once(batch) else {
        panic!("nobody is waited for any more")
    };
    assert_eq!(batch.refused.len(), 2);
    assert!(matches!(poll_once(next), Poll::Ready(None)));
    assert_eq!(full.take().count(), 1);
    assert_eq!(broker.waiting(), 0);
}

#[test]
fn a_closed_broker_refuses_on_topics_that_retain_and_questions_too() {
    let broker = Broker::without_host(BrokerConfig::default());
    let config = TopicConfig {
        retain: true,
        ..TopicConfig::default()
    };
    let state = broker.topic_with::<u32>("state", &config).unwrap();
    let mut publisher = state.publisher();
    ready(state.publish(1)).unwrap();
    let questions = broker.topic::<Request<u32, u32>>("questions").unwrap();
    let inbox = broker
        .subscribe::<Request<u32, u32>>("questions", SubscriptionConfig::default())
        .unwrap();
    let mut asked = pin!(questions.ask(1, LIMIT));
    assert!(poll_once(asked.as_mut()).is_pending());
    broker.close();
    assert!(matches!(ready(state.publish(2)), Err(PublishError::Closed(_))));
    assert!(matches!(
        ready(publisher.publish(2)),
        Err(PublishError::Closed(_))
    ));
    assert_eq!(ready(questions.ask(2, LIMIT)), Err(AskError::Closed));
    // The one that was asked before is in the inbox, and is answered.
    inbox.take().next().unwrap().payload().answer(7).unwrap();
    assert_eq!(poll_once(asked), Poll::Ready(Ok(7)));
}

#[test]
fn each_subscription_of_a_closed_broker_is_reported_as_ended() {
    let broker = Broker::without_host(BrokerConfig::default());
    let ended: Arc<Mutex<Vec<_>>> = Arc::default();
    let told = Arc::clone(&ended);
    broker.monitor(move |event| {
        if let BrokerEvent::Unsubscribed(id) = event {
            told.lock().unwrap().push(*id);
        }
    });
    let typed = broker
        .subscribe::<u32>("a.*", SubscriptionConfig::default())
        .unwrap();
    let any = broker.subscribe_any(">", SubscriptionConfig::default()).unwrap();
    broker.close();
    assert_eq!(*ended.lock().unwrap(), [typed.id(), any.id()]);
    drop((typed, any));
    assert_eq!(ended.lock().unwrap().len(), 2, "once");
}

/// A broker was made before the runtime, without a host, as all examples did: a question with a deadline
/// was then never answered, since nobody told the broker the time.
#[test]
fn a_broker_that_is_given_a_host_goes_by_its_time() {
    let host = TestHost::new();
    let broker = Broker::without_host(BrokerConfig::default());
    let reports: Arc<Mutex<usize>> = Arc::default();
    let count = Arc::clone(&reports);
    broker.monitor(move |event| {
        if let BrokerEvent::LongWait(_) = event {
            *count.lock().unwrap() += 1;
        }
    });
    let inbox = broker
        .subscribe::<Request<u32, u32>>("questions", SubscriptionConfig::default())
        .unwrap();
    let questions = broker.topic::<Request<u32, u32>>("questions").unwrap();
    let full: Inbox<Envelope<u32>> = broker.subscribe("a", of_capacity(1, Overflow::Block)).unwrap();
    let topic = broker.topic::<u32>("a").unwrap();
    let mut publisher = topic.publisher();
    ready(publisher.publish(0)).unwrap();
    // Begun before there is a host.
    let mut asked = pin!(questions.ask(1, LIMIT));
    let mut waiting = pin!(topic.publish(1));
    let mut timed = pin!(topic.publish_timeout(2, LIMIT));
    assert!(poll_once(asked.as_mut()).is_pending());
    assert!(poll_once(waiting.as_mut()).is_pending());
    assert!(poll_once(timed.as_mut()).is_pending());
    let refused = inbox.serve(ServiceConfig::default(), |_| async { Ok::<_, String>(()) });
    assert_eq!(refused.err(), Some(ServeError::NoHost));

    assert!(!broker.has_host());
    broker.run_on(Arc::clone(&host) as Arc<dyn Host>);
    assert!(broker.has_host());
    // From then on it is not fed.
    broker.advance(Timestamp::MAX);
    // Its time, one second after the epoch, is behind the limits of what has begun, which count from zero.
    host.advance(LIMIT);
    assert_eq!(poll_once(asked), Poll::Ready(Err(AskError::TimedOut)));
    assert!(matches!(
        poll_once(timed),
        Poll::Ready(Err(PublishError::TimedOut(_)))
    ));
    let mut asked = pin!(questions.ask(1, LIMIT));
    assert!(poll_once(asked.as_mut()).is_pending());
    host.advance(LIMIT - Duration::from_millis(1));
    assert!(poll_once(asked.as_mut()).is_pending());
    host.advance(Duration::from_millis(1));
    assert_eq!(poll_once(asked), Poll::Ready(Err(AskError::TimedOut)));
    host.advance(BrokerConfig::default().wait_report_after * 2);
    assert_eq!(
        *reports.lock().unwrap(),
        1,
        "the publish that still waits is reported"
    );
    let fresh = full.take().next().unwrap();
    assert_eq!(fresh.time(), Timestamp::EPOCH, "it was published before");
    drop(fresh);
    assert!(matches!(poll_once(waiting), Poll::Ready(Ok(_))));
    full.take().for_each(drop);
    ready(publisher.publish(3)).unwrap();
    let fresh = full.take().next().unwrap();
    assert_eq!(
        fresh.time(),
        host.now(),
        "a publisher of before has the host's time"
    );

    // Another host takes over, as that of the next runtime does.
    let next = TestHost::new();
    broker.run_on(Arc::clone(&next) as Arc<dyn Host>);
    let mut asked = pin!(questions.ask(1, LIMIT));
    assert!(poll_once(asked.as_mut()).is_pending());
    host.advance(LIMIT * 2);
    assert!(poll_once(asked.as_mut()).is_pending());
    next.advance(LIMIT);
    assert_eq!(poll_once(asked), Poll::Ready(Err(AskError::TimedOut)));
    let served = inbox.serve(ServiceConfig::default(), |_| async { Ok::<_, String>(()) });
    assert!(served.is_ok());
}
