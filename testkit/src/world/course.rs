//! What a world counts as it goes on, and where it crashes.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

/// Where a world crashes. Numbers begin with 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum CrashPoint {
    /// As this commit is about to be made: what is queued for it is lost, and all that came before has been done as far as it
    /// was.
    BeforeCommit(u64),
    /// As soon as this commit is durable: nothing that follows from it has been done.
    BehindCommit(u64),
    /// Behind this attempt of an activity, in the order in which attempts end: its effect is there, and the runtime does not
    /// know.
    BehindAttempt(u64),
    /// Behind this step (a turn or a poll).
    BehindStep(u64),
}

impl fmt::Display for CrashPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BeforeCommit(number) => write!(f, "before-commit-{number}"),
            Self::BehindCommit(number) => write!(f, "behind-commit-{number}"),
            Self::BehindAttempt(number) => write!(f, "behind-attempt-{number}"),
            Self::BehindStep(number) => write!(f, "behind-step-{number}"),
        }
    }
}

impl FromStr for CrashPoint {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (place, number) = text.rsplit_once('-').ok_or(())?;
        let number = number.parse().map_err(|_| ())?;
        match place {
            "before-commit" => Ok(Self::BeforeCommit(number)),
            "behind-commit" => Ok(Self::BehindCommit(number)),
            "behind-attempt" => Ok(Self::BehindAttempt(number)),
            "behind-step" => Ok(Self::BehindStep(number)),
            _ => Err(()),
        }
    }
}

/// How much has happened in all lives of a world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CourseCounts {
    pub(super) commits: u64,
    pub(super) attempts: u64,
    pub(super) steps: u64,
}

/// The counts of a world, and the crash that is ahead of it.
pub(super) struct Course {
    state: Mutex<(CourseCounts, Option<CrashPoint>)>,
    /// Ends the present life of the simulated host.
    crasher: Box<dyn Fn() + Send + Sync>,
}

impl Course {
    pub(super) fn new(crash_at: Option<CrashPoint>, crasher: impl Fn() + Send + Sync + 'static) -> Self {
        Self {
            state: Mutex::new((CourseCounts::default(), crash_at)),
            crasher: Box::new(crasher),
        }
    }

    pub(super) fn counts(&self) -> CourseCounts {
        self.lock().0
    }

    /// The crash that has not come.
    pub(super) fn crash_ahead(&self) -> Option<CrashPoint> {
        self.lock().1
    }

    fn lock(&self) -> MutexGuard<'_, (CourseCounts, Option<CrashPoint>)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one more of something. Its number, and whether the crash is planned for this point; then it is ahead no more.
    fn count(
        &self,
        counted: impl Fn(&mut CourseCounts) -> &mut u64,
        point: impl Fn(u64) -> CrashPoint,
    ) -> (u64, bool) {
        let mut state = self.lock();
        let number = counted(&mut state.0);
        *number += 1;
        let number = *number;
        let is_here = state.1.take_if(|ahead| *ahead == point(number)).is_some();
        (number, is_here)
    }

    fn is_at(&self, point: CrashPoint) -> bool {
        self.lock().1.take_if(|ahead| *ahead == point).is_some()
    }
}

impl fmt::Debug for Course {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (counts, crash_ahead) = *self.lock();
        f.debug_struct("Course")
            .field("counts", &counts)
            .field("crash_ahead", &crash_ahead)
            .finish_non_exhaustive()
    }
}

/// One life of a world, from the opening of the store on.
#[derive(Debug)]
pub(super) struct WorldLife {
    course: Arc<Course>,
    is_over: AtomicBool,
    /// Who is told when it is over.
    watching: Mutex<Option<Waker>>,
}

impl WorldLife {
    pub(super) fn new(course: Arc<Course>) -> Self {
        Self {
            course,
            is_over: AtomicBool::new(false),
            watching: Mutex::new(None),
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// Whether it is over; the task is woken when it is.
    pub(super) fn watch(&self, task: &Context<'_>) -> bool {
        let former = self.lock_watching().replace(task.waker().clone());
        drop(former);
        self.is_over()
    }

    /// Ends it as a kill does. Nothing reaches the store behind this, also not what the drops of its parts would write.
    pub(super) fn crash(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        (self.course.crasher)();
        if let Some(watching) = self.lock_watching().take() {
            watching.wake();
        }
    }

    /// A commit is about to be made: its number, unless the life ends here.
    pub(super) fn begin_commit(&self) -> Option<u64> {
        let (number, is_here) = self
            .course
            .count(|counts| &mut counts.commits, CrashPoint::BeforeCommit);
        if is_here {
            self.crash();
        }
        (!self.is_over()).then_some(number)
    }

    /// The commit of this number is durable.
    pub(super) fn end_commit(&self, number: u64) {
        if self.course.is_at(CrashPoint::BehindCommit(number)) {
            self.crash();
        }
    }

    /// An attempt of an activity has ended.
    pub(super) fn end_attempt(&self) {
        let (_, is_here) = self
            .course
            .count(|counts| &mut counts.attempts, CrashPoint::BehindAttempt);
        if is_here {
            self.crash();
        }
    }

    /// Another step is about to be made.
    pub(super) fn begin_step(&self) {
        let (_, is_here) = self
            .course
            .count(|counts| &mut counts.steps, CrashPoint::BehindStep);
        if is_here {
            self.crash();
        }
    }

    fn lock_watching(&self) -> MutexGuard<'_, Option<Waker>> {
        self.watching.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
