//! What a run has caused names the run and the operation.

use std::fmt;
use std::str::FromStr;

use crate::RunId;

/// The run and the operation of it that caused something: an envelope, a start, a signal.
///
/// As text it is what the operation's idempotency key is, and so it travels outside of the process.
///
/// ```
/// use millrun_core::{Cause, Partition, RunId, Timestamp};
///
/// let run = RunId::new(Partition::of(b"order-42"), Timestamp::EPOCH, 7);
/// let cause = Cause { run, operation: 3 };
/// assert_eq!(cause.to_string(), format!("{run}-3"));
/// assert_eq!(cause.to_string().parse(), Ok(cause));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cause {
    /// The run.
    pub run: RunId,
    /// The number of the operation within its run, in the order in which its code issued them.
    pub operation: u32,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.run, self.operation)
    }
}

/// A text that names no operation of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CauseError;

impl fmt::Display for CauseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this names no operation of a run")
    }
}

impl std::error::Error for CauseError {}

impl FromStr for Cause {
    type Err = CauseError;

    fn from_str(text: &str) -> Result<Self, CauseError> {
        let (run, operation) = text.split_once('-').ok_or(CauseError)?;
        let is_hexadecimal = run.len() == 32 && run.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_hexadecimal || !operation.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(CauseError);
        }
        let bits = u128::from_str_radix(run, 16).map_err(|_| CauseError)?;
        Ok(Self {
            run: RunId::from_bits(bits).ok_or(CauseError)?,
            operation: operation.parse().map_err(|_| CauseError)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_names_no_operation_is_an_error() {
        let run = "00070000000000000000000000000001";
        assert!(format!("{run}-3").parse::<Cause>().is_ok());
        for text in [
            "",
            "-",
            run,
            "7-3",
            &format!("{run}-"),
            &format!("{run}-+3"),
            &format!("{run}-4294967296"),
            &format!("+{}-3", &run[1..]),
            &format!("ffff{}-3", &run[4..]),
        ] {
            assert_eq!(text.parse::<Cause>(), Err(CauseError), "{text:?}");
        }
    }
}
