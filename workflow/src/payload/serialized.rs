//! Payloads within other formats of serde: as values, so that people can read them and tools can change them.

use bytes::Bytes;
use millrun_core::base64;
use serde::de::Error as _;
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Payload;
use super::json::{Marked, Value};

/// The key of a payload that is written as a value.
const VALUE: &str = "$value";
/// The key of a payload that is written as bytes (base64), because this release cannot make it again from a value.
const BYTES: &str = "$payload";

/// The value, in an object under `$value`, if that makes the same payload again; otherwise the bytes, as base64 under
/// `$payload`.
impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(Some(1))?;
        let value = self.decode::<Value>().ok();
        let marked = value.and_then(|value| Marked::of(value).ok());
        match marked.filter(|marked| marked.to_payload().as_ref() == Ok(self)) {
            Some(marked) => object.serialize_entry(VALUE, &marked)?,
            None => object.serialize_entry(BYTES, &base64::encode(self.as_bytes()))?,
        }
        object.end()
    }
}

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        enum Written {
            #[serde(rename = "$value")]
            Value(Marked),
            #[serde(rename = "$payload")]
            Bytes(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Value(marked) => marked.to_payload().map_err(D::Error::custom),
            Written::Bytes(text) => {
                let bytes = base64::decode(&text);
                let bytes =
                    bytes.ok_or_else(|| D::Error::custom("what stands beside `$payload` is no base64"))?;
                Ok(Self::from_bytes(Bytes::from(bytes)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Within {
        payload: Payload,
    }

    fn check(payload: Payload, expected: &str) {
        let within = Within { payload };
        let text = serde_json::to_string(&within).unwrap();
        assert_eq!(text, format!("{{\"payload\":{expected}}}"));
        assert_eq!(serde_json::from_str::<Within>(&text).unwrap(), within);
        // As part of another payload it is the same value.
        let outer = Payload::encode(&within).unwrap();
        assert_eq!(outer.decode::<Within>().unwrap(), within);
    }

    #[test]
    fn a_payload_is_written_by_its_value_and_read_back_byte_for_byte() {
        check(
            Payload::encode(&(u64::MAX, i64::MIN, 1.5, "x", ())).unwrap(),
            r#"{"$value":[18446744073709551615,-9223372036854775808,1.5,"x",null]}"#,
        );
        let bytes = serde_bytes::Bytes::new(b"hi");
        check(
            Payload::encode(&bytes).unwrap(),
            r#"{"$value":{"$bytes":"aGk="}}"#,
        );
        let odd = std::collections::BTreeMap::from([("$value", 1)]);
        check(Payload::encode(&odd).unwrap(), r#"{"$value":{"$value":1}}"#);
    }

    #[test]
    fn what_json_cannot_hold_is_written_as_its_bytes() {
        for payload in [
            Payload::encode(&f64::NAN).unwrap(),
            // From JSON it would become a 64-bit number.
            Payload::encode(&1.5_f32).unwrap(),
            Payload::from_bytes(Bytes::from_static(&[9, 1, 2])),
            Payload::from_bytes(Bytes::new()),
        ] {
            let base64 = base64::encode(payload.as_bytes());
            check(payload, &format!(r#"{{"$payload":"{base64}"}}"#));
        }
    }

    #[test]
    fn what_is_no_payload_is_refused() {
        for text in [
            "1",
            "{}",
            r#"{"value":1}"#,
            r#"{"$payload":"?"}"#,
            r#"{"$payload":1}"#,
            r#"{"$value":{"$bytes":1}}"#,
            r#"{"$value":1,"$payload":""}"#,
        ] {
            assert!(serde_json::from_str::<Payload>(text).is_err(), "{text}");
        }
    }
}
