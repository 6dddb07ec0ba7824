//! Each call of a runtime that has ended, on each way to its end.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use millrun::broker::{PublishError, SubscribeError, SubscriptionConfig};
use millrun::operating::KillError;
use millrun::workflow::PromiseToken;
use millrun::{
    OnConflict, QueryError, ResultError, RunError, Runtime, StartError, StartWithSignalError, StopCause,
    UpdateError,
};

use crate::elsewhere::{Executor, on_thread};

use super::{ADD, FIRST_OPERATION, FULL, GO, Run, TALLY, TOPIC, Way, runs};

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
    match executor.block_on(runtime.list_finished(None, 10)) {
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
