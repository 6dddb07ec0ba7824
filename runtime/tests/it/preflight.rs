//! Preflights: the code of today on the runs that another day's code has left.

use std::fs;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use millrun::preflight::{PreflightError, PreflightProblem, PreflightReport};
use millrun::store::StoreError;
use millrun::{
    Activity, ActivityContext, ActivityError, OpenError, Query, Retry, Runtime, RuntimeBuilder, Signal,
    Topic, Workflow, WorkflowContext, WorkflowError,
};
use serde::{Deserialize, Serialize};

use crate::support::Store;

const ORDER: Workflow<Order, u64> = Workflow::named("order");
const OTHER: Workflow<u64, u64> = Workflow::named("other");
const RESERVE: Activity<u64, u64> = Activity::named("reserve");
const CHARGE: Activity<u64, u64> = Activity::named("charge");
const PACKED: Topic<u64> = Topic::named("packed");
const PAID: Signal<u64> = Signal::named("paid");
const SENT: Signal<u64> = Signal::named("sent");

#[derive(Clone, Serialize, Deserialize)]
struct Order {
    number: u64,
}

async fn same(_cx: ActivityContext, number: u64) -> Result<u64, ActivityError> {
    Ok(number)
}

async fn other(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    cx.sleep(Duration::from_micros(1)).await?;
    Ok(number)
}

/// The code that the runs began with.
async fn order(cx: WorkflowContext, order: Order) -> Result<u64, WorkflowError> {
    let reserved = cx.call(RESERVE, order.number).await?;
    let number = cx.record(|| 7_u64).named("number").await?;
    let name = cx.record(|| 8_u64).named("name").await?;
    cx.sleep(Duration::from_micros(1)).await?;
    let (one, two) = cx.join(cx.call(CHARGE, 1), cx.call(CHARGE, 2)).await;
    cx.publish(PACKED, one? + two?).await?;
    let child = format!("{}-child", cx.instance_id());
    let inner = cx.child(OTHER, child, order.number).await?;
    let paid = cx.receive(PAID).await?;
    let sent = cx.receive(SENT).await?;
    Ok(reserved + number + name + inner + paid + sent)
}

fn told(builder: RuntimeBuilder) -> RuntimeBuilder {
    let builder = builder.register(RESERVE, same).register(CHARGE, same);
    builder.register(OTHER, other).topic(PACKED)
}

/// So many orders that are paid, and wait to be sent, and one that was sent.
async fn left(orders: u64) -> Store {
    let store = Store::new();
    let runtime = told(store.bare()).register(ORDER, order).start().await.unwrap();
    for number in 0..=orders {
        let run = runtime
            .start(ORDER, &format!("order-{number}"), Order { number })
            .await
            .unwrap();
        run.signal(PAID, 1).await.unwrap();
        run.until_described(|run| run.awaits(SENT.name())).await.unwrap();
    }
    let last = runtime.attach(ORDER, &format!("order-{orders}")).unwrap();
    last.signal(SENT, 1).await.unwrap();
    last.result().await.unwrap();
    runtime.shutdown().await.unwrap();
    store
}

async fn tried<F, Fut>(store: &Store, code: F) -> PreflightReport
where
    F: Fn(WorkflowContext, Order) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<u64, WorkflowError>> + Send + 'static,
{
    told(store.bare())
        .register(ORDER, code)
        .preflight()
        .await
        .unwrap()
}

#[tokio::test]
async fn the_code_that_made_the_runs_fits_them_and_not_a_byte_of_the_file_is_changed() {
    let store = left(25).await;
    let before = fs::read(store.path()).unwrap();
    let preflight = told(store.bare()).register(ORDER, order).preflight();
    let report = preflight
        .configure(|config| config.finished_len_max = 10)
        .await
        .unwrap();
    assert!(report.is_fit(), "{report}");
    // The children that have ended are tried as well, those that ended last first.
    assert_eq!(report.runs, 35, "{report}");
    let live = report
        .workflows
        .iter()
        .find(|one| one.workflow == "order")
        .unwrap();
    assert_eq!((live.runs, live.fit, live.changed_values), (26, 26, 0));
    assert!(report.events > 26 * 15, "{report}");
    assert!(fs::read(store.path()).unwrap() == before);

    // Behind it the runs go on.
    let runtime = told(store.bare()).register(ORDER, order).start().await.unwrap();
    let run = runtime.attach(ORDER, "order-3").unwrap();
    run.signal(SENT, 1).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 3 + 7 + 8 + 3 + 1 + 1);
    runtime.shutdown().await.unwrap();
}

/// The report of a change that no run of a store survives.
macro_rules! planted {
    ($store:expr, $found:expr, $code:expr) => {{
        let report = tried(&$store, $code).await;
        assert!(!report.is_fit(), "it was missed");
        assert_eq!(report.findings.len(), 1, "{report}");
        let finding = &report.findings[0];
        assert_eq!(finding.runs, 5, "{report}");
        let text = report.to_string();
        assert!(text.contains($found), "{text}");
        finding.problem
    }};
}

#[tokio::test]
#[allow(clippy::too_many_lines, reason = "a line for each change")]
async fn no_change_that_breaks_runs_is_missed() {
    use PreflightProblem::{Differs, Fails};
    let store = left(5).await;
    // The calls are in another order.
    let problem = planted!(
        store,
        "call of charge",
        async |cx: WorkflowContext, order: Order| {
            cx.call(CHARGE, 1).await?;
            Ok(cx.call(RESERVE, order.number).await?)
        }
    );
    assert_eq!(problem, Differs);
    // An activity has another name.
    const RESERVED: Activity<u64, u64> = Activity::named("reserved");
    planted!(
        store,
        "call of reserved",
        async |cx: WorkflowContext, order: Order| { Ok(cx.call(RESERVED, order.number).await?) }
    );
    // Its result has another type.
    const TEXT: Activity<u64, String> = Activity::named("reserve");
    planted!(
        store,
        "expected a string",
        async |cx: WorkflowContext, order: Order| { Ok(cx.call(TEXT, order.number).await?.len() as u64) }
    );
    // A record has another type.
    planted!(
        store,
        "expected a string",
        async |cx: WorkflowContext, order: Order| {
            cx.call(RESERVE, order.number).await?;
            let number = cx.record(String::new).named("number").await?;
            Ok(number.len() as u64)
        }
    );
    // A timer is new.
    planted!(store, "timer", async |cx: WorkflowContext, given: Order| {
        cx.sleep(Duration::from_secs(1)).await?;
        order(cx, given).await
    });
    // A call is gone.
    planted!(store, "record of", async |cx: WorkflowContext, _: Order| {
        cx.record(|| 7_u64).named("number").await?;
        Ok(0)
    });
    // Two records have changed places.
    planted!(store, "name", async |cx: WorkflowContext, order: Order| {
        cx.call(RESERVE, order.number).await?;
        cx.record(|| 8_u64).named("name").await?;
        cx.record(|| 7_u64).named("number").await?;
        Ok(cx.receive(SENT).await?)
    });
    // Two operations that were joined come one after the other.
    planted!(store, "charge", async |cx: WorkflowContext, order: Order| {
        cx.call(RESERVE, order.number).await?;
        cx.record(|| 7_u64).named("number").await?;
        cx.record(|| 8_u64).named("name").await?;
        cx.sleep(Duration::from_micros(1)).await?;
        let sum = cx.call(CHARGE, 1).await? + cx.call(CHARGE, 2).await?;
        cx.publish(PACKED, sum).await?;
        Ok(cx.receive(SENT).await?)
    });
    // It publishes to another topic.
    const PACKETS: Topic<u64> = Topic::named("packets");
    planted!(store, "packets", async |cx: WorkflowContext, order: Order| {
        cx.call(RESERVE, order.number).await?;
        cx.record(|| 7_u64).named("number").await?;
        cx.record(|| 8_u64).named("name").await?;
        cx.sleep(Duration::from_micros(1)).await?;
        let (one, two) = cx.join(cx.call(CHARGE, 1), cx.call(CHARGE, 2)).await;
        cx.publish(PACKETS, one? + two?).await?;
        Ok(cx.receive(SENT).await?)
    });
    // The child has another id. Each is another one, and they are one finding.
    planted!(store, "-parcel", async |cx: WorkflowContext, order: Order| {
        cx.call(RESERVE, order.number).await?;
        cx.record(|| 7_u64).named("number").await?;
        cx.record(|| 8_u64).named("name").await?;
        cx.sleep(Duration::from_micros(1)).await?;
        let (one, two) = cx.join(cx.call(CHARGE, 1), cx.call(CHARGE, 2)).await;
        cx.publish(PACKED, one? + two?).await?;
        let child = format!("{}-parcel", cx.instance_id());
        Ok(cx.child(OTHER, child, order.number).await?)
    });
    // It no longer waits for a signal, and so would have ended.
    planted!(store, "Completed", async |cx: WorkflowContext, order: Order| {
        cx.call(RESERVE, order.number).await?;
        cx.record(|| 7_u64).named("number").await?;
        cx.record(|| 8_u64).named("name").await?;
        cx.sleep(Duration::from_micros(1)).await?;
        let (one, two) = cx.join(cx.call(CHARGE, 1), cx.call(CHARGE, 2)).await;
        cx.publish(PACKED, one? + two?).await?;
        let child = format!("{}-child", cx.instance_id());
        cx.child(OTHER, child, order.number).await?;
        Ok(cx.receive(PAID).await?)
    });
    // It panics.
    let problem = planted!(
        store,
        "there is no 7",
        async |cx: WorkflowContext, order: Order| {
            cx.call(RESERVE, order.number).await?;
            match cx.record(|| 7_u64).named("number").await? {
                7 => panic!("there is no 7"),
                other => Ok(other),
            }
        }
    );
    assert_eq!(problem, Fails);
}

macro_rules! harmless {
    ($store:expr, $code:expr) => {{
        let report = tried(&$store, $code).await;
        assert!(report.is_fit(), "{report}");
        report.workflows.iter().map(|one| one.changed_values).sum::<u64>()
    }};
}

/// The same order, with what comes before, and with how its parts are called.
async fn with(cx: WorkflowContext, order: Order, change: impl Fn(u64) -> u64) -> Result<u64, WorkflowError> {
    let reserved = cx.call(RESERVE, order.number).await?;
    let number = cx.record(|| 70_u64).named("number").await?;
    let name = cx.record(|| 80_u64).named("name").await?;
    cx.sleep(Duration::from_micros(1)).await?;
    let (one, two) = cx.join(cx.call(CHARGE, 1), cx.call(CHARGE, 2)).await;
    cx.publish(PACKED, change(one? + two?)).await?;
    let child = format!("{}-child", cx.instance_id());
    let inner = cx.child(OTHER, child, order.number).await?;
    let paid = cx.receive(PAID).await?;
    let sent = cx.receive(SENT).await?;
    Ok(change(reserved + number + name + inner + paid + sent))
}

#[tokio::test]
async fn no_change_that_breaks_nothing_raises_an_alarm() {
    let store = left(5).await;
    // What a record takes from the world, and what comes behind the last event.
    assert_eq!(
        harmless!(store, async |cx, order| with(cx, order, |sum| sum).await),
        0
    );
    // Another value is told, and is no alarm.
    assert_eq!(
        harmless!(store, async |cx, order| with(cx, order, |sum| sum + 1).await),
        5
    );
    // A change that is patched.
    harmless!(store, async |cx: WorkflowContext, given: Order| {
        if cx.patched("greet") {
            cx.sleep(Duration::from_secs(1)).await?;
        }
        order(cx, given).await
    });
    // Calls behind what has happened.
    harmless!(store, async |cx: WorkflowContext, given: Order| {
        let sum = order(cx.clone(), given).await?;
        cx.sleep(Duration::from_secs(1)).await?;
        Ok(cx.call(CHARGE, sum).await?)
    });
    // Other retries, timeouts and queues of a call.
    harmless!(store, async |cx: WorkflowContext, order: Order| {
        let call = cx.call(RESERVE, order.number).retry(Retry::never());
        let reserved = call
            .start_to_close(Duration::from_secs(3))
            .on_queue("slow")
            .await?;
        cx.record(|| 7_u64).named("number").await?;
        cx.record(|| 8_u64).named("name").await?;
        // Another time, too.
        cx.sleep(Duration::from_micros(9)).await?;
        let one = cx.call(CHARGE, 1);
        let two = cx.call(CHARGE, 2);
        let (one, two) = cx.join(one, two).await;
        let sum = one? + two?;
        cx.publish(PACKED, sum).await?;
        let child = format!("{}-child", cx.instance_id());
        cx.child(OTHER, child, order.number).await?;
        // A signal that is waited for elsewhere is no event.
        let paid = cx.receive(PAID).await?;
        Ok(cx.receive(SENT).await? + paid + reserved)
    });
    // An input that has got a field, with a default.
    #[derive(Serialize, Deserialize)]
    struct Later {
        number: u64,
        #[serde(default)]
        gift: bool,
    }
    const LATER: Workflow<Later, u64> = Workflow::named("order");
    const STATE: Query<u64, (), u64> = Query::named("state");
    let code = async |cx: WorkflowContext, later: Later| {
        let state = cx.state(0_u64);
        state.change(|state| *state += u64::from(later.gift));
        order(cx, Order { number: later.number }).await
    };
    // It answers a query now, and there is another workflow.
    const NEW: Workflow<u64, u64> = Workflow::named("new");
    let builder = told(store.bare()).register(LATER.query(STATE, |state, ()| *state), code);
    let report = builder.register(NEW, other).preflight().await.unwrap();
    assert!(report.is_fit(), "{report}");
    // Activities have no part in it.
    let builder = store.bare().register(ORDER, order).register(OTHER, other);
    assert!(builder.preflight().await.unwrap().is_fit());
}

#[tokio::test]
async fn runs_with_the_same_difference_are_one_finding_and_those_without_code_another() {
    let store = left(40).await;
    const LONE: Workflow<u64, u64> = Workflow::named("lone");
    let runtime = told(store.bare()).register(LONE, async |cx: WorkflowContext, _: u64| {
        Ok(cx.receive(SENT).await?)
    });
    let runtime = runtime.start().await.unwrap();
    for id in ["a", "b"] {
        runtime.start(LONE, id, 1).await.unwrap();
    }
    runtime.shutdown().await.unwrap();
    let report = tried(&store, async |cx: WorkflowContext, given: Order| {
        cx.child(OTHER, format!("new-{}", cx.instance_id()), 1).await?;
        order(cx, given).await
    });
    let report = report.await;
    let found: Vec<_> = report
        .findings
        .iter()
        .map(|one| (one.workflow.as_str(), one.problem, one.runs))
        .collect();
    assert_eq!(
        found,
        [
            ("order", PreflightProblem::Differs, 40),
            ("lone", PreflightProblem::NoCode, 2)
        ]
    );
    assert_eq!(report.findings[0].examples.len(), 8);
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["findings"][1]["problem"], "no-code");
    assert_eq!(json["workflows"][1]["runs"], 40);
    // Where more differ than may be told they are counted.
    let builder = told(store.bare()).register(ORDER, async |cx: WorkflowContext, _: Order| {
        Ok(cx.call(CHARGE, 1).await?)
    });
    let few = builder.preflight().configure(|config| {
        config.findings_len_max = 1;
        config.threads = 1;
    });
    let few = few.await.unwrap();
    assert_eq!(few.findings.len(), 1, "{few}");
    assert_eq!(few.findings[0].runs + few.runs_untold, 42, "{few}");
    assert!(few.runs_untold > 0 && !few.is_fit(), "{few}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replay_that_does_not_end_is_told_and_holds_up_no_other() {
    let store = left(5).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let looping = || {
        let is_over = Arc::clone(&is_over);
        told(store.bare()).register(ORDER, move |cx: WorkflowContext, given: Order| {
            let is_over = Arc::clone(&is_over);
            async move {
                while given.number == 3 && !is_over.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
                order(cx, given).await
            }
        })
    };
    let preflight = looping().preflight().configure(|config| {
        config.threads = 1;
        config.run_time_max = Duration::from_millis(200);
    });
    let report = preflight.await.unwrap();
    let [finding] = &report.findings[..] else {
        panic!("{report}");
    };
    assert_eq!((finding.problem, finding.runs), (PreflightProblem::Endless, 1));
    assert_eq!(finding.examples[0].0.as_str(), "order-3");
    assert_eq!((report.runs, report.workflows[0].fit), (5, 4), "{report}");

    let refused = looping().preflight().configure(|config| {
        config.endless_len_max = 0;
        config.run_time_max = Duration::from_millis(200);
    });
    assert!(matches!(
        refused.await,
        Err(PreflightError::Endless { len: 1, .. })
    ));
}

/// An order that is greeted first, which the runs from before have not been.
async fn greeted(cx: WorkflowContext, given: Order) -> Result<u64, WorkflowError> {
    if cx.patched("greet") {
        cx.record(|| 1_u64).named("greeting").await?;
    }
    order(cx, given).await
}

#[tokio::test]
async fn a_change_that_no_live_run_needs_any_more_is_told() {
    let store = left(3).await;
    let builder = || told(store.bare()).register(ORDER, greeted);
    let patches = async || {
        let report = builder().preflight().await.unwrap();
        assert!(report.is_fit(), "{report}");
        report.patches
    };
    let before = patches().await;
    assert_eq!(
        (before[0].old, before[0].new, before[0].is_removable),
        (3, 0, false)
    );

    let runtime = builder().start().await.unwrap();
    let new = runtime.start(ORDER, "new", Order { number: 9 }).await.unwrap();
    new.until_described(|run| run.awaits(PAID.name())).await.unwrap();
    for number in 0..3 {
        let run = runtime.attach(ORDER, &format!("order-{number}")).unwrap();
        run.signal(SENT, 1).await.unwrap();
        run.result().await.unwrap();
    }
    runtime.shutdown().await.unwrap();
    drop((new, runtime));
    let after = patches().await;
    assert_eq!(
        (after[0].workflow.as_str(), after[0].id.as_str()),
        ("order", "greet")
    );
    assert_eq!((after[0].old, after[0].new, after[0].is_removable), (0, 1, true));
    // And it fits without the mark.
    let removed = told(store.bare()).register(ORDER, async |cx: WorkflowContext, given: Order| {
        cx.record(|| 1_u64).named("greeting").await?;
        order(cx, given).await
    });
    assert!(removed.preflight().await.unwrap().is_fit());
}

#[tokio::test]
async fn what_cannot_be_tried_has_its_error() {
    let in_memory = Runtime::volatile().register(ORDER, order).preflight().await;
    assert!(matches!(in_memory, Err(PreflightError::NoFile)));
    let store = left(1).await;
    let wrong = store
        .bare()
        .preflight()
        .configure(|config| config.threads = 0)
        .await;
    assert!(matches!(
        wrong,
        Err(PreflightError::Config { field: "threads", .. })
    ));
    let twice = store
        .bare()
        .register(ORDER, order)
        .register(ORDER, order)
        .preflight()
        .await;
    let Err(PreflightError::Open(OpenError::RegisteredTwice { .. })) = twice else {
        panic!("{twice:?}");
    };
    let runtime = told(store.bare()).register(ORDER, order).start().await.unwrap();
    let taken = told(store.bare()).register(ORDER, order).preflight().await;
    let Err(PreflightError::Open(OpenError::Store(StoreError::AlreadyOpen { .. }))) = taken else {
        panic!("{taken:?}");
    };
    // Of such a one a backup is tried.
    let backup = store.path().with_extension("backup");
    runtime.store().unwrap().backup(&backup).await.unwrap();
    let report = told(Runtime::open(&backup))
        .register(ORDER, order)
        .preflight()
        .await
        .unwrap();
    assert_eq!((report.runs, report.is_fit()), (1, true), "{report}");
    runtime.shutdown().await.unwrap();
    fs::remove_file(&backup).unwrap();
    let missing = Runtime::open(backup).preflight().await;
    assert!(matches!(missing, Err(PreflightError::Open(_))), "{missing:?}");
}

const COUNT: Workflow<u64, u64> = Workflow::named("count");

async fn count(cx: WorkflowContext, first: u64) -> Result<u64, WorkflowError> {
    let mut sum = cx.checkpointed().transpose()?.unwrap_or(first);
    for _ in 0..4 {
        sum += cx.receive(SENT).await?;
    }
    Ok(cx.checkpoint(&sum).await?)
}

#[tokio::test]
async fn a_run_that_is_trimmed_is_tried_from_what_is_kept() {
    let store = Store::new();
    let builder = || {
        store
            .bare()
            .configure(|config| config.limits.kept_beginning_every = 16)
    };
    let runtime = builder().register(COUNT, count).start().await.unwrap();
    let run = runtime.start(COUNT, "c", 0).await.unwrap();
    for _ in 0..103 {
        run.signal(SENT, 1).await.unwrap();
    }
    runtime.shutdown().await.unwrap();
    let report = builder().register(COUNT, count).preflight().await.unwrap();
    assert!(report.is_fit() && report.events < 40, "{report}");
    let later = async |cx: WorkflowContext, first: u64| {
        cx.sleep(Duration::from_secs(1)).await?;
        count(cx, first).await
    };
    let report = builder().register(COUNT, later).preflight().await.unwrap();
    assert_eq!(report.findings[0].problem, PreflightProblem::Differs, "{report}");
}
