//! Children and runs that go on in others, through crashes too.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use millrun::operating::{InstanceStatus, PendingDescription};
use millrun::workflow::ParentClose;
use millrun::{
    ChildError, Payload, ResultError, RunError, RunHandle, Runtime, RuntimeBuilder, Signal, Workflow,
    WorkflowContext, WorkflowError,
};
use millrun_testkit::{SimConfig, SimHost};

use crate::support::{Store, described};

const PARCEL: Workflow<u64, u64> = Workflow::named("parcel");
const ORDER: Workflow<(u64, u8), u64> = Workflow::named("order");
const METER: Workflow<u64, u64> = Workflow::named("meter");
const GO: Signal<u64> = Signal::named("go");

/// Waits for a signal; cleans up when cancelled.
async fn parcel(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    let go = cx.receive(GO).await?;
    if go == 0 {
        return Err(WorkflowError::failed("lost"));
    }
    Ok(number + go)
}

async fn order(cx: WorkflowContext, (number, on_close): (u64, u8)) -> Result<u64, WorkflowError> {
    let on_close = match on_close {
        0 => ParentClose::Cancel,
        1 => ParentClose::Terminate,
        _ => ParentClose::Abandon,
    };
    match cx
        .child(PARCEL, parcel_id(number), number)
        .on_close(on_close)
        .await
    {
        Ok(value) => Ok(value * 10),
        Err(ChildError::Failed(error)) => Err(WorkflowError::failed(format!("child: {error}"))),
        Err(error) => Err(error.into()),
    }
}

fn parcel_id(number: u64) -> String {
    format!("order-{number}/parcel")
}

/// Sums two signals a run, until there are ten.
async fn meter(cx: WorkflowContext, sum: u64) -> Result<u64, WorkflowError> {
    let sum = sum + cx.receive(GO).await? + cx.receive(GO).await?;
    if sum >= 100 {
        return Ok(sum);
    }
    Ok(cx.continue_as_new(METER, sum).await?)
}

fn with_code(builder: RuntimeBuilder) -> RuntimeBuilder {
    builder
        .register(PARCEL, parcel)
        .register(ORDER, order)
        .register(METER, meter)
        .configure(|config| config.shards_len = 3)
}

async fn open(store: &Store) -> Runtime {
    with_code(store.bare()).start().await.unwrap()
}

async fn is_there<O, E>(run: &RunHandle<O, E>) {
    described(run, |run| !run.awaited.is_empty()).await;
}

#[tokio::test]
async fn a_child_gives_its_result_or_its_error_to_its_parent() {
    let store = Store::new();
    let runtime = open(&store).await;
    for number in 0..20 {
        let parent = runtime
            .start(ORDER, &format!("o-{number}"), (number, 0))
            .await
            .unwrap();
        let child = runtime.attach(PARCEL, &parcel_id(number)).unwrap();
        is_there(&child).await;
        let waits = described(&parent, |run| {
            matches!(&run.pending[..], [PendingDescription::Child { run: Some(_), .. }])
        });
        let waits = waits.await;
        let of = child.describe().await.unwrap();
        assert_eq!(of.parent, Some(waits.run));
        child.signal(GO, number % 2).await.unwrap();
        match parent.result().await {
            Ok(value) => assert_eq!(value, (number + 1) * 10),
            Err(ResultError::Failed(error)) => assert_eq!(error.message(), "child: lost"),
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(runtime.stats().live, 0);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn parents_and_children_find_each_other_after_a_crash() {
    let store = Store::new();
    let runtime = open(&store).await;
    for number in 0..20 {
        drop(
            runtime
                .start(ORDER, &format!("o-{number}"), (number, 0))
                .await
                .unwrap(),
        );
    }
    // Some children have not begun, some have and their parents do not know, some have ended.
    for number in 0..7 {
        let child = runtime.attach(PARCEL, &parcel_id(number)).unwrap();
        is_there(&child).await;
        child.signal(GO, 1).await.unwrap();
    }
    drop(runtime);
    for _ in 0..2 {
        let runtime = open(&store).await;
        for number in 7..12 {
            is_there(&runtime.attach(PARCEL, &parcel_id(number)).unwrap()).await;
        }
        drop(runtime);
    }
    let runtime = open(&store).await;
    for number in 0..20 {
        if number >= 7 {
            let child = runtime.attach(PARCEL, &parcel_id(number)).unwrap();
            is_there(&child).await;
            child.signal(GO, 1).await.unwrap();
        }
        let parent = runtime.attach(ORDER, &format!("o-{number}")).unwrap();
        assert_eq!(parent.result().await.unwrap(), (number + 1) * 10);
    }
    let children = runtime.list_finished(None, 100).await.unwrap();
    assert_eq!(children.len(), 40, "each child was begun once");
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_child_is_closed_as_its_call_says_when_its_parent_ends() {
    let store = Store::new();
    let runtime = open(&store).await;
    for on_close in 0..3 {
        let number = u64::from(on_close);
        let parent = runtime
            .start(ORDER, &format!("o-{number}"), (number, on_close))
            .await
            .unwrap();
        let child = runtime.attach(PARCEL, &parcel_id(number)).unwrap();
        is_there(&child).await;
        parent.terminate("test").await.unwrap();
        match on_close {
            0 => assert!(matches!(child.result().await, Err(ResultError::Cancelled(_)))),
            1 => assert!(matches!(
                child.result().await,
                Err(ResultError::Terminated { .. })
            )),
            _ => {
                child.signal(GO, 5).await.unwrap();
                assert_eq!(child.result().await.unwrap(), number + 5);
            }
        }
    }
    runtime.shutdown().await.unwrap();
}

#[test]
fn no_crash_leaves_a_child_behind_whose_parent_has_ended() {
    for seed in 1..=10_u64 {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.redb");
        let world = SimHost::new(SimConfig::seeded(seed));
        let builder = with_code(Runtime::open(&path).host(world.host()));
        let has_ended = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&has_ended);
        let script = async move {
            let runtime = builder.start().await.unwrap();
            let parent = runtime.start(ORDER, "o", (1, 1)).await.unwrap();
            is_there(&runtime.attach(PARCEL, &parcel_id(1)).unwrap()).await;
            parent.terminate("test").await.unwrap();
            flag.store(true, Ordering::SeqCst);
            std::future::pending::<()>().await;
        };
        let task = world.host().spawn("script", Box::pin(script));
        // The end of the parent is durable, that of the child is not yet.
        let _outcome = world.run_until(|| has_ended.load(Ordering::SeqCst));
        assert!(has_ended.load(Ordering::SeqCst), "seed {seed} did not get there");
        world.crash();
        drop(task);

        let world = SimHost::new(SimConfig::seeded(seed + 1_000));
        let builder = with_code(Runtime::open(&path).host(world.host()));
        let script = async move {
            let runtime = builder.start().await.unwrap();
            let child = runtime.attach(PARCEL, &parcel_id(1)).unwrap();
            let end = child.result().await;
            assert!(
                matches!(end, Err(ResultError::Terminated { .. })),
                "seed {seed}: {end:?}"
            );
            runtime.shutdown().await.unwrap();
        };
        world.block_on(script).unwrap();
    }
}

#[tokio::test]
async fn an_id_that_is_taken_is_reported_to_the_parent() {
    let store = Store::new();
    let runtime = open(&store).await;
    let other = runtime.start(PARCEL, &parcel_id(1), 7).await.unwrap();
    let parent = runtime.start(ORDER, "o-1", (1, 0)).await.unwrap();
    let error = parent.result().await.unwrap_err().to_string();
    assert!(error.contains("the id belongs to a live instance"), "{error}");
    other.signal(GO, 1).await.unwrap();
    assert_eq!(other.result().await.unwrap(), 8);

    // Finished, the id is free again, in memory as after a restart.
    for round in 0..2 {
        let parent = runtime.start(ORDER, &format!("p-{round}"), (1, 0)).await.unwrap();
        let child = runtime.attach(PARCEL, &parcel_id(1)).unwrap();
        is_there(&child).await;
        child.signal(GO, 1).await.unwrap();
        assert_eq!(parent.result().await.unwrap(), 20);
    }
    runtime.shutdown().await.unwrap();
    drop((runtime, other, parent));
    let runtime = open(&store).await;
    let parent = runtime.start(ORDER, "q", (1, 0)).await.unwrap();
    let child = runtime.attach(PARCEL, &parcel_id(1)).unwrap();
    is_there(&child).await;
    child.signal(GO, 1).await.unwrap();
    assert_eq!(parent.result().await.unwrap(), 20);
    runtime.shutdown().await.unwrap();
}

/// A caller that waited for the former run was handed to the next when that had already ended, and waited
/// for ever. A random program found it.
#[tokio::test]
async fn whoever_waits_is_answered_when_the_next_run_ends_in_its_first_turn() {
    const HASTY: Workflow<u64, u64> = Workflow::named("hasty");
    async fn hasty(cx: WorkflowContext, sum: u64) -> Result<u64, WorkflowError> {
        if sum > 0 {
            return Ok(sum);
        }
        let sum = cx.receive(GO).await?;
        Ok(cx.continue_as_new(HASTY, sum).await?)
    }
    let builder = Runtime::volatile().register(HASTY, hasty);
    let runtime = builder.start().await.unwrap();
    let run = runtime.start(HASTY, "h", 0).await.unwrap();
    let waiting = run.result();
    let signalled = async {
        // Answered in a turn behind the one that began to wait.
        described(&run, |run| !run.awaited.is_empty()).await;
        run.signal(GO, 7).await.unwrap();
    };
    let (value, ()) = tokio::join!(waiting, signalled);
    assert_eq!(value.unwrap(), 7);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_run_goes_on_in_others_and_loses_no_signal() {
    let store = Store::new();
    let runtime = open(&store).await;
    let run = runtime.start(METER, "m", 0).await.unwrap();
    let waiting = tokio::spawn({
        let run = run.clone();
        async move { run.result().await }
    });
    for _ in 0..60 {
        run.signal(GO, 1).await.unwrap();
    }
    let described = run.describe().await.unwrap();
    assert_ne!(Some(described.run), run.run_id(), "the handle follows");
    assert_eq!(described.status, InstanceStatus::Running);
    assert_eq!(runtime.stats().live, 1);
    waiting.abort();
    assert!(waiting.await.is_err(), "the sum was not complete");
    drop((run, runtime));

    let runtime = open(&store).await;
    assert_eq!(runtime.startup_report().live, 1);
    let run = runtime.attach(METER, "m").unwrap();
    let waiting = tokio::spawn({
        let run = run.clone();
        async move { run.result().await }
    });
    for _ in 0..40 {
        run.signal(GO, 1).await.unwrap();
    }
    assert_eq!(waiting.await.unwrap().unwrap(), 100);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_handle_follows_its_run_to_the_last_also_when_all_have_ended() {
    let store = Store::new();
    let builder = with_code(store.bare()).configure(|config| config.result_cache_len_max = 0);
    let runtime = builder.start().await.unwrap();
    let run = runtime.start(METER, "m", 0).await.unwrap();
    for _ in 0..10 {
        run.signal(GO, 10).await.unwrap();
    }
    assert_eq!(run.result().await.unwrap(), 100);
    assert!(matches!(run.signal(GO, 1).await, Err(RunError::Finished)));
    let end = run.describe().await.unwrap();
    assert_eq!(end.status, InstanceStatus::Finished);
    assert_ne!(Some(end.run), run.run_id());
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn an_instance_that_goes_on_without_ever_waiting_is_parked() {
    const HASTY: Workflow<u64, u64> = Workflow::named("hasty");
    async fn hasty(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
        Ok(cx.continue_as_new(HASTY, number + 1).await?)
    }
    let store = Store::new();
    let runtime = store.bare().register(HASTY, hasty).start().await.unwrap();
    let run = runtime.start(HASTY, "h", 0).await.unwrap();
    let error = run.result().await.unwrap_err();
    assert!(
        matches!(&error, ResultError::Parked(reason) if reason.to_string().contains("100 runs")),
        "{error}"
    );
    run.terminate("enough").await.unwrap();
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_child_that_goes_on_in_another_run_stays_the_child() {
    const PARENT: Workflow<(), u64> = Workflow::named("parent");
    async fn parent(cx: WorkflowContext, (): ()) -> Result<u64, WorkflowError> {
        let limit = cx.sleep(Duration::from_secs(3_600));
        match cx.race(cx.child(METER, "m", 0), limit).await {
            millrun::workflow::Either::Left(sum) => Ok(sum?),
            millrun::workflow::Either::Right(_) => Err(WorkflowError::failed("too slow")),
        }
    }
    let store = Store::new();
    let builder = || with_code(store.bare()).register(PARENT, parent);
    let runtime = builder().start().await.unwrap();
    drop(runtime.start(PARENT, "p", ()).await.unwrap());
    let child = runtime.attach(METER, "m").unwrap();
    is_there(&child).await;
    for _ in 0..5 {
        child.signal(GO, 10).await.unwrap();
    }
    drop((runtime, child));

    let runtime = builder().start().await.unwrap();
    let child = runtime.attach(METER, "m").unwrap();
    for _ in 0..5 {
        child.signal(GO, 10).await.unwrap();
    }
    let parent = runtime.attach(PARENT, "p").unwrap();
    assert_eq!(parent.result().await.unwrap(), 100);
    runtime.shutdown().await.unwrap();
}

/// Calls a child whose name, id and input it learns while it runs, and tells its end as text.
const BY_NAME: Workflow<(String, String, u64), String> = Workflow::named("by-name");

async fn by_name(
    cx: WorkflowContext,
    (workflow, id, input): (String, String, u64),
) -> Result<String, WorkflowError> {
    let child = cx.child_untyped(workflow, id, Payload::encode(&input)?);
    Ok(match child.on_close(ParentClose::Abandon).await {
        Ok(result) => format!("completed {}", result.decode::<u64>()?),
        Err(ChildError::Failed(failure)) => format!("failed {failure}"),
        Err(error) => error.to_string(),
    })
}

#[tokio::test]
async fn a_child_that_is_known_by_its_name_is_called_as_any_other() {
    let store = Store::new();
    let runtime = with_code(store.bare()).register(BY_NAME, by_name);
    let runtime = runtime.start().await.unwrap();
    let call = async |id: &str, workflow: &str| {
        let input = (workflow.to_owned(), format!("{id}/child"), 7);
        runtime.start(BY_NAME, id, input).await.unwrap()
    };
    for (id, go, told) in [("a", 5, "completed 12"), ("b", 0, "failed lost")] {
        let parent = call(id, "parcel").await;
        let child = runtime.attach(PARCEL, &format!("{id}/child")).unwrap();
        while child.describe().await.is_err() {
            tokio::task::yield_now().await;
        }
        child.signal(GO, go).await.unwrap();
        assert_eq!(parent.result().await.unwrap(), told);
    }
    let nameless = call("c", "").await.result().await.unwrap();
    assert!(nameless.contains("1 to 255 bytes"), "{nameless}");
    let reserved = call("d", "millrun.bulk").await.result().await.unwrap();
    assert!(reserved.contains("started by millrun alone"), "{reserved}");
    runtime.shutdown().await.unwrap();
}
