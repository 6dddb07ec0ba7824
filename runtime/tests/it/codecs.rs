//! Values whose own code panics, when they are encoded, decoded or dropped: what uses them fails, the
//! shard and everybody else do not.

use millrun::broker::mailbox::MailboxConfig;
use millrun::broker::{Envelope, Inbox, SubscriptionConfig};
use millrun::operating::ParkReason;
use millrun::workflow::{PublishStepError, Unanswered};
use millrun::{
    Activity, ActivityContext, ActivityError, CallError, InputRefused, Query, QueryError, ResultError, Retry,
    RunError, Runtime, Signal, Topic, Update, UpdateError, Workflow, WorkflowContext, WorkflowError,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::support::{DOUBLE, QUADRUPLE, double, quadruple};

/// Cannot be read if it is 13, nor written if it is 14, and does not like to be dropped if it is 15.
#[derive(Clone, Debug)]
struct Touchy(u64);

const UNREADABLE: u64 = 13;
const UNWRITABLE: u64 = 14;
const UNDROPPABLE: u64 = 15;

impl Serialize for Touchy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        assert_ne!(self.0, UNWRITABLE, "it cannot be written");
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Touchy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = u64::deserialize(deserializer)?;
        assert_ne!(value, UNREADABLE, "it cannot be read");
        Ok(Self(value))
    }
}

impl Drop for Touchy {
    fn drop(&mut self) {
        if self.0 == UNDROPPABLE && !std::thread::panicking() {
            panic!("it cannot be dropped");
        }
    }
}

const ECHO: Activity<Touchy, Touchy> = Activity::named("echo");
const MAKE: Activity<u64, Touchy> = Activity::named("make");
const SAID: Topic<Touchy> = Topic::named("said");
const GO: Signal<Touchy> = Signal::named("go");
const SHOW: Query<Touchy, Touchy, u64> = Query::named("show");
const SET: Update<Touchy, Touchy, u64> = Update::named("set");
const CALLS: Workflow<u64, String> = Workflow::named("calls");
const MAKES: Workflow<u64, String> = Workflow::named("makes");
const SAYS: Workflow<u64, String> = Workflow::named("says");
const GIVES: Workflow<Touchy, Touchy> = Workflow::named("gives");
const TAKES: Workflow<u64, u64> = Workflow::named("takes");

fn in_words<T, E: std::fmt::Display>(end: Result<T, CallError<E>>) -> String {
    end.map_or_else(|error| error.to_string(), |_| "a value".into())
}

async fn calls(cx: WorkflowContext, value: u64) -> Result<String, WorkflowError> {
    Ok(in_words(cx.call(ECHO, Touchy(value)).retry(Retry::never()).await))
}

async fn makes(cx: WorkflowContext, value: u64) -> Result<String, WorkflowError> {
    Ok(in_words(cx.call(MAKE, value).retry(Retry::never()).await))
}

async fn says(cx: WorkflowContext, value: u64) -> Result<String, WorkflowError> {
    match cx.publish(SAID, Touchy(value)).await {
        Err(PublishStepError::Refused(reason)) => Ok(reason),
        other => Ok(format!("{other:?}")),
    }
}

async fn gives(_cx: WorkflowContext, value: Touchy) -> Result<Touchy, WorkflowError> {
    Ok(Touchy(value.0 + 2))
}

/// Keeps a state, and takes a signal.
async fn takes(cx: WorkflowContext, value: u64) -> Result<u64, WorkflowError> {
    let _state = cx.state(Touchy(value));
    Ok(cx.receive(GO).await?.0)
}

async fn open() -> Runtime {
    let answering = TAKES
        .query(SHOW, |state, _question| state.0)
        .update(SET)
        .change(|_, value| value.0);
    let builder = Runtime::volatile()
        .register(DOUBLE, double)
        .register(QUADRUPLE, quadruple)
        .register(ECHO, async |_: ActivityContext, value: Touchy| {
            Ok::<_, ActivityError>(value)
        })
        .register(MAKE, async |_: ActivityContext, value: u64| {
            Ok::<_, ActivityError>(Touchy(value))
        })
        .register(CALLS, calls)
        .register(MAKES, makes)
        .register(SAYS, says)
        .register(GIVES, gives)
        .register(answering, takes)
        .topic(SAID);
    // One panic is enough to know.
    let config = |config: &mut millrun::RuntimeConfig| config.limits.panics_max = 1;
    builder.configure(config).start().await.unwrap()
}

/// Nobody else has noticed anything.
async fn assert_unharmed(runtime: &Runtime) {
    let run = runtime.start(QUADRUPLE, "healthy", 5).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 20);
    for part in runtime.parts() {
        assert!(part.is_running && part.restarts == 0, "{part:?}");
    }
    runtime.shutdown().await.unwrap();
}

fn assert_panicked<T: std::fmt::Debug>(end: Result<T, ResultError<WorkflowError>>) {
    match end {
        Err(ResultError::Parked(reason)) => {
            assert!(matches!(*reason, ParkReason::Panicked { .. }), "{reason}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_codec_that_panics_in_an_activity_fails_the_attempt() {
    let runtime = open().await;
    let run = runtime.start(CALLS, "c", UNREADABLE).await.unwrap();
    let end = run.result().await.unwrap();
    assert!(end.starts_with("the activity panicked"), "{end}");
    let run = runtime.start(MAKES, "m", UNWRITABLE).await.unwrap();
    let end = run.result().await.unwrap();
    assert!(end.starts_with("the activity panicked"), "{end}");
    assert_unharmed(&runtime).await;
}

#[tokio::test]
async fn a_codec_that_panics_in_a_workflow_parks_its_run() {
    let runtime = open().await;
    // The argument of a call.
    let run = runtime.start(CALLS, "c", UNWRITABLE).await.unwrap();
    assert_panicked(run.result().await);
    // The result of a call.
    let run = runtime.start(MAKES, "m", UNREADABLE).await.unwrap();
    assert_panicked(run.result().await);
    // The run's own argument, and its result.
    let run = runtime.start(GIVES, "g-1", Touchy(UNREADABLE)).await.unwrap();
    assert_panicked(run.result().await);
    let run = runtime.start(GIVES, "g-2", Touchy(UNWRITABLE - 2)).await.unwrap();
    assert_panicked(run.result().await);
    // A signal.
    let run = runtime.start(TAKES, "t", 1).await.unwrap();
    run.signal(GO, Touchy(UNREADABLE)).await.unwrap();
    assert_panicked(run.result().await);
    assert_unharmed(&runtime).await;
}

#[tokio::test]
async fn a_codec_that_panics_in_a_question_is_the_askers_trouble() {
    let runtime = open().await;
    let run = runtime.start(TAKES, "t", 1).await.unwrap();
    let answer = run.query(SHOW, Touchy(UNREADABLE)).await;
    assert!(
        matches!(&answer, Err(QueryError::Unanswered(Unanswered::Panicked(_)))),
        "{answer:?}"
    );
    let answer = run.update(SET, Touchy(UNREADABLE)).await;
    assert!(
        matches!(
            &answer,
            Err(UpdateError::Run(RunError::Refused(
                InputRefused::ValidatorPanicked(_)
            )))
        ),
        "{answer:?}"
    );
    run.signal(GO, Touchy(7)).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 7);
    assert_unharmed(&runtime).await;
}

#[tokio::test]
async fn a_codec_that_panics_on_the_way_to_a_topic_refuses_the_publish() {
    let runtime = open().await;
    let said: Inbox<Envelope<Touchy>> = runtime
        .broker()
        .subscribe(SAID.name(), SubscriptionConfig::default())
        .unwrap();
    let run = runtime.start(SAYS, "s", UNREADABLE).await.unwrap();
    let reason = run.result().await.unwrap();
    assert!(reason.contains("it cannot be read"), "{reason}");
    let run = runtime.start(SAYS, "t", 1).await.unwrap();
    assert_eq!(run.result().await.unwrap(), "Ok(Taken)");
    assert_eq!(said.take().count(), 1);
    assert_unharmed(&runtime).await;
}

/// The subscription ended with the first panic, its inbox stayed, and publishers waited there for ever.
#[tokio::test]
async fn a_value_that_panics_on_the_way_to_an_instance_is_refused_and_the_next_gets_there() {
    let runtime = open().await;
    let run = runtime.start(TAKES, "t", 7).await.unwrap();
    let inbox = MailboxConfig {
        capacity: 1,
        ..MailboxConfig::default()
    };
    let config = SubscriptionConfig {
        inbox,
        ..SubscriptionConfig::default()
    };
    let trigger = runtime
        .on(SAID)
        .subscription(config)
        .signal(TAKES, GO, |envelope| {
            let value = envelope.payload().0;
            assert_ne!(value, UNREADABLE, "it cannot be read");
            ("t".into(), Touchy(value))
        })
        .unwrap();
    let said = runtime.broker().topic::<Touchy>(SAID.name()).unwrap();
    for value in [UNREADABLE, UNWRITABLE, UNDROPPABLE, 9] {
        said.publish(Touchy(value)).await.unwrap();
    }
    assert_eq!(run.result().await.unwrap(), 9);
    while trigger.handled() < 1 {
        tokio::task::yield_now().await;
    }
    assert_eq!((trigger.handled(), trigger.refused()), (1, 3));
    assert_unharmed(&runtime).await;
}

#[tokio::test]
async fn a_state_that_panics_when_it_is_dropped_harms_nobody() {
    let runtime = open().await;
    let run = runtime.start(TAKES, "t", UNDROPPABLE).await.unwrap();
    run.signal(GO, Touchy(7)).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 7);
    let run = runtime.start(TAKES, "u", UNDROPPABLE).await.unwrap();
    run.terminate("test").await.unwrap();
    assert_unharmed(&runtime).await;
}
