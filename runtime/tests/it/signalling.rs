//! Instances that signal each other, through crashes too.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use millrun::operating::PendingDescription;
use millrun::workflow::{Either, SignalInstanceError};
use millrun::{
    ResultError, RunError, RunHandle, Runtime, RuntimeBuilder, Signal, Workflow, WorkflowContext,
    WorkflowError,
};
use millrun_testkit::{SimConfig, SimHost};

use crate::support::{Store, described};

const HUB: Workflow<(u64, Vec<u64>), Vec<u64>> = Workflow::named("hub");
const TELLER: Workflow<(u64, u64), String> = Workflow::named("teller");
const PLAYER: Workflow<(String, u64), u64> = Workflow::named("player");
const TOLD: Signal<u64> = Signal::named("told");
const BALL: Signal<u64> = Signal::named("ball");
const OTHER: Signal<String> = Signal::named("other");

/// Hears `len` numbers, in a new run behind each five, from a checkpoint on behind each three.
async fn hub(cx: WorkflowContext, (len, heard): (u64, Vec<u64>)) -> Result<Vec<u64>, WorkflowError> {
    let mut heard = cx.checkpointed().transpose()?.unwrap_or(heard);
    while (heard.len() as u64) < len {
        heard.push(cx.receive(TOLD).await?);
        match heard.len() % 15 {
            5 | 10 => return Ok(cx.continue_as_new(HUB, (len, heard)).await?),
            3 | 6 | 9 | 12 => return Ok(cx.checkpoint(&heard).await?),
            _ => {}
        }
    }
    Ok(heard)
}

/// Tells the hub some numbers from this one on, one after the other; what became of the last.
async fn teller(cx: WorkflowContext, (from, len): (u64, u64)) -> Result<String, WorkflowError> {
    let mut last = "nothing to tell".to_owned();
    for number in from..from + len {
        last = match cx.signal_instance(HUB, "hub", TOLD, number).await {
            Ok(()) => "told".into(),
            Err(error) => error.to_string(),
        };
    }
    Ok(last)
}

/// Gets a number, and hands one less to the other, until there is none left.
async fn player(cx: WorkflowContext, (other, mut caught): (String, u64)) -> Result<u64, WorkflowError> {
    loop {
        let ball = cx.receive(BALL).await?;
        caught += 1;
        match cx
            .signal_instance(PLAYER, other.as_str(), BALL, ball.saturating_sub(1))
            .await
        {
            // It has caught the last one, and is done.
            Ok(()) | Err(SignalInstanceError::Finished) => {}
            Err(error) => return Err(error.into()),
        }
        if ball <= 1 {
            return Ok(caught);
        }
        if caught.is_multiple_of(20) {
            return Ok(cx.continue_as_new(PLAYER, (other, caught)).await?);
        }
    }
}

fn with_code(builder: RuntimeBuilder) -> RuntimeBuilder {
    builder
        .register(HUB, hub)
        .register(TELLER, teller)
        .register(PLAYER, player)
        .configure(|config| {
            config.shards_len = 3;
            config.limits.kept_beginning_every = 2;
        })
}

async fn open(store: &Store) -> Runtime {
    with_code(store.bare()).start().await.unwrap()
}

fn sorted(mut numbers: Vec<u64>) -> Vec<u64> {
    numbers.sort_unstable();
    numbers
}

/// Whether they are found in memory or on disk: the target waits, is unloaded, and goes on in other runs.
#[tokio::test]
async fn each_signal_of_a_run_reaches_the_latest_run_of_an_instance_once() {
    for hot_len_max in [100_000, 0] {
        let store = Store::new();
        let builder = with_code(store.bare()).configure(|config| config.hot_len_max = hot_len_max);
        let runtime = builder.start().await.unwrap();
        let hub = runtime.start(HUB, "hub", (80, Vec::new())).await.unwrap();
        for number in 0..8 {
            drop(
                runtime
                    .start(TELLER, &format!("t-{number}"), (number * 10, 10))
                    .await
                    .unwrap(),
            );
        }
        assert_eq!(sorted(hub.result().await.unwrap()), (0..80).collect::<Vec<_>>());
        for number in 0..8 {
            let teller = runtime.attach(TELLER, &format!("t-{number}")).unwrap();
            assert_eq!(teller.result().await.unwrap(), "told");
        }
        runtime.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn a_run_is_told_why_an_instance_was_not_signalled() {
    let store = Store::new();
    let builder = with_code(store.bare()).configure(|config| {
        config.limits.signals_len_max = 2;
        config.result_cache_len_max = 0;
    });
    let runtime = builder.start().await.unwrap();
    let tell = |len: u64, name: &'static str| {
        let runtime = runtime.clone();
        async move {
            let teller = runtime.start(TELLER, name, (0, len)).await.unwrap();
            teller.result().await.unwrap()
        }
    };
    let nobody = "there is no instance of this id (or none that is retained)";
    assert_eq!(tell(1, "early").await, nobody);
    let player = runtime.start(PLAYER, "hub", ("other".into(), 0)).await.unwrap();
    assert_eq!(
        tell(1, "wrong").await,
        "the id belongs to an instance of workflow \"player\""
    );
    player.terminate("make room").await.unwrap();
    assert!(matches!(
        player.result().await,
        Err(ResultError::Terminated { .. })
    ));
    assert_eq!(tell(1, "late").await, "the instance has ended");
    let hub = runtime.start(HUB, "hub", (9, Vec::new()));
    let hub = hub
        .on_conflict(millrun::OnConflict::RestartFinished)
        .await
        .unwrap();
    hub.pause("for a while").await.unwrap();
    assert_eq!(tell(2, "paused").await, "told", "a run that is paused keeps them");
    assert_eq!(
        tell(3, "much").await,
        "the instance did not take the signal: the run has 2 unread signals, its limit: it must take some first"
    );
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_value_of_another_type_is_an_error_of_the_run_that_receives_it() {
    const CONFUSED: Workflow<(), String> = Workflow::named("confused");
    const SENDER: Workflow<(), ()> = Workflow::named("sender");
    async fn confused(cx: WorkflowContext, (): ()) -> Result<String, WorkflowError> {
        Ok(cx.receive(TOLD).await.unwrap_err().to_string())
    }
    async fn sender(cx: WorkflowContext, (): ()) -> Result<(), WorkflowError> {
        let named_alike = Signal::<String>::named(TOLD.name());
        cx.signal_instance(CONFUSED, "c", OTHER, "passed over".into())
            .await?;
        Ok(cx
            .signal_instance(CONFUSED, "c", named_alike, "no number".into())
            .await?)
    }
    let builder = Runtime::volatile()
        .register(CONFUSED, confused)
        .register(SENDER, sender);
    let runtime = builder.start().await.unwrap();
    let confused = runtime.start(CONFUSED, "c", ()).await.unwrap();
    runtime
        .start(SENDER, "s", ())
        .await
        .unwrap()
        .result()
        .await
        .unwrap();
    let error = confused.result().await.unwrap();
    assert!(error.contains("could not be decoded"), "{error}");
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn two_instances_that_signal_each_other_and_one_that_signals_itself_come_to_their_end() {
    let store = Store::new();
    let runtime = open(&store).await;
    let left = runtime.start(PLAYER, "left", ("right".into(), 0)).await.unwrap();
    let right = runtime.start(PLAYER, "right", ("left".into(), 0)).await.unwrap();
    // Several balls at a time; the last of them are caught by nobody.
    left.signal(BALL, 200).await.unwrap();
    let caught = left.result().await.unwrap() + right.result().await.unwrap();
    assert_eq!(caught, 201);
    let alone = runtime.start(PLAYER, "alone", ("alone".into(), 0)).await.unwrap();
    alone.signal(BALL, 50).await.unwrap();
    assert_eq!(alone.result().await.unwrap(), 50);
    runtime.shutdown().await.unwrap();
}

#[test]
fn a_signal_on_its_way_is_described() {
    let world = SimHost::new(SimConfig::seeded(3));
    let builder = with_code(Runtime::volatile().host(world.host()));
    let script = async move {
        let runtime = builder.start().await.unwrap();
        let hub = runtime.start(HUB, "hub", (50, Vec::new())).await.unwrap();
        let teller = runtime.start(TELLER, "t", (0, 50)).await.unwrap();
        let is_there = |run: &millrun::operating::InstanceDescription| !run.pending.is_empty();
        let run = described(&teller, is_there).await;
        let [
            PendingDescription::Signal {
                workflow,
                id,
                name,
                since,
                ..
            },
        ] = &run.pending[..]
        else {
            panic!("{:?}", run.pending);
        };
        assert_eq!(
            (workflow.as_str(), id.as_str(), name.as_str()),
            ("hub", "hub", "told")
        );
        assert!(*since >= run.started_at);
        assert_eq!(hub.result().await.unwrap().len(), 50);
        runtime.shutdown().await.unwrap();
    };
    world.block_on(script).unwrap();
}

#[tokio::test]
async fn a_signal_that_is_let_go_of_ends_nothing_else() {
    const HASTY: Workflow<(), String> = Workflow::named("hasty");
    async fn hasty(cx: WorkflowContext, (): ()) -> Result<String, WorkflowError> {
        let signal = cx.signal_instance(HUB, "hub", TOLD, 1);
        match cx.race(cx.receive(BALL), signal).await {
            Either::Left(ball) => Ok(format!("ball {}", ball?)),
            Either::Right(sent) => Ok(format!("sent {:?}", sent.is_ok())),
        }
    }
    let store = Store::new();
    let runtime = with_code(store.bare())
        .register(HASTY, hasty)
        .start()
        .await
        .unwrap();
    let hub = runtime.start(HUB, "hub", (1, Vec::new())).await.unwrap();
    let run = runtime.start(HASTY, "h", ()).with_signal(BALL, 7).await.unwrap();
    assert_eq!(run.result().await.unwrap(), "ball 7");
    assert!(matches!(run.signal(BALL, 1).await, Err(RunError::Finished)));
    runtime.shutdown().await.unwrap();
    drop((runtime, hub, run));
    let runtime = with_code(store.bare())
        .register(HASTY, hasty)
        .start()
        .await
        .unwrap();
    assert!(runtime.stats().live <= 1, "only the hub may be left");
    runtime.shutdown().await.unwrap();
}

/// Tellers that speak at once, and the hub in which they are heard.
async fn tell_all(runtime: &Runtime, tellers: u64, each: u64) -> RunHandle<Vec<u64>> {
    let start = runtime.start(HUB, "hub", (tellers * each, Vec::new()));
    let hub = start.on_conflict(millrun::OnConflict::Attach).await.unwrap();
    for number in 0..tellers {
        let id = format!("t-{number}");
        let start = runtime.start(TELLER, &id, (number * each, each));
        drop(start.on_conflict(millrun::OnConflict::Attach).await.unwrap());
    }
    hub
}

/// The process crashes at one step after the other. What was under way is sent again when the store is opened, to a hub
/// that may have recorded it, may have gone on in another run since, or may have ended.
#[test]
fn whenever_the_process_crashes_each_signal_is_recorded_once_and_its_sender_is_told() {
    const TELLERS: u64 = 4;
    const EACH: u64 = 6;
    let mut crashed = 0;
    for seed in 1..=150_u64 {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.redb");
        for life in 0..4_usize {
            let world = SimHost::new(SimConfig::seeded(seed * 10 + life as u64));
            let builder = with_code(Runtime::open(&path).host(world.host()));
            let ended = Arc::new(Mutex::new(None));
            let told = Arc::clone(&ended);
            let script = async move {
                let runtime = builder.start().await.unwrap();
                let hub = tell_all(&runtime, TELLERS, EACH).await;
                let heard = hub.result().await.unwrap();
                let mut last = Vec::new();
                for number in 0..TELLERS {
                    let teller = runtime.attach(TELLER, &format!("t-{number}")).unwrap();
                    last.push(teller.result().await.unwrap());
                }
                *told.lock().unwrap() = Some((sorted(heard), last));
                runtime.shutdown().await.unwrap();
            };
            let task = world.host().spawn("script", Box::pin(script));
            // The last life is lived to its end.
            let steps_max = [10 + seed, 10 + seed * 7 % 120, 10 + seed * 11 % 120, u64::MAX][life];
            let steps = AtomicU64::new(0);
            let is_over =
                || ended.lock().unwrap().is_some() || steps.fetch_add(1, Ordering::Relaxed) > steps_max;
            let _outcome = world.run_until(is_over);
            world.crash();
            drop(task);
            match ended.lock().unwrap().take() {
                Some((heard, last)) => {
                    assert_eq!(
                        heard,
                        (0..TELLERS * EACH).collect::<Vec<_>>(),
                        "seed {seed}, life {life}"
                    );
                    assert_eq!(last, ["told"; 4], "seed {seed}, life {life}");
                    break;
                }
                None => {
                    assert!(life < 3, "seed {seed} has not come to its end");
                    crashed += 1;
                }
            }
        }
    }
    assert!(crashed > 300, "{crashed} lives were cut off");
}

/// As long as nobody is there who knows, a signal waits: what is sent is kept by the history of its sender.
#[tokio::test]
async fn signals_that_were_under_way_when_the_runtime_stopped_arrive_when_it_is_opened_again() {
    let store = Store::new();
    let runtime = open(&store).await;
    drop(tell_all(&runtime, 10, 20).await);
    drop(runtime);
    for _ in 0..3 {
        drop(open(&store).await);
    }
    let runtime = open(&store).await;
    let hub = tell_all(&runtime, 10, 20).await;
    assert_eq!(sorted(hub.result().await.unwrap()), (0..200).collect::<Vec<_>>());
    runtime.shutdown().await.unwrap();
}
