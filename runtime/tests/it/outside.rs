//! The broker joined in, promises, pauses, checkpoints.

use std::sync::Arc;

use millrun::broker::mailbox::MailboxConfig;
use millrun::broker::{Envelope, Inbox, SubscriptionConfig};
use millrun::host::{HostConfig, TokioHost};
use millrun::operating::{InstanceStatus, ParkReason, PendingDescription};
use millrun::store::{Journal, JournalConfig, Reads, RedbJournal, Sequence};
use millrun::workflow::PromiseToken;
use millrun::{
    Activity, ActivityContext, ActivityError, InputRefused, OpenError, Query, RunError, Runtime, Signal,
    Topic, Workflow, WorkflowContext, WorkflowError,
};

use millrun_persistence::Snapshot;
use millrun_testkit::{SimConfig, SimHost};

use crate::support::{Store, described};

const PLACED: Topic<u64> = Topic::named("orders.placed");
const ORDER: Workflow<u64, u64> = Workflow::named("order");
const GO: Signal<u64> = Signal::named("go");
const COUNT: Workflow<u64, u64> = Workflow::named("count");

async fn order(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    cx.publish(PLACED, number).await?;
    Ok(number)
}

fn inbox(runtime: &Runtime, capacity: usize) -> Inbox<Envelope<u64>> {
    let config = SubscriptionConfig {
        inbox: MailboxConfig {
            capacity,
            ..MailboxConfig::default()
        },
        ..SubscriptionConfig::default()
    };
    runtime.broker().subscribe(PLACED.name(), config).unwrap()
}

async fn open(store: &Store) -> Runtime {
    let builder = store.bare().register(ORDER, order).topic(PLACED);
    builder.start().await.unwrap()
}

#[tokio::test]
async fn a_workflow_publishes_once_with_the_key_of_its_step() {
    let store = Store::new();
    let runtime = open(&store).await;
    let inbox = inbox(&runtime, 10);
    let run = runtime.start(ORDER, "o", 7).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 7);
    let envelopes: Vec<_> = inbox.take().collect();
    assert_eq!(envelopes.len(), 1);
    assert_eq!(*envelopes[0].payload(), 7);
    let key = format!("{}-1", run.run_id().unwrap());
    assert_eq!(envelopes[0].key(), Some(&*key));
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_full_topic_parks_those_who_publish_and_nobody_else() {
    const OTHER: Topic<u64> = Topic::named("other");
    const BESIDE: Workflow<u64, u64> = Workflow::named("beside");
    async fn beside(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
        cx.publish(OTHER, number).await?;
        Ok(number)
    }
    let store = Store::new();
    let builder = store.bare().register(ORDER, order).register(BESIDE, beside);
    let builder = builder.topic(PLACED).topic(OTHER);
    let runtime = builder
        .configure(|config| config.hot_len_max = 4)
        .start()
        .await
        .unwrap();
    let inbox = inbox(&runtime, 2);
    let mut runs = Vec::new();
    for number in 0..50 {
        runs.push(
            runtime
                .start(ORDER, &format!("o-{number}"), number)
                .await
                .unwrap(),
        );
    }
    let parked = described(&runs[49], |run| {
        matches!(
            &run.pending[..],
            [PendingDescription::Publish {
                is_parked: true,
                is_registered: true,
                ..
            }]
        )
    });
    assert_eq!(parked.await.status, InstanceStatus::Running);
    let other = runtime.start(BESIDE, "b", 1).await.unwrap();
    assert_eq!(other.result().await.unwrap(), 1);
    // One that gives up is passed over.
    runs[30].terminate("no").await.unwrap();

    let mut receiver = inbox.into_receiver();
    let mut seen = Vec::new();
    while seen.len() < 49 {
        seen.push(*receiver.recv().await.unwrap().payload());
    }
    let expected: Vec<_> = (0..50).filter(|number| *number != 30).collect();
    assert_eq!(seen, expected, "in the order in which they came");
    for (number, run) in (0..).zip(&runs) {
        if number != 30 {
            assert_eq!(run.result().await.unwrap(), number);
        }
    }
    runtime.shutdown().await.unwrap();
}

/// How many instances are in memory, and how many tasks wait for room in a topic, once all runs of
/// this workflow wait.
async fn waiting(publishes: bool, runs: u64) -> (u64, usize) {
    const ASK: Workflow<u64, u64> = Workflow::named("ask");
    async fn ask(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
        Ok(number + cx.receive(GO).await?)
    }
    let builder = Runtime::volatile().register(ORDER, order).register(ASK, ask);
    let runtime = builder
        .topic(PLACED)
        .configure(|config| {
            config.shards_len = 2;
            config.hot_len_max = 100;
        })
        .start()
        .await
        .unwrap();
    let full = inbox(&runtime, 1);
    let workflow = if publishes { ORDER } else { ASK };
    let mut last = None;
    for number in 0..runs {
        let id = format!("o-{number}");
        last = Some(runtime.start(workflow, &id, number).await.unwrap());
    }
    // A turn of each shard behind all starts: what they decided is performed, what waits is unloaded.
    for number in 0..runs {
        let run = runtime.attach(workflow, &format!("o-{number}")).unwrap();
        described(&run, |run| {
            let is_parked = matches!(
                &run.pending[..],
                [PendingDescription::Publish { is_parked: true, .. }]
            );
            is_parked || !run.awaited.is_empty() || run.status == InstanceStatus::Finished
        })
        .await;
    }
    drop((last, full));
    let measured = (runtime.stats().hot, runtime.broker().waiting());
    runtime.shutdown().await.unwrap();
    measured
}

#[tokio::test]
async fn parked_publishers_cost_what_waiting_instances_cost() {
    let (hot_asking, no_task) = waiting(false, 1_000).await;
    let (hot_publishing, tasks) = waiting(true, 1_000).await;
    assert_eq!(no_task, 0);
    assert!((1..=2).contains(&tasks), "{tasks} tasks: one for each shard");
    // Of each shard 100 stay in memory.
    assert!(
        hot_asking <= 200 && hot_publishing <= 200,
        "{hot_asking}, {hot_publishing}"
    );
}

#[tokio::test]
async fn thousands_that_wait_for_room_get_on_when_the_one_who_had_none_leaves() {
    let runtime = Runtime::volatile()
        .register(ORDER, order)
        .topic(PLACED)
        .start()
        .await
        .unwrap();
    let full = inbox(&runtime, 1);
    let mut runs = Vec::new();
    for number in 0..5_000 {
        let id = format!("o-{number}");
        runs.push((number, runtime.start(ORDER, &id, number).await.unwrap()));
    }
    described(&runs[4_999].1, |run| !run.pending.is_empty()).await;
    drop(full);
    for (number, run) in runs {
        assert_eq!(run.result().await.unwrap(), number);
    }
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn those_who_take_the_places_of_publishers_that_gave_up_stand_behind_the_others() {
    let builder = Runtime::volatile().register(ORDER, order).topic(PLACED);
    let runtime = builder
        .configure(|config| {
            config.shards_len = 1;
            config.result_cache_len_max = 0;
        })
        .start()
        .await
        .unwrap();
    let inbox = inbox(&runtime, 1);
    let start = async |number: u64| {
        let run = runtime.start(ORDER, &format!("o-{number}"), number).await;
        let run = run.unwrap();
        if number > 0 {
            described(&run, |run| {
                matches!(
                    &run.pending[..],
                    [PendingDescription::Publish { is_parked: true, .. }]
                )
            })
            .await;
        }
        run
    };
    let mut runs = Vec::new();
    for number in 0..20 {
        runs.push(start(number).await);
    }
    for run in &runs[5..15] {
        run.terminate("no").await.unwrap();
    }
    for number in 20..30 {
        runs.push(start(number).await);
    }
    let mut receiver = inbox.into_receiver();
    for number in (0..5).chain(15..30) {
        assert_eq!(*receiver.recv().await.unwrap().payload(), number);
    }
    assert!(receiver.try_recv().is_none());
    runtime.shutdown().await.unwrap();
}

#[test]
fn a_backlog_that_finds_room_is_published_in_order_a_bounded_number_in_each_turn() {
    const LEN: u64 = 1_500;
    let world = SimHost::new(SimConfig::seeded(3));
    let builder = Runtime::volatile()
        .host(world.host())
        .register(ORDER, order)
        .topic(PLACED)
        .configure(|config| config.shards_len = 1);
    let script = async move {
        let runtime = builder.start().await.unwrap();
        let (full, all) = (inbox(&runtime, 1), inbox(&runtime, 10_000));
        let mut last = None;
        for number in 0..LEN {
            last = Some(
                runtime
                    .start(ORDER, &format!("o-{number}"), number)
                    .await
                    .unwrap(),
            );
        }
        let is_parked = |run: &millrun::operating::InstanceDescription| {
            matches!(
                &run.pending[..],
                [PendingDescription::Publish { is_parked: true, .. }]
            )
        };
        described(&last.unwrap(), is_parked).await;
        (runtime, full, all)
    };
    let (runtime, full, all) = world.block_on(script).unwrap();
    drop(full);
    // Between two steps of this world is at most one turn of the shard.
    let (mut before, mut most) = (all.len(), 0);
    while all.len() < usize::try_from(LEN).unwrap() {
        assert!(world.step(), "{} were published", all.len());
        let now = all.len();
        most = most.max(now - before);
        before = now;
    }
    assert!((2..=256).contains(&most), "{most} in one turn");
    assert!(all.take().map(|envelope| *envelope.payload()).eq(0..LEN));
    world
        .block_on(async { runtime.shutdown().await.unwrap() })
        .unwrap();
}

#[tokio::test]
async fn a_parked_publisher_survives_a_crash_and_what_was_published_is_not_repeated() {
    const TWICE: Workflow<u64, u64> = Workflow::named("twice");
    async fn twice(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
        cx.publish(PLACED, number).await?;
        let go = cx.receive(GO).await?;
        cx.publish(PLACED, go).await?;
        Ok(number + go)
    }
    let store = Store::new();
    let builder = || store.bare().register(TWICE, twice).topic(PLACED);
    let runtime = builder().start().await.unwrap();
    let before = inbox(&runtime, 1);
    let run = runtime.start(TWICE, "t", 1).await.unwrap();
    described(&run, |run| !run.awaited.is_empty()).await;
    run.signal(GO, 2).await.unwrap();
    described(&run, |run| {
        matches!(
            &run.pending[..],
            [PendingDescription::Publish { is_parked: true, .. }]
        )
    })
    .await;
    drop((run, runtime, before));

    // Nobody has subscribed yet when the runtime opens its doors, so a broker of one's own is used.
    let broker = millrun::broker::Broker::without_host(millrun::broker::BrokerConfig::default());
    let after: Inbox<Envelope<u64>> = broker
        .subscribe(PLACED.name(), SubscriptionConfig::default())
        .unwrap();
    let runtime = builder().broker(broker).start().await.unwrap();
    let run = runtime.attach(TWICE, "t").unwrap();
    assert_eq!(run.result().await.unwrap(), 3);
    let seen: Vec<_> = after.take().map(|envelope| *envelope.payload()).collect();
    assert_eq!(seen, [2]);
    runtime.shutdown().await.unwrap();
}

/// A publish to a topic that the runtime did not have was to wait for one that has it. That one took it for
/// a publish that the crash had cut off, told the run that it had been taken, and published nothing.
#[tokio::test]
async fn a_topic_that_is_not_registered_is_waited_for_and_one_of_another_type_refused() {
    let store = Store::new();
    let runtime = store.bare().register(ORDER, order).start().await.unwrap();
    let run = runtime.start(ORDER, "o", 7).await.unwrap();
    // What follows the second answer follows the publish, too.
    for _ in 0..2 {
        let waiting = described(&run, |run| !run.pending.is_empty()).await;
        assert!(
            matches!(
                &waiting.pending[..],
                [PendingDescription::Publish { topic, is_registered: false, .. }] if topic == PLACED.name()
            ),
            "{waiting:?}"
        );
    }
    runtime.shutdown().await.unwrap();
    drop((run, runtime));
    let broker = millrun::broker::Broker::without_host(millrun::broker::BrokerConfig::default());
    let heard: Inbox<Envelope<u64>> = broker
        .subscribe(PLACED.name(), SubscriptionConfig::default())
        .unwrap();
    let builder = store.bare().register(ORDER, order).topic(PLACED).broker(broker);
    let runtime = builder.start().await.unwrap();
    let run = runtime.attach(ORDER, "o").unwrap();
    assert_eq!(run.result().await.unwrap(), 7);
    assert!(heard.take().map(|envelope| *envelope.payload()).eq([7]));
    runtime.shutdown().await.unwrap();

    const TEXT: Topic<String> = Topic::named("orders.placed");
    let builder = Runtime::volatile().topic(PLACED).topic(TEXT);
    let error = builder.start().await.unwrap_err();
    assert!(
        matches!(
            error,
            OpenError::Topic {
                name: "orders.placed",
                ..
            }
        ),
        "{error}"
    );
}

async fn count(cx: WorkflowContext, first: u64) -> Result<u64, WorkflowError> {
    Ok(first + cx.receive(GO).await?)
}

#[tokio::test]
async fn envelopes_start_and_signal_workflows() {
    const PAID: Topic<u64> = Topic::named("orders.paid");
    let store = Store::new();
    let runtime = store.bare().register(COUNT, count).start().await.unwrap();
    let starts = runtime
        .on(PLACED)
        .start(COUNT, |envelope| {
            (format!("c-{}", envelope.payload()), *envelope.payload())
        })
        .unwrap();
    let signals = runtime
        .on(PAID)
        .signal(COUNT, GO, |envelope| (format!("c-{}", envelope.payload()), 100))
        .unwrap();
    let placed = runtime.broker().topic::<u64>(PLACED.name()).unwrap();
    let paid = runtime.broker().topic::<u64>(PAID.name()).unwrap();
    for number in (0..600).chain(0..10) {
        placed.publish(number).await.unwrap();
    }
    while starts.handled() < 610 {
        tokio::task::yield_now().await;
    }
    assert_eq!(runtime.stats().started, 600, "the same event twice starts one");
    for number in (0..600).rev() {
        paid.publish(number).await.unwrap();
    }
    paid.publish(9_999).await.unwrap();
    while signals.handled() < 600 || signals.refused() < 1 {
        tokio::task::yield_now().await;
    }
    for number in 0..600 {
        let run = runtime.attach(COUNT, &format!("c-{number}")).unwrap();
        assert_eq!(run.result().await.unwrap(), number + 100);
    }
    drop(starts);
    placed.publish(1_000).await.unwrap();
    let nobody = runtime.attach(COUNT, "c-1000").unwrap();
    assert!(matches!(nobody.describe().await, Err(RunError::NotFound)));
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_filter_starts_workflows_for_all_the_topics_it_selects() {
    const ALL: Topic<u64> = Topic::named("orders.*.placed");
    let runtime = Runtime::volatile().register(COUNT, count).start().await.unwrap();
    let starts = runtime
        .on(ALL)
        .start(COUNT, |envelope| {
            (format!("c-{}", envelope.payload()), *envelope.payload())
        })
        .unwrap();
    for (number, name) in (0..).zip(["orders.eu.paid", "orders.eu.placed", "orders.us.placed"]) {
        let topic = runtime.broker().topic::<u64>(name).unwrap();
        topic.publish(number).await.unwrap();
    }
    while starts.handled() < 2 {
        tokio::task::yield_now().await;
    }
    drop(starts);
    let live = runtime.list(None, 10).await.unwrap();
    let ids: Vec<_> = live.iter().map(|run| run.id.as_str()).collect();
    assert_eq!(ids, ["c-1", "c-2"]);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_promise_is_kept_from_outside_with_its_token() {
    const MAIL: Activity<PromiseToken, ()> = Activity::named("mail");
    const APPROVAL: Workflow<(), bool> = Workflow::named("approval");
    async fn approval(cx: WorkflowContext, (): ()) -> Result<bool, WorkflowError> {
        let answer = cx.promise::<bool>();
        cx.call(MAIL, answer.token()).await?;
        Ok(answer.await?)
    }
    let store = Store::new();
    let (sender, mut tokens) = tokio::sync::mpsc::unbounded_channel();
    let mail = move |_cx: ActivityContext, token: PromiseToken| {
        sender.send(token.to_string()).unwrap();
        async { Ok::<_, ActivityError>(()) }
    };
    let mail = Arc::new(mail);
    let builder = || {
        let mail = Arc::clone(&mail);
        let builder = store.bare().register(APPROVAL, approval);
        builder.register(MAIL, move |cx: ActivityContext, token| mail(cx, token))
    };
    let runtime = builder().start().await.unwrap();
    let mut runs = Vec::new();
    for number in 0..2 {
        runs.push(runtime.start(APPROVAL, &format!("a-{number}"), ()).await.unwrap());
    }
    let mut token = async || tokens.recv().await.unwrap().parse::<PromiseToken>().unwrap();
    let (first, second) = (token().await, token().await);
    drop((runs, runtime));

    let runtime = builder().start().await.unwrap();
    runtime.keep_promise(first, true).await.unwrap();
    let again = runtime.keep_promise(first, false).await.unwrap_err();
    assert!(
        matches!(again, RunError::Finished | RunError::Refused(InputRefused::Stale)),
        "{again}"
    );
    runtime.break_promise(second, "out of office").await.unwrap();
    let runs = [first, second].map(|token| token.run());
    let mut ends = Vec::new();
    for number in 0..2 {
        let run = runtime.attach(APPROVAL, &format!("a-{number}")).unwrap();
        let of = run.describe().await.unwrap().run;
        ends.push((
            of == runs[0],
            run.result().await.map_err(|error| error.to_string()),
        ));
    }
    ends.sort();
    assert_eq!(
        ends,
        [
            (
                false,
                Err("the workflow failed: the promise was not kept: out of office".into())
            ),
            (true, Ok(true))
        ]
    );
    assert!(matches!(
        runtime.keep_promise(first, true).await,
        Err(RunError::Finished)
    ));
    let unknown: PromiseToken = "00070000000000000000000000000001-3".parse().unwrap();
    assert!(matches!(
        runtime.keep_promise(unknown, true).await,
        Err(RunError::NotFound)
    ));
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_paused_run_stays_paused_across_restarts_until_it_is_resumed() {
    let store = Store::new();
    let runtime = store.bare().register(COUNT, count).start().await.unwrap();
    let run = runtime.start(COUNT, "c", 1).await.unwrap();
    run.pause("a holiday").await.unwrap();
    run.pause("twice").await.unwrap();
    run.signal(GO, 2).await.unwrap();
    let paused = run.describe().await.unwrap();
    assert_eq!(paused.status, InstanceStatus::Parked);
    assert!(matches!(paused.parked, Some(ParkReason::Paused { reason }) if reason == "a holiday"));
    drop((run, runtime));

    let runtime = store.bare().register(COUNT, count).start().await.unwrap();
    let run = runtime.attach(COUNT, "c").unwrap();
    let waiting = tokio::spawn({
        let run = run.clone();
        async move { run.result().await }
    });
    let still = described(&run, |run| run.parked.is_some()).await;
    assert!(matches!(still.parked, Some(ParkReason::Paused { .. })));
    assert!(
        !waiting.is_finished(),
        "whoever waits for the result goes on waiting"
    );
    run.resume().await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap(), 3);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn checkpoints_keep_a_history_short_and_survive_a_crash() {
    const SUM: Query<u64, (), u64> = Query::named("sum");
    async fn summing(cx: WorkflowContext, first: u64) -> Result<u64, WorkflowError> {
        let sum = cx.checkpointed().transpose()?.unwrap_or(first);
        let sum = cx.state(sum);
        for _ in 0..5 {
            match cx.receive(GO).await? {
                0 => return Ok(sum.read(|sum| *sum)),
                number => sum.change(|sum| *sum += number),
            }
        }
        Ok(cx.checkpoint(&sum.read(|sum| *sum)).await?)
    }
    let store = Store::new();
    let code = || COUNT.query(SUM, |sum, ()| *sum);
    let builder = || {
        let builder = store.bare().register(code(), summing);
        builder.configure(|config| config.limits.history_len_max = 20)
    };
    let runtime = builder().start().await.unwrap();
    let run = runtime.start(COUNT, "c", 1_000).await.unwrap();
    for _ in 0..100 {
        run.signal(GO, 1).await.unwrap();
    }
    assert_eq!(run.query(SUM, ()).await.unwrap(), 1_100);
    drop((run, runtime));
    let runtime = builder().start().await.unwrap();
    let run = runtime.attach(COUNT, "c").unwrap();
    assert_eq!(run.query(SUM, ()).await.unwrap(), 1_100);
    for _ in 0..3 {
        run.signal(GO, 1).await.unwrap();
    }
    run.signal(GO, 0).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 1_103);
    runtime.shutdown().await.unwrap();
}

/// Adds up what it is told, and begins again from the sum after each four.
async fn adding(cx: WorkflowContext, first: u64) -> Result<u64, WorkflowError> {
    let mut sum = cx.checkpointed().transpose()?.unwrap_or(first);
    for _ in 0..4 {
        match cx.receive(GO).await? {
            0 => return Ok(sum),
            number => sum += number,
        }
    }
    Ok(cx.checkpoint(&sum).await?)
}

/// The history is longer than one that can be read at once. What stands behind the last kept checkpoint is
/// enough; where nothing is kept, the run is not brought back.
#[tokio::test]
async fn a_run_that_makes_checkpoints_is_brought_back_however_long_its_history_is() {
    for (every, keep_history, is_brought_back) in [(16, false, true), (16, true, true), (0, false, false)] {
        let store = Store::new();
        let builder = |history_bytes_max| {
            let builder = store.bare().register(COUNT, adding);
            builder.configure(move |config| {
                config.limits.kept_beginning_every = every;
                config.keep_history = keep_history;
                config.journal.history_bytes_max = history_bytes_max;
            })
        };
        let runtime = builder(1 << 20).start().await.unwrap();
        let run = runtime.start(COUNT, "c", 0).await.unwrap();
        for _ in 0..400 {
            run.signal(GO, 1).await.unwrap();
        }
        drop((run, runtime));

        let runtime = builder(8_192).start().await.unwrap();
        let run = runtime.attach(COUNT, "c").unwrap();
        assert_eq!(run.signal(GO, 1).await.is_ok(), is_brought_back);
        if is_brought_back {
            assert_eq!(runtime.stats().loads, 1);
            run.signal(GO, 0).await.unwrap();
            assert_eq!(run.result().await.unwrap(), 401);
        }
        runtime.shutdown().await.unwrap();
    }
}

/// What is kept is a help: if it cannot be read, or says of another event than its place does, the history is
/// enough.
#[tokio::test]
async fn what_was_kept_of_a_history_may_be_lost_or_spoilt() {
    let store = Store::new();
    let builder = || {
        let builder = store.bare().register(COUNT, adding);
        builder.configure(|config| {
            config.limits.kept_beginning_every = 16;
            config.keep_history = true;
        })
    };
    let runtime = builder().start().await.unwrap();
    let run = runtime.start(COUNT, "c", 0).await.unwrap();
    for _ in 0..100 {
        run.signal(GO, 1).await.unwrap();
    }
    let run_id = run.run_id().unwrap();
    runtime.shutdown().await.unwrap();
    let mut sum = 100;
    for spoil in 0..4 {
        let owner = TokioHost::spawn(HostConfig::default()).await.unwrap();
        let config = JournalConfig::default();
        let journal = RedbJournal::open(store.path(), config, owner.host()).unwrap();
        let kept = journal.snapshot(run_id).unwrap().unwrap();
        match spoil {
            0 => {
                let bytes = kept.bytes.slice(..kept.bytes.len() - 1);
                journal.put_snapshot(Snapshot { bytes, ..kept }).unwrap();
            }
            1 => {
                let bytes = [&[9], &kept.bytes[1..]].concat().into();
                journal.put_snapshot(Snapshot { bytes, ..kept }).unwrap();
            }
            2 => {
                let sequence = Sequence::new(kept.sequence.get() - 1);
                journal.put_snapshot(Snapshot { sequence, ..kept }).unwrap();
            }
            _ => journal.delete_snapshot(run_id).unwrap(),
        }
        journal.close().unwrap();
        drop((journal, owner));
        let runtime = builder().start().await.unwrap();
        let run = runtime.attach(COUNT, "c").unwrap();
        run.signal(GO, 1).await.unwrap();
        sum += 1;
        assert_eq!(run.describe().await.unwrap().status, InstanceStatus::Running);
        if spoil == 3 {
            run.signal(GO, 0).await.unwrap();
            assert_eq!(run.result().await.unwrap(), sum);
        } else {
            // The next one that is kept is sound again.
            for _ in 0..20 {
                run.signal(GO, 1).await.unwrap();
                sum += 1;
            }
        }
        runtime.shutdown().await.unwrap();
    }
}
