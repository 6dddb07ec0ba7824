//! A handle is of one workflow: through it nothing is done to an instance of another, wherever that is,
//! unless the program asks for a handle of no workflow.

use millrun::builders::AnsweringWorkflow;
use millrun::operating::InstanceStatus;
use millrun::{
    OnConflict, Payload, Query, QueryError, ResultError, RunError, RunHandle, Runtime, RuntimeBuilder,
    Signal, StartError, Update, UpdateError, Workflow, WorkflowContext, WorkflowError,
};
use millrun_testkit::{SimConfig, SimHost};

use crate::support::{QUADRUPLE, Store};

const NIGHTLY: Workflow<u64, u64> = Workflow::named("nightly");
const MORNING: Workflow<u64, String> = Workflow::named("morning");
const ORDER: Workflow<u64, u64> = Workflow::named("order");
const PAID: Signal<u64> = Signal::named("paid");
const SUM: Query<u64, (), u64> = Query::named("sum");
const ADD: Update<u64, u64, u64> = Update::named("add");

/// Adds two payments.
async fn nightly(cx: WorkflowContext, sum: u64) -> Result<u64, WorkflowError> {
    let state = cx.state(sum);
    for _ in 0..2 {
        let more = cx.receive(PAID).await?;
        state.change(|sum| *sum += more);
    }
    Ok(state.read(|sum| *sum))
}

fn answering<I, O>(workflow: Workflow<I, O>) -> AnsweringWorkflow<I, O> {
    workflow
        .query(SUM, |sum, ()| *sum)
        .update(ADD)
        .change(|sum, more| {
            *sum += more;
            *sum
        })
}

fn builder(store: &Store) -> RuntimeBuilder {
    store.open().register(answering(NIGHTLY), nightly)
}

fn is_mistaken(error: &RunError) -> bool {
    matches!(error, RunError::OtherWorkflow { expected, workflow } if *expected == "order" && workflow == "nightly")
}

/// Asks for everything through a handle of another workflow.
async fn assert_refused(runtime: &Runtime, id: &str, place: &str) {
    let mistaken = runtime.attach(ORDER, id).unwrap();
    for told in [
        mistaken.signal(PAID, 1_000).await,
        mistaken.cancel("by mistake").await,
        mistaken.terminate("by mistake").await,
        mistaken.pause("by mistake").await,
        mistaken.resume().await,
        mistaken.describe().await.map(drop),
    ] {
        assert!(told.as_ref().is_err_and(is_mistaken), "{place}: {told:?}");
    }
    let answer = mistaken.query(SUM, ()).await;
    assert!(
        matches!(&answer, Err(QueryError::Run(error)) if is_mistaken(error)),
        "{place}: {answer:?}"
    );
    let answer = mistaken.update(ADD, 1_000).await;
    assert!(
        matches!(&answer, Err(UpdateError::Run(error)) if is_mistaken(error)),
        "{place}: {answer:?}"
    );
    let result = mistaken.result().await;
    assert!(
        matches!(&result, Err(ResultError::Run(error)) if is_mistaken(error)),
        "{place}: {result:?}"
    );
    let error = mistaken.cancel("").await.unwrap_err().to_string();
    assert!(
        error.contains("order") && error.contains("nightly"),
        "it names both: {error}"
    );
}

/// `runtime.attach(ORDER, "nightly").cancel(..)` cancelled the run of another workflow that had the id:
/// the workflow that `attach` was given served for its types alone, and nobody compared its name. The
/// suites had a handle of the wrong workflow nowhere.
#[tokio::test]
async fn a_handle_of_another_workflow_is_refused_wherever_the_run_is() {
    let store = Store::new();
    let runtime = builder(&store)
        .configure(|config| config.result_cache_len_max = 1)
        .start()
        .await
        .unwrap();
    let run = runtime.start(NIGHTLY, "n", 5).await.unwrap();
    assert_refused(&runtime, "n", "in memory").await;
    assert_eq!(run.describe().await.unwrap().sequence.get(), 1);
    runtime.shutdown().await.unwrap();
    drop((run, runtime));

    // Asleep, read for each question, and put to sleep again.
    let runtime = builder(&store)
        .configure(|config| {
            config.hot_len_max = 0;
            config.result_cache_len_max = 1;
        })
        .start()
        .await
        .unwrap();
    assert_refused(&runtime, "n", "asleep").await;
    let run = runtime.attach(NIGHTLY, "n").unwrap();
    assert_eq!(run.query(SUM, ()).await.unwrap(), 5);
    assert_eq!(run.describe().await.unwrap().sequence.get(), 1);
    run.signal(PAID, 1).await.unwrap();
    run.pause("for lunch").await.unwrap();
    assert_refused(&runtime, "n", "paused").await;
    run.resume().await.unwrap();
    run.signal(PAID, 1).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 7);
    assert_refused(&runtime, "n", "finished, with its result at hand").await;
    // Their results push the first one out.
    for number in 0..3 {
        let other = runtime.start(QUADRUPLE, &format!("q-{number}"), 1).await.unwrap();
        other.result().await.unwrap();
    }
    assert_refused(&runtime, "n", "finished, and known to the store alone").await;
    assert_eq!(run.result().await.unwrap(), 7);
    runtime.shutdown().await.unwrap();
    drop((run, runtime));

    let runtime = builder(&store).start().await.unwrap();
    assert_refused(&runtime, "n", "finished before the store was opened").await;
    assert_eq!(runtime.attach(NIGHTLY, "n").unwrap().result().await.unwrap(), 7);
    let mistaken = runtime.attach(ORDER, "nobody").unwrap().cancel("").await;
    assert!(matches!(mistaken, Err(RunError::NotFound)), "{mistaken:?}");
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn an_untyped_handle_reaches_an_instance_whatever_its_workflow() {
    let store = Store::new();
    let runtime = builder(&store).start().await.unwrap();
    let run = runtime.start(NIGHTLY, "n", 5).await.unwrap();
    let untyped = runtime.attach_untyped("n").unwrap();
    assert_eq!(untyped.describe().await.unwrap().workflow, "nightly");
    let encoded = |value: u64| Payload::encode(&value).unwrap();
    untyped.pause("for lunch").await.unwrap();
    assert_eq!(untyped.describe().await.unwrap().status, InstanceStatus::Parked);
    untyped.resume().await.unwrap();
    untyped.signal("paid", encoded(1)).await.unwrap();
    let answer = untyped.update_as("add", "r", encoded(10)).await.unwrap();
    assert_eq!(answer.decode::<u64>().unwrap(), 16);
    let unit = Payload::encode(&()).unwrap();
    let answer = untyped.query("sum", unit).await.unwrap();
    assert_eq!(answer.decode::<u64>().unwrap(), 16);
    let nameless = untyped.signal("", encoded(1)).await;
    assert!(matches!(nameless, Err(RunError::Refused(_))), "{nameless:?}");
    untyped.signal("paid", encoded(1)).await.unwrap();
    let value = untyped.result().await.unwrap();
    assert_eq!(value.decode::<u64>().unwrap(), 17);
    assert_eq!(run.result().await.unwrap(), 17);

    for (id, is_cancelled) in [("c", true), ("t", false)] {
        runtime.start(NIGHTLY, id, 0).await.unwrap();
        let untyped = runtime.attach_untyped(id).unwrap();
        if is_cancelled {
            untyped.cancel("enough").await.unwrap();
            let ended = untyped.result().await.unwrap_err();
            assert!(
                matches!(&ended, ResultError::Cancelled(failure) if failure.is_cancelled),
                "{ended}"
            );
        } else {
            untyped.terminate("enough").await.unwrap();
            let ended = untyped.result().await.unwrap_err();
            assert!(
                matches!(&ended, ResultError::Terminated { reason } if reason == "enough"),
                "{ended}"
            );
        }
    }
    runtime.shutdown().await.unwrap();
}

/// Begins as one workflow, and ends as another.
fn chain(store: &Store) -> RuntimeBuilder {
    let nightly = |cx: WorkflowContext, sum: u64| async move {
        let more = cx.receive(PAID).await?;
        // The types forbid it, unless the code says that it would have something else then.
        let ended: String = cx.continue_as_new(MORNING, sum + more).await?;
        Err::<u64, _>(WorkflowError::failed(ended))
    };
    let morning = |cx: WorkflowContext, sum: u64| async move {
        let state = cx.state(sum);
        let more = cx.receive(PAID).await?;
        state.change(|sum| *sum += more);
        Ok::<_, WorkflowError>(format!("{} cents", state.read(|sum| *sum)))
    };
    store
        .open()
        .register(answering(NIGHTLY), nightly)
        .register(answering(MORNING), morning)
}

/// The chain is reached through what it began as, and through nothing else.
async fn assert_reached(runtime: &Runtime, place: &str) -> RunHandle<u64> {
    assert_refused(runtime, "n", place).await;
    let later = runtime.attach(MORNING, "n").unwrap().describe().await;
    assert!(
        matches!(&later, Err(RunError::OtherWorkflow { expected, workflow }) if expected == "morning" && workflow == "nightly"),
        "{place}: {later:?}"
    );
    let run = runtime.attach(NIGHTLY, "n").unwrap();
    assert_eq!(run.describe().await.unwrap().workflow, "morning", "{place}");
    // A start that is repeated finds its own.
    let again = runtime.start(NIGHTLY, "n", 5).await.unwrap();
    assert_eq!(again.describe().await.unwrap().workflow, "morning", "{place}");
    let other = runtime.start(MORNING, "n", 5).await;
    assert!(
        matches!(&other, Err(StartError::OtherWorkflow { expected, workflow }) if expected == "morning" && workflow == "nightly"),
        "{place}: {other:?}"
    );
    run
}

#[tokio::test]
async fn an_instance_that_continues_as_another_workflow_is_of_the_one_it_began_as() {
    let store = Store::new();
    let runtime = chain(&store).start().await.unwrap();
    let started = runtime.start(NIGHTLY, "n", 5).await.unwrap();
    started.signal(PAID, 1).await.unwrap();
    let run = assert_reached(&runtime, "in memory").await;
    assert_eq!(run.query(SUM, ()).await.unwrap(), 6);
    assert_eq!(started.describe().await.unwrap().workflow, "morning");
    runtime.shutdown().await.unwrap();
    drop((started, run, runtime));

    let runtime = chain(&store)
        .configure(|config| config.hot_len_max = 0)
        .start()
        .await
        .unwrap();
    let run = assert_reached(&runtime, "asleep").await;
    assert_eq!(run.query(SUM, ()).await.unwrap(), 6);
    run.signal(PAID, 1).await.unwrap();
    // It ends with a value of the other workflow's type.
    let ended = run.result().await.unwrap_err();
    assert!(matches!(ended, ResultError::Payload(_)), "{ended}");
    assert_reached(&runtime, "finished").await;
    runtime.shutdown().await.unwrap();
    drop((run, runtime));

    let runtime = chain(&store).start().await.unwrap();
    assert_reached(&runtime, "finished before the store was opened").await;
    let untyped = runtime.attach_untyped("n").unwrap();
    let value = untyped.result().await.unwrap();
    assert_eq!(value.decode::<String>().unwrap(), "7 cents");
    runtime.shutdown().await.unwrap();
}

/// While the id goes from one workflow to the other and back, what is meant for one never comes to the
/// other: the name is compared in the turn that does what is asked, not before it.
#[test]
fn what_is_meant_for_one_workflow_never_comes_to_another_that_has_just_taken_the_id() {
    const OTHER: Signal<u64> = Signal::named("other");
    for seed in 1..=30 {
        let store = Store::new();
        let world = SimHost::new(SimConfig::seeded(seed));
        let order = |cx: WorkflowContext, _: u64| async move {
            match cx.race(cx.receive(PAID), cx.receive(OTHER)).await {
                millrun::workflow::Either::Left(paid) => Ok(paid?),
                millrun::workflow::Either::Right(_) => Err(WorkflowError::failed("of the other workflow")),
            }
        };
        let builder = store
            .bare()
            .host(world.host())
            .configure(|config| {
                config.hot_len_max = usize::from(!seed.is_multiple_of(3));
                config.result_cache_len_max = usize::from(seed.is_multiple_of(2));
            })
            .register(ORDER, order)
            .register(NIGHTLY, |cx: WorkflowContext, _: u64| async move {
                match cx.race(cx.receive(OTHER), cx.receive(PAID)).await {
                    millrun::workflow::Either::Left(paid) => Ok::<u64, WorkflowError>(paid?),
                    millrun::workflow::Either::Right(_) => {
                        Err(WorkflowError::failed("of the other workflow"))
                    }
                }
            });
        let host = world.host();
        let script = async move {
            let runtime = builder.start().await.unwrap();
            // Two who signal whatever has the id, each by its own workflow.
            for (workflow, signal) in [(ORDER, PAID), (NIGHTLY, OTHER)] {
                let handle = runtime.attach(workflow, "x").unwrap();
                let task = async move {
                    for _ in 0..200 {
                        match handle.signal(signal, 1).await {
                            Ok(())
                            | Err(RunError::OtherWorkflow { .. } | RunError::NotFound | RunError::Finished) =>
                                {}
                            Err(RunError::Stopped(_)) => return,
                            Err(error) => panic!("seed {seed}: {error}"),
                        }
                    }
                };
                drop(host.spawn("signals", Box::pin(task)));
            }
            for round in 0..10 {
                let workflow = if round % 2 == 0 { ORDER } else { NIGHTLY };
                let signal = if round % 2 == 0 { PAID } else { OTHER };
                let run = runtime
                    .start(workflow, "x", 1)
                    .on_conflict(OnConflict::RestartFinished)
                    .await
                    .unwrap();
                drop(run.signal(signal, 1).await);
                assert_eq!(run.result().await.unwrap(), 1, "seed {seed}");
            }
            runtime.shutdown().await.unwrap();
        };
        world.block_on(script).unwrap();
    }
}
