//! A deployment from its beginning to its end: version 1 under load, a preflight that finds the break that was planted in version 2,
//! the mended version 2 beside version 1, runs that stay and runs that move, and version 1 deleted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use millrun::history::{Event, Sequence};
use millrun::preflight::PreflightProblem;
use millrun::{
    OnConflict, Runtime, RuntimeBuilder, Signal, StartError, VersionPolicy, Workflow, WorkflowContext,
    WorkflowError,
};

use crate::support::{DOUBLE, Store, double};

const PAID: Signal<u64> = Signal::named("paid");
const SENT: Signal<u64> = Signal::named("sent");
const ORDER: Workflow<u64, String> = Workflow::named("order");
const ORDER_1: Workflow<u64, String> = ORDER.version(1);
const ORDER_2: Workflow<u64, String> = ORDER.version(2).policy(VersionPolicy::MoveIfFits);

/// Version 1: charges when the order is paid.
async fn order_1(cx: WorkflowContext, number: u64) -> Result<String, WorkflowError> {
    let reserved = cx.call(DOUBLE, number).await?;
    let paid = cx.receive(PAID).await?;
    let charged = cx.call(DOUBLE, paid).await?;
    cx.receive(SENT).await?;
    Ok(format!("1: {}", reserved + charged))
}

/// What was meant to be version 2: a timer stands before what all runs have done.
async fn order_broken(cx: WorkflowContext, number: u64) -> Result<String, WorkflowError> {
    cx.sleep(Duration::from_secs(1)).await?;
    order_2(cx, number).await
}

/// Version 2: charges twice what is paid. Runs that are paid do not fit it.
async fn order_2(cx: WorkflowContext, number: u64) -> Result<String, WorkflowError> {
    let reserved = cx.call(DOUBLE, number).await?;
    let paid = cx.receive(PAID).await?;
    let charged = cx
        .child(CHARGE, format!("{}-charge", cx.instance_id()), paid)
        .await?;
    cx.receive(SENT).await?;
    Ok(format!("2: {}", reserved + charged))
}

const CHARGE: Workflow<u64, u64> = Workflow::named("charge");

async fn charge(cx: WorkflowContext, paid: u64) -> Result<u64, WorkflowError> {
    Ok(cx.call(DOUBLE, paid).await? * 2)
}

fn bare(store: &Store) -> RuntimeBuilder {
    store.bare().register(DOUBLE, double).register(CHARGE, charge)
}

/// Starts one order after the other until the runtime does not take any more, and pays each second one. Gives how many were
/// acknowledged.
async fn load(runtime: Runtime, prefix: &'static str, is_enough: Arc<AtomicBool>) -> u64 {
    let mut acknowledged = 0;
    loop {
        let id = format!("{prefix}-{acknowledged}");
        let run = match runtime
            .start(ORDER, &id, acknowledged)
            .on_conflict(OnConflict::Refuse)
            .await
        {
            Ok(run) => run,
            Err(StartError::Stopped(_)) => return acknowledged,
            Err(error) => panic!("{error}"),
        };
        acknowledged += 1;
        if acknowledged.is_multiple_of(2) && run.signal(PAID, 3).await.is_err() {
            // Whether it is paid is seen in its history.
            return acknowledged;
        }
        is_enough.fetch_or(acknowledged >= 20, Ordering::Relaxed);
        tokio::task::yield_now().await;
    }
}

async fn loaded(runtime: Runtime, prefix: &'static str) -> u64 {
    let is_enough = Arc::new(AtomicBool::new(false));
    let loading = tokio::spawn(load(runtime.clone(), prefix, Arc::clone(&is_enough)));
    while !is_enough.load(Ordering::Relaxed) {
        tokio::task::yield_now().await;
    }
    runtime.shutdown().await.unwrap();
    loading.await.unwrap()
}

/// The version that a run had at its end, as its history says: the one that it began with, and those to which it has moved.
async fn versions(runtime: &Runtime, id: &str) -> Vec<u32> {
    let run = runtime.attach(ORDER, id).unwrap().describe().await.unwrap().run;
    let page = runtime.history(run, Sequence::ZERO, 1_000).await.unwrap();
    let events = page.events.iter();
    let versions = events.filter_map(|recorded| match &recorded.event {
        Event::Started(started) => Some(started.version),
        Event::VersionChanged { version } => Some(*version),
        _ => None,
    });
    versions.collect()
}

#[tokio::test]
async fn a_deployment_breaks_no_run_and_ends_with_the_old_code_deleted() {
    let store = Store::new();
    let runtime = bare(&store).register(ORDER_1, order_1).start().await.unwrap();
    let first = loaded(runtime, "first").await;

    // The break that was planted is found before anything is deployed.
    let report = bare(&store)
        .register(ORDER_2, order_broken)
        .preflight()
        .await
        .unwrap();
    let problems: Vec<_> = report.findings.iter().map(|found| found.problem).collect();
    assert_eq!(problems, [PreflightProblem::Differs], "{report}");
    assert!(report.findings[0].replayed.contains("timer"), "{report}");

    // The mended code fits some, and without version 1 the others would be parked.
    let report = bare(&store).register(ORDER_2, order_2).preflight().await.unwrap();
    assert!(!report.is_fit() && report.workflows[0].moving > 0, "{report}");
    let both = || bare(&store).register(ORDER_1, order_1).register(ORDER_2, order_2);
    let report = both().preflight().await.unwrap();
    let orders = &report.workflows[0];
    assert!(report.is_fit() && orders.runs == first, "{report}");
    assert!(orders.moving > 0 && orders.moving < orders.runs, "{report}");
    let moving = orders.moving;

    // Side by side, under load again, and stopped in the midst of it.
    let runtime = both().start().await.unwrap();
    let second = loaded(runtime, "second").await;

    let runtime = both().start().await.unwrap();
    let mut ends: BTreeMap<Vec<u32>, u64> = BTreeMap::new();
    for (prefix, len) in [("first", first), ("second", second)] {
        for number in 0..len {
            let id = format!("{prefix}-{number}");
            let run = runtime.attach(ORDER, &id).unwrap();
            // Of one that is paid already this is taken by nobody.
            run.signal(PAID, 3).await.unwrap();
            run.signal(SENT, 0).await.unwrap();
            let result = run.result().await.unwrap();
            let versions = versions(&runtime, &id).await;
            let expected = match versions.last() {
                Some(1) => format!("1: {}", number * 2 + 6),
                _ => format!("2: {}", number * 2 + 12),
            };
            assert_eq!(result, expected, "{id}, {versions:?}");
            *ends.entry(versions).or_default() += 1;
        }
    }
    let expected = [(vec![1], first - moving), (vec![1, 2], moving), (vec![2], second)];
    assert_eq!(ends, expected.into());
    let versions = runtime.versions();
    let former = versions
        .iter()
        .find(|one| one.workflow == "order" && one.version == 1);
    assert!(former.is_some_and(|former| former.is_deletable), "{versions:?}");
    runtime.shutdown().await.unwrap();
    drop(runtime);

    // Without it nothing is missed.
    let runtime = bare(&store).register(ORDER_2, order_2).start().await.unwrap();
    assert_eq!(runtime.startup_report().not_registered, 0);
    let result = runtime.attach(ORDER, "first-0").unwrap().result().await;
    assert!(result.unwrap().starts_with("2: "));
    runtime.shutdown().await.unwrap();
}
