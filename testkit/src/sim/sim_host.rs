//! The world as its owner, a test, sees it.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use millrun_core::{Host, Next, PartExit, Task, Timestamp, panic_message};

use super::config::SimConfig;
use super::seam::Seam;
use super::trace::{Action, Trace};
use super::world::{Body, Number, PartBody, Readier, SimWorld, Timer, WorldState};

/// A seeded world of one thread: clock, random numbers, parts and tasks.
///
/// This value owns and runs the world: nothing runs except while one of its methods is called. Code that shall live in the
/// world gets the [`Host`] from [`SimHost::host`]. Dropping the owner is a [crash](SimHost::crash).
///
/// ```
/// # use std::sync::Arc;
/// # use std::sync::atomic::{AtomicU32, Ordering};
/// # use std::time::Duration;
/// # use millrun_core::{Bell, Next, Part, Placement, Timestamp};
/// # use millrun_testkit::{SimStop, SimConfig, SimHost};
/// struct Daily(Arc<AtomicU32>);
///
/// impl Part for Daily {
///     fn turn(&mut self, now: Timestamp, _budget: usize) -> Next {
///         self.0.fetch_add(1, Ordering::Relaxed);
///         Next::At(now + Duration::from_secs(86_400))
///     }
/// }
///
/// let world = SimHost::new(SimConfig::seeded(42));
/// let turns = Arc::new(AtomicU32::new(0));
/// let part = Box::new(Daily(Arc::clone(&turns)));
/// world.host().spawn_part("daily", Placement::Actor, Bell::new(), part, Box::new(drop))?;
///
/// assert_eq!(world.advance(Duration::from_secs(7 * 86_400)), SimStop::Reached);
/// assert_eq!(turns.load(Ordering::Relaxed), 8);
///
/// world.crash();
/// assert_eq!(world.run_until_idle(), SimStop::Idle); // nobody is left to ask for a time
/// # Ok::<(), millrun_core::SpawnError>(())
/// ```
///
/// # Panics
/// Running a world from within one of its own turns or polls is an error of the test, and panics; this applies to all methods
/// whose names begin with `run_`, and to [`step`](SimHost::step), [`advance`](SimHost::advance) and
/// [`block_on`](SimHost::block_on).
pub struct SimHost {
    world: Arc<SimWorld>,
    stepping: Cell<bool>,
}

/// Why the steps of a simulation stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a simulation that did not get where it should proves nothing"]
pub enum SimStop {
    /// The caller's condition holds.
    Reached,
    /// Nothing is ready, and nothing will be without a call from outside of the world.
    Idle,
    /// [`SimConfig::steps_max`] steps were not enough.
    StepsSpent,
}

/// A future that does not complete in its world.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stuck {
    /// With this seed.
    pub seed: u64,
    /// [`SimStop::Idle`] or [`SimStop::StepsSpent`].
    pub outcome: SimStop,
    /// The last steps, one a line.
    pub last_steps: String,
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.outcome {
            SimStop::Idle => "nothing is left to run",
            SimStop::Reached | SimStop::StepsSpent => "the steps are spent",
        };
        write!(
            f,
            "with seed {} the future does not complete: {why}; it ended with\n{}",
            self.seed, self.last_steps
        )
    }
}

impl std::error::Error for Stuck {}

/// What one step did.
#[derive(PartialEq, Eq)]
enum Stepped {
    Nothing,
    Something,
    /// The future of a `block_on` has completed.
    MainFinished,
}

/// The future of a `block_on`.
type Main<'a, 'b> = Option<Pin<&'a mut (dyn Future<Output = ()> + 'b)>>;

impl SimHost {
    /// An empty world.
    #[must_use]
    pub fn new(config: SimConfig) -> Self {
        Self {
            world: Arc::new(SimWorld::new(config)),
            stepping: Cell::new(false),
        }
    }

    /// The host of the present life. After a crash, get it again.
    #[must_use]
    pub fn host(&self) -> Arc<dyn Host> {
        let life = self.world.lock().life;
        Arc::new(Seam {
            world: Arc::clone(&self.world),
            life,
        })
    }

    /// The seed it was made with, for the message of a failed test.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.world.config.seed
    }

    /// The virtual time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.world.lock().now
    }

    /// The names of the parts and tasks that run, oldest first.
    #[must_use]
    pub fn running(&self) -> Vec<Arc<str>> {
        self.world
            .lock()
            .running
            .values()
            .map(|running| Arc::clone(&running.name))
            .collect()
    }

    /// What has happened until now.
    #[must_use]
    pub fn trace(&self) -> Trace {
        self.world.lock().trace.clone()
    }

    /// Makes one step, without moving the clock to get one. False if nothing was ready.
    pub fn step(&self) -> bool {
        self.step_with(&mut None) != Stepped::Nothing
    }

    /// Runs what is ready until nothing is, without moving the clock to the next deadline.
    pub fn run_ready(&self) -> SimStop {
        let now = self.now();
        self.run(&mut None, now, &mut || false)
    }

    /// Runs until nothing is ready and no deadline is left. A part that asks for a time after each
    /// turn keeps a world from ever being idle.
    pub fn run_until_idle(&self) -> SimStop {
        self.run_until(|| false)
    }

    /// Runs until `reached` returns true; it is called before each step.
    pub fn run_until(&self, mut reached: impl FnMut() -> bool) -> SimStop {
        self.run(&mut None, Timestamp::MAX, &mut reached)
    }

    /// Lets `by` pass, and runs whatever becomes ready meanwhile.
    ///
    /// [`SimStop::Reached`], or [`SimStop::StepsSpent`] at an earlier time.
    pub fn advance(&self, by: Duration) -> SimStop {
        let end = self.now() + by;
        let outcome = self.run(&mut None, end, &mut || false);
        if outcome == SimStop::StepsSpent {
            return outcome;
        }
        let mut state = self.world.lock();
        state.now = state.now.max(end);
        SimStop::Reached
    }

    /// Sets the clock forward without running anything meanwhile, as a correction of the clock or the end of a suspend does.
    /// All deadlines in between are due at once.
    pub fn set_forward(&self, by: Duration) {
        self.world.set_forward(by);
    }

    /// [`set_forward`](Self::set_forward), for a part.
    #[cfg(feature = "world")]
    pub(crate) fn clock_setter(&self) -> impl Fn(Duration) + Send + Sync + use<> {
        let world = Arc::downgrade(&self.world);
        move |by| {
            if let Some(world) = world.upgrade() {
                world.set_forward(by);
            }
        }
    }

    /// Runs the world until `future` completes. The future is drawn like any task, and survives a crash, as a test does.
    ///
    /// # Errors
    /// When the world is idle, or its steps are spent, while the future still waits.
    pub fn block_on<F: Future>(&self, future: F) -> Result<F::Output, Stuck> {
        self.block_on_watched(future, &mut || ())
    }

    /// As [`block_on`](Self::block_on); `each_step` is called before each step, and may end the life.
    pub(crate) fn block_on_watched<F: Future>(
        &self,
        future: F,
        each_step: &mut dyn FnMut(),
    ) -> Result<F::Output, Stuck> {
        let number = self.world.lock().add("block_on", Body::Main);
        let mut output = None;
        let outcome = {
            let main = pin!(async { output = Some(future.await) });
            self.run(&mut Some(main), Timestamp::MAX, &mut || {
                each_step();
                false
            })
        };
        let mut state = self.world.lock();
        state.running.remove(&number);
        let last_steps = state.trace.tail(20);
        drop(state);
        output.ok_or(Stuck {
            seed: self.seed(),
            outcome,
            last_steps,
        })
    }

    /// Ends a life at once, as the end of a process would: no part and no task gets another turn or poll, no exit callback is
    /// called, hosts of that life start nothing. The clock and the random numbers go on.
    ///
    /// Files are left as a kill leaves them: a store that was opened on a host of that life is first cut off from its file,
    /// so that it is neither flushed nor closed, and is repaired when it is opened again. (Earlier writes are kept, synced or
    /// not: the machine goes on. For power cuts use a simulated disk.)
    ///
    /// Unlike in a killed process, values are dropped: their destructors take effect in memory, and so do your own
    /// destructors on your own files. Called from within a turn, it takes effect at once for all others and for files, and at
    /// the end of the turn for that part.
    pub fn crash(&self) {
        self.world.crash();
    }

    /// The function that a simulated disk calls to end the life in the middle of a write: a [crash](SimHost::crash) that can
    /// be passed into a part.
    pub fn crasher(&self) -> impl Fn() + Clone + Send + Sync + 'static {
        let world = Arc::downgrade(&self.world);
        move || {
            if let Some(world) = world.upgrade() {
                world.crash();
            }
        }
    }

    fn run(
        &self,
        main: &mut Main<'_, '_>,
        time_max: Timestamp,
        reached: &mut dyn FnMut() -> bool,
    ) -> SimStop {
        for _ in 0..self.world.config.steps_max {
            if reached() {
                return SimStop::Reached;
            }
            match self.step_with(main) {
                Stepped::MainFinished => return SimStop::Reached,
                Stepped::Something => {}
                Stepped::Nothing if self.jump(time_max) => {}
                Stepped::Nothing => return SimStop::Idle,
            }
        }
        if reached() {
            SimStop::Reached
        } else {
            SimStop::StepsSpent
        }
    }

    /// Moves the clock to the next deadline, if there is one and it is not after `time_max`.
    fn jump(&self, time_max: Timestamp) -> bool {
        let mut state = self.world.lock();
        let mut awaited = state
            .timers
            .iter()
            .filter(|(_, timer)| !matches!(timer, Timer::Idle(_)));
        match awaited.next() {
            Some((&(at, _), _)) if at <= time_max => {
                state.now = state.now.max(at);
                true
            }
            _ => false,
        }
    }

    /// Wakes all that waited for a time that has come.
    fn fire_due(&self) {
        loop {
            let mut state = self.world.lock();
            let Some(timer) = state.take_due() else {
                return;
            };
            match timer {
                Timer::Part(number) | Timer::Idle(number) => state.make_ready(number),
                Timer::Sleeper(waker) => {
                    drop(state);
                    waker.wake();
                }
            }
        }
    }

    fn step_with(&self, main: &mut Main<'_, '_>) -> Stepped {
        assert!(
            !self.stepping.replace(true),
            "a world cannot be run from within its own steps"
        );
        // Also when foreign code panics through here.
        let _stepping = Stepping(&self.stepping);
        self.fire_due();
        let mut state = self.world.lock();
        let Some(number) = state.draw() else {
            return Stepped::Nothing;
        };
        let life = state.life;
        let running = state.running.get_mut(&number).expect("what was drawn is running");
        let name = Arc::clone(&running.name);
        let stopping = running.stopping;
        let body = running.body.take().expect("only one step is made at a time");
        let budget = 1 + state.order.index(self.world.config.turn_budget_max);
        let now = state.now;
        drop(state);

        let step = OneStep {
            world: &self.world,
            life,
            number,
            name,
        };
        let stepped = match body {
            Body::Main => step.poll_main(main),
            Body::Task(task) => step.poll_task(task, stopping),
            Body::Part(part) => step.turn(part, stopping, now, budget),
        };
        let mut state = self.world.lock();
        let step_micros = u64::try_from(self.world.config.step_time_max.as_micros()).unwrap_or(u64::MAX);
        let took = state.order.below(step_micros.saturating_add(1));
        state.now = state.now + Duration::from_micros(took);
        stepped
    }
}

struct Stepping<'a>(&'a Cell<bool>);

impl Drop for Stepping<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

/// Runs the drawn body, without the lock, and puts it back.
struct OneStep<'a> {
    world: &'a Arc<SimWorld>,
    life: u64,
    number: Number,
    name: Arc<str>,
}

impl OneStep<'_> {
    fn waker(&self) -> Waker {
        Waker::from(Arc::new(Readier {
            world: Arc::downgrade(self.world),
            number: self.number,
        }))
    }

    fn record(&self, action: Action) {
        self.world.lock().record(self.number, &self.name, action);
    }

    /// Puts it back for its next step. One whose life has ended meanwhile is dropped.
    fn put_back(&self, body: Body, then: impl FnOnce(&mut WorldState)) {
        let mut state = self.world.lock();
        let mut body = Some(body);
        if let Some(running) = state.running.get_mut(&self.number) {
            running.body = body.take();
            then(&mut state);
        }
        drop(state);
        drop(body);
    }

    fn remove(&self) {
        let removed = self.world.lock().running.remove(&self.number);
        drop(removed);
    }

    fn poll_main(&self, main: &mut Main<'_, '_>) -> Stepped {
        let Some(main) = main.as_mut() else {
            // A panic has cut off a former `block_on`.
            self.remove();
            return Stepped::Something;
        };
        let finished = main
            .as_mut()
            .poll(&mut Context::from_waker(&self.waker()))
            .is_ready();
        self.record(if finished {
            Action::Finished
        } else {
            Action::Pending
        });
        self.put_back(Body::Main, |_| {});
        if finished {
            Stepped::MainFinished
        } else {
            Stepped::Something
        }
    }

    fn poll_task(&self, mut task: Task, stopping: bool) -> Stepped {
        let action = if stopping {
            Action::Aborted
        } else {
            let waker = self.waker();
            let mut cx = Context::from_waker(&waker);
            match catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(&mut cx).is_ready())) {
                Ok(false) => Action::Pending,
                Ok(true) => Action::Finished,
                Err(_) => Action::Panicked,
            }
        };
        let waits = action == Action::Pending;
        self.record(action);
        if waits {
            self.put_back(Body::Task(task), |_| {});
        } else {
            drop(task);
            self.remove();
        }
        Stepped::Something
    }

    fn turn(&self, mut body: PartBody, stopping: bool, now: Timestamp, budget: usize) -> Stepped {
        let former = body
            .timer
            .take()
            .and_then(|key| self.world.lock().timers.remove(&key));
        drop(former);
        if stopping {
            self.exit(body, PartExit::Stopped);
            return Stepped::Something;
        }
        body.bell.answer();
        match catch_unwind(AssertUnwindSafe(|| body.part.turn(now, budget))) {
            Ok(next) => {
                self.record(Action::Turn(budget, next));
                self.arrange(body, next);
            }
            Err(panic) => self.exit(body, PartExit::Panicked(panic_message(panic))),
        }
        Stepped::Something
    }

    /// Does what a part asked for at the end of its turn.
    fn arrange(&self, mut body: PartBody, next: Next) {
        match next {
            Next::Idle => self.put_back(Body::Part(body), |_| {}),
            Next::Again => self.put_back(Body::Part(body), |state| state.make_ready(self.number)),
            Next::At(at) | Next::IdleUntil(at) => {
                let timer = match next {
                    Next::IdleUntil(_) => Timer::Idle(self.number),
                    _ => Timer::Part(self.number),
                };
                let mut state = self.world.lock();
                if state.life == self.life {
                    body.timer = Some(state.set_timer(at, timer));
                }
                drop(state);
                self.put_back(Body::Part(body), |_| {});
            }
            Next::Stop => self.exit(body, PartExit::Stopped),
        }
    }

    /// Drops the part, then reports its end, unless its life has ended before.
    fn exit(&self, body: PartBody, exit: PartExit) {
        let PartBody {
            part, bell, on_exit, ..
        } = body;
        bell.disconnect();
        drop(part);
        self.remove();
        if self.world.lock().life == self.life {
            self.record(Action::Exit(exit.clone()));
            on_exit(exit);
        }
    }
}

impl Drop for SimHost {
    fn drop(&mut self) {
        self.crash();
    }
}

impl fmt::Debug for SimHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimHost")
            .field("seed", &self.seed())
            .field("now", &self.now())
            .finish_non_exhaustive()
    }
}
