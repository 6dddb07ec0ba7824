//! Partitions that move between two runtimes over one journal: nothing acknowledged is lost, no former owner answers,
//! and each run ends once, with the right result. In some seeds what is queued becomes durable later, in some shards are
//! killed.
//!
//! More seeds, with 1,024 callers: `just moving SEEDS`.

mod relatives;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use millrun::host::Host;
use millrun::store::{ClaimRefused, Journal, JournalConfig, MemoryJournal, Partition, Reads};
use millrun::{
    Activity, ActivityContext, ActivityError, ClaimError, InstanceId, OpenError, Query, QueryError,
    ResultError, RunError, Runtime, RuntimeBuilder, RuntimeConfig, StartError, StopCause, Update,
    UpdateError, Workflow, WorkflowContext, WorkflowError,
};
use millrun_testkit::{SimConfig, SimHost};

use crate::support::{DOUBLE, QUADRUPLE, Store, double, quadruple};

/// How often partitions move.
const PAUSE: Duration = Duration::from_millis(50);

/// Simulated time in which all calls of a play end by far.
const STUCK_AFTER: Duration = Duration::from_secs(600);

/// How many updates each caller sends to its run.
const UPDATES_LEN: u64 = 4;

const STEP: Activity<u64, u64> = Activity::named("step");
const SUMS: Workflow<u64, u64> = Workflow::named("sums");
const ADD: Update<Vec<u64>, u64, usize> = Update::named("add");
const ADDED: Query<Vec<u64>, (), Vec<u64>> = Query::named("added");

async fn step(_cx: ActivityContext, number: u64) -> Result<u64, ActivityError> {
    Ok(number + 1)
}

/// Waits for as many updates as it is told, with steps and timers in between.
async fn sums(cx: WorkflowContext, len: u64) -> Result<u64, WorkflowError> {
    let added = cx.state(Vec::<u64>::new());
    let mut steps = 0;
    for count in 1..=len {
        added.until(|added| added.len() as u64 >= count).await?;
        steps += cx.call(STEP, count).await?;
        cx.sleep(Duration::from_millis(7)).await?;
    }
    Ok(added.read(|added| added.iter().sum::<u64>()) + steps)
}

fn memory() -> Arc<dyn Journal> {
    Arc::new(MemoryJournal::new(JournalConfig::default()).unwrap())
}

fn all() -> Vec<Partition> {
    (0..Partition::COUNT).filter_map(Partition::from_index).collect()
}

fn owns_none(config: &mut RuntimeConfig) {
    config.claimed_at_open = Some(Vec::new());
}

#[tokio::test]
async fn a_runtime_that_hosts_no_instances_claims_none_and_needs_others_that_do() {
    let journal = memory();
    let open = || Runtime::volatile().journal(Arc::clone(&journal));
    let host = open().start().await.unwrap();
    let client = open().hosts_instances(false).start().await.unwrap();
    assert_eq!(
        (host.partitions().owned(), client.partitions().owned()),
        (all(), vec![])
    );
    let alone = Runtime::volatile().hosts_instances(false).start().await;
    assert!(
        matches!(
            alone,
            Err(OpenError::Config {
                field: "hosts_instances",
                ..
            })
        ),
        "{alone:?}"
    );
    let some = open().hosts_instances(false);
    let some = some.configure(|config| config.claimed_at_open = Some(all()));
    let some = some.start().await;
    assert!(
        matches!(
            some,
            Err(OpenError::Config {
                field: "claimed_at_open",
                ..
            })
        ),
        "{some:?}"
    );
    let store = Store::new();
    let file = store.bare().hosts_instances(false).start().await;
    assert!(
        matches!(
            file,
            Err(OpenError::Config {
                field: "hosts_instances",
                ..
            })
        ),
        "{file:?}"
    );
}

/// A loss ended the whole runtime. And the news of a claim woke no shard if the part that had opened the journal left
/// late: it disconnected the bell that the shards had been connected to meanwhile, and the taker waited for ever.
#[tokio::test]
async fn a_caller_whose_partition_is_taken_is_told_so_and_the_run_goes_on_at_the_taker() {
    let journal = memory();
    let open = || {
        Runtime::volatile()
            .journal(Arc::clone(&journal))
            .register(QUADRUPLE, quadruple)
    };
    let loser = open().start().await.unwrap();
    let taker = open()
        .register(DOUBLE, double)
        .configure(owns_none)
        .start()
        .await
        .unwrap();
    assert!(taker.partitions().owned().is_empty());
    let early = taker.start(QUADRUPLE, "early", 1).await.unwrap_err();
    assert!(
        matches!(&early, StartError::Moved { .. }) && early.is_retryable(),
        "{early:?}"
    );
    // Its activity is registered at the taker only, so these wait.
    let (moves, stays) = ("moves", "stays");
    let partition_of = |id: &str| id.parse::<InstanceId>().unwrap().partition();
    assert_ne!(partition_of(moves), partition_of(stays));
    let moved = loser.start(QUADRUPLE, moves, 3).await.unwrap();
    let stayed = loser.start(QUADRUPLE, stays, 4).await.unwrap();
    let waiting = tokio::spawn(async move { moved.result().await });
    assert_eq!(loser.stats().live, 2);
    let partition = partition_of(moves);
    // Whose it is may not be claimed.
    let refused = taker.partitions().claim(&[partition]).await.unwrap_err();
    assert!(
        matches!(&refused, ClaimError::Refused(ClaimRefused::Owned { .. })),
        "{refused:?}"
    );
    assert_eq!(taker.partitions().take(&[partition]).await.unwrap(), [partition]);
    assert_eq!(taker.partitions().owned(), [partition]);
    let error = waiting.await.unwrap().unwrap_err();
    let is_moved =
        |error: &RunError| matches!(error, RunError::Moved { partition: of, .. } if *of == partition);
    assert!(
        matches!(&error, ResultError::Run(error) if is_moved(error)),
        "{error:?}"
    );
    assert!(is_moved(
        &loser
            .attach(QUADRUPLE, moves)
            .unwrap()
            .cancel("late")
            .await
            .unwrap_err()
    ));
    let run = taker.attach(QUADRUPLE, moves).unwrap();
    assert_eq!(run.result().await.unwrap(), 12);
    // What the loser still has goes on there, also in a shard that is restarted; it takes nothing back.
    loser.kill("shard 0").unwrap();
    while stayed.describe().await.is_err() {}
    assert_eq!(loser.stats().live, 1);
    assert!(loser.stop_cause().is_none());
    assert_eq!(
        loser.partitions().owned().len(),
        usize::from(Partition::COUNT) - 1
    );
    assert!(is_moved(
        &loser
            .attach(QUADRUPLE, moves)
            .unwrap()
            .describe()
            .await
            .unwrap_err()
    ));
    // Given back, it can be claimed.
    taker.partitions().release(&[partition]);
    assert!(is_moved(
        &run.result()
            .await
            .map_err(|error| match error {
                ResultError::Run(error) => error,
                other => panic!("{other:?}"),
            })
            .unwrap_err()
    ));
    assert_eq!(loser.partitions().claim(&[partition]).await.unwrap(), [partition]);
    assert_eq!(
        loser.attach(QUADRUPLE, moves).unwrap().result().await.unwrap(),
        12
    );
    // The journal is closed with the first of its runtimes that is shut down.
    drop(taker);
    loser.shutdown().await.unwrap();
}

/// How a call to one of the runtimes went.
enum Told<T> {
    Answer(T),
    /// The partition is not there; or it was, and what came of the call is not known.
    Moved,
}

fn told<T>(answer: Result<T, RunError>) -> Told<T> {
    match answer {
        Ok(answer) => Told::Answer(answer),
        Err(RunError::Moved { .. }) => Told::Moved,
        // Its shard was killed with the call in its hand.
        Err(RunError::Stopped(StopCause::Part { .. })) => Told::Moved,
        Err(error) => panic!("{error:?}"),
    }
}

/// Two runtimes, and a caller that looks for the owner of its run.
#[derive(Clone)]
struct World {
    runtimes: [Runtime; 2],
    host: Arc<dyn Host>,
}

impl World {
    /// Asks one of the runtimes, and the other when the partition is not there, until there is an answer.
    async fn ask<T>(&self, call: impl AsyncFn(&Runtime) -> Told<T>) -> T {
        let mut first = usize::try_from(self.host.random() % 2).unwrap();
        loop {
            if let Told::Answer(answer) = call(&self.runtimes[first]).await {
                return answer;
            }
            first = 1 - first;
            // Nobody may have it for the moment.
            self.host
                .sleep_until(self.host.now() + Duration::from_millis(1))
                .await;
        }
    }

    /// Starts a run, adds to it, and looks after each addition whether all that was acknowledged is there.
    async fn call(self, number: u64) {
        let id = format!("sums-{number}");
        self.ask(
            async |runtime| match runtime.start(SUMS, &id, UPDATES_LEN).await {
                Ok(_) => Told::Answer(()),
                Err(StartError::Moved { .. } | StartError::Stopped(StopCause::Part { .. })) => Told::Moved,
                Err(error) => panic!("{error:?}"),
            },
        )
        .await;
        for count in 1..=UPDATES_LEN {
            let len = self
                .ask(async |runtime| {
                    let run = runtime.attach(SUMS, &id).unwrap();
                    match run.update_as(ADD, &count.to_string(), number + count).await {
                        Ok(len) => Told::Answer(len),
                        Err(UpdateError::Run(error)) => told(Err(error)),
                        Err(error) => panic!("{error:?}"),
                    }
                })
                .await;
            assert_eq!(len as u64, count, "{id}");
            let added = self
                .ask(
                    async |runtime| match runtime.attach(SUMS, &id).unwrap().query(ADDED, ()).await {
                        Ok(added) => Told::Answer(added),
                        Err(QueryError::Run(error)) => told(Err(error)),
                        Err(error) => panic!("{error:?}"),
                    },
                )
                .await;
            let all: Vec<_> = (1..=count).map(|count| number + count).collect();
            assert_eq!(added, all, "{id}: a former owner has answered");
        }
        let result = self
            .ask(
                async |runtime| match runtime.attach(SUMS, &id).unwrap().result().await {
                    Ok(result) => Told::Answer(result),
                    Err(ResultError::Run(error)) => told(Err(error)),
                    Err(error) => panic!("{error:?}"),
                },
            )
            .await;
        let steps: u64 = (1..=UPDATES_LEN).map(|count| count + 1).sum();
        let added: u64 = (1..=UPDATES_LEN).map(|count| number + count).sum();
        assert_eq!(result, steps + added, "{id}");
    }

    /// Moves a third of the partitions, some taken and some given back, and kills a shard now and then, until the callers
    /// are through.
    async fn shuffle(self, has_kills: bool, is_over: Arc<AtomicBool>) {
        let stuck_at = self.host.now() + STUCK_AFTER;
        while !is_over.load(Ordering::Relaxed) {
            self.host.sleep_until(self.host.now() + PAUSE).await;
            assert!(self.host.now() < stuck_at, "somebody waits for ever");
            let to = usize::try_from(self.host.random() % 2).unwrap();
            let (from, to) = (&self.runtimes[1 - to], &self.runtimes[to]);
            for runtime in [from, to] {
                if has_kills && self.host.random().is_multiple_of(3) {
                    // One that is being restarted cannot be killed.
                    drop(runtime.kill("shard 0"));
                }
            }
            let moving = from.partitions().owned();
            let moving: Vec<_> = moving
                .into_iter()
                .filter(|_| self.host.random().is_multiple_of(3))
                .collect();
            let taken = if self.host.random().is_multiple_of(2) {
                from.partitions().release(&moving);
                to.partitions().claim(&moving).await
            } else {
                to.partitions().take(&moving).await
            };
            assert_eq!(taken.unwrap(), moving);
        }
    }
}

/// What a seed is about.
struct Play {
    seed: u64,
    callers: u64,
    shards_len: usize,
    /// Whether what is queued becomes durable later.
    is_held: bool,
    /// Whether shards are killed.
    has_kills: bool,
}

impl Play {
    fn of(seed: u64, callers: u64) -> Self {
        Self {
            seed,
            callers,
            shards_len: if seed.is_multiple_of(2) { 1 } else { 3 },
            is_held: seed % 4 >= 2,
            has_kills: seed % 8 >= 4,
        }
    }

    /// Two runtimes with this code, one of which owns everything in the beginning, and the calls of a program, while
    /// partitions move between them.
    fn run(self, code: impl Fn(RuntimeBuilder) -> RuntimeBuilder, calls: impl AsyncFn(&World)) {
        let sim = SimHost::new(SimConfig::seeded(self.seed));
        let host = sim.host();
        let journal = Arc::new(match self.is_held {
            true => MemoryJournal::held(JournalConfig::default()).unwrap(),
            false => MemoryJournal::new(JournalConfig::default()).unwrap(),
        });
        let open = |owns: fn(&mut RuntimeConfig)| {
            let journal = Arc::clone(&journal) as Arc<dyn Journal>;
            let builder = Runtime::volatile().host(sim.host()).journal(journal);
            code(builder).configure(owns).configure(|config| {
                config.shards_len = self.shards_len;
                // Runs are unloaded, and read again, as partitions move.
                config.hot_len_max = usize::try_from(self.callers / 4).unwrap();
                config.restarts_max = u32::MAX;
            })
        };
        let is_over = Arc::new(AtomicBool::new(false));
        let committer = committer(Arc::clone(&host), Arc::clone(&journal), Arc::clone(&is_over));
        let _committer = host.spawn("committer", Box::pin(committer));
        let script = async {
            let there = World {
                runtimes: [
                    open(|_| {}).start().await.unwrap(),
                    open(owns_none).start().await.unwrap(),
                ],
                host: Arc::clone(&host),
            };
            let has_called = Arc::new(AtomicBool::new(false));
            let calls = async {
                calls(&there).await;
                has_called.store(true, Ordering::Relaxed);
            };
            let moves = there.clone().shuffle(self.has_kills, Arc::clone(&has_called));
            futures_util::join!(calls, moves);
            // The last loss may not have been heard of, and the last shard that was killed not be back.
            host.sleep_until(host.now() + PAUSE).await;
            self.check(&there, journal.as_ref());
            // Whose journal is closed has nothing left to do.
            there.runtimes[0].shutdown().await.unwrap();
            is_over.store(true, Ordering::Relaxed);
        };
        sim.block_on(script).unwrap();
    }

    fn check(&self, there: &World, journal: &MemoryJournal) {
        let mut ended: BTreeMap<String, usize> = BTreeMap::new();
        for run in journal.list_finished(None, usize::MAX).unwrap() {
            *ended.entry(run.id.to_string()).or_default() += 1;
        }
        assert!(
            ended.values().all(|len| *len == 1),
            "a run has ended twice: {ended:?}"
        );
        let owned = there
            .runtimes
            .each_ref()
            .map(|runtime| runtime.partitions().owned());
        let distinct: BTreeSet<_> = owned.iter().flatten().collect();
        assert_eq!((distinct.len(), owned.concat().len()), (all().len(), all().len()));
        for runtime in &there.runtimes {
            assert!(runtime.stop_cause().is_none());
            let restarts = runtime.parts().iter().map(|part| part.restarts).sum::<u32>();
            assert!(self.has_kills || restarts == 0, "a loss is no failure");
            let stats = runtime.stats();
            assert_eq!((stats.live, stats.parked), (0, 0), "{stats:?}");
        }
    }
}

/// Makes durable what is queued, every few milliseconds.
async fn committer(host: Arc<dyn Host>, journal: Arc<MemoryJournal>, is_over: Arc<AtomicBool>) {
    while !is_over.load(Ordering::Relaxed) {
        host.sleep_until(host.now() + Duration::from_millis(3)).await;
        journal.commit();
    }
}

/// Seeds and callers: the variable `MILLRUN_MOVING_SEEDS` is `500`, or `1000+500` for those from the thousandth on;
/// with it there are 1,024 callers.
fn asked() -> impl Iterator<Item = Play> {
    let (first, len, callers) = match std::env::var("MILLRUN_MOVING_SEEDS") {
        Err(_) => (1, 8, 64),
        Ok(asked) => {
            let (first, len) = asked.split_once('+').unwrap_or(("1", &asked));
            let [first, len] = [first, len].map(|number| number.parse::<u64>().expect("a number of seeds"));
            (first, len, 1_024)
        }
    };
    (first..first + len).map(move |seed| {
        println!("seed {seed}");
        Play::of(seed, callers)
    })
}

#[test]
fn partitions_that_move_between_two_runtimes_lose_nothing_and_no_former_owner_answers() {
    let add = |added: &mut Vec<u64>, value: u64| {
        added.push(value);
        added.len()
    };
    for play in asked() {
        let callers = play.callers;
        let code = |builder: RuntimeBuilder| {
            let answering = SUMS
                .query(ADDED, |added: &Vec<u64>, ()| added.clone())
                .update(ADD)
                .change(add);
            builder.register(STEP, step).register(answering, sums)
        };
        play.run(code, async |there: &World| {
            join_all((0..callers).map(|number| there.clone().call(number))).await;
        });
    }
}
