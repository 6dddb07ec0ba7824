//! What a tap is told, and what else makes flows visible.

use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millrun_broker::mailbox::MailboxConfig;
use millrun_broker::{
    AlreadyTapped, Broker, BrokerConfig, BrokerEvent, Envelope, FlowEvent, Inbox, Overflow, ServiceConfig,
    SubscriptionConfig, Tap,
};
use millrun_core::Host;

use crate::host::{TestHost, poll_once, ready};

/// Writes down each step as `step payload subscription`.
#[derive(Default)]
struct Log(Mutex<Vec<String>>);

impl Tap for Log {
    fn on_flow(&self, event: &FlowEvent<'_>) {
        let payload = |envelope: &dyn millrun_broker::AnyEnvelope| {
            let number = envelope.any_payload().downcast_ref::<u32>();
            number.map_or_else(|| "?".to_owned(), u32::to_string)
        };
        let line = match event {
            FlowEvent::Subscribed(probe) => format!("subscribed {} {}", probe.filter(), probe.id()),
            FlowEvent::Delivered { envelope, to } => format!("delivered {} {to}", payload(*envelope)),
            FlowEvent::Waits { envelope, at } => format!("waits {} {at}", payload(*envelope)),
            FlowEvent::WaitOver { .. } => "wait over".to_owned(),
            FlowEvent::Refused { envelope, by } => format!("refused {} {by}", payload(*envelope)),
            FlowEvent::Begun { envelope, by } => format!("begun {} {by}", payload(*envelope)),
            FlowEvent::Failed { attempt, cause, .. } => format!("failed {attempt} {cause}"),
            FlowEvent::Handled { envelope, by } => format!("handled {} {by}", payload(*envelope)),
            FlowEvent::PutBack { envelope, by } => format!("put back {} {by}", payload(*envelope)),
            FlowEvent::Ended { by, .. } => format!("ended {by}"),
            FlowEvent::GivenUp {
                envelope,
                reason,
                subscription,
            } => format!("given up {} {reason:?} {subscription:?}", payload(*envelope)),
            FlowEvent::Emptied(id) => format!("emptied {id}"),
            other => panic!("an unknown step: {}", std::mem::size_of_val(other)),
        };
        self.0.lock().unwrap().push(line);
    }
}

impl Log {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

fn one_place(overflow: Overflow) -> SubscriptionConfig {
    SubscriptionConfig {
        inbox: MailboxConfig {
            capacity: 1,
            ..MailboxConfig::default()
        },
        overflow,
        ..SubscriptionConfig::default()
    }
}

#[test]
fn a_tap_is_told_of_deliveries_waits_refusals_and_drops() {
    let broker = Broker::without_host(BrokerConfig::default());
    let topic = broker.topic::<u32>("a").unwrap();
    // One is there before the tap, the others come after it.
    let blocking: Inbox<Envelope<u32>> = broker.subscribe("a", one_place(Overflow::Block)).unwrap();
    let log = Arc::new(Log::default());
    broker.tap(Arc::clone(&log) as Arc<dyn Tap>).unwrap();
    assert_eq!(broker.tap(Arc::new(Log::default())), Err(AlreadyTapped));
    let any = broker
        .subscribe_any("a", one_place(Overflow::DropOldest))
        .unwrap();
    assert_eq!(
        log.take(),
        ["subscribed a subscription-1", "subscribed a subscription-2"]
    );

    ready(topic.publish(1)).unwrap();
    assert_eq!(
        log.take(),
        ["delivered 1 subscription-1", "delivered 1 subscription-2"]
    );

    let mut second = Box::pin(topic.publish(2));
    assert!(poll_once(second.as_mut()).is_pending());
    assert_eq!(
        log.take(),
        [
            "waits 2 subscription-1",
            "delivered 2 subscription-2",
            "given up 1 DroppedOldest Some(SubscriptionId(2))",
        ]
    );
    assert_eq!(broker.waiting(), 1);
    assert_eq!(blocking.take().count(), 1);
    assert!(poll_once(second.as_mut()).is_ready());
    drop(second);
    assert_eq!(
        log.take(),
        [
            "emptied subscription-1",
            "delivered 2 subscription-1",
            "wait over"
        ]
    );
    drop(any);
    log.take();

    topic.try_publish(3).unwrap_err();
    assert_eq!(log.take(), ["refused 3 subscription-1"]);
    drop(blocking);
    ready(topic.publish(4)).unwrap();
    assert_eq!(
        log.take(),
        [
            "given up 2 Discarded Some(SubscriptionId(1))",
            "given up 4 Unrouted None"
        ]
    );
}

#[test]
fn a_tap_is_told_of_batches_as_of_single_envelopes() {
    let broker = Broker::without_host(BrokerConfig::default());
    let log = Arc::new(Log::default());
    broker.tap(Arc::clone(&log) as Arc<dyn Tap>).unwrap();
    let inbox: Inbox<Envelope<u32>> = broker.subscribe("a", one_place(Overflow::Block)).unwrap();
    log.take();
    let mut publisher = broker.topic::<u32>("a").unwrap().publisher();
    let mut batch = Box::pin(publisher.publish_batch(vec![1, 2]));
    assert!(poll_once(batch.as_mut()).is_pending());
    assert_eq!(inbox.take().count(), 1);
    assert!(poll_once(batch.as_mut()).is_ready());
    assert_eq!(
        log.take(),
        [
            "delivered 1 subscription-1",
            "waits 2 subscription-1",
            "emptied subscription-1",
            "delivered 2 subscription-1",
            "wait over",
        ]
    );
}

#[test]
fn a_tap_is_told_of_each_attempt_and_when_it_is_over() {
    let host = TestHost::new();
    let broker = Broker::new(BrokerConfig::default(), Arc::clone(&host) as Arc<dyn Host>);
    let log = Arc::new(Log::default());
    broker.tap(Arc::clone(&log) as Arc<dyn Tap>).unwrap();
    let inbox: Inbox<Envelope<u32>> = broker.subscribe("a", SubscriptionConfig::default()).unwrap();
    let _service = inbox
        .serve(ServiceConfig::default(), |envelope| {
            let odd = envelope.payload() % 2 == 1;
            async move { if odd { Err("odd") } else { Ok(()) } }
        })
        .unwrap();
    host.settle();
    let topic = broker.topic::<u32>("a").unwrap();
    ready(topic.publish(1)).unwrap();
    ready(topic.publish(2)).unwrap();
    log.take();
    host.settle();
    host.advance(Duration::from_secs(1));
    assert_eq!(
        log.take(),
        [
            "begun 1 subscription-1",
            "failed 1 odd",
            "failed 2 odd",
            "failed 3 odd",
            "given up 1 Failed Some(SubscriptionId(1))",
            "ended subscription-1",
            "begun 2 subscription-1",
            "handled 2 subscription-1",
            "ended subscription-1",
            "emptied subscription-1",
        ]
    );
}

#[test]
fn a_service_that_is_cut_off_ends_what_it_has_begun() {
    let host = TestHost::new();
    let broker = Broker::new(BrokerConfig::default(), Arc::clone(&host) as Arc<dyn Host>);
    let log = Arc::new(Log::default());
    broker.tap(Arc::clone(&log) as Arc<dyn Tap>).unwrap();
    let inbox: Inbox<Envelope<u32>> = broker.subscribe("a", SubscriptionConfig::default()).unwrap();
    let service = inbox
        .serve(ServiceConfig::default(), |_| pending::<Result<(), String>>())
        .unwrap();
    ready(broker.topic::<u32>("a").unwrap().publish(1)).unwrap();
    host.settle();
    log.take();
    drop(service);
    let steps = log.take();
    assert_eq!(
        steps,
        [
            "emptied subscription-1",
            "put back 1 subscription-1",
            "ended subscription-1"
        ]
    );
    assert_eq!(inbox.stats().queued, 1);
}

/// As the handlers of a service, but by hand: a cycle of two receivers that wait for each other.
#[test]
fn a_receiver_that_says_what_it_handles_has_causes_and_cycles_attributed() {
    let broker = Broker::without_host(BrokerConfig::default());
    broker.advance(millrun_core::Timestamp::from_micros(1));
    let config = || one_place(Overflow::Block);
    let (ping, pong) = (
        broker.topic::<u32>("ping").unwrap(),
        broker.topic::<u32>("pong").unwrap(),
    );
    let mut pings = broker.subscribe::<u32>("ping", config()).unwrap().into_receiver();
    let mut pongs = broker.subscribe::<u32>("pong", config()).unwrap().into_receiver();
    ready(ping.publish(1)).unwrap();
    ready(pong.publish(1)).unwrap();
    let (first_ping, first_pong) = (ready(pings.recv()).unwrap(), ready(pongs.recv()).unwrap());

    let answering = pings.inbox().handling(&first_ping);
    let answer = ready(answering.run(|| pong.publish(2))).unwrap();
    ready(ping.publish(2)).unwrap();
    // Both inboxes are full now, and each consumer publishes to the other once more.
    let mut to_pong = Box::pin(pings.inbox().handling(&first_ping).run(|| pong.publish(3)));
    let mut to_ping = Box::pin(pongs.inbox().handling(&first_pong).run(|| ping.publish(3)));
    assert!(poll_once(to_pong.as_mut()).is_pending());
    assert!(poll_once(to_ping.as_mut()).is_pending());
    broker.advance(millrun_core::Timestamp::from_micros(1) + BrokerConfig::default().wait_report_after);
    let waits = broker.long_waits();
    assert_eq!(waits.len(), 2);
    for wait in &waits {
        let mut cycle = wait.cycle.clone();
        cycle.sort_unstable();
        assert_eq!(cycle, [pings.inbox().id(), pongs.inbox().id()]);
    }
    drop((to_pong, to_ping));
    let answered = ready(pongs.recv()).unwrap();
    assert_eq!(
        (answered.id(), answered.causation(), answered.correlation()),
        (answer.id, Some(first_ping.id()), first_ping.id())
    );
}

#[test]
fn a_typed_filter_tells_of_topics_that_carry_something_else() {
    let broker = Broker::without_host(BrokerConfig::default());
    let told = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&told);
    broker.monitor(move |event| {
        if let BrokerEvent::PassedOver { topic, payload, .. } = event {
            log.lock().unwrap().push((topic.to_string(), *payload));
        }
    });
    let _first = broker.topic::<String>("a.first").unwrap();
    let inbox: Inbox<Envelope<u32>> = broker.subscribe("a.*", SubscriptionConfig::default()).unwrap();
    let _second = broker.topic::<u64>("a.second").unwrap();
    let _same = broker.topic::<u32>("a.same").unwrap();
    assert_eq!(
        *told.lock().unwrap(),
        [
            ("a.first".to_owned(), std::any::type_name::<String>()),
            ("a.second".to_owned(), "u64")
        ]
    );
    assert_eq!(inbox.subscription_stats().topics_passed_over, 2);
}
