//! Accounts made by hand, for the tests of the checks.

use super::{Findings, Licence, Rule, check_account};
use crate::ledger::{Account, Deed, Mark, Tick};
use crate::programs::{CLOSE, Kind, ProgramResult, Shown};
use crate::wire::{Answer, Ask, Change, Ran};

/// An account in the making: each step comes after the one before.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) account: Account,
    tick: Tick,
    life: u64,
}

/// The rules that the account breaks.
pub(super) fn blamed(account: &Account) -> Vec<Rule> {
    let mut findings = Findings::default();
    check_account(account, Licence::default(), &mut findings);
    findings
        .violations
        .iter()
        .map(|violation| violation.rule)
        .collect()
}

impl Sample {
    pub(super) fn counter() -> Self {
        Self::of(Kind::Counter)
    }

    pub(super) fn of(kind: Kind) -> Self {
        Self {
            account: Account::new(kind, "c"),
            tick: 0,
            life: 1,
        }
    }

    /// A request with this answer; in doubt if there is none.
    fn with(mut self, ask: Ask, answer: Option<Answer>) -> Self {
        self.tick += 2;
        self.account.deeds.push(Deed {
            caller: 1,
            life: self.life,
            ask,
            asked: self.tick - 1,
            answered: answer.map(|answer| (self.tick, answer)),
        });
        self
    }

    pub(super) fn answered(self, ask: Ask, answer: Answer) -> Self {
        self.with(ask, Some(answer))
    }

    /// What was asked through a handle of another workflow.
    pub(super) fn stranger(self, ask: Ask, answer: Answer) -> Self {
        let mut sample = self.answered(ask, answer);
        sample.account.strangers.extend(sample.account.deeds.pop());
        sample
    }

    pub(super) fn acked(self, ask: Ask) -> Self {
        self.with(ask, Some(Answer::Done))
    }

    pub(super) fn doubted(self, ask: Ask) -> Self {
        self.with(ask, None)
    }

    pub(super) fn started(self, run: &str) -> Self {
        let (kind, id) = (self.account.kind, self.account.id.clone());
        let ask = Ask::Start { kind, id, len: 0 };
        self.answered(ask, Answer::Started { run: run.into() })
    }

    fn note_ask(&self, note: u64) -> Ask {
        Ask::Note {
            kind: self.account.kind,
            id: self.account.id.clone(),
            note,
        }
    }

    pub(super) fn note(self, note: u64) -> Self {
        let ask = self.note_ask(note);
        self.acked(ask)
    }

    pub(super) fn doubted_note(self, note: u64) -> Self {
        let ask = self.note_ask(note);
        self.doubted(ask)
    }

    pub(super) fn close(self) -> Self {
        self.note(CLOSE)
    }

    pub(super) fn change(self, request: &str, change: Change, value: u64) -> Self {
        let ask = Ask::Change {
            kind: self.account.kind,
            id: self.account.id.clone(),
            request: request.into(),
            change,
        };
        self.answered(ask, Answer::Changed { value })
    }

    pub(super) fn show(self, answer: Answer) -> Self {
        let (kind, id) = (self.account.kind, self.account.id.clone());
        self.answered(Ask::Show { kind, id }, answer)
    }

    pub(super) fn shown(self, value: u64, notes_len: u64) -> Self {
        self.show(Answer::Shown(Shown { value, notes_len }))
    }

    pub(super) fn result(self, answer: Answer) -> Self {
        let (kind, id) = (self.account.kind, self.account.id.clone());
        self.answered(Ask::Result { kind, id }, answer)
    }

    pub(super) fn ended(self, outcome: ProgramResult) -> Self {
        self.result(Answer::Ended(outcome))
    }

    pub(super) fn pause(self) -> Self {
        let (kind, id) = (self.account.kind, self.account.id.clone());
        self.acked(Ask::Pause { kind, id })
    }

    pub(super) fn resume(self) -> Self {
        let (kind, id) = (self.account.kind, self.account.id.clone());
        self.acked(Ask::Resume { kind, id })
    }

    /// An execution of a step.
    pub(super) fn mark(mut self, step: u32, key: &str, attempt: u32, token: u64) -> Self {
        self.tick += 1;
        self.account.marks.push(Mark {
            tick: self.tick,
            life: self.life,
            ran: Ran {
                id: self.account.id.clone(),
                run: "r".into(),
                step,
                key: key.into(),
                attempt,
                token,
            },
        });
        self
    }

    /// From here on another process answers.
    pub(super) fn next_life(mut self) -> Self {
        self.life += 1;
        self
    }
}
