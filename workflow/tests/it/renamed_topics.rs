//! Topics that have another name than in the history.

use std::sync::Arc;

use millrun_core::{Sequence, Timestamp};
use millrun_workflow::{
    Command, DurableTopic, Event, Fit, Implementation, Input, Limits, OperationId, ParkReason, Payload,
    PublishOutcome, RawRecord, Topic, TopicRenames, Workflow, WorkflowContext, WorkflowError,
};

use crate::world::{World, run_id};

const OLD: DurableTopic<u64> = Topic::named("paid").durable();
const NEW: DurableTopic<u64> = Topic::named("orders.paid").durable();
const FLOW: Workflow<u64, Vec<u64>> = Workflow::named("flow");

/// Takes two records, tells of the first, and takes two more behind a checkpoint.
fn code(topic: DurableTopic<u64>) -> Implementation {
    Implementation::new(FLOW, move |cx: WorkflowContext, _: u64| async move {
        let mut taken = match cx.checkpointed::<Vec<u64>>() {
            Some(taken) => taken?,
            None => {
                let first = cx.receive_from(topic).key("a").await?.into_payload();
                cx.publish(topic, first).await?;
                let second = cx.receive_from(topic).key("a").await?.into_payload();
                return Ok(cx.checkpoint(&vec![first, second]).await?);
            }
        };
        taken.push(cx.receive_from(topic).key("a").await?.into_payload());
        taken.push(cx.receive_from(topic).await?.into_payload());
        Ok::<_, WorkflowError>(taken)
    })
}

fn renamed(code: &Implementation) -> Implementation {
    let names = TopicRenames::from_iter([("paid", "orders.paid")]);
    code.with_renamed_topics(&Arc::new(names))
}

/// The inputs of a run that ends, in their order.
fn inputs() -> [Input; 5] {
    let record = |operation, sequence| Input::RecordReceived {
        operation: OperationId::new(operation),
        record: Box::new(RawRecord {
            sequence: Sequence::new(sequence),
            time: Timestamp::EPOCH,
            key: Some("a".into()),
            correlation: None,
            cause: None,
            value: Payload::encode(&sequence).unwrap(),
        }),
    };
    let published = Input::Published {
        operation: OperationId::new(2),
        outcome: Ok(PublishOutcome::Taken),
    };
    [record(1, 4), published, record(3, 6), record(4, 8), record(5, 5)]
}

/// Behind which record each wait begins, in their order.
fn begun(world: &World) -> Vec<(String, Option<u64>)> {
    let waits = world.history().iter().filter_map(|(event, _)| match event {
        Event::ReceiveScheduled(wait) => Some((wait.topic.to_string(), wait.behind.map(Sequence::get))),
        _ => None,
    });
    waits.collect()
}

fn strict() -> Limits {
    let mut limits = Limits::default();
    limits.strict = true;
    limits
}

#[test]
fn a_run_goes_on_where_it_was_in_its_topic_from_whichever_input_on_that_has_another_name() {
    for renamed_at in 0..=inputs().len() {
        let mut world = World::start_with(Some(code(OLD)), &0, strict());
        for (at, input) in inputs().into_iter().enumerate() {
            if at == renamed_at {
                world.reload_with(Some(renamed(&code(NEW))));
            }
            world.apply(input).unwrap();
        }
        assert_eq!(
            world.result::<Vec<u64>>(),
            [4, 6, 8, 5],
            "renamed at {renamed_at}"
        );
        let behind: Vec<_> = begun(&world).into_iter().map(|(_, behind)| behind).collect();
        assert_eq!(behind, [None, Some(4), Some(6), None], "renamed at {renamed_at}");
        // What stands in the history stays; what is new has the new name.
        let names: Vec<_> = begun(&world).into_iter().map(|(name, _)| name).collect();
        let is_old = |name: &String| name == "paid";
        let old_len = names.iter().take_while(|name| is_old(name)).count();
        assert!(!names[old_len..].iter().any(is_old), "{names:?}");
        world.reload_with(Some(renamed(&code(NEW))));
        world.check_replays();
    }
}

/// Runs of an earlier version may stay with code that says the former name.
#[test]
fn code_that_says_the_former_name_goes_on_as_well() {
    let mut world = World::start_with(Some(code(OLD)), &0, strict());
    for (at, input) in inputs().into_iter().enumerate() {
        world.reload_with(Some(renamed(&code([OLD, NEW][at % 2]))));
        world.apply(input).unwrap();
    }
    assert_eq!(world.result::<Vec<u64>>(), [4, 6, 8, 5]);
    let behind: Vec<_> = begun(&world).into_iter().map(|(_, behind)| behind).collect();
    assert_eq!(behind, [None, Some(4), Some(6), None]);
}

#[test]
fn each_prefix_fits_the_renamed_code_and_none_with_the_name_fits_without() {
    let mut world = World::start_with(Some(code(OLD)), &0, strict());
    for input in inputs() {
        world.apply(input).unwrap();
    }
    let history = world.history();
    let fit = |code: &Implementation, len: usize| {
        let events = history[..len].to_vec();
        Fit::of(Some(code), run_id(), None, events, strict()).unwrap()
    };
    for len in 2..=history.len() {
        let next = history.get(len).map(|(event, _)| event);
        if !matches!(
            next,
            None | Some(Event::RecordReceived { .. } | Event::Published { .. })
        ) {
            // Within a turn.
            continue;
        }
        assert_eq!(
            fit(&renamed(&code(NEW)), len),
            Fit::Fits { changed_values: 0 },
            "{len}"
        );
        assert!(!fit(&code(NEW), len).is_fit(), "{len}");
    }
}

#[test]
fn another_topic_stays_another() {
    const OTHER: DurableTopic<u64> = Topic::named("refunded").durable();
    let mut world = World::start_with(Some(code(OTHER)), &0, strict());
    world.reload_with(Some(renamed(&code(NEW))));
    let parked = world.parked();
    assert!(
        matches!(parked, Some(ParkReason::Nondeterminism(_))),
        "{parked:?}"
    );
}

/// What a run is carried over with has the name that the topic had then.
#[test]
fn a_run_that_continues_another_goes_on_where_that_one_was() {
    const ROUNDS: Workflow<u64, u64> = Workflow::named("rounds");
    let rounds = |topic: DurableTopic<u64>| {
        Implementation::new(ROUNDS, move |cx: WorkflowContext, round: u64| async move {
            let taken = cx.receive_from(topic).key("a").await?.into_payload();
            match round {
                0 => Ok::<_, WorkflowError>(cx.continue_as_new(ROUNDS, 1).await?),
                _ => Ok(taken),
            }
        })
    };
    let mut world = World::start(rounds(OLD), &0);
    world.apply(inputs()[0].clone()).unwrap();
    let next = world.commands.iter().find_map(|command| match command {
        Command::ContinueAsNew { started, .. } => Some(started.clone()),
        _ => None,
    });
    let next = *next.expect("it goes on in another run");
    let world = World::start_as(Some(renamed(&rounds(NEW))), next, strict(), world.moment);
    assert_eq!(begun(&world), [("orders.paid".to_owned(), Some(4))]);
}
