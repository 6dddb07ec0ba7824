//! Where the instructions of a path go: callgrind's counts by part of the program.
//!
//! ```text
//!   fewer operations ──► callgrind ──┐
//!   more operations  ──► callgrind ──┴─► what differs, by function ──► by owner, and by stage
//! ```
//!
//! By *owner* each instruction counts once, where it stands: the function it is in belongs to the
//! first known name within its own, so that code which the compiler has put into its caller counts
//! for the caller. By *stage* it counts for all that called it: a stage contains what it calls.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use super::HotPath;
use super::callgrind;
use super::owner::Owners;
use crate::{BenchError, grouped};

/// What is done, a stage that lies within the one before it behind a dash, and what the names of its
/// functions contain: one of these.
const STAGES: [(&str, &[&str]); 14] = [
    ("a client asks for a start", &["millrun::runtime::Runtime::start"]),
    (
        "a client asks for a result",
        &["millrun::handles::run::RunHandle<O,E>::result"],
    ),
    (
        "turns of the shard",
        &["<millrun::shard::Shard as millrun_core::host::Part>::turn"],
    ),
    (
        "– a run begins: machine",
        &["machine::Instance::start", "machine::Instance>::start"],
    ),
    (
        "– an input is applied: machine",
        &["machine::Instance::apply", "machine::Instance>::apply"],
    ),
    ("– – the code is polled", &["machine::code::RunningCode::poll"]),
    (
        "– a turn goes into the batch",
        &["millrun::shard::Shard>::adopt", "Shard::adopt"],
    ),
    (
        "– the batch goes to the journal",
        &["Shard>::flush", "Shard::flush"],
    ),
    (
        "– effects are performed",
        &["Shard>::perform_durable", "Shard::perform_durable"],
    ),
    (
        "– – tasks go to their queues",
        &["Shard>::send_tasks", "Shard::send_tasks"],
    ),
    (
        "turns of the pool",
        &["<millrun::activity::pool::Pool as millrun_core::host::Part>::turn"],
    ),
    (
        "attempts run",
        &[
            "millrun::activity::ActivityImplementation::new::{{closure}}::{{closure}}",
            "millrun::activity::pool::Pool::spawn::{{closure}}",
        ],
    ),
    (
        "reports are published",
        &[
            "millrun::activity::pool::Pool::send_reports",
            "ShardDoors::report",
        ],
    ),
    ("allocating, wherever it is done", &["__rustc::__rust_alloc"]),
];

/// Instructions by function.
#[derive(Debug, Default)]
struct Costs {
    /// Of each function, without those it calls.
    own: BTreeMap<String, i64>,
    /// Of each call, with all that it calls in turn: who calls, whom, how many.
    calls: BTreeMap<(String, String), i64>,
}

/// Counts a path, and says where its instructions go: two tables in Markdown.
///
/// # Errors
/// When valgrind or the path fails.
pub fn breakdown(path: HotPath, folder: &Path) -> Result<String, BenchError> {
    let (fewer, more) = path.operations();
    let less = Costs::of(&callgrind::run(path, fewer, folder)?);
    let costs = Costs::of(&callgrind::run(path, more, folder)?).less(&less);
    let operations = (more - fewer) as f64;
    let all: i64 = costs.own.values().sum();
    let mut text = format!(
        "{}: {} instructions\n",
        path.name(),
        grouped(all as f64 / operations)
    );
    let mut table = |what: &str, lines: Vec<(&str, i64)>| {
        // Writing to a string does not fail.
        write!(text, "\n| {what} | instructions | share |\n|---|--:|--:|\n").ok();
        for (name, cost) in lines.into_iter().filter(|(_, cost)| *cost > 0) {
            let share = 100.0 * cost as f64 / all as f64;
            let cost = grouped((cost as f64 / operations).round());
            writeln!(text, "| {name} | {cost} | {share:.1}% |").ok();
        }
    };
    let mut owners = costs.by_owner();
    owners.sort_by_key(|(_, cost)| std::cmp::Reverse(*cost));
    table("owner, each instruction once", owners);
    let stages = STAGES.iter().map(|(name, of)| (*name, costs.within(of)));
    table("stage, with all that it calls", stages.collect());
    Ok(text)
}

impl Costs {
    /// What callgrind wrote. Names are given in full once, and by number from then on.
    fn of(text: &str) -> Self {
        let mut costs = Self::default();
        let mut names: BTreeMap<&str, &str> = BTreeMap::new();
        let mut name_of = |given| match str::split_once(given, ' ') {
            Some((number, name)) => {
                names.insert(number, name);
                name
            }
            None => names.get(given).copied().unwrap_or(given),
        };
        let (mut function, mut called, mut is_call) = ("", "", false);
        for line in text.lines() {
            if let Some(given) = line.strip_prefix("fn=") {
                function = name_of(given);
            } else if let Some(given) = line.strip_prefix("cfn=") {
                called = name_of(given);
            } else if line.starts_with("calls=") {
                is_call = true;
            } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
                let cost = line.split_whitespace().nth(1).and_then(|cost| cost.parse().ok());
                let cost: i64 = cost.unwrap_or(0);
                if std::mem::take(&mut is_call) {
                    *costs.calls.entry((function.into(), called.into())).or_default() += cost;
                } else {
                    *costs.own.entry(function.into()).or_default() += cost;
                }
            }
        }
        costs
    }

    /// What this has more than another.
    fn less(mut self, other: &Self) -> Self {
        for (name, cost) in &other.own {
            *self.own.entry(name.clone()).or_default() -= cost;
        }
        for (name, cost) in &other.calls {
            *self.calls.entry(name.clone()).or_default() -= cost;
        }
        self
    }

    fn by_owner(&self) -> Vec<(&'static str, i64)> {
        let mut sums: BTreeMap<usize, i64> = BTreeMap::new();
        for (function, cost) in &self.own {
            *sums.entry(Owners::of(function)).or_default() += cost;
        }
        sums.into_iter()
            .map(|(owner, cost)| (Owners::name(owner), cost))
            .collect()
    }

    /// The cost of all calls from elsewhere into functions of one of these names. Of a function that the
    /// compiler has put into its callers there are none.
    fn within(&self, names: &[&str]) -> i64 {
        let is_it = |function: &str| names.iter().any(|name| function.contains(name));
        let entered = self
            .calls
            .iter()
            .filter(|((caller, called), _)| is_it(called) && !is_it(caller));
        entered.map(|(_, cost)| cost).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITTEN: &str = "version: 1\n\
        fl=(1) a.rs\n\
        fn=(1) millrun::shard::Shard::flush\n\
        10 5\n\
        +1 7\n\
        cfn=(2) malloc\n\
        calls=2 30\n\
        * 100\n\
        fi=(2) b.rs\n\
        -3 1\n\
        \n\
        fn=(2)\n\
        30 60\n\
        cfn=(2)\n\
        calls=1 30\n\
        30 40\n\
        \n\
        totals: 73\n";

    #[test]
    fn own_costs_are_without_calls_and_calls_are_with_them() {
        let costs = Costs::of(WRITTEN);
        assert_eq!(costs.own["millrun::shard::Shard::flush"], 13);
        assert_eq!(costs.own["malloc"], 60);
        assert_eq!(costs.within(&["malloc"]), 100, "a call of itself counts once");
    }

    #[test]
    fn what_two_counts_have_in_common_is_taken_away() {
        let costs = Costs::of(WRITTEN).less(&Costs::of(WRITTEN));
        assert!(costs.by_owner().iter().all(|(_, cost)| *cost == 0));
        assert_eq!(costs.within(&["malloc"]), 0);
    }
}
