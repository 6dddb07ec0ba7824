//! Answers of one instance that must agree with each other, and those that must not be given at all.

use super::{Findings, Licence, Rule};
use crate::ledger::{Account, Deed, Tick};
use crate::programs::Kind;
use crate::wire::{Answer, Ask, Refusal};

pub(super) fn check(account: &Account, findings: &mut Findings) {
    check_runs(account, findings);
    check_ends(account, findings);
    check_promise(account, findings);
    check_strangers(account, findings);
    let there_since = account.first_ack(|deed| {
        matches!(
            deed.ask,
            Ask::Start { .. } | Ask::SignalWithStart { .. } | Ask::Note { .. } | Ask::Change { .. }
        )
    });
    // Before that nobody can have ended it.
    let may_end_from = account.first_ask(|ask| match ask {
        Ask::Note { note, .. } | Ask::SignalWithStart { note, .. } => *note == crate::programs::CLOSE,
        Ask::Cancel { .. } | Ask::Terminate { .. } => true,
        _ => false,
    });
    let ends_by_itself = matches!(
        account.kind,
        Kind::Steps | Kind::Courier | Kind::Asker | Kind::Sleeper | Kind::Pebble | Kind::Postman
    );
    for deed in &account.deeds {
        let Some((tick, answer)) = &deed.answered else {
            continue;
        };
        match answer {
            Answer::Parked { reason, is_paused } if !(*is_paused && may_be_paused(account, deed, *tick)) => {
                findings.blame(Rule::NoHealthyRunParked, account, reason.clone());
            }
            Answer::Described(described) => {
                if let Some(reason) = &described.parked
                    && !(described.is_paused && may_be_paused(account, deed, *tick))
                {
                    findings.blame(Rule::NoHealthyRunParked, account, reason.clone());
                }
            }
            Answer::Wrong { message } => {
                let story = format!("{} gave {message}", deed.ask.label());
                findings.blame(Rule::OnlyInjectedFailures, account, story);
            }
            Answer::Refused {
                why: Refusal::NotFound | Refusal::Expired,
                message,
            } if there_since.is_some_and(|since| since < deed.asked) => {
                let story = format!("it was there, and {} gave: {message}", deed.ask.label());
                findings.blame(Rule::AcknowledgedIsDurable, account, story);
            }
            Answer::Refused {
                why: Refusal::Finished,
                message,
            } if !ends_by_itself && !is_a_child(account) && may_end_from.is_none_or(|from| from > *tick) => {
                let story = format!("nobody has ended it, and {} gave: {message}", deed.ask.label());
                findings.blame(Rule::ResultsStay, account, story);
            }
            _ => {}
        }
    }
}

/// A parent that is cancelled cancels its children.
fn is_a_child(account: &Account) -> bool {
    account.id.contains('/')
}

/// Whether a pause was asked for before this answer, and no resume acknowledged before the question.
fn may_be_paused(account: &Account, deed: &Deed, answered: Tick) -> bool {
    let paused = account.first_ask(|ask| matches!(ask, Ask::Pause { .. }));
    let resumed = account.first_ack(|deed| matches!(deed.ask, Ask::Resume { .. }));
    paused.is_some_and(|paused| paused < answered) && resumed.is_none_or(|resumed| resumed > deed.asked)
}

/// All starts under one id give one run: nobody asks for a second one.
fn check_runs(account: &Account, findings: &mut Findings) {
    let mut first: Option<&str> = None;
    for deed in &account.deeds {
        if let Some(Answer::Started { run }) = deed.answer() {
            let first = *first.get_or_insert(run);
            // A chain's later starts find the run in which it goes on.
            if first != run && account.kind != Kind::Chain {
                let story = format!("it was begun as {first} and as {run}");
                findings.blame(Rule::RunsBegunOnce, account, story);
            }
        }
    }
}

/// A result is what was asked for, and stays.
fn check_ends(account: &Account, findings: &mut Findings) {
    let mut ends = account.deeds.iter().filter_map(Deed::answer).filter(|answer| {
        matches!(
            answer,
            Answer::Ended(_) | Answer::Cancelled | Answer::Terminated { .. }
        )
    });
    let Some(end) = ends.next() else { return };
    if let Some(other) = ends.find(|other| *other != end) {
        let story = format!("first it ended with {end:?}, then with {other:?}");
        findings.blame(Rule::ResultsStay, account, story);
    }
    let acked = |label: &str| account.first_ack(|deed| deed.ask.label() == label);
    let asked = |label: &str| account.first_ask(|ask| ask.label() == label).is_some();
    let is_child = is_a_child(account);
    let is_closed = account
        .first_ask(|ask| matches!(ask, Ask::Note { note, .. } if *note == crate::programs::CLOSE))
        .is_some();
    let takes_notes = matches!(
        account.kind,
        Kind::Counter | Kind::Parent | Kind::Chain | Kind::Keeper | Kind::Mailbox
    );
    let is_explained = match end {
        Answer::Cancelled => asked("cancel") || is_child,
        Answer::Terminated { .. } => asked("terminate"),
        // What was acknowledged and came before everything else that could end it must have ended it.
        _ => !takes_notes || is_closed || (acked("cancel").is_none() && acked("terminate").is_none()),
    };
    if !is_explained {
        let story = format!("it ended with {end:?}, which nobody asked for");
        findings.blame(Rule::ResultsStay, account, story);
    }
}

/// A handle of another workflow gets nothing, and changes nothing.
fn check_strangers(account: &Account, findings: &mut Findings) {
    for deed in &account.strangers {
        findings.checked.strangers += 1;
        let Some(answer) = deed.answer() else { continue };
        if !answer.is_in_doubt() && !answer.is_refused(Refusal::OtherWorkflow) {
            let story = format!(
                "{:?} through a handle of another workflow gave {answer:?}",
                deed.ask
            );
            findings.blame(Rule::HandlesKnowTheirWorkflow, account, story);
        }
    }
}

/// The value of a promise is one that a caller gave, and the one that was acknowledged.
fn check_promise(account: &Account, findings: &mut Findings) {
    let Some(outcome) = account.outcome().filter(|_| account.kind == Kind::Asker) else {
        return;
    };
    findings.checked.promises += 1;
    let mut tokens = account.promises.clone();
    tokens.dedup();
    if tokens.len() > 1 {
        let story = format!("one promise has the tokens {tokens:?}");
        findings.blame(Rule::PromisesSettledOnce, account, story);
    }
    let settled = |deed: &Deed| match deed.ask {
        Ask::Settle { value, .. } => Some(value),
        _ => None,
    };
    let given: Vec<u64> = account.deeds.iter().filter_map(settled).collect();
    let kept = account.deeds.iter().filter(|deed| deed.acknowledged().is_some());
    let kept: Vec<u64> = kept.filter_map(settled).collect();
    let is_right = outcome
        .promised
        .is_some_and(|value| given.contains(&value) && kept.iter().all(|kept| *kept == value));
    if !is_right {
        let story = format!(
            "it was settled with {:?}; acknowledged {kept:?} of {given:?}",
            outcome.promised
        );
        findings.blame(Rule::PromisesSettledOnce, account, story);
    }
}

/// Time does not go back in a run, and no timer rings early.
pub(super) fn check_time(account: &Account, licence: Licence, findings: &mut Findings) {
    let Some(outcome) = account.outcome() else { return };
    if account.kind == Kind::Sleeper {
        findings.checked.timers += 1;
    }
    if outcome.went_back_us > 0 {
        let story = format!("its time went back by {} us", outcome.went_back_us);
        findings.blame(Rule::TimeGoesForward, account, story);
    }
    if outcome.early_us > 0 && !licence.is_clock_moved {
        let story = format!("a timer rang {} us early", outcome.early_us);
        findings.blame(Rule::TimeGoesForward, account, story);
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{Sample, blamed};
    use super::*;
    use crate::programs::ProgramResult;
    use crate::wire::Described;

    #[test]
    fn a_run_that_is_there_and_not_found_is_lost() {
        let not_found = Answer::Refused {
            why: Refusal::NotFound,
            message: String::new(),
        };
        let sample = || Sample::counter().started("r").show(not_found.clone());
        assert_eq!(blamed(&sample().account), [Rule::AcknowledgedIsDurable]);
        assert_eq!(blamed(&Sample::counter().show(not_found.clone()).account), []);
    }

    #[test]
    fn a_second_run_under_one_id_is_found() {
        let sample = Sample::counter().started("r").started("r");
        assert_eq!(blamed(&sample.account), []);
        assert_eq!(blamed(&sample.started("s").account), [Rule::RunsBegunOnce]);
    }

    #[test]
    fn a_parked_run_is_found_unless_it_was_paused() {
        let parked = |is_paused| Answer::Parked {
            reason: "because".into(),
            is_paused,
        };
        let sample = Sample::counter().started("r");
        assert_eq!(
            blamed(&sample.clone().show(parked(false)).account),
            [Rule::NoHealthyRunParked]
        );
        assert_eq!(
            blamed(&sample.clone().show(parked(true)).account),
            [Rule::NoHealthyRunParked]
        );
        let paused = sample.pause();
        assert_eq!(blamed(&paused.clone().show(parked(true)).account), []);
        assert_eq!(
            blamed(&paused.clone().show(parked(false)).account),
            [Rule::NoHealthyRunParked]
        );
        assert_eq!(
            blamed(&paused.resume().show(parked(true)).account),
            [Rule::NoHealthyRunParked]
        );
    }

    #[test]
    fn a_description_that_says_parked_is_found() {
        let described = Described {
            run: "r".into(),
            status: "Parked".into(),
            parked: Some("the code does not fit".into()),
            is_paused: false,
            sequence: 7,
            pending: String::new(),
        };
        let sample = Sample::counter().started("r").show(Answer::Described(described));
        assert_eq!(blamed(&sample.account), [Rule::NoHealthyRunParked]);
    }

    #[test]
    fn a_result_that_changes_is_found() {
        let sample = Sample::counter()
            .started("r")
            .close()
            .ended(ProgramResult::default());
        assert_eq!(
            blamed(&sample.clone().ended(ProgramResult::default()).account),
            []
        );
        let other = ProgramResult {
            tokens: vec![9],
            ..ProgramResult::default()
        };
        assert!(blamed(&sample.ended(other).account).contains(&Rule::ResultsStay));
    }

    #[test]
    fn an_end_that_nobody_asked_for_is_found() {
        let sample = Sample::counter().started("r");
        assert_eq!(
            blamed(&sample.clone().result(Answer::Cancelled).account),
            [Rule::ResultsStay]
        );
        let finished = Answer::Refused {
            why: Refusal::Finished,
            message: String::new(),
        };
        assert_eq!(
            blamed(&sample.clone().show(finished).account),
            [Rule::ResultsStay]
        );
        let cancelled = sample.acked(Ask::Cancel {
            kind: Kind::Counter,
            id: "c".into(),
        });
        assert_eq!(blamed(&cancelled.clone().result(Answer::Cancelled).account), []);
        assert_eq!(
            blamed(&cancelled.ended(ProgramResult::default()).account),
            [Rule::ResultsStay]
        );
    }

    #[test]
    fn a_stranger_that_is_served_is_found() {
        let sample = Sample::counter().started("r");
        let refused = Answer::Refused {
            why: Refusal::OtherWorkflow,
            message: String::new(),
        };
        let cancel = Ask::Cancel {
            kind: Kind::Steps,
            id: "c".into(),
        };
        assert_eq!(
            blamed(&sample.clone().stranger(cancel.clone(), refused).account),
            []
        );
        let served = sample.stranger(cancel, Answer::Done);
        assert_eq!(blamed(&served.account), [Rule::HandlesKnowTheirWorkflow]);
        // What a stranger did is nothing that explains an end.
        let ended = blamed(&served.result(Answer::Cancelled).account);
        assert!(ended.contains(&Rule::ResultsStay), "{ended:?}");
    }

    #[test]
    fn a_promise_has_the_value_that_was_acknowledged() {
        let settle = |value| Ask::Settle {
            id: "c".into(),
            token: "t".into(),
            value,
        };
        let end = |value| ProgramResult {
            promised: Some(value),
            ..ProgramResult::default()
        };
        let sample = Sample::of(Kind::Asker)
            .started("r")
            .acked(settle(3))
            .doubted(settle(4));
        assert_eq!(blamed(&sample.clone().ended(end(3)).account), []);
        assert_eq!(
            blamed(&sample.clone().ended(end(4)).account),
            [Rule::PromisesSettledOnce]
        );
        let doubtful = Sample::of(Kind::Asker).started("r").doubted(settle(4));
        assert_eq!(blamed(&doubtful.clone().ended(end(4)).account), []);
        assert_eq!(
            blamed(&doubtful.ended(end(5)).account),
            [Rule::PromisesSettledOnce]
        );
    }

    #[test]
    fn time_that_goes_back_is_found() {
        let end = ProgramResult {
            went_back_us: 1,
            ..ProgramResult::default()
        };
        let sample = Sample::of(Kind::Sleeper).started("r").ended(end);
        assert_eq!(blamed(&sample.account), [Rule::TimeGoesForward]);
    }
}
