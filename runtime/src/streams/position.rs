//! Positions in output streams.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A position in the output stream of a run, behind which a reader can continue: see
/// [`StreamReader::position`](super::StreamReader::position). It can be written as text and read back.
///
/// It names the life of the stream: in another process, or if the stream was dropped meanwhile, the reader is told that the
/// number of missed items is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct StreamPosition {
    /// Random; chosen when the stream was made.
    pub(super) life: u64,
    /// The number of the last item before the position; items are counted from 1.
    pub(super) number: u64,
}

/// The text is not a [`StreamPosition`]: use one from a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is no position that a reader of an output stream has given")]
pub struct StreamPositionError;

impl fmt::Display for StreamPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{}", self.life, self.number)
    }
}

impl FromStr for StreamPosition {
    type Err = StreamPositionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (life, number) = text.split_once('-').ok_or(StreamPositionError)?;
        let is_hex = life.len() == 16 && life.bytes().all(|digit| digit.is_ascii_hexdigit());
        let is_number = !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit());
        let life = u64::from_str_radix(life, 16).ok().filter(|_| is_hex);
        let number = number.parse().ok().filter(|_| is_number);
        let (life, number) = life.zip(number).ok_or(StreamPositionError)?;
        Ok(Self { life, number })
    }
}

impl TryFrom<String> for StreamPosition {
    type Error = StreamPositionError;

    fn try_from(text: String) -> Result<Self, StreamPositionError> {
        text.parse()
    }
}

impl From<StreamPosition> for String {
    fn from(position: StreamPosition) -> Self {
        position.to_string()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_position_is_read_back_from_its_text(life: u64, number: u64) {
            let position = StreamPosition { life, number };
            prop_assert_eq!(position.to_string().parse(), Ok(position));
        }

        #[test]
        fn any_other_text_is_refused(text in "[0-9a-g+-]{0,20}") {
            if let Ok(position) = text.parse::<StreamPosition>() {
                prop_assert_eq!(position.to_string().parse(), Ok(position));
            }
        }
    }
}
