//! Signals: each acknowledged one counts once, those of one caller in their order, and none is invented.

use std::collections::{BTreeMap, BTreeSet};

use super::{Findings, Rule};
use crate::ledger::Account;
use crate::programs::{CLOSE, Kind};
use crate::wire::Ask;

pub(super) fn check(account: &Account, findings: &mut Findings) {
    if !matches!(
        account.kind,
        Kind::Counter | Kind::Parent | Kind::Chain | Kind::Keeper
    ) {
        return;
    }
    let Some(outcome) = account.outcome() else { return };
    check_taken(account, &outcome.notes, Taken::ByCode, findings);
}

/// Whose notes are compared with those that were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// Those of an outcome: the code takes none behind the close.
    ByCode,
    /// Those of a history, which holds whatever was acknowledged.
    ByHistory,
}

/// Compares the notes that were taken with those that were sent.
pub(super) fn check_taken(account: &Account, taken: &[u64], by: Taken, findings: &mut Findings) {
    let rule = match by {
        Taken::ByCode => Rule::SignalsOnceAndInOrder,
        Taken::ByHistory => Rule::AcknowledgedIsDurable,
    };
    let mut callers = BTreeMap::new();
    let closed_at = account.first_ask(|ask| note_of(ask) == Some(CLOSE) && by == Taken::ByCode);
    let mut places = BTreeMap::new();
    for (place, note) in taken.iter().enumerate() {
        if places.insert(*note, place).is_some() {
            findings.blame(rule, account, format!("note {note} was taken twice"));
        }
    }
    let mut sent = BTreeSet::new();
    for deed in &account.deeds {
        let Some(note) = note_of(&deed.ask).filter(|note| *note != CLOSE) else {
            continue;
        };
        sent.insert(note);
        let place = places.get(&note).copied();
        let acknowledged = deed.acknowledged();
        if acknowledged.is_some() && by == Taken::ByCode {
            findings.checked.notes += 1;
        }
        // What is acknowledged after the close was asked for may have come after it.
        let must_be_there = acknowledged.is_some_and(|tick| closed_at.is_none_or(|closed| tick < closed));
        match place {
            None if must_be_there => {
                findings.blame(rule, account, format!("note {note} was acknowledged and is lost"));
            }
            Some(_) if acknowledged.is_none() && !deed.is_in_doubt() => {
                findings.blame(
                    rule,
                    account,
                    format!("note {note} was refused and taken all the same"),
                );
            }
            _ => {}
        }
        // A caller awaits each before it sends the next, so all of his are in order, doubtful ones or not.
        if let (Some(place), Some(_)) = (place, acknowledged) {
            let before = callers.insert(deed.caller, (place, note));
            if let Some((earlier, other)) = before.filter(|(earlier, _)| *earlier > place) {
                let caller = deed.caller;
                let story = format!(
                    "caller {caller} sent note {other} before {note}, taken at {earlier} and {place}"
                );
                findings.blame(rule, account, story);
            }
        }
    }
    for note in taken.iter().filter(|note| !sent.contains(note)) {
        findings.blame(rule, account, format!("note {note} was never sent"));
    }
}

/// The note that is sent.
pub(super) fn note_of(ask: &Ask) -> Option<u64> {
    match ask {
        Ask::Note { note, .. } | Ask::SignalWithStart { note, .. } => Some(*note),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{Sample, blamed};
    use super::*;
    use crate::programs::ProgramResult;

    fn end(notes: &[u64]) -> ProgramResult {
        ProgramResult {
            notes: notes.into(),
            value: notes.iter().sum(),
            ..ProgramResult::default()
        }
    }

    /// Two acknowledged notes and one in doubt, of one caller.
    fn sample() -> Sample {
        Sample::counter()
            .started("r")
            .note(1)
            .note(2)
            .doubted_note(3)
            .close()
    }

    fn check(notes: &[u64]) -> Vec<Rule> {
        let mut rules = blamed(&sample().ended(end(notes)).account);
        // The register sees some of these too.
        rules.retain(|rule| *rule == Rule::SignalsOnceAndInOrder);
        rules
    }

    #[test]
    fn notes_that_are_all_there_are_right_with_or_without_the_one_in_doubt() {
        assert_eq!(check(&[1, 2]), []);
        assert_eq!(check(&[1, 2, 3]), []);
    }

    #[test]
    fn lost_doubled_swapped_and_invented_notes_are_found() {
        for wrong in [&[1_u64][..], &[2], &[1, 2, 2], &[1, 1, 2], &[2, 1], &[1, 2, 9]] {
            assert_eq!(check(wrong), [Rule::SignalsOnceAndInOrder], "{wrong:?}");
        }
    }
}
