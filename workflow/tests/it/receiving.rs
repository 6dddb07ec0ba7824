//! Records of durable topics that a run waits for.

use std::future::{Future, poll_fn};
use std::task::Poll;

use millrun_core::{InstanceId, Sequence, Timestamp};
use millrun_workflow::{
    Command, DurableTopic, Event, Implementation, Input, InputRefused, Instance, KeyFilter, Limits, Moment,
    OperationId, Payload, RawRecord, ReceiveRecordError, ReceiveScheduled, RecordFilter, Started, Topic,
    Turn, Workflow, WorkflowContext, WorkflowError,
};

use crate::world::{World, run_id};

const PAID: DurableTopic<u64> = Topic::named("orders.paid").durable();
const FLOW: Workflow<u64, Vec<u64>> = Workflow::named("flow");

fn record(sequence: u64, key: Option<&str>, value: u64) -> Box<RawRecord> {
    Box::new(RawRecord {
        sequence: Sequence::new(sequence),
        time: Timestamp::EPOCH,
        key: key.map(Into::into),
        correlation: None,
        cause: None,
        value: Payload::encode(&value).unwrap(),
    })
}

/// What the world is asked to look for.
fn asked(world: &World) -> Vec<ReceiveScheduled> {
    let receive = |command: &Command| match command {
        Command::Receive { scheduled, .. } => Some(ReceiveScheduled::clone(scheduled)),
        _ => None,
    };
    world.commands.iter().filter_map(receive).collect()
}

fn scheduled(operation: u32, key: Option<&str>, behind: Option<u64>) -> ReceiveScheduled {
    ReceiveScheduled {
        operation: OperationId::new(operation),
        topic: "orders.paid".into(),
        filter: RecordFilter {
            key: key.map(|key| KeyFilter::Is(key.into())),
            correlation: None,
        },
        behind: behind.map(Sequence::new),
        since: None,
    }
}

fn received(operation: u32, record: Box<RawRecord>) -> Input {
    Input::RecordReceived {
        operation: OperationId::new(operation),
        record,
    }
}

/// Two with a key, and one of any.
fn thrice() -> Implementation {
    Implementation::new(FLOW, async |cx: WorkflowContext, _: u64| {
        let mut values = Vec::new();
        for key in [Some("a"), Some("a"), None] {
            let receive = cx.receive_from(PAID);
            let receive = match key {
                Some(key) => receive.key(key),
                None => receive,
            };
            values.push(receive.await?.into_payload());
        }
        Ok::<_, WorkflowError>(values)
    })
}

#[test]
fn each_wait_goes_on_behind_what_was_taken_with_its_key() {
    let mut world = World::start(thrice(), &0);
    assert_eq!(asked(&world), [scheduled(1, Some("a"), None)]);
    for wrong in [record(4, Some("b"), 1), record(4, None, 1)] {
        assert_eq!(world.apply(received(1, wrong)), Err(InputRefused::Stale));
    }
    world.apply(received(1, record(4, Some("a"), 40))).unwrap();
    assert_eq!(asked(&world), [scheduled(2, Some("a"), Some(4))]);
    for wrong in [
        received(2, record(4, Some("a"), 1)),
        received(1, record(5, Some("a"), 1)),
    ] {
        assert_eq!(
            world.apply(wrong),
            Err(InputRefused::Stale),
            "it was taken before"
        );
    }
    world.apply(received(2, record(9, Some("a"), 90))).unwrap();
    assert_eq!(asked(&world), [scheduled(3, None, None)], "a place of its own");
    world.apply(received(3, record(2, Some("c"), 20))).unwrap();
    assert_eq!(world.result::<Vec<u64>>(), [40, 90, 20]);
    world.check_replays();
}

#[test]
fn a_wait_that_is_let_go_of_is_forgotten_and_has_taken_nothing() {
    const EITHER: Workflow<u64, Vec<u64>> = Workflow::named("either");
    let code = || {
        Implementation::new(EITHER, async |cx: WorkflowContext, _: u64| {
            let wait = cx.receive_from(PAID).key("a");
            let short = cx.sleep(std::time::Duration::from_secs(1));
            drop(cx.race(wait, short).await);
            Ok::<_, WorkflowError>(vec![cx.receive_from(PAID).key("a").await?.into_payload()])
        })
    };
    let mut world = World::start(code(), &0);
    assert!(world.fire_next());
    assert!(
        world
            .commands
            .contains(&Command::CancelReceive(scheduled(1, Some("a"), None).into()))
    );
    assert_eq!(asked(&world), [scheduled(3, Some("a"), None)]);
    world.apply(received(3, record(1, Some("a"), 7))).unwrap();
    assert_eq!(world.result::<Vec<u64>>(), [7]);
    world.check_replays();
}

/// A run may take what comes for its region and what belongs to its basket, each from a place of its own.
#[test]
fn a_subscription_takes_what_its_filter_names_and_begins_where_it_says() {
    const SOME: Workflow<u64, Vec<u64>> = Workflow::named("some");
    let code = Implementation::new(SOME, async |cx: WorkflowContext, _: u64| {
        let of_region = cx.subscribe(PAID).key_prefix("eu.").from_beginning();
        let of_basket = cx.subscribe(PAID).key_prefix("eu.").correlation("b-1");
        let mut values = Vec::new();
        for subscription in [&of_region, &of_region, &of_basket] {
            values.push(subscription.next().await?.into_payload());
        }
        Ok::<_, WorkflowError>(values)
    });
    let mut world = World::start(code, &0);
    let filter = |correlation: Option<&str>| RecordFilter {
        key: Some(KeyFilter::StartsWith("eu.".into())),
        correlation: correlation.map(Into::into),
    };
    let wait = |operation, correlation, behind: Option<u64>, since| ReceiveScheduled {
        filter: filter(correlation),
        behind: behind.map(Sequence::new),
        since,
        ..scheduled(operation, None, None)
    };
    assert_eq!(asked(&world), [wait(1, None, None, Some(Timestamp::EPOCH))]);
    for wrong in [Some("us.1"), Some("eu"), None] {
        assert_eq!(
            world.apply(received(1, record(4, wrong, 1))),
            Err(InputRefused::Stale)
        );
    }
    world.apply(received(1, record(4, Some("eu.1"), 40))).unwrap();
    // What it has taken tells where it goes on.
    assert_eq!(asked(&world), [wait(2, None, Some(4), None)]);
    world.apply(received(2, record(5, Some("eu."), 50))).unwrap();
    assert_eq!(asked(&world), [wait(3, Some("b-1"), None, None)]);
    let mut of_basket = record(1, Some("eu.2"), 10);
    assert_eq!(
        world.apply(received(3, of_basket.clone())),
        Err(InputRefused::Stale)
    );
    of_basket.correlation = Some("b-1".into());
    world.apply(received(3, of_basket)).unwrap();
    assert_eq!(world.result::<Vec<u64>>(), [40, 50, 10]);
    world.check_replays();
}

#[test]
fn a_record_from_before_the_time_that_the_run_names_is_not_taken() {
    let code = Implementation::new(FLOW, async |cx: WorkflowContext, _: u64| {
        let record = cx.receive_from(PAID).since(Timestamp::from_micros(7)).await?;
        Ok::<_, WorkflowError>(vec![record.into_payload()])
    });
    let mut world = World::start(code, &0);
    for (time, sequence) in [(6, 1), (0, 2)] {
        let mut early = record(sequence, None, 1);
        early.time = Timestamp::from_micros(time);
        assert_eq!(world.apply(received(1, early)), Err(InputRefused::Stale));
    }
    let mut late = record(3, None, 30);
    late.time = Timestamp::from_micros(7);
    world.apply(received(1, late)).unwrap();
    assert_eq!(world.result::<Vec<u64>>(), [30]);
    world.check_replays();
}

#[test]
fn what_was_taken_stays_taken_behind_a_checkpoint_and_in_a_new_run() {
    let code = || {
        Implementation::new(FLOW, async |cx: WorkflowContext, round: u64| {
            let round = cx.checkpointed::<u64>().transpose()?.unwrap_or(round);
            let record = cx.receive_from(PAID).key("a").await?;
            match round {
                0 => Ok::<_, WorkflowError>(cx.checkpoint(&1_u64).await?),
                1 => Ok(cx.continue_as_new(FLOW, 2).await?),
                _ => Ok(vec![record.into_payload()]),
            }
        })
    };
    let mut world = World::start(code(), &0);
    world.apply(received(1, record(3, Some("a"), 1))).unwrap();
    assert_eq!(asked(&world), [scheduled(2, Some("a"), Some(3))]);
    world.check_replays();
    world.apply(received(2, record(5, Some("a"), 1))).unwrap();
    let started = world.commands.iter().find_map(|command| match command {
        Command::ContinueAsNew { started, .. } => Some(started.clone()),
        _ => None,
    });
    let taken = started.unwrap().origin.unwrap().taken.clone();
    assert_eq!(
        (
            taken.len(),
            &*taken[0].topic,
            taken[0].filter.key.as_ref().map(KeyFilter::text),
            taken[0].sequence.get()
        ),
        (1, "orders.paid", Some("a"), 5)
    );
}

/// Of two waits at a time, the one that was issued first is looked at last.
#[test]
fn a_wait_that_is_looked_at_late_leads_no_later_one_back() {
    let code = || {
        Implementation::new(FLOW, async |cx: WorkflowContext, _: u64| {
            let mut early = Box::pin(cx.receive_from(PAID).key("a"));
            let polled = poll_fn(|task| Poll::Ready(early.as_mut().poll(task))).await;
            assert!(polled.is_pending());
            for _ in 0..2 {
                cx.receive_from(PAID).key("a").await?;
            }
            early.await?;
            Ok::<_, WorkflowError>(vec![cx.receive_from(PAID).key("a").await?.into_payload()])
        })
    };
    let mut world = World::start(code(), &0);
    for (operation, sequence) in [(1, 5), (2, 5), (3, 6)] {
        world
            .apply(received(operation, record(sequence, Some("a"), sequence)))
            .unwrap();
    }
    assert_eq!(asked(&world), [scheduled(4, Some("a"), Some(6))]);
}

#[test]
fn a_record_of_another_type_is_an_error_and_counts_as_taken() {
    let code = || {
        Implementation::new(FLOW, async |cx: WorkflowContext, _: u64| {
            let wrong = cx.receive_from(PAID).await;
            assert!(matches!(wrong, Err(ReceiveRecordError::Payload(_))), "{wrong:?}");
            Ok::<_, WorkflowError>(vec![cx.receive_from(PAID).await?.into_payload()])
        })
    };
    let mut world = World::start(code(), &0);
    let mut wrong = record(1, None, 0);
    wrong.value = Payload::encode(&"wrong").unwrap();
    world.apply(received(1, wrong)).unwrap();
    assert_eq!(asked(&world), [scheduled(2, None, Some(1))]);
}

#[test]
fn filters_out_of_bounds_are_refused_and_record_nothing() {
    const REFUSED: Workflow<u64, Vec<String>> = Workflow::named("refused");
    let code = Implementation::new(REFUSED, async |cx: WorkflowContext, _: u64| {
        let mut told = Vec::new();
        for text in [String::new(), "k".repeat(256)] {
            let wait = || cx.receive_from(PAID);
            for wait in [
                wait().key(text.clone()),
                wait().key_prefix(text.clone()),
                wait().correlation(text),
            ] {
                told.push(wait.await.unwrap_err().to_string());
            }
        }
        Ok::<_, WorkflowError>(told)
    });
    let world = World::start(code, &0);
    assert_eq!(
        world.result::<Vec<String>>(),
        [
            (0, "key"),
            (0, "key"),
            (0, "correlation"),
            (256, "key"),
            (256, "key"),
            (256, "correlation")
        ]
        .map(|(bytes, what)| format!(
            "a {what} by which records are received has 1 to 255 bytes, this one has {bytes}"
        ))
    );
    let is_receive = |(event, _): &(Event, Timestamp)| matches!(event, Event::ReceiveScheduled(_));
    assert!(!world.history().iter().any(is_receive));
}

#[test]
fn a_run_is_in_as_many_places_as_one_may_be() {
    const MANY: Workflow<u64, String> = Workflow::named("many");
    let code = Implementation::new(MANY, async |cx: WorkflowContext, _: u64| {
        for number in 0.. {
            if let Err(error) = cx.receive_from(PAID).key(number.to_string()).await {
                return Ok::<_, WorkflowError>(format!("{number}: {error}"));
            }
        }
        unreachable!()
    });
    let moment = Moment {
        now: Timestamp::EPOCH,
        epoch: 1,
    };
    let id = InstanceId::new("many").unwrap();
    let started = Started::new("many", id, Payload::encode(&0_u64).unwrap());
    let mut turn = Turn::default();
    let mut instance = *Instance::start_in(
        &mut turn,
        Some(&code),
        run_id(),
        started,
        Limits::default(),
        moment,
    );
    for number in 1..=1_000_u32 {
        let key = (number - 1).to_string();
        turn = Turn::default();
        let input = received(number, record(u64::from(number), Some(&key), 1));
        instance.apply(input, moment, &mut turn).unwrap();
    }
    let Some(Event::Completed { result }) = turn.events.last() else {
        panic!("{:?}", turn.events)
    };
    assert_eq!(
        result.decode::<String>().unwrap(),
        "1000: the run has received from 1000 topics or by as many filters, its limit: let other runs receive the others"
    );
}
