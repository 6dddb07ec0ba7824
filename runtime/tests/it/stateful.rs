//! Activities that have state: what they capture, what they are registered with, and their runtime; and
//! those that choose when they are tried again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use millrun::{
    Activity, ActivityContext, ActivityError, Retry, Runtime, RuntimeBuilder, Workflow, WorkflowContext,
    WorkflowError,
};
use millrun_testkit::{SimConfig, SimHost};

use crate::support::{DOUBLE, QUADRUPLE, Store, double, quadruple};

const STEP: Activity<u64, u64> = Activity::named("step");
const FLOW: Workflow<u64, u64> = Workflow::named("flow");

async fn flow(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    Ok(cx.call(STEP, number).await?)
}

/// A client of something outside.
#[derive(Debug, Default)]
struct Client {
    asked: AtomicU32,
}

impl Client {
    /// Fails when it is asked for the first time.
    async fn ask(&self, number: u64) -> Result<u64, std::io::Error> {
        match self.asked.fetch_add(1, Ordering::Relaxed) {
            0 => Err(std::io::Error::other("busy")),
            _ => Ok(number + 1),
        }
    }
}

async fn check(builder: RuntimeBuilder, client: &Client) {
    let runtime = builder.register(FLOW, flow).start().await.unwrap();
    assert_eq!(
        runtime
            .start(FLOW, "f", 41)
            .await
            .unwrap()
            .result()
            .await
            .unwrap(),
        42
    );
    assert_eq!(
        client.asked.load(Ordering::Relaxed),
        2,
        "both attempts had the same client"
    );
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_closure_gives_each_attempt_what_it_captures() {
    let client = Arc::new(Client::default());
    let captured = Arc::clone(&client);
    let builder =
        Runtime::volatile().register(STEP, async move |_cx, number| Ok(captured.ask(number).await?));
    check(builder, &client).await;

    let client = Arc::new(Client::default());
    let captured = Arc::clone(&client);
    let builder = Runtime::volatile().register(STEP, move |_cx, number| async move {
        let asked = captured.ask(number).await?;
        Ok(asked)
    });
    check(builder, &client).await;
}

#[tokio::test]
async fn an_activity_is_registered_with_its_state() {
    async fn step(client: Arc<Client>, cx: ActivityContext, number: u64) -> Result<u64, ActivityError> {
        assert_eq!(cx.activity(), "step");
        Ok(client.ask(number).await?)
    }
    let client = Arc::new(Client::default());
    check(
        Runtime::volatile().register_with(Arc::clone(&client), STEP, step),
        &client,
    )
    .await;

    let client = Arc::new(Client::default());
    let builder =
        Runtime::volatile().register_with(Arc::clone(&client), STEP, async |client, _cx, number| {
            Ok(client.ask(number).await?)
        });
    check(builder, &client).await;
}

/// Starts another workflow on its own runtime, and waits for it.
async fn quadrupled(cx: ActivityContext, number: u64) -> Result<u64, ActivityError> {
    let runtime = cx.runtime()?;
    let run = runtime.start(QUADRUPLE, &format!("q-{number}"), number).await?;
    Ok(run.result().await?)
}

#[tokio::test]
async fn an_activity_uses_its_own_runtime_also_when_its_attempt_was_cut_off() {
    let store = Store::new();
    // Nobody quadruples here: the attempt waits when the runtime stops.
    let code = || store.bare().register(STEP, quadrupled).register(FLOW, flow);
    let runtime = code().start().await.unwrap();
    let run = runtime.start(FLOW, "f", 3).await.unwrap();
    while runtime.stats().started < 2 {
        tokio::task::yield_now().await;
    }
    runtime.shutdown().await.unwrap();
    drop((run, runtime));

    let runtime = code()
        .register(DOUBLE, double)
        .register(QUADRUPLE, quadruple)
        .start()
        .await
        .unwrap();
    let run = runtime.attach(FLOW, "f").unwrap();
    assert_eq!(run.result().await.unwrap(), 12);
    runtime.shutdown().await.unwrap();
}

#[test]
fn an_attempt_that_holds_the_last_handle_of_its_runtime_ends_it() {
    let tokio = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .unwrap();
    let (told, ended) = std::sync::mpsc::channel();
    tokio.block_on(async {
        let (let_go, go) = tokio::sync::watch::channel(false);
        let step = move |cx: ActivityContext, _number| {
            let (mut go, told) = (go.clone(), told.clone());
            async move {
                let runtime = cx.runtime()?;
                told.send("begun").ok();
                go.wait_for(|go| *go).await?;
                drop(runtime);
                told.send("dropped").ok();
                Ok(0)
            }
        };
        let runtime = Runtime::volatile()
            .register(STEP, step)
            .register(FLOW, flow)
            .start()
            .await
            .unwrap();
        let stopped = runtime.stopped();
        drop(runtime.start(FLOW, "f", 1).await.unwrap());
        assert_eq!(ended.recv().unwrap(), "begun");
        drop(runtime);
        let_go.send(true).unwrap();
        assert!(matches!(stopped.await, millrun::StopCause::Shutdown));
    });
}

/// Is busy once, for an hour, and says so.
fn busy(
    attempts: &Arc<AtomicU32>,
    clock: Arc<dyn millrun::host::Host>,
) -> impl Fn(RuntimeBuilder) -> RuntimeBuilder {
    const HOUR: Duration = Duration::from_secs(3_600);
    let attempts = Arc::clone(attempts);
    let begun = clock.now();
    move |builder| {
        let (attempts, clock) = (Arc::clone(&attempts), Arc::clone(&clock));
        builder.register(STEP, async move |_cx, number| {
            let since = clock.now().saturating_since(begun);
            match attempts.fetch_add(1, Ordering::Relaxed) {
                0 => Err(ActivityError::retryable("busy").after(HOUR)),
                _ => Ok(number + since.as_secs()),
            }
        })
    }
}

#[test]
fn a_failed_attempt_chooses_when_the_next_one_begins() {
    async fn patient(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
        // The policy's own pauses are of at most a second.
        let retry = Retry::exponential()
            .coefficient(1.5)
            .pause_max(Duration::from_secs(1));
        Ok(cx.call(STEP, number).retry(retry).await?)
    }
    let world = SimHost::new(SimConfig::seeded(5));
    let attempts = Arc::<AtomicU32>::default();
    let builder = busy(&attempts, world.host())(Runtime::volatile().host(world.host()));
    let script = async {
        let runtime = builder.register(FLOW, patient).start().await.unwrap();
        let run = runtime.start(FLOW, "f", 0).await.unwrap();
        let waited = run.result().await.unwrap();
        assert!((3_600..3_602).contains(&waited), "{waited}");
        runtime.shutdown().await.unwrap();
    };
    world.block_on(script).unwrap();
    assert_eq!(attempts.load(Ordering::Relaxed), 2);
}

#[test]
fn a_chosen_pause_survives_a_crash() {
    let store = Store::new();
    let attempts = Arc::<AtomicU32>::default();
    let world = SimHost::new(SimConfig::seeded(6));
    let begun = world.now();
    let code = busy(&attempts, world.host());
    let builder = code(store.bare().host(world.host()).register(FLOW, flow));
    let script = async move {
        let runtime = builder.start().await.unwrap();
        let _run = runtime.start(FLOW, "f", 0).await.unwrap();
        std::future::pending::<()>().await;
    };
    let task = world.host().spawn("script", Box::pin(script));
    while attempts.load(Ordering::Relaxed) == 0 {
        assert!(world.step(), "an attempt is made");
    }
    // Long enough for its report to be recorded, and much shorter than the pause.
    let _outcome = world.advance(Duration::from_secs(60));
    assert_eq!(attempts.load(Ordering::Relaxed), 1);
    world.crash();
    drop(task);

    let later = SimHost::new(SimConfig::seeded(7));
    let runtime_at = later.now();
    let code = {
        let attempts = Arc::clone(&attempts);
        store
            .bare()
            .host(later.host())
            .register(FLOW, flow)
            .register(STEP, async move |_cx, _number| {
                attempts.fetch_add(1, Ordering::Relaxed);
                Ok(1)
            })
    };
    let waited = later
        .block_on(async {
            let runtime = code.start().await.unwrap();
            let run = runtime.attach(FLOW, "f").unwrap();
            assert_eq!(run.result().await.unwrap(), 1);
            runtime.shutdown().await.unwrap();
        })
        .map(|()| later.now().saturating_since(runtime_at));
    // Both worlds begin at the same time.
    assert_eq!(runtime_at, begun);
    assert!(waited.unwrap() >= Duration::from_secs(3_600));
    assert_eq!(attempts.load(Ordering::Relaxed), 2);
}
