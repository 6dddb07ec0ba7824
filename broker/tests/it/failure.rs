//! Handlers that fail, panic, are cut off.

use std::future::pending;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millrun_broker::{
    Broker, BrokerConfig, BrokerEvent, Envelope, FailurePolicy, Headers, Inbox, LastResort, ServeError,
    ServiceConfig, ServiceEnd, SubscriptionConfig, Undeliverable,
};
use millrun_core::Host;

use crate::host::{TestHost, ready};

struct Setup {
    host: Arc<TestHost>,
    broker: Broker,
    inbox: Inbox<Envelope<u32>>,
}

fn setup() -> Setup {
    let host = TestHost::new();
    let broker = Broker::new(BrokerConfig::default(), Arc::clone(&host) as Arc<dyn Host>);
    let inbox = broker.subscribe("jobs", SubscriptionConfig::default()).unwrap();
    Setup { host, broker, inbox }
}

impl Setup {
    fn publish(&self, numbers: std::ops::Range<u32>) {
        let mut publisher = self.broker.topic::<u32>("jobs").unwrap().publisher();
        for number in numbers {
            ready(publisher.publish(number)).unwrap();
        }
    }
}

type Seen = Arc<Mutex<Vec<u32>>>;

fn note(seen: &Seen, envelope: &Envelope<u32>) -> u32 {
    seen.lock().unwrap().push(*envelope.payload());
    *envelope.payload()
}

const STOP: ServiceConfig = ServiceConfig {
    workers: 1,
    failure: FailurePolicy {
        attempts_max: 1,
        pause_first: Duration::ZERO,
        pause_max: Duration::ZERO,
        then: LastResort::Stop,
    },
};

#[test]
fn a_service_handles_what_is_there_and_what_comes() {
    let setup = setup();
    let seen = Seen::default();
    setup.publish(0..2);
    let handled = Arc::clone(&seen);
    let service = setup.inbox.serve(ServiceConfig::default(), move |envelope| {
        note(&handled, &envelope);
        async { Ok::<_, String>(()) }
    });
    let service = service.unwrap();
    setup.host.settle();
    setup.publish(2..4);
    setup.host.settle();
    assert_eq!(*seen.lock().unwrap(), [0, 1, 2, 3]);
    assert_eq!(setup.inbox.subscription_stats().handled, 4);
    setup.inbox.close();
    setup.host.settle();
    assert_eq!(ready(service.ended()), ServiceEnd::Finished);
}

#[test]
fn a_failing_handler_is_tried_again_and_then_the_envelope_is_given_up() {
    let setup = setup();
    let events = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&events);
    setup.broker.monitor(move |event| {
        if let BrokerEvent::HandlerFailed { attempt, cause, .. } = event {
            log.lock().unwrap().push((*attempt, cause.clone()));
        }
    });
    setup.publish(0..2);
    let seen = Seen::default();
    let handled = Arc::clone(&seen);
    let _service = setup
        .inbox
        .serve(ServiceConfig::default(), move |envelope| {
            let number = note(&handled, &envelope);
            async move {
                assert!(number != 0, "no zeros");
                Ok::<_, String>(())
            }
        })
        .unwrap();
    setup.host.settle();
    assert_eq!(
        *seen.lock().unwrap(),
        [0],
        "the second attempt waits for its pause"
    );
    setup.host.advance(Duration::from_secs(1));
    assert_eq!(*seen.lock().unwrap(), [0, 0, 0, 1]);
    assert_eq!(setup.broker.given_up(Undeliverable::Failed), 1);
    let failed = setup.inbox.subscription_stats();
    assert_eq!((failed.failed, failed.handled), (1, 1));
    let expected: Vec<_> = (1..=3)
        .map(|attempt| (attempt, "panicked: no zeros".to_owned()))
        .collect();
    assert_eq!(*events.lock().unwrap(), expected);
}

/// What a handler panics with may panic itself when it is dropped. It took the service's task with it.
#[test]
fn a_panic_that_panics_when_it_is_dropped_is_a_failure_like_others() {
    struct Grenade;
    impl Drop for Grenade {
        fn drop(&mut self) {
            panic!("dropped");
        }
    }
    let setup = setup();
    setup.publish(0..3);
    let seen = Seen::default();
    let handled = Arc::clone(&seen);
    let _service = setup.inbox.serve(ServiceConfig::default(), move |envelope| {
        let number = note(&handled, &envelope);
        async move {
            if number == 1 {
                std::panic::panic_any(Grenade);
            }
            Ok::<_, String>(())
        }
    });
    setup.host.settle();
    setup.host.advance(Duration::from_secs(1));
    assert_eq!(*seen.lock().unwrap(), [0, 1, 1, 1, 2]);
    let counted = setup.inbox.subscription_stats();
    assert_eq!((counted.failed, counted.handled), (1, 2));
}

#[test]
fn a_service_that_fails_upward_leaves_everything_to_its_successor() {
    let setup = setup();
    setup.publish(0..4);
    let service = setup
        .inbox
        .serve(STOP, |envelope| {
            let number = *envelope.payload();
            async move { if number == 2 { Err("no twos") } else { Ok(()) } }
        })
        .unwrap();
    setup.host.settle();
    let end = ready(service.ended());
    assert!(
        matches!(&end, ServiceEnd::Failed { cause, .. } if cause == "no twos"),
        "{end:?}"
    );
    let left: Vec<u32> = setup.inbox.take().map(|envelope| *envelope.payload()).collect();
    assert_eq!(left, [2, 3]);
}

#[test]
fn a_service_that_is_cut_off_loses_nothing() {
    let setup = setup();
    setup.publish(0..4);
    let service = setup.inbox.serve(ServiceConfig::default(), |envelope| {
        let number = *envelope.payload();
        async move {
            if number == 1 {
                pending::<()>().await;
            }
            Ok::<_, String>(())
        }
    });
    let service = service.unwrap();
    setup.host.settle();
    drop(service);
    let seen = Seen::default();
    let handled = Arc::clone(&seen);
    let _successor = setup
        .inbox
        .serve(ServiceConfig::default(), move |envelope| {
            note(&handled, &envelope);
            async { Ok::<_, String>(()) }
        })
        .unwrap();
    setup.host.settle();
    assert_eq!(*seen.lock().unwrap(), [1, 2, 3]);
    let stats = setup.inbox.stats();
    assert_eq!((stats.pushed, stats.taken, stats.queued), (4, 4, 0));
}

#[test]
fn several_workers_begin_in_order_and_run_at_the_same_time() {
    let setup = setup();
    setup.publish(0..6);
    let at_work = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&at_work);
    let config = ServiceConfig {
        workers: 3,
        ..ServiceConfig::default()
    };
    let _service = setup.inbox.serve(config, move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        pending::<Result<(), String>>()
    });
    setup.host.settle();
    assert_eq!(at_work.load(Ordering::SeqCst), 3);
}

#[test]
fn what_a_handler_publishes_names_its_cause() {
    let setup = setup();
    let results: Inbox<Envelope<u32>> = setup
        .broker
        .subscribe("results", SubscriptionConfig::default())
        .unwrap();
    let topic = setup.broker.topic::<u32>("results").unwrap();
    let _service = setup
        .inbox
        .serve(ServiceConfig::default(), move |envelope| {
            let topic = topic.clone();
            async move {
                topic
                    .publish(*envelope.payload() + 1)
                    .await
                    .map_err(|error| error.to_string())?;
                Ok::<_, String>(())
            }
        })
        .unwrap();
    let published = ready(setup.broker.topic::<u32>("jobs").unwrap().publish(1)).unwrap();
    setup.host.settle();
    let result = results.take().next().unwrap();
    assert_eq!(result.causation(), Some(published.id));
    assert_eq!(result.correlation(), published.id);
}

#[test]
fn what_has_expired_is_not_handed_out() {
    let setup = setup();
    let topic = setup.broker.topic::<u32>("jobs").unwrap();
    let expires = setup.host.now() + Duration::from_millis(5);
    ready(topic.publish_with(Headers::new().expires(expires), 1)).unwrap();
    ready(topic.publish(2)).unwrap();
    setup.host.advance(Duration::from_millis(5));
    let mut receiver = setup.inbox.clone().into_receiver();
    assert_eq!(ready(receiver.recv()).unwrap().payload(), &2);
    assert_eq!(setup.inbox.subscription_stats().expired, 1);
    assert_eq!(setup.broker.given_up(Undeliverable::Expired), 1);
}

#[test]
fn a_service_needs_a_host_and_workers() {
    let broker = Broker::without_host(BrokerConfig::default());
    let inbox = broker
        .subscribe::<u32>("a", SubscriptionConfig::default())
        .unwrap();
    let handler = |_| async { Ok::<_, String>(()) };
    assert_eq!(
        inbox.serve(ServiceConfig::default(), handler).unwrap_err(),
        ServeError::NoHost
    );
    let idle = ServiceConfig {
        workers: 0,
        ..ServiceConfig::default()
    };
    assert_eq!(
        setup().inbox.serve(idle, handler).unwrap_err(),
        ServeError::NoWorkers
    );
}
