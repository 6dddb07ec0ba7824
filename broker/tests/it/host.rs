//! A host whose time stands still until a test moves it, and the means to run futures on it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use millrun_core::{
    Bell, Host, OnExit, Part, PartHandle, Placement, SpawnError, Stop, Task, TaskHandle, Timestamp,
};

const START: u64 = 1_000_000;

/// Runs all tasks on the calling thread, in the order in which they were woken.
pub(crate) struct TestHost {
    micros: Arc<AtomicU64>,
    tasks: Mutex<Vec<Arc<Spawned>>>,
    names: Mutex<Vec<&'static str>>,
    sleepers: Arc<Mutex<Vec<(Timestamp, Waker)>>>,
}

struct Spawned {
    task: Mutex<Option<Task>>,
    awake: AtomicBool,
}

impl Wake for Spawned {
    fn wake(self: Arc<Self>) {
        self.awake.store(true, Ordering::SeqCst);
    }
}

struct StopTask(Arc<Spawned>);

impl Stop for StopTask {
    fn stop(&self) {
        let task = self.0.task.lock().unwrap().take();
        drop(task);
    }
}

struct Sleep {
    micros: Arc<AtomicU64>,
    deadline: Timestamp,
    sleepers: Arc<Mutex<Vec<(Timestamp, Waker)>>>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.micros.load(Ordering::SeqCst) >= self.deadline.as_micros() {
            return Poll::Ready(());
        }
        self.sleepers
            .lock()
            .unwrap()
            .push((self.deadline, cx.waker().clone()));
        Poll::Pending
    }
}

impl TestHost {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            micros: Arc::new(AtomicU64::new(START)),
            tasks: Mutex::default(),
            names: Mutex::default(),
            sleepers: Arc::default(),
        })
    }

    /// The names of the tasks that were started since this was asked last.
    pub(crate) fn started(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.names.lock().unwrap())
    }

    /// Runs tasks until none is awake.
    pub(crate) fn settle(&self) {
        loop {
            let tasks = self.tasks.lock().unwrap().clone();
            let awake: Vec<_> = tasks
                .into_iter()
                .filter(|task| task.awake.swap(false, Ordering::SeqCst))
                .collect();
            if awake.is_empty() {
                return;
            }
            for spawned in awake {
                // Taken out while it runs, so that it may stop itself.
                let Some(mut task) = spawned.task.lock().unwrap().take() else {
                    continue;
                };
                let waker = Waker::from(Arc::clone(&spawned));
                if task.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
                    *spawned.task.lock().unwrap() = Some(task);
                }
            }
        }
    }

    /// Moves time on in steps of half a millisecond, running what wakes.
    pub(crate) fn advance(&self, by: Duration) {
        let end = self.now() + by;
        while self.now() < end {
            let next = (self.now() + Duration::from_micros(500)).min(end);
            self.micros.store(next.as_micros(), Ordering::SeqCst);
            let due = {
                let mut sleepers = self.sleepers.lock().unwrap();
                let (due, later) = sleepers.drain(..).partition(|(deadline, _)| *deadline <= next);
                *sleepers = later;
                let due: Vec<(Timestamp, Waker)> = due;
                due
            };
            due.into_iter().for_each(|(_, waker)| waker.wake());
            self.settle();
        }
    }
}

impl fmt::Debug for TestHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TestHost")
    }
}

impl Host for TestHost {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.micros.load(Ordering::SeqCst))
    }

    fn elapsed(&self) -> Duration {
        Duration::from_micros(self.micros.load(Ordering::SeqCst))
    }

    fn random(&self) -> u64 {
        0x5eed
    }

    fn spawn(&self, name: &'static str, task: Task) -> TaskHandle {
        self.names.lock().unwrap().push(name);
        let spawned = Arc::new(Spawned {
            task: Mutex::new(Some(task)),
            awake: AtomicBool::new(true),
        });
        self.tasks.lock().unwrap().push(Arc::clone(&spawned));
        TaskHandle::new(StopTask(spawned))
    }

    fn sleep_until(&self, deadline: Timestamp) -> Task {
        Box::pin(Sleep {
            micros: Arc::clone(&self.micros),
            deadline,
            sleepers: Arc::clone(&self.sleepers),
        })
    }

    fn spawn_part(
        &self,
        name: &str,
        _: Placement,
        _: Bell,
        _: Box<dyn Part>,
        _: OnExit,
    ) -> Result<PartHandle, SpawnError> {
        Err(SpawnError {
            part: name.to_owned(),
            cause: "the broker has no parts".to_owned(),
        })
    }
}

/// Polls a future once.
pub(crate) fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Runs a future that needs nobody else to get ready.
pub(crate) fn ready<F: Future>(future: F) -> F::Output {
    match poll_once(std::pin::pin!(future)) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the future waits for somebody"),
    }
}
