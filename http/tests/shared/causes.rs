//! One run for each cause that `why` names, in a program whose store had a life before.
//!
//! Two causes cannot be met at such a program and are tested elsewhere: an attempt of a store that is only read
//! (`not-open`, at the command line), and a signal on its way to another instance (`delivery`), which lasts for a commit.

use std::future::pending;
use std::time::Duration;

use millrun::broker::mailbox::MailboxConfig;
use millrun::broker::{Envelope, Inbox, Overflow, SubscriptionConfig};
use millrun::operating::{Wait, WaitsFor, Why};
use millrun::{
    Activity, ActivityContext, ActivityError, Retry, Runtime, RuntimeBuilder, Signal, Topic, Workflow,
    WorkflowContext, WorkflowError,
};
use tempfile::TempDir;

type Done = Result<(), WorkflowError>;

const GO: Signal<()> = Signal::named("go");
const PLACED: Topic<u64> = Topic::named("orders.placed");
const LOST: Topic<u64> = Topic::named("orders.lost");
const STEP: Activity<(), ()> = Activity::named("step");
const ENDLESS: Activity<(), ()> = Activity::named("endless");
const FAILING: Activity<(), ()> = Activity::named("failing");

const HOUR: Duration = Duration::from_secs(3_600);

/// How often is asked for a cause before a test fails.
const ASKED_MAX: u32 = 20_000;

/// A cause: the instance that has it, its kind in the API (of an activity also where the attempt stands), and a part of
/// the sentence that people read.
pub(crate) struct LastingCause {
    pub(crate) id: &'static str,
    #[allow(dead_code, reason = "the page shows sentences alone")]
    pub(crate) kind: &'static str,
    pub(crate) says: &'static str,
}

const fn cause(id: &'static str, kind: &'static str, says: &'static str) -> LastingCause {
    LastingCause { id, kind, says }
}

/// Each cause that lasts until something is done.
pub(crate) const CAUSES: &[LastingCause] = &[
    cause("panicked", "parked", "nobody may go"),
    cause("changed", "parked", "is parked: "),
    cause(
        "gone",
        "registration",
        "has no code: its workflow is not registered",
    ),
    cause("asleep", "asleep", "is on disk, and waits for a signal"),
    cause("stray", "parked", "is parked: "),
    cause(
        "no-code",
        "activity not-registered",
        "step: attempt 1 of 7 has no code",
    ),
    cause(
        "failing",
        "activity backing-off",
        "; the last one: the bank does not answer",
    ),
    cause(
        "running",
        "activity running",
        "endless: attempt 1 of 20 has run for ",
    ),
    cause("queued", "activity queued", "where 1 of 1 run and 1 wait"),
    cause("parent", "child", "waits for the child leaf (signal)"),
    cause("full", "publish", "; slow reader has 1 of 1 still to take"),
    cause("no-topic", "publish", "orders.lost, which is not registered"),
    cause(
        "promise",
        "promise",
        "waits for a promise that is kept from outside",
    ),
    cause("timer", "timer", "waits for a timer that fires in "),
    cause("signal", "signal", "waits for the signal go"),
    cause("condition", "condition", "waits for a condition on its state"),
    cause(
        "until-cancelled",
        "cancel-request",
        "waits for the request to cancel",
    ),
];

/// A program with a run for each of [`CAUSES`], each at the place where it stays.
pub(crate) struct Causes {
    pub(crate) runtime: Runtime,
    _full: Inbox<Envelope<u64>>,
    _store: TempDir,
}

impl Causes {
    pub(crate) async fn new() -> Self {
        let store = tempfile::tempdir().unwrap();
        let open = || Runtime::open(store.path().join("store.redb"));
        let first_life = open()
            .register(workflow("gone"), |cx, ()| signal(cx))
            .register(workflow("asleep"), |cx, ()| signal(cx))
            .register(workflow("changed"), |cx, ()| timer(cx));
        let runtime = first_life.start().await.unwrap();
        for id in ["gone", "asleep", "changed"] {
            start(&runtime, id).await;
        }
        runtime.shutdown().await.unwrap();

        let runtime = code(open()).start().await.unwrap();
        let config = SubscriptionConfig {
            name: "slow reader".into(),
            inbox: MailboxConfig {
                capacity: 1,
                ..MailboxConfig::default()
            },
            overflow: Overflow::Block,
            ..SubscriptionConfig::default()
        };
        let full = runtime.broker().subscribe("orders.placed", config).unwrap();
        let causes = Self {
            runtime,
            _full: full,
            _store: store,
        };
        // Only a replay finds that the code has changed, and nothing else wakes this run.
        let changed = causes.runtime.attach_untyped("changed").unwrap();
        changed.describe_awake().await.unwrap();
        for LastingCause { id, .. } in CAUSES {
            if !["gone", "asleep", "changed"].contains(id) {
                start(&causes.runtime, id).await;
            }
            // The place in the queue of one that is queued is behind one that runs.
            causes.until_it_stays(id).await;
        }
        causes
    }

    /// Why the instance does not go on, from the library.
    pub(crate) async fn why(&self, id: &str) -> Why {
        self.runtime.attach_untyped(id).unwrap().why().await.unwrap()
    }

    /// Asks why until the answer is the one that stays; each question is answered by the shard, so no time needs to pass.
    async fn until_it_stays(&self, id: &str) {
        let cause = CAUSES.iter().find(|cause| cause.id == id).unwrap();
        for asked in 0.. {
            let why = self.why(id).await;
            assert!(asked < ASKED_MAX, "{why}");
            if let [wait] = &why.waits[..]
                && why.sentence(wait).contains(cause.says)
                && !is_passing(wait)
            {
                return;
            }
            tokio::task::yield_now().await;
        }
    }
}

/// A run that awaits something foreign is parked in the next moment; a child has to begin before it waits.
fn is_passing(wait: &Wait) -> bool {
    matches!(
        wait.what,
        WaitsFor::Foreign { .. } | WaitsFor::Child { why: None, .. }
    )
}

async fn start(runtime: &Runtime, name: &'static str) {
    runtime.start(workflow(name), name, ()).await.unwrap();
}

/// Instances are named as their workflows are.
const fn workflow(name: &'static str) -> Workflow<(), ()> {
    Workflow::named(name)
}

/// What the program has in its second life: no code for `gone`, and other code for `changed`.
fn code(builder: RuntimeBuilder) -> RuntimeBuilder {
    builder
        .configure(|config| {
            config.limits.panics_max = 0;
            config.queue_running_max.insert("narrow".to_owned(), 1);
        })
        .queue("narrow")
        .topic(PLACED)
        .register(ENDLESS, endless)
        .register(FAILING, failing)
        .register(workflow("asleep"), |cx, ()| signal(cx))
        .register(workflow("changed"), |cx, ()| signal(cx))
        .register(workflow("panicked"), async |_cx, ()| panic!("nobody may go"))
        .register(workflow("stray"), async |_cx, ()| pending().await)
        .register(workflow("no-code"), |cx, ()| call(cx, STEP))
        .register(workflow("failing"), |cx, ()| call(cx, FAILING))
        .register(workflow("running"), |cx, ()| narrow(cx))
        .register(workflow("queued"), |cx, ()| narrow(cx))
        .register(workflow("parent"), async |cx: WorkflowContext, ()| {
            Ok(cx.child(workflow("signal"), "leaf", ()).await?)
        })
        .register(workflow("full"), |cx, ()| publish(cx, PLACED))
        .register(workflow("no-topic"), |cx, ()| publish(cx, LOST))
        .register(workflow("promise"), async |cx: WorkflowContext, ()| {
            Ok(cx.promise::<()>().await?)
        })
        .register(workflow("timer"), |cx, ()| timer(cx))
        .register(workflow("signal"), |cx, ()| signal(cx))
        .register(workflow("condition"), async |cx: WorkflowContext, ()| {
            let state = cx.state(0);
            Ok(state.until(|number| *number > 0).await?)
        })
        .register(workflow("until-cancelled"), async |cx: WorkflowContext, ()| {
            cx.cancelled().await;
            Ok(())
        })
}

async fn narrow(cx: WorkflowContext) -> Done {
    Ok(cx.call(ENDLESS, ()).on_queue("narrow").await?)
}

/// Publishes twice: a subscription with room for one makes the second wait.
async fn publish(cx: WorkflowContext, topic: Topic<u64>) -> Done {
    cx.publish(topic, 1).await?;
    cx.publish(topic, 2).await?;
    Ok(())
}

async fn signal(cx: WorkflowContext) -> Done {
    Ok(cx.receive(GO).await?)
}

async fn timer(cx: WorkflowContext) -> Done {
    Ok(cx.sleep(HOUR).await?)
}

async fn call(cx: WorkflowContext, activity: Activity<(), ()>) -> Done {
    let retry = Retry::exponential().first_pause(HOUR).attempts(7);
    Ok(cx.call(activity, ()).retry(retry).await?)
}

async fn failing(_cx: ActivityContext, (): ()) -> Result<(), ActivityError> {
    Err(ActivityError::retryable("the bank does not answer"))
}

async fn endless(_cx: ActivityContext, (): ()) -> Result<(), ActivityError> {
    pending().await
}
