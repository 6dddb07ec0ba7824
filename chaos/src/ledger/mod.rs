//! What was asked, what was answered, and in which order: kept by the supervisor, which no fault touches.
//!
//! A request is entered before it is sent, and its answer when it is read: both get the next number of one
//! count, the *tick*. So what was answered at a tick below the one at which another was asked really came
//! before it, in whatever order the worker did things.

mod account;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) use account::{Account, Deed, Mark, RequestIndex};

use crate::check::Violation;
use crate::programs::Kind;
use crate::wire::{Answer, Ask, LetterStep, Ran};

/// A place in the order of all that the supervisor saw.
pub(crate) type Tick = u64;

/// The ledger of one round.
#[derive(Debug, Default)]
pub(crate) struct SharedBook(Mutex<Book>);

/// All that is known of a round.
#[derive(Clone, Debug, Default)]
pub(crate) struct Book {
    tick: Tick,
    pub(crate) accounts: BTreeMap<String, Account>,
    /// Values that the subscription got: the life in which, and the value.
    pub(crate) heard: Vec<Heard>,
    /// What the durable subscription did: the number of each letter, and how far it came with it.
    pub(crate) letters: Vec<(u64, LetterStep)>,
    /// The same of the subscription of the replies.
    pub(crate) replies: Vec<(u64, LetterStep)>,
    /// The latest completed fence of each life: when it was asked for.
    pub(crate) fences: BTreeMap<u64, Tick>,
    /// When the file was taken from a process, by its life: whatever it was asked later must not be acknowledged.
    pub(crate) taken: BTreeMap<u64, Tick>,
    pub(crate) violations: Vec<Violation>,
}

/// A value that arrived at the subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Heard {
    pub(crate) life: u64,
    pub(crate) value: u64,
}

impl SharedBook {
    /// The book, for as long as what this gives is held: nothing is entered meanwhile.
    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The token of an instance's promise, once it has been told.
    pub(crate) fn token(&self, id: &str) -> Option<String> {
        let book = self.book();
        book.accounts.get(id)?.promises.first().cloned()
    }

    /// Enters what broke a promise.
    pub(crate) fn blame(&self, violation: Violation) {
        self.book().violations.push(violation);
    }
}

impl Book {
    fn next_tick(&mut self) -> Tick {
        self.tick += 1;
        self.tick
    }

    /// The account of an instance, opened if there is none.
    pub(crate) fn account(&mut self, kind: Kind, id: &str) -> &mut Account {
        let account = self.accounts.entry(id.to_owned());
        account.or_insert_with(|| Account::new(kind, id))
    }

    /// A request is about to be sent. Gives its index within the instance's account, and the tick.
    pub(crate) fn asked(&mut self, caller: u32, life: u64, ask: &Ask) -> (Option<RequestIndex>, Tick) {
        let asked = self.next_tick();
        let deed = Deed {
            caller,
            life,
            ask: ask.clone(),
            asked,
            answered: None,
        };
        let account = ask.instance().and_then(|id| self.accounts.get_mut(id));
        (account.map(|account| account.enter(deed)), asked)
    }

    /// The answer to the request at this index of the instance's account.
    pub(crate) fn answered(&mut self, id: &str, index: RequestIndex, answer: &Answer) {
        let tick = self.next_tick();
        let account = self.accounts.get_mut(id);
        if let Some(deed) = account.and_then(|account| account.deed_mut(index)) {
            deed.answered = Some((tick, answer.clone()));
        }
    }

    /// The file of the store is being taken from the process.
    pub(crate) fn taken(&mut self, life: u64) {
        let tick = self.next_tick();
        self.taken.insert(life, tick);
    }

    /// A step left its mark.
    pub(crate) fn ran(&mut self, life: u64, ran: Ran) {
        let tick = self.next_tick();
        if let Some(account) = self.accounts.get_mut(&ran.id) {
            account.marks.push(Mark { tick, life, ran });
        }
    }

    /// A run told of its promise.
    pub(crate) fn promised(&mut self, id: &str, token: String) {
        if let Some(account) = self.accounts.get_mut(id) {
            account.promises.push(token);
        }
    }

    /// The subscription got a value.
    pub(crate) fn heard(&mut self, life: u64, value: u64) {
        self.heard.push(Heard { life, value });
    }

    /// The durable subscription came so far with a letter.
    pub(crate) fn letter(&mut self, sequence: u64, step: LetterStep) {
        self.letters.push((sequence, step));
    }

    /// The durable subscription of the replies came so far with one.
    pub(crate) fn reply(&mut self, sequence: u64, step: LetterStep) {
        self.replies.push((sequence, step));
    }

    /// All that had been published before the fence was asked for has been heard.
    pub(crate) fn fenced(&mut self, life: u64, asked: Tick) {
        let last = self.fences.entry(life).or_default();
        *last = (*last).max(asked);
    }
}
