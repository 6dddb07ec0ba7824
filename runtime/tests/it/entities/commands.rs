//! Commands: one at a time per key, answered when durable, once per request.

use std::sync::Arc;

use futures_util::future::join_all;
use millrun::store::{Journal, JournalConfig, MemoryJournal};
use millrun::{
    CommandError, InputRefused, QueryError, RunError, Runtime, Workflow, WorkflowContext, WorkflowError,
};

use super::{Empty, LEN, PUT, PUTS, SUM, TAKE, TILL, till};
use crate::support::Store;

#[tokio::test]
async fn a_command_is_answered_and_a_rejected_one_changes_nothing() {
    let runtime = Runtime::volatile()
        .entity(till())
        .durable_topic(PUTS)
        .start()
        .await
        .unwrap();
    let ada = runtime.entity(TILL, "ada");
    assert_eq!(ada.call(PUT, 5).await.unwrap(), 5);
    assert!(matches!(
        ada.call(TAKE, 6).await,
        Err(CommandError::Rejected(Empty))
    ));
    assert_eq!(ada.call(TAKE, 2).await.unwrap(), 3);
    assert_eq!(runtime.entity(TILL, "bob").call(PUT, 1).await.unwrap(), 1);
    assert_eq!(
        (ada.read(SUM, ()).await.unwrap(), ada.read(LEN, ()).await.unwrap()),
        (3, 2)
    );
    runtime.shutdown().await.unwrap();
}

/// The first command of a key begins the entity; if it is rejected, there is none.
#[tokio::test]
async fn a_first_command_that_is_rejected_begins_nothing() {
    let runtime = Runtime::volatile().entity(till()).start().await.unwrap();
    let ada = runtime.entity(TILL, "ada");
    assert!(matches!(
        ada.call(TAKE, 6).await,
        Err(CommandError::Rejected(Empty))
    ));
    assert_eq!(runtime.stats().started, 0);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn commands_of_many_callers_to_one_key_are_performed_one_at_a_time() {
    let runtime = Runtime::volatile()
        .entity(till())
        .durable_topic(PUTS)
        .start()
        .await
        .unwrap();
    let till = runtime.entity(TILL, "shared");
    let calls = (0..500).map(|_| till.call(PUT, 1).into_future());
    let mut answers: Vec<u64> = join_all(calls).await.into_iter().map(Result::unwrap).collect();
    answers.sort_unstable();
    assert!(
        answers.into_iter().eq(1..=500),
        "each saw what those before it had done"
    );
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_command_under_a_request_is_performed_once_also_behind_a_snapshot_and_a_restart() {
    let store = Store::new();
    let open = || store.bare().entity(till().snapshot_every(4)).durable_topic(PUTS);
    let runtime = open().start().await.unwrap();
    let ada = runtime.entity(TILL, "ada");
    assert_eq!(ada.call(PUT, 5).request("r-1").await.unwrap(), 5);
    for _ in 0..600 {
        ada.call(PUT, 1).await.unwrap();
    }
    assert_eq!(ada.call(PUT, 5).request("r-1").await.unwrap(), 5);
    runtime.shutdown().await.unwrap();
    let runtime = open().start().await.unwrap();
    let ada = runtime.entity(TILL, "ada");
    assert_eq!(ada.call(PUT, 5).request("r-1").await.unwrap(), 5);
    assert_eq!(ada.read(SUM, ()).await.unwrap(), 605);
    let history = ada.clone();
    drop(history);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn an_entity_that_is_not_in_memory_is_read_and_goes_on() {
    let builder = Runtime::volatile()
        .entity(till().snapshot_every(5))
        .durable_topic(PUTS);
    let builder = builder.configure(|config| {
        config.hot_len_max = 2;
        config.replay_check_every = 1;
    });
    let runtime = builder.start().await.unwrap();
    for round in 1..=12_u64 {
        for key in 0..20 {
            let till = runtime.entity(TILL, &format!("k-{key}"));
            assert_eq!(till.call(PUT, key).await.unwrap(), key * round);
        }
    }
    let stats = runtime.stats();
    assert_eq!((stats.replay_differences, stats.parked), (0, 0));
    assert!(stats.loads > 0, "{stats:?}");
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn nothing_is_answered_before_it_is_durable() {
    let journal = Arc::new(MemoryJournal::held(JournalConfig::default()).unwrap());
    let open = |journal: &Arc<MemoryJournal>| {
        let journal = Arc::clone(journal) as Arc<dyn Journal>;
        Runtime::volatile()
            .entity(till())
            .durable_topic(PUTS)
            .journal(journal)
    };
    let starting = tokio::spawn(open(&journal).start());
    while !starting.is_finished() {
        journal.commit();
        tokio::task::yield_now().await;
    }
    let runtime = starting.await.unwrap().unwrap();
    let ada = runtime.entity(TILL, "ada");
    let (calling, reading) = {
        let (call, read) = (ada.clone(), ada.clone());
        let calling = tokio::spawn(async move { call.call(PUT, 5).await.map_err(|error| error.to_string()) });
        while runtime.stats().journal.queued_bytes == 0 {
            tokio::task::yield_now().await;
        }
        (
            calling,
            tokio::spawn(async move { read.read(SUM, ()).await.unwrap() }),
        )
    };
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(
        !calling.is_finished() && !reading.is_finished(),
        "what they saw is not durable"
    );
    while !(calling.is_finished() && reading.is_finished()) {
        journal.commit();
        tokio::task::yield_now().await;
    }
    assert_eq!((calling.await.unwrap(), reading.await.unwrap()), (Ok(5), 5));
}

#[tokio::test]
async fn what_is_no_entity_here_is_told() {
    const PLAIN: Workflow<(), ()> = Workflow::named("till");
    async fn plain(cx: WorkflowContext, (): ()) -> Result<(), WorkflowError> {
        Ok(cx.receive(super::GO).await.map(drop)?)
    }
    let runtime = Runtime::volatile().start().await.unwrap();
    let told = runtime.entity(TILL, "ada").call(PUT, 1).await;
    let refused = |told: &Result<u64, CommandError<WorkflowError>>| match told {
        Err(CommandError::Run(RunError::Refused(refused))) => Some(refused.clone()),
        _ => None,
    };
    assert!(
        matches!(refused(&told), Some(InputRefused::StillParked(_))),
        "{told:?}"
    );
    assert_eq!(runtime.stats().started, 0);
    // A key that makes no id is told alike by all that can be done to an entity.
    let long = runtime.entity(TILL, &"x".repeat(255));
    let told = long.call(PUT, 1).await;
    assert!(matches!(told, Err(CommandError::Id(_))), "{told:?}");
    let told = long.read(SUM, ()).await;
    assert!(matches!(told, Err(QueryError::Run(RunError::Id(_)))), "{told:?}");
    let told = long.delete().await;
    assert!(matches!(told, Err(RunError::Id(_))), "{told:?}");
    runtime.shutdown().await.unwrap();
    let runtime = Runtime::volatile().register(PLAIN, plain).start().await.unwrap();
    let told = runtime.entity(TILL, "ada").call(PUT, 1).await;
    assert!(
        matches!(refused(&told), Some(InputRefused::UnknownCommand { .. })),
        "{told:?}"
    );
    runtime.shutdown().await.unwrap();
}
