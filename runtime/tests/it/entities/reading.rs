//! Reads: they add no record, and show an entity that there is not yet as it begins.

use std::sync::Arc;

use millrun::store::{Journal, JournalConfig, MemoryJournal};
use millrun::{QueryError, RunError, Runtime};

use super::{LEN, PUT, PUTS, SUM, TILL, till};
use crate::tapped::Tapped;

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

/// On a store that several processes share, the owner of an entity may have been replaced when it is read.
#[tokio::test]
async fn a_read_waits_until_it_is_confirmed_also_of_one_that_nobody_has_commanded() {
    let journal = MemoryJournal::new(JournalConfig::default()).unwrap();
    let journal = Tapped::new(Arc::new(journal), |journal, batch| journal.enqueue(batch));
    journal.keep_topics();
    let runtime = Runtime::volatile()
        .journal(Arc::clone(&journal) as Arc<dyn Journal>)
        .entity(till())
        .durable_topic(PUTS)
        .start()
        .await
        .unwrap();
    runtime.entity(TILL, "ada").call(PUT, 3).await.unwrap();
    for (key, sum) in [("ada", 3), ("nobody", 0)] {
        journal.confirm_behind(1);
        let read = {
            let till = runtime.entity(TILL, key);
            tokio::spawn(async move { till.read(SUM, ()).await.unwrap() })
        };
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(!read.is_finished(), "{key}");
        journal.confirm_behind(0);
        runtime.entity(TILL, "other").call(PUT, 1).await.unwrap();
        assert_eq!(read.await.unwrap(), sum, "{key}");
    }
    runtime.shutdown().await.unwrap();
}
