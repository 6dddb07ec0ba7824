//! What is asked of a world: histories, signals, publishes, what is waited for.

use std::time::Duration;

use millrun::history::Event;
use millrun::operating::InstanceStatus;
use millrun::{RuntimeBuilder, Signal, Topic, Workflow, WorkflowContext, WorkflowError};
use millrun_testkit::World;

use super::{CHARGE, CONFIRM, ORDER, REFUND, failure, registered};

const TOLD: Topic<u64> = Topic::named("told");
const NEXT: Signal<u64> = Signal::named("next");
const RELAY: Workflow<u64, ()> = Workflow::named("relay");

/// Tells what it was told, and goes on as another run.
async fn relay(cx: WorkflowContext, left: u64) -> Result<(), WorkflowError> {
    let next = cx.receive(NEXT).await?;
    cx.publish(TOLD, next).await?;
    if left > 1 {
        return Ok(cx.continue_as_new(RELAY, left - 1).await?);
    }
    Ok(())
}

fn program(builder: RuntimeBuilder) -> RuntimeBuilder {
    registered(builder).topic(TOLD).register(RELAY, relay)
}

#[test]
fn a_history_tells_what_a_run_has_done() {
    let world = World::new(program);
    world.mock(CHARGE).returns("receipt".to_owned());
    world.mock(REFUND).returns(());
    let told = world.live(async |runtime| {
        let run = runtime.start(ORDER, "o-1", 42).await.unwrap();
        run.signal(CONFIRM, false).await.unwrap();
        run.result().await.unwrap()
    });
    assert_eq!(told, "receipt, given back");
    let labels = world.event_labels("o-1");
    let calls = labels
        .iter()
        .filter(|label| **label == "ActivityScheduled")
        .count();
    assert_eq!(
        (labels[0], labels.last(), calls),
        ("Started", Some(&"Completed"), 2)
    );
    let history = world.history("o-1");
    let is_signal =
        |event: &Event| matches!(event, Event::SignalReceived { name, .. } if &**name == "confirm");
    assert!(history.iter().any(|recorded| is_signal(&recorded.event)));
    assert_eq!(world.calls(REFUND), ["receipt"]);
    let message = failure(|| drop(world.history("o-2")));
    assert!(message.contains("o-2"), "{message}");
}

#[test]
fn signals_and_publishes_are_those_of_all_runs_once() {
    let world = World::new(program);
    world.live(async |runtime| {
        let started = runtime.start(RELAY, "r-1", 3).with_signal(NEXT, 1).await;
        let run = started.unwrap();
        // Both wait in the run that goes on, whose first event has them too.
        run.signal(NEXT, 2).await.unwrap();
        run.signal(NEXT, 3).await.unwrap();
        run.result().await.unwrap();
    });
    let signals: Vec<_> = world
        .signals(NEXT)
        .into_iter()
        .map(|(id, value)| (id.to_string(), value))
        .collect();
    let expected = [1, 2, 3].map(|value| ("r-1".to_owned(), value));
    assert_eq!(signals, expected);
    assert_eq!(world.publishes(TOLD), [1, 2, 3]);
    assert!(world.signals(CONFIRM).is_empty());
}

#[test]
fn what_is_awaited_is_told_and_asserted() {
    let world = World::new(program);
    world
        .mock(CHARGE)
        .returns("receipt".to_owned())
        .delays(Duration::from_secs(10));
    world.live(async |runtime| drop(runtime.start(ORDER, "o-1", 42).await.unwrap()));
    world.advance(Duration::from_secs(5));
    let message = failure(|| world.assert_awaits("o-1", CONFIRM));
    assert!(
        message.contains("o-1 does not wait for the signal confirm"),
        "{message}"
    );
    assert!(message.contains("activity charge"), "{message}");
    assert_eq!(world.describe("o-1").status, InstanceStatus::Running);
    world.advance(Duration::from_secs(5));
    world.assert_awaits("o-1", CONFIRM);
    assert!(
        world.why("o-1").to_string().contains("signal confirm"),
        "{}",
        world.why("o-1")
    );
}
