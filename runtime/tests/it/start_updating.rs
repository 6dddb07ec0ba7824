//! Starts that bring an update: started and updated in one turn, or, if it runs already, updated.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millrun::builders::AnsweringWorkflow;
use millrun::{
    InputRefused, OnConflict, Payload, Query, RunError, Runtime, RuntimeBuilder, StartError,
    StartWithUpdateError, Update, UpdateError, Workflow, WorkflowContext, WorkflowError,
};
use millrun_testkit::{SimConfig, SimHost};

use crate::support::{QUADRUPLE, Store, described};

const CART: Workflow<usize, Vec<String>> = Workflow::named("cart");
const LEN: Query<Vec<String>, (), usize> = Query::named("len");
const ADD: Update<Vec<String>, String, usize> = Update::named("add");

async fn cart(cx: WorkflowContext, full: usize) -> Result<Vec<String>, WorkflowError> {
    let items = cx.state(Vec::new());
    items.until(move |items| items.len() >= full).await?;
    Ok(items.read(Vec::clone))
}

/// The cart's code; an item named `panic` is added with one.
fn answering() -> AnsweringWorkflow<usize, Vec<String>> {
    CART.query(LEN, |items, ()| items.len())
        .update(ADD)
        .validate(|items, item| match items.contains(item) || item.is_empty() {
            true => Err(WorkflowError::failed("there already, or nameless")),
            false => Ok(()),
        })
        .change(|items, item| {
            assert_ne!(item, "panic", "it was to panic");
            items.push(item);
            items.len()
        })
}

fn volatile() -> RuntimeBuilder {
    Runtime::volatile().register(answering(), cart)
}

/// Adds an item to a cart that is sent when it has `full`, and gives how many there are.
async fn add(
    runtime: &Runtime,
    full: usize,
    item: &str,
) -> Result<(millrun::RunHandle<Vec<String>>, usize), StartWithUpdateError<WorkflowError>> {
    runtime
        .start(CART, "c", full)
        .with_update(ADD, item.to_owned())
        .await
}

#[tokio::test]
async fn the_first_update_starts_a_run_and_the_others_find_it() {
    let runtime = volatile().start().await.unwrap();
    let (first, len) = add(&runtime, 3, "bread").await.unwrap();
    assert_eq!(len, 1);
    assert_eq!(first.query(LEN, ()).await.unwrap(), 1);
    // The input of one that runs is not looked at.
    let (other, len) = add(&runtime, 1_000, "milk").await.unwrap();
    assert_eq!((other.run_id(), len), (first.run_id(), 2));
    let (_, len) = add(&runtime, 0, "tea").await.unwrap();
    assert_eq!(len, 3);
    assert_eq!(first.result().await.unwrap(), ["bread", "milk", "tea"]);
    assert_eq!(runtime.stats().started, 1);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn an_update_that_fills_the_cart_ends_the_run_in_its_first_turn() {
    let runtime = volatile().start().await.unwrap();
    let (run, len) = add(&runtime, 1, "bread").await.unwrap();
    assert_eq!(len, 1);
    assert_eq!(run.result().await.unwrap(), ["bread"]);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_run_that_refuses_its_first_update_is_not_started() {
    const STATELESS: Workflow<usize, ()> = Workflow::named("stateless");
    async fn stateless(cx: WorkflowContext, _: usize) -> Result<(), WorkflowError> {
        cx.sleep(std::time::Duration::from_secs(86_400)).await?;
        Ok(())
    }
    let runtime = volatile().register(STATELESS, stateless).start().await.unwrap();

    let rejected = add(&runtime, 3, "").await.unwrap_err();
    assert!(
        matches!(&rejected, StartWithUpdateError::Update(UpdateError::Rejected(error)) if error.message().contains("nameless")),
        "{rejected}"
    );
    // It has ended before the update comes.
    let ended = add(&runtime, 0, "bread").await.unwrap_err();
    assert!(
        matches!(
            ended,
            StartWithUpdateError::Update(UpdateError::Run(RunError::Finished))
        ),
        "{ended}"
    );
    let start = runtime
        .start(STATELESS, "c", 1)
        .with_update(ADD, "bread".to_owned());
    let unknown = start.await.unwrap_err();
    assert!(
        matches!(
            &unknown,
            StartWithUpdateError::Update(UpdateError::Run(RunError::Refused(InputRefused::UnknownUpdate { name })))
                if name == "add"
        ),
        "{unknown}"
    );
    let unnamed = runtime
        .start(CART, "c", 1)
        .with_update_as(ADD, "", "bread".to_owned());
    let unnamed = unnamed.await.unwrap_err();
    assert!(
        matches!(
            unnamed,
            StartWithUpdateError::Update(UpdateError::Run(RunError::Refused(InputRefused::Name {
                bytes: 0
            })))
        ),
        "{unnamed}"
    );
    // There is no code for this one here.
    let parked = runtime
        .start(QUADRUPLE, "c", 1)
        .with_update(ADD, "bread".to_owned());
    let parked = parked.await.unwrap_err();
    assert!(
        matches!(
            parked,
            StartWithUpdateError::Update(UpdateError::Run(RunError::Refused(InputRefused::StillParked(_))))
        ),
        "{parked}"
    );

    assert_eq!((runtime.stats().started, runtime.stats().live), (0, 0));
    let nobody = runtime.attach(CART, "c").unwrap().describe().await;
    assert!(matches!(nobody, Err(RunError::NotFound)), "{nobody:?}");
    let (_, len) = add(&runtime, 3, "bread").await.unwrap();
    assert_eq!(len, 1, "the id was free all the time");
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn an_update_that_panics_is_recorded_with_its_run() {
    let runtime = volatile().start().await.unwrap();
    let parked = add(&runtime, 3, "panic").await.unwrap_err();
    assert!(
        matches!(parked, StartWithUpdateError::Update(UpdateError::Parked(_))),
        "{parked}"
    );
    let run = runtime.attach(CART, "c").unwrap();
    described(&run, |run| run.parked.is_some()).await;
    assert_eq!(runtime.stats().started, 1);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_named_request_is_performed_once_also_when_its_run_has_ended() {
    let store = Store::new();
    let runtime = store.bare().register(answering(), cart).start().await.unwrap();
    let ask = async |runtime: &Runtime, on_conflict, request: &str, item: &str| {
        let start = runtime.start(CART, "c", 1).on_conflict(on_conflict);
        let started = start.with_update_as(ADD, request, item.to_owned()).await;
        started.map(|(run, len)| (run.run_id(), len))
    };
    let first = ask(&runtime, OnConflict::Attach, "1", "bread").await.unwrap();
    assert_eq!(first.1, 1);
    assert_eq!(
        ask(&runtime, OnConflict::Attach, "1", "bread").await.unwrap(),
        first
    );
    runtime.shutdown().await.unwrap();

    let runtime = store.bare().register(answering(), cart).start().await.unwrap();
    assert_eq!(
        ask(&runtime, OnConflict::Attach, "1", "bread").await.unwrap(),
        first
    );
    let late = ask(&runtime, OnConflict::Attach, "2", "milk").await.unwrap_err();
    assert!(
        matches!(
            late,
            StartWithUpdateError::Update(UpdateError::Run(RunError::Finished))
        ),
        "{late}"
    );
    let taken = ask(&runtime, OnConflict::Refuse, "2", "milk").await.unwrap_err();
    assert!(
        matches!(
            taken,
            StartWithUpdateError::Start(StartError::AlreadyFinished { .. })
        ),
        "{taken}"
    );
    let other = ask(&runtime, OnConflict::RestartFinished, "2", "milk")
        .await
        .unwrap();
    assert_ne!(other.0, first.0);
    assert_eq!(other.1, 1);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn what_cannot_be_started_is_not_updated() {
    let runtime = volatile()
        .register(QUADRUPLE, crate::support::quadruple)
        .configure(|config| {
            config.live_len_max = 1;
            config.limits.payload_bytes_max = 1_000;
        })
        .start()
        .await
        .unwrap();
    let large = add(&runtime, 3, &"a".repeat(2_000)).await.unwrap_err();
    assert!(
        matches!(
            large,
            StartWithUpdateError::Update(UpdateError::Run(RunError::Refused(InputRefused::TooLarge { .. })))
        ),
        "{large}"
    );
    let unnameable = runtime
        .start(CART, "", 3)
        .with_update(ADD, "bread".to_owned())
        .await;
    assert!(
        matches!(unnameable, Err(StartWithUpdateError::Start(StartError::Id(_)))),
        "{unnameable:?}"
    );
    add(&runtime, 3, "bread").await.unwrap();
    let full = runtime
        .start(CART, "d", 3)
        .with_update(ADD, "bread".to_owned())
        .await;
    assert!(
        matches!(
            full,
            Err(StartWithUpdateError::Start(StartError::TooManyLive {
                len_max: 1
            }))
        ),
        "{full:?}"
    );
    let other = runtime
        .start(QUADRUPLE, "c", 3)
        .with_update(ADD, "milk".to_owned())
        .await;
    assert!(
        matches!(&other, Err(StartWithUpdateError::Start(StartError::OtherWorkflow { workflow, .. })) if workflow == "cart"),
        "{other:?}"
    );
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn names_and_payloads_start_and_update_as_types_do() {
    let runtime = volatile().start().await.unwrap();
    let input = Payload::encode(&2_usize).unwrap();
    let item = |item: &str| Payload::encode(&item).unwrap();
    let start = runtime.start_untyped("cart", "c", input.clone());
    let (run, len) = start
        .with_update_untyped("add", "1", item("bread"))
        .await
        .unwrap();
    assert_eq!(len.decode::<usize>().unwrap(), 1);
    let start = runtime.start_untyped("cart", "c", input.clone());
    let rejected = start
        .with_update_untyped("add", "2", item("bread"))
        .await
        .unwrap_err();
    let StartWithUpdateError::Update(UpdateError::Rejected(error)) = rejected else {
        panic!("{rejected:?}");
    };
    assert!(error.decode::<WorkflowError>().is_ok());
    run.update_as("add", "3", item("milk")).await.unwrap();
    let items: Vec<String> = run.result().await.unwrap().decode().unwrap();
    assert_eq!(items, ["bread", "milk"]);
    let unnamed = runtime.start_untyped("", "d", input).await;
    assert!(
        matches!(unnamed, Err(StartError::Name { bytes: 0 })),
        "{unnamed:?}"
    );
    runtime.shutdown().await.unwrap();
}

#[test]
fn no_crash_comes_between_a_start_and_its_update() {
    let mut survived = Vec::new();
    for steps in 1..=30 {
        let store = Store::new();
        let world = SimHost::new(SimConfig::seeded(steps));
        let builder = store.bare().host(world.host()).register(answering(), cart);
        let acknowledged = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&acknowledged);
        let script = async move {
            let runtime = builder.start().await.unwrap();
            for number in 0..8 {
                let id = format!("c-{number}");
                let start = runtime.start(CART, &id, 2).with_update(ADD, "bread".to_owned());
                let (_, len) = start.await.unwrap();
                assert_eq!(len, 1);
                counter.fetch_add(1, Ordering::SeqCst);
            }
            std::future::pending::<()>().await;
        };
        let task = world.host().spawn("script", Box::pin(script));
        let mut left = steps * 6;
        let _outcome = world.run_until(|| {
            left -= 1;
            left == 0
        });
        world.crash();
        drop(task);

        let world = SimHost::new(SimConfig::seeded(1_000 + steps));
        let builder = store.bare().host(world.host()).register(answering(), cart);
        let script = async move {
            let runtime = builder.start().await.unwrap();
            let live = runtime.list(None, 100).await.unwrap();
            for one in &live {
                let run = runtime.attach(CART, one.id.as_str()).unwrap();
                assert_eq!(run.query(LEN, ()).await.unwrap(), 1, "{} has its item", one.id);
                assert_eq!(run.update(ADD, "milk".to_owned()).await.unwrap(), 2);
                assert_eq!(run.result().await.unwrap(), ["bread", "milk"]);
            }
            runtime.shutdown().await.unwrap();
            live.len() as u64
        };
        let live = world.block_on(script).unwrap();
        assert!(live >= acknowledged.load(Ordering::SeqCst));
        survived.push(live);
    }
    survived.sort_unstable();
    survived.dedup();
    assert!(survived.len() > 3, "crashes at several places: {survived:?}");
}
