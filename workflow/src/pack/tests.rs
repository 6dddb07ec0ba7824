//! The bytes are those of `rmp_serde`, whatever the value.

use proptest::collection::vec;
use proptest::prelude::*;
use serde::ser::{
    SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant,
};
use serde::{Serialize, Serializer};

use super::pack;

/// Anything that a `Serialize` may say.
#[derive(Clone, Debug)]
enum Said {
    Bool(bool),
    I8(i8),
    I16(i16),
    I32(i32),
    I64(i64),
    I128(i128),
    U8(u8),
    U16(u16),
    U32(u32),
    U64(u64),
    U128(u128),
    F32(f32),
    F64(f64),
    Char(char),
    Str(String),
    Bytes(Vec<u8>),
    None,
    Some(Box<Said>),
    Unit,
    UnitStruct,
    UnitVariant,
    Newtype(Box<Said>),
    NewtypeVariant(Box<Said>),
    /// As a list whose length is said before, or is not.
    Seq(Vec<Said>, bool),
    Tuple(Vec<Said>),
    TupleStruct(Vec<Said>),
    TupleVariant(Vec<Said>),
    /// As a map whose length is said before, or is not.
    Map(Vec<(Said, Said)>, bool),
    Struct(Vec<Said>),
    StructVariant(Vec<Said>),
    Extension(i8, Vec<u8>),
    /// Whether it is to be readable.
    Readable,
    /// Says it has no such value.
    Refused(String),
}

/// The names of fields, as many as the largest struct has; one that is longer than short names are.
const FIELDS: [&str; 20] = [
    "a",
    "bc",
    "",
    "a-name-of-thirty-one-characters",
    "a-name-of-thirty-two-characters!",
    "f5",
    "f6",
    "f7",
    "f8",
    "f9",
    "f10",
    "f11",
    "f12",
    "f13",
    "f14",
    "f15",
    "f16",
    "f17",
    "f18",
    "f19",
];

impl Serialize for Said {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Bool(value) => to.serialize_bool(*value),
            Self::I8(value) => to.serialize_i8(*value),
            Self::I16(value) => to.serialize_i16(*value),
            Self::I32(value) => to.serialize_i32(*value),
            Self::I64(value) => to.serialize_i64(*value),
            Self::I128(value) => to.serialize_i128(*value),
            Self::U8(value) => to.serialize_u8(*value),
            Self::U16(value) => to.serialize_u16(*value),
            Self::U32(value) => to.serialize_u32(*value),
            Self::U64(value) => to.serialize_u64(*value),
            Self::U128(value) => to.serialize_u128(*value),
            Self::F32(value) => to.serialize_f32(*value),
            Self::F64(value) => to.serialize_f64(*value),
            Self::Char(value) => to.serialize_char(*value),
            Self::Str(value) => to.serialize_str(value),
            Self::Bytes(value) => to.serialize_bytes(value),
            Self::None => to.serialize_none(),
            Self::Some(value) => to.serialize_some(value),
            Self::Unit => to.serialize_unit(),
            Self::UnitStruct => to.serialize_unit_struct("unit"),
            Self::UnitVariant => to.serialize_unit_variant("enum", 3, "unit"),
            Self::Newtype(value) => to.serialize_newtype_struct("newtype", value),
            Self::NewtypeVariant(value) => to.serialize_newtype_variant("enum", 4, "newtype", value),
            Self::Seq(values, is_known) => {
                let mut seq = to.serialize_seq(is_known.then_some(values.len()))?;
                values.iter().try_for_each(|value| seq.serialize_element(value))?;
                seq.end()
            }
            Self::Tuple(values) => {
                let mut tuple = to.serialize_tuple(values.len())?;
                values
                    .iter()
                    .try_for_each(|value| tuple.serialize_element(value))?;
                tuple.end()
            }
            Self::TupleStruct(values) => {
                let mut tuple = to.serialize_tuple_struct("tuple", values.len())?;
                values.iter().try_for_each(|value| tuple.serialize_field(value))?;
                tuple.end()
            }
            Self::TupleVariant(values) => {
                let mut tuple = to.serialize_tuple_variant("enum", 5, "tuple", values.len())?;
                values.iter().try_for_each(|value| tuple.serialize_field(value))?;
                tuple.end()
            }
            Self::Map(entries, is_known) => {
                let mut map = to.serialize_map(is_known.then_some(entries.len()))?;
                for (key, value) in entries {
                    map.serialize_entry(key, value)?;
                }
                map.end()
            }
            Self::Struct(values) => {
                let mut fields = to.serialize_struct("struct", values.len())?;
                for (name, value) in FIELDS.iter().zip(values) {
                    fields.serialize_field(name, value)?;
                }
                fields.end()
            }
            Self::StructVariant(values) => {
                let mut fields = to.serialize_struct_variant("enum", 6, "struct", values.len())?;
                for (name, value) in FIELDS.iter().zip(values) {
                    fields.serialize_field(name, value)?;
                }
                fields.end()
            }
            Self::Extension(tag, bytes) => {
                let inside = (tag, serde_bytes::Bytes::new(bytes));
                to.serialize_newtype_struct(rmp_serde::MSGPACK_EXT_STRUCT_NAME, &inside)
            }
            Self::Readable => {
                let is_readable = to.is_human_readable();
                to.serialize_bool(is_readable)
            }
            Self::Refused(message) => Err(serde::ser::Error::custom(message)),
        }
    }
}

/// The same bytes, or the same error, as `rmp_serde`; behind what stood there before.
fn assert_same<T: Serialize + ?Sized>(value: &T) {
    fn expected<C: rmp_serde::config::SerializerConfig>(
        value: &(impl Serialize + ?Sized),
        mut to: rmp_serde::Serializer<Vec<u8>, C>,
    ) -> Result<Vec<u8>, String> {
        value.serialize(&mut to).map_err(|error| error.to_string())?;
        Ok(to.into_inner())
    }
    let before = b"before".to_vec();
    let bare = || rmp_serde::Serializer::new(before.clone()).with_struct_map();
    let (mut bytes, mut readable) = (before.clone(), before.clone());
    let done = pack::<_, _, false>(value, &mut bytes).map_err(|error| error.to_string());
    assert_eq!(done.map(|()| bytes), expected(value, bare()));
    let done = pack::<_, _, true>(value, &mut readable).map_err(|error| error.to_string());
    assert_eq!(
        done.map(|()| readable),
        expected(value, bare().with_human_readable())
    );
}

/// Numbers beside those where another size begins.
fn edges() -> impl Iterator<Item = i128> {
    let powers = (0..=127).map(|bits| 1_i128.checked_shl(bits).unwrap_or(i128::MAX));
    powers.flat_map(|power| {
        (-33..=33).flat_map(move |off| [power.wrapping_add(off), power.wrapping_neg().wrapping_add(off)])
    })
}

/// Of this kind, if there is such a number.
fn assert_same_as<T: TryFrom<i128> + Serialize>(number: i128) {
    if let Ok(number) = T::try_from(number) {
        assert_same(&number);
    }
}

#[test]
fn numbers_at_every_edge_are_written_as_before() {
    for number in edges() {
        assert_same(&number);
        assert_same_as::<u128>(number);
        assert_same_as::<i64>(number);
        assert_same_as::<u64>(number);
        assert_same_as::<i32>(number);
        assert_same_as::<u32>(number);
        assert_same_as::<i16>(number);
        assert_same_as::<u16>(number);
        assert_same_as::<i8>(number);
        assert_same_as::<u8>(number);
    }
    for number in [0.0, -0.0, 1.5, f64::MIN, f64::MAX, f64::NAN, f64::INFINITY] {
        assert_same(&number);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "any number of the smaller kind will do"
        )]
        assert_same(&(number as f32));
    }
}

#[test]
fn lengths_at_every_edge_are_written_as_before() {
    for len in [
        0, 1, 15, 16, 31, 32, 127, 128, 255, 256, 257, 65_535, 65_536, 65_537,
    ] {
        let bytes = vec![7_u8; len];
        assert_same(&"x".repeat(len));
        assert_same(serde_bytes::Bytes::new(&bytes));
        assert_same(&bytes);
        let list: Vec<_> = bytes.iter().copied().map(Said::U8).collect();
        for is_known in [false, true] {
            assert_same(&Said::Seq(list.clone(), is_known));
            let map = list.iter().map(|value| (value.clone(), Said::Unit));
            assert_same(&Said::Map(map.collect(), is_known));
        }
        assert_same(&Said::Tuple(list));
    }
}

fn leaf() -> impl Strategy<Value = Said> {
    prop_oneof![
        any::<bool>().prop_map(Said::Bool),
        any::<i8>().prop_map(Said::I8),
        any::<i16>().prop_map(Said::I16),
        any::<i32>().prop_map(Said::I32),
        any::<i64>().prop_map(Said::I64),
        any::<i128>().prop_map(Said::I128),
        any::<u8>().prop_map(Said::U8),
        any::<u16>().prop_map(Said::U16),
        any::<u32>().prop_map(Said::U32),
        any::<u64>().prop_map(Said::U64),
        any::<u128>().prop_map(Said::U128),
        any::<f32>().prop_map(Said::F32),
        any::<f64>().prop_map(Said::F64),
        any::<char>().prop_map(Said::Char),
        "\\PC{0,40}".prop_map(Said::Str),
        vec(any::<u8>(), 0..40).prop_map(Said::Bytes),
        Just(Said::None),
        Just(Said::Unit),
        Just(Said::UnitStruct),
        Just(Said::UnitVariant),
        Just(Said::Readable),
        (any::<i8>(), vec(any::<u8>(), 0..20)).prop_map(|(tag, bytes)| Said::Extension(tag, bytes)),
    ]
}

fn said() -> impl Strategy<Value = Said> {
    let refused = "\\PC{0,4}".prop_map(Said::Refused);
    prop_oneof![200 => leaf(), 1 => refused].prop_recursive(4, 64, 20, |inner| {
        let several = || vec(inner.clone(), 0..=FIELDS.len());
        let entries = vec((inner.clone(), inner.clone()), 0..20);
        prop_oneof![
            inner.clone().prop_map(|value| Said::Some(value.into())),
            inner.clone().prop_map(|value| Said::Newtype(value.into())),
            inner.clone().prop_map(|value| Said::NewtypeVariant(value.into())),
            (several(), any::<bool>()).prop_map(|(values, is_known)| Said::Seq(values, is_known)),
            several().prop_map(Said::Tuple),
            several().prop_map(Said::TupleStruct),
            several().prop_map(Said::TupleVariant),
            (entries, any::<bool>()).prop_map(|(entries, is_known)| Said::Map(entries, is_known)),
            several().prop_map(Said::Struct),
            several().prop_map(Said::StructVariant),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_value_is_written_as_before(value in said()) {
        assert_same(&value);
    }
}
