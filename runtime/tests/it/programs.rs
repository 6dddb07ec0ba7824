//! Random programs through the whole runtime, on a seeded host of one thread, with shards killed and
//! crashes after a random number of steps: every start that was acknowledged ends with the value that its program has,
//! nothing is published twice, and nobody is left behind.
//!
//! The programs are made so that their values do not depend on time: a race is worth the same whoever
//! wins it. Whatever comes from outside (signals, updates, kept promises) is sent by an activity, which
//! is tried again until it was acknowledged.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millrun::broker::mailbox::MailboxConfig;
use millrun::broker::{Broker, BrokerConfig, Envelope, Inbox, SubscriptionConfig};
use millrun::{
    Activity, ActivityContext, ActivityError, Either, Implementation, ParentClose, PromiseToken, ResultError,
    Retry, RunError, Runtime, RuntimeBuilder, Signal, StartError, State, StopCause, Topic, Update,
    UpdateError, Workflow, WorkflowContext, WorkflowError,
};
use millrun_testkit::{SimConfig, SimHost};
use serde::{Deserialize, Serialize};

const STEP: Activity<u64, u64> = Activity::named("step");
const SEND: Activity<Errand, ()> = Activity::named("send");
const GO: Signal<u64> = Signal::named("go");
const ADD: Update<u64, u64, u64> = Update::named("add");
const SAID: Topic<String> = Topic::named("said");
const FLOW: Workflow<Flow, u64> = Workflow::named("flow");

/// What somebody outside shall do.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Errand {
    Signal(String),
    Update(String),
    Keep(String),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
enum Program {
    Step(u64),
    Sleep(u64),
    Local(u64),
    Record(u64),
    Signal,
    Update,
    Promise,
    Publish,
    Child(Vec<Stage>),
    Sequence(Vec<Program>),
    Join(Vec<Program>),
    Race(Box<Program>, Box<Program>),
    Shield(Box<Program>),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Stage {
    program: Program,
    then: Then,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Then {
    GoOn,
    Checkpoint,
    Continue,
}

/// A run's part of a program. `id` names the instance, `at` the stage.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Flow {
    id: String,
    stages: Vec<Stage>,
    at: usize,
    sum: u64,
    state: u64,
}

impl Flow {
    fn new(id: &str, stages: &[Stage]) -> Self {
        Self {
            id: id.into(),
            stages: stages.to_vec(),
            at: 0,
            sum: 6,
            state: 0,
        }
    }
}

fn together(sum: u64, value: u64) -> u64 {
    sum.wrapping_mul(31).wrapping_add(value)
}

/// What the stages are worth, without any engine.
fn worth_of(stages: &[Stage]) -> u64 {
    let values = stages.iter().map(|stage| worth(&stage.program));
    values.fold(6, together)
}

fn worth(program: &Program) -> u64 {
    match program {
        Program::Step(value) => value + 1,
        Program::Sleep(_) => 1,
        Program::Local(value) => value * 2,
        Program::Record(value) => *value,
        Program::Signal => 4,
        Program::Update => 3,
        Program::Promise => 7,
        Program::Publish => 2,
        Program::Child(stages) => worth_of(stages),
        Program::Sequence(parts) => parts.iter().map(worth).fold(7, together),
        Program::Join(parts) => parts.iter().map(worth).fold(8, together),
        Program::Race(..) => 5,
        Program::Shield(inner) => worth(inner),
    }
}

async fn flow(cx: WorkflowContext, flow: Flow) -> Result<u64, WorkflowError> {
    let (mut at, mut sum, state) = match cx.checkpointed::<(usize, u64, u64)>() {
        Some(restored) => restored?,
        None => (flow.at, flow.sum, flow.state),
    };
    let state = cx.state(state);
    while let Some(stage) = flow.stages.get(at) {
        let place = format!("{}-{at}", flow.id);
        let program = stage.program.clone();
        sum = together(
            sum,
            run(cx.clone(), state.clone(), flow.id.clone(), place, program).await?,
        );
        at += 1;
        let now = state.read(|state| *state);
        match stage.then {
            Then::GoOn => {}
            Then::Checkpoint => return Err(cx.checkpoint(&(at, sum, now)).await.into()),
            Then::Continue => {
                let state = now;
                let next = Flow {
                    at,
                    sum,
                    state,
                    ..flow
                };
                return Err(cx.continue_as_new(FLOW, next).await.into());
            }
        }
    }
    Ok(sum)
}

type Running = Pin<Box<dyn Future<Output = Result<u64, WorkflowError>> + Send>>;

/// The program as code. `id` is the instance's, `place` that of the program within all others.
fn run(cx: WorkflowContext, state: State<u64>, id: String, place: String, program: Program) -> Running {
    let retry = Retry::exponential()
        .first_pause(Duration::from_millis(10))
        .attempts(1_000);
    let (of, within) = (id.clone(), place.clone());
    let part = move |cx: &WorkflowContext, state: &State<u64>, number: usize, program: &Program| {
        let place = format!("{within}.{number}");
        run(cx.clone(), state.clone(), of.clone(), place, program.clone())
    };
    Box::pin(async move {
        Ok(match program {
            Program::Step(value) => cx.call(STEP, value).retry(retry).await?,
            Program::Sleep(seconds) => {
                cx.sleep(Duration::from_secs(seconds)).await?;
                1
            }
            Program::Local(value) => cx.local(|| Ok::<_, ActivityError>(value * 2)).await?,
            Program::Record(value) => cx.record(|| value).await?,
            Program::Signal => {
                cx.call(SEND, Errand::Signal(id)).retry(retry).await?;
                cx.signal(GO).await?
            }
            Program::Update => {
                cx.call(SEND, Errand::Update(id)).retry(retry).await?;
                state.until(|state| *state >= 1).await?;
                3
            }
            Program::Promise => {
                let promise = cx.promise::<u64>();
                let errand = Errand::Keep(promise.token().to_string());
                cx.call(SEND, errand).retry(retry).await?;
                promise.await?
            }
            Program::Publish => {
                cx.publish(SAID, place).await?;
                2
            }
            Program::Child(stages) => {
                let child = cx.child(FLOW, place.clone(), Flow::new(&place, &stages));
                child.on_close(ParentClose::Terminate).await?
            }
            Program::Sequence(parts) => {
                let mut sum = 7;
                for (number, program) in parts.iter().enumerate() {
                    sum = together(sum, part(&cx, &state, number, program).await?);
                }
                sum
            }
            Program::Join(parts) => {
                let parts = parts.iter().enumerate();
                let parts = parts.map(|(number, program)| part(&cx, &state, number, program));
                let mut sum = 8;
                for value in cx.join_all(parts).await {
                    sum = together(sum, value?);
                }
                sum
            }
            Program::Race(left, right) => {
                let (left, right) = (part(&cx, &state, 0, &left), part(&cx, &state, 1, &right));
                match cx.race(left, right).await {
                    Either::Left(value) | Either::Right(value) => value.map(|_| 5)?,
                }
            }
            Program::Shield(inner) => part(&cx.shielded(), &state, 0, &inner).await?,
        })
    })
}

/// SplitMix64, to draw programs with.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    fn program(&mut self, depth: u64) -> Program {
        let parts = |dice: &mut Self| {
            let len = dice.below(4);
            (0..len).map(|_| dice.program(depth - 1)).collect()
        };
        match self.below(if depth == 0 { 8 } else { 14 }) {
            0 => Program::Step(self.below(100)),
            1 => Program::Sleep(self.below(100)),
            2 => Program::Local(self.below(100)),
            3 => Program::Record(self.below(100)),
            4 => Program::Signal,
            5 => Program::Update,
            6 => Program::Promise,
            7 => Program::Publish,
            8 => Program::Child(self.stages(depth - 1)),
            9 | 10 => Program::Sequence(parts(self)),
            11 => Program::Join(parts(self)),
            12 => {
                let (left, right) = (self.program(depth - 1), self.program(depth - 1));
                Program::Race(Box::new(left), Box::new(right))
            }
            _ => Program::Shield(Box::new(self.program(depth - 1))),
        }
    }

    fn stages(&mut self, depth: u64) -> Vec<Stage> {
        let len = 1 + self.below(3);
        (0..len)
            .map(|_| Stage {
                program: self.program(depth),
                then: match self.below(3) {
                    0 => Then::GoOn,
                    1 => Then::Checkpoint,
                    _ => Then::Continue,
                },
            })
            .collect()
    }
}

/// The runtime, for those outside it.
type Outside = Arc<Mutex<Option<Runtime>>>;

async fn step(cx: ActivityContext, number: u64) -> Result<u64, ActivityError> {
    if number.is_multiple_of(3) && cx.attempt() == 1 {
        return Err(ActivityError::retryable("the first attempt"));
    }
    Ok(number + 1)
}

/// Does an errand. What is refused for good was done before, or nobody waits for it any more.
async fn send(outside: Outside, errand: Errand) -> Result<(), ActivityError> {
    let runtime = outside.lock().unwrap().clone();
    let runtime = runtime.ok_or_else(|| ActivityError::retryable("nobody is there yet"))?;
    let done = match errand {
        Errand::Signal(id) => runtime.attach(FLOW, &id)?.signal(GO, 4).await,
        Errand::Keep(token) => runtime.keep_promise(token.parse::<PromiseToken>()?, 7_u64).await,
        Errand::Update(id) => match runtime.attach(FLOW, &id)?.update(ADD, 1).await {
            Ok(_) => Ok(()),
            Err(UpdateError::Run(error)) => Err(error),
            Err(error) => return Err(ActivityError::retryable(error.to_string())),
        },
    };
    match done {
        Ok(()) | Err(RunError::Finished | RunError::NotFound | RunError::Refused(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// What is known across lives.
#[derive(Default)]
struct Known {
    /// The value of each program whose start was acknowledged, by id.
    acknowledged: BTreeMap<String, u64>,
    /// How often each place was heard of.
    heard: BTreeMap<String, u32>,
}

fn listen(broker: &Broker) -> Inbox<Envelope<String>> {
    let config = SubscriptionConfig {
        inbox: MailboxConfig {
            capacity: 100_000,
            ..MailboxConfig::default()
        },
        ..SubscriptionConfig::default()
    };
    broker.subscribe(SAID.name(), config).unwrap()
}

/// Begins programs, and lives on.
async fn live(builder: RuntimeBuilder, outside: Outside, known: Arc<Mutex<Known>>, seed: u64, life: u64) {
    let runtime = builder.start().await.unwrap();
    *outside.lock().unwrap() = Some(runtime.clone());
    let mut dice = Dice(seed * 1_000 + life);
    for number in 0..6 {
        let (id, stages) = (format!("flow-{life}-{number}"), dice.stages(3));
        if dice.below(6) == 0 {
            // One that is being restarted cannot be killed.
            drop(runtime.kill("shard 0"));
        }
        loop {
            match runtime.start(FLOW, &id, Flow::new(&id, &stages)).await {
                Ok(_) => break,
                Err(StartError::Stopped(StopCause::Part { .. })) => {}
                Err(error) => panic!("seed {seed}: {error}"),
            }
        }
        let worth = worth_of(&stages);
        known.lock().unwrap().acknowledged.insert(id, worth);
    }
}

/// Waits until all that was ever acknowledged has ended, and nobody else is left.
async fn finish(runtime: &Runtime, host: Arc<dyn millrun::Host>, known: &Mutex<Known>) {
    let acknowledged = known.lock().unwrap().acknowledged.clone();
    for (id, worth) in acknowledged {
        let run = runtime.attach(FLOW, &id).unwrap();
        let value = loop {
            match run.result().await {
                Err(ResultError::Run(RunError::Stopped(StopCause::Part { .. }))) => {}
                end => break end.unwrap(),
            }
        };
        assert_eq!(value, worth, "{id}");
    }
    // Children that lost a race may still be on their way out.
    while runtime.stats().live > 0 {
        let soon = millrun::Timestamp::from_micros(host.now().as_micros() + 1_000_000);
        host.sleep_until(soon).await;
    }
    runtime.shutdown().await.unwrap();
}

/// Lives through `crashes` lives, each cut off after a random number of steps, and one more.
fn play(seed: u64, crashes: u64) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.redb");
    let known = Arc::new(Mutex::new(Known::default()));
    let mut dice = Dice(seed);
    for life in 0..=crashes {
        let world = SimHost::new(SimConfig::seeded(seed * 1_000 + life));
        let outside = Outside::default();
        let broker = Broker::without_host(BrokerConfig::default());
        let inbox = listen(&broker);
        let errands = Arc::clone(&outside);
        let builder = Runtime::open(&path)
            .host(world.host())
            .broker(broker)
            .topic(SAID)
            .register(STEP, step)
            .register(SEND, move |_: ActivityContext, errand| {
                send(Arc::clone(&errands), errand)
            })
            .implement(Implementation::new(FLOW, flow).update(
                ADD,
                |_, _| Ok(()),
                |state, more| {
                    *state += more;
                    *state
                },
            ));
        let begun = live(builder, Arc::clone(&outside), Arc::clone(&known), seed, life);
        if life == crashes {
            let host = world.host();
            let script = async {
                begun.await;
                let runtime = outside.lock().unwrap().clone().unwrap();
                finish(&runtime, host, &known).await;
            };
            world.block_on(script).unwrap();
        } else {
            let host = world.host();
            let script = async move {
                begun.await;
                host.sleep_until(millrun::Timestamp::MAX).await;
            };
            let task = world.host().spawn("script", Box::pin(script));
            let mut steps = 100 + dice.below(1_500);
            let _outcome = world.run_until(|| {
                steps -= 1;
                steps == 0
            });
            world.crash();
            drop(task);
        }
        *outside.lock().unwrap() = None;
        let heard = &mut known.lock().unwrap().heard;
        for envelope in inbox.take() {
            *heard.entry(envelope.payload().clone()).or_default() += 1;
        }
    }
    let known = known.lock().unwrap();
    assert!(known.acknowledged.len() >= 6, "seed {seed}");
    let twice: Vec<_> = known.heard.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "seed {seed}: published twice: {twice:?}");
}

#[test]
fn random_programs_have_their_values_whatever_crashes_come() {
    for seed in 1..=20 {
        play(seed, 3);
    }
}
