//! Parts that are killed at every step: shards, pools and the reader, one at a time, while instances with
//! children, signals from outside and among each other, updates and queries run, on a seeded host of one thread. Whatever is killed,
//! no run is parked whose code is right, what was acknowledged is there, each update is made once, signals
//! keep their order, each child is begun once, what a run signals to another is recorded once, and no query shows less than was acknowledged.
//!
//! ```text
//!   dice ──► programs ──► runtime on a seeded host ──► answers ──► ledger: is it explained?
//!     └────► which part dies before which step, and in which of its calls to the journal
//! ```
//!
//! The turns of a part have a budget of a few messages, and a part whose memory is to be empty after each
//! turn (`hot_len_max` 0) reads each history again and again: an answer that is out of date is then
//! about to come nearly always.
//!
//! More seeds: `just world SEEDS`.

mod ledger;
mod program;

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use millrun::broker::mailbox::MailboxConfig;
use millrun::broker::{Broker, BrokerConfig, Envelope, Inbox, SubscriptionConfig};
use millrun::host::{Bell, Host, Next, Part, Placement};
use millrun::store::MemoryJournal;
use millrun::workflow::PromiseToken;
use millrun::{
    ActivityContext, ActivityError, QueryError, ResultError, RunError, RunHandle, Runtime, StartError,
    StopCause, Timestamp, UpdateError,
};
use millrun_persistence::{Journal, JournalConfig};
use millrun_testkit::{SimConfig, SimHost};

use crate::tapped::{Tapped, intrude};
use ledger::{Known, is_named};
use program::{
    ACTOR, Book, CHANGE, Dice, HUB, HUB_ID, KEEP, Plan, READ, SAID, STEP, TELL, Worth, actor, answering, hub,
    hub_runs_len, step,
};

/// Makes durable what is queued, when it has its turn.
struct Committer(Arc<MemoryJournal>);

impl Part for Committer {
    fn turn(&mut self, _now: Timestamp, _budget: usize) -> Next {
        self.0.commit();
        Next::Idle
    }
}

/// One instance and what those outside do with it.
struct Case {
    plan: Plan,
    tells: u64,
    changes: u64,
    /// Ids of children that other instances have had before.
    used: Vec<String>,
    known: Mutex<Known>,
}

/// One seed's world.
struct Story {
    seed: u64,
    cases: Vec<Case>,
    heard: Mutex<BTreeMap<String, u32>>,
    /// The attempts that have been made, by their step's key and their number.
    attempts: Mutex<BTreeSet<(String, u32)>>,
    problems: Mutex<Vec<Problem>>,
    /// Another writer writes to runs now and then, under their owner's epoch: turns are refused.
    has_strangers: bool,
    /// Of no id it is known without a read whether it has a finished run.
    asks_always: bool,
    refused: Mutex<Vec<String>>,
    /// How many times shards failed on their way to the journal.
    fails: AtomicU64,
}

type Problem = String;

impl Story {
    fn new(seed: u64) -> Self {
        let mut dice = Dice(seed);
        let cases = (0..2 + dice.below(3)).map(|number| {
            let (tells, changes) = (dice.below(6), dice.below(6));
            let plan = dice.plan(&format!("i{number}"), tells, changes);
            let known = Mutex::default();
            let mut used = plan.children();
            used.retain(|_| dice.below(2) == 0);
            Case {
                plan,
                tells,
                changes,
                used,
                known,
            }
        });
        Self {
            seed,
            cases: cases.collect(),
            heard: Mutex::default(),
            attempts: Mutex::default(),
            problems: Mutex::default(),
            has_strangers: dice.below(2) == 0,
            asks_always: dice.below(2) == 0,
            refused: Mutex::default(),
            fails: AtomicU64::new(0),
        }
    }
}

impl Story {
    /// A shard that was restarted began what was due, and then heard of it once more, from the timer of the one
    /// before it: an attempt ran twice under one number.
    fn attempt(&self, cx: &ActivityContext) {
        let attempt = (cx.idempotency_key(), cx.attempt());
        if !self.attempts.lock().unwrap().insert(attempt.clone()) {
            self.problems
                .lock()
                .unwrap()
                .push(format!("{attempt:?} was made twice"));
        }
    }
}

/// Whether nobody answered, since a part of the runtime failed: then the request is made again.
fn is_restart(cause: &StopCause) -> bool {
    matches!(cause, StopCause::Part { .. })
}

struct Outside {
    runtime: Runtime,
    host: Arc<dyn Host>,
    story: Arc<Story>,
}

impl Outside {
    async fn pause(&self, dice: &mut Dice) {
        let pause = Duration::from_micros(dice.below(20_000));
        self.host.sleep_until(self.host.now() + pause).await;
    }

    async fn start(&self, case: &Case) -> Result<RunHandle<Book>, Problem> {
        loop {
            match self.runtime.start(ACTOR, &case.plan.id, case.plan.clone()).await {
                Ok(run) => {
                    case.known.lock().unwrap().is_started = true;
                    return Ok(run);
                }
                Err(StartError::Stopped(cause)) if is_restart(&cause) => {}
                Err(error) => return Err(format!("start: {error:?}")),
            }
        }
    }

    async fn tell(&self, case: &Case, run: &RunHandle<Book>, mut dice: Dice) -> Result<(), Problem> {
        let from = case.known.lock().unwrap().told_len + 1;
        for value in from..=case.tells {
            self.pause(&mut dice).await;
            let mut again = dice.below(2);
            loop {
                let times = {
                    let mut known = case.known.lock().unwrap();
                    let times = known.told.entry(value).or_default();
                    *times += 1;
                    *times
                };
                let is_named = is_named(value);
                let sent = match is_named {
                    true => run.signal_as(TELL, &format!("t-{value}"), value).await,
                    false => run.signal(TELL, value).await,
                };
                match sent {
                    // Sent once more, it is known, also if it has ended the run.
                    Ok(()) if is_named && again > 0 => again -= 1,
                    Ok(()) => break,
                    Err(RunError::Stopped(cause)) if is_restart(&cause) => {}
                    // It was taken before, without an answer, and was all that was waited for.
                    Err(RunError::Finished) if times > 1 && !is_named => break,
                    Err(error) => return Err(format!("signal {value}: {error:?}")),
                }
            }
            case.known.lock().unwrap().told_len = value;
        }
        Ok(())
    }

    async fn change(&self, case: &Case, run: &RunHandle<Book>, mut dice: Dice) -> Result<(), Problem> {
        for value in 0..case.changes {
            self.pause(&mut dice).await;
            let mut again = dice.below(2);
            loop {
                match run.update_as(CHANGE, &format!("c-{value}"), value).await {
                    Ok(at) => {
                        let before = case.known.lock().unwrap().changed.insert(value, at);
                        if before.is_some_and(|before| before != at) {
                            return Err(format!("update {value} was answered {before:?}, and then {at}"));
                        }
                    }
                    Err(UpdateError::Run(RunError::Stopped(cause))) if is_restart(&cause) => continue,
                    Err(error) => return Err(format!("update {value}: {error:?}")),
                }
                if again == 0 {
                    break;
                }
                again -= 1;
            }
        }
        Ok(())
    }

    async fn read(&self, case: &Case, run: &RunHandle<Book>, mut dice: Dice) -> Result<(), Problem> {
        for _ in 0..dice.below(8) {
            self.pause(&mut dice).await;
            let asked = case.known.lock().unwrap().changed.clone();
            match run.query(READ, ()).await {
                Ok(book) => {
                    let mut known = case.known.lock().unwrap();
                    known.check_read(&asked, &book)?;
                    known.read = book;
                }
                Err(QueryError::Run(RunError::Stopped(cause))) if is_restart(&cause) => {}
                Err(error) => return Err(format!("query: {error:?}")),
            }
        }
        Ok(())
    }

    async fn wait(&self, case: &Case, run: &RunHandle<Book>) -> Result<(), Problem> {
        loop {
            match run.result().await {
                Ok(book) => {
                    case.known.lock().unwrap().end = Some(book);
                    return Ok(());
                }
                Err(ResultError::Run(RunError::Stopped(cause))) if is_restart(&cause) => {}
                Err(error) => return Err(format!("result: {error:?}")),
            }
        }
    }

    /// Has an instance of this id begin and end.
    async fn use_id(&self, id: &str) -> Result<(), Problem> {
        loop {
            let run = match self
                .runtime
                .start(ACTOR, id, Plan::new(id.into(), Vec::new()))
                .await
            {
                Ok(run) => run,
                Err(StartError::Stopped(cause)) if is_restart(&cause) => continue,
                Err(error) => return Err(format!("start of {id}: {error:?}")),
            };
            match run.result().await {
                Ok(_) => return Ok(()),
                Err(ResultError::Run(RunError::Stopped(cause))) if is_restart(&cause) => {}
                Err(error) => return Err(format!("result of {id}: {error:?}")),
            }
        }
    }

    async fn follow(&self, number: u64, case: &Case) -> Result<(), Problem> {
        for id in &case.used {
            self.use_id(id).await?;
        }
        let run = self.start(case).await?;
        let dice = |who: u64| Dice(self.story.seed * 1_000 + number * 10 + who);
        let (tell, change, read, wait) = futures_util::join!(
            self.tell(case, &run, dice(1)),
            self.change(case, &run, dice(2)),
            self.read(case, &run, dice(3)),
            self.wait(case, &run),
        );
        for outcome in [tell, change, read, wait] {
            outcome.map_err(|problem| format!("{}: {problem}", case.plan.id))?;
        }
        Ok(())
    }

    /// Has the hub begin that all instances signal, which ends when it has heard this.
    async fn begin_hub(&self, expected: &[String]) -> Result<RunHandle<Vec<String>>, Problem> {
        loop {
            let input = (expected.len(), Vec::new());
            match self.runtime.start(HUB, HUB_ID, input).await {
                Ok(run) => return Ok(run),
                Err(StartError::Stopped(cause)) if is_restart(&cause) => {}
                Err(error) => return Err(format!("start of the hub: {error:?}")),
            }
        }
    }

    async fn check_hub(
        &self,
        hub: &RunHandle<Vec<String>>,
        mut expected: Vec<String>,
    ) -> Result<(), Problem> {
        let mut heard = loop {
            match hub.result().await {
                Ok(heard) => break heard,
                Err(ResultError::Run(RunError::Stopped(cause))) if is_restart(&cause) => {}
                Err(error) => return Err(format!("result of the hub: {error:?}")),
            }
        };
        heard.sort_unstable();
        expected.sort_unstable();
        if heard != expected {
            return Err(format!("the hub has heard {heard:?}, not {expected:?}"));
        }
        Ok(())
    }

    /// Takes everything to its end, and looks at what is left.
    async fn see_through(&self) -> Result<(), Problem> {
        let mut all = Worth::default();
        self.story.cases.iter().for_each(|case| case.plan.worth(&mut all));
        let hub = self.begin_hub(&all.noted).await?;
        let cases = (0..).zip(&self.story.cases);
        let followed = join_all(cases.map(|(number, case)| self.follow(number, case))).await;
        followed.into_iter().collect::<Result<(), _>>()?;
        let hub_runs = hub_runs_len(all.noted.len());
        self.check_hub(&hub, all.noted).await?;
        let mut runs = BTreeMap::<String, usize>::new();
        let mut expected = Worth::default();
        for case in &self.story.cases {
            let mut worth = Worth::default();
            case.plan.worth(&mut worth);
            let known = case.known.lock().unwrap();
            known.check_end(case.tells, case.changes, worth.sum)?;
            expected.runs.extend(worth.runs);
            for id in &case.used {
                *expected.runs.entry(id.clone()).or_default() += 1;
            }
            expected.said.extend(worth.said);
        }
        expected.runs.insert(HUB_ID.into(), hub_runs);
        let stats = self.runtime.stats();
        if (stats.live, stats.parked, stats.replay_differences) != (0, 0, 0) {
            return Err(format!("something is left behind: {stats:?}"));
        }
        for finished in self.runtime.list_finished(None, 10_000).await.unwrap() {
            *runs.entry(finished.id.to_string()).or_default() += 1;
        }
        if runs != expected.runs {
            return Err(format!("runs {runs:?}, not {:?}", expected.runs));
        }
        *self.story.heard.lock().unwrap() = expected.said.into_iter().map(|said| (said, 1)).collect();
        Ok(())
    }
}

async fn keep(runtime: Arc<Mutex<Option<Runtime>>>, token: String) -> Result<(), ActivityError> {
    let runtime = runtime.lock().unwrap().clone();
    let runtime = runtime.ok_or_else(|| ActivityError::retryable("nobody is there yet"))?;
    match runtime.keep_promise(token.parse::<PromiseToken>()?, 7_u64).await {
        // What is refused for good was done before.
        Ok(()) | Err(RunError::Finished | RunError::NotFound | RunError::Refused(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn listen(broker: &Broker) -> Inbox<Envelope<String>> {
    let inbox = MailboxConfig {
        capacity: 10_000,
        ..MailboxConfig::default()
    };
    let config = SubscriptionConfig {
        inbox,
        ..SubscriptionConfig::default()
    };
    broker.subscribe(SAID.name(), config).unwrap()
}

/// A journal that commits when its part has its turn, and in whose calls a shard may fail.
fn journal_of(world: &SimHost, inner: &Arc<MemoryJournal>, story: &Arc<Story>) -> Arc<Tapped> {
    let (story, dice) = (Arc::clone(story), Mutex::new(Dice(story.seed + 1)));
    let bell = Bell::new();
    let committer = Box::new(Committer(Arc::clone(inner)));
    let host = world.host();
    let spawned = host.spawn_part(
        "committer",
        Placement::Thread,
        bell.clone(),
        committer,
        Box::new(drop),
    );
    spawned.unwrap();
    let asks_always = story.asks_always;
    let tapped = Tapped::new(Arc::clone(inner) as Arc<dyn Journal>, move |journal, batch| {
        if story.has_strangers && !batch.is_empty() && dice.lock().unwrap().below(20) == 0 {
            intrude(journal, batch, dice.lock().unwrap().below(4) / 3 * 1_000);
        }
        let fails_at = if batch.is_empty() {
            9
        } else {
            dice.lock().unwrap().below(60)
        };
        if fails_at <= 1 {
            story.fails.fetch_add(1, Ordering::Relaxed);
        }
        if fails_at == 0 {
            // What a stranger has queued is to become durable all the same.
            bell.ring();
            fail();
        }
        let enqueued = journal.enqueue(batch);
        let refused = enqueued.iter().flat_map(|enqueued| &enqueued.refused);
        let refused = refused.map(|refused| refused.error.to_string());
        story.refused.lock().unwrap().extend(refused);
        bell.ring();
        if fails_at == 1 {
            fail();
        }
        enqueued
    });
    if asks_always {
        tapped.ask_always();
    }
    tapped
}

/// Panics, and prints nothing.
fn fail() {
    resume_unwind(Box::new("as told".to_owned()) as Box<dyn Any + Send>);
}

/// One life of the store, with parts that are killed.
fn live(story: &Arc<Story>, dice: &mut Dice) -> Result<(), Problem> {
    let seed = story.seed;
    let mut config = SimConfig::seeded(seed);
    config.turn_budget_max = usize::try_from(1 + dice.below(4)).unwrap();
    let world = SimHost::new(config);
    let inner = Arc::new(MemoryJournal::held(JournalConfig::default()).unwrap());
    let journal = journal_of(&world, &inner, story);
    let broker = Broker::without_host(BrokerConfig::default());
    let inbox = listen(&broker);
    let errands = Arc::new(Mutex::new(None));
    let (keeping, stepping) = (Arc::clone(&errands), Arc::clone(story));
    let shards_len = usize::try_from(1 + dice.below(3)).unwrap();
    let (hot_len_max, cached_len) = (
        [0, 0, 2, 100_000][usize::try_from(dice.below(4)).unwrap()],
        dice.below(2),
    );
    let builder = Runtime::volatile()
        .host(world.host())
        .journal(journal)
        .broker(broker)
        .topic(SAID)
        .configure(|config| {
            config.shards_len = shards_len;
            config.hot_len_max = hot_len_max;
            config.result_cache_len_max = usize::try_from(cached_len).unwrap() * 4_096;
            config.replay_check_every = 1;
            config.restarts_max = u32::MAX;
            config.limits.kept_beginning_every = 2;
        })
        .register(STEP, move |cx: ActivityContext, number| {
            stepping.attempt(&cx);
            step(cx, number)
        })
        .register(KEEP, move |_: ActivityContext, token| {
            keep(Arc::clone(&keeping), token)
        })
        .register(answering(), actor)
        .register(HUB, hub);
    let outcome = Arc::new(Mutex::new(None));
    let (ended, told, host) = (Arc::clone(&outcome), Arc::clone(story), world.host());
    let here = Arc::clone(&errands);
    let script = async move {
        let script = async {
            let runtime = builder.start().await.unwrap();
            *here.lock().unwrap() = Some(runtime.clone());
            let outside = Outside {
                runtime,
                host,
                story: told,
            };
            outside.see_through().await
        };
        let end = AssertUnwindSafe(script).catch_unwind().await;
        let end = end.unwrap_or_else(|panic| Err(millrun_core::panic_message(panic)));
        *ended.lock().unwrap() = Some(end);
    };
    let task = world.host().spawn("script", Box::pin(script));
    let kill_every = 10 + dice.below(200);
    let (mut kills, mut killed) = (60, 0);
    let outcome_of = |outcome: &Mutex<Option<Result<(), Problem>>>| outcome.lock().unwrap().clone();
    let _steps = world.run_until(|| {
        if kills > 0
            && dice.below(kill_every) == 0
            && let Some(runtime) = errands.lock().unwrap().as_ref()
        {
            kills -= 1;
            let part = match dice.below(8) {
                0 => format!("reader {}", dice.below(4)),
                1 => "pool default".into(),
                2 => "watcher".into(),
                _ => format!("shard {}", dice.below(shards_len as u64)),
            };
            // One that is being restarted cannot be killed.
            killed += u64::from(runtime.kill(&part).is_ok());
        }
        outcome_of(&outcome).is_some()
    });
    let end = outcome_of(&outcome).unwrap_or_else(|| Err(format!("it is stuck:\n{}", world.trace())));
    drop(task);
    let parts = errands.lock().unwrap().take().map(|runtime| runtime.parts());
    let restarts: u64 = parts.iter().flatten().map(|part| u64::from(part.restarts)).sum();
    end?;
    let mut heard = BTreeMap::new();
    for envelope in inbox.take() {
        *heard.entry(envelope.payload().clone()).or_default() += 1;
    }
    let expected = story.heard.lock().unwrap();
    if heard != *expected {
        return Err(format!("heard {heard:?}, not {expected:?}"));
    }
    if let Some(problem) = story.problems.lock().unwrap().first() {
        return Err(problem.clone());
    }
    let refused = story.refused.lock().unwrap();
    if !story.has_strangers && !refused.is_empty() {
        return Err(format!(
            "the journal refused turns of its only owner: {refused:?}"
        ));
    }
    let failed = killed + story.fails.load(Ordering::Relaxed);
    if restarts > failed {
        return Err(format!(
            "{restarts} restarts, and {failed} parts that failed; refused: {refused:?}"
        ));
    }
    Ok(())
}

fn play(seed: u64) -> Result<(), Problem> {
    let story = Arc::new(Story::new(seed));
    let mut dice = Dice(seed ^ 0x5eed);
    live(&story, &mut dice)
}

/// How many seeds, and from which on: the variable `MILLRUN_WORLD_SEEDS` is `500` or `1000+500`.
fn seeds() -> std::ops::RangeInclusive<u64> {
    let asked = std::env::var("MILLRUN_WORLD_SEEDS").unwrap_or_else(|_| "500".into());
    let (first, len) = asked.split_once('+').unwrap_or(("1", &asked));
    let [first, len] = [first, len].map(|number| number.parse::<u64>().expect("a number of seeds"));
    first..=first + len - 1
}

#[test]
fn whatever_part_is_killed_no_healthy_run_is_parked_and_nothing_acknowledged_is_lost_or_made_twice() {
    let mut problems = Vec::new();
    for seed in seeds() {
        if let Err(problem) = play(seed) {
            println!("seed {seed}: {problem}");
            problems.push(seed);
        }
    }
    assert!(problems.is_empty(), "seeds {problems:?}");
}
