//! The end of a runtime, whichever it is: everybody is told, with the cause, and nothing hangs.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use millrun::broker::{
    AskError, Broker, BrokerConfig, PublishError, Request, SubscribeError, SubscriptionConfig,
};
use millrun::{
    HostConfig, Implementation, Journal, JournalConfig, KillError, MemoryJournal, OnConflict, OpenError,
    PromiseToken, Query, QueryError, RedbJournal, ResultError, RunError, RunHandle, Runtime, RuntimeBuilder,
    Signal, StartError, StartWithSignalError, StopCause, TokioHost, Topic, Update, UpdateError, Workflow,
    WorkflowContext, WorkflowError,
};
use millrun_persistence::{Disk, FailureKind, FileDisk};
use millrun_testkit::{SimConfig, SimHost};
use tokio::runtime::Builder;
use tracing::field::Field;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::elsewhere::{Executor, HANGS_AFTER, on_thread};
use crate::support::Store;
use crate::tapped::Tapped;

const TALLY: Workflow<u64, u64> = Workflow::named("tally");
const FULL: Query<u64, (), u64> = Query::named("full");
const ADD: Update<u64, u64, u64> = Update::named("add");
const GO: Signal<u64> = Signal::named("go");
const TOPIC: Topic<u64> = Topic::named("orders");
/// The part of a promise's token behind its run's number.
const FIRST_OPERATION: &str = "1";

/// Waits for a signal, unless it begins with zero.
async fn tally(cx: WorkflowContext, first: u64) -> Result<u64, WorkflowError> {
    let state = cx.state(first);
    if first > 0 {
        let more = cx.receive(GO).await?;
        state.change(|sum| *sum += more);
    }
    Ok(state.read(|sum| *sum))
}

fn code(builder: RuntimeBuilder) -> RuntimeBuilder {
    let tally = Implementation::new(TALLY, tally);
    let tally = tally.query(FULL, |sum, ()| *sum).update(
        ADD,
        |_, _| Ok(()),
        |sum, more| {
            *sum += more;
            *sum
        },
    );
    builder.implement(tally)
}

type Run = RunHandle<u64>;

/// Gives the cause that an error names.
trait Names {
    fn cause(&self) -> Option<&StopCause>;
}

impl Names for RunError {
    fn cause(&self) -> Option<&StopCause> {
        match self {
            Self::Stopped(cause) => Some(cause),
            _ => None,
        }
    }
}

impl Names for StartError {
    fn cause(&self) -> Option<&StopCause> {
        match self {
            Self::Stopped(cause) => Some(cause),
            _ => None,
        }
    }
}

impl Names for StartWithSignalError {
    fn cause(&self) -> Option<&StopCause> {
        match self {
            Self::Start(error) => error.cause(),
            Self::Signal(error) => error.cause(),
            _ => None,
        }
    }
}

impl Names for QueryError {
    fn cause(&self) -> Option<&StopCause> {
        match self {
            Self::Run(error) => error.cause(),
            _ => None,
        }
    }
}

impl<E> Names for UpdateError<E> {
    fn cause(&self) -> Option<&StopCause> {
        match self {
            Self::Run(error) => error.cause(),
            _ => None,
        }
    }
}

impl<E> Names for ResultError<E> {
    fn cause(&self) -> Option<&StopCause> {
        match self {
            Self::Run(error) => error.cause(),
            _ => None,
        }
    }
}

/// What a call came to: the cause it names, and the whole text of its error.
type Told = Result<(StopCause, String), String>;

type Call = Box<dyn Fn(Ended) -> Pin<Box<dyn Future<Output = Told>>> + Send>;

/// A runtime that has ended, a handle of a run that had not, one of a run that had, and one of the latest
/// run of an id.
#[derive(Clone)]
struct Ended {
    runtime: Runtime,
    runs: [Run; 3],
}

async fn told<T: fmt::Debug, E: Names + fmt::Display + fmt::Debug>(
    answer: impl IntoFuture<Output = Result<T, E>>,
) -> Told {
    match answer.await {
        Ok(answer) => Err(format!("it was answered: {answer:?}")),
        Err(error) => match error.cause() {
            Some(cause) => Ok((cause.clone(), error.to_string())),
            None => Err(format!("it names no cause: {error:?}")),
        },
    }
}

fn call<F: Future<Output = Told> + 'static>(make: impl Fn(Ended) -> F + Send + 'static) -> Call {
    Box::new(move |ended| Box::pin(make(ended)))
}

/// A call of each of the three handles.
fn call_each<F: Future<Output = Told> + 'static>(
    calls: &mut Vec<(String, Call)>,
    name: &str,
    make: impl Fn(Run) -> F + Send + Copy + 'static,
) {
    for (index, of) in ["live", "finished", "latest"].into_iter().enumerate() {
        let each = call(move |ended: Ended| make(ended.runs[index].clone()));
        calls.push((format!("{name} of a run that is {of}"), each));
    }
}

/// All that can be asked of a runtime and of a run.
fn calls() -> Vec<(String, Call)> {
    let mut calls = vec![
        (
            "start".to_owned(),
            call(async |ended| told(ended.runtime.start(TALLY, "new", 1)).await),
        ),
        (
            "start again".to_owned(),
            call(async |ended| told(ended.runtime.start(TALLY, "live", 1)).await),
        ),
        (
            "start_with".to_owned(),
            call(async |ended| {
                let start = ended
                    .runtime
                    .start(TALLY, "new", 1)
                    .on_conflict(OnConflict::Refuse);
                told(start).await
            }),
        ),
        (
            "signal_with_start".to_owned(),
            call(async |ended| {
                let conflict = OnConflict::RestartFinished;
                let start = ended
                    .runtime
                    .start(TALLY, "live", 1)
                    .on_conflict(conflict)
                    .with_signal(GO, 1);
                told(start).await
            }),
        ),
        (
            "keep_promise".to_owned(),
            call(async |ended| told(ended.runtime.keep_promise(token(&ended), 1)).await),
        ),
        (
            "break_promise".to_owned(),
            call(async |ended| told(ended.runtime.break_promise(token(&ended), "no")).await),
        ),
        (
            "list".to_owned(),
            call(async |ended| told(ended.runtime.list(None, 10)).await),
        ),
        (
            "stopped and stop_cause".to_owned(),
            call(async |ended| {
                let cause = ended.runtime.stopped().await;
                let same = ended.runtime.stop_cause().ok_or("it names no cause")?;
                assert_eq!(format!("{cause:?}"), format!("{same:?}"));
                Ok((same, cause.to_string()))
            }),
        ),
    ];
    call_each(&mut calls, "signal", async |run| told(run.signal(GO, 1)).await);
    call_each(&mut calls, "cancel", async |run| told(run.cancel("late")).await);
    call_each(&mut calls, "terminate", async |run| {
        told(run.terminate("late")).await
    });
    call_each(&mut calls, "pause", async |run| told(run.pause("late")).await);
    call_each(&mut calls, "resume", async |run| told(run.resume()).await);
    call_each(&mut calls, "describe", async |run| told(run.describe()).await);
    call_each(&mut calls, "query", async |run| told(run.query(FULL, ())).await);
    call_each(&mut calls, "update", async |run| told(run.update(ADD, 1)).await);
    call_each(&mut calls, "update_as", async |run| {
        told(run.update_as(ADD, "request", 1)).await
    });
    calls
}

fn token(ended: &Ended) -> PromiseToken {
    let run = ended.runs[0].run_id().unwrap();
    format!("{run}-{FIRST_OPERATION}").parse().unwrap()
}

/// How a runtime comes to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Shutdown,
    JournalFailed,
    PartFailedTooOften,
    /// The tokio runtime is dropped; with a thread of the parts' own, and without.
    HostDropped {
        own_thread: bool,
    },
    HostShutDownInBackground,
    /// The `block_on` of a current-thread runtime returns, and the runtime is dropped.
    CurrentThreadEnded,
    /// A host that the runtime was given is dropped.
    GivenHostDropped,
}

impl Way {
    const ALL: [Self; 8] = [
        Self::Shutdown,
        Self::JournalFailed,
        Self::PartFailedTooOften,
        Self::HostDropped { own_thread: true },
        Self::HostDropped { own_thread: false },
        Self::HostShutDownInBackground,
        Self::CurrentThreadEnded,
        Self::GivenHostDropped,
    ];

    fn is_expected(self, cause: &StopCause) -> bool {
        match self {
            Self::Shutdown => matches!(cause, StopCause::Shutdown),
            Self::JournalFailed => {
                matches!(cause, StopCause::Journal(failure) if failure.to_string() == "the disk is gone")
            }
            Self::PartFailedTooOften => {
                matches!(cause, StopCause::Part { part, .. } if &**part == "shard 0")
            }
            Self::HostDropped { .. }
            | Self::HostShutDownInBackground
            | Self::CurrentThreadEnded
            | Self::GivenHostDropped => matches!(cause, StopCause::HostEnded),
        }
    }

    /// Starts a runtime, has `before` done with it while it lives, and ends it.
    fn go<T>(self, before: impl AsyncFnOnce(&Runtime) -> T) -> (Runtime, T) {
        let tokio = match self {
            Self::CurrentThreadEnded => Builder::new_current_thread().enable_all().build(),
            _ => Builder::new_multi_thread().worker_threads(2).enable_all().build(),
        };
        let tokio = tokio.unwrap();
        let journal = Arc::new(MemoryJournal::new(JournalConfig::default()).unwrap());
        let builder = code(Runtime::volatile()).journal(Arc::clone(&journal) as Arc<dyn Journal>);
        let builder = builder.configure(|config| {
            config.restarts_max = 0;
            config.own_thread = self != Self::HostDropped { own_thread: false };
        });
        let (runtime, before, owner) = tokio.block_on(async {
            let (builder, owner) = if self == Self::GivenHostDropped {
                let owner = TokioHost::spawn(HostConfig::default()).await.unwrap();
                (builder.host(owner.host()), Some(owner))
            } else {
                (builder, None)
            };
            let runtime = builder.start().await.unwrap();
            let before = before(&runtime).await;
            (runtime, before, owner)
        });
        match self {
            Self::Shutdown => drop(tokio.block_on(runtime.shutdown()).unwrap()),
            Self::JournalFailed => {
                journal.fail(FailureKind::Io(std::io::ErrorKind::Other), "the disk is gone");
            }
            Self::PartFailedTooOften => runtime.kill("shard 0").unwrap(),
            Self::HostDropped { .. } | Self::CurrentThreadEnded => return dropping(tokio, runtime, before),
            Self::HostShutDownInBackground => {
                tokio.shutdown_background();
                return (runtime, before);
            }
            Self::GivenHostDropped => drop(owner),
        }
        // The host lives on for as long as the test needs it, and longer.
        std::mem::forget(tokio);
        (runtime, before)
    }
}

fn dropping<T>(tokio: tokio::runtime::Runtime, runtime: Runtime, before: T) -> (Runtime, T) {
    drop(tokio);
    (runtime, before)
}

async fn runs(runtime: &Runtime) -> [Run; 3] {
    let live = runtime.start(TALLY, "live", 1).await.unwrap();
    let finished = runtime.start(TALLY, "finished", 0).await.unwrap();
    finished.result().await.unwrap();
    // Its end was told already: a clone asks.
    let latest = runtime.attach(TALLY, "live").unwrap();
    [live, finished.clone(), latest]
}

/// The tokio runtime that hosted the parts was dropped: callers on another one waited for ever, there was no
/// cause, and a shutdown panicked. Our tests had one tokio runtime for both, which never ended before they
/// did. So here each way to end meets each call, on another tokio runtime and on a plain thread.
#[test]
fn each_call_of_a_runtime_that_has_ended_names_the_cause() {
    for way in Way::ALL {
        for executor in Executor::ALL {
            let (runtime, runs) = on_thread(&format!("{way:?}"), move || way.go(runs));
            let ended = Ended { runtime, runs };
            // Behind this, everybody is told the same.
            let first = ended.clone();
            let cause = on_thread("stopped", move || executor.block_on(first.runtime.stopped()));
            assert!(way.is_expected(&cause), "{way:?}: {cause:?}");
            for (name, call) in calls() {
                let what = format!("{way:?}, {executor:?}: {name}");
                let ended = ended.clone();
                let told = on_thread(&what, move || executor.block_on(call(ended)));
                let (named, text) = told.unwrap_or_else(|problem| panic!("{what}: {problem}"));
                assert!(way.is_expected(&named), "{what}: {named:?}");
                assert!(text.contains(&cause.to_string()), "{what}: {text:?}");
            }
            let last = ended.clone();
            on_thread(&format!("{way:?}, {executor:?}: the rest"), move || {
                the_rest(way, executor, &last);
            });
            on_thread(&format!("{way:?}: drop"), move || drop(ended));
        }
    }
}

/// What does not answer with `Stopped`.
fn the_rest(way: Way, executor: Executor, ended: &Ended) {
    let Ended { runtime, runs } = ended;
    // A result that was told while the run's handle had not been asked is still at hand, or is not any more.
    for run in runs {
        if let Err(error) = executor.block_on(run.result()) {
            assert!(way.is_expected(error.cause().unwrap()), "{error:?}");
        }
    }
    match runtime.list_finished(None, 10) {
        Ok(listed) => assert_eq!(listed.len(), 1),
        Err(error) => assert!(way.is_expected(error.cause().unwrap()), "{error:?}"),
    }
    let broker = runtime.broker();
    let topic = broker.topic::<u64>(TOPIC.name()).unwrap();
    let published = executor.block_on(topic.publish(1));
    assert!(matches!(published, Err(PublishError::Closed(_))), "{published:?}");
    let subscribed = broker.subscribe::<u64>(TOPIC.name(), SubscriptionConfig::default());
    assert!(matches!(subscribed, Err(SubscribeError::Closed)));
    let triggered = runtime
        .on(TOPIC)
        .signal(TALLY, GO, |envelope| ("live".into(), *envelope.payload()));
    assert!(matches!(triggered, Err(SubscribeError::Closed)));
    assert!(runtime.attach(TALLY, "live").is_ok());
    assert_eq!(runtime.startup_report().live, 0);
    assert!(runtime.stats().started >= 2);
    assert!(runtime.parts().len() > 3);
    assert!(matches!(
        runtime.kill("shard 0"),
        Err(KillError::NotRunning { .. }) | Ok(())
    ));
    let stopped = executor.block_on(runtime.shutdown());
    match stopped {
        Ok(report) => {
            assert_eq!(way, Way::Shutdown);
            assert!(report.left_behind.is_empty(), "{report:?}");
        }
        Err(cause) => assert!(
            way != Way::Shutdown && way.is_expected(&cause),
            "{way:?}: {cause:?}"
        ),
    }
}

/// Requests that were under way when the host went were never answered either, and the file stayed open for
/// as long as their futures were awaited.
#[test]
fn whoever_waits_when_the_host_goes_is_told_and_the_file_is_let_go() {
    for own_thread in [true, false] {
        let store = Store::new();
        let path = store.path();
        let tokio = Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let tokio = tokio.unwrap();
        let runtime = tokio.block_on(async {
            let builder = code(Runtime::open(&path));
            let builder = builder.configure(|config| config.own_thread = own_thread);
            builder.start().await.unwrap()
        });
        let runs = tokio.block_on(runs(&runtime));
        let waiting: Vec<_> = runs
            .iter()
            .flat_map(|run| Executor::ALL.map(|executor| (run.clone(), executor)))
            .map(|(run, executor)| {
                let (polled, is_polled) = std::sync::mpsc::channel();
                let waiter = std::thread::spawn(move || {
                    let mut result = std::pin::pin!(run.result());
                    executor.block_on(std::future::poll_fn(|cx| {
                        let polled_now = result.as_mut().poll(cx);
                        polled.send(()).ok();
                        polled_now
                    }))
                });
                is_polled.recv().unwrap();
                waiter
            })
            .collect();
        let stopped = runtime.stopped();
        drop(tokio);
        let answers = on_thread("waiting", move || {
            waiting
                .into_iter()
                .map(|waiter| waiter.join().unwrap())
                .collect::<Vec<_>>()
        });
        let told = |answer: &Result<u64, ResultError<WorkflowError>>| {
            matches!(
                answer,
                Err(ResultError::Run(RunError::Stopped(StopCause::HostEnded)))
            )
        };
        let (live, rest) = answers.split_at(2);
        let (finished, latest) = rest.split_at(2);
        assert!(live.iter().chain(latest).all(told), "{answers:?}");
        // Of one that had ended somebody may have been told.
        assert!(
            finished
                .iter()
                .all(|answer| told(answer) || matches!(answer, Ok(0)))
        );
        assert!(matches!(Executor::Plain.block_on(stopped), StopCause::HostEnded));
        on_thread("drop", move || drop((runs, runtime)));

        // Nothing that was acknowledged is lost with the host.
        let again = on_thread("again", move || {
            Executor::Tokio.block_on(async {
                let runtime = code(Runtime::open(&path)).start().await.unwrap();
                let live = runtime.attach(TALLY, "live").unwrap();
                live.signal(GO, 2).await.unwrap();
                let result = live.result().await.unwrap();
                runtime.shutdown().await.unwrap();
                result
            })
        });
        assert_eq!(again, 3);
    }
}

/// A shutdown that a plain thread awaited panicked: it used a timer of tokio's where there was none.
#[test]
fn a_shutdown_may_be_awaited_anywhere_also_while_nobody_drives_the_host() {
    for executor in Executor::ALL {
        let tokio = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let tokio = tokio.unwrap();
        let runtime = tokio.block_on(code(Runtime::volatile()).start()).unwrap();
        let (report, runtime) = on_thread("shutdown", move || {
            (executor.block_on(runtime.shutdown()), runtime)
        });
        assert!(report.unwrap().left_behind.is_empty());
        assert!(matches!(runtime.stop_cause(), Some(StopCause::Shutdown)));

        // Nobody drives this one: its shard does not run, and says so.
        let tokio = Builder::new_current_thread().enable_all().build().unwrap();
        let builder = code(Runtime::volatile()).configure(|config| {
            config.shutdown_grace = Duration::from_millis(1);
            config.shutdown_wait_max = Duration::from_millis(50);
        });
        let runtime = tokio.block_on(builder.start()).unwrap();
        let (report, runtime) = on_thread("shutdown of one that nobody drives", move || {
            (executor.block_on(runtime.shutdown()), runtime)
        });
        let left: Vec<_> = report.unwrap().left_behind;
        assert!(
            left.iter()
                .any(|left| left.part == "shard 0" && left.run.is_none()),
            "{left:?}"
        );
        on_thread("drop", move || drop(runtime));
    }
}

/// Workflow code that blocked its shard held a shutdown up for a minute, which then reported that all was
/// well; whoever had started the run, or asked the shard, was never answered. Our tests shut down a shard
/// that was stuck in a seeded world, where nothing can be in its hand.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_names_the_code_that_blocks_and_answers_its_callers() {
    const BLOCKS: Workflow<u64, u64> = Workflow::named("blocks");
    let (release, released) = std::sync::mpsc::channel::<()>();
    let (begins, has_begun) = std::sync::mpsc::channel::<()>();
    let released = Arc::new(Mutex::new(released));
    let blocks = move |cx: WorkflowContext, first: u64| {
        let (released, begins) = (Arc::clone(&released), begins.clone());
        async move {
            let more = cx.receive(GO).await?;
            begins.send(()).unwrap();
            released.lock().unwrap().recv().unwrap_or_default();
            Ok::<_, WorkflowError>(first + more)
        }
    };
    for turn_warn in [Duration::from_secs(1), Duration::ZERO] {
        let builder = code(Runtime::volatile()).register(BLOCKS, blocks.clone());
        let runtime = builder.configure(|config| {
            config.turn_warn = turn_warn;
            config.shutdown_grace = Duration::from_millis(1);
            config.shutdown_wait_max = Duration::from_millis(200);
        });
        let runtime = runtime.start().await.unwrap();
        let run = runtime.start(BLOCKS, "b", 1).await.unwrap();
        let other = runtime.start(TALLY, "other", 1).await.unwrap();
        let in_turn = tokio::spawn({
            let run = run.clone();
            async move { run.signal(GO, 1).await }
        });
        has_begun.recv_timeout(HANGS_AFTER).unwrap();
        let results = [run.clone(), other.clone()].map(|run| tokio::spawn(async move { run.result().await }));
        let queued = tokio::spawn({
            let other = other.clone();
            async move { other.signal(GO, 1).await }
        });
        let told_end = tokio::spawn({
            let id = run.run_id();
            async move { (run.result().await, id) }
        });
        let closing = runtime.clone();
        let report = tokio::time::timeout(HANGS_AFTER, closing.shutdown()).await;
        let left = report.expect("the shutdown hangs").unwrap().left_behind;
        let (result, id) = tokio::time::timeout(HANGS_AFTER, told_end)
            .await
            .unwrap()
            .unwrap();
        assert!(
            left.iter().any(|left| left.part == "shard 0" && left.run == id),
            "{left:?}"
        );
        assert!(matches!(
            result,
            Err(ResultError::Run(RunError::Stopped(StopCause::Shutdown)))
        ));
        for result in results {
            let result = tokio::time::timeout(HANGS_AFTER, result).await.unwrap().unwrap();
            assert!(matches!(
                result,
                Err(ResultError::Run(RunError::Stopped(StopCause::Shutdown)))
            ));
        }
        for told in [in_turn, queued] {
            let told = tokio::time::timeout(HANGS_AFTER, told).await.unwrap().unwrap();
            assert!(
                matches!(told, Err(RunError::Stopped(StopCause::Shutdown))),
                "{told:?}"
            );
        }
        release.send(()).unwrap();
    }
}

/// A disk that did not answer took each of a shutdown's waits to its end, one after the other: 90 s. In virtual
/// time the whole takes as long as the one bound says, and no longer.
#[test]
fn a_shutdown_on_a_disk_that_does_not_answer_takes_no_longer_than_its_bound() {
    for wait_max in [Duration::from_secs(20), Duration::from_secs(60)] {
        let world = SimHost::new(SimConfig::seeded(16));
        let journal: Arc<dyn Journal> = Arc::new(MemoryJournal::new(JournalConfig::default()).unwrap());
        let journal = Tapped::new(journal, |journal, batch| journal.enqueue(batch));
        let builder = code(Runtime::volatile()).host(world.host());
        let builder = builder.journal(Arc::clone(&journal) as Arc<dyn Journal>);
        let builder = builder.configure(|config| config.shutdown_wait_max = wait_max);
        let (took, stopped, start) = world
            .block_on(async {
                let host = world.host();
                let runtime = builder.start().await.unwrap();
                journal.hang();
                let asking = runtime.clone();
                let mut start = Box::pin(async move { asking.start(TALLY, "t", 1).await });
                assert!(futures_util::poll!(&mut start).is_pending());
                let began = host.elapsed();
                let stopped = runtime.shutdown().await;
                (host.elapsed() - began, stopped, start.await)
            })
            .unwrap();
        assert!(
            took <= wait_max + Duration::from_millis(10),
            "{took:?} of {wait_max:?}"
        );
        assert!(
            matches!(&stopped, Err(StopCause::Part { part, .. }) if &**part == "journal"),
            "{stopped:?}"
        );
        assert!(
            matches!(start, Err(StartError::Stopped(StopCause::Shutdown))),
            "{start:?}"
        );
    }
}

#[tokio::test]
async fn a_shutdown_whose_bound_leaves_no_time_behind_the_grace_is_refused() {
    let builder = Runtime::volatile().configure(|config| {
        config.shutdown_grace = Duration::from_secs(10);
        config.shutdown_wait_max = Duration::from_secs(10);
    });
    let error = builder.start().await.unwrap_err();
    assert!(
        matches!(
            error,
            OpenError::Config {
                field: "shutdown_wait_max",
                ..
            }
        ),
        "{error}"
    );
}

/// The texts of the errors that are logged on this thread.
#[derive(Clone, Default)]
struct Errors(Arc<Mutex<Vec<String>>>);

impl Subscriber for Errors {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() == tracing::Level::ERROR
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = String::new();
        event.record(&mut |field: &Field, value: &dyn fmt::Debug| {
            text.push_str(&format!("{} {value:?} ", field.name()));
        });
        self.0.lock().unwrap().push(text);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// A full disk stopped the runtime, and nothing was logged, awaited or told but "the runtime has stopped". A
/// test asked for the cause's type, which was there, and none read what people read.
#[tokio::test]
async fn a_failure_is_logged_once_with_its_cause_and_can_be_awaited() {
    for shards_len in [1, 3] {
        let errors = Errors::default();
        let _listening = tracing::subscriber::set_default(errors.clone());
        let journal = Arc::new(MemoryJournal::new(JournalConfig::default()).unwrap());
        let builder = code(Runtime::volatile()).journal(Arc::clone(&journal) as Arc<dyn Journal>);
        let builder = builder.configure(|config| config.shards_len = shards_len);
        let runtime = builder.start().await.unwrap();
        let run = runtime.start(TALLY, "t", 1).await.unwrap();
        let waiting: Vec<_> = (0..10).map(|_| tokio::spawn(runtime.stopped())).collect();
        tokio::task::yield_now().await;
        assert!(waiting.iter().all(|waiting| !waiting.is_finished()));
        assert!(runtime.stop_cause().is_none());
        journal.fail(
            FailureKind::Io(std::io::ErrorKind::StorageFull),
            "no space left on the disk",
        );
        // Nobody asks the runtime anything meanwhile.
        for waiting in waiting {
            let cause = waiting.await.unwrap();
            assert!(matches!(&cause, StopCause::Journal(_)), "{cause:?}");
            assert!(cause.to_string().contains("no space left on the disk"), "{cause}");
        }
        let error = run.signal(GO, 1).await.unwrap_err();
        assert!(error.to_string().contains("no space left on the disk"), "{error}");
        assert!(matches!(runtime.stopped().await, StopCause::Journal(_)));
        runtime.shutdown().await.unwrap_err();
        drop((run, runtime));
        let logged = errors.0.lock().unwrap().clone();
        let logged: Vec<_> = logged
            .iter()
            .filter(|text| text.contains("no space left"))
            .collect();
        assert_eq!(logged.len(), 1, "{logged:?}");
        assert!(logged[0].contains("the runtime has stopped"), "{logged:?}");
    }
}

/// Of a journal that fails while its only shard is blocked, no shard notices.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_is_noticed_while_code_blocks_its_shard() {
    const BLOCKS: Workflow<u64, u64> = Workflow::named("blocks");
    let (release, released) = std::sync::mpsc::channel::<()>();
    let (begins, has_begun) = std::sync::mpsc::channel::<()>();
    let released = Arc::new(Mutex::new(released));
    let blocks = move |_: WorkflowContext, first: u64| {
        let (released, begins) = (Arc::clone(&released), begins.clone());
        async move {
            begins.send(()).unwrap();
            released.lock().unwrap().recv().unwrap_or_default();
            Ok::<_, WorkflowError>(first)
        }
    };
    let journal = Arc::new(MemoryJournal::new(JournalConfig::default()).unwrap());
    let builder = Runtime::volatile().journal(Arc::clone(&journal) as Arc<dyn Journal>);
    let builder = builder.configure(|config| config.turn_warn = Duration::from_millis(20));
    let runtime = builder.register(BLOCKS, blocks).start().await.unwrap();
    let asking = runtime.clone();
    let start = tokio::spawn(async move { asking.start(BLOCKS, "b", 1).await });
    has_begun.recv_timeout(HANGS_AFTER).unwrap();
    journal.fail(FailureKind::Io(std::io::ErrorKind::Other), "the disk is gone");
    let cause = tokio::time::timeout(HANGS_AFTER, runtime.stopped())
        .await
        .unwrap();
    assert!(matches!(cause, StopCause::Journal(_)), "{cause:?}");
    let start = tokio::time::timeout(HANGS_AFTER, start).await.unwrap().unwrap();
    assert!(
        matches!(start, Err(StartError::Stopped(StopCause::Journal(_)))),
        "{start:?}"
    );
    release.send(()).unwrap();
}

#[tokio::test]
async fn whoever_awaits_the_end_does_not_keep_the_runtime_alive() {
    let runtime = code(Runtime::volatile()).start().await.unwrap();
    let stopped = tokio::spawn(runtime.stopped());
    let late = runtime.stopped();
    drop(runtime);
    assert!(matches!(stopped.await.unwrap(), StopCause::Shutdown));
    assert!(matches!(late.await, StopCause::Shutdown));
}

/// A shutdown left the subscriptions of its own broker open, so that a server whose clients read a topic as a
/// stream of events never closed.
#[tokio::test]
async fn a_shutdown_ends_the_subscriptions_of_the_runtime_s_own_broker() {
    for is_polite in [true, false] {
        let runtime = code(Runtime::volatile()).start().await.unwrap();
        let inbox = runtime
            .broker()
            .subscribe::<u64>(TOPIC.name(), SubscriptionConfig::default());
        let mut events = inbox.unwrap().into_receiver();
        let topic = runtime.broker().topic::<u64>(TOPIC.name()).unwrap();
        topic.publish(1).await.unwrap();
        topic.publish(2).await.unwrap();
        let stream = tokio::spawn(async move {
            let mut seen = Vec::new();
            while let Some(event) = events.recv().await {
                seen.push(*event.payload());
            }
            seen
        });
        if is_polite {
            runtime.shutdown().await.unwrap();
        } else {
            drop(runtime);
        }
        let seen = tokio::time::timeout(HANGS_AFTER, stream).await;
        assert_eq!(seen.expect("the stream ends").unwrap(), [1, 2]);
        assert!(matches!(topic.publish(3).await, Err(PublishError::Closed(_))));
    }
}

/// A broker that was made without a host hung each call with a deadline: nobody told it the time. All our
/// examples made it so, and all our tests with such a broker published and took without a limit.
#[test]
fn a_broker_that_the_runtime_is_given_goes_by_its_time_and_outlives_it() {
    type Question = Request<u64, u64>;
    let world = SimHost::new(SimConfig::seeded(5));
    let limit = Duration::from_secs(3);
    world
        .block_on(async {
            let broker = Broker::without_host(BrokerConfig::default());
            let inbox = broker.subscribe::<Question>("questions", SubscriptionConfig::default());
            let inbox = inbox.unwrap();
            let questions = broker.topic::<Question>("questions").unwrap();
            let early = questions.ask(0, limit);
            let mut early = std::pin::pin!(early);
            assert!(futures_util::poll!(&mut early).is_pending());
            for _ in 0..2 {
                let runtime = code(Runtime::volatile())
                    .host(world.host())
                    .broker(broker.clone());
                let runtime = runtime.start().await.unwrap();
                let began = world.now();
                assert_eq!(questions.ask(1, limit).await, Err(AskError::TimedOut));
                assert!(world.now() >= began + limit);
                runtime.shutdown().await.unwrap();
                assert!(!broker.is_closed(), "it is its owner's");
                assert_eq!(questions.ask(2, limit).await, Err(AskError::TimedOut));
            }
            assert_eq!(early.await, Err(AskError::TimedOut));
            drop(inbox);
        })
        .unwrap();
}

#[test]
fn a_broker_that_the_runtime_is_given_keeps_its_time_when_the_host_goes() {
    for executor in Executor::ALL {
        let broker = Broker::without_host(BrokerConfig::default());
        let inbox = broker
            .subscribe::<Request<u64, u64>>("questions", SubscriptionConfig::default())
            .unwrap();
        let tokio = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let tokio = tokio.unwrap();
        let builder = code(Runtime::volatile()).broker(broker.clone());
        let runtime = tokio.block_on(builder.start()).unwrap();
        let questions = broker.topic::<Request<u64, u64>>("questions").unwrap();
        let ask = |when: &str| {
            let asking = questions.clone();
            on_thread(&format!("{executor:?}, {when}"), move || {
                executor.block_on(asking.ask(1, Duration::from_millis(2)))
            })
        };
        assert_eq!(ask("while the host is there"), Err(AskError::TimedOut));
        drop(tokio);
        assert_eq!(ask("when it is not"), Err(AskError::TimedOut));
        drop(runtime);
        assert_eq!(ask("behind the runtime"), Err(AskError::TimedOut));
        drop(inbox);
    }
}

/// A simulated host is lost by a crash, which no test had survived with a handle in its hand.
#[test]
fn whoever_waits_when_a_simulated_host_is_lost_is_told_and_nothing_queued_becomes_durable() {
    for seed in 0..20 {
        let world = SimHost::new(SimConfig::seeded(seed));
        let journal = Arc::new(MemoryJournal::new(JournalConfig::default()).unwrap());
        let builder = code(Runtime::volatile()).host(world.host());
        let builder = builder.journal(Arc::clone(&journal) as Arc<dyn Journal>);
        let crash = world.crasher();
        let runtime = world
            .block_on(async {
                let runtime = builder.start().await.unwrap();
                let run = runtime.start(TALLY, "t", 1).await.unwrap();
                let mut result = std::pin::pin!(run.result());
                assert!(futures_util::poll!(&mut result).is_pending());
                crash();
                assert!(matches!(
                    result.await,
                    Err(ResultError::Run(RunError::Stopped(StopCause::HostEnded)))
                ));
                assert!(matches!(runtime.stopped().await, StopCause::HostEnded));
                let start = runtime.start(TALLY, "u", 1).await;
                assert!(matches!(start, Err(StartError::Stopped(StopCause::HostEnded))));
                runtime
            })
            .unwrap();
        assert!(
            journal.failure().is_none(),
            "a crash flushes nothing and closes nothing"
        );
        drop(runtime);
    }
}

/// A file whose syncs do not return while it hangs.
#[derive(Debug)]
struct HangingDisk {
    file: FileDisk,
    hangs: Arc<(Mutex<bool>, Condvar)>,
}

impl Disk for HangingDisk {
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write(offset, data)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        let (hangs, released) = &*self.hangs;
        drop(
            released
                .wait_while(hangs.lock().unwrap(), |hangs| *hangs)
                .unwrap(),
        );
        self.file.sync()
    }

    fn try_lock(&self) -> io::Result<bool> {
        self.file.try_lock()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_on_a_disk_whose_sync_does_not_return_ends_and_answers_everybody() {
    let store = Store::new();
    let hangs: Arc<(Mutex<bool>, Condvar)> = Arc::default();
    let disk = HangingDisk {
        file: FileDisk::create(&store.path()).unwrap(),
        hangs: Arc::clone(&hangs),
    };
    let owner = TokioHost::spawn(HostConfig::default()).await.unwrap();
    let config = JournalConfig::default();
    let journal = RedbJournal::open_disk(Arc::new(disk), "store", config, owner.host()).unwrap();
    let builder = code(Runtime::volatile())
        .host(owner.host())
        .journal(Arc::new(journal));
    let builder = builder.configure(|config| {
        config.shutdown_grace = Duration::from_millis(1);
        config.shutdown_wait_max = Duration::from_millis(100);
    });
    let runtime = builder.start().await.unwrap();
    let run = runtime.start(TALLY, "t", 1).await.unwrap();
    *hangs.0.lock().unwrap() = true;
    let asking = runtime.clone();
    let start = tokio::spawn(async move { asking.start(TALLY, "u", 1).await });
    let result = tokio::spawn(async move { run.result().await });
    while runtime.stats().started < 2 {
        tokio::task::yield_now().await;
    }
    let stopped = tokio::time::timeout(HANGS_AFTER, runtime.shutdown())
        .await
        .unwrap();
    assert!(
        matches!(&stopped, Err(StopCause::Part { part, .. }) if &**part == "journal"),
        "{stopped:?}"
    );
    let start = tokio::time::timeout(HANGS_AFTER, start).await.unwrap().unwrap();
    assert!(
        matches!(start, Err(StartError::Stopped(StopCause::Shutdown))),
        "{start:?}"
    );
    let result = tokio::time::timeout(HANGS_AFTER, result).await.unwrap().unwrap();
    assert!(
        matches!(
            result,
            Err(ResultError::Run(RunError::Stopped(StopCause::Shutdown)))
        ),
        "{result:?}"
    );
    *hangs.0.lock().unwrap() = false;
    hangs.1.notify_all();
    owner.shutdown(HANGS_AFTER).await.unwrap();
}
