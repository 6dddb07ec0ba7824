//! Answers whose values keep their exact text and their order: numbers of 64 bits, and what a workflow wrote.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::error::ClientError;

/// A value as its text.
#[derive(Clone, Debug)]
pub(crate) struct Raw(Box<RawValue>);

/// An object, its fields in their order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Object(pub(crate) Vec<(String, Raw)>);

impl Raw {
    /// Reads an answer.
    ///
    /// # Errors
    /// When it is no JSON.
    pub(crate) fn parse(text: &str) -> Result<Self, ClientError> {
        let value = serde_json::from_str(text).map(Self);
        value.map_err(|error| ClientError::Answer(error.to_string()))
    }

    /// Its text.
    pub(crate) fn json(&self) -> &str {
        self.0.get()
    }

    /// A field of an object; `None` if it is null or not there.
    pub(crate) fn get(&self, name: &str) -> Option<Self> {
        let found = self.object().0.into_iter().find(|(field, _)| field == name);
        found.map(|(_, value)| value).filter(|value| !value.is_null())
    }

    /// The fields of an object; none of anything else.
    pub(crate) fn object(&self) -> Object {
        serde_json::from_str(self.json()).unwrap_or_default()
    }

    /// The items of a list; none of anything else.
    pub(crate) fn list(&self) -> Vec<Self> {
        let items: Vec<Box<RawValue>> = serde_json::from_str(self.json()).unwrap_or_default();
        items.into_iter().map(Self).collect()
    }

    /// The items of a list in a field.
    pub(crate) fn list_of(&self, name: &str) -> Vec<Self> {
        self.get(name).map_or_else(Vec::new, |list| list.list())
    }

    /// A field as a person reads it; empty if it is not there.
    pub(crate) fn text_of(&self, name: &str) -> String {
        self.get(name).map_or_else(String::new, |value| value.text())
    }

    /// A number in a field.
    pub(crate) fn number_of(&self, name: &str) -> Option<u64> {
        self.get(name)?.json().parse().ok()
    }

    /// As a person reads it: a text without its quotes, a payload as its value, anything else as JSON.
    pub(crate) fn text(&self) -> String {
        if let Ok(text) = serde_json::from_str::<String>(self.json()) {
            return text;
        }
        match &self.object().0[..] {
            [(name, value)] if name == "value" => value.json().to_owned(),
            [(name, why)] if name == "unreadable" => format!("(unreadable: {})", why.text()),
            _ => self.json().to_owned(),
        }
    }

    fn is_null(&self) -> bool {
        self.json() == "null"
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;

        impl<'de> Visitor<'de> for Fields {
            type Value = Object;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
                let mut fields = Vec::new();
                while let Some((name, value)) = map.next_entry()? {
                    fields.push((name, Raw(value)));
                }
                Ok(Object(fields))
            }
        }

        deserializer.deserialize_map(Fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_their_text_and_their_order() {
        let text = r#"{"b":18446744073709551615,"a":{"value":{"z":1.50,"y":[]}},"n":null,"t":"x\n"}"#;
        let raw = Raw::parse(text).unwrap();
        assert_eq!(raw.text_of("b"), "18446744073709551615");
        assert_eq!(raw.text_of("a"), r#"{"z":1.50,"y":[]}"#);
        assert_eq!(
            (raw.text_of("n"), raw.text_of("t")),
            (String::new(), "x\n".to_owned())
        );
        let names: Vec<_> = raw.object().0.into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["b", "a", "n", "t"]);
        assert!(Raw::parse("{").is_err());
    }
}
