//! What every journal must do, as a suite that anyone can run against theirs (feature `contract`).
//!
//! ```text
//!   Subject (opens your journal) ──► cases() ──► each case panics with what was expected
//! ```
//!
//! A case opens journals of its own, so cases are independent and may run in any order.

mod actor;
mod append;
mod claims;
mod glances;
mod groups;
mod lifetime;
mod limits;
mod purges;
mod reading;
mod renames;
mod rung;
mod searches;
mod snapshots;
mod together;
mod topics;
mod trimming;
mod unread;
mod upkeep;

pub use actor::Author;

use millrun_core::Offset;
use rung::Rung;

use crate::config::JournalConfig;
use crate::journal::Journal;

/// How the suite gets at journals.
pub trait Subject {
    /// The journal under test.
    type Journal: Journal;

    /// Opens a new, empty store, one that no earlier call has given out.
    fn fresh(&self, config: JournalConfig) -> Self::Journal;

    /// Closes a journal and opens its store again.
    fn reopen(&self, journal: Self::Journal, config: JournalConfig) -> Self::Journal;

    /// Closes a journal, damages each copy of `body` in its store, and opens the store again. The suite asks for it
    /// with the body of a run's last record, which no other record has.
    ///
    /// `None`, the default, says that such a store is not opened, or that there is nothing to be damaged.
    fn damaged(&self, journal: Self::Journal, config: JournalConfig, body: &[u8]) -> Option<Self::Journal> {
        drop((journal, config, body));
        None
    }

    /// Opens a new, empty store of which [`break_down`](Self::break_down) can make the writes fail. `None`, the default,
    /// says that there is no such store.
    fn breakable(&self, config: JournalConfig) -> Option<Self::Journal> {
        let _ = config;
        None
    }

    /// From now on no write of this store, the last that was given out as [breakable](Self::breakable), succeeds.
    fn break_down(&self, journal: &Self::Journal) {
        let _ = journal;
    }

    /// Returns when the journal's watermark has reached `offset`, or the journal has failed.
    fn settle(&self, journal: &Self::Journal, offset: Offset) {
        let (bell, rung) = Rung::new();
        journal.watch(bell);
        while journal.high_watermark() < offset && journal.failure().is_none() {
            rung.wait();
        }
    }
}

/// One property, and the code that checks it.
#[derive(Debug)]
pub struct Case<S> {
    /// The property, in words.
    pub name: &'static str,
    /// Panics if the journal does not have it.
    pub run: fn(&S),
}

/// All cases.
#[must_use]
pub fn cases<S: Subject>() -> Vec<Case<S>> {
    let mut cases = append::cases();
    cases.extend(groups::cases());
    cases.extend(claims::cases());
    cases.extend(purges::cases());
    cases.extend(renames::cases());
    cases.extend(reading::cases());
    cases.extend(searches::cases());
    cases.extend(together::cases());
    cases.extend(glances::cases());
    cases.extend(limits::cases());
    cases.extend(lifetime::cases());
    cases.extend(snapshots::cases());
    cases.extend(trimming::cases());
    cases.extend(topics::cases());
    cases.extend(unread::cases());
    cases.extend(upkeep::cases());
    cases
}

/// Makes a [`Case`] of each function, named by it.
macro_rules! suite {
    ($($case:ident),* $(,)?) => {
        pub(super) fn cases<S: crate::contract::Subject>() -> Vec<crate::contract::Case<S>> {
            vec![$(crate::contract::Case { name: stringify!($case), run: $case::<S> }),*]
        }
    };
}
use suite;
