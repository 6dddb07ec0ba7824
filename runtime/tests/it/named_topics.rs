//! Publishes to topics whose names are known at run time only.

use millrun::broker::mailbox::MailboxConfig;
use millrun::broker::{Broker, BrokerConfig, SubscriptionConfig};
use millrun::workflow::{PublishOutcome, PublishStepError};
use millrun::{OpenError, Runtime, RuntimeBuilder, Topic, Workflow, WorkflowContext, WorkflowError};

use crate::support::{Store, described};

/// Publishes values to topics of these names, one after the other, and says how that went.
const TELL: Workflow<Vec<(String, String)>, Vec<String>> = Workflow::named("tell");
const OWN: Topic<u64> = Topic::named("users.own.notices");

async fn tell(cx: WorkflowContext, what: Vec<(String, String)>) -> Result<Vec<String>, WorkflowError> {
    let mut told = Vec::new();
    for (topic, value) in what {
        told.push(match cx.publish_to(topic, value).await {
            Ok(PublishOutcome::Taken) => "taken".to_owned(),
            Ok(outcome) => format!("{outcome:?}"),
            Err(error @ (PublishStepError::Refused(_) | PublishStepError::Name { .. })) => error.to_string(),
            Err(error) => return Err(error.into()),
        });
    }
    Ok(told)
}

fn telling(builder: RuntimeBuilder) -> RuntimeBuilder {
    builder.topics::<String>("users.*.notices").register(TELL, tell)
}

fn to(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = pairs
        .iter()
        .map(|(topic, value)| ((*topic).to_owned(), (*value).to_owned()));
    owned.collect()
}

#[tokio::test]
async fn a_workflow_publishes_to_a_topic_for_each_user() {
    // Each turn begins with a replay.
    let builder = telling(Runtime::volatile()).configure(|config| config.hot_len_max = 0);
    let runtime = builder.start().await.unwrap();
    let subscribe = |filter: &str| {
        let inbox = runtime
            .broker()
            .subscribe::<String>(filter, SubscriptionConfig::default());
        inbox.unwrap().into_receiver()
    };
    let (mut seven, mut all) = (subscribe("users.7.notices"), subscribe("users.>"));
    let pairs = to(&[
        ("users.7.notices", "a"),
        ("users.8.notices", "b"),
        ("users.7.notices", "c"),
    ]);
    let run = runtime.start(TELL, "t", pairs).await.unwrap();
    assert_eq!(run.result().await.unwrap(), ["taken"; 3]);
    for value in ["a", "c"] {
        let envelope = seven.recv().await.unwrap();
        assert_eq!(envelope.payload(), value);
        assert_eq!(envelope.run_cause().unwrap().run, run.run_id().unwrap());
    }
    for value in ["a", "b", "c"] {
        assert_eq!(all.recv().await.unwrap().payload(), value);
    }
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn names_that_no_topic_can_have_and_topics_of_another_type_are_refused() {
    let runtime = telling(Runtime::volatile()).topic(OWN).start().await.unwrap();
    let numbers = runtime.broker().topic::<u64>("users.9.notices").unwrap();
    let long = "n".repeat(256);
    let pairs = to(&[
        ("users.9.notices", "text"),
        ("users.own.notices", "text"),
        ("users..notices", "text"),
        ("users.*.notices", "text"),
        ("", "text"),
        (&long, "text"),
        ("users.1.notices", "text"),
    ]);
    let run = runtime.start(TELL, "t", pairs).await.unwrap();
    let told = run.result().await.unwrap();
    for refused in &told[..4] {
        assert!(refused.starts_with("the value was not published: "), "{told:?}");
    }
    assert!(told[0].contains("u64"), "{told:?}");
    assert!(
        told[4].contains("has 0") && told[5].contains("has 256"),
        "{told:?}"
    );
    assert_eq!(told[6], "taken");
    drop(numbers);
    runtime.shutdown().await.unwrap();
    let invalid = Runtime::volatile()
        .topics::<String>("users..notices")
        .start()
        .await
        .unwrap_err();
    assert!(
        matches!(
            invalid,
            OpenError::Topic {
                name: "users..notices",
                ..
            }
        ),
        "{invalid}"
    );
}

#[tokio::test]
async fn what_no_filter_selects_waits_for_a_runtime_that_has_it() {
    let store = Store::new();
    let runtime = telling(store.bare()).start().await.unwrap();
    let run = runtime
        .start(TELL, "t", to(&[("others.7", "late")]))
        .await
        .unwrap();
    described(&run, |run| run.pending.len() == 1).await;
    runtime.shutdown().await.unwrap();
    let broker = Broker::without_host(BrokerConfig::default());
    let inbox = broker.subscribe::<String>("others.7", SubscriptionConfig::default());
    let mut heard = inbox.unwrap().into_receiver();
    let builder = telling(store.bare()).topics::<String>("others.>").broker(broker);
    let runtime = builder.start().await.unwrap();
    assert_eq!(heard.recv().await.unwrap().payload(), "late");
    let run = runtime.attach(TELL, "t").unwrap();
    assert_eq!(run.result().await.unwrap(), ["taken"]);
    runtime.shutdown().await.unwrap();
}

/// One envelope fits.
fn narrow() -> SubscriptionConfig {
    SubscriptionConfig {
        inbox: MailboxConfig {
            capacity: 1,
            ..MailboxConfig::default()
        },
        ..SubscriptionConfig::default()
    }
}

#[tokio::test]
async fn values_wait_for_room_in_their_own_topic_across_restarts_and_in_order() {
    let store = Store::new();
    let broker = Broker::without_host(BrokerConfig::default());
    let full = broker.subscribe::<String>("users.7.notices", narrow()).unwrap();
    let mut other = broker
        .subscribe::<String>("users.8.notices", narrow())
        .unwrap()
        .into_receiver();
    let runtime = telling(store.bare()).broker(broker).start().await.unwrap();
    let mut runs = Vec::new();
    for (id, value) in [("1", "one"), ("2", "two"), ("3", "three")] {
        let run = runtime
            .start(TELL, id, to(&[("users.7.notices", value)]))
            .await
            .unwrap();
        if id == "1" {
            run.result().await.unwrap();
        } else {
            // It is known to wait for room.
            described(&run, |run| run.pending.len() == 1).await;
        }
        runs.push(run);
    }
    // A full topic holds up no other.
    let run = runtime
        .start(TELL, "4", to(&[("users.8.notices", "four")]))
        .await
        .unwrap();
    assert_eq!(run.result().await.unwrap(), ["taken"]);
    assert_eq!(other.recv().await.unwrap().payload(), "four");
    runtime.shutdown().await.unwrap();
    drop((full, runs));

    let broker = Broker::without_host(BrokerConfig::default());
    let inbox = broker.subscribe::<String>("users.7.notices", SubscriptionConfig::default());
    let mut heard = inbox.unwrap().into_receiver();
    let runtime = telling(store.bare()).broker(broker).start().await.unwrap();
    let mut rest = Vec::new();
    for _ in 0..2 {
        rest.push(heard.recv().await.unwrap().payload().clone());
    }
    rest.sort();
    assert_eq!(rest, ["three", "two"]);
    for id in ["2", "3"] {
        let run = runtime.attach(TELL, id).unwrap();
        assert_eq!(run.result().await.unwrap(), ["taken"]);
    }
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn values_find_room_one_after_the_other_in_the_topic_they_wait_for() {
    let runtime = telling(Runtime::volatile()).start().await.unwrap();
    let inbox = runtime
        .broker()
        .subscribe::<String>("users.7.notices", narrow())
        .unwrap();
    let mut runs = Vec::new();
    for value in 0..20 {
        let pairs = to(&[("users.7.notices", value.to_string().as_str())]);
        runs.push(runtime.start(TELL, &format!("t{value}"), pairs).await.unwrap());
    }
    let mut heard = inbox.into_receiver();
    for value in 0..20 {
        assert_eq!(heard.recv().await.unwrap().payload(), &value.to_string());
    }
    for run in runs {
        assert_eq!(run.result().await.unwrap(), ["taken"]);
    }
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_broker_with_as_many_topics_as_it_may_have_refuses_more_until_one_is_let_go_of() {
    let config = BrokerConfig {
        topics_max: 32,
        ..BrokerConfig::default()
    };
    let broker = Broker::without_host(config);
    let runtime = telling(Runtime::volatile())
        .broker(broker.clone())
        .start()
        .await
        .unwrap();
    let mut held = Vec::new();
    while let Ok(topic) = broker.topic::<u64>(&format!("held.{}", held.len())) {
        held.push(topic);
    }
    let pairs = || to(&[("users.1.notices", "one")]);
    let run = runtime.start(TELL, "full", pairs()).await.unwrap();
    let told = run.result().await.unwrap();
    assert!(told[0].contains("32 topics, which is its limit"), "{told:?}");
    held.pop();
    // The run's own topic is let go of, and makes room for the next.
    for (id, user) in [
        ("a", "users.1.notices"),
        ("b", "users.2.notices"),
        ("c", "users.3.notices"),
    ] {
        let run = runtime.start(TELL, id, to(&[(user, "one")])).await.unwrap();
        assert_eq!(run.result().await.unwrap(), ["taken"]);
    }
    runtime.shutdown().await.unwrap();
}
