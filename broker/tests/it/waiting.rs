//! Publishers that wait: time limits, cycles.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use millrun_broker::mailbox::MailboxConfig;
use millrun_broker::{
    Broker, BrokerConfig, BrokerEvent, Envelope, Inbox, LongWait, PublishError, ServiceConfig,
    SubscriptionConfig,
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
