//! The publisher's texts for a record, beside its payload.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The longest key, correlation or content type of a record of a durable topic, in bytes.
pub const RECORD_TEXT_BYTES_MAX: usize = 1_024;

/// The texts that a run or an entity sets for a published value. Each has at most [`RECORD_TEXT_BYTES_MAX`] bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordTexts {
    /// The key, in place of the id of the instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Box<str>>,
    /// The publisher's name for the process or group that the record belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation: Option<Box<str>>,
    /// The format of the payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<Box<str>>,
}

/// The texts as they follow a topic's name in a sentence; empty if none is set.
impl fmt::Display for RecordTexts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before = " with";
        for (field, text) in self.all() {
            if let Some(text) = text {
                write!(f, "{before} the {field} {text}")?;
                before = " and";
            }
        }
        Ok(())
    }
}

impl RecordTexts {
    /// The texts of a publish in a history.
    pub(crate) fn or_default(texts: Option<&Self>) -> &Self {
        const NONE: &RecordTexts = &RecordTexts {
            key: None,
            correlation: None,
            content_type: None,
        };
        texts.unwrap_or(NONE)
    }

    /// The texts as an event has them: `None` if no text is set.
    pub(crate) fn boxed(self) -> Option<Box<Self>> {
        (self != Self::default()).then(|| Box::new(self))
    }

    /// The name and the size in bytes of a text that is too long.
    pub(crate) fn too_long(&self) -> Option<(&'static str, usize)> {
        let mut texts = self.all().into_iter();
        texts.find_map(|(field, text)| {
            let bytes = text.map_or(0, str::len);
            (bytes > RECORD_TEXT_BYTES_MAX).then_some((field, bytes))
        })
    }

    fn all(&self) -> [(&'static str, Option<&str>); 3] {
        [
            ("key", self.key.as_deref()),
            ("correlation", self.correlation.as_deref()),
            ("content type", self.content_type.as_deref()),
        ]
    }
}
