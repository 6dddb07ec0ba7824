//! When a broker is settled, and when it is not: in a simulated world and on tokio.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use millrun::host::{HostConfig, TokioHost};
use millrun_broker::{
    Broker, BrokerConfig, Envelope, FailurePolicy, Inbox, Service, ServiceConfig, SubscriptionConfig,
};
use millrun_testkit::{FlowRecorder, SimConfig, SimHost, SimStop};
use tokio::task::JoinSet;

const STAGES: usize = 4;

/// Each stage publishes to the next; its handler fails now and then, and its workers overlap.
fn pipeline(broker: &Broker, done: &Arc<AtomicUsize>) -> Vec<Service<Envelope<u32>>> {
    let stage = |stage: usize| {
        let inbox: Inbox<Envelope<u32>> = broker
            .subscribe(&format!("stage.{stage}"), SubscriptionConfig::default())
            .unwrap();
        let next = broker.topic::<u32>(&format!("stage.{}", stage + 1)).unwrap();
        let (done, tries) = (Arc::clone(done), AtomicUsize::new(0));
        let config = ServiceConfig {
            workers: 1 + stage,
            failure: FailurePolicy {
                // As often as it takes: on several threads the failures may all fall on one.
                attempts_max: u32::MAX,
                pause_first: Duration::from_micros(100),
                pause_max: Duration::from_micros(100),
                ..FailurePolicy::default()
            },
        };
        inbox
            .serve(config, move |envelope| {
                let fails = tries.fetch_add(1, Ordering::Relaxed) % 5 == 4;
                let (next, done) = (next.clone(), Arc::clone(&done));
                async move {
                    if fails {
                        return Err("try again".to_owned());
                    }
                    if stage + 1 == STAGES {
                        done.fetch_add(1, Ordering::SeqCst);
                        return Ok(());
                    }
                    let published = next.publish(*envelope.payload()).await;
                    published.map(drop).map_err(|error| error.to_string())
                }
            })
            .unwrap()
    };
    (0..STAGES).map(stage).collect()
}

#[test]
fn nothing_moves_after_a_world_has_settled() {
    for seed in 0..40 {
        let world = SimHost::new(SimConfig::seeded(seed));
        let broker = Broker::new(BrokerConfig::default(), world.host());
        let flows = FlowRecorder::attach(&broker).unwrap();
        let done = Arc::new(AtomicUsize::new(0));
        let _services = pipeline(&broker, &done);
        let topic = broker.topic::<u32>("stage.0").unwrap();
        for round in 1..4 {
            for number in 0..10 {
                world.block_on(topic.publish(number)).unwrap().unwrap();
            }
            flows.settle_in(&world).unwrap();
            assert_eq!(done.load(Ordering::SeqCst), 10 * round, "seed {seed}");
            let known = flows.to_string();
            assert_eq!(world.run_until_idle(), SimStop::Idle);
            assert_eq!(flows.to_string(), known, "seed {seed}");
        }
    }
}

#[test]
fn a_world_that_cannot_settle_says_what_is_left() {
    let world = SimHost::new(SimConfig::seeded(1));
    let broker = Broker::new(BrokerConfig::default(), world.host());
    let flows = FlowRecorder::attach(&broker).unwrap();
    let named = |name: &str| SubscriptionConfig {
        name: name.to_owned(),
        ..SubscriptionConfig::default()
    };
    let forgotten: Inbox<Envelope<u32>> = broker.subscribe("a", named("forgotten")).unwrap();
    let stuck: Inbox<Envelope<u32>> = broker.subscribe("a", named("stuck")).unwrap();
    let _service = stuck
        .serve(ServiceConfig::default(), |_| {
            std::future::pending::<Result<(), String>>()
        })
        .unwrap();
    let topic = broker.topic::<u32>("a").unwrap();
    let id = world.block_on(topic.publish(1)).unwrap().unwrap().id;
    let unsettled = flows.settle_in(&world).unwrap_err();
    assert_eq!(
        unsettled.to_string(),
        format!(
            "the broker is not settled:\n  \
             \"forgotten\" (subscription-1, a): 1 queued, none taken so far\n  \
             \"stuck\" (subscription-2, a): its consumer has not come back since it took the last\n  \
             \"stuck\" (subscription-2, a): {id} is being handled\n\
             an inbox that nobody but the test reads is left out with `set_aside`"
        )
    );
    flows.set_aside(stuck.id());
    flows.set_aside(forgotten.id());
    flows.settle_in(&world).unwrap();
}

#[test]
fn a_publish_that_waits_for_room_is_not_settled() {
    let world = SimHost::new(SimConfig::seeded(1));
    let broker = Broker::new(BrokerConfig::default(), world.host());
    let flows = FlowRecorder::attach(&broker).unwrap();
    let inbox: Inbox<Envelope<u32>> = broker.subscribe("a", SubscriptionConfig::default()).unwrap();
    flows.set_aside(inbox.id());
    let topic = broker.topic::<u32>("a").unwrap();
    let publisher = world.host().spawn(
        "publisher",
        Box::pin(async move {
            for number in 0..300 {
                drop(topic.publish(number).await);
            }
        }),
    );
    assert_eq!(world.run_ready(), SimStop::Idle);
    let unsettled = flows.unsettled().unwrap();
    assert_eq!(unsettled.reasons, ["publishes that wait for room: 1"]);
    publisher.abort();
    flows.settle_in(&world).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_moves_after_services_on_several_threads_have_settled() {
    let host = TokioHost::spawn(HostConfig::default()).await.unwrap();
    let broker = Broker::new(BrokerConfig::default(), host.host());
    let flows = FlowRecorder::attach(&broker).unwrap();
    let done = Arc::new(AtomicUsize::new(0));
    let services = pipeline(&broker, &done);
    let mut publisher = broker.topic::<u32>("stage.0").unwrap().publisher();
    for round in 1..30 {
        for number in 0..20 {
            publisher.publish(number).await.unwrap();
        }
        flows.settle().await;
        assert_eq!(done.load(Ordering::SeqCst), 20 * round);
        flows.assert_published("stage.0", 20 * round);
        flows.assert_published("stage.3", 20 * round);
    }
    drop((services, publisher));
    drop(host);
}

/// Receivers tell nobody that they are done with an envelope: they come back for the next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receivers_on_several_threads_settle_when_they_have_come_back() {
    let broker = Broker::without_host(BrokerConfig::default());
    let flows = FlowRecorder::attach(&broker).unwrap();
    let done = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for stage in 0..STAGES {
        let mut receiver = broker
            .subscribe::<u32>(&format!("stage.{stage}"), SubscriptionConfig::default())
            .unwrap()
            .into_receiver();
        let next = broker.topic::<u32>(&format!("stage.{}", stage + 1)).unwrap();
        let done = Arc::clone(&done);
        tasks.spawn(async move {
            while let Some(envelope) = receiver.recv().await {
                tokio::task::yield_now().await;
                if stage + 1 == STAGES {
                    done.fetch_add(1, Ordering::SeqCst);
                } else {
                    next.publish(*envelope.payload()).await.unwrap();
                }
            }
        });
    }
    let topic = broker.topic::<u32>("stage.0").unwrap();
    for round in 1..200 {
        topic.publish(7).await.unwrap();
        topic.publish(8).await.unwrap();
        flows.settle().await;
        assert_eq!(done.load(Ordering::SeqCst), 2 * round);
    }
    tasks.shutdown().await;
}

#[tokio::test]
async fn work_in_a_task_of_its_own_is_waited_for_if_it_says_what_it_handles() {
    let broker = Broker::without_host(BrokerConfig::default());
    let flows = FlowRecorder::attach(&broker).unwrap();
    let mut receiver = broker
        .subscribe::<u32>("a", SubscriptionConfig::default())
        .unwrap()
        .into_receiver();
    let done = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&done);
    let consumer = tokio::spawn(async move {
        while let Some(envelope) = receiver.recv().await {
            let handling = receiver.inbox().handling(&envelope);
            let count = Arc::clone(&count);
            let work = async move || {
                tokio::task::yield_now().await;
                tokio::task::yield_now().await;
                count.fetch_add(1, Ordering::SeqCst);
            };
            drop(tokio::spawn(handling.run(work)));
        }
    });
    let topic = broker.topic::<u32>("a").unwrap();
    for round in 1..20 {
        topic.publish(1).await.unwrap();
        flows.settle().await;
        assert_eq!(done.load(Ordering::SeqCst), round);
    }
    consumer.abort();
}

#[tokio::test]
async fn a_limit_ends_the_wait_with_what_is_left() {
    let broker = Broker::without_host(BrokerConfig::default());
    let flows = FlowRecorder::attach(&broker).unwrap();
    flows.settle_unless(ready(())).await.unwrap();
    let inbox: Inbox<Envelope<u32>> = broker.subscribe("a", SubscriptionConfig::default()).unwrap();
    broker.topic::<u32>("a").unwrap().publish(1).await.unwrap();
    let unsettled = flows.settle_unless(ready(())).await.unwrap_err();
    assert_eq!(
        unsettled.reasons,
        ["\"a\" (subscription-1): 1 queued, none taken so far"]
    );
    assert_eq!(inbox.take().count(), 1);
    flows.settle().await;
}
