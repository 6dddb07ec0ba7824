//! One scenario in many worlds: with each seed, and with a fault at each point.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use millrun_core::panic_message;

use super::course::CourseCounts;
use super::fault::{Fault, PlannedFault, WorldPoint, told};
use super::repeat::Repetition;
use super::world::World;
use crate::sim::Dice;

/// How many faults a scenario was tried with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FaultsTried {
    /// Commits that the scenario makes; each was tried with a fault before and one after it.
    pub commits: u64,
    /// Attempts of activities that end; each was tried with a fault after it.
    pub attempts: u64,
    /// All trials with a fault.
    pub trials: u64,
}

/// A part of each failed trial's message, so that it is printed once.
const AGAIN: &str = "\nto repeat it: ";

/// How long a disk is full at most in a trial whose faults are drawn.
const FULL_MICROS_MAX: u64 = 60_000_000;
/// How far a clock is set forward at most there.
const JUMP_MICROS_MAX: u64 = 86_400_000_000;

impl World {
    /// Runs the scenario in a world like this one, and then again and again, each time with a crash at another point: before
    /// each commit, after each commit, and after the end of each attempt of an activity. The scenario must assert only what
    /// holds whenever a process dies.
    ///
    /// The worlds have this one's registry, configuration and mocks. A crash happens while the scenario is within
    /// [`live`](World::live) (or another method that runs the world): the closure is then called again in the next life, like
    /// a client that is restarted with the process.
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
    /// A closure or a mock that keeps state keeps it through all trials: create the state of one trial within the scenario.
    ///
    /// # Panics
    /// When the scenario does. The message has the point of the crash, and the command that repeats only this trial. Also
    /// when there is no point for a crash, or the scenario does not reach the same points again: then it depends on something
    /// outside of the world, like the order of a `HashMap` or the time of day.
    pub fn crash_everywhere(&self, scenario: impl Fn(&World)) -> FaultsTried {
        self.fault_everywhere(&Fault::Crash, scenario)
    }

    /// As [`crash_everywhere`](World::crash_everywhere), with a crash after each single step: each turn of a part, and each
    /// poll of a task. That is some ten times as many trials, and finds faults that depend on how far the effects of a commit
    /// had come.
    ///
    /// # Panics
    /// As [`crash_everywhere`](World::crash_everywhere).
    pub fn crash_at_each_step(&self, scenario: impl Fn(&World)) -> FaultsTried {
        self.fault_at_each(&Fault::Crash, scenario, |counts| {
            (1..=counts.steps).map(WorldPoint::BehindStep).collect()
        })
    }

    /// As [`crash_everywhere`](World::crash_everywhere), with this fault in place of a crash: a part that fails, a disk that
    /// is full for a while, a clock that is set forward.
    ///
    /// ```
    /// # use millrun::{Workflow, WorkflowContext, WorkflowError};
    /// # use millrun_testkit::{Fault, World};
    /// # const DOUBLE: Workflow<u64, u64> = Workflow::named("double");
    /// # async fn double(_cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> { Ok(number * 2) }
    /// let world = World::new(|builder| builder.register(DOUBLE, double));
    /// world.fault_everywhere(&Fault::KillPart("reader 0".to_owned()), |world| {
    ///     assert_eq!(world.result_of(DOUBLE, 21).unwrap(), 42);
    /// });
    /// ```
    ///
    /// # Panics
    /// As [`crash_everywhere`](World::crash_everywhere), and when there is no part with this name.
    pub fn fault_everywhere(&self, fault: &Fault, scenario: impl Fn(&World)) -> FaultsTried {
        self.fault_at_each(fault, scenario, points_of)
    }

    fn fault_at_each(
        &self,
        fault: &Fault,
        scenario: impl Fn(&World),
        points: impl FnOnce(CourseCounts) -> Vec<WorldPoint>,
    ) -> FaultsTried {
        let seed = self.config().seed;
        let asked = Repetition::asked_for().faults;
        if !asked.is_empty() {
            // What the scenario counts without them is what is told, as ever.
            let counts = self.trial(seed, &[], &scenario);
            self.trial(seed, &asked, &scenario);
            return report_of(counts, 1);
        }
        let counts = self.trial(seed, &[], &scenario);
        let points = points(counts);
        assert!(
            !points.is_empty(),
            "the scenario commits nothing, so that there is nothing to crash: does it `live` in the world that it gets?"
        );
        let (len, max) = (points.len(), self.config().fault_points_max);
        assert!(
            len <= max,
            "the scenario has {len} points for a fault, and `fault_points_max` is {max}: make it smaller"
        );
        for at in points {
            let fault = fault.clone();
            self.trial(seed, &[PlannedFault { fault, at }], &scenario);
        }
        report_of(counts, len as u64)
    }

    /// Runs the scenario in this many worlds like this one, each with another seed, beginning with this one's.
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
        for seed in self.seeds(seeds) {
            self.trial(seed, &[], &scenario);
        }
    }

    /// As [`each_seed`](World::each_seed), with up to `faults_max` faults in each world; the seed decides their kinds and
    /// points. They can be crashes, parts that fail, a disk that is full for up to a minute, and a clock that is set forward
    /// by up to a day.
    ///
    /// A failed trial is tried again without each of its faults, and the message reports a failure that needs all of the
    /// remaining faults.
    ///
    /// # Panics
    /// When the scenario does. The message has seed and faults, and the command that repeats the test with them alone.
    pub fn each_seed_with_faults(&self, seeds: u64, faults_max: usize, scenario: impl Fn(&World)) {
        let asked = Repetition::asked_for().faults;
        for seed in self.seeds(seeds) {
            if !asked.is_empty() {
                // Code that was fixed may not reach their points any more.
                self.tried(seed, &asked, &scenario)
                    .unwrap_or_else(|failed| failed.tell());
                continue;
            }
            let (counts, parts) = self
                .tried(seed, &[], &scenario)
                .unwrap_or_else(|failed| failed.tell());
            let faults = drawn(seed, faults_max, &points_of(counts), &parts);
            if let Err(failed) = self.tried(seed, &faults, &scenario) {
                self.shrunk(failed, &scenario).tell();
            }
        }
    }

    /// The seeds to try: `seeds` many, or the one that has to be repeated.
    fn seeds(&self, seeds: u64) -> std::ops::Range<u64> {
        let asked = Repetition::asked_for().seed;
        let (first, len) = asked.map_or((self.config().seed, seeds), |seed| (seed, 1));
        first..first.saturating_add(len)
    }

    /// Runs the scenario in a new world, in which all these faults happen.
    fn trial(&self, seed: u64, faults: &[PlannedFault], scenario: &impl Fn(&World)) -> CourseCounts {
        let world = self.alike(seed, faults.to_vec());
        let counts = match in_world(&world, scenario) {
            Ok(()) => world.counts(),
            Err(message) => FailedTrial::new(seed, faults, message).tell(),
        };
        if world.has_faults_ahead() {
            let message = "a scenario does not do the same again: it did not come to where something was to go wrong, and so \
                           depends on something that is not the world's";
            FailedTrial::new(seed, faults, message.to_owned()).tell();
        }
        counts
    }

    /// Runs the scenario in a new world, in which these faults happen if it reaches their points: returns its counts, and its
    /// parts.
    fn tried(
        &self,
        seed: u64,
        faults: &[PlannedFault],
        scenario: &impl Fn(&World),
    ) -> Result<(CourseCounts, Vec<String>), FailedTrial> {
        let world = self.alike(seed, faults.to_vec());
        in_world(&world, scenario).map_err(|message| FailedTrial::new(seed, faults, message))?;
        let counts = world.counts();
        Ok((counts, world.parts_that_may_fail()))
    }

    /// Leaves out each fault without which the trial still fails.
    fn shrunk(&self, mut failed: FailedTrial, scenario: &impl Fn(&World)) -> FailedTrial {
        let mut index = 0;
        while index < failed.faults.len() {
            let mut fewer = failed.faults.clone();
            fewer.remove(index);
            match self.tried(failed.seed, &fewer, scenario) {
                Ok(_) => index += 1,
                Err(smaller) => failed = smaller,
            }
        }
        failed
    }
}

/// A trial that has failed.
struct FailedTrial {
    seed: u64,
    faults: Vec<PlannedFault>,
    message: String,
}

impl FailedTrial {
    fn new(seed: u64, faults: &[PlannedFault], message: String) -> Self {
        let faults = faults.to_vec();
        Self {
            seed,
            faults,
            message,
        }
    }

    /// Fails with what it was, and how it is repeated.
    fn tell(self) -> ! {
        if self.message.contains(AGAIN) {
            // A trial within this one has printed it.
            resume_unwind(Box::new(self.message));
        }
        let (seed, faults) = (self.seed, told(&self.faults));
        let again = Repetition {
            seed: Some(seed),
            faults: self.faults,
        };
        panic!(
            "{}\nthis was in a world of the seed {seed}{faults}{AGAIN}{}",
            self.message,
            again.command()
        );
    }
}

/// The message with which the scenario fails, if it does.
fn in_world(world: &World, scenario: &impl Fn(&World)) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(|| scenario(world))).map_err(panic_message)
}

/// Around each commit, and behind each attempt.
fn points_of(counts: CourseCounts) -> Vec<WorldPoint> {
    let commits = (1..=counts.commits)
        .flat_map(|number| [WorldPoint::BeforeCommit(number), WorldPoint::BehindCommit(number)]);
    let attempts = (1..=counts.attempts).map(WorldPoint::BehindAttempt);
    commits.chain(attempts).collect()
}

/// Up to `faults_max` faults of this seed, at some of these points.
fn drawn(seed: u64, faults_max: usize, points: &[WorldPoint], parts: &[String]) -> Vec<PlannedFault> {
    if points.is_empty() || faults_max == 0 {
        return Vec::new();
    }
    let mut dice = Dice::new(seed);
    let len = 1 + dice.index(faults_max);
    let mut faults = Vec::new();
    for _ in 0..len {
        let fault = match dice.below(4) {
            0 if !parts.is_empty() => Fault::KillPart(parts[dice.index(parts.len())].clone()),
            1 => Fault::DiskFull(Duration::from_micros(1 + dice.below(FULL_MICROS_MAX))),
            2 => Fault::ClockJump(Duration::from_micros(1 + dice.below(JUMP_MICROS_MAX))),
            _ => Fault::Crash,
        };
        let at = points[dice.index(points.len())];
        faults.push(PlannedFault { fault, at });
    }
    faults
}

fn report_of(counts: CourseCounts, trials: u64) -> FaultsTried {
    FaultsTried {
        commits: counts.commits,
        attempts: counts.attempts,
        trials,
    }
}
