//! Which futures are polled when: only the ones whose event was applied, however many wait.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use millrun_workflow::{Activity, Implementation, Signal, Topic, Workflow, WorkflowContext, WorkflowError};

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
    // From the last to the first: the worst order for a scan.
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
                sum += cx.receive(GO).await?;
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

/// Something of the code's that gives a line of text.
type Part = Pin<Box<dyn Future<Output = String> + Send>>;

/// Polls its part in the middle of the wake, where the machine polls nothing, then wakes the code.
struct Inline(Arc<Mutex<Part>>, Waker);

impl Wake for Inline {
    fn wake(self: Arc<Self>) {
        let polled = self
            .0
            .lock()
            .unwrap()
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(polled, Poll::Pending, "only the machine's poll decides anything");
        self.1.wake_by_ref();
    }
}

/// What the code asks for: by name, with a payload of `len` bytes.
async fn ask(cx: WorkflowContext, what: &str, len: usize) -> Result<(), String> {
    const LONG: Activity<String, ()> = Activity::named("long");
    const CHILD: Workflow<String, ()> = Workflow::named("child");
    const TOPIC: Topic<String> = Topic::named("topic");
    let value = "x".repeat(len);
    match what {
        "call" => cx.call(LONG, value).await.map_err(|error| error.to_string()),
        "child" => cx
            .child(CHILD, "id", value)
            .await
            .map_err(|error| error.to_string()),
        "publish" => cx
            .publish(TOPIC, value)
            .await
            .map(drop)
            .map_err(|error| error.to_string()),
        "signal" => cx
            .signal_instance(CHILD, "id", Signal::<String>::named("go"), value)
            .await
            .map_err(|error| error.to_string()),
        other => panic!("{other}"),
    }
}

#[test]
fn what_a_waker_polls_inline_is_decided_by_the_poll_of_the_machine() {
    const INLINE: Workflow<(String, usize), String> = Workflow::named("inline");
    let code = || {
        Implementation::new(INLINE, async |cx: WorkflowContext, input: (String, usize)| {
            let asking = cx.clone();
            let part: Part = Box::pin(async move {
                let answer = ask(asking, &input.0, input.1).await;
                answer.map_or_else(|error| error, |()| "done".into())
            });
            let part = Arc::new(Mutex::new(part));
            let mut sleep = pin!(cx.sleep(Duration::from_secs(1)));
            poll_fn(|task| {
                let inline = Inline(Arc::clone(&part), task.waker().clone());
                let waker = Waker::from(Arc::new(inline));
                sleep.as_mut().poll(&mut Context::from_waker(&waker))
            })
            .await?;
            Ok::<_, WorkflowError>(poll_fn(|task| part.lock().unwrap().as_mut().poll(task)).await)
        })
    };
    for (what, label) in [
        ("call", "ActivityScheduled"),
        ("child", "ChildScheduled"),
        ("publish", "PublishScheduled"),
        ("signal", "SignalScheduled"),
    ] {
        let mut world = World::start(code(), &(what, 1));
        assert!(world.fire_next());
        assert_eq!(world.labels(), ["TimerStarted", "TimerFired", label]);

        let mut world = World::start(code(), &(what, 2 << 20));
        assert!(world.fire_next());
        assert_eq!(world.labels(), ["TimerStarted", "TimerFired", "Completed"]);
        let refusal = world.result::<String>();
        assert!(refusal.contains("2097158 bytes"), "{refusal}");
    }
}

#[test]
fn whoever_polled_an_operation_last_is_woken() {
    let code = Implementation::new(FLOW, async |cx: WorkflowContext, input: u64| {
        let mut call = cx.call(STEP, input);
        // The code itself first: then a set of futures, which polls only those that were woken.
        let polled = poll_fn(|task| Poll::Ready(Pin::new(&mut call).poll(task))).await;
        assert!(polled.is_pending());
        let mut calls: FuturesUnordered<_> = [call].into_iter().collect();
        let first = calls.next().await.expect("there is one")?;

        // And the other way round.
        calls.push(cx.call(STEP, input));
        let polled = poll_fn(|task| Poll::Ready(calls.poll_next_unpin(task))).await;
        assert!(polled.is_pending());
        let call = calls.into_iter().next().expect("there is one");
        Ok::<_, WorkflowError>(first + call.await?)
    });
    let mut world = World::start(code, &0_u64);
    world.complete(1, &3_u64);
    world.complete(2, &4_u64);
    assert_eq!(world.result::<u64>(), 7);
}
