//! Runtimes that share one store: who owns what, and what becomes of the runs of a node that dies.

mod calls;
mod clients;
mod clocks;
mod draining;
mod handing_over;
mod mail;
mod standby;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use millrun::operating::ClusterStatus;
use millrun::store::{FailureKind, Partition};
use millrun::{
    Activity, ActivityContext, ActivityError, DurableTopic, InstanceId, OpenError, Runtime, RuntimeBuilder,
    Signal, StopCause, Topic, Workflow, WorkflowContext, WorkflowError,
};

use millrun_postgres::{PostgresConfig, PostgresJournal};

use tokio::sync::Semaphore;

use crate::proxy::{Cut, Proxy};
use crate::server::TestServer;

const DOUBLE: Activity<u32, u32> = Activity::named("double");
const ADD: Signal<u32> = Signal::named("add");
const SUM: Workflow<u32, u32> = Workflow::named("sum");
const PLACED: DurableTopic<u32> = Topic::named("placed").durable();

async fn double(_: ActivityContext, number: u32) -> Result<u32, ActivityError> {
    Ok(2 * number)
}

/// Receives a number of signals, and returns twice their sum.
async fn sum(cx: WorkflowContext, signals: u32) -> Result<u32, WorkflowError> {
    let mut sum = 0;
    for _ in 0..signals {
        sum += cx.receive(ADD).await?;
    }
    Ok(cx.call(DOUBLE, sum).await?)
}

fn builder(url: &str, node: &str) -> RuntimeBuilder {
    Runtime::open(format!("{url}&node={node}"))
        .register(DOUBLE, double)
        .register(SUM, sum)
        .configure(|config| config.lease = Duration::from_secs(1))
}

async fn joined(url: &str, node: &str) -> Runtime {
    builder(url, node).start().await.unwrap()
}

/// Waits until a node sees that.
async fn until(runtime: &Runtime, is_so: impl Fn(&ClusterStatus) -> bool) {
    loop {
        let status = runtime.cluster().unwrap();
        assert!(runtime.stop_cause().is_none(), "{:?}", runtime.stop_cause());
        if is_so(&status) {
            return;
        }
        runtime.cluster_looked().await;
    }
}

/// Waits until a node has taken in the runs of the partition of an instance.
async fn until_it_owns(runtime: &Runtime, id: &str) {
    while !owns(runtime, id) {
        runtime.cluster_looked().await;
    }
}

/// Whether the store has this number of nodes, and each its even share of the partitions.
fn is_even(status: &ClusterStatus, nodes: usize) -> bool {
    let lens = status.nodes.iter().map(|node| node.partitions.len());
    let spread = lens.clone().max().unwrap_or(0) - lens.min().unwrap_or(0);
    status.nodes.len() == nodes && status.free_len == 0 && spread <= 1
}

fn owns(runtime: &Runtime, id: &str) -> bool {
    let partition = InstanceId::new(id).unwrap().partition();
    runtime.partitions().owned().contains(&partition)
}

fn ids(len: usize) -> Vec<String> {
    (0..len).map(|number| format!("run-{number}")).collect()
}

#[tokio::test(flavor = "current_thread")]
async fn runtimes_share_the_partitions_and_run_what_they_own() {
    let Some(server) = TestServer::shared() else {
        return;
    };
    let url = server.url(&server.schema());
    let a = joined(&url, "a").await;
    assert_eq!(
        a.partitions().owned().len(),
        1_024,
        "it is alone, and begins with all"
    );
    let ids = ids(60);
    for id in &ids {
        a.start(SUM, id, 1).await.unwrap();
    }
    let b = joined(&url, "b").await;
    until(&a, |status| is_even(status, 2)).await;
    until(&b, |status| is_even(status, 2)).await;
    let status = b.cluster().unwrap();
    assert_eq!((&*status.name, status.nodes[1].is_here), ("b", true));
    // The shards have taken in what was claimed.
    while a.partitions().owned().len() + b.partitions().owned().len() < 1_024 {
        a.cluster_looked().await;
    }
    let mut of_b = 0;
    for (number, id) in (0..).zip(&ids) {
        let (here, there) = if owns(&a, id) { (&a, &b) } else { (&b, &a) };
        of_b += usize::from(owns(&b, id));
        assert_eq!(
            there.attach(SUM, id).unwrap().describe().await.unwrap().workflow,
            "sum"
        );
        let run = here.attach(SUM, id).unwrap();
        run.signal(ADD, number).await.unwrap();
        assert_eq!(run.result().await.unwrap(), 2 * number);
    }
    assert!((10..50).contains(&of_b), "{of_b} of {} moved", ids.len());
    // One that is shut down leaves all to the other at once.
    b.shutdown().await.unwrap();
    until(&a, |status| is_even(status, 1)).await;
    assert_eq!(a.cluster().unwrap().nodes[0].partitions.len(), 1_024);
    // The part that sees to nodes can be killed.
    a.kill("nodes").unwrap();
    let c = joined(&url, "c").await;
    until(&c, |status| is_even(status, 2)).await;
    a.shutdown().await.unwrap();
    c.shutdown().await.unwrap();
}

/// How many partitions each node owns.
fn shares(status: &ClusterStatus) -> Vec<usize> {
    status.nodes.iter().map(|node| node.partitions.len()).collect()
}

/// The others gave partitions back for it, which stood still for as long as it lived.
#[tokio::test(flavor = "current_thread")]
async fn a_node_that_claims_nothing_by_itself_has_no_share() {
    let Some(server) = TestServer::shared() else {
        return;
    };
    let url = server.url(&server.schema());
    // What it is told to claim is its own.
    let some = (0..24).filter_map(Partition::from_index).collect();
    let told = builder(&url, "b").configure(|config| config.claimed_at_open = Some(some));
    let b = told.start().await.unwrap();
    let a = joined(&url, "a").await;
    let c = joined(&url, "c").await;
    let none = builder(&url, "d").configure(|config| config.claimed_at_open = Some(Vec::new()));
    let d = none.start().await.unwrap();
    until(&a, |status| shares(status) == [500, 24, 500, 0]).await;
    let nodes = a.cluster().unwrap().nodes;
    let claim: Vec<_> = nodes.iter().map(|node| node.claims).collect();
    assert_eq!(claim, [true, false, true, false]);
    for node in [a, b, c, d] {
        node.shutdown().await.unwrap();
    }
}

/// What [`the_node_that_is_killed`] is told by.
const URL: &str = "MILLRUN_POSTGRES_NODE";

/// After how many runs its only thread is blocked.
const HANGS_AFTER: &str = "MILLRUN_POSTGRES_NODE_HANGS_AFTER";

/// It starts nothing by itself.
const HOSTS_ONLY: &str = "MILLRUN_POSTGRES_NODE_HOSTS_ONLY";

/// It starts runs that have to do with those of other nodes.
const STARTS_PARENTS: &str = "MILLRUN_POSTGRES_NODE_STARTS_PARENTS";

/// Not a test of its own: the process that the next ones kill or stop. It tells each run that it has started, and that waits.
#[test]
fn the_node_that_is_killed() {
    let Ok(url) = std::env::var(URL) else { return };
    let hangs_after = std::env::var(HANGS_AFTER).map_or(u64::MAX, |len| len.parse().unwrap());
    let tokio = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    tokio.block_on(async {
        let node = calls::with_tally(mail::with_family(builder(&url, "victim")));
        let node = node.configure(|config| config.hang_max = Duration::from_secs(1));
        let node = node.start().await.unwrap();
        until(&node, |status| is_even(status, 2)).await;
        if std::env::var_os(STARTS_PARENTS).is_some() {
            mail::start_parents(&node).await;
            return std::future::pending().await;
        }
        if std::env::var_os(HOSTS_ONLY).is_some() {
            println!("has joined");
            return std::future::pending().await;
        }
        for number in 0_u64.. {
            if number == hangs_after {
                loop {
                    std::thread::park();
                }
            }
            if let Some(cause) = node.stop_cause() {
                println!("stopped {cause:?}");
                return;
            }
            let id = format!("victim-{number}");
            let is_started = node.start(SUM, id.as_str(), 2).await.is_ok();
            if is_started && node.attach(SUM, &id).unwrap().signal(ADD, 1).await.is_ok() {
                println!("started {id}");
            }
        }
    });
}

/// A process of [`the_node_that_is_killed`], and what it tells.
struct Victim {
    process: std::process::Child,
    lines: tokio::sync::mpsc::UnboundedReceiver<String>,
}

impl Victim {
    fn start(url: &str) -> Self {
        Self::spawn(url, &[])
    }

    /// It only hosts what it is given.
    fn idle(url: &str) -> Self {
        Self::spawn(url, &[(HOSTS_ONLY, "")])
    }

    fn starting_parents(url: &str) -> Self {
        Self::spawn(url, &[(STARTS_PARENTS, "")])
    }

    fn hanging(url: &str, after: u64) -> Self {
        Self::spawn(url, &[(HANGS_AFTER, &after.to_string())])
    }

    fn spawn(url: &str, settings: &[(&str, &str)]) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "cluster::the_node_that_is_killed", "--nocapture"])
            .env(URL, url)
            .envs(settings.iter().copied())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(process.stdout.take().unwrap());
        let (sender, lines) = tokio::sync::mpsc::unbounded_channel();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                sender.send(line).ok();
            }
        });
        Self { process, lines }
    }

    /// The next line behind these words.
    async fn told(&mut self, words: &str) -> String {
        loop {
            let line = self.lines.recv().await.expect("it still runs");
            if let Some((_, rest)) = line.split_once(words) {
                return rest.to_owned();
            }
        }
    }

    /// Why it has stopped, and all runs that it has told of before that.
    async fn stopped(&mut self) -> (String, Vec<String>) {
        let mut started = Vec::new();
        loop {
            let line = self.lines.recv().await.expect("it tells why it stops");
            if let Some((_, id)) = line.split_once("started ") {
                started.push(id.to_owned());
            } else if let Some((_, cause)) = line.split_once("stopped ") {
                return (cause.to_owned(), started);
            }
        }
    }

    async fn started(&mut self, len: usize) -> Vec<String> {
        let mut started = Vec::new();
        while started.len() < len {
            started.push(self.told("started ").await);
        }
        started
    }

    fn signal(&self, name: &str) {
        let id = self.process.id().to_string();
        let sent = Command::new("kill").args([name, &id]).status().unwrap();
        assert!(sent.success());
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Victim {
    /// One that is stopped or hangs would outlive a test that fails.
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// All of these runs, which had one signal, end here with another.
async fn end_all(heir: &Runtime, started: &[String]) {
    until(heir, |status| is_even(status, 1)).await;
    while heir.partitions().owned().len() < 1_024 {
        heir.cluster_looked().await;
    }
    for (number, id) in (0..).zip(started) {
        let run = heir.attach(SUM, id).unwrap();
        run.signal(ADD, number).await.unwrap();
        assert_eq!(run.result().await.unwrap(), 2 * (1 + number), "{id}");
    }
}

/// It is stopped as it writes, for longer than the lease, and goes on when another has its partitions.
#[tokio::test(flavor = "current_thread")]
async fn a_process_that_stood_still_for_a_lease_writes_nothing_when_it_goes_on() {
    let Some(server) = TestServer::shared() else {
        return;
    };
    let url = server.url(&server.schema());
    let heir = joined(&url, "heir").await;
    let mut victim = Victim::start(&url);
    let mut started = victim.started(100).await;
    victim.signal("-STOP");
    until(&heir, |status| is_even(status, 1)).await;
    while let Ok(line) = victim.lines.try_recv() {
        started.extend(line.split_once("started ").map(|(_, id)| id.to_owned()));
    }
    end_all(&heir, &started).await;
    let live = heir.stats().journal.live_runs;
    victim.signal("-CONT");
    let (cause, late) = victim.stopped().await;
    assert!(cause.contains("Fenced"), "{cause}");
    victim.process.wait().unwrap();
    // What it tells only now was acknowledged before it stood still: the other one has had it since, and nothing else has come.
    assert_eq!(heir.stats().journal.live_runs, live);
    assert!(late.iter().all(|id| !started.contains(id)), "{late:?}");
    end_all(&heir, &late).await;
    heir.shutdown().await.unwrap();
}

/// Its journal has threads of its own, and wrote on for ever.
#[tokio::test(flavor = "current_thread")]
async fn a_node_that_hangs_is_replaced_though_its_journal_could_write() {
    let Some(server) = TestServer::shared() else {
        return;
    };
    let url = server.url(&server.schema());
    let heir = joined(&url, "heir").await;
    let mut victim = Victim::hanging(&url, 200);
    let started = victim.started(20).await;
    end_all(&heir, &started).await;
    victim.kill();
    heir.shutdown().await.unwrap();
}

#[tokio::test(flavor = "current_thread")]
async fn the_runs_of_a_node_that_is_killed_go_on_elsewhere() {
    const ROUNDS: usize = 3;
    let Some(server) = TestServer::shared() else {
        return;
    };
    for _ in 0..ROUNDS {
        let url = server.url(&server.schema());
        let heir = joined(&url, "heir").await;
        let mut victim = Victim::start(&url);
        let started = victim.started(100).await;
        victim.kill();
        end_all(&heir, &started).await;
        heir.shutdown().await.unwrap();
    }
}

/// A node `b`, over a way that can be cut, which hears soon that its server is silent.
async fn behind(proxy: &Proxy, schema: &str) -> RuntimeBuilder {
    named_behind(proxy, schema, "b").await
}

async fn named_behind(proxy: &Proxy, schema: &str, name: &str) -> RuntimeBuilder {
    let url = format!("{}&node={name}&connect_timeout=1", proxy.url(schema));
    let opened = tokio::task::spawn_blocking(move || {
        let mut config = PostgresConfig::default();
        config.answer_wait_max = Duration::from_millis(500);
        PostgresJournal::open(&url, config).unwrap()
    });
    Runtime::volatile()
        .journal(Arc::new(opened.await.unwrap()))
        .register(SUM, sum)
        .configure(|config| config.lease = Duration::from_secs(1))
}

/// An attempt waits in the pool of a node that is cut off. It is begun by the node that has its run by then, and not by this one,
/// though there is room for it.
#[tokio::test(flavor = "current_thread")]
async fn a_node_that_cannot_write_begins_no_attempts() {
    let Some(server) = TestServer::shared() else {
        return;
    };
    let schema = server.schema();
    let proxy = Proxy::to(server.port());
    let a = joined(&server.url(&schema), "a").await;
    let (begun, may_end) = (Arc::new(AtomicU32::new(0)), Arc::new(Semaphore::new(0)));
    let has_begun = Arc::new(Semaphore::new(0));
    let (count, end, first) = (Arc::clone(&begun), Arc::clone(&may_end), Arc::clone(&has_begun));
    let held = move |_: ActivityContext, number: u32| {
        let (count, end, first) = (Arc::clone(&count), Arc::clone(&end), Arc::clone(&first));
        async move {
            count.fetch_add(1, Ordering::SeqCst);
            first.add_permits(1);
            drop(end.acquire().await);
            Ok::<_, ActivityError>(2 * number)
        }
    };
    let b = behind(&proxy, &schema).await.register(DOUBLE, held);
    let b = b.configure(|config| config.activities_running_max = 1);
    let b = b.start().await.unwrap();
    until(&b, |status| is_even(status, 2)).await;
    let mine: Vec<_> = ids(1_000).into_iter().filter(|id| owns(&b, id)).take(3).collect();
    for id in &mine {
        b.start(SUM, id.as_str(), 0).await.unwrap();
    }
    drop(has_begun.acquire().await);
    proxy.set(Cut::Swallow);
    // A lease later the other one has ended them.
    until(&a, |status| is_even(status, 1)).await;
    for id in &mine {
        until_it_owns(&a, id).await;
        assert_eq!(a.attach(SUM, id).unwrap().result().await.unwrap(), 0);
    }
    may_end.add_permits(10);
    while b.stats().attempts_running > 0 {
        // Its own looks reach no server.
        a.cluster_looked().await;
    }
    proxy.set(Cut::Never);
    b.stopped().await;
    assert_eq!(begun.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "current_thread")]
async fn a_node_that_was_cut_off_for_a_lease_stops_when_it_is_back() {
    let Some(server) = TestServer::shared() else {
        return;
    };
    let schema = server.schema();
    let proxy = Proxy::to(server.port());
    let a = joined(&server.url(&schema), "a").await;
    let b = behind(&proxy, &schema).await.register(DOUBLE, double);
    let b = b.start().await.unwrap();
    until(&b, |status| is_even(status, 2)).await;
    let mine = ids(1_000).into_iter().find(|id| owns(&b, id)).unwrap();
    let run = b.start(SUM, mine.as_str(), 1).await.unwrap();
    proxy.set(Cut::Swallow);
    until(&a, |status| is_even(status, 1)).await;
    until_it_owns(&a, &mine).await;
    let there = a.attach(SUM, &mine).unwrap();
    there.signal(ADD, 7).await.unwrap();
    assert_eq!(there.result().await.unwrap(), 14);
    proxy.set(Cut::Never);
    let stopped = b.stopped().await;
    assert!(
        matches!(&stopped, StopCause::Journal(failure) if failure.kind() == FailureKind::Fenced),
        "{stopped:?}"
    );
    assert!(run.result().await.is_err(), "it tells nothing that another owns");
}

/// It claimed what others left meanwhile, and left it again in a moment.
#[tokio::test(flavor = "current_thread")]
async fn a_node_that_is_shutting_down_claims_nothing_more() {
    let Some(server) = TestServer::shared() else {
        return;
    };
    let url = server.url(&server.schema());
    let may_end = Arc::new(Semaphore::new(0));
    let (begun, is_begun) = tokio::sync::mpsc::unbounded_channel();
    let (mut is_begun, end) = (is_begun, Arc::clone(&may_end));
    let held = move |_: ActivityContext, number: u32| {
        let (begun, end) = (begun.clone(), Arc::clone(&end));
        async move {
            begun.send(()).ok();
            drop(end.acquire().await);
            Ok::<_, ActivityError>(2 * number)
        }
    };
    let patient = Runtime::open(format!("{url}&node=a"))
        .register(DOUBLE, held)
        .register(SUM, sum);
    let patient = patient.configure(|config| {
        config.lease = Duration::from_secs(1);
        config.shutdown_grace = Duration::from_secs(600);
        config.shutdown_wait_max = Duration::from_secs(601);
    });
    let a = patient.start().await.unwrap();
    let (b, c) = (joined(&url, "b").await, joined(&url, "c").await);
    until(&b, |status| is_even(status, 3)).await;
    let mine = ids(1_000).into_iter().find(|id| owns(&a, id)).unwrap();
    a.start(SUM, mine.as_str(), 0).await.unwrap();
    is_begun.recv().await.unwrap();
    let leaving = tokio::spawn({
        let a = a.clone();
        async move { a.shutdown().await }
    });
    until(&b, |status| status.nodes.first().is_some_and(|a| !a.claims)).await;
    c.shutdown().await.unwrap();
    // What has no attempt under way is given back meanwhile, and nothing else.
    until(&b, |status| shares(status) == [1, 1_023]).await;
    let held = b.cluster().unwrap().nodes[0].partitions.clone();
    assert_eq!(held, [InstanceId::new(&mine).unwrap().partition()]);
    may_end.add_permits(1);
    leaving.await.unwrap().unwrap();
    until(&b, |status| is_even(status, 1)).await;
    b.shutdown().await.unwrap();
}

/// The claim of all was refused, and made again with each look: nothing ran anywhere.
#[tokio::test(flavor = "current_thread")]
async fn a_partition_that_cannot_be_read_keeps_no_other_from_being_claimed() {
    let Some(server) = TestServer::shared() else {
        return;
    };
    let schema = server.schema();
    let url = server.url(&schema);
    joined(&url, "a").await.shutdown().await.unwrap();
    let sql = |sql: String| tokio::task::spawn_blocking(move || server.sql(&sql));
    let damage = format!("INSERT INTO {schema}.live VALUES (5, 'ffffffff-ffff-ffff-ffff-ffffffffffff', 'x')");
    sql(damage).await.unwrap();
    let b = joined(&url, "b").await;
    until(&b, |status| shares(status) == [1_023] && status.free_len == 1).await;
    // Nor does it keep another node from its share.
    let c = joined(&url, "c").await;
    until(&c, |status| shares(status).iter().all(|len| *len >= 511)).await;
    sql(format!("DELETE FROM {schema}.live WHERE part = 5"))
        .await
        .unwrap();
    until(&b, |status| is_even(status, 2)).await;
    b.shutdown().await.unwrap();
    c.shutdown().await.unwrap();
}

/// Each node judged the others by its own lease: the longer one was in vain.
#[tokio::test(flavor = "current_thread")]
async fn a_node_is_given_as_long_as_its_own_lease_says() {
    let Some(server) = TestServer::shared() else {
        return;
    };
    let schema = server.schema();
    let proxy = Proxy::to(server.port());
    let a = joined(&server.url(&schema), "a").await;
    let patient = behind(&proxy, &schema).await.register(DOUBLE, double);
    let b = patient.configure(|config| config.lease = Duration::from_secs(60));
    let b = b.start().await.unwrap();
    let c = named_behind(&proxy, &schema, "c").await.register(DOUBLE, double);
    let c = c.start().await.unwrap();
    until(&a, |status| is_even(status, 3)).await;
    let mine = ids(1_000).into_iter().find(|id| owns(&b, id)).unwrap();
    let run = b.start(SUM, mine.as_str(), 1).await.unwrap();
    proxy.set(Cut::Swallow);
    // The node with a lease of a second is dead, and this one had as little to say.
    until(&a, |status| status.nodes.len() == 2).await;
    assert_eq!(a.cluster().unwrap().nodes[1].name, "b");
    proxy.set(Cut::Never);
    run.signal(ADD, 2).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 4);
    until(&a, |status| is_even(status, 2)).await;
    drop(c);
    assert!(b.stop_cause().is_none());
}

#[tokio::test(flavor = "current_thread")]
async fn a_server_that_is_killed_makes_nobody_dead() {
    let Some(mut server) = TestServer::own() else {
        return;
    };
    let proxy = Proxy::to(server.port());
    let url = proxy.url("s");
    let (a, b) = (joined(&url, "a").await, joined(&url, "b").await);
    until(&a, |status| is_even(status, 2)).await;
    let before = a.cluster().unwrap();
    let id = ids(1_000).into_iter().find(|id| owns(&b, id)).unwrap();
    let run = b.start(SUM, id.as_str(), 1).await.unwrap();
    server.kill();
    // Longer than a lease, in which each of the two looks ten times and tries a connection for each.
    let (sender, is_over) = tokio::sync::oneshot::channel();
    let tried = proxy.connections();
    std::thread::spawn(move || {
        proxy.wait_for_connections(tried + 60);
        server.start();
        sender.send((server, proxy)).ok();
    });
    let _server = is_over.await.unwrap();
    run.signal(ADD, 4).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 8);
    until(&a, |status| is_even(status, 2)).await;
    assert_eq!(a.cluster().unwrap(), before);
    assert_eq!((a.stop_cause().is_none(), b.stop_cause().is_none()), (true, true));
}

#[tokio::test(flavor = "current_thread")]
async fn what_nodes_do_not_keep_yet_is_refused_at_the_start() {
    let Some(server) = TestServer::shared() else {
        return;
    };
    let url = server.url(&server.schema());
    let refused = builder(&url, "a").durable_topic(PLACED).start().await;
    assert!(
        matches!(refused, Err(OpenError::TopicsNotKept { name: "placed" })),
        "{refused:?}"
    );
    let refused = builder(&url, "a")
        .configure(|config| config.lease = Duration::from_millis(999))
        .start()
        .await;
    assert!(
        matches!(refused, Err(OpenError::Config { field: "lease", .. })),
        "{refused:?}"
    );
}
