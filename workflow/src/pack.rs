//! Writing MessagePack: what `rmp_serde` writes with named fields, byte for byte, for a fraction of the
//! instructions.
//!
//! ```text
//!   value ── Serialize ──► Packer ──► Sink: a history's bytes, or those of one payload
//!                             └── extensions, lengths not known before: through a buffer
//! ```
//!
//! Bodies and payloads are many tiny writes: a marker, a key of one letter, a small number. Here each is
//! one store behind one look at the room, where a general writer goes through calls that may fail.
//!
//! Invariants: the bytes are those of `rmp_serde::Serializer` with `with_struct_map`, for any value; they are
//! part of the stored format. Reading stays with `rmp_serde`, which is not asked to trust anybody.

mod compound;

use std::fmt;

use serde::{Serialize, Serializer, ser};

use compound::{Counted, Known};

/// Where bytes go that cannot fail to be taken.
pub(crate) trait Sink {
    /// Appends bytes.
    fn put(&mut self, bytes: &[u8]);
}

impl Sink for Vec<u8> {
    #[inline(always)]
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Writes one value. `READABLE` is what types that look at it are told: whether to be readable for people.
pub(crate) struct Packer<'a, S, const READABLE: bool>(&'a mut S);

/// Why a value could not be written: what it said itself, or its size.
#[derive(Debug)]
pub(crate) struct PackError(Box<str>);

impl fmt::Display for PackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PackError {}

impl ser::Error for PackError {
    #[cold]
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(message.to_string().into())
    }
}

#[cold]
fn too_long<E>(_: E) -> PackError {
    PackError("a text, a list or a map of more than 2^32 elements".into())
}

/// Appends a value with the names of its fields.
#[inline]
pub(crate) fn pack<T: Serialize + ?Sized, S: Sink, const READABLE: bool>(
    value: &T,
    sink: &mut S,
) -> Result<(), PackError> {
    value.serialize(Packer::<S, READABLE>(sink))
}

impl<'a, S: Sink, const READABLE: bool> Packer<'a, S, READABLE> {
    /// A marker, and the number behind it.
    #[inline(always)]
    fn marked<const LEN: usize>(self, marker: u8, number: [u8; LEN]) {
        self.0.put(&[marker]);
        self.0.put(&number);
    }

    /// The length of something that has short lengths in its marker, `small` of them from `fixed` on.
    #[inline(always)]
    fn len(&mut self, len: usize, small: u8, fixed: u8, marker_16: u8) -> Result<(), PackError> {
        let sink = &mut *self.0;
        if let Some(len) = u8::try_from(len).ok().filter(|len| *len < small) {
            sink.put(&[fixed | len]);
        } else if let Ok(len) = u16::try_from(len) {
            let [a, b] = len.to_be_bytes();
            sink.put(&[marker_16, a, b]);
        } else {
            let [a, b, c, d] = u32::try_from(len).map_err(too_long)?.to_be_bytes();
            sink.put(&[marker_16 + 1, a, b, c, d]);
        }
        Ok(())
    }

    #[inline(always)]
    fn array_len(&mut self, len: usize) -> Result<(), PackError> {
        self.len(len, 16, 0x90, 0xdc)
    }

    #[inline(always)]
    fn map_len(&mut self, len: usize) -> Result<(), PackError> {
        self.len(len, 16, 0x80, 0xde)
    }

    #[inline(always)]
    fn text(&mut self, text: &str) -> Result<(), PackError> {
        match u8::try_from(text.len()) {
            Ok(len @ 32..) => self.0.put(&[0xd9, len]),
            _ => self.len(text.len(), 32, 0xa0, 0xda)?,
        }
        self.0.put(text.as_bytes());
        Ok(())
    }

    /// The name of a field. Most have one letter, and are known when this is compiled.
    #[inline(always)]
    fn field(&mut self, name: &'static str) -> Result<(), PackError> {
        if let [letter] = name.as_bytes() {
            self.0.put(&[0xa1, *letter]);
            return Ok(());
        }
        self.text(name)
    }

    /// Another value.
    #[inline(always)]
    fn value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), PackError> {
        value.serialize(Packer::<S, READABLE>(self.0))
    }

    /// A variant with something in it is a map of one: its name, and what is in it.
    #[inline(always)]
    fn variant(&mut self, name: &'static str) -> Result<(), PackError> {
        self.map_len(1)?;
        self.text(name)
    }
}

impl<'a, S: Sink, const READABLE: bool> Serializer for Packer<'a, S, READABLE> {
    type Ok = ();
    type Error = PackError;
    type SerializeSeq = Counted<'a, S, READABLE>;
    type SerializeTuple = Known<'a, S, READABLE>;
    type SerializeTupleStruct = Known<'a, S, READABLE>;
    type SerializeTupleVariant = Known<'a, S, READABLE>;
    type SerializeMap = Counted<'a, S, READABLE>;
    type SerializeStruct = Known<'a, S, READABLE>;
    type SerializeStructVariant = Known<'a, S, READABLE>;

    #[inline(always)]
    fn is_human_readable(&self) -> bool {
        READABLE
    }

    #[inline(always)]
    fn serialize_bool(self, value: bool) -> Result<(), PackError> {
        self.0.put(&[0xc2 | u8::from(value)]);
        Ok(())
    }

    #[inline(always)]
    fn serialize_i8(self, value: i8) -> Result<(), PackError> {
        self.serialize_i64(value.into())
    }

    #[inline(always)]
    fn serialize_i16(self, value: i16) -> Result<(), PackError> {
        self.serialize_i64(value.into())
    }

    #[inline(always)]
    fn serialize_i32(self, value: i32) -> Result<(), PackError> {
        self.serialize_i64(value.into())
    }

    #[inline]
    fn serialize_i64(self, value: i64) -> Result<(), PackError> {
        if let Ok(value) = u64::try_from(value) {
            return self.serialize_u64(value);
        }
        // The smallest that holds it.
        if let Ok(value) = i8::try_from(value) {
            match value {
                -32.. => self.0.put(&value.to_be_bytes()),
                _ => self.marked(0xd0, value.to_be_bytes()),
            }
        } else if let Ok(value) = i16::try_from(value) {
            self.marked(0xd1, value.to_be_bytes());
        } else if let Ok(value) = i32::try_from(value) {
            self.marked(0xd2, value.to_be_bytes());
        } else {
            self.marked(0xd3, value.to_be_bytes());
        }
        Ok(())
    }

    #[inline(always)]
    fn serialize_i128(self, value: i128) -> Result<(), PackError> {
        self.serialize_bytes(&value.to_be_bytes())
    }

    #[inline(always)]
    fn serialize_u8(self, value: u8) -> Result<(), PackError> {
        self.serialize_u64(value.into())
    }

    #[inline(always)]
    fn serialize_u16(self, value: u16) -> Result<(), PackError> {
        self.serialize_u64(value.into())
    }

    #[inline(always)]
    fn serialize_u32(self, value: u32) -> Result<(), PackError> {
        self.serialize_u64(value.into())
    }

    #[inline]
    fn serialize_u64(self, value: u64) -> Result<(), PackError> {
        if let Ok(value) = u8::try_from(value) {
            match value {
                0..0x80 => self.0.put(&[value]),
                _ => self.0.put(&[0xcc, value]),
            }
        } else if let Ok(value) = u16::try_from(value) {
            self.marked(0xcd, value.to_be_bytes());
        } else if let Ok(value) = u32::try_from(value) {
            self.marked(0xce, value.to_be_bytes());
        } else {
            self.marked(0xcf, value.to_be_bytes());
        }
        Ok(())
    }

    #[inline(always)]
    fn serialize_u128(self, value: u128) -> Result<(), PackError> {
        self.serialize_bytes(&value.to_be_bytes())
    }

    #[inline(always)]
    fn serialize_f32(self, value: f32) -> Result<(), PackError> {
        self.marked(0xca, value.to_be_bytes());
        Ok(())
    }

    #[inline(always)]
    fn serialize_f64(self, value: f64) -> Result<(), PackError> {
        self.marked(0xcb, value.to_be_bytes());
        Ok(())
    }

    #[inline]
    fn serialize_char(self, value: char) -> Result<(), PackError> {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }

    #[inline(always)]
    fn serialize_str(mut self, value: &str) -> Result<(), PackError> {
        self.text(value)
    }

    #[inline]
    fn serialize_bytes(mut self, value: &[u8]) -> Result<(), PackError> {
        match u8::try_from(value.len()) {
            Ok(len) => self.0.put(&[0xc4, len]),
            Err(_) => self.len(value.len(), 0, 0, 0xc5)?,
        }
        self.0.put(value);
        Ok(())
    }

    #[inline(always)]
    fn serialize_none(self) -> Result<(), PackError> {
        self.serialize_unit()
    }

    #[inline(always)]
    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), PackError> {
        value.serialize(self)
    }

    #[inline(always)]
    fn serialize_unit(self) -> Result<(), PackError> {
        self.0.put(&[0xc0]);
        Ok(())
    }

    #[inline(always)]
    fn serialize_unit_struct(mut self, _: &'static str) -> Result<(), PackError> {
        self.array_len(0)
    }

    #[inline(always)]
    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<(), PackError> {
        self.serialize_str(variant)
    }

    #[inline(always)]
    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<(), PackError> {
        if name == rmp_serde::MSGPACK_EXT_STRUCT_NAME {
            return self.extension(name, value);
        }
        value.serialize(self)
    }

    #[inline(always)]
    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        mut self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), PackError> {
        self.variant(variant)?;
        value.serialize(self)
    }

    #[inline]
    fn serialize_seq(mut self, len: Option<usize>) -> Result<Self::SerializeSeq, PackError> {
        len.map_or(Ok(()), |len| self.array_len(len))?;
        Ok(Counted::new(self, len.is_some()))
    }

    #[inline(always)]
    fn serialize_tuple(mut self, len: usize) -> Result<Self::SerializeTuple, PackError> {
        self.array_len(len)?;
        Ok(Known(self))
    }

    #[inline(always)]
    fn serialize_tuple_struct(
        self,
        _: &'static str,
        len: usize,
    ) -> Result<Known<'a, S, READABLE>, PackError> {
        self.serialize_tuple(len)
    }

    #[inline(always)]
    fn serialize_tuple_variant(
        mut self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Self::SerializeTupleVariant, PackError> {
        self.variant(variant)?;
        self.serialize_tuple(len)
    }

    #[inline]
    fn serialize_map(mut self, len: Option<usize>) -> Result<Self::SerializeMap, PackError> {
        len.map_or(Ok(()), |len| self.map_len(len))?;
        Ok(Counted::new(self, len.is_some()))
    }

    #[inline(always)]
    fn serialize_struct(mut self, _: &'static str, len: usize) -> Result<Self::SerializeStruct, PackError> {
        self.map_len(len)?;
        Ok(Known(self))
    }

    #[inline(always)]
    fn serialize_struct_variant(
        mut self,
        name: &'static str,
        _: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Self::SerializeStructVariant, PackError> {
        self.variant(variant)?;
        self.serialize_struct(name, len)
    }
}

impl<S: Sink, const READABLE: bool> Packer<'_, S, READABLE> {
    /// A value of MessagePack's own extensions: rare, and written by `rmp_serde`.
    #[cold]
    fn extension<T: Serialize + ?Sized>(self, name: &'static str, value: &T) -> Result<(), PackError> {
        let mut bytes = Vec::new();
        rmp_serde::Serializer::new(&mut bytes)
            .serialize_newtype_struct(name, value)
            .map_err(ser::Error::custom)?;
        self.0.put(&bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
