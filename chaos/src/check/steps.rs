//! Steps: what their executions gave, and what was recorded of them.
//!
//! At least once is what an activity is promised, so that a step may run again as long as its end is not
//! recorded; but each execution has an attempt's number of its own, all have one key, the recorded token is
//! that of one of them, and no later process runs what an earlier one showed as recorded.

use std::collections::{BTreeMap, BTreeSet};

use super::{Findings, Licence, Rule};
use crate::ledger::{Account, Mark};

pub(super) fn check(account: &Account, licence: Licence, findings: &mut Findings) {
    let rule = Rule::StepsRecordedOnce;
    let mut steps: BTreeMap<(&str, u32), Vec<&Mark>> = BTreeMap::new();
    for mark in &account.marks {
        steps
            .entry((&mark.ran.run, mark.ran.step))
            .or_default()
            .push(mark);
    }
    let runs: BTreeSet<&str> = account.marks.iter().map(|mark| mark.ran.run.as_str()).collect();
    if runs.len() > 1 {
        let story = format!("its steps ran in the runs {runs:?}");
        findings.blame(Rule::RunsBegunOnce, account, story);
    }
    for ((_, step), marks) in &steps {
        let keys: BTreeSet<&str> = marks.iter().map(|mark| mark.ran.key.as_str()).collect();
        if keys.len() > 1 {
            findings.blame(rule, account, format!("step {step} ran under the keys {keys:?}"));
        }
        // Where parts are killed, a process that follows may give a number that was given before.
        let life = |mark: &Mark| if licence.are_parts_killed { mark.life } else { 0 };
        let mut attempts = BTreeSet::new();
        let mut is_new = |mark: &Mark| attempts.insert((life(mark), mark.ran.attempt));
        if let Some(twice) = marks.iter().find(|mark| !is_new(mark)) {
            let story = format!("attempt {} of step {step} ran twice", twice.ran.attempt);
            findings.blame(rule, account, story);
        }
    }
    let Some((ended_in, outcome)) = account.deeds.iter().find_map(|deed| match deed.answer() {
        Some(crate::wire::Answer::Ended(outcome)) => Some((deed.life, outcome)),
        _ => None,
    }) else {
        return;
    };
    for (step, token) in (0_u32..).zip(&outcome.tokens) {
        findings.checked.steps += 1;
        let given = account.marks.iter().find(|mark| mark.ran.token == *token);
        if given.is_none_or(|mark| mark.ran.step != step) {
            let story = format!("step {step} has the token {token}, which no execution of it gave");
            findings.blame(rule, account, story);
        }
    }
    // What one process showed as ended, no later one runs again.
    if let Some(again) = account.marks.iter().find(|mark| mark.life > ended_in) {
        let story = format!(
            "it had ended in life {ended_in}, and in life {} step {} ran",
            again.life, again.ran.step
        );
        findings.blame(rule, account, story);
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{Sample, blamed};
    use super::*;
    use crate::programs::{Kind, ProgramResult};

    fn end(tokens: &[u64]) -> ProgramResult {
        ProgramResult {
            tokens: tokens.into(),
            ..ProgramResult::default()
        }
    }

    fn sample() -> Sample {
        Sample::of(Kind::Steps).started("r")
    }

    #[test]
    fn a_step_that_ran_again_before_its_end_was_recorded_is_right() {
        let sample = sample().mark(0, "k", 1, 10).mark(0, "k", 2, 11);
        for recorded in [10, 11] {
            assert_eq!(blamed(&sample.clone().ended(end(&[recorded])).account), []);
        }
    }

    #[test]
    fn a_token_that_no_execution_gave_is_found() {
        let sample = sample().mark(0, "k", 1, 10).ended(end(&[12]));
        assert_eq!(blamed(&sample.account), [Rule::StepsRecordedOnce]);
    }

    #[test]
    fn one_attempt_that_runs_twice_and_a_second_key_are_found() {
        let twice = sample().mark(0, "k", 1, 10).mark(0, "k", 1, 11);
        assert_eq!(blamed(&twice.account), [Rule::StepsRecordedOnce]);
        let keys = sample().mark(0, "k", 1, 10).mark(0, "l", 2, 11);
        assert_eq!(blamed(&keys.account), [Rule::StepsRecordedOnce]);
    }

    #[test]
    fn a_step_that_a_later_process_runs_after_the_end_was_shown_is_found() {
        let sample = sample()
            .mark(0, "k", 1, 10)
            .ended(end(&[10]))
            .next_life()
            .mark(0, "k", 2, 11);
        assert_eq!(blamed(&sample.account), [Rule::StepsRecordedOnce]);
    }

    #[test]
    fn steps_of_one_instance_in_two_runs_are_found() {
        let mut sample = sample().mark(0, "k", 1, 10).mark(1, "l", 1, 11);
        sample.account.marks[1].ran.run = "other".into();
        assert_eq!(blamed(&sample.account), [Rule::RunsBegunOnce]);
    }
}
