//! Nodes whose machines show times that are hours apart: all go by the server's.

use std::sync::Arc;
use std::time::Duration;

use millrun::host::{
    Bell, Host, HostConfig, Next, OnExit, Part, PartHandle, Placement, SpawnError, Task, TaskHandle,
    TokioHost,
};
use millrun::store::{Partition, Sequence};
use millrun::{InstanceId, Runtime, Timestamp, Workflow, WorkflowContext, WorkflowError};

use super::builder;
use crate::server::TestServer;

const NAP: Workflow<u64, Vec<u64>> = Workflow::named("nap");
const HOUR: u64 = 3_600_000_000;
/// Much more than the server may be asked late, and much less than an hour.
const NEAR: u64 = 60_000_000;
const PAUSE: Duration = Duration::from_millis(20);

/// Naps, and the times before and behind each.
async fn nap(cx: WorkflowContext, naps: u64) -> Result<Vec<u64>, WorkflowError> {
    let mut times = vec![cx.now().as_micros()];
    for _ in 0..naps {
        cx.sleep(PAUSE).await?;
        times.push(cx.now().as_micros());
    }
    Ok(times)
}

/// A machine whose time of day is off by so many microseconds.
#[derive(Clone, Debug)]
struct OffHost {
    host: Arc<dyn Host>,
    off: i64,
}

impl OffHost {
    fn host_time(&self, time: Timestamp) -> Timestamp {
        Timestamp::from_micros(time.as_micros().saturating_add_signed(-self.off))
    }
}

impl Host for OffHost {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.host.now().as_micros().saturating_add_signed(self.off))
    }

    fn elapsed(&self) -> Duration {
        self.host.elapsed()
    }

    fn random(&self) -> u64 {
        self.host.random()
    }

    fn spawn(&self, name: &'static str, task: Task) -> TaskHandle {
        self.host.spawn(name, task)
    }

    fn has_threads(&self) -> bool {
        self.host.has_threads()
    }

    fn sleep_until(&self, deadline: Timestamp) -> Task {
        self.host.sleep_until(self.host_time(deadline))
    }

    fn spawn_part(
        &self,
        name: &str,
        placement: Placement,
        bell: Bell,
        part: Box<dyn Part>,
        on_exit: OnExit,
    ) -> Result<PartHandle, SpawnError> {
        let host = self.clone();
        let part = Box::new(OffPart { part, host });
        self.host.spawn_part(name, placement, bell, part, on_exit)
    }
}

struct OffPart {
    part: Box<dyn Part>,
    host: OffHost,
}

impl Part for OffPart {
    fn turn(&mut self, _: Timestamp, budget: usize) -> Next {
        match self.part.turn(self.host.now(), budget) {
            Next::At(time) => Next::At(self.host.host_time(time)),
            Next::IdleUntil(time) => Next::IdleUntil(self.host.host_time(time)),
            next => next,
        }
    }
}

/// A node that claims what a test says.
async fn node(url: &str, name: &str, host: &TokioHost, off: i64) -> Runtime {
    let host: Arc<dyn Host> = Arc::new(OffHost {
        host: host.host(),
        off,
    });
    let node = builder(url, name).register(NAP, nap).host(host);
    let node = node.configure(|config| config.claimed_at_open = Some(Vec::new()));
    node.start().await.unwrap()
}

/// A timer of a run that moved was due hours early, or late, and its history had times in any order.
#[tokio::test(flavor = "current_thread")]
async fn a_run_that_moves_between_nodes_goes_by_the_time_of_the_server() {
    const NAPS: u64 = 12;
    let Some(server) = TestServer::shared() else {
        return;
    };
    let url = server.url(&server.schema());
    let host = TokioHost::spawn(HostConfig::default()).await.unwrap();
    let right = || host.host().now().as_micros();
    let a = node(&url, "a", &host, HOUR.cast_signed()).await;
    let b = node(&url, "b", &host, -HOUR.cast_signed()).await;
    for node in [&a, &b] {
        assert!(node.host().now().as_micros().abs_diff(right()) < NEAR);
    }
    let began = right();
    let here = [InstanceId::new("run").unwrap().partition()];
    a.partitions().claim(&here).await.unwrap();
    let run = a.start(NAP, "run", NAPS).await.unwrap().run_id().unwrap();
    // At each of its naps it goes to the other node.
    let mut events = 0;
    for (from, to) in [(&a, &b), (&b, &a)].into_iter().cycle().take(6) {
        from.partitions().release(&here);
        claim(to, &here).await;
        while to.stop_cause().is_none() {
            let page = to.history(run, Sequence::ZERO, 1_000).await.unwrap();
            if page.events.len() > events + 1 || is_over(to).await {
                events = page.events.len();
                break;
            }
        }
    }
    let times = a.attach(NAP, "run").unwrap().result().await.unwrap();
    assert_eq!(times.len(), 1 + usize::try_from(NAPS).unwrap());
    let pause = u64::try_from(PAUSE.as_micros()).unwrap();
    assert!(
        times.windows(2).all(|pair| pair[1] - pair[0] >= pause),
        "{times:?}"
    );
    let all = a.history(run, Sequence::ZERO, 1_000).await.unwrap();
    let dated: Vec<_> = all.events.iter().map(|event| event.at).collect();
    assert!(dated.is_sorted(), "{dated:?}");
    let ended = dated.last().unwrap().as_micros();
    assert!(
        times[0] + NEAR > began && ended < right() + NEAR,
        "{began} {times:?} {ended}"
    );
    for node in [a, b] {
        node.shutdown().await.unwrap();
    }
    host.shutdown(Duration::from_secs(10)).await.unwrap();
}

/// Claims what the other node is about to give back.
async fn claim(node: &Runtime, partitions: &[Partition]) {
    while node.partitions().claim(partitions).await.is_err() {
        node.cluster_looked().await;
    }
}

async fn is_over(node: &Runtime) -> bool {
    let run = node.attach(NAP, "run").unwrap();
    let described = run.describe().await;
    described.is_ok_and(|described| described.status != millrun::operating::InstanceStatus::Running)
}
