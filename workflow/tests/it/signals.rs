//! Signals: buffered, in order, and taken by nobody but the one who gets them.

use std::time::Duration;

use millrun_core::{InstanceId, Timestamp};
use millrun_workflow::{
    Activity, Command, Either, Event, Implementation, Input, InputRefused, Limits, Moment, NAME_BYTES_MAX,
    Payload, SIGNAL_REQUESTS_LEN_MAX, Signal, SignalError, Started, Workflow, WorkflowContext, WorkflowError,
};

use crate::world::World;

const NUMBER: Signal<u64> = Signal::named("number");
const TEXT: Signal<String> = Signal::named("text");
const STEP: Activity<(), ()> = Activity::named("step");
const COLLECT: Workflow<usize, Vec<u64>> = Workflow::named("collect");

async fn collect(cx: WorkflowContext, len: usize) -> Result<Vec<u64>, WorkflowError> {
    let mut values = Vec::new();
    while values.len() < len {
        values.push(cx.receive(NUMBER).await?);
    }
    Ok(values)
}

#[test]
fn signals_come_in_the_order_of_their_arrival() {
    let mut world = World::start(Implementation::new(COLLECT, collect), &50);
    (0..50).for_each(|value| world.signal(NUMBER, &value));
    assert_eq!(world.result::<Vec<u64>>(), (0..50).collect::<Vec<_>>());
}

#[test]
fn signals_wait_for_whoever_comes_to_take_them() {
    let code = Implementation::new(COLLECT, async |cx: WorkflowContext, len: usize| {
        cx.call(STEP, ()).await?;
        collect(cx, len).await
    });
    let mut world = World::start(code, &3);
    for value in 0..3 {
        world.signal(TEXT, &"of another name".into());
        world.signal(NUMBER, &value);
    }
    world.complete(1, &());
    assert_eq!(world.result::<Vec<u64>>(), [0, 1, 2]);
}

#[test]
fn a_wait_that_is_dropped_loses_no_signal() {
    let code = Implementation::new(COLLECT, async |cx: WorkflowContext, len: usize| {
        let mut values = Vec::new();
        while values.len() < len {
            // Both are ready in one turn when the signal arrived during the pause of the last one.
            match cx
                .race(cx.sleep(Duration::from_secs(1)), cx.receive(NUMBER))
                .await
            {
                Either::Left(tick) => tick?,
                Either::Right(value) => values.push(value?),
            }
        }
        Ok::<_, WorkflowError>(values)
    });
    let mut world = World::start(code, &4);
    for value in 0..4 {
        assert!(world.fire_next());
        world.signal(NUMBER, &value);
    }
    assert_eq!(world.result::<Vec<u64>>(), [0, 1, 2, 3]);
}

/// A wait that is still in scope but polled no more must not swallow what others wait for.
#[test]
fn a_wait_that_nobody_polls_does_not_keep_the_signal_from_others() {
    let code = Implementation::new(COLLECT, async |cx: WorkflowContext, _: usize| {
        let mut idle = Box::pin(cx.receive(NUMBER));
        let tick = cx.sleep(Duration::from_secs(1));
        assert!(matches!(cx.race(&mut idle, tick).await, Either::Right(_)));
        let value = cx.receive(NUMBER).await?;
        Ok::<_, WorkflowError>(vec![value, idle.await?])
    });
    let mut world = World::start(code, &0);
    assert!(world.fire_next());
    world.signal(NUMBER, &1);
    world.signal(NUMBER, &2);
    assert_eq!(world.result::<Vec<u64>>(), [1, 2]);
}

#[test]
fn each_of_several_waits_gets_one() {
    let code = Implementation::new(COLLECT, async |cx: WorkflowContext, len: usize| {
        let values = cx.join_all((0..len).map(|_| cx.receive(NUMBER))).await;
        Ok::<_, WorkflowError>(values.into_iter().collect::<Result<Vec<_>, _>>()?)
    });
    for len in [2, 40] {
        let mut world = World::start(code.clone(), &len);
        (0..len as u64).for_each(|value| world.signal(NUMBER, &value));
        assert_eq!(world.result::<Vec<u64>>(), (0..len as u64).collect::<Vec<_>>());
    }
}

#[test]
fn a_signal_of_the_wrong_type_is_an_error_and_is_gone() {
    let code = Implementation::new(COLLECT, async |cx: WorkflowContext, _: usize| {
        assert!(matches!(cx.receive(NUMBER).await, Err(SignalError::Payload(_))));
        Ok::<_, WorkflowError>(vec![cx.receive(NUMBER).await?])
    });
    let mut world = World::start(code, &0);
    let (name, value) = (NUMBER.name().into(), Payload::encode("text").unwrap());
    world
        .apply(Input::Signal {
            name,
            value,
            cause: None,
            request: None,
        })
        .unwrap();
    world.signal(NUMBER, &5);
    assert_eq!(world.result::<Vec<u64>>(), [5]);
}

#[test]
fn a_signal_out_of_bounds_is_refused() {
    let code = Implementation::new(COLLECT, async |cx: WorkflowContext, _: usize| {
        cx.call(STEP, ()).await?;
        Ok::<_, WorkflowError>(Vec::new())
    });
    let mut limits = Limits::default();
    limits.signals_len_max = 2;
    limits.payload_bytes_max = 64;
    let mut world = World::start_with(Some(code), &0, limits);
    let signal = |name: String, value: &str| Input::Signal {
        name: name.into(),
        value: Payload::encode(value).unwrap(),
        cause: None,
        request: None,
    };
    let long = "n".repeat(NAME_BYTES_MAX + 1);
    let refusals = [
        (signal(long, "x"), InputRefused::Name { bytes: 256 }),
        (signal(String::new(), "x"), InputRefused::Name { bytes: 0 }),
        (
            signal("s".into(), &"x".repeat(64)),
            InputRefused::TooLarge {
                bytes: 67,
                bytes_max: 64,
            },
        ),
    ];
    for (input, refusal) in refusals {
        assert_eq!(world.apply(input), Err(refusal));
    }
    for _ in 0..2 {
        world.apply(signal("s".into(), "x")).unwrap();
    }
    let full = InputRefused::TooManySignals { len_max: 2 };
    assert_eq!(world.apply(signal("s".into(), "x")), Err(full.clone()));
    // The bound holds after a reload too.
    world.reload();
    assert_eq!(world.apply(signal("s".into(), "x")), Err(full));
    world.check_replays();
}

#[test]
fn a_history_that_is_full_takes_no_more_signals_and_ends_at_twice_its_length() {
    let code = Implementation::new(COLLECT, async |cx: WorkflowContext, _: usize| {
        loop {
            cx.sleep(Duration::from_secs(1)).await?;
        }
        #[expect(unreachable_code, reason = "gives the block its type")]
        Ok::<_, WorkflowError>(Vec::new())
    });
    let mut limits = Limits::default();
    limits.history_len_max = 20;
    let mut world = World::start_with(Some(code), &0, limits);
    while world.history().len() < 20 {
        assert!(world.fire_next());
    }
    let (name, value) = (NUMBER.name().into(), Payload::encode(&1).unwrap());
    let signal = Input::Signal {
        name,
        value,
        cause: None,
        request: None,
    };
    assert_eq!(
        world.apply(signal),
        Err(InputRefused::HistoryFull { len_max: 20 })
    );
    while world.parked().is_none() {
        assert!(world.fire_next());
    }
    assert_eq!(
        world.labels()[world.labels().len() - 2..],
        ["Parked", "TimerFired"]
    );
    assert!(matches!(
        world.apply(Input::Resume),
        Err(InputRefused::StillParked(_))
    ));
    world.check_replays();

    world.limits.history_len_max = 1_000;
    world.reload();
    world.apply(Input::Resume).unwrap();
    assert_eq!(world.parked(), None);
    assert!(world.fire_next());
    assert_eq!(
        world.labels().last(),
        Some(&"TimerStarted"),
        "the code runs again"
    );
}

/// The beginning of a run that a signal started.
fn begun_with(code: Implementation, len: usize, number: u64) -> World {
    let input = Payload::encode(&len).unwrap();
    let id = InstanceId::new("world").unwrap();
    let value = Payload::encode(&number).unwrap();
    let started = Started::new(code.name(), id, input).with_signal(NUMBER.name(), value);
    let moment = Moment {
        now: Timestamp::from_micros(1),
        epoch: 1,
    };
    World::start_as(Some(code), started, Limits::default(), moment)
}

#[test]
fn a_signal_that_starts_a_run_is_there_when_its_code_begins() {
    let world = begun_with(Implementation::new(COLLECT, collect), 1, 7);
    assert_eq!(world.labels(), ["Completed"], "in the first turn");
    assert_eq!(world.result::<Vec<u64>>(), [7]);

    let mut world = begun_with(Implementation::new(COLLECT, collect), 4, 1);
    for value in 2..=4 {
        world.signal(NUMBER, &value);
        world.reopen();
    }
    assert_eq!(world.result::<Vec<u64>>(), [1, 2, 3, 4]);
}

#[test]
fn a_signal_that_starts_a_run_waits_for_whoever_comes_to_take_it() {
    let code = || {
        Implementation::new(COLLECT, async |cx: WorkflowContext, len: usize| {
            cx.call(STEP, ()).await?;
            collect(cx, len).await
        })
    };
    let mut world = begun_with(code(), 2, 1);
    world.signal(NUMBER, &2);
    world.reload();
    world.complete(1, &());
    assert_eq!(world.result::<Vec<u64>>(), [1, 2]);

    // Also for code that comes later.
    let input = Payload::encode(&2_usize).unwrap();
    let started = Started::new(COLLECT.name(), InstanceId::new("world").unwrap(), input)
        .with_signal(NUMBER.name(), Payload::encode(&1_u64).unwrap());
    let moment = Moment {
        now: Timestamp::from_micros(1),
        epoch: 1,
    };
    let mut world = World::start_as(None, started, Limits::default(), moment);
    world.signal(NUMBER, &2);
    world.check_replays();
    world.reload_with(Some(Implementation::new(COLLECT, collect)));
    world.apply(Input::Resume).unwrap();
    assert_eq!(world.result::<Vec<u64>>(), [1, 2]);
}

#[test]
fn a_signal_that_is_sent_again_under_its_request_is_recorded_once() {
    let mut world = World::start(Implementation::new(COLLECT, collect), &3);
    let mut send = |request: &str, value: u64, expected: &[u64]| {
        let turn = world.signal_as(request, NUMBER, &value);
        assert_eq!(turn, Ok(()), "also behind the end of the run");
        let received = world.history().iter().filter_map(|(event, _)| match event {
            Event::SignalReceived { value, .. } => Some(value.decode::<u64>().unwrap()),
            _ => None,
        });
        assert_eq!(received.collect::<Vec<_>>(), expected);
        world.reopen();
    };
    send("a", 1, &[1]);
    send("a", 9, &[1]);
    send("b", 2, &[1, 2]);
    send("a", 9, &[1, 2]);
    send("c", 3, &[1, 2, 3]);
    send("b", 9, &[1, 2, 3]);
    send("c", 9, &[1, 2, 3]);
    assert_eq!(world.result::<Vec<u64>>(), [1, 2, 3]);
    assert_eq!(world.signal_as("d", NUMBER, &4), Err(InputRefused::Closed));
}

#[test]
fn a_request_is_remembered_of_recorded_signals_alone() {
    let code = || Implementation::new(COLLECT, collect);
    let mut limits = Limits::default();
    limits.payload_bytes_max = 64;
    let mut world = World::start_with(None, &2, limits);
    let taken = world.signal_as("a", NUMBER, &64);
    assert_eq!(taken, Ok(()), "a parked run records it");
    assert_eq!(world.signal_as("a", NUMBER, &8), Ok(()));
    for request in ["", &"r".repeat(NAME_BYTES_MAX + 1)] {
        let bytes = request.len();
        assert_eq!(
            world.signal_as(request, NUMBER, &1),
            Err(InputRefused::Name { bytes })
        );
    }
    let large = Input::Signal {
        name: NUMBER.name().into(),
        value: Payload::encode(&"x".repeat(70)).unwrap(),
        cause: None,
        request: Some("b".into()),
    };
    assert!(matches!(world.apply(large), Err(InputRefused::TooLarge { .. })));
    assert_eq!(
        world.signal_as("b", NUMBER, &5),
        Ok(()),
        "it was not recorded before"
    );
    world.reload_with(Some(code()));
    world.apply(Input::Resume).unwrap();
    assert_eq!(world.result::<Vec<u64>>(), [64, 5]);
}

#[test]
fn a_signal_that_has_started_a_run_is_known_by_its_request() {
    let started = Started::new(
        COLLECT.name(),
        InstanceId::new("world").unwrap(),
        Payload::encode(&2_usize).unwrap(),
    );
    let started = started.with_signal(NUMBER.name(), Payload::encode(&1_u64).unwrap());
    let moment = Moment {
        now: Timestamp::from_micros(1),
        epoch: 1,
    };
    let code = Some(Implementation::new(COLLECT, collect));
    let mut world = World::start_as(
        code,
        started.with_signal_request("first"),
        Limits::default(),
        moment,
    );
    for _ in 0..2 {
        assert_eq!(world.signal_as("first", NUMBER, &9), Ok(()));
        world.reopen();
    }
    world.signal(NUMBER, &2);
    assert_eq!(world.result::<Vec<u64>>(), [1, 2]);
}

#[test]
fn the_latest_requests_go_into_the_run_in_which_another_goes_on() {
    const CHAIN: Workflow<u64, u64> = Workflow::named("chain");
    let chain = async |cx: WorkflowContext, left: u64| {
        for _ in 1..left {
            cx.receive(NUMBER).await?;
        }
        Ok::<_, WorkflowError>(cx.continue_as_new(CHAIN, 1).await?)
    };
    let mut limits = Limits::default();
    limits.payload_bytes_max = 16_000;
    let code = Implementation::new(CHAIN, chain);
    let len = SIGNAL_REQUESTS_LEN_MAX + 1;
    let mut world = World::start_with(Some(code), &(len as u64 + 1), limits);
    // As long as they may be.
    let request = |number: usize| format!("{number:0>255}");
    for number in 0..len {
        world.signal_as(&request(number), NUMBER, &1).unwrap();
    }
    let Some(Command::ContinueAsNew { started, .. }) = world.commands.last() else {
        panic!("nothing goes on: {:?}", world.commands);
    };
    let carried = &started.origin.as_ref().unwrap().signal_requests;
    let latest: Vec<_> = (1..len).map(request).collect();
    assert_eq!(*carried, latest, "all that are known, in their order");
}
