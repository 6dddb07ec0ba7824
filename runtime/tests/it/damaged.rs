//! Instances of which a record is damaged, as their users meet them.
//!
//! The story: a bit of a record was damaged, and its run was quarantined, which nobody was told. Handles said
//! that there is no such instance, a repeated start began another run, and the activity charged the customer
//! again under another idempotency key. The result of a finished run that was damaged was waited for until the
//! end of days.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use millrun::operating::RunSearch;
use millrun::{
    OnConflict, Query, QueryError, ResultError, RunError, RunHandle, RunId, Runtime, RuntimeBuilder, Signal,
    StartError, StartWithSignalError, Update, UpdateError, Workflow, WorkflowContext, WorkflowError,
};

use crate::support::Store;

const BASKET: Workflow<usize, Vec<u64>> = Workflow::named("basket");
const PARENT: Workflow<String, Vec<u64>> = Workflow::named("parent");
const ITEM: Signal<u64> = Signal::named("item");
const LEN: Query<Vec<u64>, (), usize> = Query::named("len");
const ADD: Update<Vec<u64>, u64, usize> = Update::named("add");

/// Ends when it has `len` items.
async fn basket(cx: WorkflowContext, len: usize) -> Result<Vec<u64>, WorkflowError> {
    let items = cx.state(Vec::new());
    while items.read(Vec::len) < len {
        let item = cx.receive(ITEM).await?;
        items.change(|items| items.push(item));
    }
    Ok(items.read(Vec::clone))
}

async fn parent(cx: WorkflowContext, child: String) -> Result<Vec<u64>, WorkflowError> {
    Ok(cx.child(BASKET, child, 3).await?)
}

fn builder(store: &Store) -> RuntimeBuilder {
    let add = |items: &mut Vec<u64>, item| {
        items.push(item);
        items.len()
    };
    let answering = BASKET.query(LEN, |items, ()| items.len()).update(ADD).change(add);
    store.bare().register(answering, basket).register(PARENT, parent)
}

/// Where the records of a run stand in a file, in their order: each record in all its copies.
fn records(file: &[u8], run: RunId) -> Vec<Vec<usize>> {
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
    let bits = run.bits().to_le_bytes();
    let mut records: Vec<Vec<usize>> = Vec::new();
    for at in 24..file.len() - 64 {
        let frame = at - 24;
        let is_frame =
            || file[frame + 16] == 1 && file[frame + 18] < 16 && (48..4_096).contains(&word(frame + 12));
        if file[at] == bits[0] && file[at..at + 16] == bits && is_frame() {
            let sequence = word(frame + 20) as usize;
            if records.len() < sequence {
                records.resize(sequence, Vec::new());
            }
            records[sequence - 1].push(frame);
        }
    }
    records
}

/// Flips a bit in each copy of a record: the last one of a run, or its first.
fn flip(path: &Path, run: RunId, is_first: bool, offset: usize) {
    let mut file = fs::read(path).unwrap();
    let mut records = records(&file, run);
    let record = if is_first {
        records.remove(0)
    } else {
        records.pop().unwrap()
    };
    assert!(!record.is_empty());
    for at in record {
        file[at + offset] ^= 4;
    }
    fs::write(path, file).unwrap();
}

/// Where a record says whose it is.
const RUN: usize = 24;
/// Where the first record of a run has its instance's id.
const ID: usize = 48;

/// Everything that a handle can ask for says what is wrong, and nothing is done.
async fn assert_damaged(runtime: &Runtime, run: &RunHandle<Vec<u64>>) {
    let id = run.id().as_str();
    let is_damaged = |error: &RunError| matches!(error, RunError::Damaged(_));
    for told in [
        run.signal(ITEM, 1).await,
        run.cancel("x").await,
        run.terminate("x").await,
        run.pause("x").await,
        run.resume().await,
        run.describe().await.map(drop),
    ] {
        assert!(told.as_ref().is_err_and(is_damaged), "{id}: {told:?}");
    }
    let queried = run.query(LEN, ()).await;
    assert!(
        matches!(queried, Err(QueryError::Run(RunError::Damaged(_)))),
        "{queried:?}"
    );
    let updated: Result<usize, UpdateError<WorkflowError>> = run.update(ADD, 1).await;
    assert!(
        matches!(updated, Err(UpdateError::Run(RunError::Damaged(_)))),
        "{updated:?}"
    );
    let result = run.result().await;
    assert!(
        matches!(&result, Err(ResultError::Run(RunError::Damaged(_)))),
        "{result:?}"
    );
    for policy in [
        OnConflict::Attach,
        OnConflict::Refuse,
        OnConflict::RestartFinished,
    ] {
        let started = runtime.start(BASKET, id, 3).on_conflict(policy).await;
        let refused = started.unwrap_err();
        assert!(matches!(refused, StartError::Damaged(_)), "{refused}");
        assert!(
            refused.to_string().contains("salvage"),
            "it says what can be done: {refused}"
        );
        let started = runtime
            .start(BASKET, id, 3)
            .on_conflict(policy)
            .with_signal(ITEM, 1)
            .await;
        let refused = started.unwrap_err();
        assert!(
            matches!(refused, StartWithSignalError::Start(StartError::Damaged(_))),
            "{refused}"
        );
    }
}

#[tokio::test]
async fn a_run_that_has_lost_its_last_record_keeps_its_id_and_every_handle_says_so() {
    for is_finished in [false, true] {
        let store = Store::new();
        let runtime = builder(&store).start().await.unwrap();
        let len = if is_finished { 2 } else { 3 };
        let run = runtime.start(BASKET, "damaged", len).await.unwrap();
        let sound = runtime.start(BASKET, "sound", 3).await.unwrap();
        for item in [1, 2] {
            run.signal(ITEM, item).await.unwrap();
            sound.signal(ITEM, item).await.unwrap();
        }
        let id = run.run_id().unwrap();
        runtime.shutdown().await.unwrap();

        flip(&store.path(), id, false, RUN);
        let runtime = builder(&store).start().await.unwrap();
        let named: Vec<_> = runtime
            .startup_report()
            .damaged
            .iter()
            .map(|(run, _)| *run)
            .collect();
        assert!(named.contains(&Some(id)), "{named:?}");
        assert!(
            named.iter().all(|run| run.is_none() || *run == Some(id)),
            "{named:?}"
        );
        assert_damaged(&runtime, &runtime.attach(BASKET, "damaged").unwrap()).await;

        let sound = runtime.attach(BASKET, "sound").unwrap();
        sound.signal(ITEM, 3).await.unwrap();
        assert_eq!(sound.result().await.unwrap(), [1, 2, 3]);
        runtime.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn a_run_whose_first_record_is_damaged_keeps_its_id() {
    for offset in [RUN, ID] {
        let store = Store::new();
        let runtime = builder(&store).start().await.unwrap();
        let run = runtime.start(BASKET, "damaged", 3).await.unwrap();
        let id = run.run_id().unwrap();
        runtime.shutdown().await.unwrap();

        flip(&store.path(), id, true, offset);
        let runtime = builder(&store).start().await.unwrap();
        assert_damaged(&runtime, &runtime.attach(BASKET, "damaged").unwrap()).await;
        runtime.start(BASKET, "another", 3).await.unwrap();
        runtime.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn a_parent_learns_that_its_child_is_damaged_and_a_damaged_parent_keeps_its_children() {
    let store = Store::new();
    let runtime = builder(&store).start().await.unwrap();
    let mut runs = Vec::new();
    for number in 0..2 {
        let id = format!("parent-{number}");
        let child = format!("child-{number}");
        let run = runtime.start(PARENT, &id, child.clone()).await.unwrap();
        let child = runtime.attach(BASKET, &child).unwrap();
        // The child is begun by a message: it is there when it takes a signal.
        while child.signal(ITEM, 1).await.is_err() {
            tokio::task::yield_now().await;
        }
        let described = child.describe().await.unwrap();
        runs.push((run.run_id().unwrap(), described.run));
    }
    runtime.shutdown().await.unwrap();

    flip(&store.path(), runs[0].1, false, RUN);
    flip(&store.path(), runs[1].0, false, RUN);
    let runtime = builder(&store).start().await.unwrap();
    let learned = runtime.attach(PARENT, "parent-0").unwrap().result().await;
    let Err(ResultError::Failed(error)) = learned else {
        panic!("{learned:?}")
    };
    assert!(error.to_string().contains("damaged"), "{error}");
    let child = runtime.attach(BASKET, "child-1").unwrap();
    for item in [2, 3] {
        child.signal(ITEM, item).await.unwrap();
    }
    assert_eq!(child.result().await.unwrap(), [1, 2, 3]);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn damage_that_is_found_while_the_runtime_runs_is_told_and_waited_for_by_nobody() {
    let store = Store::new();
    let configured = || {
        builder(&store).configure(|config| {
            config.hot_len_max = 0;
            config.store.cache_bytes_max = 0;
        })
    };
    let runtime = configured().start().await.unwrap();
    let run = runtime.start(BASKET, "damaged", 3).await.unwrap();
    run.signal(ITEM, 1).await.unwrap();
    let id = run.run_id().unwrap();
    drop(run);
    runtime.shutdown().await.unwrap();
    let runtime = configured().start().await.unwrap();

    flip_in_place(&store.path(), id, false);
    let run = runtime.attach(BASKET, "damaged").unwrap();
    for _ in 0..2 {
        let queried = run.query(LEN, ()).await;
        assert!(
            matches!(queried, Err(QueryError::Run(RunError::Damaged(_)))),
            "{queried:?}"
        );
        let result = run.result().await;
        assert!(
            matches!(&result, Err(ResultError::Run(RunError::Damaged(_)))),
            "{result:?}"
        );
        let told = run.signal(ITEM, 1).await;
        assert!(matches!(told, Err(RunError::Damaged(_))), "{told:?}");
    }
    // It is live: a start attaches to it, and begins no other.
    let attached = runtime.start(BASKET, "damaged", 3).await.unwrap();
    assert_eq!(attached.run_id(), Some(id));
    runtime.shutdown().await.unwrap();
}

/// As [`flip`], in the file that is open elsewhere.
fn flip_in_place(path: &Path, run: RunId, is_first: bool) {
    use std::io::{Seek, SeekFrom, Write};
    let read = fs::read(path).unwrap();
    let mut file = fs::OpenOptions::new().write(true).open(path).unwrap();
    let mut records = records(&read, run);
    let record = if is_first {
        records.remove(0)
    } else {
        records.pop().unwrap()
    };
    for at in record {
        file.seek(SeekFrom::Start((at + RUN) as u64)).unwrap();
        file.write_all(&[read[at + RUN] ^ 4]).unwrap();
    }
}

/// A page that ended before the journal's did counted all that the journal had passed over, and the next page counted
/// it again. Runs that were known to be damaged were not counted at all.
#[tokio::test]
async fn a_walk_through_finished_runs_counts_each_damaged_one_once() {
    const LEN: usize = 24;
    let store = Store::new();
    let configured = || builder(&store).configure(|config| config.store.cache_bytes_max = 0);
    let runtime = configured().start().await.unwrap();
    let mut runs = Vec::new();
    for number in 0..LEN {
        let run = runtime.start(BASKET, &format!("b-{number}"), 1).await.unwrap();
        run.signal(ITEM, 1).await.unwrap();
        run.result().await.unwrap();
        runs.push(run.run_id().unwrap());
    }
    runtime.shutdown().await.unwrap();
    // Known to be damaged from the opening on, or found so when it is read.
    for number in [2, 9, 10, 23] {
        flip(&store.path(), runs[number], false, RUN);
    }
    let runtime = configured().start().await.unwrap();
    for number in [0, 11, 12] {
        flip_in_place(&store.path(), runs[number], true);
    }
    for (filter, found_len) in [
        (RunSearch::new(), LEN - 7),
        (RunSearch::new().workflow("basket"), LEN - 7),
        (RunSearch::new().id_prefix("b-1"), 8),
    ] {
        for len_max in [1, 2, 3, 5, 100] {
            let (mut found, mut unreadable, mut after) = (Vec::new(), 0, None);
            loop {
                let page = runtime.find(&filter, after, len_max).await.unwrap();
                unreadable += page.unreadable;
                found.extend(page.runs.into_iter().map(|found| found.run));
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            let unique: BTreeSet<_> = found.iter().collect();
            assert_eq!((found.len(), unique.len()), (found_len, found_len), "{filter:?}");
            assert_eq!(unreadable, 7, "{filter:?}, {len_max} at a time");
        }
    }
    runtime.shutdown().await.unwrap();
}
