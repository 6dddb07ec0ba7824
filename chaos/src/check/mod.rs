//! What a ledger must satisfy. Pure functions, tried on ledgers made by hand, good and bad.
//!
//! ```text
//!   account ──► answers   ends, starts and repeats agree; nobody is parked or lost
//!           ├─► notes     signals: each acknowledged one once, in order, and none invented
//!           ├─► register  one order explains all answers (linear)
//!           ├─► steps     executions and recorded tokens
//!           └─► family    children as their parent has them
//!   account + history ──► histories    acknowledged implies durable
//!   book ──► parcels      what was published was heard
//!        └─► taken        nothing is acknowledged once the file is gone
//!   book + records ──► letters    durable topics: publishes, subscriptions, triggers, runs that take, what is dead
//! ```

pub(crate) mod linear;

mod answers;
mod family;
mod histories;
mod letters;
mod notes;
mod parcels;
mod register;
mod steps;
mod taken;

#[cfg(test)]
mod sample;

use std::fmt;

use crate::ledger::{Account, Book};

pub(crate) use histories::check as check_history;
pub(crate) use letters::{check as check_letters, check_answered as check_letters_answered};

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) rule: Rule,
    pub(crate) instance: Option<String>,
    pub(crate) story: String,
}

/// What was promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Rule {
    AcknowledgedIsDurable,
    NoHealthyRunParked,
    SignalsOnceAndInOrder,
    UpdatesOnce,
    Linearizable,
    ResultsStay,
    RunsBegunOnce,
    ChildrenOnce,
    StepsRecordedOnce,
    PublishesHeard,
    PromisesSettledOnce,
    TimeGoesForward,
    RunsEnd,
    NothingHangs,
    OnlyInjectedFailures,
    NoLeaks,
    HistoriesReplay,
    HandlesKnowTheirWorkflow,
    RecordsOnceAndInOrder,
    SubscriptionsGoOn,
    TriggersOnce,
    RecordsTakenOnce,
    DeadLettersOnce,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AcknowledgedIsDurable => "what is acknowledged is durable",
            Self::NoHealthyRunParked => "no healthy run is parked",
            Self::SignalsOnceAndInOrder => "signals arrive once and in order",
            Self::UpdatesOnce => "an update counts once and has one answer",
            Self::Linearizable => "one order explains all answers",
            Self::ResultsStay => "a result stays as it is",
            Self::RunsBegunOnce => "a run is begun once",
            Self::ChildrenOnce => "a child is begun and ends once",
            Self::StepsRecordedOnce => "a recorded step does not run again",
            Self::PublishesHeard => "what was published was heard",
            Self::PromisesSettledOnce => "a promise is settled once",
            Self::TimeGoesForward => "a run's time goes forward",
            Self::RunsEnd => "a run that should end ends",
            Self::NothingHangs => "everything is answered",
            Self::OnlyInjectedFailures => "nothing fails that was not made to",
            Self::NoLeaks => "counters return to zero",
            Self::HistoriesReplay => "histories replay",
            Self::HandlesKnowTheirWorkflow => "a handle of another workflow is refused",
            Self::RecordsOnceAndInOrder => "a published record is there once and in order",
            Self::SubscriptionsGoOn => "what a subscription acknowledged stays away, and all else comes",
            Self::TriggersOnce => "a trigger's effect takes place once",
            Self::RecordsTakenOnce => "a run takes a record once",
            Self::DeadLettersOnce => "what a subscription gives up is dead once and sent back once",
        })
    }
}

/// What the faults of a round allow.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Licence {
    /// The clock is moved: a run dated ahead may see a timer ring early by its own time.
    pub(crate) is_clock_moved: bool,
    /// Parts are killed: a process that follows may give an attempt the number of one that ran before.
    pub(crate) are_parts_killed: bool,
}

/// How much was checked; a check that checks nothing means nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Checked {
    pub(crate) instances: u64,
    pub(crate) notes: u64,
    pub(crate) updates: u64,
    pub(crate) repeated_updates: u64,
    pub(crate) queries: u64,
    pub(crate) steps: u64,
    pub(crate) children: u64,
    pub(crate) parcels: u64,
    /// Letters that were acknowledged to their senders, those that were given again by the subscription, those that came
    /// to mailboxes by the trigger, and those that postmen took. Of the replies, those that were given up, those that were
    /// sent back, and those that were entered in tills.
    pub(crate) letters: u64,
    pub(crate) letters_again: u64,
    pub(crate) letters_triggered: u64,
    pub(crate) letters_taken: u64,
    pub(crate) letters_dead: u64,
    pub(crate) letters_sent_back: u64,
    pub(crate) letters_entered: u64,
    pub(crate) promises: u64,
    pub(crate) timers: u64,
    pub(crate) strangers: u64,
    /// Processes from which the file was taken.
    pub(crate) taken: u64,
    pub(crate) registers: u64,
    pub(crate) registers_undecided: u64,
    pub(crate) histories: u64,
    pub(crate) events: u64,
}

impl Checked {
    /// The counts with their names.
    pub(crate) fn rows(&self) -> [(&'static str, u64); 23] {
        [
            ("instances", self.instances),
            ("signals", self.notes),
            ("updates", self.updates),
            ("updates repeated", self.repeated_updates),
            ("queries", self.queries),
            ("steps", self.steps),
            ("children", self.children),
            ("publishes", self.parcels),
            ("records published", self.letters),
            ("records given again", self.letters_again),
            ("records triggered", self.letters_triggered),
            ("records taken", self.letters_taken),
            ("records given up", self.letters_dead),
            ("records sent back", self.letters_sent_back),
            ("records entered", self.letters_entered),
            ("promises", self.promises),
            ("timers", self.timers),
            ("strangers", self.strangers),
            ("files taken", self.taken),
            ("registers searched", self.registers),
            ("registers given up", self.registers_undecided),
            ("histories", self.histories),
            ("events", self.events),
        ]
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.instances += other.instances;
        self.notes += other.notes;
        self.updates += other.updates;
        self.repeated_updates += other.repeated_updates;
        self.queries += other.queries;
        self.steps += other.steps;
        self.children += other.children;
        self.parcels += other.parcels;
        self.letters += other.letters;
        self.letters_again += other.letters_again;
        self.letters_triggered += other.letters_triggered;
        self.letters_taken += other.letters_taken;
        self.letters_dead += other.letters_dead;
        self.letters_sent_back += other.letters_sent_back;
        self.letters_entered += other.letters_entered;
        self.promises += other.promises;
        self.timers += other.timers;
        self.strangers += other.strangers;
        self.taken += other.taken;
        self.registers += other.registers;
        self.registers_undecided += other.registers_undecided;
        self.histories += other.histories;
        self.events += other.events;
    }
}

/// Where checks put what they find.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) violations: Vec<Violation>,
    pub(crate) checked: Checked,
}

impl Findings {
    fn blame(&mut self, rule: Rule, account: &Account, story: impl Into<String>) {
        self.violations.push(Violation {
            rule,
            instance: Some(account.id.clone()),
            story: story.into(),
        });
    }
}

/// Checks all accounts of a round whose stories are over, and what concerns all of them.
pub(crate) fn check(book: &Book, licence: Licence) -> Findings {
    let mut findings = Findings::default();
    for account in book.accounts.values().filter(|account| account.is_over) {
        check_account(account, licence, &mut findings);
        family::check(account, book, &mut findings);
    }
    parcels::check(book, &mut findings);
    taken::check(book, &mut findings);
    findings
}

/// Checks what one account says by itself.
pub(crate) fn check_account(account: &Account, licence: Licence, findings: &mut Findings) {
    findings.checked.instances += 1;
    answers::check(account, findings);
    answers::check_time(account, licence, findings);
    notes::check(account, findings);
    register::check(account, findings);
    steps::check(account, licence, findings);
}
