//! Calls of a program on runs of another node: each is done once, and answered, whichever node has the run, and whoever dies.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use millrun::operating::InstanceStatus;
use millrun::workflow::Unanswered;
use millrun::{
    CommandError, Entity, EntityCommand, EntityContext, EntityState, InstanceId, OnConflict, Query,
    QueryError, ResultError, RunError, Runtime, RuntimeBuilder, Signal, StartError, StartWithSignalError,
    StartWithUpdateError, Update, UpdateError, Workflow, WorkflowContext, WorkflowError,
};
use serde::{Deserialize, Serialize};

use super::{Victim, builder, ids, is_even, owns, until};
use crate::server::TestServer;

const TALLY: Workflow<(), Vec<u64>> = Workflow::named("tally");
const COUNT: Signal<u64> = Signal::named("count");
const PUT: Update<Vec<u64>, u64, u64, WorkflowError> = Update::named("put");
const SEEN: Query<Vec<u64>, (), Vec<u64>> = Query::named("seen");
const OTHER: Workflow<(), ()> = Workflow::named("other");
const TILL: Entity<Till> = Entity::named("till");
const PAY: EntityCommand<Till, u64, u64> = EntityCommand::named("pay");
const SUM_OF: Query<Till, (), u64> = Query::named("sum");

/// A number that ends a tally.
const LAST: u64 = u64::MAX;

#[derive(Default, Serialize, Deserialize)]
struct Till {
    sum: u64,
}

impl EntityState for Till {
    type Event = u64;

    fn begin(_key: &str) -> Self {
        Self::default()
    }

    fn apply(&mut self, cents: u64) {
        self.sum += cents;
    }
}

/// Notes all numbers that come by signals, until the last.
async fn tally(cx: WorkflowContext, (): ()) -> Result<Vec<u64>, WorkflowError> {
    let seen = cx.state(Vec::<u64>::new());
    loop {
        match cx.receive(COUNT).await? {
            LAST => return Ok(seen.read(Clone::clone)),
            number => seen.change(|seen| seen.push(number)),
        }
    }
}

pub(super) fn with_tally(builder: RuntimeBuilder) -> RuntimeBuilder {
    let answering = TALLY.query(SEEN, |seen, ()| seen.clone());
    let answering = answering
        .update(PUT)
        .validate(|_, number| match number {
            13 => Err(WorkflowError::failed("unlucky")),
            _ => Ok(()),
        })
        .change(|seen: &mut Vec<u64>, number| {
            seen.push(number);
            seen.iter().sum()
        });
    let till = TILL
        .command(PAY, |till, cents, cx: &mut EntityContext<'_, Till>| {
            cx.emit(cents);
            Ok(till.sum + cents)
        })
        .query(SUM_OF, |till, ()| till.sum);
    builder.register(answering, tally).entity(till)
}

async fn joined(url: &str, node: &str) -> Runtime {
    with_tally(builder(url, node)).start().await.unwrap()
}

/// Two nodes, of which the second has an even share, and ids of runs that it owns.
async fn two_nodes(url: &str, len: usize) -> (Runtime, Runtime, Vec<String>) {
    let (a, b) = (joined(url, "a").await, joined(url, "b").await);
    for node in [&a, &b] {
        until(node, |status| is_even(status, 2)).await;
    }
    while a.partitions().owned().len() + b.partitions().owned().len() < 1_024 {
        a.cluster_looked().await;
    }
    let of_b = ids(4_000).into_iter().filter(|id| owns(&b, id)).take(len);
    let of_b = of_b.collect();
    (a, b, of_b)
}

#[tokio::test(flavor = "current_thread")]
async fn each_call_reaches_a_run_of_another_node() {
    let Some(server) = TestServer::shared() else {
        return;
    };
    let (a, b, ids) = two_nodes(&server.url(&server.schema()), 4).await;
    let id = &*ids[0];
    let none = a.attach(TALLY, id).unwrap();
    assert!(matches!(none.signal(COUNT, 1).await, Err(RunError::NotFound)));
    assert!(matches!(none.describe().await, Err(RunError::NotFound)));
    // Started, found, and refused.
    let run = a.start(TALLY, id, ()).await.unwrap();
    let first = run.run_id().unwrap();
    assert_eq!(b.attach(TALLY, id).unwrap().describe().await.unwrap().run, first);
    assert_eq!(a.start(TALLY, id, ()).await.unwrap().run_id(), Some(first));
    let refused = a.start(TALLY, id, ()).on_conflict(OnConflict::Refuse).await;
    assert!(
        matches!(&refused, Err(StartError::AlreadyRunning { run: of }) if *of == first),
        "{refused:?}"
    );
    let other = a.start(OTHER, id, ()).await;
    assert!(
        matches!(&other, Err(StartError::OtherWorkflow { .. })),
        "{other:?}"
    );
    let other = a.attach(OTHER, id).unwrap().cancel("no").await;
    assert!(matches!(&other, Err(RunError::OtherWorkflow { .. })), "{other:?}");
    // Signals, updates and queries.
    run.signal(COUNT, 1).await.unwrap();
    run.signal_as(COUNT, "once", 2).await.unwrap();
    run.signal_as(COUNT, "once", 2).await.unwrap();
    assert_eq!(run.update(PUT, 3).await.unwrap(), 6);
    assert_eq!(run.update_as(PUT, "u", 4).await.unwrap(), 10);
    assert_eq!(run.update_as(PUT, "u", 4).await.unwrap(), 10);
    let rejected = run.update(PUT, 13).await.unwrap_err();
    assert!(
        matches!(&rejected, UpdateError::Rejected(why) if why.to_string() == "unlucky"),
        "{rejected:?}"
    );
    assert_eq!(run.query(SEEN, ()).await.unwrap(), [1, 2, 3, 4]);
    let unknown = run.query(Query::<Vec<u64>, (), u64>::named("nothing"), ()).await;
    assert!(
        matches!(&unknown, Err(QueryError::Unanswered(Unanswered::Unknown { name })) if name == "nothing"),
        "{unknown:?}"
    );
    let described = run.describe().await.unwrap();
    assert_eq!(
        (described.status, &*described.workflow),
        (InstanceStatus::Running, "tally")
    );
    // Paused, and resumed.
    run.pause("later").await.unwrap();
    assert_eq!(run.describe().await.unwrap().status, InstanceStatus::Parked);
    run.signal(COUNT, 5).await.unwrap();
    run.resume().await.unwrap();
    // Its result, asked for before and behind its end.
    let waiting = a.attach(TALLY, id).unwrap();
    let (result, ()) = tokio::join!(waiting.result(), async { run.signal(COUNT, LAST).await.unwrap() });
    assert_eq!(result.unwrap(), [1, 2, 3, 4, 5]);
    assert_eq!(run.result().await.unwrap(), [1, 2, 3, 4, 5]);
    assert_eq!(run.query(SEEN, ()).await.unwrap(), [1, 2, 3, 4, 5]);
    assert!(matches!(run.signal(COUNT, 6).await, Err(RunError::Finished)));
    // In the place of one that has ended.
    let next = a.start(TALLY, id, ()).only_after(first).await.unwrap();
    assert_ne!(next.run_id(), Some(first));
    next.terminate("enough").await.unwrap();
    let ended = next.result().await.unwrap_err();
    assert!(
        matches!(&ended, ResultError::Terminated { reason } if reason == "enough"),
        "{ended:?}"
    );
    let cancelled = a.start(TALLY, &ids[1], ()).await.unwrap();
    cancelled.cancel("changed my mind").await.unwrap();
    assert!(matches!(cancelled.result().await, Err(ResultError::Cancelled(_))));
    // Begun with a signal, and with an update; told when it goes on.
    let id = &*ids[2];
    let begun = a.start(TALLY, id, ()).with_signal(COUNT, 7).await.unwrap();
    let again = a.start(TALLY, id, ()).with_signal(COUNT, 8).await.unwrap();
    assert_eq!(begun.run_id(), again.run_id());
    let enough = begun.until(SEEN, (), |seen| seen.len() == 3);
    let (seen, ()) = tokio::join!(enough, async {
        while begun.query(SEEN, ()).await.unwrap().len() < 2 {}
        begun.signal(COUNT, 9).await.unwrap();
    });
    assert_eq!(seen.unwrap(), [7, 8, 9]);
    begun
        .until_described(|described| described.sequence.get() > 1)
        .await
        .unwrap();
    let (updated, sum) = a.start(TALLY, id, ()).with_update(PUT, 10).await.unwrap();
    assert_eq!((updated.run_id(), sum), (begun.run_id(), 34));
    let id = &*ids[3];
    let refused = a.start(TALLY, id, ()).with_update(PUT, 13).await.unwrap_err();
    assert!(
        matches!(&refused, StartWithUpdateError::Update(UpdateError::Rejected(_))),
        "{refused:?}"
    );
    assert!(matches!(
        a.attach(TALLY, id).unwrap().describe().await,
        Err(RunError::NotFound)
    ));
    let (_, sum) = a.start(TALLY, id, ()).with_update(PUT, 3).await.unwrap();
    assert_eq!(sum, 3);
    let other = a.start(OTHER, id, ()).with_signal(COUNT, 1).await;
    assert!(matches!(&other, Err(StartWithSignalError::Start(_))), "{other:?}");
    // Entities.
    let keys = (0..).map(|number| format!("k{number}"));
    let mut keys = keys.filter(|key| owns(&b, &format!("till/{key}")));
    let till = a.entity(TILL, &keys.next().unwrap());
    assert_eq!(till.call(PAY, 5).await.unwrap(), 5);
    assert_eq!(till.call(PAY, 6).request("r").await.unwrap(), 11);
    assert_eq!(till.call(PAY, 6).request("r").await.unwrap(), 11);
    assert_eq!(till.read(SUM_OF, ()).await.unwrap(), 11);
    till.delete().await.unwrap();
    let unknown = till
        .call(EntityCommand::<Till, u64, u64>::named("nothing"), 5)
        .await;
    assert!(matches!(&unknown, Err(CommandError::Run(_))), "{unknown:?}");
    for node in [a, b] {
        assert_eq!(node.cluster().unwrap().mail_set_aside_len, 0);
        node.shutdown().await.unwrap();
    }
}

/// What waits for an answer of a node that leaves is asked of the next one.
#[tokio::test(flavor = "current_thread")]
async fn who_waits_for_a_result_is_told_wherever_the_run_ends() {
    let Some(server) = TestServer::shared() else {
        return;
    };
    let url = server.url(&server.schema());
    let (a, b, ids) = two_nodes(&url, 3).await;
    let runs = join_all(ids.iter().map(async |id| a.start(TALLY, id, ()).await.unwrap())).await;
    let waiting = join_all(runs.iter().map(async |run| run.result().await.unwrap()));
    let (results, ()) = tokio::join!(waiting, async {
        for run in &runs {
            run.signal(COUNT, 1).await.unwrap();
        }
        b.shutdown().await.unwrap();
        let c = joined(&url, "c").await;
        until(&a, |status| is_even(status, 2)).await;
        for run in &runs {
            run.signal(COUNT, LAST).await.unwrap();
        }
        until(&a, |_| true).await;
        drop(c);
    });
    assert_eq!(results, [[1], [1], [1]]);
    a.shutdown().await.unwrap();
}

/// Regression: a caller was told that a shard had failed, when the partition of its run had moved several times within a minute.
#[tokio::test(flavor = "current_thread")]
async fn who_waits_for_a_result_is_not_told_of_moves_however_many_there_are() {
    const MOVES: usize = 12;
    let Some(server) = TestServer::shared() else {
        return;
    };
    let url = server.url(&server.schema());
    let claims_nothing = |node| {
        let builder = builder(&url, node).register(TALLY, tally);
        builder.configure(|config| config.claimed_at_open = Some(Vec::new()))
    };
    let owners = [
        claims_nothing("a").start().await.unwrap(),
        claims_nothing("b").start().await.unwrap(),
    ];
    let caller = claims_nothing("caller").start().await.unwrap();
    let partition = [InstanceId::new("waits").unwrap().partition()];
    owners[0].partitions().claim(&partition).await.unwrap();
    let run = caller.start(TALLY, "waits", ()).await.unwrap();
    let (result, ()) = tokio::join!(run.result(), async {
        for number in 0..MOVES {
            // To the other one and back, and then to the one that had it.
            let [from, to] = [number / 3, number.div_ceil(3)].map(|at| &owners[at % 2]);
            from.partitions().release(&partition);
            while to.partitions().claim(&partition).await.is_err() {
                to.cluster_looked().await;
            }
            // It goes the way that the question of the result has to go.
            run.describe().await.unwrap();
        }
        run.signal(COUNT, LAST).await.unwrap();
    });
    assert!(result.unwrap().is_empty());
    for node in owners.into_iter().chain([caller]) {
        node.shutdown().await.unwrap();
    }
}

/// A node is killed while another asks it for much: each start and each signal is done once, and answered.
#[tokio::test(flavor = "current_thread")]
async fn what_is_asked_of_a_node_that_is_killed_is_done_once() {
    const SIGNALS: usize = 40;
    let Some(server) = TestServer::shared() else {
        return;
    };
    for round in 0..3_u64 {
        let url = server.url(&server.schema());
        let heir = joined(&url, "heir").await;
        let mut victim = Victim::idle(&url);
        until(&heir, |status| is_even(status, 2)).await;
        victim.told("has joined").await;
        let theirs = ids(4_000).into_iter().filter(|id| !owns(&heir, id));
        let theirs: Vec<_> = theirs.take(SIGNALS).collect();
        let tally = heir.start(TALLY, &theirs[0], ()).await.unwrap();
        let start = async |id: &String| {
            // A start that is done twice finds the first one, and is refused.
            let started = heir.start(TALLY, id, ()).on_conflict(OnConflict::Refuse).await;
            started.unwrap_or_else(|error| panic!("{id}: {error:?}"));
        };
        let signal = async |number: u64| tally.signal(COUNT, number).await.unwrap();
        let kill = async {
            // As soon as some were answered.
            while tally.query(SEEN, ()).await.unwrap().len() as u64 <= round * 3 {
                tokio::task::yield_now().await;
            }
            victim.kill();
        };
        let signals = async {
            for numbers in (0..SIGNALS as u64).collect::<Vec<_>>().chunks(5) {
                join_all(numbers.iter().map(|number| signal(*number))).await;
            }
        };
        tokio::join!(join_all(theirs[1..].iter().map(start)), signals, kill);
        tally.signal(COUNT, LAST).await.unwrap();
        let seen = tally.result().await.unwrap();
        let once: BTreeSet<_> = seen.iter().copied().collect();
        assert_eq!((once.len(), seen.len()), (SIGNALS, SIGNALS), "{seen:?}");
        for id in &theirs[1..] {
            let status = heir.attach(TALLY, id).unwrap().describe().await.unwrap().status;
            assert_eq!(status, InstanceStatus::Running);
        }
        heir.shutdown().await.unwrap();
    }
}
