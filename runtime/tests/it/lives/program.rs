//! Random programs of an instance, what they are as workflow code, and what they are worth.

use std::collections::BTreeMap;
use std::time::Duration;

use millrun::builders::AnsweringWorkflow;
use millrun::{
    Activity, ActivityContext, ActivityError, Query, Retry, Signal, Topic, Update, Workflow, WorkflowContext,
    WorkflowError,
};
use serde::{Deserialize, Serialize};

pub(super) const ACTOR: Workflow<Plan, Book> = Workflow::named("actor");
pub(super) const STEP: Activity<u64, u64> = Activity::named("step");
pub(super) const KEEP: Activity<String, ()> = Activity::named("keep");
pub(super) const TELL: Signal<u64> = Signal::named("tell");
pub(super) const CHANGE: Update<Book, u64, u64> = Update::named("change");
pub(super) const READ: Query<Book, (), Book> = Query::named("read");
/// Collects what others note, up to a number: all others signal it, and none asks for it.
pub(super) const HUB: Workflow<(usize, Vec<String>), Vec<String>> = Workflow::named("hub");
pub(super) const HUB_ID: &str = "hub";
const NOTE: Signal<String> = Signal::named("note");
pub(super) const SAID: Topic<String> = Topic::named("said");

/// What an instance has heard and done, in the order in which it did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Book {
    pub(super) told: Vec<u64>,
    pub(super) changed: Vec<u64>,
    pub(super) sum: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Round {
    /// Takes signals until this one has come.
    HearUpTo(u64),
    /// Waits until this many updates have been made.
    ChangeUpTo(u64),
    /// Calls these instances, all at once.
    Children(Vec<Plan>),
    Step(u64),
    Sleep(u64),
    Promise,
    Publish,
    /// Signals the hub.
    Note,
    Continue,
}

/// What an instance shall do, from the round `at` on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Plan {
    pub(super) id: String,
    pub(super) rounds: Vec<Round>,
    at: usize,
    book: Book,
}

/// What must have happened in the end.
#[derive(Debug, Default)]
pub(super) struct Worth {
    pub(super) sum: u64,
    /// How many runs each instance has had.
    pub(super) runs: BTreeMap<String, usize>,
    /// What was said.
    pub(super) said: Vec<String>,
    /// What the hub has heard.
    pub(super) noted: Vec<String>,
}

impl Plan {
    pub(super) fn new(id: String, rounds: Vec<Round>) -> Self {
        let (at, book) = (0, Book::default());
        Self { id, rounds, at, book }
    }

    /// The ids of the children that it calls itself.
    pub(super) fn children(&self) -> Vec<String> {
        let children = self.rounds.iter().flat_map(|round| match round {
            Round::Children(plans) => plans.as_slice(),
            _ => &[],
        });
        children.map(|plan| plan.id.clone()).collect()
    }

    /// What it is worth, without any engine.
    pub(super) fn worth(&self, worth: &mut Worth) {
        let mut runs = 1;
        for (at, round) in self.rounds.iter().enumerate() {
            match round {
                Round::Children(plans) => plans.iter().for_each(|plan| plan.worth(worth)),
                Round::Step(value) => worth.sum += value + 1,
                Round::Promise => worth.sum += 7,
                Round::Publish => worth.said.push(place(&self.id, at)),
                Round::Note => worth.noted.push(place(&self.id, at)),
                Round::Continue => runs += 1,
                Round::HearUpTo(_) | Round::ChangeUpTo(_) | Round::Sleep(_) => {}
            }
        }
        worth.runs.insert(self.id.clone(), runs);
    }
}

fn place(id: &str, at: usize) -> String {
    format!("{id}-{at}")
}

pub(super) async fn step(cx: ActivityContext, number: u64) -> Result<u64, ActivityError> {
    if number.is_multiple_of(3) && cx.attempt() == 1 {
        return Err(ActivityError::retryable("the first attempt"));
    }
    Ok(number + 1)
}

pub(super) fn answering() -> AnsweringWorkflow<Plan, Book> {
    ACTOR
        .query(READ, |book, ()| book.clone())
        .update(CHANGE)
        .change(|book, value| {
            book.changed.push(value);
            book.changed.len() as u64 - 1
        })
}

pub(super) async fn actor(cx: WorkflowContext, plan: Plan) -> Result<Book, WorkflowError> {
    let retry = Retry::exponential()
        .first_pause(Duration::from_millis(10))
        .attempts(1_000);
    let Plan { id, rounds, at, book } = plan;
    let state = cx.state(book);
    for at in at..rounds.len() {
        let more = match &rounds[at] {
            Round::HearUpTo(last) => {
                loop {
                    let value = cx.receive(TELL).await?;
                    state.change(|book| book.told.push(value));
                    if value >= *last {
                        break;
                    }
                }
                0
            }
            Round::ChangeUpTo(len) => {
                state.until(|book| book.changed.len() as u64 >= *len).await?;
                0
            }
            Round::Children(plans) => {
                let children = plans
                    .iter()
                    .map(|plan| cx.child(ACTOR, plan.id.clone(), plan.clone()));
                let mut sum = 0;
                for book in cx.join_all(children).await {
                    sum += book?.sum;
                }
                sum
            }
            Round::Step(value) => cx.call(STEP, *value).retry(retry).await?,
            Round::Sleep(millis) => {
                cx.sleep(Duration::from_millis(*millis)).await?;
                0
            }
            Round::Promise => {
                let promise = cx.promise::<u64>();
                cx.call(KEEP, promise.token().to_string()).retry(retry).await?;
                promise.await?
            }
            Round::Publish => {
                cx.publish(SAID, place(&id, at)).await?;
                0
            }
            Round::Note => {
                cx.signal_instance(HUB, HUB_ID, NOTE, place(&id, at)).await?;
                0
            }
            Round::Continue => {
                let (at, book) = (at + 1, state.read(Book::clone));
                let next = Plan { id, rounds, at, book };
                return Ok(cx.continue_as_new(ACTOR, next).await?);
            }
        };
        state.change(|book| book.sum += more);
    }
    Ok(state.read(Book::clone))
}

/// In which runs the hub goes on in others: behind each of seven notes.
pub(super) fn hub_runs_len(len: usize) -> usize {
    1 + (len + 1) / 7
}

pub(super) async fn hub(
    cx: WorkflowContext,
    (len, heard): (usize, Vec<String>),
) -> Result<Vec<String>, WorkflowError> {
    let mut heard = cx.checkpointed().transpose()?.unwrap_or(heard);
    while heard.len() < len {
        heard.push(cx.receive(NOTE).await?);
        match heard.len() % 7 {
            3 => return Ok(cx.checkpoint(&heard).await?),
            6 => return Ok(cx.continue_as_new(HUB, (len, heard)).await?),
            _ => {}
        }
    }
    Ok(heard)
}

/// SplitMix64, to draw with.
#[derive(Debug)]
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    fn own_round(&mut self) -> Round {
        match self.below(8) {
            0 | 1 => Round::Step(self.below(100)),
            2 => Round::Sleep(self.below(40)),
            3 => Round::Promise,
            4 => Round::Publish,
            5 | 6 => Round::Note,
            _ => Round::Continue,
        }
    }

    fn children(&mut self, id: &str, at: usize, depth: u64) -> Round {
        let plan = |dice: &mut Self, number: u64| {
            let id = format!("{id}.{at}.{number}");
            let rounds = (0..dice.below(3)).map(|at| match dice.below(8) {
                0 if depth > 0 => dice.children(&id, usize::try_from(at).unwrap(), depth - 1),
                _ => dice.own_round(),
            });
            let rounds = rounds.collect();
            Plan::new(id, rounds)
        };
        Round::Children((0..1 + self.below(3)).map(|number| plan(self, number)).collect())
    }

    /// A program that takes `tells` signals and `changes` updates.
    pub(super) fn plan(&mut self, id: &str, tells: u64, changes: u64) -> Plan {
        let mut rounds = Vec::new();
        for at in 0..3 + usize::try_from(self.below(4)).unwrap() {
            rounds.push(match self.below(4) {
                0 => Round::HearUpTo(self.below(tells + 1)),
                1 => self.children(id, at, 1),
                _ => self.own_round(),
            });
        }
        // A signal that was taken does not come again.
        let mut heard = 0;
        rounds.retain_mut(|round| match round {
            Round::HearUpTo(last) if *last <= heard => false,
            Round::HearUpTo(last) => {
                heard = *last;
                true
            }
            _ => true,
        });
        if heard < tells {
            rounds.push(Round::HearUpTo(tells));
        }
        rounds.push(Round::ChangeUpTo(changes));
        Plan::new(id.into(), rounds)
    }
}
