//! Where the next page of a trace begins.

use std::fmt;
use std::str::FromStr;

use millrun_core::Sequence;
use millrun_persistence::TopicNumber;

use crate::looking::find::RunCursor;

/// A place between two links of a [trace](crate::Runtime::trace), where the next page begins. It can be written as text and
/// read back; it is valid for the same run, operation or record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceCursor(pub(super) CursorPlace);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CursorPlace {
    /// For a run: behind this link of this event.
    Event(LinkKey),
    /// For a record: behind this many of the links that are known without searching runs.
    Known(usize),
    /// For a trimmed run: behind this record of this topic, or before all.
    Records(Option<(TopicNumber, Sequence)>),
    /// For a record or a trimmed run: behind these runs, or before all.
    Runs(Option<RunCursor>),
}

/// The place of a link in a history: its event, and its index among that event's links. The kept beginning of a trimmed
/// history counts as event zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LinkKey {
    pub(super) sequence: Sequence,
    pub(super) nth: u32,
}

impl LinkKey {
    /// Behind all links of this event.
    pub(super) fn behind(sequence: Sequence) -> Self {
        let nth = u32::MAX;
        Self { sequence, nth }
    }
}

impl fmt::Display for TraceCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            CursorPlace::Event(LinkKey { sequence, nth }) => write!(f, "e{sequence}.{nth}"),
            CursorPlace::Known(len) => write!(f, "k{len}"),
            CursorPlace::Records(Some((topic, sequence))) => write!(f, "t{}.{sequence}", topic.get()),
            CursorPlace::Records(None) => f.write_str("t"),
            CursorPlace::Runs(Some(runs)) => write!(f, "r{runs}"),
            CursorPlace::Runs(None) => f.write_str("r"),
        }
    }
}

impl FromStr for TraceCursor {
    type Err = TraceCursorError;

    fn from_str(text: &str) -> Result<Self, TraceCursorError> {
        let number = |digits: &str| {
            let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
            let parsed = digits.parse::<u64>().ok().filter(|_| is_number);
            parsed.ok_or(TraceCursorError)
        };
        let place = match text.split_at_checked(1) {
            Some(("e", rest)) => {
                let (sequence, nth) = rest.split_once('.').ok_or(TraceCursorError)?;
                CursorPlace::Event(LinkKey {
                    sequence: Sequence::new(number(sequence)?),
                    nth: u32::try_from(number(nth)?).map_err(|_| TraceCursorError)?,
                })
            }
            Some(("k", rest)) => {
                CursorPlace::Known(usize::try_from(number(rest)?).map_err(|_| TraceCursorError)?)
            }
            Some(("t", "")) => CursorPlace::Records(None),
            Some(("t", rest)) => {
                let (topic, sequence) = rest.split_once('.').ok_or(TraceCursorError)?;
                let topic = u32::try_from(number(topic)?).map_err(|_| TraceCursorError)?;
                CursorPlace::Records(Some((TopicNumber::new(topic), Sequence::new(number(sequence)?))))
            }
            Some(("r", "")) => CursorPlace::Runs(None),
            Some(("r", rest)) => CursorPlace::Runs(Some(rest.parse().map_err(|_| TraceCursorError)?)),
            _ => return Err(TraceCursorError),
        };
        Ok(Self(place))
    }
}

/// The text is not a [cursor](TraceCursor): use one from a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is no cursor that a page of a trace has given")]
pub struct TraceCursorError;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_back_from_its_text_and_nothing_else_is() {
        for text in ["e0.3", "e17.4294967295", "k3", "t", "t4.17", "r", "rf"] {
            let cursor: TraceCursor = text.parse().unwrap();
            assert_eq!(cursor.to_string(), text);
        }
        for text in [
            "",
            "e",
            "e1",
            "e1.",
            "e+1.0",
            "e1.4294967296",
            "k",
            "k-1",
            "t4",
            "t4294967296.1",
            "rx",
            "ré",
            "x",
        ] {
            assert_eq!(text.parse::<TraceCursor>(), Err(TraceCursorError), "{text}");
        }
    }
}
