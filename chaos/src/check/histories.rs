//! The third look: histories as a process of its own read them from the file.
//!
//! Whatever the ledger holds as acknowledged must be in them, and each fact once.

use std::collections::{BTreeMap, BTreeSet};

use super::notes::{self, Taken};
use super::{Findings, Rule};
use crate::ledger::Account;
use crate::programs::{CLOSE, Kind};
use crate::verify::{End, Seen};
use crate::wire::{Answer, Ask};

/// Compares an instance's account with all runs that the file has of it.
pub(crate) fn check(account: &Account, runs: &[Seen], findings: &mut Findings) {
    let durable = Rule::AcknowledgedIsDurable;
    for run in runs {
        check_run(account, run, findings);
    }
    let begun = runs.iter().filter(|run| run.continues.is_none()).count();
    if begun > 1 {
        let all: Vec<_> = runs.iter().map(|run| &run.run).collect();
        findings.blame(
            Rule::RunsBegunOnce,
            account,
            format!("the file has {begun} beginnings of it: {all:?}"),
        );
    }
    let is_there = account
        .first_ack(|deed| !matches!(deed.ask, Ask::Settle { .. }))
        .is_some();
    if runs.is_empty() {
        if is_there {
            findings.blame(durable, account, "the file has no run of it");
        }
        return;
    }
    for deed in &account.deeds {
        if let Some(Answer::Started { run }) = deed.answer()
            && !runs.iter().any(|seen| seen.run == *run)
        {
            findings.blame(
                durable,
                account,
                format!("run {run} was acknowledged, and the file has none"),
            );
        }
    }
    let chain = in_order(runs);
    let arrived: Vec<u64> = chain
        .iter()
        .flat_map(|run| &run.notes)
        .copied()
        .filter(|note| *note != CLOSE)
        .collect();
    // A mailbox has them from a trigger: see `letters`.
    if account.kind != Kind::Mailbox {
        notes::check_taken(account, &arrived, Taken::ByHistory, findings);
    }
    check_updates(account, &chain, findings);
    check_end(account, &chain, findings);
}

/// What a history must be whatever its callers did.
fn check_run(account: &Account, run: &Seen, findings: &mut Findings) {
    findings.checked.histories += 1;
    findings.checked.events += run.events;
    for reason in &run.parked {
        findings.blame(
            Rule::NoHealthyRunParked,
            account,
            format!("run {}: {reason}", run.run),
        );
    }
    for doubled in &run.doubled {
        findings.blame(Rule::ChildrenOnce, account, format!("run {}: {doubled}", run.run));
    }
    if run.too_far_us > TOO_FAR_US_MAX {
        let story = format!(
            "run {}: a timer was set for {} us too late",
            run.run, run.too_far_us
        );
        findings.blame(Rule::TimeGoesForward, account, story);
    }
    if let Some(difference) = &run.difference {
        findings.blame(
            Rule::HistoriesReplay,
            account,
            format!("run {}: {difference}", run.run),
        );
    }
}

/// By how much a timer may count from later than the host's time that was recorded right before: the clock may
/// be moved in between, by seconds.
const TOO_FAR_US_MAX: u64 = 15_000_000;

/// The runs of a chain, from its beginning on.
fn in_order(runs: &[Seen]) -> Vec<&Seen> {
    let mut next = runs.iter().find(|run| run.continues.is_none());
    let mut chain = Vec::new();
    while let Some(run) = next {
        chain.push(run);
        next = runs
            .iter()
            .find(|other| other.continues.as_ref() == Some(&run.run))
            .filter(|_| chain.len() < runs.len());
    }
    chain
}

fn check_updates(account: &Account, chain: &[&Seen], findings: &mut Findings) {
    let mut answers = BTreeMap::new();
    let mut accepted = BTreeSet::new();
    for run in chain {
        for request in &run.accepted {
            if !accepted.insert(request) {
                findings.blame(
                    Rule::UpdatesOnce,
                    account,
                    format!("request {request} was let in twice"),
                );
            }
        }
        answers.extend(
            run.answers
                .iter()
                .map(|(request, answer)| (request.as_str(), *answer)),
        );
    }
    for deed in &account.deeds {
        let (Ask::Change { request, .. }, Some(Answer::Changed { value })) = (&deed.ask, deed.answer())
        else {
            continue;
        };
        let recorded = answers.get(request.as_str());
        if recorded != Some(value) {
            let story = format!("request {request} was answered with {value}, and the file has {recorded:?}");
            findings.blame(Rule::AcknowledgedIsDurable, account, story);
        }
    }
}

fn check_end(account: &Account, chain: &[&Seen], findings: &mut Findings) {
    let end = chain.last().and_then(|run| run.end.as_ref());
    for deed in &account.deeds {
        let is_same = match deed.answer() {
            Some(Answer::Ended(outcome)) => matches!(end, Some(End::Completed(end)) if end == outcome),
            Some(Answer::Cancelled) => end == Some(&End::Cancelled),
            Some(Answer::Terminated { reason }) => end == Some(&End::Terminated(reason.clone())),
            _ => continue,
        };
        if !is_same {
            let story = format!(
                "it was said to have ended with {:?}, and the file has {end:?}",
                deed.answer()
            );
            findings.blame(Rule::AcknowledgedIsDurable, account, story);
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::Sample;
    use super::*;
    use crate::programs::ProgramResult;
    use crate::wire::Change;

    /// What the file has of the sample's run.
    fn seen(notes: &[u64], answers: &[(&str, u64)]) -> Seen {
        Seen {
            id: "c".into(),
            run: "r".into(),
            notes: notes.into(),
            accepted: answers.iter().map(|(request, _)| (*request).into()).collect(),
            answers: answers
                .iter()
                .map(|(request, answer)| ((*request).into(), *answer))
                .collect(),
            ..Seen::default()
        }
    }

    fn sample() -> Sample {
        Sample::counter()
            .started("r")
            .note(1)
            .change("a", Change::Add(5), 6)
    }

    fn blamed(sample: &Sample, runs: &[Seen]) -> Vec<Rule> {
        let mut findings = Findings::default();
        check(&sample.account, runs, &mut findings);
        findings
            .violations
            .iter()
            .map(|violation| violation.rule)
            .collect()
    }

    #[test]
    fn a_file_with_all_that_was_acknowledged_is_right() {
        assert_eq!(blamed(&sample(), &[seen(&[1], &[("a", 6)])]), []);
    }

    #[test]
    fn a_lost_run_signal_update_and_result_are_found() {
        let durable = [Rule::AcknowledgedIsDurable];
        assert_eq!(blamed(&sample(), &[]), durable);
        assert_eq!(blamed(&sample(), &[seen(&[], &[("a", 6)])]), durable);
        assert_eq!(blamed(&sample(), &[seen(&[1], &[])]), durable);
        assert_eq!(blamed(&sample(), &[seen(&[1], &[("a", 7)])]), durable);
        let ended = sample().close().ended(ProgramResult::default());
        assert_eq!(blamed(&ended, &[seen(&[1], &[("a", 6)])]), durable);
        let mut whole = seen(&[1], &[("a", 6)]);
        whole.end = Some(End::Completed(ProgramResult::default()));
        assert_eq!(blamed(&ended, &[whole]), []);
    }

    #[test]
    fn a_second_beginning_an_end_told_twice_and_a_parked_run_are_found() {
        let right = seen(&[1], &[("a", 6)]);
        let mut second = seen(&[], &[]);
        second.run = "s".into();
        assert_eq!(blamed(&sample(), &[right.clone(), second]), [Rule::RunsBegunOnce]);
        let mut doubled = right.clone();
        doubled.doubled.push("operation 4 ended twice".into());
        assert_eq!(blamed(&sample(), &[doubled]), [Rule::ChildrenOnce]);
        let mut parked = right.clone();
        parked.parked.push("nondeterminism".into());
        assert_eq!(blamed(&sample(), &[parked]), [Rule::NoHealthyRunParked]);
        let mut late = right.clone();
        late.too_far_us = 60_000_000;
        assert_eq!(blamed(&sample(), &[late]), [Rule::TimeGoesForward]);
        let mut different = right;
        different.difference = Some("another command".into());
        assert_eq!(blamed(&sample(), &[different]), [Rule::HistoriesReplay]);
    }

    #[test]
    fn a_chain_is_read_from_its_beginning_to_its_end() {
        let first = seen(&[1], &[("a", 6)]);
        let mut second = seen(&[2], &[]);
        (second.run, second.continues) = ("s".into(), Some("r".into()));
        let sample = sample().note(2);
        assert_eq!(blamed(&sample, &[second, first.clone()]), []);
        assert_eq!(blamed(&sample, &[first]), [Rule::AcknowledgedIsDurable]);
    }
}
