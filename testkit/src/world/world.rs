//! The world as a test has it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use millrun::host::Placement;
use millrun::{Activity, ResultError, Runtime, RuntimeBuilder, Timestamp, TypedError, Workflow};
use millrun_persistence::{Journal, JournalConfig, MemoryJournal};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::config::WorldConfig;
use super::course::{CourseCounts, WorldCourse, WorldLife};
use super::fault::{Fault, PlannedFault};
use super::journal::{DiskPart, WorldJournal};
use super::looking::{since, waits};
use super::mock::{AnyMock, Mock, TypedMock, copies_of};
use super::recorder::{CallRecorder, WorldTap};
use super::repeat::Repetition;
use crate::sim::{SimHost, SimStop, Stuck, Trace};

/// For how many runs a world that is stuck reports what they wait for.
const WAITS_LEN_MAX: usize = 32;

/// A seeded world of one thread with virtual time, in which a program's own registry runs.
///
/// ```
/// use std::time::Duration;
/// use millrun::{Activity, RuntimeBuilder, Workflow, WorkflowContext, WorkflowError};
/// use millrun_testkit::World;
///
/// const CHARGE: Activity<u64, u64> = Activity::named("charge");
/// const RENT: Workflow<u64, u64> = Workflow::named("rent");
///
/// async fn rent(cx: WorkflowContext, cents: u64) -> Result<u64, WorkflowError> {
///     cx.sleep(Duration::from_secs(30 * 86_400)).await?;
///     Ok(cx.call(CHARGE, cents).await?)
/// }
///
/// /// What the program's `main` calls as well.
/// fn registered(builder: RuntimeBuilder) -> RuntimeBuilder {
///     builder.register(RENT, rent)
/// }
///
/// let world = World::new(registered);
/// world.mock(CHARGE).returns(7);
/// assert_eq!(world.result_of(RENT, 65_000).unwrap(), 7); // a month passes in a moment
/// assert_eq!(world.calls(CHARGE), [65_000]);
/// ```
///
/// The first call that needs the runtime opens it, on the world's own store in memory. Mock activities before that.
///
/// # Panics
/// Every error panics, as an assertion does: a world is for tests. A failing test prints the seed and the command that
/// repeats it.
pub struct World {
    config: WorldConfig,
    registry: Registry,
    sim: SimHost,
    course: Arc<WorldCourse>,
    /// The parts that are to fail.
    killed: Vec<String>,
    recorder: Arc<CallRecorder>,
    mocks: RefCell<BTreeMap<&'static str, Arc<dyn AnyMock>>>,
    present: RefCell<Option<Present>>,
    /// The store that the former life has left, while there is no present life.
    store: RefCell<Option<MemoryJournal>>,
    /// How many runs `result_of` has started.
    results_len: Cell<u64>,
    is_driving: Cell<bool>,
    /// The seed of a trial is reported by the code that runs the trials.
    is_trial: bool,
}

/// The program's own registration.
type Registry = Rc<dyn Fn(RuntimeBuilder) -> RuntimeBuilder>;

/// The present life.
struct Present {
    life: Arc<WorldLife>,
    journal: Arc<WorldJournal>,
    /// `None` until it has opened.
    runtime: Option<Runtime>,
}

impl World {
    /// A world with the seed 1, or the one in `MILLRUN_WORLD`, with this registry: the program's own setup of a builder.
    #[must_use]
    pub fn new(registry: impl Fn(RuntimeBuilder) -> RuntimeBuilder + 'static) -> Self {
        Self::with(WorldConfig::default(), registry)
    }

    /// A world with this seed, unless `MILLRUN_WORLD` has another.
    #[must_use]
    pub fn seeded(seed: u64, registry: impl Fn(RuntimeBuilder) -> RuntimeBuilder + 'static) -> Self {
        Self::with(WorldConfig::seeded(seed), registry)
    }

    /// A world with this configuration. `MILLRUN_WORLD` may set another seed.
    #[must_use]
    pub fn with(
        mut config: WorldConfig,
        registry: impl Fn(RuntimeBuilder) -> RuntimeBuilder + 'static,
    ) -> Self {
        config.seed = Repetition::asked_for().seed.unwrap_or(config.seed);
        Self::of(config, Rc::new(registry), BTreeMap::new(), Vec::new())
    }

    fn of(
        config: WorldConfig,
        registry: Registry,
        mocks: BTreeMap<&'static str, Arc<dyn AnyMock>>,
        faults: Vec<PlannedFault>,
    ) -> Self {
        let sim = SimHost::new(config.sim());
        let killed = faults.iter().filter_map(|planned| match &planned.fault {
            Fault::KillPart(part) => Some(part.clone()),
            Fault::Crash | Fault::DiskFull(_) | Fault::ClockJump(_) => None,
        });
        let killed = killed.collect();
        let course = Arc::new(WorldCourse::new(faults, sim.crasher(), sim.clock_setter()));
        Self {
            recorder: Arc::new(CallRecorder::new(config.attempts_len_max)),
            config,
            registry,
            sim,
            course,
            killed,
            mocks: RefCell::new(mocks),
            present: RefCell::new(None),
            store: RefCell::new(None),
            results_len: Cell::new(0),
            is_driving: Cell::new(false),
            is_trial: false,
        }
    }

    /// A world in which nothing has happened, for a trial: with this one's registry, configuration and mocks.
    pub(super) fn alike(&self, seed: u64, faults: Vec<PlannedFault>) -> Self {
        let mut config = self.config.clone();
        config.seed = seed;
        let mocks = self.mocks.borrow();
        let mocks = mocks.iter().map(|(name, mock)| (*name, mock.afresh())).collect();
        let mut world = Self::of(config, Rc::clone(&self.registry), mocks, faults);
        world.is_trial = true;
        world
    }

    /// Replaces an activity, whether it is registered or not, by a mock, and sets what its attempts do. A further call
    /// replaces the mock's behaviour.
    ///
    /// # Panics
    /// When the world has opened and the activity is not mocked there.
    pub fn mock<I, O, E>(&self, activity: Activity<I, O, E>) -> Mock<I, O, E>
    where
        I: DeserializeOwned + Send + 'static,
        O: Serialize + DeserializeOwned + Send + 'static,
        E: TypedError,
    {
        let name = activity.name();
        let mut mocks = self.mocks.borrow_mut();
        if let Some(mock) = mocks.get(name) {
            let mock = Arc::clone(mock).into_any().downcast::<TypedMock<I, O, E>>();
            let mock = mock.unwrap_or_else(|_| panic!("{name} is mocked with other types"));
            return mock.said_anew();
        }
        assert!(
            self.present.borrow().is_none(),
            "{name} is mocked when the world has opened: mock it before the first run"
        );
        let mock = TypedMock::new(activity);
        mocks.insert(name, Arc::clone(&mock) as Arc<dyn AnyMock>);
        mock.said_anew()
    }

    /// Starts a run of this workflow and waits for its result; time passes as it must.
    ///
    /// ```
    /// # use millrun::{Workflow, WorkflowContext, WorkflowError};
    /// # use millrun_testkit::World;
    /// # const DOUBLE: Workflow<u64, u64> = Workflow::named("double");
    /// # async fn double(_cx: WorkflowContext, number: u64) -> Result<u64, WorkflowError> { Ok(number * 2) }
    /// let world = World::new(|builder| builder.register(DOUBLE, double));
    /// assert_eq!(world.result_of(DOUBLE, 21).unwrap(), 42);
    /// ```
    ///
    /// Its id is the name of the workflow, `-` and a number, from 1.
    ///
    /// # Errors
    /// When the run fails, is cancelled or terminated, or is parked.
    ///
    /// # Panics
    /// When it does not end. The message says what the run waits for.
    #[track_caller]
    pub fn result_of<I, O, E>(&self, workflow: Workflow<I, O, E>, input: I) -> Result<O, ResultError<E>>
    where
        I: Serialize + DeserializeOwned,
        O: DeserializeOwned,
        E: TypedError,
    {
        self.results_len.set(self.results_len.get() + 1);
        let id = format!("{}-{}", workflow.name(), self.results_len.get());
        let input = copies_of(&input);
        self.live(async |runtime| {
            let started = runtime.start(workflow, &id, input()).await;
            let run = started.unwrap_or_else(|error| panic!("{id} does not start: {error}"));
            run.result().await
        })
    }

    /// Runs a client of the program, in virtual time: the world goes on until the client has finished. A failed assertion in
    /// it fails the test.
    ///
    /// When the process crashes meanwhile, as it does under [`crash_everywhere`](World::crash_everywhere), the closure is
    /// called again with the runtime of the next life: it must act like a client that does not know how far it had come.
    /// Starts and updates under the same ids, and signals under the same requests, take effect once.
    ///
    /// # Panics
    /// When nothing is left to run and the closure still waits, or the steps are used up. The message says what the runs wait
    /// for.
    #[track_caller]
    pub fn live<T>(&self, client: impl AsyncFn(Runtime) -> T) -> T {
        loop {
            if let Some((life, runtime)) = self.open()
                && let Some(end) = self.drive(&life, client(runtime))
            {
                return end;
            }
        }
    }

    /// Lets this much time pass, and runs whatever becomes ready meanwhile.
    #[track_caller]
    pub fn advance(&self, by: Duration) {
        let until = self.sim.now() + by;
        loop {
            self.live(async |runtime| runtime.host().sleep_until(until).await);
            assert!(
                self.sim.run_ready() != SimStop::StepsSpent,
                "the world is never idle{}",
                self.told()
            );
            if self
                .present
                .borrow()
                .as_ref()
                .is_some_and(|present| !present.life.is_over())
            {
                return;
            }
            // It has crashed meanwhile; the next life does the rest.
        }
    }

    /// Sets the clock forward without running anything meanwhile, as a correction or the end of a suspend does: everything in
    /// between is due at once, in an order drawn from the seed.
    pub fn jump_clock(&self, by: Duration) {
        self.sim.set_forward(by);
    }

    /// Kills the process: the next life, which begins with the next call that needs it, has all that was durable and nothing
    /// else.
    ///
    /// # Panics
    /// Within [`live`](World::live).
    pub fn crash(&self) {
        self.assert_not_driving();
        if let Some(present) = &*self.present.borrow() {
            present.life.crash();
        }
        self.bury();
    }

    /// Shuts the process down; it begins again with the next call that needs it.
    ///
    /// # Panics
    /// Within [`live`](World::live), and when the shutdown does not come to an end.
    #[track_caller]
    pub fn restart(&self) {
        self.live(async |runtime| {
            let shut_down = runtime.shutdown().await;
            shut_down.unwrap_or_else(|error| panic!("the runtime does not shut down: {error}"))
        });
        self.crash();
    }

    /// The runtime of the present life, which opens if necessary: for making handles, and for calls that do not wait.
    #[must_use]
    #[track_caller]
    pub fn runtime(&self) -> Runtime {
        self.live(async |runtime| runtime)
    }

    /// The virtual time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.sim.now()
    }

    /// The seed that decides every choice.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.config.seed
    }

    /// What ran when, one step a line. Two worlds of one seed have equal traces.
    #[must_use]
    pub fn trace(&self) -> Trace {
        self.sim.trace()
    }

    pub(super) const fn config(&self) -> &WorldConfig {
        &self.config
    }

    pub(super) fn counts(&self) -> CourseCounts {
        self.course.counts()
    }

    pub(super) fn has_faults_ahead(&self) -> bool {
        self.course.has_faults_ahead()
    }

    /// The names of the parts that are restarted when they fail.
    pub(super) fn parts_that_may_fail(&self) -> Vec<String> {
        let parts = self.runtime().parts().into_iter().map(|part| part.name);
        // Without these two the runtime stops.
        parts
            .filter(|name| name != "journal" && name != "timers")
            .collect()
    }

    pub(super) fn recorder(&self) -> &CallRecorder {
        &self.recorder
    }

    /// The present life and its runtime; `None` if it has crashed while it opened.
    #[track_caller]
    fn open(&self) -> Option<(Arc<WorldLife>, Runtime)> {
        self.assert_not_driving();
        if let Some(present) = &*self.present.borrow()
            && !present.life.is_over()
            && let Some(runtime) = &present.runtime
        {
            return Some((Arc::clone(&present.life), runtime.clone()));
        }
        self.bury();
        let mut kept = JournalConfig::default();
        let builder = (self.registry)(Runtime::volatile()).configure(|config| {
            // A test may ask for it afterwards, so it must be there.
            config.keep_history = true;
            kept = config.journal.clone();
        });
        let memory = self.store.take().unwrap_or_else(|| {
            MemoryJournal::held(kept)
                .unwrap_or_else(|error| panic!("the registry configures no journal: {error}"))
        });
        let host = self.sim.host();
        let life = Arc::new(WorldLife::new(Arc::clone(&self.course), Arc::clone(&host)));
        let journal = Arc::new(WorldJournal::new(memory, Arc::clone(&life)));
        let disk = DiskPart::new(
            Arc::clone(&journal),
            Arc::clone(&host),
            self.config.commit_time_max,
        );
        let disk = host.spawn_part(
            "disk",
            Placement::Thread,
            journal.bell(),
            Box::new(disk),
            Box::new(drop),
        );
        let _disk = disk.expect("the present life takes parts");
        *self.present.borrow_mut() = Some(Present {
            life: Arc::clone(&life),
            journal: Arc::clone(&journal),
            runtime: None,
        });
        let tap = WorldTap {
            recorder: Arc::clone(&self.recorder),
            life: Arc::clone(&life),
            host: Arc::clone(&host),
        };
        let mut builder = builder;
        for mock in self.mocks.borrow().values() {
            builder = Arc::clone(mock).install(builder, &host);
        }
        let builder = builder.host(host).journal(journal as Arc<dyn Journal>);
        let started = self.drive(&life, builder.tap_activities(Arc::new(tap)).start())?;
        let runtime =
            started.unwrap_or_else(|error| panic!("the registry does not start: {error}{}", self.told()));
        for part in &self.killed {
            let is_there = runtime.parts().iter().any(|there| there.name == *part);
            assert!(is_there, "there is no part named {part:?} that could fail");
        }
        life.opened(runtime.downgrade());
        if let Some(present) = &mut *self.present.borrow_mut() {
            present.runtime = Some(runtime.clone());
        }
        Some((life, runtime))
    }

    /// Keeps what an ended life has left in the store.
    fn bury(&self) {
        let Some(present) = self.present.take() else {
            return;
        };
        let left = present.journal.reopened();
        drop(present);
        *self.store.borrow_mut() = Some(left);
    }

    /// Runs the world until the future has completed; `None` if the life ends before.
    #[track_caller]
    fn drive<T>(&self, life: &Arc<WorldLife>, future: impl Future<Output = T>) -> Option<T> {
        self.assert_not_driving();
        self.is_driving.set(true);
        let driving = Driving(&self.is_driving);
        let mut future = pin!(future);
        let watched = poll_fn(|task| {
            if life.watch(task) {
                return Poll::Ready(None);
            }
            future.as_mut().poll(task).map(Some)
        });
        let end = self.sim.block_on_watched(watched, &mut || life.begin_step());
        drop(driving);
        assert!(
            !self.recorder.has_refused(),
            "no more attempts of activities are made: there were `attempts_len_max`{}",
            self.told()
        );
        end.unwrap_or_else(|stuck| self.explain(&stuck))
    }

    fn assert_not_driving(&self) {
        assert!(
            !self.is_driving.get(),
            "within `live` the world cannot be asked to go on: use the runtime's own methods there, or do this behind it"
        );
    }

    /// Reports why the world is stuck.
    #[track_caller]
    fn explain(&self, stuck: &Stuck) -> ! {
        let why = match stuck.outcome {
            SimStop::Idle => "nothing is left to run, and what is waited for will not come",
            SimStop::Reached | SimStop::StepsSpent => "the steps are spent",
        };
        let runtime = self
            .present
            .borrow()
            .as_ref()
            .and_then(|present| present.runtime.clone());
        let waits = runtime.and_then(|runtime| self.sim.block_on(waits(&runtime, WAITS_LEN_MAX)).ok());
        let waits = match waits.filter(|waits| !waits.is_empty()) {
            Some(waits) => format!("what the runs wait for:\n{waits}"),
            None => "no run is live\n".to_owned(),
        };
        let steps = &stuck.last_steps;
        panic!(
            "the world does not go on: {why}\n{waits}it ended with\n{steps}{}",
            self.told()
        );
    }

    /// When that was.
    fn told(&self) -> String {
        format!(
            "\n({} after the world's beginning)",
            since(self.config.starts_at, self.now())
        )
    }
}

struct Driving<'a>(&'a Cell<bool>);

impl Drop for Driving<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if thread::panicking() && !self.is_trial {
            let repetition = Repetition {
                seed: Some(self.config.seed),
                faults: Vec::new(),
            };
            eprintln!(
                "a world of the seed {}; to repeat it: {}",
                self.config.seed,
                repetition.command()
            );
        }
        if let Some(present) = self.present.take() {
            present.life.crash();
        }
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World")
            .field("seed", &self.config.seed)
            .field("now", &self.now())
            .finish_non_exhaustive()
    }
}
