//! Reads the ledger as a judge: was anything lost, changed or repeated?
//!
//! A pure function of the ledger's lines. What it holds against a runtime:
//!
//! - an acknowledged run that the last process could not show the result of (*lost*);
//! - a step whose recorded result is not the same every time it is shown (*changed*), or was
//!   never produced by any execution (*invented*);
//! - a step that was executed again after its result had been recorded (*repeated*);
//! - an execution whose attempt number does not grow, or whose idempotency key differs from that
//!   of the step's other executions (*confused*);
//! - lines that are no facts in places where no process was killed (*garbled*). Where several processes write at a time, any
//!   place will do, but there may be no more of them than killed processes.
//!
//! A step that runs more than once *before* its result is recorded is no fault: at least once is
//! what an activity is promised. Those are counted.

use std::collections::BTreeMap;
use std::fmt;

use super::ledger::{Fact, NoFact, STEPS, Token};

/// How many faults are named; further ones are only counted.
const FAULTS_NAMED_MAX: usize = 20;

/// What the runtime did that it must not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Lost {
        run: u64,
    },
    Changed {
        run: u64,
        step: usize,
        recorded: Token,
        shown: Token,
    },
    Invented {
        run: u64,
        step: usize,
        shown: Token,
    },
    Repeated {
        run: u64,
        step: usize,
    },
    Confused {
        run: u64,
        step: usize,
    },
    Garbled {
        line: u64,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost { run } => write!(f, "run {run} was acknowledged and has no result"),
            Self::Changed {
                run,
                step,
                recorded,
                shown,
            } => {
                write!(
                    f,
                    "step {step} of run {run} had the result {recorded} and later {shown}"
                )
            }
            Self::Invented { run, step, shown } => {
                write!(
                    f,
                    "step {step} of run {run} has the result {shown}, which no execution gave"
                )
            }
            Self::Repeated { run, step } => {
                write!(
                    f,
                    "step {step} of run {run} ran again after its result was recorded"
                )
            }
            Self::Confused { run, step } => {
                write!(
                    f,
                    "step {step} of run {run} ran again with another key or without a higher attempt"
                )
            }
            Self::Garbled { line } => write!(f, "line {line} of the ledger is no fact"),
        }
    }
}

/// The judgement, with the counts that a person wants to see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Runs whose start was acknowledged.
    pub(crate) acknowledged: u64,
    /// Of those: runs whose result the last process saw.
    pub(crate) completed: u64,
    /// Runs that have a result although their start was never acknowledged: the process was
    /// killed in between.
    pub(crate) unacknowledged: u64,
    /// Executions of steps.
    pub(crate) executions: u64,
    /// Steps that were executed more than once.
    pub(crate) steps_rerun: u64,
    /// Lines that a kill cut short.
    pub(crate) torn_lines: u64,
    pub(crate) faults: u64,
    /// The first of them.
    pub(crate) faults_named: Vec<Fault>,
}

impl Verdict {
    /// Whether nothing was lost, changed or repeated.
    pub(crate) fn is_clean(&self) -> bool {
        self.faults == 0
    }

    fn blame(&mut self, fault: Fault) {
        self.faults += 1;
        if self.faults_named.len() < FAULTS_NAMED_MAX {
            self.faults_named.push(fault);
        }
    }
}

/// Takes the ledger line by line.
#[derive(Debug, Default)]
pub(crate) struct Judge {
    verdict: Verdict,
    runs: BTreeMap<u64, Run>,
    lines: u64,
    process: u64,
    /// If several processes have the ledger open at a time: how many were killed.
    killed: Option<u64>,
    /// A line that is no fact; forgiven if nothing but a new process follows it.
    torn: Option<u64>,
}

#[derive(Debug, Default)]
struct Run {
    is_acknowledged: bool,
    /// The last process that saw the result.
    ended_in: Option<u64>,
    steps: [Step; STEPS],
}

#[derive(Debug, Default)]
struct Step {
    recorded: Option<Token>,
    /// The key and the attempt of the latest execution.
    latest: Option<(String, u32)>,
    /// What the executions gave, until one of them is recorded.
    given: Vec<Token>,
    executions: u64,
}

impl Judge {
    /// A judge of a ledger that several processes had open at a time; `killed` is the number of those that were killed.
    pub(crate) fn of_several(killed: u64) -> Self {
        Self {
            killed: Some(killed),
            ..Self::default()
        }
    }

    /// Takes the next line.
    pub(crate) fn hear(&mut self, line: Result<Fact, NoFact>) {
        self.lines += 1;
        if let Some(torn) = self.torn.take() {
            let is_forgiven = match self.killed {
                Some(killed) => self.verdict.torn_lines < killed,
                None => matches!(line, Ok(Fact::Born { .. })),
            };
            if is_forgiven {
                self.verdict.torn_lines += 1;
            } else {
                self.verdict.blame(Fault::Garbled { line: torn });
            }
        }
        match line {
            Err(NoFact) => self.torn = Some(self.lines),
            Ok(Fact::Born { .. }) => self.process += 1,
            Ok(Fact::Acked { run }) => self.runs.entry(run).or_default().is_acknowledged = true,
            Ok(Fact::Ran {
                run,
                step,
                attempt,
                key,
                token,
            }) => {
                self.verdict.executions += 1;
                let of = &mut self.runs.entry(run).or_default().steps[step - 1];
                of.executions += 1;
                if of.executions == 2 {
                    self.verdict.steps_rerun += 1;
                }
                if of.recorded.is_some() {
                    self.verdict.blame(Fault::Repeated { run, step });
                }
                if of
                    .latest
                    .as_ref()
                    .is_some_and(|(former, last)| *former != key || *last >= attempt)
                {
                    self.verdict.blame(Fault::Confused { run, step });
                }
                of.latest = Some((key, attempt));
                of.given.push(token);
            }
            Ok(Fact::Saw { run, step, token }) => self.shown(run, step, token),
            Ok(Fact::Ended { run, tokens }) => {
                for (step, token) in (1..).zip(tokens) {
                    self.shown(run, step, token);
                }
                self.runs.entry(run).or_default().ended_in = Some(self.process);
            }
        }
    }

    /// The runtime showed the result of a step.
    fn shown(&mut self, run: u64, step: usize, shown: Token) {
        let of = &mut self.runs.entry(run).or_default().steps[step - 1];
        match of.recorded {
            Some(recorded) if recorded == shown => {}
            Some(recorded) => self.verdict.blame(Fault::Changed {
                run,
                step,
                recorded,
                shown,
            }),
            None => {
                of.recorded = Some(shown);
                if !std::mem::take(&mut of.given).contains(&shown) {
                    self.verdict.blame(Fault::Invented { run, step, shown });
                }
            }
        }
    }

    /// Gives the judgement, after the last line.
    pub(crate) fn conclude(mut self) -> Verdict {
        if self.torn.is_some() {
            self.verdict.torn_lines += 1;
        }
        for (run, state) in &self.runs {
            let is_shown = state.ended_in == Some(self.process);
            match (state.is_acknowledged, is_shown) {
                (true, true) => {
                    self.verdict.acknowledged += 1;
                    self.verdict.completed += 1;
                }
                (true, false) => {
                    self.verdict.acknowledged += 1;
                    self.verdict.blame(Fault::Lost { run: *run });
                }
                (false, _) => self.verdict.unacknowledged += 1,
            }
        }
        self.verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clean ledger of one run that was killed once, within step 2, and shown to a last process.
    const CLEAN: &str = "born 1\nacked 7\nran 7 1 1 a 10\nsaw 7 1 10\nran 7 2 1 b 20\nran 7\nborn 2\n\
        ran 7 2 2 b 21\nsaw 7 1 10\nsaw 7 2 21\nran 7 3 1 c 30\nended 7 10 21 30\nborn 3\nended 7 10 21 30";

    fn judge(ledger: &str) -> Verdict {
        let mut judge = Judge::default();
        ledger.lines().for_each(|line| judge.hear(line.parse()));
        judge.conclude()
    }

    /// The clean ledger with one line replaced must be blamed for exactly this.
    fn check(from: &str, to: &str, expected: &[Fault]) {
        assert!(CLEAN.contains(from), "{from}");
        let verdict = judge(&CLEAN.replace(from, to));
        assert_eq!(verdict.faults_named, expected, "{from} -> {to}");
        assert!(!verdict.is_clean());
    }

    #[test]
    fn a_clean_ledger_is_acquitted_and_its_second_execution_counted() {
        let expected = Verdict {
            acknowledged: 1,
            completed: 1,
            executions: 4,
            steps_rerun: 1,
            torn_lines: 1,
            ..Verdict::default()
        };
        assert_eq!(judge(CLEAN), expected);
    }

    #[test]
    fn an_acknowledged_run_without_a_result_is_lost() {
        check("born 3\nended 7 10 21 30", "born 3", &[Fault::Lost { run: 7 }]);
        check("born 3", "born 3\nacked 8", &[Fault::Lost { run: 8 }]);
    }

    #[test]
    fn a_result_that_only_an_earlier_process_saw_is_lost() {
        check(
            "born 3\nended 7 10 21 30",
            "born 3\nborn 4",
            &[Fault::Lost { run: 7 }],
        );
    }

    #[test]
    fn a_result_that_changes_is_seen() {
        let changed = |shown| Fault::Changed {
            run: 7,
            step: 1,
            recorded: 10,
            shown,
        };
        check("saw 7 1 10\nsaw 7 2 21", "saw 7 1 11\nsaw 7 2 21", &[changed(11)]);
        check("born 3\nended 7 10", "born 3\nended 7 12", &[changed(12)]);
    }

    #[test]
    fn a_result_that_no_execution_gave_is_seen() {
        let ledger = CLEAN.replace(" 30", " 31").replace("c 31", "c 30");
        let verdict = judge(&ledger);
        assert_eq!(
            verdict.faults_named,
            [Fault::Invented {
                run: 7,
                step: 3,
                shown: 31
            }]
        );
    }

    #[test]
    fn a_step_that_runs_again_after_its_result_was_recorded_is_seen() {
        check(
            "born 3",
            "born 3\nran 7 1 2 a 11",
            &[Fault::Repeated { run: 7, step: 1 }],
        );
    }

    #[test]
    fn a_second_execution_needs_the_same_key_and_a_higher_attempt() {
        let confused = [Fault::Confused { run: 7, step: 2 }];
        check("ran 7 2 2 b 21", "ran 7 2 1 b 21", &confused);
        check("ran 7 2 2 b 21", "ran 7 2 2 x 21", &confused);
    }

    #[test]
    fn a_torn_line_is_forgiven_only_where_a_process_ended() {
        check(
            "saw 7 1 10\nran 7 2 1",
            "saw 7 1\nran 7 2 1",
            &[Fault::Garbled { line: 4 }],
        );
        assert_eq!(judge(&format!("{CLEAN}\nen")).torn_lines, 2);
    }

    #[test]
    fn of_several_processes_each_that_was_killed_may_have_torn_a_line() {
        let torn = CLEAN.replace("saw 7 1 10\nran 7 2 1", "saw 7 1\nran 7 2 1");
        let faults = |killed| {
            let mut judge = Judge::of_several(killed);
            torn.lines().for_each(|line| judge.hear(line.parse()));
            judge.conclude().faults_named
        };
        assert_eq!(faults(2), []);
        assert_eq!(faults(1), [Fault::Garbled { line: 6 }]);
    }

    #[test]
    fn a_run_that_was_never_acknowledged_owes_nothing() {
        let verdict = judge(&CLEAN.replace("acked 7\n", ""));
        assert_eq!(
            (verdict.acknowledged, verdict.unacknowledged, verdict.faults),
            (0, 1, 0)
        );
    }

    #[test]
    fn a_flood_of_faults_is_counted_and_the_first_are_named() {
        let ledger: String = (0..1_000).map(|run| format!("acked {run}\n")).collect();
        let verdict = judge(&ledger);
        assert_eq!(
            (verdict.faults, verdict.faults_named.len()),
            (1_000, FAULTS_NAMED_MAX)
        );
    }
}
