//! What is declared twice, or where it cannot be.

use std::sync::Arc;
use std::time::Duration;

use millrun::broker::{Broker, BrokerConfig, SubscribeError, SubscriptionConfig, TopicError};
use millrun::topics::{DurableTopicError, TopicRetention, TopicTerms};
use millrun::{DurableTopic, OpenError, Runtime, RuntimeBuilder, Topic, Workflow};
use millrun_persistence::Journal;

use super::{NUMBERS, memory};
use crate::tapped::Tapped;

const FEWER: DurableTopic<u64> = Topic::named("numbers").durable().len_max(10);
const TEXTS: DurableTopic<String> = Topic::named("numbers").durable();
const OTHER: DurableTopic<u64> = Topic::named("other").durable();
const NOTHING: DurableTopic<u64> = Topic::named("nothing").durable().bytes_max(0);

#[tokio::test]
async fn a_name_that_is_declared_in_two_ways_is_refused_and_twice_in_one_way_is_not() {
    type Declare = fn(RuntimeBuilder) -> RuntimeBuilder;
    for (declare, expected) in [
        ((|builder| builder.durable_topic(NUMBERS)) as Declare, None),
        (
            |builder| {
                builder
                    .durable_topic(OTHER)
                    .topic(Topic::<u64>::named("volatile"))
            },
            None,
        ),
        (|builder| builder.durable_topic(FEWER), Some("with two terms")),
        (
            |builder| builder.durable_topic(NUMBERS.subscription_idle_max(Duration::from_secs(60))),
            Some("with two terms"),
        ),
        (|builder| builder.durable_topic(TEXTS), Some("of type")),
        (|builder| builder.topic(NUMBERS.topic()), Some("broker")),
    ] {
        let builder = declare(Runtime::volatile().durable_topic(NUMBERS));
        match (builder.start().await, expected) {
            (Ok(runtime), None) => {
                runtime.shutdown().await.unwrap();
            }
            (Err(OpenError::TopicContradiction { name, problem }), Some(expected)) => {
                assert!(name == "numbers" && problem.contains(expected), "{problem}");
            }
            (started, expected) => panic!("{:?} instead of {expected:?}", started.map(drop)),
        }
    }
}

#[tokio::test]
async fn what_would_hear_nothing_of_a_durable_topic_is_refused() {
    const TELL: Workflow<u64, ()> = Workflow::named("tell");
    let runtime = Runtime::volatile().durable_topic(NUMBERS).start().await.unwrap();
    let is_told =
        |error: &TopicError| matches!(error, TopicError::Durable { topic } if topic.as_str() == "numbers");
    let (broker, config) = (runtime.broker(), SubscriptionConfig::default);
    assert!(is_told(&broker.topic::<u64>("numbers").unwrap_err()));
    let on = runtime
        .on(NUMBERS.topic())
        .start(TELL, |envelope| ("tell".into(), *envelope.payload()));
    for refused in [
        on.map(drop),
        broker.subscribe::<u64>("numbers", config()).map(drop),
        broker.subscribe_any("numbers", config()).map(drop),
    ] {
        assert!(matches!(refused, Err(SubscribeError::Topic(error)) if is_told(&error)));
    }
    // A wildcard selects topics of the broker alone.
    let wild = broker.subscribe::<u64>("*", config()).unwrap();
    runtime.durable_topic(NUMBERS).unwrap().publish(&1).await.unwrap();
    broker.topic::<u64>("others").unwrap().publish(2).await.unwrap();
    let heard: Vec<_> = wild.take().map(|envelope| *envelope.payload()).collect();
    assert_eq!(heard, [2]);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_broker_on_which_a_topic_is_in_use_does_not_leave_it_to_the_journal() {
    let broker = Broker::without_host(BrokerConfig::default());
    let early = broker
        .subscribe::<u64>("numbers", SubscriptionConfig::default())
        .unwrap();
    let journal = memory();
    let open = || {
        let builder = Runtime::volatile().durable_topic(NUMBERS).broker(broker.clone());
        builder.journal(Arc::clone(&journal) as Arc<dyn Journal>)
    };
    match open().start().await.map(drop) {
        Err(OpenError::TopicContradiction { name, problem }) => {
            assert!(name == "numbers" && problem.contains("in use"), "{problem}");
        }
        started => panic!("{started:?}"),
    }
    assert_eq!(journal.topics().unwrap().number("numbers"), None);
    drop(early);
    open().start().await.unwrap().shutdown().await.unwrap();
    // A runtime to which the name means nothing gives it back.
    let builder = Runtime::volatile().broker(broker.clone());
    let runtime = builder.start().await.unwrap();
    broker.topic::<u64>("numbers").unwrap();
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_handle_is_refused_for_what_was_declared_otherwise() {
    let runtime = Runtime::volatile().durable_topic(NUMBERS).start().await.unwrap();
    let refused = runtime.durable_topic(FEWER).unwrap_err();
    assert!(
        matches!(refused, DurableTopicError::Contradiction { .. }),
        "{refused:?}"
    );
    let refused = runtime.durable_topic(TEXTS).unwrap_err();
    assert!(
        matches!(refused, DurableTopicError::Contradiction { .. }),
        "{refused:?}"
    );
    let refused = runtime.durable_topic(OTHER).unwrap_err();
    assert_eq!(refused, DurableTopicError::NotDeclared { name: "other".into() });
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_journal_that_keeps_no_topics_or_not_this_one_is_told_of_at_the_start() {
    let tapped = Tapped::new(memory(), |journal: &dyn Journal, batch| journal.enqueue(batch));
    let builder = Runtime::volatile().durable_topic(NUMBERS).journal(tapped);
    let error = builder.start().await.unwrap_err();
    assert!(
        matches!(error, OpenError::TopicsNotKept { name: "numbers" }),
        "{error:?}"
    );
    let error = Runtime::volatile()
        .durable_topic(NOTHING)
        .start()
        .await
        .unwrap_err();
    assert!(
        matches!(error, OpenError::TopicRefused { name: "nothing", .. }),
        "{error:?}"
    );
    let builder = Runtime::volatile().configure(|config| config.journal.topics_len_max = 1);
    let error = builder
        .durable_topic(NUMBERS)
        .durable_topic(OTHER)
        .start()
        .await
        .unwrap_err();
    assert!(
        matches!(error, OpenError::TopicRefused { name: "other", .. }),
        "{error:?}"
    );
}

/// What the topics `orders.placed` and `orders.eu.paid` keep, of which the first says that it keeps ten records.
async fn told_by_filters(filters: &[(&'static str, TopicTerms)]) -> Result<[TopicRetention; 2], OpenError> {
    const PLACED: DurableTopic<u64> = Topic::named("orders.placed").durable().len_max(10);
    const PAID: DurableTopic<u64> = Topic::named("orders.eu.paid").durable();
    let mut builder = Runtime::volatile();
    for (filter, terms) in filters {
        builder = builder.topic_terms(filter, *terms);
    }
    let runtime = builder.durable_topic(PLACED).durable_topic(PAID).start().await?;
    // What a topic says of itself is all that its handle has to say.
    runtime.durable_topic(PLACED).unwrap();
    let told = runtime.durable_topics();
    assert_eq!(told[0].name, "orders.eu.paid");
    runtime.shutdown().await.unwrap();
    Ok([told[1].retention, told[0].retention])
}

#[tokio::test]
async fn filters_say_what_the_topics_keep_that_they_select() {
    let default = TopicRetention::in_memory();
    let (terms, age_max) = (TopicTerms::new(), Duration::from_secs(60));
    let placed = TopicRetention {
        len_max: 10,
        ..default
    };
    for (filters, expected) in [
        (vec![], [placed, default]),
        (
            vec![("orders.>", terms.age_max(age_max))],
            [
                TopicRetention { age_max, ..placed },
                TopicRetention { age_max, ..default },
            ],
        ),
        (
            vec![
                ("orders.*", terms.bytes_max(5_000)),
                ("*.eu.>", terms.unread_bytes_max(7_000).len_max(20)),
                ("other.>", terms.len_max(1)),
                ("orders.placed", terms.len_max(10)),
            ],
            [
                TopicRetention {
                    bytes_max: 5_000,
                    ..placed
                },
                TopicRetention {
                    unread_bytes_max: 7_000,
                    len_max: 20,
                    ..default
                },
            ],
        ),
        // What is said twice in one way is said once.
        (
            vec![
                (">", terms.age_max(age_max)),
                ("orders.>", terms.age_max(age_max)),
                (">", terms.bytes_max(5_000)),
            ],
            [placed, default].map(|kept| TopicRetention {
                age_max,
                bytes_max: 5_000,
                ..kept
            }),
        ),
    ] {
        let told = told_by_filters(&filters).await.unwrap();
        assert_eq!(told, expected, "{filters:?}");
    }
}

#[tokio::test]
async fn filters_that_say_two_things_of_a_topic_are_refused() {
    let terms = TopicTerms::new();
    for (filters, expected_name, bound) in [
        (vec![("orders.*", terms.len_max(11))], "orders.placed", "len_max"),
        (
            vec![
                ("orders.>", terms.bytes_max(1_000)),
                ("*.eu.paid", terms.bytes_max(2_000)),
            ],
            "orders.eu.paid",
            "bytes_max",
        ),
        (
            vec![
                ("none.>", terms.unread_bytes_max(1)),
                ("none.>", terms.unread_bytes_max(2)),
            ],
            "none.>",
            "unread_bytes_max",
        ),
        (
            vec![
                ("orders.>", terms.subscription_idle_max(Duration::from_secs(5))),
                (">", terms.subscription_idle_max(Duration::from_secs(6))),
            ],
            "orders.placed",
            "subscription_idle_max",
        ),
    ] {
        match told_by_filters(&filters).await {
            Err(OpenError::TopicContradiction { name, problem }) => {
                let is_told = problem.contains(bound) && problem.contains("filter");
                assert!(name == expected_name && is_told, "{name}: {problem}");
            }
            told => panic!("{told:?} of {filters:?}"),
        }
    }
    for filter in ["", "orders..placed", "orders.>.eu", "orders.pl*"] {
        let refused = told_by_filters(&[(filter, terms)]).await;
        assert!(
            matches!(refused, Err(OpenError::Topic { name, .. }) if name == filter),
            "{refused:?}"
        );
    }
    let short = terms.subscription_idle_max(Duration::ZERO);
    let refused = told_by_filters(&[("orders.>", short)]).await;
    assert!(
        matches!(
            refused,
            Err(OpenError::Config {
                field: "subscription_idle_max",
                ..
            })
        ),
        "{refused:?}"
    );
    let none = told_by_filters(&[("orders.>", terms.bytes_max(0))]).await;
    assert!(matches!(none, Err(OpenError::TopicRefused { .. })), "{none:?}");
}

#[tokio::test]
async fn a_time_of_disuse_that_is_too_short_is_refused() {
    const HASTY: DurableTopic<u64> = NUMBERS.subscription_idle_max(Duration::from_millis(999));
    let error = Runtime::volatile()
        .durable_topic(HASTY)
        .start()
        .await
        .unwrap_err();
    assert!(
        matches!(
            error,
            OpenError::Config {
                field: "subscription_idle_max",
                ..
            }
        ),
        "{error:?}"
    );
}

#[tokio::test]
async fn durable_topics_are_listed_with_their_retention_and_what_is_kept() {
    const KEPT: DurableTopic<u64> = Topic::named("kept")
        .durable()
        .age_max(Duration::from_secs(60))
        .bytes_max(1_000)
        .len_max(10)
        .unread_bytes_max(5_000);
    let runtime = Runtime::volatile()
        .durable_topic(OTHER)
        .durable_topic(KEPT)
        .start()
        .await
        .unwrap();
    runtime.durable_topic(KEPT).unwrap().publish(&1).await.unwrap();
    let [kept, other] = &runtime.durable_topics()[..] else {
        panic!("two were declared");
    };
    let said = TopicRetention {
        age_max: Duration::from_secs(60),
        bytes_max: 1_000,
        len_max: 10,
        unread_bytes_max: 5_000,
    };
    assert_eq!((kept.name.as_str(), kept.retention), ("kept", said));
    assert_eq!((kept.first, kept.last), (1, 1));
    assert!(kept.bytes > 0);
    assert_eq!(
        (other.name.as_str(), other.retention),
        ("other", TopicRetention::in_memory())
    );
    assert_eq!((other.first, other.last, other.bytes), (1, 0, 0));
    assert_eq!(runtime.catalogue().durable_topics, ["kept", "other"]);
    runtime.shutdown().await.unwrap();
}
