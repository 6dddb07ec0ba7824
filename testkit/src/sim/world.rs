//! The parts, tasks, timers and the clock, behind one lock.

use std::collections::BTreeMap;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Wake, Waker};
use std::time::Duration;

use millrun_core::{Bell, OnExit, Part, Stop, Task, Timestamp};

use super::config::SimConfig;
use super::dice::Dice;
use super::trace::{Action, Step, Trace};

/// Shared by the owner, the hosts it has given out, wakers and bells.
pub(super) struct SimWorld {
    pub(super) config: SimConfig,
    state: Mutex<WorldState>,
}

/// Identifies a part or task. Never used twice in one world.
pub(super) type Number = u64;

/// A place in the list of timers: the time, then the order in which they were set.
pub(super) type TimerKey = (Timestamp, u64);

pub(super) struct WorldState {
    /// How often the world has crashed.
    pub(super) life: u64,
    pub(super) now: Timestamp,
    /// Makes the choices of the world.
    pub(super) order: Dice,
    /// Gives the numbers that parts ask for; separate, so that asking changes no order.
    pub(super) values: Dice,
    pub(super) running: BTreeMap<Number, Running>,
    pub(super) ready: Vec<Number>,
    pub(super) timers: BTreeMap<TimerKey, Timer>,
    pub(super) trace: Trace,
    last_number: Number,
    last_timer: u64,
}

pub(super) struct Running {
    pub(super) name: Arc<str>,
    /// The test's own future, which survives a crash.
    is_main: bool,
    pub(super) stopping: bool,
    is_ready: bool,
    /// None while it runs.
    pub(super) body: Option<Body>,
}

pub(super) enum Body {
    Part(PartBody),
    Task(Task),
    /// The future of a `block_on`, which its caller holds.
    Main,
}

pub(super) struct PartBody {
    pub(super) part: Box<dyn Part>,
    pub(super) bell: Bell,
    pub(super) on_exit: OnExit,
    pub(super) timer: Option<TimerKey>,
}

pub(super) enum Timer {
    /// A part that asked for a turn at this time.
    Part(Number),
    /// A part with some upkeep to do then, if the clock gets there.
    Idle(Number),
    /// A task that awaits a sleep.
    Sleeper(Waker),
}

impl SimWorld {
    pub(super) fn new(config: SimConfig) -> Self {
        let mut seed = Dice::new(config.seed);
        let state = WorldState {
            life: 0,
            now: config.starts_at,
            order: Dice::new(seed.roll()),
            values: Dice::new(seed.roll()),
            running: BTreeMap::new(),
            ready: Vec::new(),
            timers: BTreeMap::new(),
            trace: Trace::new(config.starts_at, config.trace_len_max),
            last_number: 0,
            last_timer: 0,
        };
        Self {
            config,
            state: Mutex::new(state),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, WorldState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the clock forward; see [`SimHost::set_forward`](crate::SimHost::set_forward).
    pub(super) fn set_forward(&self, by: Duration) {
        let mut state = self.lock();
        state.now = state.now + by;
    }

    /// Ends the present life; see [`SimHost::crash`](crate::SimHost::crash).
    pub(super) fn crash(&self) {
        let (dead, timers) = self.lock().end_life();
        for running in dead.values() {
            if let Some(Body::Part(part)) = &running.body {
                part.bell.disconnect();
            }
        }
        // Foreign code runs here, so the lock is free again.
        drop(dead);
        drop(timers);
    }
}

impl WorldState {
    /// Adds a part or a task, ready to run.
    pub(super) fn add(&mut self, name: &str, body: Body) -> Number {
        self.last_number += 1;
        let is_main = matches!(body, Body::Main);
        let name = Arc::from(name);
        let running = Running {
            name,
            is_main,
            stopping: false,
            is_ready: false,
            body: Some(body),
        };
        self.running.insert(self.last_number, running);
        self.make_ready(self.last_number);
        self.last_number
    }

    /// Lets it run again; nothing happens if it is ready already, or has ended.
    pub(super) fn make_ready(&mut self, number: Number) {
        if let Some(running) = self.running.get_mut(&number)
            && !running.is_ready
        {
            running.is_ready = true;
            self.ready.push(number);
        }
    }

    /// Draws one of those that are ready.
    pub(super) fn draw(&mut self) -> Option<Number> {
        while !self.ready.is_empty() {
            let index = self.order.index(self.ready.len());
            let number = self.ready.swap_remove(index);
            if let Some(running) = self.running.get_mut(&number) {
                running.is_ready = false;
                return Some(number);
            }
        }
        None
    }

    pub(super) fn set_timer(&mut self, at: Timestamp, timer: Timer) -> TimerKey {
        self.last_timer += 1;
        let key = (at, self.last_timer);
        self.timers.insert(key, timer);
        key
    }

    /// Takes one timer that is due.
    pub(super) fn take_due(&mut self) -> Option<Timer> {
        let (&key, _) = self.timers.first_key_value()?;
        if key.0 > self.now {
            return None;
        }
        self.timers.remove(&key)
    }

    /// Ends this life. The returned values must be dropped without the lock.
    fn end_life(&mut self) -> (BTreeMap<Number, Running>, BTreeMap<TimerKey, Timer>) {
        self.life += 1;
        self.record(0, &Arc::from("world"), Action::Crash);
        let (main, dead) = mem::take(&mut self.running)
            .into_iter()
            .partition(|(_, running)| running.is_main);
        self.running = main;
        (dead, mem::take(&mut self.timers))
    }

    pub(super) fn record(&mut self, number: Number, name: &Arc<str>, action: Action) {
        let step = Step {
            at: self.now,
            name: Arc::clone(name),
            number,
            action,
        };
        self.trace.push(step);
    }
}

/// Makes one part or task of a world ready: as a waker, or by a bell.
pub(super) struct Readier {
    pub(super) world: Weak<SimWorld>,
    pub(super) number: Number,
}

impl Wake for Readier {
    fn wake(self: Arc<Self>) {
        if let Some(world) = self.world.upgrade() {
            world.lock().make_ready(self.number);
        }
    }
}

/// Ends one part or task of a world, when its turn comes.
pub(super) struct Stopper(pub(super) Readier);

impl Stop for Stopper {
    fn stop(&self) {
        let Some(world) = self.0.world.upgrade() else {
            return;
        };
        let mut state = world.lock();
        if let Some(running) = state.running.get_mut(&self.0.number) {
            running.stopping = true;
            state.make_ready(self.0.number);
        }
    }
}
