//! Publishers that wait: time limits, cycles.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use millrun_broker::mailbox::MailboxConfig;
use millrun_broker::{
    Broker, BrokerConfig, BrokerEvent, DEAD_LETTERS, DeadLetter, Envelope, Inbox, LongWait, PublishError,
    ServiceConfig, SubscriptionConfig, Undeliverable,
};
use millrun_core::{Host, Timestamp};

use crate::host::{TestHost, poll_once, ready};

fn one_place() -> SubscriptionConfig {
    SubscriptionConfig {
        inbox: MailboxConfig {
            capacity: 1,
            ..MailboxConfig::default()
        },
        ..SubscriptionConfig::default()
    }
}

#[test]
fn a_publish_gives_up_when_its_time_is_over() {
    let broker = Broker::without_host(BrokerConfig::default());
    broker.advance(Timestamp::from_micros(1));
    let inbox: Inbox<Envelope<u32>> = broker.subscribe("a", one_place()).unwrap();
    let topic = broker.topic::<u32>("a").unwrap();
    ready(topic.publish(0)).unwrap();
    let limit = Duration::from_millis(20);
    let mut publish = pin!(topic.publish_timeout(1, limit));
    assert!(poll_once(publish.as_mut()).is_pending());
    broker.advance(Timestamp::from_micros(1) + limit);
    let Poll::Ready(Err(PublishError::TimedOut(refused))) = poll_once(publish) else {
        panic!("the time is over")
    };
    assert_eq!(refused.by(), [inbox.id()]);
    assert_eq!(refused.into_payload().unwrap(), 1);
    assert_eq!(inbox.stats().waiting, 0);
}

#[test]
fn a_long_wait_without_a_cycle_is_just_somebody_slow() {
    let broker = Broker::without_host(BrokerConfig::default());
    broker.advance(Timestamp::from_micros(1));
    let inbox: Inbox<Envelope<u32>> = broker.subscribe("a", one_place()).unwrap();
    let topic = broker.topic::<u32>("a").unwrap();
    ready(topic.publish(0)).unwrap();
    let mut publish = pin!(topic.publish(1));
    assert!(poll_once(publish.as_mut()).is_pending());
    assert_eq!(broker.long_waits(), []);
    broker.advance(Timestamp::from_micros(1) + BrokerConfig::default().wait_report_after);
    let waits = broker.long_waits();
    assert_eq!(
        (waits[0].held_up, &*waits[0].waits_for, waits[0].cycle.len()),
        (None, &[inbox.id()][..], 0)
    );
    assert_eq!(inbox.take().count(), 1);
    assert!(poll_once(publish).is_ready());
    assert_eq!(broker.long_waits(), []);
}

/// Two services, each publishing to the other's full inbox two envelopes for each it handles: the
/// classic way to hang a pipeline of bounded queues.
#[test]
fn a_cycle_of_waits_is_reported_with_its_members() {
    let host = TestHost::new();
    let broker = Broker::new(BrokerConfig::default(), Arc::clone(&host) as Arc<dyn Host>);
    let reports: Arc<Mutex<Vec<LongWait>>> = Arc::default();
    let log = Arc::clone(&reports);
    broker.monitor(move |event| {
        if let BrokerEvent::LongWait(wait) = event {
            log.lock().unwrap().push(wait.clone());
        }
    });
    let (ping, pong) = (
        broker.topic::<u32>("ping").unwrap(),
        broker.topic::<u32>("pong").unwrap(),
    );
    let mut services = Vec::new();
    let mut ids = Vec::new();
    for (filter, next) in [("ping", pong.clone()), ("pong", ping.clone())] {
        let inbox: Inbox<Envelope<u32>> = broker.subscribe(filter, one_place()).unwrap();
        ids.push(inbox.id());
        services.push(
            inbox
                .serve(ServiceConfig::default(), move |envelope| {
                    let next = next.clone();
                    async move {
                        for _ in 0..2 {
                            next.publish(*envelope.payload())
                                .await
                                .map_err(|error| error.to_string())?;
                        }
                        Ok::<_, String>(())
                    }
                })
                .unwrap(),
        );
    }
    ready(ping.publish(1)).unwrap();
    host.settle();
    assert_eq!(broker.topology().waiting, 2, "both handlers wait for each other");
    host.advance(BrokerConfig::default().wait_report_after * 2);
    let reports = reports.lock().unwrap();
    assert_eq!(reports.len(), 2, "each wait is reported once");
    for report in &*reports {
        let mut cycle = report.cycle.clone();
        cycle.sort_unstable();
        assert_eq!(cycle, ids);
    }
}

fn hosted() -> (Arc<TestHost>, Broker, Arc<Mutex<Vec<LongWait>>>) {
    let host = TestHost::new();
    let broker = Broker::new(BrokerConfig::default(), Arc::clone(&host) as Arc<dyn Host>);
    let reports: Arc<Mutex<Vec<LongWait>>> = Arc::default();
    let log = Arc::clone(&reports);
    broker.monitor(move |event| {
        if let BrokerEvent::LongWait(wait) = event {
            log.lock().unwrap().push(wait.clone());
        }
    });
    (host, broker, reports)
}

/// A task that is started by a publish takes the consumer's place as the next to run. So a publisher starts
/// the clock when it is made, and what watches the waits is left to the clock.
#[test]
fn neither_the_first_publish_nor_a_short_wait_starts_a_task() {
    let (host, broker, reports) = hosted();
    let inbox: Inbox<Envelope<u32>> = broker.subscribe("a", one_place()).unwrap();
    let mut publisher = broker.topic::<u32>("a").unwrap().publisher();
    assert_eq!(host.started(), ["broker clock"]);
    host.settle();
    ready(publisher.publish(0)).unwrap();
    let mut publish = pin!(publisher.publish(1));
    assert!(poll_once(publish.as_mut()).is_pending());
    assert_eq!(inbox.take().count(), 1);
    assert!(poll_once(publish).is_ready());
    host.advance(BrokerConfig::default().wait_report_after * 2);
    assert_eq!(host.started(), Vec::<&str>::new());
    assert_eq!(*reports.lock().unwrap(), []);
}

#[test]
fn a_wait_is_watched_whether_or_not_the_clock_ticks_when_it_begins() {
    for pause in [Duration::ZERO, Duration::from_secs(1)] {
        let (host, broker, reports) = hosted();
        let inbox: Inbox<Envelope<u32>> = broker.subscribe("a", one_place()).unwrap();
        let mut publisher = broker.topic::<u32>("a").unwrap().publisher();
        ready(publisher.publish(0)).unwrap();
        let mut publish = pin!(publisher.publish(1));
        // A second after the last envelope was made the clock has stopped.
        host.advance(pause);
        assert!(poll_once(publish.as_mut()).is_pending());
        host.advance(BrokerConfig::default().wait_report_after * 2);
        let reports = reports.lock().unwrap();
        assert_eq!(reports.len(), 1, "after a pause of {pause:?}");
        assert_eq!(reports[0].waits_for, [inbox.id()]);
    }
}

#[test]
fn the_clock_starts_with_the_first_publisher_and_anew_with_the_first_envelope_after_a_pause() {
    let nothing = Vec::<&str>::new();
    let (host, broker, _) = hosted();
    let topic = broker.topic::<u32>("a").unwrap();
    assert_eq!(host.started(), nothing);
    let mut publisher = topic.publisher();
    assert_eq!(host.started(), ["broker clock"]);
    ready(publisher.publish(0)).unwrap();
    for pause in [15, 15] {
        host.advance(Duration::from_millis(pause));
        ready(publisher.publish(1)).unwrap();
        assert_eq!(host.started(), nothing, "it still ticks");
    }
    host.advance(Duration::from_secs(1));
    assert_eq!(host.started(), nothing);
    ready(publisher.publish(2)).unwrap();
    assert_eq!(host.started(), ["broker clock"]);
    host.advance(Duration::from_secs(1));
    ready(topic.publish(3)).unwrap();
    assert_eq!(host.started(), ["broker clock"], "without a publisher too");
}

/// Its publisher is told that it reached nobody, and so are listeners of dead letters.
#[test]
fn a_publish_whose_inbox_is_closed_while_it_waits_is_given_up() {
    let broker = Broker::without_host(BrokerConfig::default());
    let letters = broker
        .subscribe::<DeadLetter>(DEAD_LETTERS, SubscriptionConfig::default())
        .unwrap();
    let inbox: Inbox<Envelope<u32>> = broker.subscribe("a", one_place()).unwrap();
    let topic = broker.topic::<u32>("a").unwrap();
    ready(topic.publish(0)).unwrap();
    let mut publish = pin!(topic.publish(1));
    assert!(poll_once(publish.as_mut()).is_pending());
    inbox.close();
    let Poll::Ready(Ok(published)) = poll_once(publish) else {
        panic!("nobody is waited for any more")
    };
    assert_eq!(published.delivered, 0);
    assert_eq!(broker.given_up(Undeliverable::Unrouted), 1);
    let letters: Vec<_> = letters.take().collect();
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].payload().envelope.id(), published.id);
}

#[test]
fn an_envelope_that_one_of_two_inboxes_has_is_not_given_up_when_the_other_closes() {
    let broker = Broker::without_host(BrokerConfig::default());
    let full: Inbox<Envelope<u32>> = broker.subscribe("a", one_place()).unwrap();
    let topic = broker.topic::<u32>("a").unwrap();
    ready(topic.publish(0)).unwrap();
    let _roomy: Inbox<Envelope<u32>> = broker.subscribe("a", SubscriptionConfig::default()).unwrap();
    let mut publish = pin!(topic.publish(1));
    assert!(poll_once(publish.as_mut()).is_pending());
    full.close();
    assert!(matches!(poll_once(publish), Poll::Ready(Ok(published)) if published.delivered == 1));
    assert_eq!(broker.given_up(Undeliverable::Unrouted), 0);
}

#[test]
fn of_a_batch_is_given_up_what_no_inbox_has_and_once() {
    for roomy in [0, 1] {
        let broker = Broker::without_host(BrokerConfig::default());
        let full = [(); 2].map(|()| -> Inbox<Envelope<u32>> { broker.subscribe("a", one_place()).unwrap() });
        let others: Vec<Inbox<Envelope<u32>>> = (0..roomy)
            .map(|_| broker.subscribe("a", SubscriptionConfig::default()).unwrap())
            .collect();
        let mut publisher = broker.topic::<u32>("a").unwrap().publisher();
        let mut publish = pin!(publisher.publish_batch(vec![0, 1, 2]));
        assert!(poll_once(publish.as_mut()).is_pending());
        for inbox in &full {
            inbox.close();
        }
        let Poll::Ready(Ok(delivered)) = poll_once(publish) else {
            panic!("nobody is waited for any more")
        };
        assert_eq!(delivered, 2 + 3 * roomy);
        assert_eq!(others.iter().map(Inbox::len).sum::<usize>(), 3 * roomy);
        let lost = if roomy == 0 { 2 } else { 0 };
        assert_eq!(
            broker.given_up(Undeliverable::Unrouted),
            lost,
            "{roomy} with room"
        );
    }
}
