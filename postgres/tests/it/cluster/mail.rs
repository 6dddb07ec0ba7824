//! What nodes have for each other: runs of one that call, signal and close runs of another, whoever dies meanwhile.

use std::collections::BTreeSet;
use std::time::Duration;

use millrun::operating::InstanceStatus;
use millrun::workflow::Either;
use millrun::{Runtime, RuntimeBuilder, Signal, Workflow, WorkflowContext, WorkflowError};

use super::{Victim, builder, is_even, owns, until};
use crate::server::TestServer;

const PARENT: Workflow<u64, u64> = Workflow::named("parent");
const CHILD: Workflow<u64, u64> = Workflow::named("child");
const ENDLESS: Workflow<u64, u64> = Workflow::named("endless");
const HUB: Workflow<(), Vec<u64>> = Workflow::named("hub");
const TOLD: Signal<u64> = Signal::named("told");
const NEVER: Signal<u64> = Signal::named("never");

/// The hub has heard enough.
const LAST: u64 = u64::MAX;

/// Doubles a number by a child, lets go of another one that never ends, and tells the hub.
async fn parent(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    let doubled = cx.child(CHILD, format!("child-{number}"), number).await?;
    let endless = cx.child(ENDLESS, format!("endless-{number}"), number);
    match cx.race(endless, cx.sleep(Duration::from_millis(20))).await {
        Either::Left(_) => unreachable!("it ends when nobody waits for it"),
        Either::Right(slept) => slept?,
    }
    cx.signal_instance(HUB, "hub", TOLD, doubled).await?;
    Ok(doubled)
}

async fn child(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    cx.sleep(Duration::from_millis(5)).await?;
    Ok(number * 2)
}

async fn endless(cx: WorkflowContext, _number: u64) -> Result<u64, WorkflowError> {
    Ok(cx.receive(NEVER).await?)
}

async fn hub(cx: WorkflowContext, (): ()) -> Result<Vec<u64>, WorkflowError> {
    let mut heard = Vec::new();
    loop {
        match cx.receive(TOLD).await? {
            LAST => return Ok(heard),
            number => heard.push(number),
        }
    }
}

pub(super) fn with_family(builder: RuntimeBuilder) -> RuntimeBuilder {
    let builder = builder.register(PARENT, parent).register(CHILD, child);
    builder.register(ENDLESS, endless).register(HUB, hub)
}

async fn joined(url: &str, node: &str) -> Runtime {
    with_family(builder(url, node)).start().await.unwrap()
}

fn parent_id(number: u64) -> String {
    format!("parent-{number}")
}

/// Starts those parents that a node owns; gives their numbers.
async fn start_own(node: &Runtime, numbers: std::ops::Range<u64>) -> Vec<u64> {
    let mut started = Vec::new();
    for number in numbers {
        if owns(node, &parent_id(number)) && node.start(PARENT, &parent_id(number), number).await.is_ok() {
            started.push(number);
        }
    }
    started
}

/// Waits until these have ended as they should, with the children that nobody waits for.
async fn ended(nodes: &[&Runtime], numbers: &[u64]) {
    let owner = |id: &str| *nodes.iter().find(|node| owns(node, id)).unwrap_or(&nodes[0]);
    for number in numbers {
        let id = parent_id(*number);
        let result = owner(&id).attach(PARENT, &id).unwrap().result().await;
        assert_eq!(result.unwrap(), number * 2, "{id}");
        let id = format!("endless-{number}");
        loop {
            let described = owner(&id).attach(ENDLESS, &id).unwrap().describe().await;
            match described {
                Ok(described) if described.status != InstanceStatus::Finished => {
                    owner(&id).cluster_looked().await;
                }
                _ => break,
            }
        }
    }
}

/// Ends the hub, and checks that it has heard of these, and of nobody twice.
async fn assert_heard(node: &Runtime, numbers: &[u64]) {
    let hub = node.attach(HUB, "hub").unwrap();
    hub.signal(TOLD, LAST).await.unwrap();
    let heard = hub.result().await.unwrap();
    let once: BTreeSet<_> = heard.iter().copied().collect();
    assert_eq!(once.len(), heard.len(), "a signal was taken twice: {heard:?}");
    for number in numbers {
        assert!(
            once.contains(&(number * 2)),
            "the signal of {number} was lost: {heard:?}"
        );
    }
}

#[tokio::test(flavor = "current_thread")]
async fn runs_of_two_nodes_call_and_signal_and_close_each_other() {
    const LEN: u64 = 40;
    let Some(server) = TestServer::shared() else {
        return;
    };
    let url = server.url(&server.schema());
    let (a, b) = (joined(&url, "a").await, joined(&url, "b").await);
    for node in [&a, &b] {
        until(node, |status| is_even(status, 2)).await;
    }
    while a.partitions().owned().len() + b.partitions().owned().len() < 1_024 {
        a.cluster_looked().await;
    }
    let of_hub = if owns(&a, "hub") { &a } else { &b };
    of_hub.start(HUB, "hub", ()).await.unwrap();
    let (of_a, of_b) = (start_own(&a, 0..LEN).await, start_own(&b, 0..LEN).await);
    assert!(of_a.len() > 5 && of_b.len() > 5, "{of_a:?} {of_b:?}");
    let all = [of_a, of_b].concat();
    assert_eq!(all.len() as u64, LEN);
    ended(&[&a, &b], &all).await;
    assert_heard(of_hub, &all).await;
    for node in [&a, &b] {
        assert_eq!(node.cluster().unwrap().mail_set_aside_len, 0);
    }
    // Nothing is left of the mail.
    let schema = url.split_once("schema=").unwrap().1.to_owned();
    let count = format!("SELECT count(*) FROM {schema}.mail");
    // A runtime of its own, which no task may have.
    let rows =
        || std::thread::scope(|scope| scope.spawn(|| server.sql(&count)[0][0].clone()).join().unwrap());
    while rows().as_deref() != Some("0") {
        a.cluster_looked().await;
    }
    for node in [a, b] {
        node.shutdown().await.unwrap();
    }
}

/// One is killed while the runs of both talk to each other, early or late: all that was begun ends right at the other one, and each
/// signal is taken once.
#[tokio::test(flavor = "current_thread")]
async fn what_a_node_that_is_killed_had_for_another_comes_once() {
    const LEN: u64 = 60;
    let Some(server) = TestServer::shared() else {
        return;
    };
    for kill_after in [1, 5, 12, 20] {
        let url = server.url(&server.schema());
        let heir = joined(&url, "heir").await;
        heir.start(HUB, "hub", ()).await.unwrap();
        let mut victim = Victim::starting_parents(&url);
        until(&heir, |status| is_even(status, 2)).await;
        let mut all = Vec::new();
        let (own, theirs) = tokio::join!(start_own(&heir, 0..LEN), victim.started(kill_after));
        victim.kill();
        all.extend(own);
        all.extend(
            theirs
                .iter()
                .filter_map(|id| id.strip_prefix("parent-")?.parse::<u64>().ok()),
        );
        until(&heir, |status| is_even(status, 1)).await;
        while heir.partitions().owned().len() < 1_024 {
            heir.cluster_looked().await;
        }
        // Those that it had begun and not told of are begun again, or found.
        let all: BTreeSet<u64> = all.into_iter().chain(start_own(&heir, 0..LEN).await).collect();
        let all: Vec<_> = all.into_iter().collect();
        ended(&[&heir], &all).await;
        assert_heard(&heir, &all).await;
        heir.shutdown().await.unwrap();
    }
}

/// What a victim does beside: it starts the parents that it owns.
pub(super) async fn start_parents(node: &Runtime) {
    for number in 0_u64..60 {
        let id = parent_id(number);
        if owns(node, &id) && node.start(PARENT, &id, number).await.is_ok() {
            println!("started {id}");
        }
    }
}
