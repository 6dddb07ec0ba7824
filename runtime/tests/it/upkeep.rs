//! What an operator does with the store of a runtime while that runs.

use millrun::host::{Host, TokioHost};
use millrun::store::{BackupError, MemoryJournal, UpkeepError};
use millrun::{Runtime, Signal, StopCause, Workflow, WorkflowContext, WorkflowError};

use crate::support::{QUADRUPLE, Store};

const GO: Signal<u64> = Signal::named("go");
const WAIT: Workflow<(), u64> = Workflow::named("wait");

async fn wait(cx: WorkflowContext, (): ()) -> Result<u64, WorkflowError> {
    Ok(cx.receive(GO).await?)
}

/// Finished runs that have come of age are dropped, though none finishes.
#[tokio::test]
async fn an_upkeep_drops_what_has_come_of_age_while_the_runtime_runs() {
    let store = Store::new();
    let builder = store.open().register(WAIT, wait).configure(|config| {
        config.journal.retention.age_max = std::time::Duration::ZERO;
        config.result_cache_len_max = 0;
    });
    let runtime = builder.start().await.unwrap();
    let waiting = runtime.start(WAIT, "w", ()).await.unwrap();
    for number in 0..20 {
        let run = runtime.start(QUADRUPLE, &format!("q-{number}"), 3).await.unwrap();
        assert_eq!(run.result().await.unwrap(), 12);
    }
    let upkeep = runtime.store().unwrap();
    upkeep.upkeep().await.unwrap();
    assert_eq!(runtime.list_finished(None, 100).await.unwrap(), []);
    assert_eq!(upkeep.verify().await.unwrap().damaged, []);
    // Several at once, and one that nobody waits for.
    drop(upkeep.upkeep());
    let (one, other) = tokio::join!(upkeep.upkeep(), upkeep.upkeep());
    one.and(other).unwrap();
    waiting.signal(GO, 5).await.unwrap();
    assert_eq!(waiting.result().await.unwrap(), 5);
    runtime.shutdown().await.unwrap();
    let late = upkeep.upkeep().await.unwrap_err();
    assert!(
        matches!(late, UpkeepError::Stopped(StopCause::Shutdown)),
        "{late}"
    );
}

#[tokio::test]
async fn a_store_is_verified_copied_exported_and_compacted_while_its_runtime_runs() {
    let store = Store::new();
    let runtime = store.open().register(WAIT, wait).start().await.unwrap();
    let waiting = runtime.start(WAIT, "w", ()).await.unwrap();
    let run = runtime.start(QUADRUPLE, "q", 3).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 12);

    let upkeep = runtime.store().unwrap();
    let verified = upkeep.verify().await.unwrap();
    assert!(
        verified.records > 4 && verified.damaged.is_empty(),
        "{verified:?}"
    );
    let (copy, histories) = (
        store.path().with_extension("copy"),
        store.path().with_extension("ndjson"),
    );
    let made = tokio::join!(upkeep.backup(&copy), upkeep.export(&histories));
    made.0.unwrap();
    assert_eq!(made.1.unwrap().runs, 2);
    upkeep.begin_compact();
    waiting.signal(GO, 5).await.unwrap();
    assert_eq!(waiting.result().await.unwrap(), 5);

    let again = upkeep.backup(&copy).await.unwrap_err();
    assert!(
        matches!(&again, UpkeepError::Backup(BackupError::Exists { path }) if *path == copy),
        "{again}"
    );
    runtime.shutdown().await.unwrap();
    let late = upkeep.verify().await.unwrap_err();
    assert!(
        matches!(late, UpkeepError::Stopped(StopCause::Shutdown)),
        "{late}"
    );
    drop((upkeep, run, waiting, runtime));

    // Each of both is the store as it was: the run that waited does so again.
    let imported = store.path().with_extension("imported");
    let host = TokioHost::spawn(millrun::host::HostConfig::default())
        .await
        .unwrap();
    let host: std::sync::Arc<dyn Host> = host.host();
    let config = millrun::store::RedbConfig::default();
    assert_eq!(
        millrun::store::import(&histories, &imported, &config, &*host)
            .unwrap()
            .runs,
        2
    );
    for path in [copy, imported] {
        let runtime = Runtime::open(path).register(WAIT, wait).start().await.unwrap();
        let waiting = runtime.attach(WAIT, "w").unwrap();
        waiting.signal(GO, 7).await.unwrap();
        assert_eq!(waiting.result().await.unwrap(), 7);
        assert_eq!(
            runtime.attach(QUADRUPLE, "q").unwrap().result().await.unwrap(),
            12
        );
        runtime.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn a_runtime_without_a_file_of_its_own_has_no_store() {
    let volatile = Runtime::volatile().start().await.unwrap();
    assert!(volatile.store().is_none());
    volatile.shutdown().await.unwrap();
    let journal = std::sync::Arc::new(MemoryJournal::new(millrun::store::JournalConfig::default()).unwrap());
    let given = Runtime::volatile().journal(journal).start().await.unwrap();
    assert!(given.store().is_none());
    given.shutdown().await.unwrap();
}
