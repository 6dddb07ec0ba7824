//! The token of a record: its place, as a text.

use std::fmt;
use std::str::FromStr;

use millrun_core::Sequence;
use millrun_core::base64;
use millrun_persistence::TopicNumber;
use serde::{Deserialize, Serialize};

const VERSION: u8 = 1;
/// Version, store, topic and sequence.
const BYTES: usize = 1 + 8 + 4 + 8;

/// Names a record of a durable topic of one store, so that a reader can continue behind it. Its content is opaque: a program
/// stores it, in a file or in its own database, and gives it back.
///
/// As text it has [28 characters](Self::TEXT_BYTES_MAX), letters, digits, `+` and `/`.
///
/// ```
/// # use millrun::{DurableTopic, Runtime, Topic};
/// # use millrun::topics::RecordToken;
/// const PLACED: DurableTopic<u64> = Topic::named("orders.placed").durable();
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = Runtime::volatile().durable_topic(PLACED).start().await?;
/// let published = runtime.durable_topic(PLACED)?.publish(&7).await?;
/// let text = published.token().to_string();
/// assert_eq!(text.len(), RecordToken::TEXT_BYTES_MAX);
/// assert_eq!(text.parse(), Ok(published.token()));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RecordToken {
    store: u64,
    topic: TopicNumber,
    sequence: Sequence,
}

/// A text that is no [`RecordToken`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is no token of a record of a durable topic")]
pub struct RecordTokenError;

impl RecordToken {
    /// The length of its text in bytes.
    pub const TEXT_BYTES_MAX: usize = BYTES.div_ceil(3) * 4;

    pub(crate) fn new(store: u64, topic: TopicNumber, sequence: Sequence) -> Self {
        Self {
            store,
            topic,
            sequence,
        }
    }

    /// Adds its text to another.
    pub(crate) fn write_onto(self, text: &mut String) {
        let mut bytes = [0; BYTES];
        let [version, rest @ ..] = &mut bytes;
        *version = VERSION;
        let (store, rest) = rest.split_at_mut(8);
        store.copy_from_slice(&self.store.to_be_bytes());
        let (topic, sequence) = rest.split_at_mut(4);
        topic.copy_from_slice(&self.topic.get().to_be_bytes());
        sequence.copy_from_slice(&self.sequence.get().to_be_bytes());
        base64::encode_onto(text, &bytes);
    }

    pub(crate) fn store(self) -> u64 {
        self.store
    }

    pub(crate) fn topic(self) -> TopicNumber {
        self.topic
    }

    /// The number of the record within its topic: they are counted from 1, without gaps.
    #[must_use]
    pub fn sequence(self) -> Sequence {
        self.sequence
    }
}

impl fmt::Display for RecordToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::with_capacity(Self::TEXT_BYTES_MAX);
        self.write_onto(&mut text);
        f.write_str(&text)
    }
}

impl FromStr for RecordToken {
    type Err = RecordTokenError;

    fn from_str(text: &str) -> Result<Self, RecordTokenError> {
        if text.len() != Self::TEXT_BYTES_MAX {
            return Err(RecordTokenError);
        }
        let bytes = base64::decode(text).ok_or(RecordTokenError)?;
        let bytes: [u8; BYTES] = bytes.try_into().map_err(|_| RecordTokenError)?;
        let (version, [a, b, c, d, e, f, g, h, i, j, k, l, rest @ ..]) = match bytes {
            [version, rest @ ..] => (version, rest),
        };
        if version != VERSION {
            return Err(RecordTokenError);
        }
        let store = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
        let topic = TopicNumber::new(u32::from_be_bytes([i, j, k, l]));
        Ok(Self::new(store, topic, Sequence::new(u64::from_be_bytes(rest))))
    }
}

impl TryFrom<String> for RecordToken {
    type Error = RecordTokenError;

    fn try_from(text: String) -> Result<Self, RecordTokenError> {
        text.parse()
    }
}

impl From<RecordToken> for String {
    fn from(token: RecordToken) -> Self {
        token.to_string()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_token_is_read_back_from_its_text(store: u64, topic: u32, sequence: u64) {
            let token = RecordToken::new(store, TopicNumber::new(topic), Sequence::new(sequence));
            let text = token.to_string();
            prop_assert_eq!(text.len(), RecordToken::TEXT_BYTES_MAX);
            prop_assert_eq!(text.parse(), Ok(token));
        }

        #[test]
        fn any_text_is_a_token_or_refused(text in "[A-Za-z0-9+/=]{26,30}") {
            if let Ok(token) = text.parse::<RecordToken>() {
                prop_assert_eq!(token.to_string(), text);
            }
        }
    }
}
