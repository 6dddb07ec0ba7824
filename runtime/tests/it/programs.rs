//! Random programs through the whole runtime, on a seeded host of one thread, with shards killed and
//! crashes after a random number of steps: every start that was acknowledged ends with the value that its program has,
//! nothing is published twice, and nobody is left behind.
//!
//! The programs are made so that their values do not depend on time: a race is worth the same whichever side
//! wins it. Whatever comes from outside (signals, updates, kept promises) is sent by an activity, which
//! is tried again until it was acknowledged.

mod tree;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use millrun::broker::mailbox::MailboxConfig;
use millrun::broker::{Broker, BrokerConfig, Envelope, Inbox, SubscriptionConfig};
use millrun::builders::AnsweringWorkflow;
use millrun::workflow::PromiseToken;
use millrun::{
    ActivityContext, ActivityError, ResultError, RunError, Runtime, RuntimeBuilder, StartError, StopCause,
    UpdateError, Workflow,
};
use millrun_testkit::{SimConfig, SimHost};

use tree::{ADD, Dice, Errand, FLOW, Flow, GO, ONWARD, SAID, SEND, STEP, flow, worth_of};

/// The runtime, for those outside it.
type Outside = Arc<Mutex<Option<Runtime>>>;

async fn step(cx: ActivityContext, number: u64) -> Result<u64, ActivityError> {
    if number.is_multiple_of(3) && cx.attempt() == 1 {
        return Err(ActivityError::retryable("the first attempt"));
    }
    Ok(number + 1)
}

/// A workflow that no program is of.
const STRANGER: Workflow<(), ()> = Workflow::named("stranger");

/// Does an errand, and makes a mistake before, which would end the program. What is refused for good was done before, or nobody waits for it any more.
async fn send(outside: Outside, errand: Errand) -> Result<(), ActivityError> {
    let runtime = outside.lock().unwrap().clone();
    let runtime = runtime.ok_or_else(|| ActivityError::retryable("nobody is there yet"))?;
    if let Errand::Signal(id) | Errand::Update(id) = &errand {
        let told = runtime.attach(STRANGER, id)?.cancel("by mistake").await;
        assert!(told.is_err(), "an instance of another workflow took it");
    }
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

fn adding<I, O>(workflow: Workflow<I, O>) -> AnsweringWorkflow<I, O> {
    workflow.update(ADD).change(|state, more| {
        *state += more;
        *state
    })
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
async fn finish(runtime: &Runtime, host: Arc<dyn millrun::host::Host>, known: &Mutex<Known>) {
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
        // Whatever it went on as, a start that is repeated finds it.
        let again = runtime.start(FLOW, &id, Flow::new(&id, &[])).await.unwrap();
        assert_eq!(again.result().await.unwrap(), worth, "{id}, started again");
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
            .configure(|config| {
                // Every second time each turn is preceded by a replay that compares values too.
                config.limits.strict = seed.is_multiple_of(2);
                if config.limits.strict {
                    config.hot_len_max = 0;
                }
                // In two of three, runs are brought back from what is kept at their checkpoints.
                config.limits.kept_beginning_every = seed % 3;
                // In one of five, beside their whole histories.
                config.keep_history = seed.is_multiple_of(5);
            })
            .register(STEP, step)
            .register(SEND, move |_: ActivityContext, errand| {
                send(Arc::clone(&errands), errand)
            })
            .register(adding(FLOW), flow)
            .register(adding(ONWARD), flow);
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
