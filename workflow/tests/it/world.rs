//! A scripted world for one run, which checks by itself that replay changes nothing.
//!
//! ```text
//!   test ── input ──► Instance ── turn ──► history (as bytes) ── replay of each prefix ──► Instance
//!                                   │                                                        │ same input
//!                                   └──────────────── must be the same turn ◄────────────────┘
//! ```
//!
//! Each input is applied to the live instance. When the world is dropped, or asked for the run's
//! result, [`World::check_replays`] replays every prefix of the history that ends where a turn ended,
//! applies the next input to the replayed instance, and compares events, commands and state. Where the code has
//! made a checkpoint, the same is done from what the engine kept there, with the events behind it. Histories
//! pass through their stored form on the way. Left out are worlds that [say](World::fickle) that their
//! code does something else each time.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millrun_core::{InstanceId, Partition, RunId, Sequence, Timestamp};
use millrun_workflow::{
    Activity, ActivityFailure, ActivityScheduled, ChildScheduled, Command, Event, Implementation, Input,
    InputRefused, Instance, KeptBeginning, Ledger, Limits, Moment, OperationId, Outcome, Outstanding,
    ParkReason, Payload, ResetPoint, ResetRefused, Signal, Started, Turn, Workflow, WorkflowContext,
    WorkflowError, wire,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::owed::Owed;

/// Up to this many prefixes are all replayed; of more, an even sample of [`PREFIXES_SAMPLED`].
const PREFIXES_MAX: usize = 200;
const PREFIXES_SAMPLED: usize = 40;

pub(crate) fn run_id() -> RunId {
    RunId::new(Partition::of(b"world"), Timestamp::from_micros(1_000_000), 7)
}

/// One input and what it made of the instance.
#[derive(Debug)]
struct Step {
    /// The code and the limits it was applied with.
    code: Option<Implementation>,
    limits: Limits,
    /// How many events stood before it.
    from: usize,
    input: Input,
    moment: Moment,
    commands: Vec<Command>,
    kept: Option<(Sequence, Vec<u8>)>,
    events_len: usize,
}

#[derive(Debug)]
pub(crate) struct World {
    run: RunId,
    code: Option<Implementation>,
    pub(crate) limits: Limits,
    pub(crate) moment: Moment,
    pub(crate) instance: Instance,
    history: Vec<(Event, Timestamp)>,
    /// What the engine kept at its checkpoints, with how many events it stands for.
    kept: Vec<(usize, Bytes)>,
    steps: Vec<Step>,
    /// Attempts that have been asked for and not reported, by operation.
    pub(crate) activities: BTreeMap<OperationId, (Arc<ActivityScheduled>, u32)>,
    /// Deadlines that have been asked for and not fired.
    pub(crate) timers: BTreeMap<OperationId, Timestamp>,
    /// Children that have been asked for and not closed.
    pub(crate) children: BTreeMap<OperationId, Arc<ChildScheduled>>,
    pub(crate) commands: Vec<Command>,
    /// What the commands have asked for and inputs have not reported.
    owed: Owed,
    /// Whether the code does something else each time.
    is_fickle: bool,
    /// How long the history was when its replays were checked last.
    checked_len: Cell<usize>,
}

impl World {
    pub(crate) fn start(code: Implementation, input: &impl Serialize) -> Self {
        Self::start_with(Some(code), input, Limits::default())
    }

    pub(crate) fn start_with(code: Option<Implementation>, input: &impl Serialize, limits: Limits) -> Self {
        let moment = Moment {
            now: Timestamp::from_micros(1_000_000),
            epoch: 1,
        };
        let name = code.as_ref().map_or("unknown", Implementation::name);
        let started = Started::new(
            name,
            InstanceId::new("world").unwrap(),
            Payload::encode(input).unwrap(),
        );
        Self::start_as(code, started, limits, moment)
    }

    /// What the engine kept at its checkpoints, the first one first.
    pub(crate) fn kept(&self) -> impl Iterator<Item = &Bytes> {
        self.kept.iter().map(|(_, bytes)| bytes)
    }

    /// Begins a run that stems from another.
    pub(crate) fn start_as(
        code: Option<Implementation>,
        started: Started,
        mut limits: Limits,
        moment: Moment,
    ) -> Self {
        limits.kept_beginning_every = 1;
        let mut turn = lending();
        let instance = *Instance::start_in(&mut turn, code.as_ref(), run_id(), started, limits, moment);
        let mut world = Self {
            run: run_id(),
            code,
            limits,
            moment,
            instance,
            history: Vec::new(),
            kept: Vec::new(),
            steps: Vec::new(),
            activities: BTreeMap::new(),
            timers: BTreeMap::new(),
            children: BTreeMap::new(),
            commands: Vec::new(),
            owed: Owed::default(),
            is_fickle: false,
            checked_len: Cell::new(0),
        };
        world.record(turn);
        world
    }

    /// Takes up a run from its history, with this code.
    pub(crate) fn from_history(code: Option<Implementation>, history: Vec<(Event, Timestamp)>) -> Self {
        let limits = Limits::default();
        let instance = Instance::replay(code.as_ref(), run_id(), history.clone(), limits).unwrap();
        let now = history.last().map_or(Timestamp::EPOCH, |(_, time)| *time);
        let moment = Moment { now, epoch: 2 };
        let owed = Owed::taken_up(instance.ledger(), moment);
        Self {
            run: run_id(),
            code,
            limits,
            moment,
            instance,
            history,
            kept: Vec::new(),
            steps: Vec::new(),
            activities: BTreeMap::new(),
            timers: BTreeMap::new(),
            children: BTreeMap::new(),
            commands: Vec::new(),
            owed,
            is_fickle: false,
            checked_len: Cell::new(0),
        }
    }

    /// The world of the run that begins when this one is reset, a minute later, with this code.
    pub(crate) fn reset(&self, code: &Implementation, point: &ResetPoint) -> Result<Self, ResetRefused> {
        let now = self.moment.now + Duration::from_secs(60);
        let moment = Moment { now, ..self.moment };
        let run = RunId::new(self.run.partition(), now, 8);
        let former = (self.run, self.history.iter().map(stored).collect());
        let mut turn = lending();
        let instance = Instance::begin_reset(code, run, former, point, self.limits, moment, &mut turn)?;
        let mut world = Self {
            run,
            code: Some(code.clone()),
            limits: self.limits,
            moment,
            instance,
            history: Vec::new(),
            kept: Vec::new(),
            steps: Vec::new(),
            activities: BTreeMap::new(),
            timers: BTreeMap::new(),
            children: BTreeMap::new(),
            commands: Vec::new(),
            owed: Owed::default(),
            is_fickle: false,
            checked_len: Cell::new(0),
        };
        world.record(turn);
        Ok(world)
    }

    fn record(&mut self, mut turn: Turn) {
        if let Some((sequence, bytes)) = turn.kept.take() {
            let len = usize::try_from(sequence.get()).unwrap();
            self.kept.push((len, bytes.into()));
        }
        let times = turn
            .recorded
            .into_iter()
            .chain(std::iter::repeat(self.moment.now));
        for (event, time) in turn.events.into_iter().zip(times) {
            self.owed.event(&event);
            self.history.push((event, time));
        }
        for command in &turn.commands {
            self.owed.command(command);
            match command {
                Command::RunActivity {
                    scheduled, attempt, ..
                } => {
                    self.activities
                        .insert(scheduled.operation, (Arc::clone(scheduled), *attempt));
                }
                Command::CancelActivity { operation, .. } => {
                    self.activities.remove(operation);
                }
                Command::StartTimer { operation, deadline } => {
                    self.timers.insert(*operation, *deadline);
                }
                Command::CancelTimer { operation, .. } => {
                    self.timers.remove(operation);
                }
                Command::StartChild { scheduled, .. } => {
                    self.children.insert(scheduled.operation, Arc::clone(scheduled));
                }
                Command::CloseChild(scheduled) => {
                    self.children.remove(&scheduled.operation);
                }
                Command::CancelChild { .. }
                | Command::ResumeAt { .. }
                | Command::TimeOutAt { .. }
                | Command::CancelTimeOut { .. }
                | Command::Publish { .. }
                | Command::CancelPublish { .. }
                | Command::Receive { .. }
                | Command::CancelReceive(_)
                | Command::SendSignal { .. }
                | Command::CancelSignal { .. }
                | Command::ContinueAsNew { .. }
                | Command::Park(_)
                | Command::Close(_) => {}
            }
        }
        self.commands = turn.commands;
        self.owed.check(self.instance.ledger(), self.moment);
    }

    /// Applies an input; the commands it led to are in `commands` afterwards.
    pub(crate) fn apply(&mut self, input: Input) -> Result<(), InputRefused> {
        let before = format!("{:?}", self.instance.ledger());
        let mut turn = Turn::default();
        let applied = self.instance.apply(input.clone(), self.moment, &mut turn);
        if let Err(refused) = applied {
            assert_eq!(turn, Turn::default(), "a refused input appends nothing");
            assert_eq!(
                format!("{:?}", self.instance.ledger()),
                before,
                "a refused input changes nothing"
            );
            return Err(refused);
        }
        self.owed.reported(&input, self.moment.now);
        self.steps.push(Step {
            code: self.code.clone(),
            limits: self.limits,
            from: self.history.len(),
            input,
            moment: self.moment,
            commands: turn.commands.clone(),
            kept: turn.kept.clone(),
            events_len: turn.events.len(),
        });
        self.record(turn);
        Ok(())
    }

    pub(crate) fn operation(number: u32) -> OperationId {
        OperationId::new(number)
    }

    /// Reports the value of an activity that was asked for.
    pub(crate) fn complete(&mut self, number: u32, value: &impl Serialize) {
        let operation = OperationId::new(number);
        let (_, attempt) = self
            .activities
            .remove(&operation)
            .unwrap_or_else(|| panic!("activity {number} was not asked for"));
        let result = Payload::encode(value).unwrap();
        let input = Input::ActivityCompleted {
            operation,
            attempt,
            result,
        };
        self.apply(input).unwrap();
    }

    /// Reports the failure of an activity that was asked for.
    pub(crate) fn fail(&mut self, number: u32, message: &str, is_retryable: bool) {
        let operation = OperationId::new(number);
        let (_, attempt) = self
            .activities
            .remove(&operation)
            .unwrap_or_else(|| panic!("activity {number} was not asked for"));
        let failure = failure(message, is_retryable);
        let input = Input::AttemptFailed {
            operation,
            attempt,
            failure,
            is_retryable,
            kind: None,
            retry_after: None,
        };
        self.apply(input).unwrap();
    }

    pub(crate) fn signal<T: Serialize>(&mut self, signal: Signal<T>, value: &T) {
        let value = Payload::encode(value).unwrap();
        let name = signal.name().into();
        self.apply(Input::Signal {
            name,
            value,
            cause: None,
            request: None,
        })
        .unwrap();
    }

    /// As [`signal`](Self::signal), under a request.
    pub(crate) fn signal_as<T: Serialize>(
        &mut self,
        request: &str,
        signal: Signal<T>,
        value: &T,
    ) -> Result<(), InputRefused> {
        self.apply(Input::Signal {
            name: signal.name().into(),
            value: Payload::encode(value).unwrap(),
            cause: None,
            request: Some(request.into()),
        })
    }

    pub(crate) fn cancel(&mut self) {
        let reason = "test".into();
        self.apply(Input::Cancel { reason }).unwrap();
    }

    /// Moves the time to the earliest deadline and fires it. Whether there was one.
    pub(crate) fn fire_next(&mut self) -> bool {
        let earliest = self
            .timers
            .iter()
            .min_by_key(|(operation, deadline)| (**deadline, **operation));
        let Some((&operation, &deadline)) = earliest else {
            return false;
        };
        self.timers.remove(&operation);
        self.moment.now = self.moment.now.max(deadline);
        self.apply(Input::TimerFired { operation }).unwrap();
        true
    }

    /// What a crash and a restart do: memory is lost, the history is replayed, with a new epoch.
    pub(crate) fn reopen(&mut self) {
        self.moment.epoch += 1;
        self.reload();
        let pending: Vec<_> = self.instance.ledger().pending().collect();
        self.activities.clear();
        for (operation, pending) in pending {
            if let millrun_workflow::Pending::Activity(activity) = pending
                && activity.retry_at.is_none()
            {
                let attempt = activity.attempt(self.moment.epoch);
                self.activities
                    .insert(operation, (Arc::clone(&activity.scheduled), attempt));
            }
        }
    }

    /// What unloading and waking does: memory is lost, the history is replayed.
    pub(crate) fn reload(&mut self) {
        let mut replayed = self.replays(self.code.as_ref(), self.limits, self.history.len());
        self.instance = replayed.pop().unwrap();
    }

    /// Goes on with other code.
    pub(crate) fn reload_with(&mut self, code: Option<Implementation>) {
        self.code = code;
        self.reload();
    }

    /// The instance that the first `len` events give, from all of them, and from what was kept of them last.
    fn replays(&self, code: Option<&Implementation>, limits: Limits, len: usize) -> Vec<Instance> {
        let stored_from = |from: usize| self.history[from..len].iter().map(stored);
        let whole = Instance::replay(code, self.run, stored_from(0), limits);
        let mut replayed = vec![whole.expect("the world recorded a history")];
        if let Some((from, bytes)) = self.kept.iter().rfind(|(kept_len, _)| *kept_len <= len) {
            let kept = KeptBeginning::decode(bytes).expect("the engine's own bytes can be read");
            assert_eq!(kept.sequence().get(), *from as u64);
            let kept = Instance::replay_kept(code, self.run, kept, stored_from(*from), limits);
            let kept = kept.expect("the events go on where it ends");
            let said = |instance: &Instance| {
                let ledger = format!("{:?}", instance.ledger());
                let reasons = (instance.park_reason().cloned(), instance.changed_values());
                (ledger, reasons, instance.has_code(), instance.memory_bytes())
            };
            assert_eq!(said(&kept), said(&replayed[0]), "{len} events, from {from}");
            replayed.push(kept);
        }
        replayed
    }

    /// The code panics, or touches its run from outside, at some times and not at others: replays are
    /// compared only where the test does it.
    pub(crate) fn fickle(mut self) -> Self {
        self.is_fickle = true;
        self
    }

    /// Replays every prefix and compares what the next input makes of it.
    pub(crate) fn check_replays(&self) {
        self.checked_len.set(self.history.len());
        let is_sampled = self.steps.len() > PREFIXES_MAX;
        let stride = if is_sampled {
            self.steps.len() / PREFIXES_SAMPLED
        } else {
            1
        };
        for step in self.steps.iter().rev().step_by(stride) {
            for mut instance in self.replays(step.code.as_ref(), step.limits, step.from) {
                let mut turn = Turn::default();
                instance
                    .apply(step.input.clone(), step.moment, &mut turn)
                    .unwrap_or_else(|refused| {
                        panic!("replayed up to {}, {:?}: {refused}", step.from, step.input)
                    });
                let events = self.history[step.from..step.from + step.events_len].iter();
                let events: Vec<_> = events.map(|(event, _)| event.clone()).collect();
                assert_eq!(turn.events, events, "replayed up to event {}", step.from);
                assert_eq!(turn.commands, step.commands, "replayed up to event {}", step.from);
                assert_eq!(turn.kept, step.kept, "replayed up to event {}", step.from);
                assert_eq!(instance.changed_values(), 0);
            }
        }
        let replayed = self.replays(self.code.as_ref(), self.limits, self.history.len());
        let replayed = &replayed[0];
        let ledgers = [replayed, &self.instance].map(|instance| format!("{:?}", instance.ledger()));
        assert_eq!(ledgers[0], ledgers[1]);
        assert_eq!(replayed.park_reason(), self.instance.park_reason());
        self.check_outstanding();
        self.check_outstanding_of_kept();
    }

    fn gather(&self, gathered: &mut Outstanding) {
        for (index, (event, time)) in self.history.iter().enumerate() {
            let mut body = Vec::new();
            wire::encode(event, &mut body).expect("the engine's own events can be encoded");
            let opens = (index == 0).then_some("of an earlier run");
            let taken = gathered.take(wire::kind(event), &body, *time, opens);
            taken.expect("the engine's own events can be read");
        }
    }

    /// What is gathered of each prefix without decoding it is what the fold of its events says.
    fn check_outstanding(&self) {
        let (mut whole, mut gathered) = (Ledger::new(), Outstanding::new());
        self.gather(&mut gathered);
        // What is left of an earlier run changes nothing.
        gathered.clear();
        let nothing = gathered.ledger().expect("there is nothing to be read");
        assert_eq!(
            (nothing.started(), nothing.pending_len(), nothing.parked()),
            (None, 0, None)
        );
        for (index, (event, time)) in self.history.iter().enumerate() {
            whole.apply(event, *time);
            let mut body = Vec::new();
            wire::encode(event, &mut body).expect("the engine's own events can be encoded");
            let opens = whole
                .started()
                .filter(|_| index == 0)
                .map(|started| started.id.as_str());
            let taken = gathered.take(wire::kind(event), &body, *time, opens);
            taken.expect("the engine's own events can be read");
            if index > PREFIXES_MAX && index % PREFIXES_MAX != 0 && index + 1 < self.history.len() {
                continue;
            }
            let outstanding = gathered.ledger().expect("the engine's own events can be read");
            assert_eq!(outstanding.started(), whole.started());
            assert_eq!(outstanding.started_at(), whole.started_at());
            assert_eq!(outstanding.version(), whole.version(), "up to event {index}");
            assert_eq!(outstanding.parked(), whole.parked(), "up to event {index}");
            assert!(outstanding.pending().eq(whole.pending()), "up to event {index}");
            let since = |ledger: &Ledger| {
                let operations = ledger.pending().map(|(operation, _)| operation);
                operations
                    .map(|operation| ledger.pending_since(operation))
                    .collect::<Vec<_>>()
            };
            assert_eq!(since(&outstanding), since(&whole), "up to event {index}");
        }
    }

    /// So it is if the history was trimmed to a kept beginning and the events behind it.
    fn check_outstanding_of_kept(&self) {
        let mut gathered = Outstanding::new();
        self.gather(&mut gathered);
        for (len, bytes) in &self.kept {
            let sequence = gathered
                .begin_kept(bytes)
                .expect("the engine's own bytes can be read");
            let mut whole = Ledger::new();
            for (number, (event, time)) in (1..).zip(&self.history) {
                whole.apply(event, *time);
                if number <= sequence.get() {
                    continue;
                }
                let mut body = Vec::new();
                wire::encode(event, &mut body).expect("the engine's own events can be encoded");
                let taken = gathered.take(wire::kind(event), &body, *time, None);
                taken.expect("the engine's own events can be read");
            }
            let outstanding = gathered.ledger().expect("the engine's own events can be read");
            assert_eq!(outstanding.started(), whole.started());
            assert_eq!(outstanding.parked(), whole.parked(), "kept at event {len}");
            assert!(outstanding.pending().eq(whole.pending()), "kept at event {len}");
        }
    }

    pub(crate) fn history(&self) -> &[(Event, Timestamp)] {
        &self.history
    }

    /// The history in words, without the first event.
    pub(crate) fn labels(&self) -> Vec<&'static str> {
        self.history[1..].iter().map(|(event, _)| event.label()).collect()
    }

    pub(crate) fn parked(&self) -> Option<&ParkReason> {
        self.instance.park_reason()
    }

    /// Checks all replays, and gives the value that the run ended with.
    #[track_caller]
    pub(crate) fn result<T: DeserializeOwned + Debug>(&self) -> T {
        self.check_replays();
        match self.instance.ledger().outcome() {
            Some(Outcome::Completed(value)) => value.decode().unwrap(),
            other => panic!(
                "the run has not completed: {other:?}, parked: {:?}",
                self.parked()
            ),
        }
    }
}

/// A turn with the memory of a run that had a state, a patch, a pending call and a signal: whatever
/// begins with it begins as if there had been none.
fn lending() -> Turn {
    const FORMER: Workflow<(), ()> = Workflow::named("former");
    const STEP: Activity<u64, ()> = Activity::named("step");
    let code = Implementation::new(FORMER, async |cx: WorkflowContext, ()| {
        let state = cx.state(cx.random());
        assert!(cx.patched("former"));
        cx.call(STEP, state.read(|drawn| *drawn)).await?;
        Ok::<_, WorkflowError>(())
    });
    let moment = Moment {
        now: Timestamp::from_micros(1),
        epoch: 9,
    };
    let started = Started::new(
        "former",
        InstanceId::new("former").unwrap(),
        Payload::encode(&()).unwrap(),
    );
    let run = RunId::new(Partition::of(b"former"), Timestamp::EPOCH, 1);
    let mut turn = Turn::default();
    let mut former = Instance::start_in(&mut turn, Some(&code), run, started, Limits::default(), moment);
    let input = Input::Signal {
        name: "former".into(),
        value: Payload::encode(&1).unwrap(),
        cause: None,
        request: None,
    };
    former.apply(input, moment, &mut turn).unwrap();
    turn.recycle(former);
    turn.events.clear();
    turn.commands.clear();
    turn
}

/// The event as a journal gives it back.
fn stored((event, time): &(Event, Timestamp)) -> (Event, Timestamp) {
    let mut body = Vec::new();
    wire::encode(event, &mut body).unwrap();
    let opens = match event {
        Event::Started(started) => Some(started.id.as_str()),
        _ => None,
    };
    let event = wire::decode(wire::kind(event), &Bytes::from(body), opens).unwrap();
    (event, *time)
}

/// A failure with the ready-made error.
pub(crate) fn failure(message: &str, is_retryable: bool) -> ActivityFailure {
    let error = if is_retryable {
        millrun_workflow::ActivityError::retryable(message)
    } else {
        millrun_workflow::ActivityError::fatal(message)
    };
    ActivityFailure::Failed {
        error: Payload::encode(&error).unwrap(),
        message: message.into(),
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let is_checked = self.checked_len.get() == self.history.len();
        if !is_checked && !self.is_fickle && !std::thread::panicking() {
            self.check_replays();
        }
    }
}
