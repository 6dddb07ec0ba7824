//! The types of values that a workflow's code takes: for callers that bring encoded values without knowing the types.

use std::any::type_name;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use millrun_core::panic_message;
use serde::de::DeserializeOwned;

use crate::{Payload, PayloadError};

/// A value does not decode as the type that the code takes here. Nothing was recorded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{taker} takes a value of the type {expected}: {problem}")]
#[non_exhaustive]
pub struct WrongType {
    /// What takes the value: the workflow, or its signal, query or update, with the name.
    pub taker: String,
    /// The type, as the compiler names it: for people.
    pub expected: &'static str,
    /// Why the value does not have that type.
    pub problem: String,
}

/// A type of values that the code takes.
#[derive(Clone, Copy)]
pub(crate) struct Expected {
    name: &'static str,
    check: fn(&Payload) -> Result<(), PayloadError>,
}

impl Expected {
    pub(crate) fn of<T: DeserializeOwned>() -> Self {
        Self {
            name: type_name::<T>(),
            check: |value| value.decode::<T>().map(drop),
        }
    }

    /// The type, as the compiler names it.
    pub(crate) const fn name(&self) -> &'static str {
        self.name
    }

    /// Decodes the value, and drops it. A panic of the type's own code is caught.
    pub(crate) fn check(&self, value: &Payload, taker: impl FnOnce() -> String) -> Result<(), WrongType> {
        let problem = match catch_unwind(AssertUnwindSafe(|| (self.check)(value))) {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error.to_string(),
            Err(panic) => format!("decoding it panicked: {}", panic_message(panic)),
        };
        Err(WrongType {
            taker: taker(),
            expected: self.name,
            problem,
        })
    }
}

impl fmt::Debug for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Decodes a value of a caller that may not know the type.
pub(crate) fn decoded<T: DeserializeOwned>(
    value: &Payload,
    taker: impl FnOnce() -> String,
) -> Result<T, WrongType> {
    value.decode().map_err(|error| WrongType {
        taker: taker(),
        expected: type_name::<T>(),
        problem: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[test]
    fn a_value_of_another_type_is_named_with_what_was_expected() {
        let expected = Expected::of::<u64>();
        let taker = || "the signal \"paid\"".to_owned();
        assert_eq!(expected.check(&Payload::encode(&7_u64).unwrap(), taker), Ok(()));
        let wrong = expected.check(&Payload::encode("seven").unwrap(), taker);
        let text = wrong.unwrap_err().to_string();
        assert!(
            text.starts_with("the signal \"paid\" takes a value of the type u64: "),
            "{text}"
        );
    }

    #[test]
    fn a_type_whose_decoding_panics_takes_nothing() {
        struct Panicking;

        impl<'de> Deserialize<'de> for Panicking {
            fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
                panic!("not today")
            }
        }

        let wrong = Expected::of::<Panicking>().check(&Payload::encode(&1).unwrap(), || "it".into());
        assert_eq!(wrong.unwrap_err().problem, "decoding it panicked: not today");
    }
}
