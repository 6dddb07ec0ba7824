//! What is declared twice, or where it cannot be.

use std::time::Duration;

use millrun::topics::{DurableTopicError, TopicRetention};
use millrun::{DurableTopic, OpenError, Runtime, RuntimeBuilder, Topic};
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
        (
            |builder| builder.durable_topic(FEWER),
            Some("with two retentions"),
        ),
        (
            |builder| builder.durable_topic(NUMBERS.subscription_idle_max(Duration::from_secs(60))),
            Some("with two retentions"),
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
