//! Reads: they add no record, and show an entity that there is not yet as it begins.

use millrun::{QueryError, RunError, Runtime};

use super::{LEN, PUT, PUTS, SUM, TILL, till};

#[tokio::test]
async fn a_read_adds_no_record_and_one_that_nobody_has_commanded_is_as_it_begins() {
    let runtime = Runtime::volatile()
        .entity(till())
        .durable_topic(PUTS)
        .start()
        .await
        .unwrap();
    let ada = runtime.entity(TILL, "ada");
    assert_eq!(ada.read(SUM, ()).await.unwrap(), 0);
    ada.call(PUT, 3).await.unwrap();
    let before = runtime.stats().journal.commits;
    for _ in 0..10 {
        assert_eq!(
            (ada.read(SUM, ()).await.unwrap(), ada.read(LEN, ()).await.unwrap()),
            (3, 1)
        );
    }
    assert_eq!(runtime.stats().journal.commits, before);
    assert_eq!(runtime.stats().started, 1);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn without_the_code_nobody_can_say_how_it_begins() {
    let runtime = Runtime::volatile().start().await.unwrap();
    let told = runtime.entity(TILL, "ada").read(SUM, ()).await;
    assert!(
        matches!(told, Err(QueryError::Run(RunError::NotFound))),
        "{told:?}"
    );
    runtime.shutdown().await.unwrap();
}
