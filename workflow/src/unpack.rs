//! Reading the value of a payload, all of it.
//!
//! ```text
//!   bytes ──► one number, one short text ──► Visitor
//!        └──► anything else ── rmp_serde ──► Visitor, then a look whether bytes are left
//! ```
//!
//! Many payloads are one number or one identity. Of these the marker says how long they are, so that one
//! look shows both the value and that nothing follows it; a general reader costs five times as much.
//!
//! Invariants: a value or an error, and which, as `rmp_serde` would have it.

use std::{fmt, io};

use rmp_serde::config::{DefaultConfig, HumanReadableConfig};
use rmp_serde::decode::{Error, ReadRefReader};
use serde::Deserializer;
use serde::de::{self, Visitor};

/// The bytes of one value and nothing else.
pub(crate) struct Whole<'de>(pub(crate) &'de [u8]);

/// Why there is no value.
#[derive(Debug)]
pub(crate) enum Unread {
    /// The bytes do not fit the type, for this reason.
    Value(String),
    /// There are more bytes than the value has.
    LeftOver,
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(message) => f.write_str(message),
            Self::LeftOver => f.write_str("bytes are left over"),
        }
    }
}

impl std::error::Error for Unread {}

impl de::Error for Unread {
    #[cold]
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::Value(message.to_string())
    }
}

type Reader<'de> = rmp_serde::Deserializer<ReadRefReader<'de, [u8]>, HumanReadableConfig<DefaultConfig>>;

impl<'de> Whole<'de> {
    /// Reads whatever it is.
    #[inline(never)]
    fn read<T>(self, read: impl FnOnce(&mut Reader<'de>) -> Result<T, Error>) -> Result<T, Unread> {
        let mut reader = rmp_serde::Deserializer::from_read_ref(self.0).with_human_readable();
        let value = read(&mut reader).map_err(de::Error::custom)?;
        match reader.deserialize_any(Nothing) {
            Err(Error::InvalidMarkerRead(end)) if end.kind() == io::ErrorKind::UnexpectedEof => Ok(value),
            Ok(()) | Err(_) => Err(Unread::LeftOver),
        }
    }
}

/// If the bytes are one number, that is shown.
macro_rules! numbers {
    ($($method:ident)*) => {$(
        #[inline]
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unread> {
            match *self.0 {
                [small @ 0..=0x7f] => visitor.visit_u8(small),
                [small @ 0xe0..=0xff] => visitor.visit_i8(small.cast_signed()),
                [0xcc, a] => visitor.visit_u8(a),
                [0xcd, a, b] => visitor.visit_u16(u16::from_be_bytes([a, b])),
                [0xce, a, b, c, d] => visitor.visit_u32(u32::from_be_bytes([a, b, c, d])),
                [0xcf, a, b, c, d, e, f, g, h] => {
                    visitor.visit_u64(u64::from_be_bytes([a, b, c, d, e, f, g, h]))
                }
                _ => self.read(|reader| reader.$method(visitor)),
            }
        }
    )*};
}

/// If the bytes are one short text, that is shown.
macro_rules! texts {
    ($($method:ident)*) => {$(
        #[inline]
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unread> {
            if let [marker @ 0xa0..=0xbf, text @ ..] = self.0
                && text.len() == usize::from(marker & 0x1f)
                && let Ok(text) = str::from_utf8(text)
            {
                return visitor.visit_borrowed_str(text);
            }
            self.read(|reader| reader.$method(visitor))
        }
    )*};
}

macro_rules! others {
    ($($method:ident($($name:ident: $kind:ty),*))*) => {$(
        #[inline]
        fn $method<V: Visitor<'de>>(self, $($name: $kind,)* visitor: V) -> Result<V::Value, Unread> {
            self.read(|reader| reader.$method($($name,)* visitor))
        }
    )*};
}

impl<'de> Deserializer<'de> for Whole<'de> {
    type Error = Unread;

    numbers! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64
    }

    texts! {
        deserialize_str deserialize_string
    }

    others! {
        deserialize_any()
        deserialize_bool()
        deserialize_i128()
        deserialize_u128()
        deserialize_f32()
        deserialize_f64()
        deserialize_char()
        deserialize_bytes()
        deserialize_byte_buf()
        deserialize_option()
        deserialize_unit()
        deserialize_unit_struct(name: &'static str)
        deserialize_seq()
        deserialize_tuple(len: usize)
        deserialize_tuple_struct(name: &'static str, len: usize)
        deserialize_map()
        deserialize_struct(name: &'static str, fields: &'static [&'static str])
        deserialize_enum(name: &'static str, variants: &'static [&'static str])
        deserialize_identifier()
        deserialize_ignored_any()
    }

    #[inline]
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Unread> {
        if name == rmp_serde::MSGPACK_EXT_STRUCT_NAME {
            return self.read(|reader| reader.deserialize_newtype_struct(name, visitor));
        }
        visitor.visit_newtype_struct(self)
    }

    fn is_human_readable(&self) -> bool {
        true
    }
}

/// Wants no value, and reads nothing behind the marker of one: so a marker that is missing means the
/// end, and not that of an array that was cut off.
struct Nothing;

impl Visitor<'_> for Nothing {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the end")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::vec;
    use proptest::prelude::*;
    use serde::Deserialize;
    use serde::de::DeserializeOwned;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Newtype<T>(T);

    #[derive(Debug, PartialEq, Deserialize)]
    enum Choice {
        A,
        B(u8),
    }

    /// The same value, or the same error, as a general reader gives that counts what it reads.
    fn assert_same<T: DeserializeOwned + fmt::Debug>(bytes: &[u8]) {
        let mut general = rmp_serde::Deserializer::new(io::Cursor::new(bytes)).with_human_readable();
        let expected = T::deserialize(&mut general).map_err(|error| error.to_string());
        let is_whole = general.get_ref().position() == bytes.len() as u64;
        let read = match T::deserialize(Whole(bytes)) {
            Ok(value) => format!("{value:?}"),
            Err(Unread::Value(message)) => message,
            Err(Unread::LeftOver) => "left over".into(),
        };
        let expected = match expected {
            Ok(value) if is_whole => format!("{value:?}"),
            Ok(_) => "left over".into(),
            Err(message) => message,
        };
        assert_eq!(read, expected, "{bytes:?}");
    }

    fn assert_same_of_each_type(bytes: &[u8]) {
        assert_same::<i8>(bytes);
        assert_same::<i16>(bytes);
        assert_same::<i32>(bytes);
        assert_same::<i64>(bytes);
        assert_same::<i128>(bytes);
        assert_same::<u8>(bytes);
        assert_same::<u16>(bytes);
        assert_same::<u32>(bytes);
        assert_same::<u64>(bytes);
        assert_same::<u128>(bytes);
        assert_same::<f64>(bytes);
        assert_same::<bool>(bytes);
        assert_same::<char>(bytes);
        assert_same::<()>(bytes);
        assert_same::<String>(bytes);
        assert_same::<Option<u16>>(bytes);
        assert_same::<Newtype<u32>>(bytes);
        assert_same::<Newtype<String>>(bytes);
        assert_same::<Vec<u8>>(bytes);
        assert_same::<(u8, String)>(bytes);
        assert_same::<BTreeMap<String, u8>>(bytes);
        assert_same::<Choice>(bytes);
        assert_same::<serde_bytes::ByteBuf>(bytes);
    }

    #[test]
    fn short_bytes_are_read_as_a_general_reader_reads_them() {
        assert_same_of_each_type(&[]);
        for first in 0..=u8::MAX {
            assert_same_of_each_type(&[first]);
            for second in 0..=u8::MAX {
                assert_same_of_each_type(&[first, second]);
            }
            // As many bytes as each number has, one less, and one more.
            for rest in [[0; 17], [0x7f; 17], [0xff; 17]] {
                for len in 2..=rest.len() {
                    assert_same_of_each_type(&[&[first], &rest[..len]].concat());
                }
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_as_a_general_reader_reads_them(bytes in vec(any::<u8>(), 0..40)) {
            assert_same_of_each_type(&bytes);
        }

        #[test]
        fn any_text_is_read_as_a_general_reader_reads_it(text in "\\PC{0,40}", rest in vec(any::<u8>(), 0..2)) {
            let mut bytes = rmp_serde::to_vec(&text).unwrap();
            bytes.extend(rest);
            assert_same_of_each_type(&bytes);
        }
    }
}
