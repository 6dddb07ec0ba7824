//! Who is polled when: only those whose event was applied, however many wait.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use millrun_workflow::{Activity, Implementation, Signal, Workflow, WorkflowContext, WorkflowError};

use crate::world::World;

const STEP: Activity<u64, u64> = Activity::named("step");
const GO: Signal<u64> = Signal::named("go");
const FLOW: Workflow<u64, u64> = Workflow::named("flow");
const ORDER: Workflow<u64, Vec<u64>> = Workflow::named("order");

/// Counts the polls of a future.
struct Counted<F>(Pin<Box<F>>, Arc<AtomicUsize>);

impl<F: Future> Future for Counted<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.as_mut().poll(cx)
    }
}

#[test]
fn a_thousand_calls_are_polled_twice_each() {
    let polls = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&polls);
    let code = Implementation::new(FLOW, move |cx: WorkflowContext, len: u64| {
        let counter = Arc::clone(&counter);
        async move {
            let calls = (0..len).map(|index| Counted(Box::pin(cx.call(STEP, index)), Arc::clone(&counter)));
            let values = cx.join_all(calls).await;
            Ok::<_, WorkflowError>(values.into_iter().sum::<Result<u64, _>>()?)
        }
    });
    let mut world = World::start(code, &1_000_u64);
    // From the last to the first: the worst order for whoever scans.
    (1..=1_000)
        .rev()
        .for_each(|number| world.complete(number, &u64::from(number)));
    assert_eq!(polls.load(Ordering::Relaxed), 2_000);
    assert_eq!(world.result::<u64>(), 500_500);
}

#[test]
fn results_come_in_the_order_of_the_history() {
    let code = Implementation::new(ORDER, async |cx: WorkflowContext, len: u64| {
        let mut calls: FuturesUnordered<_> = (0..len).map(|index| cx.call(STEP, index)).collect();
        let mut order = Vec::new();
        while let Some(value) = calls.next().await {
            order.push(value?);
        }
        Ok::<_, WorkflowError>(order)
    });
    let mut world = World::start(code, &200_u64);
    // 73 has no divisor in common with 200, so every call comes once.
    let order: Vec<u64> = (0..200).map(|index| index * 73 % 200 + 1).collect();
    for number in &order {
        world.complete(u32::try_from(*number).unwrap(), number);
    }
    assert_eq!(world.result::<Vec<u64>>(), order);
}

#[test]
fn many_that_become_ready_at_once_are_all_taken_in_one_turn() {
    let code = Implementation::new(FLOW, async |cx: WorkflowContext, len: u64| {
        let signals = async {
            let mut sum = 0;
            for _ in 0..len {
                sum += cx.signal(GO).await?;
            }
            Ok::<_, WorkflowError>(sum)
        };
        cx.sleep(Duration::from_secs(1)).await?;
        signals.await
    });
    let mut world = World::start(code, &1_000_u64);
    (0..1_000).for_each(|_| world.signal(GO, &1));
    assert!(world.fire_next());
    assert_eq!(world.result::<u64>(), 1_000);
}

#[test]
fn branches_may_talk_to_each_other_over_channels() {
    let code = Implementation::new(FLOW, async |cx: WorkflowContext, len: u64| {
        let (sender, mut receiver) = tokio::sync::mpsc::channel(8);
        let produce = async {
            for index in 0..len {
                sender
                    .send(cx.call(STEP, index).await?)
                    .await
                    .expect("the other branch lives");
            }
            drop(sender);
            Ok::<_, WorkflowError>(())
        };
        let consume = async {
            let mut sum = 0;
            while let Some(value) = receiver.recv().await {
                sum += value;
            }
            sum
        };
        let (produced, sum) = cx.join(produce, consume).await;
        produced.map(|()| sum)
    });
    let mut world = World::start(code, &300_u64);
    for number in 1..=300 {
        world.complete(number, &1_u64);
    }
    assert_eq!(world.result::<u64>(), 300);
}

#[test]
fn more_than_128_messages_in_one_turn_come_through_a_channel() {
    let code = Implementation::new(FLOW, async |cx: WorkflowContext, len: u64| {
        let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
        let first = cx.call(STEP, 0).await?;
        (0..len).for_each(|index| sender.send(first + index).expect("the receiver lives"));
        drop(sender);
        let mut sum = 0;
        while let Some(value) = receiver.recv().await {
            sum += value;
        }
        Ok::<_, WorkflowError>(sum)
    });
    let mut world = World::start(code, &1_000_u64);
    world.complete(1, &1_u64);
    assert_eq!(world.result::<u64>(), 500_500);
}
