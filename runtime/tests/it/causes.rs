//! What a run causes names the run and its operation, in memory and in stored events.

use std::sync::{Arc, Mutex};

use millrun::broker::{Envelope, Inbox, SubscriptionConfig};
use millrun::store::{JournalConfig, Partition, Reads, RedbJournal};
use millrun::workflow::Cause;
use millrun::{
    Activity, ActivityContext, ActivityError, RunId, Runtime, RuntimeBuilder, Signal, Timestamp, Topic,
    Workflow, WorkflowContext, WorkflowError,
};
use millrun_testkit::{SimConfig, SimHost};
use millrun_workflow::{Event, wire};

use crate::support::Store;

const PLACED: Topic<u64> = Topic::named("orders.placed");
const PACKED: Topic<u64> = Topic::named("orders.packed");
const SENT: Signal<u64> = Signal::named("sent");
const ORDER: Workflow<u64, u64> = Workflow::named("order");
const PARCEL: Workflow<u64, u64> = Workflow::named("parcel");
const TRUCK: Workflow<u64, u64> = Workflow::named("truck");
const LABEL: Workflow<u64, u64> = Workflow::named("label");
const PRINT: Activity<u64, ()> = Activity::named("print");

async fn order(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    cx.publish(PLACED, number).await?;
    Ok(number)
}

async fn parcel(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    cx.call(PRINT, number).await?;
    cx.publish(PACKED, number).await?;
    Ok(cx.child(LABEL, format!("label-{number}"), number).await?)
}

async fn truck(cx: WorkflowContext, len: u64) -> Result<u64, WorkflowError> {
    let mut sum = 0;
    for _ in 0..len {
        sum += cx.receive(SENT).await?;
    }
    Ok(sum)
}

async fn label(_: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    Ok(number)
}

fn builder(store: &Store) -> RuntimeBuilder {
    store
        .bare()
        .register(ORDER, order)
        .register(PARCEL, parcel)
        .register(TRUCK, truck)
        .register(LABEL, label)
        .topic(PLACED)
        .topic(PACKED)
}

/// The causes of the signals in a run's history, as the store gives it.
fn signal_causes(store: &Store, run: RunId) -> Vec<Option<Cause>> {
    let world = SimHost::new(SimConfig::seeded(4));
    let journal = RedbJournal::open(store.path(), JournalConfig::default(), world.host()).unwrap();
    let history = journal.history(run).unwrap();
    let opens = history.id.as_str();
    let events = history.records.iter().map(|record| {
        let opens = (record.sequence.get() == 1).then_some(opens);
        wire::decode(record.kind, &record.body, opens).unwrap()
    });
    let causes = events.filter_map(|event| match event {
        Event::SignalReceived { cause, .. } => Some(cause.as_deref().copied()),
        _ => None,
    });
    causes.collect()
}

/// An order publishes, which starts a parcel; its activity starts a note and signals the truck, what it
/// publishes signals the truck too, and it has a child.
#[tokio::test]
async fn what_a_run_causes_says_so_and_is_followed_back_also_after_a_restart() {
    let store = Store::new();
    // Taken out again, or the runtime would hold itself.
    let known: Arc<Mutex<Option<Runtime>>> = Arc::default();
    let print = {
        let known = Arc::clone(&known);
        move |cx: ActivityContext, number: u64| {
            let runtime = known.lock().unwrap().clone();
            async move {
                let runtime = runtime.expect("set before anything is started");
                let note = runtime.start(LABEL, "note", number).caused_by(cx.cause());
                note.await.map_err(ActivityError::from)?;
                let truck = runtime.attach(TRUCK, "truck").map_err(ActivityError::from)?;
                let sent = truck.signal_caused_by(cx.cause(), SENT, number).await;
                sent.map_err(ActivityError::from)
            }
        }
    };
    let runtime = builder(&store).register(PRINT, print).start().await.unwrap();
    *known.lock().unwrap() = Some(runtime.clone());
    let config = SubscriptionConfig::default();
    let packed: Inbox<Envelope<u64>> = runtime.broker().subscribe(PACKED.name(), config).unwrap();
    let starts = runtime
        .on(PLACED)
        .start(PARCEL, |placed| ("parcel".into(), *placed.payload()));
    let signals = runtime
        .on(PACKED)
        .signal(TRUCK, SENT, |packed| ("truck".into(), *packed.payload()));
    let triggers = (starts.unwrap(), signals.unwrap());

    let truck = runtime.start(TRUCK, "truck", 2).await.unwrap();
    let order = runtime.start(ORDER, "order", 7).await.unwrap();
    assert_eq!(truck.result().await.unwrap(), 14);
    let parcel = runtime.attach(PARCEL, "parcel").unwrap();
    assert_eq!(parcel.result().await.unwrap(), 7);

    let described = async |runtime: &Runtime, id: &str| {
        let handle = runtime.attach_untyped(id).unwrap();
        handle.describe().await.unwrap()
    };
    let of = |run: RunId, operation: u32| Some(Cause { run, operation });
    let (order, parcel) = (order.run_id().unwrap(), described(&runtime, "parcel").await.run);
    let envelope = packed.take().next().expect("the parcel was packed");
    assert_eq!(envelope.run_cause(), of(parcel, 2));
    assert_eq!(envelope.key().and_then(|key| key.parse().ok()), of(parcel, 2));
    let truck = truck.run_id().unwrap();
    drop((triggers, packed, envelope));
    runtime.shutdown().await.unwrap();
    drop((known.lock().unwrap().take(), runtime));

    let runtime = builder(&store).start().await.unwrap();
    for (id, cause) in [
        ("order", None),
        ("truck", None),
        ("parcel", of(order, 1)),
        ("note", of(parcel, 1)),
        ("label-7", of(parcel, 3)),
    ] {
        assert_eq!(described(&runtime, id).await.cause, cause, "{id}");
    }
    let note = described(&runtime, "note").await.cause.unwrap();
    let before = runtime.describe_run(note.run).await.unwrap();
    assert_eq!((before.id.as_str(), before.cause), ("parcel", of(order, 1)));
    let first = runtime.describe_run(order).await.unwrap();
    assert_eq!((first.id.as_str(), first.cause), ("order", None));
    runtime.shutdown().await.unwrap();
    drop(runtime);
    assert_eq!(signal_causes(&store, truck), [of(parcel, 1), of(parcel, 2)]);
}

/// A start that brings a signal causes both; where a run is there, the signal alone.
#[tokio::test]
async fn a_start_with_a_signal_keeps_its_cause_in_the_run_or_in_the_signal() {
    let store = Store::new();
    let runtime = builder(&store).start().await.unwrap();
    let cause = |operation| Cause {
        run: RunId::new(Partition::of(b"elsewhere"), Timestamp::from_micros(5), 5),
        operation,
    };
    let start = |operation| {
        let start = runtime.start(TRUCK, "truck", 2).caused_by(cause(operation));
        start.with_signal(SENT, 1)
    };
    let run = start(1).await.unwrap();
    assert_eq!(run.describe().await.unwrap().cause, Some(cause(1)));
    start(2).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 2);
    assert_eq!(run.describe().await.unwrap().cause, Some(cause(1)));
    let run = run.run_id().unwrap();
    runtime.shutdown().await.unwrap();
    drop(runtime);
    assert_eq!(signal_causes(&store, run), [Some(cause(2))]);
}
