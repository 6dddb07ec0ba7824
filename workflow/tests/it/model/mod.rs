//! Random programs under random fates, against a model that knows nothing of futures.
//!
//! A program is a tree of calls, timers, children, publishes, promises, signals, local steps and waits
//! for a condition under sequences, joins, races, shields, scopes, sagas and join sets with either way
//! to close them, in stages that end with a checkpoint or go on in another run. The engine runs it as `async` code. The model walks the tree from the top
//! after every input. A fate is a list of choices: which attempt succeeds or fails, which signal or
//! update comes when, when the run is unloaded, crashes, is paused, loses its code for a while or is
//! asked to cancel. Both must write the same history and end with the same value.

mod naive;
mod program;

use std::collections::{BTreeMap, BTreeSet};

use millrun_core::{Cause, Sequence, Timestamp};
use millrun_workflow::{
    ActivityError, ChildFailure, Command, Event, Input, InputRefused, Limits, OperationId, Outcome, Payload,
    Pending, PublishOutcome, RawRecord, SignalFailure, TypedError,
};
use proptest::collection::vec;
use proptest::prelude::*;
use serde::Deserialize;

use crate::world::World;
use naive::{End, Happening, Model};
use program::{ADD, FAILED, Flow, PUBLISHED, SENT, SIGNALS, SLEEP_MAX, UNKNOWN, flows, implementation};

/// How a local step is recorded.
#[derive(Deserialize)]
enum Local {
    Value(u64),
    Failed(ActivityError),
}

fn recorded(value: &Payload) -> u64 {
    value.decode().unwrap_or_else(|_| match value.decode().unwrap() {
        Local::Value(value) => value,
        Local::Failed(error) => {
            assert!(!error.is_retryable());
            FAILED
        }
    })
}

fn worth(outcome: &PublishOutcome) -> u64 {
    match outcome {
        PublishOutcome::Taken => PUBLISHED,
        PublishOutcome::Unknown => UNKNOWN,
    }
}

/// The signals that nobody has taken, by name.
fn left_over(signals: &[(millrun_workflow::Name, Payload)]) -> [std::collections::VecDeque<u64>; 2] {
    SIGNALS.map(|signal| {
        let of_name = signals.iter().filter(|(name, _)| name == signal.name());
        of_name.map(|(_, value)| value.decode().unwrap()).collect()
    })
}

/// An event in the model's words.
fn in_words(event: &Event) -> Option<String> {
    let number = |value: &Payload| value.decode::<u64>().unwrap();
    let ended = |operation: &OperationId, value: u64| Some(format!("ended {operation} {value}"));
    match event {
        Event::ActivityScheduled(scheduled) => Some(format!("call {}", scheduled.operation)),
        Event::TimerStarted { operation, .. } => Some(format!("timer {operation}")),
        Event::ChildScheduled(scheduled) => Some(format!("child {}", scheduled.operation)),
        Event::PublishScheduled(scheduled) => Some(format!("publish {}", scheduled.operation)),
        Event::ReceiveScheduled(scheduled) => Some(format!("receive {}", scheduled.operation)),
        Event::SignalScheduled(scheduled) => Some(format!("send {}", scheduled.operation)),
        Event::PromiseMade { operation } => Some(format!("promise {operation}")),
        Event::ActivityCompleted {
            operation, result, ..
        } => ended(operation, number(result)),
        Event::ActivityFailed { operation, .. } => ended(operation, FAILED),
        Event::TimerFired { operation } => ended(operation, 1),
        Event::ChildEnded { operation, end } => ended(operation, end.as_ref().map_or(FAILED, number)),
        Event::Published { operation, outcome } => ended(operation, outcome.as_ref().map_or(FAILED, worth)),
        Event::RecordReceived { operation, record } => {
            ended(operation, record.value.decode().unwrap_or(FAILED))
        }
        Event::SignalSent { operation, outcome } => {
            ended(operation, outcome.as_ref().map_or(FAILED, |()| SENT))
        }
        Event::PromiseSettled { operation, end } => ended(operation, end.as_ref().map_or(FAILED, number)),
        Event::SignalReceived { name, value, .. } | Event::RunSignalReceived { name, value, .. } => {
            let index = usize::from(name == SIGNALS[1].name());
            Some(format!("signal {index} {}", number(value)))
        }
        Event::UpdateAccepted { input, .. } => Some(format!("update {}", number(input))),
        Event::UpdateAnswered { answer, .. } => {
            Some(format!("answered {}", number(answer.as_ref().unwrap())))
        }
        Event::OperationCancelled { operation } => Some(format!("cancelled {operation}")),
        Event::CancelRequested { .. } => Some("cancel requested".into()),
        Event::Checkpointed(checkpoint) => {
            let (at, sum, state, _): (usize, u64, u64, u64) = checkpoint.state.decode().unwrap();
            let signals = left_over(&checkpoint.signals);
            Some(format!("checkpoint {at} {sum} {state} {signals:?}"))
        }
        Event::ContinuedAsNew { input, .. } => {
            Some(format!("continued {}", input.decode::<Flow>().unwrap().sum))
        }
        Event::Completed { result } => Some(format!("completed {}", number(result))),
        Event::ValueRecorded {
            name,
            value: Ok(value),
        } => Some(format!("recorded {name:?} {}", recorded(value))),
        Event::Resumed => Some("resumed".into()),
        Event::AttemptFailed { .. }
        | Event::ChildStarted { .. }
        | Event::PublishParked { .. }
        | Event::Parked { .. }
        | Event::Started(_) => None,
        other => panic!("{} is not expected", other.label()),
    }
}

fn lines(world: &World) -> Vec<String> {
    let events = world.history().iter();
    events.filter_map(|(event, _)| in_words(event)).collect()
}

/// One choice: what happens next.
#[derive(Clone, Copy, Debug)]
enum Choice {
    /// The attempt at this place among those under way gives this value, or fails.
    Report(usize, Option<u64>),
    /// The child, publish or promise at this place among those open gives this value, or fails.
    Settle(usize, Option<u64>),
    /// The child at this place has started; the publish there found no room.
    Note(usize),
    Fire,
    Signal(usize, u64),
    /// One under a request, under which another may have been sent before.
    SignalAs(usize, u64, u32),
    /// One that an operation of another run has sent, which may have been sent before.
    RunSignal(usize, u64, u32),
    Update(u64),
    /// For the update at this place among those asked for before.
    AskAgain(usize, u64),
    Cancel,
    Reload,
    Crash,
    Pause,
    /// The code is not at hand; or is, again.
    Code(bool),
}

/// Choices, and by how many seconds the host's clock is set ahead, or back, before each.
fn choices() -> impl Strategy<Value = Vec<(Choice, i64)>> {
    let choice = prop_oneof![
        8 => (0..8_usize, 0..100_u64).prop_map(|(at, value)| Choice::Report(at, Some(value))),
        3 => (0..8_usize).prop_map(|at| Choice::Report(at, None)),
        8 => (0..8_usize, 0..100_u64).prop_map(|(at, value)| Choice::Settle(at, Some(value))),
        3 => (0..8_usize).prop_map(|at| Choice::Settle(at, None)),
        2 => (0..8_usize).prop_map(Choice::Note),
        5 => Just(Choice::Fire),
        4 => (0..2_usize, 0..100_u64).prop_map(|(index, value)| Choice::Signal(index, value)),
        2 => (0..2_usize, 0..100_u64, 0..12_u32)
            .prop_map(|(index, value, request)| Choice::SignalAs(index, value, request)),
        2 => (0..2_usize, 0..100_u64, 0..12_u32)
            .prop_map(|(index, value, operation)| Choice::RunSignal(index, value, operation)),
        2 => (0..20_u64).prop_map(Choice::Update),
        1 => (0..8_usize, 0..20_u64).prop_map(|(at, value)| Choice::AskAgain(at, value)),
        1 => Just(Choice::Cancel),
        2 => Just(Choice::Reload),
        1 => Just(Choice::Crash),
        1 => Just(Choice::Pause),
        1 => any::<bool>().prop_map(Choice::Code),
    ];
    let clock = prop_oneof![2 => Just(0), 1 => -5_000..5_000_i64];
    vec((choice, clock), 0..80)
}

/// A run, its model, and what the model does not need to know.
struct Play {
    world: World,
    model: Model,
    failures: BTreeMap<u32, u32>,
    /// What was answered to each update asked for, also by the runs that this one continues; nothing to
    /// those that came while it was parked.
    answers: Vec<Option<Payload>>,
    /// The operations of another run that have signalled this one, or those that it continues.
    senders: BTreeSet<u32>,
    /// The requests under which this one, or those that it continues, were signalled.
    requests: BTreeSet<u32>,
}

impl Play {
    fn new(world: World, model: Model) -> Self {
        Self {
            world,
            model,
            failures: BTreeMap::new(),
            answers: Vec::new(),
            senders: BTreeSet::new(),
            requests: BTreeSet::new(),
        }
    }

    /// What is pending at this place among children, publishes and promises.
    fn open(&self, at: usize) -> Option<(OperationId, Pending)> {
        let ledger = self.world.instance.ledger();
        let open: Vec<_> = ledger
            .pending()
            .filter(|(_, pending)| !matches!(pending, Pending::Activity(_) | Pending::Timer { .. }))
            .collect();
        let (operation, pending) = open.get(at % open.len().max(1))?;
        Some((*operation, (*pending).clone()))
    }

    fn report(&mut self, at: usize, value: Option<u64>) {
        let at = at % self.world.activities.len();
        let number = self.world.activities.keys().nth(at).unwrap().get();
        if let Some(value) = value {
            self.world.complete(number, &value);
            return self.model.happen(Happening::Ended(number, value));
        }
        self.world.fail(number, "no", true);
        let failures = self.failures.entry(number).or_default();
        *failures += 1;
        if *failures == 2 {
            self.model.happen(Happening::Ended(number, FAILED));
        }
    }

    fn settle(&mut self, operation: OperationId, pending: &Pending, value: Option<u64>) {
        let encoded = value.map(|value| Payload::encode(&value).unwrap());
        let end = encoded.ok_or_else(|| "no".to_string());
        let (input, value) = match pending {
            Pending::Child { .. } => {
                let end = end.map_err(|message| ChildFailure::NotStarted { message });
                (Input::ChildEnded { operation, end }, value)
            }
            Pending::Publish { .. } => {
                let outcome = match value {
                    Some(value) if value.is_multiple_of(4) => Ok(PublishOutcome::Unknown),
                    Some(_) => Ok(PublishOutcome::Taken),
                    None => Err("no".into()),
                };
                let value = outcome.as_ref().ok().map(worth);
                (Input::Published { operation, outcome }, value)
            }
            Pending::Receive { scheduled, .. } => {
                // A record that cannot be decoded is received all the same.
                let wrong = || Payload::encode(&"wrong").unwrap();
                let record = Box::new(RawRecord {
                    sequence: scheduled.behind.unwrap_or(Sequence::ZERO).next(),
                    time: self.world.moment.now,
                    key: scheduled.filter.key.as_ref().map(|key| key.text().into()),
                    correlation: None,
                    cause: None,
                    value: end.unwrap_or_else(|_| wrong()),
                });
                (Input::RecordReceived { operation, record }, value)
            }
            Pending::Signal(_) => {
                let outcome = end.map(drop).map_err(|_| SignalFailure::Finished);
                let value = value.map(|_| SENT);
                (Input::SignalSent { operation, outcome }, value)
            }
            Pending::Promise => (Input::EndPromise { operation, end }, value),
            Pending::Activity(_) | Pending::Timer { .. } => panic!("these are not settled"),
        };
        self.world.apply(input).unwrap();
        let value = value.unwrap_or(FAILED);
        self.model.happen(Happening::Ended(operation.get(), value));
    }

    fn fire(&mut self) {
        let timers = self.world.timers.iter();
        let earliest = timers.min_by_key(|(operation, deadline)| (**deadline, **operation));
        let Some((&operation, &deadline)) = earliest else {
            return;
        };
        let is_timer = !self.failures.contains_key(&operation.get());
        self.world.timers.remove(&operation);
        self.world.moment.now = self.world.moment.now.max(deadline);
        self.world.apply(Input::TimerFired { operation }).unwrap();
        if is_timer {
            self.model.happen(Happening::Ended(operation.get(), 1));
        }
    }

    fn ask(&mut self, request: usize, value: u64) -> Result<(), InputRefused> {
        self.world.apply(Input::Update {
            request: format!("request {request}"),
            name: ADD.name().into(),
            input: Payload::encode(&value).unwrap(),
        })
    }

    fn update(&mut self, value: u64) {
        let applied = self.ask(self.answers.len(), value);
        if self.model.deferred.is_some() {
            assert!(
                matches!(applied, Err(InputRefused::StillParked(_))),
                "{applied:?}"
            );
            return self.answers.push(None);
        }
        applied.unwrap();
        self.model.happen(Happening::Update(value));
        let answers = self.world.history().iter().rev();
        let mut answers = answers.filter_map(|(event, _)| match event {
            Event::UpdateAnswered { answer, .. } => answer.clone().ok(),
            _ => None,
        });
        self.answers.push(answers.next());
    }

    /// An update that was answered before is answered alike.
    fn ask_again(&mut self, at: usize, value: u64) {
        let request = at % self.answers.len().max(1);
        if let Some(Some(answer)) = self.answers.get(request).cloned() {
            let answer = Ok(answer);
            assert_eq!(self.ask(request, value), Err(InputRefused::Answered { answer }));
        }
    }

    fn set_clock(&mut self, by: i64) {
        let now = self.world.moment.now.as_micros();
        let now = now.saturating_add_signed(by * 1_000_000);
        self.world.moment.now = Timestamp::from_micros(now);
    }

    fn choose(&mut self, choice: Choice) {
        match choice {
            Choice::Report(at, value) if !self.world.activities.is_empty() => self.report(at, value),
            Choice::Settle(at, value) => {
                if let Some((operation, pending)) = self.open(at) {
                    self.settle(operation, &pending, value);
                }
            }
            Choice::Note(at) => match self.open(at) {
                Some((operation, Pending::Child { .. })) => {
                    let run = crate::world::run_id();
                    self.world.apply(Input::ChildStarted { operation, run }).unwrap();
                }
                Some((operation, Pending::Publish { .. })) => {
                    self.world.apply(Input::PublishParked { operation }).unwrap();
                }
                _ => {}
            },
            Choice::Fire => self.fire(),
            Choice::Signal(index, value) => {
                self.world.signal(SIGNALS[index], &value);
                self.model.happen(Happening::Signal(index, value));
            }
            Choice::SignalAs(index, value, request) => {
                self.world
                    .signal_as(&format!("request {request}"), SIGNALS[index], &value)
                    .unwrap();
                if self.requests.insert(request) {
                    self.model.happen(Happening::Signal(index, value));
                }
            }
            Choice::RunSignal(index, value, operation) => {
                let run = crate::world::run_id();
                let input = Input::RunSignal {
                    sender: Box::new(Cause { run, operation }),
                    name: SIGNALS[index].name().into(),
                    value: Payload::encode(&value).unwrap(),
                };
                self.world.apply(input).unwrap();
                if self.senders.insert(operation) {
                    self.model.happen(Happening::Signal(index, value));
                }
            }
            Choice::Update(value) => self.update(value),
            Choice::AskAgain(at, value) => self.ask_again(at, value),
            Choice::Cancel if !self.world.instance.ledger().is_cancel_requested() => {
                self.world.cancel();
                self.model.happen(Happening::Cancel);
            }
            Choice::Reload => self.world.reload(),
            Choice::Crash => self.world.reopen(),
            Choice::Pause if self.model.deferred.is_none() => {
                let reason = "for a while".into();
                self.world.apply(Input::Pause { reason }).unwrap();
                self.model.park();
            }
            Choice::Code(false) if self.model.deferred.is_none() => {
                self.world.reload_with(None);
                // It says so with the first input that it cannot take up.
                self.world.signal(SIGNALS[0], &0);
                self.model.park();
                self.model.happen(Happening::Signal(0, 0));
            }
            Choice::Code(true) if self.model.deferred.is_some() => {
                self.world.reload_with(Some(implementation()));
                self.world.apply(Input::Resume).unwrap();
                self.model.resume();
            }
            Choice::Report(..) | Choice::Cancel | Choice::Pause | Choice::Code(_) => {}
        }
    }

    /// The run has ended, or the choices have.
    fn check_end(&self) {
        if let Some(End::Completed(value)) = self.model.end {
            assert_eq!(self.world.result::<u64>(), value);
        }
    }

    /// The run in which this one goes on, if it does.
    fn continued(&self) -> Option<Self> {
        let Some(End::Continued(flow)) = &self.model.end else {
            return None;
        };
        let Some(Command::ContinueAsNew { started, .. }) = self.world.commands.last() else {
            panic!("nothing goes on: {:?}", self.world.commands);
        };
        let ended = self.world.instance.ledger().outcome();
        assert!(matches!(ended, Some(Outcome::Continued(_))), "{ended:?}");
        let origin = started.origin.as_ref().expect("it stems from this run");
        let signals = left_over(&origin.signals);
        assert_eq!(signals, self.model.signals);
        let started = (**started).clone();
        let code = Some(implementation());
        let world = World::start_as(code, started, Limits::default(), self.world.moment);
        Some(Self {
            answers: self.answers.clone(),
            senders: self.senders.clone(),
            requests: self.requests.clone(),
            ..Self::new(world, Model::new(flow.clone(), signals))
        })
    }
}

/// A new timer counts from the host's time, however far the run's is ahead.
fn check_deadlines(world: &World, before: usize) {
    for (event, recorded) in &world.history()[before..] {
        if let Event::TimerStarted { deadline, .. } = event {
            assert!(*deadline < *recorded + SLEEP_MAX, "{deadline} after {recorded}");
        }
    }
}

fn check(flow: &Flow, choices: &[(Choice, i64)]) {
    let world = World::start(implementation(), flow);
    let mut play = Play::new(world, Model::new(flow.clone(), Default::default()));
    let mut choices = choices.iter();
    loop {
        assert_eq!(lines(&play.world), play.model.lines);
        if play.model.end.is_some() {
            play.check_end();
            let Some(next) = play.continued() else {
                return;
            };
            play = next;
            continue;
        }
        let Some((choice, by)) = choices.next() else {
            return play.check_end();
        };
        let before = play.world.history().len();
        play.set_clock(*by);
        play.choose(*choice);
        check_deadlines(&play.world, before);
        assert_eq!(lines(&play.world), play.model.lines, "after {choice:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_programs_do_what_the_model_says(flow in flows(), choices in choices()) {
        check(&flow, &choices);
    }
}
