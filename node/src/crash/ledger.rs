//! The ledger: what really happened, written down outside the store.
//!
//! Each line is one fact, appended with a single write right after the fact. Several processes may have the ledger open: their
//! lines stand in the order in which they were written. A line ends with a full stop, and begins with the line feed that ends
//! the one before: so a process that is killed leaves at most one torn line, which stands alone and is known by the
//! missing stop.
//!
//! ```text
//!   born 2 .                          a process opened the ledger, the second one to do so
//!   acked 17 .                        the runtime acknowledged the start of run 17
//!   ran 17 2 1 <key> 9001 .           step 2 of run 17 was executed: attempt 1, and its token
//!   saw 17 2 9001 .                   run 17 was shown this token as the result of step 2
//!   ended 17 9000 9001 9002 .         the result of run 17: the token of each step
//! ```
//!
//! A token is different in every execution, so a result that is forgotten and made anew cannot
//! pass for the old one.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

/// How many steps each run has.
pub(crate) const STEPS: usize = 3;

/// The number that one execution of a step draws, different from all others.
pub(crate) type Token = u64;

/// What ends a line that is whole.
const END: &str = " .";

/// One line of the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fact {
    Born {
        process: u64,
    },
    Acked {
        run: u64,
    },
    Ran {
        run: u64,
        step: usize,
        attempt: u32,
        key: String,
        token: Token,
    },
    Saw {
        run: u64,
        step: usize,
        token: Token,
    },
    Ended {
        run: u64,
        tokens: [Token; STEPS],
    },
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Born { process } => write!(f, "born {process}"),
            Self::Acked { run } => write!(f, "acked {run}"),
            Self::Ran {
                run,
                step,
                attempt,
                key,
                token,
            } => write!(f, "ran {run} {step} {attempt} {key} {token}"),
            Self::Saw { run, step, token } => write!(f, "saw {run} {step} {token}"),
            Self::Ended {
                run,
                tokens: [first, second, third],
            } => write!(f, "ended {run} {first} {second} {third}"),
        }
    }
}

/// A line that is no fact: torn, or not ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoFact;

impl FromStr for Fact {
    type Err = NoFact;

    fn from_str(line: &str) -> Result<Self, NoFact> {
        fn number<T: FromStr>(word: &str) -> Result<T, NoFact> {
            word.parse().map_err(|_| NoFact)
        }
        fn step(word: &str) -> Result<usize, NoFact> {
            number(word).and_then(|step| {
                if (1..=STEPS).contains(&step) {
                    Ok(step)
                } else {
                    Err(NoFact)
                }
            })
        }
        let words: Vec<&str> = line.split(' ').collect();
        Ok(match words[..] {
            ["born", process] => Self::Born {
                process: number(process)?,
            },
            ["acked", run] => Self::Acked { run: number(run)? },
            ["ran", run, at, attempt, key, token] => Self::Ran {
                run: number(run)?,
                step: step(at)?,
                attempt: number(attempt)?,
                key: key.to_owned(),
                token: number(token)?,
            },
            ["saw", run, at, token] => Self::Saw {
                run: number(run)?,
                step: step(at)?,
                token: number(token)?,
            },
            ["ended", run, first, second, third] => Self::Ended {
                run: number(run)?,
                tokens: [number(first)?, number(second)?, number(third)?],
            },
            _ => return Err(NoFact),
        })
    }
}

/// The ledger, open for appending. Shared by all tasks of a process.
#[derive(Debug)]
pub(crate) struct Ledger(Mutex<File>);

impl Ledger {
    /// Opens or makes the ledger, and writes who opened it.
    ///
    /// # Errors
    /// When the file cannot be opened or written.
    pub(crate) fn open(path: &Path, process: u64) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).open(path)?;
        let ledger = Self(Mutex::new(file));
        ledger.append(&[Fact::Born { process }])?;
        Ok(ledger)
    }

    /// Appends facts in order, with one write.
    ///
    /// # Errors
    /// When the disk refuses. The process must then stop: what it did cannot be told any more.
    pub(crate) fn append(&self, facts: &[Fact]) -> io::Result<()> {
        let lines: String = facts.iter().map(|fact| format!("\n{fact}{END}")).collect();
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .write_all(lines.as_bytes())
    }
}

/// Gives each line of a ledger to `each`: a fact, or what could not be read as one.
///
/// # Errors
/// When the file cannot be read.
pub(crate) fn read(path: &Path, mut each: impl FnMut(Result<Fact, NoFact>)) -> io::Result<()> {
    let mut file = BufReader::new(File::open(path)?);
    let mut line = Vec::new();
    while file.read_until(b'\n', &mut line)? > 0 {
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        if !text.is_empty() {
            let text = std::str::from_utf8(text).map_err(|_| NoFact);
            each(text.and_then(|text| text.strip_suffix(END).ok_or(NoFact)?.parse()));
        }
        line.clear();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Vec<Fact> {
        vec![
            Fact::Acked { run: 17 },
            Fact::Ran {
                run: 17,
                step: 2,
                attempt: 3,
                key: "a-b:2".into(),
                token: u64::MAX,
            },
            Fact::Saw {
                run: 17,
                step: 3,
                token: 0,
            },
            Fact::Ended {
                run: 17,
                tokens: [1, 2, 3],
            },
        ]
    }

    fn read_all(path: &Path) -> Vec<Result<Fact, NoFact>> {
        let mut lines = Vec::new();
        read(path, |line| lines.push(line)).unwrap();
        lines
    }

    #[test]
    fn facts_are_read_as_they_were_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger");
        Ledger::open(&path, 1).unwrap().append(&facts()).unwrap();
        let expected: Vec<_> = [Fact::Born { process: 1 }]
            .into_iter()
            .chain(facts())
            .map(Ok)
            .collect();
        assert_eq!(read_all(&path), expected);
    }

    #[test]
    fn a_torn_line_stands_alone_whoever_writes_next() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger");
        let other = Ledger::open(&path, 1).unwrap();
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"\nacked 1 .\nacked").unwrap();
        other.append(&[Fact::Acked { run: 2 }]).unwrap();
        let whole = [
            Ok(Fact::Born { process: 1 }),
            Ok(Fact::Acked { run: 1 }),
            Err(NoFact),
            Ok(Fact::Acked { run: 2 }),
        ];
        assert_eq!(read_all(&path), whole);
    }

    #[test]
    fn a_line_cut_off_within_a_number_is_not_taken_for_a_fact() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger");
        // Run 123 was acknowledged; what is left of the line must not say so of run 12.
        for torn in ["\nacked 12", "\nacked 123 "] {
            std::fs::write(&path, torn).unwrap();
            assert_eq!(read_all(&path), [Err(NoFact)]);
        }
    }

    #[test]
    fn lines_that_are_no_facts_are_told_apart() {
        for line in [
            "",
            "acked",
            "acked x",
            "acked 1 2",
            "ran 1 0 1 k 5",
            "ran 1 4 1 k 5",
            "saw 1 1",
            "ended 1 2 3",
        ] {
            assert_eq!(line.parse::<Fact>(), Err(NoFact), "{line}");
        }
    }
}
