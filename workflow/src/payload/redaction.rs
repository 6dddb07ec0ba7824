//! Fields of payloads that are not shown.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use millrun_core::base64;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::Payload;

/// How many paths a redaction may have.
const PATHS_LEN_MAX: usize = 256;
/// How deep values are searched. Deeper values to which a path might lead are hidden as a whole.
const DEPTH_MAX: usize = 64;
/// The JSON that replaces a hidden value.
pub(crate) const REDACTED: &str = "\"(redacted)\"";

/// Fields that are hidden where a payload becomes JSON: in exported histories, and in the answers of an API. Recorded values
/// are not changed.
///
/// A path names fields from the outside in, separated by dots: `card.number`. Lists are transparent: the path `items.price`
/// is for each item. `*` is any field, `**` any number of fields: `**.password` is a field of that name at any place. The
/// keys of maps count as fields. Paths start again at payloads that millrun wraps: the state of an entity, the input of one
/// of its commands, the end of a local step.
///
/// ```
/// use millrun_workflow::Redaction;
///
/// # fn main() -> Result<(), millrun_workflow::RedactionError> {
/// let redaction = Redaction::of(["card.number", "**.password"])?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Redaction {
    is_everything: bool,
    keeps_kinds: bool,
    paths: Vec<Vec<Step>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Field(String),
    AnyField,
    AnyFields,
}

/// Why paths are not valid.
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
            keeps_kinds: false,
            paths: all,
        })
    }

    /// Hides each value as a whole.
    #[must_use]
    pub const fn everything() -> Self {
        Self {
            is_everything: true,
            keeps_kinds: false,
            paths: Vec::new(),
        }
    }

    /// Hides the same fields, but keeps the kind of each value, so that programs can still read it: texts become
    /// `(redacted)`, numbers 0, flags `false`, bytes empty; within lists and objects each value is hidden in this way. The
    /// names of fields stay, and so do the keys of maps. By default `(redacted)` replaces the whole value.
    #[must_use]
    pub fn keeping_kinds(mut self) -> Self {
        self.keeps_kinds = true;
        self
    }

    /// Whether it leaves everything as it is.
    pub(crate) fn hides_nothing(&self) -> bool {
        !self.is_everything && self.paths.is_empty()
    }

    /// The JSON of a payload, without hidden values.
    #[must_use]
    pub fn applied<'a>(&self, json: &'a str) -> Cow<'a, str> {
        self.applied_at(&[], json)
    }

    /// The same for JSON in which the payload is found at these fields.
    #[must_use]
    pub fn applied_at<'a>(&self, at: &[&str], json: &'a str) -> Cow<'a, str> {
        if self.is_everything {
            let mut shown = String::new();
            self.hide(json.trim(), 0, &mut shown);
            return Cow::Owned(shown);
        }
        if self.paths.is_empty() {
            return Cow::Borrowed(json);
        }
        let mut shown = String::with_capacity(json.len());
        self.descend(json, at, &mut shown);
        Cow::Owned(shown)
    }

    /// Descends to the payload, through these fields.
    fn descend(&self, json: &str, at: &[&str], shown: &mut String) {
        match at {
            [] => self.write_payload(json.trim(), 0, shown),
            [first, rest @ ..] => write_fields(json, shown, |name, value, shown| {
                if name == *first {
                    self.descend(value, rest, shown);
                } else {
                    shown.push_str(value);
                }
            }),
        }
    }

    /// Writes a payload; all paths start here.
    fn write_payload(&self, json: &str, depth: usize, shown: &mut String) {
        let places: Vec<_> = self.paths.iter().map(Vec::as_slice).collect();
        if !WRAPPERS.iter().any(|wrapper| json.starts_with(wrapper)) {
            return self.write(json, &places, depth, shown);
        }
        write_fields(json, shown, |name, value, shown| {
            let inside = places.iter().filter_map(|place| below(place, name));
            let inside: Vec<_> = inside.chain(places.iter().copied()).collect();
            self.write(value, &inside, depth + 1, shown);
        });
    }

    /// Writes a value, hiding what these paths lead to from here.
    fn write(&self, json: &str, places: &[&[Step]], depth: usize, shown: &mut String) {
        let json = json.trim();
        // A step for any number of fields may stand for none.
        let mut here = places.to_vec();
        let mut number = 0;
        while let Some(place) = here.get(number) {
            if let [Step::AnyFields, rest @ ..] = place {
                here.push(rest);
            }
            number += 1;
        }
        let is_deep = depth >= DEPTH_MAX && json.starts_with(['{', '[']);
        if here.iter().any(|place| place.is_empty()) || (is_deep && !here.is_empty()) {
            return self.hide(json, depth, shown);
        }
        if is_deep {
            return shown.push_str(json);
        }
        match json.as_bytes().first() {
            Some(b'[') => write_items(json, shown, |item, shown| {
                self.write(item, places, depth + 1, shown)
            }),
            Some(b'{') if is_bytes(json) => self.write_bytes(json, !here.is_empty(), depth, shown),
            Some(b'{') => write_fields(json, shown, |name, value, shown| {
                let inside: Vec<_> = here.iter().filter_map(|place| below(place, name)).collect();
                // Bytes may hold a payload, in which all paths start again.
                if inside.is_empty() && !value.contains(BYTES_KEY) {
                    shown.push_str(value);
                } else {
                    self.write(value, &inside, depth + 1, shown);
                }
            }),
            _ => shown.push_str(json),
        }
    }

    /// Writes bytes. If they are a payload (the state of an entity, the input of one of its commands), its hidden values are
    /// hidden; other bytes are unchanged, or hidden if a path leads on from here.
    fn write_bytes(&self, json: &str, leads_on: bool, depth: usize, shown: &mut String) {
        let within = bytes_of(json).map(Payload::from_bytes);
        let text = within.as_ref().and_then(|payload| payload.to_json().ok());
        let Some(text) = text else {
            return shown.push_str(if leads_on { NO_BYTES } else { json });
        };
        let mut hidden = String::with_capacity(text.len());
        self.write_payload(&text, depth + 1, &mut hidden);
        if hidden == text {
            return shown.push_str(json);
        }
        match Payload::from_json(&hidden) {
            Ok(payload) => {
                shown.push_str("{\"$bytes\":\"");
                shown.push_str(&base64::encode(payload.as_bytes()));
                shown.push_str("\"}");
            }
            Err(_) => shown.push_str(NO_BYTES),
        }
    }

    /// Writes the replacement of a value.
    fn hide(&self, json: &str, depth: usize, shown: &mut String) {
        let deeper = |inside: &str, shown: &mut String| self.hide(inside.trim(), depth + 1, shown);
        match json.as_bytes().first() {
            _ if !self.keeps_kinds || depth >= DEPTH_MAX => shown.push_str(REDACTED),
            Some(b'[') => write_items(json, shown, deeper),
            Some(b'{') if is_bytes(json) => shown.push_str(NO_BYTES),
            Some(b'{') => write_fields(json, shown, |_, value, shown| deeper(value, shown)),
            Some(b't' | b'f') => shown.push_str("false"),
            Some(b'n') => shown.push_str("null"),
            Some(b'"') | None => shown.push_str(REDACTED),
            Some(_) if json.contains(['.', 'e', 'E']) => shown.push_str("0.0"),
            Some(_) => shown.push('0'),
        }
    }
}

/// The beginnings of payloads in which millrun wraps a user's: the ends of local steps.
const WRAPPERS: [&str; 2] = ["{\"Value\":", "{\"Failed\":"];

/// The key of bytes.
const BYTES_KEY: &str = "\"$bytes\"";

/// Bytes in JSON, without any.
const NO_BYTES: &str = r#"{"$bytes":""}"#;

/// Whether this object stands for bytes.
fn is_bytes(json: &str) -> bool {
    let inside = json.trim_start_matches('{').trim_start();
    inside.starts_with(BYTES_KEY)
}

/// The bytes that this object stands for.
fn bytes_of(json: &str) -> Option<Bytes> {
    let Fields(fields) = serde_json::from_str(json).ok()?;
    let [(_, value)] = fields.as_slice() else {
        return None;
    };
    let text: String = serde_json::from_str(value.get()).ok()?;
    base64::decode(&text).map(Bytes::from)
}

/// The rest of a path behind a field.
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
    fn what_is_hidden_keeps_its_kind_if_asked_to() {
        let json = r#"{"a":{"t":"x","n":7,"f":1e3,"b":true,"z":null,"l":[1,{"k":"y"}]},"b":2}"#;
        let redaction = Redaction::of(["a"]).unwrap().keeping_kinds();
        assert_eq!(
            redaction.applied(json),
            r#"{"a":{"t":"(redacted)","n":0,"f":0.0,"b":false,"z":null,"l":[0,{"k":"(redacted)"}]},"b":2}"#
        );
        assert_eq!(Redaction::everything().keeping_kinds().applied(" 7 "), "0");
        let deep = format!("{}1{}", "[".repeat(100), "]".repeat(100));
        assert!(
            Redaction::everything()
                .keeping_kinds()
                .applied(&deep)
                .contains("(redacted)")
        );
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
