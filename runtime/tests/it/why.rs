//! Why a run does not go on: each cause in a real run, as it is told and as it is printed.

use std::future::pending;
use std::time::Duration;

use millrun::broker::mailbox::MailboxConfig;
use millrun::broker::{Envelope, Inbox, Overflow, SubscriptionConfig};
use millrun::history::ActivityFailure;
use millrun::operating::{AttemptStanding, InstanceStatus, ParkReason, Wait, WaitsFor, Why};
use millrun::workflow::PublishOutcome;
use millrun::{
    Activity, ActivityContext, ActivityError, Retry, Runtime, Signal, Topic, Workflow, WorkflowContext,
    WorkflowError,
};

use crate::support::{Store, described};

const CALL: Workflow<(), ()> = Workflow::named("call");
const STEP: Activity<(), ()> = Activity::named("step");
const GO: Signal<()> = Signal::named("go");
const WAIT: Workflow<(), ()> = Workflow::named("wait");

async fn call(cx: WorkflowContext, (): ()) -> Result<(), WorkflowError> {
    let retry = Retry::exponential()
        .first_pause(Duration::from_secs(3_600))
        .attempts(7);
    Ok(cx.call(STEP, ()).retry(retry).await?)
}

/// The line on which [`wait`] waits.
const WAIT_LINE: u32 = line!() + 3;

async fn wait(cx: WorkflowContext, (): ()) -> Result<(), WorkflowError> {
    Ok(cx.receive(GO).await?)
}

async fn endless(cx: ActivityContext, (): ()) -> Result<(), ActivityError> {
    cx.heartbeat(&"halfway").unwrap();
    pending().await
}

async fn failing(_cx: ActivityContext, (): ()) -> Result<(), ActivityError> {
    Err(ActivityError::retryable(
        "the bank does not answer\nand that is all",
    ))
}

/// The only thing that the run waits for.
#[track_caller]
fn only(why: &Why) -> &Wait {
    let [wait] = &why.waits[..] else {
        panic!("{why:#?}");
    };
    wait
}

/// Asks why until the answer is as wanted: each question is answered by the shard, so no time needs to pass.
async fn why_until(runtime: &Runtime, id: &str, is_wanted: impl Fn(&Why) -> bool) -> Why {
    loop {
        let why = runtime.attach_untyped(id).unwrap().why().await.unwrap();
        if is_wanted(&why) {
            return why;
        }
        tokio::task::yield_now().await;
    }
}

fn standing(why: &Why) -> &AttemptStanding {
    match &only(why).what {
        WaitsFor::Activity(activity) => &activity.standing,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_attempt_that_runs_and_one_that_is_queued_behind_it_are_told_apart() {
    let runtime = Runtime::volatile()
        .register(CALL, call)
        .register(STEP, endless)
        .configure(|config| config.activities_running_max = 1)
        .start()
        .await
        .unwrap();
    runtime.start(CALL, "first", ()).await.unwrap();
    let first = why_until(
        &runtime,
        "first",
        |why| matches!(&only(why).what, WaitsFor::Activity(activity) if activity.heartbeat.is_some()),
    )
    .await;
    let AttemptStanding::Running {
        since,
        close_at,
        heartbeat_by: None,
    } = *standing(&first)
    else {
        panic!("{first:#?}");
    };
    assert_eq!(close_at, since + Duration::from_secs(600), "the default");
    let WaitsFor::Activity(activity) = &only(&first).what else {
        panic!("{first:#?}");
    };
    assert_eq!(
        (activity.attempt, activity.attempts_max, activity.failures),
        (1, 7, 0)
    );
    assert_eq!(
        activity.heartbeat.as_ref().unwrap().decode::<String>().unwrap(),
        "halfway"
    );
    assert!(only(&first).at.is_some_and(|at| at.file().ends_with("why.rs")));

    runtime.start(CALL, "second", ()).await.unwrap();
    let second = why_until(&runtime, "second", |_| true).await;
    let AttemptStanding::Queued {
        queued_len,
        running_len,
        running_max,
        start_by: None,
        ..
    } = *standing(&second)
    else {
        panic!("{second:#?}");
    };
    assert_eq!((queued_len, running_len, running_max), (1, 1, 1));
    let told = second.to_string();
    assert!(
        told.starts_with(
            "second (call) waits for the activity step: attempt 1 of 7 waits in the queue default, where 1 of 1 run \
             and 1 wait (for "
        ),
        "{told}"
    );
}

#[tokio::test]
async fn an_attempt_that_is_paused_for_names_the_last_error_also_from_disk() {
    let store = Store::new();
    let open = || store.bare().register(CALL, call).register(STEP, failing);
    let runtime = open().start().await.unwrap();
    runtime.start(CALL, "c", ()).await.unwrap();
    for life in 0..2 {
        let why = why_until(&runtime, "c", |why| {
            matches!(standing(why), AttemptStanding::BackingOff { .. })
        })
        .await;
        let WaitsFor::Activity(activity) = &only(&why).what else {
            panic!("{why:#?}");
        };
        assert_eq!((activity.attempt, activity.failures), (2, 1), "life {life}");
        assert!(
            matches!(&activity.last_error, Some(ActivityFailure::Failed { message, .. })
                if message.starts_with("the bank does not answer")),
            "{activity:?}"
        );
        let told = why.to_string();
        assert!(told.contains("attempt 2 of 7 comes in "), "{told}");
        assert!(
            told.contains("; the last one: the bank does not answer…"),
            "one line: {told}"
        );
        assert_eq!(told.lines().count(), 1, "{told}");
    }
    runtime.shutdown().await.unwrap();
    let runtime = open().start().await.unwrap();
    let loads = runtime.stats().loads;
    let why = runtime.attach(CALL, "c").unwrap().why().await.unwrap();
    assert!(why.to_string().contains("the bank does not answer"), "{why}");
    assert!(only(&why).at.is_none(), "its code is not there: {why:#?}");
    assert_eq!(runtime.stats().loads, loads, "nothing was woken");
}

#[tokio::test]
async fn an_activity_and_a_workflow_without_code_are_named() {
    let store = Store::new();
    let runtime = store.bare().register(CALL, call).start().await.unwrap();
    runtime.start(CALL, "c", ()).await.unwrap();
    let why = why_until(&runtime, "c", |_| true).await;
    assert_eq!(*standing(&why), AttemptStanding::NotRegistered);
    assert!(
        why.to_string().contains("step: attempt 1 of 7 has no code"),
        "{why}"
    );
    runtime.shutdown().await.unwrap();

    let runtime = store.bare().start().await.unwrap();
    let why = why_until(&runtime, "c", |_| true).await;
    assert_eq!(why.status, InstanceStatus::NotRegistered);
    assert_eq!(only(&why).what, WaitsFor::Registration);
}

#[tokio::test]
async fn children_are_followed_to_what_holds_them_up() {
    const TREE: Workflow<u32, ()> = Workflow::named("tree");
    async fn tree(cx: WorkflowContext, depth: u32) -> Result<(), WorkflowError> {
        if depth == 0 {
            return Ok(cx.receive(GO).await?);
        }
        let child = cx.child(TREE, format!("{}/{depth}", cx.instance_id()), depth - 1);
        let other = cx.sleep(Duration::from_secs(3_600));
        match depth {
            // Two waits, one of which is for a child.
            3 => {
                let (child, other) = cx.join(child, other).await;
                child?;
                Ok(other?)
            }
            _ => Ok(child.await?),
        }
    }
    let runtime = Runtime::volatile().register(TREE, tree).start().await.unwrap();
    runtime.start(TREE, "t", 3).await.unwrap();
    let leaf = "t/3/2/1";
    let why = why_until(&runtime, "t", |why| {
        why.leaves().iter().any(|(run, _)| run.id.as_str() == leaf)
    })
    .await;
    let leaves = why.leaves();
    let [(first, signal), (root, timer)] = leaves[..] else {
        panic!("{why:#?}");
    };
    assert_eq!((first.id.as_str(), root.id.as_str()), (leaf, "t"));
    assert_eq!(signal.what, WaitsFor::Signal { name: "go".into() });
    assert!(matches!(timer.what, WaitsFor::Timer { .. }));
    let told = why.to_string();
    let lines: Vec<_> = told
        .lines()
        .map(|line| line.split(" (for ").next().unwrap())
        .collect();
    assert_eq!(lines.len(), 6, "{told}");
    assert_eq!(lines[0], "t (tree):");
    assert!(lines[1].ends_with("- waits for the child t/3 (tree)"), "{told}");
    assert_eq!(
        lines[4], "      └ t/3/2/1 (tree) waits for the signal go",
        "{told}"
    );
    assert_eq!(lines[5], "- waits for a timer that fires in 59 min", "{told}");

    runtime.attach(TREE, leaf).unwrap().signal(GO, ()).await.unwrap();
    let why = why_until(&runtime, "t", |why| why.leaves().len() == 1).await;
    assert!(
        matches!(only(&why).what, WaitsFor::Timer { .. }),
        "the child has ended: {why:#?}"
    );
}

#[tokio::test]
async fn more_runs_than_are_described_are_named() {
    const MANY: Workflow<u32, ()> = Workflow::named("many");
    async fn many(cx: WorkflowContext, children: u32) -> Result<(), WorkflowError> {
        let mut set = cx.join_set();
        for number in 0..children {
            set.spawn(cx.child(WAIT, format!("child-{number}"), ()));
        }
        while let Some(ended) = set.next().await {
            ended?;
        }
        Ok(())
    }
    let runtime = Runtime::volatile()
        .register(MANY, many)
        .register(WAIT, wait)
        .start()
        .await
        .unwrap();
    runtime.start(MANY, "m", 100).await.unwrap();
    let described = |why: &Why| {
        let waits = why.waits.iter();
        waits
            .filter(|wait| matches!(&wait.what, WaitsFor::Child { why: Some(_), .. }))
            .count()
    };
    let why = why_until(&runtime, "m", |why| described(why) == 63).await;
    assert_eq!(why.waits.len(), 100);
}

#[tokio::test]
async fn of_many_waits_some_are_told_and_the_others_counted() {
    const MANY: Workflow<(), ()> = Workflow::named("many");
    async fn many(cx: WorkflowContext, (): ()) -> Result<(), WorkflowError> {
        let mut set = cx.join_set();
        for _ in 0..300 {
            set.spawn(cx.sleep(Duration::from_secs(3_600)));
        }
        cx.receive(GO).await?;
        while let Some(ended) = set.next().await {
            ended?;
        }
        Ok(())
    }
    let runtime = Runtime::volatile().register(MANY, many).start().await.unwrap();
    let run = runtime.start(MANY, "m", ()).await.unwrap();
    run.signal(GO, ()).await.unwrap();
    let why = why_until(&runtime, "m", |why| why.waits.len() > 1).await;
    assert_eq!((why.waits.len(), why.more_len), (256, 44));
    let told = why.to_string();
    assert_eq!(told.lines().last(), Some("- and 44 more"));
    assert_eq!(told.lines().count(), 258);
}

#[tokio::test]
async fn what_only_code_knows_is_told_with_its_line_once_the_run_is_awake() {
    const EACH: Workflow<(), ()> = Workflow::named("each");
    async fn each(cx: WorkflowContext, (): ()) -> Result<(), WorkflowError> {
        let state = cx.state(0);
        let promise = cx.promise::<()>();
        let (condition, promise) = cx.join(state.until(|number| *number > 0), promise).await;
        condition?;
        Ok(promise?)
    }
    const UNTIL_CANCELLED: Workflow<(), ()> = Workflow::named("until-cancelled");
    async fn until_cancelled(cx: WorkflowContext, (): ()) -> Result<(), WorkflowError> {
        cx.cancelled().await;
        Ok(())
    }
    let store = Store::new();
    let open = || {
        let builder = store.bare().register(WAIT, wait).register(EACH, each);
        builder.register(UNTIL_CANCELLED, until_cancelled)
    };
    let runtime = open().start().await.unwrap();
    let wait = runtime.start(WAIT, "w", ()).await.unwrap();
    runtime.start(EACH, "e", ()).await.unwrap();
    runtime.start(UNTIL_CANCELLED, "u", ()).await.unwrap();
    let why = wait.why_awake().await.unwrap();
    assert_eq!(only(&why).what, WaitsFor::Signal { name: "go".into() });
    assert_eq!(only(&why).at.map(|at| at.line()), Some(WAIT_LINE));
    assert!(why.to_string().contains(&format!("why.rs:{WAIT_LINE}:")), "{why}");
    let each = runtime.attach(EACH, "e").unwrap().why_awake().await.unwrap();
    let whats: Vec<_> = each.waits.iter().map(|wait| &wait.what).collect();
    assert_eq!(whats, [&WaitsFor::Condition, &WaitsFor::Promise]);
    assert!(each.waits.iter().all(|wait| wait.at.is_some()), "{each:#?}");
    let until = runtime
        .attach(UNTIL_CANCELLED, "u")
        .unwrap()
        .why_awake()
        .await
        .unwrap();
    assert_eq!(only(&until).what, WaitsFor::CancelRequest);
    runtime.shutdown().await.unwrap();

    let runtime = open().start().await.unwrap();
    let wait = runtime.attach(WAIT, "w").unwrap();
    assert_eq!(only(&wait.why().await.unwrap()).what, WaitsFor::Asleep);
    let run = wait.describe().await.unwrap().run;
    let by_run = runtime.why_run(run).await.unwrap();
    assert_eq!((by_run.run, only(&by_run).what.clone()), (run, WaitsFor::Asleep));
    assert_eq!(runtime.stats().loads, 0, "it was not woken");
    let why = wait.why_awake().await.unwrap();
    assert_eq!(only(&why).what, WaitsFor::Signal { name: "go".into() });
    wait.signal(GO, ()).await.unwrap();
    wait.result().await.unwrap();
    let why = wait.why().await.unwrap();
    assert_eq!((why.status, why.waits.len()), (InstanceStatus::Finished, 0));
    assert_eq!(wait.why().await.unwrap().to_string(), "w (wait) has ended");
}

#[tokio::test]
async fn a_parked_run_is_told_with_its_reason_also_if_only_a_replay_finds_it() {
    async fn other(cx: WorkflowContext, (): ()) -> Result<(), WorkflowError> {
        Ok(cx.sleep(Duration::from_secs(3_600)).await?)
    }
    async fn called(cx: WorkflowContext, (): ()) -> Result<(), WorkflowError> {
        cx.sleep(Duration::from_secs(3_600)).await?;
        Ok(cx.receive(GO).await?)
    }
    async fn panicking(cx: WorkflowContext, (): ()) -> Result<(), WorkflowError> {
        cx.receive(GO).await?;
        panic!("nobody may go")
    }
    const PANIC: Workflow<(), ()> = Workflow::named("panic");
    let store = Store::new();
    let runtime = store
        .bare()
        .register(CALL, called)
        .register(PANIC, panicking)
        .configure(|config| config.limits.panics_max = 0)
        .start()
        .await
        .unwrap();
    runtime.start(CALL, "c", ()).await.unwrap();
    let panicking = runtime.start(PANIC, "p", ()).await.unwrap();
    panicking.signal(GO, ()).await.unwrap();
    let why = why_until(&runtime, "p", |why| why.status == InstanceStatus::Parked).await;
    let WaitsFor::Parked {
        reason: Some(ParkReason::Panicked { .. }),
        resumes_at: None,
    } = &only(&why).what
    else {
        panic!("{why:#?}");
    };
    assert!(
        why.to_string().contains("is parked") && why.to_string().contains("nobody may go"),
        "{why}"
    );
    runtime.shutdown().await.unwrap();

    async fn changed(cx: WorkflowContext, input: ()) -> Result<(), WorkflowError> {
        cx.receive(GO).await?;
        other(cx, input).await
    }
    let runtime = store.bare().register(CALL, changed).start().await.unwrap();
    let run = runtime.attach(CALL, "c").unwrap();
    // Brought back, it does not fit; nothing has happened to it, so its history does not say so.
    described(&run, |run| run.status == InstanceStatus::Parked).await;
    let why = run.why().await.unwrap();
    assert_eq!(why.status, InstanceStatus::Parked);
    let WaitsFor::Parked {
        reason: Some(reason), ..
    } = &only(&why).what
    else {
        panic!("{why:#?}");
    };
    assert!(matches!(reason, ParkReason::Nondeterminism(_)), "{reason:?}");
}

#[tokio::test]
async fn a_full_topic_names_who_does_not_drain_it() {
    const PLACED: Topic<u64> = Topic::named("orders.placed");
    const PUBLISH: Workflow<(), ()> = Workflow::named("publish");
    async fn publish(cx: WorkflowContext, (): ()) -> Result<(), WorkflowError> {
        for number in 0..2 {
            assert_eq!(cx.publish(PLACED, number).await?, PublishOutcome::Taken);
        }
        Ok(())
    }
    let runtime = Runtime::volatile()
        .register(PUBLISH, publish)
        .topic(PLACED)
        .start()
        .await
        .unwrap();
    let subscribe = |name: &str, overflow| {
        let config = SubscriptionConfig {
            name: name.into(),
            inbox: MailboxConfig {
                capacity: 1,
                ..MailboxConfig::default()
            },
            overflow,
            ..SubscriptionConfig::default()
        };
        let inbox: Inbox<Envelope<u64>> = runtime.broker().subscribe("orders.placed", config).unwrap();
        inbox
    };
    let slow = subscribe("slow reader", Overflow::Block);
    let _lossy = subscribe("lossy reader", Overflow::DropNewest);
    let run = runtime.start(PUBLISH, "p", ()).await.unwrap();
    let full = |why: &Why| match &why.waits[..] {
        [
            Wait {
                what: WaitsFor::Publish { full, .. },
                ..
            },
        ] => full.clone(),
        _ => Vec::new(),
    };
    let why = why_until(&runtime, "p", |why| !full(why).is_empty()).await;
    let inboxes = full(&why);
    let [inbox] = &inboxes[..] else {
        panic!("{why:#?}");
    };
    assert_eq!(
        (inbox.subscription.as_str(), inbox.queued, inbox.capacity),
        ("slow reader", 1, 1)
    );
    assert!(
        why.to_string()
            .contains("waits for room in the topic orders.placed; slow reader has 1 of 1 still to take"),
        "{why}"
    );
    while run.why().await.unwrap().status != InstanceStatus::Finished {
        slow.take().for_each(drop);
        tokio::task::yield_now().await;
    }
    run.result().await.unwrap();
}

#[tokio::test]
async fn a_topic_without_a_registration_is_named() {
    const PLACED: Topic<u64> = Topic::named("orders.placed");
    const PUBLISH: Workflow<(), ()> = Workflow::named("publish");
    async fn publish(cx: WorkflowContext, (): ()) -> Result<(), WorkflowError> {
        cx.publish(PLACED, 1).await?;
        Ok(())
    }
    let runtime = Runtime::volatile()
        .register(PUBLISH, publish)
        .start()
        .await
        .unwrap();
    runtime.start(PUBLISH, "p", ()).await.unwrap();
    let why = why_until(&runtime, "p", |_| true).await;
    assert!(
        matches!(
            &only(&why).what,
            WaitsFor::Publish {
                is_registered: false,
                ..
            }
        ),
        "{why:#?}"
    );
    assert!(
        why.to_string().contains("orders.placed, which is not registered"),
        "{why}"
    );
}

#[tokio::test]
async fn a_run_that_awaits_something_foreign_is_told_so() {
    const STRAY: Workflow<(), ()> = Workflow::named("stray");
    async fn stray(_cx: WorkflowContext, (): ()) -> Result<(), WorkflowError> {
        pending().await
    }
    let runtime = Runtime::volatile().register(STRAY, stray).start().await.unwrap();
    runtime.start(STRAY, "s", ()).await.unwrap();
    let why = why_until(&runtime, "s", |_| true).await;
    match &only(&why).what {
        WaitsFor::Foreign { .. }
        | WaitsFor::Parked {
            reason: Some(ParkReason::Stuck { .. }),
            ..
        } => {}
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_run_that_there_is_not_is_refused() {
    let runtime = Runtime::volatile().start().await.unwrap();
    let refused = runtime.attach_untyped("nobody").unwrap().why().await;
    assert!(matches!(refused, Err(millrun::RunError::NotFound)), "{refused:?}");
}
