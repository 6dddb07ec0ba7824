//! Runs that are reset to an event: what becomes of them, and of all that has to do with them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millrun::history::{Event, RecordedEvent, Sequence};
use millrun::operating::{
    InstanceStatus, PendingDescription, ResetPoint, ResetRefused, RunSearch, RunStatus,
};
use millrun::workflow::Awaited;
use millrun::{
    Activity, ActivityContext, ActivityError, DurableTopic, OnConflict, ResultError, RunError, RunHandle,
    RunId, Runtime, RuntimeBuilder, Signal, Topic, Update, UpdateError, Workflow, WorkflowContext,
    WorkflowError,
};
use millrun_testkit::{SimConfig, SimHost};
use tokio::sync::Notify;

use crate::crashes::cut_off;
use crate::support::{Store, described};

const CHARGE: Activity<u64, u64> = Activity::named("charge");
const GO: Signal<u64> = Signal::named("go");
const ORDER: Workflow<u64, u64> = Workflow::named("order");
const PARENT: Workflow<u64, u64> = Workflow::named("parent");
/// The id of its child.
const CHILD: &str = "child";

/// The charges, by the keys under which they were made.
type Charges = Arc<Mutex<Vec<(String, u64)>>>;

async fn charge(charges: Charges, cx: ActivityContext, cents: u64) -> Result<u64, ActivityError> {
    let key = cx.idempotency_key();
    let mut charges = charges.lock().unwrap();
    // Asked again because of a crash, it is the same charge.
    if charges.iter().all(|(known, _)| *known != key) {
        charges.push((key, cents));
    }
    Ok(cents)
}

/// 1 Started, 2 the call, 3 its end, 4 the signal, 5 the call, 6 its end, 7 Completed.
async fn order(cx: WorkflowContext, cents: u64) -> Result<u64, WorkflowError> {
    let first = cx.call(CHARGE, cents).await?;
    let more = cx.receive(GO).await?;
    Ok(first + cx.call(CHARGE, more).await?)
}

fn with_code(builder: RuntimeBuilder, charges: &Charges) -> RuntimeBuilder {
    builder
        .register_with(Arc::clone(charges), CHARGE, charge)
        .register(ORDER, order)
        .register(PARENT, parent)
}

fn charged(charges: &Charges) -> Vec<u64> {
    charges.lock().unwrap().iter().map(|(_, cents)| *cents).collect()
}

fn run_of<O>(handle: &RunHandle<O>) -> RunId {
    handle.run_id().expect("it was started, or reset")
}

async fn events(runtime: &Runtime, run: RunId) -> Vec<RecordedEvent> {
    runtime.history(run, Sequence::ZERO, 100).await.unwrap().events
}

async fn labels(runtime: &Runtime, run: RunId) -> Vec<&'static str> {
    let events = events(runtime, run).await;
    events.iter().map(|recorded| recorded.event.label()).collect()
}

async fn statuses(runtime: &Runtime) -> Vec<RunStatus> {
    let found = runtime.find(&RunSearch::new(), None, 10).await.unwrap();
    found.runs.into_iter().map(|run| run.status).collect()
}

async fn until_waiting<O>(run: &RunHandle<O>) {
    let waits = |wait: &Awaited| matches!(wait, Awaited::Signal { name, .. } if name == GO.name());
    described(run, |described| described.awaited.iter().any(waits)).await;
}

/// Whether it is a child that runs.
fn is_begun(pending: &PendingDescription) -> bool {
    matches!(pending, PendingDescription::Child { run: Some(_), .. })
}

fn refused<T: std::fmt::Debug>(answer: Result<T, RunError>) -> ResetRefused {
    match answer {
        Err(RunError::NotReset(refused)) => *refused,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_live_run_ends_as_reset_and_its_instance_goes_on_in_another() {
    let charges = Charges::default();
    let runtime = with_code(Runtime::volatile(), &charges).start().await.unwrap();
    let former = runtime.start(ORDER, "o", 5).await.unwrap();
    until_waiting(&former).await;
    let waiting = tokio::spawn({
        let former = former.clone();
        async move { former.result().await }
    });
    let point = ResetPoint::to_event(2).because("charged the wrong account");
    let next = former.reset(point).await.unwrap();
    assert_ne!(run_of(&next), run_of(&former));
    assert_eq!(
        statuses(&runtime).await,
        [RunStatus::Running, RunStatus::Continued]
    );
    let [before, after] = [
        events(&runtime, run_of(&former)).await,
        events(&runtime, run_of(&next)).await,
    ];
    let end = Event::Reset {
        run: run_of(&next),
        to: Sequence::new(2),
        reason: "charged the wrong account".into(),
    };
    assert_eq!(before.last().unwrap().event, end);
    let Event::Started(started) = &after[0].event else {
        panic!("{after:?}");
    };
    assert_eq!(started.reset_to(), Some(Sequence::new(2)));
    assert_eq!(started.origin.as_ref().unwrap().continued, Some(run_of(&former)));
    assert_eq!((after[0].at, &after[1]), (before[0].at, &before[1]));
    // A handle to the former run means the next one, and so does who waits for its result.
    until_waiting(&next).await;
    former.signal(GO, 7).await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap(), 12);
    assert_eq!(former.result().await.unwrap(), 12);
    assert_eq!(
        charged(&charges),
        [5, 5, 7],
        "the first is charged under another key"
    );
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_run_that_has_ended_keeps_its_result_and_its_instance_goes_on_in_another() {
    // The results are at hand, on disk only, or of an earlier process.
    for (at_hand, is_opened_again) in [(4_096, false), (0, false), (4_096, true)] {
        let (store, charges) = (Store::new(), Charges::default());
        let builder =
            || with_code(store.open(), &charges).configure(|config| config.result_cache_len_max = at_hand);
        let mut runtime = builder().start().await.unwrap();
        let former = runtime.start(ORDER, "o", 5).await.unwrap();
        former.signal(GO, 7).await.unwrap();
        assert_eq!(former.result().await.unwrap(), 12);
        let former = run_of(&former);
        if is_opened_again {
            runtime.shutdown().await.unwrap();
            runtime = builder().start().await.unwrap();
        }
        let next = runtime
            .attach(ORDER, "o")
            .unwrap()
            .reset(ResetPoint::to_event(3))
            .await
            .unwrap();
        next.signal(GO, 8).await.unwrap();
        assert_eq!(next.result().await.unwrap(), 13);
        assert_eq!(runtime.attach(ORDER, "o").unwrap().result().await.unwrap(), 13);
        assert_eq!(
            charged(&charges),
            [5, 7, 8],
            "what stands before the event is not done again"
        );
        assert_eq!(labels(&runtime, former).await.last(), Some(&"Completed"));
        assert_eq!(statuses(&runtime).await, [RunStatus::Completed; 2]);
        // What ended is not the latest any more.
        let stale = runtime.attach(ORDER, "o").unwrap();
        let stale = stale.reset(ResetPoint::to_event(3).of_run(former)).await;
        assert_eq!(
            refused(stale),
            ResetRefused::NotLatest {
                latest: run_of(&next)
            }
        );
        runtime.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn a_parked_run_is_reset_to_where_the_code_still_fits() {
    async fn changed(cx: WorkflowContext, cents: u64) -> Result<u64, WorkflowError> {
        let first = cx.call(CHARGE, cents).await?;
        cx.sleep(Duration::from_millis(1)).await?;
        Ok(first)
    }
    let (store, charges) = (Store::new(), Charges::default());
    let runtime = with_code(store.open(), &charges).start().await.unwrap();
    let former = runtime.start(ORDER, "o", 5).await.unwrap();
    former.signal(GO, 7).await.unwrap();
    former.result().await.unwrap();
    runtime.start(ORDER, "live", 5).await.unwrap();
    until_waiting(&runtime.attach(ORDER, "live").unwrap()).await;
    runtime.shutdown().await.unwrap();
    let other = store.open().register_with(Arc::clone(&charges), CHARGE, charge);
    let runtime = other.register(ORDER, changed).start().await.unwrap();
    let ended = runtime.attach(ORDER, "o").unwrap();
    let ResetRefused::DoesNotFit(difference) = refused(ended.reset(ResetPoint::to_event(5)).await) else {
        panic!("it fits");
    };
    assert_eq!(difference.sequence, 4);
    let live = runtime.attach(ORDER, "live").unwrap();
    live.signal(GO, 1).await.unwrap();
    described(&live, |described| described.status == InstanceStatus::Parked).await;
    let parked = refused(live.reset(ResetPoint::to_event(5)).await);
    assert!(matches!(parked, ResetRefused::Parked { .. }), "{parked}");
    for run in [live, ended] {
        assert_eq!(
            run.reset(ResetPoint::to_event(3))
                .await
                .unwrap()
                .result()
                .await
                .unwrap(),
            5
        );
    }
    assert_eq!(charged(&charges), [5, 7, 5], "the charge before the event stands");
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_point_that_cannot_be_refuses_the_reset_and_changes_nothing() {
    let (store, charges) = (Store::new(), Charges::default());
    let builder = with_code(store.open(), &charges);
    let runtime = builder.start().await.unwrap();
    let run = runtime.start(ORDER, "o", 5).await.unwrap();
    until_waiting(&run).await;
    let before = events(&runtime, run_of(&run)).await;
    let head = Sequence::new(3);
    for to in [0, 4, u64::MAX] {
        let refused = refused(run.reset(ResetPoint::to_event(to)).await);
        let to = Sequence::new(to);
        assert_eq!(refused, ResetRefused::NoEvent { to, head });
    }
    let other = runtime
        .attach(PARENT, "o")
        .unwrap()
        .reset(ResetPoint::to_event(2))
        .await;
    assert!(matches!(other, Err(RunError::OtherWorkflow { .. })), "{other:?}");
    let nobody = runtime
        .attach(ORDER, "nobody")
        .unwrap()
        .reset(ResetPoint::to_event(2))
        .await;
    assert!(matches!(nobody, Err(RunError::NotFound)), "{nobody:?}");
    assert_eq!(events(&runtime, run_of(&run)).await, before);
    run.signal(GO, 7).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 12);
    let to = Sequence::new(7);
    assert_eq!(
        refused(run.reset(ResetPoint::to_event(7)).await),
        ResetRefused::End { to }
    );
    assert_eq!(statuses(&runtime).await, [RunStatus::Completed]);
    runtime.shutdown().await.unwrap();
    // Without its code nobody can tell what would become of it.
    let runtime = store.open().start().await.unwrap();
    let run = runtime.attach(ORDER, "o").unwrap();
    let (workflow, version) = (ORDER.name().to_owned(), 0);
    assert_eq!(
        refused(run.reset(ResetPoint::to_event(3)).await),
        ResetRefused::NoCode { workflow, version }
    );
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn more_than_fits_a_turn_is_refused_and_so_is_one_live_run_too_many() {
    const LONG: Workflow<String, ()> = Workflow::named("long");
    const MORE: Signal<String> = Signal::named("more");
    async fn long(cx: WorkflowContext, _: String) -> Result<(), WorkflowError> {
        while !cx.receive(MORE).await?.is_empty() {}
        Ok(())
    }
    let builder = Runtime::volatile().register(LONG, long).configure(|config| {
        config.limits.payload_bytes_max = 4_000;
        config.journal.turn_bytes_max = 16_000;
        config.live_len_max = 2;
    });
    let runtime = builder.start().await.unwrap();
    let run = runtime.start(LONG, "l", String::new()).await.unwrap();
    for _ in 0..6 {
        run.signal(MORE, "x".repeat(3_000)).await.unwrap();
    }
    let too_large = refused(run.reset(ResetPoint::to_event(6)).await);
    assert!(
        matches!(too_large, ResetRefused::TooLarge { bytes, bytes_max: 16_000 } if bytes > 16_000),
        "{too_large}"
    );
    let kept = refused(run.reset(ResetPoint::to_event(1).keep_signals()).await);
    assert!(matches!(kept, ResetRefused::TooLarge { .. }), "{kept}");
    let run = run.reset(ResetPoint::to_event(4)).await.unwrap();
    run.signal(MORE, String::new()).await.unwrap();
    run.result().await.unwrap();
    for id in ["a", "b"] {
        runtime.start(LONG, id, String::new()).await.unwrap();
    }
    let full = refused(run.reset(ResetPoint::to_event(1)).await);
    assert_eq!(full, ResetRefused::TooManyLive { len_max: 2 });
    // A live one takes no further place.
    runtime
        .attach(LONG, "a")
        .unwrap()
        .reset(ResetPoint::to_event(1))
        .await
        .unwrap();
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn an_attempt_of_the_former_run_is_cancelled_and_the_other_run_makes_one_of_its_own() {
    const SLOW: Activity<(), u64> = Activity::named("slow");
    const ASK: Workflow<(), u64> = Workflow::named("ask");
    /// What the attempts tell: which runs made them, that one has begun, that one was dropped.
    #[derive(Clone, Default)]
    struct Told(Arc<Mutex<Vec<RunId>>>, Arc<Notify>, Arc<Notify>);
    struct Dropped(Arc<Notify>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.notify_one();
        }
    }
    async fn slow(told: Told, cx: ActivityContext, (): ()) -> Result<u64, ActivityError> {
        let number = {
            let mut runs = told.0.lock().unwrap();
            runs.push(cx.cause().run);
            runs.len() as u64
        };
        told.1.notify_one();
        if number == 1 {
            let _dropped = Dropped(told.2);
            std::future::pending::<()>().await;
        }
        Ok(number)
    }
    async fn ask(cx: WorkflowContext, (): ()) -> Result<u64, WorkflowError> {
        Ok(cx.call(SLOW, ()).await?)
    }
    let told = Told::default();
    let builder = Runtime::volatile()
        .register_with(told.clone(), SLOW, slow)
        .register(ASK, ask);
    let runtime = builder.start().await.unwrap();
    let former = runtime.start(ASK, "a", ()).await.unwrap();
    told.1.notified().await;
    let next = former.reset(ResetPoint::to_event(2)).await.unwrap();
    told.2.notified().await;
    assert_eq!(next.result().await.unwrap(), 2);
    assert_eq!(*told.0.lock().unwrap(), [run_of(&former), run_of(&next)]);
    assert_eq!(
        labels(&runtime, run_of(&former)).await,
        ["Started", "ActivityScheduled", "Reset"]
    );
    runtime.shutdown().await.unwrap();
}

/// 1 Started, 2 the call of the activity, 3 its end, 4 the call of the child.
async fn parent(cx: WorkflowContext, cents: u64) -> Result<u64, WorkflowError> {
    let cents = cx.call(CHARGE, cents).await?;
    Ok(cx.child(ORDER, CHILD, cents).await?)
}

#[tokio::test]
async fn a_parent_waits_for_the_run_in_which_its_child_goes_on() {
    let (store, charges) = (Store::new(), Charges::default());
    let builder = || with_code(store.open(), &charges);
    let runtime = builder().start().await.unwrap();
    let parent = runtime.start(PARENT, "p", 1).await.unwrap();
    let child = runtime.attach(ORDER, CHILD).unwrap();
    described(&parent, |described| described.pending.iter().any(is_begun)).await;
    until_waiting(&child).await;
    let child = child.reset(ResetPoint::to_event(1)).await.unwrap();
    until_waiting(&child).await;
    assert_eq!(described(&parent, |_| true).await.status, InstanceStatus::Running);
    // The parent asks again for what it waits for.
    runtime.shutdown().await.unwrap();
    let runtime = builder().start().await.unwrap();
    let child = runtime.attach(ORDER, CHILD).unwrap();
    child.signal(GO, 9).await.unwrap();
    assert_eq!(runtime.attach(PARENT, "p").unwrap().result().await.unwrap(), 10);
    // It was told how the child has ended, and cannot be told otherwise.
    let late = refused(child.reset(ResetPoint::to_event(3)).await);
    assert!(matches!(late, ResetRefused::EndedChild { .. }), "{late}");
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_run_is_reset_once_its_child_has_ended_and_calls_the_child_again() {
    let charges = Charges::default();
    let runtime = with_code(Runtime::volatile(), &charges).start().await.unwrap();
    let former = runtime.start(PARENT, "p", 1).await.unwrap();
    let child = runtime.attach(ORDER, CHILD).unwrap();
    described(&former, |described| described.pending.iter().any(is_begun)).await;
    until_waiting(&child).await;
    let child_id = child.id().clone();
    for to in [2, 3, 4] {
        let lives = refused(former.reset(ResetPoint::to_event(to)).await);
        assert_eq!(
            lives,
            ResetRefused::ChildLives {
                child: child_id.clone()
            }
        );
    }
    child.terminate("it was called by mistake").await.unwrap();
    assert!(matches!(former.result().await, Err(ResultError::Failed(_))));
    let to = Sequence::new(4);
    let waited = refused(former.reset(ResetPoint::to_event(4)).await);
    assert_eq!(
        waited,
        ResetRefused::ChildRuns {
            to,
            child: child_id,
            call: to
        }
    );
    let next = former.reset(ResetPoint::to_event(3)).await.unwrap();
    described(&next, |described| described.pending.iter().any(is_begun)).await;
    until_waiting(&child).await;
    child.signal(GO, 4).await.unwrap();
    assert_eq!(next.result().await.unwrap(), 5);
    assert_eq!(
        charged(&charges),
        [1, 1, 1, 4],
        "that of the parent stands before the event"
    );
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn what_was_told_later_is_forgotten_or_told_again_and_is_known_by_its_request() {
    const CART: Workflow<(), Vec<u64>> = Workflow::named("cart");
    const ADD: Update<Vec<u64>, u64, usize, WorkflowError> = Update::named("add");
    async fn cart(cx: WorkflowContext, (): ()) -> Result<Vec<u64>, WorkflowError> {
        let items = cx.state(Vec::new());
        let last = cx.receive(GO).await?;
        items.change(|items| items.push(last));
        Ok(items.read(Vec::clone))
    }
    for keeps in [false, true] {
        let answering = CART.update(ADD).change(|items: &mut Vec<u64>, item| {
            items.push(item);
            items.len()
        });
        let runtime = Runtime::volatile()
            .register(answering, cart)
            .start()
            .await
            .unwrap();
        let former = runtime.start(CART, "c", ()).await.unwrap();
        assert_eq!(former.update_as(ADD, "a", 1).await.unwrap(), 1);
        assert_eq!(former.update_as(ADD, "b", 2).await.unwrap(), 2);
        // 1 Started, 2 and 3 the first update, 4 and 5 the second.
        let mut point = ResetPoint::to_event(3);
        if keeps {
            point = point.keep_signals();
        }
        let next = former.reset(point).await.unwrap();
        // Before the event it was answered, whatever it brings now; behind it only if it is kept.
        assert_eq!(next.update_as(ADD, "a", 9).await.unwrap(), 1);
        assert_eq!(next.update_as(ADD, "b", 3).await.unwrap(), 2);
        former.signal_as(GO, "s", 7).await.unwrap();
        let expected = if keeps { [1, 2, 7] } else { [1, 3, 7] };
        assert_eq!(next.result().await.unwrap(), expected);
        next.signal_as(GO, "s", 8).await.unwrap();
        // Of a run that has ended, the signal is what is told again.
        let point = ResetPoint::to_event(3);
        let again = next
            .reset(if keeps { point.keep_signals() } else { point })
            .await
            .unwrap();
        if keeps {
            assert_eq!(again.result().await.unwrap(), expected);
        } else {
            again.signal_as(GO, "s", 8).await.unwrap();
            assert_eq!(again.result().await.unwrap(), [1, 8]);
        }
        let late = again.update_as(ADD, "x", 1).await;
        assert!(
            matches!(late, Err(UpdateError::Run(RunError::Finished))),
            "{late:?}"
        );
        runtime.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn what_was_published_stays_and_is_published_again() {
    const PLACED: DurableTopic<u64> = Topic::named("placed").durable();
    const PLACE: Workflow<u64, u64> = Workflow::named("place");
    async fn place(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
        cx.publish(PLACED, number).await?;
        Ok(number)
    }
    let builder = Runtime::volatile().durable_topic(PLACED).register(PLACE, place);
    let runtime = builder.start().await.unwrap();
    let run = runtime.start(PLACE, "p", 3).await.unwrap();
    run.result().await.unwrap();
    // Behind the publish nothing of it is done again; before it all.
    for (to, len) in [(3, 1), (2, 2), (1, 3)] {
        let run = runtime
            .attach(PLACE, "p")
            .unwrap()
            .reset(ResetPoint::to_event(to))
            .await
            .unwrap();
        assert_eq!(run.result().await.unwrap(), 3, "to {to}");
        assert_eq!(runtime.durable_topics()[0].last, len, "to {to}");
    }
    runtime.shutdown().await.unwrap();
}

/// A run that is asleep, or parked because its code is gone, is read like any other.
#[tokio::test]
async fn runs_that_are_on_disk_are_reset_and_a_start_behind_a_reset_finds_the_other_run() {
    let (store, charges) = (Store::new(), Charges::default());
    let builder = with_code(store.open(), &charges).configure(|config| config.hot_len_max = 0);
    let runtime = builder.start().await.unwrap();
    for id in ["a", "b", "c"] {
        let run = runtime.start(ORDER, id, 5).await.unwrap();
        until_waiting(&run).await;
        let next = run.reset(ResetPoint::to_event(3)).await.unwrap();
        let found = runtime
            .start(ORDER, id, 6)
            .on_conflict(OnConflict::Attach)
            .await
            .unwrap();
        assert_eq!(run_of(&found), run_of(&next));
        // What comes for the former run while the other is read goes to the other.
        let (again, told) = tokio::join!(next.reset(ResetPoint::to_event(3)), next.signal(GO, 7));
        told.unwrap();
        let again = again.unwrap();
        if labels(&runtime, run_of(&next)).await.contains(&"SignalReceived") {
            again.signal(GO, 7).await.unwrap();
        }
        assert_eq!(again.result().await.unwrap(), 12);
    }
    assert_eq!(charged(&charges), [5, 7, 5, 7, 5, 7]);
    runtime.shutdown().await.unwrap();
}

/// A crash between the end of the one run and the beginning of the other would leave an instance that nobody runs, and one
/// within the beginning a run that has lost a part of its history.
/// The run that begins first ends in its first turn, before the second reset is looked at.
#[tokio::test]
async fn of_two_resets_of_one_run_the_second_finds_the_other_run() {
    let charges = Charges::default();
    let runtime = with_code(Runtime::volatile(), &charges).start().await.unwrap();
    let former = runtime.start(ORDER, "o", 5).await.unwrap();
    former.signal(GO, 7).await.unwrap();
    former.result().await.unwrap();
    let point = || ResetPoint::to_event(6).of_run(run_of(&former));
    let (first, second) = tokio::join!(former.reset(point()), former.reset(point()));
    let (next, stale) = match (first, second) {
        (Ok(next), stale) | (stale, Ok(next)) => (next, stale),
        neither => panic!("{neither:?}"),
    };
    let latest = run_of(&next);
    assert_eq!(refused(stale), ResetRefused::NotLatest { latest });
    assert_eq!(next.result().await.unwrap(), 12);
    assert_eq!(statuses(&runtime).await, [RunStatus::Completed; 2]);
}

#[test]
fn no_crash_ends_a_run_without_beginning_the_one_that_has_its_history() {
    for is_ended in [false, true] {
        let (mut before, mut after) = (0, 0);
        for steps in (1..).step_by(3) {
            let (store, charges) = (Store::new(), Charges::default());
            let world = SimHost::new(SimConfig::seeded(31));
            let builder = with_code(store.bare().host(world.host()), &charges);
            let is_reset = Arc::new(AtomicBool::new(false));
            let said = Arc::clone(&is_reset);
            let story = async move {
                let runtime = builder.start().await.unwrap();
                let run = runtime.start(ORDER, "o", 5).await.unwrap();
                if is_ended {
                    run.signal(GO, 7).await.unwrap();
                    assert_eq!(run.result().await.unwrap(), 12);
                } else {
                    until_waiting(&run).await;
                }
                run.reset(ResetPoint::to_event(2)).await.unwrap();
                said.store(true, Ordering::SeqCst);
            };
            let is_told = cut_off(&world, story, steps);
            let is_acknowledged = is_reset.load(Ordering::SeqCst);
            let mut config = SimConfig::seeded(32);
            config.starts_at = world.now();
            drop(world);
            let world = SimHost::new(config);
            let builder = with_code(store.bare().host(world.host()), &charges);
            let script = async move {
                let runtime = builder.start().await.unwrap();
                let run = match runtime.attach(ORDER, "o").unwrap().describe().await {
                    Ok(described) => described.run,
                    Err(RunError::NotFound) => return (None, 0),
                    Err(error) => panic!("{error:?}"),
                };
                let latest = runtime.attach(ORDER, "o").unwrap();
                let first = events(&runtime, run).await;
                let Event::Started(started) = &first[0].event else {
                    panic!("{first:?}");
                };
                let is_next = started.reset_to().is_some();
                if described(&latest, |_| true).await.status != InstanceStatus::Finished {
                    latest.signal(GO, 7).await.unwrap();
                }
                assert_eq!(latest.result().await.unwrap(), 12, "after {steps} steps");
                let runs = statuses(&runtime).await.len();
                runtime.shutdown().await.unwrap();
                (Some(is_next), runs)
            };
            let (is_next, runs) = world.block_on(script).unwrap();
            match (is_next, runs) {
                (None, 0) => assert!(!is_acknowledged),
                (Some(false), 1) => {
                    assert!(!is_acknowledged, "after {steps} steps");
                    before += 1;
                }
                (Some(true), 2) => after += 1,
                other => panic!("after {steps} steps: {other:?}"),
            }
            let charged = charged(&charges);
            let mut fives = charged.iter().filter(|cents| **cents == 5).count();
            fives -= usize::from(is_next == Some(true));
            assert!(fives <= 1, "after {steps} steps: {charged:?}");
            if is_told {
                break;
            }
        }
        assert!(before > 3 && after > 0, "{before} before, {after} after");
    }
}
