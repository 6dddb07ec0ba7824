//! Runs whose checkpoints trim their histories.

use millrun::host::{HostConfig, TokioHost};
use millrun::operating::InstanceStatus;
use millrun::store::{Archive, Journal, JournalConfig, Reads, RedbJournal, Sequence};
use millrun::{Query, RunError, Runtime, RuntimeBuilder, Signal, Workflow, WorkflowContext, WorkflowError};
use millrun_core::RunId;
use millrun_persistence::{History, Snapshot, Stats};

use crate::logged::listen_for;
use crate::support::Store;

const GO: Signal<u64> = Signal::named("go");
const COUNT: Workflow<u64, u64> = Workflow::named("count");
const OTHER: Workflow<u64, u64> = Workflow::named("other");
const SUM: Query<u64, (), u64> = Query::named("sum");

/// Adds up what it is told, and begins again from the sum after each four.
async fn adding(cx: WorkflowContext, first: u64) -> Result<u64, WorkflowError> {
    let mut sum = cx.checkpointed().transpose()?.unwrap_or(first);
    for _ in 0..4 {
        match cx.receive(GO).await? {
            0 => return Ok(sum),
            number => sum += number,
        }
    }
    Ok(cx.checkpoint(&sum).await?)
}

/// The same, with the sum as its state.
async fn told(cx: WorkflowContext, first: u64) -> Result<u64, WorkflowError> {
    let sum = cx.state(cx.checkpointed().transpose()?.unwrap_or(first));
    for _ in 0..4 {
        match cx.receive(GO).await? {
            0 => return Ok(sum.read(|sum| *sum)),
            number => sum.change(|sum| *sum += number),
        }
    }
    Ok(cx.checkpoint(&sum.read(|sum| *sum)).await?)
}

/// Keeps a beginning once in sixteen events, and gives space back soon.
fn builder(store: &Store, keep_history: bool) -> RuntimeBuilder {
    store.bare().register(COUNT, adding).configure(move |config| {
        config.limits.kept_beginning_every = 16;
        config.keep_history = keep_history;
        config.store.dead_bytes_max = 16 << 10;
        config.store.zero_ahead_bytes = 0;
    })
}

/// What the store has of a run while nothing runs: its history, a snapshot if it has one, and the counts.
async fn stored(store: &Store, run: RunId) -> (History, Option<Snapshot>, Stats) {
    let owner = TokioHost::spawn(HostConfig::default()).await.unwrap();
    let journal = RedbJournal::open(store.path(), JournalConfig::default(), owner.host()).unwrap();
    let history = journal.history(run).unwrap();
    let found = (history, journal.snapshot(run).unwrap(), journal.stats());
    journal.close().unwrap();
    found
}

/// The story: once in 256 events such a run left what it needed of those before, so that it was woken quickly.
/// But each opening read its whole history, and the file grew for as long as it lived.
#[tokio::test]
async fn a_run_that_makes_checkpoints_for_ever_has_a_store_an_opening_and_a_wake_that_do_not_grow() {
    let store = Store::new();
    let (mut id, mut sizes) = (None, Vec::new());
    for life in 0..5 {
        let runtime = builder(&store, false).start().await.unwrap();
        let opened = runtime.startup_report().clone();
        assert_eq!(opened.damaged, []);
        let run = match id {
            None => runtime.start(COUNT, "for ever", 0).await.unwrap(),
            Some(_) => runtime.attach(COUNT, "for ever").unwrap(),
        };
        for _ in 0..400 {
            run.signal(GO, 1).await.unwrap();
        }
        assert_eq!(runtime.stats().loads, u64::from(life > 0));
        let run_id = *id.get_or_insert_with(|| run.run_id().unwrap());
        if life % 2 == 0 {
            // As a kill leaves it.
            drop((run, runtime));
        } else {
            runtime.shutdown().await.unwrap();
        }
        let (history, snapshot, stats) = stored(&store, run_id).await;
        assert_eq!(snapshot, None, "there is no second source");
        assert!(history.trimmed.is_some());
        assert!(history.records.len() < 40, "{} records", history.records.len());
        sizes.push((stats.log_bytes, stats.file_bytes, opened.bytes));
    }
    println!("log, file, bytes read by the opening: {sizes:?}");
    let (log, file, _) = sizes[1];
    for (later, later_file, opened) in &sizes[2..] {
        assert!(
            *later < 2 * log.max(40_000) && *later_file <= 2 * file,
            "{sizes:?}"
        );
        assert!(*opened < 2 * log.max(40_000), "{sizes:?}");
    }
    let runtime = builder(&store, false).start().await.unwrap();
    let run = runtime.attach(COUNT, "for ever").unwrap();
    run.signal(GO, 0).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 2_000);
    runtime.shutdown().await.unwrap();
}

async fn count(runtime: &Runtime, signals: u64) -> RunId {
    let run = match runtime.start(COUNT, "c", 0).await {
        Ok(run) => run,
        Err(_) => runtime.attach(COUNT, "c").unwrap(),
    };
    for _ in 0..signals {
        run.signal(GO, 1).await.unwrap();
    }
    run.run_id().unwrap()
}

/// Stores of earlier releases are like stores whose histories were kept.
#[tokio::test]
async fn with_keep_history_nothing_is_trimmed_and_without_it_the_next_checkpoint_trims() {
    let store = Store::new();
    let mut events = 0;
    for (keep_history, is_trimmed) in [(true, false), (false, true), (true, true)] {
        let runtime = builder(&store, keep_history).start().await.unwrap();
        let run = count(&runtime, 40).await;
        runtime.shutdown().await.unwrap();
        let (history, snapshot, _) = stored(&store, run).await;
        assert_eq!(history.trimmed.is_some(), is_trimmed);
        assert_eq!(snapshot.is_some(), keep_history);
        let before = history.trimmed.map_or(1, |trimmed| trimmed.before.get());
        assert_eq!(
            history.records[0].sequence,
            Sequence::new(before),
            "sequences go on"
        );
        let head = history.records.last().unwrap().sequence.get();
        assert!(head >= events + 40);
        events = head;
    }
    let runtime = builder(&store, true).start().await.unwrap();
    let run = runtime.attach(COUNT, "c").unwrap();
    run.signal(GO, 0).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 120);
    runtime.shutdown().await.unwrap();
}

/// What is kept of a run grows with what it is sent and does not take.
#[tokio::test]
async fn a_history_that_keeps_too_much_to_be_trimmed_is_warned_of_once_and_counted() {
    const UNTAKEN: Signal<String> = Signal::named("untaken");
    let warnings = listen_for("the history of a run is not trimmed");
    let store = Store::new();
    let runtime = builder(&store, false)
        .configure(|config| {
            config.limits.payload_bytes_max = 32 << 10;
            config.journal.turn_bytes_max = 64 << 10;
        })
        .start()
        .await
        .unwrap();
    let (run, other) = (
        runtime.start(COUNT, "c", 0).await.unwrap(),
        runtime.start(COUNT, "other", 0).await.unwrap(),
    );
    // The event of a checkpoint has what was not taken, and what is kept has it once more.
    for _ in 0..2 {
        run.signal(UNTAKEN, "x".repeat(20_000)).await.unwrap();
    }
    for _ in 0..120 {
        run.signal(GO, 1).await.unwrap();
        other.signal(GO, 1).await.unwrap();
    }
    assert_eq!(runtime.stats().untrimmed_histories, 1);
    let logged = warnings.lock().unwrap().clone();
    assert_eq!(logged.len(), 1, "{logged:?}");
    assert!(
        logged[0].contains(&run.run_id().unwrap().to_string()),
        "{logged:?}"
    );
    let (run_id, other_id) = (run.run_id().unwrap(), other.run_id().unwrap());
    runtime.shutdown().await.unwrap();
    drop((run, other, runtime));
    assert_eq!(stored(&store, run_id).await.0.trimmed, None, "nothing is lost");
    assert!(stored(&store, other_id).await.0.trimmed.is_some());
}

/// What a run is trimmed of is in the archive before it is gone: with what is left, it is the whole history.
#[tokio::test]
async fn with_an_archive_a_run_is_trimmed_and_loses_nothing() {
    let store = Store::new();
    let folder = store.path().with_file_name("archive");
    let archive = Archive::new(&folder);
    let builder = builder(&store, false).configure(move |config| config.store.archive = Some(archive));
    let runtime = builder.start().await.unwrap();
    let run = count(&runtime, 100).await;
    while runtime.stats().journal.held_parts > 0 {
        tokio::task::yield_now().await;
    }
    runtime.shutdown().await.unwrap();
    let trimmed = stored(&store, run).await.0.trimmed.expect("it made checkpoints");
    let lines = std::fs::read_to_string(folder.join("archive-00000001.ndjson")).unwrap();
    let archived = lines.lines().skip(1).map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        line["sequence"].as_u64().unwrap()
    });
    assert!(archived.eq(1..trimmed.before.get()));
}

/// Whether it was trimmed or something was kept beside its whole history, and however short the pages are.
#[tokio::test]
async fn a_long_run_is_described_on_disk_as_it_is_in_memory() {
    for keep_history in [false, true] {
        let store = Store::new();
        let open = |page_bytes| {
            let builder = builder(&store, keep_history);
            builder.configure(move |config| config.history_page_bytes_max = page_bytes)
        };
        let runtime = open(1 << 20).start().await.unwrap();
        count(&runtime, 107).await;
        runtime.shutdown().await.unwrap();
        let mut told = Vec::new();
        for page_bytes in [1 << 20, 300] {
            let runtime = open(page_bytes).start().await.unwrap();
            let run = runtime.attach(COUNT, "c").unwrap();
            let on_disk = run.describe().await.unwrap();
            assert_eq!(runtime.stats().loads, 0);
            let mut awake = run.describe_awake().await.unwrap();
            assert!(std::mem::take(&mut awake.is_in_memory));
            awake.awaited.clear();
            assert_eq!(on_disk, awake);
            assert!(on_disk.sequence.get() > 107);
            told.push(on_disk);
            runtime.shutdown().await.unwrap();
        }
        assert_eq!(told[0], told[1]);
    }
}

/// What is asked of a finished run is answered from what is kept and the events behind it.
#[tokio::test]
async fn a_trimmed_run_that_has_finished_is_described_and_asked_and_replays_as_it_ran() {
    let store = Store::new();
    let open = || {
        let builder = store.bare().register(COUNT.query(SUM, |sum, ()| *sum), told);
        builder.configure(|config| {
            config.limits.kept_beginning_every = 16;
            config.replay_check_every = 1;
        })
    };
    let runtime = open().start().await.unwrap();
    let run = runtime.start(COUNT, "c", 0).await.unwrap();
    for _ in 0..100 {
        run.signal(GO, 1).await.unwrap();
    }
    run.signal(GO, 0).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 100);
    while runtime.stats().replay_checks == 0 {
        tokio::task::yield_now().await;
    }
    let run_id = run.run_id().unwrap();
    assert_eq!(runtime.stats().replay_differences, 0);
    runtime.shutdown().await.unwrap();
    assert!(stored(&store, run_id).await.0.trimmed.is_some());

    let runtime = open().start().await.unwrap();
    let run = runtime.attach(COUNT, "c").unwrap();
    assert_eq!(run.result().await.unwrap(), 100);
    let described = run.describe().await.unwrap();
    assert_eq!(described.status, InstanceStatus::Finished);
    assert_eq!(run.query(SUM, ()).await.unwrap(), 100);
    let other = runtime.attach(OTHER, "c").unwrap();
    assert!(matches!(
        other.describe().await,
        Err(RunError::OtherWorkflow { .. })
    ));
    runtime.shutdown().await.unwrap();
}
