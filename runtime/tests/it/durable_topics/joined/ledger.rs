//! What callers and consumers of all lives know.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};

use super::orders::ORDERS;

/// What takes place in a life, each of which is to be seen to take place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Deed {
    Acknowledged,
    GivenBack,
    LeaseEnded,
    GivenAgain,
    Missed,
    Buried,
    SentBack,
    Reminded,
    Billed,
    Triggered,
    AttemptFailed,
    AttemptLost,
}

impl Deed {
    const ALL: [Self; 12] = [
        Self::Acknowledged,
        Self::GivenBack,
        Self::LeaseEnded,
        Self::GivenAgain,
        Self::Missed,
        Self::Buried,
        Self::SentBack,
        Self::Reminded,
        Self::Billed,
        Self::Triggered,
        Self::AttemptFailed,
        Self::AttemptLost,
    ];
}

/// How often each deed has taken place in all plays of a test.
#[derive(Debug, Default)]
pub(super) struct Seen(BTreeMap<Deed, u64>);

impl Seen {
    pub(super) fn add(&mut self, ledger: &Ledger) {
        for (deed, count) in &ledger.book().deeds {
            *self.0.entry(*deed).or_default() += count;
        }
    }

    pub(super) fn check(&self) {
        let missing: Vec<_> = Deed::ALL
            .into_iter()
            .filter(|deed| !self.0.contains_key(deed))
            .collect();
        assert_eq!(missing, [], "these never took place: {self:?}");
    }
}

#[derive(Default)]
pub(super) struct Book {
    /// Topic and value of each record of an order that a consumer was given, and of each of which it knows that this is kept.
    given: BTreeSet<(String, u64)>,
    kept: BTreeSet<(String, u64)>,
    /// Jobs by their numbers in the topic: given, and known to be kept as acknowledged.
    pub(super) jobs_given: BTreeSet<u64>,
    pub(super) jobs_kept: BTreeSet<u64>,
    /// The values of the jobs that were acknowledged.
    pub(super) jobs_done: BTreeSet<u64>,
    /// Records that were sent back, by what they stem from.
    pub(super) copies: BTreeMap<String, u64>,
    /// The chunks of each attempt that were acknowledged to it, by the number of the attempt over all lives.
    pub(super) chunks: BTreeMap<u64, Vec<u64>>,
    deeds: BTreeMap<Deed, u64>,
}

#[derive(Default)]
pub(super) struct Ledger(Mutex<Book>);

impl Ledger {
    pub(super) fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap()
    }

    pub(super) fn see(&self, deed: Deed, count: u64) {
        if count > 0 {
            *self.book().deeds.entry(deed).or_default() += count;
        }
    }

    /// How often it was seen in all lives.
    pub(super) fn seen(&self, deed: Deed) -> u64 {
        self.book().deeds.get(&deed).copied().unwrap_or_default()
    }

    /// A record is given: never one that is kept.
    pub(super) fn give(&self, topic: &str, value: u64) {
        let record = (topic.to_owned(), value);
        let mut book = self.book();
        assert!(!book.kept.contains(&record), "{record:?} comes again");
        book.given.insert(record);
    }

    pub(super) fn keep(&self, topic: &str, value: u64) {
        self.book().kept.insert((topic.to_owned(), value));
    }

    /// In the end each record of the orders was given.
    pub(super) fn check(&self, context: &str) {
        let of_orders = ["orders.placed", "orders.paid"].map(|topic| (topic, 1..=ORDERS));
        let counted = [1..=ORDERS, 101..=100 + ORDERS].map(|values| ("counted", values));
        let all = of_orders.into_iter().chain(counted);
        let all = all.flat_map(|(topic, values)| values.map(|value| (topic.to_owned(), value)));
        assert_eq!(self.book().given, all.collect(), "{context}");
    }
}
