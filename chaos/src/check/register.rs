//! Updates count once, and one order explains all answers of an instance.

use std::collections::BTreeMap;

use super::linear::{self, Call, Operation, Verdict};
use super::notes::note_of;
use super::{Findings, Rule};
use crate::ledger::{Account, Tick};
use crate::programs::{CLOSE, Kind};
use crate::wire::{Answer, Ask, Change, Refusal};

/// What is known of a request, over all times that it was asked.
struct Request {
    change: Change,
    asked: Tick,
    answered: Tick,
    answer: Option<u64>,
    is_refused: bool,
}

pub(super) fn check(account: &Account, findings: &mut Findings) {
    let requests = requests(account, findings);
    if !matches!(
        account.kind,
        Kind::Counter | Kind::Parent | Kind::Chain | Kind::Keeper | Kind::Till
    ) {
        return;
    }
    let mut calls = calls(account, &requests, &mut findings.checked.queries);
    if account.is_ever_paused() {
        // While it is paused notes and updates are recorded and not performed: they count once it goes on.
        let resumed = account.first_ack(|deed| matches!(deed.ask, Ask::Resume { .. }));
        let resumed = resumed.unwrap_or(Tick::MAX);
        calls.retain(|call| call.asked > resumed || !matches!(call.operation, Operation::Read(_)));
        for call in &mut calls {
            call.answered = call.answered.max(resumed);
        }
    }
    if calls.is_empty() {
        return;
    }
    findings.checked.registers += 1;
    match linear::check(&calls) {
        Verdict::Linear => {}
        Verdict::Undecided => findings.checked.registers_undecided += 1,
        Verdict::Broken { ordered, stuck } => {
            let story = format!(
                "{ordered} of {} calls can be put in order; none of these can come next: {stuck:?}",
                calls.len()
            );
            findings.blame(Rule::Linearizable, account, story);
        }
    }
}

/// Requests by name. Each has one answer, however often it was asked.
fn requests<'a>(account: &'a Account, findings: &mut Findings) -> BTreeMap<&'a str, Request> {
    let mut requests: BTreeMap<&str, Request> = BTreeMap::new();
    for deed in &account.deeds {
        let Ask::Change { request, change, .. } = &deed.ask else {
            continue;
        };
        let known = requests.entry(request).or_insert(Request {
            change: *change,
            asked: deed.asked,
            answered: Tick::MAX,
            answer: None,
            is_refused: false,
        });
        match &deed.answered {
            Some((tick, Answer::Changed { value })) => {
                match known.answer {
                    Some(answer) if answer != *value => {
                        let story =
                            format!("request {request} was answered with {answer}, and later with {value}");
                        findings.blame(Rule::UpdatesOnce, account, story);
                    }
                    Some(_) => findings.checked.repeated_updates += 1,
                    None => findings.checked.updates += 1,
                }
                known.answer = Some(known.answer.unwrap_or(*value));
                known.answered = known.answered.min(*tick);
            }
            Some((_, Answer::Refused { why, .. })) => {
                // It has ended without this request, which therefore never counted.
                known.is_refused |= *why == Refusal::Finished;
                if known.answer.is_some() {
                    let story =
                        format!("request {request} had an answer, and was refused when it was repeated");
                    findings.blame(Rule::UpdatesOnce, account, story);
                }
            }
            _ => {}
        }
    }
    requests
}

/// All that touched the register, with its interval.
fn calls(account: &Account, requests: &BTreeMap<&str, Request>, queries: &mut u64) -> Vec<Call> {
    let mut calls = Vec::new();
    for request in requests.values() {
        let operation = match request.change {
            Change::Add(by) => Operation::Add(by, request.answer),
            Change::Swap(to) => Operation::Swap(to, request.answer),
        };
        if !(request.is_refused && request.answer.is_none()) {
            calls.push(Call {
                operation,
                asked: request.asked,
                answered: request.answered,
            });
        }
    }
    for deed in &account.deeds {
        let asked = deed.asked;
        let note = note_of(&deed.ask).filter(|note| *note != CLOSE);
        if let Some(note) = note.filter(|_| deed.acknowledged().is_some() || deed.is_in_doubt()) {
            calls.push(Call {
                operation: Operation::Note(note),
                asked,
                answered: deed.acknowledged().unwrap_or(Tick::MAX),
            });
        }
        let (answered, value) = match &deed.answered {
            Some((tick, Answer::Shown(shown))) => {
                *queries += 1;
                (*tick, shown.value)
            }
            Some((tick, Answer::Ended(outcome))) => (*tick, outcome.value),
            _ => continue,
        };
        calls.push(Call {
            operation: Operation::Read(value),
            asked,
            answered,
        });
    }
    calls
}

#[cfg(test)]
mod tests {
    use super::super::sample::{Sample, blamed};
    use super::*;
    use crate::programs::ProgramResult;

    fn end(value: u64, notes: &[u64]) -> ProgramResult {
        ProgramResult {
            value,
            notes: notes.into(),
            ..ProgramResult::default()
        }
    }

    #[test]
    fn an_update_repeated_with_its_answer_is_right_and_with_another_is_found() {
        let sample = Sample::counter().started("r").change("a", Change::Add(5), 5);
        assert_eq!(blamed(&sample.clone().change("a", Change::Add(5), 5).account), []);
        let twice = sample.change("a", Change::Add(5), 10);
        assert_eq!(blamed(&twice.account), [Rule::UpdatesOnce]);
    }

    #[test]
    fn an_update_that_counted_twice_is_found_by_the_next_query() {
        let sample = Sample::counter().started("r").change("a", Change::Add(5), 5);
        assert_eq!(blamed(&sample.clone().shown(5, 0).account), []);
        assert_eq!(blamed(&sample.shown(10, 0).account), [Rule::Linearizable]);
    }

    #[test]
    fn a_query_that_misses_an_acknowledged_note_is_found() {
        let sample = Sample::counter().started("r").note(7);
        assert_eq!(blamed(&sample.clone().shown(7, 1).account), []);
        assert_eq!(blamed(&sample.shown(0, 0).account), [Rule::Linearizable]);
    }

    #[test]
    fn what_was_noted_during_a_pause_is_seen_behind_the_resume() {
        let sample = Sample::counter().started("r").pause().note(7);
        assert_eq!(blamed(&sample.clone().shown(0, 0).account), []);
        let resumed = sample.resume();
        assert_eq!(blamed(&resumed.clone().shown(7, 1).account), []);
        assert_eq!(blamed(&resumed.shown(0, 0).account), [Rule::Linearizable]);
    }

    #[test]
    fn the_result_must_fit_the_order_too() {
        let sample = Sample::counter()
            .started("r")
            .note(7)
            .change("a", Change::Swap(1), 7)
            .close();
        assert_eq!(blamed(&sample.clone().ended(end(1, &[7])).account), []);
        assert_eq!(blamed(&sample.ended(end(8, &[7])).account), [Rule::Linearizable]);
    }

    #[test]
    fn an_answered_update_that_the_finished_run_does_not_know_is_found() {
        let refused = Answer::Refused {
            why: Refusal::Finished,
            message: String::new(),
        };
        let sample = Sample::counter()
            .started("r")
            .change("a", Change::Add(5), 5)
            .close();
        let again = Ask::Change {
            kind: Kind::Counter,
            id: "c".into(),
            request: "a".into(),
            change: Change::Add(5),
        };
        assert_eq!(
            blamed(&sample.answered(again, refused).account),
            [Rule::UpdatesOnce]
        );
    }
}
