//! Children: their parent has of each what the child's own callers saw.

use super::notes::{self, Taken};
use super::{Findings, Rule};
use crate::ledger::{Account, Book};
use crate::programs::{CHILDREN, Kind, child_id};

pub(super) fn check(account: &Account, book: &Book, findings: &mut Findings) {
    let Some(outcome) = account.outcome().filter(|_| account.kind == Kind::Parent) else {
        return;
    };
    if outcome.children.len() != CHILDREN {
        let story = format!("it has {} children", outcome.children.len());
        findings.blame(Rule::ChildrenOnce, account, story);
    }
    for (number, child) in outcome.children.iter().enumerate() {
        findings.checked.children += 1;
        let id = child_id(&account.id, number);
        let Some(own) = book.accounts.get(&id) else {
            continue;
        };
        if own.outcome().is_some_and(|own| own != child) {
            let story = format!(
                "its child {number} ended with {:?}, and it has {child:?}",
                own.outcome()
            );
            findings.blame(Rule::ChildrenOnce, account, story);
        }
        // What its callers were acknowledged must be in what the parent has.
        notes::check_taken(own, &child.notes, Taken::ByCode, findings);
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::Sample;
    use super::*;
    use crate::programs::ProgramResult;

    fn check_with(child: &ProgramResult, note: u64) -> Vec<Rule> {
        let mut book = Book::default();
        let end = ProgramResult {
            children: vec![child.clone(), ProgramResult::default(), ProgramResult::default()],
            ..ProgramResult::default()
        };
        let parent = Sample::of(Kind::Parent).started("r").ended(end).account;
        let mut own = Sample::counter().note(note).close().account;
        own.id = child_id(&parent.id, 0);
        book.accounts.insert(own.id.clone(), own);
        let mut findings = Findings::default();
        check(&parent, &book, &mut findings);
        findings
            .violations
            .iter()
            .map(|violation| violation.rule)
            .collect()
    }

    #[test]
    fn a_child_that_lost_a_note_on_its_way_to_the_parent_is_found() {
        let child = ProgramResult {
            notes: vec![7],
            ..ProgramResult::default()
        };
        assert_eq!(check_with(&child, 7), []);
        // One is lost, and one is invented.
        assert_eq!(
            check_with(&child, 8),
            [Rule::SignalsOnceAndInOrder, Rule::SignalsOnceAndInOrder]
        );
    }

    #[test]
    fn a_parent_with_too_few_children_is_found() {
        let parent = Sample::of(Kind::Parent)
            .started("r")
            .ended(ProgramResult::default())
            .account;
        let mut findings = Findings::default();
        check(&parent, &Book::default(), &mut findings);
        assert_eq!(findings.violations[0].rule, Rule::ChildrenOnce);
    }
}
