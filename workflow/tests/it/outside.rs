//! Publishes, promises, checkpoints, pauses.

use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use millrun_workflow::{
    Command, Event, Implementation, Input, InputRefused, Limits, OperationId, ParkReason, Payload, Pending,
    Promise, PromiseError, PublishOutcome, PublishStep, PublishStepError, Query, RECORD_TEXT_BYTES_MAX,
    RecordTexts, Signal, Topic, Workflow, WorkflowContext, WorkflowError,
};

use crate::world::World;

const PLACED: Topic<u64> = Topic::named("orders.placed");
const FLOW: Workflow<u64, String> = Workflow::named("flow");
const GO: Signal<u64> = Signal::named("go");
const SUM: Query<u64, (), u64> = Query::named("sum");
const ONE: OperationId = OperationId::new(1);

fn publisher() -> Implementation {
    Implementation::new(FLOW, async |cx: WorkflowContext, number: u64| {
        Ok::<_, WorkflowError>(match cx.publish(PLACED, number).await {
            Ok(PublishOutcome::Taken) => "published".into(),
            Ok(PublishOutcome::Unknown) => "perhaps".into(),
            Err(error @ PublishStepError::Cancelled(_)) => return Err(error.into()),
            Err(error) => error.to_string(),
        })
    })
}

fn published(outcome: Result<PublishOutcome, String>) -> Input {
    Input::Published {
        operation: ONE,
        outcome,
    }
}

#[test]
fn a_publish_is_decided_once_and_waits_until_it_was_performed() {
    for (outcome, expected) in [
        (Ok(PublishOutcome::Taken), "published"),
        (Ok(PublishOutcome::Unknown), "perhaps"),
        (Err("no room".to_string()), "the value was not published: no room"),
    ] {
        let mut world = World::start(publisher(), &7_u64);
        let Some(Command::Publish { scheduled, .. }) = world.commands.first() else {
            panic!("{:?}", world.commands)
        };
        assert_eq!(
            (&*scheduled.topic, scheduled.value.decode()),
            ("orders.placed", Ok(7_u64))
        );
        world.apply(Input::PublishParked { operation: ONE }).unwrap();
        world.apply(Input::PublishParked { operation: ONE }).unwrap();
        assert!(matches!(
            world.instance.ledger().pending_operation(ONE),
            Some(Pending::Publish { is_parked: true, .. })
        ));
        world.apply(published(outcome.clone())).unwrap();
        assert_eq!(
            world.labels(),
            ["PublishScheduled", "PublishParked", "Published", "Completed"]
        );
        assert_eq!(world.apply(published(outcome)), Err(InputRefused::Closed));
        assert_eq!(world.result::<String>(), expected);
    }
}

/// What is said of the value that a publish decides, and of the next one.
#[test]
fn what_is_said_of_a_value_stands_in_its_publish_until_it_is_polled() {
    let code = Implementation::new(FLOW, async |cx: WorkflowContext, number: u64| {
        let mut publish = cx.publish(PLACED, number).key("a").correlation("b");
        let decided = poll_fn(|cx| Poll::Ready(Pin::new(&mut publish).poll(cx).is_pending()));
        assert!(decided.await);
        publish.key("too late").content_type("too late").await?;
        cx.publish_to("orders.paid", number)
            .content_type("text/plain")
            .await?;
        Ok::<_, WorkflowError>("done".to_owned())
    });
    let mut world = World::start(code, &7_u64);
    for number in [1, 2] {
        let (operation, outcome) = (OperationId::new(number), Ok(PublishOutcome::Taken));
        world.apply(Input::Published { operation, outcome }).unwrap();
    }
    let said: Vec<_> = world
        .history()
        .iter()
        .filter_map(|(event, _)| match event {
            Event::PublishScheduled(publish) => publish.texts.as_deref().cloned(),
            _ => None,
        })
        .collect();
    let expected = [
        RecordTexts {
            key: Some("a".into()),
            correlation: Some("b".into()),
            content_type: None,
        },
        RecordTexts {
            content_type: Some("text/plain".into()),
            ..RecordTexts::default()
        },
    ];
    assert_eq!(said, expected);
    world.check_replays();
}

#[test]
fn a_text_that_is_too_long_is_refused_to_the_code_and_records_nothing() {
    let code = Implementation::new(FLOW, async |cx: WorkflowContext, bytes: u64| {
        let text = "x".repeat(usize::try_from(bytes).unwrap());
        let mut told = Vec::new();
        for publish in [
            cx.publish(PLACED, bytes).key(text.as_str()),
            cx.publish(PLACED, bytes).correlation(text.as_str()),
            cx.publish(PLACED, bytes).key("k").content_type(text.as_str()),
        ] {
            match publish.await {
                Err(PublishStepError::TextTooLong { field, bytes }) => told.push(format!("{field} {bytes}")),
                other => return Err(WorkflowError::failed(format!("{other:?}"))),
            }
        }
        Ok::<_, WorkflowError>(told.join(", "))
    });
    let world = World::start(code.clone(), &(RECORD_TEXT_BYTES_MAX as u64 + 1));
    assert_eq!(world.labels(), ["Completed"]);
    assert_eq!(
        world.result::<String>(),
        "key 1025, correlation 1025, content type 1025"
    );
    let world = World::start(code, &(RECORD_TEXT_BYTES_MAX as u64));
    assert_eq!(world.labels(), ["PublishScheduled"], "the longest is taken");
}

/// A reader waits for a key and a correlation, so code that says others decides otherwise. A content type goes with the
/// value, which may have gained a field.
#[test]
fn a_replay_that_says_another_key_or_correlation_is_refused() {
    type Said = fn(PublishStep) -> PublishStep;
    let code = |said: Said| {
        Implementation::new(FLOW, move |cx: WorkflowContext, number: u64| async move {
            said(cx.publish(PLACED, number)).await?;
            Ok::<_, WorkflowError>("done".to_owned())
        })
    };
    let recorded: Said = |publish| publish.key("a").correlation("b").content_type("text/plain");
    let unsaid: Said = |publish| publish;
    let history = |said: Said| World::start(code(said), &7_u64).history().to_vec();
    for (said, difference) in [
        (unsaid, "publish to orders.placed (operation 1)"),
        (
            |publish| publish.key("c").correlation("b").content_type("text/plain"),
            "publish to orders.placed with the key c and the correlation b and the content type text/plain (operation 1)",
        ),
        (
            |publish| publish.key("a").content_type("text/plain"),
            "publish to orders.placed with the key a and the content type text/plain (operation 1)",
        ),
    ] as [(Said, &str); 3]
    {
        let replayed = World::from_history(Some(code(said)), history(recorded));
        match replayed.parked() {
            Some(ParkReason::Nondeterminism(found)) => {
                assert!(found.replayed.starts_with(difference), "{found}");
                assert!(
                    found.recorded.contains("with the key a and the correlation b"),
                    "{found}"
                );
            }
            other => panic!("{other:?}"),
        }
    }
    // An old history, of which nothing is said, and code that says a key since.
    let replayed = World::from_history(Some(code(recorded)), history(unsaid));
    assert!(matches!(replayed.parked(), Some(ParkReason::Nondeterminism(_))));

    let other_type: Said = |publish| publish.key("a").correlation("b").content_type("application/json");
    for (said, changed) in [(recorded, 0), (other_type, 1)] {
        let replayed = World::from_history(Some(code(said)), history(recorded));
        assert_eq!(
            (replayed.parked(), replayed.instance.changed_values()),
            (None, changed)
        );
    }
}

#[test]
fn a_publish_that_is_given_up_is_forgotten() {
    let mut world = World::start(publisher(), &7_u64);
    world.cancel();
    assert!(matches!(
        world.commands[0],
        Command::CancelPublish { operation: ONE }
    ));
    world.check_replays();
}

#[test]
fn publishes_out_of_bounds_are_refused_to_the_code_and_record_nothing() {
    const TEXT: Topic<String> = Topic::named("text");
    const FLOWS: Workflow<u64, BTreeSet<String>> = Workflow::named("flows");
    let code = Implementation::new(FLOWS, async |cx: WorkflowContext, bytes: u64| {
        let text = "x".repeat(usize::try_from(bytes).unwrap());
        let published = cx.join_all((0..5).map(|_| cx.publish(TEXT, text.clone()))).await;
        let errors = published.into_iter().filter_map(Result::err);
        Ok::<_, WorkflowError>(errors.map(|error| error.to_string()).collect::<BTreeSet<_>>())
    });
    let mut limits = Limits::default();
    limits.payload_bytes_max = 99;
    limits.pending_len_max = 3;
    let world = World::start_with(Some(code.clone()), &100_u64, limits);
    assert_eq!(world.labels(), ["Completed"]);
    let error = "the value has 103 bytes, a payload may have 99: pass a reference instead";
    assert_eq!(world.result::<Vec<String>>(), [error]);

    let mut world = World::start_with(Some(code), &9_u64, limits);
    for number in 1..=3 {
        let operation = OperationId::new(number);
        let outcome = Ok(PublishOutcome::Taken);
        world.apply(Input::Published { operation, outcome }).unwrap();
    }
    let error = "the run has 3 operations outstanding, its limit: await some first";
    assert_eq!(world.result::<Vec<String>>(), [error]);
}

#[test]
fn a_run_with_more_promises_than_it_may_have_is_parked() {
    let code = Implementation::new(FLOW, async |cx: WorkflowContext, len: u64| {
        let promises: Vec<Promise<u64>> = (0..len).map(|_| cx.promise()).collect();
        cx.receive(GO).await?;
        Ok::<_, WorkflowError>(format!("{} are left", promises.len()))
    });
    let mut limits = Limits::default();
    limits.pending_len_max = 3;
    let mut world = World::start_with(Some(code.clone()), &3_u64, limits);
    world.signal(GO, &1);
    assert_eq!(world.result::<String>(), "3 are left");
    let world = World::start_with(Some(code), &4_u64, limits);
    let reason = world.parked().expect("it has four").to_string();
    assert_eq!(
        reason,
        "the run has 4 operations outstanding, its limit is 3: await some first"
    );
}

fn promising() -> Implementation {
    Implementation::new(FLOW, async |cx: WorkflowContext, _: u64| {
        let promise: Promise<u64> = cx.promise();
        let token = promise.token().to_string();
        cx.sleep(std::time::Duration::from_secs(1)).await?;
        Ok::<_, WorkflowError>(match promise.await {
            Ok(value) => format!("{value} for {token}"),
            Err(PromiseError::Failed(message)) => message,
            Err(error) => return Err(error.into()),
        })
    })
}

fn settle(end: Result<u64, &str>) -> Input {
    Input::EndPromise {
        operation: ONE,
        end: end
            .map(|value| Payload::encode(&value).unwrap())
            .map_err(Into::into),
    }
}

#[test]
fn a_promise_is_settled_once_also_before_anybody_waits_for_it() {
    let mut world = World::start(promising(), &0_u64);
    world.apply(settle(Ok(5))).unwrap();
    assert_eq!(world.apply(settle(Ok(6))), Err(InputRefused::Stale));
    assert!(world.fire_next());
    let token = format!("5 for {}-1", crate::world::run_id());
    assert_eq!(world.result::<String>(), token);

    let mut world = World::start(promising(), &0_u64);
    assert!(world.fire_next());
    world.apply(settle(Err("nobody answers"))).unwrap();
    assert_eq!(world.result::<String>(), "nobody answers");
}

#[test]
fn a_value_of_another_type_or_too_large_does_not_settle_a_promise_silently() {
    let mut world = World::start(promising(), &0_u64);
    let end = Ok(Payload::encode(&"x".repeat(2 << 20)).unwrap());
    let large = Input::EndPromise { operation: ONE, end };
    assert!(matches!(world.apply(large), Err(InputRefused::TooLarge { .. })));
    let end = Ok(Payload::encode("text").unwrap());
    let input = Input::EndPromise { operation: ONE, end };
    world.apply(input).unwrap();
    assert!(world.fire_next());
    assert_eq!(world.labels().last(), Some(&"Failed"));
    world.check_replays();
}

/// Sums signals, three per checkpoint, until one is zero.
fn summing() -> Implementation {
    let code = FLOW;
    code.query(SUM, |sum, ()| *sum)
        .bind(async |cx: WorkflowContext, first: u64| {
            let before = match cx.checkpointed::<(u64, u64)>() {
                Some(restored) => restored?,
                None => (first, 0),
            };
            let state = cx.state(before.0);
            // An operation that is outstanding at each checkpoint.
            let timer = cx.sleep(std::time::Duration::from_secs(3_600));
            let summed = async {
                for _ in 0..3 {
                    match cx.receive(GO).await? {
                        0 => return Ok(Some(cx.random() % 2)),
                        number => state.change(|sum| *sum += number),
                    }
                }
                Ok::<_, WorkflowError>(None)
            };
            match cx.race(summed, timer).await {
                millrun_workflow::Either::Left(Ok(None)) => {
                    let sum = state.read(|sum| *sum);
                    Ok(cx.checkpoint(&(sum, before.1 + 1)).await?)
                }
                millrun_workflow::Either::Left(Ok(Some(_))) => {
                    Ok(format!("{} after {}", state.read(|sum| *sum), before.1))
                }
                millrun_workflow::Either::Left(Err(error)) => Err(error),
                millrun_workflow::Either::Right(_) => Err(WorkflowError::failed("too slow")),
            }
        })
}

#[test]
fn the_code_begins_again_from_a_checkpoint_live_as_in_a_replay() {
    let mut world = World::start(summing(), &100_u64);
    for number in 1..=7 {
        world.signal(GO, &number);
        let question = Payload::encode(&()).unwrap();
        let sum: u64 = world.instance.query("sum", &question).unwrap().decode().unwrap();
        assert_eq!(sum, 100 + number * (number + 1) / 2);
        if number == 4 {
            world.reload();
        }
    }
    let checkpoints = world
        .labels()
        .iter()
        .filter(|label| **label == "Checkpointed")
        .count();
    assert_eq!(checkpoints, 2);
    assert!(world.instance.ledger().history_len() < 6);
    world.signal(GO, &0);
    assert_eq!(world.result::<String>(), "128 after 2");
}

#[test]
fn what_stands_before_a_checkpoint_is_not_needed_to_bring_the_code_back() {
    let mut world = World::start(summing(), &100_u64);
    (1..=4).for_each(|number| world.signal(GO, &number));
    // Whatever the code decided before, nobody asks again: here another first event.
    let mut history = world.history().to_vec();
    let signals = history
        .iter()
        .position(|(event, _)| matches!(event, Event::SignalReceived { .. }));
    history[signals.unwrap()].0 = Event::SignalReceived {
        name: "go".into(),
        value: Payload::encode(&90_u64).unwrap(),
        cause: None,
        request: None,
    };
    let mut replayed = World::from_history(Some(summing()), history);
    assert_eq!(replayed.parked(), None);
    replayed.signal(GO, &0);
    assert_eq!(replayed.result::<String>(), "110 after 1");
}

#[test]
fn signals_that_were_not_taken_are_there_after_a_checkpoint() {
    let mut world = World::start_with(None, &100_u64, Limits::default());
    (1..=7).for_each(|number| world.signal(GO, &number));
    world.signal(GO, &0);
    // All are taken up in one turn, through two checkpoints that stand in its middle.
    world.reload_with(Some(summing()));
    world.apply(Input::Resume).unwrap();
    assert_eq!(world.result::<String>(), "128 after 2");
}

#[test]
fn code_that_makes_checkpoints_without_waiting_is_parked() {
    let code = Implementation::new(FLOW, async |cx: WorkflowContext, number: u64| {
        Ok::<String, WorkflowError>(cx.checkpoint(&number).await?)
    });
    let world = World::start(code, &0_u64);
    assert!(
        matches!(world.parked(), Some(ParkReason::Stuck { message }) if message.contains("100 checkpoints")),
        "{:?}",
        world.parked()
    );
}

#[test]
fn a_paused_run_records_what_comes_and_takes_it_up_when_resumed() {
    let code = || {
        Implementation::new(FLOW, async |cx: WorkflowContext, number: u64| {
            let sum = number + cx.receive(GO).await? + cx.receive(GO).await?;
            Ok::<_, WorkflowError>(sum.to_string())
        })
    };
    for is_reloaded in [false, true] {
        let mut world = World::start(code(), &1_u64);
        let pause = |world: &mut World| {
            let reason = "a holiday".into();
            world.apply(Input::Pause { reason }).unwrap();
        };
        world.signal(GO, &2);
        pause(&mut world);
        pause(&mut world);
        assert_eq!(world.commands, [], "nobody is told that it would not go on");
        assert_eq!(world.parked().unwrap().to_string(), "it was paused: a holiday");
        world.signal(GO, &4);
        if is_reloaded {
            world.reopen();
        }
        assert!(world.instance.has_code());
        world.apply(Input::Resume).unwrap();
        assert_eq!(
            world.labels(),
            [
                "SignalReceived",
                "Parked",
                "SignalReceived",
                "Resumed",
                "Completed"
            ]
        );
        assert_eq!(world.result::<String>(), "7");
    }
}
