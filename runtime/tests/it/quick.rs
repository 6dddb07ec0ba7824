//! Activities that end at once, and soon, are run where they arrive; nothing else about them differs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use millrun::workflow::{Either, TimeoutKind};
use millrun::{
    Activity, ActivityContext, ActivityError, CallError, Retry, Runtime, Workflow, WorkflowContext,
    WorkflowError,
};
use millrun_core::{
    Bell, Host, OnExit, Part, PartHandle, Placement, SpawnError, Task, TaskHandle, Timestamp,
};
use millrun_testkit::{SimConfig, SimHost};
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
enum Deed {
    Return,
    Fail,
    Panic,
    /// Says how far it is, then panics: the second attempt finds it.
    BeatAndPanic,
    /// Waits for a minute of the host's time.
    Wait,
    WaitForEver,
}

const ACT: Activity<Deed, u32> = Activity::named("act");
const CALL: Workflow<Deed, String> = Workflow::named("call");
const RACE: Workflow<(), String> = Workflow::named("race");

async fn call(cx: WorkflowContext, deed: Deed) -> Result<String, WorkflowError> {
    let retry = Retry::exponential()
        .first_pause(Duration::from_millis(1))
        .attempts(2);
    let called = cx
        .call(ACT, deed)
        .retry(retry)
        .start_to_close(Duration::from_secs(600));
    Ok(match called.await {
        Ok(value) => format!("{value}"),
        Err(CallError::Panicked(message)) => format!("panicked: {message}"),
        Err(CallError::TimedOut(TimeoutKind::StartToClose)) => "too late".into(),
        Err(error) => format!("{error}"),
    })
}

async fn race(cx: WorkflowContext, (): ()) -> Result<String, WorkflowError> {
    let waiting = cx.call(ACT, Deed::WaitForEver);
    Ok(match cx.race(waiting, cx.sleep(Duration::from_secs(1))).await {
        Either::Left(_) => "it ended".into(),
        Either::Right(_) => "it was cancelled".into(),
    })
}

/// A host that counts the tasks of activities.
#[derive(Debug)]
struct Counting {
    host: Arc<dyn Host>,
    tasks: AtomicUsize,
}

impl Counting {
    fn tasks(&self) -> usize {
        self.tasks.load(Ordering::Relaxed)
    }
}

impl Host for Counting {
    fn now(&self) -> Timestamp {
        self.host.now()
    }

    fn elapsed(&self) -> Duration {
        self.host.elapsed()
    }

    fn random(&self) -> u64 {
        self.host.random()
    }

    fn spawn(&self, name: &'static str, task: Task) -> TaskHandle {
        self.tasks
            .fetch_add(usize::from(name == "activity"), Ordering::Relaxed);
        self.host.spawn(name, task)
    }

    fn sleep_until(&self, deadline: Timestamp) -> Task {
        self.host.sleep_until(deadline)
    }

    fn spawn_part(
        &self,
        name: &str,
        placement: Placement,
        bell: Bell,
        part: Box<dyn Part>,
        on_exit: OnExit,
    ) -> Result<PartHandle, SpawnError> {
        self.host.spawn_part(name, placement, bell, part, on_exit)
    }
}

/// The round in which an attempt that was run by the pool panics.
const PANIC_AT: usize = 3;

#[test]
fn what_ends_at_once_gets_no_task_and_whatever_else_it_does_is_handled_as_ever() {
    let world = SimHost::new(SimConfig::seeded(11));
    let host = Arc::new(Counting {
        host: world.host(),
        tasks: AtomicUsize::new(0),
    });
    let clock = world.host();
    let act = move |cx: ActivityContext, deed: Deed| {
        let host = Arc::clone(&clock);
        async move {
            match deed {
                Deed::Return => {}
                Deed::Fail => return Err(ActivityError::fatal("it was to fail")),
                Deed::Panic => panic!("it was to panic"),
                Deed::BeatAndPanic => match cx.details::<u32>() {
                    Some(details) => return Ok(details.unwrap()),
                    None => {
                        cx.heartbeat(&7_u32).unwrap();
                        panic!("it was to panic after a heartbeat");
                    }
                },
                Deed::Wait => {
                    host.sleep_until(host.now() + Duration::from_secs(60)).await;
                    assert!(!cx.is_cancelled());
                }
                Deed::WaitForEver => host.sleep_until(millrun::Timestamp::MAX).await,
            }
            Ok(cx.attempt())
        }
    };
    let builder = Runtime::volatile()
        .host(Arc::clone(&host) as Arc<dyn Host>)
        .register(ACT, act)
        .register(CALL, call)
        .register(RACE, race);
    let script = async {
        let runtime = builder.start().await.unwrap();
        let end_of = async |deed, id: String| {
            let run = runtime.start(CALL, &id, deed).await.unwrap();
            run.result().await.unwrap()
        };
        for round in 0..6 {
            for number in 0..40 {
                let tasks = host.tasks();
                assert_eq!(
                    end_of(Deed::Return, format!("return {round} {number}")).await,
                    "1"
                );
                if round == 0 && number < 16 {
                    assert_eq!(host.tasks(), tasks + 1, "nobody knows yet");
                } else if round == 0 || (round <= PANIC_AT && number >= 36) {
                    assert_eq!(host.tasks(), tasks, "round {round}, {number}");
                } else if round > PANIC_AT {
                    assert_eq!(host.tasks(), tasks + 1, "it panicked once without a task");
                }
            }
            let ends = [
                (Deed::Fail, "it was to fail"),
                (Deed::Wait, "1"),
                (Deed::WaitForEver, "too late"),
                (Deed::BeatAndPanic, "7"),
                (Deed::Panic, "panicked: it was to panic"),
            ];
            let (deed, end) = ends[round % ends.len()];
            let found = end_of(deed, format!("{deed:?} {round}")).await;
            assert!(found.contains(end), "{deed:?}: {found}");
            let waiting = runtime.start(RACE, &format!("race {round}"), ()).await.unwrap();
            assert_eq!(waiting.result().await.unwrap(), "it was cancelled");
        }
        runtime.shutdown().await.unwrap();
    };
    world.block_on(script).unwrap();
}

#[test]
fn a_hundred_of_them_in_one_turn_report_each_to_its_own_run() {
    let world = SimHost::new(SimConfig::seeded(12));
    let act = |cx: ActivityContext, deed: Deed| async move {
        match deed {
            Deed::Return => Ok(cx.attempt()),
            _ => Err(ActivityError::fatal("not asked for")),
        }
    };
    let builder = Runtime::volatile()
        .host(world.host())
        .configure(|config| {
            config.shards_len = 3;
            // Reports of a turn do not fit: the pool waits for room.
            config.shard_queue_len_max = 1;
        })
        .register(ACT, act)
        .register(CALL, call);
    let script = async {
        let runtime = builder.start().await.unwrap();
        let mut runs = Vec::new();
        for number in 0..200 {
            let deed = if number % 3 == 0 { Deed::Fail } else { Deed::Return };
            let run = runtime.start(CALL, &format!("r-{number}"), deed).await.unwrap();
            runs.push((deed, run));
        }
        for (deed, run) in runs {
            let end = run.result().await.unwrap();
            assert_eq!(end == "1", deed == Deed::Return, "{end}");
        }
        runtime.shutdown().await.unwrap();
    };
    world.block_on(script).unwrap();
}
