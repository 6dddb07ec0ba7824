//! Payloads as JSON and back, without loss.
//!
//! ```text
//!   payload ──decode──► Value ──mark──► Value without bytes ──► text
//!   payload ◄──encode── Value ◄─unmark─ Value without bytes ◄── text
//! ```
//!
//! What JSON cannot express is marked: bytes are an object with one key, `{"$bytes":"aGk="}` (base64). A user's object whose
//! only key is `$bytes` gets another dollar, and so does one with `$$bytes`, and so on.

use std::fmt;

use millrun_core::base64;
use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap as _, Serializer};

use super::{Payload, PayloadError};

/// How deep values may be nested.
const DEPTH_MAX: usize = 100;

/// The key that marks bytes.
const BYTES: &str = "$bytes";

impl Payload {
    /// The value as JSON, for people and for programs in other languages: [`from_json`](Self::from_json) makes a payload of
    /// it that decodes to the same value.
    ///
    /// Whole numbers are exact, also those that a JavaScript `number` cannot hold. A floating-point number has a point or an
    /// exponent; a 32-bit one has the digits of the same value in 64 bits. Bytes are `{"$bytes":"aGk="}` with base64 of RFC
    /// 4648, section 4 (only where the type writes bytes, as `serde_bytes` does: a `Vec<u8>` is a list of numbers). The order
    /// of fields is kept.
    ///
    /// ```
    /// use millrun_workflow::Payload;
    ///
    /// let payload = Payload::encode(&(u64::MAX, 0.5, "x"))?;
    /// assert_eq!(payload.to_json()?, r#"[18446744073709551615,0.5,"x"]"#);
    /// assert_eq!(Payload::from_json("[18446744073709551615, 0.5, \"x\"]")?, payload);
    /// # Ok::<(), millrun_workflow::PayloadError>(())
    /// ```
    ///
    /// # Errors
    /// [`PayloadError::Json`] if JSON cannot express the value: an infinite number or NaN, a key that is not a text or
    /// appears twice in one object, more than 100 nested values. Otherwise as [`decode`](Self::decode).
    pub fn to_json(&self) -> Result<String, PayloadError> {
        let value = self.decode::<Value>()?.mark().map_err(PayloadError::Json)?;
        serde_json::to_string(&value).map_err(|error| PayloadError::Json(error.to_string()))
    }

    /// Makes the payload of a value that is given as JSON: the same as that of the value itself, if its type has the same
    /// fields in the same order. Whether it fits the reader's type only shows when it is decoded.
    ///
    /// For a moment it takes memory of up to 32 times the length of the text.
    ///
    /// # Errors
    /// [`PayloadError::Json`] if the text is not JSON, a whole number does not fit in 64 bits, the value of `$bytes` is not
    /// base64, a key appears twice in one object, or more than 100 values are nested.
    pub fn from_json(text: &str) -> Result<Self, PayloadError> {
        let value: Value =
            serde_json::from_str(text).map_err(|error| PayloadError::Json(error.to_string()))?;
        if let Some(number) = too_large(text) {
            let what = format!("{number} does not fit in 64 bits: give it as text, or with an exponent");
            return Err(PayloadError::Json(what));
        }
        Self::encode(&value.unmark().map_err(PayloadError::Json)?)
    }
}

/// The first whole number in a JSON text that does not fit in 64 bits, and would be read as the nearest floating-point
/// number.
fn too_large(json: &str) -> Option<&str> {
    let bytes = json.as_bytes();
    let (mut at, mut is_text) = (0, false);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' => at += 1,
            b'"' => is_text = !is_text,
            b'-' | b'0'..=b'9' if !is_text => {
                let len = json[at..]
                    .find(|digit: char| !digit.is_ascii_digit() && !"+-.eE".contains(digit))
                    .unwrap_or(json.len() - at);
                let number = &json[at..at + len];
                let is_whole = !number.contains(['.', 'e', 'E']);
                if is_whole && number.parse::<u64>().is_err() && number.parse::<i64>().is_err() {
                    return Some(number);
                }
                at += len;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// Any value that a payload or a JSON text can hold.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text(String),
    Bytes(Vec<u8>),
    List(Vec<Value>),
    Object(Vec<(String, Value)>),
}

impl Value {
    /// Replaces bytes by marked objects, at any depth.
    fn mark(self) -> Result<Self, String> {
        Ok(match self {
            Self::Float(number) if !number.is_finite() => {
                return Err(format!("{number} is no number that JSON has"));
            }
            Self::Bytes(bytes) => Self::Object(vec![(BYTES.to_owned(), Self::Text(base64::encode(&bytes)))]),
            Self::Object(mut fields) => {
                if let [(key, _)] = fields.as_mut_slice()
                    && is_marked(key)
                {
                    key.insert(0, '$');
                }
                Self::Object(each_field(fields, Self::mark)?)
            }
            Self::List(items) => Self::List(each_item(items, Self::mark)?),
            plain => plain,
        })
    }

    /// Replaces marked objects by bytes, at any depth.
    fn unmark(self) -> Result<Self, String> {
        Ok(match self {
            Self::Object(mut fields) => {
                if let [(key, value)] = fields.as_mut_slice() {
                    if key == BYTES {
                        let Self::Text(text) = value else {
                            return Err(not_bytes());
                        };
                        return Ok(Self::Bytes(base64::decode(text).ok_or_else(not_bytes)?));
                    }
                    if is_marked(key) {
                        key.remove(0);
                    }
                }
                Self::Object(each_field(fields, Self::unmark)?)
            }
            Self::List(items) => Self::List(each_item(items, Self::unmark)?),
            plain => plain,
        })
    }
}

/// A value in which bytes are marked objects, as in JSON.
pub(super) struct Marked(Value);

impl Marked {
    /// # Errors
    /// When JSON cannot express the value.
    pub(super) fn of(value: Value) -> Result<Self, String> {
        value.mark().map(Self)
    }

    /// The payload of the value.
    ///
    /// # Errors
    /// When something marked as bytes is not base64.
    pub(super) fn to_payload(&self) -> Result<Payload, PayloadError> {
        let value = self.0.clone().unmark().map_err(PayloadError::Json)?;
        Payload::encode(&value)
    }
}

impl Serialize for Marked {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Marked {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(Self)
    }
}

type Change = fn(Value) -> Result<Value, String>;

fn each_item(items: Vec<Value>, change: Change) -> Result<Vec<Value>, String> {
    items.into_iter().map(change).collect()
}

fn each_field(fields: Vec<(String, Value)>, change: Change) -> Result<Vec<(String, Value)>, String> {
    let field = |(key, value)| Ok((key, change(value)?));
    fields.into_iter().map(field).collect()
}

fn not_bytes() -> String {
    format!("beside `{BYTES}` stands base64 with padding, as text; a key of this name is written `${BYTES}`")
}

/// Whether it is `$bytes`, perhaps with further dollars in front.
fn is_marked(key: &str) -> bool {
    key.ends_with(BYTES) && key.bytes().rev().skip(BYTES.len()).all(|byte| byte == b'$')
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Nested { depth: DEPTH_MAX }.deserialize(deserializer)
    }
}

/// Reads a value whose lists, objects and bytes are nested up to this deep.
#[derive(Clone, Copy)]
struct Nested {
    depth: usize,
}

impl Nested {
    fn deeper<E: de::Error>(self) -> Result<Self, E> {
        let too_deep = || {
            E::custom(format_args!(
                "more than {DEPTH_MAX} values are nested in each other"
            ))
        };
        let depth = self.depth.checked_sub(1).ok_or_else(too_deep)?;
        Ok(Self { depth })
    }
}

impl<'de> DeserializeSeed<'de> for Nested {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Nested {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value that JSON has, or bytes")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Unsigned(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Signed(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(Value::Text(text))
    }

    fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Value, E> {
        self.deeper()?;
        Ok(Value::Bytes(bytes.to_vec()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let inside = self.deeper()?;
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(inside)? {
            list.push(item);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let inside = self.deeper()?;
        let mut object = Vec::<(String, Value)>::new();
        while let Some(key) = fields.next_key()? {
            object.push((key, fields.next_value_seed(inside)?));
        }
        let mut keys: Vec<&str> = object.iter().map(|(key, _)| key.as_str()).collect();
        keys.sort_unstable();
        if let Some(pair) = keys.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(de::Error::custom(format_args!(
                "the key `{}` stands twice",
                pair[0]
            )));
        }
        Ok(Value::Object(object))
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Unsigned(number) => serializer.serialize_u64(*number),
            Self::Signed(number) => serializer.serialize_i64(*number),
            Self::Float(number) => serializer.serialize_f64(*number),
            Self::Text(text) => serializer.serialize_str(text),
            Self::Bytes(bytes) => serializer.serialize_bytes(bytes),
            Self::List(items) => serializer.collect_seq(items),
            Self::Object(fields) => {
                let mut object = serializer.serialize_map(Some(fields.len()))?;
                for (key, value) in fields {
                    object.serialize_entry(key, value)?;
                }
                object.end()
            }
        }
    }
}

#[cfg(test)]
mod tests;
