//! Values of users, as bytes.

mod json;
mod redaction;
mod serialized;

use std::{fmt, io};

use bytes::Bytes;
use serde::de::{DeserializeOwned, Visitor};
use serde::{Deserializer as _, Serialize};

pub(crate) use self::redaction::REDACTED;
pub use self::redaction::{Redaction, RedactionError};

/// An encoded value: one byte that names the codec, then the value's bytes. A cheap clone.
///
/// A value is encoded once, when it is decided; the journal and all receivers share these
/// bytes, and user code always sees the decoded value, live as in replay.
#[derive(Clone)]
pub struct Payload(Repr);

/// Small values are stored in place: copying a number, an id or a short text costs less than an allocation, and does not keep
/// the rest of a history in memory.
#[derive(Clone)]
enum Repr {
    InPlace { len: u8, bytes: [u8; IN_PLACE_MAX] },
    Shared(Bytes),
}

/// As many bytes as make both variants equally large.
const IN_PLACE_MAX: usize = 38;

/// MessagePack with named fields in human-readable mode, so that JSON converts both ways.
const CODEC_MESSAGE_PACK: u8 = 1;

impl Payload {
    /// Encodes a value.
    ///
    /// # Errors
    /// When the value's `Serialize` implementation reports an error.
    pub fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Self, PayloadError> {
        let mut bytes = Growing::new(CODEC_MESSAGE_PACK);
        let mut serializer = rmp_serde::Serializer::new(&mut bytes)
            .with_struct_map()
            .with_human_readable();
        value
            .serialize(&mut serializer)
            .map_err(|error| PayloadError::Encode(error.to_string()))?;
        Ok(Self(bytes.into_held()))
    }

    /// Decodes the value.
    ///
    /// # Errors
    /// When the codec is unknown, the bytes do not fit the type, or bytes are left over.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, PayloadError> {
        let (&codec, body) = self.as_bytes().split_first().ok_or(PayloadError::Empty)?;
        if codec != CODEC_MESSAGE_PACK {
            return Err(PayloadError::UnknownCodec(codec));
        }
        let mut deserializer = rmp_serde::Deserializer::from_read_ref(body).with_human_readable();
        let value =
            T::deserialize(&mut deserializer).map_err(|error| PayloadError::Decode(error.to_string()))?;
        match deserializer.deserialize_any(Nothing) {
            Err(rmp_serde::decode::Error::InvalidMarkerRead(end))
                if end.kind() == io::ErrorKind::UnexpectedEof =>
            {
                Ok(value)
            }
            Ok(()) | Err(_) => Err(PayloadError::LeftOver {
                bytes: left_over::<T>(body),
            }),
        }
    }

    /// Wraps bytes that were taken from a payload before.
    #[must_use]
    pub fn from_bytes(bytes: Bytes) -> Self {
        if bytes.len() > IN_PLACE_MAX {
            return Self(Repr::Shared(bytes));
        }
        let mut few = Growing::empty();
        few.append(&bytes);
        Self(few.into_held())
    }

    /// All bytes, including the codec's.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Repr::InPlace { len, bytes } => &bytes[..usize::from(*len)],
            Repr::Shared(bytes) => bytes,
        }
    }

    /// Whether it has no allocation of its own.
    pub(crate) const fn is_in_place(&self) -> bool {
        matches!(self.0, Repr::InPlace { .. })
    }

    /// Size in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.as_bytes().len()
    }

    /// Whether there are no bytes at all, not even a codec.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.as_bytes().is_empty()
    }
}

impl PartialEq for Payload {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Payload {}

/// Bytes being written: in place while they fit, then in a buffer.
struct Growing {
    bytes: [u8; IN_PLACE_MAX],
    /// The number of bytes in place; the whole capacity once the buffer is used.
    len: usize,
    /// All bytes, once they do not fit in place.
    buffer: Vec<u8>,
}

impl Growing {
    const fn empty() -> Self {
        Self {
            bytes: [0; IN_PLACE_MAX],
            len: 0,
            buffer: Vec::new(),
        }
    }

    const fn new(first: u8) -> Self {
        let mut bytes = Self::empty();
        bytes.bytes[0] = first;
        bytes.len = 1;
        bytes
    }

    #[inline(always)]
    fn append(&mut self, more: &[u8]) {
        match self.bytes.get_mut(self.len..self.len + more.len()) {
            Some(place) => {
                place.copy_from_slice(more);
                self.len += more.len();
            }
            None => self.spill(more),
        }
    }

    /// Appends to the buffer, which has all bytes from now on.
    #[inline(never)]
    fn spill(&mut self, more: &[u8]) {
        if self.buffer.is_empty() {
            self.buffer.reserve(self.len + more.len().max(4 * IN_PLACE_MAX));
            self.buffer.extend_from_slice(&self.bytes[..self.len]);
            self.len = IN_PLACE_MAX;
        }
        self.buffer.extend_from_slice(more);
    }

    fn into_held(self) -> Repr {
        if self.buffer.is_empty() {
            Repr::InPlace {
                len: u8::try_from(self.len).expect("few bytes are few"),
                bytes: self.bytes,
            }
        } else {
            Repr::Shared(Bytes::from(self.buffer))
        }
    }
}

impl io::Write for Growing {
    #[inline(always)]
    fn write(&mut self, more: &[u8]) -> io::Result<usize> {
        self.append(more);
        Ok(more.len())
    }

    #[inline(always)]
    fn write_all(&mut self, more: &[u8]) -> io::Result<()> {
        self.append(more);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Deserializes nothing beyond a value's marker: so a missing marker means the end of the bytes, and not an array that was
/// cut off.
struct Nothing;

impl Visitor<'_> for Nothing {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the end")
    }
}

/// The number of bytes in `body` behind its first value.
#[cold]
fn left_over<T: DeserializeOwned>(body: &[u8]) -> usize {
    let mut deserializer = rmp_serde::Deserializer::new(io::Cursor::new(body)).with_human_readable();
    // It was decoded before, so this only finds its length.
    drop(T::deserialize(&mut deserializer));
    let read = usize::try_from(deserializer.get_ref().position()).unwrap_or(usize::MAX);
    body.len().saturating_sub(read)
}

impl fmt::Debug for Payload {
    /// The value as far as it can be shown without its type, shortened.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN_MAX: usize = 48;
        let shown = &self.as_bytes()[..self.len().min(SHOWN_MAX)];
        write!(f, "Payload({} B: {}", self.len(), shown.escape_ascii())?;
        f.write_str(if self.len() > SHOWN_MAX { "..)" } else { ")" })
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
    /// JSON cannot express the value, or the JSON cannot become a payload.
    #[error("no JSON: {0}")]
    Json(String),
    /// Bytes were left over behind the value.
    #[error("{bytes} bytes are left over after the value")]
    LeftOver {
        /// How many.
        bytes: usize,
    },
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

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
    fn a_value_of_any_length_survives_the_journey() {
        for len in (0..200).chain([4_095, 4_096, 1 << 20]) {
            let text = "x".repeat(len);
            let payload = Payload::encode(&text).unwrap();
            assert_eq!(payload.decode::<String>().unwrap(), text);
            assert_eq!(payload.as_bytes().len(), payload.len());
            let wrapped = Payload::from_bytes(Bytes::copy_from_slice(payload.as_bytes()));
            assert_eq!(wrapped, payload);
            assert_eq!(wrapped.decode::<String>().unwrap(), text);
        }
        assert_eq!(size_of::<Repr>(), size_of::<Bytes>() + size_of::<usize>());
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
    fn no_byte_behind_a_value_is_passed_over() {
        let check = |rest: &[u8]| {
            for value in [&[1_u8][..], &[0x92, 1, 2]] {
                let bytes = [&[CODEC_MESSAGE_PACK], value, rest].concat();
                let payload = Payload::from_bytes(Bytes::from(bytes));
                let decoded = match value.len() {
                    1 => payload.decode::<u8>().map(drop),
                    _ => payload.decode::<(u8, u8)>().map(drop),
                };
                let left_over = PayloadError::LeftOver { bytes: rest.len() };
                assert_eq!(decoded, Err(left_over), "{rest:?}");
            }
        };
        for first in 0..=u8::MAX {
            check(&[first]);
            (0..=u8::MAX).for_each(|second| check(&[first, second]));
            check(&[first, 0xff, 0xff, 0xff, 0xff]);
        }
    }

    #[test]
    fn any_bytes_give_a_value_or_an_error() {
        let cases: [(&[u8], PayloadError); 4] = [
            (b"", PayloadError::Empty),
            (&[9, 1], PayloadError::UnknownCodec(9)),
            (&[CODEC_MESSAGE_PACK, 1, 2], PayloadError::LeftOver { bytes: 1 }),
            (
                &[CODEC_MESSAGE_PACK, 1, 0xc1, 0xd9],
                PayloadError::LeftOver { bytes: 2 },
            ),
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
