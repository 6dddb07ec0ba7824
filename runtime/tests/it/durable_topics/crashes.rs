//! A crash at every step of a seeded world: a record is there exactly if its run's history says so, what was acknowledged is
//! there, and in the end each value is there once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millrun::history::Event;
use millrun::store::{Journal, JournalConfig, MemoryJournal, Reads};
use millrun::topics::{DurableTopicHandle, ReadFrom};
use millrun::workflow::{OperationId, PublishOutcome};
use millrun::{
    Activity, ActivityContext, ActivityError, Runtime, RuntimeBuilder, Workflow, WorkflowContext,
    WorkflowError,
};
use millrun_testkit::{SimConfig, SimHost};
use millrun_workflow::wire;

use super::{NUMBERS, all};
use crate::support::{Store, committer, cut_off};

const STEP: Activity<u64, u64> = Activity::named("step");
const TELL: Workflow<u64, u64> = Workflow::named("tell");

/// How many values each run publishes, and how many come from outside.
const VALUES: u64 = 4;
const RUNS: u64 = 2;
const OUTSIDE: u64 = 4;

async fn step(_cx: ActivityContext, number: u64) -> Result<u64, ActivityError> {
    Ok(number + 1)
}

/// Two values one behind the other, two at once, with a step and a timer in between.
async fn tell(cx: WorkflowContext, first: u64) -> Result<u64, WorkflowError> {
    let taken = |outcome: PublishOutcome| assert_eq!(outcome, PublishOutcome::Taken);
    taken(cx.publish(NUMBERS, first).await?);
    let second = cx.call(STEP, first).await?;
    taken(cx.publish(NUMBERS, second).await?);
    cx.sleep(Duration::from_millis(5)).await?;
    let (third, fourth) = cx
        .join(cx.publish(NUMBERS, first + 2), cx.publish(NUMBERS, first + 3))
        .await;
    taken(third?);
    taken(fourth?);
    Ok(first)
}

/// How many publishes the histories in a journal say to have been made.
fn published(journal: &MemoryJournal) -> u64 {
    let kind = wire::kind(&Event::Published {
        operation: OperationId::new(1),
        outcome: Ok(PublishOutcome::Taken),
    });
    let mut count = 0;
    for run in journal.list_finished(None, usize::MAX).unwrap() {
        let history = journal.history(run.run).unwrap();
        count += history
            .records
            .iter()
            .filter(|record| record.kind == kind)
            .count() as u64;
    }
    let mut live = |record: millrun_persistence::RecordView<'_>| count += u64::from(record.kind == kind);
    journal.recover(&mut [&mut live], &mut |_| {}).unwrap();
    count
}

fn coded(builder: RuntimeBuilder) -> RuntimeBuilder {
    builder
        .durable_topic(NUMBERS)
        .register(STEP, step)
        .register(TELL, tell)
}

/// Begins all runs, and publishes all that comes from outside, unless that was done before.
async fn publish_all(runtime: &Runtime, acknowledged: &Mutex<BTreeSet<u64>>) {
    let topic = runtime.durable_topic(NUMBERS).unwrap();
    for run in 0..RUNS {
        drop(
            runtime
                .start(TELL, &format!("run-{run}"), run * 100)
                .await
                .unwrap(),
        );
    }
    for number in 1_000..1_000 + OUTSIDE {
        topic.publish(&number).id(&number.to_string()).await.unwrap();
        acknowledged.lock().unwrap().insert(number);
    }
}

async fn end_all(runtime: &Runtime) {
    for run in 0..RUNS {
        let handle = runtime.attach(TELL, &format!("run-{run}")).unwrap();
        assert_eq!(handle.result().await.unwrap(), run * 100);
    }
}

/// One life of `steps` steps that ends with a crash. Whether it had nothing left to do.
fn live(
    sim: &SimHost,
    builder: RuntimeBuilder,
    acknowledged: &Arc<Mutex<BTreeSet<u64>>>,
    steps: u64,
) -> bool {
    let acknowledged = Arc::clone(acknowledged);
    cut_off(sim, steps, async move {
        let runtime = builder.start().await.unwrap();
        publish_all(&runtime, &acknowledged).await;
        end_all(&runtime).await;
    })
}

/// One life of `steps` steps that ends with a crash, and another one that ends well. True if the first one had nothing left
/// to do.
fn play(seed: u64, steps: u64) -> bool {
    let acknowledged = Arc::new(Mutex::new(BTreeSet::new()));
    let open = |sim: &SimHost, journal: &Arc<MemoryJournal>| {
        let builder = Runtime::volatile().host(sim.host());
        coded(builder.journal(Arc::clone(journal) as Arc<dyn Journal>))
    };
    let first = Arc::new(MemoryJournal::held(JournalConfig::default()).unwrap());
    let sim = SimHost::new(SimConfig::seeded(seed));
    let host = sim.host();
    let commits = host.spawn("committer", Box::pin(committer(sim.host(), Arc::clone(&first))));
    let is_done = live(&sim, open(&sim, &first), &acknowledged, steps);
    drop(commits);
    let found = Arc::new(first.reopened());
    let last = |journal: &MemoryJournal| {
        journal
            .topics()
            .unwrap()
            .list()
            .first()
            .map_or(0, |topic| topic.last.get())
    };
    let outside = ids_of_outside(&found);
    assert_eq!(
        last(&found),
        published(&first.reopened()) + outside.len() as u64,
        "seed {seed}, {steps} steps: a record without its turn, or a turn without its record"
    );
    assert!(
        acknowledged.lock().unwrap().is_subset(&outside),
        "seed {seed}, {steps} steps"
    );
    let sim = SimHost::new(SimConfig::seeded(seed + 1));
    let commits = sim
        .host()
        .spawn("committer", Box::pin(committer(sim.host(), Arc::clone(&found))));
    let script = async {
        let runtime = open(&sim, &found).start().await.unwrap();
        publish_all(&runtime, &acknowledged).await;
        end_all(&runtime).await;
        let topic = runtime.durable_topic(NUMBERS).unwrap();
        check_whole(&topic, &runtime).await;
    };
    sim.block_on(script).unwrap();
    sim.crash();
    drop(commits);
    is_done
}

/// The values in a journal that came from outside.
fn ids_of_outside(journal: &MemoryJournal) -> BTreeSet<u64> {
    let sim = SimHost::new(SimConfig::seeded(1));
    let copy: Arc<MemoryJournal> = Arc::new(journal.reopened());
    let commits = sim
        .host()
        .spawn("committer", Box::pin(committer(sim.host(), Arc::clone(&copy))));
    let numbers = sim.block_on(async {
        let builder = Runtime::volatile()
            .host(sim.host())
            .journal(copy)
            .durable_topic(NUMBERS);
        let runtime = builder.start().await.unwrap();
        let topic = runtime.durable_topic(NUMBERS).unwrap();
        let read = all(&topic, &runtime, ReadFrom::Beginning).await.into_iter();
        let of_nobody = read
            .map(Result::unwrap)
            .filter(|record| record.run_cause().is_none());
        of_nobody
            .map(millrun::topics::DurableRecord::into_payload)
            .collect()
    });
    sim.crash();
    drop(commits);
    numbers.unwrap()
}

/// Each value is there once, and those of a run, and those from outside, in their order.
async fn check_whole(topic: &DurableTopicHandle<u64>, runtime: &Runtime) {
    let mut by_run: BTreeMap<Option<String>, Vec<u64>> = BTreeMap::new();
    for record in all(topic, runtime, ReadFrom::Beginning).await {
        let record = record.unwrap();
        let of = record.key().map(str::to_owned);
        by_run.entry(of).or_default().push(record.into_payload());
    }
    let of_run = |run: u64| {
        (
            Some(format!("run-{run}")),
            (run * 100..run * 100 + VALUES).collect(),
        )
    };
    let mut expected: BTreeMap<_, Vec<u64>> = (0..RUNS).map(of_run).collect();
    expected.insert(None, (1_000..1_000 + OUTSIDE).collect());
    assert_eq!(by_run, expected);
}

/// As [`play`], with a store in a file.
fn play_in_file(seed: u64, steps: u64) -> bool {
    let store = Store::new();
    let acknowledged = Arc::new(Mutex::new(BTreeSet::new()));
    let open = |sim: &SimHost| {
        let builder = Runtime::open(store.path()).host(sim.host());
        coded(builder)
    };
    let sim = SimHost::new(SimConfig::seeded(seed));
    let is_done = live(&sim, open(&sim), &acknowledged, steps);
    let sim = SimHost::new(SimConfig::seeded(seed + 1));
    let script = async {
        let runtime = open(&sim).start().await.unwrap();
        let topic = runtime.durable_topic(NUMBERS).unwrap();
        let read = all(&topic, &runtime, ReadFrom::Beginning).await.into_iter();
        let outside = read
            .map(Result::unwrap)
            .filter(|record| record.run_cause().is_none());
        let outside: BTreeSet<u64> = outside
            .map(millrun::topics::DurableRecord::into_payload)
            .collect();
        assert!(
            acknowledged.lock().unwrap().is_subset(&outside),
            "seed {seed}, {steps} steps"
        );
        publish_all(&runtime, &acknowledged).await;
        end_all(&runtime).await;
        check_whole(&topic, &runtime).await;
        runtime.shutdown().await.unwrap();
    };
    sim.block_on(script).unwrap();
    is_done
}

#[test]
fn a_crash_at_any_step_of_a_runtime_with_a_file_leaves_each_value_once_in_the_end() {
    for seed in 1..=2 {
        let mut steps = seed;
        while !play_in_file(seed * 1_000, steps) {
            steps += 5;
        }
        assert!(steps > 30, "a play has {steps} steps");
    }
}

#[test]
fn a_crash_at_any_step_leaves_a_turn_and_its_record_or_neither_and_in_the_end_each_value_once() {
    for seed in 1..=3 {
        // Seeds begin at different steps, and take every third.
        let mut steps = seed;
        while !play(seed * 1_000, steps) {
            steps += 3;
        }
        assert!(steps > 30, "a play has {steps} steps");
    }
}
