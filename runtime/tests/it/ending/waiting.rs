//! Callers that wait for an answer when the host goes.

use std::future::Future;
use std::sync::Arc;

use millrun::store::{Journal, JournalConfig, MemoryJournal};
use millrun::{ResultError, RunError, Runtime, StartError, StopCause, WorkflowError};
use millrun_testkit::{SimConfig, SimHost};
use tokio::runtime::Builder;

use crate::elsewhere::{Executor, on_thread};
use crate::support::Store;

use super::{GO, TALLY, code, runs};

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
                    let mut answer = executor.block_on(std::future::poll_fn(|cx| {
                        let polled_now = result.as_mut().poll(cx);
                        polled.send(()).ok();
                        polled_now
                    }));
                    // A shard may go before its host is known to have ended: its callers are told to ask again.
                    while let Err(ResultError::Run(RunError::Stopped(StopCause::Part { .. }))) = answer {
                        answer = executor.block_on(run.result());
                    }
                    answer
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
        // A caller may have been told of one that had ended.
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
