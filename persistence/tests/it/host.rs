//! Two small hosts: one with real threads and the real clock, one that is driven by hand.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use millrun_core::{
    Bell, Host, Next, OnExit, Part, PartExit, PartHandle, Placement, SpawnError, Stop, Task, TaskHandle,
    Timestamp,
};

/// Runs each part on a thread of its own.
#[derive(Debug)]
pub(crate) struct ThreadHost {
    began: Instant,
    random: AtomicU64,
}

impl ThreadHost {
    pub(crate) fn new() -> Arc<Self> {
        #[expect(
            clippy::disallowed_methods,
            reason = "this is the host: it is where time comes from"
        )]
        let began = Instant::now();
        Arc::new(Self {
            began,
            random: AtomicU64::new(1),
        })
    }
}

/// Wakes a thread that waits for its bell.
#[derive(Default)]
struct Parked {
    rung: Mutex<bool>,
    wake: Condvar,
}

impl Parked {
    fn wait(&self, timeout: Option<Duration>) {
        let mut rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        while !*rung {
            match timeout {
                None => rung = self.wake.wait(rung).unwrap_or_else(PoisonError::into_inner),
                Some(timeout) => {
                    rung = self
                        .wake
                        .wait_timeout(rung, timeout)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0;
                    break;
                }
            }
        }
        *rung = false;
    }

    fn wake(&self) {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.wake.notify_one();
    }
}

struct StopFlag(Arc<AtomicBool>, Bell);

impl Stop for StopFlag {
    fn stop(&self) {
        self.0.store(true, Ordering::SeqCst);
        self.1.ring();
    }
}

impl Host for ThreadHost {
    fn now(&self) -> Timestamp {
        #[expect(
            clippy::disallowed_methods,
            reason = "this is the host: it is where time comes from"
        )]
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        Timestamp::from_micros(u64::try_from(now.as_micros()).unwrap())
    }

    fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    fn random(&self) -> u64 {
        self.random.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed)
    }

    fn has_threads(&self) -> bool {
        true
    }

    fn spawn(&self, _name: &'static str, _task: Task) -> TaskHandle {
        unimplemented!("no journal spawns a task")
    }

    fn sleep_until(&self, _deadline: Timestamp) -> Task {
        unimplemented!("no journal sleeps")
    }

    fn spawn_part(
        &self,
        name: &str,
        _placement: Placement,
        bell: Bell,
        mut part: Box<dyn Part>,
        on_exit: OnExit,
    ) -> Result<PartHandle, SpawnError> {
        let parked = Arc::new(Parked::default());
        let wake = Arc::clone(&parked);
        bell.connect(move || wake.wake());
        let stop = Arc::new(AtomicBool::new(false));
        let handle = PartHandle::new(StopFlag(Arc::clone(&stop), bell.clone()));
        let clock = ClockOnly(self.began);
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                let exit = loop {
                    if stop.load(Ordering::SeqCst) {
                        break PartExit::Stopped;
                    }
                    bell.answer();
                    let now = clock.now();
                    match catch_unwind(AssertUnwindSafe(|| part.turn(now, 256))) {
                        Ok(Next::Again) => {}
                        Ok(Next::Idle) => parked.wait(None),
                        Ok(Next::At(time) | Next::IdleUntil(time)) => {
                            parked.wait(Some(time.saturating_since(now)))
                        }
                        Ok(Next::Stop) => break PartExit::Stopped,
                        Err(panic) => {
                            break PartExit::Panicked(format!("{:?}", panic.downcast_ref::<&str>()));
                        }
                    }
                };
                drop(part);
                on_exit(exit);
            })
            .map_err(|error| SpawnError {
                part: name.to_owned(),
                cause: error.to_string(),
            })?;
        Ok(handle)
    }
}

struct ClockOnly(Instant);

impl ClockOnly {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(u64::try_from(self.0.elapsed().as_micros()).unwrap())
    }
}

/// Runs parts on the calling thread, when told to. Time stands still unless moved.
#[derive(Default)]
pub(crate) struct HandHost {
    parts: Mutex<VecDeque<Running>>,
    now: AtomicU64,
    random: AtomicU64,
}

struct Running {
    part: Box<dyn Part>,
    on_exit: OnExit,
    bell: Bell,
    next: Next,
}

impl std::fmt::Debug for HandHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HandHost")
    }
}

impl HandHost {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// Moves the time.
    pub(crate) fn advance(&self, by: Duration) {
        self.now
            .fetch_add(u64::try_from(by.as_micros()).unwrap(), Ordering::SeqCst);
    }

    /// Gives turns until no part wants one.
    pub(crate) fn run(&self) {
        while self.step() {}
    }

    /// Gives one turn to the next part that wants one; `false` if none does.
    pub(crate) fn step(&self) -> bool {
        let ready = {
            let mut parts = self.parts.lock().unwrap();
            let now = self.now();
            let index = parts.iter().position(|running| {
                let is_due = match running.next {
                    Next::Again => true,
                    Next::At(time) | Next::IdleUntil(time) => time <= now,
                    Next::Idle | Next::Stop => false,
                };
                is_due || running.bell.answer()
            });
            index.and_then(|index| parts.remove(index))
        };
        let Some(mut running) = ready else { return false };
        running.bell.answer();
        match catch_unwind(AssertUnwindSafe(|| running.part.turn(self.now(), 256))) {
            Ok(Next::Stop) => {
                drop(running.part);
                (running.on_exit)(PartExit::Stopped);
            }
            Ok(next) => {
                running.next = next;
                self.parts.lock().unwrap().push_back(running);
            }
            Err(panic) => {
                let message = panic.downcast_ref::<String>().cloned().unwrap_or_default();
                drop(running.part);
                (running.on_exit)(PartExit::Panicked(message));
            }
        }
        true
    }

    /// Ends all parts without another turn, and says so to who waits for them.
    pub(crate) fn end_parts(&self) {
        let parts = std::mem::take(&mut *self.parts.lock().unwrap());
        for running in parts {
            drop(running.part);
            (running.on_exit)(PartExit::Stopped);
        }
    }
}

struct Unstoppable;

impl Stop for Unstoppable {
    fn stop(&self) {}
}

impl Host for HandHost {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.now.load(Ordering::SeqCst))
    }

    fn elapsed(&self) -> Duration {
        Duration::from_micros(self.now.load(Ordering::SeqCst))
    }

    fn random(&self) -> u64 {
        self.random.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed)
    }

    fn spawn(&self, _name: &'static str, _task: Task) -> TaskHandle {
        unimplemented!("no journal spawns a task")
    }

    fn sleep_until(&self, _deadline: Timestamp) -> Task {
        unimplemented!("no journal sleeps")
    }

    fn spawn_part(
        &self,
        _name: &str,
        _placement: Placement,
        bell: Bell,
        part: Box<dyn Part>,
        on_exit: OnExit,
    ) -> Result<PartHandle, SpawnError> {
        self.parts.lock().unwrap().push_back(Running {
            part,
            on_exit,
            bell,
            next: Next::Again,
        });
        Ok(PartHandle::new(Unstoppable))
    }
}
