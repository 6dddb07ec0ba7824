//! Finding runs by one filter, and counting them.

use std::path::Path;

use millrun::operating::{BulkAction, RunSearch, RunStatus, RunSummary, TimeRange, WorkflowCounts};
use millrun::{
    InstanceId, OnConflict, RunError, Runtime, RuntimeBuilder, RuntimeConfig, Signal, Timestamp, Workflow,
    WorkflowContext, WorkflowError,
};
use millrun_testkit::{SimConfig, SimHost};

const GO: Signal<bool> = Signal::named("go");
const ORDER: Workflow<(), u64> = Workflow::named("order");
const TRIP: Workflow<(), u64> = Workflow::named("trip");
/// Not registered in the second life.
const OLD: Workflow<(), u64> = Workflow::named("old");

async fn wait(cx: WorkflowContext, (): ()) -> Result<u64, WorkflowError> {
    if cx.receive(GO).await? {
        return Ok(7);
    }
    Err(WorkflowError::failed("it was not to go"))
}

/// Keeps no code and no results in memory, so that all that is found has to be found without them.
fn configure(config: &mut RuntimeConfig) {
    config.hot_len_max = 0;
    config.result_cache_len_max = 0;
}

fn open(world: &SimHost, path: &Path) -> RuntimeBuilder {
    Runtime::open(path)
        .host(world.host())
        .configure(configure)
        .register(ORDER, wait)
        .register(TRIP, wait)
}

/// All pages, of `len_max` runs each.
async fn all(runtime: &Runtime, filter: &RunSearch, len_max: usize) -> Vec<RunSummary> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = runtime.find(filter, after, len_max).await.unwrap();
        assert!(page.runs.len() <= len_max && page.unreadable == 0);
        found.extend(page.runs);
        let Some(next) = page.next else { return found };
        // What is passed on as text comes back.
        after = Some(next.to_string().parse().unwrap());
    }
}

/// What is known of a run that was started.
#[derive(Clone, Debug)]
struct Started {
    id: String,
    workflow: &'static str,
    status: RunStatus,
    began: Timestamp,
    ended: Option<Timestamp>,
}

/// Starts 120 runs of three workflows and does to each what its number says.
async fn play(runtime: &Runtime) -> Vec<Started> {
    let host = runtime.host().clone();
    let mut started = Vec::new();
    for number in 0..120_u64 {
        let workflow = [ORDER, TRIP, OLD][usize::try_from(number % 3).unwrap()];
        let id = format!("{}-{}", ["a", "b"][usize::try_from(number % 2).unwrap()], number);
        let began = host.now();
        let run = runtime.start(workflow, &id, ()).await.unwrap();
        let status = match number / 3 % 7 {
            0 => {
                run.signal(GO, true).await.unwrap();
                run.result().await.unwrap();
                RunStatus::Completed
            }
            1 => {
                run.signal(GO, false).await.unwrap();
                run.result().await.unwrap_err();
                RunStatus::Failed
            }
            2 => {
                run.cancel("enough").await.unwrap();
                run.result().await.unwrap_err();
                RunStatus::Cancelled
            }
            3 => {
                run.terminate("at once").await.unwrap();
                RunStatus::Terminated
            }
            4 => {
                run.pause("for now").await.unwrap();
                RunStatus::Paused
            }
            _ => RunStatus::Running,
        };
        let is_live = matches!(status, RunStatus::Paused | RunStatus::Running);
        started.push(Started {
            id,
            workflow: workflow.name(),
            status,
            began,
            ended: (!is_live).then(|| host.now()),
        });
        host.sleep_until(Timestamp::from_micros(host.now().as_micros() + 1_000_000))
            .await;
    }
    started
}

/// Live runs, the latest begun first, then finished ones, the latest ended first.
fn expected(started: &[Started], is_it: impl Fn(&Started) -> bool) -> Vec<(String, RunStatus)> {
    let live = started.iter().rev().filter(|run| run.ended.is_none());
    let finished = started.iter().rev().filter(|run| run.ended.is_some());
    let all = live.chain(finished).filter(|run| is_it(run));
    all.map(|run| (run.id.clone(), run.status)).collect()
}

async fn check(runtime: &Runtime, started: &[Started]) {
    type Case = (RunSearch, Box<dyn Fn(&Started) -> bool>);
    let middle = |started: &[Started]| started[60].began;
    let late = TimeRange {
        from: middle(started),
        ..TimeRange::default()
    };
    let early = TimeRange {
        until: middle(started),
        ..TimeRange::default()
    };
    let since = middle(started);
    let mut cases: Vec<Case> = vec![
        (RunSearch::new(), Box::new(|_| true)),
        (
            RunSearch::new().workflow("trip"),
            Box::new(|run| run.workflow == "trip"),
        ),
        (RunSearch::new().workflow("none"), Box::new(|_| false)),
        (
            RunSearch::new().id_prefix("b-1"),
            Box::new(|run| run.id.starts_with("b-1")),
        ),
        (
            RunSearch::new().started(late),
            Box::new(move |run| run.began >= since),
        ),
        (
            RunSearch::new().started(early),
            Box::new(move |run| run.began < since),
        ),
        (
            RunSearch::new().ended(late),
            Box::new(move |run| run.ended.is_some_and(|ended| ended >= since)),
        ),
        (
            RunSearch::new()
                .workflow("order")
                .status(RunStatus::Failed)
                .status(RunStatus::Paused)
                .id_prefix("a")
                .started(late),
            Box::new(move |run| {
                run.workflow == "order"
                    && matches!(run.status, RunStatus::Failed | RunStatus::Paused)
                    && run.id.starts_with('a')
                    && run.began >= since
            }),
        ),
    ];
    for status in RunStatus::ALL {
        cases.push((
            RunSearch::new().status(status),
            Box::new(move |run| run.status == status),
        ));
    }
    for (filter, is_it) in cases {
        for len_max in [1, 7, 1_000] {
            let found = all(runtime, &filter, len_max).await;
            let found: Vec<_> = found.iter().map(|run| (run.id.to_string(), run.status)).collect();
            assert_eq!(
                found,
                expected(started, &is_it),
                "{filter:?}, {len_max} at a time"
            );
        }
    }
    for found in all(runtime, &RunSearch::new(), 50).await {
        let of = started.iter().find(|run| run.id == found.id.as_str()).unwrap();
        assert_eq!(found.workflow, of.workflow);
        let millis = |time: Timestamp| time.as_millis();
        assert!(millis(found.started_at).abs_diff(millis(of.began)) < 1_000);
        assert_eq!(found.ended_at.is_some(), of.ended.is_some());
    }
}

#[test]
fn one_filter_finds_live_and_finished_runs_the_latest_first_and_wakes_none() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.redb");
    let world = SimHost::new(SimConfig::seeded(5));
    let first = open(&world, &path).register(OLD, wait);
    let mut started = world
        .block_on(async {
            let runtime = first.start().await.unwrap();
            let started = play(&runtime).await;
            let loads = runtime.stats().loads;
            check(&runtime, &started).await;
            let stats = runtime.stats();
            assert_eq!((stats.loads, stats.hot), (loads, 0));
            runtime.shutdown().await.unwrap();
            started
        })
        .unwrap();
    for run in &mut started {
        if run.workflow == "old" && run.ended.is_none() {
            run.status = RunStatus::NotRegistered;
        }
    }
    // As it is found by a program without one of the workflows, of a file.
    let world = SimHost::new(SimConfig::seeded(6));
    world
        .block_on(async {
            let runtime = open(&world, &path).start().await.unwrap();
            check(&runtime, &started).await;
            assert_eq!(runtime.stats().loads, 0);
            runtime.shutdown().await.unwrap();
        })
        .unwrap();
}

#[test]
fn an_instance_that_runs_again_is_found_with_both_of_its_runs() {
    let world = SimHost::new(SimConfig::seeded(1));
    let builder = Runtime::volatile().host(world.host()).register(ORDER, wait);
    world
        .block_on(async {
            let runtime = builder.start().await.unwrap();
            let run = runtime.start(ORDER, "again", ()).await.unwrap();
            run.signal(GO, true).await.unwrap();
            run.result().await.unwrap();
            let again = runtime.start(ORDER, "again", ());
            again.on_conflict(OnConflict::RestartFinished).await.unwrap();
            let found = all(&runtime, &RunSearch::new().id_prefix("again"), 10).await;
            let statuses: Vec<_> = found.iter().map(|run| run.status).collect();
            assert_eq!(statuses, [RunStatus::Running, RunStatus::Completed]);
            runtime.shutdown().await.unwrap();
        })
        .unwrap();
}

#[test]
fn a_run_that_lives_while_pages_are_read_is_in_one_of_them() {
    for seed in 0..10 {
        let world = SimHost::new(SimConfig::seeded(seed));
        let builder = Runtime::volatile().host(world.host()).register(ORDER, wait);
        world
            .block_on(async {
                let runtime = builder.start().await.unwrap();
                for number in 0..200 {
                    runtime.start(ORDER, &format!("kept-{number}"), ()).await.unwrap();
                }
                let (mut found, mut after, mut number) = (Vec::new(), None, 0);
                loop {
                    let page = runtime.find(&RunSearch::new(), after, 9).await.unwrap();
                    let ids = page.runs.iter().map(|run| run.id.to_string());
                    found.extend(ids.filter(|id| id.starts_with("kept")));
                    for _ in 0..20 {
                        number += 1;
                        let run = runtime
                            .start(ORDER, &format!("brief-{number}"), ())
                            .await
                            .unwrap();
                        run.signal(GO, number % 2 == 0).await.unwrap();
                    }
                    after = page.next;
                    if after.is_none() || found.len() >= 200 {
                        break;
                    }
                }
                found.sort();
                found.dedup();
                assert_eq!(found.len(), 200, "seed {seed}");
                runtime.shutdown().await.unwrap();
            })
            .unwrap();
    }
}

#[test]
fn instances_are_listed_by_pages_in_the_order_of_their_ids() {
    let world = SimHost::new(SimConfig::seeded(3));
    let builder = Runtime::volatile().host(world.host()).register(ORDER, wait);
    world
        .block_on(async {
            let runtime = builder.start().await.unwrap();
            let mut expected = Vec::new();
            for number in 0..150 {
                let id = format!("i-{}", number * 7 % 150);
                let run = runtime.start(ORDER, &id, ()).await.unwrap();
                if number % 4 == 0 {
                    run.terminate("enough").await.unwrap();
                } else {
                    expected.push(InstanceId::new(&id).unwrap());
                }
            }
            expected.sort();
            let (mut listed, mut after) = (Vec::new(), None);
            loop {
                let page = runtime.list(after.as_ref(), 11).await.unwrap();
                let Some(last) = page.last() else { break };
                after = Some(last.id.clone());
                listed.extend(page.into_iter().map(|summary| summary.id));
            }
            assert_eq!(listed, expected);
            runtime.shutdown().await.unwrap();
        })
        .unwrap();
}

fn counts_of(runtime: &Runtime, workflow: &str) -> WorkflowCounts {
    let counts = runtime.counts();
    let of = counts.workflows.into_iter().find(|of| of.workflow == workflow);
    of.unwrap_or_default()
}

/// What `play` comes to for one of its workflows.
fn tally(started: &[Started], workflow: &str, is_first_life: bool) -> [u64; 8] {
    let count = |status| {
        let of = started.iter().filter(|run| run.workflow == workflow);
        let len = of.filter(|run| run.status == status).count();
        u64::try_from(len).unwrap()
    };
    let ended = |status| if is_first_life { count(status) } else { 0 };
    [
        count(RunStatus::Running),
        count(RunStatus::Parked),
        count(RunStatus::Paused),
        count(RunStatus::NotRegistered),
        ended(RunStatus::Completed),
        ended(RunStatus::Failed),
        ended(RunStatus::Cancelled),
        ended(RunStatus::Terminated),
    ]
}

fn numbers(counts: &WorkflowCounts) -> [u64; 8] {
    [
        counts.running,
        counts.parked,
        counts.paused,
        counts.not_registered,
        counts.completed,
        counts.failed,
        counts.cancelled,
        counts.terminated,
    ]
}

#[test]
fn runs_are_counted_by_workflow_and_status_also_behind_a_failed_shard_and_in_the_next_life() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.redb");
    let world = SimHost::new(SimConfig::seeded(8));
    let first = open(&world, &path).register(OLD, wait);
    let mut started = world
        .block_on(async {
            let runtime = first.start().await.unwrap();
            let started = play(&runtime).await;
            for workflow in ["order", "trip", "old"] {
                let counts = counts_of(&runtime, workflow);
                assert_eq!(numbers(&counts), tally(&started, workflow, true), "{workflow}");
            }
            let shards = runtime
                .parts()
                .into_iter()
                .filter(|part| part.name.starts_with("shard"));
            for shard in shards {
                runtime.kill(&shard.name).unwrap();
            }
            let host = runtime.host().clone();
            host.sleep_until(Timestamp::from_micros(host.now().as_micros() + 10_000_000))
                .await;
            for workflow in ["order", "trip", "old"] {
                let counts = counts_of(&runtime, workflow);
                assert_eq!(numbers(&counts), tally(&started, workflow, true), "{workflow}");
            }
            runtime.shutdown().await.unwrap();
            started
        })
        .unwrap();
    for run in &mut started {
        if run.workflow == "old" && run.ended.is_none() {
            run.status = RunStatus::NotRegistered;
        }
    }
    let world = SimHost::new(SimConfig::seeded(9));
    world
        .block_on(async {
            let runtime = open(&world, &path).start().await.unwrap();
            for workflow in ["order", "trip", "old"] {
                let counts = counts_of(&runtime, workflow);
                assert_eq!(numbers(&counts), tally(&started, workflow, false), "{workflow}");
                assert_eq!(counts.live(), numbers(&counts)[..4].iter().sum::<u64>());
            }
            runtime.shutdown().await.unwrap();
        })
        .unwrap();
}

#[test]
fn workflows_beyond_the_bound_are_counted_together() {
    let world = SimHost::new(SimConfig::seeded(2));
    let builder = Runtime::volatile().host(world.host());
    world
        .block_on(async {
            let runtime = builder.start().await.unwrap();
            for number in 0..300 {
                let (name, id) = (format!("w-{number}"), format!("i-{number}"));
                let start = runtime.start_untyped(&name, &id, millrun::Payload::encode(&()).unwrap());
                start.await.unwrap();
            }
            let counts = runtime.counts();
            assert_eq!((counts.workflows.len(), counts.others.live()), (256, 44));
            assert_eq!(counts.workflows[0].not_registered, 1);
            runtime.shutdown().await.unwrap();
        })
        .unwrap();
}

/// A shard that had counted some workflow with the others did so with all that were new to it, also with those that have a
/// row of their own since another shard has asked for one; and a bulk that came behind 256 workflows was not counted.
#[test]
fn a_workflow_is_counted_in_one_row_by_all_shards_and_bulks_have_theirs() {
    let world = SimHost::new(SimConfig::seeded(3));
    let builder = Runtime::volatile().host(world.host());
    let builder = builder.configure(|config| config.shards_len = 4);
    world
        .block_on(async {
            let runtime = builder.start().await.unwrap();
            for round in 0..4 {
                for number in 0..260 {
                    let (name, id) = (format!("w-{number}"), format!("i-{round}-{number}"));
                    let start = runtime.start_untyped(&name, &id, millrun::Payload::encode(&()).unwrap());
                    start.await.unwrap();
                }
            }
            let cancel = BulkAction::Cancel {
                reason: "the shop has closed".into(),
            };
            let bulk = runtime.bulk(cancel).ids(["a", "b", "c"]).per_second(1);
            let bulk = bulk.start("slow").await.unwrap();
            let counts = runtime.counts();
            assert_eq!((counts.workflows.len(), counts.others.live()), (256, 16));
            for row in &counts.workflows {
                assert_eq!(row.live(), 4, "{}", row.workflow);
            }
            assert_eq!(counts.bulks_running, 1);
            bulk.result().await.unwrap();
            assert_eq!(runtime.counts().bulks_running, 0);
            runtime.shutdown().await.unwrap();
        })
        .unwrap();
}

#[test]
fn who_looks_for_runs_of_a_runtime_that_has_stopped_is_told() {
    let world = SimHost::new(SimConfig::seeded(4));
    let builder = Runtime::volatile().host(world.host()).register(ORDER, wait);
    world
        .block_on(async {
            let runtime = builder.start().await.unwrap();
            runtime.shutdown().await.unwrap();
            let found = runtime.find(&RunSearch::new(), None, 10).await;
            assert!(matches!(found, Err(RunError::Stopped(_))), "{found:?}");
        })
        .unwrap();
}
