//! Durable topics: what was acknowledged to senders, what the file has, what the subscription was given and acknowledged,
//! what came to mailboxes by the trigger, and what postmen took and replied. Of the replies, what a second subscription was
//! given, what it gave up and was sent back, and what a second trigger entered in tills.
//!
//! The subscriptions' steps come from one process at a time, in the order in which they were told. An acknowledgement is
//! told before it is made and when it is kept.

use std::collections::{BTreeMap, BTreeSet};

use super::{Findings, Rule, Violation};
use crate::ledger::{Account, Book};
use crate::programs::{Kind, mailbox_of, till_of};
use crate::verify::{SeenLetter, SeenRecords};
use crate::wire::{Answer, Ask, LetterStep};

/// Compares the book with all records that the file has, at any moment at which nothing is acknowledged.
pub(crate) fn check(book: &Book, records: &SeenRecords, findings: &mut Findings) {
    let letters = &records.letters;
    let mut by_key: BTreeMap<&str, [Vec<(u64, u64)>; 2]> = BTreeMap::new();
    for letter in letters.iter().filter(|letter| letter.stems_from.is_none()) {
        let key = letter.key.as_deref().unwrap_or_default();
        let of_key = by_key.entry(key).or_default();
        of_key[usize::from(letter.is_reply)].push((letter.sequence, letter.value));
    }
    for account in book.accounts.values() {
        if account.kind != Kind::Postman {
            continue;
        }
        let [received, replied] = by_key.remove(account.id.as_str()).unwrap_or_default();
        check_published(account, &received, findings);
        let values: Vec<u64> = received.iter().map(|(_, value)| *value).collect();
        let replies: Vec<u64> = replied.iter().map(|(_, value)| *value).collect();
        check_taken(account, &values, &replies, findings);
        if let Some(mailbox) = book.accounts.get(&mailbox_of(&account.id)) {
            check_triggered(mailbox, &values, findings);
        }
    }
    for key in by_key.into_keys() {
        blame(
            findings,
            Rule::RecordsOnceAndInOrder,
            format!("the file has records with the key {key:?}, and nobody sent any"),
        );
    }
    check_given(book, letters, findings);
    check_replies_given(book, findings);
    check_dead(records, findings);
    for (till, entered) in &records.entered {
        check_entered(till, entered, letters, findings);
    }
}

/// In the end the subscriptions have acknowledged all: each at its consumer's word, or what is dead. That was sent back, and all
/// replies were entered in tills.
pub(crate) fn check_answered(book: &Book, records: &SeenRecords, findings: &mut Findings) {
    let answered = |steps: &[(u64, LetterStep)]| -> BTreeSet<u64> {
        let answered = steps
            .iter()
            .filter(|(_, step)| *step == LetterStep::Acknowledging);
        answered.map(|(sequence, _)| *sequence).collect()
    };
    let (letters, mut replies) = (answered(&book.letters), answered(&book.replies));
    replies.extend(&records.dead);
    for letter in &records.letters {
        let answered = if letter.is_reply { &replies } else { &letters };
        if !answered.contains(&letter.sequence) {
            let story = format!(
                "record {} counts as acknowledged, and its consumer never said so",
                letter.sequence
            );
            blame(findings, Rule::SubscriptionsGoOn, story);
        }
    }
    let copies: BTreeSet<u64> = records
        .letters
        .iter()
        .filter_map(|letter| letter.stems_from)
        .collect();
    for dead in records.dead.iter().filter(|dead| !copies.contains(dead)) {
        let story = format!("reply {dead} is dead, and was not sent back");
        blame(findings, Rule::DeadLettersOnce, story);
    }
    let entered = records.entered.iter().flat_map(|(_, entered)| entered);
    let entered: BTreeSet<&u64> = entered.collect();
    let replies = records.letters.iter().filter(|letter| letter.is_reply);
    for reply in replies.filter(|reply| !entered.contains(&reply.sequence)) {
        let story = format!("reply {} counts as handled, and is in no till", reply.sequence);
        blame(findings, Rule::TriggersOnce, story);
    }
}

/// What is kept as acknowledged is not given again.
fn check_replies_given(book: &Book, findings: &mut Findings) {
    let mut kept = BTreeSet::new();
    for (sequence, step) in &book.replies {
        match step {
            LetterStep::Given if kept.contains(sequence) => {
                let story = format!("reply {sequence} was kept as acknowledged, and given again");
                blame(findings, Rule::SubscriptionsGoOn, story);
            }
            LetterStep::Kept => drop(kept.insert(*sequence)),
            LetterStep::Given | LetterStep::Acknowledging => {}
        }
    }
}

/// What is dead is there once, and was sent back once; nothing else was.
fn check_dead(records: &SeenRecords, findings: &mut Findings) {
    let rule = Rule::DeadLettersOnce;
    let mut dead = BTreeSet::new();
    for number in &records.dead {
        findings.checked.letters_dead += 1;
        if !dead.insert(*number) {
            blame(findings, rule, format!("reply {number} is dead twice"));
        }
    }
    let mut sent_back = BTreeSet::new();
    for number in records.letters.iter().filter_map(|letter| letter.stems_from) {
        findings.checked.letters_sent_back += 1;
        if !sent_back.insert(number) {
            blame(findings, rule, format!("reply {number} was sent back twice"));
        }
        if !dead.contains(&number) {
            blame(
                findings,
                rule,
                format!("reply {number} was sent back, and is not dead"),
            );
        }
    }
}

/// A till has the replies of its postman, each once and in their order.
fn check_entered(till: &str, entered: &[u64], letters: &[SeenLetter], findings: &mut Findings) {
    let is_own =
        |letter: &&SeenLetter| letter.is_reply && till_of(letter.key.as_deref().unwrap_or_default()) == till;
    let own = letters.iter().filter(is_own).map(|letter| letter.sequence);
    findings.checked.letters_entered += entered.len() as u64;
    if !own.take(entered.len()).eq(entered.iter().copied()) {
        let own: Vec<u64> = letters
            .iter()
            .filter(is_own)
            .map(|letter| letter.sequence)
            .collect();
        let story = format!("in {till} are entered {entered:?} of the replies {own:?}");
        blame(findings, Rule::TriggersOnce, story);
    }
}

/// Each acknowledged one is there once, where it was said to be, and those of a sender are in order.
fn check_published(account: &Account, received: &[(u64, u64)], findings: &mut Findings) {
    let rule = Rule::RecordsOnceAndInOrder;
    let mut places: BTreeMap<u64, u64> = BTreeMap::new();
    for (sequence, value) in received {
        if let Some(other) = places.insert(*value, *sequence) {
            let story = format!("letter {value} is there twice: as records {other} and {sequence}");
            findings.blame(rule, account, story);
        }
    }
    let mut sent = BTreeSet::new();
    let mut latest: BTreeMap<u32, u64> = BTreeMap::new();
    for deed in &account.deeds {
        let Ask::Publish { value, .. } = &deed.ask else {
            continue;
        };
        sent.insert(*value);
        let Some(Answer::Published { sequence }) = deed.answer() else {
            continue;
        };
        findings.checked.letters += 1;
        match places.get(value) {
            Some(place) if place == sequence => {}
            place => {
                let story = format!("letter {value} was acknowledged as record {sequence}, and is {place:?}");
                findings.blame(rule, account, story);
            }
        }
        let before = latest.insert(deed.caller, *sequence);
        if before.is_some_and(|before| before > *sequence) {
            let story = format!("letter {value} was sent behind record {before:?}, and is record {sequence}");
            findings.blame(rule, account, story);
        }
    }
    for value in places.keys().filter(|value| !sent.contains(value)) {
        findings.blame(rule, account, format!("letter {value} was never sent"));
    }
}

/// A postman took records that follow each other, and replied to each once.
fn check_taken(account: &Account, received: &[u64], replies: &[u64], findings: &mut Findings) {
    let rule = Rule::RecordsTakenOnce;
    let Some(outcome) = account.outcome() else {
        // Begun, and not ended: what he has replied to so far follows each other, too.
        if !is_part_of(replies, received) {
            let story = format!("the replies so far are {replies:?}, and the letters {received:?}");
            findings.blame(rule, account, story);
        }
        return;
    };
    findings.checked.letters_taken += outcome.notes.len() as u64;
    if !is_part_of(&outcome.notes, received) {
        let story = format!("taken were {:?} of the letters {received:?}", outcome.notes);
        findings.blame(rule, account, story);
    }
    if outcome.notes != replies {
        let story = format!("taken were {:?}, and the replies are {replies:?}", outcome.notes);
        findings.blame(rule, account, story);
    }
}

/// A mailbox has each letter once, in their order.
fn check_triggered(mailbox: &Account, received: &[u64], findings: &mut Findings) {
    let Some(outcome) = mailbox.outcome() else { return };
    findings.checked.letters_triggered += outcome.notes.len() as u64;
    if outcome.notes != received {
        let story = format!(
            "the trigger brought {:?} of the letters {received:?}",
            outcome.notes
        );
        findings.blame(Rule::TriggersOnce, mailbox, story);
    }
}

/// What is kept as acknowledged is not given again, and of a key nothing is given before all that stands before it is
/// acknowledged.
fn check_given(book: &Book, letters: &[SeenLetter], findings: &mut Findings) {
    let rule = Rule::SubscriptionsGoOn;
    let mut before: BTreeMap<u64, u64> = BTreeMap::new();
    let mut latest: BTreeMap<&str, u64> = BTreeMap::new();
    for letter in letters.iter().filter(|letter| !letter.is_reply) {
        let key = letter.key.as_deref().unwrap_or_default();
        if let Some(earlier) = latest.insert(key, letter.sequence) {
            before.insert(letter.sequence, earlier);
        }
    }
    let (mut given, mut answered, mut kept) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for (sequence, step) in &book.letters {
        match step {
            LetterStep::Given => {
                if !given.insert(*sequence) {
                    findings.checked.letters_again += 1;
                }
                if kept.contains(sequence) {
                    let story = format!("record {sequence} was kept as acknowledged, and given again");
                    blame(findings, rule, story);
                }
                if let Some(earlier) = before
                    .get(sequence)
                    .filter(|earlier| !answered.contains(*earlier))
                {
                    let story =
                        format!("record {sequence} was given before {earlier} of its key was acknowledged");
                    blame(findings, rule, story);
                }
            }
            LetterStep::Acknowledging => drop(answered.insert(*sequence)),
            LetterStep::Kept => drop(kept.insert(*sequence)),
        }
    }
}

/// Whether the one list stands within the other without a gap.
fn is_part_of(part: &[u64], whole: &[u64]) -> bool {
    part.is_empty() || whole.windows(part.len()).any(|window| window == part)
}

fn blame(findings: &mut Findings, rule: Rule, story: String) {
    findings.violations.push(Violation {
        rule,
        instance: None,
        story,
    });
}

#[cfg(test)]
mod tests {
    use super::super::sample::Sample;
    use super::*;
    use crate::programs::ProgramResult;

    /// What a postman's letters came to.
    #[derive(Clone, Copy)]
    struct Case {
        /// Acknowledged: letters and their records.
        acknowledged: &'static [(u64, u64)],
        /// In the file: records and their letters.
        stored: &'static [(u64, u64)],
        taken: &'static [u64],
        replied: &'static [u64],
        triggered: &'static [u64],
        steps: &'static [(u64, LetterStep)],
        /// Replies that were given up, those of which the copies follow the others, and those that were entered.
        dead: &'static [u64],
        sent_back: &'static [u64],
        entered: &'static [u64],
        filed: &'static [(u64, LetterStep)],
    }

    use LetterStep::{Acknowledging, Given, Kept};

    const GOOD: Case = Case {
        acknowledged: &[(7, 1), (8, 2), (9, 4)],
        stored: &[(1, 7), (2, 8), (4, 9)],
        taken: &[7, 8],
        replied: &[7, 8],
        triggered: &[7, 8, 9],
        steps: &[
            (1, Given),
            (1, Given),
            (1, Acknowledging),
            (2, Given),
            (2, Acknowledging),
            (2, Kept),
            (1, Kept),
            (4, Given),
            (4, Acknowledging),
        ],
        dead: &[2],
        sent_back: &[2],
        entered: &[1, 2, 3],
        filed: &[
            (1, Given),
            (1, Acknowledging),
            (2, Given),
            (1, Kept),
            (2, Given),
            (3, Given),
            (3, Acknowledging),
        ],
    };

    fn blamed(case: Case) -> Vec<Rule> {
        let outcome = |notes: &[u64]| ProgramResult {
            notes: notes.into(),
            ..ProgramResult::default()
        };
        let mut postman = Sample::of(Kind::Postman).started("r");
        let id = postman.account.id.clone();
        for (value, sequence) in case.acknowledged {
            let (id, value) = (id.clone(), *value);
            let answer = Answer::Published { sequence: *sequence };
            postman = postman.answered(Ask::Publish { id, value }, answer);
        }
        let mut mailbox = Sample::of(Kind::Mailbox).ended(outcome(case.triggered)).account;
        mailbox.id = mailbox_of(&id);
        let mut book = Book::default();
        book.accounts.insert(mailbox.id.clone(), mailbox);
        book.accounts
            .insert(id.clone(), postman.ended(outcome(case.taken)).account);
        book.letters = case.steps.to_vec();
        book.replies = case.filed.to_vec();
        let letter = |is_reply, sequence, value| SeenLetter {
            is_reply,
            sequence,
            key: Some(id.clone()),
            value,
            stems_from: None,
        };
        let stored = case
            .stored
            .iter()
            .map(|(sequence, value)| letter(false, *sequence, *value));
        let replied = (1..)
            .zip(case.replied)
            .map(|(sequence, value)| letter(true, sequence, *value));
        let copies = (case.replied.len() as u64 + 1..).zip(case.sent_back);
        let copies = copies.map(|(sequence, of)| SeenLetter {
            stems_from: Some(*of),
            ..letter(true, sequence, 8)
        });
        let records = SeenRecords {
            letters: stored.chain(replied).chain(copies).collect(),
            dead: case.dead.into(),
            entered: vec![(till_of(&id), case.entered.into())],
        };
        let mut findings = Findings::default();
        check(&book, &records, &mut findings);
        check_answered(&book, &records, &mut findings);
        let mut rules: Vec<_> = findings
            .violations
            .iter()
            .map(|violation| violation.rule)
            .collect();
        rules.sort_unstable();
        rules.dedup();
        rules
    }

    #[test]
    fn letters_that_come_once_and_in_order_are_right() {
        assert_eq!(blamed(GOOD), []);
        // His clock was behind when the first was sent.
        let late = Case {
            taken: &[8, 9],
            replied: &[8, 9],
            ..GOOD
        };
        assert_eq!(blamed(late), []);
    }

    #[test]
    fn lost_doubled_and_swapped_records_are_found() {
        let rule = Rule::RecordsOnceAndInOrder;
        for (acknowledged, stored, triggered) in [
            // Lost, twice, elsewhere, never sent, out of order.
            (GOOD.acknowledged, &[(1, 7), (2, 8)][..], &[7, 8][..]),
            (
                GOOD.acknowledged,
                &[(1, 7), (2, 8), (4, 9), (5, 9)],
                &[7, 8, 9, 9],
            ),
            (GOOD.acknowledged, &[(1, 7), (2, 8), (5, 9)], &[7, 8, 9]),
            (&[(7, 1), (8, 2)], GOOD.stored, GOOD.triggered),
            (&[(8, 2), (7, 1), (9, 4)], GOOD.stored, GOOD.triggered),
        ] {
            let case = Case {
                acknowledged,
                stored,
                triggered,
                ..GOOD
            };
            assert!(blamed(case).contains(&rule), "{stored:?}");
        }
    }

    #[test]
    fn what_is_taken_or_triggered_twice_or_not_at_all_is_found() {
        for (taken, replied) in [
            (&[7, 7][..], &[7, 7][..]),
            (&[7, 9], &[7, 9]),
            (&[7, 8, 9], &[7, 8]),
        ] {
            let case = Case {
                taken,
                replied,
                ..GOOD
            };
            assert_eq!(blamed(case), [Rule::RecordsTakenOnce], "{taken:?}");
        }
        for triggered in [&[7, 8][..], &[7, 8, 9, 9], &[8, 7, 9]] {
            let case = Case { triggered, ..GOOD };
            assert_eq!(blamed(case), [Rule::TriggersOnce], "{triggered:?}");
        }
    }

    #[test]
    fn what_the_subscription_repeats_or_leaves_out_is_found() {
        let all = [(2, Given), (2, Acknowledging), (4, Given), (4, Acknowledging)];
        for first in [
            // Given again though it is kept; never acknowledged; overtaken.
            &[(1, Given), (1, Acknowledging), (1, Kept), (1, Given)][..],
            &[(1, Given)],
            &[(2, Given), (1, Given), (1, Acknowledging)],
        ] {
            let steps: &'static [_] = Vec::leak([first, &all].concat());
            assert_eq!(
                blamed(Case { steps, ..GOOD }),
                [Rule::SubscriptionsGoOn],
                "{first:?}"
            );
        }
    }

    #[test]
    fn what_is_dead_twice_or_sent_back_twice_or_not_at_all_is_found() {
        let rule = Rule::DeadLettersOnce;
        for (dead, sent_back, entered) in [
            (&[2, 2][..], &[2][..], &[1, 2, 3][..]),
            (&[2], &[2, 2], &[1, 2, 3, 4]),
            (&[2], &[1, 2], &[1, 2, 3, 4]),
            (&[2, 3], &[2], &[1, 2, 3]),
        ] {
            let filed = Vec::leak([GOOD.filed, &[(4, Acknowledging)]].concat());
            let case = Case {
                dead,
                sent_back,
                entered,
                filed,
                ..GOOD
            };
            assert_eq!(blamed(case), [rule], "{dead:?} {sent_back:?}");
        }
    }

    #[test]
    fn what_is_entered_twice_or_not_at_all_is_found_and_so_is_a_reply_that_is_given_again() {
        for entered in [&[1, 2][..], &[1, 2, 2, 3], &[2, 1, 3]] {
            let case = Case { entered, ..GOOD };
            assert_eq!(blamed(case), [Rule::TriggersOnce], "{entered:?}");
        }
        for more in [&[(1, Given)][..], &[]] {
            let filed = match more {
                [] => &GOOD.filed[1..2],
                more => Vec::leak([GOOD.filed, more].concat()),
            };
            let case = Case { filed, ..GOOD };
            assert_eq!(blamed(case), [Rule::SubscriptionsGoOn], "{more:?}");
        }
    }
}
