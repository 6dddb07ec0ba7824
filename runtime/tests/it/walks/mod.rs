//! Traces: what led to what, walked from each end of a chain to the other.

mod bounds;
mod chain;
mod trimmed;

use std::collections::BTreeSet;
use std::time::Duration;

use millrun::builders::EntityCode;
use millrun::operating::{
    TraceBounds, TraceDirection, TraceLink, TraceOf, TraceOutcome, TracePage, TraceRelation, WalkedNode,
};
use millrun::store::Sequence;
use millrun::topics::UndeliveredRecord;
use millrun::{
    DurableTopic, Entity, EntityCommand, EntityState, Runtime, RuntimeBuilder, Topic, Workflow,
    WorkflowContext, WorkflowError,
};
use serde::{Deserialize, Serialize};

pub(super) const PLACED: DurableTopic<u64> = Topic::named("placed").durable();
pub(super) const PACKED: DurableTopic<u64> = Topic::named("packed").durable();
pub(super) const COUNTED: DurableTopic<u64> = Topic::named("counted").durable().len_max(100);
pub(super) const UNDELIVERED: DurableTopic<UndeliveredRecord> = Topic::named("undelivered").durable();
/// Begins again often enough for its history to be trimmed, and publishes.
pub(super) const PACK: Workflow<u64, u64> = Workflow::named("pack");
/// Receives what a pack has published, and has an entity count it.
pub(super) const SHIP: Workflow<String, u64> = Workflow::named("ship");
pub(super) const COUNTER: Entity<Counter> = Entity::named("counter");
pub(super) const COUNT: EntityCommand<Counter, u64, u64> = EntityCommand::named("count");

#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Counter(u64);

impl EntityState for Counter {
    type Event = u64;

    fn begin(_key: &str) -> Self {
        Self::default()
    }

    fn apply(&mut self, counted: u64) {
        self.0 += counted;
    }
}

fn counter() -> EntityCode<Counter> {
    COUNTER.command(COUNT, |counter: &Counter, more: u64, cx| {
        cx.emit(more);
        cx.publish(COUNTED, more);
        Ok(counter.0 + more)
    })
}

async fn pack(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    let rounds = cx.checkpointed::<u64>().transpose()?.unwrap_or(0);
    if rounds < 40 {
        cx.sleep(Duration::from_micros(1)).await?;
        return Ok(cx.checkpoint(&(rounds + 1)).await?);
    }
    cx.publish(PACKED, number).await?;
    Ok(number)
}

async fn ship(cx: WorkflowContext, pack: String) -> Result<u64, WorkflowError> {
    let packed = cx.receive_from(PACKED).key(pack.as_str()).await?;
    Ok(cx.command(COUNTER, "all", COUNT, packed.into_payload()).await?)
}

pub(super) fn told(builder: RuntimeBuilder) -> RuntimeBuilder {
    let builder = builder
        .durable_topic(PLACED)
        .durable_topic(PACKED)
        .durable_topic(COUNTED);
    let builder = builder.durable_topic(UNDELIVERED).entity(counter());
    let builder = builder.register(PACK, pack).register(SHIP, ship);
    builder.configure(|config| config.limits.kept_beginning_every = 16)
}

/// All nodes of a walk, in their order.
pub(super) async fn walked(
    runtime: &Runtime,
    of: impl Into<TraceOf>,
    direction: TraceDirection,
) -> Vec<WalkedNode> {
    let mut walk = runtime.trace_walk(of, direction, 32, 1_000, &TraceBounds::default());
    let mut nodes: Vec<WalkedNode> = Vec::new();
    while let Some(node) = walk.next().await.unwrap() {
        assert!(
            nodes.iter().all(|other| other.of != node.of),
            "{:?} comes twice",
            node.of
        );
        nodes.push(node);
    }
    assert!(!walk.is_cut());
    nodes
}

pub(super) fn names(nodes: &[WalkedNode]) -> BTreeSet<TraceOf> {
    nodes.iter().map(|node| node.of.clone()).collect()
}

pub(super) fn record<T>(topic: DurableTopic<T>, sequence: u64) -> TraceOf {
    TraceOf::Record {
        topic: topic.topic().name().to_owned(),
        sequence: Sequence::new(sequence),
    }
}

pub(super) fn find(links: &[TraceLink], relation: TraceRelation) -> &TraceLink {
    let mut found = links.iter().filter(|link| link.relation == relation);
    found
        .next()
        .unwrap_or_else(|| panic!("no {relation:?} in {links:?}"))
}

pub(super) async fn page(runtime: &Runtime, of: impl Into<TraceOf>) -> TracePage {
    let page = runtime.trace(of, None, &TraceBounds::default()).await.unwrap();
    assert_eq!(page.next, None);
    page
}

pub(super) fn is_done(link: &TraceLink) -> bool {
    link.outcome == TraceOutcome::Done
}
