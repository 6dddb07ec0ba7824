//! A chain through triggers, runs, an entity and a dead letter: from each end the other is reached, also after a restart
//! and where histories and topics are trimmed.

use std::time::Duration;

use millrun::operating::{TraceBounds, TraceDirection, TraceError, TraceOf, TraceOutcome, TraceRelation};
use millrun::store::Sequence;
use millrun::topics::{ReadFrom, RecordToken};
use millrun::workflow::Cause;
use millrun::{RunError, RunId, Runtime};
use millrun_core::{Partition, Timestamp};

use super::{
    COUNTED, COUNTER, PACK, PACKED, PLACED, SHIP, UNDELIVERED, find, is_done, names, page, record, told,
    walked,
};
use crate::support::Store;

/// What the chain consists of.
struct Chain {
    placed: RecordToken,
    pack: RunId,
    ship: RunId,
    entity: RunId,
}

/// Plays the chain: placed ─► pack ─► packed ─► ship ─► counter ─► counted ─► undelivered ─► counted once more.
async fn play(runtime: &Runtime) -> Chain {
    let ship = runtime.start(SHIP, "ship", "pack-7".into()).await.unwrap();
    let topic = runtime.durable_topic(PLACED).unwrap();
    let trigger = topic.trigger("packing");
    let trigger = trigger.start(PACK, |record| {
        (format!("pack-{}", record.payload()), *record.payload())
    });
    let trigger = trigger.await.unwrap();
    let placed = topic
        .publish(&7)
        .key("order-7")
        .id("order-7")
        .await
        .unwrap()
        .token();
    assert_eq!(ship.result().await.unwrap(), 7);
    let counted = runtime.durable_topic(COUNTED).unwrap();
    let subscription = counted
        .subscribe("billing")
        .undelivered_to(UNDELIVERED, 1)
        .await
        .unwrap();
    let delivery = subscription.next().await.unwrap();
    delivery
        .send_back(Duration::ZERO, "no such account")
        .unwrap()
        .await
        .unwrap();
    let undelivered = runtime.durable_topic(UNDELIVERED).unwrap();
    let mut reader = undelivered.read(ReadFrom::Beginning).await.unwrap();
    let buried = reader.next().await.unwrap();
    assert_eq!(buried.stems_from(), Some(buried.payload().token));
    let sent_back = undelivered.send_back(buried.payload()).await.unwrap();
    assert_eq!(sent_back.sequence(), Sequence::new(2));
    let pack = runtime.attach(PACK, "pack-7").unwrap();
    assert_eq!(pack.result().await.unwrap(), 7);
    drop(trigger);
    let id = COUNTER.id_of("all").parse().unwrap();
    let entity = match page(runtime, TraceOf::Instance(id)).await.of {
        TraceOf::Run(run) => run,
        other => panic!("{other:?}"),
    };
    Chain {
        placed,
        pack: pack.describe().await.unwrap().run,
        ship: ship.run_id().unwrap(),
        entity,
    }
}

/// Whatever is traced, the chain is found.
async fn check(runtime: &Runtime, chain: &Chain) {
    let before = runtime.stats();
    let down = walked(runtime, chain.placed, TraceDirection::Effects).await;
    let expected = [
        record(PLACED, 1),
        TraceOf::Run(chain.pack),
        record(PACKED, 1),
        TraceOf::Run(chain.ship),
        TraceOf::Run(chain.entity),
        record(COUNTED, 1),
        record(COUNTED, 2),
        record(UNDELIVERED, 1),
    ];
    assert_eq!(names(&down), expected.clone().into());
    for of in [record(COUNTED, 2), record(UNDELIVERED, 1)] {
        let up = names(&walked(runtime, of, TraceDirection::Causes).await);
        for cause in [record(COUNTED, 1), record(PACKED, 1), record(PLACED, 1)] {
            assert!(up.contains(&cause), "{cause:?} is not in {up:?}");
        }
        for run in [chain.pack, chain.ship, chain.entity] {
            let is_of_run = |of: &TraceOf| matches!(of, TraceOf::Operation(cause) if cause.run == run);
            assert!(up.iter().any(is_of_run), "{run} is not in {up:?}");
        }
    }
    let placed = page(runtime, chain.placed).await;
    let started = find(&placed.effects, TraceRelation::Triggered);
    assert_eq!(started.name.as_deref(), Some("packing"));
    assert_eq!(started.instance.as_ref().map(|id| id.as_str()), Some("pack-7"));
    assert!(is_done(find(&placed.effects, TraceRelation::Subscription)));
    let pack = page(runtime, chain.pack).await;
    assert!(pack.trimmed_before.is_some(), "its checkpoints have trimmed it");
    assert_eq!(
        find(&pack.causes, TraceRelation::Triggered).to,
        Some(record(PLACED, 1))
    );
    let ship = page(runtime, chain.ship).await;
    let command = find(&ship.effects, TraceRelation::Command);
    assert_eq!((command.attempts, is_done(command)), (Some(1), true));
    let counted = page(runtime, record(COUNTED, 1)).await;
    assert_eq!(
        find(&counted.effects, TraceRelation::Buried).to,
        Some(record(UNDELIVERED, 1))
    );
    assert_eq!(
        find(&counted.effects, TraceRelation::SentBack).to,
        Some(record(COUNTED, 2))
    );
    let id = TraceOf::RecordId {
        topic: "placed".into(),
        id: "order-7".into(),
    };
    assert_eq!(page(runtime, id).await.of, record(PLACED, 1));
    let after = runtime.stats();
    assert_eq!(
        (after.loads, after.hot),
        (before.loads, before.hot),
        "nobody was woken"
    );
    assert_eq!(after.events, before.events);
}

#[tokio::test]
async fn each_end_of_a_chain_is_reached_from_the_other_also_after_a_restart() {
    let store = Store::new();
    let runtime = told(store.bare()).start().await.unwrap();
    let chain = play(&runtime).await;
    check(&runtime, &chain).await;
    runtime.shutdown().await.unwrap();
    let runtime = told(store.bare()).start().await.unwrap();
    assert_eq!(runtime.stats().hot, 0);
    check(&runtime, &chain).await;
    // Topics that the program knows nothing of are the journal's all the same.
    runtime.shutdown().await.unwrap();
    let runtime = store.bare().start().await.unwrap();
    check(&runtime, &chain).await;
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn what_is_trimmed_is_told_and_the_rest_is_walked() {
    let runtime = told(Runtime::volatile()).start().await.unwrap();
    let chain = play(&runtime).await;
    let topic = runtime.durable_topic(COUNTED).unwrap();
    let first = |runtime: &Runtime| {
        let topics = runtime.durable_topics();
        topics.iter().find(|topic| topic.name == "counted").unwrap().first
    };
    while first(&runtime) < 3 {
        for _ in 0..1_000 {
            topic.publish(&0).await.unwrap();
        }
    }
    let trimmed = runtime
        .trace(record(COUNTED, 1), None, &TraceBounds::default())
        .await;
    assert!(matches!(trimmed, Err(TraceError::Trimmed { before, .. }) if before.get() == first(&runtime)));
    let entity = page(&runtime, chain.entity).await;
    let published = find(&entity.effects, TraceRelation::Published);
    let TraceOutcome::Unknown(why) = &published.outcome else {
        panic!("{published:?}");
    };
    assert!(why.contains("trimmed before"), "{why}");
    // From the burial the walk ends where the record was.
    let up = walked(&runtime, record(UNDELIVERED, 1), TraceDirection::Causes).await;
    assert!(matches!(up.last().unwrap().page, Err(TraceError::Trimmed { .. })));
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn what_is_not_there_has_its_error() {
    let runtime = told(Runtime::volatile()).start().await.unwrap();
    let run = runtime.start(SHIP, "ship", "pack-7".into()).await.unwrap();
    let run = run.run_id().unwrap();
    let other = RunId::new(Partition::of(b"x"), Timestamp::EPOCH, 7);
    let ask = async |of: TraceOf| {
        runtime
            .trace(of, None, &TraceBounds::default())
            .await
            .unwrap_err()
    };
    assert!(matches!(
        ask(TraceOf::Run(other)).await,
        TraceError::Run(RunError::NotFound)
    ));
    assert!(matches!(ask(record(PLACED, 1)).await, TraceError::NotYet { .. }));
    for name in ["unknown", "millrun.subscription placed/x"] {
        let of = TraceOf::Record {
            topic: name.into(),
            sequence: Sequence::new(1),
        };
        assert!(matches!(ask(of).await, TraceError::UnknownTopic { .. }));
    }
    let of = TraceOf::RecordId {
        topic: "placed".into(),
        id: "x".into(),
    };
    assert!(matches!(ask(of).await, TraceError::UnknownId { .. }));
    let cursor = Some("r".parse().unwrap());
    let refused = runtime.trace(run, cursor, &TraceBounds::default()).await;
    assert!(matches!(refused, Err(TraceError::OtherCursor)));
    // An operation that the run has not begun is told of in its page.
    let page = page(&runtime, Cause { run, operation: 99 }).await;
    assert!(matches!(page.effects[0].outcome, TraceOutcome::Unknown(_)));
    let undelivered = runtime.durable_topic(UNDELIVERED).unwrap();
    assert!(undelivered.read(ReadFrom::Beginning).await.is_ok());
    // Of a topic that was deleted it is the same.
    runtime.delete_durable_topic("placed").await.unwrap();
    let gone = ask(record(PLACED, 1)).await;
    assert!(matches!(gone, TraceError::UnknownTopic { .. }), "{gone:?}");
    runtime.shutdown().await.unwrap();
}
