//! One thing done to all runs that a filter finds, once each.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;
use millrun::history::{Event, Sequence};
use millrun::operating::{BulkAction, InstanceStatus, ParkReason, RunSearch, RunStatus};
use millrun::{OnConflict, Runtime};
use millrun_testkit::{SimConfig, SimHost};

use crate::bulk::{QUICK, SUM, TALLY, more, with_code};
use crate::support::Store;

fn cancel() -> BulkAction {
    BulkAction::Cancel {
        reason: "enough".into(),
    }
}

async fn tally(runtime: &Runtime, id: &str) {
    runtime.start(TALLY, id, ()).await.unwrap();
}

async fn quick(runtime: &Runtime, id: &str) {
    let start = runtime
        .start(QUICK, id, 7)
        .on_conflict(OnConflict::RestartFinished);
    assert_eq!(start.await.unwrap().result().await.unwrap(), 7);
}

async fn sum(runtime: &Runtime, id: &str) -> u64 {
    runtime.attach(TALLY, id).unwrap().query(SUM, ()).await.unwrap()
}

/// Does it to all that the filter finds, and compares with the dry run.
async fn run(runtime: &Runtime, action: BulkAction, filter: RunSearch, name: &str) -> u64 {
    let bulk = runtime.bulk(action).matching(filter).per_second(1_000);
    let count = bulk.count().await.unwrap();
    let progress = bulk.start(name).await.unwrap().result().await.unwrap();
    assert_eq!(count.selected_len, count.reached_len, "{name}");
    assert_eq!(
        (progress.selected_len, progress.done_len),
        (count.reached_len, count.reached_len),
        "{name}: {progress:?}"
    );
    assert_eq!((progress.passed_over_len, progress.failed_len), (0, 0), "{name}");
    progress.done_len
}

#[tokio::test]
async fn each_action_reaches_what_the_dry_run_has_counted() {
    let store = Store::new();
    let runtime = with_code(store.bare()).start().await.unwrap();
    for number in 0..150 {
        tally(&runtime, &format!("a-{number}")).await;
    }
    for id in ["b-1", "b-2"] {
        tally(&runtime, id).await;
        quick(&runtime, &format!("q-{id}")).await;
    }
    let all = RunSearch::new;
    let tallies = || all().workflow("tally");
    assert_eq!(
        run(&runtime, more(1), tallies().id_prefix("a-"), "signals").await,
        150
    );
    assert_eq!((sum(&runtime, "a-77").await, sum(&runtime, "b-1").await), (1, 0));
    assert_eq!(
        run(&runtime, more(1), all().status(RunStatus::Completed), "over").await,
        0
    );

    for id in ["a-3", "b-1"] {
        let handle = runtime.attach(TALLY, id).unwrap();
        handle.pause("later").await.unwrap();
    }
    assert_eq!(run(&runtime, BulkAction::Resume, tallies(), "resume").await, 2);
    let described = runtime.attach(TALLY, "b-1").unwrap().describe().await.unwrap();
    assert_eq!(described.status, InstanceStatus::Running);

    // Of the runs of an instance only the latest is started again.
    quick(&runtime, "q-b-1").await;
    let quicks = || all().id_prefix("q-");
    assert_eq!(run(&runtime, BulkAction::StartAgain, quicks(), "again").await, 2);
    let finished = runtime.list_finished(None, 100).await.unwrap();
    assert_eq!(finished.len(), 5, "{finished:?}");

    assert_eq!(
        run(&runtime, cancel(), tallies().id_prefix("a-"), "cancel").await,
        150
    );
    let ended = runtime.attach(TALLY, "a-149").unwrap().result().await;
    assert!(ended.is_err());
    let terminate = BulkAction::Terminate {
        reason: "enough".into(),
    };
    assert_eq!(run(&runtime, terminate, all(), "rest").await, 2);
    assert_eq!(runtime.stats().live, 0);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_bulk_tells_what_it_was_started_with_and_stands_in_the_list_of_bulks() {
    let store = Store::new();
    let runtime = with_code(store.bare()).start().await.unwrap();
    tally(&runtime, "a").await;
    let filter = RunSearch::new().workflow("tally").status(RunStatus::Running);
    let bulk = runtime
        .bulk(more(1))
        .matching(filter.clone())
        .ids(["b"])
        .per_second(7);
    let bulk = bulk.start("one").await.unwrap();
    assert_eq!(bulk.result().await.unwrap().done_len, 1);
    let described = bulk.describe().await.unwrap();
    assert_eq!(
        (described.action.as_str(), described.about.as_deref()),
        ("signal", Some("more"))
    );
    assert_eq!((described.ids_len, described.per_second), (1, 7));
    assert_eq!(described.filter, Some(filter));
    let slow = runtime
        .bulk(cancel())
        .ids(["b", "c"])
        .per_second(1)
        .start("two")
        .await
        .unwrap();
    assert_eq!(runtime.counts().bulks_running, 1);
    let page = runtime.bulks(None, 10).await.unwrap();
    let told: Vec<_> = page
        .bulks
        .iter()
        .map(|bulk| (bulk.name.as_str(), bulk.status))
        .collect();
    assert_eq!(told, [("two", RunStatus::Running), ("one", RunStatus::Completed)]);
    let first = runtime.bulks(None, 1).await.unwrap();
    let second = runtime.bulks(first.next, 1).await.unwrap();
    assert_eq!(
        (first.bulks[0].name.as_str(), second.bulks[0].name.as_str()),
        ("two", "one")
    );
    assert_eq!(
        runtime
            .find(&RunSearch::new(), None, 10)
            .await
            .unwrap()
            .runs
            .len(),
        1
    );
    slow.stop("enough").await.unwrap();
    runtime.shutdown().await.unwrap();
}

#[test]
fn runs_that_begin_behind_a_bulk_are_left_alone_however_slow_it_is() {
    let world = SimHost::new(SimConfig::seeded(7));
    let builder = with_code(Runtime::volatile()).host(world.host());
    let host = world.host();
    let script = async move {
        let runtime = builder.start().await.unwrap();
        for number in 0..12 {
            tally(&runtime, &format!("early-{number}")).await;
        }
        let bulk = runtime.bulk(cancel()).matching(RunSearch::new()).per_second(4);
        let bulk = bulk.start("slow").await.unwrap();
        let soon = host.now() + std::time::Duration::from_millis(700);
        host.sleep_until(soon).await;
        for number in 0..12 {
            tally(&runtime, &format!("late-{number}")).await;
        }
        let progress = bulk.result().await.unwrap();
        assert_eq!((progress.selected_len, progress.done_len), (12, 12));
        let left = runtime
            .find(&RunSearch::new().status(RunStatus::Running), None, 100)
            .await
            .unwrap();
        assert_eq!(left.runs.len(), 12);
        assert!(left.runs.iter().all(|run| run.id.as_str().starts_with("late-")));
        runtime.shutdown().await.unwrap();
    };
    world.block_on(script).unwrap();
}

/// How many runs of each kind the world below has.
const LEN: u64 = 6;

fn ids(kind: &str) -> Vec<String> {
    (0..LEN).map(|number| format!("{kind}-{number}")).collect()
}

/// Three bulks over instances that are told, were paused, have finished.
async fn begin(runtime: &Runtime) {
    for ((told, paused), done) in ids("told").iter().zip(ids("paused")).zip(ids("done")) {
        tally(runtime, told).await;
        tally(runtime, &paused).await;
        let paused = runtime.attach(TALLY, &paused).unwrap();
        paused.pause("first").await.unwrap();
        let start = runtime.start(QUICK, &done, 7);
        start.await.unwrap().result().await.unwrap();
    }
    for (name, action, kind) in [
        ("signals", more(1), "told-"),
        ("resumes", BulkAction::Resume, "paused-"),
        ("again", BulkAction::StartAgain, "done-"),
    ] {
        let bulk = runtime.bulk(action).matching(RunSearch::new().id_prefix(kind));
        bulk.per_second(8).start(name).await.unwrap();
    }
}

/// Pauses an instance once more, as soon as its history says that it was resumed.
async fn pause_again(runtime: &Runtime, id: &str) {
    let handle = runtime.attach(TALLY, id).unwrap();
    let run = handle.describe().await.unwrap().run;
    let mut after = Sequence::ZERO;
    loop {
        let page = runtime.until_history(run, after, 100).await.unwrap();
        after = page.events.last().unwrap().sequence;
        if page
            .events
            .iter()
            .any(|recorded| recorded.event == Event::Resumed)
        {
            break;
        }
    }
    let (resumed, pauses) = resumes_and_pauses(runtime, id).await;
    assert_eq!(resumed, 1, "{id}");
    if pauses == 1 {
        handle.pause("again").await.unwrap();
    }
}

async fn resumes_and_pauses(runtime: &Runtime, id: &str) -> (usize, usize) {
    let run = runtime.attach(TALLY, id).unwrap().describe().await.unwrap().run;
    let page = runtime.history(run, Sequence::ZERO, 1_000).await.unwrap();
    let resumes = page
        .events
        .iter()
        .filter(|recorded| recorded.event == Event::Resumed);
    let pauses = page.events.iter().filter(|recorded| {
        matches!(
            &recorded.event,
            Event::Parked {
                reason: ParkReason::Paused { .. }
            }
        )
    });
    (resumes.count(), pauses.count())
}

/// Waits for the bulks, while an operator pauses again what they resume.
async fn wait(runtime: &Runtime) {
    let paused = ids("paused");
    let pausing = join_all(paused.iter().map(|id| pause_again(runtime, id)));
    let bulks = join_all(["signals", "resumes", "again"].map(|name| async move {
        let bulk = runtime.attach_bulk(name).unwrap();
        let progress = bulk.result().await.unwrap();
        assert_eq!(
            (progress.done_len, progress.looked_at_len()),
            (LEN, LEN),
            "{name}: {progress:?}"
        );
    }));
    tokio::join!(pausing, bulks);
}

/// Kills the process at one step after another of three bulks, and looks what became of each run.
#[test]
fn killed_at_any_step_a_bulk_by_filter_has_each_run_get_its_part_once() {
    /// Steps between two kills that are tried.
    const STRIDE: u64 = 5;
    let (mut kill_at, mut kills) = (1, 0);
    loop {
        let store = Store::new();
        let open = |world: &SimHost| {
            with_code(store.bare())
                .host(world.host())
                .configure(|config| config.limits.kept_beginning_every = 4)
        };
        let (has_begun, has_ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let world = SimHost::new(SimConfig::seeded(kill_at));
        let (begun, ended, builder) = (Arc::clone(&has_begun), Arc::clone(&has_ended), open(&world));
        let script = async move {
            let runtime = builder.start().await.unwrap();
            begin(&runtime).await;
            begun.store(true, Ordering::SeqCst);
            wait(&runtime).await;
            ended.store(true, Ordering::SeqCst);
            std::future::pending::<()>().await;
        };
        let task = world.host().spawn("script", Box::pin(script));
        let mut left = kill_at;
        let _outcome = world.run_until(|| {
            left -= u64::from(has_begun.load(Ordering::SeqCst));
            left == 0 || has_ended.load(Ordering::SeqCst)
        });
        assert!(has_begun.load(Ordering::SeqCst), "kill at {kill_at}");
        world.crash();
        drop(task);
        let world = SimHost::new(SimConfig::seeded(kill_at + 1_000_000));
        let builder = open(&world);
        let script = async move {
            let runtime = builder.start().await.unwrap();
            wait(&runtime).await;
            for id in ids("told") {
                assert_eq!(sum(&runtime, &id).await, 1, "kill at {kill_at}: {id}");
            }
            for id in ids("paused") {
                let told = resumes_and_pauses(&runtime, &id).await;
                assert_eq!(told, (1, 2), "kill at {kill_at}: {id}");
            }
            let finished = runtime.list_finished(None, 1_000).await.unwrap();
            assert_eq!(finished.len() as u64, 2 * LEN, "kill at {kill_at}: {finished:?}");
            runtime.shutdown().await.unwrap();
        };
        world.block_on(script).unwrap();
        if has_ended.load(Ordering::SeqCst) {
            break;
        }
        (kill_at, kills) = (kill_at + STRIDE, kills + 1);
    }
    assert!(kills > 20, "{kills}");
}

/// A checkpoint of the bulk has the place that the search has reached.
#[test]
fn a_bulk_by_filter_goes_on_behind_its_checkpoints() {
    const MANY: u64 = 180;
    let world = SimHost::new(SimConfig::seeded(11));
    let builder = with_code(Runtime::volatile()).host(world.host());
    let script = async move {
        let runtime = builder.start().await.unwrap();
        for number in 0..MANY {
            tally(&runtime, &format!("i-{number}")).await;
        }
        // Four at a time, and a checkpoint behind 32 of these.
        let bulk = runtime.bulk(more(1)).matching(RunSearch::new()).per_second(16);
        let bulk = bulk.start("signals").await.unwrap();
        let progress = bulk.result().await.unwrap();
        assert_eq!((progress.selected_len, progress.done_len), (MANY, MANY));
        let described = runtime
            .attach_untyped("millrun.bulk/signals")
            .unwrap()
            .describe()
            .await
            .unwrap();
        let page = runtime
            .history(described.run, Sequence::ZERO, 1_000)
            .await
            .unwrap();
        let mut labels = page.events.iter().map(|recorded| recorded.event.label());
        assert!(labels.any(|label| label == "Checkpointed"), "there was one");
        for number in 0..MANY {
            assert_eq!(sum(&runtime, &format!("i-{number}")).await, 1, "{number}");
        }
        runtime.shutdown().await.unwrap();
    };
    world.block_on(script).unwrap();
}
