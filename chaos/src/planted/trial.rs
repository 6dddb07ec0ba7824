//! What became of one planted mistake.

use std::error::Error;
use std::fmt;
use std::fs::File;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::copy::Copy;
use super::entry::Entry;
use super::{PlantedOptions, TEST_MAX};

/// What the test and the suite said.
#[derive(Debug)]
pub(super) struct Trial {
    test: Verdict,
    suite: Verdict,
}

/// Whether a mistake was found.
#[derive(Debug)]
enum Verdict {
    Found(Duration),
    Missed,
    /// It cannot be told: what was planted does not compile, say.
    Failed(&'static str),
    /// Nobody looked.
    NotTried,
}

impl Trial {
    /// Plants the mistake, looks for it, and takes it out again.
    ///
    /// # Errors
    /// When a file cannot be written or a command not be started.
    pub(super) fn of(entry: &Entry, copy: &Copy, options: &PlantedOptions) -> Result<Self, Box<dyn Error>> {
        writeln!(
            File::options().create(true).append(true).open(&copy.log)?,
            "\n==> {}",
            entry.name
        )?;
        copy.plant(entry)?;
        let test = if options.suite_only {
            Ok(Verdict::NotTried)
        } else {
            test(entry, copy)
        };
        let suite = if options.tests_only || !entry.chaos {
            Ok(Verdict::NotTried)
        } else {
            suite(entry, copy, options)
        };
        copy.restore(entry)?;
        Ok(Self {
            test: test?,
            suite: suite?,
        })
    }

    pub(super) fn is_found(&self) -> bool {
        [&self.test, &self.suite]
            .iter()
            .all(|verdict| matches!(verdict, Verdict::Found(_) | Verdict::NotTried))
    }
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "test: {:18} suite: {}", self.test.to_string(), self.suite)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Found(after) => write!(f, "found in {:.1} s", after.as_secs_f64()),
            Self::Missed => f.write_str("MISSED"),
            Self::Failed(why) => write!(f, "FAILED, {why}"),
            Self::NotTried => f.write_str("-"),
        }
    }
}

fn test(entry: &Entry, copy: &Copy) -> Result<Verdict, Box<dyn Error>> {
    let built = entry.test.replacen("cargo test", "cargo test --no-run", 1);
    if within(copy, &built, TEST_MAX)? != Some(true) {
        return Ok(Verdict::Failed("what is planted does not compile"));
    }
    let began = Instant::now();
    Ok(match within(copy, &entry.test, TEST_MAX)? {
        Some(true) => Verdict::Missed,
        // A test that hangs has found something, too.
        Some(false) | None => Verdict::Found(began.elapsed()),
    })
}

fn suite(entry: &Entry, copy: &Copy, options: &PlantedOptions) -> Result<Verdict, Box<dyn Error>> {
    /// How long the suite may take beyond the time that it is given: what it began is brought to its end.
    const BEYOND: Duration = Duration::from_secs(600);
    if within(copy, "cargo build --release -p millrun-chaos", TEST_MAX)? != Some(true) {
        return Ok(Verdict::Failed("what is planted does not compile"));
    }
    let seconds = options.chaos_seconds;
    // Stores in which something was found are kept there; nobody looks at them.
    let stores = tempfile::tempdir()?;
    let mut command = format!(
        "{}/release/millrun-chaos run --seconds {seconds} --round-seconds 10 --crowd 5000 --within {}",
        copy.target.display(),
        stores.path().display(),
    );
    if let Some(weather) = entry.weather {
        command.push_str(" --only ");
        command.push_str(weather.name());
    }
    let began = Instant::now();
    Ok(
        match within(copy, &command, Duration::from_secs(seconds) + BEYOND)? {
            Some(false) => Verdict::Found(began.elapsed()),
            Some(true) => Verdict::Missed,
            None => Verdict::Failed("the suite did not end"),
        },
    )
}

/// Runs a command in the copy; `None` if it did not end in time, and was killed with all that it started. What
/// it prints goes to the copy's log.
fn within(copy: &Copy, command: &str, wait_max: Duration) -> Result<Option<bool>, Box<dyn Error>> {
    const LOOK_EVERY: Duration = Duration::from_millis(100);
    let mut log = File::options().create(true).append(true).open(&copy.log)?;
    writeln!(log, "$ {command}")?;
    let mut child = Command::new("sh")
        .args(["-c", command])
        .current_dir(&copy.tree)
        .env("CARGO_TARGET_DIR", &copy.target)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .process_group(0)
        .spawn()?;
    let until = Instant::now() + wait_max;
    while Instant::now() < until {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status.success()));
        }
        std::thread::sleep(LOOK_EVERY);
    }
    let group = format!("-{}", child.id());
    Command::new("kill").args(["-KILL", "--", &group]).status()?;
    child.wait()?;
    Ok(None)
}
