//! Faults in a world, and their points.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A fault around a program, for [`World::fault_everywhere`](crate::World::fault_everywhere).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The process is killed. (For a program, a failing disk is the same: the runtime stops, and what was not durable is
    /// lost.)
    Crash,
    /// A part of the runtime fails, and is restarted: a shard, a pool, a lane of the reader, by its name in
    /// [`Runtime::parts`](millrun::Runtime::parts), such as `shard 0` or `pool default`. Nothing happens if it is being
    /// restarted already. Requests that a shard is working on are cut off: their callers get an error whose `is_retryable` is
    /// true.
    KillPart(String),
    /// The disk is full, or does not answer, for this long: commits wait, and so do their callers.
    DiskFull(Duration),
    /// The clock is set forward by this much: everything in between is due at once.
    ClockJump(Duration),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Crash => f.write_str("crash"),
            Self::KillPart(part) => write!(f, "kill:{part}"),
            Self::DiskFull(wait) => write!(f, "full:{}us", wait.as_micros()),
            Self::ClockJump(by) => write!(f, "jump:{}us", by.as_micros()),
        }
    }
}

impl FromStr for Fault {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let time = |text: &str| {
            let micros = text.strip_suffix("us").ok_or(())?.parse().map_err(|_| ())?;
            Ok(Duration::from_micros(micros))
        };
        match text.split_once(':') {
            None if text == "crash" => Ok(Self::Crash),
            Some(("kill", part)) if !part.is_empty() => Ok(Self::KillPart(part.to_owned())),
            Some(("full", wait)) => time(wait).map(Self::DiskFull),
            Some(("jump", by)) => time(by).map(Self::ClockJump),
            _ => Err(()),
        }
    }
}

/// A point in the course of a world. Numbers begin with 1, and go on over all its lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WorldPoint {
    /// Just before this commit: a crash here loses what is queued for it.
    BeforeCommit(u64),
    /// Just after this commit is durable: none of its effects has been performed.
    BehindCommit(u64),
    /// After this attempt of an activity, in the order in which attempts end: its effect has happened, and the runtime does
    /// not know it.
    BehindAttempt(u64),
    /// After this step (a turn or a poll).
    BehindStep(u64),
}

impl fmt::Display for WorldPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BeforeCommit(number) => write!(f, "before-commit-{number}"),
            Self::BehindCommit(number) => write!(f, "behind-commit-{number}"),
            Self::BehindAttempt(number) => write!(f, "behind-attempt-{number}"),
            Self::BehindStep(number) => write!(f, "behind-step-{number}"),
        }
    }
}

impl FromStr for WorldPoint {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (place, number) = text.rsplit_once('-').ok_or(())?;
        let number = number.parse().map_err(|_| ())?;
        match place {
            "before-commit" => Ok(Self::BeforeCommit(number)),
            "behind-commit" => Ok(Self::BehindCommit(number)),
            "behind-attempt" => Ok(Self::BehindAttempt(number)),
            "behind-step" => Ok(Self::BehindStep(number)),
            _ => Err(()),
        }
    }
}

/// A fault, and its point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlannedFault {
    pub(super) fault: Fault,
    pub(super) at: WorldPoint,
}

/// As it is printed, and parsed.
impl fmt::Display for PlannedFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.fault, self.at)
    }
}

/// As text for readers.
pub(super) fn told(faults: &[PlannedFault]) -> String {
    let told = faults.iter().map(|planned| {
        let fault = match &planned.fault {
            Fault::Crash => "with a crash".to_owned(),
            Fault::KillPart(part) => format!("in which {part} fails"),
            Fault::DiskFull(wait) => format!("with a disk that is full for {wait:?}"),
            Fault::ClockJump(by) => format!("with a clock that is set forward by {by:?}"),
        };
        let place = match planned.at {
            WorldPoint::BeforeCommit(number) => format!("before commit {number}"),
            WorldPoint::BehindCommit(number) => format!("behind commit {number}"),
            WorldPoint::BehindAttempt(number) => format!("behind the end of attempt {number} of an activity"),
            WorldPoint::BehindStep(number) => format!("behind step {number}"),
        };
        format!(", {fault} {place}")
    });
    told.collect()
}
