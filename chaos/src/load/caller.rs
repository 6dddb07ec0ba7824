//! One caller.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Load;
use crate::check::{self, Findings, Rule};
use crate::dice::Dice;
use crate::programs::{CLOSE, Kind};
use crate::supervisor::desk::Desk;
use crate::wire::{Answer, Ask, Change, Refusal};

/// How long a caller goes on asking the same.
const PATIENCE: Duration = Duration::from_secs(90);
/// The longest pause before the same is asked again.
const PAUSE_US_MAX: u64 = 3_000;

/// A caller of one instance.
#[derive(Debug)]
pub(crate) struct Caller {
    desk: Arc<Desk>,
    number: u32,
    kind: Kind,
    id: String,
    drop_one_in: u64,
    notes: u64,
    requests: u64,
    pub(crate) dice: Dice,
}

impl Caller {
    /// The first caller of an instance.
    pub(crate) fn new(desk: &Arc<Desk>, load: Load, kind: Kind, id: &str, dice: Dice) -> Self {
        desk.ledger.book().account(kind, id);
        Self {
            desk: Arc::clone(desk),
            number: 0,
            kind,
            id: id.to_owned(),
            drop_one_in: load.drop_one_in,
            notes: 0,
            requests: 0,
            dice,
        }
    }

    /// Another caller of the same instance.
    pub(crate) fn another(&self, number: u32) -> Self {
        Self {
            desk: Arc::clone(&self.desk),
            number,
            kind: self.kind,
            id: self.id.clone(),
            drop_one_in: self.drop_one_in,
            notes: 0,
            requests: 0,
            dice: self.dice.split(u64::from(number)),
        }
    }

    /// Another caller, with handles of another workflow.
    pub(crate) fn stranger(&self, number: u32, kind: Kind) -> Self {
        Self {
            kind,
            ..self.another(number)
        }
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Asks once.
    pub(crate) async fn ask(&mut self, ask: &Ask) -> Answer {
        let drop_after_us = if self.drop_one_in > 0 && self.dice.one_in(self.drop_one_in) {
            Some(if self.dice.one_in(3) {
                0
            } else {
                self.dice.below(4_000)
            })
        } else {
            None
        };
        self.desk.ask(self.number, ask, drop_after_us).await
    }

    /// Asks until the answer says what was done.
    pub(crate) async fn insist(&mut self, ask: &Ask) -> Answer {
        let until = Instant::now() + PATIENCE;
        loop {
            let answer = self.ask(ask).await;
            if !answer.is_in_doubt() || self.desk.is_deserted() {
                return answer;
            }
            if Instant::now() > until {
                let story = format!(
                    "asked again and again for {} s: {ask:?}, last {answer:?}",
                    PATIENCE.as_secs()
                );
                self.desk.blame(Rule::NothingHangs, Some(&self.id), story);
                return answer;
            }
            let pause = self.dice.below(PAUSE_US_MAX);
            tokio::time::sleep(Duration::from_micros(pause)).await;
        }
    }

    pub(crate) async fn start(&mut self, len: u32) -> Answer {
        let (kind, id) = (self.kind, self.id.clone());
        self.insist(&Ask::Start { kind, id, len }).await
    }

    /// Sends the next note, once.
    pub(crate) async fn note(&mut self) -> Answer {
        let note = self.next_note();
        let (kind, id) = (self.kind, self.id.clone());
        self.ask(&Ask::Note { kind, id, note }).await
    }

    /// Sends notes until one is answered otherwise than that there is no instance yet.
    pub(crate) async fn note_when_there(&mut self) {
        let until = Instant::now() + PATIENCE;
        loop {
            let answer = self.note().await;
            if !answer.is_refused(Refusal::NotFound) || self.desk.is_deserted() {
                return;
            }
            if Instant::now() > until {
                self.desk
                    .blame(Rule::RunsEnd, Some(&self.id), "the child was never begun");
                return;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// A note that no other has: the caller, its number, and something random above.
    pub(crate) fn next_note(&mut self) -> u64 {
        self.notes += 1;
        (self.dice.roll() >> 40 << 24) | u64::from(self.number) << 16 | self.notes
    }

    /// Makes a change, as often as it takes; sometimes asks again for one that was answered.
    pub(crate) async fn change(&mut self) {
        self.requests += 1;
        let value = self.dice.roll() >> 32;
        let change = if self.dice.one_in(3) {
            Change::Swap(value)
        } else {
            Change::Add(value)
        };
        let ask = self.change_as(self.requests, change);
        self.insist(&ask).await;
        if self.dice.one_in(3) {
            self.ask(&ask).await;
        }
    }

    fn change_as(&self, request: u64, change: Change) -> Ask {
        Ask::Change {
            kind: self.kind,
            id: self.id.clone(),
            request: format!("{}-{request}", self.number),
            change,
        }
    }

    pub(crate) async fn show(&mut self) -> Answer {
        let (kind, id) = (self.kind, self.id.clone());
        self.insist(&Ask::Show { kind, id }).await
    }

    /// Asks until the instance, which another starts, has taken as many notes.
    pub(crate) async fn shows_notes(&mut self, len: u64) {
        let until = Instant::now() + PATIENCE;
        while !self.desk.is_deserted() {
            match self.show().await {
                Answer::Shown(shown) if shown.notes_len >= len => return,
                answer if Instant::now() > until => {
                    let story = format!("it was to take {len} notes, last {answer:?}");
                    self.desk.blame(Rule::RunsEnd, Some(&self.id), story);
                    return;
                }
                _ => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    }

    pub(crate) async fn describe(&mut self) -> Answer {
        let (kind, id) = (self.kind, self.id.clone());
        self.ask(&Ask::Describe { kind, id }).await
    }

    /// Sends the note after which no more is taken.
    pub(crate) async fn close(&mut self) {
        let (kind, id) = (self.kind, self.id.clone());
        let close = Ask::Note {
            kind,
            id,
            note: CLOSE,
        };
        self.insist(&close).await;
    }

    pub(crate) async fn result(&mut self) -> Answer {
        let (kind, id) = (self.kind, self.id.clone());
        self.insist(&Ask::Result { kind, id }).await
    }

    /// Something that is asked of the instance, by name.
    pub(crate) async fn insist_on(&mut self, ask: impl Fn(Kind, String) -> Ask) -> Answer {
        let ask = ask(self.kind, self.id.clone());
        self.insist(&ask).await
    }

    /// The token of the instance's promise, once it has told of it.
    pub(crate) async fn token(&self) -> Option<String> {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until && !self.desk.is_deserted() {
            if let Some(token) = self.desk.ledger.token(&self.id) {
                return Some(token);
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        if !self.desk.is_deserted() {
            self.desk
                .blame(Rule::RunsEnd, Some(&self.id), "it never told of its promise");
        }
        None
    }

    /// Says that nothing more will be asked of the instance, and looks at once whether its account is right.
    pub(crate) fn over(&self) {
        let mut book = self.desk.ledger.book();
        let account = book.account(self.kind, &self.id);
        account.is_over = !self.desk.is_deserted();
        if account.is_over {
            let mut findings = Findings::default();
            check::check_account(account, self.desk.licence, &mut findings);
            book.violations.extend(findings.violations);
        }
    }
}
