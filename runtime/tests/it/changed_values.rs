//! Code that encodes other values in a replay than it did when they were recorded.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use millrun::{
    Activity, ActivityContext, ActivityError, RuntimeBuilder, Signal, Workflow, WorkflowContext,
    WorkflowError,
};
use millrun_testkit::{SimConfig, SimHost};
use tracing::field::Field;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::support::{Store, beside};

const PRICE: Activity<(u64, u64), u64> = Activity::named("price");
const GO: Signal<u64> = Signal::named("go");
const ORDER: Workflow<u64, u64> = Workflow::named("order");
const OTHER: Workflow<u64, u64> = Workflow::named("other");

const RUNS: [(Workflow<u64, u64>, &str); 3] = [(ORDER, "a"), (ORDER, "b"), (OTHER, "c")];
const SIGNALS: u64 = 4;

async fn price(_cx: ActivityContext, (cents, _): (u64, u64)) -> Result<u64, ActivityError> {
    Ok(cents)
}

/// Asks for a price, with what this version of the code asks for beside it, and takes a few signals.
async fn order(cx: WorkflowContext, cents: u64, version: u64) -> Result<u64, WorkflowError> {
    let mut sum = cx.call(PRICE, (cents, version)).await?;
    for _ in 0..SIGNALS {
        sum += cx.receive(GO).await?;
    }
    Ok(sum)
}

/// The workflows that warnings have named.
#[derive(Clone, Default)]
struct Warned(Arc<Mutex<Vec<String>>>);

impl Subscriber for Warned {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.target() == "millrun::code::replays"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut |field: &Field, value: &dyn std::fmt::Debug| {
            if field.name() == "workflow" {
                self.0.lock().unwrap().push(format!("{value:?}").replace('"', ""));
            }
        });
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// A field was added to what an activity is asked for, and every run in flight encoded it anew in each replay.
/// The engine compared the values all along, but the shard that brought the runs back did not look at what it had
/// found: only the check of a sample of finished runs did, which is off by default.
#[test]
fn values_that_changed_are_counted_in_every_replay_and_warned_of_once_a_minute() {
    let store = Store::new();
    let world = SimHost::new(SimConfig::seeded(1));
    let builder = |version, world: &SimHost| -> RuntimeBuilder {
        let builder = store.bare().host(world.host()).register(PRICE, price);
        builder
            .register(ORDER, move |cx, cents| order(cx, cents, version))
            .register(OTHER, move |cx, cents| order(cx, cents, version))
            .configure(|config| config.hot_len_max = 0)
    };
    let before = builder(1, &world);
    let begin = async move {
        let runtime = before.start().await.unwrap();
        for (workflow, id) in RUNS {
            drop(runtime.start(workflow, id, 100).await.unwrap());
        }
        while runtime.stats().events < 3 * RUNS.len() as u64 {
            tokio::task::yield_now().await;
        }
        assert_eq!(
            runtime.stats().changed_values,
            0,
            "it is the code that recorded them"
        );
        runtime.shutdown().await.unwrap();
    };
    world.block_on(begin).unwrap();
    world.crash();

    let warned = Warned::default();
    let named = Arc::clone(&warned.0);
    let (after, host) = (builder(2, &world), world.host());
    let go_on = async move {
        let runtime = after.start().await.unwrap();
        for signal in 1..=SIGNALS {
            for (workflow, id) in RUNS {
                let run = runtime.attach(workflow, id).unwrap();
                run.signal(GO, 1).await.unwrap();
            }
            if signal == SIGNALS / 2 {
                assert_eq!(*named.lock().unwrap(), ["order", "other"]);
                host.sleep_until(host.now() + Duration::from_secs(60)).await;
            }
        }
        for (workflow, id) in RUNS {
            assert_eq!(runtime.attach(workflow, id).unwrap().result().await.unwrap(), 104);
        }
        let stats = runtime.stats();
        assert_eq!(*named.lock().unwrap(), ["order", "other", "order", "other"]);
        assert_eq!((stats.replay_checks, stats.parked), (0, 0));
        runtime.shutdown().await.unwrap();
        (stats.changed_values, stats.loads)
    };
    let _beside = beside(warned.clone());
    let (changed, loads) = tracing::subscriber::with_default(warned, || world.block_on(go_on)).unwrap();
    assert!(loads >= RUNS.len() as u64 * SIGNALS, "{loads} replays");
    assert_eq!(changed, loads, "one of each");
}
