//! Queries and updates through the runtime: answered from durable state, in memory, on disk, and
//! after the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millrun::builders::AnsweringWorkflow;
use millrun::operating::InstanceStatus;
use millrun::workflow::Unanswered;
use millrun::{
    InputRefused, OnConflict, Query, QueryError, RunError, RunHandle, Runtime, RuntimeBuilder, StartError,
    Update, UpdateError, Workflow, WorkflowContext, WorkflowError,
};

use millrun_testkit::{SimConfig, SimHost};

use crate::support::{QUADRUPLE, Store};

const SHOP: Workflow<usize, Vec<String>> = Workflow::named("shop");
const LEN: Query<Vec<String>, (), usize> = Query::named("len");
const SIZE: Query<Vec<String>, (), usize> = Query::named("size");
const ADD: Update<Vec<String>, String, usize> = Update::named("add");

async fn shop(cx: WorkflowContext, full: usize) -> Result<Vec<String>, WorkflowError> {
    let items = cx.state(Vec::new());
    items.until(move |items| items.len() >= full).await?;
    Ok(items.read(Vec::clone))
}

fn add(items: &mut Vec<String>, item: String) -> usize {
    items.push(item);
    items.len()
}

fn shop_with(
    change: impl Fn(&mut Vec<String>, String) -> usize + Send + Sync + 'static,
) -> AnsweringWorkflow<usize, Vec<String>> {
    let validate = |items: &Vec<String>, item: &String| {
        if items.contains(item) {
            return Err(WorkflowError::failed("there already"));
        }
        Ok(())
    };
    SHOP.query(LEN, |items, ()| items.len())
        .update(ADD)
        .validate(validate)
        .change(change)
}

fn builder(store: &Store) -> RuntimeBuilder {
    store.open().register(shop_with(add), shop)
}

type Shop = RunHandle<Vec<String>>;

async fn add_as(run: &Shop, request: &str, item: &str) -> Result<usize, UpdateError<WorkflowError>> {
    run.update_as(ADD, request, item.to_string()).await
}

#[tokio::test]
async fn updates_change_the_state_that_queries_see() {
    let store = Store::new();
    let runtime = builder(&store).start().await.unwrap();
    let run = runtime.start(SHOP, "s", 2).await.unwrap();
    assert_eq!(run.query(LEN, ()).await.unwrap(), 0);
    assert_eq!(run.update(ADD, "bread".to_string()).await.unwrap(), 1);
    assert_eq!(run.query(LEN, ()).await.unwrap(), 1);
    let rejected = run.update(ADD, "bread".to_string()).await.unwrap_err();
    assert!(
        matches!(&rejected, UpdateError::Rejected(error) if error.message() == "there already"),
        "{rejected}"
    );
    assert_eq!(run.update(ADD, "milk".to_string()).await.unwrap(), 2);
    assert_eq!(run.result().await.unwrap(), ["bread", "milk"]);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn an_answer_outlives_restarts_and_the_run_itself() {
    let store = Store::new();
    let runtime = builder(&store).start().await.unwrap();
    let run = runtime.start(SHOP, "s", 2).await.unwrap();
    assert_eq!(add_as(&run, "1", "bread").await.unwrap(), 1);
    drop((run, runtime));

    // A crash later, the run waits on disk: it is brought back to be asked.
    let runtime = builder(&store).start().await.unwrap();
    let run = runtime.attach(SHOP, "s").unwrap();
    assert_eq!(run.query(LEN, ()).await.unwrap(), 1);
    assert_eq!(add_as(&run, "1", "ignored").await.unwrap(), 1, "performed once");
    assert_eq!(add_as(&run, "2", "milk").await.unwrap(), 2);
    run.result().await.unwrap();
    assert_eq!(run.query(LEN, ()).await.unwrap(), 2);
    drop((run, runtime));

    // Finished, and known from the store alone.
    let runtime = builder(&store).start().await.unwrap();
    let run = runtime.attach(SHOP, "s").unwrap();
    assert_eq!(run.query(LEN, ()).await.unwrap(), 2);
    assert_eq!(add_as(&run, "2", "ignored").await.unwrap(), 2);
    let late = add_as(&run, "3", "tea").await.unwrap_err();
    assert!(matches!(late, UpdateError::Run(RunError::Finished)), "{late}");
    let described = run.describe().await.unwrap();
    assert_eq!(described.status, InstanceStatus::Finished);
    assert_eq!(
        (described.id.as_str(), described.workflow.as_str()),
        ("s", "shop")
    );
    assert!(described.ended_at >= Some(described.started_at) && described.pending.is_empty());
    assert_eq!(runtime.stats().live, 0, "asking brought nothing back to life");
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn an_update_is_performed_once_although_its_run_goes_on_in_another_before_it_is_asked_again() {
    async fn restocked(cx: WorkflowContext, full: usize) -> Result<Vec<String>, WorkflowError> {
        let items = cx.state(Vec::new());
        items
            .until(move |items: &Vec<String>| items.len() >= full)
            .await?;
        if full == 2 {
            return Ok(items.read(Vec::clone));
        }
        Ok(cx.continue_as_new(SHOP, full + 1).await?)
    }
    let answering = || {
        let shop = SHOP.query(LEN, |items, ()| items.len());
        shop.update(ADD).change(add)
    };
    let store = Store::new();
    let runtime = store
        .bare()
        .register(answering(), restocked)
        .start()
        .await
        .unwrap();
    let run = runtime.start(SHOP, "s", 1).await.unwrap();
    assert_eq!(add_as(&run, "1", "bread").await.unwrap(), 1);
    let next = run.describe().await.unwrap().run;
    assert_ne!(Some(next), run.run_id(), "it goes on in another run");
    for _ in 0..2 {
        assert_eq!(add_as(&run, "1", "bread").await.unwrap(), 1);
        assert_eq!(run.query(LEN, ()).await.unwrap(), 0, "performed before");
    }
    drop((run, runtime));

    let runtime = store
        .bare()
        .register(answering(), restocked)
        .start()
        .await
        .unwrap();
    let run = runtime.attach(SHOP, "s").unwrap();
    assert_eq!(add_as(&run, "1", "bread").await.unwrap(), 1);
    assert_eq!(add_as(&run, "2", "milk").await.unwrap(), 1);
    assert_eq!(add_as(&run, "3", "eggs").await.unwrap(), 2);
    assert_eq!(run.result().await.unwrap(), ["milk", "eggs"]);
    // Of the run that has ended the answer is known as well.
    assert_eq!(add_as(&run, "1", "bread").await.unwrap(), 1);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_run_unloaded_to_disk_answers_as_one_in_memory() {
    let store = Store::new();
    let builder = builder(&store).configure(|config| config.hot_len_max = 1);
    let runtime = builder.start().await.unwrap();
    let mut runs = Vec::new();
    for number in 0..20 {
        let run = runtime.start(SHOP, &format!("s-{number}"), 9).await.unwrap();
        assert_eq!(add_as(&run, "1", "bread").await.unwrap(), 1);
        runs.push(run);
    }
    for run in &runs {
        assert_eq!(run.query(LEN, ()).await.unwrap(), 1);
        assert_eq!(add_as(run, "2", "milk").await.unwrap(), 2);
    }
    assert!(runtime.stats().loads > 0, "nothing was unloaded");
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn whoever_cannot_be_answered_is_told_why() {
    let store = Store::new();
    let runtime = builder(&store).start().await.unwrap();
    let nobody = runtime.attach(SHOP, "nobody").unwrap();
    assert!(matches!(
        nobody.query(LEN, ()).await,
        Err(QueryError::Run(RunError::NotFound))
    ));
    assert!(matches!(
        add_as(&nobody, "1", "x").await,
        Err(UpdateError::Run(RunError::NotFound))
    ));
    assert!(matches!(nobody.describe().await, Err(RunError::NotFound)));

    let run = runtime.start(SHOP, "s", 2).await.unwrap();
    assert!(matches!(
        run.query(SIZE, ()).await,
        Err(QueryError::Unanswered(Unanswered::Unknown { name })) if name == "size"
    ));
    let unnamed = add_as(&run, "", "bread").await.unwrap_err();
    assert!(
        matches!(
            unnamed,
            UpdateError::Run(RunError::Refused(InputRefused::Name { bytes: 0 }))
        ),
        "{unnamed}"
    );
    run.terminate("done").await.unwrap();
    assert!(matches!(
        add_as(&run, "1", "x").await,
        Err(UpdateError::Run(RunError::Finished))
    ));
    let signalled = run.cancel("late").await;
    assert!(matches!(signalled, Err(RunError::Finished)), "{signalled:?}");
    assert!(matches!(nobody.cancel("x").await, Err(RunError::NotFound)));
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn an_update_whose_answer_is_too_large_is_performed_once_and_says_so_each_time() {
    const FILL: Update<Vec<String>, usize, String> = Update::named("fill");
    let fill = |items: &mut Vec<String>, bytes: usize| {
        items.push("filled".into());
        "x".repeat(bytes)
    };
    let store = Store::new();
    let answering = shop_with(add).update(FILL).change(fill);
    let runtime = store.open().register(answering, shop).start().await.unwrap();
    let run = runtime.start(SHOP, "s", 2).await.unwrap();
    for _ in 0..2 {
        match run.update_as(FILL, "1", 2_000_000).await {
            Err(UpdateError::Failed { message }) => {
                assert!(message.starts_with("the answer has 2000006 bytes"), "{message}");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(run.query(LEN, ()).await.unwrap(), 1);
    }
    assert_eq!(run.update_as(FILL, "2", 3).await.unwrap(), "xxx");
    assert_eq!(run.result().await.unwrap(), ["filled", "filled"]);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn an_update_that_parks_its_run_is_answered_when_the_code_is_mended() {
    let store = Store::new();
    let is_broken = Arc::new(AtomicBool::new(true));
    let switch = Arc::clone(&is_broken);
    let answering = shop_with(move |items, item| {
        assert!(!switch.load(Ordering::SeqCst), "broken");
        add(items, item)
    });
    let builder = store.bare().register(answering, shop);
    let runtime = builder
        .configure(|config| config.limits.panics_max = 1)
        .start()
        .await
        .unwrap();
    let run = runtime.start(SHOP, "s", 2).await.unwrap();
    let parked = add_as(&run, "1", "bread").await.unwrap_err();
    assert!(matches!(parked, UpdateError::Parked(_)), "{parked}");
    let parked = add_as(&run, "1", "bread").await.unwrap_err();
    assert!(matches!(parked, UpdateError::Parked(_)), "{parked}");
    let refused = add_as(&run, "2", "milk").await.unwrap_err();
    assert!(
        matches!(
            refused,
            UpdateError::Run(RunError::Refused(InputRefused::StillParked(_)))
        ),
        "{refused}"
    );
    assert!(matches!(
        run.query(LEN, ()).await,
        Err(QueryError::Unanswered(Unanswered::Parked(_)))
    ));
    is_broken.store(false, Ordering::SeqCst);
    run.resume().await.unwrap();
    assert_eq!(add_as(&run, "1", "bread").await.unwrap(), 1);
    assert_eq!(add_as(&run, "2", "milk").await.unwrap(), 2);
    runtime.shutdown().await.unwrap();
}

#[test]
fn an_update_whose_run_panics_waits_for_it_to_come_back_by_itself() {
    let store = Store::new();
    let world = SimHost::new(SimConfig::seeded(3));
    let panics = AtomicBool::new(true);
    let answering = shop_with(move |items, item| {
        assert!(!panics.swap(false, Ordering::SeqCst), "once");
        add(items, item)
    });
    let builder = store.bare().register(answering, shop).host(world.host());
    let script = async move {
        let runtime = builder.start().await.unwrap();
        let run = runtime.start(SHOP, "s", 2).await.unwrap();
        // The code is brought back after a pause, and performs what was let in.
        assert_eq!(add_as(&run, "1", "bread").await.unwrap(), 1);
        runtime.shutdown().await.unwrap();
    };
    world.block_on(script).unwrap();
}

#[tokio::test]
async fn a_finished_id_is_not_attached_to_by_another_workflow() {
    let store = Store::new();
    let runtime = builder(&store).start().await.unwrap();
    let run = runtime.start(QUADRUPLE, "q", 5).await.unwrap();
    run.result().await.unwrap();
    runtime.shutdown().await.unwrap();
    drop((run, runtime));

    let runtime: Runtime = builder(&store).start().await.unwrap();
    let other = runtime.start(SHOP, "q", 2).await.unwrap_err();
    assert!(
        matches!(&other, StartError::OtherWorkflow { workflow, .. } if workflow == "quadruple"),
        "{other}"
    );
    let again = runtime
        .start(SHOP, "q", 2)
        .on_conflict(OnConflict::RestartFinished)
        .await;
    assert!(again.is_ok());
    runtime.shutdown().await.unwrap();
}
