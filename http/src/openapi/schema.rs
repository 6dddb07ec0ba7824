//! Short functions for schemas.

use utoipa::openapi::schema::{
    AdditionalProperties, AnyOfBuilder, ArrayBuilder, Object, ObjectBuilder, Schema, SchemaType, Type,
};
use utoipa::openapi::{Ref, RefOr};

/// A schema, or a reference to one.
pub(super) type Shape = RefOr<Schema>;

fn of(kind: Type) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(kind)
}

/// A text.
pub(super) fn text() -> Shape {
    of(Type::String).into()
}

/// A text with the given bounds of its length in bytes.
pub(super) fn text_of(len_min: usize, len_max: usize) -> Shape {
    let text = of(Type::String).min_length(Some(len_min));
    text.max_length(Some(len_max)).into()
}

/// A text of this form.
pub(super) fn pattern(pattern: &str) -> Shape {
    of(Type::String).pattern(Some(pattern)).into()
}

/// One of these words.
pub(super) fn word<S: AsRef<str>>(words: impl IntoIterator<Item = S>) -> Shape {
    let words = words.into_iter().map(|word| word.as_ref().to_owned());
    of(Type::String).enum_values(Some(words)).into()
}

/// A whole number from zero on, of 64 bits.
pub(super) fn number() -> Shape {
    of(Type::Integer).minimum(Some(0)).into()
}

/// A whole number between these two.
pub(super) fn number_between(min: u64, max: u64) -> Shape {
    let min = usize::try_from(min).unwrap_or(usize::MAX);
    let max = usize::try_from(max).unwrap_or(usize::MAX);
    of(Type::Integer).minimum(Some(min)).maximum(Some(max)).into()
}

/// A time.
pub(super) fn time() -> Shape {
    let time = of(Type::Integer).minimum(Some(0));
    time.description(Some("microseconds since 1970")).into()
}

/// Yes or no.
pub(super) fn flag() -> Shape {
    of(Type::Boolean).into()
}

/// Any value.
pub(super) fn anything() -> Shape {
    ObjectBuilder::new().schema_type(SchemaType::AnyValue).into()
}

/// A list of such values.
pub(super) fn list(items: Shape) -> Shape {
    ArrayBuilder::new().items(items).into()
}

/// Such a value, or null.
pub(super) fn or_null(shape: Shape) -> Shape {
    AnyOfBuilder::new().item(shape).item(of(Type::Null)).into()
}

/// A value of one of these shapes.
pub(super) fn either(one: Shape, other: Shape) -> Shape {
    AnyOfBuilder::new().item(one).item(other).into()
}

/// A schema that has a name.
pub(super) fn named(name: &str) -> Shape {
    Ref::from_schema_name(name).into()
}

/// An object whose fields are all there.
pub(super) fn object<const N: usize>(fields: [(&str, Shape); N]) -> Shape {
    record(fields).into()
}

/// As [`object`]; further fields depend on its kind.
pub(super) fn open_object<const N: usize>(fields: [(&str, Shape); N]) -> Shape {
    let mut record = record(fields);
    record.additional_properties = Some(Box::new(AdditionalProperties::FreeForm(true)));
    record.into()
}

/// An object whose first fields are all there, and the others at times.
pub(super) fn object_with<const N: usize, const M: usize>(
    fields: [(&str, Shape); N],
    optional: [(&str, Shape); M],
) -> Shape {
    let mut record = record(fields);
    for (name, shape) in optional {
        record.properties.insert(name.to_owned(), shape);
    }
    record.into()
}

/// A request body: the first fields are required, the others optional, and further ones are refused.
pub(super) fn sent<const N: usize, const M: usize>(
    needed: [(&str, Shape); N],
    optional: [(&str, Shape); M],
) -> Shape {
    let mut record = record(needed);
    for (name, shape) in optional {
        record.properties.insert(name.to_owned(), shape);
    }
    record.additional_properties = Some(Box::new(AdditionalProperties::FreeForm(false)));
    record.into()
}

fn record<const N: usize>(fields: [(&str, Shape); N]) -> Object {
    let mut object = of(Type::Object);
    for (name, shape) in fields {
        object = object.property(name, shape).required(name);
    }
    object.build()
}
