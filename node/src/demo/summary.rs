//! What the demo tells at its end.

use std::fmt;
use std::time::Duration;

use indicatif::{BinaryBytes, HumanCount};
use millrun::operating::RuntimeStats;

use super::places::Places;
use super::workflows::TreeResult;
use crate::output::shown;

/// How many files without a digest are named on the terminal; all of the first hundred stand in
/// the run's result.
const NAMED_MAX: usize = 10;

/// Everything the summary shows.
#[derive(Debug)]
pub(crate) struct Summary<'a> {
    pub(crate) result: &'a TreeResult,
    /// Of this process.
    pub(crate) stats: &'a RuntimeStats,
    /// How often this process read a file in vain, because it changed meanwhile.
    pub(crate) changed: u64,
    /// Since this process began.
    pub(crate) time: Duration,
    pub(crate) places: &'a Places,
}

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TreeResult {
            survey,
            chunks,
            files,
            bytes,
            skipped,
            skipped_named,
        } = self.result;
        for skipped in skipped_named.iter().take(NAMED_MAX) {
            writeln!(f, "skipped     {}: {}", skipped.path, skipped.reason)?;
        }
        for unreadable in survey.unreadable_named.iter().take(NAMED_MAX) {
            writeln!(f, "skipped     {}: {}", unreadable.path, unreadable.reason)?;
        }
        writeln!(f, "files       {}, {}", HumanCount(*files), BinaryBytes(*bytes))?;
        let passed_over = [
            (*skipped, "files skipped"),
            (survey.unreadable, "directories skipped"),
            (survey.links, "symbolic links"),
            (survey.specials, "sockets, pipes and devices"),
            (survey.vanished, "names that vanished while they were listed"),
            (
                survey.control_names,
                "names with control characters, which a terminal may obey",
            ),
            (self.changed, "times a file changed while it was read"),
        ];
        for (count, what) in passed_over.into_iter().filter(|(count, _)| *count > 0) {
            writeln!(f, "            {} {what}", HumanCount(count))?;
        }
        writeln!(f, "workflows   {}", HumanCount(chunks + 1))?;
        writeln!(
            f,
            "activities  {} run by this process",
            HumanCount(self.stats.attempts)
        )?;
        writeln!(
            f,
            "commits     {} by this process",
            HumanCount(self.stats.journal.commits)
        )?;
        writeln!(f, "time        {:.2} s", self.time.as_secs_f64())?;
        writeln!(f, "store       {}", shown(&self.places.store))?;
        write!(f, "manifest    {}", shown(&self.places.manifest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::workflows::Skipped;
    use std::path::PathBuf;

    #[test]
    fn what_was_skipped_is_named_first() {
        let skipped = Skipped {
            path: b"a\nb".to_vec().into(),
            reason: "permission denied".into(),
        };
        let result = TreeResult {
            chunks: 5,
            files: 1_234,
            bytes: 2_048,
            skipped: 1,
            skipped_named: vec![skipped],
            ..TreeResult::default()
        };
        let mut stats = RuntimeStats::default();
        (stats.attempts, stats.journal.commits) = (1_245, 99);
        let path = |name: &str| PathBuf::from(name);
        let places = Places {
            root: path("/r"),
            store: path("a.redb"),
            manifest: path("sums"),
            root_as_given: path("."),
        };
        let summary = Summary {
            result: &result,
            stats: &stats,
            changed: 2,
            time: Duration::from_millis(1_500),
            places: &places,
        };
        let expected = "\
skipped     a\\nb: permission denied
files       1,234, 2.00 KiB
            1 files skipped
            2 times a file changed while it was read
workflows   6
activities  1,245 run by this process
commits     99 by this process
time        1.50 s
store       a.redb
manifest    sums";
        assert_eq!(summary.to_string(), expected);
    }
}
