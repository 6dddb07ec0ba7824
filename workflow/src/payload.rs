//! Values of users, as bytes.

use std::fmt;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// An encoded value: one byte that names the codec, then the value's bytes. A cheap clone.
///
/// A value is encoded once, when it is decided; the journal and whoever receives it share these
/// bytes, and user code always sees the decoded value, live as in replay.
#[derive(Clone, PartialEq, Eq)]
pub struct Payload(Bytes);

/// MessagePack with named fields in human-readable mode, so that JSON converts both ways.
const CODEC_MESSAGE_PACK: u8 = 1;

impl Payload {
    /// Encodes a value.
    ///
    /// # Errors
    /// When the value's `Serialize` implementation reports an error.
    pub fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Self, PayloadError> {
        let mut bytes = Vec::with_capacity(64);
        bytes.push(CODEC_MESSAGE_PACK);
        let mut serializer = rmp_serde::Serializer::new(&mut bytes)
            .with_struct_map()
            .with_human_readable();
        value
            .serialize(&mut serializer)
            .map_err(|error| PayloadError::Encode(error.to_string()))?;
        Ok(Self(Bytes::from(bytes)))
    }

    /// Decodes the value.
    ///
    /// # Errors
    /// When the codec is unknown, the bytes do not fit the type, or bytes are left over.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, PayloadError> {
        let (&codec, body) = self.0.split_first().ok_or(PayloadError::Empty)?;
        if codec != CODEC_MESSAGE_PACK {
            return Err(PayloadError::UnknownCodec(codec));
        }
        let mut deserializer = rmp_serde::Deserializer::new(std::io::Cursor::new(body)).with_human_readable();
        let value =
            T::deserialize(&mut deserializer).map_err(|error| PayloadError::Decode(error.to_string()))?;
        let read = usize::try_from(deserializer.get_ref().position()).expect("a position inside a slice");
        if read < body.len() {
            return Err(PayloadError::LeftOver {
                bytes: body.len() - read,
            });
        }
        Ok(value)
    }

    /// Wraps bytes that were taken from a payload before.
    #[must_use]
    pub fn from_bytes(bytes: Bytes) -> Self {
        Self(bytes)
    }

    /// All bytes, the codec's among them.
    #[must_use]
    pub fn as_bytes(&self) -> &Bytes {
        &self.0
    }

    /// Size in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is not even a codec.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Payload {
    /// The value as far as it can be read without its type, shortened.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN_MAX: usize = 48;
        let shown = &self.0[..self.0.len().min(SHOWN_MAX)];
        write!(f, "Payload({} B: {}", self.0.len(), shown.escape_ascii())?;
        f.write_str(if self.0.len() > SHOWN_MAX { "..)" } else { ")" })
    }
}

/// Why a value could not be encoded or decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PayloadError {
    /// The value refused to be serialised.
    #[error("the value cannot be encoded: {0}")]
    Encode(String),
    /// The bytes are not a value of this type.
    #[error("the bytes do not decode to the expected type: {0}")]
    Decode(String),
    /// There are no bytes at all.
    #[error("the payload is empty")]
    Empty,
    /// The first byte names a codec this version does not have.
    #[error("the payload was written with codec {0}, which this version does not know")]
    UnknownCodec(u8),
    /// The value ended before its bytes did.
    #[error("{bytes} bytes are left over after the value")]
    LeftOver {
        /// How many.
        bytes: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Order {
        id: u32,
        #[serde(default)]
        note: Option<String>,
    }

    #[test]
    fn a_value_survives_the_journey() {
        let order = Order {
            id: 7,
            note: Some("fragile".into()),
        };
        assert_eq!(Payload::encode(&order).unwrap().decode::<Order>().unwrap(), order);
        assert_eq!(Payload::encode(&()).unwrap().decode::<()>(), Ok(()));
    }

    #[test]
    fn a_field_added_later_takes_its_default() {
        #[derive(Serialize)]
        struct Before {
            id: u32,
        }
        let old = Payload::encode(&Before { id: 7 }).unwrap();
        assert_eq!(old.decode::<Order>().unwrap(), Order { id: 7, note: None });
    }

    #[test]
    fn any_bytes_give_a_value_or_an_error() {
        let cases: [(&[u8], PayloadError); 3] = [
            (b"", PayloadError::Empty),
            (&[9, 1], PayloadError::UnknownCodec(9)),
            (&[CODEC_MESSAGE_PACK, 1, 2], PayloadError::LeftOver { bytes: 1 }),
        ];
        for (bytes, expected) in cases {
            assert_eq!(
                Payload::from_bytes(Bytes::copy_from_slice(bytes)).decode::<u8>(),
                Err(expected)
            );
        }
        let wrong = Payload::encode("text").unwrap();
        assert!(matches!(wrong.decode::<u8>(), Err(PayloadError::Decode(_))));
    }
}
