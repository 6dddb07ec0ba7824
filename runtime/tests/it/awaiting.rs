//! Waiting until a run's answer, or its description, is as wanted: woken by changes alone.

use millrun::workflow::Unanswered;
use millrun::{
    Query, QueryError, RunError, Runtime, RuntimeBuilder, Signal, StopCause, Workflow, WorkflowContext,
    WorkflowError,
};

use crate::support::Store;

const SUM: Query<u64, (), u64> = Query::named("sum");
const NONE: Query<u64, (), u64> = Query::named("none");
const ADD: Signal<u64> = Signal::named("add");
const BEGIN: Signal<()> = Signal::named("begin");
/// Adds up what it is told, from its input on, and ends with a zero.
const COUNT: Workflow<u64, u64> = Workflow::named("count");
/// As `COUNT`, and has no state before it is told to begin.
const LATER: Workflow<u64, u64> = Workflow::named("later");

async fn count(cx: WorkflowContext, begin: u64) -> Result<u64, WorkflowError> {
    let sum = cx.state(begin);
    loop {
        match cx.receive(ADD).await? {
            0 => return Ok(sum.read(|sum| *sum)),
            more => sum.change(|sum| *sum += more),
        }
    }
}

async fn later(cx: WorkflowContext, begin: u64) -> Result<u64, WorkflowError> {
    cx.receive(BEGIN).await?;
    count(cx, begin).await
}

fn code(builder: RuntimeBuilder) -> RuntimeBuilder {
    builder
        .register(COUNT.query(SUM, |sum, ()| *sum), count)
        .register(LATER.query(SUM, |sum, ()| *sum), later)
}

async fn volatile() -> Runtime {
    code(Runtime::volatile()).start().await.unwrap()
}

#[tokio::test]
async fn an_answer_that_is_as_wanted_is_given_at_once_and_others_are_waited_for() {
    let runtime = volatile().await;
    let run = runtime.start(COUNT, "c", 1).await.unwrap();
    assert_eq!(run.until(SUM, (), |sum| *sum == 1).await.unwrap(), 1);
    let mut looks = 0;
    let enough = run.until(SUM, (), |sum| {
        looks += 1;
        *sum >= 10
    });
    let tell = async {
        for _ in 0..9 {
            run.signal(ADD, 1).await.unwrap();
        }
    };
    let (enough, ()) = tokio::join!(enough, tell);
    assert_eq!(enough.unwrap(), 10);
    assert!(looks <= 11, "it looks after changes alone: {looks}");
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_run_that_has_no_state_yet_is_waited_for_and_one_that_does_not_answer_is_an_error() {
    let runtime = volatile().await;
    let run = runtime.start(LATER, "c", 7).await.unwrap();
    let (sum, begun) = tokio::join!(run.until(SUM, (), |_| true), run.signal(BEGIN, ()));
    assert_eq!((sum.unwrap(), begun.is_ok()), (7, true));
    let unknown = run.until(NONE, (), |_| true).await.unwrap_err();
    assert!(
        matches!(unknown, QueryError::Unanswered(Unanswered::Unknown { .. })),
        "{unknown}"
    );
    let nobody = runtime
        .attach(COUNT, "nobody")
        .unwrap()
        .until(SUM, (), |_| true)
        .await;
    assert!(
        matches!(nobody, Err(QueryError::Run(RunError::NotFound))),
        "{nobody:?}"
    );
    let other = runtime
        .attach(COUNT, "c")
        .unwrap()
        .until_described(|_| true)
        .await;
    assert!(matches!(other, Err(RunError::OtherWorkflow { .. })), "{other:?}");
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_run_that_ends_is_looked_at_once_more() {
    let runtime = volatile().await;
    let run = runtime.start(COUNT, "c", 1).await.unwrap();
    let wait = run.until(SUM, (), |sum| *sum > 5);
    let (ended, told) = tokio::join!(wait, run.signal(ADD, 0));
    told.unwrap();
    let ended = ended.unwrap_err();
    assert!(matches!(ended, QueryError::Run(RunError::Finished)), "{ended}");
    assert_eq!(
        run.until(SUM, (), |sum| *sum == 1).await.unwrap(),
        1,
        "as it ended"
    );
    assert!(matches!(
        run.until_described(|_| false).await,
        Err(RunError::Finished)
    ));
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_run_that_goes_on_in_another_is_followed() {
    const RELAY: Workflow<u64, u64> = Workflow::named("relay");
    async fn relay(cx: WorkflowContext, sum: u64) -> Result<u64, WorkflowError> {
        let _state = cx.state(sum);
        match cx.receive(ADD).await? {
            0 => Ok(sum),
            more => Ok(cx.continue_as_new(RELAY, sum + more).await?),
        }
    }
    let code = RELAY.query(SUM, |sum, ()| *sum);
    let runtime = Runtime::volatile().register(code, relay).start().await.unwrap();
    let run = runtime.start(RELAY, "r", 0).await.unwrap();
    let tell = async {
        for _ in 0..5 {
            run.signal(ADD, 2).await.unwrap();
        }
    };
    let (sum, ()) = tokio::join!(run.until(SUM, (), |sum| *sum >= 10), tell);
    assert_eq!(sum.unwrap(), 10);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn runs_on_disk_and_restarted_shards_lose_nobody_who_waits() {
    let store = Store::new();
    let builder = code(store.bare()).configure(|config| {
        config.shards_len = 1;
        config.hot_len_max = 1;
    });
    let runtime = builder.start().await.unwrap();
    let mut waiting = Vec::new();
    for number in 0..20 {
        let run = runtime
            .start(COUNT, &format!("c-{number}"), number)
            .await
            .unwrap();
        let waits = run.clone();
        let wait = async move { waits.until(SUM, (), |sum| *sum >= 100).await };
        waiting.push((run, tokio::spawn(wait)));
    }
    runtime.kill("shard 0").unwrap();
    for (run, _) in &waiting {
        // A shard that has failed is asked again.
        while let Err(error) = run.signal(ADD, 100).await {
            assert!(error.is_retryable(), "{error}");
        }
    }
    for (number, (_, wait)) in waiting.into_iter().enumerate() {
        let sum = wait.await.unwrap();
        match sum {
            Ok(sum) => assert!(sum >= 100 + number as u64),
            Err(QueryError::Run(error)) => assert!(error.is_retryable(), "{error}"),
            Err(error) => panic!("{error}"),
        }
    }
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn waits_that_are_given_up_make_room_and_the_end_of_the_runtime_ends_the_others() {
    let runtime = volatile().await;
    let run = runtime.start(COUNT, "c", 1).await.unwrap();
    for _ in 0..1_000 {
        let mut wait = Box::pin(run.until(SUM, (), |sum| *sum > 5));
        // Far enough to be listed.
        for _ in 0..3 {
            assert!(futures_util::poll!(&mut wait).is_pending());
            tokio::task::yield_now().await;
        }
    }
    let (sum, told) = tokio::join!(run.until(SUM, (), |sum| *sum > 5), run.signal(ADD, 5));
    assert_eq!((sum.unwrap(), told.is_ok()), (6, true));

    let waits = run.clone();
    let wait = tokio::spawn(async move { waits.until(SUM, (), |sum| *sum > 100).await });
    tokio::task::yield_now().await;
    runtime.shutdown().await.unwrap();
    let stopped = wait.await.unwrap().unwrap_err();
    assert!(
        matches!(stopped, QueryError::Run(RunError::Stopped(StopCause::Shutdown))),
        "{stopped}"
    );
}

#[tokio::test]
async fn names_and_payloads_wait_as_types_do() {
    let runtime = volatile().await;
    runtime.start(COUNT, "c", 1).await.unwrap();
    let run = runtime.attach_untyped("c").unwrap();
    run.until_described(|run| run.awaits("add")).await.unwrap();
    let question = millrun::Payload::encode(&()).unwrap();
    let answer = run
        .until("sum", question, |sum| sum.decode::<u64>() == Ok(1))
        .await
        .unwrap();
    assert_eq!(answer.decode::<u64>().unwrap(), 1);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn more_callers_than_may_wait_at_a_run_are_refused_until_others_give_up() {
    let builder = code(Runtime::volatile()).configure(|config| config.watchers_len_max = 2);
    let runtime = builder.start().await.unwrap();
    let run = runtime.start(COUNT, "c", 0).await.unwrap();
    let (looks, mut looked) = tokio::sync::mpsc::unbounded_channel();
    let wait = || {
        let (run, looks) = (run.clone(), looks.clone());
        tokio::spawn(async move {
            let enough = |sum: &u64| {
                looks.send(()).unwrap();
                *sum >= 10
            };
            run.until(SUM, (), enough).await
        })
    };
    let (first, second) = (wait(), wait());
    for _ in 0..2 {
        // A caller that has looked is listed.
        looked.recv().await.unwrap();
    }
    let third = run.until(SUM, (), |_| true).await.unwrap_err();
    assert!(
        matches!(third, QueryError::Run(RunError::TooManyWatchers { len_max: 2 })),
        "{third}"
    );
    let described = run.until_described(|_| true).await.unwrap_err();
    assert!(matches!(&described, RunError::TooManyWatchers { len_max: 2 }) && described.is_retryable());
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    let third = wait();
    looked.recv().await.unwrap();
    run.signal(ADD, 10).await.unwrap();
    for waiter in [second, third] {
        assert_eq!(waiter.await.unwrap().unwrap(), 10);
    }
}
