//! A primary and its standby, both named in the URL: what becomes of the program when one takes the place of the other.
//!
//! ```text
//!   two nodes ──► primary ── synchronous ──► standby          killed, promoted, and the next standby begins:
//!                 standby ◄── synchronous ── primary          round after round
//! ```

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use millrun::store::FailureKind;
use millrun::{
    Activity, ActivityContext, ActivityError, Runtime, RuntimeBuilder, StopCause, Workflow, WorkflowContext,
    WorkflowError,
};

use tokio::task::JoinSet;

use super::{is_even, until};
use crate::server::TestServer;

const DOUBLE: Activity<u32, u32> = Activity::named("double");
const TWICE: Workflow<u32, u32> = Workflow::named("twice");
/// How often the primary is killed.
const ROUNDS: &str = "MILLRUN_POSTGRES_FAILOVERS";
/// How many runs end before the primary is killed again.
const RUNS_OF_A_ROUND: u32 = 60;
const CALLERS: u32 = 8;

/// How often the activity was performed for each number.
type Performed = Arc<Mutex<HashMap<u32, u32>>>;

async fn twice(cx: WorkflowContext, number: u32) -> Result<u32, WorkflowError> {
    cx.sleep(Duration::from_millis(1)).await?;
    Ok(cx.call(DOUBLE, number).await?)
}

fn builder(url: &str, performed: &Performed) -> RuntimeBuilder {
    let performed = Arc::clone(performed);
    let double = move |_: ActivityContext, number: u32| {
        let performed = Arc::clone(&performed);
        async move {
            *performed.lock().unwrap().entry(number).or_default() += 1;
            Ok::<_, ActivityError>(2 * number)
        }
    };
    Runtime::open(url).register(DOUBLE, double).register(TWICE, twice)
}

/// Waits until no flush is acknowledged that the standby does not have.
fn until_synchronous(primary: &TestServer) {
    primary.alter("synchronous_standby_names", "*");
    let is_synchronous = || {
        let states = primary.sql("SELECT sync_state FROM pg_stat_replication");
        states.iter().any(|row| row[0].as_deref() == Some("sync"))
    };
    while !is_synchronous() {
        std::thread::yield_now();
    }
}

/// What the primary writes from here on its standby does not have.
fn leave_behind(primary: &TestServer, standby: &TestServer) {
    standby.alter("primary_conninfo", "");
    while !primary.sql("SELECT 1 FROM pg_stat_replication").is_empty() {
        std::thread::yield_now();
    }
}

fn tokio() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

async fn has(runtime: &Runtime, id: &str) -> bool {
    runtime.attach(TWICE, id).unwrap().describe().await.is_ok()
}

/// Starts a run, and waits until it has ended.
async fn ended(runtime: &Runtime, id: &str) {
    let run = runtime.start(TWICE, id, 1).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 2);
}

/// A run is started after a promotion that has lost something: the runtime has stopped.
async fn rolled_back(runtime: &Runtime) {
    let told = match runtime.start(TWICE, "too late", 1).await {
        Ok(run) => run.result().await.unwrap_err().to_string(),
        Err(error) => error.to_string(),
    };
    assert!(told.contains("not where it was left"), "{told}");
    let StopCause::Journal(failure) = runtime.stopped().await else {
        panic!("{:?}", runtime.stop_cause())
    };
    assert_eq!(failure.kind(), FailureKind::RolledBack, "{failure}");
}

/// Two nodes start runs while their primary is killed and its standby promoted, round after round.
#[test]
fn what_was_acknowledged_is_there_when_a_synchronous_standby_is_promoted() {
    let Some(mut primary) = TestServer::own() else {
        return;
    };
    let asked = std::env::var(ROUNDS);
    let rounds: u32 = asked.map_or(2, |rounds| rounds.parse().unwrap());
    let mut standby = primary.standby();
    let url = primary.url_of_both(&standby, "promoted");
    let tokio = tokio();
    let performed = Performed::default();
    let nodes: Vec<_> = ["one", "two"]
        .map(|node| {
            let builder = builder(&format!("{url}&node={node}"), &performed);
            tokio.block_on(builder.start()).unwrap()
        })
        .into();
    // A partition that moves may leave its callers without an answer.
    tokio.block_on(async {
        for node in &nodes {
            until(node, |status| is_even(status, 2)).await;
        }
        let owned = || nodes.iter().map(|node| node.partitions().owned().len());
        while owned().sum::<usize>() < 1_024 {
            nodes[0].cluster_looked().await;
        }
    });
    let (stop, next, ended) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU32::new(0)),
        Arc::new(AtomicU32::new(0)),
    );
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let runtime = nodes[usize::from(caller % 2 == 1)].clone();
            let (stop, next, ended) = (Arc::clone(&stop), Arc::clone(&next), Arc::clone(&ended));
            tokio.spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let run = runtime
                        .start(TWICE, &format!("run-{number}"), number)
                        .await
                        .unwrap();
                    assert_eq!(run.result().await.unwrap(), 2 * number);
                    ended.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let until_ended = |count: u32| {
        while ended.load(Ordering::Relaxed) < count {
            let causes = nodes.iter().find_map(Runtime::stop_cause);
            assert!(causes.is_none(), "{causes:?}");
            assert!(
                callers.iter().all(|caller| !caller.is_finished()),
                "a caller was told"
            );
            std::thread::yield_now();
        }
    };
    let mut longest = Duration::ZERO;
    for _ in 0..rounds {
        until_synchronous(&primary);
        until_ended(ended.load(Ordering::Relaxed) + RUNS_OF_A_ROUND);
        primary.kill();
        let before = ended.load(Ordering::Relaxed);
        standby.promote();
        let accepts = Instant::now();
        until_ended(before + CALLERS + 1);
        longest = longest.max(accepts.elapsed());
        primary.follow(&standby);
        std::mem::swap(&mut primary, &mut standby);
    }
    stop.store(true, Ordering::Relaxed);
    for caller in callers {
        tokio.block_on(caller).unwrap();
    }
    eprintln!("{rounds} promotions; runs ended {longest:?} after one at most");
    for node in nodes {
        tokio.block_on(node.shutdown()).unwrap();
    }
    let started = next.load(Ordering::Relaxed);
    tokio.block_on(async {
        let runtime = builder(&url, &performed).start().await.unwrap();
        let mut asked: JoinSet<()> = (0..started)
            .map(|number| {
                let run = runtime.attach(TWICE, &format!("run-{number}")).unwrap();
                async move { assert_eq!(run.result().await.unwrap(), 2 * number) }
            })
            .collect();
        while let Some(answer) = asked.join_next().await {
            answer.unwrap();
        }
        runtime.shutdown().await.unwrap();
    });
    let finished = primary.sql("SELECT count(*) FROM promoted.finished");
    assert_eq!(finished[0][0], Some(started.to_string()), "each is there once");
    let performed = performed.lock().unwrap();
    assert_eq!(performed.len(), usize::try_from(started).unwrap());
    let repeated: Vec<_> = performed.iter().filter(|(_, count)| **count > 1).collect();
    assert!(repeated.is_empty(), "performed more than once: {repeated:?}");
}

/// A standby that was behind lacks what was acknowledged. What was promoted is consistent, and opens as of that moment.
#[test]
fn a_standby_that_was_behind_and_is_promoted_stops_the_program() {
    let Some(mut primary) = TestServer::own() else {
        return;
    };
    let standby = primary.standby();
    let url = primary.url_of_both(&standby, "behind");
    let (tokio, performed) = (tokio(), Performed::default());
    let runtime = tokio.block_on(async {
        let runtime = builder(&url, &performed).start().await.unwrap();
        ended(&runtime, "early").await;
        runtime
    });
    leave_behind(&primary, &standby);
    tokio.block_on(ended(&runtime, "late"));
    primary.kill();
    standby.promote();
    tokio.block_on(async {
        rolled_back(&runtime).await;
        drop(runtime);
        let runtime = builder(&url, &performed).start().await.unwrap();
        assert!(has(&runtime, "early").await);
        assert!(!has(&runtime, "late").await);
        assert!(!has(&runtime, "too late").await);
        runtime.shutdown().await.unwrap();
    });
}

/// The former primary comes back as a server that takes writes, and the one that has taken its place is gone: the program does
/// not go on in the past.
#[test]
fn a_former_primary_that_is_started_again_is_not_taken_for_the_present_one() {
    let Some(mut primary) = TestServer::own() else {
        return;
    };
    let mut standby = primary.standby();
    let url = primary.url_of_both(&standby, "former");
    let tokio = tokio();
    let runtime = tokio
        .block_on(builder(&url, &Performed::default()).start())
        .unwrap();
    until_synchronous(&primary);
    tokio.block_on(ended(&runtime, "early"));
    primary.kill();
    standby.promote();
    tokio.block_on(ended(&runtime, "late"));
    // It would take writes by itself.
    primary.put("postgresql.auto.conf", "");
    primary.start();
    standby.kill();
    tokio.block_on(rolled_back(&runtime));
}
