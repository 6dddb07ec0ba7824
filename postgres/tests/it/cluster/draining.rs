//! A node that is shut down under load: the attempts that it has begun end there, and nobody makes them again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use futures_util::future::join_all;
use millrun::{
    Activity, ActivityContext, ActivityError, Runtime, RuntimeBuilder, StopCause, Workflow, WorkflowContext,
    WorkflowError,
};
use tokio::sync::Semaphore;

use super::{behind, builder, ids, is_even, owns, shares, until};
use crate::proxy::{Cut, Proxy};
use crate::server::TestServer;

pub(super) const STEP: Activity<u32, u32> = Activity::named("step");
pub(super) const STEPS: Workflow<u32, u32> = Workflow::named("steps");

/// A number of steps, one after the other.
async fn steps(cx: WorkflowContext, len: u32) -> Result<u32, WorkflowError> {
    let mut sum = 0;
    for number in 0..len {
        sum += cx.call(STEP, number).await?;
    }
    Ok(sum)
}

/// What all nodes of a test have done.
#[derive(Debug)]
pub(super) struct Ledger {
    /// How often each step was begun.
    pub(super) begun: Mutex<BTreeMap<String, u32>>,
    /// A permit for each.
    has_begun: Semaphore,
    /// By which they end.
    pub(super) may_end: Semaphore,
}

impl Ledger {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            begun: Mutex::default(),
            has_begun: Semaphore::new(0),
            may_end: Semaphore::new(0),
        })
    }

    fn note(&self, step: String) {
        *self.begun.lock().unwrap().entry(step).or_default() += 1;
        self.has_begun.add_permits(1);
    }

    /// Waits until so many more have begun.
    pub(super) async fn begun(&self, len: u32) {
        self.has_begun.acquire_many(len).await.unwrap().forget();
    }

    pub(super) fn register(self: &Arc<Self>, builder: RuntimeBuilder) -> RuntimeBuilder {
        let ledger = Arc::clone(self);
        let step = move |cx: ActivityContext, number: u32| {
            let ledger = Arc::clone(&ledger);
            async move {
                ledger.note(cx.idempotency_key().to_string());
                ledger.may_end.acquire().await.unwrap().forget();
                Ok::<_, ActivityError>(number)
            }
        };
        builder.register(STEP, step).register(STEPS, steps)
    }

    /// Each step has been begun this often, and all of them have.
    pub(super) fn assert_each(&self, len: usize, times: u32) {
        let begun = self.begun.lock().unwrap();
        let others: Vec<_> = begun.iter().filter(|(_, begun)| **begun != times).collect();
        assert!(others.is_empty(), "{others:?}");
        assert_eq!(begun.len(), len);
    }
}

async fn joined(ledger: &Arc<Ledger>, url: &str, name: &str, hot_len_max: usize) -> Runtime {
    let node = ledger.register(builder(url, name));
    let node = node.configure(|config| config.hot_len_max = hot_len_max);
    node.start().await.unwrap()
}

/// Reports that had come were lost where their runs had to be read first, or where they came as the doors were closed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_graceful_stop_under_load_repeats_no_attempt() {
    const RUNS: usize = 60;
    const LEN: u32 = 12;
    let Some(server) = TestServer::shared() else {
        return;
    };
    // Runs that stay in memory, and runs of which each is read for each report.
    for hot_len_max in [100_000, 0] {
        let url = server.url(&server.schema());
        let ledger = Ledger::new();
        let a = joined(&ledger, &url, "a", hot_len_max).await;
        let b = joined(&ledger, &url, "b", hot_len_max).await;
        until(&b, |status| is_even(status, 2)).await;
        let ids = ids(RUNS);
        for id in &ids {
            a.start(STEPS, id.as_str(), LEN).await.unwrap();
        }
        // About half of the steps are done at the stop, and runs of either node have one under way.
        ledger.may_end.add_permits(RUNS * 6);
        ledger.begun(u32::try_from(RUNS).unwrap() * 6).await;
        let leaving = tokio::spawn({
            let a = a.clone();
            async move { a.shutdown().await }
        });
        // It may have left by then: what it had under way has ended.
        until(&b, |status| shares(status).len() == 1 || !status.nodes[0].claims).await;
        ledger.may_end.add_permits(RUNS * 6);
        let report = leaving.await.unwrap().unwrap();
        assert_eq!((report.activities_cut, report.left_behind.len()), (0, 0));
        let results = join_all(
            ids.iter()
                .map(async |id| b.attach(STEPS, id).unwrap().result().await),
        );
        for result in results.await {
            assert_eq!(result.unwrap(), (0..LEN).sum::<u32>());
        }
        ledger.assert_each(RUNS * 12, 1);
        b.shutdown().await.unwrap();
    }
}

/// A node that fails while it waits for an attempt is as any other that fails: others have its runs a lease later, and what it
/// writes then is refused.
#[tokio::test(flavor = "current_thread")]
async fn a_node_that_is_cut_off_while_it_drains_is_replaced_as_any_other() {
    let Some(server) = TestServer::shared() else {
        return;
    };
    let schema = server.schema();
    let proxy = Proxy::to(server.port());
    let ledger = Ledger::new();
    let b = joined(&ledger, &server.url(&schema), "b2", 100).await;
    let leaves = ledger.register(behind(&proxy, &schema).await);
    let leaves = leaves.configure(|config| {
        config.shutdown_grace = std::time::Duration::from_secs(600);
        config.shutdown_wait_max = std::time::Duration::from_secs(1_200);
    });
    let a = leaves.start().await.unwrap();
    until(&a, |status| is_even(status, 2)).await;
    let mine = ids(1_000).into_iter().find(|id| owns(&a, id)).unwrap();
    a.start(STEPS, mine.as_str(), 2).await.unwrap();
    ledger.begun(1).await;
    let leaving = tokio::spawn(async move { a.shutdown().await });
    until(&b, |status| status.nodes.first().is_some_and(|a| !a.claims)).await;
    proxy.set(Cut::Swallow);
    until(&b, |status| is_even(status, 1)).await;
    // The attempt that it had under way is made again, and the second step is made here alone.
    ledger.begun(1).await;
    proxy.set(Cut::Never);
    ledger.may_end.add_permits(3);
    assert_eq!(b.attach(STEPS, &mine).unwrap().result().await.unwrap(), 1);
    let ended = leaving.await.unwrap();
    assert!(matches!(ended, Err(StopCause::Journal(_))), "{ended:?}");
    let begun: Vec<_> = ledger.begun.lock().unwrap().values().copied().collect();
    assert_eq!(begun, [2, 1]);
    b.shutdown().await.unwrap();
}
