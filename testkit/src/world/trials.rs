//! One scenario in many worlds: with each seed, and with a crash at each point.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use millrun_core::panic_message;

use super::course::{CourseCounts, CrashPoint};
use super::repeat::Repetition;
use super::world::World;

/// How many crashes a scenario was tried with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CrashesTried {
    /// Commits that the scenario makes, each of which was tried with a crash before and one behind it.
    pub commits: u64,
    /// Attempts of activities that end, each of which was tried with a crash behind it.
    pub attempts: u64,
    /// All crashes.
    pub crashes: u64,
}

/// What the message of a failed trial has, so that it is told once.
const AGAIN: &str = "\nto repeat it: ";

impl World {
    /// Runs the scenario in a world like this one, and then again and again, each time with a crash at another point: before
    /// each commit, behind each commit, and behind the end of each attempt of an activity. What holds however a process dies
    /// is what the scenario asserts.
    ///
    /// The worlds have this one's registry, configuration and mocks. A crash comes while the scenario is within
    /// [`live`](World::live) (or another method that lets the world go on): that begins its closure again in the next life, as
    /// a client would that is started again with the process.
    ///
    /// ```
    /// use millrun::{Activity, Workflow, WorkflowContext, WorkflowError};
    /// use millrun_testkit::World;
    ///
    /// const CHARGE: Activity<u64, u64> = Activity::named("charge");
    /// const ORDER: Workflow<u64, u64> = Workflow::named("order");
    ///
    /// async fn order(cx: WorkflowContext, cents: u64) -> Result<u64, WorkflowError> {
    ///     Ok(cx.call(CHARGE, cents).await?)
    /// }
    ///
    /// let world = World::new(|builder| builder.register(ORDER, order));
    /// world.mock(CHARGE).returns(7);
    /// let tried = world.crash_everywhere(|world| {
    ///     let receipt = world.live(async |runtime| {
    ///         let run = runtime.start(ORDER, "order-1", 42).await.unwrap();
    ///         run.result().await.unwrap()
    ///     });
    ///     assert_eq!(receipt, 7);
    ///     // Charged once, as far as the bank knows idempotency keys.
    ///     assert_eq!(world.calls(CHARGE), [42]);
    /// });
    /// assert!(tried.commits >= 2 && tried.attempts == 1);
    /// ```
    ///
    /// A closure or a mock that keeps something of its own has it through all trials: make what belongs to one trial within
    /// the scenario.
    ///
    /// # Panics
    /// When the scenario does. The message says where the crash was, and the command that repeats this trial alone. Also when
    /// there is nothing to crash, or the scenario does not come to the same points again: it depends on something that is
    /// not the world's, like the order of a `HashMap` or the time of day.
    pub fn crash_everywhere(&self, scenario: impl Fn(&World)) -> CrashesTried {
        self.crash_at_each(scenario, |counts| {
            let commits = (1..=counts.commits)
                .flat_map(|number| [CrashPoint::BeforeCommit(number), CrashPoint::BehindCommit(number)]);
            let attempts = (1..=counts.attempts).map(CrashPoint::BehindAttempt);
            commits.chain(attempts).collect()
        })
    }

    /// As [`crash_everywhere`](World::crash_everywhere), with a crash behind each single step: each turn of a part, and each
    /// poll of a task. That is some ten times as many trials, and finds what depends on how far the effects of a commit had come.
    ///
    /// # Panics
    /// As [`crash_everywhere`](World::crash_everywhere).
    pub fn crash_at_each_step(&self, scenario: impl Fn(&World)) -> CrashesTried {
        self.crash_at_each(scenario, |counts| {
            (1..=counts.steps).map(CrashPoint::BehindStep).collect()
        })
    }

    fn crash_at_each(
        &self,
        scenario: impl Fn(&World),
        points: impl FnOnce(CourseCounts) -> Vec<CrashPoint>,
    ) -> CrashesTried {
        if let Some(point) = Repetition::asked_for().crash_at {
            let counts = self.trial(self.config().seed, Some(point), &scenario);
            return tried(counts, 1);
        }
        let counts = self.trial(self.config().seed, None, &scenario);
        let points = points(counts);
        assert!(
            !points.is_empty(),
            "the scenario commits nothing, so that there is nothing to crash: does it `live` in the world that it gets?"
        );
        let (len, max) = (points.len(), self.config().crash_points_max);
        assert!(
            len <= max,
            "the scenario has {len} points to crash at, and `crash_points_max` is {max}: make it smaller"
        );
        for point in points {
            self.trial(self.config().seed, Some(point), &scenario);
        }
        tried(counts, len as u64)
    }

    /// Runs the scenario in as many worlds like this one, each with another seed, beginning with this one's.
    ///
    /// ```
    /// # use millrun::{Workflow, WorkflowContext, WorkflowError};
    /// # use millrun_testkit::World;
    /// # const DOUBLE: Workflow<u64, u64> = Workflow::named("double");
    /// # async fn double(_cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> { Ok(number * 2) }
    /// let world = World::new(|builder| builder.register(DOUBLE, double));
    /// world.each_seed(20, |world| assert_eq!(world.result_of(DOUBLE, 21).unwrap(), 42));
    /// ```
    ///
    /// # Panics
    /// When the scenario does. The message has the seed, and the command that repeats the test with it alone.
    pub fn each_seed(&self, seeds: u64, scenario: impl Fn(&World)) {
        let first = self.config().seed;
        if let Some(seed) = Repetition::asked_for().seed {
            self.trial(seed, None, &scenario);
            return;
        }
        for seed in first..first.saturating_add(seeds) {
            self.trial(seed, None, &scenario);
        }
    }

    /// Runs the scenario in a world of its own.
    fn trial(&self, seed: u64, crash_at: Option<CrashPoint>, scenario: &impl Fn(&World)) -> CourseCounts {
        let world = self.alike(seed, crash_at);
        let outcome = catch_unwind(AssertUnwindSafe(|| scenario(&world)));
        let again = || {
            let seed = Some(seed);
            Repetition { seed, crash_at }.command()
        };
        let place = crash_at.map_or_else(String::new, |point| format!(", with a crash {}", place_of(point)));
        if let Err(panic) = outcome {
            let message = match panic.downcast::<String>() {
                // A trial within this one has told it.
                Ok(message) if message.contains(AGAIN) => resume_unwind(message),
                Ok(message) => *message,
                Err(panic) => panic_message(panic),
            };
            panic!(
                "{message}\nthis was in a world of the seed {seed}{place}{AGAIN}{}",
                again()
            );
        }
        let ahead = world.crash_ahead();
        assert!(
            ahead.is_none(),
            "a scenario does not do the same again: in a world of the seed {seed} it did not come to where it was to crash, \
             {}. It depends on something that is not the world's{AGAIN}{}",
            crash_at.map_or_else(String::new, place_of),
            again()
        );
        world.counts()
    }
}

fn tried(counts: CourseCounts, crashes: u64) -> CrashesTried {
    CrashesTried {
        commits: counts.commits,
        attempts: counts.attempts,
        crashes,
    }
}

fn place_of(point: CrashPoint) -> String {
    match point {
        CrashPoint::BeforeCommit(number) => format!("before commit {number}"),
        CrashPoint::BehindCommit(number) => format!("behind commit {number}"),
        CrashPoint::BehindAttempt(number) => format!("behind the end of attempt {number} of an activity"),
        CrashPoint::BehindStep(number) => format!("behind step {number}"),
    }
}
