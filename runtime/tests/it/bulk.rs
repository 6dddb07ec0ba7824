//! One thing done to many instances, once each.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::{Either, select};
use millrun::history::{Event, Sequence};
use millrun::operating::{BulkAction, InstanceStatus};
use millrun::{
    OnConflict, Payload, Query, ResultError, RunError, Runtime, RuntimeBuilder, Signal, Workflow,
    WorkflowContext, WorkflowError,
};
use millrun_testkit::{SimConfig, SimHost};

use crate::support::Store;

pub(crate) const TALLY: Workflow<(), u64> = Workflow::named("tally");
pub(crate) const QUICK: Workflow<u64, u64> = Workflow::named("quick");
const MORE: Signal<u64> = Signal::named("more");
pub(crate) const SUM: Query<u64, (), u64> = Query::named("sum");

/// Adds up what it is sent, until it is cancelled.
async fn tally(cx: WorkflowContext, (): ()) -> Result<u64, WorkflowError> {
    let sum = cx.state(0);
    loop {
        let more = cx.receive(MORE).await?;
        sum.change(|sum| *sum += more);
    }
}

async fn quick(_cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    Ok(number)
}

pub(crate) fn with_code(builder: RuntimeBuilder) -> RuntimeBuilder {
    let tally_of = TALLY.signal(MORE).query(SUM, |sum, ()| *sum);
    builder.register(tally_of, tally).register(QUICK, quick)
}

pub(crate) fn more(value: u64) -> BulkAction {
    BulkAction::Signal {
        name: "more".into(),
        value: Payload::encode(&value).unwrap(),
    }
}

fn names(len: u64) -> Vec<String> {
    (0..len).map(|number| format!("i-{number}")).collect()
}

async fn begin(runtime: &Runtime, len: u64) {
    for id in names(len) {
        runtime.start(TALLY, &id, ()).await.unwrap();
    }
}

#[tokio::test]
async fn each_action_reaches_the_instances_that_it_applies_to() {
    let store = Store::new();
    let runtime = with_code(store.bare()).start().await.unwrap();
    begin(&runtime, 5).await;
    runtime
        .start(QUICK, "done", 7)
        .await
        .unwrap()
        .result()
        .await
        .unwrap();
    let all = || names(5).into_iter().chain(["done".into(), "nobody".into()]);
    let run_all = async |action: BulkAction, name: &str| {
        let bulk = runtime.bulk(action).ids(all()).per_second(1_000);
        let count = bulk.count().await.unwrap();
        let progress = bulk.start(name).await.unwrap().result().await.unwrap();
        assert_eq!((count.selected_len, progress.selected_len), (7, 7));
        assert_eq!(
            progress.done_len + progress.failed_len,
            count.reached_len,
            "{name}"
        );
        assert_eq!(progress.looked_at_len(), 7);
        progress
    };

    let progress = run_all(more(3), "signals").await;
    assert_eq!((progress.done_len, progress.passed_over_len), (5, 2));
    let wrong = BulkAction::Signal {
        name: "more".into(),
        value: Payload::encode("three").unwrap(),
    };
    let progress = run_all(wrong, "wrong signals").await;
    assert_eq!((progress.done_len, progress.failed_len), (0, 5));
    let failure = &progress.failures[0];
    assert!(
        failure.id == "i-0" && failure.message.contains("type u64"),
        "{failure:?}"
    );
    for id in names(5) {
        let sum = runtime.attach(TALLY, &id).unwrap().query(SUM, ()).await;
        assert_eq!(sum.unwrap(), 3, "{id}");
    }

    runtime
        .attach(TALLY, "i-1")
        .unwrap()
        .pause("later")
        .await
        .unwrap();
    assert_eq!(run_all(BulkAction::Resume, "resume").await.done_len, 1);
    let described = runtime.attach(TALLY, "i-1").unwrap().describe().await.unwrap();
    assert_eq!(described.status, InstanceStatus::Running);

    let reason = || "enough".to_owned();
    runtime
        .attach(TALLY, "i-4")
        .unwrap()
        .terminate("first")
        .await
        .unwrap();
    let progress = run_all(BulkAction::Terminate { reason: reason() }, "end").await;
    assert_eq!(progress.done_len, 4);
    assert_eq!(runtime.stats().live, 0);

    assert_eq!(run_all(BulkAction::StartAgain, "again").await.done_len, 6);
    assert_eq!(runtime.attach(QUICK, "done").unwrap().result().await.unwrap(), 7);
    let progress = run_all(BulkAction::Cancel { reason: reason() }, "cancel").await;
    assert_eq!(progress.done_len, 5);
    for id in names(5) {
        let ended = runtime.attach(TALLY, &id).unwrap().result().await;
        assert!(matches!(ended, Err(ResultError::Cancelled(_))), "{ended:?}");
    }
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_bulk_stands_in_no_list_takes_no_signal_and_may_be_stopped() {
    let store = Store::new();
    let runtime = with_code(store.bare()).start().await.unwrap();
    begin(&runtime, 3).await;
    let bulk = runtime.bulk(more(1)).ids(names(3)).per_second(1);
    let bulk = bulk.start("slow").await.unwrap();
    assert_eq!(bulk.name(), "slow");
    let listed = runtime.list(None, 100).await.unwrap();
    assert_eq!(listed.len(), 3, "{listed:?}");
    let catalogue = runtime.catalogue();
    assert_eq!((catalogue.workflows.len(), catalogue.activities.len()), (2, 0));
    let by_id = runtime.attach_untyped("millrun.bulk/slow").unwrap();
    let refused = by_id.signal("more", Payload::encode(&1).unwrap()).await;
    assert!(
        matches!(&refused, Err(RunError::ReservedName { workflow }) if workflow == "millrun.bulk"),
        "{refused:?}"
    );
    let same = runtime.bulk(more(5)).ids(names(1)).start("slow").await.unwrap();
    assert_eq!(
        same.progress().await.unwrap().selected_len,
        3,
        "the one that is there"
    );
    runtime.attach_bulk("slow").unwrap().stop("enough").await.unwrap();
    let ended = bulk.result().await;
    assert!(matches!(ended, Err(ResultError::Cancelled(_))), "{ended:?}");
    let progress = bulk.progress().await.unwrap();
    assert!(progress.looked_at_len() < 3, "{progress:?}");
    assert_eq!(runtime.list_finished(None, 100).await.unwrap(), []);
    runtime
        .start(QUICK, "q", 1)
        .await
        .unwrap()
        .result()
        .await
        .unwrap();
    let finished = runtime.list_finished(None, 1).await.unwrap();
    assert_eq!(finished[0].id.as_str(), "q", "what is hidden takes no place");
    // An id of a user's that is spelled as one of millrun's own is not hidden: its workflow is the user's.
    let of_user = runtime.start(QUICK, "millrun.bulk/mine", 2).await.unwrap();
    of_user.result().await.unwrap();
    let finished = runtime.list_finished(None, 100).await.unwrap();
    let ids: Vec<_> = finished.iter().map(|finished| finished.id.as_str()).collect();
    assert_eq!(ids, ["q", "millrun.bulk/mine"]);
    runtime.shutdown().await.unwrap();
}

/// Kills the process again and again in the middle of two bulks, and looks what became of each instance.
#[test]
fn no_kill_halfway_has_an_instance_get_its_part_twice_or_not_at_all() {
    const LEN: u64 = 150;
    let halfway = Arc::new(AtomicU64::new(0));
    for seed in 1..=8_u64 {
        let store = Store::new();
        let acknowledged = Arc::new(AtomicU64::new(0));
        for life in 0..6_u64 {
            let world = SimHost::new(SimConfig::seeded(seed * 100 + life));
            let builder = with_code(store.bare())
                .host(world.host())
                .configure(|config| config.limits.kept_beginning_every = 8);
            let is_last = life == 5;
            let (acknowledged, counter) = (Arc::clone(&acknowledged), Arc::clone(&acknowledged));
            let halfway = Arc::clone(&halfway);
            let script = async move {
                let runtime = builder.start().await.unwrap();
                if acknowledged.load(Ordering::SeqCst) == 0 {
                    for id in names(LEN) {
                        runtime.start(TALLY, &id, ()).await.unwrap();
                        let quick = runtime.start(QUICK, &format!("q-{id}"), 1);
                        quick
                            .on_conflict(OnConflict::Attach)
                            .await
                            .unwrap()
                            .result()
                            .await
                            .unwrap();
                    }
                    let signals = runtime.bulk(more(1)).ids(names(LEN)).per_second(20);
                    signals.start("signals").await.unwrap();
                    let again = names(LEN).into_iter().map(|id| format!("q-{id}"));
                    let again = runtime.bulk(BulkAction::StartAgain).ids(again).per_second(20);
                    again.start("again").await.unwrap();
                    acknowledged.store(1, Ordering::SeqCst);
                } else if let Ok(progress) = runtime.attach_bulk("signals").unwrap().progress().await {
                    let is_halfway = (1..LEN).contains(&progress.looked_at_len());
                    halfway.fetch_add(u64::from(is_halfway), Ordering::SeqCst);
                }
                if !is_last {
                    return std::future::pending::<()>().await;
                }
                for name in ["signals", "again"] {
                    let bulk = runtime.attach_bulk(name).unwrap();
                    let progress = bulk.result().await.unwrap();
                    assert_eq!(progress.done_len, LEN, "{name}: {progress:?}");
                    assert_eq!(bulk.progress().await.unwrap(), progress);
                }
                for id in names(LEN) {
                    let sum = runtime.attach(TALLY, &id).unwrap().query(SUM, ()).await;
                    assert_eq!(sum.unwrap(), 1, "seed {seed}: {id}");
                }
                let mut runs = BTreeMap::<String, u64>::new();
                for finished in runtime.list_finished(None, 10_000).await.unwrap() {
                    *runs.entry(finished.id.as_str().to_owned()).or_default() += 1;
                }
                assert_eq!(runs.len() as u64, LEN);
                assert!(runs.values().all(|len| *len == 2), "seed {seed}: {runs:?}");
                runtime.shutdown().await.unwrap();
            };
            if is_last {
                world.block_on(script).unwrap();
                break;
            }
            let task = world.host().spawn("script", Box::pin(script));
            let mut left = 150 + (seed * 37 + life * 91) % 400;
            let _outcome = world.run_until(|| {
                left -= u64::from(counter.load(Ordering::SeqCst) > 0);
                left == 0
            });
            world.crash();
            drop(task);
        }
    }
    assert!(
        halfway.load(Ordering::SeqCst) > 8,
        "most kills came halfway: {halfway:?}"
    );
}

/// Starts the instances of a bulk again with inputs of its own, again and again, while the bulk does, and kills the
/// process meanwhile. An act once looked which run was the latest, and started another run in a second step: others
/// had started and ended one in between, so that the instance ran once more than it was selected for.
#[test]
fn what_a_bulk_starts_again_directly_follows_the_run_that_it_has_selected() {
    const LEN: u64 = 12;
    let followed = Arc::new(AtomicU64::new(0));
    for seed in 1..=2_u64 {
        let store = Store::new();
        let inputs = Arc::new(AtomicU64::new(0));
        for life in 0..4_u64 {
            let mut config = SimConfig::seeded(seed * 1_000 + life);
            // Time passes for the bulk while the others never rest.
            config.step_time_max = Duration::from_micros(200);
            let world = SimHost::new(config);
            let builder = with_code(store.bare()).host(world.host());
            let is_last = life == 3;
            let (inputs, begun) = (Arc::clone(&inputs), Arc::clone(&inputs));
            let followed = Arc::clone(&followed);
            let script = async move {
                let runtime = builder.start().await.unwrap();
                let host = runtime.host();
                let quick = async |id: &str| {
                    let input = inputs.fetch_add(1, Ordering::SeqCst);
                    let start = runtime.start(QUICK, id, input);
                    let run = start.on_conflict(OnConflict::RestartFinished).await.unwrap();
                    run.result().await.unwrap();
                };
                if life == 0 {
                    for id in names(LEN) {
                        quick(&id).await;
                    }
                    let again = runtime.bulk(BulkAction::StartAgain).ids(names(LEN));
                    again.per_second(16).start("again").await.unwrap();
                }
                let bulk = runtime.attach_bulk("again").unwrap();
                let others = names(LEN).into_iter().map(async |id| {
                    loop {
                        // Now and then the bulk finds the run that it has selected, and now and then another.
                        for _ in 0..host.random() % 16 {
                            let run = runtime.attach(QUICK, &id).unwrap();
                            run.describe().await.unwrap();
                        }
                        quick(&id).await;
                    }
                });
                let others = futures_util::future::join_all(others);
                let progress = match select(pin!(bulk.result()), pin!(others)).await {
                    Either::Left((ended, _)) => ended.unwrap(),
                    Either::Right((never, _)) => panic!("{never:?}"),
                };
                assert_eq!(progress.done_len, LEN);
                if !is_last {
                    return std::future::pending::<()>().await;
                }
                // Runs of one instance are listed in the order in which they ran.
                let mut inputs_of = BTreeMap::<String, Vec<u64>>::new();
                for finished in runtime.list_finished(None, 10_000).await.unwrap() {
                    let page = runtime.history(finished.run, Sequence::ZERO, 1).await.unwrap();
                    let Event::Started(started) = &page.events[0].event else {
                        panic!("{page:?}");
                    };
                    let id = finished.id.as_str().to_owned();
                    let input = started.input.decode::<u64>().unwrap();
                    inputs_of.entry(id).or_default().push(input);
                }
                for (id, inputs) in inputs_of {
                    let mut others = inputs.clone();
                    others.dedup();
                    assert!(inputs.len() - others.len() <= 1, "seed {seed}: {id}: {inputs:?}");
                    followed.fetch_add((inputs.len() - others.len()) as u64, Ordering::SeqCst);
                    let len = others.len();
                    others.sort_unstable();
                    others.dedup();
                    assert_eq!(others.len(), len, "seed {seed}: {id}: {inputs:?}");
                }
                runtime.shutdown().await.unwrap();
            };
            if is_last {
                world.block_on(script).unwrap();
                break;
            }
            let task = world.host().spawn("script", Box::pin(script));
            let mut left = 100 + (seed * 37 + life * 91) % 300;
            let _outcome = world.run_until(|| {
                left -= u64::from(begun.load(Ordering::SeqCst) > LEN);
                left == 0
            });
            world.crash();
            drop(task);
        }
    }
    assert!(followed.load(Ordering::SeqCst) > 4, "{followed:?}");
}
