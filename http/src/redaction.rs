//! Fields of payloads that are not shown.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// How many paths a redaction may have.
const PATHS_LEN_MAX: usize = 256;
/// How deep values are looked into. What stands deeper, where a path might still lead, is not shown at all.
const DEPTH_MAX: usize = 64;
/// What stands in place of a value, as JSON.
const REDACTED: &str = "\"(redacted)\"";

/// Fields that are hidden wherever a payload becomes JSON: in the answers of the API, and so on its page and on the
/// command line, in streams, and in what is tailed of topics. What is recorded is as it was.
///
/// A path names fields from the outside in, with dots between them: `card.number`. Lists are passed through, so that
/// the path `items.price` is for each item. `*` is any field, `**` any number of fields: `**.password` is a field of
/// that name wherever it is. The values of maps count as fields.
///
/// ```
/// use millrun_http::Redaction;
///
/// # fn main() -> Result<(), millrun_http::RedactionError> {
/// let redaction = Redaction::of(["card.number", "**.password"])?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Redaction {
    is_everything: bool,
    paths: Vec<Vec<Step>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Field(String),
    AnyField,
    AnyFields,
}

/// Why paths are no redaction.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RedactionError {
    /// A path, or a part of it between dots, is empty.
    #[error("{0:?} is no path: there is nothing between two dots, or at all")]
    Empty(String),
    /// There are too many.
    #[error("there may be 256 paths")]
    TooMany,
}

impl Redaction {
    /// Hides the fields at these paths.
    ///
    /// # Errors
    /// When a path is empty, or there are more than 256.
    pub fn of<P: AsRef<str>>(paths: impl IntoIterator<Item = P>) -> Result<Self, RedactionError> {
        let mut all = Vec::new();
        for path in paths {
            if all.len() == PATHS_LEN_MAX {
                return Err(RedactionError::TooMany);
            }
            let path = path.as_ref();
            let steps = path.split('.').map(|step| match step {
                "" => Err(RedactionError::Empty(path.to_owned())),
                "*" => Ok(Step::AnyField),
                "**" => Ok(Step::AnyFields),
                name => Ok(Step::Field(name.to_owned())),
            });
            all.push(steps.collect::<Result<_, _>>()?);
        }
        Ok(Self {
            is_everything: false,
            paths: all,
        })
    }

    /// Hides each value as a whole: for what no redaction was given to.
    pub(crate) const fn everything() -> Self {
        Self {
            is_everything: true,
            paths: Vec::new(),
        }
    }

    /// The JSON of a payload, without what is hidden.
    pub(crate) fn applied<'a>(&self, json: &'a str) -> Cow<'a, str> {
        self.applied_at(&[], json)
    }

    /// The same for a JSON in which the payload stands at these fields.
    pub(crate) fn applied_at<'a>(&self, at: &[&str], json: &'a str) -> Cow<'a, str> {
        if self.is_everything {
            return Cow::Borrowed(REDACTED);
        }
        if self.paths.is_empty() {
            return Cow::Borrowed(json);
        }
        let mut shown = String::with_capacity(json.len());
        let places: Vec<_> = self.paths.iter().map(Vec::as_slice).collect();
        descend(json, at, &places, &mut shown);
        Cow::Owned(shown)
    }
}

/// Goes on to the payload, below these fields.
fn descend(json: &str, at: &[&str], places: &[&[Step]], shown: &mut String) {
    match at {
        [] => write(json, places, 0, shown),
        [first, rest @ ..] => write_fields(json, shown, |name, value, shown| {
            if name == *first {
                descend(value, rest, places, shown);
            } else {
                shown.push_str(value);
            }
        }),
    }
}

/// Writes a value without what these paths lead to from it.
fn write(json: &str, places: &[&[Step]], depth: usize, shown: &mut String) {
    let json = json.trim();
    // A step for any number of fields may be for none.
    let mut here = places.to_vec();
    let mut number = 0;
    while let Some(place) = here.get(number) {
        if let [Step::AnyFields, rest @ ..] = place {
            here.push(rest);
        }
        number += 1;
    }
    if here.iter().any(|place| place.is_empty()) || (depth == DEPTH_MAX && json.starts_with(['{', '['])) {
        shown.push_str(REDACTED);
        return;
    }
    match json.as_bytes().first() {
        Some(b'[') => write_items(json, shown, |item, shown| write(item, places, depth + 1, shown)),
        Some(b'{') => write_fields(json, shown, |name, value, shown| {
            let inside: Vec<_> = here.iter().filter_map(|place| below(place, name)).collect();
            if inside.is_empty() {
                shown.push_str(value);
            } else {
                write(value, &inside, depth + 1, shown);
            }
        }),
        _ => shown.push_str(json),
    }
}

/// What is left of a path behind a field.
fn below<'a>(place: &'a [Step], name: &str) -> Option<&'a [Step]> {
    match place {
        [Step::Field(field), rest @ ..] if field == name => Some(rest),
        [Step::AnyField, rest @ ..] => Some(rest),
        [Step::AnyFields, ..] => Some(place),
        _ => None,
    }
}

fn write_items(json: &str, shown: &mut String, mut item: impl FnMut(&str, &mut String)) {
    let Ok(items) = serde_json::from_str::<Vec<&RawValue>>(json) else {
        shown.push_str(REDACTED);
        return;
    };
    shown.push('[');
    for (number, value) in items.into_iter().enumerate() {
        if number > 0 {
            shown.push(',');
        }
        item(value.get(), shown);
    }
    shown.push(']');
}

fn write_fields(json: &str, shown: &mut String, mut field: impl FnMut(&str, &str, &mut String)) {
    let Ok(Fields(fields)) = serde_json::from_str(json) else {
        shown.push_str(REDACTED);
        return;
    };
    shown.push('{');
    for (number, (name, value)) in fields.into_iter().enumerate() {
        if number > 0 {
            shown.push(',');
        }
        shown.push_str(&serde_json::Value::from(name.clone()).to_string());
        shown.push(':');
        field(&name, value.get(), shown);
    }
    shown.push('}');
}

/// The fields of an object, in their order.
struct Fields<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Each;

        impl<'de> Visitor<'de> for Each {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }

        deserializer.deserialize_map(Each)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_hidden_by_their_paths_and_all_else_is_as_it_was() {
        let json = r#"{"card":{"number":4111,"name":"ada"},"items":[{"price":1.50},{"price":18446744073709551615}],"password":"x","z":null}"#;
        for (paths, expected) in [
            (&[][..], json),
            (
                &[
                    "nothing",
                    "card.nothing",
                    "card.number.deeper",
                    "items.price.deeper",
                ],
                json,
            ),
            (
                &["card.number"],
                r#"{"card":{"number":"(redacted)","name":"ada"},"items":[{"price":1.50},{"price":18446744073709551615}],"password":"x","z":null}"#,
            ),
            (
                &["card", "items", "z"],
                r#"{"card":"(redacted)","items":"(redacted)","password":"x","z":"(redacted)"}"#,
            ),
            (
                &["items.price"],
                r#"{"card":{"number":4111,"name":"ada"},"items":[{"price":"(redacted)"},{"price":"(redacted)"}],"password":"x","z":null}"#,
            ),
            (
                &["*.number", "**.price"],
                r#"{"card":{"number":"(redacted)","name":"ada"},"items":[{"price":"(redacted)"},{"price":"(redacted)"}],"password":"x","z":null}"#,
            ),
            (
                &["**.name", "**.password"],
                r#"{"card":{"number":4111,"name":"(redacted)"},"items":[{"price":1.50},{"price":18446744073709551615}],"password":"(redacted)","z":null}"#,
            ),
            (
                &["*"],
                r#"{"card":"(redacted)","items":"(redacted)","password":"(redacted)","z":"(redacted)"}"#,
            ),
            (&["**"], "\"(redacted)\""),
        ] {
            assert_eq!(Redaction::of(paths).unwrap().applied(json), expected, "{paths:?}");
        }
    }

    #[test]
    fn a_name_is_the_same_however_it_is_written() {
        let redaction = Redaction::of(["pass\"word"]).unwrap();
        let shown = r#"{"pass\"word":"(redacted)"}"#;
        assert_eq!(redaction.applied(r#"{"pa\u0073s\"word":1}"#), shown);
        assert_eq!(
            redaction.applied(r#"{"pass\"word":1,"pass\"word":2}"#),
            r#"{"pass\"word":"(redacted)","pass\"word":"(redacted)"}"#
        );
    }

    #[test]
    fn what_is_too_deep_to_be_looked_at_is_hidden() {
        let deep = |len: usize| format!("{}{{\"password\":1}}{}", "[".repeat(len), "]".repeat(len));
        let redaction = Redaction::of(["**.password"]).unwrap();
        assert!(redaction.applied(&deep(10)).contains("password"));
        let shown = redaction.applied(&deep(100)).into_owned();
        assert!(
            shown.contains("(redacted)") && !shown.contains("password"),
            "{shown}"
        );
        let other = Redaction::of(["card.number"]).unwrap();
        let beside = format!("{{\"a\":{}}}", deep(100));
        assert_eq!(other.applied(&beside), beside, "no path leads there");
    }

    #[test]
    fn a_payload_within_a_text_is_found_by_its_fields() {
        let redaction = Redaction::of(["value"]).unwrap();
        let text = r#"{"value":1,"payload":{"value":{"value":2,"b":3}}}"#;
        let shown = redaction.applied_at(&["payload", "value"], text);
        assert_eq!(
            shown,
            r#"{"value":1,"payload":{"value":{"value":"(redacted)","b":3}}}"#
        );
        assert_eq!(Redaction::everything().applied("7"), "\"(redacted)\"");
    }

    #[test]
    fn paths_that_name_nothing_are_refused() {
        for path in ["", ".", "a.", ".a", "a..b"] {
            assert_eq!(Redaction::of([path]), Err(RedactionError::Empty(path.to_owned())));
        }
        let many = (0..257).map(|number| number.to_string());
        assert_eq!(Redaction::of(many), Err(RedactionError::TooMany));
    }
}
