//! Values of several: their elements stand one behind the other, after how many there are.

use serde::Serialize;
use serde::ser::{
    SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant,
};

use super::{PackError, Packer, Sink};

/// Elements whose number has been written.
pub(crate) struct Known<'a, S, const READABLE: bool>(pub(super) Packer<'a, S, READABLE>);

/// Elements whose number may not be known before the last.
pub(crate) struct Counted<'a, S, const READABLE: bool> {
    packer: Packer<'a, S, READABLE>,
    /// Those so far, and how many, if their number has not been written.
    kept: Option<(Vec<u8>, usize)>,
}

impl<'a, S: Sink, const READABLE: bool> Counted<'a, S, READABLE> {
    #[inline(always)]
    pub(super) fn new(packer: Packer<'a, S, READABLE>, is_known: bool) -> Self {
        let kept = (!is_known).then(Default::default);
        Self { packer, kept }
    }

    #[inline(always)]
    fn element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), PackError> {
        let Some((bytes, len)) = &mut self.kept else {
            return self.packer.value(value);
        };
        *len += 1;
        Packer::<_, READABLE>(bytes).value(value)
    }
}

impl<S: Sink, const READABLE: bool> SerializeSeq for Counted<'_, S, READABLE> {
    type Ok = ();
    type Error = PackError;

    #[inline(always)]
    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), PackError> {
        self.element(value)
    }

    #[inline(always)]
    fn end(mut self) -> Result<(), PackError> {
        if let Some((bytes, len)) = self.kept {
            self.packer.array_len(len)?;
            self.packer.0.put(&bytes);
        }
        Ok(())
    }
}

impl<S: Sink, const READABLE: bool> SerializeMap for Counted<'_, S, READABLE> {
    type Ok = ();
    type Error = PackError;

    #[inline(always)]
    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), PackError> {
        self.element(key)
    }

    #[inline(always)]
    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), PackError> {
        self.element(value)
    }

    #[inline(always)]
    fn end(mut self) -> Result<(), PackError> {
        if let Some((bytes, len)) = self.kept {
            self.packer.map_len(len / 2)?;
            self.packer.0.put(&bytes);
        }
        Ok(())
    }
}

/// One behind the other, without names.
macro_rules! in_order {
    ($trait:ident, $element:ident) => {
        impl<S: Sink, const READABLE: bool> $trait for Known<'_, S, READABLE> {
            type Ok = ();
            type Error = PackError;

            #[inline(always)]
            fn $element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), PackError> {
                self.0.value(value)
            }

            #[inline(always)]
            fn end(self) -> Result<(), PackError> {
                Ok(())
            }
        }
    };
}

in_order!(SerializeTuple, serialize_element);
in_order!(SerializeTupleStruct, serialize_field);
in_order!(SerializeTupleVariant, serialize_field);

/// Each behind its name.
macro_rules! by_name {
    ($trait:ident) => {
        impl<S: Sink, const READABLE: bool> $trait for Known<'_, S, READABLE> {
            type Ok = ();
            type Error = PackError;

            #[inline(always)]
            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                key: &'static str,
                value: &T,
            ) -> Result<(), PackError> {
                self.0.field(key)?;
                self.0.value(value)
            }

            #[inline(always)]
            fn end(self) -> Result<(), PackError> {
                Ok(())
            }
        }
    };
}

by_name!(SerializeStruct);
by_name!(SerializeStructVariant);
