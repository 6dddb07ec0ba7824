//! What a run of the suite prints.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use super::desk::Count;
use super::keeper::Tally;
use super::round::RoundReport;
use crate::check::{Checked, Rule};
use crate::faults::Weather;
use crate::verify;

/// How many violations of each rule are told in full.
const TOLD_MAX: usize = 2;

/// What was done and checked over all rounds.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    rounds: u64,
    checked: Checked,
    counts: BTreeMap<&'static str, Count>,
    tally: Tally,
}

impl Summary {
    /// Adds a round, and prints a line about it.
    pub(crate) fn add(&mut self, number: u64, weather: &Weather, report: &RoundReport, took: Duration) {
        let RoundReport {
            checked,
            tally,
            counts,
            violations,
            ..
        } = report;
        self.rounds += 1;
        self.checked.add(checked);
        for (label, count) in counts {
            let all = self.counts.entry(label).or_default();
            all.asked += count.asked;
            all.acknowledged += count.acknowledged;
            all.in_doubt += count.in_doubt;
            all.dropped += count.dropped;
        }
        self.tally.lives += tally.lives;
        self.tally.process_kills += tally.process_kills;
        self.tally.orderly_restarts += tally.orderly_restarts;
        self.tally.disk_stops += tally.disk_stops;
        self.tally.repairs += tally.repairs;
        self.tally.looks += tally.looks;
        for (part, kills) in &tally.parts {
            *self.tally.parts.entry(part.clone()).or_default() += kills;
        }
        let kills: u64 = tally.parts.values().sum();
        println!(
            "round {number} {:8} {} shards, hot {}: {:.1} s, {} instances, {kills} parts and {} processes killed, {} violations",
            weather.name,
            weather.shards_len,
            weather.hot_len_max,
            took.as_secs_f64(),
            checked.instances,
            tally.process_kills,
            violations.len(),
        );
    }

    /// Prints all figures.
    pub(crate) fn print(&self, took: Duration) {
        println!("\n{} rounds in {:.0} s", self.rounds, took.as_secs_f64());
        println!(
            "\nasked of the runtime {:>22} {:>12} {:>10} {:>9}",
            "asked", "acknowledged", "in doubt", "dropped"
        );
        for (label, count) in &self.counts {
            let Count {
                asked,
                acknowledged,
                in_doubt,
                dropped,
            } = count;
            println!("  {label:22} {asked:>17} {acknowledged:>12} {in_doubt:>10} {dropped:>9}");
        }
        println!("\nchecked");
        for (name, count) in self.checked.rows() {
            println!("  {name:22} {count:>17}");
        }
        println!("\nbroken");
        for (name, count) in self.broken() {
            println!("  {name:22} {count:>17}");
        }
    }

    fn broken(&self) -> Vec<(String, u64)> {
        let mut rows: Vec<(String, u64)> = self
            .tally
            .parts
            .iter()
            .map(|(part, failed)| (format!("failures of {part}"), *failed))
            .collect();
        rows.extend([
            ("processes".into(), self.tally.lives),
            ("SIGKILLs".into(), self.tally.process_kills),
            ("orderly restarts".into(), self.tally.orderly_restarts),
            ("stops by the disk".into(), self.tally.disk_stops),
            ("repairs at opening".into(), self.tally.repairs),
            ("looks in between".into(), self.tally.looks),
        ]);
        rows
    }

    /// Whether each kind of load and fault took place, and few searches were given up. What did not is
    /// printed.
    pub(crate) fn is_whole(&self, is_every_weather: bool) -> bool {
        let mut missing: Vec<String> = Vec::new();
        if is_every_weather {
            let checked = self.checked.rows();
            let idle = checked
                .iter()
                .filter(|(name, count)| *count == 0 && *name != "registers given up");
            missing.extend(idle.map(|(name, _)| format!("checked: {name}")));
            let kinds = [
                "start",
                "signal_with_start",
                "signal",
                "update",
                "query",
                "command",
                "read of an entity",
                "result",
                "describe",
                "cancel",
                "terminate",
                "pause",
                "resume",
                "settle a promise",
                "publish a record",
                "kill a part",
                "move the clock",
                "trouble the disk",
            ];
            for kind in kinds {
                let count = self.counts.get(kind).copied().unwrap_or_default();
                if count.acknowledged == 0 {
                    missing.push(format!("asked: {kind}"));
                }
            }
            let dropped: u64 = self.counts.values().map(|count| count.dropped).sum();
            if dropped == 0 {
                missing.push("dropped callers".into());
            }
            let broken = [
                ("kills of shards", self.kills_of("shard")),
                ("kills of the reader", self.kills_of("reader")),
                ("kills of pools", self.kills_of("pool")),
                ("SIGKILLs", self.tally.process_kills),
                ("stops by the disk", self.tally.disk_stops),
                ("looks in between", self.tally.looks),
            ];
            let idle = broken.into_iter().filter(|(_, count)| *count == 0);
            missing.extend(idle.map(|(name, _)| format!("broken: {name}")));
        }
        if self.checked.registers_undecided * 50 > self.checked.registers {
            missing.push("too many registers were given up".into());
        }
        for missing in &missing {
            println!("NOT EXERCISED  {missing}");
        }
        missing.is_empty()
    }

    fn kills_of(&self, prefix: &str) -> u64 {
        let parts = self
            .tally
            .parts
            .iter()
            .filter(|(part, _)| part.starts_with(prefix));
        parts.map(|(_, kills)| kills).sum()
    }
}

/// Prints what was found, with the ledger's and the file's view of each instance.
pub(crate) fn tell_violations(seed: u64, round: u64, report: &RoundReport, kept: &Path) {
    println!(
        "\n{} VIOLATIONS in round {round} of seed {seed}; the store is kept in {}",
        report.violations.len(),
        kept.display()
    );
    let mut by_rule: BTreeMap<String, usize> = BTreeMap::new();
    for violation in &report.violations {
        *by_rule.entry(violation.rule.to_string()).or_default() += 1;
    }
    for (rule, count) in by_rule {
        println!("  {count:>6} x {rule}");
    }
    let mut told: BTreeMap<Rule, usize> = BTreeMap::new();
    for violation in &report.violations {
        let told = told.entry(violation.rule).or_default();
        *told += 1;
        if *told > TOLD_MAX {
            continue;
        }
        println!("\nVIOLATED: {}", violation.rule);
        println!("{}", violation.story);
        let Some(id) = &violation.instance else { continue };
        let told = report
            .ledger
            .book()
            .accounts
            .get(id)
            .map(|account| account.told());
        println!("--- the ledger\n{}", told.unwrap_or_default());
        println!("--- the file\n{}", verify::told(&kept.join("store.redb"), id));
    }
    let all: String = report
        .violations
        .iter()
        .map(|violation| format!("{violation:?}\n"))
        .collect();
    if let Err(error) = std::fs::write(kept.join("violations"), all) {
        println!("the list of violations could not be written: {error}");
    }
}
