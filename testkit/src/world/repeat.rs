//! Repeating a failure: the environment variable, and the command to print.

use std::{env, fmt, thread};

use super::fault::PlannedFault;

/// The name of the variable with the seed and faults to try.
const VARIABLE: &str = "MILLRUN_WORLD";

/// One seed, and perhaps faults: all that repeats a failed test.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Repetition {
    pub(super) seed: Option<u64>,
    pub(super) faults: Vec<PlannedFault>,
}

impl Repetition {
    /// What `MILLRUN_WORLD` asks for.
    ///
    /// # Panics
    /// If its value is not one that a failure has printed.
    pub(super) fn asked_for() -> Self {
        let Ok(text) = env::var(VARIABLE) else {
            return Self::default();
        };
        Self::parse(&text).unwrap_or_else(|| {
            panic!("{VARIABLE} is `{text}`: it is `seed=7`, or `seed=7,crash=behind-commit-4`, say")
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let mut asked = Self::default();
        for part in text.split(',') {
            match part.trim().split_once('=')? {
                ("seed", seed) => asked.seed = Some(seed.parse().ok()?),
                (fault, point) => asked.faults.push(PlannedFault {
                    fault: fault.parse().ok()?,
                    at: point.parse().ok()?,
                }),
            }
        }
        Some(asked)
    }

    /// The command that repeats the test which runs on this thread.
    pub(super) fn command(&self) -> String {
        let package = env::var("CARGO_PKG_NAME");
        let package = package.map_or_else(|_| String::new(), |package| format!(" -p {package}"));
        // The test harness names the thread of each test after it.
        let thread = thread::current();
        let test = thread.name().filter(|name| *name != "main");
        let test = test.map_or_else(String::new, |test| format!(" -- --exact {test}"));
        let text = self.to_string();
        // The names of parts have spaces.
        let text = if text.contains(' ') {
            format!("'{text}'")
        } else {
            text
        };
        format!("{VARIABLE}={text} cargo test{package}{test}")
    }
}

/// As the variable has it.
impl fmt::Display for Repetition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seed = self.seed.map(|seed| format!("seed={seed}"));
        let faults = self.faults.iter().map(ToString::to_string);
        let parts: Vec<_> = seed.into_iter().chain(faults).collect();
        f.write_str(&parts.join(","))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::fault::{Fault, WorldPoint};
    use super::*;

    #[test]
    fn what_is_printed_is_read_back() {
        let faults = [
            (Fault::Crash, WorldPoint::BeforeCommit(1)),
            (
                Fault::KillPart("shard 0".to_owned()),
                WorldPoint::BehindCommit(22),
            ),
            (
                Fault::DiskFull(Duration::from_millis(1_500)),
                WorldPoint::BehindAttempt(3),
            ),
            (
                Fault::ClockJump(Duration::from_secs(86_400)),
                WorldPoint::BehindStep(4_000),
            ),
        ];
        let faults = faults.map(|(fault, at)| PlannedFault { fault, at });
        for len in 0..=faults.len() {
            let faults = faults[..len].to_vec();
            let seed = Some(7);
            let repetition = Repetition { seed, faults };
            assert_eq!(Repetition::parse(&repetition.to_string()), Some(repetition));
        }
        for text in [
            "",
            "7",
            "seed=x",
            "seed=7,crash=4",
            "crash=behind-dinner-4",
            "sead=7",
            "kill:=behind-commit-4",
        ] {
            assert_eq!(Repetition::parse(text), None, "{text}");
        }
    }
}
