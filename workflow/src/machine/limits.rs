//! The bounds of one run.

use std::time::Duration;

use millrun_core::Timestamp;

use crate::Payload;
use crate::event::{ActivityFailure, Bounds, ChildFailure, ParkReason, RunFailure, SignalFailure};
use crate::program::unreadable;

/// Bounds of one run. What happens at each is said at its field.
///
/// The code sees the first two, so a run keeps those it was started with: its history records
/// them, and a replay takes them from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The largest payload in bytes, 1 MiB by default: a larger input of a call gives
    /// [`CallError::TooLarge`](crate::CallError::TooLarge), a larger signal is refused, a larger
    /// result fails the call or the run that made it.
    pub payload_bytes_max: usize,
    /// How many operations one run may have outstanding, 10,000 by default: one more call gives
    /// [`CallError::TooManyPending`](crate::CallError::TooManyPending); a run that gets past it
    /// with timers or promises is parked.
    pub pending_len_max: usize,
    /// How many waits for signals, conditions and the request to cancel one run may have, 10,000 by
    /// default; a run that has more is parked.
    pub waits_len_max: u32,
    /// How many signals may wait in a run's buffer, 10,000 by default: one more is refused.
    pub signals_len_max: usize,
    /// Of how many signals that other runs have [sent](crate::WorkflowContext::signal_instance) a run knows the
    /// senders, 4,096 by default, so that one that is sent again after a crash is not recorded again: the latest. One
    /// that is sent again when this many others have been recorded behind it would be taken for new; so this bounds how
    /// many signals should be under way to one instance at a time. Each takes 96 bytes of memory, and 20 in a
    /// [kept beginning](crate::KeptBeginning). A run that continues another knows up to
    /// [2,048](crate::SENDERS_CARRIED_LEN_MAX) of those.
    pub senders_len_max: u16,
    /// How many events a history may have behind its last checkpoint before signals are refused, 1,000,000 by default. What
    /// the code has already begun is still recorded; at twice this length the run is parked.
    pub history_len_max: u64,
    /// At how many events behind its last checkpoint a history is reported as long, 50,000 by
    /// default; once. Zero reports nothing. Time to end the run, to [continue it as new](crate::WorkflowContext::continue_as_new),
    /// or to make a [checkpoint](crate::WorkflowContext::checkpoint).
    pub history_len_warn: u64,
    /// In how many events of a history one checkpoint leaves a [kept beginning](crate::KeptBeginning), 256 by
    /// default: the first one behind each multiple of this. Bringing the run back then needs the events behind
    /// that checkpoint alone, and the others may go. Zero keeps none: the whole history stays, and is read.
    pub kept_beginning_every: u64,
    /// Whether a replay must also encode each value as it was recorded; off by default. Otherwise a
    /// difference is counted, since a field added with a default must not park every live run. For
    /// tests, and for trying code on old histories.
    pub strict: bool,
    /// How many times in a row code may panic before it is brought back no more, 5 by default.
    pub panics_max: u32,
    /// How often code may wake itself within one turn before the run is parked, and how much it may
    /// decide in one, 100,000 by default. Only a loop that never waits gets there.
    pub self_wakes_max: u32,
    /// The longest text of an error, a panic or a reason, in bytes, 4,096 by default: what is
    /// longer is cut. The error itself is a payload, and not cut.
    pub text_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            payload_bytes_max: Bounds::DEFAULT.payload_bytes_max,
            pending_len_max: Bounds::DEFAULT.pending_len_max,
            waits_len_max: 10_000,
            signals_len_max: 10_000,
            senders_len_max: 4_096,
            history_len_max: 1_000_000,
            history_len_warn: 50_000,
            kept_beginning_every: 256,
            strict: false,
            panics_max: 5,
            self_wakes_max: 100_000,
            text_bytes_max: 4_096,
        }
    }
}

impl Limits {
    /// When a run that was parked at `since` is brought back by itself: after a panic, with a
    /// pause of one second that doubles up to a minute, until [`Limits::panics_max`] is reached; and when the time has
    /// come until which its start was delayed.
    #[must_use]
    pub fn resume_at(&self, reason: &ParkReason, since: Timestamp) -> Option<Timestamp> {
        match reason {
            ParkReason::Panicked { count, .. } if *count < self.panics_max => {
                let pause = Duration::from_secs(1).saturating_mul(1 << count.saturating_sub(1).min(6));
                Some(since + pause.min(Duration::from_secs(60)))
            }
            ParkReason::Delayed { until } => Some(*until),
            ParkReason::Panicked { .. }
            | ParkReason::NotRegistered { .. }
            | ParkReason::Nondeterminism(_)
            | ParkReason::Stuck { .. }
            | ParkReason::Paused { .. }
            | ParkReason::HistoryFull { .. } => None,
        }
    }

    /// The part that the code sees.
    pub(crate) fn bounds(&self) -> Bounds {
        Bounds {
            payload_bytes_max: self.payload_bytes_max,
            pending_len_max: self.pending_len_max,
        }
    }

    /// The same limits with those that a run was started with.
    pub(crate) fn with_bounds(self, bounds: Bounds) -> Self {
        Self {
            payload_bytes_max: bounds.payload_bytes_max,
            pending_len_max: bounds.pending_len_max,
            ..self
        }
    }

    /// What is wrong with the size of a payload, if anything is.
    pub(crate) fn oversize(&self, what: &str, payload: &Payload) -> Option<String> {
        let (bytes, bytes_max) = (payload.len(), self.payload_bytes_max);
        (bytes > bytes_max).then(|| {
            format!("the {what} has {bytes} bytes, a payload may have {bytes_max}: pass a reference instead")
        })
    }

    /// The same failure within the bounds.
    pub(crate) fn bounded_failure(&self, failure: ActivityFailure) -> ActivityFailure {
        match failure {
            ActivityFailure::Failed { error, message } => match self.oversize("error", &error) {
                Some(message) => ActivityFailure::Unreadable { message },
                None => ActivityFailure::Failed {
                    error,
                    message: self.cut(message),
                },
            },
            ActivityFailure::Panicked { message } => ActivityFailure::Panicked {
                message: self.cut(message),
            },
            ActivityFailure::Unreadable { message } => ActivityFailure::Unreadable {
                message: self.cut(message),
            },
            ActivityFailure::TimedOut(kind) => ActivityFailure::TimedOut(kind),
        }
    }

    /// The same end of a child within the bounds.
    pub(crate) fn bounded_child(&self, end: Result<Payload, ChildFailure>) -> Result<Payload, ChildFailure> {
        // A child may have been started with other bounds than its parent.
        match end {
            Ok(result) => match self.oversize("child's result", &result) {
                Some(message) => Err(ChildFailure::Failed(unreadable(message))),
                None => Ok(result),
            },
            Err(ChildFailure::NotStarted { message }) => Err(ChildFailure::NotStarted {
                message: self.cut(message),
            }),
            Err(failure) => Err(failure),
        }
    }

    /// The same failure to signal another instance within the bounds.
    pub(crate) fn bounded_signal(&self, failure: SignalFailure) -> SignalFailure {
        match failure {
            SignalFailure::OtherWorkflow { workflow } => SignalFailure::OtherWorkflow {
                workflow: self.cut(workflow),
            },
            SignalFailure::Quarantined { message } => SignalFailure::Quarantined {
                message: self.cut(message),
            },
            SignalFailure::Refused { message } => SignalFailure::Refused {
                message: self.cut(message),
            },
            SignalFailure::NotFound | SignalFailure::Finished => failure,
        }
    }

    /// The same end of a run within the bounds.
    pub(crate) fn bounded_end(&self, end: Result<Payload, RunFailure>) -> Result<Payload, RunFailure> {
        match end {
            Ok(result) => match self.oversize("run's result", &result) {
                Some(message) => Err(unreadable(message)),
                None => Ok(result),
            },
            Err(failure) => match self.oversize("run's error", &failure.error) {
                Some(message) => Err(unreadable(message)),
                None => Err(RunFailure {
                    message: self.cut(failure.message),
                    ..failure
                }),
            },
        }
    }

    /// Cuts a text that is too long, at the boundary of a character.
    pub(crate) fn cut(&self, mut text: String) -> String {
        text.truncate(text.floor_char_boundary(self.text_bytes_max));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_after_a_panic_doubles_up_to_a_minute_and_ends() {
        let limits = Limits {
            panics_max: 9,
            ..Limits::default()
        };
        let pauses: Vec<_> = (0..=9)
            .map(|count| {
                let reason = ParkReason::Panicked {
                    message: String::new(),
                    count,
                };
                let at = limits.resume_at(&reason, Timestamp::EPOCH)?;
                Some(at.saturating_since(Timestamp::EPOCH).as_secs())
            })
            .collect();
        // A history from elsewhere may count from 0.
        let expected = [1, 1, 2, 4, 8, 16, 32, 60, 60].map(Some);
        assert_eq!(pauses, [&expected[..], &[None]].concat());
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let limits = Limits {
            text_bytes_max: 4,
            ..Limits::default()
        };
        assert_eq!(limits.cut("ab".into()), "ab");
        assert_eq!(limits.cut("aaaé".into()), "aaa");
    }
}
