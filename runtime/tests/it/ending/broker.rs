//! What the end of a runtime means for its broker, its own or one it was given.

use std::time::Duration;

use millrun::Runtime;
use millrun::broker::{AskError, Broker, BrokerConfig, PublishError, Request, SubscriptionConfig};
use millrun_testkit::{SimConfig, SimHost};
use tokio::runtime::Builder;

use crate::elsewhere::{Executor, HANGS_AFTER, on_thread};

use super::{TOPIC, code};

/// A shutdown left the subscriptions of its own broker open, so that a server whose clients read a topic as a
/// stream of events never closed.
#[tokio::test]
async fn a_shutdown_ends_the_subscriptions_of_the_runtime_s_own_broker() {
    for is_polite in [true, false] {
        let runtime = code(Runtime::volatile()).start().await.unwrap();
        let inbox = runtime
            .broker()
            .subscribe::<u64>(TOPIC.name(), SubscriptionConfig::default());
        let mut events = inbox.unwrap().into_receiver();
        let topic = runtime.broker().topic::<u64>(TOPIC.name()).unwrap();
        topic.publish(1).await.unwrap();
        topic.publish(2).await.unwrap();
        let stream = tokio::spawn(async move {
            let mut seen = Vec::new();
            while let Some(event) = events.recv().await {
                seen.push(*event.payload());
            }
            seen
        });
        if is_polite {
            runtime.shutdown().await.unwrap();
        } else {
            drop(runtime);
        }
        let seen = tokio::time::timeout(HANGS_AFTER, stream).await;
        assert_eq!(seen.expect("the stream ends").unwrap(), [1, 2]);
        assert!(matches!(topic.publish(3).await, Err(PublishError::Closed(_))));
    }
}

/// A broker that was made without a host hung each call with a deadline: nobody told it the time. All our
/// examples made it so, and all our tests with such a broker published and took without a limit.
#[test]
fn a_broker_that_the_runtime_is_given_goes_by_its_time_and_outlives_it() {
    type Question = Request<u64, u64>;
    let world = SimHost::new(SimConfig::seeded(5));
    let limit = Duration::from_secs(3);
    world
        .block_on(async {
            let broker = Broker::without_host(BrokerConfig::default());
            let inbox = broker.subscribe::<Question>("questions", SubscriptionConfig::default());
            let inbox = inbox.unwrap();
            let questions = broker.topic::<Question>("questions").unwrap();
            let early = questions.ask(0, limit);
            let mut early = std::pin::pin!(early);
            assert!(futures_util::poll!(&mut early).is_pending());
            for _ in 0..2 {
                let runtime = code(Runtime::volatile())
                    .host(world.host())
                    .broker(broker.clone());
                let runtime = runtime.start().await.unwrap();
                let began = world.now();
                assert_eq!(questions.ask(1, limit).await, Err(AskError::TimedOut));
                assert!(world.now() >= began + limit);
                runtime.shutdown().await.unwrap();
                assert!(!broker.is_closed(), "it is its owner's");
                assert_eq!(questions.ask(2, limit).await, Err(AskError::TimedOut));
            }
            assert_eq!(early.await, Err(AskError::TimedOut));
            drop(inbox);
        })
        .unwrap();
}

#[test]
fn a_broker_that_the_runtime_is_given_keeps_its_time_when_the_host_goes() {
    for executor in Executor::ALL {
        let broker = Broker::without_host(BrokerConfig::default());
        let inbox = broker
            .subscribe::<Request<u64, u64>>("questions", SubscriptionConfig::default())
            .unwrap();
        let tokio = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let tokio = tokio.unwrap();
        let builder = code(Runtime::volatile()).broker(broker.clone());
        let runtime = tokio.block_on(builder.start()).unwrap();
        let questions = broker.topic::<Request<u64, u64>>("questions").unwrap();
        let ask = |when: &str| {
            let asking = questions.clone();
            on_thread(&format!("{executor:?}, {when}"), move || {
                executor.block_on(asking.ask(1, Duration::from_millis(2)))
            })
        };
        assert_eq!(ask("while the host is there"), Err(AskError::TimedOut));
        drop(tokio);
        assert_eq!(ask("when it is not"), Err(AskError::TimedOut));
        drop(runtime);
        assert_eq!(ask("behind the runtime"), Err(AskError::TimedOut));
        drop(inbox);
    }
}
