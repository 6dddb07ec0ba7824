//! Versions of workflows side by side: which code a run gets, what becomes of the runs of earlier versions, and what is parked.

use std::time::Duration;

use millrun::history::{Event, Sequence};
use millrun::operating::{InstanceStatus, ParkReason, RunSearch, RunStatus, WorkflowVersion};
use millrun::{
    OpenError, ResultError, Runtime, RuntimeBuilder, Signal, VersionPolicy, Workflow, WorkflowContext,
    WorkflowError,
};
use millrun_testkit::{SimConfig, SimHost};

use crate::crashes::cut_off;
use crate::support::{DOUBLE, Store, double};

const GO: Signal<u64> = Signal::named("go");
const END: Signal<u64> = Signal::named("end");
const FLOW: Workflow<u64, String> = Workflow::named("flow");
const FLOW_1: Workflow<u64, String> = FLOW.version(1);
const FLOW_2: Workflow<u64, String> = FLOW.version(2);

async fn flow_1(cx: WorkflowContext, number: u64) -> Result<String, WorkflowError> {
    let doubled = cx.call(DOUBLE, number).await?;
    let go = cx.receive(GO).await?;
    cx.receive(END).await?;
    Ok(format!("1: {}", doubled + go))
}

/// Decides otherwise behind the signal.
async fn flow_2(cx: WorkflowContext, number: u64) -> Result<String, WorkflowError> {
    let doubled = cx.call(DOUBLE, number).await?;
    let go = cx.receive(GO).await?;
    let more = cx.call(DOUBLE, go).await?;
    cx.receive(END).await?;
    Ok(format!("2: {}", doubled + more))
}

/// Decides otherwise from its beginning.
async fn flow_unfit(cx: WorkflowContext, _: u64) -> Result<String, WorkflowError> {
    cx.sleep(Duration::from_secs(3_600)).await?;
    Ok("unfit".into())
}

fn bare(store: &Store) -> RuntimeBuilder {
    store.bare().register(DOUBLE, double)
}

/// A store with runs of version 1 which wait for the signal, named `f-0` and so on.
async fn left(runs: u64) -> Store {
    let store = Store::new();
    let runtime = bare(&store).register(FLOW_1, flow_1).start().await.unwrap();
    for number in 0..runs {
        let run = runtime.start(FLOW_1, &format!("f-{number}"), 5).await.unwrap();
        run.until_described(|run| run.awaits(GO.name())).await.unwrap();
    }
    runtime.shutdown().await.unwrap();
    store
}

async fn told_to_end(runtime: &Runtime, id: &str) -> Result<String, ResultError<WorkflowError>> {
    let run = runtime.attach(FLOW, id).unwrap();
    run.signal(GO, 7).await.unwrap();
    run.signal(END, 0).await.unwrap();
    run.result().await
}

/// The versions to which the run has moved.
async fn moves(runtime: &Runtime, id: &str) -> Vec<u32> {
    let run = runtime.attach(FLOW, id).unwrap().describe().await.unwrap().run;
    let page = runtime.history(run, Sequence::ZERO, 1_000).await.unwrap();
    let events = page.events.iter();
    let versions = events.filter_map(|recorded| match recorded.event {
        Event::VersionChanged { version } => Some(version),
        _ => None,
    });
    versions.collect()
}

fn of(runtime: &Runtime, version: u32) -> WorkflowVersion {
    let versions = runtime.versions().into_iter();
    let mut versions = versions.filter(|one| one.version == version);
    versions
        .next()
        .unwrap_or_else(|| panic!("version {version} is not listed"))
}

/// Waits until that is so; parts go on meanwhile.
async fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn pinned_runs_end_with_the_code_they_began_with_and_new_ones_have_the_newest() {
    let store = left(1).await;
    // In whatever order they are registered.
    let builder = bare(&store).register(FLOW_2, flow_2).register(FLOW_1, flow_1);
    let runtime = builder.start().await.unwrap();
    assert_eq!((of(&runtime, 1).live, of(&runtime, 1).is_deletable), (1, false));
    let new = runtime.start(FLOW, "new", 5).await.unwrap();
    assert_eq!(new.describe().await.unwrap().version, 2);
    let former = runtime.attach(FLOW, "f-0").unwrap();
    assert_eq!(former.describe().await.unwrap().version, 1);
    assert_eq!(runtime.catalogue().workflows[0].version, 2);

    assert_eq!(told_to_end(&runtime, "f-0").await.unwrap(), "1: 17");
    assert_eq!(told_to_end(&runtime, "new").await.unwrap(), "2: 24");
    let (first, second) = (of(&runtime, 1), of(&runtime, 2));
    assert!(first.is_deletable && first.live == 0, "{first:?}");
    assert!(second.is_newest && !second.is_deletable, "{second:?}");
    assert_eq!(runtime.counts().workflows[0].completed, 2);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_run_whose_version_is_not_registered_is_parked_and_listed_with_what_it_needs() {
    let store = left(2).await;
    let runtime = bare(&store).register(FLOW_2, flow_2).start().await.unwrap();
    assert_eq!(runtime.startup_report().not_registered, 2);
    let run = runtime.attach(FLOW, "f-0").unwrap();
    run.signal(GO, 7).await.unwrap();
    let Err(ResultError::Parked(reason)) = run.result().await else {
        panic!("it is not parked");
    };
    let expected = ParkReason::NotRegistered {
        workflow: "flow".into(),
        version: 1,
        registered: vec![2],
    };
    assert_eq!(*reason, expected);
    assert_eq!(
        reason.to_string(),
        "version 1 of the workflow \"flow\" is not registered: version 2 is"
    );
    assert_eq!(
        run.describe().await.unwrap().status,
        InstanceStatus::NotRegistered
    );
    let waiting = RunSearch::new().status(RunStatus::NotRegistered);
    let page = runtime.find(&waiting, None, 10).await.unwrap();
    let found: Vec<_> = page
        .runs
        .iter()
        .map(|run| (run.id.as_str(), run.version))
        .collect();
    assert_eq!(found, [("f-1", Some(1)), ("f-0", Some(1))]);
    assert_eq!(runtime.counts().workflows[0].not_registered, 2);
    let needed = of(&runtime, 1);
    assert_eq!((needed.live, needed.is_registered), (2, false));
    runtime.shutdown().await.unwrap();
    drop((run, runtime));

    // What it was told meanwhile is not lost.
    let builder = bare(&store).register(FLOW_2, flow_2).register(FLOW_1, flow_1);
    let runtime = builder.start().await.unwrap();
    let run = runtime.attach(FLOW, "f-0").unwrap();
    run.signal(END, 0).await.unwrap();
    assert_eq!(run.result().await.unwrap(), "1: 17");
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn runs_that_record_no_version_have_version_0() {
    let store = Store::new();
    let runtime = bare(&store).register(FLOW, flow_1).start().await.unwrap();
    runtime.start(FLOW, "f-0", 5).await.unwrap();
    runtime.shutdown().await.unwrap();
    drop(runtime);
    let builder = bare(&store).register(FLOW, flow_1).register(FLOW_2, flow_2);
    let runtime = builder.start().await.unwrap();
    assert_eq!(of(&runtime, 0).live, 1);
    assert_eq!(told_to_end(&runtime, "f-0").await.unwrap(), "1: 17");
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn two_codes_of_one_version_and_versions_that_go_back_are_refused_and_nothing_changes() {
    let store = left(1).await;
    let builder = bare(&store).register(FLOW_2, flow_2).register(FLOW_2, flow_1);
    let refused = builder.start().await.unwrap_err();
    assert!(
        matches!(
            refused,
            OpenError::VersionRegisteredTwice {
                name: "flow",
                version: 2
            }
        ),
        "{refused}"
    );
    let builder = || bare(&store).register(FLOW, flow_2);
    let refused = builder().start().await.unwrap_err();
    let OpenError::VersionsGoBack {
        workflow,
        newest: 0,
        version: 1,
        runs: 1,
    } = &refused
    else {
        panic!("{refused}");
    };
    assert_eq!(workflow, "flow");
    assert!(
        refused.to_string().contains("register version 1 too"),
        "{refused}"
    );

    let runtime = builder().configure(|config| config.versions_may_go_back = true);
    let runtime = runtime.start().await.unwrap();
    let parked = runtime.attach(FLOW, "f-0").unwrap().result().await;
    assert!(matches!(parked, Err(ResultError::Parked(_))), "{parked:?}");
    runtime.shutdown().await.unwrap();
    drop(runtime);

    let runtime = bare(&store).register(FLOW_1, flow_1).start().await.unwrap();
    assert_eq!(told_to_end(&runtime, "f-0").await.unwrap(), "1: 17");
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn fitting_runs_move_in_the_background_without_being_told_anything() {
    let store = left(20).await;
    let builder = bare(&store).register(FLOW_1, flow_1);
    let builder = builder.register(FLOW_2.policy(VersionPolicy::MoveIfFits), flow_2);
    let runtime = builder.start().await.unwrap();
    until(|| of(&runtime, 1).is_deletable).await;
    assert_eq!((of(&runtime, 2).live, of(&runtime, 2).parked), (20, 0));
    assert_eq!(runtime.stats().versions_changed, 20);
    assert_eq!(moves(&runtime, "f-7").await, [2]);
    assert_eq!(told_to_end(&runtime, "f-7").await.unwrap(), "2: 24");
    runtime.shutdown().await.unwrap();
    drop(runtime);

    // They need no other code from now on, and do not move twice.
    let runtime = bare(&store).register(FLOW_2, flow_2).start().await.unwrap();
    assert_eq!(told_to_end(&runtime, "f-8").await.unwrap(), "2: 24");
    assert_eq!(moves(&runtime, "f-8").await, [2]);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_run_that_does_not_fit_stays_as_long_as_its_code_is_there_and_is_parked_otherwise() {
    let store = left(1).await;
    let newest = || FLOW_2.policy(VersionPolicy::MoveIfFits);
    let runtime = bare(&store).register(newest(), flow_unfit).start().await.unwrap();
    let run = runtime.attach(FLOW, "f-0").unwrap();
    let Err(ResultError::Parked(reason)) = runtime.attach(FLOW, "f-0").unwrap().result().await else {
        panic!("it is not parked");
    };
    assert!(
        matches!(*reason, ParkReason::NotRegistered { version: 1, .. }),
        "{reason}"
    );
    assert!(run.resume().await.is_err());
    runtime.shutdown().await.unwrap();
    drop((run, runtime));

    let builder = bare(&store)
        .register(newest(), flow_unfit)
        .register(FLOW_1, flow_1);
    let runtime = builder
        .configure(|config| config.hot_len_max = 0)
        .start()
        .await
        .unwrap();
    until(|| runtime.stats().versions_unfit > 0).await;
    assert_eq!(told_to_end(&runtime, "f-0").await.unwrap(), "1: 17");
    assert!(moves(&runtime, "f-0").await.is_empty());
    // It was tried once, however often it was read.
    let stats = runtime.stats();
    assert_eq!((stats.versions_unfit, stats.versions_changed), (1, 0));
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_run_that_must_move_is_parked_with_the_difference_until_newer_code_fits_it() {
    let store = left(1).await;
    let builder = bare(&store).register(FLOW_1, flow_1);
    let builder = builder.register(FLOW_2.policy(VersionPolicy::MustMove), flow_unfit);
    let runtime = builder.start().await.unwrap();
    let run = runtime.attach(FLOW, "f-0").unwrap();
    run.signal(GO, 7).await.unwrap();
    let Err(ResultError::Parked(reason)) = runtime.attach(FLOW, "f-0").unwrap().result().await else {
        panic!("it is not parked");
    };
    let ParkReason::Nondeterminism(difference) = *reason else {
        panic!("{reason}");
    };
    assert!(difference.recorded.contains("call of double"), "{difference}");
    assert!(run.resume().await.is_err());
    let first = of(&runtime, 1);
    assert_eq!((first.live, first.parked, first.is_deletable), (1, 1, false));
    runtime.shutdown().await.unwrap();
    drop((run, runtime));

    let builder = bare(&store).register(FLOW.version(3).policy(VersionPolicy::MustMove), flow_2);
    let runtime = builder.start().await.unwrap();
    let run = runtime.attach(FLOW, "f-0").unwrap();
    run.signal(END, 0).await.unwrap();
    assert_eq!(run.result().await.unwrap(), "2: 24");
    assert_eq!(moves(&runtime, "f-0").await, [3]);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_preflight_tries_each_run_on_the_code_that_it_would_have() {
    let store = left(3).await;
    let preflight = async |builder: RuntimeBuilder| builder.preflight().await.unwrap();
    let newest = |policy| FLOW_2.policy(policy);

    let report = preflight(bare(&store).register(FLOW_2, flow_2)).await;
    assert!(!report.is_fit());
    let text = report.to_string();
    assert!(
        text.contains("version 1 of the workflow \"flow\" is not registered"),
        "{text}"
    );

    let both = bare(&store).register(FLOW_2, flow_unfit).register(FLOW_1, flow_1);
    let report = preflight(both).await;
    assert!(report.is_fit() && report.workflows[0].moving == 0, "{report}");

    let moving = bare(&store).register(newest(VersionPolicy::MoveIfFits), flow_2);
    let report = preflight(moving).await;
    assert_eq!(
        (report.workflows[0].fit, report.workflows[0].moving),
        (3, 3),
        "{report}"
    );

    let unfit = bare(&store).register(newest(VersionPolicy::MoveIfFits), flow_unfit);
    assert!(!preflight(unfit).await.is_fit());
    let unfit = bare(&store).register(newest(VersionPolicy::MoveIfFits), flow_unfit);
    let report = preflight(unfit.register(FLOW_1, flow_1)).await;
    assert!(report.is_fit() && report.workflows[0].moving == 0, "{report}");

    let unfit = bare(&store).register(newest(VersionPolicy::MustMove), flow_unfit);
    let report = preflight(unfit.register(FLOW_1, flow_1)).await;
    assert_eq!(report.findings[0].runs, 3, "{report}");
}

const COUNT: Workflow<u64, String> = Workflow::named("count");

/// Goes on in another run with each signal, and tells with which code it began.
async fn counting(cx: WorkflowContext, version: u32, count: u64) -> Result<String, WorkflowError> {
    match cx.receive(GO).await? {
        0 => Ok(format!("{version}: {count}")),
        more => Ok(cx.continue_as_new(COUNT, count + more).await?),
    }
}

#[tokio::test]
async fn a_chain_stays_with_its_version_if_it_is_pinned_and_takes_the_newest_otherwise() {
    for (policy, expected) in [
        (VersionPolicy::Pinned, "1: 3"),
        (VersionPolicy::MoveIfFits, "2: 3"),
    ] {
        let store = Store::new();
        let runtime = store
            .bare()
            .register(COUNT.version(1), async |cx, count| counting(cx, 1, count).await);
        let runtime = runtime.start().await.unwrap();
        runtime.start(COUNT, "c", 1).await.unwrap();
        runtime.shutdown().await.unwrap();
        drop(runtime);
        let builder = store
            .bare()
            .register(COUNT.version(1), async |cx, count| counting(cx, 1, count).await);
        let newest = COUNT.version(2).policy(policy);
        let builder = builder.register(newest, async |cx, count| counting(cx, 2, count).await);
        let runtime = builder.start().await.unwrap();
        let run = runtime.attach(COUNT, "c").unwrap();
        run.signal(GO, 2).await.unwrap();
        run.signal(GO, 0).await.unwrap();
        assert_eq!(run.result().await.unwrap(), expected);
        runtime.shutdown().await.unwrap();
    }
}

const LEDGER: Workflow<u64, String> = Workflow::named("ledger");

/// Makes a checkpoint with each signal, until there is nothing to be added.
async fn summing(cx: WorkflowContext, version: u32, sum: u64) -> Result<String, WorkflowError> {
    let sum = cx.checkpointed::<u64>().transpose()?.unwrap_or(sum);
    match cx.receive(GO).await? {
        0 => Ok(format!("{version}: {sum}")),
        more => Ok(cx.checkpoint(&(sum + more)).await?),
    }
}

/// The version of a run outlasts that its history is trimmed: the one that it began with, and the one to which it has moved.
#[tokio::test]
async fn a_trimmed_run_keeps_its_version_and_moves_from_its_checkpoint() {
    let store = Store::new();
    let bare = || {
        let builder = store.bare();
        builder.configure(|config| config.limits.kept_beginning_every = 1)
    };
    let told = async |runtime: &Runtime| {
        let run = runtime.attach(LEDGER, "l").unwrap();
        for _ in 0..5 {
            run.signal(GO, 1).await.unwrap();
        }
        let version = run.describe_awake().await.unwrap().version;
        runtime.shutdown().await.unwrap();
        version
    };
    let builder = bare().register(LEDGER.version(1), async |cx, sum| summing(cx, 1, sum).await);
    let runtime = builder.start().await.unwrap();
    runtime.start(LEDGER, "l", 0).await.unwrap();
    assert_eq!(told(&runtime).await, 1);
    drop(runtime);

    let runtime = bare().register(LEDGER.version(2), async |cx, sum| summing(cx, 2, sum).await);
    let runtime = runtime.start().await.unwrap();
    assert_eq!(told(&runtime).await, 1, "it is pinned");
    drop(runtime);

    let newest = LEDGER.version(3).policy(VersionPolicy::MoveIfFits);
    let builder = bare().register(newest, async |cx, sum| summing(cx, 3, sum).await);
    let runtime = builder.start().await.unwrap();
    assert_eq!(told(&runtime).await, 3);
    drop(runtime);

    let runtime = bare().register(LEDGER.version(3), async |cx, sum| summing(cx, 3, sum).await);
    let runtime = runtime.start().await.unwrap();
    let run = runtime.attach(LEDGER, "l").unwrap();
    let history = run.export_history().await.unwrap();
    let first = history.events().next();
    let is_trimmed = first.is_none_or(|(first, ..)| first.get() > 6);
    assert!(is_trimmed && history.version() == 3, "{history}");
    let run = runtime.attach(LEDGER, "l").unwrap();
    run.signal(GO, 0).await.unwrap();
    assert_eq!(run.result().await.unwrap(), "3: 15");
    runtime.shutdown().await.unwrap();
}

/// A crash after each step of an opening in which runs move, some of them told something: each ends with the code that its
/// history says, and none moves twice.
#[test]
fn no_crash_makes_a_run_move_twice_or_lose_what_it_was_told() {
    let bare = |store: &Store, world: &SimHost| {
        let builder = store.bare().host(world.host()).register(DOUBLE, double);
        builder.register(FLOW_2.policy(VersionPolicy::MoveIfFits), flow_2)
    };
    let (mut moved_before, mut lives) = (0, 0);
    for steps in 1.. {
        let store = Store::new();
        let world = SimHost::new(SimConfig::seeded(steps));
        let builder = store.bare().host(world.host()).register(DOUBLE, double);
        let builder = builder.register(FLOW_1, flow_1);
        let script = async move {
            let runtime = builder.start().await.unwrap();
            for id in ["told", "left"] {
                let run = runtime.start(FLOW_1, id, 5).await.unwrap();
                run.until_described(|run| run.awaits(GO.name())).await.unwrap();
            }
            runtime.shutdown().await.unwrap();
        };
        world.block_on(script).unwrap();
        world.crash();

        let world = SimHost::new(SimConfig::seeded(steps + 1));
        let builder = bare(&store, &world).register(FLOW_1, flow_1);
        let is_told = cut_off(
            &world,
            async move {
                let runtime = builder.start().await.unwrap();
                assert_eq!(told_to_end(&runtime, "told").await.unwrap(), "2: 24");
            },
            steps,
        );

        let world = SimHost::new(SimConfig::seeded(steps + 2));
        let builder = bare(&store, &world);
        let script = async move {
            let runtime = builder.start().await.unwrap();
            if !is_told {
                // The signals may have been recorded, and are then taken a second time by nobody.
                let run = runtime.attach(FLOW, "told").unwrap();
                for signal in [GO, END] {
                    match run.signal(signal, 7).await {
                        Ok(()) | Err(millrun::RunError::Finished) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
                assert_eq!(run.result().await.unwrap(), "2: 24");
            }
            assert_eq!(told_to_end(&runtime, "left").await.unwrap(), "2: 24");
            for id in ["told", "left"] {
                assert_eq!(moves(&runtime, id).await, [2], "{id}, {steps} steps");
            }
            let moved = runtime.stats().versions_changed;
            runtime.shutdown().await.unwrap();
            moved
        };
        moved_before += 2 - world.block_on(script).unwrap();
        lives += 1;
        if is_told {
            // Some crashes came before a run had moved.
            let all = 2 * lives;
            assert!((1..all).contains(&moved_before), "{moved_before} of {all}");
            return;
        }
    }
}
