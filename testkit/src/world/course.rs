//! Counts what happens in a world, and makes the planned faults happen.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;

use millrun::Timestamp;
use millrun::host::Host;
use millrun::operating::WeakRuntime;

use super::fault::{Fault, PlannedFault, WorldPoint};

/// How much has happened in all lives of a world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CourseCounts {
    pub(super) commits: u64,
    pub(super) attempts: u64,
    pub(super) steps: u64,
}

/// The counts of a world, and its planned faults.
pub(super) struct WorldCourse {
    state: Mutex<CourseState>,
    /// Ends the present life of the simulated host.
    crasher: Box<dyn Fn() + Send + Sync>,
    /// Sets the simulated clock forward.
    set_forward: Box<dyn Fn(Duration) + Send + Sync>,
}

struct CourseState {
    counts: CourseCounts,
    ahead: Vec<PlannedFault>,
}

impl WorldCourse {
    pub(super) fn new(
        ahead: Vec<PlannedFault>,
        crasher: impl Fn() + Send + Sync + 'static,
        set_forward: impl Fn(Duration) + Send + Sync + 'static,
    ) -> Self {
        let counts = CourseCounts::default();
        Self {
            state: Mutex::new(CourseState { counts, ahead }),
            crasher: Box::new(crasher),
            set_forward: Box::new(set_forward),
        }
    }

    pub(super) fn counts(&self) -> CourseCounts {
        self.lock().counts
    }

    /// Whether a planned fault has not happened yet.
    pub(super) fn has_faults_ahead(&self) -> bool {
        !self.lock().ahead.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, CourseState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one more of something: its number.
    fn count(&self, counted: impl Fn(&mut CourseCounts) -> &mut u64) -> u64 {
        let mut state = self.lock();
        let number = counted(&mut state.counts);
        *number += 1;
        *number
    }

    /// Removes and returns the faults that are planned for this point.
    fn take(&self, point: WorldPoint) -> Vec<Fault> {
        let mut state = self.lock();
        let here = state.ahead.extract_if(.., |planned| planned.at == point);
        here.map(|planned| planned.fault).collect()
    }
}

impl fmt::Debug for WorldCourse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorldCourse")
            .field("counts", &self.counts())
            .finish_non_exhaustive()
    }
}

/// One life of a world, from the opening of the store on.
#[derive(Debug)]
pub(super) struct WorldLife {
    course: Arc<WorldCourse>,
    host: Arc<dyn Host>,
    is_over: AtomicBool,
    state: Mutex<LifeState>,
}

#[derive(Debug, Default)]
struct LifeState {
    /// The task that is woken when it is over.
    watching: Option<Waker>,
    /// Until when the disk is full.
    full_until: Option<Timestamp>,
    runtime: Option<WeakRuntime>,
}

impl WorldLife {
    pub(super) fn new(course: Arc<WorldCourse>, host: Arc<dyn Host>) -> Self {
        Self {
            course,
            host,
            is_over: AtomicBool::new(false),
            state: Mutex::new(LifeState::default()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, LifeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on parts of this runtime can fail.
    pub(super) fn opened(&self, runtime: WeakRuntime) {
        self.lock().runtime = Some(runtime);
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// Whether it is over; the task is woken when it is.
    pub(super) fn watch(&self, task: &Context<'_>) -> bool {
        let former = self.lock().watching.replace(task.waker().clone());
        drop(former);
        self.is_over()
    }

    /// Ends it as a kill does. After this nothing reaches the store, not even writes from destructors of its parts.
    pub(super) fn crash(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        (self.course.crasher)();
        let watching = self.lock().watching.take();
        if let Some(watching) = watching {
            watching.wake();
        }
    }

    /// A commit is about to be made: its number, unless the life ends here.
    pub(super) fn begin_commit(&self) -> Option<u64> {
        let number = self.course.count(|counts| &mut counts.commits);
        self.come_to(WorldPoint::BeforeCommit(number));
        (!self.is_over()).then_some(number)
    }

    /// The commit of this number is durable.
    pub(super) fn end_commit(&self, number: u64) {
        self.come_to(WorldPoint::BehindCommit(number));
    }

    /// An attempt of an activity has ended.
    pub(super) fn end_attempt(&self) {
        let number = self.course.count(|counts| &mut counts.attempts);
        self.come_to(WorldPoint::BehindAttempt(number));
    }

    /// Another step is about to be made.
    pub(super) fn begin_step(&self) {
        let number = self.course.count(|counts| &mut counts.steps);
        self.come_to(WorldPoint::BehindStep(number));
    }

    /// Until when the disk is full, if it is.
    pub(super) fn full_until(&self) -> Option<Timestamp> {
        let now = self.host.now();
        self.lock().full_until.filter(|until| now < *until)
    }

    /// Makes the faults that are planned for this point happen.
    fn come_to(&self, point: WorldPoint) {
        for fault in self.course.take(point) {
            match fault {
                Fault::Crash => self.crash(),
                Fault::KillPart(part) => self.kill(&part),
                Fault::DiskFull(wait) => {
                    let until = self.host.now() + wait;
                    self.lock().full_until = Some(until);
                }
                Fault::ClockJump(by) => (self.course.set_forward)(by),
            }
        }
    }

    fn kill(&self, part: &str) {
        let runtime = self.lock().runtime.as_ref().and_then(WeakRuntime::upgrade);
        let Some(runtime) = runtime else {
            // The runtime has not opened yet, or has stopped.
            return;
        };
        // A part that is being restarted is left alone. That the part exists was checked when the world opened.
        runtime.kill(part).ok();
    }
}
