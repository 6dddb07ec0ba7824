//! Deletion: the entity is as if it had never been, and what it has begun is done first.

use millrun::Runtime;
use millrun::topics::ReadFrom;

use super::{PUT, PUT_LATER, PUTS, SUM, TILL, till};
use crate::durable_topics::take_all;

#[tokio::test]
async fn a_deleted_entity_begins_anew() {
    let runtime = Runtime::volatile()
        .entity(till())
        .durable_topic(PUTS)
        .start()
        .await
        .unwrap();
    let ada = runtime.entity(TILL, "ada");
    assert!(!ada.delete().await.unwrap(), "there is none yet");
    assert_eq!(ada.call(PUT, 5).request("r-1").await.unwrap(), 5);
    ada.call(PUT_LATER, 3_600_000).await.unwrap();
    assert!(ada.delete().await.unwrap());
    assert!(!ada.delete().await.unwrap());
    assert_eq!(ada.read(SUM, ()).await.unwrap(), 0);
    assert_eq!(
        ada.call(PUT, 7).request("r-1").await.unwrap(),
        7,
        "its requests are forgotten"
    );
    assert_eq!(runtime.stats().started, 2);
    let topic = runtime.durable_topic(PUTS).unwrap();
    let read = take_all(&topic, &runtime, ReadFrom::Beginning).await;
    assert_eq!(read, [5, 7]);
    runtime.shutdown().await.unwrap();
}

/// Callers that delete and command at a time are answered all, and in some order.
#[tokio::test]
async fn commands_that_come_while_it_is_deleted_begin_another() {
    let runtime = Runtime::volatile()
        .entity(till())
        .durable_topic(PUTS)
        .start()
        .await
        .unwrap();
    let ada = runtime.entity(TILL, "ada");
    let (deleter, caller) = (ada.clone(), ada.clone());
    let deleting = tokio::spawn(async move {
        for _ in 0..100 {
            deleter.delete().await.unwrap();
        }
    });
    let mut last = 0;
    for _ in 0..300 {
        let sum = caller.call(PUT, 1).await.unwrap();
        assert!(sum == last + 1 || sum == 1, "{sum} behind {last}");
        last = sum;
    }
    deleting.await.unwrap();
    runtime.shutdown().await.unwrap();
}
