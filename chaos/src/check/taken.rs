//! A file that is taken from an open store: what is asked afterwards is not acknowledged.

use super::{Findings, Rule};
use crate::ledger::Book;
use crate::wire::Ask;

pub(super) fn check(book: &Book, findings: &mut Findings) {
    findings.checked.taken += book.taken.len() as u64;
    for account in book.accounts.values() {
        for deed in &account.deeds {
            // A signal is always a commit; other requests may be answered from what is durable.
            let is_commit = matches!(deed.ask, Ask::Note { .. });
            let is_late = book
                .taken
                .get(&deed.life)
                .is_some_and(|taken| deed.asked > *taken);
            if is_commit && is_late && deed.acknowledged().is_some() {
                let story = format!("{:?} was acknowledged though the file was gone before", deed.ask);
                findings.blame(Rule::AcknowledgedIsDurable, account, story);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::Sample;
    use super::*;

    fn blamed(taken_at: u64) -> usize {
        let mut book = Book::default();
        let account = Sample::counter().started("r").note(1).shown(1, 1).account;
        book.accounts.insert(account.id.clone(), account);
        book.taken.insert(1, taken_at);
        let mut findings = Findings::default();
        check(&book, &mut findings);
        findings.violations.len()
    }

    #[test]
    fn a_signal_acknowledged_behind_the_loss_of_the_file_is_found() {
        // The note is asked at tick 3; the query behind it may be answered.
        assert_eq!(blamed(2), 1);
        assert_eq!(blamed(3), 0);
    }
}
