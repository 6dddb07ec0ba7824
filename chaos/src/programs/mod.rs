//! The workflows that run in the worker, and whose histories the verifier replays.
//!
//! All of them keep a [`Sheet`] as their state, take the same signal and the same update, and end with an
//! [`ProgramResult`]: so callers, ledger and checks need not know them one by one.
//!
//! ```text
//!   counter   notes and changes, some steps beside          parent    three counters as children
//!   steps     activities in sequence, with pauses            chain     continues as new every few notes
//!   courier   publishes                                      asker     waits for a promise
//!   sleeper   timers                                         pebble    one step
//!   postman   takes letters from a durable topic by its id, and publishes a reply to each
//!   mailbox   a counter that a trigger on the letters starts and sends notes to
//!   keeper    a checkpoint every few notes, of which some trim its history
//! ```
//!
//! Beside them there is an entity, the till, with commands in place of signals and updates.

mod counter;
mod errands;
mod letters;
mod steps;
mod till;

use std::sync::Arc;

use futures_util::future::BoxFuture;
use millrun::builders::AnsweringWorkflow;
use millrun::topics::UndeliveredRecord;
use millrun::{
    Activity, ActivityError, DurableTopic, Query, Runtime, RuntimeBuilder, Signal, Timestamp, Topic, Update,
    Workflow, WorkflowContext, WorkflowError,
};
use serde::{Deserialize, Serialize};

use crate::wire::Change;

pub(crate) use counter::child_id;
pub(crate) use errands::SLEEP_MS_MAX;
pub(crate) use letters::{Letter, mailbox_of};
pub(crate) use steps::Effect;
pub(crate) use till::{ENTER, ENTERED, SHOW_TILL, TILL, TURN, till, till_of};

/// Which program an instance runs, or that it is a till.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) enum Kind {
    Counter,
    Parent,
    Steps,
    Chain,
    /// What a chain continues as, which continues as a chain again.
    Link,
    Keeper,
    Courier,
    Asker,
    Sleeper,
    Pebble,
    Postman,
    Mailbox,
    Till,
}

impl Kind {
    /// Those that run a program.
    const PROGRAMS: [Self; 12] = [
        Self::Counter,
        Self::Parent,
        Self::Steps,
        Self::Chain,
        Self::Link,
        Self::Keeper,
        Self::Courier,
        Self::Asker,
        Self::Sleeper,
        Self::Pebble,
        Self::Postman,
        Self::Mailbox,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Parent => "parent",
            Self::Steps => "steps",
            Self::Chain => "chain",
            Self::Link => "link",
            Self::Keeper => "keeper",
            Self::Courier => "courier",
            Self::Asker => "asker",
            Self::Sleeper => "sleeper",
            Self::Pebble => "pebble",
            Self::Postman => "postman",
            Self::Mailbox => "mailbox",
            Self::Till => TILL.name(),
        }
    }

    pub(crate) const fn workflow(self) -> Workflow<Input, ProgramResult> {
        Workflow::named(self.name())
    }
}

pub(crate) const NOTE: Signal<u64> = Signal::named("note");
/// The note after which a program takes no more. It is not among the notes of its outcome.
pub(crate) const CLOSE: u64 = 0;
pub(crate) const CHANGE: Update<Sheet, Change, u64> = Update::named("change");
pub(crate) const SHOW: Query<Sheet, (), Shown> = Query::named("show");
pub(crate) const EFFECT: Activity<Effect, u64> = Activity::named("effect");
/// Tells the world about a promise: the instance's id, and the promise's token.
pub(crate) const TELL: Activity<(String, String), ()> = Activity::named("tell").on_queue("errands");
pub(crate) const PARCELS: Topic<u64> = Topic::named("chaos.parcels");
/// Letters to postmen, with the ids of their instances as keys.
pub(crate) const LETTERS: DurableTopic<Letter> = Topic::named("chaos.letters").durable();
/// What postmen reply, in the order in which they took the letters.
pub(crate) const REPLIES: DurableTopic<Letter> = Topic::named("chaos.replies").durable();
/// Replies that their consumer could not take, until they are sent back.
pub(crate) const DEAD: DurableTopic<UndeliveredRecord> = Topic::named("chaos.dead").durable();

/// How many children a parent has.
pub(crate) const CHILDREN: usize = 3;
/// After how many notes a chain continues as new, and a keeper makes a checkpoint.
pub(crate) const LINK_LEN: usize = 3;

/// The argument of every program.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Input {
    pub(crate) id: String,
    /// How many steps, publishes or timers it does, or letters it takes.
    pub(crate) len: u32,
    /// What the runs before it left, in a chain.
    #[serde(default)]
    pub(crate) sheet: Sheet,
}

/// The state of every program: a register, and what was noted in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sheet {
    value: u64,
    notes: Vec<u64>,
    last_at: u64,
    went_back_us: u64,
}

/// What a query shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shown {
    pub(crate) value: u64,
    pub(crate) notes_len: u64,
}

impl Sheet {
    /// Takes a note, which counts towards the register.
    fn note(&mut self, note: u64) {
        self.value = self.value.wrapping_add(note);
        self.notes.push(note);
    }

    /// Notes the time of the run, and by how much it went back at most.
    fn see(&mut self, now: Timestamp) {
        let now = now.as_micros();
        self.went_back_us = self.went_back_us.max(self.last_at.saturating_sub(now));
        self.last_at = self.last_at.max(now);
    }

    fn change(&mut self, change: Change) -> u64 {
        match change {
            Change::Add(by) => {
                self.value = self.value.wrapping_add(by);
                self.value
            }
            Change::Swap(value) => std::mem::replace(&mut self.value, value),
        }
    }

    /// The notes in the order in which they were taken.
    pub(crate) fn notes(&self) -> &[u64] {
        &self.notes
    }

    fn shown(&self) -> Shown {
        Shown {
            value: self.value,
            notes_len: self.notes.len() as u64,
        }
    }

    fn outcome(&self) -> ProgramResult {
        ProgramResult {
            value: self.value,
            notes: self.notes.clone(),
            went_back_us: self.went_back_us,
            ..ProgramResult::default()
        }
    }
}

/// The result of every program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProgramResult {
    pub(crate) value: u64,
    /// The notes, or letters, in the order in which they were taken.
    #[serde(default)]
    pub(crate) notes: Vec<u64>,
    /// The token of each step.
    #[serde(default)]
    pub(crate) tokens: Vec<u64>,
    #[serde(default)]
    pub(crate) children: Vec<Self>,
    #[serde(default)]
    pub(crate) parcels: Vec<Parcel>,
    #[serde(default)]
    pub(crate) promised: Option<u64>,
    /// How far the run's time went back at most, in microseconds.
    #[serde(default)]
    pub(crate) went_back_us: u64,
    /// By how much a timer was too early at most, in microseconds.
    #[serde(default)]
    pub(crate) early_us: u64,
}

/// What a run was told of a publish.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Parcel {
    pub(crate) value: u64,
    /// Why it is not known to have been published.
    pub(crate) failure: Option<String>,
    /// The life of the worker in which the run was told.
    pub(crate) life: u64,
}

/// What programs take from the world, and record.
#[derive(Clone)]
pub(crate) struct World {
    /// The number of the process.
    pub(crate) life: u64,
    /// The time of day of the runtime's host in microseconds; zero where it is not known.
    pub(crate) now_us: NowUs,
}

/// Tells the time.
pub(crate) type NowUs = Arc<dyn Fn() -> u64 + Send + Sync>;

impl World {
    /// For replays, which take nothing from it.
    pub(crate) fn none() -> Self {
        Self {
            life: 0,
            now_us: Arc::new(|| 0),
        }
    }
}

/// The code of a program.
pub(crate) type Code = Box<
    dyn Fn(WorkflowContext, Input) -> BoxFuture<'static, Result<ProgramResult, WorkflowError>> + Send + Sync,
>;

fn boxed<Fut>(code: impl Fn(WorkflowContext, Input) -> Fut + Send + Sync + 'static) -> Code
where
    Fut: Future<Output = Result<ProgramResult, WorkflowError>> + Send + 'static,
{
    Box::new(move |cx, input| Box::pin(code(cx, input)))
}

/// All programs with their queries and updates.
pub(crate) fn programs(
    world: &World,
) -> impl Iterator<Item = (AnsweringWorkflow<Input, ProgramResult>, Code)> {
    Kind::PROGRAMS.into_iter().map(|kind| {
        let code = match kind {
            Kind::Counter | Kind::Mailbox => boxed(counter::counter),
            Kind::Postman => boxed(letters::postman),
            Kind::Till => unreachable!("a till is no program"),
            Kind::Parent => boxed(counter::parent),
            Kind::Chain => boxed(|cx, input| counter::chain(cx, input, Kind::Link)),
            Kind::Link => boxed(|cx, input| counter::chain(cx, input, Kind::Chain)),
            Kind::Keeper => boxed(counter::keeper),
            Kind::Steps => boxed(steps::steps),
            Kind::Pebble => boxed(steps::pebble),
            Kind::Courier => {
                let life = world.life;
                boxed(move |cx, input| errands::courier(cx, input, life))
            }
            Kind::Asker => boxed(errands::asker),
            Kind::Sleeper => {
                let now = Arc::clone(&world.now_us);
                boxed(move |cx, input| errands::sleeper(cx, input, Arc::clone(&now)))
            }
        };
        let answering = kind.workflow().query(SHOW, |sheet, ()| sheet.shown());
        let answering = answering
            .update(CHANGE)
            .change(|sheet, change| sheet.change(change));
        (answering, code)
    })
}

/// Gives all programs to a runtime that is being built, with the code of their activities.
pub(crate) fn register<E, T>(builder: RuntimeBuilder, world: &World, effect: E, tell: T) -> RuntimeBuilder
where
    E: Fn(&millrun::ActivityContext, &Effect) -> Result<u64, ActivityError> + Send + Sync + 'static,
    T: Fn(String, String) -> Result<(), ActivityError> + Send + Sync + 'static,
{
    let effect = Arc::new(effect);
    let tell = Arc::new(tell);
    let builder = programs(world).fold(builder, |builder, (answering, code)| {
        builder.register(answering, code)
    });
    builder
        .register(EFFECT, move |cx: millrun::ActivityContext, input: Effect| {
            let effect = Arc::clone(&effect);
            async move {
                let token = effect(&cx, &input)?;
                steps::linger(token).await;
                Ok::<_, ActivityError>(token)
            }
        })
        .register(
            TELL,
            move |_: millrun::ActivityContext, (id, token): (String, String)| {
                let tell = Arc::clone(&tell);
                async move { tell(id, token) }
            },
        )
        .topic(PARCELS)
        .entity(till())
        .durable_topic(LETTERS)
        .durable_topic(REPLIES)
        .durable_topic(DEAD)
}

/// A runtime on the store at this path, without its programs.
pub(crate) fn at(path: &std::path::Path) -> RuntimeBuilder {
    Runtime::open(path)
}
