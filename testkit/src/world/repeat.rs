//! How a failure is repeated: what the environment asks for, and the command that asks for it.

use std::{env, fmt, thread};

use super::course::CrashPoint;

/// The name of the variable that says which seed and crash are tried.
const VARIABLE: &str = "MILLRUN_WORLD";

/// One seed, and perhaps one crash: what a failed test is repeated with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Repetition {
    pub(super) seed: Option<u64>,
    pub(super) crash_at: Option<CrashPoint>,
}

impl Repetition {
    /// What `MILLRUN_WORLD` asks for.
    ///
    /// # Panics
    /// If it says something else than what a failure has printed.
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
                ("crash", point) => asked.crash_at = Some(point.parse().ok()?),
                _ => return None,
            }
        }
        Some(asked)
    }

    /// The command that repeats the test which runs on this thread.
    pub(super) fn command(self) -> String {
        let package = env::var("CARGO_PKG_NAME");
        let package = package.map_or_else(|_| String::new(), |package| format!(" -p {package}"));
        // The test harness names the thread of each test after it.
        let thread = thread::current();
        let test = thread.name().filter(|name| *name != "main");
        let test = test.map_or_else(String::new, |test| format!(" -- --exact {test}"));
        format!("{VARIABLE}={self} cargo test{package}{test}")
    }
}

/// As the variable has it.
impl fmt::Display for Repetition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seed = self.seed.map(|seed| format!("seed={seed}"));
        let crash = self.crash_at.map(|point| format!("crash={point}"));
        let parts: Vec<_> = seed.into_iter().chain(crash).collect();
        f.write_str(&parts.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_read_back() {
        let points = [
            CrashPoint::BeforeCommit(1),
            CrashPoint::BehindCommit(22),
            CrashPoint::BehindAttempt(3),
            CrashPoint::BehindStep(4_000),
        ];
        for crash_at in points.into_iter().map(Some).chain([None]) {
            let seed = Some(7);
            let repetition = Repetition { seed, crash_at };
            assert_eq!(Repetition::parse(&repetition.to_string()), Some(repetition));
        }
        for text in [
            "",
            "7",
            "seed=x",
            "seed=7,crash=4",
            "crash=behind-dinner-4",
            "sead=7",
        ] {
            assert_eq!(Repetition::parse(text), None, "{text}");
        }
    }
}
