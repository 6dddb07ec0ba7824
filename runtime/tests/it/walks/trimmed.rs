//! What a run has published, started and signalled in a part of its history that is trimmed leads to the run, and further up;
//! and the run leads to it.

use std::collections::BTreeSet;
use std::time::Duration;

use millrun::operating::{TraceBounds, TraceDirection, TraceOf, TraceOutcome, TracePage, TraceRelation};
use millrun::topics::ReadFrom;
use millrun::workflow::Cause;
use millrun::{
    Entity, EntityCommand, EntityState, InstanceId, RunId, Runtime, RuntimeBuilder, Signal, Workflow,
    WorkflowContext, WorkflowError,
};

use super::{COUNTED, PACKED, PLACED, UNDELIVERED, find, is_done, names, page, record, walked};
use crate::support::Store;

/// Publishes, starts a child and signals, and begins again until that is trimmed. The number says how often.
const FIRST: Workflow<u64, u64> = Workflow::named("first-then-rounds");
const CHILD: Workflow<u64, u64> = Workflow::named("child-of-first");
const WAITS: Workflow<u64, u64> = Workflow::named("waits-for-first");
/// Publishes, and continues as a new run that publishes.
const NEXT: Workflow<u64, u64> = Workflow::named("next");
const GO: Signal<u64> = Signal::named("go");
const TALLY: Entity<Tally> = Entity::named("tally");
const ADD: EntityCommand<Tally, u64, u64> = EntityCommand::named("add");

#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
struct Tally(u64);

impl EntityState for Tally {
    type Event = u64;

    fn begin(_key: &str) -> Self {
        Self::default()
    }

    fn apply(&mut self, more: u64) {
        self.0 += more;
    }
}

async fn first(cx: WorkflowContext, rounds: u64) -> Result<u64, WorkflowError> {
    let round = cx.checkpointed::<u64>().transpose()?.unwrap_or(0);
    if round == 0 {
        cx.publish(PACKED, rounds).await?;
        cx.child(CHILD, "child", rounds).await?;
        cx.signal_instance(WAITS, "waits", GO, rounds).await?;
    }
    cx.sleep(Duration::from_micros(1)).await?;
    if round < rounds {
        return Ok(cx.checkpoint(&(round + 1)).await?);
    }
    Ok(rounds)
}

async fn next(cx: WorkflowContext, left: u64) -> Result<u64, WorkflowError> {
    cx.publish(PACKED, left).await?;
    if left > 0 {
        return Ok(cx.continue_as_new(NEXT, left - 1).await?);
    }
    Ok(left)
}

fn told(builder: RuntimeBuilder) -> RuntimeBuilder {
    let tally = TALLY.command(ADD, |tally: &Tally, more: u64, cx| {
        cx.emit(more);
        cx.publish(COUNTED, more);
        Ok(tally.0 + more)
    });
    let tally = tally.snapshot_every(16);
    builder
        .durable_topic(PLACED)
        .durable_topic(PACKED)
        .durable_topic(COUNTED)
        .durable_topic(UNDELIVERED)
        .entity(tally)
        .register(FIRST, first)
        .register(NEXT, next)
        .register(CHILD, async |_cx: WorkflowContext, number: u64| Ok(number))
        .register(WAITS, async |cx: WorkflowContext, _: u64| {
            Ok(cx.receive(GO).await?)
        })
        .configure(|config| config.limits.kept_beginning_every = 16)
}

/// From the record, its burial, the child and the signal the walk comes to the run and to the record that started it; and from
/// that to them.
async fn check(runtime: &Runtime, run: RunId, ends: &[TraceOf]) {
    let traced = page(runtime, run).await;
    assert!(traced.trimmed_before.is_some(), "{traced:?}");
    let published = find(&traced.effects, TraceRelation::Published);
    assert_eq!(published.to, Some(record(PACKED, 1)));
    assert!(published.operation.is_some() && published.at.is_some());
    let child = find(&traced.effects, TraceRelation::Child);
    assert!(
        ends.contains(child.to.as_ref().unwrap()) && is_done(child),
        "{child:?}"
    );
    let signal = find(&traced.effects, TraceRelation::Signal);
    assert_eq!(signal.instance.as_ref().map(InstanceId::as_str), Some("waits"));
    let down = names(&walked(runtime, record(PLACED, 1), TraceDirection::Effects).await);
    assert!(down.is_superset(&ends.iter().cloned().collect()), "{down:?}");
    let small = in_small_pages(runtime, run).await;
    assert_eq!(
        (small.causes, small.effects),
        (traced.causes.clone(), traced.effects.clone())
    );
    // One operation leads to what came of it alone.
    let cause = Cause {
        run,
        operation: published.operation.unwrap().get(),
    };
    let of_operation = page(runtime, cause).await;
    assert_eq!(of_operation.effects[1..], *std::slice::from_ref(published));
    for end in ends {
        let up = walked(runtime, end.clone(), TraceDirection::Causes).await;
        let is_of_run = |of: &TraceOf| matches!(of, TraceOf::Operation(cause) if cause.run == run);
        let operation = up.iter().find(|node| is_of_run(&node.of));
        let operation = operation.unwrap_or_else(|| panic!("{end:?} does not lead to the run: {up:#?}"));
        let of_operation = operation.page.as_ref().unwrap();
        // Only how the run began is said to have led to it, and that the operation itself is trimmed.
        assert_eq!(of_operation.causes.len(), 1, "{of_operation:?}");
        let TraceOutcome::Unknown(why) = &of_operation.effects[0].outcome else {
            panic!("{of_operation:?}");
        };
        assert!(why.contains("trimmed before"), "{why}");
        assert!(names(&up).contains(&record(PLACED, 1)), "{end:?}: {up:#?}");
    }
}

/// All pages of a run as one, each of which looks at as little as it may.
async fn in_small_pages(runtime: &Runtime, run: RunId) -> TracePage {
    let mut bounds = TraceBounds::default();
    bounds.links_len_max = 1;
    bounds.records_len_max = 1;
    bounds.runs_len_max = 1;
    let mut whole = runtime.trace(run, None, &bounds).await.unwrap();
    let mut pages = 1;
    while let Some(next) = whole.next {
        // As a caller over HTTP hands it back.
        let next = next.to_string().parse().unwrap();
        let page = runtime.trace(run, Some(next), &bounds).await.unwrap();
        whole.causes.extend(page.causes);
        whole.effects.extend(page.effects);
        whole.next = page.next;
        pages += 1;
    }
    assert!(pages > 8, "{pages}");
    whole
}

#[tokio::test]
async fn what_a_trimmed_part_has_published_started_and_signalled_leads_up_also_after_a_restart() {
    let store = Store::new();
    let runtime = told(store.bare()).start().await.unwrap();
    let waits = runtime.start(WAITS, "waits", 0).await.unwrap();
    let placed = runtime.durable_topic(PLACED).unwrap();
    let trigger = placed.trigger("firsts");
    let trigger = trigger.start(FIRST, |record| ("first".to_owned(), *record.payload()));
    let trigger = trigger.await.unwrap();
    placed.publish(&40).await.unwrap();
    assert_eq!(waits.result().await.unwrap(), 40);
    let first = runtime.attach(FIRST, "first").unwrap();
    assert_eq!(first.result().await.unwrap(), 40);
    drop(trigger);
    let packed = runtime.durable_topic(PACKED).unwrap();
    let subscription = packed.subscribe("billing").undelivered_to(UNDELIVERED, 1);
    let subscription = subscription.await.unwrap();
    let delivery = subscription.next().await.unwrap();
    delivery.send_back(Duration::ZERO, "no").unwrap().await.unwrap();
    let undelivered = runtime.durable_topic(UNDELIVERED).unwrap();
    let mut reader = undelivered.read(ReadFrom::Beginning).await.unwrap();
    let buried = reader.next().await.unwrap();
    undelivered.send_back(buried.payload()).await.unwrap();
    drop((subscription, reader));

    let run = first.describe().await.unwrap().run;
    let child = runtime
        .attach(CHILD, "child")
        .unwrap()
        .describe()
        .await
        .unwrap()
        .run;
    let ends = [
        record(PACKED, 1),
        record(UNDELIVERED, 1),
        record(PACKED, 2),
        TraceOf::Run(child),
        TraceOf::Run(waits.run_id().unwrap()),
    ];
    check(&runtime, run, &ends).await;
    runtime.shutdown().await.unwrap();
    let runtime = told(store.bare()).start().await.unwrap();
    check(&runtime, run, &ends).await;
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn the_records_of_a_run_that_continues_lead_to_the_run_that_published_each() {
    let runtime = told(Runtime::volatile()).start().await.unwrap();
    let placed = runtime.durable_topic(PLACED).unwrap();
    let trigger = placed.trigger("nexts");
    let trigger = trigger.start(NEXT, |record| ("next".to_owned(), *record.payload()));
    let _trigger = trigger.await.unwrap();
    placed.publish(&3).await.unwrap();
    let packed = runtime.durable_topic(PACKED).unwrap();
    let mut reader = packed.read(ReadFrom::Beginning).await.unwrap();
    for sequence in 1..=4 {
        let published = reader.next().await.unwrap();
        assert_eq!(*published.payload(), 4 - sequence);
        let up = walked(&runtime, record(PACKED, sequence), TraceDirection::Causes).await;
        let cause = TraceOf::Operation(published.run_cause().unwrap());
        assert!(
            names(&up).is_superset(&[cause, record(PLACED, 1)].into()),
            "{up:#?}"
        );
    }
    runtime.shutdown().await.unwrap();
}

/// Of an operation that was trimmed, the last command of the entity was said to have begun it.
#[tokio::test]
async fn what_an_entity_published_long_ago_is_not_said_to_come_of_its_last_command() {
    let runtime = told(Runtime::volatile()).start().await.unwrap();
    let tally = runtime.entity(TALLY, "all");
    for nth in 1..=90 {
        tally.call(ADD, 1).request(format!("r-{nth}")).await.unwrap();
    }
    let of = page(&runtime, record(COUNTED, 1)).await;
    let operation = find(&of.causes, TraceRelation::CausedBy).to.clone().unwrap();
    let of = page(&runtime, operation).await;
    assert!(of.trimmed_before.is_some(), "{of:?}");
    assert!(
        of.causes
            .iter()
            .all(|link| link.relation != TraceRelation::Command),
        "{of:?}"
    );
    let last = page(&runtime, record(COUNTED, 90)).await;
    let of_last = find(&last.causes, TraceRelation::CausedBy).to.clone().unwrap();
    let of = page(&runtime, of_last.clone()).await;
    assert_eq!(
        find(&of.causes, TraceRelation::Command).name.as_deref(),
        Some("add")
    );
    // Downwards each of its records is found, those before a snapshot and the one in hand.
    let TraceOf::Operation(Cause { run, .. }) = of_last else {
        panic!("{of_last:?}");
    };
    let (mut published, mut after) = (BTreeSet::new(), None);
    loop {
        let page = runtime.trace(run, after, &TraceBounds::default()).await.unwrap();
        let links = page
            .effects
            .iter()
            .filter(|link| link.relation == TraceRelation::Published);
        published.extend(links.filter_map(|link| link.to.clone()));
        let Some(next) = page.next else { break };
        after = Some(next);
    }
    assert_eq!(published, (1..=90).map(|nth| record(COUNTED, nth)).collect());
    runtime.shutdown().await.unwrap();
}
