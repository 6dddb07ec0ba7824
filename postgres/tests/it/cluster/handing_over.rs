//! Partitions that move between nodes that live: their attempts end where they have begun, within bounds.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join_all};
use millrun::{
    InstanceId, Runtime, RuntimeBuilder, Signal, StopCause, Workflow, WorkflowContext, WorkflowError,
};

use super::draining::{Ledger, STEP, STEPS};
use super::{behind, builder, is_even, owns, shares, until};
use crate::proxy::{Cut, Proxy};
use crate::server::TestServer;

/// In how many partitions an attempt is under way: more than the share of one of two nodes.
const BUSY: usize = 700;
/// How many partitions have none.
const IDLE: usize = 1_024 - BUSY;
/// How many are drained at a time.
const DRAINED: usize = 128;

const BESIDE: Signal<()> = Signal::named("beside");
const BRANCHES: Workflow<u32, u32> = Workflow::named("branches");

/// A step, and another beside it when a signal has come.
async fn branches(cx: WorkflowContext, number: u32) -> Result<u32, WorkflowError> {
    let beside = async {
        cx.receive(BESIDE).await?;
        Ok::<_, WorkflowError>(cx.call(STEP, number).await?)
    };
    let (first, second) = join(cx.call(STEP, number), beside).await;
    Ok(first? + second?)
}

/// The ids of `len` instances, each in another partition.
fn ids_apart(len: usize) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let all = (0..).map(|number| format!("run-{number}"));
    let apart = all.filter(|id| seen.insert(InstanceId::new(id).unwrap().partition()));
    apart.take(len).collect()
}

fn node(ledger: &Arc<Ledger>, builder: RuntimeBuilder, grace: Duration) -> RuntimeBuilder {
    let node = ledger.register(builder).register(BRANCHES, branches);
    node.configure(|config| config.handover_grace = grace)
}

/// A node that is alone, with an attempt under way in each of [`BUSY`] partitions.
async fn busy(
    ledger: &Arc<Ledger>,
    builder: RuntimeBuilder,
    grace: Duration,
    workflow: Workflow<u32, u32>,
    input: u32,
) -> (Runtime, Vec<String>) {
    let a = node(ledger, builder, grace).start().await.unwrap();
    let ids = ids_apart(BUSY);
    let starts = ids
        .iter()
        .map(async |id| a.start(workflow, id.as_str(), input).await.map(drop));
    for started in join_all(starts).await {
        started.unwrap();
    }
    ledger.begun(u32::try_from(BUSY).unwrap()).await;
    (a, ids)
}

/// All of these runs end with this result, as seen from a node.
async fn assert_results(node: &Runtime, workflow: Workflow<u32, u32>, ids: &[String], expected: u32) {
    let runs = ids
        .iter()
        .map(async |id| node.attach(workflow, id).unwrap().result().await);
    for result in join_all(runs).await {
        assert_eq!(result.unwrap(), expected);
    }
}

/// Waits until all idle partitions have moved to `b`, and `a` drains as many others as it may at a time.
async fn until_busy_ones_are_drained(a: &Runtime, b: &Runtime) {
    until(b, |status| shares(status) == [BUSY, IDLE]).await;
    until(a, |status| status.draining_len == DRAINED).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_that_is_under_way_while_another_node_joins_is_not_repeated() {
    const LEN: u32 = 2;
    let Some(server) = TestServer::shared() else {
        return;
    };
    let url = server.url(&server.schema());
    let (ledger, patient) = (Ledger::new(), Duration::from_secs(600));
    let (a, ids) = busy(&ledger, builder(&url, "a"), patient, STEPS, LEN).await;
    let b = node(&ledger, builder(&url, "b"), patient);
    let b = b.start().await.unwrap();
    until_busy_ones_are_drained(&a, &b).await;
    assert!(!ids.iter().any(|id| owns(&b, id)), "idle partitions move first");
    // The first steps end, and the second ones begin where the runs are by then.
    ledger.may_end.add_permits(BUSY * 2);
    assert_results(&b, STEPS, &ids, (0..LEN).sum()).await;
    until(&b, |status| is_even(status, 2)).await;
    until(&a, |status| status.draining_len == 0).await;
    assert!(ids.iter().any(|id| owns(&b, id)), "busy ones have moved too");
    ledger.assert_each(BUSY * 2, 1);
    a.shutdown().await.unwrap();
    b.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempts_that_are_under_way_at_the_end_of_the_grace_are_repeated_by_the_next_owner() {
    let Some(server) = TestServer::shared() else {
        return;
    };
    let url = server.url(&server.schema());
    let ledger = Ledger::new();
    let (a, ids) = busy(&ledger, builder(&url, "a"), Duration::ZERO, STEPS, 1).await;
    let b = node(&ledger, builder(&url, "b"), Duration::ZERO);
    let b = b.start().await.unwrap();
    until(&b, |status| is_even(status, 2)).await;
    let moved = BUSY - 512;
    ledger.begun(u32::try_from(moved).unwrap()).await;
    ledger.may_end.add_permits(BUSY);
    assert_results(&a, STEPS, &ids, 0).await;
    let begun = ledger.begun.lock().unwrap().clone();
    let often = |times| begun.values().filter(|begun| **begun == times).count();
    assert_eq!((often(1), often(2)), (512, moved));
    a.shutdown().await.unwrap();
    b.shutdown().await.unwrap();
}

/// The node for which it drained is shut down: what was put aside meanwhile would wait for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_put_aside_begins_when_the_partition_stays() {
    let Some(server) = TestServer::shared() else {
        return;
    };
    let url = server.url(&server.schema());
    let (ledger, patient) = (Ledger::new(), Duration::from_secs(600));
    let (a, ids) = busy(&ledger, builder(&url, "a"), patient, BRANCHES, 1).await;
    let b = node(&ledger, builder(&url, "b"), patient);
    let b = b.start().await.unwrap();
    until_busy_ones_are_drained(&a, &b).await;
    let signals = ids
        .iter()
        .map(async |id| a.attach(BRANCHES, id).unwrap().signal(BESIDE, ()).await);
    for signalled in join_all(signals).await {
        signalled.unwrap();
    }
    // The runs go on, and no attempt begins in what is drained.
    ledger.begun(u32::try_from(BUSY - DRAINED).unwrap()).await;
    until(&a, |status| status.draining_len == DRAINED).await;
    assert_eq!(ledger.begun.lock().unwrap().len(), BUSY * 2 - DRAINED);
    b.shutdown().await.unwrap();
    ledger.begun(u32::try_from(DRAINED).unwrap()).await;
    until(&a, |status| is_even(status, 1) && status.draining_len == 0).await;
    ledger.may_end.add_permits(BUSY * 2);
    assert_results(&a, BRANCHES, &ids, 2).await;
    ledger.assert_each(BUSY * 2, 1);
    a.shutdown().await.unwrap();
}

/// The part that drains is killed, and its successor knows of no drain.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_is_begun_anew_by_the_successor_of_its_part() {
    let Some(server) = TestServer::shared() else {
        return;
    };
    let url = server.url(&server.schema());
    let (ledger, patient) = (Ledger::new(), Duration::from_secs(600));
    let (a, ids) = busy(&ledger, builder(&url, "a"), patient, STEPS, 2).await;
    let b = node(&ledger, builder(&url, "b"), patient);
    let b = b.start().await.unwrap();
    until_busy_ones_are_drained(&a, &b).await;
    a.kill("nodes").unwrap();
    ledger.may_end.add_permits(BUSY * 2);
    assert_results(&b, STEPS, &ids, 1).await;
    until(&b, |status| is_even(status, 2)).await;
    ledger.assert_each(BUSY * 2, 1);
    a.shutdown().await.unwrap();
    b.shutdown().await.unwrap();
}

/// Regression: partitions that a program gave back itself while they were drained were drained for ever, and began no attempt
/// when they had come back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_program_gives_back_while_it_is_drained_is_drained_no_longer() {
    let Some(server) = TestServer::shared() else {
        return;
    };
    let url = server.url(&server.schema());
    let (ledger, patient) = (Ledger::new(), Duration::from_secs(600));
    let (a, ids) = busy(&ledger, builder(&url, "a"), patient, STEPS, 2).await;
    let b = node(&ledger, builder(&url, "b"), patient);
    let b = b.start().await.unwrap();
    until_busy_ones_are_drained(&a, &b).await;
    a.partitions().release(&a.partitions().owned());
    // Their owners begin all attempts anew, and most of these owners are the former one.
    ledger.begun(u32::try_from(BUSY).unwrap()).await;
    until(&a, |status| status.draining_len == 0).await;
    ledger.may_end.add_permits(BUSY * 2);
    assert_results(&b, STEPS, &ids, 1).await;
    until(&b, |status| is_even(status, 2)).await;
    a.shutdown().await.unwrap();
    b.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_cut_off_while_it_hands_over_is_replaced_as_any_other() {
    let Some(server) = TestServer::shared() else {
        return;
    };
    let schema = server.schema();
    let proxy = Proxy::to(server.port());
    let (ledger, patient) = (Ledger::new(), Duration::from_secs(600));
    let (a, ids) = busy(&ledger, behind(&proxy, &schema).await, patient, STEPS, 1).await;
    let c = node(&ledger, builder(&server.url(&schema), "c"), patient);
    let c = c.start().await.unwrap();
    until(&c, |status| shares(status) == [BUSY, IDLE]).await;
    until(&a, |status| status.draining_len == DRAINED).await;
    proxy.set(Cut::Swallow);
    until(&c, |status| is_even(status, 1)).await;
    // All are made again.
    ledger.begun(u32::try_from(BUSY).unwrap()).await;
    proxy.set(Cut::Never);
    ledger.may_end.add_permits(BUSY * 2);
    assert_results(&c, STEPS, &ids, 0).await;
    let stopped = a.stopped().await;
    assert!(matches!(stopped, StopCause::Journal(_)), "{stopped:?}");
    ledger.assert_each(BUSY, 2);
    c.shutdown().await.unwrap();
}
