//! What goes wrong in a world, and where.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// What goes wrong around a program, for [`World::fault_everywhere`](crate::World::fault_everywhere).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The process is killed. (So it is, for a program, if the disk fails: the runtime stops, and what was not durable is
    /// lost.)
    Crash,
    /// A part of the runtime fails, and is restarted: a shard, a pool, a lane of the reader, by its name in
    /// [`Runtime::parts`](millrun::Runtime::parts), as `shard 0` and `pool default`. Nothing happens if it is just being
    /// restarted. What a shard works on is cut off: who asks it is told to ask again, as `is_retryable` of the error says.
    KillPart(String),
    /// The disk is full, or does not answer, for this long: commits wait, and whoever waits for them.
    DiskFull(Duration),
    /// The clock is set forward by this much: all that would have been due meanwhile is due at once.
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

/// A place in what a world does. Numbers begin with 1, and go on over all its lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WorldPoint {
    /// As this commit is about to be made: a crash here loses what is queued for it.
    BeforeCommit(u64),
    /// As soon as this commit is durable: nothing that follows from it has been done.
    BehindCommit(u64),
    /// Behind this attempt of an activity, in the order in which attempts end: its effect is there, and the runtime does not
    /// know.
    BehindAttempt(u64),
    /// Behind this step (a turn or a poll).
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

/// A fault, and where it comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlannedFault {
    pub(super) fault: Fault,
    pub(super) at: WorldPoint,
}

/// As it is told, and read back.
impl fmt::Display for PlannedFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.fault, self.at)
    }
}

/// As people read it.
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
