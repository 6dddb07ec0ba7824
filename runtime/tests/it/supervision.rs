//! Parts that fail: shards are restarted and lose nothing, the timers' and the journal's failure
//! stops the runtime, and every handle says why.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millrun::broker::mailbox::MailboxConfig;
use millrun::broker::{Envelope, Inbox, Receiver, SubscriptionConfig};
use millrun::{
    Bell, Host, MemoryJournal, Next, OnExit, OpenError, Part, PartChange, PartEvent, PartExit, PartHandle,
    Placement, RedbJournal, ResultError, RunError, Runtime, SpawnError, StartError, Stop, StopCause, Task,
    TaskHandle, Timestamp, TokioHost, Topic, Workflow, WorkflowContext, WorkflowError,
};
use millrun_persistence::{FailureKind, Journal, JournalConfig};

use crate::support::{DOUBLE, QUADRUPLE, Store, double, quadruple};
use crate::tapped::Tapped;

async fn start_until_answered(runtime: &Runtime, id: &str, number: u64) -> u64 {
    answered(runtime, QUADRUPLE, id, number).await
}

/// Repeats a start until it is answered, as a client does.
async fn answered(runtime: &Runtime, workflow: Workflow<u64, u64>, id: &str, number: u64) -> u64 {
    loop {
        match runtime.start(workflow, id, number).await {
            Ok(run) => match run.result().await {
                Ok(value) => return value,
                Err(ResultError::Run(RunError::Stopped(StopCause::Part { .. }))) => {}
                Err(error) => panic!("{error}"),
            },
            Err(StartError::Stopped(StopCause::Part { .. })) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

async fn survives_failing_shards(journal: Arc<dyn Journal>) {
    let journal = Tapped::panicking(journal, [3, 9, 10, 40]);
    let builder = Runtime::volatile()
        .register(DOUBLE, double)
        .register(QUADRUPLE, quadruple);
    let runtime = builder.journal(journal).start().await.unwrap();
    let mut tasks = Vec::new();
    for number in 0..100 {
        let runtime = runtime.clone();
        tasks.push(tokio::spawn(async move {
            assert_eq!(
                start_until_answered(&runtime, &format!("q-{number}"), number).await,
                number * 4
            );
        }));
        tokio::task::yield_now().await;
    }
    for task in tasks {
        task.await.unwrap();
    }
    let shard = runtime
        .parts()
        .into_iter()
        .find(|part| part.name == "shard 0")
        .unwrap();
    assert!(shard.is_running && shard.restarts >= 1, "{shard:?}");
    assert_eq!(runtime.stats().live, 0);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_shard_that_fails_is_restarted_and_loses_nothing_in_memory() {
    survives_failing_shards(Arc::new(MemoryJournal::new(JournalConfig::default()).unwrap())).await;
}

#[tokio::test]
async fn a_shard_that_fails_is_restarted_and_loses_nothing_on_disk() {
    let store = Store::new();
    let owner = TokioHost::spawn(millrun::HostConfig::default()).await.unwrap();
    let journal = RedbJournal::open(store.path(), JournalConfig::default(), owner.host()).unwrap();
    survives_failing_shards(Arc::new(journal)).await;
}

const SAID: Topic<u64> = Topic::named("said");
const SAY: Workflow<u64, u64> = Workflow::named("say");

async fn say(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    cx.publish(SAID, number).await?;
    cx.publish(SAID, number + 1_000).await?;
    Ok(number)
}

/// Takes what is there. Whether there was nothing.
fn said_all(receiver: &mut Receiver<Envelope<u64>>, said: &mut Vec<u64>) -> bool {
    let before = said.len();
    while let Some(envelope) = receiver.try_recv() {
        said.push(*envelope.payload());
    }
    said.len() == before
}

/// What a subscriber with this much room receives from a hundred runs while their shard fails.
async fn said_while_shards_fail(capacity: usize) -> Vec<u64> {
    let store = Store::new();
    let owner = TokioHost::spawn(millrun::HostConfig::default()).await.unwrap();
    let journal = RedbJournal::open(store.path(), JournalConfig::default(), owner.host()).unwrap();
    let journal = Tapped::panicking(Arc::new(journal), [4, 9, 10, 17, 40]);
    let builder = Runtime::volatile().register(SAY, say).topic(SAID);
    let runtime = builder.journal(journal).start().await.unwrap();
    let config = SubscriptionConfig {
        inbox: MailboxConfig {
            capacity,
            ..MailboxConfig::default()
        },
        ..SubscriptionConfig::default()
    };
    let inbox: Inbox<Envelope<u64>> = runtime.broker().subscribe(SAID.name(), config).unwrap();
    let mut receiver = inbox.into_receiver();
    let mut tasks = Vec::new();
    for number in 0..100 {
        let runtime = runtime.clone();
        tasks.push(tokio::spawn(async move {
            let id = format!("s-{number}");
            assert_eq!(answered(&runtime, SAY, &id, number).await, number);
        }));
        tokio::task::yield_now().await;
    }
    let mut said = Vec::new();
    for task in &mut tasks {
        let mut is_done = false;
        while !is_done {
            tokio::select! {
                done = &mut *task => {
                    done.unwrap();
                    is_done = true;
                }
                envelope = receiver.recv() => said.push(*envelope.expect("the topic is open").payload()),
            }
        }
    }
    // What was said twice may still wait for room.
    while runtime.broker().waiting() > 0 || !said_all(&mut receiver, &mut said) {
        tokio::task::yield_now().await;
    }
    runtime.shutdown().await.unwrap();
    said_all(&mut receiver, &mut said);
    said.sort_unstable();
    said
}

#[tokio::test]
async fn a_shard_that_fails_neither_loses_nor_repeats_what_its_runs_publish() {
    let expected: Vec<u64> = (0..100).chain(1_000..1_100).collect();
    for capacity in [1, 1_000] {
        assert_eq!(said_while_shards_fail(capacity).await, expected, "{capacity}");
    }
}

#[tokio::test]
async fn a_shard_that_fails_again_and_again_stops_the_runtime() {
    let journal = Arc::new(MemoryJournal::new(JournalConfig::default()).unwrap());
    let builder = Runtime::volatile()
        .register(DOUBLE, double)
        .register(QUADRUPLE, quadruple);
    let runtime = builder
        .journal(Tapped::panicking(journal, 0..1_000))
        .start()
        .await
        .unwrap();
    let cause = loop {
        match runtime.start(QUADRUPLE, "q", 1).await {
            Err(StartError::Stopped(cause)) if runtime.stop_cause().is_some() => break cause,
            Err(StartError::Stopped(_)) => {}
            other => panic!("{other:?}"),
        }
    };
    assert!(
        matches!(&cause, StopCause::Part { part, message } if &**part == "shard 0" && message.contains("as told"))
    );
    let run = runtime.attach(QUADRUPLE, "q").unwrap();
    assert!(matches!(
        run.result().await,
        Err(ResultError::Run(RunError::Stopped(StopCause::Part { .. })))
    ));
}

/// A host that gives the part of this name a turn that panics.
#[derive(Debug)]
struct Sabotaging {
    inner: Arc<dyn Host>,
    part: &'static str,
}

struct PanicsAtOnce;

impl Part for PanicsAtOnce {
    fn turn(&mut self, _now: Timestamp, _budget: usize) -> Next {
        panic!("sabotaged")
    }
}

impl Host for Sabotaging {
    fn now(&self) -> Timestamp {
        self.inner.now()
    }

    fn elapsed(&self) -> Duration {
        self.inner.elapsed()
    }

    fn random(&self) -> u64 {
        self.inner.random()
    }

    fn spawn(&self, name: &'static str, task: Task) -> TaskHandle {
        self.inner.spawn(name, task)
    }

    fn sleep_until(&self, deadline: Timestamp) -> Task {
        self.inner.sleep_until(deadline)
    }

    fn spawn_part(
        &self,
        name: &str,
        placement: Placement,
        bell: Bell,
        part: Box<dyn Part>,
        on_exit: OnExit,
    ) -> Result<PartHandle, SpawnError> {
        let part = if name == self.part {
            Box::new(PanicsAtOnce)
        } else {
            part
        };
        self.inner.spawn_part(name, placement, bell, part, on_exit)
    }
}

#[tokio::test]
async fn failing_timers_stop_the_runtime_with_their_cause() {
    let owner = TokioHost::spawn(millrun::HostConfig::default()).await.unwrap();
    let host = Arc::new(Sabotaging {
        inner: owner.host(),
        part: "timers",
    });
    let builder = Runtime::volatile()
        .register(DOUBLE, double)
        .register(QUADRUPLE, quadruple);
    let runtime = match builder.host(host).start().await {
        Ok(runtime) => runtime,
        Err(OpenError::Stopped(StopCause::Part { .. })) => return,
        Err(error) => panic!("{error}"),
    };
    while runtime.stop_cause().is_none() {
        tokio::task::yield_now().await;
    }
    let error = runtime.start(QUADRUPLE, "q", 1).await.unwrap_err();
    assert!(
        matches!(&error, StartError::Stopped(StopCause::Part { part, message }) if &**part == "timers" && &**message == "sabotaged"),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_failing_pool_is_restarted() {
    let owner = TokioHost::spawn(millrun::HostConfig::default()).await.unwrap();
    /// Sabotages the first pool only.
    #[derive(Debug)]
    struct Once(Sabotaging, AtomicU64);
    impl Host for Once {
        fn now(&self) -> Timestamp {
            self.0.now()
        }
        fn elapsed(&self) -> Duration {
            self.0.elapsed()
        }
        fn random(&self) -> u64 {
            self.0.random()
        }
        fn spawn(&self, name: &'static str, task: Task) -> TaskHandle {
            self.0.spawn(name, task)
        }
        fn sleep_until(&self, deadline: Timestamp) -> Task {
            self.0.sleep_until(deadline)
        }
        fn spawn_part(
            &self,
            name: &str,
            placement: Placement,
            bell: Bell,
            part: Box<dyn Part>,
            on_exit: OnExit,
        ) -> Result<PartHandle, SpawnError> {
            let is_first = name == "pool default" && self.1.fetch_add(1, Ordering::SeqCst) == 0;
            let host: &dyn Host = if is_first { &self.0 } else { self.0.inner.as_ref() };
            host.spawn_part(name, placement, bell, part, on_exit)
        }
    }
    let host = Arc::new(Once(
        Sabotaging {
            inner: owner.host(),
            part: "pool default",
        },
        AtomicU64::new(0),
    ));
    let builder = Runtime::volatile()
        .register(DOUBLE, double)
        .register(QUADRUPLE, quadruple);
    let runtime = builder.host(host).start().await.unwrap();
    assert_eq!(
        runtime
            .start(QUADRUPLE, "q", 1)
            .await
            .unwrap()
            .result()
            .await
            .unwrap(),
        4
    );
    let pool = runtime
        .parts()
        .into_iter()
        .find(|part| part.name == "pool default")
        .unwrap();
    assert_eq!((pool.is_running, pool.restarts), (true, 1));
    runtime.shutdown().await.unwrap();
}

/// A part that ended before the supervisor had its handle was taken for running ever after: the handle of
/// the one that had gone took the place of its successor's, and a shutdown waited for it.
#[tokio::test]
async fn a_part_that_ends_while_it_is_started_is_restarted_and_its_successor_can_be_killed() {
    #[derive(Debug)]
    struct Hasty(Arc<dyn Host>, AtomicU64);
    struct Gone;
    impl Stop for Gone {
        fn stop(&self) {
            panic!("the supervisor takes it for running");
        }
    }
    impl Host for Hasty {
        fn now(&self) -> Timestamp {
            self.0.now()
        }
        fn elapsed(&self) -> Duration {
            self.0.elapsed()
        }
        fn random(&self) -> u64 {
            self.0.random()
        }
        fn spawn(&self, name: &'static str, task: Task) -> TaskHandle {
            self.0.spawn(name, task)
        }
        fn sleep_until(&self, deadline: Timestamp) -> Task {
            self.0.sleep_until(deadline)
        }
        fn spawn_part(
            &self,
            name: &str,
            placement: Placement,
            bell: Bell,
            part: Box<dyn Part>,
            on_exit: OnExit,
        ) -> Result<PartHandle, SpawnError> {
            if name == "pool default" && self.1.fetch_add(1, Ordering::SeqCst) == 0 {
                on_exit(PartExit::Panicked("at once".into()));
                return Ok(PartHandle::new(Gone));
            }
            self.0.spawn_part(name, placement, bell, part, on_exit)
        }
    }
    let owner = TokioHost::spawn(millrun::HostConfig::default()).await.unwrap();
    let host = Arc::new(Hasty(owner.host(), AtomicU64::new(0)));
    let builder = Runtime::volatile()
        .register(DOUBLE, double)
        .register(QUADRUPLE, quadruple);
    let runtime = builder
        .host(Arc::clone(&host) as Arc<dyn Host>)
        .start()
        .await
        .unwrap();
    runtime.kill("pool default").unwrap();
    while host.1.load(Ordering::SeqCst) < 3 {
        tokio::task::yield_now().await;
    }
    let run = runtime.start(QUADRUPLE, "q", 1).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 4);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_failing_journal_stops_the_runtime_with_its_cause() {
    let journal = Arc::new(MemoryJournal::new(JournalConfig::default()).unwrap());
    let builder = Runtime::volatile().register(QUADRUPLE, quadruple);
    let runtime = builder
        .journal(Arc::clone(&journal) as Arc<dyn Journal>)
        .start()
        .await
        .unwrap();
    let events = runtime
        .broker()
        .subscribe::<PartEvent>("millrun.parts", SubscriptionConfig::default());
    let mut events = events.unwrap().into_receiver();
    // Its activity is not registered, so this one is under way when the journal fails.
    let run = runtime.start(QUADRUPLE, "q", 1).await.unwrap();
    let waiting = tokio::spawn({
        let run = run.clone();
        async move { run.result().await }
    });
    tokio::task::yield_now().await;
    journal.fail(FailureKind::Io(std::io::ErrorKind::Other), "the disk is gone");
    let answer = waiting.await.unwrap();
    assert!(
        matches!(&answer, Err(ResultError::Run(RunError::Stopped(StopCause::Journal(failure)))) if failure.to_string() == "the disk is gone"),
        "{answer:?}"
    );
    let told = events.recv().await.unwrap();
    let PartEvent { part, change, .. } = told.payload();
    let message = "the disk is gone".to_owned();
    assert_eq!((&**part, change), ("journal", &PartChange::Failed { message }));
    let parts = runtime.parts();
    assert!(
        parts
            .iter()
            .any(|part| part.name == "journal" && !part.is_running),
        "{parts:?}"
    );
    assert!(matches!(
        run.terminate("late").await,
        Err(RunError::Stopped(StopCause::Journal(_)))
    ));
    assert!(matches!(
        runtime.start(QUADRUPLE, "r", 1).await,
        Err(StartError::Stopped(StopCause::Journal(_)))
    ));
    assert!(matches!(runtime.stop_cause(), Some(StopCause::Journal(_))));
    assert!(matches!(runtime.shutdown().await, Err(StopCause::Journal(_))));
}
