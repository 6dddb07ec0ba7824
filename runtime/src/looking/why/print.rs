//! The text for people: a tree with a line for each wait, and times relative to the question.

use std::fmt;
use std::time::Duration;

use millrun_core::Timestamp;
use millrun_workflow::{ActivityFailure, RunTry};

use super::{ActivityWait, AttemptStanding, Wait, WaitsFor, Why};
use crate::looking::describe::InstanceStatus;

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, 0)
    }
}

impl Why {
    /// A wait in one line, as it is printed after the run that waits. A child's own waits are left out.
    #[must_use]
    pub fn sentence(&self, wait: &Wait) -> String {
        let now = self.asked_at;
        Sentence { wait, now }.to_string()
    }

    /// Appends the run to the line, and its waits: a single one in the same line, several below.
    fn write(&self, f: &mut fmt::Formatter<'_>, depth: usize) -> fmt::Result {
        write!(f, "{} ({})", self.id, self.workflow)?;
        match &self.waits[..] {
            [] if self.status == InstanceStatus::Finished => write!(f, " has ended"),
            [] => write!(f, " waits for nothing"),
            [wait] => self.write_wait(wait, f, depth),
            waits => {
                write!(f, ":")?;
                waits.iter().try_for_each(|wait| {
                    write!(f, "\n{:1$}-", "", 2 * depth)?;
                    self.write_wait(wait, f, depth + 1)
                })?;
                match self.more_len {
                    0 => Ok(()),
                    more => write!(f, "\n{:1$}- and {more} more", "", 2 * depth),
                }
            }
        }
    }

    fn write_wait(&self, wait: &Wait, f: &mut fmt::Formatter<'_>, depth: usize) -> fmt::Result {
        let now = self.asked_at;
        write!(f, " {}", Sentence { wait, now })?;
        match &wait.what {
            WaitsFor::Child { why: Some(why), .. } => {
                write!(f, "\n{:1$}└ ", "", 2 * depth)?;
                why.write(f, depth + 1)
            }
            _ => Ok(()),
        }
    }
}

/// A wait at a given time.
struct Sentence<'a> {
    wait: &'a Wait,
    now: Timestamp,
}

impl fmt::Display for Sentence<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Wait { since, at, what, .. } = self.wait;
        self.write_what(what, f)?;
        let waited = since.map(|since| Span(self.now.saturating_since(since)));
        match (waited, at) {
            (Some(waited), Some(at)) => write!(f, " (for {waited}, at {at})"),
            (Some(waited), None) => write!(f, " (for {waited})"),
            (None, Some(at)) => write!(f, " (at {at})"),
            (None, None) => Ok(()),
        }
    }
}

impl Sentence<'_> {
    /// How long it is until then.
    fn until(&self, then: Timestamp) -> Span {
        Span(then.saturating_since(self.now))
    }

    fn write_what(&self, what: &WaitsFor, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match what {
            WaitsFor::Parked { reason, resumes_at } => {
                f.write_str("is parked")?;
                if let Some(reason) = reason {
                    write!(f, ": {reason}")?;
                }
                resumes_at.map_or(Ok(()), |at| {
                    write!(f, "; it is tried again in {}", self.until(at))
                })
            }
            WaitsFor::StartTime {
                at,
                run_try: Some(RunTry { number, retry, .. }),
            } if *number > 1 => {
                let (until, max) = (self.until(*at), retry.attempts_max());
                write!(
                    f,
                    "begins in {until}, as try {number} of {max}: the last one has failed"
                )
            }
            WaitsFor::StartTime { at, .. } => {
                write!(f, "begins in {}: its start is delayed", self.until(*at))
            }
            WaitsFor::Registration => {
                f.write_str("has no code: its workflow is not registered in this program")
            }
            WaitsFor::Asleep => {
                f.write_str("is on disk, and waits for a signal, a condition or the request to cancel")
            }
            WaitsFor::Foreign { reason } => {
                f.write_str("waits for something that is not the runtime's")?;
                reason.as_ref().map_or(Ok(()), |reason| write!(f, ": {reason}"))
            }
            WaitsFor::Activity(activity) => self.write_activity(activity, f),
            WaitsFor::Child { workflow, id, .. } => write!(f, "waits for the child {id} ({workflow})"),
            WaitsFor::Publish {
                topic,
                is_registered: false,
                ..
            } => write!(
                f,
                "waits for the topic {topic}, which is not registered in this program"
            ),
            WaitsFor::Publish { topic, full, .. } => {
                write!(f, "waits for room in the topic {topic}")?;
                full.iter().try_for_each(|inbox| {
                    let super::FullInbox {
                        subscription,
                        queued,
                        capacity,
                    } = inbox;
                    write!(f, "; {subscription} has {queued} of {capacity} still to take")
                })
            }
            WaitsFor::Record {
                topic,
                is_registered: false,
                ..
            } => write!(
                f,
                "waits for a record of the durable topic {topic}, which is not registered in this program"
            ),
            WaitsFor::Record { topic, filter, .. } => {
                write!(f, "waits for a record of the durable topic {topic}{filter}")
            }
            WaitsFor::Delivery { workflow, id, name } => {
                write!(f, "waits until {id} ({workflow}) has recorded the signal {name}")
            }
            WaitsFor::Promise => f.write_str("waits for a promise that is kept from outside"),
            WaitsFor::Timer { deadline } => {
                write!(f, "waits for a timer that fires in {}", self.until(*deadline))
            }
            WaitsFor::Signal { name } => write!(f, "waits for the signal {name}"),
            WaitsFor::Condition => f.write_str("waits for a condition on its state"),
            WaitsFor::CancelRequest => f.write_str("waits for the request to cancel"),
        }
    }

    fn write_activity(&self, wait: &ActivityWait, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ActivityWait {
            activity,
            queue,
            attempt,
            attempts_max,
            standing,
            last_error,
            close_at,
            ..
        } = wait;
        write!(
            f,
            "waits for the activity {activity}: attempt {attempt} of {attempts_max} "
        )?;
        match standing {
            AttemptStanding::NotRegistered => {
                write!(
                    f,
                    "has no code: it, or one on the queue {queue}, is not registered in this program"
                )
            }
            AttemptStanding::NotOpen => f.write_str("is made when a program opens the store"),
            AttemptStanding::BackingOff { until } => write!(f, "comes in {}", self.until(*until)),
            AttemptStanding::Queued {
                queued_len,
                running_len,
                running_max,
                start_by,
                ..
            } => {
                write!(
                    f,
                    "waits in the queue {queue}, where {running_len} of {running_max} run and {queued_len} wait"
                )?;
                start_by.map_or(Ok(()), |by| {
                    write!(f, "; it must begin within {}", self.until(by))
                })
            }
            AttemptStanding::Running {
                since,
                close_at,
                heartbeat_by,
            } => {
                let ran = Span(self.now.saturating_since(*since));
                write!(f, "has run for {ran} and may for {}", self.until(*close_at))?;
                heartbeat_by.map_or(Ok(()), |by| {
                    write!(f, "; a heartbeat is due within {}", self.until(by))
                })
            }
        }?;
        if let Some(failure) = last_error {
            write!(f, "; the last one: {}", Line(failure))?;
        }
        close_at.map_or(Ok(()), |at| {
            write!(f, "; the call ends within {}", self.until(at))
        })
    }
}

/// A duration for people, with two significant digits.
struct Span(Duration);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MINUTE: u64 = 60;
        const HOUR: u64 = 60 * MINUTE;
        const DAY: u64 = 24 * HOUR;
        match self.0.as_secs() {
            0 => write!(f, "{} ms", self.0.as_millis()),
            seconds if seconds < 2 * MINUTE => write!(f, "{seconds} s"),
            seconds if seconds < 2 * HOUR => write!(f, "{} min", seconds / MINUTE),
            seconds if seconds < 2 * DAY => write!(f, "{} h", seconds / HOUR),
            seconds => write!(f, "{} days", seconds / DAY),
        }
    }
}

/// An error in one line of bounded length.
struct Line<'a>(&'a ActivityFailure);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const CHARS_MAX: usize = 500;
        let text = self.0.to_string();
        let line = text.lines().next().unwrap_or_default();
        match line.char_indices().nth(CHARS_MAX) {
            Some((end, _)) => write!(f, "{}…", &line[..end]),
            None if line.len() < text.len() => write!(f, "{line}…"),
            None => f.write_str(line),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_told_in_the_unit_that_people_would_take() {
        let told = |millis| Span(Duration::from_millis(millis)).to_string();
        let seconds = |seconds: u64| told(1_000 * seconds);
        assert_eq!([told(0), told(999), told(1_999)], ["0 ms", "999 ms", "1 s"]);
        assert_eq!(
            [seconds(119), seconds(120), seconds(7_199)],
            ["119 s", "2 min", "119 min"]
        );
        assert_eq!(
            [seconds(7_200), seconds(172_799), seconds(172_800)],
            ["2 h", "47 h", "2 days"]
        );
    }

    #[test]
    fn a_long_error_is_cut_between_characters() {
        let message = "ü".repeat(600);
        let failure = ActivityFailure::Panicked { message };
        let line = Line(&failure).to_string();
        assert_eq!(line.chars().count(), 501);
        assert!(line.ends_with("ü…"));
    }
}
