//! The result of a preflight: by workflow, and each difference once.

use std::collections::BTreeMap;
use std::fmt;

use millrun_core::{InstanceId, RunId};
use millrun_workflow::{Fit, Name, Nondeterminism, ParkReason};
use serde::Serialize;

use crate::looking::find::RunSummary;

/// How many runs with the same finding are named.
const EXAMPLES_LEN_MAX: usize = 8;

/// The result of a [preflight](crate::RuntimeBuilder::preflight). Its text is for people; with serde it is JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PreflightReport {
    /// How many runs were tried.
    pub runs: u64,
    /// How many events their histories have, as far as they were read.
    pub events: u64,
    /// Each workflow that has runs, in the order of the names.
    pub workflows: Vec<PreflightWorkflow>,
    /// The changes that code has asked for with [`patched`](crate::WorkflowContext::patched) in these replays, by workflow and id: of up
    /// to 1,000.
    pub patches: Vec<PreflightPatch>,
    /// What does not fit, the most frequent first: each difference once, however many runs have it.
    pub findings: Vec<PreflightFinding>,
    /// How many runs have findings that are not reported, because there were [too
    /// many](super::PreflightConfig::findings_len_max).
    pub runs_untold: u64,
    /// How many runs could not be listed, because their records are damaged.
    pub unreadable: u64,
}

/// The runs of one workflow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PreflightWorkflow {
    /// Its name.
    pub workflow: String,
    /// How many runs were tried.
    pub runs: u64,
    /// How many of them fit the code that they would have: that of their version, or of the newest if they would move.
    pub fit: u64,
    /// How many of these would move to the newest version.
    pub moving: u64,
    /// How many values in these the code encodes differently from the recorded ones.
    pub changed_values: u64,
}

/// A change that code asks for with [`patched`](crate::WorkflowContext::patched), and the ways that runs have taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PreflightPatch {
    /// The workflow.
    pub workflow: String,
    /// The id of the change.
    pub id: String,
    /// How many of the runs took the old way.
    pub old: u64,
    /// How many of them took the new way.
    pub new: u64,
    /// Whether no run needs it any more: none took the old way, so the call and the old way can be removed from the code.
    /// Runs whose history cannot be tried count as needing it.
    pub is_removable: bool,
}

/// A finding: something that does not fit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PreflightFinding {
    /// The workflow.
    pub workflow: String,
    /// What is wrong.
    pub problem: PreflightProblem,
    /// The history's event in the first run; empty if there is no difference.
    pub recorded: String,
    /// The code's decision instead, or why there is no code.
    pub replayed: String,
    /// The number of the event in the first run.
    pub sequence: u64,
    /// How many runs have it.
    pub runs: u64,
    /// Some of the runs: the id of the instance, and the run.
    pub examples: Vec<(InstanceId, RunId)>,
}

/// What is wrong with some runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum PreflightProblem {
    /// The code decides differently: it needs a [patch](crate::WorkflowContext::patched), or another name.
    Differs,
    /// The code panics, or awaits something that the history does not know.
    Fails,
    /// No code is registered.
    NoCode,
    /// The replay does not end in its [time](super::PreflightConfig::run_time_max).
    Endless,
    /// The history cannot be read.
    Unreadable,
}

impl PreflightReport {
    /// Whether the code fits all runs.
    #[must_use]
    pub fn is_fit(&self) -> bool {
        self.findings.is_empty() && self.runs_untold == 0 && self.unreadable == 0
    }
}

/// The result of one run, the changes that its code asked for, and the number of events read.
#[derive(Debug)]
pub(super) struct RunTried {
    pub(super) tried: Tried,
    pub(super) patches: Vec<(Name, bool)>,
    pub(super) events: u64,
}

impl From<Tried> for RunTried {
    fn from(tried: Tried) -> Self {
        Self {
            tried,
            patches: Vec::new(),
            events: 0,
        }
    }
}

impl RunTried {
    pub(super) fn with_events(self, events: u64) -> Self {
        Self { events, ..self }
    }
}

/// How many changes a report contains.
const PATCHES_LEN_MAX: usize = 1_000;

/// The result of one run.
#[derive(Debug)]
pub(super) enum Tried {
    Fit(Fit),
    /// It fits the newest version, to which it would move.
    Moves {
        changed_values: u64,
    },
    NoCode(ParkReason),
    Endless,
    Unreadable(String),
}

/// A report under construction.
#[derive(Debug, Default)]
pub(super) struct Findings {
    report: PreflightReport,
    workflows: BTreeMap<String, PreflightWorkflow>,
    findings: BTreeMap<FindingKey, PreflightFinding>,
    /// By workflow and id: how many runs took the old way, and how many the new one.
    patches: BTreeMap<(String, Name), [u64; 2]>,
    len_max: usize,
}

/// What equal findings have in common.
type FindingKey = (String, PreflightProblem, String, String);

impl Findings {
    pub(super) fn new(len_max: usize) -> Self {
        Self {
            len_max,
            ..Self::default()
        }
    }

    pub(super) fn note_unreadable(&mut self, len: u64) {
        self.report.unreadable += len;
    }

    fn note_patches(&mut self, workflow: &str, patches: Vec<(Name, bool)>) {
        for (id, is_new) in patches {
            let key = (workflow.to_owned(), id);
            if self.patches.len() < PATCHES_LEN_MAX || self.patches.contains_key(&key) {
                self.patches.entry(key).or_default()[usize::from(is_new)] += 1;
            }
        }
    }

    pub(super) fn add(&mut self, run: &RunSummary, tried: RunTried) {
        let RunTried {
            tried,
            patches,
            events,
        } = tried;
        self.note_patches(&run.workflow, patches);
        self.report.runs += 1;
        self.report.events += events;
        let workflow = self.workflows.entry(run.workflow.clone()).or_default();
        workflow.runs += 1;
        let none = |replayed: String| Nondeterminism {
            sequence: 0,
            recorded: String::new(),
            replayed,
        };
        let (problem, difference) = match tried {
            Tried::Fit(Fit::Fits { changed_values }) => {
                workflow.fit += 1;
                workflow.changed_values += changed_values;
                return;
            }
            Tried::Moves { changed_values } => {
                workflow.fit += 1;
                workflow.moving += 1;
                workflow.changed_values += changed_values;
                return;
            }
            Tried::Fit(Fit::Differs(difference)) => (PreflightProblem::Differs, *difference),
            Tried::Fit(Fit::Fails(difference)) => (PreflightProblem::Fails, *difference),
            Tried::NoCode(reason) => (PreflightProblem::NoCode, none(reason.to_string())),
            Tried::Fit(other) => (PreflightProblem::Unreadable, none(format!("{other:?}"))),
            Tried::Endless => (
                PreflightProblem::Endless,
                none("the replay does not end".to_owned()),
            ),
            Tried::Unreadable(why) => (PreflightProblem::Unreadable, none(why)),
        };
        let replayed = match problem {
            // The version without code is the same for all runs.
            PreflightProblem::NoCode => difference.replayed.clone(),
            _ => in_common(&difference.replayed),
        };
        let recorded = in_common(&difference.recorded);
        let key = (run.workflow.clone(), problem, recorded, replayed);
        if self.findings.len() >= self.len_max && !self.findings.contains_key(&key) {
            self.report.runs_untold += 1;
            return;
        }
        let finding = self.findings.entry(key).or_insert_with(|| PreflightFinding {
            workflow: run.workflow.clone(),
            problem,
            recorded: difference.recorded,
            replayed: difference.replayed,
            sequence: difference.sequence,
            runs: 0,
            examples: Vec::new(),
        });
        finding.runs += 1;
        if finding.examples.len() < EXAMPLES_LEN_MAX {
            finding.examples.push((run.id.clone(), run.run));
        }
    }

    pub(super) fn finish(mut self) -> PreflightReport {
        let is_whole = self.report.unreadable == 0;
        let patches = self.patches.into_iter();
        let patches = patches.map(|((workflow, id), [old, new])| {
            let runs = self.workflows.get(&workflow);
            let are_all_tried = is_whole && runs.is_some_and(|runs| runs.fit == runs.runs);
            PreflightPatch {
                is_removable: old == 0 && are_all_tried,
                id: id.into_owned(),
                workflow,
                old,
                new,
            }
        });
        self.report.patches = patches.collect();
        let workflows = self.workflows.into_iter();
        let named = workflows.map(|(name, workflow)| PreflightWorkflow {
            workflow: name,
            ..workflow
        });
        self.report.workflows = named.collect();
        self.report.findings = self.findings.into_values().collect();
        self.report
            .findings
            .sort_by_key(|finding| std::cmp::Reverse(finding.runs));
        self.report
    }
}

/// The common part of two differences: the text without numbers and quoted parts (ids of instances), which differ between
/// runs.
fn in_common(text: &str) -> String {
    let mut common = String::with_capacity(text.len());
    let mut is_quoted = false;
    for sign in text.chars() {
        if sign == '"' {
            is_quoted = !is_quoted;
        } else if is_quoted || sign.is_ascii_digit() {
            continue;
        }
        common.push(sign);
    }
    common
}

impl fmt::Display for PreflightReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fit: u64 = self.workflows.iter().map(|workflow| workflow.fit).sum();
        writeln!(
            f,
            "{fit} of {} runs fit the code ({} events)",
            self.runs, self.events
        )?;
        for workflow in &self.workflows {
            let PreflightWorkflow {
                workflow,
                runs,
                fit,
                moving,
                changed_values,
            } = workflow;
            write!(f, "  {workflow}: {fit} of {runs}")?;
            if *moving > 0 {
                write!(f, ", {moving} move to the newest version")?;
            }
            match changed_values {
                0 => writeln!(f)?,
                values => writeln!(f, ", with {values} other values")?,
            }
        }
        for patch in &self.patches {
            let PreflightPatch {
                workflow,
                id,
                old,
                new,
                is_removable,
            } = patch;
            write!(
                f,
                "  {workflow}, change {id:?}: {old} runs the old way, {new} the new one"
            )?;
            match is_removable {
                true => writeln!(f, ": its mark can be removed")?,
                false => writeln!(f)?,
            }
        }
        for finding in &self.findings {
            writeln!(f, "\n{finding}")?;
        }
        if self.runs_untold > 0 {
            writeln!(
                f,
                "\n{} more runs do not fit, for reasons that are not told here",
                self.runs_untold
            )?;
        }
        if self.unreadable > 0 {
            writeln!(f, "\n{} runs cannot be read: verify the store", self.unreadable)?;
        }
        Ok(())
    }
}

impl fmt::Display for PreflightFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.problem {
            PreflightProblem::Differs => "decides otherwise: patch it, or give it another name",
            PreflightProblem::Fails => "fails",
            PreflightProblem::NoCode => "has no code",
            PreflightProblem::Endless => "does not end its replay",
            PreflightProblem::Unreadable => "has histories that cannot be read",
        };
        let runs = if self.runs == 1 { "run" } else { "runs" };
        writeln!(f, "{} {what} ({} {runs})", self.workflow, self.runs)?;
        match self.problem {
            PreflightProblem::Differs | PreflightProblem::Fails => {
                let difference = Nondeterminism {
                    sequence: self.sequence,
                    recorded: self.recorded.clone(),
                    replayed: self.replayed.clone(),
                };
                f.write_str(&difference.columns())?;
            }
            PreflightProblem::Unreadable | PreflightProblem::NoCode => writeln!(f, "  {}", self.replayed)?,
            PreflightProblem::Endless => {}
        }
        let examples: Vec<_> = self.examples.iter().map(|(id, _)| id.as_str()).collect();
        write!(f, "  such as {}", examples.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_from_run_to_run_is_left_out_of_what_is_compared() {
        let one = in_common(r#"child order "order-7" (operation 12)"#);
        assert_eq!(one, in_common(r#"child order "order-19" (operation 3)"#));
        assert_ne!(one, in_common(r#"child trip "order-7" (operation 12)"#));
    }
}
