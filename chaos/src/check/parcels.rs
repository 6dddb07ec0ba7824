//! Publishes: a run that was told that all subscriptions had a value was told the truth.
//!
//! The subscription hears each value before the run is told, in one process; the process may be killed
//! before the supervisor reads of it. So a value counts as missing only if a fence, asked for after the run's
//! result was known, came back in the life in which the run was told.

use std::collections::{BTreeMap, BTreeSet};

use super::{Findings, Rule};
use crate::ledger::{Book, Deed};
use crate::programs::Kind;
use crate::wire::Answer;

pub(super) fn check(book: &Book, findings: &mut Findings) {
    let rule = Rule::PublishesHeard;
    let mut heard: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for one in &book.heard {
        heard.entry(one.value).or_default().push(one.life);
    }
    let couriers = book
        .accounts
        .values()
        .filter(|account| account.kind == Kind::Courier);
    for account in couriers {
        let ended = |deed: &Deed| match &deed.answered {
            Some((tick, Answer::Ended(outcome))) => Some((*tick, outcome.clone())),
            _ => None,
        };
        let Some((known_at, outcome)) = account.deeds.iter().find_map(ended) else {
            continue;
        };
        for parcel in &outcome.parcels {
            findings.checked.parcels += 1;
            let lives = heard.get(&parcel.value).map_or(&[][..], Vec::as_slice);
            let is_fenced = book
                .fences
                .get(&parcel.life)
                .is_some_and(|asked| *asked > known_at);
            if parcel.failure.is_none() && is_fenced && lives.is_empty() {
                let story = format!(
                    "in life {} it was told that {} was published, and nobody heard it",
                    parcel.life, parcel.value
                );
                findings.blame(rule, account, story);
            }
            let distinct: BTreeSet<&u64> = lives.iter().collect();
            if distinct.len() < lives.len() {
                let story = format!("{} was heard twice in one life: {lives:?}", parcel.value);
                findings.blame(rule, account, story);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::Sample;
    use super::*;
    use crate::ledger::Heard;
    use crate::programs::{Parcel, ProgramResult};

    fn book(failure: Option<&str>, heard: &[u64], fence: u64) -> Book {
        let outcome = ProgramResult {
            parcels: vec![Parcel {
                value: 7,
                failure: failure.map(Into::into),
                life: 1,
            }],
            ..ProgramResult::default()
        };
        let account = Sample::of(Kind::Courier).started("r").ended(outcome).account;
        let mut book = Book::default();
        book.accounts.insert(account.id.clone(), account);
        book.heard = heard
            .iter()
            .map(|life| Heard {
                life: *life,
                value: 7,
            })
            .collect();
        book.fenced(1, fence);
        book
    }

    fn blamed(book: &Book) -> usize {
        let mut findings = Findings::default();
        check(book, &mut findings);
        findings.violations.len()
    }

    #[test]
    fn a_value_that_nobody_heard_is_found_once_a_fence_has_passed() {
        assert_eq!(blamed(&book(None, &[1], 1_000)), 0);
        assert_eq!(blamed(&book(None, &[], 1_000)), 1);
        assert_eq!(blamed(&book(None, &[], 1)), 0);
        assert_eq!(blamed(&book(Some("not known"), &[], 1_000)), 0);
    }

    #[test]
    fn a_value_heard_twice_in_one_life_is_found() {
        assert_eq!(blamed(&book(None, &[1, 1], 1_000)), 1);
        assert_eq!(blamed(&book(None, &[1, 2], 1_000)), 0);
    }
}
