//! Parts that fail: shards are restarted and lose nothing, the timers' and the journal's failure
//! stops the runtime, and every handle says why.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Waker};
use std::time::Duration;

use millrun::broker::mailbox::MailboxConfig;
use millrun::broker::{Envelope, Inbox, Receiver, SubscriptionConfig};
use millrun::host::{
    Bell, Host, Next, OnExit, Part, PartExit, PartHandle, Placement, SpawnError, Stop, Task, TaskHandle,
    TokioHost,
};
use millrun::operating::{PartChange, PartEvent};
use millrun::store::{MemoryJournal, RedbJournal};
use millrun::workflow::PublishOutcome;
use millrun::{
    OpenError, ResultError, RunError, Runtime, StartError, StopCause, Timestamp, Topic, Workflow,
    WorkflowContext, WorkflowError,
};
use millrun_persistence::{FailureKind, Journal, JournalConfig};
use millrun_testkit::{SimConfig, SimHost};

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
    let owner = TokioHost::spawn(millrun::host::HostConfig::default())
        .await
        .unwrap();
    let journal = RedbJournal::open(store.path(), JournalConfig::default(), owner.host()).unwrap();
    survives_failing_shards(Arc::new(journal)).await;
}

const SAID: Topic<u64> = Topic::named("said");
const SAY: Workflow<u64, u64> = Workflow::named("say");

async fn say(cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> {
    for value in [number, number + 1_000] {
        // What a shard has handed to topics outlives it: its runs are told what became of it.
        if cx.publish(SAID, value).await? != PublishOutcome::Taken {
            return Err(WorkflowError::failed("nobody knows whether it was heard"));
        }
    }
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
    let owner = TokioHost::spawn(millrun::host::HostConfig::default())
        .await
        .unwrap();
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
    let owner = TokioHost::spawn(millrun::host::HostConfig::default())
        .await
        .unwrap();
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
    let owner = TokioHost::spawn(millrun::host::HostConfig::default())
        .await
        .unwrap();
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
    let owner = TokioHost::spawn(millrun::host::HostConfig::default())
        .await
        .unwrap();
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

fn memory() -> Arc<dyn Journal> {
    Arc::new(MemoryJournal::new(JournalConfig::default()).unwrap())
}

/// How often the first shard was restarted.
fn restarts(runtime: &Runtime) -> u64 {
    let parts = runtime.parts();
    let shard = parts.iter().find(|part| part.name == "shard 0").unwrap();
    shard.restarts.into()
}

#[tokio::test]
async fn a_shard_that_cannot_read_its_runs_is_restarted_until_it_can() {
    let journal = Tapped::panicking(memory(), []);
    let builder = Runtime::volatile().register(DOUBLE, double);
    let builder = builder.register(QUADRUPLE, quadruple).journal(journal.clone());
    let runtime = builder.start().await.unwrap();
    journal.fail_recoveries(2);
    runtime.kill("shard 0").unwrap();
    assert_eq!(start_until_answered(&runtime, "q", 1).await, 4);
    assert_eq!(restarts(&runtime), 3);
    runtime.shutdown().await.unwrap();
}

/// It used to end as if it had been asked to, and nobody who asked it got an answer.
#[tokio::test]
async fn a_shard_that_never_can_read_its_runs_stops_the_runtime_with_the_cause() {
    let journal = Tapped::panicking(memory(), []);
    let builder = Runtime::volatile().register(DOUBLE, double);
    let builder = builder.register(QUADRUPLE, quadruple).journal(journal.clone());
    let runtime = builder.start().await.unwrap();
    journal.fail_recoveries(u64::MAX);
    runtime.kill("shard 0").unwrap();
    let error = runtime.start(QUADRUPLE, "q", 1).await.unwrap_err();
    assert!(
        matches!(&error, StartError::Stopped(StopCause::Part { part, message })
            if &**part == "shard 0" && message.contains("cannot be read") && message.contains("as told")),
        "{error:?}"
    );
}

type Asked<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

/// A start that waits at its shard.
fn asked(runtime: &Runtime) -> Asked<millrun::RunHandle<u64>, StartError> {
    let runtime = runtime.clone();
    let mut start: Asked<_, _> = Box::pin(async move { runtime.start(QUADRUPLE, "q", 1).await });
    let polled = start.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending());
    start
}

type Hook = Box<dyn Fn() + Send + Sync>;

/// A host that does something before it starts the first shard anew, and before it tells anybody that it has
/// ended; and that gives the shard turns only as long as it is not `stuck`.
#[derive(Default)]
struct Watching {
    inner: OnceLock<Arc<dyn Host>>,
    starts: AtomicU64,
    before_restart: OnceLock<Hook>,
    before_end: Arc<OnceLock<Hook>>,
    is_stuck: Arc<AtomicBool>,
}

struct Sticky(Box<dyn Part>, Arc<AtomicBool>);

impl Part for Sticky {
    fn turn(&mut self, now: Timestamp, budget: usize) -> Next {
        if self.1.load(Ordering::SeqCst) {
            return Next::Idle;
        }
        self.0.turn(now, budget)
    }
}

impl Watching {
    fn on(inner: Arc<dyn Host>) -> Arc<Self> {
        let watching = Self::default();
        assert!(watching.inner.set(inner).is_ok());
        Arc::new(watching)
    }

    fn inner(&self) -> &dyn Host {
        self.inner.get().unwrap().as_ref()
    }
}

impl std::fmt::Debug for Watching {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Watching").field(&self.inner).finish()
    }
}

impl Host for Watching {
    fn now(&self) -> Timestamp {
        self.inner().now()
    }

    fn elapsed(&self) -> Duration {
        self.inner().elapsed()
    }

    fn random(&self) -> u64 {
        self.inner().random()
    }

    fn spawn(&self, name: &'static str, task: Task) -> TaskHandle {
        self.inner().spawn(name, task)
    }

    fn sleep_until(&self, deadline: Timestamp) -> Task {
        self.inner().sleep_until(deadline)
    }

    fn spawn_part(
        &self,
        name: &str,
        placement: Placement,
        bell: Bell,
        part: Box<dyn Part>,
        on_exit: OnExit,
    ) -> Result<PartHandle, SpawnError> {
        if name != "shard 0" {
            return self.inner().spawn_part(name, placement, bell, part, on_exit);
        }
        if self.starts.fetch_add(1, Ordering::SeqCst) > 0
            && let Some(hook) = self.before_restart.get()
        {
            hook();
        }
        let before_end = Arc::clone(&self.before_end);
        let on_exit: OnExit = Box::new(move |exit| {
            if let Some(hook) = before_end.get() {
                hook();
            }
            on_exit(exit);
        });
        let part = Box::new(Sticky(part, Arc::clone(&self.is_stuck)));
        self.inner().spawn_part(name, placement, bell, part, on_exit)
    }
}

#[test]
fn requests_at_a_shard_that_is_restarted_are_answered_when_the_journal_fails_meanwhile() {
    for seed in 0..20 {
        let world = SimHost::new(SimConfig::seeded(seed));
        let host = Watching::on(world.host());
        let journal = Arc::new(MemoryJournal::new(JournalConfig::default()).unwrap());
        let failing = Arc::clone(&journal);
        let hook: Hook =
            Box::new(move || failing.fail(FailureKind::Io(std::io::ErrorKind::Other), "the disk is gone"));
        assert!(host.before_restart.set(hook).is_ok());
        let builder = Runtime::volatile().register(QUADRUPLE, quadruple);
        let builder = builder.host(host.clone()).journal(journal);
        let script = async {
            let runtime = builder.start().await.unwrap();
            host.is_stuck.store(true, Ordering::SeqCst);
            let start = asked(&runtime);
            runtime.kill("shard 0").unwrap();
            // The successor has its turns.
            host.is_stuck.store(false, Ordering::SeqCst);
            (start.await.unwrap_err(), runtime)
        };
        let (error, runtime) = world.block_on(script).unwrap();
        assert!(
            matches!(&error, StartError::Stopped(StopCause::Journal(failure)) if failure.to_string() == "the disk is gone"),
            "{error:?}"
        );
        drop(runtime);
    }
}

/// A shard that was being restarted was taken for one that has nothing left to do.
#[tokio::test]
async fn a_shutdown_waits_for_a_shard_that_is_being_restarted() {
    let owner = TokioHost::spawn(millrun::host::HostConfig::default())
        .await
        .unwrap();
    let host = Watching::on(owner.host());
    let builder = Runtime::volatile().register(DOUBLE, double);
    let builder = builder.register(QUADRUPLE, quadruple).host(host.clone());
    let runtime = builder.start().await.unwrap();
    host.is_stuck.store(true, Ordering::SeqCst);
    let start = asked(&runtime);
    runtime.kill("shard 0").unwrap();

    // The shutdown is as far as it gets while there is neither the shard nor its successor.
    let closing = runtime.clone();
    let shutdown: Asked<_, _> = Box::pin(async move { closing.shutdown().await });
    let shutdown = Arc::new(Mutex::new(shutdown));
    let (begun, is_stuck) = (Arc::clone(&shutdown), Arc::clone(&host.is_stuck));
    let hook: Hook = Box::new(move || {
        let mut shutdown = begun.lock().unwrap();
        let polled = shutdown.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
        is_stuck.store(false, Ordering::SeqCst);
    });
    assert!(host.before_restart.set(hook).is_ok());
    let run = start.await.unwrap();
    assert_eq!(restarts(&runtime), 1);
    let ended = std::future::poll_fn(|cx| shutdown.lock().unwrap().as_mut().poll(cx)).await;
    assert_eq!(ended.unwrap().activities_cut, 0);
    assert!(matches!(
        run.result().await,
        Err(ResultError::Run(RunError::Stopped(StopCause::Shutdown)))
    ));
}

#[test]
fn requests_at_a_shard_that_a_shutdown_leaves_behind_are_answered() {
    let world = SimHost::new(SimConfig::seeded(0));
    let host = Watching::on(world.host());
    let builder = Runtime::volatile()
        .register(QUADRUPLE, quadruple)
        .host(host.clone());
    let script = async {
        let runtime = builder.start().await.unwrap();
        host.is_stuck.store(true, Ordering::SeqCst);
        let start = asked(&runtime);
        let report = runtime.shutdown().await.unwrap();
        assert_eq!(report.activities_cut, 0);
        start.await.unwrap_err()
    };
    let error = world.block_on(script).unwrap();
    assert!(
        matches!(error, StartError::Stopped(StopCause::Shutdown)),
        "{error:?}"
    );
}

/// The successor, which had done nothing, was counted as killed when it ended with the runtime.
#[tokio::test]
async fn killing_a_part_that_has_just_failed_does_not_make_the_end_of_its_successor_a_failure() {
    let owner = TokioHost::spawn(millrun::host::HostConfig::default())
        .await
        .unwrap();
    let host = Watching::on(owner.host());
    let builder = Runtime::volatile().register(DOUBLE, double);
    let builder = builder.register(QUADRUPLE, quadruple).host(host.clone());
    let runtime = builder
        .journal(Tapped::panicking(memory(), [0]))
        .start()
        .await
        .unwrap();
    let killed = Arc::new(AtomicU64::new(0));
    let (killing, kills) = (runtime.clone(), Arc::clone(&killed));
    let hook: Hook = Box::new(move || {
        if kills.fetch_add(1, Ordering::SeqCst) == 0 {
            killing.kill("shard 0").unwrap();
        }
    });
    assert!(host.before_end.set(hook).is_ok());
    assert_eq!(start_until_answered(&runtime, "q", 1).await, 4);
    runtime.shutdown().await.unwrap();
    assert_eq!((killed.load(Ordering::SeqCst), restarts(&runtime)), (2, 1));
}
